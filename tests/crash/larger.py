#!/usr/bin/python3
"""Kills a server under load whose data are larger than its memory, again and again, and checks what came back.

Every client has rows of its own (id modulo the number of clients) in one table with several secondary indexes in random
order, of whose leaves most are not in memory: what is changed there waits in the change buffer, and so in the log alone.
The record of what was acknowledged is in this process's memory. After each kill every client's rows must be those of the
record, or those with the one transaction whose COMMIT was under way; every index must hold the same rows, forwards and
backwards; CHECK TABLE must find nothing. Every second time it is a clean stop instead, which leaves such changes to the next start.
"""
import argparse
import os
import random
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts"))
import pymysql  # noqa: E402
import server  # noqa: E402
from run import LOST, OPTIONS, RETRY, check_table  # noqa: E402

CLIENTS = 4
INDEXES = {"PRIMARY": "id", "k": "k", "name": "name", "pair": "name"}


def apply(model, delta):
    """The model, changed by a transaction."""
    for i, row in delta.items():
        if row is None:
            model.pop(i, None)
        else:
            model[i] = row
    return model


class Client(threading.Thread):
    """Changes its own rows until the server dies."""

    def __init__(self, srv, seed, number, model):
        super().__init__(daemon=True)
        self.server, self.number, self.model = srv, number, model
        self.random = random.Random(seed)
        self.under_way, self.trouble, self.commits, self.stopping = {}, None, 0, False

    def row(self, i):
        name = "".join(self.random.choices("abcdefgh", k=30))
        return i, self.random.randrange(1 << 30), name

    def change(self, cursor, delta):
        """Changes some rows; `delta` tells what has become of each in this transaction, None: deleted."""
        what = self.random.random()
        if what < 0.4:
            rows = [self.row(i * CLIENTS + self.number) for i in self.random.sample(range(1 << 24), 20)]
            rows = [r for r in rows if r[0] not in self.model and r[0] not in delta]
            cursor.executemany("INSERT INTO t VALUES (%s, %s, %s)", rows)
            delta.update((r[0], r[1:]) for r in rows)
            return
        for i in self.random.sample(self.some_ids, 6):
            now = delta.get(i, self.model.get(i))
            if now is None:
                continue
            if what < 0.7:
                cursor.execute(f"DELETE FROM t WHERE id = {i}")
                delta[i] = None
                if what < 0.5:              # the same key again
                    row = self.row(i)
                    cursor.execute("INSERT INTO t VALUES (%s, %s, %s)", row)
                    delta[i] = row[1:]
            else:
                k = self.random.randrange(1 << 30)
                cursor.execute(f"UPDATE t SET k = {k} WHERE id = {i}")
                delta[i] = (k, now[1])

    def round(self, connection, cursor):
        delta = {}
        for _ in range(self.random.randrange(1, 6)):
            self.change(cursor, delta)
        if self.random.random() < 0.1:
            connection.rollback()
            return
        self.under_way = delta
        connection.commit()
        self.model, self.under_way, self.commits = apply(self.model, delta), {}, self.commits + 1

    def run(self):
        self.some_ids = sorted(self.model)
        try:
            connection = self.server.connect(database="larger", autocommit=False)
            with connection.cursor() as cursor:
                while not self.stopping:
                    try:
                        self.round(connection, cursor)
                    except pymysql.err.MySQLError as problem:
                        if problem.args and problem.args[0] in RETRY and not self.under_way:
                            connection.rollback()
                            continue
                        if not (problem.args and problem.args[0] in LOST):
                            self.trouble = problem
                        return
        except (pymysql.err.MySQLError, OSError):
            pass                            # killed before the connection was made


def fill(srv, rows):
    """The table with `rows` rows, and each client's part of them."""
    srv.query("CREATE DATABASE larger")
    srv.query("CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, k INT NOT NULL, name VARCHAR(60) NOT NULL, KEY k (k), "
              "KEY name (name), KEY pair (name, k))", "larger")
    models = [{} for _ in range(CLIENTS)]
    maker = Client(srv, 1, 0, {})
    connection = srv.connect(database="larger", autocommit=True)
    with connection.cursor() as cursor:
        for begin in range(0, rows, 1000):
            batch = [maker.row(i) for i in range(begin, min(begin + 1000, rows))]
            cursor.executemany("INSERT INTO t VALUES (%s, %s, %s)", batch)
            for row in batch:
                models[row[0] % CLIENTS][row[0]] = row[1:]
    connection.close()
    return models


