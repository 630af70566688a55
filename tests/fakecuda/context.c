// Part of the fake CUDA driver: start-up, devices, contexts, streams, events.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "internal.h"

enum { MAX_DEPTH = 32 };

// Destroyed streams and events stay in their lists, so that a stale handle is always recognised as one.
struct Stream {
  struct Stream *next;
  CUcontext context;
  int live;
};

struct Event {
  struct Event *next;
  CUcontext context;
  int live, recorded;
  struct timespec time;
};

static struct Context contexts[MAX_DEVICES];
static struct Stream *streams;
static struct Event *events;
static _Thread_local CUcontext stack[MAX_DEPTH];
static _Thread_local int depth;

CUresult cuInit(unsigned flags) {
  CALL(cuInit, ANYTIME, ",'flags':%u", flags);
  if (forked) return done(CUDA_ERROR_NOT_INITIALIZED);
  if (flags) return done(CUDA_ERROR_INVALID_VALUE);
  if (config.no_device || config.devices == 0) return done(CUDA_ERROR_NO_DEVICE);
  initialized = 1;
  return done(CUDA_SUCCESS);
}

CUresult cuDriverGetVersion(int *version) {
  CALL(cuDriverGetVersion, ANYTIME, NULL);
  if (!version) return done(CUDA_ERROR_INVALID_VALUE);
  *version = config.version;
  return done(CUDA_SUCCESS);
}

static const struct {
  int code;
  const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "device busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image for this device"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "operating system call failed"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "driver and user-mode library differ in version"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would depend on a capturing stream"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult describe(CUresult error, const char **out, int want_text) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = NULL;
  for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
    if (errors[i].code == (int)error) *out = want_text ? errors[i].text : errors[i].name;
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
  CALL(cuGetErrorName, ANYTIME, ",'error':%d", error);
  return done(describe(error, name, 0));
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  CALL(cuGetErrorString, ANYTIME, ",'error':%d", error);
  return done(describe(error, text, 1));
}

int is_device(CUdevice device) { return device >= 0 && device < config.devices; }

int max_shared(CUdevice device) {
  switch (config.sm[device]) {
    case 90:
    case 100:
    case 103: return 232448;
    case 80: return 166912;
    case 86:
    case 89:
    case 120: return 101376;
    default: return DEFAULT_SHARED;
  }
}

