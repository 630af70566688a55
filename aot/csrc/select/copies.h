/* copies.h: copies of A or B to rows that TMA can read, before a product. */
#ifndef LIBGEMM_SELECT_COPIES_H
#define LIBGEMM_SELECT_COPIES_H

#include "select/choice.h"

/* What is copied before a product: stored rows (0: nothing) and columns of A and of B, whether they are transposed on
 * the way, the copies' leading dimensions and bytes. The copies stand first in the workspace. */
struct copies {
  int64_t rows[2], cols[2], ld[2];
  int32_t turn[2];
  uint64_t bytes[2];
};
struct copies copies_of(const struct problem *problem);

/* The best row behind a copier, if that is faster than `us` and the workspace holds the copies: then *choice is that.
 */
void aligned_first(const struct problem *problem, const struct target *target, float us, struct choice *choice);

/* Queue them. *workspace is its first byte, and becomes the first behind the copies; `call` gets what the copier takes,
 * and then the copies for A and B. */
libgemm_status queue_copies(const struct problem *problem, const struct row *copier, const struct device *device,
                            struct call *call, CUdeviceptr *workspace, libgemm_stream stream);

#endif
