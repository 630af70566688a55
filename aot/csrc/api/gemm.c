/* gemm.c: the dense call: checks, alignment, device, choice, launch. */
#include <stddef.h>
#include <string.h>

#include "internal.h"

void libgemm_gemm_args_init(libgemm_gemm_args *args, uint64_t size) {
  libgemm_gemm_args defaults = {.batch = 1, .alpha = 1.0f};
  init_args(args, size, &defaults, sizeof defaults);
}

/* Whether A and B are read, and C. */
HOT static bool reads_ab(const libgemm_gemm_args *a) { return a->k > 0 && a->alpha != 0.0f; }
HOT static bool reads_c(const libgemm_gemm_args *a) { return a->beta != 0.0f; }
HOT static bool is_empty(const libgemm_gemm_args *a) { return a->m == 0 || a->n == 0 || a->batch == 0; }

/* What goes with the type of D. */
static libgemm_status check_rounding(const libgemm_gemm_args *a) {
  if (a->d_type == LIBGEMM_E4M3 && reads_c(a))
    return fail(LIBGEMM_UNSUPPORTED, "beta = %g with d_type e4m3: allowed is 0, no variant adds a C to a D of 8 bits",
                (double)a->beta);
  if (a->d_type != LIBGEMM_E4M3 && (a->d_scale || a->d_amax))
    return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %p with d_type %s: NULL is needed, only a D in LIBGEMM_E4M3 has one",
                a->d_scale ? "d_scale" : "d_amax", a->d_scale ? a->d_scale : a->d_amax, dtype_name(a->d_type));
  return LIBGEMM_OK;
}

/* Read and check a call. Where it is not empty, *o is what it multiplies. */
HOT static libgemm_status check_args(const libgemm_gemm_args *args, libgemm_gemm_args *a, struct operands *o,
                                     struct problem *p) {
  TRY(read_args(args, offsetof(libgemm_gemm_args, batch_invariant), a, sizeof *a, "libgemm_gemm_args"));
  STATE_PROBLEM(p, OP_GEMM, a);
  STATE_MATRICES(p, a);
  p->count = a->batch;
  p->workspace_bytes = a->workspace ? a->workspace_bytes : 0;
  TRY(state_types(p, a->b_type));
  TRY(check_problem(p));
  TRY(CHECK_SCALING(a));
  if (a->d_type == LIBGEMM_E4M3 || a->d_scale || a->d_amax) TRY(check_rounding(a));
  TRY(check_range("batch_invariant", a->batch_invariant, 0, 1));
  if (a->batch < 0) return fail(LIBGEMM_INVALID_ARGUMENT, "batch = %lld: allowed is 0 or more", (long long)a->batch);
  if (is_empty(a)) return LIBGEMM_OK;
  *o = OPERANDS_OF(a, a->batch, LIBGEMM_RAGGED_NONE);
  TRY(check_strides(o));
  canonicalise(o, a->batch_invariant);
  STATE_STRIDES(p, o);
  return LIBGEMM_OK;
}

/* What the operands' memory is like, and what the caller wants of the bits. */
HOT static void set_memory(const libgemm_gemm_args *a, const struct operands *o, struct problem *p) {
  p->wants |= a->batch_invariant ? WANT_BATCH_INVARIANT : 0;
  p->met = (is_aligned(o) ? GUARD_ALIGN16 : 0) | scaling_guard(a->scaling);
  if (!o->reads_ab) {
    p->k = 0; /* alpha is 0, or K */
    return;
  }
  if (o->groups != 1) {
    p->met |= tma_guards(o);
    return;
  }
  bool reads_a = tma_reads_a(o), reads_b = tma_reads_b(o), cd = tma_stores_d(o);
  p->met_by_copies = GUARD_DESCRIPTOR_AB | (cd ? GUARD_DESCRIPTOR : 0);
  if (reads_a && reads_b) p->met |= p->met_by_copies;
  p->memory = READS_AB | (reads_a ? 0 : MISALIGNED_A) | (reads_b ? 0 : MISALIGNED_B);
}

