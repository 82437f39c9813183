#!/usr/bin/python3
"""Spider tables of a front server, sharded over two backends with Myriad tables; the front's other tables are Myriad's too."""
import itertools
import os
import random
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts"))
import pymysql  # noqa: E402
import server  # noqa: E402

COLUMNS = ("id INT NOT NULL, g INT, v VARCHAR(40), d DECIMAL(8,2), t TEXT, PRIMARY KEY (id), KEY (g), KEY (v)")
ADDRESSES = ("127.0.0.1", "127.0.0.2")
ACCOUNTS = 40


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


class Shards:
    """A front with Spider and two backends of the same default engine, at addresses of their own: Spider tells the members of a
    prepared transaction apart by these."""

    def __init__(self, engine="MYRIAD", options=()):
        self.engine = engine
        waits = server.wait_timeout_options(engine, 3)
        self.backends = [server.Server(engine, tcp=True, pool_mib=32, options=waits + [f"--bind-address={address}"])
                         for address in ADDRESSES]
        self.front = server.Server(engine, pool_mib=32, options=["--plugin-load-add=ha_spider"] + list(options))
        for srv in self.servers():
            srv.start()
            srv.query("CREATE DATABASE shard")
        for name, address, srv in zip("bc", ADDRESSES, self.backends):
            srv.query("CREATE USER spider@'%' IDENTIFIED BY 'sp'")
            srv.query("GRANT ALL ON *.* TO spider@'%'")
            self.front.query(f"CREATE SERVER srv_{name} FOREIGN DATA WRAPPER mysql OPTIONS (HOST '{address}', PORT {srv.port}, "
                             "USER 'spider', PASSWORD 'sp', DATABASE 'shard')")

    def servers(self):
        return [self.front] + self.backends

    def create(self, table, columns):
        """A Spider table and its two shards."""
        for srv in self.backends:
            srv.query(f"CREATE TABLE shard.{table} ({columns}) ENGINE={self.engine}")
        self.front.query(f"CREATE TABLE shard.{table} ({columns}) ENGINE=SPIDER COMMENT='wrapper \"mysql\", table \"{table}\"' "
                         "PARTITION BY KEY (id) (PARTITION p0 COMMENT='srv \"srv_b\"', PARTITION p1 COMMENT='srv \"srv_c\"')")

    def close(self):
        for srv in self.servers():
            srv.close()


def random_statements(chance, count):
    """Statements on table t: most change it, some ask."""
    for _ in range(count):
        a, b, g = chance.randrange(1, 300), chance.randrange(1, 300), chance.randrange(8)
        low, high = sorted((a, b))
        yield chance.choice([
            f"INSERT INTO t VALUES ({a}, {g}, 'v{b}', {b}/7, REPEAT('t', {b}))",
            f"INSERT INTO t VALUES ({a}, {g}, 'v{b}', {b}/7, NULL), ({b}, {g}, NULL, 1, 'x')",
            f"INSERT IGNORE INTO t SELECT seq, {g}, CONCAT('v', seq), 3, 'many' FROM seq_{low}_to_{min(high, low + 40)}",
            f"REPLACE INTO t VALUES ({a}, {g}, 'r{b}', NULL, REPEAT('r', {b * 10}))",
            f"INSERT INTO t VALUES ({a}, {g}, 'v', 2, 'new') ON DUPLICATE KEY UPDATE g = {g}, t = 'old'",
            f"UPDATE t SET g = {g}, v = CONCAT(v, '+') WHERE id BETWEEN {low} AND {low + 10}",
            f"UPDATE t SET d = d + 1 WHERE g = {g}",
            f"UPDATE t SET v = 'w{a}' WHERE id = {a}",
            f"DELETE FROM t WHERE id BETWEEN {low} AND {low + 5}",
            f"DELETE FROM t WHERE g = {g} AND v > 'v{b}'",
            "COMMIT", "ROLLBACK", "BEGIN",
            "SELECT * FROM t ORDER BY id",
            f"SELECT * FROM t WHERE id = {a}",
            f"SELECT id FROM t WHERE g = {g} ORDER BY id",
            f"SELECT v FROM t WHERE v BETWEEN 'v{low}' AND 'v{high}' ORDER BY v",
            f"SELECT id FROM t WHERE id > {a} ORDER BY id LIMIT 5",
            f"SELECT id FROM t WHERE id < {a} ORDER BY id DESC LIMIT 5 FOR UPDATE",
            "SELECT g, COUNT(*), SUM(d), MAX(v) FROM t GROUP BY g ORDER BY g",
            f"SELECT x.id, y.id FROM t x JOIN t y ON y.id = x.g WHERE x.id BETWEEN {low} AND {low + 20} ORDER BY 1",
            f"SELECT x.id, l.a FROM t x JOIN here l ON l.a = x.id WHERE x.g = {g} ORDER BY 1",
        ])


