// layers.c: a layer of experts, its parts, and casts: arguments from input bytes, and checks of what was launched.
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define CALL(op) \
  static libgemm_status op##_call(const void *args) { return libgemm_##op(args); }
#define WORKSPACE_OF(op)                                                    \
  static libgemm_status op##_workspace(const void *args, uint64_t *bytes) { \
    return libgemm_##op##_workspace(args, bytes);                           \
  }
CALL(moe_mm)
CALL(moe_route)
WORKSPACE_OF(moe_route)
CALL(moe_sum)
CALL(moe_gate)
CALL(moe_gate_grad)
CALL(moe_cast)
CALL(moe)
WORKSPACE_OF(moe)
CALL(cast)
WORKSPACE_OF(cast)

static void *place(int gpu, int number) { return (void *)(uintptr_t)place_of(gpu, number); }

// ---- Calls that the header promises to serve ----

static void fill_gate(struct bytes *in, int32_t *activation, int32_t *gate, float *limit) {
  *gate = (int32_t)pick(in, 3);
  *activation = (int32_t)pick(in, 4);
  if (*gate && *activation == LIBGEMM_SILU && rarely(in, 3)) *limit = 7.0f;
}

static void fill_moe_mm(struct bytes *in, void *args, int gpu) {
  libgemm_moe_mm_args *a = args;
  libgemm_moe_mm_args_init(a, sizeof *a);
  a->m = some_size(in), a->n = some_size(in), a->k = some_size(in), a->groups = 1 + pick(in, 40);
  a->a_type = LIBGEMM_BF16, a->trans_b = (int32_t)pick(in, 2);
  fill_gate(in, &a->activation, &a->gate, &a->gate_limit);
  if (a->gate) a->n = (a->n + 1) / 2 * 2;
  a->a = place(gpu, 0), a->b = place(gpu, 1), a->d = place(gpu, 3), a->offs = place(gpu, 5);
  if (pick(in, 2)) a->rows = place(gpu, 6), a->a_count = some_size(in);
  if (pick(in, 2)) a->to_rows = place(gpu, 7), a->d_count = some_size(in);
  if (pick(in, 2)) a->row_weights = place(gpu, 4);
  if (rarely(in, 4)) a->bias = place(gpu, 2), a->batch_stride_bias = a->n;
  a->lda = some_ld(in, a->k), a->ldd = some_ld(in, a->n);
  a->ldb = some_ld(in, a->trans_b ? a->k : a->n);
  a->batch_stride_b = a->ldb * (a->trans_b ? a->n : a->k);
}

static void fill_moe_route(struct bytes *in, void *args, int gpu) {
  libgemm_moe_route_args *a = args;
  libgemm_moe_route_args_init(a, sizeof *a);
  a->tokens = some_size(in), a->top_k = 1 + pick(in, 16), a->groups = 1 + 16 * (int64_t)byte(in);
  a->ids = place(gpu, 0), a->rows = place(gpu, 1), a->places = place(gpu, 2), a->offs = place(gpu, 3);
  a->ids_wide = (int32_t)pick(in, 2);
}

static void fill_moe_sum(struct bytes *in, void *args, int gpu) {
  libgemm_moe_sum_args *a = args;
  libgemm_moe_sum_args_init(a, sizeof *a);
  a->tokens = some_size(in), a->n = some_size(in), a->top_k = 1 + pick(in, 16), a->a_count = some_size(in);
  a->a = place(gpu, 0), a->d = place(gpu, 3), a->places = place(gpu, 5);
  if (pick(in, 2)) a->weights = place(gpu, 4), a->weights_type = LIBGEMM_F16 + (int32_t)pick(in, 3);
  a->lda = some_ld(in, a->n), a->ldd = some_ld(in, a->n);
  a->a_type = pick(in, 2) ? LIBGEMM_F32 : LIBGEMM_BF16;
}

