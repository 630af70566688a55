/* choose.c: from a problem to a row of the table, and the words for it. Loads and launches nothing. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

static const char *const op_names[OP_COUNT] = {"gemm", "grouped_gemm", "grouped_mm"};
static const char *const dtype_names[TYPE_LIMIT] = {"?", "f16", "bf16", "f32"};
static const char *const precision_names[TYPE_LIMIT] = {"exact", "tf32", "tf32x3", "ieee"};

static const char *type_name(int32_t type) { return type > 0 && type < TYPE_LIMIT ? dtype_names[type] : "?"; }

static libgemm_status check_types(const struct problem *p) {
  if (p->a_type < 1 || p->a_type >= TYPE_LIMIT)
    return fail(LIBGEMM_INVALID_ARGUMENT, "a_type = %d: allowed are LIBGEMM_F16 (1), LIBGEMM_BF16 (2), LIBGEMM_F32 (3)",
                p->a_type);
  if (p->d_type != p->a_type && p->d_type != LIBGEMM_F32)
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "d_type = %d (%s) with a_type %s: allowed are a_type's own and LIBGEMM_F32 (3)", p->d_type,
                type_name(p->d_type), type_name(p->a_type));
  if (p->a_type == LIBGEMM_F32 && (p->precision < LIBGEMM_TF32 || p->precision > LIBGEMM_IEEE))
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "precision = %d with float32 operands: say LIBGEMM_TF32 (1), LIBGEMM_TF32X3 (2) or LIBGEMM_IEEE (3); "
                "there is no default",
                p->precision);
  if (p->a_type != LIBGEMM_F32 && p->precision != LIBGEMM_EXACT)
    return fail(LIBGEMM_INVALID_ARGUMENT, "precision = %d with %s operands: allowed is LIBGEMM_EXACT (0)", p->precision,
                type_name(p->a_type));
  return LIBGEMM_OK;
}

static libgemm_status check_flag(const char *name, int32_t value, int32_t most) {
  if (value >= 0 && value <= most) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %d: allowed is 0 to %d", name, value, most);
}

libgemm_status check_problem(const struct problem *p) {
  const struct {
    const char *name;
    int64_t value;
  } sizes[] = {{"m", p->m}, {"n", p->n}, {"k", p->k}};
  TRY(check_types(p));
  TRY(check_flag("trans_a", p->trans_a, 1));
  TRY(check_flag("trans_b", p->trans_b, 1));
  TRY(check_flag("activation", p->activation, LIBGEMM_SILU));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].value < 0 || sizes[i].value > LIBGEMM_MAX_SIZE)
      return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %lld: allowed is 0 to %d", sizes[i].name, (long long)sizes[i].value,
                  LIBGEMM_MAX_SIZE);
  return LIBGEMM_OK;
}

/* The rows that compute this problem at all. */
static void bucket_of(const struct problem *p, const struct target *target, int *first, int *end) {
  int types = type_index[p->a_type][p->d_type][p->precision];
  int bucket = ((int)p->op * type_count + types) * LAYOUT_COUNT + p->trans_a * 2 + p->trans_b;
  *first = target->buckets[bucket];
  *end = target->buckets[bucket + 1];
}

static int64_t tile_count(const struct row *row, const struct problem *p) {
  return ceil_div(p->rows, row->block_m) * ceil_div(p->n, row->block_n);
}

