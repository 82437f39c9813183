/* The C ABI of Myriad's core, as the MariaDB shim sees it. Implemented by crates/capi.

   Conventions:
   - Every function that can fail returns a myriad_status; 0 is success. myriad_last_error() has the sentence.
   - Byte strings are pointer and length; nothing is NUL-terminated unless it says so. The callee copies what it keeps.
   - Pointers handed out in myriad_row stay valid until the next call on the same cursor (or session for myriad_get).
   - A session is used by one thread at a time; only myriad_session_kill may come from another thread.
   - No panic crosses this boundary: it poisons the engine and every later call returns MYRIAD_ERR_POISONED.
   - Keys are memcmp-ordered byte strings WITHOUT the index id; the core puts it in front.
   - Table names are MariaDB's normalized paths without "./": "db/table" in file name encoding (also "db/t#P#p0"); a temporary
     table's is "#tmp/" and its file name. */
#ifndef MYRIAD_CAPI_H
#define MYRIAD_CAPI_H
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  MYRIAD_OK = 0,
  MYRIAD_END,                  /* no (more) row */
  MYRIAD_ERR_DUPLICATE_KEY,
  MYRIAD_ERR_LOCK_WAIT_TIMEOUT,
  MYRIAD_ERR_DEADLOCK,
  MYRIAD_ERR_INTERRUPTED,
  MYRIAD_ERR_NO_SUCH_TABLE,
  MYRIAD_ERR_TABLE_EXISTS,
  MYRIAD_ERR_DEFINITION_CHANGED,
  MYRIAD_ERR_TOO_LONG,
  MYRIAD_ERR_IO,
  MYRIAD_ERR_DISK_FULL,
  MYRIAD_ERR_CORRUPT,
  MYRIAD_ERR_TABLESPACE,
  MYRIAD_ERR_FORMAT,
  MYRIAD_ERR_DIRECTORY_LOCKED,
  MYRIAD_ERR_BUFFER_POOL,
  MYRIAD_ERR_POISONED,
  MYRIAD_ERR_NOT_SUPPORTED,
  MYRIAD_ERR_INVALID,
  MYRIAD_ERR_SHUTTING_DOWN,
  MYRIAD_ERR_XA_UNKNOWN,       /* no prepared transaction of that id */
  MYRIAD_ERR_RECORD_CHANGED,
  MYRIAD_ERR_MEMORY_FULL,      /* in-memory tables hold all that they may */
  MYRIAD_ERR_LOCK_TABLE_FULL   /* row locks hold all the memory that they may */
} myriad_status;

typedef struct myriad_engine myriad_engine;
typedef struct myriad_session myriad_session;
typedef struct myriad_table myriad_table;     /* an open table; shared definition behind it */
typedef struct myriad_cursor myriad_cursor;

/* The calling thread's last error, NUL-terminated; valid until its next failing call. */
const char *myriad_last_error(void);

/* ---- engine ---------------------------------------------------------------------------------------------------------- */
typedef enum { MYRIAD_LOG_INFO = 0, MYRIAD_LOG_WARNING, MYRIAD_LOG_ERROR } myriad_log_level;

typedef struct {
  const char *data_dir;                 /* the server's data directory; files go under data_dir/#myriad/ */
  uint64_t buffer_pool_size;            /* bytes */
  uint64_t memory_tables_size;          /* most of it for in-memory tables, bytes; 0 = a quarter */
  uint64_t row_locks_size;              /* most memory of row locks beside it, bytes; 0 = half as much, 1 GiB at least */
  uint32_t buffer_pool_instances;
  uint32_t page_cleaners;
  uint32_t io_capacity, io_capacity_max;/* pages a second */
  uint32_t change_buffer_max_size;      /* percent of the buffer pool's memory; 0: changes of secondary indexes are not buffered */
  uint32_t io_method;                   /* 0 AUTO, 1 URING, 2 THREADS */
  uint32_t page_size;                   /* bytes; used when the data directory is created */
  uint64_t log_capacity;                /* bytes */
  uint32_t flush_log_at_trx_commit;     /* 0, 1, 2 as InnoDB */
  bool redo_log;                        /* false: nothing is logged; only a clean stop leaves a usable data directory */
  bool force_recovery;                  /* start although undo pages cannot be read; unfinished changes may look committed */
  bool doublewrite;
  bool deadlock_detect;
  bool print_all_deadlocks;             /* each one to the error log */
  uint32_t max_open_files;
  uint32_t tablespace_per;              /* 0 DATABASE, 1 SERVER, 2 TABLE */
  const char *background_cpus;          /* such as "0,2-3"; empty: any */
  bool buffer_pool_warm_up;             /* read the pages again that were in use before the last stop */
  uint32_t duplicate_check;             /* of all tablespace files: 0 OFF, 1 ONLINE, 2 BLOCKING */
  int32_t duplicate_check_threads;      /* -1 = chosen by the engine */
  bool duplicate_check_light;           /* 4 KiB of each file, not its first pages */
  bool duplicate_check_fadvise;         /* no read-ahead */
  /* Error log. */
  void (*report)(myriad_log_level level, const char *text);
  /* The server's functions for parallel replication, each may be null. They are called with mutexes of the lock table held,
     must not call the engine, and get thd pointers, each of which may be null.
     `waiter` waits for a transaction of `holder`: thd_rpl_deadlock_check. */
  void (*about_to_wait)(void *waiter_thd, void *holder_thd);
  /* 0 if the commits of the two have an order already, which locks need not bring about: thd_need_ordering_with. */
  int (*need_ordering)(void *waiter_thd, void *holder_thd);
  /* Which of the two should be a deadlock's victim: -1 the first, 1 the second, 0 either. */
  int (*victim_preference)(void *first_thd, void *second_thd);
  /* The calling thread, be it the engine's own, is about to sleep, for a row's lock, a file or the log; it has woken up. Latches may
     be held: thd_wait_begin, thd_wait_end. Those given first in a process stay. */
  void (*falls_asleep)(void);
  void (*wakes_up)(void);
  /* The calling thread, one of the engine's own, begins its work ("purge", "page_cleaner", ...), and has ended it. Those given first
     in a process stay. */
  void (*thread_begins)(const char *duty);
  void (*thread_ends)(void);
} myriad_config;

