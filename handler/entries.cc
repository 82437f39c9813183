/* Entries of secondary indexes: what of a row they have, and the row where that is not enough. */
#include "ha_myriad.h"

using myriad::Buffer;
using myriad::IndexPlan;
using myriad::KeyPart;

/* True if the statement reads a column that the clustered key has a prefix of, and the index not the whole. A plain
   keyread does not, but merged indexes do: the server asks of each entry whether the primary key's range has the row
   too. */
static bool reads_beyond_prefix(const TABLE *table, const IndexPlan &clustered, const IndexPlan &index) {
  if (!clustered.has_blob_or_prefix) return false;
  for (const KeyPart &part : clustered.parts) {
    if (!part.prefix || !bitmap_is_set(table->read_set, part.field_index)) continue;
    bool whole = false;
    for (const KeyPart &own : index.parts) whole |= own.field_index == part.field_index && !own.prefix;
    if (!whole) return true;
  }
  return false;
}

/* True if the server wants no more of a row than its entry has. It says so too where it wants no more than the row's
   position but compares columns itself, of which an entry has no more than a prefix's weights: with the end of the
   range (rowid filters, merged indexes), and where it looks for overlapping periods. */
bool ha_myriad::by_keyread() const {
  if (keyread >= MAX_KEY) return for_positions_alone();
  if (keyread != active_index) return false;
  if (reads_beyond_prefix(table, m_plan->clustered(), *m_index)) return false;
  /* The server puts the rows of several partitions in the order of the clustered key as well. */
  if (table->part_info && m_plan->clustered().has_blob_or_prefix) return false;
  if (!m_index->has_blob_or_prefix) return true;
  if (table->key_info[keyread].without_overlaps) return false;
  if (table->part_info) return false; /* the order of several partitions' rows */
  return !range_ends_on_prefix();
}

/* True for the handler that collects positions for a multi-range read, to read the rows in their order: the server asks
   it for a keyread without naming the index. Rows that are locked are read, as one can be gone or left out as locked by
   another; so are those that entries may differ from, and those of virtual columns, which the server computes here. */
bool ha_myriad::for_positions_alone() const {
  return m_keyread_asked && m_lock == MYRIAD_LOCK_NONE && !entries_may_differ() && !table->vfield &&
         !table->part_info && !m_index->has_blob_or_prefix;
}

/* True if an entry has not all that the server compares with the end of the range. */
bool ha_myriad::range_ends_on_prefix() const {
  if (!end_range || !m_index->has_blob_or_prefix) return false;
  for (size_t i = 0; i < m_index->parts.size(); i++)
    if (m_index->parts[i].prefix && (end_range->keypart_map >> i & 1)) return true;
  return false;
}

/* The answer of the pushed condition or the rowid filter for an entry, which is in the record and whose position is the
   current one. The server compares the record with the end of the range before it; where that is on a prefix, the
   weights are compared here, and the server compares the row once it is read. */
check_result_t ha_myriad::check_entry(const myriad_row &entry, check_result_t (*check)(void *)) {
  if (!range_ends_on_prefix()) return check(this);
  const Buffer *range_end = &m_bound_high;
  if (!m_bounded) {
    bool has_null;
    uint used;
    encode_search_key(*m_index, end_range->key, end_range->keypart_map, &has_null, &used, &m_range_end);
    range_end = &m_range_end;
  }
  size_t length = std::min(range_end->size(), entry.key_len);
  if (memcmp(entry.key, range_end->data(), length) > 0) return CHECK_OUT_OF_RANGE;
  key_range *end = end_range;
  end_range = nullptr;
  check_result_t result = check(this);
  end_range = end;
  return result;
}

/* What the answer means for the scan: an error that ends it, `failed` where there is no answer, or whether the entry is
   passed over. */
int ha_myriad::ask(const myriad_row &entry, check_result_t (*check)(void *), int failed, bool *skip) {
  switch (check_entry(entry, check)) {
  case CHECK_POS: return 0;
  case CHECK_NEG:
    *skip = m_passed_over = true;
    unlock_row();
    return 0;
  case CHECK_OUT_OF_RANGE: return HA_ERR_END_OF_FILE;
  case CHECK_ABORTED_BY_USER: return HA_ERR_ABORTED_BY_USER;
  default: return failed;
  }
}

/* Whether the row in the record has the values of the entry of m_index. Not asked of virtual columns, which are
   computed later. */
