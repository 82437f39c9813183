/* Scans and look-ups. */
#include "ha_myriad.h"
#include "variables.h"
#include "work.h"

using myriad::Buffer;
using myriad::IndexPlan;
using myriad::KeyPart;
using myriad::WorkFor;

/* ---- cursors ------------------------------------------------------------------------------------------------------
 */

/* The server may look at the last row after the end of its scan: a cursor in whose memory BLOBs of it are stays until
   there is another such, or the statement ends. */
void ha_myriad::close_cursor() {
  if (m_cursor && m_lends_blobs)
    m_lender.reset(m_cursor);
  else if (m_cursor)
    myriad_cursor_close(m_cursor);
  m_cursor = nullptr;
  m_lends_blobs = false;
  m_rows_asked = 0;
  if (m_bounded) set_bounded(false, false);
}

uint32_t ha_myriad::wait_mode() const { return m_skip_locked ? MYRIAD_SKIP_LOCKED : MYRIAD_WAIT; }

int ha_myriad::open_cursor(uint32_t core_index, bool full_scan) {
  if (int error = ensure_session()) return error;
  if (m_cursor && m_cursor_index == core_index && m_full_scan == full_scan) return 0;
  close_cursor();
  m_full_scan = full_scan;
  m_cursor_index = core_index;
  const myriad_cursor_options options = cursor_options();
  myriad_status status = myriad_cursor_open(core(), m_table, core_index, &options, &m_cursor);
  if (status != MYRIAD_OK) {
    m_cursor = nullptr;
    return fail(status);
  }
  m_makes_excerpts = false;
  set_excerpt();
  return 0;
}

/* Rows with a tail of which no value was wanted, one after the other, after which tails are left alone. */
static constexpr unsigned TAILS_IN_VAIN_MAX = 4;

/* How much of rows' tails is read with them. Nothing if no column that the statement reads can be there, or none was
   there in the last rows; where others come behind those, a page. deliver_tailed() reads more of rows that need it:
   twice, so within one snapshot alone. */
size_t ha_myriad::tail_bytes() {
  if (may_change_rows()) return SIZE_MAX;
  make_template();
  if (!m_template.tails) return 0;
  if (must_read_at_once()) return SIZE_MAX;
  if (m_tails_in_vain == TAILS_IN_VAIN_MAX) return 0;
  return m_template.more_tails ? 1 : SIZE_MAX;
}

/* How much of a row without overflow pages is copied. Where a value that the statement reads may be in its tail,
   deliver_tailed() reads the rest, see tail_bytes(). */
size_t ha_myriad::value_bytes() {
  if (may_change_rows()) return SIZE_MAX;
  make_template();
  if (m_template.tails && must_read_at_once()) return SIZE_MAX;
  return m_plan->bytes_up_to(m_template.actions);
}

void ha_myriad::note_tail(bool wanted) {
  const unsigned before = m_tails_in_vain;
  m_tails_in_vain = wanted ? 0 : std::min(before + 1, TAILS_IN_VAIN_MAX);
  if ((before == TAILS_IN_VAIN_MAX) != (m_tails_in_vain == TAILS_IN_VAIN_MAX)) set_cursor_options();
}

void ha_myriad::make_template() {
  if (m_template.valid) return;
  m_plan->make_template(table, reading_needs_all(), &m_template, entries_may_differ() ? m_index : nullptr);
  m_cursor_knows_template = false;
}

/* For a cursor over the index m_cursor_index. */
myriad_cursor_options ha_myriad::cursor_options() {
  myriad_cursor_options options;
  options.lock = m_lock;
  options.wait = wait_mode();
  options.semi_consistent = m_try_semi_consistent && m_cursor_index == 0 && m_lock == MYRIAD_LOCK_X;
  options.record_only = false;
  options.full_scan = m_full_scan;
  options.value_bytes = m_cursor_index == 0 ? value_bytes() : SIZE_MAX;
  options.tail_bytes = m_cursor_index == 0 ? tail_bytes() : SIZE_MAX;
  m_cursor_knows_template = m_template.valid;
  return options;
}

void ha_myriad::set_cursor_options() {
  if (!m_cursor) return;
  const myriad_cursor_options options = cursor_options();
  myriad_cursor_set_options(m_cursor, &options);
  set_excerpt();
}

static size_t make_excerpt(const void *of, const uint8_t *value, size_t length, uint8_t *to) {
  return static_cast<const ha_myriad *>(of)->excerpt(value, length, to);
}

