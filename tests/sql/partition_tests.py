#!/usr/bin/python3
"""Partitions that change places with tables, or become tables, and their options. Usage: partition_tests.py [NAME...]"""
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server_tests import code_of, database, expect, pymysql, rows, run, server  # noqa: E402


def test_converted_partition_opened_at_once(where):
    """A partition that became a table gets its definition from who opens it first. Those who open it meanwhile use the same
    AUTO_INCREMENT counter and the same hidden row ids."""
    c = database(where)
    clients = [where.connect(database="d") for _ in range(12)]
    problems = []

    def insert(client, go):
        go.wait()
        for _ in range(3):
            try:
                rows(client, "INSERT INTO y (k) VALUES (1)")
            except pymysql.err.Error as problem:
                problems.append(problem.args)

    for _ in range(15):
        rows(c, """CREATE TABLE p (k INT, a INT AUTO_INCREMENT, KEY (a))
                   PARTITION BY LIST (k) (PARTITION p0 VALUES IN (0), PARTITION p1 VALUES IN (1))""")
        rows(c, "ALTER TABLE p CONVERT PARTITION p1 TO TABLE y")
        go = threading.Barrier(len(clients))
        threads = [threading.Thread(target=insert, args=(client, go)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect("errors", problems, [])
        expect("rows and values", rows(c, "SELECT COUNT(*), COUNT(DISTINCT a) FROM y"), ((36, 36),))
        rows(c, "DROP TABLE y, p")


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