/* Creates the data directory's files on first use, else recovers. */
myriad_status myriad_engine_open(const myriad_config *config, myriad_engine **out);
/* Starts what must wait until the server's own DDL recovery is done (rollback of losers, purge, background drops). */
void myriad_engine_start_background(myriad_engine *);
uint32_t myriad_page_size(myriad_engine *);   /* bytes */
uint64_t myriad_log_capacity(myriad_engine *); /* bytes; the configuration may say otherwise */
/* fast: 0 = purge, then write all pages, 1 = write them, but leave to the next start those that are not in memory where they are many,
   2 = flush the log only (crash-like). */
myriad_status myriad_engine_close(myriad_engine *, uint32_t fast);

typedef enum {
  MYRIAD_SET_FLUSH_LOG_AT_TRX_COMMIT = 0, MYRIAD_SET_IO_CAPACITY, MYRIAD_SET_IO_CAPACITY_MAX, MYRIAD_SET_DEADLOCK_DETECT,
  MYRIAD_SET_BUFFER_POOL_SIZE, MYRIAD_SET_MAX_OPEN_FILES, MYRIAD_SET_TABLESPACE_PER,
  MYRIAD_SET_BUFFER_POOL_SIZE_CHECK,    /* changes nothing: would MYRIAD_SET_BUFFER_POOL_SIZE be refused now? */
  MYRIAD_SET_MEMORY_TABLES_SIZE,
  MYRIAD_SET_REDO_LOG,                  /* on: waits until every changed page is written */
  MYRIAD_SET_CHANGE_BUFFER_MAX_SIZE,
  MYRIAD_SET_ROW_LOCKS_SIZE,
  MYRIAD_SET_LOG_CAPACITY,              /* larger only: waits until the log has the room */
  MYRIAD_SET_PRINT_ALL_DEADLOCKS
} myriad_setting;
myriad_status myriad_engine_set(myriad_engine *, myriad_setting, uint64_t value);
myriad_status myriad_flush_log(myriad_engine *);                 /* FLUSH ENGINE LOGS: make all that is in the log durable */

/* ---- backup ---------------------------------------------------------------------------------------------------------- */
/* A copy of the data directory, made while others work with it. Must be finished or abandoned before the engine is closed. */
typedef struct myriad_backup myriad_backup;
/* Files copied, files in all, thousandths of the file under way; false stops the copy (MYRIAD_ERR_INTERRUPTED). */
typedef bool (*myriad_backup_watch)(void *arg, uint64_t files, uint64_t files_total, uint32_t permille);
/* Copies all files into dir/#myriad, and the log and new files from then on. */
myriad_status myriad_backup_begin(myriad_engine *, const char *dir, myriad_backup_watch, void *arg, myriad_backup **out);
/* Makes it the state of now; frees it, also where it fails or is stopped: then what was copied is removed. */
myriad_status myriad_backup_finish(myriad_backup *, myriad_backup_watch, void *arg);
void myriad_backup_abandon(myriad_backup *);                     /* frees it; removes what was copied */