/* Long values that the statement does not read are not copied only because a column behind them is read. */
void ha_myriad::set_excerpt() {
  const bool wanted = m_cursor_index == 0 && m_template.valid && m_template.long_between;
  if (wanted || m_makes_excerpts) myriad_cursor_set_excerpt(m_cursor, wanted ? make_excerpt : nullptr, this);
  m_makes_excerpts = wanted;
}

/* Before it moves: rows that it has copied already may lack columns that the statement reads now. Entries of other
   indexes are copied whole, and the template may never be made where they are all that is read. */
inline void ha_myriad::prepare_cursor() {
  if (m_cursor_index == 0 && !(m_template.valid && m_cursor_knows_template)) set_cursor_options();
}

void ha_myriad::remember(const myriad_row &row) {
  if (m_plan->hidden_row_id() && m_cursor_index == 0) m_pk.assign(row.key, row.key_len);
  if (m_by_handler) {
    m_last_key.assign(row.key, row.key_len);
    m_have_last = true;
    m_past_same = false;
  }
}

/* The row of the clustered index into the record. */
int ha_myriad::deliver_clustered(uchar *record, const myriad_row &row, Buffer *blobs) {
  m_from_entry = false;
  make_template();
  const int error = m_template.tails && myriad::has_tail(row) ? deliver_tailed(record, row, blobs)
                                                              : unpack(m_template, record, row, blobs);
  if (m_keep_found && !error && record == table->record[1]) m_found.assign(record, table->s->reclength);
  return error;
}

int ha_myriad::unpack(const myriad::Template &what, uchar *record, const myriad_row &row, Buffer *blobs) try {
  if (m_plan->unpack_row(what, row, record, blobs)) return 0;
  sql_print_error("MYRIAD: table %s holds a row that does not fit its definition", m_name.c_str());
  return HA_ERR_CRASHED;
} catch (const std::bad_alloc &) {
  return HA_ERR_OUT_OF_MEM;
}

/* A row that has a tail, of which what is wanted may not have been read: also because it was when the statement's
   columns were others. */
int ha_myriad::deliver_tailed(uchar *record, const myriad_row &row, Buffer *blobs) {
  size_t wanted = 0;
  const bool lacks = m_plan->lacks_tail(m_template, row, &wanted);
  note_tail(wanted != 0);
  if (!lacks) return unpack(m_template, record, row, blobs);
  myriad_row whole = row;
  Buffer key;
  key.assign(row.key, row.key_len);
  for (size_t tail : {wanted, SIZE_MAX}) {
    myriad_status status =
        myriad_get_head(core(), m_table, key.data(), key.size(), MYRIAD_LOCK_NONE, MYRIAD_WAIT, tail, &whole, nullptr);
    if (status == MYRIAD_END) return HA_ERR_RECORD_DELETED;
    if (status != MYRIAD_OK) return fail(status);
    if (!m_plan->lacks_tail(m_template, whole, &wanted)) break;
  }
  return unpack(m_template, record, whole, &m_blobs);
}

/* Delivers the row that a cursor found, or the next one in the direction that this statement wants. */
inline int ha_myriad::deliver(uchar *record, myriad_status status, myriad_row *row, bool forward) {
  for (;;) {
    m_locked_row.clear();
    if (status == MYRIAD_END) return HA_ERR_END_OF_FILE;
    if (status != MYRIAD_OK) return fail(status);
    if (m_plan->hidden_row_id() || m_by_handler) remember(*row);
    if (m_cursor_index == 0) {
      /* Its BLOBs are where the cursor has them, until it moves: they may be long. */
      int error = deliver_clustered(record, *row, nullptr);
      m_lends_blobs |= m_template.blobs;
      return error;
    }
    bool skip;
    int error = deliver_entry(record, *row, &skip);
    if (error || !skip) return error;
    status = forward ? myriad_cursor_next(m_cursor, row) : myriad_cursor_prev(m_cursor, row);
  }
}

int ha_myriad::seek(uchar *record, myriad_seek how, const uchar *key, size_t key_length) {
  myriad_row row;
  bool forward =
      how != MYRIAD_SEEK_LAST && how != MYRIAD_SEEK_LE && how != MYRIAD_SEEK_LT && how != MYRIAD_SEEK_EXACT_LAST;
  m_exact = how == MYRIAD_SEEK_EXACT || how == MYRIAD_SEEK_EXACT_UNIQUE || how == MYRIAD_SEEK_EXACT_LAST;
  m_unique_hit = m_have_last = false;
  m_rows_asked = m_rows_wanted = 0;
  prepare_cursor();
  myriad_status status = myriad_cursor_seek(m_cursor, how, key, key_length, &row);
  return deliver(record, status, &row, forward);
}

