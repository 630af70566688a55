// queries.c: what the library tells of itself, asked with any index and size; and preloading.
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static int32_t some_index(struct bytes *in, int32_t count) {
  if (rarely(in, 4)) return (int32_t)some_limit(in);
  return (int32_t)((byte(in) | (unsigned)byte(in) << 8) % (unsigned)(count + 2)) - 1;
}

// A struct of any size that begins with it, in memory of just that size.
static uint64_t *some_struct(struct bytes *in, uint64_t bytes) {
  uint64_t size = pick(in, 2) ? bytes : byte(in);
  uint64_t *info = malloc(size < 8 ? 8 : size);
  REQUIRE(info);
  memset(info, 0xA5, size < 8 ? 8 : size);
  *info = size;
  return info;
}

// What is asked of a thing by its index: into a struct of any size, which must stay what it was.
struct question {
  int32_t index;
  uint64_t size, *info;
};

static struct question begin_question(struct bytes *in, const char *what, int32_t count, uint64_t bytes) {
  struct question q = {.index = some_index(in, count)};
  q.info = some_struct(in, bytes);
  q.size = *q.info;
  now.legal = q.index >= 0 && q.index < count && q.size == bytes;
  before_call(what);
  return q;
}

static bool end_question(const struct question *q, libgemm_status status) {
  bool worked = after_call(status);
  REQUIRE(*q->info == q->size, "the size was changed to %llu", (unsigned long long)*q->info);
  return worked;
}

static void ask_variant(struct bytes *in) {
  struct question q = begin_question(in, "libgemm_variant_get", row_count, sizeof(libgemm_variant_info));
  libgemm_variant_info *info = (libgemm_variant_info *)q.info;
  bool worked = end_question(&q, libgemm_variant_get(q.index, info));
  if (worked && q.size >= 16) REQUIRE(strcmp(info->name, rows[q.index].name) == 0);
  free(info);
}

static void ask_target(struct bytes *in) {
  struct question q = begin_question(in, "libgemm_target_get", target_count, sizeof(libgemm_target_info));
  libgemm_target_info *info = (libgemm_target_info *)q.info;
  bool worked = end_question(&q, libgemm_target_get(q.index, info));
  if (worked && q.size >= 12) REQUIRE(info->target == targets[q.index].target);
  free(info);
}

static void ask_cubin(struct bytes *in) {
  int32_t index = some_index(in, row_count);
  bool exists = index >= 0 && index < row_count;
  uint64_t bytes = exists && pick(in, 4) < 3 ? rows[index].cubin_bytes : (uint64_t)byte(in) * byte(in);
  unsigned char *buffer = malloc(bytes + !bytes);
  now.legal = exists && bytes == rows[index].cubin_bytes;
  before_call("libgemm_variant_cubin");
  if (after_call(libgemm_variant_cubin(index, rarely(in, 16) && !now.legal ? NULL : buffer, bytes))) {
    uint64_t sections;
    memcpy(&sections, buffer + 40, sizeof sections);
    REQUIRE(now.legal && memcmp(buffer, "\177ELF", 4) == 0 && sections + 3 * 64 == bytes, "a torn cubin");
  }
  free(buffer);
}

static void load_all(struct bytes *in) {
  int32_t gpu = rarely(in, 2) ? some_word(in) : (int32_t)pick(in, GPUS);
  now.legal = gpu >= 0 && gpu < GPUS - 1;
  before_call("libgemm_preload");
  after_call(libgemm_preload(gpu));
}

// Sizes from 8 bytes, which the size itself takes, to those of a newer header.
static void begin_structs(struct bytes *in) {
  uint64_t size = 8 + (uint64_t)byte(in) * (1 + pick(in, 4));
  uint64_t *struct_of_any = malloc(size);
  REQUIRE(struct_of_any);
  switch (pick(in, 3)) {
    case 0: libgemm_gemm_args_init((libgemm_gemm_args *)struct_of_any, size); break;
    case 1: libgemm_grouped_mm_args_init((libgemm_grouped_mm_args *)struct_of_any, size); break;
    default: libgemm_grouped_gemm_args_init((libgemm_grouped_gemm_args *)struct_of_any, size); break;
  }
  REQUIRE(*struct_of_any == size);
  free(struct_of_any);
}

static void ask_words(struct bytes *in) {
  int32_t status = some_word(in);
  uint64_t bytes = 0;
  REQUIRE(libgemm_status_name(status)[0] && libgemm_status_text(status)[0]);
  REQUIRE(strlen(libgemm_manifest(&bytes)) == bytes && libgemm_manifest(NULL));
  REQUIRE(libgemm_variant_count() == row_count && libgemm_target_count() == target_count);
}

// Every pointer that must not be NULL.
static void give_nothing(void) {
  libgemm_gemm_args dense;
  libgemm_grouped_mm_args packed;
  libgemm_grouped_gemm_args pointers;
  libgemm_choice choice = {.size = sizeof choice};
  uint64_t bytes = 0;
  libgemm_gemm_args_init(&dense, sizeof dense);
  libgemm_grouped_mm_args_init(&packed, sizeof packed);
  libgemm_grouped_gemm_args_init(&pointers, sizeof pointers);
  dense.a_type = dense.d_type = packed.a_type = packed.d_type = pointers.a_type = pointers.d_type = LIBGEMM_BF16;
  before_call("a call without a struct");
  const libgemm_status statuses[] = {
      libgemm_python_init(NULL, NULL, NULL, NULL, NULL),
      libgemm_gemm(NULL),
      libgemm_gemm_workspace(NULL, &bytes),
      libgemm_gemm_workspace(&dense, NULL),
      libgemm_gemm_explain(NULL, 90, &choice),
      libgemm_gemm_explain(&dense, 90, NULL),
      libgemm_grouped_mm(NULL),
      libgemm_grouped_mm_workspace(NULL, &bytes),
      libgemm_grouped_mm_workspace(&packed, NULL),
      libgemm_grouped_mm_explain(NULL, 90, &choice),
      libgemm_grouped_mm_explain(&packed, 90, NULL),
      libgemm_grouped_gemm(NULL),
      libgemm_grouped_gemm_workspace(NULL, &bytes),
      libgemm_grouped_gemm_workspace(&pointers, NULL),
      libgemm_grouped_gemm_explain(NULL, 90, &choice),
      libgemm_grouped_gemm_explain(&pointers, 90, NULL),
      libgemm_variant_get(0, NULL),
      libgemm_variant_cubin(0, NULL, 1),
      libgemm_target_get(0, NULL),
  };
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
    REQUIRE(now.bogus || statuses[i] == LIBGEMM_INVALID_ARGUMENT, "call %zu took it", i);
  after_call(LIBGEMM_INVALID_ARGUMENT);
}

void try_queries(struct bytes *in) {
  switch (pick(in, 7)) {
    case 0: ask_variant(in); break;
    case 1: ask_target(in); break;
    case 2: ask_cubin(in); break;
    case 3: load_all(in); break;
    case 4: begin_structs(in); break;
    case 5: give_nothing(); break;
    default: ask_words(in); break;
  }
}
