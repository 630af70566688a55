/* moe_gated.c: a product of 8-bit experts with the cast before it, and the gate and the cast behind it: in as few
 * launches as there are rows for. */
#include "api/grouped_mm.h"
#include "api/moe.h"
#include "internal.h"

struct gated {
  const libgemm_grouped_mm_args *product;
  const struct operands *operands;
  const libgemm_moe_cast_args *cast;
  const struct spread *token; /* one, whose row the product spreads by itself; NULL: A is spread */
  int32_t *tickets;           /* as in struct layer_context */
};

/* The row that does it all; NULL: there is none. */
static const struct row *row_of(const struct gated *g, const struct device *device) {
  const libgemm_grouped_mm_args *a = g->product;
  struct problem p = {.op = OP_MOE_MM, .a_type = a->a_type, .d_type = a->d_type, .trans_b = a->trans_b};
  if (!g->operands->reads_ab) return NULL;
  if (!a->batch_stride_b && a->batch_stride_b_scale) return NULL; /* its scales follow B's matrices */
  p.activation = g->cast->activation;
  p.met = grouped_guards(a, g->operands) | GUARD_GATED | GUARD_HALVED | (g->token ? GUARD_ONE_TOKEN : 0);
  if (p.activation == LIBGEMM_SILU) p.met |= GUARD_SWISH;
  state_gpu(&p, &device->gpu);
  return gated_row(&p, device->gpu.target, a->m, a->groups);
}

static libgemm_status run(const struct gated *g, const struct row *row, const struct device *device) {
  const libgemm_grouped_mm_args *a = g->product;
  const libgemm_moe_cast_args *cast = g->cast;
  struct call call;
  TRY(check_grouped_pointers(a, g->operands, device));
  if (g->token) TRY(check_spread_pointers(g->token, device));
  TRY(load_row(row, device));
  int64_t at_once = (int64_t)device->gpu.multiprocessors * resident_blocks(row, device);
  int64_t across = ceil_div(a->n, row->block_n);
  if (has_pairs(row)) {
    at_once = 2 * clusters_at_once(device->gpu.multiprocessors, 2);
    across = 2 * ceil_div(across, 2);
  }
  int64_t rows_of_tiles = g->token ? a->m : a->m / row->block_m + a->groups;
  int64_t blocks = least(rows_of_tiles * across, at_once);
  struct plan plan = {.row = row, .splits = 1, .blocks = blocks};
  place_grouped(a, g->operands, &call);
  call.N = (int32_t)cast->n, call.ldd = cast->ldd;
  call.q_ptr = (CUdeviceptr)cast->d, call.scale_ptr = (CUdeviceptr)cast->scale;
  call.scale_stride_m = cast->scale_stride_m, call.scale_stride_n = cast->scale_stride_n;
  place_gate(cast->gate, cast->gate_alpha, cast->gate_limit, &call);
  if (g->token) {
    const libgemm_moe_route_args *route = g->token->route;
    call.x_ptr = (CUdeviceptr)g->token->a, call.ids_ptr = (CUdeviceptr)route->ids, call.ids_wide = route->ids_wide;
    call.places_ptr = (CUdeviceptr)route->places, call.entries = (int32_t)a->m;
  }
  call.tickets_ptr = (CUdeviceptr)g->tickets;
  TRY(find_maps(&plan, device, &call));
  if (has_pairs(row)) call.cluster = 2;
  return row->launch(row, device, &call, blocks, a->stream);
}

/* Whether a row may read the token's by itself: in words of 8 bytes. */
static bool is_one_token(const struct spread *s, const libgemm_grouped_mm_args *product) {
  const libgemm_moe_route_args *route = s->route;
  return route->tokens == 1 && route->top_k <= MOST_TOKEN_CHOICES && s->a_type == product->d_type && s->n &&
         s->n % 16 == 0 && (uint64_t)s->a % 16 == 0;
}

/* In one launch, if there is a row for it. */
static libgemm_status multiply_at_once(struct gated *g, const libgemm_moe_cast_args *cast, bool *done) {
  libgemm_grouped_mm_args a;
  struct operands operands;
  struct problem problem;
  const struct device *device;
  int ordinal;
  *done = false;
  if (g->token) TRY(check_spread(g->token));
  TRY(check_moe_cast(cast));
  TRY(check_grouped(g->product, &a, &operands, &problem));
  g->product = &a, g->operands = &operands, g->cast = cast;
  TRY(device_of("workspace", (CUdeviceptr)a.d, &ordinal));
  TRY(device_get(ordinal, &device));
  const struct row *row = row_of(g, device);
  if (!row) return LIBGEMM_OK;
  *done = true;
  RETURN_ON(device, run(g, row, device));
}

libgemm_status spread_and_multiply(const struct spread *s, const libgemm_grouped_mm_args *product,
                                   const libgemm_moe_cast_args *cast, struct layer_context *next) {
  bool in_one = cast->gate && may_be_gated(product->m, product->groups, cast->n), done = false;
  /* Of few choices blocks of the next launch find room while the last of these runs. That lets them begin when it has
   * stored the ends, or has waited for the launch that does, or for one that has. */
  bool few = spreads_by_itself(product->m);
  *next = (struct layer_context){.early = few, .tickets = s->tickets ? s->tickets + 1 : NULL};
  if (in_one && is_one_token(s, product)) {
    TRY(multiply_at_once(&(struct gated){.product = product, .token = s}, cast, &done));
    if (done) return LIBGEMM_OK;
  }
  if (!s->n || !few) TRY(route_layer(s->route, s->tickets));
  if (s->n) TRY(spread_cast(s));
  if (in_one) TRY(multiply_at_once(&(struct gated){.product = product, .tickets = s->tickets}, cast, &done));
  if (done) return LIBGEMM_OK;
  TRY(multiply_groups(product, (struct layer_context){.tickets = s->tickets}));
  return libgemm_moe_cast(cast);
}
