#!/usr/bin/python3
"""Random scripts of two to four sessions, run step by step on InnoDB and on Myriad, in one server and by one schedule. After each step
the sessions have to be in the same state on both: done, with the same rows, counts, warnings or error, or waiting. In the end the tables
hold the same.

    interleavings.py [--seconds N] [--seed N] [--large] [--keep-going]

A difference counts if it is there again when waits are looked at for longer, and if both optimizers go the same way in each step; the
script is then made as short as it goes on to differ. What is known to differ (`excused`) ends a script. A snapshot stays open beside
each: when purge removes deleted rows, and with them places to lock, depends on the time.
"""
import argparse
import os
import select
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import server  # noqa: E402
from random_script import Script  # noqa: E402
from server import pymysql  # noqa: E402

ENGINES = ["InnoDB", "MYRIAD"]
SAMPLE_SECONDS = 0.004
QUICK, SLOW = 4, 40      # samples asleep that make a wait
HUNG_SECONDS = 60
OPTIONS = ["--lock-wait-timeout=1000", "--innodb-lock-wait-timeout=1000", "--myriad-lock-wait-timeout=1000",
           "--innodb-stats-persistent=0", "--innodb-autoinc-lock-mode=2"]
NO_WAIT = "SET STATEMENT lock_wait_timeout=0, innodb_lock_wait_timeout=0, myriad_lock_wait_timeout=0 FOR "


class Session:
    """A connection whose answer is not waited for."""

    def __init__(self, srv, database):
        self.connection = srv.connect(database=database, autocommit=True)
        self.id, self.sql = self.connection.thread_id(), None
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT TID FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()")
            self.status = f"/proc/{srv.process.pid}/task/{cursor.fetchone()[0]}/status"

    def begin(self, sql):
        self.sql, self.asleep, self.before = sql, 0, None
        self.connection._execute_command(pymysql.constants.COMMAND.COM_QUERY, sql)

    def finish(self):
        """The answer, as text."""
        ordered, self.sql = "ORDER BY" in self.sql, None
        try:
            self.connection._read_query_result()
            result = self.connection._result
            rows = ["(" + ",".join("NULL" if v is None else str(v)[:12] for v in row) + ")" for row in result.rows or ()]
            text = " ".join(rows if ordered else sorted(rows)) or "no rows"
            if not result.description:
                text = f"{result.affected_rows} affected, insert id {result.insert_id}"
            if result.warning_count:
                text += " warnings " + " ".join(str(code) for _, code, _ in self.connection.show_warnings())
            return text
        except pymysql.err.MySQLError as problem:
            code = problem.args[0] if problem.args else type(problem).__name__
            return f"error {code} {problem.args[1]}" if code == 1062 else f"error {code}"

    def sleeps(self):
        """For how many samples its thread has not been awake."""
        with open(self.status) as f:
            lines = [line for line in f if line.startswith(("State", "voluntary"))]
        self.asleep = self.asleep + 1 if "S (" in lines[0] and lines == self.before else 0
        self.before = lines
        return self.asleep

    def reset(self, *more):
        for sql in ("ROLLBACK", "UNLOCK TABLES", "SET autocommit=1, optimizer_switch=DEFAULT", *more):
            self.begin(sql)
            self.finish()


class Lane:
    """One engine's database and the sessions in it."""

    def __init__(self, srv, engine, sessions):
        self.engine, database = engine, "i_" + engine.lower()
        self.control, self.snapshot = srv.connect(autocommit=True), srv.connect(autocommit=True)
        self.run(f"CREATE DATABASE {database}", f"USE {database}", f"SET default_storage_engine={engine}, lock_wait_timeout=20")
        self.sessions = [Session(srv, database) for _ in range(sessions)]

    def run(self, *statements):
        with self.control.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if statements else ()

    def prepare(self, script):
        self.snapshot.rollback()
        self.run("DROP TABLE IF EXISTS c, l", "DROP TABLE IF EXISTS t", *script.definitions(self.engine))
        with self.snapshot.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        self.run(*script.rows)
        for session, level, snapshot in zip(self.sessions, script.levels, script.snapshots):
            session.reset(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}", f"SET {self.engine}_snapshot_isolation = {snapshot}")

    def contents(self, script):
        return [f"{query}: {sorted(repr(row[query.startswith('CHECK'):]) for row in self.run(query))}" for query in script.final]

    def stop(self):
        for session in [s for s in self.sessions if not s.sql]:
            session.reset()
        for session in [s for s in self.sessions if s.sql]:
            sql, begin = session.sql, time.monotonic()
            while not select.select([session.connection._sock], [], [], 0.2)[0]:
                self.run(f"KILL QUERY {session.id}")
                if time.monotonic() - begin > HUNG_SECONDS:
                    raise server.ServerError(f"{self.engine}: KILL QUERY does not end {sql}")
            session.finish()
            session.reset()


