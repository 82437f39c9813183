/* DROP TABLE of tables that foreign keys of others refer to, see drop_table.h. */
#include "drop_table.h"
#include "discovery.h"
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

/* The last name of a long list is cut: "a.ta..." */
bool is_one_of(const std::set<std::string> &names, const std::string &name) {
  constexpr const char *DOTS = "...";
  if (names.count(name)) return true;
  const size_t dots = name.rfind(DOTS);
  if (dots == std::string::npos || dots + strlen(DOTS) != name.size()) return false;
  const auto first = names.lower_bound(name.substr(0, dots));
  return first != names.end() && !first->compare(0, dots, name, 0, dots);
}

/* What is left of "a.t,a.u,b.t" without the names in `out`. */
std::string without(const std::string &list, const std::set<std::string> &out) {
  std::string left;
  for (size_t from = 0; from <= list.size();) {
    const size_t end = std::min(list.find(',', from), list.size());
    const std::string name = list.substr(from, end - from);
    if (!is_one_of(out, name)) left += (left.empty() ? "" : ",") + name;
    from = end + 1;
  }
  return left;
}

/* Takes `kept` out of what the server says of unknown tables. */
void correct_unknown(THD *thd, const std::set<std::string> &kept) {
  struct Condition {
    Sql_condition::enum_warning_level level;
    uint error;
    std::string state, text;
  };
  const std::string format = ER_THD(thd, ER_BAD_TABLE_ERROR);
  const size_t begin = format.find('%'), conversion = format.find_first_of("sT", begin); /* %-.100T */
  if (begin == std::string::npos || conversion == std::string::npos) return;
  const std::string head = format.substr(0, begin), tail = format.substr(conversion + 1);
  Diagnostics_area *area = thd->get_stmt_da();
  std::vector<Condition> conditions;
  bool corrected = false;
  Diagnostics_area::Sql_condition_iterator all = area->sql_conditions();
  while (const Sql_condition *condition = all++) {
    std::string text = condition->get_message_text();
    if (condition->get_sql_errno() == ER_BAD_TABLE_ERROR && text.size() >= head.size() + tail.size()) {
      const std::string list = text.substr(head.size(), text.size() - head.size() - tail.size());
      const std::string left = without(list, kept);
      corrected |= left != list;
      if (left.empty()) continue;
      text = head + left + tail;
    }
    conditions.push_back({condition->get_level(), condition->get_sql_errno(), condition->get_sqlstate(), text});
  }
  if (!corrected) return;
  area->clear_warning_info(area->warning_info_id());
  for (const Condition &condition : conditions)
    area->push_warning(thd, condition.error, condition.state.c_str(), condition.level, condition.text.c_str());
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
    if (exists && !myriad_is_there(name)) return false;
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
  const myriad::SqlName own = myriad::sql_name(name);
  m_kept.insert(own.db + "." + own.table);
  if (m_all_ours && (thd->variables.option_bits & OPTION_BIN_LOG)) {
    thd->variables.option_bits &= ~OPTION_BIN_LOG;
    m_binlog_off = true;
  }
  if (!my_access(("./" + name + TRIGGERS).c_str(), F_OK) && put_aside(name)) m_aside.push_back(name);
}

void RefusedDrop::statement_ends(THD *thd) {
  if (m_binlog_off) thd->variables.option_bits |= OPTION_BIN_LOG;
  m_binlog_off = false;
  if (!m_kept.empty()) correct_unknown(thd, m_kept);
  m_kept.clear();
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