/* ---- reports --------------------------------------------------------------------------------------------------------- */
typedef void (*myriad_text_fn)(void *arg, const char *text, size_t len);
void myriad_status_text(myriad_engine *, myriad_text_fn, void *arg);                    /* SHOW ENGINE MYRIAD STATUS */
typedef void (*myriad_metric_fn)(void *arg, const char *name, uint64_t value, bool is_gauge);  /* name without "Myriad_" */
void myriad_metrics(myriad_engine *, myriad_metric_fn, void *arg);
typedef struct {
  uint64_t trx_id, start_wall_us, undo_records, locks_held, wait_start_wall_us; uint64_t thread_id;
  const char *state;            /* "ACTIVE", "LOCK WAIT", "PREPARED", "ROLLING BACK", "COMMITTING" */
  const char *isolation; bool recovered;
  bool has_snapshot; uint64_t snapshot_age;  /* transactions that have ended since it was opened */
} myriad_trx_info;
void myriad_list_trx(myriad_engine *, void (*)(void *arg, const myriad_trx_info *), void *arg);
typedef struct {
  uint64_t trx_id; const char *mode /* "S", "X", "S,GAP", "X,REC_NOT_GAP", "X,GAP,INSERT_INTENTION" ... */; bool granted;
  const char *table; uint32_t index_no; const char *index_name /* null: not known */;
  const uint8_t *key; size_t key_len; uint64_t waiting_for_trx_id /* 0: none */;
} myriad_lock_info;
/* Until the callback gives false, or there were about `rows_max`. Of all locks each comes once; `waits_only`: those waited for, once for
   each transaction that a wait is for. */
void myriad_list_locks(myriad_engine *, bool waits_only, size_t rows_max,
                       bool (*)(void *arg, const myriad_lock_info *), void *arg);
typedef struct {
  const char *name; uint64_t acquired, contended, wait_ns; double contended_percent, hottest_percent; uint32_t hottest;
} myriad_latch_info;
void myriad_list_latches(myriad_engine *, void (*)(void *arg, const myriad_latch_info *), void *arg);
typedef struct { uint64_t frames, free_frames, dirty_pages, oldest_change_age; } myriad_partition_info;
void myriad_list_partitions(myriad_engine *, void (*)(void *arg, const myriad_partition_info *), void *arg);
typedef struct { uint32_t space_id; const char *path; const char *database; bool open; } myriad_space_info;
/* Those whose ids are no less than `first_id`, in order, the first `most` of them. */
myriad_status myriad_list_spaces(myriad_engine *, uint32_t first_id, size_t most, void (*)(void *arg, const myriad_space_info *), void *arg);
/* The size of its file, `path` as listed; asks the file system unless the tablespace is open. */
uint64_t myriad_space_bytes(myriad_engine *, uint32_t space_id, const char *path);
typedef struct { const char *phase; uint64_t microseconds, bytes_read; } myriad_startup_info;
void myriad_list_startup(myriad_engine *, void (*)(void *arg, const myriad_startup_info *), void *arg);

/* What the tablespace check found, the first 10,000. */
typedef struct {
  bool has_space_id;
  uint32_t space_id;
  const char *path;                     /* relative to the data directory */
  const char *problem;                  /* one word */
  const char *other_path;               /* or null */
  const char *detail;
  uint64_t found_wall_us;
} myriad_check_info;
void myriad_list_check(myriad_engine *, void (*)(void *arg, const myriad_check_info *), void *arg);

/* ---- sessions and transactions --------------------------------------------------------------------------------------- */
typedef enum { MYRIAD_READ_UNCOMMITTED = 0, MYRIAD_READ_COMMITTED, MYRIAD_REPEATABLE_READ, MYRIAD_SNAPSHOT, MYRIAD_SERIALIZABLE } myriad_isolation;

myriad_status myriad_session_new(myriad_engine *, void *thd, uint64_t thread_id, myriad_session **out);
void myriad_session_set_owner(myriad_session *, void *thd, uint64_t thread_id);   /* null and 0: nobody */
void myriad_session_free(myriad_session *);                       /* rolls back what is active; a prepared one is detached */
void myriad_session_kill(myriad_session *);                       /* wakes a lock wait with INTERRUPTED; any thread */
void myriad_session_reset_kill(myriad_session *);                 /* at the start of a statement */
/* Start of a statement that uses the engine. Begins a transaction where there is none; opens a new snapshot lazily at RC and
   below, or when autocommit. Marks the statement's savepoint. */
void myriad_statement_begin(myriad_session *, myriad_isolation, bool autocommit, uint64_t lock_wait_timeout_ms);
void myriad_statement_end(myriad_session *);                      /* keeps changes; drops the statement's savepoint */
myriad_status myriad_statement_rollback(myriad_session *);
myriad_status myriad_open_snapshot(myriad_session *);             /* START TRANSACTION WITH CONSISTENT SNAPSHOT */
bool myriad_has_changes(const myriad_session *);
myriad_status myriad_savepoint(myriad_session *, uint64_t *out);
myriad_status myriad_rollback_to(myriad_session *, uint64_t savepoint);
myriad_status myriad_rollback(myriad_session *);
myriad_status myriad_commit(myriad_session *);                    /* whole commit: visible and durable as configured */
myriad_status myriad_commit_visible(myriad_session *);            /* its first half; myriad_commit_finish is the second */
/* As myriad_commit, but may return before it is durable: then `begins` was called with thd, and `ends` is called once with what it
   gave, when all is durable or, with false, never will be; perhaps before this returns, else by another thread, which it must not
   keep waiting. After an error, which this tells, with true. */
