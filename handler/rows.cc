/* Rows and index entries to bytes and back, see rows.h. */
#include "rows.h"
#include "options.h"
#include <algorithm>

namespace myriad {

namespace {

/* The core's longest key at 64 KiB pages, see its limits; positions never need more. */
constexpr uint32_t KEY_BYTES_MAX = 7 << 10;

Step make_step(Field *field) {
  KeyPart column = make_column_part(field);
  Step step;
  step.offset = column.offset;
  step.length = column.length;
  step.length_bytes = column.length_bytes;
  step.first_field = column.field_index;
  if (column.nullable) {
    step.null_bit = column.null_bit;
    step.null_offset = column.null_offset;
  }
  switch (column.storage) {
  case Storage::Variable: step.kind = StepKind::Variable; break;
  case Storage::Blob: step.kind = StepKind::Blob; break;
  case Storage::Fixed:
    step.kind = StepKind::Copy;
    if (column.kind == PartKind::Text && column.length > 2) {
      step.cs = field->charset();
      step.kind = step.cs->mbminlen == 1 ? StepKind::Char : StepKind::WideChar;
      step.length_bytes = column.length > 255 ? 2 : 1;
    }
  }
  return step;
}

size_t get_length(const uchar *at, unsigned bytes) {
  switch (bytes) {
  case 1: return *at;
  case 2: return uint2korr(at);
  case 3: return uint3korr(at);
  default: return uint4korr(at);
  }
}

void put_length(uchar *at, unsigned bytes, size_t length) {
  for (unsigned i = 0; i < bytes; i++) at[i] = uchar(length >> (8 * i));
}

/* Length of text without trailing 0x20, eight bytes at a time. */
size_t trimmed(const uchar *text, size_t length) {
  constexpr uint64_t spaces = 0x2020202020202020ULL;
  while (length >= 8) {
    uint64_t word;
    memcpy(&word, text + length - 8, 8);
    if (word != spaces) break;
    length -= 8;
  }
  while (length && text[length - 1] == ' ') length--;
  return length;
}

bool is_null(const Step &step, const uchar *record) {
  return step.null_bit && (record[step.null_offset] & step.null_bit);
}

/* Whether the column's values may be in a row's tail. */
bool can_be_outside(const Step &step) { return step.length_bytes >= 2; }

/* The bytes of a value of a column with length bytes, as a row has them. */
const uchar *value_of(const Step &step, const uchar *record, size_t *length) {
  const uchar *from = record + step.offset;
  switch (step.kind) {
  case StepKind::Copy:
  case StepKind::Char: *length = trimmed(from, step.length); return from;
  case StepKind::WideChar: *length = step.cs->lengthsp(reinterpret_cast<const char *>(from), step.length); return from;
  case StepKind::Variable: *length = get_length(from, step.length_bytes); return from + step.length_bytes;
  case StepKind::Blob:
    *length = get_length(from, step.length_bytes);
    memcpy(&from, from + step.length_bytes, sizeof from);
    return from;
  }
  return from;
}

/* Few bytes without a call. */
inline void copy_bytes(uchar *to, const uchar *from, size_t length) {
  switch (length) {
  case 1: *to = *from; break;
  case 2: memcpy(to, from, 2); break;
  case 4: memcpy(to, from, 4); break;
  case 8: memcpy(to, from, 8); break;
  default: memcpy(to, from, length);
  }
}

/* Columns that are NULL hold no garbage: the server compares and hashes whole images. */
void clear_null(const Step &step, const uchar *defaults, uchar *record) {
  if (step.kind == StepKind::Copy || step.kind == StepKind::Char || step.kind == StepKind::WideChar)
    memcpy(record + step.offset, defaults + step.offset, step.length);
  else
    memset(record + step.offset, 0, step.length_bytes + (step.kind == StepKind::Blob ? sizeof(uchar *) : 0));
}

/* A value of a column with length bytes into the record; BLOB bytes stay where they are without `blobs`. False: it is
   too long for the column. */
[[gnu::always_inline]] inline bool place_value(const Step &step, const uchar *value, size_t length, uchar *record,
                                               Buffer *blobs) {
  uchar *to = record + step.offset;
  if (step.kind != StepKind::Blob && length > step.length) return false;
  switch (step.kind) {
  case StepKind::Copy: return false;
  case StepKind::Char:
    memcpy(to, value, length);
    memset(to + length, ' ', step.length - length);
    break;
  case StepKind::WideChar:
    memcpy(to, value, length);
    step.cs->fill(reinterpret_cast<char *>(to) + length, step.length - length, ' ');
    break;
  case StepKind::Variable:
    put_length(to, step.length_bytes, length);
    memcpy(to + step.length_bytes, value, length);
    break;
  case StepKind::Blob: {
    put_length(to, step.length_bytes, length);
    if (blobs) {
      /* The caller has made room, so the bytes do not move. */
      uchar *copy = blobs->data() + blobs->size();
      memcpy(copy, value, length);
      blobs->set_size(blobs->size() + length);
      value = copy;
    }
    memcpy(to + step.length_bytes, &value, sizeof value);
  }
  }
  return true;
}

/* Reads one column's image into the record; null where the value ends too early. */
[[gnu::always_inline]] inline const uchar *unpack_step(const Step &step, const uchar *at, const uchar *end,
                                                       uchar *record, Buffer *blobs) {
  size_t length = step.length;
  if (step.kind == StepKind::Copy) {
    if (size_t(end - at) < length) return nullptr;
    memcpy(record + step.offset, at, length);
    return at + length;
  }
  if (size_t(end - at) < step.length_bytes) return nullptr;
  length = get_length(at, step.length_bytes);
  at += step.length_bytes;
  if (size_t(end - at) < length || !place_value(step, at, length, record, blobs)) return nullptr;
  return at + length;
}

/* Whether the next value of a row, with so many length bytes, is in the tail; its length. */
bool is_outside(const RowBytes &row, unsigned length_bytes, size_t *length) {
  if (!row.split || length_bytes < 2 || size_t(row.end - row.at) < length_bytes) return false;
  *length = get_length(row.at, length_bytes);
  return *length > OUTSIDE_MIN;
}

/* The end of one column's image without reading it. */
inline const uchar *skip_image(unsigned length_bytes, size_t width, const uchar *at, const uchar *end) {
  size_t length = width;
  if (length_bytes) {
    if (size_t(end - at) < length_bytes) return nullptr;
    length = get_length(at, length_bytes);
    at += length_bytes;
  }
  return size_t(end - at) < length ? nullptr : at + length;
}

/* A row without a tail: the values are where their columns are. */
struct WholeRow {
  const uchar *at, *end;

