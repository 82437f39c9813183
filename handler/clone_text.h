/* Definitions that the server keeps as text in a database's folder, changed so that they belong to a copy of it. */
#ifndef MYRIAD_CLONE_TEXT_H
#define MYRIAD_CLONE_TEXT_H
#include "server.h"
#include <string>
#include <vector>

namespace myriad {

/* A template and its copy, as the server's names. */
struct Clone {
  THD *thd;
  std::string from, to;
};

/* What a file of definitions said, beside its text. */
struct Definers {
  std::vector<std::string> users; /* user@host; of a role: role@ */
};

/* Turns the contents of a view's file (.frm) into that of the copy's view: what it reads of the template it then reads
   of the copy. False: it cannot be copied, and `why` says so. */
bool copy_view(const Clone &, const std::string &view, std::string *file, Definers *definers, std::string *why);

/* The same for the file with a table's triggers (.TRG). */
bool copy_triggers(const Clone &, const std::string &table, std::string *file, Definers *definers, std::string *why);

/* Makes the expressions in a table's image (defaults: NEXTVAL) use the copy's sequences. False: it cannot be copied. */
bool copy_image(const Clone &, std::string *image);

}  // namespace myriad
#endif
