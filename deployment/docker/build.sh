#!/usr/bin/env bash
# Builds the images with buildah, without a registry. "make image", "make image-test" and "make release" run this script.
# The images contain the programs that "make cross" builds.
#
#   build.sh [FOLDER]    write one OCI layout per target to FOLDER. Its index lists the image of each architecture.
#
# TARGETS="nvml dcgm"  ARCHES="amd64 arm64"  NAME=localhost/dcgm-exporter  TAG=dev  VERSION  REVISION  EPOCH
# BUILDER       a Debian image. The default is built once, with debootstrap.
# CACHE=yes     reuses layers of earlier builds. This is faster, but the digest then depends on these builds.
# REPOSITORY_OF_DCGM, PACKAGES_OF_DCGM, VERSION_OF_DCGM, DEBIAN_MIRROR, DEBIAN_SECURITY_MIRROR: see the Dockerfile
#
# Needs root, buildah and, without BUILDER, debootstrap.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-}
name=${NAME:-localhost/dcgm-exporter} tag=${TAG:-dev} epoch=${EPOCH:-0}
# nvml is built first, because the history of the dcgm image names the nvml image if it exists.
read -ra targets <<<"${TARGETS:-nvml dcgm}"
read -ra arches <<<"${ARCHES:-amd64 arm64}"

fail() { echo "build.sh: $*" >&2; exit 1; }
for tool in buildah jq; do
  command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install --no-install-recommends buildah jq fuse-overlayfs"
done
for arch in "${arches[@]}"; do
  for program in dcgm-exporter gpuop; do
    [ -x "bin/linux/$arch/$program" ] || fail "bin/linux/$arch/$program is missing: make cross"
  done
done

work=$(mktemp -d)
list=
trap 'rm -rf "$work"; [ -z "$list" ] || buildah manifest rm "$list" >/dev/null 2>&1' EXIT
# quiet runs a command. If the command fails, quiet prints its output and $hint, and the script ends.
hint=
dcgm_hint=". DCGM's packages come from NVIDIA's repository; without it, TARGETS=nvml builds the image without DCGM"
quiet() { "$@" >"$work/said" 2>&1 || { cat "$work/said" >&2; fail "$1 $2 ended with an error$hint"; }; }

builder=${BUILDER:-}
if [ -z "$builder" ]; then
  builder=localhost/dcgm-exporter-builder:bookworm
  if ! buildah inspect --type image "$builder" >/dev/null 2>&1; then
    archive=$(deployment/docker/debian.sh)
    container=$(buildah from scratch)
    quiet buildah add -q "$container" "$archive" /
    quiet buildah commit -q "$container" "$builder"
    quiet buildah rm "$container"
  fi
fi

host=$(dpkg --print-architecture)
# The buildah of Debian 12 does not set BUILDPLATFORM.
options=(--build-arg BUILDPLATFORM="linux/$host" --isolation chroot --timestamp "$epoch" --layers --pull-never --build-arg BUILDER="$builder"
  --build-arg VERSION="${VERSION:-unknown}" --build-arg REVISION="${REVISION:-unknown}"
  --build-arg CREATED="$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)")
[ "${CACHE:-no}" = yes ] || options+=(--no-cache)
for argument in PACKAGES_OF_DCGM VERSION_OF_DCGM DEBIAN_MIRROR DEBIAN_SECURITY_MIRROR; do
  [ -z "${!argument:-}" ] || options+=(--build-arg "$argument=${!argument}")
done
case ${REPOSITORY_OF_DCGM:-} in
  '') ;;
  file:*) options+=(--volume "${REPOSITORY_OF_DCGM#file:}:/dcgm-repository:ro" --build-arg REPOSITORY_OF_DCGM=copy:/dcgm-repository) ;;
  *) options+=(--build-arg "REPOSITORY_OF_DCGM=$REPOSITORY_OF_DCGM") ;;
esac

for target in "${targets[@]}"; do
  case $target in
    dcgm) suffix='' ;;
    nvml) suffix=-nvml ;;
    *) fail "TARGETS: unknown target $target, expected dcgm or nvml" ;;
  esac
  for arch in "${arches[@]}"; do
    image=$name:$tag$suffix-$arch
    [ "$target" = nvml ] || hint=$dcgm_hint
    quiet buildah bud -q "${options[@]}" --platform "linux/$arch" --target "$target" -t "$image" -f deployment/docker/Dockerfile .
    hint=
    [ "$arch" != "$host" ] || quiet buildah tag "$image" "$name:$tag$suffix"
    size=$(buildah inspect --type image --format '{{.FromImageID}}' "$image" | xargs -I{} cat "/var/lib/containers/storage/overlay-images/{}/manifest" 2>/dev/null | jq '[.layers[].size] | add') || size=
    echo "built $image${size:+: $((size / 1000000)) MB}"
    if [ -z "$out" ] && [ "$arch" = "$host" ]; then
      echo "buildah and podman have it as $name:$tag$suffix; for Docker run:"
      echo "  buildah push $name:$tag$suffix docker-daemon:$name:$tag$suffix"
    fi
  done
  if [ -n "$out" ]; then
    mkdir -p "$out"
    layout=$out/dcgm-exporter$suffix
    rm -rf "$layout"
    # The index is deleted after the push. In Debian 12, an index makes "podman images" and "buildah images" fail.
    list=$name:$tag$suffix-index
    buildah manifest rm "$list" >/dev/null 2>&1 || true
    quiet buildah manifest create "$list"
    for arch in "${arches[@]}"; do
      quiet buildah manifest add --os linux --arch "$arch" "$list" "containers-storage:$name:$tag$suffix-$arch"
    done
    quiet buildah manifest push -q --all --format oci "$list" "oci:$layout:${TAG:-dev}$suffix"
    quiet buildah manifest rm "$list"
    list=
    echo "wrote $layout: $(jq -r '.manifests[0].digest' "$layout/index.json")"
  fi
done
