#!/usr/bin/python3
"""Statements that fill a new table from another (ALTER TABLE that copies, CREATE TABLE ... SELECT), ended at any moment by KILL or
SIGKILL; and columns whose values depend on the rows before. Usage: copy_tests.py [NAME...]"""
import os
import random
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import server  # noqa: E402
from server import pymysql  # noqa: E402
from cases import HUNG_SECONDS, code_of, database, expect, rows, run, status  # noqa: E402

COUNT = 30000
# In their order, in none, and in both of them; the entries of one index go to files.
COPIES = ["FORCE", "DROP PRIMARY KEY, ADD PRIMARY KEY (r)", "ADD COLUMN x INT DEFAULT 7, ADD KEY (b, r)", "ENGINE=MYRIAD, DROP KEY b"]
INDEXES = {"id": "SUM(id)", "r": "SUM(r)", "b": "SUM(LENGTH(b))", "v": "SUM(v)"}


def family(c):
    """A table of which each index has the rows in another order."""
    rows(c, f"""CREATE TABLE t (id INT PRIMARY KEY, r INT UNIQUE NOT NULL, b VARCHAR(300), l TEXT, v INT AS (id MOD 1000) VIRTUAL,
                KEY b (b DESC), KEY v (v), KEY id (id)) ENGINE=MYRIAD""")
    rows(c, f"""INSERT INTO t (id, r, b, l) SELECT seq, seq * 7919 MOD 100003, REPEAT(CHAR(65 + seq MOD 26), 20 + seq MOD 200),
                IF(seq MOD 500, NULL, REPEAT('l', 9000)) FROM seq_1_to_{COUNT}""")


def contents(c, table="t"):
    """Sums by each index that there is."""
    there = {row[2] for row in rows(c, f"SHOW INDEX FROM {table}")}
    found = [rows(c, f"SELECT COUNT(*), {expression} FROM {table} FORCE INDEX ({index}) WHERE {index} >= ''" if index == "b" else
                  f"SELECT COUNT(*), {expression} FROM {table} FORCE INDEX ({index}) WHERE {index} > -1")[0]
             for index, expression in INDEXES.items() if index in there]
    return found + [rows(c, f"SELECT COUNT(*), SUM(id), SUM(r), SUM(LENGTH(b)), SUM(LENGTH(l)) FROM {table}")[0]]


def check(c, what, table="t"):
    found = rows(c, f"CHECK TABLE {table} EXTENDED")
    expect(f"{what}: CHECK TABLE", [row[3] for row in found], ["OK"])
    for index, sums in zip(INDEXES, contents(c, table)):
        expect(f"{what}: rows by {index}", sums[0], COUNT)


def definition(c):
    return rows(c, "SHOW CREATE TABLE t")[0][1]


def tables(c):
    return [row[0] for row in rows(c, "SHOW TABLES")]


def test_killed_at_any_moment(_where):
    """SIGKILL: afterwards there is the old table, whole, or the new one, whole."""
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    ends = set()
    with server.Server("MYRIAD", pool_mib=32, options=["--loose-myriad-sort-buffer-size=1048576"]) as where:
        for number in range(12):
            change = COPIES[number % len(COPIES)]
            what = f"{change}, seed {seed}"
            c = database(where)
            family(c)
            old, sums = definition(c), contents(c)[-1]
            begin = time.monotonic()
            rows(c, "CREATE TABLE measure LIKE t")
            rows(c, "INSERT INTO measure (id, r, b, l) SELECT id, r, b, l FROM t")
            rows(c, "DROP TABLE measure")
            wait = moments.random() * (time.monotonic() - begin) * (1.5 if number % 3 else 0.5)
            ended = []
            thread = threading.Thread(target=lambda: ended.append(code_of(c, f"ALTER TABLE t {change}, ALGORITHM=COPY")))
            thread.start()
            time.sleep(wait)
            where.kill()
            thread.join(HUNG_SECONDS)
            where.start()
            c = where.connect(database="d")
            expect(f"{what}: tables", tables(c), ["t"])
            # The statement may have changed everything without a word to the client, but not said so for nothing.
            is_new = definition(c) != old
            if change != "FORCE" and ended == [0]:
                expect(f"{what}: acknowledged", is_new, True)
            ends.add(is_new)
            check(c, what)
            expect(f"{what}: sums", contents(c)[-1], sums)
            expect(f"{what}: usable", code_of(c, f"INSERT INTO t (id, r) VALUES (-1, -1), ({COUNT + 1}, 200000)"), 0)
    if os.environ.get("VERBOSE"):
        print(f"     new at the end: {sorted(ends)}")


