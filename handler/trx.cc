/* Transactions: sessions, statements, two-phase commit, savepoints, XA, and the locks that a statement wants. */
#include "ha_myriad.h"
#include "variables.h"
#include "set_var.h"
#include "transaction.h"
#include <vector>

/* The server's services for parallel replication, deadlocks and the binary log; declared nowhere in its headers. */
extern "C" {
int thd_binlog_format(const MYSQL_THD thd);
bool thd_binlog_filter_ok(const MYSQL_THD thd);
bool thd_sqlcom_can_generate_row_events(const MYSQL_THD thd);
int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other);
int thd_need_ordering_with(const MYSQL_THD thd, const MYSQL_THD other);
int thd_deadlock_victim_preference(const MYSQL_THD first, const MYSQL_THD second);
int thd_non_transactional_update(const MYSQL_THD thd);
void *thd_increment_pending_ops(MYSQL_THD thd);
void thd_decrement_pending_ops(void *thd);
}

namespace {

/* Return codes of the XA interface (X/Open CAE specification, xa.h). */
constexpr int XA_OK = 0, XAER_RMERR = -3, XAER_NOTA = -4;

constexpr ulonglong MULTI_STATEMENT = OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN;

bool ends_transaction(THD *thd, bool all) { return all || !thd_test_options(thd, MULTI_STATEMENT); }

/* An XID as the core stores it: format id (8 bytes), the two lengths, the data. */
constexpr size_t XID_BYTES_MAX = 8 + 2 + XIDDATASIZE;

size_t put_xid(const XID &xid, uchar *to) {
  size_t length = size_t(xid.gtrid_length + xid.bqual_length);
  int8store(to, ulonglong(xid.formatID));
  to[8] = uchar(xid.gtrid_length);
  to[9] = uchar(xid.bqual_length);
  memcpy(to + 10, xid.data, length);
  return 10 + length;
}

bool get_xid(const uint8_t *from, size_t length, XID *xid) {
  if (length < 10 || length != size_t(10) + from[8] + from[9] || length > XID_BYTES_MAX) return false;
  xid->null();
  xid->formatID = long(sint8korr(from));
  xid->gtrid_length = from[8];
  xid->bqual_length = from[9];
  memcpy(xid->data, from + 10, length - 10);
  return true;
}

/* A statement that is undone in part must not be committed: the core refuses it, the server is to know. */
void refuse_half(myriad_status status, THD *thd) {
  if (status != MYRIAD_OK) thd->mark_transaction_to_rollback(true);
}

/* The client is answered when nothing is pending any more. */
void *answer_waits(void *thd) { return thd_increment_pending_ops(static_cast<MYSQL_THD>(thd)); }

/* A failure cannot be told any more, but the client must not hear of success: it loses its connection and with that
   knows that it does not know. The log says why. Until nothing is pending the THD, and with it the socket, stays. */
void answer_is_due(void *pending, bool durable) {
  Vio *vio = static_cast<THD *>(pending)->net.vio;
  if (!durable && vio) mysql_socket_shutdown(vio->mysql_socket, SHUT_RDWR);
  thd_decrement_pending_ops(pending);
}

/* A pool of threads works for others until the client can be answered. */
myriad_status commit_alone(THD *thd, myriad_session *session) {
  const bool is_pool = thd->scheduler->thd_wait_begin && !thd->system_thread;
  return is_pool ? myriad_commit_later(session, thd, answer_waits, answer_is_due) : myriad_commit(session);
}

int commit(handlerton *, THD *thd, bool all) {
  Session *session = Session::of(thd, false);
  if (!session) return 0;
  session->refused_drop.statement_ends(thd);
  session->relatives.end_statement();
  if (!ends_transaction(thd, all)) {
    myriad_statement_end(session->core());
    session->statement_active = false;
    return 0;
  }
  session->take_back_prepared();
  myriad_status status = MYRIAD_OK;
  /* The binlog recovers the commit, so its sync covers ours, but for XA COMMIT. The server's own log, which decides on
     transactions of several engines without a binlog, does not: MariaDB 10.11 reads it after a crash, but rolls back
     whatever it finds prepared. */
  const bool waits_for_log = !session->ordered || !opt_bin_log || session->xa;
  bool in_halves = true;
  if (!session->ordered) {
    if (session->prepared) {
      myriad_commit_ordered(session->core());
    } else {
      in_halves = thd->wait_for_commit_ptr != nullptr;
      status = in_halves ? myriad_commit_visible(session->core()) : commit_alone(thd, session->core());
    }
  }
  /* The order is settled: a parallel replica's next transaction may come to share the wait for the log. */
  thd_wakeup_subsequent_commits(thd, status != MYRIAD_OK);
  if (in_halves && status == MYRIAD_OK) status = myriad_commit_finish(session->core(), waits_for_log);
  session->forget_transaction();
  return myriad_told(myriad_error_noted(status, thd), ER_ERROR_DURING_COMMIT);
}

int rollback(handlerton *, THD *thd, bool all) {
  Session *session = Session::of(thd, false);
  if (!session) return 0;
  session->refused_drop.statement_ends(thd);
  session->relatives.end_statement();
  myriad_status status;
  if (ends_transaction(thd, all)) {
    session->take_back_prepared();
    status = myriad_rollback(session->core());
    session->forget_transaction();
    return myriad_told(myriad_error_noted(status, thd), ER_ERROR_DURING_ROLLBACK);
  } else {
    status = myriad_statement_rollback(session->core());
    session->statement_active = false;
    refuse_half(status, thd);
  }
  return myriad_told(myriad_error_noted(status, thd), ER_ERROR_DURING_ROLLBACK);
}

/* In a transaction of several engines the log that decides keeps the order of a parallel replica's commits. A binary
   log that gets nothing of it (log_slave_updates=OFF) does not: later ones committed first, without the rows of earlier
   ones that they were to change. */
bool fails_to_wait_for_prior(THD *thd) {
  return opt_bin_log && !thd_test_options(thd, OPTION_BIN_LOG) && thd->wait_for_prior_commit();
}

int prepare(handlerton *, THD *thd, bool all) {
  Session *session = Session::of(thd, false);
  if (!session) return 0;
  if (!ends_transaction(thd, all)) {
    myriad_statement_end(session->core());
    session->statement_active = false;
    return 0;
  }
  XID xid;
  thd_get_xid(thd, reinterpret_cast<MYSQL_XID *>(&xid));
  uchar bytes[XID_BYTES_MAX];
  myriad_status status = myriad_prepare(session->core(), bytes, put_xid(xid, bytes));
  if (status != MYRIAD_OK) return myriad_told(myriad_error_noted(status, thd), ER_ERROR_DURING_COMMIT);
  session->prepared = true;
  session->xa = thd_sql_command(thd) == SQLCOM_XA_PREPARE;
  if (session->xa) session->leave_prepared(bytes, put_xid(xid, bytes));
  return fails_to_wait_for_prior(thd) ? ER_PRIOR_COMMIT_FAILED : 0;
}

void commit_ordered(handlerton *, THD *thd, bool all) {
  Session *session = Session::of(thd, false);
  if (!session || !ends_transaction(thd, all)) return;
  session->take_back_prepared();
  myriad_commit_ordered(session->core());
  session->ordered = true;
}

void commit_checkpoint_request(void *cookie) {
  if (myriad_flush_log(myriad_core) == MYRIAD_OK) commit_checkpoint_notify_ha(cookie);
}

int savepoint_set(handlerton *, THD *thd, void *place) {
  Session *session = Session::of(thd);
  if (!session) return HA_ERR_OUT_OF_MEM;
  uint64_t savepoint = 0;
  myriad_status status = myriad_savepoint(session->core(), &savepoint);
  memcpy(place, &savepoint, sizeof savepoint);
  return myriad_told(myriad_error_noted(status, thd), ER_GET_ERRNO);
}

int savepoint_rollback(handlerton *, THD *thd, void *place) {
  Session *session = Session::of(thd, false);
  if (!session) return HA_ERR_NO_SAVEPOINT;
  uint64_t savepoint;
  memcpy(&savepoint, place, sizeof savepoint);
  myriad_status status = myriad_rollback_to(session->core(), savepoint);
  refuse_half(status, thd);
  return myriad_told(myriad_error_noted(status, thd), ER_ERROR_DURING_ROLLBACK);
}

int savepoint_release(handlerton *, THD *, void *) { return 0; }

/* Metadata locks taken since the savepoint may go if no row lock of ours stays behind on those tables. */
bool savepoint_rollback_can_release_mdl(handlerton *, THD *thd) {
  Session *session = Session::of(thd, false);
  return !session || (!session->locked_rows && !myriad_has_changes(session->core()));
}

/* Prepared transactions are handed out in batches, as the server asks for them. */
struct Recovering {
  std::vector<XID> xids;
  size_t given = 0;
  bool listed = false;
};
Recovering recovering;

void collect_prepared(void *arg, const uint8_t *bytes, size_t length) {
  XID xid;
  if (get_xid(bytes, length, &xid))
    static_cast<std::vector<XID> *>(arg)->push_back(xid);
  else
    sql_print_error("MYRIAD: a prepared transaction has an id of %zu bytes that cannot be read; it stays prepared",
                    length);
}

int recover(handlerton *, XID *list, uint length) {
  if (!recovering.listed) {
    recovering.xids.clear();
    recovering.given = 0;
    recovering.listed = true;
    myriad_list_prepared(myriad_core, collect_prepared, &recovering.xids);
  }
  uint count = 0;
  while (count < length && recovering.given < recovering.xids.size())
    list[count++] = recovering.xids[recovering.given++];
  if (count < length) recovering.listed = false;
  return int(count);
}

int xa_result(myriad_status status) {
  if (status == MYRIAD_OK) return XA_OK;
  if (status == MYRIAD_ERR_XA_UNKNOWN) return XAER_NOTA;
  sql_print_error("MYRIAD: %s", myriad_last_error());
  return XAER_RMERR;
}

int commit_by_xid(handlerton *, XID *xid) {
  uchar bytes[XID_BYTES_MAX];
  return xa_result(myriad_commit_by_xid(myriad_core, bytes, put_xid(*xid, bytes)));
}

int rollback_by_xid(handlerton *, XID *xid) {
  uchar bytes[XID_BYTES_MAX];
  return xa_result(myriad_rollback_by_xid(myriad_core, bytes, put_xid(*xid, bytes)));
}

int start_consistent_snapshot(handlerton *hton, THD *thd) {
  Session *session = Session::of(thd);
  if (!session) return HA_ERR_OUT_OF_MEM;
  if (myriad_isolation_of(thd) == MYRIAD_READ_UNCOMMITTED)
    push_warning(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_UNSUPPORTED,
                 "MYRIAD: WITH CONSISTENT SNAPSHOT is ignored at READ UNCOMMITTED isolation level.");
  session->forget_left_prepared();
  session->isolation = myriad_isolation_of(thd);
  myriad_session_reset_kill(session->core());
  myriad_statement_begin(session->core(), session->isolation, false, myriad_lock_wait_ms(thd));
  myriad_status status = MYRIAD_OK;
  if (session->isolation != MYRIAD_READ_UNCOMMITTED) status = myriad_open_snapshot(session->core());
  myriad_statement_end(session->core());
  trans_register_ha(thd, true, hton, 0);
  return myriad_told(myriad_error_noted(status, thd), ER_GET_ERRNO);
}

int close_connection(handlerton *hton, THD *thd) {
  Session *session = Session::of(thd, false);
  if (!session) return 0;
  thd_set_ha_data(thd, hton, nullptr);
  delete session;
  return 0;
}

/* Another thread calls this, under the connection's LOCK_thd_data. */
void kill_query(handlerton *hton, THD *thd, enum thd_kill_levels) {
  auto *session = static_cast<Session *>(thd_get_ha_data(thd, hton));
  if (session) myriad_session_kill(session->core());
}

bool flush_logs(handlerton *) {
  if (myriad_flush_log(myriad_core) == MYRIAD_OK) return false;
  sql_print_error("MYRIAD: FLUSH LOGS: %s", myriad_last_error());
  return true;
}

}  // namespace

