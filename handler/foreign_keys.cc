/* FOREIGN KEY constraints: definitions, checks of DDL, reports. */
#include "foreign_keys.h"
#include "expressions.h"
#include "ha_myriad.h"
#include "options.h"
#include "references.h"
#include "sql_alter.h"
#include <algorithm>
#include <map>
#include <mutex>
#include <set>

namespace myriad {

namespace {

constexpr const char *STAND_IN = "#sql";

/* Tables that a copying ALTER has renamed to make room for the copy, by the names that they have meanwhile. */
class SetAside {
public:
  void add(const std::string &stand_in, const std::string &name) {
    std::lock_guard<std::mutex> guard(m_mutex);
    m_names[stand_in] = name;
  }
  void remove(const std::string &stand_in) {
    std::lock_guard<std::mutex> guard(m_mutex);
    m_names.erase(stand_in);
  }
  /* Empty: it is none. */
  std::string name_of(const std::string &stand_in) {
    std::lock_guard<std::mutex> guard(m_mutex);
    const auto found = m_names.find(stand_in);
    return found == m_names.end() ? "" : found->second;
  }

private:
  std::mutex m_mutex;
  std::map<std::string, std::string> m_names;
};
SetAside set_aside;

void collect(void *arg, const char *table, const myriad_foreign_key *key) {
  ForeignKey found;
  found.name = key->name;
  found.child = table;
  found.parent = key->parent;
  found.on_delete = key->on_delete;
  found.on_update = key->on_update;
  found.columns.assign(key->columns, key->columns + key->column_count);
  found.parent_columns.assign(key->parent_columns, key->parent_columns + key->column_count);
  static_cast<ForeignKeys *>(arg)->push_back(std::move(found));
}

std::string database_of(const std::string &core_name) { return core_name.substr(0, core_name.find('/')); }

void append_list(THD *thd, const std::vector<std::string> &columns, String *text) {
  text->append('(');
  for (size_t i = 0; i < columns.size(); i++) {
    if (i) text->append(STRING_WITH_LEN(", "));
    append_identifier(thd, text, columns[i].c_str(), columns[i].size());
  }
  text->append(')');
}

void append_action(const char *event, uint32_t action, String *text) {
  static const char *const names[] = {nullptr, "NO ACTION", "CASCADE", "SET NULL"};
  if (action == MYRIAD_RESTRICT || action > MYRIAD_SET_NULL) return;
  text->append(event, strlen(event));
  text->append(names[action], strlen(names[action]));
}

void append_definition(THD *thd, const ForeignKey &key, String *text) {
  text->append(STRING_WITH_LEN(" CONSTRAINT "));
  append_identifier(thd, text, key.name.c_str(), key.name.size());
  text->append(STRING_WITH_LEN(" FOREIGN KEY "));
  append_list(thd, key.columns, text);
  text->append(STRING_WITH_LEN(" REFERENCES "));
  const SqlName parent = sql_name(key.parent);
  if (database_of(key.parent) != database_of(key.child)) {
    append_identifier(thd, text, parent.db.c_str(), parent.db.size());
    text->append('.');
  }
  append_identifier(thd, text, parent.table.c_str(), parent.table.size());
  text->append(' ');
  append_list(thd, key.parent_columns, text);
  append_action(" ON DELETE ", key.on_delete, text);
  append_action(" ON UPDATE ", key.on_update, text);
}

uint32_t action_of(enum_fk_option option) {
  switch (option) {
  case FK_OPTION_CASCADE: return MYRIAD_CASCADE;
  case FK_OPTION_SET_NULL: return MYRIAD_SET_NULL;
  case FK_OPTION_NO_ACTION: return MYRIAD_NO_ACTION;
  default: return MYRIAD_RESTRICT;
  }
}

enum_fk_option option_of(uint32_t action) {
  switch (action) {
  case MYRIAD_CASCADE: return FK_OPTION_CASCADE;
  case MYRIAD_SET_NULL: return FK_OPTION_SET_NULL;
  case MYRIAD_NO_ACTION: return FK_OPTION_NO_ACTION;
  default: return FK_OPTION_RESTRICT;
  }
}

bool same_name(const char *a, const char *b) { return !my_strcasecmp(system_charset_info, a, b); }

/* What is wrong with a definition, as InnoDB words it: a copying statement tells it in a warning, one in place in its
   error. */
class Refusal {
public:
  Refusal(THD *thd, const Foreign_key *key, bool in_place, const std::string &name)
      : m_thd(thd), m_in_place(in_place), m_name(name) {
    const bool alters = thd_sql_command(thd) != SQLCOM_CREATE_TABLE;
    m_operation = alters ? "Alter" : "Create";
    if (key->constraint_name.str) m_given_name.assign(key->constraint_name.str, key->constraint_name.length);
    if (key->name.str) {
      m_key = " `" + std::string(key->name.str, key->name.length) + "`";
      return;
    }
    List_iterator_fast<Key_part_spec> parts(const_cast<List<Key_part_spec> &>(key->columns));
    while (Key_part_spec *part = parts++)
      m_key += (m_key.empty() ? " (" : ", ") + std::string(part->field_name.str, part->field_name.length);
    m_key += ")";
  }
  int no_parent_index(const TABLE *form, const std::string &parent, const std::string &why) const {
    if (!m_in_place) return (*this)(form, why);
    my_error(ER_FK_NO_INDEX_PARENT, MYF(0), m_given_name.c_str(), sql_name(parent).table.c_str());
    return HA_ERR_CANNOT_ADD_FOREIGN;
  }
  int incorrect_option(const TABLE *form, const std::string &why) const {
    if (!m_in_place) return (*this)(form, why);
    const std::string name = std::string(form->s->db.str, form->s->db.length) + "/" + m_name;
    my_error(ER_FK_INCORRECT_OPTION, MYF(0), form->s->table_name.str, name.c_str());
    return HA_ERR_CANNOT_ADD_FOREIGN;
  }
  bool in_place() const { return m_in_place; }
  int temporary(const TABLE *form) {
    m_key.clear();
    return (*this)(form, "Temporary tables can't have foreign key constraints.");
  }
  int no_parent_column(const TABLE *form, const std::string &parent, const std::string &column) const {
    const std::string why = "Column " + column + " was not found.";
    return m_in_place ? no_parent_index(form, parent, why) : warn(form, "foreign key", why);
  }
  int operator()(const TABLE *form, const std::string &why) const { return warn(form, "with foreign key", why); }

private:
  int warn(const TABLE *form, const char *with, const std::string &why) const {
    String name;
    append_identifier(m_thd, &name, form->s->db.str, form->s->db.length);
    name.append('.');
    append_identifier(m_thd, &name, form->s->table_name.str, form->s->table_name.length);
    push_warning_printf(m_thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN,
                        "%s  table %s %s%s constraint failed. %s", m_operation, name.c_ptr_safe(), with, m_key.c_str(),
                        why.c_str());
    return HA_ERR_CANNOT_ADD_FOREIGN;
  }
  THD *m_thd;
  bool m_in_place;
  const char *m_operation;
  std::string m_key, m_name, m_given_name;
};

/* A foreign key under a name of its own. */
int add_key(THD *thd, const TABLE *form, bool in_place, ForeignKey &&key, ForeignKeys *keys) {
  for (const ForeignKey &other : *keys) {
    if (!same_name(other.name.c_str(), key.name.c_str())) continue;
    const std::string database(form->s->db.str, form->s->db.length);
    if (in_place) {
      my_error(ER_DUP_CONSTRAINT_NAME, MYF(0), "FOREIGN KEY", (database + "/" + key.name).c_str());
    } else {
      String definition;
      append_definition(thd, key, &definition);
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_FOUND_DUPP_KEY,
                          "CREATE or ALTER TABLE `%s`.`%s` failed: duplicate name,%s", database.c_str(),
                          form->s->table_name.str, definition.c_ptr_safe());
    }
    return HA_ERR_FOUND_DUPP_KEY;
  }
  keys->push_back(std::move(key));
  return 0;
}

std::string text_of(Index_problem problem, const std::string &column, const std::string &parent_column) {
  switch (problem) {
  case Index_problem::OnlyPrefix:
    return "There is only prefix index in the referenced table where the referenced columns appear as the first "
           "columns.";
  case Index_problem::NotComparable:
    return "Field type or character set for column '" + column + "' does not match referenced column '" +
           parent_column + "'.";
  default: return "There is no index in the referenced table where the referenced columns appear as the first columns.";
  }
}

/* Whether some stored generated column is computed from this one. */
bool feeds_stored_column(TABLE *form, Field *column) {
  for (Field **generated = form->vfield; generated && *generated; generated++)
    if ((*generated)->stored_in_db() && myriad::fields_of((*generated)->vcol_info->expr, form)[column->field_index])
      return true;
  return false;
}

ulonglong highest_number(const ForeignKeys &keys, const std::string &prefix) {
  ulonglong highest = 0;
  for (const ForeignKey &key : keys) {
    if (key.name.size() <= prefix.size() || key.name.compare(0, prefix.size(), prefix)) continue;
    /* A longer number has no next one for certain. */
    const std::string digits = key.name.substr(prefix.size());
    if (digits.size() > 18 || digits[0] == '0' || digits.find_first_not_of("0123456789") != std::string::npos) continue;
    highest = std::max<ulonglong>(highest, std::stoull(digits));
  }
  return highest;
}

ForeignKey read_definition(const Foreign_key &from, const std::string &child, const std::string &database) {
  ForeignKey key;
  if (from.constraint_name.str)
    key.name.assign(from.constraint_name.str, from.constraint_name.length);
  else if (from.old && from.name.str)
    key.name.assign(from.name.str, from.name.length);
  key.child = child;
  std::string db = from.ref_db.str ? std::string(from.ref_db.str, from.ref_db.length) : database;
  std::string table(from.ref_table.str, from.ref_table.length);
  if (lower_case_table_names) {
    my_casedn_str(files_charset_info, &db[0]);
    my_casedn_str(files_charset_info, &table[0]);
  }
  key.parent = core_name(db, table);
  key.on_delete = action_of(from.delete_opt);
  key.on_update = action_of(from.update_opt);
  for (Key_part_spec &part : const_cast<List<Key_part_spec> &>(from.columns))
    key.columns.emplace_back(part.field_name.str, part.field_name.length);
  for (Key_part_spec &part : const_cast<List<Key_part_spec> &>(from.ref_columns))
    key.parent_columns.emplace_back(part.field_name.str, part.field_name.length);
  return key;
}

int refuse(const char *what) {
  my_error(ER_NOT_SUPPORTED_YET, MYF(0), what);
  return HA_ERR_UNSUPPORTED;
}

/* What no table with a foreign key may be, in either role. */
int check_kind(const TABLE *table) {
  if (table->s->option_struct && table->s->option_struct->in_memory)
    return refuse("FOREIGN KEY from or to an IN_MEMORY table of the MYRIAD storage engine");
  if (table->versioned()) return refuse("FOREIGN KEY from or to a system-versioned table of the MYRIAD storage engine");
  return 0;
}

/* Nobody who writes the table now knows of the new child: waits for all of them. Its database must not be dropped
   meanwhile: DROP DATABASE has looked for children before, and waits only for tables in use when it begins. */
bool lock_parent(THD *thd, const std::string &parent) {
  const SqlName name = sql_name(parent);
  MDL_request request;
  MDL_REQUEST_INIT(&request, MDL_key::SCHEMA, name.db.c_str(), "", MDL_INTENTION_EXCLUSIVE, MDL_TRANSACTION);
  if (thd->mdl_context.acquire_lock(&request, double(thd->variables.lock_wait_timeout))) return true;
  MDL_REQUEST_INIT(&request, MDL_key::TABLE, name.db.c_str(), name.table.c_str(), MDL_SHARED_NO_WRITE, MDL_TRANSACTION);
  return thd->mdl_context.acquire_lock(&request, double(thd->variables.lock_wait_timeout));
}

/* Whether the new table is filled with rows, whose parents must stay: metadata locks keep those who have a connection
   from taking them away. */
bool copies_rows(THD *thd) { return thd_sql_command(thd) != SQLCOM_CREATE_TABLE || myriad::fills_created_table(thd); }

bool sets_null(const ForeignKey &key) { return key.on_delete == MYRIAD_SET_NULL || key.on_update == MYRIAD_SET_NULL; }

std::string text_of_not_null(const std::string &column) {
  return "You have defined a SET NULL condition but column '" + column + "' is defined as NOT NULL.";
}

int check_null(const Refusal &refused, TABLE *form, const ForeignKey &key) {
  for (const std::string &column : key.columns)
    if (sets_null(key) && !find_column(form, column)->real_maybe_null())
      return refused.incorrect_option(form, text_of_not_null(column));
  return 0;
}

/* A new foreign key: its columns get the names that the tables spell them with. Its problems in the order that InnoDB
   finds them in. */
int check_new(THD *thd, const Refusal &refused, TABLE *form, const TablePlan &plan, bool self, ForeignKey *key) {
  for (std::string &column : key->columns) {
    Field *field = find_column(form, column);
    if (!field) return refused(form, "Column " + column + " was not found.");
    column = field->field_name.str;
    const bool changes_column = key->on_delete == MYRIAD_SET_NULL || key->on_update >= MYRIAD_CASCADE;
    if (changes_column && feeds_stored_column(form, field))
      return refused(form, "Cannot add foreign key constraint placed on the base column of stored column.");
  }
  Index_problem problem;
  uint at = 0;
  if (find_index(form, plan, key->columns, nullptr, {}, &problem, &at) >= MAX_KEY)
    return refused(form, text_of(problem, key->columns[at], key->columns[at]));
  if (refused.in_place())
    if (int error = check_null(refused, form, *key)) return error;
  std::unique_ptr<Relative> other;
  if (!self) {
    if (lock_parent(thd, key->parent)) return HA_ERR_LOCK_WAIT_TIMEOUT;
    if (int error = Relative::open(thd, key->parent, &other)) return error;
    if (!other) {
      if (!checks_foreign_keys(thd)) return check_null(refused, form, *key);
      const SqlName parent = sql_name(key->parent);
      return refused(form,
                     "Referenced table `" + parent.db + "`.`" + parent.table + "` not found in the data dictionary.");
    }
    if (int error = check_kind(other->table())) return error;
    if (!refused.in_place() && copies_rows(thd))
      if (int error = other->file()->wait_for_prepared()) return other->file()->report(error);
  }
  const TABLE *parent = self ? form : other->table();
  const TablePlan &parent_plan = self ? plan : other->file()->plan();
  for (std::string &column : key->parent_columns) {
    Field *field = find_column(parent, column);
    if (!field) return refused.no_parent_column(form, key->parent, column);
    column = field->field_name.str;
  }
  if (find_index(parent, parent_plan, key->parent_columns, form, key->columns, &problem, &at) >= MAX_KEY) {
    const std::string why = text_of(problem, key->columns[at], key->parent_columns[at]);
    if (problem == Index_problem::NotComparable) return refused.incorrect_option(form, why);
    return refused.no_parent_index(form, key->parent, why);
  }
  if (int error = check_null(refused, form, *key)) return error;
  if (refused.in_place()) return 0;
  /* As InnoDB has it: in strict mode, and only where no other action is given that it would be compatible with. */
  const bool may_set_null = key->on_update == MYRIAD_CASCADE && key->on_delete != MYRIAD_CASCADE &&
                            key->on_delete != MYRIAD_NO_ACTION && thd->is_strict_mode();
  for (size_t i = 0; i < key->columns.size() && may_set_null; i++)
    if (!find_column(form, key->columns[i])->real_maybe_null() &&
        find_column(parent, key->parent_columns[i])->real_maybe_null())
      return refused(form, "ON UPDATE CASCADE could set column '" + key->columns[i] + "' to NULL, which is NOT NULL.");
  return 0;
}

/* A foreign key has no index in the new table: 0 if it had none in the old one either. */
int index_is_needed(THD *thd, const std::string &altered, const std::vector<std::string> &columns) {
  std::unique_ptr<Relative> before;
  if (int error = Relative::open(thd, altered, &before)) return error;
  const uint no = before ? find_index(before->table(), before->file()->plan(), columns, nullptr, {}) : MAX_KEY;
  if (no >= MAX_KEY) return 0;
  my_error(ER_DROP_INDEX_FK, MYF(0), before->table()->key_info[no].name.str);
  /* Not HA_ERR_DROP_INDEX_FK: the server would look for the index in the new table. */
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

/* What a copying ALTER leaves as it is: the new table must not lack an index that the old one has for it. */
int check_kept(THD *thd, const std::string &altered, TABLE *form, const TablePlan &plan, const ForeignKey &key) {
  if (!checks_foreign_keys(thd)) return 0;
  if (find_index(form, plan, key.columns, nullptr, {}) >= MAX_KEY)
    if (int error = index_is_needed(thd, altered, key.columns)) return error;
  if (key.parent != altered || find_index(form, plan, key.parent_columns, form, key.columns) < MAX_KEY) return 0;
  return index_is_needed(thd, altered, key.parent_columns);
}

/* A table called `name` is made or changed: whether it can be the parent that the foreign keys of others name. */
int check_children(THD *thd, const std::string &name, bool creates, TABLE *form, const TablePlan &plan) {
  ForeignKeys children;
  if (int error = myriad_error_noted(references_to(name, &children), thd)) return error;
  if (!children.empty())
    if (int error = check_kind(form)) return error;
  for (const ForeignKey &key : children) {
    if (key.child == name || !checks_foreign_keys(thd)) continue;
    std::unique_ptr<Relative> child;
    if (int error = Relative::open(thd, key.child, &child)) return error;
    if (!child) continue;
    Index_problem problem;
    if (find_index(form, plan, key.parent_columns, child->table(), key.columns, &problem) < MAX_KEY) continue;
    if (creates || problem != Index_problem::NotFound) return HA_ERR_CANNOT_ADD_FOREIGN;
    if (int error = index_is_needed(thd, name, key.parent_columns)) return error;
  }
  return 0;
}

/* A name for a foreign key that is given none. The server takes none that is longer, so no dump could be loaded. */
int make_up_name(const std::string &prefix, ulonglong *number, std::string *name) {
  *name = prefix + std::to_string(++*number);
  if (system_charset_info->numchars(name->data(), name->data() + name->size()) <= NAME_CHAR_LEN) return 0;
  my_error(ER_TOO_LONG_IDENT, MYF(0), name->c_str());
  return HA_ERR_UNSUPPORTED;
}

}  // namespace

bool fills_created_table(THD *thd) {
  const SELECT_LEX *select = thd->lex->first_select_lex();
  return select->item_list.elements || select->tvc;
}

ForeignKeySpecs::ForeignKeySpecs(const ForeignKeys &keys) {
  m_columns.reserve(2 * keys.size());
  auto pointers = [this](const std::vector<std::string> &columns) {
    m_columns.emplace_back();
    for (const std::string &column : columns) m_columns.back().push_back(column.c_str());
    return m_columns.back().data();
  };
  for (const ForeignKey &key : keys) {
    myriad_foreign_key spec;
    spec.name = key.name.c_str();
    spec.parent = key.parent.c_str();
    spec.on_delete = key.on_delete;
    spec.on_update = key.on_update;
    spec.columns = pointers(key.columns);
    spec.parent_columns = pointers(key.parent_columns);
    spec.column_count = uint32_t(key.columns.size());
    m_specs.push_back(spec);
  }
}

SqlName sql_name(const std::string &core_name) {
  char db[NAME_LEN + 1], table[NAME_LEN + 1];
  const size_t slash = core_name.find('/');
  filename_to_tablename(core_name.substr(0, slash).c_str(), db, sizeof db, true);
  filename_to_tablename(core_name.substr(slash + 1).c_str(), table, sizeof table, true);
  return {db, table};
}

std::string made_up_prefix(const std::string &table) { return sql_name(table).table + "_ibfk_"; }

std::string core_name(const std::string &db, const std::string &table) {
  char path[FN_REFLEN + 1];
  build_table_filename(path, sizeof path - 1, db.c_str(), table.c_str(), "", 0);
  return myriad_name(path);
}

bool is_stand_in(const std::string &core_name) {
  return !core_name.compare(core_name.find('/') + 1, strlen(STAND_IN), STAND_IN);
}

void sets_aside(const std::string &name, const std::string &stand_in) { set_aside.add(stand_in, name); }

void is_set_aside_no_more(const std::string &stand_in) { set_aside.remove(stand_in); }

bool checks_foreign_keys(THD *thd) { return !thd || !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS); }

