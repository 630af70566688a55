/* rows.h: which rows of the table may run a problem, what the others need, and the fastest. */
#ifndef LIBGEMM_SELECT_ROWS_H
#define LIBGEMM_SELECT_ROWS_H

#include "select/problem.h"

/* Why a row may not run, beside guard bits. */
enum refusal {
  NOT_BATCH_INVARIANT = 1 << 24,
  NOT_EQUAL = 1 << 25,
  TOO_LARGE = 1 << 26,
  NOT_GATED = 1 << 27,
  NOT_ITS_PAIR = 1 << 28,
  NOT_WORTH_SHARING = 1 << 29
};

/* The rows that compute a problem at all: rows[*first] to rows[*end]. */
void bucket_of(const struct problem *problem, const struct target *target, int *first, int *end);

/* Guard bits of the row that the problem does not meet, and enum refusal; 0 where it may run. */
unsigned refused(const struct row *row, const struct problem *problem);

/* The words for the first of these refusals; NULL for none that has some. */
const char *demand_of(const struct problem *problem, unsigned missing);

/* Among these rows, those whose every guard bit is in `ignored` or met: the one of least time, or NULL. */
const struct row *fastest(const struct problem *problem, int first, int end, unsigned ignored, float *us);

/* The tile that won where just these 16-bit products were measured; NULL where they were not, or it may not run. */
const struct row *known_winner(const struct problem *problem, const struct target *target, int first, int end);

#endif
