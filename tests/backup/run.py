#!/usr/bin/python3
"""Backups made while clients work: what came back is held against a record of acknowledged commits that is kept here.
Usage: run.py [CASE...]"""
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import server  # noqa: E402
from server import pymysql  # noqa: E402

wait_until = functools.partial(server.wait_until, seconds=2 * server.HUNG_SECONDS)

MYRIAD = os.path.join(server.BUILD, "myriad")
ACCOUNTS, START_BALANCE, CLIENTS = 400, 1000, 4


def rows(connection, sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, wanted {wanted!r}")


def fails(connection, sql, wanted):
    """The text of the error with which the statement has to end."""
    try:
        rows(connection, sql)
    except pymysql.err.Error as problem:
        expect(sql, (problem.args[0], wanted in problem.args[1]), (problem.args[0], True))
        return problem.args[1]
    raise AssertionError(f"{sql}: no error, wanted one that says {wanted!r}")


def folder():
    return tempfile.mkdtemp(prefix="myriad-backup-")


def command(*words, status=0):
    done = subprocess.run([MYRIAD, *words], capture_output=True, text=True)
    expect(" ".join(words) + ": " + (done.stdout + done.stderr)[-600:], done.returncode, status)
    return done.stdout + done.stderr


class Bank:
    """Transfers between accounts, each with a line in a ledger, and a count of those acknowledged."""

    def __init__(self, where):
        self.where, self.stop, self.problems = where, threading.Event(), []
        self.acknowledged = [0] * CLIENTS
        c = where.connect()
        for statement in (
                "CREATE DATABASE bank", "USE bank",
                "CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL, KEY (balance))",
                "CREATE TABLE ledger (id BIGINT PRIMARY KEY AUTO_INCREMENT, client INT NOT NULL, seq INT NOT NULL, "
                "source INT NOT NULL, target INT NOT NULL, amount INT NOT NULL, note LONGBLOB, UNIQUE KEY (client, seq), "
                "KEY (source), KEY (target, amount))",
                f"INSERT INTO account SELECT seq, {START_BALANCE} FROM seq_1_to_{ACCOUNTS}",
                "CREATE TABLE ballast (id INT PRIMARY KEY, a VARCHAR(200), b VARBINARY(900), KEY (a))",
                "INSERT INTO ballast SELECT seq, MD5(seq), REPEAT(MD5(-seq), 25) FROM seq_1_to_20000",
                "CREATE TABLE volatile_rows (id INT PRIMARY KEY) IN_MEMORY=YES", "INSERT INTO volatile_rows VALUES (1)"):
            rows(c, statement)
        c.close()
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(CLIENTS)]
        self.threads.append(threading.Thread(target=self.define))
        for thread in self.threads:
            thread.start()

    def work(self, client):
        try:
            c = self.where.connect(database="bank", autocommit=False)
            rows(c, "SET lock_wait_timeout=120")
            state = client * 7919 + 17
            while not self.stop.is_set():
                state = (state * 1103515245 + 12345) % (1 << 31)
                seq = self.acknowledged[client] + 1
                source, target, amount = state // 64 % ACCOUNTS + 1, state // 16384 % ACCOUNTS + 1, state // 1024 % 50
                try:
                    for account, change in sorted(((source, -amount), (target, amount))):
                        rows(c, f"UPDATE account SET balance = balance + {change} WHERE id = {account}")
                    length = 30_000 if seq % 40 == 0 else 200
                    rows(c, f"INSERT INTO ledger (client, seq, source, target, amount, note) VALUES "
                            f"({client}, {seq}, {source}, {target}, {amount}, REPEAT('{seq % 10}', {length}))")
                    rows(c, f"UPDATE ballast SET a = MD5({state}), b = REPEAT(MD5({state}), {20 + seq % 8}) "
                            f"WHERE id BETWEEN {state % 19990} AND {state % 19990 + 5}")
                    c.commit()
                except pymysql.err.OperationalError as problem:
                    if problem.args[0] not in (1213, 1205):
                        raise
                    c.rollback()
                    continue
                self.acknowledged[client] = seq
            c.close()
        except Exception as problem:                  # whatever it is, the case has failed
            self.problems.append(f"client {client}: {problem!r}")

    def define(self):
        try:
            c = self.where.connect(database="bank")
            rows(c, "SET lock_wait_timeout=120")
            i = 0
            while not self.stop.is_set():
                i += 1
                for statement in (
                        f"CREATE DATABASE extra{i}", f"CREATE TABLE extra{i}.t (a INT PRIMARY KEY, b VARCHAR(500), KEY (b))",
                        f"INSERT INTO extra{i}.t SELECT seq, REPEAT(seq, 50) FROM bank.seq_1_to_300",
                        f"CREATE TABLE own{i} (a INT PRIMARY KEY, b INT) TABLESPACE_PER='TABLE'",
                        f"INSERT INTO own{i} SELECT seq, seq FROM seq_1_to_500",
                        f"ALTER TABLE own{i} ADD KEY (b)",
                        f"RENAME TABLE own{i} TO renamed{i}",
                        f"TRUNCATE TABLE renamed{i}" if i % 3 else f"ALTER TABLE renamed{i} ADD COLUMN c INT, ALGORITHM=COPY",
                        f"INSERT IGNORE INTO renamed{i} (a, b) VALUES (1000, 1)",
                        f"DROP TABLE IF EXISTS renamed{max(i - 3, 0)}", f"DROP DATABASE IF EXISTS extra{max(i - 2, 0)}"):
                    rows(c, statement)
            c.close()
        except Exception as problem:
            self.problems.append(f"definitions: {problem!r}")

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        expect("clients", self.problems, [])


