package accounting_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

type (
	reported = map[string]map[string]float64
	of       = map[string]float64
)

func TestSharesOfOneGPU(t *testing.T) {
	const a, b, c, whole = "GPU-0/ ns/b", "GPU-0/ ns/c", "GPU-0/ ns/a", "GPU-0/"
	none := []gpu.Use{}
	one, two := pods(gpu.SharingNone, 0, 1), pods(gpu.SharingTimeSlicing, 4, 1, 2)
	other := pods(gpu.SharingNone, 0, 1)
	other[0].Owners[0].PodUID = "another"
	inPod := pods(gpu.SharingNone, 0, 1)
	inPod[0].Owners = append(inPod[0].Owners, gpu.Owner{Labels: []gpu.Label{{Name: "hpc_job", Value: "7"}}})
	late := pods(gpu.SharingNone, 0, 1)
	late[0].Owners[0].PodUID = ""
	anonymous := pods(gpu.SharingMPS, 2, 0, 2)
	alone := func(active, allocated, energy, unusedSeconds, unusedEnergy float64) reported {
		return reported{
			podUtil: of{a: 0.6}, podMemory: of{a: 1000 << 20}, podActive: of{a: active}, podAllocated: of{a: allocated}, podEnergy: of{a: energy},
			restUtil: of{whole: 0}, restMemory: of{whole: 0}, restActive: of{whole: unusedSeconds}, restEnergy: of{whole: unusedEnergy},
		}
	}
	consumes := func(holders int, parts ...float64) []gpu.Use {
		use := pods(gpu.SharingDRA, 0, 1, 2)
		for i, part := range parts {
			use[0].Owners[i].Part, use[0].Owners[i].Replica = part, string(rune('a'+i/holders))
		}
		return use
	}
	idle := func(m *moment) { m.util[0] = gpu.Int(0); runs()(m) }
	unknown := func(what string) reported {
		return reported{podAllocated: of{a: 2.5, b: 2.5}, notAvailable: of{what: 1}}
	}
	for name, test := range map[string]struct {
		moments []moment
		want    reported
	}{
		"a single owner gets everything, including idle energy": {
			[]moment{at(0, one, nil), at(1, one, nil)},
			alone(6, 10, 1000, 0, 0),
		},
		"without owners nothing is attributed": {
			[]moment{at(0, none, nil), at(1, none, nil)},
			reported{restUtil: of{whole: 0.6}, restMemory: of{whole: 1000 << 20}, restActive: of{whole: 6}, restEnergy: of{whole: 1000}},
		},
		"one of four replicas is charged its activity and a quarter of the idle energy": {
			[]moment{at(0, pods(gpu.SharingTimeSlicing, 4, 1), nil), at(1, pods(gpu.SharingTimeSlicing, 4, 1), nil)},
			alone(6, 2.5, 700, 0, 300),
		},
		"claims of a quarter and of three quarters of an idle GPU": {
			[]moment{at(0, consumes(1, 0.25, 0.75), idle), at(1, consumes(1, 0.25, 0.75), idle)},
			reported{
				podUtil: of{a: 0, b: 0}, podMemory: of{a: 0, b: 0}, podActive: of{a: 0, b: 0}, podAllocated: of{a: 2.5, b: 7.5}, podEnergy: of{a: 250, b: 750},
				restUtil: of{whole: 0}, restMemory: of{whole: 1000 << 20}, restActive: of{whole: 0}, restEnergy: of{whole: 0},
			},
		},
		"two pods share a claim of a quarter, and three quarters are not claimed": {
			[]moment{at(0, consumes(2, 0.25, 0.25), idle), at(1, consumes(2, 0.25, 0.25), idle)},
			reported{
				podUtil: of{a: 0, b: 0}, podMemory: of{a: 0, b: 0}, podActive: of{a: 0, b: 0}, podAllocated: of{a: 1.25, b: 1.25}, podEnergy: of{a: 125, b: 125},
				restUtil: of{whole: 0}, restMemory: of{whole: 1000 << 20}, restActive: of{whole: 0}, restEnergy: of{whole: 750},
			},
		},
		"claims of more than the whole GPU, then one of an unknown share": {
			[]moment{at(0, consumes(1, 0.75, 0.75), idle), at(1, consumes(1, 0.75, 0.75), idle), at(2, consumes(1, 0.75, 0), idle)},
			reported{
				podUtil: of{a: 0, b: 0}, podMemory: of{a: 0, b: 0}, podActive: of{a: 0, b: 0}, podAllocated: of{a: 10, b: 10}, podEnergy: of{a: 1000, b: 1000},
				restUtil: of{whole: 0}, restMemory: of{whole: 1000 << 20}, restActive: of{whole: 0}, restEnergy: of{whole: 0},
			},
		},
		"two owners are charged by their processes": {
			[]moment{at(0, two, nil), at(1, two, runs(process(1, 0.1, 300), process(2, 0.2, 100), process(2, 0.1, 100), process(100, 0.1, 50)))},
			reported{
				podUtil: of{a: 0.1, b: 0.3}, podMemory: of{a: 300 << 20, b: 200 << 20}, podActive: of{a: 1, b: 3}, podAllocated: of{a: 2.5, b: 2.5},
				podEnergy: of{a: 200, b: 400},
				restUtil:  of{whole: 0.2}, restMemory: of{whole: 500 << 20}, restActive: of{whole: 2}, restEnergy: of{whole: 400},
			},
		},
		"the example of docs/attribution.md": {
			[]moment{at(0, two, nil), at(1, two, runs(process(1, 0.4, 300), process(2, 0.1, 100), process(100, 0.1, 50)))},
			reported{
				podUtil: of{a: 0.4, b: 0.1}, podMemory: of{a: 300 << 20, b: 100 << 20}, podActive: of{a: 4, b: 1}, podAllocated: of{a: 2.5, b: 2.5},
				podEnergy: of{a: 500, b: 200},
				restUtil:  of{whole: 0.1}, restMemory: of{whole: 600 << 20}, restActive: of{whole: 1}, restEnergy: of{whole: 300},
			},
		},
		"the mean of the interval is used, not the sample": {
			[]moment{at(0, two, nil), at(1, two, func(m *moment) {
				m.procs = []gpu.Process{process(1, 0.25, 300), process(2, 0.25, 100)}
				m.util[0], m.means = gpu.Int(0), []gpu.Utilization{{Row: 0, Busy: gpu.Float(0.6)}} // idle at the time of the sample
			})},
			reported{
				podUtil: of{a: 0.25, b: 0.25}, podMemory: of{a: 300 << 20, b: 100 << 20}, podActive: of{a: 2.5, b: 2.5}, podAllocated: of{a: 2.5, b: 2.5},
				podEnergy: of{a: 350, b: 350},
				restUtil:  of{whole: 0.1}, restMemory: of{whole: 600 << 20}, restActive: of{whole: 1}, restEnergy: of{whole: 300},
			},
		},
		"the device's utilization is at least that of its processes": {
			[]moment{at(0, two, nil), at(1, two, func(m *moment) {
				m.procs, m.util[0] = []gpu.Process{process(1, 0.25, 300), process(2, 0.25, 100)}, gpu.Int(34)
			})},
			reported{
				podUtil: of{a: 0.25, b: 0.25}, podMemory: of{a: 300 << 20, b: 100 << 20}, podActive: of{a: 2.5, b: 2.5}, podAllocated: of{a: 2.5, b: 2.5},
				podEnergy: of{a: 375, b: 375},
				restUtil:  of{whole: 0}, restMemory: of{whole: 600 << 20}, restActive: of{whole: 0}, restEnergy: of{whole: 250},
			},
		},
		"an ended process has activity but no memory": {
			[]moment{at(0, two, nil), at(1, two, runs(process(1, 0.1, 300), process(2, 0.3, 0)))},
			reported{
				podUtil: of{a: 0.1, b: 0.3}, podMemory: of{a: 300 << 20, b: 0}, podActive: of{a: 1, b: 3}, podAllocated: of{a: 2.5, b: 2.5},
				podEnergy: of{a: 200, b: 400},
				restUtil:  of{whole: 0.2}, restMemory: of{whole: 700 << 20}, restActive: of{whole: 2}, restEnergy: of{whole: 400},
			},
		},
		"process utilization above the device's is scaled down": {
			[]moment{at(0, two, nil), at(1, two, runs(process(1, 0.8, 3000), process(2, 0.4, 1000)))},
			reported{
				podUtil: of{a: 0.4, b: 0.2}, podMemory: of{a: 750 << 20, b: 250 << 20}, podActive: of{a: 4, b: 2}, podAllocated: of{a: 2.5, b: 2.5},
				podEnergy: of{a: 500, b: 300},
				restUtil:  of{whole: 0}, restMemory: of{whole: 0}, restActive: of{whole: 0}, restEnergy: of{whole: 200},
			},
		},
		"shares are unknown without host PIDs": {
			[]moment{at(0, two, nil), at(1, two, func(m *moment) {
				m.procs, m.noPodOf = []gpu.Process{process(1, 0.3, 100)}, gpu.ErrPIDNamespace
			})},
			unknown("pod_of_process pid_namespace"),
		},
		"shares are unknown without processes": {
			[]moment{at(0, two, nil), at(1, two, func(m *moment) {
				m.faults = []gpu.Fault{{Row: 0, Part: gpu.PartProcesses, Err: gpu.ErrPermission}}
			})},
			unknown("processes permission"),
		},
		"counters disappear while unknown and continue afterwards": {
			[]moment{
				at(0, two, nil), at(1, two, runs(process(1, 0.2, 100), process(2, 0.4, 100))),
				at(2, two, func(m *moment) { m.faults = []gpu.Fault{{Row: 0, Part: gpu.PartProcesses, Err: gpu.ErrPermission}} }),
				at(3, two, runs(process(1, 0.6, 100), process(2, 0, 100))),
			},
			reported{
				podUtil: of{a: 0.6, b: 0}, podMemory: of{a: 100 << 20, b: 100 << 20}, podActive: of{a: 8, b: 4}, podAllocated: of{a: 7.5, b: 7.5},
				podEnergy: of{a: 1100, b: 700},
				restUtil:  of{whole: 0}, restMemory: of{whole: 800 << 20}, restActive: of{whole: 0}, restEnergy: of{whole: 600},
			},
		},
		"a second pod joins and is charged by its processes": {
			[]moment{at(0, pods(gpu.SharingTimeSlicing, 4, 1), nil), at(1, two, runs(process(1, 0.4, 300), process(2, 0.2, 700)))},
			reported{
				podUtil: of{a: 0.4, b: 0.2}, podMemory: of{a: 300 << 20, b: 700 << 20}, podActive: of{a: 4, b: 2}, podAllocated: of{a: 2.5, b: 2.5},
				podEnergy: of{a: 500, b: 300},
				restUtil:  of{whole: 0}, restMemory: of{whole: 0}, restActive: of{whole: 0}, restEnergy: of{whole: 200},
			},
		},
		"only memory is reported, as with MIG": {
			[]moment{at(0, two, nil), at(1, two, func(m *moment) {
				m.procs = []gpu.Process{{PID: 1, Memory: gpu.Int(100 << 20)}}
				m.faults = []gpu.Fault{{Row: 0, Part: gpu.PartProcessBusy, Err: gpu.ErrNotSupported}}
			})},
			reported{
				podMemory: of{a: 100 << 20, b: 0}, podAllocated: of{a: 2.5, b: 2.5},
				restMemory:   of{whole: 900 << 20},
				notAvailable: of{"process_utilization not_supported": 1},
			},
		},
		"memory that the driver cannot report": {
			[]moment{at(0, two, nil), at(1, two, runs(process(1, 0.1, 300), gpu.Process{PID: 2, Busy: gpu.Float(0.3)}))},
			reported{
				podUtil: of{a: 0.1, b: 0.3}, podMemory: of{a: 300 << 20}, podActive: of{a: 1, b: 3}, podAllocated: of{a: 2.5, b: 2.5},
				podEnergy: of{a: 200, b: 400},
				restUtil:  of{whole: 0.2}, restActive: of{whole: 2}, restEnergy: of{whole: 400},
				notAvailable: of{"process_memory no_data": 1},
			},
		},
		"a pod with an unknown UID has no known share": {
			[]moment{at(0, anonymous, nil), at(1, anonymous, runs(process(0, 0.3, 10), process(2, 0.2, 20)))},
			reported{
				podUtil: of{b: 0.2}, podMemory: of{b: 20 << 20}, podActive: of{b: 2}, podAllocated: of{b: 5, c: 5},
				podEnergy:    of{b: 400},
				notAvailable: of{"pod_uid no_data": 1},
			},
		},
		"an owner seen once is charged that interval": {
			[]moment{at(0, none, nil), at(1, none, nil), at(2, one, nil)},
			alone(6, 10, 1000, 6, 1000),
		},
		"another pod of the same name begins at zero": {
			[]moment{at(0, one, nil), at(1, one, nil), at(2, other, nil)},
			alone(6, 10, 1000, 0, 0),
		},
		"series disappear while the kubelet is down and continue afterwards": {
			[]moment{at(0, one, nil), at(1, one, nil), at(2, nil, nil), at(3, one, nil)},
			alone(12, 20, 2000, 0, 0),
		},
		"if all owners are unknown, nothing is unattributed": {
			[]moment{at(0, none, nil), at(1, nil, nil), at(2, nil, nil)},
			reported{notAvailable: of{"owners no_data": 1}},
		},
		"if the owners of one device are unknown, nothing of it is unattributed": {
			[]moment{at(0, one, nil), at(1, one, nil), at(2, []gpu.Use{{Incomplete: true}}, nil)},
			reported{notAvailable: of{"owners no_data": 1}},
		},
		"a device is not divided among an incomplete list of owners": {
			[]moment{at(0, two, nil), at(1, two, nil), at(2, []gpu.Use{{Incomplete: true, Owners: two[0].Owners[:1]}}, nil)},
			reported{notAvailable: of{"owners no_data": 1}},
		},
		"an owner absent for longer than dormancy starts at zero": {
			[]moment{at(0, one, nil), at(1, one, nil), at(2, nil, func(m *moment) { m.gap = 16 * time.Minute }), at(3, one, nil)},
			alone(6, 10, 1000, 0, 0),
		},
		"another pod of the same name, whose UID is known late, starts at zero once": {
			[]moment{at(0, one, nil), at(1, one, nil), at(2, none, nil), at(3, late, nil), at(4, other, nil)},
			alone(12, 20, 2000, 6, 1000),
		},
		"a pod whose UID is unknown for a while keeps its account": {
			[]moment{at(0, one, nil), at(1, one, nil), at(2, late, nil), at(3, one, nil)},
			alone(18, 30, 3000, 0, 0),
		},
		"a pod whose UID is unknown keeps its account while the kubelet is down": {
			[]moment{at(0, one, nil), at(1, one, nil), at(2, nil, nil), at(3, late, nil)},
			alone(12, 20, 2000, 0, 0),
		},
		"time without readings is not charged": {
			[]moment{at(0, one, nil), at(1, one, func(m *moment) { m.gap = time.Hour }), at(2, one, nil)},
			alone(6, 10, 1000, 0, 0),
		},
		"one missing utilization sample loses no energy": {
			[]moment{at(0, one, nil), at(1, one, func(m *moment) { m.util[0] = gpu.Value{} }), at(2, one, nil)},
			alone(12, 20, 2000, 0, 0),
		},
		"energy is not charged after the counter was unknown for a long time": {
			append([]moment{at(0, one, nil), at(1, one, nil)}, func() (list []moment) {
				for i := range 4 {
					list = append(list, at(2+i, one, func(m *moment) { m.energy[0] = gpu.Value{} }))
				}
				return append(list, at(6, one, nil), at(7, one, nil))
			}()...),
			alone(42, 70, 2000, 0, 0),
		},
		"a device without utilization": {
			[]moment{at(0, one, nil), at(1, one, func(m *moment) { m.util[0] = gpu.Value{} })},
			reported{
				podMemory: of{a: 1000 << 20}, podAllocated: of{a: 10}, restMemory: of{whole: 0},
				notAvailable: of{"utilization no_data": 1},
			},
		},
		"a job in a pod is attributed to the pod": {
			[]moment{at(0, inPod, nil), at(1, inPod, nil)},
			alone(6, 10, 1000, 0, 0),
		},
		"a fault in all rows does not mean idle": {
			[]moment{at(0, two, nil), at(1, two, func(m *moment) {
				m.faults = []gpu.Fault{{Row: gpu.AllRows, Part: gpu.PartProcesses, Err: gpu.ErrPermission}}
			})},
			unknown("processes permission"),
		},
		"one of a pod's processes has unknown activity": {
			[]moment{at(0, two, nil), at(1, two, runs(process(1, 0.1, 300), gpu.Process{PID: 11, Memory: gpu.Int(100 << 20)}, process(2, 0.3, 100)))},
			reported{
				podUtil: of{b: 0.3}, podMemory: of{a: 400 << 20, b: 100 << 20}, podActive: of{b: 3}, podAllocated: of{a: 2.5, b: 2.5},
				podEnergy: of{b: 400}, restMemory: of{whole: 500 << 20},
				notAvailable: of{"process_utilization no_data": 1},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := last(t, test.moments...)
			near(got, test.want)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// While a share is unknown, its counters are absent. A counter that does not grow would look idle.
func TestCountersDoNotStandStill(t *testing.T) {
	alone, two := pods(gpu.SharingTimeSlicing, 4, 1), pods(gpu.SharingTimeSlicing, 4, 1, 2)
	elsewhere := func(m *moment) { m.noPodOf, m.procs = gpu.ErrPIDNamespace, []gpu.Process{process(1, 0.5, 1)} }
	list := pages(t, at(0, alone, nil), at(1, alone, nil), at(2, two, elsewhere), at(3, two, elsewhere))
	for i, page := range list[2:] {
		for _, family := range []string{podUtil, podMemory, podActive, podEnergy, restUtil, restMemory, restActive, restEnergy} {
			if len(page[family]) > 0 {
				t.Errorf("cycle %d: %s = %v for unknown shares, want none", i+2, family, page[family])
			}
		}
		if len(page[notAvailable]) != 1 {
			t.Errorf("cycle %d: reasons = %v, want one", i+2, page[notAvailable])
		}
	}
}

// A pod is charged the same with and without idle neighbors.
func TestBillDoesNotDependOnNeighbors(t *testing.T) {
	const a = "GPU-0/ ns/b"
	bill := func(uses []gpu.Use) float64 {
		return last(t, at(0, uses, nil), at(1, uses, runs(process(1, 0.6, 10))))[podEnergy][a]
	}
	alone := bill(pods(gpu.SharingTimeSlicing, 4, 1))
	if full := bill(pods(gpu.SharingTimeSlicing, 4, 1, 2, 3)); alone != full || alone <= 0 {
		t.Errorf("energy charged = %v J alone and %v J with idle neighbors, want the same above zero", alone, full)
	}
}

// If two containers of a pod share a device, they have one account with the pod's labels. A container with a device
// of its own is labeled.
func TestContainersOfOnePod(t *testing.T) {
	uses := pods(gpu.SharingNone, 0, 1, 1)
	uses[0].Owners[1].Container = "side"
	uses = append(uses, pods(gpu.SharingTimeSlicing, 4, 2)...)
	var labels, infos []string
	(&play{moments: []moment{at(0, uses, nil)}}).run(t, func(_ int, s *gpu.Snapshot) {
		for _, f := range s.Families {
			for _, x := range f.Series {
				switch {
				case f.Name == podUtil:
					labels = append(labels, textOf(x.Labels))
				case f.Name == podInfo:
					infos = append(infos, textOf(x.Labels))
				}
			}
		}
	})
	if diff := cmp.Diff([]string{"gpu=0 UUID=GPU-0 namespace=ns pod=b", "gpu=1 UUID=GPU-1 namespace=ns pod=c container=main"}, labels); diff != "" {
		t.Errorf("accounts (-want +got):\n%s", diff)
	}
	const info = "gpu=0 UUID=GPU-0 namespace=ns pod=b container="
	const more = " pod_uid=uid-1 resource=nvidia.com/gpu sharing=none"
	other := "gpu=1 UUID=GPU-1 namespace=ns pod=c container=main pod_uid=uid-2 resource=nvidia.com/gpu sharing=time-slicing replicas=4"
	if diff := cmp.Diff([]string{info + "main" + more, info + "side" + more, other}, infos); diff != "" {
		t.Errorf("info series (-want +got):\n%s", diff)
	}
}

// An info series has all labels of an owner. GPU and instance numbers can have two digits.
func TestInfoHasAllLabelsOfOwner(t *testing.T) {
	list := []gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 11}, GPU: 11, UUID: "GPU-11"},
		{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 100, ParentKind: gpu.KindGPU, Parent: 11}, GPU: 11, UUID: "GPU-11",
			InstanceID: 13, Profile: "1g.10gb"},
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 12}, GPU: 12, UUID: "GPU-12"},
	}
	pod := pods(gpu.SharingNone, 0, 1)[0]
	pod.Owners[0].Labels = []gpu.Label{{Name: "dra_claim_name", Value: "claim"}, {Name: "team", Value: "red"}}
	job := gpu.Use{Owners: []gpu.Owner{{Labels: []gpu.Label{{Name: "hpc_job", Value: "4711"}}}}}
	var infos []string
	p := play{top: gpu.NewTopology(list), moments: []moment{at(0, []gpu.Use{1: pod, 2: job}, nil)}}
	p.run(t, func(_ int, s *gpu.Snapshot) {
		for _, f := range s.Families {
			for _, x := range f.Series {
				if f.Name == podInfo {
					infos = append(infos, textOf(x.Labels))
				}
			}
		}
	})
	want := []string{
		"gpu=11 UUID=GPU-11 GPU_I_ID=13 namespace=ns pod=b container=main pod_uid=uid-1 resource=nvidia.com/gpu sharing=mig " +
			"dra_claim_name=claim team=red",
		"gpu=12 UUID=GPU-12 hpc_job=4711 pod_uid= resource= sharing=none",
	}
	if diff := cmp.Diff(want, infos); diff != "" {
		t.Errorf("info series (-want +got):\n%s", diff)
	}
}

