/* rows.c: which rows of the table may run a problem, what the others need, and the fastest. */
#include "select/rows.h"

#include "internal.h"

void bucket_of(const struct problem *p, const struct target *target, int *first, int *end) {
  int types = type_index[p->a_type][p->d_type][p->precision];
  int bucket = ((int)p->op * type_count + types) * LAYOUT_COUNT + p->trans_a * 2 + p->trans_b;
  *first = target->buckets[bucket];
  *end = target->buckets[bucket + 1];
}

/* Whether every row like this one adds the products of K in the same order, whatever M is. Those of 16-bit inputs do,
 * one after the other, but where blocks share K; of float32 inputs there is one row that takes any memory. 8-bit ones
 * are added up by 128 of K, which where ends cut it depend on where a group begins: rows for these serve whole matrices
 * as well, and know not which. */
static bool is_batch_invariant(const struct row *row) {
  if (row->a_type == LIBGEMM_E4M3 && row->guard & GUARD_EQUAL) return false;
  return row->a_type == LIBGEMM_F32 ? row->guard == 0 : !(row->guard & (GUARD_CLUSTER | GUARD_WORKSPACE));
}

static enum pair pair_of(const struct problem *p) {
  return p->wants & WANT_E5M2_A ? PAIR_E5M2_A : p->wants & WANT_E5M2_B ? PAIR_E5M2_B : PAIR_E5M2_NONE;
}

/* What a problem holds every row to: guard bits that it meets whatever the row, and that the row must have. */
struct terms {
  unsigned met, must;
  enum pair pair;
};

static struct terms terms_of(const struct problem *p) {
  struct terms terms = {.met = p->met, .must = p->met & GUARD_GATED, .pair = pair_of(p)};
  if (p->wants & WANT_EQUAL) terms.must |= GUARD_EQUAL;
  if (p->activation == LIBGEMM_ACTIVATION_NONE) terms.met |= GUARD_LINEAR;
  if (p->op == OP_GEMM && p->count != 1)
    terms.met &= ~(unsigned)(GUARD_DESCRIPTOR | GUARD_DESCRIPTOR_AB); /* its rows with descriptors have no batch */
  return terms;
}

/* The same of a row that shares K; *split becomes its split_count. */
static unsigned refused_to_share(const struct row *row, const struct problem *p, unsigned met, int *split) {
  *split = shared_split(row, p);
  if (*split < 2) /* nothing to share: no memory would help */
    return (row->guard & ~met) | (row->stream_k ? (unsigned)NOT_WORTH_SHARING : (unsigned)GUARD_CLUSTER);
  met |= GUARD_CLUSTER;
  if (workspace_of_split(row, p, *split) <= p->workspace_bytes) met |= GUARD_WORKSPACE;
  if (scratch_workspace(row, p) <= p->workspace_bytes) met |= GUARD_SCRATCH;
  return row->guard & ~met;
}

/* refused(), on these terms; *split becomes the row's split_count. */
static inline unsigned refused_on(const struct row *row, const struct problem *p, const struct terms *terms,
                                  int *split) {
  unsigned met = terms->met, lacks = terms->must & ~row->guard;
  *split = 1;
  if (row->shared_bytes > (uint32_t)p->shared_bytes) return TOO_LARGE;
  if (lacks) return lacks & GUARD_GATED ? NOT_GATED : NOT_EQUAL;
  if (row->pair != terms->pair && row->pair != PAIR_TOLD) return NOT_ITS_PAIR;
  if (p->wants & WANT_BATCH_INVARIANT && !is_batch_invariant(row)) return (row->guard & ~met) | NOT_BATCH_INVARIANT;
  if (row->guard & (GUARD_CLUSTER | GUARD_WORKSPACE)) return refused_to_share(row, p, met, split);
  if (row->guard & GUARD_WHOLE && p->m < row->block_m) met &= ~(unsigned)GUARD_WHOLE;
  if (row->guard & GUARD_SCRATCH && scratch_workspace(row, p) <= p->workspace_bytes) met |= GUARD_SCRATCH;
  return row->guard & ~met;
}

unsigned refused(const struct row *row, const struct problem *p) {
  int split;
  struct terms terms = terms_of(p);
  return refused_on(row, p, &terms, &split);
}

