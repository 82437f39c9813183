/* System variables. Each text says the unit and when to change it. */
#include "variables.h"
#include "session.h"
#include "threads.h"
#include "options.h"
#include <mutex>

ulonglong myriad_buffer_pool_size;
ulong myriad_fast_shutdown;
my_bool myriad_force_primary_key;
static ulong buffer_pool_instances, page_cleaners, io_method, page_size, flush_log_at_trx_commit, tablespace_per;
static ulong io_capacity, io_capacity_max, change_buffer_max_size, max_open_files, tablespace_duplicate_check;
static ulong force_recovery;
static int tablespace_duplicate_check_threads;
static ulonglong log_capacity, memory_tables_size, row_locks_size;
static char *background_cpus, *backup_dir;
static my_bool buffer_pool_warm_up;
static const ulonglong pool_size_min = 5ULL << 20, pool_size_step = 1ULL << 20;
static const ulong max_open_files_min = 10;
static const char *max_open_files_cut =
    "MYRIAD: myriad_max_open_files is %lu, not %lu: the server may open %lu files (open_files_limit)";
static my_bool redo_log, doublewrite, deadlock_detect, print_all_deadlocks, tablespace_duplicate_check_light,
    tablespace_duplicate_check_fadvise;

static const char *io_method_names[] = {"AUTO", "URING", "THREADS", NullS};
static TYPELIB io_method_typelib = {3, "io_method_typelib", io_method_names, nullptr};
static const char *page_size_names[] = {"4096", "8192", "16384", "32768", "65536", NullS};
static TYPELIB page_size_typelib = {5, "page_size_typelib", page_size_names, nullptr};
static const char *tablespace_per_names[] = {"DATABASE", "SERVER", "TABLE", NullS};
static TYPELIB tablespace_per_typelib = {3, "tablespace_per_typelib", tablespace_per_names, nullptr};
static const char *duplicate_check_names[] = {"OFF", "ONLINE", "BLOCKING", NullS};
static TYPELIB duplicate_check_typelib = {3, "duplicate_check_typelib", duplicate_check_names, nullptr};

ha_create_table_option myriad_table_options[] = {
    HA_TOPTION_ENUM("TABLESPACE_PER", tablespace_per, "DEFAULT,DATABASE,SERVER,TABLE", 0),
    HA_TOPTION_BOOL("IN_MEMORY", in_memory, 0), HA_TOPTION_END};

/* False: the engine refused, and the variable keeps showing what is in force. */
static bool apply_setting(myriad_setting setting, ulonglong value) {
  if (!myriad_core || myriad_engine_set(myriad_core, setting, value) == MYRIAD_OK) return true;
  push_warning_printf(current_thd, Sql_condition::WARN_LEVEL_WARN, ER_WRONG_ARGUMENTS, "MYRIAD: %s",
                      myriad_last_error());
  return false;
}

#define MYRIAD_SETTER(name, type, setting)                                                                             \
  static void set_##name(MYSQL_THD, struct st_mysql_sys_var *, void *place, const void *value) {                       \
    if (apply_setting(setting, *static_cast<const type *>(value)))                                                     \
      *static_cast<type *>(place) = *static_cast<const type *>(value);                                                 \
  }
MYRIAD_SETTER(buffer_pool_size, ulonglong, MYRIAD_SET_BUFFER_POOL_SIZE)
MYRIAD_SETTER(memory_tables_size, ulonglong, MYRIAD_SET_MEMORY_TABLES_SIZE)
MYRIAD_SETTER(row_locks_size, ulonglong, MYRIAD_SET_ROW_LOCKS_SIZE)
MYRIAD_SETTER(io_capacity, ulong, MYRIAD_SET_IO_CAPACITY)
MYRIAD_SETTER(io_capacity_max, ulong, MYRIAD_SET_IO_CAPACITY_MAX)
MYRIAD_SETTER(change_buffer_max_size, ulong, MYRIAD_SET_CHANGE_BUFFER_MAX_SIZE)
MYRIAD_SETTER(flush_log, ulong, MYRIAD_SET_FLUSH_LOG_AT_TRX_COMMIT)
MYRIAD_SETTER(tablespace_per, ulong, MYRIAD_SET_TABLESPACE_PER)
MYRIAD_SETTER(deadlock_detect, my_bool, MYRIAD_SET_DEADLOCK_DETECT)
MYRIAD_SETTER(print_all_deadlocks, my_bool, MYRIAD_SET_PRINT_ALL_DEADLOCKS)

