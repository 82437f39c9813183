#!/usr/bin/python3
"""Replicates from one server to another, both with Myriad tables, and compares CHECKSUM TABLE of all of them at the end.

The replica works in parallel (optimistic) and keeps its place in a Myriad table, so that SIGKILL under load loses and
repeats nothing. Each binary log format runs with a replica of its own; replica_from_dump makes one from a dump.
"""
import contextlib
import os
import random
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts"))
import pymysql  # noqa: E402
import server  # noqa: E402

SOURCE = ["--log-bin=binlog", "--sync-binlog=1", "--server-id=1", "--gtid-strict-mode=1"]
REPLICA = ["--server-id=2", "--log-bin=binlog", "--log-slave-updates=1", "--gtid-strict-mode=1", "--relay-log=relay",
           "--slave-parallel-threads=4", "--slave-parallel-mode=optimistic", "--gtid-pos-auto-engines=myriad",
           "--skip-slave-start", "--slave-transaction-retries=100"]
TABLES = {
    "accounts": "id INT PRIMARY KEY, balance INT NOT NULL, KEY (balance)",
    "auto": "id INT AUTO_INCREMENT PRIMARY KEY, u VARCHAR(40) UNIQUE, v TEXT",
    "nokey": "a INT, b VARCHAR(100)",
    "wide": "a INT, b INT, c DECIMAL(10,2), d DATETIME, e BLOB, f INT AS (b * 2) STORED, PRIMARY KEY (a, b), KEY (f)",
}


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def start_source(binlog_format):
    source = server.Server(options=SOURCE + [f"--binlog-format={binlog_format}"], tcp=True, pool_mib=32)
    source.start()
    source.query("CREATE USER r@'127.0.0.1' IDENTIFIED BY 'r'")
    source.query("GRANT REPLICATION SLAVE ON *.* TO r@'127.0.0.1'")
    source.query("CREATE DATABASE rep")
    for name, columns in TABLES.items():
        source.query(f"CREATE TABLE {name} ({columns}) ENGINE=MYRIAD", "rep")
    source.query("INSERT INTO accounts SELECT seq, 1000 FROM seq_1_to_100", "rep")
    return source


@contextlib.contextmanager
def source_alone(binlog_format):
    """A source without a replica, and a cursor of its."""
    source = start_source(binlog_format)
    try:
        with source.connect(database="rep") as connection, connection.cursor() as cursor:
            yield source, cursor
    finally:
        source.close()


def start_replica(source, position=None):
    replica = server.Server(options=REPLICA, pool_mib=32)
    replica.start()
    if position is not None:
        return replica
    follow(source, replica)
    return replica


def follow(source, replica):
    replica.query(f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={source.port}, MASTER_USER='r', "
                  "MASTER_PASSWORD='r', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1")
    replica.query("START SLAVE")


def status(replica):
    connection = replica.connect(cursorclass=pymysql.cursors.DictCursor)
    with connection, connection.cursor() as cursor:
        cursor.execute("SHOW SLAVE STATUS")
        return cursor.fetchone()