myriad_status myriad_commit_later(myriad_session *, void *thd, void *(*begins)(void *thd), void (*ends)(void *pending, bool durable));
/* Two-phase: prepare -> commit_ordered (fast, makes visible, no sync; maybe another thread) -> commit_finish (sync unless
   `durable` is false because the binlog will recover it; frees locks if commit_ordered did not). */
myriad_status myriad_prepare(myriad_session *, const uint8_t *xid, size_t xid_len);   /* durable on return */
void myriad_release_reads(myriad_session *);   /* prepared, perhaps for long: its shared locks and gaps go, but at SERIALIZABLE */
void myriad_commit_ordered(myriad_session *);
myriad_status myriad_commit_finish(myriad_session *, bool durable);
void myriad_session_detach_prepared(myriad_session *);
/* Takes one back, to commit it or roll it back here; false if there is none of that name. */
bool myriad_session_attach_prepared(myriad_session *, const uint8_t *xid, size_t xid_len);
/* Waits, as for a lock, until none that belongs to no session has changed the table. */
myriad_status myriad_wait_for_prepared(myriad_session *, myriad_table *);
/* Whether one of them has; false if there is no such table. */
myriad_status myriad_is_changed_by_prepared(myriad_engine *, const char *name, bool *out);
/* Prepared transactions found at start or detached by their session. */
void myriad_list_prepared(myriad_engine *, void (*)(void *arg, const uint8_t *xid, size_t xid_len), void *arg);
myriad_status myriad_commit_by_xid(myriad_engine *, const uint8_t *xid, size_t xid_len);
myriad_status myriad_rollback_by_xid(myriad_engine *, const uint8_t *xid, size_t xid_len);

/* ---- definitions ----------------------------------------------------------------------------------------------------- */
typedef struct {
  bool unique;                             /* index 0 is the clustered one, always unique */
  bool hash;                               /* look-ups of whole keys by hash first; only where in_memory */
} myriad_index_spec;
/* What becomes of a child's rows when the parent's row goes or its referenced columns change. */
typedef enum { MYRIAD_RESTRICT = 0, MYRIAD_NO_ACTION, MYRIAD_CASCADE, MYRIAD_SET_NULL } myriad_reference_action;
/* All texts are NUL-terminated. The core keeps and finds foreign keys; it enforces none. */
typedef struct {
  const char *name;
  const char *parent;                      /* table name; need not exist */
  uint32_t on_delete, on_update;           /* myriad_reference_action */
  const char *const *columns, *const *parent_columns; uint32_t column_count;
} myriad_foreign_key;
typedef struct {
  const char *const *dropped; uint32_t dropped_count;             /* names of the table's own */
  const myriad_foreign_key *added; uint32_t added_count;
  const char *const *old_names, *const *new_names; uint32_t renamed_count;   /* columns: its own and others' follow */
} myriad_foreign_key_change;
/* What a change in place makes of a table's definition. */
typedef struct {
  const uint8_t *frm; size_t frm_len;                   /* the server's image; may be empty (partitions) */
  const uint8_t *definition_id;                         /* 16 bytes, where there is no image; may be null */
  const uint8_t *row_layouts; size_t row_layouts_len;   /* how rows written before are read; null: as it was */
  const myriad_foreign_key_change *keys;                /* may be null */
} myriad_new_definition;
typedef struct {
  const uint8_t *frm; size_t frm_len;      /* MariaDB's image of the table, may be empty (partitions) */
  const myriad_index_spec *indexes; uint32_t index_count;
  bool hidden_row_id;                      /* clustered key is the core's 8-byte counter */
  bool has_auto_increment; uint64_t auto_increment_next;   /* first value to give, 0 = 1 */
  bool temporary;                          /* gone at the next start */
  bool in_memory;                          /* contents neither logged nor in files: empty after each start */
  int32_t tablespace_per;                  /* -1 = the engine's setting */
  const myriad_foreign_key *foreign_keys; uint32_t foreign_key_count;
  /* A copy of table kept_of: foreign keys that both have refer to what that table's do by now, but for itself. Else null. */
  const char *kept_of; const char *const *kept_keys; uint32_t kept_key_count;
} myriad_table_spec;

