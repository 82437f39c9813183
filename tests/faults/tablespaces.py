"""Damaged, missing, foreign, doubled and cut tablespaces."""
import os
import shutil
import time

from harness import PAGE, ROWS, Place, case, change, expect, pymysql, wait_for
import reader


@case
def undamaged(place):
    status, text = place.verify()
    expect(status == 0, text)
    place.server.start()
    place.good("d")
    place.good("e")


def leaf_in_use(path):
    """The number of an index leaf."""
    number = os.path.getsize(path) // PAGE // 3
    with open(path, "rb") as f:
        while True:
            f.seek(number * PAGE)
            head = f.read(16)
            if head[12] == 3 and head[13] == 0:
                return number
            number += 1


@case
def flipped_bit(place):
    path = place.file("d")
    number = leaf_in_use(path)
    change(path, number * PAGE + 9000)
    status, text = place.verify()
    expect(status != 0 and f"page {number}:" in text and os.path.basename(path) in text, text)
    place.server.start()
    problems = [place.ask(f"SELECT SUM(LENGTH(v)), MAX(id) FROM d.t FORCE INDEX ({i}) WHERE v > ''")[1]
                for i in ("PRIMARY", "v")]
    expect(any(p and f"page {number}" in p and "tablespace" in p for p in problems),
           f"the client is not told the tablespace and page {number}: {problems}")
    got, problem = place.ask("CHECK TABLE d.t")
    expect(problem or got[-1][3] == "Corrupt", f"CHECK TABLE: {got}")
    expect(problem or any(f"page {number}" in r[3] for r in got), f"CHECK TABLE names no page: {got}")
    told = [line for line in place.log().splitlines() if f"page {number} is corrupt" in line]
    for part in (f"its file is #myriad/{os.path.basename(path)} ", "(table d/t)", "Restore a backup"):
        expect(told and part in told[0], f"the error log does not say {part!r}: {told}")
    connection = place.server.connect(database="d")
    for _ in range(300):
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT SUM(LENGTH(v)) FROM t FORCE INDEX (PRIMARY)")
        except pymysql.err.MySQLError:
            pass
    told = [line for line in place.log().splitlines() if f"page {number} is corrupt" in line]
    expect(len(told) < 20, f"the error log tells of each of 300 failures: {len(told)} lines")
    place.good("e")


