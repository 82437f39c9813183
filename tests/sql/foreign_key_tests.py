#!/usr/bin/python3
"""Foreign keys where it takes more than one client, a crash or a tool. Usage: foreign_key_tests.py [NAME...]"""
import os
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import HUNG_SECONDS, code_of, database, expect, first_answer, rows, run, server, start  # noqa: E402
from tenant_tests import Killer  # noqa: E402
from xa_tests import leave  # noqa: E402


def family(c):
    rows(c, "CREATE TABLE p (id INT PRIMARY KEY, k VARCHAR(20) UNIQUE)")
    rows(c, """CREATE TABLE c (id INT AUTO_INCREMENT PRIMARY KEY, p INT, k VARCHAR(20), FOREIGN KEY (p) REFERENCES p(id)
               ON DELETE CASCADE ON UPDATE CASCADE, CONSTRAINT named FOREIGN KEY (k) REFERENCES p(k))""")
    rows(c, "INSERT INTO p SELECT seq, CONCAT('k', seq) FROM seq_1_to_20")
    rows(c, "INSERT INTO c (p) SELECT 1 + seq MOD 10 FROM seq_1_to_100")


ORPHANS = "SELECT COUNT(*) FROM c LEFT JOIN p ON c.p = p.id WHERE c.p IS NOT NULL AND p.id IS NULL"


