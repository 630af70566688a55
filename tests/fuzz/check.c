// check.c: what must hold of a launch: limits, matrices where the call says they are, guards met, workspace not
// overrun.
#include <string.h>

#include "fuzz.h"

static bool is_8_bit(int32_t type) { return type == LIBGEMM_E4M3 || type == LIBGEMM_E5M2; }

int width_of(int32_t type) { return type == LIBGEMM_F32 ? 4 : is_8_bit(type) ? 1 : 2; }

void check_types(const struct launch *l, int32_t a_type, int32_t b_type) {
  int32_t b = b_type ? b_type : a_type;
  REQUIRE(l->row->a_type == (a_type == LIBGEMM_E5M2 ? LIBGEMM_E4M3 : a_type), "%s", l->row->name);
  REQUIRE(a_type == b ? a_type != LIBGEMM_E5M2 : is_8_bit(a_type) && is_8_bit(b), "types %d, %d", a_type, b);
  enum pair pair = a_type == LIBGEMM_E5M2 ? PAIR_E5M2_A : b == LIBGEMM_E5M2 ? PAIR_E5M2_B : PAIR_E5M2_NONE;
  REQUIRE(l->row->pair == (has(l, "a_type") ? PAIR_TOLD : pair), "%s", l->row->name);
  if (has(l, "a_type")) REQUIRE(value(l, "a_type") == a_type && value(l, "b_type") == b, "%s", l->row->name);
}

int64_t tiles_along(int64_t extent, int64_t block) { return (extent + block - 1) / block; }

void check_limits(const struct launch *l) {
  enum { THREADS = 1024, HOPPER_SHARED = 232448, AMPERE_SHARED = 166912 };
  REQUIRE(l->row, "a launch of no row's kernel");
  REQUIRE(l->grid >= 1 && l->grid <= INT32_MAX, "grid %u", l->grid);
  REQUIRE(l->block == l->row->warps * 32u && l->block <= THREADS, "block %u", l->block);
  REQUIRE(l->cluster >= 1 && l->cluster <= MOST_CLUSTER && l->grid % l->cluster == 0, "cluster %u", l->cluster);
  REQUIRE(l->shared == l->row->shared_bytes, "shared %u", l->shared);
  REQUIRE(l->shared <= (l->row->target == 90 ? HOPPER_SHARED : AMPERE_SHARED), "shared %u", l->shared);
}

// ---- Matrices ----

struct stored stored_as(const struct operands *o, char operand) {
  static const char *const packed[] = {"acd", "bcd", "ab", ""}; /* by libgemm_ragged: one matrix for all groups */
  REQUIRE(o->ragged >= 0 && o->ragged <= LIBGEMM_RAGGED_NONE, "ragged %d", o->ragged);
  int64_t count = strchr(packed[o->ragged], operand) ? 1 : o->groups;
  int in = width_of(o->a_type), out = width_of(o->d_type);
  bool ta = o->trans_a, tb = o->trans_b;
  switch (operand) {
    case 'a':
      return (struct stored){(uint64_t)o->a, ta ? o->k : o->m, ta ? o->m : o->k, o->lda, count, o->batch_stride_a, in};
    case 'b':
      return (struct stored){(uint64_t)o->b, tb ? o->n : o->k, tb ? o->k : o->n, o->ldb, count, o->batch_stride_b, in};
    case 'c': return (struct stored){(uint64_t)o->c, o->m, o->n, o->ldc, count, o->batch_stride_c, out};
    default: return (struct stored){(uint64_t)o->d, o->m, o->n, o->ldd, count, o->batch_stride_d, out};
  }
}

// What the stand-in's cuTensorMapEncodeTiled writes.
struct map {
  char magic[8];
  uint64_t address, sizes[5], strides[4];
  uint16_t box[5];
  uint8_t steps[5], rank, type, rest[4 + 19];
};
_Static_assert(sizeof(struct map) == 128, "a tensor map");

static const char *name_of(char out[32], const char *before, char operand, const char *after) {
  size_t used = strlen(before);
  memcpy(out, before, used);
  out[used] = operand;
  strcpy(out + used + 1, after);
  return out;
}

