/* FOREIGN KEY constraints: enforcement. A row is changed first and looked at then, as with InnoDB, where an index takes
   its entry before the next one is checked; whoever changes it undoes it after an error. */
#include "references.h"
#include "discovery.h"
#include "ha_myriad.h"
#include "table_cache.h"
#include "unireg.h"
#include <algorithm>
#include <atomic>

namespace myriad {

namespace {

/* InnoDB's limit: a cascade deeper than this is an error. */
constexpr unsigned DEPTH_MAX = 15;
/* Tables that a connection may keep beyond a statement however many all of them keep together. */
constexpr size_t RELATIVES_MAX = 64;
/* Part of table_open_cache up to which connections may keep more. */
constexpr size_t CACHE_PART = 5;
/* Relatives that are open, of all connections. */
std::atomic<size_t> relatives_open{0};
/* Relatives of a statement from which on it pays to know which tables the server has locked. */
constexpr size_t SERVERS_ASKED_FROM = 32;

/* Converting a value for a look-up is not the statement's business. */
class Quiet {
public:
  explicit Quiet(THD *thd) : m_thd(thd), m_saved(thd->count_cuted_fields), m_strict(thd->abort_on_warning) {
    thd->count_cuted_fields = CHECK_FIELD_IGNORE;
    thd->abort_on_warning = false;
  }
  ~Quiet() {
    m_thd->count_cuted_fields = m_saved;
    m_thd->abort_on_warning = m_strict;
  }

private:
  THD *m_thd;
  enum_check_fields m_saved;
  bool m_strict;
};

/* Writes a parent's value into the child's column, which is in the child's record[0]. False: it does not fit. */
bool store_as(THD *thd, Field *to, const KeyPart &column, const uchar *parent_record) {
  if (is_null(column, parent_record)) {
    if (!to->real_maybe_null()) return false;
    to->set_null();
    return true;
  }
  to->set_notnull();
  const uchar *text;
  size_t length;
  if (!text_of(column, parent_record, &text, &length)) {
    memcpy(to->ptr, parent_record + column.offset, column.length);
    return true;
  }
  /* The server would cut it without a word; characters for a text, bytes for a binary string. */
  const char *bytes = reinterpret_cast<const char *>(text);
  if (to->charset()->numchars(bytes, bytes + length) > to->char_length()) return false;
  Quiet quiet(thd);
  return !to->store(bytes, length, to->charset());
}

/* Whether the parent is found by the value in the child's column, which can be another one than was stored: BINARY adds
   zero bytes, CHAR spaces. `part`: of the parent's index. */
bool leads_to(const KeyPart &part, const uchar *parent_record, Field *child) {
  if (is_null(part, parent_record)) return child->is_null();
  Buffer parent, found;
  encode_from_record(part, parent_record, &parent);
  return encode_as(part, make_column_part(child), child->table->record[0], &found) && found.size() == parent.size() &&
         !memcmp(found.data(), parent.data(), parent.size());
}

}  // namespace

/* ---- relatives ----------------------------------------------------------------------------------------------------
 */

namespace {

/* A definition changes while it is being used to open the table: the next attempt finds the new one. */
class ChangedMeanwhile : public Internal_error_handler {
public:
  ChangedMeanwhile(THD *thd, bool tries_again) : m_thd(thd), m_tries_again(tries_again) {
    thd->push_internal_handler(this);
  }
  ~ChangedMeanwhile() override { m_thd->pop_internal_handler(); }
  bool handle_condition(THD *, uint code, const char *, Sql_condition::enum_warning_level *, const char *,
                        Sql_condition **) override {
    const bool changed = m_tries_again && (code == ER_TABLE_DEF_CHANGED || code == ER_NO_SUCH_TABLE_IN_ENGINE);
    seen |= changed;
    return changed;
  }
  bool seen = false;

private:
  THD *m_thd;
  bool m_tries_again;
};

}  // namespace

/* Who defines foreign keys has no metadata lock on the tables at their other ends. */
int Relative::open(THD *thd, const std::string &name, std::unique_ptr<Relative> *out) {
  constexpr int tries = 100;
  for (int i = 1;; i++) {
    ChangedMeanwhile changed(thd, i < tries);
    const int error = open_as_defined(thd, name, out);
    if (!changed.seen) return error;
  }
}

int Relative::open_as_defined(THD *thd, const std::string &name, std::unique_ptr<Relative> *out) {
  out->reset();
  std::unique_ptr<Relative> opened(new Relative);
  const myriad_status status = myriad_find_frm(name.c_str(), &opened->m_image);
  if (status != MYRIAD_OK && status != MYRIAD_ERR_NO_SUCH_TABLE) return myriad_error_noted(status, thd);
  if (opened->m_image.empty()) return 0;
  opened->m_name = name;
  opened->m_path = "./" + name;
  opened->m_sql = sql_name(name);
  TABLE_SHARE *share = &opened->m_share;
  init_tmp_table_share(thd, share, opened->m_sql.db.c_str(), 0, opened->m_sql.table.c_str(), opened->m_path.c_str());
  const auto *image = reinterpret_cast<const uchar *>(opened->m_image.data());
  const LEX_CSTRING alias = {opened->m_sql.table.c_str(), opened->m_sql.table.size()};
  bool failed = share->init_from_binary_frm_image(thd, false, image, opened->m_image.size());
  failed =
      failed || open_table_from_share(thd, share, &alias, HA_OPEN_KEYFILE, EXTRA_RECORD, 0, &opened->m_table, false);
  if (failed) {
    free_table_share(share);
    return HA_ERR_CRASHED;
  }
  opened->m_file = static_cast<ha_myriad *>(opened->m_table.file);
  relatives_open.fetch_add(1, std::memory_order_relaxed);
  opened->m_list.reset();
  opened->m_list.table = &opened->m_table;
  opened->m_table.pos_in_table_list = &opened->m_list;
  opened->m_table.use_all_columns();
  *out = std::move(opened);
  return 0;
}

Relative::~Relative() {
  if (!m_file) return;
  relatives_open.fetch_sub(1, std::memory_order_relaxed);
  closefrm(&m_table);
  free_table_share(&m_share);
}

bool Relative::is_current() const { return myriad_table_is_current(m_file->core_table()); }

bool Relative::compute_generated(THD *thd, bool stored_too) {
  if (!m_table.vfield) return false;
  m_table.in_use = thd;
  m_table.use_all_columns();
  if (m_table.vcol_fix_expr(thd)) return true;
  const bool failed = m_table.update_virtual_fields(m_file, stored_too ? VCOL_UPDATE_FOR_WRITE : VCOL_UPDATE_FOR_READ);
  m_table.vcol_cleanup_expr(thd);
  return failed;
}

/* Whether the server holds such a lock of the table until the transaction ends, as it does of the children that it has
   been told of. To ask its own list of locks, for each of many children, takes a time that grows with the square of
   their number. */
bool Relatives::is_locked_by_server(THD *thd, const SqlName &name, enum_mdl_type lock) {
  /* LOCK TABLES' locks can go before. */
  if (++m_gets < SERVERS_ASKED_FROM || thd->locked_tables_mode == LTM_LOCK_TABLES ||
      thd->locked_tables_mode == LTM_PRELOCKED_UNDER_LOCK_TABLES)
    return false;
  auto key_of = [](const char *db, const char *table) { return std::string(db) + '/' + table; };
  if (m_gets == SERVERS_ASKED_FROM)
    for (const TABLE *table = thd->open_tables; table; table = table->next)
      if (table->mdl_ticket) m_servers.emplace(key_of(table->s->db.str, table->s->table_name.str), table->mdl_ticket);
  auto found = m_servers.find(key_of(name.db.c_str(), name.table.c_str()));
  return found != m_servers.end() && found->second->has_stronger_or_equal_type(lock);
}

int Relatives::get(THD *thd, const std::string &name, enum_mdl_type lock, Relative **out) {
  *out = nullptr;
  const SqlName sql = sql_name(name);
  MDL_request request;
  MDL_REQUEST_INIT(&request, MDL_key::TABLE, sql.db.c_str(), sql.table.c_str(), lock, MDL_TRANSACTION);
  if (!is_locked_by_server(thd, sql, lock) &&
      thd->mdl_context.acquire_lock(&request, double(thd->variables.lock_wait_timeout))) {
    const uint told = thd->is_error() ? thd->get_stmt_da()->sql_errno() : 0;
    myriad_status status = MYRIAD_ERR_LOCK_WAIT_TIMEOUT;
    if (told == ER_LOCK_DEADLOCK)
      status = MYRIAD_ERR_DEADLOCK;
    else if (told != ER_LOCK_WAIT_TIMEOUT && thd_kill_level(thd) != THD_IS_NOT_KILLED)
      status = MYRIAD_ERR_INTERRUPTED;
    return Session::of(thd)->fail(status, thd);
  }
  auto found = m_open.find(name);
  if (found != m_open.end() && !found->second->is_current()) {
    m_open.erase(found);
    found = m_open.end();
  }
  if (found == m_open.end()) {
    std::unique_ptr<Relative> opened;
    if (int error = Relative::open(thd, name, &opened)) return error;
    if (!opened) return 0;
    found = m_open.emplace(name, std::move(opened)).first;
  }
  found->second->table()->in_use = thd;
  *out = found->second.get();
  return 0;
}

static std::atomic<uint64_t> last_connection{0};

Relatives::Relatives() : connection(++last_connection) {}

void Relatives::begin_statement() {
  statement++;
  m_gets = 0;
  m_servers.clear();
}

void Relatives::end_statement() {
  if (m_open.size() <= RELATIVES_MAX || relatives_open.load(std::memory_order_relaxed) <= tc_size / CACHE_PART) return;
  m_open.clear();
  statement++; /* links that know one of them look again */
}

/* ---- one table's foreign keys -------------------------------------------------------------------------------------
 */

static Link make_link(ha_myriad *file, const ForeignKey &key, bool as_child) {
  Link link;
  link.key = key;
  link.as_child = as_child;
  TABLE *table = file->get_table();
  const std::vector<std::string> &columns = as_child ? key.columns : key.parent_columns;
  for (const std::string &column : columns)
    if (Field *field = find_column(table, column)) link.own.push_back(make_column_part(field));
  if (link.own.size() < columns.size()) link.own.clear();
  const TablePlan &plan = file->plan();
  const uint no = find_index(table, plan, columns, nullptr, {});
  link.indexed = no < MAX_KEY;
  link.own_index = link.indexed ? plan.core_number(no) : 0;
  if (as_child && no < MAX_KEY) {
    for (const KeyPart &part : plan.index(no).parts) link.entry.push_back(part);
    for (const KeyPart &part : plan.clustered().parts) link.entry.push_back(part);
  } else if (as_child) {
    link.entry = link.own;
  }
  return link;
}

References::References(ha_myriad *file, const ForeignKeys &own, const ForeignKeys &of_others) : m_file(file) {
  for (const ForeignKey &key : own) m_parents.push_back(make_link(file, key, true));
  for (const ForeignKey &key : of_others) m_children.push_back(make_link(file, key, false));
  /* InnoDB's order: index by index, and by the constraints' names with the children's databases in front. */
  auto id = [](const Link &link) { return link.key.child.substr(0, link.key.child.find('/') + 1) + link.key.name; };
  auto before = [&](const Link &a, const Link &b) {
    return a.own_index != b.own_index ? a.own_index < b.own_index : id(a) < id(b);
  };
  std::stable_sort(m_parents.begin(), m_parents.end(), before);
  std::stable_sort(m_children.begin(), m_children.end(), before);
  for (const auto *links : {&m_parents, &m_children})
    for (const Link &link : *links) m_indexes.insert(link.own_index);
}

void References::leave_unchecked(const std::vector<std::string> &names) {
  for (Link &link : m_parents) link.checked = std::find(names.begin(), names.end(), link.key.name) == names.end();
}

int References::lock_parents(THD *thd) {
  for (Link &link : m_parents)
    if (link.checked)
      if (int error = resolve(thd, &link, MDL_SHARED_READ)) return error;
  return 0;
}

int References::resolve(THD *thd, Link *link, enum_mdl_type lock) {
  Session *session = Session::of(thd);
  if (!session) return HA_ERR_OUT_OF_MEM;
  Relatives &relatives = session->relatives;
  /* A row event can delete parents after others have only changed them. */
  if (link->connection == relatives.connection && link->statement == relatives.statement && link->lock >= lock)
    return 0;
  const std::string &name = link->as_child ? link->key.parent : link->key.child;
  link->index = nullptr;
  link->connection = 0;
  if (int error = relatives.get(thd, name, lock, &link->other)) return error;
  link->connection = relatives.connection;
  link->statement = relatives.statement;
  link->lock = lock;
  if (!link->other) return 0;
  const auto &columns = link->as_child ? link->key.parent_columns : link->key.columns;
  const auto &own = link->as_child ? link->key.columns : link->key.parent_columns;
  const TablePlan &plan = link->other->file()->plan();
  const uint no = find_index(link->other->table(), plan, columns, m_file->get_table(), own);
  if (no < MAX_KEY) link->index = &plan.index(no);
  return 0;
}

static bool has_null(const Link &link, const uchar *record) {
  for (const KeyPart &column : link.own)
    if (is_null(column, record)) return true;
  return false;
}

static bool is_changed(const Link &link, const uchar *old_record, const uchar *new_record) {
  if (!old_record || !new_record) return true;
  for (const KeyPart &column : link.as_child ? link.entry : link.own)
    if (!same_column(column, old_record, new_record)) return true;
  return false;
}

static bool needs_parent(const Link &link, const uchar *old_record, const uchar *new_record, const ForeignKey *cause) {
  return link.checked && !has_null(link, new_record) && is_changed(link, old_record, new_record) &&
         !(cause && cause->name == link.key.name);
}

static bool concerns_child(const Link &link, const uchar *old_record, const uchar *new_record) {
  return !has_null(link, old_record) && is_changed(link, old_record, new_record);
}

static uint32_t action_of(const Link &link, const uchar *new_record) {
  return new_record ? link.key.on_update : link.key.on_delete;
}

bool References::concerns(const uchar *old_record, const uchar *new_record) const {
  if (new_record)
    for (const Link &link : m_parents)
      if (needs_parent(link, old_record, new_record, nullptr)) return true;
  if (old_record)
    for (const Link &link : m_children)
      if (concerns_child(link, old_record, new_record)) return true;
  return false;
}

int References::lock(THD *thd, const uchar *old_record, const uchar *new_record, const ForeignKey *cause) {
  if (new_record)
    for (Link &link : m_parents)
      if (needs_parent(link, old_record, new_record, cause))
        if (int error = resolve(thd, &link, MDL_SHARED_READ)) return error;
  if (old_record)
    for (Link &link : m_children) {
      if (!concerns_child(link, old_record, new_record)) continue;
      const bool acts = action_of(link, new_record) >= MYRIAD_CASCADE;
      if (int error = resolve(thd, &link, acts ? MDL_SHARED_WRITE : MDL_SHARED_READ)) return error;
    }
  return 0;
}

bool References::key_of(const Link &link, const uchar *record, Buffer *out) const {
  out->clear();
  for (size_t i = 0; i < link.own.size(); i++)
    if (!encode_as(link.index->parts[i], link.own[i], record, out)) return false;
  return true;
}

/* As InnoDB, and for the same reason: who adds a row beside needs the parent, which is locked. */
static myriad_cursor_options lock_found(myriad_lock lock) {
  return {lock, MYRIAD_WAIT, false, true, false, SIZE_MAX, SIZE_MAX};
}

/* Whether the entry is that of the row with this clustered key. */
static bool is_row(const Link &link, const myriad_row &row, const Buffer &clustered_key) {
  const uchar *at = row.key;
  size_t length = row.key_len;
  if (link.index->core_no && !link.other->file()->plan().clustered_part(*link.index, row.key, row.key_len, row.value,
                                                                        row.value_len, &at, &length))
    return false;
  return length == clustered_key.size() && !memcmp(at, clustered_key.data(), length);
}

/* `except`: the clustered key of a row that does not count. */
int References::exists(THD *thd, const Link &link, const Buffer &key, myriad_lock lock, const Buffer *except,
                       bool *found) {
  Session *session = Session::of(thd);
  myriad_row row;
  myriad_status status;
  if (!except && link.index->unique && link.own.size() == link.index->parts.size()) {
    status = myriad_get(session->core(), link.other->file()->core_table(), link.index->core_no, key.data(), key.size(),
                        link.index->core_no != 0, lock, MYRIAD_WAIT, &row, nullptr);
  } else {
    myriad_cursor *cursor = nullptr;
    const myriad_cursor_options options = lock_found(lock);
    status =
        myriad_cursor_open(session->core(), link.other->file()->core_table(), link.index->core_no, &options, &cursor);
    if (status != MYRIAD_OK) return session->fail(status, thd);
    status = myriad_cursor_seek(cursor, MYRIAD_SEEK_EXACT, key.data(), key.size(), &row);
    while (status == MYRIAD_OK && except && is_row(link, row, *except)) status = myriad_cursor_next(cursor, &row);
    myriad_cursor_close(cursor);
  }
  *found = status == MYRIAD_OK;
  return status == MYRIAD_END ? 0 : session->fail(status, thd);
}

bool References::refers_to_itself(const Link &link, const Buffer &key, const uchar *record) {
  if (link.key.child != link.key.parent || !link.indexed) return false;
  Buffer own;
  for (size_t i = 0; i < link.own.size(); i++) encode_from_record(link.index->parts[i], record, &own);
  return own.size() == key.size() && !memcmp(own.data(), key.data(), key.size());
}

static int violated(THD *thd, const ForeignKey &key, int error) {
  if (Session *session = Session::of(thd)) session->violation = violation_text(thd, key);
  return error;
}

int References::check_parents(THD *thd, const uchar *old_record, const uchar *new_record, Indexes which,
                              const ForeignKey *cause, bool is_stored) {
  Buffer key;
  for (Link &link : m_parents) {
    if (!which.has(link.own_index) || !needs_parent(link, old_record, new_record, cause)) continue;
    bool found = false;
    if (link.index && !link.own.empty() && key_of(link, new_record, &key)) {
      /* An ALTER that copies keeps all who would change the parent out for as long as it lasts. */
      const myriad_lock lock = m_file->is_bulk_copy() ? MYRIAD_LOCK_NONE : MYRIAD_LOCK_S;
      /* With InnoDB a row takes its place index by index, so it finds itself in those before the foreign key's own. */
      const bool itself = refers_to_itself(link, key, new_record);
      if (itself && link.index->core_no < link.own_index) continue;
      Buffer own;
      if (itself && is_stored)
        if (int error = m_file->current_clustered_key(new_record, &own)) return error;
      if (int error = exists(thd, link, key, lock, own.size() ? &own : nullptr, &found)) return error;
    }
    if (!found) return violated(thd, link.key, HA_ERR_NO_REFERENCED_ROW);
  }
  return 0;
}

/* Whether one of the rows that are being changed refers to the key: with InnoDB it still has its old entries in the
   indexes behind the one that has led to its children. */
bool References::is_changing(const Link &link, const Buffer &key, const Cascade &cascade) {
  Buffer own;
  for (const Cascade *each = &cascade; each; each = each->up) {
    if (*each->table != link.key.child || link.index->core_no <= each->index_no) continue;
    own.clear();
    for (size_t i = 0; i < link.own.size(); i++) encode_from_record(link.index->parts[i], each->record, &own);
    if (own.size() == key.size() && !memcmp(own.data(), key.data(), key.size())) return true;
  }
  return false;
}

int References::row_deleted(THD *thd, Cascade *cascade) { return act_on_children(thd, nullptr, {}, cascade); }

int References::row_updated(THD *thd, const uchar *new_record, const ForeignKey *cause, Cascade *cascade) {
  return follow_update(thd, new_record, UINT32_MAX, cause, true, cascade);
}

int References::update_failed(THD *thd, const uchar *new_record, uint32_t last, Cascade *cascade) {
  return follow_update(thd, new_record, last, nullptr, false, cascade);
}

int References::follow_update(THD *thd, const uchar *new_record, uint32_t last, const ForeignKey *cause, bool is_stored,
                              Cascade *cascade) {
  for (uint32_t no : m_indexes) {
    if (no > last) break;
    if (int error = act_on_children(thd, new_record, {no, no}, cascade)) return error;
    if (int error = check_parents(thd, cascade->record, new_record, {no, no}, cause, is_stored)) return error;
  }
  return 0;
}

int References::act_on_children(THD *thd, const uchar *new_record, Indexes which, Cascade *cascade) {
  Buffer key;
  const uchar *old_record = cascade->record;
  for (Link &link : m_children) {
    if (!which.has(link.own_index) || !concerns_child(link, old_record, new_record)) continue;
    const uint32_t action = action_of(link, new_record);
    const bool acts = action >= MYRIAD_CASCADE;
    if (!link.other) continue; /* gone with its database: a rename would have been seen */
    if (!link.index || link.own.empty()) return violated(thd, link.key, HA_ERR_ROW_IS_REFERENCED);
    if (!key_of(link, old_record, &key)) continue;
    cascade->index_no = link.own_index;
    const bool changing = is_changing(link, key, *cascade);
    if (acts) {
      if (changing)
        if (int error = may_change(thd, link, *cascade)) return error;
      if (int error = cascade_to(thd, &link, key, new_record, *cascade)) return error;
      continue;
    }
    bool found = changing;
    if (!found)
      if (int error = exists(thd, link, key, MYRIAD_LOCK_S, nullptr, &found)) return error;
    if (found) return violated(thd, link.key, HA_ERR_ROW_IS_REFERENCED);
  }
  return 0;
}

/* Acts on all of the child's rows that refer to the parent's old values. */
int References::cascade_to(THD *thd, Link *link, const Buffer &key, const uchar *new_record, const Cascade &cascade) {
  Session *session = Session::of(thd);
  ha_myriad *child = link->other->file();
  const IndexPlan &index = *link->index;
  myriad_cursor *cursor = nullptr;
  const myriad_cursor_options options = lock_found(MYRIAD_LOCK_X);
  myriad_status status = myriad_cursor_open(session->core(), child->core_table(), index.core_no, &options, &cursor);
  if (status != MYRIAD_OK) return session->fail(status, thd);
  int error = 0;
  myriad_row row;
  Buffer pk;
  status = myriad_cursor_seek(cursor, MYRIAD_SEEK_EXACT, key.data(), key.size(), &row);
  while (status == MYRIAD_OK) {
    const uchar *at = row.key;
    size_t length = row.key_len;
    if (index.core_no &&
        !child->plan().clustered_part(index, row.key, row.key_len, row.value, row.value_len, &at, &length)) {
      error = HA_ERR_CRASHED;
      break;
    }
    pk.assign(at, length);
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED) {
      error = HA_ERR_ABORTED_BY_USER;
      break;
    }
    if ((error = change_child(thd, link, pk.data(), pk.size(), new_record, cascade))) break;
    status = myriad_cursor_next(cursor, &row);
  }
  myriad_cursor_close(cursor);
  if (error || status == MYRIAD_OK || status == MYRIAD_END) return error;
  return session->fail(status, thd);
}

