#!/usr/bin/python3
"""XA transactions that outlive the connection that prepared them. Usage: xa_tests.py [NAME...]"""
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import HUNG_SECONDS, close, code_of, database, expect, rows, run, server, wait_until  # noqa: E402

COM_RESET_CONNECTION = 31


def prepare(connection, name, *statements):
    for statement in (f"XA START '{name}'", *statements, f"XA END '{name}'", f"XA PREPARE '{name}'"):
        rows(connection, statement)


def prepared(where, name, *statements):
    """A connection that has prepared an XA transaction."""
    connection = where.connect(database="d")
    prepare(connection, name, *statements)
    return connection


def leave(where, name, *statements):
    close(prepared(where, name, *statements))


def reset(connection):
    connection._execute_command(COM_RESET_CONNECTION, b"")
    connection._read_ok_packet()
    connection.select_db("d")


def test_disconnected(where):
    c = database(where)
    rows(c, "CREATE TABLE x (a INT PRIMARY KEY)")
    leave(where, "away", "INSERT INTO x VALUES (1)")
    expect("still locked", code_of(c, "SELECT * FROM x WHERE a=1 FOR UPDATE NOWAIT"), 1205)
    rows(c, "XA COMMIT 'away'")
    expect("committed", rows(c, "SELECT * FROM x"), ((1,),))


