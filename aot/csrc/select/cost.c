/* cost.c: how long rows take on a problem. The formulas are those of kernels/table/model.py, where they are explained.
 *
 * A call whose problem is new waits for this. What depends on the problem alone is worked out once; rows are estimated
 * eight at a time; only those whose estimate is near the least are looked at closer.
 */
#include "internal.h"
#include "select/eight.h"

/* What of a problem the time of every row depends on. */
struct work {
  float rows, n, k; /* of one product */
  float count;
  bool uneven;         /* groups whose rows the host does not know: kernels/table/model.py */
  four logs;           /* of rows, n, k in elements of 16 bits, and memory */
  eight memory_log;    /* as fits weigh it */
  float bytes, memory; /* that move at least; and the microseconds that takes */
  float a_bytes;       /* of an element of A and B */
  float a, b;          /* stride_penalty of each */
  float per_load, per_multiply, per_l2, per_processor;
};

/* Rows side by side: what they are, and how they share the problem. */
struct asked {
  uint64_t tile[MOST_ROWS];
  int32_t split[MOST_ROWS];
  int32_t at_once[MOST_ROWS];    /* tiles that the GPU works on */
  int32_t rows_m[MOST_ROWS];     /* of A that a tile works on */
  int32_t even_steps[MOST_ROWS]; /* of each block, where all share all tiles evenly; else 0 */
};

/* What that makes of the problem, of eight rows each. Counts are exact up to 2^22, and beyond as near as floats are. */
enum { MOST_EIGHTS = MOST_ROWS / 8 };
struct counts {
  eight rows_m[MOST_EIGHTS], block_n[MOST_EIGHTS];  /* of A and of B that a tile works on */
  eight loads_m[MOST_EIGHTS], loads_n[MOST_EIGHTS]; /* that a block loads itself */
  eight all_m[MOST_EIGHTS], all_n[MOST_EIGHTS];     /* of all tiles */
  eight tiles[MOST_EIGHTS], waves[MOST_EIGHTS], steps[MOST_EIGHTS], depth[MOST_EIGHTS];
};

/* What fits weigh the logarithms of: first what each row has of its own, then m, n and k. Those before SPLIT stand in
 * products too. */
enum { US, LOAD, MULTIPLY, MEMORY, L2, WAVES, FILL, USED_M, USED_N, LAST_WAVE, STEPS, SPLIT, OWN_PARTS };
enum { STRIDE_TERMS = 6 };
_Static_assert((int)SPLIT == (int)PRODUCT_TERMS && OWN_PARTS % 4 == 0 && (int)OWN_PARTS + 3 == (int)LOG_TERMS,
               "fits are weighed in fours");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a row's tile is taken apart as two words");

/* The same rows' microseconds by the rates alone, those of its parts, and how much memory and loading are of all. */
struct estimates {
  eight us[MOST_EIGHTS], load[MOST_EIGHTS], multiply[MOST_EIGHTS], l2[MOST_EIGHTS];
  eight of_memory[MOST_EIGHTS], of_load[MOST_EIGHTS];
};

/* Logarithms that fits weigh, of each row, and the first of them again behind the last. */
struct logs {
  float of_row[MOST_ROWS][OWN_PARTS + 8];
};

INLINED struct work work_of(const struct problem *p) {
  float a_bytes = (float)dtype_bytes(p->a_type), d_bytes = (float)dtype_bytes(p->d_type);
  float rows_of_d = (float)p->rows, n = (float)p->n, k = (float)p->k, count = (float)p->count;
  bool uneven = p->op == OP_GROUPED_MM && p->ragged == LIBGEMM_RAGGED_M && p->m > 0 && p->count > 1;
  if (uneven) {
    if (p->m < p->count) count = (float)p->m; /* no more groups than rows have any */
    rows_of_d = (float)p->m / count;
  }
  float bytes = count * (a_bytes * (rows_of_d * k + n * k) + d_bytes * rows_of_d * n);
  float memory = bytes / machine.memory * 1e-3f;
  return (struct work){.rows = rows_of_d,
                       .n = n,
                       .k = k,
                       .count = count,
                       .uneven = uneven,
                       .bytes = bytes,
                       .memory = memory,
                       .logs = low_of(log2_of((eight){rows_of_d, n, k * a_bytes / 2, memory, 1, 1, 1, 1})),
                       .memory_log = log2_of(eight_of(2 + memory)),
                       .a_bytes = a_bytes,
                       .a = stride_penalty[p->a_stride],
                       .b = stride_penalty[p->b_stride],
                       .per_load = 1e-3f / machine.load,
                       .per_multiply = 1e-3f / machine.multiply,
                       .per_l2 = 1e-3f / machine.l2,
                       .per_processor = 1 / (float)p->multiprocessors};
}

