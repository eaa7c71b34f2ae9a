package snapshot

import (
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

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

// isOfRack reports whether the NVLink domain of a board spans nodes. On other boards, such as an HGX, an all-zero
// cluster and clique are correct.
func isOfRack(d *gpu.Device) bool {
	return strings.Contains(d.Model, "GB200") || strings.Contains(d.Model, "GB300")
}

// downLinks returns, by row, whether a GPU has no active NVLink although another GPU of the machine has one. It omits
// GPUs for which this is unknown. A GPU of a model that needs a bridge may have none: its links count as down only if
// they were active before, or if it is the only such GPU, since a bridge joins at least two.
func (l *Facts) downLinks(c *Cycle) map[int]bool {
	down := map[int]bool{}
	downs := 0
	for _, s := range c.Batch.Links {
		down[s.Row] = false
		if s.Up {
			l.linked[l.topology.Devices[s.Row].UUID] = true
		} else {
			downs++
		}
	}
	for _, s := range c.Batch.Links {
		d := &l.topology.Devices[s.Row]
		anyUp := downs < len(c.Batch.Links)
		if anyUp && !s.Up && (downs == 1 || l.linked[d.UUID] || !bridged.MatchString(d.Model)) {
			down[s.Row], l.linksDown[d.UUID] = true, true
		}
	}
	// NVML may have reported the condition during a fallback. A passing watch of DCGM ends it.
	for i := range c.Batch.Health {
		h := &c.Batch.Health[i]
		d := &l.topology.Devices[h.Row]
		if d.Entity.Kind == gpu.KindGPU && h.Watch == "NVLINK" && h.Code == passed && l.linksDown[d.UUID] {
			down[h.Row] = false
		}
	}
	return down
}

// fabricStates returns one series per GPU and known condition: 1 if it holds.
func (l *Facts) fabricStates(x *fact, c *Cycle) (series []gpu.Series) {
	down := l.downLinks(c)
	for _, row := range l.gpus {
		add := func(condition string, holds bool) {
			s := info(row, "condition", condition)
			if !holds {
				s.Value = gpu.Int(0)
			}
			series = append(series, s)
		}
		if isDown, known := down[row]; known {
			add("links_down", isDown)
		}
		rack := isOfRack(&l.topology.Devices[row])
		state, known := c.Value(catalog.FabricManagerStatus, row).Int64()
		switch {
		case !known:
			x.faults[row] = c.Missing(catalog.FabricManagerStatus, row)
		case state == catalog.FabricTooOld:
			x.faults[row] = gpu.Reason(gpu.ErrVersion)
		case state == catalog.FabricNotStarted, state == catalog.FabricInProgress,
			state == catalog.FabricNotSupported && rack && len(l.gpus) > 1:
			add("not_completed", true)
		case state == catalog.FabricSuccess, state == catalog.FabricFailure:
			add("not_completed", false)
			add("failed", state == catalog.FabricFailure)
			if id := c.Value(catalog.FabricClusterUUID, row); rack && id.IsText() {
				add("no_cluster", isZeroUUID(id.String()))
			}
			if id, ok := c.Value(catalog.FabricCliqueID, row).Int64(); rack && ok {
				add("no_clique", id == 0)
			}
		}
		mask, known := c.Value(catalog.FabricHealthMask, row).Int64()
		for _, p := range maskParts {
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
		cluster := c.Value(catalog.FabricClusterUUID, row)
		if !cluster.IsText() {
			x.faults[row] = c.Missing(catalog.FabricClusterUUID, row)
		} else if id, ok := c.Value(catalog.FabricCliqueID, row).Int64(); ok && !isZeroUUID(cluster.String()) {
			clique := strconv.FormatInt(id, 10)
			series = append(series, info(row, "cluster_uuid", cluster.String(), "clique_id", clique))
		}
	}
	return series
}

func isZeroUUID(id string) bool { return strings.Trim(id, "0-") == "" }
