#!/usr/bin/python3
"""Transactions over a table of Myriad and one of another engine, not in a binary log, and SIGKILL after an acknowledgement.

Without a binary log such a commit is decided in the server's own log (tc.log). MariaDB 10.11 reads that log after a crash
and then rolls back whatever it finds prepared, so an engine that leaves the decision to it loses commits that were
acknowledged; InnoDB and RocksDB do. Myriad's part has to be there, and so with sql_log_bin=0 beside a binary log. The other
engine's is counted and shown, and is no failure.
"""
import argparse
import errno
import os
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts"))
import pymysql  # noqa: E402
import server  # noqa: E402

LOST = {2003, 2006, 2013, errno.ECONNRESET, errno.EPIPE}
OTHER = "INNODB"
# An InnoDB that does not start ends the server, so that the reason is told. It does not purge (2): what it leaves on disk when it
# ends prepared transactions after several crashes may fail an assertion of its purge (tail.trx_no <= last_trx_no) at every start.
OPTIONS = ["--loose-myriad-log-capacity=33554432", "--innodb=FORCE", "--innodb-force-recovery=2"]


class Client:
    """Commits transactions, each of a key of its own, and records what was acknowledged."""

    def __init__(self, number, setting):
        self.next_key, self.acknowledged, self.trouble = number * 10_000_000, set(), None
        self.setting = setting

    def work(self, srv, commits):
        """Until `commits` are done or the server is gone."""
        try:
            connection = srv.connect(database="two", autocommit=False)
            cursor = connection.cursor()
            cursor.execute(f"SET {self.setting}")
            for _ in range(commits):
                key = self.next_key
                self.next_key += 1
                # Which engine is asked first to prepare and to commit depends on the order of the statements.
                for table in ("ours", "theirs") if key % 2 else ("theirs", "ours"):
                    cursor.execute(f"INSERT INTO {table} VALUES ({key})")
                connection.commit()
                self.acknowledged.add(key)
        except (pymysql.err.MySQLError, OSError) as problem:
            if not problem.args or problem.args[0] not in LOST:
                self.trouble = problem


def kill_once(srv, number, clients):
    """Kills an idle server after a few commits, or one at work. Returns the acknowledged keys that each table lacks."""
    if number % 2:
        threads = [threading.Thread(target=client.work, args=(srv, 1_000_000), daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        time.sleep(0.5 + number % 5 * 0.2)
        srv.kill()
        for thread in threads:
            thread.join(60)
    else:
        clients[0].work(srv, 1 + number // 2)
        srv.kill()
    trouble = [client.trouble for client in clients if client.trouble]
    if trouble:
        raise server.ServerError(f"a client failed: {trouble[0]}")
    srv.start()
    acknowledged = set().union(*(client.acknowledged for client in clients))
    return {table: acknowledged - {row[0] for row in srv.query(f"SELECT id FROM two.{table}")}
            for table in ("ours", "theirs")}, len(acknowledged)


def run(engine, loops, setting, binlog):
    """Returns in how many of the loops nothing was lost, and in how many something was."""
    passed = 0
    with server.Server(engine, options=OPTIONS, pool_mib=16, binlog=binlog) as srv:
        srv.query("CREATE DATABASE two")
        srv.query(f"CREATE TABLE two.ours (id BIGINT PRIMARY KEY) ENGINE={engine}")
        srv.query(f"CREATE TABLE two.theirs (id BIGINT PRIMARY KEY) ENGINE={OTHER}")
        clients, known = [Client(number, setting) for number in range(6)], {"ours": set(), "theirs": set()}
        for number in range(loops):
            lost, commits = kill_once(srv, number, clients)
            new = {table: sorted(lost[table] - known[table]) for table in lost}
            known = lost
            print(f"  loop {number + 1}: {commits} commits in all; {OTHER} lost {len(new['theirs'])}", flush=True)
            if new["ours"]:
                print(f"    failed: {len(new['ours'])} acknowledged rows are lost: {new['ours'][:5]}", flush=True)
            passed += not new["ours"]
        srv.stop()
    return passed, loops - passed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", default="MYRIAD")
    parser.add_argument("--loops", type=int, default=8, help="half of them without a binary log, half with sql_log_bin=0")
    args = parser.parse_args()
    results = [run(args.engine, args.loops // 2, setting, binlog)
               for setting, binlog in (("autocommit=0", False), ("sql_log_bin=0", True))]
    passed, failed = (sum(column) for column in zip(*results))
    print(f"two engines on {args.engine}: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    server.main_guard(main)
