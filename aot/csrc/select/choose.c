/* choose.c: from a problem to a row of the table, and the words for it. Loads and launches nothing. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

const char *const op_names[OP_COUNT] = {"gemm", "grouped_gemm", "grouped_mm", "align"};
HOT static libgemm_status check_types(const struct problem *p) {
  if (!is_dtype(p->a_type))
    return fail(LIBGEMM_INVALID_ARGUMENT, "a_type = %d: allowed are LIBGEMM_F16 (1), LIBGEMM_BF16 (2), LIBGEMM_F32 (3)",
                p->a_type);
  if (p->d_type != p->a_type && p->d_type != LIBGEMM_F32)
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "d_type = %d (%s) with a_type %s: allowed are a_type's own and LIBGEMM_F32 (3)", p->d_type,
                dtype_name(p->d_type), dtype_name(p->a_type));
  if (p->a_type == LIBGEMM_F32 && (p->precision < LIBGEMM_TF32 || p->precision > LIBGEMM_IEEE))
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "precision = %d with float32 operands: say LIBGEMM_TF32 (1), LIBGEMM_TF32X3 (2) or LIBGEMM_IEEE (3); "
                "there is no default",
                p->precision);
  if (p->a_type != LIBGEMM_F32 && p->precision != LIBGEMM_EXACT)
    return fail(LIBGEMM_INVALID_ARGUMENT, "precision = %d with %s operands: allowed is LIBGEMM_EXACT (0)", p->precision,
                dtype_name(p->a_type));
  return LIBGEMM_OK;
}

HOT static libgemm_status check_flag(const char *name, int32_t value, int32_t most) {
  if (value >= 0 && value <= most) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %d: allowed is 0 to %d", name, value, most);
}

HOT static libgemm_status check_sizes(const struct problem *p) {
  const struct {
    const char *name;
    int64_t value;
  } sizes[] = {{"m", p->m}, {"n", p->n}, {"k", p->k}};
  const uint64_t most = LIBGEMM_MAX_SIZE;
  if ((uint64_t)p->m <= most && (uint64_t)p->n <= most && (uint64_t)p->k <= most) return LIBGEMM_OK;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].value < 0 || sizes[i].value > LIBGEMM_MAX_SIZE)
      return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %lld: allowed is 0 to %d", sizes[i].name, (long long)sizes[i].value,
                  LIBGEMM_MAX_SIZE);
  return LIBGEMM_OK;
}

HOT libgemm_status check_problem(const struct problem *p) {
  TRY(check_types(p));
  TRY(check_flag("trans_a", p->trans_a, 1));
  TRY(check_flag("trans_b", p->trans_b, 1));
  TRY(check_flag("activation", p->activation, ACTIVATION_COUNT - 1));
  return check_sizes(p);
}

void bucket_of(const struct problem *p, const struct target *target, int *first, int *end) {
  int types = type_index[p->a_type][p->d_type][p->precision];
  int bucket = ((int)p->op * type_count + types) * LAYOUT_COUNT + p->trans_a * 2 + p->trans_b;
  *first = target->buckets[bucket];
  *end = target->buckets[bucket + 1];
}

/* Whether every row like this one adds the products of K in the same order, whatever M is. Those of 16-bit inputs do,
 * one after the other, but where blocks share K; of float32 inputs there is one row that takes any memory. */
static bool is_batch_invariant(const struct row *row) {
  return row->a_type == LIBGEMM_F32 ? row->guard == 0 : !(row->guard & (GUARD_CLUSTER | GUARD_WORKSPACE));
}

/* Guard bits of the row that the problem does not meet. */
static unsigned refused(const struct row *row, const struct problem *p) {
  unsigned met = p->met;
  if (row->shared_bytes > (uint32_t)p->shared_bytes) return TOO_LARGE;
  if (p->wants & WANT_EQUAL && !(row->guard & GUARD_EQUAL)) return NOT_EQUAL;
  if (p->op == OP_GEMM && p->count != 1)
    met &= ~(unsigned)GUARD_DESCRIPTOR; /* its rows with descriptors have no batch */
  if (p->wants & WANT_BATCH_INVARIANT && !is_batch_invariant(row)) return (row->guard & ~met) | NOT_BATCH_INVARIANT;
  if (p->activation == LIBGEMM_ACTIVATION_NONE) met |= GUARD_LINEAR;
  if (row->guard & (GUARD_CLUSTER | GUARD_WORKSPACE)) {
    if (split_count(row, p) < 2)
      return (row->guard & ~met) | GUARD_CLUSTER; /* nothing to share: no memory would help */
    met |= GUARD_CLUSTER;
    if (split_workspace(row, p) <= p->workspace_bytes) met |= GUARD_WORKSPACE;
  }
  if (scratch_workspace(row, p) <= p->workspace_bytes) met |= GUARD_SCRATCH;
  return row->guard & ~met;
}

