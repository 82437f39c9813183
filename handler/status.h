/* Status variables. */
#ifndef MYRIAD_STATUS_H
#define MYRIAD_STATUS_H
#include "server.h"
extern struct st_mysql_show_var myriad_status_variables[];
#endif
