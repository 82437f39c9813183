/* DROP DATABASE: all of a database's tables in one transaction of the catalog. */
#ifndef MYRIAD_DROP_DATABASE_H
#define MYRIAD_DROP_DATABASE_H
#include "server.h"
#include <string>
#include <vector>

/* DROP DATABASE asks for its tables: keeps those in `names` (file name encoding) that it must drop one by one. The
   others go with myriad_drop_database_hook(). True on failure, reported. */
bool myriad_leave_drops(THD *thd, const char *db, const MY_DIR *files, std::vector<std::string> *names);
/* Whether a table of the database may not be opened, because that is being dropped; reported. */
bool myriad_refuse_while_dropped(THD *thd, const TABLE_SHARE *share);
/* The definition is where DROP DATABASE finds it and waits for its users. */
void myriad_allow_drop(THD *thd, const TABLE_SHARE *share);
/* The same, once more after its definition was read: a DROP may have begun since, if the first look could not keep it
   out. */
bool myriad_refuse_if_dropped(THD *thd, const char *db);
/* handlerton::drop_database */
void myriad_drop_database_hook(handlerton *hton, char *path);
#endif
