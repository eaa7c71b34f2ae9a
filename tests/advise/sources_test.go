package advise

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// The same ten pods, seen by other exporters and scraped otherwise: the advice is the same where
// the evidence is, and of lower confidence where it is not.
func TestExporters(t *testing.T) {
	pods := ten(func(int) string { return "serving" }, "small-inference")
	whole := node("H100-SXM5-80GB", 10, pods...)
	// five pods on one time-sliced GPU: NVIDIA's exporter knows neither whose the activity nor whose
	// the memory is
	var sharers []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		sharers = append(sharers, pod("serving", "embed-"+name, "small-inference", 0))
	}
	shared := strings.Replace(node("H100-SXM5-80GB", 1, sharers...), "count: 1}", "count: 1, sharing: time-slicing, replicas: 5}", 1)
	scenes := map[string]*scene{
		"current":       {name: "current", node: whole, length: day, every: time.Minute, vocabulary: catalog.Current, counters: profiled},
		"both":          {name: "both", node: whole, length: day, every: time.Minute, vocabulary: catalog.Both, counters: profiled},
		"renamed":       {name: "renamed", node: whole, length: day, every: time.Minute, vocabulary: catalog.Classic, counters: profiled, renamed: true},
		"nvidia":        {name: "nvidia", node: whole, length: day, every: time.Minute, vocabulary: catalog.Classic, counters: profiled, without: "dcgm_", renamed: true},
		"nvidia-shared": {name: "nvidia-shared", node: shared, length: day, every: time.Minute, vocabulary: catalog.Classic, counters: profiled, without: "dcgm_"},
		"shared":        {name: "shared", node: shared, length: day, every: time.Minute, vocabulary: catalog.Classic, counters: profiled},
		"week":          {name: "week", node: whole, length: 7*day + time.Hour, every: 10 * time.Minute, vocabulary: catalog.Classic, counters: profiled},
		"short":         {name: "short", node: whole, length: 3 * time.Hour, every: time.Minute, vocabulary: catalog.Classic, counters: profiled},
	}
	var all []*scene
	for _, s := range scenes {
		all = append(all, s)
	}
	p := served(t, all...)
	for name, want := range map[string]struct {
		line    string
		missing string
		args    []string
	}{
		"current": {line: "mps 10→1 medium"},
		"both":    {line: "mps 10→1 medium"},
		"renamed": {line: "mps 10→1 medium"},
		"nvidia":  {line: "mps 10→1 medium", missing: "NVIDIA's names one of them"},
		"week":    {line: "mps 10→1 high", args: []string{"--window", "7d"}},
		// three hours of a day's window
		"short": {line: "mps 10→1 low", missing: "samples for 8"},
		// The five share one GPU already, so that no other way frees one; SM and DRAM activity of a
		// shared device are no pod's own.
		"shared": {line: "none 1→1 medium", missing: "DCGM_FI_PROF_DRAM_ACTIVE of a pod alone on its device"},
	} {
		t.Run(name, func(t *testing.T) {
			_, a := advised(t, p, scenes[name], want.args...)
			r := a.Result.Models[0].Recommendations[0]
			line := strings.Join([]string{r.Mode, " ", string(rune('0' + r.Used/10)), string(rune('0' + r.Used%10)), "→", string(rune('0' + r.Needed)), " ", r.Confidence}, "")
			if got := strings.Replace(line, " 0", " ", 1); got != want.line {
				t.Errorf("%s, want %s; evidence %+v, missing %q", got, want.line, r.Workloads, r.Missing)
			}
			if want.missing != "" && !slices.ContainsFunc(r.Missing, func(s string) bool { return strings.Contains(s, want.missing) }) {
				t.Errorf("missing %q, want %q among it", r.Missing, want.missing)
			}
		})
	}
	// A shared GPU of which nothing is known of the pods has no owner on NVIDIA's page: no advice.
	code, a := advised(t, p, scenes["nvidia-shared"])
	if m := a.Result.Models[0]; code != 0 || m.GPUs != 1 || m.Used != 0 || len(m.Recommendations) != 0 {
		t.Errorf("exit %d, %+v", code, m)
	}

	t.Run("faults", func(t *testing.T) {
		end := scenes["short"].end.UTC()
		for _, tt := range []struct {
			args []string
			code int
			says string
		}{
			{[]string{"--selector", `cluster="nowhere"`}, 2, `with {cluster="nowhere"} has no series of a GPU exporter; looked for dcgm_pod_gpu_utilization_ratio,`},
			{[]string{"--selector", `cluster=`}, 2, "parse error"},
			{[]string{"--until", end.Add(-400 * day).Format(time.RFC3339), "--window", "1h"}, 2, "none has a sample between"},
			{[]string{"--until", end.Format(time.RFC3339), "--node", "elsewhere"}, 2, "has no GPU that --node and --namespace select"},
			{[]string{"--window", "soon"}, 2, `--window "soon", want a duration such as 7d`},
			{[]string{"--until", "yesterday"}, 2, `--until "yesterday", want a time such as`},
			{[]string{"--scrape", "page"}, 2, "name one of them"},
			{[]string{"--bearer-token-file", "/nonexistent"}, 2, "--bearer-token-file: open /nonexistent: no such file"},
		} {
			code, out, errOut := gpuop(t, append([]string{"advise", "--prometheus", p.URL}, tt.args...)...)
			if code != tt.code || !strings.Contains(errOut, tt.says) || out != "" || strings.Count(errOut, "\n") != 1 {
				t.Errorf("%q: exit %d, want %d with %q\n%s%s", tt.args, code, tt.code, tt.says, out, errOut)
			}
		}
	})

	t.Run("a page", func(t *testing.T) {
		page := file(t, "page.prom", string(scenes["week"].page))
		code, out, errOut := gpuop(t, "advise", "--scrape", page)
		for _, want := range []string{"one page, of a time it does not say", "mps, 10 pods a GPU, on 1 GPU in place of 10  confidence low", "missing: a window"} {
			if code != 1 || !strings.Contains(out, want) {
				t.Errorf("exit %d, without %q:\n%s%s", code, want, out, errOut)
			}
		}
		// the configuration alone is a file that gpuop itself finds nothing wrong with
		code, out, errOut = gpuop(t, "advise", "--scrape", page, "--config")
		if code != 1 || !strings.Contains(out, "kind: ConfigMap") {
			t.Errorf("exit %d\n%s%s", code, out, errOut)
		}
		checked(t, "config", out, []string{"gpuop lint FILE"})
		if code, _, _ := gpuop(t, "advise", "--scrape", page, "--fail-on", "error"); code != 0 {
			t.Errorf("exit %d with --fail-on error", code)
		}
	})
}

