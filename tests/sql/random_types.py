#!/usr/bin/python3
"""The same random statements on the same tables in Myriad and in InnoDB: rows, counts, insert ids, errors and warnings are the same.

Every column type with values at its edges, texts of all character sets and collations, as keys of every kind: whole, a prefix,
descending, composite, unique, clustered, of generated columns. Plans may differ: where InnoDB's own answer depends on its
indexes (a prefix of contracting text, a literal that a key rounds), nothing is compared. Beside it, what is unique in a
collation, and the order of its indexes.
Usage: random_types.py [--rounds N] [--seed N] [--collations N]"""
import argparse
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import server  # noqa: E402
from server import pymysql  # noqa: E402

TABLES, ROWS, STATEMENTS = 3, 40, 100
SYLLABLES = ["", " ", "  ", "\t", "\x01", "\x00", "a", "A", "á", "ä", "æ", "ae", "ß", "ss", "aa", "å", "b", "B", "c", "ch", "CH", "h", "z",
             "ž", "cs", "dzs", "lj", "nj", "_", "%", "\\", "'", "-", "0", "1", "10", "i", "İ", "ı", "x", "เ", "ก", "แก", "กา", "ă",
             "ạ", "あ", "ア", "ｱ", "が", "ー", "日", "中", "啊", "가", "😀", "e\u0301", "\u0301", "\u00ad"]
# Those that weigh nothing count where the server sorts CHAR, and not where it compares it.
WEIGHING = [s for s in SYLLABLES if s not in ("\x00", "\x01", "\u00ad", "\u0301", "e\u0301")]
# Character set -> Python's name of it, bytes of a character.
CHARACTER_SETS = {
    "ascii": ("ascii", 1), "latin1": ("cp1252", 1), "latin2": ("iso8859-2", 1), "latin5": ("iso8859-9", 1), "greek": ("iso8859-7", 1),
    "cp1250": ("cp1250", 1), "cp1251": ("cp1251", 1), "cp850": ("cp850", 1), "hebrew": ("iso8859-8", 1), "utf8mb3": ("utf-8", 3),
    "utf8mb4": ("utf-8", 4), "ucs2": ("utf-16-be", 2), "utf16": ("utf-16-be", 4), "utf16le": ("utf-16-le", 4), "utf32": ("utf-32-be", 4),
    "gbk": ("gbk", 2), "gb2312": ("gb2312", 2), "sjis": ("shift_jis", 2), "cp932": ("cp932", 2), "big5": ("big5", 2),
    "euckr": ("euc_kr", 2), "ujis": ("euc_jp", 3), "eucjpms": ("euc_jp", 3)}
