#!/usr/bin/python3
"""Memory and its limits on a server: the pool's size and warm-up, the threads' CPUs, tables in memory, the log switched off,
statistics that are kept.
Usage: pool_tests.py [NAME...]"""
import contextlib
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import database, expect, metric, pymysql, rows, run, server, status, wait_until  # noqa: E402


@contextlib.contextmanager
def changing(where, statement):
    """Three clients that run `statement(client, how many before)` over and over; how many each has run, and their errors."""
    stop, done, problems = threading.Event(), [0, 0, 0], []

    def work(number):
        mine = where.connect(database="d")
        try:
            while not stop.is_set():
                rows(mine, statement(number, done[number]))
                done[number] += 1
        except pymysql.err.Error as problem:
            problems.append(problem)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(done))]
    for worker in workers:
        worker.start()
    try:
        yield done, problems
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def test_pool_resize(where):
    """The pool grows and shrinks under load; sizes that cannot be are refused; memory follows."""
    c = database(where)
    mib = 1 << 20
    before = int(rows(c, "SELECT @@myriad_buffer_pool_size")[0][0])
    page = metric(c, "page_size")
    rows(c, "CREATE TABLE r (id INT PRIMARY KEY, n INT NOT NULL, pad VARCHAR(4000) NOT NULL)")
    rows(c, "INSERT INTO r SELECT seq, 0, REPEAT('x', 4000) FROM seq_1_to_12000")

    def update(number, before):
        return f"UPDATE r SET n=n+1 WHERE id={(before * 7919 + number * 4001) % 12000 + 1}"

    def resized(size):
        rows(c, f"SET GLOBAL myriad_buffer_pool_size={size}")
        expect("the variable", int(rows(c, "SELECT @@myriad_buffer_pool_size")[0][0]), size)
        deadline = time.monotonic() + 60
        while metric(c, "buffer_pool_pages_total") * page != size:
            status = rows(c, "SHOW ENGINE MYRIAD STATUS")[0][2]
            if time.monotonic() > deadline:
                raise AssertionError(f"the pool did not reach {size} bytes: {status}")
            time.sleep(0.01)
        if f"Size {size} bytes; can grow to" not in rows(c, "SHOW ENGINE MYRIAD STATUS")[0][2]:
            raise AssertionError("SHOW ENGINE MYRIAD STATUS does not tell the size")

    with changing(where, update) as (done, problems):
        resized(300 * mib)
        for size in (8, 64, 300, 16):
            resized(size * mib)
            time.sleep(0.3)
        # Whatever the last one is on its way to.
        for size in (300, 8, 64, 12, 200, 8, 300, 30):
            rows(c, f"SET GLOBAL myriad_buffer_pool_size={size * mib}")
        resized(16 * mib)
        rows(c, "SELECT COUNT(pad) FROM r")
    expect("errors of clients", problems, [])
    expect("updates", int(rows(c, "SELECT SUM(n) FROM r")[0][0]), sum(done))
    full = where.rss_mib()
    resized(200 * mib)
    rows(c, "SELECT COUNT(pad) FROM r")
    resized(8 * mib)
    if where.rss_mib() > full + 30:
        raise AssertionError(f"memory was not given back: {full:.0f} MiB before, {where.rss_mib():.0f} MiB now")
    for size, why in (("1", "the smallest buffer pool"), ("-1", "the smallest buffer pool"), ("1 << 60", "were reserved at the start")):
        try:
            rows(c, f"SET GLOBAL myriad_buffer_pool_size={size}")
            raise AssertionError(f"a pool of {size} bytes was not refused")
        except pymysql.err.Error as problem:
            if why not in str(problem):
                raise AssertionError(f"a pool of {size} bytes: {problem}") from None
    rows(c, f"SET GLOBAL myriad_buffer_pool_size={9 * mib - 1}")
    expect("a size that is rounded", rows(c, "SHOW WARNINGS"),
           (("Warning", 1292, f"Truncated incorrect myriad_buffer_pool_size value: '{9 * mib - 1}'"),))
    expect("the variable after a refusal", int(rows(c, "SELECT @@myriad_buffer_pool_size")[0][0]), 8 * mib)
    resized(before)
    rows(c, "DROP TABLE r")


