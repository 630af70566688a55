// threads.c: a program for the thread sanitizer: many threads mix all calls, on several GPUs, from their first use on.
// Usage: threads SEED SECONDS. Prints the number of calls. Starts anew, in a child, every few hundred calls, so that
// first uses meet again and again.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../csrc/c/check.h"
#include "libgemm.h"

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);

enum { THREADS = 24, CALLS = 40, GPUS = 3, PLACE = 1 << 16, PLACES = 10, GROUPS = 4 };

static void *contexts[GPUS];
static char *memory[GPUS];
static uint64_t seed;
static pthread_barrier_t together;

static uint32_t next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

static void *at(int gpu, int place) { return memory[gpu] + (size_t)place * PLACE; }

// Every GPU has kernels for bf16 NN; so many shapes that threads meet at first uses of rows.
static void call_dense(uint64_t *state, int gpu) {
  libgemm_gemm_args a;
  libgemm_gemm_args_init(&a, sizeof a);
  a.m = 1 + next(state) % 500, a.n = 8 * (1 + next(state) % 200), a.k = 8 * (1 + next(state) % 500);
  a.lda = a.k + next(state) % 2, a.ldb = a.ldd = a.n;
  a.a = at(gpu, 0), a.b = at(gpu, 1), a.d = at(gpu, 3);
  a.a_type = a.d_type = LIBGEMM_BF16;
  a.workspace = at(gpu, 6), a.workspace_bytes = next(state) % 2 ? 3 * PLACE : 0;
  CHECK(libgemm_gemm(&a) == LIBGEMM_OK);
  uint64_t bytes;
  libgemm_choice choice = {.size = sizeof choice};
  CHECK(libgemm_gemm_workspace(&a, &bytes) == LIBGEMM_OK);
  CHECK(libgemm_gemm_explain(&a, 0, &choice) == LIBGEMM_OK && choice.variant >= 0);
}

static void call_packed(uint64_t *state, int gpu) {
  libgemm_grouped_mm_args a;
  libgemm_grouped_mm_args_init(&a, sizeof a);
  a.m = 1 + next(state) % 500, a.n = 8 * (1 + next(state) % 200), a.k = 64, a.groups = 1 + next(state) % GROUPS;
  a.lda = a.k, a.ldb = a.ldd = a.n, a.batch_stride_b = a.k * a.n;
  a.a = at(gpu, 0), a.b = at(gpu, 1), a.d = at(gpu, 3), a.offs = at(gpu, 4);
  a.a_type = a.d_type = LIBGEMM_BF16;
  CHECK(libgemm_grouped_mm(&a) == LIBGEMM_OK);
}

static void call_pointers(uint64_t *state, int gpu) {
  int64_t n = 8 * (1 + next(state) % 100), size[GROUPS] = {n, 64, 0, 8}, ld[GROUPS] = {n + 64, n + 64, n + 64, n + 64};
  void *p[GROUPS] = {at(gpu, 0), at(gpu, 1), at(gpu, 0), at(gpu, 1)},
       *d[GROUPS] = {at(gpu, 3), at(gpu, 3), NULL, at(gpu, 5)};
  libgemm_grouped_gemm_args a;
  libgemm_grouped_gemm_args_init(&a, sizeof a);
  a.groups = GROUPS, a.host_tables = 1;
  a.a = a.b = (const void *const *)p;
  a.d = d;
  a.m = a.n = a.k = size;
  a.lda = a.ldb = a.ldd = ld;
  a.a_type = a.d_type = LIBGEMM_BF16;
  a.workspace = at(gpu, 6);
  CHECK(libgemm_grouped_gemm_workspace(&a, &a.workspace_bytes) == LIBGEMM_OK);
  CHECK(libgemm_grouped_gemm(&a) == LIBGEMM_OK);
}

static void call_layer(uint64_t *state, int gpu) {
  libgemm_moe_args a;
  libgemm_moe_args_init(&a, sizeof a);
  a.tokens = 1 + next(state) % 40, a.top_k = 1 + next(state) % 4, a.groups = 1 + next(state) % GROUPS;
  a.k = 64, a.inner = 8 * (1 + next(state) % 16), a.n = 8 * (1 + next(state) % 16);
  a.gate = LIBGEMM_GATE_HALVES, a.activation = LIBGEMM_SILU, a.a_type = LIBGEMM_BF16;
  a.x = at(gpu, 0), a.b1 = at(gpu, 1), a.b2 = at(gpu, 2), a.d = at(gpu, 3), a.ids = at(gpu, 4);
  a.ldx = a.k, a.ldb1 = 2 * a.inner, a.ldb2 = a.ldd = a.n;
  a.batch_stride_b1 = a.ldb1 * a.k, a.batch_stride_b2 = a.ldb2 * a.inner;
  a.workspace = at(gpu, 6);
  CHECK(libgemm_moe_workspace(&a, &a.workspace_bytes) == LIBGEMM_OK);
  CHECK(libgemm_moe(&a) == LIBGEMM_OK);
}

