package node

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

// ErrNotSaid is wrapped where the node's labels do not say what a prediction needs.
var ErrNotSaid = errors.New("the node's labels do not say it")

// IsGPUResource reports whether an extended resource is one of the device plugin's: whole GPUs and MIG
// devices, shared or not. Other projects have resources of nvidia.com, too, such as virtual functions of
// network cards.
func IsGPUResource(name string) bool {
	return name == mig.WholeGPU || name == mig.WholeGPU+".shared" || strings.HasPrefix(name, "nvidia.com/mig-")
}

// AllocatableGPUs are the device plugin's resources that the node has, by name.
func (n *Node) AllocatableGPUs() map[string]int {
	all := ofNVIDIA(n.Allocatable)
	for name := range all {
		if !IsGPUResource(name) {
			delete(all, name)
		}
	}
	return all
}

// Replication is how the labels of GPU Feature Discovery say that the node's devices are shared: the
// factor of each resource that has one, 1 for those that are not shared left out. A product without
// the suffix -SHARED beside a factor means that the resource is renamed. The error wraps ErrNotSaid
// for a node that GPU Feature Discovery has not labeled.
func (n *Node) Replication() (mig.Replication, error) {
	r := mig.Replication{Of: map[string]mig.Replica{}}
	if n.Labels[mig.WholeGPU+".product"] == "" {
		return r, fmt.Errorf("%w: nvidia.com/gpu.product is missing, so that GPU Feature Discovery has not run", ErrNotSaid)
	}
	for name, value := range n.Labels {
		resource, found := strings.CutSuffix(name, ".replicas")
		if !found || !IsGPUResource(resource) {
			continue
		}
		factor, err := strconv.Atoi(value)
		if err != nil || factor < 0 {
			return r, fmt.Errorf("%w: %s is %.40q, want a number", ErrNotSaid, name, value)
		}
		if factor < 2 {
			continue
		}
		replica := mig.Replica{Factor: factor}
		if !strings.HasSuffix(n.Labels[resource+".product"], "-SHARED") {
			replica.Rename = resource + ".shared"
		}
		r.Of[resource] = replica
		r.Strategy = n.Labels[resource+".sharing-strategy"]
		if r.Strategy == "" { // before GPU Feature Discovery had the label, there was one strategy
			r.Strategy = "time-slicing"
		}
	}
	return r, nil
}

// Expect returns how many of each of the device plugin's resources a node with these GPUs offers, under
// the MIG strategy and the sharing that its labels say. The error wraps ErrNotSaid where they do not.
func (n *Node) Expect(gpus []mig.GPU) (map[string]int, error) {
	replication, err := n.Replication()
	if err != nil {
		return nil, err
	}
	strategy := mig.StrategyNone
	for _, g := range gpus {
		if !g.Enabled {
			continue
		}
		if replication.Strategy == "mps" {
			return nil, fmt.Errorf("%w: MPS is not supported while a GPU is in MIG mode", ErrNotSaid)
		}
		switch strategy = n.Labels["nvidia.com/mig.strategy"]; strategy {
		case mig.StrategyNone, mig.StrategySingle, mig.StrategyMixed:
		default:
			return nil, fmt.Errorf("%w: GPUs are in MIG mode, and nvidia.com/mig.strategy is %.40q", ErrNotSaid, strategy)
		}
	}
	expected := mig.Predict(gpus, strategy, replication).Resources
	if _, has := expected[mig.WholeGPU]; !has && len(gpus) > 0 && strategy == mig.StrategySingle {
		expected[mig.WholeGPU] = 0 // the device plugin refuses to serve the node
	}
	return expected, nil
}
