/* myriad_clone_database(template, database): a database as an empty copy of another.

   The catalog's transaction decides: once it is committed the copy is there, and a note in it makes the next start
   create the folder and its files if we do not come to it. */
#include "clone.h"
#include "clone_folder.h"
#include "discovery.h"
#include "session.h"
#include "system_rows.h"
#include "item_create.h"
#include "item_func.h"
#include "lock.h"
#include "log_event.h"
#include "rows.h"
#include "rpl_filter.h"
#include "rpl_rli.h"
#include "sql_acl.h"
#include "sql_db.h"
#include "sql_parse.h"
#include <mysql/plugin_function.h>

namespace {

using namespace myriad;

constexpr const char *FUNCTION = CLONE_FUNCTION;

/* As the catalog calls it: file name encoding, no path. */
std::string catalog_name(const std::string &db) { return folder_of(db).substr(2); }

/* The server's own state must allow a change of definitions here and now. */
bool check_state(THD *thd) {
  if (!myriad_is_running(thd))
    my_error(ER_UNKNOWN_STORAGE_ENGINE, MYF(0), "MYRIAD");
  else if (thd->in_sub_stmt || thd->locked_tables_mode || thd->open_tables)
    my_printf_error(ER_NOT_SUPPORTED_YET,
                    "%s() cannot run in a function or trigger, under LOCK TABLES or in a statement "
                    "that uses tables",
                    MYF(0), FUNCTION);
  else if (thd->in_active_multi_stmt_transaction() || (thd->variables.option_bits & OPTION_BEGIN))
    my_printf_error(ER_NOT_SUPPORTED_YET, "%s() cannot run in a transaction", MYF(0), FUNCTION);
  else if (thd->is_read_only_ctx())
    my_error(ER_OPTION_PREVENTS_STATEMENT, MYF(0), "--read-only");
  else if (thd->has_read_only_protection())
    return true;
  else
    return false;
  return true;
}

/* A replica's filters by table leave a database out when it is created; the statement names no tables by which the
   server could see that. The replica passes over this error. */
bool is_left_out(THD *thd, const std::string &to) {
  if (!thd->slave_thread) return false;
  Rpl_filter *filter = thd->system_thread_info.rpl_sql_info->rpl_filter;
  if (filter->db_ok(to.c_str()) && filter->db_ok_with_wild_table(to.c_str())) return false;
  my_error(ER_SLAVE_IGNORED_TABLE, MYF(0));
  return true;
}

bool take_name(Item *argument, std::string *name) {
  StringBuffer<NAME_LEN + 1> buffer(system_charset_info);
  String *text = argument->val_str(&buffer);
  if (!text) {
    my_error(ER_WRONG_DB_NAME, MYF(0), "NULL");
    return true;
  }
  StringBuffer<NAME_LEN + 1> converted;
  uint errors = 0;
  if (converted.copy(text->ptr(), text->length(), text->charset(), system_charset_info, &errors)) return true;
  std::string copy(converted.ptr(), converted.length());
  LEX_STRING checked = {&copy[0], copy.size()};
  if (errors || copy.find('\0') != std::string::npos || check_db_name(&checked)) {
    my_error(ER_WRONG_DB_NAME, MYF(0), copy.c_str());
    return true;
  }
  name->assign(checked.str, checked.length);
  return false;
}

bool lacks(THD *thd, privilege_t wanted, const std::string &db) {
  privilege_t held(NO_ACL);
  return check_access(thd, wanted, db.c_str(), &held, nullptr, true, false);
}

bool check_privileges(THD *thd, const std::string &from, const std::string &to) {
  return lacks(thd, SELECT_ACL, from) || lacks(thd, CREATE_ACL, to);
}

/* Views and triggers run with their definers' rights: who may not create them with these may not copy them. */
bool check_definers(THD *thd, const Definers &definers) {
  const Security_context *user = thd->security_ctx;
  const std::string self = std::string(user->priv_user) + "@" + user->priv_host, role = user->priv_role;
  for (const std::string &definer : definers.users)
    if (definer != self && (role.empty() || (definer != role && definer != role + "@")) &&
        check_global_access(thd, PRIV_DEFINER_CLAUSE, false))
      return true;
  return false;
}

/* What the single statements would need for what the folder holds. */
bool check_privileges(const Clone &clone, const Folder &folder) {
  THD *thd = clone.thd;
  if (folder.has_views && (lacks(thd, SHOW_VIEW_ACL, clone.from) || lacks(thd, CREATE_VIEW_ACL, clone.to))) return true;
  if (!folder.with_triggers.empty() && (lacks(thd, TRIGGER_ACL, clone.from) || lacks(thd, TRIGGER_ACL, clone.to)))
    return true;
  return check_definers(thd, folder.definers);
}

/* Routines and events are rows of the server's tables: who copies a database is told that they stay behind. */
void warn_of_code(THD *thd, const std::string &from) {
  for (const char *table : {"proc", "event"})
    if (!myriad_system_rows(thd, table, from.c_str(), 1).empty())
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_SUPPORTED_YET,
                          "%s() does not copy the %s of database '%s'", FUNCTION,
                          *table == 'p' ? "stored routines" : "events", from.c_str());
}

