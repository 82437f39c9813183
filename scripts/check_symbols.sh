#!/usr/bin/env bash
# check_symbols.sh PLUGIN: fails with the names that neither the server nor the system's libraries define, which
# otherwise shows only when the server refuses to load the plugin.
set -euo pipefail
plugin=$1
server=$(command -v mariadbd || echo /usr/sbin/mariadbd)
mapfile -t libraries < <(ldd "$server" "$plugin" | awk '/=> \//{print $3} /^\t\/.*ld-linux/{print $1}' | sort -u)
missing=$(comm -23 \
  <(nm -D --undefined-only "$plugin" | awk '$1=="U"{sub(/@.*/,"",$2); print $2}' | sort -u) \
  <(nm -D --defined-only "$server" "${libraries[@]}" 2>/dev/null | awk 'NF>=3{sub(/@.*/,"",$3); print $3}' | sort -u))
[ -z "$missing" ] || { echo "undefined in $plugin:" >&2; echo "$missing" | c++filt >&2; exit 1; }
