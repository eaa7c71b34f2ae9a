package dashboards

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// These queries are in docs/attribution.md, word for word.
const (
	gpuSeconds = `sum by (namespace) (increase(dcgm_pod_gpu_allocated_seconds_total[1d]))`
	energy     = `sum by (namespace) (increase(dcgm_pod_gpu_energy_joules_total[1d]))`
	memory     = `sum by (namespace) (avg_over_time(dcgm_pod_gpu_memory_used_bytes[1d]))`
	idle       = `max by (namespace, pod) (max_over_time(dcgm_pod_gpu_utilization_ratio[1h])) < 0.05`
	onXID      = `dcgm_pod_gpu_info * on (UUID) group_left (xid) ` +
		`topk by (UUID) (1, max by (UUID, xid) (DCGM_EXP_XID_ERRORS_COUNT{xid!=""}))`
	full = `sum by (UUID, GPU_I_ID) (dcgm_pod_gpu_utilization_ratio) ` +
		`and on (UUID, GPU_I_ID) dcgm_pod_gpu_info{sharing=~"time-slicing|mps|dra"}`
	unowned = `dcgm_gpu_unattributed_utilization_ratio ` +
		`and on (UUID, GPU_I_ID) dcgm_pod_gpu_info{sharing=~"time-slicing|mps|dra"}`
)

func near(t *testing.T, what string, want, got map[string]float64, tolerance float64) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(tolerance, 0)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func total(m map[string]float64) (sum float64) {
	for _, v := range m {
		sum += v
	}
	return sum
}