// Stored rows from one group's matrix to the next. C's are D's.
static int64_t step_of(const struct launch *l, char operand) {
  char name[32];
  name_of(name, "", operand == 'c' ? 'd' : operand, "_step");
  return has(l, name) ? value(l, name) : 0;
}

static void check_map(const struct launch *l, char operand, const struct stored *s, int tensor) {
  struct map map;
  memcpy(&map, l->maps[tensor], sizeof map);
  const struct box *box = &l->row->boxes[tensor];
  int64_t step = step_of(l, operand), more = s->count > 1 ? s->count - 1 : 0;
  // Of A and B of groups each has its own plane, where each has its own; D's rows are counted over all groups.
  bool planes = box->rank == 3, own = planes && more && step;
  REQUIRE(memcmp(map.magic, "FAKETMAP", 8) == 0 && map.rank == box->rank, "%c has no map", operand);
  REQUIRE(map.address == s->address, "%c at %llx", operand, (unsigned long long)map.address);
  REQUIRE(map.sizes[0] == (uint64_t)s->cols, "%c: %llu columns", operand, (unsigned long long)map.sizes[0]);
  REQUIRE(map.sizes[1] == (uint64_t)(s->rows + (planes ? 0 : more * step)), "%c: %llu rows", operand,
          (unsigned long long)map.sizes[1]);
  if (planes) REQUIRE(map.sizes[2] == (uint64_t)(own ? s->count : 1) && map.box[2] == 1 && map.steps[2] == 1);
  REQUIRE(map.box[0] == box->cols && map.box[1] == box->rows && map.type == box->element, "%c", operand);
  REQUIRE(map.steps[0] == 1 && map.steps[1] == 1);
  if (s->rows > 1) REQUIRE(map.strides[0] == (uint64_t)(s->ld * s->bytes), "%c", operand);
  if (more) REQUIRE((__int128)step * (__int128)map.strides[0] == (__int128)s->stride * s->bytes, "%c", operand);
  if (own) REQUIRE((__int128)map.strides[1] == (__int128)s->stride * s->bytes, "%c", operand);
}

// A and B have one map each. C and D have one for each part of the row's tile; of a width it has no part, no box.
static void check_maps(const struct launch *l, char operand, const struct stored *s) {
  const int first[] = {TENSOR_A, TENSOR_B, TENSOR_C, TENSOR_D, TENSOR_COUNT};
  int found = 0;
  for (int tensor = first[operand - 'a']; tensor < first[operand - 'a' + 1]; tensor++) {
    if (!l->row->boxes[tensor].rows) continue;
    check_map(l, operand, s, tensor);
    found++;
  }
  REQUIRE(found > 0, "%s has no box of %c", l->row->name, operand);
}

void check_stored(const struct launch *l, char operand, const struct stored *s) {
  char name[32];
  bool mapped = has(l, name_of(name, "", operand, "_desc.map"));
  if (mapped) check_maps(l, operand, s);
  if (!has(l, name_of(name, "", operand, "_ptr"))) {
    REQUIRE(mapped, "%s takes no %c", l->signature->entry, operand);
    return;
  }
  REQUIRE((uint64_t)value(l, name) == s->address, "%c at %llx", operand, (unsigned long long)value(l, name));
  int64_t ld = value(l, name_of(name, "ld", operand, ""));
  if (s->rows > 1) REQUIRE(ld == s->ld, "ld%c = %lld", operand, (long long)ld);
  if (s->count < 2) return;
  if (has(l, name_of(name, "batch_stride_", operand, "")))
    REQUIRE(value(l, name) == s->stride, "%s = %lld", name, (long long)value(l, name));
  else
    REQUIRE((__int128)step_of(l, operand) * ld == s->stride, "step of %c", operand);
}

