"""Data directories to damage, and the cases that do it: what tests of faults share."""
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "scripts"), os.path.join(ROOT, "tests", "format")]
import pymysql  # noqa: E402
import server  # noqa: E402
from server import wait_for  # noqa: E402, F401

PAGE = 16384
ROWS = 5000
# Without the warm-up: a case decides itself which tablespaces have been used.
LOG_BYTES = 16 << 20
OPTIONS = [f"--loose-myriad-log-capacity={LOG_BYTES}", "--loose-myriad-buffer-pool-warm-up=OFF", "--skip-log-bin"]
CASES = []


class Skipped(Exception):
    """The machine cannot do this case."""


def case(function):
    CASES.append(function)
    return function


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

    def metric(self, name):
        return int(self.ask(f"SELECT value FROM information_schema.myriad_metrics WHERE name = '{name}'")[0][0][0])

    def good(self, database="e", rows=ROWS):
        """The database's table reads whole, can be written, and CHECK TABLE finds nothing."""
        for index in ("PRIMARY", "v"):
            got, problem = self.ask(f"SELECT COUNT(*) FROM {database}.t FORCE INDEX ({index})")
            expect(not problem and got[0][0] == rows, f"{database}.t by {index}: {got} {problem}")
        got, problem = self.ask(f"CHECK TABLE {database}.t EXTENDED")
        expect(not problem and got[-1][3] == "OK", f"CHECK TABLE {database}.t EXTENDED: {got} {problem}")
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
            thread.join(60)
            expect(not thread.is_alive(), "a client hangs")

    def check(self):
        """After a restart: everything acknowledged is there, and nothing that was never asked for. The keys found."""
        found = {row[0] for row in self.place.server.query("SELECT id FROM d.t WHERE id >= 1000000")}
        expect(not self.acknowledged - found, f"{len(self.acknowledged - found)} acknowledged rows are lost")
        expect(not found - self.tried, "rows that nobody inserted")
        self.place.good("d", ROWS + len(found))
        self.place.good("e")
        return found


def change(path, offset, data=None):
    """Writes `data` at `offset`, or flips one bit of the byte there."""
    with open(path, "r+b") as f:
        f.seek(offset)
        if data is None:
            data = bytes([f.read(1)[0] ^ 4])
            f.seek(offset)
        f.write(data)


def run_cases(names, title):
    """Runs the cases (those in `names`, or all), each in a place of its own; the status of the process."""
    server.check_named(names, {function.__name__ for function in CASES})
    passed = failed = 0
    template = Place()
    template.server.start()
    template.fill()
    template.server.stop()
    for function in CASES:
        if names and function.__name__ not in names:
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
            frames = traceback.extract_tb(problem.__traceback__)
            where = frames[min(1, len(frames) - 1)]
            print(f"  FAILED {function.__name__} (line {where.lineno}): {type(problem).__name__}: {problem}", flush=True)
        finally:
            if place:
                place.close()
    template.close()
    print(f"{title} on MYRIAD: {passed} passed, {failed} failed")
    return failed > 0
