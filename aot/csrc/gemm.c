/* gemm.c: the dense call: checks, alignment, device, choice, launch. */
#include <stddef.h>
#include <string.h>

#include "internal.h"

void libgemm_gemm_args_init(libgemm_gemm_args *args, uint64_t size) {
  libgemm_gemm_args defaults = {.batch = 1, .alpha = 1.0f};
  memset(args, 0, size);
  memcpy(args, &defaults, size < sizeof defaults ? size : sizeof defaults);
  args->size = size;
}

/* Whether A and B are read, and C. */
static bool reads_ab(const libgemm_gemm_args *a) { return a->k > 0 && a->alpha != 0.0f; }
static bool reads_c(const libgemm_gemm_args *a) { return a->beta != 0.0f; }
static bool is_empty(const libgemm_gemm_args *a) { return a->m == 0 || a->n == 0 || a->batch == 0; }

static libgemm_status check_lds(const libgemm_gemm_args *a) {
  if (reads_ab(a)) {
    TRY(a->trans_a ? check_ld("lda", a->lda, a->m, "m") : check_ld("lda", a->lda, a->k, "k"));
    TRY(a->trans_b ? check_ld("ldb", a->ldb, a->k, "k") : check_ld("ldb", a->ldb, a->n, "n"));
  }
  if (reads_c(a)) TRY(check_ld("ldc", a->ldc, a->n, "n"));
  TRY(check_ld("ldd", a->ldd, a->n, "n"));
  return check_output(&(struct output){.c = a->c,
                                       .d = a->d,
                                       .m = a->m,
                                       .n = a->n,
                                       .count = a->batch,
                                       .ldc = a->ldc,
                                       .ldd = a->ldd,
                                       .batch_stride_c = a->batch_stride_c,
                                       .batch_stride_d = a->batch_stride_d,
                                       .reads_c = reads_c(a)});
}

static libgemm_status check_args(const libgemm_gemm_args *args, libgemm_gemm_args *a, struct problem *p) {
  TRY(read_args(args, offsetof(libgemm_gemm_args, batch_invariant), a, sizeof *a, "libgemm_gemm_args"));
  *p = (struct problem){.op = OP_GEMM,
                        .a_type = a->a_type,
                        .d_type = a->d_type,
                        .precision = a->precision,
                        .trans_a = a->trans_a,
                        .trans_b = a->trans_b,
                        .activation = a->activation,
                        .m = a->m,
                        .n = a->n,
                        .k = a->k,
                        .count = a->batch,
                        .rows = a->m,
                        .variant = a->variant,
                        .workspace_bytes = a->workspace ? a->workspace_bytes : 0,
                        .a_stride = stride_class(a->lda, a->a_type == LIBGEMM_F32 ? 4 : 2),
                        .b_stride = stride_class(a->ldb, a->a_type == LIBGEMM_F32 ? 4 : 2)};
  TRY(check_problem(p));
  if (a->batch_invariant < 0 || a->batch_invariant > 1)
    return fail(LIBGEMM_INVALID_ARGUMENT, "batch_invariant = %d: allowed is 0 to 1", a->batch_invariant);
  if (a->batch < 0) return fail(LIBGEMM_INVALID_ARGUMENT, "batch = %lld: allowed is 0 or more", (long long)a->batch);
  return is_empty(a) ? LIBGEMM_OK : check_lds(a);
}

static struct operands operands_of(const libgemm_gemm_args *a) {
  struct operands operands = OPERANDS_OF(a, a->batch, LIBGEMM_RAGGED_NONE);
  settle(&operands);
  return operands;
}

/* Guard bits of memory that these operands meet. */
static unsigned memory_met(const struct operands *o) {
  unsigned met = is_aligned(o) ? GUARD_ALIGN16 : 0;
  if (!o->reads_ab) return met;
  if (o->groups != 1) return met | engine_met(o);
  bool a_even = reaches_a(o), b_even = reaches_b(o), cd = reaches_cd(o);
  if (a_even && b_even) met |= GUARD_DESCRIPTOR_AB | (cd ? GUARD_DESCRIPTOR : 0);
  met |= MEMORY_READ | (a_even ? 0 : MEMORY_A_ODD) | (b_even ? 0 : MEMORY_B_ODD) | (cd ? MEMORY_CD_EVEN : 0);
  return met;
}

/* The same, and what the caller wants of the bits. */
static unsigned guards_met(const libgemm_gemm_args *a, const struct operands *o) {
  return memory_met(o) | (a->batch_invariant ? BATCH_INVARIANT : 0);
}

static libgemm_status check_pointers(const libgemm_gemm_args *a, const struct operands *o,
                                     const struct device *device) {
  TRY(check_operands(o, a->bias, device));
  if (a->workspace && a->workspace_bytes) {
    TRY(check_pointer("workspace", (CUdeviceptr)a->workspace, device));
    if ((uint64_t)a->workspace % 16)
      return fail(LIBGEMM_INVALID_ARGUMENT, "workspace = %p: a multiple of 16 is needed", a->workspace);
  }
  return LIBGEMM_OK;
}

