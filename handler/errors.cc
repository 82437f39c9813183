/* From the core's statuses to the server's errors, and from paths to the core's names. */
#include "session.h"
#include "ha_myriad.h"
#include "variables.h"
#include <my_dir.h>
#include <mutex>
#include <set>

int myriad_error(myriad_status status) {
  switch (status) {
  case MYRIAD_OK: return 0;
  case MYRIAD_END: return HA_ERR_END_OF_FILE;
  case MYRIAD_ERR_DUPLICATE_KEY: return HA_ERR_FOUND_DUPP_KEY;
  case MYRIAD_ERR_LOCK_WAIT_TIMEOUT: return HA_ERR_LOCK_WAIT_TIMEOUT;
  case MYRIAD_ERR_DEADLOCK: return HA_ERR_LOCK_DEADLOCK;
  case MYRIAD_ERR_INTERRUPTED: return HA_ERR_ABORTED_BY_USER;
  case MYRIAD_ERR_NO_SUCH_TABLE: return HA_ERR_NO_SUCH_TABLE;
  case MYRIAD_ERR_TABLE_EXISTS: return HA_ERR_TABLE_EXIST;
  case MYRIAD_ERR_DEFINITION_CHANGED: return HA_ERR_TABLE_DEF_CHANGED;
  case MYRIAD_ERR_TOO_LONG: return MYRIAD_HA_ERR_TOO_LONG;
  case MYRIAD_ERR_IO: return MYRIAD_HA_ERR_IO;
  case MYRIAD_ERR_DISK_FULL:
  case MYRIAD_ERR_MEMORY_FULL: return HA_ERR_RECORD_FILE_FULL;
  case MYRIAD_ERR_CORRUPT: return HA_ERR_CRASHED;
  case MYRIAD_ERR_TABLESPACE: return MYRIAD_HA_ERR_TABLESPACE;
  case MYRIAD_ERR_FORMAT: return MYRIAD_HA_ERR_FORMAT;
  case MYRIAD_ERR_BUFFER_POOL: return MYRIAD_HA_ERR_BUFFER_POOL;
  case MYRIAD_ERR_POISONED: return MYRIAD_HA_ERR_POISONED;
  case MYRIAD_ERR_NOT_SUPPORTED: return HA_ERR_UNSUPPORTED;
  case MYRIAD_ERR_RECORD_CHANGED: return HA_ERR_RECORD_CHANGED;
  case MYRIAD_ERR_LOCK_TABLE_FULL: return HA_ERR_LOCK_TABLE_FULL;
  case MYRIAD_ERR_DIRECTORY_LOCKED:
  case MYRIAD_ERR_INVALID:
  case MYRIAD_ERR_SHUTTING_DOWN:
  case MYRIAD_ERR_XA_UNKNOWN: return MYRIAD_HA_ERR_OTHER;
  }
  return MYRIAD_HA_ERR_OTHER;
}

/* Of errors that come for each statement the error log gets each once in a while, and not too many. */
class BoundedLog {
public:
  void tell(const std::string &text) {
    std::lock_guard<std::mutex> one(m_lock);
    const ulonglong now = microsecond_interval_timer();
    if (now >= m_end) begin(now);
    if (m_told.size() < TOLD_MAX && m_told.insert(text).second)
      sql_print_error("MYRIAD: %s", text.c_str());
    else
      m_passed_over++;
  }

private:
  static constexpr ulonglong PERIOD_SECONDS = 10;
  static constexpr size_t TOLD_MAX = 10;

  void begin(ulonglong now) {
    if (m_passed_over)
      sql_print_error("MYRIAD: %llu more errors of statements, most like those above, were not told of here",
                      m_passed_over);
    m_told.clear();
    m_passed_over = 0;
    m_end = now + PERIOD_SECONDS * 1000000;
  }

  std::mutex m_lock;
  ulonglong m_end = 0;
  std::set<std::string> m_told; /* of the present period */
  ulonglong m_passed_over = 0;
};

static BoundedLog bounded_log;

/* The server's own lines name neither file nor page. */
static void log_error(myriad_status status, const char *table) {
  const bool corrupt = status == MYRIAD_ERR_CORRUPT;
  if (!corrupt && status != MYRIAD_ERR_DISK_FULL && status != MYRIAD_ERR_IO && status != MYRIAD_ERR_TABLESPACE) return;
  std::string text = myriad_last_error();
  if (table) text += std::string(" (table ") + table + ")";
  if (corrupt)
    text +=
        ". Restore a backup, or save what can be read into another table; CHECK TABLE and the command `myriad verify` "
        "tell what else is damaged";
  bounded_log.tell(text);
}

