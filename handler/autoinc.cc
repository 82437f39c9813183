/* AUTO_INCREMENT: the core keeps one persistent counter for each table; a column that is not the first of its key
   counts within the groups of the columns before it, by looking up the largest value. */
#include "ha_myriad.h"

void ha_myriad::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                   ulonglong *reserved) {
  if (table->s->next_number_keypart) {
    handler::get_auto_increment(offset, increment, wanted, first, reserved);
    return;
  }
  if (ensure_session()) {
    *first = ULONGLONG_MAX;
    return;
  }
  /* What is left of the first estimate, so that a statement that mixes given and generated values reserves no more.
     FOR PORTION OF inserts rows that nobody has estimated. */
  const int statement = thd_sql_command(ha_thd());
  if (!wanted || statement == SQLCOM_UPDATE || statement == SQLCOM_DELETE) wanted = 1;
  if (!m_auto_increment_rows) m_auto_increment_rows = wanted;
  wanted = m_auto_increment_rows;
  if (!increment) increment = 1;
  uint64_t value = 0, count = wanted;
  /* An offset above the increment is ignored: any value may come first, and the server rounds it as it likes. */
  if (offset > increment || !offset) {
    count = increment * wanted;
    offset = increment = 1;
  }
  myriad_status status = myriad_auto_increment_reserve(core(), m_table, offset, increment, count,
                                                       table->next_number_field->get_max_int_value(), &value);
  if (status != MYRIAD_OK) {
    fail(status);
    *first = ULONGLONG_MAX;
    *reserved = 0;
    return;
  }
  *first = value;
  *reserved = wanted;
}

/* A table has the rows of a partition that it was exchanged for, where its definition alone has an AUTO_INCREMENT
   column. Nobody uses it yet but who opens it too: its values go on above those of the rows, also of prepared
   transactions. */
int ha_myriad::add_missing_counter() {
  if (!table->found_next_number_field || myriad_table_has_auto_increment(m_table)) return 0;
  const std::vector<uchar> record(table->record[0], table->record[0] + table->s->reclength);
  m_own_session.reset(new Session);
  int error = m_own_session->start(nullptr);
  if (!error) {
    m_own_session->isolation = MYRIAD_READ_UNCOMMITTED;
    m_own_session->statement_active = true;
    myriad_statement_begin(m_own_session->core(), MYRIAD_READ_UNCOMMITTED, true, myriad_lock_wait_ms(ha_thd()));
    error = find_auto_increment_floor();
    myriad_rollback(m_own_session->core());
  }
  m_session = nullptr;
  m_own_session.reset();
  memcpy(table->record[0], record.data(), record.size());
  return error ? error : myriad_error_noted(myriad_auto_increment_add(m_table, m_auto_increment_floor), ha_thd());
}

/* Whether a replica that repeats the statement may get other values than we did. Not if it makes none, or if all are
   reserved at once: then the first one, which the binary log has, tells them all. A statement that does not say how
   many rows it inserts reserves as it goes, and others come between. The rows of VALUES are counted also where the
   server begins no bulk insert, because triggers, functions or foreign keys open further tables. */
bool ha_myriad::autoinc_lock_mode_stmt_unsafe() const {
  const TABLE_LIST *use = table->pos_in_table_list;
  if (use && use->prelocking_placeholder != TABLE_LIST::PRELOCK_NONE)
    return use->trg_event_map & trg2bit(TRG_EVENT_INSERT);
  switch (thd_sql_command(ha_thd())) {
  case SQLCOM_INSERT:
  case SQLCOM_REPLACE:
  case SQLCOM_UPDATE:
  case SQLCOM_UPDATE_MULTI:
  case SQLCOM_DELETE:
  case SQLCOM_DELETE_MULTI:
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
  case SQLCOM_TRUNCATE: return false;
  default: return true;
  }
}

/* A value given by the statement, or by SET INSERT_ID as a statement-based replica does, moves the counter behind it.
 */
void ha_myriad::note_explicit_auto_increment(const uchar *record, bool inserting) {
  Field *field = inserting ? table->next_number_field : table->found_next_number_field;
  if (!field || record != table->record[0] || table->s->next_number_keypart) return;
  /* Ours, already counted; but not one that the binary log or SET INSERT_ID told. */
  if (inserting && insert_id_for_cur_row && !ha_thd()->auto_inc_intervals_forced.nb_elements()) return;
  longlong value = field->val_int();
  bool is_unsigned = field->flags & UNSIGNED_FLAG;
  if (value == 0 || (!is_unsigned && value < 0)) return;
  ulonglong given = ulonglong(value);
  if (given > field->get_max_int_value()) return; /* a number that is not exact any more */
  ulonglong next = given == ULONGLONG_MAX ? given : given + 1;
  myriad_auto_increment_at_least(core(), m_table, next);
}

int ha_myriad::reset_auto_increment(ulonglong value) {
  return myriad_error_noted(myriad_auto_increment_set(m_table, value ? value : 1), ha_thd());
}

void ha_myriad::update_create_info(HA_CREATE_INFO *create_info) {
  if (create_info->used_fields & HA_CREATE_USED_AUTO) return;
  info(HA_STATUS_AUTO);
  create_info->auto_increment_value = stats.auto_increment_value;
}
