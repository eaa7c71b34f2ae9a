package rules

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// An example of docs/simulator.md.
type example struct{ title, node, faults string }

var (
	exampleForm = regexp.MustCompile("(?ms)^### ([^\n]+)\n\n`([a-z0-9-]+)`.*?^```yaml\n(.*?)^```$")
	scenarioRow = regexp.MustCompile(`(?m)^\| ([^|\n]+) \| ((?:\[\w+\]\(#\w+\)(?:, )?)+|–) \|$`)
	linked      = regexp.MustCompile(`\[(\w+)\]`)
	beginsAt    = regexp.MustCompile(`\bat: 1m(\d*s?)`)
)

// table returns what docs/runbooks.md says that the scenarios ring.
func table(t *testing.T) map[string][]string {
	t.Helper()
	_, text, _ := strings.Cut(read(t, "docs", "runbooks.md"), "\n| scenario | alerts |\n")
	text, _, _ = strings.Cut(text, "\n\n")
	rings := map[string][]string{}
	for _, m := range scenarioRow.FindAllStringSubmatch(text, -1) {
		rings[m[1]] = []string{}
		for _, name := range linked.FindAllStringSubmatch(m[2], -1) {
			rings[m[1]] = append(rings[m[1]], name[1])
		}
	}
	return rings
}

// A scenario begins when all is quiet, lasts for longer than any alert on it waits, and leaves time
// to see that it ends.
const (
	quiet   = 20 * time.Minute
	lasting = 44 * time.Minute
	watched = quiet + lasting + 16*time.Minute
	step    = 2 * time.Minute
)

func minutes(d time.Duration) string { return fmt.Sprintf("%dm", int(d.Minutes())) }

// lengthened returns a scenario that begins and lasts so, and keeps what is shorter than a minute.
func lengthened(faults string) string {
	faults = beginsAt.ReplaceAllString(faults, "at: "+minutes(quiet)+"$1")
	return strings.ReplaceAll(faults, "for: 1m", "for: "+minutes(lasting))
}

// alertFiles are the rules that a play is evaluated with.
func alertFiles() []string { return []string{"alerts-exporter.yml", "alerts-gpu.yml"} }

// rung asks which alerts rang at any time until then.
func rung(at time.Duration, by string, rings ...string) exprTest {
	e := exprTest{
		Expr:     fmt.Sprintf(`group by (%s) (present_over_time(ALERTS{alertstate="firing"}[%s]))`, by, minutes(at+time.Hour)),
		EvalTime: minutes(at), Samples: []expSample{},
	}
	for _, labels := range rings {
		e.Samples = append(e.Samples, expSample{labels, 1})
	}
	return e
}

// Every scenario of docs/simulator.md rings what docs/runbooks.md says and nothing else.
func TestScenariosRing(t *testing.T) {
	prom.Program(t, "promtool")
	text, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	rings, wanted, file := table(t), families(t), everyLine(t)
	seen := map[string]bool{}
	tests := testFile{RuleFiles: alertFiles(), Evaluation: minutes(step)}
	for _, m := range exampleForm.FindAllStringSubmatch(string(text), -1) {
		x := example{m[1], m[2], m[3]}
		names, ok := rings[x.title]
		if !ok {
			t.Errorf("docs/runbooks.md does not say what %q rings", x.title)
		}
		// What happens to no field is the same in every vocabulary, and both have the classic names too.
		vocabularies := []catalog.Vocabulary{catalog.Classic}
		if strings.Contains(x.faults, "DCGM_FI_") || strings.Contains(x.faults, "fault: xid") {
			vocabularies = []catalog.Vocabulary{catalog.Current, catalog.Both}
		}
		seen[x.title] = true
		for _, v := range vocabularies {
			const scrapes = int(watched / step)
			p := play{node: x.node, model: healthy(t, x.node), faults: lengthened(x.faults), counters: file, vocabulary: v, step: step, scrapes: scrapes, wanted: wanted}
			tests.Tests = append(tests.Tests, unitTest{
				Name: x.title + ", " + v.String(), Interval: minutes(step), Input: p.scraped(t).inputs(x.node, scrapes),
				Exprs: []exprTest{
					rung(quiet-step, "alertname"),
					rung(watched-step, "alertname", named(names...)...),
				},
			})
		}
	}
	for title := range rings {
		if !seen[title] {
			t.Errorf("docs/runbooks.md has a row for %q, which is no scenario", title)
		}
	}
	if len(seen) < 20 {
		t.Fatalf("%d scenarios", len(seen))
	}
	if out, ok := runTests(t, tests.write(t)); !ok {
		t.Error(out)
	}
}

