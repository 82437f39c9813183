#!/usr/bin/python3
"""Damages what a server stands on (files, disk space, rights) and checks what it says and what is still usable.

Each case works on a data directory of its own with databases d and e, each in a tablespace of its own. What must hold:
a clear sentence in the error log and to the client, other tables usable, no acknowledged commit lost, no crash.
Errors of the device itself are in device.py, and on the simulated disk in crates/engine/tests. Cases that mount file systems need root and are skipped, by name, without it.
"""
import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts"))
import pymysql  # noqa: E402
import server  # noqa: E402

PAGE = 16384
ROWS = 5000
# Without the warm-up: a case decides itself which tablespaces have been used.
OPTIONS = ["--loose-myriad-log-capacity=16777216", "--loose-myriad-buffer-pool-warm-up=OFF", "--skip-log-bin"]
CASES = []


class Skipped(Exception):
    """The machine cannot do this case."""


def case(function):
    CASES.append(function)
    return function


def known_gap(why):
    """A case that fails today, for a reason that README.md tells too: run by name or with --known-gaps only."""
    def mark(function):
        function.known_gap = why
        return function
    return mark


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


class Place:
    """A server with tables, its files, and what to undo at the end."""

    def __init__(self, template=None, disk=None):
        self.folder = tempfile.mkdtemp(prefix="myriad-fault-")
        self.mounted = None
        if template:
            subprocess.run(["cp", "-a", "--sparse=always", template.server.datadir, self.folder + "/data"], check=True)
        self.server = server.Server(folder=self.folder, options=OPTIONS, pool_mib=16)
        self.myriad = os.path.join(self.server.datadir, "#myriad")
        if disk:
            os.makedirs(self.myriad, exist_ok=True)
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk}", "tmpfs", self.myriad],
                                  capture_output=True, text=True)
            if done.returncode:
                self.close()
                raise Skipped("cannot mount: " + done.stderr.strip())
            self.mounted = self.myriad

    def fill(self):
        for name in "de":
            self.server.query(f"CREATE DATABASE {name}")
            self.server.query(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v VARCHAR(300), KEY (v))")
            self.server.query(f"INSERT INTO {name}.t SELECT seq, CONCAT(REPEAT('{name}', 200), seq) FROM seq_1_to_{ROWS}", name)

    def file(self, database):
        return os.path.join(self.myriad, next(n for n in os.listdir(self.myriad) if n.startswith(database + ".")))

    def log(self):
        with open(self.server.log, errors="replace") as f:
            f.seek(self.server.log_offset)
            return f.read()

    def ask(self, sql, database="e"):
        """(rows, None) or (None, the client's error and warnings)."""
        connection = self.server.connect(database=database)
        with connection, connection.cursor() as cursor:
            try:
                cursor.execute(sql)
                return cursor.fetchall(), None
            except pymysql.err.MySQLError as problem:
                cursor.execute("SHOW WARNINGS")
                return None, f"{problem} {cursor.fetchall()}"

    def good(self, database="e", rows=ROWS):
        """The database's table reads whole, can be written, and CHECK TABLE finds nothing."""
        for index in ("PRIMARY", "v"):
            got, problem = self.ask(f"SELECT COUNT(*) FROM {database}.t FORCE INDEX ({index})")
            expect(not problem and got[0][0] == rows, f"{database}.t by {index}: {got} {problem}")
        got, problem = self.ask(f"CHECK TABLE {database}.t")
        expect(not problem and got[-1][3] == "OK", f"CHECK TABLE {database}.t: {got} {problem}")
        for sql in (f"INSERT INTO {database}.t VALUES (-7, 'new')", f"DELETE FROM {database}.t WHERE id = -7"):
            got, problem = self.ask(sql)
            expect(not problem, f"{sql}: {problem}")

    def refused(self, *words, seconds=30):
        """The start is refused, and the log has each of the words."""
        try:
            self.server.start(seconds)
        except server.ServerError as problem:
            expect("ended at start with status 1:" in str(problem), f"the server did not end of itself: {problem}")
            lines = [line for line in self.log().splitlines() if "MYRIAD" in line and "[ERROR]" in line]
            for word in words:
                expect(any(word in line for line in lines), f"the log does not say {word!r}: {lines}")
            return
        raise AssertionError("the start was not refused")

    def verify(self):
        """Status and output of `myriad verify`."""
        done = subprocess.run([os.path.join(server.BUILD, "myriad"), "verify", self.server.datadir],
                              capture_output=True, text=True)
        expect(done.returncode >= 0 and "panicked" not in done.stderr, f"verify crashed: {done.stderr}")
        return done.returncode, done.stdout + done.stderr

    def close(self):
        self.server.kill()
        if self.mounted:
            subprocess.run(["umount", "-l", self.mounted], capture_output=True)
        self.server.close()


class Load:
    """Two clients that insert rows of 300 bytes into d.t and remember what was acknowledged."""

    def __init__(self, place):
        self.place, self.acknowledged, self.tried, self.errors, self.stop = place, set(), set(), [], threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(i,), daemon=True) for i in (1, 2)]
        for thread in self.threads:
            thread.start()

    def work(self, number):
        key = number * 1000000
        try:
            connection = self.place.server.connect(database="d")
            with connection, connection.cursor() as cursor:
                while not self.stop.is_set():
                    key += 1
                    self.tried.add(key)
                    try:
                        cursor.execute("INSERT INTO t VALUES (%s, %s)", (key, (f"{key}-" * 40)[:300]))
                        self.acknowledged.add(key)
                    except pymysql.err.MySQLError as problem:
                        self.errors.append(problem)
                        if problem.args[0] in (2006, 2013):
                            return
                        time.sleep(0.05)
        except (pymysql.err.MySQLError, OSError) as problem:
            self.errors.append(problem)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(30)
            expect(not thread.is_alive(), "a client hangs")

    def check(self):
        """After a restart: everything acknowledged is there, and nothing that was never asked for. The keys found."""
        found = {row[0] for row in self.place.server.query("SELECT id FROM d.t WHERE id >= 1000000")}
        expect(not self.acknowledged - found, f"{len(self.acknowledged - found)} acknowledged rows are lost")
        expect(not found - self.tried, "rows that nobody inserted")
        self.place.good("d", ROWS + len(found))
        self.place.good("e")
        return found


