/* clang-format off */
/* libgemm.h: the C interface of libgemm, and its manual.
 *
 * libgemm multiplies matrices on NVIDIA GPUs with kernels compiled ahead of time. The library holds the machine code of
 * every kernel; the computer it runs on needs glibc >= 2.17 and the NVIDIA driver (libcuda.so.1), nothing else. The
 * driver is opened at the first call that needs it, so loading the library needs no GPU.
 *
 * Conventions
 *   Equation     D = act(alpha * op(A) op(B) + beta * C + bias), accumulated in float32, in one kernel launch. With a
 *                workspace one may copy operands ahead of it, and one add up what many blocks left behind it.
 *   Matrices     row-major. op(A) is M x K, op(B) is K x N, C and D are M x N. A leading dimension (lda, ...) is the
 *                distance in ELEMENTS between two rows as stored, and at least the length of a stored row:
 *                  trans_a = 0: A is stored [M][K], lda >= K        trans_a = 1: A is stored [K][M], lda >= M
 *                  trans_b = 0: B is stored [K][N], ldb >= N        trans_b = 1: B is stored [N][K], ldb >= K
 *                  C and D are stored [M][N], ldc >= N, ldd >= N.
 *                A leading dimension of an operand that is not read, or has no rows, is not checked.
 *   Sizes        M, N, K are 0 to LIBGEMM_MAX_SIZE. Element offsets are 64-bit: a matrix may pass 2^31 elements. A call
 *                that would need more than 2^31 - 1 blocks is UNSUPPORTED.
 *   Types        A and B have one type (8-bit ones may differ). C and bias have D's, unless D has 8 bits:
 *                  a_type LIBGEMM_F16:  d_type LIBGEMM_F16 or LIBGEMM_F32, precision LIBGEMM_EXACT
 *                  a_type LIBGEMM_BF16: d_type LIBGEMM_BF16 or LIBGEMM_F32, precision LIBGEMM_EXACT
 *                  a_type LIBGEMM_F32:  d_type LIBGEMM_F32, precision LIBGEMM_TF32, _TF32X3 or _IEEE (no default)
 *                  a_type LIBGEMM_E4M3: d_type LIBGEMM_BF16, _F16 or _F32, precision LIBGEMM_EXACT or LIBGEMM_FAST;
 *                                       of libgemm_gemm and libgemm_grouped_mm, with scales or without. There A or B,
 *                                       not both, may be LIBGEMM_E5M2 (b_type); Hopper's fast kernels take it into
 *                                       BF16 or F32, without activation. Of libgemm_gemm D may be LIBGEMM_E4M3 too,
 *                                       with a scale of its own (d_scale), a bias in BF16 and no C
 *   Alignment    none is required but the element's own: a pointer to float32 is a multiple of 4, to 16-bit types of 2,
 *                to group ends of their 4 or 8, to tables of 8. Operands whose pointers, leading dimensions and
 *                contiguous extents are multiples of 16 bytes run faster.
 *   Pointers     device memory of one GPU, or memory that GPU can access: page-locked, managed, or another GPU's with
 *                peer access enabled. The GPU is the one that owns D.
 *
 * Rules at the edges (reference BLAS dgemm unless another source is named)
 *   M = 0, N = 0 or batch = 0   success; nothing is read, written or launched; pointers may be NULL.
 *   K = 0 or alpha = 0          A and B are not read, so NaN in them does not show: D = act(beta * C + bias).
 *   beta = 0                    C is not read: NaN in it does not show; c may be NULL.
 *   Inf, NaN in A or B          propagate: Inf * 0 is NaN (torch.mm; reference dgemm may skip zeros).
 *   relu(NaN)                   NaN (torch; cuBLASLt gives 0).
 *   C and D the same matrix     allowed when c == d and ldc == ldd (and batch strides are equal): each element is read
 *                               once before it is written. d == a or d == b, where they are read, is refused; any
 *                               other overlap of D with an input gives undefined numbers.
 *
 * Threads, streams, graphs
 *   Every function may be called from any thread at any time. Work is queued on args->stream and nothing waits for it,
 *   so operands, tables and workspace must live until the stream has passed the call. The first use of a kernel loads
 *   it, which CUDA forbids inside stream capture: make the same call once before, or libgemm_preload. A launch
 *   allocates no device memory and runs no host callback. A captured call reads its group tables at each replay. A
 *   thread keeps what it found out for its last calls, in up to 1.8 MB of host memory that go when it ends.
 *   A call runs in the thread's current context where that is one of D's GPU, else in that GPU's primary context (the
 *   CUDA runtime's), which is retained, and current for the call alone. The stream is to be of that context.
 *   After fork() the child cannot use CUDA (nor, then, libgemm) if the parent already had.
 *
 * Determinism
 *   The same call on the same library and the same GPU model gives the same bits, run after run. Another library build
 *   may give other bits: do not compare results with stored ones bit for bit.
 *
 * Errors
 *   Each function that can fail returns a libgemm_status; libgemm_last_error() then has a sentence of this thread's
 *   last failure that names what was given and what is allowed. Nothing is launched by a call that fails (where the
 *   driver refuses one launch of several, those before it have written the workspace alone), nothing in the library is
 *   left half-done, and the next call works. Test the status, not the sentence.
 *
 * ABI
 *   Argument structs begin with their own size in bytes. Fields are only ever added at the end, so a program keeps
 *   working with later libraries of the same LIBGEMM_ABI. Enum values never change meaning.
 */
#ifndef LIBGEMM_H
#define LIBGEMM_H

#include <stddef.h>
#include <stdint.h>

#define LIBGEMM_VERSION "0.1.0"
#define LIBGEMM_ABI 1
#define LIBGEMM_MAX_SIZE 2147483391 /* 2^31 - 1 less one tile of the largest size */
#define LIBGEMM_MAX_GROUPS 65535

#if defined(__GNUC__)
#pragma GCC visibility push(default) /* the library hides all else */
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What follows, up to the end mark, is also read by the Python package's cffi: plain declarations only. */
/* cdef: begin */

/* Same type as CUstream and cudaStream_t (both point to this struct), so either passes without a cast. NULL is the
 * legacy default stream, however the program was compiled; cudaStreamPerThread is that of the thread. */
typedef struct CUstream_st *libgemm_stream;

typedef enum libgemm_status {
  LIBGEMM_OK = 0,
  LIBGEMM_INVALID_ARGUMENT = 1,   /* an argument breaks its contract: wrong value, NULL, host pointer, another GPU's
                                     memory without peer access */
  LIBGEMM_UNSUPPORTED = 2,        /* a legal request that no kernel of this library serves */
  LIBGEMM_NO_DRIVER = 3,          /* libcuda.so.1 cannot be opened, lacks a function, or sees no GPU */
  LIBGEMM_DRIVER_TOO_OLD = 4,     /* the driver is older than the kernels for this GPU need */
  LIBGEMM_UNSUPPORTED_DEVICE = 5, /* no kernels in this library that run on this GPU's compute capability */
  LIBGEMM_DRIVER_ERROR = 6,       /* a driver call failed; the sentence has its name, code and text */
  LIBGEMM_OUT_OF_MEMORY = 7       /* host or device memory ran out while a kernel was loaded */
} libgemm_status;

