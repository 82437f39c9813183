/* Backups of the engine's files at the server's BACKUP STAGE statements. */
#ifndef MYRIAD_BACKUP_H
#define MYRIAD_BACKUP_H
#include "server.h"

void myriad_init_backup(handlerton *hton);
/* Before the engine is closed: a backup under way is given up. */
void myriad_stop_backup();
#endif
