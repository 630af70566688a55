/* grouped_mm.c: the call over packed rows, columns or K. A B that all groups of rows share becomes one dense GEMM. */
#include "api/grouped_mm.h"

#include <stddef.h>
#include <string.h>

#include "internal.h"

void libgemm_grouped_mm_args_init(libgemm_grouped_mm_args *args, uint64_t size) {
  libgemm_grouped_mm_args defaults = {.alpha = 1.0f, .offs_format = LIBGEMM_ENDS_I32};
  init_args(args, size, &defaults, sizeof defaults);
}

static bool reads_ab(const libgemm_grouped_mm_args *a) { return a->k > 0 && a->alpha != 0.0f && a->groups > 0; }
static bool reads_c(const libgemm_grouped_mm_args *a) { return a->beta != 0.0f && a->groups > 0; }
static bool reads_ends(const libgemm_grouped_mm_args *a) {
  return a->ragged != LIBGEMM_RAGGED_NONE && a->groups > 0 && !a->shared_b;
}

/* Whether D has a part past the last end that is to be set to 0. */
static bool zeroes_tail(const libgemm_grouped_mm_args *a) { return a->zero_tail && !owns_d(a->ragged); }

static bool is_empty(const libgemm_grouped_mm_args *a) {
  return a->m == 0 || a->n == 0 || (a->groups == 0 && !zeroes_tail(a));
}

static libgemm_status check_words(const libgemm_grouped_mm_args *a) {
  TRY(check_range("groups", a->groups, 0, LIBGEMM_MAX_GROUPS));
  if (a->offs_format < LIBGEMM_ENDS_I32 || a->offs_format > LIBGEMM_OFFSETS_I64)
    return fail(LIBGEMM_INVALID_ARGUMENT, "offs_format = %d: allowed is 1 to 4 (libgemm_offs_format)", a->offs_format);
  if (a->ragged < LIBGEMM_RAGGED_M || a->ragged > LIBGEMM_RAGGED_NONE)
    return fail(LIBGEMM_INVALID_ARGUMENT, "ragged = %d: allowed is 0 to 3 (libgemm_ragged)", a->ragged);
  TRY(check_range("zero_tail", a->zero_tail, 0, 1));
  TRY(check_range("shared_b", a->shared_b, 0, 1));
  TRY(check_range("batch_invariant", a->batch_invariant, 0, 1));
  TRY(check_range("reserved", a->reserved, 0, 0));
  if (a->shared_b && a->ragged != LIBGEMM_RAGGED_M)
    return fail(LIBGEMM_INVALID_ARGUMENT, "shared_b = 1 with ragged = %d: allowed is LIBGEMM_RAGGED_M (0)", a->ragged);
  if (a->shared_b && a->zero_tail)
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "zero_tail = 1 with shared_b = 1: allowed is 0, since the ends are not read and every row is computed");
  return LIBGEMM_OK;
}

libgemm_status check_grouped(const libgemm_grouped_mm_args *args, libgemm_grouped_mm_args *a, struct operands *o,
                             struct problem *p) {
  TRY(read_args(args, offsetof(libgemm_grouped_mm_args, batch_stride_a), a, sizeof *a, "libgemm_grouped_mm_args"));
  STATE_PROBLEM(p, OP_GROUPED_MM, a);
  STATE_MATRICES(p, a);
  p->count = a->groups, p->ragged = a->ragged;
  p->wants |= a->batch_invariant ? WANT_BATCH_INVARIANT : 0;
  TRY(state_types(p, a->b_type));
  TRY(check_problem(p));
  TRY(CHECK_SCALING(a));
  TRY(check_words(a));
  if (a->ragged == LIBGEMM_RAGGED_K && is_by_blocks(a->scaling))
    return fail(LIBGEMM_UNSUPPORTED,
                "scaling = %d, of blocks, with ragged = 2, ends that cut K: a group may begin inside a block",
                a->scaling);
  if (is_empty(a)) return LIBGEMM_OK;
  *o = OPERANDS_OF(a, a->groups, a->ragged);
  TRY(check_strides(o));
  canonicalise(o, a->batch_invariant);
  STATE_STRIDES(p, o);
  if (!a->bias || a->groups == 1) a->batch_stride_bias = 0;
  int64_t groups = a->groups ? a->groups : 1; /* of about equal size, as far as the host can know */
  if (a->ragged == LIBGEMM_RAGGED_M) p->rows = ceil_div(a->m, groups);
  if (a->ragged == LIBGEMM_RAGGED_N) p->n = ceil_div(a->n, groups);
  if (a->ragged == LIBGEMM_RAGGED_K) p->k = ceil_div(a->k, groups);
  return LIBGEMM_OK;
}

