#!/usr/bin/python3
"""A device that fails or is slow: system calls on chosen files of a running server get an error or a delay from strace.

The server uses myriad_io_method=THREADS here, because strace does not see what io_uring does. What must hold: the client
is told, other tables are usable, nothing acknowledged is lost, the server lives and works on once the device does.
Skipped, by name, where a process may not be traced.
"""
import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import LOG_BYTES, OPTIONS, ROWS, Load, Skipped, case, expect, run_cases, server, wait_for  # noqa: E402


class Fault:
    """While entered, calls on `paths` fail with `error` or take `delay_us` longer."""

    def __init__(self, place, calls, paths, delay_us=0, error="EIO"):
        self.server = place.server.process
        what = f"delay_enter={delay_us}" if delay_us else f"error={error}"
        self.command = [server.tool("strace"), "-q", "-f", "-o", place.folder + "/trace", "-p", str(place.server.process.pid),
                        "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
        for path in paths:
            self.command += ["-P", path]
        self.trace = place.folder + "/trace"

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        expect(wait_for(lambda: self.process.poll() is not None or self.is_everywhere()), "strace does not come to all threads")
        if self.process.poll() is not None:
            raise Skipped("cannot trace: " + self.process.stderr.read().strip())
        return self

    def is_everywhere(self):
        """Whether all threads of the server are traced."""
        tracers = set()
        for status in glob.glob(f"/proc/{self.server.pid}/task/*/status"):
            with contextlib.suppress(OSError), open(status) as f:
                tracers.add(int(re.search(r"TracerPid:\t(\d+)", f.read()).group(1)))
        return tracers == {self.process.pid}

    def hits(self):
        with open(self.trace) as f:
            return sum("INJECTED" in line or "DELAYED" in line for line in f)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self.process.stderr.close()


@case
def page_read_fails(place):
    place.server.start()
    expect(place.ask("SELECT COUNT(*) FROM e.t")[1] is None, "e.t is not readable before the fault")
    place.ask("SELECT 1 FROM d.t LIMIT 1")
    with Fault(place, "pread64", [place.file("d")]) as fault:
        got, problem = place.ask("SELECT SUM(LENGTH(v)) FROM d.t")
        expect(fault.hits(), "no read was failed: the table was in memory")
        expect(problem and os.path.basename(place.file("d")) in problem and "rror" in problem,
               f"the client is not told of the file: {got} {problem}")
        expect(os.path.basename(place.file("d")) in place.log(), "the error log does not name the file")
        place.good("e")
    place.good("d")


@case
def catalog_read_fails(place):
    """A table whose definition cannot be read is not said to be missing."""
    place.server.start()
    for n in range(600):
        place.server.query(f"CREATE TABLE d.x{n} (id INT PRIMARY KEY, {'v' * 50}{n} INT)")
    place.server.stop()
    place.server.start()
    catalog = os.path.join(place.myriad, "system.myr")
    with Fault(place, "pread64", [catalog]) as fault:
        _, problem = place.ask("SELECT * FROM d.x300")
        expect(fault.hits(), "no read was failed: the catalog was in memory")
        expect(problem and "1296" in problem and catalog in problem, f"the client is not told why: {problem}")
        _, problem = place.ask("CREATE TABLE d.x300 (id INT)")
        expect(problem, "another table of that name was created")
    expect(place.ask("SELECT * FROM d.x300")[1] is None, "d.x300 is not readable after the fault")


@case
def file_cannot_be_made(place):
    """On a device that has become read-only: who creates a table is told of the file and why, where the server has but a number."""
    place.server.start()
    place.server.query("CREATE DATABASE made")
    last = max(int(re.search(r"\.(\d+)\.myr$", path).group(1)) for path in glob.glob(place.myriad + "/*.[0-9]*.myr"))
    paths = [f"{place.myriad}/made.{last + n}.myr" for n in range(1, 33)]
    with Fault(place, "open,openat", paths, error="EROFS") as fault:
        _, problem = place.ask("CREATE TABLE made.t (id INT)")
        expect(fault.hits(), "no file was to be made")
        told = str(problem).split(" ((")[0]             # without the warnings
        expect("1005" in told and "made." in told and "ead-only" in told, f"the client is not told why: {problem}")
    place.server.query("CREATE TABLE made.t (id INT)")


@case
def page_write_fails(place):
    place.server.start()
    load = Load(place)
    time.sleep(0.5)
    with Fault(place, "pwrite64", [place.file("d")]) as fault:
        expect(wait_for(lambda: fault.hits() > 3), "no page was written")
        time.sleep(2)
        expect(place.server.alive(), f"the server ended: {place.server.why()}")
        got, problem = place.ask("SELECT COUNT(*) FROM e.t")
        expect(not problem and got[0][0] == ROWS, f"another table cannot be read: {problem}")
        expect(os.path.basename(place.file("d")) in place.log(), "the error log does not name the file")
    before = len(load.acknowledged)
    expect(wait_for(lambda: len(load.acknowledged) > before + 100),
           f"no work after the device works again: {load.errors[-1:]}")
    place.server.kill()
    load.end()
    place.server.start()
    load.check()


@case
def one_tenant_cannot_write(place):
    """Others go on, for longer than the log lasts; who would change its rows is told of the file, reads and ends of transactions work."""
    others_go_on(place, "pwrite64")


@case
def one_tenant_cannot_read_or_write(place):
    """The same where pages that have left memory cannot be read again."""
    others_go_on(place, "pread64,pwrite64")


def others_go_on(place, calls):
    only_writes = calls == "pwrite64"
    place.server.start()
    load = Load(place)
    expect(wait_for(lambda: len(load.acknowledged) > 2000), f"the load does not run: {load.errors[-1:]}")
    name = os.path.basename(place.file("d"))
    open_one = place.server.connect(database="d", autocommit=False)
    with open_one, open_one.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (-1, 'open')")
        with Fault(place, calls, [place.file("d")]) as fault:
            logged, refused = place.metric("log_written_bytes"), 0
            while place.metric("log_written_bytes") < logged + 3 * LOG_BYTES:
                begin = time.monotonic()
                _, problem = place.ask("UPDATE e.t SET v = CONCAT(REPEAT('f', 199), RAND(), id)")
                expect(not problem and time.monotonic() - begin < 60, f"another tenant: {problem}, {time.monotonic() - begin:.1f} s")
                refused += any(name in str(error) for error in load.errors)
            expect(fault.hits() and refused, f"no change was refused with the file's name: {fault.hits()} {load.errors[-1:]}")
            if only_writes:
                status = place.ask("SHOW ENGINE MYRIAD STATUS")[0][0][2]
                expect("changes of their tables are refused" in status, "the status does not tell of it")
                expect("changes of their tables are refused" in place.log(), "the error log does not tell of it")
            got, problem = place.ask("SELECT COUNT(*) FROM d.t")
            expect(not problem or not only_writes and name in problem, f"a read: {problem}")
            cursor.execute("COMMIT")
            load.acknowledged.add(-1)
            place.server.kill()
    load.end()
    place.server.start()
    found = place.server.query("SELECT COUNT(*) FROM d.t WHERE id = -1")
    expect(found[0][0] == 1, "a commit meanwhile is lost")
    place.server.query("DELETE FROM d.t WHERE id = -1")
    load.acknowledged.remove(-1)
    load.check()


def log_fails(place, calls, may_lose_connection=False):
    place.server.start()
    load = Load(place)
    time.sleep(0.5)
    with Fault(place, calls, [place.myriad + "/redo.log"]):
        expect(wait_for(lambda: load.errors), "a failing log and no error")
        time.sleep(0.5)
        expect(place.server.alive(), f"the server ended: {place.server.why()}")
        lost = may_lose_connection and load.errors[0].args[0] == 2013
        expect(lost or "log" in str(load.errors[0]) or "stopped" in str(load.errors[0]), f"unclear error: {load.errors[0]}")
        _, problem = place.ask("INSERT INTO t VALUES (0, '')")
        expect(problem and "log" in problem, f"unclear error: {problem}")
    # What the device did with the failed write is unknown, so nothing more may be acknowledged until a recovery.
    at = len(load.acknowledged)
    time.sleep(1)
    expect(len(load.acknowledged) == at, "commits are acknowledged behind a failed log write")
    told = [line for line in place.log().splitlines() if "[ERROR]" in line]
    expect(any("redo.log" in line for line in told), f"the error log does not name the log: {told[:3]}")
    load.end()
    place.server.kill()
    place.server.start()
    load.check()


@case
def log_write_fails(place):
    log_fails(place, "pwrite64")


@case
def log_sync_fails(place):
    log_fails(place, "fdatasync")


@case
def log_sync_fails_behind_a_commit(place):
    """In a pool of threads a commit is done before it is durable; who waits for the answer loses the connection then."""
    place.server.options = [*place.server.options, "--thread-handling=pool-of-threads"]
    log_fails(place, "fdatasync", may_lose_connection=True)


@case
def log_cannot_be_switched_on(place):
    """While changed pages cannot be written myriad_redo_log stays OFF, with an error."""
    place.server.start()
    place.server.query("SET GLOBAL myriad_redo_log=OFF")
    place.server.query("UPDATE d.t SET v=CONCAT(v, 'y')")
    sums = "SELECT COUNT(*), SUM(CRC32(v)) FROM d.t"
    before = place.server.query(sums)
    with Fault(place, "pwrite64", [place.file("d")], error="ENOSPC"):
        _, problem = place.ask("SET GLOBAL myriad_redo_log=ON")
        expect(problem and "1296" in problem and "stays off: no space left" in problem and place.file("d") in problem,
               f"unclear error: {problem}")
        expect(place.server.query("SELECT @@myriad_redo_log")[0][0] == 0, "the variable says ON")
        expect(place.server.query("SHOW GLOBAL STATUS LIKE 'Myriad_redo_log_on'")[0][1] == "0", "the status says ON")
        place.good("e")
    place.server.query("SET GLOBAL myriad_redo_log=ON")
    place.server.kill()
    place.server.start()
    expect(place.server.query(sums) == before, "rows are lost")
    place.good("e")


def start_with_fault(place, call, fault):
    """Starts the server with the fault in its calls from the first one on; the error that the start was refused with, or None."""
    command = place.server.command_line()
    place.server.command_line = lambda: [server.tool("strace"), "-D", "-q", "-f", "-o", place.folder + "/trace",
                                         "-e", f"trace={call}", "-e", f"inject={call}:{fault}", *command]
    try:
        place.server.start()
    except server.ServerError as problem:
        if not os.path.exists(place.server.log):
            raise Skipped(f"cannot trace: {problem}") from None
        return problem
    finally:
        del place.server.command_line
    return None


@case
def no_thread(place):
    """A start that does not get one of the threads that it cannot do without is refused, whichever it is."""
    missing = set()
    for number in range(2, 40):
        start_with_fault(place, "clone3", f"error=EAGAIN:when={number}")
        place.server.kill()
        found = re.search(r"\[ERROR\] MYRIAD: (.*)thread myriad-([a-z]+)", place.log())
        if not found:
            break
        expect(found[1] == "cannot start: start of ", f"the server starts without {found[2]}: {found[0]}")
        missing.add(found[2])
    wanted = {"provide", "read", "clean", "purge", "sync", "rollback", "log"}
    expect(missing == wanted, f"not all threads were asked for: {missing}")
    place.server.start()
    place.good("e")


@case
def io_uring_without_use(place):
    """A kernel that gives a ring and takes no requests is one without io_uring."""
    place.server.options += ["--myriad-io-method=AUTO", "--innodb-use-native-aio=OFF"]
    problem = start_with_fault(place, "io_uring_enter", "error=EPERM")
    expect(not problem, f"the server does not start: {problem}")
    expect("without io_uring" in place.log(), "the error log does not say that io_uring is not used")
    place.good("e")


@case
def slow_disk(place):
    """Work goes on, and the error log and the status say what is slow."""
    place.server.start()
    load = Load(place)
    time.sleep(0.5)
    files = [place.file("d"), place.myriad + "/redo.log", place.myriad + "/doublewrite"]
    with Fault(place, "pwrite64,fdatasync", files, delay_us=20000):
        before = len(load.acknowledged)
        expect(wait_for(lambda: len(load.acknowledged) > before + 10), "no work on a slow device")
    slow, begun = "the device is slow: a sync of redo.log took", time.monotonic()
    with Fault(place, "fdatasync", [place.myriad + "/redo.log"], delay_us=1300000):
        for what in ("file_sync", "log_sync"):
            waits = re.compile(rf"Waiting: thread \d+: [1-9]\d*\.\d s for {what}\n")
            expect(wait_for(lambda: waits.search(place.server.query("SHOW ENGINE MYRIAD STATUS")[0][2])), f"no thread is seen to wait for {what}")
        expect(wait_for(lambda: slow in place.log()), "the error log does not tell of a slow device")
    expect(not load.errors, f"errors on a device that is only slow: {load.errors[:1]}")
    expect(place.log().count(slow) <= 1 + (time.monotonic() - begun) // 60, "a slow device is told of more than once a minute")
    status = {name: int(value) for name, value in place.server.query("SHOW GLOBAL STATUS LIKE 'Myriad_file_%'")}
    expect(status["Myriad_file_log_sync_microseconds_max"] >= 1300000, f"the longest sync is not seen: {status}")
    expect(status["Myriad_file_calls_slow"] >= 1, f"slow syncs are not counted: {status}")
    place.server.kill()
    load.end()
    place.server.start()
    load.check()


def main():
    OPTIONS.append("--loose-myriad-io-method=THREADS")
    if not shutil.which("strace"):
        raise server.ServerError("strace is not installed: run `make setup`")
    return run_cases(sys.argv[1:], "device faults")


if __name__ == "__main__":
    server.main_guard(main)
