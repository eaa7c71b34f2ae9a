package scenarios

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// document returns the content of docs/simulator.md.
func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// An example holds the pages before, during and after a fault.
type example struct{ before, within, after page }

// A check checks the pages of an example.
type check func(*testing.T, example)

// is makes a check. On the pages before, during and after the fault, the function say must return the given values.
func is[T any](say func(page) T, before, within, after T) check {
	return func(t *testing.T, p example) {
		t.Helper()
		want := [3]T{before, within, after}
		if diff := cmp.Diff(want, [3]T{say(p.before), say(p.within), say(p.after)}); diff != "" {
			t.Errorf("before, within, after (-want +got):\n%s", diff)
		}
	}
}

// passes makes a check. The function say must return true before and after the fault, and false during it.
func passes(say func(page) bool) check { return is(say, true, false, true) }

// counts makes a check. The function say must return no values before the fault, and those of then during and after it.
func counts(say func(page) map[string]float64, then map[string]float64) check {
	return is(say, none, then, then)
}

// value returns the value of the series of a family with the given label, or -1 if there is none.
func value(family, label, value string) func(page) float64 {
	return func(p page) float64 {
		if v, ok := p.by(family, label)[value]; ok {
			return v
		}
		return -1
	}
}

// grown reports whether the counter of a GPU has reached a value.
func grown(family, gpu string, least float64) func(page) bool {
	return func(p page) bool { return value(family, "gpu", gpu)(p) >= least }
}

// has reports whether a family has a series with the given label.
func has(family, label, of string) func(page) bool {
	return func(p page) bool { return value(family, label, of)(p) >= 0 }
}

// profiled reports whether the page has profiling fields.
func profiled(p page) bool { return len(p.series[dram]) > 0 }

// positive returns the non-zero values of a family.
func positive(family string, names ...string) func(page) map[string]float64 {
	return func(p page) map[string]float64 {
		out := p.by(family, names...)
		maps.DeleteFunc(out, func(_ string, n float64) bool { return n == 0 })
		return out
	}
}

// zero returns the label values of all series of a family whose value is 0.
func zero(family string, names ...string) func(page) []string {
	return func(p page) []string {
		out := p.by(family, names...)
		maps.DeleteFunc(out, func(_ string, n float64) bool { return n != 0 })
		return slices.Sorted(maps.Keys(out))
	}
}

// unavailable returns "GPU/reason" for each GPU for which a field is not served. GPU is empty if that applies to all.
func unavailable(field string) func(page) []string {
	return func(p page) []string {
		var reasons []string
		for key := range p.by("dcgm_exporter_field_unavailable", "field", "gpu", "reason") {
			if rest, of := strings.CutPrefix(key, field+"/"); of {
				reasons = append(reasons, rest)
			}
		}
		return reasons
	}
}

// instances returns the profiles of a GPU's instances, according to their memory series.
func instances(gpu string) func(page) []string {
	return func(p page) []string {
		var list []string
		for _, s := range p.series["DCGM_FI_DEV_FB_USED"] {
			if s.labels.Get("gpu") == gpu && s.labels.Has("GPU_I_ID") {
				list = append(list, s.labels.Get("GPU_I_PROFILE"))
			}
		}
		slices.Sort(list)
		return list
	}
}

// left returns the families with series of a GPU. Counts of XIDs and clock events are left out, because they may be
// kept after the GPU is gone.
func left(gpu string) func(page) []string {
	return func(p page) []string {
		families := map[string]bool{}
		for name, list := range p.series {
			for _, s := range list {
				if s.labels.Get("gpu") == gpu || s.labels.Get("peer_gpu") == gpu {
					families[name] = true
				}
			}
		}
		maps.DeleteFunc(families, func(name string, _ bool) bool {
			return strings.HasPrefix(name, "DCGM_EXP_XID_") || strings.HasPrefix(name, "dcgm_gpu_xid_") ||
				strings.HasPrefix(name, "DCGM_EXP_CLOCK_")
		})
		return slices.Sorted(maps.Keys(families))
	}
}

var (
	eight    = []string{"0", "1", "2", "3", "4", "5", "6", "7"}
	without3 = []string{"0", "1", "2", "4", "5", "6", "7"}
	halves   = []string{"1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"}
	none     = map[string]float64{}
	down     = zero("dcgm_exporter_entity_up", "gpu", "reason")
)

const (
	dram  = "DCGM_FI_PROF_DRAM_ACTIVE"
	power = "DCGM_FI_DEV_POWER_USAGE"
)

