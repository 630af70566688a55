/* copies.c: A and B copied to aligned rows, or transposed, in the workspace ahead of a product: what, when that pays,
 * and doing it. */
#include "internal.h"

/* Rows of a transposed 16-bit A up to which it may be turned: where it is copied anyway, and where it need not be. */
enum { FEW_ROWS = 128, SOME_ROWS = 1024 };
static const unsigned misaligned[] = {MISALIGNED_A, MISALIGNED_B};

/* Tensor cores take operands of other than 16 bits only where K comes last. So do the rows for few rows of a 16-bit A:
 * transposed, TMA brings 64 of them at least; and of some hundred, tiles of more heights fit. Of packed 16-bit groups
 * what ends cut must not be what is contiguous. */
static bool wants_k_last(const struct problem *p) { return dtype_bytes(p->a_type) != 2; }
static bool cuts(const struct problem *p, int32_t ragged) {
  return p->op == OP_GROUPED_MM && p->ragged == ragged && !wants_k_last(p);
}
static bool turns_a(const struct problem *p) {
  if (cuts(p, LIBGEMM_RAGGED_K)) return !p->trans_a;
  int64_t most = p->memory & (MISALIGNED_A | MISALIGNED_B) ? FEW_ROWS : SOME_ROWS;
  return p->trans_a && (wants_k_last(p) || cuts(p, LIBGEMM_RAGGED_M) || (p->op == OP_GEMM && p->m <= most));
}
static bool turns_b(const struct problem *p) {
  return p->trans_b ? cuts(p, LIBGEMM_RAGGED_K) : wants_k_last(p) || cuts(p, LIBGEMM_RAGGED_N);
}

struct copies copies_of(const struct problem *p) {
  const uint64_t most = (uint64_t)1 << 61;                    /* no memory is larger, and two of them can be added */
  int64_t bytes = dtype_bytes(p->a_type), step = 128 / bytes; /* rows of a copy begin on 128 bytes */
  int64_t m = p->m, n = p->whole_n, k = p->whole_k;
  struct copies c = {.rows = {p->trans_a ? k : m, p->trans_b ? n : k},
                     .cols = {p->trans_a ? m : k, p->trans_b ? k : n},
                     .turn = {turns_a(p), turns_b(p)}};
  for (int i = 0; i < 2; i++) {
    if (!(p->memory & misaligned[i]) && !c.turn[i]) c.rows[i] = 0;
    c.ld[i] = ceil_div(c.turn[i] ? c.rows[i] : c.cols[i], step) * step;
    uint64_t elements = (uint64_t)(c.turn[i] ? c.cols[i] : c.rows[i]) * (uint64_t)c.ld[i];
    c.bytes[i] = elements < most / (uint64_t)bytes ? elements * (uint64_t)bytes : most;
  }
  return c;
}

/* Of the rows that copy, the one for these: square tiles where something is turned, whole pieces of 16 bytes where all
 * that is copied has them. */
static const struct row *copier_of(const struct problem *p, const struct copies *c, const struct row *first,
                                   const struct row *end) {
  bool turned = false, whole = true;
  for (int i = 0; i < 2; i++) {
    if (!c->rows[i]) continue;
    turned |= c->turn[i];
    whole &= !(p->memory & misaligned[i]) && c->cols[i] * dtype_bytes(p->a_type) % 16 == 0;
  }
  const struct row *best = first;
  for (const struct row *row = first; row < end; row++) {
    bool fits = (row->block_m == row->block_n) == turned && (whole || !(row->guard & GUARD_ALIGN16));
    if (fits && (best == first || row->guard & GUARD_ALIGN16)) best = row;
  }
  return best;
}

/* Of one product: what its bytes take, or a launch that does next to nothing (measured: 1.9). */
static float least_us(const struct problem *p) {
  float a = (float)dtype_bytes(p->a_type), d = (float)dtype_bytes(p->d_type);
  float m = (float)p->m, n = (float)p->n, k = (float)p->k;
  float bytes_us = (a * (m * k + n * k) + d * m * n) / machine.memory * 1e-3f;
  return bytes_us > 1.9f ? bytes_us : 1.9f;
}

