#!/usr/bin/python3
"""Cuts the power of a server under load, at any write of its disk, and checks what came back.

The server's files are in an ext4 file system on a disk of our own (disk.c), which records every write and every flush. One run of
the server gives any number of disks that a power failure could have left: all that was flushed before, and of the sectors written
after the last flush any part. From each the server starts (at times its power fails again in that), and is held against the record
of what its clients were told, which knows how far the disk's record was when they asked and when they were answered.
  - what was acknowledged is there; what was under way is there wholly or not at all;
  - with --flush 0 or 2 what is missing is the end: nobody's commit is there without those acknowledged before it began;
  - with --binlog an InnoDB server that reads the binary log has the same rows;
  - CHECK TABLE ... EXTENDED and `myriad verify` find nothing.
Needs root, loop devices and FUSE; is skipped without.
"""
import argparse
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts"))
import pymysql  # noqa: E402
import server  # noqa: E402
from power_clients import NO_PAR, Administrator, Alterer, Definitions, Family, Prepared, Rows, RowsApart  # noqa: E402
from run import check_table  # noqa: E402

SECTOR, FLUSH = 512, (1 << 64) - 1
OPTIONS = {"INNODB": ["--innodb-log-file-size=16M"], "MYRIAD": ["--loose-myriad-log-capacity=16777216"]}


class Skipped(Exception):
    """This machine cannot do it."""


