#!/usr/bin/python3
"""Damages what a server stands on (files, disk space, rights) and checks what it says and what is still usable.

Each case works on a data directory of its own with databases d and e, each in a tablespace of its own. What must hold:
a clear sentence in the error log and to the client, other tables usable, no acknowledged commit lost, no crash.
Errors of the device itself are in device.py, and on the simulated disk in crates/engine/tests. Cases that mount file systems need root and are skipped, by name, without it.
"""
import argparse

# Their cases run in this order.
import tablespaces  # noqa: F401
import engine_files  # noqa: F401
import disks  # noqa: F401
from harness import run_cases, server


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help="names of cases; all without")
    args = parser.parse_args()
    return run_cases(args.cases, "faults")


if __name__ == "__main__":
    server.main_guard(main)
