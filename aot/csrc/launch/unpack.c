/* unpack.c: one function, a decoder of raw LZMA streams that end with their marker (7-Zip's LZMA specification). No
 * container, no checksum: aot/pack.py made the data, with the literals and positions that are named here. */
#include "launch/unpack.h"

#include <stdint.h>
#include <string.h>

/* Bits of the byte before that a literal's model depends on, and of the position, in instructions of 16 bytes, that
 * others do: aot/pack.py says the same to the encoder. */
enum { LITERAL_BITS = 3, POSITION_BITS = 4 };
enum {
  STATES = 12, /* kinds of what was decoded last: below FIRST_MATCH a literal */
  FIRST_MATCH = 7,
  POSITIONS = 1 << POSITION_BITS,
  LENGTHS = 4,        /* of which distances are told apart */
  SLOT_BITS = 6,      /* of a distance's number of bits, and its second bit */
  FIRST_MODELLED = 4, /* slot from which on distances have more bits, */
  FIRST_DIRECT = 14,  /* and from which on all but the last ALIGN_BITS are equally likely */
  ALIGN_BITS = 4,
  MODELLED = 1 + 128 - FIRST_DIRECT,
  LITERAL = 0x300, /* models of a literal: plain, and behind a match by its byte's next bit */
  MIN_MATCH = 2,
  HALF = 1 << 10 /* a probability that nothing is known of, of 2^11 */
};
static const uint32_t end_marker = UINT32_MAX, top = (uint32_t)1 << 24;

struct lengths {
  uint16_t above_low, above_middle, low[POSITIONS][8], middle[POSITIONS][8], high[256];
};

/* Probabilities that a bit is 0, of 2^11: nothing else is in here. */
struct model {
  uint16_t match[STATES][POSITIONS], repeat[STATES], older[STATES], second[STATES], third[STATES];
  uint16_t longer[STATES][POSITIONS], slot[LENGTHS][1 << SLOT_BITS], modelled[MODELLED], align[1 << ALIGN_BITS];
  struct lengths of_match, of_repeat;
  uint16_t literal[1 << LITERAL_BITS][LITERAL];
};

struct input {
  const unsigned char *at, *end;
  uint32_t range, code;
  bool short_of; /* it ended early */
};

static void next_byte(struct input *in) {
  in->range <<= 8;
  in->code <<= 8;
  if (in->at != in->end)
    in->code |= *in->at++;
  else
    in->short_of = true;
}

static uint32_t bit(struct input *in, uint16_t *zero) {
  uint32_t bound = (in->range >> 11) * *zero, found = in->code >= bound;
  if (found) {
    in->code -= bound, in->range -= bound;
    *zero = (uint16_t)(*zero - (*zero >> 5));
  } else {
    in->range = bound;
    *zero = (uint16_t)(*zero + ((2048 - *zero) >> 5));
  }
  if (in->range < top) next_byte(in);
  return found;
}

/* `count` bits, the highest first, each by a model of those before it. */
static uint32_t tree(struct input *in, uint16_t *models, int count) {
  uint32_t found = 1;
  for (int i = 0; i < count; i++) found = found << 1 | bit(in, models + found);
  return found - ((uint32_t)1 << count);
}

/* The same, the lowest first. */
static uint32_t reverse_tree(struct input *in, uint16_t *models, int count) {
  uint32_t found = 0, place = 1;
  for (int i = 0; i < count; i++) {
    uint32_t one = bit(in, models + place);
    place = place << 1 | one;
    found |= one << i;
  }
  return found;
}

static uint32_t direct_bits(struct input *in, int count) {
  uint32_t found = 0;
  for (; count; count--) {
    in->range >>= 1;
    uint32_t one = in->code >= in->range;
    if (one) in->code -= in->range;
    found = found << 1 | one;
    if (in->range < top) next_byte(in);
  }
  return found;
}

static uint32_t length_of(struct input *in, struct lengths *models, size_t position) {
  if (!bit(in, &models->above_low)) return tree(in, models->low[position], 3);
  if (!bit(in, &models->above_middle)) return 8 + tree(in, models->middle[position], 3);
  return 16 + tree(in, models->high, 8);
}

