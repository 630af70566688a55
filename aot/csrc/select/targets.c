/* targets.c: which of this library's kernels run on a GPU: those of its compute capability, or of an earlier minor
 * revision. Asks no driver. */
#include <stdio.h>

#include "internal.h"

/* CUDA promises binary compatibility neither from nor to integrated GPUs. */
static bool is_integrated(int capability) {
  for (int32_t i = 0; i < buildable_count; i++)
    if (buildables[i].target == capability) return buildables[i].integrated;
  return false;
}

/* Whether code for `target` that is no architecture's own runs on `capability`: on later minor revisions of the same
 * major one (CUDA programming guide, binary compatibility). */
static bool is_served(int capability, int target) {
  return target / 10 == capability / 10 && target < capability && !is_integrated(target) && !is_integrated(capability);
}

static const struct target *target_for(int capability) {
  const struct target *found = NULL;
  for (int32_t i = 0; i < target_count; i++) { /* in ascending order */
    if (targets[i].target == capability) return &targets[i];
    if (targets[i].portable && is_served(capability, targets[i].target)) found = &targets[i];
  }
  return found;
}

/* What to build for a GPU that nothing here serves: its own capability, or one whose code runs on it; 0 for none. */
static int to_build(int capability) {
  int found = 0;
  for (int32_t i = 0; i < buildable_count; i++) {
    if (buildables[i].target == capability) return capability;
    if (buildables[i].portable && is_served(capability, buildables[i].target)) found = buildables[i].target;
  }
  return found;
}

libgemm_status find_target(const char *what, struct gpu *gpu) {
  int capability = gpu->capability;
  gpu->target = target_for(capability);
  if (gpu->target) return LIBGEMM_OK;
  char have[256] = "", hint[64] = "no version of libgemm builds them yet";
  size_t used = 0;
  int number = to_build(capability);
  for (int32_t i = 0; i < target_count && used < sizeof have - 16; i++)
    used += (size_t)snprintf(have + used, sizeof have - used, "%ssm_%d", i ? ", " : "", targets[i].target);
  if (number) snprintf(hint, sizeof hint, "build with TARGETS=%d", number);
  return fail(LIBGEMM_UNSUPPORTED_DEVICE, "%s: this library has no kernels that run on it, only those for %s; %s", what,
              have, hint);
}

libgemm_status explain_gpu(int32_t number, struct gpu *gpu) {
  const struct device *device;
  if (number == 0) {
    TRY(current_device(&device));
    *gpu = device->gpu;
    return LIBGEMM_OK;
  }
  char what[32];
  snprintf(what, sizeof what, "target = %d", number);
  *gpu = (struct gpu){.capability = number};
  TRY(find_target(what, gpu));
  for (int32_t i = 0; i < buildable_count; i++) /* the usual product of it, or of the one whose kernels run */
    if (buildables[i].target == number || (gpu->multiprocessors == 0 && buildables[i].target == gpu->target->target))
      gpu->multiprocessors = buildables[i].multiprocessors, gpu->shared_bytes = (int)buildables[i].shared_bytes;
  return LIBGEMM_OK;
}
