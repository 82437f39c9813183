#!/usr/bin/python3
"""What needs more than one client or a tool: dump and restore, many tables at once, DDL beside its users, binary log with crash,
temporary tables, the command beside a server. Usage: server_tests.py [NAME...]"""
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import HUNG_SECONDS, at_once, begin, code_of, database, expect, first_answer, gate, metric, pymysql, rows, run, server, start, status, wait_until  # noqa: E402


def test_dump(where):
    c = database(where)
    rows(c, """CREATE TABLE t1 (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(30), b LONGBLOB, n DECIMAL(20,5), d DATETIME(3),
               g INT AS (n*2) VIRTUAL, KEY(v), KEY(g))""")
    rows(c, "INSERT INTO t1 (v,b,n,d) SELECT CONCAT('v',seq), REPEAT(CHAR(seq MOD 256), seq), seq/7, NOW(3) FROM seq_1_to_3000")
    rows(c, "CREATE TABLE p1 (a INT, b INT, KEY(b)) PARTITION BY HASH(a) PARTITIONS 4")
    rows(c, "INSERT INTO p1 SELECT seq, seq MOD 10 FROM seq_1_to_500")
    rows(c, "CREATE SEQUENCE s1 START WITH 10")
    rows(c, "SELECT NEXT VALUE FOR s1")
    rows(c, "CREATE VIEW w1 AS SELECT id, v FROM t1")
    rows(c, "CREATE TRIGGER g1 BEFORE INSERT ON p1 FOR EACH ROW SET NEW.b=NEW.b")
    checks = ["CHECKSUM TABLE t1", "SELECT COUNT(*), SUM(a), SUM(b) FROM p1", "SELECT next_not_cached_value FROM s1",
              "SELECT COUNT(*), MAX(v) FROM w1", "SHOW CREATE TABLE t1", "SELECT SUM(g) FROM t1"]
    before = [rows(c, q) for q in checks]
    for options in (["--single-transaction"], ["--lock-tables"]):
        dump = subprocess.run([server.tool("mariadb-dump"), "--no-defaults", f"--socket={where.socket}", "--user=root", "--hex-blob",
                               "--routines", "--triggers", *options, "--databases", "d"], capture_output=True)
        expect("mariadb-dump", (dump.returncode, dump.stderr), (0, b""))
        rows(c, "DROP DATABASE d")
        load = subprocess.run([server.tool("mariadb"), "--no-defaults", f"--socket={where.socket}", "--user=root"], input=dump.stdout,
                              capture_output=True)
        expect("restore", (load.returncode, load.stderr), (0, b""))
        c.select_db("d")
        expect(f"contents after {options}", [rows(c, q) for q in checks], before)


def test_options_of_other_engines(where):
    """Row formats and folders that tables of other engines bring along: they stay in the definition, which can be loaded as a
    dump is, but is refused in strict mode."""
    c = database(where)
    folder = tempfile.mkdtemp()
    formats = {"a": "ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8", "b": "ENGINE=MyISAM ROW_FORMAT=FIXED",
               "c": "ENGINE=Aria ROW_FORMAT=PAGE", "d": f"ENGINE=InnoDB DATA DIRECTORY='{folder}'",
               "e": "ENGINE=InnoDB PARTITION BY HASH (x) (PARTITION p ENCRYPTED='NO', PARTITION q)"}
    for name, options in formats.items():
        rows(c, f"CREATE TABLE {name} (x INT PRIMARY KEY, y INT) {options}")
        rows(c, f"INSERT INTO {name} VALUES (1, 2)")
        rows(c, f"ALTER TABLE {name} ENGINE=MYRIAD")
        warned = [code for _, code, _ in rows(c, "SHOW WARNINGS")]
        expect(f"warnings of {name}", warned, {"a": [1478, 1478], "e": []}.get(name, [1478]))
        for change in ("FORCE", "ADD KEY k (y), ALGORITHM=NOCOPY", "FORCE, ALGORITHM=COPY"):
            rows(c, f"ALTER TABLE {name} {change}")
            expect(f"warnings of {change} of {name}", rows(c, "SHOW WARNINGS"), ())
        definition = rows(c, f"SHOW CREATE TABLE {name}")[0][1]
        rows(c, f"CREATE TABLE {name}_like LIKE {name}")
        rows(c, f"DROP TABLE {name}_like")
        expect("ROW", rows(c, f"SELECT * FROM {name}"), ((1, 2),))
        rows(c, f"DROP TABLE {name}")
        strict = {"d": 0, "e": 1911}.get(name, 1478)
        expect(f"{definition} in strict mode", code_of(c, definition), strict)
        expect("other messages", [row for row in rows(c, "SHOW WARNINGS") if row[1] not in (strict, 1005, 6)], [])
        rows(c, f"DROP TABLE IF EXISTS {name}")
        rows(c, "SET sql_mode='NO_AUTO_VALUE_ON_ZERO'")
        rows(c, definition)
        expect("definition", rows(c, f"SHOW CREATE TABLE {name}")[0][1], definition)
        rows(c, "SET sql_mode=DEFAULT")
    expect("explicit folder", code_of(c, f"CREATE TABLE f (x INT) DATA DIRECTORY='{folder}'"), 1478)
    shutil.rmtree(folder)


def test_thread_pool(_where):
    """The pool's only thread waits for a row: another one works for him who has it, at once."""
    options = ["--thread-handling=pool-of-threads", "--thread-pool-size=1", "--thread-pool-stall-limit=120000"]
    with server.Server(options=options) as srv:
        c = database(srv)
        rows(c, "CREATE TABLE h (id INT PRIMARY KEY, v INT)")
        rows(c, "INSERT INTO h VALUES (1, 0)")
        rows(c, "COMMIT")
        waiters = [srv.connect(database="d", autocommit=True) for _ in range(4)]
        rows(c, "BEGIN")
        rows(c, "UPDATE h SET v = 1")
        threads = [start(waiter, "UPDATE h SET v = v + 1") for waiter in waiters]
        begin = time.monotonic()
        rows(c, "COMMIT")
        took = time.monotonic() - begin
        for thread in threads:
            thread.join()
        expect("the holder was held up", took >= HUNG_SECONDS, False)
        expect("all have had their turn", rows(c, "SELECT v FROM h"), ((5,),))

        # While it waits for the log, others come as far as that: they share its sync.
        rows(c, "CREATE TABLE l (id INT PRIMARY KEY AUTO_INCREMENT)")
        commits, syncs = status(c, "commits"), status(c, "log_syncs")
        waiters += [srv.connect(database="d", autocommit=True) for _ in range(12)]
        at_once(lambda w: [rows(w, "INSERT INTO l VALUES ()") for _ in range(25)], waiters)
        commits, syncs = status(c, "commits") - commits, status(c, "log_syncs") - syncs
        expect(f"commits with a sync of their own: {syncs} syncs of {commits} commits", syncs > 0.8 * commits, False)


def test_backup_refused(where):
    """mariadb-backup is known by the wait_timeout it sets; its backup would have none of the tables."""
    c = database(where)
    tool = where.connect()
    rows(tool, "SET SESSION wait_timeout=2147483, max_statement_time=0")
    try:
        rows(tool, "BACKUP STAGE START")
        expect("mariadb-backup", "let through", "refused")
    except pymysql.err.Error as problem:
        expect("mariadb-backup", (problem.args[0], "mariadb-dump" in problem.args[1]), (4148, True))
    tool.close()
    rows(c, "BACKUP STAGE START")
    rows(c, "BACKUP STAGE BLOCK_COMMIT")
    rows(c, "BACKUP STAGE END")