/* Whether a cascade may go on to a row of the child. */
int References::may_change(THD *thd, const Link &link, const Cascade &cascade) {
  /* Rows of a table that is being updated in this chain may be half changed. What is deleted is so by deletes alone. */
  for (const Cascade *each = &cascade; each; each = each->up)
    if (!each->is_delete && *each->table == link.key.child) return violated(thd, link.key, HA_ERR_ROW_IS_REFERENCED);
  if (cascade.depth >= DEPTH_MAX) {
    push_warning_printf(
        thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_ROW_IS_REFERENCED,
        "MYRIAD: Cannot delete/update rows with cascading foreign key constraints that exceed max depth "
        "of %u. Please drop extra constraints and try again",
        DEPTH_MAX);
    return violated(thd, link.key, HA_ERR_FK_DEPTH_EXCEEDED);
  }
  return 0;
}

int References::change_child(THD *thd, Link *link, const uchar *pk, size_t pk_length, const uchar *new_record,
                             const Cascade &cascade) {
  const uint32_t action = action_of(*link, new_record);
  const bool removes = !new_record && action == MYRIAD_CASCADE;
  if (int error = may_change(thd, *link, cascade)) return error;
  ha_myriad *child = link->other->file();
  TABLE *table = link->other->table();
  std::vector<uchar> before(table->s->reclength), after;
  Buffer blobs;
  int error = child->read_for_cascade(thd, pk, pk_length, &blobs);
  if (error) return error == HA_ERR_KEY_NOT_FOUND ? 0 : error;
  if (link->other->compute_generated(thd, false)) return HA_ERR_GENERIC;
  memcpy(before.data(), table->record[0], before.size());
  Cascade next{&cascade, &link->key.child, removes, cascade.depth + 1, before.data()};
  if (removes) return child->remove_cascading(thd, pk, pk_length, &next);
  for (size_t i = 0; i < link->own.size(); i++) {
    Field *field = find_column(table, link->key.columns[i]);
    if (action == MYRIAD_SET_NULL && field->real_maybe_null())
      field->set_null();
    else if (action == MYRIAD_SET_NULL)
      return violated(thd, link->key, HA_ERR_ROW_IS_REFERENCED);
    else if (!store_as(thd, field, link->own[i], new_record) ||
             (link->indexed && !leads_to(m_file->plan().indexes()[link->own_index].parts[i], new_record, field)))
      return violated(thd, link->key, HA_ERR_ROW_IS_REFERENCED);
  }
  if (link->other->compute_generated(thd, true)) return HA_ERR_GENERIC;
  after.assign(table->record[0], table->record[0] + before.size());
  error = child->change_cascading(thd, after.data(), pk, pk_length, link->key, &next);
  if (error != HA_ERR_FOUND_DUPP_KEY) return error;
  Session *session = Session::of(thd);
  session->duplicate_table = table->s->table_name.str;
  const uint no = child->duplicate_index();
  session->duplicate_index = no < table->s->keys ? table->key_info[no].name.str : "";
  return HA_ERR_FOREIGN_DUPLICATE_KEY;
}

}  // namespace myriad

