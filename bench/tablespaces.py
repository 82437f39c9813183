"""Folders with very many tablespace files: copies of a file that a real server made, each with an id of its own.

An id changes a few bytes and, through them, checksums. A checksum of this kind is a linear function: what a bit of the id
changes is the same whatever the other bits are. So 33 pages are made in full and every other one is their XOR.
"""
import os
import shutil
import struct

import measure  # noqa: F401  (makes `server` importable)
import server

TABLES_PER_DATABASE = 1000
POLYNOMIAL = 0x82f63b78


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _crc_table()


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xff] ^ crc >> 8
    return crc ^ 0xffffffff


def innodb_page(base, space_id):
    """Page 0 of MariaDB's full_crc32 format: the id at 34 and 38, the checksum of all before it in the last four bytes."""
    page = bytearray(base)
    page[34:42] = struct.pack(">II", space_id, space_id)
    page[-4:] = struct.pack(">I", crc32c(page[:-4]))
    return bytes(page)


def myriad_page(base, space_id):
    """Page 0 of a Myriad tablespace: the id at 8 and 36, the UUID from 40, the header's CRC at 68, the page's at 0."""
    page = bytearray(base)
    page[8:12] = page[36:40] = page[40:44] = struct.pack("<I", space_id)
    page[68:72] = struct.pack("<I", crc32c(page[24:68]))
    page[0:4] = struct.pack("<I", crc32c(page[4:]))
    return bytes(page)


class Pages:
    """Page 0 for any id."""

    def __init__(self, make, base):
        self.size = len(base)
        self.zero = int.from_bytes(make(base, 0), "little")
        self.bits = [self.zero ^ int.from_bytes(make(base, 1 << bit), "little") for bit in range(32)]
        for probe in (77, 123456, 0xfffffffe):
            assert self.page(probe) == make(base, probe), "a checksum is not linear"

    def page(self, space_id):
        number = self.zero
        for bit in range(32):
            if space_id >> bit & 1:
                number ^= self.bits[bit]
        return number.to_bytes(self.size, "little")


def page_size_of(fmt, head):
    if fmt == "myriad":
        return struct.unpack_from("<I", head, 56)[0]
    flags = struct.unpack_from(">I", head, 54)[0]
    if not flags & 0x10:
        raise server.ServerError(f"the server's .ibd file is not of the full_crc32 format (flags {flags:#x})")
    return 512 << (flags & 0xf)


def real_files():
    """{format: (first page, length)} of a small table's file, as a server left it."""
    with server.Server("MYRIAD", options=["--loose-myriad-tablespace-per=TABLE"]) as srv:
        srv.query("CREATE DATABASE d")
        for engine, table in (("MYRIAD", "m"), ("InnoDB", "i")):
            srv.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(80), KEY (name)) ENGINE={engine}", "d")
            srv.query(f"INSERT INTO {table} VALUES (1, 'one')", "d")
        srv.stop()
        folder = os.path.join(srv.datadir, "#myriad")
        found = {"innodb": os.path.join(srv.datadir, "d", "i.ibd")}
        for root, _, names in os.walk(folder):
            for name in names:
                if name.endswith(".myr") and "system" not in name:
                    found["myriad"] = os.path.join(root, name)
        pages = {}
        for fmt, path in found.items():
            with open(path, "rb") as f:
                head = f.read(4096)
                f.seek(0)
                pages[fmt] = (f.read(page_size_of(fmt, head)), os.path.getsize(path))
    if set(pages) != {"innodb", "myriad"}:
        raise server.ServerError("the server left no tablespace file of Myriad's")
    return pages


def path_of(fmt, number, count):
    """Names whose order is not that of creation, as in a data directory that has grown."""
    mixed = number * 7919 % count if count % 7919 else number
    if fmt == "myriad":
        return os.path.join("#myriad", f"s{mixed:07}.myr")
    return os.path.join(f"db{number // TABLES_PER_DATABASE:05}", f"t{mixed:07}.ibd")


def make_folder(folder, fmt, count, base, length):
    """`count` files; nothing if they are there already. Page 0 is on the disk, the rest of each file is a hole."""
    done = os.path.join(folder, f"made-{count}")
    if os.path.exists(done):
        return
    shutil.rmtree(folder, ignore_errors=True)
    pages = Pages(innodb_page if fmt == "innodb" else myriad_page, base)
    made = set()
    for number in range(count):
        path = os.path.join(folder, path_of(fmt, number, count))
        parent = os.path.dirname(path)
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        try:
            os.write(fd, pages.page(number + 100))
            os.ftruncate(fd, length)
        finally:
            os.close(fd)
    os.sync()
    with open(done, "w"):
        pass
