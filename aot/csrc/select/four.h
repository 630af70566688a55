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

static inline float least_in(four x) {
  float one = x[0] < x[1] ? x[0] : x[1], other = x[2] < x[3] ? x[2] : x[3];
  return one < other ? one : other;
}

static inline four most_of(four x, four y) { return one_of(x > y, x, y); }

/* The next whole number, of 0 <= x < 2^22; of a larger x as near as floats are. */
static inline four whole_of(four x) {
  four nearest = (x + 8388608.0f) - 8388608.0f;
  return nearest + one_of(nearest < x, four_of(1), four_of(0));
}

/* log2 to 2e-5, of 1 exactly: x = 2^e * (1 + s) with 1 + s from 2^-0.5 to 2^0.5, and a polynomial for log(1 + s). */
static inline four log2_of(four x) {
  four_ints bits = (four_ints)x - 0x3F3504F3;
  four s = (four)((bits & 0x7FFFFF) + 0x3F3504F3) - 1.0f;
  four high = 0.48668608f + s * (-0.39457583f + s * 0.2526615f);
  return __builtin_convertvector(bits >> 23, four) + s * (1.442578f + s * (-0.72024179f + s * high));
}

/* Rows of a matrix of 4 x 4 become its columns. */
#if defined __clang__ || __GNUC__ >= 12
#define PICK(x, y, a, b, c, d) __builtin_shufflevector(x, y, a, b, c, d)
#else
#define PICK(x, y, a, b, c, d) __builtin_shuffle(x, y, (four_ints){a, b, c, d})
#endif
static inline void turn(const four *rows, four *columns) {
  four low = PICK(rows[0], rows[1], 0, 4, 1, 5), low_next = PICK(rows[2], rows[3], 0, 4, 1, 5);
  four high = PICK(rows[0], rows[1], 2, 6, 3, 7), high_next = PICK(rows[2], rows[3], 2, 6, 3, 7);
  columns[0] = PICK(low, low_next, 0, 1, 4, 5), columns[1] = PICK(low, low_next, 2, 3, 6, 7);
  columns[2] = PICK(high, high_next, 0, 1, 4, 5), columns[3] = PICK(high, high_next, 2, 3, 6, 7);
}

/* Of x >= 0, by way of x^(-1/4): the first guess, a quarter of the exponent, is right to 4%, the next by Newton's way
 * to 0.4%, and the last, by a term more of the same series, to 1e-6. */
static inline four fourth_root(four x) {
  x = least_of(x, four_of(1e36f)); /* what overflowed is as large */
  four y = (four)(0x4F58CAE3 - ((four_ints)x >> 2)), square = y * y;
  y *= 1.25f - 0.25f * (x * square) * square;
  square = y * y;
  four error = 1.0f - (x * square) * square;
  y += y * error * (0.25f + 0.15625f * error);
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
