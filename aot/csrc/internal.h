/* internal.h: all that the hand-written and the generated C share, by room. Not installed.
 *
 * api/      what libgemm.h declares: read and check arguments, then select, then launch
 * select/   from a problem to a row of the table
 * launch/   from a row to a kernel in a stream: driver, devices, loading, tensor maps, plan cache
 */
#ifndef LIBGEMM_INTERNAL_H
#define LIBGEMM_INTERNAL_H

#include "api/arguments.h"
#include "api/layers.h"
#include "error.h"
#include "launch/call.h"
#include "launch/device.h"
#include "launch/plan_cache.h"
#include "select/choice.h"
#include "select/copies.h"
#include "select/cost.h"
#include "select/gated.h"
#include "select/operands.h"
#include "select/problem.h"
#include "select/rows.h"
#include "select/shortlist.h"
#include "select/split.h"
#include "table.h"

#endif
