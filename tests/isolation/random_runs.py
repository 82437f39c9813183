"""What the checkers of random transactions share: a case's server, clients beside each other, who disturbs them, and how each case is told.

A case has `pool` (MiB), `page` (bytes), `clients`, `options` of its tables, and `weak`: its snapshots are none, so something has to be found.
"""
import argparse
import collections
import os
import random
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import server  # noqa: E402
from server import pymysql  # noqa: E402

ENOUGH = 100    # transactions that say something
# Deadlock, a row that has changed since the snapshot, lock wait timeouts, a definition that has changed, KILL (1028: amid the index merge that a
# sort reads from, with any engine), a duplicate.
EXPECTED = {1213, 1020, 1205, 1412, 1146, 1317, 1028, 1062, 3572}
GONE = {0, 2003, 2006, 2013, 1927}


def code_of(problem):
    return problem.args[0] if isinstance(problem, pymysql.err.Error) else 0


class Run:
    """A case's server, its clients and what they did."""

    def __init__(self, case, seed, engine="MYRIAD", options=()):
        self.case, self.seed, self.engine = case, seed, engine
        self.table_options = case.options if engine == "MYRIAD" or "IN_MEMORY" not in case.options else ""
        self.history, self.problems, self.latch, self.stop = [], [], threading.Lock(), threading.Event()
        self.numbers = iter(range(1, 1 << 60))
        options = [f"--loose-myriad-page-size={case.page}", "--loose-myriad-log-capacity=64M", *options]
        self.server = server.Server(engine, pool_mib=case.pool, options=options)

    def connect(self):
        return self.server.connect(database="h", autocommit=True)

    def fresh(self):
        with self.latch:
            return next(self.numbers)

    def note(self, trx):
        with self.latch:
            self.history.append(trx)

    def outcomes(self):
        with self.latch:
            return collections.Counter(trx.outcome for trx in self.history)

    def work(self, threads, seconds, crash):
        """Lets them run, with `crash` beside SIGKILLs."""
        for thread in threads:
            thread.start()
        chosen, begin = random.Random(self.seed), time.monotonic()
        # A busy machine gets more time.
        while time.monotonic() < begin + (seconds if self.outcomes()["committed"] > ENOUGH else max(10 * seconds, 300)):
            time.sleep(1)
            if crash and chosen.random() < 0.3:
                self.crash()
        self.stop.set()
        for thread in threads:
            thread.join(60)
        if any(thread.is_alive() for thread in threads):
            self.problems.append("a client did not come to an end")
            self.server.tell()

    def crash(self):
        self.server.kill()
        self.server.start()


class Client(threading.Thread):
    """Runs one `transaction` after the other, and connects again when it has lost the server."""

    def __init__(self, run, number):
        super().__init__(daemon=True)
        self.of, self.random, self.connection = run, random.Random(run.seed * 1000 + number), None

    def run(self):
        while not self.of.stop.is_set():
            try:
                self.connection = self.connection or self.of.connect()
                self.cursor = self.connection.cursor()
                self.transaction()
            except (pymysql.err.Error, OSError):
                self.connection = None
                time.sleep(0.02)


class Disturber(threading.Thread):
    """Does something now and then beside the clients: `act(cursor, random)`, with `pause` seconds in the mean between."""

    def __init__(self, run, act, pause):
        super().__init__(daemon=True)
        self.of, self.act, self.pause, self.random = run, act, pause, random.Random(run.seed)

    def run(self):
        connection = None
        while not self.of.stop.is_set():
            try:
                connection = connection or self.of.connect()
                self.act(connection.cursor(), self.random)
            except (pymysql.err.Error, OSError) as problem:
                if code_of(problem) in GONE:
                    connection = None
                # Not there, there already; no such thread.
                elif code_of(problem) not in EXPECTED | {1060, 1061, 1091, 1094}:
                    self.of.problems.append(f"{self.act.__name__}: {problem}")
            time.sleep(self.random.random() * 2 * self.pause)


def history(name, run, seconds, verdict):
    """Runs a case and tells how it went; whether it is well."""
    try:
        run.setup()
        run.work(seconds)
        verdict(run).judge()
    finally:
        run.server.close()
    found = run.outcomes()
    good = bool(run.problems) == run.case.weak and found["committed"] > ENOUGH
    print(f"{'ok  ' if good else 'FAIL'} {name}: seed {run.seed}, {dict(found)}", flush=True)
    if not good:
        print("".join(f"    {problem[:5000]}\n" for problem in run.problems[:10]) or "    nothing was found", flush=True)
    return good


def main(description, cases, new_run, verdict):
    """The command line of a checker; `new_run(case, seed, engine)`."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("cases", nargs="*", help="of " + ", ".join(cases))
    parser.add_argument("--seconds", type=float, default=4, help="of each")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--engine", default="MYRIAD")
    args = parser.parse_args()
    results = [history(name, new_run(cases[name], args.seed, args.engine), args.seconds, verdict) for name in args.cases or cases]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1
