/* grouped_gemm.c: the call over arrays of pointers. Its tables are group_tables.c's. */
#include <stddef.h>
#include <string.h>

#include "internal.h"

void libgemm_grouped_gemm_args_init(libgemm_grouped_gemm_args *args, uint64_t size) {
  libgemm_grouped_gemm_args defaults = {.alpha = 1.0f, .device = -1};
  init_args(args, size, &defaults, sizeof defaults);
}

static libgemm_status read_words(const libgemm_grouped_gemm_args *args, libgemm_grouped_gemm_args *a) {
  TRY(read_args(args, offsetof(libgemm_grouped_gemm_args, aligned), a, sizeof *a, "libgemm_grouped_gemm_args"));
  return check_range("groups", a->groups, 0, LIBGEMM_MAX_GROUPS);
}

/* What the choice goes by: the sizes of host tables, else what the caller expects, else one tile with one step in K. */
static libgemm_status expect_sizes(const libgemm_grouped_gemm_args *a, struct problem *p) {
  const struct {
    const char *name;
    int64_t value;
  } sizes[] = {{"expected_m", a->expected_m}, {"expected_n", a->expected_n}, {"expected_k", a->expected_k}};
  bool known = true;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    TRY(check_range(sizes[i].name, sizes[i].value, 0, LIBGEMM_MAX_SIZE));
    known &= sizes[i].value > 0;
  }
  p->count = a->groups;
  p->rows = p->n = p->k = 1;
  if (a->host_tables) {
    average_sizes(a, p);
  } else if (known) {
    p->rows = a->expected_m;
    p->n = a->expected_n;
    p->k = a->expected_k;
  }
  return LIBGEMM_OK;
}

/* Of two types there is no variant, not even of those that the other operations multiply. */
static libgemm_status check_b_type(const libgemm_grouped_gemm_args *a) {
  if (a->b_type == 0 || a->b_type == a->a_type) return LIBGEMM_OK;
  if (!is_dtype(a->b_type))
    return fail(LIBGEMM_INVALID_ARGUMENT, "b_type = %d: allowed are 0, for a_type, and a_type itself (%d)", a->b_type,
                a->a_type);
  return fail(LIBGEMM_UNSUPPORTED,
              "b_type = %d (%s) with a_type %s: no variant multiplies two types by arrays of pointers", a->b_type,
              dtype_name(a->b_type), dtype_name(a->a_type));
}

static libgemm_status check_args(const libgemm_grouped_gemm_args *args, libgemm_grouped_gemm_args *a,
                                 struct problem *p) {
  TRY(read_words(args, a));
  STATE_PROBLEM(p, OP_GROUPED_GEMM, a);
  TRY(check_problem(p));
  TRY(check_b_type(a));
  TRY(CHECK_SCALING(a));
  TRY(check_range("host_tables", a->host_tables, 0, 1));
  TRY(check_range("aligned", a->aligned, 0, 1));
  TRY(check_tables(a));
  TRY(expect_sizes(a, p));
  p->met = tables_are_aligned(a) ? GUARD_ALIGN16 : 0;
  if (a->workspace && a->workspace_bytes > table_workspace(a))
    p->workspace_bytes = a->workspace_bytes - table_workspace(a);
  if (!tables_are_addressable(a)) p->workspace_bytes = 0; /* so that no row makes descriptors */
  return LIBGEMM_OK;
}

static libgemm_status run(const libgemm_grouped_gemm_args *a, struct problem *p, const struct device *device) {
  struct choice chosen;
  struct call call = {.groups = (int32_t)a->groups, .alpha = a->alpha, .beta = a->beta, .activation = a->activation};
  TRY(check_table_pointers(a, device));
  TRY(choose_on(p, &device->gpu, &chosen));
  const struct row *row = chosen.row;
  TRY(load_row(row, device));
  TRY(place_tables(a, device, &call));
  if (row->scratch_bytes) call.scratch = scratch_place(a);
  int blocks = row->scratch_bytes ? 1 : resident_blocks(row, device); /* on each multiprocessor */
  return row->launch(row, device, &call, (int64_t)device->gpu.multiprocessors * blocks, a->stream);
}

libgemm_status libgemm_grouped_gemm(const libgemm_grouped_gemm_args *args) {
  libgemm_grouped_gemm_args a;
  struct problem problem;
  const struct device *device;
  TRY(check_args(args, &a, &problem));
  if (tables_are_empty(&a)) return LIBGEMM_OK;
  TRY(tables_device(&a, &device));
  RETURN_ON(device, run(&a, &problem, device));
}

libgemm_status libgemm_grouped_gemm_workspace(const libgemm_grouped_gemm_args *args, uint64_t *bytes) {
  libgemm_grouped_gemm_args a;
  struct problem problem;
  struct choice chosen;
  const struct device *device;
  if (!bytes) return fail(LIBGEMM_INVALID_ARGUMENT, "bytes is NULL");
  *bytes = 0;
  TRY(check_args(args, &a, &problem));
  if (tables_are_empty(&a)) return LIBGEMM_OK;
  uint64_t scratch = 0;
  if (problem.met & GUARD_ALIGN16 && tables_are_addressable(&a)) { /* rows for others take none */
    problem.workspace_bytes = UINT64_MAX;
    TRY(tables_device(&a, &device));
    TRY(choose_on(&problem, &device->gpu, &chosen));
    scratch = scratch_workspace(chosen.row, &chosen.seen);
  }
  *bytes = table_workspace(&a) + scratch;
  return LIBGEMM_OK;
}

libgemm_status libgemm_grouped_gemm_explain(const libgemm_grouped_gemm_args *args, int32_t target,
                                            libgemm_choice *choice) {
  libgemm_grouped_gemm_args a;
  struct problem problem;
  struct gpu gpu;
  TRY(check_args(args, &a, &problem));
  TRY(explain_gpu(target, &gpu));
  return explain_on(tables_are_empty(&a) ? NULL : &problem, &gpu, choice);
}
