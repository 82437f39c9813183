/* The handler class: one object for each TABLE in use. It converts rows, keys, errors and calls; the engine is the
 * core. */
#ifndef HA_MYRIAD_H
#define HA_MYRIAD_H
#include "server.h"
#include "rows.h"
#include "session.h"
#include "ahead.h"
#include "owned.h"
#include <memory>

/* Statistics that all TABLEs of one definition share. */
class Myriad_share : public Handler_share {
public:
  Myriad_share();
  ~Myriad_share() override;
  mysql_mutex_t mutex;
  uint version = 0; /* raised at each sampling */
  /* The rows there were; for each index that the server knows, in the core's order, the rows for each value of its
     first part, of its first two, and so on. Empty: not sampled yet. */
  std::vector<uint64_t> samples;
  /* Rows deleted, or moved within an index, since then. */
  ulonglong changed_rows = 0;
  /* Of the server's clock: samples are taken once more then, as purge may not have removed old entries before; 0 =
   * never. */
  ulonglong sample_again_us = 0;
};

class Inplace_alter;
namespace myriad {
class OnlineBuild;
}

class ha_myriad final : public handler {
public:
  ha_myriad(handlerton *hton, TABLE_SHARE *share);
  ~ha_myriad() override;

  ulonglong table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  const char *index_type(uint index) override;
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_length() const override;
  uint max_supported_key_part_length() const override;
  uint max_supported_record_length() const override { return HA_MAX_REC_LENGTH; }
  uint lock_count() const override { return 0; }
  /* All are alike; shown is what was declared. */
  enum row_type get_row_type() const override {
    const enum row_type declared = table_share ? table_share->row_type : ROW_TYPE_DEFAULT;
    return declared == ROW_TYPE_COMPACT || declared == ROW_TYPE_REDUNDANT ? declared : ROW_TYPE_DYNAMIC;
  }
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }
  const key_map *keys_to_use_for_scanning() override { return &key_map_full; }

  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  handler *clone(const char *name, MEM_ROOT *mem_root) override;
  int reset() override;
  int extra(enum ha_extra_function operation) override;
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *record, const uchar *key, key_part_map parts, enum ha_rkey_function find_flag) override;
  int index_next(uchar *record) override;
  int index_prev(uchar *record) override;
  int index_first(uchar *record) override;
  int index_last(uchar *record) override;
  int index_next_same(uchar *record, const uchar *key, uint key_length) override;
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *record) override;
  int rnd_pos(uchar *record, uchar *position) override;
  int rnd_pos_by_record(uchar *record) override;
  void position(const uchar *record) override;
  int write_row(const uchar *record) override;
  int update_row(const uchar *old_record, const uchar *new_record) override;
  int delete_row(const uchar *record) override;
  void column_bitmaps_signal() override;
  void start_bulk_insert(ha_rows rows, uint flags) override;
  int end_bulk_insert() override;
  void try_semi_consistent_read(bool yes) override;
  bool was_semi_consistent_read() override;
  void unlock_row() override;
  void init_table_handle_for_HANDLER() override;

  Item *idx_cond_push(uint keyno, Item *condition) override;
  bool rowid_filter_push(Rowid_filter *filter) override;
  int multi_range_read_init(RANGE_SEQ_IF *seq, void *seq_init_param, uint n_ranges, uint mode,
                            HANDLER_BUFFER *buf) override;
  int multi_range_read_next(range_id_t *range_info) override;
  ha_rows multi_range_read_info_const(uint keyno, RANGE_SEQ_IF *seq, void *seq_init_param, uint n_ranges, uint *bufsz,
                                      uint *flags, Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint keyno, uint n_ranges, uint keys, uint key_parts, uint *bufsz, uint *flags,
                                Cost_estimate *cost) override;
  int multi_range_read_explain_info(uint mrr_mode, char *str, size_t size) override;

  /* trx.cc */
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type lock_type) override;
  int external_lock(THD *thd, int lock_type) override;
  int start_stmt(THD *thd, thr_lock_type lock_type) override;

  /* stats.cc */
  int info(uint flag) override;
  ha_rows records_in_range(uint index, const key_range *min_key, const key_range *max_key, page_range *pages) override;
  ha_rows estimate_rows_upper_bound() override;
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;
  int analyze(THD *thd, HA_CHECK_OPT *) override;
  int check(THD *thd, HA_CHECK_OPT *) override;
  int optimize(THD *thd, HA_CHECK_OPT *) override;

  /* autoinc.cc */
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                          ulonglong *reserved) override;
  int reset_auto_increment(ulonglong value) override;
  bool autoinc_lock_mode_stmt_unsafe() const override;
  void update_create_info(HA_CREATE_INFO *create_info) override;

  /* ddl.cc */
  int create(const char *name, TABLE *form, HA_CREATE_INFO *create_info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  int create_partitioning_metadata(const char *name, const char *old_name, chf_create_flags action,
                                   bool ignore_delete_error) override;
  int discover_check_version() override;
  bool check_if_incompatible_data(HA_CREATE_INFO *create_info, uint table_changes) override;
  int discard_or_import_tablespace(my_bool discard) override;

  /* alter.cc */
  bool can_convert_nocopy(const Field &field, const Column_definition &new_type) const override;
  Compare_keys compare_key_parts(const Field &old_field, const Column_definition &new_type,
                                 const KEY_PART_INFO &old_part, const KEY_PART_INFO &new_part) const override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;

  /* foreign_keys.cc */
  int get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) override;
  int get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) override;
  bool referenced_by_foreign_key() const noexcept override;
  bool can_switch_engines() override;
  bool is_fk_defined_on_table_or_index(uint index) override;
  char *get_foreign_key_create_info() override;
  void free_foreign_key_create_info(char *text) override;
  bool get_foreign_dup_key(char *child_table, uint child_table_length, char *child_key, uint child_key_length) override;

  /* trx.cc: until no prepared transaction whose connection is gone has changes of this table. */
  int wait_for_prepared();

  /* references.cc: what a change of a parent does to this table's rows. Undone by whoever began. */
  int read_for_cascade(THD *thd, const uchar *pk, size_t pk_length, myriad::Buffer *blobs);
  int current_clustered_key(const uchar *record, myriad::Buffer *out) const;
  int remove_cascading(THD *thd, const uchar *pk, size_t pk_length, myriad::Cascade *cascade);
  int change_cascading(THD *thd, const uchar *new_record, const uchar *pk, size_t pk_length,
                       const myriad::ForeignKey &cause, myriad::Cascade *cascade);
  uint duplicate_index() const { return m_session->duplicate_key; }
  bool is_bulk_copy() const { return m_bulk_copy; }

  /* Tells the client; gives the error back. */
  int report(int error);

  int set_auto_increment_at_least(const TABLE *altered, ulonglong wanted, const Inplace_alter &alter);
  void print_error(int error, myf flags) override;
  bool get_error_message(int error, String *text) override;

  myriad_table *core_table() { return m_table; }
  const myriad::TablePlan &plan() const { return *m_plan; }
  size_t excerpt(const uchar *value, size_t length, uchar *to) const {
    return m_plan->excerpt(m_template, value, length, to);
  }

