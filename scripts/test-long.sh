#!/usr/bin/env bash
# The soak: for HOURS (1, or a part of it; a round is always finished), crash loops with changing seeds, with and without the
# binlog and with small and large pools, random queries and definitions, the isolation specs and random histories, replication
# and the ignored (long) Rust tests, over and over; the loom tests once before. Stops at the first failure, which names its seed.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
python=/usr/bin/python3
scripts/build-plugin.sh
# Every interleaving of what is latch-free and small, up to a bound.
RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom -p myriad-base -p myriad-log -p myriad-buffer -p myriad-txn --lib loom
end=$(awk -v hours="${HOURS:-1}" -v now=$SECONDS 'BEGIN { printf "%d", now + hours * 3600 }')
rounds=0
while [ $SECONDS -lt $end ]; do
  for pool in 8 64 256; do
    $python tests/crash/run.py --loops 20 --seconds 4 --pool-mib $pool
    $python tests/crash/run.py --loops 10 --seconds 4 --pool-mib $pool --binlog
    $python tests/crash/run.py --loops 10 --seconds 8 --pool-mib $pool --administration
    $python tests/crash/run.py --loops 10 --seconds 4 --pool-mib $pool --option=--thread-handling=pool-of-threads
  done
  $python tests/crash/larger.py --loops 20
  for page in 4096 16384 65536; do
    $python tests/crash/power.py --runs 3 --cuts 15 --seed $RANDOM --option=--loose-myriad-page-size=$page
  done
  $python tests/crash/power.py --runs 3 --cuts 6 --seed $RANDOM --binlog
  $python tests/crash/power.py --runs 3 --cuts 15 --seed $RANDOM --flush 2
  $python tests/sql/random_queries.py --statements 10000
  $python tests/sql/random_types.py --rounds 100 --collations 100 --seed $RANDOM
  $python tests/sql/evolution.py --seconds 300 --seed $RANDOM
  $python tests/isolation/run.py
  $python tests/isolation/histories.py --seconds 60
  $python tests/isolation/versions.py --seconds 30
  $python tests/isolation/interleavings.py --seconds 120 --seed $RANDOM
  $python tests/replication/run.py
  cargo test --release --workspace -- --ignored
  rounds=$((rounds + 1))
  echo "soak: $rounds rounds, $((SECONDS / 60)) minutes"
done
