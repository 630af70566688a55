/* moe_parts.c: what is beside the products in a layer of experts: sorting by expert, and adding up each token's rows.
 */
#include <stddef.h>
#include <string.h>

#include "api/moe.h"
#include "internal.h"

enum { MOST_EXPERTS = 4096, MOST_PROGRAMS = 64 };

void libgemm_moe_route_args_init(libgemm_moe_route_args *args, uint64_t size) {
  libgemm_moe_route_args defaults = {0};
  init_args(args, size, &defaults, sizeof defaults);
}

void libgemm_moe_sum_args_init(libgemm_moe_sum_args *args, uint64_t size) {
  libgemm_moe_sum_args defaults = {0};
  init_args(args, size, &defaults, sizeof defaults);
}

/* ---- Routing ---- */

static libgemm_status check_route(const libgemm_moe_route_args *args, libgemm_moe_route_args *a) {
  TRY(read_args(args, sizeof *a, a, sizeof *a, "libgemm_moe_route_args"));
  TRY(check_choices(a->tokens, a->top_k));
  TRY(check_range("groups", a->groups, 1, MOST_EXPERTS));
  return check_range("ids_wide", a->ids_wide, 0, 1);
}

/* Few entries are sorted in one launch without counts, by blocks of threads that have so many of them each, or so many
 * experts (kernels/device/portable/moe_few.py); many in chunks. */
enum { FEW_ENTRIES = 256, FEW_PART = 32, CHUNK = 1024 };

static bool are_few(const libgemm_moe_route_args *a) { return a->tokens * a->top_k <= FEW_ENTRIES; }

/* How many blocks of threads sort: of many each has counts of its own for every expert, twice. */
static int64_t route_programs(const libgemm_moe_route_args *a) {
  int64_t entries = a->tokens * a->top_k;
  if (!are_few(a)) return least(ceil_div(entries, CHUNK), MOST_PROGRAMS);
  return ceil_div(a->groups > entries ? a->groups : entries, FEW_PART);
}

static uint64_t route_bytes(const libgemm_moe_route_args *a) {
  return are_few(a) ? 0 : (uint64_t)(2 * route_programs(a) * a->groups) * sizeof(int32_t);
}

static libgemm_status run_route(const libgemm_moe_route_args *a, int32_t *tickets, const struct device *device) {
  const struct row *row = NULL;
  struct call call;
  int64_t programs = route_programs(a);
  struct problem p = {.op = OP_MOE_ROUTE, .a_type = LIBGEMM_BF16, .d_type = LIBGEMM_BF16};
  if (a->tokens) {
    TRY(check_array("ids", a->ids, a->ids_wide ? sizeof(int64_t) : sizeof(int32_t), device));
    TRY(check_array("rows", a->rows, sizeof(int32_t), device));
    TRY(check_array("places", a->places, sizeof(int32_t), device));
  }
  TRY(check_array("offs", a->offs, sizeof(int32_t), device));
  if (route_bytes(a)) {
    TRY(check_workspace(a->workspace, a->workspace_bytes, route_bytes(a), "libgemm_moe_route_workspace"));
    TRY(check_pointer("workspace", (CUdeviceptr)a->workspace, device));
  }
  state_gpu(&p, &device->gpu);
  TRY(row_of_tile(&p, are_few(a) ? FEW_ENTRIES : CHUNK, 0, device, &row));
  clear(&call, offsetof(struct call, a_desc));
  call.ids_ptr = (CUdeviceptr)a->ids, call.rows_ptr = (CUdeviceptr)a->rows;
  call.places_ptr = (CUdeviceptr)a->places, call.offs_ptr = (CUdeviceptr)a->offs;
  call.counts_ptr = (CUdeviceptr)a->workspace, call.tickets_ptr = (CUdeviceptr)tickets;
  call.entries = (int32_t)(a->tokens * a->top_k), call.groups = (int32_t)a->groups, call.top_k = (int32_t)a->top_k;
  call.ids_wide = a->ids_wide;
  call.phase = 3; /* one block of threads counts, and places by what it counted; several by what all did */
  if (!are_few(a) && programs > 1) {
    call.phase = 1;
    TRY(row->launch(row, device, &call, programs, a->stream));
    call.phase = 2;
  }
  return row->launch(row, device, &call, programs, a->stream);
}

