/* FOREIGN KEY constraints: their definitions, what is demanded of them, and how they are shown. Enforced in
   references.cc. */
#ifndef MYRIAD_FOREIGN_KEYS_H
#define MYRIAD_FOREIGN_KEYS_H
#include "rows.h"
#include <string>

class ha_myriad;

namespace myriad {

struct ForeignKey {
  std::string name;
  std::string child, parent; /* the core's table names */
  uint32_t on_delete = MYRIAD_RESTRICT, on_update = MYRIAD_RESTRICT;
  std::vector<std::string> columns, parent_columns;
};
using ForeignKeys = std::vector<ForeignKey>;

/* A list as the C ABI wants it; the keys must outlive it. */
class ForeignKeySpecs {
public:
  explicit ForeignKeySpecs(const ForeignKeys &keys);
  const myriad_foreign_key *data() const { return m_specs.data(); }
  uint32_t size() const { return uint32_t(m_specs.size()); }

private:
  std::vector<std::vector<const char *>> m_columns;
  std::vector<myriad_foreign_key> m_specs;
};

struct SqlName {
  std::string db, table;
};
SqlName sql_name(const std::string &core_name);
std::string core_name(const std::string &db, const std::string &table);
/* What stands before the number in the names of those of a table's foreign keys that were given none. */
std::string made_up_prefix(const std::string &table);

/* Whether the server means the table to take another's place, or to go soon. */
bool is_stand_in(const std::string &core_name);
/* The table is about to be renamed to a stand-in's name, and has got its own back or is dropped. */
void sets_aside(const std::string &name, const std::string &stand_in);
void is_set_aside_no_more(const std::string &stand_in);
bool checks_foreign_keys(THD *thd);
/* Whether a CREATE TABLE fills its table with rows. */
bool fills_created_table(THD *thd);

/* In order of their names. A catalog that cannot be read is an error: nobody may take it for one without foreign keys.
 */
myriad_status foreign_keys_of(const std::string &table, ForeignKeys *keys);
/* Those of other tables and its own; of tables that are no stand-ins. */
myriad_status references_to(const std::string &parent, ForeignKeys *keys);
/* By tables other than itself; `with_database`: its whole database goes, so those of others count alone. */
myriad_status is_referenced_by_others(const std::string &parent, bool with_database, bool *out);

/* "`db`.`child`, CONSTRAINT ..." as in the errors of a violation. */
std::string violation_text(THD *thd, const ForeignKey &key);

Field *find_column(const TABLE *table, const std::string &name);
/* Whether values of the two can be looked up in each other's indexes. */
bool is_comparable(const Field *a, const Field *b);

enum class Index_problem { None, NotFound, OnlyPrefix, NotComparable };
/* The server's number of the first index whose first columns are these; MAX_KEY if there is none. With `types`, the
   columns must be comparable to those of that table; without, the rest is about `columns` alone. */
uint find_index(const TABLE *table, const TablePlan &plan, const std::vector<std::string> &columns, const TABLE *types,
                const std::vector<std::string> &type_columns, Index_problem *problem = nullptr, uint *column = nullptr);

/* The foreign keys that a copy has from its table, whose rows satisfy them already. Their parents can be
   renamed until the copy is there: the core looks them up then. */
struct KeptForeignKeys {
  std::string table;
  std::vector<std::string> names;
};

/* CREATE TABLE and copying ALTER TABLE: the table's foreign keys into `keys`, and all that they demand of it and of
   their parents, and foreign keys of others of it. Returns a handler error, 0 if all is well. */
int define_foreign_keys(THD *thd, const std::string &name, TABLE *form, const TablePlan &plan,
                        HA_CREATE_INFO *create_info, ForeignKeys *keys, KeptForeignKeys *kept);

/* A table gets the name of a parent that is missing: whether it can be that parent. A handler error, or 0. */
int check_new_name(THD *thd, const std::string &old_name, const std::string &new_name);

/* What an ALTER TABLE in place makes of a table's foreign keys. The others stay as the catalog then has them: until the
   commit they follow renames of their parents. */
struct ForeignKeyChange {
  std::vector<std::string> dropped;
  ForeignKeys added;
  std::vector<std::string> old_names, new_names; /* of columns */
};

/* The table that an ALTER under way changes, by the core's name; empty if the statement is none. */
std::string altered_table(THD *thd);

}  // namespace myriad
#endif
