// A program for sanitizers: many threads' first calls, legal and absurd arguments. Linked with libgemm's own sources.
#include <dlfcn.h>
#include <libgemm.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { THREADS = 8, CALLS = 100, DEVICES = 2, PLACE = 1 << 16, PLACES = 8, M = 96, N = 80, K = 64, GROUPS = 3 };

static char *memory[DEVICES];
static unsigned long long (*count)(const char *);

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  CHECK(found);
  return found;
}

static void *start_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(library);
  int (*init)(unsigned), (*retain)(void **, int), (*push)(void *), (*pop)(void **);
  int (*allocate)(unsigned long long *, size_t);
  *(void **)&init = symbol(library, "cuInit");
  *(void **)&retain = symbol(library, "cuDevicePrimaryCtxRetain");
  *(void **)&push = symbol(library, "cuCtxPushCurrent_v2");
  *(void **)&pop = symbol(library, "cuCtxPopCurrent_v2");
  *(void **)&allocate = symbol(library, "cuMemAlloc_v2");
  *(void **)&count = symbol(library, "fakecuda_count");
  CHECK(init(0) == 0);
  for (int d = 0; d < DEVICES; d++) {
    void *context;
    unsigned long long address;
    CHECK(retain(&context, d) == 0 && push(context) == 0);
    CHECK(allocate(&address, (size_t)PLACES * PLACE) == 0 && pop(&context) == 0);
    memory[d] = (char *)(uintptr_t)address;
  }
  return library;
}

static void *at(int device, int place) { return memory[device] + (size_t)place * PLACE; }

static libgemm_gemm_args gemm_args(int device) {
  libgemm_gemm_args args;
  libgemm_gemm_args_init(&args, sizeof args);
  args.m = M, args.n = N, args.k = K;
  args.lda = K, args.ldb = N, args.ldc = N, args.ldd = N;
  args.a = at(device, 0), args.b = at(device, 1), args.c = at(device, 2), args.d = at(device, 3);
  args.a_type = args.d_type = LIBGEMM_BF16;
  return args;
}

static void call_grouped_mm(int device) {
  libgemm_grouped_mm_args args;
  libgemm_grouped_mm_args_init(&args, sizeof args);
  args.m = M, args.n = N, args.k = K, args.groups = GROUPS;
  args.lda = K, args.ldb = N, args.ldd = N, args.batch_stride_b = K * N;
  args.a = at(device, 0), args.b = at(device, 1), args.d = at(device, 3), args.offs = at(device, 4);
  args.a_type = args.d_type = LIBGEMM_BF16;
  CHECK(libgemm_grouped_mm(&args) == LIBGEMM_OK);
}

static void call_grouped_gemm(int device) {
  int64_t m[] = {M, 0, 8}, n[] = {N, N, N}, k[] = {K, K, 0}, ld[] = {N, N, N};
  void *a[] = {at(device, 0), NULL, NULL}, *d[] = {at(device, 3), NULL, at(device, 5)};
  libgemm_grouped_gemm_args args;
  libgemm_grouped_gemm_args_init(&args, sizeof args);
  args.groups = GROUPS, args.host_tables = 1;
  args.a = args.b = (const void *const *)a;
  args.d = d;
  args.m = m, args.n = n, args.k = k;
  args.lda = args.ldb = args.ldd = ld;
  args.a_type = args.d_type = LIBGEMM_BF16;
  args.workspace = at(device, 6);
  CHECK(libgemm_grouped_gemm_workspace(&args, &args.workspace_bytes) == LIBGEMM_OK);
  CHECK(libgemm_grouped_gemm(&args) == LIBGEMM_OK);
}

static void *work(void *which) {
  int number = *(int *)which;
  for (int i = 0; i < CALLS; i++) {
    int device = (number + i) % DEVICES;
    libgemm_gemm_args args = gemm_args(device);
    if (i % 3 == 0) CHECK(libgemm_gemm(&args) == LIBGEMM_OK);
    if (i % 3 == 1 && number < THREADS / 2) call_grouped_mm(device);
    if (i % 3 == 1 && number >= THREADS / 2) call_grouped_gemm(device);
    args.m = -1 - number;
    char word[32];
    snprintf(word, sizeof word, "m = %d:", -1 - number);
    CHECK(libgemm_gemm(&args) == LIBGEMM_INVALID_ARGUMENT && strstr(libgemm_last_error(), word));
    if (i % 3 == 2) CHECK(libgemm_preload(device) == LIBGEMM_OK);
  }
  return NULL;
}

// Values that no honest caller passes. What matters is that no arithmetic goes wrong over them.
static void call_with_absurd_values(void) {
  const int64_t values[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT32_MAX, INT64_MAX / 2, INT64_MAX - 1, INT64_MAX};
  enum { VALUES = sizeof values / sizeof *values };
  libgemm_target_info target = {.size = sizeof target};
  CHECK(libgemm_target_get(0, &target) == LIBGEMM_OK);
  for (int field = 0; field < 26; field++)
    for (int first = 0; first < VALUES; first++)
      for (int second = 0; second < VALUES; second++) {
        libgemm_gemm_args args = gemm_args(0);
        int64_t *fields[] = {&args.m,
                             &args.n,
                             &args.k,
                             &args.batch,
                             &args.lda,
                             &args.ldb,
                             &args.ldc,
                             &args.ldd,
                             &args.batch_stride_a,
                             &args.batch_stride_b,
                             &args.batch_stride_c,
                             &args.batch_stride_d,
                             &args.batch_stride_bias};
        args.batch_stride_d = (int64_t)M * N, args.beta = 1;
        if (field < 13) args.batch = 2;
        if (field >= 13) args.workspace = at(0, 6), args.workspace_bytes = UINT64_MAX, args.a = (char *)at(0, 0) + 2;
        *fields[field % 13] = values[first];
        *fields[(field + 4) % 13] = values[second];
        libgemm_choice choice = {.size = sizeof choice};
        uint64_t bytes;
        libgemm_gemm_explain(&args, target.target, &choice);
        libgemm_gemm_workspace(&args, &bytes);
        libgemm_gemm(&args);
      }
}

static void read_everything(void) {
  libgemm_variant_info info = {.size = sizeof info};
  for (int32_t i = 0; i < libgemm_variant_count(); i++) {
    CHECK(libgemm_variant_get(i, &info) == LIBGEMM_OK);
    char *cubin = malloc(info.cubin_bytes);
    CHECK(cubin && libgemm_variant_cubin(i, cubin, info.cubin_bytes) == LIBGEMM_OK);
    free(cubin);
  }
  uint64_t bytes;
  CHECK(strlen(libgemm_manifest(&bytes)) == bytes);
}

int main(void) {
  void *library = start_driver();
  pthread_t threads[THREADS];
  int numbers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    numbers[i] = i;
    CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  printf("cuInit %llu, cuLibraryLoadData %llu, variants %d\n", count("cuInit"), count("cuLibraryLoadData"),
         libgemm_variant_count());
  call_with_absurd_values();
  read_everything();
  return library == NULL;
}
