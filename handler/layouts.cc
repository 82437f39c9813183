/* Row layouts in the catalog, see layouts.h and docs/format.md. */
#include "layouts.h"

namespace myriad {

namespace {

void put(std::string *out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(char(value | 0x80));
  out->push_back(char(value));
}

class Input {
public:
  Input(const uchar *bytes, size_t length) : m_at(bytes), m_end(bytes + length) {}

  uint32_t number() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 35 && m_at < m_end; shift += 7) {
      const uchar byte = *m_at++;
      value |= uint64_t(byte & 0x7f) << shift;
      if (byte & 0x80) continue;
      if (value > UINT32_MAX) break;
      return uint32_t(value);
    }
    m_good = false;
    return 0;
  }

  std::string text(size_t length) {
    if (size_t(m_end - m_at) < length) m_good = false;
    if (!m_good) return {};
    std::string bytes(reinterpret_cast<const char *>(m_at), length);
    m_at += length;
    return bytes;
  }

  /* Numbers take a byte at least: a damaged count must not reserve memory. */
  uint32_t count() {
    const uint32_t n = number();
    if (n > size_t(m_end - m_at)) m_good = false;
    return m_good ? n : 0;
  }

  bool good() const { return m_good; }
  bool at_end() const { return m_good && m_at == m_end; }

private:
  const uchar *m_at, *m_end;
  bool m_good = true;
};

bool is_sound(const RowLayout &layout, size_t columns) {
  std::vector<bool> seen(columns, false);
  for (const LayoutColumn &c : layout.columns) {
    if (c.column >= columns || seen[c.column] || c.null_position > 8 * uint64_t(layout.null_bytes)) return false;
    seen[c.column] = true;
  }
  return true;
}

}  // namespace

std::string RowLayouts::encode() const {
  std::string out;
  put(&out, columns.size());
  for (const LaidOutColumn &column : columns) {
    put(&out, column.length_bytes);
    put(&out, column.width);
    put(&out, column.is_null ? 0 : column.default_image.size() + 1);
    out += column.default_image;
  }
  put(&out, layouts.size());
  for (const RowLayout &layout : layouts) {
    put(&out, layout.null_bytes);
    put(&out, layout.columns.size());
    for (const LayoutColumn &c : layout.columns) {
      put(&out, c.column);
      put(&out, c.null_position);
    }
  }
  return out;
}

bool RowLayouts::decode(const uchar *bytes, size_t length) {
  Input in(bytes, length);
  columns.resize(in.count());
  for (LaidOutColumn &column : columns) {
    const uint32_t length_bytes = in.number();
    if (length_bytes > 4) return false;
    column.length_bytes = uint8_t(length_bytes);
    column.width = in.number();
    const uint32_t default_length = in.number();
    column.is_null = !default_length;
    if (default_length) column.default_image = in.text(default_length - 1);
  }
  layouts.resize(in.count());
  for (RowLayout &layout : layouts) {
    layout.null_bytes = in.number();
    layout.columns.resize(in.count());
    for (LayoutColumn &c : layout.columns) {
      c.column = in.number();
      c.null_position = in.number();
    }
    if (!is_sound(layout, columns.size())) return false;
  }
  return in.at_end() && layouts.size() <= COUNT_MAX;
}

}  // namespace myriad