myriad_status foreign_keys_of(const std::string &table, ForeignKeys *keys) {
  keys->clear();
  return myriad_list_foreign_keys(myriad_core, table.c_str(), collect, keys);
}

myriad_status references_to(const std::string &parent, ForeignKeys *keys) {
  keys->clear();
  const myriad_status status = myriad_list_references(myriad_core, parent.c_str(), collect, keys);
  /* A child that a copying ALTER has set aside, and whose copy has not got its name yet, is a child under that name:
     who takes the metadata lock on it waits for the ALTER. */
  std::set<std::string> children;
  for (const ForeignKey &key : *keys) children.insert(key.child);
  for (ForeignKey &key : *keys) {
    if (!is_stand_in(key.child)) continue;
    const std::string name = set_aside.name_of(key.child);
    if (!name.empty() && !children.count(name)) key.child = name;
  }
  keys->erase(std::remove_if(keys->begin(), keys->end(), [](const ForeignKey &key) { return is_stand_in(key.child); }),
              keys->end());
  return status;
}

myriad_status is_referenced_by_others(const std::string &parent, bool with_database, bool *out) {
  ForeignKeys keys;
  const myriad_status status = references_to(parent, &keys);
  *out = std::any_of(keys.begin(), keys.end(), [&](const ForeignKey &key) {
    return key.child != parent && !(with_database && database_of(key.child) == database_of(parent));
  });
  return status;
}