DATES = ["0000-00-00", "2020-00-00", "1000-01-01", "9999-12-31", "1970-01-01", "2024-02-29", "2021-02-30", "2038-01-19"]
TIMES = ["00:00:00", "23:59:59.999999", "12:34:56.5", "03:14:07", "00:00:00.000001"]
# Type -> literals. Of a fraction, all are as long as the type's: a key rounds longer ones, where a row is compared whole.
TYPES = {
    "TINYINT": "-128 127 0 1 -1 2 128 -129", "TINYINT UNSIGNED": "255 0 1 2 127 128 256 -1", "SMALLINT": "-32768 32767 0 1 -1 255 256",
    "MEDIUMINT": "-8388608 8388607 0 1 -1 65536", "INT": "-2147483648 2147483647 0 1 -1 5 7", "INT UNSIGNED": "4294967295 0 1 2147483648",
    "BIGINT": "-9223372036854775808 9223372036854775807 0 1 -1", "BIGINT UNSIGNED": "18446744073709551615 0 1 9223372036854775808",
    "MEDIUMINT UNSIGNED ZEROFILL": "16777215 0 1 65535", "DECIMAL(5,2)": "0 -0.00 999.99 -999.99 1.00 0.01 -0.01",
    "DECIMAL(65,30)": f"0 -0 1 -1 1.5 1.50 0.{'0' * 29}1 -0.{'0' * 29}1 {'9' * 35}.{'9' * 30} -{'9' * 35}.{'9' * 30}",
    "FLOAT": "0 -0e0 1e-45 -1e-45 3.4028234e38 1.5 -1.5", "FLOAT(7,3)": "0 -0e0 9999.999 -9999.999 0.5",
    "DOUBLE": "0 -0e0 5e-324 -5e-324 2.2e-308 1.7976931348623157e308 -1.7976931348623157e308 0.1 0.30000000000000004",
    "BIT(1)": "0 1 b'1'", "BIT(7)": "0 1 127 64", "BIT(33)": "0 1 4294967296 8589934591 256", "BIT(64)": "0 1 18446744073709551615 255",
    "YEAR": "0 1901 2155 '0' 70 69 2000", "DATE": [f"'{d}'" for d in DATES], "TIME": "'-838:59:59' '838:59:59' '0:0:0' '-0:0:1' '0:0:1'",
    "TIME(6)": "'-838:59:59.999999' '838:59:59.999999' '0:0:0' '-0:0:0.000001' '-0:0:1' '0:0:0.5'",
    "DATETIME": [f"'{d} {t[:8]}'" for d in DATES for t in TIMES], "DATETIME(6)": [f"'{d} {t}'" for d in DATES for t in TIMES],
    "TIMESTAMP(6)": [f"'{d} {t}'" for d in ("1970-01-01", "2023-03-26", "2023-10-29") for t in TIMES[1:]],
    "ENUM('','a','b','C','x y')": "'' 'a' 'A' 'c' 0 1 3 'zz'", "SET('a','b','c')": "'' 'a' 'a,b' 'c,a' 7 0 'd'",
    f"ENUM({','.join(f'{n!r}' for n in map('m{}'.format, range(300)))})": "'m0' 'm299' 255 256 257 0 'none' 'M9'",
    f"SET({','.join(f'{n!r}' for n in map('s{}'.format, range(64)))})": "'' 's0' 's63' 's0,s63' 18446744073709551615 's31,s32'",
    "INET4": "'0.0.0.0' '255.255.255.255' '1.2.3.4'", "INET6": "'::' '::1' '::ffff:1.2.3.4' '2001:db8::1' '2001:DB8::1' 'ffff::'",
    "UUID": "'00000000-0000-0000-0000-000000000000' '123e4567-e89b-12d3-a456-426655440001' '123E4567E89B12D3A456426655440000'"}
BYTES = [b"", b"\0", b"\0\0", b"a", b"A", b" ", b"\xff", b"ab", b"\1"]


def encoded(character_set, text):
    if character_set in ("utf8mb3", "ucs2"):
        text = "".join(c for c in text if c < "\U00010000")
    return text.encode(CHARACTER_SETS[character_set][0], "ignore")


def text_literal(chance, character_set, syllables=SYLLABLES):
    text = "".join(chance.choices(syllables, k=chance.randrange(4))) + chance.choice(["", "", "", " ", "\t"])
    return f"_{character_set} X'{encoded(character_set, text).hex()}'"


def bytes_literal(chance):
    return f"X'{b''.join(chance.choices(BYTES, k=chance.randrange(4))).hex()}'"