/* Idle files of ours must leave the process descriptors for connections and for tables of other engines: half of what
   connections do not need is ours. */
static ulong open_files_allowed(ulong wanted) {
  ulong half = open_files_limit > max_connections ? (open_files_limit - max_connections) / 2 : 0;
  return std::min(wanted, std::max(half, max_open_files_min));
}

static void set_max_open_files(MYSQL_THD thd, struct st_mysql_sys_var *, void *place, const void *value) {
  ulong wanted = *static_cast<const ulong *>(value), allowed = open_files_allowed(wanted);
  if (allowed < wanted)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_WRONG_ARGUMENTS, max_open_files_cut, allowed, wanted,
                        open_files_limit);
  if (apply_setting(MYRIAD_SET_MAX_OPEN_FILES, allowed)) *static_cast<ulong *>(place) = allowed;
}

/* Sets what may take a while; who needs the lock of all variables does not wait with it. A failure is an error, which
   begins with `stays`, and the variable keeps its value. */
template <typename T> static void set_slowly(myriad_setting setting, void *place, T value, const char *stays) {
  static std::mutex one_at_a_time; /* so that the variable ends as the engine does */
  mysql_mutex_unlock(&LOCK_global_system_variables);
  std::lock_guard<std::mutex> one(one_at_a_time);
  bool done = !myriad_core || myriad_engine_set(myriad_core, setting, value) == MYRIAD_OK;
  if (!done) my_printf_error(ER_GET_ERRMSG, "MYRIAD: the redo log stays %s: %s", MYF(0), stays, myriad_last_error());
  mysql_mutex_lock(&LOCK_global_system_variables);
  if (done) *static_cast<T *>(place) = value;
}

/* Switched on it waits until all changed pages are written. */
static void set_redo_log(MYSQL_THD, struct st_mysql_sys_var *, void *place, const void *value) {
  my_bool on = *static_cast<const my_bool *>(value);
  set_slowly(MYRIAD_SET_REDO_LOG, place, on, on ? "off" : "on");
}

static void set_log_capacity(MYSQL_THD, struct st_mysql_sys_var *, void *place, const void *value) {
  set_slowly(MYRIAD_SET_LOG_CAPACITY, place, *static_cast<const ulonglong *>(value), "as it is");
}

/* Refuses a size before the statement changes anything: an error, not a warning behind a changed value. */
static int check_buffer_pool_size(MYSQL_THD thd, struct st_mysql_sys_var *, void *save, struct st_mysql_value *value) {
  longlong wanted;
  if (value->val_int(value, &wanted)) return 1;
  if ((wanted < 0 && !value->is_unsigned(value)) || ulonglong(wanted) < pool_size_min) {
    my_printf_error(ER_WRONG_ARGUMENTS, "MYRIAD: the smallest buffer pool is %llu bytes", MYF(0), pool_size_min);
    return 1;
  }
  ulonglong size = ulonglong(wanted) / pool_size_step * pool_size_step;
  if (myriad_core && myriad_engine_set(myriad_core, MYRIAD_SET_BUFFER_POOL_SIZE_CHECK, size) != MYRIAD_OK) {
    my_printf_error(ER_WRONG_ARGUMENTS, "MYRIAD: %s", MYF(0), myriad_last_error());
    return 1;
  }
  /* The server warns of values that it rounds itself. */
  if (size != ulonglong(wanted))
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_TRUNCATED_WRONG_VALUE,
                        ER_THD(thd, ER_TRUNCATED_WRONG_VALUE), "myriad_buffer_pool_size",
                        std::to_string(ulonglong(wanted)).c_str());
  *static_cast<ulonglong *>(save) = size;
  return 0;
}

/* The rest of what the folder has to be is looked at when it is used. */
static int check_backup_dir(MYSQL_THD thd, struct st_mysql_sys_var *, void *save, struct st_mysql_value *value) {
  char buffer[FN_REFLEN];
  int length = sizeof buffer;
  const char *dir = value->val_str(value, buffer, &length);
  if (!dir) length = 0;
  if (length >= FN_REFLEN || (length && dir[0] != '/') || (length && memchr(dir, 0, size_t(length)))) {
    my_printf_error(ER_WRONG_ARGUMENTS, "MYRIAD: the folder of a backup is given by an absolute path", MYF(0));
    return 1;
  }
  *static_cast<const char **>(save) = thd_strmake(thd, dir ? dir : "", size_t(length));
  return 0;
}