def wait_for(condition, seconds=15):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


def change(path, offset, data=None):
    """Writes `data` at `offset`, or flips one bit of the byte there."""
    with open(path, "r+b") as f:
        f.seek(offset)
        if data is None:
            data = bytes([f.read(1)[0] ^ 4])
            f.seek(offset)
        f.write(data)


@case
def undamaged(place):
    status, text = place.verify()
    expect(status == 0, text)
    place.server.start()
    place.good("d")
    place.good("e")


def leaf_in_use(path):
    """The number of an index leaf."""
    number = os.path.getsize(path) // PAGE // 3
    with open(path, "rb") as f:
        while True:
            f.seek(number * PAGE)
            head = f.read(16)
            if head[12] == 3 and head[13] == 0:
                return number
            number += 1


@case
def flipped_bit(place):
    path = place.file("d")
    number = leaf_in_use(path)
    change(path, number * PAGE + 9000)
    status, text = place.verify()
    expect(status != 0 and f"page {number}:" in text and os.path.basename(path) in text, text)
    place.server.start()
    problems = [place.ask(f"SELECT SUM(LENGTH(v)), MAX(id) FROM d.t FORCE INDEX ({i}) WHERE v > ''")[1]
                for i in ("PRIMARY", "v")]
    expect(any(p and f"page {number}" in p and "tablespace" in p for p in problems),
           f"the client is not told the tablespace and page {number}: {problems}")
    got, problem = place.ask("CHECK TABLE d.t")
    expect(problem or got[-1][3] == "Corrupt", f"CHECK TABLE: {got}")
    expect(problem or any(f"page {number}" in r[3] for r in got), f"CHECK TABLE names no page: {got}")
    expect(f"page {number}" in place.log(), "the error log does not name the page")
    place.good("e")


