#!/usr/bin/python3
"""What a table costs: the same steps with more and more tables, on Myriad, InnoDB, MyRocks and ENGINE=MEMORY in one run.

At each number of tables every engine is filled (Myriad with copies of a template database, the others by CREATE TABLE as long
as --fill-seconds allow) and goes through the steps. Loops run inside the server, so no client is measured. A figure with a
wanted value is judged for Myriad. Leaves a CSV, a chart and a page under bench/results/.
"""
import argparse
import os
import statistics
import subprocess
import threading
import time

import measure
from measure import server

COLUMNS = ("id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL, name VARCHAR(60) NOT NULL, amount DECIMAL(10,2), "
           "made DATETIME, KEY k(k)")
PER_DATABASE = 1000
CACHES = ["--table-open-cache=2000", "--table-definition-cache=2000", "--open-files-limit=100000"]
FEW = 10000                      # the number that random access among all tables is compared with
WARM_UP_SECONDS = 3
LOGS = ("redo.log", "ib_logfile0")
# To fill a server, and never while something is measured: the server's own syncs are off, and the engine's where it can.
UNSAFE = {"INNODB": ["--innodb-flush-method=nosync"]}
STEPS = ["disk", "start", "create", "random", "touch", "lists", "drop", "crash"]


def loop(connection, count, statement, seconds=3600):
    """Runs `statement`, an SQL expression of i, for i from 0; gives (how often, seconds)."""
    cursor = connection.cursor()
    begin = time.monotonic()
    cursor.execute(f"""BEGIN NOT ATOMIC
        DECLARE i INT DEFAULT 0;
        DECLARE last DATETIME(6) DEFAULT SYSDATE(6) + INTERVAL {seconds} SECOND;
        WHILE i < {count} AND SYSDATE(6) < last DO
            EXECUTE IMMEDIATE {statement};
            SET i = i + 1;
        END WHILE;
        SET @done = i;
        END""")
    took = time.monotonic() - begin
    cursor.execute("SELECT @done")
    return cursor.fetchone()[0], took


def in_parallel(srv, jobs):
    """Runs each of `jobs` (functions of a connection) in a thread; gives their results and the seconds of all."""
    results, problems = [None] * len(jobs), []

    def work(number):
        try:
            connection = srv.connect()
            results[number] = jobs[number](connection)
            connection.close()
        except server.pymysql.err.Error as problem:
            problems.append(problem)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(jobs))]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if problems:
        raise server.ServerError(f"{srv.engine}: {problems[0]}")
    return results, time.monotonic() - begin


def create_in(srv, database, count, seconds):
    """Creates tables from several connections' databases: (database, count) for each; how many and in what time."""
    text = f"CONCAT('CREATE TABLE {database}.t', i, ' ({COLUMNS}) ENGINE={srv.engine}')"
    return lambda connection: loop(connection, count, text, seconds)[0]


def unsafely(srv, work):
    """Runs `work` with the server restarted so that it does not sync; gives its result."""
    safe = srv.options
    srv.stop()
    srv.options = safe + ["--debug-no-sync"] + UNSAFE.get(srv.engine.upper(), [])
    srv.start(timeout=3600)
    result = work()
    quiet(srv)
    srv.stop()
    srv.options = safe
    return result


def grow(srv, tables, args):
    """fill(), and notes what it added to the files."""
    have, before = srv.filled, 0

    def work():
        begin = time.monotonic()
        done = fill(srv, tables, args)
        print(f"{tables} tables: {srv.engine} filled in {time.monotonic() - begin:.1f} s", flush=True)
        return done
    srv.stop()
    before = disk_bytes(srv)
    done = unsafely(srv, work)
    srv.added, srv.added_bytes = (srv.filled - have) * PER_DATABASE, disk_bytes(srv) - before
    srv.start(timeout=3600)
    return done


