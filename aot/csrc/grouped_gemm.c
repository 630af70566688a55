/* grouped_gemm.c: the call over arrays of pointers. Device tables go to the kernel as they are; host tables are checked
 * and copied to the workspace first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { TABLE_COUNT = 12 }; /* a b c d bias m n k lda ldb ldc ldd, each `groups` values of 8 bytes */

void libgemm_grouped_gemm_args_init(libgemm_grouped_gemm_args *args, uint64_t size) {
  libgemm_grouped_gemm_args defaults = {.alpha = 1.0f, .device = -1};
  memset(args, 0, size);
  memcpy(args, &defaults, size < sizeof defaults ? size : sizeof defaults);
  args->size = size;
}

static bool reads_c(const libgemm_grouped_gemm_args *a) { return a->beta != 0.0f; }
static bool reads_ab(const libgemm_grouped_gemm_args *a, int64_t g) { return a->k[g] > 0 && a->alpha != 0.0f; }

struct table {
  const char *name;
  const void *data;
  CUdeviceptr *place;
  bool needed;
};

/* The tables in the workspace's order, each with the call field that points to it. */
static void list_tables(const libgemm_grouped_gemm_args *a, struct call *call, struct table out[TABLE_COUNT]) {
  const struct table tables[TABLE_COUNT] = {{"a", a->a, &call->a_ptrs, true},
                                            {"b", a->b, &call->b_ptrs, true},
                                            {"c", a->c, &call->c_ptrs, reads_c(a)},
                                            {"d", a->d, &call->d_ptrs, true},
                                            {"bias", a->bias, &call->bias_ptrs, false},
                                            {"m", a->m, &call->group_m, true},
                                            {"n", a->n, &call->group_n, true},
                                            {"k", a->k, &call->group_k, true},
                                            {"lda", a->lda, &call->group_lda, true},
                                            {"ldb", a->ldb, &call->group_ldb, true},
                                            {"ldc", a->ldc, &call->group_ldc, reads_c(a)},
                                            {"ldd", a->ldd, &call->group_ldd, true}};
  memcpy(out, tables, sizeof tables);
}