def test_versions_with_virtual_texts(where):
    """System versioning, where the server overwrites the virtual texts by which the old row's entries are found (InnoDB leaves some)."""
    c = database(where)
    rows(c, "CREATE TABLE v (id INT PRIMARY KEY, a TEXT, b TEXT AS (CONCAT(a, 'x')) VIRTUAL, c TEXT AS (CONCAT(b, id)) VIRTUAL, "
            "KEY (b(3)), KEY (c(70))) WITH SYSTEM VERSIONING")
    rows(c, "INSERT INTO v (id, a) VALUES (1, REPEAT('a', 60)), (2, ''), (3, 'c')")
    for partitions in ("", "PARTITION BY HASH (id) PARTITIONS 3"):
        rows(c, f"ALTER TABLE v {partitions}" if partitions else "SELECT 1")
        changes = ["UPDATE v SET a = CONCAT(a, REPEAT('b', 300))", "UPDATE v SET a = CONCAT(id, 'd'), id = id + 10 ORDER BY id DESC",
                   "UPDATE v, (SELECT 5 AS n) w SET v.a = CONCAT('e', w.n)", "REPLACE INTO v (id, a) VALUES (11, 'f')",
                   "INSERT INTO v (id, a) VALUES (13, 'g') ON DUPLICATE KEY UPDATE a = 'h'", "UPDATE v SET a = NULL WHERE id < 13",
                   "UPDATE v SET a = 'i'"]
        for change in changes:
            rows(c, "DO SLEEP(0.001)")
            rows(c, change)
            for every in ("", " FOR SYSTEM_TIME ALL"):
                for index in "bc":
                    query = (f"SELECT COUNT(*) FROM v{every} x {{}} JOIN v{every} y USE INDEX () "
                             f"ON x.{index} = y.{index} AND x.id = y.id AND x.ROW_START = y.ROW_START")
                    wanted = rows(c, query.format("USE INDEX ()"))
                    expect(f"by {index} after {change}", rows(c, query.format(f"FORCE INDEX ({index})")), wanted)
            expect("check", rows(c, "CHECK TABLE v EXTENDED")[-1][3], "OK")
    expect("rows", rows(c, "SELECT GROUP_CONCAT(c ORDER BY id) FROM v"), (("ix11,ix13,ix21,ix22,ix23",),))


def test_check_of_virtual_entries(where):
    """CHECK TABLE computes the virtual columns of indexes, and finds entries that have other values."""
    c = database(where)
    rows(c, "SET sql_mode='ALLOW_INVALID_DATES'")
    rows(c, """CREATE TABLE t (id INT PRIMARY KEY, a DATETIME, n INT, v DATE AS (a), w INT AS (n * 2), x TEXT AS (REPEAT(n, 300)),
               KEY kv (v), UNIQUE KEY kw (w), KEY kx (x(20)), UNIQUE KEY h (x))""")
    rows(c, "INSERT INTO t (id, a, n) SELECT seq, '2020-01-01' + INTERVAL seq DAY, IF(seq % 7, seq, NULL) FROM seq_1_to_2000")
    rows(c, "CREATE TABLE p LIKE t")
    rows(c, "ALTER TABLE p DROP KEY h, DROP KEY kw, DROP PRIMARY KEY PARTITION BY HASH (id) PARTITIONS 3")
    rows(c, "INSERT INTO p (id, a, n) SELECT id, a, n FROM t")
    for level in ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        rows(c, f"SET TRANSACTION ISOLATION LEVEL {level}")
        expect(f"check at {level}", [line[3] for line in rows(c, "CHECK TABLE t, p")], ["OK", "OK"])
    # A value that the column has in this mode alone.
    rows(c, "UPDATE t SET a = '2020-02-31' WHERE id IN (5, 6)")
    expect("check in the mode of the writer", [line[3] for line in rows(c, "CHECK TABLE t")], ["OK"])
    rows(c, "SET sql_mode=''")
    found = "MYRIAD: index kv: 2 of 2000 rows have no entry with the values that the index's virtual columns have now"
    expect("check in another", [line[3] for line in rows(c, "CHECK TABLE t")], [found, "Corrupt"])
    expect("quick check", [line[3] for line in rows(c, "CHECK TABLE t QUICK")], ["OK"])


def test_virtual_columns_of_what_triggers_set(where):
    """LOAD DATA without SET, INSERT without values and UPDATE of several tables compute virtual columns before a trigger sets what they
    are made of."""
    c = database(where)
    path = os.path.join(where.folder, "loaded")
    with open(path, "w", encoding="utf8") as f:
        f.writelines(f"{no}\t{no}\n" for no in range(10))
    for kind in ("", "PARTITION BY HASH (id) PARTITIONS 3", "WITH SYSTEM VERSIONING"):
        rows(c, f"""CREATE OR REPLACE TABLE t (id INT DEFAULT 100, a INT, g INT AS (a + 1) VIRTUAL, x TEXT AS (REPEAT(a, 300)) VIRTUAL, KEY kg (g),
                    KEY kx (x(20))) {kind}""")
        rows(c, "CREATE TRIGGER b BEFORE INSERT ON t FOR EACH ROW SET NEW.a = COALESCE(NEW.a, 1) + 1000")
        rows(c, f"LOAD DATA INFILE '{path}' INTO TABLE t (id, a)")
        rows(c, f"LOAD DATA INFILE '{path}' IGNORE INTO TABLE t (id, a) SET id = id + 10")
        for verb in ("INSERT", "INSERT IGNORE", "REPLACE"):
            rows(c, f"{verb} INTO t () VALUES ()")
        expect(f"check {kind}", [line[3] for line in rows(c, "CHECK TABLE t EXTENDED")], ["OK"])
        expect(f"by index {kind}", rows(c, "SELECT COUNT(*), SUM(g) FROM t FORCE INDEX (kg) WHERE g > 1000"), ((23, 23 * 1001 + 90 + 3),))
        rows(c, "DELETE FROM t WHERE id >= 5")
        expect(f"what is left {kind}", rows(c, "SELECT g FROM t FORCE INDEX (kg) WHERE g > 0 ORDER BY g"), tuple((1001 + no,) for no in range(5)))
        rows(c, "CREATE TRIGGER u BEFORE UPDATE ON t FOR EACH ROW SET NEW.a = NEW.a + 1000")
        for which in ("t JOIN seq_1_to_4 ON seq = id SET a = a + 1", "t x JOIN t y ON x.id + 1 = y.id SET x.a = x.a + 10, y.a = y.a + 1", "t SET a = a + 1, id = id + 1",
                      "t JOIN seq_1_to_4 ON seq = id SET id = id + 1"):
            rows(c, f"UPDATE {which}")
            expect(f"check {kind} after {which}", [line[3] for line in rows(c, "CHECK TABLE t EXTENDED")], ["OK"])
            expect(f"sums {kind} after {which}", rows(c, "SELECT SUM(g) FROM t FORCE INDEX (kg) WHERE g > 0"), rows(c, "SELECT SUM(a + 1) FROM t"))
    # Nobody has looked for duplicates of the new values.
    rows(c, "CREATE OR REPLACE TABLE t (id INT, a TEXT, UNIQUE (a))")
    rows(c, "INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'xx')")
    rows(c, "CREATE TRIGGER b BEFORE UPDATE ON t FOR EACH ROW SET NEW.a = CONCAT(NEW.a, NEW.a)")
    expect("UPDATE of several tables", code_of(c, "UPDATE t JOIN seq_1_to_2 ON id = seq SET id = id + 10"), 1235)
    expect("UPDATE of one", code_of(c, "UPDATE t SET id = id + 10 WHERE id = 1"), 1062)
    rows(c, "UPDATE t SET id = id + 10 WHERE id = 2")
    expect("rows", rows(c, "SELECT * FROM t ORDER BY id"), ((1, "x"), (3, "xx"), (12, "yy")))
    rows(c, "CREATE OR REPLACE TABLE t (id INT, a TEXT, b TEXT, UNIQUE (a))")
    rows(c, "CREATE TRIGGER b BEFORE INSERT ON t FOR EACH ROW SET NEW.a = COALESCE(NEW.b, 'none')")
    expect("INSERT of nothing", code_of(c, "INSERT INTO t () VALUES ()"), 1235)
    for ignore in ("", "IGNORE", "REPLACE"):
        expect(f"LOAD DATA {ignore}", code_of(c, f"LOAD DATA INFILE '{path}' {ignore} INTO TABLE t (id, b)"), 1235)
    expect("rows", rows(c, "SELECT * FROM t"), ())
    rows(c, f"LOAD DATA INFILE '{path}' INTO TABLE t (id, b) SET id = id MOD 3")
    expect("duplicate", code_of(c, f"LOAD DATA INFILE '{path}' INTO TABLE t (id, b) SET id = id"), 1062)
    rows(c, f"LOAD DATA INFILE '{path}' INTO TABLE t (id, a) SET b = CONCAT(a, 'x')")
    expect("rows", rows(c, "SELECT COUNT(*), COUNT(DISTINCT a) FROM t"), ((20, 20),))
    expect("check", [line[3] for line in rows(c, "CHECK TABLE t EXTENDED")], ["OK"])


