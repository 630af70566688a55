// pointers.c: libgemm_grouped_gemm and its companions: arguments and tables from input bytes.
#include "pointers.h"

#include <stdlib.h>
#include <string.h>

// A table's entries, as the library's struct has them: a b c d bias m n k lda ldb ldc ldd.
static void point_at(libgemm_grouped_gemm_args *a, int64_t *const tables[TABLE_COUNT]) {
  a->a = (const void *const *)tables[0], a->b = (const void *const *)tables[1];
  a->c = (const void *const *)tables[2], a->d = (void *const *)tables[3], a->bias = (const void *const *)tables[4];
  a->m = tables[5], a->n = tables[6], a->k = tables[7];
  a->lda = tables[8], a->ldb = tables[9], a->ldc = tables[10], a->ldd = tables[11];
}

static void fill_group(struct bytes *in, const libgemm_grouped_gemm_args *a, int gpu,
                       int64_t *const tables[TABLE_COUNT], int64_t g) {
  int64_t m = some_size(in), n = some_size(in), k = rarely(in, 8) ? 0 : some_size(in);
  if (rarely(in, 8)) m = 0;
  bool in_place = pick(in, 4) == 3;
  const int64_t values[TABLE_COUNT] = {
      (int64_t)place_of(gpu, 0),
      (int64_t)place_of(gpu, 1),
      (int64_t)place_of(gpu, in_place ? 3 : 2),
      (int64_t)place_of(gpu, 3),
      (int64_t)place_of(gpu, 4),
      m,
      n,
      k,
      some_ld(in, a->trans_a ? m : k),
      some_ld(in, a->trans_b ? k : n),
      some_ld(in, n),
      some_ld(in, n),
  };
  for (int i = 0; i < TABLE_COUNT; i++) tables[i][g] = values[i];
  if (in_place) tables[10][g] = tables[11][g];
}

static void fill_tables(struct bytes *in, const libgemm_grouped_gemm_args *a, int gpu, int64_t *tables[TABLE_COUNT]) {
  enum { UNLIKE = 6 }; /* groups; the others are as those before */
  size_t held = a->groups > 0 ? (size_t)a->groups : 0;
  for (int i = 0; i < TABLE_COUNT; i++) REQUIRE((tables[i] = malloc(held * sizeof(int64_t) + !held)));
  for (int64_t g = 0; g < a->groups; g++) {
    if (g < UNLIKE)
      fill_group(in, a, gpu, tables, g);
    else
      for (int i = 0; i < TABLE_COUNT; i++) tables[i][g] = tables[i][g - UNLIKE];
  }
}

static void spoil_entry(struct bytes *in, const libgemm_grouped_gemm_args *a, int gpu, int64_t *tables[TABLE_COUNT]) {
  unsigned table = pick(in, TABLE_COUNT);
  int64_t g = a->groups > 0 ? byte(in) % a->groups : 0;
  int64_t to = table < 5 ? (int64_t)odd_pointer(in, gpu) : some_limit(in);
  if (a->groups > 0) tables[table][g] = to;
}

// The workspace's end is where the memory's is, so that an overrun on the host side shows.
static void give_workspace(struct bytes *in, libgemm_grouped_gemm_args *a, int gpu) {
  uint64_t tables = a->host_tables == 1 && a->groups > 0 ? (uint64_t)a->groups * 96 : 0, bytes = WORKSPACE;
  switch (pick(in, 6)) {
    case 0: break;
    case 1: bytes = tables; break;
    case 2: bytes = tables + 512 * 132 + 128; break;
    case 3: bytes = tables + 256 * (uint64_t)byte(in); break;
    case 4: bytes = 8 * (uint64_t)byte(in); break;
    default: return;
  }
  if (bytes > WORKSPACE) bytes = WORKSPACE;
  a->workspace = last_bytes(gpu, bytes);
  a->workspace_bytes = bytes;
}

static bool has_room(const libgemm_grouped_gemm_args *a) {
  return a->host_tables == 0 || (a->workspace && a->workspace_bytes >= (uint64_t)a->groups * 96);
}

