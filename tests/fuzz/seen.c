// seen.c: keeps what the driver is asked to launch and copy during one call. Judges nothing.
#include <stdio.h>
#include <string.h>

#include "fuzz.h"

struct seen seen;

void forget_seen(void) { seen.launches = seen.copies = 0; }

static const struct signature *signature_of(const char *entry) {
  for (int i = 0; i < signature_count; i++)
    if (strcmp(signatures[i].entry, entry) == 0) return &signatures[i];
  finding(__LINE__, __FILE__, "a known kernel", "%s", entry);
}

static const struct row *row_of(const void *handle) {
  for (int32_t i = 0; i < row_count; i++)
    if ((const void *)atomic_load(&row_states[i].kernel) == handle) return &rows[i];
  return NULL;
}

// Which of a row's boxes a tensor map's name means, a_desc.map to d_desc_8.map; -1: no map.
static int tensor_of(const char *name) {
  const int first[] = {TENSOR_A, TENSOR_B, TENSOR_C, TENSOR_D};
  int parts = 1;
  char dot = 0;
  if (strcmp(name + 1, "_desc.map") != 0 && (sscanf(name + 1, "_desc_%d.ma%c", &parts, &dot) != 2 || dot != 'p'))
    return -1;
  int part = 0;
  while (1 << part < parts) part++;
  return first[name[0] - 'a'] + part;
}

static void keep(const struct fakecuda_launch *told, int at, struct launch *l) {
  const char *name = l->signature->names[at];
  size_t bytes = told->table[at].size;
  uint64_t value = 0;
  if (bytes == 128) {
    int tensor = tensor_of(name);
    if (tensor >= 0) memcpy(l->maps[tensor], told->values[at], 128);
  } else {
    memcpy(&value, told->values[at], bytes);
    l->values[at] = bytes == 4 ? (uint64_t)(int64_t)(int32_t)value : value;
  }
}

static void on_launch(const struct fakecuda_launch *told) {
  if (seen.launches++ >= MOST_LAUNCHES) return;
  struct launch *l = &seen.launch[seen.launches - 1];
  *l = (struct launch){.row = row_of(told->handle), .signature = signature_of(told->kernel)};
  l->device = told->device;
  l->grid = told->grid[0], l->block = told->block[0], l->cluster = told->cluster[0], l->shared = told->shared;
  REQUIRE((size_t)l->signature->count == told->parameters, "%s", told->kernel);
  for (int i = 0; i < l->signature->count; i++) keep(told, i, l);
}

static void on_copy(uint64_t to, const void *from, size_t bytes) {
  seen.copies++;
  seen.copy_to = to;
  seen.copy_bytes = bytes;
  memcpy(seen.copied, from, bytes < sizeof seen.copied ? bytes : sizeof seen.copied);
}

void watch(void) { fakecuda_watch(&(struct fakecuda_watcher){on_launch, on_copy}); }

static int index_of(const struct launch *l, const char *name) {
  for (int i = 0; i < l->signature->count; i++)
    if (strcmp(l->signature->names[i], name) == 0) return i;
  return -1;
}

bool has(const struct launch *l, const char *name) { return index_of(l, name) >= 0; }

int64_t value(const struct launch *l, const char *name) {
  int i = index_of(l, name);
  REQUIRE(i >= 0, "%s takes no %s", l->signature->entry, name);
  return (int64_t)l->values[i];
}

float number(const struct launch *l, const char *name) {
  int32_t bits = (int32_t)value(l, name);
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}
