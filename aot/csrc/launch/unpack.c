/* unpack.c: one function, an LZ4 block decoder (lz4_Block_format.md). No frame, no checksum: build.link made the data.
 */
#include "launch/unpack.h"

#include <string.h>

enum { MIN_MATCH = 4 };

/* A length of 15 in a token goes on in bytes of 255 and a last one below. */
static bool read_length(const unsigned char **at, const unsigned char *end, size_t *length) {
  if (*length != 15) return true;
  unsigned char byte;
  do {
    if (*at == end) return false;
    byte = *(*at)++;
    *length += byte;
  } while (byte == 255);
  return true;
}

bool unpack(const unsigned char *in, size_t in_bytes, unsigned char *out, size_t out_bytes) {
  const unsigned char *at = in, *end = in + in_bytes;
  size_t done = 0;
  while (at != end) {
    unsigned char token = *at++;
    size_t literals = token >> 4, match = token & 15;
    if (!read_length(&at, end, &literals)) return false;
    if (literals > (size_t)(end - at) || literals > out_bytes - done) return false;
    memcpy(out + done, at, literals);
    at += literals;
    done += literals;
    if (at == end) break; /* the last sequence has no match */
    if (end - at < 2) return false;
    size_t distance = at[0] | (size_t)at[1] << 8;
    at += 2;
    if (!read_length(&at, end, &match)) return false;
    match += MIN_MATCH;
    if (distance == 0 || distance > done || match > out_bytes - done) return false;
    for (; match; match--, done++) out[done] = out[done - distance]; /* may overlap itself: byte by byte */
  }
  return done == out_bytes;
}
