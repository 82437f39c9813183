/* Row layouts: how rows are read that were written before columns were added, dropped, moved or allowed to be NULL in
   place. The first byte of a row is the number of its layout, from 1; new rows have the last one. A table whose columns
   never changed in place has layout 1 alone, and the catalog keeps nothing of this. */
#ifndef MYRIAD_LAYOUTS_H
#define MYRIAD_LAYOUTS_H
#include "server.h"
#include <string>
#include <vector>

namespace myriad {

constexpr uchar FIRST_LAYOUT = 1;

struct LayoutColumn {
  uint32_t column;        /* number in RowLayouts::columns */
  uint32_t null_position; /* 0: never NULL; else one more than the number of its bit in the NULL bytes */

  bool operator==(const LayoutColumn &other) const {
    return column == other.column && null_position == other.null_position;
  }
};

struct RowLayout {
  uint32_t null_bytes = 0;
  std::vector<LayoutColumn> columns; /* in the row's order */

  bool operator==(const RowLayout &other) const { return null_bytes == other.null_bytes && columns == other.columns; }
};

/* A column of any layout, today's or a dropped one. */
struct LaidOutColumn {
  uint8_t length_bytes = 0; /* before its image; 0: an image of fixed width */
  uint32_t width = 0;
  bool is_null = true;       /* in rows of layouts that lack it */
  std::string default_image; /* in those rows, if not NULL */
};

struct RowLayouts {
  static constexpr size_t COUNT_MAX = 64;

  std::vector<LaidOutColumn> columns;
  std::vector<RowLayout> layouts; /* the last is today's; empty: there was only one */

  std::string encode() const;
  /* False: the bytes describe no layouts. */
  bool decode(const uchar *bytes, size_t length);
};

}  // namespace myriad
#endif
