/* The indexes that an ALTER TABLE adds, built in place from the table's rows while others change them. */
#ifndef MYRIAD_INDEX_BUILDS_H
#define MYRIAD_INDEX_BUILDS_H
#include "rows.h"
#include <memory>

namespace myriad {

/* Functions give a handler error, or 0. One of an expression has told the statement's error itself. */
class IndexBuilds {
public:
  /* `plan` is of the altered table, `added` are the core's numbers of its new indexes. */
  IndexBuilds(THD *thd, myriad_table *table, TABLE *altered, const TablePlan &plan, const std::vector<uint32_t> &added);
  /* Drops what is not in use by then. */
  ~IndexBuilds();
  /* Takes note of what happens to the rows from now on. Nobody may have changed them and not committed, or do so before
     this returns. `builder` is the connection's session, whose kill ends all. */
  int begin(myriad_session *builder);
  /* Builds the indexes of the rows as they were at the beginning, about `rows`. */
  int build(ulonglong rows);
  /* Repeats in the indexes what has happened since, until only a little can have happened meanwhile. */
  int catch_up();
  /* Repeats the rest. Until the indexes are in use nobody may change the table. */
  int finish();
  const std::vector<myriad_index_build *> &builds() const { return m_builds; }

  /* After HA_ERR_FOUND_DUPP_KEY: its index, the key of an entry that has it, and a session that sees that one's row. */
  const IndexPlan &duplicate_index() const { return *m_indexes[m_duplicate_no]; }
  const Buffer &duplicate_key() const { return m_duplicate; }
  myriad_session *session() const { return m_before.get(); }

private:
  struct Deleter {
    void operator()(myriad_session *session) const { myriad_session_free(session); }
    void operator()(myriad_row_changes *changes) const { myriad_row_changes_free(changes); }
    void operator()(myriad_cursor *cursor) const { myriad_cursor_close(cursor); }
  };
  using SessionPointer = std::unique_ptr<myriad_session, Deleter>;
  struct Entry {
    Buffer key, value;
    size_t unique_length = 0;
  };

  myriad_status open_session(SessionPointer *session);
  int read_rows(ulonglong rows);
  /* Repeats what has happened since the last time; how many rows may have changed. */
  int repeat(uint64_t *rows);
  static myriad_status changed(void *builds, const myriad_row *before, const myriad_row *now);
  myriad_status changed(const myriad_row *before, const myriad_row *now);
  /* The entries of a row, one for each index. */
  int make_entries(const myriad_row &row, std::vector<Entry> *entries);
  bool is_killed();
  int failed(myriad_status status);
  myriad_status add(size_t no, const Entry &entry);
  /* Writes what was added to each index. */
  int write(myriad_status (*write_one)(myriad_index_build *, const uint8_t **, size_t *));

  THD *m_thd;
  myriad_table *m_table;
  TABLE *m_altered;
  const TablePlan &m_plan;
  std::vector<const IndexPlan *> m_indexes;
  std::vector<myriad_index_build *> m_builds; /* of m_indexes */
  std::unique_ptr<myriad_row_changes, Deleter> m_changes;
  SessionPointer m_before; /* its snapshot is what the indexes show */
  Template m_all;
  std::vector<Field *> m_virtual; /* columns of the indexes that rows do not have; as they are indexed, no setting of
                                     the session is in them */
  std::vector<Entry> m_old, m_new;
  Buffer m_blobs, m_duplicate;
  size_t m_duplicate_no = 0;
  ulonglong m_rows_seen = 0;
  int m_error = 0; /* of a visit that was ended */
};

}  // namespace myriad
#endif