void check_scalars(const struct launch *l, float alpha, float beta, int32_t activation, uint64_t bias) {
  float given = number(l, "alpha");
  REQUIRE(memcmp(&given, &alpha, sizeof given) == 0, "alpha %g", (double)given);
  if (l->row->guard & GUARD_WHOLE) {  // whose kernels read no C
    REQUIRE(beta == 0.0f, "%s, beta %g", l->row->name, (double)beta);
  } else {
    given = number(l, "beta");
    REQUIRE(memcmp(&given, &beta, sizeof given) == 0, "beta %g", (double)given);
  }
  REQUIRE(value(l, "activation") == activation, "%lld", (long long)value(l, "activation"));
  REQUIRE((uint64_t)value(l, has(l, "bias_ptr") ? "bias_ptr" : "bias_ptrs") == bias);
  if (l->row->guard & GUARD_LINEAR) REQUIRE(activation == LIBGEMM_ACTIVATION_NONE, "%s", l->row->name);
}

void check_owners(const struct launch *l, const struct operands *o, const void *bias) {
  REQUIRE(owner_of((uint64_t)o->d) == l->device, "D is of GPU %d", owner_of((uint64_t)o->d));
  if (o->reads_ab) REQUIRE(owner_of((uint64_t)o->a) == l->device && owner_of((uint64_t)o->b) == l->device);
  if (o->reads_c) REQUIRE(owner_of((uint64_t)o->c) == l->device);
  if (bias) REQUIRE(owner_of((uint64_t)bias) == l->device);
  uint64_t element = (uint64_t)width_of(o->d_type) - 1, input = (uint64_t)width_of(o->a_type) - 1;
  uint64_t low = ((uint64_t)o->d | (uint64_t)bias | (o->reads_c ? (uint64_t)o->c : 0)) & element;
  if (o->reads_ab) low |= ((uint64_t)o->a | (uint64_t)o->b) & input;
  REQUIRE(low == 0, "an element is misaligned");
  REQUIRE(!o->reads_ab || (o->d != o->a && o->d != o->b), "D is an input");
}

// ---- Guards ----

// Rows compiled for aligned operands drop the rest of these numbers.
static void check_align16(const struct launch *l, const struct operands *o) {
  int64_t step = 16 / width_of(o->a_type);
  bool k_strided = o->trans_a && !o->trans_b, own_d = o->ragged >= LIBGEMM_RAGGED_K;
  uint64_t pointers = (uint64_t)o->d | (o->reads_ab ? (uint64_t)o->a | (uint64_t)o->b : 0);
  if (o->reads_c) pointers |= (uint64_t)o->c;
  REQUIRE(pointers % 16 == 0, "%s", l->row->name);
  REQUIRE(o->n % step == 0 && (o->m == 1 || o->ldd % step == 0), "%s", l->row->name);
  REQUIRE(!o->trans_a || o->m % step == 0, "%s", l->row->name);
  REQUIRE(o->ragged != LIBGEMM_RAGGED_N && (o->ragged != LIBGEMM_RAGGED_M || !o->trans_a), "%s", l->row->name);
  REQUIRE(!o->reads_c || o->m == 1 || o->ldc % step == 0, "%s", l->row->name);
  int64_t strides = own_d ? o->batch_stride_d | (o->reads_c ? o->batch_stride_c : 0) : 0;
  if (o->reads_ab && o->ragged != LIBGEMM_RAGGED_M && o->ragged != LIBGEMM_RAGGED_K) strides |= o->batch_stride_a;
  if (o->reads_ab && o->ragged != LIBGEMM_RAGGED_N && o->ragged != LIBGEMM_RAGGED_K) strides |= o->batch_stride_b;
  REQUIRE(o->groups < 2 || strides % step == 0, "%s", l->row->name);
  if (!o->reads_ab) return;
  bool whole_k = o->ragged != LIBGEMM_RAGGED_K && o->k % step == 0;
  REQUIRE(whole_k || k_strided, "%s", l->row->name);
  REQUIRE((o->trans_a ? o->k : o->m) == 1 || o->lda % step == 0, "%s", l->row->name);
  REQUIRE((o->trans_b ? o->n : o->k) == 1 || o->ldb % step == 0, "%s", l->row->name);
}

