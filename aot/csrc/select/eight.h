/* eight.h: arithmetic on eight floats at once, without libm. Vectors of GCC's kind, which clang has too: a processor
 * without AVX2 takes them in halves. All of it is inlined, so that a function made for AVX2 has it so. */
#ifndef LIBGEMM_SELECT_EIGHT_H
#define LIBGEMM_SELECT_EIGHT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wpsabi" /* how vectors are passed to a function: none is */
#endif

typedef float eight __attribute__((vector_size(32)));
typedef int32_t eight_ints __attribute__((vector_size(32)));
typedef float four __attribute__((vector_size(16)));

/* Functions for which the compiler may take AVX2, and no FMA: a product is rounded alike on every processor. */
#ifdef __x86_64__
#define FOR_AVX2 __attribute__((target("avx2")))
#define HAS_AVX2 __builtin_cpu_supports("avx2")
#else
#define FOR_AVX2
#define HAS_AVX2 false
#endif
#define INLINED static inline __attribute__((always_inline))

/* From any address. */
INLINED eight eight_at(const float *from) {
  eight x;
  memcpy(&x, from, sizeof x);
  return x;
}

INLINED four four_at(const float *from) {
  four x;
  memcpy(&x, from, sizeof x);
  return x;
}

INLINED void put(four x, float *to) { memcpy(to, &x, sizeof x); }

/* The first four of eight, and the others. */
INLINED four low_of(eight x) {
  four low;
  memcpy(&low, &x, sizeof low);
  return low;
}

INLINED four high_of(eight x) {
  four high;
  memcpy(&high, (const char *)&x + sizeof high, sizeof high);
  return high;
}

INLINED eight eight_ints_at(const int32_t *from) {
  eight_ints x;
  memcpy(&x, from, sizeof x);
  return __builtin_convertvector(x, eight);
}

INLINED eight eight_of(float x) { return (eight){x, x, x, x, x, x, x, x}; }
INLINED float sum_of(four x) { return (x[0] + x[1]) + (x[2] + x[3]); }
INLINED eight fourth(eight x) { return (x * x) * (x * x); }

/* x where a comparison held, else y. */
INLINED eight one_of(eight_ints held, eight x, eight y) {
  return (eight)(((eight_ints)x & held) | ((eight_ints)y & ~held));
}

/* The lesser of each two; of a NaN and a number, the latter if it is y. */
INLINED eight least_of(eight x, eight y) { return one_of(x < y, x, y); }

INLINED float least_in(eight x) {
  four low = low_of(x), high = high_of(x);
  float least = 1e30f;
  for (int i = 0; i < 4; i++) {
    float lesser = low[i] < high[i] ? low[i] : high[i];
    if (lesser < least) least = lesser;
  }
  return least;
}

INLINED eight most_of(eight x, eight y) { return one_of(x > y, x, y); }

/* The next whole number, of 0 <= x < 2^22; of a larger x as near as floats are. */
INLINED eight whole_of(eight x) {
  eight nearest = (x + 8388608.0f) - 8388608.0f;
  return nearest + one_of(nearest < x, eight_of(1), eight_of(0));
}

/* log2 to 2e-5, of 1 exactly: x = 2^e * (1 + s) with 1 + s from 2^-0.5 to 2^0.5, and a polynomial for log(1 + s). */
INLINED eight log2_of(eight x) {
  eight_ints bits = (eight_ints)x - 0x3F3504F3;
  eight s = (eight)((bits & 0x7FFFFF) + 0x3F3504F3) - 1.0f;
  eight high = 0.48668608f + s * (-0.39457583f + s * 0.2526615f);
  return __builtin_convertvector(bits >> 23, eight) + s * (1.442578f + s * (-0.72024179f + s * high));
}

#if defined __clang__ || __GNUC__ >= 12
#define PICK(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define PICK(x, y, ...) __builtin_shuffle(x, y, (eight_ints){__VA_ARGS__})
#endif

/* Rows of two matrices of 4 x 4, side by side, become their columns, side by side. */
INLINED void turn(const eight *rows, eight *columns) {
  eight low = PICK(rows[0], rows[1], 0, 8, 1, 9, 4, 12, 5, 13);
  eight low_next = PICK(rows[2], rows[3], 0, 8, 1, 9, 4, 12, 5, 13);
  eight high = PICK(rows[0], rows[1], 2, 10, 3, 11, 6, 14, 7, 15);
  eight high_next = PICK(rows[2], rows[3], 2, 10, 3, 11, 6, 14, 7, 15);
  columns[0] = PICK(low, low_next, 0, 1, 8, 9, 4, 5, 12, 13);
  columns[1] = PICK(low, low_next, 2, 3, 10, 11, 6, 7, 14, 15);
  columns[2] = PICK(high, high_next, 0, 1, 8, 9, 4, 5, 12, 13);
  columns[3] = PICK(high, high_next, 2, 3, 10, 11, 6, 7, 14, 15);
}

/* Of x >= 0, by way of x^(-1/4): the first guess, a quarter of the exponent, is right to 4%, the next by Newton's way
 * to 0.4%, and the last, by a term more of the same series, to 1e-6. */
INLINED eight fourth_root(eight x) {
  x = least_of(x, eight_of(1e36f)); /* what overflowed is as large */
  eight y = (eight)(0x4F58CAE3 - ((eight_ints)x >> 2)), square = y * y;
  y *= 1.25f - 0.25f * (x * square) * square;
  square = y * y;
  eight error = 1.0f - (x * square) * square;
  y += y * error * (0.25f + 0.15625f * error);
  return x * y * (y * y);
}

/* -120 to 120: so is a NaN, of sizes that no memory holds. */
INLINED float in_range(float x) { return !(x < 120) ? 120 : x < -120 ? -120 : x; }

/* Of x in that range. */
INLINED float exp2_of(float x) {
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
