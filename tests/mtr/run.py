#!/usr/bin/python3
"""MariaDB's own storage_engine suites on Myriad, against results recorded from InnoDB in the same run.

The results that MariaDB ships are stale, so InnoDB's are the measure: InnoDB runs first and its output is recorded, runs
again to see which tests repeat themselves, and those that do are run on the engine. All of it happens in a temporary
folder of links, because mtr writes beside its tests and finds plugins relative to itself.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts"))
import server  # noqa: E402

SUITES = {"storage_engine": "storage_engine", "parts": "storage_engine/parts", "trx": "storage_engine/trx"}
SYSTEM_TESTS = "/usr/share/mysql/mysql-test"
OUTCOME = re.compile(r"^(\S+?)\.(\S+)\s.*\[ (pass|fail|skipped|disabled|retry-pass|retry-fail)")

DEFINE = """let $ENGINE = {engine};
let $default_col_opts = /*!*/;
let $default_col_indexed_opts = /*!*/;
let $default_tbl_opts = /*!*/;
let $default_index = /*!INDEX*/;
let $default_int_type = INT(11);
let $default_char_type = CHAR(8);
"""


def engine_opt(engine, suite):
    """What the server of `engine` is started with."""
    wait = " ".join(server.wait_timeout_options(engine, 1)) if suite == "trx" else ""
    if engine.upper() == "INNODB":
        return f"--innodb {wait}"
    if engine.upper() == "ARIA":
        return ""
    return f"--plugin-load-add=ha_{engine.lower()}.so {wait}"


def link_all(source, target, but=()):
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(source):
        if name not in but:
            os.symlink(os.path.join(source, name), os.path.join(target, name))


def shadow_base(folder, engines):
    """Builds a MariaDB installation of links in `folder`; returns its mysql-test folder."""
    link_all("/usr", folder, but=("lib", "share"))
    link_all("/usr/lib", folder + "/lib", but=("mysql",))
    server.plugin_dir(folder + "/lib/mysql/plugin")
    link_all("/usr/share", folder + "/share", but=("mysql",))
    link_all("/usr/share/mysql", folder + "/share/mysql", but=("mysql-test",))
    tests = folder + "/share/mysql/mysql-test"
    link_all(SYSTEM_TESTS, tests, but=("suite", "plugin", "var"))
    link_all(SYSTEM_TESTS + "/suite", tests + "/suite", but=("storage_engine",))
    shutil.copytree(SYSTEM_TESTS + "/suite/storage_engine", tests + "/suite/storage_engine")
    os.remove(tests + "/suite/storage_engine/disabled.def")
    for engine in engines:
        overlay = f"{tests}/plugin/{engine.lower()}/storage_engine"
        for suite in SUITES:
            inner = overlay if suite == "storage_engine" else f"{overlay}/{suite}"
            os.makedirs(inner)
            with open(inner + "/suite.opt", "w") as f:
                f.write(engine_opt(engine, suite) + "\n")
        with open(overlay + "/define_engine.inc", "w") as f:
            f.write(DEFINE.format(engine=engine))
    return tests


def name_engine(tests, engine):
    """Warnings that begin with InnoDB's name are expected with the other engine's."""
    for folder, _, names in os.walk(tests + "/suite/storage_engine"):
        for name in (n for n in names if n.endswith(".result")):
            with open(f"{folder}/{name}", "rb+") as f:
                text = f.read()
                f.seek(0)
                f.write(re.sub(rb"(?m)^(Warning\t\d+\t)InnoDB: ", rb"\1" + engine.encode() + b": ", text))
                f.truncate()


def tests_of(tests, suite):
    names = os.listdir(f"{tests}/suite/{SUITES[suite]}")
    return sorted(name[:-5] for name in names if name.endswith(".test"))


def mtr(tests, engine, chosen, vardir, record=False, parallel=2, echo=False, extra=()):
    """Runs `chosen` {(suite, test)} on `engine`; returns {(suite, test): outcome} and the text of mtr."""
    back = {f"{path}-{engine.lower()}": suite for suite, path in SUITES.items()}
    names = [f"{SUITES[suite]}-{engine.lower()}.{test}" for suite, test in sorted(chosen)]
    command = ["perl", "mariadb-test-run.pl", f"--vardir={vardir}", f"--parallel={parallel}", "--force",
               "--max-test-fail=0", "--retry=0", "--testcase-timeout=2", "--suite-timeout=20", "--nowarnings",
               "--suite=" + ",".join(back)] + (["--record"] if record else []) + list(extra) + names
    environment = dict(os.environ, MTR_BUILD_THREAD="auto")
    # Through a file: a server or helper that mtr leaves behind would keep a pipe open, and us waiting for its end.
    log = vardir + ".log"
    with open(log, "w") as out:
        subprocess.run(command, cwd=tests, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    with open(log, errors="replace") as f:
        text = f.read()
    outcomes = {}
    for line in text.splitlines():
        found = OUTCOME.match(line)
        if found and found[1] in back:
            outcomes[(back[found[1]], found[2])] = found[3]
        if echo and (found and found[3] not in ("pass", "retry-pass")):
            print(line.rstrip(), flush=True)
    return outcomes, text


def refused():
    with open(os.path.join(HERE, "refused.list")) as f:
        lines = [line.split(":")[0].split() for line in f if line.strip() and not line.startswith("#")]
    return {(suite, test) for suite, test in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", default="MYRIAD", help="MYRIAD, or ROCKSDB or ARIA to try the runner")
    parser.add_argument("--suites", default=",".join(SUITES), help="of " + ", ".join(SUITES))
    parser.add_argument("--test", action="append", help="run only this test (may be repeated)")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--no-check", action="store_true", help="do not run InnoDB a second time")
    parser.add_argument("--keep", action="store_true", help="keep the folder, for the logs and differences")
    parser.add_argument("--details", action="store_true", help="print mtr's differences of the tests that failed")
    args = parser.parse_args()
    if args.engine.upper() == "MYRIAD":
        server.engine_options("MYRIAD")     # says so if the plugin is missing
    folder = tempfile.mkdtemp(prefix="myriad-mtr-")
    try:
        return run(args, folder)
    finally:
        if args.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def run(args, folder):
    tests = shadow_base(folder + "/base", ["InnoDB", args.engine])
    chosen = {(suite, test) for suite in args.suites.split(",") for test in tests_of(tests, suite)
              if not args.test or test in args.test}
    good = {"pass", "retry-pass"}
    recorded, text = mtr(tests, "InnoDB", chosen, folder + "/var-record", record=True, parallel=args.parallel)
    if not recorded:
        raise server.ServerError("mtr ran no test: " + " ".join(text.strip().splitlines()[-3:]))
    usable = {case for case, outcome in recorded.items() if outcome in good}
    if not args.no_check:
        again, _ = mtr(tests, "InnoDB", usable, folder + "/var-check", parallel=args.parallel)
        usable = {case for case in usable if again.get(case) in good}
    print(f"InnoDB: {len(usable)} of {len(chosen)} tests recorded"
          + "".join(f"\n  not comparable: {suite} {test}" for suite, test in sorted(chosen - usable)), flush=True)
    skip = refused() & usable if args.engine.upper() == "MYRIAD" else set()
    for suite, test in sorted(skip):
        print(f"  refused by design: {suite} {test}")
    name_engine(tests, args.engine.upper())
    outcomes, text = mtr(tests, args.engine, usable - skip, folder + "/var-engine", parallel=args.parallel, echo=True)
    failed = sorted(case for case in usable - skip if outcomes.get(case) not in good)
    if args.details:
        print(text)
    for suite, test in failed:
        print(f"  failed: {suite} {test} ({outcomes.get((suite, test), 'not run')})")
    print(f"mtr storage_engine on {args.engine}: {len(usable) - len(skip) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    server.main_guard(main)
