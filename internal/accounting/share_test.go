package accounting_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

type (
	reported = map[string]map[string]float64
	of       = map[string]float64
)

// figures are the utilization, MiB, active seconds, allocated seconds and joules that a page reports.
type figures [5]float64

const no = -1 // there is no such series

// figuresOf returns the figures of each owner, and of the remainder, by the key of the series.
func figuresOf(page reported) map[string]figures {
	all := map[string]figures{}
	for i, families := range [...][]string{
		{podUtil, restUtil}, {podMemory, restMemory}, {podActive, restActive}, {podAllocated}, {podEnergy, restEnergy},
	} {
		for _, family := range families {
			for key, v := range page[family] {
				if _, ok := all[key]; !ok {
					all[key] = figures{no, no, no, no, no}
				}
				f := all[key]
				if f[i] = v; i == 1 {
					f[i] /= 1 << 20
				}
				all[key] = f
			}
		}
	}
	return all
}

func TestSharesOfOneGPU(t *testing.T) {
	const a, b, c, rest = "GPU-0/ ns/b", "GPU-0/ ns/c", "GPU-0/ ns/a", "GPU-0/"
	type page = map[string]figures
	none := []gpu.Use{}
	one, two := pods(gpu.SharingNone, 0, 1), pods(gpu.SharingTimeSlicing, 4, 1, 2)
	oneOfFour := pods(gpu.SharingTimeSlicing, 4, 1)
	other := pods(gpu.SharingNone, 0, 1)
	other[0].Owners[0].PodUID = "another"
	inPod := pods(gpu.SharingNone, 0, 1)
	inPod[0].Owners = append(inPod[0].Owners, gpu.Owner{Labels: []gpu.Label{{Name: "hpc_job", Value: "7"}}})
	late := pods(gpu.SharingNone, 0, 1)
	late[0].Owners[0].PodUID = ""
	anonymous := pods(gpu.SharingMPS, 2, 0, 2)
	alone := func(active, allocated, joules, unusedSeconds, unusedJoules float64) page {
		return page{a: {0.6, 1000, active, allocated, joules}, rest: {0, 0, unusedSeconds, no, unusedJoules}}
	}
	consumes := func(holders int, parts ...float64) []gpu.Use {
		use := pods(gpu.SharingDRA, 0, 1, 2)
		for i, part := range parts {
			use[0].Owners[i].Part, use[0].Owners[i].Replica = part, string(rune('a'+i/holders))
		}
		return use
	}
	idle := func(m *moment) { m.util[0] = gpu.Int(0); runs()(m) }
	silent := func(m *moment) { m.util[0] = gpu.Value{} }
	fails := func(row int, part gpu.Part, err error) func(*moment) {
		return func(m *moment) { m.faults = []gpu.Fault{{Row: row, Part: part, Err: err}} }
	}
	lost := fails(0, gpu.PartEntity, gpu.ErrLost)
	noPods := func(m *moment) { m.procs, m.noPodOf = []gpu.Process{process(1, 0.3, 100)}, gpu.ErrPIDNamespace }
	noEnergy := func(m *moment) { m.energy[0] = gpu.Value{} }
	gap := func(gap time.Duration) func(*moment) { return func(m *moment) { m.gap = gap } }
	history := func(uses ...[]gpu.Use) (list []moment) {
		for i, u := range uses {
			list = append(list, at(i, u, nil))
		}
		return list
	}
	then := func(uses []gpu.Use, change func(*moment)) []moment {
		return []moment{at(0, uses, nil), at(1, uses, change)}
	}
	unknown := page{a: {no, no, no, 2.5, no}, b: {no, no, no, 2.5, no}}
	mean := func(sample gpu.Value) func(*moment) {
		return func(m *moment) {
			runs(process(1, 0.25, 300), process(2, 0.25, 100))(m)
			m.util[0] = sample
		}
	}
	byMean := page{a: {0.25, 300, 2.5, 2.5, 350}, b: {0.25, 100, 2.5, 2.5, 350}, rest: {0.1, 600, 1, no, 300}}
	const limit = int64(3 * interval)
	aged := func(first, second int64) func(*moment) {
		return func(m *moment) {
			runs(process(1, 0.3, 500), process(2, 0.3, 500))(m)
			m.procs[0].Time, m.procs[1].Time = first, second
		}
	}
	halves := page{a: {0.3, 500, 3, 2.5, 400}, b: {0.3, 500, 3, 2.5, 400}, rest: {0, 0, 0, no, 200}}
	blank := func(m *moment) {
		aged(0, 0)(m)
		m.util[0], m.memory[0], m.energy[0] = gpu.Value{}, gpu.Value{}, gpu.Value{}
	}
	lostBusy := func(m *moment) { aged(0, 0)(m); lost(m) }
	known := []moment{at(0, none, silent), at(1, none, silent), at(2, none, nil), at(3, none, silent)}
	clock := func(step time.Duration) []moment {
		return []moment{at(0, one, nil), at(1, one, nil), at(2, one, func(m *moment) { m.step = step })}
	}
	for name, test := range map[string]struct {
		moments []moment
		want    page
		why     string // the reason for what is unknown
	}{
		"a single owner gets everything, including idle energy": {history(one, one), alone(6, 10, 1000, 0, 0), ""},
		"without owners nothing is attributed": {
			history(none, none), page{rest: {0.6, 1000, 6, no, 1000}}, "",
		},
		"one of four replicas is charged its activity and a quarter of the idle energy": {
			history(oneOfFour, oneOfFour), alone(6, 2.5, 700, 0, 300), "",
		},
		"claims of a quarter and of three quarters of an idle GPU": {
			[]moment{at(0, consumes(1, 0.25, 0.75), idle), at(1, consumes(1, 0.25, 0.75), idle)},
			page{a: {0, 0, 0, 2.5, 250}, b: {0, 0, 0, 7.5, 750}, rest: {0, 1000, 0, no, 0}}, "",
		},
		"two pods share a claim of a quarter, and three quarters are not claimed": {
			[]moment{at(0, consumes(2, 0.25, 0.25), idle), at(1, consumes(2, 0.25, 0.25), idle)},
			page{a: {0, 0, 0, 1.25, 125}, b: {0, 0, 0, 1.25, 125}, rest: {0, 1000, 0, no, 750}}, "",
		},
		"claims of more than the whole GPU, then one of an unknown share": {
			[]moment{
				at(0, consumes(1, 0.75, 0.75), idle), at(1, consumes(1, 0.75, 0.75), idle),
				at(2, consumes(1, 0.75, 0), idle),
			},
			page{a: {0, 0, 0, 10, 1000}, b: {0, 0, 0, 10, 1000}, rest: {0, 1000, 0, no, 0}}, "",
		},
		"two owners are charged by their processes": {
			then(two, runs(process(1, 0.1, 300), process(2, 0.2, 100), process(2, 0.1, 100), process(100, 0.1, 50))),
			page{a: {0.1, 300, 1, 2.5, 200}, b: {0.3, 200, 3, 2.5, 400}, rest: {0.2, 500, 2, no, 400}}, "",
		},
		"the example of docs/attribution.md": {
			then(two, runs(process(1, 0.4, 300), process(2, 0.1, 100), process(100, 0.1, 50))),
			page{a: {0.4, 300, 4, 2.5, 500}, b: {0.1, 100, 1, 2.5, 200}, rest: {0.1, 600, 1, no, 300}}, "",
		},
		"the mean of the interval is used, not the sample":  {then(two, mean(gpu.Int(0))), byMean, ""},
		"the mean of the interval is used without a sample": {then(two, mean(gpu.Value{})), byMean, ""},
		"the device's utilization is at least that of its processes": {
			then(two, func(m *moment) {
				m.procs, m.util[0] = []gpu.Process{process(1, 0.25, 300), process(2, 0.25, 100)}, gpu.Int(34)
			}),
			page{a: {0.25, 300, 2.5, 2.5, 375}, b: {0.25, 100, 2.5, 2.5, 375}, rest: {0, 600, 0, no, 250}}, "",
		},
		"an ended process has activity but no memory": {
			then(two, runs(process(1, 0.1, 300), process(2, 0.3, 0))),
			page{a: {0.1, 300, 1, 2.5, 200}, b: {0.3, 0, 3, 2.5, 400}, rest: {0.2, 700, 2, no, 400}}, "",
		},
		"process utilization above the device's is scaled down": {
			then(two, runs(process(1, 0.8, 3000), process(2, 0.4, 1000))),
			page{a: {0.4, 750, 4, 2.5, 500}, b: {0.2, 250, 2, 2.5, 300}, rest: {0, 0, 0, no, 200}}, "",
		},
		"shares are unknown without host PIDs": {
			then(two, noPods), unknown, "pod_of_process pid_namespace",
		},
		"shares are unknown without processes": {
			then(two, fails(0, gpu.PartProcesses, gpu.ErrPermission)), unknown, "processes permission",
		},
		"counters disappear while unknown and continue afterwards": {
			[]moment{
				at(0, two, nil), at(1, two, runs(process(1, 0.2, 100), process(2, 0.4, 100))),
				at(2, two, fails(0, gpu.PartProcesses, gpu.ErrPermission)),
				at(3, two, runs(process(1, 0.6, 100), process(2, 0, 100))),
			},
			page{a: {0.6, 100, 8, 7.5, 1100}, b: {0, 100, 4, 7.5, 700}, rest: {0, 800, 0, no, 600}}, "",
		},
		"a second pod joins and is charged by its processes": {
			[]moment{at(0, oneOfFour, nil), at(1, two, runs(process(1, 0.4, 300), process(2, 0.2, 700)))},
			page{a: {0.4, 300, 4, 2.5, 500}, b: {0.2, 700, 2, 2.5, 300}, rest: {0, 0, 0, no, 200}}, "",
		},
		"only memory is reported, as with MIG": {
			then(two, func(m *moment) {
				m.procs = []gpu.Process{{PID: 1, Memory: gpu.Int(100 << 20)}}
				fails(0, gpu.PartProcessBusy, gpu.ErrNotSupported)(m)
			}),
			page{a: {no, 100, no, 2.5, no}, b: {no, 0, no, 2.5, no}, rest: {no, 900, no, no, no}},
			"process_utilization not_supported",
		},
		"memory that the driver cannot report": {
			then(two, runs(process(1, 0.1, 300), gpu.Process{PID: 2, Busy: gpu.Float(0.3)})),
			page{a: {0.1, 300, 1, 2.5, 200}, b: {0.3, no, 3, 2.5, 400}, rest: {0.2, no, 2, no, 400}},
			"process_memory no_data",
		},
		"a pod with an unknown UID has no known share": {
			then(anonymous, runs(process(0, 0.3, 10), process(2, 0.2, 20))),
			page{c: {no, no, no, 5, no}, b: {0.2, 20, 2, 5, 400}}, "pod_uid no_data",
		},
		"an owner seen once is charged that interval": {
			history(none, none, one), alone(6, 10, 1000, 6, 1000), "",
		},
		"another pod of the same name begins at zero": {
			history(one, one, other), alone(6, 10, 1000, 0, 0), "",
		},
		"series disappear while the kubelet is down and continue afterwards": {
			history(one, one, nil, one), alone(12, 20, 2000, 0, 0), "",
		},
		"if all owners are unknown, nothing is unattributed": {
			history(none, nil, nil), page{}, "owners no_data",
		},
		"if the owners of one device are unknown, nothing of it is unattributed": {
			history(one, one, []gpu.Use{{Incomplete: true}}), page{}, "owners no_data",
		},
		"a device is not divided among an incomplete list of owners": {
			history(two, two, []gpu.Use{{Incomplete: true, Owners: two[0].Owners[:1]}}), page{}, "owners no_data",
		},
		"an owner absent for longer than dormancy starts at zero": {
			[]moment{at(0, one, nil), at(1, one, nil), at(2, nil, gap(16*time.Minute)), at(3, one, nil)},
			alone(6, 10, 1000, 0, 0), "",
		},
		"another pod of the same name, whose UID is known late, starts at zero once": {
			history(one, one, none, late, other),
			alone(12, 20, 2000, 6, 1000), "",
		},
		"a pod whose UID is unknown for a while keeps its account": {
			history(one, one, late, one), alone(18, 30, 3000, 0, 0), "",
		},
		"a pod whose UID is unknown keeps its account while the kubelet is down": {
			history(one, one, nil, late), alone(12, 20, 2000, 0, 0), "",
		},
		"time without readings is not charged": {
			[]moment{at(0, one, nil), at(1, one, gap(time.Hour)), at(2, one, nil)}, alone(6, 10, 1000, 0, 0), "",
		},
		"one missing utilization sample loses no energy": {
			[]moment{at(0, one, nil), at(1, one, silent), at(2, one, nil)}, alone(12, 20, 2000, 0, 0), "",
		},
		"energy is not charged after the counter was unknown for a long time": {
			[]moment{
				at(0, one, nil), at(1, one, nil), at(2, one, noEnergy), at(3, one, noEnergy), at(4, one, noEnergy),
				at(5, one, noEnergy), at(6, one, nil), at(7, one, nil),
			},
			alone(42, 70, 2000, 0, 0), "",
		},
		"a device without utilization": {
			then(one, silent), page{a: {no, 1000, no, 10, no}, rest: {no, 0, no, no, no}}, "utilization no_data",
		},
		"a job in a pod is attributed to the pod": {history(inPod, inPod), alone(6, 10, 1000, 0, 0), ""},
		"a fault in all rows does not mean idle": {
			then(two, fails(gpu.AllRows, gpu.PartProcesses, gpu.ErrPermission)), unknown, "processes permission",
		},
		"shares become unknown when a second pod joins": {
			[]moment{at(0, oneOfFour, nil), at(1, oneOfFour, nil), at(2, two, noPods), at(3, two, noPods)},
			page{a: {no, no, no, 7.5, no}, b: {no, no, no, 5, no}}, "pod_of_process pid_namespace",
		},
		"the shares of a lost GPU are unknown": {
			then(one, lost), page{a: {no, no, no, 10, no}}, "utilization no_data",
		},
		"the energy of a lost GPU is charged when it returns": {
			[]moment{at(0, one, nil), at(1, one, lost), at(2, one, nil)}, alone(12, 20, 2000, 0, 0), "",
		},
		"one of a pod's processes has unknown activity": {
			then(two, runs(
				process(1, 0.1, 300), gpu.Process{PID: 11, Memory: gpu.Int(100 << 20)}, process(2, 0.3, 100))),
			page{a: {no, 400, no, 2.5, no}, b: {0.3, 100, 3, 2.5, 400}, rest: {no, 500, no, no, no}},
			"process_utilization no_data",
		},
		"a pod is charged the same with idle neighbors": {
			then(pods(gpu.SharingTimeSlicing, 4, 1, 2, 0), runs(process(1, 0.6, 1000))),
			page{a: {0.6, 1000, 6, 2.5, 700}, b: {0, 0, 0, 2.5, 100}, c: {no, no, no, 2.5, no}}, "pod_uid no_data",
		},
		"processes as old as the limit":    {then(two, aged(limit, limit)), halves, ""},
		"processes older than the limit":   {then(two, aged(limit+1, limit+1)), unknown, "processes stale"},
		"one process older than the limit": {then(two, aged(0, limit+1)), unknown, "processes stale"},
		"processes of a GPU without values": {
			then(two, blank), unknown, "processes unavailable, utilization no_data",
		},
		"processes of a lost GPU with samples":   {then(two, lostBusy), unknown, "processes lost, utilization no_data"},
		"a GPU without owners and activity":      {then(none, silent), page{rest: {no, 1000, no, no, 1000}}, ""},
		"activity without owners was known once": {known, page{rest: {no, 1000, no, no, 3000}}, ""},
		"the wall clock is set 15 seconds ahead": {clock(15 * time.Second), alone(12, 20, 2000, 0, 0), ""},
		"the wall clock is set by an hour":       {clock(time.Hour), alone(12, 20, 2000, 0, 0), ""},
		"the wall clock is set back by an hour":  {clock(-time.Hour), alone(12, 20, 2000, 0, 0), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := last(t, test.moments...)
			is(t, "figures", figuresOf(got), test.want)
			is(t, "reasons", strings.Join(slices.Sorted(maps.Keys(got[notAvailable])), ", "), test.why)
		})
	}
}