/* E4M3: 8 bits, of which four are the exponent and three the mantissa, largest number 448, one NaN and no infinity.
 * E5M2: five and two, largest number 57344, with infinities and NaNs: the upper byte of a float16; what gradients are
 * kept in. (OCP 8-bit floating point specification; torch.float8_e4m3fn and float8_e5m2.) */
typedef enum libgemm_dtype {
  LIBGEMM_F16 = 1,
  LIBGEMM_BF16 = 2,
  LIBGEMM_F32 = 3,
  LIBGEMM_E4M3 = 4,
  LIBGEMM_E5M2 = 5
} libgemm_dtype;

/* How operands are multiplied and added up. EXACT: 16-bit and 8-bit operands, whose products float32 holds exactly.
 * TF32: the low 13 mantissa bits of each float32 operand are dropped (relative error below 2^-10). TF32X3: three TF32
 * products, close to float32. IEEE: float32 fused multiply-adds.
 * FAST: 8-bit operands. Hopper's tensor cores add up 8-bit products with about 14 bits of mantissa. With EXACT, 128 of
 * K are added up so and those sums in float32; with FAST all of K is (torch: use_fast_accum), which is faster for large
 * products and loses more the longer K is. On an H200, 1 - 2 <d, x> / (<d, d> + <x, x>) of D beside the exact X was
 * below 1e-3 for normal numbers up to K = 32768 with either; for numbers of one sign, whose sums only grow, with FAST
 * below 3e-3 at K = 4096 and below 1e-1 at 32768. Kernels that have no such way of their own take EXACT's. */
typedef enum libgemm_precision {
  LIBGEMM_EXACT = 0,
  LIBGEMM_TF32 = 1,
  LIBGEMM_TF32X3 = 2,
  LIBGEMM_IEEE = 3,
  LIBGEMM_FAST = 4
} libgemm_precision;

/* How 8-bit operands are scaled: op(A) op(B) is multiplied by scales in device memory, float32, that the kernel reads.
 * TENSOR: one number for A, one for B. ROW: a_scale has one for each row of op(A), M of them one after the other, and
 * b_scale one for each column of op(B), N of them. A kernel may multiply them and alpha with one another before the sum,
 * in float32 and in any order: where such a product overflows or underflows, D is what an infinite or zero factor makes.
 * Those of blocks are named by A's and B's: 1X128 is a scale for each 128 of K of one row of op(A), or column of op(B),
 * 128X128 one for each 128 of K of 128 rows, or columns; the last of either may be short. They stand anywhere:
 *   op(A)[i][k] has a_scale[i' * a_scale_stride_m + k / 128 * a_scale_stride_k], i' = i (1X128) or i / 128 (128X128)
 *   op(B)[k][j] has b_scale[j' * b_scale_stride_n + k / 128 * b_scale_stride_k]
 * Each 128 of K is multiplied by its scales and added up in float32: precision is EXACT. On Hopper 1X128_128X128
 * (activations and weights of DeepSeek-V3) has fast kernels: of libgemm_gemm, and of libgemm_grouped_mm where ends cut
 * the rows, A is not transposed and B is, D is bfloat16 and there is no activation. All else with scales of blocks runs
 * on the reference set. The fast ones are fastest where a_scale_stride_m is 1 and a_scale_stride_k a multiple of 4: A's
 * scales are then read by whole 16 bytes, and up to 12 bytes beside them are too, on which nothing depends.
 * Scales may be 0, infinite or NaN: they are factors like others. Where A and B are not read, scales are not read
 * either. Other operands than 8-bit ones take none (UNSUPPORTED). */
typedef enum libgemm_scaling {
  LIBGEMM_SCALING_NONE = 0,
  LIBGEMM_SCALING_TENSOR = 1,
  LIBGEMM_SCALING_ROW = 2,
  LIBGEMM_SCALING_1X128_128X128 = 3,
  LIBGEMM_SCALING_1X128_1X128 = 4,
  LIBGEMM_SCALING_128X128_1X128 = 5
} libgemm_scaling;

/* Applied to the float32 sum before it is rounded to D. GELU is x * normal CDF(x) (torch's approximate='none'), with
 * erf after Abramowitz and Stegun 7.1.26, absolute error below 1.5e-7; SILU is x / (1 + exp(-x)). */
typedef enum libgemm_activation {
  LIBGEMM_ACTIVATION_NONE = 0,
  LIBGEMM_RELU = 1,
  LIBGEMM_GELU = 2,
  LIBGEMM_SILU = 3
} libgemm_activation;

/* How group ends stand in device memory. ENDS: `groups` values, end[g] is one past group g's last row (column, or place
 * in K: libgemm_ragged), group 0 starts at 0 (torch's `offs`). OFFSETS: groups + 1 values, a leading 0, then the same
 * ends. */
typedef enum libgemm_offs_format {
  LIBGEMM_ENDS_I32 = 1,
  LIBGEMM_ENDS_I64 = 2,
  LIBGEMM_OFFSETS_I32 = 3,
  LIBGEMM_OFFSETS_I64 = 4
} libgemm_offs_format;

/* Which dimension the group ends of libgemm_grouped_mm cut; NONE: there are no ends, groups are a batch. */
typedef enum libgemm_ragged {
  LIBGEMM_RAGGED_M = 0,
  LIBGEMM_RAGGED_N = 1,
  LIBGEMM_RAGGED_K = 2,
  LIBGEMM_RAGGED_NONE = 3
} libgemm_ragged;

/* ---- Dense GEMM ------------------------------------------------------------------------------------------------- */

