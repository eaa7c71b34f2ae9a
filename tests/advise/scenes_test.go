package advise

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

const day = 24 * time.Hour

// node describes a node of n GPUs of a board, each of which one pod has alone.
func node(board string, n int, pods ...string) string {
	return fmt.Sprintf("name: test\nabout: test\ndriver: 570.124.06\ncuda: 12080\ngpus:\n  - {board: %s, count: %d}\npods:\n%s", board, n, strings.Join(pods, ""))
}

func pod(namespace, name, workload string, devices ...int) string {
	var quoted []string
	for _, d := range devices {
		quoted = append(quoted, fmt.Sprintf("%q", fmt.Sprint(d)))
	}
	return fmt.Sprintf("  - {namespace: %s, pod: %s, container: main, workload: %s, devices: [%s]}\n", namespace, name, workload, strings.Join(quoted, ", "))
}

// ten are ten pods of a Deployment, a GPU each; the namespace of each is that of the function.
func ten(namespace func(int) string, workload string) []string {
	var all []string
	for i := range 10 {
		// names as a ReplicaSet gives them
		all = append(all, pod(namespace(i), "embed-6f7c9d8b5f-"+strings.Repeat(string("bcdfghjklm"[i]), 5), workload, i))
	}
	return all
}

// want is what a person would recommend, with the reason, found without looking at the rules.
type want struct {
	why      string
	mode     string
	change   bool
	rule     string
	replicas int
	geometry []string
	used     int
	needed   int
	pods     int // of all its workloads
}

type expectation struct {
	scene *scene
	args  []string
	code  int
	freed int
	wants []want
}

