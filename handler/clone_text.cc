/* Views and triggers of a template, see clone_text.h.

   A view's file has the query as the server prints it, with each name in backticks and each table under its database. A
   trigger's has the statement as it was written. Both are read word by word for the places where the template's name
   stands before a dot. In a view all such places get the copy's name, but for those where it is a table's alias: there
   the server's parser tells, which finds one table more in the copy if the place names a database. In a trigger the
   statement's head loses the name; anywhere else it refuses the copy. */
#include "clone_text.h"
#include "session.h"
#include "sp_head.h"
#include "sql_parse.h"
#include <mysql/service_md5.h>

namespace myriad {

namespace {

/* The files' format: lines `key=value`; texts escaped so that they have no line ends, lists as 'text' 'text'. */
class Definition {
public:
  Definition(std::string *file) : m_file(file) {}

  bool find(const char *key, std::string *value) const {
    size_t begin, length;
    if (!place(key, &begin, &length)) return false;
    value->assign(*m_file, begin, length);
    return true;
  }
  bool text(const char *key, std::string *text) const {
    std::string value;
    return find(key, &value) && unescape(value, text);
  }
  bool list(const char *key, std::vector<std::string> *texts) const {
    std::string value;
    if (!find(key, &value)) return false;
    for (size_t at = 0; at < value.size();) {
      if (value[at] != '\'') return false;
      size_t end = at + 1;
      while (end < value.size() && value[end] != '\'') end += value[end] == '\\' ? 2 : 1;
      if (end >= value.size()) return false;
      std::string text;
      if (!unescape(value.substr(at + 1, end - at - 1), &text)) return false;
      texts->push_back(std::move(text));
      at = end + 1;
      if (at < value.size() && value[at++] != ' ') return false;
    }
    return true;
  }
  void set(const char *key, const std::string &value) {
    size_t begin, length;
    if (place(key, &begin, &length)) m_file->replace(begin, length, value);
  }
  static std::string escape(const std::string &text) {
    std::string value;
    for (char c : text) {
      const char *from = strchr(PLAIN, c);
      if (c && from)
        (value += '\\') += ESCAPED[from - PLAIN];
      else if (c)
        value += c;
      else
        value += "\\0";
    }
    return value;
  }

private:
  static constexpr const char PLAIN[] = "\\\n\032'", ESCAPED[] = "\\nz'";

  bool place(const char *key, size_t *begin, size_t *length) const {
    const std::string line = std::string("\n") + key + "=";
    size_t at = m_file->find(line);
    if (at == std::string::npos) return false;
    *begin = at + line.size();
    size_t end = m_file->find('\n', *begin);
    if (end == std::string::npos) return false;
    *length = end - *begin;
    return true;
  }
  static bool unescape(const std::string &value, std::string *text) {
    text->clear();
    for (size_t i = 0; i < value.size(); i++) {
      char c = value[i];
      if (c == '\\') {
        if (++i == value.size()) return false;
        const char *from = strchr(ESCAPED, value[i]);
        if (value[i] == '0')
          c = '\0';
        else if (from && *from)
          c = PLAIN[from - ESCAPED];
        else
          return false;
      }
      *text += c;
    }
    return true;
  }

