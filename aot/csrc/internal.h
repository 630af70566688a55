/* internal.h: what the hand-written and the generated C share. Not installed. */
#ifndef LIBGEMM_INTERNAL_H
#define LIBGEMM_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "driver.h"

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

enum op { OP_GEMM, OP_GROUPED_GEMM, OP_GROUPED_MM, OP_COUNT };
enum guard { GUARD_ALIGN16 = 1, GUARD_LINEAR = 2, GUARD_DESCRIPTOR = 4, GUARD_DESCRIPTOR_AB = 8, GUARD_WORKSPACE = 16 };
enum { LAYOUT_COUNT = 4, TYPE_LIMIT = 4 };

/* A tensor descriptor argument as Triton passes it; kernels read the map alone, so sizes and strides stay 0. */
struct tensor {
  _Alignas(128) unsigned char map[128];
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
  int64_t nonce;
  int32_t M, N, K, groups, activation, offs_wide, splits;
  int64_t lda, ldb, ldc, ldd;
  int64_t batch_stride_a, batch_stride_b, batch_stride_c, batch_stride_d, batch_stride_bias;
  float alpha, beta;
  struct tensor a_desc, b_desc, c_desc, d_desc; /* filled by encode_tensors for rows that take them */
  CUdeviceptr scratch; /* Triton's trailing scratch pointers: always null, kernels that need them are refused */
};

struct row;
struct device;

/* Queue one variant with `call`'s arguments on `grid_x` blocks (clusters, when the variant has them). */
typedef libgemm_status (*launcher)(const struct row *row, const struct device *device, struct call *call,
                                   int64_t grid_x, libgemm_stream stream);

/* What one copy through a descriptor moves; all 0 where the kernel takes no such descriptor. */
struct box {
  uint16_t rows, cols;
  uint8_t swizzle, element; /* CUtensorMapSwizzle, CUtensorMapDataType */
};
enum { TENSOR_COUNT = 4 }; /* A, B, C, D */

/* How long a row takes on a problem: kernels/model.py has the formula. */
struct model {
  float fixed_ns, step_ns, tile_ns, next_step_ns, next_tile_ns, byte_ps, arrive_ns, piece_ns;
};

/* One variant: written by aot/templates/table.c.j2, best first within its bucket. */
struct row {
  const char *name, *entry, *sha256;
  launcher launch;
  int16_t target;
  uint8_t op, a_type, d_type, precision, trans_a, trans_b;
  uint8_t guard; /* enum guard bits */
  uint8_t warps, ctas;
  int16_t block_m, block_n, block_k;
  int16_t registers;
  uint32_t shared_bytes, local_bytes;
  uint8_t tuned; /* its model was measured */
  struct model model;
  uint8_t persistent; /* blocks take many tiles: no more are launched than fit on the device */
  struct box boxes[TENSOR_COUNT];
  uint32_t chunk, offset, cubin_bytes; /* where its cubin stands in the unpacked chunk */
};

/* Rows of one target, in buckets by (op, types, layout). */
struct target {
  int16_t target, min_cuda, rows, multiprocessors; /* of the usual product, for explain without a GPU */
  const char *min_driver;
  const uint16_t *buckets; /* bucket i holds rows[buckets[i]] to rows[buckets[i + 1]] */
};

/* A run of cubins packed together (LZ4 block format). */
struct chunk {
  uint32_t offset, packed_bytes, bytes;
};

extern const struct row rows[];
extern const int32_t row_count;
extern const struct target targets[];
extern const int32_t target_count;
extern const struct chunk chunks[];
extern const int8_t type_index[TYPE_LIMIT][TYPE_LIMIT][TYPE_LIMIT]; /* [a][d][precision]; -1: no such combination */
extern const int8_t type_count;
extern const unsigned char cubin_blob[];
extern const char build_id[];
extern const char manifest[];
extern const uint64_t manifest_bytes;

/* Each row's loaded kernel, and the devices it was prepared for (bit = ordinal). Zero until first use. */
struct row_state {
  _Atomic(CUkernel) kernel;
  _Atomic(uint64_t) prepared;
};
extern struct row_state row_states[];

