/* shortlist.c: a problem's bins, and the rows that are noted in all of them. */
#include "select/shortlist.h"

#include <string.h>

#include "internal.h"

enum { TUNED_MULTIPROCESSORS = 132 };

/* Counts steps from 2^octave on, four (or one) an octave, to `most`: the exponent, and two bits of what follows it. */
static inline int quarters_of(float x, int octave, int most) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  int bin = (bits >> 21) - (127 + octave) * 4;
  return bin < 0 ? 0 : bin < most ? bin : most - 1;
}

static inline int octaves_of(float x, int octave) { return quarters_of(x, octave, 64) / 4; }

bool bins_of(const struct problem *p, int bins[SHORTLIST_SIDES]) {
  if (p->op != OP_GEMM || p->count != 1 || p->wants & (WANT_BATCH_INVARIANT | WANT_EQUAL)) return false;
  if (!(p->met & GUARD_DESCRIPTOR_AB) || p->multiprocessors != TUNED_MULTIPROCESSORS) return false;
  float m = (float)p->rows, n = (float)p->n, k = (float)p->k;
  int m_octave = octaves_of(m, 0), n_octave = octaves_of(n, 2), k_octave = octaves_of(k, 2);
  int pair = p->wants & WANT_E5M2_A ? 1 : p->wants & WANT_E5M2_B ? 2 : 0;
  int terms = (p->workspace_bytes != 0) * 4 + !!(p->met & GUARD_DESCRIPTOR) * 2 + !!(p->met & GUARD_BLOCKS);
  bins[0] = BINS_OF_M + quarters_of(m, 0, 64);
  bins[1] = BINS_OF_N + quarters_of(n, 2, 64);
  bins[2] = BINS_OF_K + quarters_of(k, 2, 64);
  bins[3] = BINS_OF_D + quarters_of(m * n, 2, 128);
  bins[4] = BINS_OF_M_N + m_octave * 16 + n_octave;
  bins[5] = BINS_OF_N_K + n_octave * 16 + k_octave;
  bins[6] = BINS_OF_M_K + m_octave * 16 + k_octave;
  bins[7] = BINS_OF_STRIDES + p->a_stride * 4 + p->b_stride;
  bins[8] = BINS_OF_TERMS + pair * 8 + terms;
  return true;
}

static const struct shortlist *find(int first) {
  for (int32_t i = 0; i < shortlist_count; i++)
    if (shortlists[i].first == first) return &shortlists[i];
  return NULL;
}

bool shortlist_of(const struct problem *p, int first, uint64_t listed[ROW_WORDS]) {
  int bins[SHORTLIST_SIDES];
  const struct shortlist *list = shortlist_count ? find(first) : NULL;
  if (!list || !bins_of(p, bins)) return false;
  uint64_t any = 0;
  for (int word = 0; word < ROW_WORDS; word++) {
    uint64_t rows = word < list->words ? ~(uint64_t)0 : 0;
    for (int side = 0; rows && side < SHORTLIST_SIDES; side++) rows &= list->noted[bins[side] * list->words + word];
    listed[word] = rows;
    any |= rows;
  }
  return any != 0;
}