/* What each guard asks, for a refusal's sentence. */
static const struct {
  unsigned refusal;              /* a guard bit, or one of enum refusal */
  const char *words, *of_groups; /* the latter of rows for packed groups and batches, where they differ */
} demands[] = {
    {TOO_LARGE, "a GPU with more shared memory for a block", NULL},
    {NOT_BATCH_INVARIANT, "batch_invariant = 0: it adds the products of K in another order than others", NULL},
    {NOT_WORTH_SHARING, stream_k_demand, NULL},
    {NOT_ITS_PAIR, "an A and a B of the two 8-bit types that its name has", NULL},
    {GUARD_ALIGN16, "16-byte aligned pointers, leading dimensions and extents", NULL},
    {GUARD_DESCRIPTOR,
     "A, B, C and D with 16-byte aligned pointers, leading dimensions and rows of D, k > 0, alpha != 0, batch = 1",
     "A, B, C and D with 16-byte aligned pointers, leading dimensions and rows of D, k > 0, alpha != 0"},
    {GUARD_DESCRIPTOR_AB, "A and B with 16-byte aligned pointers and leading dimensions, k > 0, alpha != 0, batch = 1",
     "A and B with 16-byte aligned pointers and leading dimensions, k > 0, alpha != 0"},
    {GUARD_COLUMNS, "ends that cut the columns of a B that is transposed; an A whose groups stand whole rows apart",
     NULL},
    {GUARD_ROWS, "ends that cut the rows of an A that is not transposed; a B whose groups stand whole rows apart",
     NULL},
    {GUARD_EQUAL,
     "ends that cut K of a transposed A and a row-major B (of 8-bit operands: neither), or none; groups that stand "
     "whole rows apart",
     NULL},
    {GUARD_WHOLE, "packed groups, no dense batch, of as many rows as a tile has, a multiple of 8, beta = 0", NULL},
    {GUARD_LINEAR, "no activation", NULL},
    {NOT_GATED, "gate = 0", NULL},
    {GUARD_GATED, "a gate", NULL},
    {GUARD_SWISH, "LIBGEMM_SILU", NULL},
    {GUARD_HALVED, "columns of the gate and of up that do not stand in turn along a stored row", NULL},
    {GUARD_PAIRED, "columns of the gate and of up that stand in turn along a stored row", NULL},
    {GUARD_IN_ORDER, "no row_weights, no to_rows", NULL},
    {GUARD_BLOCKS, "scaling = LIBGEMM_SCALING_1X128_128X128", NULL},
    {GUARD_UNBLOCKED, "no scales of blocks", NULL},
    {GUARD_ONE_TOKEN, "one token, of few choices, whose row is not cast yet", NULL},
    {GUARD_COUNTED, "a layer of experts, libgemm_moe, of many rows each", NULL},
    {GUARD_CLUSTER, "fewer tiles than half the multiprocessors, and two steps in K or more to share",
     "fewer tiles in all groups than half the multiprocessors, and on average two steps in K or more to share"},
    {GUARD_SCRATCH, "the workspace of libgemm_grouped_gemm_workspace", NULL},
    {GUARD_WORKSPACE, "the workspace of libgemm_gemm_workspace", NULL},
};

const char *demand_of(const struct problem *p, unsigned missing) {
  if (p->op == OP_GROUPED_GEMM && missing & GUARD_ALIGN16)
    return "16-byte aligned pointers, leading dimensions and extents in every group (device tables: aligned = 1)";
  for (size_t i = 0; i < sizeof demands / sizeof *demands; i++)
    if (missing & demands[i].refusal)
      return p->op == OP_GROUPED_MM && demands[i].of_groups ? demands[i].of_groups : demands[i].words;
  return NULL;
}

/* D of operands of 16 and 8 bits has few elements, or twice as many where rows do not begin on 128 bytes. Of a batch,
 * all. */
static bool is_small(const struct problem *p) {
  if (dtype_bytes(p->a_type) > 2 || p->count < 1 || p->n < 1) return false;
  bool whole_lines = p->a_stride == 3 && p->b_stride == 3;
  return p->rows <= (whole_lines ? 1 : 2) * shared_elements / p->count / p->n;
}

/* Blocks that load for each other pay where A has few rows, D is small, both operands are contiguous along their rows,
 * or rows of A or B begin on 16 but not on 32 bytes: kernels/table/model.py. */
static bool sharing_may_pay(const struct problem *p) {
  bool both_turned = p->trans_a && !p->trans_b;
  return p->rows <= shared_rows || is_small(p) || both_turned || p->a_stride == 0 || p->b_stride == 0;
}

