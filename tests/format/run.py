#!/usr/bin/python3
"""What a server leaves in its data directory, read by `reader.py` as docs/format.md tells it: after SIGKILL, with the redo of the log's
records, and after a clean stop. The rows read have to be those that SQL gave. Ends in "N passed, N failed"."""
import os
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "scripts")]
import reader  # noqa: E402
import server  # noqa: E402

SIZES = (4096, 16384, 65536)
# What the statements below lead to: all but filling and replacing whole pages, and merges below a leftmost child.
OPERATIONS = set(range(16, 28)) - {25} | {0, 1, 32, 33, 40, 41, 64, 65, 66, 67, 68, 69, 80, 81}


def purged(where):
    """Waits for purge, so that what it does is in the log."""
    end = time.monotonic() + 120
    while time.monotonic() < end and where.query("SHOW GLOBAL STATUS LIKE 'Myriad_history_length'")[0][1] != "0":
        time.sleep(0.1)
    where.query("CREATE TABLE synced (id INT)", "d")
    where.query("DROP TABLE synced", "d")


def fill(where):
    """Tables of all kinds, changed in all ways."""
    where.query("CREATE DATABASE d")
    for sql in (
            "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT NULL, name VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_bin"
            " NOT NULL, note TEXT CHARACTER SET latin1, KEY (a), UNIQUE KEY (name))",
            "INSERT INTO t SELECT seq, IF(seq % 10, seq % 97, NULL), CONCAT('name-', seq), REPEAT('n', seq % 50) FROM seq_1_to_2000",
            "INSERT INTO t SELECT seq, -seq, CONCAT('long-', seq), REPEAT(CHAR(65 + seq % 26), seq * 10) FROM seq_5001_to_5020",
            "UPDATE t SET a = a + 1 WHERE id % 3 = 0",
            "UPDATE t SET note = CONCAT(note, 'x') WHERE id > 5010",
            "DELETE FROM t WHERE id BETWEEN 500 AND 1500",
            "CREATE TABLE same LIKE t",
            "CREATE TABLE big (id BIGINT PRIMARY KEY, v VARCHAR(200) CHARACTER SET latin1, r BINARY(64), KEY (r))",
            "INSERT INTO big SELECT seq, REPEAT('b', 150), SHA2(seq, 256) FROM seq_1_to_6000",
            "CREATE TABLE parent (id INT PRIMARY KEY)",
            "CREATE TABLE child (id INT PRIMARY KEY, p INT, CONSTRAINT c FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
            "CREATE TABLE hidden (v VARCHAR(10) CHARACTER SET latin1) TABLESPACE_PER='TABLE'",
            "INSERT INTO hidden VALUES ('one'), ('two')",
            "CREATE TABLE layouts (id INT PRIMARY KEY, v INT)",
            "INSERT INTO layouts VALUES (1, 1)",
            "ALTER TABLE layouts ADD COLUMN w INT NOT NULL DEFAULT 7, ALGORITHM=INSTANT",
            "INSERT INTO layouts VALUES (2, 2, 2)",
            "CREATE TABLE gone (id INT PRIMARY KEY)", "DROP TABLE gone"):
        where.query(sql, "d")
    purged(where)


def change(where):
    """Changes whose pages are not in memory, and of which a transaction that is prepared and an open one are left."""
    for sql in ("SELECT COUNT(*) FROM big FORCE INDEX (r)",
                "CREATE TABLE filler AS SELECT REPEAT('f', 1000) AS v FROM seq_1_to_6000",
                "SELECT COUNT(v) FROM filler", "SELECT COUNT(v) FROM filler",
                "INSERT INTO big SELECT seq, 'late', SHA2(seq, 256) FROM seq_20001_to_20100",
                "DELETE FROM big WHERE id BETWEEN 4000 AND 4100"):
        where.query(sql, "d")
    purged(where)
    where.prepared, where.open = where.connect(database="d"), where.connect(database="d", autocommit=False)
    cursor = where.open.cursor()
    cursor.execute("UPDATE big SET v = 'undone' WHERE id < 300")
    cursor.execute("ROLLBACK")
    cursor.execute("UPDATE big SET v = 'open' WHERE id = 6000")
    for sql in ("XA START 'x'", "INSERT INTO big VALUES (-1, 'prepared', '')", "XA END 'x'", "XA PREPARE 'x'"):
        where.prepared.cursor().execute(sql)


def unpack_int(data, width):
    return int.from_bytes(data, "big") - (1 << 8 * width - 1)


def rows_of_t(directory):
    """(id, a, name, note) by the clustered index; entries that are deleted left out."""
    table = directory.tables["d", "t"]
    for key, value in directory.index(table.space, table.indexes[0][1], table.indexes[0][0]):
        if value.deleted:
            continue
        p = reader.Bytes(value.payload)
        layout = p.number(1)
        assert layout & 127 == 1, layout
        tail = None
        if layout & 128:
            head = p.number(4)
            p, tail = reader.Bytes(value.payload[5:head]), reader.Bytes(value.payload[head:])
        nulls = p.number(1)
        a, name = None if nulls & NULL_A else int.from_bytes(p.take(4), "little", signed=True), p.take(p.number(1))
        note = None
        if not nulls & NULL_NOTE:
            length = p.number(2)
            note = (tail if tail and length > 255 else p).take(length)
        p.end()
        assert tail is None or not tail.left()
        yield unpack_int(key, 4), a, name.decode(), note.decode("latin1")


NULL_A, NULL_NOTE = 1, 2     # bits of the NULL byte