myriad_status myriad_create_table(myriad_engine *, const char *name, const myriad_table_spec *);
/* Returns at once; space is reclaimed in the background. NO_SUCH_TABLE if there is none (idempotent for callers). */
myriad_status myriad_drop_table(myriad_engine *, const char *name);
/* All whose names begin so, in one transaction; OK if there is none. */
myriad_status myriad_drop_tables_with_prefix(myriad_engine *, const char *prefix);
/* Never overwrites. Foreign keys follow, but not to nor from tables that stand in for others (#sql...). A copy that takes the
   place of a table of another name: `replaced` is that one, and what refers to it follows; else null. Names of the table's own
   foreign keys that begin with old_prefix begin with new_prefix then. */
myriad_status myriad_rename_table(myriad_engine *, const char *from, const char *to, const char *replaced,
                                  const char *old_prefix, const char *new_prefix);
/* Sees a foreign key and the name of the table that has it. */
typedef void (*myriad_foreign_key_fn)(void *arg, const char *table, const myriad_foreign_key *);
/* A table's foreign keys, in order of their names; those that refer to a table, in order of the tables that have them. */
myriad_status myriad_list_foreign_keys(myriad_engine *, const char *name, myriad_foreign_key_fn, void *arg);
myriad_status myriad_list_references(myriad_engine *, const char *parent, myriad_foreign_key_fn, void *arg);
/* Whether a table of another database refers to one of this database. */
myriad_status myriad_database_is_referenced(myriad_engine *, const char *db, bool *out);
uint64_t myriad_references_version(const myriad_engine *);   /* grows with each change of any foreign key */
myriad_status myriad_truncate_table(myriad_engine *, const char *name, uint64_t auto_increment_next);
myriad_status myriad_drop_database(myriad_engine *, const char *db, uint64_t *dropped_tables);
/* A file of a database's folder. */
typedef struct {
  const char *name;
  const uint8_t *contents; size_t contents_len;
} myriad_folder_file;
typedef struct {
  bool first_row;                          /* the copy gets the template's first row, else none */
  const uint8_t *image; size_t image_len;  /* of the copy if it is not the template's, else null; read before the next call */
} myriad_clone_verdict;
typedef struct {
  void *arg;
  /* Sees each table's name, and the image of the first table of each shape (else null), whose verdict holds for all of
     the shape. False refuses the copy with MYRIAD_ERR_NOT_SUPPORTED. */
  bool (*table)(void *arg, const char *table, const uint8_t *image, size_t image_len, myriad_clone_verdict *);
  /* Turns the template's first row into the copy's; false refuses. */
  bool (*first_row)(void *arg, const char *table, uint8_t *row, size_t len);
} myriad_clone_calls;
/* Makes database `to` an empty copy of database `from`, in one durable transaction. The files that the copy's folder has to
   hold are kept under a note for myriad_unfinished_clones() until myriad_finish_clone(). */
myriad_status myriad_clone_database(myriad_engine *, const char *from, const char *to, const myriad_folder_file *files,
                                    size_t file_count, const myriad_clone_calls *, uint32_t *note, uint64_t *tables);
myriad_status myriad_finish_clone(myriad_engine *, uint32_t note);
myriad_status myriad_unfinished_clones(myriad_engine *,
                                       void (*)(void *arg, uint32_t note, const char *db, const myriad_folder_file *files,
                                                size_t file_count),
                                       void *arg);
/* New definition, same indexes: instant ALTER. */
myriad_status myriad_redefine_table(myriad_engine *, const char *name, const myriad_new_definition *);
/* An image for a table that has none; one that has keeps it. The table may be in use meanwhile, and stays current. */
myriad_status myriad_adopt_frm(myriad_engine *, const char *name, const uint8_t *frm, size_t frm_len);
typedef struct myriad_index_build myriad_index_build;
typedef struct {
  const char *name;
  const myriad_new_definition *to;
  /* The new list of indexes; null: as it is. old_index_of_new[i] = number the index i has today, or -1 for the next one of
     `builds`, just built (see below). */
  const myriad_index_spec *indexes; const int32_t *old_index_of_new; uint32_t index_count;
  myriad_index_build *const *builds; uint32_t build_count;
  /* A table that nobody else sees, whose rows and indexes it gets instead of its own, and which is no more then; may be null. */
  const char *contents;
} myriad_alteration;
/* Changes tables in place, all of them or, on an error, none. */
myriad_status myriad_alter_tables(myriad_engine *, const myriad_alteration *, uint32_t count);
/* 16 bytes: the id that the last change in place gave to the first table whose name begins with `prefix`, or zeros. */
myriad_status myriad_definition_id(myriad_engine *, const char *prefix, uint8_t *out);
myriad_status myriad_table_exists(myriad_engine *, const char *name, bool *out);
myriad_status myriad_get_frm(myriad_engine *, const char *name, myriad_text_fn, void *arg);
/* Table part of each name in a database (file name encoding), in order; stops when the callback returns false. */
myriad_status myriad_list_tables(myriad_engine *, const char *db, bool (*)(void *arg, const char *table, size_t len), void *arg);

