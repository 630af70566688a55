/* tensor.c: tensor maps for the copy engine, from a call's matrices and a row's boxes. Launches nothing. */
#include "internal.h"

struct matrix {
  CUdeviceptr address;
  int64_t rows, cols, ld; /* as stored, in elements */
  int bytes;              /* of an element */
  struct tensor *tensor;
};

static libgemm_status encode(const struct box *box, const struct matrix *m, const struct driver *driver) {
  const uint64_t sizes[2] = {(uint64_t)m->cols, (uint64_t)m->rows}, stride = (uint64_t)(m->ld * m->bytes);
  const unsigned extent[2] = {box->cols, box->rows}, steps[2] = {1, 1};
  TRY_CUDA("cuTensorMapEncodeTiled",
           driver->tensor_map_encode_tiled(m->tensor->map, box->element, 2, m->address, sizes, &stride, extent, steps,
                                           CU_TENSOR_MAP_INTERLEAVE_NONE, box->swizzle,
                                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return LIBGEMM_OK;
}

libgemm_status encode_tensors(const struct row *row, const struct device *device, struct call *call) {
  int a_bytes = row->a_type == LIBGEMM_F32 ? 4 : 2, d_bytes = row->d_type == LIBGEMM_F32 ? 4 : 2;
  bool reads_c = call->beta != 0.0f;
  const struct matrix matrices[TENSOR_COUNT] = {
      {call->a_ptr, row->trans_a ? call->K : call->M, row->trans_a ? call->M : call->K, call->lda, a_bytes,
       &call->a_desc},
      {call->b_ptr, row->trans_b ? call->N : call->K, row->trans_b ? call->K : call->N, call->ldb, a_bytes,
       &call->b_desc},
      /* a C that is not read may not exist: its map, which nothing uses, is D's */
      {reads_c ? call->c_ptr : call->d_ptr, call->M, call->N, reads_c ? call->ldc : call->ldd, d_bytes, &call->c_desc},
      {call->d_ptr, call->M, call->N, call->ldd, d_bytes, &call->d_desc},
  };
  for (int i = 0; i < TENSOR_COUNT; i++)
    if (row->boxes[i].rows) TRY(encode(&row->boxes[i], &matrices[i], device->driver));
  return LIBGEMM_OK;
}