/* Rows of A that each tile works on, where tiles share all rows out evenly. */
static int32_t rows_of_tile(const struct row *row, const struct problem *p) {
  if (p->rows == 0) return row->block_m;
  int64_t rows = ceil_div(p->rows, blocks_of(p->rows, row->block_m));
  rows = ceil_div(rows, row->row_step) * row->row_step;
  return rows > row->row_least ? (int32_t)rows : row->row_least;
}

static void ask_all(const struct weighed *rows, int count, const struct problem *p, struct asked *asked) {
  int32_t at_once[MOST_CLUSTER + 1] = {0, p->multiprocessors};
  for (int size = 2; size <= MOST_CLUSTER; size++)
    at_once[size] = (int32_t)clusters_at_once(p->multiprocessors, size) * size;
  for (int i = 0; i < count || i % 8; i++) {
    const struct weighed *weighed = &rows[i < count ? i : 0]; /* eights are filled up */
    const struct row *row = weighed->row;
    bool even = row->stream_k && weighed->split > 1;
    asked->tile[i] = row->tile;
    asked->split[i] = weighed->split;
    asked->at_once[i] = at_once[row->share_a * row->share_b];
    asked->rows_m[i] = row->row_step ? rows_of_tile(row, p) : row->block_m;
    asked->even_steps[i] = even ? (int32_t)stream_steps(row, p) + stream_k.added_steps : 0;
  }
}

/* Of the i-th eight rows. The tiles of a cluster begin and end together; its blocks share loads in equal parts. */
INLINED void count(const struct work *w, const struct asked *asked, struct counts *c, int i) {
  eight_ints some, others;
  memcpy(&some, asked->tile + 8 * i, sizeof some);
  memcpy(&others, asked->tile + 8 * i + 4, sizeof others);
  eight_ints m_and_n = PICK(some, others, 0, 2, 4, 6, 8, 10, 12, 14);
  eight_ints k_and_shares = PICK(some, others, 1, 3, 5, 7, 9, 11, 13, 15);
  eight block_m = __builtin_convertvector(m_and_n & 0xFFFF, eight);
  eight block_n = __builtin_convertvector(m_and_n >> 16, eight);
  eight block_k = __builtin_convertvector(k_and_shares & 0xFFFF, eight);
  eight share_a = __builtin_convertvector(k_and_shares >> 16 & 0xFF, eight);
  eight share_b = __builtin_convertvector(k_and_shares >> 24, eight);
  eight per_share_a = 1.0f / share_a, per_share_b = 1.0f / share_b; /* powers of two, so exact */
  eight split = eight_ints_at(asked->split + 8 * i), at_once = eight_ints_at(asked->at_once + 8 * i);
  eight even_steps = eight_ints_at(asked->even_steps + 8 * i), rows_m = eight_ints_at(asked->rows_m + 8 * i);
  eight tiles_m = whole_of(w->rows / block_m), tiles_n = whole_of(w->n / block_n);
  eight whole_m = whole_of(tiles_m * per_share_b) * share_b, whole_n = whole_of(tiles_n * per_share_a) * share_a;
  if (w->uneven) whole_m = tiles_m = most_of(w->rows / block_m + 0.5f, eight_of(1)); /* the last is half full */
  eight tiles = least_of(whole_m * whole_n * split * w->count, eight_of(0x1p60f));   /* beyond differ by nothing */
  eight steps = whole_of(whole_of(w->k / block_k) / split);
  tiles = one_of(even_steps > 0.0f, at_once, tiles);
  steps = one_of(even_steps > 0.0f, even_steps, steps);
  c->rows_m[i] = rows_m;
  c->block_n[i] = block_n;
  c->loads_m[i] = rows_m * per_share_a;
  c->loads_n[i] = block_n * per_share_b;
  c->all_m[i] = tiles_m * rows_m;
  c->all_n[i] = tiles_n * block_n;
  c->tiles[i] = tiles;
  c->waves[i] = whole_of(tiles / at_once);
  c->steps[i] = steps;
  c->depth[i] = steps * block_k;
}

/* Of the i-th eight rows. */
INLINED void estimate(const struct work *w, const struct counts *c, struct estimates *e, int i) {
  eight depth = c->depth[i] * w->a_bytes, moved = (c->loads_m[i] * w->a + c->loads_n[i] * w->b) * depth;
  eight load = c->waves[i] * moved * w->per_load, l2 = c->tiles[i] * moved * w->per_l2;
  eight multiply = c->waves[i] * depth * c->rows_m[i] * c->block_n[i] * (w->per_multiply / 2);
  eight sum = fourth(load) + fourth(multiply) + fourth(l2) + fourth(eight_of(w->memory));
  e->us[i] = machine.fixed * 1e-3f + c->waves[i] / 2.0f + fourth_root(sum);
  e->load[i] = load;
  e->multiply[i] = multiply;
  e->l2[i] = l2;
  eight most = 3.0f + most_of(most_of(load, multiply), most_of(l2, eight_of(w->memory)));
  e->of_memory[i] = w->memory / most;
  e->of_load[i] = load / most;
}