SKIPPED = re.compile(r"Table '([^']+)'\.'([^']+)' was skipped since its definition is being modified")


def tables_of(connection):
    """All tables of the engine.

    Where the connection holds the lock of a backup's stage, the server does not wait for a table on which a statement
    that changes its definition waits for that stage to end: it tells the table in a warning and leaves its columns NULL.
    """
    found = rows(connection, "SELECT table_schema, table_name FROM information_schema.tables WHERE engine = 'MYRIAD' "
                             "AND table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')")
    skipped = (SKIPPED.match(text) for _, _, text in rows(connection, "SHOW WARNINGS"))
    return sorted({*found, *(match.groups() for match in skipped if match)})


def check_bank(where, acknowledged, tables, volatile=0):
    """The bank as of the end of a backup, or as it is with its in-memory rows."""
    c = where.connect()
    found = tables_of(c)
    expect("tables", found, tables)
    for name in found:
        got = rows(c, "CHECK TABLE `%s`.`%s` EXTENDED" % name)
        expect(f"CHECK TABLE {name}", [row[3] for row in got], ["OK"])
    c.select_db("bank")
    for client, count in enumerate(acknowledged):
        got = rows(c, f"SELECT COUNT(*), MIN(seq), MAX(seq) FROM ledger WHERE client = {client}")[0]
        expect(f"commits of client {client}", got, (count, 1, count))
    expect("sum", int(rows(c, "SELECT SUM(balance) FROM account")[0][0]), ACCOUNTS * START_BALANCE)
    wrong = rows(c, f"SELECT COUNT(*) FROM account LEFT JOIN (SELECT a, SUM(d) s FROM (SELECT source a, -amount d FROM ledger "
                    f"UNION ALL SELECT target, amount FROM ledger) x GROUP BY a) y ON a = id "
                    f"WHERE balance <> {START_BALANCE} + IFNULL(s, 0)")
    expect("balances that differ from the ledger", wrong[0][0], 0)
    for table, index, column in ("account", "balance", "balance"), ("ledger", "target", "amount"), ("ledger", "source", "source"):
        sums = [rows(c, f"SELECT COUNT(*), SUM({column}) FROM {table} FORCE INDEX ({i})")[0] for i in ("PRIMARY", index)]
        expect(f"index {index} of {table}", sums[0], sums[1])
    torn = rows(c, "SELECT COUNT(*) FROM ledger WHERE note <> REPEAT(seq % 10, IF(seq % 40 = 0, 30000, 200))")[0][0]
    expect("torn rows", torn, 0)
    expect("in-memory table", rows(c, "SELECT COUNT(*) FROM volatile_rows")[0][0], volatile)
    c.close()


