#!/usr/bin/python3
"""Databases as tenants: copying a template, dropping a database as a whole, names of any kind.
Usage: tenant_tests.py [NAME...]"""
import os
import random
import subprocess
import tempfile
import threading
import time

import server_tests
from server_tests import expect, rows, server
from server_tests import pymysql

# Names that contain these end the server at that call.
KILLER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
int mkdir(const char *path, mode_t mode) {
  if (strstr(path, "kill_at_mkdir")) kill(getpid(), SIGKILL);
  return ((int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir"))(path, mode);
}
int rename(const char *from, const char *to) {
  if (strstr(to, "kill_at_rename")) kill(getpid(), SIGKILL);
  return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}
"""


def code_of(connection, sql):
    """The error that a statement ends with, 0 if with none."""
    try:
        rows(connection, sql)
        return 0
    except pymysql.err.Error as problem:
        return problem.args[0]


def clone(connection, template, database):
    return rows(connection, f"SELECT myriad_clone_database('{template}', '{database}')")[0][0]


def template(where, tables=3):
    """A database with tables of several kinds and rows in them; drops what earlier tests left."""
    c = where.connect()
    for (name,) in rows(c, "SHOW DATABASES"):
        if name not in ("mysql", "sys", "information_schema", "performance_schema"):
            rows(c, f"DROP DATABASE `{name.replace('`', '``')}`")
    rows(c, "CREATE DATABASE tmpl CHARACTER SET latin2 COLLATE latin2_czech_cs")
    rows(c, "CREATE TABLE tmpl.auto (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(30) UNIQUE, g INT AS (CHAR_LENGTH(v)) VIRTUAL, KEY(g)) "
            "AUTO_INCREMENT=500")
    rows(c, "CREATE TABLE tmpl.nokey (a INT, t TEXT, CHECK (a > 0)) COMMENT='no key'")
    rows(c, "CREATE TABLE tmpl.own (a INT PRIMARY KEY, b BLOB) TABLESPACE_PER='TABLE'")
    for i in range(tables - 3):
        rows(c, f"CREATE TABLE tmpl.t{i} (id INT AUTO_INCREMENT PRIMARY KEY, k INT, name VARCHAR(60), KEY(k))")
    rows(c, "INSERT INTO tmpl.auto (v) VALUES ('one'), ('two')")
    rows(c, "INSERT INTO tmpl.nokey VALUES (1,'x'), (2,'y')")
    rows(c, "INSERT INTO tmpl.own VALUES (1,'x')")
    return c


def test_clone(where):
    c = template(where)
    expect("tables copied", clone(c, "tmpl", "copy"), 3)
    expect("names", rows(c, "SHOW TABLES FROM copy"), (("auto",), ("nokey",), ("own",)))
    expect("options", rows(c, "SHOW CREATE DATABASE copy")[0][1].replace("copy", "tmpl"), rows(c, "SHOW CREATE DATABASE tmpl")[0][1])
    for table in ("auto", "nokey", "own"):
        old, new = (rows(c, f"SHOW CREATE TABLE {db}.{table}")[0][1] for db in ("tmpl", "copy"))
        expect(f"definition of {table}", new, old.replace(" AUTO_INCREMENT=502", ""))
        expect(f"rows of {table}", rows(c, f"SELECT COUNT(*) FROM copy.{table}"), ((0,),))
    rows(c, "INSERT INTO copy.auto (v) VALUES ('one')")
    expect("counter and index", rows(c, "SELECT id, g FROM copy.auto FORCE INDEX (g) WHERE g=3"), ((1, 3),))
    expect("duplicate", code_of(c, "INSERT INTO copy.auto (v) VALUES ('one')"), 1062)
    expect("CHECK", code_of(c, "INSERT INTO copy.nokey VALUES (0,'')"), 4025)
    rows(c, "INSERT INTO copy.own VALUES (7,'own')")
    rows(c, "ALTER TABLE copy.auto ADD COLUMN z INT")
    expect("the template stays", rows(c, "SELECT COUNT(*), SUM(id) FROM tmpl.auto"), ((2, 1001),))
    expect("copy of the copy", clone(c, "copy", "second"), 3)
    expect("its definition", "`z`" in rows(c, "SHOW CREATE TABLE second.auto")[0][1], True)
    expect("DO", code_of(c, "DO myriad_clone_database('tmpl', 'third')"), 0)
    rows(c, "PREPARE s FROM 'SELECT myriad_clone_database(?, ?)'")
    rows(c, "SET @a='tmpl', @b='fourth'")
    expect("prepared statement", rows(c, "EXECUTE s USING @a, @b"), ((3,),))
    expect("EXPLAIN does nothing", (code_of(c, "EXPLAIN SELECT myriad_clone_database('tmpl', 'fifth')"), code_of(c, "USE fifth")), (0, 1049))
    where.restart()
    c = where.connect()
    expect("after a restart", rows(c, "SELECT a, b FROM copy.own"), ((7, b"own"),))
    expect("tables", rows(c, "SELECT table_schema, COUNT(*) FROM information_schema.tables WHERE table_schema IN "
                             "('copy','second','third','fourth') GROUP BY 1 ORDER BY 1"),
           (("copy", 3), ("fourth", 3), ("second", 3), ("third", 3)))
    for name in ("copy", "second", "third", "fourth"):
        rows(c, f"DROP DATABASE {name}")
    expect("CHECK TABLE", rows(c, "CHECK TABLE tmpl.auto, tmpl.own")[0][3], "OK")


def test_clone_refused(where):
    c = template(where)
    rows(c, "CREATE DATABASE there")
    call = "SELECT myriad_clone_database('tmpl', 'x')"
    for what, before, sql, wanted, after in [
            ("existing target", "", "SELECT myriad_clone_database('tmpl', 'there')", 1007, ""),
            ("itself", "", "SELECT myriad_clone_database('tmpl', 'tmpl')", 1007, ""),
            ("missing template", "", "SELECT myriad_clone_database('nowhere', 'x')", 1049, ""),
            ("empty template", "", "SELECT myriad_clone_database('there', 'x')", 1235, ""),
            ("system template", "", "SELECT myriad_clone_database('mysql', 'x')", 1235, ""),
            ("information_schema", "", "SELECT myriad_clone_database('tmpl', 'information_schema')", 1044, ""),
            ("NULL", "", "SELECT myriad_clone_database('tmpl', NULL)", 1102, ""),
            ("empty name", "", "SELECT myriad_clone_database('tmpl', '')", 1102, ""),
            ("name with a blank at its end", "", "SELECT myriad_clone_database('tmpl', 'x ')", 1102, ""),
            ("name of 65 characters", "", f"SELECT myriad_clone_database('tmpl', '{'n' * 65}')", 1102, ""),
            ("name that no folder can have", "", f"SELECT myriad_clone_database('tmpl', '{'名' * 64}')", 1006, ""),
            ("one argument", "", "SELECT myriad_clone_database('tmpl')", 1582, ""),
            ("transaction", "BEGIN", call, 1235, "ROLLBACK"),
            ("XA", "XA START 'q'", call, 1235, "XA END 'q'; XA ROLLBACK 'q'"),
            ("LOCK TABLES", "LOCK TABLES tmpl.auto READ", call, 1235, "UNLOCK TABLES"),
            ("read lock", "FLUSH TABLES WITH READ LOCK", call, 1223, "UNLOCK TABLES"),
            ("with a table", "", "SELECT myriad_clone_database('tmpl', v) FROM tmpl.auto", 1235, ""),
            ("INSERT ... SELECT", "", "INSERT INTO tmpl.nokey SELECT myriad_clone_database('tmpl', 'x'), ''", 1235, ""),
            ("trigger", "CREATE TRIGGER there.g BEFORE INSERT ON there.t FOR EACH ROW SET NEW.a=myriad_clone_database('tmpl','x')",
             "INSERT INTO there.t VALUES (1)", 1235, ""),
            ("view in the template", "CREATE VIEW tmpl.w AS SELECT 1", call, 1235, "DROP VIEW tmpl.w"),
            ("trigger in the template", "CREATE TRIGGER tmpl.g BEFORE INSERT ON tmpl.own FOR EACH ROW SET NEW.b=''", call, 1235, "DROP TRIGGER tmpl.g"),
            ("other engine", "CREATE TABLE tmpl.o (a INT) ENGINE=Aria", call, 1235, "DROP TABLE tmpl.o"),
            ("sequence", "CREATE SEQUENCE tmpl.s", call, 1235, "DROP SEQUENCE tmpl.s"),
            ("partitions", "CREATE TABLE tmpl.p (a INT) PARTITION BY HASH(a) PARTITIONS 2", call, 1235, "DROP TABLE tmpl.p")]:
        if what == "trigger":
            rows(c, "CREATE TABLE there.t (a INT) ENGINE=MYRIAD")
        for sql_before in filter(None, [before]):
            rows(c, sql_before)
        expect(what, code_of(c, sql), wanted)
        for statement in filter(None, after.split("; ")):
            rows(c, statement)
        expect(f"{what}: nothing is left", (code_of(c, "USE x"), os.path.exists(os.path.join(where.datadir, "x"))), (1049, False))
    expect("all is well again", clone(c, "tmpl", "x"), 3)
    rows(c, "CREATE PROCEDURE tmpl.p() SELECT 1")
    clone(c, "tmpl", "y")
    warnings = rows(c, "SHOW WARNINGS")
    expect("warning about routines", (warnings[-1][1], "stored routines" in warnings[-1][2]), (1235, True))
    rows(c, "DROP PROCEDURE tmpl.p")


def test_clone_privileges(where):
    c = template(where)
    rows(c, "CREATE OR REPLACE USER limited@localhost")
    rows(c, "GRANT CREATE ON `tenant\\_%`.* TO limited@localhost")

    def tries(database):
        user = pymysql.connect(unix_socket=where.socket, user="limited", autocommit=True)
        with user:
            return code_of(user, f"SELECT myriad_clone_database('tmpl', '{database}')")
    expect("without SELECT on the template", tries("tenant_1"), 1044)
    rows(c, "GRANT SELECT ON tmpl.* TO limited@localhost")
    expect("without CREATE on the new database", tries("other"), 1044)
    expect("with both", tries("tenant_1"), 0)
    rows(c, "SET GLOBAL read_only=1")
    try:
        expect("read only", tries("tenant_2"), 1290)
    finally:
        rows(c, "SET GLOBAL read_only=0")
    rows(c, "DROP USER limited@localhost")


def test_clone_beside_others(where):
    """Four clients want one name; others change the template meanwhile."""
    c = template(where)
    stop, trouble = threading.Event(), []

    def change():
        other = where.connect()
        while not stop.is_set():
            for sql in ("CREATE TABLE tmpl.a1 (a INT)", "CREATE TABLE tmpl.a2 (a INT)", "DROP TABLE tmpl.a1, tmpl.a2"):
                trouble.extend([sql] if code_of(other, sql) else [])

    def want(outcome):
        other = where.connect()
        for number in range(10):
            outcome.append(code_of(other, f"SELECT myriad_clone_database('tmpl', 'c{number}')"))
    changer = threading.Thread(target=change)
    changer.start()
    outcomes = [[] for _ in range(4)]
    threads = [threading.Thread(target=want, args=(outcome,)) for outcome in outcomes]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    stop.set()
    changer.join()
    expect("changes of the template", trouble, [])
    for number, codes in enumerate(zip(*outcomes)):
        expect(f"one winner of c{number}", sorted(codes), [0, 1007, 1007, 1007])
        have = {name for (name,) in rows(c, f"SHOW TABLES FROM c{number}")} - {"a1", "a2"}
        expect(f"tables of c{number}", have, {"auto", "nokey", "own"})


def test_clone_replicated(_where):
    for binlog_format in ("ROW", "STATEMENT", "MIXED"):
        source = server.Server("MYRIAD", tcp=True, options=["--log-bin=b", "--server-id=1", f"--binlog-format={binlog_format}"])
        replica = server.Server("MYRIAD", options=["--server-id=2", "--log-bin=b", "--log-slave-updates=1", "--read-only=1",
                                                   "--slave-parallel-threads=4", "--slave-parallel-mode=optimistic"])
        with source, replica:
            c = template(source)
            rows(c, "CREATE USER r@'127.0.0.1' IDENTIFIED BY 'r'")
            rows(c, "GRANT REPLICATION SLAVE ON *.* TO r@'127.0.0.1'")
            r = replica.connect()
            rows(r, f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={source.port}, MASTER_USER='r', MASTER_PASSWORD='r', "
                    "MASTER_USE_GTID=slave_pos")
            rows(r, "START SLAVE")
            odd = "it's a \\ tenant/é名"
            clone(c, "tmpl", "copy")
            rows(c, "INSERT INTO copy.auto (v) VALUES ('after')")
            rows(c, "SET NAMES latin1")
            rows(c, "SELECT myriad_clone_database('copy', _utf8mb4 X'%s')" % odd.encode().hex())
            expect("a refused call is not logged", code_of(c, "SELECT myriad_clone_database('copy', 'copy')"), 1007)
            rows(c, "SET sql_log_bin=0")
            clone(c, "tmpl", "unlogged")
            rows(c, "SET sql_log_bin=1")
            position = rows(c, "SELECT @@gtid_binlog_pos")[0][0]
            reached = rows(r, f"SELECT MASTER_GTID_WAIT('{position}', 20)")[0][0]
            expect(f"{binlog_format}: the replica's errors", (reached, [row[19] for row in rows(r, "SHOW SLAVE STATUS")]), (0, [""]))
            expect("row", rows(r, "SELECT id, v FROM copy.auto"), ((1, "after"),))
            expect("names", {name for (name,) in rows(r, "SHOW DATABASES")} & {"copy", odd, "unlogged"}, {"copy", odd})
            expect("tables", len(rows(r, f"SHOW TABLES FROM `{odd}`")), 3)
            expect("options", rows(r, "SHOW CREATE DATABASE copy"), rows(c, "SHOW CREATE DATABASE copy"))
            expect("own binary log", rows(r, "SELECT @@gtid_binlog_pos")[0][0], position)


def test_clone_killed_between_steps(_where):
    """SIGKILL after the catalog's commit: before the folder is made, and before its options are in place."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = os.path.join(folder, "killer.c"), os.path.join(folder, "killer.so")
        with open(source, "w") as f:
            f.write(KILLER)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        with server.Server("MYRIAD") as where:
            template(where)
            for point in ("kill_at_mkdir", "kill_at_rename"):
                where.stop()
                where.environment = lambda: dict(os.environ, LD_PRELOAD=library)
                where.start()
                expect("lost connection", code_of(where.connect(), f"SELECT myriad_clone_database('tmpl', '{point}')"), 2013)
                where.process.wait(10)
                del where.environment
                where.start()
                c = where.connect()
                expect(f"{point}: tables", len(rows(c, f"SHOW TABLES FROM {point}")), 3)
                expect(f"{point}: options", rows(c, f"SHOW CREATE DATABASE {point}")[0][1].replace(point, "tmpl"),
                       rows(c, "SHOW CREATE DATABASE tmpl")[0][1])
                expect(f"{point}: files", os.listdir(os.path.join(where.datadir, point)), ["db.opt"])
                rows(c, f"INSERT INTO {point}.auto (v) VALUES ('x')")
                with open(where.log, errors="replace") as f:
                    expect("told in the error log", f"database {point} was being made" in f.read(), True)
                rows(c, f"DROP DATABASE {point}")
            where.kill()
            where.start()
            expect("gone for good", rows(where.connect(), "SHOW DATABASES LIKE 'kill%'"), ())


def test_clone_killed(_where):
    """SIGKILL at any moment: what was acknowledged is there, and nothing is there in part."""
    chance = random.Random(5)
    with server.Server("MYRIAD") as where:
        template(where, tables=60)
        made, sure = 0, set()
        for _ in range(6):
            lock = threading.Lock()

            def work():
                nonlocal made
                try:
                    c = where.connect()
                    while True:
                        with lock:
                            made += 1
                            name = f"c{made}"
                        clone(c, "tmpl", name)
                        sure.add(name)
                except pymysql.err.Error:
                    pass
            threads = [threading.Thread(target=work) for _ in range(2)]
            for t in threads:
                t.start()
            time.sleep(0.05 + chance.random() / 2)
            where.kill()
            for t in threads:
                t.join()
            where.start()
            c = where.connect()
            there = {name for (name,) in rows(c, "SHOW DATABASES LIKE 'c%'")}
            expect("acknowledged and missing", sure - there, set())
            expect("too many", len(there - sure) <= 2, True)
            for name in there:
                expect(f"tables of {name}", len(rows(c, f"SHOW TABLES FROM {name}")), 60)
                expect(f"options of {name}", "latin2_czech_cs" in rows(c, f"SHOW CREATE DATABASE {name}")[0][1], True)
            orphans = rows(c, "SELECT DISTINCT DATABASE_NAME FROM information_schema.MYRIAD_TABLESPACES")
            expect("tablespaces without a database", {name for (name,) in orphans if name and name[0] == "c"} - there, set())
            sure |= there
        print(f"     {len(sure)} copies")


def test_drop_database(where):
    """Tables in use, with triggers and with stored statistics; other engines beside."""
    c = template(where, tables=40)
    rows(c, "CREATE TABLE tmpl.i (a INT PRIMARY KEY) ENGINE=InnoDB")
    rows(c, "CREATE TRIGGER tmpl.g BEFORE INSERT ON tmpl.t1 FOR EACH ROW SET NEW.k=1")
    rows(c, "CREATE VIEW tmpl.w AS SELECT * FROM tmpl.t2")
    rows(c, "CREATE SEQUENCE tmpl.s")
    rows(c, "CREATE TABLE tmpl.p (a INT) PARTITION BY HASH(a) PARTITIONS 3")
    rows(c, "ANALYZE TABLE tmpl.auto PERSISTENT FOR ALL")
    statistics = "SELECT (SELECT COUNT(*) FROM mysql.table_stats WHERE db_name='tmpl') + " \
                 "(SELECT COUNT(*) FROM mysql.column_stats WHERE db_name='tmpl')"
    expect("statistics", rows(c, statistics)[0][0] > 1, True)
    user = where.connect(database="tmpl")
    rows(user, "BEGIN")
    rows(user, "INSERT INTO t3 (k) VALUES (1)")
    rows(c, "SET lock_wait_timeout=1")
    expect("a table in use keeps the database", code_of(c, "DROP DATABASE tmpl"), 1205)
    expect("and nothing is lost", rows(c, "SELECT COUNT(*) FROM tmpl.auto"), ((2,),))
    rows(c, "SET lock_wait_timeout=20")
    outcome = []
    waiting = threading.Thread(target=lambda: outcome.append(code_of(c, "DROP DATABASE tmpl")))
    waiting.start()
    time.sleep(0.3)
    expect("it waits", outcome, [])
    rows(user, "COMMIT")
    waiting.join(20)
    expect("dropped after the transaction", outcome, [0])
    expect("the user's next statement", code_of(user, "SELECT * FROM tmpl.t3"), 1146 if outcome else 0)
    expect("statistics are gone", rows(c, statistics), ((0,),))
    expect("no files", os.path.exists(os.path.join(where.datadir, "tmpl")), False)
    rows(c, "CREATE DATABASE tmpl")
    rows(c, "CREATE TABLE tmpl.t3 (z INT)")
    expect("new table of an old name", rows(user, "SELECT * FROM tmpl.t3"), ())


def test_names(where):
    """Any character and 64 of them, in all statements that take a name."""
    c = template(where)
    for database in ("a b`c'd\"e/f\\g.h%i#j-k", "é名" * 8, "D" * 64, "#sql-like", "tmp#P#x"):
        quoted = "`" + database.replace("`", "``") + "`"
        rows(c, f"CREATE DATABASE {quoted}")
        too_long = quoted + ".`" + "名" * 51 + "`"
        expect("a name no file can have", code_of(c, f"CREATE TABLE {too_long} (a INT)"), 1059)
        for table in ("t", "名" * 50, "x" * 64, "q`u'o\"t/e\\d.%#-@0041 é", "t#P#p0", "@", "CON", "ſ"):
            name = quoted + ".`" + table.replace("`", "``") + "`"
            where_is = f"{database!r}.{table!r}"
            rows(c, f"CREATE TABLE {name} (a INT PRIMARY KEY, b VARCHAR(10), KEY(b))")
            rows(c, f"INSERT INTO {name} VALUES (1,'x')")
            rows(c, f"ALTER TABLE {name} ADD COLUMN c INT, ALGORITHM=COPY")
            rows(c, f"ALTER TABLE {name} ADD KEY(c)")
            expect(f"{where_is}: rows", rows(c, f"SELECT a, b FROM {name} FORCE INDEX (b)"), ((1, "x"),))
            expect(f"{where_is}: listed", (table,) in rows(c, f"SHOW TABLES FROM {quoted}"), True)
            rows(c, f"RENAME TABLE {name} TO tmpl.moved, tmpl.moved TO {name}")
            expect(f"{where_is}: exists", code_of(c, f"CREATE TABLE {name} (a INT)"), 1050)
            expect(f"{where_is}: check", rows(c, f"CHECK TABLE {name}")[0][3], "OK")
        tables = len(rows(c, f"SHOW TABLES FROM {quoted}"))
        rows(c, f"DROP TABLE {quoted}.`t#P#p0`")
        text = database.replace("\\", "\\\\").replace("'", "''")
        expect(f"{database!r} copied", clone(c, text, "copied"), tables - 1)
        rows(c, "DROP DATABASE copied")
        rows(c, f"TRUNCATE {quoted}.t")
        rows(c, f"DROP TABLE {quoted}.`{'名' * 50}`")
        where.kill()
        where.start()
        c = where.connect()
        expect(f"{database!r} after a crash", len(rows(c, f"SHOW TABLES FROM {quoted}")), tables - 2)
        rows(c, f"DROP DATABASE {quoted}")


if __name__ == "__main__":
    server.main_guard(lambda: server_tests.run(globals()))
