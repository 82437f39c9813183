#!/usr/bin/python3
"""sysbench on Myriad's in-memory tables and on ENGINE=MEMORY, with hash indexes as sysbench makes them and with B-trees.

Prints medians and ratios to MEMORY with hash indexes; leaves a CSV, charts and a page under bench/results/. MEMORY has no
transactions and locks whole tables: that is what it is compared for.
"""
import argparse

import measure
import oltp
from measure import server

KINDS = {"MEMORY": "MEMORY", "MEM-BTREE": "MEMORY", "MYRIAD": "MYRIAD"}
WORKLOADS = ["read_only", "read_write"]
HEAP_BYTES = 16 << 30


def start(kinds, args):
    servers = {}
    for kind in kinds:
        if kind not in KINDS:
            raise server.ServerError(f"unknown kind {kind}: one of {', '.join(KINDS)}")
        options = [f"--max-heap-table-size={HEAP_BYTES}"]
        if kind == "MYRIAD":
            options += measure.BIG_LOG["MYRIAD"] + [f"--loose-myriad-memory-tables-size={args.pool_mib * 3 // 4 << 20}"]
        servers[kind] = server.Server(KINDS[kind], pool_mib=args.pool_mib, options=options)
        servers[kind].start()
        # What sysbench writes behind "ENGINE=".
        if kind == "MYRIAD":
            servers[kind].engine = "MYRIAD IN_MEMORY=YES"
    return servers


def prepare(kind, srv, args):
    oltp.prepare(srv, args)
    if kind == "MYRIAD":
        shown = srv.query("SHOW CREATE TABLE sbtest1", "bench")[0][1]
        if "`IN_MEMORY`=YES" not in shown:
            raise server.ServerError(f"sysbench's table is not in memory: {shown}")
    if kind == "MEM-BTREE":
        for n in range(1, args.tables + 1):
            srv.query(f"ALTER TABLE sbtest{n} DROP PRIMARY KEY, ADD PRIMARY KEY (id) USING BTREE, DROP KEY k_{n}, "
                      f"ADD KEY k_{n} (k) USING BTREE", "bench")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kinds", default=",".join(KINDS), help="the first is the measure of the others")
    oltp.add_arguments(parser, WORKLOADS, "8,64", "memory")
    args = parser.parse_args()
    kinds, workloads = args.kinds.split(","), args.workloads.split(",")
    clients = [int(c) for c in args.clients.split(",")]
    print(measure.machine(), flush=True)
    servers = start(kinds, args)
    rows = oltp.run_rounds(servers, args, workloads, clients, lambda kind: prepare(kind, servers[kind], args))
    oltp.report(args, rows, kinds, workloads, clients, "sysbench, tables in memory", "", [oltp.QPS, oltp.P95])
    return 0


if __name__ == "__main__":
    server.main_guard(main)
