/* table.h: what the generated table of kernels is made of (aot/templates/table.c.j2). Included by internal.h. */
#ifndef LIBGEMM_TABLE_H
#define LIBGEMM_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "launch/driver.h"
#include "types.h"

enum { LAYOUT_COUNT = 4 };
struct row;
struct device;
struct call;

/* Queue one variant with `call`'s arguments on `grid_x` blocks (clusters, when the variant has them). */
typedef libgemm_status (*launcher)(const struct row *row, const struct device *device, struct call *call,
                                   int64_t grid_x, libgemm_stream stream);

/* What one copy through a descriptor moves; all 0 where the kernel uses no such descriptor. */
struct box {
  uint16_t rows, cols;
  uint8_t swizzle, element; /* CUtensorMapSwizzle, CUtensorMapDataType */
  uint16_t rank;            /* 3: the last dimension, of which a copy has one, is the group */
};
/* In the order of TENSORS in kernels/table/arguments.py: of C and D four boxes, the later ones narrower. */
enum { TENSOR_A, TENSOR_B, TENSOR_C, TENSOR_D = TENSOR_C + 4, TENSOR_COUNT = TENSOR_D + 4 };

/* How long a row takes on a problem, where nobody has measured it: kernels/table/model.py has the formula. */
struct model {
  float fixed_ns, step_ns, tile_ns, byte_ps;
};

/* The same where tuning has: weights of the features of kernels/table/model.py, by layout, in fours as select/cost.c
 * takes them (aot/render.py: in_fours). */
enum { LOG_TERMS = 15, PRODUCT_TERMS = 11, FIT_FOURS = 27 };
struct fit {
  _Alignas(16) float weights[LAYOUT_COUNT][FIT_FOURS * 4];
};

/* Rates in bytes, or products, a nanosecond: those features divide by; and the nanoseconds of a launch. */
struct machine {
  float load, multiply, l2, memory, fixed;
};
extern const struct machine machine;
extern const float stride_penalty[]; /* of a stride_class, on the bytes that move */
enum { MOST_CLUSTER = 8 };
extern const int16_t cluster_counts[MOST_CLUSTER + 1]; /* clusters of so many blocks that 132 multiprocessors hold */
/* Stream-K, where all blocks share all tiles evenly: kernels/table/model.py. */
struct stream_k {
  int32_t most, least_steps, added_steps;
};
extern const struct stream_k stream_k;
extern const char stream_k_demand[];  /* what it asks, in words */
extern const float far_behind;        /* of the least estimate: beyond, a row was not measured, and is not weighed */
extern const int32_t shared_rows;     /* of A, up to which blocks that share loads are weighed whatever the strides */
extern const int64_t shared_elements; /* of D, likewise */
extern const int32_t thin_rows;       /* of each group, up to which swapped tiles alone are weighed */

/* What of A and B of a row for E4M3 may be E5M2 instead: neither; A is, or B is; either one, or none, as it is told. */
enum pair { PAIR_E5M2_NONE, PAIR_E5M2_A, PAIR_E5M2_B, PAIR_TOLD };