class Column:
    """`keys`: how much of it keys can have: 0 none, -1 the whole, n also a prefix of up to n characters."""

    def __init__(self, name, chance, collations):
        self.name, self.keys, self.needs_prefix = name, -1, False
        self.nullable = chance.random() < 0.6
        kind = chance.random()
        if kind < 0.45:
            self.type = self.family = chance.choice(list(TYPES))
            literals = TYPES[self.type]
            literals = literals.split(" ") if isinstance(literals, str) and "x y" not in self.type else literals
            self.literals = re.findall(r"'[^']*'|\S+", literals) if isinstance(literals, str) else literals
            # A TIMESTAMP that is not declared NULL has another default.
            self.nullable |= self.type.startswith("TIMESTAMP")
        elif kind < 0.9:
            self.text(chance, *chance.choice(collations))
        else:
            self.type = chance.choice(["BINARY(5)", "VARBINARY(5)", "VARBINARY(300)", "BLOB", "TINYBLOB"])
            self.family, self.keys, self.needs_prefix = "BYTES", 5, "BLOB" in self.type
            self.literals = [bytes_literal(chance) for _ in range(12)]
        self.literals = chance.sample(self.literals, min(len(self.literals), chance.randrange(3, 13)))

    def text(self, chance, collation, character_set):
        length = chance.choice([2, 5, 20, 60])
        shapes = [f"VARCHAR({length})", f"VARCHAR({length})", "TEXT", "LONGTEXT", f"VARCHAR({length}) COMPRESSED"]
        # The server compares CHAR without its spaces, but sorts it with them.
        if "nopad" not in collation:
            shapes += [f"CHAR({length})"] * 2
        shape = chance.choice(shapes)
        self.type, self.family = f"{shape} CHARACTER SET {character_set} COLLATE {collation}", collation
        self.needs_prefix = "TEXT" in shape
        # Of several levels of weights a prefix's come in another order.
        levels = re.search("_as_|_cs|_w2", collation)
        self.keys = 0 if "COMPRESSED" in shape or (levels and self.needs_prefix) else -1 if levels else length
        syllables = WEIGHING if shape.startswith("CHAR") else SYLLABLES
        self.literals = [text_literal(chance, character_set, syllables) for _ in range(12)]

    def value(self, chance):
        return chance.choice(self.literals) if chance.random() < 0.93 else "NULL"

    def declared(self):
        return f"{self.name} {self.type}{'' if self.nullable else ' NOT NULL'}{' NULL' * self.type.startswith('TIMESTAMP')}"

    def part(self, chance):
        cut = self.needs_prefix or self.keys > 1 and chance.random() < 0.3
        return f"{self.name}{f'({chance.randrange(1, self.keys)})' if cut else ''}{chance.choice(['', '', ' DESC'])}"


