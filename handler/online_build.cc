#include "online_build.h"
#include "stages.h"
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

OnlineBuild::OnlineBuild(THD *thd, myriad_table *table, TABLE *altered, const TablePlan &plan, bool apart)
    : m_thd(thd), m_table(table), m_altered(altered), m_plan(plan), m_apart(apart) {
  read_into(altered);
}

void OnlineBuild::read_into(TABLE *table) {
  m_read_into = table;
  m_all = {};
  m_plan.make_template(table, true, &m_all);
}

OnlineBuild::~OnlineBuild() = default;

void OnlineBuild::need_columns(const IndexPlan &index) {
  if (index.server_no == UINT32_MAX) return;
  const KEY &key = m_altered->key_info[index.server_no];
  for (uint i = 0; i < key.user_defined_key_parts; i++) {
    Field *column = m_altered->field[key.key_part[i].fieldnr - 1];
    if (!column->stored_in_db()) m_virtual.push_back(column);
  }
}

int OnlineBuild::failed(myriad_status status) { return myriad_error_noted(status, m_thd); }

bool OnlineBuild::is_killed() { return ++m_rows_seen % LOOK_EVERY == 0 && thd_kill_level(m_thd) != THD_IS_NOT_KILLED; }

myriad_status OnlineBuild::open_session(SessionPointer *session) {
  myriad_session *opened = nullptr;
  /* It waits for nobody, so nobody needs to know whose it is; in lists it is under the connection's number. */
  const myriad_status status = myriad_session_new(myriad_core, nullptr, m_thd->thread_id, &opened);
  session->reset(opened);
  return status;
}

int OnlineBuild::begin(myriad_session *builder) {
  myriad_row_changes *changes = nullptr;
  myriad_status status = open_session(&m_before);
  if (status == MYRIAD_OK)
    status = myriad_row_changes_begin(m_before.get(), m_table, mysql_tmpdir, myriad_sort_buffer_of(m_thd), &changes);
  m_changes.reset(changes);
  if (status == MYRIAD_OK) status = start(builder);
  return status == MYRIAD_OK ? 0 : failed(status);
}

bool OnlineBuild::compute_virtual_columns() {
  for (Field *column : m_virtual)
    if (m_altered->update_virtual_field(column, false)) return false;
  return true;
}

int OnlineBuild::read_row(const myriad_row &row) {
  if (!m_plan.unpack_row(m_all, row, m_read_into->record[0], &m_blobs)) return HA_ERR_CRASHED;
  if (int error = convert()) return error;
  return compute_virtual_columns() ? 0 : HA_ERR_GENERIC;
}

/* One pass over the rows for all that is built. */
int OnlineBuild::read_rows(ulonglong rows) try {
  Stage stage(m_thd, Part::ReadRows);
  myriad_cursor *opened = nullptr;
  const myriad_cursor_options options{MYRIAD_LOCK_NONE, MYRIAD_WAIT, false, false, true, SIZE_MAX, SIZE_MAX};
  myriad_status status = myriad_cursor_open(m_before.get(), m_table, 0, &options, &opened);
  const std::unique_ptr<myriad_cursor, Deleter> cursor(opened);
  myriad_row row;
  if (status == MYRIAD_OK) status = myriad_cursor_seek(opened, MYRIAD_SEEK_FIRST, nullptr, 0, &row);
  while (status == MYRIAD_OK) {
    if (int error = add(row)) return error;
    if (is_killed()) return HA_ERR_ABORTED_BY_USER;
    if (m_rows_seen % LOOK_EVERY == 0) stage.report(m_rows_seen, std::max(rows, m_rows_seen));
    status = myriad_cursor_next(opened, &row);
  }
  return status == MYRIAD_END ? 0 : failed(status);
} catch (const std::bad_alloc &) {
  return HA_ERR_OUT_OF_MEM;
}

int OnlineBuild::build(ulonglong rows) {
  if (const int error = read_rows(rows)) return error;
  Stage stage(m_thd, Part::WriteRows);
  return write_rows();
}

int OnlineBuild::repeat(uint64_t *rows) {
  SessionPointer now;
  myriad_status status = open_session(&now);
  const myriad_row_change_fn visit = [](void *build, const myriad_row *old_row, const myriad_row *new_row) {
    auto *self = static_cast<OnlineBuild *>(build);
    if (self->is_killed()) self->m_error = HA_ERR_ABORTED_BY_USER;
    try {
      return self->m_error ? MYRIAD_ERR_INTERRUPTED : self->changed(old_row, new_row);
    } catch (const std::bad_alloc &) {
      self->m_error = HA_ERR_OUT_OF_MEM;
      return MYRIAD_ERR_INTERRUPTED;
    }
  };
  if (status == MYRIAD_OK)
    status = myriad_row_changes_visit(m_changes.get(), m_before.get(), now.get(), m_apart, visit, this, rows);
  if (status != MYRIAD_OK) return m_error ? m_error : failed(status);
  m_before = std::move(now);
  return write_changes();
}

int OnlineBuild::catch_up() {
  Stage stage(m_thd, Part::RepeatChanges);
  uint64_t last = 0, rows = 0;
  /* Each time takes a part of the time before, unless the writers are faster. */
  do {
    last = rows;
    if (int error = repeat(&rows)) return error;
  } while (rows > FEW_ROWS && (!last || rows < last / 2));
  return 0;
}

int OnlineBuild::finish() {
  uint64_t rows;
  const int error = repeat(&rows);
  m_changes.reset();
  return error;
}

bool OnlineBuild::read_duplicate(myriad_session *session, myriad_table *table, const TablePlan &plan) {
  return myriad::read_duplicate(session, table, m_altered, *m_duplicate_index, plan, m_duplicate, &m_blobs) &&
         compute_virtual_columns();
}

bool read_duplicate(myriad_session *session, myriad_table *table, TABLE *into, const IndexPlan &index,
                    const TablePlan &plan, const Buffer &key, Buffer *blobs) try {
  const uchar *at = key.data(), *end = at + key.size();
  for (const auto &part : index.parts)
    if (at && index.core_no) at = skip_part(part, at, end); /* a clustered key is the row's own */
  if (!at) return false;
  myriad_row row;
  Template all;
  Buffer pk;
  pk.assign(at, size_t(end - at));
  plan.make_template(into, true, &all);
  return myriad_get(session, table, 0, pk.data(), pk.size(), false, MYRIAD_LOCK_NONE, MYRIAD_WAIT, &row, nullptr) ==
             MYRIAD_OK &&
         plan.unpack_row(all, row, into->record[0], blobs);
} catch (const std::bad_alloc &) {
  return false;
}

}  // namespace myriad
