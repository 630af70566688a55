/* operands.c: what the matrices of a call are like: which guards on memory they meet. Chooses and launches nothing. */
#include <stddef.h>
#include <string.h>

#include "internal.h"

static bool owns_a(int32_t ragged) { return ragged == LIBGEMM_RAGGED_N || ragged == LIBGEMM_RAGGED_NONE; }
static bool owns_b(int32_t ragged) { return ragged == LIBGEMM_RAGGED_M || ragged == LIBGEMM_RAGGED_NONE; }
bool owns_d(int32_t ragged) { return ragged == LIBGEMM_RAGGED_K || ragged == LIBGEMM_RAGGED_NONE; }

/* Strides by which nothing is read become 0: what stands there then neither matters nor keeps rows from running. */
HOT void drop_unused_strides(struct operands *o) {
  bool many = o->groups > 1;
  if (!many || !owns_a(o->ragged) || !o->reads_ab) o->batch_stride_a = 0;
  if (!many || !owns_b(o->ragged) || !o->reads_ab) o->batch_stride_b = 0;
  if (!many || !owns_d(o->ragged) || !o->reads_c) o->batch_stride_c = 0;
  if (!many || !owns_d(o->ragged)) o->batch_stride_d = 0;
}

/* The leading dimension of a matrix of one stored row is nobody's. Such matrices stand as far apart as the rows of one
 * would: then that is what they are. One alone, or that all groups share, or that is not read (its stride is 0 by now)
 * has one that the copy engine can step over. */
HOT static int64_t step_of_single_row(int64_t length, int64_t batch_stride, int64_t ld, int bytes) {
  int64_t whole = 16 / bytes;
  if (batch_stride == 0) return (length + whole - 1) / whole * whole;
  return batch_stride >= length ? batch_stride : ld;
}

HOT static void join_single_rows(struct operands *o) {
  if ((o->trans_a ? o->k : o->m) == 1)
    o->lda = step_of_single_row(o->trans_a ? o->m : o->k, o->batch_stride_a, o->lda, o->a_bytes);
  if ((o->trans_b ? o->n : o->k) == 1)
    o->ldb = step_of_single_row(o->trans_b ? o->k : o->n, o->batch_stride_b, o->ldb, o->a_bytes);
  if (o->m == 1) o->ldd = step_of_single_row(o->n, o->batch_stride_d, o->ldd, o->d_bytes);
  if (o->m == 1) o->ldc = step_of_single_row(o->n, o->batch_stride_c, o->ldc, o->d_bytes);
}

HOT void canonicalise(struct operands *o, bool as_given) {
  drop_unused_strides(o);
  if (!as_given) join_single_rows(o);
}

HOT bool is_aligned(const struct operands *o) {
  int64_t step = 16 / o->a_bytes; /* strides count in elements of the input type */
  bool k_strided = o->trans_a && !o->trans_b;
  if (o->ragged == LIBGEMM_RAGGED_N) return false;
  if (o->ragged == LIBGEMM_RAGGED_M && o->trans_a) return false;
  if (o->ragged == LIBGEMM_RAGGED_K && !k_strided) return false;
  uint64_t pointers = (uint64_t)o->d;
  int64_t strides = o->ldd | o->n | (o->trans_a ? o->m : 0) | o->batch_stride_d; /* also when A and B are not read */
  if (o->reads_ab) {
    pointers |= (uint64_t)o->a | (uint64_t)o->b;
    strides |= o->lda | o->ldb | (o->ragged == LIBGEMM_RAGGED_K ? 0 : o->k) | o->batch_stride_a | o->batch_stride_b;
  }
  if (o->reads_c) {
    pointers |= (uint64_t)o->c;
    strides |= o->ldc | o->batch_stride_c;
  }
  return pointers % 16 == 0 && (strides & (step - 1)) == 0;
}

/* D may be C, not an operand that others of its elements are still made of. */
HOT static libgemm_status check_apart(const char *name, const void *operand, const void *d) {
  if (operand != d) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "%s == d = %p: D is written while %s is read; only C may be the same matrix",
              name, d, name);
}

HOT static libgemm_status check_operand(const char *name, const void *pointer, int bytes, const struct operands *o,
                                        const struct device *device) {
  TRY(check_alignment(name, (CUdeviceptr)pointer, (uint64_t)bytes));
  if (pointer == o->d) return LIBGEMM_OK; /* whose owner runs the call */
  return check_pointer(name, (CUdeviceptr)pointer, device);
}

HOT libgemm_status check_operands(const struct operands *o, const void *bias, const struct device *device) {
  if (o->reads_ab) {
    TRY(check_operand("a", o->a, o->a_bytes, o, device));
    TRY(check_operand("b", o->b, o->a_bytes, o, device));
    TRY(check_apart("a", o->a, o->d));
    TRY(check_apart("b", o->b, o->d));
  }
  if (o->reads_c) TRY(check_operand("c", o->c, o->d_bytes, o, device));
  TRY(check_operand("d", o->d, o->d_bytes, o, device));
  int bias_bytes = o->d_type == LIBGEMM_E4M3 ? dtype_bytes(LIBGEMM_BF16) : o->d_bytes;
  return bias ? check_operand("bias", bias, bias_bytes, o, device) : LIBGEMM_OK;
}

