"""Clients of power.py. Each has tables of its own and keeps every state that it has brought them to, with two positions in the
disk's record: before its COMMIT (or statement) was sent, and after that was acknowledged."""
import itertools
import os
import time
import zlib

import pymysql
import run

# Failed to read from the .par file.
NO_PAR = 1696


class Refused(Exception):
    """A statement failed in a way that the client did not allow for."""


class State:
    """A state that a client's tables were brought to, and between which positions and moments."""

    def __init__(self, content, begun, begun_s):
        self.content, self.begun, self.begun_s, self.done, self.done_s = content, begun, begun_s, None, None


class Client(run.Client):
    """Works until the server dies. Subclasses have setup() statements, round(), content() and more that check() looks at."""

    def __init__(self, owner, number):
        super().__init__(owner, number)
        self.db = f"c{number}"
        self.states = []
        self.allowed = {}

    def setup(self, cursor):
        cursor.execute(f"CREATE DATABASE {self.db}")
        cursor.execute(f"USE {self.db}")
        self.make(cursor)
        first = State(self.beginning(), 0, 0)
        first.done, first.done_s = 0, 0
        self.states = [first]

    def make(self, cursor):
        pass

    def beginning(self):
        return {}

    @property
    def now(self):
        return self.states[-1].content

    def is_trouble(self, problem):
        return not self.run_state.stopping

    def sql(self, text, args=None, allowed=()):
        """Runs a statement; the error's number if it is one to try again after, or one of those allowed."""
        try:
            self.cursor.execute(text, args)
            return 0
        except pymysql.err.MySQLError as problem:
            code = problem.args[0] if problem.args else 0
            if code in run.RETRY or code in allowed:
                return code
            if code in run.LOST or code == 0 or self.run_state.stopping or not self.run_state.server.alive():
                raise run.Lost from None
            raise Refused(f"{text[:200]}: {problem}") from None

    def rows(self, text):
        self.sql(text)
        return self.cursor.fetchall()

    def reach(self, content, statement="COMMIT", allowed=()):
        """Sends what brings the tables to this content, and waits for the answer."""
        state = State(content, self.run_state.position(), time.monotonic())
        self.states.append(state)
        code = self.sql(statement, allowed=allowed)
        if code:
            self.states.pop()
        else:
            self.settle()
            state.done, state.done_s = self.run_state.position(), time.monotonic()
        return code

    def settle(self):
        """Makes durable what the server does not, whatever the engine."""

    def same(self, content, found):
        return content == found

    def possible(self, cut, lazy_s=None):
        """Which states the tables may be in when the power failed at a position (the first and the last of them); `lazy_s`: all that
        was acknowledged before that moment is there."""
        surely = (lambda s: s.done is not None and s.done_s < lazy_s) if lazy_s is not None \
            else (lambda s: s.done is not None and s.done <= cut)
        least = max(i for i, s in enumerate(self.states) if i == 0 or surely(s))
        most = max(i for i, s in enumerate(self.states) if i == 0 or s.begun < cut or lazy_s is not None and s.begun <= cut)
        return least, max(least, most)

    def check(self, cursor, cut, lazy_s):
        """What is wrong, and the numbers of the first and the last state that are as what was found."""
        least, most = self.possible(cut, lazy_s)
        found = self.content(cursor)
        for at in range(most, least - 1, -1):
            if self.same(self.states[at].content, found):
                first = at
                while first > least and self.same(self.states[first - 1].content, found):
                    first -= 1
                return self.more(cursor, cut, at), (first, at)
        older = [i for i in range(least) if self.same(self.states[i].content, found)]
        want = self.states[least].content
        return [f"{type(self).__name__} {self.number}: not in a state between {least} and {most} of {len(self.states) - 1}"
                + (f" but in the older {older[-1]}: acknowledged changes are lost" if older else f": {differences(want, found)}")], None

    def more(self, cursor, cut, at):
        return []


def differences(want, found):
    if not isinstance(want, dict):
        return f"wanted {str(want)[:300]}, found {str(found)[:300]}"
    keys = [k for k in set(want) | set(found) if want.get(k) != found.get(k)]
    return "; ".join(f"{k}: wanted {str(want.get(k))[:250]}, found {str(found.get(k))[:250]}" for k in keys[:4]) + f" ({len(keys)})"