/* No definition changes in the template, and nobody else sees the new name, until the guard goes. */
class Locks {
public:
  explicit Locks(THD *thd) : m_thd(thd), m_before(thd->mdl_context.mdl_savepoint()) {}
  ~Locks() { m_thd->mdl_context.rollback_to_savepoint(m_before); }
  bool take(const std::string &from, const std::string &to) {
    MDL_request backup, source, target;
    MDL_REQUEST_INIT(&backup, MDL_key::BACKUP, "", "", MDL_BACKUP_DDL, MDL_TRANSACTION);
    MDL_REQUEST_INIT(&source, MDL_key::SCHEMA, from.c_str(), "", MDL_SHARED, MDL_TRANSACTION);
    MDL_REQUEST_INIT(&target, MDL_key::SCHEMA, to.c_str(), "", MDL_EXCLUSIVE, MDL_TRANSACTION);
    MDL_request_list all;
    all.push_front(&target);
    all.push_front(&source);
    all.push_front(&backup);
    return m_thd->mdl_context.acquire_locks(&all, m_thd->variables.lock_wait_timeout);
  }
  /* A copy that somebody opened before its triggers are there would be used without them. */
  bool take_tables(const std::string &db, const std::set<std::string> &file_names) {
    MDL_request_list all;
    std::vector<MDL_request> requests(file_names.size());
    auto request = requests.begin();
    for (const std::string &file_name : file_names) {
      char table[NAME_LEN + 1];
      filename_to_tablename(file_name.c_str(), table, sizeof table, true);
      MDL_REQUEST_INIT(&*request, MDL_key::TABLE, db.c_str(), table, MDL_EXCLUSIVE, MDL_TRANSACTION);
      all.push_front(&*request++);
    }
    return !requests.empty() && m_thd->mdl_context.acquire_locks(&all, m_thd->variables.lock_wait_timeout);
  }

private:
  THD *m_thd;
  MDL_savepoint m_before;
};

/* What the core asks about each table of the template. */
struct Judge {
  const Clone &clone;
  const Folder &folder;
  uint64_t partitions = 0;
  std::string image, refused;
};

bool judge_table(void *arg, const char *table, const uint8_t *image, size_t length, myriad_clone_verdict *verdict) {
  auto *judge = static_cast<Judge *>(arg);
  const std::string name = table;
  if (const size_t partition = myriad_partition_at(name); partition != std::string::npos) {
    judge->partitions++;
    if (!judge->folder.partitioned.count(name.substr(0, partition))) {
      judge->refused = std::string("partition '") + table + "' is of no table";
      return false;
    }
  }
  /* One that was a table before has its image. */
  if (!length) return true;
  const std::string old_image(reinterpret_cast<const char *>(image), length);
  verdict->first_row = myriad_frm_is_sequence(old_image);
  judge->image = old_image;
  if (!copy_image(judge->clone, &judge->image)) {
    judge->refused = std::string("the definition of table '") + table + "' cannot be changed";
    return false;
  }
  if (judge->image != old_image) {
    verdict->image = reinterpret_cast<const uint8_t *>(judge->image.data());
    verdict->image_len = judge->image.size();
  }
  return true;
}

