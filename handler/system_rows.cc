#include "system_rows.h"

namespace {

void read_names(TABLE *table, const char *db, size_t max, std::vector<std::string> *names) {
  table->use_all_columns();
  if (!table->s->keys || table->s->fields < 2) return;
  table->field[0]->store(db, strlen(db), system_charset_info);
  uchar key[MAX_KEY_LENGTH];
  uint length = table->key_info->key_part[0].store_length;
  key_copy(key, table->record[0], table->key_info, length);
  if (table->file->ha_index_init(0, true)) return;
  int error = table->file->ha_index_read_map(table->record[0], key, key_part_map(1), HA_READ_KEY_EXACT);
  while (!error && names->size() < max) {
    StringBuffer<NAME_LEN + 1> value;
    table->field[1]->val_str(&value);
    std::string name(value.ptr(), value.length());
    if (names->empty() || names->back() != name) names->push_back(name);
    error = table->file->ha_index_next_same(table->record[0], key, length);
  }
  table->file->ha_index_end();
}

}  // namespace

std::vector<std::string> myriad_system_rows(THD *thd, const char *system_table, const char *db, size_t max) {
  std::vector<std::string> names;
  Dummy_error_handler silent;
  start_new_trans own(thd);
  thd->push_internal_handler(&silent);
  LEX_CSTRING name = {system_table, strlen(system_table)};
  TABLE_LIST list;
  list.init_one_table(&MYSQL_SCHEMA_NAME, &name, nullptr, TL_READ);
  if (!open_system_tables_for_read(thd, &list)) {
    read_names(list.table, db, max, &names);
    thd->commit_whole_transaction_and_close_tables();
  }
  thd->pop_internal_handler();
  own.restore_old_transaction();
  return names;
}