// ills are what is wrong with a simulated node by its own description: the parts of its file that
// say so, what a healthy node has there, and the alert that they ring within a day (once for what
// takes two parts). docs/runbooks.md has the same alerts.
var ills = map[string][]struct{ ill, healthy, rings string }{
	"everything": {
		{"{width: 16, speed: 32, active: 8}", "{width: 16, speed: 32}", `{alertname="NetworkCardNarrow",node="everything"}`},
	},
	"demo": { // two model servers fill a GPU
		{`container: triton, workload: inference, devices: ["4"]`, `container: triton, workload: transcoding, devices: ["4"]`,
			`{alertname="GPUFrameBufferFull",node="demo",gpu="4"}`},
		{`container: vllm, workload: inference, devices: ["4"]`, `container: vllm, workload: transcoding, devices: ["4"]`, ""},
		idle("demo", "jupyter-c", "7", "10"),
	},
	"shared": { // four programs want more memory than there is
		{"{pod: burn-in, host: true, workload: batch,", "{pod: burn-in, host: true, workload: transcoding,", `{alertname="GPUFrameBufferFull",node="shared",gpu="0"}`},
		{`pod: etl-0, container: rapids, workload: batch,`, `pod: etl-0, container: rapids, workload: transcoding,`, ""},
		idle("shared", "jupyter-b", "0", ""),
	},
	"a100-mig": {idle("a100-mig", "jupyter-c", "0", "9")},
	"mig8x7": {
		idle("mig8x7", "lab-0", "0", "11"), idle("mig8x7", "lab-1", "1", "11"), idle("mig8x7", "lab-2", "2", "11"), idle("mig8x7", "lab-3", "3", "11"),
		idle("mig8x7", "lab-4", "4", "11"), idle("mig8x7", "lab-5", "5", "11"), idle("mig8x7", "lab-6", "6", "11"), idle("mig8x7", "lab-7", "7", "11"),
	},
}

// idle is a pod that holds a device and never uses it.
func idle(node, pod, gpu, instance string) struct{ ill, healthy, rings string } {
	device := gpu
	if instance != "" {
		device += "/" + instance
	}
	line := func(workload string) string {
		return fmt.Sprintf("pod: %s, container: notebook, workload: %s, devices: [%q]", pod, workload, device)
	}
	return struct{ ill, healthy, rings string }{
		line("forgotten"), line("notebook"), fmt.Sprintf(`{alertname="GPUAllocatedIdle",node=%q,gpu=%q,pod=%q}`, node, gpu, pod),
	}
}

// healthy returns a simulated node without its ills.
func healthy(t *testing.T, node string) *sim.Node {
	t.Helper()
	text := read(t, "internal", "source", "sim", "data", "nodes", node+".yaml")
	for _, x := range ills[node] {
		if n := strings.Count(text, x.ill); n != 1 {
			t.Errorf("%s.yaml has %q %d times", node, x.ill, n)
		}
		text = strings.Replace(text, x.ill, x.healthy, 1)
	}
	model, err := sim.ParseNode(strings.NewReader(text), node+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// The scrapes of a day follow no period of a simulated workload, and rules are evaluated at every
// third. Shares of a GPU are known from the second scrape on: what is idle for a day rings after
// it.
const (
	every     = 4 * time.Minute
	evaluated = 12 * time.Minute
	day       = 24*time.Hour + 2*evaluated
)

// aDay plays nodes for a day, and holds the alerts that ring within it to want.
func aDay(t *testing.T, nodes []string, model func(node string) *sim.Node, want ...string) {
	t.Helper()
	prom.Program(t, "promtool")
	wanted, file := families(t), everyLine(t)
	const scrapes = int(day/every) + 1
	test := unitTest{Name: "a day", Interval: minutes(every)}
	for _, node := range nodes {
		p := play{node: node, model: model(node), faults: "faults: []", counters: file, step: every, scrapes: scrapes, wanted: wanted}
		test.Input = append(test.Input, p.scraped(t).inputs(node, scrapes)...)
	}
	if len(test.Input) < 400*len(nodes) {
		t.Errorf("%d series of %d nodes", len(test.Input), len(nodes))
	}
	test.Exprs = []exprTest{rung(day, "alertname, node, gpu, pod", want...)}
	if out, ok := runTests(t, testFile{RuleFiles: alertFiles(), Evaluation: minutes(evaluated), Tests: []unitTest{test}}.write(t)); !ok {
		t.Error(out)
	}
}

// Healthy nodes of every kind, as one fleet, ring nothing within a day.
func TestAHealthyDayIsSilent(t *testing.T) {
	aDay(t, sim.Nodes(), func(node string) *sim.Node { return healthy(t, node) })
}

// A node whose description has an ill rings for that alone, and docs/runbooks.md says so.
func TestIllsRing(t *testing.T) {
	var rings []string
	rung := map[string][]string{}
	for node, list := range ills {
		for _, x := range list {
			if x.rings == "" {
				continue
			}
			rings = append(rings, x.rings)
			name := regexp.MustCompile(`alertname="(\w+)"`).FindStringSubmatch(x.rings)[1]
			if !slices.Contains(rung[node], name) {
				rung[node] = append(rung[node], name)
			}
		}
	}
	documented := map[string][]string{}
	for _, m := range illRow.FindAllStringSubmatch(read(t, "docs", "runbooks.md"), -1) {
		for _, name := range linked.FindAllStringSubmatch(m[2], -1) {
			documented[m[1]] = append(documented[m[1]], name[1])
		}
	}
	if diff := cmp.Diff(rung, documented); diff != "" {
		t.Errorf("docs/runbooks.md (-nodes +documented):\n%s", diff)
	}
	aDay(t, slices.Sorted(maps.Keys(ills)), func(string) *sim.Node { return nil }, rings...)
}

var illRow = regexp.MustCompile("(?m)^\\| `([\\w-]+)` \\| [^|]+ \\| ((?:\\[\\w+\\]\\(#\\w+\\)(?:, )?)+) \\|$")

// named returns alerts as rung expects them.
func named(names ...string) []string {
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf("{alertname=%q}", name))
	}
	return list
}
