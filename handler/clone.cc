/* myriad_clone_database(template, database): a database as an empty copy of another.

   The catalog's transaction decides: once it is committed the copy is there, and a note in it makes the next start
   create the folder if we do not come to it. */
#include "clone.h"
#include "session.h"
#include "system_rows.h"
#include "item_create.h"
#include "item_func.h"
#include "lock.h"
#include "log_event.h"
#include "sql_acl.h"
#include "sql_db.h"
#include "sql_parse.h"
#include <m_string.h>
#include <my_dir.h>
#include <mysql/plugin_function.h>
#include <string>
#include <vector>

namespace {

constexpr const char *FUNCTION = "myriad_clone_database";

std::string folder_of(const std::string &db) {
  char path[FN_REFLEN + 1];
  size_t length = build_table_filename(path, sizeof path - 1, db.c_str(), "", "", 0);
  while (length && path[length - 1] == FN_LIBCHAR) length--;
  return std::string(path, length);
}

/* As the catalog calls it: file name encoding, no path. */
std::string catalog_name(const std::string &db) { return folder_of(db).substr(2); }

bool read_file(const std::string &path, std::string *text) {
  File file = my_open(path.c_str(), O_RDONLY | O_SHARE, MYF(0));
  if (file < 0) return false;
  char buffer[1024];
  size_t length;
  while ((length = my_read(file, reinterpret_cast<uchar *>(buffer), sizeof buffer, MYF(0))) && length != MY_FILE_ERROR)
    text->append(buffer, length);
  my_close(file, MYF(0));
  return length != MY_FILE_ERROR;
}

/* Makes a database's folder with these options, durably. What is there already stays. True on failure, reported. */
bool make_folder(const std::string &folder, const char *options, size_t length) {
  if (my_mkdir(folder.c_str(), 0777, MYF(0)) < 0 && my_errno != EEXIST) {
    my_error(ER_CANT_CREATE_DB, MYF(0), folder.c_str(), my_errno);
    return true;
  }
  std::string target = folder + "/" MY_DB_OPT_FILE, fresh = target + "~";
  if (length && my_access(target.c_str(), F_OK)) {
    File file = my_create(fresh.c_str(), 0, O_RDWR | O_TRUNC, MYF(MY_WME));
    if (file < 0) return true;
    bool failed = my_write(file, reinterpret_cast<const uchar *>(options), length, MYF(MY_NABP | MY_WME)) ||
                  my_sync(file, MYF(MY_WME));
    failed |= my_close(file, MYF(MY_WME)) != 0;
    if (failed || my_rename(fresh.c_str(), target.c_str(), MYF(MY_WME))) {
      my_delete(fresh.c_str(), MYF(0));
      return true;
    }
  }
  return my_sync_dir(folder.c_str(), MYF(MY_WME)) || my_sync_dir(".", MYF(MY_WME));
}

void remove_folder(const std::string &folder) {
  my_delete((folder + "/" MY_DB_OPT_FILE).c_str(), MYF(0));
  rmdir(folder.c_str());
}

bool refuse(const std::string &db, const char *what) {
  my_printf_error(ER_NOT_SUPPORTED_YET, "%s() cannot copy database '%s': %s", MYF(0), FUNCTION, db.c_str(), what);
  return true;
}

/* The server's own state must allow a change of definitions here and now. */
bool check_state(THD *thd) {
  if (thd->in_sub_stmt || thd->locked_tables_mode || thd->open_tables)
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

bool check_privileges(THD *thd, const std::string &from, const std::string &to) {
  privilege_t held(NO_ACL);
  return check_access(thd, SELECT_ACL, from.c_str(), &held, nullptr, true, false) ||
         check_access(thd, CREATE_ACL, to.c_str(), &held, nullptr, true, false);
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

private:
  THD *m_thd;
  MDL_savepoint m_before;
};

/* Views, triggers, partitioned tables and other engines' tables have files in the database's folder. */
bool check_folder(const std::string &db) {
  MY_DIR *files = my_dir(folder_of(db).c_str(), MYF(MY_WME));
  if (!files) return true;
  std::string strange;
  for (size_t i = 0; i < files->number_of_files && strange.empty(); i++) {
    const char *name = files->dir_entry[i].name;
    if (strcmp(name, ".") && strcmp(name, "..") && strcmp(name, MY_DB_OPT_FILE)) strange = name;
  }
  my_dirend(files);
  if (strange.empty()) return false;
  std::string text =
      "it has the file '" + strange + "'; views, triggers, partitioned tables and other engines' tables are not copied";
  return refuse(db, text.c_str());
}

/* What the core asks about each table of the template. */
struct Accept {
  std::string refused;
};

bool accept_table(void *arg, const char *table, const uint8_t *image, size_t length) {
  constexpr size_t table_type = 39;
  auto *accept = static_cast<Accept *>(arg);
  bool is_sequence = image && length > table_type && (image[table_type] & 0x30) == 0x20;
  if (!is_sequence && !strstr(table, "#P#")) return true;
  accept->refused = std::string(is_sequence ? "sequence" : "partition") + " '" + table + "' cannot be copied";
  return false;
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

bool clone(THD *thd, const std::string &from, const std::string &to, uint64_t *tables) {
  if (!check_db_dir_existence(to.c_str())) {
    my_error(ER_DB_CREATE_EXISTS, MYF(0), to.c_str());
    return true;
  }
  if (check_db_dir_existence(from.c_str())) {
    my_error(ER_BAD_DB_ERROR, MYF(0), from.c_str());
    return true;
  }
  if (check_folder(from)) return true;
  std::string options;
  read_file(folder_of(from) + "/" MY_DB_OPT_FILE, &options);
  Accept accept;
  uint32_t note = 0;
  myriad_status status = myriad_clone_database(myriad_core, catalog_name(from).c_str(), catalog_name(to).c_str(),
                                               reinterpret_cast<const uint8_t *>(options.data()), options.size(),
                                               accept_table, &accept, &note, tables);
  if (!accept.refused.empty()) return refuse(from, accept.refused.c_str());
  if (status == MYRIAD_ERR_NO_SUCH_TABLE) return refuse(from, "it has no Myriad table");
  if (status != MYRIAD_OK) {
    my_printf_error(ER_UNKNOWN_ERROR, "%s(): %s", MYF(0), FUNCTION, myriad_last_error());
    return true;
  }
  if (make_folder(folder_of(to), options.data(), options.size())) {
    uint64_t dropped;
    remove_folder(folder_of(to));
    myriad_drop_database(myriad_core, catalog_name(to).c_str(), &dropped);
    return true;
  }
  /* Who asked for the database's options before it was there, as a replica does, has left the defaults in the cache. */
  my_dbopt_cleanup();
  bool failed = write_binlog(thd, from, to);
  if (myriad_finish_clone(myriad_core, note) != MYRIAD_OK)
    sql_print_warning("MYRIAD: copy of database %s: %s", to.c_str(), myriad_last_error());
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
        check_privileges(thd, from, to))
      return 0;
    warn_of_code(thd, from);
    Locks locks(thd);
    null_value = locks.take(from, to) || clone(thd, from, to, &tables);
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
  std::string database, options;
};

void remember(void *arg, uint32_t note, const char *database, const uint8_t *options, size_t length) {
  static_cast<std::vector<Unfinished> *>(arg)->push_back(
      {note, database, std::string(reinterpret_cast<const char *>(options), length)});
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
    if (status == MYRIAD_OK && has_tables &&
        make_folder("./" + copy.database, copy.options.data(), copy.options.size()))
      continue;
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
