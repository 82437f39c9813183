#!/usr/bin/python3
"""Random transactions at all levels, mixed, and every version of every row that each of their statements found or did not find.

A row carries the list of all its versions: who wrote them, under which key and with which values. So in the end the order of all versions of
a key is known, and of what each statement's condition did not find, which versions it cannot have missed. Of all that a graph is made with a node for
each commit and each snapshot (a transaction's at REPEATABLE READ, else a statement's), and arrows in the order in which they must have been:
from the commit that wrote a version to those who saw it, from these to the commit that replaced it, the same for what was not there, and from what
was acknowledged to what began later. What a transaction read with locks, at REPEATABLE READ and above also what it did not find, stays as it is
until it commits, so there its commit's node is it that read. The graph has no cycle. Rows are deleted and inserted again, moved, replaced and
updated by what they hold in secondary indexes and unique ones; savepoints, XA, KILL, ALTER TABLE and SIGKILL come in between.

    versions.py [--seconds N] [--seed N] [--engine InnoDB] [CASE...]     each case, or these
"""
import collections
import graphlib
import random
import time

import random_runs
from random_runs import EXPECTED, GONE, Disturber, code_of, pymysql, server

# Keys; bytes of the primary key beyond a number; bytes of padding at most; MiB of the pool; page size; table options; clients; KILL,
# ALTER TABLE and SIGKILL beside; a trigger notes what is deleted, so that REPLACE can be used; snapshots that are none.
Case = collections.namedtuple("Case", "keys wide pad pool page options clients kill ddl crash replace unique weak",
                              defaults=[40, 0, 200, 8, 16384, "", 10, False, False, False, False, True, False])
CASES = {
    "plain": Case(),
    "hot": Case(keys=8, clients=14, page=4096),
    "replace": Case(replace=True, keys=20),
    "wide": Case(wide=2900, pad=6000, keys=60),
    "evicted": Case(keys=150, pad=1900, pool=5, page=4096, crash=True),
    "killed": Case(kill=True, ddl=True, replace=True),
    "ddl": Case(pad=1900, keys=80, ddl=True),
    "in-memory": Case(options="IN_MEMORY=YES", replace=True),
    "partitions": Case(options="PARTITION BY HASH (id) PARTITIONS 3", unique=False),
    "many": Case(keys=300, wide=10, pool=5, page=4096, clients=6),
    # Snapshots that are none: something has to be found.
    "weak": Case(weak=True),
}
LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "REPEATABLE READ", "SERIALIZABLE"]
STRICT = ("REPEATABLE READ", "SERIALIZABLE")
VALUES = 8
# Beside what any transaction may meet: a duplicate of several keys, XA's.
EXPECTED_TOO = {1586, 1614, 1402, 1613}
ALTERS = ["ADD INDEX x (pad(10), ver)", "DROP INDEX x", "ADD COLUMN c INT DEFAULT 5", "DROP COLUMN c", "DROP INDEX kb, ADD INDEX kb (b, ver)",
          "DROP INDEX ka, ADD INDEX ka (a, ver)", "FORCE", "ADD INDEX y (b, a)", "DROP INDEX y", "ADD COLUMN d INT DEFAULT 7 FIRST", "DROP COLUMN d"]

Version = collections.namedtuple("Version", "number key a b u")
Read = collections.namedtuple("Read", "at text matches found locking begin end")


class Trx:
    def __init__(self, number, level):
        self.number, self.level, self.outcome = number, level, "open"
        self.acknowledged = self.sent = None
        self.log = []                       # its statements
        self.numbers, self.undone = [], set()       # of its changes
        self.counts = {}                    # by number: how many rows changed, when that was done
        self.reads, self.deleted = [], []   # deleted: (number, list)
        self.reading = self.prepared = False
        self.snapshot = None                # when it was taken, if by START TRANSACTION

    def __str__(self):
        return f"trx {self.number} ({self.level})"


