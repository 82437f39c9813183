#!/usr/bin/python3
"""The insert benchmark: three secondary indexes, 50 rows a commit, data larger than the pool; engines taking turns.

Four stages: a load by 4 clients until the rows are in; inserts with as many deletes of the oldest rows; range queries on the
secondary indexes beside inserts, first as many as go, then at a rate that every engine can keep, so that queries compare. Prints rows (or queries) a second, the worst second, p99 and longest commit, KB read and
written and CPU a row; leaves a CSV and a page under bench/results/.
"""
import argparse
import os
import re
import subprocess

import iobound
import kills
import measure
from measure import server

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "insert.lua")


def command(srv, args, clients, what, extra=()):
    return [server.tool("sysbench"), SCRIPT, "--db-driver=mysql", f"--mysql-socket={srv.socket}", "--mysql-user=root",
            "--mysql-db=bench", f"--tables={args.tables}", f"--rows_per_commit={args.commit_rows}", f"--engine={srv.engine}",
            f"--threads={clients}", "--percentile=99", "--report-interval=1",
            "--mysql-ignore-errors=1213,1020,1205"] + list(extra) + [what]


def finish(srv, process):
    text, errors = process.communicate()
    if process.returncode:
        fatal = [t for t in (errors + text).splitlines() if "FATAL" in t or "error" in t.lower()]
        raise server.ServerError(f"the insert benchmark failed on {srv.engine}: {fatal[0] if fatal else '?'}"
                                 + ("" if srv.alive() else f"; the server died: {srv.why()}"))
    return text