def restored(backup, databases, options=()):
    """A new server with the backup's files."""
    where = server.Server("MYRIAD", options=list(options), pool_mib=16)
    shutil.copytree(os.path.join(backup, "#myriad"), os.path.join(where.datadir, "#myriad"))
    # The databases' folders are the server's. What has no tables any more does no harm.
    for database in databases:
        os.makedirs(os.path.join(where.datadir, database), exist_ok=True)
    subprocess.run(["chmod", "-R", "a+rwX", where.datadir], check=True)
    return where


def under_load(options):
    place = folder()
    backup = os.path.join(place, "full")
    try:
        with server.Server("MYRIAD", options=["--myriad-log-capacity=4M", *options], pool_mib=8) as where:
            bank = Bank(where)
            wait_until("all clients work", lambda: bank.problems or min(bank.acknowledged) >= 10)
            c = where.connect()
            rows(c, f"SET GLOBAL myriad_backup_dir='{backup}'")
            rows(c, "BACKUP STAGE START")
            # The log goes round some times before the end.
            before = int(rows(c, "SHOW GLOBAL STATUS LIKE 'Myriad_log_bytes'")[0][1])
            wait_until("14 MiB of log", lambda: int(rows(c, "SHOW GLOBAL STATUS LIKE 'Myriad_log_bytes'")[0][1]) - before > 14 << 20)
            for stage in "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT":
                rows(c, f"BACKUP STAGE {stage}")
            time.sleep(0.3)                      # answers under way
            acknowledged = list(bank.acknowledged)
            tables = tables_of(c)
            rows(c, "BACKUP STAGE END")
            wait_until("clients go on after the backup",
                       lambda: bank.problems or any(a > b for a, b in zip(bank.acknowledged, acknowledged)))
            bank.end()
            with open(where.log, errors="replace") as f:
                log = [line for line in f if "MYRIAD: backup:" in line and "is whole" in line]
            expect("one line in the error log", len(log), 1)
            log_mib = int(log[0].split(" MiB of log")[0].split()[-1])
            if log_mib < 8:
                raise AssertionError(f"only {log_mib} MiB of log were copied: the ring of 4 MiB did not go round")
            check_bank(where, bank.acknowledged, tables_of(c), volatile=1)
        command("verify", backup)
        with restored(backup, {d for d, _ in tables}) as where:
            check_bank(where, acknowledged, tables)
            # The restored server is a server.
            c = where.connect(database="bank")
            rows(c, "UPDATE ballast SET a = 'x'")
            rows(c, "CREATE DATABASE afterwards")
            rows(c, "CREATE TABLE afterwards.t (a INT PRIMARY KEY)")
            expect("a new table", rows(c, "SELECT COUNT(*) FROM afterwards.t")[0][0], 0)
            where.restart()
            c = where.connect(database="bank")
            expect("changes after a restart", rows(c, "SELECT COUNT(*) FROM ballast WHERE a = 'x'")[0][0], 20000)
        command("prepare", backup)
        command("verify", backup)
        with restored(backup, {d for d, _ in tables}) as where:
            check_bank(where, acknowledged, tables)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def under_load_16k():
    under_load([])


def under_load_4k():
    under_load(["--myriad-page-size=4096"])