bool gives_tickets(int64_t entries) { return entries > FEW_ENTRIES; }

libgemm_status route_layer(const libgemm_moe_route_args *args, int32_t *tickets) {
  libgemm_moe_route_args a;
  const struct device *device;
  TRY(check_route(args, &a));
  RETURN_ON_OWNER("offs", a.offs, device, run_route(&a, tickets, device));
}

libgemm_status libgemm_moe_route(const libgemm_moe_route_args *args) { return route_layer(args, NULL); }

libgemm_status libgemm_moe_route_workspace(const libgemm_moe_route_args *args, uint64_t *bytes) {
  libgemm_moe_route_args a;
  if (!bytes) return fail(LIBGEMM_INVALID_ARGUMENT, "bytes is NULL");
  *bytes = 0;
  TRY(check_route(args, &a));
  *bytes = route_bytes(&a);
  return LIBGEMM_OK;
}

/* ---- The sum ---- */

static libgemm_status check_sum(const libgemm_moe_sum_args *args, libgemm_moe_sum_args *a) {
  TRY(read_args(args, sizeof *a, a, sizeof *a, "libgemm_moe_sum_args"));
  TRY(check_choices(a->tokens, a->top_k));
  TRY(check_range("n", a->n, 0, LIBGEMM_MAX_SIZE / 2)); /* the kernel counts past the last column */
  TRY(check_range("a_count", a->a_count, 0, LIBGEMM_MAX_SIZE));
  if (!is_output_type(a->a_type))
    return fail(LIBGEMM_INVALID_ARGUMENT, "a_type = %d: allowed are LIBGEMM_F16 (1), LIBGEMM_BF16 (2), LIBGEMM_F32 (3)",
                a->a_type);
  TRY(check_weights(a->weights, a->weights_type));
  if (a->tokens == 0 || a->n == 0) return LIBGEMM_OK;
  if (a->a_count) TRY(check_ld("lda", a->lda, a->n, "n"));
  return check_ld("ldd", a->ldd, a->n, "n");
}

static libgemm_status run_sum(const libgemm_moe_sum_args *a, const struct device *device) {
  const struct row *row = NULL;
  struct call call;
  uint64_t bytes = (uint64_t)dtype_bytes(a->a_type);
  int64_t step = 16 / (int64_t)bytes;
  struct problem p = {.op = OP_MOE_SUM, .a_type = a->a_type, .d_type = a->a_type};
  if (a->a_type == LIBGEMM_F32) p.precision = LIBGEMM_IEEE;
  state_gpu(&p, &device->gpu);
  bool aligned = ((uint64_t)a->a | (uint64_t)a->d) % 16 == 0 && ((a->lda | a->ldd | a->n) & (step - 1)) == 0;
  p.met = aligned ? GUARD_ALIGN16 : 0;
  if (a->a_count) TRY(check_array("a", a->a, bytes, device));
  TRY(check_array("d", a->d, bytes, device));
  TRY(check_array("places", a->places, sizeof(int32_t), device));
  if (a->weights) TRY(check_array("weights", a->weights, (uint64_t)dtype_bytes(a->weights_type), device));
  if (a->a == a->d) return fail(LIBGEMM_INVALID_ARGUMENT, "a == d = %p: D is written while A is read", a->d);
  TRY(row_of_tile(&p, 8, 0, device, &row));
  clear(&call, offsetof(struct call, a_desc));
  call.a_ptr = (CUdeviceptr)a->a, call.d_ptr = (CUdeviceptr)a->d, call.weights_ptr = (CUdeviceptr)a->weights;
  call.places_ptr = (CUdeviceptr)a->places;
  call.M = (int32_t)a->tokens, call.N = (int32_t)a->n, call.top_k = (int32_t)a->top_k;
  call.stored = (int32_t)a->a_count, call.weights_type = a->weights_type;
  call.lda = a->lda, call.ldd = a->ldd;
  return row->launch(row, device, &call, a->tokens * ceil_div(a->n, row->block_n), a->stream);
}

libgemm_status libgemm_moe_sum(const libgemm_moe_sum_args *args) {
  libgemm_moe_sum_args a;
  const struct device *device;
  TRY(check_sum(args, &a));
  if (a.tokens == 0 || a.n == 0) return LIBGEMM_OK;
  RETURN_ON_OWNER("d", a.d, device, run_sum(&a, device));
}
