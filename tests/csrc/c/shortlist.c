/* shortlist.c: choices with shortlists beside choices among all rows, where shortlists must not count: the caller's
 * workspace is too small for what they list, sums are to be in one order, the GPU is a part of one, memory is not for
 * TMA. Prints what differs, and how often a list was there at all. Built by tests/csrc/test_choice_shortlists.py. */
#include <stdio.h>

#include "internal.h"
#define main program
#include "shortlist.c"
#undef main

enum { DRAWS = 4000 };
static const unsigned no_guard = 1u << 31; /* ignoring any, fastest() asks all rows */

static const char *const changes[] = {"usual",         "little workspace", "batch invariant",
                                      "part of a GPU", "not for TMA",      "a batch"};
enum { CHANGES = sizeof changes / sizeof *changes };

static void change(struct problem *p, int how) {
  if (how == 1) p->workspace_bytes = (uint64_t)1 << draw(24);
  if (how == 2) p->wants |= WANT_BATCH_INVARIANT;
  if (how == 3) p->multiprocessors = 66;
  if (how == 4) p->met &= ~(unsigned)(GUARD_DESCRIPTOR | GUARD_DESCRIPTOR_AB);
  if (how == 5) p->count = 3;
}

int main(void) {
  int asked[CHANGES] = {0}, listed[CHANGES] = {0}, differ[CHANGES] = {0};
  double loss[CHANGES] = {0};
  state = 88172645463325252u;
  for (int32_t t = 0; t < target_count; t++) {
    const struct buildable *gpu = buildables;
    while (gpu->target != targets[t].target) gpu++;
    for (int bucket = 0; bucket < type_count * LAYOUT_COUNT; bucket++) {
      int first = targets[t].buckets[bucket], end = targets[t].buckets[bucket + 1];
      for (int i = 0; has_fits(first, end) && i < DRAWS; i++) {
        int how = i % CHANGES;
        struct problem p = draw_problem(&rows[first], gpu);
        float us = 0, us_of_all = 0;
        uint64_t some[ROW_WORDS];
        change(&p, how);
        const struct row *row = fastest(&p, first, end, 0, &us), *best = fastest(&p, first, end, no_guard, &us_of_all);
        asked[how]++;
        listed[how] += shortlist_of(&p, first, some);
        if (row == best) continue;
        differ[how]++;
        if (!row || !best || us > us_of_all) loss[how] += row && best ? us / us_of_all - 1 : 1e9;
      }
    }
  }
  for (int how = 0; how < CHANGES; how++)
    printf("%s: %d asked, %d listed, %d differ, %.6f\n", changes[how], asked[how], listed[how], differ[how],
           loss[how] / asked[how]);
  return 0;
}