void myriad_init_transactions(handlerton *hton) {
  hton->savepoint_offset = sizeof(uint64_t);
  hton->close_connection = close_connection;
  hton->kill_query = kill_query;
  hton->savepoint_set = savepoint_set;
  hton->savepoint_rollback = savepoint_rollback;
  hton->savepoint_rollback_can_release_mdl = savepoint_rollback_can_release_mdl;
  hton->savepoint_release = savepoint_release;
  hton->commit = commit;
  hton->commit_ordered = commit_ordered;
  hton->rollback = rollback;
  hton->prepare = prepare;
  hton->recover = recover;
  hton->commit_by_xid = commit_by_xid;
  hton->rollback_by_xid = rollback_by_xid;
  hton->commit_checkpoint_request = commit_checkpoint_request;
  hton->start_consistent_snapshot = start_consistent_snapshot;
  hton->flush_logs = flush_logs;
}

myriad_isolation myriad_isolation_of(THD *thd) {
  switch (thd_tx_isolation(thd)) {
  case ISO_READ_UNCOMMITTED: return MYRIAD_READ_UNCOMMITTED;
  case ISO_READ_COMMITTED: return MYRIAD_READ_COMMITTED;
  case ISO_SERIALIZABLE: return MYRIAD_SERIALIZABLE;
  default: return myriad_snapshot_isolation_of(thd) ? MYRIAD_SNAPSHOT : MYRIAD_REPEATABLE_READ;
  }
}

