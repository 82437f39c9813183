/* The indexes that an ALTER TABLE adds, built in place. */
#ifndef MYRIAD_INDEX_BUILDS_H
#define MYRIAD_INDEX_BUILDS_H
#include "online_build.h"

namespace myriad {

class IndexBuilds final : public OnlineBuild {
public:
  /* `plan` is of the altered table, `added` are the core's numbers of its new indexes. */
  IndexBuilds(THD *thd, myriad_table *table, TABLE *altered, const TablePlan &plan, const std::vector<uint32_t> &added);
  /* Drops what is not in use by then. */
  ~IndexBuilds() override;
  void give_to(myriad_alteration *) const override;
  bool read_duplicate() override;

private:
  struct Entry {
    Buffer key, value;
    size_t unique_length = 0;
  };

  myriad_status start(myriad_session *builder) override;
  int add(const myriad_row &) override;
  int write_rows() override;
  int write_changes() override;
  myriad_status changed(const myriad_row *before, const myriad_row *now) override;
  /* The entries of a row, one for each index. */
  int make_entries(const myriad_row &row, std::vector<Entry> *entries);
  myriad_status add(size_t no, const Entry &entry);
  /* Writes what was added to each index. */
  int write(myriad_status (*write_one)(myriad_index_build *, const uint8_t **, size_t *));

  std::vector<const IndexPlan *> m_indexes;
  std::vector<myriad_index_build *> m_builds; /* of m_indexes */
  std::vector<Entry> m_old, m_new;
};

}  // namespace myriad
#endif