def test_partitions_by_virtual_columns(where):
    """Rows of several partitions come in the order of an index's virtual columns (on InnoDB they do not)."""
    c = database(where)
    rows(c, "CREATE TABLE p (id INT PRIMARY KEY, k INT, l INT NOT NULL, v INT AS (MOD(k, 17) + l) VIRTUAL, "
            "w VARCHAR(20) AS (CONCAT('w', MOD(k, 13))) VIRTUAL, KEY (v), KEY (w DESC)) PARTITION BY HASH(id) PARTITIONS 3")
    rows(c, "INSERT INTO p (id, k, l) SELECT seq, IF(MOD(seq, 10), seq * 7 % 61, NULL), seq * 11 % 41 FROM seq_1_to_1500")
    for column in "v", "w":
        by_index, by_sorting = (
            rows(c, f"SELECT {column}, MIN(k), MAX(l), COUNT(*) FROM p {hint} WHERE l < 39 GROUP BY {column} ORDER BY {column}")
            for hint in ("FORCE INDEX (v, w)", "IGNORE INDEX (v, w)"))
        expect(column, by_index, by_sorting)
        order = f"SELECT {column}, id FROM p FORCE INDEX ({column}) ORDER BY {column} DESC LIMIT 500"
        expect(order, [row[0] for row in rows(c, order)],
               [row[0] for row in rows(c, order.replace("FORCE", "IGNORE"))])


def code_with_little_memory(where, sql, more_mib):
    """What a statement ends with while the server's process may take so much more than it has."""
    process, other = where.process.pid, where.connect(database="d")
    unlimited = resource.prlimit(process, resource.RLIMIT_AS)
    with open(f"/proc/{process}/statm", encoding="ascii") as sizes:
        limit = int(sizes.read().split()[0]) * resource.getpagesize() + (more_mib << 20)
    resource.prlimit(process, resource.RLIMIT_AS, (limit, unlimited[1]))
    code = code_of(other, sql)
    resource.prlimit(process, resource.RLIMIT_AS, unlimited)
    other.close()
    return code


def test_no_memory_for_a_value(_where):
    """Where the system gives no memory for a long value its statement fails, and nothing else."""
    with server.Server("MYRIAD", options=["--max-allowed-packet=1G"]) as where:
        c = database(where)
        value = "REPEAT('x', 96 << 20)"
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY, a INT, v LONGBLOB)")
        rows(c, f"INSERT INTO t SELECT 1, 1, {value}")
        scan, look_up, insert = "SELECT LENGTH(v) FROM t", "SELECT LENGTH(v) FROM t WHERE id = 1", f"INSERT INTO t SELECT 2, 1, {value}"
        # Enough for one copy of the value, or not: a scan makes no second one.
        for more_mib, sql in ((64, scan), (64, look_up), (160, look_up), (160, insert)):
            code = code_with_little_memory(where, sql, more_mib)
            expect(f"{sql} with {more_mib} MiB: {code}", code in (0, 2013), False)
        expect("with room for one copy", code_with_little_memory(where, scan, 160), 0)
        expect("all is there", rows(c, "SELECT id, LENGTH(v) FROM t"), ((1, 96 << 20),))


def test_no_memory_for_rows_beside(_where):
    """The same for rows that no client reads: in cascades, for new indexes, of tables rebuilt or checked."""
    with server.Server("MYRIAD", options=["--max-allowed-packet=1G"]) as where:
        c = database(where)
        rows(c, "CREATE TABLE parent (id INT PRIMARY KEY)")
        rows(c, "INSERT INTO parent VALUES (1)")
        rows(c, """CREATE TABLE t (id INT PRIMARY KEY, p INT, v LONGBLOB, w INT AS (p + 1), KEY (w),
                   FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE)""")
        rows(c, "INSERT INTO t (id, p, v) SELECT 1, 1, REPEAT('x', 96 << 20)")
        # Enough for one copy of the value, for two, for three.
        for sql in ("UPDATE parent SET id = id + 1", "ALTER TABLE t ADD KEY k (v(10)), ALGORITHM=INPLACE", "CHECK TABLE t",
                    "ALTER TABLE t FORCE, ALGORITHM=INPLACE", "DELETE FROM parent"):
            for more_mib in 64, 160, 288, 416:
                code = code_with_little_memory(where, sql, more_mib)
                expect(f"{sql} with {more_mib} MiB: {code}", code == 2013, False)
                if not code and not sql.startswith("CHECK"):
                    break
            expect(f"rows after {sql}", rows(c, "SELECT COUNT(*) FROM t JOIN parent ON p = parent.id"), rows(c, "SELECT COUNT(*) FROM parent"))
            expect(f"check after {sql}", [row[3] for row in rows(c, "CHECK TABLE t, parent")], ["OK", "OK"])


def test_no_memory_to_sort(_where):
    """An index is built with as much memory as the system gives, where that is less than the statement may use."""
    with server.Server("MYRIAD") as where:
        c = database(where)
        rows(c, "SET GLOBAL myriad_sort_buffer_size = 1 << 40")
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY, v VARBINARY(3000))")
        rows(c, "INSERT INTO t SELECT seq, REPEAT(UNHEX(MD5(seq)), 187) FROM seq_1_to_30000")
        for change in ("ADD KEY v (v)", "ADD KEY w (v), FORCE", "ADD KEY x (v), ALGORITHM=COPY"):
            code = code_with_little_memory(where, f"ALTER TABLE t {change}", 48)
            expect(f"{change}: {code}", code, 0)
        expect("check", rows(c, "CHECK TABLE t")[-1][3], "OK")