def without_stages():
    """A script that leaves stages out, but for BLOCK_COMMIT: the state at END, and no more than the engine's own files."""
    place = folder()
    backup = os.path.join(place, "full")
    try:
        with server.Server("MYRIAD", options=["--myriad-tablespace-per=TABLE"], pool_mib=8) as where:
            bank = Bank(where)
            c = where.connect()
            rows(c, f"SET GLOBAL myriad_backup_dir='{backup}'")
            rows(c, "BACKUP STAGE START")
            fails(c, "BACKUP STAGE END", "BLOCK_COMMIT has to come before END")
            refuses_to_start(backup)
            rows(c, "BACKUP STAGE START")
            time.sleep(1)
            rows(c, "BACKUP STAGE BLOCK_COMMIT")
            rows(c, "BACKUP STAGE END")
            bank.end()
        command("verify", backup)
        command("prepare", backup)
        command("verify", backup)
        with restored(backup, ["bank"]) as where:
            c = where.connect()
            for name in tables_of(c):
                got = rows(c, "CHECK TABLE `%s`.`%s` EXTENDED" % name)
                expect(f"CHECK TABLE {name}", [row[3] for row in got], ["OK"])
            expect("sum", int(rows(c, "SELECT SUM(balance) FROM bank.account")[0][0]), ACCOUNTS * START_BALANCE)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def without_stages_but_with_binlog():
    """Transactions that wait for the binary log would be in the copy, and what it says of them would not."""
    place = folder()
    backup = os.path.join(place, "full")
    try:
        with server.Server("MYRIAD", options=["--log-bin=bin", "--server-id=1"], pool_mib=8) as where:
            c = where.connect()
            rows(c, "CREATE DATABASE d")
            rows(c, "CREATE TABLE d.t (a INT PRIMARY KEY)")
            rows(c, f"SET GLOBAL myriad_backup_dir='{backup}'")
            rows(c, "BACKUP STAGE START")
            rows(c, "BACKUP STAGE BLOCK_DDL")
            fails(c, "BACKUP STAGE END", "BLOCK_COMMIT has to come before END")
            refuses_to_start(backup)
            rows(c, "BACKUP STAGE START")
            rows(c, "BACKUP STAGE BLOCK_COMMIT")
            rows(c, "BACKUP STAGE END")
            command("verify", backup)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def created_between_the_stages():
    """What comes while other things are copied is not left for END, which blocks commits."""
    place = folder()
    backup = os.path.join(place, "full")
    try:
        with server.Server("MYRIAD", pool_mib=16) as where:
            c, one = where.connect(), where.connect()
            rows(c, f"SET GLOBAL myriad_backup_dir='{backup}'")
            rows(one, "BACKUP STAGE START")
            rows(c, "CREATE DATABASE tenant")
            rows(c, "CREATE TABLE tenant.t (a INT PRIMARY KEY, b VARCHAR(100))")
            wait_until("its tablespace is copied before END",
                       lambda: any(name.startswith("tenant.") for name in os.listdir(backup + "/#myriad")))
            rows(c, "INSERT INTO tenant.t SELECT seq, REPEAT(seq, 10) FROM tenant.seq_1_to_50000")
            rows(one, "BACKUP STAGE BLOCK_COMMIT")
            rows(one, "BACKUP STAGE END")
        command("verify", backup)
        with restored(backup, ["tenant"]) as where:
            expect("rows", where.query("SELECT COUNT(*), SUM(b = REPEAT(a, 10)) FROM tenant.t")[0], (50000, 50000))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def refuses_to_start(backup):
    """Nobody may take it for a whole backup."""
    command("prepare", backup, status=2)
    where = restored(backup, [])
    try:
        where.start()
        raise AssertionError("a backup that is not whole was taken")
    except server.ServerError as problem:
        expect(f"the reason of {problem}", "did not come to its end" in str(problem), True)
    finally:
        where.close()


