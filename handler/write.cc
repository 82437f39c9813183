/* INSERT, UPDATE, DELETE: each row's operations on all indexes as one call of the core. */
#include "ha_myriad.h"
#include "work.h"
#include "sql_trigger.h"

using myriad::Buffer;
using myriad::IndexPlan;
using myriad::WorkFor;

namespace {

void put_row_id(uint64_t id, uchar *to) {
  for (int i = 0; i < 8; i++) to[i] = uchar(id >> (8 * (7 - i)));
}

bool same_columns(const IndexPlan &index, const uchar *a, const uchar *b) {
  for (const myriad::KeyPart &part : index.parts)
    if (!same_column(part, a, b)) return false;
  return true;
}

/* Whether the value of a row that is a duplicate counts: REPLACE stores it in the end, INSERT ... SELECT is as with
   InnoDB. */
bool duplicate_counts(THD *thd, bool replacing) {
  switch (thd_sql_command(thd)) {
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE:
  case SQLCOM_REPLACE_SELECT: return true;
  case SQLCOM_LOAD: return replacing;
  default: return false;
  }
}

/* Also where a row that an UPDATE moves to another partition is written. */
bool is_set_by_trigger(const TABLE *table) {
  return table->triggers && (table->triggers->has_triggers(TRG_EVENT_INSERT, TRG_ACTION_BEFORE) ||
                             table->triggers->has_triggers(TRG_EVENT_UPDATE, TRG_ACTION_BEFORE));
}

using Hashes = std::vector<std::pair<bool, longlong>>;

/* record[0]'s, of the UNIQUE keys whose duplicates the server looks for by a hash. */
Hashes long_unique_hashes(const TABLE *table) {
  Hashes hashes;
  for (Field **column = table->vfield; *column; column++)
    if ((*column)->flags & LONG_UNIQUE_HASH_FIELD) hashes.emplace_back((*column)->is_null(), (*column)->val_int());
  return hashes;
}

}  // namespace

/* Runs m_pending. The pieces lie in m_keys as offsets, because it may move while it is filled. */
int ha_myriad::apply() {
  m_ops.clear();
  for (const PendingOp &pending : m_pending) {
    myriad_op op;
    op.kind = pending.kind;
    op.index_no = pending.index_no;
    op.key = m_keys.data() + pending.key;
    op.key_len = pending.key_length;
    op.unique_len = pending.unique_length;
    op.value = pending.row ? m_row.data() : m_keys.data() + pending.value;
    op.value_len = pending.row ? m_row.size() : pending.value_length;
    op.head_len = pending.row ? m_row_head : 0;
    m_ops.push_back(op);
  }
  if (m_bulk_copy && !m_copy)
    if (int error = start_copy()) return error;
  uint32_t failed = 0;
  const uint32_t flags = m_replace_duplicates ? MYRIAD_APPLY_DUPLICATE_X : 0;
  const myriad_status status =
      m_copy ? myriad_copy_apply(m_copy, core(), m_ops.data(), uint32_t(m_ops.size()), &failed)
             : myriad_apply(core(), m_table, m_ops.data(), uint32_t(m_ops.size()), flags, &failed, nullptr, nullptr);
  if (status == MYRIAD_OK) return 0;
  if (status == MYRIAD_ERR_DUPLICATE_KEY && failed < m_ops.size())
    m_session->duplicate_key = m_plan->indexes()[m_ops[failed].index_no].server_no;
  return fail(status);
}

/* Sequences change outside the statement's transaction: each change is committed at once. */
int ha_myriad::begin_autonomous() {
  THD *thd = ha_thd();
  if (!m_session) use_session(thd);
  if (!m_own_session) return ensure_session();
  if (!m_own_session->statement_active) {
    myriad_session_reset_kill(core());
    myriad_statement_begin(core(), MYRIAD_READ_COMMITTED, true, myriad_lock_wait_ms(thd));
    m_own_session->statement_active = true;
  }
  return 0;
}

