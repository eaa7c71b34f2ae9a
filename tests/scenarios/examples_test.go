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
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

const document = "../../docs/simulator.md"

// A check is a query, and its results before, during and after a fault; see testdata/examples.yaml.
type check [4]string

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
			for _, x := range data.Vector(t, c[0], time.Unix(0, 0).Add(after[i])) {
				var values []string
				x.Metric.Range(func(l labels.Label) { values = append(values, l.Value) })
				series = append(series, strings.TrimSpace(fmt.Sprint(strings.Join(values, "/"), " ", x.F)))
			}
			slices.Sort(series)
			got[i] = strings.Join(series, ", ")
		}
		if diff := cmp.Diff(c[1:], got); diff != "" {
			t.Errorf("%s before, within, after (-want +got):\n%s", c[0], diff)
		}
	}
}

var exampleForm = regexp.MustCompile("(?ms)^### ([^\n]+)\n\n`([a-z0-9-]+)`.*?^```yaml\nfaults:(.*?)^```$")

// TestExamples plays each example of docs/simulator.md, and runs its checks on pages before, during and after the
// fault. Each example must have checks, and all checks must have an example.
func TestExamples(t *testing.T) {
	text := folder.Read(t, document)
	var shown map[string][]check
	if err := yaml.Unmarshal([]byte(folder.Read(t, "testdata/examples.yaml")), &shown); err != nil {
		t.Fatal(err)
	}
	unseen := maps.Clone(shown)
	for _, m := range exampleForm.FindAllStringSubmatch(text, -1) {
		title, node, faults := m[1], m[2], m[3]
		t.Run(title, func(t *testing.T) {
			checks := unseen[title]
			if checks == nil {
				t.Fatal("documented example has no check in testdata/examples.yaml")
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
	const missing = `sum by (reason) (dcgm_exporter_field_unavailable{field=~"DCGM_FI_DEV_FB_(FREE|USED|RESERVED)"})`
	var checks []check
	for query, result := range map[string]string{
		`count({__name__=~"DCGM_FI_DEV_FB_(FREE|USED|RESERVED)"})`: "", missing: "not_supported 3",
		`count(DCGM_FI_DEV_GPU_UTIL{pod="finetune-0"})`: "1", `count(DCGM_FI_DEV_POWER_USAGE{gpu="0"})`: "1",
	} {
		checks = append(checks, check{query, result, result, result})
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
