#!/usr/bin/python3
"""A tour in under five minutes: the same steps on Myriad and on InnoDB, with timings, a kill -9 and a check.

Loads the time-zone database and sysbench's tables, runs sysbench, creates thousands of tables, kills the server under
load, starts it again and looks for every acknowledged row. Charts go to var/demo.html.
"""
import argparse
import base64
import html
import io
import os
import re
import subprocess
import threading
import time

import pymysql
import server

LOADERS = 4


def sysbench(srv, command, seconds=0, threads=8):
    line = [server.tool("sysbench"), "oltp_read_write", "--db-driver=mysql", f"--mysql-socket={srv.socket}",
            "--mysql-user=root", "--mysql-db=sb", "--tables=4", "--table-size=50000", f"--threads={threads}",
            f"--time={seconds}", f"--mysql-storage-engine={srv.engine}", "--mysql-ignore-errors=1213,1020,1205", command]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        fatal = [t for t in (done.stderr + done.stdout).splitlines() if "FATAL" in t]
        raise server.ServerError(f"sysbench {command} failed on {srv.engine}: {fatal[0] if fatal else done.stderr[:200]}")
    return done.stdout


def load_time_zones(srv):
    srv.query("CREATE DATABASE tz")
    for name in ("time_zone", "time_zone_name", "time_zone_leap_second", "time_zone_transition",
                 "time_zone_transition_type"):
        srv.query(f"CREATE TABLE {name} LIKE mysql.{name}", "tz")
        srv.query(f"ALTER TABLE {name} ENGINE={srv.engine}", "tz")
    sql = subprocess.run([server.tool("mariadb-tzinfo-to-sql"), "/usr/share/zoneinfo"], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL).stdout
    done = subprocess.run([server.tool("mariadb"), "--no-defaults", f"--socket={srv.socket}", "-uroot", "tz"],
                          input=sql, stderr=subprocess.PIPE)
    if done.returncode:
        raise server.ServerError(f"the time zones could not be loaded on {srv.engine}: {done.stderr.decode().strip()}")
    return srv.query("SELECT COUNT(*) FROM time_zone_transition", "tz")[0][0]


