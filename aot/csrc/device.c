/* device.c: facts of each GPU, contexts, and which GPU a pointer belongs to. Launches nothing. */
#include <pthread.h>
#include <stdio.h>

#include "internal.h"

static struct device devices[MAX_DEVICES];
static atomic_bool known[MAX_DEVICES];
static pthread_mutex_t learning = PTHREAD_MUTEX_INITIALIZER;

static libgemm_status unsupported(const char *name, int capability) {
  char have[256] = "";
  size_t used = 0;
  for (int32_t i = 0; i < target_count && used < sizeof have - 16; i++)
    used += (size_t)snprintf(have + used, sizeof have - used, "%s%d.%d", i ? ", " : "", targets[i].target / 10,
                             targets[i].target % 10);
  return fail(LIBGEMM_UNSUPPORTED_DEVICE,
              "%s has compute capability %d.%d; this library has kernels for %s: build with TARGETS=%d", name,
              capability / 10, capability % 10, have, capability);
}

static libgemm_status learn(int ordinal, const struct driver *driver, struct device *device) {
  CUdevice handle;
  int major = 0, minor = 0, pageable = 0;
  char name[128] = "this GPU";
  TRY_CUDA("cuDeviceGet", driver->device_get(&handle, ordinal));
  const struct {
    int *value, attribute;
  } facts[] = {
      {&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
      {&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
      {&pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
      {&device->multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
      {&device->shared_per_multiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
  };
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
    TRY_CUDA("cuDeviceGetAttribute", driver->device_get_attribute(facts[i].value, facts[i].attribute, handle));
  TRY_CUDA("cuDeviceGetName", driver->device_get_name(name, sizeof name, handle));
  device->ordinal = ordinal;
  device->pageable = pageable != 0;
  device->driver = driver;
  for (int32_t i = 0; i < target_count; i++)
    if (targets[i].target == major * 10 + minor) device->target = &targets[i];
  if (!device->target) return unsupported(name, major * 10 + minor);
  enum { CUDA_12 = 12000 }; /* the least any kernel needs */
  if (driver->version < device->target->min_cuda)
    return fail(LIBGEMM_DRIVER_TOO_OLD,
                "the NVIDIA driver supports CUDA %d.%d; kernels for %s need CUDA %d.%d (driver %s or newer): update "
                "the driver%s",
                driver->version / 1000, driver->version % 1000 / 10, name, device->target->min_cuda / 1000,
                device->target->min_cuda % 1000 / 10, device->target->min_driver,
                device->target->min_cuda > CUDA_12 ? ", or build with MIN_DRIVER=525" : "");
  TRY_CUDA("cuDevicePrimaryCtxRetain", driver->primary_ctx_retain(&device->primary, handle));
  return LIBGEMM_OK;
}

libgemm_status device_get(int ordinal, const struct device **out) {
  const struct driver *driver;
  TRY(driver_open(&driver));
  if (ordinal < 0 || ordinal >= driver->device_count || ordinal >= MAX_DEVICES)
    return fail(LIBGEMM_INVALID_ARGUMENT, "device = %d: the driver has devices 0 to %d", ordinal,
                (int)least(driver->device_count, MAX_DEVICES) - 1);
  *out = &devices[ordinal];
  if (atomic_load_explicit(&known[ordinal], memory_order_acquire)) return LIBGEMM_OK;
  pthread_mutex_lock(&learning);
  libgemm_status status = LIBGEMM_OK;
  if (!atomic_load(&known[ordinal])) {
    struct device found = {0};
    status = learn(ordinal, driver, &found);
    if (status == LIBGEMM_OK) {
      devices[ordinal] = found;
      atomic_store(&known[ordinal], true);
    }
  }
  pthread_mutex_unlock(&learning);
  return status;
}

libgemm_status device_of(const char *name, CUdeviceptr pointer, int *ordinal) {
  const struct driver *driver;
  TRY(driver_open(&driver));
  if (!pointer) return fail(LIBGEMM_INVALID_ARGUMENT, "%s is NULL: a pointer to device memory is needed", name);
  CUresult result = driver->pointer_get_attribute(ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
  if (result == CUDA_SUCCESS && *ordinal >= 0) return LIBGEMM_OK;
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
    return driver_failed("cuPointerGetAttribute", result);
  /* Memory the driver does not know: right only where the current GPU reads any host memory. */
  const struct device *device;
  if (driver->ctx_get_device(ordinal) == CUDA_SUCCESS && device_get(*ordinal, &device) == LIBGEMM_OK &&
      device->pageable)
    return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "%s = 0x%llx is host memory (or freed): device memory is needed", name,
              (unsigned long long)pointer);
}

libgemm_status check_pointer(const char *name, CUdeviceptr pointer, const struct device *device) {
  const struct driver *driver = device->driver;
  int owner = -1, type = 0, managed = 0;
  if (!pointer) return fail(LIBGEMM_INVALID_ARGUMENT, "%s is NULL: a pointer to device memory is needed", name);
  CUresult result = driver->pointer_get_attribute(&owner, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
  if (result == CUDA_SUCCESS && owner == device->ordinal) return LIBGEMM_OK;
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
    return driver_failed("cuPointerGetAttribute", result);
  if (result != CUDA_SUCCESS || owner < 0) {
    if (device->pageable) return LIBGEMM_OK;
    return fail(LIBGEMM_INVALID_ARGUMENT, "%s = 0x%llx is host memory (or freed): memory of GPU %d is needed", name,
                (unsigned long long)pointer, device->ordinal);
  }
  /* Page-locked and managed memory report the GPU they were made on, yet serve all. */
  if (driver->pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) == CUDA_SUCCESS &&
      type == CU_MEMORYTYPE_HOST)
    return LIBGEMM_OK;
  if (driver->pointer_get_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer) == CUDA_SUCCESS && managed)
    return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "%s is memory of GPU %d; this call runs on GPU %d, which owns D", name, owner,
              device->ordinal);
}

libgemm_status enter_device(const struct device *device, bool *entered) {
  CUdevice current;
  *entered = false;
  CUcontext context = NULL;
  TRY_CUDA("cuCtxGetCurrent", device->driver->ctx_get_current(&context));
  if (context == device->primary) return LIBGEMM_OK;
  if (context) { /* another context of the same device serves as well: the stream may be its own */
    TRY_CUDA("cuCtxGetDevice", device->driver->ctx_get_device(&current));
    if (current == device->ordinal) return LIBGEMM_OK;
  }
  TRY_CUDA("cuCtxPushCurrent", device->driver->ctx_push_current(device->primary));
  *entered = true;
  return LIBGEMM_OK;
}

void leave_device(const struct device *device, bool entered) {
  CUcontext popped;
  if (entered) device->driver->ctx_pop_current(&popped); /* cannot be mended by the caller; the launch stands */
}
