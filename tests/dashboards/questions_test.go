package dashboards

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The questions, word for word as docs/attribution.md has them.
const (
	gpuSeconds = `sum by (namespace) (increase(dcgm_pod_gpu_allocated_seconds_total[1d]))`
	energy     = `sum by (namespace) (increase(dcgm_pod_gpu_energy_joules_total[1d]))`
	memory     = `sum by (namespace) (avg_over_time(dcgm_pod_gpu_memory_used_bytes[1d]))`
	idle       = `max by (namespace, pod) (max_over_time(dcgm_pod_gpu_utilization_ratio[1h])) < 0.05`
	onXID      = `dcgm_pod_gpu_info * on (UUID) group_left (xid) max by (UUID, xid) (DCGM_EXP_XID_ERRORS_COUNT{xid!=""})`
	full       = `sum by (UUID, GPU_I_ID) (dcgm_pod_gpu_utilization_ratio) and on (UUID, GPU_I_ID) dcgm_pod_gpu_info{sharing=~"time-slicing|mps|dra"}`
	unowned    = `dcgm_gpu_unattributed_utilization_ratio and on (UUID, GPU_I_ID) dcgm_pod_gpu_info{sharing=~"time-slicing|mps|dra"}`
)

func TestTheDocumentHasTheQuestions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "attribution.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{gpuSeconds, energy, memory, idle, onXID, full, unowned} {
		if !strings.Contains(string(text), "\n"+q+"\n") {
			t.Errorf("docs/attribution.md has no line\n%s", q)
		}
	}
}

// withXIDs is the default counters file with the XIDs of a window.
func withXIDs(t *testing.T) []byte {
	return append(shipped(t, "default"), "\nDCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs of the last minutes.\n"...)
}

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

