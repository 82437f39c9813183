#!/usr/bin/python3
"""The tablespace duplicate check on very many files: io_uring and threads, beside MySQL's rule and the device's limit.

Makes a folder of Myriad's tablespace files and one of InnoDB's, drops the caches before each run and measures
`myriad check-tablespaces` in every way of reading, taking turns. Beside it stand MySQL's own rule (blocking reads of a page
with at most 16 threads, 2 a core, one for 8,000 files) and fio's random reads of 4 KiB in the same rounds. Prints medians;
leaves a CSV, charts and a page under bench/results/.
"""
import argparse
import atexit
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time

import measure
import tablespaces
from measure import server

COMMAND = os.path.join(server.BUILD, "myriad")
THREADS = (1, 2, 4, 8, 16, 32, 64)
FIO_DEPTHS = (16, 32, 64, 128)
FIO_SECONDS = 2
# Past the page cache, which is the default, or through it.
CACHING = ((), ("--cached",), ("--cached", "--fadvise"))
KEYS = ("format", "way", "threads", "read", "options")


def mysql_threads(files):
    return max(1, min(16, 2 * os.cpu_count(), files // 8000))


def ways(files):
    """(name, threads, light or page, options) of every run in a round."""
    runs = []
    for read in ("light", "page"):
        runs += [("uring", 1, read, options) for options in CACHING]
        runs += [("threads", threads, read, ()) for threads in THREADS]
        runs += [("threads", 32, read, options) for options in CACHING[1:]]
    runs.append(("mysql", mysql_threads(files), "page", ("--cached",)))
    return runs


def files_of(folder):
    for root, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(root, name)


def drop_caches(folder):
    """Forgets what the kernel has cached; returns how."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3\n")
        return "drop_caches"
    except OSError:
        for path in files_of(folder):
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        return "posix_fadvise (file contents only: names and inodes stay cached)"


def device_reads(folder):
    """Reads that the device under `folder` has completed; None where the kernel does not say."""
    device = os.stat(folder).st_dev
    with open("/proc/diskstats") as f:
        for line in f:
            fields = line.split()
            if (int(fields[0]), int(fields[1])) == (os.major(device), os.minor(device)):
                return int(fields[3])
    return None


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def check(folder, fmt, files, way, threads, read, options):
    """One run of the command on cold caches, and its numbers."""
    line = [COMMAND, "check-tablespaces", folder, "--json", f"--format={fmt}", f"--{read}", f"--threads={threads}",
            f"--io={'uring' if way == 'uring' else 'threads'}", *options]
    drop_caches(folder)
    reads, cpu, begin = device_reads(folder), cpu_seconds(), time.monotonic()
    done = subprocess.run(line, capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode:
        raise server.ServerError(f"{' '.join(line)} ended with status {done.returncode}: "
                                 f"{(done.stderr or done.stdout)[-400:]}")
    seen = json.loads(done.stdout)["files"]
    if seen != files:
        raise server.ServerError(f"{' '.join(line)} saw {seen} files of {files}")
    after = device_reads(folder)
    return {"seconds": seconds, "files_per_s": files / seconds, "cpu_us_per_file": (cpu_seconds() - cpu) / files * 1e6,
            "device_reads_per_file": (after - reads) / files if reads is not None else None}


def fio_file(folder):
    return os.path.join(folder, "fio.tmp")


def fio_best(folder):
    """fio's most random 4 KiB reads a second over some depths; None without fio."""
    if not shutil.which("fio"):
        return None
    best = 0
    for depth in FIO_DEPTHS:
        done = subprocess.run(
            ["fio", "--name=read", f"--filename={fio_file(folder)}", "--size=1g", "--rw=randread", "--bs=4k", "--direct=1",
             "--ioengine=io_uring", f"--iodepth={depth}", f"--runtime={FIO_SECONDS}", "--time_based",
             "--output-format=json"], capture_output=True, text=True)
        if done.returncode:
            raise server.ServerError(f"fio failed: {done.stderr.strip()[-300:]}")
        best = max(best, json.loads(done.stdout)["jobs"][0]["read"]["iops"])
    return best


def label(key):
    _, way, threads, read, options = key
    return f"{way:<8}{threads:>4}  {read:<6}{options or '-'}"


def table(rows, formats, fio):
    lines = []
    values = {v: measure.medians(rows, KEYS, v)
              for v in ("seconds", "files_per_s", "cpu_us_per_file", "device_reads_per_file")}
    for fmt in formats:
        keys = [k for k in values["seconds"] if k[0] == fmt]
        mysql = next((values["seconds"][k] for k in keys if k[1] == "mysql"), None)
        lines.append(f"{fmt:<40}{'seconds':>9}{'files/s':>10}{'of fio':>8}{'CPU us/file':>13}{'reads/file':>12}"
                     f"{'x MySQL rule':>14}")
        for key in keys:
            reads = values["device_reads_per_file"].get(key)
            rate = values["files_per_s"][key]
            lines.append(f"{label(key):<40}{values['seconds'][key]:>9.2f}{rate:>10.0f}"
                         + (f"{rate / fio:>8.0%}" if fio else f"{'-':>8}") + f"{values['cpu_us_per_file'][key]:>13.1f}"
                         + (f"{reads:>12.2f}" if reads is not None else f"{'-':>12}")
                         + (f"{mysql / values['seconds'][key]:>14.2f}" if mysql else f"{'-':>14}"))
    if fio:
        lines.append(f"fio's best: {fio:.0f} reads of 4 KiB a second")
    return "\n".join(lines)


def verdicts(rows, formats, fio):
    """The wanted figures, met or missed: one sentence each."""
    lines = []
    rate, cpu, seconds = (measure.medians(rows, KEYS, v) for v in ("files_per_s", "cpu_us_per_file", "seconds"))
    for fmt in formats:
        rings = [k for k in rate if k[0] == fmt and k[1] == "uring"]
        mysql = next((seconds[k] for k in seconds if k[0] == fmt and k[1] == "mysql"), None)
        if rings:
            best = max(rings, key=lambda k: rate[k])
            least = min(rings, key=lambda k: cpu[k])
            met = (fio and rate[best] >= 0.9 * fio) or cpu[least] <= 15
            lines.append(f"{fmt}: io_uring at best {rate[best]:.0f} files/s"
                         + (f" ({rate[best] / fio:.0%} of fio; wanted 90%)" if fio else "")
                         + f", at least {cpu[least]:.1f} us of CPU a file (or wanted 15): {'met' if met else 'missed'}")
        if rings and mysql:
            ratio = mysql / min(seconds[k] for k in rings)
            lines.append(f"{fmt}: {ratio:.1f} times as fast as MySQL's rule"
                         + (f" (wanted 4): {'met' if ratio >= 4 else 'missed'}" if fmt == "innodb" else ""))
    return "\n".join(lines)


def charts(rows, formats, name):
    """PNGs of files a second and CPU a file, by threads, each the best of its options; `ring` is io_uring, one thread."""
    def bars(value, best):
        found = {}
        for (fmt, way, threads, read, _), v in measure.medians(rows, KEYS, value).items():
            key = (fmt, {"uring": "ring", "mysql": "MySQL"}.get(way, threads), read)
            found[key] = best(v, found.get(key, v))
        return found
    groups = list(THREADS) + ["ring", "MySQL"]
    return [measure.grid(f"{name}-{v}.png", formats, groups, ["light", "page"], bars(v, best), title)
            for v, best, title in (("files_per_s", max, "files a second, by threads"),
                                   ("cpu_us_per_file", min, "CPU a file in microseconds, by threads"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=200000)
    parser.add_argument("--formats", default="myriad,innodb")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="regular expression of runs, such as 'uring|mysql'; default: all")
    parser.add_argument("--folder", default=os.path.join(server.ROOT, "var", "bench-check"),
                        help="where the files are made, and kept for the next run")
    parser.add_argument("--name", default="check", help="stem of the result files")
    args = parser.parse_args()
    if not os.path.exists(COMMAND):
        raise server.ServerError("build/myriad is missing: run `make build`")
    formats = args.formats.split(",")
    runs = [w for w in ways(args.files) if re.search(args.only, " ".join([w[0], str(w[1]), w[2], *w[3]]))]
    atexit.register(lambda: os.path.exists(fio_file(args.folder)) and os.remove(fio_file(args.folder)))
    folders = {fmt: os.path.join(args.folder, fmt) for fmt in formats}
    print(f"making {args.files} files of each format in {args.folder}, if they are not there", flush=True)
    real = tablespaces.real_files()
    for fmt in formats:
        tablespaces.make_folder(folders[fmt], fmt, args.files, *real[fmt])
    if not shutil.which("fio"):
        print("fio is not installed, so the device's limit is not measured: apt-get install fio", file=sys.stderr)
    note = f"{args.files} files, caches dropped by {drop_caches(args.folder)}, median of {args.rounds}"
    print(f"{measure.machine()}; {note}", flush=True)
    rows, limits = [], []
    for number in range(args.rounds):
        limits.append(fio_best(args.folder))
        turn = runs[number % len(runs):] + runs[:number % len(runs)]
        for way, threads, read, options in turn:
            for fmt in formats:
                rows.append({"round": number + 1, "format": fmt, "way": way, "threads": threads, "read": read,
                             "options": " ".join(options), "fio_iops": limits[-1],
                             **check(folders[fmt], fmt, args.files, way, threads, read, options)})
        print(f"round {number + 1} of {args.rounds}"
              + (f": fio {limits[-1]:.0f} reads/s" if limits[-1] else ""), flush=True)
    fio = measure.statistics.median(limits) if limits[0] else None
    rows.sort(key=lambda r: ([w[0] for w in runs].index(r["way"]), r["threads"]))
    path = measure.write_csv(f"{args.name}.csv", rows)
    text = table(rows, formats, fio) + "\n" + verdicts(rows, formats, fio)
    print(text)
    measure.write_page(args.name, "Tablespace check", note, text, charts(rows, formats, args.name))
    print(f"results in {os.path.relpath(path)} and beside it")
    return 0


if __name__ == "__main__":
    server.main_guard(main)
