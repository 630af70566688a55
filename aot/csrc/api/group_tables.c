/* group_tables.c: the tables of the call over arrays of pointers. Those in device memory go to the kernel as they are;
 * those in host memory are looked through, entry by entry, and copied to the workspace. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static bool reads_c(const libgemm_grouped_gemm_args *a) { return a->beta != 0.0f; }
static bool reads_ab(const libgemm_grouped_gemm_args *a, int64_t g) { return a->k[g] > 0 && a->alpha != 0.0f; }
static bool is_empty(const libgemm_grouped_gemm_args *a, int64_t g) { return a->m[g] == 0 || a->n[g] == 0; }

struct table {
  const char *name;
  const void *data;
  CUdeviceptr *place;
  bool read;
};

/* The tables in the workspace's order, each with the call field that points to it. */
static void list_tables(const libgemm_grouped_gemm_args *a, struct call *call, struct table out[TABLE_COUNT]) {
  const struct table tables[TABLE_COUNT] = {{"a", a->a, &call->a_ptrs, true},
                                            {"b", a->b, &call->b_ptrs, true},
                                            {"c", a->c, &call->c_ptrs, reads_c(a)},
                                            {"d", a->d, &call->d_ptrs, true},
                                            {"bias", a->bias, &call->bias_ptrs, a->bias != NULL},
                                            {"m", a->m, &call->group_m, true},
                                            {"n", a->n, &call->group_n, true},
                                            {"k", a->k, &call->group_k, true},
                                            {"lda", a->lda, &call->group_lda, true},
                                            {"ldb", a->ldb, &call->group_ldb, true},
                                            {"ldc", a->ldc, &call->group_ldc, reads_c(a)},
                                            {"ldd", a->ldd, &call->group_ldd, true}};
  memcpy(out, tables, sizeof tables);
}

/* Name an argument of one group, "a[3]". */
static const char *entry_name(char out[32], const char *table, int64_t g) {
  snprintf(out, 32, "%s[%lld]", table, (long long)g);
  return out;
}

static libgemm_status check_group_sizes(const libgemm_grouped_gemm_args *a, int64_t g) {
  char name[32];
  const struct {
    const char *table;
    int64_t value;
  } sizes[] = {{"m", a->m[g]}, {"n", a->n[g]}, {"k", a->k[g]}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].value < 0 || sizes[i].value > LIBGEMM_MAX_SIZE)
      return fail(LIBGEMM_INVALID_ARGUMENT, "%s = %lld: allowed is 0 to %d", entry_name(name, sizes[i].table, g),
                  (long long)sizes[i].value, LIBGEMM_MAX_SIZE);
  if (is_empty(a, g)) return LIBGEMM_OK;
  if (reads_ab(a, g)) {
    TRY(check_ld(entry_name(name, "lda", g), a->lda[g], a->trans_a ? a->m[g] : a->k[g], a->trans_a ? "m" : "k"));
    TRY(check_ld(entry_name(name, "ldb", g), a->ldb[g], a->trans_b ? a->k[g] : a->n[g], a->trans_b ? "k" : "n"));
  }
  if (reads_c(a)) TRY(check_ld(entry_name(name, "ldc", g), a->ldc[g], a->n[g], "n"));
  TRY(check_ld(entry_name(name, "ldd", g), a->ldd[g], a->n[g], "n"));
  if (reads_c(a) && a->c[g] == a->d[g] && a->ldc[g] != a->ldd[g])
    return fail(LIBGEMM_INVALID_ARGUMENT, "c[%lld] == d[%lld] with ldc = %lld, ldd = %lld: equal strides are needed",
                (long long)g, (long long)g, (long long)a->ldc[g], (long long)a->ldd[g]);
  return LIBGEMM_OK;
}

