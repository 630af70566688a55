/* cost.c: how long rows take on a problem. The formulas are those of kernels/table/model.py, where they are explained.
 *
 * A call whose problem is new waits for this. What depends on the problem alone is worked out once; rows are estimated
 * four at a time; only those whose estimate is near the least are looked at closer.
 */
#include "internal.h"
#include "select/four.h"

/* What of a problem the time of every row depends on. */
struct work {
  float rows, n, k;    /* of one product */
  float bytes, memory; /* that move at least; and the microseconds that takes */
  float a_bytes;       /* of an element of A and B */
  float a, b;          /* stride_penalty of each */
  float per_load, per_multiply, per_l2, per_processor;
};

/* Rows side by side, in fours: what the problem asks of each. */
struct asked {
  float tiles[MOST_ROWS], waves[MOST_ROWS];
  int32_t steps[MOST_ROWS], split[MOST_ROWS];
  int32_t block_m[MOST_ROWS], block_n[MOST_ROWS], block_k[MOST_ROWS]; /* the first: rows of A that a tile works on */
  int32_t loads_m[MOST_ROWS], loads_n[MOST_ROWS];                     /* rows of A and of B that a block loads itself */
  int32_t tiles_m[MOST_ROWS], tiles_n[MOST_ROWS];
};

/* What fits weigh the logarithms of: first what each row has of its own, then m, n and k. Those before SPLIT stand in
 * products too. */
enum { US, LOAD, MULTIPLY, MEMORY, L2, WAVES, FILL, USED_M, USED_N, LAST_WAVE, STEPS, SPLIT, OWN_PARTS };
enum { STRIDE_TERMS = 6 };
_Static_assert((int)SPLIT == (int)PRODUCT_TERMS && OWN_PARTS % 4 == 0 && (int)OWN_PARTS + 3 == (int)LOG_TERMS,
               "fits are weighed in fours");

/* The same rows' microseconds by the rates alone, what fits take logarithms of, and how much memory and loading are of
 * all. */
struct estimates {
  float us[MOST_ROWS], parts[OWN_PARTS][MOST_ROWS], memory[MOST_ROWS], load[MOST_ROWS];
};

static struct work work_of(const struct problem *p) {
  float a_bytes = (float)dtype_bytes(p->a_type), d_bytes = (float)dtype_bytes(p->d_type);
  float rows_of_d = (float)p->rows, n = (float)p->n, k = (float)p->k;
  float bytes = (float)p->count * (a_bytes * (rows_of_d * k + n * k) + d_bytes * rows_of_d * n);
  return (struct work){.rows = rows_of_d,
                       .n = n,
                       .k = k,
                       .bytes = bytes,
                       .memory = bytes / machine.memory * 1e-3f,
                       .a_bytes = a_bytes,
                       .a = stride_penalty[p->a_stride],
                       .b = stride_penalty[p->b_stride],
                       .per_load = 1e-3f / machine.load,
                       .per_multiply = 1e-3f / machine.multiply,
                       .per_l2 = 1e-3f / machine.l2,
                       .per_processor = 1 / (float)p->multiprocessors};
}

/* Rows of A that each tile works on, where `tiles` of them hold all rows. */
static int64_t rows_of_tile(const struct row *row, const struct problem *p, int64_t tiles) {
  if (!row->row_step || p->rows == 0) return row->block_m;
  return ceil_div(ceil_div(p->rows, tiles), row->row_step) * row->row_step;
}

static void ask(const struct row *row, const struct problem *p, struct asked *asked, int i) {
  const int64_t most = (int64_t)1 << 60; /* counts beyond differ by nothing */
  int64_t tiles_m = blocks_of(p->rows, row->block_m), tiles_n = blocks_of(p->n, row->block_n);
  int64_t steps = blocks_of(p->k, row->block_k), block_m = rows_of_tile(row, p, tiles_m);
  int64_t split = split_count(row, p), tiles = tiles_m * tiles_n * split, at_once = p->multiprocessors;
  int cluster = row->share_a * row->share_b;
  if (cluster > 1) { /* its tiles begin and end together */
    tiles = ceil_div(tiles_m, row->share_b) * ceil_div(tiles_n, row->share_a) * cluster * split;
    at_once = clusters_at_once(p->multiprocessors, cluster) * cluster;
  }
  if (p->count > 1 && tiles > most / p->count) tiles = most / p->count;
  tiles *= p->count;
  steps = split == 1 ? steps : ceil_div(steps, split);
  if (row->stream_k && split > 1) tiles = at_once, steps = stream_steps(row, p) + stream_k.added_steps;
  asked->tiles[i] = (float)tiles;
  asked->waves[i] = (float)ceil_div(tiles, at_once);
  asked->steps[i] = (int32_t)steps;
  asked->split[i] = (int32_t)split;
  asked->block_m[i] = (int32_t)block_m;
  asked->block_n[i] = row->block_n;
  asked->block_k[i] = row->block_k;
  asked->loads_m[i] = (int32_t)block_m / row->share_a;
  asked->loads_n[i] = row->block_n / row->share_b;
  asked->tiles_m[i] = (int32_t)tiles_m;
  asked->tiles_n[i] = (int32_t)tiles_n;
}