// Switches and links have no owner, even if a pod owns every GPU.
func TestSwitchesAndLinksHaveNoOwner(t *testing.T) {
	list := append([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindNVSwitch}, UUID: "switch"}}, boards(1)...)
	uses := append([]gpu.Use{{}}, pods(gpu.SharingNone, 0, 1)...)
	p := play{top: gpu.NewTopology(list), moments: []moment{at(0, uses, nil), at(1, uses, nil)}}
	p.run(t, func(_ int, s *gpu.Snapshot) {
		for _, f := range s.Families {
			for _, x := range f.Series {
				if !strings.Contains(textOf(x.Labels), "UUID=GPU-0") && f.Name != notAvailable {
					t.Errorf("%s has a series for %s, want only series of GPU-0", f.Name, textOf(x.Labels))
				}
			}
		}
	})
}

// Extend does not modify the requested plan.
func TestExtend(t *testing.T) {
	fields := append(make([]gpu.Field, 0, 9), gpu.Field{ID: 150}, gpu.Field{ID: 203, Name: "mine"})
	extended := accounting.Extend(&gpu.Plan{Fields: fields[:1]})
	if !extended.Processes || fields[1].Name != "mine" {
		t.Errorf("processes requested = %t, want true; the caller's next field = %v, want it unchanged", extended.Processes, fields[1])
	}
	levels := map[gpu.FieldID]gpu.Kinds{}
	for _, f := range extended.Fields {
		levels[f.ID] = f.Levels
	}
	instance := gpu.KindsOf(gpu.KindGPUInstance)
	want := map[gpu.FieldID]gpu.Kinds{150: 0, 69: gpuOnly, 156: gpuOnly, 203: gpuOnly, 252: gpuOnly | instance, 1001: instance}
	if diff := cmp.Diff(want, levels); diff != "" {
		t.Errorf("levels (-want +got):\n%s", diff)
	}
}