func expectations() []expectation {
	serving := func(int) string { return "serving" }
	tenants := func(i int) string { return fmt.Sprintf("tenant-%d", i) }
	scene := func(name, node, extra string) *scene {
		return &scene{name: name, node: node, length: day, every: time.Minute, vocabulary: catalog.Classic, counters: extra}
	}
	notebooks := func(namespaces ...string) []string {
		var all []string
		for i := range 6 {
			all = append(all, pod(namespaces[i%len(namespaces)], "jupyter-"+string("abcdef"[i]), "forgotten", i))
		}
		return all
	}
	inference := scene("inference", node("H100-SXM5-80GB", 10, ten(serving, "small-inference")...), profiled)
	return []expectation{
		{scene: scene("notebooks", node("H100-SXM5-80GB", 6, notebooks("research")...), profiled), code: 1, freed: 3, wants: []want{{
			why:  "notebooks of one team that do nothing tolerate jitter: time-slicing. Each holds 35 % of the memory for good, so two fit on a GPU (70 %) and three (105 %) do not",
			mode: "time-slicing", change: true, rule: "idle", replicas: 2, used: 6, needed: 3, pods: 6,
		}}},
		{scene: inference, code: 1, freed: 9, wants: []want{{
			why:  "ten replicas of one service use 10 % of a GPU each, all the time, and wait for a person: taking turns adds latency, and seven MIG instances would take two GPUs. MPS runs them side by side on one: 10 × 10 % of the time, 10 × 4 GiB of 80, and each gets 10 % of the threads for the 6 to 7 % of the SMs that it uses",
			mode: "mps", change: true, rule: "small-steady", replicas: 10, used: 10, needed: 1, pods: 10,
		}}},
		{scene: scene("inference-blind", node("H100-SXM5-80GB", 10, ten(serving, "small-inference")...), ""), code: 1, freed: 8, wants: []want{{
			why:  "the same without SM activity: a pod that runs for 12 % of the time may fill the GPU while it does, so no more than eight (12.5 % of the threads each) can be held by one",
			mode: "mps", change: true, rule: "small-steady", replicas: 5, used: 10, needed: 2, pods: 10,
		}}},
		{scene: scene("tenants", node("H100-SXM5-80GB", 10, ten(tenants, "small-inference")...), profiled), code: 1, freed: 8, wants: []want{{
			why:  "the same ten in ten namespaces: strangers need isolation of memory and errors, which MIG has; 1g.10gb holds 4 GiB and a seventh of the SMs, seven to a GPU, so ten take two",
			mode: "mig", change: true, rule: "strangers", geometry: []string{"1g.10gb=7", "1g.10gb=3"}, used: 10, needed: 2, pods: 10,
		}}},
		{scene: scene("trusting", node("H100-SXM5-80GB", 10, ten(tenants, "small-inference")...), profiled), args: []string{"--trusted"}, code: 1, freed: 9, wants: []want{{
			why:  "and if they are said to trust each other, they are as those of one namespace",
			mode: "mps", change: true, rule: "small-steady", replicas: 10, used: 10, needed: 1, pods: 10,
		}}},
		{scene: scene("trainer", node("H100-SXM5-80GB", 2, pod("research", "pretrain-0", "training", 0)), profiled), code: 0, wants: []want{{
			why:  "a trainer fills its GPU: nothing to gain, and nothing to say about the GPU without a pod",
			mode: "none", rule: "busy", used: 1, needed: 1, pods: 1,
		}}},
		{scene: scene("bursty", node("H100-SXM5-80GB", 4,
			pod("media", "preview-a", "rendering", 0), pod("media", "preview-b", "rendering", 1), pod("media", "preview-c", "rendering", 2), pod("media", "preview-d", "rendering", 3)), profiled),
			code: 1, freed: 3, wants: []want{{
				why:  "each renders 6 % of the time at 85 %: alone a burst should have the whole GPU, and two at once (2 % of the time) may take turns. Four times 15 % of the memory fit on one",
				mode: "time-slicing", change: true, rule: "bursty", replicas: 4, used: 4, needed: 1, pods: 4,
			}}},
		{scene: scene("memory-bound", node("H100-SXM5-80GB", 4,
			pod("search", "lookup-0", "lookup", 0), pod("search", "lookup-1", "lookup", 1), pod("search", "lookup-2", "lookup", 2), pod("search", "lookup-3", "lookup", 3)), profiled),
			code: 1, freed: 2, wants: []want{{
				why:  "a third of the memory's cycles each, with half as many of the SMs': bandwidth is what they share, and only MIG divides it. A third of it and 18 GiB take four of eight memory slices: 3g.40gb, two to a GPU",
				mode: "mig", change: true, rule: "bandwidth-bound", geometry: []string{"3g.40gb=2", "3g.40gb=2"}, used: 4, needed: 2, pods: 4,
			}}},
		{scene: scene("model-server", node("H100-SXM5-80GB", 1, pod("serving", "llm-0", "inference", 0)), profiled), code: 0, wants: []want{{
			why:  "it keeps 80 % of the memory and is idle half of the time: no second pod fits, so only streams inside it use the GPU better",
			mode: "streams", rule: "one-application", used: 1, needed: 1, pods: 1,
		}}},
		{scene: scene("no-mig", node("L40S", 6, notebooks("red", "blue")...), profiled), code: 1, freed: 2, wants: []want{
			{
				why:  "an L40S has no MIG: notebooks are shared within their namespace only, three of 35 % of the memory on two GPUs",
				mode: "time-slicing", change: true, rule: "idle", replicas: 2, used: 3, needed: 2, pods: 3,
			},
			{why: "and the other namespace", mode: "time-slicing", change: true, rule: "idle", replicas: 2, used: 3, needed: 2, pods: 3},
		}},
		{scene: scene("cluster-job", node("H100-SXM5-80GB", 4, pod("research", "finetune-0", "notebook", 0, 1, 2, 3)), profiled), code: 0, wants: []want{{
			why:  "one pod with four GPUs runs one job over them, whatever it does now",
			mode: "none", rule: "several-gpus", used: 4, needed: 4, pods: 1,
		}}},
	}
}

