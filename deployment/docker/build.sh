#!/usr/bin/env bash
# Builds the image with buildah and runs it once over a simulated node.
#
#   build.sh [NAME:TAG]      BASE=… takes another base than Debian's libc
#
# Needs root, buildah, podman, runc and apt-get (for the base); no registry.
set -euo pipefail
cd "$(dirname "$0")/../.."
image=${1:-localhost/dcgm-exporter:dev}

for tool in buildah podman runc; do
  command -v "$tool" >/dev/null || {
    echo "build.sh: $tool is missing: apt-get install --no-install-recommends buildah podman runc netavark aardvark-dns fuse-overlayfs" >&2
    exit 1
  }
done
[ -x bin/dcgm-exporter ] || { echo "build.sh: bin/dcgm-exporter is missing: make build" >&2; exit 1; }

work=$(mktemp -d)
container=
cleanup() {
  [ -z "$container" ] || podman rm -f "$container" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

base=${BASE:-}
if [ -z "$base" ]; then
  base=localhost/dcgm-exporter-base:libc
  mkdir "$work/debs" "$work/root"
  chmod 755 "$work/root"
  (cd "$work/debs" && apt-get -qq -o APT::Sandbox::User=root download libc6 ca-certificates tzdata)
  for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/root"; done
  # The certificates as one file, as ca-certificates' own trigger would do it,
  # and only the parts of the packages that a program reads at run time.
  mkdir -p "$work/root/etc/ssl/certs" "$work/root/tmp" "$work/root/run"
  find "$work/root/usr/share/ca-certificates" -name '*.crt' -exec cat {} + > "$work/root/etc/ssl/certs/ca-certificates.crt"
  rm -rf "$work"/root/usr/share/{doc,man,locale,lintian,bug,ca-certificates} "$work/root/usr/lib/x86_64-linux-gnu/gconv"
  chmod 1777 "$work/root/tmp"
  printf 'root:x:0:0:root:/:/sbin/nologin\n' > "$work/root/etc/passwd"
  from=$(buildah from scratch)
  buildah copy -q "$from" "$work/root" / >/dev/null
  buildah commit -q "$from" "$base" >/dev/null
  buildah rm "$from" >/dev/null
fi

buildah bud -q --isolation chroot --build-arg BASE="$base" -t "$image" -f deployment/docker/Dockerfile . >/dev/null
size=$(buildah inspect --type image --format '{{.Docker.Size}}' "$image" 2>/dev/null || true)
echo "built $image${size:+, $((size / 1000000)) MB}"

# The flags are those under which a container runs where crun and the default
# limits are refused; they do no harm elsewhere.
port=$((20000 + RANDOM % 10000))
container=$(podman run -d --runtime runc --network host --read-only --cap-drop all \
  --security-opt no-new-privileges --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
  "$image" --source=sim --address="127.0.0.1:$port" -c 500)
for _ in $(seq 100); do
  if page=$(curl -fsS --max-time 5 "http://127.0.0.1:$port/metrics" 2>/dev/null) &&
     grep -q '^DCGM_FI_DEV_GPU_TEMP{' <<<"$page"; then
    echo "ran $image: $(grep -c '^DCGM_' <<<"$page") GPU series, read-only, without capabilities"
    podman stop -t 10 "$container" >/dev/null
    code=$(podman inspect --format '{{.State.ExitCode}}' "$container")
    [ "$code" = 0 ] || { echo "build.sh: the container ended with code $code on SIGTERM" >&2; exit 1; }
    echo "stopped cleanly"
    exit 0
  fi
  sleep 0.2
done
podman logs "$container" >&2
echo "build.sh: no page from the container" >&2
exit 1
