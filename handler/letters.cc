/* Spelling of texts, see letters.h. */
#include "letters.h"
#include "eight_bytes.h"
#include <map>
#include <memory>
#include <mutex>

namespace myriad {

namespace {

/* Collations known to weigh each character alone, ASCII in one weight of its own. */
bool weighs_by_character(CHARSET_INFO *cs) {
  return cs->coll == my_charset_latin1.coll /* single byte, by a table */ || is_utf8_general(cs);
}

/* The weight of an ASCII character if it is below 256. */
bool small_weight(CHARSET_INFO *cs, uchar character, uchar *weight) {
  uchar out[16];
  size_t length = cs->strnxfrm(out, sizeof out, 1, &character, 1, 0);
  if (!length || length > 2) return false;
  if (length == 2 && (out[0] || out[1] >= 0x80)) return false;
  *weight = out[length - 1];
  return true;
}

std::unique_ptr<Letters> find_letters(CHARSET_INFO *cs) {
  if (!weighs_by_character(cs)) return nullptr;
  std::unique_ptr<Letters> letters(new Letters);
  int characters[256] = {0};
  uchar weights[128];
  for (unsigned c = 1; c < 128; c++) {
    if (!small_weight(cs, uchar(c), &weights[c])) return nullptr;
    characters[weights[c]]++;
  }
  for (unsigned c = 1; c < 128; c++) {
    const uchar w = weights[c];
    const bool capital = c >= 'A' && c <= 'Z', pair = capital && weights[c + 32] == w;
    if (characters[w] == 1) {
      letters->kind[c] = Letters::Caseless;
      letters->weight[c] = w;
      letters->small[w] = letters->capital[w] = uchar(c);
    } else if (characters[w] == 2 && pair) {
      letters->kind[c] = Letters::Capital;
      letters->kind[c + 32] = Letters::Small;
      letters->weight[c] = letters->weight[c + 32] = w;
      letters->capital[w] = uchar(c);
      letters->small[w] = uchar(c + 32);
    }
  }
  letters->plain = true;
  for (unsigned c = 1; c < 128; c++)
    if (letters->weight[c] != (c >= 'a' && c <= 'z' ? c - 32 : c)) letters->plain = false;
  return letters;
}

}  // namespace

bool is_utf8_general(CHARSET_INFO *cs) {
  return !strcmp(cs->coll_name.str, "utf8mb3_general_ci") || !strcmp(cs->coll_name.str, "utf8mb4_general_ci");
}

const Letters *letters_of(CHARSET_INFO *cs) {
  static std::mutex mutex;
  static std::map<CHARSET_INFO *, std::unique_ptr<Letters>> known;
  std::lock_guard<std::mutex> guard(mutex);
  auto found = known.find(cs);
  if (found == known.end()) found = known.emplace(cs, find_letters(cs)).first;
  return found->second.get();
}

bool Letters::count(const uchar *text, size_t length, size_t *small_ones, size_t *capitals) const {
  size_t i = 0;
  for (; plain && length - i >= 8; i += 8) {
    const uint64_t eight = uint8korr(text + i);
    if (eight & HIGH_BITS || zero_mask(eight)) return false;
    *small_ones += count_bytes(between_mask(eight, 'a', 'z'));
    *capitals += count_bytes(between_mask(eight, 'A', 'Z'));
  }
  for (; i < length; i++) {
    const Kind k = kind[text[i]];
    if (k == None) return false;
    *small_ones += k == Small;
    *capitals += k == Capital;
  }
  return true;
}

bool Letters::pack(const uchar *text, size_t length, Buffer *out) const {
  size_t small_ones = 0, capitals = 0;
  if (!count(text, length, &small_ones, &capitals)) return false;
  const size_t bits = small_ones && capitals ? (small_ones + capitals + 7) / 8 : 0;
  uchar *to = out->room(1 + bits);
  *to++ = bits ? MIXED_CASE : small_ones ? ALL_SMALL : ALL_CAPITALS;
  if (bits) {
    memset(to, 0, bits);
    size_t letter = 0;
    for (size_t i = 0; i < length; i++) {
      Kind k = kind[text[i]];
      if (k == Capital) to[letter / 8] |= uchar(1 << (letter % 8));
      letter += k != Caseless;
    }
  }
  out->set_size(out->size() + 1 + bits);
  return true;
}

}  // namespace myriad
