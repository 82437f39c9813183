#!/usr/bin/python3
"""Partitions that change places with tables, or become tables, and their options. Usage: partition_tests.py [NAME...]"""
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import at_once, begin, code_of, database, expect, pymysql, rows, run, server  # noqa: E402


def test_converted_partition_opened_at_once(where):
    """A partition that became a table gets its definition from who opens it first. Those who open it meanwhile use the same
    AUTO_INCREMENT counter and the same hidden row ids."""
    c = database(where)
    clients = [where.connect(database="d") for _ in range(12)]
    problems = []

    def insert(client, go):
        go.wait()
        for _ in range(3):
            try:
                rows(client, "INSERT INTO y (k) VALUES (1)")
            except pymysql.err.Error as problem:
                problems.append(problem.args)

    for _ in range(15):
        rows(c, """CREATE TABLE p (k INT, a INT AUTO_INCREMENT, KEY (a))
                   PARTITION BY LIST (k) (PARTITION p0 VALUES IN (0), PARTITION p1 VALUES IN (1))""")
        rows(c, "ALTER TABLE p CONVERT PARTITION p1 TO TABLE y")
        go = threading.Barrier(len(clients))
        at_once(lambda client: insert(client, go), clients)
        expect("errors", problems, [])
        expect("rows and values", rows(c, "SELECT COUNT(*), COUNT(DISTINCT a) FROM y"), ((36, 36),))
        rows(c, "DROP TABLE y, p")


def test_options_of_partitions(_where):
    """Options of single partitions are refused: what the partition becomes would be without them, and in memory all the same."""
    with server.Server("MYRIAD") as where:
        c = database(where)
        option = "PARTITION p0 VALUES LESS THAN (10) {}, PARTITION p1 VALUES LESS THAN (20)"
        for given in "IN_MEMORY=YES", "IN_MEMORY=NO", "TABLESPACE_PER='TABLE'":
            expect(given, code_of(c, f"CREATE TABLE m (a INT PRIMARY KEY) PARTITION BY RANGE (a) ({option.format(given)})"), 1478)
            expect(f"{given} of a table in memory",
                   code_of(c, f"CREATE TABLE m (a INT PRIMARY KEY) IN_MEMORY=YES PARTITION BY RANGE (a) ({option.format(given)})"), 1478)
        rows(c, f"CREATE TABLE m (a INT PRIMARY KEY) PARTITION BY RANGE (a) ({option.format('')})")
        rows(c, "INSERT INTO m VALUES (1), (11)")
        rows(c, "CREATE TABLE t (a INT PRIMARY KEY)")
        rows(c, "INSERT INTO t VALUES (21)")
        new = "PARTITION p2 VALUES LESS THAN (30) IN_MEMORY=YES"
        for change in (f"ADD PARTITION ({new})", f"REORGANIZE PARTITION p0 INTO ({option.split(',')[0].format('IN_MEMORY=YES')})",
                       f"CONVERT TABLE t TO {new}", f"PARTITION BY RANGE (a) ({option.format('IN_MEMORY=YES')})"):
            expect(change, code_of(c, f"ALTER TABLE m {change}"), 1478)
        expect("definition", "IN_MEMORY" in rows(c, "SHOW CREATE TABLE m")[0][1], False)
        rows(c, "DELETE FROM t")
        rows(c, "ALTER TABLE m IN_MEMORY=YES")
        expect("exchange", code_of(c, "ALTER TABLE m EXCHANGE PARTITION p0 WITH TABLE t"), 1736)
        rows(c, "ALTER TABLE m IN_MEMORY=NO, TABLESPACE_PER='TABLE'")
        rows(c, "ALTER TABLE m FORCE, ALGORITHM=INPLACE")
        rows(c, "ALTER TABLE m EXCHANGE PARTITION p0 WITH TABLE t")
        rows(c, "ALTER TABLE m CONVERT PARTITION p1 TO TABLE y")
        where.kill()
        where.start()
        c = where.connect(database="d")
        expect("rows", [rows(c, f"SELECT * FROM {table}") for table in "tym"], [((1,),), ((11,),), ()])


