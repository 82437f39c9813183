/* What the optimizer asks: sizes, rows in ranges, rows for each key value; and the table maintenance statements. */
#include "ha_myriad.h"
#include "work.h"

using myriad::IndexPlan;

namespace {

constexpr uint32_t SAMPLE_PAGES_AT_OPEN = 8, SAMPLE_PAGES_ANALYZE = 64;

/* Counts, over sampled pages, how often the first k columns of an index change from one entry to the next. */
struct Sampler {
  explicit Sampler(const IndexPlan &plan) : index(plan), changes(plan.parts.size(), 0) {}
  const IndexPlan &index;
  std::vector<ulonglong> changes;
  std::vector<size_t> previous_ends;
  myriad::Buffer previous;
  ulonglong entries = 0, compared = 0, pages = 0;

  void add(const uchar *key, size_t length, bool new_page) {
    entries++;
    if (new_page) pages++;
    std::vector<size_t> ends;
    const uchar *at = key, *end = key + length;
    for (const auto &part : index.parts) {
      at = skip_part(part, at, end);
      if (!at) return;
      ends.push_back(size_t(at - key));
    }
    if (!new_page && !previous_ends.empty()) {
      compared++;
      bool same = true;
      for (size_t i = 0; i < ends.size(); i++) {
        same = same && ends[i] == previous_ends[i] && !memcmp(key, previous.data(), ends[i]);
        if (!same) changes[i]++;
      }
    }
    previous.assign(key, length);
    previous_ends.swap(ends);
  }

  /* Rows for each value of the first part + 1 columns. */
  ulong rows_per_value(size_t part, ulonglong rows) const {
    if (!entries) return 0;
    /* Each page adds one value that is not yet seen, unless it only continues the page before. */
    ulonglong values = changes[part] + (changes[part] ? pages : 1);
    double per_value = double(entries) / double(values);
    /* Nothing changed within the sample: the value may fill the whole index. */
    if (!changes[part] && rows > entries) per_value = double(rows) / double(pages ? pages : 1);
    return ulong(per_value < 1 ? 1 : per_value + 0.5);
  }
};

bool sample_entry(void *arg, const uint8_t *key, size_t length, bool new_page) {
  static_cast<Sampler *>(arg)->add(key, length, new_page);
  return true;
}

}  // namespace

Myriad_share::Myriad_share() { mysql_mutex_init(0, &mutex, MY_MUTEX_INIT_FAST); }
Myriad_share::~Myriad_share() { mysql_mutex_destroy(&mutex); }

/* Samples each index and leaves the result in the share. */
void ha_myriad::refresh_rows_per_key(bool thorough) {
  ulonglong rows = stats.records;
  std::vector<std::vector<ulong>> result(table->s->keys);
  for (uint no = 0; no < table->s->keys; no++) {
    const IndexPlan &index = m_plan->index(no);
    /* 0 is "unknown" to the server; of an empty table the cardinality is known. */
    result[no].assign(index.parts.size(), rows ? 0 : 1);
    bool trivial = index.unique && index.parts.size() == 1 && !index.has_nullable;
    if (!trivial && rows) {
      Sampler sampler(index);
      myriad_sample_index(m_table, index.core_no, thorough ? SAMPLE_PAGES_ANALYZE : SAMPLE_PAGES_AT_OPEN, sample_entry,
                          &sampler);
      for (size_t i = 0; i < index.parts.size(); i++) result[no][i] = sampler.rows_per_value(i, rows);
    }
    if (index.unique && !index.has_nullable && rows) result[no].back() = 1;
  }
  mysql_mutex_lock(&m_share->mutex);
  m_share->rows_per_key.swap(result);
  m_share->sampled = true;
  m_share->sampled_rows = rows;
  m_share->version++;
  mysql_mutex_unlock(&m_share->mutex);
}