using namespace myriad;

/* ---- the handler's part -------------------------------------------------------------------------------------------
 */

/* What is known of the table's foreign keys, read anew if any have changed anywhere. */
int ha_myriad::load_references() {
  const uint64_t version = myriad_references_version(myriad_core);
  if (version == m_references_version) return 0;
  ForeignKeys own, of_others;
  int error = myriad_error_noted(foreign_keys_of(m_name, &own), ha_thd());
  if (!error) error = myriad_error_noted(references_to(m_name, &of_others), ha_thd());
  if (error) return error;
  m_references_version = version;
  m_references.reset(own.empty() && of_others.empty() ? nullptr : new References(this, own, of_others));
  if (!m_references) return 0;
  if (Session *session = Session::of(ha_thd(), false))
    if (session->copied_table == m_name) m_references->leave_unchecked(session->kept_foreign_keys);
  return 0;
}

/* Before a row is changed: metadata locks on all whom the change concerns. A child that had another name when they were
   read is met under its new one. `references`: what is known under these locks; it stays while the caller, which may be
   in the middle of a cascade, works with it. */
int ha_myriad::lock_relatives(THD *thd, const uchar *old_record, const uchar *new_record, const ForeignKey *cause,
                              std::shared_ptr<References> *references) {
  for (;;) {
    *references = m_references;
    if (m_references)
      if (int error = m_references->lock(thd, old_record, new_record, cause)) return error;
    if (m_references_version == myriad_references_version(myriad_core)) return 0;
    if (int error = load_references()) return error;
  }
}

