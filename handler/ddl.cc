/* CREATE, DROP, RENAME, TRUNCATE, and keeping the server's .frm files out of the way. */
#include "ha_myriad.h"
#include "discovery.h"
#include "foreign_keys.h"
#include "options.h"
#include "variables.h"
#include "create_options.h"
#include "partition_info.h"
#include "sql_partition.h"
#include <limits.h>

namespace {

int refuse(const char *what) {
  my_error(ER_NOT_SUPPORTED_YET, MYF(0), what);
  return HA_ERR_UNSUPPORTED;
}

/* All tables have one row format, which does what these three do; the others promise something that we do not have. */
bool has_row_format(enum row_type type) {
  switch (type) {
  case ROW_TYPE_NOT_USED:
  case ROW_TYPE_DEFAULT:
  case ROW_TYPE_DYNAMIC:
  case ROW_TYPE_COMPACT:
  case ROW_TYPE_REDUNDANT: return true;
  default: return false;
  }
}

int check_options(THD *thd, const HA_CREATE_INFO &create_info) {
  const char *option = myriad_refused_option(thd, create_info);
  if (!option) {
    myriad_warn_of_options(thd, create_info);
    return 0;
  }
  my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "MYRIAD", option);
  return HA_ERR_UNSUPPORTED;
}

int check_refused(TABLE *form) {
  if (myriad_lacks_primary_key(form)) return HA_ERR_UNSUPPORTED;
  for (uint i = 0; i < form->s->keys; i++) {
    if (form->key_info[i].flags & HA_FULLTEXT) return refuse("FULLTEXT index for the MYRIAD storage engine");
    if (form->key_info[i].flags & HA_SPATIAL) return refuse("SPATIAL index for the MYRIAD storage engine");
  }
  if (form->s->table_type == TABLE_TYPE_SEQUENCE && form->s->option_struct && form->s->option_struct->in_memory)
    return refuse("SEQUENCE with IN_MEMORY: a restart would take its value");
  return 0;
}

int refuse_name(const std::string &name, uint code) {
  char table[NAME_LEN + 1];
  filename_to_tablename(name.substr(name.rfind(FN_LIBCHAR) + 1).c_str(), table, sizeof table, true);
  my_error(code, MYF(0), table);
  return HA_ERR_UNSUPPORTED;
}

/* The server looks for a .frm file at each DROP, RENAME and ALTER; a name that the file system refuses makes those
   fail. With `#mysql50#` in front a name is taken as it is: a table with one like a partition's would be found by
   nobody. */
int check_name(const std::string &name, bool is_partition) {
  if (myriad_is_partition(name)) return is_partition ? 0 : refuse_name(name, ER_WRONG_TABLE_NAME);
  return name.size() - name.rfind(FN_LIBCHAR) - 1 + strlen(reg_ext) <= NAME_MAX ? 0
                                                                                : refuse_name(name, ER_TOO_LONG_IDENT);
}

bool alters_partitions(THD *thd, ulonglong how) {
  return thd && thd_sql_command(thd) == SQLCOM_ALTER_TABLE && (thd->lex->alter_info.partition_flags & how);
}

/* Replaces the image alone; empty: there is none. */
myriad_status set_image(const std::string &name, const uchar *image, size_t length) {
  myriad_new_definition definition{};
  definition.frm = image;
  definition.frm_len = length;
  return myriad_redefine_table(myriad_core, name.c_str(), &definition);
}

/* A partition has no definition of its own, but what a table that became one left with it is kept: a crash may make it
   that table again. A table that a partition becomes is not to find it. */
myriad_status forget_definition(const std::string &partition) {
  std::string image;
  const myriad_status status = myriad_find_frm(partition.c_str(), &image);
  if (status == MYRIAD_ERR_NO_SUCH_TABLE) return MYRIAD_OK;
  return status != MYRIAD_OK || image.empty() ? status : set_image(partition, nullptr, 0);
}

/* As it is where a partition became a table that has not been opened since: its .frm file holds all there is. */
bool has_definition(const std::string &name) {
  std::string image;
  return myriad_read_frm(name.c_str(), &image);
}

