// operations.c: what the three operations have in common: fields that input spoils, and how their calls are made.
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

// ---- The three ----

// A pointer to a function may only be called as what the function is, so each call has one that takes any struct.
#define OPERATION(op)                                                                            \
  static libgemm_status op##_call(const void *args) { return libgemm_##op(args); }               \
  static libgemm_status op##_workspace(const void *args, uint64_t *bytes) {                      \
    return libgemm_##op##_workspace(args, bytes);                                                \
  }                                                                                              \
  static libgemm_status op##_explain(const void *args, int32_t target, libgemm_choice *choice) { \
    return libgemm_##op##_explain(args, target, choice);                                         \
  }
#define CALLS_OF(op)                                                          \
  .call_name = "libgemm_" #op, .workspace_name = "libgemm_" #op "_workspace", \
  .explain_name = "libgemm_" #op "_explain", .call = op##_call, .workspace = op##_workspace, .explain = op##_explain

OPERATION(gemm)
OPERATION(grouped_mm)
OPERATION(grouped_gemm)

// Inputs choose fields by their place and number here: where either changes, the corpus means other calls.
#define AT(field) offsetof(libgemm_gemm_args, field)
const struct operation dense_operation = {
    CALLS_OF(gemm),
    .numbers = {AT(m), AT(n), AT(k), AT(batch), AT(lda), AT(ldb), AT(ldc), AT(ldd), AT(batch_stride_a),
                AT(batch_stride_b), AT(batch_stride_c), AT(batch_stride_d), AT(batch_stride_bias), AT(workspace_bytes)},
    .words = {AT(a_type), AT(d_type), AT(trans_a), AT(trans_b), AT(precision), AT(activation), AT(batch_invariant),
              AT(reserved), AT(b_type), AT(scaling)},
    .pointers = {AT(a), AT(b), AT(c), AT(d), AT(bias), AT(workspace), AT(a_scale), AT(b_scale)},
    .floats = {AT(beta), AT(alpha)},
};
#undef AT

#define AT(field) offsetof(libgemm_grouped_mm_args, field)
const struct operation packed_operation = {
    CALLS_OF(grouped_mm),
    .numbers = {AT(m), AT(n), AT(k), AT(groups), AT(lda), AT(ldb), AT(ldc), AT(ldd), AT(batch_stride_a),
                AT(batch_stride_b), AT(batch_stride_c), AT(batch_stride_d), AT(batch_stride_bias), AT(workspace_bytes)},
    .words = {AT(a_type), AT(d_type), AT(trans_a), AT(trans_b), AT(precision), AT(activation), AT(offs_format),
              AT(shared_b), AT(ragged), AT(zero_tail), AT(b_type), AT(scaling), AT(batch_invariant), AT(reserved)},
    .pointers = {AT(a), AT(b), AT(c), AT(d), AT(bias), AT(offs), AT(workspace), AT(a_scale), AT(b_scale)},
    .floats = {AT(beta), AT(alpha)},
};
#undef AT

// Its pointers are the tables, which `spoil` may not touch: host tables are read, so pointers.c has its own way.
#define AT(field) offsetof(libgemm_grouped_gemm_args, field)
const struct operation pointers_operation = {
    CALLS_OF(grouped_gemm),
    .numbers = {AT(groups), AT(expected_m), AT(expected_n), AT(expected_k), AT(workspace_bytes)},
    .words = {AT(a_type), AT(d_type), AT(trans_a), AT(trans_b), AT(precision), AT(activation), AT(host_tables),
              AT(device), AT(aligned), AT(reserved), AT(b_type), AT(scaling)},
    .pointers = {AT(a), AT(b), AT(c), AT(d), AT(bias), AT(m), AT(n), AT(k), AT(lda), AT(ldb), AT(ldc), AT(ldd),
                 AT(a_scale), AT(b_scale)},
};
#undef AT

// ---- Arguments ----

void pick_types(struct bytes *in, int32_t *a_type, int32_t *d_type, int32_t *precision) {
  unsigned types = pick(in, 8);
  *a_type = types < 6 ? LIBGEMM_BF16 : LIBGEMM_F32;
  *d_type = types < 4 ? LIBGEMM_BF16 : LIBGEMM_F32;
  if (*a_type == LIBGEMM_F32) *precision = 1 + (int32_t)pick(in, 3);
}

// One of the fields at these offsets.
static void *some_field(struct bytes *in, void *args, const uint16_t *offsets) {
  unsigned count = 0;
  while (offsets[count]) count++;
  return (char *)args + offsets[pick(in, count)];
}

