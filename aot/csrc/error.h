/* error.h: sentences for what went wrong, and the way out of a function with them; small arithmetic. Included by all.
 */
#ifndef LIBGEMM_ERROR_H
#define LIBGEMM_ERROR_H

#include <stddef.h>
#include <stdint.h>

#include "launch/driver.h"

/* Write this thread's error sentence and return `status`. */
libgemm_status fail(libgemm_status status, const char *format, ...) __attribute__((cold, format(printf, 2, 3)));

/* Of functions on the way of every launch: the compiler puts them together, so that a call touches few pages of code.
 */
#define HOT __attribute__((hot))

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

/* Set bytes, a multiple of 8, to 0 on the way of every launch. For a constant size gcc makes of memset, and of a plain
 * loop, "rep stos", which on many processors takes longer to start than these stores take. */
static inline void clear(void *to, size_t bytes) {
  typedef uint64_t pair __attribute__((vector_size(16), aligned(8), may_alias));
  char *at = to;
#pragma GCC unroll 32
  for (size_t i = 0; i + sizeof(pair) <= bytes; i += sizeof(pair)) {
    *(pair *)(at + i) = (pair){0, 0};
    __asm__ volatile("" ::: "memory");
  }
  if (bytes % sizeof(pair)) *(uint64_t *)(at + bytes - sizeof(uint64_t)) = 0;
}

/* Of a >= 0 and b > 0. Division of 64 bits takes many processors several times as long as one of 32. */
static inline int64_t ceil_div(int64_t a, int64_t b) {
  if ((uint64_t)(a | b) >> 32) return a / b + (a % b != 0);
  return (int64_t)((uint32_t)a / (uint32_t)b) + ((uint32_t)a % (uint32_t)b != 0);
}
/* The same of a size, 0 to LIBGEMM_MAX_SIZE, in blocks of a tile's extent: a division of 32 bits. */
static inline int64_t blocks_of(int64_t size, int64_t block) {
  return ((uint32_t)size + (uint32_t)block - 1) / (uint32_t)block;
}
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