static MYSQL_SYSVAR_ULONGLONG(
    buffer_pool_size, myriad_buffer_pool_size, PLUGIN_VAR_RQCMDARG,
    "Memory for pages, in bytes. Default 128 MiB. On a server of its own give it 70 to 80 percent of the memory.",
    check_buffer_pool_size, set_buffer_pool_size, 128ULL << 20, pool_size_min, ULONGLONG_MAX / 2, pool_size_step);
static MYSQL_SYSVAR_ULONGLONG(memory_tables_size, memory_tables_size, PLUGIN_VAR_RQCMDARG,
                              "What tables with IN_MEMORY=YES may take of the buffer pool, in bytes. Default 0: a "
                              "quarter. More than three quarters "
                              "count as three quarters. Raise it if statements fail with error 1114 (table is full).",
                              nullptr, set_memory_tables_size, 0, 0, ULONGLONG_MAX / 2, 0);
static MYSQL_SYSVAR_ULONGLONG(row_locks_size, row_locks_size, PLUGIN_VAR_RQCMDARG,
                              "What row locks may take of memory beside the buffer pool, in bytes. Default 0: half as "
                              "much as the pool, 1 GiB at least. Raise it if statements fail with error 1206 (too many "
                              "locks).",
                              nullptr, set_row_locks_size, 0, 0, ULONGLONG_MAX / 2, 0);
static MYSQL_SYSVAR_ULONG(buffer_pool_instances, buffer_pool_instances, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                          "Partitions of the buffer pool, each with its own latches. Default 0: one for each 4096 "
                          "pages, at most 16. Raise it if "
                          "INFORMATION_SCHEMA.MYRIAD_LATCHES shows waits for free_list or dirty_list.",
                          nullptr, nullptr, 0, 0, 64, 0);
static MYSQL_SYSVAR_ULONG(
    page_cleaners, page_cleaners, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "Threads that write changed pages. Default 1. Raise it if the log fills although the device has room to spare.",
    nullptr, nullptr, 1, 1, 64, 0);
static MYSQL_SYSVAR_ULONG(io_capacity, io_capacity, PLUGIN_VAR_RQCMDARG,
                          "Pages a second that background writing may use while nothing presses. Default 2000. Lower "
                          "it if it disturbs clients on a "
                          "slow device.",
                          nullptr, set_io_capacity, 2000, 10, 10000000, 0);
static MYSQL_SYSVAR_ULONG(
    io_capacity_max, io_capacity_max, PLUGIN_VAR_RQCMDARG,
    "Pages a second that background writing may use at most. Default 20000. Set it to what the device can write.",
    nullptr, set_io_capacity_max, 20000, 10, 10000000, 0);
static MYSQL_SYSVAR_ULONG(
    change_buffer_max_size, change_buffer_max_size, PLUGIN_VAR_RQCMDARG,
    "Part of the buffer pool's memory, in percent, that changes of secondary indexes may take whose pages are not in "
    "memory: they are made when the page is read. Default 25; 0: each page is read at once. Raise it for bulk inserts "
    "into tables larger than the pool.",
    nullptr, set_change_buffer_max_size, 25, 0, 50, 0);
static MYSQL_SYSVAR_ENUM(io_method, io_method, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                         "How files are read and written: AUTO (default: io_uring where the kernel allows it), URING "
                         "(or refuse to start), THREADS. "
                         "Change it only to compare or to rule io_uring out.",
                         nullptr, nullptr, 0, &io_method_typelib);
static MYSQL_SYSVAR_ENUM(page_size, page_size, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                         "Bytes of a page, from 4096 to 65536, default 16384. Has an effect only when the data "
                         "directory is created; an existing "
                         "one keeps its own.",
                         nullptr, nullptr, 2, &page_size_typelib);
static MYSQL_SYSVAR_ULONG(
    flush_log_at_trx_commit, flush_log_at_trx_commit, PLUGIN_VAR_RQCMDARG,
    "What a commit waits for: 1 (default) the log is durable; 2 it is written to the operating system and synced about "
    "once a second; 0 neither, both about once a second. 0 and 2 lose the last second's commits in a power failure, "
    "0 also if the server is killed.",
    nullptr, set_flush_log, 1, 0, 2, 0);
