/* grouped_mm.c: the call over packed rows, columns or K. A B that all groups of rows share becomes one dense GEMM. */
#include <stddef.h>
#include <string.h>

#include "internal.h"

void libgemm_grouped_mm_args_init(libgemm_grouped_mm_args *args, uint64_t size) {
  libgemm_grouped_mm_args defaults = {.alpha = 1.0f, .offs_format = LIBGEMM_ENDS_I32};
  memset(args, 0, size);
  memcpy(args, &defaults, size < sizeof defaults ? size : sizeof defaults);
  args->size = size;
}

static bool reads_ab(const libgemm_grouped_mm_args *a) { return a->k > 0 && a->alpha != 0.0f && a->groups > 0; }
static bool reads_c(const libgemm_grouped_mm_args *a) { return a->beta != 0.0f && a->groups > 0; }
static bool reads_ends(const libgemm_grouped_mm_args *a) {
  return a->ragged != LIBGEMM_RAGGED_NONE && a->groups > 0 && !a->shared_b;
}

/* Operands that group g has one of its own of; the others are packed. */
static bool own_a(const libgemm_grouped_mm_args *a) {
  return a->ragged == LIBGEMM_RAGGED_N || a->ragged == LIBGEMM_RAGGED_NONE;
}
static bool own_b(const libgemm_grouped_mm_args *a) {
  return a->ragged == LIBGEMM_RAGGED_M || a->ragged == LIBGEMM_RAGGED_NONE;
}
static bool own_d(const libgemm_grouped_mm_args *a) {
  return a->ragged == LIBGEMM_RAGGED_K || a->ragged == LIBGEMM_RAGGED_NONE;
}

/* Whether D has a part past the last end that is to be set to 0. */
static bool zeroes_tail(const libgemm_grouped_mm_args *a) { return a->zero_tail && !own_d(a); }

static bool is_empty(const libgemm_grouped_mm_args *a) {
  return a->m == 0 || a->n == 0 || (a->groups == 0 && !zeroes_tail(a));
}

static libgemm_status check_strides(const libgemm_grouped_mm_args *a) {
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
                                       .count = own_d(a) ? a->groups : 1,
                                       .ldc = a->ldc,
                                       .ldd = a->ldd,
                                       .batch_stride_c = a->batch_stride_c,
                                       .batch_stride_d = a->batch_stride_d,
                                       .reads_c = reads_c(a)});
}

static libgemm_status check_words(const libgemm_grouped_mm_args *a) {
  if (a->groups < 0 || a->groups > LIBGEMM_MAX_GROUPS)
    return fail(LIBGEMM_INVALID_ARGUMENT, "groups = %lld: allowed is 0 to %d", (long long)a->groups,
                LIBGEMM_MAX_GROUPS);
  if (a->offs_format < LIBGEMM_ENDS_I32 || a->offs_format > LIBGEMM_OFFSETS_I64)
    return fail(LIBGEMM_INVALID_ARGUMENT, "offs_format = %d: allowed is 1 to 4 (libgemm_offs_format)", a->offs_format);
  if (a->ragged < LIBGEMM_RAGGED_M || a->ragged > LIBGEMM_RAGGED_NONE)
    return fail(LIBGEMM_INVALID_ARGUMENT, "ragged = %d: allowed is 0 to 3 (libgemm_ragged)", a->ragged);
  if (a->zero_tail < 0 || a->zero_tail > 1)
    return fail(LIBGEMM_INVALID_ARGUMENT, "zero_tail = %d: allowed is 0 or 1", a->zero_tail);
  if (a->shared_b < 0 || a->shared_b > 1)
    return fail(LIBGEMM_INVALID_ARGUMENT, "shared_b = %d: allowed is 0 or 1", a->shared_b);
  if (a->shared_b && a->ragged != LIBGEMM_RAGGED_M)
    return fail(LIBGEMM_INVALID_ARGUMENT, "shared_b = 1 with ragged = %d: allowed is LIBGEMM_RAGGED_M (0)", a->ragged);
  if (a->shared_b && a->zero_tail)
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "zero_tail = 1 with shared_b = 1: allowed is 0, since the ends are not read and every row is computed");
  return LIBGEMM_OK;
}

/* Strides by which nothing is read become 0: what stands there then neither matters nor keeps rows from running. */
static void drop_unused_strides(libgemm_grouped_mm_args *a) {
  bool many = a->groups > 1;
  if (!many || !own_a(a) || !reads_ab(a)) a->batch_stride_a = 0;
  if (!many || !own_b(a) || !reads_ab(a)) a->batch_stride_b = 0;
  if (!many || !own_d(a) || !reads_c(a)) a->batch_stride_c = 0;
  if (!many || !own_d(a)) a->batch_stride_d = 0;
  if (!many || !a->bias) a->batch_stride_bias = 0;
}