void ha_myriad::copy_rows_per_key() {
  mysql_mutex_lock(&m_share->mutex);
  for (uint no = 0; no < table->s->keys && no < m_share->rows_per_key.size(); no++) {
    KEY &key = table->key_info[no];
    const auto &own = m_share->rows_per_key[no];
    if (!key.rec_per_key) continue;
    for (uint i = 0; i < key.ext_key_parts; i++) key.rec_per_key[i] = i < own.size() ? own[i] : 1;
  }
  m_stats_version = m_share->version;
  mysql_mutex_unlock(&m_share->mutex);
}

int ha_myriad::info(uint flag) {
  if (flag & HA_STATUS_ERRKEY) {
    /* A partitioned table may ask another partition than the one that has the duplicate. */
    const Session *session = m_own_session ? m_own_session.get() : Session::of(ha_thd(), false);
    errkey = session ? session->duplicate_key : MAX_KEY;
  }
  if (!(flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_TIME | HA_STATUS_AUTO))) return 0;
  /* The size of the indexes is for people, who ask for times or all sizes as well; plans do not look at it. */
  const bool wants_rows = flag & HA_STATUS_VARIABLE;
  const bool wants_sizes = wants_rows && (flag & (HA_STATUS_TIME | HA_STATUS_VARIABLE_EXTRA));
  myriad_table_stats core_stats;
  myriad_status status = myriad_table_info(
      m_table, wants_sizes ? MYRIAD_INFO_SIZES : (wants_rows ? MYRIAD_INFO_ROWS : MYRIAD_INFO_COUNTERS), &core_stats);
  if (status != MYRIAD_OK) {
    /* The server goes on, and would take 0 rows for "nothing to do" where reading the table would give the error. */
    if (!stats.records) stats.records = 1;
    return myriad_error_noted(status, ha_thd());
  }
  /* A partitioned table takes the one of its first partition's with CONST. */
  if (flag & (HA_STATUS_TIME | HA_STATUS_CONST)) stats.create_time = time_t(core_stats.create_time_s);
  if (flag & HA_STATUS_TIME) stats.update_time = time_t(core_stats.update_time_s);
  if (flag & HA_STATUS_AUTO) {
    /* A column that is AUTO_INCREMENT no more leaves its counter. */
    const ulonglong next = table->found_next_number_field ? core_stats.auto_increment_next : 0;
    stats.auto_increment_value = next ? next : 1;
  }
  if (flag & HA_STATUS_CONST) stats.block_size = uint(m_page_size);
  if (wants_rows) {
    stats.records = core_stats.rows;
    /* A plan must not rely on "exactly empty": another session may have committed rows by the time it runs. With OPEN,
       SYSTEM_TIME partitions ask how full they are. */
    if (!stats.records && !(flag & (HA_STATUS_TIME | HA_STATUS_OPEN))) stats.records = 1;
    stats.deleted = 0;
    stats.data_file_length = core_stats.data_bytes;
    if (wants_sizes) stats.index_file_length = core_stats.index_bytes;
    stats.delete_length = core_stats.free_bytes;
    stats.mean_rec_length = ulong(core_stats.rows ? core_stats.mean_row_bytes : 0);
    stats.mrr_length_per_rec = ref_length + sizeof(void *);
  }
  if (!m_share || !(flag & (HA_STATUS_CONST | HA_STATUS_VARIABLE))) return 0;
  mysql_mutex_lock(&m_share->mutex);
  ulonglong rows = m_share->sampled_rows;
  bool stale = wants_rows && (!m_share->sampled || core_stats.rows > 2 * rows + (rows ? 4 : 0) ||
                              core_stats.rows + 16 < rows / 2);
  bool newer = m_share->version != m_stats_version;
  mysql_mutex_unlock(&m_share->mutex);
  if (stale) refresh_rows_per_key(false);
  if (stale || newer || (flag & HA_STATUS_CONST)) copy_rows_per_key();
  return 0;
}