int ha_myriad::step(uchar *record, bool forward) {
  myriad_row row;
  m_have_last = false;
  prepare_cursor();
  myriad_status status = forward ? myriad_cursor_next(m_cursor, &row) : myriad_cursor_prev(m_cursor, &row);
  return deliver(record, status, &row, forward);
}

/* The next row where there is no cursor: after a look-up by a unique key, or between two HANDLER statements. */
int ha_myriad::resume(uchar *record, bool forward) {
  bool unique = m_unique_hit;
  if (!unique && !m_have_last) {
    if (active_index >= MAX_KEY || m_beyond != (forward ? Beyond::First : Beyond::Last)) return HA_ERR_END_OF_FILE;
    return forward ? index_first(record) : index_last(record);
  }
  if (int error = open_cursor(m_index ? m_index->core_no : 0, false)) return error;
  Buffer from;
  const Buffer &key = unique ? m_search : m_last_key;
  from.assign(key.data(), key.size());
  const myriad_seek back = m_past_same ? MYRIAD_SEEK_LE : MYRIAD_SEEK_LT;
  return seek(record, forward ? MYRIAD_SEEK_GT : back, from.data(), from.size());
}

/* ---- index scans --------------------------------------------------------------------------------------------------
 */

int ha_myriad::index_init(uint index, bool) {
  active_index = index;
  m_index = &m_plan->index(index);
  m_beyond = Beyond::None;
  m_by_position = false;
  m_exact = m_unique_hit = m_have_last = false;
  m_from_disk = m_passed_over = false;
  m_template.valid = false;
  if (m_cursor) close_cursor();
  note_handler();
  return begin_reading();
}

/* Of a row event that may have only some of the columns the server asks for those alone, but a row is changed with its
   entries of virtual columns. */
void ha_myriad::read_virtual_columns() {
  for (const IndexPlan &index : m_plan->indexes())
    for (const KeyPart &part : index.parts)
      if (!table->field[part.field_index]->stored_in_db()) return bitmap_set_all(table->read_set);
}

/* As InnoDB has it, a statement that locks what it reads is refused as well if the snapshot is too old for the index.
 */
int ha_myriad::begin_reading() {
  if (int error = ensure_session()) return error;
  end_own_reads();
  if (m_lock == MYRIAD_LOCK_NONE) return wait_before_building();
  if (table->vfield && (ha_thd()->rgi_slave || ha_thd()->rgi_fake)) read_virtual_columns();
  return fail(myriad_check_snapshot(core(), m_table, m_index->core_no));
}

int ha_myriad::index_end() {
  close_cursor();
  active_index = MAX_KEY;
  in_range_check_pushed_down = false;
  m_exact = m_unique_hit = false;
  m_ds_mrr.dsmrr_close();
  return 0;
}

/* The search key's columns from the server's key image. `used`: how many of the index's own columns it has. */
void ha_myriad::encode_search_key(const IndexPlan &index, const uchar *key, key_part_map parts, bool *has_null,
                                  uint *used, Buffer *out) const {
  out->clear();
  *has_null = false;
  *used = 0;
  const uchar *images[MAX_REF_PARTS];
  const KEY &info = table->key_info[index.server_no];
  for (; *used < index.parts.size() && (parts & 1); parts >>= 1, ++*used) {
    const KeyPart &part = index.parts[*used];
    images[*used] = key;
    if (part.nullable && *key) *has_null = true;
    encode_from_image(part, key, out);
    key += part.store_length;
  }
  if (!(parts & 1) || *used < index.parts.size() || index.core_no == 0) return;
  /* An extended key: some columns of the clustered key follow. Ours holds all of them, so those that the server leaves
     out because the index has them are taken from there. */
  const auto &clustered = m_plan->clustered().parts;
  for (uint i = 0; i < clustered.size(); i++) {
    const KeyPart &part = clustered[i];
    if (info.ext_key_part_map & (key_part_map(1) << i)) {
      if (!(parts & 1)) return;
      encode_from_image(part, key, out);
      key += part.store_length;
      parts >>= 1;
      continue;
    }
    uint own = 0;
    while (own < index.parts.size() && (index.parts[own].field_index != part.field_index || index.parts[own].prefix))
      own++;
    if (own == index.parts.size()) return;
    encode_from_image(part, images[own] + (index.parts[own].nullable ? 1 : 0), out);
  }
}