/* The dense call that a shared B comes to. */
static libgemm_gemm_args as_gemm(const libgemm_grouped_mm_args *a) {
  return (libgemm_gemm_args){.size = sizeof(libgemm_gemm_args),
                             .m = a->groups ? a->m : 0,
                             .n = a->n,
                             .k = a->k,
                             .batch = 1,
                             .a = a->a,
                             .b = a->b,
                             .c = a->c,
                             .d = a->d,
                             .bias = a->bias,
                             .lda = a->lda,
                             .ldb = a->ldb,
                             .ldc = a->ldc,
                             .ldd = a->ldd,
                             .alpha = a->alpha,
                             .beta = a->beta,
                             .a_type = a->a_type,
                             .d_type = a->d_type,
                             .trans_a = a->trans_a,
                             .trans_b = a->trans_b,
                             .precision = a->precision,
                             .activation = a->activation,
                             .workspace = a->workspace,
                             .workspace_bytes = a->workspace_bytes,
                             .variant = a->variant,
                             .stream = a->stream,
                             .batch_invariant = a->batch_invariant,
                             .b_type = a->b_type,
                             .scaling = a->scaling,
                             .a_scale = a->a_scale,
                             .b_scale = a->b_scale,
                             .a_scale_stride_m = a->a_scale_stride_m,
                             .a_scale_stride_k = a->a_scale_stride_k,
                             .b_scale_stride_n = a->b_scale_stride_n,
                             .b_scale_stride_k = a->b_scale_stride_k};
}

unsigned grouped_guards(const libgemm_grouped_mm_args *a, const struct operands *o) {
  unsigned whole = !reads_c(a) && a->m % 8 == 0 ? GUARD_WHOLE : 0;
  return (is_aligned(o) ? GUARD_ALIGN16 : 0) | tma_guards(o) | scaling_guard(a->scaling) | whole;
}

/* What copies of A and B could do, where each operand that needs one has all groups in one matrix; nothing where rows
 * take both as they are, as in most calls. */
static void state_copies(const libgemm_grouped_mm_args *a, const struct operands *o, struct problem *p) {
  bool packs_a = o->ragged == LIBGEMM_RAGGED_M || o->ragged == LIBGEMM_RAGGED_K;
  bool packs_b = o->ragged == LIBGEMM_RAGGED_N || o->ragged == LIBGEMM_RAGGED_K;
  if (p->met & GUARD_DESCRIPTOR_AB && p->met & (GUARD_ROWS | GUARD_COLUMNS | GUARD_EQUAL)) return;
  if (!o->reads_ab || a->batch_invariant) return; /* whether they pay depends on M */
  p->memory = READS_AB | (tma_reads_a(o) ? 0 : MISALIGNED_A) | (tma_reads_b(o) ? 0 : MISALIGNED_B);
  struct copies c = copies_of(p);
  if ((!c.rows[0] && !c.rows[1]) || (c.rows[0] && !packs_a) || (c.rows[1] && !packs_b)) {
    p->memory = 0;
    return;
  }
  struct operands after = *o;
  if (c.rows[0]) after.a = NULL, after.lda = c.ld[0], after.trans_a ^= c.turn[0];
  if (c.rows[1]) after.b = NULL, after.ldb = c.ld[1], after.trans_b ^= c.turn[1];
  p->met_by_copies = tma_guards(&after);
  p->workspace_bytes = a->workspace ? a->workspace_bytes : 0;
}