bool is_exchange(THD *thd) { return alters_partitions(thd, ALTER_PARTITION_EXCHANGE); }

/* Not when the server puts back what a failed statement or a crash left. */
bool renames(THD *thd) {
  return thd && !thd->is_error() &&
         (thd_sql_command(thd) == SQLCOM_RENAME_TABLE || thd_sql_command(thd) == SQLCOM_ALTER_TABLE);
}

/* The server relies on writing a file to find out that the database of a new table or name does not exist. */
bool has_folder(const char *path) {
  const std::string folder(path, dirname_length(path));
  return !my_access(folder.c_str(), F_OK);
}

bool same_folder(const char *a, const char *b) {
  return std::string(a, dirname_length(a)) == std::string(b, dirname_length(b));
}

const char *own_name_of(const engine_option_value &given) {
  for (const ha_create_table_option *own = myriad_table_options; own->name; own++)
    if (!my_strcasecmp(system_charset_info, given.name.str, own->name)) return own->name;
  return nullptr;
}

/* The first option of a partition or subpartition that is, or is not, one of ours. */
const engine_option_value *first_option(const partition_element &part, bool own) {
  const engine_option_value *given = part.option_list;
  while (given && !(given->value.str && own == !!own_name_of(*given))) given = given->next;
  return given;
}

const engine_option_value *first_option(const partition_info *info, bool own) {
  if (!info) return nullptr;
  for (const partition_element &part : const_cast<List<partition_element> &>(info->partitions)) {
    if (const engine_option_value *option = first_option(part, own)) return option;
    for (const partition_element &sub : const_cast<List<partition_element> &>(part.subpartitions))
      if (const engine_option_value *option = first_option(sub, own)) return option;
  }
  return nullptr;
}

/* Whether it is the first time that this is asked in a statement, which makes partition after partition. */
bool is_first(THD *thd, query_id_t *asked) { return std::exchange(*asked, thd->query_id) != thd->query_id; }

/* The server looks at the options of tables alone. Those of partitions that the statement does not name are kept, as it
   keeps tables', and in plain text, so that dumps have them. */
int check_unknown_options(THD *thd) {
  static thread_local query_id_t asked = 0;
  const engine_option_value *unknown = is_first(thd, &asked) ? first_option(thd->lex->part_info, false) : nullptr;
  if (!unknown) return 0;
  if (thd->is_strict_mode() && !thd->slave_thread && !(thd->variables.sql_mode & MODE_IGNORE_BAD_TABLE_OPTIONS)) {
    my_error(ER_UNKNOWN_OPTION, MYF(0), unknown->name.str);
    return HA_ERR_UNSUPPORTED;
  }
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_OPTION, ER_THD(thd, ER_UNKNOWN_OPTION),
                      unknown->name.str);
  return 0;
}

int check_partitions(const partition_info *info) {
  const char *option = myriad_option_of_partition(info);
  if (!option) return 0;
  my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "MYRIAD", (std::string(option) + " of a single partition").c_str());
  return HA_ERR_UNSUPPORTED;
}

int check_partitions_of(const TABLE_LIST *tables) {
  for (; tables; tables = tables->next_global)
    if (tables->table)
      if (int error = check_partitions(tables->table->part_info)) return error;
  return 0;
}

}  // namespace

bool myriad_lacks_primary_key(const TABLE *form) {
  if (!myriad_force_primary_key || form->s->primary_key < MAX_KEY || form->s->table_type == TABLE_TYPE_SEQUENCE)
    return false;
  my_error(ER_REQUIRES_PRIMARY_KEY, MYF(0));
  return true;
}

const char *myriad_option_of_partition(const partition_info *info) {
  const engine_option_value *option = first_option(info, true);
  return option ? own_name_of(*option) : nullptr;
}