def test_killed_by_a_client(where):
    """KILL QUERY: the table is as it was, and nothing is left of the copy."""
    c = database(where)
    family(c)
    other, old, sums = where.connect(database="d"), definition(c), contents(c)
    begin = time.monotonic()
    rows(c, "ALTER TABLE t FORCE, ALGORITHM=COPY")
    whole = time.monotonic() - begin
    codes = []
    for number in range(10):
        for sql in (f"ALTER TABLE t {COPIES[1]}, ALGORITHM=COPY", "CREATE TABLE u (PRIMARY KEY (r), KEY (b)) SELECT r, b FROM t"):
            thread = threading.Thread(target=lambda: codes.append(code_of(c, sql)))
            thread.start()
            time.sleep(whole * number / 10)
            rows(other, f"KILL QUERY {c.thread_id()}")
            thread.join(HUNG_SECONDS)
            try:
                rows(c, "SELECT 1")
            except pymysql.err.Error:
                pass  # the KILL came behind its statement
            if codes[-1]:
                expect(f"{sql}: error", codes[-1], 1317)
                expect(f"{sql}: tables", tables(c), ["t"])
                expect(f"{sql}: definition", definition(c), old)
            elif sql.startswith("CREATE"):
                expect("sums of the copy", rows(c, "SELECT COUNT(*), SUM(r) FROM u FORCE INDEX (b) WHERE b > ''"),
                       rows(c, "SELECT COUNT(*), SUM(r) FROM t"))
                rows(c, "DROP TABLE u")
            else:
                rows(c, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id), ALGORITHM=COPY")
            check(c, sql)
            expect(f"{sql}: sums", contents(c), sums)
    expect("some were killed", 1317 in codes, True)


def test_duplicates(where):
    """The error tells the key and the value, whether the rows come in order and wherever they wait; IGNORE keeps the first row.
    (InnoDB 10.11 tells the value of another row here.)"""
    c = database(where)
    for long_rows in ((), (30,), (1500,), (30, 1500)):
        rows(c, """CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, n VARCHAR(30) NOT NULL, l LONGTEXT)
                   SELECT seq id, CONCAT('n', seq * 7919 MOD 10007) n, 'l' l FROM seq_1_to_2000""")
        rows(c, "UPDATE t SET n = (SELECT CONCAT(UPPER(n), ' ') FROM t WHERE id = 1500) WHERE id = 30")
        for i in long_rows:
            rows(c, f"UPDATE t SET l = REPEAT('x', 20000) WHERE id = {i}")
        for what, sql in (("copy", "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (n), ALGORITHM=COPY"),
                          ("in order", "CREATE TABLE u (PRIMARY KEY (n)) SELECT n, l FROM t ORDER BY n"),
                          ("against it", "CREATE TABLE u (PRIMARY KEY (n)) SELECT n, l FROM t ORDER BY n DESC")):
            try:
                rows(c, sql)
                told = "no error"
            except pymysql.err.IntegrityError as problem:
                told = f"{problem.args[0]} {problem.args[1].rstrip()}".lower().replace("n191 '", "n191'")
            expect(f"{what}, long rows {long_rows}", told, "1062 duplicate entry 'n191' for key 'primary'")
            expect("tables", tables(c), ["t"])
        rows(c, "ALTER IGNORE TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (n), ALGORITHM=COPY")
        expect(f"IGNORE, long rows {long_rows}", rows(c, "SELECT COUNT(*), SUM(id) FROM t"), ((1999, 2001000 - 1500),))
        expect("check", [row[3] for row in rows(c, "CHECK TABLE t EXTENDED")], ["OK"])


