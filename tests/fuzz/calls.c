// calls.c: the fuzz target over libgemm's C interface: input bytes become a few calls, one after the other.
#include <string.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Failures of the driver that a call must turn into a status.
static void order_failure(struct bytes *in) {
  static const char *const failures[] = {
      "cuLaunchKernelEx:1:719",      "cuLaunchKernelEx:2:1",      "cuTensorMapEncodeTiled:1:1",
      "cuPointerGetAttribute:1:999", "cuPointerGetAttribute:2:1", "cuCtxPushCurrent_v2:1:201",
      "cuMemcpyHtoDAsync_v2:1:700",  "cuCtxGetCurrent:1:3",       "cuStreamIsCapturing:1:400",
      "cuCtxGetDevice:1:201",        "cuLibraryLoadData:1:2",     "cuLibraryGetKernel:1:500",
      "cuKernelGetFunction:1:2",     "cuKernelSetAttribute:1:1",
  };
  unsigned which = pick(in, 64);
  unsigned count = sizeof failures / sizeof *failures;
  now.bogus = which > 0 && which <= count + 1;
  if (which > 0 && which <= count) now.failure = failures[which - 1];
  now.capturing = which == count + 1; /* nothing can be loaded, no host tables be read */
}

void call_legally(void) {
  struct call_facts facts = now;
  libgemm_gemm_args args;
  libgemm_gemm_args_init(&args, sizeof args);
  args.m = args.n = args.k = args.lda = args.ldb = args.ldd = 64;
  args.a = (void *)(uintptr_t)place_of(0, 0), args.b = (void *)(uintptr_t)place_of(0, 1);
  args.d = (void *)(uintptr_t)place_of(0, 3);
  args.a_type = args.d_type = LIBGEMM_BF16;
  now = (struct call_facts){.legal = true};
  before_call("a legal libgemm_gemm after a refused call");
  after_call(libgemm_gemm(&args));
  check_dense(&args);
  REQUIRE(seen.launches == 1);
  now = facts;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { MOST_CALLS = 8 };
  static bool started;
  struct bytes in = {data, data + size};
  libgemm_gemm_args dense = {0};
  libgemm_grouped_mm_args packed = {0};
  if (!started) start_world(), watch(), started = true;
  for (int i = 0; i < MOST_CALLS && (i == 0 || in.at < in.end); i++) {
    now = (struct call_facts){0};
    unsigned which = pick(&in, 16);
    make_current(&in);
    order_failure(&in);
    if (which < 6)
      try_dense(&in, &dense);
    else if (which < 11)
      try_packed(&in, &packed);
    else if (which < 15)
      try_pointers(&in);
    else if (pick(&in, 4) == 3)
      try_queries(&in);
    else
      try_layers(&in);
  }
  return 0;
}
