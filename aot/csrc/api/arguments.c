/* arguments.c: what the operations' argument structs share: their size prefix, leading dimensions, where D lies.
 */
#include <string.h>

#include "internal.h"

HOT void init_args(void *args, uint64_t size, const void *defaults, uint64_t bytes) {
  memset(args, 0, size);
  memcpy(args, defaults, size < bytes ? size : bytes);
  memcpy(args, &size, sizeof size);
}

libgemm_status read_args(const void *args, uint64_t oldest, void *out, uint64_t bytes, const char *type) {
  uint64_t size;
  if (!args) return fail(LIBGEMM_INVALID_ARGUMENT, "args is NULL: a %s is needed", type);
  memcpy(&size, args, sizeof size);
  if (size < oldest)
    return fail(LIBGEMM_INVALID_ARGUMENT, "args->size = %llu: %s has at least %llu bytes; set it with %s_init",
                (unsigned long long)size, type, (unsigned long long)oldest, type);
  if (size > 4096)
    return fail(LIBGEMM_INVALID_ARGUMENT, "args->size = %llu: %s has %llu bytes; set it with %s_init",
                (unsigned long long)size, type, (unsigned long long)bytes, type);
  if (size > bytes) /* a newer caller: right only while it leaves our unknown fields at 0 */
    for (uint64_t i = bytes; i < size; i++)
      if (((const char *)args)[i])
        return fail(LIBGEMM_INVALID_ARGUMENT, "args->size = %llu uses fields this library (%llu bytes of %s) lacks",
                    (unsigned long long)size, (unsigned long long)bytes, type);
  if (size > bytes) size = bytes;
  memcpy(out, args, size);
  memset((char *)out + size, 0, bytes - size);
  return LIBGEMM_OK;
}

libgemm_status check_scaling(const struct scaling *w) {
  TRY(check_range("scaling", w->scaling, LIBGEMM_SCALING_NONE, LIBGEMM_SCALING_128X128_1X128));
  if (w->scaling == LIBGEMM_SCALING_NONE && (w->a_scale || w->b_scale))
    return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %p with scaling = 0: NULL is needed",
                w->a_scale ? "a_scale" : "b_scale", w->a_scale ? w->a_scale : w->b_scale);
  if (w->scaling == LIBGEMM_SCALING_NONE) return LIBGEMM_OK;
  if (w->a_type != LIBGEMM_E4M3 && w->a_type != LIBGEMM_E5M2)
    return fail(LIBGEMM_UNSUPPORTED, "scaling = %d with a_type %s: no variant takes scales of such operands",
                w->scaling, dtype_name(w->a_type));
  if (is_by_blocks(w->scaling) && w->precision != LIBGEMM_EXACT)
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "precision = %d with scaling = %d, of blocks, which are added up one by one: allowed is "
                "LIBGEMM_EXACT (0)",
                w->precision, w->scaling);
  return LIBGEMM_OK;
}

HOT unsigned scaling_guard(int32_t scaling) {
  if (!is_by_blocks(scaling)) return GUARD_UNBLOCKED;
  return scaling == LIBGEMM_SCALING_1X128_128X128 ? GUARD_BLOCKS : 0;
}

HOT libgemm_status check_ld(const char *name, int64_t ld, int64_t length, const char *what) {
  if (ld >= length) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %lld: at least %s = %lld is needed", name, (long long)ld, what,
              (long long)length);
}

HOT libgemm_status check_alignment(const char *name, CUdeviceptr pointer, uint64_t bytes) {
  if ((pointer & (bytes - 1)) == 0) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "%s = 0x%llx: a multiple of %llu, the size of its elements, is needed", name,
              (unsigned long long)pointer, (unsigned long long)bytes);
}

libgemm_status check_array(const char *name, const void *array, uint64_t bytes, const struct device *device) {
  TRY(check_alignment(name, (CUdeviceptr)array, bytes));
  return check_pointer(name, (CUdeviceptr)array, device);
}