// The table has casts for Hopper alone.
static void call_cast(uint64_t *state) {
  libgemm_cast_args a;
  int gpu = (int)(next(state) % 2);
  libgemm_cast_args_init(&a, sizeof a);
  a.m = 1 + next(state) % 300, a.n = 1 + next(state) % 300, a.a_type = LIBGEMM_BF16;
  a.d_type = next(state) % 2 ? LIBGEMM_E4M3 : LIBGEMM_E5M2;
  a.granularity = next(state) % 2 ? LIBGEMM_PER_ROW : LIBGEMM_PER_TENSOR;
  a.a = at(gpu, 0), a.d = at(gpu, 3), a.scale = at(gpu, 4), a.lda = a.ldd = a.n;
  a.workspace = at(gpu, 6), a.workspace_bytes = PLACE;
  CHECK(libgemm_cast(&a) == LIBGEMM_OK);
}

// A refused call's sentence is this thread's own.
static void call_wrongly(uint64_t *state, int gpu) {
  libgemm_gemm_args a;
  char word[32];
  int wrong = -1 - (int)(next(state) % 1000000);
  libgemm_gemm_args_init(&a, sizeof a);
  a.m = wrong, a.a_type = a.d_type = LIBGEMM_BF16, a.d = at(gpu, 3);
  snprintf(word, sizeof word, "m = %d:", wrong);
  CHECK(libgemm_gemm(&a) == LIBGEMM_INVALID_ARGUMENT && strstr(libgemm_last_error(), word));
  CHECK(libgemm_preload(GPUS + 7) == LIBGEMM_INVALID_ARGUMENT);
}

static void read_one(uint64_t *state) {
  libgemm_variant_info info = {.size = sizeof info};
  int32_t index = (int32_t)(next(state) % (uint32_t)libgemm_variant_count());
  CHECK(libgemm_variant_get(index, &info) == LIBGEMM_OK);
  char *cubin = malloc(info.cubin_bytes);
  CHECK(cubin && libgemm_variant_cubin(index, cubin, info.cubin_bytes) == LIBGEMM_OK);
  free(cubin);
}

static void *work(void *which) {
  uint64_t state = seed + *(int *)which * 1000003u;
  pthread_barrier_wait(&together);
  for (int i = 0; i < CALLS; i++) {
    int gpu = (int)(next(&state) % GPUS);
    CHECK(cuCtxSetCurrent(contexts[next(&state) % GPUS]) == 0);
    switch (next(&state) % 16) {
      case 0: CHECK(libgemm_preload(gpu) == LIBGEMM_OK); break;
      case 1: read_one(&state); break;
      case 2:
      case 3: call_wrongly(&state, gpu); break;
      case 4:
      case 5:
      case 6: call_pointers(&state, gpu); break;
      case 7:
      case 8:
      case 9: call_packed(&state, gpu); break;
      case 10:
      case 11: call_layer(&state, gpu); break;
      case 12: call_cast(&state); break;
      default: call_dense(&state, gpu); break;
    }
  }
  return NULL;
}

static void start_driver(void) {
  CHECK(cuInit(0) == 0);
  for (int gpu = 0; gpu < GPUS; gpu++) {
    unsigned long long address;
    CHECK(cuDevicePrimaryCtxRetain(&contexts[gpu], gpu) == 0 && cuCtxPushCurrent_v2(contexts[gpu]) == 0);
    CHECK(cuMemAlloc_v2(&address, (size_t)PLACES * PLACE) == 0 && cuCtxPopCurrent_v2(NULL) == 0);
    memory[gpu] = (char *)(uintptr_t)address;
  }
}

static int one_process(void) {
  pthread_t threads[THREADS];
  int numbers[THREADS];
  start_driver();
  CHECK(pthread_barrier_init(&together, NULL, THREADS) == 0);
  for (int i = 0; i < THREADS; i++) {
    numbers[i] = i;
    CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}

int main(int count, char **words) {
  if (count != 3) return fprintf(stderr, "usage: %s SEED SECONDS\n", words[0]), 2;
  setenv("FAKECUDA_DEVICES", "3", 1);
  setenv("FAKECUDA_SM", "90,90,80", 1);
  seed = strtoull(words[1], NULL, 10);
  time_t end = time(NULL) + strtoll(words[2], NULL, 10);
  unsigned rounds = 0;
  do {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) exit(one_process());
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    seed += 7919;
    rounds++;
  } while (time(NULL) < end);
  printf("%u calls of %d threads\n", rounds * THREADS * CALLS, THREADS);
  return 0;
}
