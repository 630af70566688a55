/* choosing.c: times the choice among a library's rows, with its shortlists and without, and compares what is chosen.
 * choosing.py compiles it with the library's select/ and table, and gives it problems on stdin, a line each:
 * a_type d_type precision trans_a trans_b m n k, of operands whose stored rows begin on 16 bytes. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "internal.h"

enum { ROUNDS = 5, LISTED = 0, ALL = 1 };
static const unsigned no_guard = 1u << 31; /* ignoring any, fastest() asks all rows */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static bool read_problem(struct problem *p) {
  int a, d, precision, trans_a, trans_b;
  long long m, n, k;
  if (scanf("%d %d %d %d %d %lld %lld %lld", &a, &d, &precision, &trans_a, &trans_b, &m, &n, &k) != 8) return false;
  *p = (struct problem){.op = OP_GEMM, .a_type = a, .d_type = d, .precision = precision, .trans_a = trans_a};
  p->trans_b = trans_b, p->m = p->rows = m, p->n = p->whole_n = n, p->k = p->whole_k = k, p->count = 1;
  int bytes = dtype_bytes(a);
  p->a_stride = stride_class(ceil_div((trans_a ? m : k) * bytes, 16) * 16, 1);
  p->b_stride = stride_class(ceil_div((trans_b ? k : n) * bytes, 16) * 16, 1);
  p->workspace_bytes = (uint64_t)1 << 40;
  p->multiprocessors = 132, p->shared_bytes = 232448, p->capability = 90; /* an H200's, as an H100's */
  p->met = GUARD_ALIGN16 | GUARD_DESCRIPTOR | GUARD_DESCRIPTOR_AB | GUARD_UNBLOCKED, p->memory = READS_AB;
  return true;
}

static const struct target *hopper(void) {
  for (int32_t i = 0; i < target_count; i++)
    if (targets[i].target == 90) return &targets[i];
  fprintf(stderr, "this library has no kernels for 9.0\n");
  exit(1);
}

/* The problem's row, and its microseconds. */
static const struct row *chosen(const struct problem *p, const struct target *target, int how, float *us) {
  int first, end;
  bucket_of(p, target, &first, &end);
  return fastest(p, first, end, how == ALL ? no_guard : 0, us);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* A line for each problem: the microseconds of the listed choice and of that among all rows. */
static int print_each(const struct problem *problems, int count, const struct target *target) {
  for (int i = 0; i < count; i++) {
    float listed = 0, all = 0;
    chosen(&problems[i], target, LISTED, &listed);
    chosen(&problems[i], target, ALL, &all);
    printf("%.9g %.9g\n", (double)listed, (double)all);
  }
  return 0;
}

/* Prints nanoseconds of one choice, listed and of all rows, the median of rounds in alternation; how many choices
 * differ; and how much longer the listed ones are expected to take, in the mean and at most. A listed row that is
 * expected to take less counts as no loss: among rows within what the bytes take the model prefers others than the
 * least (select/cost.c). With the word "each", print_each(). */
int main(int arguments, char **words) {
  const struct target *target = hopper();
  enum { MOST = 1 << 20 };
  struct problem *problems = malloc(MOST * sizeof *problems);
  double ns[2][ROUNDS], sum = 0, worst = 0;
  int count = 0, differ = 0;
  if (!problems) return 1;
  while (count < MOST && read_problem(&problems[count])) count++;
  if (count == 0) return fprintf(stderr, "no problem was read\n"), 1;
  if (arguments == 2 && strcmp(words[1], "each") == 0) return print_each(problems, count, target);
  for (int round = 0; round < ROUNDS; round++)
    for (int how = 0; how < 2; how++) {
      double start = now();
      float us;
      for (int i = 0; i < count; i++) chosen(&problems[i], target, how, &us);
      ns[how][round] = (now() - start) / count;
    }
  for (int i = 0; i < count; i++) {
    float us[2] = {0, 0};
    const struct row *listed = chosen(&problems[i], target, LISTED, &us[LISTED]);
    const struct row *all = chosen(&problems[i], target, ALL, &us[ALL]);
    differ += listed != all;
    if (listed == all || us[LISTED] <= us[ALL]) continue;
    double loss = (double)(us[LISTED] / us[ALL]) - 1;
    sum += loss;
    if (loss > worst) worst = loss;
  }
  for (int how = 0; how < 2; how++) qsort(ns[how], ROUNDS, sizeof **ns, by_size);
  printf("%.1f %.1f %.6f %.6f %.6f\n", ns[LISTED][ROUNDS / 2], ns[ALL][ROUNDS / 2], (double)differ / count, sum / count,
         worst);
  return 0;
}