/* A DELETE has no need of the parents of what it deletes, nor has a SELECT FOR UPDATE; tables of their triggers and
   functions are another matter. */
static bool adds_no_children(THD *thd, const TABLE *table) {
  const int command = thd_sql_command(thd);
  const TABLE_LIST *named = table->pos_in_table_list;
  return (command == SQLCOM_DELETE || command == SQLCOM_DELETE_MULTI || command == SQLCOM_SELECT) && named &&
         !named->prelocking_placeholder;
}

/* Before a statement that changes the table. */
int ha_myriad::use_references(THD *thd) {
  for (;;) {
    if (int error = load_references()) return error;
    if (!m_references || !checks_foreign_keys(thd) || adds_no_children(thd, table)) return 0;
    if (int error = m_references->lock_parents(thd)) return error;
    /* A rename of a parent may have been waited for. */
    if (m_references_version == myriad_references_version(myriad_core)) return 0;
  }
}

bool ha_myriad::enforces(const uchar *old_record, const uchar *new_record) {
  return m_references && checks_foreign_keys(ha_thd()) && m_references->concerns(old_record, new_record);
}

/* A new row whose operations are pending. */
int ha_myriad::insert_checked(const uchar *record) {
  THD *thd = ha_thd();
  std::shared_ptr<References> references;
  if (int error = lock_relatives(thd, nullptr, record, nullptr, &references)) return error;
  uint64_t before = 0;
  if (!m_bulk_copy)
    if (int error = fail(myriad_savepoint(core(), &before))) return error;
  int error = apply();
  uint32_t last = UINT32_MAX;
  if (error == HA_ERR_FOUND_DUPP_KEY && duplicate_index() < MAX_KEY) last = m_plan->core_number(duplicate_index());
  if (!references || (error && last == UINT32_MAX)) return error;
  const int violation = references->check_parents(thd, nullptr, record, {0, last}, nullptr, !error);
  if (!violation || m_bulk_copy) return violation ? violation : error;
  return undo_to(before, violation);
}

