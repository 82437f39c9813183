/* CHECK TABLE. */
#include "ha_myriad.h"
#include "owned.h"
#include "session.h"
#include <algorithm>
#include <memory>

using myriad::Buffer;
using myriad::Deleter;
using myriad::IndexPlan;
using myriad::KeyPart;
using myriad::TablePlan;

namespace {

struct Findings {
  THD *thd;
  uint count;
};

void report_finding(void *arg, const char *text, size_t length) {
  auto *findings = static_cast<Findings *>(arg);
  findings->count++;
  push_warning_printf(findings->thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "MYRIAD: %.*s", int(length), text);
}

/* Whether rows can be read as the table's columns, and the indexes have an entry for each: those of virtual columns
   with the values that the server computes now, the others only if asked for. The engine has counted the entries, so
   that none is too many where each row has its own. */
class RowEntries {
public:
  RowEntries(THD *thd, TABLE *table, myriad_table *opened, const TablePlan &plan, bool extended)
      : m_thd(thd), m_table(table), m_opened(opened), m_plan(plan), m_extended(extended) {
    for (const IndexPlan &index : plan.indexes()) add(index);
  }

  myriad_status check(Findings *findings) {
    if (m_indexes.empty() && !m_extended) return MYRIAD_OK;
    m_plan.make_template(m_table, true, &m_all);
    /* A snapshot of its own: at some isolation levels the user's transaction has none, or one older than an index. */
    myriad_session *session = nullptr;
    myriad_status status = myriad_session_new(myriad_core, nullptr, m_thd->thread_id, &session);
    m_session.reset(session);
    if (status == MYRIAD_OK) status = read_rows();
    if (status == MYRIAD_OK) report(findings);
    return status;
  }

private:
  static constexpr ulonglong LOOK_EVERY = 1024;
  struct Checked {
    const IndexPlan *index;
    bool computed;
    ulonglong missing;
  };

  void add(const IndexPlan &index) {
    bool computed = false;
    for (const KeyPart &part : index.parts) {
      Field *column = m_table->field[part.field_index];
      if (column->stored_in_db()) continue;
      computed = true;
      if (std::find(m_columns.begin(), m_columns.end(), column) == m_columns.end()) m_columns.push_back(column);
    }
    if (computed || (m_extended && index.core_no)) m_indexes.push_back({&index, computed, 0});
  }

  myriad_status read_rows() {
    const myriad_cursor_options options{MYRIAD_LOCK_NONE, MYRIAD_WAIT, false, false, true, SIZE_MAX, SIZE_MAX};
    myriad_cursor *opened = nullptr;
    myriad_status status = myriad_cursor_open(m_session.get(), m_opened, 0, &options, &opened);
    const std::unique_ptr<myriad_cursor, Deleter> cursor(opened);
    myriad_row row;
    if (status == MYRIAD_OK) status = myriad_cursor_seek(opened, MYRIAD_SEEK_FIRST, nullptr, 0, &row);
    while (status == MYRIAD_OK) {
      if (++m_rows % LOOK_EVERY == 0 && thd_kill_level(m_thd) != THD_IS_NOT_KILLED) return MYRIAD_ERR_INTERRUPTED;
      if (!m_plan.unpack_row(m_all, row, m_table->record[0], &m_blobs))
        m_unreadable++;
      else if (compute())
        status = look_up(row);
      if (status == MYRIAD_OK) status = myriad_cursor_next(opened, &row);
    }
    return status == MYRIAD_END ? MYRIAD_OK : status;
  }

  /* False: an expression that fails says nothing about the row's entries. */
  bool compute() {
    for (Field *column : m_columns) m_table->update_virtual_field(column, true);
    if (!m_thd->is_error()) return true;
    m_thd->clear_error();
    return false;
  }

  myriad_status look_up(const myriad_row &row) {
    for (Checked &checked : m_indexes) {
      const IndexPlan &index = *checked.index;
      m_key.clear();
      m_plan.pack_entry_key(index, m_table->record[0], row.key, row.key_len, &m_key);
      myriad_row entry;
      const myriad_status status = myriad_get(m_session.get(), m_opened, index.core_no, m_key.data(), m_key.size(),
                                              false, MYRIAD_LOCK_NONE, MYRIAD_WAIT, &entry, nullptr);
      if (status == MYRIAD_END)
        checked.missing++;
      else if (status != MYRIAD_OK)
        return status;
    }
    return MYRIAD_OK;
  }

  void report(Findings *findings) {
    char text[NAME_LEN + 200];
    if (m_unreadable) {
      const int length = snprintf(text, sizeof text, "%llu of %llu rows are not such as the table's columns make",
                                  m_unreadable, m_rows);
      report_finding(findings, text, size_t(length));
    }
    for (const Checked &checked : m_indexes) {
      if (!checked.missing) continue;
      const char *values = checked.computed ? "the values that the index's virtual columns have now" : "their values";
      const int length =
          snprintf(text, sizeof text, "index %s: %llu of %llu rows have no entry with %s",
                   m_table->key_info[checked.index->server_no].name.str, checked.missing, m_rows, values);
      report_finding(findings, text, size_t(length));
    }
  }

  THD *m_thd;
  TABLE *m_table;
  myriad_table *m_opened;
  const TablePlan &m_plan;
  const bool m_extended;
  myriad::Template m_all;
  std::vector<Field *> m_columns;
  std::vector<Checked> m_indexes;
  std::unique_ptr<myriad_session, Deleter> m_session;
  Buffer m_blobs, m_key;
  ulonglong m_rows = 0, m_unreadable = 0;
};

}  // namespace

int ha_myriad::check(THD *thd, HA_CHECK_OPT *options) try {
  if (int error = ensure_session()) return error == HA_ERR_OUT_OF_MEM ? HA_ADMIN_INTERNAL_ERROR : HA_ADMIN_FAILED;
  const bool quick = options->flags & T_QUICK;
  Findings findings{thd, 0};
  myriad_status status = myriad_check_table(core(), m_table, quick, report_finding, &findings);
  if (status == MYRIAD_OK && !findings.count && !quick)
    status = RowEntries(thd, table, m_table, *m_plan, options->flags & T_EXTEND).check(&findings);
  if (status == MYRIAD_ERR_INTERRUPTED) return HA_ADMIN_FAILED;
  if (status != MYRIAD_OK) {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "MYRIAD: %s", myriad_last_error());
    return HA_ADMIN_CORRUPT;
  }
  return findings.count ? HA_ADMIN_CORRUPT : HA_ADMIN_OK;
} catch (const std::bad_alloc &) {
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, ER_OUT_OF_RESOURCES, "MYRIAD: out of memory for a row");
  return HA_ADMIN_FAILED;
}
