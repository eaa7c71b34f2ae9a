package collector_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// A moment is what a node is and tells in one cycle.
type moment struct {
	uses   []gpu.Use
	owners error
	util   []gpu.Value // by row: percent of a GPU, a ratio of an instance
	memory []gpu.Value // MiB
	energy []gpu.Value // mJ
	procs  []gpu.Process
	faults []gpu.Fault
	podOf  error
}

// A play is a node with a history. GPU 2 is cut in three, the first of which is
// one compute instance or divided in two.
type play struct {
	moments []moment
	read    int // the moment that was read last
	named   int
	plan    *gpu.Plan // nil asks for nothing
	virtual bool
	divided bool
}

// playParts are the rows of the compute instances, and which part of the
// instance in row 3 they are.
var playParts = []struct {
	row  int
	part float64
}{{6, 1. / 3}, {7, 2. / 3}}

func (p *play) topology() *gpu.Topology {
	var list []gpu.Device
	for i := range uint32(3) {
		list = append(list, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: i}, GPU: i, UUID: fmt.Sprint("GPU-", i)})
	}
	for i, profile := range []string{"3g.40gb", "2g.20gb", "1g.10gb+me"} {
		list = append(list, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: uint32(100 + i), ParentKind: gpu.KindGPU, Parent: 2},
			GPU:    2, UUID: "GPU-2", InstanceID: uint32(i + 1), Profile: profile,
		})
	}
	if !p.divided {
		return gpu.NewTopology(list)
	}
	profiles := []string{"1c.3g.40gb", "2c.3g.40gb"}
	for i, profile := range profiles {
		d := list[3]
		d.Entity.Kind, d.Entity.ID, d.ComputeID, d.Profile = gpu.KindComputeInstance, uint32(i), uint32(i), profile
		list = append(list, d)
	}
	top := gpu.NewTopology(list)
	for i, profile := range profiles {
		top.Divided = append(top.Divided, gpu.ComputeInstance{Instance: 3, ID: uint32(i), Profile: profile})
	}
	return top
}

var (
	playRows   = []int{0, 1, 3, 4, 5} // what is divided
	playShares = map[int]float64{0: 1, 1: 1, 3: 3. / 7, 4: 2. / 7, 5: 1. / 7}
)

func (p *play) Name() string { return "play" }

func (p *play) Attribute(context.Context, *gpu.Topology) (*gpu.Owners, error) {
	m := &p.moments[min(p.named, len(p.moments)-1)]
	p.named++
	if m.owners != nil {
		return nil, m.owners
	}
	return &gpu.Owners{Generation: uint64(p.named), Uses: m.uses}, nil
}

func (p *play) now() *moment { return &p.moments[min(p.read, len(p.moments)-1)] }

func (p *play) podOf(pid uint32) (string, error) {
	if err := p.now().podOf; err != nil {
		return "", err
	}
	if pid >= 100 {
		return "", nil
	}
	return fmt.Sprint("uid-", pid%10), nil
}

