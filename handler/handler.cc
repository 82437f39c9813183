/* Opening, scans and look-ups: the reading half of the handler. */
#include "ha_myriad.h"
#include "drop_database.h"
#include "variables.h"
#include "work.h"

using myriad::Buffer;
using myriad::IndexPlan;
using myriad::KeyPart;
using myriad::TablePlan;
using myriad::WorkFor;

thread_local ha_handler_stats *myriad::WorkFor::counted = nullptr;

ha_myriad::ha_myriad(handlerton *hton, TABLE_SHARE *share)
    : handler(hton, share), m_hton(hton), m_page_size(myriad_page_size(myriad_core)) {
  ref_length = 8;
}

ha_myriad::~ha_myriad() = default;

ulonglong ha_myriad::table_flags() const {
  ulonglong flags = HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_CAN_VIRTUAL_COLUMNS | HA_REC_NOT_IN_SEQ | HA_CAN_GEOMETRY |
                    HA_PRIMARY_KEY_REQUIRED_FOR_POSITION | HA_PRIMARY_KEY_IN_READ_INDEX | HA_TABLE_SCAN_ON_INDEX |
                    HA_REQUIRES_KEY_COLUMNS_FOR_DELETE | HA_CAN_SQL_HANDLER | HA_BINLOG_ROW_CAPABLE |
                    HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_ONLINE_BACKUPS | HA_CAN_SKIP_LOCKED | HA_CRASH_SAFE |
                    HA_CONCURRENT_OPTIMIZE | HA_ONLINE_ANALYZE | HA_REUSES_FILE_NAMES | HA_AUTO_PART_KEY |
                    HA_PARTIAL_COLUMN_READ;
  THD *thd = ha_thd();
  /* Below REPEATABLE READ the order of commits is not what a replica needs to repeat statements, and there is no gap
     lock between the server's look-up for a constraint of its own (UNIQUE of a long column, WITHOUT OVERLAPS) and the
     write: it has to look after the write. */
  if (!thd || myriad_isolation_of(thd) >= MYRIAD_REPEATABLE_READ)
    flags |= HA_BINLOG_STMT_CAPABLE;
  else
    flags |= HA_CHECK_UNIQUE_AFTER_WRITE;
  return flags;
}

ulong ha_myriad::index_flags(uint index, uint, bool) const {
  ulong flags = HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY;
  if (index == table_share->primary_key)
    flags |= HA_CLUSTERED_INDEX;
  else
    flags |= HA_DO_INDEX_COND_PUSHDOWN | HA_DO_RANGE_FILTER_PUSHDOWN;
  return flags;
}

const char *ha_myriad::index_type(uint index) {
  return myriad::has_hash_lookup(table_share, table->key_info[index]) ? "HASH" : "BTREE";
}

/* InnoDB's limits, which people's schemas are made for: 3072 bytes at 16 KiB pages and above, less on smaller ones. */
uint ha_myriad::max_supported_key_length() const {
  return m_page_size >= 16384 ? 3072 : m_page_size >= 8192 ? 1536 : 768;
}

uint ha_myriad::max_supported_key_part_length() const { return max_supported_key_length(); }

/* ---- life cycle ---------------------------------------------------------------------------------------------------
 */

