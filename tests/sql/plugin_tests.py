#!/usr/bin/python3
"""The plugin in the server: what its folder is to the server and its tools, functions without the engine.
Usage: plugin_tests.py [NAME...]"""
import ctypes
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import code_of, database, expect, rows, run, server  # noqa: E402


def test_folder_is_no_database(where):
    """mariadb-upgrade would rename it, with all tablespaces and the log in it."""
    c = database(where)
    rows(c, "CREATE TABLE t (a INT PRIMARY KEY) ENGINE=MYRIAD")
    rows(c, "INSERT INTO t VALUES (1)")
    expect("databases", [name for name, in rows(c, "SHOW DATABASES") if "myriad" in name], [])
    expect("schemata", rows(c, "SELECT * FROM information_schema.schemata WHERE schema_name LIKE '%myriad%'"), ())
    upgrade = subprocess.run(["mariadb-upgrade", f"--socket={where.socket}", "--force"], capture_output=True, text=True)
    expect(f"mariadb-upgrade: {upgrade.stdout} {upgrade.stderr}", upgrade.returncode, 0)
    where.stop()
    expect("folder", os.path.isdir(os.path.join(where.datadir, "#myriad")), True)
    where.start()
    expect("rows", rows(where.connect(database="d"), "SELECT * FROM t"), ((1,),))


def test_threads_are_listed(_where):
    """The engine's threads are in performance_schema.threads, those of a backup while it is made; nobody pays for them where it is off."""
    listed = "SELECT DISTINCT NAME FROM performance_schema.threads WHERE NAME LIKE 'thread/myriad/%' AND TYPE = 'BACKGROUND' AND THREAD_OS_ID > 0"
    always = {f"thread/myriad/{duty}" for duty in ("clean", "commits", "log", "provide", "purge", "read", "reclaim", "rollback", "sync")}
    with server.Server("MYRIAD", options=["--performance-schema=ON"]) as other, tempfile.TemporaryDirectory() as place:
        c = other.connect()

        def threads():
            return {name for name, in rows(c, listed)}

        expect(f"threads: {threads()}", always - threads(), set())
        rows(c, f"SET GLOBAL myriad_backup_dir = '{place}/copy'")
        rows(c, "BACKUP STAGE START")
        expect(f"of the backup: {threads()}", "thread/myriad/backup" in threads(), True)
        rows(c, "BACKUP STAGE FLUSH")
        rows(c, "BACKUP STAGE BLOCK_DDL")
        rows(c, "BACKUP STAGE BLOCK_COMMIT")
        rows(c, "BACKUP STAGE END")
        expect(f"after it: {threads()}", "thread/myriad/backup" in threads(), False)
    with server.Server("MYRIAD", options=["--performance-schema=OFF"]) as other:
        c = other.connect()
        rows(c, "CREATE TABLE mysql.t (a INT PRIMARY KEY)")
        expect("off", rows(c, listed), ())


def test_stages(_where):
    """What a long statement is at is a stage of the Performance Schema, with how far it is, and the statement's state."""
    with server.Server("MYRIAD", options=["--performance-schema=ON"]) as other, tempfile.TemporaryDirectory() as place:
        c = other.connect()
        rows(c, "UPDATE performance_schema.setup_consumers SET ENABLED = 'YES' WHERE NAME LIKE 'events_stages%'")
        rows(c, "CREATE DATABASE d")
        rows(c, "USE d")
        rows(c, "CREATE TABLE d.t (a INT PRIMARY KEY, b INT)")
        rows(c, "INSERT INTO d.t SELECT seq, seq FROM seq_1_to_20000")
        seen = ("SELECT EVENT_NAME, MAX(WORK_COMPLETED), MAX(WORK_ESTIMATED) > 0 FROM performance_schema.events_stages_history_long "
                "WHERE EVENT_NAME LIKE 'stage/myriad/%' GROUP BY 1 ORDER BY 1")
        for change in ("ADD INDEX (b)", "FORCE"):
            rows(c, "TRUNCATE performance_schema.events_stages_history_long")
            rows(c, f"ALTER TABLE d.t {change}, ALGORITHM=INPLACE")
            found = rows(c, seen)
            names = [name.split("/")[-1] for name, *_ in found]
            expect(change, names, ["alter table (insert)", "alter table (log apply)", "alter table (read PK and internal sort)"])
            expect(f"{change}: {found}", found[2][1] > 10000 and found[2][2], True)
            after = rows(c, "SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()")
            expect("state", "alter" in after[0][0], False)
        rows(c, "TRUNCATE performance_schema.events_stages_history_long")
        rows(c, f"SET GLOBAL myriad_backup_dir = '{place}/copy'")
        for stage in ("START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT", "END"):
            rows(c, f"BACKUP STAGE {stage}")
        expect("backup", [name for name, *_ in rows(c, seen)], ["stage/myriad/completing a backup", "stage/myriad/copying files for a backup"])


