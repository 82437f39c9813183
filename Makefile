# One way to do each thing; the work is in scripts/, tests/ and bench/.
# Debian's Python, because the modules come from Debian's packages.
PYTHON := /usr/bin/python3

.PHONY: help setup build package run demo test test-long test-sanitize lint bench-oltp bench-bulk bench-tables bench-iobound \
  bench-insert bench-check bench-memory clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile | expand -t 22

setup:
	@scripts/setup.sh

build: setup  ## build build/ha_myriad.so and build/myriad
	@scripts/build-plugin.sh

package: build  ## build/mariadb-plugin-myriad_VERSION_amd64.deb
	@scripts/package.sh

run: build  ## start MariaDB with Myriad on var/run/mysqld.sock and 127.0.0.1:3307
	@exec $(PYTHON) scripts/run_server.py

demo: build  ## five minutes at most: load, run, kill and verify beside InnoDB; charts in var/demo.html
	@$(PYTHON) scripts/demo.py

test: setup  ## every test, ending in "N passed, N failed"
	@scripts/test.sh

test-long: setup  ## soak: hours of crash loops and simulation (HOURS=1)
	@scripts/test-long.sh

test-sanitize: setup  ## the shim under the address and undefined-behaviour sanitizers
	@scripts/sanitize.sh

lint: setup  ## formatting, clippy, layer order, file sizes, licences
	@scripts/lint.sh

bench-oltp: build  ## sysbench on InnoDB, Myriad and MyRocks, interleaved (ARGS="--help" for a short run)
	@$(PYTHON) bench/oltp.py $(ARGS)

bench-bulk: build  ## loads, scans, ALTER and UPDATE of a million rows
	@$(PYTHON) bench/bulk.py $(ARGS)

bench-tables: build  ## what a table costs, beside InnoDB, MyRocks and MEMORY (ARGS="--tables 1000,10000,100000,1000000")
	@$(PYTHON) bench/tables.py $(ARGS)

bench-iobound: build  ## sysbench on data 8 times the pool, second by second (ARGS="--scale 0.1" for a first look)
	@$(PYTHON) bench/iobound.py $(ARGS)

bench-insert: build  ## insert benchmark: 3 secondary indexes, larger than the pool (ARGS="--scale 0.1")
	@$(PYTHON) bench/insert.py $(ARGS)

bench-check: build  ## the tablespace check on 200,000 files, beside MySQL's rule and fio
	@scripts/setup.sh fio || true
	@$(PYTHON) bench/check.py $(ARGS)

bench-memory: build  ## sysbench on in-memory tables, beside ENGINE=MEMORY
	@$(PYTHON) bench/memory.py $(ARGS)

clean:  ## remove what was built (not var/run, which holds data)
	rm -rf build/handler build/sanitize build/package build/*.deb build/ha_myriad.so build/myriad build/datadir-template
	cargo clean
