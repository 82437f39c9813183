#!/usr/bin/python3
"""Kills a server under load, again and again, and checks what came back against a record kept outside of it.

Each loop: clients work (transfers, inserts, updates, deletes, XA, DDL), the server gets SIGKILL, starts again (at times
killed once more while it recovers), and everything is checked:
  - what was acknowledged is there; a transaction whose COMMIT was under way is there wholly or not at all; others not;
  - every secondary index agrees with its table, and CHECK TABLE finds nothing;
  - prepared XA transactions are back with their locks, and can be committed and rolled back;
  - a table under DDL is as it was before or as it should be after, and no half-made table is left;
  - with --administration: log and pool change their sizes, databases are copied and dropped, space is given back meanwhile, and
    a backup that was whole before the kill can be verified and prepared;
  - with --switch-redo-log: all of this after a part of the work was done without the log;
  - with --binlog: a fresh replica that reads the whole binary log ends with the same rows.
The record is in this process's memory. XA is left out with --binlog, where the server itself logs an XA PREPARE before
the engine has it.
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts"))
import pymysql  # noqa: E402
import server  # noqa: E402

ACCOUNTS = 100
START_BALANCE = 1000
RETRY = {1205, 1213, 1020}      # lock wait timeout, deadlock, record changed
LOST = {2006, 2013, 1053, 1927, 1317, 1184}

OPTIONS = {"INNODB": ["--innodb-log-file-size=16M"], "MYRIAD": ["--loose-myriad-log-capacity=33554432"], "ROCKSDB": []}


def check_table(rows, name):
    """What CHECK TABLE finds; `rows` runs a statement."""
    return [f"CHECK TABLE {name}: {row[2]} {row[3]}" for row in rows(f"CHECK TABLE {name} EXTENDED")
            if row[2] in ("error", "warning") or row[2] == "status" and row[3] != "OK"]


class Lost(Exception):
    """The server is gone."""


class Client(threading.Thread):
    """One connection that works until the server dies. Subclasses fill in round()."""

    db = "crash"

    def __init__(self, run, number):
        super().__init__(daemon=True)
        self.run_state, self.number = run, number
        self.random = random.Random(run.seed * 1000 + number)
        self.commits, self.trouble = 0, None

    def attach(self):
        """A new thread's worth of work on the same record (threads start only once)."""
        threading.Thread.__init__(self, daemon=True)

    def run(self):
        try:
            self.connection = self.run_state.server.connect(database=self.db, autocommit=True)
            self.cursor = self.connection.cursor()
            while not self.run_state.stopping:
                self.round()
        except Lost:
            pass
        except Exception as problem:
            if self.is_trouble(problem):
                self.trouble = problem
        finally:
            try:
                self.connection.close()
            except Exception:
                pass

    def is_trouble(self, problem):
        """Whether it is none of what a client meets as the server goes."""
        if not isinstance(problem, (pymysql.err.OperationalError, OSError)):
            return True
        return not self.run_state.stopping and (not problem.args or problem.args[0] not in LOST | {2002, 2003})

    def sql(self, text, args=None):
        """Runs a statement; False if the transaction has to be tried again."""
        try:
            self.cursor.execute(text, args)
            return True
        except (pymysql.err.OperationalError, pymysql.err.InternalError, pymysql.err.InterfaceError,
                pymysql.err.DatabaseError) as problem:
            code = problem.args[0] if problem.args else 0
            if code in RETRY:
                return False
            if code in LOST or code == 0 or not self.run_state.server.alive() or self.run_state.stopping:
                raise Lost from None
            raise

    def rollback(self):
        self.sql("ROLLBACK")