def test_without_the_engine(_where):
    """Of the plugins in the file the engine alone is gone."""
    with server.Server("InnoDB", options=["--plugin-maturity=experimental"]) as other:
        c = other.connect()
        rows(c, "INSTALL SONAME 'ha_myriad'")
        expect("databases", [name for name, in rows(c, "SHOW DATABASES") if "myriad" in name], [])
        rows(c, "CREATE DATABASE d")
        rows(c, "CREATE TABLE d.t (a INT PRIMARY KEY) ENGINE=MYRIAD")
        rows(c, "SELECT myriad_clone_database('d', 'e')")
        rows(c, "FLUSH TABLES")
        rows(c, "UNINSTALL PLUGIN MYRIAD")
        expect("copy", code_of(c, "SELECT myriad_clone_database('d', 'f')"), 1286)
        expect("nothing to show", rows(c, "SELECT * FROM information_schema.MYRIAD_TRX"), ())
        rows(c, "INSTALL PLUGIN MYRIAD SONAME 'ha_myriad'")
        expect("again", rows(c, "SELECT COUNT(*) FROM e.t"), ((0,),))


def test_uninstalled_as_the_default(_where):
    """The server keeps it for new tables, as the default, but asks it for none: they are refused, not made where nobody finds them."""
    with server.Server("MYRIAD") as other:
        c = other.connect()
        rows(c, "CREATE DATABASE d")
        rows(c, "CREATE TABLE d.t (a INT PRIMARY KEY)")
        rows(c, "INSERT INTO d.t VALUES (1)")
        rows(c, "UNINSTALL SONAME 'ha_myriad'")
        for text in ("CREATE TABLE d.u (a INT)", "CREATE TEMPORARY TABLE d.u (a INT)", "CREATE TABLE d.u AS SELECT 1",
                     "CREATE TABLE d.u (a INT) PARTITION BY HASH (a) PARTITIONS 2"):
            expect(text, code_of(c, text), 1286)
        rows(c, "CREATE TABLE d.i (a INT) ENGINE=InnoDB")
        other.restart()
        c = other.connect(database="d")
        expect("rows", rows(c, "SELECT * FROM t"), ((1,),))
        expect("tables", rows(c, "SHOW TABLES"), (("i",), ("t",)))


