"""What the benchmarks share: engines to compare, tables of medians with ratios, files and charts of results."""
import csv
import os
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import server  # noqa: E402

RESULTS = os.path.join(ROOT, "bench", "results")
BIG_LOG = {"INNODB": ["--innodb-log-file-size=1G"], "MYRIAD": ["--loose-myriad-log-capacity=1073741824"],
           "ROCKSDB": []}
COLOURS = {"INNODB": "#888888", "MYRIAD": "#c0392b", "ROCKSDB": "#2980b9"}


def add_thread_pool(parser):
    parser.add_argument("--thread-pool", dest="options", action="append_const", const="--thread-handling=pool-of-threads", default=[],
                        help="with the server's pool of threads, not a thread for each client")


def start_servers(engines, pool_mib, options=(), binlog=False):
    """One running server for each engine, commits durable; with `binlog` its own binary log, synced by each group of commits."""
    servers = {}
    for engine in engines:
        srv = server.Server(engine, pool_mib=pool_mib, flush=1, options=BIG_LOG.get(engine.upper(), []) + list(options),
                            binlog=binlog)
        srv.start()
        srv.query("CREATE DATABASE bench")
        servers[engine] = srv
    return servers


def settle(servers, seconds_max=20):
    """Waits until no server works in the background, so that one engine's debt is not paid by the next."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        before = sum(s.cpu_seconds() for s in servers)
        time.sleep(0.5)
        if sum(s.cpu_seconds() for s in servers) - before <= 0.05:
            return


def medians(rows, keys, value):
    """{tuple of the columns `keys`: median of column `value`}"""
    groups = {}
    for row in rows:
        if row[value] is not None:
            groups.setdefault(tuple(row[k] for k in keys), []).append(row[value])
    return {k: statistics.median(v) for k, v in groups.items()}


def ratios(rows, keys, value, first, turn=("round",)):
    """{tuple of the columns `keys`, of which the last is the engine: median of column `value` in relation to that of the
    engine `first`}, each compared with the one in the same turn (columns `turn`): a machine that grows slower meanwhile is
    slower for both."""
    *cell, engine = keys
    base = {tuple(r[k] for k in (*cell, *turn)): r[value] for r in rows if r[engine] == first}
    pairs = [(r, base.get(tuple(r[k] for k in (*cell, *turn)))) for r in rows]
    return medians([{**r, value: r[value] / b} for r, b in pairs if b], keys, value)


def write_csv(name, rows):
    os.makedirs(RESULTS, exist_ok=True)
    path = os.path.join(RESULTS, name)
    with open(path, "w", newline="") as f:
        writer = csv.DictWriter(f, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def grid(name, panels, groups, engines, values, label):
    """A PNG with one bar chart for each panel: values[(panel, group, engine)]."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(4 * columns, 3 * lines), squeeze=False)
    for axis in axes.flat[len(panels):]:
        axis.axis("off")
    width = 0.8 / len(engines)
    for axis, panel in zip(axes.flat, panels):
        for i, engine in enumerate(engines):
            axis.bar([g + i * width for g in range(len(groups))],
                     [values.get((panel, group, engine), 0) for group in groups], width,
                     label=engine, color=COLOURS.get(engine.upper()))
        axis.set_xticks([g + 0.4 - width / 2 for g in range(len(groups))], [str(g) for g in groups], fontsize=8)
        axis.set_title(panel, fontsize=10)
        axis.tick_params(axis="y", labelsize=8)
    axes[0][0].legend(fontsize=8)
    figure.suptitle(label)
    figure.tight_layout()
    os.makedirs(RESULTS, exist_ok=True)
    path = os.path.join(RESULTS, name)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
    return path


def write_page(name, title, note, text, charts):
    """The page of a benchmark: what was measured and how, the table, the charts (paths)."""
    os.makedirs(RESULTS, exist_ok=True)
    with open(os.path.join(RESULTS, f"{name}.html"), "w") as f:
        f.write(f"<!doctype html><meta charset=utf-8><title>{name}</title><h1>{title}</h1><p>{machine()}; {note}</p>"
                f"<pre>{text}</pre>" + "".join(f"<p><img src={os.path.basename(c)}></p>" for c in charts))


def machine():
    """One line about the machine, for the head of a report."""
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "unknown CPU")
    return f"{os.cpu_count()} x {model}, MariaDB {server.server_version()}, {time.strftime('%Y-%m-%d %H:%M')}"
