package dashboards

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// shipped returns the content of a shipped counters file.
func shipped(t *testing.T, name string) []byte {
	t.Helper()
	return []byte(folder.Read(t, root, "etc", name+"-counters.csv"))
}

// fleet returns four machines that share GPUs in different ways, in all vocabularies, with the faults that panels show.
// The trailer of gpu-d has series that a simulated machine does not produce by itself: faults of the exporter, process
// metrics, and a firing alert.
func fleet(t *testing.T) []machine {
	file := shipped(t, "fleet")
	data := func(name string) string { return folder.Read(t, "testdata", name) }
	return []machine{
		{host: "gpu-a", file: file, node: "demo", vocabulary: catalog.Classic, scenario: data("gpu-a.yaml")},
		{host: "gpu-b", file: file, node: "shared", vocabulary: catalog.Current},
		{host: "gpu-c", file: file, node: "nvswitch", vocabulary: catalog.Both, scenario: data("gpu-c.yaml")},
		{host: "gpu-d", file: file, node: "t4", vocabulary: catalog.Classic, scenario: data("gpu-d.yaml"),
			trailer: data("gpu-d.prom")},
	}
}

var legendLabel = regexp.MustCompile(`{{ *([A-Za-z_]+) *}}`)

// TestEveryQueryAnswers runs the queries of all panels. Each must return a result that has the labels in the legend. If
// a node is selected, the result must have no series of another node.
func TestEveryQueryAnswers(t *testing.T) {
	w := play(t, 30*time.Minute, fleet(t)...)
	ups := w.Series["gpu-d"+"up"].Floats
	for i := len(ups) - 10; i < len(ups); i++ {
		ups[i].F = 0 // the last ten scrapes failed
	}
	onOne := 0
	for file, d := range dashboards(t) {
		for _, p := range d.everyPanel() {
			for _, q := range p.Targets {
				// remove the default value, which hides missing data
				expr := strings.TrimSuffix(q.Expr, " or vector(0)")
				got := w.over(t, filled(expr, ".*"), 3*time.Minute)
				if len(got) == 0 {
					t.Errorf("%s: panel %q, query %s: no result for\n%s", file, p.Title, q.RefID, expr)
				}
				names := map[string]bool{}
				for _, x := range got {
					x.Metric.Range(func(l labels.Label) { names[l.Name] = true })
				}
				for _, m := range legendLabel.FindAllStringSubmatch(q.LegendFormat, -1) {
					if !names[m[1]] {
						t.Errorf("%s: panel %q, query %s: legend %q uses the label %s; the series have %q",
							file, p.Title, q.RefID, q.LegendFormat, m[1], slices.Sorted(maps.Keys(names)))
					}
				}
			}
		}
		for _, q := range d.queries() {
			for _, x := range w.over(t, filled(strings.TrimSuffix(q.Expr, " or vector(0)"), "gpu-b"), 10*time.Minute) {
				if instance := x.Metric.Get("instance"); instance != "" {
					onOne++
					if instance != "gpu-b" {
						t.Errorf("%s: %s: got %s, want only series of gpu-b", file, q.where, x.Metric)
					}
				}
			}
		}
	}
	if onOne < 100 {
		t.Errorf("series of gpu-b = %d, want at least 100", onOne)
	}
}

// TestNodeDashboardCounts checks that the node dashboard counts a GPU with MIG instances as one GPU. Its table "Who
// uses what" must have a row for each pod that shares a GPU, and a row for a GPU without a pod.
func TestNodeDashboardCounts(t *testing.T) {
	w := play(t, 5*time.Minute,
		machine{host: "gpu-b", node: "shared", vocabulary: catalog.Current, file: shipped(t, "fleet")})
	up := filled(find(t, "node", "GPUs up", "stat").Targets[0].Expr, "gpu-b")
	if got := w.query(t, up, w.end); got[""] != 6 {
		t.Errorf("GPUs up = %v, want 6", got)
	}
	users := w.query(t, filled(find(t, "node", "Who uses what", "table").Targets[0].Expr, "gpu-b"), w.end, "gpu",
		"GPU_I_ID", "namespace", "pod")
	for _, want := range []string{"0  notebooks jupyter-a", "0  notebooks jupyter-b", "0  analytics etl-0",
		"3 1 serving embed-0", "5   "} {
		if _, ok := users[want]; !ok {
			t.Errorf("Who uses what: row %q is missing; got %q", want, slices.Sorted(maps.Keys(users)))
		}
	}
}

// find returns the panel of a dashboard with the given title and type.
func find(t *testing.T, file, title, kind string) panel {
	t.Helper()
	for _, p := range dashboards(t)[file+".json"].everyPanel() {
		if p.Title == title && p.Type == kind {
			return p
		}
	}
	t.Fatalf("%s: no %s panel %q", file, kind, title)
	return panel{}
}