// shown maps each documented example to its checks.
var shown = map[string][]check{
	"Two XIDs within one interval": {
		counts(
			positive("DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "xid", "pod"),
			map[string]float64{"0/62/llm-pretrain-0": 2, "0/45/llm-pretrain-0": 1},
		),
		func(t *testing.T, p example) {
			if last := value("DCGM_FI_DEV_XID_ERRORS", "gpu", "0")(p.within); last != 62 {
				t.Errorf("DCGM_FI_DEV_XID_ERRORS = %v, want 62", last)
			}
		},
	},
	"An XID that only the kernel reports": {
		counts(positive("DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "xid"), map[string]float64{"3/79": 1, "0/31": 1}),
	},
	"Errors of NVLink 5, and of an NVSwitch": {
		counts(positive("DCGM_EXP_XID_DETAILS_TOTAL", "gpu", "xid", "unit", "subcode", "link", "severity", "action"),
			map[string]float64{"0/149/NETIR_LINK_EVT/4/8/fatal/": 1, "0/154/////gpu_reset": 1}),
		counts(positive("DCGM_EXP_NVSWITCH_SXID_ERRORS_TOTAL", "nvswitch", "sxid", "severity", "link"),
			map[string]float64{"nvswitch1/20034/fatal/3": 1}),
		counts(positive("DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "xid"), map[string]float64{"0/149": 1, "0/154": 1}),
		is(has("DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS", "xid", "149"), false, true, true),
	},
	"Throttling": {
		is(value("DCGM_EXP_CLOCK_EVENTS_TOTAL", "clock_event", "hw_thermal"), 0, 1, 1),
		func(t *testing.T, p example) {
			held := value("DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL", "clock_event", "hw_thermal")
			if held(p.before) != 0 || held(p.within) < 20 || held(p.within) > 30 || held(p.after) != 60 {
				t.Errorf("throttled time before, during and after the fault = %v, %v and %v s, want 0, 20 to 30 and 60",
					held(p.before), held(p.within), held(p.after))
			}
			clock := value("DCGM_FI_DEV_SM_CLOCK", "gpu", "0")
			if clock(p.within) > 0.6*clock(p.before) || clock(p.after) < 0.8*clock(p.before) {
				t.Errorf("clock = %v MHz, during the fault %v, after it %v; want at most 60 %%, then at least 80 %%",
					clock(p.before), clock(p.within), clock(p.after))
			}
		},
	},
	"A health watch finds something": {
		is(findings, none, map[string]float64{
			"2/ALL/DCGM_FR_NVLINK_DOWN/": 20, "2/NVLINK/DCGM_FR_NVLINK_DOWN/": 20,
			"2/MEM/DCGM_FR_VOLATILE_DBE_DETECTED/superseded": 10,
		}, none),
	},
	"Rows to remap and pages to retire": {
		is(value("DCGM_FI_DEV_ROW_REMAP_PENDING", "gpu", "1"), 0, 1, 0),
		is(value("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "gpu", "1"), 0, 1, 0),
		// the simulated H100 has no value for this field; only the fault gives it one
		is(value("DCGM_FI_DEV_RETIRED_PENDING", "gpu", "1"), -1, 1, -1),
	},
	"A GPU lost and back": {is(page.gpus, eight, without3, eight), is(down, nil, []string{"3/lost"}, nil)},
	"A GPU unbound and bound": {
		is(page.gpus, eight, without3, eight), is(down, nil, nil, nil),
		func(t *testing.T, p example) {
			if families := left("3")(p.within); families != nil {
				t.Errorf("families of the unbound GPU = %v, want none", families)
			}
		},
	},
	"MIG repartitioned under load": {
		is(instances("6"), halves, []string{"3g.40gb", "4g.40gb"}, halves), is(page.gpus, eight, eight, eight),
	},
	"MIG mode without an instance": {
		is(instances("0"), nil, nil, nil), is(page.gpus, eight, eight, eight),
		passes(has("DCGM_FI_DEV_GPU_UTIL", "gpu", "0")),
	},
	"Another profiler": {
		is(unavailable(dram), nil, []string{"/unavailable"}, nil), is(page.gpus, eight, eight, eight), passes(profiled),
	},
	"Profiling that stops advancing": {passes(profiled), is(unavailable(dram), nil, []string{"/stale"}, nil)},
	"A field that stops advancing": {
		passes(has(power, "gpu", "5")), is(unavailable(power), nil, []string{"5/stale"}, nil),
		is(has(power, "gpu", "4"), true, true, true),
	},
	"An implausible value": {
		passes(has("DCGM_FI_DEV_GPU_UTIL", "gpu", "5")),
		is(func(p page) bool { return strings.Contains(p.text, "08334905") }, false, false, false),
	},
	"The engine restarts": {
		is(page.gpus, eight, nil, eight),
		is(positive("dcgm_exporter_sessions_total", "cause"),
			map[string]float64{"start": 1}, map[string]float64{"start": 1}, map[string]float64{"start": 1, "lost": 1}),
	},
	"A driver that hangs": {
		is(page.gpus, eight, nil, eight),
		func(t *testing.T, p example) {
			if n := p.within.by("dcgm_exporter_collect_failures_total", "stage", "reason")["read/timeout"]; n == 0 {
				t.Error("failures of stage read with the reason timeout = 0, want at least 1")
			}
		},
	},
	"The fabric fails": {
		is(value("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "gpu", "4"), 3, 4, 3),
		is(value("DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE", "gpu", "4"), 0, 26, 0),
		is(value("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", "gpu", "4"), 1, 2, 1),
		is(value("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "gpu", "3"), 3, 3, 3),
		is(positive("DCGM_EXP_FABRIC_STATE", "gpu", "condition"), none, map[string]float64{"4/failed": 1}, none),
	},
	"A tray that disagrees with its rack": {
		is(value("DCGM_EXP_FABRIC_INFO", "clique_id", "32766"), 1, -1, 1),
		is(value("DCGM_EXP_FABRIC_INFO", "clique_id", "12"), -1, 1, -1),
		is(
			positive("DCGM_EXP_FABRIC_STATE", "gpu", "condition"), none, map[string]float64{"2/route_unhealthy": 1},
			none,
		),
	},
	"The license of a vGPU": {is(value("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "gpu", "2"), 0, 1, 0)},
	"A link flaps": {
		is(
			zero("DCGM_FI_DEV_NVSWITCH_LINK_STATUS", "nvlink", "nvswitch", "gpu"), nil,
			[]string{"3/nvswitch1/", "4//0"}, nil,
		),
	},
	"A bad NVLink 4 link": {
		is(grown("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "3", 300), false, true, false),
		is(grown("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "3", 1), false, true, false),
		is(has("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "gpu", "3"), false, false, false),
	},
	"A bad NVLink 5 link": {
		is(grown("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS", "3", 1), false, true, false),
		is(grown("DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS", "3", 300), false, true, false),
		is(value("DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER_FLOAT", "gpu", "3"), 1.5e-254, 4e-13, 1.5e-254),
		is(has("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "gpu", "3"), false, false, false),
	},
	"A rack NVLink that does not recover": {
		is(value("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", "gpu", "2"), 0, 1, 0),
		is(zero("DCGM_FI_DEV_NVSWITCH_LINK_STATUS", "gpu", "nvlink"), nil, []string{"2/7"}, nil),
	},
	"A network card and a CPU": {
		is(value("DCGM_FI_DEV_CONNECTX_HEALTH", "connectx", "1"), 1, 0, 1),
		is(value("DCGM_FI_DEV_CONNECTX_HEALTH", "connectx", "0"), 1, 1, 1),
		is(func(p page) int { return len(p.by("DCGM_FI_DEV_CPU_TEMP_CURRENT", "cpu")) }, 3, 2, 3),
	},
}

var exampleForm = regexp.MustCompile("(?ms)^### ([^\n]+)\n\n`([a-z0-9-]+)`.*?^```yaml\n(.*?)^```$")

// TestExamples plays each example of docs/simulator.md, and runs its checks on pages before, during and after the
// fault. Each example must have checks, and all checks must have an example.
func TestExamples(t *testing.T) {
	text := document(t)
	unseen := maps.Clone(shown)
	for _, m := range exampleForm.FindAllStringSubmatch(text, -1) {
		title, node, faults := m[1], m[2], m[3]
		t.Run(title, func(t *testing.T) {
			checks := unseen[title]
			if checks == nil {
				t.Fatal("documented example has no check in the variable shown")
			}
			delete(unseen, title)
			perform(t, node, faults, func(s *stage) {
				p := example{before: s.at(59 * time.Second)}
				p.within = s.at(95 * time.Second)
				p.after = s.at(145 * time.Second)
				for _, check := range checks {
					check(s.t, p)
				}
			})
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
	perform(t, "gb10", "faults: []", func(s *stage) {
		p := s.at(35 * time.Second)
		for _, field := range []string{"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED"} {
			diff := cmp.Diff([]string{"/not_supported"}, unavailable(field)(p))
			if diff != "" || len(p.series[field]) > 0 {
				t.Errorf("%s has %d series, want none; reasons (-want +got):\n%s", field, len(p.series[field]), diff)
			}
		}
		busy, powered := has("DCGM_FI_DEV_GPU_UTIL", "pod", "finetune-0")(p), has(power, "gpu", "0")(p)
		if !busy || !powered {
			t.Errorf("GPU has utilization with its pod: %t, power: %t; want both", busy, powered)
		}
	})
}

// TestEveryFaultIsDocumented checks that docs/simulator.md has a table row for each fault and names each simulated
// node.
func TestEveryFaultIsDocumented(t *testing.T) {
	text := document(t)
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

// findings returns the results of health watches that do not pass, except informational ones.
func findings(p page) map[string]float64 {
	found := positive("DCGM_EXP_GPU_HEALTH_STATUS", "gpu", "health_watch", "health_error_code", "treatment")(p)
	maps.DeleteFunc(found, func(key string, _ float64) bool { return strings.HasSuffix(key, "/informational") })
	return found
}