class Run(random_runs.Run):
    def __init__(self, case, seed, engine):
        super().__init__(case, seed, engine, ["--loose-myriad-lock-wait-timeout=1", "--innodb-lock-wait-timeout=1"])

    def key(self, k):
        return f"'{'k' * (k * 37 % self.case.wide)}{k:04}'" if self.case.wide else str(k)

    def place(self, k):
        """What the keys are in the order of."""
        return self.key(k) if self.case.wide else k

    def setup(self):
        self.server.start()
        self.server.query("CREATE DATABASE h")
        case = self.case
        with self.connect() as c:
            cursor = c.cursor()
            kind = f"VARCHAR({case.wide + 4}) CHARACTER SET latin1" if case.wide else "INT"
            cursor.execute(f"""CREATE TABLE t (id {kind} NOT NULL PRIMARY KEY, k INT NOT NULL, ver INT NOT NULL, a INT NOT NULL, b INT NOT NULL, u INT,
                               lst MEDIUMTEXT NOT NULL, pad VARCHAR(6000) CHARACTER SET latin1 NOT NULL, {'UNIQUE' if case.unique else 'KEY'} ku (u),
                               KEY ka (a, ver), KEY kb (b)) {self.table_options}""")
            cursor.execute("CREATE TABLE x (number INT, k INT, ver INT, a INT, b INT, u INT)")
            cursor.execute("CREATE TABLE d (number INT, lst MEDIUMTEXT)")
            cursor.execute("CREATE TABLE m (trx INT PRIMARY KEY)")
            if case.replace:
                cursor.execute("CREATE TRIGGER gone AFTER DELETE ON t FOR EACH ROW INSERT INTO d VALUES (@n, OLD.lst)")

    def work(self, seconds):
        threads = [Client(self, no) for no in range(self.case.clients)]
        threads += [Disturber(self, self.alter, 0.4)] * self.case.ddl + [Disturber(self, self.kill, 0.05)] * self.case.kill
        super().work(threads, seconds, self.case.crash)

    def alter(self, cursor, chosen):
        cursor.execute(f"SET STATEMENT lock_wait_timeout=2 FOR ALTER TABLE t {chosen.choice(ALTERS)}")

    def kill(self, cursor, chosen):
        cursor.execute("SELECT ID FROM information_schema.PROCESSLIST WHERE DB = 'h' AND ID <> CONNECTION_ID()")
        found = [row[0] for row in cursor.fetchall()]
        if found:
            cursor.execute(f"KILL {chosen.choice(['QUERY', 'QUERY', 'QUERY', ''])} {chosen.choice(found)}")


