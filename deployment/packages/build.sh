#!/usr/bin/env bash
# Builds the packages for Debian and RPM from the programs of "make cross".
#
#   build.sh FOLDER      VERSION=v0.1.0  EPOCH=…  ARCHES="amd64 arm64"
#
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1 version=${VERSION:?} epoch=${EPOCH:?}
# A version that is not a release tag sorts before every release.
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]] || version=v0.0.0-git.$version
read -ra arches <<<"${ARCHES:-amd64 arm64}"

# nfpm is built once. v2.46 and later need modules that the module proxy does not have.
nfpm=v2.43.4
tools=${XDG_CACHE_HOME:-$HOME/.cache}/dcgm-exporter/tools/nfpm-$nfpm
[ -x "$tools/nfpm" ] || GOFLAGS=-mod=mod CGO_ENABLED=0 GOBIN=$tools go install "github.com/goreleaser/nfpm/v2/cmd/nfpm@$nfpm"

mkdir -p "$out"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

MTIME=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
export MTIME SOURCE_DATE_EPOCH=$epoch
for arch in "${arches[@]}"; do
  export ARCH=$arch BINARY=bin/linux/$arch/dcgm-exporter VERSION=$version
  # The oldest version of glibc that has all functions that the program uses.
  GLIBC=$(readelf -V "$BINARY" | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -V | tail -n 1)
  [ -n "$GLIBC" ] || { echo "build.sh: $BINARY names no version of glibc" >&2; exit 1; }
  export GLIBC
  expand=()
  for variable in ARCH BINARY VERSION MTIME GLIBC; do expand+=(-e "s|\${$variable}|${!variable}|g"); done
  sed "${expand[@]}" deployment/packages/nfpm.yaml >"$stage/nfpm.yaml"
  for format in deb rpm; do
    "$tools/nfpm" package --config "$stage/nfpm.yaml" --packager "$format" --target "$out" | grep -v 'using.*packager' || true
  done
done
