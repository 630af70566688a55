// dense.c: libgemm_gemm and its two companions: arguments from input bytes, and checks of what was launched.
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static bool reads_ab(const libgemm_gemm_args *a) { return a->k > 0 && a->alpha != 0.0f; }
static bool reads_c(const libgemm_gemm_args *a) { return a->beta != 0.0f; }

// ---- Arguments ----

static void place_matrices(struct bytes *in, libgemm_gemm_args *a) {
  a->lda = some_ld(in, a->trans_a ? a->m : a->k);
  a->ldb = some_ld(in, a->trans_b ? a->k : a->n);
  a->ldc = some_ld(in, a->n);
  a->ldd = some_ld(in, a->n);
  if (!rarely(in, 4)) return;
  a->batch = 1 + pick(in, 40);
  bool apart = pick(in, 2);
  a->batch_stride_a = pick(in, 4) ? a->lda * (a->trans_a ? a->k : a->m) + (apart ? 8 * pick(in, 4) : 0) : 0;
  a->batch_stride_b = pick(in, 4) ? a->ldb * (a->trans_b ? a->n : a->k) + (apart ? 8 * pick(in, 4) : 0) : 0;
  a->batch_stride_c = pick(in, 4) ? a->ldc * a->m : 0;
  a->batch_stride_d = a->ldd * a->m + (apart ? pick(in, 64) : 0);
  a->batch_stride_bias = pick(in, 2) ? a->n : 0;
}

static void give_workspace(struct bytes *in, libgemm_gemm_args *a, int gpu) {
  if (!pick(in, 3)) return;
  a->workspace = (void *)(uintptr_t)place_of(gpu, 8);
  a->workspace_bytes = pick(in, 2) ? WORKSPACE : (uint64_t)pick(in, 256) * (uint64_t)pick(in, 256) * 8;
  if (rarely(in, 4)) a->workspace_bytes = (uint64_t)some_limit(in);
}

// A call that the header promises to serve. Returns the GPU it is for.
static int legal_args(struct bytes *in, libgemm_gemm_args *a) {
  int gpu = rarely(in, 6) ? 1 : 0;
  libgemm_gemm_args_init(a, sizeof *a);
  pick_types(in, &a->a_type, &a->d_type, &a->precision);
  a->trans_a = (int32_t)pick(in, 2), a->trans_b = (int32_t)pick(in, 2);
  a->m = some_size(in), a->n = some_size(in), a->k = some_size(in);
  if (rarely(in, 12)) /* few tiles, and a K that is worth sharing */
    a->m = 1 + a->m % 1024, a->n = 8 + a->n % 1024 / 8 * 8, a->k = 8192 + a->k % 32768 / 8 * 8;
  place_matrices(in, a);
  a->a = (void *)(uintptr_t)place_of(gpu, 0);
  a->b = (void *)(uintptr_t)place_of(gpu, 1);
  a->d = (void *)(uintptr_t)place_of(gpu, 3);
  if (rarely(in, 3)) a->beta = some_float(in), a->c = pick(in, 2) ? (void *)(uintptr_t)place_of(gpu, 2) : a->d;
  if (a->c == a->d) a->ldc = a->ldd, a->batch_stride_c = a->batch_stride_d;
  if (rarely(in, 4)) a->bias = (void *)(uintptr_t)place_of(gpu, 4);
  if (rarely(in, 4)) a->activation = (int32_t)pick(in, 4);
  if (rarely(in, 8)) a->alpha = some_float(in);
  if (rarely(in, 8)) a->batch_invariant = 1;
  if (rarely(in, 8)) a->m = a->n = a->k = 0;
  give_workspace(in, a, gpu);
  if (rarely(in, 5)) NARROW(in, a, gpu, 6);
  return gpu;
}

// ---- What was launched ----

static struct operands described(const libgemm_gemm_args *a) { return OPERANDS_OF(a, a->batch, LIBGEMM_RAGGED_NONE); }

