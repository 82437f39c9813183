/* DROP TABLE of tables that foreign keys of others refer to, see drop_table.h. */
#include "drop_table.h"
#include "foreign_keys.h"
#include "session.h"
#include "sql_lex.h"
#include <algorithm>

namespace {

constexpr const char *TRIGGERS = ".TRG";
/* Where they are meanwhile: a folder a database, so that names are never longer than in the database's own folder. */
const std::string ASIDE = "./#myriad/triggers/";

/* Another connection may be removing the folder, once it is empty. */
bool put_aside(const std::string &table) {
  constexpr unsigned ATTEMPTS = 100;
  const std::string from = "./" + table + TRIGGERS, to = ASIDE + table + TRIGGERS;
  my_mkdir(ASIDE.c_str(), 0777, MYF(0));
  for (unsigned i = 0; i < ATTEMPTS; i++) {
    my_mkdir(to.substr(0, to.rfind(FN_LIBCHAR)).c_str(), 0777, MYF(0));
    if (!my_rename(from.c_str(), to.c_str(), MYF(0))) return true;
    if (my_errno != ENOENT) break;
  }
  sql_print_error("MYRIAD: cannot keep the triggers of table %s: error %d from the file system", table.c_str(),
                  my_errno);
  return false;
}

void put_back(const std::string &table) {
  const std::string from = ASIDE + table + TRIGGERS;
  my_rename(from.c_str(), ("./" + table + TRIGGERS).c_str(), MYF(MY_WME | ME_ERROR_LOG));
  rmdir(from.substr(0, from.rfind(FN_LIBCHAR)).c_str());
}

/* The tables that a statement is to drop, but for temporary ones, which take no lock. `first`: of ours. */
std::vector<std::string> dropped_tables(THD *thd, const std::string &first) {
  if (thd_sql_command(thd) == SQLCOM_CREATE_TABLE) return {first};
  std::vector<std::string> names;
  for (TABLE_LIST *table = thd->lex->query_tables; table; table = table->next_global)
    if (table->db.str && table->table_name.str && (thd->locked_tables_mode || table->mdl_request.ticket))
      names.push_back(myriad::core_name(std::string(table->db.str, table->db.length),
                                        std::string(table->table_name.str, table->table_name.length)));
  return names;
}

/* As for a lock, until no prepared transaction without a connection has changed one of the tables: the binary log must
   not have its end behind the DROP. What is not known of damaged undo pages is not waited for. */
myriad_status wait_for_prepared(THD *thd, const std::vector<std::string> &names) {
  constexpr ulong PAUSE_MICROSECONDS = 20000;
  const ulonglong end = microsecond_interval_timer() + myriad_lock_wait_ms(thd) * 1000;
  for (const std::string &name : names) {
    bool changed = false;
    while (myriad_is_changed_by_prepared(myriad_core, name.c_str(), &changed) == MYRIAD_OK && changed) {
      if (thd_kill_level(thd) != THD_IS_NOT_KILLED) return MYRIAD_ERR_INTERRUPTED;
      if (microsecond_interval_timer() >= end) return MYRIAD_ERR_LOCK_WAIT_TIMEOUT;
      my_sleep(PAUSE_MICROSECONDS);
    }
  }
  return MYRIAD_OK;
}

}  // namespace

void RefusedDrop::begin(THD *thd) {
  if (m_query == thd->query_id) return;
  m_query = thd->query_id;
  m_looked_for = false;
  m_missing.clear();
  m_made.clear();
}

void RefusedDrop::is_made(THD *thd, const std::string &name) {
  begin(thd);
  m_made = name;
}

bool RefusedDrop::has_made(THD *thd, const std::string &name) const {
  return m_query == thd->query_id && m_made == name;
}

void RefusedDrop::is_missing(THD *thd, const std::string &name) {
  begin(thd);
  m_missing.insert(name);
}

/* Of the tables before the first of ours the server has asked for those that do not exist, and dropped the others. */
bool RefusedDrop::are_all_ours(const std::vector<std::string> &names, const std::string &first) const {
  bool before = true;
  for (const std::string &name : names) {
    before &= name != first;
    const bool exists = before ? !m_missing.count(name) : !my_access(("./" + name + reg_ext).c_str(), F_OK);
    if (exists && !myriad_table_exists(myriad_core, name.c_str())) return false;
  }
  return true;
}

void RefusedDrop::look(THD *thd, const std::string &first) {
  begin(thd);
  if (m_looked_for) return;
  m_looked_for = true;
  m_looked = MYRIAD_OK;
  m_refused = m_referenced = false;
  const std::vector<std::string> names = dropped_tables(thd, first);
  m_all_ours = are_all_ours(names, first);
  for (size_t i = 0; i < names.size() && myriad::checks_foreign_keys(thd); i++) {
    myriad::ForeignKeys keys;
    const myriad_status status = myriad::references_to(names[i], &keys);
    if (status != MYRIAD_OK) m_looked = status;
    for (const myriad::ForeignKey &key : keys) {
      const auto end = names.begin() + long(i) + 1;
      m_referenced |= key.child != names[i];
      m_refused |= std::find(names.begin(), end, key.child) == end;
    }
  }
  if (m_looked == MYRIAD_OK && !m_refused) m_looked = wait_for_prepared(thd, names);
}

myriad_status RefusedDrop::refuses(THD *thd, const std::string &name, bool *out) {
  look(thd, name);
  *out = m_refused;
  if (m_looked != MYRIAD_OK || m_refused || !m_referenced) return m_looked;
  return myriad::is_referenced_by_others(name, false, out);
}

void RefusedDrop::keep(THD *thd, const std::string &name) {
  trans_register_ha(thd, false, myriad_hton, 0);
  if (m_all_ours && (thd->variables.option_bits & OPTION_BIN_LOG)) {
    thd->variables.option_bits &= ~OPTION_BIN_LOG;
    m_binlog_off = true;
  }
  if (!my_access(("./" + name + TRIGGERS).c_str(), F_OK) && put_aside(name)) m_aside.push_back(name);
}

void RefusedDrop::statement_ends(THD *thd) {
  if (m_binlog_off) thd->variables.option_bits |= OPTION_BIN_LOG;
  m_binlog_off = false;
  for (const std::string &name : m_aside) put_back(name);
  m_aside.clear();
}

void myriad_put_back_triggers() {
  for (const std::string &db : myriad_files_in(ASIDE))
    for (const std::string &file : myriad_files_in(ASIDE + db)) {
      std::string stem;
      if (!myriad_strip_ending(file, TRIGGERS, &stem)) continue;
      const std::string table = db + "/" + stem;
      sql_print_information("MYRIAD: putting back the triggers of table %s, which a crash left aside", table.c_str());
      put_back(table);
    }
}
