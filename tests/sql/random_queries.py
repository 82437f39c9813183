#!/usr/bin/python3
"""Random statements on random tables of Myriad, and on the same tables without secondary indexes in InnoDB: the same rows.

Myriad's tables have indexes of every kind, partitions and generated columns, its statements hints, optimizer switches and sizes of
buffers of every kind; its pool is smaller than the data, and the server is killed now and then. Plans differ, so only what a
statement defines is compared: rows in their order where ORDER BY decides it, how many rows a change matched, error codes.
An answer that InnoDB gives as well, with the same indexes in the same session, is the server's.
Simple statements are drawn here, others in statements.py.
Usage: random_queries.py [--statements N] [--seed N]"""
import argparse
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import server  # noqa: E402
import statements  # noqa: E402
from server import pymysql  # noqa: E402
from statements import BYTES, DATE, NUMBER, TEXT  # noqa: E402

TABLES = 3
ROWS = [2000, 5000, 9000]
POOL_MIB = 6
# Statements on the same tables, counted as one test.
ROUND = 500
# What joins and subqueries without indexes take, by plans that nobody would choose and beside a pool that is too small, has no other limit.
STATEMENT_SECONDS_MAX = 60
TIMED_OUT = "error 1969"
# Type and family; columns of one family may be compared.
TYPES = [("INT", NUMBER), ("BIGINT UNSIGNED", NUMBER), ("TINYINT", NUMBER), ("DECIMAL(10,2)", NUMBER),
         ("VARCHAR(40)", TEXT), ("VARCHAR(200) CHARACTER SET latin1", TEXT), ("CHAR(12)", TEXT),
         ("TEXT", TEXT), ("VARBINARY(30)", BYTES), ("DATE", DATE)]
# Sessions' settings that plans depend on, beside optimizer_switch.
SETTINGS = {"join_cache_level": range(9), "join_buffer_size": [16384, 50000, 262144], "mrr_buffer_size": [8192, 20000, 262144],
            "sort_buffer_size": [65536, 2097152], "tmp_memory_table_size": [0, 1024, 100000, 16777216],
            "read_rnd_buffer_size": [1, 1000, 262144], "max_length_for_sort_data": [4, 200, 1024], "optimizer_prune_level": [0, 1],
            "optimizer_search_depth": [0, 1, 62], "optimizer_use_condition_selectivity": range(1, 6), "eq_range_index_dive_limit": [0, 1, 200],
            "in_predicate_conversion_threshold": [0, 3, 1000], "use_stat_tables": ["never", "preferably", "preferably_for_queries"],
            "join_buffer_space_limit": [100000, 2097152], "max_seeks_for_key": [1, 100, 4294967295], "group_concat_max_len": [1048576],
            "tx_isolation": ["'READ-COMMITTED'", "'REPEATABLE-READ'"]}
# Of them off now and then; the others on, as often.
UNUSUAL = {"index_merge_sort_intersection", "engine_condition_pushdown", "mrr", "mrr_cost_based", "mrr_sort_keys"}


class Column:
    def __init__(self, name, chosen):
        self.name, (self.type, self.family) = name, chosen

    def value(self, chance, rows):
        """A literal."""
        if self.family == DATE:
            return f"'{chance.randrange(1990, 2030)}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}'"
        if self.name == "s":
            return f"'s{chance.randrange(1000)}'"
        if self.name in ("e", "g"):
            return str(chance.randrange(100 if self.name == "e" else 13))
        if self.family in (TEXT, BYTES):
            word = "".join(chance.choices("abcXYZ ", k=chance.randrange(1, 9)))
            return f"'{word}{chance.randrange(rows // 10) if chance.random() < 0.7 else ''}'"
        if self.type == "TINYINT":
            return str(chance.randrange(-100, 100))
        if self.type == "DECIMAL(10,2)":
            return f"{chance.randrange(-rows, rows)}.{chance.randrange(100):02}"
        return str(chance.randrange(0 if "UNSIGNED" in self.type else -rows, rows))


