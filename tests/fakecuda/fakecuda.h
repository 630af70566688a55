// What C tests may ask of the fake CUDA driver beside the driver's own functions.
#ifndef FAKECUDA_H_
#define FAKECUDA_H_

#include <stddef.h>
#include <stdint.h>

// From the kernel's own table of parameters.
struct fakecuda_parameter {
  uint32_t offset, size;
};

// A launch that the driver's rules allow, just before it would begin.
struct fakecuda_launch {
  const void *handle;  // the kernel's, a CUkernel, also where the launch was asked for by a function
  const char *kernel;
  int device;
  uint32_t grid[3], block[3], cluster[3], shared;
  size_t parameters;
  void *const *values;  // addresses of the parameters, in the kernel's order
  const struct fakecuda_parameter *table;
};

// Functions to be told of each launch, and of each copy from host memory that stays inside device memory. They run
// under the driver's lock, so they may not call it.
struct fakecuda_watcher {
  void (*launch)(const struct fakecuda_launch *launch);
  void (*copy)(uint64_t to, const void *from, size_t bytes);
};

void fakecuda_watch(const struct fakecuda_watcher *watcher);  // with NULL functions nobody is told
void fakecuda_fail(const char *spec);                         // as FAKECUDA_FAIL; NULL for none
void fakecuda_set_capturing(int on);
uint64_t fakecuda_count(const char *function);

#endif  // FAKECUDA_H_
