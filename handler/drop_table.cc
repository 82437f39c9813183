/* DROP TABLE of tables that foreign keys of others refer to, see drop_table.h. */
#include "drop_table.h"
#include "foreign_keys.h"
#include "session.h"
#include "sql_lex.h"
#include <algorithm>

namespace {

constexpr const char *TRIGGERS = ".TRG", *ASIDE = ".TRG-kept";

/* The tables that a DROP TABLE names; false if one of them is not ours and goes whatever we say. */
bool named_tables(THD *thd, std::vector<std::string> *names) {
  bool all_ours = true;
  for (TABLE_LIST *table = thd->lex->query_tables; table; table = table->next_global) {
    if (!table->db.str || !table->table_name.str) continue;
    names->push_back(myriad::core_name(std::string(table->db.str, table->db.length),
                                       std::string(table->table_name.str, table->table_name.length)));
    const std::string frm = "./" + names->back() + reg_ext;
    all_ours = all_ours && (myriad_table_exists(myriad_core, names->back().c_str()) || my_access(frm.c_str(), F_OK));
  }
  return all_ours;
}

bool is_refused(const std::vector<std::string> &names) {
  for (size_t i = 0; i < names.size(); i++)
    for (const myriad::ForeignKey &key : myriad::references_to(names[i]))
      if (std::find(names.begin(), names.begin() + long(i) + 1, key.child) == names.begin() + long(i) + 1) return true;
  return false;
}

}  // namespace

bool RefusedDrop::refuses(THD *thd) {
  if (m_query != thd->query_id) {
    m_query = thd->query_id;
    std::vector<std::string> names;
    m_all_ours = named_tables(thd, &names);
    m_refused = is_refused(names);
  }
  return m_refused;
}

void RefusedDrop::keep(THD *thd, const std::string &name) {
  trans_register_ha(thd, false, myriad_hton, 0);
  if (m_all_ours && (thd->variables.option_bits & OPTION_BIN_LOG)) {
    thd->variables.option_bits &= ~OPTION_BIN_LOG;
    m_binlog_off = true;
  }
  const std::string path = "./" + name;
  if (!my_access((path + TRIGGERS).c_str(), F_OK) &&
      !my_rename((path + TRIGGERS).c_str(), (path + ASIDE).c_str(), MYF(MY_WME)))
    m_aside.push_back(path);
}

void RefusedDrop::statement_ends(THD *thd) {
  if (m_binlog_off) thd->variables.option_bits |= OPTION_BIN_LOG;
  m_binlog_off = false;
  for (const std::string &path : m_aside) my_rename((path + ASIDE).c_str(), (path + TRIGGERS).c_str(), MYF(MY_WME));
  m_aside.clear();
}
