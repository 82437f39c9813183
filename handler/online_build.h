/* What an ALTER TABLE builds in place from a table's rows while others change them: indexes (index_builds.h), or the
   table anew (table_rebuild.h). */
#ifndef MYRIAD_ONLINE_BUILD_H
#define MYRIAD_ONLINE_BUILD_H
#include "owned.h"
#include "rows.h"
#include <memory>

namespace myriad {

/* Functions give a handler error, or 0. One of an expression has told the statement's error itself. */
class OnlineBuild {
public:
  virtual ~OnlineBuild();
  /* Takes note of what happens to the rows from now on. Nobody may have changed them and not committed, or do so before
     this returns. `builder` is the connection's session, whose kill ends all. */
  int begin(myriad_session *builder);
  /* Builds from the rows as they were at the beginning, about `rows`. */
  int build(ulonglong rows);
  /* Repeats what has happened since, until only a little can have happened meanwhile. */
  int catch_up();
  /* Repeats the rest. Until what was built is in use nobody may change the table. */
  virtual int finish();
  /* Names what was built. */
  virtual void give_to(myriad_alteration *) const = 0;
  /* It is in use. */
  virtual void adopted() {}
  /* Whose AUTO_INCREMENT counter the altered table will have. */
  virtual myriad_table *counting_table() const { return m_table; }

  /* After HA_ERR_FOUND_DUPP_KEY: the server's number of its index, and the row that has it, or one of several, into the
     altered table's record; false if there is none. */
  uint duplicate_key() const { return m_duplicate_index->server_no; }
  virtual bool read_duplicate() = 0;

protected:
  using SessionPointer = std::unique_ptr<myriad_session, Deleter>;

  /* `plan` reads the rows that there are into the altered table's record. `apart`: all rows that were are given to
     changed() before those that are. */
  OnlineBuild(THD *thd, myriad_table *table, TABLE *altered, const TablePlan &plan, bool apart);
  /* That of which virtual columns entries are made. */
  void need_columns(const IndexPlan &);
  /* From now on rows are read into the record of `table`, and convert() makes the altered table's of it. */
  void read_into(TABLE *table);
  /* Into the altered table's record, with the virtual columns that entries are made of. */
  int read_row(const myriad_row &);
  ulonglong rows_seen() const { return m_rows_seen; }
  bool is_killed();
  int failed(myriad_status status);
  bool read_duplicate(myriad_session *, myriad_table *, const TablePlan &);

  virtual myriad_status start(myriad_session *builder) = 0;
  virtual int convert() { return 0; }
  virtual int add(const myriad_row &) = 0;
  /* Writes what was added, and what changed() has left. */
  virtual int write_rows() = 0;
  virtual int write_changes() = 0;
  /* A status that is not MYRIAD_OK has the handler error in m_error, or is one of the core's. */
  virtual myriad_status changed(const myriad_row *before, const myriad_row *now) = 0;

  THD *m_thd;
  myriad_table *m_table;
  TABLE *m_altered;
  const TablePlan &m_plan;
  SessionPointer m_before; /* its snapshot is what was built so far */
  const IndexPlan *m_duplicate_index = nullptr;
  Buffer m_duplicate; /* the entry's key */
  int m_error = 0;    /* of a visit that was ended */

private:
  myriad_status open_session(SessionPointer *session);
  int read_rows(ulonglong rows);
  bool compute_virtual_columns();
  /* Repeats what has happened since the last time; how many rows may have changed. */
  int repeat(uint64_t *rows);

  TABLE *m_read_into; /* whose record rows are read into */
  const bool m_apart;
  std::unique_ptr<myriad_row_changes, Deleter> m_changes;
  Template m_all;
  std::vector<Field *> m_virtual; /* columns that rows do not have; as they are indexed, no setting of the session is in
                                     them */
  Buffer m_blobs;
  ulonglong m_rows_seen = 0;
};

/* The row that has the duplicate entry `key`, which the session sees, into the record. */
bool read_duplicate(myriad_session *, myriad_table *, TABLE *into, const IndexPlan &, const TablePlan &,
                    const Buffer &key, Buffer *blobs);

}  // namespace myriad
#endif
