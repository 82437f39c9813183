/* Table discovery: the server has no .frm files of our tables; their images come from the core's catalog. */
#include "ha_myriad.h"
#include "discovery.h"
#include "drop_database.h"
#include "foreign_keys.h"
#include "sql_db.h"
#include "sql_rename.h"
#include <atomic>
#include <string>
#include <vector>

namespace {

/* Position of the last upgrade's server version in an image (see TABLE_SHARE::init_from_binary_frm_image). */
constexpr size_t FRM_SERVER_VERSION = 51;
/* Begins the names of copies that ALTER TABLE makes. */
constexpr const char *COPY = "#sql-alter";

void append_text(void *arg, const char *text, size_t length) { static_cast<std::string *>(arg)->append(text, length); }

/* Whether a table is known not to be there. */
bool is_away(const std::string &name) {
  bool exists;
  return myriad_table_exists(myriad_core, name.c_str(), &exists) == MYRIAD_OK && !exists;
}

bool in_drop_database(THD *thd) { return thd && thd_sql_command(thd) == SQLCOM_DROP_DB; }

int discover_table(handlerton *, THD *thd, TABLE_SHARE *share) {
  if (thd && myriad_refuse_while_dropped(thd, share)) return HA_ERR_GENERIC;
  std::string image;
  std::string name = myriad_name(share->normalized_path.str);
  myriad_status status = myriad_get_frm(myriad_core, name.c_str(), append_text, &image);
  if (status != MYRIAD_OK && status != MYRIAD_ERR_NO_SUCH_TABLE) {
    /* Not to be taken for a table that is not there. */
    myriad_tell(status, thd);
    return HA_ERR_GENERIC;
  }
  if (image.size() < 64) return HA_ERR_NO_SUCH_TABLE;
  if (thd && myriad_refuse_if_dropped(thd, share->db.str)) return HA_ERR_GENERIC;
  /* CHECK TABLE ... FOR UPGRADE wants to write this into a .frm file. */
  int4store(reinterpret_cast<uchar *>(&image[FRM_SERVER_VERSION]), uint32(MYSQL_VERSION_ID));
  my_errno = share->init_from_binary_frm_image(thd, false, reinterpret_cast<const uchar *>(image.data()), image.size());
  return my_errno;
}

struct Listing {
  std::vector<std::string> names;
};

bool list_name(void *arg, const char *table, size_t length) {
  std::string name(table, length);
  if (!myriad_is_partition(name) && !myriad::is_stand_in(name))
    static_cast<Listing *>(arg)->names.push_back(std::move(name));
  return true;
}

bool is_sequence(const char *name) {
  std::string image;
  return myriad_read_frm(name, &image) && myriad_frm_is_sequence(image);
}

/* Definitions that stay in the server's cache until the statement ends, also where that holds more than
   table_definition_cache: of those it drops each when nobody uses it. An item, because the server frees a statement's
   items at its end, of which it does not tell an engine whose tables the statement does not use. */
class HeldDefinitions : public Item_null {
public:
  explicit HeldDefinitions(THD *thd) : Item_null(thd), m_thd(thd) {}
  ~HeldDefinitions() override {
    for (const auto &[share, lock] : m_held) {
      tdc_release_share(share);
      m_thd->mdl_context.release_lock(lock);
    }
  }
  void hold(TABLE_SHARE *share, MDL_ticket *lock) { m_held.emplace_back(share, lock); }

private:
  THD *m_thd;
  std::vector<std::pair<TABLE_SHARE *, MDL_ticket *>> m_held;
};

/* SHOW FULL TABLES tells sequences from tables by .frm files and by the server's cache of definitions: without the
   former they have to be in the latter when it asks about each name. */
void open_sequences(THD *thd, const LEX_CSTRING &db, const char *directory, const std::vector<std::string> &names) {
  HeldDefinitions *held = nullptr;
  Dummy_error_handler none;
  thd->push_internal_handler(&none);
  for (const std::string &file : names) {
    if (!is_sequence((std::string(directory) + "/" + file).c_str())) continue;
    if (!held && !(held = new (thd->mem_root) HeldDefinitions(thd))) break;
    char name[NAME_LEN + 1];
    LEX_CSTRING table = {name, filename_to_tablename(file.c_str(), name, sizeof name, true)};
    TABLE_LIST list;
    list.init_one_table(&db, &table, nullptr, TL_READ);
    /* Without the lock a definition could stay in the cache that is dropped meanwhile. One that changes now is left
     * out. */
    MDL_request lock;
    MDL_REQUEST_INIT(&lock, MDL_key::TABLE, db.str, name, MDL_SHARED_HIGH_PRIO, MDL_EXPLICIT);
    if (thd->mdl_context.try_acquire_lock(&lock) || !lock.ticket) continue;
    if (TABLE_SHARE *share = tdc_acquire_share(thd, &list, GTS_TABLE | GTS_USE_DISCOVERY))
      held->hold(share, lock.ticket);
    else
      thd->mdl_context.release_lock(lock.ticket);
  }
  thd->pop_internal_handler();
}

/* ALTER DATABASE ... UPGRADE DATA DIRECTORY NAME is about to drop the old database, or after a failure the new one. */
bool is_upgraded(THD *thd, const LEX_CSTRING &db) {
  return thd && thd_sql_command(thd) == SQLCOM_ALTER_DB_UPGRADE && db.length > MYSQL50_TABLE_NAME_PREFIX_LENGTH &&
         !memcmp(db.str, MYSQL50_TABLE_NAME_PREFIX, MYSQL50_TABLE_NAME_PREFIX_LENGTH);
}

/* By their files' names. True on failure, reported. */
bool rename_tables(THD *thd, const LEX_CSTRING &from, const LEX_CSTRING &to, const std::vector<std::string> &files) {
  TABLE_LIST *first = nullptr, **next = &first;
  for (const std::string &file : files) {
    char name[NAME_LEN + 1];
    LEX_CSTRING table;
    if (!thd->make_lex_string(&table, name, filename_to_tablename(file.c_str(), name, sizeof name, true))) return true;
    for (const LEX_CSTRING &each : {from, to}) {
      auto *entry = static_cast<TABLE_LIST *>(thd->alloc(sizeof(TABLE_LIST)));
      if (!entry) return true;
      entry->init_one_table(&each, &table, nullptr, TL_WRITE);
      entry->mdl_request.set_type(MDL_EXCLUSIVE);
      *next = entry;
      next = &entry->next_local;
    }
  }
  for (TABLE_LIST *entry = first; entry; entry = entry->next_local) entry->next_global = entry->next_local;
  return first && mysql_rename_tables(thd, first, true, false);
}

std::string folder_of(const LEX_CSTRING &db) {
  char path[FN_REFLEN];
  return std::string(path, build_table_filename(path, sizeof path - 1, db.str, "", "", 0));
}

/* The server does so where it cannot rename its tables: all goes back to the old database, and the new one goes. */
void undo_upgrade(THD *thd, const LEX_CSTRING &db, const LEX_CSTRING &upgraded) {
  const std::string from = folder_of(upgraded), to = folder_of(db);
  std::vector<std::string> tables;
  for (const std::string &file : myriad_files_in(from)) {
    std::string table;
    if (myriad_strip_ending(file, reg_ext, &table)) tables.push_back(table);
  }
  if (rename_tables(thd, upgraded, db, tables)) return;
  for (const std::string &file : myriad_files_in(from)) {
    if (file == MY_DB_OPT_FILE)
      my_delete((from + file).c_str(), MYF(MY_WME | ME_ERROR_LOG));
    else
      my_rename((from + file).c_str(), (to + file).c_str(), MYF(MY_WME | ME_ERROR_LOG));
  }
  rmdir(from.c_str());
}

/* The server has renamed the tables that have .frm files, moved other files, and drops what is left: ours are renamed
   now. True on failure, reported. */
bool leave_upgraded_database(THD *thd, const LEX_CSTRING &db, const std::vector<std::string> &files) {
  const LEX_CSTRING upgraded = {db.str + MYSQL50_TABLE_NAME_PREFIX_LENGTH,
                                db.length - MYSQL50_TABLE_NAME_PREFIX_LENGTH};
  const bool failed = rename_tables(thd, db, upgraded, files);
  if (failed) undo_upgrade(thd, db, upgraded);
  return failed;
}

int discover_table_names(handlerton *, LEX_CSTRING *db, MY_DIR *files, handlerton::discovered_list *result) {
  char directory[FN_REFLEN];
  tablename_to_filename(db->str, directory, sizeof directory);
  Listing listing;
  THD *thd = current_thd;
  const myriad_status status = myriad_list_tables(myriad_core, directory, list_name, &listing);
  if (status != MYRIAD_OK) {
    /* Without an error DROP DATABASE would say OK. */
    myriad_tell(status, thd, MYF(ME_ERROR_LOG));
    return 1;
  }
  /* Only DROP DATABASE and engines that look for files are given the folder's files. */
  if (files && in_drop_database(thd) && myriad_leave_drops(thd, db->str, files, &listing.names)) return 1;
  if (files && is_upgraded(thd, *db)) return leave_upgraded_database(thd, *db, listing.names);
  if (thd && thd_sql_command(thd) == SQLCOM_SHOW_TABLES && thd->lex->verbose)
    open_sequences(thd, *db, directory, listing.names);
  for (const std::string &name : listing.names)
    if (result->add_file(name.c_str())) return 1;
  return 0;
}

void note_missing(THD *thd, const std::string &name) {
  if (!thd || thd_sql_command(thd) != SQLCOM_DROP_TABLE) return;
  if (Session *session = Session::of(thd)) session->refused_drop.is_missing(thd, name);
}

int discover_table_existence(handlerton *, const char *db, const char *table) {
  char path[FN_REFLEN + 1];
  build_table_filename(path, sizeof path - 1, db, table, "", 0);
  const std::string name = myriad_name(path);
  bool exists = false;
  const myriad_status status = myriad_table_exists(myriad_core, name.c_str(), &exists);
  if (status != MYRIAD_OK) {
    /* The name is not free for all we know: a view, or a table of another engine, would hide ours. */
    myriad_tell(status, current_thd);
    return true;
  }
  if (!exists) note_missing(current_thd, name);
  return exists;
}

int drop_table(handlerton *, const char *path) {
  std::string name = myriad_name(path);
  THD *thd = current_thd;
  /* Without a .frm file the server cannot tell a sequence from a table; of its temporary ones it knows. */
  const bool unknown = thd && thd_sql_command(thd) == SQLCOM_DROP_SEQUENCE && !myriad_is_temporary_path(path);
  if (unknown && !is_sequence(name.c_str())) return HA_ERR_NO_SUCH_TABLE;
  const int error = myriad_drop(name, thd);
  if (error == HA_ERR_NO_SUCH_TABLE) note_missing(thd, name);
  return error;
}

/* After a crash in ALTER TABLE ... ALGORITHM=INPLACE: 0 if the new definition is committed. */
int check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong) {
  const std::string name = myriad_name(path);
  std::string image;
  if (myriad_read_frm(name.c_str(), &image)) return myriad_frm_has_version(image, version) ? 0 : 1;
  /* A partitioned table's image is in a file; its partitions have changed at once. */
  uchar id[MY_UUID_SIZE];
  if (myriad_definition_id(myriad_core, (name + MYRIAD_PARTITION).c_str(), id) != MYRIAD_OK) return 2;
  return version->length == sizeof id && !memcmp(id, version->str, sizeof id) ? 0 : 1;
}

