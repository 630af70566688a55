/* plan_cache.h: what this thread last found out about a problem, and the tensor maps it last encoded. */
#ifndef LIBGEMM_LAUNCH_PLAN_CACHE_H
#define LIBGEMM_LAUNCH_PLAN_CACHE_H

#include "launch/call.h"
#include "select/problem.h"

/* What the last call by a plan used, and the next one most likely does. */
struct recent {
  CUfunction function;        /* the row's kernel in a context; NULL: none yet */
  unsigned long long context; /* which one: a context made anew has another number, also where its handle is the same */
  uint16_t maps[TENSOR_COUNT]; /* of each tensor, where cached_map found it */
};

/* How one dense call runs: what was found out about a problem. */
struct plan {
  const struct row *row;
  int splits;
  uint64_t semaphore_bytes;
  int64_t stream_steps; /* where all blocks share all tiles, and what adds up behind them; else 0 and NULL */
  const struct row *adder;
  int64_t blocks;           /* of the launch; of packed groups the most of it: what they need is counted anew */
  const struct row *copier; /* what must run before it, or NULL */
  struct recent *recent;    /* NULL where nothing is kept */
};

/* One matrix as a row's copies see it: all that its tensor map is made of. */
struct matrix {
  CUdeviceptr address;
  int64_t rows, cols, ld; /* as stored, in elements; of a gated product's B of one half */
  int64_t half, plane;    /* elements from one half to the next, and from one group's matrix to the next; 0 where the
                             map has no such dimension, or a length of 1 there */
  int32_t planes;         /* matrices, of groups that have one each; else 1 */
  int16_t device, bytes;  /* of an element */
  struct box box;
};

/* Finds out how a problem runs, from nothing but the problem and the GPU. */
typedef libgemm_status (*plan_maker)(const struct problem *problem, const struct device *device, struct plan *plan);

/* The plan of exactly this problem on this device: as this thread last made it, else made anew, in *made, and kept.
 * *plan is valid until the next call. Sets what of the GPU is part of the problem. */
libgemm_status plan_for(struct problem *problem, const struct device *device, plan_maker make, struct plan *made,
                        const struct plan **plan);

/* The tensor map of exactly this matrix that this thread last encoded, or NULL. Valid until the next cache_map.
 * *recent, unless it is NULL, says where to look first, and then where it was. */
struct tensor_map *cached_map(const struct matrix *matrix, uint16_t *recent);
void cache_map(const struct matrix *matrix, const struct tensor_map *map);

/* A plan's kernel in the current context, as call.function is to be; NULL where that cannot be had. */
CUfunction function_of(const struct plan *plan, const struct device *device);

#endif
