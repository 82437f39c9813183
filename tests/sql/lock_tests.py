#!/usr/bin/python3
"""Locks, waits, KILL and deadlocks of several clients, and what INFORMATION_SCHEMA tells of them.
Usage: lock_tests.py [NAME...]"""
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import HUNG_SECONDS, at_once, begin, code_of, database, expect, first_answer, gate, pymysql, rows, run, server, start, status, wait_pairs, wait_until  # noqa: E402


def test_wait_of_readers(where):
    """Transactions that have changed nothing are found from their locks."""
    c = database(where)
    rows(c, "CREATE TABLE k (a INT PRIMARY KEY)")
    rows(c, "INSERT INTO k VALUES (1)")
    rows(c, "BEGIN")
    rows(c, "SELECT * FROM k FOR UPDATE")
    waiter = where.connect(database="d")
    thread = begin(waiter, "SELECT * FROM k LOCK IN SHARE MODE")
    pairs = first_answer(lambda: wait_pairs(c))
    rows(c, "COMMIT")
    thread.join(HUNG_SECONDS)
    expect("who waits for whom", pairs, ((waiter.thread_id(), c.thread_id()),))


def test_locks_are_listed_once(where):
    """However many a lock is waited for behind: MYRIAD_LOCK_WAITS has the pairs."""
    c = database(where)
    rows(c, "CREATE TABLE k (a INT PRIMARY KEY)")
    rows(c, "INSERT INTO k VALUES (1)")
    rows(c, "BEGIN")
    rows(c, "SELECT * FROM k FOR UPDATE")
    waiters = [where.connect(database="d") for _ in range(3)]
    threads = [begin(w, "SELECT * FROM k WHERE a=1 FOR UPDATE") for w in waiters]
    first_answer(lambda: len(wait_pairs(c)) == 6)
    requests = "SELECT COUNT(*), COUNT(DISTINCT LOCK_TRX_ID) FROM information_schema.MYRIAD_LOCKS WHERE LOCK_GRANTED='NO'"
    expect("requests that wait", rows(c, requests), ((3, 3),))
    rows(c, "COMMIT")
    for thread in threads:
        thread.join(HUNG_SECONDS)


def test_temporary_tables_lock_nothing(where):
    c = database(where)
    rows(c, "CREATE TEMPORARY TABLE k (a INT PRIMARY KEY, b INT, KEY (b))")
    rows(c, "INSERT INTO k SELECT seq, seq FROM seq_1_to_1000")
    rows(c, "BEGIN")
    rows(c, "UPDATE k SET b=b+1 WHERE a < 900")
    rows(c, "DELETE FROM k WHERE b BETWEEN 10 AND 20")
    rows(c, "SELECT * FROM k FORCE INDEX (b) WHERE b > 100 FOR UPDATE")
    rows(c, "SELECT * FROM k WHERE a=5000 LOCK IN SHARE MODE")
    expect("locks", rows(c, "SELECT * FROM information_schema.MYRIAD_LOCKS"), ())
    expect("rows", rows(c, "SELECT COUNT(*), SUM(b) FROM k FOR UPDATE"), ((989, 500500 + 899 - sum(range(10, 21))),))
    rows(c, "ROLLBACK")
    expect("rows as before", rows(c, "SELECT COUNT(*), SUM(b) FROM k FOR UPDATE"), ((1000, 500500),))


def one_row(where):
    """Two connections, and a table with a row."""
    c = database(where)
    rows(c, "CREATE TABLE k (a INT PRIMARY KEY, b INT)")
    rows(c, "INSERT INTO k VALUES (1, 0)")
    return c, where.connect(database="d")