std::atomic<bool> recovery_done{false};
/* A table with children that the server's log of DDL has dropped and whose copy has not got its name yet. */
std::string recovered_drop;

struct Beginning {
  std::string prefix;
  std::vector<std::string> names;
};

bool note_beginning(void *arg, const char *table, size_t length) {
  auto *found = static_cast<Beginning *>(arg);
  const std::string name(table, length);
  if (!name.compare(0, found->prefix.size(), found->prefix)) found->names.push_back(name);
  return true;
}

/* The directory's tables whose names begin so. */
myriad_status list_beginning(const std::string &directory, const std::string &prefix, std::vector<std::string> *names) {
  Beginning found{prefix, {}};
  const myriad_status status = myriad_list_tables(myriad_core, directory.c_str(), note_beginning, &found);
  names->swap(found.names);
  return status;
}

bool has_par_file(const std::string &path) { return !my_access((path + ".par").c_str(), F_OK); }

/* A copy of a table has an image; what builds a table anew in place (table_rebuild.h) has none. */
bool has_copy(const std::string &directory) {
  std::vector<std::string> names;
  if (list_beginning(directory, COPY, &names) != MYRIAD_OK) return false;
  std::string image;
  for (const std::string &name : names)
    if (myriad_read_frm((directory + "/" + name).c_str(), &image)) return true;
  return false;
}

