/* tensor_map.c: tensor maps for TMA, from a call's matrices and a row's boxes. Launches nothing. */
#include <string.h>

#include "internal.h"

static libgemm_status encode(const struct matrix *m, const struct driver *driver, struct tensor_map *map) {
  const uint64_t sizes[2] = {(uint64_t)m->cols, (uint64_t)m->rows}, stride = (uint64_t)(m->ld * m->bytes);
  const unsigned extent[2] = {m->box.cols, m->box.rows}, steps[2] = {1, 1};
  TRY_CUDA("cuTensorMapEncodeTiled",
           driver->tensor_map_encode_tiled(map, m->box.element, 2, m->address, sizes, &stride, extent, steps,
                                           CU_TENSOR_MAP_INTERLEAVE_NONE, m->box.swizzle,
                                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  cache_map(m, map);
  return LIBGEMM_OK;
}

HOT static libgemm_status fill(const struct matrix *m, const struct driver *driver, struct tensor *tensor) {
  tensor->shape[0] = tensor->shape[1] = 0;
  tensor->strides[0] = tensor->strides[1] = 0;
  const struct tensor_map *known = cached_map(m);
  if (!known) return encode(m, driver, &tensor->map);
  tensor->map = *known;
  return LIBGEMM_OK;
}

HOT libgemm_status encode_tensors(const struct row *row, const struct device *device, struct call *call) {
  uint16_t a_bytes = (uint16_t)dtype_bytes(row->a_type), d_bytes = (uint16_t)dtype_bytes(row->d_type);
  bool reads_c = call->beta != 0.0f;
  const struct box *boxes = row->boxes;
  int64_t gpu = device->ordinal, more = call->groups > 1 ? call->groups - 1 : 0;
  const struct matrix matrices[TENSOR_COUNT] = {
      {call->a_ptr, (row->trans_a ? call->K : call->M) + more * call->a_step, row->trans_a ? call->M : call->K,
       call->lda, gpu, boxes[0], a_bytes},
      {call->b_ptr, (row->trans_b ? call->N : call->K) + more * call->b_step, row->trans_b ? call->K : call->N,
       call->ldb, gpu, boxes[1], a_bytes},
      /* a C that is not read may not exist: its map, which nothing uses, is D's */
      {reads_c ? call->c_ptr : call->d_ptr, call->M + more * call->d_step, call->N, reads_c ? call->ldc : call->ldd,
       gpu, boxes[2], d_bytes},
      {call->d_ptr, call->M + more * call->d_step, call->N, call->ldd, gpu, boxes[3], d_bytes},
  };
  struct tensor *tensors[TENSOR_COUNT] = {&call->a_desc, &call->b_desc, &call->c_desc, &call->d_desc};
  bool c_is_d = !reads_c && boxes[2].rows && memcmp(&boxes[2], &boxes[3], sizeof boxes[2]) == 0;
  for (int i = 0; i < TENSOR_COUNT; i++)
    if (boxes[i].rows && !(i == 2 && c_is_d)) TRY(fill(&matrices[i], device->driver, tensors[i]));
  if (c_is_d) call->c_desc = call->d_desc;
  return LIBGEMM_OK;
}
