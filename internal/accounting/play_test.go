package accounting_test

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

const interval = 10 * time.Second

var gpuOnly = gpu.KindsOf(gpu.KindGPU)

// moment is a node's state and reports in one cycle.
type moment struct {
	uses  []gpu.Use
	gap   time.Duration // since the previous cycle; 0 means interval
	util  []gpu.Value   // by row: percent of a GPU, or a ratio of an instance
	means []gpu.Utilization
	// by row; memory is in MiB, energy in mJ
	memory, energy []gpu.Value
	procs          []gpu.Process // the Time of each process is its age
	faults         []gpu.Fault
	noPodOf        error
	reopened       bool          // a new session begins with this cycle
	top            *gpu.Topology // the new session's topology; nil means the play's
	step           time.Duration // the wall clock is moved by this much before the cycle
}

// play is a node's history. GPU 2 is partitioned into three instances.
type play struct {
	moments []moment
	plan    *gpu.Plan // nil means no fields
	virtual bool
	top     *gpu.Topology // nil means the node above
	slices  gpu.Value     // slices of a partitioned GPU of top; 7 by default
	after   func(gpu.ReadRequest, *gpu.Batch)
}

func (p *play) topology() *gpu.Topology {
	if p.top != nil {
		return p.top
	}
	list := boards(3)
	for i, profile := range []string{"3g.40gb", "2g.20gb", "1g.10gb+me"} {
		list = append(list, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: uint32(100 + i), ParentKind: gpu.KindGPU, Parent: 2},
			GPU:    2, UUID: "GPU-2", InstanceID: uint32(i + 1), Profile: profile,
		})
	}
	return gpu.NewTopology(list)
}

// boards returns n GPUs without MIG, with ids from 0.
func boards(n int) (list []gpu.Device) {
	for i := range uint32(n) {
		entity := gpu.Entity{Kind: gpu.KindGPU, ID: i}
		list = append(list, gpu.Device{Entity: entity, GPU: i, UUID: fmt.Sprint("GPU-", i)})
	}
	return list
}

// playShares lists the share of each row in its GPU. One slice of the partitioned GPU belongs to no instance.
var playShares = [...]float64{1, 1, 1. / 7, 3. / 7, 2. / 7, 1. / 7}

const partitionedRow = 2

// podOf returns the pod of a process in this moment. PIDs from 100 are host processes.
func (m *moment) podOf(pid uint32) ([]string, error) {
	if m.noPodOf != nil || pid >= 100 {
		return nil, m.noPodOf
	}
	return []string{fmt.Sprint("uid-", pid%10)}, nil
}

// value returns what the simulated engine reports for a field of a row.
func (p *play) value(m *moment, f *gpu.Field, t *gpu.Topology, row int) gpu.Value {
	d := &t.Devices[row]
	switch id := f.ID; {
	case !f.Levels.Has(d.Entity.Kind) || row >= len(m.util):
	case id == 69 && t.ParentRow(len(t.Devices)-1) != row: // instances come last in the topology
	case id == 69 && p.top != nil:
		return p.slices
	case id == 69:
		return gpu.Int(7)
	case id == 156:
		return m.energy[row]
	case id == 203 && d.Entity.Kind == gpu.KindGPU, id == 1001:
		return m.util[row]
	case id == 252:
		return m.memory[row]
	}
	return gpu.Value{}
}

// fill adds the requested samples of a moment to the batch.
func (p *play) fill(b *gpu.Batch, m *moment, plan *gpu.Plan, t *gpu.Topology, now time.Time) {
	for i := range plan.Fields {
		for row := range t.Devices {
			b.Add(row, i, p.value(m, &plan.Fields[i], t, row), now)
		}
	}
	req := gpu.ReadRequest{Processes: t.ProcessRows()}
	for _, x := range m.procs {
		if req.WantsProcesses(x.Row) {
			x.Time = now.UnixNano() - x.Time
			b.Processes = append(b.Processes, x)
		}
	}
	for _, x := range m.means {
		if req.WantsProcesses(x.Row) {
			b.Utilizations = append(b.Utilizations, x)
		}
	}
	b.Faults = append(b.Faults, m.faults...)
	if p.after != nil {
		p.after(req, b)
	}
}

// run plays the history and passes each snapshot to see.
func (p *play) run(t testing.TB, see func(i int, s *gpu.Snapshot)) *prometheus.Registry {
	t.Helper()
	plan := p.plan
	if plan == nil {
		plan = &gpu.Plan{Interval: interval, Devices: gpu.Selector{Flex: true}}
	}
	plan = accounting.Extend(plan)
	reg := prometheus.NewRegistry()
	accountant := accounting.New(reg, p.virtual)
	var (
		now     = time.Now()
		m       *moment
		batch   gpu.Batch
		builder *snapshot.Builder
		owners  *gpu.Owners
		top     = p.topology()
	)
	podOf := func(pid uint32) ([]string, error) { return m.podOf(pid) }
	for i := range p.moments {
		m = &p.moments[i]
		if builder == nil || m.reopened {
			if top = m.top; top == nil {
				top = p.topology()
			}
			builder = snapshot.NewBuilder(top, plan, []snapshot.Deriver{accountant.Deriver(podOf)})
		}
		now = stepped(now.Add(cmp.Or(m.gap, interval)), m.step)
		batch.Reset()
		p.fill(&batch, m, plan, top, now)
		switch {
		case m.uses == nil:
			owners = nil
		case i == 0 || owners == nil || !same(m.uses, p.moments[i-1].uses):
			owners = &gpu.Owners{Uses: m.uses}
		}
		reading := snapshot.Reading{Batch: &batch, Owners: owners, Begin: now, Now: now}
		see(i, builder.Build(reading))
	}
	return reg
}

