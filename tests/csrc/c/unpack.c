// Feeds the LZMA decoder what a file holds, whole, cut and damaged, in blocks of exact size that ASan guards.
// Input: records of packed size, plain size (32 bits each), packed bytes, plain bytes. Prints counts; 1 when wrong.
#include "launch/unpack.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t state = 12345;

static uint32_t next(void) { return state = state * 1664525u + 1013904223u, state >> 8; }

static unsigned char *copy(const void *from, size_t size) {
  unsigned char *block = malloc(size ? size : 1);
  if (!block) abort();
  memcpy(block, from, size);
  return block;
}

static bool decode(const unsigned char *packed, size_t packed_size, size_t size, const unsigned char *plain) {
  unsigned char *in = copy(packed, packed_size), *out = malloc(size ? size : 1);
  if (!out) abort();
  bool good = unpack(in, packed_size, out, size);
  if (good && plain) good = memcmp(out, plain, size) == 0;
  free(in);
  free(out);
  return good;
}

static void wrong(const char *what, size_t record) {
  printf("record %zu: %s\n", record, what);
  exit(1);
}

static unsigned damage(const unsigned char *packed, size_t packed_size, size_t size) {
  unsigned refused = 0;
  int rounds = size > 20000 ? 300 : 2000; /* large ones take long */
  for (int i = 0; packed_size && i < rounds; i++) {
    unsigned char *broken = copy(packed, packed_size);
    for (uint32_t changes = 1 + next() % 3; changes; changes--)
      broken[next() % packed_size] ^= i % 2 ? 1u << next() % 8 : (unsigned char)(1 + next() % 255);
    refused += !decode(broken, packed_size, size, NULL);
    free(broken);
  }
  return refused;
}

int main(int count, char **words) {
  FILE *file = count == 2 ? fopen(words[1], "rb") : NULL;
  if (!file) return 2;
  unsigned refused = 0;
  uint32_t sizes[2];
  size_t record = 0;
  for (; fread(sizes, sizeof *sizes, 2, file) == 2; record++) {
    unsigned char *packed = malloc(sizes[0] + 1), *plain = malloc(sizes[1] + 1);
    if (!packed || !plain || fread(packed, 1, sizes[0], file) != sizes[0]) return 2;
    if (fread(plain, 1, sizes[1], file) != sizes[1]) return 2;
    if (!decode(packed, sizes[0], sizes[1], plain)) wrong("did not come back", record);
    if (decode(packed, sizes[0], sizes[1] + 1, NULL)) wrong("one byte more was accepted", record);
    if (sizes[1] && decode(packed, sizes[0], sizes[1] - 1, NULL)) wrong("one byte less was accepted", record);
    if (sizes[1] && decode(packed, sizes[0], 0, NULL)) wrong("no bytes were accepted", record);
    uint32_t step = sizes[0] > 2000 ? sizes[0] / 1000 : 1;
    for (uint32_t cut = 0; cut < sizes[0]; cut += step)
      if (decode(packed, cut, sizes[1], NULL) && sizes[1]) wrong("a cut block was accepted", record);
    refused += damage(packed, sizes[0], sizes[1]);
    free(packed);
    free(plain);
  }
  for (int i = 0; i < 20000; i++) {
    unsigned char noise[64];
    for (size_t j = 0; j < sizeof noise; j++) noise[j] = (unsigned char)next();
    refused += !decode(noise, next() % (sizeof noise + 1), next() % 300, NULL);
  }
  printf("%zu records, %u damaged blocks refused\n", record, refused);
  fclose(file);
  return 0;
}
