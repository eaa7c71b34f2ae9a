#!/usr/bin/env bash
# The first process in the test node's pid, mount, network, uts and ipc
# namespaces. Only up.sh runs it. It sets up the network and runs the components
# of the node and its control plane, restarting those that exit. When this process
# ends, the kernel ends everything else in its namespaces.
#   init.sh PROGRAMS STATE
set -euo pipefail
programs=$1 state=$2
. "$(dirname "$0")/settings.sh"
export PATH=$programs:/usr/sbin:/usr/bin:/sbin:/bin
cd "$state" # only root has access
umask 022   # pods of any user read the kubelet's folders of tokens and ConfigMaps

# Redirect what Kubernetes writes outside its own folders to the state folder.
mount --make-rshared /
mkdir -p host/{lib/kubelet,lib/containerd,run/lock,log} cni sysctl log
mount --bind host/lib /var/lib
mount --bind host/log /var/log
mount --bind host/run /run
[ -L /var/run ] || mount --bind host/run /var/run
hostname "$NODE"

# The kubelet requires values of sysctls that apply to the whole machine. Show it
# these values without changing the machine's.
while IFS== read -r name value; do
  echo "$value" >"sysctl/${name//\//.}"
  mount --bind "sysctl/${name//\//.}" "/proc/sys/$name"
done <<'SYSCTLS'
vm/overcommit_memory=1
vm/panic_on_oom=0
kernel/panic=10
kernel/panic_on_oops=1
kernel/keys/root_maxkeys=1000000
kernel/keys/root_maxbytes=25000000
SYSCTLS

for hierarchy in /sys/fs/cgroup/*/; do
  [ ! -w "$hierarchy/cgroup.procs" ] || mkdir -p "$hierarchy$CGROUP"
done

ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip addr add "$NODE_IP/30" dev eth0
ip link set eth0 up
ip route add default via "$HOST_IP"

# A node without a network plugin is not ready. This one is never called, because
# all pods use the node's network.
echo '{"cniVersion":"1.0.0","name":"none","plugins":[{"type":"loopback"}]}' >cni/none.conflist
cat >containerd.toml <<TOML
version = 3
[plugins.'io.containerd.cri.v1.images']
snapshotter = 'native'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '$IMAGE'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
conf_dir = '$state/cni'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
TOML
cat >kubelet.yaml <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}}
authorization: {mode: Webhook}
address: $NODE_IP
healthzBindAddress: 127.0.0.1
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
syncFrequency: 5s
protectKernelDefaults: true
resolvConf: ""
volumePluginDir: /var/lib/kubelet/volumeplugins
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
YAML

# keep NAME COMMAND...: runs the command and restarts it when it exits. While the
# state folder has a file NAME.stopped, the command is kept stopped.
keep() {
  local name=$1 child
  shift
  while :; do
    while [ -e "$name.stopped" ]; do sleep 0.1; done
    "$@" >>"log/$name" 2>&1 &
    child=$!
    while kill -0 "$child" 2>/dev/null; do
      [ ! -e "$name.stopped" ] || kill "$child" 2>/dev/null || :
      sleep 0.1
    done
    wait "$child" || :
  done
}
keep etcd etcd --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn \
  --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
  --initial-cluster default=http://127.0.0.1:2380 &
keep containerd containerd --config containerd.toml &
keep apiserver kube-apiserver --etcd-servers http://127.0.0.1:2379 --bind-address "$NODE_IP" --advertise-address "$NODE_IP" \
  --cert-dir "$state/pki" --token-auth-file tokens.csv --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
  --service-cluster-ip-range 10.96.0.0/24 --service-account-issuer https://kubernetes.default.svc \
  --service-account-key-file service-accounts.key --service-account-signing-key-file service-accounts.key \
  --endpoint-reconciler-type none --allow-privileged &
until [ -e pki/apiserver.crt ]; do sleep 0.1; done
keep controllers kube-controller-manager --kubeconfig controllers.kubeconfig --leader-elect=false --bind-address 127.0.0.1 \
  --use-service-account-credentials --service-account-private-key-file service-accounts.key --root-ca-file pki/apiserver.crt &
keep scheduler kube-scheduler --kubeconfig scheduler.kubeconfig --leader-elect=false --bind-address 127.0.0.1 &
until ctr --namespace k8s.io images import "$programs/hold.tar" >>log/ctr 2>&1; do sleep 0.2; done
keep kubelet kubelet --config kubelet.yaml --kubeconfig kubelet.kubeconfig --hostname-override "$NODE" --node-ip "$NODE_IP" &
while :; do wait -n || :; done
