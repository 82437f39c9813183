/* What the engine can do, opening and closing. The rows are read in scans.cc, entries.cc and ranges.cc, written in
 * write.cc. */
#include "ha_myriad.h"
#include "drop_database.h"
#include "variables.h"
#include "work.h"

using myriad::IndexPlan;
using myriad::TablePlan;

thread_local ha_handler_stats *myriad::WorkFor::counted = nullptr;

ha_myriad::ha_myriad(handlerton *hton, TABLE_SHARE *share)
    : handler(hton, share), m_hton(hton), m_page_size(myriad_page_size(myriad_core)) {
  ref_length = 8;
}

ha_myriad::~ha_myriad() = default;

ulonglong ha_myriad::table_flags() const {
  ulonglong flags = HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_CAN_VIRTUAL_COLUMNS | HA_REC_NOT_IN_SEQ | HA_CAN_GEOMETRY |
                    HA_PRIMARY_KEY_REQUIRED_FOR_POSITION | HA_PRIMARY_KEY_IN_READ_INDEX | HA_TABLE_SCAN_ON_INDEX |
                    HA_REQUIRES_KEY_COLUMNS_FOR_DELETE | HA_CAN_SQL_HANDLER | HA_BINLOG_ROW_CAPABLE |
                    HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_ONLINE_BACKUPS | HA_CAN_SKIP_LOCKED | HA_CRASH_SAFE |
                    HA_CONCURRENT_OPTIMIZE | HA_ONLINE_ANALYZE | HA_REUSES_FILE_NAMES | HA_AUTO_PART_KEY |
                    HA_PARTIAL_COLUMN_READ;
  THD *thd = ha_thd();
  /* Below REPEATABLE READ the order of commits is not what a replica needs to repeat statements, and there is no gap
     lock between the server's look-up for a constraint of its own (UNIQUE of a long column, WITHOUT OVERLAPS) and the
     write: it has to look after the write. */
  if (!thd || myriad_isolation_of(thd) >= MYRIAD_REPEATABLE_READ)
    flags |= HA_BINLOG_STMT_CAPABLE;
  else
    flags |= HA_CHECK_UNIQUE_AFTER_WRITE;
  return flags;
}

ulong ha_myriad::index_flags(uint index, uint, bool) const {
  ulong flags = HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY;
  if (index == table_share->primary_key)
    flags |= HA_CLUSTERED_INDEX;
  else
    flags |= HA_DO_INDEX_COND_PUSHDOWN | HA_DO_RANGE_FILTER_PUSHDOWN;
  return flags;
}

const char *ha_myriad::index_type(uint index) {
  return myriad::has_hash_lookup(table_share, table->key_info[index]) ? "HASH" : "BTREE";
}

/* InnoDB's limits, which people's schemas are made for: 3072 bytes at 16 KiB pages and above, less on smaller ones. */
uint ha_myriad::max_supported_key_length() const {
  return m_page_size >= 16384 ? 3072 : m_page_size >= 8192 ? 1536 : 768;
}

uint ha_myriad::max_supported_key_part_length() const { return max_supported_key_length(); }

int ha_myriad::open(const char *name, int, uint) {
  if (THD *thd = ha_thd()) myriad_allow_drop(thd, table_share);
  m_name = myriad_name(name);
  myriad_status status = myriad_table_open(myriad_core, m_name.c_str(), &m_table);
  if (status != MYRIAD_OK) return myriad_error_noted(status, ha_thd());
  int error = adopt_definition();
  if (error) {
    close();
    return error;
  }
  /* The binary log gets a TRUNCATE TABLE, as for ENGINE=MEMORY. A partitioned table's handler takes its flag from one
     of those that it has opened, whichever; the engine tells one of them only. */
  if (myriad_table_take_emptied(m_table)) table->file->implicit_emptied = true;
  implicit_emptied = table->file->implicit_emptied;
  m_plan.reset(new TablePlan(table));
  if (!has_planned_indexes()) {
    sql_print_error("MYRIAD: the indexes of table %s do not fit its definition", m_name.c_str());
    close();
    return HA_ERR_CRASHED;
  }
  name_indexes();
  size_t layouts_length;
  const uchar *layouts_bytes = myriad_table_row_layouts(m_table, &layouts_length);
  myriad::RowLayouts layouts;
  if (layouts_length && !(layouts.decode(layouts_bytes, layouts_length) && m_plan->set_layouts(std::move(layouts)))) {
    sql_print_error("MYRIAD: the row layouts of table %s do not fit its definition", m_name.c_str());
    close();
    return HA_ERR_CRASHED;
  }
  ref_length = m_plan->ref_length();
  key_used_on_scan = table->s->primary_key;
  lock_shared_ha_data();
  m_share = static_cast<Myriad_share *>(get_ha_share_ptr());
  if (!m_share) {
    m_share = new Myriad_share;
    set_ha_share_ptr(m_share);
  }
  unlock_shared_ha_data();
  if (table->s->table_type == TABLE_TYPE_SEQUENCE) {
    m_own_session.reset(new Session);
    if ((error = m_own_session->start(nullptr))) {
      close();
      return error;
    }
  }
  if ((error = add_missing_counter())) {
    close();
    return error;
  }
  info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
  return 0;
}

