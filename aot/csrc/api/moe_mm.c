/* moe_mm.c: the grouped call of a layer of experts: rows of A by index, a gate, rows of D weighted and by index. */
#include <stddef.h>
#include <string.h>

#include "api/moe.h"
#include "internal.h"

void libgemm_moe_mm_args_init(libgemm_moe_mm_args *args, uint64_t size) {
  libgemm_moe_mm_args defaults = {.alpha = 1.0f, .gate_alpha = 1.702f};
  init_args(args, size, &defaults, sizeof defaults);
}

static bool is_empty(const libgemm_moe_mm_args *a) { return a->m == 0 || a->n == 0 || a->groups == 0; }
static bool reads_ab(const libgemm_moe_mm_args *a) { return a->k > 0 && a->alpha != 0.0f && !is_empty(a); }
static int64_t columns_of_d(const libgemm_moe_mm_args *a) { return a->gate ? a->n / 2 : a->n; }

/* Read and check a call. Where it is not empty, *o is what it multiplies: with a gate B's columns are twice o->n. */
static libgemm_status check_args(const libgemm_moe_mm_args *args, libgemm_moe_mm_args *a, struct operands *o,
                                 struct problem *p) {
  TRY(read_args(args, sizeof *a, a, sizeof *a, "libgemm_moe_mm_args"));
  clear(p, sizeof *p);
  p->op = OP_MOE_MM;
  p->a_type = p->d_type = a->a_type, p->trans_b = a->trans_b;
  p->activation = a->activation, p->variant = a->variant;
  p->m = a->m, p->n = a->n, p->k = a->k, p->count = a->groups;
  TRY(check_layer_type(a->a_type));
  TRY(check_problem(p));
  TRY(check_range("groups", a->groups, 0, LIBGEMM_MAX_GROUPS));
  TRY(check_gate(a->gate, a->n, a->activation, a->gate_limit));
  TRY(check_count("a_count", a->a_count, "rows", a->rows != NULL, a->m));
  TRY(check_count("d_count", a->d_count, "to_rows", a->to_rows != NULL, a->m));
  if (is_empty(a)) return LIBGEMM_OK;
  if (!a->rows) a->a_count = a->m;
  if (!a->to_rows) a->d_count = a->m;
  p->rows = ceil_div(a->m, a->groups);
  STATE_STRIDES(p, a);
  *o = (struct operands){.a = a->a,
                         .b = a->b,
                         .d = a->d,
                         .m = a->m,
                         .n = columns_of_d(a),
                         .k = a->k,
                         .groups = a->groups,
                         .lda = a->lda,
                         .ldb = a->ldb,
                         .ldd = a->ldd,
                         .batch_stride_b = a->batch_stride_b,
                         .a_type = a->a_type,
                         .d_type = a->a_type,
                         .a_bytes = dtype_bytes(a->a_type),
                         .d_bytes = dtype_bytes(a->a_type),
                         .trans_b = a->trans_b,
                         .ragged = LIBGEMM_RAGGED_M,
                         .reads_ab = reads_ab(a)};
  TRY(check_strides(o));
  if (o->reads_ab && !a->trans_b) TRY(check_ld("ldb", a->ldb, a->n, "n"));
  drop_unused_strides(o); /* an index may name one row of many, and a gate has two columns of B for one of D */
  return LIBGEMM_OK;
}

static void set_memory(const libgemm_moe_mm_args *a, const struct operands *o, struct problem *p) {
  p->met = (is_aligned(o) ? GUARD_ALIGN16 : 0) | tma_guards(o) | (a->gate ? GUARD_GATED : 0) |
           (a->row_weights || a->to_rows ? 0 : GUARD_IN_ORDER) | (a->activation == LIBGEMM_SILU ? GUARD_SWISH : 0);
  if (a->variant) p->met |= GUARD_COUNTED;                     /* by its name a row runs without a counter too */
  bool in_turn = a->gate == LIBGEMM_GATE_PAIRS && !a->trans_b; /* TMA takes no second element of each */
  p->met |= in_turn ? GUARD_PAIRED : GUARD_HALVED;
}