// What to write is taken from input before where to, in statements of their own: compilers take the sides of one
// assignment in different orders.
void spoil_number(struct bytes *in, const struct operation *o, void *args) {
  int64_t to = some_limit(in);
  memcpy(some_field(in, args, o->numbers), &to, sizeof to);
}

void spoil_word(struct bytes *in, const struct operation *o, void *args) {
  int32_t to = some_word(in);
  memcpy(some_field(in, args, o->words), &to, sizeof to);
}

void spoil_pointer(struct bytes *in, const struct operation *o, void *args, uint64_t to) {
  memcpy(some_field(in, args, o->pointers), &to, sizeof to);
}

void spoil(struct bytes *in, const struct operation *o, void *args, int gpu) {
  void *field;
  float to;
  switch (pick(in, 5)) {
    case 0:
    case 1: spoil_number(in, o, args); break;
    case 2: spoil_word(in, o, args); break;
    case 3: spoil_pointer(in, o, args, odd_pointer(in, gpu)); break;
    default:
      if (!o->floats[0]) {
        spoil_number(in, o, args);
        break;
      }
      field = some_field(in, args, o->floats);
      to = some_float(in);
      memcpy(field, &to, sizeof to);
  }
}

void make_random(struct bytes *in, void *args, size_t bytes, const char **variant, const libgemm_stream *stream) {
  unsigned char *to = args;
  for (size_t i = sizeof(uint64_t); i < bytes; i++) to[i] = byte(in);
  *variant = NULL; /* a name is read */
  now.bogus = *stream != NULL;
}

void *last_bytes(int gpu, uint64_t bytes) {
  return (void *)(uintptr_t)(place_of(gpu, PLACES) - (bytes + 15) / 16 * 16);
}

void give_asked(const struct operation *o, const void *args, int gpu, void **workspace, uint64_t *workspace_bytes) {
  uint64_t bytes = 0;
  o->workspace(args, &bytes);
  if (bytes > WORKSPACE) return;
  *workspace = bytes ? last_bytes(gpu, bytes) : NULL;
  *workspace_bytes = bytes;
}

// ---- Calls ----

int32_t some_target(struct bytes *in) { return rarely(in, 8) ? (int32_t)some_limit(in) : 0; }

bool ask_workspace(const struct operation *o, const void *given, uint64_t *bytes) {
  const uint64_t unset = 0xA5A5A5A5A5A5A5A5u;
  struct call_facts facts = now;
  *bytes = unset;
  before_call(o->workspace_name);
  bool worked = after_call(o->workspace(given, bytes));
  REQUIRE(*bytes != unset, "*bytes is not set");
  REQUIRE(seen.launches == 0);
  now = facts;
  return worked;
}

const struct row *ask_row(const struct operation *o, const void *given, bool here, int32_t target, uint64_t size) {
  struct call_facts facts = now;
  libgemm_choice *choice = calloc(1, size);
  const struct row *row = NULL;
  REQUIRE(choice);
  choice->size = size;
  now.legal &= here && size >= offsetof(libgemm_choice, expected_us) && target == 0;
  before_call(o->explain_name);
  if (after_call(o->explain(given, target, choice))) {
    REQUIRE(choice->variant >= -1 && choice->variant < row_count && memchr(choice->reason, 0, sizeof choice->reason));
    row = choice->variant < 0 ? NULL : &rows[choice->variant];
  }
  REQUIRE(seen.launches == 0);
  now = facts;
  free(choice);
  return here && target == 0 ? row : NULL;
}

const struct row *ask(struct bytes *in, const struct operation *o, const void *given, bool here) {
  uint64_t bytes;
  int32_t target = some_target(in);
  ask_workspace(o, given, &bytes);
  return ask_row(o, given, here, target, sizeof(libgemm_choice));
}

bool call_works(const struct operation *o, const void *given, const struct row *said) {
  before_call(o->call_name);
  if (!after_call(o->call(given))) {
    call_legally();
    return false;
  }
  REQUIRE(seen.launches <= MOST_LAUNCHES, "%d launches", seen.launches);
  if (!said || seen.launches == 0) return true;
  const struct launch *last = &seen.launch[seen.launches - 1];
  if (seen.launches > 1 && last->row->op == OP_GEMM_SUM) last--; /* what adds up behind a row is nobody's choice */
  REQUIRE(last->row == said, "explain said %s", said->name);
  return true;
}