def test_background_cpus(_where):
    """The engine's threads run where they are told, those of clients anywhere; a bad list is refused."""
    cpus = sorted(os.sched_getaffinity(0))
    with server.Server("MYRIAD", options=[f"--loose-myriad-background-cpus={cpus[-1]}"]) as where:
        found = {}
        for task in os.listdir(f"/proc/{where.process.pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{where.process.pid}/task/{task}/comm") as f:     # it may have ended
                name = f.read().strip()
                if not name.startswith("iou-"):     # the kernel's own, of whichever thread asked for I/O
                    found.setdefault(name.startswith("myriad-"), {})[name] = sorted(os.sched_getaffinity(int(task)))
        expect("CPUs of the engine's threads", {n: c for n, c in found[True].items() if c != cpus[-1:]}, {})
        expect("CPUs of the others", {n: c for n, c in found[False].items() if c != cpus}, {})
    for bad, why in (("0-", "neither a number nor a range"), ("100000", "may not use CPU 100000")):
        refused = server.Server("MYRIAD", options=[f"--loose-myriad-background-cpus={bad}"])
        try:
            refused.start()
            raise AssertionError(f"CPU list {bad} was not refused")
        except server.ServerError:
            with open(refused.log) as f:
                if why not in f.read():
                    raise AssertionError(f"CPU list {bad}: {refused.why()}") from None
        finally:
            refused.close()


def test_warm_up(_where):
    """After a restart the pages in use come back by themselves; a damaged list is noted and ignored."""
    with server.Server("MYRIAD", pool_mib=64) as where:
        c = database(where)
        rows(c, "CREATE TABLE w (id INT PRIMARY KEY, pad VARCHAR(4000) NOT NULL)")
        rows(c, "INSERT INTO w SELECT seq, REPEAT('x', 4000) FROM seq_1_to_5000")
        rows(c, "SELECT COUNT(pad) FROM w")
        c.close()

        def read_at_start():
            """Pages read again, when the log says that it is over."""
            where.restart()
            def told():
                with open(where.log) as f:
                    f.seek(where.log_offset)
                    text = f.read()
                return "warm-up" in text and text
            return wait_until("a word of the warm-up in the error log", told)

        if "warm-up: read " not in read_at_start():
            raise AssertionError("no pages were read again")
        c = where.connect(database="d")
        before = metric(c, "pages_read")
        expect("rows", rows(c, "SELECT COUNT(pad) FROM w"), ((5000,),))
        read = metric(c, "pages_read") - before
        if before < 1000 or read > 100:
            raise AssertionError(f"{before} pages were read again, {read} were missing")
        c.close()
        where.stop()
        with open(os.path.join(where.datadir, "#myriad", "hot_pages"), "r+b") as f:
            f.seek(50)
            f.write(b"damaged")
        where.start()
        wait_until("a damaged list is noticed", lambda: "hot_pages is ignored: its pages are damaged" in open(where.log).read())
        expect("rows", where.query("SELECT COUNT(pad) FROM d.w"), ((5000,),))