/* Start from libgemm_gemm_args_init, then set fields. */
typedef struct libgemm_gemm_args {
  uint64_t size;      /* sizeof(libgemm_gemm_args) */
  int64_t m, n, k;
  int64_t batch;      /* number of products, 1 by default; matrix i starts batch_stride_* * i elements further on */
  const void *a, *b, *c;
  void *d;
  const void *bias;   /* N elements of D's type, added to every row; NULL for none */
  int64_t lda, ldb, ldc, ldd;
  int64_t batch_stride_a, batch_stride_b, batch_stride_c, batch_stride_d; /* elements; 0 shares A, B or C */
  int64_t batch_stride_bias;                                              /* elements; 0 shares the bias */
  float alpha, beta;  /* 1 and 0 by default */
  int32_t a_type, d_type;         /* libgemm_dtype of A and B, and of C, D and bias */
  int32_t trans_a, trans_b;       /* 0 or 1 */
  int32_t precision;              /* libgemm_precision */
  int32_t activation;             /* libgemm_activation */
  void *workspace;                /* NULL, or device memory, 16-byte aligned: see libgemm_gemm_workspace */
  uint64_t workspace_bytes;
  const char *variant;            /* NULL: the library chooses; else the name of the only variant to use */
  libgemm_stream stream;
  int32_t batch_invariant;        /* 1: a row's bits depend on neither M nor the other rows; see below. 0 by default */
  int32_t b_type;                 /* 0: a_type. Else a_type, or of LIBGEMM_E4M3 and LIBGEMM_E5M2 the other one */
  int32_t scaling;                /* libgemm_scaling: any with 8-bit operands, else NONE (0) */
  int32_t reserved;               /* 0 */
  const void *a_scale, *b_scale;  /* float32, both; NULL with NONE */
  int64_t batch_stride_a_scale, batch_stride_b_scale; /* elements from one product's scales to the next; 0: shared */
  int64_t a_scale_stride_m, a_scale_stride_k; /* elements, of scales of blocks: _m, _n to that of the next row of op(A), */
  int64_t b_scale_stride_n, b_scale_stride_k; /* column of op(B), or 128 of them; _k to the next 128 of K's; 0: shared */
  const void *d_scale;            /* NULL, or of a D in LIBGEMM_E4M3 one float32: see below */
  float *d_amax;                  /* NULL, or of a D in LIBGEMM_E4M3 M of them for each product: see below */
} libgemm_gemm_args;

/* Set defaults: everything 0 but size (to `size`, pass sizeof(libgemm_gemm_args)), batch = 1, alpha = 1. a_type and
 * d_type have no default. `args` must not be NULL, here as in every function of this kind. */
void libgemm_gemm_args_init(libgemm_gemm_args *args, uint64_t size);

/* Queue D = act(alpha * op(A) op(B) + beta * C + bias).
 *
 * A batch whose matrices stand whole stored rows apart (batch strides are multiples of leading dimensions; 0 for a
 * shared A or B) may be served by variants of op "grouped_mm", which are faster; `variant` may name these for it,
 * but for those whose names end in "_whole", which are for libgemm_grouped_mm alone. Of 8-bit operands they take K
 * contiguous in A and B, D in BF16 or F32, no activation and no scales of blocks.
 *
 * With d_type LIBGEMM_E4M3, of 8-bit operands, D is what it would be otherwise, in float32, divided by d_scale (times
 * its reciprocal), as libgemm_cast casts with a scale that is given: rounded to the nearest, of two as near to the even
 * one, what lies beyond 448 becomes that, Inf and NaN become NaN. d_scale is one number in device memory for all of a
 * batch, what the next product takes as a_scale or b_scale; NULL stands for 1. beta must be 0 (UNSUPPORTED); bias is in LIBGEMM_BF16. Hopper's
 * fast kernels serve scales of tensors and rows, or none. d_amax, if not NULL, is raised to what each row of D comes to:
 * d_amax[i * m + r] becomes the largest of itself and of all magnitudes in row r of product i in float32, before they are
 * divided by d_scale; Inf and NaN count for nothing, as for libgemm_cast's scales. It is not cleared: set it to 0
 * before the first of the calls that it is for (a number below 0 in it, or NaN, is undefined). A scale made of it, amax
 * over 448, is then one that a later D would fit, as delayed scaling takes it.
 *
 * With batch_invariant = 1 only variants are chosen that add the products of K in one order, one after the other: the
 * bits of a row of D are then the same for any M >= 1 and whatever the other rows hold. Shapes with few tiles, whose K
 * would be shared between blocks, run slower; float32 inputs take the one variant for any memory, 8-bit batches the
 * reference set. That holds from one M to another where leading dimensions are the same. */
libgemm_status libgemm_gemm(const libgemm_gemm_args *args);

/* Bytes of workspace with which this call runs best on the GPU that owns d (where d is NULL: the current GPU); 0 for
 * most, and on failure. It holds the sums of blocks that share K (up to 26 MB on 132 multiprocessors), and aligned copies
 * of A and B where their addresses or leading dimensions are no multiples of 16 bytes, where they are float32, taken as
 * tf32, or 8-bit, and K is not contiguous, or of a transposed 16-bit A of up to 1024 rows where that is expected to pay.
 * With less, or none, the call runs too, by a kernel that needs none. The memory may hold anything, is
 * written, and must not be shared with a call that may run at the same time. The other pointers in args are used for
 * their alignment alone. */
libgemm_status libgemm_gemm_workspace(const libgemm_gemm_args *args, uint64_t *bytes);

/* ---- Grouped GEMM over arrays of pointers ----------------------------------------------------------------------- */

/* Group g computes D_g = act(alpha * op(A_g) op(B_g) + beta * C_g + bias_g) with its own sizes and leading dimensions.
 * Every table has `groups` entries. Tables are device memory by default, read when the kernel runs: no host
 * synchronisation. Groups may be empty (m, n or k of 0); a negative size in a device table counts as 0. Pointers and
 * sizes in device tables cannot be checked: they must be right. */
typedef struct libgemm_grouped_gemm_args {
  uint64_t size;      /* sizeof(libgemm_grouped_gemm_args) */
  int64_t groups;     /* 0 to LIBGEMM_MAX_GROUPS */
  const void *const *a, *const *b, *const *c; /* tables of pointers to device matrices; c may be NULL when beta is 0 */
  void *const *d;
  const void *const *bias;                    /* NULL, or a table of pointers to n_g elements (none of them NULL) */
  const int64_t *m, *n, *k;
  const int64_t *lda, *ldb, *ldc, *ldd;       /* ldc may be NULL when beta is 0 */
  float alpha, beta;
  int32_t a_type, d_type, trans_a, trans_b, precision, activation;
  int32_t host_tables; /* 1: the tables are host memory; they are checked, then copied to the workspace. Not allowed
                          while the stream is captured, since a replay would read host memory that may be gone. */
  int32_t device;      /* GPU that runs the call; -1 (default): the one that owns table d, or, with host tables, d[0] */
  void *workspace;     /* device memory, 16-byte aligned. Host tables need 96 bytes for each group; with
                          libgemm_grouped_gemm_workspace bytes large groups run faster. NULL when that is 0. In use
                          until the call has run: calls that may run at the same time need one each */
  uint64_t workspace_bytes;
  const char *variant;
  libgemm_stream stream;
  int32_t aligned;     /* 1: the caller vouches that device tables are aligned; see below. 0 by default */
  int32_t reserved;    /* 0 */
  int64_t expected_m, expected_n, expected_k; /* sizes of device tables' groups on average, as far as the host knows
                          them: 0 (default) where it does not, else 1 to LIBGEMM_MAX_SIZE. For speed alone */
  int32_t b_type;  /* 0: a_type. Another type than a_type is refused: no variant has pointers to two types */
  int32_t scaling; /* libgemm_scaling: all but NONE (0) is refused, no variant takes scales yet */
  const void *a_scale, *b_scale; /* NULL with NONE; else tables of pointers */
} libgemm_grouped_gemm_args;