// is compares what is reported with what is expected. It ignores rounding.
func is[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// labelsIn returns the labels of each series of a family in the only cycle of a play.
func labelsIn(t *testing.T, p play, family string) (all []string) {
	p.run(t, func(_ int, s *gpu.Snapshot) {
		for _, f := range s.Families {
			for _, x := range f.Series {
				if f.Name == family {
					all = append(all, textOf(x.Labels))
				}
			}
		}
	})
	return all
}

// TestLabels checks the labels of accounts and info series. If two containers of a pod share a device, they have one
// account with the pod's labels. A container with a device of its own has a container label. An info series has all
// labels of an owner. GPU and instance numbers can have two digits. A switch has no series, even if it has an owner.
func TestLabels(t *testing.T) {
	two, other := pods(gpu.SharingNone, 0, 1, 1)[0], pods(gpu.SharingTimeSlicing, 4, 2)[0]
	two.Owners[1].Container = "side"
	pod := pods(gpu.SharingNone, 0, 3)[0]
	pod.Owners[0].Labels = []gpu.Label{{Name: "dra_claim_name", Value: "claim"}, {Name: "team", Value: "red"}}
	job := gpu.Use{Owners: []gpu.Owner{{Labels: []gpu.Label{{Name: "hpc_job", Value: "4711"}}}}}
	list := append(boards(2), gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 11}, GPU: 11, UUID: "GPU-11"},
		gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 100, ParentKind: gpu.KindGPU, Parent: 11}, GPU: 11,
			UUID: "GPU-11", InstanceID: 13, Profile: "1g.10gb",
		}, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 12}, GPU: 12, UUID: "GPU-12"},
		gpu.Device{Entity: gpu.Entity{Kind: gpu.KindNVSwitch}, UUID: "switch"})
	uses := []gpu.Use{0: two, 1: other, 3: pod, 4: job, 5: other}
	p := play{top: gpu.NewTopology(list), moments: []moment{at(0, uses, nil)}}
	const b, c = "gpu=0 UUID=GPU-0 namespace=ns pod=b", "gpu=1 UUID=GPU-1 namespace=ns pod=c container=main"
	const d, e = "gpu=11 UUID=GPU-11 GPU_I_ID=13 namespace=ns pod=d container=main", "gpu=12 UUID=GPU-12 hpc_job=4711"
	is(t, "number of entities", len(labelsIn(t, p, restUtil)), 5)
	is(t, "accounts", labelsIn(t, p, podUtil), []string{b, c, d, e})
	is(t, "info series", labelsIn(t, p, podInfo), []string{
		b + " container=main pod_uid=uid-1 resource=nvidia.com/gpu sharing=none",
		b + " container=side pod_uid=uid-1 resource=nvidia.com/gpu sharing=none",
		c + " pod_uid=uid-2 resource=nvidia.com/gpu sharing=time-slicing replicas=4",
		d + " pod_uid=uid-3 resource=nvidia.com/gpu sharing=mig dra_claim_name=claim team=red",
		e + " pod_uid= resource= sharing=none",
	})
}