/* Matrices of one stored row stand as far apart as the rows of one matrix would: then that is what they are. */
static void join_single_rows(libgemm_grouped_mm_args *a) {
  if (own_a(a) && (a->trans_a ? a->k : a->m) == 1 && a->batch_stride_a > a->lda) a->lda = a->batch_stride_a;
  if (own_b(a) && (a->trans_b ? a->n : a->k) == 1 && a->batch_stride_b > a->ldb) a->ldb = a->batch_stride_b;
  if (own_d(a) && a->m == 1 && a->batch_stride_d > a->ldd) a->ldd = a->batch_stride_d;
  if (own_d(a) && a->m == 1 && a->batch_stride_c > a->ldc) a->ldc = a->batch_stride_c;
}

static libgemm_status check_args(const libgemm_grouped_mm_args *args, libgemm_grouped_mm_args *a, struct problem *p) {
  TRY(read_args(args, offsetof(libgemm_grouped_mm_args, batch_stride_a), a, sizeof *a, "libgemm_grouped_mm_args"));
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
                        .rows = a->m,
                        .variant = a->variant};
  TRY(check_problem(p));
  TRY(check_words(a));
  if (is_empty(a)) return LIBGEMM_OK;
  TRY(check_strides(a));
  drop_unused_strides(a);
  join_single_rows(a);
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
                             .stream = a->stream};
}

/* What GUARD_ALIGN16 asks. A group may start anywhere in the dimension that is cut, so that must not be one along which
 * a matrix is contiguous: N, for D's sake; M in a stored [K][M]; K unless A is stored [K][M] and B [K][N]. */
static bool is_aligned(const libgemm_grouped_mm_args *a) {
  int64_t step = a->a_type == LIBGEMM_F32 ? 4 : 8;
  bool k_strided = a->trans_a && !a->trans_b;
  if (a->ragged == LIBGEMM_RAGGED_N) return false;
  if (a->ragged == LIBGEMM_RAGGED_M && a->trans_a) return false;
  if (a->ragged == LIBGEMM_RAGGED_K && !k_strided) return false;
  uint64_t pointers = (uint64_t)a->d;
  int64_t strides = a->ldd | a->n | (a->trans_a ? a->m : 0) | a->batch_stride_d; /* also when A and B are not read */
  if (reads_ab(a)) {
    pointers |= (uint64_t)a->a | (uint64_t)a->b;
    strides |= a->lda | a->ldb | (a->ragged == LIBGEMM_RAGGED_K ? 0 : a->k) | a->batch_stride_a | a->batch_stride_b;
  }
  if (reads_c(a)) {
    pointers |= (uint64_t)a->c;
    strides |= a->ldc | a->batch_stride_c;
  }
  return pointers % 16 == 0 && (strides & (step - 1)) == 0;
}

/* Stored rows from one group's matrix to the next, where that is a number of rows that the copy engine can count over
 * all groups; else -1. */
static int64_t whole_step(int64_t batch_stride, int64_t ld, int64_t rows, int64_t groups) {
  int64_t step = batch_stride / ld, more = groups > 1 ? groups - 1 : 0;
  return batch_stride % ld == 0 && step >= 0 && step <= (LIBGEMM_MAX_SIZE - rows) / (more ? more : 1) ? step : -1;
}

/* Whether the copy engine can address all that is read and written, and a row of D ends on 16 bytes. */
static bool engine_reaches(const libgemm_grouped_mm_args *a) {
  int a_bytes = a->a_type == LIBGEMM_F32 ? 4 : 2, d_bytes = a->d_type == LIBGEMM_F32 ? 4 : 2;
  if (a->n * d_bytes % 16 || (reads_c(a) && !is_addressable(a->c, a->ldc, d_bytes))) return false;
  return is_addressable(a->a, a->lda, a_bytes) && is_addressable(a->b, a->ldb, a_bytes) &&
         is_addressable(a->d, a->ldd, d_bytes);
}