std::string violation_text(THD *thd, const ForeignKey &key) {
  SqlName child = sql_name(key.child);
  for (std::string *name : {&child.db, &child.table})
    if (!name->compare(0, MYSQL50_TABLE_NAME_PREFIX_LENGTH, MYSQL50_TABLE_NAME_PREFIX))
      name->erase(0, MYSQL50_TABLE_NAME_PREFIX_LENGTH);
  String text;
  append_identifier(thd, &text, child.db.c_str(), child.db.size());
  text.append('.');
  append_identifier(thd, &text, child.table.c_str(), child.table.size());
  text.append(',');
  append_definition(thd, key, &text);
  return std::string(text.ptr(), text.length());
}

Field *find_column(const TABLE *table, const std::string &name) {
  for (Field **field = table->field; *field; field++)
    if (same_name((*field)->field_name.str, name.c_str())) return *field;
  return nullptr;
}

bool is_comparable(const Field *a, const Field *b) {
  const KeyPart x = make_column_part(const_cast<Field *>(a)), y = make_column_part(const_cast<Field *>(b));
  auto is_binary_string = [](const Field *field, const KeyPart &part) {
    return part.kind == PartKind::Binary || (part.kind == PartKind::Bytes && field->real_type() == MYSQL_TYPE_STRING);
  };
  if (is_binary_string(a, x) && is_binary_string(b, y)) return true;
  if (x.kind != y.kind || is_binary_string(a, x) || is_binary_string(b, y)) return false;
  switch (x.kind) {
  case PartKind::Text: return a->charset() == b->charset();
  case PartKind::Unsigned:
  case PartKind::Signed: return x.length == y.length;
  case PartKind::Float:
  case PartKind::Double: return true;
  default:
    return a->real_type() == b->real_type() && x.length == y.length && a->decimals() == b->decimals() &&
           a->field_length == b->field_length;
  }
}

