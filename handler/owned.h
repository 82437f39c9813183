/* Things of the core that a std::unique_ptr owns. */
#ifndef MYRIAD_OWNED_H
#define MYRIAD_OWNED_H
#include "myriad_capi.h"

namespace myriad {

struct Deleter {
  void operator()(myriad_session *session) const { myriad_session_free(session); }
  void operator()(myriad_row_changes *changes) const { myriad_row_changes_free(changes); }
  void operator()(myriad_cursor *cursor) const { myriad_cursor_close(cursor); }
  void operator()(myriad_table *table) const { myriad_table_close(table); }
  void operator()(myriad_copy *copy) const { myriad_copy_free(copy); }
};

}  // namespace myriad
#endif