/* Set defaults: everything 0 but size, alpha = 1, device = -1. */
void libgemm_grouped_gemm_args_init(libgemm_grouped_gemm_args *args, uint64_t size);

/* Queue all groups.
 *
 * Aligned groups may run faster. Tables are aligned when in every group with some D (m and n above 0)
 *   - the pointers in a, b and d, and in c where beta is not 0, are multiples of 16 bytes; and
 *   - n, k, lda, ldb and ldd, ldc where beta is not 0, and m where trans_a is 1 are multiples of what 16 bytes hold of
 *     a_type: of 8 for 16-bit types, also with a float32 D, of 4 for float32.
 * Where A and B are not read (alpha or the group's k is 0), a, b, k, lda, ldb and m do not count. bias never does.
 * For device tables also: lda and ldb are below 2^40 bytes.
 * In host tables the library sees that by itself, and `aligned` has no effect. Of device tables aligned = 1 says it.
 * Like the pointers in them that cannot be checked: said falsely, numbers are wrong or the kernel faults.
 *
 * Large aligned groups run faster in large tiles. In host tables the library sees the sizes, and expected_* are checked
 * but have no effect. Of device tables expected_m, expected_n and expected_k, all three, say what they are about; without them
 * groups are taken to be small. A guess that is wrong costs time alone: results are right with any. */
libgemm_status libgemm_grouped_gemm(const libgemm_grouped_gemm_args *args);

/* Bytes of workspace with which this call runs best, on the GPU that would run it: those of its host tables, 96 for each
 * group, without which it does not run, and those of large tiles. It asks for all that the call does but the workspace,
 * and fails as the call itself would. */
libgemm_status libgemm_grouped_gemm_workspace(const libgemm_grouped_gemm_args *args, uint64_t *bytes);

/* ---- Grouped GEMM over packed rows, columns or K ---------------------------------------------------------------- */

/* Group ends cut one dimension: group g has s to e - 1 of it, where e is the end of g and s the end of g - 1 (0 for the
 * first). Operands that have this dimension are packed, all groups in one matrix; of the others group g has its own,
 * batch_stride_* * g elements further on (X_g below). Batch strides of packed operands are not used.
 *
 *   ragged    group g computes                                                                packed
 *   M (0)     D[s:e]    = act(alpha * op(A)[s:e] op(B_g)        + beta * C[s:e]    + bias_g)  A, C, D
 *   N (1)     D[:, s:e] = act(alpha * op(A_g) op(B)[:, s:e]     + beta * C[:, s:e] + bias_g)  B, C, D
 *   K (2)     D_g       = act(alpha * op(A)[:, s:e] op(B)[s:e]  + beta * C_g       + bias_g)  A, B
 *   NONE (3)  D_g       = act(alpha * op(A_g) op(B_g)           + beta * C_g       + bias_g)  none: a batch, no ends
 *
 * m, n and k are sizes of the matrices as they stand, so the one that is cut counts all groups together. Row g of bias
 * has an element for each of the N columns of D, also where those are cut.
 * The ends are read on the device when the kernel runs. Groups may be empty. Of K, an empty group adds nothing and its
 * D_g is act(beta * C_g + bias_g), 0 without either: every D_g is written. Ends are clamped to [end of g - 1, size] on
 * the device, where size is m, n or k and the end of g - 1 is clamped already: a table that falls or runs past it gives
 * groups other rows than meant, but each row (column, place in K) to one group at most, and no access outside the
 * buffers.
 * With 8-bit operands and ends that cut K, Hopper's kernels take A and B contiguous along K. They read them fastest
 * where a, b, lda and ldb are multiples of 32: with a D in BF16 and no C, groups of 1,000 of K and more take 0.7 to 0.8
 * of their time then.
 * Rows (M) or columns (N) of D past the last end are left as they were, or set to 0 with zero_tail; without groups that
 * is all of D. K past the last end is not read.
 * With shared_b (M only) every group uses the one B, so the ends do not matter: the call is one dense GEMM over the
 * packed rows, and rows past the last end are computed too. */
typedef struct libgemm_grouped_mm_args {
  uint64_t size;      /* sizeof(libgemm_grouped_mm_args) */
  int64_t m, n, k;    /* the one that `ragged` names: all groups together */
  int64_t groups;     /* 0 to LIBGEMM_MAX_GROUPS; with 0 nothing is done, but for zero_tail */
  const void *a, *b, *c;
  void *d;
  const void *bias;   /* NULL, or row g has N elements of D's type at bias + g * batch_stride_bias */
  const void *offs;   /* device memory, as offs_format says; may be NULL, and is not read, with LIBGEMM_RAGGED_NONE,
                         with shared_b, or without groups */
  int64_t lda, ldb, ldc, ldd;
  int64_t batch_stride_b, batch_stride_bias; /* elements between groups; 0 shares B, or the bias */
  float alpha, beta;
  int32_t a_type, d_type, trans_a, trans_b, precision, activation;
  int32_t offs_format; /* libgemm_offs_format */
  int32_t shared_b;    /* 1: one B (and one bias) for all groups; batch_stride_b and batch_stride_bias are not used */
  void *workspace;    /* NULL, or device memory, 16-byte aligned: see libgemm_grouped_mm_workspace */
  uint64_t workspace_bytes;
  const char *variant;
  libgemm_stream stream;
  int64_t batch_stride_a, batch_stride_c, batch_stride_d; /* elements between groups; 0 shares A or C */
  int32_t ragged;    /* libgemm_ragged */
  int32_t zero_tail; /* 1: with M or N, set what is past the last end to 0: no bias, no activation, C is not read. Not
                        with shared_b. With K and NONE, where D has no tail: 0 or 1, without effect */
  int32_t b_type;  /* 0: a_type. Else a_type, or of LIBGEMM_E4M3 and LIBGEMM_E5M2 the other one */
  int32_t scaling; /* libgemm_scaling: any with 8-bit operands, else NONE (0); with K none of blocks */
  const void *a_scale, *b_scale; /* float32, both; NULL with NONE. As libgemm_scaling says, of each group; of an A or B
                                    that is packed rows and columns count over all groups */
  int64_t batch_stride_a_scale, batch_stride_b_scale; /* elements from one group's scales to the next; 0: shared. Not
                                    used of A with M, of B with N: its scales are packed too */
  int64_t a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k; /* as in libgemm_gemm_args */
  int32_t batch_invariant; /* as in libgemm_gemm_args: a row's bits depend on no other row, nor on where groups end */
  int32_t reserved;        /* 0 */
} libgemm_grouped_mm_args;

/* Set defaults: everything 0 but size, alpha = 1, offs_format = LIBGEMM_ENDS_I32. */
void libgemm_grouped_mm_args_init(libgemm_grouped_mm_args *args, uint64_t size);
libgemm_status libgemm_grouped_mm(const libgemm_grouped_mm_args *args);

