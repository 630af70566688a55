/* split.h: how blocks split K of a tile, and the workspace of that. */
#ifndef LIBGEMM_SELECT_SPLIT_H
#define LIBGEMM_SELECT_SPLIT_H

#include "select/problem.h"

/* Kernels count tiles in 32 bits, and go on by the grid: past the last tile too. No GPU holds a larger grid of blocks
 * that take many tiles. */
enum { MOST_TILES = INT32_MAX - 65535 };

/* Tiles of one product. */
int64_t tile_count(const struct row *row, const struct problem *problem);

/* Clusters of `size` blocks that so many multiprocessors hold, a block each. */
int64_t clusters_at_once(int multiprocessors, int size);

/* Of a row whose blocks share all tiles evenly (row->stream_k): how many blocks, or clusters, there are to share, and
 * the steps in K of each; 0 steps where that cannot pay. Of clusters a tile is those of all their blocks. */
int64_t sharers_of(const struct row *row, const struct problem *problem);
int64_t stream_steps(const struct row *row, const struct problem *problem);

/* In how many pieces a row shares K of each tile, of a group's by the K that is expected of it (1: it does not, or the
 * problem has no use for it), and the bytes of workspace that takes: an int64 for each tile, then a float32 tile for
 * each piece; of blocks that share all tiles, a float32 tile for each block and each tile. */
int shared_split(const struct row *row, const struct problem *problem); /* of rows that share K */
static inline int split_count(const struct row *row, const struct problem *problem) {
  return row->guard & (GUARD_CLUSTER | GUARD_WORKSPACE) ? shared_split(row, problem) : 1;
}
uint64_t split_workspace(const struct row *row, const struct problem *problem);
uint64_t workspace_of_split(const struct row *row, const struct problem *problem, int split);
uint64_t semaphore_bytes(const struct row *row, const struct problem *problem);

/* Bytes of workspace in which each block of a row has its scratch_bytes, wherever the workspace begins. */
enum { SCRATCH_ALIGN = 128 };
uint64_t scratch_workspace(const struct row *row, const struct problem *problem);

/* A number no other launch of this process has, from a random one on: but for a chance of 2^-54 nothing that is in
 * memory, of this process or of one before it, equals it. */
int64_t next_epoch(void);

#endif