int ha_myriad::open(const char *name, int, uint) {
  if (THD *thd = ha_thd()) myriad_allow_drop(thd, table_share);
  m_name = myriad_name(name);
  myriad_status status = myriad_table_open(myriad_core, m_name.c_str(), &m_table);
  if (status != MYRIAD_OK) return myriad_error_noted(status, ha_thd());
  int error = adopt_definition();
  if (error) {
    close();
    return error;
  }
  /* The binary log gets a TRUNCATE TABLE, as for ENGINE=MEMORY. A partitioned table's handler takes its flag from one
     of those that it has opened, whichever; the engine tells one of them only. */
  if (myriad_table_take_emptied(m_table)) table->file->implicit_emptied = true;
  implicit_emptied = table->file->implicit_emptied;
  m_plan.reset(new TablePlan(table));
  if (!has_planned_indexes()) {
    sql_print_error("MYRIAD: the indexes of table %s do not fit its definition", m_name.c_str());
    close();
    return HA_ERR_CRASHED;
  }
  name_indexes();
  size_t layouts_length;
  const uchar *layouts_bytes = myriad_table_row_layouts(m_table, &layouts_length);
  myriad::RowLayouts layouts;
  if (layouts_length && !(layouts.decode(layouts_bytes, layouts_length) && m_plan->set_layouts(std::move(layouts)))) {
    sql_print_error("MYRIAD: the row layouts of table %s do not fit its definition", m_name.c_str());
    close();
    return HA_ERR_CRASHED;
  }
  ref_length = m_plan->ref_length();
  key_used_on_scan = table->s->primary_key;
  lock_shared_ha_data();
  m_share = static_cast<Myriad_share *>(get_ha_share_ptr());
  if (!m_share) {
    m_share = new Myriad_share;
    set_ha_share_ptr(m_share);
  }
  unlock_shared_ha_data();
  if (table->s->table_type == TABLE_TYPE_SEQUENCE) {
    m_own_session.reset(new Session);
    if ((error = m_own_session->start(nullptr))) {
      close();
      return error;
    }
  }
  if ((error = add_missing_counter())) {
    close();
    return error;
  }
  info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
  return 0;
}

/* Whether the catalog's indexes are those that the plan numbers. */
bool ha_myriad::has_planned_indexes() const {
  const std::vector<myriad_index_spec> specs = m_plan->specs();
  return myriad_table_has_indexes(m_table, specs.data(), uint32_t(specs.size()));
}

/* Tells the core the indexes' names, which it does not keep: at each opening, since they change without it (those of
   partitions). */
void ha_myriad::name_indexes() {
  std::vector<const char *> names;
  for (const IndexPlan &index : m_plan->indexes())
    names.push_back(index.server_no == UINT32_MAX ? "GEN_CLUST_INDEX" : table->key_info[index.server_no].name.str);
  myriad_table_name_indexes(m_table, names.data(), uint32_t(names.size()));
}

int ha_myriad::close() {
  close_cursor();
  abandon_copy();
  m_own_session.reset();
  m_template.valid = false;
  m_references.reset();
  m_references_version = 0;
  m_plan.reset();
  if (m_table) myriad_table_close(m_table);
  m_table = nullptr;
  return 0;
}

handler *ha_myriad::clone(const char *name, MEM_ROOT *mem_root) {
  /* The server gives a partitioned table's name, but this may be one of its partitions. */
  const std::string own = myriad_is_temporary_path(name) ? name : "./" + m_name;
  auto *copy = static_cast<ha_myriad *>(handler::clone(own.c_str(), mem_root));
  if (!copy) return nullptr;
  copy->m_lock = m_lock;
  copy->m_stored_lock = m_stored_lock;
  copy->m_skip_locked = m_skip_locked;
  copy->m_session = m_session;
  copy->m_user_thd = m_user_thd;
  return copy;
}

int ha_myriad::reset() {
  close_cursor();
  if (m_changed_rows) share_changed_rows();
  m_template.valid = false;
  m_ds_mrr.dsmrr_close();
  m_positions.end();
  m_ignore_duplicates = m_replace_duplicates = false;
  m_try_semi_consistent = m_keyread_asked = false;
  m_unique_hit = m_exact = m_from_entry = false;
  m_by_handler = false;
  m_locked_row.clear();
  constexpr size_t keep = 1 << 20;
  if (m_blobs.capacity() > keep) m_blobs.release();
  if (m_row.capacity() > keep) m_row.release();
  if (m_keys.capacity() > keep) m_keys.release();
  return 0;
}

