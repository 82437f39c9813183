/* The plugin: starting and stopping the engine, and what the server is told about it. */
#include "ha_myriad.h"
#include "backup.h"
#include "clone.h"
#include "discovery.h"
#include "i_s.h"
#include "options.h"
#include "stages.h"
#include "status.h"
#include "variables.h"
#include <atomic>
#include <string.h>
#include <sys/stat.h>

handlerton *myriad_hton;
myriad_engine *myriad_core;

/* Of systemd's library, with which the server is linked where it knows systemd; the plugin is built without it. */
extern "C" int sd_notifyf(int unset_environment, const char *format, ...) __attribute__((weak));

/* While systemd waits for the start or the stop. */
static std::atomic<bool> is_waited_for{false};

/* Each line of progress asks systemd for more time, as InnoDB's do: else it kills a start or stop that takes longer
   than TimeoutStartSec or TimeoutStopSec. Where that can take long there is a line each ten seconds at least. */
static void ask_for_time(const char *text) {
  constexpr unsigned SECONDS = 60;
  if (is_waited_for && sd_notifyf)
    sd_notifyf(0, "STATUS=MYRIAD: %.*s\nEXTEND_TIMEOUT_USEC=%u\n", int(strcspn(text, "\n")), text, SECONDS * 1000000);
}

void myriad_report(myriad_log_level level, const char *text) {
  ask_for_time(text);
  switch (level) {
  case MYRIAD_LOG_ERROR: sql_print_error("MYRIAD: %s", text); break;
  case MYRIAD_LOG_WARNING: sql_print_warning("MYRIAD: %s", text); break;
  default: sql_print_information("MYRIAD: %s", text);
  }
}

/* Not in the server's headers. */
extern void ignore_db_dirs_append(const char *dirname);

namespace {

handler *create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *root) {
  return new (root) ha_myriad(hton, share);
}

int stop_engine(const char *why) {
  if (!myriad_core) return 0;
  myriad_stop_backup();
  myriad_engine *core = myriad_core;
  myriad_core = nullptr;
  sql_print_information("MYRIAD: stopping (%s, myriad_fast_shutdown=%lu)", why, myriad_fast_shutdown);
  is_waited_for = true;
  ask_for_time("stopping");
  myriad_status status = myriad_engine_close(core, uint32_t(myriad_fast_shutdown));
  if (status == MYRIAD_OK) {
    sql_print_information("MYRIAD: stopped");
    return 0;
  }
  sql_print_error("MYRIAD: stopping failed: %s; the next start will recover", myriad_last_error());
  return 1;
}

int panic(handlerton *, enum ha_panic_function flag) {
  return flag == HA_PANIC_CLOSE ? stop_engine("server shutdown") : 0;
}

int ddl_recovery_done(handlerton *) {
  myriad_end_ddl_recovery();
  myriad_engine_start_background(myriad_core);
  return 0;
}

/* The engine's folder is no database: mariadb-upgrade would "mend" its name, and so move the files away. */
void hide_folder() {
  const char *folder = "#myriad";
  if (!db_name_is_in_ignore_db_dirs_list(folder)) ignore_db_dirs_append(folder);
}

/* Nothing tells a plugin whether the server ends now. */
void warn_of_server_without_engine() {
  char folder[FN_REFLEN], creating[FN_REFLEN];
  strxnmov(folder, sizeof folder - 1, mysql_real_data_home, "/#myriad", NullS);
  strxnmov(creating, sizeof creating - 1, folder, "/CREATING", NullS);
  /* Also one that cannot be read, or a link to a file system that is not mounted; but none whose first start has
   * failed. */
  struct stat found;
  if (!lstat(folder, &found) && my_access(creating, F_OK))
    sql_print_error("MYRIAD: the server must not go on without the engine: it would forget which prepared transactions "
                    "its binary log has, so that some would be lost, and other engines could make tables of the names "
                    "of ours. With myriad_startup=FORCE it ends here");
}