HOT static libgemm_status check_pointers(const libgemm_gemm_args *a, const struct operands *o,
                                         const struct device *device) {
  TRY(check_operands(o, a->bias, device));
  if (a->scaling != LIBGEMM_SCALING_NONE && o->reads_ab) TRY(check_scales(a->a_scale, a->b_scale, device));
  if (a->d_scale) TRY(check_array("d_scale", a->d_scale, sizeof(float), device));
  if (a->d_amax) TRY(check_array("d_amax", a->d_amax, sizeof(float), device));
  return check_spare_workspace(a->workspace, a->workspace_bytes, device);
}

HOT static void fill_call(const libgemm_gemm_args *a, const struct operands *o, struct call *call) {
  place_operands(o, call);
  call->bias_ptr = (CUdeviceptr)a->bias;
  call->batch_stride_bias = a->bias ? a->batch_stride_bias : 0;
  call->alpha = a->k > 0 ? a->alpha : 0.0f; /* no product, whatever alpha would make of it */
  call->beta = a->beta;
  call->activation = a->activation;
  call->d_scale = (CUdeviceptr)a->d_scale;
  call->d_amax = (CUdeviceptr)a->d_amax;
  PLACE_TYPES(call, a);
  if (a->scaling != LIBGEMM_SCALING_NONE && o->reads_ab) PLACE_SCALES(call, a);
}

/* What adds up tiles that all blocks share: every target with rows that do so has it. */
static const struct row *adder_of(const struct problem *p, const struct target *target) {
  struct problem sum = {.op = OP_GEMM_SUM, .a_type = p->a_type, .d_type = p->d_type, .precision = p->precision};
  int first, end;
  bucket_of(&sum, target, &first, &end);
  return &rows[first];
}

static int64_t tiles_of(const struct row *row, const struct problem *p) {
  return ceil_div(p->m, row->block_m) * ceil_div(p->n, row->block_n);
}

/* Whether one launch takes all tiles of what was chosen. */
static libgemm_status check_tiles(const struct choice *chosen) {
  const struct problem *p = &chosen->seen;
  int64_t tiles = tiles_of(chosen->row, p);
  if (tiles <= MOST_TILES && p->count <= MOST_TILES / tiles) return LIBGEMM_OK;
  return fail(LIBGEMM_UNSUPPORTED, "%lld tiles in each of %lld products: one launch takes %d in all", (long long)tiles,
              (long long)p->count, MOST_TILES);
}

/* Which rows run, loaded, and on how many blocks: by the problem alone. */
static libgemm_status make_plan(const struct problem *problem, const struct device *device, struct plan *plan) {
  struct choice chosen;
  TRY(choose(problem, device->gpu.target, &chosen));
  const struct row *row = chosen.row;
  const struct problem *seen = &chosen.seen;
  TRY(load_row(row, device));
  if (chosen.copier) TRY(load_row(chosen.copier, device));
  const struct row *adder = row->stream_k ? adder_of(seen, device->gpu.target) : NULL;
  if (adder) TRY(load_row(adder, device));
  int splits = split_count(row, seen);
  TRY(check_tiles(&chosen));
  int64_t blocks = tiles_of(row, seen) * seen->count * splits;
  int multiprocessors = device->gpu.multiprocessors;
  if (row->persistent) /* or clusters, where a row has them: not all find place on neighbours */
    blocks = least(blocks, row->ctas > 1 ? clusters_at_once(multiprocessors, row->ctas)
                                         : (int64_t)multiprocessors * resident_blocks(row, device));
  if (row->stream_k) blocks = sharers_of(row, seen);
  *plan = (struct plan){.row = row,
                        .splits = splits,
                        .stream_steps = row->stream_k ? stream_steps(row, seen) : 0,
                        .adder = adder,
                        .semaphore_bytes = semaphore_bytes(row, seen),
                        .blocks = blocks,
                        .copier = chosen.copier};
  return LIBGEMM_OK;
}

