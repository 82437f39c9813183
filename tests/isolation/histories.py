#!/usr/bin/python3
"""Random transactions beside each other, and what they read and wrote held against what their isolation levels promise.

Every change is an append: of a number that is given once to a row's list, or a row to a set (or from it). So a list that was read
tells which transactions came before, in which order, and which came later. Of all that, committed in the end, a graph is made:
an arrow from whoever wrote a version to who read it or wrote the next one, and from who read it to who wrote the next one. Writers lock what they
write, SERIALIZABLE ones what they read, and a snapshot or a READ COMMITTED statement is of one moment: the graph has no cycle. With snapshot isolation what a transaction
reads is of one moment and what it changes of a later one, and between them nobody else changes that. Besides, nobody
reads what was rolled back or is half done, misses what was acknowledged before he began, or finds a snapshot changed; each index
tells the same as the rows; and after a SIGKILL what was acknowledged is there, the rest wholly or not at all.

    histories.py [--seconds N] [--seed N] [--engine InnoDB] [CASE...]     each case, or these
"""
import collections
import graphlib
import time

import random_runs
from random_runs import EXPECTED, GONE, Disturber, code_of, pymysql, server

# Keys of lists; bytes of padding at most; MiB of the pool; page size; table options; who else is there.
Case = collections.namedtuple("Case", "keys pad pool page options clients kill ddl weak", defaults=[40, 300, 8, 16384, "", 10, False, False, False])
CASES = {
    "plain": Case(),
    "hot": Case(keys=8, clients=16, page=4096),
    "evicted": Case(keys=200, pad=1900, pool=5, page=4096, clients=16, kill=True),
    "killed": Case(kill=True, ddl=True),
    "ddl": Case(pad=1900, pool=5, page=4096, keys=120, ddl=True),
    "large-pages": Case(keys=200, pad=1900, page=65536),
    "in-memory": Case(options="IN_MEMORY=YES"),
    # Snapshots that are none: something has to be found.
    "weak": Case(weak=True),
}
LEVELS = {"serializable": "SERIALIZABLE", "snapshot": "REPEATABLE READ", "statements": "READ COMMITTED", "auto": "REPEATABLE READ",
          "updater": "REPEATABLE READ"}
WRITING = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ"]
STEP = 7
ALTERS = ["t ADD INDEX x (pad(10), last)", "t DROP INDEX x", "t FORCE", "s ADD COLUMN c INT DEFAULT 5", "s DROP COLUMN c", "s FORCE",
          "t MODIFY grp INT NULL", "t MODIFY grp INT NOT NULL", "t ADD UNIQUE u (id, last)", "t DROP INDEX u"]


class Trx:
    """A transaction, or a single statement of a READ COMMITTED one."""

    def __init__(self, number, kind, level):
        self.number, self.kind, self.level = number, kind, level
        self.begun, self.acknowledged, self.outcome = time.monotonic(), None, "open"
        self.lists = []     # (key, last number, text or None)
        self.sets = []      # (group, rows)
        self.appended, self.inserted, self.deleted = [], [], []
        self.snapshot = None    # what it has read before it began to write, with snapshot isolation

    def __str__(self):
        return f"{self.number} ({self.kind}, {self.level})"


class Run(random_runs.Run):
    def __init__(self, case, seed, engine):
        super().__init__(case, seed, engine, ["--loose-myriad-lock-wait-timeout=3"])

    def setup(self):
        self.server.start()
        self.server.query("CREATE DATABASE h")
        with self.connect() as c:
            cursor = c.cursor()
            cursor.execute(f"""CREATE TABLE t (id INT PRIMARY KEY, last INT NOT NULL, grp INT NOT NULL, lst TEXT NOT NULL, pad VARCHAR(2000) NOT NULL,
                               KEY last (last), KEY grp (grp, last), KEY lst (lst(30))) {self.table_options}""")
            cursor.execute(f"CREATE TABLE s (k INT PRIMARY KEY, grp INT NOT NULL, pad VARCHAR(2000) NOT NULL, KEY grp (grp)) {self.table_options}")
            cursor.executemany("INSERT INTO t VALUES (%s, 0, %s, '', REPEAT('x', %s))",
                               [(i * STEP, i % 5, i * 97 % (self.case.pad + 1)) for i in range(self.case.keys)])

    def work(self, seconds):
        threads = [Client(self, no) for no in range(self.case.clients)] + ([Disturber(self, self.alter, 0.25)] if self.case.ddl else [])
        super().work(threads, seconds, self.case.kill)
        if self.case.kill:
            self.crash()

    def alter(self, cursor, chosen):
        cursor.execute(f"SET STATEMENT lock_wait_timeout=2 FOR ALTER TABLE {chosen.choice(ALTERS)}")


