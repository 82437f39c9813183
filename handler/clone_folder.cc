/* Files of a copied database's folder, see clone_folder.h.

   A view is a .frm file of text; a partitioned table a .frm file of binary data and a .par file; a table's triggers are
   in a .TRG file, with a .TRN file for each trigger's name; db.opt has the database's options. */
#include "clone_folder.h"
#include "discovery.h"
#include "session.h"
#include "sql_db.h"
#include <m_string.h>
#include <my_dir.h>

namespace myriad {

namespace {

/* Under this name a file is written before it gets its own. */
constexpr const char UNFINISHED[] = MY_DB_OPT_FILE "~";

/* True on failure, reported. */
bool read_file(const std::string &path, std::string *contents) {
  File file = my_open(path.c_str(), O_RDONLY | O_SHARE, MYF(MY_WME));
  if (file < 0) return true;
  char buffer[4096];
  size_t length;
  while ((length = my_read(file, reinterpret_cast<uchar *>(buffer), sizeof buffer, MYF(MY_WME))) &&
         length != MY_FILE_ERROR)
    contents->append(buffer, length);
  my_close(file, MYF(0));
  return length == MY_FILE_ERROR;
}

/* Writes files that are made durable together: the first sync that waits for the file system's journal waits for all.
 */
class Writer {
public:
  explicit Writer(const std::string &folder) : m_folder(folder) {}
  ~Writer() {
    for (File file : m_files) my_close(file, MYF(0));
  }

  /* True on failure, reported; so the others. */
  bool write(const FolderFile &wanted) {
    if (m_files.size() == AT_ONCE && sync()) return true;
    const std::string target = m_folder + "/" + wanted.name, fresh = m_folder + "/" + UNFINISHED;
    File file = my_create(fresh.c_str(), 0, O_RDWR | O_TRUNC, MYF(MY_WME));
    if (file < 0) return true;
    m_files.push_back(file);
    return (!wanted.contents.empty() && my_write(file, reinterpret_cast<const uchar *>(wanted.contents.data()),
                                                 wanted.contents.size(), MYF(MY_NABP | MY_WME))) ||
           my_rename(fresh.c_str(), target.c_str(), MYF(MY_WME));
  }

  /* What was written lasts, and the folder's entries. */
  bool sync() {
    /* Only begins; what goes wrong is seen below. */
    for (File file : m_files) sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE);
    bool failed = false;
    for (File file : m_files) {
      failed |= my_sync(file, MYF(MY_WME)) != 0;
      failed |= my_close(file, MYF(MY_WME)) != 0;
    }
    m_files.clear();
    return failed || my_sync_dir(m_folder.c_str(), MYF(MY_WME));
  }

private:
  static constexpr size_t AT_ONCE = 64;
  const std::string m_folder;
  std::vector<File> m_files;
};

std::string decoded(const std::string &file_name) {
  char name[NAME_LEN + 1];
  return std::string(name, filename_to_tablename(file_name.c_str(), name, sizeof name, true));
}

bool list_files(const std::string &path, std::set<std::string> *names) {
  MY_DIR *files = my_dir(path.c_str(), MYF(MY_WME));
  if (!files) return true;
  for (size_t i = 0; i < files->number_of_files; i++) {
    const char *name = files->dir_entry[i].name;
    if (strcmp(name, ".") && strcmp(name, "..")) names->insert(name);
  }
  my_dirend(files);
  return false;
}

/* The definition of the copy has an id of its own. */
bool renew_version(std::string *image) {
  constexpr size_t type = 64, at = 66;
  if (image->size() < at + MY_UUID_SIZE || uchar((*image)[0]) != 254 || (*image)[type] != EXTRA2_TABLEDEF_VERSION ||
      (*image)[type + 1] != MY_UUID_SIZE)
    return false;
  my_uuid(reinterpret_cast<uchar *>(&(*image)[at]));
  return true;
}

class Reader {
public:
  Reader(const Clone &clone, Folder *folder) : m_clone(clone), m_folder(folder) {}