// Extend does not modify the requested plan.
func TestExtend(t *testing.T) {
	fields := append(make([]gpu.Field, 0, 9), gpu.Field{ID: 150}, gpu.Field{ID: 203, Name: "mine"})
	extended := accounting.Extend(&gpu.Plan{Fields: fields[:1]})
	if !extended.Processes || fields[1].Name != "mine" {
		t.Errorf("processes requested = %t, want true; the caller's next field = %v, want it unchanged",
			extended.Processes, fields[1])
	}
	levels := map[gpu.FieldID]gpu.Kinds{}
	for _, f := range extended.Fields {
		levels[f.ID] = f.Levels
	}
	instance := gpu.KindsOf(gpu.KindGPUInstance)
	is(t, "levels", levels, map[gpu.FieldID]gpu.Kinds{
		150: 0, 69: gpuOnly, 156: gpuOnly, 203: gpuOnly, 252: gpuOnly | instance, 1001: instance,
	})
}

func textOf(labels []gpu.Label) string {
	var words []string
	for _, l := range labels {
		words = append(words, l.Name+"="+l.Value)
	}
	return strings.Join(words, " ")
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
	got, infos := map[string]figures{}, of{}
	(&play{moments: []moment{m(0), m(1)}}).run(t, func(_ int, s *gpu.Snapshot) {
		got, infos = figuresOf(shares(s)), shares(s)[podInfo]
	})
	maps.DeleteFunc(got, func(key string, _ figures) bool { return !strings.Contains(key, " ns/") })
	is(t, "figures", got, map[string]figures{
		// The instances have 3, 2 and 1 of 7 slices. One slice belongs to no instance.
		"GPU-2/ ns/whole":  {no, no, no, 10. / 7, 1000},
		"GPU-2/1 ns/whole": {0.5, 10, 15. / 7, 30. / 7, 3000},
		"GPU-2/2 ns/part":  {0.5, 10, 10. / 7, 20. / 7, 2000},
		"GPU-2/3 ns/whole": {0.5, 10, 5. / 7, 10. / 7, 1000},
	})
	is(t, "info series", infos, of{"GPU-2/ ns/whole/main none": 1, "GPU-2/2 ns/part/main mig": 1})
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
	is(t, "allocated seconds after a cycle without attribution", last(t, moments...)[podAllocated][a], 1000)
	work := runs(process(1, 0.2, 1), process(2, 0.3, 1))
	moments = []moment{at(0, two, nil), at(1, two, work)}
	second := pods(gpu.SharingTimeSlicing, 2, 2)
	for i := range 100 {
		moments = append(moments, at(2+i, second, nil))
	}
	moments = append(moments, at(102, pods(gpu.SharingTimeSlicing, 2, 2, 3), nil)) // the account is dropped now
	moments = append(moments, at(103, two, work), at(104, two, work))
	is(t, "shares after 16 minutes", last(t, moments...)[podUtil], of{a: 0.2, b: 0.3})
}

