/* cost.c: how long a row takes on a problem. The formulas are those of kernels/table/model.py, where they are
 * explained. */
#include <string.h>

#include "internal.h"

/* ---- Arithmetic, without libm ---- */

/* log2 to 2e-5: x = 2^e * m with 1 <= m < 2, and log m by its series in (m - 1) / (m + 1). */
static float log2_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 23) - 127;
  bits = (bits & 0x7FFFFF) | 0x3F800000;
  float m;
  memcpy(&m, &bits, sizeof m);
  float s = (m - 1) / (m + 1), t = s * s;
  return (float)exponent + s * (2.8853901f + t * (0.9617967f + t * (0.5770780f + t * 0.4121986f)));
}

static float exp2_of(float x) {
  if (!(x < 120)) x = 120; /* a NaN, of sizes that no memory holds, is as slow */
  if (x < -120) x = -120;
  int whole = (int)x - (x < 0);
  float y = (x - (float)whole) * 0.69314718f, power = 1, term = 1;
  for (int i = 1; i < 9; i++) {
    term *= y / (float)i;
    power += term;
  }
  uint32_t bits = (uint32_t)(whole + 127) << 23;
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return power * scale;
}

static float fourth(float x) { return x * x * x * x; }
static float fourth_root(float x) { return exp2_of(log2_of(x) / 4); }
static float most_of(float a, float b) { return a > b ? a : b; }

/* ---- Time ---- */

static float limited(int64_t x, int64_t most) { return (float)(x < most ? x : most); }

/* Rows of A that each tile works on. */
static int64_t rows_of_tile(const struct row *row, const struct problem *p) {
  if (!row->row_step || p->rows == 0) return row->block_m;
  return ceil_div(ceil_div(p->rows, ceil_div(p->rows, row->block_m)), row->row_step) * row->row_step;
}

void estimate(const struct row *row, const struct problem *p, struct estimate *e) {
  const struct machine *m = &machine;
  int64_t most = (int64_t)1 << 60; /* counts beyond differ by nothing */
  float a_bytes = (float)dtype_bytes(p->a_type), d_bytes = (float)dtype_bytes(p->d_type);
  float rows_of_d = (float)p->rows, n = (float)p->n, k = (float)p->k, count = (float)p->count;
  int split = split_count(row, p);
  int64_t tiles = tile_count(row, p) * split;
  if (p->count > 1 && tiles > most / p->count) tiles = most / p->count;
  e->tiles = (float)(tiles * p->count);
  e->waves = limited(ceil_div(tiles * p->count, p->multiprocessors), most);
  e->steps = (float)ceil_div(ceil_div(p->k, row->block_k), split);
  e->split = (float)split;
  float block_m = (float)rows_of_tile(row, p), block_n = row->block_n, block_k = row->block_k;
  float moved =
      e->steps * (block_m * stride_penalty[p->a_stride] + block_n * stride_penalty[p->b_stride]) * block_k * a_bytes;
  float bytes = count * (a_bytes * (rows_of_d * k + n * k) + d_bytes * rows_of_d * n);
  e->load = e->waves * moved / m->load * 1e-3f;
  e->multiply = e->waves * e->steps * block_m * block_n * block_k * a_bytes / 2 / m->multiply * 1e-3f;
  e->l2 = e->tiles * moved / m->l2 * 1e-3f;
  e->memory = bytes / m->memory * 1e-3f;
  if (row->fit) {
    float sum = fourth(e->load) + fourth(e->multiply) + fourth(e->l2) + fourth(e->memory);
    e->plain_us = 3 + e->waves / 2 + (sum > 0 ? fourth_root(sum) : 0);
    e->us = e->plain_us * row->fit->scale;
    return;
  }
  float compute = row->model.fixed_ns + e->waves * (e->steps * row->model.step_ns + row->model.tile_ns);
  if (row->scratch_bytes) compute += 2000; /* the first descriptors: others are made while tiles are multiplied */
  float memory = row->model.fixed_ns + bytes * row->model.byte_ps * 1e-3f;
  e->us = fourth_root(fourth(compute * 1e-3f) + fourth(memory * 1e-3f));
}

/* The features of kernels/table/model.py, in its order. */
static void features(const struct row *row, const struct problem *p, const struct estimate *e, float *x) {
  float processors = (float)p->multiprocessors, all = e->waves * processors;
  float rows_of_d = (float)p->rows, n = (float)p->n;
  int64_t block_m = rows_of_tile(row, p);
  const float parts[LOG_TERMS] = {
      e->plain_us,
      2 + e->load,
      2 + e->multiply,
      2 + e->memory,
      2 + e->l2,
      e->waves,
      e->tiles < processors ? e->tiles / processors : 1,
      rows_of_d / (float)(ceil_div(p->rows, block_m) * block_m),
      n / ((float)ceil_div(p->n, row->block_n) * row->block_n),
      e->waves > 1 ? e->tiles / all : 1,
      e->steps,
      e->split,
      rows_of_d,
      n,
      (float)p->k * (float)dtype_bytes(p->a_type) / 2, /* in elements of 16 bits */
  };
  *x++ = 1;
  float *logs = x;
  for (int i = 0; i < LOG_TERMS; i++) *x++ = log2_of(parts[i]);
  for (int i = 0; i < PRODUCT_TERMS; i++)
    for (int j = i; j < PRODUCT_TERMS; j++) *x++ = logs[i] * logs[j];
  float most = 3 + most_of(most_of(e->load, e->multiply), most_of(e->memory, e->l2));
  for (int i = 0; i < 2; i++) {
    int stride = i ? p->b_stride : p->a_stride;
    for (int c = 0; c < 3; c++) *x++ = stride == c;
    *x++ = stride == 0 ? e->memory / most : 0;
    *x++ = stride == 1 ? e->memory / most : 0;
    *x++ = stride == 0 ? e->load / most : 0;
  }
}

float fitted_us(const struct row *row, const struct problem *p, const struct estimate *e) {
  float x[TERMS], sum = 0;
  if (!row->fit) return e->us;
  features(row, p, e, x);
  const float *weights = row->fit->weights[p->trans_a * 2 + p->trans_b];
  for (int i = 0; i < TERMS; i++) sum += weights[i] * x[i];
  return exp2_of(sum);
}

/* 3 for rows that begin on 128 bytes, 2 on 64, 1 on 32, else 0. */
HOT int32_t stride_class(int64_t ld, int bytes) {
  uint64_t low = (uint64_t)ld * (uint64_t)bytes % 128; /* of any ld: nobody has checked it yet */
  return low == 0 ? 3 : low % 64 == 0 ? 2 : low % 32 == 0;
}