private:
  bool may_be_told(int error) const;
  int fail(myriad_status status) { return m_session->fail(status, m_user_thd ? m_user_thd : ha_thd(), m_name.c_str()); }
  bool use_session(THD *thd);
  int ensure_session();
  int begin_reading();
  void read_virtual_columns();
  void compute_virtual_columns(const uchar *old_record);
  int compute_for_write(const uchar *old_record);
  bool restore_found();
  int wait_before_building();
  myriad_session *core() { return m_session->core(); }
  void close_cursor();
  int open_cursor(uint32_t core_index, bool full_scan);
  myriad_cursor_options cursor_options();
  void set_cursor_options();
  void set_excerpt();
  int adopt_definition();
  int exchange_definition(const std::string &old_name, const std::string &new_name);
  int rename_in_catalog(const char *from, const char *to);
  int rename_partitions(const char *from, const char *to);
  bool is_in_foreign_key(const Field &);
  bool may_become_null(const Field &);
  enum_alter_inplace_result how_to_alter(TABLE *altered, Alter_inplace_info *info);
  const char *reason_to_copy(const TABLE *altered, const Alter_inplace_info *info) const;
  bool rebuilds(const TABLE *altered, const Alter_inplace_info *) const;
  bool may_rebuild(const TABLE *altered);
  bool can_convert_rows(TABLE *altered, const std::vector<int> &origins, alter_table_operations flags);
  bool lay_out(TABLE *altered, Alter_inplace_info *, Inplace_alter *);
  int find_auto_increment_floor();
  int add_missing_counter();
  /* The statement may change what it reads: it needs all of each row. */
  bool may_change_rows() const {
    return m_own_session || (m_lock == MYRIAD_LOCK_X && thd_sql_command(ha_thd()) != SQLCOM_SELECT);
  }
  /* Rows that a sort of an index's entries points at need the columns that virtual ones are computed from, which the
     server has not asked for. */
  bool reading_needs_all() const {
    return may_change_rows() || (m_by_position && table->vfield) || computes_prefixes();
  }
  /* Whether virtual columns of which an entry has no more than a prefix are to be computed here. The server compares
     them with the end of the range, but takes them for read where it has asked for a keyread; and puts the rows of
     several partitions in order before it computes any. */
  bool computes_prefixes() const {
    return m_index && m_index->has_virtual_prefix && (keyread < MAX_KEY || table->part_info);
  }
  /* Whether a row may be another when it is read a second time. */
  bool must_read_at_once() const { return m_lock != MYRIAD_LOCK_NONE || m_session->isolation < MYRIAD_REPEATABLE_READ; }
  uint32_t wait_mode() const;
  /* Whether an entry and the row that its key finds may be of different versions: the newest of each are read. */
  bool entries_may_differ() const {
    return m_lock == MYRIAD_LOCK_NONE && m_session && m_session->isolation == MYRIAD_READ_UNCOMMITTED && m_index &&
           m_index->core_no;
  }
  bool has_entry(const uchar *record, const myriad::Buffer &entry);
  bool has_planned_indexes() const;
  void name_indexes();
  void make_template();
  size_t tail_bytes();
  size_t value_bytes();
  void prepare_cursor();
  void note_tail(bool wanted);
  void note_handler();
  bool by_keyread() const;
  bool for_positions_alone() const;
  bool range_ends_on_prefix() const;
  int compute_prefixes(uchar *record);
  check_result_t check_entry(const myriad_row &entry, check_result_t (*check)(void *));
  int ask(const myriad_row &entry, check_result_t (*check)(void *), int failed, bool *skip);

  int seek(uchar *record, myriad_seek how, const uchar *key, size_t key_length);
  int step(uchar *record, bool forward);
  int deliver(uchar *record, myriad_status status, myriad_row *row, bool forward);
  int deliver_entry(uchar *record, const myriad_row &row, bool *skip);
  int deliver_clustered(uchar *record, const myriad_row &row, myriad::Buffer *blobs);
  int deliver_tailed(uchar *record, const myriad_row &row, myriad::Buffer *blobs);
  int unpack(const myriad::Template &what, uchar *record, const myriad_row &row, myriad::Buffer *blobs);
  void read_rows_ahead(const uchar *pk, size_t pk_length);
  myriad_bytes clustered_key(const uchar *position) const;
  void note_positions(const HANDLER_BUFFER &buffer, uint mode);
  void read_positions_ahead(const uchar *position);
  void begin_ranges();
  static bool next_range(range_seq_t self, KEY_MULTI_RANGE *range);
  void read_ranges_ahead();
  int next_entry(uchar *record);
  int prev_entry(uchar *record);
  int note_end(int error, bool forward);
  void stand_past_same();
  int find_by_key(uchar *record, const uchar *key, key_part_map parts, enum ha_rkey_function find_flag);
  int read_unique(uchar *record, const uchar *key, size_t key_length);
  myriad_status look_up(uint32_t core_index, const uchar *key, size_t key_length, myriad_row *row);
  int resume(uchar *record, bool forward);
  void remember(const myriad_row &row);
  void encode_search_key(const myriad::IndexPlan &index, const uchar *key, key_part_map parts, bool *has_null,
                         uint *used, myriad::Buffer *out) const;
  void set_bounds(const myriad::IndexPlan &index, enum ha_rkey_function find_flag);
  void clear_bounds();
  void set_bounded(bool bounded, bool exactly);

  struct {
    std::string name, aside;
  } m_exchanged; /* EXCHANGE PARTITION: the table and the name that it has meanwhile */

  /* Changes. */
  struct PendingOp {
    myriad_op_kind kind;
    uint32_t index_no;
    size_t key, key_length, unique_length, value, value_length;
    bool row; /* the value is the packed row */
  };
  /* Up to this length a row is stored in an index page in any case, see docs/format.md: 7/16 of it, less its key. */
  size_t whole_row_max() const { return m_page_size * 7 / 32 - 16; }
  int apply();
  int pack_insert(const uchar *record);
  int change(const uchar *old_record, const uchar *new_record);
  int remove(const uchar *record);
  bool may_leave_out_orphans();
  bool may_sort_copy();
  void begin_copy(bool leaves_out);
  int start_copy();
  int end_copy();
  void abandon_copy();
  bool report_build(TABLE *altered, const Inplace_alter &, int error);
  myriad::OnlineBuild *make_rebuild(TABLE *altered, const Alter_inplace_info *);
  bool begin_build(Inplace_alter *, myriad::OnlineBuild *);
  bool finish_build(TABLE *altered, Inplace_alter *);
  bool prepare_commit(TABLE *altered, const Alter_inplace_info *, Inplace_alter *);
  int load_references();
  int lock_relatives(THD *thd, const uchar *old_record, const uchar *new_record, const myriad::ForeignKey *cause,
                     std::shared_ptr<myriad::References> *references);
  int use_references(THD *thd);
  bool enforces(const uchar *old_record, const uchar *new_record);
  int insert_checked(const uchar *record);
  int update_checked(const uchar *old_record, const uchar *new_record);
  int delete_checked(const uchar *record);
  int undo_to(uint64_t savepoint, int error);
  bool change_foreign_keys(TABLE *altered, Alter_inplace_info *info, const myriad::TablePlan &plan,
                           myriad::ForeignKeyChange *change);
  void add_op(const PendingOp &op) { m_pending.push_back(op); }
  void add_entry_insert(const myriad::IndexPlan &, const uchar *record, size_t pk, size_t pk_length);
  void add_entry_delete(const myriad::IndexPlan &, const uchar *record, size_t pk, size_t pk_length);
  void add_entry_update(const myriad::IndexPlan &, const uchar *old_record, const uchar *new_record, size_t old_pk,
                        size_t old_pk_length, size_t new_pk, size_t new_pk_length, bool pk_changed);
  void note_explicit_auto_increment(const uchar *record, bool inserting);
  int begin_autonomous();
  int end_autonomous(int error);
  void end_own_reads();
  int join_transaction(THD *thd);

  int refresh_rows_per_key(bool thorough);
  void share_samples(std::vector<uint64_t> *samples);
  bool adopt_kept_samples(ulonglong rows);
  void share_changed_rows();
  void copy_rows_per_key();

  handlerton *m_hton;
  myriad_table *m_table = nullptr;
  Myriad_share *m_share = nullptr;
  ulonglong m_changed_rows = 0; /* by the statement, see Myriad_share */
  std::unique_ptr<myriad::TablePlan> m_plan;
  std::string m_name;           /* in the core */
  Session *m_session = nullptr; /* of the connection that uses the table now */
  THD *m_user_thd = nullptr;
  std::unique_ptr<Session> m_own_session; /* sequences: changes commit at once */
  uint m_stats_version = 0;
  std::shared_ptr<myriad::References> m_references; /* null without foreign keys in either role */
  uint64_t m_references_version = 0;                /* at which these were read; 0 = not yet */
  const uint64_t m_page_size;

  /* Locks of the current statement. */
  myriad_lock m_lock = MYRIAD_LOCK_NONE, m_stored_lock = MYRIAD_LOCK_NONE;
  bool m_skip_locked = false;
  bool m_try_semi_consistent = false;
  bool m_locked_externally = false;
  bool m_frm_shown = false;
  bool m_is_clone = false; /* made by the server for one statement */
  void show_frm_while_locked(THD *thd);
  void hide_frm(THD *thd);

  /* The scan. */
  myriad_cursor *m_cursor = nullptr;
  uint32_t m_cursor_index = 0;
  bool m_have_last = false;   /* m_last_key is the current row's key in the scanned index */
  bool m_past_same = false;   /* m_last_key is a key sought by HANDLER, which stands behind all rows with it */
  bool m_exact = false;       /* the cursor stays within m_search */
  bool m_unique_hit = false;  /* the last read was by a whole unique key, without a cursor */
  bool m_bounded = false;     /* the range ends with m_bound_high */
  bool m_lends_blobs = false; /* BLOBs of the current row are in the cursor's memory */
  bool m_cursor_knows_template = false;                     /* it has been told what m_template needs */
  bool m_makes_excerpts = false;                            /* it reads excerpts, see TablePlan::excerpt */
  std::unique_ptr<myriad_cursor, myriad::Deleter> m_lender; /* a cursor that is closed but for that */
  bool m_scan_started = false;
  bool m_full_scan = false;
  bool m_by_position = false; /* rows are asked for by rnd_pos() */
  bool m_from_entry = false;  /* the row has come from a secondary entry alone; its clustered key is m_pk */
  bool m_keyread_asked = false;
  bool m_by_handler = false; /* SQL HANDLER: statements come and go between two reads */
  /* Where HANDLER stands without a last row: before the index's first entry or behind its last. */
  enum class Beyond : uint8_t { None, First, Last } m_beyond = Beyond::None;
  const myriad::IndexPlan *m_index = nullptr;
  myriad::Template m_template;
  unsigned m_tails_in_vain =
      0; /* rows with a tail of which nothing was wanted, since the last of which something was */
  myriad::Buffer m_search, m_last_key, m_bound_low, m_bound_high, m_range_end;
  myriad::Buffer m_entry, m_entry_part;
  myriad::Buffer m_pk;         /* clustered key of the current row */
  myriad::Buffer m_locked_row; /* its key, if it was found by that and locked for this read alone; else empty */
  myriad::Buffer m_blobs;

  /* Changes. */
  ulonglong m_auto_increment_rows = 0;  /* still to come, by the statement's own estimate */
  ulonglong m_auto_increment_floor = 1; /* for ALTER TABLE ... AUTO_INCREMENT: behind the largest value stored */
  bool m_copying = false;               /* filling a table that nobody else sees */
  bool m_bulk_copy = false;             /* ... with rows that cannot be undone */
  bool m_copy_leaves_out = false;       /* ... without the rows that are duplicates */
  myriad_copy *m_copy = nullptr;        /* since its first row */
  bool m_ignore_duplicates = false, m_replace_duplicates = false;
  bool m_keep_found = false; /* the server may write to a duplicate's row before it gives that back as the old one */
  myriad::Buffer m_found;    /* ... as it was */
  myriad::Buffer m_row, m_keys, m_position;
  size_t m_row_head = 0; /* of m_row */
  std::vector<PendingOp> m_pending;
  std::vector<myriad_op> m_ops;

  DsMrr_impl m_ds_mrr;
  bool m_simple_ranges = false; /* of the multi-range read: in their order, row by row */

  /* What is read together. */
  bool m_from_disk = false;   /* the last row that was not asked for before, or one asked for with it, came from disk */
  bool m_passed_over = false; /* since rows were asked for an entry did not lead to one */
  uint m_rows_asked = 0;      /* entries next to come whose rows have been asked for */
  uint m_rows_wanted = 0;     /* of this scan, or at these positions, asked for last time */
  myriad::PositionsAhead m_positions; /* of a multi-range read in the order of positions */
  myriad::RangesAhead m_ranges;       /* of a simple multi-range read */
  uint m_ranges_wanted = 0;           /* to look at next time */
  uint64_t m_ranges_read = 0;         /* pages that the thread had read when ranges were last asked for */

  myriad::Buffer m_computed; /* BLOBs that compute_prefixes() has computed */
};

#endif
