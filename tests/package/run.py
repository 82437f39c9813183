#!/usr/bin/python3
"""The Debian package: made, unpacked into a folder of its own (nothing is installed), and run as a server finds it there."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import server  # noqa: E402


class PackagedServer(server.Server):
    """A server whose only settings of ours are the packaged file's."""

    def __init__(self, root):
        self.settings = os.path.join(root, "etc/mysql/mariadb.conf.d/myriad.cnf")
        super().__init__("INNODB")

    def command_line(self):
        line = super().command_line()
        line[line.index("--no-defaults")] = f"--defaults-file={self.settings}"
        return line


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise server.ServerError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def check(root, package):
    """What is wrong, as an AssertionError."""
    version = server.server_version()
    needs = output_of("dpkg-deb", "--field", package, "Depends")
    assert f"mariadb-server-core (>= 1:{version})" in needs and "mariadb-server-core (<< 1:" in needs, needs
    output_of("dpkg-deb", "--extract", package, root)
    help_text = output_of(os.path.join(root, "usr/bin/myriad"), "--help")
    commands = re.findall(r"^  ([a-z][a-z-]+)  ", help_text, re.M)
    assert "verify" in commands and "man" not in commands, help_text
    pages = {f"myriad-{command}.1.gz" for command in commands if command != "help"} | {"myriad.1.gz"}
    assert set(os.listdir(os.path.join(root, "usr/share/man/man1"))) == pages, "not each subcommand has its manual page"
    with open(os.path.join(root, "etc/mysql/mariadb.conf.d/myriad.cnf")) as f:
        page = re.search(r"/usr/share/doc/\S+", f.read()).group()
    assert os.path.exists(root + page), f"the settings name {page}, which the package lacks"
    documents = os.path.join(root, "usr/share/doc/mariadb-plugin-myriad")
    with open(os.path.join(documents, "README.md")) as f:
        linked = re.findall(r"\]\(([\w/-]+\.md)[)#]", f.read())
    lacking = [name for name in linked if not os.path.exists(os.path.join(documents, name)) and name != "CONTRIBUTING.md"]
    assert linked and not lacking, f"the packaged README links to {lacking}, which the package lacks"
    server.PLUGIN = os.path.join(root, "usr/lib/mysql/plugin/ha_myriad.so")
    with PackagedServer(root) as where:
        engines = {row[0]: row[1] for row in where.query("SHOW ENGINES")}
        assert engines.get("MYRIAD") == "YES", f"engines: {engines}"
        where.query("CREATE DATABASE d")
        where.query("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=MYRIAD", "d")
        where.query("INSERT INTO t VALUES (1), (2)", "d")
        where.restart()
        assert where.query("SELECT * FROM t", "d") == ((1,), (2,)), "the rows are not there after a restart"
        where.stop()
        output_of(os.path.join(root, "usr/bin/myriad"), "verify", where.datadir)
        # Without the engine the server must not run.
        log = os.path.join(where.datadir, "#myriad", "redo.log")
        os.rename(log, where.folder + "/away")
        try:
            where.start()
            raise AssertionError("the server runs without the engine")
        except server.ServerError as refused:
            assert "ended at start" in str(refused), refused
        os.rename(where.folder + "/away", log)
        # Nor where the package is removed and its settings stay.
        os.rename(server.PLUGIN, server.PLUGIN + ".away")
        try:
            where.start()
            raise AssertionError("the server runs without the plugin")
        except server.ServerError as refused:
            assert "ended at start" in str(refused), refused
        os.rename(server.PLUGIN + ".away", server.PLUGIN)
        where.start()
        assert where.query("SELECT * FROM t", "d") == ((1,), (2,)), "the rows are not there after a refused start"


def main():
    made = output_of(os.path.join(server.ROOT, "scripts/package.sh")).splitlines()[-1]
    with tempfile.TemporaryDirectory(prefix="myriad-package-") as root:
        try:
            check(root, os.path.join(server.ROOT, made))
        except AssertionError as wrong:
            print(f"FAIL package: {wrong}\n0 passed, 1 failed")
            return 1
    print("1 passed, 0 failed")
    return 0


if __name__ == "__main__":
    server.main_guard(main)