def answer(cursor, statement):
    """Its rows, or the number of rows that it changed, or its error."""
    try:
        count = cursor.execute(statement)
        return cursor.fetchall() if cursor.description else count
    except pymysql.err.MySQLError as problem:
        return problem.args


def same_answers():
    """The same statements have the same answers where InnoDB and where Myriad is behind Spider."""
    both = [Shards("INNODB"), Shards("MYRIAD")]
    cursors = []
    for shards in both:
        shards.create("t", COLUMNS)
        shards.front.query("CREATE TABLE here (a INT PRIMARY KEY) SELECT seq AS a FROM seq_1_to_100", "shard")
        cursors.append(shards.front.connect(database="shard").cursor())
    kinds = set()
    settings = "spider_internal_xa=0", "spider_internal_xa=1", "spider_bulk_update_mode=2", "tx_isolation='SERIALIZABLE'"
    for seed, setting in enumerate(settings):
        statements = [f"SET {setting}", "DELETE FROM t"] + list(random_statements(random.Random(seed), 300))
        for number, statement in enumerate(statements + ["COMMIT", "SELECT * FROM t ORDER BY id"]):
            innodb, myriad = (answer(c, statement) for c in cursors)
            expect(innodb == myriad, f"{setting}, statement {number}: {statement}: {innodb} and {myriad}")
            kinds.add(type(innodb))
    expect(len(kinds) > 1, "statements either all failed or all gave rows")
    for shards in both:
        shards.close()


