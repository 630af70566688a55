// packed.c: libgemm_grouped_mm and its companions: arguments from input bytes, and checks of what was launched.
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static bool reads_ab(const libgemm_grouped_mm_args *a) { return a->k > 0 && a->alpha != 0.0f && a->groups > 0; }
static bool reads_c(const libgemm_grouped_mm_args *a) { return a->beta != 0.0f && a->groups > 0; }
static bool cuts_rows(const libgemm_grouped_mm_args *a) { return a->ragged == LIBGEMM_RAGGED_M; }
static bool cuts_columns(const libgemm_grouped_mm_args *a) { return a->ragged == LIBGEMM_RAGGED_N; }
static bool own_d(const libgemm_grouped_mm_args *a) { return !cuts_rows(a) && !cuts_columns(a); }
static bool zeroes(const libgemm_grouped_mm_args *a) { return a->zero_tail && !own_d(a); }
static bool is_empty(const libgemm_grouped_mm_args *a) { return !a->m || !a->n || (!a->groups && !zeroes(a)); }

// ---- Arguments ----

static void place_matrices(struct bytes *in, libgemm_grouped_mm_args *a) {
  a->lda = some_ld(in, a->trans_a ? a->m : a->k);
  a->ldb = some_ld(in, a->trans_b ? a->k : a->n);
  a->ldc = some_ld(in, a->n);
  a->ldd = some_ld(in, a->n);
  int64_t apart = rarely(in, 4) ? 8 * pick(in, 64) : 0;
  a->batch_stride_a = rarely(in, 4) ? 0 : a->lda * (a->trans_a ? a->k : a->m) + apart;
  a->batch_stride_b = rarely(in, 4) ? 0 : a->ldb * (a->trans_b ? a->n : a->k) + apart;
  a->batch_stride_c = rarely(in, 4) ? 0 : a->ldc * a->m;
  a->batch_stride_d = a->ldd * a->m + apart;
  a->batch_stride_bias = pick(in, 2) ? a->n : 0;
}

static int legal_args(struct bytes *in, libgemm_grouped_mm_args *a) {
  int gpu = rarely(in, 6) ? 1 : 0;
  libgemm_grouped_mm_args_init(a, sizeof *a);
  pick_types(in, &a->a_type, &a->d_type, &a->precision);
  a->ragged = (int32_t)pick(in, 4);
  a->trans_a = (int32_t)pick(in, 2), a->trans_b = (int32_t)pick(in, 2);
  a->m = some_size(in), a->n = some_size(in), a->k = some_size(in);
  a->groups = rarely(in, 8) ? 256 * (int64_t)byte(in) : 1 + pick(in, 64);
  a->offs_format = 1 + (int32_t)pick(in, 4);
  if (rarely(in, 4)) a->zero_tail = 1;
  if (cuts_rows(a) && rarely(in, 6)) a->shared_b = 1, a->zero_tail = 0;
  place_matrices(in, a);
  a->a = (void *)(uintptr_t)place_of(gpu, 0);
  a->b = (void *)(uintptr_t)place_of(gpu, 1);
  a->d = (void *)(uintptr_t)place_of(gpu, 3);
  a->offs = (void *)(uintptr_t)place_of(gpu, 5);
  if (a->ragged == LIBGEMM_RAGGED_NONE && pick(in, 2)) a->offs = NULL;
  if (rarely(in, 3)) a->beta = some_float(in), a->c = pick(in, 2) ? (void *)(uintptr_t)place_of(gpu, 2) : a->d;
  if (a->c == a->d) a->ldc = a->ldd, a->batch_stride_c = a->batch_stride_d;
  if (rarely(in, 4)) a->bias = (void *)(uintptr_t)place_of(gpu, 4);
  if (rarely(in, 4)) a->activation = (int32_t)pick(in, 4);
  if (rarely(in, 8)) a->alpha = some_float(in);
  if (rarely(in, 4)) a->workspace = (void *)(uintptr_t)place_of(gpu, 8), a->workspace_bytes = 8 * PLACE;
  if (rarely(in, 6)) NARROW(in, a, gpu, a->ragged == LIBGEMM_RAGGED_K ? 3 : 6);
  if (rarely(in, 8)) a->batch_invariant = 1;
  return gpu;
}

// ---- What was launched ----

