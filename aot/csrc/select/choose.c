/* choose.c: from a problem to a row of the table: pinned by name, measured, or the fastest by the model. Loads and
 * launches nothing. */
#include <string.h>

#include "internal.h"
#include "select/choice.h"

bool is_batch(const struct problem *p) { return p->op == OP_GEMM && p->count > 1 && p->count <= INT32_MAX; }

struct problem as_groups(const struct problem *p) {
  struct problem groups = *p;
  groups.op = OP_GROUPED_MM;
  groups.wants |= WANT_EQUAL;
  return groups;
}

/* The row of that name in the problem's bucket that may serve it at all. */
static const struct row *named(const struct problem *p, const struct target *target) {
  int first, end;
  bucket_of(p, target, &first, &end);
  for (int i = first; i < end; i++)
    if (strcmp(rows[i].name, p->variant) == 0 && !(refused(&rows[i], p) & NOT_EQUAL)) return &rows[i];
  return NULL;
}

static libgemm_status pinned(const struct problem *p, const struct target *target, struct choice *choice) {
  *choice = (struct choice){.row = named(p, target), .seen = *p};
  if (!choice->row && is_batch(p)) {
    struct problem groups = as_groups(p);
    *choice = (struct choice){.row = named(&groups, target), .seen = groups};
  }
  if (choice->row) {
    const char *words = demand_of(&choice->seen, refused(choice->row, &choice->seen));
    return words ? fail(LIBGEMM_UNSUPPORTED, "variant %s needs %s", p->variant, words) : LIBGEMM_OK;
  }
  return fail(LIBGEMM_UNSUPPORTED,
              "variant = %s: no such variant computes %s %s -> %s (%s) trans_a %d trans_b %d on sm_%d", p->variant,
              op_names[p->op], dtype_name(p->a_type), dtype_name(p->d_type), precision_names[p->precision], p->trans_a,
              p->trans_b, target->target);
}

libgemm_status choose(const struct problem *p, const struct target *target, struct choice *choice) {
  int first, end;
  float us;
  if (p->variant) return pinned(p, target, choice);
  if (is_batch(p)) { /* measured: 1.07 to 9 times as fast as rows that also take other batches */
    struct problem groups = as_groups(p);
    bucket_of(&groups, target, &first, &end);
    const struct row *row = known_winner(&groups, target, first, end);
    if (!row) row = fastest(&groups, first, end, 0, &us);
    *choice = (struct choice){.row = row, .seen = groups};
    if (row) return LIBGEMM_OK;
  }
  bucket_of(p, target, &first, &end);
  *choice = (struct choice){.row = known_winner(p, target, first, end), .seen = *p};
  if (choice->row) return LIBGEMM_OK;
  choice->row = fastest(p, first, end, 0, &us);
  if (choice->row && !is_batch(p)) aligned_first(p, target, us, choice);
  if (choice->row) return LIBGEMM_OK;
  return fail(LIBGEMM_UNSUPPORTED, "no variant computes %s %s -> %s (%s) trans_a %d trans_b %d on sm_%d",
              op_names[p->op], dtype_name(p->a_type), dtype_name(p->d_type), precision_names[p->precision], p->trans_a,
              p->trans_b, target->target);
}
