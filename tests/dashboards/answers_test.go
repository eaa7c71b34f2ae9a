package dashboards

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// shipped returns the content of a shipped counters file.
func shipped(t *testing.T, name string) []byte {
	t.Helper()
	return []byte(folder.Read(t, root, "etc", name+"-counters.csv"))
}

// fleet returns four machines that share GPUs in different ways, in all vocabularies, with the faults that panels show.
func fleet(t *testing.T) []machine {
	file := shipped(t, "fleet")
	return []machine{
		{host: "gpu-a", file: file, node: "demo", vocabulary: catalog.Classic, scenario: `faults:
  - {fault: xid, at: 20m, devices: ["1", "3"], xids: [62, 45]}
  - {fault: throttle, at: 10m, devices: ["2"], reasons: [sw_thermal]}
  - {fault: set, at: 10m, devices: ["2"], fields: [DCGM_FI_DEV_GPU_TEMP], value: 88}
  - {fault: absent, reason: permission, at: 0s, devices: ["5"], fields: [DCGM_FI_PROF_DRAM_ACTIVE]}
  - {fault: set, at: 10m, for: 5m, devices: ["5"], fields: [DCGM_FI_DEV_GPU_UTIL], value: 808334905}
  - {fault: gpu-lost, at: 22m, devices: ["0"]}
`},
		{host: "gpu-b", file: file, node: "shared", vocabulary: catalog.Current},
		{host: "gpu-c", file: file, node: "nvswitch", vocabulary: catalog.Both, scenario: `faults:
  - {fault: set, at: 10m, devices: ["1"], fields: [DCGM_FI_DEV_ROW_REMAP_PENDING, DCGM_FI_DEV_RETIRED_PENDING,
     DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION], value: 1}
  - {fault: set, at: 10m, devices: ["1"], fields: [DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, DCGM_FI_DEV_ECC_SBE_VOL_TOTAL],
     value: 40}
  - {fault: set, at: 10m, devices: ["1"], fields: [DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS,
     DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS], value: 3}
  - {fault: set, at: 10m, devices: ["6"], fields: [DCGM_FI_DEV_ROW_REMAP_FAILURE], value: 1}
  - {fault: set, at: 10m, devices: ["4"], fields: [DCGM_FI_DEV_FABRIC_MANAGER_STATUS], value: 4}
  - {fault: set, at: 10m, devices: ["4"], fields: [DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY], value: 2}
  - {fault: set, at: 10m, devices: ["3"], fields: [DCGM_FI_DEV_PCIE_LINK_WIDTH], value: 8}
  - {fault: set, at: 10m, devices: ["3"], fields: [DCGM_FI_DEV_PCIE_REPLAY_COUNTER], value: 600}
  - {fault: set, at: 15m, devices: ["0"], fields: [DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
     DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
     DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL], value: 240, rate: 1}
  - {fault: set, at: 15m, devices: ["0"], fields: [DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
     DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS,
     DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS], value: 3, rate: 1}
  - {fault: set, at: 5m, devices: ["7"], fields: [DCGM_FI_PROF_GR_ENGINE_ACTIVE], value: 0.21}
  - {fault: set, at: 5m, devices: ["7"], fields: [DCGM_FI_DEV_GPU_UTIL], value: 21}
  - {fault: link-down, at: 15m, devices: [nvlink 0/4, nvlink 0/5]}
  - {fault: health, at: 15m, devices: ["0"], watches: [NVLINK], code: DCGM_FR_NVLINK_DOWN}
`},
		{host: "gpu-d", file: file, node: "t4", vocabulary: catalog.Classic, trailer: ofApp, scenario: `faults:
  - {fault: engine-down, at: 20m}
`},
	}
}

// ofApp is appended to the page of gpu-d. It has series that a simulated machine does not produce by itself: faults of
// the exporter, process metrics, and a firing alert.
const ofApp = `dcgm_exporter_config_last_reload_successful 0
dcgm_exporter_attribution_success{attributor="kubernetes"} 0
dcgm_exporter_source_fallback 1
ALERTS{alertname="GPULost",alertstate="firing",severity="critical",hostname="gpu-d",gpu="0"} 1
dcgm_exporter_samples_dropped_total{reason="stale"} 4
dcgm_exporter_duplicate_samples_dropped_total 3
dcgm_exporter_labels_dropped_total 2
process_resident_memory_bytes 5e+07
process_cpu_seconds_total 7
`

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
