/* Filling of a table that nobody else sees yet: ALTER TABLE that copies, CREATE TABLE ... SELECT. Its rows need neither
   undo nor locks, can go in many at a time if they come in key order, and else wait until all are there, as the entries
   of its secondary indexes do, to go in by their order. */
#include "ha_myriad.h"
#include "online_build.h"
#include "references.h"
#include "variables.h"

namespace {

/* Whether a row's foreign key may ask the copy itself for its parent. */
bool refers_to(const myriad::References *references, const std::string &name) {
  if (!references) return false;
  for (const auto &link : references->parents())
    if (link.key.parent == name) return true;
  return false;
}

}  // namespace

/* CREATE TABLE ... IGNORE SELECT goes on without a row that has no parent, and has to undo it: a row of a copy cannot
   be undone. */
bool ha_myriad::may_leave_out_orphans() {
  THD *thd = ha_thd();
  if (!thd || thd_sql_command(thd) != SQLCOM_CREATE_TABLE || !thd->lex->ignore) return false;
  return load_references() || (m_references && m_references->has_parents());
}

/* Whether rows and entries may wait: nothing looks for them before all rows are there, and a duplicate ends the
 * statement. */
bool ha_myriad::may_sort_copy() {
  const TABLE_SHARE *share = table->s;
  /* A sequence's one row is committed by itself. */
  if (m_ignore_duplicates || m_replace_duplicates || m_own_session) return false;
  /* The server looks for duplicates of such keys itself. */
  if (share->long_unique_table || share->period.unique_keys) return false;
  /* The server looks for the largest value of a group in the copy itself. */
  if (share->next_number_keypart) return false;
  /* Each partition would have buffers of its own. */
  if (table->part_info) return false;
  return !load_references() && !refers_to(m_references.get(), m_name);
}

void ha_myriad::begin_copy(bool leaves_out) {
  abandon_copy();
  m_copying = true;
  m_bulk_copy = !may_leave_out_orphans();
  m_copy_leaves_out = leaves_out;
}

/* With the first row: the server has not told all before. */
int ha_myriad::start_copy() {
  const bool sorted = !m_copy_leaves_out && may_sort_copy();
  return fail(myriad_copy_begin(m_table, sorted ? mysql_tmpdir : nullptr, myriad_sort_buffer_of(ha_thd()), &m_copy));
}

/* The server says so behind each INSERT ... SELECT too, and does not always announce the filling of a new table. */
int ha_myriad::end_copy() {
  if (!m_copying && thd_sql_command(ha_thd()) != SQLCOM_CREATE_TABLE) return 0;
  int error = 0;
  if (m_copy) {
    uint32_t index_no = 0;
    const uint8_t *duplicate = nullptr;
    size_t duplicate_length = 0;
    const myriad_status status = myriad_copy_finish(m_copy, core(), &index_no, &duplicate, &duplicate_length);
    if (status == MYRIAD_ERR_DUPLICATE_KEY) {
      /* The server tells of it from the record. */
      const myriad::IndexPlan &index = m_plan->indexes()[index_no];
      myriad::Buffer key;
      key.assign(duplicate, duplicate_length);
      const bool found = myriad::read_duplicate(core(), m_table, table, index, *m_plan, key, &m_blobs);
      m_session->duplicate_key = found ? index.server_no : MAX_KEY;
      error = HA_ERR_FOUND_DUPP_KEY;
    } else if (status != MYRIAD_OK) {
      error = fail(status);
    }
  }
  abandon_copy();
  /* To the server the copy of an ALTER is a temporary table too. */
  if (error || myriad_is_temporary(m_name)) return error;
  /* The server renames the copy next, and a start does it from the server's own log: the rows have to be there then. */
  return myriad_error_noted(myriad_flush_log(myriad_core), ha_thd());
}

void ha_myriad::abandon_copy() {
  if (m_copy) myriad_copy_free(m_copy);
  m_copy = nullptr;
  m_copying = m_bulk_copy = false;
}
