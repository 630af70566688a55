/* load.c: from a row to a kernel the driver holds, and its launch. Knows no operation. */
#include <pthread.h>
#include <string.h>

#include "internal.h"

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static libgemm_status damaged(const struct row *row) {
  return fail(LIBGEMM_UNSUPPORTED, "the kernels of %s are damaged in this library file: install it again", row->name);
}

static uint64_t mixed(uint64_t found, uint64_t word) {
  found = (found ^ word) * 0x9E3779B97F4A7C15u;
  return found ^ found >> 32;
}

static uint64_t checksum(const unsigned char *bytes, size_t count) {
  uint64_t found = count, word;
  for (; count >= sizeof word; bytes += sizeof word, count -= sizeof word) {
    memcpy(&word, bytes, sizeof word);
    found = mixed(found, word);
  }
  word = 0; /* the last bytes, if there are any */
  memcpy(&word, bytes, count);
  return count ? mixed(found, word) : found;
}

/* Point at a kernel in chunk_bytes, where the chunk that was unpacked last stays: who reads kernels chunk by chunk
 * unpacks each once. The caller holds `loading` for as long as it reads. */
static libgemm_status find_cubin(const struct row *row, const unsigned char **cubin) {
  enum { NONE = -1 };
  static int64_t present = NONE;
  const struct chunk *chunk = &chunks[row->chunk];
  if (present != row->chunk) {
    present = NONE;
    if (!unpack(cubin_blob + chunk->offset, chunk->packed_bytes, chunk_bytes, chunk->bytes)) return damaged(row);
    present = row->chunk;
  }
  *cubin = chunk_bytes + row->begin;
  return checksum(*cubin, row->cubin_bytes) == row->checksum ? LIBGEMM_OK : damaged(row);
}

libgemm_status read_cubin(const struct row *row, void *out) {
  const unsigned char *cubin;
  pthread_mutex_lock(&loading);
  libgemm_status status = find_cubin(row, &cubin);
  if (status == LIBGEMM_OK) memcpy(out, cubin, row->cubin_bytes);
  pthread_mutex_unlock(&loading);
  return status;
}

static libgemm_status load_kernel(const struct row *row, const struct driver *driver, CUkernel *kernel) {
  const unsigned char *cubin;
  CUlibrary library;
  TRY(find_cubin(row, &cubin));
  /* The driver makes a copy of its own. */
  TRY_CUDA("cuLibraryLoadData", driver->library_load_data(&library, cubin, NULL, NULL, 0, NULL, NULL, 0));
  CUresult result = driver->library_get_kernel(kernel, library, row->entry);
  if (result != CUDA_SUCCESS) {
    driver->library_unload(library);
    return driver_failed("cuLibraryGetKernel", result);
  }
  return LIBGEMM_OK;
}

static libgemm_status prepare(const struct row *row, const struct device *device) {
  struct row_state *state = &row_states[row - rows];
  const struct driver *driver = device->driver;
  CUkernel kernel = atomic_load(&state->kernel);
  CUfunction function;
  if (!kernel) {
    TRY(load_kernel(row, driver, &kernel));
    atomic_store(&state->kernel, kernel);
  }
  if (row->shared_bytes)
    TRY_CUDA("cuKernelSetAttribute", driver->kernel_set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                                  (int)row->shared_bytes, kernel, device->ordinal));
  /* Puts the code on the device now; otherwise the first launch would, which capture forbids. */
  TRY_CUDA("cuKernelGetFunction", driver->kernel_get_function(&function, kernel));
  atomic_fetch_or(&state->prepared, (uint64_t)1 << device->ordinal);
  return LIBGEMM_OK;
}

HOT libgemm_status load_row(const struct row *row, const struct device *device) {
  uint64_t bit = (uint64_t)1 << device->ordinal;
  struct row_state *state = &row_states[row - rows];
  if (atomic_load_explicit(&state->prepared, memory_order_acquire) & bit) return LIBGEMM_OK;
  pthread_mutex_lock(&loading);
  libgemm_status status = atomic_load(&state->prepared) & bit ? LIBGEMM_OK : prepare(row, device);
  pthread_mutex_unlock(&loading);
  return status;
}

HOT static CUkernel kernel_of(const struct row *row) {
  return atomic_load_explicit(&row_states[row - rows].kernel, memory_order_relaxed);
}

/* A launch of a kernel that no context is named for costs 0.1 us more: the driver looks its function up. */
HOT CUfunction function_of(const struct plan *plan, const struct device *device) {
  struct recent *recent = plan->recent;
  unsigned long long context;
  if (!recent || device->driver->ctx_get_id(NULL, &context) != CUDA_SUCCESS) return NULL;
  if (recent->function && recent->context == context) return recent->function;
  recent->context = context;
  if (device->driver->kernel_get_function(&recent->function, kernel_of(plan->row)) != CUDA_SUCCESS)
    recent->function = NULL;
  return recent->function;
}

HOT libgemm_status launch_row(const struct row *row, const struct device *device, const struct call *call,
                              void **parameters, int64_t grid_x, libgemm_stream stream) {
  if (grid_x == 0) return LIBGEMM_OK;
  if (grid_x > INT32_MAX / row->ctas)
    return fail(LIBGEMM_UNSUPPORTED, "the problem has %lld tiles of %dx%d; one launch takes %d", (long long)grid_x,
                row->block_m, row->block_n, INT32_MAX / row->ctas);
  enum { GRAPHS_KNOW_OVERLAP = 12030 }; /* from CUDA 12.3 on, a captured launch keeps the attribute */
  CUlaunchAttribute attributes[2];
  unsigned count = 0;
  unsigned cluster = call->cluster > 1 ? (unsigned)call->cluster : row->ctas;
  if (cluster > 1)
    attributes[count++] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                              .value.cluster = {.x = cluster, .y = 1, .z = 1}};
  if (row->overlaps && device->driver->version >= GRAPHS_KNOW_OVERLAP)
    attributes[count++] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                              .value.programmatic_serialization = 1};
  CUlaunchConfig config = {
      .grid_x = (unsigned)(grid_x * row->ctas),
      .grid_y = 1,
      .grid_z = 1,
      .block_x = row->warps * WARP_SIZE,
      .block_y = 1,
      .block_z = 1,
      .shared_bytes = row->shared_bytes,
      .stream = stream,
      .attributes = attributes,
      .attribute_count = count,
  };
  CUfunction function = call->function ? call->function : (CUfunction)(void *)kernel_of(row);
  TRY_CUDA("cuLaunchKernelEx", device->driver->launch_kernel_ex(&config, function, parameters, NULL));
  return LIBGEMM_OK;
}

int resident_blocks(const struct row *row, const struct device *device) {
  /* 65536 registers and 2048 threads a multiprocessor on every target (1536 threads on some: then blocks queue);
   * 1 KiB of shared memory is the system's per block. */
  enum { REGISTERS = 65536, THREADS = 2048, RESERVED_SHARED = 1024 };
  int threads = row->warps * WARP_SIZE;
  int64_t blocks = least(THREADS / threads, REGISTERS / (threads * (row->registers ? row->registers : 255)));
  blocks = least(blocks, device->shared_per_multiprocessor / (int64_t)(row->shared_bytes + RESERVED_SHARED));
  return blocks < 1 ? 1 : (int)blocks;
}
