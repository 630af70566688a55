/* problem.c: whether the argument structs' common words state a problem at all: types, flags and sizes. */
#include "select/problem.h"

#include "internal.h"

const char *const op_names[OP_COUNT] = {
    [OP_GEMM] = "gemm",
    [OP_GROUPED_GEMM] = "grouped_gemm",
    [OP_GROUPED_MM] = "grouped_mm",
    [OP_ALIGN] = "align",
    [OP_GEMM_SUM] = "gemm_sum",
    [OP_MOE_MM] = "moe_mm",
    [OP_MOE_ROUTE] = "moe_route",
    [OP_MOE_SUM] = "moe_sum",
    [OP_MOE_GATE] = "moe_gate",
    [OP_MOE_GATE_GRAD] = "moe_gate_grad",
    [OP_MOE_CAST] = "moe_cast",
    [OP_MOE_SPREAD] = "moe_spread",
    [OP_CAST_TENSOR] = "cast_tensor",
    [OP_CAST_ROWS] = "cast_rows",
    [OP_CAST_1X128] = "cast_1x128",
    [OP_CAST_128X128] = "cast_128x128",
    [OP_CAST_TRANSPOSE] = "cast_transpose",
    [OP_CAST_TRANSPOSE_ROWS] = "cast_transpose_rows",
    [OP_CAST_AMAX] = "cast_amax",
};

static bool is_8_bit(int32_t type) { return type == LIBGEMM_E4M3 || type == LIBGEMM_E5M2; }

libgemm_status state_two_types(struct problem *p, int32_t b_type) {
  int32_t a_type = p->a_type, b = b_type ? b_type : a_type;
  if (!is_dtype(a_type)) return LIBGEMM_OK; /* check_problem tells */
  if (!is_dtype(b))
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "b_type = %d: allowed are 0, for a_type, a_type itself (%d), and of LIBGEMM_E4M3 (4) and LIBGEMM_E5M2 "
                "(5) the other one",
                b_type, a_type);
  if (!is_8_bit(a_type) || !is_8_bit(b))
    return fail(LIBGEMM_UNSUPPORTED,
                "b_type = %d (%s) with a_type %s: no variant multiplies two types but e4m3 by e5m2", b, dtype_name(b),
                dtype_name(a_type));
  if (a_type == LIBGEMM_E5M2 && b == LIBGEMM_E5M2)
    return fail(LIBGEMM_UNSUPPORTED,
                "a_type e5m2 with b_type e5m2: one of A and B must be LIBGEMM_E4M3 (4); b_type = 0 stands for a_type");
  p->a_type = LIBGEMM_E4M3;
  p->wants |= a_type == LIBGEMM_E5M2 ? WANT_E5M2_A : WANT_E5M2_B;
  return LIBGEMM_OK;
}

static libgemm_status check_e4m3(const struct problem *p) {
  bool dense = p->op == OP_GEMM;
  if (!is_output_type(p->d_type) && !(dense && p->d_type == LIBGEMM_E4M3))
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "d_type = %d with 8-bit operands: allowed are LIBGEMM_F16 (1), LIBGEMM_BF16 (2), LIBGEMM_F32 (3)%s",
                p->d_type, dense ? ", LIBGEMM_E4M3 (4)" : "");
  if (p->precision != LIBGEMM_EXACT && p->precision != LIBGEMM_FAST)
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "precision = %d with 8-bit operands: allowed are LIBGEMM_EXACT (0) and LIBGEMM_FAST (4)", p->precision);
  return LIBGEMM_OK;
}

HOT static libgemm_status check_types(const struct problem *p) {
  if (!is_dtype(p->a_type))
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "a_type = %d: allowed are LIBGEMM_F16 (1), LIBGEMM_BF16 (2), LIBGEMM_F32 (3), LIBGEMM_E4M3 (4), "
                "LIBGEMM_E5M2 (5)",
                p->a_type);
  if (p->a_type == LIBGEMM_E5M2)
    return fail(LIBGEMM_UNSUPPORTED, "a_type e5m2: no variant computes %s of it", op_names[p->op]);
  if (p->a_type == LIBGEMM_E4M3) return check_e4m3(p);
  if (p->d_type != p->a_type && p->d_type != LIBGEMM_F32)
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "d_type = %d (%s) with a_type %s: allowed are a_type's own and LIBGEMM_F32 (3)", p->d_type,
                dtype_name(p->d_type), dtype_name(p->a_type));
  if (p->a_type == LIBGEMM_F32 && (p->precision < LIBGEMM_TF32 || p->precision > LIBGEMM_IEEE))
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "precision = %d with float32 operands: say LIBGEMM_TF32 (1), LIBGEMM_TF32X3 (2) or LIBGEMM_IEEE (3); "
                "there is no default",
                p->precision);
  if (p->a_type != LIBGEMM_F32 && p->precision != LIBGEMM_EXACT)
    return fail(LIBGEMM_INVALID_ARGUMENT, "precision = %d with %s operands: allowed is LIBGEMM_EXACT (0)", p->precision,
                dtype_name(p->a_type));
  return LIBGEMM_OK;
}

libgemm_status out_of_range(const char *name, int64_t value, int64_t from, int64_t most) {
  return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %lld: allowed is %lld to %lld", name, (long long)value, (long long)from,
              (long long)most);
}

HOT static libgemm_status check_sizes(const struct problem *p) {
  const struct {
    const char *name;
    int64_t value;
  } sizes[] = {{"m", p->m}, {"n", p->n}, {"k", p->k}};
  const uint64_t most = LIBGEMM_MAX_SIZE;
  if ((uint64_t)p->m <= most && (uint64_t)p->n <= most && (uint64_t)p->k <= most) return LIBGEMM_OK;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    TRY(check_range(sizes[i].name, sizes[i].value, 0, LIBGEMM_MAX_SIZE));
  return LIBGEMM_OK;
}

HOT libgemm_status check_problem(const struct problem *p) {
  TRY(check_types(p));
  TRY(check_range("trans_a", p->trans_a, 0, 1));
  TRY(check_range("trans_b", p->trans_b, 0, 1));
  TRY(check_range("activation", p->activation, 0, ACTIVATION_COUNT - 1));
  return check_sizes(p);
}
