package sim

import (
	"slices"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The embedded data is consistent, as the model requires.
func TestBoardsAndWorkloadsAreConsistent(t *testing.T) {
	parts := builtIn()
	for _, b := range parts.Boards {
		th, p, c, l := b.Temperature, b.Power, b.Clocks, b.NVLink
		for what, ok := range map[string]bool{
			"power": 0 < p.Idle && p.Idle < p.Min &&
				slices.IsSorted([]float64{p.Min, p.Limit, p.Max}),
			"temperatures": th.Ambient < th.Load && th.Load < th.Operating &&
				th.Operating < th.Slowdown && th.Slowdown < th.Shutdown,
			"clocks": c.SMIdle < c.SM && c.MemoryIdle <= c.Memory && c.Video > 0,
			"memory": 0 < b.Reserved && b.Reserved < b.Memory,
			"NVLink": l.Links <= 18 && (l.Links == 0) == (l.Rate == 0) && (l.Links == 0) == (l.Generation == 0),
			"PCIe":   b.PCIe.Width > 0,
			"names":  b.Model != "" && b.Brand != "" && b.VBIOS != "" && (b.Serial == "" || len(b.Serial) > 3),
		} {
			if !ok {
				t.Errorf("board %s: %s", b.Name, what)
			}
		}
		for _, m := range b.MIG {
			if share := b.Memory * int64(m.Size) / memorySlices; m.Size < 1 || m.Memory > share {
				t.Errorf("board %s: profile %s has %d MiB, but its slices have %d", b.Name, m.Name, m.Memory, share)
			}
			for _, start := range m.Starts {
				if start < 0 || start+m.Size > memorySlices {
					t.Errorf("board %s: invalid start %d of profile %s", b.Name, start, m.Name)
				}
			}
		}
	}
	for _, w := range parts.Workloads {
		r := w.ratios
		for what, ok := range map[string]bool{
			"shape":  slices.Contains([]string{"idle", "diurnal", "steady", "burst"}, w.Shape),
			"period": w.Period > 0 == (w.Shape == "steady" || w.Shape == "burst"),
			"levels": 0 <= w.Low && w.Low <= w.High && w.High <= 1 && w.Jitter >= 0,
			"ratios": slices.Max(r[levelOccupancy:levelDRAM]) <= r[levelSM] && r[levelSM] <= 1 && r[levelGraphics] == 1,
			"memory": w.Memory.Base+w.Memory.Active <= 1,
		} {
			if !ok {
				t.Errorf("workload %s: %s", w.Name, what)
			}
		}
	}
}

// The watches of findings exist.
func TestFindingsAreConsistent(t *testing.T) {
	for _, f := range builtIn().Findings {
		ok := slices.ContainsFunc(builtIn().Watches, func(w watch) bool { return w.Name == f.Watch && w.Of == "GPU" })
		if _, known := catalog.ByID(f.Field); !ok || !known || f.Result != 10 && f.Result != 20 {
			t.Errorf("finding %+v: want a watch of GPUs, a known field, and the result 10 or 20", f)
		}
	}
}

// The file of a node has its name, and no device has more pods than it can hold.
func TestNodesAreConsistent(t *testing.T) {
	for _, name := range Nodes() {
		n, err := LoadNode(name)
		if err != nil {
			t.Fatal(err)
		}
		w, err := newWorld(n, 0, 0, &Scenario{})
		if err != nil {
			t.Fatal(err)
		}
		if n.Name != name || n.About == "" {
			t.Errorf("file of node %q has the name %q and the description %q, want its own name and a description",
				name, n.Name, n.About)
		}
		for i := range w.gpus {
			g := w.gpus[i].spec
			shared := g.sharing == gpu.SharingTimeSlicing || g.sharing == gpu.SharingMPS
			isKnown := (g.sharing == gpu.SharingNone) == (g.Sharing == "")
			if p := g.board.Power; g.Limit < p.Min || g.Limit > p.Max || !isKnown || shared != (g.Replicas > 1) {
				t.Errorf("%s: invalid GPU %d: %+v", name, i, g)
			}
			for _, s := range w.gpus[i].slots {
				pods := slices.DeleteFunc(s.pods, func(p *worldPod) bool { return n.Pods[p.index].Host })
				if shared && len(pods) > g.Replicas {
					t.Errorf("%s: pods on GPU %d = %d, want at most %d", name, i, len(pods), g.Replicas)
				}
			}
		}
		for _, p := range n.Pods {
			if p.Pod == "" || p.Host == (p.Namespace != "") || p.Host == (p.Container != "") || p.Job != "" && !p.Host {
				t.Errorf("%s: invalid pod %+v", name, p)
			}
			for i, ref := range p.devices {
				if int(ref.id) >= len(w.gpus) || w.gpus[ref.id].slotOf(ref) == nil {
					t.Errorf("%s: pod %s is on device %s, which does not exist", name, p.Pod, p.Devices[i])
				}
			}
		}
		for _, c := range n.CPUs {
			if c.Cores < 1 || c.Limit <= c.Idle {
				t.Errorf("%s: invalid CPU %+v", name, c)
			}
		}
	}
}
