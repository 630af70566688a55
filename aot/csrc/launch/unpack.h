/* unpack.h: unpacks what aot/pack.py packed. Needs nothing else of the library. */
#ifndef LIBGEMM_LAUNCH_UNPACK_H
#define LIBGEMM_LAUNCH_UNPACK_H

#include <stdbool.h>
#include <stddef.h>

/* Unpack one LZMA stream. Returns false, having stayed inside both buffers, when `in` is not exactly `out_bytes`. */
bool unpack(const unsigned char *in, size_t in_bytes, unsigned char *out, size_t out_bytes);

#endif