CUresult cuDeviceGetCount(int *count) {
  CALL(cuDeviceGetCount, NEED_INIT, NULL);
  if (!count) return done(CUDA_ERROR_INVALID_VALUE);
  *count = config.devices;
  return done(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  CALL(cuDeviceGet, NEED_INIT, ",'device':%d", ordinal);
  if (!device) return done(CUDA_ERROR_INVALID_VALUE);
  if (!is_device(ordinal)) return done(CUDA_ERROR_INVALID_DEVICE);
  *device = ordinal;
  return done(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
  CALL(cuDeviceGetName, NEED_INIT, ",'device':%d", device);
  if (!name || bytes <= 0) return done(CUDA_ERROR_INVALID_VALUE);
  if (!is_device(device)) return done(CUDA_ERROR_INVALID_DEVICE);
  snprintf(name, (size_t)bytes, "Fake GPU sm_%d", config.sm[device]);
  return done(CUDA_SUCCESS);
}

static int device_attribute(int attribute, CUdevice device) {
  switch (attribute) {
    case 1: return 1024;                        // threads per block
    case 8: return DEFAULT_SHARED;              // shared memory per block
    case 10: return 32;                         // warp size
    case 16: return config.multiprocessors;     // multiprocessors
    case 39: return 2048;                       // threads per multiprocessor
    case 41: return 1;                          // unified addressing
    case 75: return config.sm[device] / 10;     // compute capability, major
    case 76: return config.sm[device] % 10;     // compute capability, minor
    case 81: return max_shared(device) + 1024;  // shared memory per multiprocessor
    case 82: return 65536;                      // registers per multiprocessor
    case 95: return 1;                          // cooperative launch
    case 97: return max_shared(device);         // opt-in shared memory per block
    default: return 0;                          // among them 88, pageable memory access
  }
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  CALL(cuDeviceGetAttribute, NEED_INIT, ",'attribute':%d,'device':%d", attribute, device);
  if (!value) return done(CUDA_ERROR_INVALID_VALUE);
  if (!is_device(device)) return done(CUDA_ERROR_INVALID_DEVICE);
  *value = device_attribute(attribute, device);
  note(",'value':%d", *value);
  return done(CUDA_SUCCESS);
}

CUdevice context_device(CUcontext context) {
  for (int i = 0; i < config.devices; i++)
    if (context == &contexts[i]) return i;
  return -1;
}

CUresult current_context(CUcontext *context) {
  if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack[depth - 1];
  return (*context)->retained && !(*context)->reset ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

int can_access(CUcontext context, CUcontext owner) {
  return context == owner || (context->peers >> context_device(owner) & 1);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  CALL(cuDevicePrimaryCtxRetain, NEED_INIT, ",'device':%d", device);
  if (!context) return done(CUDA_ERROR_INVALID_VALUE);
  if (!is_device(device)) return done(CUDA_ERROR_INVALID_DEVICE);
  static uint64_t made;
  *context = &contexts[device];
  if (!contexts[device].retained || contexts[device].reset) contexts[device].id = ++made;
  contexts[device].reset = 0;
  note(",'retained':%d", ++contexts[device].retained);
  return done(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  CALL(cuDevicePrimaryCtxGetState, NEED_INIT, ",'device':%d", device);
  if (!flags || !active) return done(CUDA_ERROR_INVALID_VALUE);
  if (!is_device(device)) return done(CUDA_ERROR_INVALID_DEVICE);
  *flags = 0;
  *active = contexts[device].retained && !contexts[device].reset;
  return done(CUDA_SUCCESS);
}

// Its handle, who retains it and loaded kernels stay, as seen on an H200 with driver 580.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  CALL(cuDevicePrimaryCtxReset_v2, NEED_INIT, ",'device':%d", device);
  if (!is_device(device)) return done(CUDA_ERROR_INVALID_DEVICE);
  forget_memory(&contexts[device]);
  contexts[device].reset = 1;
  contexts[device].peers = 0;
  return done(CUDA_SUCCESS);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  CALL(cuCtxEnablePeerAccess, NEED_CONTEXT, ",'device':%d", context_device(peer));
  if (flags || context_device(peer) < 0 || peer == stack[depth - 1]) return done(CUDA_ERROR_INVALID_VALUE);
  stack[depth - 1]->peers |= 1u << context_device(peer);
  return done(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  CALL(cuDevicePrimaryCtxRelease_v2, NEED_INIT, ",'device':%d", device);
  if (!is_device(device)) return done(CUDA_ERROR_INVALID_DEVICE);
  if (contexts[device].retained == 0) return done(CUDA_ERROR_INVALID_CONTEXT);
  note(",'retained':%d", --contexts[device].retained);
  return done(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  CALL(cuCtxGetCurrent, NEED_INIT, NULL);
  if (!context) return done(CUDA_ERROR_INVALID_VALUE);
  *context = depth ? stack[depth - 1] : NULL;
  note(",'device':%d", context_device(*context));
  return done(CUDA_SUCCESS);
}

uint64_t context_id(CUdevice device) { return contexts[device].id; }

// NULL stands for the current one.
CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
  CALL(cuCtxGetId, NEED_INIT, NULL);
  if (!id) return done(CUDA_ERROR_INVALID_VALUE);
  if (!context && depth) context = stack[depth - 1];
  if (!context || context_device(context) < 0) return done(CUDA_ERROR_INVALID_CONTEXT);
  if (!context->retained || context->reset) return done(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  *id = context->id;
  return done(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device) {
  CALL(cuCtxGetDevice, NEED_INIT, NULL);  // also of one that was destroyed
  if (!device) return done(CUDA_ERROR_INVALID_VALUE);
  if (depth == 0) return done(CUDA_ERROR_INVALID_CONTEXT);
  *device = context_device(stack[depth - 1]);
  note(",'device':%d", *device);
  return done(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext context) {
  CALL(cuCtxSetCurrent, NEED_INIT, ",'device':%d", context_device(context));
  if (!context) {
    if (depth) depth--;
    return done(CUDA_SUCCESS);
  }
  if (context_device(context) < 0 || !context->retained) return done(CUDA_ERROR_INVALID_CONTEXT);
  if (depth == 0) depth = 1;
  stack[depth - 1] = context;
  return done(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  CALL(cuCtxPushCurrent_v2, NEED_INIT, ",'device':%d", context_device(context));
  if (context_device(context) < 0 || !context->retained) return done(CUDA_ERROR_INVALID_CONTEXT);
  if (depth == MAX_DEPTH) return done(CUDA_ERROR_OUT_OF_MEMORY);  // a test that forgets to pop
  stack[depth++] = context;
  return done(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  CALL(cuCtxPopCurrent_v2, NEED_INIT, NULL);
  if (depth == 0) return done(CUDA_ERROR_INVALID_CONTEXT);
  depth--;
  if (context) *context = stack[depth];
  note(",'device':%d", context_device(stack[depth]));
  return done(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void) {
  CALL(cuCtxSynchronize, NEED_CONTEXT | NO_CAPTURE, NULL);
  return done(CUDA_SUCCESS);
}

CUresult stream_context(CUstream stream, CUcontext *context) {
  if ((uintptr_t)stream <= 2) return current_context(context);  // default, legacy and per-thread stream
  for (struct Stream *s = streams; s; s = s->next) {
    if (s != stream || !s->live) continue;
    *context = s->context;
    return s->context->retained ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  CALL(cuStreamCreate, NEED_CONTEXT, ",'flags':%u", flags);
  if (!stream || flags > 1) return done(CUDA_ERROR_INVALID_VALUE);
  struct Stream *new = calloc(1, sizeof(*new));
  if (!new) return done(CUDA_ERROR_OUT_OF_MEMORY);
  *new = (struct Stream){.next = streams, .context = stack[depth - 1], .live = 1};
  *stream = streams = new;
  note(",'stream':'0x%llx'", (unsigned long long)(uintptr_t)new);
  return done(CUDA_SUCCESS);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  CALL(cuStreamDestroy_v2, NEED_INIT, ",'stream':'0x%llx'", (unsigned long long)(uintptr_t)stream);
  CUcontext context;
  if ((uintptr_t)stream <= 2) return done(CUDA_ERROR_INVALID_HANDLE);
  CUresult result = stream_context(stream, &context);
  if (result != CUDA_ERROR_INVALID_HANDLE) stream->live = 0;
  return done(result);
}

CUresult cuStreamSynchronize(CUstream stream) {
  CALL(cuStreamSynchronize, NEED_INIT | NO_CAPTURE, ",'stream':'0x%llx'", (unsigned long long)(uintptr_t)stream);
  CUcontext context;
  return done(stream_context(stream, &context));
}

CUresult cuStreamIsCapturing(CUstream stream, int *status) {
  CALL(cuStreamIsCapturing, NEED_INIT, ",'stream':'0x%llx'", (unsigned long long)(uintptr_t)stream);
  CUcontext context;
  if (!status) return done(CUDA_ERROR_INVALID_VALUE);
  CUresult result = stream_context(stream, &context);
  if (result == CUDA_SUCCESS) *status = config.capturing || is_captured(stream);  // 1: active
  return done(result);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
  CALL(cuStreamGetCtx, NEED_INIT, ",'stream':'0x%llx'", (unsigned long long)(uintptr_t)stream);
  if (!context) return done(CUDA_ERROR_INVALID_VALUE);
  CUresult result = stream_context(stream, context);
  if (result == CUDA_SUCCESS) note(",'device':%d", context_device(*context));
  return done(result);
}

static int is_event(CUevent event) {
  for (struct Event *e = events; e; e = e->next)
    if (e == event) return e->live;
  return 0;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  CALL(cuEventCreate, NEED_CONTEXT, ",'flags':%u", flags);
  if (!event) return done(CUDA_ERROR_INVALID_VALUE);
  struct Event *new = calloc(1, sizeof(*new));
  if (!new) return done(CUDA_ERROR_OUT_OF_MEMORY);
  *new = (struct Event){.next = events, .context = stack[depth - 1], .live = 1};
  *event = events = new;
  return done(CUDA_SUCCESS);
}

CUresult cuEventDestroy_v2(CUevent event) {
  CALL(cuEventDestroy_v2, NEED_INIT, NULL);
  if (!is_event(event)) return done(CUDA_ERROR_INVALID_HANDLE);
  event->live = 0;
  return done(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  CALL(cuEventRecord, NEED_INIT, ",'stream':'0x%llx'", (unsigned long long)(uintptr_t)stream);
  CUcontext context;
  CUresult result = stream_context(stream, &context);
  if (result != CUDA_SUCCESS) return done(result);
  if (!is_event(event) || event->context != context) return done(CUDA_ERROR_INVALID_HANDLE);
  event->recorded = 1;
  clock_gettime(CLOCK_MONOTONIC, &event->time);
  return done(CUDA_SUCCESS);
}

CUresult cuEventSynchronize(CUevent event) {
  CALL(cuEventSynchronize, NEED_INIT | NO_CAPTURE, NULL);
  return done(is_event(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

// Host time between the two records: nothing runs, but it is positive and grows.
static CUresult elapsed(float *milliseconds, CUevent start, CUevent end) {
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  if (!is_event(start) || !is_event(end) || !start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  double seconds = (double)(end->time.tv_sec - start->time.tv_sec);
  *milliseconds = (float)(seconds * 1e3 + (double)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  CALL(cuEventElapsedTime, NEED_INIT, NULL);
  return done(elapsed(milliseconds, start, end));
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
  CALL(cuEventElapsedTime_v2, NEED_INIT, NULL);
  return done(elapsed(milliseconds, start, end));
}
