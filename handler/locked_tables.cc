/* LOCK TABLES ... WRITE.

   DROP TABLE under LOCK TABLES asks first for the table's .frm file. Where there is none, the server empties its table
   cache before it closes the session's own handle, and waits for that handle for ever (10.11, any engine without .frm
   files). So a table write-locked by LOCK TABLES gets its .frm file while the lock lasts. A crash may leave one behind:
   open() compares its version with the catalog's. */
#include "ha_myriad.h"
#include "discovery.h"
#include <my_sys.h>
#include <string>

/* Whole or not at all, also after a power failure: the server opens no table that has an empty .frm file. What a crash
   leaves has an ending that DROP DATABASE removes. */
static bool write_frm(const char *table_path, const std::string &image) {
  const std::string making = std::string(table_path) + ".BAK", path = std::string(table_path) + reg_ext;
  File file = my_create(making.c_str(), 0, O_WRONLY | O_TRUNC, MYF(MY_WME));
  if (file < 0) return false;
  const auto *bytes = reinterpret_cast<const uchar *>(image.data());
  bool failed = my_write(file, bytes, image.size(), MYF(MY_WME | MY_NABP)) || my_sync(file, MYF(MY_WME));
  failed = my_close(file, MYF(MY_WME)) || failed;
  failed = failed || my_rename(making.c_str(), path.c_str(), MYF(MY_WME));
  if (failed) my_delete(making.c_str(), MYF(0));
  return !failed;
}

void ha_myriad::show_frm_while_locked(THD *thd) {
  bool locks_tables = thd_sql_command(thd) == SQLCOM_LOCK_TABLES || thd->locked_tables_mode == LTM_LOCK_TABLES;
  /* A clone would take the file away at its statement's end. */
  if (!locks_tables || m_is_clone || m_frm_shown || table->s->tmp_table || table->s->partition_info_str) return;
  std::string image;
  if (!myriad_read_frm(m_name.c_str(), &image)) return;
  m_frm_shown = write_frm(table->s->normalized_path.str, image);
}

void ha_myriad::hide_frm(THD *thd) {
  if (!m_frm_shown) return;
  m_frm_shown = false;
  /* DROP TABLE closes the handle first and removes the file itself. */
  if (thd_sql_command(thd) != SQLCOM_DROP_TABLE) myriad_remove_frm(table->s->normalized_path.str);
}
