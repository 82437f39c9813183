#!/usr/bin/env bash
# Every test, one section after the other; a failing section does not stop the others. Ends in "N passed, N failed".
# ONLY="isolation mtr" runs these sections alone.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
python=/usr/bin/python3
passed=0 failed=0 broken=()
log=$(mktemp); trap 'rm -f "$log"' EXIT

section() { # NAME COMMAND...: adds the last "N passed, N failed" of its output; without one, it counts as one test
  local name=$1 status count; shift
  if [ -n "${ONLY:-}" ] && ! [[ " $ONLY " == *" $name "* ]]; then return; fi
  echo "== $name"
  local begin=$SECONDS
  "$@" 2>&1 | tee "$log"; status=${PIPESTATUS[0]}
  count=$(grep -oE '[0-9]+ passed[;,] [0-9]+ failed' "$log" | awk '{p+=$1; f+=$3} END {if (NR) print p, f}')
  if [ -n "$count" ]; then
    set -- $count
    passed=$((passed + $1)); failed=$((failed + $2))
    [ "$status" = 0 ] || [ "$2" != 0 ] || failed=$((failed + 1))
  elif [ "$status" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  [ "$status" = 0 ] || broken+=("$name")
  echo "== $name: $((SECONDS - begin)) s, status $status"
}

section build scripts/build-plugin.sh
section lint scripts/lint.sh
section cargo cargo test --workspace --no-fail-fast
section sql $python tests/sql/run.py
section sql-server $python tests/sql/server_tests.py
section sql-copies $python tests/sql/copy_tests.py
section sql-online-index $python tests/sql/online_index_tests.py
section sql-pool $python tests/sql/pool_tests.py
section sql-tenants $python tests/sql/tenant_tests.py
section sql-foreign-keys $python tests/sql/foreign_key_tests.py
section sql-xa $python tests/sql/xa_tests.py
section sql-random $python tests/sql/random_queries.py
section sql-plugin $python tests/sql/plugin_tests.py
section package $python tests/package/run.py
section isolation $python tests/isolation/run.py
section replication $python tests/replication/run.py
section spider $python tests/spider/run.py
section crash $python tests/crash/run.py --loops "${CRASH_LOOPS:-8}"
section crash-larger $python tests/crash/larger.py --loops "${CRASH_LOOPS:-4}"
section crash-redo-log $python tests/crash/run.py --loops "${CRASH_LOOPS:-4}" --switch-redo-log
section crash-binlog $python tests/crash/run.py --loops "${CRASH_LOOPS:-4}" --binlog
section crash-two-engines $python tests/crash/two_engines.py
section backup $python tests/backup/run.py
section faults $python tests/faults/run.py
section faults-device $python tests/faults/device.py
section mtr $python tests/mtr/run.py

[ ${#broken[@]} = 0 ] || echo "failed sections: ${broken[*]}"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
