// standalone.c: runs a fuzz target without libFuzzer: the corpus, then mutations of it at random, for some seconds.
// Usage: target CORPUS SEED SECONDS. Prints the number of inputs. The corpus is one file: lengths (16 bits) and inputs.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*callback)(void));

enum { MOST_INPUTS = 8192, MOST_BYTES = 1 << 16, MOST_NEW = 1024 };

static uint8_t *inputs[MOST_INPUTS];
static size_t sizes[MOST_INPUTS];
static unsigned input_count;
static uint64_t state;
static const uint8_t *current;
static size_t current_size;

static uint32_t next(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33);
}

// What reproduces a finding: the last input, also where the sanitizer or an abort ends the process.
static void keep_input(void) {
  FILE *file = fopen("finding.bin", "wb");
  if (!file || !current) return;
  fwrite(current, 1, current_size, file);
  fclose(file);
  fprintf(stderr, "the input is in finding.bin: target --one finding.bin\n");
}

static void read_corpus(const char *path) {
  FILE *file = fopen(path, "rb");
  uint16_t size;
  if (!file) perror(path), exit(2);
  while (input_count < MOST_INPUTS && fread(&size, sizeof size, 1, file) == 1) {
    uint8_t *input = malloc(size + !size);
    if (!input || fread(input, 1, size, file) != size) fprintf(stderr, "%s is cut\n", path), exit(2);
    inputs[input_count] = input;
    sizes[input_count++] = size;
  }
  fclose(file);
}

static void run(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size + !size); /* of just that size, so that reading past it shows */
  memcpy(copy, data, size);
  current = copy;
  current_size = size;
  LLVMFuzzerTestOneInput(copy, size);
  current = NULL;
  free(copy);
}

// One change: a byte, a bit, a piece of another input in place, bytes gone, or bytes that are new.
static size_t mutate(uint8_t *data, size_t size) {
  unsigned other = next() % input_count;
  size_t at = size ? next() % size : 0, many = 1 + next() % 16;
  switch (next() % 6) {
    case 0:
      if (size) data[at] = (uint8_t)next();
      return size;
    case 1:
      if (size) data[at] ^= (uint8_t)(1u << next() % 8);
      return size;
    case 2: /* the other's bytes from here on */
      if (sizes[other] <= at) return size;
      memcpy(data + at, inputs[other] + at, sizes[other] - at);
      return sizes[other];
    case 3:
      if (at + many > size) return at;
      memmove(data + at, data + at + many, size - at - many);
      return size - many;
    default:
      if (size + many > MOST_NEW) return size;
      memmove(data + at + many, data + at, size - at);
      for (size_t i = 0; i < many; i++) data[at + i] = (uint8_t)next();
      return size + many;
  }
}

static int run_one(const char *path) {
  static uint8_t data[MOST_BYTES];
  FILE *file = fopen(path, "rb");
  if (!file) return perror(path), 2;
  size_t size = fread(data, 1, sizeof data, file);
  fclose(file);
  run(data, size);
  return 0;
}

int main(int count, char **words) {
  static uint8_t data[MOST_BYTES + MOST_NEW];
  if (count == 3 && strcmp(words[1], "--one") == 0) return run_one(words[2]);
  if (count != 4) return fprintf(stderr, "usage: %s CORPUS SEED SECONDS, or --one FILE\n", words[0]), 2;
  __sanitizer_set_death_callback(keep_input);
  read_corpus(words[1]);
  state = strtoull(words[2], NULL, 10);
  for (unsigned i = 0; i < input_count; i++) run(inputs[i], sizes[i]);
  uint64_t done = input_count;
  time_t end = time(NULL) + strtoll(words[3], NULL, 10);
  for (; input_count && time(NULL) < end; done++) {
    unsigned from = next() % input_count;
    size_t size = sizes[from];
    memcpy(data, inputs[from], size);
    for (unsigned changes = 1 + next() % 4; changes; changes--) size = mutate(data, size);
    run(data, size);
  }
  printf("%llu inputs, %u of them the corpus\n", (unsigned long long)done, input_count);
  return 0;
}