class Transfers:
    """Clients that move money from an account on one backend to one on the other, in XA transactions that Spider prepares and
    commits on both; each leaves a row on either."""

    def __init__(self, front, clients=4):
        self.front, self.stopping, self.begun, self.lock = front, False, 0, threading.Lock()
        self.acknowledged, self.trouble = set(), []
        self.threads = [threading.Thread(target=self.work, args=(i,), daemon=True) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def work(self, seed):
        chance, connection = random.Random(seed), None
        while not self.stopping:
            try:
                connection = connection or self.front.connect(database="shard")
                self.transfer(connection.cursor(), chance)
            except pymysql.err.MySQLError as problem:
                if problem.args[0] in (1064, 1146):
                    self.trouble.append(problem)
                connection = None
                time.sleep(0.05)

    def transfer(self, cursor, chance):
        with self.lock:
            self.begun += 1
            number = self.begun
        cursor.execute(f"XA START '{number}'")
        for name, change in ("b", -1), ("c", 1):
            cursor.execute(f"UPDATE accounts_{name} SET balance = balance + {change} WHERE id = {chance.randrange(ACCOUNTS)}")
            cursor.execute(f"INSERT INTO transfers_{name} VALUES ({number})")
        for step in "END", "PREPARE", "COMMIT":
            cursor.execute(f"XA {step} '{number}'")
        self.acknowledged.add(number)

    def go_on(self, seconds):
        """Waits so long, and on a busy machine until there are some transfers more."""
        wanted, begin = len(self.acknowledged) + 20, time.monotonic()
        while (now := time.monotonic() - begin) < seconds or len(self.acknowledged) < wanted:
            expect(now < 120, f"{len(self.acknowledged)} transfers, not {wanted}")
            time.sleep(0.1)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(60)
            expect(not thread.is_alive(), "a client hangs")
        expect(not self.trouble, f"clients had {self.trouble[:3]}")


def resolve(shards, acknowledged):
    """Ends what was left prepared on the backends as a coordinator would: commits a transfer that its client knows to be
    committed or that the other backend shows; rolls back the rest. Returns how many there were."""
    ended = 0
    for (name, srv), (other_name, other) in itertools.permutations(zip("bc", shards.backends)):
        for format_id, gtrid_length, bqual_length, data in srv.query("XA RECOVER"):
            number = int(data[:gtrid_length])
            elsewhere = other.query(f"SELECT 1 FROM transfers_{other_name} WHERE n = {number}", "shard")
            step = "COMMIT" if number in acknowledged or elsewhere else "ROLLBACK"
            srv.query(f"XA {step} X'{data[:gtrid_length].hex()}', X'{data[gtrid_length:].hex()}', {format_id}")
            ended += 1
    return ended


def killed_backends():
    """SIGKILL of backends and front under transfers between the backends: what was acknowledged is there, no half of any."""
    shards = Shards()
    for name, srv in zip("bc", shards.backends):
        srv.query(f"CREATE TABLE accounts_{name} (id INT PRIMARY KEY, balance INT)", "shard")
        srv.query(f"CREATE TABLE transfers_{name} (n INT PRIMARY KEY)", "shard")
        srv.query(f"INSERT INTO accounts_{name} SELECT seq, 1000 FROM seq_0_to_{ACCOUNTS - 1}", "shard")
        for table, columns in ("accounts", "id INT PRIMARY KEY, balance INT"), ("transfers", "n INT PRIMARY KEY"):
            shards.front.query(f"CREATE TABLE {table}_{name} ({columns}) ENGINE=SPIDER COMMENT='wrapper \"mysql\", "
                               f"srv \"srv_{name}\", table \"{table}_{name}\"'", "shard")
    transfers = Transfers(shards.front)
    for loop in range(6):
        victims = [shards.backends[loop % 2]] if loop % 3 else shards.servers()
        transfers.go_on(1.5)
        for srv in victims:
            srv.kill()
        for srv in victims:
            srv.start()
    transfers.go_on(1)
    transfers.stop()
    for srv in shards.backends:   # ends what sessions still hold
        srv.kill()
        srv.start()
    left = resolve(shards, transfers.acknowledged)
    b, c = ({n for n, in srv.query(f"SELECT n FROM transfers_{name}", "shard")} for name, srv in zip("bc", shards.backends))
    expect(b == c, f"halves of transfers: {sorted(b ^ c)[:10]}")
    expect(transfers.acknowledged <= b, f"lost: {sorted(transfers.acknowledged - b)[:10]}")
    for name, srv, sign in ("b", shards.backends[0], -1), ("c", shards.backends[1], 1):
        total = srv.query(f"SELECT SUM(balance) FROM accounts_{name}", "shard")[0][0]
        expect(total == 1000 * ACCOUNTS + sign * len(b), f"backend {name} has {total} after {len(b)} transfers")
        checked = srv.query(f"CHECK TABLE accounts_{name}, transfers_{name} EXTENDED", "shard")
        expect([row[3] for row in checked] == ["OK", "OK"], f"CHECK TABLE says {checked}")
    expect(len(transfers.acknowledged) > 100, f"only {len(transfers.acknowledged)} transfers")
    print(f"    {len(transfers.acknowledged)} transfers acknowledged, {len(b)} committed, {left} branches left prepared")
    shards.close()


def main():
    return server.run_cases([same_answers, killed_backends], "Spider over MYRIAD")


if __name__ == "__main__":
    server.main_guard(main)