/* What each guard asks, for a refusal's sentence. */
static const struct {
  unsigned refusal;              /* a guard bit, or one of enum refusal */
  const char *words, *of_groups; /* the latter of rows for packed groups and batches, where they differ */
} demands[] = {
    {TOO_LARGE, "a GPU with more shared memory for a block", NULL},
    {NOT_BATCH_INVARIANT, "batch_invariant = 0: it adds the products of K in another order than others", NULL},
    {GUARD_ALIGN16, "16-byte aligned pointers, leading dimensions and extents", NULL},
    {GUARD_DESCRIPTOR,
     "A, B, C and D with 16-byte aligned pointers, leading dimensions and rows of D, k > 0, alpha != 0, batch = 1",
     "A, B, C and D with 16-byte aligned pointers, leading dimensions and rows of D, k > 0, alpha != 0"},
    {GUARD_DESCRIPTOR_AB, "A and B with 16-byte aligned pointers and leading dimensions, k > 0, alpha != 0, batch = 1",
     NULL},
    {GUARD_ROWS, "ends that cut the rows of an A that is not transposed; a B whose groups stand whole rows apart",
     NULL},
    {GUARD_WHOLE_K, "K in steps of 128 bytes, or one group", NULL},
    {GUARD_EQUAL, "ends that cut K of a transposed A and a row-major B, or none; groups that stand whole rows apart",
     NULL},
    {GUARD_LINEAR, "no activation", NULL},
    {GUARD_CLUSTER, "fewer tiles than half the multiprocessors, and two steps in K or more to share",
     "fewer tiles in all groups than half the multiprocessors, and on average two steps in K or more to share"},
    {GUARD_SCRATCH, "the workspace of libgemm_grouped_gemm_workspace", NULL},
    {GUARD_WORKSPACE, "fewer tiles than half the multiprocessors, and the workspace of libgemm_gemm_workspace", NULL},
};

/* The words for the first of these guard bits; NULL for none that has some. */
static const char *demand_of(const struct problem *p, unsigned missing) {
  if (p->op == OP_GROUPED_GEMM && missing & GUARD_ALIGN16)
    return "16-byte aligned pointers, leading dimensions and extents in every group (device tables: aligned = 1)";
  for (size_t i = 0; i < sizeof demands / sizeof *demands; i++)
    if (missing & demands[i].refusal)
      return p->op == OP_GROUPED_MM && demands[i].of_groups ? demands[i].of_groups : demands[i].words;
  return NULL;
}

/* Several dense products, which are what groups of one size without ends are too. Kernels count those in 32 bits. */
static bool is_batch(const struct problem *p) { return p->op == OP_GEMM && p->count > 1 && p->count <= INT32_MAX; }

/* What the rows for such groups see of them. */
static struct problem as_groups(const struct problem *p) {
  struct problem groups = *p;
  groups.op = OP_GROUPED_MM;
  groups.wants |= WANT_EQUAL;
  return groups;
}

/* The row of that name in the problem's bucket that may serve it at all. */
static const struct row *named(const struct problem *p, const struct target *target) {
  int first, end;
  bucket_of(p, target, &first, &end);
  for (int i = first; i < end; i++)
    if (strcmp(rows[i].name, p->variant) == 0 && !(refused(&rows[i], p) & NOT_EQUAL)) return &rows[i];
  return NULL;
}

static libgemm_status pinned(struct problem *p, const struct target *target, const struct row **out) {
  *out = named(p, target);
  if (!*out && is_batch(p)) {
    struct problem groups = as_groups(p);
    *out = named(&groups, target);
    if (*out) *p = groups;
  }
  if (*out) {
    const char *words = demand_of(p, refused(*out, p));
    return words ? fail(LIBGEMM_UNSUPPORTED, "variant %s needs %s", p->variant, words) : LIBGEMM_OK;
  }
  return fail(LIBGEMM_UNSUPPORTED,
              "variant = %s: no such variant computes %s %s -> %s (%s) trans_a %d trans_b %d on sm_%d", p->variant,
              op_names[p->op], dtype_name(p->a_type), dtype_name(p->d_type), precision_names[p->precision], p->trans_a,
              p->trans_b, target->target);
}

/* Blocks that load for each other pay where rows of A or B begin on 16 but not on 32 bytes: kernels/table/model.py. */
static bool may_pay(const struct row *row, const struct problem *p) {
  return (row->share_a == 1 && row->share_b == 1) || p->a_stride == 0 || p->b_stride == 0;
}