class Client(random_runs.Client):
    def sql(self, text, args=None):
        self.cursor.execute(text, args)
        return self.cursor.fetchall()

    def read_lists(self, trx, lock=""):
        chosen, keys = self.random, [i * STEP for i in range(self.of.case.keys)]
        way = chosen.randrange(7)
        some = sorted(chosen.sample(keys, min(len(keys), 5)))
        group = chosen.randrange(5)
        statement, wanted = [
            (f"SELECT id, last, lst FROM t WHERE id = {some[0]}", some[:1]),
            (f"SELECT id, last, lst FROM t WHERE id BETWEEN {some[0]} AND {some[1]} ORDER BY id {chosen.choice(['', 'DESC'])}",
             [key for key in keys if some[0] <= key <= some[1]]),
            (f"SELECT id, last FROM t FORCE INDEX (last) WHERE last >= 0 ORDER BY last {chosen.choice(['', 'DESC'])}", keys),
            ("SELECT id, last, lst FROM t FORCE INDEX (last) WHERE last >= 0", keys),
            (f"SELECT id, last{chosen.choice(['', ', lst'])} FROM t FORCE INDEX (grp) WHERE grp = {group}",
             [key for key in keys if key // STEP % 5 == group]),
            (f"SELECT id, last, lst FROM t WHERE id IN ({', '.join(map(str, some))})", some),
            ("SELECT id, last, lst FROM t FORCE INDEX (lst) WHERE lst >= ''", keys),
        ][way]
        found = [(*row, None)[:3] for row in self.sql(statement + lock)]
        # Below REPEATABLE READ a row may move from before a locking scan to behind it.
        if sorted(row[0] for row in found) != wanted and not (lock and trx.level != "REPEATABLE READ"):
            self.of.problems.append(f"{trx}: {statement}{lock}: keys {sorted(row[0] for row in found)}")
        for key, last, text in found:
            if text is not None and (text.rsplit(",", 1)[-1] or "0") != str(last):
                self.of.problems.append(f"{trx}: {statement}{lock}: key {key}: last {last}, list ...{text[-40:]}")
        trx.lists.extend(found)

    def read_set(self, trx):
        group = self.random.randrange(4)
        found = self.sql(f"SELECT {self.random.choice(['k', 'k, LENGTH(pad)'])} FROM s FORCE INDEX ({self.random.choice(['grp', 'PRIMARY'])}) "
                         f"WHERE grp = {group}")
        trx.sets.append((group, frozenset(row[0] for row in found)))
        if len(trx.sets[-1][1]) != len(found):
            self.of.problems.append(f"{trx}: a row twice in set {group}")

    def read(self, trx):
        self.read_set(trx) if self.random.random() < 0.3 else self.read_lists(trx)

    def append(self, trx):
        number, first = self.of.fresh(), self.random.randrange(self.of.case.keys)
        if trx.snapshot and trx.snapshot.lists:
            first = self.random.choice(trx.snapshot.lists)[0] // STEP
        keys = [first * STEP]
        if self.random.random() < 0.15:
            keys = [i * STEP for i in range(first, min(self.of.case.keys, first + self.random.randrange(2, 6)))]
        trx.appended.extend((key, number) for key in keys)
        pad = self.random.choice(["pad", "pad", f"REPEAT('y', {self.random.randrange(self.of.case.pad + 1)})"])
        changed = self.cursor.execute(f"UPDATE t SET lst = CONCAT(lst, IF(lst = '', '', ','), {number}), last = {number}, pad = {pad} "
                                      f"WHERE id BETWEEN {keys[0]} AND {keys[-1]}")
        if changed != len(keys):
            self.of.problems.append(f"{trx}: UPDATE of {keys} changed {changed} rows")

    def insert(self, trx):
        row = self.of.fresh() * 13 % 1000003, self.random.randrange(4)
        trx.inserted.append(row)
        self.sql("INSERT INTO s (k, grp, pad) VALUES (%s, %s, REPEAT('z', %s))", (*row, self.random.randrange(self.of.case.pad + 1)))

    def delete(self, trx):
        found = self.sql("SELECT k FROM s WHERE grp = %s ORDER BY k LIMIT 1 FOR UPDATE", (self.random.randrange(4),))
        if found:
            trx.deleted.append(found[0][0])
            if self.cursor.execute("DELETE FROM s WHERE k = %s", found[0]) != 1:
                self.of.problems.append(f"{trx}: a locked row was not there to be deleted: {found[0]}")

    def changes(self, trx):
        savepoint = None
        for _ in range(self.random.randrange(1, 6)):
            way = self.random.random()
            if way < 0.4 and trx.kind == "serializable":
                self.read(trx)
            elif way < 0.2:
                self.read_lists(trx, self.random.choice([" FOR UPDATE", " LOCK IN SHARE MODE"]))
            elif way < 0.75:
                self.append(trx)
            elif way < 0.87:
                self.insert(trx)
            elif way < 0.93:
                self.delete(trx)
            elif savepoint is None:
                self.sql("SAVEPOINT a")
                savepoint = [list(changes) for changes in (trx.appended, trx.inserted, trx.deleted)]
            else:
                self.sql("ROLLBACK TO a")
                trx.appended, trx.inserted, trx.deleted = [list(changes) for changes in savepoint]
                # It may have read what it has rolled back.
                trx.lists, trx.sets = [], []

    def update(self, trx):
        """Reads without locks, and changes what it has read."""
        trx.snapshot = Trx(self.of.fresh(), "snapshot", trx.level)
        for _ in range(self.random.randrange(1, 3)):
            self.read(trx.snapshot)
            time.sleep(self.random.choice([0, 0, 0.01]))
        for _ in range(self.random.randrange(1, 4)):
            self.append(trx)

    def statements(self):
        self.sql("START TRANSACTION")
        for _ in range(self.random.randrange(1, 4)):
            trx = Trx(self.of.fresh(), "statement", "READ COMMITTED")
            self.read(trx)
            trx.outcome = "committed"
            self.of.note(trx)
        self.sql("COMMIT")

    def transaction(self):
        kind = self.random.choice(["serializable", "serializable", "snapshot", "snapshot", "statements", "writer", "writer", "auto", "updater"])
        level = LEVELS.get(kind) or self.random.choice(WRITING)
        real = "READ COMMITTED" if self.of.case.weak and kind == "snapshot" else level
        trx = Trx(self.of.fresh(), kind, level)
        try:
            self.sql(f"SET SESSION TRANSACTION ISOLATION LEVEL {real}")
            self.sql(f"SET {self.of.engine}_snapshot_isolation = {int(kind == 'updater' and not self.of.case.weak)}")
            if kind == "statements":
                return self.statements()
            if kind == "auto":
                trx.outcome = "unknown"
                self.append(trx)
            else:
                self.sql("START TRANSACTION" + (" WITH CONSISTENT SNAPSHOT" if kind == "snapshot" and self.random.random() < 0.5 else ""))
                if kind == "snapshot":
                    for _ in range(self.random.randrange(2, 6)):
                        self.read(trx)
                        time.sleep(self.random.choice([0, 0, 0.01, 0.2]))
                elif kind == "updater":
                    self.update(trx)
                else:
                    self.changes(trx)
                if self.random.random() < 0.1:
                    self.sql("ROLLBACK")
                    trx.outcome = "rolled back"
                    return self.of.note(trx)
                trx.outcome = "unknown"
                self.sql("COMMIT")
            trx.outcome, trx.acknowledged = "committed", time.monotonic()
        except (pymysql.err.Error, OSError) as problem:
            code = code_of(problem)
            if trx.outcome != "unknown" or code not in GONE:
                trx.outcome = "rolled back"
            self.of.note(trx)
            if code in GONE:
                raise
            if code not in EXPECTED:
                self.of.problems.append(f"{trx}: {problem}")
            return self.sql("ROLLBACK")
        if trx.snapshot:
            trx.snapshot.outcome = "committed"
            self.of.note(trx.snapshot)
        self.of.note(trx)
        return None


class Verdict:
    """Holds a history against the tables' contents in the end."""

    def __init__(self, run):
        self.history, self.problems, self.arrows = run.history, run.problems, collections.defaultdict(dict)
        with run.connect() as c:
            cursor = c.cursor()
            cursor.execute("SELECT id, lst FROM t")
            self.lists = {key: [int(number) for number in text.split(",") if number] for key, text in cursor.fetchall()}
            cursor.execute("SELECT k FROM s")
            self.rows = {row[0] for row in cursor.fetchall()}
            cursor.execute("CHECK TABLE t, s EXTENDED")
            self.problems += [str(row) for row in cursor.fetchall() if row[3] != "OK"]
        self.place = {key: {number: i for i, number in enumerate(numbers)} for key, numbers in self.lists.items()}
        self.writer = {number: trx for trx in self.history for _, number in trx.appended}
        self.found = {row for trx in self.history for row in trx.deleted}

    def judge(self):
        for trx in self.history:
            self.outcome(trx)
        self.order_of_writers()
        committed = [trx for trx in self.history if trx.outcome == "committed"]
        self.inserter = {row: trx for trx in committed for row, _ in trx.inserted}
        self.deleter = {row: trx for trx in committed for row in trx.deleted}
        self.of_group = collections.defaultdict(set)
        for trx in committed:
            for row, group in trx.inserted:
                self.of_group[group].add(row)
        self.problems += [f"row {row} was deleted by {trx} and is there" for row, trx in self.deleter.items() if row in self.rows]
        for trx in committed:
            self.what_lists_tell(trx)
            self.what_sets_tell(trx)
            self.repeated(trx)
            if trx.snapshot:
                self.what_was_read_is_changed(trx)
        self.cycle()

    def outcome(self, trx):
        """Acknowledged ones are there, others wholly or not."""
        there = [number in self.place[key] for key, number in trx.appended]
        # Who deletes a row of another has found it committed.
        there += [row in self.rows or row in self.found for row, _ in trx.inserted if row not in trx.deleted]
        if trx.outcome == "unknown":
            there += [row not in self.rows for row in trx.deleted] if not there else []
            trx.outcome = "committed" if any(there) else "rolled back"
        if trx.outcome == "committed" and not all(there):
            self.problems.append(f"{trx}, {'acknowledged' if trx.acknowledged else 'half there'}: lost {trx.appended} {trx.inserted}: {there}")
        if trx.outcome == "rolled back" and any(number in self.place[key] for key, number in trx.appended):
            self.problems.append(f"{trx} was rolled back and is there")

    def arrow(self, first, second, why):
        if first is not second:
            self.arrows[second.number].setdefault(first.number, why)

    def order_of_writers(self):
        for key, numbers in self.lists.items():
            for before, after in zip(numbers, numbers[1:]):
                self.arrow(self.writer[before], self.writer[after], f"{after} behind {before} in {key}")

    def what_lists_tell(self, trx):
        own = {number for _, number in trx.appended}
        for key, last, text in trx.lists:
            if last in own:
                continue
            at = self.place[key].get(last, -1)
            if last and at < 0:
                self.problems.append(f"{trx} has read {last} of {key}, which {self.writer.get(last)} has rolled back")
                continue
            if text is not None and [int(number) for number in text.split(",") if number] != self.lists[key][:at + 1]:
                self.problems.append(f"{trx}: the list of {key} ends ...{text[-40:]}: {last} came behind something else")
            if last:
                self.arrow(self.writer[last], trx, f"read {last} of {key}")
            if at + 1 < len(self.lists[key]):
                number = self.lists[key][at + 1]
                writer = self.writer[number]
                self.arrow(trx, writer, f"did not read {number} of {key}")
                if writer is not trx and writer.acknowledged and writer.acknowledged < trx.begun:
                    self.problems.append(f"{trx} did not see {number} of {key}, acknowledged before")
                if last and writer is self.writer[last] and writer is not trx:
                    self.problems.append(f"{trx} has read {key} in the middle of {writer}")

    def what_sets_tell(self, trx):
        own = {row for row, _ in trx.inserted}
        for group, found in trx.sets:
            for row in found - own:
                if row not in self.inserter:
                    self.problems.append(f"{trx} has read row {row}, which nobody has committed")
                    continue
                self.arrow(self.inserter[row], trx, f"read row {row}")
                if row in self.deleter:
                    self.arrow(trx, self.deleter[row], f"read row {row} before it was deleted")
            for row in self.of_group[group] - found - self.deleter.keys():
                self.arrow(trx, self.inserter[row], f"did not read row {row}")

    def repeated(self, trx):
        if trx.kind == "snapshot":
            seen = {}
            for what, found in [(key, last) for key, last, _ in trx.lists] + [(f"set {group}", rows) for group, rows in trx.sets]:
                if seen.setdefault(what, found) != found:
                    self.problems.append(f"{trx}: {what} has changed within the snapshot")

    def what_was_read_is_changed(self, trx):
        self.arrow(trx.snapshot, trx, "has read")
        first = {key: number for key, number in reversed(trx.appended)}
        for key, last, _ in trx.snapshot.lists:
            if key in first and self.lists[key].index(first[key]) != self.place[key].get(last, -1) + 1:
                self.problems.append(f"{trx} has read {last} of {key} and put {first[key]} behind another's: a lost update")

    def cycle(self):
        try:
            graphlib.TopologicalSorter(self.arrows).prepare()
        except graphlib.CycleError as found:
            path = found.args[1]
            by_number = {trx.number: trx for trx in self.history}
            steps = [f"{by_number[a]} -> {by_number[b]} ({self.arrows[b].get(a)})" for a, b in zip(path, path[1:])]
            self.problems.append("a cycle: " + "; ".join(steps))


if __name__ == "__main__":
    server.main_guard(lambda: random_runs.main(__doc__, CASES, Run, Verdict))