  std::string *m_file;
};

constexpr const char Definition::PLAIN[], Definition::ESCAPED[];

/* A name or a mark of a statement; strings, numbers and comments are left out. */
struct Word {
  size_t begin, end;
  bool is_name, quoted;
  std::string name; /* unquoted; of a mark: the character */
};

class Words {
public:
  Words(const std::string &text, CHARSET_INFO *cs, sql_mode_t mode)
      : m_text(text), m_cs(cs), m_ansi_quotes(mode & MODE_ANSI_QUOTES),
        m_backslash(!(mode & MODE_NO_BACKSLASH_ESCAPES)) {
    while (m_at < m_text.size()) read();
  }
  const std::vector<Word> &all() const { return m_words; }

private:
  size_t character(size_t at) const {
    const char *begin = m_text.data() + at;
    int length = my_ismbchar(m_cs, begin, m_text.data() + m_text.size());
    return length > 1 ? size_t(length) : 1;
  }
  bool starts(const char *what) const { return !m_text.compare(m_at, strlen(what), what); }
  bool in_name(size_t at) const {
    const uchar c = uchar(m_text[at]);
    return isalnum(c) || c == '_' || c == '$' || c >= 0x80;
  }
  void read() {
    const char c = m_text[m_at];
    if (c == '`' || (c == '"' && m_ansi_quotes))
      read_quoted(c, true);
    else if (c == '\'' || c == '"')
      read_quoted(c, false);
    else if (c == '#' || (starts("--") && (m_at + 2 == m_text.size() || uchar(m_text[m_at + 2]) <= ' ')))
      m_at = std::min(m_text.find('\n', m_at), m_text.size());
    else if (starts("/*!") || starts("/*M!"))
      read_version(); /* the server reads what follows */
    else if (starts("/*"))
      m_at = std::min(m_text.find("*/", m_at + 2), m_text.size() - 2) + 2;
    else if (in_name(m_at))
      read_name();
    else {
      const size_t end = m_at + character(m_at);
      if (uchar(c) > ' ') m_words.push_back({m_at, end, false, false, m_text.substr(m_at, end - m_at)});
      m_at = end;
    }
  }
  void read_quoted(char quote, bool is_name) {
    const size_t begin = m_at++;
    std::string name;
    while (m_at < m_text.size()) {
      const size_t length = character(m_at);
      if (length == 1 && m_text[m_at] == quote) {
        if (m_at + 1 == m_text.size() || m_text[m_at + 1] != quote) break;
        m_at++;
      } else if (length == 1 && m_text[m_at] == '\\' && !is_name && m_backslash && m_at + 1 < m_text.size()) {
        m_at++;
      }
      const size_t end = m_at + character(m_at);
      name.append(m_text, m_at, end - m_at);
      m_at = end;
    }
    m_at = std::min(m_at + 1, m_text.size());
    if (is_name) m_words.push_back({begin, m_at, true, true, name});
  }
  void read_version() {
    m_at = m_text.find('!', m_at) + 1;
    while (m_at < m_text.size() && isdigit(uchar(m_text[m_at]))) m_at++;
  }
  void read_name() {
    const size_t begin = m_at;
    while (m_at < m_text.size() && in_name(m_at)) m_at += character(m_at);
    m_words.push_back({begin, m_at, true, false, m_text.substr(begin, m_at - begin)});
  }

  const std::string &m_text;
  CHARSET_INFO *m_cs;
  const bool m_ansi_quotes, m_backslash;
  size_t m_at = 0;
  std::vector<Word> m_words;
};

bool is_mark(const std::vector<Word> &words, size_t no, char mark) {
  return no < words.size() && !words[no].is_name && words[no].name[0] == mark;
}

/* A place where a statement has a name before a dot that nothing qualifies. */
struct Place {
  size_t begin, end;
  size_t dot_end;  /* behind the dot */
  bool is_certain; /* that it names a database: three parts, or a function's name */
};

std::vector<Place> places_of(const std::string &name, const std::vector<Word> &words) {
  std::vector<Place> found;
  for (size_t i = 0; i + 1 < words.size(); i++) {
    const Word &word = words[i];
    if (!word.is_name || !is_mark(words, i + 1, '.') ||
        (i && (is_mark(words, i - 1, '.') || is_mark(words, i - 1, '@'))))
      continue;
    if (my_strcasecmp(table_alias_charset, word.name.c_str(), name.c_str())) continue;
    found.push_back({word.begin, word.end, words[i + 1].end, is_mark(words, i + 3, '.') || is_mark(words, i + 3, '(')});
  }
  return found;
}

/* How the server reads a definition's text. */
struct Context {
  std::string client_cs, connection_collation;
  CHARSET_INFO *cs = nullptr;
  sql_mode_t mode = 0;
  bool is_view = false;