libgemm_status check_tables(const libgemm_grouped_gemm_args *a) {
  struct call call = {0};
  struct table tables[TABLE_COUNT];
  list_tables(a, &call, tables);
  for (int i = 0; i < TABLE_COUNT && a->groups; i++)
    if (tables[i].read && !tables[i].data)
      return fail(LIBGEMM_INVALID_ARGUMENT, "table %s is NULL: %lld entries are needed", tables[i].name,
                  (long long)a->groups);
  for (int64_t g = 0; a->host_tables && g < a->groups; g++) TRY(check_group_sizes(a, g));
  return LIBGEMM_OK;
}

bool tables_are_empty(const libgemm_grouped_gemm_args *a) {
  if (!a->host_tables) return a->groups == 0;
  for (int64_t g = 0; g < a->groups; g++)
    if (!is_empty(a, g)) return false;
  return true;
}

void average_sizes(const libgemm_grouped_gemm_args *a, struct problem *p) {
  double m = 0, n = 0, k = 0; /* sums of 65,535 sizes */
  int64_t count = 0;
  for (int64_t g = 0; g < a->groups; g++) {
    if (is_empty(a, g)) continue;
    m += (double)a->m[g];
    n += (double)a->n[g];
    k += (double)a->k[g];
    count++;
  }
  p->count = count ? count : 1;
  p->rows = count ? (int64_t)(m / (double)count) : 1;
  p->n = count ? (int64_t)(n / (double)count) : 1;
  p->k = k >= (double)p->count ? (int64_t)(k / (double)p->count) : 1;
}

/* Without a product (k = 0 or alpha = 0) D is written all the same, so its part counts. */
bool tables_are_aligned(const libgemm_grouped_gemm_args *a) {
  int64_t step = 16 / dtype_bytes(a->a_type), sizes = 0;
  uint64_t pointers = 0;
  if (!a->host_tables) return a->aligned;
  for (int64_t g = 0; g < a->groups; g++) {
    if (is_empty(a, g)) continue;
    pointers |= (uint64_t)a->d[g];
    sizes |= a->n[g] | a->ldd[g];
    if (reads_c(a)) {
      pointers |= (uint64_t)a->c[g];
      sizes |= a->ldc[g];
    }
    if (reads_ab(a, g)) {
      pointers |= (uint64_t)a->a[g] | (uint64_t)a->b[g];
      sizes |= a->k[g] | a->lda[g] | a->ldb[g] | (a->trans_a ? a->m[g] : 0);
    }
  }
  return pointers % 16 == 0 && (sizes & (step - 1)) == 0;
}

bool tables_are_addressable(const libgemm_grouped_gemm_args *a) {
  int64_t far = ((int64_t)1 << 40) / dtype_bytes(a->a_type);
  for (int64_t g = 0; a->host_tables && g < a->groups; g++)
    if (!is_empty(a, g) && reads_ab(a, g) && (a->lda[g] >= far || a->ldb[g] >= far)) return false;
  return true;
}

libgemm_status tables_device(const libgemm_grouped_gemm_args *a, const struct device **device) {
  int ordinal = a->device;
  char name[32];
  if (ordinal == -1 && !a->host_tables) TRY(device_of("d", (CUdeviceptr)a->d, &ordinal));
  for (int64_t g = 0; ordinal == -1 && g < a->groups; g++)
    if (!is_empty(a, g)) TRY(device_of(entry_name(name, "d", g), (CUdeviceptr)a->d[g], &ordinal));
  return device_get(ordinal, device);
}

static libgemm_status check_entry(const char *table, int64_t g, const void *pointer, int32_t type,
                                  const struct device *device) {
  char name[32];
  entry_name(name, table, g);
  return check_array(name, pointer, (uint64_t)dtype_bytes(type), device);
}

static libgemm_status check_group_pointers(const libgemm_grouped_gemm_args *a, int64_t g, const struct device *device) {
  if (is_empty(a, g)) return LIBGEMM_OK;
  if (reads_ab(a, g)) {
    TRY(check_entry("a", g, a->a[g], a->a_type, device));
    TRY(check_entry("b", g, a->b[g], a->a_type, device));
    if (a->d[g] == a->a[g] || a->d[g] == a->b[g])
      return fail(LIBGEMM_INVALID_ARGUMENT,
                  "d[%lld] == %s[%lld] = %p: D is written while A and B are read; only C may be the same matrix",
                  (long long)g, a->d[g] == a->a[g] ? "a" : "b", (long long)g, a->d[g]);
  }
  if (reads_c(a)) TRY(check_entry("c", g, a->c[g], a->d_type, device));
  if (a->bias) TRY(check_entry("bias", g, a->bias[g], a->d_type, device));
  return check_entry("d", g, a->d[g], a->d_type, device);
}