static void fill_moe_gate(struct bytes *in, void *args, int gpu) {
  libgemm_moe_gate_args *a = args;
  libgemm_moe_gate_args_init(a, sizeof *a);
  a->m = some_size(in), a->n = some_size(in), a->a_type = LIBGEMM_BF16;
  fill_gate(in, &a->activation, &a->gate, &a->gate_limit);
  a->z = place(gpu, 0), a->h = place(gpu, 3);
  a->ldz = some_ld(in, a->gate ? 2 * a->n : a->n), a->ldh = some_ld(in, a->n);
}

static void fill_moe_gate_grad(struct bytes *in, void *args, int gpu) {
  libgemm_moe_gate_grad_args *a = args;
  libgemm_moe_gate_grad_args_init(a, sizeof *a);
  a->tokens = some_size(in), a->top_k = 1 + pick(in, 16), a->m = some_size(in), a->n = some_size(in);
  a->a_type = LIBGEMM_BF16;
  fill_gate(in, &a->activation, &a->gate, &a->gate_limit);
  a->z = place(gpu, 0), a->dh = place(gpu, 1), a->dz = place(gpu, 3), a->places = place(gpu, 5);
  if (pick(in, 2)) a->h = place(gpu, 4);
  if (pick(in, 2)) a->sums = place(gpu, 6);
  if (pick(in, 2)) a->weights = place(gpu, 7), a->weights_type = LIBGEMM_F16 + (int32_t)pick(in, 3);
  int64_t columns = a->gate ? 2 * a->n : a->n;
  a->ldz = some_ld(in, columns), a->lddz = some_ld(in, columns);
  a->lddh = some_ld(in, a->n), a->ldh = some_ld(in, a->n);
}

static void fill_moe_cast(struct bytes *in, void *args, int gpu) {
  libgemm_moe_cast_args *a = args;
  libgemm_moe_cast_args_init(a, sizeof *a);
  a->m = some_size(in), a->n = some_size(in), a->a_type = LIBGEMM_BF16;
  fill_gate(in, &a->activation, &a->gate, &a->gate_limit);
  a->a = place(gpu, 0), a->d = place(gpu, 3), a->scale = place(gpu, 4);
  if (pick(in, 2)) a->rows = place(gpu, 6), a->a_count = some_size(in);
  a->lda = some_ld(in, a->gate ? 2 * a->n : a->n), a->ldd = some_ld(in, a->n);
  a->scale_stride_m = 1, a->scale_stride_n = a->m;
}

static void fill_moe(struct bytes *in, void *args, int gpu) {
  libgemm_moe_args *a = args;
  libgemm_moe_args_init(a, sizeof *a);
  a->tokens = 1 + byte(in), a->k = 8 * (1 + (int64_t)pick(in, 32)), a->inner = 8 * (1 + (int64_t)pick(in, 16));
  a->n = 1 + byte(in), a->groups = 1 + pick(in, 64), a->top_k = 1 + pick(in, 8);
  a->a_type = LIBGEMM_BF16, a->ids_wide = (int32_t)pick(in, 2);
  a->trans_b1 = (int32_t)pick(in, 2), a->trans_b2 = (int32_t)pick(in, 2);
  fill_gate(in, &a->activation, &a->gate, &a->gate_limit);
  a->x = place(gpu, 0), a->b1 = place(gpu, 1), a->b2 = place(gpu, 2), a->d = place(gpu, 3), a->ids = place(gpu, 5);
  if (pick(in, 2)) a->weights = place(gpu, 4), a->weights_type = LIBGEMM_F16 + (int32_t)pick(in, 3);
  if (rarely(in, 4)) a->bias1 = place(gpu, 6), a->batch_stride_bias1 = 2 * a->inner;
  if (rarely(in, 4)) a->bias2 = place(gpu, 7), a->batch_stride_bias2 = a->n;
  if (rarely(in, 3)) { /* in 8 bits */
    a->k = (a->k + 127) / 128 * 128, a->inner = (a->inner + 127) / 128 * 128, a->n = (a->n + 15) / 16 * 16;
    a->b_type = LIBGEMM_E4M3, a->scaling = LIBGEMM_SCALING_1X128_128X128;
    a->b1_scale = place(gpu, 14), a->b2_scale = place(gpu, 15);
    a->b1_scale_stride_n = a->b2_scale_stride_n = 4, a->b1_scale_stride_k = a->b2_scale_stride_k = 1;
    now.legal = false; /* the header says more of these than is drawn here */
  }
  int64_t columns = a->gate ? 2 * a->inner : a->inner;
  a->ldx = a->k, a->ldd = some_ld(in, a->n);
  a->ldb1 = a->trans_b1 ? a->k : columns, a->ldb2 = a->trans_b2 ? a->inner : a->n;
  a->batch_stride_b1 = columns * a->k, a->batch_stride_b2 = a->inner * a->n;
}