func TestQuestions(t *testing.T) {
	d := play(t, 25*time.Hour, machine{node: "shared", file: withXIDs(t), scenario: `faults: [{fault: xid, at: 20h, devices: ["2", "3"], xids: [31]}]`})
	at := func(query string, by ...string) map[string]float64 { return d.query(t, query, d.end, by...) }

	// GPU seconds: a replica, a claim and an instance count by their part.
	const second, half, instance = 86400., 0.5, 3. / 7
	near(t, "GPU seconds of a day", map[string]float64{
		"notebooks": second * (2./4 + 2*instance*half),
		"analytics": second * (1./4 + half),
		"media":     second * 2. / 8,
		"research":  second * (half + 1),
		"serving":   second * instance * half,
	}, at(gpuSeconds, "namespace"), 1e-6)

	// Energy: what the namespaces used and what is unattributed is what the GPUs used, but for the
	// edges of the day, which Prometheus extrapolates by each series' growth. Whose the active energy
	// of a time-sliced instance is, is not known: that is in neither.
	pods := at(energy, "namespace")
	sums := at(`sum by (gpu) (increase(dcgm_pod_gpu_energy_joules_total[1d]))`, "gpu")
	for key, v := range at(`sum by (gpu) (increase(dcgm_gpu_unattributed_energy_joules_total[1d]))`, "gpu") {
		sums[key] += v
	}
	for key, device := range at(`sum by (gpu) (increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[1d])) / 1000`, "gpu") {
		if key == "3" {
			if sums[key] > device || sums[key] <= 0 {
				t.Errorf("GPU 3: pods and the rest used %v J, the GPU %v J", sums[key], device)
			}
			continue
		}
		near(t, "energy of a day of GPU "+key, map[string]float64{"": device}, map[string]float64{"": sums[key]}, 1e-4)
	}
	for _, namespace := range []string{"analytics", "media", "research", "serving", "notebooks"} {
		if pods[namespace] <= 0 {
			t.Errorf("%s used %v J in a day", namespace, pods[namespace])
		}
	}

	// Memory, likewise: instances count, the GPU that is cut into them does not.
	used := at(`sum(avg_over_time(dcgm_gpu_unattributed_memory_used_bytes[1d]))`)
	near(t, "memory", at(`sum(avg_over_time(DCGM_FI_DEV_FB_USED[1d])) * 1024 * 1024`),
		map[string]float64{"": total(at(memory, "namespace")) + total(used)}, 1e-3)

	// Activity too: accounts are of whole intervals, the device's series of one moment in each.
	active := total(at(`sum(increase(dcgm_pod_gpu_active_seconds_total[1d]))`)) + total(at(`sum(increase(dcgm_gpu_unattributed_active_seconds_total[1d]))`))
	whole := total(at(`sum(sum_over_time(DCGM_FI_DEV_GPU_UTIL[1d])) / 100 * 60`))
	cut := total(at(`sum(sum_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{GPU_I_ID!=""}[1d])) * 60 * 3 / 7`))
	if math.Abs(active-whole-cut) > 2e-2*active {
		t.Errorf("%v GPU seconds were active, of the devices %v and %v", active, whole, cut)
	}

	got := slices.Sorted(maps.Keys(at(idle, "pod")))
	if !slices.Contains(got, "jupyter-b") || slices.Contains(got, "pretrain-0") || slices.Contains(got, "embed-0") {
		t.Errorf("allocated but idle are %q, want jupyter-b among them and none that worked", got)
	}
	if slices.Contains(got, "jupyter-c") {
		t.Error("a pod of which nothing is known is said to be idle")
	}

	// Two minutes after the XID, and an hour after.
	then := d.begin.Add(20*time.Hour + 2*time.Minute)
	want := map[string]float64{"etl-1 31": 1, "probe-0 31": 1, "embed-0 31": 1, "jupyter-c 31": 1, "jupyter-d 31": 1}
	near(t, "pods on the GPUs at the XID", want, d.query(t, onXID, then, "pod", "xid"), 0)
	near(t, "an hour later", map[string]float64{}, d.query(t, onXID, then.Add(time.Hour), "pod", "xid"), 0)

	// How full: on average over the day pods and the rest are the device, whose series is of moments.
	util := at(`avg_over_time(DCGM_FI_DEV_GPU_UTIL{gpu=~"[012]"}[1d]) / 100`, "UUID", "GPU_I_ID")
	both := at(`sum by (UUID, GPU_I_ID) (sum_over_time(dcgm_pod_gpu_utilization_ratio{gpu=~"[012]"}[1d]) / 1440)`, "UUID", "GPU_I_ID")
	for key, v := range at(`sum_over_time(dcgm_gpu_unattributed_utilization_ratio{gpu=~"[012]"}[1d]) / 1440`, "UUID", "GPU_I_ID") {
		both[key] += v
	}
	if len(util) != 3 {
		t.Fatalf("%d shared GPUs", len(util))
	}
	for key, want := range util {
		if math.Abs(both[key]-want) > 0.02 {
			t.Errorf("%s: pods and the rest are busy %v of the day, the GPU %v", key, both[key], want)
		}
	}
	for hour := range 24 {
		then := d.begin.Add(time.Duration(hour)*time.Hour + 10*time.Minute)
		pods, rest := d.query(t, full, then, "UUID", "GPU_I_ID"), d.query(t, unowned, then, "UUID", "GPU_I_ID")
		for key := range util {
			if got := pods[key] + rest[key]; got < 0 || got > 1+1e-9 {
				t.Errorf("hour %d: %s: %v of pods and %v of the rest", hour, key, pods[key], rest[key])
			}
		}
	}
}

// However a GPU is shared, a sum over the node counts each device once.
func TestDeviceSeriesAreThereOnce(t *testing.T) {
	for _, node := range []string{"shared", "demo", "mixed"} {
		d := play(t, 5*time.Minute, machine{node: node, file: shipped(t, "default")})
		count := map[string]float64{}
		for _, s := range d.series {
			if s.Metric.Get("__name__") == "DCGM_FI_DEV_POWER_USAGE" {
				count[s.Metric.Get("UUID")]++
			}
		}
		for uuid, n := range count {
			if n != 1 {
				t.Errorf("%s: %v series of the power of %s", node, n, uuid)
			}
		}
		sum := d.query(t, `sum(DCGM_FI_DEV_POWER_USAGE)`, d.end)
		once := d.query(t, `sum(max by (UUID) (DCGM_FI_DEV_POWER_USAGE))`, d.end)
		near(t, node+": power of the node", once, sum, 1e-12)
		if sum[""] <= 0 || len(count) == 0 {
			t.Errorf("%s: %v W of %d GPUs", node, sum, len(count))
		}
	}
}
