/* gemm.c: D = A B of float32 matrices, and a check of the numbers. Exits with the libgemm_status, which is 3 where
 * there is no driver, or with 99 where a number is wrong. Either line builds it, in the folder that holds dist/:
 *
 *   cc examples/gemm.c -I dist/include -L dist/lib -lgemm -ldl -Wl,-rpath,$PWD/dist/lib -o gemm
 *   cc examples/gemm.c $(pkg-config --cflags --libs dist/lib/pkgconfig/*.pc) -ldl -Wl,-rpath,$PWD/dist/lib -o gemm
 */
#include <dlfcn.h>
#include <libgemm.h>
#include <stdio.h>

enum { M = 256, N = 192, K = 128 };
static float a[M][K], b[K][N], d[M][N];

static int fail(libgemm_status status) {
  printf("%s: %s\n", libgemm_status_name(status), libgemm_last_error());
  return status;
}

int main(void) {
  for (int i = 0; i < M * K; i++) a[i / K][i % K] = i % 5; /* small whole numbers, which tf32 holds exactly */
  for (int i = 0; i < K * N; i++) b[i / N][i % N] = i % 7;

  libgemm_gemm_args args;
  libgemm_gemm_args_init(&args, sizeof args);
  args.m = M, args.n = N, args.k = K;
  args.lda = K, args.ldb = N, args.ldd = N;
  args.a_type = args.d_type = LIBGEMM_F32, args.precision = LIBGEMM_TF32;
  libgemm_status status = libgemm_gemm_workspace(&args, &args.workspace_bytes); /* the first call that needs a driver */
  if (status) return fail(status);

  /* Memory of GPU 0 from the driver. With the CUDA runtime: cudaMalloc and cudaMemcpy. */
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context, *gpu_a, *gpu_b, *gpu_d, *workspace;
  int (*retain)(void **context, int device) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
  int (*use)(void *context) = dlsym(cuda, "cuCtxSetCurrent");
  int (*allocate)(void **memory, size_t bytes) = dlsym(cuda, "cuMemAlloc_v2");
  int (*copy_in)(void *to, const void *from, size_t bytes) = dlsym(cuda, "cuMemcpyHtoD_v2");
  int (*copy_out)(void *to, const void *from, size_t bytes) = dlsym(cuda, "cuMemcpyDtoH_v2");
  if (retain(&context, 0) || use(context) || allocate(&gpu_a, sizeof a) || allocate(&gpu_b, sizeof b) ||
      allocate(&gpu_d, sizeof d) || allocate(&workspace, args.workspace_bytes + 16) || /* 0 bytes cannot be had */
      copy_in(gpu_a, a, sizeof a) || copy_in(gpu_b, b, sizeof b))
    return puts("no memory on the GPU"), LIBGEMM_OUT_OF_MEMORY;

  args.a = gpu_a, args.b = gpu_b, args.d = gpu_d, args.workspace = workspace;
  status = libgemm_gemm(&args); /* queued; the copy waits for it */
  if (status) return fail(status);
  if (copy_out(d, gpu_d, sizeof d)) return puts("the GPU failed"), LIBGEMM_DRIVER_ERROR;

  for (int i = 0; i < M * N; i++) {
    float sum = 0;
    for (int k = 0; k < K; k++) sum += a[i / N][k] * b[k][i % N];
    if (d[i / N][i % N] != sum) return printf("D[%d][%d] = %g, not %g\n", i / N, i % N, d[i / N][i % N], sum), 99;
  }
  return puts("every number is right"), LIBGEMM_OK;
}
