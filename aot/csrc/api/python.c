/* python.c: what tensors say of themselves, for the Python package: all of a call's in one go, which costs a tenth of
 * asking attribute by attribute. Includes no header of Python's: what it needs of its stable ABI comes as pointers. */
#include <string.h>

#include "internal.h"

/* From the DLPack standard, version 1.3 (https://dmlc.github.io/dlpack/latest/c_api.html). Within a major version what
 * is there stays as it is. */
struct dl_tensor {
  char *data;
  int32_t device_type, device;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides; /* strides in elements; NULL where the tensor is contiguous */
  uint64_t byte_offset;
};

struct dl_exchange {
  uint32_t major, minor;
  const struct dl_exchange *previous; /* the same of an earlier version, or NULL */
  void *allocate, *from_object, *to_object;
  int (*read_object)(void *object, struct dl_tensor *tensor); /* may be NULL; fails with an exception set */
};

_Static_assert(sizeof(struct dl_tensor) == 48, "DLTensor has 48 bytes");
enum { DLPACK_MAJOR = 1, MOST_TENSORS = 8, MOST_DIMENSIONS = 3, NO_ADDRESS = 16 };

/* A tensor in a key, before its shape and strides. Has no padding, whose bytes could be any. */
struct head {
  int32_t ndim; /* ABSENT: nothing else follows */
  int32_t device_type, device;
  uint8_t code, bits;
  uint16_t lanes;
  int32_t alignment; /* the address modulo 16, or NO_ADDRESS where it is NULL */
};
_Static_assert(sizeof(struct head) == 20, "padding");
static const int32_t ABSENT = -1;

/* What libgemm_python_init was given. Python's lock is held where it is written and where it is read. */
static struct {
  int (*read_object)(void *object, struct dl_tensor *tensor);
  const void *none;
  void *(*new_bytes)(const char *data, int64_t bytes);
  void *(*new_tuple)(int64_t count, ...);
  void (*release)(void *object);
} python;

libgemm_status libgemm_python_init(const void *exchange, const void *none,
                                   void *(*new_bytes)(const char *data, int64_t bytes),
                                   void *(*new_tuple)(int64_t count, ...), void (*release)(void *object)) {
  if (!exchange || !none || !new_bytes || !new_tuple || !release)
    return fail(LIBGEMM_INVALID_ARGUMENT, "an argument of libgemm_python_init is NULL: none may be");
  const struct dl_exchange *api = exchange;
  while (api && api->major != DLPACK_MAJOR) api = api->previous;
  if (!api || !api->read_object)
    return fail(LIBGEMM_UNSUPPORTED, "exchange has no version %d of DLPack, or reads no tensors", DLPACK_MAJOR);
  python.read_object = api->read_object, python.none = none;
  python.new_bytes = new_bytes, python.new_tuple = new_tuple, python.release = release;
  return LIBGEMM_OK;
}

/* Copy to the key, and return where its next bytes go. */
static char *put(char *to, const void *from, size_t bytes) {
  memcpy(to, from, bytes);
  return to + bytes;
}

void *libgemm_python_describe(void *self, void *const *objects, int64_t count) {
  char key[MOST_TENSORS * (sizeof(struct head) + 2 * MOST_DIMENSIONS * sizeof(int64_t))], *end = key;
  uint64_t places[MOST_TENSORS];
  (void)self;
  if (count > MOST_TENSORS) return python.new_tuple(0);
  for (int64_t i = 0; i < count; i++) {
    places[i] = 0;
    if (objects[i] == python.none) {
      end = put(end, &ABSENT, sizeof ABSENT);
      continue;
    }
    struct dl_tensor tensor;
    if (python.read_object(objects[i], &tensor)) return NULL;
    if (tensor.ndim < 0 || tensor.ndim > MOST_DIMENSIONS || (tensor.ndim && !tensor.strides))
      return python.new_tuple(0);
    places[i] = (uint64_t)(uintptr_t)tensor.data + tensor.byte_offset;
    const struct head head = {
        .ndim = tensor.ndim,
        .device_type = tensor.device_type,
        .device = tensor.device,
        .code = tensor.code,
        .bits = tensor.bits,
        .lanes = tensor.lanes,
        .alignment = places[i] ? (int32_t)(places[i] % 16) : NO_ADDRESS,
    };
    end = put(end, &head, sizeof head);
    if (tensor.ndim) {
      end = put(end, tensor.shape, sizeof(int64_t) * (size_t)tensor.ndim);
      end = put(end, tensor.strides, sizeof(int64_t) * (size_t)tensor.ndim);
    }
  }
  void *described = python.new_bytes(key, end - key), *found = NULL;
  if (!described) return NULL;
  void *addresses = python.new_bytes((const char *)places, count * (int64_t)sizeof *places);
  if (addresses) {
    found = python.new_tuple(2, described, addresses);
    python.release(addresses);
  }
  python.release(described);
  return found;
}
