/* host_beside.c: dense calls of one library in a loop; compiled against that library's own header. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

#include "libgemm.h"

enum { MOST = 256 };

static libgemm_status (*gemm)(const libgemm_gemm_args *);
static libgemm_status (*gemm_workspace)(const libgemm_gemm_args *, uint64_t *);
static void (*args_init)(libgemm_gemm_args *, uint64_t);
static const char *(*last_error)(void);
static libgemm_gemm_args args[MOST];

static int told(int status) {
  if (status) fprintf(stderr, "libgemm: %s\n", last_error());
  return status;
}

int beside_open(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror());
  *(void **)&gemm = dlsym(library, "libgemm_gemm");
  *(void **)&gemm_workspace = dlsym(library, "libgemm_gemm_workspace");
  *(void **)&args_init = dlsym(library, "libgemm_gemm_args_init");
  *(void **)&last_error = dlsym(library, "libgemm_last_error");
  return !gemm || !gemm_workspace || !args_init || !last_error;
}

/* Call number `i`: bf16, packed matrices. The workspace is given where the call has a use for it. */
int beside_fill(int i, void *a, void *b, void *d, int64_t m, int64_t n, int64_t k, int trans_b, void *stream,
                void *workspace, uint64_t bytes) {
  uint64_t wanted = 0;
  libgemm_gemm_args *one = &args[i];
  if (i >= MOST) return fprintf(stderr, "call %d: there is room for %d\n", i, MOST);
  args_init(one, sizeof *one);
  one->a = a, one->b = b, one->d = d, one->m = m, one->n = n, one->k = k;
  one->lda = k, one->ldb = trans_b ? k : n, one->ldd = n, one->trans_b = trans_b;
  one->a_type = one->d_type = LIBGEMM_BF16, one->stream = stream;
  if (told(gemm_workspace(one, &wanted))) return 1;
  if (wanted) one->workspace = workspace, one->workspace_bytes = bytes;
  return 0;
}

/* Nanoseconds of one of `calls` calls, of numbers `first` to `first + count - 1` in turn; negative: one failed. */
double beside_loop(int first, int count, int calls) {
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (int i = 0; i < calls; i++)
    if (told(gemm(&args[first + i % count]))) return -1;
  clock_gettime(CLOCK_MONOTONIC, &to);
  return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / calls;
}