class Client(random_runs.Client):
    def sql(self, text):
        self.log.append(text)
        self.begin = time.monotonic()
        self.cursor.execute(text)
        rows = self.cursor.fetchall()
        self.end = time.monotonic()
        return rows

    def condition(self):
        """A condition, an index for it, and whether a row matches it."""
        r, keys = self.random, self.of.case.keys
        k, j = sorted([r.randrange(keys), r.randrange(keys)])
        v, w = sorted([r.randrange(VALUES), r.randrange(VALUES)])
        few = r.sample(range(keys), min(4, keys))
        key, place = self.of.key, self.of.place
        forms = [
            (f"id = {key(k)}", "", lambda row: row.key == k),
            (f"id = {key(k)}", "", lambda row: row.key == k),
            (f"id IN ({', '.join(map(key, few))})", "", lambda row: row.key in few),
            (f"a = {v}", "FORCE INDEX (ka)", lambda row: row.a == v),
            (f"a BETWEEN {v} AND {w}", "FORCE INDEX (ka)", lambda row: v <= row.a <= w),
            (f"b = {v}", "FORCE INDEX (kb)", lambda row: row.b == v),
            (f"b IN ({v}, {w})", "FORCE INDEX (kb)", lambda row: row.b in (v, w)),
            (f"(a = {v} OR b = {w})", "FORCE INDEX (ka, kb)", lambda row: row.a == v or row.b == w),
            (f"(a = {v} OR u = {k})", "FORCE INDEX (ka, ku)", lambda row: row.a == v or row.u == k),
            (f"(a = {v} OR id = {key(k)})", "FORCE INDEX (ka, PRIMARY)", lambda row: row.a == v or row.key == k),
            (f"a = {v} AND b = {w}", f"FORCE INDEX ({r.choice(['ka', 'kb', 'ka, kb'])})", lambda row: row.a == v and row.b == w),
            (f"u = {k}", "FORCE INDEX (ku)", lambda row: row.u == k),
            (f"u BETWEEN {k} AND {j}", "FORCE INDEX (ku)", lambda row: row.u is not None and k <= row.u <= j),
            ("u IS NULL", "FORCE INDEX (ku)", lambda row: row.u is None),
        ]
        low, high = sorted([k, j], key=self.of.place)
        forms += [(f"id BETWEEN {key(low)} AND {key(high)}", "FORCE INDEX (PRIMARY)", lambda row: place(low) <= place(row.key) <= place(high))] * 2
        return r.choice(forms)

    def note_read(self, trx, text, matches, rows, locking):
        trx.reads.append(Read(len(trx.numbers), text, matches, rows, locking, self.begin, self.end))

    def read(self, trx, lock=""):
        where, hint, matches = self.condition()
        r = self.random
        order = r.choice(["", "", "", " ORDER BY a DESC", " ORDER BY id DESC"])
        what = r.choice(["k, ver, a, b, u, lst", "k, ver, a, b, u", "k, ver, a, b, u"])
        if where.startswith("a ") and "b" not in where and "kb" not in hint and r.random() < 0.4 and not self.of.case.wide:
            what = "id, ver, a, NULL, NULL"         # the index alone
        text = f"SELECT {what} FROM t {hint} WHERE {where}{order}{lock}"
        rows = self.sql(text)
        for row in rows:
            if len(row) > 5 and not row[5].endswith(f"{row[1]}:{row[0]}:{row[2]}:{row[3]}:{'' if row[4] is None else row[4]}"):
                self.of.problems.append(f"{trx}: {text}: {row}")
        if len({row[0] for row in rows}) != len(rows) and trx.level in (STRICT if lock else LEVELS[1:]):
            self.of.problems.append(f"{trx}: a row twice: {text}: {rows}")
        locking = "skip" if "SKIP" in lock else "yes" if lock or trx.level == "SERIALIZABLE" else ""
        self.note_read(trx, text, matches, [Version(row[1], row[0], row[2], row[3], row[4]) for row in rows], locking)

    def number(self, trx):
        number = self.of.fresh()
        if self.of.case.replace:
            self.sql(f"SET @n = {number}")
        return number

    def pad(self):
        return f"REPEAT('p', {self.random.randrange(self.of.case.pad + 1)})"

    def new_u(self):
        return self.random.choice(["NULL", str(self.random.randrange(self.of.case.keys))])

    def changed(self, number, sets):
        return ", ".join([*sets, f"ver = {number}", f"lst = CONCAT(lst, ',{number}:', k, ':', a, ':', b, ':', IFNULL(u, ''))"])

    def sets(self):
        r = self.random
        sets = []
        if r.random() < 0.3:
            sets.append(f"a = {r.choice([str(r.randrange(VALUES)), f'(a + 1) % {VALUES}'])}")
        if r.random() < 0.3:
            sets.append(f"b = {r.randrange(VALUES)}")
        if r.random() < 0.2:
            sets.append(f"pad = {self.pad()}")
        return sets

    def wrote(self, trx, number, count=None):
        trx.numbers.append(number)
        trx.counts[number] = (count, self.end)

    def update(self, trx):
        where, hint, matches = self.condition()
        number, sets, r = self.number(trx), self.sets(), self.random
        if r.random() < 0.15 and " = " in where and where.startswith("id"):
            sets.append(f"u = {self.new_u()}")
        if r.random() < 0.15 and " = " in where and where.startswith("id"):
            to = r.randrange(self.of.case.keys)
            sets = [f"id = {self.of.key(to)}", f"k = {to}", *sets]
        text = f"UPDATE t {hint} SET {self.changed(number, sets)} WHERE {where}"
        self.sql(text)
        self.wrote(trx, number, self.cursor.rowcount)
        trx.reads.append(Read(len(trx.numbers) - 1, text, matches, number, "yes", self.begin, self.end))

    def row(self, number, k):
        r = self.random
        a, b, u = r.randrange(VALUES), r.randrange(VALUES), self.new_u() if r.random() < 0.5 else "NULL"
        return f"({self.of.key(k)}, {k}, {number}, {a}, {b}, {u}, '{number}:{k}:{a}:{b}:{'' if u == 'NULL' else u}', {self.pad()})"

    COLUMNS = "(id, k, ver, a, b, u, lst, pad)"

    def insert(self, trx):
        r, number = self.random, self.number(trx)
        keys = r.sample(range(self.of.case.keys), r.choice([1, 1, 1, min(3, self.of.case.keys)]))
        verb = r.choice(["INSERT", "INSERT", "INSERT IGNORE", "ODKU"] + ["REPLACE"] * 2 * self.of.case.replace)
        tail = f" ON DUPLICATE KEY UPDATE {self.changed(number, self.sets())}" if verb == "ODKU" else ""
        if verb == "ODKU":
            keys = keys[:1]
        self.sql(f"{'INSERT' if tail else verb} INTO t {self.COLUMNS} VALUES {', '.join(self.row(number, k) for k in keys)}{tail}")
        self.wrote(trx, number)

    def delete(self, trx):
        where, hint, matches = self.condition()
        if "BETWEEN" in where or "IN (" in where or "IS NULL" in where:
            where, hint, matches = self.condition()
        number = self.number(trx)
        if self.of.case.replace:
            text = f"DELETE t FROM t {hint} WHERE {where}"
            self.sql(text)
            self.wrote(trx, number, self.cursor.rowcount)
        else:
            text = f"DELETE FROM t WHERE {where} RETURNING lst"
            rows = self.sql(text)
            self.wrote(trx, number, len(rows))
            trx.deleted += [(number, row[0]) for row in rows]
        if trx.level in STRICT:
            trx.reads.append(Read(len(trx.numbers) - 1, text, matches, ("deleted", number), "yes", self.begin, self.end))

    def again(self, trx):
        """Deletes a row and inserts one in its place."""
        k, number = self.random.randrange(self.of.case.keys), self.number(trx)
        if self.of.case.replace:
            self.sql(f"DELETE FROM t WHERE id = {self.of.key(k)}")
        else:
            trx.deleted += [(number, row[0]) for row in self.sql(f"DELETE FROM t WHERE id = {self.of.key(k)} RETURNING lst")]
        self.wrote(trx, number)
        number = self.number(trx)
        self.sql(f"INSERT INTO t {self.COLUMNS} VALUES {self.row(number, k)}")
        self.wrote(trx, number)

    def copy(self, trx):
        where, hint, matches = self.condition()
        number = self.of.fresh()
        text = f"INSERT INTO x SELECT {number}, k, ver, a, b, u FROM t {hint} WHERE {where}"
        self.sql(text)
        trx.numbers.append(number)
        locking = "yes" if trx.level in STRICT else ""
        trx.reads.append(Read(len(trx.numbers) - 1, text, matches, ("copied", number), locking, self.begin, self.end))

    def step(self, trx, saved):
        way = self.random.random()
        if trx.reading or way < 0.3:
            self.read(trx)
        elif way < 0.42:
            self.read(trx, self.random.choice([" FOR UPDATE", " LOCK IN SHARE MODE", " FOR UPDATE", " LOCK IN SHARE MODE", " FOR UPDATE SKIP LOCKED",
                                               " FOR UPDATE NOWAIT"]))
        elif way < 0.62:
            self.update(trx)
        elif way < 0.77:
            self.insert(trx)
        elif way < 0.84:
            self.delete(trx)
        elif way < 0.88:
            self.again(trx)
        elif way < 0.93:
            self.copy(trx)
        elif not saved:
            # Who has read nothing before has no snapshot and no locks left after a rollback to it, as with InnoDB.
            self.read(trx, " FOR UPDATE")
            self.sql("SAVEPOINT a")
            saved.append(len(trx.numbers))
        else:
            self.sql("ROLLBACK TO a")
            # It may have read what it has rolled back.
            trx.reads = [read for read in trx.reads if read.at <= saved[0]]
            trx.undone |= set(trx.numbers[saved[0]:])
            trx.deleted = [each for each in trx.deleted if each[0] not in trx.undone]

    def transaction(self):
        r = self.random
        level = r.choice(LEVELS)
        trx = Trx(self.of.fresh(), level)
        self.log = trx.log
        trx.reading = r.random() < 0.25
        way = "xa" if r.random() < 0.08 else "read only" if trx.reading and r.random() < 0.5 else "snapshot" if r.random() < 0.2 else ""
        try:
            real = "READ COMMITTED" if self.of.case.weak and trx.reading and level == "REPEATABLE READ" else level
            self.sql(f"SET SESSION TRANSACTION ISOLATION LEVEL {real}")
            self.sql({"xa": f"XA START 'x{trx.number}'", "read only": "START TRANSACTION READ ONLY",
                      "snapshot": "START TRANSACTION WITH CONSISTENT SNAPSHOT", "": "BEGIN"}[way])
            if way == "snapshot" and level == "REPEATABLE READ":
                trx.snapshot = (self.begin, self.end)
            saved = []
            for _ in range(r.randrange(1, 7)):
                try:
                    self.step(trx, saved)
                except pymysql.err.Error as problem:
                    if problem.args[0] not in (1062, 1586, 1205):
                        raise
                if r.random() < 0.1:
                    time.sleep(r.choice([0.001, 0.01, 0.05]))
            if r.random() < 0.15:
                self.roll_back(trx, way)
                trx.outcome = "rolled back"
                return self.of.note(trx)
            if trx.numbers:
                self.sql(f"INSERT INTO m VALUES ({trx.number})")
            if way == "xa":
                self.sql(f"XA END 'x{trx.number}'")
                if r.random() < 0.7:
                    # From here on it keeps no shared locks and no gaps.
                    trx.prepared = level != "SERIALIZABLE"
                    self.sql(f"XA PREPARE 'x{trx.number}'")
                    trx.outcome, trx.sent = "unknown", time.monotonic()
                    self.sql(f"XA COMMIT 'x{trx.number}'")
                else:
                    trx.outcome, trx.sent = "unknown", time.monotonic()
                    self.sql(f"XA COMMIT 'x{trx.number}' ONE PHASE")
            else:
                trx.outcome, trx.sent = "unknown", time.monotonic()
                self.sql("COMMIT")
            trx.outcome, trx.acknowledged = "committed", time.monotonic()
        except (pymysql.err.Error, OSError) as problem:
            code = code_of(problem)
            if trx.outcome != "unknown":
                trx.outcome = "rolled back"
            self.of.note(trx)
            if code in GONE:
                raise
            if code not in EXPECTED | EXPECTED_TOO:
                self.of.problems.append(f"{trx}: {problem}: {trx.log[-1:]}")
            if trx.outcome == "unknown":
                raise
            return self.roll_back(trx, way)
        self.of.note(trx)
        return None

    def roll_back(self, trx, way):
        if way == "xa":
            try:
                self.sql(f"XA END 'x{trx.number}'")
            except pymysql.err.Error:
                pass
            try:
                self.sql(f"XA ROLLBACK 'x{trx.number}'")
            except pymysql.err.Error as problem:
                if problem.args[0] not in (1397, 1402, 1614):
                    raise
        else:
            self.sql("ROLLBACK")