class Load:
    """Clients that change the source until stopped; their errors, but for lock waits and deadlocks, count."""

    def __init__(self, source, clients=4, create=True):
        self.source, self.create, self.stopping, self.commits, self.trouble = source, create, False, 0, []
        self.threads = [threading.Thread(target=self.work, args=(i,), daemon=True) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def work(self, number):
        chance = random.Random(number)
        connection = self.source.connect(database="rep", autocommit=False)
        with connection, connection.cursor() as cursor:
            while not self.stopping:
                try:
                    a, b, n = chance.randrange(1, 101), chance.randrange(1, 101), chance.randrange(10**9)
                    cursor.execute("UPDATE accounts SET balance=balance-7 WHERE id=%s", (a,))
                    cursor.execute("UPDATE accounts SET balance=balance+7 WHERE id=%s", (b,))
                    cursor.execute("INSERT INTO auto (u, v) VALUES (%s, REPEAT('x', %s))", (f"{number}-{n}", n % 3000))
                    if n % 4 == 0:
                        cursor.execute("INSERT INTO auto (u, v) VALUES (%s, 'a'), (%s, 'b'), (%s, 'c')",
                                       [f"{number}-{n}-{i}" for i in "abc"])
                    if n % 3 == 0:
                        cursor.execute("INSERT INTO nokey VALUES (%s, %s)", (n % 50, f"b{n}"))
                    if n % 5 == 0:
                        cursor.execute("INSERT INTO wide (a, b, c, d, e) VALUES (%s, %s, 1.5, '2020-01-01', 'e') "
                                       "ON DUPLICATE KEY UPDATE c = c + 1", (n % 20, n % 7))
                    if n % 11 == 0:
                        cursor.execute("DELETE FROM nokey WHERE a = %s", (n % 50,))
                    if n % 17 == 0:
                        cursor.execute("DELETE FROM auto WHERE u < %s AND u LIKE %s", (f"{number}-3", f"{number}-%"))
                    if n % 13 == 0:
                        connection.rollback()
                    connection.commit()
                    self.commits += 1
                    if n % 97 == 0 and self.create:
                        cursor.execute(f"CREATE TABLE made{number}_{n} (id INT PRIMARY KEY) ENGINE=MYRIAD "
                                       "SELECT id FROM accounts WHERE id < 10")
                except pymysql.err.MySQLError as problem:
                    if problem.args[0] not in (1205, 1213):
                        self.trouble.append(problem)
                        return
                    connection.rollback()

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(60)
        expect(not self.trouble, f"a client of the source failed: {self.trouble}")

    def go_on(self, seconds):
        """Waits so long, and on a busy machine until there are some commits more."""
        wanted, begin = self.commits + 20, time.monotonic()
        while (now := time.monotonic() - begin) < seconds or self.commits < wanted:
            expect(not self.trouble and now < 60, f"{self.commits} commits, not {wanted}; {self.trouble}")
            time.sleep(0.1)


def arrive(source, replica):
    """Waits until the replica has what the source has."""
    position = source.query("SELECT @@gtid_binlog_pos")[0][0]
    done = replica.query(f"SELECT MASTER_GTID_WAIT('{position}', 120)")[0][0]
    s = status(replica)
    waits = "" if done == 0 else [replica.query(f"SELECT * FROM information_schema.{t}") for t in
                                  ("processlist WHERE user = 'system user'", "myriad_trx", "myriad_lock_waits")]
    expect(done == 0, f"the replica does not come to {position}: IO {s['Last_IO_Error']!r}, SQL {s['Last_SQL_Error']!r}, "
                      f"done {done}, at {replica.query('SELECT @@gtid_slave_pos')[0][0]}, {waits}")


def compare(source, replica):
    """Waits until the replica is there, then compares all tables."""
    arrive(source, replica)
    names = [[row[0] for row in x.query("SHOW TABLES", "rep")] for x in (source, replica)]
    expect(names[0] == names[1], f"tables differ: {set(names[0]) ^ set(names[1])}")
    every = ", ".join(names[0])
    sums = [x.query(f"CHECKSUM TABLE {every}", "rep") for x in (source, replica)]
    expect(sums[0] == sums[1] and all(row[1] is not None for row in sums[0]),
           f"checksums differ: {[(a, b) for a, b in zip(*sums) if a != b]}")
    bad = [row for row in replica.query(f"CHECK TABLE {every} EXTENDED", "rep") if row[3] != "OK"]
    expect(not bad, f"CHECK TABLE on the replica: {bad}")
    total = replica.query("SELECT SUM(balance) FROM accounts", "rep")[0][0]
    expect(total == 100000, f"the sum of the balances is {total}")
    engines = {row[0] for row in replica.query("SELECT engine FROM information_schema.tables WHERE table_schema='rep'")}
    expect(engines == {"MYRIAD"}, f"engines on the replica: {engines}")


def replicate(binlog_format, kills):
    source = start_source(binlog_format)
    replica = None
    try:
        replica = start_replica(source)
        # A replica that is killed within a CREATE TABLE that is a statement of the binary log may stop for good: the
        # server's doing, see killed_create and killed_create_select. In row format it is part of a transaction.
        load = Load(source, create=not kills or binlog_format == "ROW")
        load.go_on(1.5)
        for _ in range(kills):
            steps = [("kill", replica.kill), ("start", replica.start), ("START SLAVE", lambda: replica.query("START SLAVE"))]
            for name, step in steps:
                begin = time.monotonic()
                step()
                took = time.monotonic() - begin
                if took > 5:
                    print(f"    {name} of the replica took {took:.1f} s", flush=True)
                if name == "kill":
                    time.sleep(0.3)
            load.go_on(1)
        load.stop()
        compare(source, replica)
        where = replica.query("SELECT table_name FROM information_schema.tables WHERE table_schema='mysql' "
                              "AND table_name LIKE 'gtid_slave_pos%' AND engine='MYRIAD'")
        expect(where, "the replica's place is in no Myriad table")
        print(f"    {binlog_format}: {load.commits} commits", flush=True)
    finally:
        for one in (replica, source):
            if one:
                one.close()


def row():
    replicate("ROW", 0)


def statement():
    replicate("STATEMENT", 0)


def mixed():
    replicate("MIXED", 0)


def foreign_keys(binlog_format):
    """The replica cascades by itself: the binary log has the statement's own rows alone."""
    source = start_source(binlog_format)
    replica = None
    try:
        replica = start_replica(source)
        connection = source.connect(database="rep")
        with connection, connection.cursor() as cursor:
            for text in ("CREATE TABLE top (id INT PRIMARY KEY, k INT UNIQUE) ENGINE=MYRIAD",
                         "CREATE TABLE branch (id INT PRIMARY KEY, t INT, k INT, FOREIGN KEY (t) REFERENCES top(id) "
                         "ON DELETE CASCADE ON UPDATE CASCADE, FOREIGN KEY (k) REFERENCES top(k) ON DELETE SET NULL "
                         "ON UPDATE SET NULL, UNIQUE (t, id)) ENGINE=MYRIAD",
                         "CREATE TABLE low (id INT PRIMARY KEY, m INT, FOREIGN KEY (m) REFERENCES branch(id) ON DELETE CASCADE) "
                         "ENGINE=MYRIAD",
                         "INSERT INTO top SELECT seq, seq * 10 FROM seq_1_to_50",
                         "INSERT INTO branch SELECT seq, 1 + seq MOD 50, 10 * (1 + seq MOD 49) FROM seq_1_to_500",
                         "INSERT INTO low SELECT seq, 1 + seq MOD 500 FROM seq_1_to_1000",
                         "DELETE FROM top WHERE id < 5", "UPDATE top SET id = id + 1000 WHERE id < 20",
                         "UPDATE top SET k = k + 5 WHERE id > 1010", "REPLACE INTO top VALUES (30, 1), (31, 2)",
                         "INSERT INTO top VALUES (32, 3) ON DUPLICATE KEY UPDATE id = 2000",
                         "DELETE top, low FROM top JOIN branch ON branch.t = top.id JOIN low ON low.m = branch.id WHERE top.id = 33",
                         "RENAME TABLE branch TO twig", "ALTER TABLE twig DROP FOREIGN KEY twig_ibfk_2",
                         "DELETE FROM top WHERE id = 40", "SET foreign_key_checks = 0", "DELETE FROM top WHERE id = 41",
                         "SET foreign_key_checks = 1", "DELETE FROM top WHERE id = 42"):
                cursor.execute(text)
            # What drops nothing must not stop the replica.
            for text in ("DROP TABLE top", "DROP TABLE IF EXISTS top", "DROP TABLE top, low", "DROP TABLE IF EXISTS low, top"):
                try:
                    cursor.execute(text)
                    raise AssertionError(f"{text} is not refused")
                except pymysql.err.IntegrityError as problem:
                    expect(problem.args[0] == 1451, f"{text}: {problem}")
            cursor.execute("SELECT COUNT(*) FROM low")
            left = cursor.fetchone()[0]
        expect(0 < left < 900, f"{left} rows are left")
        compare(source, replica)
    finally:
        for one in (replica, source):
            if one:
                one.close()


def foreign_keys_row():
    foreign_keys("ROW")


def foreign_keys_statement():
    foreign_keys("STATEMENT")


def rows_after_covering_scans():
    """A replica that finds the row of an event by its primary key is not led astray by what its clients read before."""
    source = start_source("ROW")
    replica = None
    try:
        connection = source.connect(database="rep")
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE whole (a INT PRIMARY KEY, b INT, UNIQUE (b)) ENGINE=MYRIAD")
        cursor.execute("CREATE TABLE parts (a INT PRIMARY KEY, b INT, KEY (b)) ENGINE=MYRIAD PARTITION BY HASH(a) PARTITIONS 2")
        for table in ("whole", "parts"):
            cursor.execute(f"INSERT INTO {table} SELECT seq, seq * 10 FROM seq_1_to_20")
        replica = start_replica(source)
        for text in ("UPDATE {} SET b = 31 WHERE a = 3", "DELETE FROM {} WHERE a = 4", "UPDATE {} SET a = 40 WHERE a = 5",
                     "REPLACE INTO {} VALUES (6, 70)"):
            for table in ("whole", "parts"):
                compare(source, replica)
                replica.query(f"SELECT a, b FROM {table} FORCE INDEX (b) WHERE b > 0", "rep")
                cursor.execute(text.format(table))
        compare(source, replica)
    finally:
        for one in (replica, source):
            if one:
                one.close()


def virtual_columns(row_image):
    """Entries of virtual columns are found where the binary log has not the columns that they are computed from."""
    source = start_source("ROW")
    replica = None
    try:
        replica = start_replica(source)
        # The replica's own binary log would ask for the whole row else.
        for text in ("STOP SLAVE", f"SET GLOBAL binlog_row_image = {row_image}", "START SLAVE"):
            replica.query(text)
        connection = source.connect(database="rep")
        with connection, connection.cursor() as cursor:
            cursor.execute(f"SET binlog_row_image = {row_image}")
            columns = ("id INT {}, a INT, t TEXT, v INT AS (a + 1) VIRTUAL, w INT AS (v * 2) VIRTUAL, "
                       "x TEXT AS (CONCAT(t, a)) VIRTUAL, o INT, KEY (v), KEY (w), KEY (x(10))")
            for table, key, partitions in (("whole", "PRIMARY KEY", ""), ("nopk", "NOT NULL UNIQUE", ""), ("none", "", ""),
                                           ("parts", "PRIMARY KEY", "PARTITION BY HASH (id) PARTITIONS 3")):
                for text in ("CREATE TABLE {} (" + columns.format(key) + ") ENGINE=MYRIAD " + partitions,
                             "INSERT INTO {} (id, a, t, o) SELECT seq, seq * 5, CONCAT('t', seq), 0 FROM seq_1_to_200",
                             "DELETE FROM {} WHERE id = 1", "DELETE FROM {} WHERE id BETWEEN 20 AND 40",
                             "UPDATE {} SET a = 7 WHERE id = 2", "UPDATE {} SET a = a + 1, t = 'new' WHERE id BETWEEN 50 AND 70",
                             "UPDATE {} SET t = 'other' WHERE id = 3", "UPDATE {} SET o = 1 WHERE id BETWEEN 60 AND 90",
                             "UPDATE {} SET id = id + 1000 WHERE id BETWEEN 100 AND 110",
                             "UPDATE {} SET a = NULL WHERE id = 130", "DELETE FROM {} WHERE id = 130",
                             "DELETE FROM {} WHERE id = 2"):
                    cursor.execute(text.format(table))
        compare(source, replica)
        for table in ("whole", "nopk", "none", "parts"):
            for key in "vwx":
                what = f"SELECT id, a, v, w, x FROM {table} FORCE INDEX ({key}) WHERE {key} > '' ORDER BY id, a, x"
                expect(source.query(what, "rep") == replica.query(what, "rep"), f"{table} by {key} differs")
            found = replica.query(f"CHECK TABLE {table} EXTENDED", "rep")
            expect(found[-1][3] == "OK", f"{table} on the replica: {found}")
    finally:
        for one in (replica, source):
            if one:
                one.close()


def virtual_columns_minimal():
    virtual_columns("MINIMAL")


def virtual_columns_noblob():
    virtual_columns("NOBLOB")


def virtual_columns_of_its_own():
    """Indexes of virtual columns that the source has not, or has as others, get the entries that the replica computes."""
    source = start_source("ROW")
    replica = None
    try:
        replica = start_replica(source)
        arrive(source, replica)
        connection = source.connect(database="rep")
        with connection, connection.cursor() as cursor:
            computed = "v INT AS (a * 2) VIRTUAL, x TEXT AS (CONCAT(t, a)) VIRTUAL, KEY (v), KEY (x(10))"
            tables = {"added": ("", computed, ""),
                      "parts": ("", computed, "PARTITION BY HASH (id) PARTITIONS 2"),
                      "others": (", v INT AS (a * 3) VIRTUAL, x TEXT", computed, "")}
            for table, (there, here, options) in tables.items():
                for one, own, more in ((source, there, ""), (replica, ", " + here, options)):
                    one.query(f"SET STATEMENT sql_log_bin=0 FOR CREATE TABLE {table} (id INT PRIMARY KEY, a INT, t TEXT{own}) "
                              f"ENGINE=MYRIAD {more}", "rep")
            for image in ("FULL", "NOBLOB", "MINIMAL"):
                cursor.execute(f"SET binlog_row_image = {image}")
                for text in ("REPLACE INTO {} (id, a, t) SELECT seq, seq, CONCAT('t', seq) FROM seq_1_to_50",
                             "UPDATE {} SET a = a + 100 WHERE id < 10", "UPDATE {} SET t = 'other' WHERE id = 20",
                             "DELETE FROM {} WHERE id IN (5, 20)",
                             "UPDATE {} SET id = id + 1000, a = NULL WHERE id BETWEEN 30 AND 40", "DELETE FROM {} WHERE id > 1000",
                             "INSERT INTO {} (id, a) VALUES (50, 7) ON DUPLICATE KEY UPDATE a = 9"):
                    for table in tables:
                        cursor.execute(text.format(table))
        arrive(source, replica)
        for table in tables:
            found = replica.query(f"CHECK TABLE {table} EXTENDED", "rep")
            expect(found[-1][3] == "OK", f"{table}: {found}")
            rows = replica.query(f"SELECT id, a, t, v, x FROM {table} ORDER BY id", "rep")
            expect([row[:3] for row in rows] == list(source.query(f"SELECT id, a, t FROM {table} ORDER BY id", "rep")), f"{table} differs")
            for key in "vx":
                found = replica.query(f"SELECT id, a, t, v, x FROM {table} FORCE INDEX ({key}) WHERE {key} > '' ORDER BY id", "rep")
                at = 3 + "vx".index(key)
                expect(found == tuple(row for row in rows if row[at] is not None), f"{table} by {key}: {found}")
    finally:
        for one in (replica, source):
            if one:
                one.close()


def unsafe_statements():
    """Only statements whose AUTO_INCREMENT values a replica cannot know beforehand are called unsafe."""
    with source_alone("STATEMENT") as (source, cursor):
        cursor.execute("CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, a INT) ENGINE=MYRIAD")
        cursor.execute("CREATE TABLE told (a INT) ENGINE=MYRIAD")
        cursor.execute("CREATE TABLE parts (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=MYRIAD PARTITION BY KEY (id) PARTITIONS 2")
        cursor.execute("CREATE TRIGGER tells AFTER INSERT ON told FOR EACH ROW INSERT INTO other (a) VALUES (NEW.a)")
        cursor.execute("CREATE TABLE parent (id INT AUTO_INCREMENT PRIMARY KEY, a INT) ENGINE=MYRIAD")
        cursor.execute("CREATE TABLE child (id INT AUTO_INCREMENT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) "
                       "ON DELETE CASCADE ON UPDATE SET NULL) ENGINE=MYRIAD")
        cursor.execute("CREATE TABLE stamped (id INT AUTO_INCREMENT PRIMARY KEY, a INT) ENGINE=MYRIAD")
        cursor.execute("CREATE TRIGGER stamps BEFORE INSERT ON stamped FOR EACH ROW SET NEW.a = 1")
        for text, unsafe in [("INSERT INTO other (a) VALUES (1)", False),
                             ("INSERT INTO other (a) VALUES (1), (2), (3)", False),
                             ("REPLACE INTO other VALUES (1, 5), (NULL, 6)", False),
                             ("UPDATE other SET a = a + 1", False),
                             ("DELETE FROM other WHERE a = 3", False),
                             ("OPTIMIZE TABLE other", False),
                             ("REPAIR TABLE other", False),
                             ("ALTER TABLE parts REPAIR PARTITION ALL", False),
                             ("ALTER TABLE parts TRUNCATE PARTITION p0", False),
                             ("ALTER TABLE other FORCE", False),
                             ("ALTER TABLE other MODIFY a BIGINT", False),
                             ("INSERT INTO other (a) SELECT a FROM told", True),
                             ("INSERT INTO other (id, a) VALUES (1, 1), (NULL, 2) ON DUPLICATE KEY UPDATE a = 9", False),
                             ("INSERT INTO told VALUES (1)", True),
                             ("INSERT INTO parent (a) VALUES (1)", False),
                             ("INSERT INTO parent (a) VALUES (1), (2)", False),
                             ("INSERT INTO child (p) VALUES (1), (2)", False),
                             ("UPDATE parent SET id = 9 WHERE id = 1", False),
                             ("DELETE FROM parent", False),
                             ("INSERT INTO stamped (a) VALUES (1)", False),
                             ("INSERT INTO stamped (a) VALUES (1), (2)", False),
                             ("TRUNCATE TABLE other", False)]:
            cursor.execute(text)
            cursor.execute("SHOW WARNINGS")
            codes = [row[1] for row in cursor.fetchall()]
            expect((1592 in codes) == unsafe, f"{text}: {codes}")
        # The values of a statement of several rows are reserved at once, also where a trigger opens tables.
        cursor.execute("CREATE TABLE slow (id INT AUTO_INCREMENT PRIMARY KEY, a INT) ENGINE=MYRIAD")
        cursor.execute("CREATE TRIGGER slows AFTER INSERT ON slow FOR EACH ROW SET @a = IF(NEW.a = 1, GET_LOCK('gate', 60), 0)")
        cursor.execute("SELECT GET_LOCK('gate', 0)")
        inserting = threading.Thread(target=source.query, args=("INSERT INTO slow (a) VALUES (1), (2), (3)", "rep"))
        inserting.start()
        while not source.query("SELECT 1 FROM information_schema.processlist WHERE state = 'User lock'"):
            expect(inserting.is_alive(), "the trigger does not wait")
            time.sleep(0.02)
        cursor.execute("INSERT INTO slow (a) VALUES (4)")
        cursor.execute("SELECT RELEASE_LOCK('gate')")
        inserting.join()
        cursor.execute("SELECT a, id FROM slow ORDER BY a")
        expect(cursor.fetchall() == ((1, 1), (2, 2), (3, 3), (4, 4)), "the values of one statement have gaps")


def statements_below_repeatable_read():
    """What the statement format cannot log below REPEATABLE READ is refused, and the error says why."""
    with source_alone("STATEMENT") as (_, cursor):
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute("CREATE TABLE empty (id INT PRIMARY KEY)")
        for text in ("INSERT INTO empty VALUES (1)", "UPDATE accounts SET balance = 0", "SELECT * FROM accounts FOR UPDATE",
                     "DELETE FROM accounts"):
            try:
                cursor.execute(text)
                raise AssertionError(f"{text} is not refused")
            except pymysql.err.MySQLError as problem:
                expect(problem.args[0] == 1665 and "MYRIAD is limited to row-logging when transaction isolation level is"
                       in problem.args[1], f"{text}: {problem}")
        for text in ("SELECT * FROM accounts", "TRUNCATE TABLE empty", "ALTER TABLE empty ADD a INT", "OPTIMIZE TABLE empty",
                     "SET sql_log_bin = 0", "INSERT INTO empty VALUES (1, 1)", "SET sql_log_bin = 1",
                     "SET binlog_format = MIXED", "INSERT INTO empty VALUES (2, 2)", "SET binlog_format = STATEMENT",
                     "CREATE TEMPORARY TABLE passing (id INT)", "INSERT INTO passing VALUES (1)"):
            cursor.execute(text)


def killed_replica_row():
    replicate("ROW", 3)


def killed_replica_mixed():
    replicate("MIXED", 3)


def syncs_are_shared():
    """Workers of a replica without a binary log commit one after the other, but wait for the log together."""
    source = start_source("ROW")
    options = [o for o in REPLICA if not o.startswith(("--log-", "--slave-parallel"))]
    replica = server.Server(options=options + ["--slave-parallel-threads=16", "--slave-parallel-mode=conservative"], pool_mib=32)
    try:
        replica.start()
        # Transactions that the source committed in one group run at the same time.
        source.query("SET GLOBAL binlog_commit_wait_count=16")
        source.query("SET GLOBAL binlog_commit_wait_usec=10000000")
        clients, commits = 16, 60

        def insert():
            connection = source.connect(database="rep")
            with connection, connection.cursor() as cursor:
                for _ in range(commits):
                    cursor.execute("INSERT INTO auto (v) VALUES ('a')")

        threads = [threading.Thread(target=insert) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        follow(source, replica)
        compare(source, replica)
        syncs = int(replica.query("SHOW GLOBAL STATUS LIKE 'Myriad_log_syncs'")[0][1])
        print(f"    {clients * commits} commits, {syncs} syncs of the log", flush=True)
        expect(syncs < clients * commits * 3 // 4, f"{clients * commits} commits needed {syncs} syncs of the log")
    finally:
        for one in (replica, source):
            one.close()


def order_of_two_engines():
    """Where the replica keeps its place in InnoDB's table, as a new one does, and logs nothing of what it does, its
    transactions are of two engines and no log orders them: an UPDATE must still find the rows of the INSERT before it."""
    source = start_source("STATEMENT")
    options = [o for o in REPLICA if not o.startswith(("--log-slave", "--gtid-pos"))]
    replica = server.Server(options=options + ["--log-slave-updates=0", "--gtid-pos-auto-engines="], pool_mib=32)
    try:
        replica.start()
        connection = source.connect(database="rep")
        with connection, connection.cursor() as cursor:
            for i in range(40):
                cursor.execute(f"CREATE TABLE filled{i} (id INT PRIMARY KEY, b INT) ENGINE=MYRIAD")
                cursor.execute(f"INSERT INTO filled{i} SELECT seq, 0 FROM seq_1_to_100")
                for j in range(6):
                    for text in ("BEGIN", f"UPDATE filled{i} SET b = b + 1 WHERE id = {1 + j * 19}",
                                 "INSERT INTO auto (v) VALUES ('a')", "COMMIT"):
                        cursor.execute(text)
        follow(source, replica)
        compare(source, replica)
    finally:
        for one in (replica, source):
            one.close()


def filtered_copies():
    """A copy of a database that the replica's filters leave out is not made there, as with CREATE DATABASE; where the template
    is left out, too, the replica would stop."""
    source = start_source("ROW")
    replica = server.Server(options=REPLICA + ["--replicate-wild-ignore-table=left%.%"], pool_mib=32)
    try:
        replica.start()
        follow(source, replica)
        for text in ("CREATE DATABASE left_template", "CREATE TABLE left_template.t (id INT PRIMARY KEY) ENGINE=MYRIAD",
                     "SELECT myriad_clone_database('left_template', 'left_copy')",
                     "SELECT myriad_clone_database('rep', 'left_too')", "SELECT myriad_clone_database('rep', 'copied')"):
            source.query(text)
        compare(source, replica)
        databases = {row[0] for row in replica.query("SHOW DATABASES")}
        expect("copied" in databases and not [d for d in databases if d.startswith("left")], f"on the replica: {databases}")
    finally:
        for one in (replica, source):
            one.close()


WAIT_AFTER_BINLOG = ["--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout=600000"]


def kill_after_binlog(one, work):
    """Kills the server when the statement that `work` runs is in the binary log and goes no further: it waits for a replica
    that will never acknowledge it. Then starts it again."""
    one.query("SET GLOBAL rpl_semi_sync_master_enabled=1")
    working = threading.Thread(target=work)
    working.start()
    deadline = time.monotonic() + 60
    while not one.query("SELECT 1 FROM information_schema.processlist WHERE state LIKE '%semi-sync ACK%'"):
        expect(time.monotonic() < deadline, f"{one.engine}: the statement does not come to its commit")
        time.sleep(0.05)
    one.kill()
    working.join()
    one.start()


def killed_create_select():
    """Killed between the binary log's write of a CREATE ... SELECT in statement format and the engine's commit, the server
    drops the table when it recovers, and logs that under a GTID of its own, whatever the engine. On a replica with
    gtid_strict_mode such a GTID is out of order."""
    outcomes = {}
    for engine in ("INNODB", "MYRIAD"):
        options = ["--log-bin=binlog", "--server-id=2", "--binlog-format=MIXED", "--sync-binlog=1"] + WAIT_AFTER_BINLOG
        with server.Server(engine, options, pool_mib=32) as one:
            one.query("CREATE DATABASE rep")
            one.query("CREATE TABLE accounts (id INT PRIMARY KEY)", "rep")
            one.query("INSERT INTO accounts VALUES (1), (2)", "rep")
            connection = one.connect(database="rep")
            kill_after_binlog(one, lambda: lose(connection, "CREATE TABLE made SELECT id FROM accounts"))
            events = []
            for log in one.query("SHOW BINARY LOGS"):
                events += [row[5] for row in one.query(f"SHOW BINLOG EVENTS IN '{log[0]}'") if row[2] in ("Gtid", "Query")]
            outcomes[engine] = (events[-4:], one.query("SHOW TABLES", "rep"), one.query("SELECT @@gtid_binlog_pos"))
    expect(outcomes["INNODB"] == outcomes["MYRIAD"], f"another outcome than InnoDB's: {outcomes}")
    expect(outcomes["MYRIAD"][0][-1] == "DROP TABLE IF EXISTS `rep`.`made` /* generated by ddl recovery */",
           f"the server logs no DROP any more, so the killed replicas can have their CREATE ... SELECT: {outcomes}")


def killed_create():
    """A replica writes a CREATE TABLE to its binary log, and its place into its table afterwards. Killed in between, it does
    the statement again, whatever the engine, and gtid_strict_mode stops it."""
    outcomes = {}
    for engine in ("INNODB", "MYRIAD"):
        place = ["--gtid-pos-auto-engines=myriad"] if engine == "MYRIAD" else []
        options = [o for o in REPLICA if "auto-engines" not in o] + place + WAIT_AFTER_BINLOG
        with server.Server(engine, SOURCE + ["--binlog-format=MIXED"], tcp=True, pool_mib=32) as source, \
                server.Server(engine, options, pool_mib=32) as replica:
            source.query("CREATE USER r@'127.0.0.1' IDENTIFIED BY 'r'")
            source.query("GRANT REPLICATION SLAVE ON *.* TO r@'127.0.0.1'")
            source.query("CREATE DATABASE rep")
            source.query("CREATE TABLE accounts (id INT PRIMARY KEY)", "rep")
            source.query("INSERT INTO accounts VALUES (1), (2)", "rep")
            follow(source, replica)
            position = source.query("SELECT @@gtid_binlog_pos")[0][0]
            expect(replica.query(f"SELECT MASTER_GTID_WAIT('{position}', 120)")[0][0] == 0, f"{engine}: no replication")
            kill_after_binlog(replica, lambda: source.query("CREATE TABLE made (id INT PRIMARY KEY)", "rep"))
            replica.query("START SLAVE")
            deadline = time.monotonic() + 60
            while not status(replica)["Last_SQL_Errno"] and time.monotonic() < deadline:
                time.sleep(0.05)
            outcomes[engine] = (status(replica)["Last_SQL_Error"], replica.query("SHOW TABLES", "rep"),
                                replica.query("SELECT @@gtid_slave_pos, @@gtid_binlog_pos"))
    expect(outcomes["INNODB"] == outcomes["MYRIAD"], f"another outcome than InnoDB's: {outcomes}")
    expect("out-of-order sequence number" in outcomes["MYRIAD"][0],
           f"the server goes on by itself now, so the killed replicas can have their CREATE TABLE: {outcomes}")


def lose(connection, sql):
    """Runs a statement in whose course the server goes away."""
    try:
        connection.cursor().execute(sql)
    except pymysql.err.OperationalError:
        pass


def replica_from_dump():
    """mariadb-dump --single-transaction --master-data under load gives a replica its start."""
    source = start_source("ROW")
    replica = None
    try:
        # A table made after the dump's snapshot ends the dump (error 1412), as with InnoDB.
        load = Load(source, create=False)
        load.go_on(1)
        dump = subprocess.run([server.tool("mariadb-dump"), "--no-defaults", f"--socket={source.socket}", "-uroot",
                               "--single-transaction", "--master-data=1", "--gtid", "--databases", "rep"],
                              capture_output=True)
        expect(dump.returncode == 0, f"mariadb-dump: {dump.stderr.decode()}")
        expect(b"gtid_slave_pos" in dump.stdout, "the dump has no position")
        replica = start_replica(source, position=True)
        replica.query("SET GLOBAL gtid_strict_mode=0")
        done = subprocess.run([server.tool("mariadb"), "--no-defaults", f"--socket={replica.socket}", "-uroot"],
                              input=b"SET sql_log_bin=0;\n" + dump.stdout, capture_output=True)
        expect(done.returncode == 0, f"restore: {done.stderr.decode()}")
        follow(source, replica)
        load.go_on(1)
        load.stop()
        compare(source, replica)
    finally:
        for one in (replica, source):
            if one:
                one.close()


def main():
    return server.run_cases([
        row, statement, mixed, foreign_keys_row, foreign_keys_statement, rows_after_covering_scans, virtual_columns_minimal,
        virtual_columns_noblob, virtual_columns_of_its_own, unsafe_statements, statements_below_repeatable_read,
        killed_replica_row, killed_replica_mixed, syncs_are_shared, order_of_two_engines, filtered_copies, killed_create,
        killed_create_select, replica_from_dump],
        "replication on MYRIAD")


if __name__ == "__main__":
    server.main_guard(main)
