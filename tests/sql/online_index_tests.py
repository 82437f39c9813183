#!/usr/bin/python3
"""Indexes and whole tables built while others write: what is in them afterwards, and what ends a build.
Usage: online_index_tests.py [NAME...]"""
import os
import random
import re
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import server  # noqa: E402
from server import pymysql  # noqa: E402
import tenant_tests  # noqa: E402
from cases import HUNG_SECONDS, code_of, database, expect, rows, run, wait_until  # noqa: E402

COUNT = 20000
COLUMNS = """id INT AUTO_INCREMENT PRIMARY KEY, a INT, u BIGINT NOT NULL, s VARCHAR(40) COLLATE utf8mb4_general_ci, b BLOB,
             n INT, g INT AS (a * 2) STORED, v VARCHAR(60) AS (CONCAT(UPPER(s), '-', n)) VIRTUAL, w INT AS (a + LENGTH(v)) VIRTUAL"""
# What is added, and what is to be the same by each index and without; s with its letters' case.
BUILDS = [
    ("ADD KEY k1 (a)", {"k1": "id, a"}),
    ("ADD UNIQUE k2 (u)", {"k2": "id, u"}),
    ("ADD KEY k3 (s), ADD KEY k4 (n DESC, s), ADD UNIQUE k5 (n, id)", {"k3": "id, s", "k4": "id, n, s", "k5": "id, n"}),
    ("ADD KEY k6 (b(10))", {"k6": "id, b"}),
    ("DROP KEY k1, ADD KEY k1 (g, a)", {"k1": "id, a, g"}),
    ("ADD COLUMN x INT DEFAULT 5, ADD KEY k7 (x, a)", {"k7": "id, x, a"}),
    ("ADD KEY k8 (v, w), ADD UNIQUE k9 (w, id)", {"k8": "id, v, w", "k9": "id, w"}),
    ("ADD COLUMN y VARCHAR(50) AS (LEFT(s, 3)) VIRTUAL, ADD KEY k10 (y, x)", {"k10": "id, x, y"}),
]


def fill(c, options="", name="t", columns=COLUMNS):
    rows(c, f"CREATE TABLE {name} ({columns}) ENGINE=MYRIAD {options}")
    rows(c, f"""INSERT INTO {name} (a, u, s, b, n) SELECT seq MOD 1000, seq, CONCAT('Row ', seq MOD 5000), REPEAT('b', seq MOD 50),
                IF(seq MOD 3, seq, NULL) FROM seq_1_to_{COUNT}""")


# Those that build the table anew; where its primary key is u, its rows stay found by id.
REBUILDS = [
    ("FORCE", {}),
    ("ADD COLUMN z INT DEFAULT 1 AFTER a", {}),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (u), ADD UNIQUE i (id), DROP COLUMN z", {"i": "id, a, u"}),
    ("ADD KEY k1 (s, n), FORCE", {"k1": "id, s, n", "i": "id, u"}),
    ("ENGINE=MYRIAD, ADD KEY k2 (v, w), ADD KEY k3 (b(10))", {"k2": "id, v, w"}),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (id), DROP KEY i", {"k1": "id, s, n", "k2": "id, v, w"}),
    ("TABLESPACE_PER='TABLE'", {"k1": "id, s, n"}),
    ("FORCE, ADD COLUMN x INT DEFAULT 5 FIRST, ADD KEY k4 (x, a)", {"k4": "id, a, x"}),
    ("FORCE, DROP COLUMN x, DROP KEY k4, TABLESPACE_PER='SERVER'", {"k1": "id, s, n"}),
]

# The server copies where a table has a stored generated column.
CONVERSIONS = [
    ("MODIFY a INT NOT NULL", {}),
    ("MODIFY a INT, MODIFY n INT AFTER b, ADD KEY k1 (a)", {"k1": "id, a"}),
    ("MODIFY a INT NOT NULL FIRST, DROP PRIMARY KEY, ADD PRIMARY KEY (u), ADD UNIQUE i (id)", {"k1": "id, a", "i": "id, u"}),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (id), DROP KEY i, ADD COLUMN x INT NOT NULL DEFAULT 3, MODIFY a INT", {"k1": "id, a, x"}),
    ("MODIFY a INT NOT NULL AFTER id", {"k1": "id, a"}),
]