/* Whether all groups of an operand are one matrix to it, and kernels can count the tiles. */
static bool engine_counts(const libgemm_grouped_mm_args *a) {
  bool cut_m = a->ragged == LIBGEMM_RAGGED_M;
  const int64_t least_tile = 64; /* of rows and of columns */
  /* Within a stored row it begins only at multiples of 16 bytes (an illegal instruction elsewhere: seen on an H200),
   * and a group begins anywhere: what is cut must not be what is contiguous. */
  if (cut_m ? a->trans_a : a->ragged == LIBGEMM_RAGGED_K && (!a->trans_a || a->trans_b)) return false;
  int64_t d_step = whole_step(a->batch_stride_d, a->ldd, a->m, a->groups);
  if (whole_step(a->batch_stride_a, a->lda, a->trans_a ? a->k : a->m, a->groups) < 0 || d_step < 0) return false;
  if (whole_step(a->batch_stride_b, a->ldb, a->trans_b ? a->n : a->k, a->groups) < 0) return false;
  if (reads_c(a) && whole_step(a->batch_stride_c, a->ldc, a->m, a->groups) != d_step) return false;
  /* Kernels count tiles in 32 bits: of 128 groups that may lie, or of all. */
  int64_t tiles = ceil_div(a->m, least_tile) * ceil_div(a->n, least_tile), together = cut_m ? 128 : a->groups;
  if (tiles > INT32_MAX / together) return false;
  /* The last step in K would read rows of the next group's B. */
  return !cut_m || a->trans_b || a->groups == 1 || a->k * (a->a_type == LIBGEMM_F32 ? 4 : 2) % 128 == 0;
}

/* Guard bits of the rows that leave all memory to the copy engine. */
static unsigned engine_met(const libgemm_grouped_mm_args *a) {
  if (is_empty(a) || !reads_ab(a)) return 0;
  unsigned met = engine_reaches(a) ? GUARD_DESCRIPTOR : 0;
  if (a->ragged == LIBGEMM_RAGGED_N || !engine_counts(a)) return met;
  return met | (a->ragged == LIBGEMM_RAGGED_M ? GUARD_ROWS : GUARD_EQUAL);
}

static libgemm_status check_pointers(const libgemm_grouped_mm_args *a, const struct device *device) {
  if (reads_ab(a)) {
    TRY(check_pointer("a", (CUdeviceptr)a->a, device));
    TRY(check_pointer("b", (CUdeviceptr)a->b, device));
  }
  if (reads_c(a)) TRY(check_pointer("c", (CUdeviceptr)a->c, device));
  if (a->bias && a->groups) TRY(check_pointer("bias", (CUdeviceptr)a->bias, device));
  return reads_ends(a) ? check_pointer("offs", (CUdeviceptr)a->offs, device) : LIBGEMM_OK;
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
                       .offs_ptr = reads_ends(a) ? (CUdeviceptr)a->offs + skip : 0,
                       .offs_wide = wide,
                       .M = (int32_t)a->m,
                       .N = (int32_t)a->n,
                       .K = ab ? (int32_t)a->k : 0,
                       .groups = (int32_t)a->groups,
                       .ragged = a->ragged,
                       .zero_tail = zeroes_tail(a),
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
                       .a_step = ab ? (int32_t)(a->batch_stride_a / a->lda) : 0, /* for rows that ask for whole steps */
                       .b_step = ab ? (int32_t)(a->batch_stride_b / a->ldb) : 0,
                       .d_step = (int32_t)(a->batch_stride_d / a->ldd),
                       .activation = a->activation};
}

/* Most tiles the groups can have: each one that is cut, and the tail, adds at most a part of a tile. */
static int64_t most_tiles(const libgemm_grouped_mm_args *a, const struct row *row) {
  int64_t cuts = a->groups + zeroes_tail(a);
  if (a->ragged == LIBGEMM_RAGGED_M) return (a->m / row->block_m + cuts) * ceil_div(a->n, row->block_n);
  if (a->ragged == LIBGEMM_RAGGED_N) return ceil_div(a->m, row->block_m) * (a->n / row->block_n + cuts);
  int64_t each = ceil_div(a->m, row->block_m) * ceil_div(a->n, row->block_n);
  return least(each, INT32_MAX) * a->groups;
}

static libgemm_status run(const libgemm_grouped_mm_args *a, struct problem *p, const struct device *device) {
  const struct row *row;
  TRY(choose(p, device->target, device->multiprocessors, &row));
  TRY(load_row(row, device));
  struct call call = make_call(a);
  TRY(encode_tensors(row, device, &call));
  /* Persistent blocks need not be more than can be resident. */
  int64_t blocks = (int64_t)device->multiprocessors * resident_blocks(row, device);
  return row->launch(row, device, &call, least(most_tiles(a, row), blocks), a->stream);
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
  problem.met = (is_aligned(&a) ? GUARD_ALIGN16 : 0) | engine_met(&a);
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
  if (a.shared_b) {
    libgemm_gemm_args dense = as_gemm(&a);
    return libgemm_gemm_workspace(&dense, bytes);
  }
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
  problem.met = (is_aligned(&a) ? GUARD_ALIGN16 : 0) | engine_met(&a);
  TRY(explain_target(target, &found, &multiprocessors));
  if (!is_empty(&a)) TRY(choose(&problem, found, multiprocessors, &row));
  return describe(&problem, found, row, choice);
}