def check(directory, expected):
    """The directory, its catalog read and held against what is in there."""
    directory.read_catalog()
    table = directory.tables["d", "t"]
    assert directory.databases["d"] == table.space
    assert len(table.indexes) == 3 and table.counter and table.shape == directory.tables["d", "same"].shape
    for number, image in directory.shapes.items():
        assert directory.hashes[number] == reader.image_hash(image), f"the hash of shape {number}"
        assert len(image) < 82 or not image[66:82].strip(b"\0")
    assert ("d", "gone") not in directory.tables
    assert directory.references == [("d", "parent", "d", "child")]
    assert directory.tables["d", "child"].foreign_keys == [("c", "d", "parent", 2, 0, [(b"p", b"id")])]
    assert directory.tables["d", "hidden"].flags & 5 == 5 and directory.tables["d", "hidden"].space != table.space
    assert directory.tables["d", "layouts"].layouts and not table.layouts
    assert sorted(rows_of_t(directory)) == expected, "the rows of t"
    counter = list(directory.index(table.space, table.counter[1], table.counter[0]))
    assert [(key, int.from_bytes(value.payload, "little")) for key, value in counter] == [(b"", 5021)]
    by_name, by_a = (list(directory.index(table.space, root, number)) for number, root, _ in table.indexes[1:])
    order = lambda row: (row[0] is not None, row)  # noqa: E731
    assert sorted((unpack_int(key[-4:], 4) for key, value in by_name if not value.deleted)) == [row[0] for row in expected]
    assert sorted(((unpack_int(key[1:5], 4) if key[0] else None, unpack_int(key[5:], 4))
                   for key, value in by_a if not value.deleted), key=order) \
        == sorted(((a, number) for number, a, _, _ in expected), key=order), "the entries of the index on a"
    hidden = directory.tables["d", "hidden"]
    assert [int.from_bytes(key, "big") for key, _ in directory.index(hidden.space, hidden.indexes[0][1], hidden.indexes[0][0])] == [1, 2]
    assert layouts_of(directory.tables["d", "layouts"].layouts) == \
        ([(0, 4, None), (0, 4, (7).to_bytes(4, "little"))], [(1, [(0, 2)]), (1, [(0, 2), (1, 0)])]), "the key has column id"
    assert [value.payload[0] for value in clustered(directory, "d", "layouts").values()] == [1, 2]
    return directory


def layouts_of(data):
    """([(bytes of its length, width, image in rows without it)] by column, [(bytes of NULL bits, [(column, NULL bit + 1)])] by layout)"""
    p = reader.Bytes(data)
    columns = []
    for _ in range(p.varint()):
        length, width, missing = p.varint(), p.varint(), p.varint()
        columns.append((length, width, p.take(missing - 1) if missing else None))
    layouts = [(p.varint(), [(p.varint(), p.varint()) for _ in range(p.varint())]) for _ in range(p.varint())]
    p.end()
    return columns, layouts


def clustered(directory, database, name):
    table = directory.tables[database, name]
    return dict(directory.index(table.space, table.indexes[0][1], table.indexes[0][0]))


def after_a_crash(folder, expected, operations):
    directory = check(reader.Directory(folder), expected)
    for operation, number in directory.operations.items():
        operations[operation] = operations.get(operation, 0) + number
    for space in sorted(set(directory.spaces) - {1}):
        directory.check_bitmaps(space)
    directory.check_doublewrite()
    return directory, {transaction: state for transaction, state, _ in directory.undo_logs()}


def after_a_stop(folder, expected):
    directory = check(reader.Directory(folder), expected)
    assert not directory.changes and directory.log.ended is None, "a transaction is prepared"
    for space in directory.spaces.values():
        for page in range(space.pages()):
            if space.stored(page):
                space.page(page)
    assert {space for space, _ in directory.hot_pages()} <= set(directory.spaces)
    directory.undo_logs()


def one_size(size, operations):
    options = [f"--loose-myriad-page-size={size}", "--loose-myriad-log-capacity=64M", "--loose-myriad-buffer-pool-warm-up=OFF"]
    with server.Server("MYRIAD", options=options, pool_mib=32) as where:
        folder = os.path.join(where.datadir, "#myriad")
        fill(where)
        expected = sorted(where.query("SELECT id, a, name, note FROM t", "d"))
        where.kill()
        after_a_crash(folder, expected, operations)
        where.start()
        where.stop()
        where.pool_mib = 5
        where.start()
        change(where)
        where.kill()
        directory, states = after_a_crash(folder, expected, operations)
        rows = clustered(directory, "d", "big")
        key = lambda number: (number + (1 << 63)).to_bytes(8, "big")  # noqa: E731
        assert states[rows[key(-1)].transaction] == 1, "the transaction that is prepared"
        assert states[rows[key(6000)].transaction] == 0, "the transaction that is active"
        assert sum(not value.deleted for value in rows.values()) == 6000 + 100 - 101 + 1
        where.options[-1] = "--loose-myriad-buffer-pool-warm-up=ON"
        where.start()
        assert sorted(where.query("SELECT id, a, name, note FROM t", "d")) == expected
        where.stop()
        after_a_stop(folder, expected)


def main():
    failed, operations = 0, {}
    for size in SIZES:
        try:
            one_size(size, operations)
        except Exception:
            failed += 1
            print(f"FAIL pages of {size} bytes: {traceback.format_exc()}")
    lacking = OPERATIONS - set(operations)
    if lacking and not failed:
        failed += 1
        print(f"FAIL no log had operations {sorted(lacking)}: what the page says of them was not tried")
    print(f"{len(SIZES) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    server.main_guard(main)
