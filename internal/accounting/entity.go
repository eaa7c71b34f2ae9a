package accounting

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// sharedDevice is a GPU or GPU instance that is divided among its owners. A partitioned GPU represents its slices that
// belong to no instance. They use energy but have no activity.
type sharedDevice struct {
	row, root   int // root is the row of its GPU: its own row for a GPU, -1 if the GPU is not watched
	id          gpu.Identity
	labels      []gpu.Label // gpu, UUID and GPU_I_ID
	instance    bool
	partitioned bool
	slices      float64 // compute slices of an instance, or of all instances of a GPU; +Inf if unknown
	totals      *deviceTotals

	accounts []*ownerUsage
	byUID    map[string]*ownerUsage
	shared   bool // two or more owners, whether or not each has an account
	unknown  bool // there may be owners that are not reported

	reading
}

// reading holds what is known about an entity in one cycle.
type reading struct {
	device      gpu.Value // its own utilization over the interval, 0 to 1
	mean        gpu.Value // the utilization that its source reports along with the processes
	claims      claims    // sums over all its processes
	noProcesses string    // why its processes are unknown; "" if they are known
	// noBusy and noPods say why its processes' utilization, or their pods, are unknown.
	noBusy, noPods error
}

// session is the state for one topology and plan. Bind replaces all of it.
type session struct {
	podOf  PodOf
	maxGap time.Duration // the longest time between two cycles that is accounted for

	entities []sharedDevice
	at       map[int]int // index of an entity by its row
	owners   *gpu.Owners // the owners whose accounts the entities have

	missing map[unavailable]bool
	infos   []gpu.Series
	series  []gpu.Series // of the latest cycle; the next one reuses the memory
}

// newSession returns the session of a topology.
func newSession(t *gpu.Topology, plan *gpu.Plan, podOf PodOf) session {
	s := session{
		podOf: podOf, maxGap: snapshot.MaxAgeIntervals * plan.Interval,
		at: map[int]int{}, missing: map[unavailable]bool{},
	}
	for row := range t.Devices {
		d := &t.Devices[row]
		e := sharedDevice{row: row, root: row, unknown: true, id: d.Identity(), byUID: map[string]*ownerUsage{}}
		index := strconv.FormatUint(uint64(d.GPU), 10)
		e.labels = []gpu.Label{{Name: "gpu", Value: index}, {Name: "UUID", Value: d.UUID}}
		switch d.Entity.Kind {
		case gpu.KindGPU:
		case gpu.KindGPUInstance:
			e.instance, e.root, e.slices = true, t.ParentRow(row), slicesOf(d.Profile)
			id := strconv.FormatUint(uint64(d.InstanceID), 10)
			e.labels = append(e.labels, gpu.Label{Name: gpu.InstanceLabel, Value: id})
			if e.root >= 0 { // parents precede their instances
				parent := &s.entities[s.at[e.root]]
				parent.partitioned = true
				parent.slices += e.slices
			}
		default:
			continue
		}
		s.at[row] = len(s.entities)
		s.entities = append(s.entities, e)
	}
	return s
}

// slicesOf returns the compute slices of a MIG profile, such as 2 for "2g.20gb". It returns +Inf if they are unknown,
// so that sums with it are unknown too.
func slicesOf(profile string) float64 {
	digits, _, found := strings.Cut(profile, "g.")
	n, err := strconv.ParseUint(digits, 10, 8)
	if !found || err != nil || n == 0 {
		return math.Inf(1)
	}
	return float64(n)
}

// ownUse returns the owners of an entity. The owner of a GPU also owns its instances that have no other owner.
func (s *session) ownUse(owners *gpu.Owners, e *sharedDevice) gpu.Use {
	use := owners.UseOf(e.row)
	if len(use.Owners) == 0 && !use.Incomplete && e.root >= 0 {
		return owners.UseOf(e.root)
	}
	return use
}