namespace {

/* Of WAIT n and NOWAIT the server makes SET STATEMENT lock_wait_timeout=n, innodb_lock_wait_timeout=n. */
bool says_how_long_to_wait(THD *thd) {
  static const char *const names[] = {"lock_wait_timeout", "innodb_lock_wait_timeout"};
  const uint seconds = uint(thd->variables.lock_wait_timeout);
  size_t found = 0;
  List_iterator_fast<set_var_base> set(thd->lex->stmt_var_list);
  while (set_var_base *each = set++) {
    if (found == 2 || !each->is_system()) continue;
    const auto *system = static_cast<const set_var *>(each);
    /* The second one's value is a uint: the others of its eight bytes are not set. */
    if (!strcmp(system->var->name.str, names[found]) && uint(system->save_result.ulonglong_value) == seconds) found++;
  }
  return found == 2;
}

}  // namespace

/* Without InnoDB in the server, NOWAIT and WAIT n reach an engine as lock_wait_timeout alone, as does what a user says
   for metadata locks. */
uint64_t myriad_lock_wait_ms(THD *thd) {
  const ulonglong server = thd->variables.lock_wait_timeout;
  const ulonglong seconds =
      says_how_long_to_wait(thd) ? server : std::min<ulonglong>(myriad_lock_wait_timeout_of(thd), server);
  return uint64_t(seconds) * 1000;
}

