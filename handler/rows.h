/* A table's plan: how records become the core's keys and values and back. Made once for each table definition in use.

   Row (value of the clustered index):
     byte 0: number of its layout (layouts.h), 1 for a table whose columns never changed in place;
     the record's NULL bytes, if the table has nullable columns;
     the stored columns that cannot be read back from the clustered key, in column order:
       fixed-width columns: their image (nothing if NULL);
       CHAR: length (1 byte, 2 if the column is wider than 255 bytes), bytes without trailing spaces;
       VARCHAR, VARBINARY: length (1 or 2 bytes as in the record), bytes;
       BLOB, TEXT, GEOMETRY: length (1 to 4 bytes as in the record), bytes.
     A row that is too long for an index page has a head, which stays there, and a tail. Then byte 0 has SPLIT added,
   the head's length (u32) follows it, and values of more than OUTSIDE_MIN bytes have but their lengths in the head:
   their bytes are the tail, in column order. Entry of a secondary index: key = its columns, then the clustered key;
     value = offset of the clustered key (u16, little endian; absent where the columns have a fixed width), then the
   columns of the index and of the clustered key that cannot be read back from the key, each with its NULL-free image as
   above or, where only the case of its letters is missing, its spelling (letters.h). */
#ifndef MYRIAD_ROWS_H
#define MYRIAD_ROWS_H
#include "keys.h"
#include "layouts.h"

namespace myriad {

/* In byte 0 of a row with a tail. */
constexpr uchar SPLIT = 0x80;
inline bool has_tail(const myriad_row &row) { return row.value_len && (*row.value & SPLIT); }
/* Values longer than this are in the tail. */
constexpr size_t OUTSIDE_MIN = 255;

enum class StepKind : uint8_t { Copy, Char, WideChar, Variable, Blob };

/* One column, or a run of adjacent fixed-width NOT NULL ones. */
struct Step {
  StepKind kind;
  uint8_t null_bit = 0; /* 0: not nullable */
  uint8_t length_bytes = 0;
  uint32_t null_offset = 0;
  uint32_t offset = 0;
  uint32_t length = 0; /* of the image in the record (without length bytes) */
  uint16_t first_field = 0, field_count = 1;
  CHARSET_INFO *cs = nullptr;
};

/* A column of which a secondary entry's value keeps what the key does not tell. */
struct Original {
  Step step;
  bool spelling = false;     /* the text is read from the key's part */
  bool in_clustered = false; /* the part is of the clustered key at the entry's end, else of the index */
  uint32_t part = 0;
};

struct IndexPlan {
  uint32_t core_no = 0;   /* number in the core */
  uint32_t server_no = 0; /* number in the server's key list; UINT32_MAX for the hidden row id */
  bool unique = false;
  bool hash = false; /* USING HASH, of a table in memory */
  bool has_nullable = false;
  bool has_blob_or_prefix = false;
  bool has_virtual_prefix = false; /* the beginning of a column that is not stored */
  std::vector<KeyPart> parts;
  uint32_t fixed_width = 0;        /* encoded width of the columns; 0 = variable */
  std::vector<Original> originals; /* secondary: kept in the value */
};

struct NullBit {
  uint32_t offset;
  uint8_t bit;
};

/* What a statement does to a row's value, in order, up to the last column that it needs. */
struct Action {
  enum Kind : uint8_t {
    Pass,     /* `length` bytes of columns that it does not need */
    Copy,     /* `length` bytes that are never NULL */
    Need,     /* the step's column */
    Skip,     /* the same, not needed */
    SkipShort /* `length` columns from the step's on, all with one length byte, not needed */
  };
  Kind kind;
  uint32_t offset = 0, length = 0;
  const Step *step = nullptr;
};

/* What it does to the row's clustered key, up to the last part that it needs. */
struct KeyAction {
  const KeyPart *part;
  bool need;
};

/* How rows of an older layout become records. */
struct OldColumn {
  const Step *step; /* null: it was dropped */
  uint8_t length_bytes = 0;
  uint32_t width = 0;
  uint32_t null_offset = 0; /* in the row's NULL bytes */
  uint8_t null_bit = 0;     /* 0: never NULL */
};
struct MissingColumn {
  const Step *step;
  const LaidOutColumn *column;
};
struct OldLayout {
  uint32_t null_bytes = 0;
  size_t default_bytes = 0;
  std::vector<OldColumn> columns;
  std::vector<MissingColumn> missing;
};

/* What is still unread of a row's value: of its head or all of it, and of its tail. */
struct RowBytes {
  const uchar *at, *end;
  const uchar *tail, *tail_end;
  bool split;
};

/* What of a row a statement needs. */
struct Template {
  bool valid = false;
  bool blobs = false;
  bool tails = false;              /* columns whose values may be in a row's tail */
  bool more_tails = false;         /* others come behind all of these */
  bool long_between = false;       /* or before, and none of these are needed: see excerpt() */
  const uchar *defaults = nullptr; /* of the table: an image of its default values */
  std::vector<Action> actions;
  std::vector<KeyAction> key_actions;
  std::vector<NullBit> unread; /* of generated columns that the statement does not read */
};

/* Whether look-ups of the key's whole values go by hash first: USING HASH of a table in memory. */
bool has_hash_lookup(const TABLE_SHARE *, const KEY &);

class TablePlan {
public:
  explicit TablePlan(TABLE *table);

