/* moe.h: what is between the parts of a layer of experts, and its products where weights are of 8 bits. */
#ifndef LIBGEMM_API_MOE_H
#define LIBGEMM_API_MOE_H

#include "libgemm.h"

/* The workspace, in bytes from its first. Of 8-bit weights also X's rows and H in 8 bits and their scales, and Z. */
struct layout {
  uint64_t rows, places, offs, counts, hidden, made, end;
  uint64_t x, x_scale, z, hidden_scale;
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

/* Queue them: from sorted rows to what experts made of them. */
libgemm_status queue_scaled(const libgemm_moe_args *a, const struct layout *l);

#endif