def test_systemd_is_asked_for_time(where):
    """systemd would end a start or a stop that takes longer than its unit allows."""
    c = database(where)
    rows(c, "CREATE TABLE t (a INT PRIMARY KEY)")
    where.kill()
    path = os.path.join(where.folder, "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(path)
        told.setblocking(False)

        def asked():
            texts = []
            while True:
                try:
                    texts.append(told.recv(4096).decode())
                except BlockingIOError:
                    return [text for text in texts if "STATUS=MYRIAD: " in text and "\nEXTEND_TIMEOUT_USEC=60000000\n" in text]
        os.environ["NOTIFY_SOCKET"] = path
        try:
            where.start()
        finally:
            del os.environ["NOTIFY_SOCKET"]
        expect("start", any("bytes of log" in text for text in asked()), True)
        c = where.connect(database="d")
        rows(c, "SET GLOBAL myriad_max_open_files=1000000")
        expect("meanwhile", asked(), [])
        rows(c, "CREATE TABLE larger (a INT PRIMARY KEY, b VARCHAR(200)) TABLESPACE_PER='TABLE'")
        where.stop()
        expect("stop", len(asked()) > 0, True)
    where.start()


class Opened:
    """Tells which files of a folder are opened."""

    IN_OPEN = 0x20

    def __init__(self, folder):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK)
        if self.fd < 0 or self.libc.inotify_add_watch(self.fd, folder.encode(), self.IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def names(self):
        """Those opened since the last call."""
        names = set()
        while True:
            try:
                events = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return names
            while events:
                length = struct.unpack("iIII", events[:16])[3]
                names.add(events[16:16 + length].rstrip(b"\0").decode())
                events = events[16 + length:]


def test_sizes_are_asked_where_wanted(_where):
    """Of closed tablespaces those alone are asked for their size whose rows a statement wants, and no row is left out for that."""
    listed = "information_schema.MYRIAD_TABLESPACES"
    with server.Server("MYRIAD", options=["--myriad-tablespace-duplicate-check=OFF"]) as where:
        c = database(where)
        rows(c, "CREATE DATABASE e")
        rows(c, "CREATE TABLE e.t (a INT PRIMARY KEY)")
        for n in range(8):
            rows(c, f"CREATE TABLE t{n} (a INT PRIMARY KEY) TABLESPACE_PER='TABLE'")
        where.restart()
        c = where.connect(database="d")
        folder = os.path.join(where.datadir, "#myriad")
        files = {name for name in os.listdir(folder) if name.startswith(("d.", "e."))}
        of_e = {name for name in files if name.startswith("e.")}
        expect("files", (len(files), len(of_e)), (9, 1))
        opened = Opened(folder)
        for sql, wanted in [("SELECT *", files), ("SELECT COUNT(*)", set()), ("SELECT PATH, IS_OPEN", set()), ("SELECT * {} WHERE DATABASE_NAME = 'e'", of_e),
                            ("SELECT PATH {} WHERE FILE_BYTES > 0 AND DATABASE_NAME = 'e'", of_e), ("SELECT * {} WHERE PATH LIKE '%/e.%' AND SPACE_ID > 15", of_e),
                            ("SELECT PATH {} WHERE DATABASE_NAME = 'e' OR IS_OPEN = 'YES'", set()), ("SELECT * {} WHERE DATABASE_NAME = 'e' OR FILE_BYTES = 1", files)]:
            rows(c, sql.replace("{}", f"FROM {listed}") if "{}" in sql else f"{sql} FROM {listed}")
            expect(sql, opened.names() & files, wanted)
        rows(c, f"CREATE TABLE listed ENGINE=InnoDB SELECT * FROM {listed}")
        one = rows(c, "SELECT MAX(SPACE_ID) FROM listed")[0][0]
        for condition in (f"= {one}", "= 0", "= 1", "= 2", "= 999999999", "= 99999999999", "= NULL", f"= '{one}'", f"= '{one}x'", f"= '0{one}'", f"= {one}.0",
                          f"= {one} AND PATH LIKE '#%'", f"= {one} AND SPACE_ID = 1", f"= {one} OR SPACE_ID = 1", f"IN (1, {one})", "LIKE '1%'", f"<=> {one}"):
            sql = f"SELECT * FROM {{}} WHERE SPACE_ID {condition} ORDER BY 1"
            expect(sql, rows(c, sql.replace("{}", listed)), rows(c, sql.replace("{}", "listed")))
        rows(c, "CREATE TABLE names ENGINE=InnoDB SELECT 'd' a UNION SELECT 'e' UNION SELECT 'nobody'")
        for sql in ("SELECT * FROM {} WHERE DATABASE_NAME = 'e' ORDER BY 1", "SELECT PATH FROM {} WHERE FILE_BYTES > 65536 AND SPACE_ID > 0 ORDER BY 1",
                    "SELECT a, s.PATH FROM names LEFT JOIN {} s ON DATABASE_NAME = a WHERE SPACE_ID IS NULL ORDER BY 1, 2",
                    "SELECT a, s.PATH FROM names LEFT JOIN {} s ON DATABASE_NAME = a AND FILE_BYTES > 0 AND IS_OPEN = 'NO' ORDER BY 1, 2",
                    "SELECT a, (SELECT SUM(FILE_BYTES) FROM {} s WHERE DATABASE_NAME = a) FROM names ORDER BY 1",
                    "SELECT a, (SELECT COUNT(*) FROM names n LEFT JOIN {} s ON DATABASE_NAME = n.a WHERE n.a = names.a AND PATH IS NULL) FROM names ORDER BY 1",
                    "SELECT a FROM names WHERE EXISTS (SELECT 1 FROM {} s WHERE DATABASE_NAME = a AND FILE_BYTES > 0) ORDER BY 1",
                    "SELECT a FROM names WHERE a NOT IN (SELECT DATABASE_NAME FROM {} s WHERE SPACE_ID > 15) ORDER BY 1",
                    "SELECT DATABASE_NAME, SUM(FILE_BYTES) FROM {} GROUP BY 1 HAVING SUM(FILE_BYTES) > 0 ORDER BY 1",
                    "SELECT x.PATH, y.FILE_BYTES FROM {} x JOIN {} y USING (SPACE_ID) WHERE x.DATABASE_NAME = 'd' AND y.IS_OPEN = 'NO' ORDER BY 1",
                    "SELECT * FROM {} WHERE SPACE_ID = (SELECT MAX(SPACE_ID) FROM {} z) AND DATABASE_NAME IS NOT NULL"):
            expect(sql, rows(c, sql.replace("{}", listed)), rows(c, sql.replace("{}", "listed")))


def test_databases_of_tablespaces(where):
    """The column for quotas has the database's name, not that of its folder; "*" is nobody's."""
    c = database(where)
    names = ["my-shop", "a.b/c", "*", "Läden"]
    for name in names:
        rows(c, f"CREATE DATABASE `{name}`")
        rows(c, f"CREATE TABLE `{name}`.t (a INT PRIMARY KEY) ENGINE=MYRIAD")
    rows(c, "CREATE TABLE shared (a INT PRIMARY KEY) ENGINE=MYRIAD TABLESPACE_PER='SERVER'")
    for name in names:
        files = rows(c, f"SELECT SUM(FILE_BYTES) > 0 FROM information_schema.MYRIAD_TABLESPACES WHERE DATABASE_NAME = '{name}'")
        expect(name, files, ((1,),))
    expect("paths", rows(c, "SELECT COUNT(*) FROM information_schema.MYRIAD_TABLESPACES WHERE DATABASE_NAME LIKE '%@%' OR DATABASE_NAME LIKE '#%'"), ((0,),))
    expect("shared", rows(c, "SELECT DATABASE_NAME FROM information_schema.MYRIAD_TABLESPACES WHERE PATH LIKE '%/server.%'"), (("*",),))


def test_status_of_dropped(_where):
    """The status tells what is left to remove of dropped tables, and what keeps it."""
    def told(c, wanted):
        end, text = time.monotonic() + 60, ""
        while time.monotonic() < end:
            text = rows(c, "SHOW ENGINE MYRIAD STATUS")[0][2].split("Dropped tables and indexes: ")[1].splitlines()[0]
            if re.search(wanted, text):
                return
            time.sleep(0.02)
        raise AssertionError(f"'{text}' is told for a minute, not '{wanted}'")

    with server.Server("MYRIAD") as where:
        c = database(where)
        told(c, "^all removed$")
        rows(c, "CREATE TABLE t (a INT PRIMARY KEY)")
        rows(c, "CREATE TABLE stays (a INT PRIMARY KEY)")
        where.stop()
        folder = os.path.join(where.datadir, "#myriad")
        name, = [name for name in os.listdir(folder) if name.startswith("d.")]
        os.rename(os.path.join(folder, name), os.path.join(where.datadir, name))
        where.start()
        c = where.connect(database="d")
        rows(c, "DROP TABLE t")
        told(c, "^tried again each 10 s: tablespace .*" + re.escape(name) + " is unavailable")
        os.rename(os.path.join(where.datadir, name), os.path.join(folder, name))
        told(c, "^all removed$")


def test_listed_while_created(where):
    """Tablespaces come and go while others list them: the list comes upon some before their files are made."""
    c = database(where)
    done = threading.Event()

    def look():
        other = where.connect()
        while not done.is_set():
            rows(other, "SELECT * FROM information_schema.MYRIAD_TABLESPACES")

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    try:
        for n in range(60):
            rows(c, f"CREATE TABLE t{n} (a INT PRIMARY KEY) ENGINE=MYRIAD TABLESPACE_PER='TABLE'")
            rows(c, f"INSERT INTO t{n} VALUES ({n})")
            if n % 2:
                rows(c, f"DROP TABLE t{n}")
    finally:
        done.set()
        for looker in lookers:
            looker.join()
    for n in range(0, 60, 2):
        expect("row", rows(c, f"SELECT * FROM t{n}"), ((n,),))


class LimitedServer(server.Server):
    """May open 1,024 files."""

    def command_line(self):
        return ["prlimit", "--nofile=1024:1024"] + super().command_line()


def test_open_files(_where):
    """Idle tablespace files leave the server what it needs for connections and other engines."""
    with LimitedServer(options=["--max-connections=50"]) as where:
        c = where.connect()
        (limit, connections, allowed), = rows(c, "SELECT @@open_files_limit, @@max_connections, @@myriad_max_open_files")
        expect("part", allowed, min(2000, (limit - connections) // 2))
        if allowed < 2000:    # root may have raised the limit
            with open(where.log) as log:
                expect("told", f"myriad_max_open_files is {allowed}, not 2000" in log.read(), True)
        for wanted, got in ((1000000, (limit - connections) // 2), (100, 100)):
            c = where.connect()
            rows(c, f"SET GLOBAL myriad_max_open_files = {wanted}")
            warnings = rows(c, "SHOW WARNINGS")
            expect(f"{wanted} warns", "open_files_limit" in str(warnings), got != wanted)
            expect(f"{wanted} set", rows(c, "SELECT @@myriad_max_open_files"), ((got,),))


def test_force_primary_key(where):
    """As innodb_force_primary_key."""
    c, outcomes = database(where), {}
    for engine in ("InnoDB", "MYRIAD"):
        rows(c, f"SET GLOBAL {engine}_force_primary_key = OFF")
        rows(c, f"CREATE TABLE old (a INT) ENGINE={engine}")
        rows(c, f"SET GLOBAL {engine}_force_primary_key = ON")
        outcomes[engine] = [(sql, code_of(c, sql)) for sql in (
            "CREATE TABLE t (a INT) ENGINE=@", "CREATE TABLE t (a INT UNIQUE) ENGINE=@", "CREATE TEMPORARY TABLE t (a INT) ENGINE=@",
            "CREATE TABLE t ENGINE=@ AS SELECT 1 AS a", "CREATE TABLE t (a INT NOT NULL UNIQUE) ENGINE=@", "DROP TABLE t",
            "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a)) ENGINE=@", "ALTER TABLE t DROP PRIMARY KEY", "ALTER TABLE t DROP COLUMN a",
            "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b)", "DROP TABLE t", "CREATE TABLE t LIKE old", "ALTER TABLE old ADD COLUMN b INT",
            "ALTER TABLE old FORCE", "ALTER TABLE old ADD PRIMARY KEY (a)", "DROP TABLE old", "CREATE SEQUENCE t ENGINE=@", "DROP SEQUENCE t")
            for sql in [sql.replace("@", engine)]]
        rows(c, f"SET GLOBAL {engine}_force_primary_key = OFF")
        rows(c, "DROP TABLE IF EXISTS t, old")
    for innodb, ours in zip(*outcomes.values()):
        expect(ours[0], ours[1], innodb[1])


def test_switches_without_a_value(where):
    """A line such as `myriad_print_all_deadlocks` in the settings is ON, as innodb_print_all_deadlocks is."""
    switches = [name.lower() for name, in rows(where.connect(), "SELECT variable_name FROM information_schema.system_variables"
                                               " WHERE variable_name LIKE 'myriad%' AND variable_type = 'BOOLEAN'")]
    with server.Server(options=["--" + name.replace("_", "-") for name in switches]) as other:
        expect("on", rows(other.connect(), "SELECT " + ", ".join("@@" + name for name in switches)), ((1,) * len(switches),))
    with server.Server(options=[f"--{name}=OFF" for name in switches]) as other:
        expect("off", rows(other.connect(), "SELECT " + ", ".join("@@" + name for name in switches)), ((0,) * len(switches),))


UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def number(text):
    """`4 MiB` or `1,024` of the page, in units."""
    digits, _, unit = text.strip().partition(" ")
    return int(digits.replace(",", "")) * UNITS[unit]


def range_of(told):
    """(least, greatest, step) or a list of values, as the page tells them; None: it does not."""
    steps = re.search(r", in steps of (.*)", told)
    step = number(steps[1]) if steps else 0
    told = told[:steps.start()] if steps else told
    if told.startswith("from "):
        return number(told[5:]), None, step
    if " to " in told:
        least, greatest = told.split(" to ")
        return number(least), number(greatest), step
    return told.split(", ")


def test_page_on_variables(where):
    """docs/variables.md has defaults, ranges, scopes, and what can be set, of all variables; and which counters are gauges."""
    with open(os.path.join(server.ROOT, "docs/variables.md")) as f:
        page = f.read()
    table = {name: [cell.strip() for cell in cells.split("|")]
             for name, cells in re.findall(r"^\| `(myriad_\w+)` \|(.*)\|$", page, re.M)}
    c = where.connect()
    known = rows(c, "SELECT LOWER(VARIABLE_NAME), DEFAULT_VALUE, NUMERIC_MIN_VALUE, NUMERIC_MAX_VALUE, NUMERIC_BLOCK_SIZE,"
                    " ENUM_VALUE_LIST, READ_ONLY, VARIABLE_SCOPE FROM information_schema.SYSTEM_VARIABLES WHERE VARIABLE_NAME LIKE 'myriad%'")
    expect("variables", sorted(name for name, *_ in known), sorted(table))
    for name, default, least, greatest, step, values, read_only, scope in known:
        told_default, told_range, _unit, dynamic = table[name]
        expect(f"{name}: default", told_default.replace(",", "").replace("empty", ""), default)
        expect(f"{name}: dynamic", (dynamic != "no", "session" in dynamic), (read_only == "NO", scope == "SESSION"))
        told = range_of(told_range) if least or values else None
        if isinstance(told, tuple):
            expect(f"{name}: range", told, (int(least), None if told[1] is None else int(greatest), int(step)))
        elif told:
            expect(f"{name}: values", told, values.split(",") if values else [str(n) for n in range(int(least), int(greatest) + 1)])
    kinds = dict(rows(c, "SELECT NAME, KIND FROM information_schema.MYRIAD_METRICS"))
    told = [(re.findall(r"`Myriad_(\w+)`", names), unit)
            for names, unit in re.findall(r"^\| (`Myriad_[^|]*)\| ([^|]*)\|", page, re.M)]
    expect("counters and gauges", [name for names, unit in told for name in names
                                   if name in kinds and (kinds[name] == "GAUGE") != ("gauge" in unit)], [])


def test_version_is_the_project_s(where):
    """SHOW PLUGINS tells the version that the package and the command have."""
    with open(os.path.join(server.ROOT, "Cargo.toml")) as f:
        version = re.search(r'^version = "(.*)"', f.read(), re.M)[1]
    told = rows(where.connect(), "SELECT DISTINCT PLUGIN_VERSION, PLUGIN_AUTH_VERSION FROM information_schema.PLUGINS"
                                 " WHERE PLUGIN_LIBRARY = 'ha_myriad.so'")
    expect("versions", told, ((".".join(version.split(".")[:2]), version),))


def test_the_plugin_that_was_built_is_tested(_where):
    """Not that of an installed package, nor what an earlier run in the same folder had."""
    with tempfile.TemporaryDirectory() as installed, tempfile.TemporaryDirectory() as folder:
        systems = server.SYSTEM_PLUGINS
        server.SYSTEM_PLUGINS = (installed,)
        try:
            for name in ("ha_myriad.so", "other.so"):
                open(os.path.join(installed, name), "w").close()
            for _ in range(2):
                server.plugin_dir(folder)
                links = {name: os.readlink(os.path.join(folder, name)) for name in os.listdir(folder)}
                expect("links", links, {"ha_myriad.so": server.PLUGIN, "other.so": os.path.join(installed, "other.so")})
                os.remove(os.path.join(folder, "ha_myriad.so"))
                os.symlink("/away/ha_myriad.so", os.path.join(folder, "ha_myriad.so"))
        finally:
            server.SYSTEM_PLUGINS = systems


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