def test_memory_restart(_where):
    """In-memory tables keep their definition, the binary log tells replicas that they were emptied, others keep their rows."""
    with server.Server("MYRIAD", binlog=True) as where:
        c = database(where)
        rows(c, "CREATE TABLE m (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(30), KEY(v)) IN_MEMORY=YES")
        rows(c, "CREATE TABLE p (a INT PRIMARY KEY, b INT) IN_MEMORY=YES PARTITION BY HASH(a) PARTITIONS 3")
        rows(c, "CREATE TABLE old (a INT PRIMARY KEY, b INT) IN_MEMORY=YES PARTITION BY HASH(a) PARTITIONS 3")
        rows(c, "CREATE TABLE gone (a INT PRIMARY KEY) IN_MEMORY=YES")
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30))")
        for crash in (False, True):
            rows(c, "INSERT INTO m (v) SELECT CONCAT('v', seq) FROM seq_1_to_5000")
            rows(c, "INSERT INTO p SELECT seq, seq FROM seq_1_to_100")
            rows(c, "INSERT INTO old SELECT seq, seq FROM seq_1_to_100")
            rows(c, f"INSERT INTO t VALUES ({int(crash)}, 'stays')")
            expect("memory is used", status(c, "memory_tables_bytes") > 100_000, True)
            expect("shown", "In-memory tables: 0 of" in rows(c, "SHOW ENGINE MYRIAD STATUS")[0][2], False)
            rows(c, "BEGIN")
            rows(c, "UPDATE m SET v='lost'")
            rows(c, "INSERT INTO t VALUES (100, 'lost')")
            if crash:
                where.kill()
                where.start()
            else:
                where.restart()
            c = where.connect(database="d")
            expect("empty", rows(c, "SELECT COUNT(*) FROM m"), ((0,),))
            expect("empty by index", rows(c, "SELECT COUNT(*) FROM m FORCE INDEX (v) WHERE v > ''"), ((0,),))
            # One partition after the other, and the table under another name.
            rows(c, "INSERT INTO p PARTITION (p1) VALUES (1, 1)")
            expect("empty partitions", rows(c, "SELECT a FROM p"), ((1,),))
            rows(c, "DELETE FROM p")
            rows(c, "RENAME TABLE old TO new")
            expect("empty partitions of another name", rows(c, "SELECT COUNT(*) FROM new"), ((0,),))
            rows(c, "RENAME TABLE new TO old")
            expect("and of the old one", rows(c, "SELECT COUNT(*) FROM old"), ((0,),))
            rows(c, "CREATE TABLE single (a INT PRIMARY KEY, b INT) IN_MEMORY=YES")
            rows(c, "ALTER TABLE old EXCHANGE PARTITION p1 WITH TABLE single")
            rows(c, "FLUSH TABLES")
            expect("after the exchange", rows(c, "SELECT COUNT(*) FROM old, single"), ((0,),))
            rows(c, "DROP TABLE single")
            expect("the other table", rows(c, "SELECT COUNT(*) FROM t"), ((1 + int(crash),),))
            rows(c, "INSERT INTO m (v) VALUES ('first')")
            expect("counts anew", rows(c, "SELECT id, v FROM m"), ((1, "first"),))
            rows(c, "DELETE FROM m")
            expect("check", rows(c, "CHECK TABLE m")[0][3], "OK")
            expect("option", "`IN_MEMORY`=YES" in rows(c, "SHOW CREATE TABLE m")[0][1], True)
            rows(c, "FLUSH TABLES")
            rows(c, "INSERT INTO m (v) VALUES ('x')")
            name = rows(c, "SHOW BINARY LOGS")[-1][0]
            events = [r[5] for r in rows(c, f"SHOW BINLOG EVENTS IN '{name}'") if "TRUNCATE TABLE" in r[5]]
            told = {table: sum(f"TRUNCATE TABLE `d`.`{table}`" in e for e in events) for table in ("m", "p", "old", "new", "single")}
            expect("told once", told, {"m": 1, "p": 1, "old": 0, "new": 1, "single": 0})
            rows(c, "DELETE FROM m")
        rows(c, "DROP TABLE gone")
        rows(c, "DROP DATABASE d")


def test_memory_hash(_where):
    """USING HASH: equality takes fewer pages than in an ordered index, which it is as well; the same after a restart."""
    with server.Server("MYRIAD") as where:
        c = database(where)
        rows(c, "CREATE TABLE h (id INT, k INT, v VARCHAR(90), PRIMARY KEY (id) USING HASH, KEY k (k)) IN_MEMORY=YES")
        rows(c, "CREATE TABLE b (id INT PRIMARY KEY, k INT, v VARCHAR(90), KEY k (k)) IN_MEMORY=YES")
        rows(c, "CREATE TABLE disk (id INT PRIMARY KEY, k INT, KEY k (k) USING HASH)")
        rows(c, "ALTER TABLE h ADD INDEX v (v) USING HASH, ALGORITHM=INPLACE")
        types = {"h": {"PRIMARY": "HASH", "k": "BTREE", "v": "HASH"}, "b": {"PRIMARY": "BTREE", "k": "BTREE"},
                 "disk": {"PRIMARY": "BTREE", "k": "BTREE"}}
        for restarted in (False, True):
            for table, wanted in types.items():
                expect("types", {r[2]: r[10] for r in rows(c, f"SHOW INDEX FROM {table}")}, wanted)
            requests = {}
            for table in ("h", "b"):
                rows(c, f"INSERT INTO {table} SELECT seq, seq MOD 100, CONCAT('v', seq) FROM seq_1_to_30000")
                # Entries get into the hash as they are looked up; the counter has what the background reads, too.
                turns = []
                for _ in range(6):
                    before = status(c, "buffer_pool_read_requests")
                    found = rows(c, f"SELECT COUNT(*), SUM(t.k) FROM seq_1_to_40000 s STRAIGHT_JOIN {table} t ON t.id = s.seq")
                    turns.append(status(c, "buffer_pool_read_requests") - before)
                requests[table] = min(turns)
                expect("look-ups", found, ((30000, 1485000),))
            expect(f"fewer pages: {requests}", requests["h"] < requests["b"] * .7, True)
            expect("order", rows(c, "SELECT id FROM h WHERE id > 29995 ORDER BY id DESC"),
                   ((30000,), (29999,), (29998,), (29997,), (29996,)))
            expect("range of the other", rows(c, "SELECT COUNT(*) FROM h WHERE v BETWEEN 'v2' AND 'v29999'"),
                   rows(c, "SELECT COUNT(*) FROM b WHERE v BETWEEN 'v2' AND 'v29999'"))
            expect("equal", rows(c, "SELECT id FROM h WHERE v = 'v17'"), ((17,),))
            rows(c, "UPDATE h SET v = CONCAT(v, REPEAT('x', 80)) WHERE id MOD 3 = 0")
            rows(c, "DELETE FROM h WHERE id MOD 2 = 0")
            expect("after moves", rows(c, "SELECT COUNT(*) FROM seq_1_to_30000 s STRAIGHT_JOIN h ON h.id = s.seq"), ((15000,),))
            expect("check", rows(c, "CHECK TABLE h")[0][3], "OK")
            if not restarted:
                where.restart()
                c = where.connect(database="d")
        rows(c, "DROP DATABASE d")