int ha_myriad::extra(enum ha_extra_function operation) {
  switch (operation) {
  case HA_EXTRA_KEYREAD:
  case HA_EXTRA_NO_KEYREAD:
    m_template.valid = false;
    m_keyread_asked = operation == HA_EXTRA_KEYREAD;
    break;
  case HA_EXTRA_IGNORE_DUP_KEY: m_ignore_duplicates = true; break;
  case HA_EXTRA_WRITE_CAN_REPLACE:
  case HA_EXTRA_INSERT_WITH_UPDATE: m_replace_duplicates = true; break;
  case HA_EXTRA_NO_IGNORE_DUP_KEY: m_ignore_duplicates = m_replace_duplicates = false; break;
  case HA_EXTRA_WRITE_CANNOT_REPLACE: m_replace_duplicates = false; break;
  case HA_EXTRA_BEGIN_COPY: begin_copy(false); break;
  case HA_EXTRA_BEGIN_ALTER_IGNORE_COPY: begin_copy(true); break;
  case HA_EXTRA_END_COPY: return end_copy();
  case HA_EXTRA_ABORT_COPY: abandon_copy(); break;
  default: break;
  }
  return 0;
}

void ha_myriad::column_bitmaps_signal() { m_template.valid = false; }

void ha_myriad::start_bulk_insert(ha_rows, uint) {}

int ha_myriad::end_bulk_insert() { return 0; }

/* ---- cursors ------------------------------------------------------------------------------------------------------
 */

void ha_myriad::close_cursor() {
  if (m_cursor) myriad_cursor_close(m_cursor);
  m_cursor = nullptr;
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
  return 0;
}

/* Rows with a tail of which no value was wanted, one after the other, after which tails are left alone. */
static constexpr unsigned TAILS_IN_VAIN_MAX = 4;

/* How much of rows' tails is read with them. Nothing if no column that the statement reads can be there, or none was
   there in the last rows; where others come behind those, a page. deliver_tailed() reads more of rows that need it:
   twice, so within one snapshot alone. */
size_t ha_myriad::tail_bytes() {
  if (m_lock != MYRIAD_LOCK_NONE) return SIZE_MAX;
  make_template();
  if (!m_template.tails) return 0;
  if (m_session->isolation < MYRIAD_REPEATABLE_READ) return SIZE_MAX;
  if (m_tails_in_vain == TAILS_IN_VAIN_MAX) return 0;
  return m_template.more_tails ? 1 : SIZE_MAX;
}

/* How much of a row without overflow pages is copied. Where a value that the statement reads may be in its tail,
   deliver_tailed() reads the rest, see tail_bytes(). */
size_t ha_myriad::value_bytes() {
  if (m_lock != MYRIAD_LOCK_NONE) return SIZE_MAX;
  make_template();
  return m_template.tails && m_session->isolation < MYRIAD_REPEATABLE_READ ? SIZE_MAX : m_template.bytes;
}

void ha_myriad::note_tail(bool wanted) {
  const unsigned before = m_tails_in_vain;
  m_tails_in_vain = wanted ? 0 : std::min(before + 1, TAILS_IN_VAIN_MAX);
  if ((before == TAILS_IN_VAIN_MAX) != (m_tails_in_vain == TAILS_IN_VAIN_MAX)) set_cursor_options();
}

inline void ha_myriad::make_template() {
  if (!m_template.valid)
    m_plan->make_template(table, reading_needs_all(), &m_template, entries_may_differ() ? m_index : nullptr);
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
  return options;
}

void ha_myriad::set_cursor_options() {
  if (!m_cursor) return;
  const myriad_cursor_options options = cursor_options();
  myriad_cursor_set_options(m_cursor, &options);
}

