/* Key encoding: a key's columns as one byte string whose memcmp order is the SQL order of the columns.

   Each part, in index order:
     nullable parts begin with a marker: 0x00 NULL, 0x01 not NULL (a NULL of a fixed-width part is followed by zeros, so
   that fixed-width parts keep their width); integers, ENUM, SET, YEAR, DATE: big endian, sign bit flipped where signed;
     DECIMAL, TIME, DATETIME, TIMESTAMP, BIT, BINARY(n): the server's image, which sorts bytewise;
     FLOAT, DOUBLE: big endian, all bits flipped where negative, else the sign bit;
     strings: the collation's weights (the bytes themselves where the collation sorts by them), self-delimiting, see
   below; descending parts: all bytes above, the marker included, inverted. Strings under PAD SPACE compare as if spaces
   followed for ever. Trailing spaces are cut; each remaining space weight is followed by 0x01 or 0x03 (what follows it
   is less or greater than spaces) and the string ends with one space weight and 0x02. Weights of two bytes that are
   mostly small are written compactly, see docs/format.md. Under NO PAD, and for VARBINARY
   and BLOB, 0x00 becomes 0x00 0x01 and the string ends with 0x00 0x00. So no encoded part is a prefix of another, and
   the encoding of the first parts of a key is a prefix of the whole. */
#ifndef MYRIAD_KEYS_H
#define MYRIAD_KEYS_H
#include "letters.h"
#include <vector>

namespace myriad {

enum class PartKind : uint8_t {
  Unsigned, /* little-endian integer in the record */
  Signed,
  Bytes, /* fixed width, sorts bytewise as it is */
  Float,
  Double,
  Text,   /* CHAR, VARCHAR, TEXT with a collation */
  Binary, /* VARBINARY, BLOB, GEOMETRY */
  Sorted  /* fixed width through Field::sort_string() */
};

/* Where a string's bytes lie in a record. */
enum class Storage : uint8_t { Fixed, Variable, Blob };

constexpr unsigned TEXT_LEVELS_MAX = 4;

struct TextRules {
  CHARSET_INFO *cs = nullptr;
  bool raw = false;      /* the bytes themselves sort */
  bool pad = true;       /* PAD SPACE */
  bool pad_later = true; /* the same for the levels after the first */
  bool whole = false;    /* weights of full length, padded by the collation (contracting multi-level collations) */
  bool pairs = false;    /* weights of two bytes that are not the collation's strnxfrm() */
  bool compact = false;  /* weights of two bytes, written in one to three */
  uint8_t levels = 1;    /* of comparison; each is encoded whole before the next */
  uint8_t level_flags[TEXT_LEVELS_MAX] = {0};   /* for strnxfrm(); 0 = the collation has only one */
  uint8_t unit[TEXT_LEVELS_MAX] = {1, 1, 1, 1}; /* bytes of a space's weight */
  uint8_t space[TEXT_LEVELS_MAX][4] = {{0x20}, {0x20}, {0x20}, {0x20}};
  bool pads(unsigned level) const { return level ? pad_later : pad; }
  const Letters *letters = nullptr; /* if an ASCII text can be read back from its weights, but for its case */
};

struct KeyPart {
  PartKind kind;
  Storage storage = Storage::Fixed;
  bool nullable = false;
  bool descending = false;
  bool prefix = false;        /* only the beginning of the column */
  bool reversible = false;    /* the column can be read back from the key */
  bool binary_string = false; /* BINARY */
  uint8_t null_bit = 0;
  uint8_t length_bytes = 0; /* of the length in the record: VARCHAR 1 or 2, BLOB 1 to 4 */
  uint8_t word = 0;         /* 4 or 8: an ascending integer of so many bytes */
  uint16_t field_index = 0;
  uint32_t null_offset = 0;
  uint32_t offset = 0;       /* of the column in the record */
  uint32_t length = 0;       /* bytes of the column (or of the prefix) */
  uint32_t chars = 0;        /* the prefix, or the column, in characters */
  uint32_t store_length = 0; /* in the server's key image, NULL byte and length included */
  uint32_t fixed_length = 0; /* encoded, without the NULL marker; 0 = variable */
  Field *field = nullptr;    /* only for Sorted */
  TextRules text;

  /* Encoded width with the NULL marker; 0 = variable. */
  uint32_t width() const { return fixed_length ? fixed_length + nullable : 0; }
};

/* How to build one part's encoding for a column as the table's `key_part` uses it. */
KeyPart make_key_part(TABLE *table, const KEY_PART_INFO &key_part);
KeyPart make_column_part(Field *field);

bool is_null(const KeyPart &part, const uchar *record);
/* Appends the part's encoding from a record. */
void encode_from_record(const KeyPart &part, const uchar *record, Buffer *out);
/* Appends it from the server's key image; `image` is at the part's beginning. */
void encode_from_image(const KeyPart &part, const uchar *image, Buffer *out);
/* Appends the part's encoding for the value that `column` of another table has in its record, which is not NULL. False:
   the part has no such value. */
bool encode_as(const KeyPart &part, const KeyPart &column, const uchar *record, Buffer *out);
/* A string's bytes without what CHAR is padded with; false if the column holds no string. */
bool text_of(const KeyPart &column, const uchar *record, const uchar **bytes, size_t *length);
/* The end of the part that begins at `at`, or null where the bytes are not such a part. */
const uchar *skip_part(const KeyPart &part, const uchar *at, const uchar *end);
/* An ascending integer of four or eight bytes, all there: writes it and returns its end; null for any other part. */
inline const uchar *decode_word(const KeyPart &part, const uchar *at, uchar *to) {
  const uint64_t sign = part.kind == PartKind::Signed;
  if (part.word == 4)
    int4store(to, mi_uint4korr(at) ^ uint32_t(sign << 31));
  else if (part.word == 8)
    int8store(to, mi_uint8korr(at) ^ (sign << 63));
  else
    return nullptr;
  return at + part.word;
}
const uchar *decode_any_part(const KeyPart &part, const uchar *at, const uchar *end, uchar *record);
/* Writes the column of a reversible part into the record, and its NULL bit. Returns the part's end, null if malformed.
 */
inline const uchar *decode_part(const KeyPart &part, const uchar *at, const uchar *end, uchar *record) {
  const uchar *behind = nullptr;
  if (!part.nullable && size_t(end - at) >= part.length) behind = decode_word(part, at, record + part.offset);
  return behind ? behind : decode_any_part(part, at, end, record);
}
/* A part with letters: appends the column's spelling. False, nothing appended: it has to be spelled out. */
bool pack_spelling(const KeyPart &part, const uchar *record, Buffer *out);
/* A part with letters, not NULL: reads the column back from its encoding `at` and the spelling byte and case bits in
   [*spelling, spelling_end); false if they do not fit each other. */
bool unpack_spelling(const KeyPart &part, const uchar *at, const uchar *end, const uchar **spelling,
                     const uchar *spelling_end, uchar *record);
/* True if the column has the same bytes in both records (equal under the collation is not enough). */
bool same_column(const KeyPart &part, const uchar *a, const uchar *b);

}  // namespace myriad
#endif