ID, W, G, S, E = (Column(name, kind) for name, kind in
                  [("id", ("INT", NUMBER)), ("w", ("INT", NUMBER)), ("g", ("INT", NUMBER)), ("s", ("VARCHAR(20)", TEXT)), ("e", ("INT", NUMBER))])


class Table:
    """A table's definition, drawn by `chance`."""

    def __init__(self, name, chance):
        self.name, self.rows = name, chance.choice(ROWS)
        self.columns = [Column(f"c{n}", chance.choice(TYPES)) for n in range(chance.randrange(3, 6))]
        self.listed = ", ".join(["id", *(c.name for c in self.columns), "pad", "g", "s", "w"])
        self.all = [ID] + self.columns + [W, G, S, E]
        self.names = {c.name for c in self.all}
        primary = chance.choice(["(id)", "(id DESC)", "(g, id)", "(s, id)", "(id, s(2))", None])
        self.body = ["id INT NOT NULL", *(f"{c.name} {c.type}" for c in self.columns), "pad VARCHAR(400)",
                     "g INT NOT NULL", "s VARCHAR(20) NOT NULL", "e INT AS (id % 97) VIRTUAL", "w INT"]
        if primary:
            self.body.append(f"PRIMARY KEY {primary}")
        self.keys = []
        self.indexes = [f"KEY k{n} ({self.parts(chance)})" for n in range(chance.randrange(1, 5))]
        if chance.random() < 0.6:
            self.indexes.append(f"KEY k{len(self.indexes)} (e{chance.choice(['', ', id', ' DESC', ', s(2)', ' DESC, s(2)'])})")
        # Added when the table has rows already.
        self.later = [self.indexes.pop()] if chance.random() < 0.5 else []
        self.hints = [f"k{n}" for n in range(len(self.indexes + self.later))]
        self.partitions = ""
        # In InnoDB's table, too.
        self.unique = []
        if primary != "(s, id)" and chance.random() < 0.25:
            self.partitions = f" PARTITION BY HASH (id) PARTITIONS {chance.randrange(2, 5)}"
        else:
            self.unique = ["UNIQUE KEY u (id)"] + chance.choice([[], ["UNIQUE KEY w (w)"], ["UNIQUE KEY w (w DESC)"]])
        # Elsewhere no key keeps ids unique, by which orders are decided.
        self.id_is_unique = bool(self.unique) or primary in ("(id)", "(id DESC)")
        self.ids = self.rows

    def parts(self, chance):
        """The columns of an index, of some a prefix, some descending."""
        parts, names = [], []
        for column in chance.sample(self.columns + [G, S, W], chance.randrange(1, 4)):
            cut = column.type == "TEXT" or column.family in (TEXT, BYTES) and chance.random() < 0.25
            prefix = f"({chance.randrange(1, 6)})" if cut else ""
            way = chance.choice(["", "", "", " DESC"])
            parts.append(f"{column.name}{prefix}{way}")
            names.append((column.name, way != ""))
        self.keys.append(names)
        return ", ".join(parts)

    def column(self, name):
        return next(c for c in self.all if c.name == name)

    def create(self, engine):
        body = self.body + self.unique + (self.indexes if engine == "MYRIAD" else [])
        return f"CREATE TABLE {self.name} ({', '.join(body)}) ENGINE={engine}{self.partitions}"

    def alters(self, engine):
        """What is done to it with half of its rows in it."""
        indexes = self.later if engine == "MYRIAD" else []
        return f"ALTER TABLE {self.name} ADD added INT DEFAULT 7{''.join(f', ADD {index}' for index in indexes)}"

    def inserts(self, chance):
        ids = list(range(self.rows))
        chance.shuffle(ids)
        for begin in range(0, self.rows, 1000):
            rows = []
            for i in ids[begin:begin + 1000]:
                values = ["NULL" if chance.random() < 0.05 else c.value(chance, self.rows) for c in self.columns]
                rows.append(f"({i}, {', '.join(values)}, REPEAT('p', {chance.randrange(400)}), {i % 13}, 's{i * 7919 % 1000}', "
                            f"{i * 7 % self.rows if i % 10 else 'NULL'})")
            yield f"INSERT INTO {self.name} ({self.listed}) VALUES {', '.join(rows)}"

    def id_to_insert(self, chance):
        """Of a row that is there or has been, where a key is there to find it; else a new one."""
        if self.id_is_unique:
            return chance.randrange(self.rows)
        self.ids += 1
        return self.ids

    def hint(self, chance):
        if chance.random() < 0.4:
            return ""
        return f" {chance.choice(['FORCE', 'USE', 'IGNORE'])} INDEX ({chance.choice(self.hints)})"

    def condition(self, chance, alias=""):
        kind = chance.random()
        if kind < 0.2:
            operator = chance.choice(["AND", "OR"])
            return f"({self.condition(chance, alias)} {operator} {self.condition(chance, alias)})"
        column = chance.choice(self.all)
        name = alias + column.name

        def value():
            return column.value(chance, self.rows)
        if kind < 0.5:
            return f"{name} IN ({', '.join(value() for _ in range(chance.randrange(2, 40)))})"
        if kind < 0.8 and column.family == NUMBER:
            low = chance.randrange(-self.rows, self.rows)
            return f"{name} BETWEEN {low} AND {low + chance.randrange(self.rows // 4)}"
        if kind < 0.8:
            return f"{name} BETWEEN {value()} AND {value()}"
        if kind < 0.85 and column.family == TEXT:
            return f"{name} LIKE '{chance.choice('abcXYZ')}{chance.choice('abc_')}%'"
        if kind < 0.9:
            return f"{name} IS {chance.choice(['', 'NOT '])}NULL"
        return f"{name} {chance.choice(['<', '<=', '>', '>=', '=', '<>'])} {value()}"


