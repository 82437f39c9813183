"""After a benchmark's figures: SIGKILL under its full load, again and again, and a full verification.

Nobody records what sysbench's clients changed. So clients with a record outside of the server change a table of their own
beside them (tests/crash/larger.py): after each kill it must be as the record says, and one of the load's tables must pass
CHECK TABLE ... EXTENDED; after the last kill all of them.
"""
import os
import random
import subprocess
import sys
import time

from measure import ROOT, server

sys.path.insert(0, os.path.join(ROOT, "tests", "crash"))
import larger  # noqa: E402

RECORDED_ROWS = 150000


def add_argument(parser):
    parser.add_argument("--kills", type=int, default=0, help="SIGKILLs of Myriad under load after the figures, with a full "
                        "verification of what came back")


def check_tables(srv, tables):
    """What CHECK TABLE finds in the load's tables."""
    return [problem for t in tables for problem in larger.check_table(lambda sql: srv.query(sql, "bench"), t)]


def of(servers, kills, load, seconds=6):
    """Kills each server of Myriad `kills` times, `load(srv)` being the command line of the load beside; `seconds` is the longest
    time of work before a kill. ServerError with the first problem if anything is lost or damaged."""
    for name, srv in servers.items():
        if not kills or not name.upper().startswith("MYRIAD"):
            continue
        chance = random.Random(kills)
        tables = sorted(row[0] for row in srv.query("SHOW TABLES", "bench"))
        models = larger.fill(srv, RECORDED_ROWS)
        for loop in range(kills):
            beside = subprocess.Popen(load(srv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                time.sleep(1)
                if beside.poll() is not None:
                    raise server.ServerError(f"the load beside ended with status {beside.returncode}")
                models, problems, _, line = larger.work_and_kill(srv, loop, models, chance.random() * seconds)
            finally:
                beside.kill()
                beside.wait()
            problems += check_tables(srv, [tables[loop % len(tables)]])
            print(f"{name}: kill {loop + 1} of {kills}: {line}", flush=True)
            if problems:
                raise server.ServerError("; ".join(problems))
        if problems := check_tables(srv, tables):
            raise server.ServerError("; ".join(problems))
        srv.query("DROP DATABASE larger")
        print(f"{name}: killed {kills} times under load; nothing acknowledged was lost, no table is damaged", flush=True)