def test_no_update_is_lost(where):
    """With myriad_snapshot_isolation; without it the same clients lose some."""
    c = database(where)

    def count(switch):
        rows(c, "CREATE OR REPLACE TABLE k (a INT PRIMARY KEY, b INT)")
        rows(c, "INSERT INTO k VALUES (1, 0)")
        codes = []

        def add(_):
            client = where.connect(database="d")
            rows(client, f"SET myriad_snapshot_isolation = {switch}")
            for _ in range(100):
                rows(client, "BEGIN")
                value = rows(client, "SELECT b FROM k WHERE a=1")[0][0]
                code = code_of(client, f"UPDATE k SET b={value + 1} WHERE a=1")
                # The transaction has been rolled back whole: there is nothing to commit.
                rows(client, "COMMIT")
                codes.append(code)
            client.close()
        at_once(add, range(4))
        expect("errors", set(codes) - {0, 1020}, set())
        return codes.count(0), codes.count(1020), rows(c, "SELECT b FROM k")[0][0]
    done, refused, value = count("ON")
    expect("updates", value, done)
    expect("some met", refused > 0, True)
    done, refused, value = count("OFF")
    expect("refused", refused, 0)
    expect("some lost", value < done, True)


def test_snapshot_has_what_an_index_has_no_more(where):
    """With snapshot isolation a row is not passed over because it is found no more: InnoDB passes over it."""
    c, other = database(where), where.connect(database="d")
    rows(other, "SET myriad_snapshot_isolation = ON")
    for change in ("UPDATE k SET b=7 WHERE a=1", "DELETE FROM k WHERE a=1"):
        for statement in ("UPDATE k FORCE INDEX (b) SET d=0 WHERE b=10", "SELECT * FROM k FORCE INDEX (b) WHERE b BETWEEN 8 AND 15 FOR UPDATE",
                          "SELECT b FROM k FORCE INDEX (b) WHERE b < 15 ORDER BY b DESC LOCK IN SHARE MODE"):
            rows(c, "CREATE OR REPLACE TABLE k (a INT PRIMARY KEY, b INT, d INT, KEY (b))")
            rows(c, "INSERT INTO k SELECT seq, seq * 10, 1 FROM seq_1_to_10")
            rows(other, "BEGIN")
            rows(other, "SELECT * FROM k")
            rows(c, change)
            expect(f"{statement} after {change}", code_of(other, statement), 1020)


def test_workers_of_a_queue_meet_no_deadlock(where):
    """Who marks in an indexed column the jobs that it took, skipping those of others, at REPEATABLE READ."""
    c = database(where)
    rows(c, "CREATE TABLE jobs (id INT PRIMARY KEY, state VARCHAR(10), prio INT, KEY (state, prio, id))")
    rows(c, "INSERT INTO jobs SELECT seq, 'new', seq MOD 5 FROM seq_1_to_2000")
    codes, taken = [], []

    def work(_):
        client = where.connect(database="d")
        while True:
            rows(client, "BEGIN")
            jobs = rows(client, "SELECT id FROM jobs WHERE state='new' ORDER BY prio, id LIMIT 5 FOR UPDATE SKIP LOCKED")
            codes.extend(code_of(client, f"UPDATE jobs SET state='done' WHERE id={job}") for job, in jobs)
            rows(client, "COMMIT")
            taken.extend(job for job, in jobs)
            if not jobs:
                return client.close()
    at_once(work, range(6))
    expect("errors", set(codes), {0})
    expect("each job once", sorted(taken), list(range(1, 2001)))
    expect("done", rows(c, "SELECT COUNT(*) FROM jobs WHERE state='done'")[0][0], 2000)


def test_snapshot_isolation_is_told(where):
    c, other = one_row(where)
    rows(other, "SET myriad_snapshot_isolation = ON")
    rows(other, "BEGIN")
    rows(other, "INSERT INTO k VALUES (2, 0)")
    level = "SELECT TRX_ISOLATION_LEVEL FROM information_schema.MYRIAD_TRX"
    expect("level", rows(c, level), (("SNAPSHOT",),))
    rows(other, "SELECT * FROM k")
    rows(c, "UPDATE k SET b=1 WHERE a=1")
    expect("changed", code_of(other, "UPDATE k SET b=5"), 1020)
    expect("rolled back whole", rows(c, level), ())
    expect("begins anew", rows(other, "SELECT * FROM k"), ((1, 1),))
    expect("changed by nobody else", code_of(other, "UPDATE k SET b=5"), 0)
    rows(other, "XA START 'x'")
    rows(other, "SELECT * FROM k")
    rows(c, "UPDATE k SET b=2 WHERE a=1")
    expect("changed", code_of(other, "UPDATE k SET b=6"), 1020)
    expect("can only be rolled back", code_of(other, "XA END 'x'"), 1399)
    rows(other, "XA ROLLBACK 'x'")
    expect("not changed", rows(c, "SELECT b FROM k"), ((2,),))


