/* tensor_map.c: tensor maps for TMA, from a call's matrices and a row's boxes. Launches nothing. */
#include "internal.h"

static libgemm_status encode(const struct matrix *m, const struct driver *driver, struct tensor_map *map) {
  /* Beyond the end of a group's matrix TMA reads zeros, where one matrix of all groups would go on with the next. */
  const uint64_t row = (uint64_t)(m->ld * m->bytes), half = (uint64_t)(m->half * m->bytes);
  const uint64_t plane = m->plane ? (uint64_t)(m->plane * m->bytes) : row;
  uint64_t sizes[4] = {(uint64_t)m->cols, (uint64_t)m->rows, (uint64_t)m->planes, 1}, strides[3] = {row, plane, plane};
  const unsigned extent[4] = {m->box.cols, m->box.rows, 1, 1}, steps[4] = {1, 1, 1, 1};
  if (m->half) sizes[3] = sizes[2], sizes[2] = 2, strides[1] = half;
  TRY_CUDA("cuTensorMapEncodeTiled",
           driver->tensor_map_encode_tiled(map, m->box.element, m->box.rank, m->address, sizes, strides, extent, steps,
                                           CU_TENSOR_MAP_INTERLEAVE_NONE, m->box.swizzle,
                                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  cache_map(m, map);
  return LIBGEMM_OK;
}

/* This call is to keep its maps itself: making one may take the place of those that were found. */
static void own(struct call *call, int found) {
  struct tensor_map **maps = &call->a_desc;
  for (int i = 0; i < found; i++) {
    if (!maps[i]) continue;
    call->own_maps[i] = *maps[i];
    maps[i] = &call->own_maps[i];
  }
}

/* Elements from the gate's first column in B to up's; 0 where a row's map has no dimension for them. */
HOT static int64_t half_of(const struct row *row, const struct call *call) {
  if (!(row->guard & GUARD_HALVED)) return 0;
  int64_t columns = call->gate == LIBGEMM_GATE_PAIRS ? 1 : call->N;
  return row->trans_b ? columns * call->ldb : columns;
}

/* The matrix behind a tensor, but for its box: of groups that have one each, that of the first and how the others
 * follow; of D and C, whose rows kernels count over all groups, all as one. */
HOT static struct matrix matrix_of(const struct row *row, const struct call *call, int tensor) {
  int64_t groups = call->groups > 1 ? call->groups : 1;
  int16_t a_bytes = (int16_t)dtype_bytes(row->a_type), d_bytes = (int16_t)dtype_bytes(row->d_type);
  if (tensor == TENSOR_A)
    return (struct matrix){.address = call->a_ptr,
                           .rows = row->trans_a ? call->K : call->M,
                           .cols = row->trans_a ? call->M : call->K,
                           .ld = call->lda,
                           .plane = call->a_step * call->lda,
                           .planes = call->a_step ? (int32_t)groups : 1,
                           .bytes = a_bytes};
  if (tensor == TENSOR_B)
    return (struct matrix){.address = call->b_ptr,
                           .rows = row->trans_b ? call->N : call->K,
                           .cols = row->trans_b                ? call->K
                                   : row->guard & GUARD_PAIRED ? 2 * call->N
                                                               : call->N,
                           .ld = row->trans_b && call->gate == LIBGEMM_GATE_PAIRS ? 2 * call->ldb : call->ldb,
                           .half = half_of(row, call),
                           .plane = call->b_step * call->ldb,
                           .planes = call->b_step ? (int32_t)groups : 1,
                           .bytes = a_bytes};
  bool is_c = tensor < TENSOR_D;
  return (struct matrix){.address = is_c ? call->c_ptr : call->d_ptr,
                         .rows = call->M + (groups - 1) * call->d_step,
                         .cols = call->N,
                         .ld = is_c ? call->ldc : call->ldd,
                         .planes = 1,
                         .bytes = d_bytes};
}

/* A C that is not read may not exist: its maps are D's, whose boxes it shares. So are those of parts that a tile has
 * not: kernels look at neither, but a launch holds nothing that a call did not set. */
HOT libgemm_status find_maps(const struct plan *plan, const struct device *device, struct call *call) {
  const struct row *row = plan->row;
  struct tensor_map **maps = &call->a_desc, **c = maps + TENSOR_C, **d = maps + TENSOR_D;
  bool reads_c = call->beta != 0.0f, owns = false;
  for (int i = 0; i < TENSOR_COUNT; i++) {
    maps[i] = NULL;
    if (!row->boxes[i].rows || (i >= TENSOR_C && i < TENSOR_D && !reads_c)) continue;
    struct matrix matrix = matrix_of(row, call, i);
    matrix.device = (int16_t)device->ordinal, matrix.box = row->boxes[i];
    maps[i] = cached_map(&matrix, plan->recent ? plan->recent->maps + i : NULL);
    if (maps[i] && !owns) continue;
    if (!owns) own(call, i);
    owns = true;
    if (maps[i])
      call->own_maps[i] = *maps[i];
    else
      TRY(encode(&matrix, device->driver, &call->own_maps[i]));
    maps[i] = &call->own_maps[i];
  }
  struct tensor_map *any = NULL;  // a tile narrower than the widest part has not that one
  for (int i = 0; i < row->parts && !any; i++) any = d[i];
  for (int i = 0; i < row->parts; i++) {
    if (!d[i]) d[i] = any;
    if (!c[i]) c[i] = d[i];
  }
  return LIBGEMM_OK;
}
