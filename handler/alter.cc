/* ALTER TABLE without a copy: metadata changes at once, ADD and DROP INDEX in place. All else is left to the server's
 * copy. */
#include "ha_myriad.h"
#include "discovery.h"
#include "expressions.h"
#include "foreign_keys.h"
#include "index_builds.h"
#include "options.h"
#include "table_rebuild.h"
#include <algorithm>
#include <list>

using myriad::IndexBuilds;
using myriad::IndexPlan;
using myriad::OnlineBuild;
using myriad::TablePlan;

namespace {

constexpr alter_table_operations METADATA_ONLY =
    ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN | ALTER_CHANGE_COLUMN | ALTER_CHANGE_COLUMN_DEFAULT | ALTER_OPTIONS |
    ALTER_RENAME | ALTER_RENAME_INDEX | ALTER_CONVERT_TO | ALTER_CHANGE_INDEX_COMMENT | ALTER_DROP_CHECK_CONSTRAINT |
    ALTER_COLUMN_OPTION | ALTER_COLUMN_COLUMN_FORMAT | ALTER_INDEX_IGNORABILITY | ALTER_INDEX_ORDER |
    ALTER_PARTITIONED | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH;
/* Rows stay as they are, with the layout that they were written in (layouts.h). */
constexpr alter_table_operations NEW_LAYOUT =
    ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN | ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN |
    ALTER_STORED_COLUMN_ORDER | ALTER_VIRTUAL_COLUMN_ORDER | ALTER_COLUMN_ORDER | ALTER_COLUMN_NULLABLE;
/* Records are others, too: a row has to be turned into the new one where the table is built anew. */
constexpr alter_table_operations NEW_RECORD =
    NEW_LAYOUT | ALTER_COLUMN_NOT_NULLABLE | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE;
constexpr alter_table_operations ADD_INDEX =
    ALTER_ADD_INDEX | ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;
constexpr alter_table_operations DROP_INDEX =
    ALTER_DROP_INDEX | ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX;

constexpr alter_table_operations REBUILD = ALTER_RECREATE_TABLE | ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX;

std::vector<const char *> texts_of(const std::vector<std::string> &names) {
  std::vector<const char *> texts;
  for (const std::string &name : names) texts.push_back(name.c_str());
  return texts;
}

/* A longer VARCHAR is stored as it was, as long as its length has no more bytes. One that is COMPRESSED counts a byte
   more than it was declared with. */
bool is_longer(const Field &a, uint32 new_length) {
  return !a.compression_method() && a.real_type() == MYSQL_TYPE_VARCHAR && a.stored_in_db() &&
         a.field_length < new_length && HA_VARCHAR_PACKLENGTH(a.field_length) == HA_VARCHAR_PACKLENGTH(new_length);
}

/* Whether the length of a column is how its values are shown, no matter in rows: of integers, and the longest member of
   an ENUM or SET, of which the server compares the members. */
bool is_length_shown(const Field &a, const Field &b) {
  if ((a.flags | b.flags) & ZEROFILL_FLAG) return false;
  switch (a.real_type()) {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET: return true;
  default: return false;
  }
}

/* Whether texts of the column can be read in the other character set as they are. */
bool is_readable_as(const Field &a, CHARSET_INFO *charset) {
  if (a.charset() == charset) return true;
  const auto type = a.real_type();
  const bool is_text = type == MYSQL_TYPE_VARCHAR || type == MYSQL_TYPE_STRING || type == MYSQL_TYPE_BLOB;
  return is_text && Charset(a.charset()).encoding_allows_reinterpret_as(charset);
}

/* A CHAR of as many characters in a wider character set is stored as it was, without trailing spaces, as long as its
   length has no more bytes. One of two bytes is stored whole. */
bool is_wider(const Field &a, CHARSET_INFO *charset, uint32 new_length) {
  return a.real_type() == MYSQL_TYPE_STRING && a.stored_in_db() && a.charset()->mbmaxlen < charset->mbmaxlen &&
         a.field_length / a.charset()->mbmaxlen == new_length / charset->mbmaxlen && a.field_length > 2 &&
         (a.field_length > 255) == (new_length > 255);
}

/* Whether a column's image in a row means the same in both. */
bool same_image(const Field *a, const Field *b, bool longer) {
  if (a->real_type() != b->real_type() || !is_readable_as(*a, b->charset()) || a->stored_in_db() != b->stored_in_db() ||
      (a->flags & UNSIGNED_FLAG) != (b->flags & UNSIGNED_FLAG) || a->compression_method() != b->compression_method())
    return false;
  const bool same_length = a->field_length == b->field_length || is_length_shown(*a, *b);
  return (same_length && a->pack_length() == b->pack_length()) ||
         (longer && (is_longer(*a, b->field_length) || is_wider(*a, b->charset(), b->field_length)));
}

bool same_null_bit(const Field *a, const TABLE *at, const Field *b, const TABLE *bt) {
  if (a->real_maybe_null() != b->real_maybe_null()) return false;
  return !a->real_maybe_null() ||
         (a->null_bit == b->null_bit && a->null_ptr - at->record[0] == b->null_ptr - bt->record[0]);
}

/* Rows and records of the one can be read as those of the other. */
bool same_layout(const TABLE *a, const TABLE *b) {
  if (a->s->fields != b->s->fields || a->s->null_bytes != b->s->null_bytes || a->s->null_fields != b->s->null_fields)
    return false;
  for (uint i = 0; i < a->s->fields; i++) {
    if (!same_image(a->field[i], b->field[i], false) || !same_null_bit(a->field[i], a, b->field[i], b)) return false;
    if (a->field[i]->ptr - a->record[0] != b->field[i]->ptr - b->record[0]) return false;
  }
  return true;
}

/* For each field of the altered table the number of the old table's field that it was, -1 if it is new. Empty: not
   known, since the server has added some of its own. */
std::vector<int> origins_of(const TABLE *altered, const Alter_inplace_info *info) {
  std::vector<int> origins;
  if (!(info->handler_flags & NEW_LAYOUT)) {
    for (uint i = 0; i < altered->s->fields; i++) origins.push_back(int(i));
    return origins;
  }
  for (const Create_field &column : const_cast<List<Create_field> &>(info->alter_info->create_list))
    origins.push_back(column.field ? int(column.field->field_index) : -1);
  if (origins.size() != altered->s->fields) origins.clear();
  return origins;
}

/* What rows get that have no value of their own, into the record. False: it does not fit, which the server says when it
   copies. */
bool set_default(Field *field) {
  /* Of the current time a column may take a part, with a note or a warning. */
  constexpr int took_a_part = 3;
  if (const int error = field->default_value ? field->set_default() : 0) return error == took_a_part;
  if (field->has_default_now_unireg_check()) field->set_time();
  return true;
}

/* Puts what rows get in the columns that they do not have yet into the record. True and an error if that fails. */
bool set_defaults_of_new(TABLE *altered, const std::vector<int> &origins) {
  restore_record(altered, s->default_values);
  MY_BITMAP *saved = tmp_use_all_columns(altered, &altered->write_set);
  for (uint i = 0; i < origins.size(); i++)
    if (origins[i] < 0 && altered->field[i]->stored_in_db()) set_default(altered->field[i]);
  tmp_restore_column_map(&altered->write_set, saved);
  return altered->in_use->is_error();
}

/* What is tried only tells no errors and warnings. */
class Silence {
public:
  explicit Silence(THD *thd) : m_thd(thd) { thd->push_internal_handler(&m_handler); }
  ~Silence() { m_thd->pop_internal_handler(); }
  Silence(const Silence &) = delete;
  bool any_error() const { return const_cast<Dummy_error_handler &>(m_handler).any_error(); }

private:
  THD *const m_thd;
  Dummy_error_handler m_handler;
};

/* Whether a column's own CHECK, if there is one, is of this column alone and lets its value in the record pass. */
bool passes_check(Field &field) {
  Virtual_column_info *check = field.check_constraint;
  if (!check) return true;
  if (check->flags & ~VCOL_FIELD_REF) return false;
  const std::vector<bool> used = myriad::fields_of(check->expr, field.table);
  for (uint i = 0; i < used.size(); i++)
    if (used[i] && i != field.field_index) return false;
  const Silence silence(field.table->in_use);
  const bool passes = check->expr->val_bool() || check->expr->null_value;
  return passes && !silence.any_error();
}

/* Whether all the rows there are can have one value in a new column, or need none. */
bool has_one_default(Field &field) {
  constexpr uint of_the_statement = VCOL_SESSION_FUNC | VCOL_TIME_FUNC;
  if (field.vcol_info && !field.stored_in_db() && !field.check_constraint) return true;
  if (field.vcol_info || field.unireg_check == Field::NEXT_NUMBER ||
      (field.flags & (AUTO_INCREMENT_FLAG | VERS_SYSTEM_FIELD)))
    return false;
  if (field.type() == MYSQL_TYPE_GEOMETRY && !field.real_maybe_null()) return false;
  if (field.default_value && (field.default_value->flags & ~of_the_statement)) return false;
  {
    const Silence silence(field.table->in_use);
    if (!set_default(&field)) return false;
  }
  return passes_check(field);
}

bool is_in_key(const TABLE *table, uint field) {
  for (uint no = 0; no < table->s->keys; no++)
    for (uint i = 0; i < table->key_info[no].user_defined_key_parts; i++)
      if (table->key_info[no].key_part[i].fieldnr == field + 1) return true;
  return false;
}

/* Its key has a column that the server keeps to itself. */
bool has_long_unique(const TABLE *table) {
  for (uint no = 0; no < table->s->keys; no++)
    if (table->key_info[no].algorithm == HA_KEY_ALG_LONG_HASH) return true;
  return false;
}

/* Of the last two the server checks each row that is written. */
bool may_be_built(const KEY &key) {
  return !(key.flags & (HA_FULLTEXT | HA_SPATIAL)) && key.algorithm != HA_KEY_ALG_LONG_HASH && !key.without_overlaps;
}

/* Whether each column of a row has an image in the other's, or one default there. */
bool have_images(const TABLE *old, TABLE *altered, const std::vector<int> &origins, alter_table_operations flags) {
  if (flags & (NEW_LAYOUT | ALTER_COLUMN_NOT_NULLABLE) &&
      (old->versioned() || altered->versioned() || has_long_unique(old) || has_long_unique(altered)))
    return false;
  restore_record(altered, s->default_values);
  for (uint i = 0; i < origins.size(); i++) {
    Field *to = altered->field[i];
    if (origins[i] < 0 ? !has_one_default(*to)
                       : !same_image(old->field[origins[i]], to, flags & ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE))
      return false;
  }
  return true;
}

/* Whether old rows cannot be read by their layouts, as there may be NULLs in them, or entries of indexes change, or
   what generated columns can be. */
bool nullability_needs_new_rows(const TABLE *old, const TABLE *altered, const std::vector<int> &origins) {
  for (uint i = 0; i < origins.size(); i++) {
    if (origins[i] < 0) continue;
    const Field *from = old->field[origins[i]];
    if (from->real_maybe_null() == altered->field[i]->real_maybe_null()) continue;
    if (from->real_maybe_null() || old->vfield || is_in_key(old, uint(origins[i])) || is_in_key(altered, i))
      return true;
  }
  return false;
}

/* Of PARTITION BY KEY a row's place depends on the order of the columns in the table. */
bool same_order_of_partitioning(const TABLE *old, const std::vector<int> &origins) {
  int last = -1;
  for (int origin : origins) {
    if (origin < 0 || !(old->field[origin]->flags & FIELD_IN_PART_FUNC_FLAG)) continue;
    if (origin < last) return false;
    last = origin;
  }
  return true;
}

/* Whether some generated column, or the partition of a row, is computed from the field. */
bool is_computed_from(TABLE *table, const Field &field) {
  if (field.flags & FIELD_IN_PART_FUNC_FLAG) return true;
  for (Field **generated = table->vfield; generated && *generated; generated++)
    if (myriad::fields_of((*generated)->vcol_info->expr, table)[field.field_index]) return true;
  return false;
}

bool same_expression(Virtual_column_info &a, Virtual_column_info &b) {
  StringBuffer<MAX_FIELD_WIDTH> x, y;
  a.print(&x);
  b.print(&y);
  return !stringcmp(&x, &y);
}

/* Whether nothing that is stored, or has been checked, depends on the virtual columns whose expressions change. */
bool may_change_expressions(TABLE *old, const TABLE *altered, const Alter_inplace_info *info) {
  uint no = 0;
  for (const Create_field &column : const_cast<List<Create_field> &>(info->alter_info->create_list)) {
    if (no >= altered->s->fields) return false;
    const uint after = no++;
    const Field *field = column.field;
    Virtual_column_info *expression = altered->field[after]->vcol_info;
    if (!field || !field->vcol_info || !expression || same_expression(*field->vcol_info, *expression)) continue;
    if (is_in_key(old, field->field_index) || is_in_key(altered, after) || is_computed_from(old, *field)) return false;
    for (Virtual_column_info **check = old->check_constraints; check && *check; check++)
      if (myriad::fields_of((*check)->expr, old)[field->field_index]) return false;
  }
  return no == altered->s->fields;
}

bool is_dropped(const Field &field, const std::vector<int> &origins) {
  return std::find(origins.begin(), origins.end(), int(field.field_index)) == origins.end();
}

/* The column itself: the field of a key's part may be one of the prefix's length. */
const Field *column_of(const KEY_PART_INFO &part) { return part.field->table->field[part.fieldnr - 1]; }

/* Whether a key's part is encoded as before when its column becomes longer: the whole column stays the whole column, a
   prefix the same prefix. There are collations whose weights are stored with the length of the column. */
bool same_part(const KEY_PART_INFO &part, uint new_part_length, uint32 new_length) {
  const Field *column = column_of(part);
  if (part.length != column->key_length() || !is_longer(*column, new_length)) return part.length == new_part_length;
  return new_part_length == new_length && !myriad::make_key_part(part.field->table, part).fixed_length;
}

/* `origins`: see origins_of(). */
bool same_key_parts(const KEY &a, const KEY &b, const std::vector<int> &origins) {
  if (a.user_defined_key_parts != b.user_defined_key_parts || a.algorithm != b.algorithm ||
      (a.flags & HA_NOSAME) != (b.flags & HA_NOSAME))
    return false;
  for (uint i = 0; i < a.user_defined_key_parts; i++) {
    const KEY_PART_INFO &x = a.key_part[i], &y = b.key_part[i];
    if (int(x.fieldnr) - 1 != origins[y.fieldnr - 1] || column_of(x)->charset() != column_of(y)->charset() ||
        !same_part(x, y.length, column_of(y)->field_length) ||
        (x.key_part_flag & HA_REVERSE_SORT) != (y.key_part_flag & HA_REVERSE_SORT))
      return false;
  }
  return true;
}

bool same_clustered_key(const TABLE *a, const TABLE *b, const std::vector<int> &origins) {
  uint x = a->s->primary_key, y = b->s->primary_key;
  if (x >= MAX_KEY || y >= MAX_KEY) return x >= MAX_KEY && y >= MAX_KEY;
  return same_key_parts(a->key_info[x], b->key_info[y], origins);
}

bool is_added(const Alter_inplace_info *info, const KEY &key) {
  for (uint i = 0; i < info->index_add_count; i++) {
    const KEY &added = info->key_info_buffer[info->index_add_buffer[i]];
    if (!my_strcasecmp(system_charset_info, added.name.str, key.name.str)) return true;
  }
  return false;
}

/* The old table's key that a kept one was; MAX_KEY if there is none. */
uint old_key_of(const TABLE *old, const Alter_inplace_info *info, const KEY &key) {
  const char *name = key.name.str;
  for (const auto &pair : info->rename_keys) {
    if (my_strcasecmp(system_charset_info, pair.new_key->name.str, name)) continue;
    name = pair.old_key->name.str;
    break; /* another key may have got the old name */
  }
  for (uint no = 0; no < old->s->keys; no++)
    if (!my_strcasecmp(system_charset_info, old->key_info[no].name.str, name)) return no;
  return MAX_KEY;
}

bool is_kept(const TABLE *old, const Alter_inplace_info *info, const KEY &key, const std::vector<int> &origins) {
  const uint no = old_key_of(old, info, key);
  return no < MAX_KEY && same_key_parts(old->key_info[no], key, origins);
}

template <class T> bool option_changes(const TABLE *old, const TABLE *altered, T ha_table_option_struct::*option) {
  const ha_table_option_struct *a = old->s->option_struct, *b = altered->s->option_struct;
  return a && b && a->*option != b->*option;
}

/* The server keeps writers out while it prepares, and again from before the commit. */
bool nobody_writes(const TABLE *table) {
  return table->s->tmp_table || table->mdl_ticket->has_stronger_or_equal_type(MDL_SHARED_NO_READ_WRITE);
}

}  // namespace

