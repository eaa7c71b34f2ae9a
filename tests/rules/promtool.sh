#!/usr/bin/env bash
# Prints the path of a promtool to test with: the one in PATH, else Debian's, unpacked into
# .cache/prometheus. Needs no root. Without one it prints "promtool unavailable: REASON" to standard
# error and ends with 1.
#
# REASON: no-apt (not a Debian), no-package (not offered or not reachable).
set -euo pipefail
cd "$(dirname "$0")/../.."

if command -v promtool; then exit 0; fi
cache=$PWD/.cache/prometheus
if [ -x "$cache/usr/bin/promtool" ]; then echo "$cache/usr/bin/promtool"; exit 0; fi

unavailable() { echo "promtool unavailable: $1" >&2; exit 1; }
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || unavailable no-apt

mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
fetch() { (cd "$work" && apt-get -qq "$@" download prometheus >/dev/null 2>"$work/log"); }

# The machine's own lists first; where they are missing or old, lists of our own, which a user who is
# not root may fetch.
mkdir -p "$work/lists/partial" "$work/archives/partial"
own=(-o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work" -o "Dir::Cache::archives=$work/archives" -o APT::Sandbox::User=)
for attempt in 1 2 3; do
  fetch -o APT::Sandbox::User= && break
  { apt-get -qq "${own[@]}" update >/dev/null 2>"$work/log" && fetch "${own[@]}"; } && break
  [ "$attempt" = 3 ] && { cat "$work/log" >&2; unavailable no-package; }
  sleep $((attempt * 2))
done
# In one step: another run that looks meanwhile sees all or nothing.
dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -x -C "$work" ./usr/bin/promtool
mkdir -p "$cache/usr/bin"
mv "$work/usr/bin/promtool" "$cache/usr/bin/"
[ -x "$cache/usr/bin/promtool" ] || unavailable no-package
echo "$cache/usr/bin/promtool"