def test_sequences_shown(where):
    """SHOW FULL TABLES brings sequences into the server's cache: none may stay there that is dropped meanwhile."""
    c = database(where)
    end, problems = time.monotonic() + 4, []

    def attempt(statements):
        try:
            connection = where.connect(database="d")
            while time.monotonic() < end:
                for sql in statements:
                    rows(connection, sql)
        except pymysql.err.Error as problem:
            problems.append(problem.args)

    work = [[f"CREATE SEQUENCE q{i}", f"SELECT NEXTVAL(q{i})", "FLUSH TABLES" if i == 0 else "DO 1",
             f"RENAME TABLE q{i} TO r{i}", f"DROP SEQUENCE r{i}"] for i in range(3)] + [["SHOW FULL TABLES"]] * 2
    at_once(attempt, work)
    expect("errors", problems, [])
    expect("left", rows(c, "SHOW FULL TABLES"), ())


def test_sequences_of_many_tables(_where):
    """SHOW FULL TABLES, and with it mariadb-dump, tells sequences from tables also where the server's cache of definitions is full."""
    with server.Server("MYRIAD", options=["--table-definition-cache=400"]) as where:
        c = database(where)
        for i in range(450):
            rows(c, f"CREATE TABLE t{i} (id INT)")
            rows(c, f"SELECT * FROM t{i}")
        rows(c, "CREATE DATABASE few")
        for i in range(3):
            rows(c, f"CREATE SEQUENCE few.s{i}")
        rows(c, "CREATE TABLE few.t (id INT DEFAULT NEXTVAL(few.s0))")
        rows(c, "PREPARE p FROM 'SHOW FULL TABLES FROM few'")
        rows(c, "CREATE PROCEDURE shown() SHOW FULL TABLES FROM few")
        wanted = (("s0", "SEQUENCE"), ("s1", "SEQUENCE"), ("s2", "SEQUENCE"), ("t", "BASE TABLE"))
        for sql in ("SHOW FULL TABLES FROM few", "EXECUTE p", "EXECUTE p", "CALL shown()"):
            expect(sql, rows(c, sql), wanted)
        # They are held no longer than the statement runs.
        other = where.connect(database="few")
        rows(other, "SET lock_wait_timeout = 1")
        for statement in ("DROP SEQUENCE s2", "FLUSH TABLES", "ALTER SEQUENCE s1 START 5"):
            rows(other, statement)
        expect("left", rows(c, "SHOW FULL TABLES FROM few"), wanted[:2] + wanted[3:])


def test_sequence_passed_on(where):
    """A sequence that the server keeps open is used by one connection after the other: none is taken for another."""
    c = database(where)
    rows(c, "CREATE SEQUENCE s")
    rows(c, "FLUSH TABLES")
    opener, reader = where.connect(database="d"), where.connect(database="d")
    rows(opener, "SELECT next_not_cached_value FROM s")
    opener.close()
    with gate(where) as waits:
        thread = start(reader, f"SELECT next_not_cached_value, {waits} FROM s")
        shown = first_answer(lambda: rows(c, "SELECT TRX_MYSQL_THREAD_ID FROM information_schema.MYRIAD_TRX"))
    thread.join(HUNG_SECONDS)
    expect("who reads", set(shown), {(reader.thread_id(),)})


def test_auto_increment_floor(where):
    """ALTER TABLE ... AUTO_INCREMENT looks for the largest value when nobody can insert any more."""
    c = database(where)
    altering, inserting = where.connect(database="d"), where.connect(database="d")
    rows(c, "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT, KEY k (a))")
    rows(c, "INSERT INTO t SELECT seq, seq FROM seq_1_to_10")
    rows(c, "BEGIN")
    rows(c, "SELECT * FROM t")
    threads = [start(altering, "ALTER TABLE t DROP INDEX k, AUTO_INCREMENT = 1, ALGORITHM=INPLACE"),
               start(inserting, "INSERT INTO t (a) VALUES (1), (2)")]
    rows(c, "COMMIT")
    for thread in threads:
        thread.join(HUNG_SECONDS)
    expect("beside DROP INDEX", code_of(c, "INSERT INTO t (a) VALUES (3)"), 0)
    expect("largest", rows(c, "SELECT MAX(id) FROM t"), ((13,),))
    rows(c, "BEGIN")
    rows(c, "INSERT INTO t (a) VALUES (4)")
    thread = start(altering, "ALTER TABLE t AUTO_INCREMENT = 1, ALGORITHM=INSTANT")
    rows(c, "INSERT INTO t (a) VALUES (5)")
    rows(c, "COMMIT")
    thread.join(HUNG_SECONDS)
    expect("behind a transaction", code_of(c, "INSERT INTO t (a) VALUES (6)"), 0)
    expect("largest", rows(c, "SELECT MAX(id) FROM t"), ((16,),))
    rows(c, "DELETE FROM t WHERE id > 3")
    rows(c, "ALTER TABLE t AUTO_INCREMENT = 1, ALGORITHM=INSTANT")
    rows(c, "INSERT INTO t (a) VALUES (7)")
    expect("lower again", rows(c, "SELECT MAX(id) FROM t"), ((4,),))
    rows(c, "BEGIN")
    rows(c, "INSERT INTO t (a) VALUES (8)")
    thread = start(altering, "ALTER TABLE t FORCE, AUTO_INCREMENT = 1, LOCK=NONE")
    rows(c, "INSERT INTO t (a) VALUES (9)")
    rows(c, "COMMIT")
    thread.join(HUNG_SECONDS)
    rows(c, "INSERT INTO t (a) VALUES (10)")
    expect("built anew", rows(c, "SELECT MAX(id) FROM t"), ((7,),))
    rows(c, "DELETE FROM t WHERE id > 3")
    rows(c, "ALTER TABLE t FORCE, AUTO_INCREMENT = 1, LOCK=NONE")
    rows(c, "INSERT INTO t (a) VALUES (11)")
    expect("lower in the new one", rows(c, "SELECT MAX(id) FROM t"), ((4,),))


def test_auto_increment_key(where):
    """The counter is right when the column becomes the first of its key."""
    c = database(where)
    rows(c, "CREATE TABLE s (a INT, id INT NOT NULL AUTO_INCREMENT, PRIMARY KEY (a, id))")
    rows(c, "INSERT INTO s (a) VALUES (1), (1), (2)")
    refused = code_of(c, "ALTER TABLE s ADD KEY (id), ALGORITHM=INPLACE")
    expect("refused in place", refused, 1846)
    rows(c, "ALTER TABLE s ADD KEY (id)")
    rows(c, "INSERT INTO s (a) VALUES (1)")
    expect("a new key", rows(c, "SELECT * FROM s ORDER BY a, id"), ((1, 1), (1, 2), (1, 3), (2, 1)))
    rows(c, "ALTER TABLE s DROP KEY id")
    rows(c, "INSERT INTO s (a) VALUES (2), (3)")
    expect("none", rows(c, "SELECT * FROM s WHERE a > 1 ORDER BY a, id"), ((2, 1), (2, 2), (3, 1)))
    rows(c, "CREATE TABLE k (a INT, id INT NOT NULL AUTO_INCREMENT, KEY k (a, id))")
    rows(c, "INSERT INTO k (a) VALUES (1), (1), (2)")
    rows(c, "ALTER TABLE k DROP KEY k, ADD KEY k (id)")
    rows(c, "INSERT INTO k (a) VALUES (7), (8)")
    expect("another key", rows(c, "SELECT id FROM k ORDER BY id"), ((1,), (1,), (2,), (3,), (4,)))


