#!/usr/bin/python3
"""What reading costs: pages asked for, read together or left alone; statistics of tables; sorting by position.
Usage: reading_tests.py [NAME...]"""
import json
import os
import random
import re
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import database, expect, pymysql, rows, run, server, status, wait_until  # noqa: E402


def engine_stats(connection, sql):
    """r_engine_stats of the first table that ANALYZE FORMAT=JSON names."""
    def find(part):
        if isinstance(part, dict) and "r_engine_stats" in part:
            return part["r_engine_stats"]
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return next((found for found in map(find, parts) if found is not None), None)
    found = find(json.loads(rows(connection, "ANALYZE FORMAT=JSON " + sql)[0][0]))
    if found is None:
        raise AssertionError(f"no r_engine_stats: {sql}")
    return found


def test_engine_stats(_where):
    """ANALYZE FORMAT=JSON and the slow log tell which pages a table's part of a statement took."""
    options = ["--loose-myriad-buffer-pool-warm-up=OFF", "--slow-query-log=1", "--slow-query-log-file=slow.log",
               "--long-query-time=0", "--log-slow-verbosity=engine"]
    with server.Server("MYRIAD", pool_mib=64, options=options) as where:
        c = database(where)
        rows(c, "CREATE TABLE s (id INT PRIMARY KEY, pad VARCHAR(4000) NOT NULL)")
        rows(c, "INSERT INTO s SELECT seq, REPEAT('x', 4000) FROM seq_1_to_1000")
        warm = engine_stats(c, "SELECT pad FROM s WHERE id = 500")
        expect("a row in memory", warm, {"pages_accessed": warm["pages_accessed"]})
        expect("pages of one row", 1 <= warm["pages_accessed"] <= 4, True)
        changed = engine_stats(c, "UPDATE s SET pad = 'y' WHERE id BETWEEN 1 AND 10")
        expect("pages changed", changed["pages_updated"] >= 20, True)
        reader = where.connect(database="d")
        rows(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        rows(c, "UPDATE s SET pad = 'z' WHERE id = 1")
        expect("old versions", engine_stats(reader, "SELECT pad FROM s WHERE id = 1").get("old_rows_read"), 1)
        reader.close()
        c.close()
        where.restart()
        c = where.connect(database="d")
        rows(c, "SELECT COUNT(*) FROM s WHERE id = 1")
        cold = engine_stats(c, "SELECT COUNT(pad) FROM s")
        # There are 248 leaves to read; one that is asked for again while it waits counts twice.
        read = cold["pages_read_count"] + cold.get("pages_prefetch_read_count", 0)
        if not 200 <= read <= cold["pages_accessed"]:
            raise AssertionError(f"pages read: {cold}")
        expect("time for them", cold["pages_read_time_ms"] > 0, True)
        # Its entry in the slow log is complete when the next statement begins.
        rows(c, "SELECT 1")
        c.close()
        with open(os.path.join(where.datadir, "slow.log")) as log:
            expect("slow log", re.search(r"Pages_accessed: [1-9]\d*  Pages_read: [1-9]\d* ", log.read()) is not None, True)


def test_pages_read_together(_where):
    """Rows of ranges, of secondary indexes' entries and of lists of keys that are not in memory are read several at a time,
    and are the same as one by one (InnoDB's)."""
    with server.Server("MYRIAD", pool_mib=8, options=["--loose-partition=ON"]) as where:
        c = database(where)
        shape = """CREATE TABLE {} (id INT PRIMARY KEY, a INT, s VARCHAR(20) COLLATE utf8mb4_general_ci, d DECIMAL(8,2), pad CHAR(250),
            KEY a (a), KEY sd (s(5), d)) ENGINE={} {}"""
        for table, engine, more, count in [("m", "MYRIAD", "", 20000), ("i", "InnoDB", "", 20000),
                                           ("p", "MYRIAD", "PARTITION BY HASH(id) PARTITIONS 3", 20000), ("big", "MYRIAD", "", 40000)]:
            rows(c, shape.format(table, engine, more))
            rows(c, f"""INSERT INTO {table} SELECT seq, IF(seq % 13 = 0, NULL, seq * 7919 % 2000), CONCAT('K', seq * 31 % 997, IF(seq % 2, '', ' x')),
                seq * 17 % 5000, REPEAT(CHAR(97 + seq % 26), 200) FROM seq_1_to_{count}""")
        few, many = ",".join(str(n * 977 % 20000) for n in range(9)), ",".join(str(n * 613 % 21000) for n in range(150))
        names = ",".join(f"'k{n * 11} X'" for n in range(60))
        queries = [
            "SELECT id, a, pad FROM {} WHERE id BETWEEN 5000 AND 5060 ORDER BY id",
            "SELECT SUM(id), COUNT(pad), MAX(pad) FROM {} WHERE id BETWEEN 5000 AND 6500",
            "SELECT id, pad FROM {} FORCE INDEX (a) WHERE a BETWEEN 100 AND 140 ORDER BY a, id",
            "SELECT id, pad FROM {} FORCE INDEX (a) WHERE a BETWEEN 100 AND 140 ORDER BY a DESC, id DESC",
            "SELECT id, pad FROM {} FORCE INDEX (a) WHERE a BETWEEN 100 AND 500 AND a % 3 = 1 AND d > 30 ORDER BY a, id",
            "SELECT id, pad FROM {} FORCE INDEX (a) WHERE a >= 700 ORDER BY a, id LIMIT 7",
            "SELECT id, pad FROM {} FORCE INDEX (a) WHERE a IS NULL OR a IN (4, 9, 1000, 1999) ORDER BY id",
            "SELECT id, pad FROM {} FORCE INDEX (sd) WHERE s = 'k300 X' ORDER BY id",
            f"SELECT id, s, d, pad FROM {{}} FORCE INDEX (sd) WHERE s IN ({names}) ORDER BY id",
            "SELECT id, pad FROM {} FORCE INDEX (sd) WHERE (s, d) IN (('k31', 17.00), ('k62 x', 34.00), ('k93', 51), (NULL, 3)) ORDER BY id",
            f"SELECT id, pad FROM {{}} WHERE id IN ({few}) ORDER BY id",
            f"SELECT id, pad FROM {{}} WHERE id IN ({many}) ORDER BY id",
            f"SELECT id, pad FROM {{}} WHERE id IN ({many}) OR id BETWEEN 50 AND 90 OR id BETWEEN 19990 AND 30000 ORDER BY id DESC",
            "SELECT x.id, y.id, y.pad FROM {0} x JOIN {0} y FORCE INDEX (a) ON y.a = x.id AND y.d < 90 WHERE x.id BETWEEN 30 AND 60 ORDER BY x.id, y.id",
            f"SELECT id, pad FROM {{}} WHERE id IN ({few}) ORDER BY id FOR UPDATE",
        ]
        changes = [f"UPDATE {{}} SET d = d + 1, a = a + 3 WHERE id IN ({many})", "UPDATE {} SET pad = 'new' WHERE a BETWEEN 300 AND 320",
                   "DELETE FROM {} WHERE a IN (5, 6, 7, 1200, 1300) OR id IN (3, 77, 19000)"]
        together = {}
        for round_no in range(2):
            for sql in queries:
                wanted = rows(c, sql.format("i"))
                for table in "mp":
                    rows(c, "SELECT COUNT(pad) FROM big")
                    before = status(c, "pages_read_together")
                    expect(sql.format(table), rows(c, sql.format(table)), wanted)
                    # Pages that have become hot stay: in one of the rounds most are not.
                    read = status(c, "pages_read_together") - before
                    together[sql, table] = max(read, together.get((sql, table), 0))
                    expect(sql.format(table) + " again", rows(c, sql.format(table)), wanted)
            for sql in changes if round_no == 0 else ():
                for table in "imp":
                    rows(c, "SELECT COUNT(pad) FROM big")
                    rows(c, sql.format(table))
        for number in (0, 1, 2, 3, 8, 11):
            expect("more than one page at a time: " + queries[number], together[queries[number], "m"] > 1, True)
        # A locking read goes from entry to entry, and looks at those behind in its leaf.
        before = status(c, "pages_read_together")
        for sql in ("UPDATE {} SET pad = 'newer' WHERE a BETWEEN 800 AND 830", "DELETE FROM {} WHERE a BETWEEN 850 AND 880",
                    "SELECT id, pad FROM {} FORCE INDEX (a) WHERE a BETWEEN 900 AND 920 ORDER BY a DESC, id DESC FOR UPDATE"):
            for table in "im":
                rows(c, "SELECT COUNT(pad) FROM big")
                both = rows(c, sql.format(table))
                wanted = both if table == "i" else wanted
            expect(sql, both, wanted)
        expect("rows of a locking read together", status(c, "pages_read_together") - before > 20, True)
        whole = "SELECT id, a, s, d, pad FROM {} ORDER BY id"
        expect("all rows", rows(c, whole.format("m")), rows(c, whole.format("i")))
        for isolation in ("READ UNCOMMITTED", "READ COMMITTED"):
            rows(c, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
            for sql in queries:
                rows(c, "SELECT COUNT(pad) FROM big")
                expect(f"{isolation}: {sql}", rows(c, sql.format("m")), rows(c, sql.format("i")))
        c.close()


def test_rows_by_position_read_once(_where):
    """Who collects the positions of a multi-range read's rows, to read them in their order, reads the index alone; the rows are
    the same as one by one, at each isolation level, locked or not, whatever the index holds."""
    with server.Server("MYRIAD") as where:
        c, other = database(where), where.connect(database="d")
        rows(c, """CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20), e INT, g INT AS (e + 1) VIRTUAL, pad CHAR(200) DEFAULT 'p',
                   KEY a (a), KEY s (s(3)), KEY g (g))""")
        rows(c, "CREATE TABLE u LIKE t")
        rows(c, "ALTER TABLE u DROP COLUMN g")
        rows(c, "INSERT INTO t (id, a, s, e) SELECT seq, seq * 7919 % 5000, CONCAT('s', seq % 700), seq % 900 FROM seq_1_to_5000")
        rows(c, "INSERT INTO u (id, a, s, e) SELECT id, a, s, e FROM t")
        rows(c, "CREATE TABLE keys_wanted SELECT seq * 13 k FROM seq_1_to_200")
        rows(other, "BEGIN")
        rows(other, "UPDATE u SET a = a + 100000 WHERE a BETWEEN 400 AND 450")
        rows(other, "DELETE FROM u WHERE a BETWEEN 500 AND 550")
        simple, ordered = ("SET optimizer_switch='mrr=off,join_cache_bka=off', join_cache_level=2",
                           "SET optimizer_switch='mrr=on,mrr_cost_based=off,mrr_sort_keys=on,join_cache_bka=on', join_cache_level=8")
        queries = ["SELECT id, a, e, pad FROM {} FORCE INDEX (a) WHERE a BETWEEN 100 AND 1100 AND e % 3 = 1",
                   "SELECT id, e, pad FROM {} FORCE INDEX (a) WHERE a BETWEEN 100 AND 900 AND a % 5 = 2",
                   "SELECT id, s, pad FROM {} FORCE INDEX (s) WHERE s BETWEEN 's10' AND 's35'",
                   "SELECT id, pad FROM {} FORCE INDEX (a) WHERE a BETWEEN 600 AND 900 LOCK IN SHARE MODE",
                   "SELECT id, pad FROM {} FORCE INDEX (a) WHERE a BETWEEN 600 AND 900 FOR UPDATE SKIP LOCKED",
                   "SELECT k, id, e, pad FROM keys_wanted JOIN {} FORCE INDEX (a) ON a = k"]
        for isolation in ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ"):
            rows(c, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
            for sql in [sql.format(table) for table in "tu" for sql in queries] + ["SELECT g, pad FROM t FORCE INDEX (g) WHERE g < 300"]:
                rows(c, simple)
                wanted = sorted(rows(c, sql))
                plain = engine_stats(c, sql)["pages_accessed"]
                rows(c, ordered)
                expect(f"{isolation}: {sql}", sorted(rows(c, sql)), wanted)
                if isolation != "READ UNCOMMITTED" and sql == queries[0].format("u"):
                    plan = rows(c, "EXPLAIN " + sql)[0][-1]
                    expect("order", "Rowid-ordered scan" in plan, True)
                    once = engine_stats(c, sql)["pages_accessed"]
                    if once > plain * 1.1:
                        raise AssertionError(f"{sql}: {once} pages, {plain} one by one")
        rows(other, "ROLLBACK")
        other.close()
        c.close()


def test_positions_read_together(_where):
    """Rows that a multi-range read reads in the order of their positions are read from disk several pages at a time."""
    with server.Server("MYRIAD", pool_mib=64, options=["--loose-myriad-buffer-pool-warm-up=OFF"]) as where:
        c = database(where)
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY, a INT, pad CHAR(250) NOT NULL, KEY a (a))")
        rows(c, "INSERT INTO t SELECT seq, seq * 7919 % 20000, REPEAT('p', 250) FROM seq_1_to_20000")
        rows(c, "CREATE TABLE u (id VARCHAR(30) PRIMARY KEY, a INT, pad CHAR(250) NOT NULL, KEY a (a))")
        rows(c, "INSERT INTO u SELECT CONCAT(seq, REPEAT('x', seq % 20)), a, pad FROM t JOIN seq_1_to_20000 ON seq = id")
        rows(c, "CREATE TABLE w SELECT seq * 7 % 20000 k FROM seq_1_to_500")
        ordered = "SET optimizer_switch='mrr=on,mrr_cost_based=off,mrr_sort_keys={},join_cache_bka=on', join_cache_level=6, mrr_buffer_size={}"
        for sql in ("SELECT id, pad FROM {} FORCE INDEX (a) WHERE a BETWEEN 3000 AND 3800", "SELECT k, id, pad FROM w STRAIGHT_JOIN {} FORCE INDEX (a) ON a = k"):
            for sql in (sql.format("t"), sql.format("u")):
                wanted = sorted(rows(c, sql))
                for sort_keys in ("off", "on"):
                    for buffer_size in (8192, 262144):
                        c.close()
                        where.restart()
                        c = where.connect(database="d")
                        rows(c, ordered.format(sort_keys, buffer_size))
                        expect("order", "Rowid-ordered scan" in rows(c, "EXPLAIN " + sql)[-1][-1], True)
                        together, read = status(c, "pages_read_together"), status(c, "pages_read")
                        expect(sql, sorted(rows(c, sql)), wanted)
                        together, read = status(c, "pages_read_together") - together, status(c, "pages_read") - read
                        if together < read * 0.9:
                            raise AssertionError(f"{sql}, sort_keys {sort_keys}, {buffer_size}: {together} of {read} pages read together")
        c.close()


def test_check_reads_once(_where):
    """CHECK TABLE of a table larger than the pool reads each page once, and counts its rows beside changes."""
    with server.Server("MYRIAD", pool_mib=8) as where:
        c = database(where)
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY, a INT, pad CHAR(250) NOT NULL, KEY (a))")
        rows(c, "INSERT INTO t SELECT seq, seq * 7919 % 60000, REPEAT('p', 250) FROM seq_1_to_60000")
        rows(c, "ANALYZE TABLE t")
        size = rows(c, "SELECT (DATA_LENGTH + INDEX_LENGTH) DIV 16384 FROM information_schema.TABLES WHERE TABLE_NAME = 't'")[0][0]
        rows(c, "CHECK TABLE t")
        read = status(c, "pages_read")
        expect("sound", rows(c, "CHECK TABLE t")[0][3], "OK")
        read = status(c, "pages_read") - read
        if not size * 0.5 < read < size * 1.3:
            raise AssertionError(f"read {read} pages of {size}")
        stop = threading.Event()

        def changes(n):
            own = where.connect(database="d")
            chance = random.Random(n)
            while not stop.is_set():
                low = chance.randrange(1, 59000)
                sql = chance.choice([f"DELETE FROM t WHERE id BETWEEN {low} AND {low + chance.randrange(900)}",
                                     f"REPLACE INTO t SELECT seq, seq * {n} % 70000, 'q' FROM seq_{low}_to_{low + 400}",
                                     f"UPDATE t SET a = a + 7 WHERE id BETWEEN {low} AND {low + 50}"])
                try:
                    rows(own, sql)
                except pymysql.err.OperationalError as problem:
                    if problem.args[0] != 1213:
                        raise
            own.close()
        threads = [threading.Thread(target=changes, args=(n,)) for n in (3, 5)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(15):
                expect("sound beside changes", rows(c, "CHECK TABLE t"), (("d.t", "check", "status", "OK"),))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        c.close()


def test_tails_left_alone(where):
    """What does not concern a row's long values neither reads nor writes their pages."""
    c = database(where)
    rows(c, "CREATE TABLE t (id INT PRIMARY KEY, a INT, v LONGBLOB, z INT, s VARCHAR(50))")
    rows(c, "INSERT INTO t SELECT seq, 1, REPEAT(CHAR(65 + seq % 26), 500000), 1, 's' FROM seq_1_to_40")

    def work(name, sql):
        before = status(c, name)
        rows(c, sql)
        return status(c, name) - before

    pages = 40 * 500_000 // 16_384
    expect("pages of all", work("buffer_pool_read_requests", "SELECT MAX(MD5(v)) FROM t") >= pages, True)
    for sql in ("SELECT COUNT(*), SUM(a), SUM(z), MAX(s) FROM t", "SELECT z FROM t WHERE id = 7",
                "SELECT x.s FROM t x JOIN t y ON y.id = x.id + 1 WHERE x.z = 1", "SELECT SUM(z) FROM t LOCK IN SHARE MODE",
                "SELECT z FROM t WHERE id = 7 LOCK IN SHARE MODE", "SELECT SUM(z) FROM t FOR UPDATE",
                "SELECT s FROM t WHERE id BETWEEN 7 AND 9 FOR UPDATE", "SELECT z FROM t WHERE id = 7 FOR UPDATE"):
        requests = work("buffer_pool_read_requests", sql)
        if requests >= pages // 4:
            raise AssertionError(f"{sql} asked for {requests} pages")
    logged = work("log_bytes", "UPDATE t SET a = a + 1, s = CONCAT(s, 't')")
    if not 40 <= logged < 40 * 2_000:
        raise AssertionError(f"the update of short columns logged {logged} bytes")
    expect("contents", rows(c, "SELECT COUNT(DISTINCT MD5(v)), SUM(LENGTH(v)), SUM(a), MAX(s) FROM t"),
           ((26, 20_000_000, 80, "st"),))
    expect("log of the long ones", work("log_bytes", "UPDATE t SET v = CONCAT(v, 'x') WHERE id <= 5") > 5 * 500_000, True)
    # Of many long values no more than those before the last one wanted.
    columns = [f"c{i}" for i in range(20)]
    rows(c, f"CREATE TABLE many (id INT PRIMARY KEY, {', '.join(f'{name} TEXT' for name in columns)}, n INT, KEY (n))")
    rows(c, f"INSERT INTO many SELECT seq, {', '.join(f'REPEAT(CHAR(65 + seq), {20000 + i})' for i in range(20))}, seq FROM seq_1_to_50")
    for columns_read, pages in ((("c0",), 1.3), (("c0", "n"), 1.3), (("c4",), 7), (("n", "c3", "c1"), 5.7), (("c19",), 25)):
        for which in ("", " WHERE id BETWEEN 1 AND 50", " FORCE INDEX (n) WHERE n > 0"):
            # Beside the tails: the way to the row, twice, and the index's entries.
            sql = f"SELECT {', '.join(f'SUM(CRC32({name}))' for name in columns_read)} FROM many{which}"
            found = work("buffer_pool_read_requests", sql) / 50
            if not pages <= found <= pages * 1.1 + 9:
                raise AssertionError(f"{sql}: {found} pages a row, not {pages}")
    # Values that could be there and are not, before the long ones and behind them; and then those that are.
    rows(c, "CREATE TABLE posts (id INT PRIMARY KEY, title TEXT, body TEXT, note TEXT, author INT, KEY (author))")
    rows(c, "INSERT INTO posts SELECT seq, CONCAT('title ', seq), REPEAT('b', 50000), CONCAT('note ', seq), 7 FROM seq_1_to_50")
    for which, way in (("", 0), (" WHERE id > 0", 0), (" FORCE INDEX (author) WHERE author = 7", 1)):
        for column, pages in (("title", 0), ("note", 0), ("body", 4), ("title", 0)):
            found = work("buffer_pool_read_requests", f"SELECT SUM(LENGTH({column})) FROM posts{which}") / 50 - way
            if not pages <= found <= pages * 1.6 + 0.6:
                raise AssertionError(f"{column}{which}: {found} pages a row, not {pages}")
    for i in (0, 7, 19):
        expect(f"c{i}", rows(c, f"SELECT COUNT(*) FROM many WHERE c{i} = REPEAT(CHAR(65 + id), {20000 + i})"), ((50,),))
        expect(f"c{i} by key", rows(c, f"SELECT MD5(c{i}) = MD5(REPEAT(CHAR(65 + 9), {20000 + i})) FROM many WHERE id = 9"), ((1,),))


def test_long_values_between(where):
    """Columns behind long ones that the statement does not read: the values of every other engine."""
    c = database(where)
    columns = "a CHAR(5), t TEXT, n INT, l VARCHAR(3000), s VARCHAR(30), u VARCHAR(20), b LONGBLOB, e INT NOT NULL, x VARBINARY(400), z INT"
    rows(c, f"CREATE TABLE m (id INT PRIMARY KEY, {columns}) CHARSET latin1 ENGINE=MYRIAD")
    lengths = (0, 1, 200, 254, 255, 256, 257, 300, 400, 1000, 3000, 5000, 9000, 40000)
    pick = random.Random(7)
    value = lambda most: pick.choice(["NULL", *(f"REPEAT(CHAR({pick.randrange(65, 91)}), {n})" for n in lengths if n <= most)])

    def fill(begin, end, more=""):
        for i in range(begin, end):
            most = pick.choice((300, 1000, 5000, 40000))
            rows(c, f"INSERT INTO m VALUES ({i}, 'a{i % 9}', {value(most)}, {pick.choice(('NULL', i))}, {value(min(most, 3000))}, "
                    f"{value(1)}, 'u{i}', {value(most)}, {i * 3}, {value(400)}, {-i}{more})")
    names = ["a", "t", "n", "l", "s", "u", "b", "e", "x", "z"]

    def compare(what):
        rows(c, "DROP TABLE IF EXISTS o")
        rows(c, "CREATE TABLE o ENGINE=Aria SELECT * FROM m")
        for level in ("REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED"):
            rows(c, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            for wanted in [*([name] for name in names), *(pick.sample(names, pick.randrange(2, 5)) for _ in range(8))]:
                for order in ("", " ORDER BY id DESC", " LOCK IN SHARE MODE", " FOR UPDATE"):
                    query = f"SELECT id, {', '.join(f'MD5({name})' for name in wanted)} FROM %s WHERE id >= 0{order}"
                    expect(f"{what}, {level}: {query}", sorted(rows(c, query % "m"), key=str), sorted(rows(c, query % "o"), key=str))
        rows(c, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    fill(0, 250)
    compare("as created")
    rows(c, "ALTER TABLE m ADD COLUMN p INT DEFAULT 4, ALGORITHM=INSTANT")
    names.append("p")
    fill(250, 350, ", 5")
    compare("a column more")
    # What a statement reads of one table changes while it goes on: its sort reads the rows again by position.
    query = "SELECT SUM(LENGTH(t)), SUM(e), SUM(LENGTH(l)), COUNT(DISTINCT s), SUM(p) FROM (SELECT * FROM %s ORDER BY z LIMIT 1000) d"
    rows(c, "SET max_length_for_sort_data = 4")
    expect("sorted", rows(c, query % "m"), rows(c, query % "o"))


def test_values_counted(where):
    """Values of an index of which few pages are sampled are counted whether they take a part of a page or many, also where nearly
    all rows have one value, of text and of several columns."""
    c = database(where)
    few = {"few": ("seq % 3", 3), "five": ("seq % 5", 5), "ten": ("CRC32(seq) % 10", 10), "some": ("CRC32(seq) % 20", 20),
           "ascending": ("seq DIV 2000", 31), "text": ("CONCAT(REPEAT('x', 40), CRC32(seq) % 20)", 20)}
    many = {"many": ("seq % 5000", 5000), "rare": ("IF(seq % 20, 0, seq)", 3001), "last": ("IF(seq % 100, NULL, seq)", 601),
            "first": ("IF(seq % 10, 70000, seq)", 6001)}
    columns = few | many
    kind = lambda column: "VARCHAR(60) COLLATE utf8mb4_general_ci" if column == "text" else "INT"
    rows(c, f"""CREATE TABLE f (id INT PRIMARY KEY, {", ".join(f"{column} {kind(column)}, KEY ({column}, id)" for column in columns)},
        KEY two (few, ten))""")
    rows(c, f"INSERT INTO f SELECT seq, {', '.join(value for value, _ in columns.values())} FROM seq_1_to_60000")
    for analyzed in (False, True):
        rows(c, "ANALYZE TABLE f" if analyzed else "FLUSH TABLES f")
        found = dict(rows(c, """SELECT IF(INDEX_NAME = 'two', 'two', COLUMN_NAME), CARDINALITY FROM information_schema.STATISTICS
            WHERE TABLE_NAME = 'f' AND INDEX_NAME <> 'PRIMARY' AND SEQ_IN_INDEX = IF(INDEX_NAME = 'two', 2, 1)"""))
        for column, values in {**{column: values for column, (_, values) in columns.items()}, "two": 30}.items():
            off, most = found[column] / values, 2.5 if column in many else 1.5
            expect(f"analyzed {analyzed}, {column} of {found}", 1 / most < off < most, True)


def test_values_renewed(where):
    """Values are counted again when half of a table's rows have others, also where there are as many rows as before."""
    c = database(where)
    rows(c, "CREATE TABLE one (x INT PRIMARY KEY)")
    rows(c, "INSERT INTO one VALUES (1)")
    rows(c, "CREATE TABLE r (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL, KEY (k))")
    rows(c, "INSERT INTO r (k) SELECT seq FROM seq_1_to_20000")

    def rows_of_value():
        return int(rows(c, "EXPLAIN SELECT STRAIGHT_JOIN r.id FROM one, r FORCE INDEX (k) WHERE r.k = one.x + 0")[1][8])

    expect("unique", rows_of_value(), 1)
    rows(c, "UPDATE r SET k = k % 4")
    wait_until("few values", lambda: 2500 < rows_of_value() < 10000)
    for _ in range(3):
        rows(c, "DELETE FROM r ORDER BY id LIMIT 10000")
        rows(c, "INSERT INTO r (k) SELECT 1000 + seq FROM seq_1_to_10000")
    wait_until("values of the rows replaced", lambda: rows_of_value() < 10)


def test_wide_ranges(where):
    """Of a thirtieth of the rows those are read that a range finds; of a seventh the table is scanned, but for entries alone."""
    c = database(where)
    rows(c, "CREATE TABLE w (id INT PRIMARY KEY, page INT NOT NULL, n INT NOT NULL, KEY (page))")
    rows(c, "INSERT INTO w SELECT seq, seq % 60, seq FROM seq_1_to_60000")
    for select, access in (("SUM(n) FROM w WHERE page < 2", "range"), ("SUM(n) FROM w WHERE page < 9", "ALL"),
                           ("SUM(id) FROM w WHERE page < 9", "range")):
        expect(select, rows(c, f"EXPLAIN SELECT {select}")[0][3], access)


def test_sort_by_position(where):
    """Sorting an index's entries by their rows' positions; InnoDB is no measure, it finds no virtual column's value here."""
    c = database(where)
    rows(c, "CREATE TABLE v (pk INT AUTO_INCREMENT PRIMARY KEY, n INT, k INT AS (n+n) VIRTUAL, KEY(k))")
    rows(c, "INSERT INTO v (n) VALUES (0),(5),(4),(3),(7),(42),(142),(5),(0),(3)")
    for length in (4, 1024):
        rows(c, f"SET max_length_for_sort_data={length}")
        expect(f"with {length} bytes to sort",
               rows(c, "SELECT pk, k FROM v FORCE INDEX(k) WHERE k BETWEEN 8 AND 20 ORDER BY pk+1"),
               ((2, 10), (3, 8), (5, 14), (8, 10)))


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
