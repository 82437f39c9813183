"""The engine's own files: format, log, system tablespace, undo, catalog, doublewrite; and who else is in the folder."""
import fcntl
import os
import shutil
import threading
import time

from harness import PAGE, ROWS, Place, case, change, expect, server


@case
def other_format_version(place):
    path = place.myriad + "/FORMAT"
    with open(path) as f:
        text = f.read()
    with open(path, "w") as f:
        f.write(text.replace("myriad 2\n", "myriad 99\n"))
    place.refused("99")
    with open(path, "w") as f:
        f.write(text)
    place.server.start()
    place.good("d")


@case
def one_log_header_damaged(place):
    change(place.myriad + "/redo.log", 20)
    place.server.start()
    place.good("d")


@case
def both_log_headers_damaged(place):
    for offset in (20, 4096 + 20):
        change(place.myriad + "/redo.log", offset)
    place.refused("redo.log")


@case
def missing_log(place):
    os.remove(place.myriad + "/redo.log")
    place.refused("redo.log")


@case
def missing_system_tablespace(place):
    os.remove(place.myriad + "/system.myr")
    place.refused("system.myr")


def damage_undo_tails(place):
    """Damages the last page of each undo slot; their numbers."""
    path = place.myriad + "/undo.myr"
    with open(path, "rb") as f:
        f.seek(PAGE)
        directory = f.read(PAGE)
    number = int.from_bytes(directory[52:56], "little")
    tails = [int.from_bytes(directory[68 + 8 * slot:72 + 8 * slot], "little") for slot in range(number)]
    tails = [tail for tail in tails if tail != 0xffffffff]
    expect(tails, "no undo slot has a page")
    for tail in tails:
        change(path, tail * PAGE + 9000)
    return tails


@case
def damaged_undo_pages_after_a_clean_stop(place):
    """Every transaction had ended: nothing is missing, and nobody has to say anything."""
    place.server.start()
    place.server.query("UPDATE e.t SET v=CONCAT(v, 'x') WHERE id <= 100")
    place.server.stop()
    tails = damage_undo_tails(place)
    status, text = place.verify()
    expect(status != 0 and all(f"page {tail}:" in text for tail in tails) and "catalog cannot" not in text, text)
    for _ in range(2):
        place.server.start()
        place.good("d")
        place.good("e")
        place.server.query("UPDATE e.t SET v=CONCAT(v, 'y') WHERE id <= 100")
        expect("every transaction in it had ended" in place.log(), "the error log does not tell of the slot")
        place.server.stop()


@case
def damaged_undo_pages_in_doubt(place):
    """A transaction had not ended: refused, unless the DBA says that its changes may look committed."""
    place.server.start()
    connection = place.server.connect(database="e")
    for sql in ("XA START 'x'", "INSERT INTO t VALUES (-1, 'prepared')", "XA END 'x'", "XA PREPARE 'x'"):
        connection.cursor().execute(sql)
    place.server.stop()
    damage_undo_tails(place)
    for _ in range(2):
        place.refused("myriad_force_recovery=1", "undo slot")
        place.server.options.append("--loose-myriad-force-recovery=1")
        place.server.start()
        expect("Dump all tables" in place.log(), "the error log does not say what to do")
        expect(place.ask("XA RECOVER") == ((), None), "a transaction is listed of which nothing is known")
        expect(place.ask("SELECT v FROM t WHERE id = -1") == ((("prepared",),), None), "what it looks like is not as told")
        place.good("d")
        place.server.stop()
        place.server.options.remove("--loose-myriad-force-recovery=1")


def spoil_catalog(path):
    """Damages the pages of system.myr; what the file held. Pages that the server has in memory stay good."""
    with open(path, "rb") as f:
        good = f.read()
    bad = bytearray(good)
    for at in range(2 * PAGE, len(bad), PAGE):
        bad[at + 200:at + 300] = b"\xaa" * 100
    change(path, 0, bad)
    return good