/* A start finishes a copying ALTER: it drops the table, whose copy is complete, and renames that. A DROP TABLE that
   would have been refused is begun anew as well, but then there is no copy. */
bool is_replaced_in_recovery(const std::string &name) {
  if (recovery_done || !has_copy(name.substr(0, name.find('/')))) return false;
  recovered_drop = name;
  return true;
}

}  // namespace

void myriad_end_ddl_recovery() { recovery_done = true; }

std::string myriad_replaced_in_recovery() {
  std::string name;
  if (!recovery_done) name.swap(recovered_drop);
  return name;
}

bool myriad_is_partitioned_in_recovery(const char *path) {
  const std::string name = myriad_name(path);
  return !recovery_done && myriad::is_stand_in(name) && has_par_file(path) && is_away(name);
}

bool myriad_was_renamed_before_recovery(const char *from, const char *to) {
  const std::string old_name = myriad_name(from), new_name = myriad_name(to);
  return !recovery_done && myriad_is_partition(old_name) && myriad_is_partition(new_name) && is_away(old_name) &&
         myriad_is_there(new_name);
}

myriad_status myriad_list_partitions(const std::string &name, std::vector<std::string> *endings) {
  const size_t slash = name.find('/');
  const std::string table = name.substr(slash + 1);
  const myriad_status status = list_beginning(name.substr(0, slash), table + MYRIAD_PARTITION, endings);
  for (std::string &ending : *endings) ending.erase(0, table.size());
  return status;
}