/* Behind a kernel whose blocks share all tiles. */
static libgemm_status add_up(const struct plan *plan, const struct device *device, struct call *call,
                             libgemm_stream stream) {
  const struct row *row = plan->row, *adder = plan->adder;
  call->stream_m = row->block_m, call->stream_n = row->block_n, call->stream_k = row->block_k;
  call->stream_swap = row->swap;
  call->stream_below = row->swap ? row->share_a : row->share_b; /* those below one another share the right operand */
  call->stream_across = row->swap ? row->share_b : row->share_a;
  call->function = NULL; /* the driver looks it up */
  call->cluster = 0;
  int64_t below = ceil_div(ceil_div(call->M, row->block_m), row->share_b) * row->share_b;
  int64_t across = ceil_div(ceil_div(call->N, row->block_n), row->share_a) * row->share_a;
  int64_t each = ceil_div(row->block_m, adder->block_m) * ceil_div(row->block_n, adder->block_n);
  return adder->launch(adder, device, call, below * across * each, stream);
}

HOT static libgemm_status run(const libgemm_gemm_args *a, const struct operands *o, struct problem *p,
                              const struct device *device) {
  struct plan made;
  const struct plan *plan;
  struct call call;
  TRY(check_pointers(a, o, device));
  TRY(plan_for(p, device, make_plan, &made, &plan));
  CUdeviceptr workspace = (CUdeviceptr)a->workspace;
  fill_call(a, o, &call);
  if (plan->copier) TRY(queue_copies(p, plan->copier, device, &call, &workspace, a->stream));
  call.function = function_of(plan, device);
  TRY(find_maps(plan, device, &call));
  call.splits = plan->splits;
  if (plan->row->guard & GUARD_CLUSTER) {
    call.cluster = plan->splits;
  } else if (plan->splits > 1) {
    call.semaphores = workspace;
    call.partials = call.semaphores + plan->semaphore_bytes;
    call.epoch = next_epoch();
  }
  call.stream_steps = (int32_t)plan->stream_steps;
  TRY(plan->row->launch(plan->row, device, &call, plan->blocks, a->stream));
  return plan->adder ? add_up(plan, device, &call, a->stream) : LIBGEMM_OK;
}

HOT libgemm_status libgemm_gemm(const libgemm_gemm_args *args) {
  libgemm_gemm_args a;
  struct operands operands;
  struct problem problem;
  const struct device *device;
  TRY(check_args(args, &a, &operands, &problem));
  if (is_empty(&a)) return LIBGEMM_OK;
  set_memory(&a, &operands, &problem);
  RETURN_ON_OWNER("d", a.d, device, run(&a, &operands, &problem, device));
}

libgemm_status libgemm_gemm_workspace(const libgemm_gemm_args *args, uint64_t *bytes) {
  libgemm_gemm_args a;
  struct operands operands;
  struct problem problem;
  struct choice chosen;
  const struct device *device;
  if (!bytes) return fail(LIBGEMM_INVALID_ARGUMENT, "bytes is NULL");
  *bytes = 0;
  TRY(check_args(args, &a, &operands, &problem));
  if (is_empty(&a) || !reads_ab(&a) || a.batch != 1) return LIBGEMM_OK;
  set_memory(&a, &operands, &problem);
  problem.workspace_bytes = UINT64_MAX;
  TRY(device_for("d", (CUdeviceptr)a.d, &device));
  TRY(choose_on(&problem, &device->gpu, &chosen));
  *bytes = split_workspace(chosen.row, &chosen.seen);
  if (chosen.copier) {
    struct copies copies = copies_of(&problem);
    *bytes += copies.bytes[0] + copies.bytes[1];
  }
  return LIBGEMM_OK;
}

libgemm_status libgemm_gemm_explain(const libgemm_gemm_args *args, int32_t target, libgemm_choice *choice) {
  libgemm_gemm_args a;
  struct operands operands;
  struct problem problem;
  struct gpu gpu;
  struct choice chosen;
  TRY(check_args(args, &a, &operands, &problem));
  TRY(explain_gpu(target, &gpu));
  if (is_empty(&a)) return explain_on(NULL, &gpu, choice);
  set_memory(&a, &operands, &problem);
  TRY(choose_on(&problem, &gpu, &chosen));
  TRY(check_tiles(&chosen));
  return explain_on(&problem, &gpu, choice);
}
