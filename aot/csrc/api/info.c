/* info.c: what this library is: versions, variants, targets, manifest; and preloading them. */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "internal.h"

const char *libgemm_version(void) { return LIBGEMM_VERSION; }
int32_t libgemm_abi(void) { return LIBGEMM_ABI; }
const char *libgemm_build_id(void) { return build_id; }
int32_t libgemm_variant_count(void) { return row_count; }
int32_t libgemm_target_count(void) { return target_count; }

const char *libgemm_manifest(uint64_t *bytes) {
  static pthread_mutex_t unpacking = PTHREAD_MUTEX_INITIALIZER;
  static bool tried, whole;
  pthread_mutex_lock(&unpacking);
  if (!tried) {
    whole = unpack(manifest_blob, manifest_packed_bytes, (unsigned char *)manifest_text, manifest_bytes);
    if (!whole) manifest_text[0] = 0;
    tried = true;
  }
  pthread_mutex_unlock(&unpacking);
  if (bytes) *bytes = whole ? manifest_bytes : 0;
  return manifest_text;
}

static libgemm_status check_index(int32_t index, int32_t count) {
  if (index >= 0 && index < count) return LIBGEMM_OK;
  return fail(LIBGEMM_INVALID_ARGUMENT, "index = %d: allowed is 0 to %d", index, count - 1);
}

/* Give a caller what its header knows of `found`, whose first field is the size of its own struct; what only a newer
 * header has is 0. `oldest` is the size of the first header's. */
static libgemm_status give(void *info, const void *found, uint64_t oldest, uint64_t bytes) {
  enum { MOST = 4096 };
  uint64_t size = 0;
  if (info) memcpy(&size, info, sizeof size);
  if (size < oldest || size > MOST)
    return fail(LIBGEMM_INVALID_ARGUMENT, "info is NULL, or its size = %llu: allowed is %llu to %d; set it to sizeof",
                (unsigned long long)size, (unsigned long long)oldest, MOST);
  uint64_t known = size < bytes ? size : bytes;
  memcpy((char *)info + sizeof size, (const char *)found + sizeof size, known - sizeof size);
  memset((char *)info + known, 0, size - known);
  return LIBGEMM_OK;
}

libgemm_status libgemm_variant_get(int32_t index, libgemm_variant_info *info) {
  TRY(check_index(index, row_count));
  const struct row *row = &rows[index];
  const libgemm_variant_info found = {
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
      .linear = (row->guard & GUARD_LINEAR) != 0,
      .architecture = row->architecture,
      .family = row->family,
      .chunk = (int32_t)row->chunk,
  };
  return give(info, &found, offsetof(libgemm_variant_info, architecture), sizeof found);
}

libgemm_status libgemm_variant_cubin(int32_t index, void *buffer, uint64_t bytes) {
  TRY(check_index(index, row_count));
  if (!buffer) return fail(LIBGEMM_INVALID_ARGUMENT, "buffer is NULL: memory for the cubin is needed");
  if (bytes != rows[index].cubin_bytes)
    return fail(LIBGEMM_INVALID_ARGUMENT, "bytes = %llu: variant %s has %u", (unsigned long long)bytes,
                rows[index].name, rows[index].cubin_bytes);
  return read_cubin(&rows[index], buffer);
}

libgemm_status libgemm_target_get(int32_t index, libgemm_target_info *info) {
  TRY(check_index(index, target_count));
  const struct target *target = &targets[index];
  const libgemm_target_info found = {.target = target->target,
                                     .variants = target->rows,
                                     .min_cuda = target->min_cuda,
                                     .min_driver = target->min_driver,
                                     .portable = target->portable};
  return give(info, &found, offsetof(libgemm_target_info, portable), sizeof found);
}

static bool runs_on(const struct row *row, const struct device *device) {
  return row->target == device->gpu.target->target && row->shared_bytes <= (uint32_t)device->gpu.shared_bytes;
}

static libgemm_status preload_rows(const struct device *device) {
  for (uint32_t chunk = 0; chunk < chunk_count; chunk++) /* so that each is unpacked once */
    for (int32_t i = 0; i < row_count; i++)
      if (rows[i].chunk == chunk && runs_on(&rows[i], device)) TRY(load_row(&rows[i], device));
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