/* Lets batches of a non-locking scan end where the range ends; a locking one looks ahead no further. */
void ha_myriad::set_bounds(const IndexPlan &index, enum ha_rkey_function find_flag) {
  bool forward = find_flag == HA_READ_KEY_OR_NEXT || find_flag == HA_READ_AFTER_KEY;
  if (!forward || !end_range || !end_range->key) {
    clear_bounds();
    return;
  }
  bool has_null;
  uint used;
  encode_search_key(index, end_range->key, end_range->keypart_map, &has_null, &used, &m_bound_high);
  if (!m_bound_high.size()) {
    clear_bounds();
    return;
  }
  myriad_cursor_set_bounds(m_cursor, nullptr, 0, m_bound_high.data(), m_bound_high.size());
  bool whole = !(end_range->keypart_map >> used) && !index.has_blob_or_prefix;
  set_bounded(true, whole && end_range->flag == HA_READ_AFTER_KEY && m_lock == MYRIAD_LOCK_NONE);
}

void ha_myriad::clear_bounds() {
  if (!m_bounded) return;
  myriad_cursor_set_bounds(m_cursor, nullptr, 0, nullptr, 0);
  set_bounded(false, false);
}

/* `exactly`: the cursor ends where the range does, so the server need not compare each row with the range's end. Nor
   where it does so for each entry, before the pushed condition; but an entry has not all of a prefix's column. */
void ha_myriad::set_bounded(bool bounded, bool exactly) {
  m_bounded = bounded;
  in_range_check_pushed_down =
      exactly || (pushed_idx_cond && pushed_idx_cond_keyno == active_index && !m_index->has_blob_or_prefix);
}

/* One row by its clustered key, or an entry by all columns of a unique index. What unlock_row may give back is noted.
 */
myriad_status ha_myriad::look_up(uint32_t core_index, const uchar *key, size_t key_length, myriad_row *row) {
  bool new_lock = false;
  m_locked_row.clear();
  const size_t tail = core_index == 0 ? tail_bytes() : SIZE_MAX;
  const myriad_status status =
      tail < SIZE_MAX ? myriad_get_head(core(), m_table, key, key_length, m_lock, wait_mode(), tail, row, &new_lock)
                      : myriad_get(core(), m_table, core_index, key, key_length, core_index != 0, m_lock, wait_mode(),
                                   row, &new_lock);
  if (new_lock && core_index == 0 && m_session->isolation <= MYRIAD_READ_COMMITTED)
    m_locked_row.assign(row->key, row->key_len);
  return status;
}

/* One row by a whole unique key, without a cursor. */
int ha_myriad::read_unique(uchar *record, const uchar *key, size_t key_length) {
  if (int error = ensure_session()) return error;
  close_cursor();
  m_cursor_index = m_index->core_no;
  m_exact = m_have_last = false;
  myriad_row row;
  myriad_status status = look_up(m_index->core_no, key, key_length, &row);
  if (status == MYRIAD_END) return HA_ERR_KEY_NOT_FOUND;
  if (status != MYRIAD_OK) return fail(status);
  m_unique_hit = true;
  remember(row);
  if (m_index->core_no == 0) return deliver_clustered(record, row, &m_blobs);
  bool skip;
  int error = deliver_entry(record, row, &skip);
  return error ? (error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error) : skip ? HA_ERR_KEY_NOT_FOUND : 0;
}

static myriad_seek seek_of(enum ha_rkey_function find_flag) {
  switch (find_flag) {
  case HA_READ_KEY_EXACT: return MYRIAD_SEEK_EXACT;
  case HA_READ_KEY_OR_NEXT: return MYRIAD_SEEK_GE;
  case HA_READ_AFTER_KEY: return MYRIAD_SEEK_GT;
  case HA_READ_BEFORE_KEY: return MYRIAD_SEEK_LT;
  case HA_READ_PREFIX_LAST: return MYRIAD_SEEK_EXACT_LAST;
  default: return MYRIAD_SEEK_LE; /* KEY_OR_PREV, PREFIX_LAST_OR_PREV */
  }
}