uint64_t table_workspace(const libgemm_grouped_gemm_args *a) {
  return a->host_tables ? (uint64_t)a->groups * TABLE_COUNT * sizeof(int64_t) : 0;
}

CUdeviceptr scratch_place(const libgemm_grouped_gemm_args *a) {
  CUdeviceptr end = (CUdeviceptr)a->workspace + table_workspace(a);
  return (end + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

static libgemm_status check_table_workspace(const libgemm_grouped_gemm_args *a, const struct device *device) {
  uint64_t needed = table_workspace(a);
  if (needed == 0 && (!a->workspace || !a->workspace_bytes)) return LIBGEMM_OK;
  if (a->workspace_bytes < needed || !a->workspace)
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "workspace_bytes = %llu, workspace = %p: %llu bytes of device memory are "
                "needed (libgemm_grouped_gemm_workspace)",
                (unsigned long long)a->workspace_bytes, a->workspace, (unsigned long long)needed);
  if ((uint64_t)a->workspace % 16)
    return fail(LIBGEMM_INVALID_ARGUMENT, "workspace = %p: a multiple of 16 is needed", a->workspace);
  return check_pointer("workspace", (CUdeviceptr)a->workspace, device);
}

libgemm_status check_table_pointers(const libgemm_grouped_gemm_args *a, const struct device *device) {
  if (!a->host_tables) {
    struct call call = {0};
    struct table tables[TABLE_COUNT];
    list_tables(a, &call, tables);
    for (int i = 0; i < TABLE_COUNT; i++) {
      if (tables[i].read) TRY(check_array(tables[i].name, tables[i].data, sizeof(int64_t), device));
    }
    return check_table_workspace(a, device);
  }
  int capturing = 0;
  TRY_CUDA("cuStreamIsCapturing", device->driver->stream_is_capturing(a->stream, &capturing));
  if (capturing != CU_STREAM_CAPTURE_STATUS_NONE)
    return fail(LIBGEMM_UNSUPPORTED,
                "host_tables = 1 while the stream is captured: a replay would read host memory "
                "that may be gone; keep the tables in device memory");
  for (int64_t g = 0; g < a->groups; g++) TRY(check_group_pointers(a, g, device));
  return check_table_workspace(a, device);
}

libgemm_status place_tables(const libgemm_grouped_gemm_args *a, const struct device *device, struct call *call) {
  size_t table_bytes = (size_t)a->groups * sizeof(int64_t);
  struct table tables[TABLE_COUNT];
  list_tables(a, call, tables);
  for (int i = 0; i < TABLE_COUNT; i++)
    if (tables[i].read)
      *tables[i].place =
          a->host_tables ? (CUdeviceptr)a->workspace + (size_t)i * table_bytes : (CUdeviceptr)tables[i].data;
  if (!a->host_tables) return LIBGEMM_OK;
  char *staging = calloc(TABLE_COUNT, table_bytes);
  if (!staging)
    return fail(LIBGEMM_OUT_OF_MEMORY, "no host memory to stage the tables of %lld groups", (long long)a->groups);
  for (int i = 0; i < TABLE_COUNT; i++)
    if (tables[i].read) memcpy(staging + (size_t)i * table_bytes, tables[i].data, table_bytes);
  /* From pageable memory the driver has staged the bytes before it returns, so `staging` can be freed at once. */
  CUresult result =
      device->driver->memcpy_htod_async((CUdeviceptr)a->workspace, staging, TABLE_COUNT * table_bytes, a->stream);
  free(staging);
  TRY_CUDA("cuMemcpyHtoDAsync", result);
  return LIBGEMM_OK;
}
