#!/usr/bin/python3
"""sysbench on data larger than memory: throughput second by second, engines taking turns in every cell.

Commits durable, direct I/O, 8 tables of a million rows (about 2 GB), a pool of 256 MiB and a log of 512 MiB at --scale 1;
the scale goes to rows, pool and log alike. Data are loaded once for each engine; with --data they stay for the next run.
Prints QPS, the worst second as a share of the mean, p99, KB read and written and CPU a query; leaves a CSV of cells, one of
seconds, charts and a page under bench/results/.
"""
import argparse
import os
import re
import time

import kills
import measure
import oltp
from measure import server

WORKLOADS = ["point_select", "read_only", "update_index", "write_only", "read_write"]
SECOND = re.compile(r"\[ (\d+)s \] thds: \d+ tps: ([\d.]+) qps: ([\d.]+) .* lat \(ms,99%\): ([\d.]+)")
FIGURES = ["qps", "worst_share", "p99_ms", "longest_ms", "read_kb", "written_kb", "cpu_us"]


def options(engine, args):
    """Direct I/O, a log of the same size and the same right to write in the background for every engine; then what the name
    says: MYRIAD:doublewrite=OFF is Myriad with that variable."""
    log = int(args.log_mib * args.scale)
    engine, *own = engine.split(":")
    return {
        "INNODB": ["--innodb-flush-method=O_DIRECT", f"--innodb-log-file-size={log}M", "--innodb-io-capacity=2000",
                   "--innodb-io-capacity-max=20000", "--innodb-buffer-pool-load-at-startup=0",
                   "--innodb-buffer-pool-dump-at-shutdown=0"],
        "MYRIAD": [f"--loose-myriad-log-capacity={log << 20}", "--loose-myriad-buffer-pool-warm-up=0"],
        "ROCKSDB": ["--rocksdb-use-direct-reads=1", "--rocksdb-use-direct-io-for-flush-and-compaction=1"],
    }[engine.upper()] + [f"--{engine.lower()}-{variable}" for variable in own] + args.options


def make_server(engine, args, **where):
    """A server of the engine, its name as in `options`."""
    return server.Server(engine.split(":")[0], pool_mib=max(6, int(args.pool_mib * args.scale)), flush=1,
                         options=options(engine, args), **where)


def io_bytes(srv):
    """Bytes that the server's process has had read from and written to devices."""
    with open(f"/proc/{srv.process.pid}/io") as f:
        fields = dict(line.split(": ") for line in f.read().splitlines())
    return int(fields["read_bytes"]), int(fields["write_bytes"])


def settle(servers, seconds_max):
    """As measure.settle, and until nobody writes: the page writes of one engine must not fall into another's turn."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        before = sum(sum(io_bytes(s)) for s in servers)
        measure.settle(servers, 5)
        time.sleep(1)
        if sum(sum(io_bytes(s)) for s in servers) - before < 1 << 20:
            return


def start(engine, args):
    """The engine's server with its tables: loaded now, or found in --data."""
    folder = os.path.abspath(os.path.join(args.data, engine.lower())) if args.data else None
    srv = make_server(engine, args, folder=folder, keep=bool(args.data))
    srv.start()
    loaded = f"{args.tables} {args.rows}"
    marker = os.path.join(srv.folder, "loaded")
    if not os.path.exists(marker):
        begin = time.monotonic()
        srv.query("DROP DATABASE IF EXISTS bench")
        srv.query("CREATE DATABASE bench")
        if engine.upper() == "ROCKSDB":
            srv.query("SET GLOBAL rocksdb_max_row_locks=1073741824")
        oltp.sysbench(srv, args, "read_write", min(2, args.tables), "prepare")
        # The same state for all: what a load leaves in memory is gone, what it left to write is written.
        srv.restart()
        with open(marker, "w") as f:
            f.write(loaded)
        print(f"{engine}: loaded in {time.monotonic() - begin:.0f} s, {srv.disk_bytes() / 1e6:.0f} MB on disk", flush=True)
    else:
        with open(marker) as f:
            if f.read() != loaded:
                raise server.ServerError(f"{srv.folder} holds other tables: use another --data, or remove it")
    return srv


