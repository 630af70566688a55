// unpacked.c: the fuzz target over the unpacker: input bytes as a packed block, or as damage to a library's kernels.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                       \
  do {                                                                           \
    if (!(condition)) {                                                          \
      fprintf(stderr, "finding at %s:%d: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                   \
    }                                                                            \
  } while (0)

static void *exactly(size_t size) {
  void *block = malloc(size + !size);
  REQUIRE(block);
  return block;
}

// ---- A block of any bytes, unpacked to any size: buffers are exact, so that the sanitizer sees what leaves them ----

static bool unpacks(const uint8_t *data, size_t size, size_t out_bytes, unsigned char *out) {
  unsigned char *in = exactly(size);
  memcpy(in, data, size);
  bool good = unpack(in, size, out, out_bytes);
  free(in);
  return good;
}

static void try_block(const uint8_t *data, size_t size, size_t out_bytes) {
  unsigned char *out = exactly(out_bytes), *again = exactly(out_bytes + 1);
  memset(out, 0, out_bytes + !out_bytes);
  memset(again, 0xFF, out_bytes + 1);
  if (unpacks(data, size, out_bytes, out)) {
    REQUIRE(unpacks(data, size, out_bytes, again) && memcmp(out, again, out_bytes) == 0); /* it wrote every byte */
    REQUIRE(!unpacks(data, size, out_bytes + 1, again));
    REQUIRE(out_bytes == 0 || !unpacks(data, size, out_bytes - 1, again));
  }
  free(out);
  free(again);
}

// ---- A few bytes of the library's kernels changed in place, as in a damaged file ----

static unsigned char *writable_kernels(void) {
  const uintptr_t page = 65536; /* a multiple of every page size in use */
  static bool open;
  const struct chunk *last = &chunks[0];
  for (int32_t i = 0; i < row_count; i++)
    if (chunks[rows[i].chunk].offset > last->offset) last = &chunks[rows[i].chunk];
  uintptr_t begin = (uintptr_t)cubin_blob & ~(uintptr_t)4095;
  uintptr_t end = (uintptr_t)cubin_blob + last->offset + last->packed_bytes;
  if (!open) REQUIRE(mprotect((void *)begin, (end - begin + page) & ~(uintptr_t)4095, PROT_READ | PROT_WRITE) == 0);
  open = true;
  return (unsigned char *)(uintptr_t)cubin_blob;
}

// A row's cubin, or NULL where the library says that it is damaged; the caller frees it.
static unsigned char *read_kernel(const struct row *row) {
  unsigned char *cubin = exactly(row->cubin_bytes);
  libgemm_status status = libgemm_variant_cubin((int32_t)(row - rows), cubin, row->cubin_bytes);
  REQUIRE(status == LIBGEMM_OK || status == LIBGEMM_UNSUPPORTED);
  if (status == LIBGEMM_OK) return cubin;
  free(cubin);
  return NULL;
}

static void try_damage(const uint8_t *data, size_t size) {
  enum { MOST = 16 };
  uint32_t where[MOST], count = 0;
  unsigned char before[MOST], *kernels = writable_kernels();
  const struct row *row = &rows[(data[0] | data[1] << 8) % row_count];
  const struct chunk *chunk = &chunks[row->chunk];
  unsigned char *whole = read_kernel(row);
  REQUIRE(whole);
  for (size_t at = 2; at + 3 <= size && count < MOST; at += 3, count++) {
    where[count] = chunk->offset + (uint32_t)(data[at] | data[at + 1] << 8) % chunk->packed_bytes;
    before[count] = kernels[where[count]];
    kernels[where[count]] = data[at + 2];
  }
  unsigned char *found = read_kernel(row);
  REQUIRE(!found || memcmp(found, whole, row->cubin_bytes) == 0);
  free(found);
  free(whole);
  while (count--) kernels[where[count]] = before[count];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { HEAD = 3 }; /* the way, and two bytes */
  if (size < HEAD) return 0;
  if (data[0] % 4 == 3)
    try_damage(data + 1, size - 1);
  else
    try_block(data + HEAD, size - HEAD, (size_t)(data[1] | data[2] << 8) * (data[0] % 4 == 2 ? 16 : 1));
  return 0;
}
