/* What the shim keeps for a connection, the plugin's globals, and the mapping of errors. */
#ifndef MYRIAD_SESSION_H
#define MYRIAD_SESSION_H
#include "server.h"
#include "drop_table.h"
#include "references.h"
#include <string>

extern handlerton *myriad_hton;
extern myriad_engine *myriad_core;

/* Codes of the plugin for errors that the server has no code for; the text is the core's. */
enum {
  MYRIAD_HA_ERR_IO = HA_ERR_LAST + 100,
  MYRIAD_HA_ERR_TABLESPACE,
  MYRIAD_HA_ERR_FORMAT,
  MYRIAD_HA_ERR_BUFFER_POOL,
  MYRIAD_HA_ERR_POISONED,
  MYRIAD_HA_ERR_TOO_LONG,
  MYRIAD_HA_ERR_OTHER
};

/* A core session and where its transaction stands. Belongs to one connection (or one handler, for sequences). */
class Session {
public:
  static Session *of(THD *thd, bool create = true);
  ~Session();
  int start(THD *thd);
  /* For a handler's: the connection that uses the table now. The next one may come when that has gone. */
  void set_user(THD *thd);
  myriad_session *core() { return m_core; }
  /* Registers the statement with the server and starts it in the core, once for each statement. */
  int use(THD *thd);
  /* After XA PREPARE: the transaction belongs to no session until this one, or another connection, ends it. */
  void leave_prepared(const uint8_t *xid, size_t length);
  void take_back_prepared();
  void forget_left_prepared();
  void forget_transaction();
  /* Maps a status to a handler error; marks the transaction for rollback where it must be. */
  int fail(myriad_status status, THD *thd, const char *table = nullptr);

  bool statement_active = false;
  bool prepared = false;
  bool ordered = false;     /* commit_ordered was called */
  bool locked_rows = false; /* some statement of the transaction locked rows */
  bool xa = false;          /* prepared by XA PREPARE */
  myriad_isolation isolation = MYRIAD_REPEATABLE_READ;
  uint duplicate_key = MAX_KEY; /* server number of the last duplicate's index */

  /* Foreign keys: the tables looked at, what the last error was about, and the table that a copying ALTER fills with
     the names of those that its rows satisfy already. */
  myriad::Relatives relatives;
  std::string violation, duplicate_table, duplicate_index;
  std::string copied_table;
  std::vector<std::string> kept_foreign_keys;
  RefusedDrop refused_drop;

private:
  myriad_session *m_core = nullptr;
  std::string m_prepared_xid; /* of the transaction that was left prepared */
};

/* Handler error for a status; pure. */
int myriad_error(myriad_status status);
/* The same, with the core's sentence as a warning where the server's message would say too little. */
/* `table`: the core's name of the one that was used, for the error log. */
int myriad_error_noted(myriad_status status, THD *thd, const char *table = nullptr);
/* The same error, told to the client under `code` where the server would show its number without a text: in CREATE,
   RENAME and at the ends of transactions. */
int myriad_told(int error, uint code);
/* The statement's error, where no handler of a table tells it. */
void myriad_tell(myriad_status status, THD *thd, myf flags = MYF(0));
/* Whether after this handler error the transaction is rolled back whole. */
bool myriad_rolls_back_whole(int error);

/* Whether the engine runs; it does until the statement's end then. */
bool myriad_is_running(THD *thd);

/* "./db/t" -> "db/t"; a path elsewhere (temporary tables) -> "#tmp/" and its file name. */
std::string myriad_name(const char *path);
bool myriad_is_temporary_path(const char *path);
bool myriad_is_temporary(const std::string &name);
/* In the core's name of a partition, between the table's name and its own. */
constexpr const char *MYRIAD_PARTITION = "#P#";
/* Of the core's name of a table: where what makes it one of a table's partitions begins; npos if it is none. */
inline size_t myriad_partition_at(const std::string &name) { return name.find(MYRIAD_PARTITION); }
inline bool myriad_is_partition(const std::string &name) { return myriad_partition_at(name) != std::string::npos; }
/* Names in a folder but for itself and the one above. */
std::vector<std::string> myriad_files_in(const std::string &folder);
/* A file's name without its ending, if it has this one. */
bool myriad_strip_ending(const std::string &name, const char *ending, std::string *stem);

void myriad_init_transactions(handlerton *hton);
void myriad_init_discovery(handlerton *hton);
myriad_isolation myriad_isolation_of(THD *thd);
uint64_t myriad_lock_wait_ms(THD *thd);
void myriad_report(myriad_log_level level, const char *text);
void myriad_about_to_wait(void *waiter, void *holder);
int myriad_need_ordering(void *waiter, void *holder);
int myriad_victim_preference(void *first, void *second);
void myriad_falls_asleep();
void myriad_wakes_up();
bool myriad_show_status(handlerton *hton, THD *thd, stat_print_fn *print, enum ha_stat_type stat);

#endif