const char *myriad_refused_option(THD *thd, const HA_CREATE_INFO &create_info) {
  /* A table of another engine may have had a folder of its own; the server gives none of an ALTER's to an engine. */
  const bool left_behind = thd_sql_command(thd) == SQLCOM_ALTER_TABLE && !thd->lex->part_info && !thd->work_part_info;
  if (create_info.data_file_name && !left_behind) return "DATA DIRECTORY";
  if (create_info.index_file_name && !left_behind) return "INDEX DIRECTORY";
  const bool lenient = thd_sql_command(thd) == SQLCOM_CREATE_TABLE && !thd->is_strict_mode();
  if (lenient || thd->slave_thread) return nullptr;
  if ((create_info.used_fields & HA_CREATE_USED_ROW_FORMAT) && !has_row_format(create_info.row_type)) return "ROW_TYPE";
  if ((create_info.used_fields & HA_CREATE_USED_KEY_BLOCK_SIZE) && create_info.key_block_size) return "KEY_BLOCK_SIZE";
  return nullptr;
}

void myriad_warn_of_options(THD *thd, const HA_CREATE_INFO &create_info) {
  constexpr ulonglong of_interest = HA_CREATE_USED_ENGINE | HA_CREATE_USED_ROW_FORMAT | HA_CREATE_USED_KEY_BLOCK_SIZE;
  static thread_local query_id_t asked = 0;
  if (thd_sql_command(thd) != SQLCOM_CREATE_TABLE && !(create_info.used_fields & of_interest)) return;
  if (!is_first(thd, &asked)) return;
  auto warn = [thd](const char *text) {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION, "MYRIAD: %s", text);
  };
  if (!has_row_format(create_info.row_type)) warn("ROW_FORMAT is ignored: all tables have one format, as DYNAMIC");
  if (create_info.key_block_size) warn("KEY_BLOCK_SIZE is ignored: pages are not compressed");
  if (create_info.data_file_name || create_info.index_file_name)
    warn("DATA DIRECTORY is ignored: the table moves to where the others are");
}

/* UNINSTALL leaves an engine that is default_storage_engine in use, for new tables too; but no name is looked for in it
   any more, so that a table would be there, and nobody find it, until the next start. */
static int check_installed(const handlerton *engine) {
  if (hton2plugin[engine->slot]->state == PLUGIN_IS_READY) return 0;
  my_error(ER_UNKNOWN_STORAGE_ENGINE, MYF(0), "MYRIAD");
  return HA_ERR_UNSUPPORTED;
}

int ha_myriad::create(const char *path, TABLE *form, HA_CREATE_INFO *create_info) {
  THD *thd = ha_thd();
  int error = check_installed(ht);
  if (!error) error = check_refused(form);
  if (!error) error = check_options(thd, *create_info);
  if (!error) error = check_partitions(form->part_info);
  if (!error) error = check_unknown_options(thd);
  if (!error) error = check_name(myriad_name(path), form->part_info);
  if (!error && !has_folder(path)) {
    my_error(ER_BAD_DB_ERROR, MYF(0), form->s->db.str);
    error = HA_ERR_UNSUPPORTED;
  }
  /* The server goes on though it could not write the new .frm file of a table whose partitions change, and would have
     neither the old one nor the new at the end. */
  if (!error && thd->is_error() && myriad_is_partition(myriad_name(path))) error = HA_ERR_GENERIC;
  if (error) return error;

  myriad::TablePlan plan(form);
  const std::vector<myriad_index_spec> indexes = plan.specs();

  myriad::ForeignKeys foreign_keys;
  myriad::KeptForeignKeys kept;
  if ((error = myriad::define_foreign_keys(thd, myriad_name(path), form, plan, create_info, &foreign_keys, &kept)))
    return myriad_told(error, ER_CANT_CREATE_TABLE);
  const bool keeps = !kept.names.empty();
  if (Session *session = keeps ? Session::of(thd) : Session::of(thd, false)) {
    session->copied_table = keeps ? myriad_name(path) : "";
    session->kept_foreign_keys = kept.names;
  }
  const myriad::ForeignKeySpecs foreign_key_specs(foreign_keys);
  std::vector<const char *> kept_keys;
  for (const std::string &name : kept.names) kept_keys.push_back(name.c_str());

  const uchar *image = nullptr;
  size_t image_length = 0;
  const bool temporary = create_info->options & HA_LEX_CREATE_TMP_TABLE;
  const bool has_image = !temporary && !myriad_is_partition(myriad_name(path));
  /* The server's own image stays with it: it opens temporary tables by that, which need none of ours, and takes one
     that it has to discover instead for a table whose creation the binary log knows, so that it would log the DROP in
     row format too. */
  const LEX_CUSTRING *own_image = has_image ? form->s->frm_image : nullptr;
  const bool read = has_image && !own_image && !form->s->read_frm_image(&image, &image_length) && image;
  if (own_image) {
    image = own_image->str;
    image_length = own_image->length;
  }

  myriad_table_spec spec;
  memset(&spec, 0, sizeof spec);
  spec.frm = image;
  spec.frm_len = image_length;
  spec.indexes = indexes.data();
  spec.index_count = uint32_t(indexes.size());
  spec.hidden_row_id = plan.hidden_row_id();
  spec.has_auto_increment = form->found_next_number_field != nullptr;
  spec.auto_increment_next = create_info->auto_increment_value;
  spec.temporary = temporary;
  spec.in_memory = form->s->option_struct && form->s->option_struct->in_memory;
  spec.tablespace_per = form->s->option_struct ? int32_t(form->s->option_struct->tablespace_per) - 1 : -1;
  spec.foreign_keys = foreign_key_specs.data();
  spec.foreign_key_count = foreign_key_specs.size();
  spec.kept_of = keeps ? kept.table.c_str() : nullptr;
  spec.kept_keys = kept_keys.data();
  spec.kept_key_count = uint32_t(kept_keys.size());
  myriad_status status = myriad_create(myriad_name(path), spec);
  if (read) form->s->free_frm_image(image);
  if (status == MYRIAD_OK && thd_sql_command(thd) == SQLCOM_CREATE_TABLE && myriad::fills_created_table(thd))
    if (Session *session = Session::of(thd)) session->refused_drop.is_made(thd, myriad_name(path));
  return myriad_told(myriad_error_noted(status, thd), ER_CANT_CREATE_TABLE);
}