def settle(lanes, samples):
    """Waits until each session has answered or sleeps; the states: (whether it waits, answer) of each session, by engine."""
    answers, begin = {}, time.monotonic()
    while True:
        busy = {s.connection._sock: s for lane in lanes for s in lane.sessions if s.sql}
        ready = select.select(list(busy), [], [], SAMPLE_SECONDS)[0] if busy else []
        for socket in ready:
            answers[busy[socket]] = busy[socket].finish()
        if not busy or not ready and min([s.sleeps() for s in busy.values()]) >= samples:
            return [[("waits" if s.sql else None, answers.get(s)) for s in lane.sessions] for lane in lanes]
        if time.monotonic() - begin > HUNG_SECONDS:
            raise server.ServerError("neither answer nor sleep: " + "; ".join(s.sql for s in busy.values()))


def same_plan(lanes, sql):
    """Whether both optimizers would go the same way, as far as they can be asked."""
    try:
        innodb, ours = ([row[2:7] + row[9:] for row in lane.run(NO_WAIT + "EXPLAIN " + sql)] for lane in lanes)
    except pymysql.err.MySQLError:
        return True
    return innodb == ours


def is_kept_out(state):
    return bool(state[0]) or state[1] == "error 1205"


def excused(script, number, sql, waited, changed, failed, states):
    """Whether the states may differ after the step `sql`. `waited`: what each session waited with before; `changed`: others have made changes
    since; `failed`: a statement has."""
    innodb, ours = states
    differing = [i for i, pair in enumerate(zip(*states)) if pair[0] != pair[1]]
    waits_less = all(innodb[i][0] and not ours[i][0] for i in differing)
    deadlocks = ["error 1213" in str(each) for each in states]
    children = any("CREATE TABLE c" in d for d in script.definitions("MYRIAD"))
    violated = any(code in str(innodb) for code in ("1451", "1452")) or "IGNORE" in sql
    return (
        # InnoDB passes over what the snapshot has, by an entry of a secondary index that is no more.
        all(ours[i][1] == "error 1020" and script.snapshots[i] == "ON" for i in differing)
        # Below REPEATABLE READ InnoDB holds what is changed against what INSERT ... SELECT reads by (docs/variables.md).
        or all(innodb[i][1] == "error 1020" and script.levels[i].startswith("READ") and script.snapshots[i] == "ON" for i in differing)
        or all(deadlocks)                                                              # another victim
        or sum(not (innodb[i][0] and ours[i][0]) for i in waited) > 1               # those who are set free together race
        # Who waits at READ COMMITTED looks for its place again, and finds what came before it meanwhile.
        or changed and all(i in waited and script.levels[i].startswith("READ") for i in differing)
        or children and any("ALTER" in each for each in [sql, *waited.values()])    # InnoDB's definition waits for the children, too
        or children and violated and ("waits" in str(ours) or deadlocks[1])         # docs/foreign_keys.md: a row waits for gaps first
        or all(innodb[i][1] == "error 159" and ours[i][1] == "error 1412" for i in differing)
        # Searches downwards (docs/locks.md); in those over several pages InnoDB locks each page's end, too.
        or waits_less and any(each.find(" DESC") > each.find("ORDER BY") > 0 for _, each in script.steps[:number + 1])
        # What a failed statement leaves locked: a deleted parent, a deleted row in its new one's place.
        or failed and any(is_kept_out(innodb[i]) != is_kept_out(ours[i]) for i in differing)
        # What InnoDB locks besides (gaps of parents, what is behind a range at READ COMMITTED) closes circles. Where it makes somebody
        # wait it is a difference.
        or deadlocks[0] and not deadlocks[1]
        # InnoDB looks at one of those who are waited for, and at the others when that one has ended.
        or len(script.levels) > 2 and deadlocks[1] and all(innodb[i][0] for i in differing))


