/* cost.h: the time that a row will take. */
#ifndef LIBGEMM_SELECT_COST_H
#define LIBGEMM_SELECT_COST_H

#include "select/problem.h"

/* A row that may run a problem, and in how many pieces it then shares K of each tile (split_count). */
struct weighed {
  const struct row *row;
  int split;
};

/* Of 1 to MOST_ROWS rows, all fitted or none, the one of least time on a problem, and its microseconds. */
const struct row *least_time(const struct weighed *rows, int count, const struct problem *problem, float *us);

int32_t stride_class(int64_t ld, int bytes);

#endif