int ha_myriad::delete_table(const char *path) { return myriad_drop(myriad_name(path), ha_thd()); }

/* After a crash in a copying ALTER the server's log of DDL gives the copy its name. It asks the engine that holds the
   partitions, which has no such table, where it should ask its own handler of partitioned tables: this does what that
   does, and is begun anew after another crash. */
int ha_myriad::rename_partitions(const char *from, const char *to) {
  std::vector<std::string> endings;
  const myriad_status status = myriad_list_partitions(myriad_name(from), &endings);
  if (status != MYRIAD_OK) return myriad_error_noted(status, ha_thd());
  for (const std::string &ending : endings)
    if (int error = rename_table((from + ending).c_str(), (to + ending).c_str())) return error;
  const bool failed =
      my_rename((std::string(from) + ".par").c_str(), (std::string(to) + ".par").c_str(), MYF(MY_WME | ME_ERROR_LOG));
  return failed ? my_errno : 0;
}

int ha_myriad::rename_table(const char *from, const char *to) {
  return myriad_told(rename_in_catalog(from, to), ER_ERROR_ON_RENAME);
}

int ha_myriad::rename_in_catalog(const char *from, const char *to) {
  myriad_status status = myriad_drop_lost_backup(from);
  if (status != MYRIAD_OK) return myriad_error_noted(status, ha_thd());
  if (myriad_is_partitioned_in_recovery(from)) return rename_partitions(from, to);
  if (myriad_was_renamed_before_recovery(from, to)) return 0;
  std::string old_name = myriad_name(from), new_name = myriad_name(to);
  if (!same_folder(from, to) && !has_folder(to)) return HA_ERR_GENERIC;
  /* A copying ALTER with RENAME: the copy takes the place of a table of another name. A partition never does: foreign
     keys name the whole table, which has none. */
  std::string replaced;
  const bool is_copy = myriad::is_stand_in(old_name) && !myriad_is_partition(new_name);
  if (is_copy && !myriad::is_stand_in(new_name) && !is_exchange(ha_thd())) replaced = myriad::altered_table(ha_thd());
  if (replaced.empty() && is_copy) replaced = myriad_replaced_in_recovery();
  const bool replaces = !replaced.empty() && replaced != new_name;
  const std::string own = replaces ? replaced : old_name;
  const bool becomes_partition = alters_partitions(ha_thd(), ALTER_PARTITION_EXCHANGE | ALTER_PARTITION_CONVERT_IN);
  if (renames(ha_thd()) && !becomes_partition && myriad_is_partition(new_name) && !myriad_is_partition(old_name))
    return refuse_name(new_name, ER_WRONG_TABLE_NAME);
  if (renames(ha_thd()) && (replaces || !myriad::is_stand_in(old_name)) && !myriad::is_stand_in(new_name))
    if (int error = myriad::check_new_name(ha_thd(), old_name, new_name)) return error;
  if (myriad_is_partition(old_name) && !myriad_is_partition(new_name) &&
      alters_partitions(ha_thd(), ALTER_PARTITION_CONVERT_OUT)) {
    if (int error = check_partitions_of(ha_thd()->lex->query_tables)) return error;
    status = forget_definition(old_name);
    if (status != MYRIAD_OK) return myriad_error_noted(status, ha_thd());
  }
  const bool is_set_aside = !myriad::is_stand_in(old_name) && myriad::is_stand_in(new_name);
  if (is_set_aside) myriad::sets_aside(old_name, new_name);
  status = myriad_rename_table(myriad_core, old_name.c_str(), new_name.c_str(), replaces ? replaced.c_str() : nullptr,
                               myriad::made_up_prefix(own).c_str(), myriad::made_up_prefix(new_name).c_str());
  if (status != MYRIAD_OK) {
    if (is_set_aside) myriad::is_set_aside_no_more(new_name);
    return myriad_error_noted(status, ha_thd());
  }
  myriad::is_set_aside_no_more(old_name);
  /* A copying ALTER can leave one behind; it would be renamed along and hide the catalog's definition. A table that a
     partition became keeps it until open() has adopted it. */
  if (!myriad_is_partition(old_name) && !myriad_is_partition(new_name) && has_definition(new_name))
    myriad_remove_frm(from);
  return exchange_definition(old_name, new_name);
}

