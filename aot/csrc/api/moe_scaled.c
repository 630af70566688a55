/* moe_scaled.c: a layer's products of 8-bit weights: rows are cast to where they are needed, and again behind the gate.
 */
#include "api/grouped_mm.h"
#include "api/moe.h"
#include "internal.h"

enum { BLOCK = 128, ALIGN = 16 };

libgemm_status check_scaled_layer(const libgemm_moe_args *a) {
  if (a->b_type != 0 && a->b_type != a->a_type && a->b_type != LIBGEMM_E4M3)
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "b_type = %d: allowed are 0, for a_type, a_type itself (%d) and LIBGEMM_E4M3 (4)", a->b_type,
                a->a_type);
  int32_t wanted = a->b_type == LIBGEMM_E4M3 ? LIBGEMM_SCALING_1X128_128X128 : LIBGEMM_SCALING_NONE;
  if (a->scaling != wanted)
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "scaling = %d with b_type = %d: LIBGEMM_SCALING_1X128_128X128 (3) goes with LIBGEMM_E4M3 (4), and "
                "LIBGEMM_SCALING_NONE (0) with others",
                a->scaling, a->b_type);
  if (!a->scaling && (a->b1_scale || a->b2_scale))
    return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %p with scaling = 0: NULL is needed",
                a->b1_scale ? "b1_scale" : "b2_scale", a->b1_scale ? a->b1_scale : a->b2_scale);
  int64_t width = a->k + 2 * a->inner + a->n + 1; /* what is between the parts has less than 4 bytes for each of it */
  if (!a->scaling || a->tokens * a->top_k <= (INT64_C(1) << 61) / width) return LIBGEMM_OK;
  return fail(LIBGEMM_UNSUPPORTED,
              "tokens = %lld, top_k = %lld, k = %lld, inner = %lld, n = %lld: no memory holds that",
              (long long)a->tokens, (long long)a->top_k, (long long)a->k, (long long)a->inner, (long long)a->n);
}

/* Rows of so many bytes of 8 bits that each begins where the tensor cores' loads can. */
static int64_t row_bytes(int64_t length) { return (length + ALIGN - 1) / ALIGN * ALIGN; }
static int64_t columns_of_z(const libgemm_moe_args *a) { return a->gate ? 2 * a->inner : a->inner; }

void place_scaled(const libgemm_moe_args *a, struct layout *l) {
  uint64_t entries = (uint64_t)(a->tokens * a->top_k), bytes = (uint64_t)dtype_bytes(a->a_type);
  uint64_t row = (uint64_t)row_bytes(a->k), scales = (uint64_t)ceil_div(a->k, BLOCK) * sizeof(float);
  l->x = place(&l->end, entries * row);
  l->x_scale = place(&l->end, entries * scales);
  l->z = place(&l->end, entries * (uint64_t)columns_of_z(a) * bytes);
  l->hidden = place(&l->end, entries * (uint64_t)row_bytes(a->inner));
  l->hidden_scale = place(&l->end, entries * (uint64_t)ceil_div(a->inner, BLOCK) * sizeof(float));
}

/* From a row's scale to the next one's, and from that of a row's block of `length` to the next. A large product copies
 * those of a column of blocks, so these lie one behind the other; of few choices a row's do, which are written and read
 * at once. */
static void scale_strides(const libgemm_moe_args *a, int64_t length, int64_t *stride_m, int64_t *stride_k) {
  int64_t entries = a->tokens * a->top_k;
  bool few = spreads_by_itself(entries);
  *stride_m = few ? ceil_div(length, BLOCK) : 1, *stride_k = few ? 1 : entries;
}

/* A product of `entries` rows of 8 bits, `k` long. */
static libgemm_grouped_mm_args product_of(const libgemm_moe_args *a, const struct layout *l, int64_t n, int64_t k) {
  libgemm_grouped_mm_args made;
  libgemm_grouped_mm_args_init(&made, sizeof made);
  made.m = a->tokens * a->top_k, made.n = n, made.k = k, made.groups = a->groups;
  made.offs = (char *)a->workspace + l->offs;
  made.lda = row_bytes(k), made.ldd = n;
  made.a_type = LIBGEMM_E4M3, made.d_type = a->a_type, made.scaling = a->scaling, made.stream = a->stream;
  scale_strides(a, k, &made.a_scale_stride_m, &made.a_scale_stride_k);
  return made;
}

/* Z's rows gated and cast, to H. */
static libgemm_moe_cast_args gate_of(const libgemm_moe_args *a, const struct layout *l) {
  char *at = a->workspace;
  libgemm_moe_cast_args made;
  libgemm_moe_cast_args_init(&made, sizeof made);
  made.m = a->tokens * a->top_k, made.n = a->inner, made.ldd = row_bytes(a->inner);
  made.a = at + l->z, made.lda = columns_of_z(a);
  made.d = at + l->hidden, made.scale = at + l->hidden_scale;
  scale_strides(a, a->inner, &made.scale_stride_m, &made.scale_stride_n);
  made.activation = a->activation, made.gate = a->gate;
  made.gate_alpha = a->gate_alpha, made.gate_limit = a->gate_limit;
  made.a_type = a->a_type, made.stream = a->stream;
  return made;
}

libgemm_status queue_scaled(const libgemm_moe_args *a, const libgemm_moe_route_args *route, const struct layout *l) {
  char *at = a->workspace;
  struct spread spread = {.route = route,
                          .tickets = tickets_of(a, l),
                          .a = a->x,
                          .d = at + l->x,
                          .scale = at + l->x_scale,
                          .n = a->k,
                          .lda = a->ldx,
                          .ldd = row_bytes(a->k),
                          .a_type = a->a_type};
  scale_strides(a, a->k, &spread.scale_stride_m, &spread.scale_stride_n);
  const libgemm_moe_cast_args gate = gate_of(a, l);
  libgemm_grouped_mm_args first = product_of(a, l, columns_of_z(a), a->k), second = product_of(a, l, a->n, a->inner);
  first.a = spread.d, first.a_scale = spread.scale, first.d = at + l->z;
  first.b = a->b1, first.ldb = a->ldb1, first.batch_stride_b = a->batch_stride_b1, first.trans_b = a->trans_b1;
  first.b_scale = a->b1_scale, first.batch_stride_b_scale = a->batch_stride_b1_scale;
  first.b_scale_stride_n = a->b1_scale_stride_n, first.b_scale_stride_k = a->b1_scale_stride_k;
  first.bias = a->bias1, first.batch_stride_bias = a->batch_stride_bias1;
  second.a = gate.d, second.a_scale = gate.scale, second.d = at + l->made;
  second.b = a->b2, second.ldb = a->ldb2, second.batch_stride_b = a->batch_stride_b2, second.trans_b = a->trans_b2;
  second.b_scale = a->b2_scale, second.batch_stride_b_scale = a->batch_stride_b2_scale;
  second.b_scale_stride_n = a->b2_scale_stride_n, second.b_scale_stride_k = a->b2_scale_stride_k;
  second.bias = a->bias2, second.batch_stride_bias = a->batch_stride_bias2;

  struct layer_context next;
  TRY(spread_and_multiply(&spread, &first, &gate, &next));
  return multiply_groups(&second, next);
}
