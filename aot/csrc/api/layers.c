/* layers.c: what the calls of a layer of experts check and say alike. */
#include <math.h>

#include "internal.h"

enum { MOST_CHOICES = 1024 };

libgemm_status check_layer_type(int32_t a_type) {
  if (a_type == LIBGEMM_F16 || a_type == LIBGEMM_BF16) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "a_type = %d: allowed are LIBGEMM_F16 (1) and LIBGEMM_BF16 (2)", a_type);
}

libgemm_status check_choices(int64_t tokens, int64_t top_k) {
  TRY(check_range("top_k", top_k, 1, MOST_CHOICES));
  TRY(check_range("tokens", tokens, 0, LIBGEMM_MAX_SIZE));
  if (tokens <= LIBGEMM_MAX_SIZE / top_k) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "tokens = %lld, top_k = %lld: their product is at most %d", (long long)tokens,
              (long long)top_k, LIBGEMM_MAX_SIZE);
}

libgemm_status check_weights(const void *weights, int32_t weights_type) {
  if (weights ? is_output_type(weights_type) : weights_type == 0) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT,
              "weights_type = %d with weights = %p: LIBGEMM_F16, _BF16 or _F32 is needed, 0 without", weights_type,
              weights);
}

libgemm_status check_gate(int32_t gate, int64_t n, int32_t activation, float gate_limit) {
  if (gate < LIBGEMM_GATE_NONE || gate > LIBGEMM_GATE_PAIRS)
    return fail(LIBGEMM_INVALID_ARGUMENT, "gate = %d: allowed is 0 to 2 (libgemm_gate)", gate);
  if (gate && n % 2)
    return fail(LIBGEMM_INVALID_ARGUMENT, "n = %lld with gate = %d: an even number is needed, half of it the gate's",
                (long long)n, gate);
  if (!(gate_limit >= 0.0f))
    return fail(LIBGEMM_INVALID_ARGUMENT, "gate_limit = %g: 0, for none, or more is needed", (double)gate_limit);
  if (gate_limit > 0.0f && (!gate || activation != LIBGEMM_SILU))
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "gate_limit = %g with gate = %d, activation = %d: a gate of LIBGEMM_SILU (3) "
                "is needed",
                (double)gate_limit, gate, activation);
  return LIBGEMM_OK;
}

void place_gate(int32_t gate, float gate_alpha, float gate_limit, struct call *call) {
  bool clamped = gate_limit > 0.0f;
  call->gate = gate;
  call->gate_alpha = clamped ? gate_alpha : 1.0f;
  call->gate_limit = clamped ? gate_limit : INFINITY;
  call->gate_shift = clamped ? 1.0f : 0.0f;
}

libgemm_status check_count(const char *name, int64_t count, const char *index_name, bool indexed, int64_t m) {
  TRY(check_range(name, count, 0, LIBGEMM_MAX_SIZE));
  if (!indexed && count && count != m)
    return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %lld with %s = NULL: m = %lld, or 0 for it, is needed", name,
                (long long)count, index_name, (long long)m);
  return LIBGEMM_OK;
}

libgemm_status row_of_tile(const struct problem *p, int block_m, int block_n, const struct device *device,
                           const struct row **row) {
  int first, end;
  bucket_of(p, device->gpu.target, &first, &end);
  for (int i = first; i < end; i++)
    if (rows[i].block_m == block_m && (!block_n || rows[i].block_n == block_n) && !refused(&rows[i], p))
      return *row = &rows[i], load_row(*row, device);
  return fail(LIBGEMM_UNSUPPORTED, "no variant computes %s on sm_%d", op_names[p->op], device->gpu.target->target);
}
