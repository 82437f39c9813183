/* DROP DATABASE: all of a database's tables in one transaction of the catalog.

   The server drops a database's tables one by one, with an entry and syncs in its log of DDL for each, in time
   quadratic in their number. So it is told of those alone that have files of their own beside the catalog. */
#include "drop_database.h"
#include "session.h"
#include "foreign_keys.h"
#include "system_rows.h"
#include "sql_handler.h"
#include "sql_statistics.h"
#include "table_cache.h"
#include <my_dir.h>
#include <mutex>
#include <set>

namespace {

/* Encoded names of tables with triggers: their files go the server's way, or the folder could not be removed. */
std::set<std::string> with_triggers(const MY_DIR *files) {
  std::set<std::string> names;
  std::string table;
  for (size_t i = 0; files && i < files->number_of_files; i++)
    if (myriad_strip_ending(files->dir_entry[i].name, ".TRG", &table)) names.insert(table);
  return names;
}

/* Whether the folder holds what will not go with the tables, by the server's own rules. */
bool has_strange_files(const MY_DIR *files) {
  std::set<std::string> endings = {".opt", ".BAK", ".frm", ".par", ".TRG", ".TRN"};
  const TYPELIB *engines = ha_known_exts();
  for (uint i = 0; engines && i < engines->count; i++) endings.insert(engines->type_names[i]);
  for (size_t i = 0; i < files->number_of_files; i++) {
    const std::string name = files->dir_entry[i].name;
    const size_t dot = name.rfind('.');
    const bool folder_itself = name == "." || name == "..";
    if (!folder_itself && !(dot != std::string::npos && endings.count(name.substr(dot)))) return true;
  }
  return false;
}

bool is_cached(THD *thd, const char *db, const char *table) {
  TDC_element *element = tdc_lock_share(thd, db, table);
  if (!element) return false;
  if (element != MY_ERRPTR) tdc_unlock_share(element);
  return true;
}

/* Whether somebody may use the table, now or later in his transaction: the server's cache can have lost it since. */
bool is_in_use(THD *thd, const char *db, const char *table) {
  MDL_key key(MDL_key::TABLE, db, table);
  return is_cached(thd, db, table) || thd->mdl_context.get_lock_owner(&key);
}

/* Waits for the users of a table, as DROP TABLE does, and takes it out of the server's cache. The
   connection's own HANDLERs are closed first: the server would wait for them for ever. */
bool close_table(THD *thd, const char *db, const char *table) {
  const LEX_CSTRING schema = {db, strlen(db)}, name = {table, strlen(table)};
  TABLE_LIST list;
  list.init_one_table(&schema, &name, nullptr, TL_WRITE);
  mysql_ha_rm_tables(thd, &list);
  MDL_request request;
  MDL_REQUEST_INIT(&request, MDL_key::TABLE, db, table, MDL_EXCLUSIVE, MDL_TRANSACTION);
  if (thd->mdl_context.acquire_lock(&request, thd->variables.lock_wait_timeout)) return true;
  tdc_remove_table(thd, db, table);
  PSI_CALL_drop_table_share(false, db, uint(strlen(db)), table, uint(strlen(table)));
  return false;
}

/* Statistics that ANALYZE TABLE ... PERSISTENT stored: a later table of the same name must not find them. */
void delete_statistics(THD *thd, const char *db) {
  std::set<std::string> tables;
  for (const char *kind : {"table_stats", "column_stats", "index_stats"})
    for (std::string &name : myriad_system_rows(thd, kind, db, SIZE_MAX)) tables.insert(std::move(name));
  LEX_CSTRING schema = {db, strlen(db)};
  for (const std::string &table : tables) {
    LEX_CSTRING name = {table.c_str(), table.size()};
    delete_statistics_for_table(thd, &schema, &name);
  }
}

/* Databases whose DROP has taken its tables out of the server's cache. One that failed since stays until the next look.
 */
class Dropping {
public:
  void add(const char *db) {
    std::lock_guard<std::mutex> guard(m_mutex);
    m_databases.insert(db);
  }
  void remove(const char *db) {
    std::lock_guard<std::mutex> guard(m_mutex);
    m_databases.erase(db);
  }
  bool has(const char *db) {
    std::lock_guard<std::mutex> guard(m_mutex);
    return m_databases.count(db);
  }

private:
  std::mutex m_mutex;
  std::set<std::string> m_databases;
};
Dropping dropping;

/* The statement has to fail: the tables are still there. The server does not ask, but it cannot remove a folder that is
   not empty. The next DROP DATABASE removes files with this ending first. */
void keep_database(const char *path) {
  my_printf_error(ER_DB_DROP_RMDIR, "Error dropping database: MYRIAD still has its tables: %s", MYF(0),
                  myriad_last_error());
  const std::string file = std::string(path) + FN_LIBCHAR + "myriad.BAK";
  const File made = my_create(file.c_str(), 0, O_WRONLY, MYF(MY_WME | ME_ERROR_LOG));
  if (made >= 0) my_close(made, MYF(0));
}

/* A start leaves the .par file of a partitioned table behind whose new definition it finishes in place, or whose
   creation it undoes, and the server does not remove such files with the folder. */
void remove_leftovers(const char *path) {
  const std::string folder = std::string(path) + FN_LIBCHAR;
  MY_DIR *files = my_dir(path, MYF(0));
  for (size_t i = 0; files && i < files->number_of_files; i++) {
    const std::string name = files->dir_entry[i].name;
    std::string table;
    if (!myriad_strip_ending(name, ".par", &table)) continue;
    const std::string definition = folder + table + reg_ext;
    if (!name.compare(0, 4, "#sql") || my_access(definition.c_str(), F_OK))
      my_delete((folder + name).c_str(), MYF(MY_WME | ME_ERROR_LOG));
  }
  my_dirend(files);
}

/* The lock by which this thread keeps the database of the definition that it has just found. */
struct Keeping {
  const TABLE_SHARE *share = nullptr;
  MDL_ticket *lock = nullptr;
  MDL_savepoint newest; /* with this lock */
};
thread_local Keeping keeping;

bool is_same(const MDL_savepoint &a, const MDL_savepoint &b) { return !memcmp(&a, &b, sizeof a); }

}  // namespace