/* Before it moves: rows that it has copied already may lack columns that the statement reads now. */
inline void ha_myriad::prepare_cursor() {
  if (!m_template.valid) set_cursor_options();
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
inline int ha_myriad::deliver_clustered(uchar *record, const myriad_row &row) {
  m_from_entry = false;
  make_template();
  return m_template.tails && myriad::has_tail(row) ? deliver_tailed(record, row) : unpack(record, row);
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
int ha_myriad::deliver_tailed(uchar *record, const myriad_row &row) {
  size_t wanted = 0;
  const bool lacks = m_plan->lacks_tail(m_template, row, &wanted);
  note_tail(wanted != 0);
  if (!lacks) return unpack(record, row);
  myriad_row whole = row;
  Buffer key;
  key.assign(row.key, row.key_len);
  for (size_t tail : {wanted, SIZE_MAX}) {
    myriad_status status = myriad_get_head(core(), m_table, key.data(), key.size(), tail, &whole);
    if (status == MYRIAD_END) return HA_ERR_RECORD_DELETED;
    if (status != MYRIAD_OK) return fail(status);
    if (!m_plan->lacks_tail(m_template, whole, &wanted)) break;
  }
  return unpack(record, whole);
}

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
  if (condition) {
    switch (check_entry(row, handler_index_cond_check)) {
    case CHECK_POS: break;
    case CHECK_NEG:
      *skip = m_passed_over = true;
      unlock_row();
      return 0;
    case CHECK_OUT_OF_RANGE: return HA_ERR_END_OF_FILE;
    case CHECK_ABORTED_BY_USER: return HA_ERR_ABORTED_BY_USER;
    default: return HA_ERR_INTERNAL_ERROR;
    }
  }
  if (filter) {
    switch (check_entry(row, handler_rowid_filter_check)) {
    case CHECK_POS: break;
    case CHECK_NEG:
      *skip = m_passed_over = true;
      unlock_row();
      return 0;
    case CHECK_ABORTED_BY_USER: return HA_ERR_ABORTED_BY_USER;
    default: return HA_ERR_END_OF_FILE;
    }
  }
  if (covering && m_lock != MYRIAD_LOCK_X) return 0;
  const bool may_differ = entries_may_differ();
  if (may_differ) m_entry.assign(row.key, row.key_len);
  const uint64_t pages_read = myriad_thread_pages_read();
  if (m_from_disk && !asked) read_rows_ahead(m_pk.data(), m_pk.size());
  myriad_row whole;
  const size_t tail = tail_bytes();
  myriad_status status = tail < SIZE_MAX ? myriad_get_head(core(), m_table, m_pk.data(), m_pk.size(), tail, &whole)
                                         : myriad_get(core(), m_table, 0, m_pk.data(), m_pk.size(), false, m_lock,
                                                      wait_mode(), &whole, nullptr);
  if (!asked) m_from_disk = pages_read != myriad_thread_pages_read();
  if (status == MYRIAD_END) {
    *skip = true; /* gone, or locked by another under SKIP LOCKED */
    return 0;
  }
  if (status != MYRIAD_OK) return fail(status);
  if (covering) return 0;
  int error = deliver_clustered(record, whole);
  *skip = !error && may_differ && !has_entry(record, m_entry);
  return error;
}

/* Delivers the row that a cursor found, or the next one in the direction that this statement wants. */
inline int ha_myriad::deliver(uchar *record, myriad_status status, myriad_row *row, bool forward) {
  for (;;) {
    m_locked_row.clear();
    if (status == MYRIAD_END) return HA_ERR_END_OF_FILE;
    if (status != MYRIAD_OK) return fail(status);
    if (m_plan->hidden_row_id() || m_by_handler) remember(*row);
    if (m_cursor_index == 0) return deliver_clustered(record, *row);
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
  if (tail < SIZE_MAX) return myriad_get_head(core(), m_table, key, key_length, tail, row);
  myriad_status status =
      myriad_get(core(), m_table, core_index, key, key_length, core_index != 0, m_lock, wait_mode(), row, &new_lock);
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
  if (m_index->core_no == 0) return deliver_clustered(record, row);
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
  return deliver_clustered(record, row);
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
  m_try_semi_consistent = yes && m_session && m_session->isolation <= MYRIAD_READ_COMMITTED;
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

/* ---- pushed conditions, multi-range reads -------------------------------------------------------------------------
 */

/* Its columns are whole in the index or the clustered key, as the server pushes nothing on prefixes. */
Item *ha_myriad::idx_cond_push(uint keyno, Item *condition) {
  if (keyno == table_share->primary_key) return condition;
  pushed_idx_cond = condition;
  pushed_idx_cond_keyno = keyno;
  in_range_check_pushed_down = !m_plan->index(keyno).has_blob_or_prefix;
  return nullptr;
}

bool ha_myriad::rowid_filter_push(Rowid_filter *filter) {
  pushed_rowid_filter = filter;
  return false;
}

/* Of partitioned tables ranges are read one after the other: the server's rowid-ordered reads lose rows there, or end
   with HA_ERR_KEY_NOT_FOUND, whatever the engine. */
int ha_myriad::multi_range_read_init(RANGE_SEQ_IF *seq, void *seq_init_param, uint n_ranges, uint mode,
                                     HANDLER_BUFFER *buf) {
  if (table->part_info) mode |= HA_MRR_USE_DEFAULT_IMPL;
  m_simple_ranges = (mode & HA_MRR_USE_DEFAULT_IMPL) && !seq->skip_index_tuple;
  int error = m_ds_mrr.dsmrr_init(this, seq, seq_init_param, n_ranges, mode, buf);
  if (error) return error;
  if (m_simple_ranges)
    begin_ranges();
  else if (inited == RND)
    note_positions(*buf, mode);
  return 0;
}

/* Where the server keeps the positions of a multi-range read: behind a position and two keys, if it has sorted keys. */
void ha_myriad::note_positions(const HANDLER_BUFFER &buffer, uint mode) {
  const size_t other = mode & HA_MRR_NO_ASSOCIATION ? 0 : sizeof(range_id_t);
  m_rows_wanted = 0;
  m_positions.begin(buffer.buffer + ref_length + 2 * table->s->max_key_length, buffer.buffer_end, ref_length,
                    ref_length + other);
}

int ha_myriad::multi_range_read_next(range_id_t *range_info) {
  if (!m_simple_ranges) return m_ds_mrr.dsmrr_next(range_info);
  /* What the server's simple reader does, without its two calls a row. */
  int error = handler::multi_range_read_next(range_info);
  if (error && error != HA_ERR_END_OF_FILE && error != HA_ERR_KEY_NOT_FOUND) print_error(error, MYF(0));
  return error;
}

/* The server takes a row that is found through an entry to cost as much as six of a scan. In memory it costs eleven; so
   wide ranges cost more here, of as many rows as InnoDB gives double the estimate. */
ha_rows ha_myriad::multi_range_read_info_const(uint keyno, RANGE_SEQ_IF *seq, void *seq_init_param, uint n_ranges,
                                               uint *bufsz, uint *flags, Cost_estimate *cost) {
  constexpr ha_rows narrow_range_rows = 1000;
  ha_rows rows;
  if (table->part_info) {
    rows = handler::multi_range_read_info_const(keyno, seq, seq_init_param, n_ranges, bufsz, flags, cost);
  } else {
    m_ds_mrr.init(this, table);
    rows = m_ds_mrr.dsmrr_info_const(keyno, seq, seq_init_param, n_ranges, bufsz, flags, cost);
  }
  const bool row_by_row = (*flags & HA_MRR_USE_DEFAULT_IMPL) && !(*flags & HA_MRR_INDEX_ONLY);
  if (rows != HA_POS_ERROR && rows > narrow_range_rows && row_by_row && keyno != table->s->primary_key)
    cost->cpu_cost += double(rows - narrow_range_rows);
  return rows;
}

ha_rows ha_myriad::multi_range_read_info(uint keyno, uint n_ranges, uint keys, uint key_parts, uint *bufsz, uint *flags,
                                         Cost_estimate *cost) {
  if (table->part_info) return handler::multi_range_read_info(keyno, n_ranges, keys, key_parts, bufsz, flags, cost);
  m_ds_mrr.init(this, table);
  return m_ds_mrr.dsmrr_info(keyno, n_ranges, keys, key_parts, bufsz, flags, cost);
}

int ha_myriad::multi_range_read_explain_info(uint mrr_mode, char *str, size_t size) {
  return m_ds_mrr.dsmrr_explain_info(mrr_mode, str, size);
}