def test_rollback_on_timeout(where):
    c, other = one_row(where)
    rows(other, "SET myriad_lock_wait_timeout = 1")
    for switch, left in (("OFF", ((2, 0),)), ("ON", ())):
        rows(other, f"SET myriad_rollback_on_timeout = {switch}")
        for statement in ("UPDATE k SET b=2", "SELECT * FROM k WHERE a=1 FOR UPDATE NOWAIT"):
            rows(c, "BEGIN")
            rows(c, "UPDATE k SET b=1 WHERE a=1")
            rows(other, "BEGIN")
            rows(other, "INSERT INTO k VALUES (2, 0)")
            expect("timed out", code_of(other, statement), 1205)
            expect(f"left with {switch}", rows(other, "SELECT * FROM k WHERE a=2"), left)
            rows(other, "ROLLBACK")
            rows(c, "ROLLBACK")


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
    waits = first_answer(lambda: rows(c, "SELECT * FROM information_schema.MYRIAD_LOCK_WAITS"))
    expect("lock waits shown", len(waits), 1)
    expect("locks shown", len(rows(c, "SELECT * FROM information_schema.MYRIAD_LOCKS WHERE LOCK_TABLE='d/k'")) >= 2, True)
    expect("states", sorted(r[0] for r in rows(c, "SELECT TRX_STATE FROM information_schema.MYRIAD_TRX")), ["ACTIVE", "LOCK WAIT"])
    expect("who waits for whom", wait_pairs(c), ((waiter.thread_id(), c.thread_id()),))
    rows(c, f"KILL QUERY {waiter.thread_id()}")
    thread.join(HUNG_SECONDS)
    expect("killed statement", outcome, [1317])
    rows(c, "COMMIT")
    expect("the connection goes on", rows(waiter, "SELECT b FROM k"), ((2,),))


def test_wait_in_merged_indexes(where):
    """A lock that is waited for in vain while entries of several indexes are collected is no lack of memory."""
    c, other = database(where), where.connect(database="d")
    rows(c, "CREATE TABLE k (id INT PRIMARY KEY, a INT, b INT, KEY (a), KEY (b))")
    rows(c, "INSERT INTO k SELECT seq, seq, seq FROM seq_1_to_100")
    merged = "SELECT * FROM k WHERE a = 1 OR b = 3 FOR UPDATE"
    expect("merged", rows(c, f"EXPLAIN {merged}")[0][3], "index_merge")
    rows(c, "BEGIN")
    rows(c, "UPDATE k SET b = 200 WHERE id = 3")
    rows(other, "SET myriad_lock_wait_timeout = 1")
    expect("timed out", code_of(other, merged), 1205)
    expect("told", [line[1] for line in rows(other, "SHOW WARNINGS")], [1205])