static __int128 most_tiles(const struct launch *l, const libgemm_grouped_mm_args *a) {
  int64_t cuts = a->groups + zeroes(a), m = tiles_along(a->m, l->row->block_m), n = tiles_along(a->n, l->row->block_n);
  if (cuts_rows(a)) return (__int128)(a->m / l->row->block_m + cuts) * n;
  if (cuts_columns(a)) return (__int128)m * (a->n / l->row->block_n + cuts);
  return (__int128)m * n * a->groups;
}

static void check_ends(const struct launch *l, const libgemm_grouped_mm_args *a) {
  bool wide = a->offs_format == LIBGEMM_ENDS_I64 || a->offs_format == LIBGEMM_OFFSETS_I64, some = a->groups > 0;
  uint64_t skip = a->offs_format >= LIBGEMM_OFFSETS_I32 ? wide ? 8 : 4 : 0;
  bool read = some && a->ragged != LIBGEMM_RAGGED_NONE;
  REQUIRE((uint64_t)value(l, "offs_ptr") == (read ? (uint64_t)a->offs + skip : 0));
  REQUIRE(value(l, "offs_wide") == wide && value(l, "groups") == a->groups);
  if (has(l, "ragged")) REQUIRE(value(l, "ragged") == a->ragged);
  if (has(l, "early")) REQUIRE(value(l, "early") == 0); /* nobody knows who wrote B */
  if (has(l, "zero_tail"))
    REQUIRE(value(l, "zero_tail") == zeroes(a));
  else
    REQUIRE(!zeroes(a), "%s sets no tail", l->row->name);
  if (read) REQUIRE(owner_of((uint64_t)a->offs) == l->device, "offs is of GPU %d", owner_of((uint64_t)a->offs));
  REQUIRE(!read || (uint64_t)a->offs % (wide ? 8 : 4) == 0, "offs is misaligned");
}

static void check_grid(const struct launch *l, const libgemm_grouped_mm_args *a) {
  bool shares = l->row->guard & GUARD_CLUSTER;
  int64_t splits = has(l, "splits") ? value(l, "splits") : 1;
  __int128 all = most_tiles(l, a) * splits;
  REQUIRE(shares ? splits >= 2 : splits == 1, "splits %lld", (long long)splits);
  REQUIRE(l->cluster == (shares ? splits : 1), "cluster %u", l->cluster);
  REQUIRE(!shares || !a->batch_invariant, "%s", l->row->name);
  REQUIRE(shares ? l->grid == all : l->grid <= all, "grid %u", l->grid);
  if (l->row->guard & GUARD_EQUAL) REQUIRE(all + (shares ? 0 : l->grid) <= INT32_MAX, "more tiles than kernels count");
}

static void check_matrices(const struct launch *l, const struct operands *o) {
  struct stored a = stored_as(o, 'a'), b = stored_as(o, 'b'), c = stored_as(o, 'c'), d = stored_as(o, 'd');
  if (o->reads_ab) check_stored(l, 'a', &a), check_stored(l, 'b', &b);
  if (o->reads_c) check_stored(l, 'c', &c);
  check_stored(l, 'd', &d);
}

// What was copied before, each one matrix; *o becomes what was multiplied.
static void check_copies(const struct launch *copy, const struct launch *l, const libgemm_grouped_mm_args *a,
                         struct operands *o) {
  struct spans spans = spans_of(a->workspace, a->workspace_bytes);
  struct stored in[2] = {stored_as(o, 'a'), stored_as(o, 'b')};
  bool turned[2] = {false, false};
  bool cuts_k = a->ragged == LIBGEMM_RAGGED_K;
  REQUIRE(reads_ab(a) && copy->device == l->device);
  check_copier(copy, a->a_type, in, &spans, turned);
  REQUIRE(value(copy, "a_rows") == 0 || cuts_rows(a) || cuts_k, "an A of each group was copied");
  REQUIRE(value(copy, "b_rows") == 0 || cuts_columns(a) || cuts_k, "a B of each group was copied");
  REQUIRE(owner_of((uint64_t)a->workspace) == l->device, "the workspace is of another GPU");
  o->a = (const void *)(uintptr_t)in[0].address, o->lda = in[0].ld, o->trans_a ^= turned[0];
  o->b = (const void *)(uintptr_t)in[1].address, o->ldb = in[1].ld, o->trans_b ^= turned[1];
}