def mark(value):
    return None if value is None else (len(value), zlib.crc32(value))


class Rows(Client):
    """Rows of all sizes, AUTO_INCREMENT, UNIQUE, savepoints; others alter the table meanwhile."""

    OPTION = ""

    def make(self, cursor):
        cursor.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, u VARCHAR(40), k INT, v LONGBLOB, UNIQUE u(u), KEY k(k), "
                       f"KEY kv(k, v(20))) {self.OPTION}")
        self.numbers = itertools.count(1)
        self.numbers_given = set()
        self.given = []             # (position after the acknowledgement, AUTO_INCREMENT value)

    def value(self):
        r = self.random
        size = r.choice([0, 10, 50, 200, 200, 900, 5000, r.choice([20, 20, 60000, 1 << 20])])
        return r.randbytes(min(size, 64)) * (max(size, 64) // 64) if size else b""

    def change(self, content, ids):
        r, kind = self.random, self.random.random()
        if kind < 0.5 or not content or len(content) < 20:
            u, k, v = f"u{next(self.numbers)}", r.randrange(50), self.value()
            if self.sql("INSERT INTO t (u, k, v) VALUES (%s, %s, %s)", (u, k, v)):
                return False
            new, last = self.cursor.lastrowid, max(self.numbers_given, default=0)
            if new <= last:
                raise Refused(f"{self.db}.t: AUTO_INCREMENT gives {new} after {last}")
            self.numbers_given = {new}
            content[new] = (u, k, mark(v))
            ids.append(new)
            return True
        key = r.choice(list(content))
        if kind < 0.75 and len(content) < 300:
            u, k, v = f"u{next(self.numbers)}", r.randrange(50), self.value()
            code = self.sql("UPDATE t SET u=%s, k=%s, v=%s WHERE id=%s", (u, k, v, key))
            content[key] = (u, k, mark(v))
        else:
            code = self.sql("DELETE FROM t WHERE id=%s", (key,))
            del content[key]
        return not code

    def round(self):
        content, ids = dict(self.now), []
        if self.sql("BEGIN"):
            return
        for _ in range(self.random.choice([1, 1, 2, 5, 20])):
            if self.random.random() < 0.1:
                self.sql("SAVEPOINT s")
                before, kept = dict(content), len(ids)
                if not (self.change(content, ids) and self.change(content, ids)):
                    return self.sql("ROLLBACK")
                if self.random.random() < 0.6:
                    if self.sql("ROLLBACK TO s"):
                        return self.sql("ROLLBACK")
                    content = before
                    del ids[kept:]
            elif not self.change(content, ids):
                return self.sql("ROLLBACK")
        if self.random.random() < 0.1:
            return self.sql("ROLLBACK")
        if not self.reach(content):
            self.given += [(self.states[-1].done, i) for i in ids]

    def content(self, cursor):
        cursor.execute(f"SELECT id, u, k, v FROM {self.db}.t FORCE INDEX (PRIMARY)")
        return {i: (u, k, mark(v)) for i, u, k, v in cursor.fetchall()}

    def more(self, cursor, cut, at):
        cursor.execute(f"INSERT INTO {self.db}.t (u) VALUES ('next')")
        new = cursor.lastrowid
        cursor.execute(f"DELETE FROM {self.db}.t WHERE id={new}")
        # Only where the commit waited for the log.
        last = max((i for done, i in self.given if done <= cut), default=0) if not self.run_state.lazy else max(self.states[at].content, default=0)
        return [f"{self.db}.t: AUTO_INCREMENT gives {new} again, {last} was acknowledged"] if new <= last else []


class RowsApart(Rows):
    OPTION = "TABLESPACE_PER='TABLE'"


class Family(Client):
    """Foreign keys: CASCADE to children, SET NULL for theirs."""

    def make(self, cursor):
        cursor.execute("CREATE TABLE p (id INT PRIMARY KEY, v INT)")
        cursor.execute("CREATE TABLE c (id INT PRIMARY KEY, p INT, v VARCHAR(200), KEY(p), "
                       "FOREIGN KEY (p) REFERENCES p(id) ON DELETE CASCADE ON UPDATE CASCADE)")
        cursor.execute("CREATE TABLE g (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c(id) ON DELETE SET NULL ON UPDATE CASCADE)")
        self.numbers = itertools.count(1)

    def beginning(self):
        return {"p": (), "c": (), "g": ()}

    def round(self):
        p, c, g = ({r[0]: r[1:] for r in self.now[name]} for name in "pcg")
        r, kind = self.random, self.random.random()
        self.sql("BEGIN")
        code = 0
        if kind < 0.5 or not p:
            i = next(self.numbers) * 100
            code = self.sql(f"INSERT INTO p VALUES ({i}, {i})")
            p[i] = (i,)
            n = r.randrange(0, 30)
            if n:
                code = code or self.sql("INSERT INTO c VALUES " + ",".join(f"({i + j},{i},'{i}{'x' * (j * 6)}')" for j in range(n)))
                code = code or self.sql("INSERT INTO g VALUES " + ",".join(f"({i + j},{i + j})" for j in range(n)))
            c.update({i + j: (i, f"{i}{'x' * (j * 6)}") for j in range(n)})
            g.update({i + j: (i + j,) for j in range(n)})
        elif kind < 0.7 or len(p) > 25:
            i = r.choice(list(p))
            code = self.sql(f"DELETE FROM p WHERE id={i}")
            del p[i]
            gone = {k for k, row in c.items() if row[0] == i}
            c = {k: row for k, row in c.items() if k not in gone}
            g = {k: ((None,) if row[0] in gone else row) for k, row in g.items()}
        elif kind < 0.9:
            i, to = r.choice(list(p)), next(self.numbers) * 100
            code = self.sql(f"UPDATE p SET id={to} WHERE id={i}")
            p[to] = p.pop(i)
            c = {k: ((to, row[1]) if row[0] == i else row) for k, row in c.items()}
        else:
            code = self.sql("DELETE FROM g WHERE c IS NULL")
            g = {k: row for k, row in g.items() if row[0] is not None}
        if code or r.random() < 0.1:
            return self.sql("ROLLBACK")
        self.reach({name: tuple(sorted((k,) + row for k, row in rows.items())) for name, rows in zip("pcg", (p, c, g))})

    def content(self, cursor):
        found = {}
        for name in "pcg":
            cursor.execute(f"SELECT * FROM {self.db}.{name} FORCE INDEX (PRIMARY)")
            found[name] = tuple(sorted(cursor.fetchall()))
        return found

    def more(self, cursor, cut, at):
        problems = []
        for child, parent, column in ("c", "p", "p"), ("g", "c", "c"):
            cursor.execute(f"SELECT COUNT(*) FROM {self.db}.{child} x LEFT JOIN {self.db}.{parent} y ON x.{column}=y.id "
                           f"WHERE x.{column} IS NOT NULL AND y.id IS NULL")
            if cursor.fetchone()[0]:
                problems.append(f"{self.db}: rows of {child} without their parents")
            try:
                cursor.execute(f"INSERT INTO {self.db}.{child} (id, {column}) VALUES (99999999, 88888888)")
                problems.append(f"{self.db}.{child}: its foreign key is gone")
            except pymysql.err.IntegrityError:
                pass
        return problems


class Definitions(Client):
    """DDL of all kinds; a state is the tables' names, columns, indexes, partitions and rows."""

    def make(self, cursor):
        self.numbers = itertools.count(1)

    def apply(self, statement, model):
        self.reach(model, statement)

    def settle(self):
        """The server does not sync the .par files of partitioned tables."""
        folder = os.path.join(self.run_state.server.datadir, self.db)
        for path in [os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".par")] + [folder]:
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.close(file)

    def same(self, content, found):
        return content == {name: content.get(name) if table == NO_PAR else table for name, table in found.items()}

    def round(self):
        time.sleep(self.random.random() * 0.02)
        r, model = self.random, dict(self.now)
        name = r.choice(list(model)) if model else None
        # What comes to the binary log after the engine's commit is not made up for after a crash, in any engine.
        binlog = self.run_state.args.binlog
        if name is None or len(model) < 8 and r.random() < 0.3:
            name = f"t{next(self.numbers)}"
            parts = self.run_state.args.partitions and r.random() < 0.4
            option = r.choice(["", "TABLESPACE_PER='TABLE'", "TABLESPACE_PER='SERVER'", "TABLESPACE_PER='DATABASE'"]) if self.run_state.myriad and not binlog else ""
            model[name] = (("a", "b"), ("PRIMARY", "b"), ("p0", "p1", "pz") if parts else (), ())
            self.apply(f"CREATE TABLE {name} (a INT PRIMARY KEY, b INT, KEY b(b)) {option}" +
                       (" PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (100), "
                        "PARTITION pz VALUES LESS THAN MAXVALUE)" if parts else ""), model)
            return
        columns, keys, parts, rows = model[name]
        kinds = ["insert", "insert", "delete", "add column", "copy", "drop column", "add index", "drop index", "force", "optimize",
                 "rename", "drop", "comment"] + ([] if binlog else ["truncate"])
        kind = r.choice(kinds + (["add partition", "drop partition", "rebuild partition", "truncate partition", "reorganize"] if parts else []))
        if kind == "insert":
            first = max(rows, default=-1) + 1
            new = tuple(range(first, first + r.choice([1, 5, 40, 400])))
            model[name] = (columns, keys, parts, rows + new)
            self.apply(f"INSERT INTO {name} (a, b) VALUES " + ",".join(f"({i},{i})" for i in new), model)
        elif kind == "delete":
            left = tuple(i for i in rows if i % 3)
            model[name] = (columns, keys, parts, left)
            self.apply(f"DELETE FROM {name} WHERE a MOD 3 = 0", model)
        elif kind in ("add column", "copy"):
            new = f"c{next(self.numbers)}"
            model[name] = (columns + (new,), keys, parts, rows)
            self.apply(f"ALTER TABLE {name} ADD COLUMN {new} INT DEFAULT 7" + (", ALGORITHM=COPY" if kind == "copy" else ""), model)
        elif kind == "drop column" and len(columns) > 2:
            model[name] = (columns[:-1], keys, parts, rows)
            self.apply(f"ALTER TABLE {name} DROP COLUMN {columns[-1]}", model)
        elif kind == "add index" and len(keys) < 5:
            new = f"k{next(self.numbers)}"
            model[name] = (columns, tuple(sorted(keys + (new,))), parts, rows)
            self.apply(f"ALTER TABLE {name} ADD {'UNIQUE ' if r.random() < 0.5 else ''}INDEX {new} (b, a)", model)
        elif kind == "drop index" and len(keys) > 2:
            gone = next(k for k in keys if k.startswith("k"))
            model[name] = (columns, tuple(k for k in keys if k != gone), parts, rows)
            self.apply(f"DROP INDEX {gone} ON {name}", model)
        elif kind == "force":
            self.apply(f"ALTER TABLE {name} FORCE", model)
        elif kind == "optimize":
            self.apply(f"OPTIMIZE TABLE {name}", model)
            self.cursor.fetchall()
        elif kind == "comment":
            self.apply(f"ALTER TABLE {name} COMMENT='{next(self.numbers)}'", model)
        elif kind == "rename":
            new = f"t{next(self.numbers)}"
            model[new] = model.pop(name)
            self.apply(f"RENAME TABLE {name} TO {new}", model)
        elif kind == "drop":
            del model[name]
            self.apply(f"DROP TABLE {name}", model)
        elif kind == "truncate" and not parts:
            model[name] = (columns, keys, parts, ())
            self.apply(f"TRUNCATE TABLE {name}", model)
        elif kind == "add partition":
            new = f"p{next(self.numbers)}"
            at = 1000000 + next(self.numbers)
            model[name] = (columns, keys, parts[:-1] + (new, parts[-1]), rows)
            self.apply(f"ALTER TABLE {name} REORGANIZE PARTITION {parts[-1]} INTO (PARTITION {new} VALUES LESS THAN ({at}), "
                       f"PARTITION {parts[-1]} VALUES LESS THAN MAXVALUE)", model)
        elif kind == "drop partition" and parts[0] == "p0" and parts[1] == "p1":
            model[name] = (columns, keys, parts[1:], tuple(i for i in rows if i >= 10))
            self.apply(f"ALTER TABLE {name} DROP PARTITION p0", model)
        elif kind == "truncate partition" and "p1" in parts and not binlog:
            low = 10 if "p0" in parts else -1
            model[name] = (columns, keys, parts, tuple(i for i in rows if not low <= i < 100))
            self.apply(f"ALTER TABLE {name} TRUNCATE PARTITION p1", model)
        elif kind == "rebuild partition":
            self.apply(f"ALTER TABLE {name} REBUILD PARTITION {r.choice(parts)}", model)
        elif kind == "reorganize" and parts[:2] == ("p0", "p1"):
            model[name] = (columns, keys, ("p1",) + parts[2:], rows)
            self.apply(f"ALTER TABLE {name} REORGANIZE PARTITION p0, p1 INTO (PARTITION p1 VALUES LESS THAN (100))", model)

    def content(self, cursor):
        cursor.execute(f"SHOW TABLES FROM {self.db}")
        found = {}
        for (name,) in cursor.fetchall():
            try:
                found[name] = self.one(cursor, name)
            except pymysql.err.MySQLError as problem:
                found[name] = NO_PAR if problem.args[0] == NO_PAR else str(problem)
        return found

    def one(self, cursor, name):
        table = f"{self.db}.{name}"
        cursor.execute(f"SHOW COLUMNS FROM {table}")
        columns = tuple(row[0] for row in cursor.fetchall())
        cursor.execute(f"SHOW INDEX FROM {table}")
        keys = tuple(sorted({row[2] for row in cursor.fetchall()}))
        cursor.execute("SELECT PARTITION_NAME FROM information_schema.partitions WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s AND PARTITION_NAME "
                       "IS NOT NULL ORDER BY PARTITION_ORDINAL_POSITION", (self.db, name))
        parts = tuple(row[0] for row in cursor.fetchall())
        cursor.execute(f"SELECT a FROM {table} FORCE INDEX (PRIMARY) ORDER BY a")
        return columns, keys, parts, tuple(row[0] for row in cursor.fetchall())