libgemm_status check_grouped_pointers(const libgemm_grouped_mm_args *a, const struct operands *o,
                                      const struct device *device) {
  bool wide = a->offs_format == LIBGEMM_ENDS_I64 || a->offs_format == LIBGEMM_OFFSETS_I64;
  TRY(check_operands(o, a->groups ? a->bias : NULL, device));
  if (a->scaling != LIBGEMM_SCALING_NONE && o->reads_ab) TRY(check_scales(a->a_scale, a->b_scale, device));
  if (!reads_ends(a)) return LIBGEMM_OK;
  return check_array("offs", a->offs, wide ? sizeof(int64_t) : sizeof(int32_t), device);
}

void place_grouped(const libgemm_grouped_mm_args *a, const struct operands *o, struct call *call) {
  bool wide = a->offs_format == LIBGEMM_ENDS_I64 || a->offs_format == LIBGEMM_OFFSETS_I64;
  bool leading_zero = a->offs_format == LIBGEMM_OFFSETS_I32 || a->offs_format == LIBGEMM_OFFSETS_I64;
  uint64_t skip = !leading_zero ? 0 : wide ? sizeof(int64_t) : sizeof(int32_t);
  place_operands(o, call);
  call->bias_ptr = (CUdeviceptr)a->bias;
  call->batch_stride_bias = a->batch_stride_bias;
  call->offs_ptr = reads_ends(a) ? (CUdeviceptr)a->offs + skip : 0;
  call->offs_wide = wide;
  call->zero_tail = zeroes_tail(a);
  call->alpha = a->alpha;
  call->beta = a->beta;
  call->activation = a->activation;
  PLACE_TYPES(call, a);
  if (a->scaling == LIBGEMM_SCALING_NONE || !o->reads_ab) return;
  PLACE_SCALES(call, a);
  if (a->ragged == LIBGEMM_RAGGED_M) call->batch_stride_a_scale = 0; /* A is packed, and so are its scales */
  if (a->ragged == LIBGEMM_RAGGED_N) call->batch_stride_b_scale = 0;
}

/* Most tiles the groups can have: each one that is cut, and the tail, adds at most a part of a tile. */
static int64_t most_tiles(const libgemm_grouped_mm_args *a, const struct row *row) {
  int64_t cuts = a->groups + zeroes_tail(a);
  if (a->ragged == LIBGEMM_RAGGED_M) return (a->m / row->block_m + cuts) * ceil_div(a->n, row->block_n);
  if (a->ragged == LIBGEMM_RAGGED_N) return ceil_div(a->m, row->block_m) * (a->n / row->block_n + cuts);
  int64_t each = ceil_div(a->m, row->block_m) * ceil_div(a->n, row->block_n);
  return least(each, INT32_MAX) * a->groups;
}

static void set_memory(const libgemm_grouped_mm_args *a, const struct operands *o, struct problem *p) {
  p->met = grouped_guards(a, o);
  if (a->variant) p->met |= GUARD_COUNTED; /* by its name a row runs without a counter too */
  state_copies(a, o, p);
}

/* Which row runs, loaded, and on how many blocks at most: persistent ones need not be more than can be resident. */
static libgemm_status make_plan(const struct problem *problem, const struct device *device, struct plan *plan) {
  struct choice chosen;
  TRY(choose(problem, device->gpu.target, &chosen));
  const struct row *row = chosen.row;
  TRY(load_row(row, device));
  if (chosen.copier) TRY(load_row(chosen.copier, device));
  bool shares_k = row->guard & GUARD_CLUSTER; /* then there is a cluster for each tile */
  int64_t blocks = shares_k ? INT64_MAX : (int64_t)device->gpu.multiprocessors * resident_blocks(row, device);
  *plan =
      (struct plan){.row = row, .splits = split_count(row, &chosen.seen), .blocks = blocks, .copier = chosen.copier};
  return LIBGEMM_OK;
}

