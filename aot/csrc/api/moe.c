/* moe.c: a layer of experts, by the calls for its parts, one after the other. Launches nothing itself. */
#include "api/moe.h"

#include <stddef.h>
#include <string.h>

#include "api/grouped_mm.h"
#include "internal.h"

void libgemm_moe_args_init(libgemm_moe_args *args, uint64_t size) {
  libgemm_moe_args defaults = {.gate_alpha = 1.702f};
  init_args(args, size, &defaults, sizeof defaults);
}

static libgemm_moe_route_args route_of(const libgemm_moe_args *a) {
  return (libgemm_moe_route_args){.size = sizeof(libgemm_moe_route_args),
                                  .tokens = a->tokens,
                                  .top_k = a->top_k,
                                  .groups = a->groups,
                                  .ids = a->ids,
                                  .ids_wide = a->ids_wide,
                                  .stream = a->stream};
}

/* Read and check what the parts would not, and lay out the workspace. */
static libgemm_status check_args(const libgemm_moe_args *args, libgemm_moe_args *a, struct layout *l) {
  uint64_t counts;
  TRY(read_args(args, offsetof(libgemm_moe_args, b_type), a, sizeof *a, "libgemm_moe_args"));
  libgemm_moe_route_args route = route_of(a);
  TRY(libgemm_moe_route_workspace(&route, &counts));
  TRY(check_range("k", a->k, 0, LIBGEMM_MAX_SIZE));
  TRY(check_range("inner", a->inner, 0, LIBGEMM_MAX_SIZE / 2));
  TRY(check_range("n", a->n, 0, LIBGEMM_MAX_SIZE / 2));
  TRY(check_layer_type(a->a_type));
  TRY(check_scaled_layer(a));
  uint64_t entries = (uint64_t)(a->tokens * a->top_k), bytes = (uint64_t)dtype_bytes(a->a_type);
  *l = (struct layout){0};
  l->rows = place(&l->end, entries * sizeof(int32_t));
  l->places = place(&l->end, entries * sizeof(int32_t));
  l->offs = place(&l->end, (uint64_t)a->groups * sizeof(int32_t));
  l->counts = place(&l->end, counts);
  l->tickets = place(&l->end, 2 * sizeof(int32_t));
  if (a->scaling)
    place_scaled(a, l);
  else
    l->hidden = place(&l->end, entries * (uint64_t)a->inner * bytes);
  l->made = place(&l->end, entries * (uint64_t)a->n * bytes);
  return LIBGEMM_OK;
}

static bool is_empty(const libgemm_moe_args *a) { return a->tokens == 0 || a->n == 0; }

libgemm_status libgemm_moe_workspace(const libgemm_moe_args *args, uint64_t *bytes) {
  libgemm_moe_args a;
  struct layout l;
  if (!bytes) return fail(LIBGEMM_INVALID_ARGUMENT, "bytes is NULL");
  *bytes = 0;
  TRY(check_args(args, &a, &l));
  if (!is_empty(&a)) *bytes = l.end;
  return LIBGEMM_OK;
}

int32_t *tickets_of(const libgemm_moe_args *a, const struct layout *l) {
  return gives_tickets(a->tokens * a->top_k) ? (int32_t *)(void *)((char *)a->workspace + l->tickets) : NULL;
}

/* Blocks that take tiles as they come free end together, but neighbours no longer work on neighbouring tiles, and read
 * what they share one by one. Of 16 bits that pays from groups of so many rows, in the mean, and products of so much K
 * (bench/NOTES.md). Choices of no expert count: the host knows no better. */
enum { COUNTED_ROWS = 256, COUNTED_K = 1024 };

static bool is_counted(const libgemm_moe_args *a, int64_t k) {
  int64_t entries = a->tokens * a->top_k;
  return gives_tickets(entries) && entries >= COUNTED_ROWS * a->groups && k >= COUNTED_K;
}

/* Queue the products, from sorted rows to what experts made of them. */
static libgemm_status queue_products(const libgemm_moe_args *a, const struct layout *l) {
  char *at = a->workspace;
  const int32_t *offs = (int32_t *)(void *)(at + l->offs);
  int64_t entries = a->tokens * a->top_k;
  libgemm_moe_mm_args first = {.size = sizeof first,
                               .m = entries,
                               .n = a->gate ? 2 * a->inner : a->inner,
                               .k = a->k,
                               .groups = a->groups,
                               .a_count = a->tokens,
                               .a = a->x,
                               .b = a->b1,
                               .d = at + l->hidden,
                               .bias = a->bias1,
                               .offs = offs,
                               .rows = (int32_t *)(void *)(at + l->rows),
                               .lda = a->ldx,
                               .ldb = a->ldb1,
                               .ldd = a->inner,
                               .batch_stride_b = a->batch_stride_b1,
                               .batch_stride_bias = a->batch_stride_bias1,
                               .alpha = 1.0f,
                               .gate_alpha = a->gate_alpha,
                               .gate_limit = a->gate_limit,
                               .a_type = a->a_type,
                               .trans_b = a->trans_b1,
                               .activation = a->activation,
                               .gate = a->gate,
                               .stream = a->stream};
  libgemm_grouped_mm_args second;
  libgemm_grouped_mm_args_init(&second, sizeof second);
  second.m = entries, second.n = a->n, second.k = a->inner, second.groups = a->groups;
  second.a = at + l->hidden, second.b = a->b2, second.d = at + l->made, second.bias = a->bias2, second.offs = offs;
  second.lda = a->inner, second.ldb = a->ldb2, second.ldd = a->n;
  second.batch_stride_b = a->batch_stride_b2, second.batch_stride_bias = a->batch_stride_bias2;
  second.a_type = second.d_type = a->a_type, second.trans_b = a->trans_b2, second.stream = a->stream;
  int32_t *tickets = tickets_of(a, l);
  TRY(multiply_experts(&first, is_counted(a, a->k) ? tickets : NULL));
  return multiply_groups(&second, (struct layer_context){.tickets = is_counted(a, a->inner) ? tickets + 1 : NULL});
}

libgemm_status libgemm_moe(const libgemm_moe_args *args) {
  libgemm_moe_args a;
  struct layout l;
  TRY(check_args(args, &a, &l));
  if (is_empty(&a)) return LIBGEMM_OK;
  TRY(check_workspace(a.workspace, a.workspace_bytes, l.end, "libgemm_moe_workspace"));
  char *at = a.workspace;
  int64_t entries = a.tokens * a.top_k;
  libgemm_moe_route_args route = route_of(&a);
  route.rows = (int32_t *)(void *)(at + l.rows), route.places = (int32_t *)(void *)(at + l.places);
  route.offs = (int32_t *)(void *)(at + l.offs);
  route.workspace = at + l.counts, route.workspace_bytes = l.tickets - l.counts;
  libgemm_moe_sum_args sum = {.size = sizeof sum,
                              .tokens = a.tokens,
                              .n = a.n,
                              .top_k = a.top_k,
                              .a_count = entries,
                              .a = at + l.made,
                              .d = a.d,
                              .weights = a.weights,
                              .places = route.places,
                              .lda = a.n,
                              .ldd = a.ldd,
                              .a_type = a.a_type,
                              .weights_type = a.weights_type,
                              .stream = a.stream};
  if (!a.scaling) TRY(route_layer(&route, tickets_of(&a, &l)));
  TRY(a.scaling ? queue_scaled(&a, &route, &l) : queue_products(&a, &l));
  return libgemm_moe_sum(&sum);
}
