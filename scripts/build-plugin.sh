#!/usr/bin/env bash
# Builds build/ha_myriad.so (Rust core and C++ shim) and build/myriad (the command), each only where something changed.
# MYRIAD_SANITIZE=1 builds the shim with the address and undefined-behaviour sanitizers into build/sanitize/ instead.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

fail() { echo "build: $*" >&2; exit 1; }

[ -f build/server-src/sql/handler.h ] || fail "the server's headers are missing: run scripts/setup.sh first"
[ -f crates/capi/Cargo.toml ] || fail "crates/capi does not exist"
ls handler/*.cc >/dev/null 2>&1 || fail "handler/ holds no C++ file"

target=${CARGO_TARGET_DIR:-target}
packages=(-p myriad-capi)
[ ! -f crates/cli/Cargo.toml ] || packages+=(-p myriad-cli)
cargo build --release "${packages[@]}"

make --no-print-directory -j"$(nproc)" -f scripts/plugin.mk core="$target/release/libmyriad_capi.a" \
  sanitize="${MYRIAD_SANITIZE:-}"
if [ -x "$target/release/myriad" ]; then
  cmp -s "$target/release/myriad" build/myriad || install -m 755 "$target/release/myriad" build/myriad
fi
