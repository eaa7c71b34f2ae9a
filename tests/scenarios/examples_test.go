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

// An example of docs/simulator.md.
type example struct{ title, node, faults string }

var exampleForm = regexp.MustCompile("(?ms)^### ([^\n]+)\n\n`([a-z0-9-]+)`.*?^```yaml\n(.*?)^```$")

func examples(t *testing.T) []example {
	t.Helper()
	text, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	var list []example
	for _, m := range exampleForm.FindAllStringSubmatch(string(text), -1) {
		list = append(list, example{m[1], m[2], m[3]})
	}
	if n := strings.Count(string(text), "\n### "); n != len(list) {
		t.Fatalf("%d headings, %d examples: each names its node and has its faults", n, len(list))
	}
	return list
}

// pages are the pages of before, within and after an example.
type pages struct{ before, within, after page }

// one is the value of the series of a family with that label.
func (p page) one(family, label, value string) (float64, bool) {
	v, ok := p.by(family, label)[value]
	return v, ok
}

// passes checks that a series has a value only while the example lasts.
func passes(family, label, value string, usual, then float64) func(*testing.T, pages) {
	return func(t *testing.T, p pages) {
		t.Helper()
		for when, c := range map[string]struct {
			page
			want float64
		}{"before": {p.before, usual}, "within": {p.within, then}, "after": {p.after, usual}} {
			if got, ok := c.one(family, label, value); !ok || got != c.want {
				t.Errorf("%s, %s of %s %s is %v (%t), want %v", when, family, label, value, got, ok, c.want)
			}
		}
	}
}

// all makes one check of several.
func all(checks ...func(*testing.T, pages)) func(*testing.T, pages) {
	return func(t *testing.T, p pages) {
		for _, check := range checks {
			check(t, p)
		}
	}
}

// expect compares what a page says before, within and after.
func expect[T any](t *testing.T, what string, p pages, say func(page) T, before, within, after T) {
	t.Helper()
	for when, c := range map[string]struct {
		page
		want T
	}{"before": {p.before, before}, "within": {p.within, within}, "after": {p.after, after}} {
		if diff := cmp.Diff(c.want, say(c.page)); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s", when, what, diff)
		}
	}
}

// positive returns the counts above zero of a family.
func (p page) positive(family string, names ...string) map[string]float64 {
	out := p.by(family, names...)
	maps.DeleteFunc(out, func(_ string, n float64) bool { return n == 0 })
	return out
}

// unavailable returns the reasons of a field that is not served.
func unavailable(field string) func(page) []string {
	return func(p page) []string {
		var reasons []string
		for key := range p.by("dcgm_exporter_field_unavailable", "field", "gpu", "reason") {
			if rest, of := strings.CutPrefix(key, field+"/"); of {
				reasons = append(reasons, rest)
			}
		}
		slices.Sort(reasons)
		return reasons
	}
}

var (
	eight    = []string{"0", "1", "2", "3", "4", "5", "6", "7"}
	without3 = []string{"0", "1", "2", "4", "5", "6", "7"}
)