@case
def unreadable_foreign_keys(place):
    """A parent whose children cannot be looked up in the catalog is not taken for one that has none."""
    place.server.start()
    place.server.query("CREATE TABLE d.p (id INT PRIMARY KEY)")
    place.server.query("CREATE TABLE d.c (p INT, FOREIGN KEY (p) REFERENCES d.p (id))")
    place.server.query("INSERT INTO d.p VALUES (1), (2)")
    place.server.query("INSERT INTO d.c VALUES (1)")
    # Enough for pages that hold nothing but entries of foreign keys.
    for name in "az":
        place.server.query(f"CREATE DATABASE {name}")
        place.server.query(f"CREATE TABLE {name}.p (id INT PRIMARY KEY)")
        for i in range(400):
            place.server.query(f"CREATE TABLE {name}.a_long_name_of_a_table_{i} (p INT, FOREIGN KEY (p) REFERENCES {name}.p (id))")
    place.server.restart()
    place.server.query("SELECT * FROM d.p JOIN d.c")
    path = place.myriad + "/system.myr"
    good = spoil_catalog(path)
    problems = [place.ask(sql)[1] for sql in
                ("DELETE FROM d.p WHERE id = 1", "UPDATE d.p SET id = 3", "DROP TABLE d.p", "DROP DATABASE d")]
    change(path, 0, good)
    expect(all(problems), f"a statement passed: {problems}")
    expect("page" in problems[0], f"the client is not told the page: {problems[0]}")
    got, problem = place.ask("DELETE FROM d.p WHERE id = 1")
    expect(problem and "1451" in problem, f"the child is not seen afterwards: {got} {problem}")
    got, problem = place.ask("SHOW CREATE TABLE d.c")
    expect("REFERENCES `p`" in got[0][1], f"the foreign key is not shown: {got} {problem}")


