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
  uint64_t most = (uint64_t)(PLACES - 8) * PLACE;
  a->workspace = (void *)(uintptr_t)place_of(gpu, 8);
  a->workspace_bytes = pick(in, 2) ? most : (uint64_t)pick(in, 256) * (uint64_t)pick(in, 256) * 8;
  if (rarely(in, 4)) a->workspace_bytes = (uint64_t)some_limit(in);
}

// A call that the header promises to serve. Returns the GPU it is for.
static int legal_args(struct bytes *in, libgemm_gemm_args *a) {
  int gpu = rarely(in, 6) ? 1 : 0;
  libgemm_gemm_args_init(a, sizeof *a);
  unsigned types = pick(in, 8);
  a->a_type = types < 6 ? LIBGEMM_BF16 : LIBGEMM_F32;
  a->d_type = types < 4 ? LIBGEMM_BF16 : LIBGEMM_F32;
  if (a->a_type == LIBGEMM_F32) a->precision = 1 + (int32_t)pick(in, 3);
  a->trans_a = (int32_t)pick(in, 2), a->trans_b = (int32_t)pick(in, 2);
  a->m = some_size(in), a->n = some_size(in), a->k = some_size(in);
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
  return gpu;
}

static void make_hostile(struct bytes *in, libgemm_gemm_args *a, int gpu) {
  int64_t *numbers[] = {&a->m,
                        &a->n,
                        &a->k,
                        &a->batch,
                        &a->lda,
                        &a->ldb,
                        &a->ldc,
                        &a->ldd,
                        &a->batch_stride_a,
                        &a->batch_stride_b,
                        &a->batch_stride_c,
                        &a->batch_stride_d,
                        &a->batch_stride_bias,
                        (int64_t *)&a->workspace_bytes};
  int32_t *words[] = {&a->a_type,    &a->d_type,     &a->trans_a,         &a->trans_b,
                      &a->precision, &a->activation, &a->batch_invariant, &a->reserved};
  const void **pointers[] = {&a->a, &a->b, &a->c, (const void **)&a->d, &a->bias, (const void **)&a->workspace};
  switch (pick(in, 5)) {
    case 0:
    case 1: *numbers[pick(in, sizeof numbers / sizeof *numbers)] = some_limit(in); break;
    case 2: *words[pick(in, sizeof words / sizeof *words)] = some_word(in); break;
    case 3: *pointers[pick(in, sizeof pointers / sizeof *pointers)] = (void *)(uintptr_t)odd_pointer(in, gpu); break;
    default:
      if (pick(in, 2))
        a->alpha = some_float(in);
      else
        a->beta = some_float(in);
  }
}

static void make_random(struct bytes *in, libgemm_gemm_args *a) {
  unsigned char *to = (unsigned char *)a;
  for (size_t i = sizeof a->size; i < sizeof *a; i++) to[i] = byte(in);
  a->variant = NULL;
  now.bogus = a->stream != NULL;
}

// ---- What was launched ----

static struct operands described(const libgemm_gemm_args *a) { return OPERANDS_OF(a, a->batch, LIBGEMM_RAGGED_NONE); }

static int64_t tiles_along(int64_t extent, int64_t block) { return (extent + block - 1) / block; }