func textOf(labels []gpu.Label) string {
	text := ""
	for i, l := range labels {
		if i > 0 {
			text += " "
		}
		text += l.Name + "=" + l.Value
	}
	return text
}

// The owner of a partitioned GPU also owns its instances without an owner, and the remaining slices.
func TestPartitionedGPUHeldWhole(t *testing.T) {
	owner := func(pod string) gpu.Use {
		return gpu.Use{Owners: []gpu.Owner{{Namespace: "ns", Pod: pod, Container: "main", PodUID: "uid-" + pod}}}
	}
	uses := []gpu.Use{{}, {}, owner("whole"), {}, owner("part"), {}}
	m := func(i int) moment {
		m := at(i, uses, nil)
		for row := 3; row < 6; row++ {
			m.util[row], m.memory[row] = gpu.Float(0.5), gpu.Int(10)
		}
		m.energy[2] = gpu.Int(int64(7e6 * i))
		return m
	}
	got := reported{}
	(&play{moments: []moment{m(0), m(1)}}).run(t, func(_ int, s *gpu.Snapshot) { got = shares(s) })
	want := reported{
		// The instances have 3, 2 and 1 of 7 slices. One slice belongs to no instance.
		podAllocated: of{"GPU-2/ ns/whole": 10. / 7, "GPU-2/1 ns/whole": 30. / 7, "GPU-2/2 ns/part": 20. / 7, "GPU-2/3 ns/whole": 10. / 7},
		podUtil:      of{"GPU-2/1 ns/whole": 0.5, "GPU-2/2 ns/part": 0.5, "GPU-2/3 ns/whole": 0.5},
		podMemory:    of{"GPU-2/1 ns/whole": 10 << 20, "GPU-2/2 ns/part": 10 << 20, "GPU-2/3 ns/whole": 10 << 20},
		podEnergy:    of{"GPU-2/ ns/whole": 1000, "GPU-2/1 ns/whole": 3000, "GPU-2/2 ns/part": 2000, "GPU-2/3 ns/whole": 1000},
		podInfo:      of{"GPU-2/ ns/whole/main none": 1, "GPU-2/2 ns/part/main mig": 1},
	}
	for family := range want {
		near(got, want)
		if diff := cmp.Diff(want[family], got[family]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", family, diff)
		}
	}
}

