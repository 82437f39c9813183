/* FOREIGN KEY constraints: looking up parents and children, and acting on children.

   The server opens neither the parents of a table that it writes nor most children, so each connection keeps what it
   needs of them: a `Relative` is a table opened beside the statement's own, under a metadata lock of the transaction.
 */
#ifndef MYRIAD_REFERENCES_H
#define MYRIAD_REFERENCES_H
#include "foreign_keys.h"
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

class Session;

namespace myriad {

class Relative {
public:
  /* Null if there is no such table. A handler error if it cannot be opened or the catalog cannot be read. */
  static int open(THD *thd, const std::string &name, std::unique_ptr<Relative> *out);
  ~Relative();
  bool is_current() const;
  TABLE *table() { return &m_table; }
  ha_myriad *file() { return m_file; }
  const std::string &name() const { return m_name; }
  /* The generated columns of a record, which must be the table's record[0]. */
  bool compute_generated(THD *thd, bool stored_too);

private:
  static int open_as_defined(THD *thd, const std::string &name, std::unique_ptr<Relative> *out);
  Relative() = default;
  std::string m_name, m_path, m_image;
  SqlName m_sql;
  TABLE_SHARE m_share;
  TABLE m_table;
  TABLE_LIST m_list;
  ha_myriad *m_file = nullptr;
};

/* A connection's relatives. */
class Relatives {
public:
  /* Takes the metadata lock. 0 and null: no such table. Else an error that has been reported to the connection. */
  int get(THD *thd, const std::string &name, enum_mdl_type lock, Relative **out);
  /* What was found in an earlier statement has to be looked for again. */
  void begin_statement();
  /* Closes them if they are many and all connections together have more than a fifth of table_open_cache: a connection
     may be idle for long. */
  void end_statement();
  uint64_t statement = 1;
  const uint64_t connection; /* a number that no other connection ever has */

  Relatives();

private:
  bool is_locked_by_server(THD *thd, const SqlName &name, enum_mdl_type lock);

  std::map<std::string, std::unique_ptr<Relative>> m_open;
  size_t m_gets = 0; /* of the statement */
  /* Tables that the server has open for the statement, by the key of their metadata locks; from the statement's
     SERVERS_ASKED_FROMth relative on. */
  std::unordered_map<std::string, const MDL_ticket *> m_servers;
};

/* One foreign key as one of its two tables sees it. */
struct Link {
  ForeignKey key;
  bool as_child;              /* the table that has the link is the child */
  std::vector<KeyPart> own;   /* its columns of the key */
  std::vector<KeyPart> entry; /* of the child: of its entries in the key's index; one of these changes, and its parent
                                 is looked up anew, as InnoDB does for each new entry */
  uint32_t own_index = 0;     /* core number of its index of them */
  bool indexed = false;       /* it has one */
  bool checked = true;
  uint64_t connection = 0, statement = 0; /* whose `other` is, and when it was found; open tables pass from one
                                             connection to the next */
  Relative *other = nullptr;              /* the other table, null if it does not exist */
  const IndexPlan *index = nullptr;       /* its index of the key, null if there is none */
  /* The metadata lock on it. */
  enum_mdl_type lock = MDL_INTENTION_EXCLUSIVE;
};

/* The change of a row, and what led to it. */
struct Cascade {
  const Cascade *up;
  const std::string *table;
  bool is_delete;
  unsigned depth;
  const uchar *record;   /* as it was before */
  uint32_t index_no = 0; /* whose entry's children are being looked for, by the core's number */
};

/* The foreign keys of an open table, in both roles. */
class References {
public:
  References(ha_myriad *file, const ForeignKeys &own, const ForeignKeys &of_others);
  bool empty() const { return m_parents.empty() && m_children.empty(); }
  bool has_parents() const { return !m_parents.empty(); }
  bool has_children() const { return !m_children.empty(); }
  const std::vector<Link> &parents() const { return m_parents; }
  const std::vector<Link> &children() const { return m_children; }
  /* The rows that an ALTER copies satisfy the foreign keys of these names. */
  void leave_unchecked(const std::vector<std::string> &names);
  /* Metadata locks on the parents. */
  int lock_parents(THD *thd);
  /* Whether a change concerns any of the foreign keys. `old_record` null: the row is new; `new_record` null: it goes.
   */
  bool concerns(const uchar *old_record, const uchar *new_record) const;
  /* Metadata locks on all that such a change is to look at, which must be held before it does. */
  int lock(THD *thd, const uchar *old_record, const uchar *new_record, const ForeignKey *cause);
  /* Numbers of the table's indexes, first to last: what depends on others is left to later. */
  struct Indexes {
    uint32_t first = 0, last = UINT32_MAX;
    bool has(uint32_t no) const { return no >= first && no <= last; }
  };
  /* The row's parents exist; of an update those of the entries that it changes, but for `cause`. `is_stored`: not that
     it failed because of a duplicate. */
  int check_parents(THD *thd, const uchar *old_record, const uchar *new_record, Indexes which, const ForeignKey *cause,
                    bool is_stored);
  /* The row is gone, or changed: refuses it, or changes its children. Index by index, as InnoDB does it. */
  int row_deleted(THD *thd, Cascade *cascade);
  int row_updated(THD *thd, const uchar *new_record, const ForeignKey *cause, Cascade *cascade);
  /* The update has failed because of a duplicate in index `last`: what would have refused it before. Children are
     changed nevertheless. */
  int update_failed(THD *thd, const uchar *new_record, uint32_t last, Cascade *cascade);

private:
  int resolve(THD *thd, Link *link, enum_mdl_type lock);
  bool key_of(const Link &link, const uchar *record, Buffer *out) const;
  int exists(THD *thd, const Link &link, const Buffer &key, myriad_lock lock, const Buffer *except, bool *found);
  static bool refers_to_itself(const Link &link, const Buffer &key, const uchar *record);
  int follow_update(THD *thd, const uchar *new_record, uint32_t last, const ForeignKey *cause, bool is_stored,
                    Cascade *cascade);
  int act_on_children(THD *thd, const uchar *new_record, Indexes which, Cascade *cascade);
  static bool is_changing(const Link &link, const Buffer &key, const Cascade &cascade);
  static int may_change(THD *thd, const Link &link, const Cascade &cascade);
  int cascade_to(THD *thd, Link *link, const Buffer &key, const uchar *new_record, const Cascade &cascade);
  int change_child(THD *thd, Link *link, const uchar *pk, size_t pk_length, const uchar *new_record,
                   const Cascade &cascade);

  ha_myriad *m_file;
  std::vector<Link> m_parents, m_children;
  std::set<uint32_t> m_indexes; /* of either */
};

}  // namespace myriad
#endif