/* Of the i-th eight rows. */
INLINED void take_logs(const struct work *w, const struct asked *asked, const struct counts *c,
                       const struct estimates *e, struct logs *to, int i) {
  eight full = log2_of(c->tiles[i] * w->per_processor), waves = log2_of(c->waves[i]), zero = eight_of(0);
  eight logs[OWN_PARTS] = {
      [US] = log2_of(e->us[i]),
      [LOAD] = log2_of(2.0f + e->load[i]),
      [MULTIPLY] = log2_of(2.0f + e->multiply[i]),
      [MEMORY] = w->memory_log,
      [L2] = log2_of(2.0f + e->l2[i]),
      [WAVES] = waves,
      [FILL] = least_of(full, zero),
      [USED_M] = w->logs[0] - log2_of(c->all_m[i]),
      [USED_N] = w->logs[1] - log2_of(c->all_n[i]),
      [LAST_WAVE] = one_of(c->waves[i] > 1.0f, full - waves, zero),
      [STEPS] = log2_of(c->steps[i]),
      [SPLIT] = log2_of(eight_ints_at(asked->split + 8 * i)),
  };
#pragma GCC unroll 3
  for (int part = 0; part < OWN_PARTS; part += 4) {
    eight of_rows[4];
    turn(logs + part, of_rows);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
      four of_row = j < 4 ? low_of(of_rows[j]) : high_of(of_rows[j - 4]);
      put(of_row, to->of_row[8 * i + j] + part);
      if (part < 8) put(of_row, to->of_row[8 * i + j] + OWN_PARTS + part);
    }
  }
}

/* Rows that are far behind by the rates alone are not looked at closer: kernels/table/model.py. */
INLINED int near_ones(const eight *us, int count, int *near) {
  int found = 0;
  eight least = eight_of(1e30f);
  for (int i = 0; 8 * i < count; i++) least = least_of(least, us[i]);
  eight most_us = eight_of(least_in(least) * far_behind);
  for (int i = 0; 8 * i < count; i++) {
    eight_ints is_far = us[i] > most_us;
    for (int j = 0; j < 8; j++) {
      near[found] = 8 * i + j;
      found += 1 + is_far[j];
    }
  }
  while (found > 1 && near[found - 1] >= count) found--; /* which only fill up an eight */
  return found;
}

/* What a fit adds for A's stride or B's, by its class: for those of memory, and of loading, by their shares of all. */
static inline float of_stride(const float *weights, int stride, float memory, float load) {
  if (stride == 0) return weights[0] + weights[3] * memory + weights[5] * load;
  if (stride == 1) return weights[1] + weights[4] * memory;
  return stride == 2 ? weights[2] : 0;
}

static inline float of_strides(const float *weights, const struct problem *p, const struct estimates *e, int i) {
  float memory = ((const float *)e->of_memory)[i], load = ((const float *)e->of_load)[i];
  return of_stride(weights, p->a_stride, memory, load) + of_stride(weights + STRIDE_TERMS, p->b_stride, memory, load);
}

/* The weighted sum of a row's logarithms, and of products of each with itself and the six behind it, around: the first
 * eight of them, and the other four. */
INLINED four sum_of_logs(const float *weights, const float *logs, four others) {
  four sum = four_at(weights) * others, by_last = four_at(weights + 12);
  eight by = eight_at(weights + 4);
  weights += 16;
#pragma GCC unroll 6
  for (int behind = 0; behind < OWN_PARTS / 2; behind++, weights += OWN_PARTS) {
    by += eight_at(logs + behind) * eight_at(weights);
    by_last += four_at(logs + behind + 8) * four_at(weights + 8);
  }
  by += eight_at(logs + OWN_PARTS / 2) * eight_at(weights); /* of pairs that are six apart, each once */
  by *= eight_at(logs);
  return sum + (low_of(by) + (high_of(by) + by_last * four_at(logs + 8)));
}

/* The least of `found` logarithms, with an eight of others behind them; or of those at most `least_log`, which are
 * expected to take as long as the bytes, that of least fit and estimate: kernels/table/model.py. */