class Prepared(Client):
    """XA transactions, of which some stay prepared."""

    def make(self, cursor):
        cursor.execute("CREATE TABLE x (id INT PRIMARY KEY, u VARCHAR(60), UNIQUE u(u))")
        self.records = []           # [id, prepare begun, done, decision, begun, done]
        self.numbers = itertools.count(1)

    def round(self):
        at, i = self.run_state.position, next(self.numbers)
        xid = f"'x{self.number}_{i}'"
        self.sql(f"XA START {xid}")
        self.sql(f"INSERT INTO x VALUES ({i}, 'u{i}')")
        self.sql(f"XA END {xid}")
        record = [i, at(), None, None, None, None]
        self.records.append(record)
        self.sql(f"XA PREPARE {xid}")
        record[2] = at()
        choice = self.random.random()
        if choice < 0.05 and sum(r[3] is None for r in self.records) < 20:
            self.connection.close()
            self.connection = self.run_state.server.connect(database=self.db, autocommit=True)
            self.cursor = self.connection.cursor()
            return
        record[3] = "COMMIT" if choice < 0.8 else "ROLLBACK"
        record[4] = at()
        self.sql(f"XA {record[3]} {xid}")
        record[5] = at()

    def check(self, cursor, cut, lazy_s):
        cursor.execute(self.run_state.no_wait)
        cursor.execute("XA RECOVER")
        names = {row[3].decode() if isinstance(row[3], bytes) else row[3] for row in cursor.fetchall()}
        prefix = f"x{self.number}_"
        recovered = {int(name[len(prefix):]) for name in names if name.startswith(prefix)}
        cursor.execute(f"SELECT id FROM {self.db}.x")
        present = {row[0] for row in cursor.fetchall()}
        problems, known = [], set()
        for i, begun, done, decision, decided, ended in self.records:
            known.add(i)
            seen = "committed" if i in present else "prepared" if i in recovered else "absent"
            may = {"absent"}
            if begun < cut:
                may.add("prepared")
            if done is not None and done <= cut and not self.run_state.lazy:
                may.discard("absent")
            if decision and decided < cut:
                outcome = "committed" if decision == "COMMIT" else "absent"
                may.add(outcome)
                if ended is not None and ended <= cut and not self.run_state.lazy:
                    may = {outcome}
            if self.run_state.lazy:
                may |= {"absent"}
            if seen not in may:
                problems.append(f"XA transaction {i} of client {self.number} is {seen}, may be {sorted(may)}")
        if present - known or recovered - known:
            problems.append(f"XA transactions that nobody made: {sorted(present - known)[:3]} {sorted(recovered - known)[:3]}")
        for i in recovered:
            try:
                cursor.execute(f"INSERT INTO {self.db}.x VALUES ({i}, 'other{i}')")
                problems.append(f"XA transaction {i} has lost its locks")
            except pymysql.err.OperationalError as problem:
                if problem.args[0] != 1205:
                    raise
            cursor.execute(f"XA {self.random.choice(['COMMIT', 'ROLLBACK'])} '{prefix}{i}'")
        return problems, None