static void fill_call(const libgemm_gemm_args *a, const struct operands *o, struct call *call) {
  place_operands(o, call);
  call->bias_ptr = (CUdeviceptr)a->bias;
  call->batch_stride_bias = a->bias ? a->batch_stride_bias : 0;
  call->alpha = a->k > 0 ? a->alpha : 0.0f; /* no product, whatever alpha would make of it */
  call->beta = a->beta;
  call->activation = a->activation;
}

/* Which rows run, loaded, and on how many blocks. Reads nothing but the problem, so the answer can be remembered. */
static libgemm_status make_plan(const struct problem *key, const struct device *device, struct plan *plan) {
  struct problem p = *key;
  const struct row *row;
  TRY(choose(&p, &device->gpu, &row));
  TRY(load_row(row, device));
  if (p.copier) TRY(load_row(p.copier, device));
  int splits = split_count(row, &p);
  int64_t tiles = ceil_div(p.m, row->block_m) * ceil_div(p.n, row->block_n);
  if (tiles > MOST_TILES || p.count > MOST_TILES / tiles)
    return fail(LIBGEMM_UNSUPPORTED, "%lld tiles in each of %lld products: one launch takes %d in all",
                (long long)tiles, (long long)p.count, MOST_TILES);
  int64_t blocks = tiles * p.count * splits;
  if (row->persistent) blocks = least(blocks, (int64_t)device->gpu.multiprocessors * resident_blocks(row, device));
  *plan = (struct plan){row, splits, slot_bytes(row, &p), blocks, p.copier};
  remember_plan(key, plan);
  return LIBGEMM_OK;
}

static libgemm_status run(const libgemm_gemm_args *a, const struct operands *o, struct problem *p,
                          const struct device *device) {
  struct plan made;
  struct call call;
  TRY(check_pointers(a, o, device));
  p->device = device->ordinal;
  p->multiprocessors = device->gpu.multiprocessors;
  const struct plan *plan = recall_plan(p);
  if (!plan) {
    TRY(make_plan(p, device, &made));
    plan = &made;
  }
  CUdeviceptr workspace = (CUdeviceptr)a->workspace;
  fill_call(a, o, &call);
  if (plan->copier) TRY(queue_copies(p, plan->copier, device, &call, &workspace, a->stream));
  TRY(encode_tensors(plan->row, device, &call));
  call.splits = plan->splits;
  if (plan->row->guard & GUARD_CLUSTER) {
    call.cluster = plan->splits;
  } else if (plan->splits > 1) {
    call.slots = workspace;
    call.partials = call.slots + plan->slot_bytes;
    call.nonce = next_nonce();
  }
  return plan->row->launch(plan->row, device, &call, plan->blocks, a->stream);
}

libgemm_status libgemm_gemm(const libgemm_gemm_args *args) {
  libgemm_gemm_args a;
  struct problem problem;
  const struct device *device;
  int ordinal;
  bool entered;
  TRY(check_args(args, &a, &problem));
  if (is_empty(&a)) return LIBGEMM_OK;
  struct operands operands = operands_of(&a);
  problem.met = guards_met(&a, &operands);
  TRY(device_of("d", (CUdeviceptr)a.d, &ordinal));
  TRY(device_get(ordinal, &device));
  TRY(enter_device(device, &entered));
  libgemm_status status = run(&a, &operands, &problem, device);
  leave_device(device, entered);
  return status;
}

libgemm_status libgemm_gemm_workspace(const libgemm_gemm_args *args, uint64_t *bytes) {
  libgemm_gemm_args a;
  struct problem problem, seen;
  const struct device *device;
  const struct row *row;
  if (!bytes) return fail(LIBGEMM_INVALID_ARGUMENT, "bytes is NULL");
  *bytes = 0;
  TRY(check_args(args, &a, &problem));
  if (is_empty(&a) || !reads_ab(&a) || a.batch != 1) return LIBGEMM_OK;
  struct operands operands = operands_of(&a);
  problem.met = guards_met(&a, &operands);
  problem.workspace_bytes = UINT64_MAX;
  TRY(device_for("d", (CUdeviceptr)a.d, &device));
  seen = problem;
  TRY(choose(&seen, &device->gpu, &row));
  *bytes = split_workspace(row, &seen);
  if (seen.copier) {
    struct copies copies = copies_of(&problem);
    *bytes += copies.bytes[0] + copies.bytes[1];
  }
  return LIBGEMM_OK;
}

libgemm_status libgemm_gemm_explain(const libgemm_gemm_args *args, int32_t target, libgemm_choice *choice) {
  libgemm_gemm_args a;
  struct problem problem;
  struct gpu gpu;
  const struct row *row = NULL;
  TRY(check_args(args, &a, &problem));
  TRY(explain_gpu(target, &gpu));
  if (!is_empty(&a)) {
    struct operands operands = operands_of(&a);
    problem.met = guards_met(&a, &operands);
    TRY(choose(&problem, &gpu, &row));
  }
  return describe(&problem, gpu.target, row, choice);
}