def test_exchange_stored_columns(where):
    """The server lets a virtual column be exchanged for an ordinary one, of which rows have values."""
    c = database(where)
    rows(c, """CREATE TABLE p (k INT PRIMARY KEY, g INT AS (k+1) VIRTUAL, z INT, s VARCHAR(20), KEY (z))
               PARTITION BY RANGE (k) (PARTITION p0 VALUES LESS THAN (100))""")
    rows(c, "INSERT INTO p (k, z, s) VALUES (5, 5, 'five')")
    for column in "INT", "INT AS (k+1) STORED":
        rows(c, f"CREATE TABLE t (k INT PRIMARY KEY, g {column}, z INT, s VARCHAR(20), KEY (z))")
        rows(c, "INSERT INTO t (k, z, s) VALUES (1, 1, 'one')")
        expect(f"exchange with {column}", code_of(c, "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t"), 1736)
        expect("convert", code_of(c, "ALTER TABLE p CONVERT TABLE t TO PARTITION p1 VALUES LESS THAN (200)"), 1736)
        expect("rows", (rows(c, "SELECT * FROM p"), rows(c, "SELECT k, z, s FROM t")), (((5, 6, 5, "five"),), ((1, 1, "one"),)))
        rows(c, "DROP TABLE t")
    rows(c, "CREATE TABLE t (k INT PRIMARY KEY, g INT AS (k+1) VIRTUAL, z INT, s VARCHAR(20), KEY (z))")
    rows(c, "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t")
    expect("exchanged", rows(c, "SELECT * FROM t"), ((5, 6, 5, "five"),))


def test_exchange_for_a_counter(where):
    """A table with AUTO_INCREMENT gets a partition's rows that has none: its values go on above them, as with InnoDB."""
    c = database(where)

    def counts(key, engine):
        rows(c, f"CREATE TABLE p (a INT NOT NULL, v INT, {key}) ENGINE={engine} PARTITION BY RANGE (v) (PARTITION p0 VALUES LESS THAN (100))")
        rows(c, f"CREATE TABLE t (a INT NOT NULL AUTO_INCREMENT, v INT, {key}) ENGINE={engine}")
        rows(c, "INSERT INTO t (v) VALUES (1), (1)")
        rows(c, "INSERT INTO p VALUES (5, 5), (6, 6)")
        rows(c, "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t")
        rows(c, "INSERT INTO t (v) VALUES (7)")
        rows(c, "ALTER TABLE t FORCE")
        rows(c, "INSERT INTO t (v) VALUES (8)")
        rows(c, "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t")
        rows(c, "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t")
        rows(c, "INSERT INTO t (v) VALUES (9)")
        rows(c, "TRUNCATE TABLE t")
        rows(c, "INSERT INTO t (v) VALUES (10)")
        found = rows(c, "SELECT * FROM t"), rows(c, "SELECT * FROM p")
        rows(c, "DROP TABLE p, t")
        return found

    for key in "KEY (a)", "KEY (a DESC)", "KEY (a, v)":
        expect(key, counts(key, "MYRIAD"), counts(key, "InnoDB"))
    columns = "k INT DEFAULT 3, v INT AS (k+1) VIRTUAL, b TEXT, KEY (a, v), KEY (v)"
    rows(c, f"CREATE TABLE p (a BIGINT UNSIGNED NOT NULL, {columns}) PARTITION BY HASH (k) PARTITIONS 1")
    rows(c, f"CREATE TABLE t (a BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, {columns})")
    rows(c, "INSERT INTO p (a, b) VALUES (40, REPEAT('x', 60000))")
    rows(c, "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t")
    clients = [where.connect(database="d") for _ in range(8)]
    threads = [begin(client, "INSERT INTO t (b) VALUES ('y'), ('z')") for client in clients]
    for thread in threads:
        thread.join()
    expect("values of many", rows(c, "SELECT COUNT(*), COUNT(DISTINCT a), MIN(a), MAX(a) FROM t WHERE b <> REPEAT('x', 60000)"),
           ((16, 16, 41, 56),))