int myriad_error_noted(myriad_status status, THD *thd, const char *table) {
  int error = myriad_error(status);
  /* The server's own messages for these name neither tablespace nor page, nor the variable that sets a limit. */
  if (thd && (status == MYRIAD_ERR_CORRUPT || status == MYRIAD_ERR_DISK_FULL || status == MYRIAD_ERR_MEMORY_FULL ||
              status == MYRIAD_ERR_LOCK_TABLE_FULL || status == MYRIAD_ERR_NOT_SUPPORTED)) {
    /* Strict mode would make this warning the statement's error, in place of the server's own number. */
    const bool strict = thd->abort_on_warning;
    thd->abort_on_warning = false;
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR, "MYRIAD: %s", myriad_last_error());
    thd->abort_on_warning = strict;
  }
  log_error(status, table);
  return error;
}

void myriad_tell(myriad_status status, THD *thd, myf flags) {
  my_error(ER_GET_ERRMSG, flags, myriad_error_noted(status, thd), myriad_last_error(), "MYRIAD");
}

int myriad_told(int error, uint code) {
  if (error >= MYRIAD_HA_ERR_IO && error <= MYRIAD_HA_ERR_OTHER)
    my_printf_error(code, "MYRIAD: %s", MYF(0), myriad_last_error());
  return error;
}

bool myriad_rolls_back_whole(int error) {
  return error == HA_ERR_LOCK_DEADLOCK || error == HA_ERR_RECORD_CHANGED || error == HA_ERR_LOCK_TABLE_FULL;
}

int Session::fail(myriad_status status, THD *thd, const char *table) {
  int error = myriad_error_noted(status, thd, table);
  /* The server forgets a KILL that comes while it looks for a routine's handler of a condition, and would take this
     error for a statement that went well. */
  if (thd && status == MYRIAD_ERR_INTERRUPTED && thd_kill_level(thd) == THD_IS_NOT_KILLED) thd->set_killed(KILL_QUERY);
  const bool timeout = status == MYRIAD_ERR_LOCK_WAIT_TIMEOUT;
  const bool whole = myriad_rolls_back_whole(error) || (thd && timeout && myriad_rollback_on_timeout_of(thd));
  /* Also after a time-out no handler in a function or trigger may go on: its statement is undone as a whole. */
  if (thd && (whole || timeout)) thd->mark_transaction_to_rollback(whole || thd->transaction_rollback_request);
  return error;
}

/* Whether the statement may have told this error already: what was refused, of which the server's own sentence for this
   number says something else; a duplicate that the end of CREATE TEMPORARY TABLE ... SELECT has found; the end of a
   wait for a metadata lock; whatever went wrong where indexes are merged, which the server takes for a lack of memory.
 */
bool ha_myriad::may_be_told(int error) const {
  switch (error) {
  case HA_ERR_UNSUPPORTED:
  case HA_ERR_LOCK_WAIT_TIMEOUT:
  case HA_ERR_LOCK_DEADLOCK:
  case HA_ERR_ABORTED_BY_USER:
  case HA_ERR_OUT_OF_MEM: return true;
  case HA_ERR_FOUND_DUPP_KEY: return myriad_is_temporary(m_name);
  default: return false;
  }
}

void ha_myriad::print_error(int error, myf flags) {
  if (!may_be_told(error) || !ha_thd()->is_error()) handler::print_error(error, flags);
}

bool ha_myriad::get_error_message(int error, String *text) {
  if (error == HA_ERR_NO_REFERENCED_ROW || error == HA_ERR_ROW_IS_REFERENCED || error == HA_ERR_FK_DEPTH_EXCEEDED) {
    Session *session = Session::of(ha_thd(), false);
    if (session) text->copy(session->violation.c_str(), session->violation.size(), system_charset_info);
    return false;
  }
  const char *sentence = error >= MYRIAD_HA_ERR_IO && error <= MYRIAD_HA_ERR_OTHER ? myriad_last_error() : "";
  text->copy(sentence, strlen(sentence), system_charset_info);
  return false;
}

/* Before the names of temporary tables. */
static const std::string TEMPORARY = "#tmp/";

bool myriad_is_temporary(const std::string &name) { return !name.compare(0, TEMPORARY.size(), TEMPORARY); }

bool myriad_is_temporary_path(const char *path) { return !(path[0] == FN_CURLIB && path[1] == FN_LIBCHAR); }

std::vector<std::string> myriad_files_in(const std::string &folder) {
  std::vector<std::string> names;
  MY_DIR *files = my_dir(folder.c_str(), MYF(0));
  for (size_t i = 0; files && i < files->number_of_files; i++) {
    const std::string name = files->dir_entry[i].name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (files) my_dirend(files);
  return names;
}

bool myriad_strip_ending(const std::string &name, const char *ending, std::string *stem) {
  const size_t length = strlen(ending);
  if (name.size() <= length || name.compare(name.size() - length, length, ending)) return false;
  stem->assign(name, 0, name.size() - length);
  return true;
}

std::string myriad_name(const char *path) {
  if (!myriad_is_temporary_path(path)) return path + 2;
  const char *base = strrchr(path, FN_LIBCHAR);
  return TEMPORARY + (base ? base + 1 : path);
}