void check_copier(const struct launch *l, int32_t a_type, struct stored matrices[2], struct spans *spans,
                  bool turned[2]) {
  int64_t blocks = 0;
  static const char *const names[2][7] = {{"a_ptr", "lda", "a_rows", "a_cols", "a_transpose", "a_copy", "copy_lda"},
                                          {"b_ptr", "ldb", "b_rows", "b_cols", "b_transpose", "b_copy", "copy_ldb"}};
  REQUIRE(l->row->op == OP_ALIGN && width_of(l->row->a_type) == width_of(a_type), "%s", l->row->name);
  for (int i = 0; i < 2; i++) {
    struct stored *s = &matrices[i];
    if (value(l, names[i][2]) == 0) continue;
    REQUIRE((uint64_t)value(l, names[i][0]) == s->address && (s->rows == 1 || value(l, names[i][1]) == s->ld));
    REQUIRE(value(l, names[i][2]) == s->rows && value(l, names[i][3]) == s->cols, "copy %d", i);
    turned[i] = value(l, names[i][4]) == 1;
    uint64_t width = (uint64_t)s->bytes, apart = s->rows == 1 ? 0 : (uint64_t)s->ld;
    bool whole = (s->address | apart * width | (uint64_t)s->cols * width) % 16 == 0;
    REQUIRE(whole || !(l->row->guard & GUARD_ALIGN16), "%s copies odd rows", l->row->name);
    int64_t ld = value(l, names[i][6]), copied = turned[i] ? s->cols : s->rows;
    blocks += tiles_along(s->rows, l->row->block_m) * tiles_along(s->cols, l->row->block_n);
    *s = (struct stored){(uint64_t)value(l, names[i][5]), copied, turned[i] ? s->rows : s->cols, ld, 1, 0, s->bytes};
    REQUIRE(s->ld >= s->cols && s->ld * s->bytes % 128 == 0, "a copy's rows are %lld elements apart", (long long)ld);
    use_span(spans, names[i][5], s->address, (uint64_t)(copied * ld) * (uint64_t)s->bytes);
  }
  REQUIRE(l->grid == blocks, "%u blocks copy what takes %lld", l->grid, (long long)blocks);
}

static void check_split(const struct launch *l, const libgemm_gemm_args *a, struct spans *spans, int64_t tiles) {
  int64_t splits = has(l, "splits") ? value(l, "splits") : 1, steps = tiles_along(a->k, l->row->block_k);
  bool shares = l->row->guard & (GUARD_CLUSTER | GUARD_WORKSPACE);
  REQUIRE(shares ? splits >= 2 && splits <= steps : splits == 1, "splits %lld", (long long)splits);
  REQUIRE(!shares || !a->batch_invariant, "%s", l->row->name);
  REQUIRE(splits == 1 || (splits - 1) * tiles_along(steps, splits) < steps, "a block has no step of K");
  REQUIRE(l->cluster == (l->row->guard & GUARD_CLUSTER ? splits : l->row->ctas), "cluster %u", l->cluster);
  if (!(l->row->guard & GUARD_WORKSPACE)) return;
  uint64_t piece = (uint64_t)l->row->block_m * (uint64_t)l->row->block_n * 4;
  use_span(spans, "semaphores", (uint64_t)value(l, "semaphores"), (uint64_t)tiles * 8);
  use_span(spans, "partials", (uint64_t)value(l, "partials"), (uint64_t)(tiles * splits) * piece);
  REQUIRE(value(l, "semaphores") % 8 == 0 && value(l, "partials") % 16 == 0);
}

// All blocks share all tiles evenly, and `sum` adds up behind them. Of clusters a tile is those of all their blocks.
static void check_stream(const struct launch *l, const struct launch *sum, const libgemm_gemm_args *a,
                         struct spans *spans) {
  const struct row *row = l->row;
  int64_t steps = tiles_along(a->k, row->block_k), each = value(l, "stream_steps"), runs = l->grid / row->ctas;
  int64_t units = tiles_along(tiles_along(a->m, row->block_m), row->share_b) *
                  tiles_along(tiles_along(a->n, row->block_n), row->share_a);
  uint64_t piece = (uint64_t)row->block_m * (uint64_t)row->block_n * 4;
  REQUIRE(!a->batch_invariant && a->batch == 1 && l->cluster == row->ctas && l->grid % row->ctas == 0, "%s", row->name);
  REQUIRE(units < runs && each * runs >= units * steps && (each - 1) * runs < units * steps,
          "%lld runs of %lld for %lld tiles of %lld", (long long)runs, (long long)each, (long long)units,
          (long long)steps);
  use_span(spans, "partials", (uint64_t)value(l, "partials"), (uint64_t)((runs + units) * row->ctas) * piece);
  REQUIRE(value(l, "partials") % 16 == 0 && value(sum, "partials") == value(l, "partials"));
  REQUIRE(value(sum, "M") == a->m && value(sum, "N") == a->n && value(sum, "K") == a->k);
  REQUIRE(value(sum, "stream_steps") == each && value(sum, "stream_k") == row->block_k);
  REQUIRE(value(sum, "stream_m") == row->block_m && value(sum, "stream_n") == row->block_n);
  bool swap = strstr(row->name, "_swap") != NULL;
  REQUIRE(value(sum, "stream_swap") == swap);
  REQUIRE(value(sum, "stream_below") == (swap ? row->share_a : row->share_b));
  REQUIRE(value(sum, "stream_across") == (swap ? row->share_b : row->share_a));
  REQUIRE(sum->grid == (uint64_t)(units * row->ctas) * (uint64_t)tiles_along(row->block_m, sum->row->block_m) *
                           (uint64_t)tiles_along(row->block_n, sum->row->block_n),
          "%u blocks add up", sum->grid);
}