def test_numbers_within_groups(where):
    """AUTO_INCREMENT behind other columns of its key: the next value follows from the rows before, of the copy itself."""
    c = database(where)
    wanted = ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2))
    for key in ("PRIMARY KEY (a, id)", "KEY (a, id)", "UNIQUE (a, id)", "KEY (a), KEY (a, id)"):
        rows(c, "CREATE OR REPLACE TABLE s (a INT NOT NULL)")
        rows(c, "INSERT INTO s VALUES (1), (2), (1), (2), (1)")
        rows(c, f"CREATE OR REPLACE TABLE u (id INT NOT NULL AUTO_INCREMENT, {key}) SELECT a FROM s")
        expect(f"CREATE TABLE, {key}", rows(c, "SELECT a, id FROM u ORDER BY a, id"), wanted)
        rows(c, "ALTER TABLE s ADD id INT NOT NULL AUTO_INCREMENT, ADD " + key.replace(", KEY", ", ADD KEY"))
        expect(f"ALTER TABLE, {key}", rows(c, "SELECT a, id FROM s ORDER BY a, id"), wanted)
        expect("check", [row[3] for row in rows(c, "CHECK TABLE s, u EXTENDED")], ["OK", "OK"])


def test_syncs(_where):
    """A copy is durable before its name is changed or given; INSERT ... SELECT waits for nothing but its commit."""
    options = ["--loose-myriad-flush-log-at-trx-commit=2", "--loose-partition=ON"]
    with server.Server("MYRIAD", options=options) as where:
        c = database(where)

        def syncs(*statements):
            """How often the log was synced, and how often others may have done that: each second or so."""
            before, begin = status(c, "log_syncs"), time.monotonic()
            for sql in statements:
                rows(c, sql)
            return status(c, "log_syncs") - before, 2 * (time.monotonic() - begin)

        rows(c, "CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        rows(c, "CREATE TABLE p (id INT PRIMARY KEY, a INT) PARTITION BY HASH (id) PARTITIONS 4")
        statements = [sql.format(i, table) for i in range(40) for table in "tp"
                      for sql in ("INSERT INTO {1} SELECT {0}, 1", "REPLACE INTO {1} SELECT {0}, 2", "INSERT IGNORE INTO {1} SELECT {0}, 3")]
        found, others = syncs(*statements)
        expect(f"{len(statements)} statements: {found} syncs", found < 40 + others, True)
        rows(c, "BEGIN")
        found, others = syncs(*["INSERT INTO t SELECT MAX(id) + 1, 4 FROM t"] * 20)
        expect("within a transaction", found < 10 + others, True)
        rows(c, "ROLLBACK")
        expect("contents", rows(c, "SELECT COUNT(*), SUM(a) FROM t"), ((40, 80),))
        # The statement's own changes of definitions, and the rows.
        rows(c, "CREATE FUNCTION f() RETURNS INT RETURN (SELECT MAX(a) FROM t)")
        for wanted, sql in ((1, "CREATE TABLE n (a INT)"), (2, "CREATE TABLE c SELECT * FROM t"),
                            (2, "CREATE TABLE i (PRIMARY KEY (id)) IGNORE SELECT * FROM t"),
                            (2, "CREATE TABLE r (PRIMARY KEY (id)) REPLACE SELECT * FROM t"), (2, "CREATE TABLE g SELECT f() x"),
                            (5, "ALTER TABLE t FORCE, ALGORITHM=COPY"), (5, "ALTER IGNORE TABLE t ADD UNIQUE (a, id), ALGORITHM=COPY"),
                            (17, "ALTER TABLE p FORCE, ALGORITHM=COPY")):
            found, _ = syncs(sql)
            if found < wanted:
                raise AssertionError(f"{sql}: {found} syncs, not {wanted}")


def test_syncs_of_dropped_partitions(where):
    """A table's partitions are dropped together."""
    for drop in ("TABLE d.p", "DATABASE d"):
        c = database(where)
        rows(c, "CREATE TABLE p (id INT PRIMARY KEY, a INT) PARTITION BY HASH (id) PARTITIONS 64")
        rows(c, "CREATE TABLE p2 (id INT PRIMARY KEY)")
        before, begin = status(c, "log_syncs"), time.monotonic()
        rows(c, f"DROP {drop}")
        found = status(c, "log_syncs") - before
        # Others sync each second or so.
        expect(f"DROP {drop}: {found} syncs", found < 20 + 2 * (time.monotonic() - begin), True)
        rows(c, "CREATE DATABASE IF NOT EXISTS d")
        rows(c, "CREATE TABLE d.p (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
        expect("others", code_of(c, "SELECT * FROM d.p2"), 0 if "TABLE" in drop else 1146)


def test_left_by_another_server(where):
    """What has the name of a copy already, as a backup made in the middle of an ALTER has it, is in no ALTER's way."""
    with database(where) as c:
        rows(c, "CREATE TABLE t (a INT PRIMARY KEY, b INT)")
        rows(c, "INSERT INTO t VALUES (1, 2)")
        with open(os.path.join(where.folder, "pid")) as pid:
            left = f"`#mysql50##sql-alter-{int(pid.read()):x}-{c.thread_id():x}`"
        for how in "INPLACE", "COPY":
            rows(c, f"CREATE TABLE {left} (z TEXT)")
            rows(c, f"ALTER TABLE t FORCE, ALGORITHM={how}")
            expect(how, (rows(c, "SELECT * FROM t"), code_of(c, f"DROP TABLE {left}")), (((1, 2),), 1051))


def test_new_column_with_check(where):
    """Where the rows that there are do not pass a new column's CHECK, or it needs a look at each, the server copies."""
    with database(where) as c:
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY)")
        rows(c, "INSERT INTO t VALUES (1), (3)")
        before = definition(c)
        for column in ("j JSON NOT NULL", "n INT DEFAULT 2 CHECK (n > 5)", "n INT DEFAULT 2 CHECK (n > id)"):
            expect(column, code_of(c, f"ALTER TABLE t ADD COLUMN {column}"), 4025)
            expect(f"{column}, instant", code_of(c, f"ALTER TABLE t ADD COLUMN {column}, ALGORITHM=INSTANT"), 1845)
        expect("definition", definition(c), before)
        rows(c, "ALTER TABLE t ADD COLUMN n INT DEFAULT 4 CHECK (n > id)")
        expect("rows", rows(c, "SELECT * FROM t"), ((1, 4), (3, 4)))


def test_order_of_partitioning_columns(where):
    """Of PARTITION BY KEY a row's partition depends on the order of the columns: InnoDB leaves rows in the wrong ones."""
    with database(where) as c:
        rows(c, """CREATE TABLE t (id INT NOT NULL, r INT NOT NULL, c INT, PRIMARY KEY (id, r))
                   PARTITION BY LINEAR KEY (r, id) PARTITIONS 3""")
        rows(c, "INSERT INTO t SELECT seq * 7919, seq * 31 % 10, seq FROM seq_1_to_300")
        for column in ("id INT NOT NULL AFTER c", "c INT NOT NULL FIRST", "r INT NOT NULL AFTER id"):
            rows(c, f"ALTER TABLE t MODIFY {column}")
            expect(column, [row[3] for row in rows(c, "CHECK TABLE t EXTENDED")], ["OK"])
            expect(f"{column}: a row", rows(c, "SELECT c FROM t WHERE id = 158380 AND r = 0"), ((20,),))


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
