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

/* The set of a key made of `words` 64-bit words, 0 to sets - 1: the upper bits of their sum, each weighed by another
 * power of an odd number. */
static inline unsigned set_of(const void *key, size_t words, unsigned sets) {
  const uint64_t base = 0x9E3779B97F4A7C15u;
  uint64_t sum = 0, weight = base;
  for (size_t i = 0; i < words; i++) {
    uint64_t word;
    memcpy(&word, (const char *)key + 8 * i, 8);
    sum += word * weight;
    weight *= base;
  }
  return (unsigned)(sum >> 40) % sets;
}

static inline unsigned plan_set(const struct problem *key) { return set_of(key, sizeof *key / 8, PLAN_SETS); }
static inline unsigned map_set(const struct matrix *key) { return set_of(key, sizeof *key / 8, MAP_SETS); }

/* The problem as a key: of a pinned variant its presence, since its letters may stand anywhere and change there. */
static struct problem key_of(const struct problem *p) {
  struct problem key = *p;
  if (key.variant) key.variant = "";
  return key;
}

static const struct plan *cached_plan(const struct problem *p) {
  struct problem key = key_of(p);
  const struct known_plan *set = plans[plan_set(&key)];
  for (int i = 0; i < 2; i++)
    if (memcmp(&set[i].problem, &key, sizeof key) == 0 && (!p->variant || !strcmp(set[i].plan.row->name, p->variant)))
      return &set[i].plan;
  return NULL;
}

static void cache_plan(const struct problem *p, const struct plan *plan) {
  struct problem key = key_of(p);
  struct known_plan *set = plans[plan_set(&key)];
  set[1] = set[0];
  set[0] = (struct known_plan){key, *plan};
}

libgemm_status plan_for(struct problem *p, const struct device *device, plan_maker make, struct plan *made,
                        const struct plan **plan) {
  p->device = device->ordinal;
  p->multiprocessors = device->gpu.multiprocessors;
  *plan = cached_plan(p);
  if (*plan) return LIBGEMM_OK;
  TRY(make(p, device, made));
  cache_plan(p, made);
  *plan = made;
  return LIBGEMM_OK;
}

const struct tensor_map *cached_map(const struct matrix *matrix) {
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
