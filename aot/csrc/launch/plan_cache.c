/* plan_cache.c: what a thread keeps of its last calls, so that a like call chooses and encodes nothing.
 *
 * An entry serves only where every input of what it holds is the same, bit for bit, so none can be out of date; it goes
 * when newer ones take its place. Each thread has tables of its own: no lock, no allocation.
 */
#include <string.h>

#include "internal.h"

enum { PLAN_SETS = 16, MAP_SETS = 64 }; /* of two entries each; the newer one comes first */

struct known_plan {
  struct problem problem;
  struct plan plan;
};

struct known_map {
  struct matrix matrix;
  struct tensor_map map;
};

static _Thread_local struct known_plan plans[PLAN_SETS][2];
static _Thread_local struct known_map maps[MAP_SETS][2];

/* Keys are compared as bytes: they must have no padding. */
_Static_assert(sizeof(struct problem) ==
                   16 * sizeof(int32_t) + 6 * sizeof(int64_t) + 2 * sizeof(char *) + sizeof(double),
               "struct problem has padding");
_Static_assert(sizeof(struct matrix) == 5 * sizeof(int64_t) + sizeof(struct box) + sizeof(uint16_t),
               "struct matrix has padding");

/* A multiplicative hash of these numbers; its upper bits are the good ones. */
HOT static inline uint64_t hash_of(const uint64_t *numbers, size_t count) {
  uint64_t hash = 0;
  for (size_t i = 0; i < count; i++) hash = (hash ^ numbers[i]) * 0x9E3779B97F4A7C15u;
  return hash >> 40;
}

/* By what tells calls of a program apart; the whole key is compared afterwards. */
HOT static inline unsigned plan_set(const struct problem *p) {
  const uint64_t numbers[] = {(uint64_t)p->m, (uint64_t)p->n, (uint64_t)p->k, (uint64_t)p->count ^ p->workspace_bytes,
                              (uint64_t)p->met << 32 | (uint64_t)(p->a_type << 8 | p->trans_a << 4 | p->trans_b << 5) |
                                  (uint64_t)p->activation};
  return (unsigned)hash_of(numbers, sizeof numbers / sizeof *numbers) % PLAN_SETS;
}

HOT static inline unsigned map_set(const struct matrix *m) {
  const uint64_t numbers[] = {(uint64_t)m->address, (uint64_t)m->rows ^ (uint64_t)m->cols << 32,
                              (uint64_t)m->ld ^ (uint64_t)m->box.rows << 48 ^ (uint64_t)m->box.cols << 32};
  return (unsigned)hash_of(numbers, sizeof numbers / sizeof *numbers) % MAP_SETS;
}

/* Of a pinned variant the key has its presence alone: its letters may stand anywhere and change there. */
static const char *const pinned = "";

HOT static const struct plan *cached_plan(const struct problem *key, const char *variant) {
  const struct known_plan *set = plans[plan_set(key)];
  for (int i = 0; i < 2; i++)
    if (memcmp(&set[i].problem, key, sizeof *key) == 0 && (!variant || !strcmp(set[i].plan.row->name, variant)))
      return &set[i].plan;
  return NULL;
}

static void cache_plan(const struct problem *key, const struct plan *plan) {
  struct known_plan *set = plans[plan_set(key)];
  set[1] = set[0];
  set[0] = (struct known_plan){*key, *plan};
}

HOT libgemm_status plan_for(struct problem *p, const struct device *device, plan_maker make, struct plan *made,
                            const struct plan **plan) {
  const char *variant = p->variant;
  p->device = device->ordinal;
  p->multiprocessors = device->gpu.multiprocessors;
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

HOT const struct tensor_map *cached_map(const struct matrix *matrix) {
  const struct known_map *set = maps[map_set(matrix)];
  for (int i = 0; i < 2; i++)
    if (memcmp(&set[i].matrix, matrix, sizeof *matrix) == 0) return &set[i].map;
  return NULL;
}

void cache_map(const struct matrix *matrix, const struct tensor_map *map) {
  struct known_map *set = maps[map_set(matrix)];
  set[1] = set[0];
  set[0] = (struct known_map){*matrix, *map};
}
