#!/usr/bin/python3
"""Runs isolation specs on InnoDB and on Myriad side by side: rows, errors and who waits must be the same.

A spec (specs/*.spec) holds a `setup { SQL }`, sessions with steps, and the orders to run them in:

    setup { CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1); }
    session s1
      setup { SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; }
      step b1 { BEGIN; }
      step u1 { UPDATE t SET a = 2; }
    session s2
      step r2 { SELECT * FROM t; }
    permutation b1 u1 r2
    permutation all

`permutation all` means every interleaving that keeps each session's own order. A step that does not finish is reported
as waiting, and reported again when it has finished. `u1!` in a permutation waits until u1 has finished (for time-outs).
A step of a session that is still waiting first waits for the earlier one. In SQL, $DB is the database of the run,
$WAIT the engine's lock wait timeout variable, $SNAPSHOT its snapshot_isolation, and $ID(s1) the connection id of session s1; `\\;` ends a statement within a
routine.

A step counts as waiting when the kernel shows its server thread asleep, without a tick of CPU, in sample after sample. On
a busy machine one that waits for the disk can look like that: outcomes that differ in nothing but who waited are looked at
again, on both engines and for longer, and that counts.
"""
import argparse
import concurrent.futures
import difflib
import itertools
import os
import queue
import re
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts"))
import pymysql  # noqa: E402
import server  # noqa: E402

ASLEEP_SAMPLES = 12      # consecutive samples asleep that make a wait
ASLEEP_SAMPLES_AGAIN = 100   # the same, where the engines differed in who waited
SAMPLE_SECONDS = 0.012
LOCK_WAIT_SECONDS = 100  # where a spec says nothing: longer than a busy device stands still
STEP_SECONDS_MAX = 120   # a step that has not finished by then has hung
PERMUTATIONS_MAX = 80


class Spec:
    """A parsed spec file."""

    def __init__(self, path):
        self.name = os.path.basename(path)[:-5]
        self.setup, self.sessions, self.session_setup, self.steps, self.orders = "", [], {}, {}, []
        self.teardown = ""
        with open(path) as f:
            text = re.sub(r"(?m)^\s*#.*$", "", f.read())
        token = re.compile(r"\s*(?:(setup|teardown)\s*\{(.*?)\}|session\s+(\w+)|step\s+(\w+)\s*\{(.*?)\}"
                           r"|permutation[ \t]+([^\n]*))", re.S)
        at = 0
        while text[at:].strip():
            found = token.match(text, at)
            if not found:
                raise server.ServerError(f"{path}: cannot read {text[at:at + 60].strip()!r}")
            at = found.end()
            block, sql, session, step, step_sql, order = found.groups()
            if block and self.sessions:
                self.session_setup[self.sessions[-1]] = sql
            elif block == "setup":
                self.setup = sql
            elif block:
                self.teardown = sql
            elif session:
                self.sessions.append(session)
            elif step:
                if step in self.steps:
                    raise server.ServerError(f"{path}: step {step} appears twice")
                self.steps[step] = (self.sessions[-1], step_sql)
            elif order:
                self.orders.append(order.split())
        self.orders = [each for order in self.orders or [["all"]] for each in self.expand(order)]
        for order in self.orders:
            for step in order:
                if step.rstrip("!") not in self.steps:
                    raise server.ServerError(f"{path}: no step {step}")
        if len(self.orders) > PERMUTATIONS_MAX:
            raise server.ServerError(f"{path}: {len(self.orders)} permutations, {PERMUTATIONS_MAX} at most")

    def expand(self, order):
        if order != ["all"]:
            return [order]
        lanes = [[s for s, (session, _) in self.steps.items() if session == name] for name in self.sessions]
        owners = [i for i, lane in enumerate(lanes) for _ in lane]
        result = []
        for pattern in sorted(set(itertools.permutations(owners))) if len(owners) <= 8 else []:
            rest = [iter(lane) for lane in lanes]
            result.append([next(rest[i]) for i in pattern])
        return result


def statements(sql):
    return [s.strip().replace("\\;", ";") for s in re.split(r"(?<!\\);", sql) if s.strip()]