def create_tables(srv, count):
    srv.query("CREATE DATABASE many")
    problems = []

    def some(first):
        try:
            with srv.connect(database="many") as connection, connection.cursor() as cursor:
                for i in range(first, count, LOADERS):
                    cursor.execute(f"CREATE TABLE t{i} (id INT PRIMARY KEY, name VARCHAR(80), KEY (name))")
        except pymysql.err.MySQLError as problem:
            problems.append(problem)
    threads = [threading.Thread(target=some, args=(i,)) for i in range(LOADERS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if problems:
        raise server.ServerError(f"CREATE TABLE failed on {srv.engine}: {problems[0]}")


class Writer(threading.Thread):
    """Inserts until the server dies, and remembers what was acknowledged."""

    def __init__(self, srv, number):
        super().__init__(daemon=True)
        self.connection, self.number = srv.connect(database="sb"), number
        self.acknowledged, self.tried = set(), 0

    def run(self):
        try:
            with self.connection.cursor() as cursor:
                while True:
                    self.tried += 1
                    key = self.number * 10_000_000 + self.tried
                    cursor.execute("INSERT INTO acknowledged VALUES (%s, %s)", (key, f"row {key}"))
                    self.acknowledged.add(key)
        except (pymysql.err.MySQLError, OSError):
            pass


def kill_under_load(srv, seconds):
    """Returns (acknowledged rows, lost rows, rows nobody wrote, seconds until the server answered again)."""
    srv.query("CREATE TABLE acknowledged (id INT PRIMARY KEY, v VARCHAR(40), UNIQUE (v))", "sb")
    writers = [Writer(srv, i + 1) for i in range(8)]
    for w in writers:
        w.start()
    time.sleep(seconds)
    srv.kill()
    for w in writers:
        w.join()
    back = srv.start()
    for index in ("PRIMARY", "v"):
        found = {row[0] for row in srv.query(f"SELECT id FROM acknowledged FORCE INDEX ({index}) WHERE v > ''", "sb")}
        acknowledged = set().union(*(w.acknowledged for w in writers))
        possible = acknowledged | {w.number * 10_000_000 + w.tried for w in writers}
        lost, alien = len(acknowledged - found), len(found - possible)
        if lost or alien:
            break
    return len(acknowledged), lost, alien, back


def tour(engine, args):
    """All steps on one engine: {step: (seconds or number, text)}"""
    steps = {}

    def timed(name, action, unit="s"):
        begin = time.monotonic()
        value = action()
        steps[name] = (time.monotonic() - begin, unit)
        print(f"  {engine:<8} {name:<34}{steps[name][0]:>10.2f} s", flush=True)
        return value
    srv = server.Server(engine, pool_mib=512, flush=1)
    try:
        timed("first start", srv.start)
        timed("time-zone database", lambda: load_time_zones(srv))
        srv.query("CREATE DATABASE sb")
        timed("sysbench tables, 4 x 50,000 rows", lambda: sysbench(srv, "prepare", threads=4))
        text = sysbench(srv, "run", args.seconds)
        steps["sysbench read-write, 8 clients"] = (float(re.search(r"transactions:\s+\d+\s+\(([\d.]+)", text)[1]), "tps")
        print(f"  {engine:<8} {'sysbench read-write, 8 clients':<34}"
              f"{steps['sysbench read-write, 8 clients'][0]:>10.0f} tps", flush=True)
        before = srv.disk_bytes()
        timed(f"create {args.tables:,} tables", lambda: create_tables(srv, args.tables))
        srv.query("FLUSH TABLES")
        steps["disk for one empty table"] = ((srv.disk_bytes() - before) / args.tables, "bytes")
        acknowledged, lost, alien, back = kill_under_load(srv, args.kill_after)
        steps["start after SIGKILL"] = (back, "s")
        steps["acknowledged rows"] = (acknowledged, "rows")
        steps["of these lost"] = (lost, "rows")
        names = srv.query("SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='many'")[0][0]
        print(f"  {engine:<8} killed under load, up again in {back:.2f} s: {acknowledged} rows acknowledged, {lost} lost, "
              f"{alien} unknown; {names} tables there", flush=True)
        if lost or alien or names != args.tables:
            raise server.ServerError(f"{engine} lost {lost} rows, shows {alien} unknown ones, "
                                     f"and has {names} of {args.tables} tables")
        timed("clean restart", srv.restart)
        timed("shutdown", srv.stop)
    finally:
        srv.close()
    return steps


def page(results, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    engines = list(results)
    names = [n for n in results[engines[0]] if "lost" not in n and "acknowledged" not in n]
    figure, axes = pyplot.subplots(-(-len(names) // 3), 3, figsize=(12, 2.6 * (-(-len(names) // 3))), squeeze=False)
    for axis in axes.flat[len(names):]:
        axis.axis("off")
    for axis, name in zip(axes.flat, names):
        axis.bar(engines, [results[e][name][0] for e in engines], color=["#c0392b", "#888888", "#2980b9"][:len(engines)])
        axis.set_title(f"{name} ({results[engines[0]][name][1]})", fontsize=9)
    figure.tight_layout()
    image = io.BytesIO()
    figure.savefig(image, dpi=90, format="png")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write("<!doctype html><meta charset=utf-8><title>Myriad demo</title><h1>Myriad demo</h1>"
                f"<pre>{html.escape(summary(results))}</pre>"
                f"<img src='data:image/png;base64,{base64.b64encode(image.getvalue()).decode()}'>")


def summary(results):
    engines = list(results)
    lines = [f"{'':<36}{'':>6}" + "".join(f"{e:>14}" for e in engines)]
    for name, (_, unit) in results[engines[0]].items():
        digits = 2 if unit == "s" else 0
        lines.append(f"{name:<36}{unit:>6}" + "".join(f"{results[e][name][0]:>14,.{digits}f}" for e in engines))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", default="MYRIAD,InnoDB")
    parser.add_argument("--tables", type=int, default=10000)
    parser.add_argument("--seconds", type=int, default=12, help="time of sysbench")
    parser.add_argument("--kill-after", type=float, default=4)
    args = parser.parse_args()
    results = {engine: tour(engine, args) for engine in args.engines.split(",")}
    print(summary(results))
    path = os.path.join(server.ROOT, "var", "demo.html")
    page(results, path)
    print(f"charts: {os.path.relpath(path)}")
    return 0


if __name__ == "__main__":
    server.main_guard(main)
