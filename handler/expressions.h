/* What expressions in a table's definition are made of. */
#ifndef MYRIAD_EXPRESSIONS_H
#define MYRIAD_EXPRESSIONS_H
#include "server.h"
#include <vector>

namespace myriad {

/* For each of the table's fields whether the expression of one of its columns reads it. */
std::vector<bool> fields_of(Item *expression, TABLE *table);

}  // namespace myriad
#endif
