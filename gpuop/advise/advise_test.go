package advise_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/advise"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/explain"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/telemetry"
)

// Each row that speaks of a way to share rests on a cell of the comparison, which says what is written
// here by hand, in the table's own words or in what disputes it.
func TestRulesAgreeWithTheComparison(t *testing.T) {
	says := map[string]string{
		"vgpu":             "temporal and physical, VMs",
		"one-application":  "concurrency inside one application",
		"bandwidth-bound":  "yes", // memory bandwidth QoS: no other way in Kubernetes has it
		"strangers":        "yes",
		"idle":             "tolerate jitter",
		"bursty":           "tolerate jitter",
		"small-steady":     "several applications at once that can deal with limited resilience",
		"small-steady-old": "tolerate jitter",
		"moderate":         "yes",
	}
	columns := map[advise.Mode]string{advise.Streams: "Streams", advise.MPS: "MPS", advise.TimeSlicing: "Time-slicing", advise.MIG: "MIG", advise.VGPU: "vGPU"}
	rows := explain.Compare()
	for _, r := range advise.Rules() {
		if r.Mode == advise.None {
			if r.Property != "" || r.Way != "" {
				t.Errorf("%s recommends nothing and rests on %s, %s", r.ID, r.Property, r.Way)
			}
			continue
		}
		if r.Way != columns[r.Mode] {
			t.Errorf("%s recommends %s and rests on the column %q", r.ID, r.Mode, r.Way)
		}
		i := slices.IndexFunc(rows, func(row explain.Row) bool { return row.Property == r.Property })
		if i < 0 {
			t.Errorf("%s rests on %q, which is no row of the comparison", r.ID, r.Property)
			continue
		}
		cell := rows[i].Cells[slices.Index(explain.Ways(), r.Way)]
		if says[r.ID] == "" || !strings.Contains(cell, says[r.ID]) {
			t.Errorf("%s rests on a cell that says %q, want %q", r.ID, cell, says[r.ID])
		}
		for _, d := range rows[i].Disputed {
			if d.Way == r.Way && (strings.HasPrefix(cell, "yes")) {
				t.Errorf("%s rests on %s of %s, which %s disputes: %s", r.ID, r.Property, r.Way, d.Source, d.Verdict)
			}
		}
	}
	// That MIG alone gives bandwidth and isolates errors in Kubernetes is what two rules rest on.
	for _, property := range []string{"Memory bandwidth QoS", "Error isolation"} {
		row := rows[slices.IndexFunc(rows, func(r explain.Row) bool { return r.Property == property })]
		for i, way := range explain.Ways() {
			has := strings.HasPrefix(row.Cells[i], "yes")
			for _, d := range row.Disputed {
				has = has && d.Way != way
			}
			if has != (way == "MIG" || way == "vGPU") {
				t.Errorf("%s of %s is %q: the rules say that MIG alone has it", property, way, row.Cells[i])
			}
		}
	}
}

const (
	a30    = "NVIDIA A30"
	h100   = "NVIDIA H100 80GB HBM3"
	gib    = float64(1 << 30)
	memory = 80 * gib
)

// fleet makes a Usage of a week.
type fleet struct{ telemetry.Usage }

func newFleet() *fleet {
	to := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	return &fleet{telemetry.Usage{Source: "test", From: to.Add(-7 * 24 * time.Hour), To: to, Step: 30 * time.Minute, Covered: 1, Families: []string{"dcgm_pod_gpu_info"}}}
}

// stat is one of 10,000 samples.
func stat(mean, p95 float64) telemetry.Stat {
	return telemetry.Stat{Samples: 10000, Mean: mean, P95: p95, Max: p95}
}

// steady is a pod that is active alike for the week, with all that can be known of it.
func steady(namespace, name string, part, bytes float64) telemetry.Pod {
	p := telemetry.Pod{Namespace: namespace, Name: name, Measured: true, Active: stat(part, part), Memory: stat(bytes, bytes), SM: stat(part/2, part/2), Occupancy: stat(part/4, part/4), DRAM: stat(part/4, part/4)}
	for i := range 336 {
		p.Steps = append(p.Steps, telemetry.Point{At: time.Unix(int64(i)*1800, 0), V: part})
	}
	return p
}