@case
def unreadable_list_of_tables(place):
    """A database whose tables the catalog cannot list is not dropped, and not said to be; nor a table that it cannot find, whose name
    is not taken to be free either."""
    place.server.start()
    # What is created last, purge reads after the restart.
    place.server.query("CREATE DATABASE n")
    place.server.query("CREATE TABLE n.a_long_name_of_a_table_200_p (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
    for name in "namz":
        place.server.query(f"CREATE DATABASE IF NOT EXISTS {name}")
        for i in range(400):
            place.server.query(f"CREATE TABLE {name}.a_long_name_of_a_table_{i} (id INT PRIMARY KEY)")
    place.server.restart()
    path = place.myriad + "/system.myr"
    good = spoil_catalog(path)
    problems = [place.ask(sql)[1] for sql in
                ("SHOW TABLES FROM m", "DROP DATABASE m", "DROP DATABASE IF EXISTS m", "DROP TABLE n.a_long_name_of_a_table_200_p",
                 "CREATE VIEW m.a_long_name_of_a_table_200 AS SELECT 1", "CREATE TABLE m.a_long_name_of_a_table_200 (a INT) ENGINE=Aria")]
    change(path, 0, good)
    expect(all(problem and "page" in problem for problem in problems), f"the client is not told the page: {problems}")
    got, problem = place.ask("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'm'")
    expect(got and got[0][0] == 400, f"tables are gone: {got} {problem}")
    got, problem = place.ask("DROP DATABASE m")
    expect(not problem, f"DROP DATABASE: {problem}")


@case
def unreadable_list_of_tablespaces(place):
    """What databases take of the disk is not told without those that the catalog cannot list."""
    place.server.start()
    for i in range(400):
        place.server.query(f"CREATE TABLE d.t{i} (id INT) TABLESPACE_PER='TABLE'")
    place.server.restart()
    path = place.myriad + "/system.myr"
    good = spoil_catalog(path)
    sql = "SELECT COUNT(*), SUM(FILE_BYTES) FROM information_schema.MYRIAD_TABLESPACES"
    got, problem = place.ask(sql)
    change(path, 0, good)
    expect(problem and "page" in problem, f"the client is not told the page: {got} {problem}")
    got, problem = place.ask(sql)
    expect(got and got[0][0] > 400, f"tablespaces are left out: {got} {problem}")


def inserted(place, rows=300):
    """Acknowledged single-row commits after the start, then SIGKILL."""
    place.server.start()
    connection = place.server.connect(database="e")
    with connection, connection.cursor() as cursor:
        for i in range(rows):
            cursor.execute("INSERT INTO t VALUES (%s, %s)", (100000 + i, f"late{i}"))
    place.server.kill()


def log_end(place):
    """File offset behind the last byte of the log that is not zero (the ring has not wrapped yet)."""
    with open(place.myriad + "/redo.log", "rb") as f:
        return len(f.read().rstrip(b"\0"))


def damaged_tail(place, damage):
    """Rows behind the damage may be missing, but what is there is a prefix of the commits, and nothing is half there."""
    inserted(place)
    end = log_end(place)
    damage(place.myriad + "/redo.log", end)
    try:
        place.server.start()
    except server.ServerError:
        expect("do not belong together" in place.log(), f"refused without a reason: {place.server.why()}")
        return
    got, problem = place.ask("SELECT COUNT(*), MAX(id) FROM t WHERE id >= 100000")
    if problem:
        expect("page" in problem and "log ended" in place.log(), f"neither rows nor a clear error: {problem}")
        return
    count, last = got[0]
    expect(count == 0 or last == 100000 + count - 1, f"{count} rows up to {last} are no prefix")
    place.good("e", ROWS + count)
    place.good("d")


@case
def flipped_bit_in_log_tail(place):
    damaged_tail(place, lambda path, end: change(path, end - 40))


@case
def torn_log_tail(place):
    damaged_tail(place, lambda path, end: change(path, end - 3000, b"\0" * 3000))


@case
def garbage_behind_log_tail(place):
    inserted(place)
    end = (log_end(place) + 4096) // 8 * 8
    change(place.myriad + "/redo.log", end, os.urandom(5000))
    place.server.start()
    place.good("e", ROWS + 300)


@case
def truncated_log_file(place):
    inserted(place)
    path = place.myriad + "/redo.log"
    os.truncate(path, log_end(place) // 4096 * 4096)
    try:
        place.server.start(30)
    except server.ServerError:
        expect("redo.log" in place.log() and place.server.process.returncode == 1,
               f"refused without a reason: {place.server.why()}")
        return
    expect(place.ask("SELECT COUNT(*) FROM d.t")[1] is None, "d.t cannot be read")


@case
def torn_page_is_restored(place):
    """After SIGKILL every copy of the doublewrite file whose page could be torn brings the page back."""
    place.server.options.append("--loose-myriad-io-capacity=20000")
    place.server.start()
    connection = place.server.connect(database="d")
    with connection, connection.cursor() as cursor:
        for i in range(3):
            cursor.execute("UPDATE t SET v = CONCAT(v, %s) WHERE MOD(id, 3) = %s", (i, i))
            time.sleep(0.4)
        cursor.execute("SELECT COUNT(*), SUM(CRC32(CONCAT(id, v))) FROM t")
        before = cursor.fetchall()
    place.server.kill()
    with open(place.myriad + "/doublewrite", "rb") as f:
        data = f.read()
    path, number = place.file("d"), int(os.path.basename(place.file("d")).split(".")[1])
    torn = 0
    for offset in range(0, len(data) - PAGE + 1, 4096):
        page = data[offset:offset + PAGE]
        if int.from_bytes(page[8:12], "little") == number and page[12] == 3:
            at = int.from_bytes(page[4:8], "little") * PAGE
            with open(path, "r+b") as f:
                f.seek(at)
                if f.read(PAGE) == page and torn < 4:      # the copy is the page's newest
                    f.seek(at + PAGE // 2)
                    f.write(b"\0" * (PAGE // 2))
                    torn += 1
    expect(torn, "the doublewrite file holds no page that could be torn")
    place.server.start()
    got, problem = place.ask("SELECT COUNT(*), SUM(CRC32(CONCAT(id, v))) FROM d.t FORCE INDEX (PRIMARY)")
    expect(got == before, f"{torn} pages torn: {before} became {got} {problem}")
    place.good("d")


@case
def second_server(place):
    place.server.start()
    second = Place()
    try:
        shutil.rmtree(second.myriad, ignore_errors=True)
        os.symlink(place.myriad, second.myriad)
        # It has waited for the first to go.
        second.refused("another process", seconds=90)
        place.good("d")
    finally:
        os.unlink(second.myriad)
        second.close()


@case
def folder_locked_for_a_while(place):
    """By a server that was killed and is not gone yet, or by who reads the folder."""
    with open(place.myriad + "/myriad.lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(3, fcntl.flock, (held, fcntl.LOCK_UN)).start()
        expect(place.server.start(30) > 2, "the lock was not held")
    expect("waiting up to 30 s" in place.log(), "the log does not say that it waited")
    place.good("d")


@case
def no_server_without_the_engine(place):
    """Also where another engine is the default: it would forget what its binary log has of prepared transactions."""
    os.rename(place.myriad + "/FORMAT", place.folder + "/FORMAT")
    place.server.options += ["--default-storage-engine=InnoDB"]
    place.refused("cannot start", "must not go on without the engine")
    os.rename(place.folder + "/FORMAT", place.myriad + "/FORMAT")
    # As a link to a file system that is not mounted.
    os.rename(place.myriad, place.folder + "/mounted")
    os.symlink(place.folder + "/away", place.myriad)
    place.refused("cannot start", "must not go on without the engine")
    os.remove(place.myriad)
    os.rename(place.folder + "/mounted", place.myriad)
    os.rename(place.myriad + "/redo.log", place.folder + "/redo.log")
    place.refused("cannot start", "must not go on without the engine")
    os.rename(place.folder + "/redo.log", place.myriad + "/redo.log")
    place.server.start()
    place.good("d")


@case
def unknown_files(place):
    for name in ("what.txt", "d.999.myr", "x.myr"):
        with open(os.path.join(place.myriad, name), "wb") as f:
            f.write(b"nothing of ours")
    place.server.start()
    place.good("d")
    expect(os.path.exists(place.myriad + "/what.txt"), "a file that is not ours was removed")


@case
def folder_without_format(place):
    os.remove(place.myriad + "/FORMAT")
    place.refused("FORMAT")
    expect(os.path.exists(place.file("d")), "the start removed a data file")