def test_memory_limit(where):
    c = database(where)
    rows(c, "CREATE TABLE m (id INT PRIMARY KEY, v VARCHAR(1000)) IN_MEMORY=YES")
    rows(c, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(1000))")
    expect("default", status(c, "memory_tables_bytes_max"), 64 << 20)
    rows(c, "SET GLOBAL myriad_memory_tables_size=4194304")
    try:
        expect("limit", status(c, "memory_tables_bytes_max"), 4194304)
        rows(c, "INSERT INTO m SELECT seq, REPEAT('a', 500) FROM seq_1_to_2000")
        for _ in range(2):
            with c.cursor() as cursor:
                try:
                    cursor.execute("INSERT INTO m SELECT seq, REPEAT('b', 900) FROM seq_10000_to_20000")
                    raise AssertionError("more than the limit was stored")
                except pymysql.err.Error as problem:
                    expect("error", (problem.args[0], "'m' is full" in problem.args[1]), (1114, True))
            warnings = " ".join(str(r) for r in rows(c, "SHOW WARNINGS"))
            expect("warning", "myriad_memory_tables_size" in warnings, True)
            expect("the statement is undone", rows(c, "SELECT COUNT(*) FROM m"), ((2000,),))
        rows(c, "INSERT INTO t SELECT seq, REPEAT('b', 900) FROM seq_1_to_10000")
        rows(c, "DELETE FROM m")
        wait_until("the deleted rows' memory is free", lambda: status(c, "memory_tables_bytes") < 1 << 20)
        rows(c, "INSERT INTO m SELECT seq, REPEAT('c', 500) FROM seq_1_to_3000")
        rows(c, "SET GLOBAL myriad_memory_tables_size=0")
        rows(c, "INSERT INTO m SELECT seq, REPEAT('b', 900) FROM seq_10000_to_20000")
        expect("all", rows(c, "SELECT COUNT(*) FROM m"), ((13001,),))
        rows(c, "DROP TABLE m")
    finally:
        rows(c, "SET GLOBAL myriad_memory_tables_size=0")


def log_sizes(c):
    """As the variable and as the metric say, which leaves room for a checkpoint out."""
    return int(rows(c, "SELECT @@myriad_log_capacity")[0][0]), metric(c, "log_capacity_bytes") * 8 // 7