def test_exchange_order_of_indexes(where):
    """The server lets tables with the same indexes in another order be exchanged: one would be read for the other."""
    c = database(where)
    rows(c, """CREATE TABLE p (id INT PRIMARY KEY, a INT, b INT, KEY a (a), KEY b (b))
               PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100))""")
    rows(c, "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, KEY b (b), KEY a (a))")
    rows(c, "INSERT INTO t VALUES (1, 10, 20)")
    expect("exchange", code_of(c, "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t"), 1736)
    expect("convert", code_of(c, "ALTER TABLE p CONVERT TABLE t TO PARTITION p1 VALUES LESS THAN (200)"), 1736)
    rows(c, "ALTER TABLE t DROP KEY b")
    rows(c, "ALTER TABLE t ADD KEY b (b)")
    rows(c, "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t")
    expect("row", rows(c, "SELECT * FROM p FORCE INDEX (a) WHERE a = 10"), ((1, 10, 20),))


def test_index_builds(where):
    """An index that is not built as the statement asks for is refused, and nothing has changed."""
    c = database(where)
    rows(c, """CREATE TABLE t (id INT PRIMARY KEY, a INT, l TEXT, b DATE, e DATE, v INT AS (a + 1) VIRTUAL,
               PERIOD FOR d (b, e))""")
    rows(c, "INSERT INTO t (id, a, b, e) VALUES (1, 7, '2020-01-01', '2020-02-01'), (2, 7, '2020-01-15', '2020-03-01')")
    for asked in "ADD UNIQUE (l)", "ADD UNIQUE (a, d WITHOUT OVERLAPS)":
        for how in "LOCK=NONE", "ALGORITHM=INPLACE":
            expect(asked, code_of(c, f"ALTER TABLE t {asked}, {how}") in (1845, 1846), True)
    expect("overlaps", code_of(c, "ALTER TABLE t ADD UNIQUE (a, d WITHOUT OVERLAPS)"), 1062)
    expect("duplicates", code_of(c, "ALTER TABLE t ADD UNIQUE (v), ALGORITHM=INPLACE"), 1062)
    rows(c, "UPDATE t SET a = 1 WHERE id = 1")
    rows(c, "ALTER TABLE t ADD COLUMN p DOUBLE AS (POW(a, 1000)) VIRTUAL")
    expect("no value", code_of(c, "ALTER TABLE t ADD KEY (p), ALGORITHM=INPLACE"), 1690)
    expect("indexes", [row[2] for row in rows(c, "SHOW INDEX FROM t")], ["PRIMARY"])
    for key in "a", "v":
        for lock in "NONE", "SHARED", "EXCLUSIVE":
            rows(c, f"ALTER TABLE t ADD KEY k ({key}), LOCK={lock}")
            expect(key, rows(c, f"SELECT id, {key} FROM t FORCE INDEX (k) WHERE {key} > 0"), ((1, 1 + (key == "v")), (2, 7 + (key == "v"))))
            rows(c, "ALTER TABLE t DROP KEY k, LOCK=NONE")


def test_partitions_in_place(_where):
    """A table's partitions change in place, all at once. A table whose indexes are not those of its definition is refused."""
    with server.Server("MYRIAD") as where:
        c = database(where)
        rows(c, "CREATE TABLE p (id INT PRIMARY KEY, a INT NOT NULL, b INT, KEY k (b)) PARTITION BY HASH (id) PARTITIONS 64")
        rows(c, "INSERT INTO p SELECT seq, seq, seq * 2 FROM seq_1_to_2000")
        syncs, begin = metric(c, "log_syncs"), time.monotonic()
        for change in ("ADD UNIQUE u (a, id)", "DROP KEY k", "ADD KEY k (b), DROP KEY u", "ADD COLUMN x INT DEFAULT 5, ADD KEY x (x, a)",
                       "DROP KEY x, ADD COLUMN y INT AS (x + b) VIRTUAL FIRST", "ADD KEY y (y)"):
            rows(c, f"ALTER TABLE p {change}, ALGORITHM=NOCOPY")
        # Others sync each second.
        found, seconds = metric(c, "log_syncs") - syncs, time.monotonic() - begin
        expect(f"6 changes of 64 partitions: {found} syncs in {seconds:.0f} s", found < 64 + 2 * seconds, True)
        for change in "DROP COLUMN a", "ADD COLUMN z INT NOT NULL DEFAULT 3 AFTER x", "RENAME COLUMN z TO zz", "ALTER zz SET DEFAULT 4":
            rows(c, f"ALTER TABLE p {change}, ALGORITHM=INSTANT")
        rows(c, "INSERT INTO p (id, b) VALUES (3000, 1)")
        sums = "SELECT COUNT(*), SUM(b), SUM(x), SUM(y), SUM(zz) FROM p"
        wanted = ((2001, 4002001, 10005, 4012006, 6004),)
        expect("rows", rows(c, sums), wanted)
        expect("by the first key", rows(c, f"{sums} FORCE INDEX (k) WHERE b > 0"), wanted)
        expect("by the last key", rows(c, f"{sums} FORCE INDEX (y) WHERE y > 0"), wanted)
        expect("check", rows(c, "CHECK TABLE p EXTENDED")[0][3], "OK")
        # New partitions and those of other tables have other layouts.
        rows(c, "ALTER TABLE p ADD PARTITION PARTITIONS 2")
        rows(c, "ALTER TABLE p COALESCE PARTITION 60")
        expect("other partitions", rows(c, f"{sums} FORCE INDEX (y) WHERE y > 0"), wanted)
        rows(c, "CREATE TABLE x LIKE p")
        rows(c, "ALTER TABLE x REMOVE PARTITIONING")
        rows(c, "ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE x")
        rows(c, "ALTER TABLE p ADD COLUMN after_all INT DEFAULT 1, ALGORITHM=INSTANT")
        rows(c, "ALTER TABLE x ADD COLUMN after_all INT DEFAULT 1, ALGORITHM=INSTANT")
        rows(c, "ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE x")
        expect("after exchanges", rows(c, f"{sums} WHERE after_all = 1"), wanted)
        expect("by the key", rows(c, f"{sums} FORCE INDEX (y) WHERE y > 0"), wanted)
        rows(c, "ALTER TABLE p TRUNCATE PARTITION p0")
        rows(c, "DROP TABLE x")
        rows(c, "CREATE TABLE q LIKE p")
        rows(c, "ALTER TABLE q DROP KEY y")
        where.stop()
        folder = os.path.join(where.datadir, "d")
        os.replace(os.path.join(folder, "q.frm"), os.path.join(folder, "p.frm"))
        where.start()
        c = where.connect(database="d")
        expect("another definition", code_of(c, "SELECT * FROM p FORCE INDEX (k) WHERE b > 0") != 0, True)
        with open(where.log) as log:
            expect("told", "the indexes of table d/p#P#p0 do not fit its definition" in log.read(), True)
        rows(c, "DROP TABLE p")


def test_many_tables(where):
    c = database(where)
    count = 1500
    begin = time.monotonic()
    for i in range(count):
        rows(c, f"CREATE TABLE t{i} (a INT PRIMARY KEY, b VARCHAR(20), KEY(b))")
    created = time.monotonic() - begin
    rows(c, "CREATE TRIGGER g BEFORE INSERT ON t7 FOR EACH ROW SET NEW.a=NEW.a+1")
    rows(c, "INSERT INTO t3 VALUES (1,'x')")
    expect("names", len(rows(c, "SHOW TABLES")), count)
    begin = time.monotonic()
    rows(c, "DROP DATABASE d")
    print(f"     {count} tables: created in {created:.2f} s, dropped in {time.monotonic() - begin:.2f} s")
    rows(c, "CREATE DATABASE d")
    c.select_db("d")
    expect("gone", rows(c, "SHOW TABLES"), ())
    rows(c, "CREATE TABLE t3 (z INT)")
    expect("new table of an old name", rows(c, "SELECT * FROM t3"), ())