int init(void *arg) {
  hide_folder();
  myriad::Stage::register_all();
  myriad_hton = static_cast<handlerton *>(arg);
  myriad_hton->create = create_handler;
  myriad_hton->flags = HTON_SUPPORTS_EXTENDED_KEYS | HTON_SUPPORTS_FOREIGN_KEYS | HTON_REQUIRES_CLOSE_AFTER_TRUNCATE;
  myriad_hton->panic = panic;
  myriad_hton->show_status = myriad_show_status;
  myriad_hton->signal_ddl_recovery_done = ddl_recovery_done;
  myriad_hton->table_options = myriad_table_options;
  static const char *no_files[] = {NullS};
  myriad_hton->tablefile_extensions = no_files;
  myriad_init_transactions(myriad_hton);
  myriad_init_backup(myriad_hton);
  myriad_init_discovery(myriad_hton);
  myriad_config config;
  myriad_fill_config(&config);
  ulonglong begin_ns = my_interval_timer();
  is_waited_for = true;
  myriad_status status = myriad_engine_open(&config, &myriad_core);
  is_waited_for = false;
  if (status != MYRIAD_OK) {
    sql_print_error("MYRIAD: cannot start: %s", myriad_last_error());
    warn_of_server_without_engine();
    myriad_core = nullptr;
    return 1;
  }
  myriad_show_log_capacity();
  sql_print_information("MYRIAD: started in %llu ms; buffer pool %llu MiB", (my_interval_timer() - begin_ns) / 1000000,
                        myriad_buffer_pool_size >> 20);
  myriad_finish_clones();
  myriad_put_back_triggers();
  return 0;
}

int deinit(void *) { return stop_engine("plugin removed"); }

}  // namespace

bool myriad_is_running(THD *thd) {
  const LEX_CSTRING name = {STRING_WITH_LEN("MYRIAD")};
  return plugin_lock_by_name(thd, &name, MYSQL_STORAGE_ENGINE_PLUGIN) && myriad_core;
}

namespace {

struct st_mysql_storage_engine storage_engine = {MYSQL_HANDLERTON_INTERFACE_VERSION};

constexpr const char *AUTHOR = "The Myriad authors";

}  // namespace

#define MYRIAD_I_S(object, text)                                                                                       \
  {                                                                                                                    \
    MYSQL_INFORMATION_SCHEMA_PLUGIN, &myriad_i_s_info, object.name, AUTHOR, text, PLUGIN_LICENSE_GPL, object.init,     \
        myriad_i_s_deinit, MYRIAD_VERSION_NUMBER, nullptr, nullptr, MYRIAD_VERSION,                                    \
        MariaDB_PLUGIN_MATURITY_EXPERIMENTAL                                                                           \
  }

maria_declare_plugin(myriad){MYSQL_STORAGE_ENGINE_PLUGIN,
                             &storage_engine,
                             "MYRIAD",
                             AUTHOR,
                             "Transactional engine for very many tables: MVCC, row locks, crash safety, XA",
                             PLUGIN_LICENSE_GPL,
                             init,
                             deinit,
                             MYRIAD_VERSION_NUMBER,
                             myriad_status_variables,
                             myriad_system_variables,
                             MYRIAD_VERSION,
                             MariaDB_PLUGIN_MATURITY_EXPERIMENTAL},
    MYRIAD_I_S(myriad_i_s_trx, "Transactions"), MYRIAD_I_S(myriad_i_s_locks, "Row locks"),
    MYRIAD_I_S(myriad_i_s_lock_waits, "Who waits for whom"),
    MYRIAD_I_S(myriad_i_s_latches, "Latches: acquisitions and waits"),
    MYRIAD_I_S(myriad_i_s_startup, "Phases of the last start"), MYRIAD_I_S(myriad_i_s_tablespaces, "Tablespace files"),
    MYRIAD_I_S(myriad_i_s_tablespace_check, "What the check of tablespace files found"),
    MYRIAD_I_S(myriad_i_s_buffer_pool, "Buffer pool counters"), MYRIAD_I_S(myriad_i_s_metrics, "All counters"),
    {MariaDB_FUNCTION_PLUGIN,
     myriad_clone_function,
     "myriad_clone_database",
     AUTHOR,
     "Makes a database an empty copy of another",
     PLUGIN_LICENSE_GPL,
     nullptr,
     nullptr,
     MYRIAD_VERSION_NUMBER,
     nullptr,
     nullptr,
     MYRIAD_VERSION,
     MariaDB_PLUGIN_MATURITY_EXPERIMENTAL} maria_declare_plugin_end;
