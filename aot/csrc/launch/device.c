/* device.c: facts of each GPU, contexts, and which GPU a pointer belongs to. Launches nothing. */
#include <pthread.h>
#include <stdio.h>

#include "internal.h"

static struct device devices[MAX_DEVICES];
static atomic_bool known[MAX_DEVICES];
static pthread_mutex_t learning = PTHREAD_MUTEX_INITIALIZER;

static libgemm_status learn(int ordinal, const struct driver *driver, struct device *device) {
  CUdevice handle;
  int major = 0, minor = 0, pageable = 0;
  char name[128] = "this GPU", what[192];
  TRY_CUDA("cuDeviceGet", driver->device_get(&handle, ordinal));
  const struct {
    int *value, attribute;
  } facts[] = {
      {&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
      {&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
      {&pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
      {&device->gpu.multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
      {&device->gpu.shared_bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
      {&device->shared_per_multiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
  };
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
    TRY_CUDA("cuDeviceGetAttribute", driver->device_get_attribute(facts[i].value, facts[i].attribute, handle));
  TRY_CUDA("cuDeviceGetName", driver->device_get_name(name, sizeof name, handle));
  device->ordinal = ordinal;
  device->pageable = pageable != 0;
  device->driver = driver;
  device->gpu.capability = major * 10 + minor;
  snprintf(what, sizeof what, "%s (compute capability %d.%d)", name, major, minor);
  TRY(find_target(what, &device->gpu));
  enum { CUDA_12 = 12000 }; /* the least any kernel needs */
  if (driver->version < device->gpu.target->min_cuda)
    return fail(LIBGEMM_DRIVER_TOO_OLD,
                "the NVIDIA driver supports CUDA %d.%d; kernels for %s need CUDA %d.%d (driver %s or newer): update "
                "the driver%s",
                driver->version / 1000, driver->version % 1000 / 10, name, device->gpu.target->min_cuda / 1000,
                device->gpu.target->min_cuda % 1000 / 10, device->gpu.target->min_driver,
                device->gpu.target->min_cuda > CUDA_12 ? ", or build with MIN_DRIVER=525" : "");
  return LIBGEMM_OK;
}

HOT libgemm_status device_get(int ordinal, const struct device **out) {
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

HOT libgemm_status device_of(const char *name, CUdeviceptr pointer, int *ordinal) {
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

libgemm_status current_device(const struct device **out) {
  const struct driver *driver;
  int ordinal;
  TRY(driver_open(&driver));
  return device_get(driver->ctx_get_device(&ordinal) == CUDA_SUCCESS ? ordinal : 0, out);
}

libgemm_status device_for(const char *name, CUdeviceptr pointer, const struct device **out) {
  int ordinal;
  if (!pointer) return current_device(out);
  TRY(device_of(name, pointer, &ordinal));
  return device_get(ordinal, out);
}

HOT libgemm_status check_pointer(const char *name, CUdeviceptr pointer, const struct device *device) {
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
  /* Whether kernels of the current context, the call's, can access it: mapped by a peer. */
  CUdeviceptr mapped = 0;
  if (driver->pointer_get_attribute(&mapped, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer) == CUDA_SUCCESS)
    return LIBGEMM_OK;
  return fail(
      LIBGEMM_INVALID_ARGUMENT,
      "%s is memory of GPU %d, which GPU %d, the one that owns D and runs this call, cannot access: copy it, or "
      "enable peer access",
      name, owner, device->ordinal);
}

/* Retain the primary context; one that was not there before takes hundreds of megabytes of the GPU. Its handle, and the
 * kernels loaded before, serve again after somebody has reset the GPU and made the context anew: seen on an H200. */
static libgemm_status retain_primary(const struct device *device) {
  CUcontext context;
  TRY_CUDA("cuDevicePrimaryCtxRetain", device->driver->primary_ctx_retain(&context, device->ordinal));
  atomic_store(&devices[device->ordinal].primary, context);
  return LIBGEMM_OK;
}

HOT libgemm_status enter_device(const struct device *device, bool *entered) {
  const struct driver *driver = device->driver;
  _Atomic(CUcontext) *primary = &devices[device->ordinal].primary;
  CUdevice current;
  CUcontext context = NULL;
  *entered = false;
  TRY_CUDA("cuCtxGetCurrent", driver->ctx_get_current(&context));
  if (context && context == atomic_load_explicit(primary, memory_order_relaxed)) return LIBGEMM_OK;
  if (context) { /* another context of the same device serves as well: the stream may be its own */
    unsigned flags;
    int active = 0;
    TRY_CUDA("cuCtxGetDevice", driver->ctx_get_device(&current));
    if (current == device->ordinal) {
      if (!atomic_load(primary) && driver->primary_ctx_get_state(device->ordinal, &flags, &active) == CUDA_SUCCESS &&
          active)
        TRY(retain_primary(device)); /* it is there, most likely this one: known from now on */
      return LIBGEMM_OK;
    }
  }
  if (!atomic_load(primary)) TRY(retain_primary(device));
  TRY_CUDA("cuCtxPushCurrent", driver->ctx_push_current(atomic_load(primary)));
  *entered = true;
  return LIBGEMM_OK;
}

HOT void leave_device(const struct device *device, bool entered) {
  CUcontext popped;
  if (entered) device->driver->ctx_pop_current(&popped); /* cannot be mended by the caller; the launch stands */
}