class Table:
    def __init__(self, name, chance, collations):
        self.name = name
        self.columns = [Column(f"c{n}", chance, collations) for n in range(chance.randrange(2, 6))]
        keyed = [c for c in self.columns if c.keys]
        self.body = ["id INT NOT NULL"] + [c.declared() for c in self.columns]
        # What is computed from CHAR depends on the mode.
        sources = [c for c in keyed if not c.type.startswith("CHAR")]
        if sources and chance.random() < 0.4:
            source = chance.choice(sources)
            expression, kind = chance.choice(["LENGTH({})", "{} IS NULL"]), chance.choice(["VIRTUAL", "STORED"])
            self.body.append(f"v INT AS ({expression.format(source.name)}) {kind}")
        parts = ["id"] + ["v"] * self.body[-1].startswith("v INT")
        solid = [c for c in keyed if not c.nullable]
        primary = chance.choice(["(id)", "(id DESC)", None] + [p for c in solid for p in (f"({c.part(chance)}, id)", f"({c.part(chance)})")])
        self.keys = ["UNIQUE KEY u (id)"] + ([f"PRIMARY KEY {primary}"] if primary else [])
        for n in range(chance.randrange(1, 6)):
            chosen = [c.part(chance) for c in chance.sample(keyed, min(len(keyed), chance.choice([1, 1, 2, 3])))]
            if not chosen or chance.random() < 0.2:
                chosen.insert(chance.randrange(len(chosen) + 1), chance.choice(parts))
            self.keys.append(f"{chance.choice(['', '', 'UNIQUE '])}KEY k{n} ({', '.join(chosen)})")
        self.names = [re.search(r"KEY (k\d+|u) ", key) for key in self.keys]
        self.names = [name.group(1) if name else "PRIMARY" for name in self.names]
        self.partitions = ""
        if chance.random() < 0.1 and primary in ("(id)", "(id DESC)"):
            self.keys = [key for key in self.keys if "UNIQUE" not in key]
            self.names = [name for name in self.names if any(f"{name} " in key or name == "PRIMARY" for key in self.keys)]
            self.partitions = " PARTITION BY HASH (id) PARTITIONS 3"
        self.own = f"id, {', '.join(c.name for c in self.columns)}"
        self.unique = sum("UNIQUE" in key or "PRIMARY" in key for key in self.keys)
        self.all = re.findall(r"^\w+", "\n".join(self.body), re.M)

    def create(self):
        return f"CREATE TABLE {self.name} ({', '.join(self.body + self.keys)}){self.partitions}"

    def hint(self, chance):
        return f" {chance.choice(['FORCE', 'IGNORE'])} INDEX ({chance.choice(self.names)})" if chance.random() < 0.6 else ""

    def row(self, chance, row_id=None):
        values = [c.value(chance) for c in self.columns]
        return f"({chance.randrange(60) if row_id is None else row_id}, {', '.join(values)})"

    def condition(self, chance, depth=0):
        kind = chance.random()
        if depth < 2 and kind < 0.25:
            return f"({self.condition(chance, depth + 1)} {chance.choice(['AND', 'OR'])} {self.condition(chance, depth + 1)})"
        if kind < 0.35:
            return f"id {chance.choice(['<', '>=', '<>'])} {chance.randrange(60)}"
        column, other = chance.choice(self.columns), chance.choice(self.columns)
        name = column.name

        def value(of=column):
            return chance.choice(of.literals)
        return chance.choice([
            lambda: f"{name} {chance.choice(['=', '<', '<=', '>', '>=', '<>', '<=>'])} {value()}",
            lambda: f"{name} {chance.choice(['', 'NOT '])}BETWEEN {value()} AND {value()}",
            lambda: f"{name} {chance.choice(['', 'NOT '])}IN ({', '.join(value() for _ in range(chance.randrange(1, 9)))})",
            lambda: f"{name} IS {chance.choice(['', 'NOT '])}NULL",
            lambda: f"{name} LIKE '{chance.choice(['a', 'c', '1', 'ch', chr(92) + '_', ''])}{chance.choice(['%', '_%', ''])}'",
            lambda: f"({name}, {other.name}) {chance.choice(['=', '<', '>='])} ({value()}, {value(other)})"])()


def norm(answer):
    return re.sub(r"\b(ours|theirs)\b", "D", repr(answer))