class Transfers(Client):
    """Moves money between accounts and writes each move in a ledger: balances must follow from the ledger."""

    def __init__(self, run, number):
        super().__init__(run, number)
        self.sequence, self.acknowledged, self.in_doubt = 0, set(), set()

    def round(self):
        self.sequence += 1
        a, b = self.random.sample(range(ACCOUNTS), 2)
        amount = self.random.randrange(1, 50)
        if self.random.random() < 0.5:
            a, b = min(a, b), max(a, b)      # the rest may deadlock
        key = self.number * 10_000_000 + self.sequence
        if not (self.sql("BEGIN")
                and self.sql("UPDATE accounts SET balance=balance-%s WHERE id=%s", (amount, a))
                and self.sql("UPDATE accounts SET balance=balance+%s WHERE id=%s", (amount, b))
                and self.sql("INSERT INTO ledger VALUES (%s,%s,%s,%s,%s,%s)",
                             (key, self.number, self.sequence, a, b, amount))):
            return self.rollback()
        if self.random.random() < 0.1:
            return self.rollback()
        self.in_doubt = {key}
        if self.sql("COMMIT"):
            self.acknowledged.add(key)
            self.commits += 1
        self.in_doubt = set()

    def check(self, found):
        mine = {key for key in found if key // 10_000_000 == self.number}
        problems = [f"ledger row {key} was acknowledged and is lost" for key in sorted(self.acknowledged - mine)]
        problems += [f"ledger row {key} was never committed and is there"
                     for key in sorted(mine - self.acknowledged - self.in_doubt)]
        self.acknowledged, self.in_doubt = mine, set()
        return problems


class Rows(Client):
    """Inserts, updates and deletes rows of its own, several in a transaction, some of them large."""

    def __init__(self, run, number):
        super().__init__(run, number)
        self.model, self.after, self.next_id = {}, None, 0

    def fresh(self, key):
        r = self.random
        size = r.choice([0, 10, 50, 200, 200, 900, 5000, 40000 if r.random() < 0.1 else 20])
        return (f"u{self.number}-{key}-{r.randrange(10**9)}", r.randrange(1000),
                (f"{r.randrange(10**9)}-" * (size // 10 + 1))[:size])

    def round(self):
        changed = dict(self.model)
        if not self.sql("BEGIN"):
            return
        for _ in range(self.random.choice([1, 1, 2, 5, 20])):
            kind = self.random.random()
            if kind < 0.5 or not changed:
                self.next_id += 1
                key = self.number * 10_000_000 + self.next_id
                row = self.fresh(key)
                ok = self.sql("INSERT INTO rows_t VALUES (%s,%s,%s,%s)", (key,) + row)
                changed[key] = row
            elif kind < 0.8:
                key = self.random.choice(list(changed))
                row = self.fresh(key)
                ok = self.sql("UPDATE rows_t SET u=%s, k=%s, v=%s WHERE id=%s", row + (key,))
                changed[key] = row
            else:
                key = self.random.choice(list(changed))
                ok = self.sql("DELETE FROM rows_t WHERE id=%s", (key,))
                del changed[key]
            if not ok:
                return self.rollback()
        if self.random.random() < 0.1:
            return self.rollback()
        self.after = changed
        if self.sql("COMMIT"):
            self.model = changed
            self.commits += 1
        self.after = None

    def check(self, found):
        mine = {row[0]: row[1:] for row in found if row[0] // 10_000_000 == self.number}
        if mine == self.model:
            problems = []
        elif self.after is not None and mine == self.after:
            problems = []
        else:
            lost = [k for k in self.model if k not in mine and k not in (self.after or self.model) or
                    k in self.model and k not in mine and (self.after is None or k in self.after)]
            extra = [k for k in mine if k not in self.model and k not in (self.after or {})]
            wrong = [k for k in mine if k in self.model and mine[k] != self.model[k]
                     and mine[k] != (self.after or {}).get(k)]
            problems = [f"rows of client {self.number} are neither the last commit nor the one under way: "
                        f"lost {lost[:3]} ({len(lost)}), extra {extra[:3]} ({len(extra)}), "
                        f"changed {wrong[:3]} ({len(wrong)}), under way: {self.after is not None}"]
        self.model, self.after = mine, None
        return problems


class Prepared(Client):
    """XA transactions: some decided at once, some left prepared for the restart to find."""

    def __init__(self, run, number):
        super().__init__(run, number)
        self.sequence, self.state = 0, {}    # key -> preparing, prepared, committing, committed, rolling, rolled

    def round(self):
        self.sequence += 1
        key = self.number * 10_000_000 + self.sequence
        xid = f"'x{key}'"
        if not (self.sql(f"XA START {xid}") and
                self.sql("INSERT INTO xa_t VALUES (%s,%s)", (key, f"u{key}")) and self.sql(f"XA END {xid}")):
            raise Lost
        self.state[key] = "preparing"
        self.sql(f"XA PREPARE {xid}")
        self.state[key] = "prepared"
        choice = self.random.random()
        if choice < 0.05 and sum(1 for s in self.state.values() if s == "prepared") < 20:
            self.connection.close()          # leaves it prepared; a connection can hold but one
            self.connection = self.run_state.server.connect(database="crash", autocommit=True)
            self.cursor = self.connection.cursor()
        elif choice < 0.8:
            self.state[key] = "committing"
            self.sql(f"XA COMMIT {xid}")
            self.state[key] = "committed"
            self.commits += 1
        else:
            self.state[key] = "rolling"
            self.sql(f"XA ROLLBACK {xid}")
            self.state[key] = "rolled"

    MAY = {"preparing": {"prepared", "absent"}, "prepared": {"prepared"}, "committing": {"prepared", "present"},
           "committed": {"present"}, "rolling": {"prepared", "absent"}, "rolled": {"absent"}}

    def check(self, cursor, recovered, srv):
        problems = []
        cursor.execute("SELECT id FROM xa_t WHERE id DIV 10000000 = %s", (self.number,))
        present = {row[0] for row in cursor.fetchall()}
        for key in sorted(present - set(self.state)):
            problems.append(f"xa row {key} was never prepared and is there")
        decided = 0
        for key, state in sorted(self.state.items()):
            seen = "present" if key in present else "prepared" if f"x{key}" in recovered else "absent"
            if seen not in self.MAY[state]:
                problems.append(f"xa transaction {key} was {state} and is now {seen}")
            if seen == "prepared":
                try:
                    cursor.execute("INSERT INTO xa_t VALUES (%s,%s)", (key, f"other{key}"))
                    problems.append(f"xa transaction {key} has lost its locks")
                except pymysql.err.OperationalError as problem:
                    if problem.args[0] != 1205:
                        raise
                commit = self.random.random() < 0.5
                cursor.execute(f"XA {'COMMIT' if commit else 'ROLLBACK'} 'x{key}'")
                state, decided = "committed" if commit else "rolled", decided + 1
            else:
                state = "committed" if seen == "present" else "rolled"
            self.state[key] = state
        if decided:
            cursor.execute("SELECT id FROM xa_t WHERE id DIV 10000000 = %s", (self.number,))
            present = {row[0] for row in cursor.fetchall()}
            expected = {key for key, state in self.state.items() if state == "committed"}
            if present != expected:
                problems.append(f"after deciding, xa rows differ: {sorted(present ^ expected)[:5]}")
        return problems


class Definitions(Client):
    """CREATE, ALTER, RENAME, TRUNCATE, DROP: each is wholly done or not done."""

    def __init__(self, run, number):
        super().__init__(run, number)
        self.model, self.after, self.next = {}, None, 0     # name -> (columns, rows)

    def round(self):
        time.sleep(self.random.random() * 0.02)
        model, kind = dict(self.model), self.random.random()
        name = self.random.choice(list(model)) if model else None
        if name is None or kind < 0.35 and len(model) < 30:
            self.next += 1
            name, n = f"ddl_{self.number}_{self.next}", self.random.randrange(0, 40)
            source = " UNION ALL ".join(f"SELECT {i} a, {i} b" for i in range(n)) or "SELECT 0 a, 0 b WHERE 0"
            # CREATE ... SELECT is not atomic against a crash in any engine with the binlog, so it is two statements.
            statement = f"CREATE TABLE {name} (a INT PRIMARY KEY, b INT, KEY b(b))"
            model[name] = (2, 0)
            self.apply(statement, model)
            if n:
                model = dict(model)
                model[name] = (2, n)
                self.apply(f"INSERT INTO {name} {source}", model)
            return
        columns, rows = model[name]
        if kind < 0.55:
            model[name] = (columns + 1, rows)
            self.apply(f"ALTER TABLE {name} ADD COLUMN c{columns} INT DEFAULT {columns}, ALGORITHM=COPY", model)
        elif kind < 0.65:
            self.apply(f"ALTER TABLE {name} {'COMMENT' if self.random.random() < 0.5 else 'FORCE, COMMENT'} '{kind}'",
                       model)
        elif kind < 0.8:
            self.next += 1
            new = f"ddl_{self.number}_{self.next}"
            model[new] = model.pop(name)
            self.apply(f"RENAME TABLE {name} TO {new}", model)
        elif kind < 0.87:
            model[name] = (columns, 0)
            # TRUNCATE comes to the binary log after the engine's commit, in any engine, and nothing makes up for a crash in
            # between.
            self.apply(f"{'DELETE FROM' if self.run_state.args.binlog else 'TRUNCATE TABLE'} {name}", model)
        else:
            del model[name]
            self.apply(f"DROP TABLE {name}", model)

    def apply(self, statement, model):
        self.after = model
        if self.sql(statement):
            self.model = model
            self.commits += 1
        self.after = None

    def check(self, cursor):
        cursor.execute("SHOW TABLES LIKE 'ddl\\_%%'" % ())
        names = [row[0] for row in cursor.fetchall() if row[0].startswith(f"ddl_{self.number}_")]
        found, problems = {}, []
        for name in names:
            try:
                cursor.execute(f"SELECT COUNT(*), COALESCE(SUM(a=b),0) FROM {name} FORCE INDEX (b)")
                rows, same = cursor.fetchone()
                cursor.execute(f"SELECT COUNT(*) FROM {name} FORCE INDEX (PRIMARY)")
                if cursor.fetchone()[0] != rows or same != rows:
                    problems.append(f"table {name}: its index disagrees")
                cursor.execute(f"SHOW COLUMNS FROM {name}")
                found[name] = (len(cursor.fetchall()), rows)
            except pymysql.err.MySQLError as problem:
                problems.append(f"table {name} is listed but cannot be read: {problem}")
        if found != self.model and (self.after is None or found != self.after):
            differ = {k: (self.model.get(k), (self.after or {}).get(k), found.get(k))
                      for k in set(found) | set(self.model) if found.get(k) != self.model.get(k)}
            problems.append(f"definitions (before, after, found): {dict(list(differ.items())[:4])}")
        self.model, self.after = found, None
        return problems


class Administration(Client):
    """Settings that move the engine's files and memory while the others work: the log larger and smaller, the pool, copies and
    drops of databases, space given back, backups. No row of the others may notice, and a backup that is whole can be used."""

    def __init__(self, run, number):
        super().__init__(run, number)
        self.sequence, self.whole = 0, None

    def round(self):
        self.sequence += 1
        self.random.choice([self.settings, self.settings, self.clone, self.leave_space, self.backup])()

    def may_fail(self, text, codes):
        """Runs a statement that may be refused in one of these ways."""
        try:
            self.sql(text)
            return True
        except pymysql.err.MySQLError as problem:
            if problem.args[0] not in codes:
                raise
            return False

    def settings(self):
        choice, mib = self.random.choice, 1 << 20
        name, value = choice([("log_capacity", choice([4, 5, 16, 64]) * mib), ("log_capacity", choice([4, 8, 32]) * mib),
                              ("buffer_pool_size", choice([6, 8, 16, 48]) * mib), ("change_buffer_max_size", choice([0, 25])),
                              ("max_open_files", choice([10, 2000]))])
        # Too much of the pool is in use, or the log grows faster than it is copied.
        self.may_fail(f"SET GLOBAL myriad_{name}={value}", {1231, 1296, 3, 1030})

    def clone(self):
        self.sql("DROP DATABASE IF EXISTS copied")
        self.may_fail("SELECT myriad_clone_database('crash', 'copied')", {1296, 1105, 1050, 1030})

    def leave_space(self):
        """Tables whose room goes back to the file system."""
        self.sql("CREATE DATABASE IF NOT EXISTS space")
        name = f"space.t{self.random.randrange(3)}"
        self.sql(f"CREATE TABLE IF NOT EXISTS {name} (id INT PRIMARY KEY, v TEXT)")
        self.sql(f"REPLACE INTO {name} SELECT seq, REPEAT('v', 1000) FROM seq_1_to_8000")
        self.sql(self.random.choice([f"DROP TABLE {name}", f"DELETE FROM {name}", f"DELETE FROM {name} WHERE id > 4000"]))

    def backup(self):
        folder = os.path.join(self.run_state.server.folder, f"backup{self.sequence}-{self.random.randrange(10**9)}")
        if self.whole:
            shutil.rmtree(self.whole)
            self.whole = None
        os.mkdir(folder)
        self.sql(f"SET GLOBAL myriad_backup_dir='{folder}'")
        stages = ["START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT", "END"]
        # The last one completes the copy; the copy of the log may have been too slow.
        done = all(self.may_fail(f"BACKUP STAGE {stage}", {1296, 4148, 1030, 1205}) for stage in stages)
        self.sql("SET GLOBAL myriad_backup_dir=''")
        if done:
            self.whole = folder
        else:
            self.may_fail("BACKUP STAGE END", {1296, 4148, 4145, 4146, 4147, 1030})
            shutil.rmtree(folder)

    def check(self, _):
        folder, self.whole = self.whole, None
        if not folder:
            return []
        tool = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "myriad")
        problems = []
        for step in ["verify", "prepare", "verify"]:
            done = subprocess.run([tool, step, folder], capture_output=True, text=True, timeout=300)
            if done.returncode:
                problems.append(f"{step} of a whole backup: {done.returncode} {done.stdout[-300:]} {done.stderr[-300:]}")
        shutil.rmtree(folder)
        return problems


class Run:
    """One server's life through all loops."""

    def __init__(self, args, seed):
        self.args, self.seed, self.stopping = args, seed, False
        self.random = random.Random(seed)
        options = OPTIONS.get(args.engine.upper(), []) + server.wait_timeout_options(args.engine, 2) + args.option
        self.server = server.Server(args.engine, options=options, pool_mib=args.pool_mib, binlog=args.binlog,
                                    tcp=args.binlog, keep=args.keep)
        kinds = [Transfers] * 3 + [Rows] * 3 + [Definitions] + ([] if args.binlog else [Prepared])
        kinds += [Administration] if args.administration else []
        self.clients = [kind(self, i + 1) for i, kind in enumerate(kinds)]

    def setup(self):
        self.server.start()
        self.server.query("CREATE DATABASE crash")
        for sql in [
                "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT)",
                f"INSERT INTO accounts SELECT seq, {START_BALANCE} FROM seq_0_to_{ACCOUNTS - 1}",
                "CREATE TABLE ledger (id INT PRIMARY KEY, client INT, sequence INT, a INT, b INT, amount INT, "
                "UNIQUE (client, sequence), KEY (a), KEY (b))",
                "CREATE TABLE rows_t (id INT PRIMARY KEY, u VARCHAR(60), k INT, v LONGTEXT, UNIQUE u(u), KEY k(k), "
                "KEY kv(k, v(20)))",
                "CREATE TABLE xa_t (id INT PRIMARY KEY, u VARCHAR(60), UNIQUE u(u))"]:
            self.server.query(sql, "crash")

    def work(self, seconds):
        self.stopping = False
        for client in self.clients:
            client.attach()
            client.trouble = None
            client.start()
        if self.args.switch_redo_log:
            # Back on in the middle of the work: what is acknowledged from then on survives, and all before.
            self.server.query("SET GLOBAL myriad_redo_log=OFF")
            time.sleep(seconds / 2)
            self.server.query("SET GLOBAL myriad_redo_log=ON")
            seconds = self.random.random() * seconds / 4
        time.sleep(seconds)
        self.server.kill()
        self.stopping = True
        for client in self.clients:
            client.join(60)
        return [f"client {c.number} ({type(c).__name__}): {type(c.trouble).__name__} {c.trouble}"
                for c in self.clients if c.trouble] + \
               [f"client {c.number} hangs" for c in self.clients if c.is_alive()]

    def recover(self):
        while self.random.random() < 0.3:        # die during recovery too
            killer = threading.Timer(self.random.random() * 0.6, lambda: self.server.process.kill())
            killer.start()
            try:
                self.server.start()
            except server.ServerError:
                pass
            killer.join()
            self.server.kill()                   # the timer may have been early, and met the process before
        return self.server.start()

    def check(self):
        problems = []
        connection = self.server.connect(database="crash")
        cursor = connection.cursor()

        def rows(sql):
            cursor.execute(sql)
            return cursor.fetchall()
        if not self.args.binlog:
            recovered = {row[3].decode() if isinstance(row[3], bytes) else row[3] for row in rows("XA RECOVER")}
            cursor.execute(self.no_wait())
            for client in self.clients:
                if isinstance(client, Prepared):
                    problems += client.check(cursor, recovered, self.server)
            left = rows("XA RECOVER")
            if left:
                problems.append(f"{len(left)} prepared transactions belong to nobody: {left[:2]}")
        ledger = {row[0] for row in rows("SELECT id FROM ledger FORCE INDEX (PRIMARY)")}
        content = rows("SELECT id, u, k, v FROM rows_t FORCE INDEX (PRIMARY)")
        for client in self.clients:
            if isinstance(client, Transfers):
                problems += client.check(ledger)
            elif isinstance(client, Rows):
                problems += client.check(content)
            elif isinstance(client, (Definitions, Administration)):
                problems += client.check(cursor)
        wrong = rows(f"""SELECT id, balance, {START_BALANCE}
            - (SELECT COALESCE(SUM(amount),0) FROM ledger FORCE INDEX (a) WHERE a=accounts.id)
            + (SELECT COALESCE(SUM(amount),0) FROM ledger FORCE INDEX (b) WHERE b=accounts.id) AS expected
            FROM accounts HAVING balance <> expected""")
        if wrong:
            problems.append(f"{len(wrong)} balances do not follow from the ledger: {wrong[:3]}")
        for table, columns, where in [
                ("ledger", "client,sequence", {"PRIMARY": "id", "client": "client"}),
                ("ledger", "id,a", {"PRIMARY": "id", "a": "a"}), ("ledger", "id,b", {"PRIMARY": "id", "b": "b"}),
                ("rows_t", "id,u", {"PRIMARY": "id", "u": "u"}),
                ("rows_t", "id,k", {"PRIMARY": "id", "k": "k", "kv": "k"}),
                ("xa_t", "id,u", {"PRIMARY": "id", "u": "u"})]:
            sums = {index: rows(f"SELECT COUNT(*), BIT_XOR(CRC32(CONCAT_WS('|',{columns}))) FROM {table} "
                                f"FORCE INDEX ({index}) WHERE {column} >= ''")[0] for index, column in where.items()}
            if len(set(sums.values())) != 1:
                problems.append(f"indexes of {table} disagree: {sums}")
        tables = [row[0] for row in rows("SHOW TABLES")]
        problems += [f"stray table {name}" for name in tables if "#sql" in name or "sql-" in name]
        strays = [n for n in os.listdir(os.path.join(self.server.datadir, "crash")) if n.startswith("#sql")]
        problems += [f"stray file {name}" for name in strays]
        for name in tables:
            problems += check_table(rows, name)
        connection.close()
        return problems

    def no_wait(self):
        """A session setting that makes lock conflicts fail at once, or as soon as the engine can."""
        setting = {"INNODB": "innodb_lock_wait_timeout=0", "MYRIAD": "myriad_lock_wait_timeout=0",
                   "ROCKSDB": "rocksdb_lock_wait_timeout=1"}.get(self.args.engine.upper(), "lock_wait_timeout=1")
        return f"SET SESSION {setting}"

    def cut_unfinished_groups(self, names):
        """A kill in the middle of the server's write leaves half an event, or a transaction without its end, at the end of
        a binary log. MariaDB keeps it; whatever the engine, it refuses to send half an event (error 1236), and a replica
        refuses rows without the end of their statement (1595). Nothing from there on can have been acknowledged."""
        for name in names:
            path = os.path.join(self.server.datadir, name)
            with open(path, "rb") as f:
                log = f.read()
            end = whole_groups(log)
            if end < len(log):
                print(f"  {name}: {len(log) - end} bytes of a transaction that the kill interrupted are cut off", flush=True)
                os.truncate(path, end)

    def check_binlog(self):
        """Feeds the whole binary log to a fresh server and compares the tables."""
        with server.Server("InnoDB", options=["--server-id=2"], flush=0, tcp=True) as replica:
            self.server.query("CREATE USER IF NOT EXISTS r@'127.0.0.1' IDENTIFIED BY 'r'")
            self.server.query("GRANT REPLICATION SLAVE ON *.* TO r@'127.0.0.1'")
            files = self.server.query("SHOW BINARY LOGS")
            position = self.server.query("SHOW MASTER STATUS")[0]
            self.cut_unfinished_groups([row[0] for row in files[:-1]])
            replica.query(f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={self.server.port}, MASTER_USER='r', "
                          f"MASTER_PASSWORD='r', MASTER_LOG_FILE='{files[0][0]}', MASTER_LOG_POS=4")
            replica.query("START SLAVE")
            done = replica.query(f"SELECT MASTER_POS_WAIT('{position[0]}', {position[1]}, 300)")[0][0]
            if done is None or done < 0:
                with replica.connect(cursorclass=pymysql.cursors.DictCursor) as c, c.cursor() as cursor:
                    cursor.execute("SHOW SLAVE STATUS")
                    status = cursor.fetchone()
                threads = [row[4:8] for row in replica.query("SHOW PROCESSLIST") if row[1] == "system user"]
                return [f"the replica stopped: {status['Last_SQL_Error'] or status['Last_IO_Error'] or 'no error'}; at "
                        f"{status['Relay_Master_Log_File']} {status['Exec_Master_Log_Pos']}, read to {status['Master_Log_File']} "
                        f"{status['Read_Master_Log_Pos']}, wanted {position[0]} {position[1]}; {threads}"]
            theirs = {row[0] for row in replica.query("SHOW TABLES", "crash")}
            ours = {row[0] for row in self.server.query("SHOW TABLES", "crash")}
            problems = [f"binlog: tables differ: {sorted(ours ^ theirs)[:5]}"] if ours != theirs else []
            for name in sorted(ours & theirs):
                sums = [zlib.crc32(repr(sorted(s.query(f"SELECT * FROM {name}", "crash"))).encode())
                        for s in (self.server, replica)]
                if sums[0] != sums[1]:
                    problems.append(f"binlog: the rows of {name} differ from what the binary log gives")
            return problems


def whole_groups(log):
    """Where the last whole event group of a binary log ends: an event by itself, or a GTID and what belongs to it."""
    GTID, QUERY, XID, HEADER = 162, 2, 16, 19
    at, group, standalone = 4, None, False
    while at + HEADER <= len(log):
        kind, end = log[at + 4], at + int.from_bytes(log[at + 9:at + 13], "little")
        if not at + HEADER <= end <= len(log):
            break
        if kind == GTID:
            group, standalone = at, bool(log[at + HEADER + 12] & 1)
        elif kind == XID or kind == QUERY and (standalone or log[at:end - 4].endswith((b"\0COMMIT", b"\0ROLLBACK"))):
            group = None
        at = end
    return at if group is None else group


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", default="MYRIAD")
    parser.add_argument("--loops", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="longest time of work before a kill")
    parser.add_argument("--binlog", action="store_true")
    parser.add_argument("--switch-redo-log", action="store_true",
                        help="switch myriad_redo_log off and on again in each loop, a moment before the kill")
    parser.add_argument("--administration", action="store_true",
                        help="beside it change the sizes of log and pool, copy and drop databases, give space back, make backups")
    parser.add_argument("--pool-mib", type=int, default=16)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--option", action="append", default=[], help="one more option of the server")
    parser.add_argument("--keep", action="store_true", help="keep the data directory")
    args = parser.parse_args()
    if args.binlog and args.administration:
        parser.error("the server that reads the binary log is InnoDB's, which cannot copy a database")
    seed = args.seed if args.seed is not None else int(time.time()) % 1_000_000
    print(f"crash on {args.engine}{' with binlog' if args.binlog else ''}, seed {seed}", flush=True)
    run = Run(args, seed)
    passed = failed = 0
    try:
        run.setup()
        for loop in range(args.loops):
            before = sum(c.commits for c in run.clients)
            problems = run.work(0.2 + run.random.random() * args.seconds)
            commits = sum(c.commits for c in run.clients) - before
            try:
                seconds = run.recover()
                problems += run.check()
            except (server.ServerError, pymysql.err.MySQLError) as problem:
                problems.append(f"{type(problem).__name__}: {problem}")
            if args.binlog and not problems and loop == args.loops - 1:
                problems += run.check_binlog()
            print(f"  loop {loop + 1}: {commits} commits" + (f", up again in {seconds:.2f} s" if not problems else ""),
                  flush=True)
            for problem in problems[:10]:
                print(f"    failed: {problem}", flush=True)
            passed, failed = passed + (not problems), failed + bool(problems)
            if problems and not run.server.alive():
                break
        if run.server.alive():
            run.server.stop()
    finally:
        if args.keep:
            print(f"kept: {run.server.folder}")
    print(f"crash on {args.engine}: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    server.main_guard(main)
