/* INFORMATION_SCHEMA.MYRIAD_*: each table is a list from the core, copied row by row. The list is taken first, because
   the core must not be held up by a client that reads slowly. */
#include "i_s.h"
#include "sql_acl.h"
#include "sql_parse.h"
#include "tztime.h"
#include "session.h"
#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

/* The server gives it to plugins, but in no header. */
bool get_lookup_field_values(THD *, COND *, bool, TABLE_LIST *, LOOKUP_FIELD_VALUES *);

struct st_mysql_information_schema myriad_i_s_info = {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

int myriad_i_s_deinit(void *) { return 0; }

namespace {

/* A cell: a number, a text, a time, or NULL. */
struct Cell {
  enum Kind { Null, Number, Real, Text, Time } kind = Null;
  uint64_t number = 0;
  double real = 0;
  std::string text;
};

Cell number(uint64_t value) {
  Cell cell;
  cell.kind = Cell::Number;
  cell.number = value;
  return cell;
}

Cell real(double value) {
  Cell cell;
  cell.kind = Cell::Real;
  cell.real = value;
  return cell;
}

Cell text(const char *value) {
  Cell cell;
  if (!value) return cell;
  cell.kind = Cell::Text;
  cell.text = value;
  return cell;
}

Cell time_us(uint64_t microseconds) {
  Cell cell;
  if (!microseconds) return cell;
  cell.kind = Cell::Time;
  cell.number = microseconds;
  return cell;
}

using Row = std::vector<Cell>;
using Rows = std::vector<Row>;

Rows *rows_of(void *arg) { return static_cast<Rows *>(arg); }

void fill_record(THD *thd, TABLE *table, const Row &row) {
  restore_record(table, s->default_values);
  for (size_t i = 0; i < row.size(); i++) {
    Field *field = table->field[i];
    const Cell &cell = row[i];
    if (cell.kind == Cell::Null) {
      field->set_null();
      continue;
    }
    field->set_notnull();
    switch (cell.kind) {
    case Cell::Number: field->store(longlong(cell.number), true); break;
    case Cell::Real: field->store(cell.real); break;
    case Cell::Text: field->store(cell.text.data(), cell.text.size(), system_charset_info); break;
    case Cell::Time: {
      MYSQL_TIME when;
      thd->variables.time_zone->gmt_sec_to_TIME(&when, my_time_t(cell.number / 1000000));
      field->store_time(&when);
      break;
    }
    case Cell::Null: break;
    }
  }
}

bool store_rows(THD *thd, TABLE *table, const Rows &rows) {
  for (const Row &row : rows) {
    fill_record(thd, table, row);
    if (schema_table_store_record(thd, table)) return true;
  }
  return false;
}

/* Whether the tables are empty for this user, or with no engine. */
bool shows_nothing(THD *thd) { return check_global_access(thd, PROCESS_ACL, true) || !myriad_is_running(thd); }

template <class List> int fill(THD *thd, TABLE_LIST *tables, List list) {
  if (shows_nothing(thd)) return 0;
  Rows rows;
  list(&rows);
  return store_rows(thd, tables->table, rows);
}

std::string hex(const uint8_t *bytes, size_t length) {
  static const char digits[] = "0123456789ABCDEF";
  constexpr size_t shown_max = 256;
  std::string out = "0x";
  for (size_t i = 0; i < length && i < shown_max; i++) {
    out += digits[bytes[i] >> 4];
    out += digits[bytes[i] & 15];
  }
  if (length > shown_max) out += "...";
  return out;
}

namespace Show = ::Show;

/* Where a transaction's connection is in its row. */
constexpr size_t TRX_THREAD = 4;
constexpr uint TRX_QUERY_CHARS = 1024;

ST_FIELD_INFO trx_fields[] = {Show::Column("TRX_ID", Show::ULonglong(21), NOT_NULL),
                              Show::Column("TRX_STATE", Show::Varchar(20), NOT_NULL),
                              Show::Column("TRX_STARTED", Show::Datetime(0), NULLABLE),
                              Show::Column("TRX_WAIT_STARTED", Show::Datetime(0), NULLABLE),
                              Show::Column("TRX_MYSQL_THREAD_ID", Show::ULonglong(21), NOT_NULL),
                              Show::Column("TRX_ISOLATION_LEVEL", Show::Varchar(20), NOT_NULL),
                              Show::Column("TRX_UNDO_RECORDS", Show::ULonglong(21), NOT_NULL),
                              Show::Column("TRX_LOCKS_HELD", Show::ULonglong(21), NOT_NULL),
                              Show::Column("TRX_RECOVERED", Show::Varchar(3), NOT_NULL),
                              Show::Column("TRX_SNAPSHOT_AGE", Show::ULonglong(21), NULLABLE),
                              Show::Column("TRX_QUERY", Show::Varchar(TRX_QUERY_CHARS), NULLABLE),
                              Show::CEnd()};

void add_trx(void *arg, const myriad_trx_info *trx) {
  rows_of(arg)->push_back({number(trx->trx_id), text(trx->state), time_us(trx->start_wall_us),
                           time_us(trx->wait_start_wall_us), number(trx->thread_id), text(trx->isolation),
                           number(trx->undo_records), number(trx->locks_held), text(trx->recovered ? "YES" : "NO"),
                           trx->has_snapshot ? number(trx->snapshot_age) : Cell()});
}

/* What connections are running, by their ids. */
using Queries = std::unordered_map<uint64_t, std::string>;

my_bool note_query(THD *thd, Queries *queries) {
  /* As in the process list: one that is being changed, or whose connection ends, is passed over. */
  if (mysql_mutex_trylock(&thd->LOCK_thd_data)) return 0;
  const CSET_STRING query = thd->query_string;
  if (query.length() && !thd->killed) {
    String converted;
    uint errors;
    const size_t bytes = std::min<size_t>(query.length(), TRX_QUERY_CHARS);
    if (!converted.copy(query.str(), bytes, query.charset(), system_charset_info, &errors))
      queries->emplace(thd->thread_id, std::string(converted.ptr(), converted.length()));
  }
  mysql_mutex_unlock(&thd->LOCK_thd_data);
  return 0;
}

int fill_trx(THD *thd, TABLE_LIST *tables, COND *) {
  return fill(thd, tables, [](Rows *rows) {
    myriad_list_trx(myriad_core, add_trx, rows);
    Queries queries;
    server_threads.iterate(note_query, &queries);
    for (Row &row : *rows) {
      auto found = queries.find(row[TRX_THREAD].number);
      row.push_back(found == queries.end() ? Cell() : text(found->second.c_str()));
    }
  });
}

ST_FIELD_INFO lock_fields[] = {Show::Column("LOCK_TRX_ID", Show::ULonglong(21), NOT_NULL),
                               Show::Column("LOCK_MODE", Show::Varchar(32), NOT_NULL),
                               Show::Column("LOCK_GRANTED", Show::Varchar(3), NOT_NULL),
                               Show::Column("LOCK_TABLE", Show::Varchar(1024), NULLABLE),
                               Show::Column("LOCK_INDEX", Show::ULong(10), NOT_NULL),
                               Show::Column("LOCK_INDEX_NAME", Show::Varchar(NAME_CHAR_LEN), NULLABLE),
                               Show::Column("LOCK_KEY", Show::Varchar(1024), NULLABLE),
                               Show::CEnd()};

/* There can be as many row locks as rows: what is shown of them has an end. */
constexpr size_t LOCKS_SHOWN_MAX = 100000;

struct Locks {
  THD *thd;
  Rows *rows;
  bool too_many;
};

/* Whether there is room for one more. */
bool has_room(void *arg) {
  auto *locks = static_cast<Locks *>(arg);
  locks->too_many = locks->rows->size() == LOCKS_SHOWN_MAX;
  return !locks->too_many && thd_kill_level(locks->thd) == THD_IS_NOT_KILLED;
}

bool add_lock(void *arg, const myriad_lock_info *lock) {
  if (!has_room(arg)) return false;
  static_cast<Locks *>(arg)->rows->push_back({number(lock->trx_id), text(lock->mode),
                                              text(lock->granted ? "YES" : "NO"), text(lock->table),
                                              number(lock->index_no), text(lock->index_name),
                                              lock->key ? text(hex(lock->key, lock->key_len).c_str()) : Cell()});
  return true;
}

int fill_with_locks(THD *thd, TABLE_LIST *tables, bool waits_only, bool (*add)(void *, const myriad_lock_info *)) {
  return fill(thd, tables, [&](Rows *rows) {
    Locks locks = {thd, rows, false};
    myriad_list_locks(myriad_core, waits_only, LOCKS_SHOWN_MAX + 1, add, &locks);
    if (locks.too_many)
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR,
                          "MYRIAD: there are more row locks than the %zu shown", LOCKS_SHOWN_MAX);
  });
}

int fill_locks(THD *thd, TABLE_LIST *tables, COND *) { return fill_with_locks(thd, tables, false, add_lock); }

ST_FIELD_INFO wait_fields[] = {Show::Column("REQUESTING_TRX_ID", Show::ULonglong(21), NOT_NULL),
                               Show::Column("BLOCKING_TRX_ID", Show::ULonglong(21), NOT_NULL),
                               Show::Column("LOCK_MODE", Show::Varchar(32), NOT_NULL),
                               Show::Column("LOCK_TABLE", Show::Varchar(1024), NULLABLE),
                               Show::Column("LOCK_INDEX", Show::ULong(10), NOT_NULL),
                               Show::Column("LOCK_INDEX_NAME", Show::Varchar(NAME_CHAR_LEN), NULLABLE),
                               Show::Column("LOCK_KEY", Show::Varchar(1024), NULLABLE),
                               Show::CEnd()};

bool add_wait(void *arg, const myriad_lock_info *lock) {
  if (!lock->waiting_for_trx_id) return true;
  if (!has_room(arg)) return false;
  static_cast<Locks *>(arg)->rows->push_back({number(lock->trx_id), number(lock->waiting_for_trx_id), text(lock->mode),
                                              text(lock->table), number(lock->index_no), text(lock->index_name),
                                              lock->key ? text(hex(lock->key, lock->key_len).c_str()) : Cell()});
  return true;
}

int fill_waits(THD *thd, TABLE_LIST *tables, COND *) { return fill_with_locks(thd, tables, true, add_wait); }

ST_FIELD_INFO latch_fields[] = {Show::Column("LATCH", Show::Varchar(64), NOT_NULL),
                                Show::Column("ACQUIRED", Show::ULonglong(21), NOT_NULL),
                                Show::Column("CONTENDED", Show::ULonglong(21), NOT_NULL),
                                Show::Column("CONTENDED_PERCENT", Show::Double(12), NOT_NULL),
                                Show::Column("WAIT_MICROSECONDS", Show::ULonglong(21), NOT_NULL),
                                Show::Column("HOTTEST_PARTITION", Show::ULonglong(21), NOT_NULL),
                                Show::Column("HOTTEST_PERCENT", Show::Double(12), NOT_NULL),
                                Show::CEnd()};

void add_latch(void *arg, const myriad_latch_info *latch) {
  rows_of(arg)->push_back({text(latch->name), number(latch->acquired), number(latch->contended),
                           real(latch->contended_percent), number(latch->wait_ns / 1000), number(latch->hottest),
                           real(latch->hottest_percent)});
}

int fill_latches(THD *thd, TABLE_LIST *tables, COND *) {
  return fill(thd, tables, [](Rows *rows) { myriad_list_latches(myriad_core, add_latch, rows); });
}

ST_FIELD_INFO startup_fields[] = {Show::Column("PHASE", Show::Varchar(64), NOT_NULL),
                                  Show::Column("SECONDS", Show::Double(12), NOT_NULL),
                                  Show::Column("BYTES_READ", Show::ULonglong(21), NOT_NULL), Show::CEnd()};

void add_startup(void *arg, const myriad_startup_info *phase) {
  rows_of(arg)->push_back({text(phase->phase), real(double(phase->microseconds) / 1e6), number(phase->bytes_read)});
}

int fill_startup(THD *thd, TABLE_LIST *tables, COND *) {
  return fill(thd, tables, [](Rows *rows) { myriad_list_startup(myriad_core, add_startup, rows); });
}

enum SpaceColumn { SPACE_ID, SPACE_PATH, SPACE_DATABASE, SPACE_BYTES, SPACE_OPEN };

ST_FIELD_INFO space_fields[] = {Show::Column("SPACE_ID", Show::ULong(10), NOT_NULL),
                                Show::Column("PATH", Show::Varchar(1024), NOT_NULL),
                                Show::Column("DATABASE_NAME", Show::Varchar(192), NULLABLE),
                                Show::Column("FILE_BYTES", Show::ULonglong(21), NOT_NULL),
                                Show::Column("IS_OPEN", Show::Varchar(3), NOT_NULL),
                                Show::CEnd()};

void add_space(void *arg, const myriad_space_info *space) {
  /* The core has the name of the database's folder, or "*" for the file that all share. */
  char name[NAME_LEN + 1] = "*";
  if (strcmp(space->database, name)) filename_to_tablename(space->database, name, sizeof name, true);
  rows_of(arg)->push_back(
      {number(space->space_id), text(space->path), text(name), number(0), text(space->open ? "YES" : "NO")});
}

/* The parts of a condition that can be computed before the column `unknown` of the table is. */
std::vector<Item *> conditions_without(TABLE *table, uint unknown, COND *cond) {
  std::vector<Item *> parts;
  if (!cond) return parts;
  if (cond->type() == Item::COND_ITEM && static_cast<Item_cond *>(cond)->functype() == Item_func::COND_AND_FUNC) {
    List_iterator<Item> all(*static_cast<Item_cond *>(cond)->argument_list());
    while (Item *part = all++)
      for (Item *inner : conditions_without(table, unknown, part)) parts.push_back(inner);
    return parts;
  }
  /* An outer join's condition holds for some of its rows only, which the join knows. */
  const bool by_join =
      cond->type() == Item::FUNC_ITEM && static_cast<Item_func *>(cond)->functype() == Item_func::TRIG_COND_FUNC;
  if (by_join || cond->with_subquery() || cond->used_tables() != table->map) return parts;
  MY_BITMAP columns;
  my_bitmap_map bits[1] = {0};
  my_bitmap_init(&columns, bits, table->s->fields);
  cond->walk(&Item::register_field_in_bitmap, false, &columns);
  if (!bitmap_is_set(&columns, unknown)) parts.push_back(cond);
  return parts;
}

/* True: an error, or the statement was killed. */
bool store_space(THD *thd, TABLE *table, const Row &row, const std::vector<Item *> &wanted) {
  if (thd_kill_level(thd) != THD_IS_NOT_KILLED) return true;
  fill_record(thd, table, row);
  const bool is_wanted = std::all_of(wanted.begin(), wanted.end(), [](Item *part) { return part->val_int(); });
  if (thd->is_error()) return true;
  if (!is_wanted) return false;
  if (bitmap_is_set(table->read_set, SPACE_BYTES)) {
    const uint32_t id = uint32_t(row[SPACE_ID].number);
    const uint64_t bytes = myriad_space_bytes(myriad_core, id, row[SPACE_PATH].text.c_str());
    table->field[SPACE_BYTES]->store(longlong(bytes), true);
  }
  return schema_table_store_record(thd, table);
}

/* Whether the text that the column is compared with is an id. What else may be equal to one (5.0, ' 5') is not looked
 * up. */
bool is_space_id(const LEX_CSTRING &text, uint64_t *id) {
  if (!text.length || text.length > 9) return false;
  uint64_t number = 0;
  for (const char *at = text.str; at < text.str + text.length; at++) {
    if (*at < '0' || *at > '9') return false;
    number = number * 10 + uint64_t(*at - '0');
  }
  *id = number;
  return true;
}

/* So many are listed at a time: however many there are, they take little memory beside the statement's own. */
constexpr size_t SPACES_AT_ONCE = 1000;

/* Asks the core for the one tablespace whose id the condition tells, if it does, and the file system for the sizes
 * alone that the statement reads, of files that its condition has not left out. */
int fill_spaces(THD *thd, TABLE_LIST *tables, COND *cond) {
  if (shows_nothing(thd)) return 0;
  TABLE *table = tables->table;
  LOOKUP_FIELD_VALUES lookup;
  if (get_lookup_field_values(thd, cond, false, tables, &lookup)) return 0;
  uint64_t first = 0;
  const bool is_one = is_space_id(lookup.db_value, &first);
  const std::vector<Item *> wanted = conditions_without(table, SPACE_BYTES, cond);
  const size_t most = is_one ? 1 : SPACES_AT_ONCE;
  for (;;) {
    Rows rows;
    const myriad_status status = myriad_list_spaces(myriad_core, uint32_t(first), most, add_space, &rows);
    if (status != MYRIAD_OK) {
      myriad_tell(status, thd);
      return 1;
    }
    for (const Row &row : rows)
      if (store_space(thd, table, row, wanted)) return 1;
    if (is_one || rows.size() < most) return 0;
    first = rows.back()[SPACE_ID].number + 1;
  }
}

int init_spaces(void *arg) {
  auto *schema = static_cast<ST_SCHEMA_TABLE *>(arg);
  schema->fields_info = space_fields;
  schema->fill_table = fill_spaces;
  schema->idx_field1 = SPACE_ID;
  return 0;
}

ST_FIELD_INFO check_fields[] = {Show::Column("SPACE_ID", Show::ULong(10), NULLABLE),
                                Show::Column("PATH", Show::Varchar(1024), NOT_NULL),
                                Show::Column("PROBLEM", Show::Varchar(16), NOT_NULL),
                                Show::Column("OTHER_PATH", Show::Varchar(1024), NULLABLE),
                                Show::Column("DETAIL", Show::Varchar(2048), NOT_NULL),
                                Show::Column("FOUND", Show::Datetime(0), NULLABLE),
                                Show::CEnd()};

void add_check(void *arg, const myriad_check_info *f) {
  rows_of(arg)->push_back({f->has_space_id ? number(f->space_id) : Cell(), text(f->path), text(f->problem),
                           text(f->other_path), text(f->detail), time_us(f->found_wall_us)});
}

int fill_check(THD *thd, TABLE_LIST *tables, COND *) {
  return fill(thd, tables, [](Rows *rows) { myriad_list_check(myriad_core, add_check, rows); });
}

ST_FIELD_INFO metric_fields[] = {Show::Column("NAME", Show::Varchar(64), NOT_NULL),
                                 Show::Column("VALUE", Show::ULonglong(21), NOT_NULL),
                                 Show::Column("KIND", Show::Varchar(7), NOT_NULL), Show::CEnd()};

void add_metric(void *arg, const char *name, uint64_t value, bool is_gauge) {
  rows_of(arg)->push_back({text(name), number(value), text(is_gauge ? "GAUGE" : "COUNTER")});
}

int fill_metrics(THD *thd, TABLE_LIST *tables, COND *) {
  return fill(thd, tables, [](Rows *rows) { myriad_metrics(myriad_core, add_metric, rows); });
}

ST_FIELD_INFO buffer_fields[] = {Show::Column("NAME", Show::Varchar(64), NOT_NULL),
                                 Show::Column("VALUE", Show::ULonglong(21), NOT_NULL),
                                 Show::Column("KIND", Show::Varchar(7), NOT_NULL),
                                 Show::Column("PARTITION_NUMBER", Show::ULong(10), NULLABLE), Show::CEnd()};

void add_buffer_metric(void *arg, const char *name, uint64_t value, bool is_gauge) {
  if (strncmp(name, "buffer_pool", 11)) return;
  add_metric(arg, name, value, is_gauge);
  rows_of(arg)->back().push_back(Cell());
}

/* Partitions come in order, so the rows tell which one this is. */
struct Partitions {
  Rows *rows;
  uint64_t count;
};

void add_partition(void *arg, const myriad_partition_info *p) {
  auto *partitions = static_cast<Partitions *>(arg);
  const uint64_t partition = partitions->count++;
  const std::pair<const char *, uint64_t> gauges[] = {{"partition_pages_total", p->frames},
                                                      {"partition_pages_free", p->free_frames},
                                                      {"partition_pages_dirty", p->dirty_pages},
                                                      {"partition_log_age_bytes", p->oldest_change_age}};
  for (auto [name, value] : gauges)
    partitions->rows->push_back({text(name), number(value), text("GAUGE"), number(partition)});
}

int fill_buffer_pool(THD *thd, TABLE_LIST *tables, COND *) {
  return fill(thd, tables, [](Rows *rows) {
    myriad_metrics(myriad_core, add_buffer_metric, rows);
    Partitions partitions = {rows, 0};
    myriad_list_partitions(myriad_core, add_partition, &partitions);
  });
}

template <ST_FIELD_INFO *fields, int (*fill_table)(THD *, TABLE_LIST *, COND *)> int init(void *arg) {
  auto *schema = static_cast<ST_SCHEMA_TABLE *>(arg);
  schema->fields_info = fields;
  schema->fill_table = fill_table;
  return 0;
}

}  // namespace