int ha_myriad::undo_to(uint64_t savepoint, int error) {
  if (myriad_rolls_back_whole(error)) return error;
  const int failed = fail(myriad_rollback_to(core(), savepoint));
  return failed ? failed : error;
}

int ha_myriad::update_checked(const uchar *old_record, const uchar *new_record) {
  THD *thd = ha_thd();
  std::shared_ptr<References> references;
  if (int error = lock_relatives(thd, old_record, new_record, nullptr, &references)) return error;
  uint64_t before = 0;
  if (int error = fail(myriad_savepoint(core(), &before))) return error;
  int error = change(old_record, new_record);
  if (!references) return error;
  Cascade cascade{nullptr, &m_name, false, 1, old_record};
  if (error == HA_ERR_FOUND_DUPP_KEY && duplicate_index() < MAX_KEY) {
    const uint32_t last = m_plan->core_number(duplicate_index());
    const int violation = references->update_failed(thd, new_record, last, &cascade);
    return undo_to(before, violation ? violation : error);
  }
  if (error) return error;
  error = references->row_updated(thd, new_record, nullptr, &cascade);
  return error ? undo_to(before, error) : 0;
}

int ha_myriad::delete_checked(const uchar *record) {
  THD *thd = ha_thd();
  std::shared_ptr<References> references;
  if (int error = lock_relatives(thd, record, nullptr, nullptr, &references)) return error;
  uint64_t before = 0;
  if (int error = fail(myriad_savepoint(core(), &before))) return error;
  int error = remove(record);
  if (error || !references) return error;
  Cascade cascade{nullptr, &m_name, true, 1, record};
  error = references->row_deleted(thd, &cascade);
  return error ? undo_to(before, error) : 0;
}