def test_ddl_against_users(where):
    """A table dropped, renamed or altered while other sessions keep it open."""
    c = database(where)
    other = where.connect(database="d")
    rows(c, "CREATE TABLE u (a INT PRIMARY KEY, b INT)")
    rows(c, "INSERT INTO u VALUES (1,1)")
    expect("seen", rows(other, "SELECT * FROM u"), ((1, 1),))
    rows(c, "ALTER TABLE u ADD KEY kb (b)")
    expect("after ADD KEY", rows(other, "SELECT b FROM u FORCE INDEX(kb)"), ((1,),))
    rows(c, "ALTER TABLE u COMMENT='x'")
    rows(other, "INSERT INTO u VALUES (2,2)")
    rows(c, "RENAME TABLE u TO v")
    try:
        rows(other, "SELECT * FROM u")
        raise AssertionError("the old name still works")
    except pymysql.err.ProgrammingError as problem:
        expect("old name", problem.args[0], 1146)
    expect("new name", rows(other, "SELECT COUNT(*) FROM v FORCE INDEX(kb) WHERE b>0"), ((2,),))
    rows(c, "DROP TABLE v")
    rows(c, "CREATE TABLE v (z INT)")
    expect("recreated", rows(other, "SELECT * FROM v"), ())
    files = [name for name in os.listdir(os.path.join(where.datadir, "d")) if name != "db.opt"]
    expect("no files in the database's folder", files, [])


def test_binlog_crash(_where):
    with server.Server("MYRIAD", binlog=True) as where:
        c = database(where)
        rows(c, "CREATE TABLE b (a INT PRIMARY KEY, b INT)")
        rows(c, "CREATE TABLE i (a INT PRIMARY KEY) ENGINE=InnoDB")
        for i in range(200):
            rows(c, f"INSERT INTO b VALUES ({i},{i})")
        rows(c, "BEGIN")
        rows(c, "INSERT INTO b VALUES (1000,0)")
        rows(c, "INSERT INTO i VALUES (1)")
        rows(c, "COMMIT")
        rows(c, "XA START 'left'")
        rows(c, "INSERT INTO b VALUES (2000,0)")
        rows(c, "XA END 'left'")
        rows(c, "XA PREPARE 'left'")
        second = where.connect(database="d")
        rows(second, "BEGIN")
        rows(second, "INSERT INTO b VALUES (3000,0)")
        where.kill()
        where.start()
        c = where.connect(database="d")
        expect("committed rows", rows(c, "SELECT COUNT(*) FROM b"), ((201,),))
        expect("other engine", rows(c, "SELECT COUNT(*) FROM i"), ((1,),))
        expect("prepared", [r[3] for r in rows(c, "XA RECOVER")], [b"left"])
        rows(c, "XA COMMIT 'left'")
        expect("after XA COMMIT", rows(c, "SELECT COUNT(*) FROM b"), ((202,),))
        expect("check", rows(c, "CHECK TABLE b")[0][3], "OK")
        rows(c, "FLUSH BINARY LOGS")
        rows(c, "PURGE BINARY LOGS TO 'binlog.000003'")


def test_handlersocket(_where):
    """Rows read and written past SQL, by the server's plugin that speaks to the handler itself: they are committed, and a crash
    keeps them."""
    reads, writes = server.free_port(), server.free_port()
    options = ["--plugin-load-add=handlersocket.so", "--handlersocket-address=127.0.0.1", f"--handlersocket-port={reads}",
               f"--handlersocket-port-wr={writes}", "--handlersocket-threads=1", "--handlersocket-threads-wr=1"]

    def ask(file, *words):
        file.write(("\t".join(words) + "\n").encode())
        file.flush()
        return file.readline().decode().rstrip("\n").split("\t")

    with server.Server("MYRIAD", options=options) as where:
        c = database(where)
        rows(c, "CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(9), c INT, KEY (b))")
        rows(c, "INSERT INTO t SELECT seq, CONCAT('k', seq MOD 10), seq FROM seq_1_to_50")
        with socket.create_connection(("127.0.0.1", reads), HUNG_SECONDS) as r, \
                socket.create_connection(("127.0.0.1", writes), HUNG_SECONDS) as w, r.makefile("rwb") as read, w.makefile("rwb") as write:
            for file in (read, write):
                expect("index 1", ask(file, "P", "1", "d", "t", "PRIMARY", "a,b,c"), ["0", "1"])
                expect("index 2", ask(file, "P", "2", "d", "t", "b", "a,b"), ["0", "1"])
            expect("one", ask(read, "1", "=", "1", "7"), ["0", "3", "7", "k7", "7"])
            expect("none", ask(read, "1", "=", "1", "99"), ["0", "3"])
            expect("before", ask(read, "1", "<", "1", "3", "9", "0"), ["0", "3", "2", "k2", "2", "1", "k1", "1"])
            expect("by an index", ask(read, "2", "=", "1", "k3", "2", "1"), ["0", "2", "13", "k3", "23", "k3"])
            expect("insert", ask(write, "1", "+", "3", "100", "new", "5"), ["0", "1"])
            expect("duplicate", ask(write, "1", "+", "3", "100", "new", "5"), ["1", "1", "121"])
            expect("update", ask(write, "1", "=", "1", "100", "1", "0", "U", "101", "put", "6"), ["0", "1", "1"])
            expect("update by an index", ask(write, "2", "=", "1", "k2", "9", "0", "U", "2", "x"), ["1", "1", "121"])
            expect("add", ask(write, "1", "=", "1", "3", "1", "0", "+", "0", "0", "4"), ["0", "1", "1"])
            expect("delete", ask(write, "1", ">=", "1", "5", "46", "0", "D"), ["0", "1", "46"])
            expect("read what was written", ask(read, "1", ">", "1", "4", "9", "0"), ["0", "3", "101", "put", "6"])
            rows(c, "UPDATE t SET b = 'sql' WHERE a = 4")
            expect("read what SQL wrote", ask(read, "1", "=", "1", "4"), ["0", "3", "4", "sql", "4"])
        c.close()
        where.kill()
        where.start()
        expect("kept", where.query("SELECT a, b FROM d.t ORDER BY a"), ((1, "k1"), (2, "x"), (3, "0"), (4, "sql"), (101, "put")))
        expect("check", where.query("CHECK TABLE d.t EXTENDED")[0][3], "OK")


def test_start_with_unfinished_gtid(_where):
    """The server reads gtid_slave_pos before unfinished transactions are rolled back: it must not wait for their locks."""
    with server.Server("MYRIAD", options=["--log-bin=binlog", "--loose-myriad-lock-wait-timeout=600"]) as where:
        where.query("ALTER TABLE mysql.gtid_slave_pos ENGINE=MYRIAD")
        c = database(where)
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY)")
        loser = where.connect(database="mysql")
        rows(loser, "BEGIN")
        rows(loser, "INSERT INTO gtid_slave_pos VALUES (7, 1, 9, 5)")
        rows(c, "INSERT INTO t VALUES (1)")
        where.kill()
        expect("seconds of the start, far below a lock wait", where.start() < 2 * HUNG_SECONDS, True)
        expect("rows", where.query("SELECT COUNT(*) FROM mysql.gtid_slave_pos")[0][0], 0)