// TestBoardsWithOneMemory simulates nodes whose GPU uses the machine's memory, and an H100 for comparison. No panel may
// show an impossible value, and the fleet dashboard must count one GPU.
func TestBoardsWithOneMemory(t *testing.T) {
	for _, node := range []string{"single", "gb10", "thor", "orin"} {
		w := play(t, 20*time.Minute, machine{host: node, node: node, file: shipped(t, "health"), scenario: `faults:
  - {fault: throttle, at: 5m, devices: ["0"], reasons: [sw_thermal]}
`})
		for file, d := range dashboards(t) {
			for _, p := range d.everyPanel() {
				w.possible(t, file, node, p)
			}
		}
		gpus := filled(find(t, "fleet", "By node", "table").Targets[0].Expr, node)
		if got := w.query(t, gpus, w.end); got[""] != 1 {
			t.Errorf("%s: GPUs = %v, want 1: %s", node, got, gpus)
		}
	}
}

// possible checks the values that a panel shows for a node. None may be infinite or not a number, negative unless it is
// drawn below the axis, or above 100 %.
func (w *world) possible(t *testing.T, file, node string, p panel) {
	t.Helper()
	most, bounded := map[string]float64{"percentunit": 1, "percent": 100}[p.FieldConfig.Defaults.Unit]
	for _, q := range p.Targets {
		below := strings.Contains(q.Expr, "(-max by") // sent traffic is drawn below the axis
		for _, x := range w.over(t, filled(q.Expr, node), time.Minute) {
			for _, f := range x.Floats {
				if v := f.F; math.IsNaN(v) || math.IsInf(v, 0) || v < 0 && !below || bounded && v > most {
					t.Errorf("%s: panel %q shows the impossible value %v for %s on node %s", file, p.Title, v, x.Metric,
						node)
				}
			}
		}
	}
}

// busyDevices returns a world in which the owner's devices have the given utilizations for an hour.
func busyDevices(owner labels.Labels, utilization ...float64) *world {
	w := &world{Storage: prom.NewStorage(), begin: time.Unix(1_000_000_000, 0)}
	w.end = w.begin.Add(time.Hour)
	for at := w.begin; !at.After(w.end); at = at.Add(scrapeInterval) {
		for i, v := range utilization {
			instance := fmt.Sprint("n", i/8+1)
			add := func(name string, v float64, more ...string) {
				metric := func() labels.Labels {
					b := labels.NewBuilder(labels.FromStrings(more...))
					return b.Set("__name__", name).Set("job", "gpu").Set("instance", instance).Labels()
				}
				w.Append(fmt.Sprint(instance, name, more), metric, at, v)
			}
			device := []string{"gpu", strconv.Itoa(i % 8), "UUID", fmt.Sprint("GPU-", i)}
			owner.Range(func(l labels.Label) { device = append(device, l.Name, l.Value) })
			add("dcgm_pod_gpu_utilization_ratio", v, device...)
			add("dcgm_exporter_build_info", 1)
			add("DCGM_FI_DEV_GPU_TEMP", 50, "hostname", instance, "gpu", strconv.Itoa(i%8))
		}
	}
	return w
}

// TestStragglersAreThoseOfTheAlert checks that the dashboards list the same GPUs for which GPUStraggler fires.
func TestStragglersAreThoseOfTheAlert(t *testing.T) {
	pod := labels.FromStrings("namespace", "ns", "pod", "train-0", "container", "main")
	job := labels.FromStrings("hpc_job", "4711")
	for _, tt := range []struct {
		name        string
		owner       labels.Labels
		utilization []float64
		want        []string // instance and GPU
	}{
		{"far below the median", pod, []float64{0.5, 0.9, 0.9, 0.9}, []string{"n1 0"}},
		{"close to the median", pod, []float64{0.55, 0.9, 0.9, 0.9}, nil},
		{"three GPUs", pod, []float64{0.1, 0.9, 0.9}, nil},
		{"a mostly idle job", pod, []float64{0.05, 0.2, 0.2, 0.2}, nil},
		{"a job on two nodes", job, []float64{0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.2}, []string{"n2 1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := busyDevices(tt.owner, tt.utilization...)
			queries := map[string]string{
				"fleet.json":    filled(find(t, "fleet", "Stragglers", "table").Targets[0].Expr, ".*"),
				"workload.json": filled(find(t, "workload", "Stragglers", "table").Targets[0].Expr, ".*"),
			}
			for where, query := range w.questions(t) {
				if strings.HasSuffix(where, " GPUStraggler") {
					queries["the alert"] = query
				}
			}
			if len(queries) != 3 {
				t.Fatal("deployment/rules has no alert GPUStraggler")
			}
			for where, query := range queries {
				got := slices.Sorted(maps.Keys(w.query(t, query, w.end, "instance", "gpu")))
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("stragglers of %s (-want +got):\n%s", where, diff)
				}
			}
		})
	}
}
