// Part of the fake CUDA driver: checks and records launches, and checks tensor maps.
#include <string.h>

#include "internal.h"

enum { ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_PROGRAMMATIC = 6, MAX_BLOCK_THREADS = 1024 };

typedef struct {
  int id;
  int pad;
  union {
    uint64_t room[8];
    uint32_t cluster[3];
    int programmatic;
  } value;
} LaunchAttribute;

typedef struct {
  uint32_t grid[3], block[3];
  uint32_t shared;
  CUstream stream;
  const LaunchAttribute *attributes;
  uint32_t attribute_count;
} LaunchConfig;

_Static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56, "the driver's layout on 64-bit machines");

static CUresult check_shape(const LaunchConfig *launch, const Function *function, const uint32_t cluster[3]) {
  const uint32_t grid_limit[3] = {INT32_MAX, 65535, 65535};
  uint64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    if (launch->grid[i] == 0 || launch->grid[i] > grid_limit[i]) return CUDA_ERROR_INVALID_VALUE;
    if (cluster[i] == 0 || launch->grid[i] % cluster[i]) return CUDA_ERROR_INVALID_VALUE;
    if (launch->block[i] == 0 || launch->block[i] > MAX_BLOCK_THREADS) return CUDA_ERROR_INVALID_VALUE;
    threads *= launch->block[i];
  }
  if (threads > MAX_BLOCK_THREADS) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t *required = function->kernel->block;
  if (required[0] && memcmp(required, launch->block, sizeof(launch->block))) return CUDA_ERROR_INVALID_VALUE;
  uint32_t limit = (uint32_t)function->shared_limit;
  return launch->shared <= (limit > DEFAULT_SHARED ? limit : DEFAULT_SHARED) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void tell(const LaunchConfig *launch, const Function *function, const uint32_t cluster[3], void **parameters) {
  const Kernel *kernel = function->kernel;
  struct fakecuda_launch told = {.handle = kernel, .kernel = kernel->name, .device = function->device};
  memcpy(told.grid, launch->grid, sizeof(told.grid));
  memcpy(told.block, launch->block, sizeof(told.block));
  memcpy(told.cluster, cluster, sizeof(told.cluster));
  told.shared = launch->shared;
  told.parameters = kernel->parameters;
  told.values = parameters;
  told.table = kernel->parameter;
  watcher.launch(&told);
}

static CUresult record(const LaunchConfig *launch, CUfunction handle, void **parameters, void **extra) {
  uint32_t cluster[3] = {1, 1, 1};
  int programmatic = 0;
  for (uint32_t i = 0; launch->attributes && i < launch->attribute_count; i++) {
    const LaunchAttribute *attribute = &launch->attributes[i];
    if (attribute->id == ATTRIBUTE_CLUSTER) memcpy(cluster, attribute->value.cluster, sizeof(cluster));
    if (attribute->id == ATTRIBUTE_PROGRAMMATIC) programmatic = attribute->value.programmatic;
  }

  CUcontext current, context;
  Function *function;
  CUresult result = current_context(&current);
  if (result == CUDA_SUCCESS) result = find_function(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  const Kernel *kernel = function->kernel;
  note(",'kernel':'%s','grid':[%u,%u,%u],'block':[%u,%u,%u],'cluster':%u,'programmatic':%d", safe(kernel->name),
       launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2],
       cluster[0] * cluster[1] * cluster[2], programmatic);
  note(",'shared':%u,'stream':'0x%llx','device':%d", launch->shared, (unsigned long long)(uintptr_t)launch->stream,
       context_device(current));
  note(",'handle':'0x%llx'", (unsigned long long)(uintptr_t)kernel);  // kernels of several libraries share a name
  note(",'by':'%s'", handle == kernel ? "kernel" : "function");

  result = stream_context(launch->stream, &context);
  if (result != CUDA_SUCCESS) return result;
  if (context != current || function->device != context_device(current)) return CUDA_ERROR_INVALID_HANDLE;
  if ((result = check_binary(kernel, function->device)) != CUDA_SUCCESS) return result;
  if ((result = check_shape(launch, function, cluster)) != CUDA_SUCCESS) return result;
  if (extra) return CUDA_ERROR_NOT_SUPPORTED;  // the other way to pass parameters
  if (kernel->parameters && !parameters) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < kernel->parameters; i++)
    if (!parameters[i]) return CUDA_ERROR_INVALID_VALUE;

  note(",'params':[");
  for (size_t i = 0; i < kernel->parameters; i++) {
    note("%s{'size':%u,'hex':'", i ? "," : "", kernel->parameter[i].size);
    note_hex(parameters[i], kernel->parameter[i].size);
    note("'}");
  }
  note("]");
  keep_launch();
  if (watcher.launch) tell(launch, function, cluster, parameters);
  note(",'captured':%d", is_captured(launch->stream));
  if (!is_captured(launch->stream)) return CUDA_SUCCESS;
  CapturedLaunch captured = {.function = handle, .kernel = kernel, .shared = launch->shared};
  memcpy(captured.grid, launch->grid, sizeof(captured.grid));
  memcpy(captured.block, launch->block, sizeof(captured.block));
  memcpy(captured.cluster, cluster, sizeof(cluster));
  return capture_launch(&captured, launch->stream, parameters);
}