def test_log_capacity(_where):
    """The log gets another size while clients change rows; a kill loses nothing; a clean start takes the configuration's."""
    mib = 1 << 20
    with server.Server("MYRIAD", options=[f"--loose-myriad-log-capacity={8 * mib}"]) as where:
        c = database(where)
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL, v VARCHAR(2000))")
        rows(c, "INSERT INTO t SELECT seq, 0, REPEAT('x', 2000) FROM seq_1_to_2000")

        def update(number, before):
            return f"UPDATE t SET n=n+1, v=REPEAT(CHAR(65 + n % 26), 2000) WHERE id={before % 500 + number * 500 + 1}"

        with changing(where, update) as (done, problems):
            for size in (12, 40, 41, 20, 4, 96, 24):
                time.sleep(0.3)
                rows(c, f"SET GLOBAL myriad_log_capacity={size * mib}")
                expect("in force", log_sizes(c), (size * mib, size * mib))
            wait_until("each client changes rows", lambda: min(done) > 0 or problems)
        expect("problems", problems, [])
        where.kill()
        where.start()
        c = where.connect(database="d")
        expect("after a kill", rows(c, "SELECT SUM(n) FROM t")[0][0], sum(done))
        expect("not clean: it stays", log_sizes(c), (24 * mib, 24 * mib))
        for what, refused in (("SET GLOBAL myriad_redo_log=OFF", None),
                              (f"SET GLOBAL myriad_log_capacity={128 * mib}", "OFF"),
                              (f"SET GLOBAL myriad_log_capacity={16 * mib}", "OFF"),
                              ("SET GLOBAL myriad_redo_log=ON", None)):
            try:
                rows(c, what)
                told = None
            except pymysql.err.Error as problem:
                told = problem.args
            expect(what, told and (told[0], refused in told[1]), refused and (1296, True))
        where.restart()
        c = where.connect(database="d")
        expect("as the configuration says", log_sizes(c), (8 * mib, 8 * mib))
        expect("rows", rows(c, "SELECT SUM(n) FROM t")[0][0], sum(done))
        files = os.listdir(os.path.join(where.datadir, "#myriad"))
        expect("one log", [f for f in files if f.startswith("redo.log")], ["redo.log"])


def test_redo_log(_where):
    """Off: nothing is logged; on again, or stopped cleanly: nothing is lost; killed while off: refused, with one sentence."""
    refusal = "the server ended while myriad_redo_log was OFF, without a shutdown"
    with server.Server("MYRIAD") as where:
        c = database(where)
        expect("default", (rows(c, "SELECT @@GLOBAL.myriad_redo_log"), metric(c, "redo_log_on")), (((1,),), 1))
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200), KEY(v))")
        rows(c, "INSERT INTO t SELECT seq, CONCAT('logged', seq) FROM seq_1_to_1000")
        try:
            rows(c, "SET SESSION myriad_redo_log=OFF")
            raise AssertionError("set for a session")
        except pymysql.err.Error as problem:
            expect("error for a session", problem.args[0], 1229)
        rows(c, "SET GLOBAL myriad_redo_log=OFF")
        expect("off", (rows(c, "SELECT @@GLOBAL.myriad_redo_log"), metric(c, "redo_log_on")), (((0,),), 0))
        expect("told", "OFF: nothing is written to the log" in rows(c, "SHOW ENGINE MYRIAD STATUS")[0][2], True)
        with open(where.log) as log:
            expect("error log", "[Warning] MYRIAD: the redo log is off" in log.read(), True)
        names = ("log_writes", "log_written_bytes", "log_syncs", "doublewrite_batches")
        before = [metric(c, name) for name in names]
        rows(c, "INSERT INTO t SELECT seq, CONCAT(seq, REPEAT('x', 150)) FROM seq_1001_to_30000")
        for i in range(100):
            rows(c, f"UPDATE t SET v='single' WHERE id={i}")
        rows(c, "XA START 'kept'")
        rows(c, "INSERT INTO t VALUES (-1, 'prepared')")
        rows(c, "XA END 'kept'")
        rows(c, "XA PREPARE 'kept'")
        rows(c, "XA COMMIT 'kept'")
        rows(c, "CREATE TABLE made (a INT PRIMARY KEY)")
        rows(c, "ALTER TABLE t ADD KEY (id, v)")
        expect("written to the log", [metric(c, name) for name in names], before)
        rows(c, "SET GLOBAL myriad_redo_log=ON")
        expect("on", (rows(c, "SELECT @@GLOBAL.myriad_redo_log"), metric(c, "redo_log_on")), (((1,),), 1))
        rows(c, "INSERT INTO t VALUES (-2, 'logged again')")
        sums = "SELECT COUNT(*), SUM(id), SUM(CRC32(v)) FROM t"
        wanted = rows(c, sums)
        where.kill()
        where.start()
        c = where.connect(database="d")
        expect("after a kill", (rows(c, sums), rows(c, "SELECT * FROM made")), (wanted, ()))
        expect("check", rows(c, "CHECK TABLE t EXTENDED")[0][3], "OK")
        for mode in (0, 1, 2):
            rows(c, "SET GLOBAL myriad_redo_log=OFF")
            rows(c, "UPDATE t SET v=CONCAT(v, 'y')")
            rows(c, f"SET GLOBAL myriad_fast_shutdown={mode}")
            wanted = rows(c, sums)
            where.restart()
            c = where.connect(database="d")
            expect(f"after a shutdown of mode {mode}", (rows(c, sums), metric(c, "redo_log_on")), (wanted, 1))
        # Off from the start.
        where.stop()
        where.options.append("--loose-myriad-redo-log=OFF")
        where.start()
        c = where.connect(database="d")
        expect("off by option", (rows(c, "SELECT @@GLOBAL.myriad_redo_log"), metric(c, "redo_log_on")), (((0,),), 0))
        rows(c, "UPDATE t SET v=CONCAT(v, 'z')")
        wanted = rows(c, sums)
        where.restart()
        c = where.connect(database="d")
        expect("after a shutdown", (rows(c, sums), metric(c, "redo_log_on")), (wanted, 0))
        where.kill()
        where.options.remove("--loose-myriad-redo-log=OFF")
        for _ in range(2):
            try:
                where.start()
                raise AssertionError("started after a kill without the log")
            except server.ServerError as problem:
                expect(f"refusals in {problem}", str(problem).count(refusal), 1)
        verify = subprocess.run([os.path.join(server.BUILD, "myriad"), "verify", where.datadir], capture_output=True, text=True)
        expect(f"verify: {verify}", (verify.returncode, refusal in verify.stdout), (1, True))