int ha_myriad::index_read_map(uchar *record, const uchar *key, key_part_map parts, enum ha_rkey_function find_flag) {
  WorkFor work(handler_stats);
  int error = find_by_key(record, key, parts, find_flag);
  if (error != HA_ERR_KEY_NOT_FOUND || !m_by_handler || !key) return error;
  /* HANDLER goes on from the place where such a row would be. */
  switch (find_flag) {
  case HA_READ_KEY_EXACT: stand_past_same(); break;
  case HA_READ_KEY_OR_NEXT:
  case HA_READ_AFTER_KEY: m_beyond = Beyond::Last; break;
  default: m_beyond = Beyond::First;
  }
  return error;
}

int ha_myriad::find_by_key(uchar *record, const uchar *key, key_part_map parts, enum ha_rkey_function find_flag) {
  if (!key) {
    int error = find_flag == HA_READ_KEY_EXACT || find_flag == HA_READ_KEY_OR_NEXT || find_flag == HA_READ_AFTER_KEY
                    ? index_first(record)
                    : index_last(record);
    return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
  }
  bool has_null;
  uint used;
  encode_search_key(*m_index, key, parts, &has_null, &used, &m_search);
  if (find_flag == HA_READ_KEY_EXACT && m_index->unique && used == m_index->parts.size() && !has_null)
    return read_unique(record, m_search.data(), m_search.size());
  if (int error = open_cursor(m_index->core_no, false)) return error;
  set_bounds(*m_index, find_flag);
  int error = seek(record, seek_of(find_flag), m_search.data(), m_search.size());
  return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
}

int ha_myriad::index_next(uchar *record) {
  WorkFor work(handler_stats);
  return note_end(next_entry(record), true);
}

int ha_myriad::index_prev(uchar *record) {
  WorkFor work(handler_stats);
  return note_end(prev_entry(record), false);
}

/* HANDLER can turn round where a scan has ended. */
int ha_myriad::note_end(int error, bool forward) {
  if (error == HA_ERR_END_OF_FILE && m_by_handler) m_beyond = forward ? Beyond::Last : Beyond::First;
  return error;
}

int ha_myriad::next_entry(uchar *record) {
  if (!m_cursor) return resume(record, true);
  int error = step(record, true);
  if (error != HA_ERR_END_OF_FILE || !m_exact) return error;
  return seek(record, MYRIAD_SEEK_GT, m_search.data(), m_search.size());
}

int ha_myriad::prev_entry(uchar *record) {
  if (!m_cursor) return resume(record, false);
  clear_bounds();
  int error = step(record, false);
  if (error != HA_ERR_END_OF_FILE || !m_exact) return error;
  return seek(record, MYRIAD_SEEK_LT, m_search.data(), m_search.size());
}

int ha_myriad::index_next_same(uchar *record, const uchar *key, uint key_length) {
  WorkFor work(handler_stats);
  if (!m_unique_hit && !(m_cursor && m_exact)) return handler::index_next_same(record, key, key_length);
  const int error = m_unique_hit ? HA_ERR_END_OF_FILE : step(record, true);
  if (error == HA_ERR_END_OF_FILE && m_by_handler) stand_past_same();
  return error;
}

/* HANDLER goes on from behind the rows with the key sought. */
void ha_myriad::stand_past_same() {
  close_cursor();
  m_last_key.assign(m_search.data(), m_search.size());
  m_have_last = m_past_same = true;
  m_exact = m_unique_hit = false;
}

int ha_myriad::index_first(uchar *record) {
  WorkFor work(handler_stats);
  if (int error = open_cursor(m_index->core_no, false)) return error;
  clear_bounds();
  return seek(record, MYRIAD_SEEK_FIRST, nullptr, 0);
}

int ha_myriad::index_last(uchar *record) {
  WorkFor work(handler_stats);
  if (int error = open_cursor(m_index->core_no, false)) return error;
  clear_bounds();
  return seek(record, MYRIAD_SEEK_LAST, nullptr, 0);
}

/* ---- scans in clustered order, and positions ----------------------------------------------------------------------
 */

int ha_myriad::rnd_init(bool scan) {
  m_index = &m_plan->clustered();
  m_scan_started = !scan;
  m_by_position = !scan;
  m_from_disk = false;
  m_positions.end();
  m_exact = m_unique_hit = m_have_last = false;
  m_template.valid = false;
  if (m_cursor) close_cursor();
  note_handler();
  return begin_reading();
}

