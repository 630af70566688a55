/* eights.c: choosing by AVX2 and without finds the same row and the same time to the last bit. Includes cost.c for
 * both.
 */
#include <stdio.h>
#include <stdlib.h>

#include "select/cost.c"

#define CHECK(condition) ((condition) ? (void)0 : (printf("%s:%d: %s\n", __FILE__, __LINE__, #condition), exit(1)))

enum { TRIES = 20000 };

static int64_t drawn(int64_t most) {
  int64_t shift = rand() % 15, size = (int64_t)(rand() % 4096 + 1) << shift >> 9;
  return size < 1 ? 1 : size > most ? most : size;
}

static int fitted_rows(struct weighed *weighed, bool fitted) {
  int count = 0;
  for (int i = 0; i < row_count && count < MOST_ROWS; i++)
    if ((rows[i].fit != NULL) == fitted && rows[i].op == (fitted ? OP_GEMM : OP_GROUPED_MM) && rand() % 4)
      weighed[count++] = (struct weighed){&rows[i], rand() % 3 ? 1 : 1 + rand() % 8};
  return count;
}

int main(void) {
  if (!HAS_AVX2) return puts("this processor has no AVX2"), 0;
  int compared = 0, different = 0;
  const struct row *found = NULL;
  for (int i = 0; i < TRIES; i++) {
    struct weighed weighed[MOST_ROWS];
    struct problem p = {.op = i % 2 ? OP_GEMM : OP_GROUPED_MM, .a_type = LIBGEMM_BF16, .d_type = LIBGEMM_BF16};
    p.multiprocessors = rand() % 3 ? 132 : 1 + rand() % 200;
    p.count = i % 2 ? 1 : 1 + rand() % 64, p.ragged = LIBGEMM_RAGGED_M;
    p.m = drawn(1 << 20), p.n = drawn(1 << 20), p.k = drawn(1 << 20);
    p.rows = ceil_div(p.m, p.count);
    p.a_stride = rand() % 4, p.b_stride = rand() % 4, p.trans_a = rand() % 2, p.trans_b = rand() % 2;
    int count = fitted_rows(weighed, i % 2);
    if (!count) continue;
    float us = 0, us_by_avx2 = 0;
    const struct row *row = least_of_all(weighed, count, &p, &us);
    CHECK(row == least_by_avx2(weighed, count, &p, &us_by_avx2));
    CHECK(memcmp(&us, &us_by_avx2, sizeof us) == 0);
    different += row != found;
    found = row;
    compared++;
  }
  printf("%d compared, %d times another row than before\n", compared, different);
  return 0;
}
