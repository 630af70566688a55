// Finds the tensor maps of tiles of every width, whose parts of D are of 64, 32, 16 and 8 columns, those it has not
// left out. Linked with the C core; encodes into nothing. Prints how many widths there were.
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

#define REQUIRE(condition) ((condition) ? (void)0 : (printf("%s:%d: %s\n", __FILE__, __LINE__, #condition), exit(1)))

static int encoded;

static CUresult encode(void *map, int type, unsigned rank, CUdeviceptr address, const uint64_t *sizes,
                       const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave, int swizzle,
                       int promotion, int fill) {
  (void)map, (void)type, (void)rank, (void)sizes, (void)strides, (void)steps;
  (void)interleave, (void)swizzle, (void)promotion, (void)fill;
  REQUIRE(address && box[0] && box[1]);
  encoded++;
  return 0;
}

/* D's maps, all there, and each part that the width has its own. */
static void check(int width, float beta) {
  static CUdeviceptr fresh;  // memory that no map of is remembered
  static const struct driver driver = {.tensor_map_encode_tiled = encode};
  static const struct device device = {.driver = &driver};
  const int parts[4] = {width / 64, width & 32, width & 16, width & 8};
  struct row row = {.a_type = LIBGEMM_BF16, .d_type = LIBGEMM_BF16, .trans_b = 1, .parts = 4};
  int used = 0;
  for (int i = 0; i < 4; i++) {
    struct box box = {.rows = parts[i] ? 64 : 0, .cols = (uint16_t)(64 >> i), .rank = 2};
    row.boxes[TENSOR_C + i] = row.boxes[TENSOR_D + i] = box;
    used += parts[i] != 0;
  }
  fresh += 8192, encoded = 0;
  struct call call = {.c_ptr = fresh, .d_ptr = fresh + 4096, .beta = beta};
  call.M = 64, call.N = call.ldc = call.ldd = 512, call.K = 64;
  const struct plan plan = {.row = &row};
  REQUIRE(find_maps(&plan, &device, &call) == LIBGEMM_OK);
  struct tensor_map **c = &call.c_desc, **d = &call.d_desc;
  int own = 0;
  for (int i = 0; i < 4; i++) {
    REQUIRE(d[i] && c[i]);  // what a launch is given is read, also of a part that the kernel does not look at
    own += d[i] == &call.own_maps[TENSOR_D + i];
    REQUIRE(!parts[i] || beta == 0.0f || c[i] == &call.own_maps[TENSOR_C + i]);
  }
  REQUIRE(own == used && encoded == used * (beta == 0.0f ? 1 : 2));
}

int main(void) {
  int widths = 0;
  for (int width = 8; width <= 256; width += 8, widths++) check(width, 0.0f), check(width, 1.0f);
  printf("%d\n", widths);
  return 0;
}
