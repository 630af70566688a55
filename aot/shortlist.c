/* shortlist.c: a program that finds out which rows can be the fastest where, and prints it (select/shortlist.h). Not
 * part of the library: build/shortlist.py compiles it with the library's own select/ and table, and runs it on the
 * build machine: `shortlist DRAWS PART PARTS`.
 *
 * It draws problems of each dense bucket, sizes log-uniform to 65536 rows and 131072 columns and K, some of them
 * multiples of 16, 64 or 128, and asks for the fastest of all rows. A line of what it prints: the bucket's first row,
 * either "as" and the first row of a bucket whose rows are the same to a choice, or the words of each bin of each side.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "select/eight.h"

/* xorshift64*, by Vigna: the same numbers on every machine. */
static uint64_t state;
static uint32_t draw(uint32_t below) {
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return (uint32_t)((state * 0x2545F4914F6CDD1Du >> 32) * below >> 32);
}

/* Log-uniform, 1 to 2^octaves. */
static int64_t draw_size(int octaves, uint32_t step) {
  int64_t size = (int64_t)exp2_of((float)draw((uint32_t)octaves << 16) / 65536.0f);
  return size > step ? size / step * step : size;
}

static struct problem draw_problem(const struct row *row, const struct buildable *gpu) {
  static const uint32_t steps[] = {1, 16, 64, 128};
  struct problem p = {.op = OP_GEMM,
                      .a_type = row->a_type,
                      .d_type = row->d_type,
                      .precision = row->precision,
                      .trans_a = row->trans_a,
                      .trans_b = row->trans_b,
                      .count = 1,
                      .multiprocessors = gpu->multiprocessors,
                      .shared_bytes = (int)gpu->shared_bytes,
                      .capability = gpu->target,
                      .memory = READS_AB,
                      .met = GUARD_DESCRIPTOR_AB};
  int bytes = dtype_bytes(p.a_type);
  bool usual = draw(2); /* aligned, with a workspace; of any M, and N and K that some power of two divides */
  uint32_t step = steps[draw(4)];
  p.m = p.rows = draw_size(16, draw(2) ? 1 : step);
  p.n = p.whole_n = draw_size(17, usual ? steps[1 + draw(3)] : step);
  p.k = p.whole_k = draw_size(17, usual ? steps[1 + draw(3)] : step);
  bool own = usual || draw(2); /* rows that begin where the one before ends, or on the next 16 bytes; else far apart */
  int64_t lda = p.trans_a ? p.m : p.k, ldb = p.trans_b ? p.k : p.n;
  p.a_stride = own ? stride_class(ceil_div(lda * bytes, 16) * 16, 1) : (int32_t)draw(4);
  p.b_stride = own ? stride_class(ceil_div(ldb * bytes, 16) * 16, 1) : (int32_t)draw(4);
  p.workspace_bytes = usual || draw(2) ? (uint64_t)1 << 40 : 0;
  p.activation = usual || draw(2) ? LIBGEMM_ACTIVATION_NONE : LIBGEMM_RELU;
  if (usual || draw(4)) p.met |= GUARD_DESCRIPTOR;
  if (usual || draw(4)) p.met |= GUARD_ALIGN16;
  bool e4m3 = p.a_type == LIBGEMM_E4M3;
  p.met |= e4m3 && draw(3) == 0 ? GUARD_BLOCKS : GUARD_UNBLOCKED;
  uint32_t pair = e4m3 ? draw(8) : 2;
  p.wants = pair == 0 ? WANT_E5M2_A : pair == 1 ? WANT_E5M2_B : 0;
  return p;
}

/* Whether two buckets' rows are the same in all that stands in front of a row's types: what choosing looks at. */
static bool are_alike(const struct row *a, const struct row *b, int count) {
  for (int i = 0; i < count; i++)
    if (memcmp(&a[i], &b[i], offsetof(struct row, op)) != 0) return false;
  return true;
}

static bool are_as_wide(const struct row *a, const struct row *b) {
  return dtype_bytes(a->a_type) == dtype_bytes(b->a_type) && dtype_bytes(a->d_type) == dtype_bytes(b->d_type);
}

/* The first row of the first bucket of the target, before this one, whose rows are the same to a choice; NULL: none. */
static const struct row *same_before(const struct target *target, int bucket) {
  int first = target->buckets[bucket], count = target->buckets[bucket + 1] - first;
  for (int other = 0; other < bucket; other++) {
    int begin = target->buckets[other];
    if (target->buckets[other + 1] - begin == count && are_alike(&rows[begin], &rows[first], count) &&
        are_as_wide(&rows[begin], &rows[first]))
      return &rows[begin];
  }
  return NULL;
}

/* `seed`: a bucket's own, the same in a library of fewer targets or types. */
static void print_list(int first, int end, const struct buildable *gpu, int64_t draws, int seed) {
  static uint64_t noted[SHORTLIST_BINS][ROW_WORDS];
  int bins[SHORTLIST_SIDES], words = (end - first + 63) / 64;
  memset(noted, 0, sizeof noted);
  state = 0x9E3779B97F4A7C15u + (uint64_t)seed;
  for (int64_t i = 0; i < draws; i++) {
    float us;
    struct problem p = draw_problem(&rows[first], gpu);
    const struct row *row = fastest(&p, first, end, 0, &us);
    if (!row || !row->fit || !bins_of(&p, bins)) continue;
    int number = (int)(row - rows) - first;
    for (int side = 0; side < SHORTLIST_SIDES; side++) noted[bins[side]][number / 64] |= (uint64_t)1 << number % 64;
  }
  printf("%d", first);
  for (int bin = 0; bin < SHORTLIST_BINS; bin++)
    for (int word = 0; word < words; word++) printf(" %" PRIx64, noted[bin][word]);
  printf("\n");
}

static bool has_fits(int first, int end) {
  for (int i = first; i < end; i++)
    if (rows[i].fit) return true;
  return false;
}

int main(int count, char **words) {
  if (count != 4) return fprintf(stderr, "usage: shortlist DRAWS PART PARTS\n"), 2;
  int64_t draws = atoll(words[1]);
  int part = atoi(words[2]), parts = atoi(words[3]), turn = 0;
  for (int32_t t = 0; t < target_count; t++) {
    const struct buildable *gpu = buildables;
    while (gpu->target != targets[t].target) gpu++;
    for (int bucket = OP_GEMM * type_count * LAYOUT_COUNT; bucket < (OP_GEMM + 1) * type_count * LAYOUT_COUNT;
         bucket++) {
      int first = targets[t].buckets[bucket], end = targets[t].buckets[bucket + 1];
      if (!has_fits(first, end) || turn++ % parts != part) continue;
      const struct row *same = same_before(&targets[t], bucket);
      if (same)
        printf("%d as %d\n", first, (int)(same - rows));
      else
        print_list(first, end, gpu, draws, bucket);
    }
  }
  return 0;
}
