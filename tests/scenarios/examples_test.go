package scenarios

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

const document = "../../docs/simulator.md"

// A check is a query, and its results before, during and after a fault. A result lists the series: their label values
// in the order of the label names, joined with slashes, and the value.
type check struct{ query, before, within, after string }

// always returns a check whose result does not change.
func always(query, result string) check { return check{query, result, result, result} }

// Queries that several examples share: the number of GPUs with a temperature, and entities that are down.
const (
	gpus = `count(DCGM_FI_DEV_GPU_TEMP) or vector(0)`
	down = `sum by (gpu, reason) (dcgm_exporter_entity_up == 0)`
	dram = `count(DCGM_FI_PROF_DRAM_ACTIVE) or vector(0)`
	xids = `sum by (gpu, xid) (DCGM_EXP_XID_ERRORS_TOTAL) > 0`
)

// unavailable returns a query of the GPUs for which a field is not served, and the reason. There is no GPU if that
// applies to all.
func unavailable(field string) string {
	return fmt.Sprintf(`sum by (gpu, reason) (dcgm_exporter_field_unavailable{field=%q})`, field)
}

// shown maps each documented example to its checks.
var shown = map[string][]check{
	"Two XIDs within one interval": {
		{`sum by (gpu, xid, pod) (DCGM_EXP_XID_ERRORS_TOTAL) > 0`,
			"", "0/llm-pretrain-0/45 1, 0/llm-pretrain-0/62 2", "0/llm-pretrain-0/45 1, 0/llm-pretrain-0/62 2"},
		{`max(DCGM_FI_DEV_XID_ERRORS{gpu="0"})`, "0", "62", "62"},
	},
	"An XID that only the kernel reports": {{xids, "", "0/31 1, 3/79 1", "0/31 1, 3/79 1"}},
	"Errors of NVLink 5, and of an NVSwitch": {
		{`sum by (gpu, xid, unit, subcode, link, severity) (DCGM_EXP_XID_DETAILS_TOTAL{xid="149"}) > 0`,
			"", "0/8/fatal/4/NETIR_LINK_EVT/149 1", "0/8/fatal/4/NETIR_LINK_EVT/149 1"},
		{`sum by (gpu, xid, unit, action) (DCGM_EXP_XID_DETAILS_TOTAL{xid!="149"}) > 0`,
			"", "gpu_reset/0/154 1", "gpu_reset/0/154 1"},
		{`sum by (nvswitch, sxid, severity, link) (DCGM_EXP_NVSWITCH_SXID_ERRORS_TOTAL) > 0`,
			"", "3/nvswitch1/fatal/20034 1", "3/nvswitch1/fatal/20034 1"},
		{xids, "", "0/149 1, 0/154 1", "0/149 1, 0/154 1"},
		{`count(DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS{xid="149"})`, "", "1", "1"},
	},
	"Throttling": {
		{`max(DCGM_EXP_CLOCK_EVENTS_TOTAL{clock_event="hw_thermal"})`, "0", "1", "1"},
		{`max(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{clock_event="hw_thermal"})`, "0", "30", "60"},
		{`max(DCGM_FI_DEV_SM_CLOCK) <= bool 0.6 * max(max_over_time(DCGM_FI_DEV_SM_CLOCK[2m]))`, "0", "1", "0"},
		{`max(DCGM_FI_DEV_SM_CLOCK) >= bool 0.8 * max(max_over_time(DCGM_FI_DEV_SM_CLOCK[2m]))`, "1", "0", "1"},
	},
	"A health watch finds something": {
		{`sum by (gpu, health_watch, health_error_code, treatment)
			(DCGM_EXP_GPU_HEALTH_STATUS{treatment!="informational"}) > 0`, "",
			"2/DCGM_FR_NVLINK_DOWN/ALL 20, 2/DCGM_FR_NVLINK_DOWN/NVLINK 20, " +
				"2/DCGM_FR_VOLATILE_DBE_DETECTED/MEM/superseded 10", ""},
	},
	"Rows to remap and pages to retire": {
		{`max(DCGM_FI_DEV_ROW_REMAP_PENDING{gpu="1"})`, "0", "1", "0"},
		{`max(DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION{gpu="1"})`, "0", "1", "0"},
		// the simulated H100 has no value for this field; only the fault gives it one
		{`max(DCGM_FI_DEV_RETIRED_PENDING{gpu="1"})`, "", "1", ""},
	},
	"A GPU lost and back": {
		{gpus, "8", "7", "8"}, {`count(DCGM_FI_DEV_GPU_TEMP{gpu="3"})`, "1", "", "1"}, {down, "", "3/lost 0", ""},
	},
	"A GPU unbound and bound": {
		{gpus, "8", "7", "8"}, always(down, ""),
		// counts of XIDs and clock events may be kept after the GPU is gone
		{`count({gpu="3", __name__!~"(DCGM_EXP|dcgm_gpu)_(XID|xid|CLOCK)_.*"} or {peer_gpu="3"}) > bool 0`,
			"1", "", "1"},
	},
	"MIG repartitioned under load": {
		{`count by (GPU_I_PROFILE) (DCGM_FI_DEV_FB_USED{gpu="6", GPU_I_ID!=""})`,
			"1g.10gb 2, 2g.20gb 1, 3g.40gb 1", "3g.40gb 1, 4g.40gb 1", "1g.10gb 2, 2g.20gb 1, 3g.40gb 1"},
		always(gpus, "8"),
	},
	"MIG mode without an instance": {
		always(`count(DCGM_FI_DEV_FB_USED{gpu="0", GPU_I_ID!=""})`, ""), always(gpus, "8"),
		{`count(DCGM_FI_DEV_GPU_UTIL{gpu="0"})`, "1", "", "1"},
	},
	"Another profiler": {
		{unavailable("DCGM_FI_PROF_DRAM_ACTIVE"), "", "unavailable 1", ""}, always(gpus, "8"), {dram, "15", "0", "15"},
	},
	"Profiling that stops advancing": {
		{dram, "15", "0", "15"}, {unavailable("DCGM_FI_PROF_DRAM_ACTIVE"), "", "stale 1", ""},
	},
	"A field that stops advancing": {
		{`count(DCGM_FI_DEV_POWER_USAGE{gpu="5"})`, "1", "", "1"},
		{unavailable("DCGM_FI_DEV_POWER_USAGE"), "", "5/stale 1", ""},
		always(`count(DCGM_FI_DEV_POWER_USAGE{gpu="4"})`, "1"),
	},
	"An implausible value": {
		{`count(DCGM_FI_DEV_GPU_UTIL{gpu="5"})`, "1", "", "1"},
		always(`count({gpu="5"} > 8.08e8 < 8.09e8) or count({gpu="5"} > 8.08e6 < 8.09e6)`, ""),
	},
	"The engine restarts": {
		{gpus, "8", "0", "8"},
		{`sum by (cause) (dcgm_exporter_sessions_total) > 0`, "start 1", "start 1", "lost 1, start 1"},
	},
	"A driver that hangs": {
		{gpus, "8", "0", "8"},
		{`max(dcgm_exporter_collect_failures_total{stage="read", reason="timeout"}) > bool 0`, "", "1", "1"},
	},
	"The fabric fails": {
		{`max(DCGM_FI_DEV_FABRIC_MANAGER_STATUS{gpu="4"})`, "3", "4", "3"},
		{`max(DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE{gpu="4"})`, "0", "26", "0"},
		{`max(DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY{gpu="4"})`, "1", "2", "1"},
		always(`max(DCGM_FI_DEV_FABRIC_MANAGER_STATUS{gpu="3"})`, "3"),
		{`sum by (gpu, condition) (DCGM_EXP_FABRIC_STATE) > 0`, "", "failed/4 1", ""},
	},
	"A tray that disagrees with its rack": {
		{`max by (clique_id) (DCGM_EXP_FABRIC_INFO)`, "32766 1", "12 1", "32766 1"},
		{`sum by (gpu, condition) (DCGM_EXP_FABRIC_STATE) > 0`, "", "route_unhealthy/2 1", ""},
	},
	"The license of a vGPU": {{`max(DCGM_FI_DEV_VGPU_LICENSE_STATUS{gpu="2"})`, "0", "1", "0"}},
	"A link flaps": {
		{`sum by (gpu, nvswitch, nvlink) (DCGM_FI_DEV_NVSWITCH_LINK_STATUS == 0)`, "", "0/4 0, 3/nvswitch1 0", ""},
	},
	"A bad NVLink 4 link": {
		{`max(DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{gpu="3"}) >= bool 300`, "0", "1", "0"},
		{`max(DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL{gpu="3"}) >= bool 1`, "0", "1", "0"},
		always(`count(DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL{gpu="3"})`, ""),
	},
	"A bad NVLink 5 link": {
		{`max(DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS{gpu="3"}) >= bool 1`, "0", "1", "0"},
		{`max(DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS{gpu="3"}) >= bool 300`, "0", "1", "0"},
		{`max(DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER_FLOAT{gpu="3"})`, "1.5e-254", "4e-13", "1.5e-254"},
		always(`count(DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{gpu="3"})`, ""),
	},
	"A rack NVLink that does not recover": {
		{`max(DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS{gpu="2"})`, "0", "1", "0"},
		{`sum by (gpu, nvlink) (DCGM_FI_DEV_NVSWITCH_LINK_STATUS == 0)`, "", "2/7 0", ""},
	},
	"A network card and a CPU": {
		{`max by (connectx) (DCGM_FI_DEV_CONNECTX_HEALTH{connectx=~"0|1"})`, "0 1, 1 1", "0 1, 1 0", "0 1, 1 1"},
		{`count(count by (cpu) (DCGM_FI_DEV_CPU_TEMP_CURRENT))`, "3", "2", "3"},
	},
}

