#include "table_rebuild.h"
#include "discovery.h"
#include "options.h"
#include "session.h"
#include "variables.h"

namespace myriad {

TableRebuild::TableRebuild(THD *thd, myriad_table *table, TABLE *altered, const TablePlan &plan, std::string name,
                           size_t whole_row_max)
    : OnlineBuild(thd, table, altered, plan, true), m_name(std::move(name)), m_whole_row_max(whole_row_max),
      m_target(altered) {
  for (const IndexPlan &index : m_target.indexes()) need_columns(index);
}

TableRebuild::~TableRebuild() {
  m_copy.reset();
  m_new.reset();
  /* If that fails it has no user but the space, and goes with the database. */
  if (m_created) myriad_drop_table(myriad_core, m_name.c_str());
}

void TableRebuild::convert_rows(TABLE *old, const std::vector<int> &origins) {
  read_into(old);
  for (size_t i = 0; i < origins.size(); i++)
    if (origins[i] >= 0 && m_altered->field[i]->stored_in_db())
      m_moves.push_back({old->field[origins[i]], m_altered->field[i]});
}

int TableRebuild::convert() {
  for (const Move &move : m_moves) {
    const bool is_null = move.from->is_null();
    if (move.to->real_maybe_null()) {
      is_null ? move.to->set_null() : move.to->set_notnull();
    } else if (is_null) {
      const ulong row = ulong(rows_seen() + 1);
      m_altered->in_use->get_stmt_da()->set_current_row_for_warning(long(row));
      my_error(WARN_DATA_TRUNCATED, MYF(0), move.to->field_name.str, row);
      return HA_ERR_GENERIC;
    }
    /* The image is the same, but for a VARCHAR that may be longer, and a CHAR in a wider character set. */
    const uint32 length = move.from->pack_length();
    memcpy(move.to->ptr, move.from->ptr, length);
    if (move.to->real_type() == MYSQL_TYPE_STRING) memset(move.to->ptr + length, ' ', move.to->pack_length() - length);
  }
  return 0;
}

myriad_status TableRebuild::create() {
  const std::vector<myriad_index_spec> indexes = m_target.specs();
  const ha_table_option_struct *options = m_altered->s->option_struct;
  myriad_table_spec spec{};
  spec.indexes = indexes.data();
  spec.index_count = uint32_t(indexes.size());
  spec.hidden_row_id = m_target.hidden_row_id();
  spec.has_auto_increment = m_altered->found_next_number_field != nullptr;
  spec.auto_increment_next = 1;
  spec.in_memory = options && options->in_memory;
  spec.tablespace_per = options ? int32_t(options->tablespace_per) - 1 : -1;
  return myriad_create(m_name, spec);
}

myriad_status TableRebuild::begin_copy(const char *tmp_dir) {
  myriad_copy *copy = nullptr;
  const myriad_status status = myriad_copy_begin(m_new.get(), tmp_dir, myriad_sort_buffer_of(m_thd), &copy);
  m_copy.reset(copy);
  return status;
}

myriad_status TableRebuild::start(myriad_session *builder) {
  m_builder = builder;
  myriad_status status = create();
  m_created = status == MYRIAD_OK;
  myriad_table *table = nullptr;
  if (status == MYRIAD_OK) status = myriad_table_open(myriad_core, m_name.c_str(), &table);
  m_new.reset(table);
  return status == MYRIAD_OK ? begin_copy(mysql_tmpdir) : status;
}

/* The pieces lie in m_keys as offsets, because it may move while it is filled. */
int TableRebuild::apply(const myriad_row &row, myriad_op_kind kind) {
  if (int error = read_row(row)) return error;
  const uchar *record = m_altered->record[0];
  m_pk.clear();
  m_keys.clear();
  m_pending.clear();
  if (m_target.hidden_row_id())
    m_pk.append(row.key, row.key_len);
  else
    m_target.pack_clustered_key(record, &m_pk);
  const size_t head = m_target.pack_row(record, m_whole_row_max, &m_row);
  for (size_t no = 1; no < m_target.indexes().size(); no++) {
    const IndexPlan &index = m_target.indexes()[no];
    const size_t key = m_keys.size();
    const size_t columns = m_target.pack_entry_key(index, record, m_pk.data(), m_pk.size(), &m_keys);
    const size_t key_length = m_keys.size() - key, value = m_keys.size();
    m_target.pack_entry_value(index, record, columns, &m_keys);
    const size_t unique = index.unique && !m_target.any_null(index, record) ? columns : 0;
    m_pending.push_back({uint32_t(no), key, key_length, unique, value, m_keys.size() - value});
  }
  const bool inserts = kind == MYRIAD_OP_INSERT;
  myriad_op op{};
  op.kind = kind;
  op.key = m_pk.data();
  op.key_len = m_pk.size();
  if (inserts) {
    op.unique_len = m_target.hidden_row_id() ? 0 : m_pk.size();
    op.value = m_row.data();
    op.value_len = m_row.size();
    op.head_len = head;
  }
  m_ops.assign(1, op);
  for (const PendingOp &pending : m_pending) {
    op = {};
    op.kind = kind;
    op.index_no = pending.index_no;
    op.key = m_keys.data() + pending.key;
    op.key_len = pending.key_length;
    if (inserts) {
      op.unique_len = pending.unique_length;
      op.value = m_keys.data() + pending.value;
      op.value_len = pending.value_length;
    }
    m_ops.push_back(op);
  }
  uint32_t no = 0;
  const myriad_status status = myriad_copy_apply(m_copy.get(), m_builder, m_ops.data(), uint32_t(m_ops.size()), &no);
  if (status != MYRIAD_ERR_DUPLICATE_KEY) return status == MYRIAD_OK ? 0 : failed(status);
  m_duplicate_index = &m_target.indexes()[m_ops[no].index_no];
  m_duplicate_read = true;
  return HA_ERR_FOUND_DUPP_KEY;
}

int TableRebuild::add(const myriad_row &row) { return apply(row, MYRIAD_OP_INSERT); }

/* From here on all goes in at once. */
int TableRebuild::write_rows() {
  uint32_t index_no = 0;
  const uint8_t *duplicate = nullptr;
  size_t length = 0;
  myriad_status status = myriad_copy_finish(m_copy.get(), m_builder, &index_no, &duplicate, &length);
  if (status == MYRIAD_ERR_DUPLICATE_KEY) {
    m_duplicate_index = &m_target.indexes()[index_no];
    m_duplicate.assign(duplicate, length);
    return HA_ERR_FOUND_DUPP_KEY;
  }
  if (status == MYRIAD_OK) status = begin_copy(nullptr);
  return status == MYRIAD_OK ? 0 : failed(status);
}

myriad_status TableRebuild::changed(const myriad_row *before, const myriad_row *now) {
  m_error = before ? apply(*before, MYRIAD_OP_DELETE) : 0;
  if (!m_error && now) m_error = apply(*now, MYRIAD_OP_INSERT);
  return m_error ? MYRIAD_ERR_INTERRUPTED : MYRIAD_OK;
}

int TableRebuild::finish() {
  if (int error = OnlineBuild::finish()) return error;
  m_copy.reset();
  if (!m_altered->found_next_number_field) return 0;
  myriad_table_stats stats;
  myriad_status status = myriad_table_info(m_table, MYRIAD_INFO_COUNTERS, &stats);
  if (status == MYRIAD_OK && stats.auto_increment_next)
    status = myriad_auto_increment_set(m_new.get(), stats.auto_increment_next);
  return status == MYRIAD_OK ? 0 : failed(status);
}

bool TableRebuild::read_duplicate() {
  return m_duplicate_read || OnlineBuild::read_duplicate(m_builder, m_new.get(), m_target);
}

}  // namespace myriad
