/* split.c: K of a tile shared by several blocks: in how many pieces, and what they meet in. */
#define _DEFAULT_SOURCE /* syscall */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

int64_t tile_count(const struct row *row, const struct problem *p) {
  return blocks_of(p->rows, row->block_m) * blocks_of(p->n, row->block_n);
}

int64_t clusters_at_once(int multiprocessors, int size) {
  int64_t count = (int64_t)cluster_counts[size] * multiprocessors / 132;
  return count > 1 ? count : 1; /* of a slice of a GPU */
}

/* Whether pieces of equal length, but for the last, can be so many: of more steps than that, they can. */
static bool has_pieces(int64_t steps, int pieces) {
  return steps > (pieces - 1) * (pieces - 1) || ceil_div(steps, ceil_div(steps, pieces)) == pieces;
}

static int cluster_size(int64_t tiles, int64_t steps, const struct problem *p) {
  if (tiles > clusters_at_once(p->multiprocessors, 2)) return 1; /* of larger ones start no more */
  for (int size = (int)least(MOST_CLUSTER, steps); size >= 2; size--)
    if (tiles <= clusters_at_once(p->multiprocessors, size) && has_pieces(steps, size)) return size;
  return 1;
}

int64_t sharers_of(const struct row *row, const struct problem *p) {
  return row->ctas > 1 ? clusters_at_once(p->multiprocessors, row->ctas) : p->multiprocessors;
}

/* Tiles, or of clusters those of all their blocks. */
static int64_t shared_tiles(const struct row *row, const struct problem *p) {
  return ceil_div(blocks_of(p->rows, row->block_m), row->share_b) *
         ceil_div(blocks_of(p->n, row->block_n), row->share_a);
}

int64_t stream_steps(const struct row *row, const struct problem *p) {
  int64_t tiles = shared_tiles(row, p), all = sharers_of(row, p);
  if (tiles >= all || tiles * stream_k.most < all) return 0;
  int64_t each = ceil_div(tiles * blocks_of(p->k, row->block_k), all);
  return each >= stream_k.least_steps && each <= INT32_MAX / all ? each : 0;
}

/* Whether D is so large that there are too many tiles to share: asked without a division. */
static bool has_many_tiles(const struct row *row, const struct problem *p) {
  double most = row->stream_k ? p->multiprocessors : p->multiprocessors > 2 ? p->multiprocessors / 2 : 1;
  return (double)p->rows * (double)p->n * (double)p->count >
         most * (row->block_m * row->block_n * (row->share_a * row->share_b));
}

int shared_split(const struct row *row, const struct problem *p) {
  enum { MOST = 64 }; /* a slot counts to 255 */
  if (p->rows == 0 || p->n == 0 || p->k == 0 || p->count == 0) return 1;
  if ((p->count != 1 && p->op != OP_GROUPED_MM) || has_many_tiles(row, p)) return 1;
  if (row->stream_k) return stream_steps(row, p) ? (int)ceil_div(sharers_of(row, p), shared_tiles(row, p)) : 1;
  int64_t tiles = least(tile_count(row, p), INT32_MAX) * p->count, steps = blocks_of(p->k, row->block_k);
  if (row->guard & GUARD_CLUSTER) return cluster_size(tiles, steps, p);
  if (2 * tiles > p->multiprocessors) return 1;
  return (int)ceil_div(steps, ceil_div(steps, least(least(p->multiprocessors / (int)tiles, steps), MOST)));
}

uint64_t semaphore_bytes(const struct row *row, const struct problem *p) {
  if (row->stream_k) return 0;
  return (uint64_t)ceil_div(tile_count(row, p) * (int64_t)sizeof(int64_t), 128) * 128;
}

uint64_t split_workspace(const struct row *row, const struct problem *p) {
  return workspace_of_split(row, p, split_count(row, p));
}

uint64_t workspace_of_split(const struct row *row, const struct problem *p, int splits) {
  if (!(row->guard & GUARD_WORKSPACE) || splits < 2) return 0;
  uint64_t piece = (uint64_t)row->block_m * (uint64_t)row->block_n * sizeof(float);
  if (row->stream_k) return (uint64_t)(sharers_of(row, p) + shared_tiles(row, p)) * row->ctas * piece;
  return semaphore_bytes(row, p) + (uint64_t)tile_count(row, p) * (uint64_t)splits * piece;
}

uint64_t scratch_workspace(const struct row *row, const struct problem *p) {
  if (!row->scratch_bytes) return 0;
  return (uint64_t)row->scratch_bytes * (uint64_t)p->multiprocessors + SCRATCH_ALIGN;
}

/* Of the kernel; on one older than 3.17, of the clock and of where this process lies in memory. */
static uint64_t random_word(void) {
  uint64_t random;
  if (syscall(SYS_getrandom, &random, sizeof random, 0) == sizeof random) return random;
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return ((uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uint64_t)(uintptr_t)&now) * 0x9E3779B97F4A7C15u;
}

int64_t next_epoch(void) {
  static _Atomic(uint64_t) next; /* 0: not begun */
  uint64_t none = 0;
  if (atomic_load_explicit(&next, memory_order_relaxed) == 0)
    atomic_compare_exchange_strong(&next, &none, random_word() | 1); /* one of several threads begins */
  return (int64_t)(atomic_fetch_add(&next, 1) & (((uint64_t)1 << 54) - 1));
}
