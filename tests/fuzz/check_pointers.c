// check_pointers.c: what must hold of the launch of a call over arrays of pointers.
#include <string.h>

#include "pointers.h"

static bool reads_c(const libgemm_grouped_gemm_args *a) { return a->beta != 0.0f; }
static bool reads_ab(const libgemm_grouped_gemm_args *a, int64_t g) { return a->k[g] > 0 && a->alpha != 0.0f; }
static bool is_empty(const libgemm_grouped_gemm_args *a, int64_t g) { return a->m[g] == 0 || a->n[g] == 0; }

static bool all_empty(const libgemm_grouped_gemm_args *a) {
  for (int64_t g = 0; g < a->groups; g++)
    if (!a->host_tables || !is_empty(a, g)) return false;
  return true;
}

int pointers_gpu(const libgemm_grouped_gemm_args *a) {
  if (a->device != -1) return a->device >= 0 && a->device < GPUS ? a->device : -1;
  if (a->host_tables == 0) return owner_of((uint64_t)a->d);
  if (a->host_tables != 1 || !a->d || !a->m || !a->n || a->groups > LIBGEMM_MAX_GROUPS) return -1;
  for (int64_t g = 0; g < a->groups; g++)
    if (!is_empty(a, g)) return owner_of((uint64_t)a->d[g]);
  return -1;
}

static void check_group(const struct launch *l, const libgemm_grouped_gemm_args *a, int64_t g) {
  uint64_t input = (uint64_t)width_of(a->a_type) - 1, element = (uint64_t)width_of(a->d_type) - 1;
  int64_t step = 16 / width_of(a->a_type), sizes = a->n[g] | a->ldd[g], far = ((int64_t)1 << 40) / width_of(a->a_type);
  uint64_t pointers = (uint64_t)a->d[g], low = (uint64_t)a->d[g] & element;
  REQUIRE(owner_of((uint64_t)a->d[g]) == l->device);
  if (reads_c(a)) {
    REQUIRE(owner_of((uint64_t)a->c[g]) == l->device);
    pointers |= (uint64_t)a->c[g], sizes |= a->ldc[g], low |= (uint64_t)a->c[g] & element;
  }
  if (a->bias) REQUIRE(owner_of((uint64_t)a->bias[g]) == l->device);
  if (a->bias) low |= (uint64_t)a->bias[g] & element;
  if (reads_ab(a, g)) {
    REQUIRE(owner_of((uint64_t)a->a[g]) == l->device && owner_of((uint64_t)a->b[g]) == l->device);
    pointers |= (uint64_t)a->a[g] | (uint64_t)a->b[g];
    sizes |= a->k[g] | a->lda[g] | a->ldb[g] | (a->trans_a ? a->m[g] : 0);
    low |= ((uint64_t)a->a[g] | (uint64_t)a->b[g]) & input;
    REQUIRE(!(l->row->guard & GUARD_SCRATCH) || (a->lda[g] < far && a->ldb[g] < far), "%s", l->row->name);
    REQUIRE((a->d[g] != a->a[g] && a->d[g] != a->b[g]), "D is an input");
  }
  if (l->row->guard & GUARD_ALIGN16) REQUIRE(pointers % 16 == 0 && sizes % step == 0, "%s", l->row->name);
  REQUIRE(low == 0, "an element is misaligned");
}

static const char *const names[TABLE_COUNT] = {"a_ptrs",    "b_ptrs",    "c_ptrs",    "d_ptrs",
                                               "bias_ptrs", "group_m",   "group_n",   "group_k",
                                               "group_lda", "group_ldb", "group_ldc", "group_ldd"};

static void check_places(const struct launch *l, const libgemm_grouped_gemm_args *a, struct spans *spans) {
  const void *const tables[TABLE_COUNT] = {a->a, a->b, a->c,   a->d,   a->bias, a->m,
                                           a->n, a->k, a->lda, a->ldb, a->ldc,  a->ldd};
  uint64_t each = (uint64_t)a->groups * 8, workspace = (uint64_t)a->workspace;
  REQUIRE(seen.copies == a->host_tables, "%d copies", seen.copies);
  if (a->host_tables) REQUIRE(seen.copy_to == workspace && seen.copy_bytes == TABLE_COUNT * each);
  for (int i = 0; i < TABLE_COUNT; i++) {
    bool read = i == 2 || i == 10 ? reads_c(a) : tables[i] != NULL;
    uint64_t at = (uint64_t)value(l, names[i]);
    if (!read) REQUIRE(at == 0, "%s", names[i]);
    if (!read) continue;
    if (!a->host_tables) {
      REQUIRE(at == (uint64_t)tables[i] && owner_of(at) == l->device, "%s", names[i]);
      REQUIRE(at % 8 == 0, "%s", names[i]);
      continue;
    }
    use_span(spans, names[i], at, each);
    if (at - workspace + each <= sizeof seen.copied)
      REQUIRE(memcmp(seen.copied + (at - workspace), tables[i], each) == 0, "%s holds something else", names[i]);
  }
}

void check_pointers_launch(const libgemm_grouped_gemm_args *a) {
  if (all_empty(a)) {
    REQUIRE(seen.launches == 0 && seen.copies == 0, "%d launches of nothing", seen.launches);
    return;
  }
  const struct launch *l = &seen.launch[0];
  struct spans spans = spans_of(a->workspace, a->workspace_bytes);
  REQUIRE(seen.launches == 1, "%d launches", seen.launches);
  check_limits(l);
  REQUIRE(l->device == pointers_gpu(a), "GPU %d", l->device);
  check_types(l, a->a_type, a->b_type);
  REQUIRE(l->row->op == OP_GROUPED_GEMM && l->row->d_type == a->d_type);
  REQUIRE(l->row->precision == a->precision && l->row->trans_a == a->trans_a && l->row->trans_b == a->trans_b);
  REQUIRE(value(l, "groups") == a->groups && l->cluster == 1);
  check_scalars(l, a->alpha, a->beta, a->activation, (uint64_t)value(l, "bias_ptrs"));
  check_places(l, a, &spans);
  if (!a->host_tables) REQUIRE(a->aligned || !(l->row->guard & GUARD_ALIGN16), "%s", l->row->name);
  for (int64_t g = 0; a->host_tables && g < a->groups; g++)
    if (!is_empty(a, g)) check_group(l, a, g);
  uint64_t scratch = (uint64_t)value(l, "scratch");
  REQUIRE(l->row->scratch_bytes ? scratch % 128 == 0 : scratch == 0, "scratch %llx", (unsigned long long)scratch);
  use_span(&spans, "scratch", scratch, (uint64_t)l->row->scratch_bytes * l->grid);
  if (spans.count) REQUIRE(owner_of((uint64_t)a->workspace) == l->device, "the workspace is of another GPU");
}
