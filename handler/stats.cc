/* What the optimizer asks: sizes, rows in ranges, rows for each key value; and the table maintenance statements. */
#include "ha_myriad.h"
#include "eight_bytes.h"
#include "work.h"

using myriad::IndexPlan;

namespace {

constexpr uint32_t SAMPLE_PAGES_AT_OPEN = 8, SAMPLE_PAGES_ANALYZE = 64;
/* So many changed rows, beside half of the table's, make samples stale. */
constexpr ulonglong CHANGED_ROWS_MIN = 1000;
constexpr ulonglong PURGED_AFTER_US = 5000000;

/* How often the first k columns of an index change from one entry to the next, on sampled pages, and from one page of
   the tree to the next. */
struct Sampler {
  /* Of one level: lists of neighbours, on level 0 the entries of leaves, above it separators. */
  struct Level {
    ulonglong lists = 0, steps = 0;
    std::vector<ulonglong> changes;                        /* for each part */
    std::vector<ulonglong> changing_lists, changing_steps; /* lists with a change, and steps in them */
  };
  explicit Sampler(const IndexPlan &plan) : index(plan), list_changes(plan.parts.size()) {}
  const IndexPlan &index;
  std::vector<Level> levels;
  std::vector<ulonglong> list_changes;
  ulonglong list_steps = 0;
  uint8_t level = 0;
  myriad::Buffer previous;

  void add(const uchar *key, size_t length, uint8_t kind, uint8_t at_level) {
    if (kind == MYRIAD_SAMPLED_FIRST) {
      end_list();
      level = at_level;
      while (levels.size() <= level) {
        levels.emplace_back();
        for (auto *counts : {&levels.back().changes, &levels.back().changing_lists, &levels.back().changing_steps})
          counts->resize(index.parts.size());
      }
      levels[level].lists++;
    } else {
      list_steps++;
      for (size_t i = count_same(key, length); i < index.parts.size(); i++) list_changes[i]++;
    }
    previous.assign(key, length);
  }

  void end_list() {
    if (levels.empty()) return;
    Level &l = levels[level];
    l.steps += list_steps;
    for (size_t i = 0; i < index.parts.size(); i++) {
      l.changes[i] += list_changes[i];
      if (list_changes[i]) l.changing_lists[i]++, l.changing_steps[i] += list_steps;
      list_changes[i] = 0;
    }
    list_steps = 0;
  }

  /* A part that lies within what is equal is the same: it says itself where it ends. A separator that the next key
     begins with may have been cut within the same value. */
  size_t count_same(const uchar *key, size_t length) const {
    const uchar *end = key + length;
    const uchar *equal_end = key + myriad::equal_bytes(key, previous.data(), std::min(length, previous.size()));
    if (size_t(equal_end - key) == previous.size()) return index.parts.size();
    const uchar *at = key;
    size_t same = 0;
    for (; same < index.parts.size(); same++) {
      at = skip_part(index.parts[same], at, end);
      if (!at || at > equal_end) break;
    }
    return same;
  }

  /* Rows for each value of the first part + 1 columns. The index is in order: between two separators with one value
     there is no other. How many changes there are between two that differ is known from the lists of the level below
     that have one. */
  ulong rows_per_value(size_t part, ulonglong rows) const {
    if (levels.empty()) return 0;
    const Level &leaves = levels[0];
    double values = 1 + double(leaves.changes[part]);
    if (levels.size() > 1) {
      double changing = double(levels.back().changes[part]);
      for (size_t l = levels.size() - 2; l > 0; l--)
        if (levels[l].changing_lists[part])
          changing *= double(levels[l].changes[part]) / double(levels[l].changing_lists[part]);
      const double unseen = std::max(0.0, changing - double(leaves.changing_lists[part]));
      values += unseen * changes_in_leaf(leaves, part);
    }
    return ulong(std::max(1.0, double(rows) / values + 0.5));
  }

  /* In a typical leaf, if it has one: the last leaf may be shorter. */
  static double changes_in_leaf(const Level &leaves, size_t part) {
    const ulonglong changes = leaves.changes[part];
    if (changes == leaves.changing_lists[part]) return 1;
    const double steps = double(leaves.steps) / double(leaves.lists);
    return std::max(1.0, double(changes) / double(leaves.changing_steps[part]) * steps);
  }
};

bool sample_entry(void *arg, const uint8_t *key, size_t length, uint8_t kind, uint8_t level) {
  static_cast<Sampler *>(arg)->add(key, length, kind, level);
  return true;
}

/* Whether the table has grown or shrunk so much since it was sampled that it must be done again. */
bool are_stale(const std::vector<uint64_t> &samples, ulonglong rows) {
  if (samples.empty()) return true;
  const ulonglong then = samples[0];
  return rows > 2 * then + (then ? 4 : 0) || rows + 16 < then / 2;
}

}  // namespace

Myriad_share::Myriad_share() { mysql_mutex_init(0, &mutex, MY_MUTEX_INIT_FAST); }
Myriad_share::~Myriad_share() { mysql_mutex_destroy(&mutex); }