/* Work of one in-place ALTER on a table or on one of its partitions, which `table` has open. */
class Inplace_alter : public inplace_alter_handler_ctx {
public:
  explicit Inplace_alter(ha_myriad *handler) : table(handler) {}

  ha_myriad *const table;
  std::unique_ptr<TablePlan> plan;      /* of the altered table */
  std::vector<myriad_index_spec> specs; /* by new core number */
  std::vector<int32_t> old_of_new;
  bool rebuilds = false;
  std::unique_ptr<OnlineBuild> build; /* null: nothing is built */
  myriad::ForeignKeyChange foreign_keys;
  std::string layouts; /* for the catalog; empty: as they are */
};

namespace {

/* All work that is committed at once: that on the partitions of one table. */
std::vector<Inplace_alter *> group_of(const Alter_inplace_info *info) {
  std::vector<Inplace_alter *> group;
  if (!info->group_commit_ctx) group.push_back(static_cast<Inplace_alter *>(info->handler_ctx));
  for (auto **one = info->group_commit_ctx; one && *one; one++) group.push_back(static_cast<Inplace_alter *>(*one));
  return group;
}

/* What the core is told about one of them. Points at it and into itself. */
class CoreAlteration {
public:
  /* `image` is null for a partition: the server keeps the table's in a file, under `definition_id`. And for a temporary
     table: it keeps that to itself. */
  CoreAlteration(const std::string &name, const Inplace_alter &alter, const LEX_CUSTRING *image,
                 const LEX_CUSTRING &definition_id)
      : m_name(name), m_alter(alter), m_added(alter.foreign_keys.added),
        m_dropped(texts_of(alter.foreign_keys.dropped)), m_old_names(texts_of(alter.foreign_keys.old_names)),
        m_new_names(texts_of(alter.foreign_keys.new_names)) {
    m_keys = {m_dropped.data(),   uint32_t(m_dropped.size()),  m_added.data(), m_added.size(), m_old_names.data(),
              m_new_names.data(), uint32_t(m_old_names.size())};
    m_definition.frm = image ? image->str : nullptr;
    m_definition.frm_len = image ? image->length : 0;
    m_definition.definition_id = image || definition_id.length != MY_UUID_SIZE ? nullptr : definition_id.str;
    if (!alter.layouts.empty()) {
      m_definition.row_layouts = reinterpret_cast<const uchar *>(alter.layouts.data());
      m_definition.row_layouts_len = alter.layouts.size();
    }
    m_definition.keys = &m_keys;
  }
  CoreAlteration(const CoreAlteration &) = delete;
  myriad_alteration get(bool changes_indexes) const {
    myriad_alteration alteration{};
    alteration.name = m_name.c_str();
    alteration.to = &m_definition;
    if (changes_indexes) {
      alteration.indexes = m_alter.specs.data();
      alteration.old_index_of_new = m_alter.old_of_new.data();
      alteration.index_count = uint32_t(m_alter.specs.size());
    }
    if (m_alter.build) m_alter.build->give_to(&alteration);
    return alteration;
  }

private:
  const std::string &m_name;
  const Inplace_alter &m_alter;
  const myriad::ForeignKeySpecs m_added;
  const std::vector<const char *> m_dropped, m_old_names, m_new_names;
  myriad_foreign_key_change m_keys{};
  myriad_new_definition m_definition{};
};

}  // namespace