/* The fourth power of the modelled time (its order is all that is needed), by the formula of kernels/model.py. */
static double cost_split(const struct row *row, const struct problem *p, int splits) {
  const struct model *m = &row->model;
  double tiles = (double)ceil_div(p->rows, row->block_m) * (double)ceil_div(p->n, row->block_n) * (double)p->count;
  double most = 1e15; /* more tiles than that differ by nothing, and would not fit the division */
  double turns = (double)ceil_div((int64_t)(tiles < most ? tiles : most) * splits, p->multiprocessors);
  double steps = (double)ceil_div(ceil_div(p->k, row->block_k), splits);
  double a_bytes = p->a_type == LIBGEMM_F32 ? 4 : 2, d_bytes = p->d_type == LIBGEMM_F32 ? 4 : 2;
  double rows_of_d = (double)p->rows, n = (double)p->n, k = (double)p->k;
  double bytes = (double)p->count * (a_bytes * (rows_of_d * k + n * k) + d_bytes * rows_of_d * n);
  double compute =
      m->fixed_ns + steps * m->step_ns + m->tile_ns + (turns - 1) * (steps * m->next_step_ns + m->next_tile_ns);
  if (splits > 1) compute += m->arrive_ns + splits * m->piece_ns;
  double memory = m->fixed_ns + bytes * m->byte_ps * 1e-3;
  compute *= compute, memory *= memory;
  return compute * compute + memory * memory;
}

int split_count(const struct row *row, const struct problem *p) {
  enum { MOST = 64 }; /* a slot counts to 255 */
  if (!(row->guard & GUARD_WORKSPACE) || p->rows == 0 || p->n == 0 || p->k == 0) return 1;
  int64_t tiles = tile_count(row, p), steps = ceil_div(p->k, row->block_k);
  if (tiles > p->multiprocessors / 2) return 1;
  int best = 1;
  double best_cost = 0;
  for (int64_t splits = least(least(p->multiprocessors / tiles, steps), MOST); splits >= 2; splits = splits * 2 / 3) {
    int64_t pieces = ceil_div(steps, ceil_div(steps, splits)); /* no piece without a step */
    double this_cost = cost_split(row, p, (int)pieces);
    if (best > 1 && this_cost >= best_cost) continue;
    best = (int)pieces;
    best_cost = this_cost;
  }
  return best;
}

uint64_t slot_bytes(const struct row *row, const struct problem *p) {
  return (uint64_t)ceil_div(tile_count(row, p) * (int64_t)sizeof(int64_t), 128) * 128;
}

uint64_t split_workspace(const struct row *row, const struct problem *p) {
  int splits = split_count(row, p);
  if (splits < 2) return 0;
  uint64_t piece = (uint64_t)row->block_m * (uint64_t)row->block_n * sizeof(float);
  return slot_bytes(row, p) + (uint64_t)tile_count(row, p) * (uint64_t)splits * piece;
}

static double cost(const struct row *row, const struct problem *p) { return cost_split(row, p, split_count(row, p)); }

/* Guard bits of the row that the problem does not meet. */
static unsigned refused(const struct row *row, const struct problem *p) {
  unsigned met = p->met;
  if (p->activation == LIBGEMM_ACTIVATION_NONE) met |= GUARD_LINEAR;
  if (row->guard & ~met & GUARD_WORKSPACE && split_count(row, p) > 1 && split_workspace(row, p) <= p->workspace_bytes)
    met |= GUARD_WORKSPACE;
  return row->guard & ~met;
}

/* What each guard asks, for a refusal's sentence. */
static const struct {
  enum guard guard;
  const char *words;
} demands[] = {
    {GUARD_ALIGN16, "16-byte aligned pointers, leading dimensions and extents"},
    {GUARD_DESCRIPTOR,
     "A, B, C and D with 16-byte aligned pointers and leading dimensions, k > 0, alpha != 0, batch = 1"},
    {GUARD_DESCRIPTOR_AB, "A and B with 16-byte aligned pointers and leading dimensions, k > 0, alpha != 0, batch = 1"},
    {GUARD_LINEAR, "no activation"},
    {GUARD_WORKSPACE, "fewer tiles than half the multiprocessors, and the workspace of libgemm_gemm_workspace"},
};

