/* error.h: sentences for what went wrong, and the way out of a function with them; small arithmetic. Included by all.
 */
#ifndef LIBGEMM_ERROR_H
#define LIBGEMM_ERROR_H

#include <string.h>

#include "launch/driver.h"

/* Write this thread's error sentence and return `status`. */
libgemm_status fail(libgemm_status status, const char *format, ...) __attribute__((cold, format(printf, 2, 3)));

/* Return early from a function with the status of a call that failed. */
#define TRY(call)                                    \
  do {                                               \
    libgemm_status try_status = (call);              \
    if (try_status != LIBGEMM_OK) return try_status; \
  } while (0)

/* The same for a driver call, whose failure becomes a sentence. */
#define TRY_CUDA(name, call)                                                \
  do {                                                                      \
    CUresult try_result = (call);                                           \
    if (try_result != CUDA_SUCCESS) return driver_failed(name, try_result); \
  } while (0)

/* Set bytes to 0 by a call of memset, on the way of every launch. For a constant size gcc writes "rep stos" in its
 * place, which takes several times as long to start as the call takes. */
static inline void clear(void *to, size_t bytes) {
  void *(*volatile set)(void *, int, size_t) = memset;
  set(to, 0, bytes);
}

static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