static void check_grid(const struct launch *l, const libgemm_gemm_args *a, int64_t tiles) {
  __int128 all = (__int128)tiles * a->batch * (has(l, "splits") ? value(l, "splits") : 1);
  bool exact = l->row->op == OP_GEMM ? !l->row->persistent : (l->row->guard & GUARD_CLUSTER) != 0;
  REQUIRE(all + (exact ? 0 : l->grid) <= INT32_MAX, "more tiles than kernels count");
  all *= l->row->ctas; /* blocks: a cluster may have as many as tiles side by side */
  REQUIRE(l->grid % l->row->ctas == 0 && (exact ? l->grid == all : l->grid <= all),
          "grid %u for %lld tiles of %lld products", l->grid, (long long)tiles, (long long)a->batch);
  if (l->row->op == OP_GEMM) return;
  REQUIRE(value(l, "groups") == a->batch && value(l, "offs_ptr") == 0);
  if (has(l, "zero_tail")) REQUIRE(value(l, "zero_tail") == 0);
  if (has(l, "ragged")) REQUIRE(value(l, "ragged") == LIBGEMM_RAGGED_NONE);
}

// `stores` is the launch that writes D: the same one, or what adds up behind it.
static void check_product(const struct launch *l, const struct launch *stores, const libgemm_gemm_args *a,
                          struct stored in[2], const bool turned[2], struct spans *spans) {
  struct operands o = described(a);
  int64_t tiles = tiles_along(a->m, l->row->block_m) * tiles_along(a->n, l->row->block_n);
  check_types(l, a->a_type, a->b_type);
  REQUIRE(l->row->d_type == a->d_type && l->row->precision == a->precision);
  REQUIRE(l->row->trans_a == (a->trans_a ^ turned[0]) && l->row->trans_b == (a->trans_b ^ turned[1]));
  REQUIRE(value(l, "M") == a->m && value(l, "N") == a->n && value(l, "K") == (reads_ab(a) ? a->k : 0));
  if (reads_ab(a)) check_stored(l, 'a', &in[0]), check_stored(l, 'b', &in[1]);
  struct stored c = stored_as(&o, 'c'), d = stored_as(&o, 'd');
  if (reads_c(a)) check_stored(stores, 'c', &c);
  check_stored(stores, 'd', &d);
  check_scalars(stores, a->k > 0 ? a->alpha : 0, a->beta, a->activation, (uint64_t)a->bias);
  if (a->bias && a->batch > 1) REQUIRE(value(l, "batch_stride_bias") == a->batch_stride_bias);
  struct scales scales = SCALES_OF(a, reads_ab(a));
  check_scale_parameters(l, &scales);
  if (scales.read && a->batch > 1) {
    REQUIRE(value(l, "batch_stride_a_scale") == a->batch_stride_a_scale);
    REQUIRE(value(l, "batch_stride_b_scale") == a->batch_stride_b_scale);
  }
  o.a = (const void *)(uintptr_t)in[0].address, o.lda = in[0].ld, o.trans_a = l->row->trans_a;
  o.b = (const void *)(uintptr_t)in[1].address, o.ldb = in[1].ld, o.trans_b = l->row->trans_b;
  check_guards(l, &o, a->activation);
  if (stores != l) {
    REQUIRE(stores->row->d_type == a->d_type && stores->device == l->device, "%s", stores->row->name);
    check_stream(l, stores, a, spans);
  } else {
    check_split(l, a, spans, tiles);
    check_grid(l, a, tiles);
  }
  REQUIRE(!a->batch_invariant || a->a_type != LIBGEMM_F32 || l->row->guard == 0, "%s", l->row->name);
}

