package sharing

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// Limits are what the MPS control daemon sets for each client.
type Limits struct {
	// Product is the GPU that they hold for.
	Product string `json:"product"`
	// MemoryMiB is the pinned device memory that a client may have: the board's total over the
	// replicas, rounded down; 0 where the total is not known.
	MemoryMiB int `json:"memoryMiB,omitempty"`
	// ThreadPercent is the share of the GPU's threads: 100 over the replicas, rounded down.
	ThreadPercent int `json:"threadPercent"`
}

// Prediction is what a node will show with a config.
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
	add := func(id report.ID, s report.State, subject, reason, fix, source string) {
		p.Findings = append(p.Findings, report.Row{ID: id, State: s, Subject: subject, Reason: reason, Fix: fix, Source: source})
	}
	switch replication.Strategy {
	case "mps":
		p.mps(gpus, migStrategy, replication, add)
	case "time-slicing":
		add(ruleNoMemory, report.Note, "sharing.timeSlicing", "time-slicing limits neither memory nor errors: every pod sees the whole memory, and one pod's fault can end its neighbours", "share among workloads that trust each other, or use MIG", "k8s-device-plugin README, shared access to GPUs")
	}
	for _, resource := range slices.Sorted(maps.Keys(replication.Of)) {
		name := resource
		if r := replication.Of[resource]; r.Rename != "" {
			name = r.Rename
		}
		if len(p.Resources) > 0 && p.Resources[name] == 0 {
			add(ruleResource, report.Warning, resource, "the config shares it, and the node will have no such device under the MIG strategy "+migStrategy, "", sourceConfig)
		}
	}
	return p
}

func (p *Prediction) mps(gpus []mig.GPU, migStrategy string, replication mig.Replication, add func(report.ID, report.State, string, string, string, string)) {
	if migStrategy == mig.StrategyMixed {
		add(ruleMPS, report.Failed, "mig.strategy", "MPS with the MIG strategy mixed: the device plugin refuses to start", "set mig.strategy=single or none", sourcePlugin)
		p.Resources = map[string]int{}
	}
	n := replication.Of[mig.WholeGPU].Factor
	if n < 2 {
		return
	}
	var seen []string
	for _, g := range gpus {
		if slices.Contains(seen, g.Product) || g.Enabled {
			continue
		}
		seen = append(seen, g.Product)
		p.Limits = append(p.Limits, Limits{Product: g.Product, MemoryMiB: g.MemoryMiB / n, ThreadPercent: 100 / n})
		if most := maxClients(g); n > most {
			add(ruleClients, report.Failed, mig.WholeGPU, fmt.Sprintf("%d replicas of %s: the control daemon allows %d for compute capability %s, and refuses to start", n, g.Product, most, g.ComputeCapability),
				fmt.Sprintf("use at most %d", most), sourceMPS)
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