static libgemm_status check_args(const libgemm_grouped_gemm_args *args, libgemm_grouped_gemm_args *a,
                                 struct problem *p) {
  TRY(read_args(args, sizeof *a, a, sizeof *a, "libgemm_grouped_gemm_args"));
  *p = (struct problem){.op = OP_GROUPED_GEMM,
                        .a_type = a->a_type,
                        .d_type = a->d_type,
                        .precision = a->precision,
                        .trans_a = a->trans_a,
                        .trans_b = a->trans_b,
                        .activation = a->activation,
                        .count = a->groups,
                        .rows = 1,
                        .n = 1,
                        .variant = a->variant};
  TRY(check_problem(p));
  if (a->groups < 0 || a->groups > LIBGEMM_MAX_GROUPS)
    return fail(LIBGEMM_INVALID_ARGUMENT, "groups = %lld: allowed is 0 to %d", (long long)a->groups,
                LIBGEMM_MAX_GROUPS);
  if (a->host_tables < 0 || a->host_tables > 1)
    return fail(LIBGEMM_INVALID_ARGUMENT, "host_tables = %d: allowed is 0 or 1", a->host_tables);
  if (a->groups == 0) return LIBGEMM_OK;
  struct call call = {0};
  struct table tables[TABLE_COUNT];
  list_tables(a, &call, tables);
  for (int i = 0; i < TABLE_COUNT; i++)
    if (tables[i].needed && !tables[i].data)
      return fail(LIBGEMM_INVALID_ARGUMENT, "table %s is NULL: %lld entries are needed", tables[i].name,
                  (long long)a->groups);
  return LIBGEMM_OK;
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
  if (a->m[g] == 0 || a->n[g] == 0) return LIBGEMM_OK;
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

static libgemm_status check_group_pointers(const libgemm_grouped_gemm_args *a, int64_t g, const struct device *device) {
  char name[32];
  if (a->m[g] == 0 || a->n[g] == 0) return LIBGEMM_OK;
  if (reads_ab(a, g)) {
    TRY(check_pointer(entry_name(name, "a", g), (CUdeviceptr)a->a[g], device));
    TRY(check_pointer(entry_name(name, "b", g), (CUdeviceptr)a->b[g], device));
  }
  if (reads_c(a)) TRY(check_pointer(entry_name(name, "c", g), (CUdeviceptr)a->c[g], device));
  if (a->bias) TRY(check_pointer(entry_name(name, "bias", g), (CUdeviceptr)a->bias[g], device));
  return check_pointer(entry_name(name, "d", g), (CUdeviceptr)a->d[g], device);
}

/* Host tables: check every group before anything is queued. */
static libgemm_status check_groups(const libgemm_grouped_gemm_args *a, const struct device *device) {
  int capturing = 0;
  TRY_CUDA("cuStreamIsCapturing", device->driver->stream_is_capturing(a->stream, &capturing));
  if (capturing != CU_STREAM_CAPTURE_STATUS_NONE)
    return fail(LIBGEMM_UNSUPPORTED,
                "host_tables = 1 while the stream is captured: a replay would read host memory "
                "that may be gone; keep the tables in device memory");
  for (int64_t g = 0; g < a->groups; g++) TRY(check_group_pointers(a, g, device));
  return LIBGEMM_OK;
}

static libgemm_status check_workspace(const libgemm_grouped_gemm_args *a, const struct device *device) {
  uint64_t needed = (uint64_t)a->groups * TABLE_COUNT * sizeof(int64_t);
  if (a->workspace_bytes < needed || !a->workspace)
    return fail(LIBGEMM_INVALID_ARGUMENT,
                "workspace_bytes = %llu, workspace = %p: %llu bytes of device memory are "
                "needed (libgemm_grouped_gemm_workspace)",
                (unsigned long long)a->workspace_bytes, a->workspace, (unsigned long long)needed);
  if ((uint64_t)a->workspace % 16)
    return fail(LIBGEMM_INVALID_ARGUMENT, "workspace = %p: a multiple of 16 is needed", a->workspace);
  return check_pointer("workspace", (CUdeviceptr)a->workspace, device);
}

/* Copy all tables in one transfer and point the call at the copies. */
static libgemm_status upload(const libgemm_grouped_gemm_args *a, const struct device *device, struct call *call) {
  size_t table_bytes = (size_t)a->groups * sizeof(int64_t);
  char *staging = calloc(TABLE_COUNT, table_bytes);
  if (!staging)
    return fail(LIBGEMM_OUT_OF_MEMORY, "no host memory to stage the tables of %lld groups", (long long)a->groups);
  struct table tables[TABLE_COUNT];
  list_tables(a, call, tables);
  for (int i = 0; i < TABLE_COUNT; i++) {
    if (!tables[i].data) continue;
    memcpy(staging + (size_t)i * table_bytes, tables[i].data, table_bytes);
    *tables[i].place = (CUdeviceptr)a->workspace + (size_t)i * table_bytes;
  }
  /* From pageable memory the driver has staged the bytes before it returns, so `staging` can be freed at once. */
  CUresult result =
      device->driver->memcpy_htod_async((CUdeviceptr)a->workspace, staging, TABLE_COUNT * table_bytes, a->stream);
  free(staging);
  TRY_CUDA("cuMemcpyHtoDAsync", result);
  return LIBGEMM_OK;
}

static libgemm_status use_device_tables(const libgemm_grouped_gemm_args *a, const struct device *device,
                                        struct call *call) {
  struct table tables[TABLE_COUNT];
  list_tables(a, call, tables);
  for (int i = 0; i < TABLE_COUNT; i++) {
    if (!tables[i].data || (i != 4 && !tables[i].needed)) continue;
    TRY(check_pointer(tables[i].name, (CUdeviceptr)tables[i].data, device));
    *tables[i].place = (CUdeviceptr)tables[i].data;
  }
  return LIBGEMM_OK;
}

static libgemm_status find_device(const libgemm_grouped_gemm_args *a, const struct device **device) {
  int ordinal = a->device;
  char name[32];
  if (ordinal == -1 && !a->host_tables) TRY(device_of("d", (CUdeviceptr)a->d, &ordinal));
  for (int64_t g = 0; ordinal == -1 && g < a->groups; g++)
    if (a->m[g] && a->n[g]) TRY(device_of(entry_name(name, "d", g), (CUdeviceptr)a->d[g], &ordinal));
  return device_get(ordinal, device);
}

static libgemm_status run(const libgemm_grouped_gemm_args *a, struct problem *p, const struct device *device) {
  const struct row *row;
  struct call call = {.groups = (int32_t)a->groups, .alpha = a->alpha, .beta = a->beta, .activation = a->activation};
  if (a->host_tables) {
    TRY(check_groups(a, device));
    TRY(check_workspace(a, device));
  } else {
    TRY(use_device_tables(a, device, &call));
  }
  TRY(choose(p, device->target, device->multiprocessors, &row));
  TRY(load_row(row, device));
  if (a->host_tables) TRY(upload(a, device, &call));
  return row->launch(row, device, &call, (int64_t)device->multiprocessors * resident_blocks(row, device), a->stream);
}

/* True when host tables show that no group has an element of D. */
static bool all_empty(const libgemm_grouped_gemm_args *a) {
  if (!a->host_tables) return a->groups == 0;
  for (int64_t g = 0; g < a->groups; g++)
    if (a->m[g] && a->n[g]) return false;
  return true;
}

libgemm_status libgemm_grouped_gemm(const libgemm_grouped_gemm_args *args) {
  libgemm_grouped_gemm_args a;
  struct problem problem;
  const struct device *device;
  bool entered;
  TRY(check_args(args, &a, &problem));
  for (int64_t g = 0; a.host_tables && g < a.groups; g++) TRY(check_group_sizes(&a, g));
  if (all_empty(&a)) return LIBGEMM_OK;
  TRY(find_device(&a, &device));
  TRY(enter_device(device, &entered));
  libgemm_status status = run(&a, &problem, device);
  leave_device(device, entered);
  return status;
}

libgemm_status libgemm_grouped_gemm_workspace(const libgemm_grouped_gemm_args *args, uint64_t *bytes) {
  libgemm_grouped_gemm_args a;
  if (!bytes) return fail(LIBGEMM_INVALID_ARGUMENT, "bytes is NULL");
  TRY(read_args(args, sizeof a, &a, sizeof a, "libgemm_grouped_gemm_args"));
  if (a.groups < 0 || a.groups > LIBGEMM_MAX_GROUPS)
    return fail(LIBGEMM_INVALID_ARGUMENT, "groups = %lld: allowed is 0 to %d", (long long)a.groups, LIBGEMM_MAX_GROUPS);
  *bytes = a.host_tables ? (uint64_t)a.groups * TABLE_COUNT * sizeof(int64_t) : 0;
  return LIBGEMM_OK;
}

libgemm_status libgemm_grouped_gemm_explain(const libgemm_grouped_gemm_args *args, int32_t target,
                                            libgemm_choice *choice) {
  libgemm_grouped_gemm_args a;
  struct problem problem;
  const struct target *found;
  const struct row *row = NULL;
  int multiprocessors;
  TRY(check_args(args, &a, &problem));
  TRY(explain_target(target, &found, &multiprocessors));
  if (!all_empty(&a)) TRY(choose(&problem, found, multiprocessors, &row));
  return describe(&problem, found, row, choice);
}