/* Of the four rows from the i-th on. */
static void estimate(const struct work *w, const struct asked *asked, struct estimates *e, int i) {
  four tiles = four_at(asked->tiles + i), waves = four_at(asked->waves + i), steps = four_ints_at(asked->steps + i);
  four block_m = four_ints_at(asked->block_m + i), block_n = four_ints_at(asked->block_n + i);
  four loads_m = four_ints_at(asked->loads_m + i), loads_n = four_ints_at(asked->loads_n + i);
  four depth = steps * four_ints_at(asked->block_k + i) * w->a_bytes, moved = (loads_m * w->a + loads_n * w->b) * depth;
  four load = waves * moved * w->per_load, l2 = tiles * moved * w->per_l2;
  four memory = four_of(w->memory), multiply = waves * depth * block_m * block_n * (w->per_multiply / 2);
  four sum = fourth(load) + fourth(multiply) + fourth(l2) + fourth(memory);
  four us = machine.fixed * 1e-3f + waves / 2.0f + fourth_root(sum), one = four_of(1), full = tiles * w->per_processor;
  const four parts[OWN_PARTS] = {
      [US] = us,
      [LOAD] = 2.0f + load,
      [MULTIPLY] = 2.0f + multiply,
      [MEMORY] = 2.0f + memory,
      [L2] = 2.0f + l2,
      [WAVES] = waves,
      [FILL] = least_of(full, one),
      [USED_M] = w->rows / (four_ints_at(asked->tiles_m + i) * block_m),
      [USED_N] = w->n / (four_ints_at(asked->tiles_n + i) * block_n),
      [LAST_WAVE] = one_of(waves > 1.0f, full / waves, one),
      [STEPS] = steps,
      [SPLIT] = four_ints_at(asked->split + i),
  };
  four most = 3.0f + most_of(most_of(load, multiply), most_of(l2, memory));
  put(us, e->us + i);
  put(memory / most, e->memory + i);
  put(load / most, e->load + i);
#pragma GCC unroll 12
  for (int part = 0; part < OWN_PARTS; part++) put(parts[part], e->parts[part] + i);
}

/* What a fit adds for A's stride or B's, by its class: for those of memory, and of loading, by their shares. */
static float of_stride(const float *weights, int stride, float memory, float load) {
  if (stride == 0) return weights[0] + weights[3] * memory + weights[5] * load;
  if (stride == 1) return weights[1] + weights[4] * memory;
  return stride == 2 ? weights[2] : 0;
}

/* A row that is looked at closer: what its fit takes logarithms of, then those, and zeros. */
struct near {
  const float *weights;
  int row;
  float logs[16], sum, fitted;
};

/* Take logarithms, and begin the sum. `others` are those of the problem's own parts. */
static void begin_sum(struct near *near, const struct problem *p, const struct estimates *e, four others) {
  const float *weights = near->weights, *of_strides = weights + TERMS - 2 * STRIDE_TERMS;
  float memory = e->memory[near->row], load = e->load[near->row];
  float strides = of_stride(of_strides, p->a_stride, memory, load) +
                  of_stride(of_strides + STRIDE_TERMS, p->b_stride, memory, load);
  four sum = four_at(weights + 1 + OWN_PARTS) * others;
#pragma GCC unroll 3
  for (int i = 0; i < OWN_PARTS; i += 4) {
    four logs = log2_of(four_at(near->logs + i));
    put(logs, near->logs + i);
    sum += four_at(weights + 1 + i) * logs;
  }
  near->logs[SPLIT] = 0; /* in no product */
  near->sum = weights[0] + strides + sum_of(sum);
}

/* Weighted products of each logarithm with itself and those behind it. */
static float products(const float *weights, const float *logs) {
  four sum = four_of(0);
#pragma GCC unroll 11
  for (int i = 0; i < PRODUCT_TERMS; i++) {
    four row = four_at(weights) * four_at(logs + i);
#pragma GCC unroll 3
    for (int j = i + 4; j < PRODUCT_TERMS; j += 4) row += four_at(weights + j - i) * four_at(logs + j);
    sum += row * logs[i];
    weights += PRODUCT_TERMS - i;
  }
  return sum_of(sum);
}

