/* The folder of a database that is copied: what the server keeps there beside the catalog's tables. */
#ifndef MYRIAD_CLONE_FOLDER_H
#define MYRIAD_CLONE_FOLDER_H
#include "clone_text.h"
#include <set>

namespace myriad {

struct FolderFile {
  std::string name, contents;
};

struct Folder {
  /* In the order in which they are made; the last is db.opt. */
  std::vector<FolderFile> files;
  /* Tables in file name encoding. */
  std::set<std::string> partitioned, with_triggers;
  bool has_views = false;
  Definers definers;
};

/* Path of a database's folder. */
std::string folder_of(const std::string &db);

/* Reads the template's folder and turns it into the copy's. True: it cannot be copied, reported. */
bool read_template(const Clone &, Folder *);

/* Makes a folder with these files, durably. One that has its db.opt is complete and stays as it is. True on failure,
   reported. */
bool make_folder(const std::string &path, const std::vector<FolderFile> &);

/* Undoes make_folder() as far as it came. */
void remove_folder(const std::string &path, const std::vector<FolderFile> &);

/* Reports that a database cannot be copied; true. */
bool refuse_clone(const std::string &db, const std::string &why);

constexpr const char *CLONE_FUNCTION = "myriad_clone_database";

}  // namespace myriad
#endif