bool ha_myriad::can_convert_nocopy(const Field &field, const Column_definition &new_type) const {
  if (field.compression_method() || new_type.compression_method() || new_type.type_handler() != field.type_handler() ||
      !is_readable_as(field, new_type.charset))
    return false;
  const bool is_blob = field.real_type() == MYSQL_TYPE_BLOB;
  /* Values may be longer than so few characters. */
  if (!is_blob && new_type.length / new_type.charset->mbmaxlen < field.field_length / field.charset()->mbmaxlen)
    return false;
  const bool same_length =
      is_blob ? new_type.pack_length == field.pack_length() : new_type.length == field.field_length;
  return is_longer(field, uint32(new_type.length)) || is_wider(field, new_type.charset, uint32(new_type.length)) ||
         (same_length && new_type.charset != field.charset());
}

Compare_keys ha_myriad::compare_key_parts(const Field &old_field, const Column_definition &new_type,
                                          const KEY_PART_INFO &old_part, const KEY_PART_INFO &new_part) const {
  if (!can_convert_nocopy(old_field, new_type))
    return handler::compare_key_parts(old_field, new_type, old_part, new_part);
  if (new_type.charset != old_field.charset() || !same_part(old_part, new_part.length, uint32(new_type.length)))
    return Compare_keys::NotEqual;
  return old_part.length == new_part.length ? Compare_keys::Equal : Compare_keys::EqualButKeyPartLength;
}

