/* Eight bytes of a string at once; the string's first one is the lowest. A mask has the high bit of each byte it means.
 */
#ifndef MYRIAD_EIGHT_BYTES_H
#define MYRIAD_EIGHT_BYTES_H
#include "server.h"

namespace myriad {

constexpr uint64_t EACH = 0x0101010101010101, HIGH_BITS = 0x80 * EACH;

/* The first byte that is 0, and maybe further ones behind it. */
inline uint64_t zero_mask(uint64_t bytes) { return (bytes - EACH) & ~bytes & HIGH_BITS; }

/* Those from `first` to `last`; all must be below 0x80. */
inline uint64_t between_mask(uint64_t bytes, uchar first, uchar last) {
  return (bytes + (0x80 - first) * EACH) & ~(bytes + (0x7f - last) * EACH) & HIGH_BITS;
}

/* Bytes before the first one of a mask, 8 if it is empty. */
inline unsigned bytes_before(uint64_t mask) { return mask ? unsigned(__builtin_ctzll(mask)) / 8 : 8; }

inline unsigned count_bytes(uint64_t mask) { return unsigned((mask >> 7) * EACH >> 56); }

/* The first so many bytes, fewer than eight, others 0. */
inline uint64_t first_bytes(uint64_t bytes, unsigned count) { return bytes & ((uint64_t(1) << 8 * count) - 1); }

/* The length of the longest common prefix of two strings of `length` bytes. */
inline size_t equal_bytes(const uchar *a, const uchar *b, size_t length) {
  size_t i = 0;
  for (; length - i >= 8; i += 8)
    if (const uint64_t differs = uint8korr(a + i) ^ uint8korr(b + i)) return i + unsigned(__builtin_ctzll(differs)) / 8;
  while (i < length && a[i] == b[i]) i++;
  return i;
}

}  // namespace myriad
#endif