def unusable_when_not_ended():
    place = folder()
    try:
        with server.Server("MYRIAD", pool_mib=16) as where:
            c = where.connect()
            rows(c, "CREATE DATABASE d")
            rows(c, "CREATE TABLE d.t (a INT PRIMARY KEY)")
            rows(c, "INSERT INTO d.t VALUES (1)")
            fails(c, "SET GLOBAL myriad_backup_dir='relative'", "absolute path")
            for bad, why in ((where.datadir, "in the data directory"), (where.datadir + "/sub", "in the data directory"),
                             (place + "/no/such/parent", "No such file")):
                rows(c, f"SET GLOBAL myriad_backup_dir='{bad}'")
                one = where.connect()
                fails(one, "BACKUP STAGE START", why)
                fails(one, "BACKUP STAGE END", "no backup was made")
                one.close()
            link = os.path.join(place, "link")
            os.symlink(where.datadir, link)
            rows(c, f"SET GLOBAL myriad_backup_dir='{link}/x'")
            one = where.connect()
            fails(one, "BACKUP STAGE START", "in the data directory")
            one.close()

            # The connection ends in between.
            lost = os.path.join(place, "lost")
            rows(c, f"SET GLOBAL myriad_backup_dir='{lost}'")
            one = where.connect()
            rows(one, "BACKUP STAGE START")
            fails(c, "SET GLOBAL myriad_redo_log=OFF", "while a backup is made")
            expect("still on", rows(c, "SELECT @@myriad_redo_log")[0][0], 1)
            whole = sorted(os.listdir(lost + "/#myriad"))
            if "INCOMPLETE" not in whole or "FORMAT" in whole or "system.myr" not in whole:
                raise AssertionError(f"while it is made: {whole}")
            rows(c, f"KILL CONNECTION {one.thread_id()}")
            wait_until("nothing else is left", lambda: os.listdir(lost + "/#myriad") == ["INCOMPLETE"])
            refuses_to_start(lost)

            # The log is off.
            rows(c, "SET GLOBAL myriad_redo_log=OFF")
            off = os.path.join(place, "off")
            rows(c, f"SET GLOBAL myriad_backup_dir='{off}'")
            one = where.connect()
            fails(one, "BACKUP STAGE START", "myriad_redo_log is OFF")
            one.close()
            rows(c, "SET GLOBAL myriad_redo_log=ON")

            # The same folder again, then once more: it is no longer empty.
            rows(c, f"SET GLOBAL myriad_backup_dir='{lost}'")
            one = where.connect()
            rows(one, "BACKUP STAGE START")
            rows(one, "BACKUP STAGE BLOCK_COMMIT")
            rows(one, "BACKUP STAGE END")
            fails(one, "BACKUP STAGE START", "not empty")
            one.close()
            command("verify", lost)
            expect("still whole", "FORMAT" in os.listdir(lost + "/#myriad"), True)

            # A reset connection is another connection.
            reset = os.path.join(place, "reset")
            rows(c, f"SET GLOBAL myriad_backup_dir='{reset}'")
            one = where.connect()
            rows(one, "BACKUP STAGE START")
            rows(one, "BACKUP STAGE BLOCK_COMMIT")
            one._execute_command(31, b"")        # COM_RESET_CONNECTION
            one._read_ok_packet()
            expect("what is left", os.listdir(reset + "/#myriad"), ["INCOMPLETE"])
            rows(c, "INSERT INTO d.t VALUES (2)")
            one.close()

            # The server stops with one under way.
            stopped = os.path.join(place, "stopped")
            rows(c, f"SET GLOBAL myriad_backup_dir='{stopped}'")
            one = where.connect()
            rows(one, "BACKUP STAGE START")
            where.stop()
            expect("what is left", os.listdir(stopped + "/#myriad"), ["INCOMPLETE"])
            where.start()
            expect("the server goes on", where.query("SELECT COUNT(*) FROM d.t")[0][0], 2)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def killed():
    """KILL ends the copy."""
    place = folder()
    try:
        with server.Server("MYRIAD", pool_mib=16) as where:
            c = where.connect()
            rows(c, "CREATE DATABASE d")
            rows(c, "CREATE TABLE d.t (b LONGBLOB)")
            rows(c, "INSERT INTO d.t SELECT REPEAT('x', 1000000) FROM d.seq_1_to_150")
            for attempt in range(10):            # it may be faster than we are
                target = os.path.join(place, str(attempt))
                rows(c, f"SET GLOBAL myriad_backup_dir='{target}'")
                one, outcome = where.connect(), []

                def begin():
                    try:
                        outcome.append(rows(one, "BACKUP STAGE START"))
                    except pymysql.err.Error as problem:
                        outcome.append(problem.args)

                thread = threading.Thread(target=begin)
                thread.start()
                while not os.path.exists(target + "/#myriad/d.16.myr") and not outcome:
                    time.sleep(0.001)
                rows(c, f"KILL QUERY {one.thread_id()}")
                thread.join()
                if outcome[0] and "interrupted" in outcome[0][1]:
                    break
                one.close()
            else:
                raise AssertionError(f"never killed in time: {outcome}")
            expect("what is left", os.listdir(target + "/#myriad"), ["INCOMPLETE"])
            fails(one, "BACKUP STAGE END", "BACKUP STAGE START has failed")
            rows(one, "BACKUP STAGE START")
            rows(one, "BACKUP STAGE BLOCK_COMMIT")
            rows(one, "BACKUP STAGE END")
            command("verify", target)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def full_disk():
    """The backup's disk, not the server's."""
    place = folder()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place]).returncode:
        print("  skipped full_disk: cannot mount")
        return
    try:
        options = ["--myriad-log-capacity=4M"]
        with server.Server("MYRIAD", options=options, pool_mib=16) as where:
            c = where.connect()
            rows(c, "CREATE DATABASE d")
            rows(c, "CREATE TABLE d.t (a INT PRIMARY KEY, b LONGBLOB)")
            rows(c, "INSERT INTO d.t SELECT seq, REPEAT('x', 1000000) FROM d.seq_1_to_40")
            rows(c, f"SET GLOBAL myriad_backup_dir='{place}/files'")
            one = where.connect()
            fails(one, "BACKUP STAGE START", "no space left")
            one.close()
            expect("what is left", os.listdir(place + "/files/#myriad"), ["INCOMPLETE"])
            # And by the log, after the files.
            rows(c, "TRUNCATE TABLE d.t")
            rows(c, "DROP DATABASE d")
            rows(c, "CREATE DATABASE d")
            wait_until("the file is removed",
                       lambda: not [name for name in os.listdir(where.datadir + "/#myriad") if name.startswith("d.")])
            rows(c, "CREATE TABLE d.t (a INT PRIMARY KEY, b LONGBLOB)")
            rows(c, f"SET GLOBAL myriad_backup_dir='{place}/log'")
            one = where.connect()
            rows(one, "BACKUP STAGE START")
            for i in range(60):
                rows(c, f"INSERT INTO d.t VALUES ({i}, REPEAT('x', 1000000))")
            rows(one, "BACKUP STAGE BLOCK_COMMIT")
            fails(one, "BACKUP STAGE END", "no space left")
            one.close()
            expect("what is left", os.listdir(place + "/log/#myriad"), ["INCOMPLETE"])
            refuses_to_start(place + "/log")
            expect("rows", rows(c, "SELECT COUNT(*) FROM d.t")[0][0], 60)
            where.restart()
            expect("rows", where.query("SELECT COUNT(*) FROM d.t")[0][0], 60)
    finally:
        subprocess.run(["umount", "-l", place], capture_output=True)
        shutil.rmtree(place, ignore_errors=True)


