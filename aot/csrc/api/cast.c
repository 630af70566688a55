/* cast.c: matrices to 8 bits, with the scales that products take, by rows and transposed. */
#include <stddef.h>
#include <string.h>

#include "internal.h"

/* Heights and widths of tiles, or of their parts: kernels/table/portable.py. */
enum {
  BLOCK = 128,
  PART = 32,
  HALF = 64,
  SHORT_ROW = 2048,
  LONG_ROW = 4096,
  LONGER_ROW = 8192,
  LONGEST_ROW = 16384,
  WORDS_OF_A_PROGRAM = 1024
};

void libgemm_cast_args_init(libgemm_cast_args *args, uint64_t size) {
  libgemm_cast_args defaults = {.batch = 1, .d_type = LIBGEMM_E4M3};
  init_args(args, size, &defaults, sizeof defaults);
}

/* Whether columns have scales of their own, which D^T then takes. */
static bool has_two_scales(const libgemm_cast_args *a) {
  return a->granularity == LIBGEMM_PER_ROW || a->granularity == LIBGEMM_PER_1X128;
}

/* A pass over A goes first where no tile of it sees all that shares a scale: its words in the workspace. */
static int64_t words_of(const libgemm_cast_args *a) {
  if (a->granularity == LIBGEMM_PER_TENSOR) return a->scale_given ? 0 : a->batch;
  return a->granularity == LIBGEMM_PER_ROW && a->d_t ? a->batch * (a->m + a->n) : 0;
}

static libgemm_status check_words(const libgemm_cast_args *a) {
  if (!is_output_type(a->a_type))
    return fail(LIBGEMM_INVALID_ARGUMENT, "a_type = %d: allowed are LIBGEMM_F16 (1), LIBGEMM_BF16 (2), LIBGEMM_F32 (3)",
                a->a_type);
  if (a->d_type != LIBGEMM_E4M3 && a->d_type != LIBGEMM_E5M2)
    return fail(LIBGEMM_INVALID_ARGUMENT, "d_type = %d: allowed are LIBGEMM_E4M3 (4), LIBGEMM_E5M2 (5)", a->d_type);
  TRY(check_range("granularity", a->granularity, LIBGEMM_PER_TENSOR, LIBGEMM_PER_128X128));
  TRY(check_range("scale_given", a->scale_given, 0, 1));
  TRY(check_range("scale_power_of_two", a->scale_power_of_two, 0, 1));
  if (a->scale_given && (a->granularity != LIBGEMM_PER_TENSOR || a->scale_power_of_two))
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "scale_given = 1 with granularity = %d, scale_power_of_two = %d: a scale is read with "
                "LIBGEMM_PER_TENSOR (1) alone, and as it is",
                a->granularity, a->scale_power_of_two);
  TRY(check_range("m", a->m, 0, LIBGEMM_MAX_SIZE / 2)); /* kernels count past the last of either */
  TRY(check_range("n", a->n, 0, LIBGEMM_MAX_SIZE / 2));
  TRY(check_range("batch", a->batch, 0, LIBGEMM_MAX_SIZE));
  int64_t tiles = ceil_div(a->m, PART) * ceil_div(a->n, BLOCK); /* of one matrix: below 2^49 */
  if (tiles && a->batch > INT32_MAX / tiles)
    return fail(LIBGEMM_UNSUPPORTED,
                "batch = %lld of %lld x %lld: more than %d tiles of %d x %d, which one launch takes",
                (long long)a->batch, (long long)a->m, (long long)a->n, INT32_MAX, PART, BLOCK);
  if (!tiles || words_of(a) <= INT32_MAX) return LIBGEMM_OK;
  return fail(LIBGEMM_UNSUPPORTED,
              "batch = %lld of %lld x %lld: more than %d rows and columns with scales of their own",
              (long long)a->batch, (long long)a->m, (long long)a->n, INT32_MAX);
}

