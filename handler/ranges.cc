/* Pushed conditions and multi-range reads. */
#include "ha_myriad.h"

/* Its columns are whole in the index or the clustered key, as the server pushes nothing on prefixes. */
Item *ha_myriad::idx_cond_push(uint keyno, Item *condition) {
  if (keyno == table_share->primary_key) return condition;
  pushed_idx_cond = condition;
  pushed_idx_cond_keyno = keyno;
  in_range_check_pushed_down = !m_plan->index(keyno).has_blob_or_prefix;
  return nullptr;
}

bool ha_myriad::rowid_filter_push(Rowid_filter *filter) {
  pushed_rowid_filter = filter;
  return false;
}

/* Of partitioned tables ranges are read one after the other: the server's rowid-ordered reads lose rows there, or end
   with HA_ERR_KEY_NOT_FOUND, whatever the engine. */
int ha_myriad::multi_range_read_init(RANGE_SEQ_IF *seq, void *seq_init_param, uint n_ranges, uint mode,
                                     HANDLER_BUFFER *buf) {
  if (table->part_info) mode |= HA_MRR_USE_DEFAULT_IMPL;
  m_simple_ranges = (mode & HA_MRR_USE_DEFAULT_IMPL) && !seq->skip_index_tuple;
  int error = m_ds_mrr.dsmrr_init(this, seq, seq_init_param, n_ranges, mode, buf);
  if (error) return error;
  if (m_simple_ranges)
    begin_ranges();
  else if (inited == RND)
    note_positions(*buf, mode);
  return 0;
}

/* Where the server keeps the positions of a multi-range read: behind a position and two keys, if it has sorted keys. */
void ha_myriad::note_positions(const HANDLER_BUFFER &buffer, uint mode) {
  const size_t other = mode & HA_MRR_NO_ASSOCIATION ? 0 : sizeof(range_id_t);
  m_rows_wanted = 0;
  m_positions.begin(buffer.buffer + ref_length + 2 * table->s->max_key_length, buffer.buffer_end, ref_length,
                    ref_length + other);
}

int ha_myriad::multi_range_read_next(range_id_t *range_info) {
  if (!m_simple_ranges) return m_ds_mrr.dsmrr_next(range_info);
  /* What the server's simple reader does, without its two calls a row. */
  int error = handler::multi_range_read_next(range_info);
  if (error && error != HA_ERR_END_OF_FILE && error != HA_ERR_KEY_NOT_FOUND) print_error(error, MYF(0));
  return error;
}

/* The server takes a row that is found through an entry to cost as much as six of a scan. In memory it costs eleven; so
   wide ranges cost more here, of as many rows as InnoDB gives double the estimate. */
ha_rows ha_myriad::multi_range_read_info_const(uint keyno, RANGE_SEQ_IF *seq, void *seq_init_param, uint n_ranges,
                                               uint *bufsz, uint *flags, Cost_estimate *cost) {
  constexpr ha_rows narrow_range_rows = 1000;
  ha_rows rows;
  if (table->part_info) {
    rows = handler::multi_range_read_info_const(keyno, seq, seq_init_param, n_ranges, bufsz, flags, cost);
  } else {
    m_ds_mrr.init(this, table);
    rows = m_ds_mrr.dsmrr_info_const(keyno, seq, seq_init_param, n_ranges, bufsz, flags, cost);
  }
  const bool row_by_row = (*flags & HA_MRR_USE_DEFAULT_IMPL) && !(*flags & HA_MRR_INDEX_ONLY);
  if (rows != HA_POS_ERROR && rows > narrow_range_rows && row_by_row && keyno != table->s->primary_key)
    cost->cpu_cost += double(rows - narrow_range_rows);
  return rows;
}

ha_rows ha_myriad::multi_range_read_info(uint keyno, uint n_ranges, uint keys, uint key_parts, uint *bufsz, uint *flags,
                                         Cost_estimate *cost) {
  if (table->part_info) return handler::multi_range_read_info(keyno, n_ranges, keys, key_parts, bufsz, flags, cost);
  m_ds_mrr.init(this, table);
  return m_ds_mrr.dsmrr_info(keyno, n_ranges, keys, key_parts, bufsz, flags, cost);
}

int ha_myriad::multi_range_read_explain_info(uint mrr_mode, char *str, size_t size) {
  return m_ds_mrr.dsmrr_explain_info(mrr_mode, str, size);
}
