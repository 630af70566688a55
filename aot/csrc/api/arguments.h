/* arguments.h: what all operations ask of their argument structs, and the tables of pointer arrays. */
#ifndef LIBGEMM_API_ARGUMENTS_H
#define LIBGEMM_API_ARGUMENTS_H

#include "select/operands.h"
#include "select/problem.h"

/* Set a caller's struct of `size` bytes to these defaults, as far as it has them, and its first field to its size. */
void init_args(void *args, uint64_t size, const void *defaults, uint64_t bytes);

/* Copy a caller's struct of at least `oldest` bytes into ours: fields its older header lacks read as 0. */
libgemm_status read_args(const void *args, uint64_t oldest, void *out, uint64_t bytes, const char *type);

/* INVALID_ARGUMENT unless the words that say how operands are scaled go together; UNSUPPORTED where other types than
 * 8-bit ones have scales. */
struct scaling {
  int32_t a_type, scaling, precision;
  const void *a_scale, *b_scale;
};
libgemm_status check_scaling(const struct scaling *words);
#define CHECK_SCALING(args)                                                                                           \
  ((args)->scaling || (args)->a_scale || (args)->b_scale                                                              \
       ? check_scaling(                                                                                               \
             &(struct scaling){(args)->a_type, (args)->scaling, (args)->precision, (args)->a_scale, (args)->b_scale}) \
       : LIBGEMM_OK)

/* Whether each 128 of K has scales of its own. */
static inline bool is_by_blocks(int32_t scaling) { return scaling >= LIBGEMM_SCALING_1X128_128X128; }

/* Of GUARD_BLOCKS and GUARD_UNBLOCKED, the one that operands scaled so meet. */
unsigned scaling_guard(int32_t scaling);

/* Where scales are read, what a launch is told of them. Their fields have the same names in all structs. */
#define PLACE_SCALES(call, args)                                 \
  do {                                                           \
    (call)->scaling = (args)->scaling;                           \
    (call)->a_scale = (CUdeviceptr)(args)->a_scale;              \
    (call)->b_scale = (CUdeviceptr)(args)->b_scale;              \
    (call)->batch_stride_a_scale = (args)->batch_stride_a_scale; \
    (call)->batch_stride_b_scale = (args)->batch_stride_b_scale; \
    (call)->a_scale_stride_m = (args)->a_scale_stride_m;         \
    (call)->a_scale_stride_k = (args)->a_scale_stride_k;         \
    (call)->b_scale_stride_n = (args)->b_scale_stride_n;         \
    (call)->b_scale_stride_k = (args)->b_scale_stride_k;         \
  } while (0)

/* INVALID_ARGUMENT unless ld covers a stored row; `what` names the size it must cover. */
libgemm_status check_ld(const char *name, int64_t ld, int64_t length, const char *what);

/* INVALID_ARGUMENT unless the pointer is a multiple of `bytes`, a power of two. */
libgemm_status check_alignment(const char *name, CUdeviceptr pointer, uint64_t bytes);

/* That, of elements of so many bytes, and that `device`, which is entered, can use the memory. */
libgemm_status check_array(const char *name, const void *array, uint64_t bytes, const struct device *device);

/* The same of A's and B's scales, where they are read. */
libgemm_status check_scales(const void *a_scale, const void *b_scale, const struct device *device);

/* INVALID_ARGUMENT where two of rows x columns of scales that are written have one place. */
libgemm_status check_scale_strides(const char *row_name, int64_t rows, int64_t row_stride, const char *col_name,
                                   int64_t cols, int64_t col_stride);

/* INVALID_ARGUMENT unless a workspace that a call cannot go without has the bytes that `function` told. */
libgemm_status check_workspace(const void *workspace, uint64_t bytes, uint64_t needed, const char *function);

/* INVALID_ARGUMENT unless one that it can go without is none, or can be used. */
libgemm_status check_spare_workspace(const void *workspace, uint64_t bytes, const struct device *device);

/* INVALID_ARGUMENT unless every leading dimension that counts covers a stored row, C and D are in one place only with
 * equal strides, and no two matrices D share an element. Of operands as the caller gave them, with some D. */
libgemm_status check_strides(const struct operands *operands);

enum { TABLE_COUNT = 12 }; /* a b c d bias m n k lda ldb ldc ldd, each `groups` values of 8 bytes */

/* INVALID_ARGUMENT where a table that is read is NULL, or a size or stride in a host table is not allowed. */
libgemm_status check_tables(const libgemm_grouped_gemm_args *a);

/* True when it is seen that no group has an element of D. */
bool tables_are_empty(const libgemm_grouped_gemm_args *a);

/* What GUARD_ALIGN16 asks, of every group: seen in host tables, the caller's word for device tables. */
bool tables_are_aligned(const libgemm_grouped_gemm_args *a);

/* Whether descriptors can be made of every A and B: strides of 2^40 bytes are too long. Of device tables the caller's
 * word that they are aligned says it. */
bool tables_are_addressable(const libgemm_grouped_gemm_args *a);

/* Of host tables: how many groups have some D, and their sizes on average; all at least 1. */
void average_sizes(const libgemm_grouped_gemm_args *a, struct problem *p);

/* Bytes of workspace that host tables take; blocks have their scratch memory behind them. */
uint64_t table_workspace(const libgemm_grouped_gemm_args *a);
CUdeviceptr scratch_place(const libgemm_grouped_gemm_args *a);

/* The GPU that runs the call. */
libgemm_status tables_device(const libgemm_grouped_gemm_args *a, const struct device **device);

/* Check, before anything is queued, every pointer the host can see: to tables, or in them and to the workspace. */
libgemm_status check_table_pointers(const libgemm_grouped_gemm_args *a, const struct device *device);

/* Point the call at the tables; those in host memory are copied to the workspace first, in one transfer. */
libgemm_status place_tables(const libgemm_grouped_gemm_args *a, const struct device *device, struct call *call);

#endif
