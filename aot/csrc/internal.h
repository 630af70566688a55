/* internal.h: what the hand-written and the generated C share. Not installed. */
#ifndef LIBGEMM_INTERNAL_H
#define LIBGEMM_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "driver.h"
#include "table.h"

#define MAX_DEVICES 64
#define WARP_SIZE 32

/* ---- Errors ---- */

/* Write this thread's error sentence and return `status`. */
libgemm_status fail(libgemm_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Return early from a function with the status of a call that failed. */
#define TRY(call)                                    \
  do {                                               \
    libgemm_status try_status = (call);              \
    if (try_status != LIBGEMM_OK) return try_status; \
  } while (0)

/* The same for a driver call, whose failure becomes a sentence. */
#define TRY_CUDA(name, call)                                                \
  do {                                                                      \
    CUresult try_result = (call);                                           \
    if (try_result != CUDA_SUCCESS) return driver_failed(name, try_result); \
  } while (0)

/* ---- Kernels ---- */

enum op { OP_GEMM, OP_GROUPED_GEMM, OP_GROUPED_MM, OP_ALIGN, OP_COUNT };
extern const char *const op_names[OP_COUNT];
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
  /* no guards, but what else a dense call's memory is like; of a batch GUARD_DESCRIPTOR and GUARD_EQUAL say what rows
   * for groups ask, and no dense row may have them */
  MEMORY_READ = 1 << 15,  /* A and B are read, in one product */
  MEMORY_A_ODD = 1 << 16, /* the copy engine cannot address A */
  MEMORY_B_ODD = 1 << 17,
  MEMORY_CD_EVEN = 1 << 18,  /* it can address C and D */
  BATCH_INVARIANT = 1 << 19, /* wanted: also the bit of a refusal for not being it */
  ONLY_EQUAL = 1 << 20,      /* a batch as groups: the same of rows with GUARD_EQUAL */
  TOO_LARGE = 1 << 21        /* of a refusal alone: a block has more shared memory than the GPU */
};

/* What cuTensorMapEncodeTiled writes. */
struct tensor_map {
  _Alignas(64) unsigned char bytes[128];
};

/* A tensor descriptor argument as Triton passes it; kernels read the map alone, so sizes and strides stay 0. */
struct tensor {
  struct tensor_map map;
  int32_t shape[2];
  int64_t strides[2];
};

/* The value of every run-time argument a kernel can have. Field names are the kernels' argument names; generated
 * launchers take the address of the fields they need and assert each size against the cubin's parameter table. */
struct call {
  CUdeviceptr a_ptr, b_ptr, c_ptr, d_ptr, bias_ptr;
  CUdeviceptr a_ptrs, b_ptrs, c_ptrs, d_ptrs, bias_ptrs;
  CUdeviceptr group_m, group_n, group_k, group_lda, group_ldb, group_ldc, group_ldd;
  CUdeviceptr offs_ptr;
  CUdeviceptr partials, slots; /* in the workspace: where K is split */
  CUdeviceptr a_copy, b_copy;  /* in the workspace: where A or B is copied to aligned rows first */
  int64_t copy_lda, copy_ldb;
  int32_t a_rows, a_cols, b_rows, b_cols; /* of the stored matrix; 0 rows where nothing is copied */
  int32_t a_turn, b_turn;                 /* 1: its copy is transposed */
  int64_t nonce;
  int32_t M, N, K, groups, activation, offs_wide, ragged, zero_tail, splits;
  int32_t a_step, b_step, d_step; /* stored rows from one group's matrix to the next; 0 where all are in one */
  int32_t cluster;                /* blocks that share a tile and start together; 0 or 1: none */
  int64_t lda, ldb, ldc, ldd;
  int64_t batch_stride_a, batch_stride_b, batch_stride_c, batch_stride_d, batch_stride_bias;
  float alpha, beta;
  CUdeviceptr scratch; /* Triton's trailing scratch pointers: in the workspace, null for rows without scratch_bytes */
  struct tensor a_desc, b_desc, c_desc, d_desc; /* last: written by encode_tensors alone, for rows that take them */
};

/* Unpack one LZ4 block. Returns false, having stayed inside both buffers, when `in` is not exactly `out_bytes`. */
bool unpack(const unsigned char *in, size_t in_bytes, unsigned char *out, size_t out_bytes);

/* Copy a row's cubin out of the library. */
libgemm_status read_cubin(const struct row *row, void *out);

/* Load a row's kernel and prepare it for a device whose context is current. */
libgemm_status load_row(const struct row *row, const struct device *device);

/* Encode the descriptors a row takes, from the call's pointers, sizes and leading dimensions. */
libgemm_status encode_tensors(const struct row *row, const struct device *device, struct call *call);

/* The one place that launches. `parameters` are addresses in the kernel's order. */
libgemm_status launch_row(const struct row *row, const struct device *device, const struct call *call,
                          void **parameters, int64_t grid_x, libgemm_stream stream);

