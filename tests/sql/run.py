#!/usr/bin/python3
"""Runs the scripts in t/*.sql on InnoDB and on Myriad in one server and compares every statement's outcome.

Nothing expected is stored: InnoDB, in the same run, is the reference. A script is SQL, one statement up to a `;` at the end
of a line. Lines of their own direct the run:
  -- delimiter //        another end of statement
  -- connection NAME     switch to a connection (made at first use)
  -- sort                the next statement's rows come in no defined order
  -- code              of an error only the code is compared
  -- ignore              the next statement's result is not compared (it must not lose the connection)
  -- refused             Myriad must refuse the next statement with an error that names MYRIAD or the feature; InnoDB skips it
  -- restart             stop the server cleanly and start it again
Usage: run.py [-v] [NAME...]
"""
import argparse
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import server  # noqa: E402
from server import pymysql  # noqa: E402

ENGINES = ("InnoDB", "MYRIAD")


def parse(path):
    """Yields (line number, directives, statement or None)."""
    delimiter, directives, text, start = ";", [], [], 0
    with open(path, encoding="utf8") as f:
        for number, line in enumerate(f, 1):
            stripped = line.strip()
            if not text and stripped.startswith("-- "):
                word, _, rest = stripped[3:].partition(" ")
                if word == "delimiter":
                    delimiter = rest
                elif word in ("connection", "restart"):
                    yield number, [(word, rest)], None
                elif word in ("sort", "code", "ignore", "refused"):
                    directives.append((word, rest))
                continue
            if not text and not stripped:
                continue
            if not text:
                start = number
            text.append(line.rstrip("\n"))
            if stripped.endswith(delimiter):
                statement = "\n".join(text)
                statement = statement[:statement.rstrip().rfind(delimiter)]
                yield start, directives, statement
                directives, text = [], []


class Runner:
    """One script on one engine; `outcomes` is what is compared."""

    def __init__(self, where, engine):
        self.where, self.engine, self.connections, self.current = where, engine, {}, "main"
        self.outcomes = []
        database = self.open("setup", None)
        with database.cursor() as cursor:
            for name in ("t", "t2"):
                cursor.execute(f"DROP DATABASE IF EXISTS {name}")
                cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")

    def open(self, name, database="t"):
        connection = self.where.connect(database=database, charset="utf8mb4", read_timeout=120)
        with connection.cursor() as cursor:
            cursor.execute(f"SET default_storage_engine={self.engine}, default_tmp_storage_engine={self.engine}")
            cursor.execute("SET SESSION innodb_lock_wait_timeout=2")
            cursor.execute("SET SESSION myriad_lock_wait_timeout=2")
        self.connections[name] = connection
        return connection

    def close(self):
        for connection in self.connections.values():
            try:
                connection.close()
            except pymysql.err.Error:
                pass
        self.connections = {}

    def normalise(self, value):
        if isinstance(value, str):
            for engine in ("InnoDB", "MYRIAD", "innodb", "myriad"):
                value = value.replace(engine, "ENGINE")
            value = re.sub(r"#sql[-0-9a-z_]+", "#sql", value)
        return value

    def run(self, statement, directives):
        words = [word for word, _ in directives]
        if "refused" in words and self.engine == "InnoDB":
            return None
        connection = self.connections.get(self.current) or self.open(self.current)
        statement = statement.replace("@ENGINE@", self.engine).replace("@FOLDER@", self.where.folder)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                results = []
                while True:
                    rows = [tuple(self.normalise(value) for value in row) for row in cursor.fetchall()]
                    if "sort" in words:
                        rows.sort(key=repr)
                    # ALTER TABLE counts the rows it copied, and the engines copy for different reasons.
                    counts = not cursor.description and not re.match(r"\s*(ALTER|CREATE|OPTIMIZE)\b", statement, re.I)
                    results.append((cursor.rowcount if counts else None, rows))
                    if not cursor.nextset():
                        break
            outcome = ("ok", results)
        except pymysql.err.Error as problem:
            code = problem.args[0]
            if code in (2006, 2013, 0):
                raise
            outcome = ("error", code, "" if "code" in words else self.normalise(str(problem.args[1])))
        if "refused" in words:
            if outcome[0] == "error":
                return None
            return ("not refused", statement)
        if "ignore" in words:
            return None
        return outcome


def run_script(path, where, verbose):
    """The differences between the engines, as text."""
    steps = list(parse(path))
    results = {}
    for engine in ENGINES:
        runner = Runner(where, engine)
        outcomes = results[engine] = []
        for number, directives, statement in steps:
            if statement is None:
                word, rest = directives[0]
                if word == "connection":
                    runner.current = rest
                else:
                    runner.close()
                    where.restart()
                continue
            try:
                outcomes.append((number, statement, runner.run(statement, directives)))
            except pymysql.err.Error as problem:
                trace = where.why(20)
                if where.alive():
                    where.kill()
                where.start()
                return [f"line {number}: lost the server ({engine}): {statement[:300]}\n    {problem}\n    {trace}"]
        runner.close()
    differences = []
    for innodb, myriad in zip(*(results[engine] for engine in ENGINES)):
        if innodb[2] != myriad[2]:
            differences.append(f"line {innodb[0]}: {innodb[1][:300]}\n    InnoDB: {str(innodb[2])[:700]}\n    MYRIAD: {str(myriad[2])[:700]}")
            if not verbose and len(differences) >= 5:
                differences.append("...")
                break
    return differences


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("-v", action="store_true", help="show all differences")
    arguments.add_argument("names", nargs="*")
    options = arguments.parse_args()
    paths = sorted(glob.glob(os.path.join(HERE, "t", "*.sql")))
    if options.names:
        paths = [path for path in paths if os.path.basename(path)[:-4] in options.names]
    if not paths:
        raise server.ServerError("no such script in tests/sql/t")
    passed = failed = 0
    with server.Server("MYRIAD", options=["--loose-partition=ON"]) as where:
        for path in paths:
            name = os.path.basename(path)[:-4]
            differences = run_script(path, where, options.v)
            if differences:
                failed += 1
                print(f"FAIL {name}")
                for difference in differences:
                    print("  " + difference)
            else:
                passed += 1
                print(f"ok   {name}")
            sys.stdout.flush()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    server.main_guard(main)