/* ---- open tables ----------------------------------------------------------------------------------------------------- */
myriad_status myriad_table_open(myriad_engine *, const char *name, myriad_table **out);
void myriad_table_close(myriad_table *);
const uint8_t *myriad_table_row_layouts(const myriad_table *, size_t *len);   /* empty if never given; valid while open */
bool myriad_table_has_indexes(const myriad_table *, const myriad_index_spec *, uint32_t count);   /* as many, as unique */
/* For the list of locks: names of all its indexes. Those set last hold for all who have the table open. */
void myriad_table_name_indexes(const myriad_table *, const char *const *names, uint32_t count);
bool myriad_table_is_current(const myriad_table *);    /* false once dropped or redefined since it was opened */
bool myriad_table_take_emptied(const myriad_table *);  /* true once for an in-memory table that the start has emptied */
typedef struct {
  uint64_t rows;            /* estimate, never 0 unless exactly empty */
  uint64_t data_bytes, index_bytes, free_bytes; uint64_t mean_row_bytes;
  uint64_t create_time_s, update_time_s;      /* seconds since 1970, 0 unknown */
  uint64_t auto_increment_next;
} myriad_table_stats;
/* What the calling thread has done since it began. */
typedef struct {
  uint64_t pages_accessed, pages_updated;
  uint64_t pages_read, read_ns;               /* by the thread itself */
  uint64_t pages_prefetched;                  /* asked for */
  uint64_t undo_records_read;
} myriad_work;
uint64_t myriad_thread_pages_read(void);  /* pages that the calling thread has read from their files since it began */
void myriad_thread_work(myriad_work *out);
/* How much is wanted; the rest is 0. */
typedef enum {
  MYRIAD_INFO_COUNTERS = 0, /* times and auto_increment_next: no page is looked at */
  MYRIAD_INFO_ROWS,         /* all but index_bytes */
  MYRIAD_INFO_SIZES,
  MYRIAD_INFO_CLOSELY       /* from more pages, which are read where they are not in memory; the others tell the same for a moment */
} myriad_info_detail;
myriad_status myriad_table_info(myriad_table *, myriad_info_detail, myriad_table_stats *out);
/* How many rows there are for each value of an index's first columns only the shim can know: keys from up to `pages` pages spread
   over the index, level 0, in order, a fence behind the last of a page; then, level by level, separators of neighbouring pages of
   the tree, at last those of one level that divide the whole index. A separator, as a fence, lies between the last entry of a
   page and the next page's first, and may end within a column. */
typedef enum { MYRIAD_SAMPLED_FIRST, MYRIAD_SAMPLED_ENTRY, MYRIAD_SAMPLED_FENCE } myriad_sampled;
myriad_status myriad_sample_index(myriad_table *, uint32_t index_no, uint32_t pages, bool (*)(void *arg, const uint8_t *key, size_t len, uint8_t kind, uint8_t level), void *arg);
/* Keeps what the samples told, at least one number, for who opens the same definition later; gives it, if it is as much. */
void myriad_table_keep_samples(myriad_table *, const uint64_t *numbers, size_t count);
bool myriad_table_kept_samples(myriad_table *, uint64_t *numbers, size_t count);
/* Estimated entries from those that begin with `low` to those that begin with `high`, these left out with `below_high`;
   null = unbounded. At least 1. */
myriad_status myriad_records_in_range(myriad_table *, uint32_t index_no, const uint8_t *low, size_t low_len,
                                      const uint8_t *high, size_t high_len, bool below_high, uint64_t *out);
/* AUTO_INCREMENT: reserves `count` values first, first+increment, ... with (first - offset) divisible by increment. None, if
   there is no such value up to `largest`. */
myriad_status myriad_auto_increment_reserve(myriad_session *, myriad_table *, uint64_t offset, uint64_t increment, uint64_t count,
                                            uint64_t largest, uint64_t *first);
void myriad_auto_increment_at_least(myriad_session *, myriad_table *, uint64_t next);   /* explicit value stored: next = value+1 */
myriad_status myriad_auto_increment_set(myriad_table *, uint64_t next);                 /* ALTER TABLE ... AUTO_INCREMENT= */
bool myriad_table_has_auto_increment(const myriad_table *);
/* A counter for a table that has none; one that has keeps it. The table may be in use meanwhile, and stays current. */
myriad_status myriad_auto_increment_add(myriad_table *, uint64_t next);
uint64_t myriad_next_row_id(myriad_table *);

/* CHECK TABLE: structure of every index and, unless quick, the values with their overflow pages; each finding is reported as
   text. A kill of the session ends it. */
myriad_status myriad_check_table(myriad_session *, myriad_table *, bool quick, myriad_text_fn finding, void *arg);