/* The row with this clustered key, locked, into record[0]. */
int ha_myriad::read_for_cascade(THD *thd, const uchar *pk, size_t pk_length, Buffer *blobs) {
  m_user_thd = thd;
  m_session = Session::of(thd);
  myriad_row row;
  myriad_status status =
      myriad_get(core(), m_table, 0, pk, pk_length, false, MYRIAD_LOCK_X, MYRIAD_WAIT, &row, nullptr);
  if (status == MYRIAD_END) return HA_ERR_KEY_NOT_FOUND;
  if (status != MYRIAD_OK) return fail(status);
  myriad::Template all;
  m_plan->make_template(table, true, &all);
  return unpack(all, table->record[0], row, blobs);
}

int ha_myriad::remove_cascading(THD *thd, const uchar *pk, size_t pk_length, Cascade *cascade) {
  std::shared_ptr<References> references;
  if (int error = lock_relatives(thd, cascade->record, nullptr, nullptr, &references)) return error;
  m_pk.assign(pk, pk_length);
  int error = remove(cascade->record);
  if (error || !references) return error;
  return references->row_deleted(thd, cascade);
}

int ha_myriad::change_cascading(THD *thd, const uchar *new_record, const uchar *pk, size_t pk_length,
                                const ForeignKey &cause, Cascade *cascade) {
  std::shared_ptr<References> references;
  if (int error = lock_relatives(thd, cascade->record, new_record, &cause, &references)) return error;
  m_pk.assign(pk, pk_length);
  int error = change(cascade->record, new_record);
  if (error == HA_ERR_RECORD_IS_THE_SAME) return 0;
  if (error || !references) return error;
  return references->row_updated(thd, new_record, &cause, cascade);
}