static MYSQL_SYSVAR_ULONGLONG(log_capacity, log_capacity, PLUGIN_VAR_RQCMDARG,
                              "Size of the redo log in bytes. Default 512 MiB. A larger log means fewer page writes "
                              "and a longer crash recovery. It can be set while the server runs.",
                              nullptr, set_log_capacity, 512ULL << 20, 4ULL << 20, 1ULL << 40, 4096);
static MYSQL_SYSVAR_BOOL(
    redo_log, redo_log, PLUGIN_VAR_OPCMDARG,
    "Logs all changes, so that a crash loses no commit. Default ON. OFF makes bulk work faster, but "
    "if the server then ends in any way but a shutdown, the whole data directory is lost; setting it "
    "ON again waits until all is durable.",
    nullptr, set_redo_log, 1);
static MYSQL_SYSVAR_ULONG(
    force_recovery, force_recovery, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "1: starts although undo pages cannot be read, of transactions of which nobody knows whether they had ended; their "
    "changes then look committed. Default 0: such a start is refused. Set it only to dump all tables of a damaged data "
    "directory, when there is no backup.",
    nullptr, nullptr, 0, 0, 1, 0);
static MYSQL_SYSVAR_BOOL(doublewrite, doublewrite, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                         "Writes changed pages twice, so that a power failure in the middle of a write cannot damage "
                         "one. Default ON. Switch it off "
                         "only where the file system or device writes pages atomically.",
                         nullptr, nullptr, 1);
static MYSQL_SYSVAR_BOOL(deadlock_detect, deadlock_detect, PLUGIN_VAR_OPCMDARG,
                         "Finds deadlocks at once. Default ON. When OFF they end by myriad_lock_wait_timeout; worth a "
                         "try only where very many "
                         "sessions queue for one row.",
                         nullptr, set_deadlock_detect, 1);
static MYSQL_SYSVAR_BOOL(print_all_deadlocks, print_all_deadlocks, PLUGIN_VAR_OPCMDARG,
                         "Writes each deadlock to the error log: who waited for which row of whom, and who was rolled "
                         "back. Default OFF. SHOW ENGINE MYRIAD STATUS has the last one. Switch it on while you look "
                         "for what an application's deadlocks have in common.",
                         nullptr, set_print_all_deadlocks, 0);
static MYSQL_SYSVAR_BOOL(force_primary_key, myriad_force_primary_key, PLUGIN_VAR_OPCMDARG,
                         "CREATE and ALTER TABLE that leave a table without a primary key are error 1173. "
                         "Default OFF. Switch it on where replicas have to find each row by its key.",
                         nullptr, nullptr, 0);
static MYSQL_SYSVAR_ULONG(
    max_open_files, max_open_files, PLUGIN_VAR_RQCMDARG,
    "Tablespace files kept open besides those in use. Default 2000; never more than half of open_files_limit "
    "without the connections. "
    "Raise it if more are in use at once and opening them shows.",
    nullptr, set_max_open_files, 2000, max_open_files_min, 1000000, 0);
static MYSQL_SYSVAR_ENUM(tablespace_per, tablespace_per, PLUGIN_VAR_RQCMDARG,
                         "Where a new table goes: a file for its DATABASE (default), one for the whole SERVER, or one "
                         "for the TABLE alone. The table "
                         "option TABLESPACE_PER='TABLE' overrides it. TABLE suits few large tables, SERVER very many "
                         "databases of tiny ones.",
                         nullptr, set_tablespace_per, 0, &tablespace_per_typelib);
static MYSQL_SYSVAR_STR(background_cpus, background_cpus, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                        "CPUs on which the engine's own threads run, such as 0,2-3. Default empty: any. Keeps page "
                        "writing and purge away from the "
                        "CPUs of the clients, or the other way round.",
                        nullptr, nullptr, "");
static MYSQL_SYSVAR_STR(backup_dir, backup_dir, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_MEMALLOC,
                        "Folder for the next backup, outside the data directory; an absolute path, written by the "
                        "server. BACKUP STAGE START copies the engine's files into its subfolder #myriad, which must "
                        "not exist or be empty; BACKUP STAGE END completes the copy. Default empty: no copy is made, "
                        "and mariadb-backup is refused. Set it before a backup, to a new folder each time.",
                        check_backup_dir, nullptr, "");
