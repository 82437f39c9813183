"""Random definitions, changes of them, and rows, as SQL: what evolution.py runs."""
import re

TABLES = [f"{database}.t{n}" for database in "ab" for n in range(3)]
COLUMNS = [f"c{n}" for n in range(8)]
COLLATIONS = {"latin1": ["latin1_swedish_ci", "latin1_nopad_bin"], "utf8mb3": ["utf8mb3_general_ci", "utf8mb3_bin"],
              "utf8mb4": ["utf8mb4_unicode_ci", "utf8mb4_nopad_bin", "utf8mb4_uca1400_ai_ci"], "utf16": ["utf16_general_ci"],
              "gbk": ["gbk_chinese_ci"], "sjis": ["sjis_bin"], "ascii": ["ascii_general_ci"]}
INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
# Of other kinds of columns: a value that fits first, then those at the edges.
VALUES = {"decimal": ["7", "0", "-0.005", "99999.99", "1e30"], "float": ["1.25", "-0.0", "1e300"], "double": ["0.1", "-1e30", "1e300"],
          "bit": ["b'1'", "b'1010101010101'", "0xFFFFFFFFFFFFFFFF"], "year": ["2024", "0", "1900", "'70'"],
          "date": ["'2024-02-29'", "'2023-02-29'", "'0000-00-00'", "'2024-00-10'", "'9999-12-31'"],
          "time": ["'12:34:56.5'", "'-838:59:59.9'", "'900:00:00'"],
          "datetime": ["'2001-05-06 03:14:07.5'", "'0000-00-00 00:00:00'", "'9999-12-31 23:59:59.9999999'"],
          "timestamp": ["'2001-05-06 03:14:07.5'", "'1970-01-01 00:00:00'", "'2038-01-19 23:59:59'"],
          "enum": ["'a'", "''", "2", "'nobody'"], "set": ["'a'", "'a,b'", "0", "'nobody'"], "inet4": ["'10.0.0.1'", "'x'"],
          "inet6": ["'fe80::1'", "'10.0.0.1'"], "uuid": ["'123e4567-e89b-12d3-a456-426655440001'", "''"],
          "point": ["POINT(1, 2)", "LineString(POINT(1, 1), POINT(2, 2))"], "geometry": ["POINT(1, 2)", "'x'"]}
OTHER_TYPES = ["DECIMAL(10,2)", "DECIMAL(65,30)", "FLOAT", "DOUBLE", "BIT(1)", "BIT(13)", "BOOLEAN", "DATE", "YEAR", "ENUM('a','b')",
               "SET('a','b','c')", "INET4", "INET6", "UUID", "JSON", "GEOMETRY", "POINT"]


class Column:
    """As INFORMATION_SCHEMA.COLUMNS describes it; `length` in characters."""

    def __init__(self, name, kind, full, charset, length, generated):
        self.name, self.kind, self.full, self.charset, self.length, self.generated = name, kind, full, charset, length, generated


class Table:
    """Its columns, and the names of its indexes, foreign keys, checks and partitions."""

    def __init__(self, name, columns, indexes=(), foreign=(), checks=(), partitions=()):
        self.name, self.columns, self.indexes, self.foreign, self.checks, self.partitions = name, columns, indexes, foreign, checks, partitions


