#!/usr/bin/env bash
# Every test. Sections that start servers run two at a time (JOBS), since they wait more than they work; a failing section
# does not stop the others. Ends in "N passed, N failed". ONLY="isolation mtr" runs these sections alone.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
python=/usr/bin/python3
jobs_max=${JOBS:-2}
# A section that hangs must not keep the others from ending: it fails, and says where it hangs. If it cannot, it is killed.
export MYRIAD_TEST_SECONDS=${MYRIAD_TEST_SECONDS:-1200}
limit="timeout --kill-after=30 $((MYRIAD_TEST_SECONDS + 300))"
sections=()
logs=$(mktemp -d); trap 'rm -rf "$logs"' EXIT

wanted() { [ -z "${ONLY:-}" ] || [[ " $ONLY " == *" $1 "* ]]; }

section() { # NAME COMMAND...: while nothing else runs, shown as it goes
  local name=$1 begin=$SECONDS; shift
  wanted "$name" || return
  sections+=("$name")
  echo "== $name"
  "$@" 2>&1 | tee "$logs/$name"
  echo "${PIPESTATUS[0]}" >"$logs/$name.status"
  echo "== $name: $((SECONDS - begin)) s, status $(cat "$logs/$name.status")"
}

beside() { # NAME COMMAND...: beside other sections, shown when it has ended
  local name=$1; shift
  wanted "$name" || return
  sections+=("$name")
  while [ "$(jobs -rp | wc -l)" -ge "$jobs_max" ]; do wait -n; done
  {
    begin=$SECONDS status=0
    $limit "$@" >"$logs/$name" 2>&1 9>&- || status=$?   # without the lock: what it leaves behind must not hold it
    echo "$status" >"$logs/$name.status"
    flock 9
    echo "== $name"
    cat "$logs/$name"
    echo "== $name: $((SECONDS - begin)) s, status $status"
  } 9>"$logs/.lock" &
}

section build scripts/build-plugin.sh
section lint scripts/lint.sh
section cargo timeout --kill-after=10 2400 cargo test --workspace --no-fail-fast
# The longest first.
beside mtr $python tests/mtr/run.py
beside isolation $python tests/isolation/run.py
beside interleavings $python tests/isolation/interleavings.py
beside histories $python tests/isolation/histories.py
beside versions $python tests/isolation/versions.py
beside sql $python tests/sql/run.py
beside sql-server $python tests/sql/server_tests.py
beside sql-locks $python tests/sql/lock_tests.py
beside sql-reading $python tests/sql/reading_tests.py
beside sql-tenants $python tests/sql/tenant_tests.py
beside sql-copies $python tests/sql/copy_tests.py
beside sql-online-index $python tests/sql/online_index_tests.py
beside sql-pool $python tests/sql/pool_tests.py
beside sql-foreign-keys $python tests/sql/foreign_key_tests.py
beside sql-partitions $python tests/sql/partition_tests.py
beside sql-xa $python tests/sql/xa_tests.py
beside sql-random $python tests/sql/random_queries.py
beside sql-types $python tests/sql/random_types.py
beside sql-evolution $python tests/sql/evolution.py
beside sql-plugin $python tests/sql/plugin_tests.py
beside package $python tests/package/run.py
beside replication $python tests/replication/run.py
beside spider $python tests/spider/run.py
beside crash $python tests/crash/run.py --loops "${CRASH_LOOPS:-8}"
beside crash-larger $python tests/crash/larger.py --loops "${CRASH_LOOPS:-4}"
beside crash-redo-log $python tests/crash/run.py --loops "${CRASH_LOOPS:-4}" --switch-redo-log
beside crash-administration $python tests/crash/run.py --loops "${CRASH_LOOPS:-4}" --administration
beside crash-thread-pool $python tests/crash/run.py --loops "${CRASH_LOOPS:-4}" --option=--thread-handling=pool-of-threads
beside crash-binlog $python tests/crash/run.py --loops "${CRASH_LOOPS:-4}" --binlog
beside crash-two-engines $python tests/crash/two_engines.py
beside format $python tests/format/run.py
beside backup $python tests/backup/run.py
beside faults $python tests/faults/run.py
beside faults-device $python tests/faults/device.py
wait

# A section counts what its lines "N passed, N failed" say; without any it is one test.
passed=0 failed=0 broken=()
for name in ${sections[@]+"${sections[@]}"}; do
  status=$(cat "$logs/$name.status" 2>/dev/null || echo 1)
  count=$(grep -oE '[0-9]+ passed[;,] [0-9]+ failed' "$logs/$name" | awk '{p+=$1; f+=$3} END {if (NR) print p, f}')
  read -r p f <<<"${count:-$([ "$status" = 0 ] && echo 1 0 || echo 0 1)}"
  [ "$status" = 0 ] || [ "$f" != 0 ] || f=1
  passed=$((passed + p)) failed=$((failed + f))
  [ "$status" = 0 ] || broken+=("$name")
done
[ ${#broken[@]} = 0 ] || echo "failed sections: ${broken[*]}"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