  bool find_cs() {
    cs = get_charset_by_csname(client_cs.c_str(), MY_CS_PRIMARY, MYF(MY_UTF8_IS_UTF8MB3));
    return cs != nullptr;
  }
};

/* A name in the text's character set. */
bool convert(const std::string &name, CHARSET_INFO *cs, std::string *converted) {
  StringBuffer<NAME_LEN + 1> buffer;
  uint errors = 0;
  if (buffer.copy(name.c_str(), name.size(), system_charset_info, cs, &errors) || errors) return false;
  converted->assign(buffer.ptr(), buffer.length());
  return true;
}

/* Parses a definition with `db` as the current database, as its use would, and shows the result to `see`. False if it
   is no statement. */
template <class See>
bool parse(THD *thd, const std::string &text, const std::string &db, const Context &context, See see) {
  MEM_ROOT root;
  init_alloc_root(PSI_NOT_INSTRUMENTED, &root, 16384, 0, MYF(MY_THREAD_SPECIFIC));
  Query_arena arena(&root, Query_arena::STMT_INITIALIZED), before;
  thd->set_n_backup_active_arena(&arena, &before);
  LEX *const lex_before = thd->lex;
  sp_rcontext *const context_before = thd->spcont;
  const LEX_CSTRING db_before = thd->db;
  const LEX_CSTRING db_now = {db.c_str(), db.size()};
  thd->reset_db(&db_now);
  bool parsed;
  {
    Sql_mode_save_for_frm_handling mode(thd);
    if (!context.is_view) thd->variables.sql_mode = context.mode;
    TABLE_LIST list;
    memset(static_cast<void *>(&list), 0, sizeof list);
    list.db = list.table_name = db_now;
    list.view_client_cs_name = {context.client_cs.c_str(), context.client_cs.size()};
    list.view_connection_cl_name = {context.connection_collation.c_str(), context.connection_collation.size()};
    Dummy_error_handler silent;
    thd->push_internal_handler(&silent);
    View_creation_ctx *creation = View_creation_ctx::create(thd, &list);
    Parser_state state;
    char *copy = strmake_root(&root, text.data(), text.size());
    LEX lex;
    thd->lex = &lex;
    lex_start(thd);
    lex.trg_chistics.event = TRG_EVENT_MAX;
    lex.trg_chistics.action_time = TRG_ACTION_MAX;
    thd->spcont = nullptr;
    parsed = creation && copy && !state.init(thd, copy, text.size()) && !parse_sql(thd, &state, creation);
    thd->pop_internal_handler();
    if (parsed) parsed = see(&lex);
    lex_end(&lex);
    thd->lex = lex_before;
  }
  thd->spcont = context_before;
  thd->reset_db(&db_before);
  thd->restore_active_arena(&arena, &before);
  arena.free_items();
  free_root(&root, MYF(0));
  return parsed;
}

bool same_database(const LEX_CSTRING &db, const std::string &name) {
  return db.str && !my_strcasecmp(table_alias_charset, db.str, name.c_str());
}

bool count_tables(const Clone &clone, const std::string &query, const Context &context, const std::string &db,
                  size_t *tables) {
  *tables = 0;
  return parse(clone.thd, query, clone.to, context, [&](LEX *lex) {
    for (const TABLE_LIST *table = lex->query_tables; table; table = table->next_global)
      *tables += same_database(table->db, db);
    return true;
  });
}

std::string in_backticks(const std::string &name) {
  std::string text = "`";
  for (char c : name) text.append(c == '`' ? 2 : 1, c);
  return text + "`";
}

std::string replaced(const std::string &text, const std::vector<Place> &places, const std::string &with) {
  std::string result;
  size_t done = 0;
  for (const Place &place : places) {
    result.append(text, done, place.begin - done) += with;
    done = place.end;
  }
  return result.append(text, done, std::string::npos);
}

/* The places in a view's query that name the template, of all that may. */
bool databases_in(const Clone &clone, const std::string &query, const Context &context, const std::string &to,
                  const std::vector<Place> &places, std::vector<bool> *chosen) {
  size_t before, with;
  if (!count_tables(clone, query, context, clone.to, &before)) return false;
  for (const Place &place : places) {
    bool names_database = place.is_certain;
    if (!names_database) {
      if (!count_tables(clone, replaced(query, {place}, to), context, clone.to, &with)) return false;
      names_database = with > before;
    }
    chosen->push_back(names_database);
  }
  return true;
}

bool rewrite(const std::vector<bool> &chosen, std::vector<Place> places, const std::string &to, std::string *text) {
  if (places.size() != chosen.size()) return false;
  size_t kept = 0;
  for (size_t i = 0; i < chosen.size(); i++)
    if (chosen[i]) places[kept++] = places[i];
  places.resize(kept);
  *text = replaced(*text, places, to);
  return true;
}

std::string md5_of(const std::string &text) {
  static const char digits[] = "0123456789abcdef";
  uchar digest[MY_MD5_HASH_SIZE];
  my_md5(digest, text.data(), text.size());
  std::string hex;
  for (uchar byte : digest) (hex += digits[byte >> 4]) += digits[byte & 15];
  return hex;
}

/* A statement's head ends where what it does begins. */
size_t head_of(const std::vector<Word> &words) {
  auto is = [&](size_t no, const char *keyword) {
    return no < words.size() && words[no].is_name && !words[no].quoted &&
           !my_strcasecmp(system_charset_info, words[no].name.c_str(), keyword);
  };
  for (size_t i = 0; i < words.size(); i++)
    if (is(i, "FOR") && is(i + 1, "EACH") && is(i + 2, "ROW")) return words[i].begin;
  return 0;
}

/* Takes the template's name out of a trigger's statement. */
bool copy_trigger(const Clone &clone, const Context &context, std::string *statement, std::string *why) {
  std::string from, name;
  if (!convert(clone.from, context.cs, &from)) from.clear();
  const std::vector<Word> words = Words(*statement, context.cs, context.mode).all();
  std::vector<Place> places;
  if (!from.empty()) places = places_of(from, words);
  const size_t head = head_of(words);
  bool names_template = false;
  for (Place &place : places) {
    names_template |= place.begin >= head;
    place.end = place.dot_end;
  }
  std::string copy = replaced(*statement, places, "");
  bool whole = parse(
      clone.thd, names_template ? *statement : copy, names_template ? clone.from : clone.to, context, [&](LEX *lex) {
        if (!lex->sphead || !lex->query_tables) return false;
        name.assign(lex->sphead->m_name.str, lex->sphead->m_name.length);
        return names_template ||
               (same_database(lex->sphead->m_db, clone.to) && same_database(lex->query_tables->db, clone.to));
      });
  if (names_template)
    *why = "trigger '" + name + "' names the database in what it does";
  else if (whole)
    *statement = copy;
  return whole && !names_template;
}

}  // namespace

bool copy_view(const Clone &clone, const std::string &view, std::string *file, Definers *definers, std::string *why) {
  *why = "view '" + view + "' cannot be read";
  Definition definition(file);
  Context context;
  context.is_view = true;
  std::string query, body, user, host, from, to;
  if (!definition.text("query", &query) || !definition.text("view_body_utf8", &body) ||
      !definition.find("client_cs_name", &context.client_cs) ||
      !definition.find("connection_cl_name", &context.connection_collation) ||
      !definition.find("definer_user", &user) || !definition.find("definer_host", &host) || !context.find_cs())
    return false;
  definers->users.push_back(user + "@" + host);
  if (!convert(clone.from, context.cs, &from)) return true; /* no text of this character set can name it */
  std::vector<Place> places = places_of(from, Words(query, context.cs, 0).all());
  if (places.empty()) return true;
  if (!convert(clone.to, context.cs, &to)) {
    *why = "view '" + view + "' is written in a character set that the name '" + clone.to + "' is not in";
    return false;
  }
  std::vector<bool> chosen;
  const std::string quoted = in_backticks(to);
  if (!databases_in(clone, query, context, quoted, places, &chosen)) return false;
  size_t left;
  if (!rewrite(chosen, places, quoted, &query) ||
      !rewrite(chosen, places_of(clone.from, Words(body, system_charset_info, 0).all()), in_backticks(clone.to),
               &body) ||
      !count_tables(clone, query, context, clone.from, &left) || left)
    return false;
  definition.set("query", Definition::escape(query));
  definition.set("md5", md5_of(query));
  definition.set("source", Definition::escape(query));
  definition.set("view_body_utf8", Definition::escape(body));
  return true;
}

bool copy_triggers(const Clone &clone, const std::string &table, std::string *file, Definers *definers,
                   std::string *why) {
  *why = "the triggers of table '" + table + "' cannot be read";
  Definition definition(file);
  std::vector<std::string> statements, client_cs, collations;
  std::string modes, value;
  if (!definition.list("triggers", &statements) || !definition.find("sql_modes", &modes) ||
      !definition.list("definers", &definers->users) || !definition.list("client_cs_names", &client_cs) ||
      !definition.list("connection_cl_names", &collations) || client_cs.size() != statements.size() ||
      collations.size() != statements.size())
    return false;
  const char *mode = modes.c_str();
  for (size_t i = 0; i < statements.size(); i++) {
    Context context;
    context.client_cs = client_cs[i];
    context.connection_collation = collations[i];
    char *end;
    context.mode = strtoull(mode, &end, 10);
    if (end == mode || !context.find_cs()) return false;
    mode = end;
    if (!copy_trigger(clone, context, &statements[i], why)) return false;
    value += std::string(i ? " " : "") + "'" + Definition::escape(statements[i]) + "'";
  }
  definition.set("triggers", value);
  return true;
}

/* An image ends with its expressions. Its header has the image's length; the part that begins where the header's second
   segment ends has its own length and that of the expressions (TABLE_SHARE::init_from_binary_frm_image). */
bool copy_image(const Clone &clone, std::string *image) {
  constexpr size_t HEADER = 64, IMAGE_LENGTH = 10, SEGMENT_LENGTH = 4, INFO = 288, INFO_LENGTHS = 2, EXPRESSIONS = 286;
  auto *bytes = reinterpret_cast<uchar *>(&(*image)[0]);
  if (image->size() < HEADER) return true;
  const size_t segment_end = HEADER + uint2korr(bytes + SEGMENT_LENGTH);
  if (image->size() < segment_end + 4) return true;
  const size_t info = uint4korr(bytes + segment_end);
  if (image->size() < info + INFO) return true;
  const size_t old_length = uint2korr(bytes + info + EXPRESSIONS);
  if (old_length <= FRM_VCOL_NEW_BASE_SIZE || old_length > image->size() - info - INFO) return true;
  size_t at = image->size() - old_length + FRM_VCOL_NEW_BASE_SIZE;
  std::string result = image->substr(0, at);
  while (at + FRM_VCOL_NEW_HEADER_SIZE <= image->size()) {
    const size_t head = FRM_VCOL_NEW_HEADER_SIZE + bytes[at + 5], length = uint2korr(bytes + at + 3);
    if (at + head + length > image->size()) return false;
    std::string expression = image->substr(at + head, length);
    const std::vector<Place> places = places_of(clone.from, Words(expression, system_charset_info, 0).all());
    expression = replaced(expression, places, in_backticks(clone.to));
    const size_t to = result.size();
    result.append(*image, at, head) += expression;
    int2store(reinterpret_cast<uchar *>(&result[to + 3]), uint16(expression.size()));
    if (expression.size() > UINT_MAX16) return false;
    at += head + length;
  }
  if (at != image->size()) return false;
  const size_t new_length = result.size() - (image->size() - old_length);
  const long more = long(result.size()) - long(image->size());
  bytes = reinterpret_cast<uchar *>(&result[0]);
  int4store(bytes + IMAGE_LENGTH, uint32(result.size()));
  int2store(bytes + info + EXPRESSIONS, uint16(new_length));
  for (size_t length : {info, info + INFO_LENGTHS}) {
    const long grown = uint2korr(bytes + length) + more;
    if (grown > long(UINT_MAX16)) return false;
    int2store(bytes + length, uint16(grown));
  }
  image->swap(result);
  return true;
}

}  // namespace myriad