class Session:
    """One connection with a thread that runs its steps."""

    def __init__(self, srv, database, asleep_samples):
        self.asleep_samples = asleep_samples
        self.connection = srv.connect(database=database)
        self.connection_id = self.connection.thread_id()
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT TID FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()")
            self.stat_path = f"/proc/{srv.process.pid}/task/{cursor.fetchone()[0]}/stat"
        self.work = queue.Queue()
        self.pending = None                 # name of the step that runs
        self.finished = threading.Event()
        self.outcome = None
        self.thread = threading.Thread(target=self.loop, daemon=True)
        self.thread.start()

    def loop(self):
        while True:
            sql = self.work.get()
            if sql is None:
                return
            self.outcome = self.execute(sql)
            self.finished.set()

    def execute(self, sql):
        lines = []
        for statement in sql:
            try:
                with self.connection.cursor() as cursor:
                    cursor.execute(statement)
                    if cursor.description:
                        rows = cursor.fetchall()
                        lines.append(" ".join("(" + ",".join(show(v) for v in row) + ")" for row in rows) or "(no rows)")
                    elif cursor.rowcount:
                        lines.append(f"{cursor.rowcount} affected")
            except pymysql.err.MySQLError as problem:
                code = problem.args[0] if problem.args else type(problem).__name__
                detail = f" {problem.args[1]}" if code == 1062 else ""
                lines.append(f"error {code}{detail}")
                break
        return "; ".join(lines) or "ok"

    def begin(self, name, sql):
        self.pending = name
        self.finished.clear()
        self.work.put(sql)

    def thread_state(self):
        with open(self.stat_path) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return fields[0], fields[11], fields[12]

    def settle(self):
        """Waits until the step has finished (True) or waits for something (False)."""
        before, count, begin = None, 0, time.monotonic()
        while time.monotonic() - begin < STEP_SECONDS_MAX:
            if self.finished.wait(SAMPLE_SECONDS):
                return True
            try:
                state = self.thread_state()
            except OSError:
                return self.finished.wait(1)     # the connection is gone: it will say so
            count = count + 1 if state[0] == "S" and state == before else 0
            before = state
            if count >= self.asleep_samples:
                return False
        return self.finished.is_set()

    def close(self):
        self.work.put(None)
        try:
            self.connection.close()
        except pymysql.err.Error:
            pass


