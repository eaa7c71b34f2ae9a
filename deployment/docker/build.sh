#!/usr/bin/env bash
# Builds the image with buildah and runs it over a simulated node, as a cluster
# would: read-only, without capabilities, ended by SIGTERM.
#
#   build.sh [NAME:TAG]      BASE=… takes another base than Debian's libc
#
# Needs root, buildah, podman, runc, curl and, for the base, apt-get; no registry.
set -euo pipefail
cd "$(dirname "$0")/../.."
image=${1:-localhost/dcgm-exporter:dev}

fail() { echo "build.sh: $*" >&2; exit 1; }
for tool in buildah podman runc curl; do
  command -v "$tool" >/dev/null ||
    fail "$tool is missing: apt-get install --no-install-recommends buildah podman runc netavark aardvark-dns fuse-overlayfs curl"
done
[ -x bin/dcgm-exporter ] || fail "bin/dcgm-exporter is missing: make build"

work=$(mktemp -d)
container='' from=''
cleanup() {
  [ -z "$container" ] || podman rm -f "$container" >/dev/null 2>&1 || true
  [ -z "$from" ] || buildah rm "$from" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
# What the tools say besides is of interest only when they fail.
quiet() { "$@" 2>"$work/stderr" || { cat "$work/stderr" >&2; fail "$1 $2 ended with an error"; }; }

base=${BASE:-}
if [ -z "$base" ]; then
  # glibc and nothing else: no shell, no package manager. Certificates are not
  # needed, since nothing is asked over TLS but the API server, whose authority
  # the cluster hands to the pod.
  base=localhost/dcgm-exporter-base:libc
  mkdir "$work/debs" "$work/root"
  (cd "$work/debs" && quiet apt-get -qq -o APT::Sandbox::User=root download libc6)
  for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/root"; done
  rm -rf "$work"/root/usr/share "$work"/root/usr/lib/*/gconv
  mkdir -p "$work/root/etc" "$work/root/run" "$work/root/tmp"
  chmod 755 "$work/root"
  chmod 1777 "$work/root/tmp"
  printf 'root:x:0:0:root:/:/sbin/nologin\n' > "$work/root/etc/passwd"
  printf 'root:x:0:\n' > "$work/root/etc/group"
  # By this file libnvidia-container knows that libraries go where Debian's
  # loader looks for them, and not into /usr/lib64.
  dpkg-deb -f "$work"/debs/libc6_*.deb Version > "$work/root/etc/debian_version"
  from=$(quiet buildah from scratch)
  quiet buildah copy -q "$from" "$work/root" / >/dev/null
  quiet buildah commit -q "$from" "$base" >/dev/null
fi

quiet buildah bud -q --isolation chroot --build-arg BASE="$base" -t "$image" -f deployment/docker/Dockerfile . >/dev/null
size=$(quiet podman image inspect --format '{{.Size}}' "$image")
echo "built $image: $((size / 1000000)) MB"

# The limits are those under which a container runs where the default ones are
# refused; they do no harm elsewhere.
run() {
  quiet podman run --runtime runc --network host --read-only --cap-drop all --security-opt no-new-privileges \
    --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "$@"
}

# The files that the GPU Operator and everybody's manifests name are in it.
run --rm "$image" check --source=sim /etc/dcgm-exporter/{default-counters,dcp-metrics-included,1.x-compatibility-metrics,fleet-counters}.csv > "$work/check" ||
  { cat "$work/check" >&2; exit 1; }
echo "checked the counters files in $image"

port=$((20000 + RANDOM % 10000))
container=$(run -d "$image" --source=sim --address="127.0.0.1:$port" -c 500)
for _ in $(seq 100); do
  if page=$(curl -fsS --max-time 5 "http://127.0.0.1:$port/metrics" 2>/dev/null) &&
     grep -q '^DCGM_FI_DEV_GPU_TEMP{' <<<"$page"; then
    echo "ran $image: $(grep -c '^DCGM_' <<<"$page") GPU series, read-only, without capabilities"
    quiet podman stop -t 10 "$container" >/dev/null
    code=$(quiet podman inspect --format '{{.State.ExitCode}}' "$container")
    [ "$code" = 0 ] || fail "the container ended with code $code on SIGTERM"
    echo "stopped by SIGTERM with code 0"
    exit 0
  fi
  sleep 0.2
done
podman logs "$container" >&2 || true
fail "no page from the container"
