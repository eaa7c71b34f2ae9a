package host

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

const (
	mpsDir     = "/run/nvidia/mps"
	sourceMPS  = "k8s-device-plugin cmd/mps-control-daemon/mps/root.go and daemon.go, gpu-operator assets/state-mps-control-daemon"
	sourceMIGM = "mig-parted deployments/systemd, gpu-operator assets/state-mig-manager"
)

// mps says whether the MPS control daemon serves each resource that the device plugin shares with it.
// A node without MPS has no row.
func (n *node) mps() {
	vendors, err := n.names(mpsDir)
	if err != nil {
		if !absent(err) {
			n.unknown("mps", mpsDir, err, sourceMPS)
		}
		return
	}
	for _, vendor := range vendors {
		if !strings.Contains(vendor, ".") {
			continue // shm, and files of the daemon
		}
		for _, dir := range n.glob(mpsDir + "/" + vendor + "/*") {
			if !n.has(dir + "/pipe") {
				continue
			}
			resource := strings.TrimPrefix(dir, mpsDir+"/")
			started, control := n.has(dir+"/.started"), n.has(dir+"/pipe/control")
			const next = "kubectl logs -n gpu-operator -l app=nvidia-device-plugin-mps-control-daemon -c mps-control-daemon-ctr"
			switch {
			case !control:
				n.add("mps", verdict.Failed, resource, fmt.Sprintf("%s/pipe has no control pipe: the MPS control daemon has ended, and CUDA programs of pods with the resource cannot start", dir), next, sourceMPS)
			case !started:
				n.add("mps", verdict.Waiting, resource, "the MPS control daemon runs, and has not yet set the limits of its clients: the device plugin waits for .started", next, sourceMPS)
			default:
				n.add("mps", verdict.OK, resource, "the MPS control daemon serves it", "", sourceMPS)
			}
		}
	}
}

// migManager reports a MIG manager of the node beside the operator's: each undoes what the other did.
func (n *node) migManager() {
	const unit = "nvidia-mig-manager.service"
	for _, dir := range []string{"/etc/systemd/system/multi-user.target.wants", "/usr/lib/systemd/system/multi-user.target.wants"} {
		names, _ := n.names(dir) // a node without systemd has none
		for _, name := range names {
			if name == unit && n.passed != nil {
				n.add("mig-manager-twice", verdict.Warning, unit, "the node's own MIG manager is enabled, and so is the operator's validator: each MIG manager undoes at boot what the other applied",
					"sudo systemctl disable --now "+unit+", or migManager.enabled=false", sourceMIGM)
				return
			}
		}
	}
}
