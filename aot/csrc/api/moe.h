/* moe.h: what is between the parts of a layer of experts, and its products where weights are of 8 bits. */
#ifndef LIBGEMM_API_MOE_H
#define LIBGEMM_API_MOE_H

#include "libgemm.h"

/* The workspace, in bytes from its first. Of 8-bit weights also X's rows and H in 8 bits and their scales, X so
 * where it is cast first, and Z. */
struct layout {
  uint64_t rows, places, offs, counts, hidden, made, end;
  uint64_t x, x_scale, cast, cast_scale, z, hidden_scale;
};

/* The next of it, which begins on 128 bytes. */
static inline uint64_t place(uint64_t *end, uint64_t bytes) {
  uint64_t here = *end;
  *end = here + (bytes + 127) / 128 * 128;
  return here;
}

/* INVALID_ARGUMENT or UNSUPPORTED unless the words that say how weights are scaled go together. */
libgemm_status check_scaled_layer(const libgemm_moe_args *a);

/* Places of what its products need, from counts on. */
void place_scaled(const libgemm_moe_args *a, struct layout *l);

/* Rows of A of 8 bits, `n` bytes one behind the other, and their scales of 1X128, those of a column of blocks one
 * behind the other: row rows[i] of a_count goes to row i of m. All begin on 16 bytes. */
struct gathered {
  const void *a, *a_scale, *rows;
  void *d, *scale;
  int64_t m, n, a_count;
};
libgemm_status gather_cast(const struct gathered *g, libgemm_stream stream);

/* INVALID_ARGUMENT unless its types, sizes and gate are allowed. */
libgemm_status check_moe_cast(const libgemm_moe_cast_args *a);

/* A product with scales of blocks, and `cast` of its D, which nobody else reads. */
libgemm_status multiply_and_cast(const libgemm_grouped_mm_args *product, const libgemm_moe_cast_args *cast);

/* Queue them: from sorted rows to what experts made of them. */
libgemm_status queue_scaled(const libgemm_moe_args *a, const struct layout *l);

#endif