class Run:
    def __init__(self, srv, chance):
        self.chance, self.compared, self.unclear, self.reported = chance, 0, 0, 0
        self.connections = []
        for name, engine in (("ours", "MYRIAD"), ("theirs", "InnoDB")):
            srv.query(f"CREATE DATABASE {name}")
            connection = srv.connect(database=name, use_unicode=False, conv={})
            # Timestamps of the same session time zone; sorts of whole texts.
            self.ask(connection, f"SET default_storage_engine = {engine}, max_sort_length = 100000, time_zone = '+00:00'")
            self.connections.append(connection)
        usable = [row for row in srv.query("SELECT FULL_COLLATION_NAME, CHARACTER_SET_NAME FROM "
                                           "information_schema.COLLATION_CHARACTER_SET_APPLICABILITY") if row[1] in CHARACTER_SETS]
        self.collations = sorted(usable)
        # The many of Unicode 14 would be most of all.
        self.usual = [row for row in self.collations if "uca1400" not in row[0] or chance.random() < 0.1]

    @staticmethod
    def ask(connection, sql):
        """Rows or counts, or the error; and the warnings with their rows, but for those that tell how often a value was converted."""
        with connection.cursor() as cursor:
            try:
                cursor.execute(sql)
                answer = list(cursor.fetchall()) if cursor.description else (cursor.rowcount, cursor.lastrowid)
            except pymysql.err.MySQLError as problem:
                if problem.args[0] in (2006, 2013):
                    raise
                answer = f"error {problem.args}"
            warnings = []
            if sql.startswith(("INSERT", "UPDATE", "REPLACE", "DELETE")):
                cursor.execute("SHOW WARNINGS")
                for n, (_, code, message) in enumerate(cursor.fetchall()[:4]):
                    if code in (b"1292", b"1366", b"1411") and b" row " not in message:
                        continue
                    cursor.execute(f"GET DIAGNOSTICS CONDITION {n + 1} @row = ROW_NUMBER")
                    cursor.execute("SELECT @row")
                    warnings.append((code, message, cursor.fetchone()[0]))
            return answer, warnings

    def both(self, sql, table=None, ordered=True):
        ours, theirs = (self.ask(connection, sql) for connection in self.connections)
        self.compared += 1

        def comparable(answer):
            return norm((sorted(map(repr, answer[0])), answer[1]) if not ordered and isinstance(answer[0], list) else answer)
        if comparable(ours) != comparable(theirs) and not (sql.startswith("SELECT") and self.unsettled(sql, comparable)):
            self.report(sql, table, ours, theirs)
        return theirs

    def unsettled(self, sql, comparable):
        """Whether InnoDB's answer to the query depends on the indexes it uses."""
        table = next(t for t in self.tables if f"FROM {t.name}" in sql)
        plain = re.sub(r" (FORCE|IGNORE) INDEX \(\w+\)", "", sql)
        hints = [f" IGNORE INDEX ({', '.join(table.names)})"] + [f" FORCE INDEX ({name})" for name in table.names]
        answers = {comparable(self.ask(self.connections[1], plain.replace(f"FROM {table.name}", f"FROM {table.name}{hint}")))
                   for hint in hints}
        self.unclear += len(answers) > 1
        return len(answers) > 1

    def settled(self, table):
        """A condition that means the same rows by all of InnoDB's indexes."""
        while True:
            condition = table.condition(self.chance)
            if not self.unsettled(f"SELECT id FROM {table.name} WHERE {condition} ORDER BY id", norm):
                return condition

    def report(self, sql, table, ours, theirs):
        self.reported += 1
        print(f"  {sql[:1000]}\n    {table.create() if table else ''}\n    Myriad {str(ours)[:400]}\n    InnoDB {str(theirs)[:400]}", flush=True)

    def select(self, t):
        chance = self.chance
        what = chance.choice(["*", "*", ", ".join(chance.sample(t.all, 2)), f"id, HEX({chance.choice(t.columns).name})"])
        by = ", ".join(f"{name}{chance.choice(['', ' DESC'])}" for name in chance.sample(t.all, 2) + ["id"])
        limit = chance.choice(["", "", " LIMIT 1", " LIMIT 5", " LIMIT 20 OFFSET 3"])
        lock = chance.choice(["", "", " FOR UPDATE", " LOCK IN SHARE MODE"])
        self.both(f"SELECT {what} FROM {t.name}{t.hint(chance)} WHERE {t.condition(chance)} ORDER BY {by}{limit}{lock}", t)

    def group(self, t):
        chance = self.chance
        a, b = chance.choice(t.columns).name, chance.choice(t.columns).name
        where = f"{t.hint(chance)} WHERE {t.condition(chance)}"
        self.both(chance.choice([
            f"SELECT COUNT(*), MIN(id) FROM {t.name}{where} GROUP BY {a}",
            f"SELECT COUNT(*), MAX(id) FROM {t.name}{where} GROUP BY {a}, {b}",
            f"SELECT COUNT(DISTINCT {a}), COUNT({b}) FROM {t.name}{where}",
            f"SELECT COUNT(*) FROM {t.name} WHERE {a} = (SELECT {chance.choice(['MIN', 'MAX'])}({a}) FROM {t.name}{where})",
            f"SELECT COUNT(*), SUM(id) FROM {t.name} WHERE {a} IN (SELECT {a} FROM {t.name}{where})",
            f"SELECT id, RANK() OVER (ORDER BY {a}), COUNT(*) OVER (PARTITION BY {b}) FROM {t.name}{where}"]), t, False)

    def insert(self, t):
        chance = self.chance
        rows = ", ".join(t.row(chance) for _ in range(chance.choice([1, 1, 2, 5])))
        sets = ", ".join(f"{c.name} = {c.value(chance)}" for c in chance.sample(t.columns, chance.choice([1, 1, 2])))
        returning = f" RETURNING {t.own}" if chance.random() < 0.2 else ""
        self.both(chance.choice([
            f"INSERT {chance.choice(['', 'IGNORE '])}INTO {t.name} ({t.own}) VALUES {rows}{returning}",
            f"INSERT INTO {t.name} ({t.own}) VALUES {rows} ON DUPLICATE KEY UPDATE {sets}{returning}",
            f"REPLACE INTO {t.name} ({t.own}) VALUES {rows}{returning}",
            f"INSERT IGNORE INTO {t.name} ({t.own}) SELECT {t.own.replace('id', 'id + 60', 1)} FROM {t.name} "
            f"WHERE {self.settled(t)} ORDER BY id LIMIT 4"]), t)

    def change(self, t):
        chance = self.chance
        limit = chance.choice(["", " LIMIT 1", " LIMIT 4"])
        where = f"WHERE {self.settled(t)} ORDER BY id{chance.choice(['', ' DESC'])}"
        if chance.random() < 0.25:
            self.both(f"DELETE FROM {t.name} {where} LIMIT 3{chance.choice(['', f' RETURNING {t.own}'])}", t)
            return
        sets = [f"{c.name} = {c.value(chance)}" for c in chance.sample(t.columns, chance.choice([1, 1, 2]))]
        sets += chance.choice([[], [], [], ["id = id + 1"], ["id = id - 100"]])
        self.both(f"UPDATE {chance.choice(['', 'IGNORE '])}{t.name} SET {', '.join(sets)} {where}{limit}", t)

    def read(self, t):
        """HANDLER. The server merges partitions by virtual columns that it has not computed."""
        if t.partitions:
            return
        chance = self.chance
        self.both(f"HANDLER {t.name} OPEN")
        for _ in range(4):
            key = chance.randrange(len(t.keys))
            first = re.search(r"\(([^ ,()]+)", t.keys[key]).group(1)
            values = [value for c in t.columns if c.name == first for value in c.literals] or ["3"]
            place = chance.choice(["FIRST", "NEXT", "PREV", "LAST", *(f"{op} ({chance.choice(values)})" for op in ("=", ">=", ">", "<=", "<"))])
            self.both(f"HANDLER {t.name} READ `{t.names[key]}` {place}{chance.choice(['', ' LIMIT 3', ' LIMIT 100'])}", t)
        self.both(f"HANDLER {t.name} CLOSE")

    def transaction(self, t):
        self.both("BEGIN")
        for _ in range(self.chance.randrange(1, 4)):
            self.chance.choice([self.insert, self.change, self.select])(t)
        self.both(self.chance.choice(["COMMIT", "ROLLBACK"]))

    def cursor(self, t):
        column, value = self.chance.choice(t.columns), self.chance.choice(t.columns)
        value = column.value(self.chance)
        self.both(f"BEGIN NOT ATOMIC FOR r IN (SELECT id FROM {t.name} WHERE {self.settled(t)} ORDER BY id) DO "
                  f"UPDATE IGNORE {t.name} SET {column.name} = {value} WHERE id = r.id; END FOR; END", t)

    def prepared(self, t):
        column = self.chance.choice(t.columns)
        self.both(f"PREPARE p FROM 'SELECT id FROM {t.name} WHERE {column.name} <=> ? ORDER BY id'")
        for _ in range(2):
            value = self.chance.choice(column.literals)
            if not self.unsettled(f"SELECT id FROM {t.name} WHERE {column.name} <=> {value} ORDER BY id", norm):
                self.both(f"SET @v = {value}")
                self.both("EXECUTE p USING @v", t)
            self.both(f"ALTER TABLE {t.name} FORCE, ALGORITHM={self.chance.choice(['COPY', 'DEFAULT'])}")

    def round(self):
        chance, before = self.chance, self.reported
        modes = ["STRICT_TRANS_TABLES", "NO_ZERO_DATE", "ALLOW_INVALID_DATES", "TIME_ROUND_FRACTIONAL", "SIMULTANEOUS_ASSIGNMENT"]
        mode = ",".join(m for m in modes if chance.random() < 0.4)
        isolation = chance.choice(["REPEATABLE READ", "REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED", "SERIALIZABLE"])
        self.both(f"SET sql_mode = '{mode}', SESSION tx_isolation = '{isolation.replace(' ', '-')}'")
        self.tables = [Table(f"t{n}", chance, self.usual) for n in range(TABLES)]
        for t in self.tables:
            answer, _ = self.both(t.create(), t)
            if isinstance(answer, str):
                raise server.ServerError(f"{answer}: {t.create()}")
            for n in range(0, ROWS, 8):
                self.both(f"INSERT IGNORE INTO {t.name} ({t.own}) VALUES {', '.join(t.row(chance, n + i) for i in range(8))}", t)
        kinds = {self.select: 36, self.group: 14, self.insert: 18, self.change: 14, self.read: 8, self.transaction: 5, self.cursor: 2,
                 self.prepared: 2}
        for _ in range(STATEMENTS):
            chance.choices(list(kinds), kinds.values())[0](chance.choice(self.tables))
        for t in self.tables:
            self.both(f"SELECT * FROM {t.name} ORDER BY id", t)
            checked, _ = self.ask(self.connections[0], f"CHECK TABLE {t.name} EXTENDED")
            if [row[3] for row in checked] != [b"OK"]:
                self.report(f"CHECK TABLE {t.name} EXTENDED", t, checked, "OK")
            self.both(f"DROP TABLE {t.name}")
        return self.reported == before

    def collation(self, name, character_set):
        """Which texts are equal, and in which order an index has them."""
        chance, before = self.chance, self.reported
        texts = [text_literal(chance, character_set) for _ in range(150)]
        self.both("SET sql_mode = ''")
        for key in ("VARCHAR(12)", "c"), ("TEXT", "c(2)"), ("VARCHAR(12)", "c DESC"), *([("CHAR(12)", "c")] if "nopad" not in name else []):
            for unique in "", "UNIQUE ":
                self.both(f"CREATE TABLE c (id INT PRIMARY KEY, c {key[0]} CHARACTER SET {character_set} COLLATE {name}, {unique}KEY k ({key[1]}))")
                self.both(f"INSERT IGNORE INTO c VALUES {', '.join(f'({n}, {text})' for n, text in enumerate(texts))}")
                self.both("HANDLER c OPEN")
                self.both("HANDLER c READ k FIRST LIMIT 1000")
                self.both("DROP TABLE c")
        return self.reported == before


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--collations", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    with server.Server("MYRIAD", pool_mib=64, flush=0, options=["--innodb-flush-log-at-trx-commit=0"]) as srv:
        run = Run(srv, random.Random(args.seed))
        outcomes = [run.collation(*run.chance.choice(run.collations)) for _ in range(args.collations)]
        outcomes += [run.round() for _ in range(args.rounds)]
    print(f"{run.compared} statements compared; {run.unclear} queries whose answer depends on the indexes of InnoDB")
    print(f"random types: {sum(outcomes)} passed, {len(outcomes) - sum(outcomes)} failed")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    server.main_guard(main)