func TestScenes(t *testing.T) {
	all := expectations()
	var scenes []*scene
	for _, x := range all {
		scenes = append(scenes, x.scene)
	}
	p := served(t, scenes...)
	for _, x := range all {
		t.Run(x.scene.name, func(t *testing.T) {
			code, a := advised(t, p, x.scene, x.args...)
			if code != x.code {
				t.Errorf("exit %d, want %d", code, x.code)
			}
			if len(a.Result.Models) != 1 {
				t.Fatalf("%d models", len(a.Result.Models))
			}
			m := a.Result.Models[0]
			if m.Freed != x.freed {
				t.Errorf("%d GPUs freed, want %d", m.Freed, x.freed)
			}
			if len(m.Recommendations) != len(x.wants) {
				t.Fatalf("%d recommendations, want %d: %+v", len(m.Recommendations), len(x.wants), m.Recommendations)
			}
			changes := 0
			for i, w := range x.wants {
				r := m.Recommendations[i]
				pods := 0
				for _, l := range r.Workloads {
					pods += l.Pods
				}
				got := want{why: w.why, mode: r.Mode, change: r.Change, rule: r.Rules[0], replicas: r.Replicas, geometry: r.Geometry, used: r.Used, needed: r.Needed, pods: pods}
				if fmt.Sprint(got) != fmt.Sprint(w) {
					t.Errorf("got  %+v\nwant %+v\nevidence %+v", got, w, r.Workloads)
				}
				if r.Change {
					changes++
				}
				if r.Confidence != "medium" { // a day
					t.Errorf("confidence %s, want medium: %q", r.Confidence, r.Missing)
				}
				if len(r.Workloads) == 0 || r.Samples < 1000 {
					t.Errorf("%d workloads, %d samples: advice without evidence", len(r.Workloads), r.Samples)
				}
			}
			if got := len(a.Result.Configurations); got != min(1, changes) { // the operator reads one of a kind
				t.Errorf("%d configurations for %d changes", got, changes)
			}
			for _, c := range a.Result.Configurations {
				checked(t, c.Name, c.File, c.Checks)
			}
		})
	}
	t.Run("text", func(t *testing.T) { shown(t, p, all, "inference", "text") })
	t.Run("JSON", func(t *testing.T) { shown(t, p, all, "tenants", "json") })
}

var update = flag.Bool("update", false, "write the golden files")

// shown compares what is printed about a scene with its golden file, and what is text with the page
// of the documentation too.
func shown(t *testing.T, p *prom.Server, all []expectation, name, format string) {
	t.Helper()
	s := all[slices.IndexFunc(all, func(x expectation) bool { return x.scene.name == name })].scene
	_, out, errOut := gpuop(t, "advise", "--prometheus", p.URL, "--selector", `cluster="`+name+`"`, "--until", s.until(), "--window", "1d", "-o", format)
	out = strings.ReplaceAll(out+errOut, p.URL, "http://prometheus:9090")
	golden := filepath.Join("testdata", name+"."+format)
	if *update {
		if err := os.WriteFile(golden, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out); diff != "" {
		t.Errorf("%s (-want +got):\n%s", golden, diff)
	}
	if format != "text" {
		return
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "gpuop.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n"+out+"```") {
		t.Errorf("docs/gpuop.md does not show %s", golden)
	}
}

// checked runs the checks of a configuration: gpuop lint finds nothing, and what fits is drawn.
func checked(t *testing.T, name, text string, checks []string) {
	t.Helper()
	path := file(t, name+".yaml", text)
	if !slices.Contains(checks, "gpuop lint FILE") {
		t.Errorf("%s: no lint among %q", name, checks)
	}
	for _, check := range checks {
		args := strings.Fields(strings.TrimPrefix(strings.ReplaceAll(check, "FILE", path), "gpuop "))
		if args[0] == "share" { // time-slicing has no isolation, which is worth knowing
			args = append(args, "--fail-on", "warn")
		}
		if code, out, errOut := gpuop(t, args...); code != 0 {
			t.Errorf("%s: %s: exit %d\n%s%s\n%s", name, check, code, out, errOut, text)
		}
	}
}