static void check_cuts(const struct launch *l, const struct operands *o) {
  if (l->row->guard & GUARD_ROWS) REQUIRE(o->ragged == LIBGEMM_RAGGED_M && !o->trans_a, "%s", l->row->name);
  if (l->row->guard & GUARD_COLUMNS) REQUIRE(o->ragged == LIBGEMM_RAGGED_N && o->trans_b, "%s", l->row->name);
  if (l->row->guard & GUARD_WHOLE)
    REQUIRE(o->m >= l->row->block_m && o->m % 8 == 0 && !o->reads_c, "%s of %lld rows", l->row->name, (long long)o->m);
  if (l->row->guard & GUARD_EQUAL) {
    bool contiguous = !o->trans_a && o->trans_b, rows = o->trans_a && !o->trans_b; /* K */
    bool cut_k = o->ragged == LIBGEMM_RAGGED_K && (o->a_bytes == 1 ? contiguous : rows);
    REQUIRE(cut_k || o->ragged == LIBGEMM_RAGGED_NONE, "%s", l->row->name);
  }
}

void check_guards(const struct launch *l, const struct operands *o, int32_t activation) {
  unsigned engine = GUARD_DESCRIPTOR | GUARD_DESCRIPTOR_AB;
  if (l->row->guard & GUARD_LINEAR) REQUIRE(activation == LIBGEMM_ACTIVATION_NONE, "%s", l->row->name);
  if (l->row->guard & GUARD_ALIGN16) check_align16(l, o);
  if (l->row->guard & engine) REQUIRE(o->reads_ab && o->k > 0, "%s", l->row->name);
  if (l->row->guard & GUARD_DESCRIPTOR) REQUIRE(o->n * width_of(o->d_type) % 16 == 0, "%s", l->row->name);
  check_cuts(l, o);
}

// ---- Workspace ----

struct spans spans_of(const void *workspace, uint64_t bytes) {
  struct spans s = {(uint64_t)workspace, (uint64_t)workspace + (workspace ? bytes : 0), 0, {{0}}};
  if (s.end < s.begin) s.end = UINT64_MAX;  // the caller says: all there is
  return s;
}

void use_span(struct spans *s, const char *what, uint64_t begin, uint64_t bytes) {
  if (bytes == 0) return;
  REQUIRE(begin >= s->begin && begin <= s->end && bytes <= s->end - begin,
          "%s: %llu bytes at %llx, %llu are given at %llx", what, (unsigned long long)bytes, (unsigned long long)begin,
          (unsigned long long)(s->end - s->begin), (unsigned long long)s->begin);
  for (int i = 0; i < s->count; i++)
    REQUIRE(begin >= s->used[i].end || begin + bytes <= s->used[i].begin, "%s lies on part %d", what, i);
  REQUIRE(s->count < (int)(sizeof s->used / sizeof *s->used));
  s->used[s->count].begin = begin;
  s->used[s->count++].end = begin + bytes;
}

void check_scale_parameters(const struct launch *l, const struct scales *s) {
  bool by_blocks = l->row->guard & GUARD_BLOCKS;  // whose kernels take one kind of scales
  REQUIRE(has(l, "scaling") == (is_8_bit(s->a_type) && !by_blocks), "%s", l->row->name);
  if (!is_8_bit(s->a_type)) return;
  if (by_blocks) REQUIRE(s->scaling == LIBGEMM_SCALING_1X128_128X128, "%s", l->row->name);
  if (!by_blocks)
    REQUIRE(value(l, "scaling") == (s->read ? s->scaling : 0), "scaling %lld", (long long)value(l, "scaling"));
  REQUIRE(!(l->row->guard & GUARD_UNBLOCKED) || s->scaling < LIBGEMM_SCALING_1X128_128X128, "%s", l->row->name);
  REQUIRE((uint64_t)value(l, "a_scale") == (s->read ? (uint64_t)(uintptr_t)s->a_scale : 0));
  REQUIRE((uint64_t)value(l, "b_scale") == (s->read ? (uint64_t)(uintptr_t)s->b_scale : 0));
  if (!s->read || !has(l, "a_scale_stride_m")) return;
  REQUIRE(value(l, "a_scale_stride_m") == s->strides[0] && value(l, "a_scale_stride_k") == s->strides[1]);
  REQUIRE(value(l, "b_scale_stride_n") == s->strides[2] && value(l, "b_scale_stride_k") == s->strides[3]);
}