def fill(srv, tables, args):
    """Brings the server to `tables` tables; False if that takes too long."""
    have, wanted = srv.filled, tables // PER_DATABASE
    begin = time.monotonic()
    if srv.engine == "MYRIAD":
        connection = srv.connect()
        cursor = connection.cursor()
        if not have:
            srv.query("CREATE DATABASE b0")
            create_in(srv, "b0", PER_DATABASE, 3600)(connection)
            have = 1
        for number in range(have, wanted):
            cursor.execute(f"SELECT myriad_clone_database('b0', 'b{number}')")
            cursor.fetchall()
        srv.filled = wanted
        return True
    while srv.filled < wanted:
        left = args.fill_seconds - (time.monotonic() - begin)
        batch = range(srv.filled, min(wanted, srv.filled + 8))
        for number in batch:
            srv.query(f"CREATE DATABASE IF NOT EXISTS b{number}")
        if left <= 0 or min(in_parallel(srv, [create_in(srv, f"b{n}", PER_DATABASE, left) for n in batch])[0]) < PER_DATABASE:
            return False
        srv.filled += len(batch)
    return True


def quiet(srv):
    """Waits until the server has nothing left to do in the background."""
    measure.settle([srv])


def disk_bytes(srv):
    """Allocated bytes of everything under the data directory but the preallocated logs."""
    total = 0
    for folder, _, files in os.walk(srv.datadir):
        for path in [folder] + [os.path.join(folder, name) for name in files if name not in LOGS]:
            try:
                total += os.lstat(path).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


def drop_caches(srv):
    """Takes the server's files out of the system's cache; the whole cache where that is allowed."""
    subprocess.run(["sync"], check=True)
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
        return
    except OSError:
        pass
    for folder, _, files in os.walk(srv.datadir):
        for name in files:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def cold_start(srv):
    """Seconds from exec to the first answer, seconds of CPU, MiB read from the device and MiB resident then."""
    drop_caches(srv)
    seconds = srv.start(timeout=3600, poll=0.005)
    cpu = srv.cpu_seconds()
    with open(f"/proc/{srv.process.pid}/io") as f:
        read = next(int(line.split()[1]) for line in f if line.startswith("read_bytes"))
    return seconds, cpu, read / (1 << 20), srv.rss_mib()


def step_disk(srv, n, args, add):
    """What the tables added to the files since the last number of them, their databases' own files included."""
    if srv.engine != "MEMORY" and srv.added:
        # Files grow in steps of megabytes: with few tables these are most of it.
        add("disk bytes a table", srv.added_bytes / srv.added, 256 if srv.added >= 50000 else None)


def step_create(srv, n, args, add):
    for clients in (1, 8):
        for number in range(clients):
            srv.query(f"CREATE DATABASE s{clients}_{number}")
        cpu = srv.cpu_seconds()
        counts, took = in_parallel(srv, [create_in(srv, f"s{clients}_{number}", 5000, args.seconds)
                                         for number in range(clients)])
        add(f"CREATE TABLE a second, {clients} clients", sum(counts) / took)
        add(f"CREATE TABLE CPU us, {clients} clients", (srv.cpu_seconds() - cpu) / sum(counts) * 1e6)
        quiet(srv)
        text = f"CONCAT('DROP TABLE s{clients}_%d.t', i)"
        cpu = srv.cpu_seconds()
        counts, took = in_parallel(srv, [lambda c, number=number: loop(c, counts[number], text % number, args.seconds)[0]
                                         for number in range(clients)])
        add(f"DROP TABLE a second, {clients} clients", sum(counts) / took)
        add(f"DROP TABLE CPU us, {clients} clients", (srv.cpu_seconds() - cpu) / sum(counts) * 1e6)
        for number in range(clients):
            srv.query(f"DROP DATABASE s{clients}_{number}")