void check_dense(const libgemm_gemm_args *a) {
  bool empty = a->m == 0 || a->n == 0 || a->batch == 0, turned[2] = {false, false};
  if (empty) REQUIRE(seen.launches == 0, "%d launches of nothing", seen.launches);
  if (empty) return;
  const struct launch *last = &seen.launch[seen.launches - 1], *product = last;
  if (seen.launches > 1 && last->row->op == OP_GEMM_SUM) product--;
  REQUIRE(seen.launches >= 1 && product - seen.launch <= 1, "%d launches", seen.launches);
  struct operands o = described(a);
  struct spans spans = spans_of(a->workspace, a->workspace_bytes);
  struct stored in[2] = {stored_as(&o, 'a'), stored_as(&o, 'b')};
  for (int i = 0; i < seen.launches; i++) check_limits(&seen.launch[i]);
  check_owners(last, &o, a->bias);
  if (product != seen.launch) {
    REQUIRE(seen.launch[0].device == last->device && reads_ab(a) && a->batch == 1);
    check_copier(&seen.launch[0], a->a_type, in, &spans, turned);
  }
  check_product(product, last, a, in, turned, &spans);
  if (spans.count) REQUIRE(owner_of((uint64_t)a->workspace) == last->device, "the workspace is of another GPU");
}

// ---- The three calls ----

static uint64_t ask_bytes(const void *given, const libgemm_gemm_args *a) {
  uint64_t bytes;
  bool worked = ask_workspace(&dense_operation, given, &bytes);
  if (worked && (a->m == 0 || a->n == 0)) REQUIRE(bytes == 0, "%llu bytes for nothing", (unsigned long long)bytes);
  return bytes;
}

// Of a choice as old and new callers have it.
static uint64_t some_choice_size(struct bytes *in) {
  static const uint8_t less[] = {0, 4, 1, 8, 200, 16, 255, 3};
  uint64_t size = sizeof(libgemm_choice) - (rarely(in, 8) ? less[pick(in, sizeof less)] : 0);
  return size + (rarely(in, 16) ? 64 : 0);
}

static float expected_us(libgemm_gemm_args with, uint64_t bytes) {
  libgemm_choice choice = {.size = sizeof choice};
  with.size = sizeof with;
  with.workspace = (void *)(uintptr_t)place_of(0, 8);
  with.workspace_bytes = bytes;
  before_call("libgemm_gemm_explain with a workspace");
  after_call(libgemm_gemm_explain(&with, 0, &choice));
  return choice.expected_us;
}

// That more workspace than was asked for makes nothing faster.
static void check_enough(const libgemm_gemm_args *a, uint64_t bytes) {
  float asked = expected_us(*a, bytes), most = expected_us(*a, UINT64_MAX);
  REQUIRE(asked <= most, "%g us with %llu bytes, %g us with more", (double)asked, (unsigned long long)bytes,
          (double)most);
}

void try_dense(struct bytes *in, libgemm_gemm_args *last) {
  libgemm_gemm_args a = *last;
  int gpu = 0;
  unsigned way = pick(in, 16);
  now.legal = way < 8;
  a.size = sizeof a, a.variant = NULL; /* the last call may have said another size, and cut the name's address */
  if (way < 13 || !last->size) gpu = legal_args(in, &a);
  if (way >= 8 && way < 15) /* from 13 on the last call's, changed */
    for (unsigned changes = 1 + pick(in, 3); changes; changes--) spoil(in, &dense_operation, &a, gpu);
  if (rarely(in, 4)) give_asked(&dense_operation, &a, gpu, &a.workspace, &a.workspace_bytes);
  a.stream = some_stream(in, gpu, &now.bogus);
  a.variant = rarely(in, 8) ? some_name(in) : NULL;
  if (way == 15) make_random(in, &a, sizeof a, &a.variant, &a.stream);
  int owner = owner_of((uint64_t)a.d);
  now.bogus |= a.stream && owner != gpu;
  now.legal &= a.variant == NULL;
  void *given = as_caller(in, &a, sizeof a);
  bool here = is_here(owner);
  const struct row *row = NULL;
  if (pick(in, 3) == 1) {
    uint64_t bytes = a.variant ? 0 : ask_bytes(given, &a); /* a legal call names no variant */
    if (now.legal && here && !now.bogus) check_enough(&a, bytes);
    int32_t target = some_target(in);
    row = ask_row(&dense_operation, given, here, target, some_choice_size(in));
  }
  /* what is remembered must serve as well */
  for (int i = 0; i < 2 && call_works(&dense_operation, given, row); i++) check_dense(&a);
  free(given);
  *last = a;
}
