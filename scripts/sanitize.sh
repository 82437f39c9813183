#!/usr/bin/env bash
# The C++ shim under the address and undefined-behaviour sanitizers: a plugin of its own, the SQL tests and the
# isolation specs on it, in a server that dies at the first report.
set -euo pipefail
cd "$(dirname "$0")/.."
MYRIAD_SANITIZE=1 scripts/build-plugin.sh
export MYRIAD_PLUGIN=$PWD/build/sanitize/ha_myriad.so
[ ! -f tests/sql/run.py ] || /usr/bin/python3 tests/sql/run.py
/usr/bin/python3 tests/isolation/run.py --jobs 4