// If the number of slices of a GPU is unknown or smaller than that of its instances, its seconds are not reported.
func TestUnknownSlices(t *testing.T) {
	for name, tt := range map[string]struct {
		first, second string // profiles
		total         gpu.Value
	}{
		"all slices in instances":              {"4g.40gb", "3g.40gb", gpu.Int(7)}, // the only known one
		"fewer slices than the instances have": {"4g.40gb", "3g.40gb", gpu.Int(6)},
		"no slices":                            {"4g.40gb", "3g.40gb", gpu.Int(0)},
		"number of slices not reported":        {"4g.40gb", "3g.40gb", gpu.Value{}},
		"a profile without memory":             {"4g.40gb", "3", gpu.Int(7)},
		"second profile unknown":               {"4g.40gb", "half", gpu.Int(7)},
		"both profiles unknown":                {"half", "half", gpu.Int(7)},
		"first profile unknown":                {"half", "4g.40gb", gpu.Int(7)},
	} {
		t.Run(name, func(t *testing.T) {
			known := name == "all slices in instances"
			uses := []gpu.Use{2: pods(gpu.SharingNone, 0, 1)[0]}
			m := func(i int) moment {
				m := at(i, uses, nil)
				m.util[1], m.util[2] = gpu.Float(0.5), gpu.Float(0.5)
				return m
			}
			var got reported
			p := play{top: partitioned(tt.first, tt.second), slices: tt.total, moments: []moment{m(0), m(1)}}
			p.run(t, func(_ int, s *gpu.Snapshot) { got = shares(s) })
			for _, family := range []string{podAllocated, podActive, podEnergy} {
				_, ok := got[family]["GPU-0/2 ns/b"]
				is(t, family+" of the pod is present", ok, known)
			}
			_, ok := got[restActive]["GPU-0/1"]
			is(t, "unattributed seconds of the other instance are present", ok, known)
			_, unavailable := got[notAvailable]["mig_share no_data"]
			is(t, "mig_share no_data is a reason", unavailable, !known)
			p.moments = []moment{at(0, []gpu.Use{}, nil)} // without owners nothing is missing
			p.run(t, func(_ int, s *gpu.Snapshot) { got = shares(s) })
			is(t, "reasons without owners", got[notAvailable], of{})
		})
	}
}

