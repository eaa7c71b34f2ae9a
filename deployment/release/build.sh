#!/usr/bin/env bash
# Builds all files of a release from a tag into a folder. "make release VERSION=v0.1.0" runs this script.
# docs/contributing.md lists the files.
#
#   build.sh FOLDER      VERSION=v0.1.0  EPOCH=…  REVISION=…  ARCHES="amd64 arm64"
#
# UNTAGGED=1 builds the files without checking that the commit has the tag. Files that this machine cannot build are left
# out, with a line "SKIP WHAT: REASON". With STRICT=1, this is an error.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p "$1"
out=$(realpath "$1")
read -ra arches <<<"${ARCHES:-amd64 arm64}"
skipped=0

fail() { echo "release: $*" >&2; exit 1; }
skip() { echo "SKIP release-$1: $2"; skipped=$((skipped + 1)); }

[[ ${VERSION:-} =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]] ||
  fail "VERSION is '${VERSION:-}', expected a tag such as v0.1.0 or v0.2.0-rc.1"
number=${VERSION#v}
if [ "${UNTAGGED:-}" != 1 ]; then
  [ "$(git describe --tags --exact-match --match "$VERSION" 2>/dev/null)" = "$VERSION" ] ||
    fail "the commit does not have the tag $VERSION: git tag -s $VERSION, or UNTAGGED=1 to try"
  [ -z "$(git status --porcelain --untracked-files=no)" ] || fail "files differ from the tag $VERSION: git status"
fi
[ -z "$(ls -A "$out")" ] || fail "$out is not empty"
export VERSION EPOCH=${EPOCH:?} REVISION=${REVISION:?} ARCHES="${arches[*]}" SOURCE_DATE_EPOCH=$EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
date=$(date -u -d "@$EPOCH" +%Y-%m-%dT%H:%M:%SZ)
CGO_ENABLED=0 go build -trimpath -o "$work/release" ./tools/release
# pack ARCHIVE FOLDER writes a reproducible archive: it depends only on the files and on EPOCH.
pack() { tar -C "$2" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mtime="@$EPOCH" -cf - . | gzip -9n >"$1"; }

# Write the notes first. This fails if the changelog has no section for the version.
"$work/release" notes "$VERSION" <CHANGELOG.md >"$out/notes.md"

echo "release: archives"
for arch in "${arches[@]}"; do
  name=dcgm-exporter_${number}_linux_$arch
  tree=$work/$name
  mkdir -p "$tree/$name"/{etc,systemd/drop-ins}
  install -m 0755 "bin/linux/$arch/dcgm-exporter" "bin/linux/$arch/gpuop" "$tree/$name/"
  install -m 0644 etc/*.csv "$tree/$name/etc/"
  install -m 0644 deployment/systemd/dcgm-exporter.service deployment/systemd/dcgm-exporter.sysusers "$tree/$name/systemd/"
  install -m 0644 deployment/systemd/drop-ins/*.conf "$tree/$name/systemd/drop-ins/"
  install -m 0644 LICENSE "$tree/$name/"
  pack "$out/$name.tar.gz" "$tree"
  for program in dcgm-exporter gpuop; do
    "$work/release" sbom --name "$program" --version "$VERSION" --date "$date" "bin/linux/$arch/$program" \
      >"$out/${program}_${number}_linux_$arch.cdx.json"
  done
done

echo "release: packages"
deployment/packages/build.sh "$out"

echo "release: images"
repository=${REPOSITORY_OF_DCGM:-https://developer.download.nvidia.com/compute/cuda/repos/debian12}
targets=nvml
case $repository in
  file:*) targets+=" dcgm" ;;
  *)
    if command -v curl >/dev/null && curl -fsI --max-time 20 "$repository/x86_64/Packages.gz" >/dev/null 2>&1; then
      targets+=" dcgm"
    else
      skip image-dcgm "no-repository ($repository cannot be reached)"
    fi
    ;;
esac
if [ "$(id -u)" != 0 ]; then
  skip images no-root
elif ! command -v buildah >/dev/null || ! command -v jq >/dev/null; then
  skip images "no-tools (buildah and jq are missing)"
else
  NAME=localhost/dcgm-exporter-release TAG=$VERSION TARGETS=$targets deployment/docker/build.sh "$work/images"
  for layout in "$work"/images/*; do
    suffix=${layout##*/dcgm-exporter}
    pack "$out/dcgm-exporter_${number}${suffix}_image.oci.tar.gz" "$layout"
    "$work/release" sbom --name "dcgm-exporter:$VERSION$suffix" --version "$VERSION" --date "$date" "oci:$layout" \
      >"$out/dcgm-exporter_${number}${suffix}_image.cdx.json"
    echo "dcgm-exporter:$VERSION$suffix $(jq -r '.manifests[0].digest' "$layout/index.json")" >>"$out/images.txt"
  done
fi

echo "release: chart"
if [ -e deployment/chart/Chart.yaml ]; then
  mkdir "$work/chart"
  "$work/release" chart deployment/chart "$VERSION" "$work/chart"
  # The chart's archive contains the time of the build. Pack it again to make it reproducible.
  mkdir "$work/unpacked"
  tar -C "$work/unpacked" -xzf "$work"/chart/*.tgz
  pack "$out/$(basename "$work"/chart/*.tgz .tgz)-chart.tgz" "$work/unpacked"
else
  skip chart "no-chart (deployment/chart)"
fi

[ "${STRICT:-}" != 1 ] || [ "$skipped" = 0 ] || fail "$skipped parts were left out"

cd "$out"
"$work/release" provenance --version "$VERSION" --revision "$REVISION" ./* >"$work/provenance"
mv "$work/provenance" "dcgm-exporter_${number}.intoto.json"
sha256sum -- * >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" SHA256SUMS
echo "release: $(find . -type f | wc -l) files in $out, $skipped parts left out"