uint find_index(const TABLE *table, const TablePlan &plan, const std::vector<std::string> &columns, const TABLE *types,
                const std::vector<std::string> &type_columns, Index_problem *problem, uint *column) {
  Index_problem found = Index_problem::NotFound;
  uint at = 0;
  for (uint no = 0; no < table->s->keys; no++) {
    const KEY &key = table->key_info[no];
    const IndexPlan &index = plan.index(no);
    if (key.user_defined_key_parts < columns.size() || key.algorithm == HA_KEY_ALG_LONG_HASH) continue;
    uint i = 0;
    for (; i < columns.size(); i++) {
      const Field *field = table->field[key.key_part[i].fieldnr - 1];
      if (index.parts[i].prefix) {
        found = Index_problem::OnlyPrefix;
        at = i;
        break;
      }
      if (!same_name(field->field_name.str, columns[i].c_str())) break;
      const Field *type = types ? find_column(types, type_columns[i]) : nullptr;
      if (types && (!type || !is_comparable(field, type))) {
        found = Index_problem::NotComparable;
        at = i;
        break;
      }
    }
    if (i < columns.size()) continue;
    if (problem) *problem = Index_problem::None;
    return no;
  }
  if (problem) *problem = found;
  if (column) *column = at;
  return MAX_KEY;
}