/* One less than how far back a match of this length, less MIN_MATCH, begins. */
static uint32_t distance_of(struct input *in, struct model *m, uint32_t length) {
  uint32_t slot = tree(in, m->slot[length < LENGTHS ? length : LENGTHS - 1], SLOT_BITS);
  if (slot < FIRST_MODELLED) return slot;
  int bits = (int)(slot >> 1) - 1;
  uint32_t found = (2 | (slot & 1)) << bits;
  if (slot < FIRST_DIRECT) return found + reverse_tree(in, m->modelled + (found - slot), bits);
  found += direct_bits(in, bits - ALIGN_BITS) << ALIGN_BITS;
  return found + reverse_tree(in, m->align, ALIGN_BITS);
}

static unsigned char plain_literal(struct input *in, uint16_t *models) { return (unsigned char)tree(in, models, 8); }

/* Behind a match a literal differs from the byte that would have gone on with it, mostly in its last bits. */
static unsigned char literal_after(struct input *in, uint16_t *models, uint32_t matched) {
  uint32_t found = 1, same = 1;
  while (found < 0x100) {
    uint32_t expected = matched >> 7 & 1;
    uint32_t one = bit(in, models + (same ? (1 + expected) << 8 : 0) + found);
    if (one != expected) same = 0;
    matched <<= 1;
    found = found << 1 | one;
  }
  return (unsigned char)found;
}

static bool decode(struct input *in, struct model *m, unsigned char *out, size_t out_bytes) {
  uint32_t back[4] = {0}; /* distances of the last matches, less 1 */
  size_t done = 0;
  int state = 0;
  while (!in->short_of) {
    size_t position = done % POSITIONS;
    bool after_match = state >= FIRST_MATCH;
    if (!bit(in, &m->match[state][position])) {
      if (done == out_bytes) return false;
      uint16_t *models = m->literal[done ? out[done - 1] >> (8 - LITERAL_BITS) : 0];
      out[done] = after_match ? literal_after(in, models, out[done - back[0] - 1]) : plain_literal(in, models);
      done++;
      state = state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
      continue;
    }
    uint32_t length;
    if (!bit(in, &m->repeat[state])) {
      back[3] = back[2], back[2] = back[1], back[1] = back[0];
      length = length_of(in, &m->of_match, position);
      state = after_match ? 10 : 7;
      back[0] = distance_of(in, m, length);
      if (back[0] == end_marker) return done == out_bytes && in->at == in->end && in->code == 0 && !in->short_of;
    } else {
      if (!bit(in, &m->older[state])) {
        if (!bit(in, &m->longer[state][position])) {
          if (back[0] >= done || done == out_bytes) return false;
          out[done] = out[done - back[0] - 1];
          done++;
          state = after_match ? 11 : 9;
          continue;
        }
      } else {
        int which = !bit(in, &m->second[state]) ? 1 : !bit(in, &m->third[state]) ? 2 : 3;
        uint32_t own = back[which];
        for (; which; which--) back[which] = back[which - 1];
        back[0] = own;
      }
      length = length_of(in, &m->of_repeat, position);
      state = after_match ? 11 : 8;
    }
    length += MIN_MATCH;
    if (back[0] >= done || length > out_bytes - done) return false;
    const unsigned char *from = out + done - back[0] - 1;
    unsigned char *to = out + done;
    done += length;
    if (back[0] >= length)
      memcpy(to, from, length);
    else
      for (; length; length--) *to++ = *from++;
  }
  return false;
}

bool unpack(const unsigned char *in, size_t in_bytes, unsigned char *out, size_t out_bytes) {
  enum { HEAD = 5 }; /* a 0, and the first bits */
  struct input input = {.at = in, .end = in + in_bytes, .range = UINT32_MAX};
  union {
    struct model model;
    uint16_t all[sizeof(struct model) / sizeof(uint16_t)];
  } fresh;
  if (in_bytes < HEAD || in[0] != 0) return false;
  for (size_t i = 0; i < sizeof fresh.all / sizeof *fresh.all; i++) fresh.all[i] = HALF;
  for (int i = 0; i < HEAD; i++) input.code = input.code << 8 | *input.at++;
  return decode(&input, &fresh.model, out, out_bytes);
}
