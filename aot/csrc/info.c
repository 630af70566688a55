/* info.c: what this library is: versions, variants, targets, manifest; and preloading them. */
#include <string.h>

#include "internal.h"

const char *libgemm_version(void) { return LIBGEMM_VERSION; }
int32_t libgemm_abi(void) { return LIBGEMM_ABI; }
const char *libgemm_build_id(void) { return build_id; }
int32_t libgemm_variant_count(void) { return row_count; }
int32_t libgemm_target_count(void) { return target_count; }

const char *libgemm_manifest(uint64_t *bytes) {
  if (bytes) *bytes = manifest_bytes;
  return manifest;
}

/* Checks that `info` can take `needed` bytes and `index` is below `count`. */
static libgemm_status check_query(const uint64_t *size, uint64_t needed, int32_t index, int32_t count) {
  if (index < 0 || index >= count)
    return fail(LIBGEMM_INVALID_ARGUMENT, "index = %d: allowed is 0 to %d", index, count - 1);
  if (!size || *size < needed)
    return fail(LIBGEMM_INVALID_ARGUMENT, "info is NULL or its size is below %llu", (unsigned long long)needed);
  return LIBGEMM_OK;
}

libgemm_status libgemm_variant_get(int32_t index, libgemm_variant_info *info) {
  TRY(check_query(info ? &info->size : NULL, sizeof *info, index, row_count));
  const struct row *row = &rows[index];
  *info =
      (libgemm_variant_info){.size = info->size,
                             .name = row->name,
                             .op = op_names[row->op],
                             .sha256 = row->sha256,
                             .target = row->target,
                             .a_type = row->a_type,
                             .d_type = row->d_type,
                             .precision = row->precision,
                             .trans_a = row->trans_a,
                             .trans_b = row->trans_b,
                             .block_m = row->block_m,
                             .block_n = row->block_n,
                             .block_k = row->block_k,
                             .warps = row->warps,
                             .ctas = row->ctas,
                             .registers = row->registers,
                             .shared_bytes = row->shared_bytes,
                             .local_bytes = row->local_bytes,
                             .cubin_bytes = row->cubin_bytes,
                             .align16 = (row->guard & (GUARD_ALIGN16 | GUARD_DESCRIPTOR | GUARD_DESCRIPTOR_AB)) != 0,
                             .single = (row->guard & (GUARD_DESCRIPTOR | GUARD_DESCRIPTOR_AB)) != 0,
                             .linear = (row->guard & GUARD_LINEAR) != 0};
  return LIBGEMM_OK;
}

libgemm_status libgemm_variant_cubin(int32_t index, void *buffer, uint64_t bytes) {
  if (index < 0 || index >= row_count)
    return fail(LIBGEMM_INVALID_ARGUMENT, "index = %d: allowed is 0 to %d", index, row_count - 1);
  if (!buffer) return fail(LIBGEMM_INVALID_ARGUMENT, "buffer is NULL: memory for the cubin is needed");
  if (bytes != rows[index].cubin_bytes)
    return fail(LIBGEMM_INVALID_ARGUMENT, "bytes = %llu: variant %s has %u", (unsigned long long)bytes,
                rows[index].name, rows[index].cubin_bytes);
  return read_cubin(&rows[index], buffer);
}

libgemm_status libgemm_target_get(int32_t index, libgemm_target_info *info) {
  TRY(check_query(info ? &info->size : NULL, sizeof *info, index, target_count));
  const struct target *target = &targets[index];
  *info = (libgemm_target_info){.size = info->size,
                                .target = target->target,
                                .variants = target->rows,
                                .min_cuda = target->min_cuda,
                                .min_driver = target->min_driver};
  return LIBGEMM_OK;
}

static libgemm_status preload_rows(const struct device *device) {
  for (int32_t i = 0; i < row_count; i++)
    if (rows[i].target == device->target->target) TRY(load_row(&rows[i], device));
  return LIBGEMM_OK;
}

libgemm_status libgemm_preload(int32_t ordinal) {
  const struct device *device;
  bool entered;
  TRY(device_get(ordinal, &device));
  TRY(enter_device(device, &entered));
  libgemm_status status = preload_rows(device);
  leave_device(device, entered);
  return status;
}