/* Of the rows that may run, but for the guards that are ignored. A rough formula is not weighed against fits. */
const struct row *fastest(const struct problem *p, int first, int end, unsigned ignored, float *us) {
  const struct row *weighed[MOST_ROWS];
  int count = 0;
  for (const struct row *row = rows + first; row < rows + end; row++) {
    if (count && weighed[0]->fit && !row->fit) continue;
    if (count && row->fit && row->fit == weighed[count - 1]->fit) continue; /* the same tile, as fast */
    if (refused(row, p) & ~ignored || !may_pay(row, p)) continue;
    if (count && row->fit && !weighed[0]->fit) count = 0;
    weighed[count++] = row;
  }
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

/* The tile that won where just these 16-bit products were measured; NULL where they were not, or it may not run. */
static const struct row *known_winner(const struct problem *p, const struct target *target, int first, int end) {
  if (p->a_type == LIBGEMM_F32 || p->count > INT32_MAX) return NULL;
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

libgemm_status choose(struct problem *p, const struct gpu *gpu, const struct row **out) {
  const struct target *target = gpu->target;
  int first, end;
  float us;
  p->multiprocessors = gpu->multiprocessors;
  p->shared_bytes = gpu->shared_bytes;
  p->capability = gpu->capability;
  if (p->variant) return pinned(p, target, out);
  if (is_batch(p)) { /* measured: 1.07 to 9 times as fast as rows that also take other batches */
    struct problem groups = as_groups(p);
    bucket_of(&groups, target, &first, &end);
    *out = known_winner(&groups, target, first, end);
    if (!*out) *out = fastest(&groups, first, end, 0, &us);
    if (*out) *p = groups;
    if (*out) return LIBGEMM_OK;
  }
  bucket_of(p, target, &first, &end);
  *out = known_winner(p, target, first, end);
  if (*out) return LIBGEMM_OK;
  *out = fastest(p, first, end, 0, &us);
  if (*out && !is_batch(p)) aligned_first(p, target, us, out);
  if (*out) return LIBGEMM_OK;
  return fail(LIBGEMM_UNSUPPORTED, "no variant computes %s %s -> %s (%s) trans_a %d trans_b %d on sm_%d",
              op_names[p->op], dtype_name(p->a_type), dtype_name(p->d_type), precision_names[p->precision], p->trans_a,
              p->trans_b, target->target);
}

/* The words for the best row that only its guard on memory keeps from running faster, if there is one. */
static void describe_better(const struct problem *p, const struct target *target, float us, char *to, size_t bytes) {
  unsigned memory = GUARD_ALIGN16 | GUARD_DESCRIPTOR | GUARD_DESCRIPTOR_AB | GUARD_WORKSPACE | GUARD_SCRATCH;
  struct problem groups = as_groups(p);
  int first, end;
  float better_us;
  bool batch = is_batch(p);
  if (batch) p = &groups, memory |= GUARD_EQUAL;
  bucket_of(p, target, &first, &end);
  const struct row *better = fastest(p, first, end, memory, &better_us);
  if (!better || (better_us >= us && !batch)) return;
  const char *words = demand_of(p, refused(better, p));
  if (words) snprintf(to, bytes, "; %.4g us with %s", (double)better_us, words);
}

libgemm_status describe(const struct problem *p, const struct target *target, const struct row *row,
                        libgemm_choice *choice) {
  const size_t oldest = offsetof(libgemm_choice, expected_us);
  if (!choice || choice->size < oldest)
    return fail(LIBGEMM_INVALID_ARGUMENT, "choice is NULL or its size is below %zu", oldest);
  bool whole = choice->size >= sizeof *choice;
  choice->variant = row ? (int32_t)(row - rows) : -1;
  if (whole) choice->expected_us = 0, choice->covered = 1;
  if (!row) {
    snprintf(choice->reason, sizeof choice->reason, "empty problem: nothing runs");
    return LIBGEMM_OK;
  }
  int first, end;
  float us;
  bucket_of(p, target, &first, &end);
  least_time(&row, 1, p, &us);
  us += (float)p->copy_us;
  if (whole) choice->expected_us = us, choice->covered = row->fit != NULL;
  char served[48] = "";
  if (p->capability != target->target)
    snprintf(served, sizeof served, ", code of %d.%d on %d.%d", target->target / 10, target->target % 10,
             p->capability / 10, p->capability % 10);
  int used = snprintf(choice->reason, sizeof choice->reason, "%s: %.4g us expected%s%s, one of %d rows%s",
                      row->fit ? "tuned" : "untuned", (double)us, p->variant ? ", pinned by name" : "", served,
                      end - first, p->copier ? ", after A or B is copied to aligned rows in the workspace" : "");
  if (!p->variant && used > 0 && used < (int)sizeof choice->reason)
    describe_better(p, target, us, choice->reason + used, sizeof choice->reason - (size_t)used);
  return LIBGEMM_OK;
}