def show(value):
    return "NULL" if value is None else value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class Runner:
    """Runs the permutations of a spec on one server."""

    def __init__(self, srv, engine):
        self.numbers = itertools.count()
        self.srv, self.prefix = srv, engine.lower()

    def sql(self, text, database, sessions):
        text = text.replace("$DB", database).replace("$WAIT", f"{self.prefix}_lock_wait_timeout")
        text = text.replace("$SNAPSHOT", f"{self.prefix}_snapshot_isolation")
        text = re.sub(r"\$ID\((\w+)\)", lambda m: str(sessions[m[1]].connection_id), text)
        return statements(text)

    def run(self, spec):
        """The outcome of each permutation, as lists of lines."""
        return [self.permutation(spec, order) for order in spec.orders]

    def permutation(self, spec, order, asleep_samples=ASLEEP_SAMPLES):
        database = f"iso{next(self.numbers)}"
        control = self.srv.connect()
        sessions, lines = {}, []
        try:
            with control.cursor() as cursor:
                cursor.execute(f"DROP DATABASE IF EXISTS {database}")
                cursor.execute(f"CREATE DATABASE {database}")
                cursor.execute(f"USE {database}")
                for statement in self.sql(spec.setup, database, sessions):
                    cursor.execute(statement)
            sessions = {name: Session(self.srv, database, asleep_samples) for name in spec.sessions}
            for name, session in sessions.items():
                result = session.execute(self.sql(spec.session_setup.get(name, ""), database, sessions))
                if "error" in result:
                    lines.append(f"setup of {name}: {result}")
            for step in order:
                self.step(spec, step, database, sessions, lines)
            for session in sessions.values():            # what still waits is rolled back by its end
                if session.pending:
                    lines.append(f"{session.pending}: never finished")
        finally:
            with control.cursor() as cursor:
                for session in sessions.values():
                    try:
                        if session.pending:
                            cursor.execute(f"KILL {session.connection_id}")
                            session.finished.wait(STEP_SECONDS_MAX)
                    except pymysql.err.MySQLError:
                        pass
                    session.close()
                deadline = time.monotonic() + 60         # locks of a closed connection go a moment later
                ids = ",".join(str(s.connection_id) for s in sessions.values()) or "0"
                while time.monotonic() < deadline:
                    cursor.execute(f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID IN ({ids})")
                    if not cursor.fetchone()[0]:
                        break
                    time.sleep(0.01)
                for statement in self.sql(spec.teardown, database, sessions):
                    try:
                        cursor.execute(statement)
                    except pymysql.err.MySQLError:
                        pass
                cursor.execute("SET SESSION lock_wait_timeout = 10")
                cursor.execute(f"DROP DATABASE IF EXISTS {database}")
            control.close()
        return lines

    def step(self, spec, step, database, sessions, lines):
        name = step.rstrip("!")
        owner, sql = spec.steps[name]
        session = sessions[owner]
        if session.pending:                              # its earlier step must finish first
            if not session.finished.wait(STEP_SECONDS_MAX):
                lines.append(f"{name}: not run, {session.pending} hangs")
                return
            self.collect(sessions, lines)
        statements = self.sql(sql, database, sessions)
        session.begin(name, statements)
        # The end of a transaction waits for no lock; a busy disk must not look like one.
        ends = all(s.strip().upper() in ("COMMIT", "ROLLBACK") for s in statements)
        done = session.finished.wait(STEP_SECONDS_MAX) if step.endswith("!") or ends else session.settle()
        if not done:
            lines.append(f"{name}: waiting")
        self.collect(sessions, lines, first=session)

    def collect(self, sessions, lines, first=None):
        """Reports the steps that have finished: the one just begun, then those it set free."""
        again = True
        while again:
            again = False
            for session in ([first] if first else []) + [s for s in sessions.values() if s is not first]:
                if session.pending and session.settle():
                    lines.append(f"{session.pending}: {session.outcome}")
                    session.pending, again = None, True


def without_waits(lines):
    return sorted(line for line in lines if not line.endswith(": waiting"))


def compare(spec, runners):
    """Runs `spec` on both engines at once; returns the number of permutations and the differences."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ours = pool.submit(runners[1].run, spec)
        reference = runners[0].run(spec)
        ours = ours.result()
    problems = []
    for order, expected, actual in zip(spec.orders, reference, ours):
        if expected != actual and without_waits(expected) == without_waits(actual):
            expected, actual = [r.permutation(spec, order, ASLEEP_SAMPLES_AGAIN) for r in runners]
        if expected != actual:
            diff = difflib.unified_diff(expected, actual, "innodb", "engine", n=20, lineterm="")
            problems.append(f"  permutation {' '.join(order)}\n" + "\n".join("    " + line for line in diff))
    return reference, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("specs", nargs="*", help="names of specs (all of them)")
    parser.add_argument("--engine", default="MYRIAD")
    parser.add_argument("--jobs", type=int, default=8, help="specs at a time")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print InnoDB's outcomes")
    args = parser.parse_args()
    folder = os.path.join(HERE, "specs")
    names = args.specs or sorted(name[:-5] for name in os.listdir(folder) if name.endswith(".spec"))
    specs = [Spec(os.path.join(folder, name + ".spec")) for name in names] * args.repeat
    passed, failed = 0, 0
    common = ["--innodb-status-file=0", f"--lock-wait-timeout={LOCK_WAIT_SECONDS}", "--innodb-stats-auto-recalc=0"]
    reference_options, our_options = (common + server.wait_timeout_options(engine, LOCK_WAIT_SECONDS)
                                      for engine in ("InnoDB", args.engine))
    with server.Server("InnoDB", options=reference_options, flush=0) as reference, \
            server.Server(args.engine, options=our_options, flush=0) as ours:
        runners = [Runner(reference, "InnoDB"), Runner(ours, args.engine)]

        def one(spec):
            try:
                return spec, *compare(spec, runners)
            except Exception as problem:       # a spec that cannot run is a failure of that spec
                return spec, [], [f"  {type(problem).__name__}: {problem}"]
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for spec, outcomes, problems in pool.map(one, specs):
                passed, failed = (passed, failed + 1) if problems else (passed + 1, failed)
                if args.show:
                    for order, lines in zip(spec.orders, outcomes):
                        print(f"{spec.name}: {' '.join(order)}\n" + "\n".join("    " + line for line in lines))
                if problems:
                    print(f"failed: {spec.name}\n" + "\n".join(problems), flush=True)
                if not ours.alive():
                    print(f"the server died: {ours.why()}")
                    break
    print(f"isolation on {args.engine}: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    server.main_guard(main)