/* Rows from `first` to `end`, all. */
static void list_all(int first, int end, uint64_t listed[ROW_WORDS]) {
  int count = end - first, whole = count / 64;
  for (int word = 0; word < ROW_WORDS; word++) listed[word] = word < whole ? ~(uint64_t)0 : 0;
  if (count % 64) listed[whole] = ((uint64_t)1 << count % 64) - 1;
}

/* Those of the rows from `first` on that may run. A rough formula is not weighed against fits; with `swapped`, nor are
 * tiles for groups' rows whose operands are not. Most rows that may not run are passed over by guards that no row
 * changes anything about: only the others are asked in how many pieces they would share K. */
static int weigh(const struct problem *p, int first, const uint64_t listed[ROW_WORDS], unsigned ignored, bool swapped,
                 struct weighed *weighed) {
  int count = 0;
  bool may_share = sharing_may_pay(p);
  struct terms terms = terms_of(p);
  unsigned able = terms.met | ignored | GUARD_CLUSTER | GUARD_SCRATCH;
  if (p->workspace_bytes) able |= GUARD_WORKSPACE;
  const struct fit *fit = NULL; /* of the row before, among those weighed */
  for (int word = 0; word < ROW_WORDS; word++)
    for (uint64_t left = listed[word]; left; left &= left - 1) {
      const struct row *row = rows + first + word * 64 + __builtin_ctzll(left);
      if (row->guard & ~able) continue;
      if (row->fit ? row->fit == fit : fit != NULL) continue; /* the same tile, as fast; a rough one */
      if (!may_share && row->share_a * row->share_b > 1 && !row->stream_k) continue;
      if (swapped && row->guard & GUARD_ROWS && !row->swap) continue;
      int split;
      if (refused_on(row, p, &terms, &split) & ~ignored) continue;
      if (row->fit && !fit) count = 0;
      fit = row->fit;
      weighed[count++] = (struct weighed){row, split};
    }
  return count;
}

/* Groups of few rows run a swapped tile: kernels/table/model.py. Where none has a fit, all are weighed; so they are
 * where no row of a shortlist may run. */
const struct row *fastest(const struct problem *p, int first, int end, unsigned ignored, float *us) {
  struct weighed weighed[MOST_ROWS];
  uint64_t listed[ROW_WORDS];
  bool thin = p->op == OP_GROUPED_MM && p->rows <= thin_rows;
  int count = 0;
  if (!ignored && shortlist_of(p, first, listed)) count = weigh(p, first, listed, 0, false, weighed);
  if (count) return least_time(weighed, count, p, us);
  list_all(first, end, listed);
  count = weigh(p, first, listed, ignored, thin, weighed);
  if (thin && !(count && weighed[0].row->fit)) count = weigh(p, first, listed, ignored, false, weighed);
  return count ? least_time(weighed, count, p, us) : NULL;
}

/* Below, at or above 0, as the table of known shapes has one before, beside or behind the other (aot/render.py). */
static int64_t order(const struct known *a, const struct known *b) {
  if (a->m != b->m) return (int64_t)a->m - b->m;
  if (a->n != b->n) return (int64_t)a->n - b->n;
  if (a->k != b->k) return (int64_t)a->k - b->k;
  if (a->count != b->count) return (int64_t)a->count - b->count;
  return (int64_t)a->layout - b->layout;
}

/* The first of a target's known shapes that is not before this one. */
static const struct known *first_known(const struct target *target, const struct known *shape) {
  const struct known *from = target->known;
  for (int32_t left = target->known_count; left > 0;) {
    int32_t half = left / 2;
    bool before = order(from + half, shape) < 0;
    from += before ? half + 1 : 0;
    left = before ? left - half - 1 : half;
  }
  return from;
}

const struct row *known_winner(const struct problem *p, const struct target *target, int first, int end) {
  if (dtype_bytes(p->a_type) != 2 || p->count > INT32_MAX) return NULL;
  const struct known shape = {.m = (int32_t)p->rows,
                              .n = (int32_t)p->n,
                              .k = (int32_t)p->k,
                              .count = (int32_t)p->count,
                              .layout = p->trans_a * 2 + p->trans_b};
  const struct known *past = target->known + target->known_count;
  for (const struct known *k = first_known(target, &shape); k < past && order(k, &shape) == 0; k++)
    for (int i = first; i < end; i++) /* of each operation that knows it */
      if (rows[i].fit == k->fit && !refused(&rows[i], p)) return &rows[i];
  return NULL;
}
