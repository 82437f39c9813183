"""Reads a stopped data directory as docs/format.md tells it, and nothing else: no code, constant or knowledge of the engine.

What the page says must hold is asserted while reading, so that a change of the format that the page does not tell fails here.
"""
import os
import struct

NONE = 0xFFFFFFFF
LOG_AT, LOG_START = 8192, 4096


def crc_of(byte):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


CRC = [crc_of(byte) for byte in range(256)]
CRC_PAIR = [CRC[CRC[pair & 255] & 255 ^ pair >> 8] ^ CRC[pair & 255] >> 8 for pair in range(65536)]   # two bytes at a time


def crc32c(data):
    crc = NONE
    if len(data) % 2:
        crc, data = CRC[(crc ^ data[0]) & 255] ^ (crc >> 8), data[1:]
    for (pair,) in struct.iter_unpack("<H", data):
        crc = CRC_PAIR[(crc ^ pair) & 65535] ^ (crc >> 16)
    return crc ^ NONE


def u16(data, at):
    return int.from_bytes(data[at:at + 2], "little")


def u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def u48(data, at):
    return int.from_bytes(data[at:at + 6], "little")


def u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


class Bytes:
    """Bytes read from front to end."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        assert self.at + length <= len(self.data), f"{length} bytes wanted, {len(self.data) - self.at} left"
        self.at += length
        return self.data[self.at - length:self.at]

    def number(self, length):
        return int.from_bytes(self.take(length), "little")

    def varint(self):
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def string(self):
        return self.take(self.varint())

    def rest(self):
        return self.take(len(self.data) - self.at)

    def left(self):
        return len(self.data) - self.at

    def end(self):
        assert not self.left(), f"{self.left()} bytes more than the page tells of"


# Index pages

class Index:
    """An index page's content, without where it lies in the page."""

    def __init__(self, bounds=None):
        self.entries = []                    # (suffix, value of a leaf or child)
        if bounds is not None:
            self.bound(bounds)

    def bound(self, bounds, level=True):
        new = bounds.number(1)
        self.level = new if level else self.level
        self.flags, self.leftmost = bounds.number(1), bounds.number(4)
        self.low, self.high = bounds.string(), bounds.string()
        length = prefix_length(self.low, self.high)
        self.prefix = self.low[:length]

    def key(self, number):
        return self.prefix + self.entries[number][0]

    def children(self):
        """(least key, child) for each child; that of the leftmost is the low fence."""
        return [(self.low, self.leftmost)] + [(self.prefix + suffix, child) for suffix, child in self.entries]


def prefix_length(low, high):
    length = 0
    while length < min(len(low), len(high)) and low[length] == high[length]:
        length += 1
    if length + 1 == len(high) and length < len(low) and high[length] == low[length] + 1:
        length += 1
    return length