CUresult cuLaunchKernelEx(const LaunchConfig *launch, CUfunction function, void **parameters, void **extra) {
  CALL(cuLaunchKernelEx, NEED_CONTEXT, NULL);
  return done(launch ? record(launch, function, parameters, extra) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                        void **extra) {
  CALL(cuLaunchKernel, NEED_CONTEXT, NULL);
  LaunchConfig launch = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream, NULL, 0};
  return done(record(&launch, function, parameters, extra));
}

enum { TYPES = 16, TYPE_16U4_ALIGN8B = 13, TYPE_16U4_ALIGN16B = 14, TYPE_16U6_ALIGN16B = 15 };
enum { MAX_RANK = 5, SWIZZLES = 7, INTERLEAVE_32B = 2, SWIZZLE_32B = 1 };

// What an encoded map contains here, instead of the hardware's undocumented bits.
// Python: struct.unpack("<8sQ5Q4Q5H5B6B19x", map)
typedef struct {
  char magic[8];
  uint64_t address, dims[MAX_RANK], strides[MAX_RANK - 1];
  uint16_t box[MAX_RANK];
  uint8_t element_strides[MAX_RANK];
  uint8_t rank, type, interleave, swizzle, promotion, fill;
  uint8_t reserved[19];
} TensorMap;

_Static_assert(sizeof(TensorMap) == 128, "CUtensorMap is 128 bytes");

// The rules that the driver documents for the tiled mode.
static int is_legal(const TensorMap *out, int type, unsigned rank, const void *address, const uint64_t *dims,
                    const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave,
                    int swizzle, int promotion, int fill) {
  static const uint8_t bits[TYPES] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 8, 8};
  static const uint16_t span[SWIZZLES] = {256, 32, 64, 128, 128, 128, 128};
  if (!out || (uintptr_t)out % 64 || !dims || !box || !element_strides) return 0;
  if (rank < 1 || rank > MAX_RANK || (rank > 1 && !strides)) return 0;
  if (type < 0 || type >= TYPES || interleave < 0 || interleave > INTERLEAVE_32B) return 0;
  if (swizzle < 0 || swizzle >= SWIZZLES || promotion < 0 || promotion > 3 || fill < 0 || fill > 1) return 0;
  if (interleave && rank < 3) return 0;
  if (interleave == INTERLEAVE_32B && swizzle != SWIZZLE_32B) return 0;

  int padded = type == TYPE_16U4_ALIGN16B || type == TYPE_16U6_ALIGN16B;  // 16 elements take 16 bytes
  unsigned alignment = padded || interleave == INTERLEAVE_32B ? 32 : 16;
  if (!address || (uintptr_t)address % alignment) return 0;
  if (padded && (dims[0] % 128 || box[0] != 128)) return 0;
  if (type == TYPE_16U4_ALIGN8B && dims[0] % 2) return 0;
  for (unsigned i = 0; i < rank; i++) {
    if (dims[i] < 1 || dims[i] > UINT64_C(1) << 32) return 0;
    if (i + 1 < rank && (strides[i] % alignment || strides[i] >= UINT64_C(1) << 40)) return 0;
    if (box[i] < 1 || box[i] > 256 || element_strides[i] < 1 || element_strides[i] > 8) return 0;
  }
  if (interleave) return 1;
  uint64_t inner_bits = (uint64_t)box[0] * bits[type];
  return inner_bits % 128 == 0 && (swizzle == 0 || inner_bits <= 8u * span[swizzle]);
}

CUresult cuTensorMapEncodeTiled(TensorMap *out, int type, unsigned rank, void *address, const uint64_t *dims,
                                const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
                                int interleave, int swizzle, int promotion, int fill) {
  CALL(cuTensorMapEncodeTiled, NEED_INIT, ",'type':%d,'rank':%u,'address':'0x%llx','interleave':%d,'swizzle':%d", type,
       rank, (unsigned long long)(uintptr_t)address, interleave, swizzle);
  for (unsigned i = 0; dims && box && i < rank && i < MAX_RANK; i++)
    note("%s[%llu,%u]", i ? "," : ",'dims_and_box':[", (unsigned long long)dims[i], box[i]);
  if (dims && box && rank) note("]");
  if (!is_legal(out, type, rank, address, dims, strides, box, element_strides, interleave, swizzle, promotion, fill))
    return done(CUDA_ERROR_INVALID_VALUE);

  TensorMap map = {.magic = "FAKETMAP", .address = (uintptr_t)address, .rank = (uint8_t)rank, .type = (uint8_t)type};
  map.interleave = (uint8_t)interleave;
  map.swizzle = (uint8_t)swizzle;
  map.promotion = (uint8_t)promotion;
  map.fill = (uint8_t)fill;
  for (unsigned i = 0; i < rank; i++) {
    map.dims[i] = dims[i];
    if (i + 1 < rank) map.strides[i] = strides[i];
    map.box[i] = (uint16_t)box[i];
    map.element_strides[i] = (uint8_t)element_strides[i];
  }
  *out = map;
  return done(CUDA_SUCCESS);
}
