/* problem.h: the question: what is to be computed, on what memory; the guards that rows have on it; and who answers. */
#ifndef LIBGEMM_SELECT_PROBLEM_H
#define LIBGEMM_SELECT_PROBLEM_H

#include "launch/call.h"

enum op { OP_GEMM, OP_GROUPED_GEMM, OP_GROUPED_MM, OP_ALIGN, OP_COUNT };
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
  GUARD_WHOLE_K = 512
};

/* What is true of one product's memory, whatever its rows need: what a copy to aligned rows could do for it. */
enum memory {
  READS_AB = 1,
  MISALIGNED_A = 2, /* TMA cannot address A */
  MISALIGNED_B = 4,
  TMA_CD = 8 /* it can address C and D */
};

/* What is asked of the row. */
enum wish {
  WANT_BATCH_INVARIANT = 1, /* by the caller */
  WANT_EQUAL = 2            /* GUARD_EQUAL: a batch that is served as groups */
};

/* Why a row may not run, beside guard bits. */
enum refusal { NOT_BATCH_INVARIANT = 1 << 16, NOT_EQUAL = 1 << 17, TOO_LARGE = 1 << 18 };

struct problem {
  enum op op;
  int32_t a_type, d_type, precision, trans_a, trans_b, activation;
  int32_t device;             /* ordinal, where a call is made; 0 to explain one */
  int32_t a_stride, b_stride; /* stride_class of A's and B's leading dimension */
  int64_t m, n, k;
  int64_t count;                                 /* products (batch), or groups */
  int64_t rows;                                  /* expected rows of one product */
  uint64_t workspace_bytes;                      /* what the caller gives; 0 without a workspace */
  int multiprocessors, shared_bytes, capability; /* of the GPU: set by choose */
  unsigned met, memory, wants; /* guard bits whose conditions on memory the operands meet; enum memory; enum wish */
  const char *variant;
  const struct row *copier; /* set by choose: this row must copy A or B to aligned rows first */
  double copy_us;           /* and takes about that long */
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

/* And what those state that describe matrices: their sizes, and how A and B are strided. */
#define STATE_MATRICES(problem, args)                                                               \
  do {                                                                                              \
    (problem)->m = (problem)->rows = (args)->m, (problem)->n = (args)->n, (problem)->k = (args)->k; \
    (problem)->a_stride = stride_class((args)->lda, dtype_bytes((args)->a_type));                   \
    (problem)->b_stride = stride_class((args)->ldb, dtype_bytes((args)->a_type));                   \
  } while (0)

/* Check types, flags and the sizes' range; names are those of the C structs. */
libgemm_status check_problem(const struct problem *problem);

/* Best row for the problem on a GPU. Where that is one for aligned operands behind a
 * copier, or a batch is served as groups, *problem becomes what that row sees. */
libgemm_status choose(struct problem *problem, const struct gpu *gpu, const struct row **out);

/* The rows that compute a problem at all: rows[*first] to rows[*end]. */
void bucket_of(const struct problem *problem, const struct target *target, int *first, int *end);

/* Among these rows, those whose every guard bit is in `ignored` or met: the one of least time, or NULL. */
const struct row *fastest(const struct problem *problem, int first, int end, unsigned ignored, float *us);

/* The best row behind a copier, if that is faster than `us` and the workspace holds the copies: then *problem is what
 * that row sees. */
void aligned_first(struct problem *problem, const struct target *target, float us, const struct row **out);

/* Fill a choice for explain; `row` NULL means nothing runs. */
libgemm_status describe(const struct problem *problem, const struct target *target, const struct row *row,
                        libgemm_choice *choice);

#endif