/* Bytes of workspace with which this call runs best on the GPU that owns d (where d is NULL: the current GPU); 0 for
 * most, and on failure. It holds copies of A or B where one matrix has all groups and fast kernels cannot read it: what
 * the ends cut is contiguous in it (the rows of a transposed A; K unless A is transposed and B is not), or its address
 * or leading dimension is no multiple of 16 bytes, or it is 8-bit and K is not contiguous. With shared_b it is that of
 * the dense call. With less, or none, the call runs too, by a kernel that needs none, as it always does with
 * batch_invariant. What libgemm_gemm_workspace says of its memory goes for this too. */
libgemm_status libgemm_grouped_mm_workspace(const libgemm_grouped_mm_args *args, uint64_t *bytes);

/* ---- Layers of experts ------------------------------------------------------------------------------------------ */

/* How the columns of a gated product's B stand: NONE, it has no gate; HALVES, those of the gate before those of up
 * (torch's [gate; up]); PAIRS, each of the gate before its own of up (gpt-oss). */
typedef enum libgemm_gate { LIBGEMM_GATE_NONE = 0, LIBGEMM_GATE_HALVES = 1, LIBGEMM_GATE_PAIRS = 2 } libgemm_gate;

/* Grouped GEMM over packed rows, as a layer of experts asks for it. Rows s to e - 1 of the product are group g's, where
 * e is the end of g and s the end of g - 1, 0 for the first:
 *
 *   Z[i] = alpha * A[rows[i]] op(B_g) + bias_g               a row of A by index; A[i] where rows is NULL
 *   without a gate    D[to_rows[i]] = row_weights[i] * act(Z[i])
 *   with one          D[to_rows[i]] = row_weights[i] * act(gate) * up, gate and up the n / 2 columns each of Z[i]
 *
 * all in float32 until it is rounded to D, whose rows are D[i] where to_rows is NULL. With gate_limit above 0, SILU's
 * gate is gpt-oss's: with g = min(gate, gate_limit) and u = up within -gate_limit and gate_limit,
 * g / (1 + exp(-gate_alpha * g)) * (u + 1).
 *
 * Ends and indices are read on the device. Ends are clamped as in libgemm_grouped_mm; rows past the last one are not
 * written. A row whose index is no row of A has numbers of another, or of zeros; one that goes to no row of D is not
 * stored. Where two rows go to one row of D, it has elements of either. A, B and D are of one type, F16 or BF16. */
typedef struct libgemm_moe_mm_args {
  uint64_t size;         /* sizeof(libgemm_moe_mm_args) */
  int64_t m, n, k;       /* rows of the product, all groups together; columns of op(B); columns of A */
  int64_t groups;        /* 0 to LIBGEMM_MAX_GROUPS */
  int64_t a_count;       /* rows of A; m, or 0 for it, where rows is NULL */
  int64_t d_count;       /* rows of D; m, or 0 for it, where to_rows is NULL */
  const void *a, *b;     /* A [a_count][k], lda; B_g [k][n], or with trans_b [n][k], at b + g * batch_stride_b */
  void *d;               /* D [d_count][n], or with a gate [n / 2] */
  const void *bias;      /* NULL, or row g has n elements of D's type at bias + g * batch_stride_bias */
  const int32_t *offs;   /* `groups` ends */
  const int32_t *rows;   /* NULL, or m indices */
  const int32_t *to_rows;      /* NULL, or m indices */
  const float *row_weights;    /* NULL, or m weights */
  int64_t lda, ldb, ldd;
  int64_t batch_stride_b, batch_stride_bias; /* elements between groups */
  float alpha;                    /* 1 by default */
  float gate_alpha, gate_limit;   /* 1.702 by default, and 0 */
  int32_t a_type, trans_b;
  int32_t activation;             /* libgemm_activation; with gate_limit SILU alone */
  int32_t gate;                   /* libgemm_gate; with one n is even */
  const char *variant;
  libgemm_stream stream;
} libgemm_moe_mm_args;

/* Set defaults: everything 0 but size, alpha = 1, gate_alpha = 1.702. */
void libgemm_moe_mm_args_init(libgemm_moe_mm_args *args, uint64_t size);
libgemm_status libgemm_moe_mm(const libgemm_moe_mm_args *args);

/* Sort a router's choices by expert: choices j = 0 to top_k - 1 of token t are ids[t * top_k + j], and a sorted position
 * belongs to one of them. Stable: of one expert's choices the order stays. Nothing depends on which block comes first.
 * A choice that is no expert, below 0 or from `groups` on, is skipped: that is how ranks of expert parallelism mark
 * experts of others. */
typedef struct libgemm_moe_route_args {
  uint64_t size;           /* sizeof(libgemm_moe_route_args) */
  int64_t tokens, top_k;   /* tokens * top_k is 0 to LIBGEMM_MAX_SIZE, top_k 1 to 1024 */
  int64_t groups;          /* experts, 1 to 4096 */
  const void *ids;         /* [tokens][top_k], int32, or with ids_wide int64 */
  int32_t *rows;           /* [tokens * top_k], written: the token of each sorted position; -1 behind the last of them */
  int32_t *places;         /* [tokens * top_k], written: the sorted position of each choice; -1 where it is skipped */
  int32_t *offs;           /* [groups], written: the end of each expert's positions */
  int32_t ids_wide;        /* 0 or 1 */
  int32_t reserved;        /* 0 */
  void *workspace;         /* device memory of libgemm_moe_route_workspace bytes, 16-byte aligned, of any content; NULL
                              for 0, which is what up to 256 choices in all need */
  uint64_t workspace_bytes;
  libgemm_stream stream;
} libgemm_moe_route_args;

/* Set defaults: everything 0 but size. */
void libgemm_moe_route_args_init(libgemm_moe_route_args *args, uint64_t size);
libgemm_status libgemm_moe_route(const libgemm_moe_route_args *args);
libgemm_status libgemm_moe_route_workspace(const libgemm_moe_route_args *args, uint64_t *bytes);

/* Add up what experts made of each token: D[t] = sum of weights[t][j] * A[places[t][j]] over j from 0 on, in this order
 * and in float32, so the same bits come at every call. A place that is no row of A adds nothing. */
typedef struct libgemm_moe_sum_args {
  uint64_t size;           /* sizeof(libgemm_moe_sum_args) */
  int64_t tokens, n, top_k; /* n to LIBGEMM_MAX_SIZE / 2 */
  int64_t a_count;         /* rows of A */
  const void *a;           /* [a_count][n], lda */
  void *d;                 /* [tokens][n], ldd, of A's type */
  const void *weights;     /* NULL, for 1, or [tokens][top_k] */
  const int32_t *places;   /* [tokens][top_k] */
  int64_t lda, ldd;
  int32_t a_type;          /* libgemm_dtype */
  int32_t weights_type;    /* libgemm_dtype; 0 without weights */
  libgemm_stream stream;
} libgemm_moe_sum_args;