// examine plays faults on a node, and compares the results of the queries before, during and after them.
func examine(t *testing.T, node, faults string, checks []check) {
	t.Helper()
	after := []time.Duration{59 * time.Second, 95 * time.Second, 145 * time.Second}
	data := prom.NewStorage()
	for i, page := range perform(t, node, faults, after...) {
		at := time.Unix(0, 0).Add(after[i])
		for _, samples := range prom.Parse(t, page) {
			for _, s := range samples {
				data.Append(string(s.Series), s.Labels.Copy, at, s.Value)
			}
		}
		data.Stale(at, func(labels.Labels) bool { return true })
	}
	for _, c := range checks {
		got := make([]string, len(after))
		for i := range after {
			var series []string
			for _, x := range data.Vector(t, c.query, time.Unix(0, 0).Add(after[i])) {
				var values []string
				x.Metric.Range(func(l labels.Label) { values = append(values, l.Value) })
				series = append(series, strings.TrimSpace(fmt.Sprint(strings.Join(values, "/"), " ", x.F)))
			}
			slices.Sort(series)
			got[i] = strings.Join(series, ", ")
		}
		if diff := cmp.Diff([]string{c.before, c.within, c.after}, got); diff != "" {
			t.Errorf("%s before, within, after (-want +got):\n%s", c.query, diff)
		}
	}
}