def cell(srv, args, workload, clients):
    """Runs one workload; its figures, and throughput and p99 of each second."""
    extra = ["--percentile=99", "--report-interval=1"]
    if args.warm:
        oltp.sysbench(srv, args, workload, clients, "run", args.warm, extra)
    cpu, io = srv.cpu_seconds(), io_bytes(srv)
    text = oltp.sysbench(srv, args, workload, clients, "run", args.seconds, extra)
    cpu, io = srv.cpu_seconds() - cpu, [b - a for a, b in zip(io, io_bytes(srv))]
    queries, qps = re.search(r"queries:\s+(\d+)\s+\(([\d.]+) per sec", text).groups()
    queries, qps = max(1, int(queries)), float(qps)
    each = [(int(m[0]), float(m[2]), float(m[3])) for m in SECOND.findall(text)]
    seconds = [{"second": second, "qps": rate, "p99_ms": p99} for second, rate, p99 in each]
    worst = min((rate for _, rate, _ in each), default=0)
    figures = {"qps": qps, "worst_qps": worst, "worst_share": worst / qps if qps else 0,
               "p99_ms": float(re.search(r"99th percentile:\s+([\d.]+)", text)[1]),
               "longest_ms": float(re.search(r"max:\s+([\d.]+)", text)[1]),
               "read_kb": io[0] / queries / 1024, "written_kb": io[1] / queries / 1024, "cpu_us": cpu / queries * 1e6}
    return figures, seconds


def table(rows, engines):
    """One line for each cell and engine, with the ratio to the first engine."""
    wide = max(map(len, engines)) + 1
    lines = [f"{'workload':<14}{'clients':>8} {'engine':<{wide}}{'qps':>9}{'ratio':>7}{'worst':>8}{'worst%':>7}{'p99 ms':>9}"
             f"{'longest':>9}{'read KB':>9}{'writ. KB':>9}{'cpu us':>8}"]
    keys = ("workload", "clients", "engine")
    values = {v: measure.medians(rows, keys, v) for v in FIGURES + ["worst_qps"]}
    ratios = measure.ratios(rows, keys, "qps", engines[0])
    for w, c, e in dict.fromkeys((r["workload"], r["clients"], r["engine"]) for r in rows):
        v = {name: values[name][(w, c, e)] for name in values}
        lines.append(f"{w:<14}{c:>8} {e:<{wide}}{v['qps']:>9.0f}{ratios.get((w, c, e), 0):>7.2f}{v['worst_qps']:>8.0f}"
                     f"{100 * v['worst_share']:>7.0f}{v['p99_ms']:>9.1f}{v['longest_ms']:>9.0f}{v['read_kb']:>9.1f}"
                     f"{v['written_kb']:>9.1f}{v['cpu_us']:>8.0f}")
    return "\n".join(lines)


