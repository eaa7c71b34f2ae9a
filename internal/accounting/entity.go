package accounting

import (
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// A sharedDevice is a GPU or GPU instance that is divided among its owners. A partitioned GPU stands
// for its slices in no instance, which have energy and no activity.
type sharedDevice struct {
	row, root   int // root is the row of its GPU: its own for a GPU, -1 where the GPU is not watched
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

// A reading has one cycle's knowledge of an entity.
type reading struct {
	device      gpu.Value // its own utilization over the interval, 0 to 1
	mean        gpu.Value // the utilization that its source reports beside the processes
	claims      claims    // of all its processes
	noProcesses string    // the reason why its processes are not known, "" where they are
	// Why the utilization of its processes, or their pods, are not known.
	noBusy, noPods error
}

// A session is all that an Accountant knows of one topology and plan; Bind replaces it as a whole.
type session struct {
	podOf  PodOf
	pods   map[uint32]podsOfProcess // in this cycle
	inputs inputs
	maxGap time.Duration // nothing is known of a longer time between two cycles

	entities []sharedDevice
	at       map[int]int // row → index of its entity
	owners   *gpu.Owners // whose accounts the entities have

	missing map[unavailable]bool
	infos   []gpu.Series
}

// podsOfProcess are the UIDs of a process's pods, or why they are not known.
type podsOfProcess struct {
	uids []string
	err  error
}

// newSession lays out a topology.
func newSession(t *gpu.Topology, plan *gpu.Plan, podOf PodOf) session {
	s := session{
		podOf: podOf, pods: map[uint32]podsOfProcess{}, inputs: inputsOf(plan), maxGap: snapshot.MaxAgeIntervals * plan.Interval,
		at: map[int]int{}, missing: map[unavailable]bool{},
	}
	for row := range t.Devices {
		d := &t.Devices[row]
		e := sharedDevice{row: row, root: row, unknown: true, id: d.Identity(), byUID: map[string]*ownerUsage{}}
		e.labels = []gpu.Label{{Name: "gpu", Value: strconv.FormatUint(uint64(d.GPU), 10)}, {Name: "UUID", Value: d.UUID}}
		switch d.Entity.Kind {
		case gpu.KindGPU:
		case gpu.KindGPUInstance:
			e.instance, e.root, e.slices = true, t.ParentRow(row), computeSlices(d.Profile)
			e.labels = append(e.labels, gpu.Label{Name: "GPU_I_ID", Value: strconv.FormatUint(uint64(d.InstanceID), 10)})
			if e.root >= 0 { // parents come first
				s.entities[s.at[e.root]].addInstance(&e)
			}
		default:
			continue
		}
		s.at[row] = len(s.entities)
		s.entities = append(s.entities, e)
	}
	return s
}

// addInstance adds the slices of an instance to those of its GPU.
func (e *sharedDevice) addInstance(instance *sharedDevice) {
	e.partitioned = true
	if instance.slices == 0 {
		e.slices = -1
	} else if e.slices >= 0 {
		e.slices += instance.slices
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

// ownUse returns who owns an entity. The owner of a GPU owns its instances that no other owner has.
func (s *session) ownUse(owners *gpu.Owners, e *sharedDevice) gpu.Use {
	use := owners.UseOf(e.row)
	if len(use.Owners) == 0 && !use.Incomplete && e.root >= 0 {
		return owners.UseOf(e.root)
	}
	return use
}