/* EXCHANGE PARTITION renames three times with one handler: the table aside, the partition to the table's name, the
   table to the partition's. The partition has no definition: it takes that of the table aside. The table keeps its own,
   which a crash's recovery needs when it renames back. */
int ha_myriad::exchange_definition(const std::string &old_name, const std::string &new_name) {
  if (!is_exchange(ha_thd())) return 0;
  if (!myriad_is_partition(old_name)) {
    m_exchanged = {old_name, new_name};
    return 0;
  }
  std::string image;
  if (new_name != m_exchanged.name) return 0;
  const myriad_status status = myriad_find_frm(m_exchanged.aside.c_str(), &image);
  if (status != MYRIAD_OK && status != MYRIAD_ERR_NO_SUCH_TABLE) return myriad_error_noted(status, ha_thd());
  if (image.empty()) return 0;
  const auto *bytes = reinterpret_cast<const uchar *>(image.data());
  return myriad_error_noted(set_image(new_name, bytes, image.size()), ha_thd());
}

int ha_myriad::truncate() {
  close_cursor();
  if (int error = wait_for_prepared()) return error;
  myriad_status status = myriad_truncate_table(myriad_core, m_name.c_str(), 1);
  if (status != MYRIAD_OK) return myriad_error_noted(status, ha_thd());
  /* The handle points at the emptied table's old trees. */
  myriad_table *fresh = nullptr;
  status = myriad_table_open(myriad_core, m_name.c_str(), &fresh);
  if (status != MYRIAD_OK) {
    /* The table is empty for good, and the binary log must have it. The server opens the table anew for whoever comes
       next, but for a LOCK TABLES, whose statements fail. */
    sql_print_warning("MYRIAD: table %s has been truncated and cannot be opened again yet: %s", m_name.c_str(),
                      myriad_last_error());
    return 0;
  }
  myriad_table_close(m_table);
  m_table = fresh;
  name_indexes();
  return 0;
}

/* Called after the server has renamed the .frm file of an in-place ALTER. */
int ha_myriad::create_partitioning_metadata(const char *name, const char *, chf_create_flags action, bool) {
  if (action == CHF_RENAME_FLAG) myriad_remove_frm(name);
  return 0;
}