// partitioned returns a GPU with instances of the given profiles. Without profiles, it is not partitioned.
func partitioned(profiles ...string) *gpu.Topology {
	list := boards(1)
	for i, profile := range profiles {
		list = append(list, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: uint32(100 + i), ParentKind: gpu.KindGPU, Parent: 0},
			UUID:   "GPU-0", InstanceID: uint32(i + 1), Profile: profile,
		})
	}
	return gpu.NewTopology(list)
}

// Even if a GPU is repartitioned every few cycles, each interval is charged once. The pods and the unattributed
// remainder add up to its energy counter. No more seconds are allocated than passed.
func TestChangingPartition(t *testing.T) {
	whole, halves := partitioned(), partitioned("4g.40gb", "3g.40gb")
	parts, other := partitioned("1g.10gb", "2g.20gb"), partitioned("3g.40gb", "1g.10gb")
	for name, tops := range map[string][]*gpu.Topology{
		"MIG toggled in each cycle":          {halves, whole},
		"instances that leave slices unused": {parts, whole},
		"other profiles with the same IDs":   {parts, other, halves},
		"every two cycles":                   {halves, halves, whole, whole},
		"MIG off for six cycles":             {halves, whole, whole, whole, whole, whole, whole},
	} {
		for _, blind := range []int{0, 2, 3} { // the activity is unknown in every blind-th cycle
			t.Run(fmt.Sprint(name, ", unknown activity every ", blind), func(t *testing.T) { flip(t, tops, blind) })
		}
	}
}