var exampleForm = regexp.MustCompile("(?ms)^### ([^\n]+)\n\n`([a-z0-9-]+)`.*?^```yaml\nfaults:(.*?)^```$")

// TestExamples plays each example of docs/simulator.md, and runs its checks on pages before, during and after the
// fault. Each example must have checks, and all checks must have an example.
func TestExamples(t *testing.T) {
	text := folder.Read(t, document)
	unseen := maps.Clone(shown)
	for _, m := range exampleForm.FindAllStringSubmatch(text, -1) {
		title, node, faults := m[1], m[2], m[3]
		t.Run(title, func(t *testing.T) {
			checks := unseen[title]
			if checks == nil {
				t.Fatal("documented example has no check in the variable shown")
			}
			delete(unseen, title)
			examine(t, node, faults, checks)
		})
	}
	if headings := strings.Count(text, "\n### "); len(unseen) > 0 || headings != len(shown) {
		t.Errorf("documented examples = %d, want %d; checks without an example = %v, want none",
			headings, len(shown), slices.Sorted(maps.Keys(unseen)))
	}
}

// A GPU that shares the machine's memory has no memory values, and the page gives the reason. The utilization and the
// power are served.
func TestUnifiedMemory(t *testing.T) {
	checks := []check{
		always(`count({__name__=~"DCGM_FI_DEV_FB_(FREE|USED|RESERVED)"})`, ""),
		always(`count(DCGM_FI_DEV_GPU_UTIL{pod="finetune-0"})`, "1"),
		always(`count(DCGM_FI_DEV_POWER_USAGE{gpu="0"})`, "1"),
	}
	for _, field := range []string{"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED"} {
		checks = append(checks, always(unavailable(field), "not_supported 1"))
	}
	examine(t, "gb10", "[]", checks)
}

// TestEveryFaultIsDocumented checks that docs/simulator.md has a table row for each fault and names each simulated
// node.
func TestEveryFaultIsDocumented(t *testing.T) {
	text := folder.Read(t, document)
	_, err := sim.ParseScenario([]byte("faults: [{fault: zzzzzzzzzzzzzzzzzzzz}]"), "x")
	_, list, ok := strings.Cut(err.Error(), "expected one of ")
	if !ok {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(list, ", ") {
		if !strings.Contains(text, "\n| `"+name+"` | ") {
			t.Errorf("docs/simulator.md has no row for fault %s", name)
		}
	}
	for _, node := range sim.Nodes() {
		if !strings.Contains(text, "`"+node+"`") {
			t.Errorf("docs/simulator.md does not list node %s", node)
		}
	}
}