myriad_status myriad_drop_lost_backup(std::string path) {
  const size_t at = path.rfind(FN_LIBCHAR) + 1;
  if (recovery_done || path.compare(at, strlen(COPY), COPY)) return MYRIAD_OK;
  path.replace(at, strlen(COPY), "#sql-backup");
  if (has_par_file(path)) return MYRIAD_OK;
  return myriad_drop_tables_with_prefix(myriad_core, (myriad_name(path.c_str()) + MYRIAD_PARTITION).c_str());
}

bool myriad_is_there(const std::string &name) {
  bool exists;
  return myriad_table_exists(myriad_core, name.c_str(), &exists) == MYRIAD_OK && exists;
}

myriad_status myriad_create(const std::string &name, const myriad_table_spec &spec) {
  const myriad_status status = myriad_create_table(myriad_core, name.c_str(), &spec);
  if (status != MYRIAD_ERR_TABLE_EXISTS || name.compare(name.find('/') + 1, strlen(COPY), COPY)) return status;
  const myriad_status dropped = myriad_drop_table(myriad_core, name.c_str());
  return dropped == MYRIAD_OK ? myriad_create_table(myriad_core, name.c_str(), &spec) : dropped;
}

int myriad_drop(const std::string &name, THD *thd) {
  const int command = thd ? thd_sql_command(thd) : SQLCOM_END;
  const bool drops = command == SQLCOM_DROP_TABLE || command == SQLCOM_CREATE_TABLE;
  Session *session = thd ? Session::of(thd, drops) : nullptr;
  /* No foreign key names a partition, and where the server drops one the table's .par file is gone already. */
  const bool may_refuse = !myriad::is_stand_in(name) && !myriad_is_partition(name) &&
                          !(session && session->refused_drop.has_made(thd, name));
  bool exists = false;
  const myriad_status looked = myriad_table_exists(myriad_core, name.c_str(), &exists);
  if (looked != MYRIAD_OK) return myriad_error_noted(looked, thd);
  if (thd && (drops || myriad::checks_foreign_keys(thd)) && may_refuse && exists) {
    const bool with_database = command == SQLCOM_DROP_DB;
    bool referenced = false;
    const myriad_status status = drops && session ? session->refused_drop.refuses(thd, name, &referenced)
                                                  : myriad::is_referenced_by_others(name, with_database, &referenced);
    if (status != MYRIAD_OK || (referenced && !is_replaced_in_recovery(name))) {
      if (session) session->violation.clear();
      if (session && drops) session->refused_drop.keep(thd, name);
      return status == MYRIAD_OK ? HA_ERR_ROW_IS_REFERENCED : myriad_error_noted(status, thd);
    }
  }
  const size_t partition = myriad_partition_at(name);
  if (partition != std::string::npos && (command == SQLCOM_DROP_TABLE || command == SQLCOM_DROP_DB)) {
    /* All of them with the first, at once: each alone would wait for the log. */
    if (!exists) return 0;
    const std::string all = name.substr(0, partition) + MYRIAD_PARTITION;
    return myriad_error_noted(myriad_drop_tables_with_prefix(myriad_core, all.c_str()), thd);
  }
  const myriad_status status = myriad_drop_table(myriad_core, name.c_str());
  if (status == MYRIAD_OK) myriad::is_set_aside_no_more(name);
  return myriad_error_noted(status, thd);
}

myriad_status myriad_find_frm(const char *name, std::string *image) {
  return myriad_get_frm(myriad_core, name, append_text, image);
}

bool myriad_read_frm(const char *name, std::string *image) {
  return myriad_find_frm(name, image) == MYRIAD_OK && !image->empty();
}

bool myriad_frm_is_sequence(const std::string &image) {
  constexpr size_t table_type = 39;
  return image.size() > table_type && (uchar(image[table_type]) & 0x30) == 0x20;
}

bool myriad_frm_has_version(const std::string &image, const LEX_CUSTRING *version) {
  constexpr size_t at = 66, length = MY_UUID_SIZE;
  if (!version || !version->str || version->length != length || image.size() < at + length) return false;
  return !memcmp(image.data() + at, version->str, length);
}

void myriad_remove_frm(const char *path) {
  char file[FN_REFLEN + 8];
  strxnmov(file, sizeof file - 1, path, reg_ext, NullS);
  my_delete(file, MYF(0));
}

void myriad_init_discovery(handlerton *hton) {
  hton->discover_table = discover_table;
  hton->discover_table_names = discover_table_names;
  hton->discover_table_existence = discover_table_existence;
  hton->drop_table = drop_table;
  hton->drop_database = myriad_drop_database_hook;
  hton->check_version = check_version;
}
