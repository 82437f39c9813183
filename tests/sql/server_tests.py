#!/usr/bin/python3
"""What needs more than one client or a tool: dump and restore, KILL, lock waits in INFORMATION_SCHEMA, many tables at once,
binary log with crash, replication of what the engine writes. Usage: server_tests.py [NAME...]"""
import os
import subprocess
import sys
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import server  # noqa: E402
from server import pymysql  # noqa: E402


def rows(connection, sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, wanted {wanted!r}")


def database(where):
    connection = where.connect()
    rows(connection, "DROP DATABASE IF EXISTS d")
    rows(connection, "CREATE DATABASE d")
    connection.select_db("d")
    return connection


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


def test_kill_waiting(where):
    c = database(where)
    rows(c, "CREATE TABLE k (a INT PRIMARY KEY, b INT)")
    rows(c, "INSERT INTO k VALUES (1,1)")
    rows(c, "BEGIN")
    rows(c, "UPDATE k SET b=2")
    waiter = where.connect(database="d")
    outcome = []

    def wait():
        try:
            outcome.append(rows(waiter, "UPDATE k SET b=3"))
        except pymysql.err.Error as problem:
            outcome.append(problem.args[0])
    thread = threading.Thread(target=wait)
    thread.start()
    for _ in range(100):
        waits = rows(c, "SELECT * FROM information_schema.MYRIAD_LOCK_WAITS")
        if waits:
            break
        time.sleep(0.02)
    expect("lock waits shown", len(waits), 1)
    expect("locks shown", len(rows(c, "SELECT * FROM information_schema.MYRIAD_LOCKS WHERE LOCK_TABLE='d/k'")) >= 2, True)
    expect("states", sorted(r[0] for r in rows(c, "SELECT TRX_STATE FROM information_schema.MYRIAD_TRX")), ["ACTIVE", "LOCK WAIT"])
    rows(c, f"KILL QUERY {waiter.thread_id()}")
    thread.join(5)
    expect("killed statement", outcome, [1317])
    rows(c, "COMMIT")
    expect("the connection goes on", rows(waiter, "SELECT b FROM k"), ((2,),))


def test_deadlock(where):
    c = database(where)
    rows(c, "CREATE TABLE k (a INT PRIMARY KEY, b INT)")
    rows(c, "INSERT INTO k VALUES (1,1),(2,2)")
    one, two = where.connect(database="d"), where.connect(database="d")
    for connection, key in ((one, 1), (two, 2)):
        rows(connection, "BEGIN")
        rows(connection, f"UPDATE k SET b=b+10 WHERE a={key}")
    outcome = []

    def cross():
        try:
            rows(one, "UPDATE k SET b=b+10 WHERE a=2")
            outcome.append(0)
        except pymysql.err.Error as problem:
            outcome.append(problem.args[0])
    thread = threading.Thread(target=cross)
    thread.start()
    time.sleep(0.3)
    begin = time.monotonic()
    try:
        rows(two, "UPDATE k SET b=b+10 WHERE a=1")
        second = 0
    except pymysql.err.Error as problem:
        second = problem.args[0]
    thread.join(10)
    expect("one victim", sorted(outcome + [second]), [0, 1213])
    expect("found at once", time.monotonic() - begin < 1, True)
    rows(one, "COMMIT")
    rows(two, "COMMIT")
    expect("the other one's changes", sorted(rows(c, "SELECT b FROM k")), [(11,), (12,)])


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


def test_xa_disconnected(where):
    c = database(where)
    rows(c, "CREATE TABLE x (a INT PRIMARY KEY)")
    other = where.connect(database="d")
    for statement in ("XA START 'away'", "INSERT INTO x VALUES (1)", "XA END 'away'", "XA PREPARE 'away'"):
        rows(other, statement)
    other.close()
    time.sleep(0.3)
    try:
        rows(c, "SELECT * FROM x WHERE a=1 FOR UPDATE NOWAIT")
        raise AssertionError("the prepared transaction lost its locks")
    except pymysql.err.OperationalError as problem:
        expect("still locked", problem.args[0], 1205)
    rows(c, "XA COMMIT 'away'")
    expect("committed", rows(c, "SELECT * FROM x"), ((1,),))


def test_tablespace_check(where):
    c = database(where)
    for _ in range(100):
        if rows(c, "SHOW GLOBAL STATUS LIKE 'Myriad_tablespace_check_running'")[0][1] == "0":
            break
        time.sleep(0.05)
    expect("findings", rows(c, "SELECT * FROM information_schema.MYRIAD_TABLESPACE_CHECK"), ())
    expect("files", int(rows(c, "SHOW GLOBAL STATUS LIKE 'Myriad_tablespace_check_files'")[0][1]) >= 2, True)
    text = rows(c, "SHOW ENGINE MYRIAD STATUS")[0][2]
    expect("status", "TABLESPACE CHECK" in text and "Mode ONLINE, state DONE" in text and "0 findings" in text, True)
    phases = dict(rows(c, "SELECT PHASE, BYTES_READ FROM information_schema.MYRIAD_STARTUP"))
    expect("phase", phases.get("tablespace check (online)", 0) >= 2 * 4096, True)
    shown = dict(rows(c, "SHOW VARIABLES LIKE 'myriad_tablespace_duplicate%'"))
    expect("variables", shown, {"myriad_tablespace_duplicate_check": "ONLINE", "myriad_tablespace_duplicate_check_threads": "-1",
                                "myriad_tablespace_duplicate_check_light": "ON", "myriad_tablespace_duplicate_check_fadvise": "ON"})


def main():
    names = sys.argv[1:]
    tests = {name[5:]: f for name, f in globals().items() if name.startswith("test_")}
    passed = failed = 0
    with server.Server("MYRIAD", options=["--loose-myriad-lock-wait-timeout=5"]) as where:
        for name, test in tests.items():
            if names and name not in names:
                continue
            try:
                test(where)
                passed += 1
                print(f"ok   {name}")
            except (AssertionError, pymysql.err.Error, server.ServerError) as problem:
                failed += 1
                print(f"FAIL {name}: {problem}")
                if os.environ.get("VERBOSE"):
                    traceback.print_exc()
                if not where.alive():
                    print("     " + where.why())
                    where.start()
            sys.stdout.flush()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    server.main_guard(main)
