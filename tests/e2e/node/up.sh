#!/usr/bin/env bash
# Starts the test node: one Kubernetes node with its control plane, in its own
# namespaces. It writes only to the state folder.
#   up.sh PROGRAMS STATE
# Afterwards STATE/admin.kubeconfig reaches the API server from this machine.
set -euo pipefail
programs=$(realpath "$1") state=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
. "$here/settings.sh"
cd "$state"
umask 077

! ip link show "$LINK" >/dev/null 2>&1 ||
  { echo "the link $LINK exists: another test node runs, or was left by a run that was killed; node/down.sh /tmp/dcgm-e2e.* ends it" >&2; exit 1; }

# Every component has a token; the API server makes its own certificate.
openssl genrsa -out service-accounts.key 2048 2>/dev/null
while read -r who user groups; do
  token=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
  echo "$token,$user,$user,\"$groups\"" >>tokens.csv
  cat >"$who.kubeconfig" <<YAML
apiVersion: v1
kind: Config
current-context: e2e
clusters: [{name: e2e, cluster: {server: "https://$NODE_IP:6443", certificate-authority: $state/pki/apiserver.crt}}]
users: [{name: $who, user: {token: "$token"}}]
contexts: [{name: e2e, context: {cluster: e2e, user: $who}}]
YAML
done <<USERS
admin admin system:masters
controllers system:kube-controller-manager system:authenticated
scheduler system:kube-scheduler system:authenticated
kubelet system:node:$NODE system:nodes
USERS

setsid nice unshare --mount --pid --net --uts --ipc --fork --kill-child --mount-proc \
  "$here/init.sh" "$programs" "$state" >init.log 2>&1 </dev/null &
outer=$!
echo "$outer" >unshare.pid
until init=$(pgrep -P "$outer"); do kill -0 "$outer" || { cat init.log >&2; exit 1; }; sleep 0.05; done
echo "$init" >init.pid
ip link add "$LINK" type veth peer name eth0 netns "$init"
ip addr add "$HOST_IP/30" dev "$LINK"
ip link set "$LINK" up

# await WHAT COMMAND...: two minutes, or the end of the node.
kubectl() { "$programs/kubectl" --kubeconfig admin.kubeconfig "$@"; }
await() {
  local until=$((SECONDS + 120)) what=$1
  shift
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $until ] || ! kill -0 "$init" 2>/dev/null; then
      echo "the test node has no $what" >&2
      tail -n 20 init.log log/* >&2
      exit 1
    fi
    sleep 0.2
  done
}
await "API server" kubectl get --raw /readyz
await "node that is ready" kubectl wait --for=condition=Ready "node/$NODE" --timeout=1s
await "default service account" kubectl get serviceaccount default
