/* Spelling: how a text was written whose key holds only weights.

   Where a collation weighs character by character and a weight belongs to one ASCII character or to the two cases of
   one letter, an ASCII text can be read back from its key, but for the case of its letters. So a secondary entry keeps,
   in place of the text: byte 0: 0 = the column's ordinary image follows (the text is not of that sort); 1 = all letters
   are small, 2 = all are capitals (or there are none); 3 = mixed: a bit for each letter follows, low bit first, set for
   capitals, in whole bytes. */
#ifndef MYRIAD_LETTERS_H
#define MYRIAD_LETTERS_H
#include "buffer.h"

namespace myriad {

enum Spelling : uchar { SPELLED_OUT = 0, ALL_SMALL = 1, ALL_CAPITALS = 2, MIXED_CASE = 3 };

struct Letters {
  enum Kind : uint8_t { None, Caseless, Small, Capital };
  Kind kind[256] = {};     /* by character */
  uchar weight[256] = {};  /* by character; 0 = none */
  uchar small[256] = {};   /* by weight: the character, the small one of two; 0 = none */
  uchar capital[256] = {}; /* by weight: the same, or the capital */

  /* A character's weight is itself, of a small letter its capital: so of every ASCII character but 0. */
  bool plain = false;

  /* Appends spelling byte and case bits. False, nothing appended: the text has to be spelled out. */
  bool pack(const uchar *text, size_t length, Buffer *out) const;

private:
  bool count(const uchar *text, size_t length, size_t *small_ones, size_t *capitals) const;
};

/* utf8mb3_general_ci or utf8mb4_general_ci: each character has one weight of two bytes, below 0x80 for ASCII. */
bool is_utf8_general(CHARSET_INFO *cs);

/* The letters of a collation; null where it does not weigh so. Kept for the life of the process. */
const Letters *letters_of(CHARSET_INFO *cs);

}  // namespace myriad
#endif