def test_kill_beside_handler(where):
    """The server forgets a KILL that comes while it looks for a routine's handler, which takes long for many warnings: the
    statement does all that it is to do or says that it was killed."""
    c, other = database(where), where.connect(database="d")
    rows(c, "CREATE TABLE k (a INT PRIMARY KEY, b INT)")
    rows(c, "INSERT INTO k SELECT seq, 0 FROM seq_1_to_10000")
    handlers = "".join(f"DECLARE CONTINUE HANDLER FOR SQLSTATE '9{n:04}' BEGIN END; " for n in range(300))
    rows(c, "CREATE FUNCTION f() RETURNS INT MODIFIES SQL DATA BEGIN DECLARE CONTINUE HANDLER FOR SQLWARNING BEGIN END; "
            f"{handlers} UPDATE k SET b = b + 1 WHERE a <= 100; INSERT IGNORE INTO k SELECT a, b FROM k; "
            "UPDATE k SET b = b + 1 WHERE a > 100 AND a <= 200; RETURN 1; END")
    rows(c, "SET max_error_count = 65535")
    begin = time.monotonic()
    expect("not killed", rows(c, "SELECT f()"), ((1,),))
    whole = time.monotonic() - begin
    outcomes = set()
    for part in range(20):
        killer = threading.Timer(whole * (part + 0.5) / 20, rows, (other, f"KILL QUERY {c.thread_id()}"))
        before = rows(c, "SELECT SUM(b) FROM k")[0][0]
        killer.start()
        code = code_of(c, "SELECT f()")
        killer.join()
        outcomes.add((code, int(rows(c, "SELECT SUM(b) FROM k")[0][0] - before)))
    expect("neither killed nor whole", outcomes - {(0, 200), (1317, 0)}, set())
    rows(c, "DROP TABLE k")


def test_many_locks(where):
    """Row locks are limited, and so is what is shown of them."""
    c = database(where)
    rows(c, "SET GLOBAL myriad_row_locks_size = 1400000")
    rows(c, "CREATE TABLE few (a INT PRIMARY KEY)")
    rows(c, "CREATE TABLE many (a INT PRIMARY KEY)")
    rows(c, "INSERT INTO many SELECT seq * 16 FROM seq_1_to_160000")
    rows(c, "BEGIN")
    rows(c, "INSERT INTO few VALUES (1)")
    rows(c, "SELECT COUNT(*) FROM many WHERE a <= 110000 * 16 FOR UPDATE")
    other = where.connect(database="d")
    shown = "SELECT COUNT(*) FROM information_schema.MYRIAD_"
    expect("locks shown", rows(other, shown + "LOCKS"), ((100000,),))
    expect("a warning", rows(other, "SHOW WARNINGS")[0][:2], ("Warning", 1105))
    expect("waits shown", rows(other, shown + "LOCK_WAITS"), ((0,),))
    expect("memory shown", 1_000_000 < status(c, "row_locks_bytes") <= status(c, "row_locks_bytes_max") == 1_400_000, True)
    expect("too many", code_of(c, "SELECT COUNT(*) FROM many FOR UPDATE"), 1206)
    expect("the limit is named", rows(c, "SHOW WARNINGS")[0],
           ("Warning", 1105, "MYRIAD: row locks are limited to 1400000 bytes (myriad_row_locks_size)"))
    expect("rolled back whole", (rows(c, "SELECT * FROM few"), rows(other, shown + "TRX WHERE TRX_LOCKS_HELD > 0")), ((), ((0,),)))
    for sql in ("UPDATE many SET a = a + 1 WHERE a < 1600", "DELETE FROM many WHERE a < 1600"):
        expect(sql, code_of(c, sql), 0)
    rows(c, "DROP TABLE many")
    rows(c, "SET GLOBAL myriad_row_locks_size = DEFAULT")


def test_waits_in_the_status(where):
    """SHOW ENGINE MYRIAD STATUS tells who waits for whose row lock, the longest first, and how many more do."""
    c = database(where)
    rows(c, "CREATE TABLE w (a INT PRIMARY KEY, b INT)")
    rows(c, "INSERT INTO w VALUES (1,1)")
    rows(c, "BEGIN")
    rows(c, "UPDATE w SET b=2 WHERE a=1")
    waiting = [where.connect(database="d") for _ in range(12)]
    threads = []
    for number, waiter in enumerate(waiting):
        threads.append(begin(waiter, "UPDATE w SET b=b+1 WHERE a=1"))
        first_answer(lambda n=number: status(c, "lock_waits_now") > n)
    text = rows(c, "SHOW ENGINE MYRIAD STATUS")[0][2]
    rows(c, "COMMIT")
    for thread in threads:
        thread.join()
    waits = re.findall(r"^Transaction \d+, thread (\d+), waits \d+\.\d s for transaction \d+, thread (\d+): "
                       r"X,REC_NOT_GAP on table d/w index PRIMARY key 80000001$", text, re.M)
    expect("waits", [(int(who), int(whom)) for who, whom in waits][0], (waiting[0].thread_id(), c.thread_id()))
    expect("first ones", (len(waits), "\n2 more wait\n" in text), (10, True))