def command(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise server.ServerError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


class Mounted:
    """A file with an ext4 file system, mounted."""

    def __init__(self, image, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.device = command("losetup", "--show", "-f", image)
        try:
            command("mount", self.device, folder)
        except server.ServerError:
            command("losetup", "-d", self.device)
            raise

    def close(self):
        # Rings of a killed server go a moment after it.
        for _ in range(100):
            if not subprocess.run(["umount", self.folder], capture_output=True).returncode:
                break
            time.sleep(0.1)
        else:
            command("umount", "-l", self.folder)
        command("losetup", "-d", self.device)


class Disk:
    """The recording disk, with a file system mounted."""

    def __init__(self, folder, image, size):
        self.folder, self.record, self.image = folder, os.path.join(folder, "record"), image
        where, counter = os.path.join(folder, "disk"), os.path.join(folder, "counter")
        os.makedirs(where, exist_ok=True)
        tool = os.path.join(folder, "disk-tool")
        if not os.path.exists(tool):
            command("gcc", "-O2", "-Wall", "-o", tool, os.path.join(HERE, "disk.c"))
        self.process = subprocess.Popen(server.tied_to_us([tool, where, str(size), self.record, counter] + [image] * bool(image), "KILL"),
                                        process_group=0, stdin=subprocess.DEVNULL)
        self.where, deadline = where, time.monotonic() + 20
        while not os.path.exists(os.path.join(where, "image")):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Skipped("no disk of our own: FUSE cannot be mounted")
            time.sleep(0.02)
        if not image:
            command("mkfs.ext4", "-q", "-F", os.path.join(where, "image"))
        with open(counter, "rb") as f:
            self.counter = mmap.mmap(f.fileno(), 4096, prot=mmap.PROT_READ)
        self.mounted = Mounted(os.path.join(where, "image"), os.path.join(folder, "fs"))

    def position(self):
        return struct.unpack_from("<Q", self.counter)[0]

    def close(self):
        self.mounted.close()
        command("umount", self.where)
        self.process.wait(20)


class Images:
    """Disks as a power failure at growing positions may leave them."""

    def __init__(self, disk, size, chance, path):
        self.record, self.chance, self.at, self.pending = open(disk.record, "rb"), chance, 0, []
        self.durable = path + ".durable"
        if disk.image:
            command("cp", "--sparse=always", disk.image, self.durable)
        else:
            open(self.durable, "wb").close()
        self.size = size
        os.truncate(self.durable, size)
        self.path = path

    def cut(self, position):
        with open(self.durable, "r+b") as f:
            while self.at < position:
                offset, length = struct.unpack("<QQ", self.record.read(16))
                self.at += 1
                if offset != FLUSH:
                    self.pending.append((offset, self.record.read(length)))
                    continue
                for o, data in self.pending:
                    f.seek(o)
                    f.write(data)
                self.pending = []
        command("cp", "--sparse=always", self.durable, self.path)
        how = self.chance.choice(["none", "all", "prefix", "writes", "sectors", "sectors"])
        pending = self.pending[:self.chance.randrange(len(self.pending) + 1)] if how == "prefix" else self.pending
        with open(self.path, "r+b") as f:
            for o, data in pending:
                if how == "none" or how == "writes" and self.chance.random() < 0.5:
                    continue
                if how != "sectors":
                    f.seek(o)
                    f.write(data)
                    continue
                rate = self.chance.choice([0, 0.1, 0.5, 0.9, 1])
                for s in range(0, len(data), SECTOR):
                    if self.chance.random() < rate:
                        f.seek(o + s)
                        f.write(data[s:s + SECTOR])
        return f"{how} of {len(self.pending)} writes not flushed"

    def close(self):
        self.record.close()
        for path in (self.path, self.durable):
            if os.path.exists(path):
                os.remove(path)


class Run:
    def __init__(self, args, seed):
        self.args, self.seed, self.stopping = args, seed, False
        self.random = random.Random(seed)
        self.folder = tempfile.mkdtemp(prefix="p", dir=args.folder)
        self.size = args.disk_mib << 20
        self.lazy = args.flush != 1
        self.myriad = args.engine.upper() == "MYRIAD"
        self.options = OPTIONS.get(args.engine.upper(), []) + server.wait_timeout_options(args.engine, 2) + [
            "--aria-log-file-size=8388608", "--max-allowed-packet=64M"] + args.option
        self.no_wait = f"SET SESSION {'myriad' if self.myriad else 'innodb'}_lock_wait_timeout=0"
        kinds = [Rows, Rows, RowsApart if self.myriad and not args.binlog else Rows, Family, Definitions] + ([] if args.binlog else [Prepared])
        kinds += [Alterer, Administrator]
        self.clients = [kind(self, i + 1) for i, kind in enumerate(kinds)]
        self.moments = []

    def make_server(self, folder):
        return server.Server(self.args.engine, options=self.options, pool_mib=self.args.pool_mib, flush=self.args.flush,
                             binlog=self.args.binlog, folder=os.path.join(folder, "s"), keep=True)

    def position(self):
        return self.disk.position()

    def work(self):
        """Lets the clients work, and returns between which positions they did."""
        self.disk = Disk(self.folder, None, self.size)
        try:
            self.server = self.make_server(self.disk.mounted.folder)
            self.server.start()
            with self.server.connect() as connection, connection.cursor() as cursor:
                for client in self.clients:
                    client.setup(cursor)
            command("sync", "-f", self.disk.mounted.folder)
            first = self.position()
            for client in self.clients:
                client.start()
            end = time.monotonic() + self.args.seconds
            while time.monotonic() < end and self.server.alive():
                time.sleep(0.1)
                self.moments.append((time.monotonic(), self.position()))
            problems = [] if self.server.alive() else [f"the server ended: {self.server.why()}"]
            self.stopping = True
            last = self.position()
            self.server.kill()
            for client in self.clients:
                client.join(60)
            problems += [f"{type(c).__name__} {c.number}: {type(c.trouble).__name__} {c.trouble}" for c in self.clients if c.trouble]
        finally:
            self.server.kill()
            self.disk.close()
        return first, last, problems

    def lazy_since(self, cut):
        """What was acknowledged before this moment was synced when the power failed, with commits that do not wait for it."""
        return max((t for t, p in self.moments if p <= cut), default=0) - 4 if self.lazy else None

    def check(self, cut, image):
        """Starts from the image and compares."""
        mounted = Mounted(image, os.path.join(self.folder, "check"))
        srv = self.make_server(mounted.folder)
        problems, seconds = [], 0
        try:
            seconds = srv.start()
            with srv.connect() as connection, connection.cursor() as cursor:
                found = {}
                # What they try out afterwards is not to be in the way of the binary log.
                if self.args.binlog:
                    problems += self.check_binlog(srv)
                for client in self.clients:
                    wrong, at = client.check(cursor, cut, self.lazy_since(cut))
                    problems += wrong
                    if at is not None:
                        found[client] = at
                if self.lazy:
                    problems += self.holes(found)
                problems += self.check_tables(cursor)
            srv.stop()
            if self.myriad:
                tool = os.path.join(server.BUILD, "myriad")
                done = subprocess.run([tool, "verify", srv.datadir], capture_output=True, text=True, timeout=120)
                if done.returncode:
                    problems.append(f"verify: {done.stdout[-300:]} {done.stderr[-300:]}")
        except (server.ServerError, pymysql.err.MySQLError) as problem:
            problems.append(f"{type(problem).__name__}: {problem}")
        finally:
            if problems and self.args.keep:
                shutil.copy(srv.log, os.path.join(self.args.folder, f"error-{self.seed}-{cut}.log"))
            srv.kill()
            mounted.close()
        return problems, seconds

    def holes(self, found):
        """Commits that are there although one acknowledged before they began is not."""
        problems = []
        for client, (at, _) in found.items():
            began = client.states[at].begun_s
            for other, (_, there) in found.items():
                missing = [s for s in other.states[there + 1:] if s.done is not None and s.done_s < began]
                if missing:
                    problems.append(f"client {client.number} is at {at}, and client {other.number} at {there} without {len(missing)} before")
        return problems

    def check_tables(self, cursor):
        problems = []
        def rows(statement):
            cursor.execute(statement)
            return cursor.fetchall()
        databases = [c.db for c in self.clients]
        cursor.execute("SHOW DATABASES LIKE 'copied'")
        databases += [row[0] for row in cursor.fetchall()]
        for db in databases:
            cursor.execute(f"SHOW TABLES FROM {db}")
            for (name,) in cursor.fetchall():
                if "#" in name:
                    problems.append(f"stray table {db}.{name}")
                    continue
                try:
                    cursor.execute(f"SELECT 1 FROM {db}.{name} LIMIT 1")
                except pymysql.err.MySQLError as problem:
                    if problem.args[0] == NO_PAR:
                        continue
                    raise
                problems += check_table(rows, f"{db}.{name}")
                cursor.execute(f"SHOW INDEX FROM {db}.{name}")
                first = {row[2]: row[4] for row in cursor.fetchall() if row[3] == 1 and row[7] is None}
                if "PRIMARY" not in first:
                    continue
                sums = {}
                for index, column in first.items():
                    cursor.execute(f"SELECT COUNT(*), BIT_XOR(CRC32(CONCAT_WS('|', {first['PRIMARY']}, {column}))), "
                                   f"(SELECT BIT_XOR(CRC32(CONCAT_WS('|', {first['PRIMARY']}, {column}))) FROM {db}.{name} FORCE INDEX (PRIMARY)) "
                                   f"FROM {db}.{name} FORCE INDEX ({index})")
                    count, own, of_table = cursor.fetchone()
                    sums[index] = count
                    if own != of_table:
                        problems.append(f"index {index} of {db}.{name} has other values than the table")
                if len(set(sums.values())) > 1:
                    problems.append(f"indexes of {db}.{name} disagree: {sums}")
        return problems

    def check_binlog(self, srv):
        """The whole binary log into a server with InnoDB, whose tables must be the same then."""
        files = [os.path.join(srv.datadir, row[0]) for row in srv.query("SHOW BINARY LOGS")]
        with server.Server("InnoDB", options=["--max-allowed-packet=64M", "--innodb-log-file-size=64M"], flush=0,
                           folder=os.path.join(self.folder, "replica")) as replica:
            replica.query("SET GLOBAL sql_mode=''")
            read = subprocess.Popen([server.tool("mariadb-binlog"), "--force-read", *files], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            done = subprocess.run([server.tool("mariadb"), "--no-defaults", "-uroot", f"--socket={replica.socket}", "--max-allowed-packet=64M",
                                   "--init-command=SET sql_mode=''"],
                                  stdin=read.stdout, capture_output=True, text=True, timeout=300)
            read.stdout.close()
            read.wait(20)
            if done.returncode:
                return [f"binlog: {done.stderr[:500]}"]
            problems = []
            for client in self.clients[:-1]:
                names = [{row[0] for row in s.query(f"SHOW TABLES FROM {client.db}")} for s in (srv, replica)]
                if names[0] != names[1]:
                    problems.append(f"binlog: the tables of {client.db} differ: {sorted(names[0] ^ names[1])[:5]}")
                for name in names[0] & names[1]:
                    sums = [zlib.crc32(repr(sorted(s.query(f"SELECT * FROM {client.db}.{name}"), key=repr)).encode()) for s in (srv, replica)]
                    if sums[0] != sums[1]:
                        problems.append(f"binlog: the rows of {client.db}.{name} differ from what the binary log gives")
            return problems

    def start_and_cut(self, image, how):
        """A start whose power fails too: the image after that."""
        disk = Disk(self.folder, image, self.size)
        srv = self.make_server(disk.mounted.folder)
        begin = disk.position()
        try:
            killer = threading.Timer(0.1 + self.random.random() * 1.5, srv_kill, [srv])
            killer.start()
            try:
                srv.start()
            except server.ServerError:
                pass
            killer.join()
        finally:
            srv.kill()
            disk.close()
        position = self.random.randrange(begin, max(begin + 1, disk.position()))
        images = Images(disk, self.size, self.random, image + ".next")
        how += f"; then in a start at {position - begin} of {disk.position() - begin}: {images.cut(position)}"
        os.rename(images.path, image)
        images.close()
        return how


def srv_kill(srv):
    if srv.process:
        srv.process.kill()


def run(args, seed):
    this = Run(args, seed)
    passed = failed = 0
    try:
        first, last, problems = this.work()
        commits = sum(len(c.states) - 1 for c in this.clients)
        print(f"power on {args.engine}, seed {seed}: {commits} commits, {last - first} writes and flushes, "
              f"{os.path.getsize(this.disk.record) >> 20} MiB", flush=True)
        for problem in problems:
            print(f"    failed: {problem}", flush=True)
        failed += bool(problems)
        image = os.path.join(args.folder, f"image-{seed}")
        images = Images(this.disk, this.size, this.random, image)
        os.rename(this.disk.record, image + ".record")      # that of a start does not overwrite it
        for cut in sorted(this.random.randrange(first, last + 1) for _ in range(args.cuts)):
            how = images.cut(cut)
            if this.random.random() < 0.3:
                how = this.start_and_cut(image, how)
            problems, seconds = this.check(cut, image)
            passed, failed = passed + (not problems), failed + bool(problems)
            print(f"  at {cut} ({how}): " + ("ok" if not problems else "FAILED") + f", up in {seconds:.1f} s", flush=True)
            for problem in problems[:10]:
                print(f"    failed: {problem}", flush=True)
            if problems and args.keep:
                return passed, failed
        images.close()
        os.remove(image + ".record")
    finally:
        shutil.rmtree(this.folder, ignore_errors=True)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", default="MYRIAD")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--cuts", type=int, default=8, help="power failures looked at of each run")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long the clients work")
    parser.add_argument("--binlog", action="store_true")
    parser.add_argument("--partitions", action="store_true",
                        help="partitioned tables too, whose definitions are the server's own files, which it does not sync")
    parser.add_argument("--flush", type=int, default=1)
    parser.add_argument("--pool-mib", type=int, default=16)
    parser.add_argument("--disk-mib", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--option", action="append", default=[], help="one more option of the server")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--keep", action="store_true", help="stop at the first failure, keep the disk and the record")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else int(time.time()) % 1_000_000
    passed = failed = 0
    for n in range(args.runs):
        try:
            p, f = run(args, seed + n)
        except Skipped as why:
            print(f"power: skipped: {why}")
            return 0
        passed, failed = passed + p, failed + f
        if failed and args.keep:
            break
    print(f"power on {args.engine}: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    server.main_guard(main)
