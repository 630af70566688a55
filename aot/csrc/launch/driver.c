/* driver.c: opens libcuda.so.1 at first use and waves its errors into sentences. Loads no kernel. */
#include "launch/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "internal.h"

/* glibc 2.34 moved these into libc.so.6 under a new version; the old one keeps the library running on glibc 2.17. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dlerror, dlerror@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
__asm__(".symver dlerror, dlerror@GLIBC_2.17");
#endif

static struct driver driver;
static atomic_bool opened;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

libgemm_status driver_failed(const char *function, CUresult result) {
  const char *name = "unknown error", *text = "no text";
  if (driver.get_error_name) driver.get_error_name(result, &name);
  if (driver.get_error_string) driver.get_error_string(result, &text);
  const char *hint = "";
  if (result == CUDA_ERROR_NOT_INITIALIZED)
    hint = "; a process forked after its parent used CUDA cannot use it: start workers by spawn, or fork before";
  else if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    hint = "; a kernel cannot be loaded while a stream is captured: call libgemm_preload before capturing";
  libgemm_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? LIBGEMM_OUT_OF_MEMORY : LIBGEMM_DRIVER_ERROR;
  return fail(status, "%s failed: %s (%d): %s%s", function, name ? name : "?", result, text ? text : "?", hint);
}

static libgemm_status resolve(void *library, struct driver *found) {
#define DRIVER_RESOLVE(field, symbol, parameters)                                                                \
  *(void **)&found->field = dlsym(library, symbol);                                                              \
  if (!found->field)                                                                                             \
    return fail(LIBGEMM_NO_DRIVER, "libcuda.so.1 has no %s: the NVIDIA driver must be 525 (CUDA 12.0) or newer", \
                symbol);
  DRIVER_FUNCTIONS(DRIVER_RESOLVE)
#undef DRIVER_RESOLVE
  return LIBGEMM_OK;
}

static libgemm_status start(struct driver *found) {
  driver.get_error_name = found->get_error_name;
  driver.get_error_string = found->get_error_string;
  CUresult result = found->init(0);
  if (result != CUDA_SUCCESS) {
    libgemm_status status = driver_failed("cuInit", result);
    return result == CUDA_ERROR_NO_DEVICE ? LIBGEMM_NO_DRIVER : status;
  }
  TRY_CUDA("cuDriverGetVersion", found->driver_get_version(&found->version));
  TRY_CUDA("cuDeviceGetCount", found->device_get_count(&found->device_count));
  if (found->device_count < 1) return fail(LIBGEMM_NO_DRIVER, "the NVIDIA driver sees no GPU");
  return LIBGEMM_OK;
}

static libgemm_status open_locked(void) {
  if (atomic_load(&opened)) return LIBGEMM_OK;
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = dlerror();
    return fail(LIBGEMM_NO_DRIVER,
                "NVIDIA driver library not found: %s; install the driver, or in a container "
                "start it with GPU access",
                reason ? reason : "libcuda.so.1");
  }
  struct driver found = {0};
  libgemm_status status = resolve(library, &found);
  if (status == LIBGEMM_OK) status = start(&found);
  if (status != LIBGEMM_OK) return status; /* the library stays open: unloading a driver is not safe */
  driver = found;
  atomic_store(&opened, true);
  return LIBGEMM_OK;
}

HOT libgemm_status driver_open(const struct driver **out) {
  *out = &driver;
  if (atomic_load_explicit(&opened, memory_order_acquire)) return LIBGEMM_OK;
  pthread_mutex_lock(&opening);
  libgemm_status status = open_locked();
  pthread_mutex_unlock(&opening);
  return status;
}
