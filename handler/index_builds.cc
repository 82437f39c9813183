#include "index_builds.h"
#include "session.h"
#include "variables.h"

namespace myriad {

IndexBuilds::IndexBuilds(THD *thd, myriad_table *table, TABLE *altered, const TablePlan &plan,
                         const std::vector<uint32_t> &added)
    : OnlineBuild(thd, table, altered, plan, false), m_old(added.size()), m_new(added.size()) {
  for (uint32_t no : added) {
    m_indexes.push_back(&plan.indexes()[no]);
    need_columns(*m_indexes.back());
  }
}

IndexBuilds::~IndexBuilds() {
  for (auto *build : m_builds) myriad_index_build_free(build);
}

myriad_status IndexBuilds::start(myriad_session *builder) {
  const ulonglong memory = myriad_sort_buffer_of(m_thd) / m_indexes.size();
  for (const IndexPlan *index : m_indexes) {
    myriad_index_build *build = nullptr;
    const myriad_status status =
        myriad_index_build_begin(builder, m_table, index->unique, mysql_tmpdir, memory, &build);
    if (status != MYRIAD_OK) return status;
    m_builds.push_back(build);
  }
  return MYRIAD_OK;
}

void IndexBuilds::give_to(myriad_alteration *alteration) const {
  alteration->builds = m_builds.data();
  alteration->build_count = uint32_t(m_builds.size());
}

bool IndexBuilds::read_duplicate() { return OnlineBuild::read_duplicate(m_before.get(), m_table, m_plan); }

int IndexBuilds::make_entries(const myriad_row &row, std::vector<Entry> *entries) {
  if (int error = read_row(row)) return error;
  const uchar *record = m_altered->record[0];
  for (size_t no = 0; no < m_indexes.size(); no++) {
    const IndexPlan &index = *m_indexes[no];
    Entry &entry = (*entries)[no];
    entry.key.clear();
    entry.value.clear();
    const size_t columns = m_plan.pack_entry_key(index, record, row.key, row.key_len, &entry.key);
    m_plan.pack_entry_value(index, record, columns, &entry.value);
    entry.unique_length = index.unique && !m_plan.any_null(index, record) ? columns : 0;
  }
  return 0;
}

int IndexBuilds::add(const myriad_row &row) {
  if (int error = make_entries(row, &m_new)) return error;
  myriad_status status = MYRIAD_OK;
  for (size_t no = 0; no < m_builds.size() && status == MYRIAD_OK; no++) status = add(no, m_new[no]);
  return status == MYRIAD_OK ? 0 : failed(status);
}

myriad_status IndexBuilds::add(size_t no, const Entry &entry) {
  return myriad_index_build_add(m_builds[no], entry.key.data(), entry.key.size(), entry.unique_length,
                                entry.value.data(), entry.value.size());
}

int IndexBuilds::write(myriad_status (*write_one)(myriad_index_build *, const uint8_t **, size_t *)) {
  for (size_t no = 0; no < m_builds.size(); no++) {
    const uint8_t *duplicate = nullptr;
    size_t length = 0;
    const myriad_status status = write_one(m_builds[no], &duplicate, &length);
    if (status == MYRIAD_ERR_DUPLICATE_KEY) {
      m_duplicate_index = m_indexes[no];
      m_duplicate.assign(duplicate, length);
      return HA_ERR_FOUND_DUPP_KEY;
    }
    if (status != MYRIAD_OK) return failed(status);
  }
  return 0;
}

int IndexBuilds::write_rows() { return write(myriad_index_build_finish); }

int IndexBuilds::write_changes() { return write(myriad_index_build_catch_up); }

myriad_status IndexBuilds::changed(const myriad_row *before, const myriad_row *now) {
  m_error = before ? make_entries(*before, &m_old) : 0;
  if (!m_error && now) m_error = make_entries(*now, &m_new);
  if (m_error) return MYRIAD_ERR_INTERRUPTED;
  for (size_t no = 0; no < m_builds.size(); no++) {
    const Entry &old_entry = m_old[no], &new_entry = m_new[no];
    if (before && now && old_entry.key == new_entry.key && old_entry.value == new_entry.value) continue;
    myriad_status status = MYRIAD_OK;
    if (before) status = myriad_index_build_remove(m_builds[no], old_entry.key.data(), old_entry.key.size());
    if (now && status == MYRIAD_OK) status = add(no, new_entry);
    if (status != MYRIAD_OK) return status;
  }
  return MYRIAD_OK;
}

}  // namespace myriad
