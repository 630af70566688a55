// Asks for thousands of plans and tensor maps, in threads, with keys that differ by a bit, and where there is no
// memory. Linked with launch/plan_cache.c alone and --wrap=calloc. Prints how many of KEPT plans and maps had to be
// made again.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define REQUIRE(condition) ((condition) ? (void)0 : (printf("%s:%d: %s\n", __FILE__, __LINE__, #condition), exit(1)))

enum { KEPT = 4000, MANY = 20000, THREADS = 4 };

static _Thread_local int made_plans, made_maps;
static atomic_bool no_memory;
static struct device devices[2] = {{.ordinal = 0, .gpu.multiprocessors = 132},
                                   {.ordinal = 1, .gpu.multiprocessors = 108}};
static const struct row row = {.name = "row"}, other = {.name = "other"};

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes) { return no_memory ? NULL : __real_calloc(count, bytes); }

/* Tells keys apart by every byte. */
static uint64_t sum_of(const void *key, size_t bytes) {
  uint64_t sum = 14695981039346656037u;
  for (size_t i = 0; i < bytes; i++) sum = (sum ^ ((const unsigned char *)key)[i]) * 1099511628211u;
  return sum;
}

static libgemm_status make(const struct problem *p, const struct device *device, struct plan *plan) {
  made_plans++;
  bool is_other = p->variant && p->variant[0] == 'o';
  struct problem key = *p;
  key.variant = NULL;
  *plan = (struct plan){
      .row = is_other ? &other : &row, .splits = device->ordinal, .semaphore_bytes = sum_of(&key, sizeof key)};
  return LIBGEMM_OK;
}

/* Ask for a plan; it must be this problem's own. */
static void ask_plan(struct problem p, const struct device *device) {
  struct plan made, wanted;
  const struct plan *plan;
  int before = made_plans;
  REQUIRE(plan_for(&p, device, make, &made, &plan) == LIBGEMM_OK);
  REQUIRE(made_plans - before <= 1);
  make(&p, device, &wanted);
  made_plans--;
  REQUIRE(plan->row == wanted.row && plan->splits == wanted.splits && plan->semaphore_bytes == wanted.semaphore_bytes);
}

static void ask_map(struct matrix m) {
  static _Thread_local uint16_t recent; /* a hint of another matrix, mostly: it must not be believed */
  static _Thread_local int asked;
  const struct tensor_map *found = cached_map(&m, asked++ % 3 ? &recent : NULL);
  uint64_t sum = sum_of(&m, sizeof m);
  if (found) {
    REQUIRE(memcmp(found, &sum, sizeof sum) == 0);
    found = cached_map(&m, &recent); /* and so where it is looked for first */
    REQUIRE(found && memcmp(found, &sum, sizeof sum) == 0);
    return;
  }
  struct tensor_map map = {{0}};
  memcpy(&map, &sum, sizeof sum);
  cache_map(&m, &map);
  made_maps++;
}

static struct problem problem(int i) {
  return (struct problem){.a_type = 2,
                          .d_type = 2,
                          .trans_b = 1,
                          .m = 1 + i / 4,
                          .rows = 1 + i / 4,
                          .n = 1024 * (1 + i % 4),
                          .k = 4096,
                          .count = 1};
}

static struct matrix matrix(int i) {
  return (struct matrix){
      .address = 1 << 20, .rows = 1 + i, .cols = 4096, .ld = 4096, .box = {64, 64, 3, 9}, .bytes = 2};
}

static void ask_all(int first, int end) {
  for (int i = first; i < end; i++) ask_plan(problem(i), &devices[0]), ask_map(matrix(i));
}

static void keys_that_differ_by_a_bit(void) {
  for (size_t bit = 0; bit < 8 * sizeof(struct problem); bit++) {
    size_t byte = bit / 8;
    struct problem p = problem(0);
    if (byte / sizeof p.variant == offsetof(struct problem, variant) / sizeof p.variant) continue;
    ((unsigned char *)&p)[byte] ^= (unsigned char)(1 << bit % 8);
    ask_plan(problem(0), &devices[0]);
    ask_plan(p, &devices[0]);
    ask_plan(p, &devices[1]);
  }
  for (size_t bit = 0; bit < 8 * sizeof(struct matrix); bit++) {
    struct matrix m = matrix(0);
    ((unsigned char *)&m)[bit / 8] ^= (unsigned char)(1 << bit % 8);
    ask_map(matrix(0)), ask_map(m);
  }
  char letters[] = "row";
  for (int i = 0; i < 3; i++) {
    struct problem p = problem(0);
    ask_plan(p, &devices[0]);
    p.variant = letters;
    ask_plan(p, &devices[0]);
    memcpy(letters, i % 2 ? "row" : "oth", 3);
  }
}

static pthread_key_t last_words;
static void ask_at_the_end(void *again) {
  ask_all(0, 10);
  if (again) REQUIRE(pthread_setspecific(last_words, NULL) == 0);
}

static void *in_thread(void *unused) {
  REQUIRE(pthread_setspecific(last_words, &row) == 0);
  ask_all(0, 1000);
  REQUIRE(made_plans == 1000 && made_maps == 1000); /* nothing of other threads' */
  return unused;
}

int main(void) {
  pthread_t threads[THREADS];
  no_memory = true;
  ask_all(0, 100), ask_all(0, 100);
  REQUIRE(made_plans == 200 && made_maps == 200);
  no_memory = false;
  ask_all(0, KEPT);
  made_plans = made_maps = 0;
  ask_all(0, KEPT);
  printf("%d plans, %d maps\n", made_plans, made_maps);
  ask_all(0, MANY), ask_all(0, MANY);
  made_plans = made_maps = 0;
  ask_all(MANY - 1000, MANY); /* the newest are there still */
  REQUIRE(made_plans < 100 && made_maps < 100);
  keys_that_differ_by_a_bit();
  REQUIRE(pthread_key_create(&last_words, ask_at_the_end) == 0);
  for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, in_thread, NULL) == 0);
  for (int i = 0; i < THREADS; i++) REQUIRE(pthread_join(threads[i], NULL) == 0);
  return 0;
}