/* Set defaults: everything 0 but size. */
void libgemm_moe_sum_args_init(libgemm_moe_sum_args *args, uint64_t size);
libgemm_status libgemm_moe_sum(const libgemm_moe_sum_args *args);

/* The gate of a layer by itself, for training, which keeps Z = A op(B) + bias of libgemm_moe_mm without a gate:
 *
 *   without a gate    H[i] = act(Z[i])
 *   with one          H[i] = act(gate) * up, gate and up the n columns each of Z[i], where libgemm_moe_mm has them
 *
 * in float32 until it is rounded; with gate_limit the clamped form. Z and H are of one type, F16 or BF16; where they
 * overlap H has undefined numbers. */
typedef struct libgemm_moe_gate_args {
  uint64_t size;           /* sizeof(libgemm_moe_gate_args) */
  int64_t m, n;            /* rows; columns of H, and without a gate of Z: to LIBGEMM_MAX_SIZE / 2 */
  const void *z;           /* [m][n], with a gate [m][2 * n], ldz */
  void *h;                 /* [m][n], ldh */
  int64_t ldz, ldh;
  float gate_alpha, gate_limit; /* as in libgemm_moe_mm_args */
  int32_t a_type;          /* of Z and H */
  int32_t activation, gate;
  int32_t reserved;        /* 0 */
  libgemm_stream stream;
} libgemm_moe_gate_args;

/* Set defaults: everything 0 but size, gate_alpha = 1.702. */
void libgemm_moe_gate_args_init(libgemm_moe_gate_args *args, uint64_t size);
libgemm_status libgemm_moe_gate(const libgemm_moe_gate_args *args);

/* Rows for a product of experts in 8 bits: by an index, gated, and cast with a scale for each 128 columns of a row.
 *
 *   without a gate    D[i] = act(A[rows[i]]) / scale           row i of A where rows is NULL
 *   with one          D[i] = act(gate) * up / scale            gate and up the n columns each of that row
 *
 * in float32, which is rounded once, to 8 bits. Scales are made and numbers rounded as libgemm_cast does. A row that is
 * none of A's is 0, with scales of 1. Where D overlaps A, it has undefined numbers. */
typedef struct libgemm_moe_cast_args {
  uint64_t size;           /* sizeof(libgemm_moe_cast_args) */
  int64_t m, n;            /* rows and columns of D: to LIBGEMM_MAX_SIZE / 2 */
  int64_t a_count;         /* rows of A; m, or 0 for it, where rows is NULL */
  const void *a;           /* [a_count][n], with a gate [a_count][2 * n], lda */
  const int32_t *rows;     /* NULL, or m indices */
  void *d;                 /* [m][n], ldd */
  void *scale;             /* float32, of row i and block j at i * scale_stride_m + j * scale_stride_n */
  int64_t lda, ldd, scale_stride_m, scale_stride_n;
  float gate_alpha, gate_limit; /* as in libgemm_moe_mm_args */
  int32_t a_type, d_type;  /* F16 or BF16; LIBGEMM_E4M3, the default */
  int32_t activation, gate;
  libgemm_stream stream;
} libgemm_moe_cast_args;

/* Set defaults: everything 0 but size, d_type, gate_alpha = 1.702. */
void libgemm_moe_cast_args_init(libgemm_moe_cast_args *args, uint64_t size);
libgemm_status libgemm_moe_cast(const libgemm_moe_cast_args *args);

/* What a layer's gradient needs between its products. Of each choice c of a token, with row i = places[c] and weight w =
 * weights[c], from Z and from dH, the gradient of row i of H if its weight were 1:
 *
 *   dZ[i] = w * dH[i] * (slopes of H in Z)      in Z's columns
 *   H[i]  = w * H                               computed anew; where h is not NULL
 *   sums[c] = sum over columns of dH[i] * H     float32, the gradient of w; where sums is not NULL
 *
 * In float32 until it is rounded. A choice whose place is no row of Z has a sum of 0 and writes nothing else; rows
 * that no choice names are not written. Where two choices name one row, it has numbers of either. At a limit, and for
 * RELU at 0, slopes are torch's. Where dZ or H overlap what is read, or each other, they have undefined numbers. */
typedef struct libgemm_moe_gate_grad_args {
  uint64_t size;           /* sizeof(libgemm_moe_gate_grad_args) */
  int64_t tokens, top_k;   /* as in libgemm_moe_route_args */
  int64_t m, n;            /* rows of Z; columns of H, and without a gate of Z: to LIBGEMM_MAX_SIZE / 2 */
  const void *z, *dh;      /* [m][n], with a gate [m][2 * n], ldz; [m][n], lddh */
  void *dz, *h;            /* as Z, lddz; NULL, or [m][n], ldh */
  float *sums;             /* NULL, or [tokens][top_k] */
  const int32_t *places;   /* [tokens][top_k] */
  const void *weights;     /* NULL, for weights of 1, or [tokens][top_k] */
  int64_t ldz, lddh, lddz, ldh;
  float gate_alpha, gate_limit; /* as in libgemm_moe_mm_args */
  int32_t a_type;          /* of Z, dH, dZ and H: F16 or BF16 */
  int32_t weights_type;    /* libgemm_dtype; 0 where weights is NULL */
  int32_t activation, gate;
  libgemm_stream stream;
} libgemm_moe_gate_grad_args;

/* Set defaults: everything 0 but size, gate_alpha = 1.702. */
void libgemm_moe_gate_grad_args_init(libgemm_moe_gate_grad_args *args, uint64_t size);
libgemm_status libgemm_moe_gate_grad(const libgemm_moe_gate_grad_args *args);

/* A layer of experts: D[t] = sum over j of weights[t][j] * expert(X[t]), of expert ids[t][j], which computes
 *
 *   H = act(X B1 + bias1), or with a gate act(gate) * up         of `inner` columns, rounded to X's type
 *   Y = H B2 + bias2                                             of n columns, rounded to X's type
 *
 * by libgemm_moe_route, libgemm_moe_mm, libgemm_grouped_mm and libgemm_moe_sum, one after the other on the stream:
 * those say the rest. Where B1 and B2 are E4M3, X's rows and H are cast with scales of 1 x 128 as libgemm_moe_cast does
 * (each row of X once, whatever its choices; 64 choices in all and fewer are sorted in that launch), and both products
 * are libgemm_grouped_mm's, of 8-bit operands. H is cast from Z = X B1 + bias1 of X's type, or, where the first product
 * gates and casts by itself, from Z in float32: on Hopper, of weights stored as torch's linear has them, with silu's
 * gate, where inner is a multiple of 64 and experts have 64 rows or more in the mean, or 16 or fewer.
 * The host reads nothing of the device, so the chain can be captured. Of a call that one of them refuses, those before it
 * are queued: they write the workspace alone. */
