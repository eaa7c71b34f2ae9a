#!/usr/bin/env bash
# Prints the path of promtool for the tests. If promtool is not in PATH, Debian's package is downloaded and unpacked to
# .cache/prometheus. This does not need root. If there is no promtool, the script prints "promtool unavailable: REASON" to
# standard error and exits with 1.
#
# REASON is no-apt (this is no Debian system) or no-package (the package cannot be downloaded).
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

# Try the package lists of the machine first. If they are missing or outdated, download separate lists, which does not need
# root.
mkdir -p "$work/lists/partial" "$work/archives/partial"
own=(-o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work" -o "Dir::Cache::archives=$work/archives" -o APT::Sandbox::User=)
for attempt in 1 2 3; do
  fetch -o APT::Sandbox::User= && break
  { apt-get -qq "${own[@]}" update >/dev/null 2>"$work/log" && fetch "${own[@]}"; } && break
  [ "$attempt" = 3 ] && { cat "$work/log" >&2; unavailable no-package; }
  sleep $((attempt * 2))
done
# Unpack to a temporary folder and move the file, so that a concurrent run never sees a partial file.
dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -x -C "$work" ./usr/bin/promtool
mkdir -p "$cache/usr/bin"
mv "$work/usr/bin/promtool" "$cache/usr/bin/"
[ -x "$cache/usr/bin/promtool" ] || unavailable no-package
echo "$cache/usr/bin/promtool"