/* DROP DATABASE takes those tables out of the server's cache that are there when it begins, and may then wait for
   others: no table may come in meanwhile. Its lock on the database keeps others from opening, which hold theirs until
   the definition is in the cache. They do not wait here: whoever opens the same table next would spin in the server
   until they are done. */
bool myriad_refuse_while_dropped(THD *thd, const TABLE_SHARE *share) {
  constexpr int tries = 50;
  const char *db = share->db.str;
  keeping = Keeping();
  if (thd_sql_command(thd) == SQLCOM_DROP_DB) return false;
  for (int i = 0; i < tries; i++) {
    const MDL_savepoint before = thd->mdl_context.mdl_savepoint();
    MDL_request request;
    MDL_REQUEST_INIT(&request, MDL_key::SCHEMA, db, "", MDL_INTENTION_EXCLUSIVE, MDL_STATEMENT);
    if (thd->mdl_context.try_acquire_lock(&request)) return true;
    if (request.ticket) {
      dropping.remove(db);
      const MDL_savepoint after = thd->mdl_context.mdl_savepoint();
      /* Else it is an older lock, at which some savepoint may end. */
      if (!is_same(before, after)) keeping = Keeping{share, request.ticket, after};
      return false;
    }
    if (dropping.has(db)) {
      my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
      return true;
    }
    /* CREATE or ALTER DATABASE, or a DROP that is not that far. */
    my_sleep(1000);
  }
  return false;
}

/* Until the end of its statement is too long: CREATE DATABASE IF NOT EXISTS would wait for a query. */
void myriad_allow_drop(THD *thd, const TABLE_SHARE *share) {
  const Keeping kept = keeping;
  keeping = Keeping();
  if (!kept.lock || kept.share != share || !is_same(kept.newest, thd->mdl_context.mdl_savepoint())) return;
  /* Of an earlier statement: another lock may be where that was. */
  if (kept.lock->get_key()->mdl_namespace() != MDL_key::SCHEMA) return;
  thd->mdl_context.set_lock_duration(kept.lock, MDL_EXPLICIT);
  thd->mdl_context.release_lock(kept.lock);
}

bool myriad_refuse_if_dropped(THD *thd, const char *db) {
  if (thd_sql_command(thd) == SQLCOM_DROP_DB || !dropping.has(db)) return false;
  my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
  return true;
}

bool myriad_leave_drops(THD *thd, const char *db, const MY_DIR *files, std::vector<std::string> *names) {
  /* DROP DATABASE will fail then, and the binary log gets the names of those tables that the server drops one by one.
   */
  if (has_strange_files(files)) return false;
  char directory[FN_REFLEN];
  tablename_to_filename(db, directory, sizeof directory);
  bool referenced = false;
  if (myriad::checks_foreign_keys(thd)) {
    const myriad_status status = myriad_database_is_referenced(myriad_core, directory, &referenced);
    if (status != MYRIAD_OK) {
      myriad_tell(status, thd);
      return true;
    }
  }
  if (referenced) {
    my_printf_error(ER_ROW_IS_REFERENCED_2, ER_THD(thd, ER_ROW_IS_REFERENCED), MYF(0));
    return true;
  }
  dropping.add(db);
  std::set<std::string> triggers = with_triggers(files);
  std::vector<std::string> left;
  for (std::string &name : *names) {
    char table[NAME_LEN + 1];
    filename_to_tablename(name.c_str(), table, sizeof table, true);
    if (triggers.count(name))
      left.push_back(std::move(name));
    else if (is_in_use(thd, db, table) && close_table(thd, db, table))
      return true;
  }
  names->swap(left);
  return false;
}

void myriad_drop_database_hook(handlerton *, char *path) {
  std::string name = myriad_name(path);
  while (!name.empty() && name.back() == FN_LIBCHAR) name.pop_back();
  char db[NAME_LEN + 1];
  filename_to_tablename(name.c_str(), db, sizeof db, true);
  uint64_t dropped = 0;
  const myriad_status status = myriad_drop_database(myriad_core, name.c_str(), &dropped);
  dropping.remove(db);
  THD *thd = current_thd;
  const bool by_statement = thd && thd_sql_command(thd) == SQLCOM_DROP_DB;
  if (status != MYRIAD_OK) {
    sql_print_error("MYRIAD: dropping database %s: %s", name.c_str(), myriad_last_error());
    if (by_statement) keep_database(path);
    return;
  }
  if (by_statement) remove_leftovers(path);
  if (dropped && by_statement) delete_statistics(thd, db);
}
