// fuzz.h: shared by the parts of the fuzz target over calls: input bytes, the world calls live in, and what was seen.
#ifndef FUZZ_H_
#define FUZZ_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fakecuda.h"
#include "internal.h"

// A finding ends the process: with the sentence, what was being called, and libgemm's last words.
_Noreturn void finding(int line, const char *file, const char *broken, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define REQUIRE(condition, ...)                                                 \
  do {                                                                          \
    if (!(condition)) finding(__LINE__, __FILE__, #condition, " " __VA_ARGS__); \
  } while (0)

// ---- Input bytes: the past of the end is zeros, and zero is always the ordinary choice ----

struct bytes {
  const uint8_t *at, *end;
};
uint8_t byte(struct bytes *in);
uint64_t word(struct bytes *in);                     // 8 bytes
unsigned pick(struct bytes *in, unsigned count);     // 0 to count - 1
bool rarely(struct bytes *in, unsigned one_in);      // true for the last of so many
int64_t some_size(struct bytes *in);                 // 1 to a few thousand, often what tiles divide
int64_t some_limit(struct bytes *in);                // a number at some type's or the library's limit, or any
int64_t some_ld(struct bytes *in, int64_t columns);  // at least that
int32_t some_word(struct bytes *in);                 // for an enum or a flag: near the legal ones, or any
float some_float(struct bytes *in);

// ---- The world: GPUs of the stand-in, their memory, and names ----

enum { GPUS = 5, PLACES = 16, PLACE = 1 << 22, WORKSPACE = 8 * PLACE };  // in the last places
// Two GPUs of sm_90, one of sm_80, one of sm_86, which sm_80's kernels serve, and one that nothing serves.
void start_world(void);
uint64_t place_of(int gpu, int place);
int owner_of(uint64_t address);      // -1: no GPU's memory
uint64_t room_at(uint64_t address);  // bytes up to the end of its memory

uint64_t odd_pointer(struct bytes *in, int gpu);  // misaligned, at the end, of another GPU, of the host, wild
const char *some_name(struct bytes *in);          // of a variant, or not
libgemm_stream some_stream(struct bytes *in, int gpu, bool *bogus);
void make_current(struct bytes *in);  // some GPU's context, or none
int current_gpu(void);                // -1: none
bool is_here(int gpu);                // that a query without a target is about this GPU

// ---- What the driver saw of one call ----

enum { MOST_LAUNCHES = 12, MOST_PARAMETERS = 80 };
struct signature {
  const char *entry;
  int count;
  const char *names[MOST_PARAMETERS];
};
extern const struct signature signatures[];
extern const int signature_count;

struct launch {
  const struct row *row;
  const struct signature *signature;
  int device;
  uint32_t grid, block, cluster, shared;
  uint64_t values[MOST_PARAMETERS];
  uint8_t maps[TENSOR_COUNT][128];
};

struct seen {
  int launches, copies;
  struct launch launch[MOST_LAUNCHES];
  uint64_t copy_to, copy_bytes;
  unsigned char copied[TABLE_COUNT * 8 * 64];  // the first bytes
};
extern struct seen seen;
void watch(void);
void forget_seen(void);

bool has(const struct launch *l, const char *name);
int64_t value(const struct launch *l, const char *name);  // a finding where there is no such parameter
float number(const struct launch *l, const char *name);

// ---- Checks of a launch ----

// A matrix as stored: `count` of them, `stride` elements apart.
struct stored {
  uint64_t address;
  int64_t rows, cols, ld, count, stride;
  int bytes;
};
// Operand 'a', 'b', 'c' or 'd' as a call over matrices describes it.
struct stored stored_as(const struct operands *o, char operand);
// That the launch finds each element of the operand there.
void check_stored(const struct launch *l, char operand, const struct stored *described);

// Parts of the workspace: each inside, none on another.
struct spans {
  uint64_t begin, end;
  int count;
  struct {
    uint64_t begin, end;
  } used[TABLE_COUNT + 8];
};
struct spans spans_of(const void *workspace, uint64_t bytes);
void use_span(struct spans *s, const char *what, uint64_t begin, uint64_t bytes);

// What holds of every launch, whatever is computed.
void check_limits(const struct launch *l);
// That the row multiplies A's and B's types, as the call says them, and is told which they are where it asks.
void check_types(const struct launch *l, int32_t a_type, int32_t b_type);
// What a row takes for granted of a call over matrices.
void check_guards(const struct launch *l, const struct operands *o, int32_t activation);
// That what is read and written is the GPU's own, each element where its type may start, and D neither A nor B.
void check_owners(const struct launch *l, const struct operands *o, const void *bias);
void check_scalars(const struct launch *l, float alpha, float beta, int32_t activation, uint64_t bias);
// What a call says of scales, and whether it reads them.
struct scales {
  int32_t a_type, scaling;
  const void *a_scale, *b_scale;
  int64_t strides[4];
  bool read;
};
#define SCALES_OF(args, reads)                                                                  \
  {                                                                                             \
      .a_type = (args)->a_type,                                                                 \
      .scaling = (args)->scaling,                                                               \
      .a_scale = (args)->a_scale,                                                               \
      .b_scale = (args)->b_scale,                                                               \
      .strides = {(args)->a_scale_stride_m, (args)->a_scale_stride_k, (args)->b_scale_stride_n, \
                  (args)->b_scale_stride_k},                                                    \
      .read = (reads) && (args)->scaling,                                                       \
  }
void check_scale_parameters(const struct launch *l, const struct scales *scales);
int width_of(int32_t type);
int64_t tiles_along(int64_t extent, int64_t block);

// ---- Calls ----

struct call_facts {
  const char *what;
  bool legal;           // the header promises that this call works
  bool bogus;           // a stream that is none, or a failure that was ordered of the driver
  const char *failure;  // which; NULL for none
  bool capturing;       // every stream is
  bool chained;         // it makes other calls, of which those before a refused one are queued
};
extern struct call_facts now;

// Begin one library call; end it: what must hold after any. True where it worked.
void before_call(const char *what);
bool after_call(libgemm_status status);

// A copy of an argument struct in memory of exactly the size that it says, as old and new callers have it; `mine`
// becomes what the library may see of it.
void *as_caller(struct bytes *in, void *mine, uint64_t bytes);

// An operation: its calls, NULL where it has no such, and where its arguments have the fields that input spoils:
// offsets, 0 ends.
struct operation {
  const char *call_name, *workspace_name, *explain_name;
  libgemm_status (*call)(const void *args);
  libgemm_status (*workspace)(const void *args, uint64_t *bytes);
  libgemm_status (*explain)(const void *args, int32_t target, libgemm_choice *choice);
  uint16_t numbers[20], words[15], pointers[TABLE_COUNT + 3], floats[3];
};
extern const struct operation dense_operation, packed_operation, pointers_operation;

// 8-bit operands, of the types that go together, without scales or with those of the first `kinds` ways.
#define NARROW(in, a, gpu, kinds)                                                                           \
  do {                                                                                                      \
    (a)->a_type = (a)->n % 3 == 1 ? LIBGEMM_E5M2 : LIBGEMM_E4M3;                                            \
    (a)->b_type = (a)->n % 3 == 1 ? LIBGEMM_E4M3 : (a)->n % 3 == 2 ? LIBGEMM_E5M2 : 0;                      \
    (a)->precision = pick(in, 2) ? LIBGEMM_FAST : LIBGEMM_EXACT;                                            \
    (a)->scaling = (int32_t)pick(in, (a)->precision == LIBGEMM_FAST ? 3 : (kinds));                         \
    if ((a)->scaling == LIBGEMM_SCALING_NONE) break;                                                        \
    (a)->a_scale_stride_m = pick(in, 2) ? 1 : (a)->k / 128 + 1;                                             \
    (a)->a_scale_stride_k = pick(in, 2) ? 1 : (a)->m;                                                       \
    (a)->b_scale_stride_n = pick(in, 2) ? 1 : (a)->k / 128 + 1;                                             \
    (a)->b_scale_stride_k = pick(in, 2) ? 1 : (a)->n;                                                       \
    (a)->a_scale = (void *)(uintptr_t)place_of(gpu, 5), (a)->b_scale = (void *)(uintptr_t)place_of(gpu, 6); \
    (a)->batch_stride_a_scale = pick(in, 2) ? (a)->m : 0;                                                   \
    (a)->batch_stride_b_scale = pick(in, 2) ? (a)->n : 0;                                                   \
  } while (0)

void pick_types(struct bytes *in, int32_t *a_type, int32_t *d_type, int32_t *precision);
void spoil(struct bytes *in, const struct operation *o, void *args, int gpu);  // one field of any kind
void spoil_number(struct bytes *in, const struct operation *o, void *args);
void spoil_word(struct bytes *in, const struct operation *o, void *args);
void spoil_pointer(struct bytes *in, const struct operation *o, void *args, uint64_t to);
// Any bytes after the size, but for the name.
void make_random(struct bytes *in, void *args, size_t bytes, const char **variant, const libgemm_stream *stream);
void *last_bytes(int gpu, uint64_t bytes);  // so many up to the end of the memory, and up to 15 more
// Just what the library asks for, there.
void give_asked(const struct operation *o, const void *args, int gpu, void **workspace, uint64_t *workspace_bytes);

// The two queries before a call. The row is the one that explain names for D's GPU; NULL for none, or another GPU's.
int32_t some_target(struct bytes *in);
bool ask_workspace(const struct operation *o, const void *given, uint64_t *bytes);  // true where it worked
const struct row *ask_row(const struct operation *o, const void *given, bool here, int32_t target, uint64_t size);
const struct row *ask(struct bytes *in, const struct operation *o, const void *given, bool here);
// Make the call, which launches the row that explain said, if any. A refused one is followed by one that works.
bool call_works(const struct operation *o, const void *given, const struct row *said);

// That the launch copies A or B, as stored, to the workspace. `matrices` become what stands there afterwards.
void check_copier(const struct launch *l, int32_t a_type, struct stored matrices[2], struct spans *spans,
                  bool turned[2]);
// What dense.c judges, for a call that comes to the same.
void check_dense(const libgemm_gemm_args *a);
// `last` is the call before, of the same input.
void try_dense(struct bytes *in, libgemm_gemm_args *last);
void try_packed(struct bytes *in, libgemm_grouped_mm_args *last);
void try_pointers(struct bytes *in);
void try_layers(struct bytes *in);
void try_queries(struct bytes *in);
void call_legally(void);  // a small call that must work at any time

#endif