// Old processes are ignored like old samples. Processes of a GPU that is not read are ignored too.
func TestStaleProcesses(t *testing.T) {
	const limit = int64(3 * interval)
	uses := pods(gpu.SharingTimeSlicing, 2, 1, 2)
	for name, tt := range map[string]struct {
		change func(*moment)
		shared bool // whether the GPU is divided by its processes
		why    string
	}{
		"samples as old as the limit":     {func(m *moment) { m.procs[0].Time, m.procs[1].Time = limit, limit }, true, ""},
		"samples older than the limit":    {func(m *moment) { m.procs[0].Time, m.procs[1].Time = limit+1, limit+1 }, false, "processes stale"},
		"one sample older than the limit": {func(m *moment) { m.procs[1].Time = limit + 1 }, false, "processes stale"},
		"a GPU without values": {func(m *moment) {
			m.util[0], m.memory[0], m.energy[0] = gpu.Value{}, gpu.Value{}, gpu.Value{}
		}, false, "processes unavailable"},
		"a lost GPU with samples": {func(m *moment) {
			m.faults = append(m.faults, gpu.Fault{Row: 0, Part: gpu.PartEntity, Err: gpu.ErrLost})
		}, false, "processes lost"},
	} {
		t.Run(name, func(t *testing.T) {
			page := last(t, at(0, uses, runs()), at(1, uses, func(m *moment) {
				runs(process(1, 0.1, 100), process(2, 0.2, 200))(m)
				m.procs = slices.Clone(m.procs)
				tt.change(m)
			}))
			if got := len(page[podUtil]) == 2 && len(page[podMemory]) == 2; got != tt.shared {
				t.Errorf("GPU is divided by its processes: %t, want %t; page: %v", got, tt.shared, page)
			}
			if _, said := page[notAvailable][tt.why]; tt.why != "" && !said {
				t.Errorf("reasons = %v, want %q", page[notAvailable], tt.why)
			}
			if len(page[podUtil]) != 0 && !tt.shared || len(page[podMemory]) != 0 && !tt.shared {
				t.Errorf("utilization of pods = %v, memory of pods = %v, want no series", page[podUtil], page[podMemory])
			}
			if rest := page[restUtil]; len(rest) > 0 && !tt.shared {
				t.Errorf("unattributed utilization = %v, want no series", rest)
			}
		})
	}
}

