"""Private MariaDB servers for tests, benchmarks and the demo.

Each Server has a data directory, socket and port of its own, listens on 127.0.0.1 only, and dies with the process that
started it. Start servers from the main thread: the kernel ties a child's life to the thread that forked it.
"""
import atexit
import faulthandler
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

try:
    import pymysql
except ImportError:
    sys.exit("error: this Python has no pymysql: run it with /usr/bin/python3 after `make setup`")

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
PLUGIN = os.environ.get("MYRIAD_PLUGIN", os.path.join(BUILD, "ha_myriad.so"))
SYSTEM_PLUGINS = ("/usr/lib/mysql/plugin", "/usr/lib/x86_64-linux-gnu/mariadb19/plugin")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
# How long a script may run, and half of that a statement of it; 0: as long as it takes.
TEST_SECONDS = float(os.environ.get("MYRIAD_TEST_SECONDS", 0))


# Nothing takes so long, on a busy machine either: whoever waits longer hangs.
HUNG_SECONDS = 60


class ServerError(Exception):
    """One sentence a person can act on."""


# What a line of the error log says that tells why a server ended: its own, of Rust, of C++ and of the C library.
ENDED_BY = re.compile(r"\[ERROR\]|panic|[Aa]ssertion|fatal runtime error|memory allocation|terminate called|pure virtual"
                      r"|free\(\)|[am]lloc\(\)|corrupted|stack smashing|buffer overflow")


def tool(name):
    """The path of an installed program, or ServerError."""
    for folder in [None, "/usr/sbin", "/usr/local/sbin"]:
        path = shutil.which(name) if folder is None else shutil.which(name, path=folder)
        if path:
            return path
    raise ServerError(f"{name} is not installed: run `make setup`")


def server_version():
    """The version that mariadbd reports, such as 10.11.18."""
    text = subprocess.run([tool("mariadbd"), "--no-defaults", "--version"], capture_output=True, text=True).stdout
    return text.split("Ver ")[1].split("-")[0].split()[0] if "Ver " in text else "unknown"


def check_version():
    """ServerError unless the server has the version the plugin was built for."""
    try:
        with open(os.path.join(BUILD, "server-version")) as f:
            built = f.read().strip().split(":")[-1].split("-")[0]
    except OSError:
        raise ServerError("build/server-version is missing: run `make build`") from None
    have = server_version()
    if have != built:
        raise ServerError(f"mariadbd is version {have} but the plugin was built for {built}: run `make build`")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_as_root():
    return ["--user=root"] if os.geteuid() == 0 else []