static libgemm_status check_layout(const libgemm_cast_args *a) {
  int64_t down = a->granularity == LIBGEMM_PER_128X128 ? BLOCK : 1;
  if (!a->d && !a->d_t) return fail(LIBGEMM_INVALID_ARGUMENT, "d and d_t are NULL: one of them is needed");
  TRY(check_ld("lda", a->lda, a->n, "n"));
  if (a->d) TRY(check_ld("ldd", a->ldd, a->n, "n"));
  if (a->d_t) TRY(check_ld("ldd_t", a->ldd_t, a->m, "m"));
  if (has_two_scales(a) ? !a->d_t && a->scale_t : a->scale_t != NULL)
    return fail(LIBGEMM_INVALID_ARGUMENT, "scale_t = %p with granularity = %d, d_t = %p: NULL is needed", a->scale_t,
                a->granularity, a->d_t);
  if (has_two_scales(a) && !a->d && a->scale)
    return fail(LIBGEMM_INVALID_ARGUMENT, "scale = %p with granularity = %d, d = NULL: NULL is needed", a->scale,
                a->granularity);
  if (a->granularity < LIBGEMM_PER_1X128) return LIBGEMM_OK;
  if (a->scale)
    TRY(check_scale_strides("scale_stride_m", ceil_div(a->m, down), a->scale_stride_m, "scale_stride_n",
                            ceil_div(a->n, BLOCK), a->scale_stride_n));
  if (a->scale_t)
    TRY(check_scale_strides("scale_t_stride_n", a->n, a->scale_t_stride_n, "scale_t_stride_m", ceil_div(a->m, BLOCK),
                            a->scale_t_stride_m));
  return LIBGEMM_OK;
}

static libgemm_status check_pointers(const libgemm_cast_args *a, const struct device *device) {
  TRY(check_array("a", a->a, (uint64_t)dtype_bytes(a->a_type), device));
  if (a->d) TRY(check_array("d", a->d, 1, device));
  if (a->d_t) TRY(check_array("d_t", a->d_t, 1, device));
  if (a->d || !has_two_scales(a)) TRY(check_array("scale", a->scale, sizeof(float), device));
  if (a->d_t && has_two_scales(a)) TRY(check_array("scale_t", a->scale_t, sizeof(float), device));
  if (a->a == a->d || a->a == a->d_t)
    return fail(LIBGEMM_INVALID_ARGUMENT, "a == %s = %p: the one is written while the other is read",
                a->a == a->d ? "d" : "d_t", a->a);
  if (a->d == a->d_t) return fail(LIBGEMM_INVALID_ARGUMENT, "d == d_t = %p: both are written", a->d);
  if (!words_of(a)) return LIBGEMM_OK;
  TRY(check_workspace(a->workspace, a->workspace_bytes, (uint64_t)words_of(a) * sizeof(int32_t),
                      "libgemm_cast_workspace"));
  return check_pointer("workspace", (CUdeviceptr)a->workspace, device);
}

/* Whether every row of these arrays begins on 16 bytes, as a kernel takes them: elements of A, and bytes of D in
 * multiples of as many. */
static bool starts_rows_on_16(const libgemm_cast_args *a) {
  int64_t step = 16 / (int64_t)dtype_bytes(a->a_type), lengths = a->lda | a->n;
  uint64_t pointers = (uint64_t)a->a | (uint64_t)a->d | (uint64_t)a->d_t;
  if (a->batch > 1) lengths |= a->batch_stride_a;
  if (a->d) lengths |= a->ldd | (a->batch > 1 ? a->batch_stride_d : 0);
  if (a->d_t) lengths |= a->m | a->ldd_t | (a->batch > 1 ? a->batch_stride_d_t : 0);
  return pointers % 16 == 0 && (lengths & (step - 1)) == 0;
}

static void fill_call(const libgemm_cast_args *a, struct call *call) {
  clear(call, offsetof(struct call, a_desc));
  call->M = (int32_t)a->m, call->N = (int32_t)a->n;
  call->a_ptr = (CUdeviceptr)a->a, call->q_ptr = (CUdeviceptr)a->d, call->q_t_ptr = (CUdeviceptr)a->d_t;
  call->scale_ptr = (CUdeviceptr)a->scale, call->scale_t_ptr = (CUdeviceptr)a->scale_t;
  call->entries = (int32_t)words_of(a);
  if (call->entries) call->amax_ptr = (CUdeviceptr)a->workspace;
  call->lda = a->lda, call->ldd = a->ldd, call->ldd_t = a->ldd_t;
  call->batch_stride_a = a->batch_stride_a, call->batch_stride_d = a->batch_stride_d;
  call->batch_stride_d_t = a->batch_stride_d_t, call->batch_stride_scale = a->batch_stride_scale;
  call->batch_stride_scale_t = a->batch_stride_scale_t;
  call->scale_stride_m = a->scale_stride_m, call->scale_stride_n = a->scale_stride_n;
  call->scale_t_stride_n = a->scale_t_stride_n, call->scale_t_stride_m = a->scale_t_stride_m;
  call->granularity = a->granularity, call->scale_power_of_two = a->scale_power_of_two;
  call->scale_given = a->scale_given;
}

/* The kernel of a granularity and how many rows its row of the table has; of tiles so high one is of a block of
 * threads. */