  bool run() {
    if (list_files(folder_of(m_clone.from), &m_names)) return true;
    std::vector<FolderFile> definitions, options;
    for (const std::string &name : m_names) {
      FolderFile file = {name, ""};
      std::string stem;
      const bool is_options = name == MY_DB_OPT_FILE, is_definition = myriad_strip_ending(name, reg_ext, &stem);
      if (!is_options && !is_definition && !myriad_strip_ending(name, ".par", &stem) &&
          !myriad_strip_ending(name, ".TRG", &stem) && !myriad_strip_ending(name, ".TRN", &stem))
        return refuse_clone(m_clone.from, "it has the file '" + name + "'; other engines' tables are not copied");
      if (is_definition && is_left_behind(stem)) continue;
      if (read_file(folder_of(m_clone.from) + "/" + name, &file.contents)) return true;
      if (is_definition && copy_definition(stem, &file.contents)) return true;
      if (myriad_strip_ending(name, ".TRG", &stem) && copy_table_triggers(stem, &file.contents)) return true;
      (is_options ? options : is_definition ? definitions : m_folder->files).push_back(std::move(file));
    }
    /* Who finds a table's definition finds its partitions and triggers, too. */
    for (FolderFile &file : definitions) m_folder->files.push_back(std::move(file));
    m_folder->files.push_back(options.empty() ? FolderFile{MY_DB_OPT_FILE, ""} : options[0]);
    return check_partitions();
  }

private:
  /* A crash can leave the .frm file of a table whose definition is in the catalog. */
  bool is_left_behind(const std::string &stem) {
    std::string image;
    return myriad_read_frm((folder_of(m_clone.from).substr(2) + "/" + stem).c_str(), &image);
  }
  bool copy_definition(const std::string &stem, std::string *contents) {
    std::string why;
    if (!contents->compare(0, strlen("TYPE=VIEW\n"), "TYPE=VIEW\n")) {
      m_folder->has_views = true;
      return !copy_view(m_clone, decoded(stem), contents, &m_folder->definers, &why) && refuse_clone(m_clone.from, why);
    }
    if (!m_names.count(stem + ".par") || !renew_version(contents))
      return refuse_clone(m_clone.from, "table '" + decoded(stem) +
                                            "' is of another engine, or was a partition and has not been opened since");
    if (!copy_image(m_clone, contents))
      return refuse_clone(m_clone.from, "the definition of table '" + decoded(stem) + "' cannot be changed");
    m_folder->partitioned.insert(stem);
    return false;
  }
  bool copy_table_triggers(const std::string &stem, std::string *contents) {
    std::string why;
    m_folder->with_triggers.insert(stem);
    return !copy_triggers(m_clone, decoded(stem), contents, &m_folder->definers, &why) &&
           refuse_clone(m_clone.from, why);
  }

  /* A partitioned table's partitions are in the catalog, or another engine has them. */
  bool check_partitions() {
    if (m_folder->partitioned.empty()) return false;
    const std::string path = folder_of(m_clone.from);
    std::set<std::string> found;
    const myriad_status status = myriad_list_tables(myriad_core, path.c_str() + 2, note_partition, &found);
    if (status != MYRIAD_OK) {
      myriad_tell(status, current_thd);
      return true;
    }
    for (const std::string &table : m_folder->partitioned)
      if (!found.count(table))
        return refuse_clone(m_clone.from, "partitioned table '" + decoded(table) + "' is of another engine");
    return false;
  }
  static bool note_partition(void *found, const char *table, size_t length) {
    const std::string name(table, length);
    const size_t end = myriad_partition_at(name);
    if (end != std::string::npos) static_cast<std::set<std::string> *>(found)->insert(name.substr(0, end));
    return true;
  }

  const Clone &m_clone;
  Folder *m_folder;
  std::set<std::string> m_names;
};

}  // namespace

std::string folder_of(const std::string &db) {
  char path[FN_REFLEN + 1];
  size_t length = build_table_filename(path, sizeof path - 1, db.c_str(), "", "", 0);
  while (length && path[length - 1] == FN_LIBCHAR) length--;
  return std::string(path, length);
}

bool read_template(const Clone &clone, Folder *folder) { return Reader(clone, folder).run(); }

bool make_folder(const std::string &path, const std::vector<FolderFile> &files) {
  if (my_mkdir(path.c_str(), 0777, MYF(0)) < 0 && my_errno != EEXIST) {
    my_error(ER_CANT_CREATE_DB, MYF(0), path.c_str(), my_errno);
    return true;
  }
  /* A crash can bring the note back after its removal, and what the users have dropped since then is to stay dropped.
   */
  const bool complete = !my_access((path + "/" MY_DB_OPT_FILE).c_str(), F_OK);
  Writer writer(path);
  for (size_t i = 0; i < files.size() && !complete; i++) {
    const bool is_last = i + 1 == files.size();
    if (is_last && i && writer.sync()) return true;
    if (writer.write(files[i])) return true;
  }
  return writer.sync() || my_sync_dir(".", MYF(MY_WME));
}

void remove_folder(const std::string &path, const std::vector<FolderFile> &files) {
  for (const FolderFile &file : files) my_delete((path + "/" + file.name).c_str(), MYF(0));
  my_delete((path + "/" + UNFINISHED).c_str(), MYF(0));
  rmdir(path.c_str());
}

bool refuse_clone(const std::string &db, const std::string &why) {
  my_printf_error(ER_NOT_SUPPORTED_YET, "%s() cannot copy database '%s': %s", MYF(0), CLONE_FUNCTION, db.c_str(),
                  why.c_str());
  return true;
}

}  // namespace myriad