// gpu adds a GPU.
func (f *fleet) gpu(node, model string, size float64, pods ...telemetry.Pod) *telemetry.GPU {
	n := 0
	for _, g := range f.GPUs {
		if g.Node == node {
			n++
		}
	}
	f.GPUs = append(f.GPUs, telemetry.GPU{Node: node, Index: fmt.Sprint(n), UUID: fmt.Sprintf("GPU-%s-%d", node, n), Model: model, MemoryBytes: size, Profiled: true, Pods: pods})
	return &f.GPUs[len(f.GPUs)-1]
}

func judge(t *testing.T, f *fleet, o advise.Options) advise.Model {
	t.Helper()
	a := advise.Judge(&f.Usage, o)
	if len(a.Models) != 1 {
		t.Fatalf("%d models", len(a.Models))
	}
	return a.Models[0]
}

// short is a recommendation in a line.
func short(r advise.Recommendation) string {
	return fmt.Sprintf("%s %s %d→%d %v %s", r.Mode, strings.Join(r.Rules, "+"), r.Used, r.Needed, r.Change, r.Confidence)
}

func shorts(m advise.Model) []string {
	var all []string
	for _, r := range m.Recommendations {
		all = append(all, short(r))
	}
	return all
}

func TestJudge(t *testing.T) {
	inUse := func(sharing string, pods ...telemetry.Pod) []telemetry.Pod {
		for i := range pods {
			pods[i].Sharing = sharing
		}
		return pods
	}
	for _, tt := range []struct {
		name   string
		fleet  func(f *fleet)
		o      advise.Options
		want   []string
		freed  int
		expose int
	}{
		{"a week of what is known is of high confidence", func(f *fleet) {
			f.gpu("n1", h100, memory, steady("x", "a-0", 0.1, 2*gib))
			f.gpu("n1", h100, memory, steady("x", "a-1", 0.1, 2*gib))
		}, advise.Options{}, []string{"mps small-steady 2→1 true high"}, 1, 0},
		{"without DRAM activity whether bandwidth binds is not known", func(f *fleet) {
			for i := range 2 {
				p := steady("x", fmt.Sprintf("a-%d", i), 0.1, 2*gib)
				p.DRAM = telemetry.Stat{}
				f.gpu("n1", h100, memory, p)
			}
		}, advise.Options{}, []string{"mps small-steady 2→1 true medium"}, 1, 0},
		{"NVIDIA's exporter names one pod of a shared GPU", func(f *fleet) {
			f.Families = nil
			f.gpu("n1", h100, memory, steady("x", "a-0", 0.1, 2*gib))
			f.gpu("n1", h100, memory, steady("x", "a-1", 0.1, 2*gib))
		}, advise.Options{}, []string{"mps small-steady 2→1 true medium"}, 1, 0},
		{"half of the window lowers it", func(f *fleet) {
			f.Covered = 0.4
			f.gpu("n1", h100, memory, steady("x", "a-0", 0.1, 2*gib))
			f.gpu("n1", h100, memory, steady("x", "a-1", 0.1, 2*gib))
		}, advise.Options{}, []string{"mps small-steady 2→1 true low"}, 1, 0},
		{"one that could share has no second", func(f *fleet) {
			f.gpu("n1", h100, memory, steady("x", "a-0", 0.1, 2*gib))
		}, advise.Options{}, []string{"none small-steady+alone 1→1 false high"}, 0, 0},
		{"no activity, no advice", func(f *fleet) {
			for i := range 2 {
				p := steady("x", fmt.Sprintf("a-%d", i), 0.1, 2*gib)
				p.Active = telemetry.Stat{}
				f.gpu("n1", h100, memory, p)
			}
		}, advise.Options{}, []string{"none unknown 2→2 false low"}, 0, 0},
		{"no memory, no advice", func(f *fleet) {
			for i := range 2 {
				p := steady("x", fmt.Sprintf("a-%d", i), 0.1, 2*gib)
				p.Memory = telemetry.Stat{}
				f.gpu("n1", h100, memory, p)
			}
		}, advise.Options{}, []string{"none unknown 2→2 false low"}, 0, 0},
		{"a vGPU is the hypervisor's", func(f *fleet) {
			for i := range 2 {
				f.gpu("n1", h100, memory, steady("x", fmt.Sprintf("a-%d", i), 0.1, 2*gib)).Virtual = true
			}
		}, advise.Options{}, []string{"vgpu vgpu 2→2 false high"}, 0, 0},
		{"shared as they should be, nothing changes", func(f *fleet) {
			f.gpu("n1", h100, memory, inUse("mps", steady("x", "a-0", 0.1, 2*gib), steady("x", "a-1", 0.1, 2*gib))...)
		}, advise.Options{}, []string{"mps small-steady 1→1 false high"}, 0, 0},
		{"shared with strangers: MIG, though it frees none", func(f *fleet) {
			f.gpu("n1", h100, memory, inUse("time-slicing", steady("x", "a-0", 0.1, 2*gib), steady("y", "b-0", 0.1, 2*gib))...)
		}, advise.Options{}, []string{"mig strangers 1→1 true high"}, 0, 1},
		{"unless they trust each other", func(f *fleet) {
			f.gpu("n1", h100, memory, inUse("mps", steady("x", "a-0", 0.1, 2*gib), steady("y", "b-0", 0.1, 2*gib))...)
		}, advise.Options{Trusted: true}, []string{"mps small-steady 1→1 false high"}, 0, 0},
		{"one after the other on a GPU is not shared", func(f *fleet) {
			early, late := steady("x", "a-0", 0.1, 2*gib), steady("y", "b-0", 0.1, 2*gib)
			early.Steps, late.Steps = early.Steps[:100], late.Steps[100:]
			f.gpu("n1", h100, memory, early, late)
		}, advise.Options{Trusted: true}, []string{"none small-steady+no-gain 1→1 false high"}, 0, 0},
		{"busy and idle side by side: the busy one stays", func(f *fleet) {
			f.gpu("n1", h100, memory, steady("x", "train-0", 0.9, 60*gib))
			for i := range 4 {
				f.gpu("n1", h100, memory, steady("x", fmt.Sprintf("nb-%d", i), 0.01, 8*gib))
			}
		}, advise.Options{}, []string{"none busy 1→1 false high", "time-slicing idle 4→1 true high"}, 3, 0},
		{"only a node", func(f *fleet) {
			f.gpu("n1", h100, memory, steady("x", "train-0", 0.9, 60*gib))
			f.gpu("n2", h100, memory, steady("x", "train-1", 0.9, 60*gib))
		}, advise.Options{Nodes: []string{"n2"}}, []string{"none busy 1→1 false high"}, 0, 0},
		{"only a namespace", func(f *fleet) {
			f.gpu("n1", h100, memory, steady("x", "train-0", 0.9, 60*gib))
			f.gpu("n2", h100, memory, steady("y", "train-1", 0.9, 60*gib))
		}, advise.Options{Namespaces: []string{"y"}}, []string{"none busy 1→1 false high"}, 0, 0},
		{"a model without MIG that is known", func(f *fleet) {
			f.gpu("n1", "NVIDIA RTX 9999", 24*gib, steady("x", "a-0", 0.4, 2*gib))
			f.gpu("n1", "NVIDIA RTX 9999", 24*gib, steady("x", "a-1", 0.4, 2*gib))
		}, advise.Options{}, []string{"none moderate 2→2 false medium"}, 0, 0},
		{"before Volta", func(f *fleet) {
			f.gpu("n1", "Tesla P100-SXM2-16GB", 16*gib, steady("x", "a-0", 0.1, 2*gib))
			f.gpu("n1", "Tesla P100-SXM2-16GB", 16*gib, steady("x", "a-1", 0.1, 2*gib))
		}, advise.Options{}, []string{"time-slicing small-steady-old 2→1 true high"}, 1, 0},
		{"moderate work gets slices", func(f *fleet) {
			f.gpu("n1", h100, memory, steady("x", "a-0", 0.4, 12*gib))
			f.gpu("n1", h100, memory, steady("x", "a-1", 0.4, 12*gib))
			f.gpu("n1", h100, memory, steady("x", "a-2", 0.4, 12*gib))
		}, advise.Options{}, []string{"mig moderate 3→1 true high"}, 2, 0},
		{"a slice that is too small for what would share is none", func(f *fleet) {
			f.gpu("n1", h100, memory, steady("x", "a-0", 0.4, 39*gib))
			f.gpu("n1", h100, memory, steady("x", "a-1", 0.4, 39*gib))
		}, advise.Options{}, []string{"none moderate 2→2 false high"}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet()
			tt.fleet(f)
			m := judge(t, f, tt.o)
			if diff := cmp.Diff(tt.want, shorts(m)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if m.Freed != tt.freed || len(m.Exposed) != tt.expose {
				t.Errorf("%d freed, exposed %q; want %d, %d", m.Freed, m.Exposed, tt.freed, tt.expose)
			}
			for _, r := range m.Recommendations {
				if len(r.Workloads) == 0 || len(r.Reasons) != len(r.Rules) {
					t.Errorf("without evidence or reason: %+v", r)
				}
				if r.Change && (len(r.Risks) == 0 || len(r.NotChosen) < 4) {
					t.Errorf("%s: risks %v, not chosen %v", r.Mode, r.Risks, r.NotChosen)
				}
			}
		})
	}
}