// run plays the history and hands each cycle's snapshot, and when it was, to
// see.
func (p *play) run(t *testing.T, see func(i int, s *gpu.Snapshot)) *prometheus.Registry {
	plan := p.plan
	if plan == nil {
		plan = &gpu.Plan{Interval: interval, Devices: gpu.Selector{Flex: true, Compute: p.divided}}
	}
	p.read = -1
	f := &fake{topology: p.topology()}
	var opened *gpu.Plan
	f.read = func(_ context.Context, b *gpu.Batch) error {
		p.read++
		m := p.now()
		for i := range opened.Fields {
			for row, d := range f.topology.Devices {
				var v gpu.Value
				switch id := opened.Fields[i].ID; {
				case !opened.Fields[i].Levels.Has(d.Entity.Kind):
				case id == 1001 && row == 3 && p.divided:
					v = gpu.Float(0.987) // an engine tells it all the same; it is not served
				case id == 69 && row == 2:
					v = gpu.Int(7)
				case id == 156:
					v = m.energy[row]
				case id == 203 && row < 2, id == 1001 && row > 2:
					v = m.util[row]
				case id == 252:
					v = m.memory[row]
				}
				b.Add(row, i, v, time.Now())
			}
		}
		for _, x := range m.procs {
			if x.Row < len(b.WantProcesses) && b.WantProcesses[x.Row] {
				b.Processes = append(b.Processes, x)
			}
		}
		b.Faults = append(b.Faults, m.faults...)
		return nil
	}
	reg := prometheus.NewRegistry()
	seen := 0
	l := loop.New(loop.Options{Options: collector.Options{
		Source: collector.SourceOf(func(ctx context.Context, plan *gpu.Plan) (*fakeSession, error) {
			opened = plan
			return f.Open(ctx, plan)
		}),
		Plan: plan, Registerer: reg, Attributors: []collector.Attributor{p},
		Publish: func(s *gpu.Snapshot) {
			if s.Topology != nil && seen < len(p.moments) {
				see(seen, s)
				seen++
			}
		},
	}, PodOf: p.podOf, VirtualGPUs: p.virtual})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	time.Sleep(time.Duration(len(p.moments)-1)*interval + interval/2) // the bubble's clock
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if seen != len(p.moments) {
		t.Errorf("%d cycles, want %d", seen, len(p.moments))
	}
	return reg
}

// shares returns the attribution of a snapshot: family, then the entity and
// the owner, as "UUID/instance namespace/pod".
func shares(s *gpu.Snapshot) map[string]map[string]float64 {
	found := map[string]map[string]float64{}
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
			l := map[string]string{}
			for _, label := range x.Labels {
				l[label.Name] = label.Value
			}
			key := l["UUID"] + "/" + l["GPU_I_ID"]
			if l["pod"] != "" {
				key += " " + l["namespace"] + "/" + l["pod"]
			}
			switch f.Name {
			case podInfo:
				key += "/" + l["container"] + " " + l["sharing"] + l["replicas"]
			case notAvailable:
				key = l["what"] + " " + l["reason"]
			}
			v, _ := x.Value.Number()
			if _, twice := found[f.Name][key]; twice {
				key += " twice"
			}
			found[f.Name][key] = v
		}
	}
	return found
}

func entityOf(row int) string {
	if row < 3 {
		return fmt.Sprintf("GPU-%d/", row)
	}
	return fmt.Sprintf("GPU-2/%d", row-2)
}

// random makes a history by chance: owners come and go, processes too, and
// what they claim need not add up.
func random(r *rand.Rand, cycles int) *play {
	p := &play{divided: r.IntN(2) == 0}
	var uses []gpu.Use
	energy := make([]float64, 6)
	chance := func(x float64) bool { return r.Float64() < x }
	for range cycles {
		var m moment
		if uses == nil || chance(0.3) {
			uses = make([]gpu.Use, 6)
			for _, row := range playRows {
				use := &uses[row]
				for range r.IntN(4) {
					n := r.IntN(6)
					o := gpu.Owner{Namespace: fmt.Sprint("ns", n%2), Pod: fmt.Sprint("pod", n), Container: fmt.Sprint("c", r.IntN(2))}
					if !chance(0.1) {
						o.PodUID = fmt.Sprint("uid-", n)
					}
					use.Owners = append(use.Owners, o)
				}
				use.Replicas = r.IntN(8)
				use.Sharing = gpu.Sharing(r.IntN(4))
			}
			if p.divided {
				uses = hold(r, uses)
			}
		}
		m.uses = uses
		if chance(0.05) {
			m.owners = gpu.ErrUnavailable
		}
		if chance(0.05) {
			m.podOf = gpu.ErrPIDNamespace
		}
		m.util, m.memory, m.energy = make([]gpu.Value, 6), make([]gpu.Value, 6), make([]gpu.Value, 6)
		for row := range 6 {
			switch {
			case chance(0.05):
			case row < 3:
				m.util[row] = gpu.Int(r.Int64N(101))
			default:
				m.util[row] = gpu.Float(r.Float64() * 1.05)
			}
			if !chance(0.05) {
				m.memory[row] = gpu.Int(r.Int64N(80000))
			}
			if energy[row] += r.Float64() * 7e6; chance(0.01) {
				energy[row] = 0 // the driver was loaded anew
			}
			if row < 3 && !chance(0.05) {
				m.energy[row] = gpu.Int(int64(energy[row]))
			}
			if chance(0.1) {
				m.faults = append(m.faults, gpu.Fault{Row: row, Field: gpu.FieldProcessBusy, Err: gpu.ErrNotSupported})
			}
			if chance(0.05) {
				m.faults = append(m.faults, gpu.Fault{Row: row, Field: gpu.FieldProcesses, Err: gpu.ErrPermission})
			}
			for range r.IntN(5) {
				x := gpu.Process{Row: row, PID: uint32(r.IntN(120)), Busy: gpu.Float(r.Float64()), Memory: gpu.Int(r.Int64N(40 << 30))}
				if chance(0.05) {
					x.Busy = gpu.Value{}
				}
				m.procs = append(m.procs, x)
			}
		}
		if p.divided {
			m.divide(r)
		}
		p.moments = append(p.moments, m)
	}
	return p
}

