/* operands.h: what a call's matrices are like: sizes, strides, alignment, what TMA can address. */
#ifndef LIBGEMM_SELECT_OPERANDS_H
#define LIBGEMM_SELECT_OPERANDS_H

#include "launch/call.h"

/* Matrices by the names of the argument structs; a batch is groups without ends. */
struct operands {
  const void *a, *b, *c, *d;
  int64_t m, n, k, groups;
  int64_t lda, ldb, ldc, ldd;
  int64_t batch_stride_a, batch_stride_b, batch_stride_c, batch_stride_d;
  int32_t a_type, d_type, trans_a, trans_b, ragged;
  int a_bytes, d_bytes; /* of an element of A and B; of C and D */
  bool reads_ab, reads_c;
};

/* Of either struct of arguments that describes matrices, which name their fields alike. */
#define OPERANDS_OF(args, count, how)                                                                               \
  (struct operands) {                                                                                               \
    .a = (args)->a, .b = (args)->b, .c = (args)->c, .d = (args)->d, .m = (args)->m, .n = (args)->n, .k = (args)->k, \
    .groups = (count), .lda = (args)->lda, .ldb = (args)->ldb, .ldc = (args)->ldc, .ldd = (args)->ldd,              \
    .batch_stride_a = (args)->batch_stride_a, .batch_stride_b = (args)->batch_stride_b,                             \
    .batch_stride_c = (args)->batch_stride_c, .batch_stride_d = (args)->batch_stride_d, .a_type = (args)->a_type,   \
    .d_type = (args)->d_type, .a_bytes = dtype_bytes((args)->a_type), .d_bytes = dtype_bytes((args)->d_type),       \
    .trans_a = (args)->trans_a, .trans_b = (args)->trans_b, .ragged = (how), .reads_ab = reads_ab(args),            \
    .reads_c = reads_c(args),                                                                                       \
  }

/* INVALID_ARGUMENT unless `device`, which is entered, can use what is read and written, each starts on its own
 * elements' size, and D is neither A nor B. */
libgemm_status check_operands(const struct operands *operands, const void *bias, const struct device *device);

/* Whether each group has a D of its own. */
bool owns_d(int32_t ragged);

/* Set strides that do not count to 0. */
void drop_unused_strides(struct operands *operands);

/* The same, and leading dimensions of single rows to the stride between them, or, where there is none, to their length
 * in whole pieces of 16 bytes. Not where `as_given`: then a call of one row has memory like one of more rows with the
 * same leading dimensions. The operands' m, n and k say how many rows are stored. */
void canonicalise(struct operands *operands, bool as_given);

/* What GUARD_ALIGN16 asks. A group may start anywhere in the dimension that is cut, so that must not be one along which
 * a matrix is contiguous: N, for D's sake; M in a stored [K][M]; K unless A is stored [K][M] and B [K][N]. */
bool is_aligned(const struct operands *operands);

/* Whether TMA can address A; B; D, whose rows end on 16 bytes, and C where it is read. */
bool tma_reads_a(const struct operands *operands);
bool tma_reads_b(const struct operands *operands);
bool tma_stores_d(const struct operands *operands);

/* Guard bits of the rows for groups that leave memory to TMA: GUARD_DESCRIPTOR, GUARD_DESCRIPTOR_AB, GUARD_ROWS,
 * GUARD_COLUMNS, GUARD_EQUAL. */
unsigned tma_guards(const struct operands *operands);

/* Begin a launch's arguments: everything 0 but what the matrices are. The maps of tensors are left as they are. */
void place_operands(const struct operands *operands, struct call *call);

/* Whether TMA can address a matrix: its strides are multiples of 16 bytes below 2^40 (CUDA driver API,
 * cuTensorMapEncodeTiled). Extents may be odd. */
static inline bool is_addressable(const void *pointer, int64_t ld, int bytes) {
  const int64_t limit = (int64_t)1 << 40;
  return (uint64_t)pointer % 16 == 0 && ld < limit && ld * bytes < limit && ld * bytes % 16 == 0;
}

#endif