// Geometry is spread over the nodes' GPUs, large slices first; every partition fits its board, every
// GPU of a node is covered, and equal nodes have one config.
func TestPartitionsOverNodes(t *testing.T) {
	f := newFleet()
	for node := range 3 {
		for i := range 2 {
			// 9 GiB of 24: of A30's slices (6, 12, 24 GB) 2g.12gb holds it, two to a GPU
			f.gpu(fmt.Sprintf("n%d", node), a30, 24*gib, steady("x", fmt.Sprintf("svc-%d", 2*node+i), 0.4, 9*gib))
		}
	}
	m := judge(t, f, advise.Options{})
	if len(m.Recommendations) != 1 {
		t.Fatalf("%+v", m.Recommendations)
	}
	r := m.Recommendations[0]
	if diff := cmp.Diff([]string{"2g.12gb=2", "2g.12gb=2", "2g.12gb=2"}, r.Geometry); diff != "" {
		t.Error(diff)
	}
	// three GPUs: both of n0, one of n1; n2 is free
	if len(r.Partitions) != 2 || m.Freed != 3 {
		t.Fatalf("%+v, %d freed", r.Partitions, m.Freed)
	}
	whole, half := r.Partitions[0], r.Partitions[1]
	if diff := cmp.Diff([]string{"n0"}, whole.Nodes); diff != "" || whole.Strategy != mig.StrategySingle || !whole.Named.Entries[0].All {
		t.Errorf("%s%+v", diff, whole)
	}
	if diff := cmp.Diff([]string{"n1"}, half.Nodes); diff != "" || half.Strategy != mig.StrategyMixed {
		t.Errorf("%s%+v", diff, half)
	}
	board, err := mig.FindBoard("A30")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Partitions {
		after, findings := p.Named.Apply([]mig.GPU{board.GPU(""), board.GPU("")})
		if len(findings) > 0 {
			t.Errorf("%s: %v", p.Named.Name, findings)
		}
		if prediction := mig.Predict(after, p.Strategy, mig.Replication{}); len(prediction.Resources) == 0 {
			t.Errorf("%s: no resource under %s", p.Named.Name, p.Strategy)
		}
	}
}

