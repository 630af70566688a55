// known.h: findings that are known and not mended yet. 1 leaves the check out; a mended one loses its line and its
// uses.
#ifndef KNOWN_H_
#define KNOWN_H_

enum {
  KNOWN_BYTES_UNSET = 1,         // *_workspace does not set *bytes where it fails
  KNOWN_D_IS_INPUT = 1,          // D on A or B, which are read, is not refused
  KNOWN_ELEMENT_MISALIGNED = 1,  // a pointer that breaks its element's own alignment is not refused
  KNOWN_MANY_TILES = 1,          // blocks that take many tiles count past 2^31: to the last tile, and a grid further
  KNOWN_DAMAGE_GIVEN = 1,        // libgemm_variant_cubin gives a kernel that is damaged
  KNOWN_OTHER_GPU_PLANNED = 1,   // workspace and explain plan for the current GPU, not for D's
};

#endif
