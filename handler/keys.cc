/* Key encoding, see keys.h. */
#include "keys.h"
#include "eight_bytes.h"

namespace myriad {

namespace {

constexpr uchar LESS_THAN_SPACES = 1, END_OF_TEXT = 2, GREATER_THAN_SPACES = 3;
/* Weights below these take one and two bytes. */
constexpr unsigned COMPACT_ONE = 0x80, COMPACT_TWO = 0x7f80;

/* Sorts by its bytes: the binary collations of character sets whose code point order is their byte order. */
bool sorts_by_bytes(CHARSET_INFO *cs) {
  if (!(cs->state & MY_CS_BINSORT) || cs->mbminlen != 1) return false;
  return cs->mbmaxlen == 1 || !strncmp(cs->cs_name.str, "utf8", 4);
}

/* The weight of one space on one level; false where it is no fixed small unit. */
bool space_weight(CHARSET_INFO *cs, uint flags, uint8_t *unit, uint8_t *space) {
  uchar out[64], text[4];
  size_t length = size_t(cs->mbminlen);
  cs->fill(reinterpret_cast<char *>(text), length, ' ');
  size_t got = cs->strnxfrm(out, sizeof out, 16, text, length, flags);
  if (got < 1 || got > 4) return false;
  *unit = uint8_t(got);
  memcpy(space, out, got);
  return true;
}

/* A weight of two bytes in an order-preserving, prefix-free code of one to three. */
uchar *put_compact(const uchar *weight, uchar *to) {
  unsigned w = unsigned(weight[0]) << 8 | weight[1];
  if (w < COMPACT_ONE) {
    *to++ = uchar(w);
  } else if (w < COMPACT_TWO) {
    w -= COMPACT_ONE;
    *to++ = uchar(0x80 + (w >> 8));
    *to++ = uchar(w);
  } else {
    *to++ = 0xff;
    *to++ = weight[0];
    *to++ = weight[1];
  }
  return to;
}

unsigned compact_width(uchar first) { return first < 0x80 ? 1 : first < 0xff ? 2 : 3; }

/* big5_chinese_ci compares characters of two bytes by their codes, and others, which come first, by a table; its
   strnxfrm() has the same weight for many. */
bool is_big5_chinese(CHARSET_INFO *cs) { return !strcmp(cs->cs_name.str, "big5") && cs->sort_order; }

size_t put_big5(CHARSET_INFO *cs, const uchar *from, const uchar *end, uchar *to) {
  const uchar *begin = to;
  while (from < end) {
    int width = my_ismbchar(cs, reinterpret_cast<const char *>(from), reinterpret_cast<const char *>(end));
    *to++ = width == 2 ? from[0] : *from < 0x80 ? 0 : 0xff;
    *to++ = width == 2 ? from[1] : *from < 0x80 ? cs->sort_order[*from] : *from;
    from += width == 2 ? 2 : 1;
  }
  return size_t(to - begin);
}

TextRules text_rules(CHARSET_INFO *cs, bool fixed_width) {
  TextRules rules;
  rules.cs = cs;
  rules.pad = rules.pad_later = !(cs->state & MY_CS_NOPAD);
  if (sorts_by_bytes(cs)) {
    rules.raw = true;
    /* CHAR values compare as padded to their full width, whatever the collation's attribute. */
    rules.pad |= fixed_width;
    return rules;
  }
  if (is_big5_chinese(cs)) {
    rules.pairs = true;
    rules.unit[0] = 2;
    rules.space[0][0] = 0;
    rules.space[0][1] = cs->sort_order[uchar(' ')];
    return rules;
  }
  /* A bit for each level: accent-insensitive, case-sensitive collations have the first and the third. */
  const uint mask = cs->levels_for_order;
  if (mask > MY_CS_COLL_LEVELS_S1) {
    if (cs->mbmaxlen == 1) {
      rules.whole = true;
      return rules;
    }
    rules.levels = 0;
    /* Accents weigh nothing but in the level left out and, as much as a space, in the one behind it. */
    rules.pad_later |= !(mask & (1u << 1));
    for (unsigned level = 0; level < TEXT_LEVELS_MAX; level++)
      if (mask & (1u << level)) rules.level_flags[rules.levels++] = uint8_t(MY_STRXFRM_LEVEL1 << level);
  }
  for (unsigned level = 0; level < rules.levels; level++) {
    if (!space_weight(cs, rules.level_flags[level], &rules.unit[level], rules.space[level])) {
      rules.whole = true;
      rules.levels = 1;
      break;
    }
  }
  if (rules.levels != 1 || rules.whole || !rules.pad) return rules;
  rules.compact = rules.unit[0] == 2 && is_utf8_general(cs);
  if (rules.compact || rules.unit[0] == 1) rules.letters = letters_of(cs);
  return rules;
}

size_t read_length(const uchar *at, unsigned bytes) {
  switch (bytes) {
  case 1: return *at;
  case 2: return uint2korr(at);
  case 3: return uint3korr(at);
  default: return uint4korr(at);
  }
}

struct Bytes {
  const uchar *data;
  size_t length;
};

Bytes column_bytes(const KeyPart &part, const uchar *record) {
  const uchar *at = record + part.offset;
  switch (part.storage) {
  case Storage::Fixed: return {at, part.length};
  case Storage::Variable: return {at + part.length_bytes, read_length(at, part.length_bytes)};
  case Storage::Blob: {
    const uchar *data;
    memcpy(&data, at + part.length_bytes, sizeof data);
    return {data, read_length(at, part.length_bytes)};
  }
  }
  return {at, 0};
}

Bytes image_bytes(const KeyPart &part, const uchar *image) {
  if (part.storage == Storage::Fixed) return {image, part.length};
  return {image + 2, uint2korr(image)};
}

void put_integer(const uchar *from, uint32_t length, bool is_signed, uchar *to) {
  if (length == 4) {
    mi_int4store(to, uint4korr(from) ^ (is_signed ? 1U << 31 : 0));
    return;
  }
  if (length == 8) {
    mi_int8store(to, uint8korr(from) ^ (is_signed ? 1ULL << 63 : 0));
    return;
  }
  for (uint32_t i = 0; i < length; i++) to[i] = from[length - 1 - i];
  if (is_signed) to[0] ^= 0x80;
}

template <class T, class U> void put_real(const uchar *from, uchar *to) {
  T value;
  U bits;
  memcpy(&value, from, sizeof value);
  if (value == 0) value = 0; /* -0 equals 0 */
  memcpy(&bits, &value, sizeof bits);
  constexpr U sign = U(1) << (sizeof(U) * 8 - 1);
  bits = bits & sign ? ~bits : bits | sign;
  for (unsigned i = 0; i < sizeof bits; i++) to[i] = uchar(bits >> (8 * (sizeof bits - 1 - i)));
}

/* Weights in [from, end), possibly in the upper part of the room that `to` begins; trailing space units already cut. */
uchar *put_padded(const uchar *from, const uchar *end, uchar *to, const uint8_t *space, unsigned unit, bool compact) {
  auto put_space = [&] {
    if (compact) {
      to = put_compact(space, to);
      return;
    }
    memcpy(to, space, unit);
    to += unit;
  };
  auto is_space = [&](const uchar *at) {
    for (unsigned i = 0; i < unit; i++)
      if (at[i] != space[i]) return false;
    return true;
  };
  while (from < end) {
    if (unit == 1 && *from != space[0]) {
      *to++ = *from++;
      continue;
    }
    size_t width = std::min<size_t>(unit, size_t(end - from));
    bool spaces = width == unit && is_space(from);
    if (!spaces) {
      if (compact && width == unit) {
        to = put_compact(from, to);
      } else {
        memmove(to, from, width);
        to += width;
      }
      from += width;
      continue;
    }
    /* A run of spaces and what follows it. */
    const uchar *next = from + unit;
    while (size_t(end - next) >= unit && is_space(next)) next += unit;
    size_t left = std::min<size_t>(unit, size_t(end - next));
    int order = memcmp(next, space, left);
    uchar marker = order < 0 || (order == 0 && left < unit) ? LESS_THAN_SPACES : GREATER_THAN_SPACES;
    size_t run = size_t(next - from) / unit;
    for (size_t i = 0; i < run; i++) {
      put_space();
      *to++ = marker;
    }
    from = next;
  }
  put_space();
  *to++ = END_OF_TEXT;
  return to;
}

uchar *put_escaped(const uchar *from, const uchar *end, uchar *to) {
  while (from < end) {
    uchar byte = *from++;
    *to++ = byte;
    if (!byte) *to++ = 1;
  }
  *to++ = 0;
  *to++ = 0;
  return to;
}

/* One level of weights [from, end) to the end of `out`. */
void put_level(const TextRules &rules, unsigned level, const uchar *from, const uchar *end, Buffer *out) {
  uchar *to = out->data() + out->size();
  if (!rules.pads(level)) {
    out->set_end(put_escaped(from, end, to));
    return;
  }
  unsigned unit = rules.unit[level];
  const uint8_t *space = rules.space[level];
  while (size_t(end - from) >= unit && !memcmp(end - unit, space, unit)) end -= unit;
  out->set_end(put_padded(from, end, to, space, unit, rules.compact));
}

/* As put_level() of the weights of a text without trailing spaces. False, nothing appended: it has characters that are
 * no letters. */
bool put_letters(const TextRules &rules, Bytes value, Buffer *out) {
  const Letters &letters = *rules.letters;
  const uchar space = rules.space[0][rules.unit[0] - 1];
  const uchar *from = value.data, *end = from + value.length;
  uchar *to = out->room(2 * value.length + 8);
  while (from < end) {
    if (letters.plain && end - from >= 8) {
      const uint64_t eight = uint8korr(from);
      if (eight & HIGH_BITS || zero_mask(eight)) return false;
      int8store(to, eight ^ between_mask(eight, 'a', 'z') >> 2);
      const unsigned before_space = bytes_before(zero_mask(eight ^ ' ' * EACH));
      from += before_space;
      to += before_space;
      if (before_space == 8) continue;
    }
    const uchar weight = letters.weight[*from++];
    if (!weight) return false;
    *to++ = weight;
    if (weight != space) continue;
    const uchar *next = from;
    while (*next == ' ') next++;
    const uchar behind = letters.weight[*next];
    if (!behind) return false;
    const uchar marker = behind < space ? LESS_THAN_SPACES : GREATER_THAN_SPACES;
    *to++ = marker;
    for (; from < next; from++) {
      *to++ = space;
      *to++ = marker;
    }
  }
  *to++ = space;
  *to++ = END_OF_TEXT;
  out->set_end(to);
  return true;
}

void encode_text(const KeyPart &part, Bytes value, Buffer *out) {
  const TextRules &rules = part.text;
  CHARSET_INFO *cs = rules.cs;
  /* CHAR under NO PAD keeps its spaces: they count, as many as the column has characters. */
  if (part.prefix || part.storage == Storage::Blob || (part.storage == Storage::Fixed && !rules.pad)) {
    if (cs->mbmaxlen > 1) {
      size_t cut = cs->charpos(reinterpret_cast<const char *>(value.data),
                               reinterpret_cast<const char *>(value.data) + value.length, part.chars);
      value.length = std::min(value.length, cut);
    } else {
      value.length = std::min<size_t>(value.length, part.chars);
    }
  }
  if (rules.pad) value.length = cs->lengthsp(reinterpret_cast<const char *>(value.data), value.length);
  if (rules.letters && put_letters(rules, value, out)) return;
  if (rules.whole) {
    /* With several levels the weights of the first space would come before those of the second level: such collations
       compare without the trailing spaces, a missing weight being the least. */
    const uint flags = cs->mbmaxlen == 1 ? 0 : MY_STRXFRM_PAD_WITH_SPACE | MY_STRXFRM_PAD_TO_MAXLEN;
    uchar *to = out->room(part.fixed_length);
    size_t got = cs->strnxfrm(to, part.fixed_length, uint(part.fixed_length), value.data, value.length, flags);
    if (got < part.fixed_length) memset(to + got, 0, part.fixed_length - got);
    out->set_size(out->size() + part.fixed_length);
    return;
  }
  if (rules.raw) {
    out->room(2 * value.length + 8);
    put_level(rules, 0, value.data, value.data + value.length, out);
    return;
  }
  for (unsigned level = 0; level < rules.levels; level++) {
    /* strnxfrmlen() expects characters of mbmaxlen bytes each; these may be of one byte. */
    size_t weights_max = cs->strnxfrmlen(value.length * cs->mbmaxlen) + 16;
    size_t room = 3 * weights_max + 16;
    /* The weights go to the room's end; escaping never overtakes its source. */
    uchar *weights = out->room(room) + room - weights_max;
    size_t got = rules.pairs ? put_big5(cs, value.data, value.data + value.length, weights)
                             : cs->strnxfrm(weights, weights_max, uint(weights_max), value.data, value.length,
                                            rules.level_flags[level]);
    put_level(rules, level, weights, weights + got, out);
  }
}

void encode_value(const KeyPart &part, Bytes value, const uchar *fixed, Buffer *out) {
  switch (part.kind) {
  case PartKind::Unsigned:
  case PartKind::Signed:
    put_integer(fixed, part.length, part.kind == PartKind::Signed, out->room(part.length));
    out->set_size(out->size() + part.length);
    break;
  case PartKind::Bytes: out->append(fixed, part.length); break;
  case PartKind::Float:
    put_real<float, uint32_t>(fixed, out->room(4));
    out->set_size(out->size() + 4);
    break;
  case PartKind::Double:
    put_real<double, uint64_t>(fixed, out->room(8));
    out->set_size(out->size() + 8);
    break;
  case PartKind::Text: encode_text(part, value, out); break;
  case PartKind::Binary: {
    size_t length =
        part.prefix || part.storage == Storage::Blob ? std::min<size_t>(value.length, part.length) : value.length;
    uchar *to = out->room(2 * length + 2);
    out->set_end(put_escaped(value.data, value.data + length, to));
    break;
  }
  case PartKind::Sorted: {
    /* sort_string() reads through the field's pointer. A field belongs to one open TABLE, so this thread owns it. */
    uchar *to = out->room(part.fixed_length);
    uchar *saved = part.field->ptr;
    part.field->ptr = const_cast<uchar *>(fixed);
    part.field->sort_string(to, part.fixed_length);
    part.field->ptr = saved;
    out->set_size(out->size() + part.fixed_length);
    break;
  }
  }
}

void put_null(const KeyPart &part, Buffer *out) {
  size_t length = 1 + part.fixed_length;
  memset(out->room(length), 0, length);
  out->set_size(out->size() + length);
}

void invert(uchar *from, const uchar *end) {
  for (; from < end; from++) *from = uchar(~*from);
}

}  // namespace

/* Sets what only depends on the column. */
static void classify(Field *field, KeyPart *part) {
  part->field_index = field->field_index;
  part->offset = uint32_t(field->ptr - field->table->record[0]);
  part->nullable = field->real_maybe_null();
  if (part->nullable) {
    part->null_bit = field->null_bit;
    part->null_offset = uint32_t(field->null_ptr - field->table->record[0]);
  }
  part->length = field->pack_length();
  part->binary_string = field->real_type() == MYSQL_TYPE_STRING && field->charset() == &my_charset_bin;
  bool uns = field->flags & UNSIGNED_FLAG;
  switch (field->real_type()) {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG: part->kind = uns ? PartKind::Unsigned : PartKind::Signed; break;
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
  case MYSQL_TYPE_NEWDATE: part->kind = PartKind::Unsigned; break;
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_BIT: part->kind = PartKind::Bytes; break;
  case MYSQL_TYPE_FLOAT: part->kind = PartKind::Float; break;
  case MYSQL_TYPE_DOUBLE: part->kind = PartKind::Double; break;
  case MYSQL_TYPE_STRING:
    if (field->type_handler() != &type_handler_string && field->type_handler() != &type_handler_enum &&
        field->type_handler() != &type_handler_set) {
      part->kind = PartKind::Sorted; /* INET6, UUID, ... */
      break;
    }
    if (field->charset() == &my_charset_bin) {
      part->kind = PartKind::Bytes;
      break;
    }
    part->kind = PartKind::Text;
    break;
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VARCHAR_COMPRESSED:
    part->storage = Storage::Variable;
    part->length_bytes = uint8_t(static_cast<Field_varstring *>(field)->length_bytes);
    part->length = field->field_length;
    part->kind = field->charset() == &my_charset_bin ? PartKind::Binary : PartKind::Text;
    break;
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_BLOB_COMPRESSED:
  case MYSQL_TYPE_GEOMETRY:
    part->storage = Storage::Blob;
    part->length_bytes = uint8_t(static_cast<Field_blob *>(field)->pack_length_no_ptr());
    part->kind = field->charset() == &my_charset_bin ? PartKind::Binary : PartKind::Text;
    break;
  default: part->kind = PartKind::Sorted; break; /* temporal types of old tables */
  }
}

/* Sets what depends on kind and length. */
static void finish(Field *field, KeyPart *part) {
  switch (part->kind) {
  case PartKind::Text:
    part->text = text_rules(field->charset(), part->storage == Storage::Fixed);
    part->chars = part->length / field->charset()->mbmaxlen;
    if (part->text.whole) part->fixed_length = uint32_t(field->charset()->strnxfrmlen(part->length));
    part->reversible = part->text.raw && !part->prefix && part->storage != Storage::Blob &&
                       (part->storage == Storage::Fixed || !part->text.pad);
    break;
  case PartKind::Binary: part->reversible = !part->prefix && part->storage == Storage::Variable; break;
  case PartKind::Float:
  case PartKind::Double: part->fixed_length = part->length; break;
  case PartKind::Sorted:
    part->fixed_length = field->sort_length();
    part->field = field;
    break;
  default:
    part->fixed_length = part->length;
    part->reversible = !part->prefix;
    break;
  }
  const bool integer = part->kind == PartKind::Unsigned || part->kind == PartKind::Signed;
  if (integer && !part->descending && (part->length == 4 || part->length == 8)) part->word = uint8_t(part->length);
}

KeyPart make_key_part(TABLE *table, const KEY_PART_INFO &key_part) {
  Field *field = table->field[key_part.fieldnr - 1];
  KeyPart part;
  classify(field, &part);
  part.descending = key_part.key_part_flag & HA_REVERSE_SORT;
  part.store_length = key_part.store_length;
  bool string = part.kind == PartKind::Text || part.kind == PartKind::Binary ||
                (part.kind == PartKind::Bytes && field->real_type() == MYSQL_TYPE_STRING);
  if (string) {
    part.prefix = part.storage == Storage::Blob || key_part.length < part.length;
    part.length = key_part.length;
  }
  finish(field, &part);
  return part;
}

KeyPart make_column_part(Field *field) {
  KeyPart part;
  classify(field, &part);
  if (part.kind == PartKind::Text) part.text.cs = field->charset();
  return part;
}

bool is_null(const KeyPart &part, const uchar *record) {
  return part.nullable && (record[part.null_offset] & part.null_bit);
}

void encode_from_record(const KeyPart &part, const uchar *record, Buffer *out) {
  size_t begin = out->size();
  if (part.nullable) {
    if (record[part.null_offset] & part.null_bit) {
      put_null(part, out);
      if (part.descending) invert(out->data() + begin, out->data() + out->size());
      return;
    }
    *out->room(1) = 1;
    out->set_size(begin + 1);
  }
  Bytes value{nullptr, 0};
  if (part.kind == PartKind::Text || part.kind == PartKind::Binary) value = column_bytes(part, record);
  encode_value(part, value, record + part.offset, out);
  if (part.descending) invert(out->data() + begin, out->data() + out->size());
}

void encode_from_image(const KeyPart &part, const uchar *image, Buffer *out) {
  size_t begin = out->size();
  if (part.nullable) {
    if (*image++) {
      put_null(part, out);
      if (part.descending) invert(out->data() + begin, out->data() + out->size());
      return;
    }
    *out->room(1) = 1;
    out->set_size(begin + 1);
  }
  Bytes value{nullptr, 0};
  if (part.kind == PartKind::Text || part.kind == PartKind::Binary) value = image_bytes(part, image);
  encode_value(part, value, image, out);
  if (part.descending) invert(out->data() + begin, out->data() + out->size());
}

bool text_of(const KeyPart &column, const uchar *record, const uchar **bytes, size_t *length) {
  const bool text = column.kind == PartKind::Text;
  if (!text && column.kind != PartKind::Binary && !column.binary_string) return false;
  Bytes value = column_bytes(column, record);
  if (text && column.storage == Storage::Fixed)
    value.length = column.text.cs->lengthsp(reinterpret_cast<const char *>(value.data), value.length);
  *bytes = value.data;
  *length = value.length;
  return true;
}

bool encode_as(const KeyPart &part, const KeyPart &column, const uchar *record, Buffer *out) {
  const size_t begin = out->size();
  Bytes value{nullptr, 0};
  const uchar *fixed = record + column.offset;
  std::vector<uchar> padded;
  if (text_of(column, record, &value.data, &value.length)) {
    if (part.kind == PartKind::Text) {
      const size_t trimmed = part.text.cs->lengthsp(reinterpret_cast<const char *>(value.data), value.length);
      /* Trailing spaces count under NO PAD, and CHAR has none. */
      if (trimmed != value.length && part.storage == Storage::Fixed && (part.text.cs->state & MY_CS_NOPAD))
        return false;
      if (part.text.pad) value.length = trimmed;
    }
    if (value.length > part.length || (part.binary_string && value.length != part.length)) return false;
    if (part.kind == PartKind::Text && !part.text.pad && part.storage == Storage::Fixed) {
      padded.assign(value.data, value.data + value.length);
      padded.resize(part.length);
      part.text.cs->fill(reinterpret_cast<char *>(padded.data()) + value.length, part.length - value.length, ' ');
      value = {padded.data(), padded.size()};
    }
    fixed = value.data;
  }
  if (part.nullable) {
    *out->room(1) = 1;
    out->set_size(begin + 1);
  }
  encode_value(part, value, fixed, out);
  if (part.descending) invert(out->data() + begin, out->data() + out->size());
  return true;
}

namespace {

/* The end of a self-delimiting string; `mask` is 0xff for descending parts. */
const uchar *skip_padded(const uchar *at, const uchar *end, const uint8_t *space, unsigned unit, uchar mask) {
  while (size_t(end - at) > unit) {
    if (unit == 1 && end - at >= 9) {
      const unsigned others = bytes_before(zero_mask(uint8korr(at) ^ (space[0] ^ mask) * EACH));
      at += others;
      if (others == 8) continue;
    }
    bool spaces = true;
    for (unsigned i = 0; i < unit; i++)
      if (uchar(at[i] ^ mask) != space[i]) spaces = false;
    at += unit;
    if (spaces && uchar(*at++ ^ mask) == END_OF_TEXT) return at;
  }
  return nullptr;
}

const uchar *skip_compact(const uchar *at, const uchar *end, uchar space, uchar mask) {
  while (at < end) {
    if (end - at >= 8) {
      const uint64_t eight = uint8korr(at) ^ mask * EACH;
      at += bytes_before(zero_mask(eight ^ space * EACH) | (eight & HIGH_BITS));
      if (at >= end) break;
    }
    uchar first = uchar(*at ^ mask);
    at += compact_width(first);
    if (first != space) continue;
    if (at >= end) return nullptr;
    if (uchar(*at++ ^ mask) == END_OF_TEXT) return at;
  }
  return nullptr;
}

const uchar *skip_escaped(const uchar *at, const uchar *end, uchar mask) {
  while (end - at >= 2) {
    if (*at++ != mask) continue;
    if (*at++ == mask) return at;
  }
  return nullptr;
}

/* Decodes the string into `to` (at most `room` bytes); sets its length. */
const uchar *decode_text(const KeyPart &part, const uchar *at, const uchar *end, uchar mask, uchar *to, size_t room,
                         size_t *length) {
  uchar *out = to;
  bool padded = part.kind == PartKind::Text && part.text.pad;
  for (;;) {
    if (at >= end) return nullptr;
    uchar byte = uchar(*at++ ^ mask);
    if (byte == (padded ? 0x20 : 0)) {
      if (at >= end) return nullptr;
      uchar next = uchar(*at++ ^ mask);
      if (next == (padded ? END_OF_TEXT : 0)) break;
    }
    if (size_t(out - to) >= room) return nullptr;
    *out++ = byte;
  }
  *length = size_t(out - to);
  return at;
}

}  // namespace

const uchar *skip_part(const KeyPart &part, const uchar *at, const uchar *end) {
  uchar mask = part.descending ? 0xff : 0;
  if (part.nullable) {
    if (at >= end) return nullptr;
    bool null = uchar(*at++ ^ mask) == 0;
    if (null && !part.fixed_length) return at;
  }
  if (part.fixed_length) return size_t(end - at) < part.fixed_length ? nullptr : at + part.fixed_length;
  if (part.kind != PartKind::Text) return skip_escaped(at, end, mask);
  if (part.text.compact) return skip_compact(at, end, part.text.space[0][1], mask);
  for (unsigned level = 0; at && level < part.text.levels; level++)
    at = part.text.pads(level) ? skip_padded(at, end, part.text.space[level], part.text.unit[level], mask)
                               : skip_escaped(at, end, mask);
  return at;
}

const uchar *decode_any_part(const KeyPart &part, const uchar *at, const uchar *end, uchar *record) {
  uchar mask = part.descending ? 0xff : 0;
  uchar *to = record + part.offset;
  if (part.nullable) {
    if (at >= end) return nullptr;
    if (uchar(*at++ ^ mask) == 0) {
      record[part.null_offset] |= part.null_bit;
      if (part.storage == Storage::Fixed)
        memset(to, 0, part.length);
      else
        memset(to, 0, part.length_bytes);
      return size_t(end - at) < part.fixed_length ? nullptr : at + part.fixed_length;
    }
    record[part.null_offset] &= uchar(~part.null_bit);
  }
  switch (part.kind) {
  case PartKind::Unsigned:
  case PartKind::Signed: {
    if (size_t(end - at) < part.length) return nullptr;
    if (const uchar *behind = decode_word(part, at, to)) return behind;
    for (uint32_t i = 0; i < part.length; i++) to[part.length - 1 - i] = uchar(at[i] ^ mask);
    if (part.kind == PartKind::Signed) to[part.length - 1] ^= 0x80;
    return at + part.length;
  }
  case PartKind::Bytes:
    if (size_t(end - at) < part.length) return nullptr;
    for (uint32_t i = 0; i < part.length; i++) to[i] = uchar(at[i] ^ mask);
    return at + part.length;
  case PartKind::Text:
  case PartKind::Binary: {
    size_t length;
    if (part.storage == Storage::Fixed) {
      at = decode_text(part, at, end, mask, to, part.length, &length);
      if (at) memset(to + length, ' ', part.length - length);
      return at;
    }
    at = decode_text(part, at, end, mask, to + part.length_bytes, part.length, &length);
    if (!at) return nullptr;
    if (part.length_bytes == 1)
      *to = uchar(length);
    else
      int2store(to, uint16(length));
    return at;
  }
  default: return nullptr;
  }
}

bool pack_spelling(const KeyPart &part, const uchar *record, Buffer *out) {
  Bytes value = column_bytes(part, record);
  const size_t length = part.text.cs->lengthsp(reinterpret_cast<const char *>(value.data), value.length);
  /* The key does not hold trailing spaces; those of CHAR need not be kept. */
  if (part.storage == Storage::Variable && length != value.length) return false;
  return part.text.letters->pack(value.data, length, out);
}

namespace {

/* The weights of a text with letters, without what marks its spaces, to `to`; null if they are malformed or too many.
 */
uchar *read_weights(const KeyPart &part, const uchar *at, const uchar *end, uchar *to) {
  const uchar mask = part.descending ? 0xff : 0;
  const uchar space = part.text.space[0][part.text.unit[0] - 1];
  uchar *const room_end = to + part.length;
  uchar last[16] = {0};
  bool is_last = false;
  for (;;) {
    if (room_end - to >= 8) {
      if (end - at < 8 && !is_last) {
        const size_t length = size_t(end - at);
        memcpy(last, at, length);
        at = last;
        end = last + length;
        is_last = true;
      }
      const uint64_t eight = uint8korr(at) ^ mask * EACH;
      const unsigned others = bytes_before(zero_mask(eight ^ space * EACH));
      int8store(to, eight);
      at += others;
      to += others;
      if (at > end) return nullptr;
      if (others == 8) continue;
    }
    if (end - at < 2) return nullptr;
    const uchar weight = uchar(*at++ ^ mask);
    if (weight == space && uchar(*at++ ^ mask) == END_OF_TEXT) return to;
    if (to == room_end) return nullptr;
    *to++ = weight;
  }
}

/* What differs between small letters and what is to be written, by which of four characters are letters, the first
   one's bit the lowest, and the next letters' case bits. A loop over the capitals would end where nobody can predict.
 */
struct Capitals {
  uint32_t of[16][16] = {};
  uint8_t letters[16] = {};
  constexpr Capitals() {
    for (unsigned which = 0; which < 16; which++)
      for (unsigned bits = 0; bits < 16; bits++) {
        unsigned letter = 0;
        for (unsigned i = 0; i < 4; i++)
          if (which >> i & 1) of[which][bits] |= uint32_t(bits >> letter++ & 1) * ('a' ^ 'A') << 8 * i;
        letters[which] = uint8_t(letter);
      }
  }
};
constexpr Capitals CAPITALS;

/* The same of eight characters; `letters` is a mask, `letter` the number of the first one. */
uint64_t capitals_of(uint64_t letters, const uchar *bits, size_t letter, size_t bits_max) {
  unsigned next = bits[letter / 8];
  if (letter / 8 * 8 + 8 < bits_max) next |= unsigned(bits[letter / 8 + 1]) << 8;
  next >>= letter % 8;
  /* The high bits, side by side. */
  const unsigned which = unsigned((letters >> 7) * 0x0102040810204080 >> 56), first = which & 15;
  return CAPITALS.of[first][next & 15] | uint64_t(CAPITALS.of[which >> 4][next >> CAPITALS.letters[first] & 15]) << 32;
}

}  // namespace

bool unpack_spelling(const KeyPart &part, const uchar *at, const uchar *end, const uchar **spelling,
                     const uchar *spelling_end, uchar *record) {
  if (*spelling >= spelling_end) return false;
  const uchar how = *(*spelling)++;
  if (how != ALL_SMALL && how != ALL_CAPITALS && how != MIXED_CASE) return false;
  const Letters &letters = *part.text.letters;
  const uchar *one_case = how == ALL_CAPITALS ? letters.capital : letters.small;
  const uchar *bits = *spelling;
  const size_t bits_max = size_t(spelling_end - bits) * 8;
  uchar *const text = record + part.offset + part.length_bytes, *const room_end = text + part.length;
  uchar *const text_end = read_weights(part, at + part.nullable, end, text);
  if (!text_end) return false;
  size_t letter = 0;
  for (uchar *to = text; to < text_end;) {
    if (letters.plain && room_end - to >= 8) {
      uint64_t eight = uint8korr(to);
      if (text_end - to < 8) eight = first_bytes(eight, unsigned(text_end - to));
      if (eight & HIGH_BITS) return false;
      const uint64_t capitals = between_mask(eight, 'A', 'Z');
      if (how != ALL_CAPITALS) eight ^= capitals >> 2;
      if (how == MIXED_CASE && capitals) {
        const unsigned count = count_bytes(capitals);
        if (letter + count > bits_max) return false;
        eight ^= capitals_of(capitals, bits, letter, bits_max);
        letter += count;
      }
      int8store(to, eight);
      to += 8;
      continue;
    }
    const uchar capital = letters.capital[*to];
    uchar character = one_case[*to];
    if (!character) return false;
    if (how == MIXED_CASE && character != capital) {
      if (letter >= bits_max) return false;
      if (bits[letter / 8] >> (letter % 8) & 1) character = capital;
      letter++;
    }
    *to++ = character;
  }
  *spelling = bits + (letter + 7) / 8;
  const size_t length = size_t(text_end - text);
  if (part.storage == Storage::Fixed)
    memset(text_end, ' ', part.length - length);
  else if (part.length_bytes == 1)
    text[-1] = uchar(length);
  else
    int2store(text - 2, uint16(length));
  return true;
}

bool same_column(const KeyPart &part, const uchar *a, const uchar *b) {
  if (part.nullable) {
    bool null_a = a[part.null_offset] & part.null_bit, null_b = b[part.null_offset] & part.null_bit;
    if (null_a != null_b) return false;
    if (null_a) return true;
  }
  if (part.storage == Storage::Fixed) {
    return !memcmp(a + part.offset, b + part.offset, part.length);
  }
  Bytes left = column_bytes(part, a), right = column_bytes(part, b);
  if (left.length != right.length) return false;
  return left.data == right.data || !left.length || !memcmp(left.data, right.data, left.length);
}

}  // namespace myriad