std::string altered_table(THD *thd) {
  if (!thd) return "";
  switch (thd_sql_command(thd)) {
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR: break;
  default: return "";
  }
  const TABLE_LIST *first = thd->lex->first_select_lex()->table_list.first;
  if (!first || !first->db.str || !first->table_name.str) return "";
  return core_name(std::string(first->db.str, first->db.length),
                   std::string(first->table_name.str, first->table_name.length));
}

int define_foreign_keys(THD *thd, const std::string &name, TABLE *form, const TablePlan &plan,
                        HA_CREATE_INFO *create_info, ForeignKeys *keys, KeptForeignKeys *kept) {
  const bool creates = thd_sql_command(thd) == SQLCOM_CREATE_TABLE || !is_stand_in(name);
  const std::string final_name = creates ? name
                                         : core_name(std::string(form->s->db.str, form->s->db.length),
                                                     std::string(form->s->table_name.str, form->s->table_name.length));
  /* Before a RENAME in the same statement. */
  std::string old_name = creates ? name : altered_table(thd);
  if (old_name.empty()) old_name = final_name;
  kept->table = old_name;
  ForeignKeys before;
  if (!creates)
    if (int error = myriad_error_noted(foreign_keys_of(old_name, &before), thd)) return error;
  const std::string prefix = made_up_prefix(final_name);
  /* Names with the old prefix get the new one with the table's new name. */
  ulonglong number = std::max(highest_number(before, prefix), highest_number(before, made_up_prefix(old_name)));
  const std::string database(form->s->db.str, form->s->db.length);
  if (create_info->alter_info) {
    List_iterator_fast<Key> list(create_info->alter_info->key_list);
    while (Key *each = list++) {
      /* CREATE TABLE ... LIKE names those of its model as old. */
      if (each->type != Key::FOREIGN_KEY || (each->old && creates)) continue;
      const auto *from = static_cast<const Foreign_key *>(each);
      ForeignKey key = read_definition(*from, name, database);
      Refusal refused(thd, from, false, key.name);
      if (!each->old) {
        if (create_info->options & HA_LEX_CREATE_TMP_TABLE) return refused.temporary(form);
        if (int error = check_new(thd, refused, form, plan, key.parent == final_name, &key)) return error;
        if (key.name.empty())
          if (int error = make_up_name(prefix, &number, &key.name)) return error;
      } else {
        kept->names.push_back(key.name);
        if (int error = check_kept(thd, old_name, form, plan, key)) return error;
        for (const std::string &column : key.columns) {
          const Field *field = find_column(form, column);
          if (sets_null(key) && field && !field->real_maybe_null()) return refused(form, text_of_not_null(column));
        }
      }
      if (int error = add_key(thd, form, false, std::move(key), keys)) return error;
    }
  }
  if (create_info->options & HA_LEX_CREATE_TMP_TABLE) return 0;
  if (!keys->empty())
    if (int error = check_kind(form)) return error;
  for (const std::string &known_as : std::set<std::string>{old_name, final_name})
    if (int error = check_children(thd, known_as, creates, form, plan)) return error;
  return 0;
}