void aligned_first(const struct problem *p, const struct target *target, float us, struct choice *choice) {
  struct problem copy = {.op = OP_ALIGN, .a_type = LIBGEMM_BF16, .d_type = LIBGEMM_BF16};
  int first, end, copiers, past;
  if (p->a_type == LIBGEMM_F32)
    copy = (struct problem){.op = OP_ALIGN, .a_type = LIBGEMM_F32, .d_type = LIBGEMM_F32, .precision = LIBGEMM_TF32};
  if (p->a_type == LIBGEMM_E4M3) {
    if (p->wants & WANT_BATCH_INVARIANT) return; /* where it pays depends on M, and rows without it add otherwise */
    copy.a_type = LIBGEMM_E4M3;
  }
  bucket_of(&copy, target, &copiers, &past);
  if (!(p->memory & READS_AB) || copiers == past || (p->a_type == LIBGEMM_F32 && p->precision != LIBGEMM_TF32)) return;
  struct copies copies = copies_of(p);
  uint64_t bytes = copies.bytes[0] + copies.bytes[1];
  if (bytes == 0 || bytes > p->workspace_bytes) return;
  /* A launch, and each byte read and written. Without a fit the time to beat is guessed a third too long. */
  bool fitted = choice->row && choice->row->fit;
  float copy_us = (fitted ? 2 : 3) + (float)bytes * 2 / machine.memory * 1e-3f;
  if (fitted && copy_us + least_us(p) >= us) return; /* nothing to ask */
  struct problem seen = *p;
  seen.met = (p->met & ~(unsigned)(GUARD_ROWS | GUARD_COLUMNS | GUARD_EQUAL)) | p->met_by_copies;
  if (copies.rows[0]) seen.a_stride = 3, seen.trans_a ^= copies.turn[0];
  if (copies.rows[1]) seen.b_stride = 3, seen.trans_b ^= copies.turn[1];
  seen.workspace_bytes -= bytes;
  float seen_us = 0;
  bucket_of(&seen, target, &first, &end);
  const struct row *row = fastest(&seen, first, end, 0, &seen_us);
  if (!row || !(row->guard & (GUARD_DESCRIPTOR | GUARD_DESCRIPTOR_AB)) || seen_us + copy_us >= us) return;
  const struct row *copier = copier_of(p, &copies, &rows[copiers], &rows[past]);
  *choice = (struct choice){.row = row, .copier = copier, .copy_us = copy_us, .seen = seen};
}

libgemm_status queue_copies(const struct problem *p, const struct row *copier, const struct device *device,
                            struct call *call, CUdeviceptr *workspace, libgemm_stream stream) {
  struct copies c = copies_of(p);
  call->a_copy = *workspace;
  call->b_copy = call->a_copy + c.bytes[0];
  call->a_rows = (int32_t)c.rows[0], call->a_cols = (int32_t)c.cols[0], call->copy_lda = c.ld[0];
  call->b_rows = (int32_t)c.rows[1], call->b_cols = (int32_t)c.cols[1], call->copy_ldb = c.ld[1];
  call->a_transpose = c.turn[0], call->b_transpose = c.turn[1];
  int64_t blocks = 0;
  for (int i = 0; i < 2; i++) blocks += ceil_div(c.rows[i], copier->block_m) * ceil_div(c.cols[i], copier->block_n);
  TRY(copier->launch(copier, device, call, blocks, stream));
  if (c.rows[0]) call->a_ptr = call->a_copy, call->lda = c.ld[0];
  if (c.rows[1]) call->b_ptr = call->b_copy, call->ldb = c.ld[1];
  *workspace = call->b_copy + c.bytes[1];
  return LIBGEMM_OK;
}