/* A copied sequence begins where the template's was told to begin. The row is its layout and the columns
   next_not_cached_value, minimum_value, maximum_value, start_value, increment, cache_size, cycle_option (one byte) and
   cycle_count; see rows.h. */
bool restart_sequence(void *arg, const char *table, uint8_t *row, size_t length) {
  constexpr size_t wide = 8, next = 1, start = next + 3 * wide, cycle_count = next + 6 * wide + 1;
  if (length != cycle_count + wide || row[0] != FIRST_LAYOUT) {
    static_cast<Judge *>(arg)->refused = std::string("sequence '") + table + "' cannot be read";
    return false;
  }
  memcpy(row + next, row + start, wide);
  memset(row + cycle_count, 0, wide);
  return true;
}

std::string quoted(const std::string &name) {
  bool plain = true;
  for (char c : name) plain &= c >= ' ' && c < 0x7f && c != '\'' && c != '\\';
  if (plain) return "'" + name + "'";
  static const char digits[] = "0123456789ABCDEF";
  std::string text = "_utf8mb3 X'";
  for (char c : name) {
    text += digits[uchar(c) >> 4];
    text += digits[uchar(c) & 15];
  }
  return text + "'";
}

/* The call itself goes to the binary log, whatever the format, as every definition's change does. SELECT and not DO:
   the server forgets errors of DO. */
bool write_binlog(THD *thd, const std::string &from, const std::string &to) {
  if (!mysql_bin_log.is_open()) return false;
  std::string text = std::string("SELECT ") + FUNCTION + "(" + quoted(from) + "," + quoted(to) + ")";
  thd->transaction->stmt.mark_trans_did_ddl();
  Query_log_event event(thd, text.c_str(), text.size(), false, true, true, 0);
  event.db = to.c_str();
  event.db_len = uint32(to.size());
  return mysql_bin_log.write(&event);
}

/* The catalog's part. True: nothing was copied, reported. */
bool clone_tables(const Clone &clone, const Folder &folder, uint32_t *note, uint64_t *tables) {
  std::vector<myriad_folder_file> files;
  for (const FolderFile &file : folder.files)
    files.push_back({file.name.c_str(), reinterpret_cast<const uint8_t *>(file.contents.data()), file.contents.size()});
  Judge judge{clone, folder};
  const myriad_clone_calls calls = {&judge, judge_table, restart_sequence};
  myriad_status status =
      myriad_clone_database(myriad_core, catalog_name(clone.from).c_str(), catalog_name(clone.to).c_str(), files.data(),
                            files.size(), &calls, note, tables);
  if (!judge.refused.empty()) return refuse_clone(clone.from, judge.refused);
  if (status == MYRIAD_ERR_NO_SUCH_TABLE) return refuse_clone(clone.from, "it has no Myriad table");
  if (status == MYRIAD_OK) {
    *tables -= judge.partitions - folder.partitioned.size();
    return false;
  }
  my_printf_error(ER_UNKNOWN_ERROR, "%s(): %s", MYF(0), FUNCTION, myriad_last_error());
  return true;
}

bool run(const Clone &clone, Locks *locks, uint64_t *tables) {
  THD *thd = clone.thd;
  if (!check_db_dir_existence(clone.to.c_str())) {
    my_error(ER_DB_CREATE_EXISTS, MYF(0), clone.to.c_str());
    return true;
  }
  if (check_db_dir_existence(clone.from.c_str())) {
    my_error(ER_BAD_DB_ERROR, MYF(0), clone.from.c_str());
    return true;
  }
  Folder folder;
  uint32_t note = 0;
  if (read_template(clone, &folder) || check_privileges(clone, folder) ||
      locks->take_tables(clone.to, folder.with_triggers) || clone_tables(clone, folder, &note, tables))
    return true;
  const std::string path = folder_of(clone.to);
  if (make_folder(path, folder.files)) {
    uint64_t dropped;
    remove_folder(path, folder.files);
    if (myriad_drop_database(myriad_core, catalog_name(clone.to).c_str(), &dropped) != MYRIAD_OK)
      sql_print_error(
          "MYRIAD: the next start finishes the copy of database %s, which failed and cannot be taken back: %s",
          clone.to.c_str(), myriad_last_error());
    return true;
  }
  /* Who asked for the database's options before it was there, as a replica does, has left the defaults in the cache. */
  my_dbopt_cleanup();
  bool failed = write_binlog(thd, clone.from, clone.to);
  if (myriad_finish_clone(myriad_core, note) != MYRIAD_OK)
    sql_print_warning("MYRIAD: copy of database %s: %s", clone.to.c_str(), myriad_last_error());
  return failed;
}

