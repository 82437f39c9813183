#!/usr/bin/python3
"""sysbench on InnoDB, Myriad and MyRocks, engines taking turns in every cell, commits durable.

Prints medians, the median of the turns' ratios to InnoDB, and how contended Myriad's latches were; leaves a CSV, charts and
a page under bench/results/. Each round prepares the tables anew, because the insert and delete workloads (last in a round)
change their size.
"""
import argparse
import os
import re
import subprocess

import kills
import measure
from measure import server

WORKLOADS = ["point_select", "read_only", "update_index", "update_non_index", "read_write", "write_only", "insert",
             "delete"]
# Measures with the labels of their charts.
QPS = ("qps", "queries a second, by clients")
P95 = ("p95_ms", "95th percentile of latency, ms")


def command_line(srv, args, workload, clients, command, seconds=0, extra=()):
    """sysbench's; 0 seconds: until it is stopped."""
    return [server.tool("sysbench"), f"oltp_{workload}", "--db-driver=mysql", f"--mysql-socket={srv.socket}",
            "--mysql-user=root", "--mysql-db=bench", f"--tables={args.tables}", f"--table-size={args.rows}",
            f"--threads={clients}", f"--time={seconds}", "--rand-type=uniform", f"--mysql-storage-engine={srv.engine}",
            "--mysql-ignore-errors=1213,1020,1205,1062", "--percentile=95"] + list(extra) + [command]


def sysbench(srv, args, workload, clients, command, seconds=0, extra=()):
    done = subprocess.run(command_line(srv, args, workload, clients, command, seconds, extra), capture_output=True, text=True)
    if done.returncode:
        text = (done.stderr + done.stdout).strip().splitlines()
        fatal = [t for t in text if "FATAL" in t or "error" in t.lower()] or text[-3:]
        raise server.ServerError(f"sysbench {workload} {command} failed on {srv.engine}: {fatal[0] if fatal else '?'}"
                                 + ("" if srv.alive() else f"; the server died: {srv.why()}"))
    return done.stdout


def prepare(srv, args):
    srv.query("DROP DATABASE IF EXISTS bench")
    srv.query("CREATE DATABASE bench")
    sysbench(srv, args, "read_write", min(2, args.tables), "prepare")


def latches(srv):
    """{latch class: its row of MYRIAD_LATCHES}"""
    if not srv.engine.upper().startswith("MYRIAD"):
        return {}
    columns = "LATCH, ACQUIRED, CONTENDED, HOTTEST_PARTITION, HOTTEST_PERCENT"
    return {row[0]: row for row in srv.query(f"SELECT {columns} FROM information_schema.MYRIAD_LATCHES")}


def most_contended(before, after):
    """The class that was contended most, in percent of its acquisitions; those hardly used do not count, nor do waits for the device."""
    used = [(100 * (a[2] - b[2]) / (a[1] - b[1]), a) for a, b in ((a, before[a[0]]) for a in after.values())
            if a[1] - b[1] >= 1000 and a[0] != "page_read"]
    percent, row = max(used, default=(None, (None, 0, 0, None, None)), key=lambda u: u[0])
    return {"latch": row[0], "contended_percent": percent, "hottest_partition": row[3], "hottest_percent": row[4]}


def cell(srv, args, workload, clients):
    """Runs one workload and returns its numbers."""
    before, held = srv.cpu_seconds(), latches(srv)
    text = sysbench(srv, args, workload, clients, "run", args.seconds)
    cpu = srv.cpu_seconds() - before
    queries, per_second = re.search(r"queries:\s+(\d+)\s+\(([\d.]+) per sec", text).groups()
    errors = re.search(r"ignored errors:\s+(\d+)", text)
    return {"qps": float(per_second), "tps": float(re.search(r"transactions:\s+\d+\s+\(([\d.]+)", text)[1]),
            "p95_ms": float(re.search(r"95th percentile:\s+([\d.]+)", text)[1]),
            "cpu_us_per_query": cpu / max(1, int(queries)) * 1e6, "errors": int(errors[1]) if errors else 0,
            **most_contended(held, latches(srv))}


def run_rounds(servers, args, workloads, clients, prepare_one):
    """Every workload at every number of clients, the servers taking turns in each cell; the rows of all turns of all rounds.
    `prepare_one` makes the tables of a server, given its name, before each round."""
    names, rows = list(servers), []
    for number in range(args.rounds):
        for name in names:
            prepare_one(name)
        for w in workloads:
            for c in clients:
                for turn in range(args.turns):
                    first = (number + turn) % len(names)
                    for name in names[first:] + names[:first]:
                        measure.settle(servers.values())
                        if args.warm and turn == 0:
                            sysbench(servers[name], args, w, c, "run", args.warm)
                        rows.append({"round": number + 1, "turn": turn + 1, "workload": w, "clients": c, "engine": name,
                                     **cell(servers[name], args, w, c)})
                now = measure.medians(rows[-args.turns * len(names):], ("engine",), "qps")
                print(f"round {number + 1} {w} {c}: " + ", ".join(f"{n} {now[(n,)]:.0f}" for n in names), flush=True)
    return rows