def install_db(datadir):
    """Creates the system tables in `datadir` (which must not hold any)."""
    done = subprocess.run(
        [tool("mariadb-install-db"), "--no-defaults", f"--datadir={datadir}", "--skip-test-db",
         "--force",             # also where the host's name cannot be looked up
         "--auth-root-authentication-method=normal"] + run_as_root(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        # General advice and addresses come last.
        said = re.split("The latest information|The problem could be", done.stdout)[0].strip().splitlines()[-4:]
        raise ServerError(f"mariadb-install-db failed in {datadir}: {' '.join(said)}")


def fresh_datadir(datadir):
    """Copies a data directory made once for each server version: faster than installing each time."""
    template = os.path.join(BUILD, "datadir-template", server_version())
    if not os.path.isdir(template):
        os.makedirs(os.path.dirname(template), exist_ok=True)
        making = tempfile.mkdtemp(dir=os.path.dirname(template))
        os.chmod(making, 0o755)
        install_db(making)
        try:
            os.rename(making, template)
        except OSError:          # somebody else was faster
            shutil.rmtree(making)
    subprocess.run(["cp", "-a", "--sparse=always", "--reflink=auto", template, datadir], check=True)


def plugin_dir(folder):
    """A plugin directory of links: the server's own plugins and ours, not that of an installed package or an earlier run."""
    os.makedirs(folder, exist_ok=True)
    ours = os.path.join(folder, "ha_myriad.so")
    if os.path.lexists(ours):
        os.remove(ours)
    os.symlink(PLUGIN, ours)
    for system in SYSTEM_PLUGINS:
        if os.path.isdir(system):
            for name in os.listdir(system):
                link = os.path.join(folder, name)
                if not os.path.lexists(link):
                    os.symlink(os.path.join(system, name), link)
    return folder


def engine_options(engine, pool_mib=256, flush=1, default=True):
    """Options that make `engine` present with a cache of `pool_mib`, commits durable where flush is 1."""
    e = engine.upper()
    if e == "INNODB":
        options = [f"--innodb-buffer-pool-size={pool_mib}M", f"--innodb-flush-log-at-trx-commit={flush}"]
    else:
        options = ["--innodb-buffer-pool-size=16M"]
    if e == "MYRIAD":
        if not os.path.exists(PLUGIN):
            raise ServerError(f"{os.path.relpath(PLUGIN)} is missing: run `make build`")
        options += ["--plugin-maturity=experimental", "--plugin-load-add=ha_myriad.so", "--myriad-startup=FORCE",
                    f"--loose-myriad-buffer-pool-size={pool_mib}M",
                    f"--loose-myriad-flush-log-at-trx-commit={flush}"]
    elif e == "ROCKSDB":
        options += ["--plugin-maturity=unknown", "--plugin-load-add=ha_rocksdb.so",
                    f"--rocksdb-block-cache-size={pool_mib}M", f"--rocksdb-flush-log-at-trx-commit={flush}"]
    elif e == "BLACKHOLE":
        options.append("--plugin-load-add=ha_blackhole.so")
    elif e not in ("INNODB", "ARIA", "MYISAM", "MEMORY"):
        raise ServerError(f"engine {engine} is not known here")
    if default:
        options.append(f"--default-storage-engine={engine}")
    return options


def wait_timeout_options(engine, seconds):
    """The option that sets how long a row lock is waited for."""
    return {"INNODB": [f"--innodb-lock-wait-timeout={seconds}"],
            "MYRIAD": [f"--loose-myriad-lock-wait-timeout={seconds}"],
            "ROCKSDB": [f"--rocksdb-lock-wait-timeout={seconds}"]}.get(engine.upper(), [])


def tied_to_us(command, signal_name):
    """The command whose process gets a signal when we die. It runs in a process group of its own (`process_group=0`), so that
    Ctrl-C reaches us and not the server behind our back. Not a preexec_fn: Python code between fork and exec may wait for ever for
    what another thread held at the fork."""
    return [tool("setpriv"), "--pdeathsig", signal_name, *command]


class Connection(pymysql.connections.Connection):
    """Says where its server is when that has not answered in time."""

    def _read_bytes(self, num_bytes):
        try:
            return super()._read_bytes(num_bytes)
        except pymysql.err.OperationalError as problem:
            if isinstance(problem.__context__, TimeoutError):
                print(f"no answer in {self._read_timeout} s", flush=True)
                self.where.tell()
            raise


class Server:
    """A server of one default engine in a folder of its own (temporary unless given)."""

    made = []

    def __init__(self, engine="MYRIAD", options=(), pool_mib=256, flush=1, tcp=False, folder=None, binlog=False,
                 keep=False):
        self.engine, self.keep, self.process = engine, keep, None
        self.options, self.pool_mib, self.flush, self.binlog = list(options), pool_mib, flush, binlog
        self.folder = folder or tempfile.mkdtemp(prefix="myriad-")
        os.makedirs(self.folder, exist_ok=True)
        self.datadir = os.path.join(self.folder, "data")
        self.socket = os.path.join(self.folder, "s")
        self.log = os.path.join(self.folder, "error.log")
        self.port = free_port() if tcp else 0
        if len(self.socket) > 100:
            raise ServerError(f"the path of the socket is too long for the kernel: {self.socket}")
        if not os.path.isdir(self.datadir):
            fresh_datadir(self.datadir)
        atexit.register(self.close)
        Server.made.append(self)

    def command_line(self):
        network = (["--bind-address=127.0.0.1", f"--port={self.port}"] if self.port else ["--skip-networking"])
        binlog = ["--log-bin=binlog", "--binlog-format=ROW", "--sync-binlog=1", "--server-id=1"] if self.binlog else []
        return ([tool("mariadbd"), "--no-defaults"] + run_as_root() +
                [f"--datadir={self.datadir}", f"--socket={self.socket}", f"--log-error={self.log}",
                 f"--pid-file={self.folder}/pid", f"--tmpdir={self.folder}", "--lc-messages-dir=/usr/share/mysql",
                 f"--plugin-dir={plugin_dir(self.folder + '/plugins')}", "--max-connections=1000", "--max-prepared-stmt-count=1000000",
                 "--skip-name-resolve", "--secure-file-priv="] +
                network + binlog + engine_options(self.engine, self.pool_mib, self.flush) + self.options)

    def environment(self):
        """With a plugin built by MYRIAD_SANITIZE, the server needs the sanitizers' runtime before all else."""
        if "/sanitize/" not in PLUGIN or self.engine.upper() != "MYRIAD":
            return None
        runtime = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
        # The server itself is not instrumented: what headers of its poison in our code it would never unpoison.
        reports = f"detect_leaks=0:allow_user_poisoning=0:abort_on_error=1:log_path={self.folder}/sanitizer"
        return dict(os.environ, LD_PRELOAD=runtime, ASAN_OPTIONS=reports,
                    UBSAN_OPTIONS=f"print_stacktrace=1:log_path={self.folder}/sanitizer")

    def start(self, timeout=120, poll=0.05):
        """Starts the server and returns the seconds until it answered, asked every `poll` seconds."""
        begin = time.monotonic()
        self.log_offset = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        self.process = subprocess.Popen(tied_to_us(self.command_line(), "KILL"), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder,
                                        env=self.environment(), process_group=0)
        while True:
            if self.process.poll() is not None:
                raise ServerError(f"the server ended at start with status {self.process.returncode}: {self.why()}")
            try:
                self.connect(read_timeout=timeout).close()
                return time.monotonic() - begin
            except pymysql.err.OperationalError as problem:
                if time.monotonic() - begin > timeout:
                    raise self.end_hung(f"did not answer in {timeout} s ({problem})") from None
            time.sleep(poll)

    def why(self, lines=8):
        """The error lines that the server logged since its last start, or its last lines."""
        try:
            with open(self.log, errors="replace") as f:
                f.seek(self.log_offset)
                text = f.read().strip().splitlines()
        except OSError:
            return "it logged nothing"
        for name in os.listdir(self.folder):
            if name.startswith("sanitizer"):
                with open(os.path.join(self.folder, name), errors="replace") as f:
                    return f.read()[:2000]
        errors = [line for line in text if ENDED_BY.search(line)]
        return " | ".join((errors or text)[-lines:])

    def backtraces(self, frames=24):
        """Where each thread is, a line each: for a server that hangs, before it is killed."""
        command = ["gdb", "-p", str(self.process.pid), "-batch", "-nx", "-ex", f"thread apply all backtrace {frames}"]
        try:
            text = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120).stdout
        except (OSError, subprocess.TimeoutExpired) as problem:
            return f"(no backtraces: {problem})"
        threads = []
        for line in text.splitlines():
            if line.startswith("Thread "):
                threads.append(line.split('"')[1] + ":" if '"' in line else line)
            elif line.startswith("#") and threads:
                function = re.sub(r"^#\d+ +(0x\w+ in )?", "", line).split(" (")[0].split("<")[0]
                threads[-1] += f" {function}"
        return "\n".join(threads)

    def tell(self):
        """Prints what it does and has logged, if it runs."""
        if self.alive():
            print(f"the server in {self.folder}: {self.why()}\n{self.backtraces()}", flush=True)

    def end_hung(self, what):
        """Kills a server that hangs; the error that tells what it logged and where its threads were."""
        where = self.backtraces()
        self.kill()
        return ServerError(f"the server {what}: {self.why()}\n{where}")

    def connect(self, **options):
        options = {"autocommit": True, "charset": "utf8mb4", "local_infile": True, "read_timeout": TEST_SECONDS / 2 or None, **options}
        connection = Connection(unix_socket=self.socket, user="root", defer_connect=True, **options)
        connection.where = self
        connection.connect()
        return connection

    def query(self, sql, database=None):
        """Runs one statement in a connection of its own and returns its rows."""
        connection = self.connect(database=database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetchall()
        finally:
            connection.close()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """SIGKILL, as a power cut would look to the engine (the kernel's cache survives)."""
        if self.alive():
            self.process.kill()
            self.process.wait()

    def stop(self, timeout=180):
        """Clean shutdown; returns its seconds. ServerError if it hangs or fails."""
        begin = time.monotonic()
        if self.alive():
            self.process.terminate()
            try:
                status = self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise self.end_hung(f"did not shut down in {timeout} s") from None
            if status:
                raise ServerError(f"the server shut down with status {status}: {self.why()}")
        return time.monotonic() - begin

    def restart(self):
        self.stop()
        return self.start()

    def cpu_seconds(self):
        """User and system time of the whole server so far."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def rss_mib(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def disk_bytes(self):
        """Bytes allocated under the data directory."""
        total = 0
        for folder, _, files in os.walk(self.datadir):
            for name in files:
                try:
                    total += os.lstat(os.path.join(folder, name)).st_blocks * 512
                except FileNotFoundError:
                    pass
        return total

    def close(self):
        """Kills the server and removes its folder unless it is to be kept."""
        self.kill()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.close()


def wait_for(condition, seconds=HUNG_SECONDS):
    """Waits until `condition` gives something, so long at most, and returns what it gave last."""
    end = time.monotonic() + seconds
    while not (answer := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return answer


def wait_until(what, is_so, seconds=HUNG_SECONDS):
    """Waits until `is_so` gives something, and returns that."""
    answer = wait_for(is_so, seconds)
    if not answer:
        raise AssertionError(f"{what}: not in {seconds} s")
    return answer


def check_named(names, tests):
    """Refuses names of tests that there are none of."""
    unknown = set(names) - set(tests)
    if unknown:
        raise ServerError(f"no test here is called {', '.join(sorted(unknown))}")


def run_cases(functions, title):
    """Runs those of the test functions that the command line names, or all; whether any failed."""
    check_named(sys.argv[1:], {function.__name__ for function in functions})
    passed = failed = 0
    for function in functions:
        if sys.argv[1:] and function.__name__ not in sys.argv[1:]:
            continue
        begin = time.monotonic()
        try:
            function()
            passed += 1
            print(f"  ok {function.__name__} {time.monotonic() - begin:.1f} s", flush=True)
        except Exception as problem:
            failed += 1
            where = traceback.extract_tb(problem.__traceback__)[-1]
            print(f"  FAILED {function.__name__} (line {where.lineno}): {type(problem).__name__}: {problem}", flush=True)
    print(f"{title}: {passed} passed, {failed} failed")
    return failed > 0


def end_after(seconds):
    """Ends this process, as failed, should it still run then; says first where it and its servers are."""
    def end():
        try:
            print(f"FAILED: this ran for {seconds} s and has not ended", flush=True)
            faulthandler.dump_traceback(file=sys.stdout)
            for where in Server.made:
                where.tell()
        finally:
            kill_servers()
            os._exit(1)         # and what they have written stays

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def kill_servers():
    """Does not wait for their ends, for which somebody may wait already."""
    for where in Server.made:
        if where.alive():
            os.kill(where.process.pid, signal.SIGKILL)


def main_guard(main):
    """Runs main() and turns a ServerError or Ctrl-C into one line and a non-zero status. MYRIAD_TEST_SECONDS bounds it."""
    if TEST_SECONDS:
        end_after(TEST_SECONDS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))   # so that atexit handlers run
    try:
        sys.exit(main())
    except ServerError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        kill_servers()      # before their clients' threads are waited for, which may wait for them