HOT bool tma_reads_a(const struct operands *o) { return is_addressable(o->a, o->lda, o->a_bytes); }
HOT bool tma_reads_b(const struct operands *o) { return is_addressable(o->b, o->ldb, o->a_bytes); }

/* TMA writes whole pieces of 16 bytes, also where a row of D ends inside one: seen on an H200. What it
 * reads beyond the end of a row counts as 0. */
HOT bool tma_stores_d(const struct operands *o) {
  int bytes = o->d_bytes;
  if (o->n * bytes % 16 || (o->reads_c && !is_addressable(o->c, o->ldc, bytes))) return false;
  return is_addressable(o->d, o->ldd, bytes);
}

/* Stored rows from one group's matrix to the next, where that is a number of rows that TMA can count over
 * all groups, and whose bytes it can step over (less than 2^40); else -1. 0: they share it. */
static int64_t whole_step(int64_t batch_stride, int64_t ld, int64_t rows, int64_t groups) {
  const int64_t most = ((int64_t)1 << 40) / 4; /* elements of 4 bytes, the largest */
  int64_t step = batch_stride / ld, more = groups > 1 ? groups - 1 : 0;
  bool counts = step <= (LIBGEMM_MAX_SIZE - rows) / (more ? more : 1) && batch_stride < most;
  return batch_stride % ld == 0 && step >= 0 && counts ? step : -1;
}

enum { LEAST_TILE_M = 32, LEAST_TILE_N = 64 }; /* of rows that leave all memory to TMA: kernels/table/tuned */

/* Whether all groups of an operand are one matrix to TMA, and kernels can count the tiles. */
static bool engine_counts(const struct operands *o) {
  bool cut_m = o->ragged == LIBGEMM_RAGGED_M, cut_n = o->ragged == LIBGEMM_RAGGED_N;
  /* Within a stored row it begins only at multiples of 16 bytes (an illegal instruction elsewhere: seen on an H200),
   * and a group begins anywhere: what is cut must not be what is contiguous. Rows for 8-bit operands, of which K is,
   * begin before their group. */
  bool k_is_contiguous = !o->trans_a && o->trans_b, k_is_stored_rows = o->trans_a && !o->trans_b;
  if ((cut_m && o->trans_a) || (cut_n && !o->trans_b)) return false;
  if (o->ragged == LIBGEMM_RAGGED_K && !(o->a_bytes == 1 ? k_is_contiguous : k_is_stored_rows)) return false;
  int64_t d_step = whole_step(o->batch_stride_d, o->ldd, o->m, o->groups);
  if (whole_step(o->batch_stride_a, o->lda, o->trans_a ? o->k : o->m, o->groups) < 0 || d_step < 0) return false;
  if (whole_step(o->batch_stride_b, o->ldb, o->trans_b ? o->n : o->k, o->groups) < 0) return false;
  if (o->reads_c && whole_step(o->batch_stride_c, o->ldc, o->m, o->groups) != d_step) return false;
  /* Kernels count tiles in 32 bits: of 128 groups that may lie, or of all. */
  int64_t tiles = ceil_div(o->m, LEAST_TILE_M) * ceil_div(o->n, LEAST_TILE_N),
          together = cut_m || cut_n ? 128 : o->groups;
  return tiles <= MOST_TILES / together;
}

unsigned tma_guards(const struct operands *o) {
  if (o->m == 0 || o->n == 0 || !o->reads_ab) return 0;
  static const unsigned cuts[] = {GUARD_ROWS, GUARD_COLUMNS, GUARD_EQUAL, GUARD_EQUAL}; /* by libgemm_ragged */
  unsigned met = tma_reads_a(o) && tma_reads_b(o) ? GUARD_DESCRIPTOR_AB : 0;
  if (met && tma_stores_d(o)) met |= GUARD_DESCRIPTOR;
  return met | (engine_counts(o) ? cuts[o->ragged] : 0);
}

HOT void place_operands(const struct operands *o, struct call *call) {
  clear(call, offsetof(struct call, a_desc));
  call->a_ptr = (CUdeviceptr)o->a;
  call->b_ptr = (CUdeviceptr)o->b;
  call->c_ptr = (CUdeviceptr)o->c;
  call->d_ptr = (CUdeviceptr)o->d;
  call->M = (int32_t)o->m;
  call->N = (int32_t)o->n;
  call->K = o->reads_ab ? (int32_t)o->k : 0;
  /* An operand that is not read gets zero strides: nobody promised its leading dimension. */
  call->lda = o->reads_ab ? o->lda : 0;
  call->ldb = o->reads_ab ? o->ldb : 0;
  call->ldc = o->reads_c ? o->ldc : 0;
  call->ldd = o->ldd;
  call->batch_stride_a = o->batch_stride_a;
  call->batch_stride_b = o->batch_stride_b;
  call->batch_stride_c = o->batch_stride_c;
  call->batch_stride_d = o->batch_stride_d;
  call->groups = (int32_t)o->groups;
  call->ragged = o->ragged;
  /* Steps are for rows that ask for whole ones; a stride that does not count is 0, and divides nothing. */
  call->a_step = o->batch_stride_a ? (int32_t)(o->batch_stride_a / o->lda) : 0;
  call->b_step = o->batch_stride_b ? (int32_t)(o->batch_stride_b / o->ldb) : 0;
  call->d_step = o->batch_stride_d ? (int32_t)(o->batch_stride_d / o->ldd) : 0;
}