/* Also the end of a multi-range read that reads rows by their positions, and so of the handler that reads its index. */
int ha_myriad::rnd_end() {
  close_cursor();
  m_ds_mrr.dsmrr_close();
  m_positions.end();
  return 0;
}

int ha_myriad::rnd_next(uchar *record) {
  WorkFor work(handler_stats);
  if (!m_scan_started) {
    if (int error = open_cursor(0, true)) return error;
    m_scan_started = true;
    return seek(record, MYRIAD_SEEK_FIRST, nullptr, 0);
  }
  if (!m_cursor) return resume(record, true);
  return step(record, true);
}

myriad_bytes ha_myriad::clustered_key(const uchar *position) const {
  const size_t length = m_plan->clustered_width() ? ref_length : uint2korr(position + ref_length - 2);
  return {position, std::min<size_t>(length, ref_length)};
}

int ha_myriad::rnd_pos(uchar *record, uchar *position) {
  WorkFor work(handler_stats);
  if (int error = ensure_session()) return error;
  const myriad_bytes key = clustered_key(position);
  m_pk.assign(key.data, key.len);
  const bool ahead = m_positions.has(position), asked = ahead && m_positions.asked(position);
  const uint64_t pages_read = ahead ? myriad_thread_pages_read() : 0;
  if (ahead && m_from_disk && !asked) read_positions_ahead(position);
  myriad_row row;
  myriad_status status = look_up(0, m_pk.data(), m_pk.size(), &row);
  if (ahead && !asked) m_from_disk = pages_read != myriad_thread_pages_read();
  if (status == MYRIAD_END) return HA_ERR_KEY_NOT_FOUND;
  if (status != MYRIAD_OK) return fail(status);
  return deliver_clustered(record, row, &m_blobs);
}

/* The record is not the one that was read last: a replica asks for a row of its log. */
int ha_myriad::rnd_pos_by_record(uchar *record) {
  m_from_entry = false;
  return handler::rnd_pos_by_record(record);
}

void ha_myriad::position(const uchar *record) {
  if (m_plan->hidden_row_id()) {
    if (m_pk.size() == 8)
      memcpy(ref, m_pk.data(), 8);
    else
      memset(ref, 0, 8);
    return;
  }
  /* An entry has no more than the prefix of a column that is a prefix in the clustered key, and the record then
   * nothing. */
  const Buffer *key = &m_pk;
  if (!m_from_entry) {
    m_position.clear();
    m_plan->pack_clustered_key(record, &m_position);
    key = &m_position;
  }
  size_t length = key->size();
  if (m_plan->clustered_width()) {
    memcpy(ref, key->data(), length);
    return;
  }
  length = std::min<size_t>(length, ref_length - 2);
  memcpy(ref, key->data(), length);
  memset(ref + length, 0, ref_length - 2 - length);
  int2store(ref + ref_length - 2, uint16(length));
}

/* ---- locks of single rows -----------------------------------------------------------------------------------------
 */

void ha_myriad::try_semi_consistent_read(bool yes) {
  m_try_semi_consistent =
      yes && m_session && m_session->isolation <= MYRIAD_READ_COMMITTED && !myriad_snapshot_isolation_of(ha_thd());
  set_cursor_options();
}

/* The next read gives the row once more, with its lock, but after unlock_row(). */
bool ha_myriad::was_semi_consistent_read() { return m_cursor && myriad_cursor_was_semi_consistent(m_cursor); }

/* As with InnoDB, only rows found in the clustered index are let go, not those found through another index. */
void ha_myriad::unlock_row() {
  if (m_lock == MYRIAD_LOCK_NONE || !m_session || m_session->isolation > MYRIAD_READ_COMMITTED) return;
  if (m_cursor && m_cursor_index == 0) myriad_cursor_unlock_row(m_cursor);
  if (m_locked_row.size()) myriad_unlock(core(), m_table, 0, m_locked_row.data(), m_locked_row.size(), m_lock);
  m_locked_row.clear();
}

void ha_myriad::init_table_handle_for_HANDLER() {
  m_lock = m_stored_lock = MYRIAD_LOCK_NONE;
  m_by_handler = true;
  m_template.valid = false;
}

/* A partitioned table does not tell its partitions. */
void ha_myriad::note_handler() {
  if (table->part_info && thd_sql_command(ha_thd()) == SQLCOM_HA_READ) m_by_handler = true;
}
