/* What a statement will read next, looked at where rows come from disk. */
#ifndef MYRIAD_AHEAD_H
#define MYRIAD_AHEAD_H
#include "rows.h"
#include "server.h"

namespace myriad {

/* The ranges of a multi-range read, of which some have been taken from the server before their turn. Their keys are
   copied: the server may use the memory of one range's for the next. */
class RangesAhead {
public:
  static constexpr uint MAX = 16;

  /* Begins with the sequence as the server gives it. */
  void begin(range_seq_t sequence, bool (*next)(range_seq_t, KEY_MULTI_RANGE *));
  /* The next range; true if there is none. */
  bool take(KEY_MULTI_RANGE *range);
  /* Whether the next one has been taken from the server already. */
  bool has_next() const { return m_at < m_ranges.size(); }
  /* Takes up to `count` further ranges; those are what the result says. */
  const std::vector<KEY_MULTI_RANGE> &look(uint count);

private:
  range_seq_t m_sequence = nullptr;
  bool (*m_next)(range_seq_t, KEY_MULTI_RANGE *) = nullptr;
  bool m_ended = false;
  size_t m_at = 0;
  std::vector<KEY_MULTI_RANGE> m_ranges;
  std::vector<uchar> m_keys;
};

/* The positions of a multi-range read, sorted in a buffer of the server's: DsMrr_impl reads them from its end to its
   beginning, so those still to come lie in front of the one that it asks for. */
class PositionsAhead {
public:
  /* Begins with positions of `length` bytes, `step` apart. */
  void begin(const uchar *buffer, const uchar *buffer_end, size_t length, size_t step);
  void end() { m_begin = m_end = nullptr; }
  bool has(const uchar *position) const { return position >= m_begin && position < m_end; }
  /* Whether the row at this position, which is read now, has been asked for. */
  bool asked(const uchar *position);
  /* The next position to come that is another one; null if there is none. */
  const uchar *next(const uchar *position) const;
  /* The rows up to this position, inclusive, are asked for. */
  void ask(const uchar *last) { m_asked = last; }

private:
  const uchar *m_begin = nullptr, *m_end = nullptr;
  const uchar *m_at = nullptr;    /* read last */
  const uchar *m_asked = nullptr; /* the last one that was asked for */
  size_t m_length = 0, m_step = 0;
};

}  // namespace myriad
#endif