func flip(t *testing.T, tops []*gpu.Topology, blind int) {
	var moments []moment
	joules := 500.0
	for cycle := range 40 {
		top := tops[cycle%len(tops)]
		rows := len(top.Devices)
		m := silence(make([]gpu.Use, rows), rows)
		m.top, m.reopened = top, true
		if rows == 1 {
			m.uses[0] = pods(gpu.SharingNone, 0, 1)[0]
		} else {
			m.uses[1] = pods(gpu.SharingNone, 0, 2)[0] // no pod owns the second instance
		}
		if cycle > 0 {
			joules += float64(1000 + 100*cycle)
		}
		m.energy[0] = gpu.Float(joules * 1e3)
		for row := range rows {
			m.memory[row] = gpu.Int(100)
			switch {
			case blind > 0 && cycle%blind == 1:
			case row == 0:
				m.util[row] = gpu.Int(40)
			default:
				m.util[row] = gpu.Float(0.3)
			}
		}
		moments = append(moments, m)
	}
	total := map[string]map[string]float64{} // the latest value by family, then by entity and owner
	(&play{moments: moments}).run(t, func(cycle int, s *gpu.Snapshot) {
		for family, series := range shares(s) {
			if total[family] == nil {
				total[family] = map[string]float64{}
			}
			maps.Copy(total[family], series)
		}
		check := func(what string, passed float64, exact bool, families ...string) {
			sum := 0.0
			for _, family := range families {
				for _, v := range total[family] {
					sum += v
				}
			}
			if sum > passed+1e-6 || exact && math.Abs(sum-passed) > 1e-6 {
				t.Fatalf("cycle %d: %s = %v, want %v (exactly: %t, otherwise at most)", cycle, what, sum, passed, exact)
			}
		}
		seconds, used := float64(cycle)*interval.Seconds(), moments[cycle].energy[0]
		joules, _ := used.Number()
		check("energy in J", joules/1e3-500, blind == 0, podEnergy, restEnergy)
		check("allocated seconds", seconds, false, podAllocated)
		check("active seconds", 0.4*seconds, false, podActive, restActive)
	})
}

