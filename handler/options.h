/* Options in CREATE TABLE that are the engine's own. */
#ifndef MYRIAD_OPTIONS_H
#define MYRIAD_OPTIONS_H
#include "server.h"

struct ha_table_option_struct {
  uint tablespace_per; /* 0 DEFAULT, 1 DATABASE, 2 SERVER, 3 TABLE */
  bool in_memory;
};

/* An option of the server's that would have to be ignored and is refused; null if there is none. CREATE TABLE without
   strict mode passes row formats and block sizes over: dumps set it so. */
const char *myriad_refused_option(THD *, const HA_CREATE_INFO &);
/* Warns of what is passed over. */
void myriad_warn_of_options(THD *, const HA_CREATE_INFO &);

/* One of our options that a partition has of its own; null if none has. They are refused: the server keeps a
   partition's options where only CREATE sees them, so what a partition becomes (EXCHANGE, CONVERT) or is built anew as
   would be without. */
const char *myriad_option_of_partition(const partition_info *);

/* Whether a table is to have a primary key and has none (myriad_force_primary_key): the error is told. */
bool myriad_lacks_primary_key(const TABLE *);

extern ha_create_table_option myriad_table_options[];
#endif
