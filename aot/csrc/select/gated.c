/* gated.c: which row multiplies, gates and casts a layer's first product in 8 bits at once. No estimate: a product of
 * few rows and one of many have a tile each that fits. */
#include "internal.h"

enum {
  PART = 64,  /* columns of the gate, in steps of which B's blocks of scales begin the same for gate and up */
  LARGE = 64, /* rows of a group, in the mean, from which tiles of many rows pay, */
  FEW = 16,   /* and to which those of few; between, lower tiles and a launch more take less time */
};

bool may_be_gated(int64_t m, int64_t groups, int64_t n) {
  return n && n % PART == 0 && m && (m <= groups * FEW || m >= groups * LARGE);
}

bool has_pairs(const struct row *row) { return row->block_m < LARGE; }

/* Of tiles of few rows the lowest one that groups fill by half, or less: a group of more takes B again. */
static bool suits(const struct row *row, int64_t m, int64_t groups) {
  if (row->guard & GUARD_ONE_TOKEN) return true;
  return has_pairs(row) ? m <= groups * (row->block_m / 2) : m >= groups * LARGE;
}

const struct row *gated_row(const struct problem *p, const struct target *target, int64_t m, int64_t groups) {
  unsigned one_token = p->met & GUARD_ONE_TOKEN;
  int first, end;
  bucket_of(p, target, &first, &end);
  for (int i = first; i < end; i++)
    if (!refused(&rows[i], p) && suits(&rows[i], m, groups) && one_token == (rows[i].guard & GUARD_ONE_TOKEN))
      return &rows[i];
  return NULL;
}