static MYSQL_SYSVAR_BOOL(buffer_pool_warm_up, buffer_pool_warm_up, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                         "Saves which pages are in use, at shutdown and every five minutes, and reads them again in "
                         "the background after a start. "
                         "Default ON. Switch it off to measure with cold memory.",
                         nullptr, nullptr, 1);
static MYSQL_SYSVAR_ENUM(
    tablespace_duplicate_check, tablespace_duplicate_check, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "When all tablespace files are checked for two with one id, missing, foreign and damaged ones: ONLINE (default) "
    "beside the workload, after the server has opened; BLOCKING before it opens; OFF never, each file by itself when "
    "it "
    "is opened. Findings are in INFORMATION_SCHEMA.MYRIAD_TABLESPACE_CHECK.",
    nullptr, nullptr, 1, &duplicate_check_typelib);
static MYSQL_SYSVAR_INT(
    tablespace_duplicate_check_threads, tablespace_duplicate_check_threads, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "Threads of the tablespace check. Default -1: one with io_uring, else up to 32 as there are files. Raise it if one "
    "does not keep the device busy.",
    nullptr, nullptr, -1, -1, 1024, 0);
static MYSQL_SYSVAR_BOOL(
    tablespace_duplicate_check_light, tablespace_duplicate_check_light, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
    "The tablespace check reads 4 KiB of each file, and of one that has grown as much of its second page. Default ON. "
    "OFF reads the first two pages whole and verifies the checksum of the first.",
    nullptr, nullptr, 1);
static MYSQL_SYSVAR_BOOL(
    tablespace_duplicate_check_fadvise, tablespace_duplicate_check_fadvise, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
    "The tablespace check, where the file system refuses direct reads, tells the kernel not to read ahead. Default ON. "
    "Switch it off where that call is slow.",
    nullptr, nullptr, 1);
static MYSQL_SYSVAR_ULONG(fast_shutdown, myriad_fast_shutdown, PLUGIN_VAR_RQCMDARG,
                          "How to stop: 0 purge old row versions, then write all changed pages, so that the next start "
                          "has nothing to recover; 1 (default) write them, but leave to the next start those that are "
                          "not in memory, if they are many; 2 only make the log durable and recover at the next start.",
                          nullptr, nullptr, 1, 0, 2, 0);
static MYSQL_THDVAR_ULONG(
    lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
    "Seconds that a statement waits for a row lock before error 1205. Default 50. 0 does not wait at all.", nullptr,
    nullptr, 50, 0, 1024 * 1024 * 1024, 0);
static MYSQL_THDVAR_BOOL(rollback_on_timeout, PLUGIN_VAR_OPCMDARG,
                         "Error 1205 rolls the whole transaction back. Default OFF: the statement alone. Switch it on "
                         "for applications that begin anew after any error.",
                         nullptr, nullptr, 0);
static MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_OPCMDARG,
                         "At REPEATABLE READ, to change or lock a row that another has changed since the transaction's "
                         "snapshot is error 1020, "
                         "and rolls it back: no update is lost. Default OFF: the newest version is taken. Switch it on "
                         "for applications that "
                         "write what they have computed from plain reads, and repeat a transaction after an error.",
                         nullptr, nullptr, 0);
static MYSQL_THDVAR_ULONGLONG(sort_buffer_size, PLUGIN_VAR_RQCMDARG,
                              "Memory for sorting the indexes that ALTER TABLE or CREATE TABLE ... SELECT builds, in "
                              "bytes. Default 64 MiB. More memory means fewer merges.",
                              nullptr, nullptr, 64ULL << 20, 1ULL << 20, 1ULL << 40, 0);