class Definitions:
    def __init__(self, chance):
        self.chance, self.foreign_keys = chance, 0

    def pick(self, *choices):
        return self.chance.choice(choices)

    def maybe(self, probability, text):
        return text if self.chance.random() < probability else ""

    def charset(self):
        charset = self.pick(*COLLATIONS)
        return f" CHARACTER SET {charset} COLLATE {self.pick(*COLLATIONS[charset])}"

    def type(self):
        kind, digits = self.chance.random(), self.chance.randrange(7)
        if kind < 0.3:
            return self.pick(*INTEGERS) + self.pick("", "", " UNSIGNED", " ZEROFILL")
        if kind < 0.6:
            length = self.pick(0, 1, 10, 63, 64, 85, 127, 128, 255, 256, 700)
            made = self.pick(f"VARCHAR({length})", f"VARCHAR({length})", f"CHAR({min(length, 255)})", "TINYTEXT", "TEXT", "LONGTEXT")
            return made + self.maybe(0.08, "" if made.startswith("CHAR") else " COMPRESSED") + self.maybe(0.6, self.charset())
        if kind < 0.7:
            return self.pick("VARBINARY(0)", "VARBINARY(255)", "VARBINARY(256)", "BINARY(16)", "TINYBLOB", "BLOB", "LONGBLOB")
        return self.pick(f"TIME({digits})", f"DATETIME({digits})", f"TIMESTAMP({digits}) NULL") if kind < 0.8 else self.pick(*OTHER_TYPES)

    def value(self, column, fits=False):
        """A literal for a column; at times one that does not fit, unless it has to."""
        kind = {"integer": "int", "boolean": "tinyint"}.get(column.kind, column.kind)
        if not fits and self.chance.random() < 0.1:
            return self.pick("NULL", "NULL", "DEFAULT", "''", "-1")
        if kind in INTEGERS:
            top = (1 << INTEGERS[kind] - 1) - 1
            return str(self.chance.randrange(100) if fits else self.pick(*range(12), top, -top - 1, top + 1))
        if kind in TEXTS + BYTES:
            if fits:
                return self.pick("'a'", "'B'", "''") if column.length else "''"
            longest = min(column.length or 0, 3000)
            long = [f"REPEAT({letter}, {n})" for letter in ("'x'", "_utf8mb4 0xC3A4", "x'00'") for n in (longest, longest + 1)]
            return self.pick("'a'", "'A'", "'a '", "''", "_utf8mb4 0xF09F9880", "'ab\\t'", *(f"'w{self.chance.randrange(30)}'" for _ in "1234"), *long)
        values = VALUES.get(kind, ["'[1, 2]'", "'a'"])
        return values[0] if fits else self.pick(values[0], values[0], *values)

    def default(self, full):
        kind = full.split("(")[0].split(" ")[0].lower()
        if kind in ("timestamp", "datetime") and self.chance.random() < 0.5:
            now = f"CURRENT_TIMESTAMP({(re.findall('[0-9]', full) or [''])[0]})"
            return f" DEFAULT {now}" + self.maybe(0.5, f" ON UPDATE {now}")
        if kind in INTEGERS and self.chance.random() < 0.1:
            return " DEFAULT (NEXT VALUE FOR a.s)"
        length = int((re.findall(r"\((\d+)", full) or ["100"])[0])
        value = self.value(Column("", kind, full, None, length, False), self.chance.random() < 0.85).replace("DEFAULT", "NULL")
        return f" DEFAULT ({value})" if "(" in value or self.chance.random() < 0.3 else f" DEFAULT {value}"

    def check(self, names):
        name = self.pick(*names)
        return self.pick(f"{name} IS NOT NULL", f"LENGTH({name}) < 200", f"{name} <> 3", f"{name} <= {self.pick(*names)}", "1")

    def column(self, names):
        """What follows a column's name; `names` are the others."""
        if names and self.chance.random() < 0.2:
            wide, name = self.pick("VARCHAR(900)", "TEXT", "VARCHAR(3000) CHARACTER SET utf8mb4"), self.pick(*names)
            made, expression = self.pick(("BIGINT", f"LENGTH({name})"), ("INT", f"{name} IS NULL"), ("CHAR(32)", f"MD5({name})"), (wide, f"LEFT({name}, 3)"),
                                         (wide, f"CONCAT({name}, 'x')"), (wide, f"COALESCE({name}, {self.pick(*names)})"), (self.type().replace(" NULL", ""), name))
            return f"{made} AS ({expression}) {self.pick('VIRTUAL', 'VIRTUAL', 'PERSISTENT')}"
        made = self.type()
        return (made + self.maybe(0.3, "" if " NULL" in made else " NOT NULL") + self.maybe(0.35, self.default(made)) + self.maybe(0.06, " INVISIBLE") +
                self.maybe(0.05, f" COMMENT '{self.pick('x', 'y')}'") + self.maybe(0.08, f" CHECK ({self.check(names)})" if names else "") + self.maybe(0.03, " UNIQUE"))

    def parts(self, columns):
        parts = []
        for column in self.chance.sample(columns, min(len(columns), self.pick(1, 1, 2, 3))):
            cut = column.kind.endswith(("text", "blob")) or column.kind in TEXTS + BYTES and self.chance.random() < 0.3
            parts.append(column.name + self.maybe(0.9, f"({self.pick(1, 3, 10, 50)})" if cut else "") + self.maybe(0.15, " DESC"))
        return ", ".join(parts)

    def key(self, columns, number=None):
        number = self.chance.randrange(6) if number is None else number
        return f"{self.maybe(0.3, 'UNIQUE ')}KEY k{number} ({self.parts(columns)})" + self.maybe(0.05, " IGNORED")

    def foreign_key(self):
        self.foreign_keys += 1
        actions = ["RESTRICT", "CASCADE", "SET NULL", "NO ACTION"]
        return (f"CONSTRAINT f{self.foreign_keys} FOREIGN KEY ({self.pick('p', 'p', 'p', 'c0')}) REFERENCES {self.pick(*TABLES)} (id)"
                f" ON DELETE {self.pick(*actions)} ON UPDATE {self.pick(*actions)}")

    def partitioning(self):
        sub = self.maybe(0.25, f" SUBPARTITION BY {self.pick('HASH', 'KEY')} (id) SUBPARTITIONS 2")
        return self.pick(f" PARTITION BY {self.maybe(0.3, 'LINEAR ')}HASH (id) PARTITIONS 3", " PARTITION BY KEY () PARTITIONS 2",
                         f" PARTITION BY LIST (id){sub} (PARTITION p0 VALUES IN (0,1,2,3), PARTITION p1 VALUES IN (4,5,6,NULL){self.pick('', ', PARTITION p2 DEFAULT')})",
                         f" PARTITION BY SYSTEM_TIME {self.pick('', 'LIMIT 3', 'INTERVAL 1 DAY AUTO')} PARTITIONS 3",
                         *[f" PARTITION BY RANGE (id){sub} (PARTITION p0 VALUES LESS THAN (4), PARTITION p1 VALUES LESS THAN (9){end})"
                           for end in ("", ", PARTITION p2 VALUES LESS THAN MAXVALUE")])

    def create(self, name):
        auto = self.maybe(0.4, " AUTO_INCREMENT")
        lines, names = [f"id INT{self.maybe(0.9, ' NOT NULL')}{auto}", "p INT"], ["id"]
        for column in COLUMNS[:self.chance.randrange(1, 6)]:
            lines.append(f"{column} {self.column(names)}")
            names.append(column)
        columns = [Column(line.split(" ")[0], line.split(" ")[1].split("(")[0].lower(), "", None, 1, False) for line in lines]
        self.chance.shuffle(lines)
        lines += [self.pick("PRIMARY KEY (id)", "PRIMARY KEY (id)", "PRIMARY KEY (id, p)", "UNIQUE (id)")] if auto or self.chance.random() < 0.7 else []
        lines += [self.key(columns, n) for n in range(self.chance.randrange(4))]
        lines += [self.foreign_key()] if self.chance.random() < 0.3 else []
        if self.chance.random() < 0.08:
            lines += ["ds DATE", "de DATE", "PERIOD FOR per (ds, de)", "UNIQUE ku (id, per WITHOUT OVERLAPS)"]
        options = self.maybe(0.25, " WITH SYSTEM VERSIONING") + self.maybe(0.4, self.charset()) + self.maybe(0.1, " ROW_FORMAT=COMPACT")
        return f"CREATE {self.maybe(0.15, 'OR REPLACE ')}TABLE {name} ({', '.join(lines)}){options}{self.maybe(0.25, self.partitioning())}"

    def near(self, column, names):
        """A column's definition, often close to what it is."""
        if column.generated or self.chance.random() < 0.3:
            return self.column([n for n in names if n != column.name])
        tail = self.maybe(0.3, " NOT NULL") + self.maybe(0.2, self.default(column.full))
        charset = self.pick(f" CHARACTER SET {column.charset}" if column.charset else "", self.charset())
        if column.kind in TEXTS:
            length = self.pick(column.length, column.length + 1, column.length * 2 + 1, 5, 255, 300)
            return self.pick(f"VARCHAR({min(length, 900)})", f"CHAR({min(length, 255)})", "TEXT") + charset + tail
        if column.kind in ("enum", "set"):
            return column.full.replace(")", self.pick("", ",'new'", ",'new','newer'") + ")") + charset + tail
        return self.pick(column.full, column.full, *INTEGERS).split(" /")[0] + tail if column.kind in INTEGERS else column.full.split(" /")[0] + tail

    def action(self, table):
        names, column = [c.name for c in table.columns], self.pick(*table.columns)
        index, check, foreign = (self.pick(*(some or ["k1"])) for some in (table.indexes, table.checks, table.foreign))
        new = self.pick(*([n for n in COLUMNS + ["p", "id"] if n not in names] or COLUMNS))
        place = self.maybe(0.3, self.pick(" FIRST", f" AFTER {self.pick(*names)}"))
        made = new + (" INT" if new in ("p", "id") else f" {self.column(names)}")
        return self.pick(*[f"ADD COLUMN {made}{place}"] * 4, *[f"DROP COLUMN {column.name}"] * 2, *[f"MODIFY {column.name} {self.near(column, names)}{place}"] * 3,
                         *[f"CHANGE {column.name} {self.pick(new, column.name)} {self.near(column, names)}{place}"] * 2, f"RENAME COLUMN {column.name} TO {new}",
                         f"ALTER {column.name} {self.pick('DROP DEFAULT', 'SET' + self.default(column.full))}", *[f"ADD {self.key(table.columns)}"] * 4,
                         *[f"DROP KEY {index}"] * 2, f"RENAME KEY {index} TO k{self.chance.randrange(6)}", f"ALTER KEY {index} {self.pick('', 'NOT ')}IGNORED",
                         self.pick("", "DROP PRIMARY KEY, ") + f"ADD PRIMARY KEY ({self.parts(table.columns)})", "DROP PRIMARY KEY", f"CONVERT TO{self.charset()}",
                         f"DEFAULT{self.charset()}", f"ADD CONSTRAINT x{self.chance.randrange(4)} CHECK ({self.check(names)})", f"DROP CONSTRAINT {check}",
                         "ADD " + self.foreign_key(), f"DROP FOREIGN KEY {foreign}", "FORCE", f"ORDER BY {column.name}", f"AUTO_INCREMENT={self.pick(1, 50, 1000)}",
                         "ROW_FORMAT=DYNAMIC", f"COMMENT '{self.pick('x', '')}'", "ADD SYSTEM VERSIONING", "DROP SYSTEM VERSIONING", "DROP PERIOD FOR per")

    def alter(self, table):
        if table.partitions and self.chance.random() < 0.4:
            part, other = self.pick(*table.partitions), self.pick(*(t for t in TABLES if t != table.name))
            return f"ALTER TABLE {table.name} " + self.pick(
                f"TRUNCATE PARTITION {part}", f"DROP PARTITION {part}", "REMOVE PARTITIONING", "COALESCE PARTITION 1", "ADD PARTITION PARTITIONS 1", f"REBUILD PARTITION {part}",
                f"CONVERT PARTITION {part} TO TABLE {other}", f"CONVERT TABLE {other} TO PARTITION p9 VALUES LESS THAN (20)", f"EXCHANGE PARTITION {part} WITH TABLE {other}",
                "ADD PARTITION (PARTITION p8 VALUES LESS THAN (30))", f"REORGANIZE PARTITION {part} INTO (PARTITION q0 VALUES LESS THAN (2), PARTITION q1 VALUES LESS THAN (4))")
        if self.chance.random() < 0.05:
            return f"ALTER TABLE {table.name}{self.partitioning()}"
        how = self.maybe(0.2, f", ALGORITHM={self.pick('COPY', 'INPLACE', 'INSTANT', 'NOCOPY')}") + self.maybe(0.1, f", LOCK={self.pick('NONE', 'SHARED')}")
        return f"ALTER TABLE {table.name} {', '.join(self.action(table) for _ in range(self.pick(1, 1, 1, 2, 2, 3, 4)))}{how}"

    def insert(self, table):
        columns = [c for c in table.columns if not c.generated and (c.name in ("id", "p") or self.chance.random() < 0.8)]
        rows = [[str(self.chance.randrange(40)) if c.name == "id" else self.pick("NULL", *"123456") if c.name == "p" else self.value(c) for c in columns]
                for _ in range(self.pick(1, 1, 2, 5))]
        verb = self.pick("INSERT", "INSERT", "INSERT", "INSERT IGNORE", "REPLACE")
        update = self.maybe(0.15, f" ON DUPLICATE KEY UPDATE {columns[0].name} = {self.value(columns[0])}") if verb == "INSERT" and columns else ""
        return f"{verb} INTO {table.name} ({', '.join(c.name for c in columns)}) VALUES {', '.join('(' + ', '.join(row) + ')' for row in rows)}{update}"

    def change(self, table):
        stored, column = [c for c in table.columns if not c.generated], self.pick(*table.columns)
        where = self.maybe(0.8, f" WHERE {column.name} {self.pick('=', '<', '>=', '<=>')} {self.value(column).replace('DEFAULT', 'NULL')}") + self.maybe(0.3, " LIMIT 2")
        if self.chance.random() < 0.6 or not stored:
            return self.insert(table)
        sets = ", ".join(f"{c.name} = {self.pick(self.value(c), self.pick(*stored).name)}" for c in self.chance.sample(stored, min(len(stored), self.pick(1, 2))))
        return self.pick(*[f"UPDATE {self.maybe(0.15, 'IGNORE ')}{table.name} USE INDEX () SET {sets}{where}"] * 3, f"DELETE FROM {table.name}{where}")

    def other(self, table):
        name, to, third = table.name, self.pick(*TABLES), self.pick(*TABLES)
        return self.pick(f"RENAME TABLE {name} TO {to}", f"RENAME TABLE {name} TO a.swap, {to} TO {name}, a.swap TO {to}", f"RENAME TABLE {name} TO {to}, {third} TO {name}",
                         f"TRUNCATE TABLE {name}", f"DROP TABLE {name}", f"CREATE OR REPLACE TABLE {to} LIKE {name}", f"CREATE TABLE {to} SELECT * FROM {name}",
                         f"REPLACE INTO {to} SELECT * FROM {name}", f"ANALYZE TABLE {name}", f"OPTIMIZE TABLE {name}", f"DELETE HISTORY FROM {name}")
