/* call.h: what a kernel is launched with, and what loads and launches it. */
#ifndef LIBGEMM_LAUNCH_CALL_H
#define LIBGEMM_LAUNCH_CALL_H

#include "error.h"
#include "launch/device.h"
#include "launch/unpack.h"
#include "table.h"

#define WARP_SIZE 32

/* What cuTensorMapEncodeTiled writes. */
struct tensor_map {
  _Alignas(64) unsigned char bytes[128];
};

/* The value of every run-time argument a kernel can have. Field names are the kernels' argument names; generated
 * launchers take the address of the fields they need, and of what descriptors point to, and assert each size against
 * the cubin's parameter table. */
struct call {
  CUdeviceptr a_ptr, b_ptr, c_ptr, d_ptr, bias_ptr;
  CUdeviceptr a_ptrs, b_ptrs, c_ptrs, d_ptrs, bias_ptrs;
  CUdeviceptr group_m, group_n, group_k, group_lda, group_ldb, group_ldc, group_ldd;
  CUdeviceptr offs_ptr;
  CUdeviceptr partials, semaphores; /* in the workspace: where K is split */
  CUdeviceptr a_copy, b_copy;       /* in the workspace: where A or B is copied to aligned rows first */
  int64_t copy_lda, copy_ldb;
  int32_t a_rows, a_cols, b_rows, b_cols; /* of the stored matrix; 0 rows where nothing is copied */
  int32_t a_transpose, b_transpose;       /* 1: its copy is transposed */
  int64_t epoch;
  int32_t M, N, K, groups, activation, offs_wide, ragged, zero_tail, early, splits;
  int32_t a_step, b_step, d_step; /* stored rows from one group's matrix to the next; 0 where all are in one */
  int32_t stream_steps;           /* in K, of each block where all share all tiles */
  int32_t stream_m, stream_n, stream_k, stream_swap, stream_below, stream_across; /* such a tile, and a cluster */
  int32_t cluster; /* blocks that share a tile and start together; 0 or 1: none */
  int64_t lda, ldb, ldc, ldd;
  int64_t batch_stride_a, batch_stride_b, batch_stride_c, batch_stride_d, batch_stride_bias;
  float alpha, beta;
  int32_t entries, phase;       /* of operations in several launches, and what they go over */
  CUdeviceptr q_ptr, scale_ptr; /* of what is cast to 8 bits: values, and their scales */
  int64_t scale_stride_m, scale_stride_n;
  union { /* no kernel takes of both, and every launch clears them */
    struct {
      /* Of a layer of experts: rows of A and of D by index, how many there are, weights of rows, and the gate. */
      CUdeviceptr rows_ptr, to_rows_ptr, weights_ptr;
      int32_t stored, d_stored, gate;
      CUdeviceptr ids_ptr, places_ptr, counts_ptr; /* of routing, and of the sum */
      CUdeviceptr tickets_ptr;                     /* of tiles that blocks take as they come free */
      int32_t ids_wide, top_k, weights_type;
      float gate_alpha, gate_limit, gate_shift;
      CUdeviceptr h_ptr, sums_ptr; /* of a gate's gradient */
      int64_t ldh;
      CUdeviceptr x_ptr; /* of one token: its row */
    };
    struct { /* Of casting: D transposed and its scales, and the workspace. */
      CUdeviceptr q_t_ptr, scale_t_ptr, amax_ptr;
      int64_t ldd_t, batch_stride_d_t, batch_stride_scale, batch_stride_scale_t;
      int64_t scale_t_stride_n, scale_t_stride_m;
      int32_t granularity, scale_power_of_two, scale_given;
    };
  };
  int32_t a_type, b_type;       /* of 8-bit operands */
  CUdeviceptr a_scale, b_scale; /* of scaled operands */
  CUdeviceptr d_scale, d_amax;  /* of a D of 8 bits */
  int32_t scaling;
  int64_t batch_stride_a_scale, batch_stride_b_scale;
  int64_t a_scale_stride_m, a_scale_stride_k, b_scale_stride_n, b_scale_stride_k; /* of those of blocks */
  CUfunction function; /* of the row's kernel in the current context; NULL: the driver is to look it up */
  CUdeviceptr scratch; /* Triton's trailing scratch pointers: in the workspace, null for rows without scratch_bytes */
  int32_t no_size;     /* 0, beside each map, as are strides: Triton passes them, kernels read the map alone */
  int64_t no_stride;
  /* Last: set by find_maps alone, those that a row takes; in the order of enum tensor_name. Each is kept from an
   * earlier call, or is one of own_maps, which then were made or copied for this call. */
  struct tensor_map *a_desc, *b_desc, *c_desc, *c_desc_2, *c_desc_4, *c_desc_8;
  struct tensor_map *d_desc, *d_desc_2, *d_desc_4, *d_desc_8;
  struct tensor_map own_maps[TENSOR_COUNT];
};

/* Copy a row's cubin out of the library. */
libgemm_status read_cubin(const struct row *row, void *out);

/* Load a row's kernel and prepare it for a device whose context is current. */
libgemm_status load_row(const struct row *row, const struct device *device);

/* Find or encode the tensor maps a row takes, by the call's pointers, sizes and leading dimensions. */
struct plan;
libgemm_status find_maps(const struct plan *plan, const struct device *device, struct call *call);

/* The one place that launches. `parameters` are addresses in the kernel's order. */
libgemm_status launch_row(const struct row *row, const struct device *device, const struct call *call,
                          void **parameters, int64_t grid_x, libgemm_stream stream);

/* Blocks of a row that fit on one multiprocessor, at least 1. */
int resident_blocks(const struct row *row, const struct device *device);

#endif
