/* grouped_mm.c: the call over packed rows. A shared B becomes one dense GEMM. */
#include <string.h>

#include "internal.h"

void libgemm_grouped_mm_args_init(libgemm_grouped_mm_args *args, uint64_t size) {
  libgemm_grouped_mm_args defaults = {.alpha = 1.0f, .offs_format = LIBGEMM_ENDS_I32};
  memset(args, 0, size);
  memcpy(args, &defaults, size < sizeof defaults ? size : sizeof defaults);
  args->size = size;
}

static bool reads_ab(const libgemm_grouped_mm_args *a) { return a->k > 0 && a->alpha != 0.0f; }
static bool reads_c(const libgemm_grouped_mm_args *a) { return a->beta != 0.0f; }
static bool is_empty(const libgemm_grouped_mm_args *a) { return a->m == 0 || a->n == 0 || a->groups == 0; }

static libgemm_status check_strides(const libgemm_grouped_mm_args *a) {
  if (reads_ab(a)) {
    TRY(a->trans_a ? check_ld("lda", a->lda, a->m, "m") : check_ld("lda", a->lda, a->k, "k"));
    TRY(a->trans_b ? check_ld("ldb", a->ldb, a->k, "k") : check_ld("ldb", a->ldb, a->n, "n"));
  }
  if (reads_c(a)) TRY(check_ld("ldc", a->ldc, a->n, "n"));
  TRY(check_ld("ldd", a->ldd, a->n, "n"));
  if (reads_c(a) && a->c == a->d && a->ldc != a->ldd)
    return fail(LIBGEMM_INVALID_ARGUMENT, "c == d with ldc = %lld, ldd = %lld: C and D in one place need equal strides",
                (long long)a->ldc, (long long)a->ldd);
  return LIBGEMM_OK;
}

static libgemm_status check_args(const libgemm_grouped_mm_args *args, libgemm_grouped_mm_args *a, struct problem *p) {
  TRY(read_args(args, sizeof *a, a, sizeof *a, "libgemm_grouped_mm_args"));
  *p = (struct problem){.op = OP_GROUPED_MM,
                        .a_type = a->a_type,
                        .d_type = a->d_type,
                        .precision = a->precision,
                        .trans_a = a->trans_a,
                        .trans_b = a->trans_b,
                        .activation = a->activation,
                        .m = a->m,
                        .n = a->n,
                        .k = a->k,
                        .count = a->groups,
                        .variant = a->variant};
  TRY(check_problem(p));
  if (a->groups < 0 || a->groups > LIBGEMM_MAX_GROUPS)
    return fail(LIBGEMM_INVALID_ARGUMENT, "groups = %lld: allowed is 0 to %d", (long long)a->groups,
                LIBGEMM_MAX_GROUPS);
  if (a->offs_format < LIBGEMM_ENDS_I32 || a->offs_format > LIBGEMM_OFFSETS_I64)
    return fail(LIBGEMM_INVALID_ARGUMENT, "offs_format = %d: allowed is 1 to 4 (libgemm_offs_format)", a->offs_format);
  if (a->shared_b < 0 || a->shared_b > 1)
    return fail(LIBGEMM_INVALID_ARGUMENT, "shared_b = %d: allowed is 0 or 1", a->shared_b);
  if (is_empty(a)) return LIBGEMM_OK;
  p->rows = ceil_div(a->m, a->groups);
  return check_strides(a);
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
                             .stream = a->stream};
}

/* What GUARD_ALIGN16 asks. A stored [K][M] never meets it: a group may start at any column. */
static bool is_aligned(const libgemm_grouped_mm_args *a) {
  int64_t step = a->a_type == LIBGEMM_F32 ? 4 : 8;
  uint64_t pointers = (uint64_t)a->d;
  int64_t strides = a->ldd | a->n;
  if (a->trans_a) return false;
  if (reads_ab(a)) {
    pointers |= (uint64_t)a->a | (uint64_t)a->b;
    strides |= a->lda | a->ldb | a->k | a->batch_stride_b;
  }
  if (reads_c(a)) {
    pointers |= (uint64_t)a->c;
    strides |= a->ldc;
  }
  return pointers % 16 == 0 && (strides & (step - 1)) == 0;
}

static libgemm_status check_pointers(const libgemm_grouped_mm_args *a, const struct device *device) {
  if (reads_ab(a)) {
    TRY(check_pointer("a", (CUdeviceptr)a->a, device));
    TRY(check_pointer("b", (CUdeviceptr)a->b, device));
  }
  if (reads_c(a)) TRY(check_pointer("c", (CUdeviceptr)a->c, device));
  if (a->bias) TRY(check_pointer("bias", (CUdeviceptr)a->bias, device));
  return check_pointer("offs", (CUdeviceptr)a->offs, device);
}