void myriad_about_to_wait(void *waiter, void *holder) {
  if (waiter && holder) thd_rpl_deadlock_check(static_cast<MYSQL_THD>(waiter), static_cast<MYSQL_THD>(holder));
}

int myriad_need_ordering(void *waiter, void *holder) {
  return thd_need_ordering_with(static_cast<MYSQL_THD>(waiter), static_cast<MYSQL_THD>(holder));
}

int myriad_victim_preference(void *first, void *second) {
  if (!first || !second) return 0;
  const THD *a = static_cast<THD *>(first), *b = static_cast<THD *>(second);
  if (int preference = thd_deadlock_victim_preference(a, b)) return preference;
  /* What was changed in tables without transactions stays after a rollback. */
  return int(thd_non_transactional_update(a) != 0) - int(thd_non_transactional_update(b) != 0);
}

/* A thread pool lets another thread work meanwhile, be it for the one who has the lock; it does not look at the kind of
   the wait. The engine's own threads work for no THD, and nothing happens. */
void myriad_falls_asleep() { thd_wait_begin(nullptr, THD_WAIT_DISKIO); }

void myriad_wakes_up() { thd_wait_end(nullptr); }

namespace {

/* ALTER TABLE, in place or by a copy. */
bool builds_from_rows(int command) {
  return command == SQLCOM_ALTER_TABLE || command == SQLCOM_OPTIMIZE || command == SQLCOM_CREATE_INDEX ||
         command == SQLCOM_DROP_INDEX;
}

}  // namespace

