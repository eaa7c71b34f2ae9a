#!/usr/bin/env bash
# Runs the tests of this folder on a real Kubernetes node. The node runs in namespaces of its own and leaves nothing behind.
# It needs root and Debian's runc, openssl and iproute2, which are installed if they are missing.
#   run.sh               builds the node's programs first if they are not cached
#   run.sh --if-cached   runs the tests only if the programs are cached
#   run.sh --states      runs only the cluster states in operator, which need no root and no node
# The pods run the image that E2E_IMAGE names, or buildah's image of this commit (make image, make image-test), or an image
# that the tests assemble.
# E2E_RUN is a regular expression that selects tests.
set -euo pipefail
cd "$(dirname "$0")"
programs=$(realpath -m "${E2E_CACHE:-../../.cache/e2e}")

skip() { echo "SKIP e2e: $1"; exit 0; }
case "${1:-}" in
  --states)
    node/build.sh --states "$programs"
    E2E_PROGRAMS=$programs "${GO:-go}" test -tags e2e -count=1 -timeout 30m -v ${E2E_RUN:+-run "$E2E_RUN"} ./operator
    exit
    ;;
  --if-cached)
    [ "$(id -u)" = 0 ] || skip "a node needs root"
    [ ! -e /sys/fs/cgroup/cgroup.controllers ] || skip "the node is made for cgroup v1, found v2"
    node/build.sh --cached "$programs" || skip "the node's programs are not built; make e2e builds them in about ten minutes"
    ;;
  "")
    [ "$(id -u)" = 0 ] || { echo "make e2e starts a Kubernetes node, which needs root" >&2; exit 1; }
    [ ! -e /sys/fs/cgroup/cgroup.controllers ] || { echo "make e2e needs cgroup v1, found v2" >&2; exit 1; }
    ;;
  *) echo "usage: $0 [--if-cached|--states]" >&2; exit 2 ;;
esac
for tool in runc openssl ip pgrep unshare; do
  command -v "$tool" >/dev/null && continue
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends runc openssl iproute2 procps util-linux
  break
done
node/build.sh "$programs"

state=$(mktemp -d /tmp/dcgm-e2e.XXXXXX)
trap 'node/down.sh "$state"' EXIT
echo "e2e: starting the node"
node/up.sh "$programs" "$state"
E2E_PROGRAMS=$programs E2E_NODE=$state "${GO:-go}" test -tags e2e -p 1 -count=1 -timeout 30m -v ${E2E_RUN:+-run "$E2E_RUN"} ./...
