"""What the *_tests.py of this folder share: one server, a database, statements and what they are to give."""
import contextlib
import os
import sys
import threading
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import server  # noqa: E402
from server import HUNG_SECONDS, pymysql, wait_until  # noqa: E402


def rows(connection, sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def code_of(connection, sql):
    """The error that a statement ends with, 0 if with none."""
    try:
        rows(connection, sql)
        return 0
    except pymysql.err.Error as problem:
        return problem.args[0]


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, wanted {wanted!r}")


def database(where):
    connection = where.connect()
    rows(connection, "DROP DATABASE IF EXISTS d")
    rows(connection, "CREATE DATABASE d")
    connection.select_db("d")
    return connection


def metric(c, name):
    return int(rows(c, f"SELECT value FROM information_schema.myriad_metrics WHERE name='{name}'")[0][0])


def status(connection, name):
    return int(rows(connection, f"SHOW GLOBAL STATUS LIKE 'Myriad_{name}'")[0][1])


def begin(connection, sql):
    """A statement in a thread of its own."""
    thread = threading.Thread(target=rows, args=(connection, sql))
    thread.start()
    return thread


def await_wait(connection, thread):
    """Waits until the statement that the connection runs in the thread waits: for a table, a row or its own sleep. Or is over."""
    number = connection.thread_id()
    waiting = (f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {number} AND STATE RLIKE '^(Waiting for|User) ' UNION ALL "
               f"SELECT 1 FROM information_schema.MYRIAD_TRX WHERE TRX_MYSQL_THREAD_ID = {number} AND TRX_STATE = 'LOCK WAIT'")
    wait_until("it waits", lambda: connection.where.query(waiting) or not thread.is_alive())


def start(connection, sql):
    """The same; it is where it waits then."""
    thread = begin(connection, sql)
    await_wait(connection, thread)
    return thread


def join(*threads):
    for thread in threads:
        thread.join(HUNG_SECONDS)
        expect("a statement hangs", thread.is_alive(), False)


def close(connection):
    """Closes a connection; the server has ended its session then."""
    number = connection.thread_id()
    connection.close()
    wait_until("its end", lambda: not connection.where.query(f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {number}"))


def at_once(work, items):
    """Does `work` for each in a thread of its own, all at the same time."""
    threads = [threading.Thread(target=work, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextlib.contextmanager
def gate(where):
    """An expression of SQL at which a statement waits, for as long as this is entered."""
    with where.connect() as holder:
        name = f"'gate{holder.thread_id()}'"
        rows(holder, f"SELECT GET_LOCK({name}, 0)")
        yield f"GET_LOCK({name}, 600)"


def first_answer(ask):
    """What `ask` gives as soon as it gives something."""
    return wait_until("an answer", ask)


def wait_pairs(c):
    """The connections (waiting, waited for) of all lock waits."""
    return rows(c, "SELECT r.TRX_MYSQL_THREAD_ID, b.TRX_MYSQL_THREAD_ID FROM information_schema.MYRIAD_LOCK_WAITS w "
                   "JOIN information_schema.MYRIAD_TRX r ON r.TRX_ID = w.REQUESTING_TRX_ID "
                   "JOIN information_schema.MYRIAD_TRX b ON b.TRX_ID = w.BLOCKING_TRX_ID")


def run(module):
    """Runs the tests of a module, given by its globals, that the command line names, or all."""
    names = sys.argv[1:]
    tests = {name[5:]: f for name, f in module.items() if name.startswith("test_")}
    server.check_named(names, tests)
    passed = failed = 0
    with server.Server("MYRIAD", options=["--loose-myriad-lock-wait-timeout=120", "--lock-wait-timeout=120"]) as where:
        for name, test in tests.items():
            if names and name not in names:
                continue
            try:
                test(where)
                passed += 1
                print(f"ok   {name}")
            except (AssertionError, pymysql.err.Error, server.ServerError) as problem:
                failed += 1
                print(f"FAIL {name}: {problem}")
                if os.environ.get("VERBOSE"):
                    traceback.print_exc()
                if not where.alive():
                    print("     " + where.why())
                    where.start()
            sys.stdout.flush()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