static libgemm_status run(const libgemm_grouped_mm_args *a, const struct operands *o, struct problem *p,
                          struct layer_context layer, const struct device *device) {
  struct plan made;
  const struct plan *plan;
  struct call call;
  TRY(check_grouped_pointers(a, o, device));
  TRY(check_spare_workspace(a->workspace, p->workspace_bytes, device));
  TRY(plan_for(p, device, make_plan, &made, &plan));
  place_grouped(a, o, &call);
  CUdeviceptr workspace = (CUdeviceptr)a->workspace;
  if (plan->copier) TRY(queue_copies(p, plan->copier, device, &call, &workspace, a->stream));
  call.early = layer.early && !plan->copier; /* B may be the copy */
  call.tickets_ptr = (CUdeviceptr)layer.tickets;
  call.function = function_of(plan, device);
  TRY(find_maps(plan, device, &call));
  call.splits = plan->splits;
  if (plan->row->guard & GUARD_CLUSTER) call.cluster = plan->splits;
  int64_t blocks = least(most_tiles(a, plan->row) * plan->splits, plan->blocks);
  return plan->row->launch(plan->row, device, &call, blocks, a->stream);
}

libgemm_status multiply_groups(const libgemm_grouped_mm_args *args, struct layer_context layer) {
  libgemm_grouped_mm_args a;
  struct operands operands;
  struct problem problem;
  const struct device *device;
  TRY(check_grouped(args, &a, &operands, &problem));
  if (is_empty(&a)) return LIBGEMM_OK;
  if (a.shared_b) {
    libgemm_gemm_args dense = as_gemm(&a);
    return libgemm_gemm(&dense);
  }
  set_memory(&a, &operands, &problem);
  if (layer.tickets) problem.met |= GUARD_COUNTED;
  RETURN_ON_OWNER("d", a.d, device, run(&a, &operands, &problem, layer, device));
}

libgemm_status libgemm_grouped_mm(const libgemm_grouped_mm_args *args) {
  return multiply_groups(args, (struct layer_context){0});
}

libgemm_status libgemm_grouped_mm_workspace(const libgemm_grouped_mm_args *args, uint64_t *bytes) {
  libgemm_grouped_mm_args a;
  struct operands operands;
  struct problem problem;
  struct choice chosen;
  const struct device *device;
  if (!bytes) return fail(LIBGEMM_INVALID_ARGUMENT, "bytes is NULL");
  *bytes = 0;
  TRY(check_grouped(args, &a, &operands, &problem));
  if (a.shared_b) {
    libgemm_gemm_args dense = as_gemm(&a);
    return libgemm_gemm_workspace(&dense, bytes);
  }
  if (is_empty(&a)) return LIBGEMM_OK;
  set_memory(&a, &operands, &problem);
  if (!problem.met_by_copies) return LIBGEMM_OK; /* no row of this table needs any for itself */
  problem.workspace_bytes = UINT64_MAX;
  TRY(device_for("d", (CUdeviceptr)a.d, &device));
  TRY(choose_on(&problem, &device->gpu, &chosen));
  if (!chosen.copier) return LIBGEMM_OK;
  struct copies copies = copies_of(&problem);
  *bytes = copies.bytes[0] + copies.bytes[1];
  return LIBGEMM_OK;
}

libgemm_status libgemm_grouped_mm_explain(const libgemm_grouped_mm_args *args, int32_t target, libgemm_choice *choice) {
  libgemm_grouped_mm_args a;
  struct operands operands;
  struct problem problem;
  struct gpu gpu;
  TRY(check_grouped(args, &a, &operands, &problem));
  if (a.shared_b) {
    libgemm_gemm_args dense = as_gemm(&a);
    return libgemm_gemm_explain(&dense, target, choice);
  }
  TRY(explain_gpu(target, &gpu));
  if (is_empty(&a)) return explain_on(NULL, &gpu, choice);
  set_memory(&a, &operands, &problem);
  return explain_on(&problem, &gpu, choice);
}