/* ---- Devices ---- */

/* What a choice depends on of a GPU. */
struct gpu {
  int capability;                    /* * 10 */
  int multiprocessors, shared_bytes; /* the latter: of a block, at most */
  const struct target *target;       /* whose kernels serve it: of its capability, or of an earlier minor revision */
};

struct device {
  int ordinal;
  struct gpu gpu;
  int shared_per_multiprocessor;
  bool pageable; /* the GPU can read any host memory */
  const struct driver *driver;
};

/* Set the target that serves gpu->capability; UNSUPPORTED_DEVICE, of `what`, where there is none. */
libgemm_status find_target(const char *what, struct gpu *gpu);

/* The GPU named by an explain call: one of the compute capability `number` / 10; 0 is the current one. */
libgemm_status explain_gpu(int32_t number, struct gpu *gpu);

/* Facts of a device, gathered at first use; refuses one this library has no code for, or whose driver is too old. */
libgemm_status device_get(int ordinal, const struct device **out);

/* The GPU that can serve memory at `pointer`, argument `name`: INVALID_ARGUMENT for host memory. */
libgemm_status device_of(const char *name, CUdeviceptr pointer, int *ordinal);

/* INVALID_ARGUMENT unless `device`, which is entered, can use `pointer` as argument `name`. */
libgemm_status check_pointer(const char *name, CUdeviceptr pointer, const struct device *device);

/* The GPU that owns `pointer`, argument `name`; where that is NULL, the current one. */
libgemm_status device_for(const char *name, CUdeviceptr pointer, const struct device **out);

/* Make a context of `device` current unless one is; leave_device undoes just what enter_device did. */
libgemm_status enter_device(const struct device *device, bool *entered);
void leave_device(const struct device *device, bool entered);

/* ---- What a call's matrices are like ---- */

/* Matrices by the names of the argument structs; a batch is groups without ends. */
struct operands {
  const void *a, *b, *c, *d;
  int64_t m, n, k, groups;
  int64_t lda, ldb, ldc, ldd;
  int64_t batch_stride_a, batch_stride_b, batch_stride_c, batch_stride_d;
  int32_t a_type, d_type, trans_a, trans_b, ragged;
  bool reads_ab, reads_c;
};

/* Of either struct of arguments that describes matrices, which name their fields alike. */
#define OPERANDS_OF(args, count, how)                                                                               \
  (struct operands) {                                                                                               \
    .a = (args)->a, .b = (args)->b, .c = (args)->c, .d = (args)->d, .m = (args)->m, .n = (args)->n, .k = (args)->k, \
    .groups = (count), .lda = (args)->lda, .ldb = (args)->ldb, .ldc = (args)->ldc, .ldd = (args)->ldd,              \
    .batch_stride_a = (args)->batch_stride_a, .batch_stride_b = (args)->batch_stride_b,                             \
    .batch_stride_c = (args)->batch_stride_c, .batch_stride_d = (args)->batch_stride_d, .a_type = (args)->a_type,   \
    .d_type = (args)->d_type, .trans_a = (args)->trans_a, .trans_b = (args)->trans_b, .ragged = (how),              \
    .reads_ab = reads_ab(args), .reads_c = reads_c(args),                                                           \
  }

/* INVALID_ARGUMENT unless `device`, which is entered, can use what is read and written, each starts on its own
 * elements' size, and D is neither A nor B. */
libgemm_status check_operands(const struct operands *operands, const void *bias, const struct device *device);

/* Whether each group has a D of its own. */
bool owns_d(int32_t ragged);

/* Set strides that do not count to 0, and leading dimensions of single rows to the stride between them. */
void settle(struct operands *operands);

/* What GUARD_ALIGN16 asks. A group may start anywhere in the dimension that is cut, so that must not be one along which
 * a matrix is contiguous: N, for D's sake; M in a stored [K][M]; K unless A is stored [K][M] and B [K][N]. */
bool is_aligned(const struct operands *operands);

/* Whether the copy engine can address A; B; D, whose rows end on 16 bytes, and C where it is read. */
bool reaches_a(const struct operands *operands);
bool reaches_b(const struct operands *operands);
bool reaches_cd(const struct operands *operands);

/* Guard bits of the rows for groups that leave all memory to the copy engine: GUARD_DESCRIPTOR, GUARD_ROWS,
 * GUARD_EQUAL. */
unsigned engine_met(const struct operands *operands);

/* Begin a launch's arguments: everything 0 but what the matrices are. The maps of tensors are left as they are. */
void place_operands(const struct operands *operands, struct call *call);

/* ---- Choosing ---- */

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
  unsigned met;                                  /* guard bits whose conditions on memory the operands meet */
  const char *variant;
  const struct row *copier; /* set by choose: this row must copy A or B to aligned rows first */
  double copy_us;           /* and takes about that long */
};

/* What is copied before a product: stored rows (0: nothing) and columns of A and of B, whether they are transposed on
 * the way, the copies' leading dimensions and bytes. The copies stand first in the workspace. */