static libgemm_status check_pointers(const libgemm_moe_mm_args *a, const struct operands *o,
                                     const struct device *device) {
  TRY(check_operands(o, a->bias, device));
  TRY(check_array("offs", a->offs, sizeof *a->offs, device));
  if (a->rows) TRY(check_array("rows", a->rows, sizeof *a->rows, device));
  if (a->to_rows) TRY(check_array("to_rows", a->to_rows, sizeof *a->to_rows, device));
  if (a->row_weights) TRY(check_array("row_weights", a->row_weights, sizeof *a->row_weights, device));
  return LIBGEMM_OK;
}

static void fill_call(const libgemm_moe_mm_args *a, const struct operands *o, struct call *call) {
  place_operands(o, call);
  call->bias_ptr = (CUdeviceptr)a->bias;
  call->batch_stride_bias = a->batch_stride_bias;
  call->offs_ptr = (CUdeviceptr)a->offs;
  call->rows_ptr = (CUdeviceptr)a->rows, call->to_rows_ptr = (CUdeviceptr)a->to_rows;
  call->weights_ptr = (CUdeviceptr)a->row_weights;
  call->stored = (int32_t)a->a_count, call->d_stored = (int32_t)a->d_count;
  call->alpha = a->alpha;
  call->activation = a->activation;
  place_gate(a->gate, a->gate_alpha, a->gate_limit, call);
}

static libgemm_status make_plan(const struct problem *problem, const struct device *device, struct plan *plan) {
  struct choice chosen;
  TRY(choose(problem, device->gpu.target, &chosen));
  TRY(load_row(chosen.row, device));
  int64_t blocks = (int64_t)device->gpu.multiprocessors * resident_blocks(chosen.row, device);
  *plan = (struct plan){.row = chosen.row, .splits = 1, .blocks = blocks};
  return LIBGEMM_OK;
}

static libgemm_status run(const libgemm_moe_mm_args *a, const struct operands *o, struct problem *p, int32_t *tickets,
                          const struct device *device) {
  struct plan made;
  const struct plan *plan;
  struct call call;
  TRY(check_pointers(a, o, device));
  TRY(plan_for(p, device, make_plan, &made, &plan));
  fill_call(a, o, &call);
  call.tickets_ptr = (CUdeviceptr)tickets;
  call.function = function_of(plan, device);
  TRY(find_maps(plan, device, &call));
  /* Each group adds at most a part of a tile. */
  int64_t tiles = (a->m / plan->row->block_m + a->groups) * ceil_div(a->n, plan->row->block_n);
  return plan->row->launch(plan->row, device, &call, least(tiles, plan->blocks), a->stream);
}

libgemm_status multiply_experts(const libgemm_moe_mm_args *args, int32_t *tickets) {
  libgemm_moe_mm_args a;
  struct operands operands;
  struct problem problem;
  const struct device *device;
  TRY(check_args(args, &a, &operands, &problem));
  if (is_empty(&a)) return LIBGEMM_OK;
  set_memory(&a, &operands, &problem);
  if (tickets) problem.met |= GUARD_COUNTED;
  RETURN_ON_OWNER("d", a.d, device, run(&a, &operands, &problem, tickets, device));
}

libgemm_status libgemm_moe_mm(const libgemm_moe_mm_args *args) { return multiply_experts(args, NULL); }

libgemm_status libgemm_moe_mm_explain(const libgemm_moe_mm_args *args, int32_t target, libgemm_choice *choice) {
  libgemm_moe_mm_args a;
  struct operands operands;
  struct problem problem;
  struct gpu gpu;
  TRY(check_args(args, &a, &operands, &problem));
  TRY(explain_gpu(target, &gpu));
  if (is_empty(&a)) return explain_on(NULL, &gpu, choice);
  set_memory(&a, &operands, &problem);
  return explain_on(&problem, &gpu, choice);
}
