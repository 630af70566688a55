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
enum { DLPACK_MAJOR = 1, MOST_TENSORS = 9, MOST_DIMENSIONS = 3, NO_ADDRESS = 16 };

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

enum { A, B, C, D, BIAS, OFFS, TENSORS }; /* in the order they are described; a dense call has no ends */

/* A tensor of a key. Dimensions it lacks are 1 long; `count` are matrices, `apart` elements between them. */
struct described {
  int32_t ndim;
  int64_t count, rows, cols, apart, row_stride, col_stride;
};

/* What of a call follows from its tensors' sizes and strides. */
struct sizes {
  int64_t m, n, k, count, ld[BIAS], apart[TENSORS];
  int32_t trans[2];
};

static bool is_there(const struct described *x) { return x->ndim != ABSENT; }

/* Read a tensor of which two keys say the same but for sizes and strides, or an absent one. NULL where they differ in
 * more; else what follows in `fresh`. */
static const char *read_like(const char *known, const char *fresh, const char *end, struct described *to) {
  struct head head;
  int64_t shape[MOST_DIMENSIONS] = {1, 1, 1}, strides[MOST_DIMENSIONS] = {0, 0, 1};
  if (end - fresh < (int64_t)sizeof ABSENT || memcmp(known, fresh, sizeof ABSENT)) return NULL;
  memcpy(&to->ndim, fresh, sizeof to->ndim);
  if (to->ndim == ABSENT) return fresh + sizeof ABSENT;
  if (to->ndim < 1 || to->ndim > MOST_DIMENSIONS) return NULL;
  size_t numbers = (size_t)to->ndim * sizeof *shape, first = (size_t)(MOST_DIMENSIONS - to->ndim);
  if (end - fresh < (int64_t)(sizeof head + 2 * numbers) || memcmp(known, fresh, sizeof head)) return NULL;
  memcpy(shape + first, fresh + sizeof head, numbers);
  memcpy(strides + first, fresh + sizeof head + numbers, numbers);
  to->count = shape[0], to->rows = shape[1], to->cols = shape[2];
  to->apart = strides[0], to->row_stride = strides[1], to->col_stride = strides[2];
  return fresh + sizeof head + 2 * numbers;
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

/* The sizes of `count` products (0: as many as A or B has matrices), whether new D are as many too, or false where the
 * tensors do not fit each other or something is empty. */
static bool read_sizes(const struct described x[TENSORS], int64_t count, bool owns_d, struct sizes *s) {
  const struct described *a = &x[A], *b = &x[B], *bias = &x[BIAS];
  if (!is_there(a) || !is_there(b) || a->ndim < 2 || b->ndim < 2) return false;
  s->m = a->rows, s->k = a->cols, s->n = b->cols;
  s->count = count ? count : a->ndim == MOST_DIMENSIONS ? a->count : b->count;
  if (b->rows != s->k || s->m < 1 || s->n < 1 || s->k < 1 || s->count < 1) return false;
  for (int i = A; i <= D; i++) {
    s->ld[i] = i == D ? s->n : 0; /* of a new one */
    s->apart[i] = i == D && owns_d ? s->m * s->n : 0;
    if (!is_there(&x[i])) continue;
    s->ld[i] = stored(&x[i], i <= B ? &s->trans[i] : NULL);
    s->apart[i] = x[i].ndim == MOST_DIMENSIONS ? x[i].apart : 0;
    if (!s->ld[i] || x[i].ndim < 2 || (x[i].ndim == MOST_DIMENSIONS && x[i].count != s->count)) return false;
    if (i >= C && (x[i].rows != s->m || x[i].cols != s->n || (x[i].ndim == MOST_DIMENSIONS) != owns_d)) return false;
  }
  if (!is_there(&x[C])) s->ld[C] = s->ld[D], s->apart[C] = s->apart[D]; /* D serves as C */
  if (!is_there(bias)) return true;
  s->apart[BIAS] = bias->ndim == 2 ? bias->row_stride : 0;
  return bias->ndim <= 2 && bias->cols == s->n && (s->n == 1 || bias->col_stride == 1) &&
         (bias->ndim == 1 || bias->rows == s->count);
}

static bool read_all(const char *known, const char *fresh, int64_t bytes, int count, struct described *x) {
  const char *end = fresh + bytes;
  for (int i = 0; i < count; i++) {
    const char *next = read_like(known, fresh, end, &x[i]);
    if (!next) return false;
    known += next - fresh, fresh = next;
  }
  return fresh == end;
}

#define SET_SIZES(args, s)                                                                                           \
  ((args)->m = (s).m, (args)->n = (s).n, (args)->k = (s).k, (args)->lda = (s).ld[A], (args)->ldb = (s).ld[B],        \
   (args)->ldc = (s).ld[C], (args)->ldd = (s).ld[D], (args)->trans_a = (s).trans[A], (args)->trans_b = (s).trans[B], \
   (args)->batch_stride_a = (s).apart[A], (args)->batch_stride_b = (s).apart[B],                                     \
   (args)->batch_stride_c = (s).apart[C], (args)->batch_stride_d = (s).apart[D],                                     \
   (args)->batch_stride_bias = (s).apart[BIAS])

int32_t libgemm_python_resize_gemm(libgemm_gemm_args *args, const void *known, const void *fresh, int64_t bytes) {
  struct described x[TENSORS];
  struct sizes s = {.m = 0};
  if (!read_all(known, fresh, bytes, OFFS, x)) return 0;
  bool batched = x[A].ndim == MOST_DIMENSIONS || x[B].ndim == MOST_DIMENSIONS;
  if (!read_sizes(x, batched ? 0 : 1, batched, &s)) return 0;
  if (!batched && x[BIAS].ndim == 2) return 0;
  SET_SIZES(args, s);
  args->batch = s.count;
  return 1;
}

int32_t libgemm_python_resize_grouped_mm(libgemm_grouped_mm_args *args, const void *known, const void *fresh,
                                         int64_t bytes) {
  struct described x[TENSORS];
  struct sizes s = {.m = 0};
  int64_t ends = 0;
  bool leading_zero = args->offs_format == LIBGEMM_OFFSETS_I32 || args->offs_format == LIBGEMM_OFFSETS_I64;
  bool cut = args->ragged != LIBGEMM_RAGGED_NONE;
  if (!read_all(known, fresh, bytes, cut ? TENSORS : OFFS, x)) return 0;
  if (cut) {
    ends = x[OFFS].cols - leading_zero;
    if (x[OFFS].ndim != 1 || ends < 1 || (x[OFFS].cols > 1 && x[OFFS].col_stride != 1)) return 0;
  }
  if (!read_sizes(x, ends, owns_d(args->ragged), &s)) return 0;
  if (args->shared_b && x[BIAS].ndim == 2) return 0;
  SET_SIZES(args, s);
  args->groups = s.count;
  return 1;
}
