/* What every file of the shim includes first: the server's headers in the order they need, and the core's C ABI. */
#ifndef MYRIAD_SERVER_H
#define MYRIAD_SERVER_H
#define MYSQL_SERVER 1
#include <my_global.h>
#include "sql_priv.h"
#include "sql_class.h"
#include "sql_base.h"
#include "sql_table.h"
#include "sql_show.h"
#include "sql_i_s.h"
#include "table.h"
#include "field.h"
#include "handler.h"
#include "key.h"
#include "log.h"
#include "my_bit.h"
#include <m_ctype.h>
#include <mysql/plugin.h>
#include "myriad_capi.h"
#endif