/* Whether old rows can be read, or turned into new ones. Of a foreign key's column the server says what may change when
   it copies. */
bool ha_myriad::can_convert_rows(TABLE *altered, const std::vector<int> &origins, alter_table_operations flags) {
  if (origins.empty() || !same_order_of_partitioning(table, origins)) return false;
  for (Field **field = table->field; *field; field++)
    if (is_dropped(**field, origins) && (*field == table->found_next_number_field || is_in_foreign_key(**field)))
      return false;
  for (uint i = 0; i < origins.size(); i++) {
    if (origins[i] < 0) continue;
    const Field &from = *table->field[origins[i]], &to = *altered->field[i];
    const bool converts = from.charset() != to.charset() || is_longer(from, to.field_length);
    if (converts && (is_computed_from(table, from) || is_in_foreign_key(from))) return false;
    /* The copy puts the time in place of a TIMESTAMP's NULLs. */
    const bool loses_nulls = from.real_maybe_null() && !to.real_maybe_null();
    if (loses_nulls && (to.type() == MYSQL_TYPE_TIMESTAMP || may_become_null(from))) return false;
  }
  return have_images(table, altered, origins, flags);
}

/* Whether the rows get new places. Of partitions only some may: a younger one has fewer layouts. */
bool ha_myriad::rebuilds(const TABLE *altered, const Alter_inplace_info *info) const {
  constexpr uint rebuilding = HA_CREATE_USED_ENGINE | HA_CREATE_USED_ROW_FORMAT | HA_CREATE_USED_KEY_BLOCK_SIZE;
  const std::vector<int> origins = origins_of(altered, info);
  return info->handler_flags & REBUILD || info->create_info->used_fields & rebuilding ||
         option_changes(table, altered, &ha_table_option_struct::tablespace_per) ||
         !same_clustered_key(table, altered, origins) || nullability_needs_new_rows(table, altered, origins) ||
         (info->handler_flags & NEW_LAYOUT && m_plan->layouts().layouts.size() >= myriad::RowLayouts::COUNT_MAX);
}

