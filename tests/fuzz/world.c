// world.c: the stand-in's GPUs, memory and streams that calls are made on, and what a call must leave as it was.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuCtxSetCurrent(void *context);
int cuCtxGetCurrent(void **context);
int cuStreamCreate(libgemm_stream *stream, unsigned flags);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);

static void *contexts[GPUS];
static uint64_t memory[GPUS];
static libgemm_stream streams[GPUS];
static _Alignas(512) char host[4096];
static char marker[256];  // a sentence that no call under test has left

static void begin_gpu(int gpu) {
  unsigned long long address = 0;
  REQUIRE(cuDevicePrimaryCtxRetain(&contexts[gpu], gpu) == 0);
  REQUIRE(cuCtxPushCurrent_v2(contexts[gpu]) == 0);
  REQUIRE(cuMemAlloc_v2(&address, (size_t)PLACES * PLACE) == 0);
  REQUIRE(cuStreamCreate(&streams[gpu], 1) == 0);
  REQUIRE(cuCtxPopCurrent_v2(NULL) == 0);
  memory[gpu] = address;
}

void start_world(void) {
  setenv("FAKECUDA_DEVICES", "5", 1);
  setenv("FAKECUDA_SM", "90,90,80,86,75", 1);
  unsetenv("FAKECUDA_LOG");
  REQUIRE(cuInit(0) == 0);
  for (int gpu = 0; gpu < GPUS; gpu++) begin_gpu(gpu);
}

uint64_t place_of(int gpu, int place) { return memory[gpu] + (uint64_t)place * PLACE; }

int owner_of(uint64_t address) {
  for (int gpu = 0; gpu < GPUS; gpu++)
    if (address - memory[gpu] < (uint64_t)PLACES * PLACE) return gpu;
  return -1;
}

uint64_t room_at(uint64_t address) {
  int gpu = owner_of(address);
  return gpu < 0 ? 0 : memory[gpu] + (uint64_t)PLACES * PLACE - address;
}

uint64_t odd_pointer(struct bytes *in, int gpu) {
  static const uint8_t offsets[] = {2, 4, 8, 1, 16, 32, 3, 64};
  uint64_t offset = offsets[pick(in, sizeof offsets)];
  int place = (int)pick(in, PLACES);
  switch (pick(in, 8)) {
    case 0:
    case 1:
    case 2: return place_of(gpu, place) + offset;
    case 3: return place_of(gpu, PLACES) - offset;
    case 4: return place_of((int)pick(in, GPUS), place);
    case 5: return (uint64_t)(uintptr_t)host + offset;
    case 6: return 0;
    default: return word(in);
  }
}

const char *some_name(struct bytes *in) {
  static const char *const odd[] = {"", "%s%n", "gemm", "\xff\xfe"};
  unsigned which = byte(in) | (unsigned)byte(in) << 8;
  if (rarely(in, 8)) return odd[which % (sizeof odd / sizeof *odd)];
  return rows[which % (unsigned)row_count].name;
}

libgemm_stream some_stream(struct bytes *in, int gpu, bool *bogus) {
  switch (pick(in, 16)) {
    case 12: return streams[gpu];
    case 13: return (libgemm_stream)(uintptr_t)2;  // the per-thread default stream
    case 14: *bogus = true; return streams[(gpu + 1) % GPUS];
    case 15: *bogus = true; return (libgemm_stream)(uintptr_t)host;
    default: return NULL;
  }
}

void make_current(struct bytes *in) {
  unsigned which = pick(in, 9);
  cuCtxSetCurrent(NULL);
  if (which != 8) REQUIRE(cuCtxSetCurrent(contexts[which < 4 ? 0 : which - 3]) == 0);
}

int current_gpu(void) {
  void *context = NULL;
  cuCtxGetCurrent(&context);
  for (int gpu = 0; gpu < GPUS; gpu++)
    if (context && context == contexts[gpu]) return gpu;
  return -1;
}

bool is_here(int gpu) { return gpu == (current_gpu() < 0 ? 0 : current_gpu()); }

// ---- Around each call ----

struct call_facts now;
static int gpu_before;

_Noreturn void finding(int line, const char *file, const char *broken, const char *format, ...) {
  va_list words;
  va_start(words, format);
  fprintf(stderr, "finding at %s:%d: %s:", file, line, broken);
  vfprintf(stderr, format, words);
  fprintf(stderr, "\n  in %s, %s call%s; libgemm's last sentence: %s\n", now.what ? now.what : "the start",
          now.legal ? "a legal" : "some", now.bogus ? " with a failing driver" : "", libgemm_last_error());
  for (int i = 0; i < seen.launches && i < MOST_LAUNCHES; i++)
    fprintf(stderr, "  launched %s on GPU %d, grid %u, cluster %u\n",
            seen.launch[i].row ? seen.launch[i].row->name : "?", seen.launch[i].device, seen.launch[i].grid,
            seen.launch[i].cluster);
  va_end(words);
  abort();
}

void before_call(const char *what) {
  now.what = what;
  libgemm_variant_get(-171717, NULL); /* an index that is asked for nowhere else */
  snprintf(marker, sizeof marker, "%s", libgemm_last_error());
  forget_seen();
  gpu_before = current_gpu();
  if (now.failure) fakecuda_fail(now.failure);
  if (now.capturing) fakecuda_set_capturing(1);
}

bool after_call(libgemm_status status) {
  if (now.failure) fakecuda_fail("");
  if (now.capturing) fakecuda_set_capturing(0);
  REQUIRE(status >= LIBGEMM_OK && status <= LIBGEMM_OUT_OF_MEMORY, "%d", (int)status);
  REQUIRE(current_gpu() == gpu_before, "GPU %d was current before, %d is after", gpu_before, current_gpu());
  if (status == LIBGEMM_OK) return true;
  REQUIRE(strcmp(libgemm_last_error(), marker) != 0, "status %d without a sentence", (int)status);
  REQUIRE(libgemm_last_error()[0], "status %d with an empty sentence", (int)status);
  REQUIRE(status != LIBGEMM_NO_DRIVER && status != LIBGEMM_DRIVER_TOO_OLD);
  if (now.bogus) return false;
  REQUIRE(!now.legal, "a legal call was refused");
  REQUIRE(status != LIBGEMM_DRIVER_ERROR && status != LIBGEMM_OUT_OF_MEMORY, "the driver refused what libgemm let by");
  REQUIRE(now.chained || (seen.launches == 0 && seen.copies == 0), "a refused call had begun: %d launches",
          seen.launches);
  return false;
}

void *as_caller(struct bytes *in, void *mine, uint64_t bytes) {
  static const uint16_t odd[] = {0, 8, 7, 4096, 4097, 1024, 64, 256};
  uint64_t said = bytes;
  bool filled = false;
  switch (pick(in, 16)) {
    case 12: said = bytes - pick(in, (unsigned)bytes); break;
    case 13: said = bytes + 8 * pick(in, 32); break;
    case 14: said = bytes + 8, filled = true; break;
    case 15: said = rarely(in, 4) ? word(in) : odd[pick(in, sizeof odd / sizeof *odd)]; break;
    default: break;
  }
  uint64_t held = said < 8 ? 8 : said > 4096 ? 8 : said;
  unsigned char *copy = calloc(1, held);
  REQUIRE(copy);
  now.legal &= said == bytes || (said > bytes && said <= 4096 && !filled);
  if (held < bytes) memset((char *)mine + held, 0, bytes - held);
  memcpy(mine, &said, sizeof said);
  memcpy(copy, mine, held < bytes ? held : bytes);
  if (filled) copy[held - 1] = 1;
  return copy;
}