class Alterer(Client):
    """Rebuilds and indexes the other clients' tables under them: no row of theirs may notice. Not with ALGORITHM=COPY, for which
    the server reads the AUTO_INCREMENT counter before it keeps writers out, so that values are given twice, whatever the engine."""

    def round(self):
        r = self.random
        table = r.choice([f"{c.db}.t" for c in self.run_state.clients if isinstance(c, Rows)])
        name = f"x{r.randrange(4)}"
        statement = r.choice([f"ALTER TABLE {table} ADD INDEX {name} ({r.choice(['k', 'u, k', 'v(30)'])})", f"ALTER TABLE {table} DROP INDEX {name}",
                              f"OPTIMIZE TABLE {table}", f"ALTER TABLE {table} FORCE",
                              f"ALTER TABLE {table} COMMENT='{r.random()}'", f"ANALYZE TABLE {table}", f"CHECK TABLE {table}"])
        if not self.sql(statement, allowed={1061, 1091, 1846, 1845}):
            self.cursor.fetchall()
        time.sleep(r.random() * 0.1)

    def check(self, cursor, cut, lazy_s):
        return [], None


class Administrator(Client):
    """Sets variables, copies databases, makes backups and gives space back."""

    def round(self):
        time.sleep(self.random.random() * 0.05)
        self.random.choice([self.variable] * 4 + [self.clone, self.space, self.stages, self.flush])()

    def variable(self):
        if not self.run_state.myriad:
            return
        choice, mib = self.random.choice, 1 << 20
        values = {"log_capacity": [4 * mib, 5 * mib, 16 * mib, 48 * mib], "buffer_pool_size": [6 * mib, 8 * mib, 16 * mib, 48 * mib],
                  "change_buffer_max_size": [0, 1, 25, 50], "max_open_files": [10, 2000], "io_capacity": [10, 2000], "io_capacity_max": [10, 20000],
                  "memory_tables_size": [0, 1 * mib], "row_locks_size": [0, 8 * mib], "deadlock_detect": [0, 1], "print_all_deadlocks": [0, 1],
                  "tablespace_per": ["'TABLE'", "'SERVER'", "'DATABASE'"], "fast_shutdown": [0, 1, 2], "lock_wait_timeout": [1, 5],
                  "snapshot_isolation": [0, 1], "sort_buffer_size": [1 * mib, 64 * mib], "rollback_on_timeout": [0, 1]}
        name = choice(list(values))
        self.sql(f"SET GLOBAL myriad_{name}={choice(values[name])}", allowed={1231, 1296, 3, 1030})

    def clone(self):
        if self.run_state.myriad and not self.run_state.args.binlog:
            self.sql("DROP DATABASE IF EXISTS copied")
            if not self.sql("SELECT myriad_clone_database('c1', 'copied')", allowed={1296, 1105, 1050, 1030}):
                self.cursor.fetchall()

    def space(self):
        name = f"{self.db}.s{self.random.randrange(3)}"
        self.sql(f"CREATE TABLE IF NOT EXISTS {name} (id INT PRIMARY KEY, v TEXT)")
        self.sql(f"REPLACE INTO {name} SELECT seq, REPEAT('v', 1000) FROM seq_1_to_3000")
        self.sql(self.random.choice([f"DROP TABLE {name}", f"DELETE FROM {name}", f"DELETE FROM {name} WHERE id > 1000"]))

    def stages(self):
        for stage in ["START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT", "END"]:
            self.sql(f"BACKUP STAGE {stage}", allowed={1296, 4148, 1030, 1205, 4145, 4146, 4147})

    def flush(self):
        self.sql(self.random.choice(["FLUSH ENGINE LOGS", "FLUSH TABLES", "FLUSH BINARY LOGS"]))

    def check(self, cursor, cut, lazy_s):
        return [], None
