package accounting

import (
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// A sharedDevice is a GPU or GPU instance that is divided among its owners. A partitioned GPU is one for
// what is in none of its instances, which has energy and no activity.
type sharedDevice struct {
	row, root   int // the row of its GPU is its own for a GPU, -1 where the GPU is not watched
	id          gpu.Identity
	labels      []gpu.Label // gpu, UUID, GPU_I_ID
	instance    bool
	partitioned bool
	// slices are the compute slices of an instance, and of a partitioned GPU those of all its
	// instances; 0, and of a partitioned GPU -1, where they are not known.
	slices float64
	totals *deviceTotals

	accounts []*ownerUsage
	byUID    map[string]*ownerUsage
	shared   bool // by two owners or more, whether or not each has an account
	unknown  bool // there may be owners that are not reported

	reading
}

// A reading is what one cycle knows of an entity.
type reading struct {
	device       gpu.Value // its own utilization over the interval, 0 to 1
	util, memory gpu.Value // unattributed: a part of the time, bytes
	mean         gpu.Value // the utilization that its source reports beside the processes
	busy, bytes  float64   // of all its processes
	noProcesses  string    // the reason why its processes are not known, "" where they are
	// Why the utilization of its processes, or their pods, are not known.
	noBusy, noPods error
}

// newSession lays out a topology.
func newSession(t *gpu.Topology, plan *gpu.Plan, podOf PodOf) session {
	rows := len(t.Devices)
	s := session{
		podOf: podOf, pods: map[uint32]podsOfProcess{}, inputs: inputsOf(plan), maxGap: snapshot.MaxAgeIntervals * plan.Interval, topology: t,
		at:            make([]int, rows),
		missingLabels: map[unavailable][]gpu.Label{}, families: shareFamilies(),
	}
	for row := range t.Devices {
		s.at[row] = -1
		d := &t.Devices[row]
		if d.Entity.Kind != gpu.KindGPU && d.Entity.Kind != gpu.KindGPUInstance {
			continue
		}
		e := sharedDevice{row: row, root: row, unknown: true, instance: d.Entity.Kind == gpu.KindGPUInstance, id: d.Identity(), byUID: map[string]*ownerUsage{}}
		e.labels = []gpu.Label{{Name: "gpu", Value: strconv.FormatUint(uint64(d.GPU), 10)}, {Name: "UUID", Value: d.UUID}}
		if e.instance {
			e.labels = append(e.labels, gpu.Label{Name: "GPU_I_ID", Value: strconv.FormatUint(uint64(d.InstanceID), 10)})
			e.root, e.slices = t.ParentRow(row), computeSlices(d.Profile)
		}
		s.at[row] = len(s.entities)
		s.entities = append(s.entities, e)
	}
	s.addSlices()
	return s
}

// addSlices has the GPUs know how many slices their instances have.
func (s *session) addSlices() {
	for i := range s.entities {
		e := &s.entities[i]
		if !e.instance || e.root < 0 {
			continue
		}
		root := &s.entities[s.at[e.root]]
		root.partitioned = true
		if e.slices == 0 {
			root.slices = -1
		} else if root.slices >= 0 {
			root.slices += e.slices
		}
	}
}

// computeSlices returns the compute slices of a MIG profile ("2g.20gb"), 0 where its name has none.
func computeSlices(profile string) float64 {
	digits, _, found := strings.Cut(profile, "g.")
	n, err := strconv.ParseUint(digits, 10, 8)
	if !found || err != nil {
		return 0
	}
	return float64(n)
}

// ownUse returns who owns an entity. An instance without an owner is its GPU's owner's.
func (s *session) ownUse(owners *gpu.Owners, e *sharedDevice) gpu.Use {
	use := owners.UseOf(e.row)
	if len(use.Owners) == 0 && !use.Incomplete && e.instance && e.root >= 0 {
		return owners.UseOf(e.root)
	}
	return use
}
