#!/usr/bin/python3
"""The plugin in the server: what its folder is to the server and its tools, functions without the engine.
Usage: plugin_tests.py [NAME...]"""
import os
import subprocess
import sys
import threading

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


def test_switches_without_a_value(where):
    """A line such as `myriad_print_all_deadlocks` in the settings is ON, as innodb_print_all_deadlocks is."""
    switches = [name.lower() for name, in rows(where.connect(), "SELECT variable_name FROM information_schema.system_variables"
                                               " WHERE variable_name LIKE 'myriad%' AND variable_type = 'BOOLEAN'")]
    with server.Server(options=["--" + name.replace("_", "-") for name in switches]) as other:
        expect("on", rows(other.connect(), "SELECT " + ", ".join("@@" + name for name in switches)), ((1,) * len(switches),))
    with server.Server(options=[f"--{name}=OFF" for name in switches]) as other:
        expect("off", rows(other.connect(), "SELECT " + ", ".join("@@" + name for name in switches)), ((0,) * len(switches),))


if __name__ == "__main__":
    server.main_guard(lambda: run(globals()))
