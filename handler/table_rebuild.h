/* A table that an ALTER TABLE builds anew: OPTIMIZE, FORCE, another primary key, columns that may be NULL or not. */
#ifndef MYRIAD_TABLE_REBUILD_H
#define MYRIAD_TABLE_REBUILD_H
#include "online_build.h"
#include <string>
#include <vector>

namespace myriad {

/* Fills a table that nobody else sees, whose rows and indexes the altered one gets in the end. A server that ends
   before leaves it to the server's log of DDL to drop, under the name of the altered table. */
class TableRebuild final : public OnlineBuild {
public:
  /* `plan` reads the rows that there are; `name` is for the new table. */
  TableRebuild(THD *thd, myriad_table *table, TABLE *altered, const TablePlan &plan, std::string name,
               size_t whole_row_max);
  /* Drops what is not in use by then. */
  ~TableRebuild() override;
  /* Records of the new table are others than those of `old`, its open table. `origins`: for each of its fields the old
     one's number, or -1: then the record has its value already. */
  void convert_rows(TABLE *old, const std::vector<int> &origins);
  int finish() override;
  void give_to(myriad_alteration *alteration) const override { alteration->contents = m_name.c_str(); }
  void adopted() override { m_created = false; }
  myriad_table *counting_table() const override { return m_new.get(); }
  bool read_duplicate() override;

private:
  /* Of a secondary index; offsets into m_keys. */
  struct PendingOp {
    uint32_t index_no;
    size_t key, key_length, unique_length, value, value_length;
  };

  struct Move {
    Field *from, *to;
  };

  myriad_status start(myriad_session *builder) override;
  int convert() override;
  int add(const myriad_row &) override;
  int write_rows() override;
  int write_changes() override { return 0; }
  myriad_status changed(const myriad_row *before, const myriad_row *now) override;
  myriad_status create();
  myriad_status begin_copy(const char *tmp_dir);
  /* Does it with all of a row's entries. */
  int apply(const myriad_row &row, myriad_op_kind kind);

  const std::string m_name;
  const size_t m_whole_row_max;
  const TablePlan m_target; /* of the altered table; its rows have one layout */
  myriad_session *m_builder = nullptr;
  bool m_created = false;
  bool m_duplicate_read = false; /* the record is the duplicate */
  std::unique_ptr<myriad_table, Deleter> m_new;
  std::unique_ptr<myriad_copy, Deleter> m_copy;
  std::vector<Move> m_moves; /* of a row's columns */
  std::vector<PendingOp> m_pending;
  std::vector<myriad_op> m_ops;
  Buffer m_pk, m_row, m_keys;
};

}  // namespace myriad
#endif
