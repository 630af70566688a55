/* plan_cache.c: what a thread keeps of its calls, so that a like call chooses and encodes nothing.
 *
 * An entry serves only where every input of what it holds is the same, bit for bit, so none can be out of date; it goes
 * when KEPT newer ones have come. Each thread has tables of its own, and no lock. They are allocated when it first has
 * something to keep, are filled from the front, so that a thread of few problems touches little of them, and go with
 * the thread. Where there is no memory for them, nothing is kept.
 */
#include "launch/plan_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* As driver.c does: under these versions glibc has had them from the first. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver pthread_key_create, pthread_key_create@GLIBC_2.2.5");
__asm__(".symver pthread_key_delete, pthread_key_delete@GLIBC_2.2.5");
__asm__(".symver pthread_setspecific, pthread_setspecific@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver pthread_key_create, pthread_key_create@GLIBC_2.17");
__asm__(".symver pthread_key_delete, pthread_key_delete@GLIBC_2.17");
__asm__(".symver pthread_setspecific, pthread_setspecific@GLIBC_2.17");
#endif

enum { KEPT = 4096, SETS = 2048, WAYS = 8 }; /* entries; places in an index, four times as many as entries */

struct known_plan {
  struct problem problem;
  struct plan plan;
  struct recent recent;
};

struct known_map {
  struct matrix matrix;
  struct tensor_map map;
};

/* Where entries are, by a hash of their keys: each place has an entry's number in its low bits, and above them bits of
 * the hash, so that an entry is hardly ever looked at in vain. Newest first. A place that is empty, or whose entry has
 * gone, leads to one of another key. */
struct index {
  uint32_t made; /* entries so far; the next one's number, modulo KEPT */
  uint32_t places[SETS][WAYS];
};

struct memory_of_thread {
  void *allocated; /* it begins in here, where tensor maps may stand */
  struct index plan_index, map_index;
  struct known_plan plans[KEPT];
  struct known_map maps[KEPT];
};

static _Thread_local struct memory_of_thread *memory; /* NULL: nothing kept yet */

/* Keys are compared as bytes: they must have no padding. */
_Static_assert(sizeof(struct problem) == 18 * sizeof(int32_t) + 8 * sizeof(int64_t) + sizeof(char *),
               "struct problem has padding");
_Static_assert(sizeof(struct matrix) == 6 * sizeof(int64_t) + 2 * sizeof(int32_t) + sizeof(struct box),
               "a matrix is compared whole: it has no padding");

/* ---- The memory of a thread ---- */

static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
static enum { NOT_BEGUN, BEGUN, FAILED } owner_state;
static pthread_key_t owner; /* frees a thread's memory when it ends */

static void forget(void *kept) {
  memory = NULL; /* whatever else the thread does on its way out may call again */
  free(((struct memory_of_thread *)kept)->allocated);
}

static bool begin_owner(void) {
  pthread_mutex_lock(&beginning);
  if (owner_state == NOT_BEGUN) owner_state = pthread_key_create(&owner, forget) == 0 ? BEGUN : FAILED;
  bool begun = owner_state == BEGUN;
  pthread_mutex_unlock(&beginning);
  return begun;
}

/* Before the library is unloaded: no thread that ends later calls into it. At exit other threads may be in a call, so
 * what is theirs stays. */
__attribute__((destructor)) static void end_owner(void) {
  pthread_mutex_lock(&beginning);
  if (owner_state == BEGUN) pthread_key_delete(owner);
  owner_state = FAILED;
  pthread_mutex_unlock(&beginning);
  if (memory) forget(memory);
}

/* NULL where it cannot be had, or could not be freed. */
static struct memory_of_thread *begun_memory(void) {
  if (memory || !begin_owner()) return memory;
  const size_t step = _Alignof(struct memory_of_thread);
  char *allocated = calloc(1, sizeof(struct memory_of_thread) + step);
  if (!allocated) return NULL;
  struct memory_of_thread *made = (void *)(allocated + (step - (uintptr_t)allocated % step));
  made->allocated = allocated;
  if (pthread_setspecific(owner, made) == 0) return memory = made;
  free(allocated);
  return NULL;
}

/* ---- Indices ---- */

/* A multiplicative hash of these five numbers; its upper bits are the good ones. */
HOT static inline uint64_t hash_of(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
  return a * 0x9E3779B97F4A7C15u + b * 0xC2B2AE3D27D4EB4Fu + c * 0x165667B19E3779F9u + d * 0xD6E8FEB86659FD93u +
         e * 0xFF51AFD7ED558CCDu;
}