Session *Session::of(THD *thd, bool create) {
  auto *session = static_cast<Session *>(thd_get_ha_data(thd, myriad_hton));
  if (session || !create) return session;
  session = new (std::nothrow) Session;
  if (!session) return nullptr;
  if (session->start(thd)) {
    delete session;
    return nullptr;
  }
  thd_set_ha_data(thd, myriad_hton, session);
  return session;
}

int Session::start(THD *thd) {
  return myriad_error_noted(myriad_session_new(myriad_core, thd, thd ? thd->thread_id : 0, &m_core), thd);
}

void Session::set_user(THD *thd) { myriad_session_set_owner(m_core, thd, thd ? thd->thread_id : 0); }

Session::~Session() {
  if (m_core) myriad_session_free(m_core);
}

void Session::forget_transaction() {
  statement_active = prepared = ordered = locked_rows = xa = false;
  m_prepared_xid.clear();
}

/* The server may forget it without a word to the engine, when a connection is reset, and from then on anybody may end
   it. */
void Session::leave_prepared(const uchar *xid, size_t length) {
  myriad_release_reads(m_core);
  if (!myriad_has_changes(m_core)) return; /* nothing to commit: it goes with the connection */
  m_prepared_xid.assign(reinterpret_cast<const char *>(xid), length);
  myriad_session_detach_prepared(m_core);
}

void Session::take_back_prepared() {
  if (m_prepared_xid.empty()) return;
  myriad_session_attach_prepared(m_core, reinterpret_cast<const uchar *>(m_prepared_xid.data()), m_prepared_xid.size());
  m_prepared_xid.clear();
}

/* A statement that uses the engine: the connection has been reset meanwhile. A transaction that had changed nothing is
   still here, if the server took it for one that had. */
void Session::forget_left_prepared() {
  if (!xa) return;
  myriad_rollback(m_core);
  forget_transaction();
}

int Session::use(THD *thd) {
  /* Of statements that only their stored functions bring to tables the server thinks too late. */
  if (xa && thd->transaction->xid_state.get_state_code() == XA_PREPARED) {
    thd->transaction->xid_state.er_xaer_rmfail();
    return HA_ERR_ABORTED_BY_USER; /* it has nothing to add to this one */
  }
  forget_left_prepared();
  if (!statement_active) {
    isolation = myriad_isolation_of(thd);
    /* What is built from a table's rows must not hold what may be rolled back. */
    if (isolation == MYRIAD_READ_UNCOMMITTED && builds_from_rows(thd_sql_command(thd)))
      isolation = MYRIAD_READ_COMMITTED;
    myriad_session_reset_kill(m_core);
    /* A KILL from before the reset must not be lost. */
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED) myriad_session_kill(m_core);
    myriad_statement_begin(m_core, isolation, !thd_test_options(thd, MULTI_STATEMENT), myriad_lock_wait_ms(thd));
    statement_active = true;
    relatives.begin_statement();
  }
  trans_register_ha(thd, false, myriad_hton, 0);
  if (thd_test_options(thd, MULTI_STATEMENT)) trans_register_ha(thd, true, myriad_hton, 0);
  return 0;
}

/* ---- the handler's part -------------------------------------------------------------------------------------------
 */