/* Whether what rebuilds() is a build beside writers; else it is a copy. */
bool ha_myriad::may_rebuild(const TABLE *altered) {
  if (table->s->tmp_table || table->versioned() || altered->versioned()) return false;
  /* The copy says so. */
  if (myriad_option_of_partition(altered->part_info)) return false;
  /* The new table is beside the altered one: not in the tablespace of a database in which the old one is not yet. */
  const std::string beside = myriad_name(altered->s->normalized_path.str);
  if (beside.compare(0, beside.find('/'), m_name, 0, m_name.find('/'))) return false;
  /* Rows would get hidden row ids, of which those that have changed meanwhile are not found again. */
  if (altered->s->primary_key >= MAX_KEY && table->s->primary_key < MAX_KEY) return false;
  for (uint no = 0; no < altered->s->keys; no++)
    if (!may_be_built(altered->key_info[no])) return false;
  return !::has_long_unique(table);
}

/* Why a table that cannot be altered in place has to be copied, for the error of who asked for more; nullptr where the
   statement itself tells. */
const char *ha_myriad::reason_to_copy(const TABLE *altered, const Alter_inplace_info *info) const {
  const alter_table_operations flags = info->handler_flags;
  if (info->ignore) return my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_IGNORE);
  if (flags & ALTER_ADD_FOREIGN_KEY && myriad::checks_foreign_keys(ha_thd()))
    return my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_FK_CHECK);
  if (flags & ALTER_COLUMN_NOT_NULLABLE && !ha_thd()->is_strict_mode())
    return "NULLs become default values where sql_mode is not strict";
  if (flags & ALTER_DROP_PK_INDEX && altered->s->primary_key >= MAX_KEY)
    return my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_NOPK);
  if (flags & (ALTER_ADD_SYSTEM_VERSIONING | ALTER_DROP_SYSTEM_VERSIONING))
    return "system versioning is added or dropped";
  if (!table->found_next_number_field != !altered->found_next_number_field)
    return "an AUTO_INCREMENT column is added or dropped";
  return nullptr;
}