int ha_myriad::end_autonomous(int error) {
  if (!m_own_session) return error;
  close_cursor();
  m_own_session->statement_active = false;
  if (error && error != HA_ERR_RECORD_IS_THE_SAME) {
    myriad_rollback(core());
    return error;
  }
  int failed = fail(myriad_commit(core()));
  return failed ? failed : error;
}

/* Appends the clustered key of the row that is being changed. */
int ha_myriad::current_clustered_key(const uchar *record, Buffer *out) const {
  if (m_plan->hidden_row_id()) {
    if (m_pk.size() != 8) return HA_ERR_KEY_NOT_FOUND;
    out->append(m_pk.data(), 8);
  } else {
    m_plan->pack_clustered_key(record, out);
  }
  return 0;
}

void ha_myriad::add_entry_insert(const IndexPlan &index, const uchar *record, size_t pk, size_t pk_length) {
  size_t key = m_keys.size();
  m_keys.room(pk_length);
  m_plan->pack_columns(index, record, &m_keys);
  size_t columns = m_keys.size() - key;
  m_keys.room(pk_length);
  m_keys.append(m_keys.data() + pk, pk_length);
  size_t key_length = m_keys.size() - key, value = m_keys.size();
  m_plan->pack_entry_value(index, record, columns, &m_keys);
  size_t unique = index.unique && !m_plan->any_null(index, record) ? columns : 0;
  add_op({MYRIAD_OP_INSERT, index.core_no, key, key_length, unique, value, m_keys.size() - value, false});
}

void ha_myriad::add_entry_delete(const IndexPlan &index, const uchar *record, size_t pk, size_t pk_length) {
  size_t key = m_keys.size();
  m_plan->pack_columns(index, record, &m_keys);
  m_keys.room(pk_length);
  m_keys.append(m_keys.data() + pk, pk_length);
  add_op({MYRIAD_OP_DELETE, index.core_no, key, m_keys.size() - key, 0, 0, 0, false});
}

/* Assignments at once (sql_mode SIMULTANEOUS_ASSIGNMENT, which ORACLE has) make the server point a column that has its
   new value at the old row, for what reads the column after. Where ON DUPLICATE KEY UPDATE assigns to it a second time,
   as UPDATE may not, that goes into the old row: its entries would not be found, or stay. True: the old row is what was
   read again, without its virtual columns. */
bool ha_myriad::restore_found() {
  if (!m_keep_found || !m_found.size()) return false;
  memcpy(table->record[1], m_found.data(), m_found.size());
  return true;
}

/* Virtual columns that the server has not computed as an index needs them. While it changes a row of a table with
   system versioning it does so more often than a BLOB has memory for, so that one row's lie where another's are now.
   And of a row event it does not at all: there they are as the source's row has them, which may have no such column, or
   another. Of a row whose columns a trigger sets it does so before that, in LOAD DATA without SET, INSERT without
   values and UPDATE of several tables. Each row's are computed again: those of record[0] come to be in the columns'
   `value`, those of a row that was read, `old_record`, in `read_value`, as the server expects. */
void ha_myriad::compute_virtual_columns(const uchar *old_record) {
  const bool restored = old_record && restore_found();
  if (!table->vfield) return;
  THD *thd = table->in_use;
  const bool all = thd->rgi_slave || thd->rgi_fake || is_set_by_trigger(table);
  const uint kinds = all ? ~0U : table->versioned() ? uint(BLOB_FLAG) : 0;
  if (!kinds && !restored) return;
  bool any = restored;
  for (Field **column = table->vfield; *column; column++)
    any |= !(*column)->stored_in_db() && (*column)->flags & kinds &&
           (*column)->flags & (PART_KEY_FLAG | PART_INDIRECT_KEY_FLAG);
  if (!any) return;
  const Check_level_instant_set no_warnings(thd, CHECK_FIELD_IGNORE);
  table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  if (old_record) {
    table->move_fields(table->field, old_record, table->record[0]);
    table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
    table->move_fields(table->field, table->record[0], old_record);
    return;
  }
  for (Field **column = table->vfield; *column; column++)
    if (!(*column)->stored_in_db() && (*column)->flags & BLOB_FLAG &&
        bitmap_is_set(table->read_set, (*column)->field_index))
      static_cast<Field_blob *>(*column)->swap_value_and_read_value();
}

