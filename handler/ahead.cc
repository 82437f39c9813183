/* Rows of entries and ranges still to come: where those before them came from disk, the pages of several are read
   together, so that a statement waits for the device once and not for each row. What is in memory is not looked at. */
#include "ahead.h"

#include "ha_myriad.h"

using myriad::Buffer;
using myriad::PositionsAhead;
using myriad::RangesAhead;

/* Rows or ranges looked at together: few at first, as they may be all that is wanted (LIMIT), twice as many each
   further time; at most as many as the core reads pages at a time. */
static constexpr uint FIRST = 4, GROWTH = 2, MOST = RangesAhead::MAX, MOST_POSITIONS = 128;

void RangesAhead::begin(range_seq_t sequence, bool (*next)(range_seq_t, KEY_MULTI_RANGE *)) {
  m_sequence = sequence;
  m_next = next;
  m_ended = false;
  m_at = 0;
  m_ranges.clear();
}

bool RangesAhead::take(KEY_MULTI_RANGE *range) {
  if (has_next()) {
    *range = m_ranges[m_at++];
    return false;
  }
  return m_ended || m_next(m_sequence, range);
}

const std::vector<KEY_MULTI_RANGE> &RangesAhead::look(uint count) {
  m_ranges.clear();
  m_keys.clear();
  m_at = 0;
  KEY_MULTI_RANGE range;
  while (m_ranges.size() < count && !m_ended) {
    if (m_next(m_sequence, &range)) {
      m_ended = true;
      break;
    }
    for (const key_range *end : {&range.start_key, &range.end_key})
      if (end->key) m_keys.insert(m_keys.end(), end->key, end->key + end->length);
    m_ranges.push_back(range);
  }
  const uchar *at = m_keys.data();
  for (KEY_MULTI_RANGE &taken : m_ranges)
    for (key_range *end : {&taken.start_key, &taken.end_key})
      if (end->key) {
        end->key = at;
        at += end->length;
      }
  return m_ranges;
}

void PositionsAhead::begin(const uchar *buffer, const uchar *buffer_end, size_t length, size_t step) {
  m_begin = buffer;
  m_at = m_asked = m_end = buffer_end;
  m_length = length;
  m_step = step;
}

bool PositionsAhead::asked(const uchar *position) {
  if (position > m_at) m_asked = m_end; /* the buffer has been filled anew */
  m_at = position;
  return position >= m_asked;
}

const uchar *PositionsAhead::next(const uchar *position) const {
  for (const uchar *at = position; size_t(at - m_begin) >= m_step;) {
    at -= m_step;
    if (memcmp(at, position, m_length)) return at;
  }
  return nullptr;
}

/* The row with this clustered key is about to be read, and those of the entries that the cursor has come upon behind
   its own after it. Not where entries have been passed over meanwhile: what may fail a condition is not worth a page.
 */
void ha_myriad::read_rows_ahead(const uchar *pk, size_t pk_length) {
  const bool passed_over = m_passed_over;
  m_passed_over = false;
  if (passed_over || !m_cursor) return;
  myriad_bytes keys[MOST];
  keys[0] = {pk, pk_length};
  myriad_row entry;
  m_rows_wanted = m_rows_wanted ? std::min(m_rows_wanted * GROWTH, MOST) : FIRST;
  const uint there = std::min(myriad_cursor_look_ahead(m_cursor, m_rows_wanted - 1), m_rows_wanted - 1);
  while (m_rows_asked < there && myriad_cursor_peek(m_cursor, m_rows_asked + 1, &entry)) {
    const uchar *key;
    size_t length;
    if (!m_plan->clustered_part(*m_index, entry.key, entry.key_len, entry.value, entry.value_len, &key, &length)) break;
    keys[++m_rows_asked] = {key, length};
  }
  if (m_rows_asked) myriad_read_together(core(), m_table, 0, keys, m_rows_asked + 1);
}

/* The row at this position of a multi-range read is about to be read, and those at the next ones after it. In their
   order many rows may be of one page. */
void ha_myriad::read_positions_ahead(const uchar *position) {
  myriad_bytes keys[MOST_POSITIONS];
  const uchar *positions[MOST_POSITIONS];
  m_rows_wanted = m_rows_wanted ? std::min(m_rows_wanted * GROWTH, MOST_POSITIONS) : FIRST;
  uint count = 0;
  for (const uchar *at = position; at && count < m_rows_wanted; at = m_positions.next(at)) {
    positions[count] = at;
    keys[count++] = clustered_key(at);
  }
  const uint taken = myriad_read_together(core(), m_table, 0, keys, count);
  if (taken) m_positions.ask(positions[taken - 1]);
}

void ha_myriad::begin_ranges() {
  m_ranges.begin(mrr_iter, mrr_funcs.next);
  mrr_iter = this;
  mrr_funcs.next = next_range;
  m_ranges_wanted = FIRST;
  m_ranges_read = myriad_thread_pages_read();
}

/* The next range of a multi-range read, in the server's order. */
bool ha_myriad::next_range(range_seq_t self, KEY_MULTI_RANGE *range) {
  ha_myriad *handler = static_cast<ha_myriad *>(self);
  if (!handler->m_ranges.has_next()) {
    const uint64_t before = std::exchange(handler->m_ranges_read, myriad_thread_pages_read());
    if (before != handler->m_ranges_read) handler->read_ranges_ahead();
  }
  return handler->m_ranges.take(range);
}

/* Reads the pages where some ranges to come begin. */
void ha_myriad::read_ranges_ahead() {
  const std::vector<KEY_MULTI_RANGE> &ranges = m_ranges.look(m_ranges_wanted);
  m_ranges_wanted = std::min(m_ranges_wanted * GROWTH, MOST);
  if (ranges.size() < 2 || !m_index || !m_session) return;
  Buffer encoded[MOST];
  myriad_bytes keys[MOST];
  uint count = 0;
  for (const KEY_MULTI_RANGE &range : ranges) {
    if (!range.start_key.key) continue;
    bool has_null;
    uint used;
    encode_search_key(*m_index, range.start_key.key, range.start_key.keypart_map, &has_null, &used, &encoded[count]);
    keys[count] = {encoded[count].data(), encoded[count].size()};
    count++;
  }
  myriad_read_together(core(), m_table, m_index->core_no, keys, count);
}