static void fill_cast(struct bytes *in, void *args, int gpu) {
  libgemm_cast_args *a = args;
  libgemm_cast_args_init(a, sizeof *a);
  a->m = some_size(in), a->n = some_size(in), a->a_type = pick(in, 2) ? LIBGEMM_F32 : LIBGEMM_BF16;
  a->granularity = LIBGEMM_PER_TENSOR + (int32_t)pick(in, 4);
  bool turned = pick(in, 2), alone = turned && rarely(in, 4), own = a->granularity % 4 > 1; /* ROW, 1X128 */
  if (rarely(in, 3)) a->d_type = LIBGEMM_E5M2;
  a->a = place(gpu, 0), a->lda = some_ld(in, a->n);
  if (!alone) a->d = place(gpu, 3), a->ldd = some_ld(in, a->n);
  if (turned) a->d_t = place(gpu, 1), a->ldd_t = some_ld(in, a->m);
  if (!alone || !own) a->scale = place(gpu, 4);
  if (turned && own) a->scale_t = place(gpu, 5);
  a->scale_stride_m = 1, a->scale_stride_n = a->m, a->scale_t_stride_n = 1, a->scale_t_stride_m = a->n;
  if (a->granularity == LIBGEMM_PER_TENSOR) a->scale_given = rarely(in, 3);
  a->scale_power_of_two = !a->scale_given && rarely(in, 3);
  if (!rarely(in, 4)) return;
  a->batch = 1 + pick(in, 20);
  a->batch_stride_a = a->lda * a->m, a->batch_stride_d = a->ldd * a->m, a->batch_stride_d_t = a->ldd_t * a->n;
  a->batch_stride_scale = a->m * (a->n / 128 + 1), a->batch_stride_scale_t = a->n * (a->m / 128 + 1);
}

// ---- The eight, and where their fields are ----

struct layer {
  struct operation o;
  void (*fill)(struct bytes *in, void *args, int gpu);
  uint16_t bytes, stream, outputs[2];  /* where one is NULL, the other says which GPU it is */
  uint16_t workspace, workspace_bytes; /* 0: it takes none */
};

union arguments {
  uint64_t size;
  libgemm_moe_mm_args moe_mm;
  libgemm_moe_args moe;
  libgemm_cast_args cast;
  libgemm_moe_gate_grad_args moe_gate_grad;
};

#define LAYER(op)                                                                                               \
  .fill = fill_##op, .bytes = sizeof(libgemm_##op##_args), .stream = AT(stream), .o.call_name = "libgemm_" #op, \
  .o.call = op##_call
#define ASKS(op)                                                                                                       \
  .workspace = AT(workspace), .workspace_bytes = AT(workspace_bytes), .o.workspace_name = "libgemm_" #op "_workspace", \
  .o.workspace = op##_workspace

