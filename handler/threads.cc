/* The engine's threads in performance_schema.threads, as thread/myriad/purge and so on. Where the Performance Schema is
   off it gives no thread of its own, and none is set. */
#include "threads.h"
#include "server.h"

void myriad_thread_begins(const char *duty) {
  /* Of a name that it has already it gives the key. */
  PSI_thread_key key = 0;
  PSI_thread_info info = {&key, duty, 0};
  PSI_THREAD_CALL(register_thread)("myriad", &info, 1);
  PSI_thread *thread = PSI_THREAD_CALL(new_thread)(key, nullptr, 0);
  PSI_THREAD_CALL(set_thread_os_id)(thread);
  PSI_THREAD_CALL(set_thread)(thread);
}

void myriad_thread_ends() { PSI_THREAD_CALL(delete_current_thread)(); }