typedef struct libgemm_moe_args {
  uint64_t size;           /* sizeof(libgemm_moe_args) */
  int64_t tokens, k, inner, n; /* rows of X; its columns; those of H and of D: to LIBGEMM_MAX_SIZE / 2 */
  int64_t groups, top_k;   /* experts, and choices of each token, as in libgemm_moe_route_args */
  const void *x;           /* [tokens][k], ldx */
  const void *b1, *b2;     /* B1 [groups][k][inner], with a gate [groups][k][2 * inner]; B2 [groups][inner][n] */
  void *d;                 /* [tokens][n], ldd */
  const void *bias1, *bias2; /* NULL, or a row for each expert */
  const void *ids;         /* [tokens][top_k] */
  const void *weights;     /* NULL, or [tokens][top_k] */
  int64_t ldx, ldb1, ldb2, ldd;
  int64_t batch_stride_b1, batch_stride_b2, batch_stride_bias1, batch_stride_bias2;
  int32_t a_type, weights_type, ids_wide;
  int32_t trans_b1, trans_b2; /* 1: stored with rows and columns exchanged, [groups][2 * inner][k] and [groups][n][inner] */
  int32_t activation, gate; /* as in libgemm_moe_mm_args */
  float gate_alpha, gate_limit;
  int32_t reserved;        /* 0 */
  void *workspace;         /* device memory of libgemm_moe_workspace bytes, 16-byte aligned, of any content */
  uint64_t workspace_bytes;
  libgemm_stream stream;
  int32_t b_type;          /* of B1 and B2: 0 for a_type, or LIBGEMM_E4M3 */
  int32_t scaling;         /* libgemm_scaling: with E4M3 1X128_128X128, else NONE (0) */
  const void *b1_scale, *b2_scale; /* float32, of each 128 x 128 of op(B1) and op(B2); NULL with NONE */
  int64_t batch_stride_b1_scale, batch_stride_b2_scale; /* elements from one expert's to the next; 0: shared */
  int64_t b1_scale_stride_n, b1_scale_stride_k; /* as b_scale_stride_n and _k in libgemm_gemm_args */
  int64_t b2_scale_stride_n, b2_scale_stride_k;
} libgemm_moe_args;

/* Set defaults: everything 0 but size, gate_alpha = 1.702. */
void libgemm_moe_args_init(libgemm_moe_args *args, uint64_t size);
libgemm_status libgemm_moe(const libgemm_moe_args *args);
libgemm_status libgemm_moe_workspace(const libgemm_moe_args *args, uint64_t *bytes);

/* ---- Casting to 8 bits ------------------------------------------------------------------------------------------- */

/* What shares a scale in a matrix: all of it, a row, 128 columns of a row, or 128 columns of 128 rows; the last of either
 * may be short. */
typedef enum libgemm_granularity {
  LIBGEMM_PER_TENSOR = 1,
  LIBGEMM_PER_ROW = 2,
  LIBGEMM_PER_1X128 = 3,
  LIBGEMM_PER_128X128 = 4
} libgemm_granularity;

/* Cast A to 8 bits: D = A / scale, with scales made of A as the products take them (libgemm_scaling), and on request D^T
 * as well, in the same pass: the tensor cores take operands whose K is contiguous, and a gradient's K is another
 * dimension than the product's own.
 *
 *   scale  largest magnitude of what shares it / the largest number of D's type, 448 of E4M3, 57344 of E5M2; at least
 *          2^-126; 1 where that magnitude is 0. With scale_power_of_two = 1 it is rounded up to a power of two.
 *   D      A * (1 / scale), to the nearest number of D's type, of two as near to the even one; beyond the largest it is
 *          that one.
 *
 * in float32, each step rounded. Inf, of which E4M3 has none, and NaN become NaN of either type; neither counts for a
 * scale.
 *
 * PER_TENSOR, PER_128X128  D^T is D with rows and columns exchanged, and so are its scales: scale_t is NULL.
 * PER_ROW, PER_1X128       what shares a scale in D^T is a row of it: a column of A, or 128 rows of a column of A.
 *
 * A is read once; twice by PER_TENSOR, unless the scale is given, and by PER_ROW with D^T. What is written must overlap
 * neither A nor itself. Where m, n or batch is 0 nothing is written, scales neither. */
typedef struct libgemm_cast_args {
  uint64_t size;          /* sizeof(libgemm_cast_args) */
  int64_t m, n;           /* rows and columns of A: to LIBGEMM_MAX_SIZE / 2 */
  int64_t batch;          /* matrices, 1 by default, each with scales of its own; batch_stride_* elements apart */
  const void *a;          /* [m][n], lda */
  void *d;                /* [m][n], ldd; NULL where D^T alone is wanted */
  void *d_t;              /* [n][m], ldd_t; NULL for none */
  void *scale;            /* float32: 1 (PER_TENSOR), m (PER_ROW), or of each block (i, j) one at
                             i * scale_stride_m + j * scale_stride_n. NULL where nothing takes it: without D where D^T
                             has scales of its own */
  void *scale_t;          /* float32, of D^T where it has its own: n, or of column i and block j of rows one at
                             i * scale_t_stride_n + j * scale_t_stride_m; else NULL */
  int64_t lda, ldd, ldd_t; /* D and D^T are written, and read by products, faster where rows begin on 32 bytes */
  int64_t batch_stride_a, batch_stride_d, batch_stride_d_t, batch_stride_scale, batch_stride_scale_t;
  int64_t scale_stride_m, scale_stride_n, scale_t_stride_n, scale_t_stride_m; /* elements; of blocks */
  int32_t a_type;         /* libgemm_dtype: F16, BF16 or F32 */
  int32_t d_type;         /* LIBGEMM_E4M3, the default, or E5M2 */
  int32_t granularity;    /* libgemm_granularity; no default */
  int32_t scale_given;    /* 1: scale is read, not made; PER_TENSOR alone */
  int32_t scale_power_of_two; /* 0 or 1 */
  int32_t reserved;       /* 0 */
  void *workspace;        /* device memory of libgemm_cast_workspace bytes, 16-byte aligned, of any content; NULL for 0 */
  uint64_t workspace_bytes;
  libgemm_stream stream;
} libgemm_cast_args;

/* Set defaults: everything 0 but size, batch = 1, d_type. */
void libgemm_cast_args_init(libgemm_cast_args *args, uint64_t size);
libgemm_status libgemm_cast(const libgemm_cast_args *args);
libgemm_status libgemm_cast_workspace(const libgemm_cast_args *args, uint64_t *bytes);

/* ---- Which variant runs ----------------------------------------------------------------------------------------- */

/* What a call would run, and why. */
typedef struct libgemm_choice {
  uint64_t size;     /* sizeof(libgemm_choice) */
  int32_t variant;   /* index for libgemm_variant_get; -1 when nothing needs to run (an empty problem) */
  char reason[252];  /* a sentence: how it was chosen, and what would have been faster */
  float expected_us; /* what the choice was made by: microseconds on the device, for one call among many */
  int32_t covered;   /* 1 where that rests on measurements of this variant, 0 where on a rough model */
} libgemm_choice;

