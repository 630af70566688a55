// bytes.c: from input bytes to numbers: mostly ordinary ones, sometimes those at limits. Calls nothing.
#include "fuzz.h"

uint8_t byte(struct bytes *in) { return in->at == in->end ? 0 : *in->at++; }

uint64_t word(struct bytes *in) {
  uint64_t value = 0;
  for (int i = 0; i < 8; i++) value |= (uint64_t)byte(in) << 8 * i;
  return value;
}

unsigned pick(struct bytes *in, unsigned count) { return byte(in) % count; }

bool rarely(struct bytes *in, unsigned one_in) { return pick(in, one_in) == one_in - 1; }

int64_t some_size(struct bytes *in) {
  static const int64_t usual[] = {64, 128, 256, 512, 1024, 4096, 16, 32, 96, 2048, 8192, 65536, 1, 8, 100, 192};
  switch (pick(in, 4)) {
    case 0: return usual[pick(in, sizeof usual / sizeof *usual)];
    case 1: return 1 + byte(in);
    case 2: return 8 * (1 + (int64_t)byte(in));
    default: return 1 + byte(in) + 256 * (int64_t)byte(in);
  }
}

int64_t some_limit(struct bytes *in) {
  static const int64_t limits[] = {
      0,
      -1,
      1,
      INT32_MAX,
      (int64_t)INT32_MAX + 1,
      LIBGEMM_MAX_SIZE,
      INT64_MAX,
      INT64_MIN,
      1 << 30,
      UINT32_MAX,
      65535,
      65536,
      (int64_t)1 << 32,
      (int64_t)1 << 39,
      INT32_MIN,
      INT64_MAX / 2,
      (int64_t)1 << 40,
      (int64_t)1 << 61,
      (int64_t)1 << 31,
      INT64_MAX / 4,
  };
  unsigned which = pick(in, 2 + sizeof limits / sizeof *limits);
  if (which < 2) return (int64_t)word(in);
  int64_t limit = limits[which - 2];
  int64_t off = (int8_t)byte(in);
  return (int64_t)((uint64_t)limit + (uint64_t)off); /* wraps */
}

int64_t some_ld(struct bytes *in, int64_t columns) {
  switch (pick(in, 6)) {
    case 0: return columns;
    case 1: return (columns + 7) / 8 * 8;
    case 2: return (columns + 63) / 64 * 64 + 64;
    case 3: return columns + byte(in);
    case 4: return (columns + 7) / 8 * 8 + 8 * (int64_t)byte(in);
    default: return columns + 4096 * (int64_t)byte(in);
  }
}

int32_t some_word(struct bytes *in) {
  unsigned which = pick(in, 10);
  if (which < 8) return (int32_t)which - 2;
  return which == 8 ? (int32_t)some_limit(in) : (int32_t)word(in);
}

float some_float(struct bytes *in) {
  static const float usual[] = {1, 0, 2, -1, 0.5f, -0.0f, __builtin_inff(), __builtin_nanf("")};
  return usual[pick(in, sizeof usual / sizeof *usual)];
}