bool ha_myriad::use_session(THD *thd) {
  m_user_thd = thd;
  if (m_own_session) {
    m_session = m_own_session.get();
    m_session->set_user(thd);
    return true;
  }
  m_session = Session::of(thd);
  return m_session != nullptr;
}

int ha_myriad::ensure_session() {
  THD *thd = ha_thd();
  if (m_session && m_user_thd == thd && (m_own_session || m_session->statement_active)) return 0;
  close_cursor();
  if (!use_session(thd)) return HA_ERR_OUT_OF_MEM;
  return m_own_session ? 0 : m_session->use(thd);
}

/* Metadata locks protect nobody's changes once his XA transaction is prepared and his connection gone: waits until
   those of this table have ended. */
int ha_myriad::wait_for_prepared() {
  if (m_own_session) return 0;
  if (int error = ensure_session()) return error;
  return fail(myriad_wait_for_prepared(core(), m_table));
}

/* Before the first read of a scan. */
int ha_myriad::wait_before_building() { return builds_from_rows(thd_sql_command(ha_thd())) ? wait_for_prepared() : 0; }

namespace {

/* Statements that copy or inspect a whole table under a metadata lock that keeps writers out, or that never lock rows.
 */
bool reads_without_locks(int command) {
  if (builds_from_rows(command)) return true;
  switch (command) {
  case SQLCOM_CHECKSUM:
  case SQLCOM_CHECK:
  case SQLCOM_ANALYZE:
  case SQLCOM_HA_OPEN:
  case SQLCOM_HA_READ:
  case SQLCOM_FLUSH:
  case SQLCOM_SHOW_CREATE:
  case SQLCOM_SHOW_FIELDS:
  case SQLCOM_SHOW_KEYS: return true;
  default: return false;
  }
}

/* The server reads one of its own tables, in no statement: gtid_slave_pos at its start, before unfinished transactions
   are rolled back. The expressions of IF, CASE, WHILE and DECLARE in a routine are no statements either, but lock what
   they read. */
bool reads_for_itself(const THD *thd, thr_lock_type type) {
  return thd_sql_command(thd) == SQLCOM_END && type == TL_READ && !thd->slave_thread && !thd->spcont;
}

/* At READ COMMITTED and below the read side of these takes no locks. */
bool copies_rows(int command) {
  return command == SQLCOM_INSERT_SELECT || command == SQLCOM_REPLACE_SELECT || command == SQLCOM_UPDATE ||
         command == SQLCOM_CREATE_SEQUENCE || command == SQLCOM_CREATE_TABLE;
}

}  // namespace

THR_LOCK_DATA **ha_myriad::store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type) {
  if (type == TL_IGNORE) return to;
  int command = thd_sql_command(thd);
  m_skip_locked = type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED;
  if (m_own_session) {
    /* The server has one change of a sequence after the other. Locks of reads would be in the way of the statement's
       own next value, which it takes through another TABLE. */
    m_lock = MYRIAD_LOCK_NONE;
  } else if (type >= TL_FIRST_WRITE) {
    m_lock = MYRIAD_LOCK_X;
  } else if (reads_without_locks(command) || reads_for_itself(thd, type)) {
    m_lock = MYRIAD_LOCK_NONE;
  } else if ((thd->in_lock_tables && (type == TL_READ || type == TL_READ_HIGH_PRIORITY)) ||
             type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED || type == TL_READ_NO_INSERT ||
             command != SQLCOM_SELECT) {
    bool low = myriad_isolation_of(thd) <= MYRIAD_READ_COMMITTED;
    bool plain = type == TL_READ || type == TL_READ_NO_INSERT;
    m_lock = low && plain && copies_rows(command) ? MYRIAD_LOCK_NONE : MYRIAD_LOCK_S;
  } else {
    m_lock = MYRIAD_LOCK_NONE;
  }
  m_stored_lock = m_lock;
  return to;
}

/* Each scan of a sequence sees it as it is, whatever its transaction's snapshot. */
void ha_myriad::end_own_reads() {
  if (!m_own_session || m_own_session->statement_active) return;
  close_cursor();
  myriad_rollback(m_own_session->core());
}

