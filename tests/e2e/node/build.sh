#!/usr/bin/env bash
# Builds the programs of the test node from their Go modules at pinned versions: Kubernetes, etcd, containerd, Helm,
# Prometheus and its Operator. Also builds the image that the node's pods run. The first build takes about fifteen
# minutes of CPU time.
#   build.sh FOLDER                     builds missing programs into FOLDER
#   build.sh --states FOLDER            builds only what tests/e2e/operator needs: the API server, its controllers, etcd, Helm
#   build.sh [--states] --cached FOLDER fails if they are missing
set -euo pipefail
cached= states=
while [[ $1 == --* ]]; do
  case "$1" in
    --cached) cached=yes ;;
    --states) states=-states ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
out=$(realpath -m "$1")
cd "$(dirname "$0")"
kubernetes=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' kubernetes/go.mod)
want=$(cat build.sh hold.go ./*/go.mod ./*/go.sum | sha256sum | cut -d' ' -f1)
for built in "$out/built" "$out/built$states"; do # a complete build includes that of the states
  [ "$(cat "$built" 2>/dev/null)" != "$want" ] || exit 0
done
[ -z "$cached" ] || exit 1
mkdir -p "$out"
rm -f "$out/built" "$out/built-states"

# program MODULE LDFLAGS [FLAG...] PACKAGE... builds one program. Programs are built one at a time, because linking needs much memory.
program() {
  (cd "$1" && CGO_ENABLED=0 nice go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w $2" "${@:3}")
}
version=""
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  version+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=$(cut -d. -f1 <<<"${kubernetes#v}")"
  version+=" -X $package.gitMinor=$(cut -d. -f2 <<<"$kubernetes")"
done
for name in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
  program kubernetes "$version" -o "$out/" "k8s.io/kubernetes/cmd/$name"
done
program etcd "" -o "$out/etcd" go.etcd.io/etcd/server/v3
program helm "" -o "$out/helm" helm.sh/helm/v3/cmd/helm
if [ -n "$states" ]; then
  echo "$want" >"$out/built-states"
  exit
fi
program kubernetes "$version" -o "$out/" k8s.io/kubernetes/cmd/kubelet
for name in containerd containerd-shim-runc-v2 ctr; do
  program containerd "" -tags "no_btrfs no_devmapper no_zfs" -o "$out/" "github.com/containerd/containerd/v2/cmd/$name"
done
operator=github.com/prometheus-operator/prometheus-operator
program prometheus-operator "" -o "$out/prometheus-operator" "$operator/cmd/operator"
program prometheus-operator "" -o "$out/prometheus-config-reloader" "$operator/cmd/prometheus-config-reloader"
program prometheus "" -tags "remove_all_sd enable_kubernetes_sd" -o "$out/prometheus" github.com/prometheus/prometheus/cmd/prometheus
cp "$(cd prometheus-operator && go list -m -f '{{.Dir}}' "$operator")/bundle.yaml" "$out/prometheus-operator.yaml"
chmod 644 "$out/prometheus-operator.yaml"

# The image e2e.local/hold:1 has one layer with one static program, in the format of docker save.
image=$(mktemp -d)
trap 'rm -rf "$image"' EXIT
mkdir -p "$image"/root/{dev,etc,proc,sys,tmp} "$image"/layer
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$image/root/hold" hold.go
tar --sort=name --owner=0 --group=0 --mtime=@0 -C "$image/root" -cf "$image/layer/layer.tar" .
printf '{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/hold"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
  "$(sha256sum <"$image/layer/layer.tar" | cut -d' ' -f1)" >"$image/config.json"
printf '[{"Config":"config.json","RepoTags":["e2e.local/hold:1"],"Layers":["layer/layer.tar"]}]' >"$image/manifest.json"
tar -C "$image" -cf "$out/hold.tar" manifest.json config.json layer
echo "$want" >"$out/built"
