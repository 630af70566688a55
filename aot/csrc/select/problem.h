/* problem.h: the question: what is to be computed, on what memory, on which GPU; and the guards that rows have on it.
 */
#ifndef LIBGEMM_SELECT_PROBLEM_H
#define LIBGEMM_SELECT_PROBLEM_H

#include "launch/call.h"

enum op {
  OP_GEMM,
  OP_GROUPED_GEMM,
  OP_GROUPED_MM,
  OP_ALIGN,
  OP_GEMM_SUM,
  OP_MOE_MM,
  OP_MOE_ROUTE,
  OP_MOE_SUM,
  OP_MOE_GATE,
  OP_MOE_GATE_GRAD,
  OP_MOE_CAST,
  OP_MOE_SPREAD,
  OP_CAST_TENSOR,
  OP_CAST_ROWS,
  OP_CAST_1X128,
  OP_CAST_128X128,
  OP_CAST_TRANSPOSE,
  OP_CAST_TRANSPOSE_ROWS,
  OP_CAST_AMAX,
  OP_COUNT
};
extern const char *const op_names[OP_COUNT];

/* What a row needs of a problem beyond its types and layout: kernels/table/spec.py says each in words. */
enum guard {
  GUARD_ALIGN16 = 1,
  GUARD_LINEAR = 2,
  GUARD_DESCRIPTOR = 4,
  GUARD_DESCRIPTOR_AB = 8,
  GUARD_WORKSPACE = 16,
  GUARD_CLUSTER = 32,
  GUARD_ROWS = 64,
  GUARD_EQUAL = 128,
  GUARD_SCRATCH = 256,
  GUARD_GATED = 512, /* rows with it serve no other problem, and those without it none such */
  GUARD_IN_ORDER = 1024,
  GUARD_SWISH = 2048,
  GUARD_HALVED = 4096,
  GUARD_PAIRED = 8192,
  GUARD_BLOCKS = 16384,
  GUARD_UNBLOCKED = 32768,
  GUARD_COLUMNS = 65536,
  GUARD_ONE_TOKEN = 131072,
  GUARD_WHOLE = 262144, /* no C, rows a multiple of 8; refused where a group has fewer than the row's tile */
  GUARD_COUNTED = 524288
};

/* What is true of the memory of A and B, each in one piece: what a copy to aligned rows, or a transposed one, could do.
 */
enum memory {
  READS_AB = 1,
  MISALIGNED_A = 2, /* TMA cannot address A */
  MISALIGNED_B = 4
};

/* What is asked of the row. */
enum wish {
  WANT_BATCH_INVARIANT = 1, /* by the caller */
  WANT_EQUAL = 2,           /* GUARD_EQUAL: a batch that is served as groups */
  WANT_E5M2_A = 4,          /* A is E5M2; a_type is E4M3 then, which B is */
  WANT_E5M2_B = 8           /* the other way round */
};

struct problem {
  enum op op;
  int32_t a_type, d_type, precision, trans_a, trans_b, activation;
  int32_t device;             /* ordinal, where a call is made; 0 to explain one */
  int32_t a_stride, b_stride; /* stride_class of A's and B's leading dimension */
  int64_t m, n, k;
  int64_t whole_n, whole_k;                      /* N and K as A and B hold them: of all groups, where ends cut them */
  int64_t count;                                 /* products (batch), or groups */
  int64_t rows;                                  /* expected rows of one product */
  uint64_t workspace_bytes;                      /* what the caller gives; 0 without a workspace */
  int multiprocessors, shared_bytes, capability; /* of the GPU: state_gpu */
  unsigned met, memory, wants; /* guard bits whose conditions on memory the operands meet; enum memory; enum wish */
  unsigned met_by_copies;      /* guard bits that are met too once A and B are copied */
  int32_t ragged;              /* libgemm_ragged, of groups */
  const char *variant;
};

/* Begin a problem with what the argument structs of all operations state alike; the rest is 0. */
#define STATE_PROBLEM(problem, operation, args)                                           \
  do {                                                                                    \
    clear((problem), sizeof *(problem));                                                  \
    (problem)->op = (operation);                                                          \
    (problem)->a_type = (args)->a_type, (problem)->d_type = (args)->d_type;               \
    (problem)->precision = (args)->precision, (problem)->activation = (args)->activation; \
    (problem)->trans_a = (args)->trans_a, (problem)->trans_b = (args)->trans_b;           \
    (problem)->variant = (args)->variant;                                                 \
  } while (0)

/* Where A and B may be of two types: what the problem says of them. INVALID_ARGUMENT unless b_type is a type or 0;
 * UNSUPPORTED where no variant multiplies the two. */
libgemm_status state_two_types(struct problem *problem, int32_t b_type);
static inline libgemm_status state_types(struct problem *problem, int32_t b_type) {
  bool one = (b_type == 0 || b_type == problem->a_type) && problem->a_type != LIBGEMM_E5M2;
  return one ? LIBGEMM_OK : state_two_types(problem, b_type);
}

/* What a launch is told of them. */
#define PLACE_TYPES(call, args)                                        \
  do {                                                                 \
    (call)->a_type = (args)->a_type;                                   \
    (call)->b_type = (args)->b_type ? (args)->b_type : (args)->a_type; \
  } while (0)

/* And what those state that describe matrices: their sizes. */
#define STATE_MATRICES(problem, args)                                                             \
  do {                                                                                            \
    (problem)->m = (problem)->rows = (args)->m;                                                   \
    (problem)->n = (problem)->whole_n = (args)->n, (problem)->k = (problem)->whole_k = (args)->k; \
  } while (0)

/* How A and B are strided, of a struct that has their leading dimensions. */
#define STATE_STRIDES(problem, operands)                                                  \
  do {                                                                                    \
    (problem)->a_stride = stride_class((operands)->lda, dtype_bytes((operands)->a_type)); \
    (problem)->b_stride = stride_class((operands)->ldb, dtype_bytes((operands)->a_type)); \
  } while (0)

/* And the GPU that it is to run on. */
static inline void state_gpu(struct problem *problem, const struct gpu *gpu) {
  problem->multiprocessors = gpu->multiprocessors;
  problem->shared_bytes = gpu->shared_bytes;
  problem->capability = gpu->capability;
}

/* INVALID_ARGUMENT unless the value lies in `from` to `most`; names are those of the C structs. */
libgemm_status out_of_range(const char *name, int64_t value, int64_t from, int64_t most);
static inline libgemm_status check_range(const char *name, int64_t value, int64_t from, int64_t most) {
  return value >= from && value <= most ? LIBGEMM_OK : out_of_range(name, value, from, most);
}

/* Whether a product may be stored so. */
static inline bool is_output_type(int32_t type) { return type >= LIBGEMM_F16 && type <= LIBGEMM_F32; }

/* Check types, flags and the sizes' range. */
libgemm_status check_problem(const struct problem *problem);

#endif