static libgemm_status pinned(const struct problem *p, const struct target *target, const struct row **out) {
  int first, end;
  bucket_of(p, target, &first, &end);
  for (int i = first; i < end; i++) {
    if (strcmp(rows[i].name, p->variant) != 0) continue;
    for (size_t j = 0; j < sizeof demands / sizeof *demands; j++)
      if (refused(&rows[i], p) & demands[j].guard)
        return fail(LIBGEMM_UNSUPPORTED, "variant %s needs %s", p->variant, demands[j].words);
    *out = &rows[i];
    return LIBGEMM_OK;
  }
  return fail(LIBGEMM_UNSUPPORTED,
              "variant = %s: no such variant computes %s %s -> %s (%s) trans_a %d trans_b %d on sm_%d", p->variant,
              op_names[p->op], type_name(p->a_type), type_name(p->d_type), precision_names[p->precision], p->trans_a,
              p->trans_b, target->target);
}

libgemm_status choose(struct problem *p, const struct target *target, int multiprocessors, const struct row **out) {
  int first, end;
  p->multiprocessors = multiprocessors;
  if (p->variant) return pinned(p, target, out);
  bucket_of(p, target, &first, &end);
  *out = NULL;
  double least_cost = 0;
  for (int i = first; i < end; i++) {
    if (refused(&rows[i], p)) continue;
    double this_cost = cost(&rows[i], p);
    if (*out && this_cost >= least_cost) continue;
    *out = &rows[i];
    least_cost = this_cost;
  }
  if (*out) return LIBGEMM_OK;
  return fail(LIBGEMM_UNSUPPORTED, "no variant computes %s %s -> %s (%s) trans_a %d trans_b %d on sm_%d",
              op_names[p->op], type_name(p->a_type), type_name(p->d_type), precision_names[p->precision], p->trans_a,
              p->trans_b, target->target);
}

libgemm_status describe(const struct problem *p, const struct target *target, const struct row *row,
                        libgemm_choice *choice) {
  if (!choice || choice->size < sizeof *choice)
    return fail(LIBGEMM_INVALID_ARGUMENT, "choice is NULL or its size is below %zu", sizeof *choice);
  choice->variant = row ? (int32_t)(row - rows) : -1;
  if (!row) {
    snprintf(choice->reason, sizeof choice->reason, "empty problem: nothing runs");
    return LIBGEMM_OK;
  }
  int first, end, unaligned = 0, activated = 0;
  bucket_of(p, target, &first, &end);
  for (int i = first; i < end; i++) {
    unaligned += (refused(&rows[i], p) & ~(unsigned)GUARD_LINEAR) != 0;
    activated += (refused(&rows[i], p) & GUARD_LINEAR) != 0;
  }
  int used = snprintf(choice->reason, sizeof choice->reason, "%s of %d rows for this operation, types and layout",
                      p->variant   ? "pinned by name, one"
                      : row->tuned ? "tuned: least time by a measured model"
                                   : "untuned: least modelled time",
                      end - first);
  if (unaligned && used > 0 && used < (int)sizeof choice->reason)
    used += snprintf(choice->reason + used, sizeof choice->reason - (size_t)used,
                     "; %d faster rows need aligned operands that are read, in one product", unaligned);
  if (activated && used > 0 && used < (int)sizeof choice->reason)
    snprintf(choice->reason + used, sizeof choice->reason - (size_t)used, "; %d rows apply no activation", activated);
  return LIBGEMM_OK;
}

libgemm_status explain_target(int32_t number, const struct target **out, int *multiprocessors) {
  if (number == 0) {
    const struct driver *driver;
    const struct device *device;
    CUdevice current = 0;
    TRY(driver_open(&driver));
    if (driver->ctx_get_device(&current) != CUDA_SUCCESS) current = 0;
    TRY(device_get(current, &device));
    *out = device->target;
    *multiprocessors = device->multiprocessors;
    return LIBGEMM_OK;
  }
  for (int32_t i = 0; i < target_count; i++)
    if (targets[i].target == number) {
      *out = &targets[i];
      *multiprocessors = targets[i].multiprocessors;
      return LIBGEMM_OK;
    }
  return fail(LIBGEMM_UNSUPPORTED_DEVICE, "target = %d: this library has no kernels for it", number);
}
