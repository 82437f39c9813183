#include "stages.h"
#include <iterator>

namespace myriad {

namespace {

/* In the order of Part; those of ALTER TABLE have InnoDB's names. */
PSI_stage_info stages[] = {{0, "alter table (read PK and internal sort)", PSI_FLAG_STAGE_PROGRESS},
                           {0, "alter table (insert)", PSI_FLAG_STAGE_PROGRESS},
                           {0, "alter table (log apply)", PSI_FLAG_STAGE_PROGRESS},
                           {0, "copying files for a backup", PSI_FLAG_STAGE_PROGRESS},
                           {0, "completing a backup", PSI_FLAG_STAGE_PROGRESS}};

}  // namespace

void Stage::register_all() {
  PSI_stage_info *all[std::size(stages)];
  for (size_t i = 0; i < std::size(stages); i++) all[i] = &stages[i];
  mysql_stage_register("myriad", all, int(std::size(stages)));
}

Stage::Stage(THD *thd, Part part) : m_thd(thd), m_before{0, nullptr, 0} {
  m_thd->backup_stage(&m_before);
  THD_STAGE_INFO(m_thd, stages[size_t(part)]);
}

Stage::~Stage() { THD_STAGE_INFO(m_thd, m_before); }

void Stage::report(ulonglong done, ulonglong of) {
  thd_progress_report(m_thd, done, of);
  mysql_stage_set_work_completed(m_thd->m_stage_progress_psi, done);
  mysql_stage_set_work_estimated(m_thd->m_stage_progress_psi, of);
}

}  // namespace myriad
