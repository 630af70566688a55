// Shared by the parts of the fake CUDA driver: its types, and the one frame in which every entry point runs.
#ifndef FAKECUDA_INTERNAL_H_
#define FAKECUDA_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>

#include "fakecuda.h"

// The driver's types, declared here because its header may not be copied. Only sizes and values have to agree.
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct Context *CUcontext;
typedef struct Stream *CUstream;
typedef struct Event *CUevent;
typedef struct Graph *CUgraph;
typedef void *CUgraphNode;
typedef struct Library *CUlibrary;
typedef struct Kernel *CUkernel;
typedef void *CUfunction;  // of Kernel.handles or, as the driver allows, a CUkernel

typedef enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
} CUresult;

// clang-format off
// Every entry point this driver exports. fakecuda_fail and fakecuda_count know these names and no others.
#define FAKECUDA_CALLS(X)                                                                                        \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount) X(cuDeviceGet)       \
  X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2)         \
  X(cuDevicePrimaryCtxGetState) X(cuDevicePrimaryCtxReset_v2) X(cuCtxEnablePeerAccess)                          \
  X(cuCtxGetCurrent) X(cuCtxGetId) X(cuCtxGetDevice) X(cuCtxSetCurrent) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2)           \
  X(cuCtxSynchronize) X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamSynchronize) X(cuStreamIsCapturing)      \
  X(cuStreamGetCtx) X(cuPointerGetAttribute) X(cuPointerGetAttributes) X(cuMemAlloc_v2) X(cuMemFree_v2)          \
  X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemsetD8_v2)         \
  X(cuMemsetD8Async) X(cuMemsetD32Async) X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord)                  \
  X(cuEventSynchronize) X(cuEventElapsedTime) X(cuEventElapsedTime_v2) X(cuLibraryLoadData) X(cuLibraryUnload)   \
  X(cuLibraryGetKernel) X(cuLibraryGetKernelCount) X(cuLibraryEnumerateKernels) X(cuKernelGetFunction)           \
  X(cuKernelSetAttribute) X(cuKernelGetAttribute) X(cuKernelGetParamInfo) X(cuFuncSetAttribute)                  \
  X(cuFuncGetAttribute) X(cuFuncLoad) X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuTensorMapEncodeTiled)            \
  X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuGraphGetNodes) X(cuGraphKernelNodeGetParams_v2)           \
  X(cuGraphKernelNodeGetAttribute)
// clang-format on

#define FAKECUDA_ID(function) CALL_##function,
typedef enum { FAKECUDA_CALLS(FAKECUDA_ID) CALLS } CallId;
#undef FAKECUDA_ID

#pragma GCC visibility push(hidden)

// The first statement of every entry point: takes the driver's one lock, counts the call, describes its arguments for
// the log (printf style, ' for ", each item led by a comma; NULL for none), and returns early on an injected failure
// or an unmet need. From then on the only way out is `return done(result)`, which logs and unlocks.
#define CALL(function, needs, ...)                                  \
  do {                                                              \
    lock();                                                         \
    CUresult early_ = begin(CALL_##function, (needs), __VA_ARGS__); \
    if (early_ != CUDA_SUCCESS) return done(early_);                \
  } while (0)

enum {
  ANYTIME = 0,
  NEED_INIT = 1,
  NEED_CONTEXT = 2 | NEED_INIT,
  NO_CAPTURE = 4,  // not allowed while a stream is capturing
};

void lock(void);
CUresult begin(CallId call, int needs, const char *format, ...) __attribute__((format(printf, 3, 4)));
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void note_hex(const void *bytes, size_t size);
void keep_launch(void);  // makes the line of this call the answer of fakecuda_last_launch
CUresult done(CUresult result);
const char *safe(const char *text);  // text without characters that JSON would need escaped; valid until the next use

enum { MAX_DEVICES = 16, DEFAULT_SHARED = 49152, CONTEXTS = 4 };  // the last so many of a device, by their ids

typedef struct {
  int log;  // file descriptor, or -1
  int version;
  int devices;
  int sm[MAX_DEVICES];
  int multiprocessors;
  int no_device;
  int capturing;
} Config;

extern Config config;
extern struct fakecuda_watcher watcher;
extern int initialized;  // by cuInit; never true in a child forked afterwards
extern int forked;

struct Context {
  int retained;    // destroyed when it falls to zero
  int reset;       // destroyed, until it is retained anew
  uint64_t id;     // another one each time it is made
  unsigned peers;  // bit of each device whose memory it can access beside its own
};

int is_device(CUdevice device);
int max_shared(CUdevice device);  // opt-in shared memory per block
CUresult current_context(CUcontext *context);
CUdevice context_device(CUcontext context);  // -1: not a context
uint64_t context_id(CUdevice device);        // of its context; 0 before the first
int can_access(CUcontext context, CUcontext owner);
void forget_memory(CUcontext context);
CUresult stream_context(CUstream stream, CUcontext *context);

typedef struct Kernel Kernel;

typedef struct {
  Kernel *kernel;
  CUdevice device;
  int shared_limit;  // largest dynamic shared memory that a launch may ask for
} Function;

typedef struct fakecuda_parameter Parameter;

struct Kernel {
  char *name;
  struct Library *library;
  Function functions[MAX_DEVICES];
  uint64_t handles[MAX_DEVICES][CONTEXTS];  // a CUfunction is the address of one, which has its context's id
  uint32_t block[3];                        // required block dimensions, 0 when any will do
  size_t parameters;
  Parameter *parameter;
};

CUresult find_function(CUfunction handle, Function **function);  // a bare kernel means its function on this device
CUresult check_binary(const Kernel *kernel, CUdevice device);

typedef struct {
  CUfunction function;  // as it was given
  const Kernel *kernel;
  uint32_t grid[3], block[3], cluster[3], shared;
} CapturedLaunch;

int is_captured(CUstream stream);  // into a graph
CUresult capture_launch(const CapturedLaunch *launch, CUstream stream, void **parameters);

#pragma GCC visibility pop

#endif  // FAKECUDA_INTERNAL_H_