struct st_mysql_sys_var *myriad_system_variables[] = {MYSQL_SYSVAR(buffer_pool_size),
                                                      MYSQL_SYSVAR(memory_tables_size),
                                                      MYSQL_SYSVAR(row_locks_size),
                                                      MYSQL_SYSVAR(buffer_pool_instances),
                                                      MYSQL_SYSVAR(page_cleaners),
                                                      MYSQL_SYSVAR(io_capacity),
                                                      MYSQL_SYSVAR(io_capacity_max),
                                                      MYSQL_SYSVAR(change_buffer_max_size),
                                                      MYSQL_SYSVAR(io_method),
                                                      MYSQL_SYSVAR(page_size),
                                                      MYSQL_SYSVAR(flush_log_at_trx_commit),
                                                      MYSQL_SYSVAR(log_capacity),
                                                      MYSQL_SYSVAR(redo_log),
                                                      MYSQL_SYSVAR(force_recovery),
                                                      MYSQL_SYSVAR(doublewrite),
                                                      MYSQL_SYSVAR(deadlock_detect),
                                                      MYSQL_SYSVAR(print_all_deadlocks),
                                                      MYSQL_SYSVAR(force_primary_key),
                                                      MYSQL_SYSVAR(max_open_files),
                                                      MYSQL_SYSVAR(tablespace_per),
                                                      MYSQL_SYSVAR(backup_dir),
                                                      MYSQL_SYSVAR(background_cpus),
                                                      MYSQL_SYSVAR(buffer_pool_warm_up),
                                                      MYSQL_SYSVAR(tablespace_duplicate_check),
                                                      MYSQL_SYSVAR(tablespace_duplicate_check_threads),
                                                      MYSQL_SYSVAR(tablespace_duplicate_check_light),
                                                      MYSQL_SYSVAR(tablespace_duplicate_check_fadvise),
                                                      MYSQL_SYSVAR(fast_shutdown),
                                                      MYSQL_SYSVAR(lock_wait_timeout),
                                                      MYSQL_SYSVAR(rollback_on_timeout),
                                                      MYSQL_SYSVAR(snapshot_isolation),
                                                      MYSQL_SYSVAR(sort_buffer_size),
                                                      nullptr};

ulong myriad_lock_wait_timeout_of(THD *thd) { return THDVAR(thd, lock_wait_timeout); }

bool myriad_rollback_on_timeout_of(THD *thd) { return THDVAR(thd, rollback_on_timeout); }

bool myriad_snapshot_isolation_of(THD *thd) { return THDVAR(thd, snapshot_isolation); }

ulonglong myriad_sort_buffer_of(THD *thd) { return THDVAR(thd, sort_buffer_size); }

std::string myriad_backup_dir_now() {
  mysql_mutex_lock(&LOCK_global_system_variables);
  std::string dir = backup_dir ? backup_dir : "";
  mysql_mutex_unlock(&LOCK_global_system_variables);
  return dir;
}

void myriad_show_log_capacity() { log_capacity = myriad_log_capacity(myriad_core); }

void myriad_fill_config(myriad_config *config) {
  memset(config, 0, sizeof *config);
  config->data_dir = mysql_real_data_home;
  config->buffer_pool_size = myriad_buffer_pool_size;
  config->memory_tables_size = memory_tables_size;
  config->row_locks_size = row_locks_size;
  config->buffer_pool_instances = uint32_t(buffer_pool_instances);
  config->page_cleaners = uint32_t(page_cleaners);
  config->io_capacity = uint32_t(io_capacity);
  config->io_capacity_max = uint32_t(std::max(io_capacity, io_capacity_max));
  config->change_buffer_max_size = uint32_t(change_buffer_max_size);
  config->io_method = uint32_t(io_method);
  config->page_size = 4096u << page_size;
  config->log_capacity = log_capacity;
  config->flush_log_at_trx_commit = uint32_t(flush_log_at_trx_commit);
  config->redo_log = redo_log;
  config->force_recovery = force_recovery > 0;
  config->doublewrite = doublewrite;
  config->deadlock_detect = deadlock_detect;
  config->print_all_deadlocks = print_all_deadlocks;
  ulong allowed = open_files_allowed(max_open_files);
  if (allowed < max_open_files) sql_print_information(max_open_files_cut, allowed, max_open_files, open_files_limit);
  max_open_files = allowed;
  config->max_open_files = uint32_t(max_open_files);
  config->tablespace_per = uint32_t(tablespace_per);
  config->background_cpus = background_cpus ? background_cpus : "";
  config->buffer_pool_warm_up = buffer_pool_warm_up;
  config->duplicate_check = uint32_t(tablespace_duplicate_check);
  config->duplicate_check_threads = tablespace_duplicate_check_threads;
  config->duplicate_check_light = tablespace_duplicate_check_light;
  config->duplicate_check_fadvise = tablespace_duplicate_check_fadvise;
  config->report = myriad_report;
  config->about_to_wait = myriad_about_to_wait;
  config->need_ordering = myriad_need_ordering;
  config->victim_preference = myriad_victim_preference;
  config->falls_asleep = myriad_falls_asleep;
  config->wakes_up = myriad_wakes_up;
  config->thread_begins = myriad_thread_begins;
  config->thread_ends = myriad_thread_ends;
}
