// Part of the fake CUDA driver: device memory, which is host memory that this file remembers.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

enum { ALIGNMENT = 512, PAGE = 65536 };  // PAGE: a multiple of every page size in use

typedef struct {
  CUdeviceptr base;
  size_t bytes;
  CUcontext context;
  void *mapping;
  size_t mapped;
} Allocation;

static Allocation *allocations;
static size_t allocation_count, allocation_room;

static Allocation *find(CUdeviceptr address) {
  for (size_t i = 0; i < allocation_count; i++)
    if (address >= allocations[i].base && address - allocations[i].base < allocations[i].bytes) return &allocations[i];
  return NULL;
}

// True when every byte of the range is device memory of one allocation.
static int is_range(CUdeviceptr address, size_t bytes) {
  const Allocation *found = find(address);
  return bytes == 0 || (found && bytes <= found->bytes - (address - found->base));
}

static void *at(CUdeviceptr address) { return (void *)(uintptr_t)address; }

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  CALL(cuMemAlloc_v2, NEED_CONTEXT | NO_CAPTURE, ",'bytes':%zu", bytes);
  if (!address || bytes == 0) return done(CUDA_ERROR_INVALID_VALUE);
  if (bytes > SIZE_MAX / 2) return done(CUDA_ERROR_OUT_OF_MEMORY);
  if (allocation_count == allocation_room) {
    size_t room = allocation_room ? 2 * allocation_room : 64;
    Allocation *larger = realloc(allocations, room * sizeof(*larger));
    if (!larger) return done(CUDA_ERROR_OUT_OF_MEMORY);
    allocations = larger;
    allocation_room = room;
  }

  // The block ends at an inaccessible page, so that an overrun on the host side ends the test.
  size_t usable = (bytes + PAGE - 1) / PAGE * PAGE;
  char *mapping = mmap(NULL, usable + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return done(CUDA_ERROR_OUT_OF_MEMORY);
  if (mprotect(mapping + usable, PAGE, PROT_NONE)) {
    munmap(mapping, usable + PAGE);
    return done(CUDA_ERROR_OUT_OF_MEMORY);
  }

  Allocation *new = &allocations[allocation_count++];
  size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  *new = (Allocation){(uintptr_t)mapping + usable - rounded, bytes, NULL, mapping, usable + PAGE};
  current_context(&new->context);
  *address = new->base;
  note(",'address':'0x%llx','device':%d", new->base, context_device(new->context));
  return done(CUDA_SUCCESS);
}

void forget_memory(CUcontext context) {
  for (size_t i = allocation_count; i-- > 0;) {
    if (allocations[i].context != context) continue;
    munmap(allocations[i].mapping, allocations[i].mapped);
    allocations[i] = allocations[--allocation_count];
  }
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  CALL(cuMemFree_v2, NEED_CONTEXT, ",'address':'0x%llx'", address);
  if (address == 0) return done(CUDA_SUCCESS);
  Allocation *found = find(address);
  if (!found || found->base != address) return done(CUDA_ERROR_INVALID_VALUE);
  munmap(found->mapping, found->mapped);
  *found = allocations[--allocation_count];
  return done(CUDA_SUCCESS);
}

enum {
  CONTEXT = 1,
  MEMORY_TYPE = 2,
  DEVICE_POINTER = 3,
  IS_MANAGED = 8,
  ORDINAL = 9,
  RANGE_START = 11,
  RANGE_SIZE = 12
};

