/* explain.c: a choice in words: what runs, and what would be faster. */
#include <stddef.h>
#include <stdio.h>

#include "internal.h"

/* The words for the best row that only its guard on memory keeps from running faster, if there is one. */
static void describe_better(const struct problem *p, const struct target *target, float us, char *to, size_t bytes) {
  unsigned memory = GUARD_ALIGN16 | GUARD_DESCRIPTOR | GUARD_DESCRIPTOR_AB | GUARD_WORKSPACE | GUARD_SCRATCH;
  struct problem groups = as_groups(p);
  int first, end;
  float better_us;
  bool batch = is_batch(p);
  if (p->k == 0) return; /* nothing of A and B is read, whatever they are like */
  if (batch) p = &groups, memory |= GUARD_EQUAL;
  bucket_of(p, target, &first, &end);
  const struct row *better = fastest(p, first, end, memory, &better_us);
  if (!better || (better_us >= us && !batch)) return;
  const char *words = demand_of(p, refused(better, p));
  if (words) snprintf(to, bytes, "; %.4g us with %s", (double)better_us, words);
}

static libgemm_status describe(const struct choice *chosen, const struct target *target, libgemm_choice *choice) {
  const struct row *row = chosen->row;
  const struct problem *p = &chosen->seen;
  const size_t oldest = offsetof(libgemm_choice, expected_us);
  if (!choice || choice->size < oldest)
    return fail(LIBGEMM_INVALID_ARGUMENT, "choice is NULL or its size is below %zu", oldest);
  bool whole = choice->size >= sizeof *choice;
  choice->variant = row ? (int32_t)(row - rows) : -1;
  if (whole) choice->expected_us = 0, choice->covered = 1;
  if (!row) {
    snprintf(choice->reason, sizeof choice->reason, "empty problem: nothing runs");
    return LIBGEMM_OK;
  }
  int first, end;
  float us;
  bucket_of(p, target, &first, &end);
  least_time(&(struct weighed){row, split_count(row, p)}, 1, p, &us);
  us += (float)chosen->copy_us;
  if (whole) choice->expected_us = us, choice->covered = row->fit != NULL;
  char served[48] = "";
  if (p->capability != target->target)
    snprintf(served, sizeof served, ", code of %d.%d on %d.%d", target->target / 10, target->target % 10,
             p->capability / 10, p->capability % 10);
  int used =
      snprintf(choice->reason, sizeof choice->reason, "%s: %.4g us expected, %s %d kernels%s%s",
               row->fit ? "tuned" : "untuned", (double)us, p->variant ? "pinned by name among" : "chosen from",
               end - first, served, chosen->copier ? ", after A or B is copied to aligned rows in the workspace" : "");
  if (!p->variant && used > 0 && used < (int)sizeof choice->reason)
    describe_better(p, target, us, choice->reason + used, sizeof choice->reason - (size_t)used);
  return LIBGEMM_OK;
}

libgemm_status explain_on(struct problem *problem, const struct gpu *gpu, libgemm_choice *choice) {
  struct choice chosen = {.row = NULL};
  if (problem) TRY(choose_on(problem, gpu, &chosen));
  return describe(&chosen, gpu->target, choice);
}
