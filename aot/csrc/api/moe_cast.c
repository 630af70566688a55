/* moe_cast.c: rows for a layer's products in 8 bits, cast with a scale for each 128: by an index and gated; or each of
 * X's to all its choices' places. */
#include <stddef.h>

#include "api/moe.h"
#include "internal.h"

enum { BLOCK = 128, PART = 16, FEW = 64 /* FEW of kernels/device/portable/moe_cast.py */ };

void libgemm_moe_cast_args_init(libgemm_moe_cast_args *args, uint64_t size) {
  libgemm_moe_cast_args defaults = {.gate_alpha = 1.702f, .d_type = LIBGEMM_E4M3};
  init_args(args, size, &defaults, sizeof defaults);
}

libgemm_status check_moe_cast(const libgemm_moe_cast_args *a) {
  TRY(check_layer_type(a->a_type));
  if (a->d_type != LIBGEMM_E4M3)
    return fail(LIBGEMM_INVALID_ARGUMENT, "d_type = %d: allowed is LIBGEMM_E4M3 (4)", a->d_type);
  TRY(check_range("m", a->m, 0, LIBGEMM_MAX_SIZE / 2));
  TRY(check_range("n", a->n, 0, LIBGEMM_MAX_SIZE / 2));
  TRY(check_range("activation", a->activation, 0, ACTIVATION_COUNT - 1));
  TRY(check_gate(a->gate, 0, a->activation, a->gate_limit));
  return check_count("a_count", a->a_count, "rows", a->rows != NULL, a->m);
}

static int64_t columns_of_a(const libgemm_moe_cast_args *a) { return a->gate ? 2 * a->n : a->n; }

static libgemm_status run(const libgemm_moe_cast_args *a, const struct device *device) {
  const struct row *row = NULL;
  struct call call;
  int64_t step = 16 / (int64_t)dtype_bytes(a->a_type);
  struct problem p = {.op = OP_MOE_CAST, .a_type = a->a_type, .d_type = LIBGEMM_E4M3};
  bool aligned = ((uint64_t)a->a | (uint64_t)a->d) % 16 == 0 && ((a->lda | a->ldd | a->n) & (step - 1)) == 0;
  p.met = aligned ? GUARD_ALIGN16 : 0;
  p.activation = a->activation;
  if (a->gate) p.met |= GUARD_GATED | (a->gate == LIBGEMM_GATE_PAIRS ? GUARD_PAIRED : GUARD_HALVED);
  if (a->activation == LIBGEMM_SILU) p.met |= GUARD_SWISH;
  state_gpu(&p, &device->gpu);
  if (a->a_count || !a->rows) TRY(check_array("a", a->a, (uint64_t)dtype_bytes(a->a_type), device));
  if (a->rows) TRY(check_array("rows", a->rows, sizeof(int32_t), device));
  TRY(check_array("d", a->d, 1, device));
  TRY(check_array("scale", a->scale, sizeof(float), device));
  if (a->a == a->d) return fail(LIBGEMM_INVALID_ARGUMENT, "a == d = %p: D is written while A is read", a->d);
  TRY(row_of_tile(&p, PART, BLOCK, device, &row));
  clear(&call, offsetof(struct call, a_desc));
  call.M = (int32_t)a->m, call.N = (int32_t)a->n, call.stored = (int32_t)(a->rows ? a->a_count : a->m);
  call.a_ptr = (CUdeviceptr)a->a, call.q_ptr = (CUdeviceptr)a->d, call.scale_ptr = (CUdeviceptr)a->scale;
  call.rows_ptr = (CUdeviceptr)a->rows, call.lda = a->lda, call.ldd = a->ldd, call.activation = a->activation;
  call.scale_stride_m = a->scale_stride_m, call.scale_stride_n = a->scale_stride_n;
  place_gate(a->gate, a->gate_alpha, a->gate_limit, &call);
  return row->launch(row, device, &call, ceil_div(a->m, row->block_m) * ceil_div(a->n, BLOCK), a->stream);
}

libgemm_status libgemm_moe_cast(const libgemm_moe_cast_args *args) {
  libgemm_moe_cast_args a;
  const struct device *device;
  TRY(read_args(args, sizeof a, &a, sizeof a, "libgemm_moe_cast_args"));
  TRY(check_moe_cast(&a));
  if (a.m == 0 || a.n == 0) return LIBGEMM_OK;
  TRY(check_ld("lda", a.lda, columns_of_a(&a), a.gate ? "2 * n" : "n"));
  TRY(check_ld("ldd", a.ldd, a.n, "n"));
  TRY(check_scale_strides("scale_stride_m", a.m, a.scale_stride_m, "scale_stride_n", ceil_div(a.n, BLOCK),
                          a.scale_stride_n));
  RETURN_ON_OWNER("d", a.d, device, run(&a, device));
}

libgemm_status check_spread_pointers(const struct spread *s, const struct device *device) {
  const libgemm_moe_route_args *route = s->route;
  TRY(check_array("x", s->a, (uint64_t)dtype_bytes(s->a_type), device));
  return check_array("ids", route->ids, route->ids_wide ? sizeof(int64_t) : sizeof(int32_t), device);
}

static libgemm_status run_spread(const struct spread *s, const struct device *device) {
  const struct row *row = NULL;
  struct call call;
  const libgemm_moe_route_args *route = s->route;
  int64_t step = 16 / (int64_t)dtype_bytes(s->a_type);
  struct problem p = {.op = OP_MOE_SPREAD, .a_type = s->a_type, .d_type = LIBGEMM_E4M3};
  p.met =
      ((uint64_t)s->a | (uint64_t)s->d) % 16 == 0 && ((s->lda | s->ldd | s->n) & (step - 1)) == 0 ? GUARD_ALIGN16 : 0;
  state_gpu(&p, &device->gpu);
  TRY(check_spread_pointers(s, device));
  TRY(row_of_tile(&p, 8, 0, device, &row));
  clear(&call, offsetof(struct call, a_desc));
  if (spreads_by_itself(route->tokens * route->top_k)) {
    call.ids_ptr = (CUdeviceptr)route->ids, call.offs_ptr = (CUdeviceptr)route->offs;
    call.groups = (int32_t)route->groups, call.ids_wide = route->ids_wide;
  }
  call.N = (int32_t)s->n, call.top_k = (int32_t)route->top_k;
  call.entries = (int32_t)(route->tokens * route->top_k);
  call.a_ptr = (CUdeviceptr)s->a, call.q_ptr = (CUdeviceptr)s->d, call.scale_ptr = (CUdeviceptr)s->scale;
  call.places_ptr = (CUdeviceptr)route->places, call.lda = s->lda, call.ldd = s->ldd;
  call.scale_stride_m = s->scale_stride_m, call.scale_stride_n = s->scale_stride_n;
  return row->launch(row, device, &call, route->tokens * ceil_div(s->n, row->block_n), route->stream);
}

bool spreads_by_itself(int64_t entries) { return entries <= FEW; }

libgemm_status check_spread(const struct spread *s) {
  TRY(check_range("k", s->n, 0, LIBGEMM_MAX_SIZE / 2)); /* kernels count past the last of either */
  TRY(check_range("tokens * top_k", s->route->tokens * s->route->top_k, 0, LIBGEMM_MAX_SIZE / 2));
  return check_ld("ldx", s->lda, s->n, "k");
}

libgemm_status spread_cast(const struct spread *s) {
  const struct device *device;
  TRY(check_spread(s));
  RETURN_ON_OWNER("workspace", s->d, device, run_spread(s, device));
}