def play(lanes, script, samples, log=None):
    """Runs the script; what differs, or None."""
    ends = [(n, end) for _ in script.levels * 2 for end in ("COMMIT", "UNLOCK TABLES") for n in range(len(script.levels))]
    for lane in lanes:
        lane.prepare(script)
    # `looked_again`: somebody below REPEATABLE READ found the way anew after others' changes; what follows may differ, too.
    changed = looked_again = failed = False
    try:
        for number, (n, sql) in enumerate(script.steps + ends):
            waited = {i: s.sql for i, s in enumerate(lanes[0].sessions) if s.sql}
            if (n in waited) != (sql == "KILL"):
                continue
            if samples == SLOW and sql != "KILL" and not same_plan(lanes, sql):
                return None
            for lane in lanes:
                if sql == "KILL":
                    lane.run(f"KILL QUERY {lane.sessions[n].id}")
                else:
                    lane.sessions[n].begin(sql)
            states = settle(lanes, samples)
            if log is not None and number < len(script.steps):
                log.append(f"  s{n}: {sql}")
                for i, pair in enumerate(zip(*states)):
                    log += [f"    {engine}: s{i} {s[0] or s[1]}" for engine, s in zip(ENGINES if pair[0] != pair[1] else ["both"], pair) if any(s)]
            if states[0] != states[1]:
                if looked_again or excused(script, number, sql, waited, changed, failed, states):
                    return None
                return f"  after step {number}, {sql}: {states}"
            looked_again |= changed and any(not states[0][i][0] and script.levels[i].startswith("READ") for i in waited)
            failed |= any(f"error {code}" in str(states) for code in (1062, 1205, 1451, 1452))
            changed = bool(waited) and (changed or not sql.startswith("SELECT"))
        left = [[s.sql for s in lane.sessions] for lane in lanes]
        if left[0] != left[1]:
            return f"  waits that do not end: {left}"
        if any(left[0]):             # the server's own: a definition, and a row's lock
            return None
        contents = [lane.contents(script) for lane in lanes]
        return None if contents[0] == contents[1] or looked_again else "\n".join(f"  {a}\n  {b}" for a, b in zip(*contents) if a != b)
    finally:
        for lane in lanes:
            lane.stop()


def shorten(lanes, script):
    """Leaves out steps and rows as long as a difference stays."""
    for part in ("steps", "rows"):
        for i in range(len(getattr(script, part)) - 1, -1, -1):
            whole = getattr(script, part)
            setattr(script, part, whole[:i] + whole[i + 1:])
            if not play(lanes, script, SLOW):
                setattr(script, part, whole)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--large", action="store_true", help="tables of 80 to 250 rows, not of 4 to 10")
    parser.add_argument("--keep-going", action="store_true")
    args = parser.parse_args()
    passed, failed, seed, begin = 0, 0, args.seed, time.monotonic()
    with server.Server("MYRIAD", options=OPTIONS, flush=0) as srv:
        lanes = [Lane(srv, engine, 4) for engine in ENGINES]
        while time.monotonic() - begin < args.seconds and (args.keep_going or not failed):
            script = Script(seed, args.large)
            try:
                different = play(lanes, script, QUICK) and play(lanes, script, SLOW)
                if different:
                    shorten(lanes, script)
                    log = []
                    different = play(lanes, script, SLOW, log) or different
            except Exception as problem:
                raise server.ServerError(f"seed {seed}: {problem!r} {'' if srv.alive() else srv.why()}")
            if different:
                print(f"seed {seed}: {', '.join(script.levels)}; snapshot isolation {', '.join(script.snapshots)}\n  " + ";\n  ".join(script.definitions("MYRIAD") + script.rows), *log, different,
                      sep="\n", flush=True)
            passed, failed, seed = passed + (not different), failed + bool(different), seed + 1
    print(f"interleavings: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    server.main_guard(main)