  /* Server key number -> plan; the clustered one for MAX_KEY. */
  const IndexPlan &index(uint server_no) const { return m_indexes[core_number(server_no)]; }
  const IndexPlan &clustered() const { return m_indexes[0]; }
  const std::vector<IndexPlan> &indexes() const { return m_indexes; }
  /* What the core is told about them. */
  std::vector<myriad_index_spec> specs() const;
  uint32_t core_number(uint server_no) const {
    if (server_no == m_primary) return 0;
    return m_primary < MAX_KEY && server_no > m_primary ? server_no : server_no + 1;
  }
  bool hidden_row_id() const { return m_primary >= MAX_KEY; }
  const std::vector<Step> &steps() const { return m_steps; }
  uint32_t null_bytes() const { return m_null_bytes; }
  /* Bytes of a stored position (handler::ref). */
  uint32_t ref_length() const { return m_ref_length; }
  uint32_t clustered_width() const { return hidden_row_id() ? 8 : clustered().fixed_width; }

  /* Takes the layouts that the catalog has of the table. False: they are of another one. */
  bool set_layouts(RowLayouts &&);
  const RowLayouts &layouts() const { return m_layouts; }
  /* The layouts once the table's columns are those of `to`: `origins` has for each of its fields the number of the
     field that it was, or -1; those added have `record`'s values in the rows there are. */
  RowLayouts layouts_for(const TablePlan &to, const std::vector<int> &origins, const uchar *record) const;

  /* Replaces `out` by the row's value. One of more than `whole_max` bytes may get a tail: returns the length of its
     head then, else 0. */
  size_t pack_row(const uchar *record, size_t whole_max, Buffer *out) const;
  /* Appends key and value of a secondary entry; the clustered key is given. Returns the length of the columns' part. */
  size_t pack_entry_key(const IndexPlan &, const uchar *record, const uchar *pk, size_t pk_length, Buffer *out) const;
  void pack_entry_value(const IndexPlan &, const uchar *record, size_t columns_length, Buffer *out) const;
  /* Appends the clustered key's columns (not for hidden row ids). */
  void pack_clustered_key(const uchar *record, Buffer *out) const;
  /* Columns only, any index. */
  void pack_columns(const IndexPlan &, const uchar *record, Buffer *out) const;
  bool any_null(const IndexPlan &, const uchar *record) const;

  /* True if the stored columns have the same bytes in both records (those of the clustered key only as far as it keeps
   * them). */
  bool same_row(const uchar *a, const uchar *b) const;

  /* The most bytes that a row, or its head, has up to the end of these columns. */
  size_t bytes_up_to(const std::vector<Action> &) const;
  /* For the columns that the statement reads and those of the index `also`, or for all. */
  void make_template(const TABLE *table, bool all, Template *out, const IndexPlan *also = nullptr) const;
  /* Fills the needed columns of the record. Blob bytes go to `blobs`, or stay where the row has them if that is null.
     False: the bytes are no row of this table. */
  bool unpack_row(const Template &, const myriad_row &, uchar *record, Buffer *blobs) const;
  /* Replaces `to` by what the statement needs of a row's value that may be long: long values before the last column
     needed are empty there. Returns its length, no more than that of the value. */
  size_t excerpt(const Template &, const uchar *value, size_t length, uchar *to) const;
  /* Whether the row was read without some of the tail's first `wanted` bytes, which the needed columns are in. */
  bool lacks_tail(const Template &, const myriad_row &, size_t *wanted) const;
  /* Fills all columns that a secondary entry holds. */
  bool unpack_entry(const IndexPlan &, const uchar *key, size_t key_length, const uchar *value, size_t value_length,
                    const uchar *defaults, uchar *record) const;
  /* Finds the clustered key in a secondary entry. */
  bool clustered_part(const IndexPlan &, const uchar *key, size_t key_length, const uchar *value, size_t value_length,
                      const uchar **pk, size_t *pk_length) const;

private:
  void plan_indexes(TABLE *table);
  void plan_rows(TABLE *table);
  void plan_entry_values(TABLE *table);
  RowLayout own_layout() const;
  bool plan_old_layout(const RowLayout &, OldLayout *) const;
  bool pack_split_row(const uchar *record, Buffer *out) const;
  bool unpack_other_row(const Template &, const myriad_row &, uchar *record, Buffer *blobs) const;
  bool unpack_old_row(const Template &, const OldLayout &, RowBytes, uchar *record, Buffer *blobs) const;
  void place_null_bits(const uchar *bits, uchar *record) const;
  template <class Bytes> bool unpack_columns(const Template &, Bytes &, uchar *record, Buffer *blobs) const;
  bool finish_row(const Template &, const myriad_row &, uchar *record) const;

  uint m_primary;
  uint32_t m_null_bytes = 0, m_null_bytes_record = 0;
  std::vector<uchar> m_virtual_bits; /* NULL bits of virtual columns, by byte; empty if there are none */
  uint32_t m_ref_length = 0;
  uint32_t m_fixed_length = 0;      /* upper bound of all non-blob parts of a row */
  std::vector<IndexPlan> m_indexes; /* by core number */
  std::vector<Step> m_steps;        /* adjacent columns may be one */
  std::vector<Step> m_columns;      /* each column by itself */
  std::vector<Step> m_long_steps;   /* those whose values may be in the tail */
  RowLayouts m_layouts;
  uchar m_layout = FIRST_LAYOUT; /* of new rows */
  std::vector<OldLayout> m_old_layouts;
};

/* Appends one column's image. */
void pack_step(const Step &, const uchar *record, Buffer *out);

}  // namespace myriad
#endif