/* Unpack one LZ4 block. Returns false, having stayed inside both buffers, when `in` is not exactly `out_bytes`. */
bool unpack(const unsigned char *in, size_t in_bytes, unsigned char *out, size_t out_bytes);

/* Copy a row's cubin out of the library. */
libgemm_status read_cubin(const struct row *row, void *out);

/* Load a row's kernel and prepare it for a device whose context is current. */
libgemm_status load_row(const struct row *row, const struct device *device);

/* Encode the descriptors a row takes, from the call's pointers, sizes and leading dimensions. */
libgemm_status encode_tensors(const struct row *row, const struct device *device, struct call *call);

/* The one place that launches. `parameters` are addresses in the kernel's order. */
libgemm_status launch_row(const struct row *row, const struct device *device, void **parameters, int64_t grid_x,
                          libgemm_stream stream);

/* ---- Devices ---- */

struct device {
  int ordinal;
  int multiprocessors, shared_per_multiprocessor;
  bool pageable; /* the GPU can read any host memory */
  const struct target *target;
  CUcontext primary;
  const struct driver *driver;
};

/* Facts of a device, gathered at first use; refuses one this library has no code for, or whose driver is too old. */
libgemm_status device_get(int ordinal, const struct device **out);

/* The GPU that can serve memory at `pointer`, argument `name`: INVALID_ARGUMENT for host memory. */
libgemm_status device_of(const char *name, CUdeviceptr pointer, int *ordinal);

/* INVALID_ARGUMENT unless `device` can use `pointer` as argument `name`. */
libgemm_status check_pointer(const char *name, CUdeviceptr pointer, const struct device *device);

/* Make `device`'s context current unless it is; leave_device undoes just what enter_device did. */
libgemm_status enter_device(const struct device *device, bool *entered);
void leave_device(const struct device *device, bool entered);

/* ---- Choosing ---- */

struct problem {
  enum op op;
  int32_t a_type, d_type, precision, trans_a, trans_b, activation;
  int64_t m, n, k;
  int64_t count;            /* products (batch), or groups */
  int64_t rows;             /* expected rows of one product */
  uint64_t workspace_bytes; /* what the caller gives; 0 without a workspace */
  int multiprocessors;      /* of the device or target: set by choose */
  unsigned met;             /* guard bits whose conditions on memory the operands meet */
  const char *variant;
};

/* Check types, flags and the sizes' range; names are those of the C structs. */
libgemm_status check_problem(const struct problem *problem);

/* Best row for the problem on a target with that many multiprocessors. */
libgemm_status choose(struct problem *problem, const struct target *target, int multiprocessors,
                      const struct row **out);

/* In how many pieces a row shares K of each tile (1: it does not, or the problem has no use for it), and the bytes of
 * workspace that takes: an int64 for each tile, then a float32 tile for each piece. */
int split_count(const struct row *row, const struct problem *problem);
uint64_t split_workspace(const struct row *row, const struct problem *problem);
uint64_t slot_bytes(const struct row *row, const struct problem *problem);

/* Fill a choice for explain; `row` NULL means nothing runs. */
libgemm_status describe(const struct problem *problem, const struct target *target, const struct row *row,
                        libgemm_choice *choice);

/* The target named by an explain call: 0 is the current GPU's. */
libgemm_status explain_target(int32_t number, const struct target **out, int *multiprocessors);

/* Copy a caller's struct of at least `oldest` bytes into ours: fields its older header lacks read as 0. */
libgemm_status read_args(const void *args, uint64_t oldest, void *out, uint64_t bytes, const char *type);

/* INVALID_ARGUMENT unless ld covers a stored row; `what` names the size it must cover. */
libgemm_status check_ld(const char *name, int64_t ld, int64_t length, const char *what);

/* Blocks of a row that fit on one multiprocessor, at least 1. */
int resident_blocks(const struct row *row, const struct device *device);

static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