bool ha_myriad::has_entry(const uchar *record, const Buffer &entry) {
  const uchar *at = entry.data(), *end = at + entry.size();
  for (const KeyPart &part : m_index->parts) {
    const uchar *behind = myriad::skip_part(part, at, end);
    if (!behind) return false;
    if (table->field[part.field_index]->stored_in_db()) {
      m_entry_part.clear();
      encode_from_record(part, record, &m_entry_part);
      if (m_entry_part.size() != size_t(behind - at) || memcmp(m_entry_part.data(), at, behind - at)) return false;
    }
    at = behind;
  }
  return true;
}

/* The virtual columns that the index has a prefix of, of the row in the record. BLOBs of them are kept here, as one of
   another partition's row may be computed next. */
int ha_myriad::compute_prefixes(uchar *record) try {
  size_t length = 0;
  table->move_fields(table->field, record, table->record[0]);
  for (const KeyPart &part : m_index->parts) {
    Field *column = table->field[part.field_index];
    if (!part.prefix || column->stored_in_db()) continue;
    table->update_virtual_field(column, true);
    if (part.storage == myriad::Storage::Blob) length += static_cast<Field_blob *>(column)->get_length();
  }
  m_computed.clear();
  uchar *to = m_computed.room(length);
  for (const KeyPart &part : m_index->parts) {
    Field *column = table->field[part.field_index];
    if (!part.prefix || column->stored_in_db() || part.storage != myriad::Storage::Blob) continue;
    auto *blob = static_cast<Field_blob *>(column);
    const uint32 bytes = blob->get_length();
    if (bytes) memcpy(to, blob->get_ptr(), bytes);
    blob->set_ptr(bytes, to);
    to += bytes;
  }
  table->move_fields(table->field, table->record[0], record);
  return 0;
} catch (const std::bad_alloc &) {
  table->move_fields(table->field, table->record[0], record);
  return HA_ERR_OUT_OF_MEM;
}

/* An entry of a secondary index, and its row where the entry is not enough. `skip`: not a row for this statement. */
int ha_myriad::deliver_entry(uchar *record, const myriad_row &row, bool *skip) {
  *skip = false;
  const bool asked = m_rows_asked != 0;
  if (asked) m_rows_asked--;
  const uchar *pk;
  size_t pk_length;
  bool good = m_plan->clustered_part(*m_index, row.key, row.key_len, row.value, row.value_len, &pk, &pk_length);
  bool condition = pushed_idx_cond && active_index == pushed_idx_cond_keyno && record == table->record[0];
  bool filter = pushed_rowid_filter && rowid_filter_is_active && record == table->record[0];
  bool covering = by_keyread();
  /* Generated columns are not computed in a keyread, also where the row is read or the keyread is of another index:
     merged scans announce one of the primary key and read others. Nor before the rows of several partitions are put
     in order. */
  bool generated = table->vfield && (keyread < MAX_KEY || table->part_info);
  if (good && (condition || filter || covering || generated))
    good = m_plan->unpack_entry(*m_index, row.key, row.key_len, row.value, row.value_len, table->s->default_values,
                                record);
  if (!good) {
    sql_print_error("MYRIAD: index %u of table %s holds an entry that does not fit its definition", m_index->server_no,
                    m_name.c_str());
    return HA_ERR_CRASHED;
  }
  m_pk.assign(pk, pk_length);
  m_from_entry = true;
  int error = condition ? ask(row, handler_index_cond_check, HA_ERR_INTERNAL_ERROR, skip) : 0;
  if (!error && !*skip && filter) error = ask(row, handler_rowid_filter_check, HA_ERR_END_OF_FILE, skip);
  if (error || *skip) return error;
  if (covering && m_lock != MYRIAD_LOCK_X) return 0;
  const bool may_differ = entries_may_differ();
  if (may_differ) m_entry.assign(row.key, row.key_len);
  const uint64_t pages_read = myriad_thread_pages_read();
  if (m_from_disk && !asked) read_rows_ahead(m_pk.data(), m_pk.size());
  myriad_row whole;
  const size_t tail = tail_bytes();
  myriad_status status =
      myriad_get_head(core(), m_table, m_pk.data(), m_pk.size(), m_lock, wait_mode(), tail, &whole, nullptr);
  if (!asked) m_from_disk = pages_read != myriad_thread_pages_read();
  if (status == MYRIAD_END) {
    *skip = true; /* gone, or locked by another under SKIP LOCKED */
    return 0;
  }
  if (status != MYRIAD_OK) return fail(status);
  if (covering) return 0;
  error = deliver_clustered(record, whole, &m_blobs);
  if (!error && computes_prefixes()) error = compute_prefixes(record);
  *skip = !error && may_differ && !has_entry(record, m_entry);
  return error;
}
