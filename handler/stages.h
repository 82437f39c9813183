/* Parts of a statement that can take long: its state in the process list and, as stage/myriad/..., in the Performance
   Schema, with how far they are. */
#ifndef MYRIAD_STAGES_H
#define MYRIAD_STAGES_H
#include "server.h"

namespace myriad {

enum class Part { ReadRows, WriteRows, RepeatChanges, CopyFiles, CompleteBackup };

/* The statement is at that part until the object goes; then it is at what it was at before. */
class Stage {
public:
  /* To be called before there are any. */
  static void register_all();
  Stage(THD *thd, Part part);
  ~Stage();
  Stage(const Stage &) = delete;
  Stage &operator=(const Stage &) = delete;
  void report(ulonglong done, ulonglong of);
  THD *thd() const { return m_thd; }

private:
  THD *m_thd;
  PSI_stage_info m_before;
};

}  // namespace myriad
#endif