def test_temporary_not_logged(_where):
    with server.Server("MYRIAD", binlog=True, options=["--binlog-format=ROW"]) as where:
        c = database(where)
        rows(c, "RESET MASTER")
        rows(c, "CREATE TEMPORARY TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, v TEXT)")
        rows(c, "INSERT INTO a (v) VALUES ('x'), ('y')")
        rows(c, "ALTER TABLE a ADD COLUMN w INT DEFAULT 5")
        rows(c, "CREATE TEMPORARY TABLE b AS SELECT id, w FROM a")
        expect("temporary rows", rows(c, "SELECT * FROM b ORDER BY id"), ((1, 5), (2, 5)))
        rows(c, "TRUNCATE a")
        rows(c, "DROP TABLE a")
        rows(c, "DROP TEMPORARY TABLE b")
        events = [e for e in rows(c, "SHOW BINLOG EVENTS") if e[2] not in ("Format_desc", "Gtid_list", "Binlog_checkpoint")]
        expect("events about temporary tables in row format", events, [])


def test_temporary_definitions(where):
    """Definitions of temporary tables, of which each may be another, leave nothing behind."""
    c = database(where)
    file = os.path.join(where.datadir, "#myriad", "system.myr")
    before = os.stat(file).st_size
    for i in range(1500):
        rows(c, f"CREATE TEMPORARY TABLE t (a{i} INT PRIMARY KEY) COMMENT='{i:2000}'")
        rows(c, f"ALTER TABLE t COMMENT='{i + 5000:2000}'")
        rows(c, "DROP TEMPORARY TABLE t")
    grown = os.stat(file).st_size - before
    expect(f"grown little: {grown} bytes", grown < 2 << 20, True)
    rows(c, "CREATE TEMPORARY SEQUENCE s")
    rows(c, "CREATE TEMPORARY TABLE t (a INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(10), KEY (b))")
    rows(c, "INSERT INTO t (b) VALUES ('x'), ('y')")
    for change in "ADD KEY ab (a, b)", "RENAME COLUMN b TO d", "ADD COLUMN c INT DEFAULT 3", "FORCE", "RENAME TO u":
        rows(c, f"ALTER TABLE t {change}")
    rows(c, "TRUNCATE u")
    rows(c, "INSERT INTO u (d) VALUES ('z')")
    expect("rows", rows(c, "SELECT a, d, c, NEXTVAL(s) FROM u FORCE INDEX (ab)"), ((1, "z", 3, 1),))
    rows(c, "DROP TEMPORARY SEQUENCE s")
    rows(c, "DROP TEMPORARY TABLE u")
    with open(where.log, errors="replace") as log:
        expect("no warning", [line for line in log if "Could not remove" in line], [])


def test_drop_database_beside_readers(where):
    """A DROP DATABASE that waits lets nobody open a table that was not in the server's cache."""
    c = database(where)
    for read in ("SELECT * FROM t", "HANDLER t OPEN"):
        rows(c, "CREATE TABLE t (a INT)")
        rows(c, "CREATE FUNCTION f() RETURNS INT RETURN 1")
        rows(c, "FLUSH TABLES")
        holder, dropper, reader = (where.connect(database="d") for _ in range(3))
        rows(holder, "BEGIN")
        rows(holder, "SELECT f()")
        drop = begin(dropper, "DROP DATABASE d")
        waiting = "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for%' AND INFO LIKE 'DROP%'"
        expect("the DROP waits", bool(first_answer(lambda: rows(c, waiting))), True)
        expect(read, (code_of(reader, read), code_of(holder, read)), (1205, 1205))
        rows(holder, "COMMIT")
        drop.join()
        rows(c, "CREATE DATABASE d")
        expect("after the DROP", code_of(reader, read), 1146)
        for q in ("CREATE TABLE t (a INT, b INT)", "INSERT INTO t VALUES (1, 2)"):
            rows(c, q)
        expect("the new table", rows(reader, "SELECT * FROM t"), ((1, 2),))
        rows(c, "DROP TABLE t")


def test_drop_database_beside_transaction(where):
    """DROP DATABASE waits for who has used a table in his transaction, also when the server's cache has lost it since."""
    c, dropper = database(where), where.connect()
    rows(c, "CREATE TABLE t (id INT PRIMARY KEY)")
    rows(c, "BEGIN")
    rows(c, "INSERT INTO t VALUES (1)")
    rows(dropper, "FLUSH TABLES")
    rows(dropper, "SET lock_wait_timeout=1")
    expect("while it is open", code_of(dropper, "DROP DATABASE d"), 1205)
    expect("its row", rows(c, "SELECT * FROM t"), ((1,),))
    rows(c, "COMMIT")
    rows(dropper, "DROP DATABASE d")


