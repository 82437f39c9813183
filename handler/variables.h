/* The system variables' values that other files read. */
#ifndef MYRIAD_VARIABLES_H
#define MYRIAD_VARIABLES_H
#include "server.h"
#include <string>

extern struct st_mysql_sys_var *myriad_system_variables[];
extern ulong myriad_fast_shutdown;
extern my_bool myriad_force_primary_key;
extern ulonglong myriad_buffer_pool_size;

ulong myriad_lock_wait_timeout_of(THD *thd); /* seconds */
bool myriad_rollback_on_timeout_of(THD *thd);
bool myriad_snapshot_isolation_of(THD *thd);
void myriad_fill_config(myriad_config *config);
/* The engine has started: the log may have another size than the configuration says. */
void myriad_show_log_capacity();
std::string myriad_backup_dir_now();
/* Memory for sorting when an index is built, in bytes. */
ulonglong myriad_sort_buffer_of(THD *thd);
#endif