/* What a statement does with a sequence has an end of its own, but the statement is one of the connection's
 * transaction.
 */
int ha_myriad::join_transaction(THD *thd) {
  Session *session = Session::of(thd);
  return session ? session->use(thd) : HA_ERR_OUT_OF_MEM;
}

int ha_myriad::external_lock(THD *thd, int lock_type) {
  if (lock_type == F_UNLCK) {
    close_cursor();
    hide_frm(thd);
    m_locked_externally = false;
    m_try_semi_consistent = false;
    m_session = nullptr;
    end_own_reads();
    if (m_own_session) m_own_session->set_user(nullptr);
    return 0;
  }
  /* The server looks into the .frm file for that. */
  if (table->s->table_type == TABLE_TYPE_SEQUENCE && thd_sql_command(thd) == SQLCOM_CREATE_TRIGGER) {
    my_error(ER_TRG_ON_VIEW_OR_TEMP_TABLE, MYF(0), table->alias.c_ptr());
    return HA_ERR_ABORTED_BY_USER; /* it has nothing to add to this one */
  }
  /* The server refuses it, too, but does not say why. Of temporary tables it allows it. */
  if (lock_type == F_WRLCK && !(table_flags() & HA_BINLOG_STMT_CAPABLE) && table->s->tmp_table == NO_TMP_TABLE &&
      thd_binlog_format(thd) == BINLOG_FORMAT_STMT && thd_binlog_filter_ok(thd) &&
      thd_sqlcom_can_generate_row_events(thd)) {
    my_error(
        ER_BINLOG_STMT_MODE_AND_ROW_ENGINE, MYF(0),
        " MYRIAD is limited to row-logging when transaction isolation level is READ COMMITTED or READ UNCOMMITTED.");
    return HA_ERR_LOGGING_IMPOSSIBLE;
  }
  if (!use_session(thd)) return HA_ERR_OUT_OF_MEM;
  m_locked_externally = true;
  m_template.valid = false;
  m_auto_increment_rows = 0;
  if (lock_type == F_WRLCK) {
    if (!m_own_session) m_lock = m_stored_lock = MYRIAD_LOCK_X;
    show_frm_while_locked(thd);
  }
  if (m_own_session) return join_transaction(thd);
  if (lock_type == F_RDLCK && m_lock == MYRIAD_LOCK_NONE && !reads_without_locks(thd_sql_command(thd)) &&
      myriad_isolation_of(thd) == MYRIAD_SERIALIZABLE && thd_test_options(thd, MULTI_STATEMENT))
    m_lock = m_stored_lock = MYRIAD_LOCK_S;
  if (m_lock != MYRIAD_LOCK_NONE) m_session->locked_rows = true;
  if (int error = m_session->use(thd)) return error;
  return lock_type == F_WRLCK ? use_references(thd) : 0;
}

int ha_myriad::start_stmt(THD *thd, thr_lock_type type) {
  if (!use_session(thd)) return HA_ERR_OUT_OF_MEM;
  m_template.valid = false;
  m_auto_increment_rows = 0;
  if (m_own_session) {
    end_own_reads();
    return join_transaction(thd);
  }
  m_skip_locked = type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED;
  if (type >= TL_FIRST_WRITE || !m_locked_externally)
    m_lock = MYRIAD_LOCK_X;
  else if (thd_sql_command(thd) == SQLCOM_SELECT && type == TL_READ)
    m_lock = MYRIAD_LOCK_NONE;
  else
    m_lock = m_stored_lock;
  if (m_lock == MYRIAD_LOCK_NONE && myriad_isolation_of(thd) == MYRIAD_SERIALIZABLE &&
      thd_test_options(thd, MULTI_STATEMENT))
    m_lock = MYRIAD_LOCK_S;
  if (m_lock != MYRIAD_LOCK_NONE) m_session->locked_rows = true;
  if (int error = m_session->use(thd)) return error;
  return m_lock == MYRIAD_LOCK_X ? use_references(thd) : 0;
}