/* Makes what is to be written of a new row. */
int ha_myriad::pack_insert(const uchar *record) try {
  m_pending.clear();
  m_keys.clear();
  size_t pk_length;
  if (m_plan->hidden_row_id()) {
    uchar id[8];
    put_row_id(myriad_next_row_id(m_table), id);
    m_keys.append(id, 8);
    pk_length = 8;
    m_pk.assign(id, 8);
  } else {
    m_plan->pack_clustered_key(record, &m_keys);
    pk_length = m_keys.size();
  }
  m_row_head = m_plan->pack_row(record, whole_row_max(), &m_row);
  add_op({MYRIAD_OP_INSERT, 0, 0, pk_length, m_plan->hidden_row_id() ? 0 : pk_length, 0, 0, true});
  for (size_t no = 1; no < m_plan->indexes().size(); no++)
    add_entry_insert(m_plan->indexes()[no], record, 0, pk_length);
  return 0;
} catch (const std::bad_alloc &) {
  return HA_ERR_OUT_OF_MEM;
}

/* For a row to be written. Duplicates of values that a trigger has set after the server looked for them, it has not
   found. */
int ha_myriad::compute_for_write(const uchar *old_record) try {
  const bool looks = table->s->long_unique_table && is_set_by_trigger(table);
  const Hashes looked_for = looks ? long_unique_hashes(table) : Hashes();
  compute_virtual_columns(old_record);
  if (!looks || looked_for == long_unique_hashes(table)) return 0;
  my_error(
      ER_NOT_SUPPORTED_YET, MYF(0),
      "a BEFORE trigger that sets a column of a long UNIQUE key, in LOAD DATA without SET, INSERT without values or "
      "UPDATE of several tables, in the MYRIAD storage engine");
  return HA_ERR_UNSUPPORTED;
} catch (const std::bad_alloc &) {
  return HA_ERR_OUT_OF_MEM;
}

int ha_myriad::write_row(const uchar *record) {
  WorkFor work(handler_stats);
  if (record == table->record[0])
    if (int error = compute_for_write(nullptr)) return error;
  m_from_entry = false; /* the server may ask for the position of the row written */
  if (int error = begin_autonomous()) return error;
  if (table->next_number_field && record == table->record[0]) {
    int error = update_auto_increment();
    if (error) return error;
  }
  if (int error = pack_insert(record)) return end_autonomous(error);
  int error = end_autonomous(enforces(nullptr, record) ? insert_checked(record) : apply());
  if (m_auto_increment_rows) m_auto_increment_rows--;
  bool counts = !error || (error == HA_ERR_FOUND_DUPP_KEY && duplicate_counts(ha_thd(), m_replace_duplicates));
  if (counts) note_explicit_auto_increment(record, true);
  return error;
}

/* What becomes of a secondary entry: nothing, a new value, or another key. */
void ha_myriad::add_entry_update(const IndexPlan &index, const uchar *old_record, const uchar *new_record,
                                 size_t old_pk, size_t old_pk_length, size_t new_pk, size_t new_pk_length,
                                 bool pk_changed) {
  /* A clustered key can stay equal while its columns' bytes change ('a' to 'A'); the entry keeps copies of those. */
  if (!pk_changed && same_columns(index, old_record, new_record) &&
      (index.originals.empty() || same_columns(m_plan->clustered(), old_record, new_record)))
    return;
  size_t pending = m_pending.size();
  add_entry_delete(index, old_record, old_pk, old_pk_length);
  add_entry_insert(index, new_record, new_pk, new_pk_length);
  PendingOp &removed = m_pending[pending];
  PendingOp &added = m_pending[pending + 1];
  if (removed.key_length != added.key_length ||
      memcmp(m_keys.data() + removed.key, m_keys.data() + added.key, removed.key_length))
    return;
  /* The same key: only the kept originals may differ. */
  PendingOp update = added;
  update.kind = MYRIAD_OP_UPDATE;
  update.unique_length = 0;
  m_pending.resize(pending);
  if (!index.originals.empty()) m_pending.push_back(update);
}

