/* gemm.c: the dense call: checks, alignment, device, choice, launch. */
#include <string.h>
#include <time.h>

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

__extension__ typedef __int128 wide; /* strides and counts are the caller's: 64 bits may not hold their product */

static libgemm_status check_lds(const libgemm_gemm_args *a) {
  if (reads_ab(a)) {
    TRY(a->trans_a ? check_ld("lda", a->lda, a->m, "m") : check_ld("lda", a->lda, a->k, "k"));
    TRY(a->trans_b ? check_ld("ldb", a->ldb, a->k, "k") : check_ld("ldb", a->ldb, a->n, "n"));
  }
  if (reads_c(a)) TRY(check_ld("ldc", a->ldc, a->n, "n"));
  TRY(check_ld("ldd", a->ldd, a->n, "n"));
  if (reads_c(a) && a->c == a->d && (a->ldc != a->ldd || (a->batch > 1 && a->batch_stride_c != a->batch_stride_d)))
    return fail(LIBGEMM_INVALID_ARGUMENT, "c == d with ldc = %lld, ldd = %lld: C and D in one place need equal strides",
                (long long)a->ldc, (long long)a->ldd);
  wide extent = (wide)(a->m - 1) * a->ldd + a->n,
       stride = a->batch_stride_d < 0 ? -(wide)a->batch_stride_d : a->batch_stride_d;
  bool interleaved = stride >= a->n && a->ldd >= stride * (a->batch - 1) + a->n;
  if (a->batch > 1 && stride < extent && !interleaved)
    return fail(LIBGEMM_INVALID_ARGUMENT, "batch_stride_d = %lld: the D matrices overlap, each spans %lld elements",
                (long long)a->batch_stride_d, (long long)(extent > INT64_MAX ? INT64_MAX : extent));
  return LIBGEMM_OK;
}

static libgemm_status check_args(const libgemm_gemm_args *args, libgemm_gemm_args *a, struct problem *p) {
  TRY(read_args(args, sizeof *a, a, sizeof *a, "libgemm_gemm_args"));
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
                        .workspace_bytes = a->workspace ? a->workspace_bytes : 0};
  TRY(check_problem(p));
  if (a->batch < 0) return fail(LIBGEMM_INVALID_ARGUMENT, "batch = %lld: allowed is 0 or more", (long long)a->batch);
  return is_empty(a) ? LIBGEMM_OK : check_lds(a);
}

/* What GUARD_ALIGN16 asks, for the operands that are read; strides count in elements of the input type. */
static bool is_aligned(const libgemm_gemm_args *a) {
  int64_t step = a->a_type == LIBGEMM_F32 ? 4 : 8;
  uint64_t pointers = (uint64_t)a->d;
  int64_t strides = a->ldd | a->n | (a->trans_a ? a->m : 0); /* kernels rely on these even when A and B are not read */
  if (a->batch > 1) strides |= a->batch_stride_d;
  if (reads_ab(a)) {
    pointers |= (uint64_t)a->a | (uint64_t)a->b;
    strides |= a->lda | a->ldb | a->k;
    if (a->batch > 1) strides |= a->batch_stride_a | a->batch_stride_b;
  }
  if (reads_c(a)) {
    pointers |= (uint64_t)a->c;
    strides |= a->ldc;
    if (a->batch > 1) strides |= a->batch_stride_c;
  }
  return pointers % 16 == 0 && (strides & (step - 1)) == 0;
}

/* Whether the copy engine can address a matrix: its strides are multiples of 16 bytes below 2^40 (CUDA driver API,
 * cuTensorMapEncodeTiled). Extents may be odd. */
static bool is_addressable(const void *pointer, int64_t ld, int bytes) {
  return (uint64_t)pointer % 16 == 0 && ld < ((int64_t)1 << 40) / bytes && ld * bytes % 16 == 0;
}

/* Guard bits of memory that these operands meet. */
static unsigned guards_met(const libgemm_gemm_args *a) {
  int a_bytes = a->a_type == LIBGEMM_F32 ? 4 : 2, d_bytes = a->d_type == LIBGEMM_F32 ? 4 : 2;
  unsigned met = is_aligned(a) ? GUARD_ALIGN16 : 0;
  if (!reads_ab(a) || a->batch != 1) return met;
  bool ab = is_addressable(a->a, a->lda, a_bytes) && is_addressable(a->b, a->ldb, a_bytes);
  bool cd = is_addressable(a->d, a->ldd, d_bytes) && (!reads_c(a) || is_addressable(a->c, a->ldc, d_bytes));
  if (ab) met |= GUARD_DESCRIPTOR_AB;
  if (ab && cd) met |= GUARD_DESCRIPTOR;
  return met;
}

static libgemm_status check_pointers(const libgemm_gemm_args *a, const struct device *device) {
  if (reads_ab(a)) {
    TRY(check_pointer("a", (CUdeviceptr)a->a, device));
    TRY(check_pointer("b", (CUdeviceptr)a->b, device));
  }
  if (reads_c(a)) TRY(check_pointer("c", (CUdeviceptr)a->c, device));
  if (a->bias) TRY(check_pointer("bias", (CUdeviceptr)a->bias, device));
  if (a->workspace && a->workspace_bytes) {
    TRY(check_pointer("workspace", (CUdeviceptr)a->workspace, device));
    if ((uint64_t)a->workspace % 16)
      return fail(LIBGEMM_INVALID_ARGUMENT, "workspace = %p: a multiple of 16 is needed", a->workspace);
  }
  return LIBGEMM_OK;
}