def test_reset_connection(where):
    """A pool hands the connection to its next user: the transaction stays prepared."""
    c = database(where)
    rows(c, "CREATE TABLE x (a INT PRIMARY KEY)")
    rows(c, "CREATE TABLE y (a INT PRIMARY KEY)")
    for number, (end, wanted) in enumerate((("XA COMMIT 'pooled'", ((1,),)), ("XA ROLLBACK 'pooled'", ()))):
        rows(c, "DELETE FROM x")
        user = prepared(where, "pooled", "INSERT INTO x VALUES (1)")
        reset(user)
        rows(user, "SELECT COUNT(*) FROM y")
        expect("not committed", rows(c, "SELECT * FROM x"), ())
        rows(user, f"INSERT INTO y VALUES ({number})")
        rows(user, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        rows(user, f"DELETE FROM y WHERE a = {number}")
        rows(user, "ROLLBACK")
        expect("locked", code_of(c, "SELECT * FROM x WHERE a=1 FOR UPDATE NOWAIT"), 1205)
        expect("listed", len(rows(c, "XA RECOVER")), 1)
        rows(c, end)
        expect(end, rows(c, "SELECT * FROM x"), wanted)
        expect("the next user's", rows(c, f"SELECT * FROM y WHERE a = {number}"), ((number,),))


def test_same_connection(where):
    """Ended where it was prepared, with and without a commit that is durable at once, and read-only ones."""
    c = database(where)
    rows(c, "CREATE TABLE x (a INT PRIMARY KEY, b INT)")
    user = prepared(where, "one", "INSERT INTO x VALUES (1, 1), (2, 2)")
    rows(user, "XA COMMIT 'one'")
    rows(user, "XA START 'two'")
    rows(user, "UPDATE x SET b = 9")
    rows(user, "XA END 'two'")
    rows(user, "XA PREPARE 'two'")
    rows(user, "XA ROLLBACK 'two'")
    rows(user, "XA START 'three'")
    rows(user, "SELECT * FROM x WHERE a = 1 FOR UPDATE")
    rows(user, "XA END 'three'")
    rows(user, "XA PREPARE 'three'")
    rows(user, "XA COMMIT 'three'")
    rows(user, "INSERT INTO x VALUES (3, 3)")
    expect("rows", rows(c, "SELECT * FROM x ORDER BY a"), ((1, 1), (2, 2), (3, 3)))
    expect("nothing stays", rows(c, "SELECT * FROM x FOR UPDATE NOWAIT"), ((1, 1), (2, 2), (3, 3)))
    expect("none", rows(c, "SELECT COUNT(*) FROM information_schema.MYRIAD_TRX WHERE TRX_STATE = 'PREPARED'"), ((0,),))


def test_stored_functions(where):
    """Statements that use tables in stored functions alone, which the server lets come to the engine: they are refused, and the
    prepared transaction is still there for its end."""
    c = database(where)
    rows(c, "CREATE TABLE x (a INT PRIMARY KEY)")
    rows(c, "CREATE TABLE y (a INT PRIMARY KEY)")
    rows(c, "CREATE FUNCTION reader() RETURNS INT READS SQL DATA RETURN (SELECT COUNT(*) FROM x)")
    rows(c, "CREATE FUNCTION writer() RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO y VALUES (1); RETURN 1; END")
    lock = "SELECT * FROM x WHERE a = 1 FOR UPDATE NOWAIT"
    for statement in ("SELECT reader()", "DO reader()", "SET @a = reader()", "SELECT writer()", "SHOW STATUS WHERE writer()"):
        for end, there in (("XA COMMIT 'f'", ((1,),)), ("XA ROLLBACK 'f'", ())):
            rows(c, "DELETE FROM x")
            user = prepared(where, "f", "INSERT INTO x VALUES (1)")
            expect(statement, code_of(user, statement), 1399)
            expect("still locked", code_of(c, lock), 1205)
            rows(user, end)
            expect(f"{statement}, {end}", rows(c, "SELECT * FROM x"), there)
            expect("free", code_of(c, lock), 0)
            rows(user, "SELECT reader()")
    expect("nothing written", rows(c, "SELECT * FROM y"), ())


# Refused as duplicates, or undone again: the server takes these for transactions with changes.
NOTHING = (("INSERT IGNORE INTO x VALUES (1, 5)",), ("INSERT INTO x VALUES (1, 5) ON DUPLICATE KEY UPDATE b = b",),
           ("SAVEPOINT s", "INSERT INTO x VALUES (5, 5)", "ROLLBACK TO s"))


def test_without_changes(where):
    """What wrote and changed nothing ends with its connection, closed or reset; the server lists it until somebody ends it."""
    c = database(where)
    rows(c, "CREATE TABLE x (a INT PRIMARY KEY, b INT)")
    rows(c, "INSERT INTO x VALUES (1, 1), (3, 3)")
    lock = "SELECT * FROM x WHERE a = 3 FOR UPDATE"
    for work in NOTHING:
        for leaving in ("closed", "reset", "stays"):
            for end in ("XA COMMIT 'none'", "XA ROLLBACK 'none'"):
                what = f"{work}, {leaving}, {end}"
                rows(c, "CREATE OR REPLACE TABLE y (a INT PRIMARY KEY, k INT)")
                user = prepared(where, "none", lock, *work)
                expect(what, code_of(c, f"{lock} NOWAIT"), 1205)
                if leaving == "closed":
                    close(user)
                elif leaving == "reset":
                    reset(user)
                    for statement in ("BEGIN", "INSERT INTO y VALUES (1, 1)", "COMMIT"):
                        rows(user, statement)
                    expect(what, rows(c, "SELECT * FROM y"), ((1, 1),))
                else:
                    rows(user, end)
                expect(what, code_of(c, f"{lock} NOWAIT"), 0)
                expect(what, rows(c, "SELECT TRX_STATE FROM information_schema.MYRIAD_TRX WHERE TRX_STATE = 'PREPARED'"), ())
                rows(c, "ALTER TABLE y ADD INDEX (k)")
                rows(c, "TRUNCATE TABLE y")
                if leaving != "stays":
                    expect(what, len(rows(c, "XA RECOVER")), 1)
                    rows(c, end)
                expect(what, rows(c, "XA RECOVER"), ())
    expect("rows", rows(c, "SELECT * FROM x"), ((1, 1), (3, 3)))


CHANGES = ("INSERT INTO x VALUES (5, 50)", "UPDATE x SET k = 99 WHERE id = 1", "DELETE FROM x WHERE id = 2")
BUILDING = ("ALTER TABLE x ADD INDEX (k)", "ALTER TABLE x ADD UNIQUE (k)", "CREATE INDEX k ON x (k)", "ALTER TABLE x FORCE",
            "ALTER TABLE x ADD INDEX (k), ALGORITHM=COPY", "OPTIMIZE TABLE x", "TRUNCATE TABLE x")


def test_table_changes(where):
    """What is built from a table's rows waits for prepared changes of them, however many connections and crashes ago."""
    c = database(where)
    for isolation in ("REPEATABLE READ", "READ UNCOMMITTED"):
        rows(c, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        for statement in BUILDING:
            for crash in (False, statement == BUILDING[0]):
                rows(c, "DROP TABLE IF EXISTS x, other")
                rows(c, "CREATE TABLE x (id INT PRIMARY KEY, k INT)")
                rows(c, "CREATE TABLE other (id INT PRIMARY KEY, k INT)")
                rows(c, "INSERT INTO x VALUES (1, 1), (2, 2), (3, 3)")
                leave(where, "left", *CHANGES)
                if crash:
                    where.kill()
                    where.start()
                    c = where.connect(database="d")
                    rows(c, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
                rows(c, statement.replace(" x", " other", 1) if " x" in statement else statement)
                rows(c, "SET SESSION myriad_lock_wait_timeout = 1")
                if statement.startswith("OPTIMIZE"):
                    answer = rows(c, statement)
                    expect(f"{statement}: {answer}", any("timeout" in row[3] for row in answer), True)
                else:
                    expect(statement, code_of(c, statement), 1205)
                rows(c, "SET SESSION myriad_lock_wait_timeout = 120")
                later = threading.Thread(target=lambda: rows(where.connect(database="d"), "DO SLEEP(0.3)") or
                                         rows(where.connect(database="d"), "XA COMMIT 'left'"))
                later.start()
                rows(c, statement)
                later.join()
                wanted = () if statement.startswith("TRUNCATE") else ((1, 99), (3, 3), (5, 50))
                expect(statement, rows(c, "SELECT * FROM x ORDER BY id"), wanted)
                expect(statement, rows(c, "SELECT id, k FROM x WHERE k > 0 ORDER BY id"), wanted)
                expect("check", rows(c, "CHECK TABLE x EXTENDED")[-1][3], "OK")
    rows(c, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def test_drop(where):
    """DROP TABLE waits for prepared changes, too: the binary log must not have the end of a transaction behind it."""
    c = database(where)
    for checks in (1, 0):
        rows(c, f"SET foreign_key_checks = {checks}, SESSION myriad_lock_wait_timeout = 1")
        for table in ("other", "x"):
            rows(c, f"CREATE TABLE {table} (id INT PRIMARY KEY, k INT)")
        rows(c, "CREATE TRIGGER of_x BEFORE INSERT ON x FOR EACH ROW SET NEW.k = 7")
        leave(where, "left", "INSERT INTO x (id) VALUES (5)")
        for statement in ("DROP TABLE x", "DROP TABLE other, x", "DROP TABLE IF EXISTS x", "CREATE OR REPLACE TABLE x (id INT)"):
            expect(statement, code_of(c, statement), 1205)
            expect(f"after {statement}", (len(rows(c, "SHOW TABLES")), len(rows(c, "SHOW TRIGGERS"))), (2, 1))
        rows(c, "DROP TABLE other")
        rows(c, "SET SESSION myriad_lock_wait_timeout = 120")
        found = []
        thread = threading.Thread(target=lambda: found.append(code_of(c, "DROP TABLE x")))
        thread.start()
        time.sleep(0.5)
        expect("waits", found, [])
        rows(where.connect(database="d"), "XA COMMIT 'left'")
        thread.join(HUNG_SECONDS)
        expect("dropped", (found, rows(c, "SHOW TABLES"), rows(c, "SHOW TRIGGERS")), ([0], (), ()))
    rows(c, "SET foreign_key_checks = 1")


# What does not wait: statement, what was changed before, the rows after XA COMMIT and after XA ROLLBACK.
PARTS = " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
BESIDE = (
    ("ALTER TABLE x DROP PARTITION p1", ("INSERT INTO x VALUES (15, 1), (5, 1)", "UPDATE x SET id = 16 WHERE id = 2"),
     ((1, 1), (5, 1)), ((1, 1), (2, 2))),
    ("ALTER TABLE x DROP PARTITION p1", ("UPDATE x SET id = 3 WHERE id = 11",), ((1, 1), (2, 2), (3, 11)), ((1, 1), (2, 2))),
    ("ALTER TABLE x EXCHANGE PARTITION p1 WITH TABLE other", ("INSERT INTO x VALUES (15, 1), (5, 1)",),
     ((1, 1), (2, 2), (5, 1), (12, 12)), ((1, 1), (2, 2), (12, 12))),
    ("ALTER TABLE x DROP INDEX k", ("INSERT INTO x VALUES (5, 5)", "UPDATE x SET k = 7 WHERE id = 1", "DELETE FROM x WHERE id = 11"),
     ((1, 7), (2, 2), (5, 5)), ((1, 1), (2, 2), (11, 11))),
    ("ALTER TABLE x ADD COLUMN n INT DEFAULT 9 FIRST, DROP INDEX k", ("UPDATE x SET k = k + 1", "DELETE FROM x WHERE id = 2"),
     ((9, 1, 2), (9, 11, 12)), ((9, 1, 1), (9, 2, 2), (9, 11, 11))),
    ("ALTER TABLE x DROP COLUMN k", ("UPDATE x SET k = k + 1", "INSERT INTO x VALUES (5, 5)"), ((1,), (2,), (5,), (11,)), ((1,), (2,), (11,))),
)


def test_changes_beside(where):
    """DDL that copies no row goes through; the end of the transaction is as if it had come first, also after a crash."""
    c = database(where)
    for statement, changes, committed, rolled_back in BESIDE:
        for crash in (False, True):
            for end, wanted in (("COMMIT", committed), ("ROLLBACK", rolled_back)):
                rows(c, "DROP TABLE IF EXISTS x, other")
                rows(c, "CREATE TABLE x (id INT PRIMARY KEY, k INT, KEY (k))" + (PARTS if "PARTITION" in statement else ""))
                rows(c, "CREATE TABLE other (id INT PRIMARY KEY, k INT, KEY (k))")
                rows(c, "INSERT INTO x VALUES (1, 1), (2, 2), (11, 11)")
                rows(c, "INSERT INTO other VALUES (12, 12)")
                leave(where, "left", *changes)
                rows(c, "SET SESSION myriad_lock_wait_timeout = 1")
                rows(c, statement)
                if crash:
                    where.kill()
                    where.start()
                    c = where.connect(database="d")
                rows(c, f"XA {end} 'left'")
                expect(f"{statement}, {end}", rows(c, "SELECT * FROM x ORDER BY id"), wanted)
                for table in ("x", "other"):
                    expect("check", rows(c, f"CHECK TABLE {table} EXTENDED")[-1][3], "OK")
    # But for tables whose rows it has to look at.
    rows(c, "CREATE OR REPLACE TABLE x (id INT PRIMARY KEY, k INT, KEY (k))" + PARTS)
    leave(where, "left", "INSERT INTO other VALUES (5, 5)")
    rows(c, "SET SESSION myriad_lock_wait_timeout = 1")
    expect("of another range", code_of(c, "ALTER TABLE x EXCHANGE PARTITION p1 WITH TABLE other"), 1205)
    rows(c, "XA COMMIT 'left'")


def test_kill_while_waiting(where):
    c = database(where)
    rows(c, "CREATE TABLE x (id INT PRIMARY KEY, k INT)")
    leave(where, "left", "INSERT INTO x VALUES (5, 50)")
    waiter = where.connect(database="d")
    rows(waiter, "SET SESSION myriad_lock_wait_timeout = 60, lock_wait_timeout = 60")
    found = []
    for statement in ("ALTER TABLE x ADD INDEX (k)", "DROP TABLE x"):
        thread = threading.Thread(target=lambda: found.append(code_of(waiter, statement)))
        thread.start()
        time.sleep(0.5)
        # It may not have come so far: then nothing is killed.
        wait_until("its end", lambda: rows(c, f"KILL QUERY {waiter.thread_id()}") or not thread.is_alive())
        thread.join()
    expect("killed", found, [1317, 1317])
    rows(c, "XA ROLLBACK 'left'")
    rows(c, "ALTER TABLE x ADD INDEX (k)")
    expect("rows", rows(c, "SELECT * FROM x"), ())


def test_passing_tables(where):
    """What changed temporary tables, and no other, is not prepared after a crash; what changed in-memory tables is, with nothing to commit."""
    for name, create, changed in (("temporary", "CREATE TEMPORARY TABLE x (a INT)", "x"), ("both", "CREATE TEMPORARY TABLE x (a INT)", "xy"),
                                  ("memory", "CREATE TABLE x (a INT) IN_MEMORY=YES", "x")):
        c = database(where)
        rows(c, "CREATE TABLE y (a INT)")
        user = where.connect(database="d")
        rows(user, create)
        prepare(user, name, *(f"INSERT INTO {table} VALUES (1)" for table in changed))
        expect(f"{name}: listed", len(rows(c, "XA RECOVER")), 1)
        where.kill()
        where.start()
        c = where.connect(database="d")
        expect(f"{name}: after the crash", len(rows(c, "XA RECOVER")), 0 if name == "temporary" else 1)
        expect(f"{name}: its end", code_of(c, f"XA COMMIT '{name}'"), 1397 if name == "temporary" else 0)
        expect(f"{name}: rows", rows(c, "SELECT * FROM y"), ((1,),) if name == "both" else ())


def test_update_time(where):
    """A transaction that has lost its session, or the server, has updated its tables when it is committed, whether or not they are open."""
    c = database(where)
    rows(c, "CREATE TABLE x (a INT PRIMARY KEY, b INT, KEY (b))")
    rows(c, "CREATE TABLE y (a INT PRIMARY KEY)")

    def updated():
        return [bool(time) for _, time in rows(c, "SELECT TABLE_NAME, UPDATE_TIME FROM information_schema.TABLES "
                                                  "WHERE TABLE_SCHEMA = 'd' ORDER BY TABLE_NAME")]
    leave(where, "left", "INSERT INTO x VALUES (1, 1)")
    expect("before the commit", updated(), [False, False])
    rows(c, "XA COMMIT 'left'")
    expect("after it", updated(), [True, False])
    for is_open in (False, True):
        leave(where, "left", "UPDATE x SET b = b + 1")
        where.kill()
        where.start()
        c = where.connect(database="d")
        if is_open:
            rows(c, "SELECT COUNT(*) FROM y")
            expect("after a crash", updated(), [False, False])
        rows(c, "XA COMMIT 'left'")
        expect(f"of a transaction of before the crash, looked at before: {is_open}", updated(), [True, False])


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
