#!/usr/bin/python3
"""Bulk work on a million rows, engines taking turns in every step: loads, index builds, scans, update, disk size."""
import argparse
import os
import random
import threading
import time

import measure
from measure import server

TABLE = ("CREATE TABLE {name} (id INT PRIMARY KEY, k INT NOT NULL, c VARCHAR(40) NOT NULL, pad VARCHAR(40) NOT NULL, "
         "KEY k(k)) ENGINE={engine}")


CLIENTS = 4


def write_files(folder, count):
    """Two files of the same rows, in key order and in random order; about 90 bytes a row."""
    r = random.Random(1)
    lines = [f"{i}\t{r.randrange(count)}\t{r.getrandbits(128):032x}\t{r.getrandbits(144):036x}\n"
             for i in range(1, count + 1)]
    paths = [os.path.join(folder, name) for name in ("ordered.tsv", "random.tsv")]
    with open(paths[0], "w") as f:
        f.writelines(lines)
    r.shuffle(lines)
    with open(paths[1], "w") as f:
        f.writelines(lines)
    return paths


def data_mib(srv):
    """Allocated size of the files that hold rows, without logs."""
    e = srv.engine.upper()
    total = 0
    for folder, _, files in os.walk(srv.datadir):
        for name in files:
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, srv.datadir)
            if e == "INNODB" and inside.startswith("bench/") or \
                    e == "MYRIAD" and inside.startswith("#myriad/") and name.endswith(".myr") and "undo" not in name or \
                    e == "ROCKSDB" and name.endswith(".sst"):
                total += os.stat(path).st_blocks * 512
    return total / (1 << 20)


def timed(srv, sql):
    begin = time.monotonic()
    srv.query(sql, "bench")
    return time.monotonic() - begin


class Churn:
    """Clients that change a row of table t in each transaction, and when each change ended and how long it took."""

    def __init__(self, srv, row_count):
        self.done, self.updates = False, []
        self.threads = [threading.Thread(target=self.run, args=(srv.connect(database="bench"), random.Random(number), row_count))
                        for number in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self, client, chosen, row_count):
        with client.cursor() as cursor:
            while not self.done:
                begin = time.monotonic()
                cursor.execute(f"UPDATE t SET k = k + 1 WHERE id = {chosen.randint(1, row_count)}")
                end = time.monotonic()
                self.updates.append((end, end - begin))

    def stop(self):
        self.done = True
        for thread in self.threads:
            thread.join()


def beside_writers(srv, row_count, writers, statement):
    """Seconds that a statement takes; what the writers got done meanwhile goes to `writers`."""
    churn = Churn(srv, row_count)
    time.sleep(2)
    begin = time.monotonic()
    seconds = timed(srv, statement)
    time.sleep(1)  # the longest may end after it
    churn.stop()
    took = [update for end, update in churn.updates if begin < end and end - update < begin + seconds]
    writers[srv.engine] = (len(took) / seconds, max(took) * 1000)
    return seconds


def allow_long_statements(srv):
    """MyRocks refuses statements of a million rows by default."""
    if srv.engine.upper() == "ROCKSDB":
        srv.query("SET GLOBAL rocksdb_bulk_load=0, GLOBAL rocksdb_max_row_locks=1073741824")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default="InnoDB,MYRIAD,ROCKSDB", help="the first is the measure of the others")
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--pool-mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--name", default="bulk", help="stem of the result files")
    args = parser.parse_args()
    engines = args.engines.split(",")
    print(measure.machine(), flush=True)
    rows = []
    for number in range(args.rounds):
        # Else the pools have read their pages again before the cold COUNT begins.
        servers = measure.start_servers(engines, args.pool_mib, ["--loose-innodb-buffer-pool-load-at-startup=0",
                                                                 "--loose-myriad-buffer-pool-warm-up=0"])
        if "ROCKSDB" in servers:
            allow_long_statements(servers["ROCKSDB"])
        ordered, shuffled = write_files(servers[engines[0]].folder, args.rows)

        def restart(srv):
            srv.restart()
            allow_long_statements(srv)
            return timed(srv, "SELECT COUNT(*) FROM t")
        writers = {}
        steps = [
            ("LOAD DATA, key order", lambda s: timed(s, f"LOAD DATA INFILE '{ordered}' INTO TABLE t")),
            ("LOAD DATA, random order", lambda s: timed(s, f"LOAD DATA INFILE '{shuffled}' INTO TABLE r")),
            ("ADD INDEX", lambda s: timed(s, "ALTER TABLE t ADD INDEX c(c)")),
            (f"ADD INDEX, {CLIENTS} clients update",
             lambda s: beside_writers(s, args.rows, writers, "ALTER TABLE t ADD INDEX kc(k, c)")),
            ("updates a second meanwhile", lambda s: writers[s.engine][0]),
            ("longest of them, ms", lambda s: writers[s.engine][1]),
            ("DROP INDEX", lambda s: timed(s, "ALTER TABLE t DROP INDEX kc")),
            ("FORCE", lambda s: timed(s, "ALTER TABLE t FORCE")),
            (f"FORCE, {CLIENTS} clients update", lambda s: beside_writers(s, args.rows, writers, "ALTER TABLE t FORCE")),
            ("updates a second beside FORCE", lambda s: writers[s.engine][0]),
            ("longest of those, ms", lambda s: writers[s.engine][1]),
            ("full-scan COUNT", lambda s: timed(s, "SELECT COUNT(*) FROM t")),
            ("full-scan filter", lambda s: timed(s, "SELECT COUNT(*) FROM t FORCE INDEX (PRIMARY) WHERE pad < 'x'")),
            ("CHECKSUM TABLE", lambda s: timed(s, "CHECKSUM TABLE t")),
            ("cold COUNT", restart),
            ("disk MiB", data_mib),
            ("UPDATE of all rows", lambda s: timed(s, "UPDATE t SET pad=REVERSE(pad)")),
            ("DELETE of half", lambda s: timed(s, "DELETE FROM t WHERE id % 2")),
            ("disk MiB at the end", data_mib)]
        for srv in servers.values():
            for name in "tr":
                srv.query(TABLE.format(name=name, engine=srv.engine), "bench")
        for step, action in steps:
            for engine in engines[number % len(engines):] + engines[:number % len(engines)]:
                measure.settle(servers.values())
                rows.append({"round": number + 1, "step": step, "engine": engine, "value": action(servers[engine])})
            print(f"round {number + 1} {step}: " + ", ".join(
                f"{r['engine']} {r['value']:.2f}" for r in rows[-len(engines):]), flush=True)
        for srv in servers.values():
            srv.close()
    path = measure.write_csv(f"{args.name}.csv", rows)
    values = measure.medians(rows, ("step", "engine"), "value")
    print(f"{'seconds (or as it says)':<29}" + "".join(f"{e:>12}" for e in engines)
          + "".join(f"{e + '/' + engines[0]:>18}" for e in engines[1:]))
    names = [step for step, _ in steps]
    for step in names:
        print(f"{step:<29}" + "".join(f"{values[(step, e)]:>12.2f}" for e in engines) + "".join(
            f"{values[(step, e)] / max(values[(step, engines[0])], 1e-9):>18.2f}" for e in engines[1:]))
    measure.grid(f"{args.name}.png", names, [""], engines,
                 {(s, "", e): v for (s, e), v in values.items()}, "seconds or as it says; but for updates a second, less is better")
    print(f"results in {os.path.relpath(path)} and beside it")
    return 0


if __name__ == "__main__":
    server.main_guard(main)
