#!/usr/bin/env bash
# Prints the path of an archive with a minimal Debian 12. Images are built and packages are tested in this system. The
# archive is made once, with debootstrap, and kept in ~/.cache/dcgm-exporter. Delete it to get a newer one. Needs root.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/dcgm-exporter
archive=$cache/debian-bookworm-$(dpkg --print-architecture).tar
if [ ! -e "$archive" ]; then
  command -v debootstrap >/dev/null || { echo "debian.sh: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/debian.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  debootstrap --variant=minbase bookworm "$work/root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log" >&2; exit 1; }
  rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/* "$work"/root/dev/*
  tar -C "$work/root" --sort=name -cf "$work/archive" .
  mv "$work/archive" "$archive"
fi
echo "$archive"