// virtualPage plays two moments and returns the series of the counters in the form "FAMILY{row labels} value".
func virtualPage(t *testing.T, virtual bool, uses []gpu.Use, procs ...gpu.Process) (lines []string) {
	t.Helper()
	p := &play{
		moments: []moment{at(0, uses, nil), at(1, uses, runs(procs...))}, virtual: virtual,
		plan: &gpu.Plan{
			Interval: interval, Devices: gpu.Selector{Flex: true},
			Fields: []gpu.Field{{ID: 203, Levels: gpuOnly}, {ID: 252, Levels: gpuOnly}, {ID: 156, Levels: gpuOnly}},
			Counters: []gpu.Counter{
				{Name: "UTIL", Type: gpu.MetricGauge, Field: 0, Scale: 1},
				{Name: "UTIL_RATIO", Type: gpu.MetricGauge, Field: 0, Scale: 0.01},
				{Name: "FB", Type: gpu.MetricGauge, Field: 1, Scale: 1},
				{Name: "ENERGY", Type: gpu.MetricCounter, Field: 2, Scale: 1},
				{Name: "LABEL", Type: gpu.MetricLabel, Field: 0, Scale: 1},
			},
		},
	}
	p.run(t, func(_ int, s *gpu.Snapshot) {
		lines = nil
		for _, c := range s.Columns {
			for row, v := range c.Values {
				if !v.IsAbsent() && c.Counter.Type != gpu.MetricLabel {
					lines = append(lines, fmt.Sprintf("%s{%d} %s", c.Counter.Name, row, v))
				}
			}
		}
		for _, f := range s.Families {
			for _, x := range f.Series {
				if strings.HasPrefix(f.Name, "dcgm_") {
					continue
				}
				if !x.NoOwner {
					t.Errorf("%s of %v gets the labels of the device's owner, want only its own", f.Name, x.Owner)
				}
				lines = append(lines, fmt.Sprintf("%s{%d %s} %s", f.Name, x.Row, textOf(x.Owner), x.Value))
			}
		}
	})
	slices.Sort(lines)
	return lines
}