// shown says what the page shows of every example.
var shown = map[string]func(*testing.T, pages){
	"Two XIDs within one interval": func(t *testing.T, p pages) {
		xids := func(p page) map[string]float64 { return p.positive("DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "xid", "pod") }
		struck := map[string]float64{"0/62/llm-pretrain-0": 2, "0/45/llm-pretrain-0": 1}
		expect(t, "XIDs", p, xids, map[string]float64{}, struck, struck)
		if last := p.within.by("DCGM_FI_DEV_XID_ERRORS", "gpu")["0"]; last != 62 {
			t.Errorf("the gauge shows %v", last)
		}
	},
	"An XID that the kernel alone reports": func(t *testing.T, p pages) {
		xids := func(p page) map[string]float64 { return p.positive("DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "xid") }
		struck := map[string]float64{"3/79": 1, "0/31": 1}
		expect(t, "XIDs", p, xids, map[string]float64{}, struck, struck)
	},
	"Throttling": func(t *testing.T, p pages) {
		thermal := func(family string) func(page) float64 {
			return func(p page) float64 { v, _ := p.one(family, "clock_event", "hw_thermal"); return v }
		}
		expect(t, "events", p, thermal("DCGM_EXP_CLOCK_EVENTS_TOTAL"), 0, 1, 1)
		seconds := thermal("DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL")
		if before, within, after := seconds(p.before), seconds(p.within), seconds(p.after); before != 0 || within < 20 || within > 30 || after != 60 {
			t.Errorf("held for %v, %v and %v s", before, within, after)
		}
		clock := func(p page) float64 { return p.by("DCGM_FI_DEV_SM_CLOCK", "gpu")["0"] }
		if clock(p.within) > 0.6*clock(p.before) || clock(p.after) < 0.8*clock(p.before) {
			t.Errorf("the clock is at %v, %v and %v MHz", clock(p.before), clock(p.within), clock(p.after))
		}
	},
	"A health watch finds something": func(t *testing.T, p pages) {
		bad := func(p page) map[string]float64 {
			return p.positive("DCGM_EXP_GPU_HEALTH_STATUS", "gpu", "health_watch", "health_error_code")
		}
		none := map[string]float64{}
		expect(t, "findings", p, bad, none, map[string]float64{
			"2/ALL/DCGM_FR_NVLINK_DOWN": 20, "2/NVLINK/DCGM_FR_NVLINK_DOWN": 20, "2/MEM/DCGM_FR_VOLATILE_DBE_DETECTED": 10,
		}, none)
	},
	"Rows to remap and pages to retire": all(
		passes("DCGM_FI_DEV_ROW_REMAP_PENDING", "gpu", "1", 0, 1),
		passes("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "gpu", "1", 0, 1),
		func(t *testing.T, p pages) { // which the board has not, but for the scenario
			expect(t, "pages to retire", p, func(p page) map[string]float64 { return p.by("DCGM_FI_DEV_RETIRED_PENDING", "gpu") },
				map[string]float64{}, map[string]float64{"1": 1}, map[string]float64{})
		},
	),
	"A GPU lost and back": func(t *testing.T, p pages) {
		expect(t, "GPUs", p, page.gpus, eight, without3, eight)
		expect(t, "what is down", p, func(p page) []string { return down(p) }, nil, []string{"3/lost"}, nil)
	},
	"A GPU unbound and bound": func(t *testing.T, p pages) {
		expect(t, "GPUs", p, page.gpus, eight, without3, eight)
		expect(t, "what is down", p, down, nil, nil, nil)
		if strings.Contains(p.within.text, `gpu="3"`) && onlyEvents(p.within, "3") != "" {
			t.Errorf("left of the GPU that is gone: %s", onlyEvents(p.within, "3"))
		}
	},
	"MIG repartitioned under load": func(t *testing.T, p pages) {
		old := []string{"1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"}
		expect(t, "instances of GPU 6", p, func(p page) []string { return instances(p, "6") }, old, []string{"3g.40gb", "4g.40gb"}, old)
		expect(t, "GPUs", p, page.gpus, eight, eight, eight)
	},
	"MIG mode without an instance": func(t *testing.T, p pages) {
		expect(t, "instances of GPU 0", p, func(p page) []string { return instances(p, "0") }, nil, nil, nil)
		expect(t, "GPUs", p, page.gpus, eight, eight, eight)
		busy := func(p page) bool { _, ok := p.one("DCGM_FI_DEV_GPU_UTIL", "gpu", "0"); return ok }
		expect(t, "GPU 0 has a utilization", p, busy, true, false, true)
	},
	"Another profiler": func(t *testing.T, p pages) {
		expect(t, "why there is no profiling", p, unavailable("DCGM_FI_PROF_DRAM_ACTIVE"), nil, []string{"/unavailable"}, nil)
		expect(t, "GPUs", p, page.gpus, eight, eight, eight)
		active := func(p page) int { return len(p.series["DCGM_FI_PROF_DRAM_ACTIVE"]) }
		if n := active(p.before); n == 0 || active(p.within) != 0 || active(p.after) != n {
			t.Errorf("profiled: %d, %d and %d", n, active(p.within), active(p.after))
		}
	},
	"Profiling that stands still": func(t *testing.T, p pages) {
		active := func(p page) bool { return len(p.series["DCGM_FI_PROF_DRAM_ACTIVE"]) > 0 }
		expect(t, "profiling is served", p, active, true, false, true)
		expect(t, "why not", p, unavailable("DCGM_FI_PROF_DRAM_ACTIVE"), nil, []string{"/stale"}, nil)
	},
	"A field that stops advancing": func(t *testing.T, p pages) {
		power := func(p page) bool { _, ok := p.one("DCGM_FI_DEV_POWER_USAGE", "gpu", "5"); return ok }
		expect(t, "GPU 5 has a power", p, power, true, false, true)
		expect(t, "why not", p, unavailable("DCGM_FI_DEV_POWER_USAGE"), nil, []string{"5/stale"}, nil)
		if _, ok := p.within.one("DCGM_FI_DEV_POWER_USAGE", "gpu", "4"); !ok {
			t.Error("the power of another GPU has gone along")
		}
	},
	"An implausible value": func(t *testing.T, p pages) {
		busy := func(p page) bool { _, ok := p.one("DCGM_FI_DEV_GPU_UTIL", "gpu", "5"); return ok }
		expect(t, "GPU 5 has a utilization", p, busy, true, false, true)
		if strings.Contains(p.within.text, "808334905") || strings.Contains(p.within.text, "8.08334905e+08") {
			t.Error("it is on the page")
		}
	},
	"The engine restarts": func(t *testing.T, p pages) {
		expect(t, "GPUs", p, page.gpus, eight, nil, eight)
		expect(t, "sessions", p, sessions, map[string]float64{"start": 1}, map[string]float64{"start": 1}, map[string]float64{"start": 1, "lost": 1})
	},
	"A driver that hangs": func(t *testing.T, p pages) {
		expect(t, "GPUs", p, page.gpus, eight, nil, eight)
		if n := p.within.by("dcgm_exporter_collect_failures_total", "stage", "reason")["read/timeout"]; n == 0 {
			t.Error("the page does not show it")
		}
	},
	"The fabric fails": all(
		passes("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "gpu", "4", 3, 4),
		passes("DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE", "gpu", "4", 0, 26),
		passes("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", "gpu", "4", 1, 2),
		passes("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "gpu", "3", 3, 3),
	),
	"The license of a vGPU": passes("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "gpu", "2", 0, 1),
	"A link flaps": func(t *testing.T, p pages) {
		off := func(p page) []string {
			var list []string
			for key, state := range p.by("DCGM_FI_DEV_NVSWITCH_LINK_STATUS", "nvlink", "nvswitch", "gpu") {
				if state == 0 {
					list = append(list, key)
				}
			}
			slices.Sort(list)
			return list
		}
		expect(t, "links that are down", p, off, nil, []string{"3/nvswitch1/", "4//0"}, nil)
	},
	"A network card and a CPU": all(
		passes("DCGM_FI_DEV_CONNECTX_HEALTH", "connectx", "1", 1, 0),
		passes("DCGM_FI_DEV_CONNECTX_HEALTH", "connectx", "0", 1, 1),
		func(t *testing.T, p pages) {
			warm := func(p page) int { return len(p.by("DCGM_FI_DEV_CPU_TEMP_CURRENT", "cpu")) }
			expect(t, "temperatures of CPUs", p, warm, 3, 2, 3)
		},
	),
}

func down(p page) []string {
	var list []string
	for key, up := range p.by("dcgm_exporter_entity_up", "gpu", "GPU_I_ID", "reason") {
		if up == 0 {
			list = append(list, strings.Replace(key, "//", "/", 1))
		}
	}
	slices.Sort(list)
	return list
}

func sessions(p page) map[string]float64 { return p.positive("dcgm_exporter_sessions_total", "cause") }

// instances returns the profiles of the GPU instances of a GPU that have memory.
func instances(p page, gpu string) []string {
	var list []string
	for _, s := range p.series["DCGM_FI_DEV_FB_USED"] {
		if s.labels.Get("gpu") == gpu && s.labels.Has("GPU_I_ID") {
			list = append(list, s.labels.Get("GPU_I_PROFILE"))
		}
	}
	slices.Sort(list)
	return list
}

// onlyEvents returns a series of a GPU that is no count of events, "" if none is. What was counted
// of a GPU that is gone may stay.
func onlyEvents(p page, gpu string) string {
	for name, list := range p.series {
		if strings.HasPrefix(name, "DCGM_EXP_XID_") || strings.HasPrefix(name, "DCGM_EXP_CLOCK_") {
			continue
		}
		for _, s := range list {
			if s.labels.Get("gpu") == gpu || s.labels.Get("peer_gpu") == gpu {
				return s.labels.String()
			}
		}
	}
	return ""
}

// Every example of the documentation shows on the page what it says, within an interval, and leaves
// nothing behind.
func TestExamples(t *testing.T) {
	left := maps.Clone(shown)
	for _, x := range examples(t) {
		t.Run(x.title, func(t *testing.T) {
			check := left[x.title]
			if check == nil {
				t.Fatal("nothing says what the page shows of it")
			}
			delete(left, x.title)
			perform(t, x.node, x.faults, func(s *stage) {
				p := pages{before: s.at(59 * time.Second)}
				at := 95 * time.Second
				if strings.Contains(x.faults, "200ms") {
					at = 75 * time.Second // in the first cycle behind it
				}
				p.within = s.at(at)
				p.after = s.at(145 * time.Second)
				check(s.t, p)
			})
		})
	}
	if len(left) > 0 {
		t.Errorf("without an example: %v", slices.Sorted(maps.Keys(left)))
	}
}

// The table of faults lists each that the simulator knows.
func TestEveryFaultIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	_, err = sim.ParseScenario(strings.NewReader("faults: [{fault: zzzzzzzzzzzzzzzzzzzz}]"), "x")
	if err == nil {
		t.Fatal("a fault of that name")
	}
	_, list, _ := strings.Cut(err.Error(), "expected one of ")
	names := strings.Split(list, ", ")
	if len(names) < 11 {
		t.Fatalf("faults %v", names)
	}
	for _, name := range names {
		if !regexp.MustCompile("(?m)^\\| .*`" + name + "`.* \\|.*\\|").Match(text) {
			t.Errorf("no row for %s", name)
		}
	}
	for _, node := range sim.Nodes() {
		if !strings.Contains(string(text), "`"+node+"`") {
			t.Errorf("node %s is not named", node)
		}
	}
}