INLINED int best_of(const float *fitted, int found, float least_log, const int *near, const struct logs *logs) {
  int best = 0;
  eight of_all = eight_of(120);
  for (int i = 0; i < found; i += 8) of_all = least_of(of_all, eight_at(fitted + i));
  float least = least_in(of_all), least_both = 1e9f;
  if (least < least_log) least = least_log;
  for (int i = 0; i < found; i++) {
    if (fitted[i] > least) continue;
    float both = fitted[i] + 2 * logs->of_row[near[i]][US];
    if (both < least_both) best = i, least_both = both;
  }
  return best;
}

/* Each step for all rows before the next: then none waits for what was just written, and the processor works on several
 * rows at a time. */
INLINED const struct row *least_fitted(const struct weighed *rows, int count, const struct problem *p,
                                       const struct work *w, const struct asked *asked, const struct counts *c,
                                       float *us) {
  struct estimates e;
  struct logs logs;
  int near[MOST_ROWS], eights = (count + 7) / 8, layout = p->trans_a * 2 + p->trans_b;
  float fitted[MOST_ROWS + 8];
  for (int i = 0; i < eights; i++) estimate(w, c, &e, i);
  int found = near_ones(e.us, count, near);
  for (int i = 0; i < eights; i++) take_logs(w, asked, c, &e, &logs, i);
  four others = w->logs;
  others[3] = 1; /* of the constant weight */
  bool strided = p->a_stride != 3 || p->b_stride != 3;
  for (int i = 0; i < found; i++) {
    const float *weights = rows[near[i]].row->fit->weights[layout];
    float sum = sum_of(sum_of_logs(weights, logs.of_row[near[i]], others));
    if (strided) sum += of_strides(weights + 4 * FIT_FOURS - 2 * STRIDE_TERMS, p, &e, near[i]);
    fitted[i] = in_range(sum);
  }
  for (int i = 0; i < 8; i++) fitted[found + i] = 120; /* no less than any */
  /* A single product takes no less than its bytes; of groups some may be empty. */
  float least_log = p->count == 1 ? w->logs[3] : -100;
  int best = best_of(fitted, found, least_log, near, &logs);
  *us = exp2_of(fitted[best] > least_log ? fitted[best] : least_log);
  return rows[near[best]].row;
}

/* By the rough formula of rows that nobody has measured. */
INLINED float rough_us(const struct row *row, const struct work *w, float rows_m, float waves, float steps) {
  float used = rows_m / (float)row->block_m; /* where a tile works on no more rows than it needs */
  float step_ns = row->model.step_ns * used;
  float compute = row->model.fixed_ns + waves * (steps * step_ns + row->model.tile_ns);
  if (row->scratch_bytes) compute += 2000; /* the first descriptors: others are made while tiles are multiplied */
  float memory = row->model.fixed_ns + w->bytes * row->model.byte_ps * 1e-3f;
  return fourth_root(fourth(eight_of(compute * 1e-3f)) + fourth(eight_of(memory * 1e-3f)))[0];
}

INLINED const struct row *least_rough(const struct weighed *rows, int count, const struct work *w,
                                      const struct counts *c, float *us) {
  int best = 0;
  for (int i = 0; i < count; i++) {
    float waves = c->waves[i / 8][i % 8], steps = c->steps[i / 8][i % 8];
    float this_us = rough_us(rows[i].row, w, c->rows_m[i / 8][i % 8], waves, steps);
    if (i && !(this_us < *us)) continue;
    best = i;
    *us = this_us;
  }
  return rows[best].row;
}

INLINED const struct row *least_of_all(const struct weighed *rows, int found, const struct problem *p, float *us) {
  bool fitted = rows[0].row->fit != NULL;
  struct work w = work_of(p);
  struct asked asked;
  struct counts c;
  ask_all(rows, found, p, &asked);
  for (int i = 0; 8 * i < found; i++) count(&w, &asked, &c, i);
  if (fitted) return least_fitted(rows, found, p, &w, &asked, &c, us);
  return least_rough(rows, found, &w, &c, us);
}

FOR_AVX2 static const struct row *least_by_avx2(const struct weighed *rows, int found, const struct problem *p,
                                                float *us) {
  return least_of_all(rows, found, p, us);
}

const struct row *least_time(const struct weighed *rows, int found, const struct problem *p, float *us) {
  return HAS_AVX2 ? least_by_avx2(rows, found, p, us) : least_of_all(rows, found, p, us);
}

/* 3 for rows that begin on 128 bytes, 2 on 64, 1 on 32, else 0. */
HOT int32_t stride_class(int64_t ld, int bytes) {
  uint64_t low = (uint64_t)ld * (uint64_t)bytes % 128; /* of any ld: nobody has checked it yet */
  return low == 0 ? 3 : low % 64 == 0 ? 2 : low % 32 == 0;
}
