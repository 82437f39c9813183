/* Helpers around the server's table images. */
#ifndef MYRIAD_DISCOVERY_H
#define MYRIAD_DISCOVERY_H
#include "server.h"
#include <string>
#include <vector>

/* Whether a table is known to be there; false also where the catalog cannot be read. */
bool myriad_is_there(const std::string &name);
/* A copy that ALTER TABLE makes is called by this process and the connection: what has its name already was left by
   another server, in a backup or by a crash whose log of DDL is lost, and is dropped. */
myriad_status myriad_create(const std::string &name, const myriad_table_spec &spec);
/* 0, or a handler error; refused where another table refers to it. */
int myriad_drop(const std::string &name, THD *thd);
/* The table's image from the catalog; empty if it has none (partitions). */
myriad_status myriad_find_frm(const char *name, std::string *image);
/* The same; false if there is no such table or it has none (partitions). */
bool myriad_read_frm(const char *name, std::string *image);
bool myriad_frm_is_sequence(const std::string &image);
bool myriad_frm_has_version(const std::string &image, const LEX_CUSTRING *version);
/* Removes the .frm file that the server left beside a table of ours: it would hide the catalog's definition. */
void myriad_remove_frm(const char *path);
/* The server's log of DDL has been worked off at the start. */
void myriad_end_ddl_recovery();
/* While it is: the table, dropped already, whose place the copy takes that is renamed next; empty if there is none with
   children. */
std::string myriad_replaced_in_recovery();
/* The same: whether this is a partitioned table's copy, or the table that a copy has put aside. */
bool myriad_is_partitioned_in_recovery(const char *path);
/* The same: whether this is a partition that had its new name already when the crash came. */
bool myriad_was_renamed_before_recovery(const char *from, const char *to);
/* What follows the table's name in those of its partitions. */
myriad_status myriad_list_partitions(const std::string &name, std::vector<std::string> *endings);
/* The same: drops partitions that were put aside before the copy at this path gets its name. With their .par file the
   server drops them itself; a crash before that had come to its new name leaves them to us. */
myriad_status myriad_drop_lost_backup(std::string path);
#endif
