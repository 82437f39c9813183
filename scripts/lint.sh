#!/usr/bin/env bash
# Formatting, clippy without warnings, clang-format, order of the rooms, sizes of files and functions, licences.
# Sizes are listed, not enforced; everything else fails.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
passed=0 failed=0

check() { # NAME COMMAND...
  local name=$1 out; shift
  if out=$("$@" 2>&1); then passed=$((passed + 1)); else failed=$((failed + 1)); echo "lint $name:"; echo "$out" | tail -n 40; fi
}

cpp_format() {
  local files; files=$(git ls-files 'handler/*.cc' 'handler/*.h' | grep -v myriad_capi.h)
  [ -z "$files" ] || ! [ -f .clang-format ] || clang-format --dry-run -Werror $files
}

check format cargo fmt --all --check
check clippy cargo clippy --workspace --all-targets --quiet -- -D warnings
check clang-format cpp_format
check rooms-and-licences /usr/bin/python3 scripts/lint_rooms.py
check documents /usr/bin/python3 scripts/check_docs.py
check shell bash -n scripts/*.sh .ci/run
check python /usr/bin/python3 -m compileall -q scripts tests bench
/usr/bin/python3 scripts/lint_rooms.py --sizes
echo "lint: $passed passed, $failed failed"
[ "$failed" = 0 ]