func TestVirtualGPUs(t *testing.T) {
	replicas := func(numbers ...int) []gpu.Use {
		uses := pods(gpu.SharingTimeSlicing, 4, numbers...)
		for i := range uses[0].Owners {
			uses[0].Owners[i].Replica = fmt.Sprint(i)
		}
		return uses
	}
	two, procs := replicas(1, 2), []gpu.Process{process(1, 0.1, 300), process(2, 0.35, 100)}
	const b, c = "container=main namespace=ns pod=b vgpu=0", "container=main namespace=ns pod=c vgpu=1"
	device := []string{"ENERGY{0} 1000000", "FB{0} 1000", "UTIL_RATIO{0} 0.6", "UTIL{0} 60"}
	is(t, "with virtual GPUs", virtualPage(t, true, two, procs...), []string{
		"ENERGY{0} 1000000",                                        // the page has this series twice
		"FB{0 " + b + "} 300", "FB{0 " + c + "} 100", "FB{0} 1000", // with the device's own series, as in dcgm-exporter
		"UTIL_RATIO{0 " + b + "} 0.1", "UTIL_RATIO{0 " + c + "} 0.35", "UTIL_RATIO{0} 0.6",
		"UTIL{0 " + b + "} 10", "UTIL{0 " + c + "} 35", "UTIL{0} 60",
	})
	is(t, "without virtual GPUs", virtualPage(t, false, two, procs...), device)
	is(t, "exclusive GPU", virtualPage(t, true, pods(gpu.SharingNone, 0, 1)), device)
	is(t, "idle GPU", virtualPage(t, true, []gpu.Use{{}}), device)
	// If a pod's UID is unknown, its share is unknown. Its series have no value. GPU 1 has no samples.
	lines := slices.DeleteFunc(virtualPage(t, true, append(replicas(0, 1), replicas(1)...), procs...),
		func(line string) bool { return !strings.Contains(line, "pod=a") && !strings.Contains(line, "{1 ") })
	const a = "{0 container=main namespace=ns pod=a vgpu=0} "
	is(t, "pod with an unknown share", lines, []string{"FB" + a, "UTIL_RATIO" + a, "UTIL" + a})
}
