#include "index_builds.h"
#include "session.h"
#include "variables.h"
#include <algorithm>

namespace myriad {

namespace {

/* Rows between two looks at whether the statement was killed. */
constexpr ulonglong LOOK_EVERY = 4096;
/* So few changed rows are left to the end, when nobody can write. */
constexpr uint64_t FEW_ROWS = 1000;

}  // namespace

IndexBuilds::IndexBuilds(THD *thd, myriad_table *table, TABLE *altered, const TablePlan &plan,
                         const std::vector<uint32_t> &added)
    : m_thd(thd), m_table(table), m_altered(altered), m_plan(plan), m_old(added.size()), m_new(added.size()) {
  for (uint32_t no : added) {
    m_indexes.push_back(&plan.indexes()[no]);
    const KEY &key = altered->key_info[m_indexes.back()->server_no];
    for (uint i = 0; i < key.user_defined_key_parts; i++) {
      Field *column = altered->field[key.key_part[i].fieldnr - 1];
      if (!column->stored_in_db()) m_virtual.push_back(column);
    }
  }
  plan.make_template(altered, true, &m_all);
}

IndexBuilds::~IndexBuilds() {
  for (auto *build : m_builds) myriad_index_build_free(build);
}

int IndexBuilds::failed(myriad_status status) { return myriad_error_noted(status, m_thd); }

bool IndexBuilds::is_killed() { return ++m_rows_seen % LOOK_EVERY == 0 && thd_kill_level(m_thd) != THD_IS_NOT_KILLED; }

myriad_status IndexBuilds::open_session(SessionPointer *session) {
  myriad_session *opened = nullptr;
  /* It waits for nobody, so nobody needs to know whose it is; in lists it is under the connection's number. */
  const myriad_status status = myriad_session_new(myriad_core, nullptr, m_thd->thread_id, &opened);
  session->reset(opened);
  return status;
}

int IndexBuilds::begin(myriad_session *builder) {
  const ulonglong memory = myriad_sort_buffer_of(m_thd) / (m_indexes.size() + 1);
  myriad_row_changes *changes = nullptr;
  myriad_status status = open_session(&m_before);
  if (status == MYRIAD_OK) status = myriad_row_changes_begin(m_before.get(), m_table, mysql_tmpdir, memory, &changes);
  m_changes.reset(changes);
  for (size_t no = 0; no < m_indexes.size() && status == MYRIAD_OK; no++) {
    myriad_index_build *build = nullptr;
    status = myriad_index_build_begin(builder, m_table, m_indexes[no]->unique, mysql_tmpdir, memory, &build);
    if (status == MYRIAD_OK) m_builds.push_back(build);
  }
  return status == MYRIAD_OK ? 0 : failed(status);
}

int IndexBuilds::make_entries(const myriad_row &row, std::vector<Entry> *entries) {
  uchar *record = m_altered->record[0];
  if (!m_plan.unpack_row(m_all, row, record, &m_blobs)) return HA_ERR_CRASHED;
  for (Field *column : m_virtual)
    if (m_altered->update_virtual_field(column, false)) return HA_ERR_GENERIC;
  for (size_t no = 0; no < m_indexes.size(); no++) {
    const IndexPlan &index = *m_indexes[no];
    Entry &entry = (*entries)[no];
    entry.key.clear();
    entry.value.clear();
    const size_t columns = m_plan.pack_entry_key(index, record, row.key, row.key_len, &entry.key);
    m_plan.pack_entry_value(index, record, columns, &entry.value);
    entry.unique_length = index.unique && !m_plan.any_null(index, record) ? columns : 0;
  }
  return 0;
}

/* One pass over the rows for all indexes. */
int IndexBuilds::read_rows(ulonglong rows) {
  myriad_cursor *opened = nullptr;
  const myriad_cursor_options options{MYRIAD_LOCK_NONE, MYRIAD_WAIT, false, true, false};
  myriad_status status = myriad_cursor_open(m_before.get(), m_table, 0, &options, &opened);
  const std::unique_ptr<myriad_cursor, Deleter> cursor(opened);
  myriad_row row;
  if (status == MYRIAD_OK) status = myriad_cursor_seek(opened, MYRIAD_SEEK_FIRST, nullptr, 0, &row);
  while (status == MYRIAD_OK) {
    if (int error = make_entries(row, &m_new)) return error;
    for (size_t no = 0; no < m_builds.size() && status == MYRIAD_OK; no++) status = add(no, m_new[no]);
    if (status != MYRIAD_OK) break;
    if (is_killed()) return HA_ERR_ABORTED_BY_USER;
    if (m_rows_seen % LOOK_EVERY == 0) thd_progress_report(m_thd, m_rows_seen, std::max(rows, m_rows_seen));
    status = myriad_cursor_next(opened, &row);
  }
  return status == MYRIAD_END ? 0 : failed(status);
}

myriad_status IndexBuilds::add(size_t no, const Entry &entry) {
  return myriad_index_build_add(m_builds[no], entry.key.data(), entry.key.size(), entry.unique_length,
                                entry.value.data(), entry.value.size());
}

int IndexBuilds::write(myriad_status (*write_one)(myriad_index_build *, const uint8_t **, size_t *)) {
  for (size_t no = 0; no < m_builds.size(); no++) {
    const uint8_t *duplicate = nullptr;
    size_t length = 0;
    const myriad_status status = write_one(m_builds[no], &duplicate, &length);
    if (status == MYRIAD_ERR_DUPLICATE_KEY) {
      m_duplicate_no = no;
      m_duplicate.assign(duplicate, length);
      return HA_ERR_FOUND_DUPP_KEY;
    }
    if (status != MYRIAD_OK) return failed(status);
  }
  return 0;
}

int IndexBuilds::build(ulonglong rows) {
  const int error = read_rows(rows);
  return error ? error : write(myriad_index_build_finish);
}

myriad_status IndexBuilds::changed(void *builds, const myriad_row *before, const myriad_row *now) {
  return static_cast<IndexBuilds *>(builds)->changed(before, now);
}

myriad_status IndexBuilds::changed(const myriad_row *before, const myriad_row *now) {
  m_error = before ? make_entries(*before, &m_old) : 0;
  if (!m_error && now) m_error = make_entries(*now, &m_new);
  if (!m_error && is_killed()) m_error = HA_ERR_ABORTED_BY_USER;
  if (m_error) return MYRIAD_ERR_INTERRUPTED;
  for (size_t no = 0; no < m_builds.size(); no++) {
    const Entry &old_entry = m_old[no], &new_entry = m_new[no];
    if (before && now && old_entry.key == new_entry.key && old_entry.value == new_entry.value) continue;
    myriad_status status = MYRIAD_OK;
    if (before) status = myriad_index_build_remove(m_builds[no], old_entry.key.data(), old_entry.key.size());
    if (now && status == MYRIAD_OK) status = add(no, new_entry);
    if (status != MYRIAD_OK) return status;
  }
  return MYRIAD_OK;
}

int IndexBuilds::repeat(uint64_t *rows) {
  SessionPointer now;
  myriad_status status = open_session(&now);
  if (status == MYRIAD_OK)
    status = myriad_row_changes_visit(m_changes.get(), m_before.get(), now.get(), changed, this, rows);
  if (status != MYRIAD_OK) return m_error ? m_error : failed(status);
  m_before = std::move(now);
  return write(myriad_index_build_catch_up);
}

int IndexBuilds::catch_up() {
  uint64_t last = 0, rows = 0;
  /* Each time takes a part of the time before, unless the writers are faster. */
  do {
    last = rows;
    if (int error = repeat(&rows)) return error;
  } while (rows > FEW_ROWS && (!last || rows < last / 2));
  return 0;
}

int IndexBuilds::finish() {
  uint64_t rows;
  const int error = repeat(&rows);
  m_changes.reset();
  return error;
}

}  // namespace myriad
