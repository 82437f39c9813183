#!/usr/bin/python3
"""Runs MariaDB with Myriad as the default engine in the foreground, on var/run, until Ctrl-C."""
import os
import signal
import socket
import subprocess
import sys
import time

import server

PORT = int(os.environ.get("MYRIAD_PORT", "3307"))
ENGINE = os.environ.get("MYRIAD_ENGINE", "MYRIAD")


def check_port():
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", PORT))
        except OSError as problem:
            raise server.ServerError(f"port {PORT} on 127.0.0.1 cannot be used ({problem.strerror}): stop what "
                                     "listens there, or set MYRIAD_PORT to another number") from None


def main():
    folder = os.path.join(server.ROOT, "var", "run")
    datadir, sock = os.path.join(folder, "data"), os.path.join(folder, "mysqld.sock")
    log = os.path.join(folder, "error.log")
    server.check_version()
    engine = server.engine_options(ENGINE, pool_mib=int(os.environ.get("MYRIAD_POOL_MIB", "1024")))
    check_port()
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, ".writable"), "w"):
            pass
        os.remove(os.path.join(folder, ".writable"))
    except OSError as problem:
        raise server.ServerError(f"{folder} cannot be written: {problem.strerror}") from None
    if len(sock) > 100:
        raise server.ServerError(f"the path of the socket is too long for the kernel: {sock}")
    if not os.path.isdir(os.path.join(datadir, "mysql")):
        print(f"creating a data directory in {os.path.relpath(datadir)}", flush=True)
        server.install_db(datadir)

    command = [server.tool("mariadbd"), "--no-defaults"] + server.run_as_root() + [
        f"--datadir={datadir}", f"--socket={sock}", f"--pid-file={folder}/mysqld.pid", f"--log-error={log}",
        "--bind-address=127.0.0.1", f"--port={PORT}", f"--plugin-dir={server.plugin_dir(folder + '/plugins')}",
        "--max-connections=500"] + engine + sys.argv[1:]
    process = subprocess.Popen(server.tied_to_us(command, "TERM"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, process_group=0)
    stopping = []

    def stop(*_):
        if not stopping:
            stopping.append(True)
            process.terminate()
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)

    client = [server.tool("mariadb"), "--no-defaults", f"--socket={sock}", "-uroot"]
    while process.poll() is None and not stopping:
        if subprocess.run(client + ["-e", "CREATE DATABASE IF NOT EXISTS test"], capture_output=True).returncode == 0:
            print(f"ready: mariadb --socket={os.path.relpath(sock)} -uroot test   (or -h127.0.0.1 -P{PORT}; "
                  "Ctrl-C stops)", flush=True)
            break
        time.sleep(0.1)
    status = process.wait()
    if status == 0:             # after Ctrl-C, or a client's SHUTDOWN
        print("stopped cleanly")
        return 0
    with open(log, errors="replace") as f:
        lines = [line.strip() for line in f.readlines()[-40:] if "[ERROR]" in line]
    # The engine's own reason says more than what the server makes of it.
    own = [line.split("[ERROR] MYRIAD: ", 1)[1] for line in lines if "[ERROR] MYRIAD: " in line]
    raise server.ServerError(f"the server ended with status {status}: {' | '.join(own or lines[-3:])} (see {log})")


if __name__ == "__main__":
    server.main_guard(main)