def parse_index(page):
    """The content of an index page, all that is told of its bytes asserted."""
    index = Index()
    size = len(page)
    index.level, index.flags, index.leftmost = page[13], page[14], u32(page, 44)
    slots, prefix, top, dead, low, high = (u16(page, 24), u16(page, 26), u32(page, 28), u16(page, 32), u16(page, 34), u16(page, 36))
    assert page[15] == 0 and page[42:44] == b"\0\0", "bytes 15, 42 and 43 are zero"
    assert index.flags < 8
    index.low, index.high = page[size - low - high:size - high], page[size - high:]
    assert prefix == prefix_length(index.low, index.high), f"prefix {prefix} of {index.low.hex()} and {index.high.hex()}"
    index.prefix = index.low[:prefix]
    assert index.high or index.flags & 2, "an empty high fence on a page that is not rightmost"
    heap_end, live = size - low - high, 0
    assert 48 + 8 * slots <= top <= heap_end
    for slot in range(slots):
        offset, length = u16(page, 48 + 8 * slot), u16(page, 50 + 8 * slot)
        head = u32(page, 52 + 8 * slot).to_bytes(4, "big")
        assert head[length:].strip(b"\0") == b"", "the head is padded with zeros"
        rest = max(0, length - 4)
        assert offset >= top
        if index.level:
            suffix = head[:length] + page[offset + 4:offset + 4 + rest]
            value, used = u32(page, offset), -(-(4 + rest) // 4) * 4
            assert offset % 4 == 0 and not page[offset + 4 + rest:offset + used].strip(b"\0")
        else:
            suffix = head[:length] + page[offset:offset + rest]
            at = offset + rest
            length = page[at]
            if length > 127:
                length = (length & 127) << 8 | page[at + 1]
                at += 1
                assert length > 127, "two bytes of length where one would do"
            value, used = bytes(page[at + 1:at + 1 + length]), at + 1 + length - offset
            assert len(index.prefix + suffix) + len(value) <= size * 7 // 16
        assert offset + used <= heap_end
        assert len(index.prefix + suffix) <= min(size * 7 // 32, 7168)
        live += used
        index.entries.append((bytes(suffix), value))
    slack = heap_end - top - dead - live
    assert 0 <= slack < (4 if index.level else 1), f"{live} live and {dead} dead bytes do not fill the heap from {top} to {heap_end}"
    keys = [index.key(number) for number in range(slots)]
    assert all(a < b for a, b in zip(keys, keys[1:])), "keys in order"
    assert not keys or keys[0] >= index.low and (not index.high or keys[-1] < index.high), "keys within the fences"
    return index


# Pages, redone from the log where they have to be

class Space:
    def __init__(self, directory, number, path, uuid):
        self.directory, self.number, self.path, self.cache = directory, number, path, {}
        self.size = directory.page_size
        self.file = open(path, "rb")
        head = self.file.read(4096)
        assert head[24:32] == b"MYRIADTS" and u32(head, 32) == 1 and u32(head, 36) == number, path
        assert head[12] == 1 and u64(head, 16) == 0 and head[13:16] == b"\0\0\0"
        assert head[40:56] == uuid and u32(head, 56) == self.size, f"UUID and page size of {path}"
        assert u32(head, 68) == crc32c(head[24:68]), "the header's own checksum"
        assert not head[72:256].strip(b"\0")

    def pages(self):
        return os.fstat(self.file.fileno()).st_size // self.size

    def stored(self, number):
        """The page as the file has it; None if it was never written."""
        self.file.seek(number * self.size)
        page = self.file.read(self.size)
        if not page.strip(b"\0"):
            return None
        assert u32(page, 4) == number and u32(page, 8) == self.number, f"identity of page {number} of {self.path}"
        assert u32(page, 0) == crc32c(page[4:]), f"checksum of page {number} of {self.path}"
        assert page[12] <= 7 and (page[12] == 3 or page[13:16] == b"\0\0\0")
        return page

    def page(self, number):
        """Bytes, or an Index, after redo."""
        if number not in self.cache:
            page = self.stored(number)
            for lsn, operation, payload in self.directory.changes.get((self.number, number), ()):
                if isinstance(page, bytes):
                    if lsn <= u64(page, 16):
                        continue
                    page = RedonePage(page)
                page = page or RedonePage(bytearray(self.size))
                page.apply(operation, payload, self.number, number)
            if isinstance(page, RedonePage):
                page = page.index or bytes(page.raw)
            elif page and page[12] == 3:
                page = parse_index(page)
            self.cache[number] = page
        return self.cache[number]

    def index(self, number):
        page = self.page(number)
        assert isinstance(page, Index), f"page {number} of {self.path} is no index page"
        return page


class RedonePage:
    """A page to which the log's operations are applied."""

    def __init__(self, page):
        self.raw = bytearray(page)
        self.index = parse_index(page) if page[12] == 3 else None

    def apply(self, operation, payload, space, number):
        p = Bytes(payload)
        getattr(self, f"op_{operation}")(p)
        p.end()

    def kind(self, kind, index=None):
        self.raw[12:16] = bytes([kind, 0, 0, 0])
        self.raw[24:] = bytes(len(self.raw) - 24)
        self.index = index

    def op_0(self, p):
        self.kind(p.number(1))

    def op_1(self, p):
        at, data = p.varint(), p.rest()
        assert self.index is None and at >= 12 and not (at < 24 and at + len(data) > 16) and at + len(data) <= len(self.raw)
        self.raw[at:at + len(data)] = data

    def op_2(self, p):
        at, length = p.varint(), p.varint()
        assert self.index is None and at >= 24 and at + length <= len(self.raw)
        self.raw[at:at + length] = p.take(1) * length

    def op_4(self, p):
        header, start, end, body = p.take(4), p.varint(), p.varint(), p.rest()
        assert len(body) == len(self.raw) - 24 - (end - start)
        page = bytearray(self.raw[:12] + header + self.raw[16:24]) + body[:start - 24] + bytes(end - start) + body[start - 24:]
        self.__init__(page)

    def op_16(self, p):
        self.kind(3, Index(p))

    def op_17(self, p):
        self.op_16(p)
        self.op_18(p)

    def op_18(self, p):
        while p.left():
            length = p.varint()
            if self.index.level:
                child = p.number(4)
                self.index.entries.append((p.take(length), child))
            else:
                value = p.varint()
                self.index.entries.append((p.take(length), p.take(value)))

    def op_19(self, p):
        slot = p.number(2)
        self.index.entries.insert(slot, (p.string(), p.rest()))

    def op_20(self, p):
        slot = p.number(2)
        number = p.number(2) if p.left() else 1
        assert slot + number <= len(self.index.entries)
        del self.index.entries[slot:slot + number]

    def op_21(self, p):
        slot = p.number(2)
        self.index.entries[slot] = self.index.entries[slot][0], p.rest()

    def op_22(self, p):
        slot, at, data = p.number(2), p.varint(), p.rest()
        suffix, value = self.index.entries[slot]
        assert at + len(data) <= len(value)
        self.index.entries[slot] = suffix, value[:at] + data + value[at + len(data):]

    def op_23(self, p):
        first, end, old = p.number(2), p.number(2), self.index
        keys = [(old.key(slot), old.entries[slot][1]) for slot in range(first, end)]
        old.bound(p, level=False)
        assert all(key.startswith(old.prefix) for key, _ in keys)
        old.entries = [(key[len(old.prefix):], value) for key, value in keys]

    def op_24(self, p):
        slot, child = p.number(2), p.number(4)
        self.index.entries.insert(slot, (p.rest(), child))

    def op_25(self, p):
        number, child = p.number(2), p.number(4)
        if number:
            self.index.entries[number - 1] = self.index.entries[number - 1][0], child
        else:
            self.index.leftmost = child

    def op_26(self, _):
        self.kind(0)

    def find(self, key):
        assert key.startswith(self.index.prefix), "the key is not of this page"
        suffix = key[len(self.index.prefix):]
        slot = sum(entry[0] < suffix for entry in self.index.entries)
        there = slot < len(self.index.entries) and self.index.entries[slot][0] == suffix
        return slot, suffix, there

    def op_27(self, p):
        slot, suffix, there = self.find(p.string())
        self.index.entries[slot:slot + there] = [(suffix, p.rest())]

    def word(self, p, clear):
        word, mask = p.number(2), p.number(8)
        at = 40 + 8 * word
        old = u64(self.raw, at)
        assert (old & mask) == (mask if clear else 0), "bits of pages that were already so"
        new = old & ~mask if clear else old | mask
        self.raw[at:at + 8] = new.to_bytes(8, "little")
        number = u32(self.raw, 28) + (-1 if clear else 1) * bin(mask).count("1")
        self.raw[28:32] = number.to_bytes(4, "little")
        full = u32(self.raw, 24)
        if clear:
            full = min(full, word)
        else:
            while 40 + 8 * full < len(self.raw) and u64(self.raw, 40 + 8 * full) == 2 ** 64 - 1:
                full += 1
        self.raw[24:28] = full.to_bytes(4, "little")

    def op_32(self, p):
        self.word(p, False)

    def op_33(self, p):
        self.word(p, True)

    def op_40(self, p):
        following, data = p.number(4), p.rest()
        self.kind(4)
        self.raw[24:32 + len(data)] = following.to_bytes(4, "little") + len(data).to_bytes(4, "little") + data

    def op_41(self, p):
        self.raw[24:28] = p.take(4)

    def op_64(self, p):
        self.kind(5)
        slot, previous, last = p.take(4), p.take(4), p.take(12)
        self.raw[24:28], self.raw[28:32], self.raw[32:36] = b"\xff" * 4, previous, slot
        self.raw[36:40], self.raw[40:52] = (56).to_bytes(4, "little"), last

    def op_65(self, p):
        body, end = p.rest(), u32(self.raw, 36)
        frame = (len(body) + 4).to_bytes(2, "little")
        self.raw[end:end + len(body) + 4] = frame + body + frame
        self.raw[36:40] = (end + len(body) + 4).to_bytes(4, "little")

    def op_66(self, p):
        at, body = u32(self.raw, 36), p.data
        self.op_65(p)
        self.raw[40:44], self.raw[44:46] = self.raw[4:8], at.to_bytes(2, "little")
        self.raw[46:52] = body[8:14]

    def op_67(self, p):
        self.raw[36:40] = p.take(4)

    def op_68(self, p):
        at = p.number(2)
        self.raw[at + 3:at + 10] = p.take(7)

    def op_69(self, p):
        self.raw[p.number(2) + 3] |= 4

    def op_80(self, p):
        transaction, row_key = p.take(6), p.number(1)
        slot, suffix, there = self.find(p.rest())
        if there and not self.index.entries[slot][1][0] & 1:
            old = self.index.entries[slot][1]
            body = split_value(old)
            short = row_key if row_key < 15 else 15
            head = bytes([1 | 2 | 8 | (old[0] & 4) | short << 4]) + transaction + (bytes([row_key]) if short == 15 else b"")
            self.index.entries[slot] = suffix, head + old[body.at:]

    def op_81(self, p):
        transaction, pointer = p.number(6), p.number(6)
        slot, _, there = self.find(p.rest())
        if there:
            value = split_value(self.index.entries[slot][1])
            if value.deleted and value.transaction == transaction and not value.overflow and value.pointer in (None, pointer):
                del self.index.entries[slot]


class Value:
    pass


def split_value(data):
    """The header of a leaf entry's value; `at` is where its body begins."""
    p, value = Bytes(data), Value()
    flags = p.number(1)
    value.deleted, value.overflow, value.short = bool(flags & 1), bool(flags & 4), bool(flags & 8)
    value.transaction = value.pointer = None
    assert not value.short or flags & 2, "short entries are versioned"
    assert value.short or flags < 16, "unknown flags"
    assert not value.deleted or flags & 2, "a delete mark has a version"
    if flags & 2:
        value.transaction = p.number(6)
        if not value.short:
            value.pointer = p.number(6)
        elif flags >> 4 == 15:
            p.number(1)
    value.at, value.body = p.at, data[p.at:]
    return value


# The log

class Log:
    def __init__(self, path, uuid):
        with open(path, "rb") as f:
            self.data = f.read()
        slots = []
        for at in (0, 4096):
            slot = self.data[at:at + 4096]
            assert slot[:8] == b"MYRIADLG" and u32(slot, 4092) == crc32c(slot[:4092]), f"header at {at}"
            slots.append(slot)
        slot = max(slots, key=lambda slot: u64(slot, 40))
        number, flags, notes = u32(slot, 12), u32(slot, 60), u32(slot, 56)
        assert u32(slot, 8) == (2 if flags else 1) and 1 <= number <= 250 and flags <= 1 and notes <= 1024
        assert slot[16:32] == uuid
        self.flags, self.capacity, self.checkpoint = flags, u64(slot, 32), u64(slot, 48)
        assert self.capacity % 4096 == 0 and LOG_AT + self.capacity == len(self.data)
        assert not slot[64 + notes:1088].strip(b"\0") and not slot[1088 + 12 * number:4092].strip(b"\0")
        self.generations = [(u64(slot, at), u32(slot, at + 8)) for at in range(1088, 1088 + 12 * number, 12)]
        assert self.generations == sorted(self.generations)
        self.ended = self.read_notes(Bytes(slot[64:64 + notes]))
        self.end = self.checkpoint

    @staticmethod
    def read_notes(p):
        """The log's end at which every transaction had ended, or None."""
        ended = None
        if p.left() and p.data[0] == 2:
            p.take(1)
            ended = p.number(8)
        if p.left():
            assert p.number(1) == 1
            while p.left():
                p.varint()
                for _ in range(p.varint()):
                    p.varint()
        return ended

    def at(self, lsn, length):
        at = lsn % self.capacity
        both = self.data[LOG_AT + at:LOG_AT + at + length]
        return both + self.data[LOG_AT:LOG_AT + length - len(both)]

    def frames(self):
        """(end LSN, body) of each frame from the checkpoint on."""
        lsn = self.checkpoint
        while True:
            assert lsn % 8 == 0
            head = self.at(lsn, 8)
            length, checksum = u32(head, 0), u32(head, 4)
            generation = [number for first, number in self.generations if first <= lsn][-1]
            if not 0 < length < self.capacity:
                break
            body = self.at(lsn + 8, length)
            if crc32c(struct.pack("<QII", lsn, generation, length) + body) != checksum:
                break
            end = lsn + 8 + -(-length // 8) * 8
            assert not self.at(lsn + 8 + length, end - lsn - 8 - length).strip(b"\0"), "zeros up to a multiple of 8"
            yield end, body
            lsn = self.end = end

    def records(self):
        """(end LSN of the frame, tablespace, page, operation, payload)"""
        for lsn, body in self.frames():
            p, place = Bytes(body), None
            while p.left():
                operation = p.number(1)
                if operation & 128:
                    assert place, "the first record names its page"
                else:
                    place = p.varint(), p.varint()
                yield lsn, place[0], place[1], operation & 127, p.string()


# The directory

class Table:
    pass


class Directory:
    def __init__(self, path):
        self.path, self.changes, self.spaces, self.operations = path, {}, {}, {}
        with open(os.path.join(path, "FORMAT")) as f:
            lines = dict(line.split() for line in f)
        assert lines["myriad"] == "2"
        self.page_size, self.uuid = int(lines["page_size"]), bytes.fromhex(lines["uuid"])
        self.log = Log(os.path.join(path, "redo.log"), self.uuid)
        for lsn, space, page, operation, payload in self.log.records():
            self.changes.setdefault((space, page), []).append((lsn, operation, payload))
            self.operations[operation] = self.operations.get(operation, 0) + 1
        self.rows = {}
        for number, name in ((0, "system.myr"), (1, "undo.myr")):
            uuid = self.uuid[:15] + bytes([self.uuid[15] ^ (number + 1)])
            self.spaces[number] = Space(self, number, os.path.join(path, name), uuid)

    # Trees

    def leaves(self, space, root, low=b"", high=b"", level=None):
        """(key, value) of all leaf entries below a page, everything told of trees asserted on the way."""
        page = self.spaces[space].index(root)
        assert level is None or page.flags & 4 or page.level == level
        if not page.flags & 1:
            assert page.low == low, f"low fence {page.low.hex()} below {low.hex()}"
        if not page.flags & 2:
            assert page.high == high, f"high fence {page.high.hex()} below {high.hex()}"
        if not page.level:
            for number in range(len(page.entries)):
                yield page.key(number), page.entries[number][1]
            return
        children = page.children()
        for number, (least, child) in enumerate(children):
            most = children[number + 1][0] if number + 1 < len(children) else page.high
            yield from self.leaves(space, child, least, most, page.level - 1)

    def index(self, space, root, number):
        """(key without index id, Value) of an index's entries, bodies whole."""
        prefix = number.to_bytes(4, "big")
        for key, data in self.leaves(space, root):
            if key[:4] == prefix:
                value = split_value(data)
                value.payload = self.payload(space, value)
                yield key[4:], value

    def payload(self, space, value):
        if not value.overflow:
            return value.body
        length, page, payload = u32(value.body, 0), u32(value.body, 4), value.body[8:]
        assert len(payload) <= length
        while page != NONE:
            raw = self.spaces[space].page(page)
            assert raw[12] == 4, f"page {page} of a chain is of kind {raw[12]}"
            used = u32(raw, 28)
            assert not raw[32 + used:].strip(b"\0")
            payload, page = payload + raw[32:32 + used], u32(raw, 24)
        assert len(payload) == length, f"{len(payload)} bytes in a chain of {length}"
        return payload

    # Catalog

    def read_catalog(self):
        self.catalog = {number: [] for number in range(1, 10)}
        for key, data in self.leaves(0, 2):
            number = int.from_bytes(key[:4], "big")
            value = split_value(data)
            if not value.deleted:
                self.catalog[number].append((key[4:], Bytes(self.payload(0, value))))
        self.tables = dict(self.read_table(key, p) for key, p in self.catalog[1])
        self.shapes = {}
        for key, p in self.catalog[2]:
            assert p.number(1) == 1
            self.shapes[int.from_bytes(key, "big")] = p.rest()
        for key, p in self.catalog[3]:
            number = int.from_bytes(key, "big")
            assert p.number(1) == 1
            state, uuid, _guests, path, _database = p.number(1), p.take(16), p.varint(), p.string().decode(), p.string()
            p.end()
            assert 1 <= state <= 4
            if number >= 16 and state == 2:
                self.spaces[number] = Space(self, number, os.path.join(self.path, path), uuid)
        self.databases = {}
        for key, p in self.catalog[4]:
            assert p.number(1) == 1 and key[-1] == 0
            self.databases[key[:-1].decode()] = p.varint()
            p.end()
        for key, p in self.catalog[6]:
            assert len(key) == 1 and 1 <= key[0] <= 3 and p.number(1) == 1
            p.varint()
            p.end()
        self.hashes = {int.from_bytes(key[8:], "big"): int.from_bytes(key[:8], "big") for key, p in self.catalog[7]}
        self.references = sorted(tuple(part.decode() for part in key.split(b"\0")[:4]) for key, _ in self.catalog[9])

    def read_table(self, key, p):
        database, name, nothing = key.split(b"\0")
        assert nothing == b""
        table = Table()
        version, flags = p.number(1), p.number(1)
        table.flags, table.id, table.definition, table.space, table.shape = flags, p.varint(), p.varint(), p.varint(), p.varint()
        table.image_length = p.varint()
        table.patch = p.take(16) if flags & 16 else b""
        table.created = p.varint()
        table.indexes = [(p.varint(), p.varint(), p.number(1)) for _ in range(p.varint())]
        table.counter = (p.varint(), p.varint()) if flags & 8 else None
        table.foreign_keys = []
        if flags & 32:
            for _ in range(p.varint()):
                names = tuple(p.string().decode() for _ in range(3))
                rules = p.number(1), p.number(1)
                table.foreign_keys.append((*names, *rules, [(p.string(), p.string()) for _ in range(p.varint())]))
        table.layouts = p.string() if flags & 64 else b""
        p.end()
        assert version == (3 if flags & 64 else 2 if flags & 32 else 1)
        return (database.decode(), name.decode()), table

    # Undo

    def undo_logs(self):
        """(transaction, state, records) of the logs in all slots; a record is (kind, flags, tablespace, root, key)."""
        undo = self.spaces[1]
        first = undo.page(1)
        assert first[24:32] == b"MYRUNDO1"
        slots, a_page = u32(first, 52), (self.page_size - 64) // 8
        assert all(undo.page(number)[12] == 6 for number in range(1, 9))
        assert u64(first, 56) == self.log.generations[-1][0], "the directory notes the log's last generation"
        logs = []
        for slot in range(slots):
            place = 64 + 8 * (slot % a_page)
            head, tail = u32(undo.page(1 + slot // a_page), place), u32(undo.page(1 + slot // a_page), place + 4)
            assert (head == NONE) == (tail == NONE)
            page, last = head, None
            while page != NONE:
                raw, last = undo.page(page), page
                assert raw[12] == 5 and u32(raw, 32) == slot
                at, end = 56, u32(raw, 36)
                while at < end:
                    length = u16(raw, at)
                    assert u16(raw, at + length - 2) == length, "a record's length, before and behind it"
                    self.undo_record(logs, Bytes(raw[at + 2:at + length - 2]))
                    at += length
                assert at == end
                if logs and u16(raw, 44):
                    assert u48(raw, 46) == logs[-1][0], "the last log's transaction"
                page = u32(raw, 24) if page != tail else NONE
            assert last is None or last == tail
        return logs

    @staticmethod
    def undo_record(logs, p):
        kind = p.number(1)
        if kind == 1:
            state, _page, _offset, transaction = p.number(1), p.number(4), p.number(2), p.number(6)
            assert state <= 2
            p.end()
            logs.append([transaction, state, []])
        elif kind == 4:
            assert len(p.rest()) <= 255
        else:
            assert kind in (2, 3)
            flags, space, root, key = p.number(1), p.varint(), p.varint(), p.string()
            if flags & 8:
                assert p.varint() <= len(key)
            if kind == 3:
                entry = p.number(1)
                assert entry < 16
                p.number(6), p.number(6), p.varint(), p.varint(), p.rest()
            p.end()
            if logs:      # what is before the first header is the rest of a log whose pages were freed
                logs[-1][2].append((kind, flags, space, root, key))

    # Whole files

    def check_bitmaps(self, space):
        """The pages that are in use; those of the tree and its chains have to be among them."""
        group = (self.page_size - 40) // 8 * 64
        used, groups = set(), None
        for number in range(0, 1 << 20):
            if groups is not None and number >= groups:
                break
            raw = self.spaces[space].page(number * group + 1)
            assert raw[12] == 2 and u32(raw, 36) == 0
            groups = u32(raw, 32) if number == 0 else groups
            words = [u64(raw, 40 + 8 * word) for word in range(group // 64)]
            full = u32(raw, 24)
            assert all(word == 2 ** 64 - 1 for word in words[:full])
            here = {number * group + 64 * extent + bit for extent, word in enumerate(words) if word
                    for bit in range(64) if word >> bit & 1}
            assert len(here) == u32(raw, 28), "pages in use in the group"
            used |= here
        assert {0, 1, 2} <= used
        return used

    def check_doublewrite(self):
        """How many copies the doublewrite file has."""
        with open(os.path.join(self.path, "doublewrite"), "rb") as f:
            head = f.read(self.page_size)
            assert head[:8] == b"MYRIADDW" and u32(head, 8) == 1 and u32(head, 12) == self.page_size and head[16:32] == self.uuid
            assert u32(head, 4092) == crc32c(head[:4092]) and not head[32:4092].strip(b"\0") and not head[4096:].strip(b"\0")
            copies = 0
            while page := f.read(self.page_size):
                if page.strip(b"\0") and copies < 200:
                    assert u32(page, 0) == crc32c(page[4:]) and u32(page, 8) in self.spaces
                    copies += 1
        return copies

    def hot_pages(self):
        with open(os.path.join(self.path, "hot_pages"), "rb") as f:
            data = f.read()
        assert data[:8] == b"MYRIADHP" and u32(data, 8) == 1 and u32(data, 12) == self.page_size
        ids = [u64(data, at) for at in range(32, len(data), 8)]
        assert len(ids) == u64(data, 16) and ids == sorted(ids)
        assert u32(data, 24) == crc32c(data[32:]) and u32(data, 28) == crc32c(data[:28])
        return [(one >> 32, one & NONE) for one in ids]


def image_hash(data):
    """The hash of a shape's image."""
    mask = 2 ** 64 - 1
    h = len(data)
    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at:at + 8].ljust(8, b"\0"), "little")
        h = ((h << 5 | h >> 59) & mask) ^ word
        for shift, factor in ((33, 0xff51afd7ed558ccd), (33, 0xc4ceb9fe1a85ec53)):
            h = (h ^ h >> shift) * factor & mask
        h = (h ^ h >> 33) + 0x9e3779b97f4a7c15 & mask
    return h