/* Whether the catalog's indexes are those that the plan numbers. */
bool ha_myriad::has_planned_indexes() const {
  const std::vector<myriad_index_spec> specs = m_plan->specs();
  return myriad_table_has_indexes(m_table, specs.data(), uint32_t(specs.size()));
}

/* Tells the core the indexes' names, which it does not keep: at each opening, since they change without it (those of
   partitions). */
void ha_myriad::name_indexes() {
  std::vector<const char *> names;
  for (const IndexPlan &index : m_plan->indexes())
    names.push_back(index.server_no == UINT32_MAX ? "GEN_CLUST_INDEX" : table->key_info[index.server_no].name.str);
  myriad_table_name_indexes(m_table, names.data(), uint32_t(names.size()));
}

int ha_myriad::close() {
  close_cursor();
  m_lender.reset();
  abandon_copy();
  m_own_session.reset();
  m_template.valid = false;
  m_references.reset();
  m_references_version = 0;
  m_plan.reset();
  if (m_table) myriad_table_close(m_table);
  m_table = nullptr;
  return 0;
}

handler *ha_myriad::clone(const char *name, MEM_ROOT *mem_root) {
  /* The server gives a partitioned table's name, but this may be one of its partitions. */
  const std::string own = myriad_is_temporary_path(name) ? name : "./" + m_name;
  auto *copy = static_cast<ha_myriad *>(handler::clone(own.c_str(), mem_root));
  if (!copy) return nullptr;
  copy->m_is_clone = true;
  copy->m_lock = m_lock;
  copy->m_stored_lock = m_stored_lock;
  copy->m_skip_locked = m_skip_locked;
  copy->m_session = m_session;
  copy->m_user_thd = m_user_thd;
  return copy;
}

int ha_myriad::reset() {
  close_cursor();
  m_lender.reset();
  if (m_changed_rows) share_changed_rows();
  m_template.valid = false;
  m_ds_mrr.dsmrr_close();
  m_positions.end();
  m_ignore_duplicates = m_replace_duplicates = m_keep_found = false;
  m_found.clear();
  m_try_semi_consistent = m_keyread_asked = false;
  m_unique_hit = m_exact = m_from_entry = false;
  m_by_handler = false;
  m_locked_row.clear();
  constexpr size_t keep = 1 << 20;
  if (m_blobs.capacity() > keep) m_blobs.release();
  if (m_computed.capacity() > keep) m_computed.release();
  if (m_row.capacity() > keep) m_row.release();
  if (m_keys.capacity() > keep) m_keys.release();
  return 0;
}

int ha_myriad::extra(enum ha_extra_function operation) {
  switch (operation) {
  case HA_EXTRA_KEYREAD:
  case HA_EXTRA_NO_KEYREAD:
    m_template.valid = false;
    m_keyread_asked = operation == HA_EXTRA_KEYREAD;
    break;
  case HA_EXTRA_IGNORE_DUP_KEY: m_ignore_duplicates = true; break;
  case HA_EXTRA_INSERT_WITH_UPDATE:
    m_keep_found = ha_thd()->variables.sql_mode & MODE_SIMULTANEOUS_ASSIGNMENT;
    [[fallthrough]];
  case HA_EXTRA_WRITE_CAN_REPLACE: m_replace_duplicates = true; break;
  case HA_EXTRA_NO_IGNORE_DUP_KEY: m_ignore_duplicates = m_replace_duplicates = m_keep_found = false; break;
  case HA_EXTRA_WRITE_CANNOT_REPLACE: m_replace_duplicates = false; break;
  case HA_EXTRA_BEGIN_COPY: begin_copy(false); break;
  case HA_EXTRA_BEGIN_ALTER_IGNORE_COPY: begin_copy(true); break;
  case HA_EXTRA_END_COPY: return end_copy();
  case HA_EXTRA_ABORT_COPY: abandon_copy(); break;
  default: break;
  }
  return 0;
}

void ha_myriad::column_bitmaps_signal() { m_template.valid = false; }

void ha_myriad::start_bulk_insert(ha_rows, uint) {}

int ha_myriad::end_bulk_insert() { return 0; }