def step_random(srv, n, args, add):
    """Single statements on random tables among all, and among 10,000 of them, in turns."""
    ways = {"SELECT": "CONCAT('SELECT name INTO @x FROM b', FLOOR(RAND() * %d), '.t', FLOOR(RAND() * 1000), ' WHERE id=1')",
            "INSERT": "CONCAT('INSERT INTO b', FLOOR(RAND() * %d), '.t', FLOOR(RAND() * 1000), "
                      "' (k,name) VALUES (1,''x'')')"}
    connection = srv.connect()
    cursor = connection.cursor()
    # A SELECT that finds nothing leaves a warning, which costs.
    cursor.execute("SET max_error_count=0, sql_notes=0")
    for way, text in ways.items():
        among = {min(n, FEW): [], n: []}
        for number in range(5):
            for tables in list(among):
                done, took = loop(connection, args.statements, text % (tables // PER_DATABASE), args.seconds)
                # The first round fills the caches.
                among[tables] += [took / done * 1e6] if number else []
        for tables, times in among.items():
            add(f"{way} among {'all' if tables == n else FEW}, us", statistics.median(times))
        if n > FEW:
            ratio = statistics.median(among[n]) / statistics.median(among[FEW])
            add(f"{way} among all / among {FEW}", ratio, 1.2)


def step_touch(srv, n, args, add):
    tables = min(n, 100000)
    srv.restart()
    # The pool's warm-up, which begins some seconds after a start, is not memory of these tables.
    time.sleep(WARM_UP_SECONDS)
    quiet(srv)
    connection = srv.connect()
    warm = "CONCAT('SELECT 1 INTO @x FROM b0.t', i, ' LIMIT 1')"
    loop(connection, 1, warm)
    before = srv.rss_mib()
    text = "CONCAT('SELECT 1 INTO @x FROM b', i DIV 1000, '.t', i MOD 1000, ' LIMIT 1')"
    caches = 2000
    connection.cursor().execute("SET max_error_count=0")
    loop(connection, min(caches, tables), text)
    full = srv.rss_mib()
    done, took = loop(connection, tables, text, args.seconds * 6)
    add(f"memory with {caches} tables in the server's caches, MiB", full - before)
    add(f"memory added by touching {tables} tables, MiB", srv.rss_mib() - full, 64)
    add("tables touched", done)
    add("first use of a table, us", took / done * 1e6)
    if srv.engine == "MYRIAD":
        held = dict(srv.query("SHOW STATUS LIKE 'Myriad_definitions_%'"))
        add("definitions held by the engine", int(held["Myriad_definitions_cached"]))


def step_lists(srv, n, args, add):
    tables = min(n, args.list_tables)
    last = tables // PER_DATABASE - 1
    among = " OR ".join(f"table_schema='b{number}'" for number in range(last + 1))
    queries = {"INFORMATION_SCHEMA.TABLES": f"SELECT SUM(table_rows), SUM(data_length) FROM information_schema.tables WHERE {among}",
               "INFORMATION_SCHEMA.COLUMNS": f"SELECT COUNT(*) FROM information_schema.columns WHERE {among}"}
    def timed(name, statements):
        begin, cpu = time.monotonic(), srv.cpu_seconds()
        for sql in statements:
            srv.query(sql)
        add(f"{name}, us a table", (time.monotonic() - begin) / tables * 1e6)
        add(f"{name}, CPU us a table", (srv.cpu_seconds() - cpu) / tables * 1e6)
    for name, sql in queries.items():
        timed(name, [sql])
    for name, text in (("SHOW TABLES", "SHOW TABLES FROM b%d"), ("SHOW TABLE STATUS", "SHOW TABLE STATUS FROM b%d")):
        timed(name, [text % number for number in range(last + 1)])


def step_start(srv, n, args, add):
    """Cold starts beside a server of the same engine without tables."""
    empty = server.Server(srv.engine, pool_mib=srv.pool_mib, options=srv.options)
    empty.start()
    full_runs, empty_runs = [], []
    for _ in range(args.rounds):
        for one, runs in ((empty, empty_runs), (srv, full_runs)):
            one.stop()
            runs.append(cold_start(one))
    empty.close()
    seconds, cpu, read, resident = ([statistics.median(run[i] for run in runs) for runs in (full_runs, empty_runs)]
                                    for i in range(4))
    add("cold start, s", seconds[0])
    add("cold start over an empty server's, s", seconds[0] - seconds[1], 0.2)
    add("CPU of a cold start over an empty server's, s", cpu[0] - cpu[1])
    add("reads at start over an empty server's, MiB", read[0] - read[1], 16)
    add("memory after start over an empty server's, MiB", resident[0] - resident[1], 16)


def step_crash(srv, n, args, add):
    """A row for each of many tables, as much log as asked for, SIGKILL, a cold start and a query."""
    if srv.engine == "MEMORY":
        return
    tables = min(n, 100000)
    flush = {"MYRIAD": "myriad_flush_log_at_trx_commit", "INNODB": "innodb_flush_log_at_trx_commit",
             "ROCKSDB": "rocksdb_flush_log_at_trx_commit"}[srv.engine.upper()]
    srv.query(f"SET GLOBAL {flush}=2")
    srv.query("CREATE DATABASE IF NOT EXISTS dirt")
    srv.query(f"CREATE TABLE IF NOT EXISTS dirt.big (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB) ENGINE={srv.engine}")
    dirty = "CONCAT('INSERT INTO b', (i*2+%d) DIV 1000, '.t', (i*2+%d) MOD 1000, ' (k,name) VALUES (1,''x'')')"
    log = f"'INSERT INTO dirt.big (b) VALUES (REPEAT(UUID(), {(1 << 20) // 36}))'"
    counts, _ = in_parallel(srv, [lambda c, half=half: loop(c, tables // 2, dirty % (half, half), args.seconds * 6)[0]
                                  for half in (0, 1)])
    in_parallel(srv, [lambda c: loop(c, args.log_mib, log, args.seconds * 6)])
    srv.kill()
    drop_caches(srv)
    begin = time.monotonic()
    srv.start(timeout=3600, poll=0.005)
    rows = srv.query("SELECT COUNT(*) FROM b0.t1")
    took, cpu = time.monotonic() - begin, srv.cpu_seconds()
    if not rows[0][0]:
        raise server.ServerError(f"{srv.engine} lost a row that was committed before the kill")
    add(f"first query after SIGKILL, {args.log_mib} MiB of log, s", took, 2)
    add("CPU until then, s", cpu)
    add("tables dirtied before", sum(counts))
    if srv.engine == "MYRIAD":
        for phase, seconds, read in srv.query("SELECT PHASE, SECONDS, BYTES_READ FROM information_schema.MYRIAD_STARTUP"):
            add(f"of this, {phase}, s", float(seconds))
            if read:
                add(f"of this, {phase}, MiB read", int(read) / (1 << 20))
    quiet(srv)
    srv.query("DROP DATABASE dirt")


def step_drop(srv, n, args, add):
    """DROP DATABASE: of as many tables as can be created in a while, 20,000 at most."""
    srv.query("CREATE DATABASE extra")
    texts = [f"CONCAT('CREATE TABLE extra.t{client}_', i, ' ({COLUMNS}) ENGINE={srv.engine}')" for client in range(4)]
    counts, _ = unsafely(srv, lambda: in_parallel(
        srv, [lambda c, text=text: loop(c, 5000, text, args.seconds * 4)[0] for text in texts]))
    srv.start(timeout=3600)
    quiet(srv)
    begin = time.monotonic()
    srv.query("DROP DATABASE extra")
    took = time.monotonic() - begin
    add("DROP DATABASE, s", took, 1)
    add("tables in it", sum(counts))


def spaces(args, add):
    """Cold start with a tablespace file for each of many tables, beside an empty server."""
    options = CACHES + ["--loose-myriad-tablespace-per=TABLE"]
    with server.Server("MYRIAD", pool_mib=args.pool_mib, options=options) as srv:
        srv.filled = 0
        fill(srv, max(PER_DATABASE, args.spaces), args)
        step_start(srv, args.spaces, args, lambda name, *rest: add(f"{args.spaces} tablespace files: {name}", *rest))


def report(rows, engines, name):
    measure.write_csv(f"{name}.csv", rows)
    keys = list(dict.fromkeys((r["tables"], r["figure"]) for r in rows))
    value = {(r["tables"], r["figure"], r["engine"]): r["value"] for r in rows}
    wanted = {(r["tables"], r["figure"]): r["wanted"] for r in rows if r["wanted"] != "" and r["engine"] == "MYRIAD"}
    lines = [f"{'tables':>8}  {'figure':<76}" + "".join(f"{e:>12}" for e in engines) + f"{'wanted <=':>11}"]
    missed = 0
    for n, figure in keys:
        line = f"{n:>8}  {figure:<76}" + "".join(
            f"{value[(n, figure, e)]:>12.4g}" if (n, figure, e) in value else f"{'-':>12}" for e in engines)
        limit = wanted.get((n, figure))
        if limit is not None:
            miss = value.get((n, figure, "MYRIAD"), 0) > limit
            missed += miss
            line += f"{limit:>11}" + ("  MISSED" if miss else "")
        lines.append(line)
    text = "\n".join(lines)
    charted = ("a second", "start", ", us", "SIGKILL")
    figures = [f for f in dict.fromkeys(f for _, f in keys) if any(w in f for w in charted)] or [keys[0][1]]
    groups = list(dict.fromkeys(r["tables"] for r in rows))
    chart = measure.grid(f"{name}.png", figures, groups, engines, {(f, n, e): v for (n, f, e), v in value.items()},
                         "by number of tables")
    measure.write_page(name, "What a table costs", f"{', '.join(map(str, groups))} tables", text, [chart])
    print(text)
    print(f"{missed} figures missed; results in bench/results/{name}.csv and beside it")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", default="InnoDB,MYRIAD,ROCKSDB,MEMORY")
    parser.add_argument("--tables", default="1000,20000", help="numbers of tables, growing")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--seconds", type=int, default=5, help="longest time of one measurement")
    parser.add_argument("--fill-seconds", type=int, default=120, help="longest time to fill an engine by CREATE TABLE")
    parser.add_argument("--rounds", type=int, default=3, help="cold starts")
    parser.add_argument("--statements", type=int, default=2000, help="of each kind and round on random tables")
    parser.add_argument("--list-tables", type=int, default=100000, help="most tables to list")
    parser.add_argument("--log-mib", type=int, default=256, help="log to write before the SIGKILL")
    parser.add_argument("--spaces", type=int, default=0, help="also: cold start with this many tablespace files")
    parser.add_argument("--pool-mib", type=int, default=256)
    parser.add_argument("--name", default="tables", help="stem of the result files")
    args = parser.parse_args()
    engines, steps, numbers = args.engines.split(","), args.steps.split(","), [int(n) for n in args.tables.split(",")]
    unknown = set(steps) - set(STEPS)
    if unknown or any(n % PER_DATABASE for n in numbers) or numbers != sorted(numbers):
        raise server.ServerError(f"unknown steps {sorted(unknown)}" if unknown else
                                 f"numbers of tables must grow and be multiples of {PER_DATABASE}")
    print(measure.machine(), flush=True)
    rows, servers = [], {}
    for engine in engines:
        # MyRocks refuses to start after a SIGKILL that left half a record in its log unless told to stop there.
        log = {"INNODB": ["--innodb-log-file-size=2G"], "MYRIAD": ["--loose-myriad-log-capacity=2147483648"],
               "ROCKSDB": ["--rocksdb-wal-recovery-mode=2"]}
        srv = servers[engine] = server.Server(engine, pool_mib=args.pool_mib, flush=1,
                                              options=CACHES + log.get(engine.upper(), []))
        srv.filled = 0
        srv.start()
    for n in numbers:
        for engine in list(servers):
            if not grow(servers[engine], n, args):
                print(f"{n} tables: {engine} was not filled within {args.fill_seconds} s and is left out", flush=True)
                servers.pop(engine).close()
        for step in steps:
            failed = []
            for engine, srv in servers.items():
                def add(figure, value, wanted=None, engine=engine):
                    rows.append({"tables": n, "figure": figure, "engine": engine, "value": value,
                                 "wanted": "" if wanted is None else wanted})
                    print(f"{n} {engine} {figure}: {value:.4g}", flush=True)
                quiet(srv)
                try:
                    globals()[f"step_{step}"](srv, n, args, add)
                except server.ServerError as problem:
                    if engine == "MYRIAD":
                        raise
                    print(f"{n} tables: {engine} is left out from here on: {problem}", flush=True)
                    failed.append(engine)
            for engine in failed:
                servers.pop(engine).close()
    for srv in servers.values():
        srv.close()
    if args.spaces:
        spaces(args, lambda figure, value, wanted=None: rows.append(
            {"tables": args.spaces, "figure": figure, "engine": "MYRIAD", "value": value,
             "wanted": "" if wanted is None else wanted}))
    report(rows, engines, args.name)
    return 0


if __name__ == "__main__":
    server.main_guard(main)