def test_restart(where):
    c = database(where)
    family(c)
    definition = "SELECT * FROM information_schema.referential_constraints WHERE constraint_schema = 'd'"
    shown = rows(c, definition)
    for crash in (False, True):
        rows(c, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        rows(c, "BEGIN")
        rows(c, "DELETE FROM p WHERE id = 1")
        expect("cascaded", rows(c, "SELECT COUNT(*) FROM c WHERE p = 1"), ((0,),))
        other = where.connect(database="d")
        rows(other, f"INSERT INTO c (p) VALUES ({5 + crash})")
        if crash:
            where.kill()
            where.start()
        else:
            where.restart()
        c = where.connect(database="d")
        expect("definition", rows(c, definition), shown)
        expect("undone", rows(c, "SELECT COUNT(*) FROM c WHERE p = 1"), ((10,),))
        expect("kept", rows(c, f"SELECT COUNT(*) FROM c WHERE p = {5 + crash}"), ((11,),))
        expect("child", code_of(c, "INSERT INTO c (p) VALUES (99)"), 1452)
        expect("parent", code_of(c, "TRUNCATE p"), 1701)
        expect("check", rows(c, "CHECK TABLE c, p EXTENDED")[0][3], "OK")


def test_xa(where):
    c = database(where)
    family(c)
    for end, left in (("ROLLBACK", 10), ("COMMIT", 0)):
        rows(c, "XA START 'x'")
        rows(c, "DELETE FROM p WHERE id = 2")
        rows(c, "XA END 'x'")
        rows(c, "XA PREPARE 'x'")
        where.kill()
        where.start()
        c = where.connect(database="d")
        rows(c, f"XA {end} 'x'")
        expect(end, rows(c, "SELECT COUNT(*) FROM c WHERE p = 2"), ((left,),))


def test_xa_of_parent(where):
    """Rows are not taken under a new foreign key while a prepared transaction without a connection may take their parents away."""
    c = database(where)
    for copy in ("ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES p(id)",
                 "CREATE TABLE c2 (p INT, FOREIGN KEY (p) REFERENCES p(id)) SELECT p FROM c"):
        rows(c, "DROP TABLE IF EXISTS c, c2, p")
        rows(c, "CREATE TABLE p (id INT PRIMARY KEY)")
        rows(c, "CREATE TABLE c (p INT)")
        rows(c, "INSERT INTO p VALUES (1), (2)")
        rows(c, "INSERT INTO c VALUES (1)")
        leave(where, "left", "DELETE FROM p WHERE id = 1")
        rows(c, "CREATE TABLE empty (p INT, FOREIGN KEY (p) REFERENCES p(id))")
        rows(c, "DROP TABLE empty")
        rows(c, "SET SESSION myriad_lock_wait_timeout = 1")
        expect(f"{copy} waits", code_of(c, copy), 1205)
        rows(c, "SET SESSION myriad_lock_wait_timeout = 120")
        answers = []
        copying = threading.Thread(target=lambda: answers.append(code_of(c, copy)))
        copying.start()
        time.sleep(0.4)
        rows(where.connect(database="d"), "XA COMMIT 'left'")
        copying.join(HUNG_SECONDS)
        expect(f"orphan of {copy}", answers, [1452])


def test_many_clients(where):
    """Whatever children and parents do at once, no child is left without its parent."""
    c = database(where)
    family(c)
    end = time.monotonic() + 6
    unexpected = []

    def client(number):
        chance = random.Random(number)
        connection = where.connect(database="d")
        level = "READ COMMITTED" if number % 2 else "REPEATABLE READ"
        rows(connection, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        while time.monotonic() < end:
            p = chance.randint(1, 20)
            sql = chance.choice([f"INSERT INTO c (p) VALUES ({p})", f"INSERT INTO c (p) VALUES ({p})",
                                 f"DELETE FROM p WHERE id = {p}", f"REPLACE INTO p VALUES ({p}, 'k{p}')",
                                 f"UPDATE p SET id = {chance.randint(1, 20)} WHERE id = {p}",
                                 f"UPDATE c SET p = {p} WHERE id = {chance.randint(1, 300)}",
                                 f"INSERT IGNORE INTO p VALUES ({p}, 'k{p}')", "BEGIN", "COMMIT", "ROLLBACK"])
            number_of_error = code_of(connection, sql)
            if number_of_error not in (0, 1062, 1205, 1213, 1451, 1452, 1761):
                unexpected.append((sql, number_of_error))
        connection.close()

    threads = [threading.Thread(target=client, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("errors", unexpected[:3], [])
    expect("orphans", rows(c, ORPHANS), ((0,),))
    expect("check", {row[3] for row in rows(c, "CHECK TABLE c, p EXTENDED")}, {"OK"})


def test_tables_passed_on(where):
    """What a connection found of a table's parents is not believed by the next one that gets the open table, whose
    statements have the same numbers."""
    family(database(where))
    twins = [where.connect(database="d", autocommit=False) for _ in range(2)]
    other = where.connect(database="d")
    rows(other, "SET lock_wait_timeout = 1")
    for n, twin in enumerate(twins, 1):
        rows(twin, f"INSERT INTO c (p) VALUES ({n})")
        expect("parents are locked", code_of(other, "ALTER TABLE p COMMENT = 'changed'"), 1205)
        rows(twin, "ROLLBACK")
    expect("nobody is left", code_of(other, "ALTER TABLE p COMMENT = 'changed'"), 0)


def test_refused_drop(where):
    """A DROP TABLE that is refused drops nothing: no table, no trigger. Its warnings call no table unknown that is there."""
    c = database(where)
    family(c)
    for t in ("p", "other"):
        rows(c, f"CREATE TABLE IF NOT EXISTS {t} (id INT PRIMARY KEY)")
        rows(c, f"CREATE TRIGGER of_{t} BEFORE INSERT ON {t} FOR EACH ROW SET NEW.id = NEW.id + 100")

    shown = rows(c, "SHOW TRIGGERS"), rows(c, "SHOW TABLES")
    parent = ("Error", 1451, "Cannot delete or update a parent row: a foreign key constraint fails")
    missing = {"DROP TABLE IF EXISTS nothing, p, other": ("Note", "d.nothing"), "DROP TABLE p, nil, other, none": ("Error", "d.nil,d.none")}
    for refused in ("DROP TABLE p", "DROP TABLE IF EXISTS p", "DROP TABLE p, c", "DROP TABLE other, p", *missing):
        expect(refused, code_of(c, refused), 1451)
        level, unknown = missing.get(refused, ("", ""))
        expect(f"warnings of {refused}", rows(c, "SHOW WARNINGS"),
               (parent, (level, 1051, f"Unknown table '{unknown}'")) if unknown else (parent,))
        expect(f"after {refused}", (rows(c, "SHOW TRIGGERS"), rows(c, "SHOW TABLES")), shown)
    for refused in ("(id INT)", "SELECT 1 AS id", "LIKE other", "SELECT * FROM other"):
        expect(refused, code_of(c, f"CREATE OR REPLACE TABLE p {refused}"), 1451)
        expect(f"warnings of {refused}", rows(c, "SHOW WARNINGS"), (parent,))
        expect(f"after {refused}", (rows(c, "SHOW TRIGGERS"), rows(c, "SHOW TABLES")), shown)
    long, nothing = "p" * 60, "n" * 60
    rows(c, f"CREATE TABLE {long} (id INT PRIMARY KEY)")
    rows(c, f"CREATE TABLE of_long (id INT REFERENCES {long} (id))")
    expect("long", code_of(c, f"DROP TABLE IF EXISTS {nothing}, {long}"), 1451)
    expect("warnings of a list that is cut", rows(c, "SHOW WARNINGS"), (parent, ("Note", 1051, f"Unknown table 'd.{nothing}'")))
    rows(c, f"DROP TABLE of_long, {long}")
    rows(c, "CREATE PROCEDURE handled() BEGIN DECLARE CONTINUE HANDLER FOR 1451 BEGIN GET DIAGNOSTICS @n = NUMBER;"
            " GET DIAGNOSTICS CONDITION 1 @text = MESSAGE_TEXT; END; DROP TABLE p; END")
    expect("handled", code_of(c, "CALL handled()"), 0)
    expect("conditions", rows(c, "SELECT @n, @text"), ((1, parent[2]),))
    rows(c, "CREATE OR REPLACE TABLE of_p SELECT * FROM p")
    rows(c, "CREATE OR REPLACE TABLE of_p LIKE p")
    rows(c, "DROP TABLE of_p")
    rows(c, "INSERT INTO p (id) VALUES (50)")
    expect("trigger", rows(c, "SELECT MAX(id) FROM p"), ((150,),))
    rows(c, "CREATE TABLE part (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
    expect("with a partitioned one", code_of(c, "DROP TABLE part, p"), 1451)
    expect("which goes", (code_of(c, "SELECT * FROM part"), rows(c, "SHOW TABLES")), (1146, shown[1]))
    rows(c, "DROP TABLE c, p, other")
    expect("in order", rows(c, "SHOW TABLES"), ())
    family(c)
    rows(c, "SET foreign_key_checks = 0")
    rows(c, "DROP TABLE p, c")


def test_failed_create_of_parent(where):
    """What a CREATE TABLE ... SELECT that fails has made goes, although foreign keys have its name."""
    c = database(where)
    rows(c, "SET foreign_key_checks = 0")
    rows(c, "CREATE TABLE c (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES p(id))")
    rows(c, "SET foreign_key_checks = 1")
    for create in ("CREATE", "CREATE OR REPLACE"):
        twice = "TABLE p (id INT PRIMARY KEY) SELECT 1 AS id UNION ALL SELECT 1"
        expect(create, code_of(c, f"{create} {twice}"), 1062)
        expect("nothing is left", rows(c, "SHOW TABLES"), (("c",),))
    rows(c, "CREATE TABLE p (id INT PRIMARY KEY) SELECT 1 AS id")
    expect("replaced", code_of(c, f"CREATE OR REPLACE {twice}"), 1451)
    expect("as before", rows(c, "SELECT * FROM p"), ((1,),))


def test_binlog_of_refused_drop(_where):
    """The binary log has no refused DROP TABLE, unless tables went with it that are not the engine's own or are partitioned."""
    with server.Server("MYRIAD", options=["--log-bin", "--server-id=1", "--loose-partition=ON"]) as where:
        c = database(where)
        family(c)
        rows(c, "CREATE TABLE other (id INT PRIMARY KEY)")
        for drop, in_log in (("p", None), ("IF EXISTS nothing, p, other", None), ("nothing, other, p", None), ("temporary, p", None),
                             ("aria, p", "aria"), ("p, aria", "aria"), ("nothing, p, aria", "aria"), ("part, p", "part")):
            rows(c, "CREATE TEMPORARY TABLE IF NOT EXISTS temporary (id INT)")
            rows(c, "CREATE TABLE IF NOT EXISTS aria (id INT) ENGINE=ARIA")
            rows(c, "CREATE TABLE IF NOT EXISTS part (id INT) PARTITION BY HASH (id) PARTITIONS 2")
            rows(c, "FLUSH BINARY LOGS")
            expect(drop, code_of(c, f"DROP TABLE {drop}"), 1451)
            log = rows(c, "SHOW BINARY LOGS")[-1][0]
            logged = [row[5] for row in rows(c, f"SHOW BINLOG EVENTS IN '{log}'") if "DROP TABLE" in row[5]]
            expect(f"{drop}: {logged}", [f"`{in_log}`" in text for text in logged], [True] if in_log else [])


def test_crash_in_refused_drop(where):
    """A start puts back the triggers that a refused DROP TABLE had put aside when the server was killed."""
    c = database(where)
    family(c)
    rows(c, "CREATE TRIGGER of_p BEFORE INSERT ON p FOR EACH ROW SET NEW.id = NEW.id + 100")
    expect("refused", code_of(c, "DROP TABLE p"), 1451)
    aside = os.path.join(where.datadir, "#myriad", "triggers", "d")
    expect("nothing is left", os.path.exists(aside), False)
    where.kill()
    os.makedirs(aside)
    os.rename(os.path.join(where.datadir, "d", "p.TRG"), os.path.join(aside, "p.TRG"))
    where.start()
    c = where.connect(database="d")
    expect("triggers", [row[0] for row in rows(c, "SHOW TRIGGERS")], ["of_p"])
    rows(c, "INSERT INTO p (id) VALUES (50)")
    expect("trigger", rows(c, "SELECT MAX(id) FROM p"), ((150,),))
    expect("nothing is left", os.path.exists(aside), False)


def test_parents_changed_then_deleted(_where):
    """Row events of one statement, of which the first only changes parents and the second deletes some: of a child that the source does
    not have the server knows nothing, and the deletion cascades under a lock of its own."""
    with server.Server("MYRIAD", options=["--log-bin=log", "--binlog-format=ROW"]) as where:
        c = database(where)
        rows(c, "CREATE TABLE p (id INT PRIMARY KEY)")
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY)")
        rows(c, "INSERT INTO p VALUES (1), (2)")
        rows(c, """CREATE TRIGGER both_ways BEFORE INSERT ON t FOR EACH ROW
                   BEGIN UPDATE p SET id = 11 WHERE id = 1; DELETE FROM p WHERE id = 2; END""")
        rows(c, "FLUSH BINARY LOGS")
        log = rows(c, "SHOW MASTER STATUS")[0][0]
        rows(c, "INSERT INTO t VALUES (1)")
        rows(c, "FLUSH BINARY LOGS")
        printed = subprocess.run([server.tool("mariadb-binlog"), "--no-defaults", os.path.join(where.datadir, log)], capture_output=True)
        for sql in ("SET sql_log_bin=0", "DROP TRIGGER both_ways", "TRUNCATE t", "UPDATE p SET id = 1", "INSERT INTO p VALUES (2)",
                    "CREATE TABLE k (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)", "INSERT INTO k VALUES (2)"):
            rows(c, sql)

        def repeat():
            client = [server.tool("mariadb"), "--no-defaults", f"--socket={where.socket}", "--user=root",
                      "--init-command=SET lock_wait_timeout=1"]
            return subprocess.run(client, input=printed.stdout, capture_output=True).stderr.decode()

        rows(c, "LOCK TABLES k READ")
        expect("it waits", "ERROR 1205" in repeat(), True)
        expect("the child under its lock", rows(c, "SELECT * FROM k"), ((2,),))
        rows(c, "UNLOCK TABLES")
        expect("errors", repeat(), "")
        expect("rows", [rows(c, f"SELECT * FROM {table}") for table in "ptk"], [((11,),), ((1,),), ()])


def test_definitions_wait(where):
    """A definition that concerns a foreign key waits for the transactions that rely on it."""
    c, other = database(where), where.connect(database="d")
    family(c)
    for work, change in (("INSERT INTO c (p) VALUES (3)", "RENAME TABLE p TO q"),
                         ("INSERT INTO c (p) VALUES (3)", "ALTER TABLE q ADD COLUMN x INT"),
                         ("UPDATE q SET k = 'new' WHERE id = 15", "CREATE TABLE c2 (p INT, FOREIGN KEY (p) REFERENCES q(id))"),
                         ("DELETE FROM q WHERE id = 4", "ALTER TABLE c ADD COLUMN x INT, ALGORITHM=COPY")):
        rows(c, "BEGIN")
        rows(c, work)
        thread = start(other, change)
        expect(f"{change} waits", thread.is_alive(), True)
        rows(c, "COMMIT")
        thread.join(HUNG_SECONDS)
        expect(f"{change} ends", thread.is_alive(), False)
    expect("follows", "REFERENCES `q` (`id`)" in rows(c, "SHOW CREATE TABLE c")[0][1], True)
    expect("child", code_of(c, "INSERT INTO c2 VALUES (99)"), 1452)
    rows(c, "INSERT INTO c2 VALUES (9)")
    expect("parent", code_of(other, "DELETE FROM q WHERE id = 9"), 1451)


def test_parent_renamed_meanwhile(where):
    """An ALTER in place of a child that waits before its end keeps what its foreign keys follow in the meantime."""
    c = database(where)
    others = [where.connect(database="d") for _ in range(3)]
    for alter, change, parent in (("ADD INDEX (x)", "RENAME TABLE p TO p2", "p2` (`id`)"),
                                  ("ADD INDEX (x)", "ALTER TABLE p RENAME COLUMN id TO number", "p` (`number`)"),
                                  ("ADD INDEX (x), DROP FOREIGN KEY o", "RENAME TABLE p TO p2", "p2` (`id`)")):
        rows(c, "DROP TABLE IF EXISTS c, p, p2")
        rows(c, "CREATE TABLE p (id INT PRIMARY KEY)")
        rows(c, """CREATE TABLE c (id INT PRIMARY KEY, p INT, x INT, FOREIGN KEY (p) REFERENCES p (id),
                   CONSTRAINT o FOREIGN KEY (x) REFERENCES p (id))""")
        rows(c, "BEGIN")
        rows(c, "SELECT * FROM c")
        altering = start(others[0], f"ALTER TABLE c {alter}, ALGORITHM=INPLACE")
        rows(others[1], "BEGIN")
        reading = start(others[1], "SELECT * FROM c")
        rows(c, "COMMIT")
        reading.join(HUNG_SECONDS)
        time.sleep(0.4)
        expect(f"{alter} waits for its end", altering.is_alive(), True)
        rows(others[2], change)
        rows(others[1], "COMMIT")
        altering.join(HUNG_SECONDS)
        definition = rows(c, "SHOW CREATE TABLE c")[0][1]
        expect(f"{alter}, {change}", definition.count(f"REFERENCES `{parent}"), 1 if "DROP" in alter else 2)
        table = parent.split("`")[0]
        rows(c, f"INSERT INTO {table} VALUES (1)")
        expect("child", (code_of(c, "INSERT INTO c VALUES (1, 1, 1)"), code_of(c, "INSERT INTO c VALUES (2, 2, 1)")), (0, 1452))
        expect("parent", code_of(c, f"DELETE FROM {table}"), 1451)


def test_child_renamed_meanwhile(where):
    """A child that is renamed twice while a change of its parent waits is found under its last name."""
    c = database(where)
    reader, owner, first, second, deleter = (where.connect(database="d") for _ in range(5))
    for actions, answer, left in (("", 1451, 1), ("ON DELETE CASCADE", 0, 0)):
        rows(c, "DROP TABLE IF EXISTS c3, p")
        rows(c, "CREATE TABLE p (id INT PRIMARY KEY)")
        rows(c, f"CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p(id) {actions})")
        rows(c, "INSERT INTO p VALUES (1)")
        rows(c, "INSERT INTO c VALUES (1, 1)")
        rows(reader, "BEGIN")
        rows(reader, "SELECT * FROM c")
        rows(owner, "BEGIN")
        rows(owner, "SELECT * FROM p WHERE id = 1 FOR UPDATE")
        answers = []
        threads = [start(first, "RENAME TABLE c TO c2"),
                   threading.Thread(target=lambda: answers.append(code_of(deleter, "DELETE FROM p WHERE id = 1")))]
        threads[1].start()
        time.sleep(0.4)
        rows(reader, "COMMIT")
        threads[0].join(HUNG_SECONDS)
        time.sleep(0.4)
        rows(second, "RENAME TABLE c2 TO c3")
        rows(owner, "COMMIT")
        threads[1].join(HUNG_SECONDS)
        expect(f"delete {actions}", answers, [answer])
        expect(f"rows {actions}", rows(c, "SELECT (SELECT COUNT(*) FROM p), COUNT(*) FROM c3"), ((left, left),))


def test_child_copied_meanwhile(where):
    """A child keeps its parent at each moment of an ALTER that copies it, also between the copy's two renames."""
    c = database(where)
    altering = where.connect(database="d")
    rows(c, "CREATE TABLE p (id INT PRIMARY KEY)")
    rows(c, "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p(id))")
    rows(c, "INSERT INTO p VALUES (1)")
    rows(c, "INSERT INTO c VALUES (1, 1)")
    thread = threading.Thread(target=lambda: [rows(altering, "ALTER TABLE c FORCE, ALGORITHM=COPY") for _ in range(30)])
    thread.start()
    answers = set()
    while thread.is_alive():
        answers.add(code_of(c, "DELETE FROM p WHERE id = 1"))
    thread.join()
    expect("deletes of the parent", answers, {1451})


def test_parent_renamed_before_copy(where):
    """The same of an ALTER that copies and waits for writers before."""
    c = database(where)
    altering, other = where.connect(database="d"), where.connect(database="d")
    for change, parent in (("RENAME TABLE p TO p2", "p2` (`id`)"), ("ALTER TABLE p RENAME COLUMN id TO number", "p` (`number`)")):
        rows(c, "DROP TABLE IF EXISTS c, p, p2")
        rows(c, "CREATE TABLE p (id INT PRIMARY KEY)")
        rows(c, """CREATE TABLE c (id INT PRIMARY KEY, p INT, x INT, FOREIGN KEY (p) REFERENCES p (id),
                   FOREIGN KEY (x) REFERENCES c (id))""")
        rows(c, "INSERT INTO c VALUES (1, NULL, NULL)")
        rows(c, "BEGIN")
        rows(c, "DELETE FROM c")
        threads = [start(altering, "ALTER TABLE c ADD y INT, ALGORITHM=COPY"), start(other, change)]
        expect("the copy waits", threads[0].is_alive(), True)
        rows(c, "COMMIT")
        for thread in threads:
            thread.join(HUNG_SECONDS)
        definition = rows(c, "SHOW CREATE TABLE c")[0][1]
        expect(f"{change}: {definition}", (f"REFERENCES `{parent}" in definition, "REFERENCES `c` (`id`)" in definition), (True, True))


def test_memory_of_idle_connections(where):
    """Connections keep the many children that they have met open for no longer than the statement, where others have as many."""
    c = database(where)
    rows(c, "CREATE TABLE p (id INT PRIMARY KEY)")
    rows(c, "INSERT INTO p SELECT seq FROM seq_1_to_100")
    for i in range(100):
        rows(c, f"CREATE TABLE c{i} (p INT, FOREIGN KEY (p) REFERENCES p(id))")
    others = [where.connect(database="d") for _ in range(41)]
    rows(others[0], "DELETE FROM p WHERE id = 100")
    before = where.rss_mib()
    for i, other in enumerate(others[1:]):
        rows(other, f"DELETE FROM p WHERE id = {i + 1}")
    grown = where.rss_mib() - before
    expect(f"{grown:.0f} MiB for 40 idle connections, at most 60", grown <= 60, True)


def test_delete_needs_no_parent(where):
    """A DELETE of children takes no lock of their parents, but what its triggers insert does."""
    c, other = database(where), where.connect(database="d")
    family(c)
    rows(other, "SET lock_wait_timeout = 1")
    rows(c, "LOCK TABLES p WRITE")
    expect("delete", code_of(other, "DELETE FROM c WHERE p = 2"), 0)
    expect("delete of several", code_of(other, "DELETE x FROM c AS x JOIN c AS y ON x.id = y.id WHERE x.p = 3"), 0)
    expect("insert", code_of(other, "INSERT INTO c (p) VALUES (4)"), 1205)
    rows(c, "UNLOCK TABLES")
    rows(c, "CREATE TABLE t (id INT PRIMARY KEY)")
    rows(c, "INSERT INTO t VALUES (1), (4)")
    rows(c, "CREATE TRIGGER of_t AFTER DELETE ON t FOR EACH ROW INSERT INTO c (p) VALUES (OLD.id)")
    rows(c, "RENAME TABLE p TO q")
    rows(c, "DELETE FROM q WHERE id = 4")
    expect("orphan of a trigger", code_of(other, "DELETE FROM t WHERE id = 4"), 1452)
    rows(c, "LOCK TABLES q WRITE")
    expect("insert of a trigger", code_of(other, "DELETE FROM t WHERE id = 1"), 1205)
    rows(c, "UNLOCK TABLES")
    rows(other, "DELETE FROM t WHERE id = 1")


def test_deadlock_with_parent(where):
    """A child's writer and LOCK TABLES wait for each other's tables: the victim's transaction is rolled back as a whole."""
    c, other = database(where), where.connect(database="d")
    family(c)
    rows(c, "CREATE TABLE z (id INT PRIMARY KEY, v INT)")
    rows(c, "INSERT INTO z VALUES (1, 1)")
    rows(c, "BEGIN")
    rows(c, "UPDATE z SET v = 2")
    locking = start(other, "LOCK TABLES p WRITE, z WRITE")
    expect("victim", code_of(c, "INSERT INTO c (p) VALUES (1)"), 1213)
    locking.join(HUNG_SECONDS)
    expect("the other goes on", locking.is_alive(), False)
    expect("undone", rows(other, "SELECT v FROM z"), ((1,),))
    rows(other, "UNLOCK TABLES")
    rows(c, "BEGIN")
    expect("nothing was committed", rows(other, "SELECT v FROM z"), ((1,),))
    rows(c, "INSERT INTO c (p) VALUES (1)")
    rows(c, "COMMIT")


def test_wait_for_parent_ends(where):
    """What ends a wait for a parent's metadata lock is told, and nothing else."""
    c, other = database(where), where.connect(database="d")
    family(c)
    rows(c, "LOCK TABLES p WRITE")
    insert = "INSERT INTO c (p) VALUES (1)"
    killer = threading.Timer(0.5, rows, (c, f"KILL QUERY {other.thread_id()}"))
    killer.start()
    expect("killed", code_of(other, insert), 1317)
    killer.join()
    expect("nothing else", {line[1] for line in rows(other, "SHOW WARNINGS")}, {1317})
    rows(other, "SET lock_wait_timeout = 1")
    expect("timed out", code_of(other, insert), 1205)
    expect("told once", [line[1] for line in rows(other, "SHOW WARNINGS")], [1205])
    rows(c, "UNLOCK TABLES")
    expect("the connection goes on", code_of(other, insert), 0)


def test_child_altered_meanwhile(where):
    """A copy of a parent looks at its children while others alter them: it meets the one definition or the other."""
    c, other = database(where), where.connect(database="d")
    rows(c, "CREATE TABLE p (id INT PRIMARY KEY)")
    slow_to_open = ", ".join(f"v{i} INT AS (p + id + {i}) VIRTUAL" for i in range(400))
    rows(c, f"CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p(id), {slow_to_open})")
    done = threading.Event()

    def alter():
        while not done.is_set():
            rows(other, "ALTER TABLE c ADD KEY k (id, p), ADD q INT")
            rows(other, "ALTER TABLE c DROP KEY k, DROP COLUMN q")
    altering = threading.Thread(target=alter)
    altering.start()
    end, codes = time.monotonic() + 5, set()
    while time.monotonic() < end:
        codes.add(code_of(c, "ALTER TABLE p FORCE, ALGORITHM=COPY"))
    done.set()
    altering.join()
    expect("copied", codes, {0})


def test_dump(where):
    c = database(where)
    family(c)
    before = rows(c, "SHOW CREATE TABLE c"), rows(c, "CHECKSUM TABLE c, p")
    dump = subprocess.run([server.tool("mariadb-dump"), "--no-defaults", f"--socket={where.socket}", "--user=root",
                           "--single-transaction", "--databases", "d"], capture_output=True)
    expect("mariadb-dump", (dump.returncode, dump.stderr), (0, b""))
    rows(c, "DROP DATABASE d")
    load = subprocess.run([server.tool("mariadb"), "--no-defaults", f"--socket={where.socket}", "--user=root"],
                          input=dump.stdout, capture_output=True)
    expect("restore", (load.returncode, load.stderr), (0, b""))
    c.select_db("d")
    expect("restored", (rows(c, "SHOW CREATE TABLE c"), rows(c, "CHECKSUM TABLE c, p")), before)
    expect("child", code_of(c, "INSERT INTO c (p) VALUES (99)"), 1452)
    expect("parent", code_of(c, "DROP TABLE p"), 1451)


def test_databases(where):
    """References within a template point into its copy; a database that others refer to cannot be dropped."""
    c = database(where)
    for name in ("copy", "elsewhere"):
        rows(c, f"DROP DATABASE IF EXISTS `{name}`")
    family(c)
    expect("tables copied", rows(c, "SELECT myriad_clone_database('d', 'copy')"), ((2,),))
    rows(c, "INSERT INTO copy.p VALUES (77, 'x')")
    rows(c, "INSERT INTO copy.c (p) VALUES (77)")
    expect("parent is the copy's", code_of(c, "INSERT INTO copy.c (p) VALUES (1)"), 1452)
    rows(c, "DELETE FROM copy.p")
    expect("cascades in the copy alone", rows(c, "SELECT (SELECT COUNT(*) FROM copy.c), COUNT(*) FROM c"), ((0, 100),))
    rows(c, "CREATE DATABASE elsewhere")
    rows(c, "CREATE TABLE elsewhere.c (p INT, FOREIGN KEY (p) REFERENCES d.p(id))")
    expect("referenced", code_of(c, "DROP DATABASE d"), 1451)
    expect("all there", rows(c, "SELECT COUNT(*) FROM c"), ((100,),))
    rows(c, "DROP DATABASE copy")
    rows(c, "DROP TABLE elsewhere.c")
    rows(c, "DROP DATABASE elsewhere")
    rows(c, "DROP DATABASE d")


def test_database_of_new_parent(where):
    """DROP DATABASE waits for a statement that makes a child of one of its tables."""
    c, maker, writer = (where.connect() for _ in range(3))
    for name in ("elsewhere", "here"):
        rows(c, f"CREATE DATABASE {name}")
    rows(c, "CREATE TABLE elsewhere.p (id INT PRIMARY KEY)")
    rows(c, "CREATE TABLE here.q (id INT PRIMARY KEY)")
    rows(c, "FLUSH TABLES")
    rows(writer, "BEGIN")
    rows(writer, "INSERT INTO here.q VALUES (1)")
    making = start(maker, """CREATE TABLE here.c (a INT, b INT, FOREIGN KEY (a) REFERENCES elsewhere.p(id),
                             FOREIGN KEY (b) REFERENCES here.q(id))""")
    waiting = "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for%' AND INFO LIKE 'CREATE TABLE here%'"
    expect("the child waits for the writer", bool(first_answer(lambda: rows(c, waiting))), True)
    rows(c, "SET lock_wait_timeout = 1")
    expect("while it is made", code_of(c, "DROP DATABASE elsewhere"), 1205)
    rows(writer, "COMMIT")
    making.join()
    expect("referenced", code_of(c, "DROP DATABASE elsewhere"), 1451)
    rows(c, "DROP DATABASE here")
    rows(c, "DROP DATABASE elsewhere")


def test_refused(where):
    """What is not supported says so."""
    c = database(where)
    family(c)
    for sql, number in (("CREATE TABLE m (p INT, FOREIGN KEY (p) REFERENCES p(id)) IN_MEMORY=YES", 1235),
                        ("CREATE TABLE m (p INT, FOREIGN KEY (p) REFERENCES p(id)) WITH SYSTEM VERSIONING", 1235),
                        ("ALTER TABLE p IN_MEMORY=YES", 1235), ("ALTER TABLE c IN_MEMORY=YES", 1235),
                        ("ALTER TABLE p ADD SYSTEM VERSIONING", 1235), ("ALTER TABLE c ADD SYSTEM VERSIONING", 1235),
                        ("ALTER TABLE p PARTITION BY HASH(id) PARTITIONS 2", 1217),
                        ("CREATE TABLE m (p INT, FOREIGN KEY (p) REFERENCES p(id)) PARTITION BY HASH(p)", 1506)):
        expect(sql, code_of(c, sql), number)
    rows(c, "CREATE TABLE part (id INT PRIMARY KEY) PARTITION BY HASH(id) PARTITIONS 2")
    rows(c, "CREATE TABLE mem (id INT PRIMARY KEY) IN_MEMORY=YES")
    rows(c, "CREATE TABLE ver (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    for parent, number in (("part", 1005), ("mem", 1235), ("ver", 1235)):
        expect(parent, code_of(c, f"CREATE TABLE m (p INT, FOREIGN KEY (p) REFERENCES {parent}(id))"), number)
    expect("nothing was made", rows(c, "SHOW TABLES LIKE 'm'"), ())
    rows(c, "SET foreign_key_checks = 0")
    rows(c, "CREATE TABLE missing (id INT PRIMARY KEY)")
    rows(c, "CREATE TABLE child (p INT, FOREIGN KEY (p) REFERENCES missing(id))")
    rows(c, "DROP TABLE missing")
    rows(c, "SET foreign_key_checks = 1")
    for table in ("mem", "ver"):
        for sql in (f"RENAME TABLE {table} TO missing", f"ALTER TABLE {table} RENAME TO missing"):
            expect(sql, code_of(c, sql), 1235)
        expect("keeps its name", code_of(c, f"SELECT * FROM {table}"), 0)
    rows(c, "CREATE TABLE plain (id INT PRIMARY KEY)")
    rows(c, "RENAME TABLE plain TO missing")
    expect("parent again", code_of(c, "INSERT INTO child VALUES (1)"), 1452)
    expect("as before", code_of(c, "INSERT INTO c (p) VALUES (99)"), 1452)


def test_rename_with_copy(where):
    """A copying ALTER that renames a parent takes along what refers to it."""
    c = database(where)
    family(c)
    rows(c, "ALTER TABLE p RENAME TO q, ADD COLUMN x INT, ALGORITHM=COPY")
    expect("follows", rows(c, "SHOW CREATE TABLE c")[0][1].count("REFERENCES `q`"), 2)
    expect("child", code_of(c, "INSERT INTO c (p) VALUES (99)"), 1452)
    rows(c, "DELETE FROM q WHERE id = 1")
    expect("cascades", rows(c, "SELECT COUNT(*) FROM c WHERE p = 1"), ((0,),))
    rows(c, "ALTER TABLE c RENAME TO child, ADD COLUMN x INT, ALGORITHM=COPY")
    expect("names", rows(c, "SHOW CREATE TABLE child")[0][1].count("`child_ibfk_1`"), 1)
    expect("still", code_of(c, "INSERT INTO child (p) VALUES (99)"), 1452)
    rows(c, "DELETE FROM q WHERE id = 2")
    expect("cascades", rows(c, "SELECT COUNT(*) FROM child WHERE p = 2"), ((0,),))


def test_rename_with_new_key(where):
    """A foreign key that is added in a statement that renames is numbered after those that get the new name."""
    c = database(where)
    family(c)
    rows(c, "CREATE TABLE t1 (a INT, b INT, FOREIGN KEY (a) REFERENCES p(id))")
    rows(c, "ALTER TABLE t1 RENAME TO t2, ADD FOREIGN KEY (b) REFERENCES p(id)")
    definition = rows(c, "SHOW CREATE TABLE t2")[0][1]
    expect(definition, [f"`t2_ibfk_{n}` FOREIGN KEY (`{column}`)" in definition for n, column in ((1, "a"), (2, "b"))], [True, True])
    expect("child", (code_of(c, "INSERT INTO t2 VALUES (99, 1)"), code_of(c, "INSERT INTO t2 VALUES (1, 99)")), (1452, 1452))


def test_names_that_are_no_numbers(where):
    """What follows the table's name in a name given by hand is a number or nothing."""
    c = database(where)
    family(c)
    for odd in ("-2", "18446744073709551615", "07", "3x", "+8", " 9"):
        rows(c, f"CREATE OR REPLACE TABLE t (a INT, b INT, CONSTRAINT `t_ibfk_{odd}` FOREIGN KEY (a) REFERENCES p(id))")
        rows(c, "ALTER TABLE t ADD FOREIGN KEY (b) REFERENCES p(id)")
        rows(c, "ALTER TABLE t ADD FOREIGN KEY (b) REFERENCES p(id)")
        definition = rows(c, "SHOW CREATE TABLE t")[0][1]
        expect(definition, ["`t_ibfk_1`" in definition, "`t_ibfk_2`" in definition], [True, True])


def test_rename_to_long_name(where):
    """Names of foreign keys stay short enough for the server, so that a dump can be loaded."""
    c = database(where)
    family(c)
    long = "x" * 64
    rows(c, f"RENAME TABLE c TO {long}")
    definition = rows(c, f"SHOW CREATE TABLE {long}")[0][1]
    expect(definition, "CONSTRAINT `c_ibfk_1`" in definition, True)
    for add in ("ADD FOREIGN KEY (k) REFERENCES p(k)", "ADD FOREIGN KEY (k) REFERENCES p(k), RENAME TO t"):
        rows(c, f"RENAME TABLE {long} TO c")
        rows(c, f"ALTER TABLE c RENAME TO {long}, COMMENT 'x', ALGORITHM=COPY")
        expect(add, code_of(c, f"ALTER TABLE {long} {add}"), 0 if "RENAME" in add else 1059)
    rows(c, "DROP TABLE t")
    rows(c, definition)


def test_copy_without_needed_index(where):
    """A copying ALTER keeps the indexes that the table's own foreign keys need, and those of others, whatever its new name."""
    c = database(where)
    rows(c, "CREATE TABLE s (id INT NOT NULL PRIMARY KEY, u INT, r INT, x INT, UNIQUE KEY u (u), CONSTRAINT f FOREIGN KEY (r) REFERENCES s(id), "
            "CONSTRAINT g FOREIGN KEY (r) REFERENCES s(u))")
    rows(c, "CREATE TABLE c (id INT PRIMARY KEY, p INT, KEY own (p), FOREIGN KEY (p) REFERENCES s(u))")
    rows(c, "INSERT INTO s VALUES (1, 1, NULL, 1), (2, 2, 1, 1)")
    for refused in ("s DROP PRIMARY KEY", "s DROP KEY u, ALGORITHM=COPY", "s DROP PRIMARY KEY, RENAME TO s2",
                    "s DROP KEY u, RENAME TO s2, ALGORITHM=COPY", "s DROP KEY u, DROP FOREIGN KEY g, ALGORITHM=COPY",
                    "c DROP KEY own, RENAME TO c2, ALGORITHM=COPY"):
        expect(refused, code_of(c, f"ALTER TABLE {refused}"), 1553)
    rows(c, "INSERT INTO s VALUES (3, 3, 1, 1)")
    for allowed in ("s DROP PRIMARY KEY, DROP FOREIGN KEY f", "s ADD PRIMARY KEY (id)", "s ADD CONSTRAINT f FOREIGN KEY (r) REFERENCES s(id)",
                    "s DROP PRIMARY KEY, ADD UNIQUE KEY (id), ALGORITHM=COPY", "s MODIFY x BIGINT, RENAME TO s2, ALGORITHM=COPY"):
        expect(allowed, code_of(c, f"ALTER TABLE {allowed}"), 0)
    expect("child", (code_of(c, "INSERT INTO s2 VALUES (4, 4, 3, 1)"), code_of(c, "INSERT INTO s2 VALUES (5, 5, 9, 1)")), (0, 1452))
    rows(c, "SET foreign_key_checks = 0")
    rows(c, "ALTER TABLE s2 DROP KEY u, ALGORITHM=COPY")
    rows(c, "SET foreign_key_checks = 1")
    expect("lost already", code_of(c, "ALTER TABLE s2 MODIFY x INT, ALGORITHM=COPY"), 0)


def test_rename_to_taken_names(where):
    """A rename that would give two foreign keys the same name is refused as with InnoDB."""
    c = database(where)
    for engine in ("InnoDB", "MYRIAD"):
        rows(c, f"SET default_storage_engine = {engine}")
        rows(c, "CREATE TABLE p (id INT PRIMARY KEY)")
        rows(c, """CREATE TABLE t1 (a INT, b INT, CONSTRAINT t2_ibfk_1 FOREIGN KEY (a) REFERENCES p(id),
                   FOREIGN KEY (b) REFERENCES p(id))""")
        expect("taken", code_of(c, "RENAME TABLE t1 TO t2") in (1025, 1050), True)
        expect("as before", rows(c, "SHOW CREATE TABLE t1")[0][1].count("CONSTRAINT `t1_ibfk_1`"), 1)
        rows(c, "DROP TABLE t1, p")


# Of the server's log of DDL: the copy is complete; the table has its backup's name.
COPIED, OLD_RENAMED = 6, 7


def test_crash_in_copy_of_parent(_where):
    """A start finishes a copying ALTER of a parent."""
    with Killer() as killer, server.Server("MYRIAD") as where:
        for phase, clause, name in ((COPIED, "FORCE", "p"), (OLD_RENAMED, "FORCE", "p"), (COPIED, "RENAME TO q", "q")):
            what = f"phase {phase} of {clause}"
            killer.restart(where, KILL_AT_PHASE=str(phase))
            c = database(where)
            family(c)
            number = f"{where.process.pid:x}-{c.thread_id():x}"
            expect(what, code_of(c, f"ALTER TABLE p ADD COLUMN x INT, {clause}, ALGORITHM=COPY"), 2013)
            where.process.wait(10)
            killer.restart(where)
            c = where.connect(database="d")
            expect(f"{what}: tables", rows(c, "SHOW TABLES"), (("c",), (name,)))
            expect(f"{what}: column", rows(c, f"SELECT COUNT(x), COUNT(*) FROM {name}"), ((0, 20),))
            expect(f"{what}: follows", rows(c, "SHOW CREATE TABLE c")[0][1].count(f"REFERENCES `{name}`"), 2)
            expect(f"{what}: child", code_of(c, "INSERT INTO c (p) VALUES (99)"), 1452)
            expect(f"{what}: parent", code_of(c, f"DROP TABLE {name}"), 1451)
            for hidden in ("alter", "backup"):
                expect(f"{what}: {hidden}", code_of(c, f"SELECT 1 FROM `#mysql50##sql-{hidden}-{number}`"), 1146)
            expect(f"{what}: files", [f for f in os.listdir(os.path.join(where.datadir, "d")) if f != "db.opt"], [])


def test_children_not_concerned(where):
    """A statement that changes a parent takes locks of the children alone that it looks into or changes."""
    c, other = database(where), where.connect(database="d")
    rows(c, "CREATE TABLE p (id INT PRIMARY KEY, v INT)")
    rows(c, "INSERT INTO p VALUES (1, 1), (2, 2)")
    rows(c, "CREATE TABLE looked_into (p INT, FOREIGN KEY (p) REFERENCES p (id))")
    rows(c, "CREATE TABLE deleted (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)")
    rows(c, "CREATE TABLE t (id INT PRIMARY KEY)")
    rows(c, "CREATE TRIGGER of_t AFTER INSERT ON t FOR EACH ROW UPDATE p SET v = NEW.id WHERE id = 1")
    rows(other, "SET lock_wait_timeout = 1")
    for child in ("looked_into", "deleted"):
        rows(c, f"LOCK TABLES {child} WRITE")
        expect("insert", code_of(other, f"INSERT INTO p VALUES ({len(child)}, 3)"), 0)
        expect("update of another column", code_of(other, "UPDATE p SET v = v + 1"), 0)
        expect("by a trigger", code_of(other, f"INSERT INTO t VALUES ({len(child)})"), 0)
        expect("upsert", code_of(other, "INSERT INTO p VALUES (1, 3) ON DUPLICATE KEY UPDATE v = 4"), 0)
        expect("update of the key", code_of(other, "UPDATE p SET id = 5 WHERE id = 2"), 1205)
        expect("delete", code_of(other, "DELETE FROM p WHERE id = 2"), 1205)
        expect("replace", code_of(other, "REPLACE INTO p VALUES (2, 7)"), 1205)
        rows(c, "UNLOCK TABLES")
    rows(c, "LOCK TABLES p WRITE")
    expect("LOCK TABLES has all children", code_of(other, "INSERT INTO looked_into VALUES (1)"), 1205)
    rows(c, "INSERT INTO p VALUES (20, 1)")
    rows(c, "UPDATE p SET id = 21 WHERE id = 20")
    rows(c, "DELETE FROM p WHERE id = 21")
    rows(c, "UNLOCK TABLES")
    rows(other, "INSERT INTO looked_into VALUES (1)")
    expect("refused", code_of(c, "DELETE FROM p WHERE id = 1"), 1451)


def test_many_children(where):
    """A connection keeps more children open than it may always, as long as all together keep few for the server."""
    c = database(where)
    rows(c, "CREATE TABLE p (id INT PRIMARY KEY)")
    rows(c, "INSERT INTO p SELECT seq FROM seq_1_to_10")
    for number in range(70):
        rows(c, f"CREATE TABLE c{number} (p INT, FOREIGN KEY (p) REFERENCES p (id))")

    def opened(number):
        rows(c, "FLUSH STATUS")
        rows(c, f"DELETE FROM p WHERE id = {number}")
        return int(rows(c, "SHOW STATUS LIKE 'Opened_tables'")[0][1])

    opened(1)
    expect("kept", opened(2), 0)
    cache = rows(c, "SELECT @@table_open_cache")[0][0]
    rows(c, "SET GLOBAL table_open_cache = 60")
    try:
        opened(3)
        expect("not kept", opened(4) >= 70, True)
    finally:
        rows(c, f"SET GLOBAL table_open_cache = {cache}")


def test_many_children_of_a_cascade(where):
    """Of children that the server has locked for the statement no second lock is asked for; they stay locked to the transaction's end."""
    c, other = database(where), where.connect(database="d")
    many = 200
    rows(c, "CREATE TABLE p (id INT PRIMARY KEY)")
    rows(c, "INSERT INTO p SELECT seq FROM seq_1_to_20")
    for number in range(many):
        rows(c, f"CREATE TABLE p{number} (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)")
    for number in (0, 7, many - 1):
        rows(c, f"INSERT INTO p{number} VALUES (1), (2), (3)")
    rows(other, "SET lock_wait_timeout = 0")
    rows(c, "BEGIN")
    rows(c, "DELETE FROM p WHERE id = 1")
    for number in (0, 7, many - 1):
        expect(f"p{number} cascaded", rows(c, f"SELECT p FROM p{number}"), ((2,), (3,)))
    for number in (1, 40, many - 2):
        expect(f"p{number} stays locked", code_of(other, f"ALTER TABLE p{number} ADD a INT"), 1205)
    rows(c, "ROLLBACK")
    expect("p1 is free", code_of(other, "ALTER TABLE p1 ADD a INT"), 0)
    rows(c, "LOCK TABLES p WRITE")
    rows(c, "DELETE FROM p WHERE id = 2")
    rows(c, "UNLOCK TABLES")
    expect("under LOCK TABLES", rows(c, "SELECT p FROM p7"), ((1,), (3,)))


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