// A GPU that another pod keeps is not partitioned, and nodes without such pods go first.
func TestPartitionsSpareOthers(t *testing.T) {
	f := newFleet()
	f.gpu("n1", h100, memory, steady("x", "train-0", 0.9, 60*gib))
	f.gpu("n1", h100, memory, steady("x", "svc-a", 0.4, 9*gib))
	f.gpu("n1", h100, memory, steady("x", "svc-b", 0.4, 9*gib))
	m := judge(t, f, advise.Options{})
	p := m.Recommendations[0].Partitions
	if len(p) != 1 || fmt.Sprint(p[0].Named.Entries[0].Indices) != "[1]" || fmt.Sprint(p[0].Named.Entries[1].Indices) != "[0 2]" {
		t.Errorf("%+v", p)
	}
	f.gpu("n2", h100, memory)
	m = judge(t, f, advise.Options{})
	if diff := cmp.Diff([]string{"n2"}, m.Recommendations[0].Nodes); diff != "" {
		t.Error(diff)
	}
}

// A config of the device plugin is that of a node: where the node has more GPUs than are needed, that
// is said; and each recommendation gets the nodes on which no other pods are, as far as there are any.
func TestNodesOfRecommendations(t *testing.T) {
	f := newFleet()
	for i := range 4 {
		f.gpu("n1", h100, memory, steady("x", fmt.Sprintf("idle-%c", 'a'+i), 0.01, 8*gib))
		f.gpu("n2", h100, memory, steady("x", fmt.Sprintf("svc-%c", 'a'+i), 0.1, 2*gib))
	}
	m := judge(t, f, advise.Options{})
	var got []string
	for _, r := range m.Recommendations {
		whole := slices.ContainsFunc(r.Risks, func(n advise.Note) bool { return n.ID == "whole-node" })
		same := slices.ContainsFunc(r.Risks, func(n advise.Note) bool { return n.ID == "same-nodes" })
		got = append(got, fmt.Sprint(r.Mode, r.Nodes, whole, same))
	}
	if diff := cmp.Diff([]string{"mps[n2] true false", "time-slicing[n1] true false"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Whatever the load, what is recommended holds it: the memory of any pods that may meet on a GPU, the
// limits of MPS, a slice for each pod.
func TestRecommendationsHold(t *testing.T) {
	board, err := mig.FindBoard("H100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[advise.Mode]int{}
	for pods := 2; pods <= 24; pods += 3 {
		for _, part := range []float64{0.005, 0.1, 0.2, 0.34, 0.45, 0.7} {
			for _, bytes := range []float64{1, 4, 9, 15, 30} {
				for _, namespaces := range []int{1, 3} {
					f := newFleet()
					for i := range pods {
						f.gpu(fmt.Sprintf("n%d", i/8), h100, memory, steady(fmt.Sprintf("ns-%d", i%namespaces), fmt.Sprintf("p%c", 'a'+i), part, bytes*gib))
					}
					m := judge(t, f, advise.Options{})
					name := fmt.Sprintf("%d pods of %v and %v GiB in %d namespaces", pods, part, bytes, namespaces)
					total := 0
					for _, r := range m.Recommendations {
						seen[r.Mode]++
						for _, w := range r.Workloads {
							total += w.Pods
						}
						n := 0
						for _, w := range r.Workloads {
							n += w.Pods
						}
						switch r.Mode {
						case advise.TimeSlicing, advise.MPS:
							if namespaces > 1 {
								t.Errorf("%s: %s mixes namespaces", name, r.Mode)
							}
							if r.Replicas*r.Needed < n || float64(r.Replicas)*bytes > 80 {
								t.Errorf("%s: %s with %d on each of %d GPUs", name, r.Mode, r.Replicas, r.Needed)
							}
							limits := sharing.MPSLimits(mig.GPU{MemoryMiB: 81920}, r.Replicas)
							if r.Mode == advise.MPS && (float64(limits.MemoryMiB) < bytes*1024 || float64(limits.ThreadPercent) < 100*part/2-1 || r.Replicas > sharing.MaxClients) {
								t.Errorf("%s: MPS gives %+v", name, limits)
							}
						case advise.MIG:
							instances := 0
							for _, g := range r.Geometry {
								request, err := mig.ParseRequest([]string{g})
								if err != nil {
									t.Fatal(err)
								}
								if _, err := mig.Fit(board, nil, request); err != nil {
									t.Errorf("%s: %v", name, err)
								}
								for profile, count := range request {
									instances += count
									if p, _ := board.Profile(profile); float64(p.Memory)*10 < bytes {
										t.Errorf("%s: %s is too small", name, profile)
									}
								}
							}
							if instances != n || len(r.Geometry) != r.Needed {
								t.Errorf("%s: %d instances on %d GPUs, needed %d", name, instances, len(r.Geometry), r.Needed)
							}
						}
					}
					if total != pods {
						t.Errorf("%s: %d pods are in a recommendation", name, total)
					}
					if m.Used-m.Needed != m.Freed || m.Freed < 0 {
						t.Errorf("%s: %d used, %d needed, %d freed", name, m.Used, m.Needed, m.Freed)
					}
				}
			}
		}
	}
	for _, mode := range []advise.Mode{advise.None, advise.MPS, advise.TimeSlicing, advise.MIG} {
		if seen[mode] < 20 {
			t.Errorf("%s was recommended %d times: this says little", mode, seen[mode])
		}
	}
}

// Pods of one owner are one workload, whatever controller made them; and as many as there were at a
// time.
func TestWorkloadsAreOwners(t *testing.T) {
	f := newFleet()
	for i, name := range []string{"web-6f7c9d8b5f-bcdfg", "web-6f7c9d8b5f-hjklm", "db-0", "db-11", "job-x2x4v", "jupyter-alice", "a-b"} {
		f.gpu(fmt.Sprintf("n%d", i), h100, memory, steady("x", name, 0.01, gib))
	}
	// a third pod of web after the first two
	late := steady("x", "web-7d9f8c6b5d-nprst", 0.01, gib)
	for i := range f.GPUs {
		if f.GPUs[i].Pods[0].Name == "web-6f7c9d8b5f-bcdfg" {
			f.GPUs[i].Pods[0].Steps = f.GPUs[i].Pods[0].Steps[:100]
		}
	}
	late.Steps = late.Steps[200:]
	f.gpu("n9", h100, memory, late)
	m := judge(t, f, advise.Options{})
	got := map[string]int{}
	for _, r := range m.Recommendations {
		for _, w := range r.Workloads {
			got[w.Name] = w.Pods
		}
	}
	if diff := cmp.Diff(map[string]int{"web": 2, "db": 2, "job": 1, "jupyter-alice": 1, "a-b": 1}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A large fleet takes seconds, not minutes.
func TestManyPods(t *testing.T) {
	f := newFleet()
	for i := range 2000 {
		p := steady(fmt.Sprintf("ns-%d", i%50), fmt.Sprintf("svc-%d", i), 0.1, float64(1+i%30)*gib)
		p.Steps = p.Steps[:20]
		f.gpu(fmt.Sprintf("n%d", i/8), h100, memory, p)
	}
	began := time.Now()
	m := judge(t, f, advise.Options{})
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("%v for %d GPUs", took, m.GPUs)
	}
	if m.Freed == 0 {
		t.Error("nothing freed")
	}
}

// One GPU is no "1 GPUs", in whatever a recommendation says.
func TestOneGPUIsSingular(t *testing.T) {
	f := newFleet()
	f.gpu("gpu-1", "NVIDIA A100-SXM4-80GB", 80<<30, steady("team", "a", 0.07, 3<<30))
	f.gpu("gpu-1", "NVIDIA A100-SXM4-80GB", 80<<30, steady("team", "b", 0.09, 3<<30))
	said := fmt.Sprintf("%+v", judge(t, f, advise.Options{}).Recommendations)
	if !strings.Contains(said, "on 1 GPU in place of 1") || strings.Contains(said, " 1 GPUs") {
		t.Error(said)
	}
}