class Place:
    """The versions of one key, as others than their writers see them: (version or None, the commit that made it)."""

    def __init__(self):
        self.versions = [(None, None)]

    def add(self, version, trx):
        if self.versions[-1][1] is trx:
            self.versions[-1] = (version, trx)
        else:
            self.versions.append((version, trx))


class Verdict:
    def __init__(self, run):
        self.run, self.history, self.problems, self.arrows = run, run.history, run.problems, collections.defaultdict(dict)
        with run.connect() as c:
            self.cursor = c.cursor()
            for row in self.rows("XA RECOVER"):
                self.rows(f"XA ROLLBACK '{row[3].decode()}'")
            self.problems += [str(row) for row in self.rows("CHECK TABLE t, x, d, m EXTENDED") if row[3] != "OK"]
            self.alive = [row[0] for row in self.rows("SELECT lst FROM t")]
            self.noted = list(self.rows("SELECT number, lst FROM d"))
            self.marked = {row[0] for row in self.rows("SELECT trx FROM m")}
            self.copied = collections.defaultdict(list)
            for number, k, ver, a, b, u in self.rows("SELECT * FROM x"):
                self.copied[number].append(Version(ver, k, a, b, u))
            self.indexes()
            if run.engine == "MYRIAD":
                locks = [self.rows(f"SELECT * FROM information_schema.{name}") for name in ("MYRIAD_LOCKS", "MYRIAD_LOCK_WAITS")]
                if any(locks):
                    self.problems.append(f"locks are left: {locks}")

    def rows(self, sql):
        self.cursor.execute(sql)
        return self.cursor.fetchall()

    def indexes(self):
        """Each index tells the same."""
        names = sorted({row[2] for row in self.rows("SHOW INDEX FROM t")})
        told = {}
        for name in names:
            for way in ("", "DESC"):
                first = [row[4] for row in self.rows("SHOW INDEX FROM t") if row[2] == name][0]
                rows = self.rows(f"SELECT k, ver, a, b, u, {first if first != 'pad' else 0} FROM t FORCE INDEX ({name}) ORDER BY {first} {way}")
                order = [(row[5] is not None, row[5]) for row in rows]
                if first != "pad" and order != sorted(order, reverse=bool(way)):
                    self.problems.append(f"index {name} {way} is not in order: {order}")
                told[name, way] = sorted(repr(row[:5]) for row in rows)
        if len({tuple(rows) for rows in told.values()}) > 1:
            self.problems.append(f"indexes differ: {told}")

    def judge(self):
        self.writer, self.undone = {}, set()
        for trx in self.history:
            for number in trx.numbers:
                self.writer[number] = trx
            self.undone |= trx.undone
            if trx.outcome == "unknown":
                trx.outcome = "committed" if trx.number in self.marked or not trx.numbers else "rolled back"
            elif trx.numbers and (trx.outcome == "committed") != (trx.number in self.marked):
                self.problems.append(f"{trx} is {trx.outcome}, its mark is {'not ' * (trx.number not in self.marked)}there")
        self.lists()
        for trx in self.history:
            if trx.outcome == "committed" and trx.numbers:
                self.arrow(("t", trx.sent), trx, "had not committed")
                if trx.acknowledged:
                    self.arrow(trx, ("t", trx.acknowledged), "acknowledged")
        for trx in self.history:
            self.what_it_read(trx)
        self.times()
        self.cycle()

    def arrow(self, first, second, why):
        if first is not second and first is not None:
            self.arrows[second].setdefault(first, why)

    def lists(self):
        """From all lists, the versions of each key in order."""
        lists = [(text, None) for text in self.alive]
        lists += [(text, number) for trx in self.history if trx.outcome == "committed" for number, text in trx.deleted]
        lists += [(text, number) for number, text in self.noted]
        runs = collections.defaultdict(list)        # of each key: (when it began, versions, number that ended it)
        uniques = collections.defaultdict(list)
        self.touched = collections.defaultdict(set)         # number: the keys at which it found rows
        self.written = collections.defaultdict(set)
        for text, end in lists:
            versions = [Version(*(int(part) if part else None for part in each.split(":"))) for each in text.split(",")]
            for version in versions:
                trx = self.writer.get(version.number)
                if not trx or trx.outcome != "committed" or version.number in self.undone:
                    self.problems.append(f"{version} of {trx} is there, which was rolled back")
                    return
            if end is not None:
                self.touched[end].add(versions[-1].key)
            start = 0
            for i, version in enumerate(versions):
                self.written[version.number].add(version.key)
                if i:
                    self.touched[version.number].add(versions[i - 1].key)
                last = i + 1 == len(versions)
                if last or versions[i + 1].key != version.key:
                    run = versions[start:i + 1]
                    runs[version.key].append((self.finished(run[0].number), run, end if last else versions[i + 1].number))
                    start = i + 1
            start = 0
            for i, version in enumerate(versions):
                last = i + 1 == len(versions)
                if last or versions[i + 1].u != version.u:
                    uniques[version.u].append((self.finished(versions[start].number), versions[start], end if last else versions[i + 1].number))
                    start = i + 1
        self.places = collections.defaultdict(Place)
        for key, those in runs.items():
            those.sort(key=lambda each: (each[0], each[2] is None))
            for i, (_, versions, end) in enumerate(those):
                for version in versions:
                    self.places[key].add(version, self.writer[version.number])
                if end is not None:
                    self.places[key].add(None, self.writer[end])
                if i + 1 < len(those) and (end is None or self.finished(end) > those[i + 1][0]):
                    self.problems.append(f"key {key} has two rows: {versions} until {end}, {those[i + 1][1]}")
            for (_, one), (version, other) in zip(self.places[key].versions, self.places[key].versions[1:]):
                self.arrow(one, other, f"wrote {version or 'nothing'} at {key}")
        if self.run.case.unique:
            for u, those in uniques.items():
                those.sort(key=lambda each: (each[0], each[2] is None))
                for (_, one, end), (began, other, _) in zip(those, those[1:]):
                    if u is None:
                        continue
                    if end is None or self.finished(end) > began:
                        self.problems.append(f"u={u} is there twice: {one} until {end}, {other}")
                    else:
                        self.arrow(self.writer[end], self.writer[other.number], f"took u={u}")
        # A statement that has changed n rows has changed n rows.
        for trx in self.history:
            for number, (count, _) in trx.counts.items():
                if trx.outcome == "committed" and number not in trx.undone and count is not None and count != len(self.touched[number]):
                    self.problems.append(f"{trx}: {number} changed {count} rows, there are {self.touched[number]}")

    def finished(self, number):
        return self.writer[number].counts[number][1]

    def what_it_read(self, trx):
        snapshot = window = None
        if trx.snapshot:
            window = trx.snapshot
        own, made = set(), 0
        for read in trx.reads:
            number = read.found if isinstance(read.found, int) else read.found[1] if isinstance(read.found, tuple) else None
            if trx.outcome != "committed" and (read.at or read.locking or number) or number in trx.undone or read.locking and trx.prepared:
                continue
            for number in trx.numbers[made:read.at]:
                if number not in trx.undone:
                    own |= self.keys_of(number)
            made = max(made, read.at)
            if trx.level == "READ UNCOMMITTED" and not read.locking:
                continue
            found = read.found
            if isinstance(found, int):
                found = self.touched[found]
            elif isinstance(found, tuple):
                found = self.copied[found[1]] if found[0] == "copied" else self.touched[found[1]]
            if read.locking:
                node, seen = trx, (read.begin, read.end)
            elif trx.level == "REPEATABLE READ":
                window = window or (read.begin, read.end)
                snapshot = snapshot or ("snapshot", trx.number)
                node, seen = snapshot, window
            else:
                node, seen = ("statement", trx.number, read.begin), (read.begin, read.end)
            if not read.locking:
                self.arrow(("t", seen[0]), node, "began later")
                self.arrow(node, ("t", seen[1]), "was done")
                if trx.numbers and trx.outcome == "committed":
                    self.arrow(node, trx, "its own")
            missing = not read.locking or read.locking == "yes" and trx.level in STRICT
            self.compare(trx, node, read, found, own, seen, missing)

    def keys_of(self, number):
        """Where it wrote, or took something from."""
        return self.written[number] | self.touched[number]

    def compare(self, trx, node, read, found, own, seen, missing):
        by_key = {}
        for each in found:
            by_key[each if isinstance(each, int) else each.key] = each
        for key in range(self.run.case.keys):
            if key in own:
                continue
            place = self.places[key].versions
            each = by_key.get(key)
            if each is None and not missing:
                continue
            if isinstance(each, int):
                # Its own change tells when; what it changed matched.
                before = [version for (version, _), (_, writer) in zip(place, place[1:]) if writer is trx]
                if not before or not before[0] or not read.matches(before[0]):
                    self.problems.append(f"{trx}: {read.text} changed {key}, which was {before}")
                continue
            fitting = []
            for i, (version, writer) in enumerate(place):
                if each is not None:
                    fits = version is not None and version.number == each.number
                else:
                    fits = version is None or not read.matches(version)
                if fits:
                    fitting.append(i)
            # What was replaced before, or came after, is not it.
            timely = [i for i in fitting if not (place[i][1] and place[i][1] is not trx and place[i][1].sent > seen[1])
                      and not (i + 1 < len(place) and place[i + 1][1].acknowledged and place[i + 1][1].acknowledged < seen[0])]
            if not timely:
                self.problems.append(f"{trx}: {read.text}: {each or f'key {key} not found'}: at {seen}: none of {self.about(place, seen, fitting)}")
                continue
            low, high = timely[0], timely[-1]
            if place[low][1] is not trx:
                self.arrow(place[low][1], node, f"{read.text} found {place[low][0] if each else f'no {key}'}")
            # Locks on what there is not keep those away who would make it be there, nobody else.
            while read.locking and each is None and high + 1 < len(place) and (place[high + 1][0] is None or not read.matches(place[high + 1][0])):
                high += 1
            if high + 1 < len(place):
                self.arrow(node, place[high + 1][1], f"{read.text} did not find {place[high + 1][0]} at {key}")

    def about(self, place, seen, fitting):
        """The versions of a key about that time, as text."""
        near = [i for i, (_, writer) in enumerate(place) if (writer is None or writer.sent < seen[1] + 0.02)
                and (i + 1 == len(place) or (place[i + 1][1].acknowledged or seen[0]) > seen[0] - 0.02)]
        return "; ".join(f"{place[i][0]} by {place[i][1]}{' (fits)' * (i in fitting)}" for i in near)

    def times(self):
        times = sorted({n for n in [*self.arrows, *(n for those in self.arrows.values() for n in those)] if isinstance(n, tuple) and n[0] == "t"})
        for one, other in zip(times, times[1:]):
            self.arrow(one, other, "time")

    def cycle(self):
        try:
            graphlib.TopologicalSorter(self.arrows).prepare()
        except graphlib.CycleError as error:
            best = min((self.shortest(node) for node in error.args[1][:200]), key=len)
            arrows = [(a, b, self.arrows.get(b, {}).get(a)) for a, b in zip(best, best[1:])]
            lines = [f"{a} -> {b} ({why})" for a, b, why in arrows if why != "time"]
            numbers = {node.number if isinstance(node, Trx) else node[1] for node in best if isinstance(node, Trx) or node[0] != "t"}
            lines += [f"{trx}: {trx.log}" for trx in self.history if trx.number in numbers]
            self.problems.append("a cycle: " + ";\n        ".join(lines))

    def shortest(self, node):
        """The shortest cycle through a node that is in one."""
        after, queue = {}, collections.deque([node])
        while queue:
            at = queue.popleft()
            for before in self.arrows.get(at, ()):
                if before not in after:
                    after[before] = at
                    queue.append(before)
        way = [node, after[node]]
        while way[-1] != node:
            way.append(after[way[-1]])
        return way


if __name__ == "__main__":
    server.main_guard(lambda: random_runs.main(__doc__, CASES, Run, Verdict))