def table(rows, engines, workloads, clients):
    lines = [f"{'workload':<18}{'clients':>8}" + "".join(f"{e + ' qps':>14}{'p95 ms':>9}{'cpu us':>8}" for e in engines)
             + "".join(f"{e + '/' + engines[0]:>17}" for e in engines[1:])]
    keys = ("workload", "clients", "engine")
    qps, p95, cpu = (measure.medians(rows, keys, v) for v in ("qps", "p95_ms", "cpu_us_per_query"))
    ratios = measure.ratios(rows, keys, "qps", engines[0], ("round", "turn"))
    for w in workloads:
        for c in clients:
            if (w, c, engines[0]) not in qps:
                continue
            line = f"{w:<18}{c:>8}"
            for e in engines:
                k = (w, c, e)
                line += f"{qps[k]:>14.0f}{p95[k]:>9.2f}{cpu[k]:>8.1f}" if k in qps else f"{'-':>14}{'-':>9}{'-':>8}"
            for e in engines[1:]:
                line += f"{ratios[(w, c, e)]:>17.2f}" if (w, c, e) in ratios else f"{'-':>17}"
            lines.append(line)
    return "\n".join(lines)


def latch_table(rows, workloads, clients):
    """Of each cell the round in which a latch class was contended most."""
    lines = [f"{'workload':<18}{'clients':>8}  most contended latch class, its hottest partition's share of acquisitions"]
    for w in workloads:
        for c in clients:
            ours = [r for r in rows if (r["workload"], r["clients"]) == (w, c) and r["latch"]]
            if ours:
                worst = max(ours, key=lambda r: r["contended_percent"])
                lines.append(f"{w:<18}{c:>8}  {worst['latch']} {worst['contended_percent']:.2f} %, partition "
                             f"{worst['hottest_partition']} {worst['hottest_percent']:.0f} %")
    return "\n".join(lines) if len(lines) > 1 else ""


def add_arguments(parser, workloads, clients, name):
    """Those of a run of cells: `workloads` by `clients`."""
    parser.add_argument("--workloads", default=",".join(workloads))
    parser.add_argument("--clients", default=clients)
    parser.add_argument("--seconds", type=int, default=4, help="measured seconds of an engine's turn")
    parser.add_argument("--turns", type=int, default=5, help="of each engine in a cell of a round, one after the other")
    parser.add_argument("--warm", type=int, default=2, help="seconds before the first of them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--pool-mib", type=int, default=1024)
    parser.add_argument("--name", default=name, help="stem of the result files")


def report(args, rows, names, workloads, clients, title, note, values):
    """Prints the table; leaves CSV, page and a chart for each of `values`, measures with their labels."""
    path = measure.write_csv(f"{args.name}.csv", rows)
    text = "\n\n".join(t for t in (table(rows, names, workloads, clients), latch_table(rows, workloads, clients)) if t)
    print(text)
    charts = [measure.grid(f"{args.name}-{v}.png", workloads, clients, names,
                           measure.medians(rows, ("workload", "clients", "engine"), v), label) for v, label in values]
    measure.write_page(args.name, title, f"{args.tables} tables of {args.rows} rows, {note}{args.seconds} s a turn, "
                       f"medians of {args.rounds * args.turns}", text, charts)
    print(f"results in {os.path.relpath(path)} and beside it")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", default="InnoDB,MYRIAD,ROCKSDB", help="the first is the measure of the others")
    add_arguments(parser, WORKLOADS, "1,8,64,256", "oltp")
    parser.add_argument("--binlog", action="store_true", help="with the binary log, sync_binlog=1")
    measure.add_thread_pool(parser)
    kills.add_argument(parser)
    args = parser.parse_args()
    engines, workloads = args.engines.split(","), args.workloads.split(",")
    workloads.sort(key=lambda w: WORKLOADS.index(w) if w in WORKLOADS else -1)
    clients = [int(c) for c in args.clients.split(",")]
    print(measure.machine(), flush=True)
    servers = measure.start_servers(engines, args.pool_mib, args.options, binlog=args.binlog)
    rows = run_rounds(servers, args, workloads, clients, lambda engine: prepare(servers[engine], args))
    report(args, rows, engines, workloads, clients, "sysbench", f"pool {args.pool_mib} MiB, " + "binary log synced, " * args.binlog
           + "pool of threads, " * bool(args.options),
           [QPS, P95, ("cpu_us_per_query", "server CPU a query, us")])
    kills.of(servers, args.kills, lambda srv: command_line(srv, args, "write_only", max(clients), "run"))
    return 0


if __name__ == "__main__":
    server.main_guard(main)
