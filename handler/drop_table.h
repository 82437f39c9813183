/* A DROP TABLE that is refused, because of foreign keys or of prepared transactions. The server finds no .frm file, so
   it takes a table that the engine refuses to drop for a missing one: it would remove the table's triggers, name it in
   the binary log and call it unknown in the warnings. */
#ifndef MYRIAD_DROP_TABLE_H
#define MYRIAD_DROP_TABLE_H
#include "server.h"
#include <set>
#include <string>
#include <vector>

/* What one connection keeps of it until the statement ends. */
class RefusedDrop {
public:
  /* The statement has made a table: if it fails, the table goes whatever refers to its name. */
  void is_made(THD *thd, const std::string &name);
  bool has_made(THD *thd, const std::string &name) const;
  /* The server asks for a table that does not exist. */
  void is_missing(THD *thd, const std::string &name);
  /* Whether the running DROP TABLE (or CREATE OR REPLACE) is refused as a whole, because for one of its tables there is
     a child that it does not drop before, or of this table, because a child of it could not be dropped. An error if
     prepared transactions have changed a table and do not end. */
  myriad_status refuses(THD *thd, const std::string &name, bool *out);
  /* Saves a refused table's triggers from the server, and the binary log from a statement that drops nothing. Its name
     is taken out of the warnings when the statement ends. */
  void keep(THD *thd, const std::string &name);
  void statement_ends(THD *thd);

private:
  void begin(THD *thd);
  void look(THD *thd, const std::string &first);
  bool are_all_ours(const std::vector<std::string> &names, const std::string &first) const;

  query_id_t m_query = 0; /* what the rest is about */
  bool m_looked_for = false;
  std::set<std::string> m_missing;
  std::string m_made;
  myriad_status m_looked = MYRIAD_OK;
  bool m_refused = false, m_referenced = false, m_all_ours = false, m_binlog_off = false;
  std::set<std::string> m_kept;     /* refused tables, as the server names them */
  std::vector<std::string> m_aside; /* tables whose triggers are elsewhere for now */
};

/* At start: what a crash during a refused DROP TABLE left. Looks into a folder that is empty otherwise. */
void myriad_put_back_triggers();

#endif