int ha_myriad::discover_check_version() {
  /* A partition that the statement that filled the table cache did not name is not open: it has no table yet. */
  if (!m_table || table->s->tmp_table || table->s->partition_info_str) return 0;
  return myriad_table_is_current(m_table) ? 0 : HA_ERR_TABLE_DEF_CHANGED;
}

/* The catalog's definition wins over a .frm file that a crash left; a table that was a partition has no image yet. */
int ha_myriad::adopt_definition() {
  if (myriad_is_temporary(m_name) || table->s->partition_info_str || myriad_is_partition(m_name) ||
      myriad::is_stand_in(m_name))
    return 0;
  /* The other end of a foreign key, see Relative::open(). */
  const bool as_relative = table->s->tmp_table;
  std::string image;
  if (myriad_read_frm(m_name.c_str(), &image)) {
    LEX_CUSTRING version = table->s->tabledef_version;
    if (!version.length || myriad_frm_has_version(image, &version)) return 0;
    if (!as_relative)
      sql_print_information("MYRIAD: table %s was opened with an outdated definition; reading it again",
                            m_name.c_str());
    return HA_ERR_TABLE_DEF_CHANGED;
  }
  if (as_relative) return HA_ERR_TABLE_DEF_CHANGED;
  const uchar *bytes = nullptr;
  size_t length = 0;
  if (table->s->read_frm_image(&bytes, &length) || !bytes) return 0;
  /* Others may be here too, or have opened the table and use it: one table has one counter of each kind. */
  myriad_status status = myriad_adopt_frm(myriad_core, m_name.c_str(), bytes, length);
  table->s->free_frm_image(bytes);
  if (status != MYRIAD_OK) return myriad_error_noted(status, ha_thd());
  myriad_remove_frm(table->s->normalized_path.str);
  return 0;
}

namespace {

/* Whether the indexes have the same names in the same order. The server compares those of one name, whatever their
   place, but a table's indexes are numbered in the order of its definition. */
bool same_order_of_indexes(const TABLE &a, const TABLE &b) {
  if (a.s->keys != b.s->keys) return false;
  for (uint i = 0; i < a.s->keys; i++)
    if (my_strcasecmp(system_charset_info, a.key_info[i].name.str, b.key_info[i].name.str)) return false;
  return true;
}

/* Whether rows hold the same columns: the server compares types alone. */
bool same_stored_columns(const TABLE &a, const TABLE &b) {
  if (a.s->fields != b.s->fields) return false;
  for (uint i = 0; i < a.s->fields; i++)
    if (a.field[i]->stored_in_db() != b.field[i]->stored_in_db()) return false;
  return true;
}

}  // namespace

/* Asked for a partition of this table and the table that it is to be exchanged with, or that becomes one, of which the
   server has compared columns and indexes. All other changes are for check_if_supported_inplace_alter(). */
bool ha_myriad::check_if_incompatible_data(HA_CREATE_INFO *create_info, uint changes) {
  if (!alters_partitions(ha_thd(), ALTER_PARTITION_EXCHANGE | ALTER_PARTITION_CONVERT_IN) || changes != IS_EQUAL_YES)
    return COMPATIBLE_DATA_NO;
  const ha_table_option_struct *own = table->s->option_struct, *other = create_info->option_struct;
  if ((own && own->in_memory) != (other && other->in_memory)) return COMPATIBLE_DATA_NO;
  const LEX *lex = ha_thd()->lex;
  if (check_partitions(lex->part_info) || check_partitions_of(lex->query_tables)) return COMPATIBLE_DATA_NO;
  for (const TABLE_LIST *t = lex->query_tables; t; t = t->next_global)
    if (t->table && t->table != table &&
        !(same_order_of_indexes(*table, *t->table) && same_stored_columns(*table, *t->table)))
      return COMPATIBLE_DATA_NO;
  return COMPATIBLE_DATA_YES;
}

int ha_myriad::discard_or_import_tablespace(my_bool discard) {
  return refuse(discard ? "DISCARD TABLESPACE for the MYRIAD storage engine"
                        : "IMPORT TABLESPACE for the MYRIAD storage engine");
}