ha_rows ha_myriad::records_in_range(uint index, const key_range *min_key, const key_range *max_key, page_range *) {
  myriad::WorkFor work(handler_stats);
  const IndexPlan &plan = m_plan->index(index);
  myriad::Buffer low, high;
  bool has_null;
  uint used;
  if (min_key) {
    encode_search_key(plan, min_key->key, min_key->keypart_map, &has_null, &used, &low);
    /* "After" a prefix: behind every key that begins with it. No encoded part begins with 0xff 0xff. */
    if (min_key->flag == HA_READ_AFTER_KEY) low.append("\xff\xff\xff\xff\xff\xff\xff\xff\xff", 9);
  }
  if (max_key) {
    encode_search_key(plan, max_key->key, max_key->keypart_map, &has_null, &used, &high);
    if (max_key->flag == HA_READ_AFTER_KEY) high.append("\xff\xff\xff\xff\xff\xff\xff\xff\xff", 9);
  }
  uint64_t rows = 1;
  myriad_status status = myriad_records_in_range(m_table, plan.core_no, min_key ? low.data() : nullptr, low.size(),
                                                 max_key ? high.data() : nullptr, high.size(),
                                                 max_key && max_key->flag == HA_READ_BEFORE_KEY, &rows);
  if (status != MYRIAD_OK) {
    myriad_error_noted(status, ha_thd());
    return HA_POS_ERROR;
  }
  return rows ? rows : 1;
}

ha_rows ha_myriad::estimate_rows_upper_bound() {
  info(HA_STATUS_VARIABLE | HA_STATUS_NO_LOCK);
  /* Sorting sizes its buffers by this: better too many. */
  return 2 * stats.records + 100;
}

/* Costs are counted in pages, as InnoDB counts them, so that plans agree. */
double ha_myriad::scan_time() { return std::max(1.0, double(stats.data_file_length) / double(m_page_size)); }

double ha_myriad::read_time(uint index, uint ranges, ha_rows rows) {
  if (index != table->s->primary_key) return handler::read_time(index, ranges, rows);
  if (rows <= 2) return double(rows);
  double whole = scan_time();
  ha_rows all = estimate_rows_upper_bound();
  if (all < rows) return whole;
  return ranges + double(rows) / double(all) * whole;
}

int ha_myriad::analyze(THD *, HA_CHECK_OPT *) {
  /* info() is given the same then, or says what is wrong. */
  myriad_table_stats closely;
  myriad_table_info(m_table, MYRIAD_INFO_CLOSELY, &closely);
  info(HA_STATUS_VARIABLE | HA_STATUS_TIME);
  refresh_rows_per_key(true);
  copy_rows_per_key();
  return HA_ADMIN_OK;
}

int ha_myriad::optimize(THD *, HA_CHECK_OPT *) { return HA_ADMIN_TRY_ALTER; }

namespace {

struct Findings {
  THD *thd;
  uint count;
};

void report_finding(void *arg, const char *text, size_t length) {
  auto *findings = static_cast<Findings *>(arg);
  findings->count++;
  push_warning_printf(findings->thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "MYRIAD: %.*s", int(length), text);
}

}  // namespace

int ha_myriad::check(THD *thd, HA_CHECK_OPT *) {
  if (int error = ensure_session()) return error == HA_ERR_OUT_OF_MEM ? HA_ADMIN_INTERNAL_ERROR : HA_ADMIN_FAILED;
  Findings findings{thd, 0};
  myriad_status status = myriad_check_table(core(), m_table, report_finding, &findings);
  if (status == MYRIAD_ERR_INTERRUPTED) return HA_ADMIN_FAILED;
  if (status != MYRIAD_OK) {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "MYRIAD: %s", myriad_last_error());
    return HA_ADMIN_CORRUPT;
  }
  return findings.count ? HA_ADMIN_CORRUPT : HA_ADMIN_OK;
}
