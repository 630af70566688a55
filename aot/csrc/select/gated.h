/* gated.h: the row that multiplies by 8-bit weights of experts, gates and casts, all in one launch. */
#ifndef LIBGEMM_SELECT_GATED_H
#define LIBGEMM_SELECT_GATED_H

#include "select/problem.h"

enum { MOST_TOKEN_CHOICES = 32 }; /* of one token that the product spreads by itself, in the lanes of a warp */

/* Whether there may be such a row for `m` rows of all `groups` and `n` columns behind the gate: seen at once of the
 * many calls that have none. */
bool may_be_gated(int64_t m, int64_t groups, int64_t n);

/* Whether its tiles are of few rows, and stand in pairs, which the blocks of a cluster take. */
bool has_pairs(const struct row *row);

/* The row, of a problem whose guards say what is met; NULL: there is none. With GUARD_ONE_TOKEN met the product of one
 * token alone is looked for, without it no such one. */
const struct row *gated_row(const struct problem *problem, const struct target *target, int64_t m, int64_t groups);

#endif