/* Choose for compute capability `target` (90 is 9.0), or for the current GPU when target is 0. With a target no driver
 * is needed. Where the library has no kernels of that capability but of one whose code it runs (libgemm_target_info),
 * those are chosen from, and the reason says so. Pointers in args are used for their alignment alone. Fails as the call
 * itself would, but for what only a launch finds: memory of another kind or GPU and, for packed groups and pointer
 * arrays, more blocks than one launch takes. */
libgemm_status libgemm_gemm_explain(const libgemm_gemm_args *args, int32_t target, libgemm_choice *choice);
libgemm_status libgemm_grouped_gemm_explain(const libgemm_grouped_gemm_args *args, int32_t target,
                                            libgemm_choice *choice);
libgemm_status libgemm_grouped_mm_explain(const libgemm_grouped_mm_args *args, int32_t target,
                                          libgemm_choice *choice);
libgemm_status libgemm_moe_mm_explain(const libgemm_moe_mm_args *args, int32_t target, libgemm_choice *choice);

/* Load every variant of `device`'s target now (on Hopper thousands, more than 100 MB of code), so that later first uses
 * load nothing. A call that is captured in a CUDA graph needs its kernels loaded: by this, or by the same call before. */
libgemm_status libgemm_preload(int32_t device);

/* ---- What this library is --------------------------------------------------------------------------------------- */

const char *libgemm_version(void);  /* LIBGEMM_VERSION of the library */
int32_t libgemm_abi(void);          /* LIBGEMM_ABI of the library */
const char *libgemm_build_id(void); /* sha256 over kernels, launch facts and dispatch data, 64 hex digits */

/* Name of a status ("LIBGEMM_OK") and what it means, never NULL, also for a number that is no status. */
const char *libgemm_status_name(int32_t status);
const char *libgemm_status_text(int32_t status);

/* This thread's last failure, "" before the first; never NULL. Valid until this thread's next failing call. */
const char *libgemm_last_error(void);

/* One variant. Strings live as long as the library. */
typedef struct libgemm_variant_info {
  uint64_t size; /* sizeof(libgemm_variant_info) */
  const char *name, *op, *sha256;
  int32_t target;  /* compute capability * 10 that its row is for; the code may be a lower minor revision's */
  int32_t a_type, d_type, precision, trans_a, trans_b;
  int32_t block_m, block_n, block_k, warps, ctas, registers;
  uint32_t shared_bytes, local_bytes, cubin_bytes;
  int32_t align16; /* 1: operands must start on 16 bytes, with leading dimensions that are multiples of that */
  int32_t linear;  /* 1: no activation is applied */
  int32_t single;  /* 1: A and B must be read (k > 0, alpha != 0); one of op "gemm" then serves one product (batch = 1) */
  const char *architecture; /* what it was assembled for: "sm_90a" runs on 9.0 alone, "sm_80" and "sm_100f" also on
                               later minor revisions */
  const char *family; /* its kind of kernel, "coop" or "grouped_mm_swap": the manifest says what is true of each */
  int32_t chunk;       /* cubins of one number are packed together: to read many is faster in the order of chunks */
  int32_t reserved;    /* 0 */
} libgemm_variant_info;

int32_t libgemm_variant_count(void);

/* Fill `info`, whose `size` says how much of it the caller's header knows: a smaller struct of an older header is
 * filled that far, of a larger one the rest is 0. INVALID_ARGUMENT for an index that is not 0 to count - 1. */
libgemm_status libgemm_variant_get(int32_t index, libgemm_variant_info *info);

/* Copy variant `index`'s cubin to `buffer` of `bytes` bytes, which must be its cubin_bytes. */
libgemm_status libgemm_variant_cubin(int32_t index, void *buffer, uint64_t bytes);

/* One compute capability this library has code for, and the driver it needs. */
typedef struct libgemm_target_info {
  uint64_t size;        /* sizeof(libgemm_target_info) */
  int32_t target;       /* compute capability * 10 */
  int32_t variants;
  int32_t min_cuda;     /* least cuDriverGetVersion: 12000 or 13000 */
  const char *min_driver; /* the same as a driver release: "525" or "580" */
  int32_t portable;     /* 1: GPUs of a later minor revision of the same major one run this code too, where the library
                           has none of their own: 10.3 runs that of 10.0, 8.9 that of 8.6. Integrated GPUs (8.7, 11.0)
                           neither run other code nor does their code run elsewhere. 0: it runs on 9.0 alone, say */
  int32_t reserved;     /* 0 */
} libgemm_target_info;

int32_t libgemm_target_count(void);

/* Fill `info`, as libgemm_variant_get does. */
libgemm_status libgemm_target_get(int32_t index, libgemm_target_info *info);

/* The manifest as JSON text (schema, build id, toolchain, every variant), "" where the library is damaged; *bytes is its
 * length without the final 0. It lives as long as the library, which unpacks it at the first call. */
const char *libgemm_manifest(uint64_t *bytes);

/* ---- For the Python package --------------------------------------------------------------------------------------- */

/* CPython's objects as void *: how the package reads the tensors of a call in one go. No other caller needs these.
 * Python's lock (GIL) must be held, and libgemm_python_init have succeeded before libgemm_python_describe is called. */

/* Take over what to read tensors with: `exchange`, the DLPackExchangeAPI of the tensors' type (DLPack 1.3: what the
 * capsule "dlpack_exchange_api" points to), and of Python the object None and the functions PyBytes_FromStringAndSize,
 * PyTuple_Pack and Py_DecRef. UNSUPPORTED where `exchange` knows no version 1 of DLPack or cannot read without owning. */
libgemm_status libgemm_python_init(const void *exchange, const void *none,
                                   void *(*new_bytes)(const char *data, int64_t bytes),
                                   void *(*new_tuple)(int64_t count, ...), void (*release)(void *object));

/* In the form of a Python function (METH_FASTCALL): up to 8 tensors or None -> a tuple of two bytes objects, or of
 * nothing where a tensor has more than 3 dimensions. The first is equal for tensors of the same types, shapes, strides,
 * devices and addresses modulo 16; the second has the addresses, 0 for None. NULL with the exception of a tensor that
 * cannot be read. `self` is not used. */
void *libgemm_python_describe(void *self, void *const *objects, int64_t count);

/* Make `args`, of a call whose tensors a, b, c, d and bias `known` describes (of cut groups the ends too), those of a
 * call like it but for sizes and strides, whose tensors `fresh` describes; both have `bytes` bytes. 1 where that is so,
 * 0 where the two differ in more (dimensions, types, devices, addresses modulo 16, which are given), are empty or do not
 * fit each other; then args is as it was. Pointers and workspace are not touched. */
int32_t libgemm_python_resize_gemm(libgemm_gemm_args *args, const void *known, const void *fresh, int64_t bytes);
int32_t libgemm_python_resize_grouped_mm(libgemm_grouped_mm_args *args, const void *known, const void *fresh,
                                         int64_t bytes);

/* cdef: end */

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