static void set_tile(const libgemm_cast_args *a, struct problem *p, int *block_m, int *height) {
  bool aligned = p->met & GUARD_ALIGN16, by_blocks = a->granularity == LIBGEMM_PER_128X128;
  *block_m = *height = PART;
  if (a->d_t) {
    p->op = has_two_scales(a) ? OP_CAST_TRANSPOSE_ROWS : OP_CAST_TRANSPOSE;
    *height = aligned && a->granularity == LIBGEMM_PER_ROW ? HALF : BLOCK;
    if (aligned) *block_m = *height;
  } else if (by_blocks) {
    p->op = OP_CAST_128X128;
    *height = BLOCK;
    if (aligned) *block_m = BLOCK;
  } else {
    p->op = a->granularity == LIBGEMM_PER_TENSOR ? OP_CAST_TENSOR : OP_CAST_1X128;
  }
}

/* Rows and columns of A that the pass for the largest magnitudes reads at a time, for one number of a matrix or for
 * those of its rows and columns. A block of threads goes over AMAX_ROWS rows. */
enum { AMAX_ROWS = 64 };
struct part {
  int rows, columns;
};
static struct part part_of_amax(const libgemm_cast_args *a, bool aligned) {
  if (!aligned) return (struct part){16, 128};
  return a->granularity == LIBGEMM_PER_TENSOR ? (struct part){64, 256} : (struct part){32, 512};
}

/* How many columns of a row the kernel that casts it whole reads at a time. Of rows that do not fit into any the
 * longest is no longer the fastest. */
static int row_block(const libgemm_cast_args *a, bool aligned) {
  if (a->n <= SHORT_ROW) return SHORT_ROW;
  if (a->n <= LONG_ROW || !aligned) return LONG_ROW;
  return a->n <= LONGER_ROW || a->n > LONGEST_ROW ? LONGER_ROW : LONGEST_ROW;
}

static int64_t tiles_of(const libgemm_cast_args *a, int64_t height, int64_t width) {
  return a->batch * ceil_div(a->m, height) * ceil_div(a->n, width);
}

static libgemm_status run(const libgemm_cast_args *a, const struct device *device) {
  const struct row *row = NULL, *before = NULL;
  struct call call;
  int block_m, height;
  struct part part = {0, 0};
  struct problem p = {.a_type = a->a_type, .d_type = a->d_type, .met = starts_rows_on_16(a) ? GUARD_ALIGN16 : 0};
  if (a->a_type == LIBGEMM_F32) p.precision = LIBGEMM_IEEE;
  state_gpu(&p, &device->gpu);
  TRY(check_pointers(a, device));
  fill_call(a, &call);
  if (words_of(a)) {
    struct problem amax = p;
    amax.op = OP_CAST_AMAX, amax.d_type = a->a_type;
    part = part_of_amax(a, p.met & GUARD_ALIGN16);
    TRY(row_of_tile(&amax, part.rows, part.columns, device, &before));
  }
  if (a->granularity == LIBGEMM_PER_ROW && !a->d_t) {
    p.op = OP_CAST_ROWS;
    TRY(row_of_tile(&p, 8, row_block(a, p.met & GUARD_ALIGN16), device, &row));
    return row->launch(row, device, &call, a->batch * a->m, a->stream);
  }
  set_tile(a, &p, &block_m, &height);
  TRY(row_of_tile(&p, block_m, BLOCK, device, &row));
  if (before) {
    call.phase = 1; /* clear the words */
    TRY(before->launch(before, device, &call, ceil_div(call.entries, WORDS_OF_A_PROGRAM), a->stream));
    call.phase = 2;
    TRY(before->launch(before, device, &call, tiles_of(a, AMAX_ROWS, part.columns), a->stream));
  }
  return row->launch(row, device, &call, tiles_of(a, height, BLOCK), a->stream);
}

libgemm_status libgemm_cast(const libgemm_cast_args *args) {
  libgemm_cast_args a;
  const struct device *device;
  TRY(read_args(args, sizeof a, &a, sizeof a, "libgemm_cast_args"));
  TRY(check_words(&a));
  if (a.m == 0 || a.n == 0 || a.batch == 0) return LIBGEMM_OK;
  TRY(check_layout(&a));
  RETURN_ON_OWNER(a.d ? "d" : "d_t", a.d ? a.d : a.d_t, device, run(&a, device));
}

libgemm_status libgemm_cast_workspace(const libgemm_cast_args *args, uint64_t *bytes) {
  libgemm_cast_args a;
  if (!bytes) return fail(LIBGEMM_INVALID_ARGUMENT, "bytes is NULL");
  *bytes = 0;
  TRY(read_args(args, sizeof a, &a, sizeof a, "libgemm_cast_args"));
  TRY(check_words(&a));
  if (a.m && a.n) *bytes = (uint64_t)words_of(&a) * sizeof(int32_t);
  return LIBGEMM_OK;
}
