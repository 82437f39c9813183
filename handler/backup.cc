/* BACKUP STAGE START copies the engine's files into the folder of myriad_backup_dir, BACKUP STAGE END makes the copy
   the state of that moment. The server calls both hooks with the backup's lock held, so there is one backup at a time.
   They cannot fail: what goes wrong is raised as the statement's error. */
#include "backup.h"
#include "session.h"
#include "stages.h"
#include "variables.h"
#include <mutex>

namespace {

/* What mariadb-backup sets before it begins, and hardly anybody else: it has no other name that a server sees. */
constexpr ulong MARIADB_BACKUP_WAIT_TIMEOUT = 2147483;

std::mutex lock;        /* of what follows; the shutdown comes from another thread */
myriad_backup *running; /* files copied, not ended */
bool has_failed;        /* BACKUP STAGE START has; its END must not look as if there were a backup */

void raise(const char *what) {
  my_printf_error(ER_BACKUP_STAGE_FAILED, "MYRIAD: no backup was made: %s", MYF(ME_ERROR_LOG), what);
}

/* Without a copy of ours: a snapshot of the whole data directory holds our files; mariadb-backup passes over them and
   would end in "completed OK". An error here is the statement's, and its locks go with the connection. */
void refuse_mariadb_backup(THD *thd) {
  if (!thd || thd->variables.net_wait_timeout != MARIADB_BACKUP_WAIT_TIMEOUT) return;
  my_printf_error(ER_BACKUP_STAGE_FAILED,
                  "MYRIAD: mariadb-backup would leave out all tables of this engine: name a folder for their copy in "
                  "myriad_backup_dir first, or use mariadb-dump",
                  MYF(ME_ERROR_LOG));
}

/* How far the core is, told to the statement's stage. */
bool watch(void *arg, uint64_t files, uint64_t files_total, uint32_t permille) {
  auto *stage = static_cast<myriad::Stage *>(arg);
  stage->report(files * 1000 + permille, files_total * 1000);
  return !thd_killed(stage->thd());
}

/* Runs a part of the backup with its progress in the process list. */
template <typename Work> myriad_status watched(THD *thd, myriad::Part part, Work work) {
  myriad::Stage stage(thd, part);
  thd_progress_init(thd, 1);
  myriad_status status = work(&stage);
  thd_progress_end(thd);
  return status;
}

void prepare_for_backup() {
  THD *thd = current_thd;
  std::string dir = myriad_backup_dir_now();
  if (dir.empty() || !thd) return refuse_mariadb_backup(thd);
  sql_print_information("MYRIAD: backup: copying files to %s", dir.c_str());
  myriad_backup *made = nullptr;
  myriad_status status = watched(thd, myriad::Part::CopyFiles, [&](myriad::Stage *stage) {
    return myriad_backup_begin(myriad_core, dir.c_str(), watch, stage, &made);
  });
  if (status != MYRIAD_OK) raise(myriad_last_error());
  std::lock_guard<std::mutex> one(lock);
  running = made;
  has_failed = status != MYRIAD_OK;
}

/* Also called when the connection ends, or is reset, before BACKUP STAGE END. */
void end_backup() {
  THD *thd = current_thd;
  myriad_backup *backup;
  bool failed;
  {
    std::lock_guard<std::mutex> one(lock);
    backup = running;
    failed = has_failed;
    running = nullptr;
    has_failed = false;
  }
  bool is_end = thd && !thd->killed && thd->lex->sql_command == SQLCOM_BACKUP && thd->lex->backup_stage == BACKUP_END;
  if (!backup) {
    if (failed && is_end) raise("BACKUP STAGE START has failed");
    return;
  }
  if (!is_end) {
    myriad_backup_abandon(backup);
    sql_print_warning("MYRIAD: the backup was given up: its connection ended, or its statement was killed, before "
                      "BACKUP STAGE END");
    return;
  }
  /* Else some of its transactions would be prepared, and what decides them of another moment: the binary log or,
     without one, the server's tc.log, of transactions that have changed tables of another engine as well. */
  if (!thd->mdl_context.is_lock_owner(MDL_key::BACKUP, "", "", MDL_BACKUP_WAIT_COMMIT)) {
    myriad_backup_abandon(backup);
    return raise("BACKUP STAGE BLOCK_COMMIT has to come before END");
  }
  myriad_status status = watched(thd, myriad::Part::CompleteBackup,
                                 [&](myriad::Stage *stage) { return myriad_backup_finish(backup, watch, stage); });
  if (status != MYRIAD_OK) raise(myriad_last_error());
}

}  // namespace

void myriad_stop_backup() {
  std::lock_guard<std::mutex> one(lock);
  if (running) myriad_backup_abandon(running);
  has_failed = running || has_failed;
  running = nullptr;
}

void myriad_init_backup(handlerton *hton) {
  hton->prepare_for_backup = prepare_for_backup;
  hton->end_backup = end_backup;
}