libgemm_status check_scales(const void *a_scale, const void *b_scale, const struct device *device) {
  TRY(check_array("a_scale", a_scale, sizeof(float), device));
  return check_array("b_scale", b_scale, sizeof(float), device);
}

/* Whether each step of `outer` goes past all of `inner`. */
static bool goes_past(int64_t outer, int64_t outer_stride, int64_t inner, int64_t inner_stride) {
  if (inner > 1 && inner_stride < 1) return false;
  return outer == 1 || (outer_stride > 0 && (inner == 1 || (outer_stride - 1) / inner_stride >= inner - 1));
}

libgemm_status check_scale_strides(const char *row_name, int64_t rows, int64_t row_stride, const char *col_name,
                                   int64_t cols, int64_t col_stride) {
  if (goes_past(rows, row_stride, cols, col_stride) || goes_past(cols, col_stride, rows, row_stride)) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %lld, %s = %lld: of %lld x %lld scales some would share their memory",
              row_name, (long long)row_stride, col_name, (long long)col_stride, (long long)rows, (long long)cols);
}

libgemm_status check_workspace(const void *workspace, uint64_t bytes, uint64_t needed, const char *function) {
  if (bytes >= needed && workspace && (uint64_t)workspace % 16 == 0) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "workspace = %p of %llu bytes: %llu are needed (%s), from a multiple of 16 on",
              workspace, (unsigned long long)bytes, (unsigned long long)needed, function);
}

HOT libgemm_status check_spare_workspace(const void *workspace, uint64_t bytes, const struct device *device) {
  if (!workspace || !bytes) return LIBGEMM_OK;
  TRY(check_pointer("workspace", (CUdeviceptr)workspace, device));
  if ((uint64_t)workspace % 16)
    return fail(LIBGEMM_INVALID_ARGUMENT, "workspace = %p: a multiple of 16 is needed", workspace);
  return LIBGEMM_OK;
}

__extension__ typedef __int128 wide; /* strides and counts are the caller's: 64 bits may not hold their product */

HOT static libgemm_status check_d(const struct operands *o) {
  int64_t count = owns_d(o->ragged) ? o->groups : 1;
  bool unequal = o->ldc != o->ldd || (count > 1 && o->batch_stride_c != o->batch_stride_d);
  if (o->reads_c && o->c == o->d && unequal)
    return fail(LIBGEMM_INVALID_ARGUMENT, "c == d with ldc = %lld, ldd = %lld: C and D in one place need equal strides",
                (long long)o->ldc, (long long)o->ldd);
  if (count <= 1) return LIBGEMM_OK;
  wide extent = (wide)(o->m - 1) * o->ldd + o->n,
       stride = o->batch_stride_d < 0 ? -(wide)o->batch_stride_d : o->batch_stride_d;
  bool interleaved = stride >= o->n && o->ldd >= stride * (count - 1) + o->n;
  if (stride < extent && !interleaved)
    return fail(LIBGEMM_INVALID_ARGUMENT, "batch_stride_d = %lld: the D matrices overlap, each spans %lld elements",
                (long long)o->batch_stride_d, (long long)(extent > INT64_MAX ? INT64_MAX : extent));
  return LIBGEMM_OK;
}

HOT libgemm_status check_strides(const struct operands *o) {
  if (o->reads_ab) {
    TRY(o->trans_a ? check_ld("lda", o->lda, o->m, "m") : check_ld("lda", o->lda, o->k, "k"));
    TRY(o->trans_b ? check_ld("ldb", o->ldb, o->k, "k") : check_ld("ldb", o->ldb, o->n, "n"));
  }
  if (o->reads_c) TRY(check_ld("ldc", o->ldc, o->n, "n"));
  TRY(check_ld("ldd", o->ldd, o->n, "n"));
  return check_d(o);
}