class Item_clone_database final : public Item_longlong_func {
public:
  Item_clone_database(THD *thd, Item *from, Item *to) : Item_longlong_func(thd, from, to) {}
  LEX_CSTRING func_name_cstring() const override { return {FUNCTION, strlen(FUNCTION)}; }
  bool check_arguments() const override { return check_argument_types_can_return_str(0, 2); }
  bool fix_length_and_dec(THD *) override {
    set_maybe_null();
    fix_char_length(10);
    return false;
  }
  bool const_item() const override { return false; }
  table_map used_tables() const override { return used_tables_cache | RAND_TABLE_BIT; }
  bool is_expensive() override { return true; }
  bool check_vcol_func_processor(void *arg) override {
    return mark_unsupported_function(func_name(), "()", arg, VCOL_IMPOSSIBLE);
  }
  longlong val_int() override {
    THD *thd = current_thd;
    std::string from, to;
    uint64_t tables = 0;
    null_value = true;
    if (thd->is_error() || check_state(thd) || take_name(args[0], &from) || take_name(args[1], &to) ||
        is_left_out(thd, to) || check_privileges(thd, from, to))
      return 0;
    warn_of_code(thd, from);
    Locks locks(thd);
    null_value = locks.take(from, to) || run({thd, from, to}, &locks, &tables);
    return null_value ? 0 : longlong(tables);
  }

protected:
  Item *shallow_copy(THD *thd) const override { return get_item_copy<Item_clone_database>(thd, this); }
};

class Create_clone_database final : public Create_func_arg2 {
public:
  Item *create_2_arg(THD *thd, Item *from, Item *to) override {
    thd->lex->safe_to_cache_query = false;
    thd->lex->uncacheable(UNCACHEABLE_SIDEEFFECT);
    return new (thd->mem_root) Item_clone_database(thd, from, to);
  }
};

Create_clone_database creator;
Plugin_function function(&creator);

struct Unfinished {
  uint32_t note;
  std::string database;
  std::vector<FolderFile> files;
};

void remember(void *arg, uint32_t note, const char *database, const myriad_folder_file *files, size_t count) {
  Unfinished copy = {note, database, {}};
  for (size_t i = 0; i < count; i++)
    copy.files.push_back(
        {files[i].name, std::string(reinterpret_cast<const char *>(files[i].contents), files[i].contents_len)});
  static_cast<std::vector<Unfinished> *>(arg)->push_back(std::move(copy));
}

bool stop_at_first(void *arg, const char *, size_t) {
  *static_cast<bool *>(arg) = true;
  return false;
}

}  // namespace

void *const myriad_clone_function = &function;

void myriad_finish_clones() {
  std::vector<Unfinished> found;
  if (myriad_unfinished_clones(myriad_core, remember, &found) != MYRIAD_OK)
    sql_print_error("MYRIAD: looking for unfinished copies of databases: %s", myriad_last_error());
  for (const Unfinished &copy : found) {
    bool has_tables = false;
    myriad_status status = myriad_list_tables(myriad_core, copy.database.c_str(), stop_at_first, &has_tables);
    /* A folder that cannot be made is reported and tried again at the next start. */
    if (status == MYRIAD_OK && has_tables && make_folder("./" + copy.database, copy.files)) continue;
    if (status == MYRIAD_OK) status = myriad_finish_clone(myriad_core, copy.note);
    if (status != MYRIAD_OK)
      sql_print_error("MYRIAD: finishing the copy of database %s: %s", copy.database.c_str(), myriad_last_error());
    else if (has_tables)
      sql_print_warning(
          "MYRIAD: database %s was being made by %s() when the server ended; it is whole now. Replicas have "
          "it only if the call is in the binary log",
          copy.database.c_str(), FUNCTION);
  }
}