// stepped returns t as time.Now would return it after the wall clock was set. Package time cannot do that, so stepped
// writes the wall clock into the memory of time.Time.
func stepped(t time.Time, step time.Duration) time.Time {
	t = t.Add(step)
	(*[2]int64)(unsafe.Pointer(&t))[1] -= int64(step)
	return t
}

func same(a, b []gpu.Use) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// shares returns the attribution of a snapshot: by family, then by entity and owner as "UUID/instance namespace/pod".
func shares(s *gpu.Snapshot) reported {
	found := reported{}
	for _, f := range s.Families {
		if !strings.HasPrefix(f.Name, "dcgm_pod_gpu_") && !strings.HasPrefix(f.Name, "dcgm_gpu_unattributed_") &&
			f.Name != notAvailable {
			continue
		}
		found[f.Name] = map[string]float64{}
		for _, x := range f.Series {
			if x.Value.IsAbsent() {
				continue
			}
			key := keyOf(f.Name, x.Labels)
			v, _ := x.Value.Number()
			if _, twice := found[f.Name][key]; twice {
				key += " twice"
			}
			found[f.Name][key] = v
		}
	}
	return found
}

func keyOf(family string, labels []gpu.Label) string {
	l := map[string]string{}
	for _, label := range labels {
		l[label.Name] = label.Value
	}
	if family == notAvailable {
		return l["what"] + " " + l["reason"]
	}
	key := l["UUID"] + "/" + l["GPU_I_ID"]
	if owner := l["pod"] + l["hpc_job"]; owner != "" {
		key += " " + l["namespace"] + "/" + owner
	}
	if family == podInfo {
		key += "/" + l["container"] + " " + l["sharing"] + l["replicas"]
	}
	return key
}

func entityOf(row int) string {
	if row < 3 {
		return fmt.Sprintf("GPU-%d/", row)
	}
	return fmt.Sprintf("GPU-2/%d", row-2)
}

const (
	podUtil, restUtil     = "dcgm_pod_gpu_utilization_ratio", "dcgm_gpu_unattributed_utilization_ratio"
	podMemory, restMemory = "dcgm_pod_gpu_memory_used_bytes", "dcgm_gpu_unattributed_memory_used_bytes"
	podActive, restActive = "dcgm_pod_gpu_active_seconds_total", "dcgm_gpu_unattributed_active_seconds_total"
	podEnergy, restEnergy = "dcgm_pod_gpu_energy_joules_total", "dcgm_gpu_unattributed_energy_joules_total"
	podAllocated, podInfo = "dcgm_pod_gpu_allocated_seconds_total", "dcgm_pod_gpu_info"
	notAvailable          = "dcgm_exporter_attribution_unavailable"
)

// pods returns the use of a device by numbered pods. 0 is a pod with an unknown UID.
func pods(sharing gpu.Sharing, replicas int, numbers ...int) []gpu.Use {
	use := gpu.Use{Sharing: sharing, Replicas: replicas}
	for _, n := range numbers {
		o := gpu.Owner{Namespace: "ns", Pod: string(rune('a' + n)), Container: "main", Resource: "nvidia.com/gpu"}
		if n > 0 {
			o.PodUID = "uid-" + string(rune('0'+n))
		}
		use.Owners = append(use.Owners, o)
	}
	return []gpu.Use{use}
}

// silence returns a moment in which the engine has no values for this many rows.
func silence(uses []gpu.Use, rows int) moment {
	return moment{
		uses: uses, util: make([]gpu.Value, rows), memory: make([]gpu.Value, rows), energy: make([]gpu.Value, rows),
	}
}

// at returns a moment in which GPU 0 is busy, and has used 1000 J more than in the previous one.
func at(i int, uses []gpu.Use, change func(*moment)) moment {
	m := silence(uses, 6)
	m.util[0], m.memory[0], m.energy[0] = gpu.Int(60), gpu.Int(1000), gpu.Int(int64(1e6*i))
	if change != nil {
		change(&m)
	}
	return m
}

func process(pid uint32, busy float64, mib int64) gpu.Process {
	return gpu.Process{PID: pid, Busy: gpu.Float(busy), Memory: gpu.Int(mib << 20)}
}

// runs adds processes to GPU 0. Their mean utilization equals GPU 0's current utilization.
func runs(list ...gpu.Process) func(*moment) {
	return func(m *moment) {
		util, _ := m.util[0].Number()
		m.procs, m.means = list, []gpu.Utilization{{Row: 0, Busy: gpu.Float(util / 100)}}
	}
}

// last plays a history and returns what the last cycle reports about GPU 0.
func last(t *testing.T, moments ...moment) (found reported) {
	t.Helper()
	(&play{moments: moments}).run(t, func(_ int, s *gpu.Snapshot) {
		found = shares(s)
		delete(found, podInfo)
		for family, series := range found {
			maps.DeleteFunc(series, func(key string, _ float64) bool {
				return family != notAvailable && !strings.HasPrefix(key, "GPU-0/")
			})
		}
	})
	return found
}
