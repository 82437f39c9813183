/* The engine's tables in INFORMATION_SCHEMA. */
#ifndef MYRIAD_I_S_H
#define MYRIAD_I_S_H
#include "server.h"

struct Myriad_i_s {
  const char *name;
  int (*init)(void *schema_table);
};

extern struct st_mysql_information_schema myriad_i_s_info;
extern const Myriad_i_s myriad_i_s_trx, myriad_i_s_locks, myriad_i_s_lock_waits, myriad_i_s_latches, myriad_i_s_startup,
    myriad_i_s_tablespaces, myriad_i_s_tablespace_check, myriad_i_s_buffer_pool, myriad_i_s_metrics;
int myriad_i_s_deinit(void *);
#endif