int check_new_name(THD *thd, const std::string &old_name, const std::string &new_name) {
  ForeignKeys children;
  if (int error = myriad_error_noted(references_to(new_name, &children), thd)) return error;
  if (children.empty()) return 0;
  std::unique_ptr<Relative> parent;
  if (int error = Relative::open(thd, old_name, &parent)) return error;
  if (parent)
    if (int error = check_kind(parent->table())) return error;
  for (const ForeignKey &key : children) {
    std::unique_ptr<Relative> child;
    if (int error = Relative::open(thd, key.child, &child)) return error;
    if (!parent || !child) continue;
    if (find_index(parent->table(), parent->file()->plan(), key.parent_columns, child->table(), key.columns) >= MAX_KEY)
      return HA_ERR_CANNOT_ADD_FOREIGN;
  }
  return 0;
}

}  // namespace myriad

using namespace myriad;

/* ---- what the server asks -----------------------------------------------------------------------------------------
 */

namespace {

LEX_CSTRING *make_text(THD *thd, const std::string &text) {
  return thd_make_lex_string(thd, nullptr, text.c_str(), text.size(), true);
}

/* `details`: which columns may be NULL and which index is referenced, for which both tables must be opened. */
FOREIGN_KEY_INFO *make_info(THD *thd, const ForeignKey &key, bool details) {
  FOREIGN_KEY_INFO info;
  const SqlName child = sql_name(key.child), parent = sql_name(key.parent);
  info.foreign_id = make_text(thd, key.name);
  info.foreign_db = make_text(thd, child.db);
  info.foreign_table = make_text(thd, child.table);
  info.referenced_db = make_text(thd, parent.db);
  info.referenced_table = make_text(thd, parent.table);
  info.delete_method = option_of(key.on_delete);
  info.update_method = option_of(key.on_update);
  info.referenced_key_name = nullptr;
  for (const std::string &column : key.columns) info.foreign_fields.push_back(make_text(thd, column), thd->mem_root);
  for (const std::string &column : key.parent_columns)
    info.referenced_fields.push_back(make_text(thd, column), thd->mem_root);
  if (details) {
    std::unique_ptr<Relative> from, to;
    Relative::open(thd, key.child, &from);
    if (key.parent != key.child) Relative::open(thd, key.parent, &to);
    Relative *referenced = key.parent == key.child ? from.get() : to.get();
    const unsigned count = unsigned(key.columns.size());
    for (unsigned i = 0; i < count; i++) {
      Field *field = from ? find_column(from->table(), key.columns[i]) : nullptr;
      if (field && field->real_maybe_null()) info.set_nullable(thd, false, i, count);
      field = referenced ? find_column(referenced->table(), key.parent_columns[i]) : nullptr;
      if (field && field->real_maybe_null()) info.set_nullable(thd, true, i, count);
    }
    if (from && referenced) {
      const uint no =
          find_index(referenced->table(), referenced->file()->plan(), key.parent_columns, from->table(), key.columns);
      if (no < MAX_KEY) info.referenced_key_name = make_text(thd, referenced->table()->key_info[no].name.str);
    }
  }
  return static_cast<FOREIGN_KEY_INFO *>(thd_memdup(thd, &info, sizeof info));
}

}  // namespace

