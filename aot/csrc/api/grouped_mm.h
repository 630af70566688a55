/* grouped_mm.h: the parts of libgemm_grouped_mm that the product of a gated layer of experts has too. */
#ifndef LIBGEMM_API_GROUPED_MM_H
#define LIBGEMM_API_GROUPED_MM_H

#include "launch/call.h"
#include "select/operands.h"
#include "select/problem.h"

/* Read and check a call. Where it is not empty, *o is what it multiplies. */
libgemm_status check_grouped(const libgemm_grouped_mm_args *args, libgemm_grouped_mm_args *a, struct operands *o,
                             struct problem *p);

/* The guards that its memory and its scales meet. */
unsigned grouped_guards(const libgemm_grouped_mm_args *a, const struct operands *o);

/* INVALID_ARGUMENT unless `device`, which is entered, can use all that it reads and writes. */
libgemm_status check_grouped_pointers(const libgemm_grouped_mm_args *a, const struct operands *o,
                                      const struct device *device);

/* What a product may count on as a part of a layer. `early`: B and the ends are no work of the kernel ahead in the
 * stream, which began when they were there, so that B may be loaded before it is over. `tickets`: a counter that is
 * 0 when the kernel begins, by which blocks take tiles as the blocks come free; or NULL. */
struct layer_context {
  bool early;
  int32_t *tickets;
};

/* libgemm_grouped_mm as such a part; by itself it may count on nothing. */
libgemm_status multiply_groups(const libgemm_grouped_mm_args *args, struct layer_context layer);

/* What a launch is told of it. */
void place_grouped(const libgemm_grouped_mm_args *a, const struct operands *o, struct call *call);

#endif