// The shares of a lost GPU are unknown, even if its source keeps reporting old processes. Its energy is charged when
// it returns.
func TestSharesOfLostGPU(t *testing.T) {
	uses := pods(gpu.SharingNone, 0, 1)
	lost := func(m *moment) {
		m.faults = append(m.faults, gpu.Fault{Row: 0, Part: gpu.PartEntity, Err: gpu.ErrLost})
	}
	page := last(t, at(0, uses, nil), at(1, uses, lost))
	for _, family := range []string{podUtil, restUtil, podMemory, restMemory, podActive, restActive, podEnergy, restEnergy} {
		if len(page[family]) > 0 {
			t.Errorf("%s = %v, want no series", family, page[family])
		}
	}
	back := last(t, at(0, uses, nil), at(1, uses, lost), at(2, uses, nil))
	if got := back[podEnergy]["GPU-0/ ns/b"]; got != 2000 {
		t.Errorf("energy of the pod = %v J, want 2000; page: %v", got, back)
	}
}

// The energy of a GPU without owners is unattributed, even while its activity is unknown.
func TestEnergyWithoutOwnersAndActivity(t *testing.T) {
	uses := pods(gpu.SharingNone, 0)
	quiet := func(m *moment) { m.util[0] = gpu.Value{} }
	for i, page := range pages(t, at(0, uses, quiet), at(1, uses, quiet), at(2, uses, nil), at(3, uses, quiet)) {
		if got, there := page[restEnergy]["GPU-0/"]; !there || got != float64(1000*i) {
			t.Errorf("cycle %d: unattributed energy = %v J (present: %t), want %d", i, got, there, 1000*i)
		}
	}
}