def begin(srv, args, clients, extra):
    return subprocess.Popen(command(srv, args, clients, "run", extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def figures(text, per_event):
    """Events (times per_event) a second, the worst second, p99 and longest."""
    seconds = float(re.search(r"total time:\s+([\d.]+)s", text)[1])
    events = int(re.search(r"total number of events:\s+(\d+)", text)[1])
    # The last second is seldom whole.
    rates = [float(m[1]) for m in iobound.SECOND.findall(text) if int(m[0]) <= seconds]
    queries = [float(m[2]) for m in iobound.SECOND.findall(text) if int(m[0]) <= seconds]
    # sysbench counts BEGIN to COMMIT as transactions; statements of their own only as queries.
    each = rates if any(rates) else queries
    return {"rate": events * per_event / seconds, "worst": min(each, default=0) * per_event,
            "p99_ms": float(re.search(r"99th percentile:\s+([\d.]+)", text)[1]),
            "longest_ms": float(re.search(r"max:\s+([\d.]+)", text)[1]), "events": events}


def stage(srv, args, name, clients, extra, queries=0):
    """Runs inserts, and beside them `queries` clients with range queries; rows for the result."""
    cpu, io = srv.cpu_seconds(), iobound.io_bytes(srv)
    inserts = begin(srv, args, clients, extra)
    asking = begin(srv, args, queries, ["--queries=on", f"--time={args.seconds}"]) if queries else None
    done = figures(finish(srv, inserts), args.commit_rows)
    asked = figures(finish(srv, asking), 1) if asking else None
    rows = max(1, done.pop("events") * args.commit_rows)
    cpu, io = srv.cpu_seconds() - cpu, [b - a for a, b in zip(io, iobound.io_bytes(srv))]
    result = [{"stage": name, **done, "read_kb": io[0] / rows / 1024,
               "written_kb": io[1] / rows / 1024, "cpu_us": cpu / rows * 1e6}]
    if asked:
        asked.pop("events")
        result.append({"stage": name + ", queries", **asked, "read_kb": None, "written_kb": None,
                       "cpu_us": None})
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", default="InnoDB,MYRIAD,ROCKSDB", help="the first is the measure of the others; as in iobound.py, "
                        "MYRIAD:change-buffer-max-size=0 is one with a variable of its own")
    parser.add_argument("--rows", type=int, default=10000000, help="of the load, before --scale")
    parser.add_argument("--tables", type=int, default=4, help="and clients that insert")
    parser.add_argument("--queries", type=int, default=4, help="clients of the two last stages that ask")
    parser.add_argument("--insert-rate", type=int, default=2000, help="rows a second inserted in the last stage")
    parser.add_argument("--commit-rows", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=120, help="of each stage but the load")
    parser.add_argument("--scale", type=float, default=1, help="factor of rows, pool and log; 0.1 for a first look")
    parser.add_argument("--pool-mib", type=int, default=256, help="before --scale")
    parser.add_argument("--log-mib", type=int, default=512, help="before --scale")
    parser.add_argument("--name", default="insert", help="stem of the result files")
    measure.add_thread_pool(parser)
    kills.add_argument(parser)
    args = parser.parse_args()
    engines = args.engines.split(",")
    print(measure.machine(), flush=True)
    servers = {}
    for engine in engines:
        srv = iobound.make_server(engine, args)
        srv.start()
        srv.query("CREATE DATABASE bench")
        finish(srv, subprocess.Popen(command(srv, args, 1, "prepare"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True))
        servers[engine] = srv
    commits = int(args.rows * args.scale) // args.commit_rows
    seconds = f"--time={args.seconds}"
    stages = [("load", [f"--events={commits}", "--time=0"], 0), ("inserts and tail deletes", [seconds, "--tail_deletes=on"], 0),
              ("inserts beside", [seconds], args.queries),
              ("steady inserts", [seconds, f"--rate={max(1, args.insert_rate // args.commit_rows)}"], args.queries)]
    rows = []
    for name, extra, queries in stages:
        for engine in engines:
            iobound.settle(servers.values(), 60)
            rows += [{"engine": engine, **row} for row in stage(servers[engine], args, name, args.tables, extra, queries)]
            print(f"{name}: {engine} {rows[-1 - bool(queries)]['rate']:.0f} rows/s", flush=True)
    path = measure.write_csv(f"{args.name}.csv", rows)
    wide = max(map(len, engines)) + 1
    lines = [f"{'stage':<26}{'engine':<{wide}}{'rows/s':>9}{'ratio':>7}{'worst':>9}{'p99 ms':>9}{'longest':>9}{'read KB':>9}"
             f"{'writ. KB':>9}{'cpu us':>8}"]
    base = {r["stage"]: r["rate"] for r in rows if r["engine"] == engines[0]}
    for r in sorted(rows, key=lambda r: list(base).index(r["stage"])):
        io = "".join(f"{r[k]:>{w}.{d}f}" if r[k] is not None else f"{'-':>{w}}"
                     for k, w, d in (("read_kb", 9, 2), ("written_kb", 9, 2), ("cpu_us", 8, 0)))
        lines.append(f"{r['stage']:<26}{r['engine']:<{wide}}{r['rate']:>9.0f}{r['rate'] / max(base[r['stage']], 1e-9):>7.2f}"
                     f"{r['worst']:>9.0f}{r['p99_ms']:>9.1f}{r['longest_ms']:>9.0f}{io}")
    text = "\n".join(lines)
    print(text)
    charts = [measure.grid(f"{args.name}-{v}.png", list(base), [""], engines,
                           {(r["stage"], "", r["engine"]): r[v] or 0 for r in rows}, label)
              for v, label in (("rate", "rows or queries a second"), ("p99_ms", "99th percentile of a commit, ms"),
                               ("written_kb", "KB written a row"))]
    measure.write_page(args.name, "Insert benchmark", f"{int(args.rows * args.scale)} rows, {args.commit_rows} a commit, "
                       f"pool {max(6, int(args.pool_mib * args.scale))} MiB", text, charts)
    print(f"results in {os.path.relpath(path)} and beside it")
    kills.of(servers, args.kills, lambda srv: command(srv, args, args.tables, "run", ["--time=0", "--tail_deletes=on"]))
    return 0


if __name__ == "__main__":
    server.main_guard(main)
