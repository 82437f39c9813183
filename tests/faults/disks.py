"""Disks that are full or cannot be written."""
import os
import subprocess
import time

from harness import ROWS, Load, Place, Skipped, case, expect, wait_for


def on_small_disk(megabytes):
    place = Place(disk=f"{megabytes}m")
    try:
        place.server.start()
        place.fill()
    except BaseException:
        place.close()
        raise
    return place


@case
def read_only_directory(_):
    place = on_small_disk(64)
    try:
        place.server.stop()
        subprocess.run(["mount", "-o", "remount,ro", place.myriad], check=True)
        place.refused("ead-only")
        subprocess.run(["mount", "-o", "remount,rw", place.myriad], check=True)
        place.server.start()
        place.good("d")
    finally:
        place.close()


def fill_up(filler):
    """Writes the file until there is no room."""
    with open(filler, "wb", buffering=0) as f:
        try:
            while f.write(b"x" * 4096) == 4096:
                pass
        except OSError:
            pass


@case
def full_disk(_):
    place = on_small_disk(64)
    try:
        load = Load(place)
        time.sleep(0.5)
        fill_up(place.myriad + "/filler")
        told = wait_for(lambda: load.errors)
        expect(place.server.alive(), f"the server ended: {place.server.why()}")
        expect(told, "inserts on a full disk and no error")
        expect(load.errors[0].args[0] in (1021, 1114), f"unclear error: {load.errors[0]}")
        got, problem = place.ask("SELECT COUNT(*) FROM e.t")
        expect(not problem and got[0][0] == ROWS, f"reads fail on a full disk: {problem}")
        expect("MYRIAD: no space left on device for " in place.log(), "the error log does not tell of the full disk")
        os.remove(place.myriad + "/filler")
        before = len(load.acknowledged)
        expect(wait_for(lambda: len(load.acknowledged) >= before + 100), f"no work after room was made: {load.errors[-1]}")
        place.server.kill()
        load.end()
        place.server.start()
        found = load.check()
        expect(len(found - load.acknowledged) <= 2 + len(load.errors), "rows that were never acknowledged")
    finally:
        place.close()


@case
def full_disk_in_copy(_):
    """An ALTER TABLE that copies: no room for what it sorts, none for the copy, and room again."""
    place = on_small_disk(64)
    folder = os.path.join(place.folder, "tmp")
    filler = os.path.join(place.myriad, "filler")
    copies = ["ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v), ALGORITHM=COPY", "ALTER TABLE t FORCE, ALGORITHM=COPY"]
    try:
        os.mkdir(folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], check=True)
        place.server.options += [f"--tmpdir={folder}", "--loose-myriad-sort-buffer-size=1048576"]
        place.server.restart()
        place.ask("UPDATE t SET v = CONCAT(v, id * 7919 MOD 10007, REPEAT('x', 100))")
        for where in (folder, place.myriad):
            if where == place.myriad:
                expect(f"no space left on device for {folder}" in place.log(), "the error log does not tell which disk is full")
                subprocess.run(["mount", "-o", "remount,size=32m", folder], check=True)
                fill_up(filler)
            for sql in copies:
                _, problem = place.ask(sql)
                expect(place.server.alive(), f"the server ended: {place.server.why()}")
                expect(problem and any(f"({code}," in problem for code in (1021, 1114)), f"{where}: {sql}: {problem}")
                got, problem = place.ask("SELECT COUNT(*), COUNT(DISTINCT v) FROM t FORCE INDEX (v)")
                expect(not problem and got[0] == (ROWS, ROWS), f"{sql}: {got} {problem}")
                expect(os.listdir(folder) == [], f"{sql}: temporary files stay: {os.listdir(folder)}")
        os.remove(filler)
        for sql in copies:
            _, problem = place.ask(sql)
            expect(not problem, f"{sql} with room: {problem}")
        place.good("e")
    finally:
        place.server.kill()
        subprocess.run(["umount", "-l", folder], capture_output=True)
        place.close()


@case
def full_disk_in_partitions(place):
    """Partitions put together where the server has no room for the new .frm file: the table stays."""
    server_, folder = place.server, os.path.join(place.server.datadir, "p")
    server_.start()
    server_.query("CREATE DATABASE p")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        raise Skipped("cannot mount: " + mounted.stderr.strip())
    filler = os.path.join(folder, "filler")
    try:
        make = "CREATE TABLE %s (id INT PRIMARY KEY, v INT) ENGINE=MYRIAD PARTITION BY HASH (id) PARTITIONS 10"
        # The server's log of such changes gets its room first.
        for statement in (make % "z", *["ALTER TABLE z COALESCE PARTITION 2"] * 3, "DROP TABLE z", make % "t",
                          "INSERT INTO t SELECT seq, seq FROM seq_1_to_1000"):
            server_.query(statement, "p")
        fill_up(filler)
        _, problem = place.ask("ALTER TABLE t COALESCE PARTITION 2", "p")
        expect(problem, "no room for the .frm file and no error")
        os.remove(filler)
        for again in (False, True):
            got, problem = place.ask("SELECT COUNT(*), SUM(v) FROM t", "p")
            expect(not problem and got[0] == (1000, 500500), f"{got} {problem}")
            if not again:
                server_.kill()
                server_.start()
        for statement in ("ALTER TABLE t COALESCE PARTITION 2", "DROP TABLE t", make % "t", "DROP TABLE t"):
            server_.query(statement, "p")
    finally:
        server_.kill()
        subprocess.run(["umount", "-l", folder], capture_output=True)
