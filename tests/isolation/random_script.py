"""Scripts of some sessions at random: definitions of tables, their rows, and who does what in which order."""
import hashlib
import random

LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "REPEATABLE READ", "SERIALIZABLE"]
ROW = "(id, a, b, s, v, p)"


class Script:
    """Definitions, rows and steps at random."""

    def __init__(self, seed, large):
        self.random = r = random.Random(seed)
        sessions = r.choice([2, 2, 3, 3, 4])
        self.levels = [r.choice(LEVELS)] * sessions if r.random() < 0.5 else [r.choice(LEVELS) for _ in range(sessions)]
        # Whether they have snapshot isolation. At SERIALIZABLE InnoDB then refuses what no reader would see.
        self.snapshots = ["ON" if level != "SERIALIZABLE" and r.random() < 0.2 else "OFF" for level in self.levels]
        self.large = large or r.random() < 0.1
        self.define()
        self.fill()
        self.steps, begun = [], set()
        kinds = [self.select] * 6 + [self.insert] * 5 + [self.update] * 5 + [self.delete] * 3 + [self.other] * 2
        for _ in range(r.randint(6, 18)):
            n = r.randrange(sessions)
            if n not in begun and r.random() < 0.9:
                begun.add(n)
                sql = r.choice(["BEGIN"] * 8 + ["SET autocommit=0", "START TRANSACTION WITH CONSISTENT SNAPSHOT", "START TRANSACTION READ ONLY"])
            elif r.random() < 0.12:
                begun.discard(n)
                sql = r.choice(["COMMIT", "ROLLBACK"])
            else:
                sql = r.choice(kinds)()
            self.steps.append((n, sql))

    def definitions(self, engine):
        return [self.create + (self.options if engine == "MYRIAD" else "")] + self.others

    def define(self):
        r = self.random
        primary = r.choice([["id"]] * 5 + [["id DESC"], ["a", "id"], ["s", "id"], ["id", "s"], None])
        counted = bool(primary) and r.random() < 0.3
        offers = {"ka": ["a"], "kab": ["a", "b"], "kad": ["a DESC"], "kg": ["g"], "kbd": ["b DESC", "a"], "kb": ["b"]}
        if not primary or "s" not in primary:
            offers |= {"ks": ["s(1)"], "ksa": ["s", "a"]}
        self.keys = {name: offers[name] for name in r.sample(sorted(offers), r.choice([0, 1, 1, 2, 2, 3]))}
        keys = [f"{r.choice(['UNIQUE', 'KEY'])} {name} ({', '.join(parts)})" for name, parts in self.keys.items()]
        if primary:
            self.keys["PRIMARY"] = primary
            keys.append(f"PRIMARY KEY ({', '.join(primary)})")
        if counted:
            keys.append("KEY kid (id)")
        self.counted = counted
        self.options = " IN_MEMORY=YES" if r.random() < 0.1 else ""
        partitions = not self.options and r.random() < 0.1 and primary and "id" in primary and not any(k.startswith("UNIQUE") for k in keys)
        # InnoDB's partitions do not give virtual columns in order.
        generated = "STORED" if partitions else r.choice(["VIRTUAL", "STORED"])
        self.create = (f"CREATE TABLE t (id INT NOT NULL{' AUTO_INCREMENT' if counted else ''}, a INT NOT NULL DEFAULT 5, b INT, "
                       "s VARCHAR(8) NOT NULL DEFAULT 'm', v INT DEFAULT 0, p VARCHAR(4000), "
                       f"g INT AS (a + b) {generated}{''.join(', ' + k for k in keys)})"
                       + (" PARTITION BY HASH (id) PARTITIONS 3" if partitions else ""))
        self.others, self.other_table = [], None
        if not self.options and not partitions and primary and primary[0].startswith("id") and r.random() < 0.4:
            self.other_table = "c"
            delete, update = (r.choice(["RESTRICT", "CASCADE", "SET NULL", "NO ACTION"]) for _ in range(2))
            self.others = ["CREATE TABLE c (id INT PRIMARY KEY, t INT, v INT DEFAULT 0, KEY kt (t), FOREIGN KEY (t) REFERENCES t (id) "
                           f"ON DELETE {delete} ON UPDATE {update})"]
        elif r.random() < 0.3:
            self.other_table = "l"
            self.others = ["CREATE TABLE l (id INT, t INT, v INT DEFAULT 0, KEY kt (t))",
                           f"CREATE TRIGGER tr {r.choice(['BEFORE', 'AFTER'])} {r.choice(['UPDATE', 'INSERT'])} ON t FOR EACH ROW "
                           + r.choice(["INSERT INTO l VALUES (1, NEW.id, 0)", "UPDATE l SET id = id + 1 WHERE t = NEW.id"])]
        tables = {"t": self.keys, **({self.other_table: {"kt": ["t"]}} if self.other_table else {})}
        self.final = [f"CHECK TABLE {t} EXTENDED" for t in tables] + [f"SELECT * FROM {t}" for t in tables]
        self.final += [f"SELECT {column(k[0])}, v FROM {t} FORCE INDEX ({name}) WHERE {column(k[0])} IS NULL OR {column(k[0])} >= ''"
                       for t, keys in tables.items() for name, k in keys.items()]

    def fill(self):
        r = self.random
        self.pad = r.choice([1, 1, 2500])
        self.rows = [f"INSERT IGNORE INTO t {ROW} VALUES {self.values()}" for _ in range(r.randint(4, 10))]
        if self.large:
            self.rows.append(f"INSERT IGNORE INTO t {ROW} SELECT seq * 7, seq * 37 % 211, seq * 53 % 307, SUBSTR(MD5(seq), 1, 8), seq % 16, "
                             f"REPEAT('p', 100) FROM seq_1_to_{r.choice([80, 150, 250])}")
        if r.random() < 0.5:
            self.rows.append(f"DELETE FROM t WHERE id = {self.value('id')} OR a = {self.value('a')}")
        if self.other_table == "c":
            self.rows.append("INSERT IGNORE INTO c SELECT id + 20, id, 0 FROM t ORDER BY id LIMIT 3")

    def value(self, name):
        r = self.random
        n = r.randrange(1, 260)
        if name == "b" and r.random() < 0.2:
            return "NULL"
        if self.large and name in "abs id" and r.random() < 0.6:
            return {"id": str(n * 7), "a": str(n * 37 % 211), "b": str(n * 53 % 307), "s": f"'{hashlib.md5(str(n).encode()).hexdigest()[:8]}'"}[name]
        if name == "s":
            return "'" + r.choice("bdfhj" if r.random() < 0.6 else "acegik") + r.choice(["", "", "b", "d"]) + "'"
        return str(r.choice(range(2, 15, 2)) if r.random() < 0.6 else r.randrange(16))

    def values(self):
        return "(" + ", ".join(self.value(name) for name in ("id", "a", "b", "s", "v")) + f", REPEAT('p', {self.pad}))"

    def where(self, alias=""):
        """An index hint, a condition that it serves, and what is ordered by it."""
        r = self.random
        name = r.choice(sorted(self.keys) + ["none"])
        if name == "none":
            return "", f"WHERE {alias}v {r.choice(['=', '<', '<>'])} {self.value('v')}", "id, a, b, s"
        parts = [column(part) for part in self.keys[name]]
        first = alias + parts[0]
        low, high = sorted([self.value(parts[0]), self.value(parts[0])], key=lambda v: v if "'" in v else v.zfill(4))
        forms = [f"{first} = {low}", f"{first} BETWEEN {low} AND {high}", f"{first} > {low}", f"{first} < {high}", f"{first} IN ({low}, {high})",
                 f"{first} >= {low} AND {first} < {high}", f"{first} <=> {low}"]
        forms += [" AND ".join(f"{alias}{part} = {self.value(part)}" for part in parts)] * 2
        forms += [f"({first} = {low} OR {first} IS NULL)"] * (parts[0] == "b")
        forms += [f"{first} = {low} AND {alias}{part} > {self.value(part)}" for part in parts[1:]]
        condition = r.choice(forms) + (f" AND {alias}v <> {self.value('v')}" if r.random() < 0.15 else "")
        return f"FORCE INDEX ({name})", f"WHERE {condition}", parts[0]

    def limit(self, order):
        return self.random.choice([""] * 5 + [f" ORDER BY {order} LIMIT 2", f" ORDER BY {order} DESC LIMIT 1", f" ORDER BY {order} DESC"])

    def select(self):
        r, other = self.random, self.other_table
        lock = r.choice(["", " FOR UPDATE", " FOR UPDATE", " LOCK IN SHARE MODE"])
        lock += r.choice(["", " SKIP LOCKED", " NOWAIT"]) if lock else ""
        hint, where, order = self.where("t.")
        forms = [f"SELECT {what} FROM t {hint} {where}{self.limit(order)}" for what in ("id, a, b, s, v", "id, a, b, s, v", "id", "a")] * 3
        if hint:
            forms += [f"SELECT COUNT(*) FROM t {hint} {where}", f"SELECT MIN({order}) FROM t {hint} {where}", f"SELECT MAX({order}) FROM t {hint}",
                      f"SELECT {order}, COUNT(*) FROM t {hint} GROUP BY {order}",
                      f"SELECT id FROM t x WHERE NOT EXISTS (SELECT * FROM t y {hint} WHERE y.{order} = x.v)"]
        if other:
            forms += [f"SELECT * FROM {other} FORCE INDEX (kt) WHERE t = {self.value('id')}",
                      f"SELECT t.id, x.id, x.v FROM t {hint} STRAIGHT_JOIN {other} x FORCE INDEX (kt) ON x.t = t.id {where}"] * 2
        return r.choice(forms) + lock

    def insert(self):
        r = self.random
        if self.other_table and r.random() < 0.25:
            return f"{r.choice(['INSERT', 'REPLACE', 'INSERT IGNORE'])} INTO {self.other_table} VALUES ({r.randint(20, 28)}, {self.value('id')}, 1)"
        changed = r.choice(["id", "a", "b", "s", "v"])
        verb, tail = r.choice([("INSERT", "")] * 4 + [("INSERT IGNORE", ""), ("REPLACE", "")] + [
            ("INSERT", f" ON DUPLICATE KEY UPDATE {changed} = {r.choice([self.value(changed), f'VALUES({changed})'])}")] * 2)
        hint, where, _ = self.where()
        if self.counted and r.random() < 0.4:
            return f"{verb} INTO t (a, b, s) VALUES ({', '.join(self.value(name) for name in 'abs')}){tail}"
        if r.random() < 0.12:
            return f"{verb} INTO t {ROW} SELECT id + {r.choice([0, 1, 3])}, a + {r.choice([0, 1])}, b, s, v, p FROM t {hint} {where}{tail}"
        return f"{verb} INTO t {ROW} VALUES {', '.join(self.values() for _ in range(r.choice([1, 1, 1, 2, 3])))}{tail}"

    def update(self):
        r, other = self.random, self.other_table
        if other and r.random() < 0.25:
            return r.choice([f"UPDATE {other} SET t = {r.choice([self.value('id'), 'NULL'])} WHERE id = {r.randint(20, 28)}",
                             f"UPDATE {other} FORCE INDEX (kt) SET v = v + 1 WHERE t = {self.value('id')}",
                             f"UPDATE t STRAIGHT_JOIN {other} x ON x.t = t.id SET t.v = t.v + 1, x.v = x.v + 1 WHERE t.id = {self.value('id')}",
                             f"UPDATE t SET v = (SELECT COUNT(*) FROM {other} x WHERE x.t = t.id) WHERE id = {self.value('id')}"])
        hint, where, order = self.where()
        changed = r.choice(["id", "a", "a", "b", "s", "v", "v"])
        new = r.choice([self.value(changed), self.value(changed), f"{changed} + 1" if changed != "s" else "CONCAT(s, 'b')"])
        return f"UPDATE {r.choice(['', '', '', 'IGNORE '])}t {hint} SET {changed} = {new} {where}{self.limit(order)}"

    def delete(self):
        r, other = self.random, self.other_table
        if other and r.random() < 0.25:
            return r.choice([f"DELETE FROM {other} WHERE t = {self.value('id')}",
                             f"DELETE t, x FROM t STRAIGHT_JOIN {other} x ON x.t = t.id WHERE t.id = {self.value('id')}"])
        hint, where, _ = self.where()
        return r.choice([f"DELETE t FROM t {hint} {where}"] * 3 + [f"DELETE FROM t {where} ORDER BY id, a, b, s LIMIT 2",
                                                                  f"DELETE FROM t {where} RETURNING id, a"])

    def other(self):
        r = self.random
        tables = ["t"] + [self.other_table] * bool(self.other_table)
        alter = r.choice(["ADD INDEX IF NOT EXISTS kv (v)", "DROP INDEX IF EXISTS kv", "ADD COLUMN IF NOT EXISTS z INT DEFAULT 3", "FORCE",
                          "FORCE, ALGORITHM=COPY", "ADD UNIQUE IF NOT EXISTS kv (v, a)"])
        return r.choice(["SAVEPOINT x", "ROLLBACK TO x", "RELEASE SAVEPOINT x", "KILL", "KILL", "COMMIT", "ALTER TABLE t " + alter, "UNLOCK TABLES",
                         "LOCK TABLES " + ", ".join(f"{t} {r.choice(['READ', 'WRITE'])}" for t in tables),
                         "SET optimizer_switch='mrr=on,mrr_sort_keys=on,mrr_cost_based=off'"])


def column(part):
    return part.split()[0].split("(")[0]