/* ---- rows ------------------------------------------------------------------------------------------------------------ */
typedef enum { MYRIAD_OP_INSERT = 0, MYRIAD_OP_UPDATE, MYRIAD_OP_DELETE } myriad_op_kind;
typedef struct {
  myriad_op_kind kind;
  uint32_t index_no;
  const uint8_t *key; size_t key_len;      /* for secondary indexes: columns, then the clustered key */
  size_t unique_len;                       /* INSERT: this prefix of the key must be unique; 0 = no check */
  const uint8_t *value; size_t value_len;  /* INSERT, UPDATE */
  size_t head_len;                         /* its first bytes that can be read alone, and changed without writing the others again,
                                              where it is too long for an index page; 0 = none */
} myriad_op;

enum {
  MYRIAD_APPLY_DUPLICATE_X = 1    /* lock a duplicate exclusively (REPLACE, ON DUPLICATE KEY UPDATE) */
};
/* All of the row's operations or none. On DUPLICATE_KEY *failed is the op's position, and *dup_key (if not null) the duplicate's
   full key, valid until the session's next call. */
myriad_status myriad_apply(myriad_session *, myriad_table *, const myriad_op *ops, uint32_t count, uint32_t flags,
                           uint32_t *failed, const uint8_t **dup_key, size_t *dup_key_len);

typedef enum { MYRIAD_LOCK_NONE = 0, MYRIAD_LOCK_S, MYRIAD_LOCK_X } myriad_lock;
enum { MYRIAD_WAIT = 0, MYRIAD_NOWAIT, MYRIAD_SKIP_LOCKED };
typedef struct { const uint8_t *key; size_t key_len; const uint8_t *value; size_t value_len; } myriad_row;

/* The row with exactly this clustered (or unique: the first entry with this prefix) key. END if there is none. *new_lock (may
   be null): a lock was taken for the row that the transaction did not have. */
myriad_status myriad_get(myriad_session *, myriad_table *, uint32_t index_no, const uint8_t *key, size_t key_len, bool prefix,
                         myriad_lock, uint32_t wait, myriad_row *out, bool *new_lock);
/* The row with this clustered key; of a value that has a head in its index page that, and the pages of the next tail_bytes. */
myriad_status myriad_get_head(myriad_session *, myriad_table *, const uint8_t *key, size_t key_len, myriad_lock, uint32_t wait,
                              size_t tail_bytes, myriad_row *out, bool *new_lock);
typedef struct { const uint8_t *data; size_t len; } myriad_bytes;
/* Reads the index pages of these keys, or beginnings of keys, that are not in memory all at once, before they are looked up one after
   the other; 16 pages at most. Of how many keys, from the first on. A hint. */
uint32_t myriad_read_together(myriad_session *, myriad_table *, uint32_t index_no, const myriad_bytes *keys, uint32_t count);
/* MYRIAD_ERR_DEFINITION_CHANGED if a snapshot is open that is older than the index's contents. Reads without locks check
   it themselves. */
myriad_status myriad_check_snapshot(myriad_session *, myriad_table *, uint32_t index_no);
/* At READ COMMITTED: the row with this whole key, which myriad_get locked anew, does not match; gives the lock back. */
myriad_status myriad_unlock(myriad_session *, myriad_table *, uint32_t index_no, const uint8_t *key, size_t key_len, myriad_lock);

typedef enum {
  MYRIAD_SEEK_FIRST = 0, MYRIAD_SEEK_LAST,
  MYRIAD_SEEK_GE, MYRIAD_SEEK_GT,           /* GT: after every key that begins with the given one */
  MYRIAD_SEEK_LE, MYRIAD_SEEK_LT,           /* LE: last key <= given or beginning with it; LT: last before all that begin with it */
  MYRIAD_SEEK_EXACT_UNIQUE,                 /* whole unique key given: record lock without gap */
  MYRIAD_SEEK_EXACT,                        /* first key that begins with the given one; next/prev stay within it */
  MYRIAD_SEEK_EXACT_LAST                    /* last key that begins with it; as before */
} myriad_seek;

typedef struct {
  myriad_lock lock; uint32_t wait;
  bool semi_consistent;     /* at READ COMMITTED: return the last committed version of a locked row, see was_semi_consistent */
  bool record_only;         /* of what is found lock the entries alone, not the gaps before them */
  bool full_scan;           /* hint: pages come in cold, read ahead */
  size_t value_bytes;       /* of a value that is all in its index page the first so many bytes, and maybe more */
  size_t tail_bytes;        /* of a value that has a head in its index page that, and the pages of so many bytes behind it, see
                               myriad_op */
} myriad_cursor_options;

myriad_status myriad_cursor_open(myriad_session *, myriad_table *, uint32_t index_no, const myriad_cursor_options *, myriad_cursor **out);
void myriad_cursor_close(myriad_cursor *);
void myriad_cursor_set_options(myriad_cursor *, const myriad_cursor_options *);
/* Writes to `out` what is wanted of a value, no more than all of it; the length of that. Called with a page latched. */
typedef size_t (*myriad_excerpt)(const void *of, const uint8_t *value, size_t value_len, uint8_t *out);
/* Of values that are all in their index page an excerpt may be read instead of value_bytes; null: of none. `of` must be good while the
   cursor moves. */