def mariadb_backup_command(where, *words):
    return [server.tool("mariadb-backup"), *words, f"--socket={where.socket}", "--user=root", f"--datadir={where.datadir}"]


class Both:
    """Transactions over a table of InnoDB and one of Myriad."""

    def __init__(self, where):
        self.where, self.stop, self.problems, self.count = where, threading.Event(), [], 0
        c = where.connect()
        for statement in ("CREATE DATABASE d", "CREATE TABLE d.i (a INT PRIMARY KEY, b VARCHAR(50), KEY (b)) ENGINE=InnoDB",
                          "CREATE TABLE d.m (a INT PRIMARY KEY, b VARCHAR(50), KEY (b)) ENGINE=MYRIAD",
                          "CREATE TABLE d.p (a INT PRIMARY KEY, b INT) ENGINE=MYRIAD PARTITION BY HASH (a) PARTITIONS 3",
                          "INSERT INTO d.p SELECT seq, seq * 3 FROM mysql.seq_1_to_1000",
                          "CREATE VIEW d.v AS SELECT a FROM d.m",
                          "CREATE TRIGGER d.g BEFORE INSERT ON d.p FOR EACH ROW SET NEW.b = NEW.b + 1",
                          "CREATE TABLE d.x (a INT) ENGINE=Aria TRANSACTIONAL=0"):
            rows(c, statement)
        c.close()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        try:
            c = self.where.connect(database="d", autocommit=False)
            rows(c, "SET lock_wait_timeout=120")
            while not self.stop.is_set():
                n = self.count + 1
                for table in "mi" if n % 2 else "im":
                    rows(c, f"INSERT INTO {table} VALUES ({n}, MD5({n}))")
                    rows(c, f"UPDATE {table} SET b = MD5({-n}) WHERE a = {n // 2 + 1}")
                c.commit()
                self.count = n
            c.close()
        except Exception as problem:
            self.problems.append(repr(problem))

    def go_on(self, count):
        """Waits until more transactions than so many have been committed."""
        wait_until(f"more than {count} transactions", lambda: self.problems or self.count > count)

    def end(self):
        self.stop.set()
        self.thread.join()
        expect("client", self.problems, [])

    @staticmethod
    def contents(where):
        return {t: where.query(f"SELECT a, b FROM d.{t} ORDER BY a") for t in "imp"}