def select(tables, chance):
    """A query with {hint} in it, and whether it defines the order of its rows."""
    t = chance.choice(tables)
    names = [c.name for c in t.all] + ["e"]
    what = chance.choice(["*", ", ".join(chance.sample(names, 3)), "COUNT(*), SUM(id), MIN(id), MAX(id)", "id, LENGTH(pad)"])
    order = ""
    if not what.startswith("COUNT") and chance.random() < 0.4:
        by = [f"{name}{chance.choice(['', ' DESC'])}" for name in chance.sample(names, chance.randrange(1, 3))]
        order = f" ORDER BY {', '.join(by)}, id{chance.choice(['', ' DESC'])}"
        if chance.random() < 0.6:
            order += f" LIMIT {chance.choice([1, 5, 30, 300])} OFFSET {chance.choice([0, 0, 17])}"
    lock = chance.choice(["", "", "", " FOR UPDATE", " LOCK IN SHARE MODE"])
    return [f"SELECT {what} FROM {t.name}{{hint}} WHERE {t.condition(chance)}{order}{lock}"], t, bool(order)


def join(tables, chance):
    t, u = chance.choice(tables), chance.choice(tables)
    on = [(a, b) for a in t.all for b in u.all if a.family == b.family]
    a, b = chance.choice(on)
    low = chance.randrange(u.rows)
    return [f"SELECT COUNT(*), SUM(x.id), SUM(y.id) FROM {t.name} x{{hint}} {chance.choice(['', 'LEFT '])}JOIN {u.name} y "
            f"ON x.{a.name} = y.{b.name} AND y.id BETWEEN {low} AND {low + 2000} "
            f"WHERE {t.condition(chance, 'x.')} AND x.id < 400"], t, False


def group(tables, chance):
    t = chance.choice(tables)
    by = chance.choice([c.name for c in t.all] + ["e"])
    return [f"SELECT COUNT(*), SUM(id) FROM {t.name}{{hint}} WHERE {t.condition(chance)} GROUP BY {by}"], t, False


def change(tables, chance):
    t = chance.choice(tables)
    low = chance.randrange(t.rows)
    where = f"WHERE {t.condition(chance)} AND id BETWEEN {low} AND {low + chance.choice([50, 500, 3000])}"
    if chance.random() < 0.3:
        return [f"DELETE FROM {t.name} {where}"], t, False
    column = chance.choice(t.columns)
    pad = f", pad = REPEAT('{chance.randrange(9)}', {chance.randrange(400)})" if chance.random() < 0.4 else ""
    return [f"UPDATE {t.name} SET {column.name} = {column.value(chance, t.rows)}{pad} {where}"], t, False