int ha_myriad::update_row(const uchar *old_record, const uchar *new_record) {
  WorkFor work(handler_stats);
  if (old_record == table->record[1])
    if (int error = compute_for_write(old_record)) return error;
  m_from_entry = false; /* as in write_row */
  int error = begin_autonomous();
  if (error) return error;
  error = end_autonomous(enforces(old_record, new_record) ? update_checked(old_record, new_record)
                                                          : change(old_record, new_record));
  if (!error) note_explicit_auto_increment(new_record, false);
  return error;
}

int ha_myriad::change(const uchar *old_record, const uchar *new_record) try {
  m_pending.clear();
  m_keys.clear();
  if (int error = current_clustered_key(old_record, &m_keys)) return error;
  const size_t old_pk = 0, old_length = m_keys.size();
  size_t new_pk = old_pk, new_length = old_length;
  bool pk_changed = false;
  if (!m_plan->hidden_row_id() && !same_columns(m_plan->clustered(), old_record, new_record)) {
    new_pk = m_keys.size();
    m_plan->pack_clustered_key(new_record, &m_keys);
    new_length = m_keys.size() - new_pk;
    pk_changed = new_length != old_length || memcmp(m_keys.data() + new_pk, m_keys.data() + old_pk, new_length);
  }
  if (!pk_changed && m_plan->same_row(old_record, new_record)) return HA_ERR_RECORD_IS_THE_SAME;
  m_row_head = m_plan->pack_row(new_record, whole_row_max(), &m_row);
  if (pk_changed) {
    add_op({MYRIAD_OP_DELETE, 0, old_pk, old_length, 0, 0, 0, false});
    add_op({MYRIAD_OP_INSERT, 0, new_pk, new_length, new_length, 0, 0, true});
  } else {
    add_op({MYRIAD_OP_UPDATE, 0, old_pk, old_length, 0, 0, 0, true});
  }
  for (size_t no = 1; no < m_plan->indexes().size(); no++)
    add_entry_update(m_plan->indexes()[no], old_record, new_record, old_pk, old_length, new_pk, new_length, pk_changed);
  const int error = apply();
  if (!error && m_pending.size() > 1) m_changed_rows++;
  return error;
} catch (const std::bad_alloc &) {
  return HA_ERR_OUT_OF_MEM;
}

int ha_myriad::delete_row(const uchar *record) {
  WorkFor work(handler_stats);
  /* Of a row that an UPDATE moves to another partition. */
  if (record == table->record[1]) compute_virtual_columns(record);
  if (int error = begin_autonomous()) return error;
  return end_autonomous(enforces(record, nullptr) ? delete_checked(record) : remove(record));
}

int ha_myriad::remove(const uchar *record) try {
  m_pending.clear();
  m_keys.clear();
  if (int error = current_clustered_key(record, &m_keys)) return error;
  const size_t pk = 0, pk_length = m_keys.size();
  add_op({MYRIAD_OP_DELETE, 0, pk, pk_length, 0, 0, 0, false});
  for (size_t no = 1; no < m_plan->indexes().size(); no++)
    add_entry_delete(m_plan->indexes()[no], record, pk, pk_length);
  const int error = apply();
  if (!error) m_changed_rows++;
  return error;
} catch (const std::bad_alloc &) {
  return HA_ERR_OUT_OF_MEM;
}