// The matrix of gpuop, from an exporter's page, is that of the exporter's own topo, from the node.
func TestTopoIsTheExporters(t *testing.T) {
	for _, name := range []string{"h100x8", "a100-mig", "mixed", "grace-hopper", "single"} {
		want, err := os.ReadFile(filepath.Join(root, "internal", "command", "topo", "testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		s := &scene{name: name, builtin: name, length: time.Second, every: time.Minute, vocabulary: catalog.Classic,
			counters: "DCGM_EXP_GPU_PAIR_INFO, gauge, x\nDCGM_EXP_GPU_AFFINITY_INFO, gauge, x\n"}
		s.play(t)
		code, out, errOut := gpuop(t, "topo", "--scrape", file(t, name+".prom", string(s.page)))
		_, matrix, found := strings.Cut(out, name+"-node\n")
		if !found || code != 0 {
			t.Fatalf("%s: exit %d\n%s%s", name, code, out, errOut)
		}
		wantMatrix, _, _ := strings.Cut(string(want), "\n\n")
		gotMatrix, _, _ := strings.Cut(matrix, "\n\n")
		if diff := cmp.Diff(wantMatrix, gotMatrix); diff != "" {
			t.Errorf("%s (-exporter's topo +gpuop's):\n%s", name, diff)
		}
	}
}

// A page of devices without the topology series says how to get them.
func TestTopoWithoutSeries(t *testing.T) {
	code, _, errOut := gpuop(t, "topo", "--scrape", file(t, "page.prom", "DCGM_FI_DEV_FB_USED{UUID=\"GPU-a\",gpu=\"0\"} 1\n"))
	if code != 2 || !strings.Contains(errOut, "add DCGM_EXP_GPU_PAIR_INFO and DCGM_EXP_GPU_AFFINITY_INFO to the counters file") {
		t.Errorf("exit %d: %s", code, errOut)
	}
}