// An account is kept as long as its owner holds the device, even if nothing changes. If an owner returns after its
// account was dropped, its use is counted again.
func TestAccountLastsAsLongAsItsOwner(t *testing.T) {
	const a, b = "GPU-0/ ns/b", "GPU-0/ ns/c"
	one, two := pods(gpu.SharingNone, 0, 1), pods(gpu.SharingTimeSlicing, 2, 1, 2)
	var moments []moment
	for i := range 100 {
		moments = append(moments, at(i, one, nil)) // for 16.5 minutes
	}
	moments = append(moments, at(100, nil, nil), at(101, one, nil))
	if got := last(t, moments...)[podAllocated][a]; got != 1000 {
		t.Errorf("allocated = %v s after a cycle without attribution, want 1000", got)
	}
	work := runs(process(1, 0.2, 1), process(2, 0.3, 1))
	moments = []moment{at(0, two, nil), at(1, two, work)}
	second := pods(gpu.SharingTimeSlicing, 2, 2)
	for i := range 100 {
		moments = append(moments, at(2+i, second, nil))
	}
	moments = append(moments, at(102, pods(gpu.SharingTimeSlicing, 2, 2, 3), nil)) // the account is dropped now
	moments = append(moments, at(103, two, work), at(104, two, work))
	got := last(t, moments...)
	want := of{a: 0.2, b: 0.3}
	if diff := cmp.Diff(want, got[podUtil]); diff != "" {
		t.Errorf("shares after 16 minutes (-want +got):\n%s", diff)
	}
}

