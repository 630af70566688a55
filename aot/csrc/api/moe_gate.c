/* moe_gate.c: the gate of a layer of experts by itself, and its gradient: for training, where Z is kept. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "internal.h"

void libgemm_moe_gate_args_init(libgemm_moe_gate_args *args, uint64_t size) {
  libgemm_moe_gate_args defaults = {.gate_alpha = 1.702f};
  init_args(args, size, &defaults, sizeof defaults);
}

void libgemm_moe_gate_grad_args_init(libgemm_moe_gate_grad_args *args, uint64_t size) {
  libgemm_moe_gate_grad_args defaults = {.gate_alpha = 1.702f};
  init_args(args, size, &defaults, sizeof defaults);
}

/* What both calls have: the gate's words, and how many rows and columns of H there are. */
struct gate {
  int64_t rows, n;
  int32_t type, activation, kind;
  float alpha, limit;
};
#define GATE_OF(a, count)                       \
  ((struct gate){.rows = (count),               \
                 .n = (a)->n,                   \
                 .type = (a)->a_type,           \
                 .activation = (a)->activation, \
                 .kind = (a)->gate,             \
                 .alpha = (a)->gate_alpha,      \
                 .limit = (a)->gate_limit})

static int64_t columns_of_z(const struct gate *g) { return g->kind ? 2 * g->n : g->n; }

static libgemm_status check_words(const struct gate *g) {
  TRY(check_layer_type(g->type));
  TRY(check_range("n", g->n, 0, LIBGEMM_MAX_SIZE / 2));
  TRY(check_range("activation", g->activation, 0, ACTIVATION_COUNT - 1));
  return check_gate(g->kind, 0, g->activation, g->limit);
}

/* Whether every row of these arrays begins on 16 bytes. */
static int32_t alignment_of(uint64_t pointers, int64_t lengths, const struct gate *g) {
  int64_t step = 16 / (int64_t)dtype_bytes(g->type);
  return pointers % 16 == 0 && ((lengths | g->n) & (step - 1)) == 0 ? GUARD_ALIGN16 : 0;
}

static libgemm_status row_of(enum op op, const struct gate *g, int32_t met, const struct device *device,
                             const struct row **row) {
  struct problem p = {.op = op, .a_type = g->type, .d_type = g->type, .met = met};
  state_gpu(&p, &device->gpu);
  return row_of_tile(&p, 8, 0, device, row);
}

static void fill_call(const struct gate *g, struct call *call) {
  clear(call, offsetof(struct call, a_desc));
  call->N = (int32_t)g->n, call->activation = g->activation;
  place_gate(g->kind, g->alpha, g->limit, call);
}

/* ---- The gate ---- */

static libgemm_status run_gate(const libgemm_moe_gate_args *a, const struct gate *g, const struct device *device) {
  const struct row *row = NULL;
  struct call call;
  uint64_t bytes = (uint64_t)dtype_bytes(g->type);
  TRY(check_array("z", a->z, bytes, device));
  TRY(check_array("h", a->h, bytes, device));
  if (a->z == a->h) return fail(LIBGEMM_INVALID_ARGUMENT, "z == h = %p: H is written while Z is read", a->h);
  TRY(row_of(OP_MOE_GATE, g, alignment_of((uint64_t)a->z | (uint64_t)a->h, a->ldz | a->ldh, g), device, &row));
  fill_call(g, &call);
  call.a_ptr = (CUdeviceptr)a->z, call.d_ptr = (CUdeviceptr)a->h, call.lda = a->ldz, call.ldd = a->ldh;
  call.M = (int32_t)a->m;
  return row->launch(row, device, &call, a->m * ceil_div(a->n, row->block_n), a->stream);
}

libgemm_status libgemm_moe_gate(const libgemm_moe_gate_args *args) {
  libgemm_moe_gate_args a;
  const struct device *device;
  TRY(read_args(args, sizeof a, &a, sizeof a, "libgemm_moe_gate_args"));
  struct gate g = GATE_OF(&a, a.m);
  TRY(check_range("m", a.m, 0, LIBGEMM_MAX_SIZE));
  TRY(check_words(&g));
  if (a.m == 0 || a.n == 0) return LIBGEMM_OK;
  TRY(check_ld("ldz", a.ldz, columns_of_z(&g), g.kind ? "2 * n" : "n"));
  TRY(check_ld("ldh", a.ldh, a.n, "n"));
  RETURN_ON_OWNER("h", a.h, device, run_gate(&a, &g, device));
}

