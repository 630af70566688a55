/* driver.h: the few CUDA driver declarations libgemm uses, written here so that no NVIDIA header is needed to build.
 *
 * Values and layouts are the driver API's ABI; tests/csrc/test_capi.py compares them with a cuda.h where there is one.
 */
#ifndef LIBGEMM_DRIVER_H
#define LIBGEMM_DRIVER_H

#include <stdint.h>

#include "libgemm.h"

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUstream_st *CUstream;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
};
enum {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
  CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};
enum {
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
};
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };
enum { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
enum { CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };
enum { CU_STREAM_CAPTURE_STATUS_NONE = 0 };
enum {
  CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
  CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0
};

typedef struct CUlaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int programmatic_serialization;
  } value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CUstream stream;
  CUlaunchAttribute *attributes;
  unsigned attribute_count;
} CUlaunchConfig;

/* X(field, exported symbol, parameters). Suffixed names are the current ABI of functions that once had another. */
#define DRIVER_FUNCTIONS(X)                                                                                       \
  X(init, "cuInit", (unsigned flags))                                                                             \
  X(driver_get_version, "cuDriverGetVersion", (int *version))                                                     \
  X(get_error_name, "cuGetErrorName", (CUresult error, const char **name))                                        \
  X(get_error_string, "cuGetErrorString", (CUresult error, const char **text))                                    \
  X(device_get_count, "cuDeviceGetCount", (int *count))                                                           \
  X(device_get, "cuDeviceGet", (CUdevice * device, int ordinal))                                                  \
  X(device_get_name, "cuDeviceGetName", (char *name, int size, CUdevice device))                                  \
  X(device_get_attribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device))                   \
  X(primary_ctx_retain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))                       \
  X(primary_ctx_get_state, "cuDevicePrimaryCtxGetState", (CUdevice device, unsigned *flags, int *active))         \
  X(ctx_get_device, "cuCtxGetDevice", (CUdevice * device))                                                        \
  X(ctx_get_current, "cuCtxGetCurrent", (CUcontext * context))                                                    \
  X(ctx_get_id, "cuCtxGetId", (CUcontext context, unsigned long long *id))                                        \
  X(ctx_push_current, "cuCtxPushCurrent_v2", (CUcontext context))                                                 \
  X(ctx_pop_current, "cuCtxPopCurrent_v2", (CUcontext * context))                                                 \
  X(stream_is_capturing, "cuStreamIsCapturing", (CUstream stream, int *status))                                   \
  X(pointer_get_attribute, "cuPointerGetAttribute", (void *value, int attribute, CUdeviceptr p))                  \
  X(memcpy_htod_async, "cuMemcpyHtoDAsync_v2", (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
  X(library_load_data, "cuLibraryLoadData",                                                                       \
    (CUlibrary * library, const void *code, int *jit_options, void **jit_values, unsigned jits, int *options,     \
     void **values, unsigned count))                                                                              \
  X(library_unload, "cuLibraryUnload", (CUlibrary library))                                                       \
  X(library_get_kernel, "cuLibraryGetKernel", (CUkernel * kernel, CUlibrary library, const char *name))           \
  X(kernel_get_function, "cuKernelGetFunction", (CUfunction * function, CUkernel kernel))                         \
  X(kernel_set_attribute, "cuKernelSetAttribute", (int attribute, int value, CUkernel kernel, CUdevice device))   \
  X(tensor_map_encode_tiled, "cuTensorMapEncodeTiled",                                                            \
    (void *map, int element, unsigned rank, CUdeviceptr address, const uint64_t *sizes, const uint64_t *strides,  \
     const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill))           \
  X(launch_kernel_ex, "cuLaunchKernelEx",                                                                         \
    (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra))

struct driver {
#define DRIVER_FIELD(field, symbol, parameters) CUresult(*field) parameters;
  DRIVER_FUNCTIONS(DRIVER_FIELD)
#undef DRIVER_FIELD
  int version; /* cuDriverGetVersion: 1000 * major + 10 * minor */
  int device_count;
};

/* Open the driver at first use; *out is valid for the life of the process. A failure is not remembered. */
libgemm_status driver_open(const struct driver **out);

/* Turn a failed driver call into a status and this thread's error sentence. */
libgemm_status driver_failed(const char *function, CUresult result) __attribute__((cold));

#endif