enum_alter_inplace_result ha_myriad::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) {
  if (myriad_lacks_primary_key(altered)) return HA_ALTER_ERROR;
  const enum_alter_inplace_result answer = how_to_alter(altered, info);
  if (answer == HA_ALTER_INPLACE_NOT_SUPPORTED && !info->unsupported_reason)
    info->unsupported_reason = reason_to_copy(altered, info);
  return answer;
}

enum_alter_inplace_result ha_myriad::how_to_alter(TABLE *altered, Alter_inplace_info *info) {
  const alter_table_operations flags = info->handler_flags;
  if (flags & (ALTER_STORED_COLUMN_TYPE | ALTER_VIRTUAL_COLUMN_TYPE))
    info->unsupported_reason = my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
  alter_table_operations possible =
      METADATA_ONLY | NEW_LAYOUT | ADD_INDEX | DROP_INDEX | ALTER_DROP_FOREIGN_KEY | REBUILD;
  /* Otherwise the rows have to be looked at. */
  if (!myriad::checks_foreign_keys(ha_thd())) possible |= ALTER_ADD_FOREIGN_KEY;
  /* Otherwise the copy puts other values in place of NULLs. */
  if (ha_thd()->is_strict_mode()) possible |= ALTER_COLUMN_NOT_NULLABLE;
  if (flags & ALTER_VIRTUAL_GCOL_EXPR && may_change_expressions(table, altered, info))
    possible |= ALTER_VIRTUAL_GCOL_EXPR;
  /* The copy checks that a table which becomes a sequence holds one row, and what is in it. */
  if (info->create_info->used_fields & HA_CREATE_USED_SEQUENCE) {
    info->unsupported_reason = "SEQUENCE";
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  if (m_own_session || (flags & ~possible)) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (info->ignore || info->error_if_not_empty) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  /* The copy says which. */
  if (myriad_refused_option(ha_thd(), *info->create_info)) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (option_changes(table, altered, &ha_table_option_struct::in_memory)) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  const std::vector<int> origins = origins_of(altered, info);
  if (flags & NEW_RECORD ? !can_convert_rows(altered, origins, flags) : !same_layout(table, altered))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  /* The counter is kept only while the column is the first of its key; the copy sets it. */
  if (table->found_next_number_field && !table->s->next_number_keypart != !altered->s->next_number_keypart) {
    info->unsupported_reason = "the AUTO_INCREMENT column becomes the first of its key, or is it no longer";
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  if (rebuilds(altered, info))
    return may_rebuild(altered) ? HA_ALTER_INPLACE_COPY_NO_LOCK : HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (!(flags & (ADD_INDEX | DROP_INDEX)) && !(flags & ALTER_INDEX_ORDER && table->s->partition_info_str)) {
    for (uint no = 0; no < altered->s->keys; no++)
      if (!is_kept(table, info, altered->key_info[no], origins)) return HA_ALTER_INPLACE_NOT_SUPPORTED;
    return altered->s->keys == table->s->keys ? HA_ALTER_INPLACE_INSTANT : HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  for (uint no = 0; no < altered->s->keys; no++) {
    const KEY &key = altered->key_info[no];
    if (is_added(info, key) ? !may_be_built(key) : !is_kept(table, info, key, origins))
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  return HA_ALTER_INPLACE_NOCOPY_NO_LOCK;
}

/* One more than the largest value in the AUTO_INCREMENT column, if there is one more. A handler error, or 0. */
int ha_myriad::find_auto_increment_floor() {
  m_auto_increment_floor = 1;
  Field *field = table->found_next_number_field;
  if (!field || table->s->next_number_keypart) return 0;
  const uint no = table->s->next_number_index;
  const bool descending = table->key_info[no].key_part[0].key_part_flag & HA_REVERSE_SORT;
  MY_BITMAP *saved = tmp_use_all_columns(table, &table->read_set);
  int error = index_init(no, true);
  if (!error) {
    error = descending ? index_first(table->record[0]) : index_last(table->record[0]);
    if (!error) {
      const auto largest = ulonglong(field->val_int());
      const bool positive = field->flags & UNSIGNED_FLAG || longlong(largest) > 0;
      if (positive) m_auto_increment_floor = largest == ULONGLONG_MAX ? largest : largest + 1;
    }
    index_end();
  }
  tmp_restore_column_map(&table->read_set, saved);
  return error == HA_ERR_END_OF_FILE ? 0 : error;
}

/* Gives the new plan the rows' layouts after the change; true and an error if it cannot. */
bool ha_myriad::lay_out(TABLE *altered, Alter_inplace_info *info, Inplace_alter *alter) {
  myriad::RowLayouts layouts = m_plan->layouts();
  if (info->handler_flags & NEW_LAYOUT) {
    const std::vector<int> origins = origins_of(altered, info);
    if (set_defaults_of_new(altered, origins)) return true;
    layouts = m_plan->layouts_for(*alter->plan, origins, altered->record[0]);
    if (!layouts.layouts.empty()) alter->layouts = layouts.encode();
  }
  if (alter->plan->set_layouts(std::move(layouts))) return false;
  print_error(HA_ERR_CRASHED, MYF(0));
  return true;
}

bool ha_myriad::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) {
  auto *alter = new Inplace_alter(this);
  info->handler_ctx = alter;
  myriad_warn_of_options(ha_thd(), *info->create_info);
  alter->plan.reset(new TablePlan(altered));
  if (change_foreign_keys(altered, info, *alter->plan, &alter->foreign_keys)) return true;
  alter->rebuilds = rebuilds(altered, info);
  if (alter->rebuilds) {
    /* If some partitions can be altered in place and others cannot, the server goes on with all. */
    if (!may_rebuild(altered)) {
      my_error(ER_ALTER_OPERATION_NOT_SUPPORTED, MYF(0), "ALGORITHM=INPLACE", "ALGORITHM=COPY");
      return true;
    }
    OnlineBuild *rebuild = make_rebuild(altered, info);
    return !rebuild || begin_build(alter, rebuild);
  }
  if (lay_out(altered, info, alter)) return true;
  std::vector<uint32_t> added;
  alter->specs = alter->plan->specs();
  for (const IndexPlan &index : alter->plan->indexes()) {
    if (index.core_no == 0) {
      alter->old_of_new.push_back(0);
      continue;
    }
    const KEY &key = altered->key_info[index.server_no];
    if (is_added(info, key)) {
      alter->old_of_new.push_back(-1);
      added.push_back(index.core_no);
    } else {
      alter->old_of_new.push_back(int32_t(m_plan->core_number(old_key_of(table, info, key))));
    }
  }
  if (added.empty()) return false;
  return begin_build(alter, new IndexBuilds(ha_thd(), m_table, altered, *alter->plan, added));
}

/* Null and an error if that fails. */
OnlineBuild *ha_myriad::make_rebuild(TABLE *altered, const Alter_inplace_info *info) {
  /* Under the altered table's temporary name, with the partition's part. */
  std::string name = myriad_name(altered->s->normalized_path.str);
  const size_t part = myriad_partition_at(m_name);
  if (part != std::string::npos) name += m_name.substr(part);
  std::unique_ptr<myriad::TableRebuild> rebuild(
      new myriad::TableRebuild(ha_thd(), m_table, altered, *m_plan, std::move(name), whole_row_max()));
  if (info->handler_flags & NEW_RECORD) {
    const std::vector<int> origins = origins_of(altered, info);
    if (set_defaults_of_new(altered, origins)) return nullptr;
    rebuild->convert_rows(table, origins);
  }
  return rebuild.release();
}

/* True and an error if that fails. */
bool ha_myriad::begin_build(Inplace_alter *alter, OnlineBuild *build) {
  alter->build.reset(build);
  int error = nobody_writes(table) ? wait_for_prepared() : HA_ERR_INTERNAL_ERROR;
  if (!error) error = build->begin(core());
  if (error) print_error(error, MYF(0));
  return error;
}

/* True and an error, unless the build went well. */
bool ha_myriad::report_build(TABLE *altered, const Inplace_alter &alter, int error) {
  if (error != HA_ERR_FOUND_DUPP_KEY) {
    if (error && !ha_thd()->is_error()) print_error(error, MYF(0));
    return error;
  }
  KEY *key = &altered->key_info[alter.build->duplicate_key()];
  if (alter.build->read_duplicate())
    print_keydup_error(altered, key, MYF(0));
  else
    my_error(ER_DUP_UNKNOWN_IN_INDEX, MYF(0), key->name.str);
  return true;
}

bool ha_myriad::inplace_alter_table(TABLE *altered, Alter_inplace_info *info) {
  auto *alter = static_cast<Inplace_alter *>(info->handler_ctx);
  if (!alter) return false;
  if (alter->build) {
    thd_progress_init(ha_thd(), 1);
    int error = alter->build->build(stats.records);
    if (!error) error = alter->build->catch_up();
    thd_progress_end(ha_thd());
    if (report_build(altered, *alter, error)) return true;
  }
  /* The partitions before have changed while this one, the last, was built. */
  const std::vector<Inplace_alter *> group = group_of(info);
  if (alter != group.back()) return false;
  for (Inplace_alter *one : group)
    if (one != alter && one->build && one->table->report_build(altered, *one, one->build->catch_up())) return true;
  return false;
}

/* Nobody writes any more: puts what is left into what was built. */
bool ha_myriad::finish_build(TABLE *altered, Inplace_alter *alter) {
  int error = nobody_writes(table) ? wait_for_prepared() : HA_ERR_INTERNAL_ERROR;
  if (!error) error = alter->build->finish();
  return report_build(altered, *alter, error);
}

bool ha_myriad::prepare_commit(TABLE *altered, const Alter_inplace_info *info, Inplace_alter *alter) {
  close_cursor();
  if (alter->build && finish_build(altered, alter)) return true;
  if (!(info->create_info->used_fields & HA_CREATE_USED_AUTO)) return false;
  /* Not before: until now others may have inserted. Nor later: a statement that has changed the table must not fail. */
  const int error = set_auto_increment_at_least(altered, info->create_info->auto_increment_value, *alter);
  if (error) print_error(error, MYF(0));
  return error;
}

bool ha_myriad::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) {
  const std::vector<Inplace_alter *> group = group_of(info);
  if (!commit) {
    /* What was built goes while the server's log of DDL knows it. */
    for (Inplace_alter *one : group)
      if (one) one->build.reset();
    return false;
  }
  if (!info->handler_ctx) return false;
  /* Tells the server that this is for all partitions. */
  info->group_commit_ctx = nullptr;
  for (Inplace_alter *one : group)
    if (one->table->prepare_commit(altered, info, one)) return true;
  const bool alters_indexes = info->handler_flags & (ADD_INDEX | DROP_INDEX | ALTER_INDEX_ORDER);
  const LEX_CUSTRING *image = table->s->partition_info_str || table->s->tmp_table ? nullptr : table->s->frm_image;
  std::list<CoreAlteration> owned;
  std::vector<myriad_alteration> alterations;
  for (Inplace_alter *one : group) {
    const bool changes_indexes = alters_indexes && !one->rebuilds;
    if (!image && !one->rebuilds && !changes_indexes && one->layouts.empty()) continue;
    owned.emplace_back(one->table->m_name, *one, image, altered->s->tabledef_version);
    alterations.push_back(owned.back().get(changes_indexes));
  }
  myriad_status status = MYRIAD_OK;
  if (!alterations.empty()) status = myriad_alter_tables(myriad_core, alterations.data(), uint32_t(alterations.size()));
  if (status != MYRIAD_OK) {
    print_error(myriad_error_noted(status, ha_thd()), MYF(0));
    return true;
  }
  for (Inplace_alter *one : group)
    if (one->build) one->build->adopted();
  return false;
}

/* ALTER TABLE ... AUTO_INCREMENT = n: never below what the rows need. A handler error, or 0. */
int ha_myriad::set_auto_increment_at_least(const TABLE *altered, ulonglong wanted, const Inplace_alter &alter) {
  if (!table->found_next_number_field || !altered->found_next_number_field || altered->s->next_number_keypart) return 0;
  if (int error = find_auto_increment_floor()) return error;
  myriad_table *counting = alter.build ? alter.build->counting_table() : m_table;
  return myriad_error_noted(myriad_auto_increment_set(counting, std::max(wanted, m_auto_increment_floor)), ha_thd());
}
