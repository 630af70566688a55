/* moe_gated.c: a product of 8-bit experts with the gate and the cast behind it: in one launch where a row does all
 * that. */
#include "api/grouped_mm.h"
#include "api/moe.h"
#include "internal.h"

enum {
  PART = 64,  /* columns of the gate, in steps of which B's blocks of scales begin the same for gate and up */
  LARGE = 64, /* rows of a group, in the mean, from which tiles of many rows pay, */
  FEW = 16,   /* and to which those of few; between, lower tiles and a launch more take less time */
};

struct gated {
  const libgemm_grouped_mm_args *product;
  const struct operands *operands;
  const libgemm_moe_cast_args *cast;
};

/* Whether there may be such a row: seen at once of the many calls that have none. */
static bool may_be_one(const libgemm_grouped_mm_args *product, const libgemm_moe_cast_args *cast) {
  bool suited = product->m <= product->groups * FEW || product->m >= product->groups * LARGE;
  return cast->gate && cast->n && cast->n % PART == 0 && product->m && suited;
}

static bool has_few(const struct row *row) { return row->block_m < LARGE; }

/* Of tiles of few rows the lowest one that groups fill by half, or less: a group of more takes B again. */
static bool suits(const struct row *row, const libgemm_grouped_mm_args *a) {
  return has_few(row) ? a->m <= a->groups * (row->block_m / 2) : a->m >= a->groups * LARGE;
}

/* The row that does it all; NULL: there is none. */
static const struct row *row_of(const struct gated *g, const struct device *device) {
  const libgemm_grouped_mm_args *a = g->product;
  struct problem p = {.op = OP_MOE_MM, .a_type = a->a_type, .d_type = a->d_type, .trans_b = a->trans_b};
  int first, end;
  if (!g->operands->reads_ab) return NULL;
  if (!a->batch_stride_b && a->batch_stride_b_scale) return NULL; /* its scales follow B's matrices */
  p.activation = g->cast->activation;
  p.met = grouped_guards(a, g->operands) | GUARD_GATED | GUARD_HALVED;
  if (p.activation == LIBGEMM_SILU) p.met |= GUARD_SWISH;
  state_gpu(&p, &device->gpu);
  bucket_of(&p, device->gpu.target, &first, &end);
  for (int i = first; i < end; i++)
    if (!refused(&rows[i], &p) && suits(&rows[i], a)) return &rows[i];
  return NULL;
}

static libgemm_status run(const struct gated *g, const struct row *row, const struct device *device) {
  const libgemm_grouped_mm_args *a = g->product;
  const libgemm_moe_cast_args *cast = g->cast;
  struct call call;
  TRY(check_grouped_pointers(a, g->operands, device));
  TRY(load_row(row, device));
  int64_t at_once = (int64_t)device->gpu.multiprocessors * resident_blocks(row, device);
  int64_t across = ceil_div(a->n, row->block_n);
  if (has_few(row)) { /* tiles stand in pairs, which the blocks of a cluster take */
    at_once = 2 * clusters_at_once(device->gpu.multiprocessors, 2);
    across = 2 * ceil_div(across, 2);
  }
  int64_t blocks = least((a->m / row->block_m + a->groups) * across, at_once);
  struct plan plan = {.row = row, .splits = 1, .blocks = blocks};
  place_grouped(a, g->operands, &call);
  call.N = (int32_t)cast->n, call.ldd = cast->ldd;
  call.q_ptr = (CUdeviceptr)cast->d, call.scale_ptr = (CUdeviceptr)cast->scale;
  call.scale_stride_m = cast->scale_stride_m, call.scale_stride_n = cast->scale_stride_n;
  place_gate(cast->gate, cast->gate_alpha, cast->gate_limit, &call);
  TRY(find_maps(&plan, device, &call));
  if (has_few(row)) call.cluster = 2;
  return row->launch(row, device, &call, blocks, a->stream);
}

libgemm_status multiply_and_cast(const libgemm_grouped_mm_args *product, const libgemm_moe_cast_args *cast) {
  libgemm_grouped_mm_args a;
  struct operands operands;
  struct problem problem;
  const struct device *device;
  int ordinal;
  if (may_be_one(product, cast)) {
    TRY(check_moe_cast(cast));
    TRY(check_grouped(product, &a, &operands, &problem));
    const struct gated gated = {.product = &a, .operands = &operands, .cast = cast};
    TRY(device_of("workspace", (CUdeviceptr)a.d, &ordinal));
    TRY(device_get(ordinal, &device));
    const struct row *row = row_of(&gated, device);
    if (row) RETURN_ON(device, run(&gated, row, device));
  }
  TRY(libgemm_grouped_mm(product));
  return libgemm_moe_cast(cast);
}
