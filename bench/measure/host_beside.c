/* host_beside.c: dense calls of one library, filled by that library's own header. host_beside.py builds it with cc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "libgemm.h"

enum { MOST = 64 };

static libgemm_status (*gemm)(const libgemm_gemm_args *);
static libgemm_status (*gemm_workspace)(const libgemm_gemm_args *, uint64_t *);
static void (*args_init)(libgemm_gemm_args *, uint64_t);
static libgemm_gemm_args calls[MOST];

/* The library's dense call, or NULL where it cannot be opened or has not what is asked of it. */
void *beside_open(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), NULL;
  *(void **)&gemm = dlsym(library, "libgemm_gemm");
  *(void **)&gemm_workspace = dlsym(library, "libgemm_gemm_workspace");
  *(void **)&args_init = dlsym(library, "libgemm_gemm_args_init");
  return gemm && gemm_workspace && args_init ? *(void **)&gemm : NULL;
}

/* Call number `i`: bf16, packed matrices; the workspace where it has a use for one. NULL where that is refused. */
const void *beside_call(int i, void *a, void *b, void *d, int64_t m, int64_t n, int64_t k, int trans_b, void *stream,
                        void *workspace, uint64_t bytes) {
  uint64_t wanted = 0;
  if (i >= MOST) return NULL;
  libgemm_gemm_args *call = &calls[i];
  args_init(call, sizeof *call);
  call->a = a, call->b = b, call->d = d, call->m = m, call->n = n, call->k = k;
  call->lda = k, call->ldb = trans_b ? k : n, call->ldd = n, call->trans_b = trans_b;
  call->a_type = call->d_type = LIBGEMM_BF16, call->stream = stream;
  if (gemm_workspace(call, &wanted)) return NULL;
  if (wanted) call->workspace = workspace, call->workspace_bytes = bytes;
  return call;
}