/* The server calls it after the engine's. With myriad_startup=FORCE the server ends if this fails. The engine's own
   option, myriad=FORCE, cannot do that: the server takes it for an abbreviation of myriad_clone_database, which it
   looks at before. */
int init_startup(void *arg) { return !myriad_core || init<startup_fields, fill_startup>(arg); }

const Myriad_i_s myriad_i_s_trx = {"MYRIAD_TRX", init<trx_fields, fill_trx>};
const Myriad_i_s myriad_i_s_locks = {"MYRIAD_LOCKS", init<lock_fields, fill_locks>};
const Myriad_i_s myriad_i_s_lock_waits = {"MYRIAD_LOCK_WAITS", init<wait_fields, fill_waits>};
const Myriad_i_s myriad_i_s_latches = {"MYRIAD_LATCHES", init<latch_fields, fill_latches>};
const Myriad_i_s myriad_i_s_startup = {"MYRIAD_STARTUP", init_startup};
const Myriad_i_s myriad_i_s_tablespaces = {"MYRIAD_TABLESPACES", init_spaces};
const Myriad_i_s myriad_i_s_tablespace_check = {"MYRIAD_TABLESPACE_CHECK", init<check_fields, fill_check>};
const Myriad_i_s myriad_i_s_buffer_pool = {"MYRIAD_BUFFER_POOL", init<buffer_fields, fill_buffer_pool>};
const Myriad_i_s myriad_i_s_metrics = {"MYRIAD_METRICS", init<metric_fields, fill_metrics>};
