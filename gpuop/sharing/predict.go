package sharing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// Limits are set by the MPS control daemon for each client.
type Limits struct {
	// Product is the GPU that they hold for.
	Product string `json:"product"`
	// MemoryMiB is the pinned device memory that a client may have: the board's total over the
	// replicas, rounded down; 0 where the total is not known.
	MemoryMiB int `json:"memoryMiB,omitempty"`
	// ThreadPercent is the share of the GPU's threads: 100 over the replicas, rounded down.
	ThreadPercent int `json:"threadPercent"`
}

// Prediction has the future resources, labels and limits of a node with a config.
type Prediction struct {
	mig.Prediction
	// Limits are set under MPS only, one for each model of GPU.
	Limits []Limits
}

// Predict says what a node with these GPUs shows under the MIG strategy and the config, which may
// be nil for none.
func Predict(gpus []mig.GPU, migStrategy string, c *Config) Prediction {
	replication := c.Replication()
	p := Prediction{Prediction: mig.Predict(gpus, migStrategy, replication)}
	switch replication.Strategy {
	case "mps":
		p.mps(gpus, migStrategy, replication.Of[mig.WholeGPU].Factor)
	case "time-slicing":
		p.add(ruleNoMemory, report.Note, "sharing.timeSlicing", "time-slicing limits neither memory nor errors: every pod sees the whole memory, and one pod's fault can end its neighbours",
			"share among workloads that trust each other, or use MIG")
	}
	for _, resource := range slices.Sorted(maps.Keys(replication.Of)) {
		name := cmp.Or(replication.Of[resource].Rename, resource)
		if len(p.Resources) > 0 && p.Resources[name] == 0 {
			p.add(ruleResource, report.Warning, resource, "the config shares it, and the node will have no such device under the MIG strategy "+migStrategy, "")
		}
	}
	return p
}

func (p *Prediction) add(id report.ID, s report.State, subject, reason, fix string) {
	p.Findings = append(p.Findings, report.Row{ID: id, State: s, Subject: subject, Reason: reason, Fix: fix})
}

// mps sets the limits of n clients for each model of GPU.
func (p *Prediction) mps(gpus []mig.GPU, migStrategy string, n int) {
	if migStrategy == mig.StrategyMixed {
		p.add(ruleMPS, report.Failed, "mig.strategy", "MPS with the MIG strategy mixed: the device plugin refuses to start", "set mig.strategy=single or none")
		p.Resources = map[string]int{}
	}
	for _, g := range gpus {
		seen := slices.ContainsFunc(p.Limits, func(l Limits) bool { return l.Product == g.Product })
		if n < 2 || seen || g.Enabled {
			continue
		}
		p.Limits = append(p.Limits, Limits{Product: g.Product, MemoryMiB: g.MemoryMiB / n, ThreadPercent: 100 / n})
		if most := maxClients(g); n > most {
			p.add(ruleClients, report.Failed, mig.WholeGPU, fmt.Sprintf("%d replicas of %s: the control daemon allows %d for compute capability %s, and refuses to start", n, g.Product, most, g.ComputeCapability),
				fmt.Sprintf("use at most %d", most))
			p.Resources = map[string]int{}
		}
	}
}

// maxClients is the daemon's own limit: 48, but 16 below compute capability 7.5. Volta (7.0) serves 48 clients by its
// hardware; the daemon's comparison leaves it out.
func maxClients(g mig.GPU) int {
	var major, minor int
	if n, _ := fmt.Sscanf(g.ComputeCapability, "%d.%d", &major, &minor); n == 2 && major*100+minor < 705 {
		return 16
	}
	return MaxClients
}