def check(srv, clients):
    problems = []
    connection = srv.connect(database="larger")
    cursor = connection.cursor()

    def rows(sql):
        cursor.execute(sql)
        return cursor.fetchall()
    found = {row[0]: row[1:] for row in rows("SELECT id, k, name FROM t FORCE INDEX (PRIMARY)")}
    for client in clients:
        own = {i: row for i, row in found.items() if i % CLIENTS == client.number}
        if own != client.model and own != apply(dict(client.model), client.under_way):
            differ = [i for i in set(own) | set(client.model) if own.get(i) != client.model.get(i)]
            problems.append(f"client {client.number}: {len(differ)} rows differ from the record, such as "
                            f"{differ[0]}: {client.model.get(differ[0])}, found {own.get(differ[0])}")
        client.model = own
    for index, column in INDEXES.items():
        value = f"SELECT BIT_XOR(CRC32(CONCAT_WS('|', id, {column}))) FROM t FORCE INDEX"
        if rows(f"{value} (PRIMARY)") != rows(f"{value} ({index}) WHERE {column} >= ''"):
            problems.append(f"the values of index {index} are not the table's")
    for order in ("", " DESC"):
        sums = {}
        for index, column in INDEXES.items():
            ids = [row[0] for row in rows(f"SELECT id FROM t FORCE INDEX ({index}) WHERE {column} >= '' "
                                          f"ORDER BY {column}{order}")]
            sums[index] = (len(ids), len(set(ids)), sum(ids))
        if len(set(sums.values())) != 1:
            problems.append(f"indexes disagree (entries, rows, sum of ids): {sums}")
    problems += check_table(rows, "t")
    connection.close()
    return problems


def buffered(srv):
    shown = srv.query("SHOW GLOBAL STATUS LIKE 'Myriad_change_buffer_changes'")
    return int(shown[0][1]) if shown else 0


def left_by_stops(srv):
    """How many stops have left changes to the next start."""
    with open(srv.log, errors="replace") as log:
        return log.read().count("which the next start makes from the log")


def work_and_kill(srv, seed, models, seconds, stop=False):
    """The clients work for some seconds, the server is killed (or stopped) and starts again, and their rows are checked. Returns the
    clients' models as they are now, the problems, how many changes were buffered when the server died, and a line about it."""
    clients = [Client(srv, seed * CLIENTS + n, n, models[n]) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    time.sleep(seconds)
    changes = buffered(srv)
    if stop:
        # A stop reads no more pages than this.
        srv.query("SET GLOBAL myriad_io_capacity = 10, myriad_io_capacity_max = 10")
        srv.stop()
    else:
        srv.kill()
    for client in clients:
        client.stopping = True
        client.join(60)
    problems = [f"client {c.number}: {c.trouble}" for c in clients if c.trouble]
    up = srv.start()
    problems += check(srv, clients)
    models = [c.model for c in clients]
    return models, problems, changes, (f"{sum(c.commits for c in clients)} commits, {sum(map(len, models))} rows, up again in "
                                       f"{up:.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", default="MYRIAD")
    parser.add_argument("--loops", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0, help="longest time of work before a kill")
    parser.add_argument("--rows", type=int, default=150000)
    parser.add_argument("--pool-mib", type=int, default=6)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    is_myriad = args.engine.upper() == "MYRIAD"
    seed = args.seed if args.seed is not None else random.randrange(1 << 30)
    chance = random.Random(seed)
    print(f"seed {seed}", flush=True)
    srv = server.Server(args.engine, options=OPTIONS.get(args.engine.upper(), []), pool_mib=args.pool_mib)
    srv.start()
    models = fill(srv, args.rows)
    failed, changes = 0, 0
    for loop in range(1, args.loops + 1):
        models, problems, waiting, line = work_and_kill(srv, seed * 100 + loop, models,
                                                        0.5 + chance.random() * args.seconds,
                                                        stop=is_myriad and loop % 2 == 0)
        changes += waiting
        failed += bool(problems)
        for problem in problems:
            print(f"  loop {loop}: {problem}", flush=True)
        print(f"  loop {loop}: {line}", flush=True)
    if is_myriad and changes == 0:
        print("  no change was buffered: the test does not test")
        failed += 1
    if is_myriad and args.loops > 1 and left_by_stops(srv) == 0:
        print("  no stop left changes to the next start: the test does not test")
        failed += 1
    print(f"{changes} changes were buffered")
    print(f"crash-larger on {args.engine}: {args.loops - min(failed, args.loops)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    server.main_guard(main)