int ha_myriad::report(int error) {
  print_error(error, MYF(0));
  return error;
}

int ha_myriad::get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) {
  if (is_stand_in(m_name)) return 0;
  ForeignKeys keys;
  if (int error = myriad_error_noted(foreign_keys_of(m_name, &keys), thd)) return report(error);
  for (const ForeignKey &key : keys) list->push_back(make_info(thd, key, true), thd->mem_root);
  return 0;
}

/* What the statement does to the table's rows, as the server's bits of events; 0 where it asks for another reason, or
   under LOCK TABLES, which lets a statement use what has been locked alone. */
static uint8 changes_of(THD *thd, const TABLE *table) {
  const TABLE_LIST *named = table->pos_in_table_list;
  if (!named || thd->locked_tables_mode || thd_sql_command(thd) == SQLCOM_LOCK_TABLES) return 0;
  return named->trg_event_map | named->slave_fk_event_map;
}

static bool changes_child(uint8 events, const ForeignKey &key) {
  return (events & trg2bit(TRG_EVENT_DELETE) && key.on_delete >= MYRIAD_CASCADE) ||
         (events & trg2bit(TRG_EVENT_UPDATE) && key.on_update >= MYRIAD_CASCADE);
}

/* Also called for each statement that changes the table: the server then takes locks on all children that are listed,
   in a time that grows with the square of their number. Those that are only looked into are left out, as the few that a
   row concerns are locked when it is changed. */
int ha_myriad::get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) {
  if (int error = load_references()) return report(error);
  if (!m_references) return 0;
  const bool alters = !altered_table(thd).empty();
  const uint8 events = changes_of(thd, table);
  /* By name: under LOCK TABLES it depends on the order of a child's foreign keys what the statement may do. */
  std::vector<const ForeignKey *> keys;
  for (const Link &link : m_references->children()) {
    /* What has no index to refer to yet is not in the way of an ALTER that may make one. */
    if (alters && find_index(table, *m_plan, link.key.parent_columns, nullptr, {}) >= MAX_KEY) continue;
    if (events && !changes_child(events, link.key)) continue;
    keys.push_back(&link.key);
  }
  std::stable_sort(keys.begin(), keys.end(), [](const ForeignKey *a, const ForeignKey *b) {
    const int by_database = database_of(a->child).compare(database_of(b->child));
    return by_database ? by_database < 0 : a->name < b->name;
  });
  for (const ForeignKey *key : keys) list->push_back(make_info(thd, *key, alters), thd->mem_root);
  return 0;
}

bool ha_myriad::referenced_by_foreign_key() const noexcept {
  auto *self = const_cast<ha_myriad *>(this);
  /* If it cannot be read, the list is asked for next, and tells why. */
  if (self->load_references()) return true;
  return m_references && m_references->has_children();
}

bool ha_myriad::can_switch_engines() { return !load_references() && !m_references; }

bool ha_myriad::is_fk_defined_on_table_or_index(uint) {
  if (load_references()) return true;
  return m_references && m_references->has_parents();
}

static bool has_column(const std::vector<std::string> &columns, const Field &field) {
  return std::any_of(columns.begin(), columns.end(),
                     [&](const std::string &column) { return same_name(field.field_name.str, column.c_str()); });
}

/* Whether the column belongs to a foreign key, of this table or of one that refers to it. */
bool ha_myriad::is_in_foreign_key(const Field &field) {
  if (load_references()) return true;
  if (!m_references) return false;
  ForeignKeys own, of_others;
  if (foreign_keys_of(m_name, &own) != MYRIAD_OK || references_to(m_name, &of_others) != MYRIAD_OK) return true;
  return std::any_of(own.begin(), own.end(), [&](const ForeignKey &key) { return has_column(key.columns, field); }) ||
         std::any_of(of_others.begin(), of_others.end(),
                     [&](const ForeignKey &key) { return has_column(key.parent_columns, field); });
}

/* Whether a foreign key could make the column NULL. */
bool ha_myriad::may_become_null(const Field &field) {
  if (load_references()) return true;
  if (!m_references) return false;
  ForeignKeys own;
  if (foreign_keys_of(m_name, &own) != MYRIAD_OK) return true;
  return std::any_of(own.begin(), own.end(), [&](const ForeignKey &key) {
    return (key.on_delete == MYRIAD_SET_NULL || key.on_update == MYRIAD_SET_NULL || key.on_update == MYRIAD_CASCADE) &&
           has_column(key.columns, field);
  });
}

