package accounting

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// session is the state for one topology and plan. Bind replaces all of it.
type session struct {
	podOf    PodOf
	maxGap   time.Duration // the longest time between two cycles that is accounted for
	entities []*sharedDevice
	byRow    []*sharedDevice // nil for other entities
	owners   *gpu.Owners     // the owners for which the accounts of the entities were opened

	cycle   *snapshot.Cycle    // the latest one
	missing map[[2]string]bool // what is unknown in it, and why
	infos   []gpu.Series
	series  []gpu.Series // series of the latest cycle; the next cycle reuses the memory
}

// sharedDevice is a GPU or GPU instance that is divided among its owners. A partitioned GPU represents its slices that
// belong to no instance. They use energy but have no activity.
type sharedDevice struct {
	row         int
	gpu         *sharedDevice // itself for a GPU; nil if the GPU of an instance is not watched
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
	device gpu.Value // its own utilization over the interval, 0 to 1
	mean   gpu.Value // the utilization that its source reports along with the processes
	claims claims    // sums over all its processes
	// Why its processes, their utilization or their pods are unknown; "" if they are known.
	noProcesses, noBusy, noPods string
}

// Bind implements snapshot.Deriver.
func (d deriver) Bind(t *gpu.Topology, plan *gpu.Plan) {
	d.session = session{
		podOf: d.podOf, maxGap: snapshot.MaxAgeIntervals * plan.Interval,
		byRow: make([]*sharedDevice, len(t.Devices)), missing: map[[2]string]bool{},
	}
	for _, row := range t.RowsOf(gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance)) {
		device := &t.Devices[row]
		e := &sharedDevice{row: row, unknown: true, id: device.Identity(), byUID: map[string]*ownerUsage{}}
		index := strconv.FormatUint(uint64(device.GPU), 10)
		e.labels = []gpu.Label{{Name: "gpu", Value: index}, {Name: "UUID", Value: device.UUID}}
		if e.gpu = e; device.Entity.Kind == gpu.KindGPUInstance {
			e.instance, e.gpu, e.slices = true, nil, slicesOf(device.Profile)
			id := strconv.FormatUint(uint64(device.InstanceID), 10)
			e.labels = append(e.labels, gpu.Label{Name: gpu.InstanceLabel, Value: id})
			if p := t.ParentRow(row); p >= 0 { // parents precede their instances
				e.gpu = d.byRow[p]
				e.gpu.partitioned = true
				e.gpu.slices += e.slices
			}
		}
		if d.totals[e.id] == nil {
			d.totals[e.id] = &deviceTotals{}
		}
		e.totals = d.totals[e.id]
		d.byRow[row], d.entities = e, append(d.entities, e)
	}
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

// Extend returns plan with the fields that accounting needs. Fields that were not requested are read, but no counter
// shows them. An added engine activity field is read only for GPU instances, because whole GPUs report utilization
// without the profiling module.
func Extend(plan *gpu.Plan) *gpu.Plan {
	extended := *plan
	extended.Fields, extended.Processes = slices.Clone(plan.Fields), true
	whole, instance := gpu.KindsOf(gpu.KindGPU), gpu.KindsOf(gpu.KindGPUInstance)
	for _, x := range []struct {
		id     gpu.FieldID
		levels gpu.Kinds
	}{
		{catalog.MIGMaxSlices, whole},
		{catalog.TotalEnergyConsumption, whole},
		{catalog.GPUUtil, whole},
		{catalog.FBUsed, whole | instance},
		{catalog.ProfGREngineActive, instance},
	} {
		if !slices.ContainsFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == x.id }) {
			entry, _ := catalog.ByID(x.id) // always found; a test checks this
			f := entry.Field()
			f.Levels = x.levels
			extended.Fields = append(extended.Fields, f)
		}
	}
	return &extended
}
