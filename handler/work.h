/* What the engine does for one table in one statement. */
#ifndef MYRIAD_WORK_H
#define MYRIAD_WORK_H
#include "myriad_capi.h"
#include "server.h"

namespace myriad {

/* While it lives, the thread's work is added to the table's statistics, if somebody wants them: ANALYZE FORMAT=JSON
   (r_engine_stats), the slow log (log_slow_verbosity=engine). */
class WorkFor {
public:
  explicit WorkFor(ha_handler_stats *stats) {
    if (stats && stats->active) begin(stats);
  }
  ~WorkFor() {
    if (m_stats) end();
  }
  WorkFor(const WorkFor &) = delete;
  WorkFor &operator=(const WorkFor &) = delete;

private:
  /* Calls of one handler that make others count once. */
  static thread_local ha_handler_stats *counted;

  void begin(ha_handler_stats *stats) {
    if (counted == stats) return;
    m_outer = counted;
    counted = m_stats = stats;
    myriad_thread_work(&m_before);
  }
  void end() {
    counted = m_outer;
    myriad_work now;
    myriad_thread_work(&now);
    m_stats->pages_accessed += now.pages_accessed - m_before.pages_accessed;
    m_stats->pages_updated += now.pages_updated - m_before.pages_updated;
    m_stats->pages_read_count += now.pages_read - m_before.pages_read;
    m_stats->pages_read_time += ulonglong(double(now.read_ns - m_before.read_ns) * timer_tracker_frequency() / 1e9);
    m_stats->pages_prefetched += now.pages_prefetched - m_before.pages_prefetched;
    m_stats->undo_records_read += now.undo_records_read - m_before.undo_records_read;
  }

  ha_handler_stats *m_stats = nullptr, *m_outer = nullptr;
  myriad_work m_before;
};

}  // namespace myriad
#endif