void myriad_cursor_set_excerpt(myriad_cursor *, myriad_excerpt, const void *of);
/* A non-locking read need not go beyond these keys (inclusive prefixes; null = none): bounds batches. A locking one does, but does
   not look ahead there. */
void myriad_cursor_set_bounds(myriad_cursor *, const uint8_t *low, size_t low_len, const uint8_t *high, size_t high_len);
myriad_status myriad_cursor_seek(myriad_cursor *, myriad_seek, const uint8_t *key, size_t key_len, myriad_row *out);
myriad_status myriad_cursor_next(myriad_cursor *, myriad_row *out);
myriad_status myriad_cursor_prev(myriad_cursor *, myriad_row *out);
/* How many rows behind the current one, of a locking read up to `max`, myriad_cursor_peek can give, not locked. The current row's
   pointers are valid no longer. */
uint32_t myriad_cursor_look_ahead(myriad_cursor *, uint32_t max);
/* The n-th row behind the current one; false if it was not counted. */
bool myriad_cursor_peek(const myriad_cursor *, uint32_t n, myriad_row *out);
bool myriad_cursor_was_semi_consistent(const myriad_cursor *);  /* the last row was not locked: re-read it locked before changing it */
void myriad_cursor_unlock_row(myriad_cursor *);  /* at READ COMMITTED: the last row does not match, release its locks */

/* ---- filling of a table that nobody else sees yet --------------------------------------------------------------------- */
typedef struct myriad_copy myriad_copy;
/* tmp_dir: rows that do not come in key order and the entries of secondary indexes are collected, in files there beyond
   memory_bytes, and go in at the end in key order, for insertions alone; null: all goes in at once. */
myriad_status myriad_copy_begin(myriad_table *, const char *tmp_dir, uint64_t memory_bytes, myriad_copy **out);
/* A row's operations without undo and locks, its own insertion first. On DUPLICATE_KEY *failed is the op's position. */
myriad_status myriad_copy_apply(myriad_copy *, myriad_session *, const myriad_op *ops, uint32_t count, uint32_t *failed);
/* Puts in what waits. On DUPLICATE_KEY *index_no is the index's number, *dup_key the duplicate's full key. */
myriad_status myriad_copy_finish(myriad_copy *, myriad_session *, uint32_t *index_no, const uint8_t **dup_key, size_t *dup_key_len);
void myriad_copy_free(myriad_copy *);

/* ---- in-place index build -------------------------------------------------------------------------------------------- */
myriad_status myriad_index_build_begin(myriad_session *, myriad_table *, bool unique, const char *tmp_dir, uint64_t memory_bytes, myriad_index_build **out);
myriad_status myriad_index_build_add(myriad_index_build *, const uint8_t *key, size_t key_len, size_t unique_len, const uint8_t *value, size_t value_len);
/* Sorts, checks uniqueness (DUPLICATE_KEY, *dup_key as in myriad_apply), writes the tree. */
myriad_status myriad_index_build_finish(myriad_index_build *, const uint8_t **dup_key, size_t *dup_key_len);
/* Changes of the finished index: removes an entry, at once; puts in what was added since (DUPLICATE_KEY as above). After an
   error it is of no use. */
myriad_status myriad_index_build_remove(myriad_index_build *, const uint8_t *key, size_t key_len);
myriad_status myriad_index_build_catch_up(myriad_index_build *, const uint8_t **dup_key, size_t *dup_key_len);
void myriad_index_build_free(myriad_index_build *);   /* drops what is not adopted by myriad_alter_tables */

/* What transactions do to a table's rows while indexes are built from it. Begin while nobody has changes of it that are not
   committed, nor can make any: `before` gets a snapshot, at REPEATABLE READ, to read all rows with. A visit opens a new one in
   `now` and calls back for each row that may differ between the two, once each (NULL: there is none; any answer but
   MYRIAD_OK ends the visit with it); `apart`: for all that were before first, then for all that are. The next visit's `before` is this one's `now`. The last one comes when nobody changes the
   table until the index is adopted. */
typedef struct myriad_row_changes myriad_row_changes;
typedef myriad_status (*myriad_row_change_fn)(void *arg, const myriad_row *before, const myriad_row *now);
myriad_status myriad_row_changes_begin(myriad_session *before, myriad_table *, const char *tmp_dir, uint64_t memory_bytes,
                                       myriad_row_changes **out);
myriad_status myriad_row_changes_visit(myriad_row_changes *, myriad_session *before, myriad_session *now, bool apart,
                                       myriad_row_change_fn, void *arg, uint64_t *count);
void myriad_row_changes_free(myriad_row_changes *);

#ifdef __cplusplus
}
#endif
#endif