/* Samples each index and leaves the result in the share; of an index that cannot be read it is unknown. A handler
   error, told where the statement is about that, or 0. */
int ha_myriad::refresh_rows_per_key(bool thorough) {
  const ulonglong rows = stats.records;
  int error = 0;
  std::vector<uint64_t> samples{rows};
  for (const IndexPlan &index : m_plan->indexes()) {
    if (index.server_no == UINT32_MAX) continue;
    const size_t first = samples.size();
    /* 0 is "unknown" to the server; of an empty table the cardinality is known. */
    samples.resize(first + index.parts.size(), rows ? 0 : 1);
    bool trivial = index.unique && index.parts.size() == 1 && !index.has_nullable;
    if (!trivial && rows) {
      Sampler sampler(index);
      const myriad_status status = myriad_sample_index(
          m_table, index.core_no, thorough ? SAMPLE_PAGES_ANALYZE : SAMPLE_PAGES_AT_OPEN, sample_entry, &sampler);
      if (thorough && !error) error = myriad_error_noted(status, ha_thd());
      sampler.end_list();
      for (size_t i = 0; i < index.parts.size(); i++) samples[first + i] = sampler.rows_per_value(i, rows);
    }
    if (index.unique && !index.has_nullable && rows) samples.back() = 1;
  }
  myriad_table_keep_samples(m_table, samples.data(), samples.size());
  share_samples(&samples);
  return error;
}

void ha_myriad::share_samples(std::vector<uint64_t> *samples) {
  mysql_mutex_lock(&m_share->mutex);
  m_share->samples.swap(*samples);
  m_share->changed_rows = 0;
  m_share->version++;
  mysql_mutex_unlock(&m_share->mutex);
}

/* As many rows may have other values then: who asks next takes samples again. */
void ha_myriad::share_changed_rows() {
  mysql_mutex_lock(&m_share->mutex);
  std::vector<uint64_t> &samples = m_share->samples;
  m_share->changed_rows += m_changed_rows;
  const bool are_many = !samples.empty() && m_share->changed_rows > samples[0] / 2 + CHANGED_ROWS_MIN;
  if (are_many) {
    samples.clear();
    m_share->sample_again_us = microsecond_interval_timer() + PURGED_AFTER_US;
  }
  mysql_mutex_unlock(&m_share->mutex);
  m_changed_rows = 0;
  /* What is kept for later has as many numbers as nobody asks for. */
  const uint64_t none = 0;
  if (are_many) myriad_table_keep_samples(m_table, &none, 1);
}

/* Takes what the core has kept since the table was open before, if that is still good. */
bool ha_myriad::adopt_kept_samples(ulonglong rows) {
  size_t count = 1;
  for (const IndexPlan &index : m_plan->indexes())
    if (index.server_no != UINT32_MAX) count += index.parts.size();
  std::vector<uint64_t> samples(count);
  if (!myriad_table_kept_samples(m_table, samples.data(), count) || are_stale(samples, rows)) return false;
  share_samples(&samples);
  return true;
}

void ha_myriad::copy_rows_per_key() {
  mysql_mutex_lock(&m_share->mutex);
  size_t at = 1;
  for (const IndexPlan &index : m_plan->indexes()) {
    if (index.server_no == UINT32_MAX) continue;
    const size_t parts = index.parts.size();
    if (at + parts > m_share->samples.size()) break;
    KEY &key = table->key_info[index.server_no];
    for (uint i = 0; key.rec_per_key && i < key.ext_key_parts; i++)
      key.rec_per_key[i] = i < parts ? ulong(m_share->samples[at + i]) : 1;
    at += parts;
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
  const bool again = wants_rows && m_share->sample_again_us && microsecond_interval_timer() > m_share->sample_again_us;
  if (again) m_share->sample_again_us = 0;
  const bool stale = again || (wants_rows && are_stale(m_share->samples, core_stats.rows));
  const bool newer = m_share->version != m_stats_version;
  mysql_mutex_unlock(&m_share->mutex);
  if (again || (stale && !adopt_kept_samples(core_stats.rows))) refresh_rows_per_key(false);
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
    /* "After" a prefix: behind every key that begins with it, but for some that go on with the largest numbers there
     * are. */
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

int ha_myriad::analyze(THD *thd, HA_CHECK_OPT *) {
  /* info() is given the same then. */
  myriad_table_stats closely;
  int error = myriad_error_noted(myriad_table_info(m_table, MYRIAD_INFO_CLOSELY, &closely), thd);
  if (!error) error = info(HA_STATUS_VARIABLE | HA_STATUS_TIME);
  if (!error) error = refresh_rows_per_key(true);
  copy_rows_per_key();
  if (error) return error == HA_ERR_CRASHED ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
  return HA_ADMIN_OK;
}

int ha_myriad::optimize(THD *, HA_CHECK_OPT *) { return HA_ADMIN_TRY_ALTER; }