static const struct layer layers[] = {
#define AT(field) offsetof(libgemm_moe_mm_args, field)
    {LAYER(moe_mm), .outputs = {AT(d), AT(d)},
     .o.numbers = {AT(m), AT(n), AT(k), AT(groups), AT(a_count), AT(d_count), AT(lda), AT(ldb), AT(ldd),
                   AT(batch_stride_b), AT(batch_stride_bias)},
     .o.words = {AT(a_type), AT(trans_b), AT(activation), AT(gate)},
     .o.pointers = {AT(a), AT(b), AT(d), AT(bias), AT(offs), AT(rows), AT(to_rows), AT(row_weights)},
     .o.floats = {AT(alpha), AT(gate_alpha), AT(gate_limit)}},
#undef AT
#define AT(field) offsetof(libgemm_moe_route_args, field)
    {LAYER(moe_route), ASKS(moe_route), .outputs = {AT(offs), AT(offs)},
     .o.numbers = {AT(tokens), AT(top_k), AT(groups), AT(workspace_bytes)}, .o.words = {AT(ids_wide), AT(reserved)},
     .o.pointers = {AT(ids), AT(rows), AT(places), AT(offs), AT(workspace)}},
#undef AT
#define AT(field) offsetof(libgemm_moe_sum_args, field)
    {LAYER(moe_sum), .outputs = {AT(d), AT(d)},
     .o.numbers = {AT(tokens), AT(n), AT(top_k), AT(a_count), AT(lda), AT(ldd)},
     .o.words = {AT(a_type), AT(weights_type)}, .o.pointers = {AT(a), AT(d), AT(weights), AT(places)}},
#undef AT
#define AT(field) offsetof(libgemm_moe_gate_args, field)
    {LAYER(moe_gate), .outputs = {AT(h), AT(h)}, .o.numbers = {AT(m), AT(n), AT(ldz), AT(ldh)},
     .o.words = {AT(a_type), AT(activation), AT(gate), AT(reserved)}, .o.pointers = {AT(z), AT(h)},
     .o.floats = {AT(gate_alpha), AT(gate_limit)}},
#undef AT
#define AT(field) offsetof(libgemm_moe_gate_grad_args, field)
    {LAYER(moe_gate_grad), .outputs = {AT(dz), AT(sums)},
     .o.numbers = {AT(tokens), AT(top_k), AT(m), AT(n), AT(ldz), AT(lddh), AT(lddz), AT(ldh)},
     .o.words = {AT(a_type), AT(weights_type), AT(activation), AT(gate)},
     .o.pointers = {AT(z), AT(dh), AT(dz), AT(h), AT(sums), AT(places), AT(weights)},
     .o.floats = {AT(gate_alpha), AT(gate_limit)}},
#undef AT
#define AT(field) offsetof(libgemm_moe_cast_args, field)
    {LAYER(moe_cast), .outputs = {AT(d), AT(d)},
     .o.numbers = {AT(m), AT(n), AT(a_count), AT(lda), AT(ldd), AT(scale_stride_m), AT(scale_stride_n)},
     .o.words = {AT(a_type), AT(d_type), AT(activation), AT(gate)}, .o.pointers = {AT(a), AT(d), AT(scale), AT(rows)},
     .o.floats = {AT(gate_alpha), AT(gate_limit)}},
#undef AT
#define AT(field) offsetof(libgemm_moe_args, field)
    {LAYER(moe), ASKS(moe), .outputs = {AT(d), AT(d)},
     .o.numbers = {AT(tokens), AT(k), AT(inner), AT(n), AT(groups), AT(top_k), AT(ldx), AT(ldb1), AT(ldb2), AT(ldd),
                   AT(batch_stride_b1), AT(batch_stride_b2), AT(batch_stride_bias1), AT(batch_stride_bias2),
                   AT(workspace_bytes), AT(batch_stride_b1_scale), AT(b1_scale_stride_n), AT(b2_scale_stride_k)},
     .o.words = {AT(a_type), AT(weights_type), AT(ids_wide), AT(trans_b1), AT(trans_b2), AT(activation), AT(gate),
                 AT(reserved), AT(b_type), AT(scaling)},
     .o.pointers = {AT(x), AT(b1), AT(b2), AT(d), AT(bias1), AT(bias2), AT(ids), AT(weights), AT(workspace),
                    AT(b1_scale), AT(b2_scale)},
     .o.floats = {AT(gate_alpha), AT(gate_limit)}},
#undef AT
#define AT(field) offsetof(libgemm_cast_args, field)
    {LAYER(cast), ASKS(cast), .outputs = {AT(d), AT(d_t)},
     .o.numbers = {AT(m), AT(n), AT(batch), AT(lda), AT(ldd), AT(ldd_t), AT(batch_stride_a), AT(batch_stride_d),
                   AT(batch_stride_d_t), AT(batch_stride_scale), AT(batch_stride_scale_t), AT(scale_stride_m),
                   AT(scale_stride_n), AT(scale_t_stride_n), AT(scale_t_stride_m), AT(workspace_bytes)},
     .o.words = {AT(a_type), AT(d_type), AT(granularity), AT(scale_given), AT(scale_power_of_two), AT(reserved)},
     .o.pointers = {AT(a), AT(d), AT(d_t), AT(scale), AT(scale_t), AT(workspace)}},
#undef AT
};
enum { LAYERS = sizeof layers / sizeof *layers };

