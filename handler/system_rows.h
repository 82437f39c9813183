/* Rows that the server keeps about a database in its own tables. */
#ifndef MYRIAD_SYSTEM_ROWS_H
#define MYRIAD_SYSTEM_ROWS_H
#include "server.h"
#include <string>
#include <vector>

/* Second key columns (a table's, routine's or event's name) of the rows of mysql.<system_table> whose first is `db`,
   each once, `max` at most. Nothing if the server's table cannot be read. */
std::vector<std::string> myriad_system_rows(THD *thd, const char *system_table, const char *db, size_t max);
#endif
