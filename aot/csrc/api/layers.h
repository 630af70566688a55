/* layers.h: what the calls of a layer of experts share: checks of their words, and how they say gates to kernels. */
#ifndef LIBGEMM_API_LAYERS_H
#define LIBGEMM_API_LAYERS_H

#include "launch/call.h"
#include "select/problem.h"

/* All of these are INVALID_ARGUMENT unless the layer's types are served, */
libgemm_status check_layer_type(int32_t a_type);

/* all choices together can be counted, */
libgemm_status check_choices(int64_t tokens, int64_t top_k);

/* weights, where there are some, have a type, */
libgemm_status check_weights(const void *weights, int32_t weights_type);

/* a count of rows goes with the index into them, */
libgemm_status check_count(const char *name, int64_t count, const char *index_name, bool indexed, int64_t m);

/* and the gate is one that there is, for `n` columns of both halves. */
libgemm_status check_gate(int32_t gate, int64_t n, int32_t activation, float gate_limit);

/* The gate's numbers: without a limit those with which the clamped form is the plain one. */
void place_gate(int32_t gate, float gate_alpha, float gate_limit, struct call *call);

/* The first row of the problem's bucket that takes it and has tiles of that size, loaded. A height of 8 stands for rows
 * whose tiles have none; a width of 0 for any. */
libgemm_status row_of_tile(const struct problem *p, int block_m, int block_n, const struct device *device,
                           const struct row **row);

#endif