// ---- What was launched ----

static uint64_t pointer_at(const void *args, uint16_t offset) {
  uint64_t pointer;
  memcpy(&pointer, (const char *)args + offset, sizeof pointer);
  return pointer;
}

static bool is_callers(const struct layer *l, const void *args, uint64_t pointer) {
  for (int i = 0; l->o.pointers[i]; i++)
    if (pointer_at(args, l->o.pointers[i]) == pointer) return true;
  return false;
}

static uint64_t matrix_bytes(int64_t rows, int64_t cols, int64_t ld, int bytes) {
  return rows && cols ? (uint64_t)((rows - 1) * ld + cols) * (uint64_t)bytes : 0;
}

// How much of what a parameter points to the kernel may touch, where that is in the workspace; 1 where it is not known
// here.
static uint64_t touched(const struct launch *l, const char *name) {
  if (strcmp(name, "tickets_ptr") == 0) return l->row->op == OP_MOE_ROUTE ? 8 : 4;
  bool reads = strcmp(name, "a_ptr") == 0, writes = strcmp(name, "d_ptr") == 0 || strcmp(name, "q_ptr") == 0;
  int width = width_of(l->row->a_type), paired = l->row->guard & GUARD_GATED ? 2 : 1;
  if (reads && has(l, "K") && value(l, "K") == 0) return 0;
  switch (l->row->op) {
    case OP_MOE_ROUTE:
      if (strcmp(name, "offs_ptr") == 0) return (uint64_t)value(l, "groups") * 4;
      return strcmp(name, "counts_ptr") == 0 ? 1 : (uint64_t)value(l, "entries") * 4;
    case OP_MOE_SUM:
      if (reads) return matrix_bytes(value(l, "stored"), value(l, "N"), value(l, "lda"), width);
      return (uint64_t)(value(l, "M") * value(l, "top_k")) * 4;
    case OP_MOE_SPREAD:
      if (strcmp(name, "offs_ptr") == 0) return (uint64_t)value(l, "groups") * 4;
      /* fall through */
    case OP_MOE_CAST: {
      int64_t rows = value(l, l->row->op == OP_MOE_CAST ? "M" : "entries"), n = value(l, "N");
      if (reads) return has(l, "stored") ? matrix_bytes(value(l, "stored"), paired * n, value(l, "lda"), width) : 1;
      if (writes) return matrix_bytes(rows, n, value(l, "ldd"), 1);
      if (strcmp(name, "scale_ptr") == 0) return matrix_bytes(tiles_along(n, 128), rows, value(l, "scale_stride_n"), 4);
      return (uint64_t)rows * 4;
    }
    case OP_MOE_MM: {
      int64_t rows = value(l, has(l, "M") ? "M" : "entries"), n = value(l, "N"); /* columns of D */
      if (writes) return matrix_bytes(rows, n, value(l, "ldd"), width);
      if (strcmp(name, "scale_ptr") == 0) return matrix_bytes(tiles_along(n, 128), rows, value(l, "scale_stride_n"), 4);
      if (strcmp(name, "offs_ptr") == 0) return (uint64_t)value(l, "groups") * 4;
      return strcmp(name, "rows_ptr") == 0 || strcmp(name, "places_ptr") == 0 ? (uint64_t)rows * 4 : 1;
    }
    default: return strcmp(name, "amax_ptr") == 0 && has(l, "entries") ? (uint64_t)value(l, "entries") * 4 : 1;
  }
}

