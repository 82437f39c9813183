#include "expressions.h"

namespace myriad {

std::vector<bool> fields_of(Item *expression, TABLE *table) {
  std::vector<my_bitmap_map> bits(bitmap_buffer_size(table->s->fields) / sizeof(my_bitmap_map) + 1);
  MY_BITMAP read;
  my_bitmap_init(&read, bits.data(), table->s->fields);
  MY_BITMAP *saved = table->read_set;
  table->read_set = &read;
  expression->walk(&Item::register_field_in_read_map, 1, nullptr);
  table->read_set = saved;
  std::vector<bool> fields(table->s->fields);
  for (uint i = 0; i < fields.size(); i++) fields[i] = bitmap_is_set(&read, i);
  return fields;
}

}  // namespace myriad