def lines_chart(name, seconds, engines, label):
    """A PNG with a panel for each cell: queries a second over time, one line for each engine."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    panels = list(dict.fromkeys((s["workload"], s["clients"]) for s in seconds))
    columns = min(3, len(panels))
    figure, axes = pyplot.subplots(-(-len(panels) // columns), columns, squeeze=False,
                                   figsize=(5 * columns, 3 * -(-len(panels) // columns)))
    for axis, (w, c) in zip(axes.flat, panels):
        for engine in engines:
            points = [(s["second"], s["qps"]) for s in seconds
                      if (s["workload"], s["clients"], s["engine"], s["round"]) == (w, c, engine, 1)]
            axis.plot(*zip(*points) if points else ([], []), label=engine, color=measure.COLOURS.get(engine.upper()))
        axis.set_title(f"{w}, {c} clients", fontsize=10)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
    for axis in axes.flat[len(panels):]:
        axis.axis("off")
    axes[0][0].legend(fontsize=8)
    figure.suptitle(label)
    figure.tight_layout()
    path = os.path.join(measure.RESULTS, name)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", default="InnoDB,MYRIAD,ROCKSDB", help="the first is the measure of the others; "
                        "MYRIAD:doublewrite=OFF is one with a variable of its own, for ablations")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--clients", default="1,8,64,256")
    parser.add_argument("--scale", type=float, default=1, help="factor of rows, pool and log; 0.1 for a first look")
    parser.add_argument("--seconds", type=int, default=60, help="measured seconds of a cell")
    parser.add_argument("--warm", type=int, default=20, help="seconds before them")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--rows", type=int, default=1000000, help="of each table, before --scale")
    parser.add_argument("--pool-mib", type=int, default=256, help="before --scale")
    parser.add_argument("--log-mib", type=int, default=512, help="before --scale")
    parser.add_argument("--data", help="folder in which the servers' data stay for later runs")
    parser.add_argument("--name", default="iobound", help="stem of the result files")
    measure.add_thread_pool(parser)
    kills.add_argument(parser)
    args = parser.parse_args()
    args.rows = int(args.rows * args.scale)
    engines, workloads = args.engines.split(","), args.workloads.split(",")
    workloads.sort(key=lambda w: WORKLOADS.index(w) if w in WORKLOADS else -1)
    clients = [int(c) for c in args.clients.split(",")]
    print(measure.machine(), flush=True)
    servers = {engine: start(engine, args) for engine in engines}
    rows, seconds = [], []
    for number in range(args.rounds):
        for w in workloads:
            for c in clients:
                for engine in engines[number % len(engines):] + engines[:number % len(engines)]:
                    settle(servers.values(), 30)
                    of = {"round": number + 1, "workload": w, "clients": c, "engine": engine}
                    figures, each = cell(servers[engine], args, w, c)
                    rows.append({**of, **figures})
                    seconds += [{**of, **s} for s in each]
                print(f"round {number + 1} {w} {c}: " + ", ".join(
                    f"{r['engine']} {r['qps']:.0f} (worst {r['worst_qps']:.0f}, p99 {r['p99_ms']:.0f} ms)"
                    for r in rows[-len(engines):]), flush=True)
    path = measure.write_csv(f"{args.name}.csv", rows)
    measure.write_csv(f"{args.name}-seconds.csv", seconds)
    text = table(rows, engines)
    print(text)
    keys = ("workload", "clients", "engine")
    charts = [lines_chart(f"{args.name}-seconds.png", seconds, engines, "queries a second, over the measured seconds")]
    charts += [measure.grid(f"{args.name}-{v}.png", workloads, clients, engines, measure.medians(rows, keys, v), label)
               for v, label in (("qps", "queries a second, by clients"),
                                ("worst_share", "worst second as a share of the mean"),
                                ("p99_ms", "99th percentile of latency, ms"),
                                ("written_kb", "KB written a query"), ("cpu_us", "server CPU a query, us"))]
    measure.write_page(args.name, "Data larger than memory", f"{args.tables} tables of {args.rows} rows, pool "
                       f"{max(6, int(args.pool_mib * args.scale))} MiB, log {int(args.log_mib * args.scale)} MiB, "
                       f"{'pool of threads, ' * bool(args.options)}{args.seconds} s a cell after {args.warm}, median of {args.rounds}", text, charts)
    print(f"results in {os.path.relpath(path)} and beside it")
    kills.of(servers, args.kills, lambda srv: oltp.command_line(srv, args, "write_only", max(clients), "run"))
    for srv in servers.values():
        if args.data:
            srv.stop()
    return 0


if __name__ == "__main__":
    server.main_guard(main)