def test_who_holds_purge_back(where):
    """MYRIAD_TRX and the status tell whose snapshot is old, and what its connection runs."""
    c, other, third = database(where), where.connect(database="d"), where.connect(database="d")
    mine = rows(other, "SELECT CONNECTION_ID()")[0][0]
    rows(c, "CREATE TABLE t (a INT PRIMARY KEY, b INT)")
    rows(c, "INSERT INTO t VALUES (1, 0)")
    rows(other, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    rows(third, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    rows(third, "BEGIN")
    rows(third, "SELECT * FROM t")
    for number in range(1, 21):
        rows(c, f"UPDATE t SET b = {number}")
    asked = ("SELECT TRX_SNAPSHOT_AGE, TRX_QUERY FROM information_schema.MYRIAD_TRX WHERE TRX_MYSQL_THREAD_ID = %d" % mine)
    expect("idle", rows(c, asked), ((20, None),))
    expect("closed snapshots", rows(c, "SELECT COUNT(*) FROM information_schema.MYRIAD_TRX WHERE TRX_SNAPSHOT_AGE IS NULL"), ((1,),))
    status = rows(c, "SHOW ENGINE MYRIAD STATUS")[0][2]
    line = [line for line in status.splitlines() if line.startswith("Held back")]
    expect(f"{line}", len(line) == 1 and f"thread {mine}, ACTIVE" in line[0] and "20 transactions have ended since" in line[0], True)
    with gate(where) as waits:
        query = f"SELECT {waits}, 'gr\u00fc\u00dfe' FROM t"
        sleeper = start(other, query)
        found = rows(c, asked)
    sleeper.join()
    expect("query", found, ((20, query),))
    rows(other, "COMMIT")
    expect("none", "Held back by no snapshot" in rows(c, "SHOW ENGINE MYRIAD STATUS")[0][2], True)


def test_kill_check(where):
    """CHECK TABLE ends when it is killed, or has no more time, and says that it has not been done."""
    c, other = database(where), where.connect(database="d")
    rows(c, "CREATE TABLE g (id INT PRIMARY KEY, a INT, b INT, KEY (a), KEY (b))")
    rows(c, "INSERT INTO g SELECT seq, seq, -seq FROM seq_1_to_1000000")
    begin = time.monotonic()
    expect("sound", rows(c, "CHECK TABLE g"), (("d.g", "check", "status", "OK"),))
    whole = time.monotonic() - begin
    failed = ("d.g", "check", "status", "Operation failed")
    for part in (0.1, 0.6):        # in the structure, in the counts
        outcome = []
        for _ in range(10):        # one may be over sooner than the first
            check = threading.Thread(target=lambda: outcome.append(rows(c, "CHECK TABLE g")[0]))
            check.start()
            time.sleep(whole * part)
            rows(other, f"KILL QUERY {c.thread_id()}")
            check.join()
            if failed in outcome:
                break
        expect(f"killed at {part}", failed in outcome, True)
    # The first may have been slow because others were at work.
    expect("out of time", any(rows(c, f"SET STATEMENT max_statement_time = {whole / part} FOR CHECK TABLE g") == (failed,)
                              for part in (10, 100, 1000)), True)
    expect("once more", rows(c, "CHECK TABLE g"), (("d.g", "check", "status", "OK"),))


def test_names_of_locked_indexes(where):
    """MYRIAD_LOCKS and MYRIAD_LOCK_WAITS call an index as SHOW CREATE TABLE does, also after its name or number has changed."""
    c = database(where)
    waiter = where.connect(database="d")
    columns = "DISTINCT LOCK_TABLE, LOCK_INDEX, LOCK_INDEX_NAME"
    granted = f"SELECT {columns} FROM information_schema.MYRIAD_LOCKS WHERE LOCK_GRANTED='YES' ORDER BY 1, 2"

    def expect_locked(select, locks, wait):
        """The indexes that a statement locks, and the one that another connection's waits at."""
        rows(c, "BEGIN")
        rows(c, f"SELECT * FROM {select} FOR UPDATE")
        found = rows(c, granted)
        thread = begin(waiter, f"SELECT * FROM {select} FOR UPDATE")
        waits = first_answer(lambda: rows(c, f"SELECT {columns} FROM information_schema.MYRIAD_LOCK_WAITS"))
        rows(c, "COMMIT")
        thread.join(HUNG_SECONDS)
        expect(f"locks of {select}", found, locks)
        expect(f"wait of {select}", waits, (wait,))

    rows(c, "CREATE TABLE t (a INT PRIMARY KEY, b INT, c INT, KEY by_b (b), UNIQUE KEY `Schlüssel c` (c))")
    rows(c, "INSERT INTO t VALUES (1,1,1),(2,2,2)")
    primary = ("d/t", 0, "PRIMARY")
    expect_locked("t WHERE a=1", (primary,), primary)
    expect_locked("t FORCE INDEX (by_b) WHERE b=1", (primary, ("d/t", 2, "by_b")), ("d/t", 2, "by_b"))
    expect_locked("t WHERE c=1", (primary, ("d/t", 1, "Schlüssel c")), ("d/t", 1, "Schlüssel c"))
    rows(c, "ALTER TABLE t RENAME INDEX by_b TO of_b, ALGORITHM=INSTANT")
    expect_locked("t FORCE INDEX (of_b) WHERE b=1", (primary, ("d/t", 2, "of_b")), ("d/t", 2, "of_b"))
    rows(c, "ALTER TABLE t ADD KEY of_bc (b, c), DROP KEY `Schlüssel c`, ALGORITHM=INPLACE")
    expect_locked("t FORCE INDEX (of_b) WHERE b=1", (primary, ("d/t", 1, "of_b")), ("d/t", 1, "of_b"))
    expect_locked("t FORCE INDEX (of_bc) WHERE b=1", (primary, ("d/t", 2, "of_bc")), ("d/t", 2, "of_bc"))
    rows(c, "ALTER TABLE t DROP KEY of_b, RENAME KEY of_bc TO of_b, ALGORITHM=COPY")
    expect_locked("t FORCE INDEX (of_b) WHERE b=1", (primary, ("d/t", 1, "of_b")), ("d/t", 1, "of_b"))
    rows(c, "TRUNCATE TABLE t")
    rows(c, "INSERT INTO t VALUES (1,1,1)")
    expect_locked("t FORCE INDEX (of_b) WHERE b=1", (primary, ("d/t", 1, "of_b")), ("d/t", 1, "of_b"))

    rows(c, "CREATE TABLE h (a INT, KEY a (a))")
    rows(c, "INSERT INTO h VALUES (1)")
    hidden = ("d/h", 0, "GEN_CLUST_INDEX")
    expect_locked("h IGNORE INDEX (a)", (hidden,), hidden)
    expect_locked("h FORCE INDEX (a) WHERE a=1", (hidden, ("d/h", 1, "a")), ("d/h", 1, "a"))
    rows(c, "CREATE TABLE u (a INT NOT NULL, UNIQUE KEY first_one (a))")
    rows(c, "INSERT INTO u VALUES (1)")
    expect_locked("u WHERE a=1", (("d/u", 0, "first_one"),), ("d/u", 0, "first_one"))

    rows(c, "CREATE TABLE p (a INT PRIMARY KEY, b INT, KEY k (b)) PARTITION BY HASH(a) PARTITIONS 2")
    rows(c, "INSERT INTO p VALUES (1,1),(2,2)")
    partition = ("d/p#P#p1", 0, "PRIMARY")
    expect_locked("p WHERE a=1", (partition,), partition)
    for name, change in ("k", "DO 1"), ("l", "ALTER TABLE p RENAME INDEX k TO l, ALGORITHM=INSTANT"):
        rows(c, change)
        expect_locked(f"p PARTITION (p1) FORCE INDEX ({name}) WHERE b=1", (partition, ("d/p#P#p1", 1, name)),
                      ("d/p#P#p1", 1, name))

    # The transaction holds on to its locks when the server closes the table.
    rows(c, "BEGIN")
    rows(c, "SELECT * FROM t WHERE a=1 FOR UPDATE")
    rows(waiter, "FLUSH TABLES")
    expect("of a closed table", rows(c, granted), (primary,))
    rows(c, "COMMIT")
    rows(c, "FLUSH TABLES")
    rows(c, "ALTER TABLE t RENAME INDEX of_b TO by_b, ALGORITHM=INSTANT")
    expect_locked("t FORCE INDEX (by_b) WHERE b=1", (primary, ("d/t", 1, "by_b")), ("d/t", 1, "by_b"))


def test_commits_and_rollbacks_are_counted_apart(where):
    """Myriad_commits has the transactions whose changes stay, Myriad_rollbacks those whose changes were undone."""
    c = database(where)
    rows(c, "CREATE TABLE t (a INT PRIMARY KEY)")
    rows(c, "INSERT INTO t VALUES (1)")

    def counted(name, *statements):
        before = status(c, "commits"), status(c, "rollbacks")
        for statement in statements:
            try:
                rows(c, statement)
            except pymysql.err.IntegrityError:
                pass
        return name, status(c, "commits") - before[0], status(c, "rollbacks") - before[1]

    expect("a commit", counted("commit", "INSERT INTO t VALUES (2)"), ("commit", 1, 0))
    expect("a rollback", counted("rollback", "BEGIN", "DELETE FROM t", "ROLLBACK"), ("rollback", 0, 1))
    expect("a statement that fails", counted("fails", "INSERT INTO t VALUES (3),(1)"), ("fails", 0, 1))
    expect("with nothing left", counted("empty", "BEGIN", "INSERT INTO t VALUES (3),(1)", "COMMIT"), ("empty", 0, 0))
    expect("XA", counted("XA", "XA START 'x'", "INSERT INTO t VALUES (4)", "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'"),
           ("XA", 0, 1))


def test_deadlock(where):
    c = database(where)
    rows(c, "SET GLOBAL myriad_print_all_deadlocks=ON")
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
    first_answer(lambda: wait_pairs(c))
    begin = time.monotonic()
    try:
        rows(two, "UPDATE k SET b=b+10 WHERE a=1")
        second = 0
    except pymysql.err.Error as problem:
        second = problem.args[0]
    thread.join(HUNG_SECONDS)
    expect("one victim", sorted(outcome + [second]), [0, 1213])
    expect("found before a wait's end", time.monotonic() - begin < HUNG_SECONDS, True)
    rows(one, "COMMIT")
    rows(two, "COMMIT")
    expect("the other one's changes", sorted(rows(c, "SELECT b FROM k")), [(11,), (12,)])
    text = rows(c, "SHOW ENGINE MYRIAD STATUS")[0][2]
    expect("waits told with the index's name", text.count("X,REC_NOT_GAP on table d/k index PRIMARY key "), 2)
    expect("threads", set(map(int, re.findall(r"  transaction \d+, thread (\d+), waits", text))), {one.thread_id(), two.thread_id()})
    with open(where.log) as log:
        text = log.read().split("[Note] MYRIAD: a deadlock:", 1)[1]
    expect("in the error log", text.count("X,REC_NOT_GAP on table d/k index PRIMARY key "), 2)
    expect("victim", text.count(" was rolled back"), 1)
    rows(c, "SET GLOBAL myriad_print_all_deadlocks=OFF")


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
