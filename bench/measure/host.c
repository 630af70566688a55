/* host.c: loops that time calls from C, so that no Python is in the figure. bench/measure/host.py builds it with cc. */
#include <stdint.h>
#include <time.h>

typedef int (*gemm_call)(const void *args);
typedef int (*launch_call)(const void *config, void *function, void **parameters, void **extra);
typedef int (*query_call)(void *value, int attribute, uint64_t pointer);

struct launch {
  const void *config;
  void *function;
  void **parameters, **extra;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Each: nanoseconds of one of `count` calls, which take the `kinds` given things in turn; below 0 less the status of a
 * call that failed. */

double host_gemm(gemm_call call, const void *const *args, int kinds, int count) {
  double start = now();
  for (int i = 0, kind = 0; i < count; i++, kind = kind + 1 < kinds ? kind + 1 : 0) {
    int status = call(args[kind]);
    if (status) return -(double)status;
  }
  return (now() - start) / count;
}

double host_launch(launch_call call, const struct launch *launches, int kinds, int count) {
  double start = now();
  for (int i = 0, kind = 0; i < count; i++, kind = kind + 1 < kinds ? kind + 1 : 0) {
    const struct launch *l = &launches[kind];
    int status = call(l->config, l->function, l->parameters, l->extra);
    if (status) return -(double)status;
  }
  return (now() - start) / count;
}

double host_query(query_call call, int attribute, const uint64_t *pointers, int kinds, int count) {
  double start = now();
  for (int i = 0, kind = 0; i < count; i++, kind = kind + 1 < kinds ? kind + 1 : 0) {
    uint64_t value = 0;
    int status = call(&value, attribute, pointers[kind]);
    if (status) return -(double)status;
  }
  return (now() - start) / count;
}