@case
def analyze_of_damaged_pages(place):
    """ANALYZE TABLE does not say OK where it could read nothing."""
    path = place.file("d")
    with open(path, "rb") as f:
        heads = [(f.seek(number * PAGE), f.read(16))[1] for number in range(os.path.getsize(path) // PAGE)]
    for number in (n for n, head in enumerate(heads) if head[12:14] == b"\3\0"):
        change(path, number * PAGE + 9000)
    place.server.start()
    got, problem = place.ask("ANALYZE TABLE d.t")
    expect(not problem and got[-1][3] == "Corrupt" and "is corrupt: checksum" in got[0][3], f"{got} {problem}")
    got, problem = place.ask("ANALYZE TABLE e.t")
    expect(not problem and got[-1][3] == "OK", f"{got} {problem}")


@case
def flipped_bit_of_a_long_value(place):
    place.server.start()
    place.server.query("CREATE TABLE d.l (id INT PRIMARY KEY, v LONGBLOB)", "d")
    place.server.query("INSERT INTO d.l SELECT seq, REPEAT('long', 20000) FROM seq_1_to_20", "d")
    place.server.stop()
    path = place.file("d")
    with open(path, "rb") as f:
        kinds = [f.read(PAGE)[12] for _ in range(os.path.getsize(path) // PAGE)]
    number = [i for i, kind in enumerate(kinds) if kind == 4][30]
    change(path, number * PAGE + 9000)
    place.server.start()
    for how, status in (("QUICK", "OK"), ("", "Corrupt"), ("FAST", "Corrupt"), ("EXTENDED", "Corrupt")):
        got, problem = place.ask(f"CHECK TABLE d.l {how}")
        expect(not problem and got[-1][3] == status, f"CHECK TABLE {how}: {got} {problem}")
        expect(status == "OK" or any("tablespace" in r[3] and f"page {number}:" in r[3] for r in got),
               f"CHECK TABLE {how} names no page: {got}")
    place.good("d")


@case
def rows_that_are_wrong_on_whole_pages(place):
    """Pages whose checksums are right: only CHECK TABLE EXTENDED holds rows and index entries against each other."""
    place.server.start()
    place.server.query("CREATE TABLE d.k (id INT PRIMARY KEY, v VARBINARY(20), w VARCHAR(20), KEY (v))", "d")
    place.server.query("INSERT INTO d.k SELECT seq, CONCAT('needle', seq), CONCAT('beside', seq) FROM seq_101_to_200", "d")
    before = b"\x09needle142\x09beside142"
    for after, found in ((b"\x09needle242\x09beside142", "index v: 1 of 100 rows have no entry with their values"),
                         (b"\x99needle142\x09beside142", "1 of 100 rows are not such as the table's columns make")):
        place.server.stop()
        with open(place.file("d"), "r+b") as f:
            data = f.read()
            expect(data.count(before) == 1, f"{before} is {data.count(before)} times in the file")
            at = data.index(before)
            page = bytearray(data[at - at % PAGE:][:PAGE])
            page[at % PAGE:at % PAGE + len(before)] = after
            page[:4] = reader.crc32c(bytes(page[4:])).to_bytes(4, "little")
            f.seek(at - at % PAGE)
            f.write(page)
        before = after
        place.server.start()
        for how, texts in (("", ["OK"]), ("EXTENDED", ["MYRIAD: " + found, "Corrupt"])):
            got, problem = place.ask(f"CHECK TABLE d.k {how}")
            expect(not problem and [r[3] for r in got] == texts, f"CHECK TABLE {how}: {got} {problem}")
        expect(place.ask("CHECK TABLE d.t EXTENDED")[0][-1][3] == "OK", "another table")


@case
def missing_tablespace(place):
    name = os.path.basename(place.file("d"))
    os.rename(place.file("d"), place.folder + "/away")
    place.server.start()
    for sql in ("SELECT COUNT(*) FROM d.t", "UPDATE d.t SET v = 'y' WHERE id = 1", "DELETE FROM d.t WHERE id = 1"):
        problem = place.ask(sql)[1]
        expect(problem and name in problem, f"{sql}: the client is not told the file: {problem}")
    place.good("e")
    place.server.stop()
    os.rename(place.folder + "/away", os.path.join(place.myriad, name))
    place.server.start()
    place.good("d")


@case
def tablespace_missing_while_a_transaction_waits_for_it(place):
    place.server.start()
    connections = {name: place.server.connect(database=name, autocommit=False) for name in "de"}
    for connection in connections.values():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (-1, 'uncommitted')")
            cursor.execute("DELETE FROM t WHERE id <= 10")

    def status(name):
        return int(place.server.query(f"SHOW GLOBAL STATUS LIKE 'Myriad_{name}'")[0][1])

    def rolling_back():
        sql = "SELECT COUNT(*) FROM information_schema.MYRIAD_TRX WHERE TRX_RECOVERED = 'YES'"
        return place.server.query(sql)[0][0]

    def at_rest():
        return status("buffer_pool_pages_dirty") == status("log_age_bytes") == 0

    expect(wait_for(at_rest), "no checkpoint at rest")
    place.server.kill()
    path = place.file("d")
    os.rename(path, place.folder + "/away")
    for _ in range(2):
        place.server.start()
        expect(wait_for(lambda: rolling_back() == 1), f"{rolling_back()} transactions are rolled back, not only that of d")
        place.good("e")
        expect(wait_for(lambda: place.log().count("cannot go on yet") == 1), "the error log does not say what waits")
        expect(os.path.basename(path) in place.log(), "the error log does not name the file")
        place.server.stop()
    os.rename(place.folder + "/away", path)
    place.server.start()
    expect(wait_for(lambda: rolling_back() == 0), "it is not rolled back with the file")
    place.good("d")


@case
def tablespace_missing_after_a_crash(place):
    path, away = place.file("d"), place.folder + "/away"
    place.server.start()

    def crash(first):
        place.server.query(f"INSERT INTO d.t SELECT seq, REPEAT('n', 200) FROM seq_{first}_to_{first + 499}", "d")
        place.server.kill()
        os.rename(path, away)
        place.server.start()
        problem = place.ask("SELECT COUNT(*) FROM d.t")[1]
        expect(problem and os.path.basename(path) in problem, f"the client is not told the file: {problem}")
        expect(wait_for(lambda: "waits for the file" in place.log()), "the error log does not tell of the file")

    # Back before the log is full.
    for stop in (place.server.stop, place.server.kill):
        crash(100000 if stop == place.server.stop else 200000)
        place.good("e")
        stop()
        os.rename(away, path)
        place.server.start()
        place.good("d", ROWS + (500 if stop == place.server.stop else 1000))
    # Too late.
    crash(300000)
    for _ in range(60):
        place.server.query("UPDATE e.t SET v = CONCAT(IF(v LIKE 'x%', 'y', 'x'), SUBSTR(v, 2)) WHERE id <= 1000", "e")
        if "too old" in place.log():
            break
    expect("too old" in place.log(), "the error log does not say that the file is given up")
    place.server.stop()
    os.rename(away, path)
    status, text = place.verify()
    expect(status != 0 and "missed changes" in text and os.path.basename(path) in text, text)
    for _ in range(2):
        place.server.start()
        expect("missed changes in an earlier recovery" in place.log(), "the error log does not tell of the file again")
        for sql in ("SELECT COUNT(*) FROM d.t", "SELECT COUNT(*) FROM d.t FORCE INDEX (v)", "INSERT INTO d.t VALUES (-7, 'new')",
                    "CREATE TABLE d.another (id INT)"):
            problem = place.ask(sql)[1]
            expect(problem and "missed changes" in problem, f"{sql}: {problem}")
        got, problem = place.ask("CHECK TABLE d.t")
        expect(problem or got[-1][3] != "OK", f"CHECK TABLE: {got}")
        place.good("e")
        place.server.stop()
    place.server.start()
    for sql in ("DROP DATABASE d", "CREATE DATABASE d", "CREATE TABLE d.t SELECT * FROM e.t"):
        problem = place.ask(sql)[1]
        expect(not problem, f"{sql}: {problem}")
    place.server.stop()
    status, text = place.verify()
    expect(status == 0, text)


@case
def page_read_wrong_in_one_start(place):
    path = place.file("d")
    number = leaf_in_use(path)
    place.server.options.append("--myriad-doublewrite=OFF")
    place.server.start()
    place.server.query("UPDATE d.t SET v = CONCAT('x', SUBSTR(v, 2))", "d")
    place.server.kill()
    change(path, number * PAGE + 9000)
    place.server.start()
    expect(wait_for(lambda: f"page {number} " in place.log()), "the error log does not name the page")
    place.server.stop()
    with open(path, "rb") as f:
        f.seek(number * PAGE)
        if f.read(13)[12] != 7:       # no lost page has taken its place: it reads well again
            change(path, number * PAGE + 9000)
    status, text = place.verify()
    expect(status != 0 and f"page {number}:" in text and "are lost" in text, text)
    place.server.start()
    problems = [place.ask(f"SELECT SUM(LENGTH(v)), MAX(id) FROM d.t FORCE INDEX ({i}) WHERE v > ''")[1]
                for i in ("PRIMARY", "v")]
    expect(any(p and f"page {number}" in p and "are lost" in p for p in problems), f"the page is used: {problems}")
    got, problem = place.ask("CHECK TABLE d.t")
    expect(problem or got[-1][3] == "Corrupt", f"CHECK TABLE: {got}")
    place.good("e")
    for sql in ("TRUNCATE d.t", "INSERT INTO d.t SELECT * FROM e.t", "DROP TABLE d.t"):
        problem = place.ask(sql)[1]
        expect(not problem, f"{sql}: {problem}")


def replaced_tablespace(place, data):
    path = place.file("d")
    with open(path, "wb") as f:
        f.write(data)
    place.found = place.verify()[0]
    place.server.start()
    problem = place.ask("SELECT COUNT(*) FROM d.t")[1]
    expect(problem and os.path.basename(path) in problem, f"the client is not told the file: {problem}")
    place.good("e")


@case
def empty_tablespace(place):
    replaced_tablespace(place, b"")
    expect(place.found, "verify finds nothing")


@case
def ten_byte_tablespace(place):
    replaced_tablespace(place, b"0123456789")
    expect(place.found, "verify finds nothing")


@case
def foreign_tablespace(place):
    other = Place()
    try:
        other.server.start()
        other.fill()
        other.server.stop()
        with open(other.file("d"), "rb") as f:
            data = f.read()
    finally:
        other.close()
    replaced_tablespace(place, data)


@case
def verify_sees_foreign_tablespace(place):
    foreign_tablespace(place)
    expect(place.found, "verify finds nothing")


@case
def directory_instead_of_tablespace(place):
    path = place.file("d")
    os.remove(path)
    os.mkdir(path)
    place.verify()
    place.server.start()
    problem = place.ask("SELECT COUNT(*) FROM d.t")[1]
    expect(problem and os.path.basename(path) in problem, f"the client is not told the file: {problem}")
    place.good("e")


@case
def truncated_tablespace(place):
    path = place.file("d")
    os.truncate(path, 8 * PAGE)
    place.server.start()
    problem = place.ask("SELECT SUM(LENGTH(v)) FROM d.t FORCE INDEX (PRIMARY)")[1]
    expect(problem and "page" in problem, f"the client is not told the page: {problem}")
    got, problem = place.ask("CHECK TABLE d.t")
    expect(problem or got[-1][3] == "Corrupt", f"CHECK TABLE: {got}")
    place.good("e")


@case
def verify_sees_missing_tablespace(place):
    os.remove(place.file("d"))
    expect(place.verify()[0] != 0, "verify finds nothing")


@case
def verify_sees_truncated_tablespace(place):
    os.truncate(place.file("d"), 8 * PAGE)
    status, text = place.verify()
    expect(status != 0 and "truncated" in text, f"verify finds nothing: {text}")


def check_options(place, mode="ONLINE", light="ON"):
    place.server.options += [f"--loose-myriad-tablespace-duplicate-check={mode}",
                             f"--loose-myriad-tablespace-duplicate-check-light={light}"]


def findings(place):
    """What the check found when it has come to its end: {(path, problem): (space id, other path, detail)}."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        state = place.server.query("SHOW GLOBAL STATUS LIKE 'Myriad_tablespace_check_running'")[0][1]
        if state == "0":
            break
        time.sleep(0.05)
    expect(state == "0", "the check does not end")
    rows = place.server.query("SELECT PATH, PROBLEM, SPACE_ID, OTHER_PATH, DETAIL, FOUND FROM information_schema.MYRIAD_TABLESPACE_CHECK")
    expect(all(r[4] and r[5] for r in rows), f"a finding says nothing: {rows}")
    return {r[:2]: r[2:5] for r in rows}


def snapshot(folder):
    """Contents of all tablespace files in and below a folder."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            if name.endswith(".myr") and name not in ("system.myr", "undo.myr") and not os.path.islink(path):
                with open(path, "rb") as f:
                    found[path] = f.read()
    return found


def with_duplicate(place, mode):
    check_options(place, mode)
    own = "#myriad/" + os.path.basename(place.file("d"))
    twin = place.myriad + "/twin.myr"
    shutil.copy(place.file("d"), twin)
    status, text = place.verify()
    expect(status == 1 and "twin.myr" in text and os.path.basename(own) in text, text)
    before = snapshot(place.myriad)
    place.server.start()
    got = findings(place)
    number = int(own.split(".")[-2])
    expect(got.keys() == {("#myriad/twin.myr", "DUPLICATE")}, f"found {got}")
    expect(got[("#myriad/twin.myr", "DUPLICATE")][:2] == (number, own), f"found {got}")
    for sql in ("SELECT COUNT(*) FROM d.t", "INSERT INTO d.t VALUES (-9, 'x')", "UPDATE d.t SET v = 'y' WHERE id = 1"):
        problem = place.ask(sql)[1]
        expect(problem and f"tablespace {number}" in problem and "twin.myr" in problem and own in problem,
               f"{sql}: the client is told {problem}")
    place.good("e")
    expect("DUPLICATE #myriad/twin.myr" in place.log(), "the error log does not name the twin")
    place.server.stop()
    after = snapshot(place.myriad)
    expect(all(after[p] == before[p] for p in before if p != place.file("e")), "a suspicious file was written to")
    place.server.start()
    findings(place)
    expect(place.ask("SELECT COUNT(*) FROM d.t")[1], "d.t can be used")
    os.remove(twin)
    place.good("d")


@case
def duplicate_tablespace(place):
    with_duplicate(place, "ONLINE")


@case
def duplicate_tablespace_blocking(place):
    with_duplicate(place, "BLOCKING")


@case
def duplicate_tablespace_unchecked(place):
    check_options(place, "OFF")
    shutil.copy(place.file("d"), place.myriad + "/twin.myr")
    place.server.start()
    expect(not findings(place), "OFF finds something")
    place.good("d")


@case
def directory_copied_into_itself(place):
    names = {n for n in os.listdir(place.myriad) if n.endswith(".myr")}
    shutil.copytree(place.myriad, place.folder + "/copy")
    os.rename(place.folder + "/copy", place.myriad + "/copy")
    before = snapshot(place.myriad)
    place.server.start()
    got = findings(place)
    expect(got.keys() == {(f"#myriad/copy/{n}", "DUPLICATE") for n in names}, f"found {got}")
    for database in "de":
        problem = place.ask(f"SELECT COUNT(*) FROM {database}.t")[1]
        expect(problem and "#myriad/copy/" in problem, f"the client is told {problem}")
    place.server.query("CREATE DATABASE g")
    place.server.query("CREATE TABLE g.t (a INT PRIMARY KEY)")
    place.server.query("INSERT INTO g.t VALUES (1)")
    place.server.stop()
    after = snapshot(place.myriad)
    expect(all(after[p] == before[p] for p in before), "a suspicious file was written to")
    shutil.rmtree(place.myriad + "/copy")
    place.server.start()
    expect(not findings(place), "something is found that is not there")
    place.good("d")
    place.good("e")


@case
def two_servers_mixed(place):
    other = Place()
    try:
        other.server.start()
        other.fill()
        other.server.stop()
        for name in os.listdir(other.myriad):
            if name.endswith(".myr"):
                shutil.copy(os.path.join(other.myriad, name), os.path.join(place.myriad, "other-" + name))
        shutil.copy(other.file("d"), place.file("d"))
    finally:
        other.close()
    before = snapshot(place.myriad)
    place.server.start()
    got = findings(place)
    expect({p for _, p in got} == {"FOREIGN"} and len(got) == 5, f"found {got}")
    problem = place.ask("SELECT COUNT(*) FROM d.t")[1]
    expect(problem and os.path.basename(place.file("d")) in problem and "another data directory" in problem, f"the client is told {problem}")
    place.good("e")
    place.server.stop()
    after = snapshot(place.myriad)
    expect(all(after[p] == before[p] for p in before if p != place.file("e")), "a foreign file was written to")


@case
def missing_and_moved_tablespaces_are_listed(place):
    own = "#myriad/" + os.path.basename(place.file("d"))
    os.rename(place.file("d"), place.myriad + "/elsewhere.myr")
    place.server.start()
    got = findings(place)
    expect(got.keys() == {(own, "MISSING"), ("#myriad/elsewhere.myr", "MOVED")}, f"found {got}")
    expect(got[("#myriad/elsewhere.myr", "MOVED")][1] == own, f"found {got}")
    expect("missing" in place.ask("SELECT * FROM d.t")[1], "the client is not told")
    place.good("e")
    os.rename(place.myriad + "/elsewhere.myr", place.server.datadir + "/" + own)
    place.good("d")


@case
def replaced_by_an_older_copy(place):
    """An older copy has the same header, so it cannot be told from it; nothing but its own database may suffer."""
    with open(place.file("d"), "rb") as f:
        old = f.read()
    place.server.start()
    place.server.query("INSERT INTO d.t SELECT seq, REPEAT('n', 200) FROM seq_100000_to_110000", "d")
    place.server.stop()
    with open(place.file("d"), "wb") as f:
        f.write(old)
    place.server.start()
    findings(place)
    place.ask("SELECT COUNT(*) FROM d.t")
    place.ask("CHECK TABLE d.t")
    expect(place.server.alive(), "the server ended")
    place.good("e")


def cut(place, light):
    check_options(place, light=light)
    os.truncate(place.file("d"), 8 * PAGE)
    os.truncate(place.file("e"), 9000)
    place.server.start()
    got = findings(place)
    names = {os.path.basename(p)[0]: q for p, q in got}
    expect(names == {"d": "TRUNCATED", "e": "TRUNCATED"}, f"found {got}")


@case
def cut_tablespaces_are_listed(place):
    cut(place, "ON")


@case
def cut_tablespaces_are_listed_with_whole_pages(place):
    cut(place, "OFF")


@case
def strange_names_and_files(place):
    raw = os.fsencode(place.myriad)
    shutil.copy(place.file("e"), raw + b"/caf\xe9.myr")
    os.symlink(place.file("d"), place.myriad + "/link.myr")
    os.symlink(place.myriad, place.myriad + "/loop")
    os.mkfifo(place.myriad + "/pipe.myr")
    with open(place.myriad + "/empty.myr", "wb"), open(place.myriad + "/ten.myr", "wb") as ten:
        ten.write(b"0123456789")
    for i in range(5000):
        with open(f"{place.myriad}/noise{i}.txt", "wb"):
            pass
    before = sorted(os.listdir(raw))
    place.server.start()
    got = findings(place)
    expect(got.keys() == {("#myriad/caf\\xE9.myr", "DUPLICATE"), ("#myriad/link.myr", "LINK"), ("#myriad/pipe.myr", "DAMAGED"),
                          ("#myriad/empty.myr", "DAMAGED"), ("#myriad/ten.myr", "DAMAGED")}, f"found {got}")
    place.good("d")
    expect(place.ask("SELECT COUNT(*) FROM e.t")[1], "a table with a twin can be used")
    os.remove(raw + b"/caf\xe9.myr")
    place.good("e")
    place.server.stop()
    before.remove(b"caf\xe9.myr")
    expect(sorted(os.listdir(raw)) == before, "files came or went")
    status, text = place.verify()
    expect(status == 1 and "ten.myr" in text, text)
