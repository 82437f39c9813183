#!/usr/bin/env bash
# Installs what building, running and testing need, and the packages named as arguments; does nothing, quickly, when all of
# it is there.
#
# MariaDB's private headers are in no binary package, so they come from the source package whose version equals the
# installed server's. Where the newest server has no source to be had, server and source of the newest version that
# has both are installed. Result: build/server-src (headers), build/gen (generated headers), build/server-version.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

fail() { echo "setup: $*" >&2; exit 1; }

server_packages=(mariadb-server mariadb-server-core mariadb-client mariadb-client-core mariadb-common libmariadb3
  libmariadb-dev libmariadbd19 libmariadbd-dev mariadb-test mariadb-test-data mariadb-plugin-rocksdb mariadb-plugin-spider
  mariadb-plugin-provider-bzip2 mariadb-backup)
tool_packages=(g++ make dpkg-dev zlib1g-dev libssl-dev clang-format sysbench python3 python3-pymysql python3-matplotlib
  strace gdb tzdata debhelper "$@")

installed_version() { # NAME -> its version, nothing where it is not installed (or dpkg has never heard of it, which is no error)
  { dpkg-query -W -f '${db:Status-Abbrev}${Version}\n' "$1" 2>/dev/null || true; } | sed -n 's/^ii *//p' | head -n 1
}

packages_missing() { # NAME... -> those not installed
  local p
  for p in "$@"; do [ -n "$(installed_version "$p")" ] || echo "$p"; done
}

server_agrees() { # all server packages have one version, and the headers have it too
  local v p
  v=$(installed_version mariadb-server-core)
  [ -n "$v" ] && [ "$(cat build/server-version 2>/dev/null)" = "$v" ] || return 1
  for p in "${server_packages[@]}"; do [ "$(installed_version "$p")" = "$v" ] || return 1; done
  [ -f build/server-src/sql/handler.h ] && [ -f /usr/include/mariadb/server/my_config.h ] && [ -f build/gen/probes_mysql_nodtrace.h ]
}

check_rust() {
  export PATH="$HOME/.cargo/bin:$PATH"
  command -v cargo >/dev/null && return 0
  [ "$(id -u)" = 0 ] || fail "cargo is missing: install Rust (for example by the rustup package), then run this again"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q rustup >/dev/null 2>&1 ||
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q cargo rustfmt >/dev/null 2>&1 ||
    fail "cargo is missing and neither the rustup nor the cargo package could be installed; install Rust by hand"
  ! command -v rustup >/dev/null || rustup default stable >/dev/null 2>&1 ||
    fail "rustup could not fetch the stable Rust toolchain"
}

mkdir -p build || fail "cannot write to $root/build"
exec 9>build/.setup.lock
flock 9

[ -f /etc/debian_version ] || fail "this machine is not Debian; packages are installed by apt names"
check_rust
if [ -z "$(packages_missing "${tool_packages[@]}")" ] && server_agrees; then
  exit 0
fi
[ "$(id -u)" = 0 ] || fail "packages are missing and only root can install them: run it once as root"
export DEBIAN_FRONTEND=noninteractive

echo "setup: reading package lists"
apt-get update -q >build/apt.log 2>&1 || true   # one dead third-party entry must not stop us

missing=$(packages_missing "${tool_packages[@]}")
if [ -n "$missing" ]; then
  echo "setup: installing" $missing
  apt-get install -y -q --no-install-recommends $missing >>build/apt.log 2>&1 ||
    fail "apt-get could not install: $missing (see build/apt.log)"
fi

# Source lists of our own, so that the machine's configuration stays as it is.
src=$(mktemp -d); trap 'rm -rf "$src"' EXIT
mkdir -p "$src/sources" "$src/lists/partial" "$src/dl"
mapfile -t uris < <(apt-cache madison mariadb-server | awk -F'|' '{split($3,a," "); print a[1]}' | sort -u)
[ "${#uris[@]}" -gt 0 ] || fail "apt knows no package mariadb-server"
for f in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
  [ -f "$f" ] || continue
  for u in "${uris[@]}"; do
    grep -qF -- "$u" "$f" || continue
    case "$f" in
      *.sources) sed -E 's/^Types:.*/Types: deb-src/' "$f" >"$src/sources/$(basename "$f")" ;;
      *.list) grep -F -- "$u" "$f" | sed -nE 's/^ *deb(-src)? /deb-src /p' | sort -u >"$src/sources/$(basename "$f")" ;;
    esac
    break
  done
done
src_options=(-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$src/sources" -o Dir::State::lists="$src/lists"
  -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
apt-get "${src_options[@]}" update -q >>build/apt.log 2>&1 || true

# Versions that both exist, newest first; the first whose source really downloads wins.
mapfile -t with_source < <(apt-cache "${src_options[@]}" showsrc --only-source mariadb 2>/dev/null |
  sed -n 's/^Version: //p' | sort -u)
mapfile -t with_binary < <(apt-cache madison mariadb-server | awk -F'|' '{gsub(/ /,"",$2); print $2}' | sort -u)
v=
while read -r candidate; do
  [ -n "$candidate" ] || continue
  echo "setup: fetching the source of mariadb $candidate"
  if (cd "$src/dl" && apt-get "${src_options[@]}" source -q --download-only "mariadb=$candidate") >>build/apt.log 2>&1
  then v=$candidate; break; fi
  echo "setup: the source of $candidate cannot be had, trying an older version"
  rm -rf "${src:?}/dl"; mkdir "$src/dl"
done < <(comm -12 <(printf '%s\n' "${with_source[@]}" | sort) <(printf '%s\n' "${with_binary[@]}" | sort) | sort -rV)
[ -n "$v" ] || fail "no version of mariadb has both packages and source (see build/apt.log)"

was=$(installed_version mariadb-server-core)
echo "setup: installing MariaDB $v${was:+ in place of $was}"
wanted=(); for p in "${server_packages[@]}"; do wanted+=("$p=$v"); done
# The packaged service must not start: Myriad runs servers of its own.
policy=
if [ ! -e /usr/sbin/policy-rc.d ] && [ -z "$(installed_version mariadb-server)" ]; then
  policy=/usr/sbin/policy-rc.d
  printf '#!/bin/sh\nexit 101\n' >$policy; chmod +x $policy
  trap 'rm -rf "$src"; rm -f /usr/sbin/policy-rc.d' EXIT
fi
apt-get install -y -q --no-install-recommends --allow-downgrades "${wanted[@]}" >>build/apt.log 2>&1 ||
  fail "apt-get could not install MariaDB $v (see build/apt.log)"
[ -z "$policy" ] || rm -f "$policy"

echo "setup: unpacking the headers"
(cd "$src/dl" && dpkg-source --no-check -x ./*.dsc tree) >>build/apt.log 2>&1 ||
  fail "the source of mariadb could not be unpacked (see build/apt.log)"
rm -rf build/server-src build/gen
mkdir -p build/server-src build/gen
(cd "$src/dl/tree" && find include sql wsrep-lib/include wsrep-lib/wsrep-API -name '*.h' -o -name '*.hpp' -o -name '*.inl' \
  -o -name '*.ic' | grep -E '^(include|sql|wsrep-lib)/' | tar cf - -T -) | tar xf - -C build/server-src
cp "$src/dl/tree/include/probes_mysql_nodtrace.h.in" build/gen/probes_mysql_nodtrace.h
echo "$v" >build/server-version
server_agrees || fail "server packages and headers still disagree (see build/apt.log)"
echo "setup: MariaDB $v, headers in build/server-src"
