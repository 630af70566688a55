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
  uint64_t tables = a->host_tables == 1 && a->groups > 0 ? (uint64_t)a->groups * 96 : 0, most = 8 * PLACE, bytes = most;
  switch (pick(in, 6)) {
    case 0: break;
    case 1: bytes = tables; break;
    case 2: bytes = tables + 512 * 132 + 128; break;
    case 3: bytes = tables + 256 * (uint64_t)byte(in); break;
    case 4: bytes = 8 * (uint64_t)byte(in); break;
    default: return;
  }
  if (bytes > most) bytes = most;
  a->workspace = (void *)(uintptr_t)(place_of(gpu, PLACES) - (bytes + 15) / 16 * 16);
  a->workspace_bytes = bytes;
}

// Just what the library asks for, up to the end of the memory.
static void give_asked(libgemm_grouped_gemm_args *a, int gpu) {
  uint64_t bytes = 0;
  libgemm_grouped_gemm_workspace(a, &bytes);
  if (bytes > 8 * PLACE) return;
  a->workspace = bytes ? (void *)(uintptr_t)(place_of(gpu, PLACES) - (bytes + 15) / 16 * 16) : NULL;
  a->workspace_bytes = bytes;
}

static bool has_room(const libgemm_grouped_gemm_args *a) {
  return a->host_tables == 0 || (a->workspace && a->workspace_bytes >= (uint64_t)a->groups * 96);
}

static int legal_words(struct bytes *in, libgemm_grouped_gemm_args *a) {
  int gpu = rarely(in, 6) ? 1 : 0;
  libgemm_grouped_gemm_args_init(a, sizeof *a);
  unsigned types = pick(in, 8);
  a->a_type = types < 6 ? LIBGEMM_BF16 : LIBGEMM_F32;
  a->d_type = types < 4 ? LIBGEMM_BF16 : LIBGEMM_F32;
  if (a->a_type == LIBGEMM_F32) a->precision = 1 + (int32_t)pick(in, 3);
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

static void make_hostile(struct bytes *in, libgemm_grouped_gemm_args *a, int gpu) {
  int64_t *numbers[] = {&a->groups, &a->expected_m, &a->expected_n, &a->expected_k, (int64_t *)&a->workspace_bytes};
  int32_t *words[] = {&a->a_type,     &a->d_type,      &a->trans_a, &a->trans_b, &a->precision,
                      &a->activation, &a->host_tables, &a->device,  &a->aligned, &a->reserved};
  switch (pick(in, 4)) {
    case 0: *numbers[pick(in, sizeof numbers / sizeof *numbers)] = some_limit(in); break;
    case 1: *words[pick(in, sizeof words / sizeof *words)] = some_word(in); break;
    case 2: a->workspace = (void *)(uintptr_t)odd_pointer(in, gpu); break;
    default: a->alpha = some_float(in), a->beta = some_float(in);
  }
}

// One table's pointer. Host tables can only be left out: they are read.
static void spoil_table(struct bytes *in, libgemm_grouped_gemm_args *a, int gpu) {
  void *to = a->host_tables == 0 ? (void *)(uintptr_t)odd_pointer(in, gpu) : NULL;
  const void **pointers[] = {(const void **)&a->a,   (const void **)&a->b,    (const void **)&a->c,
                             (const void **)&a->d,   (const void **)&a->bias, (const void **)&a->m,
                             (const void **)&a->n,   (const void **)&a->k,    (const void **)&a->lda,
                             (const void **)&a->ldb, (const void **)&a->ldc,  (const void **)&a->ldd};
  *pointers[pick(in, TABLE_COUNT)] = to;
}

static void make_random(struct bytes *in, libgemm_grouped_gemm_args *a) {
  unsigned char *to = (unsigned char *)a;
  for (size_t i = sizeof a->size; i < sizeof *a; i++) to[i] = byte(in);
  a->variant = NULL;
  if (a->host_tables == 1) a->host_tables = 0; /* nothing stands at random addresses */
  now.bogus = a->stream != NULL;
}

// ---- The three calls ----

static const struct row *ask(struct bytes *in, const void *given, bool here) {
  const uint64_t unset = 0xA5A5A5A5A5A5A5A5u;
  uint64_t bytes = unset;
  struct call_facts facts = now;
  libgemm_choice choice = {.size = sizeof choice};
  int32_t target = rarely(in, 8) ? (int32_t)some_limit(in) : 0;
  before_call("libgemm_grouped_gemm_workspace");
  bool worked = after_call(libgemm_grouped_gemm_workspace(given, &bytes));
  REQUIRE(bytes != unset, "*bytes is not set");
  now.legal = facts.legal && here && target == 0;
  before_call("libgemm_grouped_gemm_explain");
  worked = after_call(libgemm_grouped_gemm_explain(given, target, &choice));
  now = facts;
  if (!worked) return NULL;
  REQUIRE(choice.variant >= -1 && choice.variant < row_count && memchr(choice.reason, 0, sizeof choice.reason));
  return choice.variant < 0 || !here || target != 0 ? NULL : &rows[choice.variant];
}

static void call_tables(struct bytes *in, libgemm_grouped_gemm_args *a, int stream_gpu) {
  int gpu = pointers_gpu(a);
  now.bogus |= a->stream && gpu != stream_gpu;
  uint64_t held = room_at((uint64_t)a->workspace); /* a caller may give memory that is not there */
  now.bogus |= a->host_tables == 1 && (uint64_t)a->groups < UINT32_MAX && held < (uint64_t)a->groups * 96;
  now.legal &= a->variant == NULL;
  void *given = as_caller(in, a, sizeof *a);
  bool here = gpu == (current_gpu() < 0 ? 0 : current_gpu());
  const struct row *row = pick(in, 3) == 1 ? ask(in, given, here) : NULL;
  now.legal &= has_room(a);
  before_call("libgemm_grouped_gemm");
  if (after_call(libgemm_grouped_gemm(given))) {
    check_pointers_launch(a);
    if (row && seen.launches) REQUIRE(seen.launch[0].row == row, "explain said %s", row->name);
  } else {
    call_legally();
  }
  free(given);
}

void try_pointers(struct bytes *in) {
  libgemm_grouped_gemm_args a;
  int64_t *tables[TABLE_COUNT];
  unsigned way = pick(in, 16);
  now.legal = way < 8;
  int gpu = legal_words(in, &a);
  if (way >= 8 && way < 12)
    for (unsigned changes = 1 + pick(in, 2); changes; changes--) make_hostile(in, &a, gpu);
  libgemm_grouped_gemm_args shape = a;
  if (shape.groups < 0 || shape.groups > LIBGEMM_MAX_GROUPS) shape.groups = 1;
  fill_tables(in, &shape, gpu, tables);
  if (way >= 10 && way < 14)
    for (unsigned changes = 1 + pick(in, 2); changes; changes--) spoil_entry(in, &shape, gpu, tables);
  point_at(&a, tables);
  if (a.beta == 0 && pick(in, 2)) a.c = NULL, a.ldc = NULL;
  if (pick(in, 4) < 3) a.bias = NULL;
  if (a.host_tables != 1) put_on_device(&a, gpu);
  if (rarely(in, 4)) give_asked(&a, gpu);
  if (way == 14) spoil_table(in, &a, gpu);
  a.stream = some_stream(in, gpu, &now.bogus);
  a.variant = rarely(in, 8) ? some_name(in) : NULL;
  if (way == 15) make_random(in, &a);
  call_tables(in, &a, gpu);
  for (int i = 0; i < TABLE_COUNT; i++) free(tables[i]);
}