KINDS = {select: 60, join: 15, group: 10, change: 15, **statements.KINDS}


def ask(connection, sql):
    with connection.cursor() as cursor:
        try:
            count = cursor.execute(sql)
            # An impossible WHERE, which one engine's indexes may show sooner, leaves RETURNING without a result.
            return list(cursor.fetchall()) if cursor.description or " RETURNING " in sql else count
        except pymysql.err.MySQLError as problem:
            return f"error {problem.args[0]}"


class TooLong(Exception):
    """A statement did not end in time on one side, so that the tables may differ."""


def differs(expected, found, ordered):
    if not ordered and isinstance(expected, list) and isinstance(found, list):
        return sorted(map(repr, expected)) != sorted(map(repr, found))
    return expected != found


class Run:
    def __init__(self, ours, theirs, chance):
        self.ours, self.theirs, self.chance = ours, theirs, chance
        for srv in (ours, theirs):
            srv.query("CREATE DATABASE random")
        self.reference = self.connect(theirs)
        self.reported = self.kills = self.too_long = self.of_server = 0
        self.switches = [switch.split("=")[0] for switch in theirs.query("SELECT @@optimizer_switch")[0][0].split(",")]
        theirs.query("SET GLOBAL group_concat_max_len = 1048576")
        self.attach()

    @staticmethod
    def connect(srv):
        return srv.connect(database="random", init_command=f"SET max_statement_time = {STATEMENT_SECONDS_MAX}")

    def attach(self):
        self.connection = self.connect(self.ours)

    def both(self, sql, ours=None):
        """The answers to a statement, of which Myriad may get another form."""
        expected = ask(self.reference, sql)
        found = TIMED_OUT if expected == TIMED_OUT else ask(self.connection, ours or sql)
        if found == TIMED_OUT:
            raise TooLong(ours or sql)
        return expected, found

    def make_tables(self):
        self.tables = [Table(f"t{n}", self.chance) for n in range(TABLES)]
        for t in self.tables:
            for connection, engine in ((self.reference, "InnoDB"), (self.connection, "MYRIAD")):
                ask(connection, f"DROP TABLE IF EXISTS {t.name}")
                made = ask(connection, t.create(engine))
                if isinstance(made, str):
                    raise server.ServerError(f"{made}: {t.create(engine)}")
            inserts = list(t.inserts(self.chance))
            for n, sql in enumerate(inserts):
                if n == len(inserts) // 2:
                    altered = ask(self.reference, t.alters("InnoDB")), ask(self.connection, t.alters("MYRIAD"))
                    if any(isinstance(answer, str) for answer in altered):
                        raise server.ServerError(f"{altered}: {t.alters('MYRIAD')}")
                expected, found = self.both(sql)
                if expected != found:
                    raise server.ServerError(f"{expected}, {found}: {sql[:200]}")

    def surroundings(self):
        """What must not matter to the results."""
        if self.chance.random() < 0.1:
            rare = self.chance.choice([0.05, 0.5])
            switches = [f"{name}={'on' if (name in UNUSUAL) == (self.chance.random() < rare) else 'off'}" for name in self.switches]
            settings = [f"{name} = {self.chance.choice(values)}" for name, values in SETTINGS.items()]
            if "materialization=off" in switches:
                switches[self.switches.index("in_to_exists")] = "in_to_exists=on"
            set_all = f"SET optimizer_switch = '{','.join(switches)}', {', '.join(settings)}"
            if isinstance(failed := ask(self.connection, set_all), str):
                raise server.ServerError(f"{failed}: {set_all}")
        if self.chance.random() < 0.02:
            ask(self.connection, f"ANALYZE TABLE {self.chance.choice(self.tables).name}")
        if self.chance.random() < 0.01:
            self.ours.kill()
            self.kills += 1
            self.ours.start()
            self.attach()

    def statement(self):
        kind = self.chance.choices(list(KINDS), list(KINDS.values()))[0]
        texts, table, ordered = kind(self.tables, self.chance)
        hint = table.hint(self.chance)
        in_transaction = (kind is change or kind in statements.CHANGES) and self.chance.random() < 0.4
        if in_transaction:
            self.both("BEGIN")
        for sql in texts:
            hinted = sql.replace("{hint}", hint)
            expected, found = self.both(sql.replace("{hint}", ""), hinted)
            if differs(expected, found, ordered):
                if hinted.startswith("SELECT") and not in_transaction and self.is_servers(hinted, found, ordered):
                    self.of_server += 1
                else:
                    self.report(hinted, table, expected, found)
        if in_transaction:
            self.both(self.chance.choice(["COMMIT", "ROLLBACK"]))

    def is_servers(self, sql, found, ordered):
        """Whether InnoDB answers as Myriad did, in the same session, where its tables have the same indexes: a fault of the server's."""
        for t in self.tables:
            copy = "copy_" + t.name
            create, alter = (text.replace(f"TABLE {t.name} ", f"TABLE {copy} ") for text in (t.create("MYRIAD"), t.alters("MYRIAD")))
            made = [ask(self.connection, text) for text in (
                f"DROP TABLE IF EXISTS {copy}", create.replace("ENGINE=MYRIAD", "ENGINE=InnoDB"), alter,
                f"INSERT INTO {copy} ({t.listed}, added) SELECT {t.listed}, added FROM {t.name}")]
            if any(isinstance(answer, str) for answer in made):
                return False
        return not differs(ask(self.connection, re.sub(r"\b(t\d)\b", r"copy_\1", sql)), found, ordered)

    def report(self, sql, table, expected, found):
        self.reported += 1
        switches = ask(self.connection, f"SELECT CONCAT_WS(', ', @@optimizer_switch, {', '.join('@@' + name for name in SETTINGS)})")
        print(f"  {sql}\n    {table.create('MYRIAD')}\n    {table.alters('MYRIAD')}\n    {ask(self.connection, 'EXPLAIN ' + sql)}\n    {switches}\n"
              f"    InnoDB {str(expected)[:300]}\n    Myriad {str(found)[:300]}", flush=True)

    def check_tables(self):
        for t in self.tables:
            expected, found = self.both(f"SELECT * FROM {t.name}")
            if differs(expected, found, False):
                self.report(f"SELECT * FROM {t.name}", t, expected, found)
            checked = ask(self.connection, f"CHECK TABLE {t.name} EXTENDED")
            if [row[3] for row in checked] != ["OK"]:
                self.report(f"CHECK TABLE {t.name} EXTENDED", t, "OK", checked)

    def round(self, statements):
        """So many statements on new tables; whether all went as they should."""
        before = self.reported
        self.make_tables()
        try:
            for _ in range(statements):
                self.surroundings()
                self.statement()
            self.check_tables()
        except TooLong as statement:
            print(f"  longer than {STATEMENT_SECONDS_MAX} s, which ends the round: {statement}", flush=True)
            self.too_long += 1
            self.attach()
            self.reference.rollback()
        return self.reported == before


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--statements", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    with server.Server("MYRIAD", pool_mib=POOL_MIB) as ours, server.Server("InnoDB", pool_mib=64) as theirs:
        run = Run(ours, theirs, random.Random(seed))
        rounds = [min(ROUND, args.statements - begin) for begin in range(0, args.statements, ROUND)]
        sound = sum(run.round(statements) for statements in rounds)
        together = int(ours.query("SHOW GLOBAL STATUS LIKE 'Myriad_pages_read_together'")[0][1])
    print(f"{args.statements} statements, {run.kills} kills, {run.too_long} rounds ended early, {run.of_server} faults of the server's; "
          f"{together} pages read together since the last")
    print(f"random queries: {sound} passed, {len(rounds) - sound} failed")
    return 1 if sound < len(rounds) else 0


if __name__ == "__main__":
    server.main_guard(main)