def beside_innodb_without_binlog():
    """The server's tc.log decides transactions over both engines, and is in no copy: none of them may be prepared in it."""
    place = folder()
    try:
        with server.Server("MYRIAD", pool_mib=16) as where:
            both = Both(where)
            c = where.connect()
            for i in range(4):
                rows(c, f"SET GLOBAL myriad_backup_dir='{place}/{i}'")
                rows(c, "BACKUP STAGE START")
                fails(c, "BACKUP STAGE END", "BLOCK_COMMIT has to come before END")
                rows(c, "BACKUP STAGE START")
                time.sleep(0.2)
                both.go_on(both.count + 3)
                rows(c, "BACKUP STAGE BLOCK_COMMIT")
                rows(c, "BACKUP STAGE END")
            both.go_on(both.count)
            both.end()
        for i in range(4):
            with restored(f"{place}/{i}", ["d"]) as where:
                found = where.query("SELECT a FROM d.m ORDER BY a")
                expect("rows", [a for a, in found], list(range(1, len(found) + 1)))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def mariadb_backup():
    """InnoDB, Myriad and the noted place in the binary log are of one moment: replayed from there, it is all the same."""
    place = folder()
    target = os.path.join(place, "full")
    try:
        with server.Server("MYRIAD", pool_mib=16, binlog=True) as where:
            both = Both(where)
            both.go_on(10)
            where.query(f"SET GLOBAL myriad_backup_dir='{target}'")
            done = subprocess.run(mariadb_backup_command(where, "--backup", f"--target-dir={target}"), capture_output=True, text=True)
            expect("mariadb-backup --backup: " + done.stderr[-800:], done.returncode, 0)
            both.go_on(both.count)
            both.end()
            now = both.contents(where)
            done = subprocess.run(mariadb_backup_command(where, "--prepare", f"--target-dir={target}"), capture_output=True, text=True)
            expect("mariadb-backup --prepare: " + done.stderr[-800:], done.returncode, 0)
            command("verify", target)
            command("prepare", target)
            command("verify", target)
            with open(os.path.join(target, "xtrabackup_binlog_info")) as f:
                log, position = f.read().split()[:2]
            replay = subprocess.run([server.tool("mariadb-binlog"), "--no-defaults", f"--start-position={position}",
                                     os.path.join(where.datadir, log)], capture_output=True, check=True).stdout
        with server.Server("MYRIAD", pool_mib=16, binlog=True) as where:
            where.kill()
            shutil.rmtree(where.datadir)
            os.mkdir(where.datadir)
            done = subprocess.run([server.tool("mariadb-backup"), "--copy-back", f"--target-dir={target}", f"--datadir={where.datadir}"],
                                  capture_output=True, text=True)
            expect("mariadb-backup --copy-back: " + done.stderr[-800:], done.returncode, 0)
            copied = os.path.join(where.datadir, "#myriad")
            expect("files copied back", sorted(os.listdir(copied)), sorted(os.listdir(os.path.join(target, "#myriad"))))
            where.start()
            found = Both.contents(where)
            expect("Myriad against InnoDB", found["m"], found["i"])
            expect("partitions", found["p"], now["p"])
            if not 0 < len(found["m"]) < len(now["m"]):
                raise AssertionError(f"{len(found['m'])} rows of {len(now['m'])}")
            for name in "mpi":
                expect(f"CHECK TABLE {name}", where.query(f"CHECK TABLE d.{name} EXTENDED")[0][3], "OK")
            expect("view", where.query("SELECT COUNT(*) FROM d.v")[0][0], len(found["m"]))
            done = subprocess.run([server.tool("mariadb"), "--no-defaults", f"--socket={where.socket}", "--user=root"], input=replay,
                                  capture_output=True)
            expect("the binary log from the noted place: " + done.stderr.decode()[-500:], done.returncode, 0)
            expect("contents", Both.contents(where), now)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def mariadb_backup_fails():
    """When Myriad's part fails, at the start or at the end, so does mariadb-backup."""
    place = folder()
    try:
        with server.Server("MYRIAD", pool_mib=16) as where:
            c = where.connect()
            rows(c, "CREATE DATABASE d")
            rows(c, "CREATE TABLE d.m (a INT PRIMARY KEY) ENGINE=MYRIAD")
            rows(c, "CREATE TABLE d.x (a INT) ENGINE=Aria TRANSACTIONAL=0")
            rows(c, f"SET GLOBAL myriad_backup_dir='{where.datadir}'")
            target = os.path.join(place, "start")
            done = subprocess.run(mariadb_backup_command(where, "--backup", f"--target-dir={target}"), capture_output=True, text=True)
            if done.returncode == 0 or "in the data directory" not in done.stderr:
                raise AssertionError(f"status {done.returncode}: {done.stderr[-500:]}")

            # Files that take a while, and a statement begun meanwhile that the next stages wait for.
            rows(c, "CREATE TABLE d.b (b LONGBLOB)")
            rows(c, "INSERT INTO d.b SELECT REPEAT('x', 1000000) FROM d.seq_1_to_100")
            slow = where.connect()
            target = os.path.join(place, "end")
            inside = os.path.join(target, "#myriad")
            rows(c, f"SET GLOBAL myriad_backup_dir='{target}'")
            tool = subprocess.Popen(mariadb_backup_command(where, "--backup", f"--target-dir={target}"), stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
            while not os.path.exists(inside) and tool.poll() is None:
                time.sleep(0.001)
            rows(c, "SELECT GET_LOCK('gate', 0)")
            waits = threading.Thread(target=rows, args=(slow, "INSERT INTO d.x SELECT GET_LOCK('gate', 600)"))
            waits.start()
            # Which of the stages waits depends on how long the files take.
            wait_until("a stage waits", lambda: tool.poll() is not None or any(
                "BACKUP STAGE BLOCK" in str(row[7]) for row in where.query("SHOW FULL PROCESSLIST")))
            os.rename(inside, os.path.join(target, "gone"))
            rows(c, "SELECT RELEASE_LOCK('gate')")
            output = tool.communicate(timeout=300)[0]
            waits.join()
            if tool.returncode == 0 or "BACKUP STAGE END: MYRIAD: no backup was made" not in output:
                raise AssertionError(f"status {tool.returncode}: {output[-500:]}")
            expect("the server goes on", rows(c, "SELECT COUNT(*) FROM d.m")[0][0], 0)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main():
    failed = server.run_cases(
        [under_load_16k, under_load_4k, without_stages, without_stages_but_with_binlog, created_between_the_stages,
         unusable_when_not_ended, killed, full_disk, beside_innodb_without_binlog, mariadb_backup, mariadb_backup_fails], "backup")
    return 1 if failed else 0


if __name__ == "__main__":
    server.main_guard(main)