/* By what tells calls of a program apart; the whole key is compared afterwards. */
HOT static inline uint64_t hash_of_plan(const struct problem *p) {
  uint64_t kind =
      (uint64_t)p->a_type << 8 | (uint64_t)p->trans_a << 4 | (uint64_t)p->trans_b << 5 | (uint64_t)p->activation;
  return hash_of((uint64_t)p->m, (uint64_t)p->n, (uint64_t)p->k, (uint64_t)p->count ^ p->workspace_bytes << 20,
                 kind ^ (uint64_t)p->met << 32);
}

HOT static inline uint64_t hash_of_map(const struct matrix *m) {
  return hash_of(m->address, (uint64_t)m->rows, (uint64_t)m->cols, (uint64_t)m->ld,
                 (uint64_t)m->box.rows << 16 | m->box.cols);
}

static inline unsigned set_of(uint64_t hash) { return (unsigned)(hash >> 33) % SETS; }
static inline uint32_t place_of(uint64_t hash, uint32_t number) {
  return ((uint32_t)(hash >> 32) & ~(uint32_t)(KEPT - 1)) | number;
}

/* The number of a new entry, which takes the place of the oldest. */
static uint32_t add(struct index *index, uint64_t hash) {
  uint32_t number = index->made++ % KEPT, *set = index->places[set_of(hash)];
  memmove(set + 1, set, (WAYS - 1) * sizeof *set);
  set[0] = place_of(hash, number);
  return number;
}

/* ---- Plans ---- */

/* Of a pinned variant the key has its presence alone: its letters may stand anywhere and change there. */
static const char *const pinned = "";

enum { LINE = 64 };

HOT static void fetch(const void *from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += LINE) __builtin_prefetch((const char *)from + at);
}

/* What the call reads next: the driver's own work since the last call has pushed it out of the nearest cache, and lines
 * that are asked for together come together. */
HOT static void fetch_ahead(const struct known_plan *found) {
  fetch(found->plan.row, sizeof(struct row));
  for (int i = 0; i < TENSOR_COUNT; i++)
    if (found->recent.maps[i] || i == TENSOR_A) fetch(&memory->maps[found->recent.maps[i]], sizeof(struct known_map));
}

HOT static const struct plan *cached_plan(const struct problem *key, const char *variant) {
  if (!memory) return NULL;
  uint64_t hash = hash_of_plan(key);
  const uint32_t *set = memory->plan_index.places[set_of(hash)];
  for (int i = 0; i < WAYS; i++) {
    uint32_t number = set[i] % KEPT;
    if (set[i] != place_of(hash, number)) continue;
    const struct known_plan *found = &memory->plans[number];
    if (memcmp(&found->problem, key, sizeof *key) == 0 && (!variant || !strcmp(found->plan.row->name, variant))) {
      fetch_ahead(found);
      return &found->plan;
    }
  }
  return NULL;
}

static void cache_plan(const struct problem *key, const struct plan *plan) {
  struct memory_of_thread *kept = begun_memory();
  if (!kept) return;
  struct known_plan *made = &kept->plans[add(&kept->plan_index, hash_of_plan(key))];
  *made = (struct known_plan){.problem = *key, .plan = *plan};
  made->plan.recent = &made->recent;
}

HOT libgemm_status plan_for(struct problem *p, const struct device *device, plan_maker make, struct plan *made,
                            const struct plan **plan) {
  const char *variant = p->variant;
  p->device = device->ordinal;
  state_gpu(p, &device->gpu);
  if (variant) p->variant = pinned;
  *plan = cached_plan(p, variant);
  p->variant = variant;
  if (*plan) return LIBGEMM_OK;
  TRY(make(p, device, made));
  if (variant) p->variant = pinned;
  cache_plan(p, made);
  p->variant = variant;
  *plan = made;
  return LIBGEMM_OK;
}

/* ---- Tensor maps ---- */

HOT struct tensor_map *cached_map(const struct matrix *matrix, uint16_t *recent) {
  if (!memory) return NULL;
  if (recent) {
    struct known_map *last = &memory->maps[*recent];
    if (memcmp(&last->matrix, matrix, sizeof *matrix) == 0) return &last->map;
  }
  uint64_t hash = hash_of_map(matrix);
  const uint32_t *set = memory->map_index.places[set_of(hash)];
  for (int i = 0; i < WAYS; i++) {
    uint32_t number = set[i] % KEPT;
    if (set[i] != place_of(hash, number)) continue;
    struct known_map *found = &memory->maps[number];
    if (memcmp(&found->matrix, matrix, sizeof *matrix) == 0) {
      if (recent) *recent = (uint16_t)number;
      return &found->map;
    }
  }
  return NULL;
}

void cache_map(const struct matrix *matrix, const struct tensor_map *map) {
  struct memory_of_thread *kept = begun_memory();
  if (kept) kept->maps[add(&kept->map_index, hash_of_map(matrix))] = (struct known_map){*matrix, *map};
}
