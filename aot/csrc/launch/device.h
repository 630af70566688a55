/* device.h: a GPU's facts, and whose memory a pointer is. */
#ifndef LIBGEMM_LAUNCH_DEVICE_H
#define LIBGEMM_LAUNCH_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "error.h"
#include "table.h"

#define MAX_DEVICES 64

/* What a choice depends on of a GPU. */
struct gpu {
  int capability;                    /* * 10 */
  int multiprocessors, shared_bytes; /* the latter: of a block, at most */
  const struct target *target;       /* whose kernels serve it: of its capability, or of an earlier minor revision */
};

struct device {
  int ordinal;
  struct gpu gpu;
  int shared_per_multiprocessor;
  bool pageable; /* the GPU can read any host memory */
  const struct driver *driver;
  _Atomic(CUcontext) primary; /* that we retain, NULL before; beside what else a launch reads of the device */
};

/* Set the target that serves gpu->capability; UNSUPPORTED_DEVICE, of `what`, where there is none. */
libgemm_status find_target(const char *what, struct gpu *gpu);

/* The GPU named by an explain call: one of the compute capability `number` / 10; 0 is the current one. */
libgemm_status explain_gpu(int32_t number, struct gpu *gpu);

/* Facts of a device, gathered at first use; refuses one this library has no code for, or whose driver is too old. */
libgemm_status device_get(int ordinal, const struct device **out);

/* The GPU that can serve memory at `pointer`, argument `name`: INVALID_ARGUMENT for host memory. */
libgemm_status device_of(const char *name, CUdeviceptr pointer, int *ordinal);

/* INVALID_ARGUMENT unless `device`, which is entered, can use `pointer` as argument `name`. */
libgemm_status check_pointer(const char *name, CUdeviceptr pointer, const struct device *device);

/* The GPU whose context is current, or GPU 0. */
libgemm_status current_device(const struct device **out);

/* The GPU that owns `pointer`, argument `name`; where that is NULL, the current one. */
libgemm_status device_for(const char *name, CUdeviceptr pointer, const struct device **out);

/* Make a context of `device` current unless one is; leave_device undoes just what enter_device did. */
libgemm_status enter_device(const struct device *device, bool *entered);
void leave_device(const struct device *device, bool entered);

/* Return from a call what `status` is with that context current. */
#define RETURN_ON(device, status)           \
  do {                                      \
    bool entered_;                          \
    TRY(enter_device((device), &entered_)); \
    libgemm_status found_ = (status);       \
    leave_device((device), entered_);       \
    return found_;                          \
  } while (0)

/* The same on the GPU that can serve memory at `pointer`, argument `name`, to which `device` is set first. */
#define RETURN_ON_OWNER(name, pointer, device, status)         \
  do {                                                         \
    int ordinal_;                                              \
    TRY(device_of((name), (CUdeviceptr)(pointer), &ordinal_)); \
    TRY(device_get(ordinal_, &(device)));                      \
    RETURN_ON((device), (status));                             \
  } while (0)

#endif
