/* A growing byte buffer that keeps its memory: the hot path allocates only while rows still grow. */
#ifndef MYRIAD_BUFFER_H
#define MYRIAD_BUFFER_H
#include "server.h"
#include <new>
#include <stdlib.h>

namespace myriad {

class Buffer {
public:
  Buffer() = default;
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer() { free(m_bytes); }

  uchar *data() { return m_bytes; }
  const uchar *data() const { return m_bytes; }
  size_t size() const { return m_size; }
  size_t capacity() const { return m_capacity; }
  bool operator==(const Buffer &other) const {
    return m_size == other.m_size && (!m_size || !memcmp(m_bytes, other.m_bytes, m_size));
  }
  void clear() { m_size = 0; }
  void set_size(size_t size) { m_size = size; }
  void set_end(const uchar *end) { m_size = size_t(end - m_bytes); }

  /* Room for `more` bytes behind the end; returns the end. May move the bytes. */
  uchar *room(size_t more) {
    if (m_size + more > m_capacity) grow(m_size + more);
    return m_bytes + m_size;
  }
  void append(const void *bytes, size_t length) {
    if (!length) return;
    memcpy(room(length), bytes, length);
    m_size += length;
  }
  void assign(const void *bytes, size_t length) {
    m_size = 0;
    append(bytes, length);
  }
  void release() {
    free(m_bytes);
    m_bytes = nullptr;
    m_size = m_capacity = 0;
  }

private:
  /* Throws std::bad_alloc, which is caught where rows are read or written, as these can be long. */
  void grow(size_t needed) {
    size_t capacity = m_capacity ? m_capacity : 64;
    while (capacity < needed) capacity *= 2;
    void *bytes = realloc(m_bytes, capacity);
    if (!bytes) {
      sql_print_error("MYRIAD: out of memory for a row or key of %zu bytes", needed);
      throw std::bad_alloc();
    }
    m_bytes = static_cast<uchar *>(bytes);
    m_capacity = capacity;
  }

  uchar *m_bytes = nullptr;
  size_t m_size = 0, m_capacity = 0;
};

}  // namespace myriad
#endif