/* ---- Its gradient ---- */

static libgemm_status check_grad(const libgemm_moe_gate_grad_args *args, libgemm_moe_gate_grad_args *a,
                                 struct gate *g) {
  TRY(read_args(args, sizeof *a, a, sizeof *a, "libgemm_moe_gate_grad_args"));
  *g = GATE_OF(a, a->m);
  TRY(check_choices(a->tokens, a->top_k));
  TRY(check_range("m", a->m, 0, LIBGEMM_MAX_SIZE));
  TRY(check_words(g));
  TRY(check_weights(a->weights, a->weights_type));
  if (a->m == 0 || a->n == 0) return LIBGEMM_OK;
  TRY(check_ld("ldz", a->ldz, columns_of_z(g), g->kind ? "2 * n" : "n"));
  TRY(check_ld("lddz", a->lddz, columns_of_z(g), g->kind ? "2 * n" : "n"));
  TRY(check_ld("lddh", a->lddh, a->n, "n"));
  return a->h ? check_ld("ldh", a->ldh, a->n, "n") : LIBGEMM_OK;
}

static libgemm_status check_apart(const char *name, const void *written, const libgemm_moe_gate_grad_args *a) {
  if (written != a->z && written != a->dh) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "%s == %s = %p: the one is written while the other is read", name,
              written == a->z ? "z" : "dh", written);
}

static libgemm_status run_grad(const libgemm_moe_gate_grad_args *a, const struct gate *g, const struct device *device) {
  const struct row *row = NULL;
  struct call call;
  uint64_t bytes = (uint64_t)dtype_bytes(g->type);
  uint64_t pointers = (uint64_t)a->z | (uint64_t)a->dh | (uint64_t)a->dz | (uint64_t)a->h;
  int64_t lengths = a->ldz | a->lddh | a->lddz | (a->h ? a->ldh : 0);
  if (g->rows && g->n) {
    TRY(check_array("z", a->z, bytes, device));
    TRY(check_array("dh", a->dh, bytes, device));
    TRY(check_array("dz", a->dz, bytes, device));
    if (a->h) TRY(check_array("h", a->h, bytes, device));
    TRY(check_apart("h", a->h, a));
    TRY(check_apart("dz", a->dz, a));
    if (a->h == a->dz) return fail(LIBGEMM_INVALID_ARGUMENT, "h == dz = %p: both are written", a->h);
  }
  TRY(check_array("places", a->places, sizeof(int32_t), device));
  if (a->weights) TRY(check_array("weights", a->weights, (uint64_t)dtype_bytes(a->weights_type), device));
  if (a->sums) TRY(check_array("sums", a->sums, sizeof(float), device));
  TRY(row_of(OP_MOE_GATE_GRAD, g, alignment_of(pointers, lengths, g), device, &row));
  fill_call(g, &call);
  call.a_ptr = (CUdeviceptr)a->z, call.b_ptr = (CUdeviceptr)a->dh, call.d_ptr = (CUdeviceptr)a->dz;
  call.h_ptr = (CUdeviceptr)a->h, call.sums_ptr = (CUdeviceptr)a->sums;
  call.weights_ptr = (CUdeviceptr)a->weights, call.weights_type = a->weights_type;
  call.places_ptr = (CUdeviceptr)a->places;
  call.lda = a->ldz, call.ldb = a->lddh, call.ldd = a->lddz, call.ldh = a->ldh;
  call.entries = (int32_t)(a->tokens * a->top_k), call.stored = (int32_t)a->m;
  return row->launch(row, device, &call, call.entries, a->stream);
}

libgemm_status libgemm_moe_gate_grad(const libgemm_moe_gate_grad_args *args) {
  libgemm_moe_gate_grad_args a;
  struct gate g;
  const struct device *device;
  TRY(check_grad(args, &a, &g));
  if (a.tokens == 0 || ((a.m == 0 || a.n == 0) && !a.sums)) return LIBGEMM_OK;
  bool has_rows = a.m > 0 && a.n > 0;
  RETURN_ON_OWNER(has_rows ? "dz" : "sums", has_rows ? a.dz : (void *)a.sums, device, run_grad(&a, &g, device));
}