// A B that all groups share: one product.
static libgemm_gemm_args as_dense(const libgemm_grouped_mm_args *a) {
  libgemm_gemm_args d = {.m = a->m, .n = a->n, .k = a->k, .batch = 1, .a = a->a, .b = a->b, .c = a->c, .d = a->d};
  d.bias = a->bias, d.lda = a->lda, d.ldb = a->ldb, d.ldc = a->ldc, d.ldd = a->ldd;
  d.alpha = a->alpha, d.beta = a->beta, d.a_type = a->a_type, d.d_type = a->d_type;
  d.trans_a = a->trans_a, d.trans_b = a->trans_b, d.precision = a->precision, d.activation = a->activation;
  d.workspace = a->workspace, d.workspace_bytes = a->workspace_bytes;
  d.batch_invariant = a->batch_invariant, d.b_type = a->b_type, d.scaling = a->scaling, d.a_scale = a->a_scale,
  d.b_scale = a->b_scale;
  d.a_scale_stride_m = a->a_scale_stride_m, d.a_scale_stride_k = a->a_scale_stride_k;
  d.b_scale_stride_n = a->b_scale_stride_n, d.b_scale_stride_k = a->b_scale_stride_k;
  return d;
}

static void check_launch(const libgemm_grouped_mm_args *a) {
  if (is_empty(a)) {
    REQUIRE(seen.launches == 0, "%d launches of nothing", seen.launches);
    return;
  }
  const struct launch *l = &seen.launch[seen.launches - 1];
  if (a->shared_b) {
    libgemm_gemm_args dense = as_dense(a);
    check_dense(&dense);
    return;
  }
  REQUIRE(seen.launches == 1 || seen.launches == 2, "%d launches", seen.launches);
  struct operands o = OPERANDS_OF(a, a->groups, a->ragged);
  for (int i = 0; i < seen.launches; i++) check_limits(&seen.launch[i]);
  check_owners(l, &o, a->groups ? a->bias : NULL);
  if (seen.launches == 2) check_copies(&seen.launch[0], l, a, &o);
  check_types(l, a->a_type, a->b_type);
  REQUIRE(l->row->op == OP_GROUPED_MM && l->row->d_type == a->d_type && l->row->precision == a->precision);
  REQUIRE(l->row->trans_a == o.trans_a && l->row->trans_b == o.trans_b);
  REQUIRE(value(l, "M") == a->m && value(l, "N") == a->n && value(l, "K") == (reads_ab(a) ? a->k : 0));
  check_matrices(l, &o);
  check_ends(l, a);
  check_scalars(l, a->alpha, a->beta, a->activation, (uint64_t)a->bias);
  if (a->bias && a->groups > 1) REQUIRE(value(l, "batch_stride_bias") == a->batch_stride_bias);
  struct scales scales = SCALES_OF(a, reads_ab(a));
  check_scale_parameters(l, &scales);
  if (scales.read && has(l, "batch_stride_a_scale"))
    REQUIRE(value(l, "batch_stride_a_scale") == (cuts_rows(a) ? 0 : a->batch_stride_a_scale));
  if (scales.read) REQUIRE(value(l, "batch_stride_b_scale") == (cuts_columns(a) ? 0 : a->batch_stride_b_scale));
  check_guards(l, &o, a->activation);
  check_grid(l, a);
}

// ---- The three calls ----

void try_packed(struct bytes *in, libgemm_grouped_mm_args *last) {
  libgemm_grouped_mm_args a = *last;
  int gpu = 0;
  unsigned way = pick(in, 16);
  now.legal = way < 8;
  if (way < 13 || !last->size) gpu = legal_args(in, &a);
  if (way >= 8 && way < 15) /* from 13 on the last call's, changed */
    for (unsigned changes = 1 + pick(in, 3); changes; changes--) spoil(in, &packed_operation, &a, gpu);
  a.stream = some_stream(in, gpu, &now.bogus);
  a.variant = rarely(in, 8) ? some_name(in) : NULL;
  if (way == 15) make_random(in, &a, sizeof a, &a.variant, &a.stream);
  int owner = owner_of((uint64_t)a.d);
  now.bogus |= a.stream && owner != gpu;
  now.legal &= a.variant == NULL;
  void *given = as_caller(in, &a, sizeof a);
  const struct row *row = pick(in, 3) == 1 ? ask(in, &packed_operation, given, is_here(owner)) : NULL;
  /* what is remembered must serve as well */
  for (int i = 0; i < 2 && call_works(&packed_operation, given, row); i++) check_launch(&a);
  free(given);
  *last = a;
}
