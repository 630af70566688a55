/* four.h: arithmetic on four floats at once, without libm. Vectors of GCC's kind, which clang has too: SSE and NEON. */
#ifndef LIBGEMM_SELECT_FOUR_H
#define LIBGEMM_SELECT_FOUR_H

#include <stdint.h>
#include <string.h>

typedef float four __attribute__((vector_size(16)));
typedef int32_t four_ints __attribute__((vector_size(16)));

/* From any address. */
static inline four four_at(const float *from) {
  four x;
  memcpy(&x, from, sizeof x);
  return x;
}

static inline void put(four x, float *to) { memcpy(to, &x, sizeof x); }

static inline four four_ints_at(const int32_t *from) {
  four_ints x;
  memcpy(&x, from, sizeof x);
  return __builtin_convertvector(x, four);
}

static inline four four_of(float x) { return (four){x, x, x, x}; }
static inline float sum_of(four x) { return (x[0] + x[1]) + (x[2] + x[3]); }
static inline four fourth(four x) { return (x * x) * (x * x); }

/* x where a comparison held, else y. */
static inline four one_of(four_ints held, four x, four y) {
  return (four)(((four_ints)x & held) | ((four_ints)y & ~held));
}

/* The lesser of each two; of a NaN and a number, the latter if it is y. */
static inline four least_of(four x, four y) { return one_of(x < y, x, y); }

static inline four most_of(four x, four y) { return one_of(x > y, x, y); }

/* log2 to 2e-5: x = 2^e * m with 1 <= m < 2, and log m by its series in (m - 1) / (m + 1). */
static inline four log2_of(four x) {
  four_ints bits = (four_ints)x;
  four exponent = __builtin_convertvector((bits >> 23) - 127, four);
  four m = (four)((bits & 0x7FFFFF) | 0x3F800000);
  four s = (m - 1.0f) / (m + 1.0f), t = s * s;
  return exponent + s * (2.8853901f + t * (0.9617967f + t * (0.5770780f + t * 0.4121986f)));
}

/* Of x >= 0, by Newton's way to x^(-1/4): the first guess, a quarter of the exponent, is right to 4%, the last to 1e-7.
 */
static inline four fourth_root(four x) {
  x = least_of(x, four_of(1e36f)); /* what overflowed is as large */
  four y = (four)(0x4F58CAE3 - ((four_ints)x >> 2));
#pragma GCC unroll 3
  for (int i = 0; i < 3; i++) {
    four square = y * y;
    y *= 1.25f - 0.25f * (x * square) * square;
  }
  return x * y * (y * y);
}

/* -120 to 120: so is a NaN, of sizes that no memory holds. */
static inline float in_range(float x) { return !(x < 120) ? 120 : x < -120 ? -120 : x; }

/* Of x in that range. */
static inline float exp2_of(float x) {
  int whole = (int)x - (x < 0);
  float y = (x - (float)whole) * 0.69314718f, power = 1, term = 1;
#pragma GCC unroll 8
  for (int i = 1; i < 9; i++) {
    term *= y / (float)i;
    power += term;
  }
  uint32_t bits = (uint32_t)(whole + 127) << 23;
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return power * scale;
}

#endif