// Of what such a call needs; one that needs none may be given anything for it, another array too.
static struct spans workspace_of(const struct layer *layer, const void *args) {
  uint64_t needed = 0;
  if (!layer->workspace || layer->o.workspace(args, &needed) || !needed) return (struct spans){0};
  return spans_of((const void *)(uintptr_t)pointer_at(args, layer->workspace),
                  pointer_at(args, layer->workspace_bytes));
}

// That all memory which a kernel is told of is the caller's or a part of the workspace, each part for itself.
static void check_memory(const struct launch *l, const struct layer *layer, const void *args, int gpu) {
  struct spans spans = workspace_of(layer, args);
  REQUIRE(l->device == gpu, "on GPU %d, not %d", l->device, gpu);
  for (int i = 0; i < l->signature->count; i++) {
    uint64_t at = l->values[i];
    if (owner_of(at) < 0 || is_callers(layer, args, at)) {
      if (at != spans.begin || at == 0) continue;
    }
    REQUIRE(owner_of(at) == gpu, "%s is of GPU %d", l->signature->names[i], owner_of(at));
    use_span(&spans, l->signature->names[i], at, touched(l, l->signature->names[i]));
  }
}

// Memory of as many bytes as the call asks for, which is legal where the world has so many; or of one less.
static void give_workspace(const struct layer *layer, void *args, int gpu, bool less) {
  void *workspace = NULL;
  uint64_t bytes = 0;
  layer->o.workspace(args, &bytes);
  now.legal &= bytes <= WORKSPACE;
  if (bytes && bytes <= WORKSPACE) workspace = last_bytes(gpu, bytes);
  bytes -= less && bytes;
  memcpy((char *)args + layer->workspace, &workspace, sizeof workspace);
  memcpy((char *)args + layer->workspace_bytes, &bytes, sizeof bytes);
}

static void check_launches(const struct layer *layer, union arguments *args, int gpu) {
  uint64_t bytes = 0;
  args->size = layer->bytes; /* what a caller of another size has beyond it is 0 here */
  for (int i = 0; i < seen.launches; i++) {
    check_limits(&seen.launch[i]);
    check_memory(&seen.launch[i], layer, args, gpu);
  }
  if (!layer->workspace || !seen.launches) return;
  REQUIRE(layer->o.workspace(args, &bytes) == LIBGEMM_OK && pointer_at(args, layer->workspace_bytes) >= bytes,
          "runs with less than the %llu bytes that it asks for", (unsigned long long)bytes);
}

void try_layers(struct bytes *in) {
  const struct layer *layer = &layers[pick(in, LAYERS)];
  union arguments a = {0};
  const char *variant = NULL;
  int gpu = rarely(in, 6) ? 1 : 0;
  unsigned way = pick(in, 16);
  now.legal = way < 8;
  now.chained = layer->o.call == moe_call;
  layer->fill(in, &a, gpu);
  if (layer->workspace) give_workspace(layer, &a, gpu, way >= 8 && rarely(in, 4));
  libgemm_stream stream = some_stream(in, gpu, &now.bogus);
  memcpy((char *)&a + layer->stream, &stream, sizeof stream);
  if (way >= 8 && way < 15)
    for (unsigned changes = 1 + pick(in, 3); changes; changes--) spoil(in, &layer->o, &a, gpu);
  if (way == 15) make_random(in, &a, layer->bytes, &variant, &stream), now.bogus = true; /* its stream is any number */
  if (layer->o.call == moe_mm_call) {
    a.moe_mm.variant = rarely(in, 8) ? some_name(in) : NULL;
    now.legal &= a.moe_mm.variant == NULL;
  }
  uint64_t output = pointer_at(&a, layer->outputs[0]);
  int owner = owner_of(output ? output : pointer_at(&a, layer->outputs[1]));
  now.bogus |= stream && owner != gpu;
  void *given = as_caller(in, &a, layer->bytes);
  for (int i = 0; i < 2 && call_works(&layer->o, given, NULL); i++) check_launches(layer, &a, owner);
  free(given);
}