static struct call make_call(const libgemm_gemm_args *a) {
  bool ab = reads_ab(a);
  /* An operand that is not read gets zero strides: nobody promised its leading dimension. */
  return (struct call){.a_ptr = (CUdeviceptr)a->a,
                       .b_ptr = (CUdeviceptr)a->b,
                       .c_ptr = (CUdeviceptr)a->c,
                       .d_ptr = (CUdeviceptr)a->d,
                       .bias_ptr = (CUdeviceptr)a->bias,
                       .M = (int32_t)a->m,
                       .N = (int32_t)a->n,
                       .K = ab ? (int32_t)a->k : 0,
                       .lda = ab ? a->lda : 0,
                       .ldb = ab ? a->ldb : 0,
                       .ldc = reads_c(a) ? a->ldc : 0,
                       .ldd = a->ldd,
                       .batch_stride_a = a->batch_stride_a,
                       .batch_stride_b = a->batch_stride_b,
                       .batch_stride_c = a->batch_stride_c,
                       .batch_stride_d = a->batch_stride_d,
                       .batch_stride_bias = a->batch_stride_bias,
                       .alpha = a->alpha,
                       .beta = a->beta,
                       .activation = a->activation};
}

/* A number no other launch of this process has, and, but for a chance of 2^-54, nothing else in memory either. */
static int64_t next_nonce(void) {
  static _Atomic(uint64_t) last;
  uint64_t drawn = atomic_fetch_add(&last, 1);
  if (drawn == 0) { /* the first: begin somewhere, and let whoever drew meanwhile keep its small number */
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    drawn = (uint64_t)now.tv_nsec * 0x9E3779B97F4A7C15u + (uint64_t)now.tv_sec;
    atomic_fetch_add(&last, drawn);
  }
  return (int64_t)(drawn & (((uint64_t)1 << 54) - 1));
}

static libgemm_status run(const libgemm_gemm_args *a, struct problem *p, const struct device *device) {
  const struct row *row;
  TRY(choose(p, device->target, device->multiprocessors, &row));
  TRY(load_row(row, device));
  struct call call = make_call(a);
  TRY(encode_tensors(row, device, &call));
  call.splits = split_count(row, p);
  if (call.splits > 1) {
    call.slots = (CUdeviceptr)a->workspace;
    call.partials = call.slots + slot_bytes(row, p);
    call.nonce = next_nonce();
  }
  int64_t tiles = ceil_div(a->m, row->block_m) * ceil_div(a->n, row->block_n);
  if (a->batch > INT32_MAX / (tiles < INT32_MAX ? tiles : INT32_MAX))
    return fail(LIBGEMM_UNSUPPORTED, "%lld tiles in each of %lld products: one launch takes %d in all",
                (long long)tiles, (long long)a->batch, INT32_MAX);
  int64_t blocks = tiles * a->batch * call.splits;
  if (row->persistent) blocks = least(blocks, (int64_t)device->multiprocessors * resident_blocks(row, device));
  return row->launch(row, device, &call, blocks, a->stream);
}

libgemm_status libgemm_gemm(const libgemm_gemm_args *args) {
  libgemm_gemm_args a;
  struct problem problem;
  const struct device *device;
  int ordinal;
  bool entered;
  TRY(check_args(args, &a, &problem));
  if (is_empty(&a)) return LIBGEMM_OK;
  problem.met = guards_met(&a);
  TRY(device_of("d", (CUdeviceptr)a.d, &ordinal));
  TRY(device_get(ordinal, &device));
  TRY(check_pointers(&a, device));
  TRY(enter_device(device, &entered));
  libgemm_status status = run(&a, &problem, device);
  leave_device(device, entered);
  return status;
}

libgemm_status libgemm_gemm_workspace(const libgemm_gemm_args *args, uint64_t *bytes) {
  libgemm_gemm_args a;
  struct problem problem;
  const struct target *target;
  const struct row *row;
  int multiprocessors;
  if (!bytes) return fail(LIBGEMM_INVALID_ARGUMENT, "bytes is NULL");
  *bytes = 0;
  TRY(check_args(args, &a, &problem));
  if (is_empty(&a) || !reads_ab(&a) || a.batch != 1) return LIBGEMM_OK;
  problem.met = guards_met(&a);
  problem.workspace_bytes = UINT64_MAX;
  TRY(explain_target(0, &target, &multiprocessors));
  TRY(choose(&problem, target, multiprocessors, &row));
  *bytes = split_workspace(row, &problem);
  return LIBGEMM_OK;
}

libgemm_status libgemm_gemm_explain(const libgemm_gemm_args *args, int32_t target, libgemm_choice *choice) {
  libgemm_gemm_args a;
  struct problem problem;
  const struct target *found;
  const struct row *row = NULL;
  int multiprocessors;
  TRY(check_args(args, &a, &problem));
  problem.met = guards_met(&a);
  TRY(explain_target(target, &found, &multiprocessors));
  if (!is_empty(&a)) TRY(choose(&problem, found, multiprocessors, &row));
  return describe(&problem, found, row, choice);
}