def test_drop_database_with_strange_file(_where):
    """The statement fails, its tables are gone: the binary log has to say so."""
    with server.Server("MYRIAD", binlog=True) as where:
        c = database(where)
        for name in ("a", "b"):
            rows(c, f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        rows(c, "FLUSH TABLES")
        rows(c, "SELECT * FROM a")
        rows(c, "RESET MASTER")
        strange = os.path.join(where.datadir, "d", "strange.txt")
        with open(strange, "w") as f:
            f.write("x")
        try:
            rows(c, "DROP DATABASE d")
            raise AssertionError("DROP DATABASE with a strange file succeeded")
        except pymysql.err.MySQLError as problem:
            expect("error", problem.args[0], 1010)
        expect("tables", rows(c, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='d'"), ((0,),))
        logged = [e[5] for e in rows(c, "SHOW BINLOG EVENTS") if "DROP" in e[5]]
        expect("logged", logged, ["use `d`; DROP TABLE IF EXISTS `a`,`b`"])
        os.remove(strange)
        rows(c, "DROP DATABASE d")


def test_layouts(_where):
    """Columns changed in place: by SIGKILL, in a copied database, in a partition; what is refused."""
    with server.Server("MYRIAD") as where:
        c = database(where)
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20) NOT NULL, b INT) STATS_PERSISTENT=0")
        rows(c, "INSERT INTO t SELECT seq, CONCAT('row', seq), seq FROM seq_1_to_1000")
        before = metric(c, "log_written_bytes")
        rows(c, "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7 FIRST, DROP COLUMN b, MODIFY a VARCHAR(20) NULL, ALGORITHM=INSTANT")
        expect("log of an instant change", metric(c, "log_written_bytes") - before < 16384, True)
        rows(c, "UPDATE t SET a=NULL, c=c+1 WHERE id % 3 = 0")
        sums = "SELECT COUNT(*), SUM(c), COUNT(a), SUM(CRC32(a)) FROM t"
        wanted = rows(c, sums)
        expect("rows of both layouts", wanted[0][:3], (1000, 7333, 667))
        other = where.connect(database="d")
        rows(other, "BEGIN")
        rows(other, "UPDATE t SET c=0")
        where.kill()
        where.start()
        c = where.connect(database="d")
        expect("after a kill", rows(c, sums), wanted)
        rows(c, "XA START 'kept'")
        rows(c, "DELETE FROM t WHERE id > 500")
        rows(c, "XA END 'kept'")
        rows(c, "XA PREPARE 'kept'")
        where.kill()
        where.start()
        c = where.connect(database="d")
        rows(c, "ALTER TABLE t ADD COLUMN d INT, ALGORITHM=INSTANT")
        rows(c, "XA ROLLBACK 'kept'")
        expect("after a rollback of older rows", rows(c, sums), wanted)
        expect("check", rows(c, "CHECK TABLE t EXTENDED")[0][3], "OK")
        expect("copy", rows(c, "SELECT myriad_clone_database('d', 'e')")[0][0], 1)
        rows(c, "INSERT INTO e.t SELECT * FROM t")
        expect("copied", rows(c, sums.replace("FROM t", "FROM e.t")), wanted)
        rows(c, "DROP DATABASE e")
        rows(c, "CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
        rows(c, "INSERT INTO p VALUES (1), (2)")
        rows(c, "CREATE TABLE g (id INT PRIMARY KEY, v INT AS (id + 1) VIRTUAL)")
        rows(c, "ALTER TABLE p ADD COLUMN x INT, ALGORITHM=INSTANT")
        for refused in ("g ADD COLUMN x INT AS (id) STORED", "t ADD COLUMN x INT CHECK (x > id OR x IS NULL)", "t ADD COLUMN y INT DEFAULT (id)",
                        "t MODIFY c INT NOT NULL AUTO_INCREMENT UNIQUE"):
            expect(refused, code_of(c, f"ALTER TABLE {refused}, ALGORITHM=INSTANT") in (1845, 1846), True)
            rows(c, f"ALTER TABLE {refused}") if " c INT" not in refused else None


def test_small_pages(_):
    """A key that pages of 4 KiB have no room for is refused with its table, not with the rows."""
    with server.Server("MYRIAD", options=["--loose-myriad-page-size=4096"], pool_mib=16) as small:
        c = database(small)
        table = "CREATE TABLE k{0} (id INT PRIMARY KEY, a VARBINARY({0}) NOT NULL, b VARBINARY({0}) NOT NULL, KEY ab (a, b))"
        rows(c, table.format(384))
        rows(c, "INSERT INTO k384 VALUES (1, REPEAT('x', 384), REPEAT('y', 384))")
        expect("by the key", rows(c, "SELECT id FROM k384 FORCE INDEX (ab) WHERE a > ''"), ((1,),))
        expect("too long a key", code_of(c, table.format(385)), 1071)
        c.close()


def test_tablespace_check(where):
    c = database(where)
    wait_until("the check's end", lambda: status(c, "tablespace_check_running") == 0)
    expect("findings", rows(c, "SELECT * FROM information_schema.MYRIAD_TABLESPACE_CHECK"), ())
    expect("files", int(rows(c, "SHOW GLOBAL STATUS LIKE 'Myriad_tablespace_check_files'")[0][1]) >= 2, True)
    text = rows(c, "SHOW ENGINE MYRIAD STATUS")[0][2]
    expect("status", "TABLESPACE CHECK" in text and "Mode ONLINE, state DONE" in text and "0 findings" in text, True)
    phases = dict(rows(c, "SELECT PHASE, BYTES_READ FROM information_schema.MYRIAD_STARTUP"))
    expect("phase", phases.get("tablespace check (online)", 0) >= 2 * 4096, True)
    shown = dict(rows(c, "SHOW VARIABLES LIKE 'myriad_tablespace_duplicate%'"))
    expect("variables", shown, {"myriad_tablespace_duplicate_check": "ONLINE", "myriad_tablespace_duplicate_check_threads": "-1",
                                "myriad_tablespace_duplicate_check_light": "ON", "myriad_tablespace_duplicate_check_fadvise": "ON"})


def test_check_command(_where):
    """`myriad check-tablespaces` finds nothing wrong beside tables that come, grow and go, each with a file of its own."""
    with server.Server("MYRIAD", options=["--loose-myriad-tablespace-per=TABLE"]) as where:
        c = database(where)
        for number in range(300):
            rows(c, f"CREATE TABLE stays{number} (a INT PRIMARY KEY)")
        stop, problems = threading.Event(), []

        def churn(client):
            try:
                connection, number = where.connect(database="d"), 0
                while not stop.is_set():
                    number += 1
                    rows(connection, f"CREATE TABLE t{client}_{number} (a INT PRIMARY KEY, b VARCHAR(1000))")
                    rows(connection, f"INSERT INTO t{client}_{number} SELECT seq, REPEAT('x', 900) FROM seq_1_to_200")
                    rows(connection, f"DROP TABLE t{client}_{number}")
                connection.close()
            except pymysql.err.Error as problem:
                problems.append(problem)
        clients = [threading.Thread(target=churn, args=(client,)) for client in range(3)]
        for client in clients:
            client.start()
        try:
            command = [os.path.join(server.BUILD, "myriad"), "check-tablespaces", where.datadir, "--json"]
            for options in [["--light"], ["--page"], ["--io", "threads"], ["--cached"]] * 10:
                done = subprocess.run(command + options, capture_output=True, text=True)
                expect(f"{options}: {done.stdout[:2000]}{done.stderr}", (done.returncode, problems), (0, []))
                expect("files", json.loads(done.stdout)["files"] >= 300, True)
        finally:
            stop.set()
            for client in clients:
                client.join()


def test_temporary_without_waits(_where):
    """Temporary tables end with the server: nobody waits for the log because of them, and a crash leaves none."""
    with server.Server() as srv:
        srv.start()
        c = database(srv)
        rows(c, "CREATE TABLE lasting (a INT)")
        rows(c, "CREATE TEMPORARY TABLE first (a INT)")  # makes their tablespace

        def waits(*statements):
            before = status(c, "log_flush_waits")
            for sql in statements:
                rows(c, sql)
            return status(c, "log_flush_waits") - before

        expect("waits", waits("CREATE TEMPORARY TABLE t (a INT AUTO_INCREMENT PRIMARY KEY, b TEXT, KEY (b(9)))",
                              "INSERT INTO t (b) VALUES (REPEAT('x', 60000)), ('y')", "UPDATE t SET b = CONCAT(b, 'z')",
                              "DELETE FROM t WHERE a = 1", "TRUNCATE t", "INSERT INTO t (b) VALUES ('n')",
                              "BEGIN", "INSERT INTO t (b) VALUES ('m')", "COMMIT", "DROP TEMPORARY TABLE first"), 0)
        expect("a lasting change does", waits("BEGIN", "INSERT INTO t (b) VALUES ('o')", "INSERT INTO lasting VALUES (1)",
                                              "INSERT INTO t (b) VALUES ('p')", "COMMIT") >= 1, True)
        expect("contents", rows(c, "SELECT b FROM t ORDER BY a"), (("n",), ("m",), ("o",), ("p",)))
        srv.kill()
        srv.start()
        c = srv.connect(database="d")
        expect("after the crash", rows(c, "SELECT a FROM lasting"), ((1,),))
        expect("gone", code_of(c, "SELECT * FROM t"), 1146)
        rows(c, "CREATE TEMPORARY TABLE t (a INT)")
        rows(c, "INSERT INTO t VALUES (2)")
        expect("anew", rows(c, "SELECT * FROM t"), ((2,),))


def test_drops_reclaimed_together(where):
    """Who drops table after table does not wake the thread that reclaims them for each."""
    c = database(where)

    def rests():
        for task in os.listdir(f"/proc/{where.process.pid}/task"):
            try:
                with open(f"/proc/{where.process.pid}/task/{task}/status") as f:
                    found = f.read()
            except OSError:
                continue                        # it has ended
            if "Name:\tmyriad-reclaim\n" in found:
                return int(re.search(r"\nvoluntary_ctxt_switches:\t(\d+)", found).group(1))
        raise AssertionError("no thread myriad-reclaim")

    rows(c, "CREATE TEMPORARY TABLE first (a INT)")
    before, begin = rests(), time.monotonic()
    rows(c, """BEGIN NOT ATOMIC DECLARE i INT DEFAULT 0; WHILE i < 1000 DO SET i = i + 1;
               CREATE TEMPORARY TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (i); DROP TEMPORARY TABLE t; END WHILE; END""")
    found, milliseconds = rests() - before, int((time.monotonic() - begin) * 1000)
    # A rest of ten milliseconds for each time; latches and the processor make it wait as well.
    if found > 100 + milliseconds // 2:
        raise AssertionError(f"{found} rests in {milliseconds} ms")


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