// TestQuestions evaluates the documented queries over four hours instead of a day. The values of pods and the
// unattributed values must add up to those of the devices.
func TestQuestions(t *testing.T) {
	text := folder.Read(t, root, "docs", "attribution.md")
	for _, q := range []string{gpuSeconds, energy, memory, idle, onXID, full, unowned} {
		if !strings.Contains(text, "\n"+q+"\n") {
			t.Errorf("docs/attribution.md: line is missing:\n%s", q)
		}
	}
	file := append(shipped(t, "default"), "\nDCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs of the last minutes.\n"...)
	d := play(t, 5*time.Hour, machine{node: "shared", file: file,
		scenario: `faults: [{fault: xid, at: 3h, devices: ["2", "3"], xids: [31]}]`})
	at := func(query string, by ...string) map[string]float64 {
		return d.query(t, strings.ReplaceAll(query, "[1d]", "[4h]"), d.end, by...)
	}

	// GPU seconds; a replica, a claim and an instance count as their fraction of a GPU
	const second, half, instance = 4 * 3600., 0.5, 3. / 7
	near(t, "GPU seconds", map[string]float64{
		"notebooks": second * (2./4 + 2*instance*half),
		"analytics": second * (1./4 + half),
		"media":     second * 2. / 8,
		"research":  second * (half + 1),
		"serving":   second * instance * half,
	}, at(gpuSeconds, "namespace"), 1e-6)

	// Energy adds up, except at the edges of the range, which Prometheus extrapolates. On GPU 3, the active energy of
	// the time-sliced instance is not attributed to any pod, and is missing from the sum.
	sums := at(`sum by (gpu) (increase(dcgm_pod_gpu_energy_joules_total[1d]))`, "gpu")
	for key, v := range at(`sum by (gpu) (increase(dcgm_gpu_unattributed_energy_joules_total[1d]))`, "gpu") {
		sums[key] += v
	}
	for key, device := range at(`sum by (gpu) (increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[1d])) / 1000`, "gpu") {
		if key == "3" {
			if sums[key] > device || sums[key] <= 0 {
				t.Errorf("GPU 3: sum of pods and unattributed energy = %v J, want 0 to %v J", sums[key], device)
			}
			continue
		}
		near(t, "energy of GPU "+key, map[string]float64{"": device}, map[string]float64{"": sums[key]}, 1e-3)
	}
	pods := at(energy, "namespace")
	for _, namespace := range []string{"analytics", "media", "research", "serving", "notebooks"} {
		if pods[namespace] <= 0 {
			t.Errorf("namespace %s: energy = %v J, want more than 0", namespace, pods[namespace])
		}
	}

	// for a partitioned GPU, the memory of its instances is counted
	rest := at(`sum(avg_over_time(dcgm_gpu_unattributed_memory_used_bytes[1d]))`)
	near(t, "memory", at(`sum(avg_over_time(DCGM_FI_DEV_FB_USED[1d])) * 1024 * 1024`),
		map[string]float64{"": total(at(memory, "namespace")) + total(rest)}, 1e-3)

	// nothing is known about jupyter-c, so it must not count as idle
	got := slices.Sorted(maps.Keys(at(idle, "pod")))
	if !slices.Contains(got, "jupyter-b") || slices.Contains(got, "pretrain-0") || slices.Contains(got, "embed-0") ||
		slices.Contains(got, "jupyter-c") {
		t.Errorf("idle pods = %q, want jupyter-b but not pretrain-0, embed-0 and jupyter-c", got)
	}

	// query two minutes after the XID, and again an hour later
	then := d.begin.Add(3*time.Hour + 2*time.Minute)
	want := map[string]float64{"etl-1 31": 1, "probe-0 31": 1, "embed-0 31": 1, "jupyter-c 31": 1, "jupyter-d 31": 1}
	near(t, "pods on the GPUs at the time of the XID", want, d.query(t, onXID, then, "pod", "xid"), 0)
	near(t, "an hour later", map[string]float64{}, d.query(t, onXID, then.Add(time.Hour), "pod", "xid"), 0)

	// The utilization of pods and the unattributed utilization add up to that of the device. The device's samples are
	// instantaneous, so the averages differ slightly.
	key := []string{"UUID", "GPU_I_ID"}
	util := at(`avg_over_time(DCGM_FI_DEV_GPU_UTIL{gpu=~"[012]"}[1d]) / 100`, key...)
	both := at(`sum by (UUID, GPU_I_ID) (sum_over_time(dcgm_pod_gpu_utilization_ratio{gpu=~"[012]"}[1d]) / 240)`,
		key...)
	for k, v := range at(`sum_over_time(dcgm_gpu_unattributed_utilization_ratio{gpu=~"[012]"}[1d]) / 240`, key...) {
		both[k] += v
	}
	now, none := at(full, key...), at(unowned, key...)
	for k, want := range util {
		if math.Abs(both[k]-want) > 0.03 {
			t.Errorf("%s: sum of the pods' and the unattributed utilization = %v, want %v", k, both[k], want)
		}
		if _, ok := now[k]; !ok || now[k]+none[k] > 1+1e-9 {
			t.Errorf("%s: utilization of pods = %v (found: %t), unattributed = %v; want a sum of at most 1", k, now[k],
				ok, none[k])
		}
	}
	if len(util) != 3 {
		t.Errorf("shared GPUs = %d, want 3", len(util))
	}
}

// TestFirstQueriesAnswer checks that each query in docs/queries.md finds something on nodes with problems.
func TestFirstQueriesAnswer(t *testing.T) {
	queries := promQL.FindAllStringSubmatch(folder.Read(t, root, "docs", "queries.md"), -1)
	if len(queries) != 10 {
		t.Errorf("docs/queries.md: queries = %d, want 10", len(queries))
	}
	w := play(t, 2*time.Hour,
		machine{host: "gpu-1", node: "shared", file: shipped(t, "fleet"), scenario: `faults:
  - {fault: gpu-lost, at: 90m, devices: ["1"]}
  - {fault: xid, at: 80m, devices: ["2"], xids: [48]}
  - {fault: throttle, at: 70m, devices: ["3"], reasons: [hw_thermal]}
`},
		machine{host: "gpu-2", node: "single", file: shipped(t, "default"),
			scenario: `faults: [{fault: engine-down, at: 90m}]`})
	for _, q := range queries {
		if len(w.Vector(t, q[1], w.end)) == 0 {
			t.Errorf("docs/queries.md: no result for %s", q[1])
		}
	}
}
