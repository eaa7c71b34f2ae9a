package snapshot

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// rackModels are part of the names of boards whose NVLink domain spans nodes. On other boards, such as an HGX, an
// all-zero cluster and clique are correct.
var rackModels = []string{"GB200", "GB300"}

// A maskPart is a condition within the health mask (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*). The value 0 and values
// above last are unknown.
type maskPart struct {
	condition   string
	shift, bits uint
	holds, last int64 // the value for "the condition holds", and the largest value that NVML defines
}

var maskParts = [...]maskPart{
	{"degraded_bandwidth", 0, 2, 1, 2},
	{"route_recovery", 2, 2, 1, 2},
	{"route_unhealthy", 4, 2, 1, 2},
	{"access_timeout_recovery", 6, 2, 1, 2},
	{"incorrect_system_guid", 8, 4, 2, 8},
	{"incorrect_chassis_serial", 8, 4, 3, 8},
	{"no_partition", 8, 4, 4, 8},
	{"insufficient_nvlinks", 8, 4, 5, 8},
	{"incompatible_firmware", 8, 4, 6, 8},
	{"invalid_location", 8, 4, 7, 8},
	{"invalid_gpu_state", 8, 4, 8, 8},
	{"partition_unassigned", 12, 2, 2, 2},
	{"manager_disconnected", 14, 2, 2, 2},
}

// isOfRack reports whether a board is one of rackModels.
func isOfRack(d *gpu.Device) bool {
	return slices.ContainsFunc(rackModels, func(name string) bool { return strings.Contains(d.Model, name) })
}

// A linkCondition is whether a GPU has no active NVLink although another GPU of the machine has one.
type linkCondition uint8

const (
	linksUnknown linkCondition = iota
	linksFine
	linksDown
)

// linkConditions returns the condition of each row. A GPU of a model that needs a bridge may have none: its links count
// as down only if they were active before, or if it is the only such GPU, since a bridge joins at least two.
func (l *Facts) linkConditions(c *Cycle) []linkCondition {
	conditions := make([]linkCondition, len(l.topology.Devices))
	anyUp, down := false, 0
	for _, s := range c.Batch.Links {
		conditions[s.Row] = linksFine
		if s.Up {
			anyUp = true
			l.linked[l.topology.Devices[s.Row].UUID] = true
		} else {
			down++
		}
	}
	for _, s := range c.Batch.Links {
		d := &l.topology.Devices[s.Row]
		if anyUp && !s.Up && (down == 1 || l.linked[d.UUID] || !bridged.MatchString(d.Model)) {
			conditions[s.Row] = linksDown
			l.linksDown[d.UUID] = true
		}
	}
	// NVML may have reported the condition during a fallback. A passing watch of DCGM ends it.
	for i := range c.Batch.Health {
		h := &c.Batch.Health[i]
		d := &l.topology.Devices[h.Row]
		if d.Entity.Kind == gpu.KindGPU && h.Watch == "NVLINK" && h.Code == passed && l.linksDown[d.UUID] {
			conditions[h.Row] = linksFine
		}
	}
	return conditions
}

// fabricStates returns one series per GPU and known condition: 1 if it holds.
func (l *Facts) fabricStates(x *fact, c *Cycle) (series []gpu.Series) {
	links := l.linkConditions(c)
	for _, row := range l.gpus {
		add := func(condition string, holds bool) {
			value := gpu.Int(0)
			if holds {
				value = gpu.Int(1)
			}
			labels := []gpu.Label{{Name: "condition", Value: condition}}
			series = append(series, gpu.Series{Row: row, Labels: labels, Value: value})
		}
		if links[row] != linksUnknown {
			add("links_down", links[row] == linksDown)
		}
		rack := isOfRack(&c.Topology.Devices[row])
		state, known := c.Value(l.fields.fabricState, row).Int64()
		switch {
		case !known:
			x.faults[row] = c.Missing(l.fields.fabricState, row)
		case state == catalog.FabricTooOld:
			x.faults[row] = gpu.Reason(gpu.ErrVersion)
		case state == catalog.FabricNotStarted, state == catalog.FabricInProgress,
			state == catalog.FabricNotSupported && rack && len(l.gpus) > 1:
			add("not_completed", true)
		case state == catalog.FabricSuccess, state == catalog.FabricFailure:
			add("not_completed", false)
			add("failed", state == catalog.FabricFailure)
			if id := c.Value(l.fields.cluster, row); rack && id.IsText() {
				add("no_cluster", isZeroUUID(id.String()))
			}
			if id, ok := c.Value(l.fields.clique, row).Int64(); rack && ok {
				add("no_clique", id == 0)
			}
		}
		mask, known := c.Value(l.fields.mask, row).Int64()
		for i := range maskParts {
			p := &maskParts[i]
			if part := mask >> p.shift & (1<<p.bits - 1); known && part > 0 && part <= p.last {
				add(p.condition, part == p.holds)
			}
		}
	}
	return series
}

// fabricInfo returns one series for each GPU with a cluster.
func (l *Facts) fabricInfo(x *fact, c *Cycle) (series []gpu.Series) {
	for _, row := range l.gpus {
		cluster, clique := c.Value(l.fields.cluster, row), c.Value(l.fields.clique, row)
		if !cluster.IsText() {
			x.faults[row] = c.Missing(l.fields.cluster, row)
		} else if id, ok := clique.Int64(); ok && !isZeroUUID(cluster.String()) {
			series = append(series, info(row, []gpu.Label{
				{Name: "cluster_uuid", Value: cluster.String()}, {Name: "clique_id", Value: strconv.FormatInt(id, 10)},
			}))
		}
	}
	return series
}

func isZeroUUID(id string) bool { return strings.Trim(id, "0-") == "" }