struct copies {
  int64_t rows[2], cols[2], ld[2];
  int32_t turn[2];
  uint64_t bytes[2];
};
struct copies copies_of(const struct problem *problem);

/* Queue them. *workspace is its first byte, and becomes the first behind the copies; `call` gets what the copier takes,
 * and then the copies for A and B. */
libgemm_status queue_copies(const struct problem *problem, const struct row *copier, const struct device *device,
                            struct call *call, CUdeviceptr *workspace, libgemm_stream stream);

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

/* Kernels count tiles in 32 bits, and go on by the grid: past the last tile too. No GPU holds a larger grid of blocks
 * that take many tiles. */
enum { MOST_TILES = INT32_MAX - 65535 };

/* Tiles of one product. */
int64_t tile_count(const struct row *row, const struct problem *problem);

/* In how many pieces a row shares K of each tile, of a group's by the K that is expected of it (1: it does not, or the
 * problem has no use for it), and the bytes of workspace that takes: an int64 for each tile, then a float32 tile for
 * each piece. */
int split_count(const struct row *row, const struct problem *problem);
uint64_t split_workspace(const struct row *row, const struct problem *problem);
uint64_t slot_bytes(const struct row *row, const struct problem *problem);

/* Bytes of workspace in which each block of a row has its scratch_bytes, wherever the workspace begins. */
enum { SCRATCH_ALIGN = 128 };
uint64_t scratch_workspace(const struct row *row, const struct problem *problem);

/* A number no other launch of this process has, from a random one on: but for a chance of 2^-54 nothing that is in
 * memory, of this process or of one before it, equals it. */
int64_t next_nonce(void);

/* What a problem asks of a row, by rates alone: microseconds, and what they are made of. */
struct estimate {
  float us, plain_us, load, multiply, memory, l2, turns, tiles, steps, split;
};
void estimate(const struct row *row, const struct problem *problem, struct estimate *out);

/* Microseconds by the row's fit; the estimate's where it has none. */
float fitted_us(const struct row *row, const struct problem *problem, const struct estimate *e);
int32_t stride_class(int64_t ld, int bytes);

/* Fill a choice for explain; `row` NULL means nothing runs. */
libgemm_status describe(const struct problem *problem, const struct target *target, const struct row *row,
                        libgemm_choice *choice);

/* Copy a caller's struct of at least `oldest` bytes into ours: fields its older header lacks read as 0. */
libgemm_status read_args(const void *args, uint64_t oldest, void *out, uint64_t bytes, const char *type);

/* INVALID_ARGUMENT unless ld covers a stored row; `what` names the size it must cover. */
libgemm_status check_ld(const char *name, int64_t ld, int64_t length, const char *what);

/* INVALID_ARGUMENT unless the pointer is a multiple of `bytes`, a power of two. */
libgemm_status check_alignment(const char *name, CUdeviceptr pointer, uint64_t bytes);

/* What C and D must be beside large enough: in one place only with equal strides, `count` matrices D that share no
 * element. Called where there is some D. */
struct output {
  const void *c, *d;
  int64_t m, n, count, ldc, ldd, batch_stride_c, batch_stride_d;
  bool reads_c;
};
libgemm_status check_output(const struct output *o);

/* ---- Tables of a call over arrays of pointers ---- */

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

/* ---- Launching ---- */

/* Blocks of a row that fit on one multiprocessor, at least 1. */
int resident_blocks(const struct row *row, const struct device *device);

/* ---- Remembering ---- */

/* How one dense call runs: what was found out about a problem. */
struct plan {
  const struct row *row;
  int splits;
  uint64_t slot_bytes;
  int64_t blocks;           /* of the launch; of packed groups the most of it: what they need is counted anew */
  const struct row *copier; /* what must run before it, or NULL */
};

/* One matrix as a row's copies see it: all that its tensor map is made of. */
struct matrix {
  CUdeviceptr address;
  int64_t rows, cols, ld; /* as stored, in elements */
  int64_t device;
  struct box box;
  uint16_t bytes; /* of an element */
};

/* What this thread last remembered for exactly this problem, or matrix; NULL for nothing. Valid until the next
 * remember_*. */
const struct plan *recall_plan(const struct problem *problem);
void remember_plan(const struct problem *problem, const struct plan *plan);
const struct tensor_map *recall_map(const struct matrix *matrix);
void remember_map(const struct matrix *matrix, const struct tensor_map *map);

/* ---- Arithmetic ---- */

/* Whether the copy engine can address a matrix: its strides are multiples of 16 bytes below 2^40 (CUDA driver API,
 * cuTensorMapEncodeTiled). Extents may be odd. */
static inline bool is_addressable(const void *pointer, int64_t ld, int bytes) {
  return (uint64_t)pointer % 16 == 0 && ld < ((int64_t)1 << 40) / bytes && ld * bytes % 16 == 0;
}

static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