// Writes one attribute; of no allocation, the values that cuPointerGetAttributes documents for unknown addresses.
static CUresult put_attribute(void *data, int attribute, const Allocation *found, CUdeviceptr address) {
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CONTEXT: *(CUcontext *)data = found ? found->context : NULL; break;
    case MEMORY_TYPE: *(unsigned *)data = found ? 2 : 0; break;  // 2: device
    case DEVICE_POINTER: {                                       // for kernels of the current context
      CUcontext current;
      if (found && (current_context(&current) != CUDA_SUCCESS || !can_access(current, found->context)))
        return CUDA_ERROR_INVALID_VALUE;
      *(CUdeviceptr *)data = found ? address : 0;
      break;
    }
    case IS_MANAGED: *(unsigned *)data = 0; break;
    case ORDINAL: *(int *)data = found ? context_device(found->context) : -2; break;
    case RANGE_START: *(CUdeviceptr *)data = found ? found->base : 0; break;
    case RANGE_SIZE: *(size_t *)data = found ? found->bytes : 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
  CALL(cuPointerGetAttribute, NEED_INIT, ",'attribute':%d,'address':'0x%llx'", attribute, address);
  const Allocation *found = find(address);
  return done(found ? put_attribute(data, attribute, found, address) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuPointerGetAttributes(unsigned count, const int *attributes, void **data, CUdeviceptr address) {
  CALL(cuPointerGetAttributes, NEED_INIT, ",'count':%u,'address':'0x%llx'", count, address);
  CUresult result = count && attributes && data ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  const Allocation *found = find(address);
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
    result = put_attribute(data[i], attributes[i], found, address);
  return done(result);
}

static CUresult copy(void *target, const void *source, CUdeviceptr device_side, size_t bytes) {
  if (!is_range(device_side, bytes) || (bytes && (!target || !source))) return CUDA_ERROR_INVALID_VALUE;
  if (bytes) memcpy(target, source, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t bytes) {
  CALL(cuMemcpyHtoD_v2, NEED_CONTEXT | NO_CAPTURE, ",'address':'0x%llx','bytes':%zu", target, bytes);
  return done(copy(at(target), source, target, bytes));
}

CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t bytes) {
  CALL(cuMemcpyDtoH_v2, NEED_CONTEXT | NO_CAPTURE, ",'address':'0x%llx','bytes':%zu", source, bytes);
  return done(copy(target, at(source), source, bytes));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t bytes, CUstream stream) {
  CALL(cuMemcpyHtoDAsync_v2, NEED_CONTEXT, ",'address':'0x%llx','bytes':%zu,'stream':'0x%llx'", target, bytes,
       (unsigned long long)(uintptr_t)stream);
  CUcontext context;
  CUresult result = stream_context(stream, &context);
  if (result == CUDA_SUCCESS) result = copy(at(target), source, target, bytes);
  if (result == CUDA_SUCCESS && watcher.copy) watcher.copy(target, source, bytes);
  return done(result);
}

CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t bytes, CUstream stream) {
  CALL(cuMemcpyDtoHAsync_v2, NEED_CONTEXT, ",'address':'0x%llx','bytes':%zu,'stream':'0x%llx'", source, bytes,
       (unsigned long long)(uintptr_t)stream);
  CUcontext context;
  CUresult result = stream_context(stream, &context);
  return done(result == CUDA_SUCCESS ? copy(target, at(source), source, bytes) : result);
}

CUresult cuMemsetD8_v2(CUdeviceptr target, unsigned char value, size_t count) {
  CALL(cuMemsetD8_v2, NEED_CONTEXT | NO_CAPTURE, ",'address':'0x%llx','value':%u,'count':%zu", target, value, count);
  if (!is_range(target, count)) return done(CUDA_ERROR_INVALID_VALUE);
  if (count) memset(at(target), value, count);
  return done(CUDA_SUCCESS);
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
  CALL(cuMemsetD8Async, NEED_CONTEXT, ",'address':'0x%llx','value':%u,'count':%zu,'stream':'0x%llx'", target, value,
       count, (unsigned long long)(uintptr_t)stream);
  CUcontext context;
  CUresult result = stream_context(stream, &context);
  if (result == CUDA_SUCCESS && !is_range(target, count)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && count) memset(at(target), value, count);
  return done(result);
}

CUresult cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, CUstream stream) {
  CALL(cuMemsetD32Async, NEED_CONTEXT, ",'address':'0x%llx','value':%u,'count':%zu,'stream':'0x%llx'", target, value,
       count, (unsigned long long)(uintptr_t)stream);
  CUcontext context;
  CUresult result = stream_context(stream, &context);
  if (result != CUDA_SUCCESS) return done(result);
  if (target % 4 || count > SIZE_MAX / 4 || !is_range(target, 4 * count)) return done(CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < count; i++) ((unsigned *)at(target))[i] = value;
  return done(CUDA_SUCCESS);
}