/* One variant: written by aot/templates/table.c.j2. What choosing one looks at stands first, in one line of a cache. */
struct row {
  _Alignas(64) const struct fit *fit; /* NULL where nobody has measured: then the model counts */
  uint32_t guard;                     /* enum guard bits */
  uint32_t shared_bytes;
  uint32_t scratch_bytes; /* of device memory for each block */
  union {
    struct {
      int16_t block_m, block_n, block_k;
      uint8_t share_a, share_b; /* blocks of a cluster that load A's rows, or B's, for each other; 1: each its own */
    };
    uint64_t tile; /* these five */
  };
  uint8_t row_step; /* a tile's rows of A come in steps of so many, and are shared out evenly; 0: all of them, always */
  uint8_t row_least; /* where they are, a tile works on so many at least */
  uint8_t stream_k;  /* all blocks share all tiles evenly, and a second kernel adds: select/split.h */
  uint8_t ctas;
  uint8_t pair; /* enum pair */
  uint8_t op, a_type, d_type, precision, trans_a, trans_b;
  struct model model;
  int16_t target;
  uint8_t warps;
  uint8_t swap; /* operands are swapped: the tile is one of D transposed */
  const char *name, *entry, *sha256, *architecture, *family;
  launcher launch;
  int16_t registers;
  uint8_t persistent; /* blocks take many tiles: no more are launched than fit on the device */
  uint8_t overlaps;   /* waits by itself for the kernel ahead of it, and so may be started before that ends */
  uint32_t local_bytes;
  struct box boxes[TENSOR_COUNT];
  uint8_t parts; /* boxes of D that the kernel takes, and of C: 0, 1 or 4, of which a tile may not use all */
  uint32_t chunk, begin, cubin_bytes; /* where in an unpacked chunk its cubin is */
  /* Of the cubin's words of 8 bytes (little-endian, zeros at the end), from its size in bytes on: xor the word,
   * multiply by 2^64 over the golden ratio, xor the upper half into the lower. A word that changes, changes it. Sums of
   * words and of places would not do: one byte that changes before it is unpacked changes many words, in a pattern that
   * cancels. */
  uint64_t checksum;
};

/* 16-bit products that were measured as such, and the fit of the tile that won. Sizes are those of one of `count`; of
 * groups that share rows or K, as long as they are on average. */
struct known {
  int32_t m, n, k, count, layout;
  const struct fit *fit;
};

/* Rows of one target, in buckets by (op, types, layout). */
struct target {
  int16_t target, min_cuda, rows;
  uint8_t portable; /* its code runs on later minor revisions of the same major one too */
  const char *min_driver;
  const struct known *known;
  int32_t known_count;
  const uint16_t *buckets; /* bucket i holds rows[buckets[i]] to rows[buckets[i + 1]] */
};

/* Of the dense bucket that begins with rows[first], the rows that are the fastest somewhere in a bin: a bit each, in
 * `words` words for each of the bins of select/shortlist.h. */
struct shortlist {
  int32_t first, words;
  const uint64_t *noted;
};
extern const struct shortlist shortlists[];
extern const int32_t shortlist_count; /* 0: all rows are weighed, always */

/* A run of cubins packed together (launch/unpack.h), one behind the other. */
struct chunk {
  uint32_t offset, packed_bytes, bytes;
};

extern const struct row rows[];
extern const int32_t row_count;
extern const struct target targets[];
extern const int32_t target_count;

/* A compute capability that this version can be built for, and its usual product, for explain without a GPU. */
struct buildable {
  int16_t target, multiprocessors;
  uint32_t shared_bytes; /* of a block, at most */
  uint8_t portable, integrated;
};
extern const struct buildable buildables[];
extern const int32_t buildable_count;
extern const struct chunk chunks[];
extern const uint32_t chunk_count;
extern unsigned char chunk_bytes[]; /* room for one, unpacked; not touched before */
extern const char *const precision_names[PRECISION_LIMIT];
extern const int8_t type_index[DTYPE_LIMIT][DTYPE_LIMIT][PRECISION_LIMIT]; /* [a][d][precision]; -1: none such */
extern const int8_t type_count;
extern const unsigned char cubin_blob[];
extern const char build_id[];
extern const unsigned char manifest_blob[];
extern const uint64_t manifest_packed_bytes, manifest_bytes;
extern char manifest_text[]; /* where it is unpacked, with a final 0: memory that is not touched before */

/* Each row's loaded kernel, and the devices it was prepared for (bit = ordinal). Zero until first use. */
struct row_state {
  _Atomic(CUkernel) kernel;
  _Atomic(uint64_t) prepared;
};
extern struct row_state row_states[];

#endif
