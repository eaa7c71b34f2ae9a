package sharing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

// Limits are what the MPS control daemon sets for each client.
type Limits struct {
	// Product is the GPU model that the limits apply to.
	Product string `json:"product"`
	// MemoryMiB is the pinned device memory of a client: the total memory divided by the replicas, rounded down. It is
	// 0 if the total is unknown.
	MemoryMiB int `json:"memoryMiB,omitempty"`
	// ThreadPercent is a client's share of GPU threads in percent: 100 divided by the number of replicas, rounded down.
	ThreadPercent int `json:"threadPercent"`
}

// Prediction has the predicted resources, labels and MPS limits of a node.
type Prediction struct {
	mig.Prediction
	// Limits has an entry for each GPU model that MPS shares. It is empty without MPS.
	Limits []Limits
}

// Predict predicts what a node with these GPUs offers under a MIG strategy and a config. The config may be nil.
func Predict(gpus []mig.GPU, migStrategy string, c *Config) Prediction {
	replication := c.Replication()
	p := Prediction{Prediction: mig.Predict(gpus, migStrategy, replication)}
	switch replication.Strategy {
	case "mps":
		p.mps(gpus, migStrategy, replication.ByResource[mig.WholeGPU].Factor)
	case "time-slicing":
		p.Add(noIsolation, "sharing.timeSlicing", "share only among trusted workloads, or use MIG",
			"time-slicing isolates neither memory nor faults: every pod can use all memory, and a fault in one pod "+
				"can stop the others")
	}
	for _, resource := range slices.Sorted(maps.Keys(replication.ByResource)) {
		name := cmp.Or(replication.ByResource[resource].Rename, resource)
		if len(p.Resources) > 0 && p.Resources[name] == 0 {
			p.Add(badResource, resource, "", "the node has no such device to share under the MIG strategy %s",
				migStrategy).Severity = check.Warning
		}
	}
	return p
}

// mps adds the limits of each GPU model for n clients per GPU. It reports a configuration with which MPS does not
// start.
func (p *Prediction) mps(gpus []mig.GPU, migStrategy string, n int) {
	if migStrategy == mig.StrategyMixed {
		p.Add(mpsOnMIG, "mig.strategy", "set mig.strategy=single or none",
			"MPS with the MIG strategy mixed: the device plugin does not start")
		clear(p.Resources)
	}
	for _, g := range gpus {
		seen := slices.ContainsFunc(p.Limits, func(l Limits) bool { return l.Product == g.Product })
		if n < 2 || seen || g.Enabled {
			continue
		}
		p.Limits = append(p.Limits, Limits{Product: g.Product, MemoryMiB: g.MemoryMiB / n, ThreadPercent: 100 / n})
		if most := maxClients(g); n > most {
			p.Add(tooManyClients, mig.WholeGPU, fmt.Sprintf("use at most %d", most),
				"%d replicas of %s: the MPS control daemon allows only %d and does not start", n, g.Product, most)
			clear(p.Resources)
		}
	}
}

// maxClients returns the client limit of the MPS control daemon: 48, or 16 below compute capability 7.5. Volta (7.0)
// supports 48 clients in hardware, but the daemon limits it to 16.
func maxClients(g mig.GPU) int {
	if capability, err := strconv.ParseFloat(g.ComputeCapability, 64); err == nil && capability < 7.5 {
		return 16
	}
	return MaxClients
}