char *ha_myriad::get_foreign_key_create_info() {
  ForeignKeys keys;
  if (int error = myriad_error_noted(foreign_keys_of(m_name, &keys), ha_thd())) report(error);
  if (keys.empty()) return nullptr;
  String text;
  for (const ForeignKey &key : keys) {
    text.append(STRING_WITH_LEN(",\n "));
    append_definition(ha_thd(), key, &text);
  }
  return my_strndup(PSI_NOT_INSTRUMENTED, text.ptr(), text.length(), MYF(0));
}

void ha_myriad::free_foreign_key_create_info(char *text) { my_free(text); }

bool ha_myriad::get_foreign_dup_key(char *child_table, uint child_table_length, char *child_key,
                                    uint child_key_length) {
  Session *session = Session::of(ha_thd(), false);
  if (!session || session->duplicate_table.empty()) return false;
  strmake(child_table, session->duplicate_table.c_str(), child_table_length - 1);
  strmake(child_key, session->duplicate_index.c_str(), child_key_length - 1);
  return true;
}

/* ---- ALTER TABLE in place -----------------------------------------------------------------------------------------
 */

namespace {

bool is_dropped(const Alter_info *info, const std::string &name) {
  for (Alter_drop &drop : const_cast<List<Alter_drop> &>(info->drop_list))
    if (drop.type == Alter_drop::FOREIGN_KEY && same_name(drop.name, name.c_str())) return true;
  return false;
}

}  // namespace

/* What an ALTER in place makes of the foreign keys; true and an error if it may not. */
bool ha_myriad::change_foreign_keys(TABLE *altered, Alter_inplace_info *info, const TablePlan &plan,
                                    ForeignKeyChange *change) {
  THD *thd = ha_thd();
  if (int error = load_references()) return report(error);
  constexpr alter_table_operations named = ALTER_ADD_FOREIGN_KEY | ALTER_DROP_FOREIGN_KEY;
  if (!m_references && !(info->handler_flags & named)) return false;
  for (Create_field &column : info->alter_info->create_list)
    if (column.field && strcmp(column.field->field_name.str, column.field_name.str) != 0) {
      change->old_names.push_back(column.field->field_name.str);
      change->new_names.push_back(column.field_name.str);
    }
  auto renamed = [change](std::string *column) {
    for (size_t i = 0; i < change->old_names.size(); i++)
      if (same_name(change->old_names[i].c_str(), column->c_str())) {
        *column = change->new_names[i];
        return;
      }
  };
  ForeignKeys own, of_others, kept;
  int error = myriad_error_noted(foreign_keys_of(m_name, &own), thd);
  if (!error) error = myriad_error_noted(references_to(m_name, &of_others), thd);
  if (error) return report(error);
  const SqlName name = sql_name(m_name);
  const std::string prefix = made_up_prefix(m_name);
  ulonglong number = highest_number(own, prefix);
  for (ForeignKey &key : own) {
    if (is_dropped(info->alter_info, key.name)) {
      change->dropped.push_back(key.name);
      continue;
    }
    const std::vector<std::string> before = key.columns;
    for (std::string &column : key.columns) renamed(&column);
    if (checks_foreign_keys(thd) && find_index(altered, plan, key.columns, nullptr, {}) >= MAX_KEY) {
      const uint no = find_index(table, *m_plan, before, nullptr, {});
      if (no < MAX_KEY) {
        my_error(ER_DROP_INDEX_FK, MYF(0), table->key_info[no].name.str);
        return true;
      }
    }
    kept.push_back(std::move(key));
  }
  if (info->handler_flags & ALTER_ADD_FOREIGN_KEY) {
    List_iterator_fast<Key> list(info->alter_info->key_list);
    while (Key *each = list++) {
      if (each->type != Key::FOREIGN_KEY || each->old) continue;
      const auto *from = static_cast<const Foreign_key *>(each);
      ForeignKey key = read_definition(*from, m_name, name.db);
      const bool unnamed = key.name.empty();
      if (unnamed && make_up_name(prefix, &number, &key.name)) return true;
      error = check_new(thd, Refusal(thd, from, true, key.name), altered, plan, key.parent == m_name, &key);
      if (!error) error = check_kind(altered);
      if (!error) error = add_key(thd, table, true, std::move(key), &kept);
      if (error) {
        if (!thd->is_error()) my_error(ER_CANT_CREATE_TABLE, MYF(0), name.db.c_str(), name.table.c_str(), error);
        return true;
      }
      change->added.push_back(kept.back());
    }
  }
  if (!checks_foreign_keys(thd)) return false;
  for (const ForeignKey &key : of_others) {
    if (key.child == m_name && is_dropped(info->alter_info, key.name)) continue;
    std::vector<std::string> columns = key.parent_columns;
    for (std::string &column : columns) renamed(&column);
    if (find_index(altered, plan, columns, nullptr, {}) < MAX_KEY) continue;
    const uint no = find_index(table, *m_plan, key.parent_columns, nullptr, {});
    if (no >= MAX_KEY) continue;
    my_error(ER_DROP_INDEX_FK, MYF(0), table->key_info[no].name.str);
    return true;
  }
  return false;
}