static int legal_words(struct bytes *in, libgemm_grouped_gemm_args *a) {
  int gpu = rarely(in, 6) ? 1 : 0;
  libgemm_grouped_gemm_args_init(a, sizeof *a);
  pick_types(in, &a->a_type, &a->d_type, &a->precision);
  a->trans_a = (int32_t)pick(in, 2), a->trans_b = (int32_t)pick(in, 2);
  a->host_tables = (int32_t)pick(in, 2);
  a->groups = rarely(in, 32) ? 8 * (int64_t)byte(in) : 1 + pick(in, 40);
  if (rarely(in, 4)) a->beta = some_float(in);
  if (rarely(in, 4)) a->activation = (int32_t)pick(in, 4);
  if (rarely(in, 8)) a->alpha = some_float(in);
  if (pick(in, 2))
    a->aligned = 1, a->expected_m = some_size(in), a->expected_n = some_size(in), a->expected_k = some_size(in);
  if (rarely(in, 4)) a->device = gpu;
  give_workspace(in, a, gpu);
  return gpu;
}

static void put_on_device(libgemm_grouped_gemm_args *a, int gpu) {
  int64_t *places[TABLE_COUNT];
  for (int i = 0; i < TABLE_COUNT; i++) places[i] = (int64_t *)(uintptr_t)(place_of(gpu, 7) + 512 * (uint64_t)i);
  bool c = a->c != NULL, bias = a->bias != NULL;
  point_at(a, places);
  if (!c) a->c = NULL, a->ldc = NULL;
  if (!bias) a->bias = NULL;
}

// Not the tables, which the library reads: only what can be read may stand there.
static void spoil_rest(struct bytes *in, libgemm_grouped_gemm_args *a, int gpu) {
  switch (pick(in, 4)) {
    case 0: spoil_number(in, &pointers_operation, a); break;
    case 1: spoil_word(in, &pointers_operation, a); break;
    case 2: a->workspace = (void *)(uintptr_t)odd_pointer(in, gpu); break;
    default: a->alpha = some_float(in), a->beta = some_float(in);
  }
}

// ---- The three calls ----

static void call_tables(struct bytes *in, libgemm_grouped_gemm_args *a, int stream_gpu) {
  int gpu = pointers_gpu(a);
  now.bogus |= a->stream && gpu != stream_gpu;
  uint64_t held = room_at((uint64_t)a->workspace); /* a caller may give memory that is not there */
  now.bogus |= a->host_tables == 1 && (uint64_t)a->groups < UINT32_MAX && held < (uint64_t)a->groups * 96;
  now.legal &= a->variant == NULL;
  void *given = as_caller(in, a, sizeof *a);
  const struct row *row = pick(in, 3) == 1 ? ask(in, &pointers_operation, given, is_here(gpu)) : NULL;
  now.legal &= has_room(a);
  if (call_works(&pointers_operation, given, row)) check_pointers_launch(a);
  free(given);
}

void try_pointers(struct bytes *in) {
  libgemm_grouped_gemm_args a;
  int64_t *tables[TABLE_COUNT];
  unsigned way = pick(in, 16);
  now.legal = way < 8;
  int gpu = legal_words(in, &a);
  if (way >= 8 && way < 12)
    for (unsigned changes = 1 + pick(in, 2); changes; changes--) spoil_rest(in, &a, gpu);
  libgemm_grouped_gemm_args shape = a;
  if (shape.groups < 0 || shape.groups > LIBGEMM_MAX_GROUPS) shape.groups = 1;
  fill_tables(in, &shape, gpu, tables);
  if (way >= 10 && way < 14)
    for (unsigned changes = 1 + pick(in, 2); changes; changes--) spoil_entry(in, &shape, gpu, tables);
  point_at(&a, tables);
  if (a.beta == 0 && pick(in, 2)) a.c = NULL, a.ldc = NULL;
  if (pick(in, 4) < 3) a.bias = NULL;
  if (a.host_tables != 1) put_on_device(&a, gpu);
  if (rarely(in, 4)) give_asked(&pointers_operation, &a, gpu, &a.workspace, &a.workspace_bytes);
  if (way == 14) /* one table; host tables are read, so they can only be left out */
    spoil_pointer(in, &pointers_operation, &a, a.host_tables == 0 ? odd_pointer(in, gpu) : 0);
  a.stream = some_stream(in, gpu, &now.bogus);
  a.variant = rarely(in, 8) ? some_name(in) : NULL;
  if (way == 15) make_random(in, &a, sizeof a, &a.variant, &a.stream);
  if (way == 15 && a.host_tables == 1) a.host_tables = 0; /* nothing stands at random addresses */
  call_tables(in, &a, gpu);
  for (int i = 0; i < TABLE_COUNT; i++) free(tables[i]);
}