// hold gives the owners of the instance in row 3 its compute instances: each
// to one of them, or to several, or to nobody.
func hold(r *rand.Rand, uses []gpu.Use) []gpu.Use {
	uses = append(uses, gpu.Use{}, gpu.Use{})
	var all []gpu.Owner
	for _, p := range playParts {
		for _, o := range uses[3].Owners {
			if r.Float64() < 0.5 {
				uses[p.row].Owners = append(uses[p.row].Owners, o)
			}
		}
		for _, o := range uses[p.row].Owners {
			o.Part = p.part / float64(len(uses[p.row].Owners))
			all = append(all, o)
		}
	}
	uses[3].Owners = all
	return uses
}

// divide lets the compute instances tell what the instance in row 3 does.
func (m *moment) divide(r *rand.Rand) {
	m.util = append(m.util, gpu.Float(r.Float64()*1.05), gpu.Float(r.Float64()*1.05))
	m.memory, m.energy = append(m.memory, gpu.Value{}, gpu.Value{}), append(m.energy, gpu.Value{}, gpu.Value{})
	if r.Float64() < 0.05 {
		m.util[7] = gpu.Value{}
	}
	sum := 0.0
	for _, p := range playParts {
		n, ok := m.util[p.row].Number()
		if !ok {
			m.util[3] = gpu.Value{}
			return
		}
		sum += p.part * min(n, 1)
	}
	m.util[3] = gpu.Float(sum)
}

// A judge holds the rules of conservation over a history.
type judge struct {
	t          *testing.T
	past       map[string]float64 // the last value of every counter
	energy     map[int]float64
	lastActive map[int]int // row → the cycle up to which its activity is known
}

const (
	podUtil, restUtil     = "dcgm_pod_gpu_utilization_ratio", "dcgm_gpu_unattributed_utilization_ratio"
	podMemory, restMemory = "dcgm_pod_gpu_memory_used_bytes", "dcgm_gpu_unattributed_memory_used_bytes"
	podActive, restActive = "dcgm_pod_gpu_active_seconds_total", "dcgm_gpu_unattributed_active_seconds_total"
	podEnergy, restEnergy = "dcgm_pod_gpu_energy_joules_total", "dcgm_gpu_unattributed_energy_joules_total"
	podAllocated, podInfo = "dcgm_pod_gpu_allocated_seconds_total", "dcgm_pod_gpu_info"
	notAvailable          = "dcgm_exporter_attribution_unavailable"
)

// sum returns the total of a pod family over an entity.
func sum(series map[string]float64, entity string) (total float64) {
	for key, v := range series {
		if e, _, owned := strings.Cut(key, " "); owned && e == entity {
			total += v
		}
	}
	return total
}

func (j *judge) equal(cycle int, what string, got, want float64) {
	j.t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		j.t.Errorf("cycle %d: %s: pods and the rest are %v, the device %v", cycle, what, got, want)
	}
}