def test_younger_partitions_with_many_layouts(where):
    """Old partitions have as many row layouts as there may be, a new one has one: those are built anew, this one is not."""
    for younger in ("ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))",
                    "REORGANIZE PARTITION p0 INTO (PARTITION p00 VALUES LESS THAN (5), PARTITION p01 VALUES LESS THAN (10))"):
        c = database(where)
        rows(c, """CREATE TABLE p (id INT PRIMARY KEY, a INT, b INT, KEY a (a), KEY b (b))
                   PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))""")
        rows(c, "INSERT INTO p VALUES (1, 1, 1), (7, 2, 2), (11, 3, 3)")
        for no in range(63):
            rows(c, f"ALTER TABLE p {'DROP' if no % 2 else 'ADD'} COLUMN x{'' if no % 2 else ' INT DEFAULT 3'}, ALGORITHM=INSTANT")
        rows(c, f"ALTER TABLE p {younger}")
        for changes, columns in (("ADD COLUMN y INT NOT NULL DEFAULT 9, DROP KEY a", (9,)), ("ADD COLUMN z INT DEFAULT 8, ADD KEY a (a)", (9, 8)),
                                 ("MODIFY b INT NOT NULL", (9, 8))):
            rows(c, f"ALTER TABLE p {changes}")
            expect(f"{younger}, {changes}", rows(c, "SELECT * FROM p FORCE INDEX (b) WHERE b > 0 ORDER BY b"),
                   tuple((id, no, no, 3, *columns) for no, id in ((1, 1), (2, 7), (3, 11))))
            expect(f"{younger}, {changes}: CHECK TABLE", [row[3] for row in rows(c, "CHECK TABLE p EXTENDED")], ["OK"])


def test_killed_while_partitions_are_copied(where):
    """The server's loop does not look."""
    c = database(where)
    rows(c, "CREATE TABLE p (id INT PRIMARY KEY, a INT, b VARCHAR(60), KEY (a)) PARTITION BY HASH (id) PARTITIONS 4")
    rows(c, "INSERT INTO p SELECT seq, seq, MD5(seq) FROM seq_1_to_100000")
    for change in ("ADD PARTITION PARTITIONS 1", "REBUILD PARTITION ALL", "COALESCE PARTITION 1"):
        expect(change, code_of(c, f"SET STATEMENT max_statement_time = 0.02 FOR ALTER TABLE p {change}"), 1969)
        expect("rows", rows(c, "SELECT COUNT(*), SUM(a) FROM p"), ((100000, 5000050000),))
        expect("CHECK TABLE", [row[3] for row in rows(c, "CHECK TABLE p")], ["OK"])
    rows(c, "ALTER TABLE p ADD PARTITION PARTITIONS 1")


def test_order_by_the_beginning_of_what_is_computed(where):
    """The rows of several partitions are put in the order of an index, also of virtual columns that it has a prefix of, which
    the server computes later."""
    c = database(where)
    for g in ("BLOB", "VARCHAR(300)"):
        wanted, got = [], []
        for name, partitions, answers in (("whole", "", wanted), ("p", "PARTITION BY HASH (id) PARTITIONS 3", got)):
            rows(c, f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b BLOB, g {g} AS (REVERSE(b)) VIRTUAL, KEY k (a, g(2))) {partitions}")
            rows(c, f"INSERT INTO {name} (id, a, b) SELECT seq, seq MOD 5, REPEAT(CHAR(97 + seq MOD 17), 3) FROM seq_1_to_300")
            rows(c, f"HANDLER {name} OPEN AS h")
            answers += [rows(c, f"HANDLER h READ k {which} LIMIT 1000") for which in ("FIRST", "= (3)", "LAST", "< (2)")]
            rows(c, "HANDLER h CLOSE")
        expect(f"orders of {g}", got, wanted)
        rows(c, "DROP TABLE whole, p")


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
