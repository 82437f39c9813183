#!/usr/bin/python3
"""Databases as tenants: copying a template, dropping a database as a whole, names of any kind.
Usage: tenant_tests.py [NAME...]"""
import os
import random
import resource
import shutil
import subprocess
import tempfile
import threading
import time

import cases
from cases import HUNG_SECONDS, code_of, expect, gate, pymysql, rows, server, wait_until

# The server ends or the call fails at each path that contains the variable's text; at the first with WAIT_AT's it makes
# WAIT_FILE and waits until that is removed. It also ends once its log of
# DDL has the phase in KILL_AT_PHASE, or before it gets that in KILL_BEFORE_PHASE. A write beyond the limit on files' sizes
# is an error.
KILLER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static int stop_at(const char *path) {
  const char *kill_at = getenv("KILL_AT"), *fail_at = getenv("FAIL_AT"), *wait_at = getenv("WAIT_AT");
  if (kill_at && strstr(path, kill_at)) kill(getpid(), SIGKILL);
  static int waited;
  if (wait_at && strstr(path, wait_at) && !waited++) {
    const char *file = getenv("WAIT_FILE");
    close(open(file, O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < 60000 && !access(file, F_OK); i++) usleep(10000);
  }
  return fail_at && strstr(path, fail_at);
}
int mkdir(const char *path, mode_t mode) {
  if (stop_at(path)) return errno = EACCES, -1;
  return ((int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir"))(path, mode);
}
int rename(const char *from, const char *to) {
  if (stop_at(to)) return errno = ENOSPC, -1;
  return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}
static void stop_at_phase(const char *phase, int fd, const void *data, size_t length) {
  char link[64], path[4096] = "";
  if (!phase || length != 1 || *(const unsigned char *)data != atoi(phase)) return;
  sprintf(link, "/proc/self/fd/%d", fd);
  if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "ddl_recovery.log")) kill(getpid(), SIGKILL);
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
  stop_at_phase(getenv("KILL_BEFORE_PHASE"), fd, data, length);
  ssize_t written = ((ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(fd, data, length, at);
  stop_at_phase(getenv("KILL_AT_PHASE"), fd, data, length);
  return written;
}
__attribute__((constructor)) static void ignore_limit(void) { signal(SIGXFSZ, SIG_IGN); }
"""


class Killer:
    """The library of the above; `with` its folder."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        source, self.library = (os.path.join(self.folder.name, name) for name in ("killer.c", "killer.so"))
        with open(source, "w") as f:
            f.write(KILLER)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", self.library, source, "-ldl"], check=True)
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def restart(self, where, **variables):
        """Restarts the server with these variables, or without the library."""
        if where.alive():
            where.stop()
        where.environment = lambda: dict(os.environ, LD_PRELOAD=self.library, **variables) if variables else None
        where.start()


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


def add_code(c):
    """What a template has beside tables: a partitioned table, a sequence as a default, triggers, views."""
    rows(c, "CREATE SEQUENCE tmpl.seq START WITH 100 INCREMENT BY 10 MINVALUE 5 MAXVALUE 900 CACHE 3 CYCLE")
    rows(c, "CREATE TABLE tmpl.numbered (a INT DEFAULT NEXTVAL(tmpl.seq), b INT CHECK (b > 0))")
    rows(c, "CREATE TABLE tmpl.part (a INT, b INT, KEY(b)) PARTITION BY RANGE(a) SUBPARTITION BY HASH(b) SUBPARTITIONS 2 "
            "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)")
    rows(c, "CREATE TABLE tmpl.log (who INT, what VARCHAR(60))")
    rows(c, "CREATE TRIGGER tmpl.g1 AFTER INSERT ON tmpl.part FOR EACH ROW INSERT INTO log VALUES (NEW.a, 'tmpl.part')")
    rows(c, "CREATE TRIGGER tmpl.g2 BEFORE INSERT ON tmpl.part FOR EACH ROW SET NEW.b = NEW.a + 1")
    rows(c, "CREATE VIEW tmpl.v AS SELECT part.a, part.b, 'tmpl.`tmpl`.' AS t FROM tmpl.part WHERE a > 0 WITH CHECK OPTION")
    rows(c, "SELECT NEXTVAL(tmpl.seq)")
    rows(c, "INSERT INTO tmpl.part VALUES (1, 1), (20, 1)")


CODE_TABLES = 4                  # and a view
CODE_NAMES = {"seq", "numbered", "part", "log", "v"}


def check_code(c, database):
    """Whether a copy of add_code()'s template is whole and on its own."""
    template_rows = rows(c, "SELECT (SELECT COUNT(*) FROM tmpl.part) + (SELECT COUNT(*) FROM tmpl.log)")
    rows(c, f"INSERT INTO `{database}`.v (a) VALUES (3), (30)")
    expect(f"{database}: view and triggers", rows(c, f"SELECT a, b FROM `{database}`.v ORDER BY a"), ((3, 4), (30, 31)))
    expect(f"{database}: log", rows(c, f"SELECT who FROM `{database}`.log ORDER BY 1"), ((3,), (30,)))
    expect(f"{database}: check option", code_of(c, f"INSERT INTO `{database}`.v (a) VALUES (-1)"), 1369)
    expect(f"{database}: partition", rows(c, f"SELECT a FROM `{database}`.part PARTITION (p1)"), ((30,),))
    rows(c, f"INSERT INTO `{database}`.numbered (b) VALUES (1), (2)")
    expect(f"{database}: sequence", rows(c, f"SELECT a FROM `{database}`.numbered ORDER BY 1"), ((100,), (110,)))
    expect(f"{database}: CHECK", code_of(c, f"INSERT INTO `{database}`.numbered (b) VALUES (0)"), 4025)
    expect(f"{database}: the template stays", rows(c, "SELECT (SELECT COUNT(*) FROM tmpl.part) + (SELECT COUNT(*) FROM tmpl.log)"),
           template_rows)


def test_clone_sequences(where):
    c = template(where)
    rows(c, "CREATE SEQUENCE tmpl.s START WITH 100 INCREMENT BY 10 MINVALUE 5 MAXVALUE 900 CACHE 3 CYCLE")
    rows(c, "CREATE SEQUENCE tmpl.down START WITH -3 INCREMENT BY -2 NOCACHE")
    rows(c, "CREATE SEQUENCE tmpl.plain")
    for sequence in ("s", "down", "plain"):
        for _ in range(100):
            rows(c, f"SELECT NEXTVAL(tmpl.{sequence})")
    rows(c, "ALTER SEQUENCE tmpl.plain START WITH 7")
    rows(c, "ALTER SEQUENCE tmpl.down RESTART WITH -1001")
    rows(c, "CREATE TABLE tmpl.d (a INT DEFAULT NEXTVAL(tmpl.s), b BIGINT DEFAULT (NEXTVAL(tmpl.plain) + NEXTVAL(tmpl.s)), "
            "c VARCHAR(20) DEFAULT (CONCAT('tmpl.', 'x')), KEY(a))")
    rows(c, "INSERT INTO tmpl.d (c) VALUES ('x')")
    for name in ("copy", "a much longer `name` of a database"):
        quoted = "`" + name.replace("`", "``") + "`"
        expect("tables", clone(c, "tmpl", name), 7)
        for sequence in ("s", "down", "plain", "d"):
            command = "TABLE" if sequence == "d" else "SEQUENCE"
            expect(f"definition of {sequence}", rows(c, f"SHOW CREATE {command} {quoted}.{sequence}")[0][1].replace(quoted, "`tmpl`"),
                   rows(c, f"SHOW CREATE {command} tmpl.{sequence}")[0][1])
        before = rows(c, "SELECT next_not_cached_value FROM tmpl.s")
        expect("as created", rows(c, f"SELECT * FROM {quoted}.s"), ((100, 5, 900, 100, 10, 3, 1, 0),))
        rows(c, f"INSERT INTO {quoted}.d VALUES ()")
        expect("defaults", rows(c, f"SELECT * FROM {quoted}.d"), ((100, 117, "tmpl.x"),))
        expect("first values", rows(c, f"SELECT NEXTVAL({quoted}.s), NEXTVAL({quoted}.down), NEXTVAL({quoted}.plain)"), ((120, -3, 8),))
        expect("the template's sequence", rows(c, "SELECT next_not_cached_value FROM tmpl.s"), before)
    where.kill()
    where.start()
    c = where.connect()
    expect("after a crash", rows(c, "SELECT NEXTVAL(copy.down)"), ((-5,),))
    expect("one row", rows(c, "SELECT COUNT(*) FROM copy.s"), ((1,),))
    rows(c, "ALTER SEQUENCE copy.s RESTART")
    expect("restarted", rows(c, "SELECT NEXTVAL(copy.s)"), ((100,),))
    rows(c, "ALTER TABLE copy.d ADD COLUMN e INT, ALGORITHM=COPY")
    rows(c, "INSERT INTO copy.d () VALUES ()")
    expect("default after ALTER", rows(c, "SELECT COUNT(*) FROM copy.d WHERE a=110"), ((1,),))
    rows(c, "DROP DATABASE copy")


def test_clone_partitions(where):
    c = template(where)
    add_code(c)
    rows(c, "CREATE TABLE tmpl.hashed (a INT AUTO_INCREMENT PRIMARY KEY, b INT DEFAULT NEXTVAL(tmpl.seq)) PARTITION BY KEY(a) PARTITIONS 5")
    rows(c, "CREATE TABLE tmpl.own_p (a INT) TABLESPACE_PER='TABLE' PARTITION BY HASH(a) PARTITIONS 2")
    rows(c, "CREATE TABLE tmpl.`é#P#'\"` (a INT) PARTITION BY LIST(a) (PARTITION `ö` VALUES IN (1, 2), PARTITION `#P#` VALUES IN (3))")
    rows(c, "INSERT INTO tmpl.hashed (b) VALUES " + ", ".join(["(1)"] * 20))
    expect("partition with a folder of its own", code_of(c, "CREATE TABLE tmpl.x (a INT) PARTITION BY HASH(a) "
           "(PARTITION p DATA DIRECTORY='/tmp')"), 1478)
    expect("tables", clone(c, "tmpl", "copy"), 3 + CODE_TABLES + 3)
    check_code(c, "copy")
    for table in ("part", "hashed", "own_p", "`é#P#'\"`"):
        old, new = (rows(c, f"SHOW CREATE TABLE {db}.{table}")[0][1] for db in ("copy", "tmpl"))
        expect(f"definition of {table}", old.replace("`copy`", "`tmpl`"), new.replace(" AUTO_INCREMENT=21", ""))
    rows(c, "INSERT INTO copy.hashed () VALUES (), (), ()")
    expect("counter and default", rows(c, "SELECT * FROM copy.hashed ORDER BY a"), ((1, 130), (2, 140), (3, 150)))
    rows(c, "INSERT INTO copy.`é#P#'\"` VALUES (3), (1)")
    expect("partitions", rows(c, "SELECT a FROM copy.`é#P#'\"` PARTITION (`#P#`)"), ((3,),))
    rows(c, "ALTER TABLE copy.own_p ADD PARTITION PARTITIONS 1")
    rows(c, "ALTER TABLE copy.part DROP PARTITION p0")
    expect("the template's partitions", rows(c, "SELECT COUNT(*) FROM information_schema.partitions WHERE table_schema='tmpl' "
                                                "AND table_name='part'"), ((4,),))
    # A partition that was a table has the image of one, and comes first.
    rows(c, "CREATE TABLE copy.a (k INT, v BIGINT DEFAULT (NEXTVAL(copy.seq))) PARTITION BY RANGE(k) (PARTITION p VALUES LESS THAN (100))")
    rows(c, "CREATE TABLE copy.b (k INT, v BIGINT DEFAULT (NEXTVAL(copy.seq)))")
    rows(c, "ALTER TABLE copy.a EXCHANGE PARTITION p WITH TABLE copy.b")
    clone(c, "copy", "exchanged")
    definition = rows(c, "SHOW CREATE TABLE exchanged.b")[0][1]
    expect("the copy's own sequence", ("`exchanged`.`seq`" in definition, "`copy`" in definition), (True, False))
    rows(c, "DROP DATABASE exchanged")
    rows(c, "DROP TABLE copy.a, copy.b")
    left_behind = os.path.join(where.datadir, "copy", "own.frm")
    shutil.copy(os.path.join(where.datadir, "copy", "hashed.frm"), left_behind)
    rows(c, "CREATE TABLE copy.c (a INT) PARTITION BY LIST(a) (PARTITION p0 VALUES IN (1), PARTITION p1 VALUES IN (2))")
    rows(c, "ALTER TABLE copy.c CONVERT PARTITION p1 TO TABLE copy.converted")
    expect("a table that was a partition", code_of(c, "SELECT myriad_clone_database('copy', 'second')"), 1235)
    rows(c, "SELECT * FROM copy.converted")
    expect("once it has been opened", clone(c, "copy", "second"), 3 + CODE_TABLES + 3 + 2)
    os.unlink(left_behind)
    for table in ("converted", "own"):
        expect(f"definition of {table}", rows(c, f"SHOW CREATE TABLE second.{table}"), rows(c, f"SHOW CREATE TABLE copy.{table}"))
    where.kill()
    where.start()
    c = where.connect()
    expect("after a crash", rows(c, "SELECT SUM(a) FROM copy.hashed"), ((6,),))
    expect("CHECK", {row[3] for row in rows(c, "CHECK TABLE copy.part, copy.hashed, copy.own_p, copy.`é#P#'\"` EXTENDED")}, {"OK"})
    rows(c, "DROP TABLE copy.hashed")
    rows(c, "DROP DATABASE copy")
    expect("no files", os.path.exists(os.path.join(where.datadir, "copy")), False)


def test_clone_triggers(where):
    c = template(where)
    rows(c, "SET NAMES utf8mb4")
    rows(c, "CREATE USER IF NOT EXISTS definer@localhost")
    rows(c, "GRANT ALL ON *.* TO definer@localhost")
    rows(c, "CREATE TABLE tmpl.t (a INT, b VARCHAR(100))")
    rows(c, "CREATE TABLE tmpl.n (a INT, b VARCHAR(100))")
    c.select_db("tmpl")
    rows(c, "CREATE TRIGGER g1 BEFORE INSERT ON t FOR EACH ROW SET NEW.b = CONCAT(DATABASE(), ' it''s \\n tmpl.t é')")
    rows(c, "CREATE DEFINER=definer@localhost TRIGGER g2 BEFORE INSERT ON t FOR EACH ROW FOLLOWS g1 SET NEW.b = CONCAT(NEW.b, CURRENT_USER())")
    rows(c, "CREATE TRIGGER g0 BEFORE INSERT ON t FOR EACH ROW PRECEDES g1 BEGIN\n  -- tmpl.t\n  SET @first = 1; /* tmpl.t */\nEND")
    rows(c, "SET sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'")
    rows(c, """CREATE TRIGGER "tmpl" . "an odd `name" BEFORE UPDATE ON "tmpl"/**/."t" FOR EACH ROW SET NEW.b = 'a\\' || 'tmpl.t'""")
    rows(c, "SET sql_mode=DEFAULT")
    rows(c, "SET NAMES latin1")
    rows(c, "CREATE OR REPLACE TRIGGER tmpl.later AFTER DELETE ON tmpl.n FOR EACH ROW INSERT INTO t VALUES (OLD.a, NULL)")
    rows(c, "SET NAMES utf8mb4")
    wanted = [row[:5] + row[6:] for row in rows(c, "SHOW TRIGGERS FROM tmpl")]
    clone(c, "tmpl", "copy é")
    expect("triggers", [row[:5] + row[6:] for row in rows(c, "SHOW TRIGGERS FROM `copy é`")], wanted)
    rows(c, "INSERT INTO `copy é`.n VALUES (7, '')")
    rows(c, "DELETE FROM `copy é`.n")
    expect("fired", rows(c, "SELECT a, b FROM `copy é`.t"), ((7, "copy é it's \n tmpl.t édefiner@localhost"),))
    rows(c, "UPDATE `copy é`.t SET a=8")
    expect("in its own mode", rows(c, "SELECT b FROM `copy é`.t"), (("a\\tmpl.t",),))
    expect("nothing in the template", rows(c, "SELECT COUNT(*) FROM tmpl.t"), ((0,),))
    expect("statement", "TRIGGER later AFTER DELETE ON n FOR" in rows(c, "SHOW CREATE TRIGGER `copy é`.later")[0][2], True)
    rows(c, "DROP TRIGGER `copy é`.g1")
    rows(c, "CREATE TRIGGER `copy é`.g3 BEFORE INSERT ON `copy é`.n FOR EACH ROW SET NEW.b='3'")
    where.kill()
    where.start()
    c = where.connect()
    expect("after a crash", len(rows(c, "SHOW TRIGGERS FROM `copy é`")), len(wanted))
    expect("a copy of a name that it does not know", clone(c, "copy é", "second"), 5)
    for text in ("INSERT INTO tmpl.n VALUES (1, '')", "SET NEW.b = (SELECT MAX(x.b) FROM `tmpl` . n x)", "SET NEW.b = (SELECT tmpl.f())",
                 "/*!50000 DELETE FROM tmpl.n */"):
        rows(c, f"CREATE TRIGGER tmpl.bad BEFORE INSERT ON tmpl.n FOR EACH ROW {text}")
        try:
            clone(c, "tmpl", "third")
            expect(text, "copied", "refused")
        except pymysql.err.Error as problem:
            expect(text, (problem.args[0], "trigger 'bad' names the database" in problem.args[1]), (1235, True))
        rows(c, "DROP TRIGGER tmpl.bad")
    expect("copied without it", clone(c, "tmpl", "third"), 5)
    rows(c, "DROP USER definer@localhost")


def test_clone_views(where):
    c = template(where)
    rows(c, "CREATE DATABASE elsewhere")
    rows(c, "CREATE TABLE elsewhere.x (a INT)")
    for table in ("t", "u", "tmpl"):
        rows(c, f"CREATE TABLE tmpl.{table} (a INT, b INT)")
    rows(c, "CREATE SEQUENCE tmpl.s")
    rows(c, "CREATE FUNCTION tmpl.f() RETURNS INT RETURN 1")
    views = {
        "v1": "SELECT a, b FROM tmpl.t WHERE a > 1 WITH LOCAL CHECK OPTION",
        "v2": "SELECT tmpl.a, t.b FROM tmpl.u tmpl JOIN tmpl.t ON t.a=tmpl.a WHERE t.b IN (SELECT b FROM tmpl.tmpl)",
        "v3": "SELECT v1.a, x.a AS xa, 'tmpl.`tmpl`.\\' `tmpl`.' AS txt, NEXTVAL(tmpl.s) AS n FROM tmpl.v1 JOIN elsewhere.x",
        "v4": "WITH tmpl AS (SELECT * FROM tmpl.t) SELECT tmpl.a, (SELECT MAX(a) FROM tmpl.u) m FROM tmpl UNION ALL SELECT 1,2",
        "v5": "SELECT tmpl.tmpl.a AS `tmpl.a`, tmpl.b AS `tm``pl` FROM tmpl.tmpl WHERE tmpl.tmpl.b=1 ORDER BY tmpl.a LIMIT 3",
        "v6": "SELECT SUM(d.a) OVER (PARTITION BY d.b) AS s FROM (SELECT tmpl.a, tmpl.b FROM tmpl.t tmpl) d LEFT JOIN tmpl.u USING (a)",
        "v7": "SELECT tmpl.f() AS f FROM elsewhere.x",
        "v8": "SELECT 1 AS one",
        "v9": "SELECT x.a FROM elsewhere.x",
    }
    for name, query in views.items():
        rows(c, f"CREATE VIEW tmpl.{name} AS {query}")
    rows(c, "CREATE ALGORITHM=TEMPTABLE DEFINER=nobody@nowhere SQL SECURITY INVOKER VIEW tmpl.options AS SELECT a FROM tmpl.t")
    rows(c, "SET NAMES sjis")
    with c.cursor() as cursor:
        cursor.execute(b"CREATE VIEW tmpl.japanese AS SELECT '\x83\x5c\x83\x60' AS w, a FROM tmpl.t")
    rows(c, "SET NAMES utf8mb4")
    columns = "table_name, check_option, is_updatable, definer, security_type, character_set_client, collation_connection, algorithm"
    for name in ("copy", "tmpl`2 é"):
        quoted = "`" + name.replace("`", "``") + "`"
        if "é" in name:
            rows(c, "DROP VIEW tmpl.japanese")
        clone(c, "tmpl", name)
        listing = "SELECT %s FROM information_schema.views WHERE table_schema='%s' AND table_name<>'v7' ORDER BY 1"
        expect("I_S.VIEWS", rows(c, listing % (columns, name)), rows(c, listing % (columns, "tmpl")))
        expect("CHECK TABLE", {row[3] for row in rows(c, "CHECK TABLE " + ", ".join(f"{quoted}.{v}" for v in views if v != "v7"))}, {"OK"})
        if "é" not in name:
            expect("text of another character set", rows(c, f"SELECT HEX(CONVERT(w USING sjis)) FROM {quoted}.japanese"), ())
        rows(c, f"INSERT INTO {quoted}.t VALUES (2,1), (5,5)")
        rows(c, f"INSERT INTO {quoted}.u VALUES (2,9)")
        rows(c, f"INSERT INTO {quoted}.tmpl VALUES (8,1)")
        expect("v1", rows(c, f"SELECT * FROM {quoted}.v1"), ((2, 1), (5, 5)))
        expect("v1's check", code_of(c, f"INSERT INTO {quoted}.v1 VALUES (1, 1)"), 1369)
        expect("v2", rows(c, f"SELECT * FROM {quoted}.v2"), ((2, 1),))
        expect("v4", sorted(rows(c, f"SELECT * FROM {quoted}.v4")), [(1, 2), (2, 2), (5, 2)])
        expect("v5", rows(c, f"SELECT * FROM {quoted}.v5"), ((8, 1),))
        expect("v6", rows(c, f"SELECT COUNT(*) FROM {quoted}.v6"), ((2,),))
        expect("v9", rows(c, f"SELECT * FROM {quoted}.v9"), ())
        rows(c, "INSERT INTO elsewhere.x VALUES (3)")
        expect("v3", rows(c, f"SELECT * FROM {quoted}.v3 ORDER BY a LIMIT 1"), ((2, 3, "tmpl.`tmpl`.' `tmpl`.", 1),))
        expect("v7 waits for its function", code_of(c, f"SELECT * FROM {quoted}.v7"), 1356)
        rows(c, f"CREATE FUNCTION {quoted}.f() RETURNS INT RETURN 2")
        expect("v7", rows(c, f"SELECT * FROM {quoted}.v7"), ((2,),))
        rows(c, "DELETE FROM elsewhere.x")
        for view in list(views) + ["options"]:
            text = rows(c, f"SHOW CREATE VIEW {quoted}.{view}")[0][1]
            expect(f"{view} names the template", "`tmpl`.`t`" in text or "from `tmpl`.`" in text or "`tmpl`.`u`" in text, False)
        body = rows(c, f"SELECT view_definition FROM information_schema.views WHERE table_schema='{name}' AND table_name='v1'")[0][0]
        expect("text in I_S", body.replace(quoted, "`tmpl`"),
               rows(c, "SELECT view_definition FROM information_schema.views WHERE table_schema='tmpl' AND table_name='v1'")[0][0])
    rows(c, "PREPARE s FROM 'SELECT myriad_clone_database(?, ?)'")
    rows(c, "CREATE PROCEDURE elsewhere.p(a VARCHAR(64)) SELECT myriad_clone_database('tmpl', a)")
    for name in ("prepared1", "prepared2", "called1", "called2"):
        rows(c, f"SET @a='tmpl', @b='{name}'")
        rows(c, f"CALL elsewhere.p('{name}')" if "called" in name else "EXECUTE s USING @a, @b")
        expect(name, rows(c, f"SELECT COUNT(*) FROM {name}.v2"), ((0,),))
        rows(c, f"DROP DATABASE {name}")
    rows(c, "DROP TABLE tmpl.u")
    clone(c, "tmpl", "broken")
    expect("a broken view stays one", code_of(c, "SELECT * FROM broken.v2"), 1356)
    dump = subprocess.run([server.tool("mariadb-dump"), "--no-defaults", f"--socket={where.socket}", "--user=root", "--triggers",
                           "--databases", "copy"], capture_output=True)
    expect("mariadb-dump", (dump.returncode, dump.stderr), (0, b""))
    for view in ("v1", "options"):
        rows(c, f"ALTER VIEW copy.{view} AS SELECT b FROM copy.u")
        expect("altered", rows(c, f"SELECT * FROM copy.{view}"), ((9,),))


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
            ("other engine", "CREATE TABLE tmpl.o (a INT) ENGINE=Aria", call, 1235, "DROP TABLE tmpl.o"),
            ("other engine without files of its own", "CREATE TABLE tmpl.o (a INT) ENGINE=MEMORY", call, 1235, "DROP TABLE tmpl.o"),
            ("other engine's partitions", "CREATE TABLE tmpl.p (a INT) ENGINE=InnoDB PARTITION BY HASH(a) PARTITIONS 2", call, 1235,
             "DROP TABLE tmpl.p"),
            ("partitions without files", "CREATE TABLE tmpl.p (a INT) ENGINE=MEMORY PARTITION BY HASH(a) PARTITIONS 2", call, 1235,
             "DROP TABLE tmpl.p"),
            ("trigger that names it", "CREATE TRIGGER tmpl.g BEFORE INSERT ON tmpl.own FOR EACH ROW DELETE FROM tmpl.nokey", call, 1235,
             "DROP TRIGGER tmpl.g")]:
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
    rows(c, "CREATE TRIGGER tmpl.g BEFORE INSERT ON tmpl.own FOR EACH ROW SET NEW.b=''")
    for grant in ("TRIGGER ON tmpl", "TRIGGER ON `tenant\\_%`"):
        expect(f"without {grant}", tries("tenant_2"), 1044)
        rows(c, f"GRANT {grant}.* TO limited@localhost")
    expect("as another definer", tries("tenant_2"), 1227)
    rows(c, "CREATE OR REPLACE DEFINER=limited@localhost TRIGGER tmpl.g BEFORE INSERT ON tmpl.own FOR EACH ROW SET NEW.b=''")
    expect("own trigger", tries("tenant_2"), 0)
    rows(c, "CREATE SQL SECURITY INVOKER VIEW tmpl.w AS SELECT 1 AS a")
    for grant in ("SHOW VIEW ON tmpl", "CREATE VIEW ON `tenant\\_%`"):
        expect(f"without {grant}", tries("tenant_3"), 1044)
        rows(c, f"GRANT {grant}.* TO limited@localhost")
    expect("as another definer", tries("tenant_3"), 1227)
    rows(c, "GRANT SET USER ON *.* TO limited@localhost")
    expect("as anybody", tries("tenant_3"), 0)
    rows(c, "DROP VIEW tmpl.w")
    rows(c, "DROP TRIGGER tmpl.g")
    rows(c, "SET GLOBAL read_only=1")
    try:
        expect("read only", tries("tenant_4"), 1290)
    finally:
        rows(c, "SET GLOBAL read_only=0")
    rows(c, "DROP USER limited@localhost")


def test_clone_beside_others(where):
    """Four clients want one name; others change the template and use the copies meanwhile."""
    c = template(where)
    rows(c, "CREATE TABLE tmpl.fired (a INT, b INT)")
    rows(c, "CREATE TRIGGER tmpl.g BEFORE INSERT ON tmpl.fired FOR EACH ROW SET NEW.b=1")
    stop, trouble = threading.Event(), []

    def change():
        other = where.connect()
        while not stop.is_set():
            for sql in ("CREATE TABLE tmpl.a1 (a INT)", "CREATE TABLE tmpl.a2 (a INT)", "CREATE VIEW tmpl.a3 AS SELECT * FROM tmpl.a1",
                        "CREATE TRIGGER tmpl.a4 AFTER INSERT ON tmpl.a2 FOR EACH ROW DELETE FROM a1", "DROP VIEW tmpl.a3",
                        "DROP TABLE tmpl.a1, tmpl.a2"):
                trouble.extend([sql] if code_of(other, sql) else [])

    def use():
        other = where.connect()
        while not stop.is_set():
            for number in range(10):
                code_of(other, f"INSERT INTO c{number}.fired VALUES (1, 0)")

    def want(outcome):
        other = where.connect()
        for number in range(10):
            outcome.append(code_of(other, f"SELECT myriad_clone_database('tmpl', 'c{number}')"))
    others = [threading.Thread(target=change), threading.Thread(target=use)]
    for t in others:
        t.start()
    outcomes = [[] for _ in range(4)]
    threads = [threading.Thread(target=want, args=(outcome,)) for outcome in outcomes]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    stop.set()
    for t in others:
        t.join()
    expect("changes of the template", trouble, [])
    for number, codes in enumerate(zip(*outcomes)):
        expect(f"one winner of c{number}", sorted(codes), [0, 1007, 1007, 1007])
        have = {name for (name,) in rows(c, f"SHOW TABLES FROM c{number}")} - {"a1", "a2", "a3"}
        expect(f"tables of c{number}", have, {"auto", "nokey", "own", "fired"})
        expect(f"trigger of c{number}", rows(c, f"SELECT COUNT(*) FROM c{number}.fired WHERE b=0"), ((0,),))


def test_clone_replicated(_where):
    for binlog_format in ("ROW", "STATEMENT", "MIXED"):
        source = server.Server("MYRIAD", tcp=True, options=["--log-bin=b", "--server-id=1", f"--binlog-format={binlog_format}"])
        replica = server.Server("MYRIAD", options=["--server-id=2", "--log-bin=b", "--log-slave-updates=1", "--read-only=1",
                                                   "--slave-parallel-threads=4", "--slave-parallel-mode=optimistic"])
        with source, replica:
            c = template(source)
            # A statement with NEXTVAL is logged by rows or not at all.
            by_rows = source.connect()
            rows(by_rows, "SET binlog_format=ROW")
            add_code(by_rows)
            rows(c, "CREATE USER r@'127.0.0.1' IDENTIFIED BY 'r'")
            rows(c, "GRANT REPLICATION SLAVE ON *.* TO r@'127.0.0.1'")
            r = replica.connect()
            rows(r, f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={source.port}, MASTER_USER='r', MASTER_PASSWORD='r', "
                    "MASTER_USE_GTID=slave_pos")
            rows(r, "START SLAVE")
            odd = "it's a \\ tenant/é名"
            clone(c, "tmpl", "copy")
            rows(c, "INSERT INTO copy.auto (v) VALUES ('after')")
            check_code(by_rows, "copy")
            rows(c, "SET NAMES latin1")
            rows(c, "SELECT myriad_clone_database('copy', _utf8mb4 X'%s')" % odd.encode().hex())
            rows(c, "SET NAMES utf8mb4")
            expect("a refused call is not logged", code_of(c, "SELECT myriad_clone_database('copy', 'copy')"), 1007)
            rows(c, "SET sql_log_bin=0")
            clone(c, "tmpl", "unlogged")
            rows(c, "SET sql_log_bin=1")
            position = rows(c, "SELECT @@gtid_binlog_pos")[0][0]
            reached = rows(r, f"SELECT MASTER_GTID_WAIT('{position}', 20)")[0][0]
            expect(f"{binlog_format}: the replica's errors", (reached, [row[19] for row in rows(r, "SHOW SLAVE STATUS")]), (0, [""]))
            expect("row", rows(r, "SELECT id, v FROM copy.auto"), ((1, "after"),))
            expect("names", {name for (name,) in rows(r, "SHOW DATABASES")} & {"copy", odd, "unlogged"}, {"copy", odd})
            expect("tables", len(rows(r, f"SHOW TABLES FROM `{odd}`")), 3 + len(CODE_NAMES))
            for query in ("SELECT * FROM copy.v ORDER BY a", "SELECT * FROM copy.log ORDER BY who", "SELECT * FROM copy.numbered ORDER BY a",
                          "SHOW CREATE VIEW copy.v", f"SHOW CREATE VIEW `{odd}`.v", f"SHOW CREATE TABLE `{odd}`.numbered"):
                expect(query, rows(r, query), rows(c, query))
            expect("options", rows(r, "SHOW CREATE DATABASE copy"), rows(c, "SHOW CREATE DATABASE copy"))
            expect("own binary log", rows(r, "SELECT @@gtid_binlog_pos")[0][0], position)


def check_point(where, point):
    """The copy named `point` is whole after the server ended while it was made."""
    c = where.connect()
    expect(f"{point}: tables", len(rows(c, f"SHOW TABLES FROM {point}")), 3 + len(CODE_NAMES))
    expect(f"{point}: options", rows(c, f"SHOW CREATE DATABASE {point}")[0][1].replace(point, "tmpl"),
           rows(c, "SHOW CREATE DATABASE tmpl")[0][1])
    expect(f"{point}: files", sorted(os.listdir(os.path.join(where.datadir, point))), sorted(os.listdir(os.path.join(where.datadir, "tmpl"))))
    check_code(c, point)
    with open(where.log, errors="replace") as f:
        expect("told in the error log", f"database {point} was being made" in f.read(), True)
    # A crash can bring back the note, not what was dropped.
    rows(c, f"DROP VIEW {point}.v")
    rows(c, f"DROP TRIGGER {point}.g1")
    rows(c, f"DROP TABLE {point}.part")
    where.kill()
    where.start()
    expect(f"{point}: what was dropped stays dropped", os.listdir(os.path.join(where.datadir, point)), ["db.opt"])
    rows(where.connect(), f"DROP DATABASE {point}")


def test_clone_killed_between_steps(_where):
    """SIGKILL after the catalog's commit: before the folder is made, and before each of its files is in place."""
    with Killer() as killer, server.Server("MYRIAD", options=["--loose-partition=ON"]) as where:
        add_code(template(where))
        files = ["", "part.par", "part.TRG", "g1.TRN", "part.frm", "v.frm", "db.opt"]
        for number, name in enumerate(files):
            point = f"kill{number}"
            killer.restart(where, KILL_AT=f"{point}/{name}" if name else point)
            expect("lost connection", code_of(where.connect(), f"SELECT myriad_clone_database('tmpl', '{point}')"), 2013)
            where.process.wait(10)
            killer.restart(where)
            check_point(where, point)
        where.kill()
        where.start()
        expect("gone for good", rows(where.connect(), "SHOW DATABASES LIKE 'kill%'"), ())


def test_clone_seen_early(_where):
    """Statements that come while the copy's files are being made."""
    with Killer() as killer, server.Server("MYRIAD", options=["--loose-partition=ON"]) as where:
        add_code(template(where))
        arrived = os.path.join(killer.folder.name, "arrived")
        killer.restart(where, WAIT_AT="slow/part.TRG", WAIT_FILE=arrived)
        c, other = where.connect(), where.connect()
        cloning = threading.Thread(target=clone, args=(c, "tmpl", "slow"))
        cloning.start()
        wait_until("the copy's files are made", lambda: os.path.exists(arrived))
        expect("no view yet", code_of(other, "SELECT * FROM slow.v"), 1146)
        rows(other, "SET lock_wait_timeout=0")
        for sql in ("CREATE TABLE tmpl.x (a INT)", "CREATE VIEW tmpl.x AS SELECT 1", "CREATE OR REPLACE VIEW tmpl.v AS SELECT 1",
                    "CREATE TRIGGER tmpl.x BEFORE INSERT ON tmpl.log FOR EACH ROW SET NEW.who=1", "DROP TRIGGER tmpl.g1", "DROP VIEW tmpl.v",
                    "CREATE SEQUENCE tmpl.x", "ALTER TABLE tmpl.part DROP PARTITION p0", "DROP TABLE tmpl.part", "ALTER SEQUENCE tmpl.seq MAXVALUE 500",
                    "CREATE TABLE slow.x (a INT)", "CREATE DATABASE slow", "DROP DATABASE slow", "DROP DATABASE tmpl"):
            expect(sql, code_of(other, sql), 1205)
        rows(other, "SET lock_wait_timeout=120")
        rows(other, "INSERT INTO tmpl.part VALUES (4, 4)")
        expect("the copy is still being made", cloning.is_alive(), True)
        inserting = cases.start(other, "INSERT INTO slow.part VALUES (7, 0)")
        os.remove(arrived)
        inserting.join()
        expect("waited for its triggers", rows(other, "SELECT b FROM slow.part"), ((8,),))
        cloning.join()
        rows(c, "DELETE FROM slow.part")
        rows(c, "DELETE FROM slow.log")
        check_code(c, "slow")


def test_clone_undone(_where):
    """A folder or file that cannot be made undoes the copy."""
    with Killer() as killer, server.Server("MYRIAD", options=["--loose-partition=ON"]) as where:
        add_code(template(where))
        for name, code in (("", 1006), ("part.TRG", 7), ("v.frm", 7), ("db.opt", 7)):
            killer.restart(where, FAIL_AT=f"failed/{name}" if name else "failed")
            c = where.connect()
            expect(f"error at {name!r}", code_of(c, "SELECT myriad_clone_database('tmpl', 'failed')"), code)
            expect("nothing is left", (code_of(c, "USE failed"), os.path.exists(os.path.join(where.datadir, "failed"))), (1049, False))
            expect("no table", code_of(c, "SELECT * FROM failed.auto"), 1146)
            where.kill()
            killer.restart(where)
            c = where.connect()
            expect("nothing after a restart", code_of(c, "USE failed"), 1049)
            expect("it can be made now", clone(c, "tmpl", "failed"), 3 + CODE_TABLES)
            check_code(c, "failed")
            rows(c, "DROP DATABASE failed")


def test_clone_killed(_where):
    """SIGKILL at any moment: what was acknowledged is there, and nothing is there in part."""
    chance = random.Random(5)
    with server.Server("MYRIAD", options=["--loose-partition=ON"]) as where:
        add_code(template(where, tables=60))
        made, sure, checked = 0, set(), set()
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
                expect(f"tables of {name}", len(rows(c, f"SHOW TABLES FROM {name}")), 60 + len(CODE_NAMES))
                if name not in checked:
                    check_code(c, name)
                checked.add(name)
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
    # Of a partitioned table that is gone: a crash in CREATE OR REPLACE TABLE can leave that.
    with open(os.path.join(where.datadir, "tmpl", "gone.par"), "w"):
        pass
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
    rows(c, "SET lock_wait_timeout=120")
    outcome = []
    waiting = threading.Thread(target=lambda: outcome.append(code_of(c, "DROP DATABASE tmpl")))
    waiting.start()
    time.sleep(0.3)
    expect("it waits", outcome, [])
    rows(user, "COMMIT")
    waiting.join(HUNG_SECONDS)
    expect("dropped after the transaction", outcome, [0])
    expect("the user's next statement", code_of(user, "SELECT * FROM tmpl.t3"), 1146 if outcome else 0)
    expect("statistics are gone", rows(c, statistics), ((0,),))
    expect("no files", os.path.exists(os.path.join(where.datadir, "tmpl")), False)
    rows(c, "CREATE DATABASE tmpl")
    rows(c, "CREATE TABLE tmpl.t3 (z INT)")
    expect("new table of an old name", rows(user, "SELECT * FROM tmpl.t3"), ())


def test_query_keeps_no_database(where):
    """One that was the first to open its table."""
    c = template(where, tables=6)
    user = where.connect(database="tmpl")
    rows(c, "SET lock_wait_timeout=1")
    for query in ("SELECT {}, COUNT(*) FROM t1", "INSERT INTO t2 (k) SELECT {}"):
        rows(c, "FLUSH TABLES")
        with gate(where) as waits:
            running = cases.start(user, query.format(waits))
            expect("CREATE DATABASE", code_of(c, "CREATE DATABASE IF NOT EXISTS tmpl"), 0)
            expect("ALTER DATABASE", code_of(c, "ALTER DATABASE tmpl CHARACTER SET utf8mb4"), 0)
            expect("the query runs", running.is_alive(), True)
            expect("DROP DATABASE", code_of(c, "DROP DATABASE tmpl"), 1205)
        running.join()
    expect("and keeps its table", rows(c, "SELECT COUNT(*) FROM tmpl.t2"), ((1,),))


def test_drop_database_fails(_where):
    """The catalog's log cannot be written: the statement fails and the database stays, with its tables."""
    with Killer() as killer, server.Server("MYRIAD", binlog=True) as where:
        killer.restart(where, NOTHING="")
        c = where.connect()
        rows(c, "CREATE DATABASE kept")
        c.select_db("mysql")
        rows(c, "CREATE TABLE kept.t (a INT PRIMARY KEY, b CHAR(200))")
        rows(c, "INSERT INTO kept.t SELECT seq, 'x' FROM seq_1_to_5000")
        rows(c, "RESET MASTER")
        resource.prlimit(where.process.pid, resource.RLIMIT_FSIZE, (256 << 10, resource.RLIM_INFINITY))
        expect("error", code_of(c, "DROP DATABASE kept"), 1010)
        told = rows(c, "SHOW WARNINGS")[0]
        expect(f"{told}", (told[1], "MYRIAD still has its tables" in told[2]), (1010, True))
        expect("the database", rows(c, "SHOW DATABASES LIKE 'kept'"), (("kept",),))
        expect("binary log", [e[5] for e in rows(c, "SHOW BINLOG EVENTS") if "DROP" in e[5]], [])
        where.kill()
        killer.restart(where)
        c = where.connect()
        expect("rows", rows(c, "SELECT COUNT(*) FROM kept.t"), ((5000,),))
        rows(c, "DROP DATABASE kept")
        rows(c, "CREATE DATABASE kept")
        expect("dropped now", rows(c, "SHOW TABLES FROM kept"), ())


def test_lock_tables_killed(_where):
    """The end before a locked table's .frm file has its name."""
    with Killer() as killer, server.Server("MYRIAD") as where:
        killer.restart(where, KILL_AT="lk/t.frm")
        c = where.connect()
        rows(c, "CREATE DATABASE lk")
        rows(c, "CREATE TABLE lk.t (a INT PRIMARY KEY)")
        expect("lost connection", code_of(c, "LOCK TABLES lk.t WRITE"), 2013)
        where.process.wait(10)
        killer.restart(where)
        c = where.connect()
        expect("the table", (rows(c, "SHOW TABLES FROM lk"), rows(c, "SELECT * FROM lk.t")), ((("t",),), ()))
        rows(c, "LOCK TABLES lk.t WRITE")
        expect("file", os.path.getsize(os.path.join(where.datadir, "lk", "t.frm")) > 0, True)
        rows(c, "UNLOCK TABLES")
        expect("no file", os.listdir(os.path.join(where.datadir, "lk")), ["db.opt"])
        where.kill()
        with open(os.path.join(where.datadir, "lk", "t.BAK"), "w"):
            pass
        where.start()
        rows(where.connect(), "DROP DATABASE lk")
        expect("no folder", os.path.exists(os.path.join(where.datadir, "lk")), False)


def test_lock_tables_and_clones(where):
    """A locked table's .frm file stays while the server clones its handler for a statement: without it DROP TABLE waits for ever."""
    c = template(where)
    rows(c, "CREATE DATABASE lk")
    rows(c, "CREATE TABLE lk.t (a INT, b TEXT, UNIQUE (b))")
    rows(c, "LOCK TABLES lk.t WRITE")
    for statement in ("INSERT INTO lk.t VALUES (1, 'a'), (2, 'b')", "REPLACE INTO lk.t VALUES (1, 'a')",
                      "INSERT INTO lk.t VALUES (1, 'a') ON DUPLICATE KEY UPDATE a = 5", "UPDATE lk.t SET b = CONCAT(b, 'x')"):
        rows(c, statement)
        expect(statement, sorted(os.listdir(os.path.join(where.datadir, "lk"))), ["db.opt", "t.frm"])
    rows(c, "DROP TABLE lk.t")
    rows(c, "UNLOCK TABLES")
    rows(c, "CREATE SEQUENCE lk.s")
    rows(c, "LOCK TABLES lk.s WRITE")
    expect("a sequence", rows(c, "SELECT NEXTVAL(lk.s)"), ((1,),))
    expect("its file", sorted(os.listdir(os.path.join(where.datadir, "lk"))), ["db.opt", "s.frm"])
    rows(c, "DROP SEQUENCE lk.s")
    rows(c, "UNLOCK TABLES")
    expect("no file", os.listdir(os.path.join(where.datadir, "lk")), ["db.opt"])
    rows(c, "DROP DATABASE lk")


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
            expect(f"{where_is}: check", rows(c, f"CHECK TABLE {name} EXTENDED")[0][3], "OK")
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


def test_names_as_they_are(where):
    """After #mysql50# a name is a file's: one like a partition's is refused, as the table would be found by nobody, others are
    listed."""
    c = template(where)
    rows(c, "CREATE DATABASE raw")
    rows(c, "CREATE TABLE raw.t (a INT PRIMARY KEY)")
    like_a_partition = "raw.`#mysql50#a#P#b`"
    for statement in (f"CREATE TABLE {like_a_partition} (a INT)", f"CREATE TABLE {like_a_partition} LIKE raw.t",
                      f"RENAME TABLE raw.t TO {like_a_partition}", f"ALTER TABLE raw.t RENAME {like_a_partition}",
                      f"ALTER TABLE raw.t RENAME {like_a_partition}, ADD b INT, ALGORITHM=COPY"):
        expect(statement, code_of(c, statement) in (1103, 1025), True)
    rows(c, "CREATE TABLE raw.`#mysql50#a#sqlb` (a INT PRIMARY KEY)")
    rows(c, "INSERT INTO raw.`#mysql50#a#sqlb` VALUES (1)")
    expect("listed", [name for (name,) in rows(c, "SHOW TABLES FROM raw")], ["#mysql50#a#sqlb", "t"])
    rows(c, "DROP DATABASE raw")


def upgrade_name(where, in_use):
    old, new = "`#mysql50#a-b`", "`a-b`"
    upgrade = f"ALTER DATABASE {old} UPGRADE DATA DIRECTORY NAME"
    os.mkdir(os.path.join(where.datadir, "a-b"))
    c = where.connect()
    rows(c, f"CREATE TABLE {old}.p (a INT PRIMARY KEY) ENGINE=MYRIAD")
    rows(c, f"CREATE TABLE {old}.`c d` (a INT, b INT, FOREIGN KEY (a) REFERENCES p (a)) ENGINE=MYRIAD")
    rows(c, f"CREATE TABLE {old}.h (a INT) ENGINE=MYRIAD PARTITION BY HASH (a) PARTITIONS 2")
    rows(c, f"CREATE SEQUENCE {old}.s ENGINE=MYRIAD")
    rows(c, f"CREATE TABLE {old}.m (a INT) ENGINE=Aria")
    for table in ("p", "h", "m"):
        rows(c, f"INSERT INTO {old}.{table} VALUES (1), (2)")
    rows(c, f"INSERT INTO {old}.`c d` VALUES (1, 2)")
    rows(c, f"USE {old}")
    rows(c, "CREATE TRIGGER adds BEFORE INSERT ON p FOR EACH ROW SET NEW.a = NEW.a + 10")
    if in_use:
        user = where.connect()
        rows(user, "BEGIN")
        rows(user, f"SELECT * FROM {old}.p")
        expect("in use", code_of(c, f"SET STATEMENT lock_wait_timeout=1 FOR {upgrade}"), 1205)
        expect("left", rows(c, f"SHOW TABLES FROM {old}"), (("c d",), ("h",), ("m",), ("p",), ("s",)))
        expect("its rows", rows(user, f"SELECT COUNT(*) FROM {old}.p"), ((2,),))
        expect("new name", code_of(c, f"USE {new}"), 1049)
        expect("new folder", os.path.exists(os.path.join(where.datadir, "a@002db")), False)
        rows(user, "COMMIT")
    rows(c, upgrade)
    expect("old name", code_of(c, f"USE {old}"), 1049)
    expect("tables", [name for (name,) in rows(c, f"SHOW TABLES FROM {new}")], ["c d", "h", "m", "p", "s"])
    expect("rows", [len(rows(c, f"SELECT * FROM {new}.{table}")) for table in ("`c d`", "h", "m", "p")], [1, 2, 2, 2])
    expect("value", rows(c, f"SELECT NEXTVAL({new}.s)"), ((1,),))
    expect("foreign key", code_of(c, f"DELETE FROM {new}.p WHERE a = 1"), 1451)
    rows(c, f"INSERT INTO {new}.p VALUES (1)")
    expect("trigger", rows(c, f"SELECT MAX(a) FROM {new}.p"), ((11,),))
    rows(c, f"DROP DATABASE {new}")


def test_upgraded_name(where):
    """A folder gets a name of today (mariadb-check --fix-db-names) with all tables in it; of one in use nothing is lost."""
    upgrade_name(where, in_use=False)
    upgrade_name(where, in_use=True)


if __name__ == "__main__":
    server.main_guard(lambda: cases.run(globals()))
