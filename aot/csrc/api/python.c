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

/* ---- Sizes out of a key ---- */

enum { A, B, C, D, BIAS, TENSORS }; /* of a dense call, in the order they are described */

/* A tensor of a key; of two dimensions, or a bias of one. */
struct described {
  struct head head;
  int64_t rows, cols, row_stride, col_stride;
};

/* Read a tensor of `dimensions`, or an absent one, of which the two keys say the same but sizes and strides. NULL where
 * they differ, or have another number of them; else what follows in `fresh`. */
static const char *read_like(const char *known, const char *fresh, const char *end, int dimensions,
                             struct described *to) {
  int64_t numbers[4] = {1, 0, 1, 1};
  size_t bytes = sizeof to->head;
  if (end - fresh < (int64_t)sizeof ABSENT) return NULL;
  memcpy(&to->head.ndim, fresh, sizeof to->head.ndim);
  if (to->head.ndim == ABSENT) return memcmp(known, fresh, sizeof ABSENT) ? NULL : fresh + sizeof ABSENT;
  if (to->head.ndim != dimensions || end - fresh < (int64_t)(bytes + 2 * (size_t)dimensions * sizeof *numbers))
    return NULL;
  if (memcmp(known, fresh, bytes)) return NULL;
  memcpy(&to->head, fresh, bytes);
  memcpy(numbers + 2 - dimensions, fresh + bytes, (size_t)dimensions * sizeof *numbers);
  memcpy(numbers + 4 - dimensions, fresh + bytes + (size_t)dimensions * sizeof *numbers,
         (size_t)dimensions * sizeof *numbers);
  to->rows = numbers[0], to->cols = numbers[1], to->row_stride = numbers[2], to->col_stride = numbers[3];
  return fresh + bytes + 2 * (size_t)dimensions * sizeof *numbers;
}

/* How a matrix is stored, as the package's _matrix.py says it: its leading dimension, or 0 where it is neither
 * row-major nor transposed. Of one that is both, the way whose contiguous side is the longer one, unless `transposed`
 * is NULL. */
static int64_t stored(const struct described *x, int32_t *transposed) {
  int64_t plain = x->cols == 1 || x->col_stride == 1 ? (x->rows > 1 ? x->row_stride : x->cols) : 0;
  int64_t turned = x->rows == 1 || x->row_stride == 1 ? (x->cols > 1 ? x->col_stride : x->rows) : 0;
  if (plain < x->cols) plain = 0;
  if (turned < x->rows) turned = 0;
  if (!transposed) return plain;
  *transposed = turned && (!plain || x->rows > x->cols);
  return *transposed ? turned : plain;
}

int32_t libgemm_python_resize(libgemm_gemm_args *args, const void *known, const void *fresh, int64_t bytes) {
  const char *old = known, *new = fresh, *end = new + bytes;
  struct described seen[TENSORS] = {{.rows = 0}};
  libgemm_gemm_args a = *args;
  for (int i = 0; i < TENSORS; i++) {
    const char *next = read_like(old, new, end, i == BIAS ? 1 : 2, &seen[i]);
    if (!next) return 0;
    old += next - new, new = next;
  }
  if (new != end || seen[A].head.ndim == ABSENT || seen[B].head.ndim == ABSENT || a.batch != 1) return 0;
  a.m = seen[A].rows, a.k = seen[A].cols, a.n = seen[B].cols;
  if (seen[B].rows != a.k || a.m < 1 || a.n < 1 || a.k < 1) return 0;
  if (!(a.lda = stored(&seen[A], &a.trans_a)) || !(a.ldb = stored(&seen[B], &a.trans_b))) return 0;
  a.ldd = a.n; /* of a new one */
  for (int i = C; i <= D; i++) {
    if (seen[i].head.ndim == ABSENT) continue;
    int64_t ld = stored(&seen[i], NULL);
    if (seen[i].rows != a.m || seen[i].cols != a.n || !ld) return 0;
    *(i == C ? &a.ldc : &a.ldd) = ld;
  }
  if (seen[C].head.ndim == ABSENT) a.ldc = a.ldd; /* D serves as C */
  if (seen[BIAS].head.ndim != ABSENT && (seen[BIAS].cols != a.n || (a.n > 1 && seen[BIAS].col_stride != 1))) return 0;
  *args = a;
  return 1;
}