static float least_of_all(const float *us, int count) {
  float least = us[0];
  for (int i = 1; i < count; i++) least = us[i] < least ? us[i] : least;
  return least;
}

/* Rows that are far behind by the rates alone are not looked at closer: kernels/table/model.py. */
static int near_ones(const struct row *const *rows, int count, const struct problem *p, const struct estimates *e,
                     struct near *near) {
  int found = 0, layout = p->trans_a * 2 + p->trans_b;
  float most_us = least_of_all(e->us, count) * far_behind;
  for (int i = 0; i < count; i++) {
    near[found].row = i;
    found += !(e->us[i] > most_us);
  }
  for (int i = 0; i < found; i++) {
    near[i].weights = rows[near[i].row]->fit->weights[layout];
#pragma GCC unroll 12
    for (int part = 0; part < OWN_PARTS; part++) near[i].logs[part] = e->parts[part][near[i].row];
    put(four_of(0), near[i].logs + OWN_PARTS);
  }
  return found;
}

/* Of rows that are expected to take as long as the bytes: kernels/table/model.py. */
static bool is_less(const struct near *a, const struct near *b) {
  return a->sum < b->sum || (a->sum == b->sum && a->fitted + 2 * a->logs[US] < b->fitted + 2 * b->logs[US]);
}

/* Each step for all rows before the next: then none waits for what was just written. */
static const struct row *least_fitted(const struct row *const *rows, int count, const struct problem *p,
                                      const struct work *w, const struct asked *asked, float *us) {
  struct estimates e;
  struct near near[MOST_ROWS];
  for (int i = 0; i < count; i += 4) estimate(w, asked, &e, i);
  four others = log2_of((four){w->rows, w->n, w->k * w->a_bytes / 2, 1}); /* k in elements of 16 bits; 0 */
  /* A single product takes no less than its bytes; of groups some may be empty. */
  float least_sum = p->count == 1 ? log2_of(four_of(w->memory))[0] : -100;
  int found = near_ones(rows, count, p, &e, near), best = 0;
  for (int i = 0; i < found; i++) begin_sum(&near[i], p, &e, others);
  for (int i = 0; i < found; i++) {
    near[i].fitted = in_range(near[i].sum + products(near[i].weights + 1 + LOG_TERMS, near[i].logs));
    near[i].sum = near[i].fitted > least_sum ? near[i].fitted : least_sum;
    if (is_less(&near[i], &near[best])) best = i;
  }
  *us = exp2_of(near[best].sum);
  return rows[near[best].row];
}

/* By the rough formula of rows that nobody has measured. */
static float rough_us(const struct row *row, const struct work *w, const struct asked *asked, int i) {
  float used = (float)asked->block_m[i] / (float)row->block_m; /* where a tile works on no more rows than it needs */
  float step_ns = row->model.step_ns * used;
  float compute = row->model.fixed_ns + asked->waves[i] * ((float)asked->steps[i] * step_ns + row->model.tile_ns);
  if (row->scratch_bytes) compute += 2000; /* the first descriptors: others are made while tiles are multiplied */
  float memory = row->model.fixed_ns + w->bytes * row->model.byte_ps * 1e-3f;
  return fourth_root(fourth(four_of(compute * 1e-3f)) + fourth(four_of(memory * 1e-3f)))[0];
}

static const struct row *least_rough(const struct row *const *rows, int count, const struct work *w,
                                     const struct asked *asked, float *us) {
  int best = 0;
  for (int i = 0; i < count; i++) {
    float this_us = rough_us(rows[i], w, asked, i);
    if (i && !(this_us < *us)) continue;
    best = i;
    *us = this_us;
  }
  return rows[best];
}

const struct row *least_time(const struct row *const *rows, int count, const struct problem *p, float *us) {
  struct work w = work_of(p);
  struct asked asked;
  for (int i = 0; i < count || i % 4; i++) ask(rows[i < count ? i : 0], p, &asked, i); /* fours are filled up */
  if (rows[0]->fit) return least_fitted(rows, count, p, &w, &asked, us);
  return least_rough(rows, count, &w, &asked, us);
}

/* 3 for rows that begin on 128 bytes, 2 on 64, 1 on 32, else 0. */
HOT int32_t stride_class(int64_t ld, int bytes) {
  uint64_t low = (uint64_t)ld * (uint64_t)bytes % 128; /* of any ld: nobody has checked it yet */
  return low == 0 ? 3 : low % 64 == 0 ? 2 : low % 32 == 0;
}