static struct call make_call(const libgemm_grouped_mm_args *a) {
  bool ab = reads_ab(a);
  bool wide = a->offs_format == LIBGEMM_ENDS_I64 || a->offs_format == LIBGEMM_OFFSETS_I64;
  bool leading_zero = a->offs_format == LIBGEMM_OFFSETS_I32 || a->offs_format == LIBGEMM_OFFSETS_I64;
  uint64_t skip = !leading_zero ? 0 : wide ? sizeof(int64_t) : sizeof(int32_t);
  return (struct call){.a_ptr = (CUdeviceptr)a->a,
                       .b_ptr = (CUdeviceptr)a->b,
                       .c_ptr = (CUdeviceptr)a->c,
                       .d_ptr = (CUdeviceptr)a->d,
                       .bias_ptr = (CUdeviceptr)a->bias,
                       .offs_ptr = (CUdeviceptr)a->offs + skip,
                       .offs_wide = wide,
                       .M = (int32_t)a->m,
                       .N = (int32_t)a->n,
                       .K = ab ? (int32_t)a->k : 0,
                       .groups = (int32_t)a->groups,
                       .lda = ab ? a->lda : 0,
                       .ldb = ab ? a->ldb : 0,
                       .ldc = reads_c(a) ? a->ldc : 0,
                       .ldd = a->ldd,
                       .batch_stride_b = a->batch_stride_b,
                       .batch_stride_bias = a->batch_stride_bias,
                       .alpha = a->alpha,
                       .beta = a->beta,
                       .activation = a->activation};
}

static libgemm_status run(const libgemm_grouped_mm_args *a, struct problem *p, const struct device *device) {
  const struct row *row;
  TRY(choose(p, device->target, device->multiprocessors, &row));
  TRY(load_row(row, device));
  struct call call = make_call(a);
  /* Each group adds at most one partial tile of rows; persistent blocks need not be more than can be resident. */
  int64_t most = (a->m / row->block_m + a->groups) * ceil_div(a->n, row->block_n);
  int64_t blocks = (int64_t)device->multiprocessors * resident_blocks(row, device);
  return row->launch(row, device, &call, least(most, blocks), a->stream);
}

libgemm_status libgemm_grouped_mm(const libgemm_grouped_mm_args *args) {
  libgemm_grouped_mm_args a;
  struct problem problem;
  const struct device *device;
  int ordinal;
  bool entered;
  TRY(check_args(args, &a, &problem));
  if (is_empty(&a)) return LIBGEMM_OK;
  if (a.shared_b) {
    libgemm_gemm_args dense = as_gemm(&a);
    return libgemm_gemm(&dense);
  }
  problem.met = is_aligned(&a) ? GUARD_ALIGN16 : 0;
  TRY(device_of("d", (CUdeviceptr)a.d, &ordinal));
  TRY(device_get(ordinal, &device));
  TRY(check_pointers(&a, device));
  TRY(enter_device(device, &entered));
  libgemm_status status = run(&a, &problem, device);
  leave_device(device, entered);
  return status;
}

libgemm_status libgemm_grouped_mm_workspace(const libgemm_grouped_mm_args *args, uint64_t *bytes) {
  libgemm_grouped_mm_args a;
  struct problem problem;
  if (!bytes) return fail(LIBGEMM_INVALID_ARGUMENT, "bytes is NULL");
  TRY(check_args(args, &a, &problem));
  *bytes = 0; /* no row of this table needs one */
  return LIBGEMM_OK;
}

libgemm_status libgemm_grouped_mm_explain(const libgemm_grouped_mm_args *args, int32_t target, libgemm_choice *choice) {
  libgemm_grouped_mm_args a;
  struct problem problem;
  const struct target *found;
  const struct row *row = NULL;
  int multiprocessors;
  TRY(check_args(args, &a, &problem));
  if (a.shared_b) {
    libgemm_gemm_args dense = as_gemm(&a);
    return libgemm_gemm_explain(&dense, target, choice);
  }
  problem.met = is_aligned(&a) ? GUARD_ALIGN16 : 0;
  TRY(explain_target(target, &found, &multiprocessors));
  if (!is_empty(&a)) TRY(choose(&problem, found, multiprocessors, &row));
  return describe(&problem, found, row, choice);
}