@case
def flipped_bit_of_a_long_value(place):
    place.server.start()
    place.server.query("CREATE TABLE d.l (id INT PRIMARY KEY, v LONGBLOB)", "d")
    place.server.query("INSERT INTO d.l SELECT seq, REPEAT('long', 20000) FROM seq_1_to_20", "d")
    place.server.stop()
    path = place.file("d")
    with open(path, "rb") as f:
        kinds = [f.read(PAGE)[12] for _ in range(os.path.getsize(path) // PAGE)]
    number = [i for i, kind in enumerate(kinds) if kind == 4][30]
    change(path, number * PAGE + 9000)
    place.server.start()
    for how, status in (("QUICK", "OK"), ("", "Corrupt"), ("FAST", "Corrupt"), ("EXTENDED", "Corrupt")):
        got, problem = place.ask(f"CHECK TABLE d.l {how}")
        expect(not problem and got[-1][3] == status, f"CHECK TABLE {how}: {got} {problem}")
        expect(status == "OK" or any("tablespace" in r[3] and f"page {number}:" in r[3] for r in got),
               f"CHECK TABLE {how} names no page: {got}")
    place.good("d")


@case
def missing_tablespace(place):
    name = os.path.basename(place.file("d"))
    os.rename(place.file("d"), place.folder + "/away")
    place.server.start()
    for sql in ("SELECT COUNT(*) FROM d.t", "UPDATE d.t SET v = 'y' WHERE id = 1", "DELETE FROM d.t WHERE id = 1"):
        problem = place.ask(sql)[1]
        expect(problem and name in problem, f"{sql}: the client is not told the file: {problem}")
    place.good("e")
    place.server.stop()
    os.rename(place.folder + "/away", os.path.join(place.myriad, name))
    place.server.start()
    place.good("d")


@case
def tablespace_missing_while_a_transaction_waits_for_it(place):
    place.server.start()
    connections = {name: place.server.connect(database=name, autocommit=False) for name in "de"}
    for connection in connections.values():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (-1, 'uncommitted')")
            cursor.execute("DELETE FROM t WHERE id <= 10")

    def status(name):
        return int(place.server.query(f"SHOW GLOBAL STATUS LIKE 'Myriad_{name}'")[0][1])

    def rolling_back():
        sql = "SELECT COUNT(*) FROM information_schema.MYRIAD_TRX WHERE TRX_RECOVERED = 'YES'"
        return place.server.query(sql)[0][0]

    def at_rest():
        return status("buffer_pool_pages_dirty") == status("log_age_bytes") == 0

    expect(wait_for(at_rest), "no checkpoint at rest")
    place.server.kill()
    path = place.file("d")
    os.rename(path, place.folder + "/away")
    for _ in range(2):
        place.server.start()
        expect(wait_for(lambda: rolling_back() == 1), f"{rolling_back()} transactions are rolled back, not only that of d")
        place.good("e")
        expect(wait_for(lambda: place.log().count("cannot go on yet") == 1), "the error log does not say what waits")
        expect(os.path.basename(path) in place.log(), "the error log does not name the file")
        place.server.stop()
    os.rename(place.folder + "/away", path)
    place.server.start()
    expect(wait_for(lambda: rolling_back() == 0), "it is not rolled back with the file")
    place.good("d")


@case
def tablespace_missing_after_a_crash(place):
    path, away = place.file("d"), place.folder + "/away"
    place.server.start()

    def crash(first):
        place.server.query(f"INSERT INTO d.t SELECT seq, REPEAT('n', 200) FROM seq_{first}_to_{first + 499}", "d")
        place.server.kill()
        os.rename(path, away)
        place.server.start()
        problem = place.ask("SELECT COUNT(*) FROM d.t")[1]
        expect(problem and os.path.basename(path) in problem, f"the client is not told the file: {problem}")
        expect(wait_for(lambda: "waits for the file" in place.log()), "the error log does not tell of the file")

    # Back before the log is full.
    for stop in (place.server.stop, place.server.kill):
        crash(100000 if stop == place.server.stop else 200000)
        place.good("e")
        stop()
        os.rename(away, path)
        place.server.start()
        place.good("d", ROWS + (500 if stop == place.server.stop else 1000))
    # Too late.
    crash(300000)
    for _ in range(60):
        place.server.query("UPDATE e.t SET v = CONCAT(IF(v LIKE 'x%', 'y', 'x'), SUBSTR(v, 2)) WHERE id <= 1000", "e")
        if "too old" in place.log():
            break
    expect("too old" in place.log(), "the error log does not say that the file is given up")
    place.server.stop()
    os.rename(away, path)
    status, text = place.verify()
    expect(status != 0 and "missed changes" in text and os.path.basename(path) in text, text)
    for _ in range(2):
        place.server.start()
        expect("missed changes in an earlier recovery" in place.log(), "the error log does not tell of the file again")
        for sql in ("SELECT COUNT(*) FROM d.t", "SELECT COUNT(*) FROM d.t FORCE INDEX (v)", "INSERT INTO d.t VALUES (-7, 'new')",
                    "CREATE TABLE d.another (id INT)"):
            problem = place.ask(sql)[1]
            expect(problem and "missed changes" in problem, f"{sql}: {problem}")
        got, problem = place.ask("CHECK TABLE d.t")
        expect(problem or got[-1][3] != "OK", f"CHECK TABLE: {got}")
        place.good("e")
        place.server.stop()
    place.server.start()
    for sql in ("DROP DATABASE d", "CREATE DATABASE d", "CREATE TABLE d.t SELECT * FROM e.t"):
        problem = place.ask(sql)[1]
        expect(not problem, f"{sql}: {problem}")
    place.server.stop()
    status, text = place.verify()
    expect(status == 0, text)


@case
def page_read_wrong_in_one_start(place):
    path = place.file("d")
    number = leaf_in_use(path)
    place.server.options.append("--myriad-doublewrite=OFF")
    place.server.start()
    place.server.query("UPDATE d.t SET v = CONCAT('x', SUBSTR(v, 2))", "d")
    place.server.kill()
    change(path, number * PAGE + 9000)
    place.server.start()
    expect(wait_for(lambda: f"page {number} " in place.log()), "the error log does not name the page")
    place.server.stop()
    with open(path, "rb") as f:
        f.seek(number * PAGE)
        if f.read(13)[12] != 7:       # no lost page has taken its place: it reads well again
            change(path, number * PAGE + 9000)
    status, text = place.verify()
    expect(status != 0 and f"page {number}:" in text and "are lost" in text, text)
    place.server.start()
    problems = [place.ask(f"SELECT SUM(LENGTH(v)), MAX(id) FROM d.t FORCE INDEX ({i}) WHERE v > ''")[1]
                for i in ("PRIMARY", "v")]
    expect(any(p and f"page {number}" in p and "are lost" in p for p in problems), f"the page is used: {problems}")
    got, problem = place.ask("CHECK TABLE d.t")
    expect(problem or got[-1][3] == "Corrupt", f"CHECK TABLE: {got}")
    place.good("e")
    for sql in ("TRUNCATE d.t", "INSERT INTO d.t SELECT * FROM e.t", "DROP TABLE d.t"):
        problem = place.ask(sql)[1]
        expect(not problem, f"{sql}: {problem}")


def replaced_tablespace(place, data):
    path = place.file("d")
    with open(path, "wb") as f:
        f.write(data)
    place.found = place.verify()[0]
    place.server.start()
    problem = place.ask("SELECT COUNT(*) FROM d.t")[1]
    expect(problem and os.path.basename(path) in problem, f"the client is not told the file: {problem}")
    place.good("e")


@case
def empty_tablespace(place):
    replaced_tablespace(place, b"")
    expect(place.found, "verify finds nothing")


@case
def ten_byte_tablespace(place):
    replaced_tablespace(place, b"0123456789")
    expect(place.found, "verify finds nothing")


@case
def foreign_tablespace(place):
    other = Place()
    try:
        other.server.start()
        other.fill()
        other.server.stop()
        with open(other.file("d"), "rb") as f:
            data = f.read()
    finally:
        other.close()
    replaced_tablespace(place, data)


@case
def verify_sees_foreign_tablespace(place):
    foreign_tablespace(place)
    expect(place.found, "verify finds nothing")


@case
def directory_instead_of_tablespace(place):
    path = place.file("d")
    os.remove(path)
    os.mkdir(path)
    place.verify()
    place.server.start()
    problem = place.ask("SELECT COUNT(*) FROM d.t")[1]
    expect(problem and os.path.basename(path) in problem, f"the client is not told the file: {problem}")
    place.good("e")


@case
def truncated_tablespace(place):
    path = place.file("d")
    os.truncate(path, 8 * PAGE)
    place.server.start()
    problem = place.ask("SELECT SUM(LENGTH(v)) FROM d.t FORCE INDEX (PRIMARY)")[1]
    expect(problem and "page" in problem, f"the client is not told the page: {problem}")
    got, problem = place.ask("CHECK TABLE d.t")
    expect(problem or got[-1][3] == "Corrupt", f"CHECK TABLE: {got}")
    place.good("e")


@case
def verify_sees_missing_tablespace(place):
    os.remove(place.file("d"))
    expect(place.verify()[0] != 0, "verify finds nothing")


@case
def verify_sees_truncated_tablespace(place):
    os.truncate(place.file("d"), 8 * PAGE)
    status, text = place.verify()
    expect(status != 0 and "truncated" in text, f"verify finds nothing: {text}")


def check_options(place, mode="ONLINE", light="ON"):
    place.server.options += [f"--loose-myriad-tablespace-duplicate-check={mode}",
                             f"--loose-myriad-tablespace-duplicate-check-light={light}"]


def findings(place):
    """What the check found when it has come to its end: {(path, problem): (space id, other path, detail)}."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        state = place.server.query("SHOW GLOBAL STATUS LIKE 'Myriad_tablespace_check_running'")[0][1]
        if state == "0":
            break
        time.sleep(0.05)
    expect(state == "0", "the check does not end")
    rows = place.server.query("SELECT PATH, PROBLEM, SPACE_ID, OTHER_PATH, DETAIL, FOUND FROM information_schema.MYRIAD_TABLESPACE_CHECK")
    expect(all(r[4] and r[5] for r in rows), f"a finding says nothing: {rows}")
    return {r[:2]: r[2:5] for r in rows}


def snapshot(folder):
    """Contents of all tablespace files in and below a folder."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            if name.endswith(".myr") and name not in ("system.myr", "undo.myr") and not os.path.islink(path):
                with open(path, "rb") as f:
                    found[path] = f.read()
    return found


def with_duplicate(place, mode):
    check_options(place, mode)
    own = "#myriad/" + os.path.basename(place.file("d"))
    twin = place.myriad + "/twin.myr"
    shutil.copy(place.file("d"), twin)
    status, text = place.verify()
    expect(status == 1 and "twin.myr" in text and os.path.basename(own) in text, text)
    before = snapshot(place.myriad)
    place.server.start()
    got = findings(place)
    number = int(own.split(".")[-2])
    expect(got.keys() == {("#myriad/twin.myr", "DUPLICATE")}, f"found {got}")
    expect(got[("#myriad/twin.myr", "DUPLICATE")][:2] == (number, own), f"found {got}")
    for sql in ("SELECT COUNT(*) FROM d.t", "INSERT INTO d.t VALUES (-9, 'x')", "UPDATE d.t SET v = 'y' WHERE id = 1"):
        problem = place.ask(sql)[1]
        expect(problem and f"tablespace {number}" in problem and "twin.myr" in problem and own in problem,
               f"{sql}: the client is told {problem}")
    place.good("e")
    expect("DUPLICATE #myriad/twin.myr" in place.log(), "the error log does not name the twin")
    place.server.stop()
    after = snapshot(place.myriad)
    expect(all(after[p] == before[p] for p in before if p != place.file("e")), "a suspicious file was written to")
    place.server.start()
    findings(place)
    expect(place.ask("SELECT COUNT(*) FROM d.t")[1], "d.t can be used")
    os.remove(twin)
    place.good("d")


@case
def duplicate_tablespace(place):
    with_duplicate(place, "ONLINE")


@case
def duplicate_tablespace_blocking(place):
    with_duplicate(place, "BLOCKING")


@case
def duplicate_tablespace_unchecked(place):
    check_options(place, "OFF")
    shutil.copy(place.file("d"), place.myriad + "/twin.myr")
    place.server.start()
    expect(not findings(place), "OFF finds something")
    place.good("d")


@case
def directory_copied_into_itself(place):
    names = {n for n in os.listdir(place.myriad) if n.endswith(".myr")}
    shutil.copytree(place.myriad, place.folder + "/copy")
    os.rename(place.folder + "/copy", place.myriad + "/copy")
    before = snapshot(place.myriad)
    place.server.start()
    got = findings(place)
    expect(got.keys() == {(f"#myriad/copy/{n}", "DUPLICATE") for n in names}, f"found {got}")
    for database in "de":
        problem = place.ask(f"SELECT COUNT(*) FROM {database}.t")[1]
        expect(problem and "#myriad/copy/" in problem, f"the client is told {problem}")
    place.server.query("CREATE DATABASE g")
    place.server.query("CREATE TABLE g.t (a INT PRIMARY KEY)")
    place.server.query("INSERT INTO g.t VALUES (1)")
    place.server.stop()
    after = snapshot(place.myriad)
    expect(all(after[p] == before[p] for p in before), "a suspicious file was written to")
    shutil.rmtree(place.myriad + "/copy")
    place.server.start()
    expect(not findings(place), "something is found that is not there")
    place.good("d")
    place.good("e")


@case
def two_servers_mixed(place):
    other = Place()
    try:
        other.server.start()
        other.fill()
        other.server.stop()
        for name in os.listdir(other.myriad):
            if name.endswith(".myr"):
                shutil.copy(os.path.join(other.myriad, name), os.path.join(place.myriad, "other-" + name))
        shutil.copy(other.file("d"), place.file("d"))
    finally:
        other.close()
    before = snapshot(place.myriad)
    place.server.start()
    got = findings(place)
    expect({p for _, p in got} == {"FOREIGN"} and len(got) == 5, f"found {got}")
    problem = place.ask("SELECT COUNT(*) FROM d.t")[1]
    expect(problem and os.path.basename(place.file("d")) in problem and "another data directory" in problem, f"the client is told {problem}")
    place.good("e")
    place.server.stop()
    after = snapshot(place.myriad)
    expect(all(after[p] == before[p] for p in before if p != place.file("e")), "a foreign file was written to")


@case
def missing_and_moved_tablespaces_are_listed(place):
    own = "#myriad/" + os.path.basename(place.file("d"))
    os.rename(place.file("d"), place.myriad + "/elsewhere.myr")
    place.server.start()
    got = findings(place)
    expect(got.keys() == {(own, "MISSING"), ("#myriad/elsewhere.myr", "MOVED")}, f"found {got}")
    expect(got[("#myriad/elsewhere.myr", "MOVED")][1] == own, f"found {got}")
    expect("missing" in place.ask("SELECT * FROM d.t")[1], "the client is not told")
    place.good("e")
    os.rename(place.myriad + "/elsewhere.myr", place.server.datadir + "/" + own)
    place.good("d")


@case
def replaced_by_an_older_copy(place):
    """An older copy has the same header, so it cannot be told from it; nothing but its own database may suffer."""
    with open(place.file("d"), "rb") as f:
        old = f.read()
    place.server.start()
    place.server.query("INSERT INTO d.t SELECT seq, REPEAT('n', 200) FROM seq_100000_to_110000", "d")
    place.server.stop()
    with open(place.file("d"), "wb") as f:
        f.write(old)
    place.server.start()
    findings(place)
    place.ask("SELECT COUNT(*) FROM d.t")
    place.ask("CHECK TABLE d.t")
    expect(place.server.alive(), "the server ended")
    place.good("e")


def cut(place, light):
    check_options(place, light=light)
    os.truncate(place.file("d"), 8 * PAGE)
    os.truncate(place.file("e"), 9000)
    place.server.start()
    got = findings(place)
    names = {os.path.basename(p)[0]: q for p, q in got}
    expect(names == {"d": "TRUNCATED", "e": "TRUNCATED"}, f"found {got}")


@case
def cut_tablespaces_are_listed(place):
    cut(place, "ON")


@case
def cut_tablespaces_are_listed_with_whole_pages(place):
    cut(place, "OFF")


@case
def strange_names_and_files(place):
    raw = os.fsencode(place.myriad)
    shutil.copy(place.file("e"), raw + b"/caf\xe9.myr")
    os.symlink(place.file("d"), place.myriad + "/link.myr")
    os.symlink(place.myriad, place.myriad + "/loop")
    os.mkfifo(place.myriad + "/pipe.myr")
    with open(place.myriad + "/empty.myr", "wb"), open(place.myriad + "/ten.myr", "wb") as ten:
        ten.write(b"0123456789")
    for i in range(5000):
        with open(f"{place.myriad}/noise{i}.txt", "wb"):
            pass
    before = sorted(os.listdir(raw))
    place.server.start()
    got = findings(place)
    expect(got.keys() == {("#myriad/caf\\xE9.myr", "DUPLICATE"), ("#myriad/link.myr", "LINK"), ("#myriad/pipe.myr", "DAMAGED"),
                          ("#myriad/empty.myr", "DAMAGED"), ("#myriad/ten.myr", "DAMAGED")}, f"found {got}")
    place.good("d")
    expect(place.ask("SELECT COUNT(*) FROM e.t")[1], "a table with a twin can be used")
    os.remove(raw + b"/caf\xe9.myr")
    place.good("e")
    place.server.stop()
    before.remove(b"caf\xe9.myr")
    expect(sorted(os.listdir(raw)) == before, "files came or went")
    status, text = place.verify()
    expect(status == 1 and "ten.myr" in text, text)


@case
def other_format_version(place):
    path = place.myriad + "/FORMAT"
    with open(path) as f:
        text = f.read()
    with open(path, "w") as f:
        f.write(text.replace("myriad 2\n", "myriad 99\n"))
    place.refused("99")
    with open(path, "w") as f:
        f.write(text)
    place.server.start()
    place.good("d")


@case
def one_log_header_damaged(place):
    change(place.myriad + "/redo.log", 20)
    place.server.start()
    place.good("d")


@case
def both_log_headers_damaged(place):
    for offset in (20, 4096 + 20):
        change(place.myriad + "/redo.log", offset)
    place.refused("redo.log")


@case
def missing_log(place):
    os.remove(place.myriad + "/redo.log")
    place.refused("redo.log")


@case
def missing_system_tablespace(place):
    os.remove(place.myriad + "/system.myr")
    place.refused("system.myr")


def damage_undo_tails(place):
    """Damages the last page of each undo slot; their numbers."""
    path = place.myriad + "/undo.myr"
    with open(path, "rb") as f:
        f.seek(PAGE)
        directory = f.read(PAGE)
    number = int.from_bytes(directory[52:56], "little")
    tails = [int.from_bytes(directory[68 + 8 * slot:72 + 8 * slot], "little") for slot in range(number)]
    tails = [tail for tail in tails if tail != 0xffffffff]
    expect(tails, "no undo slot has a page")
    for tail in tails:
        change(path, tail * PAGE + 9000)
    return tails


@case
def damaged_undo_pages_after_a_clean_stop(place):
    """Every transaction had ended: nothing is missing, and nobody has to say anything."""
    place.server.start()
    place.server.query("UPDATE e.t SET v=CONCAT(v, 'x') WHERE id <= 100")
    place.server.stop()
    tails = damage_undo_tails(place)
    status, text = place.verify()
    expect(status != 0 and all(f"page {tail}:" in text for tail in tails) and "catalog cannot" not in text, text)
    for _ in range(2):
        place.server.start()
        place.good("d")
        place.good("e")
        place.server.query("UPDATE e.t SET v=CONCAT(v, 'y') WHERE id <= 100")
        expect("every transaction in it had ended" in place.log(), "the error log does not tell of the slot")
        place.server.stop()


@case
def damaged_undo_pages_in_doubt(place):
    """A transaction had not ended: refused, unless the DBA says that its changes may look committed."""
    place.server.start()
    connection = place.server.connect(database="e")
    for sql in ("XA START 'x'", "INSERT INTO t VALUES (-1, 'prepared')", "XA END 'x'", "XA PREPARE 'x'"):
        connection.cursor().execute(sql)
    place.server.stop()
    damage_undo_tails(place)
    for _ in range(2):
        place.refused("myriad_force_recovery=1", "undo slot")
        place.server.options.append("--loose-myriad-force-recovery=1")
        place.server.start()
        expect("Dump all tables" in place.log(), "the error log does not say what to do")
        expect(place.ask("XA RECOVER") == ((), None), "a transaction is listed of which nothing is known")
        expect(place.ask("SELECT v FROM t WHERE id = -1") == ((("prepared",),), None), "what it looks like is not as told")
        place.good("d")
        place.server.stop()
        place.server.options.remove("--loose-myriad-force-recovery=1")


def spoil_catalog(path):
    """Damages the pages of system.myr; what the file held. Pages that the server has in memory stay good."""
    with open(path, "rb") as f:
        good = f.read()
    bad = bytearray(good)
    for at in range(2 * PAGE, len(bad), PAGE):
        bad[at + 200:at + 300] = b"\xaa" * 100
    change(path, 0, bad)
    return good


@case
def unreadable_foreign_keys(place):
    """A parent whose children cannot be looked up in the catalog is not taken for one that has none."""
    place.server.start()
    place.server.query("CREATE TABLE d.p (id INT PRIMARY KEY)")
    place.server.query("CREATE TABLE d.c (p INT, FOREIGN KEY (p) REFERENCES d.p (id))")
    place.server.query("INSERT INTO d.p VALUES (1), (2)")
    place.server.query("INSERT INTO d.c VALUES (1)")
    # Enough for pages that hold nothing but entries of foreign keys.
    for name in "az":
        place.server.query(f"CREATE DATABASE {name}")
        place.server.query(f"CREATE TABLE {name}.p (id INT PRIMARY KEY)")
        for i in range(400):
            place.server.query(f"CREATE TABLE {name}.a_long_name_of_a_table_{i} (p INT, FOREIGN KEY (p) REFERENCES {name}.p (id))")
    place.server.restart()
    place.server.query("SELECT * FROM d.p JOIN d.c")
    path = place.myriad + "/system.myr"
    good = spoil_catalog(path)
    problems = [place.ask(sql)[1] for sql in
                ("DELETE FROM d.p WHERE id = 1", "UPDATE d.p SET id = 3", "DROP TABLE d.p", "DROP DATABASE d")]
    change(path, 0, good)
    expect(all(problems), f"a statement passed: {problems}")
    expect("page" in problems[0], f"the client is not told the page: {problems[0]}")
    got, problem = place.ask("DELETE FROM d.p WHERE id = 1")
    expect(problem and "1451" in problem, f"the child is not seen afterwards: {got} {problem}")
    got, problem = place.ask("SHOW CREATE TABLE d.c")
    expect("REFERENCES `p`" in got[0][1], f"the foreign key is not shown: {got} {problem}")


@case
def unreadable_list_of_tables(place):
    """A database whose tables the catalog cannot list is not dropped, and not said to be."""
    place.server.start()
    for name in "amz":
        place.server.query(f"CREATE DATABASE {name}")
        for i in range(400):
            place.server.query(f"CREATE TABLE {name}.a_long_name_of_a_table_{i} (id INT PRIMARY KEY)")
    place.server.restart()
    path = place.myriad + "/system.myr"
    good = spoil_catalog(path)
    problems = [place.ask(sql)[1] for sql in ("SHOW TABLES FROM m", "DROP DATABASE m", "DROP DATABASE IF EXISTS m")]
    change(path, 0, good)
    expect(all(problem and "page" in problem for problem in problems), f"the client is not told the page: {problems}")
    got, problem = place.ask("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'm'")
    expect(got and got[0][0] == 400, f"tables are gone: {got} {problem}")
    got, problem = place.ask("DROP DATABASE m")
    expect(not problem, f"DROP DATABASE: {problem}")


def inserted(place, rows=300):
    """Acknowledged single-row commits after the start, then SIGKILL."""
    place.server.start()
    connection = place.server.connect(database="e")
    with connection, connection.cursor() as cursor:
        for i in range(rows):
            cursor.execute("INSERT INTO t VALUES (%s, %s)", (100000 + i, f"late{i}"))
    place.server.kill()


def log_end(place):
    """File offset behind the last byte of the log that is not zero (the ring has not wrapped yet)."""
    with open(place.myriad + "/redo.log", "rb") as f:
        return len(f.read().rstrip(b"\0"))


def damaged_tail(place, damage):
    """Rows behind the damage may be missing, but what is there is a prefix of the commits, and nothing is half there."""
    inserted(place)
    end = log_end(place)
    damage(place.myriad + "/redo.log", end)
    try:
        place.server.start()
    except server.ServerError:
        expect("do not belong together" in place.log(), f"refused without a reason: {place.server.why()}")
        return
    got, problem = place.ask("SELECT COUNT(*), MAX(id) FROM t WHERE id >= 100000")
    if problem:
        expect("page" in problem and "log ended" in place.log(), f"neither rows nor a clear error: {problem}")
        return
    count, last = got[0]
    expect(count == 0 or last == 100000 + count - 1, f"{count} rows up to {last} are no prefix")
    place.good("e", ROWS + count)
    place.good("d")


@case
def flipped_bit_in_log_tail(place):
    damaged_tail(place, lambda path, end: change(path, end - 40))


@case
def torn_log_tail(place):
    damaged_tail(place, lambda path, end: change(path, end - 3000, b"\0" * 3000))


@case
def garbage_behind_log_tail(place):
    inserted(place)
    end = (log_end(place) + 4096) // 8 * 8
    change(place.myriad + "/redo.log", end, os.urandom(5000))
    place.server.start()
    place.good("e", ROWS + 300)


@case
def truncated_log_file(place):
    inserted(place)
    path = place.myriad + "/redo.log"
    os.truncate(path, log_end(place) // 4096 * 4096)
    try:
        place.server.start(30)
    except server.ServerError:
        expect("redo.log" in place.log() and place.server.process.returncode == 1,
               f"refused without a reason: {place.server.why()}")
        return
    expect(place.ask("SELECT COUNT(*) FROM d.t")[1] is None, "d.t cannot be read")


@case
def torn_page_is_restored(place):
    """After SIGKILL every copy of the doublewrite file whose page could be torn brings the page back."""
    place.server.options.append("--loose-myriad-io-capacity=20000")
    place.server.start()
    connection = place.server.connect(database="d")
    with connection, connection.cursor() as cursor:
        for i in range(3):
            cursor.execute("UPDATE t SET v = CONCAT(v, %s) WHERE MOD(id, 3) = %s", (i, i))
            time.sleep(0.4)
        cursor.execute("SELECT COUNT(*), SUM(CRC32(CONCAT(id, v))) FROM t")
        before = cursor.fetchall()
    place.server.kill()
    with open(place.myriad + "/doublewrite", "rb") as f:
        data = f.read()
    path, number = place.file("d"), int(os.path.basename(place.file("d")).split(".")[1])
    torn = 0
    for offset in range(0, len(data) - PAGE + 1, 4096):
        page = data[offset:offset + PAGE]
        if int.from_bytes(page[8:12], "little") == number and page[12] == 3:
            at = int.from_bytes(page[4:8], "little") * PAGE
            with open(path, "r+b") as f:
                f.seek(at)
                if f.read(PAGE) == page and torn < 4:      # the copy is the page's newest
                    f.seek(at + PAGE // 2)
                    f.write(b"\0" * (PAGE // 2))
                    torn += 1
    expect(torn, "the doublewrite file holds no page that could be torn")
    place.server.start()
    got, problem = place.ask("SELECT COUNT(*), SUM(CRC32(CONCAT(id, v))) FROM d.t FORCE INDEX (PRIMARY)")
    expect(got == before, f"{torn} pages torn: {before} became {got} {problem}")
    place.good("d")


@case
def second_server(place):
    place.server.start()
    second = Place()
    try:
        shutil.rmtree(second.myriad, ignore_errors=True)
        os.symlink(place.myriad, second.myriad)
        # It has waited for the first to go.
        second.refused("another process", seconds=90)
        place.good("d")
    finally:
        os.unlink(second.myriad)
        second.close()


@case
def folder_locked_for_a_while(place):
    """By a server that was killed and is not gone yet, or by who reads the folder."""
    with open(place.myriad + "/myriad.lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(3, fcntl.flock, (held, fcntl.LOCK_UN)).start()
        expect(place.server.start(30) > 2, "the lock was not held")
    expect("waiting up to 30 s" in place.log(), "the log does not say that it waited")
    place.good("d")


@case
def no_server_without_the_engine(place):
    """Also where another engine is the default: it would forget what its binary log has of prepared transactions."""
    os.rename(place.myriad + "/FORMAT", place.folder + "/FORMAT")
    place.server.options += ["--default-storage-engine=InnoDB"]
    place.refused("cannot start")
    os.rename(place.folder + "/FORMAT", place.myriad + "/FORMAT")
    os.rename(place.myriad + "/redo.log", place.folder + "/redo.log")
    place.refused("cannot start", "must not go on without the engine")
    os.rename(place.folder + "/redo.log", place.myriad + "/redo.log")
    place.server.start()
    place.good("d")


@case
def unknown_files(place):
    for name in ("what.txt", "d.999.myr", "x.myr"):
        with open(os.path.join(place.myriad, name), "wb") as f:
            f.write(b"nothing of ours")
    place.server.start()
    place.good("d")
    expect(os.path.exists(place.myriad + "/what.txt"), "a file that is not ours was removed")


@case
def folder_without_format(place):
    os.remove(place.myriad + "/FORMAT")
    place.refused("FORMAT")
    expect(os.path.exists(place.file("d")), "the start removed a data file")


def on_small_disk(megabytes):
    place = Place(disk=f"{megabytes}m")
    try:
        place.server.start()
        place.fill()
    except BaseException:
        place.close()
        raise
    return place


@case
def read_only_directory(_):
    place = on_small_disk(64)
    try:
        place.server.stop()
        subprocess.run(["mount", "-o", "remount,ro", place.myriad], check=True)
        place.refused("ead-only")
        subprocess.run(["mount", "-o", "remount,rw", place.myriad], check=True)
        place.server.start()
        place.good("d")
    finally:
        place.close()


def fill_up(filler):
    """Writes the file until there is no room."""
    with open(filler, "wb", buffering=0) as f:
        try:
            while f.write(b"x" * 4096) == 4096:
                pass
        except OSError:
            pass


@case
def full_disk(_):
    place = on_small_disk(64)
    try:
        load = Load(place)
        time.sleep(0.5)
        fill_up(place.myriad + "/filler")
        told = wait_for(lambda: load.errors)
        expect(place.server.alive(), f"the server ended: {place.server.why()}")
        expect(told, "15 s of inserts on a full disk and no error")
        expect(load.errors[0].args[0] in (1021, 1114), f"unclear error: {load.errors[0]}")
        got, problem = place.ask("SELECT COUNT(*) FROM e.t")
        expect(not problem and got[0][0] == ROWS, f"reads fail on a full disk: {problem}")
        expect("MYRIAD: no space left on device for " in place.log(), "the error log does not tell of the full disk")
        os.remove(place.myriad + "/filler")
        before = len(load.acknowledged)
        expect(wait_for(lambda: len(load.acknowledged) >= before + 100), f"no work after room was made: {load.errors[-1]}")
        place.server.kill()
        load.end()
        place.server.start()
        found = load.check()
        expect(len(found - load.acknowledged) <= 2 + len(load.errors), "rows that were never acknowledged")
    finally:
        place.close()


@case
def full_disk_in_copy(_):
    """An ALTER TABLE that copies: no room for what it sorts, none for the copy, and room again."""
    place = on_small_disk(64)
    folder = os.path.join(place.folder, "tmp")
    filler = os.path.join(place.myriad, "filler")
    copies = ["ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v), ALGORITHM=COPY", "ALTER TABLE t FORCE, ALGORITHM=COPY"]
    try:
        os.mkdir(folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], check=True)
        place.server.options += [f"--tmpdir={folder}", "--loose-myriad-sort-buffer-size=1048576"]
        place.server.restart()
        place.ask("UPDATE t SET v = CONCAT(v, id * 7919 MOD 10007, REPEAT('x', 100))")
        for where in (folder, place.myriad):
            if where == place.myriad:
                expect(f"no space left on device for {folder}" in place.log(), "the error log does not tell which disk is full")
                subprocess.run(["mount", "-o", "remount,size=32m", folder], check=True)
                fill_up(filler)
            for sql in copies:
                _, problem = place.ask(sql)
                expect(place.server.alive(), f"the server ended: {place.server.why()}")
                expect(problem and any(f"({code}," in problem for code in (1021, 1114)), f"{where}: {sql}: {problem}")
                got, problem = place.ask("SELECT COUNT(*), COUNT(DISTINCT v) FROM t FORCE INDEX (v)")
                expect(not problem and got[0] == (ROWS, ROWS), f"{sql}: {got} {problem}")
                expect(os.listdir(folder) == [], f"{sql}: temporary files stay: {os.listdir(folder)}")
        os.remove(filler)
        for sql in copies:
            _, problem = place.ask(sql)
            expect(not problem, f"{sql} with room: {problem}")
        place.good("e")
    finally:
        place.server.kill()
        subprocess.run(["umount", "-l", folder], capture_output=True)
        place.close()


@case
def full_disk_in_partitions(place):
    """Partitions put together where the server has no room for the new .frm file: the table stays."""
    server_, folder = place.server, os.path.join(place.server.datadir, "p")
    server_.start()
    server_.query("CREATE DATABASE p")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        raise Skipped("cannot mount: " + mounted.stderr.strip())
    filler = os.path.join(folder, "filler")
    try:
        make = "CREATE TABLE %s (id INT PRIMARY KEY, v INT) ENGINE=MYRIAD PARTITION BY HASH (id) PARTITIONS 10"
        # The server's log of such changes gets its room first.
        for statement in (make % "z", *["ALTER TABLE z COALESCE PARTITION 2"] * 3, "DROP TABLE z", make % "t",
                          "INSERT INTO t SELECT seq, seq FROM seq_1_to_1000"):
            server_.query(statement, "p")
        fill_up(filler)
        _, problem = place.ask("ALTER TABLE t COALESCE PARTITION 2", "p")
        expect(problem, "no room for the .frm file and no error")
        os.remove(filler)
        for again in (False, True):
            got, problem = place.ask("SELECT COUNT(*), SUM(v) FROM t", "p")
            expect(not problem and got[0] == (1000, 500500), f"{got} {problem}")
            if not again:
                server_.kill()
                server_.start()
        for statement in ("ALTER TABLE t COALESCE PARTITION 2", "DROP TABLE t", make % "t", "DROP TABLE t"):
            server_.query(statement, "p")
    finally:
        server_.kill()
        subprocess.run(["umount", "-l", folder], capture_output=True)


def run_cases(cases, names, title, known_gaps=False):
    """Runs the cases (those in `names`, or all), each in a place of its own; the status of the process."""
    passed = failed = 0
    template = Place()
    template.server.start()
    template.fill()
    template.server.stop()
    for function in cases:
        if names and function.__name__ not in names:
            continue
        gap = getattr(function, "known_gap", None)
        if gap and not names and not known_gaps:
            print(f"  known gap, not run: {function.__name__}: {gap}", flush=True)
            continue
        place, begin = None, time.monotonic()
        try:
            place = Place(template)
            function(place)
            expect(place.server.process is None or "signal" not in place.log(), "the server crashed")
            passed += 1
            print(f"  ok {function.__name__} {time.monotonic() - begin:.1f} s", flush=True)
        except Skipped as why:
            print(f"  skipped {function.__name__}: {why}", flush=True)
        except Exception as problem:
            failed += 1
            where = traceback.extract_tb(problem.__traceback__)[1 if len(traceback.extract_tb(problem.__traceback__)) > 1 else 0]
            print(f"  FAILED {function.__name__} (line {where.lineno}): {type(problem).__name__}: {problem}", flush=True)
        finally:
            if place:
                place.close()
    template.close()
    print(f"{title} on MYRIAD: {passed} passed, {failed} failed")
    return failed > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help="names of cases; all without")
    parser.add_argument("--known-gaps", action="store_true", help="also the cases that are known to fail")
    args = parser.parse_args()
    return run_cases(CASES, args.cases, "faults", args.known_gaps)


if __name__ == "__main__":
    server.main_guard(main)