// If the number of slices of a GPU is unknown or smaller than that of its instances, its seconds are not reported.
func TestUnknownSlices(t *testing.T) {
	for name, tt := range map[string]struct {
		profiles []string
		total    gpu.Value
		known    bool
	}{
		"all slices in instances":              {[]string{"4g.40gb", "3g.40gb"}, gpu.Int(7), true},
		"fewer slices than the instances have": {[]string{"4g.40gb", "3g.40gb"}, gpu.Int(6), false},
		"no slices":                            {[]string{"4g.40gb", "3g.40gb"}, gpu.Int(0), false},
		"number of slices not reported":        {[]string{"4g.40gb", "3g.40gb"}, gpu.Value{}, false},
		"a profile without memory":             {[]string{"4g.40gb", "3"}, gpu.Int(7), false},
		"second profile unknown":               {[]string{"4g.40gb", "half"}, gpu.Int(7), false},
		"both profiles unknown":                {[]string{"half", "half"}, gpu.Int(7), false},
		"first profile unknown":                {[]string{"half", "4g.40gb"}, gpu.Int(7), false},
	} {
		t.Run(name, func(t *testing.T) {
			uses := []gpu.Use{2: pods(gpu.SharingNone, 0, 1)[0]}
			m := func(i int) moment {
				m := at(i, uses, nil)
				m.util[1], m.util[2] = gpu.Float(0.5), gpu.Float(0.5)
				return m
			}
			var got reported
			p := play{top: partitioned(tt.profiles...), slices: tt.total, moments: []moment{m(0), m(1)}}
			p.run(t, func(_ int, s *gpu.Snapshot) { got = shares(s) })
			for _, family := range []string{podAllocated, podActive, podEnergy} {
				if _, ok := got[family]["GPU-0/2 ns/b"]; ok != tt.known {
					t.Errorf("%s of the pod present = %t, want %t", family, ok, tt.known)
				}
			}
			if _, ok := got[restActive]["GPU-0/1"]; ok != tt.known {
				t.Errorf("unattributed seconds of the other instance present = %t, want %t", ok, tt.known)
			}
			if _, why := got[notAvailable]["mig_share no_data"]; why == tt.known {
				t.Errorf("reasons = %v, want mig_share no_data: %t", got[notAvailable], !tt.known)
			}
			p.moments = []moment{at(0, []gpu.Use{}, nil)} // without owners nothing is missing
			p.run(t, func(_ int, s *gpu.Snapshot) { got = shares(s) })
			if len(got[notAvailable]) > 0 {
				t.Errorf("reasons without owners = %v, want none", got[notAvailable])
			}
		})
	}
}

// Setting the wall clock neither adds GPU time nor removes any.
func TestWallClockIsSet(t *testing.T) {
	const a = "GPU-0/ ns/b"
	one := pods(gpu.SharingNone, 0, 1)
	for _, step := range []time.Duration{0, 15 * time.Second, time.Hour, -time.Hour} {
		got := last(t, at(0, one, nil), at(1, one, nil), at(2, one, func(m *moment) { m.step = step }))
		if got[podAllocated][a] != 20 || got[podActive][a] != 12 || got[podEnergy][a] != 2000 {
			t.Errorf("clock set by %v: page = %v, want 20 s allocated, 12 s active and 2000 J", step, got)
		}
	}
}
