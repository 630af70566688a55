/* moe.h: what is between the parts of a layer of experts, and its products where weights are of 8 bits. */
#ifndef LIBGEMM_API_MOE_H
#define LIBGEMM_API_MOE_H

#include <stdbool.h>

#include "launch/device.h"
#include "libgemm.h"

/* The workspace, in bytes from its first. Of 8-bit weights also X's rows and H in 8 bits and their scales, and Z. */
struct layout {
  uint64_t rows, places, offs, counts, tickets, hidden, made, end;
  uint64_t x, x_scale, z, hidden_scale;
};

/* The next of it, which begins on 128 bytes. */
static inline uint64_t place(uint64_t *end, uint64_t bytes) {
  uint64_t here = *end;
  *end = here + (bytes + 127) / 128 * 128;
  return here;
}

/* libgemm_moe_route, which sets tickets[0] and tickets[1] to 0 as well unless they are NULL: a counter for each product
 * of the layer. They must be NULL unless gives_tickets(tokens * top_k): few choices are sorted by a launch that sets
 * none. */
libgemm_status route_layer(const libgemm_moe_route_args *args, int32_t *tickets);
bool gives_tickets(int64_t entries);

/* The layer's two counters in its workspace, or NULL where routing sets none to 0. */
int32_t *tickets_of(const libgemm_moe_args *a, const struct layout *l);

/* libgemm_moe_mm with such a counter, or NULL. */
libgemm_status multiply_experts(const libgemm_moe_mm_args *args, int32_t *tickets);

/* INVALID_ARGUMENT or UNSUPPORTED unless the words that say how weights are scaled go together. */
libgemm_status check_scaled_layer(const libgemm_moe_args *a);

/* Places of what its products need, from tickets on. */
void place_scaled(const libgemm_moe_args *a, struct layout *l);

/* Rows of X cast to 8 bits with scales of 1X128, each to the row of D that each of its choices has: D's begin on 16
 * bytes, ldd apart. */
struct spread {
  const libgemm_moe_route_args *route; /* whose places say where */
  int32_t *tickets;                    /* as in route_layer */
  const void *a;                       /* [tokens][n], lda */
  void *d, *scale;
  int64_t n, lda, ldd;
  int64_t scale_stride_m, scale_stride_n; /* as in libgemm_moe_cast_args */
  int32_t a_type;
};
libgemm_status spread_cast(const struct spread *s);

/* What that checks first: INVALID_ARGUMENT or UNSUPPORTED unless sizes and pointers to X and ids are allowed. */
libgemm_status check_spread(const struct spread *s);
libgemm_status check_spread_pointers(const struct spread *s, const struct device *device);

/* Whether it finds the places of so few choices, and their experts' ends, in the same launch. */
bool spreads_by_itself(int64_t entries);

/* INVALID_ARGUMENT unless its types, sizes and gate are allowed. */
libgemm_status check_moe_cast(const libgemm_moe_cast_args *a);

struct layer_context; /* of grouped_mm.h */

/* Rows spread as `s` says (none, if they have no columns), their product with scales of blocks, and `cast` of its D,
 * which nobody else reads. *next: what the next product may count on. */
libgemm_status spread_and_multiply(const struct spread *s, const libgemm_grouped_mm_args *product,
                                   const libgemm_moe_cast_args *cast, struct layer_context *next);

/* Queue them: from the router's choices to what experts made of them. */
libgemm_status queue_scaled(const libgemm_moe_args *a, const libgemm_moe_route_args *route, const struct layout *l);

#endif