def test_statistics_kept(_where):
    """Statements and openings of a table that has not changed look at no page for its statistics; people are told all sizes."""
    with server.Server("MYRIAD", options=["--loose-myriad-buffer-pool-warm-up=OFF"]) as where:
        c = database(where)
        indexes = ", ".join(f"c{n} INT AS (id DIV {n + 1}) STORED, KEY (c{n}, v)" for n in range(10))
        rows(c, f"CREATE TABLE s (id INT PRIMARY KEY, v VARCHAR(10), {indexes})")
        rows(c, "INSERT INTO s (id, v) SELECT seq, 'v' FROM seq_1_to_100")
        rows(c, "CREATE TABLE p (id INT PRIMARY KEY, v INT, KEY (v)) PARTITION BY HASH (id) PARTITIONS 5")
        rows(c, "INSERT INTO p SELECT seq, seq FROM seq_1_to_1000")

        def accessed(times, *sqls):
            """Pages asked for by statements run so often, in each round."""
            before = metric(c, "buffer_pool_read_requests")
            for _ in range(times):
                for sql in sqls:
                    rows(c, sql)
            return (metric(c, "buffer_pool_read_requests") - before) / times

        def cardinality():
            return rows(c, "SELECT INDEX_NAME, SEQ_IN_INDEX, CARDINALITY FROM information_schema.STATISTICS"
                           " WHERE TABLE_NAME = 's' ORDER BY 1, 2")

        select = "SELECT v FROM s WHERE id = 5"
        rows(c, select)
        few = accessed(100, select)
        expect(f"pages of a statement: {few}", few < 4, True)
        before = cardinality()
        expect("values", {name: n for name, part, n in before if part == 1}["c9"] <= 20, True)
        few = accessed(50, "FLUSH TABLES s", select)
        expect(f"pages of an opening: {few}", few < 30, True)
        expect("after FLUSH TABLES", cardinality(), before)
        rows(c, "INSERT INTO s (id, v) SELECT seq + 1000, 'v' FROM seq_1_to_900")
        rows(c, "FLUSH TABLES s")
        grown = {name: n for name, part, n in cardinality() if part == 1}
        expect(f"sampled again: {grown}", 60 <= grown["c9"] <= 300 and grown["PRIMARY"] == 1000, True)
        for query, tables in (("TABLES WHERE TABLE_NAME IN ('p', 's')", 2), ("PARTITIONS WHERE TABLE_NAME = 'p'", 5)):
            told = rows(c, "SELECT TABLE_ROWS, AVG_ROW_LENGTH, DATA_LENGTH, INDEX_LENGTH, CREATE_TIME IS NULL"
                           f" FROM information_schema.{query}")
            expect("tables told", len(told), tables)
            for number, mean, data, index, no_time in told:
                expect(f"sizes in {query}: {told}", number > 100 and 8 < mean < 200 and data > 0 and index > 0, True)
                expect("time", no_time, 0)


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
