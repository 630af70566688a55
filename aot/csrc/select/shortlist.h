/* shortlist.h: which rows of a dense bucket can be the fastest for a problem, from tables that the build made.
 *
 * A problem lies in one bin on each of several sides: its sizes, two sizes at once, its strides, what it meets.
 * aot/shortlist.c drew problems, asked for the fastest of all rows, and noted that row in the problem's bins. A row
 * that is noted in all the bins where a new problem lies is worth weighing: of a hundred rows some twenty. */
#ifndef LIBGEMM_SELECT_SHORTLIST_H
#define LIBGEMM_SELECT_SHORTLIST_H

#include "select/problem.h"

/* Where the bins of each side begin. */
enum {
  BINS_OF_M = 0, /* a quarter of an octave each, as those of N, K and M * N */
  BINS_OF_N = BINS_OF_M + 64,
  BINS_OF_K = BINS_OF_N + 64,
  BINS_OF_D = BINS_OF_K + 64,
  BINS_OF_M_N = BINS_OF_D + 128, /* an octave of each */
  BINS_OF_N_K = BINS_OF_M_N + 256,
  BINS_OF_M_K = BINS_OF_N_K + 256,
  BINS_OF_STRIDES = BINS_OF_M_K + 256, /* stride_class of A and of B */
  BINS_OF_TERMS = BINS_OF_STRIDES + 16,
  SHORTLIST_BINS = BINS_OF_TERMS + 24,
  SHORTLIST_SIDES = 9
};

/* Rows from the first of a bucket on, a bit each. */
enum { ROW_WORDS = MOST_ROWS / 64 };
_Static_assert(MOST_ROWS % 64 == 0, "whole words");

/* The problem's bin on each side. False for one that tables do not speak of: of many products, with an order of sums
 * that is asked for, of memory that TMA does not read, on a GPU of another size than tuning's. */
bool bins_of(const struct problem *problem, int bins[SHORTLIST_SIDES]);

/* The rows of the bucket that begins with rows[first] that are worth weighing; false where all of them are. */
bool shortlist_of(const struct problem *problem, int first, uint64_t listed[ROW_WORDS]);

#endif