class Writers:
    """Clients that change table t, or all these alike, until they are stopped."""

    def __init__(self, where, count=4, tables=("t",)):
        self.where, self.tables, self.done, self.commits, self.problems = where, tables, False, 0, []
        self.threads = [threading.Thread(target=self.work, args=(no,)) for no in range(1, count + 1)]
        for thread in self.threads:
            thread.start()

    def statement(self, chosen, number, no):
        some = chosen.randrange(1, COUNT * 2)
        text = chosen.choice(["row %d", "ROW %d", "Row %d ", "other %d"]) % chosen.randrange(5000)
        return chosen.choice([
            f"INSERT INTO t (id, a, u, s, b, n) VALUES ({no * 10**8 + number}, {some}, {no * 10**9 + number}, '{text}', REPEAT('x', {some % 60}), {some})",
            f"UPDATE t SET a = a + 1 WHERE id BETWEEN {some} AND {some + 5}",
            f"UPDATE t SET s = UPPER(s), n = NULL WHERE id = {some}",
            f"UPDATE t SET s = '{text}', n = {some} WHERE id BETWEEN {some} AND {some + 2}",
            f"UPDATE t SET u = {no * 10**9 + number}, b = REPEAT('y', {some % 40}) WHERE id = {some}",
            f"UPDATE t SET b = REPEAT('z', {some % 3 * 9000}) WHERE id = {some}",
            f"UPDATE t SET id = id + {10**6 * no + number} WHERE id = {some}",
            f"DELETE FROM t WHERE id BETWEEN {some} AND {some + 1}",
            f"REPLACE INTO t (id, a, u, s) VALUES ({some}, 7, {no * 10**9 + number}, '{text}')",
        ])

    def change(self, c, statement):
        for table in self.tables:
            rows(c, re.sub(r"\bt\b", table, statement))

    def work(self, no):
        with self.where.connect(database="d") as c:
            self.change_until_stopped(c, no)

    def change_until_stopped(self, c, no):
        chosen, number = random.Random(no), 0
        while not self.done:
            try:
                rows(c, "BEGIN")
                for _ in range(chosen.randrange(1, 5)):
                    number += 1
                    self.change(c, self.statement(chosen, number, no))
                    if chosen.randrange(4) == 0:
                        rows(c, "SAVEPOINT s")
                        number += 1
                        self.change(c, self.statement(chosen, number, no))
                        rows(c, "ROLLBACK TO SAVEPOINT s")
                rows(c, "COMMIT" if chosen.randrange(4) else "ROLLBACK")
                self.commits += 1
            except pymysql.err.Error as problem:
                # A deadlock; a duplicate id; a definition newer than the snapshot; the server is killed.
                code = problem.args[0]
                if code in (1213, 1062, 1412):
                    code = code_of(c, "ROLLBACK")
                if code not in (0, 2013, 2006):
                    self.problems.append(problem)
                if code:
                    return

    def stop(self):
        self.done = True
        for thread in self.threads:
            thread.join(HUNG_SECONDS)
        expect("writers' errors", self.problems, [])