  bool pass(size_t length) {
    if (size_t(end - at) < length) return false;
    at += length;
    return true;
  }
  bool read(const Step &step, uchar *record, Buffer *blobs) {
    at = unpack_step(step, at, end, record, blobs);
    return at != nullptr;
  }
  bool skip(unsigned length_bytes, size_t width) {
    at = skip_image(length_bytes, width, at, end);
    return at != nullptr;
  }
  bool skip_short(const Step *step, size_t columns, const uchar *record) {
    const uchar *begin = at;
    const size_t left = size_t(end - at);
    size_t passed = 0;
    for (const Step *behind = step + columns; step != behind; step++) {
      if (is_null(*step, record)) continue;
      if (passed >= left) return false;
      passed += 1 + size_t(begin[passed]);
    }
    at = begin + passed;
    return passed <= left;
  }
};

/* Any row. */
struct AnyRow : RowBytes {
  explicit AnyRow(const RowBytes &bytes) : RowBytes(bytes) {}

  bool pass(size_t length) {
    if (size_t(end - at) < length) return false;
    at += length;
    return true;
  }
  bool read(const Step &step, uchar *record, Buffer *blobs) {
    size_t length;
    if (!is_outside(*this, step.length_bytes, &length)) {
      at = unpack_step(step, at, end, record, blobs);
      return at != nullptr;
    }
    at += step.length_bytes;
    if (size_t(tail_end - tail) < length || !place_value(step, tail, length, record, blobs)) return false;
    tail += length;
    return true;
  }
  /* The tail may be missing. */
  bool skip(unsigned length_bytes, size_t width) {
    size_t length;
    if (!is_outside(*this, length_bytes, &length)) {
      at = skip_image(length_bytes, width, at, end);
      return at != nullptr;
    }
    at += length_bytes;
    tail += std::min(length, size_t(tail_end - tail));
    return true;
  }
  bool skip_short(const Step *step, size_t columns, const uchar *record) {
    WholeRow head{at, end};
    if (!head.skip_short(step, columns, record)) return false;
    at = head.at;
    return true;
  }
};

}  // namespace

void pack_step(const Step &step, const uchar *record, Buffer *out) {
  if (step.kind == StepKind::Copy) {
    out->append(record + step.offset, step.length);
    return;
  }
  size_t length;
  const uchar *value = value_of(step, record, &length);
  uchar *to = out->room(step.length_bytes + length);
  put_length(to, step.length_bytes, length);
  if (length) memcpy(to + step.length_bytes, value, length);
  out->set_size(out->size() + step.length_bytes + length);
}

bool has_hash_lookup(const TABLE_SHARE *share, const KEY &key) {
  return key.algorithm == HA_KEY_ALG_HASH && share->option_struct && share->option_struct->in_memory;
}

TablePlan::TablePlan(TABLE *table) : m_primary(table->s->primary_key) {
  plan_indexes(table);
  plan_rows(table);
  plan_entry_values(table);
}

void TablePlan::plan_indexes(TABLE *table) {
  TABLE_SHARE *share = table->s;
  m_indexes.resize(share->keys + (hidden_row_id() ? 1 : 0));
  if (hidden_row_id()) {
    m_indexes[0].server_no = UINT32_MAX;
    m_indexes[0].unique = true;
    m_indexes[0].fixed_width = 8;
  }
  for (uint no = 0; no < share->keys; no++) {
    const KEY &key = table->key_info[no];
    IndexPlan &index = m_indexes[core_number(no)];
    index.core_no = core_number(no);
    index.server_no = no;
    index.unique = (key.flags & HA_NOSAME) && key.algorithm != HA_KEY_ALG_LONG_HASH;
    index.hash = has_hash_lookup(share, key);
    uint32_t width = 0;
    bool fixed = true;
    for (uint i = 0; i < key.user_defined_key_parts; i++) {
      KeyPart part = make_key_part(table, key.key_part[i]);
      index.has_nullable |= part.nullable;
      index.has_blob_or_prefix |= part.prefix;
      index.has_virtual_prefix |= part.prefix && !table->field[part.field_index]->stored_in_db();
      if (part.width())
        width += part.width();
      else
        fixed = false;
      index.parts.push_back(std::move(part));
    }
    index.fixed_width = fixed ? width : 0;
  }
  if (clustered_width()) {
    m_ref_length = clustered_width();
  } else {
    uint32_t length = 2;
    for (const KeyPart &part : clustered().parts) {
      if (part.fixed_length) {
        length += part.width();
        continue;
      }
      size_t weights = part.length;
      if (part.kind == PartKind::Text && !part.text.raw)
        weights = part.text.cs->strnxfrmlen(part.length) * part.text.levels;
      length += uint32_t(2 * weights) + 8;
    }
    m_ref_length = std::min(length, KEY_BYTES_MAX + 2);
  }
}

void TablePlan::plan_rows(TABLE *table) {
  TABLE_SHARE *share = table->s;
  m_null_bytes_record = share->null_bytes;
  m_null_bytes = share->null_fields ? share->null_bytes : 0;
  std::vector<bool> in_key(share->fields, false);
  for (const KeyPart &part : clustered().parts)
    if (part.reversible) in_key[part.field_index] = true;
  m_fixed_length = 1 + m_null_bytes;
  for (uint i = 0; i < share->fields; i++) {
    Field *field = table->field[i];
    if (!field->stored_in_db() && field->null_ptr) {
      m_virtual_bits.resize(m_null_bytes_record);
      m_virtual_bits[size_t(field->null_ptr - table->record[0])] |= field->null_bit;
    }
    if (!field->stored_in_db() || in_key[i]) continue;
    Step step = make_step(field);
    m_fixed_length += step.length_bytes + (step.kind == StepKind::Blob ? 0 : step.length);
    m_columns.push_back(step);
    if (can_be_outside(step)) m_long_steps.push_back(step);
    if (!m_steps.empty() && step.kind == StepKind::Copy && !step.null_bit) {
      Step &last = m_steps.back();
      if (last.kind == StepKind::Copy && !last.null_bit && last.offset + last.length == step.offset &&
          last.first_field + last.field_count == step.first_field) {
        last.length += step.length;
        last.field_count++;
        continue;
      }
    }
    m_steps.push_back(step);
  }
}

void TablePlan::plan_entry_values(TABLE *table) {
  for (size_t no = 1; no < m_indexes.size(); no++) {
    IndexPlan &index = m_indexes[no];
    std::vector<bool> done(table->s->fields, false);
    auto add = [&](const std::vector<KeyPart> &parts, bool in_clustered) {
      for (size_t i = 0; i < parts.size(); i++) {
        const KeyPart &part = parts[i];
        if (part.reversible || part.prefix || done[part.field_index]) continue;
        done[part.field_index] = true;
        Original original;
        original.step = make_step(table->field[part.field_index]);
        original.spelling = part.text.letters && part.storage != Storage::Blob;
        original.in_clustered = in_clustered;
        original.part = uint32_t(i);
        index.originals.push_back(original);
      }
    };
    add(index.parts, false);
    add(clustered().parts, true);
  }
}

size_t TablePlan::pack_row(const uchar *record, size_t whole_max, Buffer *out) const {
  size_t long_bytes = 0;
  for (const Step &step : m_long_steps) {
    if (is_null(step, record)) continue;
    size_t length;
    value_of(step, record, &length);
    long_bytes += length;
  }
  if (long_bytes > whole_max && pack_split_row(record, out)) return uint4korr(out->data() + 1);
  out->clear();
  out->room(m_fixed_length);
  uchar *to = out->data();
  *to = m_layout;
  memcpy(to + 1, record, m_null_bytes);
  out->set_size(1 + m_null_bytes);
  for (const Step &step : m_steps)
    if (!is_null(step, record)) pack_step(step, record, out);
  return out->size() > whole_max && pack_split_row(record, out) ? uint4korr(out->data() + 1) : 0;
}

/* False: no value is long enough for a tail, and `out` is as it was. */
bool TablePlan::pack_split_row(const uchar *record, Buffer *out) const {
  auto outside = [&](const Step &step, const uchar **value, size_t *length) {
    if (!can_be_outside(step) || is_null(step, record)) return false;
    *value = value_of(step, record, length);
    return *length > OUTSIDE_MIN;
  };
  const uchar *value;
  size_t length, tail = 0;
  for (const Step &step : m_long_steps)
    if (outside(step, &value, &length)) tail += length;
  if (!tail) return false;
  out->clear();
  out->room(m_fixed_length + 4 + tail);
  uchar *to = out->data();
  *to = m_layout | SPLIT;
  memcpy(to + 5, record, m_null_bytes);
  out->set_size(5 + m_null_bytes);
  for (const Step &step : m_steps) {
    if (is_null(step, record)) continue;
    if (!outside(step, &value, &length)) {
      pack_step(step, record, out);
      continue;
    }
    put_length(out->room(step.length_bytes), step.length_bytes, length);
    out->set_size(out->size() + step.length_bytes);
  }
  int4store(out->data() + 1, uint32_t(out->size()));
  for (const Step &step : m_long_steps)
    if (outside(step, &value, &length)) out->append(value, length);
  return true;
}

bool TablePlan::lacks_tail(const Template &what, const myriad_row &row, size_t *wanted) const {
  if (row.value_len < 5 || !has_tail(row)) return false;
  /* What is no row is told where it is unpacked. */
  const size_t head = std::min<size_t>(uint4korr(row.value + 1), row.value_len);
  if (head < 5) return false;
  const uchar layout = *row.value & uchar(~SPLIT);
  const uchar *nulls = row.value + 5, *end = row.value + head;
  AnyRow lengths({nulls, end, end, end, true});
  size_t passed = 0;
  *wanted = 0;
  auto pass = [&](unsigned length_bytes, size_t width, bool need) {
    size_t length;
    if (!is_outside(lengths, length_bytes, &length)) return lengths.skip(length_bytes, width);
    lengths.at += length_bytes;
    passed += length;
    if (need) *wanted = passed;
    return true;
  };
  if (layout == m_layout) {
    if (!lengths.pass(m_null_bytes)) return false;
    for (const Action &action : what.actions) {
      if (action.kind == Action::SkipShort) {
        if (!lengths.skip_short(action.step, action.length, nulls)) return false;
        continue;
      }
      const bool plain = action.kind == Action::Pass || action.kind == Action::Copy;
      if (!plain && is_null(*action.step, nulls)) continue;
      if (!(plain ? lengths.pass(action.length)
                  : pass(action.step->length_bytes, action.step->length, action.kind == Action::Need)))
        return false;
    }
  } else if (layout && layout < m_layout) {
    const OldLayout &old = m_old_layouts[layout - 1];
    if (!lengths.pass(old.null_bytes)) return false;
    for (const OldColumn &column : old.columns) {
      if (column.null_bit && (nulls[column.null_offset] & column.null_bit)) continue;
      if (!pass(column.length_bytes, column.width, true)) return false;
    }
  }
  return row.value_len - head < *wanted;
}

void TablePlan::pack_columns(const IndexPlan &index, const uchar *record, Buffer *out) const {
  for (const KeyPart &part : index.parts) encode_from_record(part, record, out);
}

std::vector<myriad_index_spec> TablePlan::specs() const {
  std::vector<myriad_index_spec> specs;
  for (const IndexPlan &index : m_indexes) specs.push_back({index.unique, index.hash});
  return specs;
}

void TablePlan::pack_clustered_key(const uchar *record, Buffer *out) const { pack_columns(clustered(), record, out); }

size_t TablePlan::pack_entry_key(const IndexPlan &index, const uchar *record, const uchar *pk, size_t pk_length,
                                 Buffer *out) const {
  size_t begin = out->size();
  pack_columns(index, record, out);
  size_t columns = out->size() - begin;
  out->append(pk, pk_length);
  return columns;
}

void TablePlan::pack_entry_value(const IndexPlan &index, const uchar *record, size_t columns_length,
                                 Buffer *out) const {
  if (!index.fixed_width) {
    uchar *to = out->room(2);
    int2store(to, uint16(columns_length));
    out->set_size(out->size() + 2);
  }
  for (const Original &original : index.originals) {
    if (is_null(original.step, record)) continue;
    if (original.spelling) {
      const std::vector<KeyPart> &parts = original.in_clustered ? clustered().parts : index.parts;
      if (pack_spelling(parts[original.part], record, out)) continue;
      *out->room(1) = SPELLED_OUT;
      out->set_size(out->size() + 1);
    }
    pack_step(original.step, record, out);
  }
}

bool TablePlan::any_null(const IndexPlan &index, const uchar *record) const {
  if (!index.has_nullable) return false;
  for (const KeyPart &part : index.parts)
    if (myriad::is_null(part, record)) return true;
  return false;
}

bool TablePlan::same_row(const uchar *a, const uchar *b) const {
  for (const Step &step : m_steps) {
    bool null = is_null(step, a);
    if (null != is_null(step, b)) return false;
    if (null) continue;
    const uchar *x = a + step.offset, *y = b + step.offset;
    size_t length = step.length;
    if (step.kind == StepKind::Variable || step.kind == StepKind::Blob) {
      length = get_length(x, step.length_bytes);
      if (length != get_length(y, step.length_bytes)) return false;
      x += step.length_bytes;
      y += step.length_bytes;
    }
    if (step.kind == StepKind::Blob) {
      memcpy(&x, x, sizeof x);
      memcpy(&y, y, sizeof y);
    }
    if (x != y && length && memcmp(x, y, length)) return false;
  }
  return true;
}

size_t TablePlan::bytes_up_to(const std::vector<Action> &actions) const {
  /* Rows of older layouts have them elsewhere. */
  if (!m_old_layouts.empty()) return SIZE_MAX;
  size_t bytes = 1 + 4 + m_null_bytes;
  for (const Action &action : actions) {
    if (!action.step) {
      bytes += action.length;
      continue;
    }
    const size_t columns = action.kind == Action::SkipShort ? action.length : 1;
    for (const Step *step = action.step; step != action.step + columns; step++) {
      if (step->kind == StepKind::Blob) return SIZE_MAX;
      bytes += step->length_bytes + step->length;
    }
  }
  return bytes;
}

void TablePlan::make_template(const TABLE *table, bool all, Template *out, const IndexPlan *also) const {
  out->valid = true;
  out->actions.clear();
  out->key_actions.clear();
  out->blobs = out->tails = out->more_tails = out->long_between = false;
  out->defaults = table->s->default_values;
  out->unread.clear();
  auto needed = [&](uint field) {
    if (all || bitmap_is_set(table->read_set, field)) return true;
    auto of_field = [=](const KeyPart &part) { return part.field_index == field; };
    return also && std::any_of(also->parts.begin(), also->parts.end(), of_field);
  };
  size_t end = 0; /* of the actions up to the last needed column */
  for (const Step &step : m_steps) {
    bool need = false;
    for (uint f = step.first_field; !need && f < uint(step.first_field) + step.field_count; f++) need = needed(f);
    bool plain = step.kind == StepKind::Copy && !step.null_bit;
    if (plain && !need && !out->actions.empty() && out->actions.back().kind == Action::Pass)
      out->actions.back().length += step.length;
    else if (plain)
      out->actions.push_back({need ? Action::Copy : Action::Pass, step.offset, step.length, nullptr});
    else if (!need && step.length_bytes == 1 && !out->actions.empty() && out->actions.back().kind == Action::SkipShort)
      out->actions.back().length++;
    else if (!need && step.length_bytes == 1)
      out->actions.push_back({Action::SkipShort, 0, 1, &step});
    else
      out->actions.push_back({need ? Action::Need : Action::Skip, 0, 0, &step});
    if (!need) {
      out->more_tails |= can_be_outside(step);
      continue;
    }
    end = out->actions.size();
    out->blobs |= step.kind == StepKind::Blob;
    if (!can_be_outside(step)) continue;
    out->tails = true;
    out->more_tails = false;
  }
  out->actions.resize(end);
  auto is_long = [](const Action &action) { return action.kind == Action::Skip && can_be_outside(*action.step); };
  out->long_between = !out->tails && std::any_of(out->actions.begin(), out->actions.end(), is_long);
  for (uint i = 0; i < table->s->fields; i++) {
    const Field *field = table->field[i];
    if (field->vcol_info && field->null_ptr && !needed(i))
      out->unread.push_back({uint32_t(field->null_ptr - table->record[0]), uint8_t(field->null_bit)});
  }
  end = 0;
  for (const KeyPart &part : clustered().parts) {
    bool need = part.reversible && needed(part.field_index);
    out->key_actions.push_back({&part, need});
    if (need) end = out->key_actions.size();
  }
  out->key_actions.resize(end);
}

template <class Bytes>
bool TablePlan::unpack_columns(const Template &what, Bytes &row, uchar *record, Buffer *blobs) const {
  for (const Action &action : what.actions) {
    switch (action.kind) {
    case Action::Pass:
    case Action::Copy:
      if (!row.pass(action.length)) return false;
      if (action.kind == Action::Copy) copy_bytes(record + action.offset, row.at - action.length, action.length);
      break;
    case Action::Need:
      if (is_null(*action.step, record))
        clear_null(*action.step, what.defaults, record);
      else if (!row.read(*action.step, record, blobs))
        return false;
      break;
    case Action::Skip:
      if (!is_null(*action.step, record) && !row.skip(action.step->length_bytes, action.step->length)) return false;
      break;
    case Action::SkipShort:
      if (!row.skip_short(action.step, action.length, record)) return false;
      break;
    }
  }
  return true;
}

/* A row's NULL bits. A virtual column's is left as it is: the row has what the record had when it was written, when the
   column may not have been computed, and the record may have the column from an index entry already. */
inline void TablePlan::place_null_bits(const uchar *bits, uchar *record) const {
  if (m_virtual_bits.empty()) return copy_bytes(record, bits, m_null_bytes_record);
  for (size_t i = 0; i < m_virtual_bits.size(); i++)
    record[i] = uchar((record[i] & m_virtual_bits[i]) | (bits[i] & ~m_virtual_bits[i]));
}

/* What does not depend on the row's layout. */
inline bool TablePlan::finish_row(const Template &what, const myriad_row &row, uchar *record) const {
  /* CHECKSUM TABLE does not read them and still counts what the record has of them, unless that is NULL. */
  for (NullBit null : what.unread) record[null.offset] |= null.bit;
  const uchar *key = row.key, *key_end = row.key + row.key_len;
  for (const KeyAction &action : what.key_actions) {
    key = action.need ? decode_part(*action.part, key, key_end, record) : skip_part(*action.part, key, key_end);
    if (!key) return false;
  }
  return true;
}

bool TablePlan::unpack_row(const Template &what, const myriad_row &row, uchar *record, Buffer *blobs) const {
  if (row.value_len < 1 + m_null_bytes || *row.value != m_layout)
    return unpack_other_row(what, row, record, blobs) && finish_row(what, row, record);
  place_null_bits(m_null_bytes ? row.value + 1 : what.defaults, record);
  if (what.blobs && blobs) {
    blobs->clear();
    blobs->room(row.value_len);
  }
  WholeRow bytes{row.value + 1 + m_null_bytes, row.value + row.value_len};
  return unpack_columns(what, bytes, record, blobs) && finish_row(what, row, record);
}

size_t TablePlan::excerpt(const Template &what, const uchar *value, size_t length, uchar *to) const {
  auto all = [=](size_t bytes) {
    memcpy(to, value, bytes);
    return bytes;
  };
  if (!what.valid || !what.long_between) return all(length);
  if (length < 1 + m_null_bytes || *value != m_layout) {
    /* Of a row with a tail the head has all that is needed. */
    const bool has_head = length >= 5 && *value == (m_layout | SPLIT);
    return all(has_head ? std::min<size_t>(uint4korr(value + 1), length) : length);
  }
  const uchar *nulls = value + 1, *kept = value;
  uchar *out = to;
  WholeRow row{nulls + m_null_bytes, value + length};
  for (const Action &action : what.actions) {
    if (!action.step) {
      if (!row.pass(action.length)) return all(length);
      continue;
    }
    if (action.kind == Action::SkipShort) {
      if (!row.skip_short(action.step, action.length, nulls)) return all(length);
      continue;
    }
    if (is_null(*action.step, nulls)) continue;
    const uchar *begin = row.at;
    if (!row.skip(action.step->length_bytes, action.step->length)) return all(length);
    if (action.kind == Action::Need || size_t(row.at - begin) <= OUTSIDE_MIN) continue;
    memcpy(out, kept, size_t(begin - kept));
    out += begin - kept;
    put_length(out, action.step->length_bytes, 0);
    out += action.step->length_bytes;
    kept = row.at;
  }
  memcpy(out, kept, size_t(row.at - kept));
  return size_t(out - to) + size_t(row.at - kept);
}

/* A row with a tail, or of an older layout. */
bool TablePlan::unpack_other_row(const Template &what, const myriad_row &row, uchar *record, Buffer *blobs) const {
  if (!row.value_len) return false;
  const uchar layout = *row.value & uchar(~SPLIT);
  const uchar *end = row.value + row.value_len;
  RowBytes bytes{row.value + 1, end, end, end, bool(*row.value & SPLIT)};
  if (bytes.split) {
    if (row.value_len < 5) return false;
    /* Of the head, too, no more may have been read than the columns that are needed. */
    const size_t head = std::min<size_t>(uint4korr(row.value + 1), row.value_len);
    if (head < 5) return false;
    bytes.at += 4;
    bytes.end = bytes.tail = row.value + head;
  }
  if (layout == 0 || layout > m_layout) return false;
  if (layout < m_layout) return unpack_old_row(what, m_old_layouts[layout - 1], bytes, record, blobs);
  if (size_t(bytes.end - bytes.at) < m_null_bytes) return false;
  place_null_bits(m_null_bytes ? bytes.at : what.defaults, record);
  bytes.at += m_null_bytes;
  if (what.blobs && blobs) {
    blobs->clear();
    blobs->room(row.value_len);
  }
  AnyRow any(bytes);
  return unpack_columns(what, any, record, blobs);
}

RowLayout TablePlan::own_layout() const {
  RowLayout layout;
  layout.null_bytes = m_null_bytes;
  for (const Step &step : m_columns) {
    uint32_t position = 0;
    if (step.null_bit) position = 8 * step.null_offset + my_find_first_bit(step.null_bit) + 1;
    layout.columns.push_back({uint32_t(layout.columns.size()), position});
  }
  return layout;
}

bool TablePlan::set_layouts(RowLayouts &&layouts) {
  if (layouts.layouts.empty()) return true;
  const RowLayout own = own_layout(), &last = layouts.layouts.back();
  if (own.null_bytes != last.null_bytes || own.columns.size() != last.columns.size()) return false;
  for (size_t i = 0; i < own.columns.size(); i++)
    if (own.columns[i].null_position != last.columns[i].null_position) return false;
  m_layouts = std::move(layouts);
  m_layout = uchar(m_layouts.layouts.size());
  m_old_layouts.resize(m_layout - 1);
  for (size_t i = 0; i < m_old_layouts.size(); i++)
    if (!plan_old_layout(m_layouts.layouts[i], &m_old_layouts[i])) return false;
  return true;
}

bool TablePlan::plan_old_layout(const RowLayout &layout, OldLayout *out) const {
  std::vector<const Step *> step_of(m_layouts.columns.size(), nullptr);
  const std::vector<LayoutColumn> &today = m_layouts.layouts.back().columns;
  for (size_t i = 0; i < m_columns.size(); i++) step_of[today[i].column] = &m_columns[i];
  out->null_bytes = layout.null_bytes;
  std::vector<bool> there(m_layouts.columns.size(), false);
  for (const LayoutColumn &c : layout.columns) {
    const LaidOutColumn &stored = m_layouts.columns[c.column];
    OldColumn column;
    column.step = step_of[c.column];
    column.length_bytes = stored.length_bytes;
    column.width = stored.width;
    if (c.null_position) {
      column.null_offset = (c.null_position - 1) / 8;
      column.null_bit = uint8_t(1 << (c.null_position - 1) % 8);
      if (column.step && !column.step->null_bit) return false;
    }
    there[c.column] = true;
    out->columns.push_back(column);
  }
  for (size_t i = 0; i < m_columns.size(); i++) {
    if (there[today[i].column]) continue;
    const LaidOutColumn &stored = m_layouts.columns[today[i].column];
    if (stored.is_null && !m_columns[i].null_bit) return false;
    out->missing.push_back({&m_columns[i], &stored});
    out->default_bytes += stored.default_image.size();
  }
  return true;
}

bool TablePlan::unpack_old_row(const Template &what, const OldLayout &layout, RowBytes bytes, uchar *record,
                               Buffer *blobs) const {
  if (size_t(bytes.end - bytes.at) < layout.null_bytes) return false;
  const uchar *nulls = bytes.at;
  bytes.at += layout.null_bytes;
  place_null_bits(what.defaults, record);
  if (blobs) {
    blobs->clear();
    blobs->room(size_t(bytes.end - bytes.at) + size_t(bytes.tail_end - bytes.tail) + layout.default_bytes);
  }
  auto set_null = [&](const Step &step) {
    record[step.null_offset] |= step.null_bit;
    clear_null(step, what.defaults, record);
  };
  auto set_value = [&](const Step &step, AnyRow &row) {
    if (step.null_bit) record[step.null_offset] &= uchar(~step.null_bit);
    size_t length;
    if (what.tails || !is_outside(row, step.length_bytes, &length)) return row.read(step, record, blobs);
    clear_null(step, what.defaults, record);
    return row.skip(step.length_bytes, step.length);
  };
  AnyRow row(bytes);
  for (const OldColumn &column : layout.columns) {
    if (column.null_bit && (nulls[column.null_offset] & column.null_bit)) {
      if (column.step) set_null(*column.step);
      continue;
    }
    if (!(column.step ? set_value(*column.step, row) : row.skip(column.length_bytes, column.width))) return false;
  }
  for (const MissingColumn &missing : layout.missing) {
    if (missing.column->is_null) {
      set_null(*missing.step);
      continue;
    }
    const std::string &image = missing.column->default_image;
    const auto *at = reinterpret_cast<const uchar *>(image.data()), *end = at + image.size();
    AnyRow added(RowBytes{at, end, end, end, false});
    if (!set_value(*missing.step, added)) return false;
  }
  return true;
}

RowLayouts TablePlan::layouts_for(const TablePlan &to, const std::vector<int> &origins, const uchar *record) const {
  auto describe = [](const Step &step) {
    LaidOutColumn column;
    column.length_bytes = step.length_bytes;
    column.width = step.length_bytes ? 0 : step.length;
    return column;
  };
  RowLayouts next = m_layouts;
  if (next.layouts.empty()) {
    next.layouts.push_back(own_layout());
    for (const Step &step : m_columns) next.columns.push_back(describe(step));
  }
  const RowLayout today = next.layouts.back();
  RowLayout layout = to.own_layout();
  for (size_t i = 0; i < to.m_columns.size(); i++) {
    const Step &step = to.m_columns[i];
    const int origin = origins[step.first_field];
    size_t no = 0;
    while (no < m_columns.size() && m_columns[no].first_field != origin) no++;
    if (no < m_columns.size()) {
      layout.columns[i].column = today.columns[no].column;
      continue;
    }
    layout.columns[i].column = uint32_t(next.columns.size());
    LaidOutColumn added = describe(step);
    added.is_null = is_null(step, record);
    if (!added.is_null) {
      Buffer image;
      pack_step(step, record, &image);
      added.default_image.assign(reinterpret_cast<const char *>(image.data()), image.size());
    }
    next.columns.push_back(std::move(added));
  }
  if (layout == today) return m_layouts;
  next.layouts.push_back(std::move(layout));
  return next;
}

bool TablePlan::clustered_part(const IndexPlan &index, const uchar *key, size_t key_length, const uchar *value,
                               size_t value_length, const uchar **pk, size_t *pk_length) const {
  size_t columns = index.fixed_width;
  if (!columns) {
    if (value_length < 2) return false;
    columns = uint2korr(value);
  }
  if (columns > key_length) return false;
  *pk = key + columns;
  *pk_length = key_length - columns;
  return true;
}

bool TablePlan::unpack_entry(const IndexPlan &index, const uchar *key, size_t key_length, const uchar *value,
                             size_t value_length, const uchar *defaults, uchar *record) const {
  const uchar *at = key, *end = key + key_length, *clustered_key;
  size_t clustered_length;
  if (!clustered_part(index, key, key_length, value, value_length, &clustered_key, &clustered_length)) return false;
  memcpy(record, defaults, m_null_bytes_record);
  /* Where the parts begin from which a text is spelled. */
  const uchar *begins[2][MAX_REF_PARTS];
  for (size_t i = 0; i < index.parts.size(); i++) {
    const KeyPart &part = index.parts[i];
    begins[0][i] = at;
    /* The NULL bits of columns that only the value holds come from the key's markers. */
    if (part.nullable) {
      if (at >= end) return false;
      bool null = uchar(*at ^ (part.descending ? 0xff : 0)) == 0;
      if (null)
        record[part.null_offset] |= part.null_bit;
      else
        record[part.null_offset] &= uchar(~part.null_bit);
    }
    if (part.reversible)
      at = decode_part(part, at, end, record);
    else
      at = i + 1 < index.parts.size() ? skip_part(part, at, end) : clustered_key;
    if (!at) return false;
  }
  if (!hidden_row_id()) {
    for (size_t i = 0; i < clustered().parts.size(); i++) {
      const KeyPart &part = clustered().parts[i];
      begins[1][i] = at;
      at = part.reversible ? decode_part(part, at, end, record) : skip_part(part, at, end);
      if (!at) return false;
    }
  }
  const uchar *from = value, *value_end = value + value_length;
  if (!index.fixed_width) from += 2;
  for (const Original &original : index.originals) {
    const Step &step = original.step;
    if (is_null(step, record)) {
      if (step.kind == StepKind::Variable)
        memset(record + step.offset, 0, step.length_bytes);
      else
        memcpy(record + step.offset, defaults + step.offset, step.length);
      continue;
    }
    if (original.spelling) {
      if (from >= value_end) return false;
      if (*from != SPELLED_OUT) {
        const std::vector<KeyPart> &parts = original.in_clustered ? clustered().parts : index.parts;
        const uchar *begin = begins[original.in_clustered][original.part];
        if (!unpack_spelling(parts[original.part], begin, end, &from, value_end, record)) return false;
        continue;
      }
      from++;
    }
    from = unpack_step(step, from, value_end, record, nullptr);
    if (!from) return false;
  }
  return true;
}

}  // namespace myriad
