/* cost.h: the time that a row will take. */
#ifndef LIBGEMM_SELECT_COST_H
#define LIBGEMM_SELECT_COST_H

#include "select/problem.h"

/* What a problem asks of a row, by rates alone: microseconds, and what they are made of. */
struct estimate {
  float us, plain_us, load, multiply, memory, l2, waves, tiles, steps, split;
};
void estimate(const struct row *row, const struct problem *problem, struct estimate *out);

/* Microseconds by the row's fit; the estimate's where it has none. */
float fitted_us(const struct row *row, const struct problem *problem, const struct estimate *e);
int32_t stride_class(int64_t ld, int bytes);

#endif