def check(c, what, by):
    """For one snapshot, the same rows by each index as without."""
    rows(c, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    for index, columns in by.items():
        sums = f"SELECT COUNT(*), SUM(CRC32(CONCAT_WS('|', {columns}))), MIN(id), MAX(id) FROM t"
        condition = "WHERE b >= '' OR b IS NULL" if index == "k6" else ""
        expect(f"{what}: by {index}", rows(c, f"{sums} FORCE INDEX ({index}) {condition}"),
               rows(c, f"{sums} FORCE INDEX (PRIMARY) WHERE id > -1"))
    rows(c, "COMMIT")


def builds_under_writers(where, options, unique="(u)"):
    c = database(where)
    rows(c, "SET SESSION myriad_sort_buffer_size = 1048576")
    fill(c, options)
    builds = [(changes.replace("(u)", unique), by) for changes, by in BUILDS]
    writers = Writers(where)
    try:
        for changes, by in builds:
            before = writers.commits
            rows(c, f"ALTER TABLE t {changes}, LOCK=NONE")
            check(c, changes, by)
            expect(f"{changes}: commits meanwhile", writers.commits > before, True)
        rows(c, "CREATE INDEX k11 ON t (s(3), a)")
    finally:
        writers.stop()
    for changes, by in builds:
        check(c, f"{changes} in the end", by)
    expect("CHECK TABLE", [row[3] for row in rows(c, "CHECK TABLE t EXTENDED")], ["OK"])


def test_writers(where):
    builds_under_writers(where, "")


def test_writers_in_memory(where):
    builds_under_writers(where, "IN_MEMORY=YES")


def test_writers_partitions(where):
    builds_under_writers(where, "PARTITION BY KEY (id) PARTITIONS 5", unique="(u, id)")


def rebuilds_under_writers(where, options, rebuilds=REBUILDS, columns=COLUMNS):
    """Transactions change a table that stays as it is alike."""
    c = database(where)
    rows(c, "SET SESSION myriad_sort_buffer_size = 1048576")
    for name in "t", "twin":
        fill(c, options, name, columns)
    rows(c, "ALTER TABLE twin ADD UNIQUE (id)" if options else "ALTER TABLE twin ADD UNIQUE (u)")
    writers = Writers(where, tables=("t", "twin"))
    try:
        for changes, by in rebuilds:
            if options and ("KEY" in changes or "TABLESPACE" in changes):
                continue
            before = writers.commits
            rows(c, f"ALTER TABLE t {changes}, LOCK=NONE")
            check(c, changes, by if not options else {})
            same_rows(c, changes)
            expect(f"{changes}: commits meanwhile", writers.commits > before, True)
    finally:
        writers.stop()
    # Not before: with any engine it makes the server wait, out of the engine's sight, for statements that wait for row locks.
    rows(c, "OPTIMIZE TABLE t")
    same_rows(c, "in the end")
    expect("CHECK TABLE", [row[3] for row in rows(c, "CHECK TABLE t EXTENDED")], ["OK"])
    expect("tables", [name for (name,) in rows(c, "SHOW TABLES")], ["t", "twin"])


def same_rows(c, what):
    rows(c, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    sums = "SELECT COUNT(*), SUM(id), SUM(CRC32(CONCAT_WS('|', id, a, u, s, CRC32(b), n, g, v, w))) FROM "
    expect(f"{what}: rows", rows(c, f"{sums} t"), rows(c, f"{sums} twin"))
    rows(c, "COMMIT")


def test_rebuilds(where):
    rebuilds_under_writers(where, "")


def test_rebuilds_of_partitions(where):
    rebuilds_under_writers(where, "PARTITION BY KEY (id) PARTITIONS 5")


def test_conversions(where):
    columns = COLUMNS.replace("STORED", "VIRTUAL")
    rebuilds_under_writers(where, "", CONVERSIONS, columns)
    rebuilds_under_writers(where, "PARTITION BY KEY (id) PARTITIONS 3", CONVERSIONS, columns)


def test_nulls_meanwhile(where):
    """A column becomes NOT NULL while others write: nothing is left of a build that met a NULL."""
    c = database(where)
    big(c)
    before = rows(c, "SHOW CREATE TABLE t")
    for changes in ("MODIFY b INT NOT NULL", "DROP PRIMARY KEY, ADD PRIMARY KEY (b, id), ADD COLUMN x INT"):
        rows(c, "UPDATE t SET b = NULL WHERE id = 777")
        expect(f"{changes}: a NULL", code_of(c, f"ALTER TABLE t {changes}, ALGORITHM=INPLACE, LOCK=NONE"), 1265)
        rows(c, "UPDATE t SET b = 777 WHERE id = 777")
        expect(changes, Altering(where, changes, "UPDATE t SET b = NULL WHERE id = 5").end("COMMIT"), 1265)
        rows(c, "UPDATE t SET b = 5 WHERE id = 5")
        expect(changes, Altering(where, changes, "UPDATE t SET b = NULL WHERE id = 5").end("UPDATE t SET b = 5 WHERE id = 5", "COMMIT"), 0)
        whole(c, changes, "b", 200000)
        expect(f"{changes}: NULL", code_of(c, "UPDATE t SET b = NULL WHERE id = 6"), 1048)
        rows(c, "DROP TABLE t")
        big(c)
    expect("definition", rows(c, "SHOW CREATE TABLE t"), before)
    expect("tables", rows(c, "SHOW TABLES"), (("t",),))


class Altering:
    """An ALTER TABLE of table t that has prepared and whose end waits for a transaction of `holder`."""

    def __init__(self, where, changes, *statements, begin="BEGIN"):
        """The first statement waits while the ALTER prepares, for whom `gate` is in the way: it has the table before the ALTER can end."""
        self.connection, self.code, self.text = where.connect(database="d"), None, ""
        rows(self.connection, "SET SESSION myriad_lock_wait_timeout = 1, lock_wait_timeout = 120")
        self.holder, gate, watcher = (where.connect(database="d") for _ in range(3))
        rows(gate, "BEGIN")
        rows(gate, "SELECT 1 FROM t LIMIT 1")
        self.thread = threading.Thread(target=self.run, args=(f"ALTER TABLE t {changes}, LOCK=NONE",))
        self.thread.start()
        self.await_lock(watcher, self.connection)
        rows(self.holder, begin)
        first = threading.Thread(target=rows, args=(self.holder, statements[0]))
        first.start()
        self.await_lock(watcher, self.holder)
        rows(gate, "COMMIT")
        first.join(HUNG_SECONDS)
        for statement in statements[1:]:
            rows(self.holder, statement)
        self.await_lock(watcher, self.connection)

    def await_lock(self, watcher, connection):
        """Until the connection waits for a lock of a table's definition."""
        sql = f"SELECT state FROM information_schema.processlist WHERE id = {connection.thread_id()}"
        while rows(watcher, sql) != (("Waiting for table metadata lock",),):
            expect("the ALTER waits", self.thread.is_alive(), True)
            time.sleep(0.005)

    def run(self, sql):
        try:
            rows(self.connection, sql)
            self.code = 0
        except pymysql.err.Error as problem:
            self.code, self.text = problem.args

    def end(self, *statements):
        for statement in statements:
            rows(self.holder, statement)
        self.thread.join(HUNG_SECONDS)
        return self.code


def big(c):
    """Large enough for a build to be seen at it."""
    rows(c, "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, KEY b (b)) ENGINE=MYRIAD")
    rows(c, "INSERT INTO t SELECT seq, seq, seq FROM seq_1_to_200000")


def whole(c, what, index, count):
    expect(f"{what}: rows", rows(c, f"SELECT COUNT(*) FROM t FORCE INDEX ({index}) WHERE {index} > -1"), ((count,),))
    expect(f"{what}: CHECK TABLE", [row[3] for row in rows(c, "CHECK TABLE t EXTENDED")], ["OK"])


def test_open_transactions(where):
    """A transaction that is still open at the end of the build counts as it ends."""
    c = database(where)
    big(c)
    changes = ("INSERT INTO t VALUES (300000, 300000, 1)", "UPDATE t SET a = 400000 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    for end, wanted in (("ROLLBACK", (1, 2)), ("COMMIT", (300000, 1))):
        altering = Altering(where, "ADD UNIQUE a (a)", *changes)
        expect(end, altering.end(end), 0)
        found = rows(c, "SELECT id FROM t FORCE INDEX (a) WHERE a IN (1, 2, 300000, 400000) ORDER BY a")
        expect(end, tuple(row[0] for row in found), wanted)
        whole(c, end, "a", 200000)
        rows(c, "ALTER TABLE t DROP KEY a")


def test_duplicates(where):
    """One that comes and goes is none; one that stays ends the build, and is told."""
    c = database(where)
    big(c)
    altering = Altering(where, "ADD UNIQUE a (a)", "INSERT INTO t VALUES (300000, 5, 1)", "DELETE FROM t WHERE id = 5")
    expect("moved", altering.end("COMMIT"), 0)
    rows(c, "ALTER TABLE t DROP KEY a")
    altering = Altering(where, "ADD UNIQUE a (a), ADD KEY ab (a, b)", "INSERT INTO t VALUES (5, 77, 1)")
    expect("stays", altering.end("COMMIT"), 1062)
    expect("told", altering.text, "Duplicate entry '77' for key 'a'")
    expect("indexes", [row[2] for row in rows(c, "SHOW INDEX FROM t")], ["PRIMARY", "b"])
    whole(c, "refused", "b", 200001)
    expect("there before", code_of(c, "ALTER TABLE t ADD UNIQUE a (a), LOCK=NONE"), 1062)
    rows(c, "UPDATE t SET a = NULL WHERE a = 77")
    altering = Altering(where, "ADD UNIQUE a (a)", "INSERT INTO t VALUES (300001, NULL, 1)", "UPDATE t SET a = 77 WHERE id = 77")
    expect("NULLs", altering.end("COMMIT"), 0)
    expect("by NULL", rows(c, "SELECT id FROM t FORCE INDEX (a) WHERE a IS NULL OR a = 77 ORDER BY id"), ((5,), (77,), (300001,)))


def test_duplicates_of_a_primary_key(where):
    """The same for the rows themselves."""
    c = database(where)
    rows(c, "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, b INT, KEY b (b)) ENGINE=MYRIAD")
    rows(c, "INSERT INTO t SELECT seq, seq, seq FROM seq_1_to_200000")
    change = "DROP PRIMARY KEY, ADD PRIMARY KEY (a), ADD UNIQUE id (id)"
    altering = Altering(where, change, "INSERT INTO t VALUES (300000, 77, 1)")
    expect("stays", altering.end("COMMIT"), 1062)
    expect("told", altering.text, "Duplicate entry '77' for key 'PRIMARY'")
    expect("there before", code_of(c, f"ALTER TABLE t {change}, LOCK=NONE"), 1062)
    rows(c, "UPDATE t SET a = 300000 WHERE id = 300000")
    altering = Altering(where, change, "UPDATE t SET a = -a WHERE id < 10", "UPDATE t SET a = 10 - id WHERE id < 10")
    expect("moved", altering.end("COMMIT"), 0)
    expect("by the new key", rows(c, "SELECT GROUP_CONCAT(id ORDER BY a) FROM t WHERE a < 10"), (("9,8,7,6,5,4,3,2,1",),))
    whole(c, "moved", "b", 200001)
    rows(c, "INSERT INTO t VALUES (400000, 400000, 400000)")
    expect("unique", code_of(c, "INSERT INTO t VALUES (1, 400001, 1)"), 1062)


def test_moved_and_rebuilt(where):
    """A table that goes to another database as it is built anew takes no other's place among the guests of a tablespace."""
    c = database(where)
    for name in "one", "two":
        rows(c, f"CREATE OR REPLACE DATABASE {name}")
        rows(c, f"CREATE TABLE {name}.{name} (id INT PRIMARY KEY, v INT) ENGINE=MYRIAD SELECT seq AS id, seq AS v FROM seq_1_to_1000")
    rows(c, "ALTER TABLE two.two RENAME one.guest")
    expect("in place", code_of(c, "ALTER TABLE one.one RENAME two.one, FORCE, ALGORITHM=INPLACE"), 1845)
    rows(c, "ALTER TABLE one.one RENAME two.one, FORCE")
    expect("moved", rows(c, "SELECT COUNT(*), SUM(v) FROM two.one"), ((1000, 500500),))
    rows(c, "DROP DATABASE two")
    where.restart()
    c = where.connect()
    expect("the guest", rows(c, "SELECT COUNT(*), SUM(v) FROM one.guest"), ((1000, 500500),))
    rows(c, "DROP DATABASE one")


def test_foreign_keys(where):
    """Rows that a parent's change takes along."""
    c = database(where)
    rows(c, "CREATE TABLE p (id INT PRIMARY KEY) ENGINE=MYRIAD")
    rows(c, "INSERT INTO p SELECT seq FROM seq_1_to_1000")
    big(c)
    rows(c, "UPDATE t SET b = b MOD 1000 + 1")
    rows(c, "ALTER TABLE t ADD FOREIGN KEY (b) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE")
    altering = Altering(where, "ADD KEY ab (a, b)", "DELETE FROM p WHERE id < 11", "UPDATE p SET id = id + 5000 WHERE id < 21")
    expect("ALTER", altering.end("COMMIT"), 0)
    for index in ("ab", "b"):
        found = rows(c, f"SELECT COUNT(*), SUM(b), SUM(a) FROM t FORCE INDEX ({index}) WHERE a > 0 AND b > 0")
        expect(index, found, rows(c, "SELECT COUNT(*), SUM(b), SUM(a) FROM t FORCE INDEX (PRIMARY) WHERE id > 0"))
    whole(c, "cascade", "b", 198000)


def test_prepared(where):
    """The end waits for a transaction that its connection has left prepared, as the beginning does."""
    c = database(where)
    big(c)
    altering = Altering(where, "ADD KEY a (a)", "INSERT INTO t VALUES (300000, 300000, 1)", begin="XA START 'left'")
    for statement in "XA END 'left'", "XA PREPARE 'left'":
        rows(altering.holder, statement)
    altering.holder.close()
    altering.thread.join(HUNG_SECONDS)
    expect("left prepared", altering.code, 1205)
    rows(c, "XA COMMIT 'left'")
    whole(c, "refused", "b", 200001)
    rows(c, "ALTER TABLE t ADD KEY a (a), LOCK=NONE")
    whole(c, "again", "a", 200001)


def test_killed(where):
    """KILL at any moment: the table is as it was, and the next build is whole."""
    c = database(where)
    fill(c)
    writers, chosen, ends = Writers(where, 2), random.Random(7), set()
    try:
        for _ in range(15):
            altering = where.connect(database="d")
            found = []
            change = f"ADD KEY k1 (a), {chosen.choice(['FORCE, ', ''])}LOCK=NONE"
            thread = threading.Thread(target=lambda: found.append(code_of(altering, f"ALTER TABLE t {change}")))
            thread.start()
            runs = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {altering.thread_id()} AND INFO LIKE 'ALTER%'"
            wait_until("the ALTER runs", lambda: rows(c, runs) or found)
            time.sleep(chosen.random() * 0.3)
            rows(c, f"KILL QUERY {altering.thread_id()}")
            thread.join(HUNG_SECONDS)
            ends.add(found[0])
            expect("an end", found[0] in (0, 1317), True)
            if not found[0]:
                check(c, "not killed", {"k1": "id, a"})
                rows(c, "ALTER TABLE t DROP KEY k1")
        rows(c, "ALTER TABLE t ADD KEY k1 (a), LOCK=NONE")
    finally:
        writers.stop()
    check(c, "after all", {"k1": "id, a"})
    expect("some were killed", 1317 in ends, True)


def test_crashes(_where):
    """SIGKILL at any moment: the table is whole, with the index or without, and what was not finished is reclaimed."""
    chosen, ends = random.Random(8), set()
    with server.Server("MYRIAD", pool_mib=32) as where:
        c = database(where)
        fill(c)
        for _ in range(6):
            writers = Writers(where, 2)
            altering = where.connect(database="d")
            change = f"ADD KEY k1 (a), ADD UNIQUE k2 (u), {chosen.choice(['FORCE, ', ''])}LOCK=NONE"
            thread = threading.Thread(target=lambda: code_of(altering, f"ALTER TABLE t {change}"))
            thread.start()
            time.sleep(chosen.random() * 1.2)
            where.kill()
            thread.join(HUNG_SECONDS)
            writers.stop()
            where.start()
            c = where.connect(database="d")
            there = {row[2] for row in rows(c, "SHOW INDEX FROM t")}
            ends.add(len(there))
            expect("both or none", there in ({"PRIMARY"}, {"PRIMARY", "k1", "k2"}), True)
            expect("CHECK TABLE", [row[3] for row in rows(c, "CHECK TABLE t EXTENDED")], ["OK"])
            if len(there) > 1:
                check(c, "after a crash", {"k1": "id, a", "k2": "id, u"})
                rows(c, "ALTER TABLE t DROP KEY k1, DROP KEY k2")
        expect("a crash found it unfinished", 1 in ends, True)


# Phases of ALTER TABLE in the server's log of DDL: in place it changes the table, has changed it; a copy is complete, the
# old table is put aside.
BEGUN, DONE, COPIED, ASIDE = 3, 2, 6, 7
SPACES = "SELECT COUNT(*) FROM information_schema.MYRIAD_TABLESPACES"


def test_crashes_at_the_end(_where):
    """A crash leaves a table, or all of its partitions, as its definition says, and the binary log as well."""
    by_hash = "PARTITION BY HASH (id) PARTITIONS 3"
    cases = [(change, by_hash) for change in ("ADD KEY a (a), ADD COLUMN c INT DEFAULT 9", "DROP KEY b, ADD KEY ab (a, b)",
                                              "ADD COLUMN c INT DEFAULT 9 FIRST", "RENAME COLUMN b TO c", "FORCE, ADD KEY a (a)")]
    cases += [("ADD KEY a (a), FORCE", ""), ("DROP PRIMARY KEY, ADD PRIMARY KEY (a)", "")]
    with tenant_tests.Killer() as killer, server.Server("MYRIAD", options=["--log-bin=binlog", "--sync-binlog=1"]) as where:
        empty = rows(database(where), SPACES)
        for change, partitions in cases:
            for moment, at, done in [("KILL_AT_PHASE", BEGUN, False), ("KILL_BEFORE_PHASE", DONE, True), ("KILL_AT_PHASE", DONE, True),
                                     ("KILL_AT", "/p.frm", True)]:
                # What changes nothing in the engine is known to be done when the server has noted it.
                done = done and not (moment == "KILL_BEFORE_PHASE" and change.startswith("RENAME"))
                crash_at_the_end(where, killer, empty, change, partitions, {moment: str(at)}, done)
        copies = [("MODIFY a BIGINT", by_hash), ("REMOVE PARTITIONING", by_hash), (by_hash, ""), ("PARTITION BY HASH (id) PARTITIONS 2", by_hash)]
        for change, partitions in copies:
            moments = [("KILL_BEFORE_PHASE", COPIED, False), ("KILL_AT_PHASE", COPIED, True), ("KILL_AT_PHASE", ASIDE, True)]
            if partitions:
                moments.append(("KILL_AT", "#sql-backup", True))
            if "REMOVE" not in change:
                moments.append(("KILL_AT", "/p.par", True))
            for moment, at, done in moments:
                crash_at_the_end(where, killer, empty, change, partitions, {moment: str(at)}, done)


def await_spaces(c, wanted):
    deadline = time.monotonic() + HUNG_SECONDS
    while rows(c, SPACES) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return rows(c, SPACES)


def crash_at_the_end(where, killer, empty, change, partitions, moment, done):
    what = f"{change} {partitions}, {moment}"
    killer.restart(where)
    c = database(where)
    expect(f"{what}: tablespaces before", await_spaces(c, empty), empty)
    rows(c, f"CREATE TABLE p (id INT PRIMARY KEY, a INT NOT NULL, b INT, KEY b (b)) TABLESPACE_PER='TABLE' {partitions}")
    rows(c, "INSERT INTO p SELECT seq, seq, seq FROM seq_1_to_100")
    before = rows(c, "SHOW CREATE TABLE p")[0][1]
    killer.restart(where, **moment)
    c = where.connect(database="d")
    rows(c, "RESET MASTER")
    expect(f"{what}: killed", code_of(c, f"ALTER TABLE p {change}"), 2013)
    where.process.wait(30)
    killer.restart(where)
    c = where.connect(database="d")
    expect(f"{what}: done", rows(c, "SHOW CREATE TABLE p")[0][1] != before, done)
    expect(f"{what}: rows", rows(c, "SELECT COUNT(*), SUM(a) FROM p"), ((100, 5050),))
    expect(f"{what}: CHECK TABLE", [row[3] for row in rows(c, "CHECK TABLE p EXTENDED")], ["OK"])
    # The server leaves a .par file behind; DROP DATABASE removes it.
    left = [name for name in os.listdir(os.path.join(where.datadir, "d")) if "#sql" in name and not name.endswith(".par")]
    expect(f"{what}: left behind", left, [])
    parts = rows(c, "SELECT COUNT(*) FROM information_schema.PARTITIONS WHERE table_schema = 'd' AND table_name = 'p'")[0][0]
    expect(f"{what}: tablespaces", await_spaces(c, ((empty[0][0] + parts,),))[0][0] - empty[0][0], parts)
    logged = [log for (log, *_) in rows(c, "SHOW BINARY LOGS")]
    events = [event[5] for log in logged for event in rows(c, f"SHOW BINLOG EVENTS IN '{log}'")]
    expect(f"{what}: in the binary log", sum(f"ALTER TABLE p {change}" in event for event in events), int(done))
    rows(c, f"ALTER TABLE p {change}" if not done else "ALTER TABLE p ADD KEY again (a), ALGORITHM=NOCOPY")


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