// Returns what stands where A or B is after the copies.
static void check_copier(const struct launch *l, const libgemm_gemm_args *a, struct stored matrices[2],
                         struct spans *spans, bool turned[2]) {
  int64_t blocks = 0;
  static const char *const names[2][7] = {{"a_ptr", "lda", "a_rows", "a_cols", "a_transpose", "a_copy", "copy_lda"},
                                          {"b_ptr", "ldb", "b_rows", "b_cols", "b_transpose", "b_copy", "copy_ldb"}};
  REQUIRE(l->row->op == OP_ALIGN && width_of(l->row->a_type) == width_of(a->a_type), "%s", l->row->name);
  for (int i = 0; i < 2; i++) {
    struct stored *s = &matrices[i];
    if (value(l, names[i][2]) == 0) continue;
    REQUIRE((uint64_t)value(l, names[i][0]) == s->address && (s->rows == 1 || value(l, names[i][1]) == s->ld));
    REQUIRE(value(l, names[i][2]) == s->rows && value(l, names[i][3]) == s->cols, "copy %d", i);
    turned[i] = value(l, names[i][4]) == 1;
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
  REQUIRE(l->cluster == (l->row->guard & GUARD_CLUSTER ? splits : 1), "cluster %u", l->cluster);
  if (!(l->row->guard & GUARD_WORKSPACE)) return;
  uint64_t piece = (uint64_t)l->row->block_m * (uint64_t)l->row->block_n * 4;
  use_span(spans, "semaphores", (uint64_t)value(l, "semaphores"), (uint64_t)tiles * 8);
  use_span(spans, "partials", (uint64_t)value(l, "partials"), (uint64_t)(tiles * splits) * piece);
  REQUIRE(value(l, "semaphores") % 8 == 0 && value(l, "partials") % 16 == 0);
}

static void check_grid(const struct launch *l, const libgemm_gemm_args *a, int64_t tiles) {
  __int128 all = (__int128)tiles * a->batch * (has(l, "splits") ? value(l, "splits") : 1);
  bool exact = l->row->op == OP_GEMM ? !l->row->persistent : (l->row->guard & GUARD_CLUSTER) != 0;
  REQUIRE(all + (exact ? 0 : l->grid) <= INT32_MAX, "more tiles than kernels count");
  REQUIRE(exact ? l->grid == all : l->grid <= all, "grid %u for %lld tiles of %lld products", l->grid, (long long)tiles,
          (long long)a->batch);
  if (l->row->op == OP_GEMM) return;
  REQUIRE(value(l, "groups") == a->batch && value(l, "offs_ptr") == 0);
  if (has(l, "zero_tail")) REQUIRE(value(l, "zero_tail") == 0);
  if (has(l, "ragged")) REQUIRE(value(l, "ragged") == LIBGEMM_RAGGED_NONE);
}

static void check_product(const struct launch *l, const libgemm_gemm_args *a, struct stored in[2], const bool turned[2],
                          struct spans *spans) {
  struct operands o = described(a);
  int d_bytes = width_of(a->d_type);
  int64_t tiles = tiles_along(a->m, l->row->block_m) * tiles_along(a->n, l->row->block_n);
  REQUIRE(l->row->a_type == a->a_type && l->row->d_type == a->d_type && l->row->precision == a->precision);
  REQUIRE(l->row->trans_a == (a->trans_a ^ turned[0]) && l->row->trans_b == (a->trans_b ^ turned[1]));
  REQUIRE(value(l, "M") == a->m && value(l, "N") == a->n && value(l, "K") == (reads_ab(a) ? a->k : 0));
  if (reads_ab(a)) check_stored(l, 'a', &in[0]), check_stored(l, 'b', &in[1]);
  struct stored c = {(uint64_t)a->c, a->m, a->n, a->ldc, a->batch, a->batch_stride_c, d_bytes};
  if (reads_c(a)) check_stored(l, 'c', &c);
  struct stored d = {(uint64_t)a->d, a->m, a->n, a->ldd, a->batch, a->batch_stride_d, d_bytes};
  check_stored(l, 'd', &d);
  check_scalars(l, a->k > 0 ? a->alpha : 0, a->beta, a->activation, (uint64_t)a->bias);
  if (a->bias && a->batch > 1) REQUIRE(value(l, "batch_stride_bias") == a->batch_stride_bias);
  o.a = (const void *)(uintptr_t)in[0].address, o.lda = in[0].ld, o.trans_a = l->row->trans_a;
  o.b = (const void *)(uintptr_t)in[1].address, o.ldb = in[1].ld, o.trans_b = l->row->trans_b;
  check_guards(l, &o, a->activation);
  check_split(l, a, spans, tiles);
  check_grid(l, a, tiles);
  REQUIRE(!a->batch_invariant || a->a_type != LIBGEMM_F32 || l->row->guard == 0, "%s", l->row->name);
}

static void check_owners(const libgemm_gemm_args *a, int gpu) {
  REQUIRE(owner_of((uint64_t)a->d) == gpu, "D is of GPU %d", owner_of((uint64_t)a->d));
  if (reads_ab(a)) REQUIRE(owner_of((uint64_t)a->a) == gpu && owner_of((uint64_t)a->b) == gpu);
  if (reads_c(a)) REQUIRE(owner_of((uint64_t)a->c) == gpu);
  if (a->bias) REQUIRE(owner_of((uint64_t)a->bias) == gpu);
  uint64_t element = (uint64_t)width_of(a->d_type) - 1, input = (uint64_t)width_of(a->a_type) - 1;
  uint64_t low = ((uint64_t)a->d | (uint64_t)a->bias | (reads_c(a) ? (uint64_t)a->c : 0)) & element;
  if (reads_ab(a)) low |= ((uint64_t)a->a | (uint64_t)a->b) & input;
  REQUIRE(low == 0, "an element is misaligned");
  REQUIRE(!reads_ab(a) || (a->d != a->a && a->d != a->b), "D is an input");
}

void check_dense(const libgemm_gemm_args *a) {
  bool empty = a->m == 0 || a->n == 0 || a->batch == 0, turned[2] = {false, false};
  if (empty) REQUIRE(seen.launches == 0, "%d launches of nothing", seen.launches);
  if (empty) return;
  REQUIRE(seen.launches == 1 || seen.launches == 2, "%d launches", seen.launches);
  struct spans spans = {
      (uint64_t)a->workspace, (uint64_t)a->workspace + (a->workspace ? a->workspace_bytes : 0), 0, {{0}}};
  if (spans.end < spans.begin) spans.end = UINT64_MAX;  // the caller says: all there is
  int bytes = width_of(a->a_type);
  struct stored in[2] = {
      {(uint64_t)a->a, a->trans_a ? a->k : a->m, a->trans_a ? a->m : a->k, a->lda, a->batch, a->batch_stride_a, bytes},
      {(uint64_t)a->b, a->trans_b ? a->n : a->k, a->trans_b ? a->k : a->n, a->ldb, a->batch, a->batch_stride_b, bytes}};
  const struct launch *last = &seen.launch[seen.launches - 1];
  for (int i = 0; i < seen.launches; i++) check_limits(&seen.launch[i]);
  check_owners(a, last->device);
  if (seen.launches == 2) {
    REQUIRE(seen.launch[0].device == last->device && reads_ab(a) && a->batch == 1);
    check_copier(&seen.launch[0], a, in, &spans, turned);
  }
  check_product(last, a, in, turned, &spans);
  if (spans.count) REQUIRE(owner_of((uint64_t)a->workspace) == last->device, "the workspace is of another GPU");
}

// ---- The three calls ----

static void ask_workspace(const void *given, const libgemm_gemm_args *a, uint64_t *bytes) {
  const uint64_t unset = 0xA5A5A5A5A5A5A5A5u;
  struct call_facts facts = now;
  *bytes = unset;
  before_call("libgemm_gemm_workspace");
  bool worked = after_call(libgemm_gemm_workspace(given, bytes));
  REQUIRE(*bytes != unset, "*bytes is not set");
  REQUIRE(seen.launches == 0);
  if (worked && (a->m == 0 || a->n == 0)) REQUIRE(*bytes == 0, "%llu bytes for nothing", (unsigned long long)*bytes);
  now = facts;
}

// The row that explain names for D's GPU; NULL for none, or for another GPU's.
static const struct row *ask_row(struct bytes *in, const void *given, bool here, int32_t target) {
  static const uint8_t less[] = {0, 4, 1, 8, 200, 16, 255, 3};
  uint64_t size =
      sizeof(libgemm_choice) - (rarely(in, 8) ? less[pick(in, sizeof less)] : 0) + (rarely(in, 16) ? 64 : 0);
  libgemm_choice *choice = calloc(1, size);
  choice->size = size;
  before_call("libgemm_gemm_explain");
  const struct row *row = NULL;
  struct call_facts facts = now;
  now.legal &= here && size >= offsetof(libgemm_choice, expected_us) && target == 0;
  if (after_call(libgemm_gemm_explain(given, target, choice))) {
    REQUIRE(choice->variant >= -1 && choice->variant < row_count && memchr(choice->reason, 0, sizeof choice->reason));
    row = choice->variant < 0 ? NULL : &rows[choice->variant];
  }
  now = facts;
  REQUIRE(seen.launches == 0);
  free(choice);
  return here && target == 0 ? row : NULL;
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

// Just what the library asks for, up to the end of the memory.
static void give_asked(libgemm_gemm_args *a, int gpu) {
  uint64_t bytes = 0;
  a->size = sizeof *a;
  libgemm_gemm_workspace(a, &bytes);
  if (bytes > (PLACES - 8) * PLACE) return;
  a->workspace = bytes ? (void *)(uintptr_t)(place_of(gpu, PLACES) - (bytes + 15) / 16 * 16) : NULL;
  a->workspace_bytes = bytes;
}

void try_dense(struct bytes *in, libgemm_gemm_args *last) {
  libgemm_gemm_args a = *last;
  uint64_t bytes = 0;
  int gpu = 0;
  unsigned way = pick(in, 16);
  now.legal = way < 8;
  if (way < 13 || !last->size) gpu = legal_args(in, &a);
  if (way >= 8 && way < 15) /* from 13 on the last call's, changed */
    for (unsigned changes = 1 + pick(in, 3); changes; changes--) make_hostile(in, &a, gpu);
  if (rarely(in, 4)) give_asked(&a, gpu);
  a.stream = some_stream(in, gpu, &now.bogus);
  a.variant = rarely(in, 8) ? some_name(in) : NULL;
  if (way == 15) make_random(in, &a);
  int owner = owner_of((uint64_t)a.d);
  now.bogus |= a.stream && owner != gpu;
  now.legal &= a.variant == NULL;
  void *given = as_caller(in, &a, sizeof a);
  bool here = owner == (current_gpu() < 0 ? 0 : current_gpu());
  const struct row *row = NULL;
  if (pick(in, 3) == 1) {
    if (!a.variant) ask_workspace(given, &a, &bytes);
    if (now.legal && here && !now.bogus) check_enough(&a, bytes);
    row = ask_row(in, given, here, rarely(in, 8) ? (int32_t)some_limit(in) : 0);
  }
  for (int i = 0; i < 2; i++) { /* what is remembered must serve as well */
    before_call("libgemm_gemm");
    if (!after_call(libgemm_gemm(given))) {
      call_legally();
      break;
    }
    check_dense(&a);
    if (row && seen.launches) REQUIRE(seen.launch[seen.launches - 1].row == row, "explain said %s", row->name);
  }
  free(given);
  *last = a;
}