// grown returns by how much the counters of an entity grew since the previous
// cycle, those that begin included.
func (j *judge) grown(now map[string]map[string]float64, pods, rest, entity string) float64 {
	grown := 0.0
	for _, family := range []string{pods, rest} {
		for key, v := range now[family] {
			e, _, owned := strings.Cut(key, " ")
			if e == entity && owned == (family == pods) {
				grown += v - j.past[family+key]
			}
		}
	}
	return grown
}

func (j *judge) see(i int, m *moment, s *gpu.Snapshot) {
	now := shares(s)
	for family, series := range now {
		for key, v := range series {
			if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) || strings.HasSuffix(key, "twice") {
				j.t.Errorf("cycle %d: %s %s is %v", i, family, key, v)
			}
			if strings.HasSuffix(family, "_total") && v < j.past[family+key] {
				j.t.Errorf("cycle %d: %s %s fell from %v to %v", i, family, key, j.past[family+key], v)
			}
		}
	}
	for _, row := range playRows {
		entity := entityOf(row)
		device, _ := m.util[row].Number()
		if row < 3 {
			device /= 100
		}
		device = min(device, 1)
		if rest, ok := now[restUtil][entity]; ok {
			j.equal(i, "utilisation of "+entity, sum(now[podUtil], entity)+rest, device)
			if since, ok := j.lastActive[row]; ok && i-since <= 3 {
				seconds := float64(i-since) * interval.Seconds() * playShares[row]
				j.equal(i, "active seconds of "+entity, j.grown(now, podActive, restActive, entity), device*seconds)
			}
			j.lastActive[row] = i
		} else if n := sum(now[podUtil], entity); n != 0 {
			j.t.Errorf("cycle %d: pods use %v of %s, of which nothing is known", i, n, entity)
		}
		if rest, ok := now[restMemory][entity]; ok {
			used, _ := m.memory[row].Number()
			j.equal(i, "memory of "+entity, sum(now[podMemory], entity)+rest, used*(1<<20))
		}
		if held := j.grown(now, podAllocated, "", entity); held > interval.Seconds()*playShares[row]+1e-9 {
			j.t.Errorf("cycle %d: %v seconds of %s are assigned within %v", i, held, entity, interval)
		}
	}
	for root, entities := range map[int][]string{0: {"GPU-0/"}, 1: {"GPU-1/"}, 2: {"GPU-2/", "GPU-2/1", "GPU-2/2", "GPU-2/3"}} {
		mj, ok := m.energy[root].Number()
		if !ok {
			continue
		}
		grown := 0.0
		for _, entity := range entities {
			grown += j.grown(now, podEnergy, restEnergy, entity)
		}
		if before, ok := j.energy[root]; ok {
			j.equal(i, fmt.Sprint("energy of GPU ", root), grown, max(mj/1e3-before, 0))
		}
		j.energy[root] = mj / 1e3
	}
	j.owners(i, s, now)
	for _, family := range []string{podActive, restActive, podEnergy, restEnergy, podAllocated} {
		for key, v := range now[family] {
			j.past[family+key] = v
		}
	}
}

// owners holds that nobody has a series who does not own, and that whoever
// owns a part of a GPU has its seconds.
func (j *judge) owners(i int, s *gpu.Snapshot, now map[string]map[string]float64) {
	present := map[string]bool{}
	for _, row := range playRows {
		for _, o := range s.Owners.UseOf(row).Owners {
			present[entityOf(row)+" "+o.Namespace+"/"+o.Pod] = true
		}
	}
	for _, family := range []string{podUtil, podMemory, podActive, podEnergy, podAllocated} {
		for key := range now[family] {
			if !present[key] {
				j.t.Errorf("cycle %d: %s has a series of %s, who owns nothing", i, family, key)
			}
		}
	}
	got := slices.Sorted(maps.Keys(now[podAllocated]))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(present)), got); diff != "" {
		j.t.Errorf("cycle %d: owners with allocated seconds (-want +got):\n%s", i, diff)
	}
}

func FuzzConservation(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			p := random(rand.New(rand.NewPCG(seed, 0)), 40)
			j := &judge{t: t, past: map[string]float64{}, energy: map[int]float64{}, lastActive: map[int]int{}}
			p.run(t, func(i int, s *gpu.Snapshot) { j.see(i, &p.moments[i], s) })
		})
	})
}
