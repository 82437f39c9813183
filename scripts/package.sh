#!/usr/bin/env bash
# Makes build/mariadb-plugin-myriad_VERSION_amd64.deb of what build-plugin.sh has built.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "package: $*" >&2; exit 1; }

[ -f build/ha_myriad.so ] && [ -x build/myriad ] || fail "nothing is built: run make build first"
# 1:10.11.18-0+deb12u1: the server loads plugins of its own 10.11.18 alone.
server=$(sed -E 's/^([0-9]+:)?([0-9.]+).*/\1\2/' build/server-version)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
[ -n "$server" ] && [ -n "$version" ] || fail "the versions of server and engine are not known"

stage=build/package/mariadb-plugin-myriad
rm -rf build/package
mkdir -p "$stage/man"
cp -r packaging/debian "$stage/debian"
cp build/ha_myriad.so build/myriad packaging/myriad.cnf ARCHITECTURE.md CHANGELOG.md README.md "$stage"
cp -r docs "$stage/docs"
build/myriad man "$stage/man"
cat >"$stage/debian/changelog" <<END
mariadb-plugin-myriad ($version) unstable; urgency=medium

  * For MariaDB ${server#*:}; what is new is told in the project's CHANGELOG.md.

 -- The Myriad developers <myriad@localhost>  $(date -R -d "@$(stat -c %Y build/ha_myriad.so)")
END
(cd "$stage" && MARIADB_FROM=$server MARIADB_BEFORE=${server%.*}.$((${server##*.} + 1)) \
  dpkg-buildpackage --build=binary --no-sign >../log 2>&1) || { tail -n 20 build/package/log >&2; fail "dpkg-buildpackage failed"; }
mv build/package/*.deb build/
echo "build/mariadb-plugin-myriad_${version}_amd64.deb"
