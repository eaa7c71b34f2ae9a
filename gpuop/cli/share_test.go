package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

func input(name string) string { return filepath.Join("testdata", "input", name) }

// What a user sees, as one reads it: each row of the specification that share covers.
func TestShareTranscripts(t *testing.T) {
	for name, calls := range map[string][][]string{
		"share-predict.txt": {
			{"share", "predict", "-f", input("timeslicing.yaml"), "--gpu", "A100-80GB", "--gpus", "8"},
			{"share", "predict", "-f", "any=" + input("timeslicing.yaml"), "--gpu", "T4", "--route", "plugin"},
			{"share", "predict", "-f", input("two-configs.yaml"), "--node", input("node.json")},
			{"share", "predict", "-f", input("two-configs.yaml"), "--gpu", "T4", "--route", "plugin"},
			{"share", "predict", "-f", input("copied.yaml"), "--gpu", "T4"},
			{"share", "predict", "-f", input("timeslicing.yaml"), "--node", input("node-dump.txt")},
			{"share", "predict", "-f", input("timeslicing.yaml"), "--node", input("node-dump.txt"), "--gpu", "T4", "--default", "timeslicing"},
		},
		"share-gen.txt": {
			{"share", "gen", "any=time-slicing:4"},
			{"share", "gen", "default=none", "a100-80gb=time-slicing:5,rename", "--gpu", "A100-80GB"},
			{"share", "gen", "infer=mps:8", "--route", "plugin"},
			{"share", "gen", "mixed=time-slicing:3,mig-strategy=mixed,resource=nvidia.com/mig-1g.5gb"},
			{"share", "gen", "a=mps:64"},
			{"share", "gen", "a=none", "b=none", "--default", "c"},
			{"share", "gen", "a=none", "a=none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for _, c := range calls {
				b.WriteString(transcript("", c...))
			}
			golden(t, name, b.String())
		})
	}
}

// The issue: a config that share gen writes lints clean, and share predict agrees with what was
// requested.
func TestShareGenIsWhatPredictReads(t *testing.T) {
	for _, route := range []string{"operator", "plugin"} {
		code, file, errOut := call("", "share", "gen", "any=time-slicing:5,rename", "--route", route)
		if code != 0 {
			t.Fatalf("%s: exit %d: %s", route, code, errOut)
		}
		if route == "plugin" {
			if !strings.Contains(file, "config:\n  default: \"any\"\n  map:\n    \"any\": |-\n      version: v1\n") {
				t.Errorf("values of the chart:\n%s", file)
			}
			continue
		}
		code, out, errOut := call(file, "share", "predict", "-f", "-", "--default", "any", "--gpu", "A100-80GB", "--gpus", "8", "-o", "json", "--fail-on", "warn")
		var got struct {
			Result struct {
				Effective bool
				Resources map[string]struct{ Before, After int }
			}
			Report struct{ Findings []finding.Finding }
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
			t.Fatalf("exit %d, %v: %s", code, err, errOut)
		}
		if r := got.Result.Resources["nvidia.com/gpu.shared"]; !got.Result.Effective || r.Before != 0 || r.After != 40 {
			t.Errorf("eight GPUs by five: %+v", got.Result)
		}
	}
}

func TestShareAsksForWhatIsMissing(t *testing.T) {
	for _, tc := range []struct {
		args string
		hint string
	}{
		{"share predict --gpu T4", "-f FILE"},
		{"share predict -f " + input("timeslicing.yaml"), "--gpu MODEL"},
		{"share predict -f " + input("timeslicing.yaml") + " --gpu A100", "A100-40GB"},
		{"share predict -f " + input("timeslicing.yaml") + " --gpu T4 --gpus 0", "1 to 256"},
		{"share predict -f " + input("timeslicing.yaml") + " --gpu T4 --route helm", "operator"},
		{"share predict -f " + input("timeslicing.yaml") + " --gpu T4 --mig-strategy mix", "none, single or mixed"},
		{"share predict -f nowhere.yaml --gpu T4", "no such file"},
		{"share predict -f " + input("timeslicing.yaml") + " --node " + input("mig.yaml"), "kubectl get node"},
		{"share gen", "at least 1"},
		{"share gen x=time-slising:2", "did you mean time-slicing?"},
		{"share gen x=none --gpu T5", "did you mean"},
	} {
		code, out, errOut := call("", strings.Fields(tc.args)...)
		if code != exitBadInput || out != "" || !strings.Contains(errOut, tc.hint) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, %q, want exit 2 and one line with %q", tc.args, code, out, errOut, tc.hint)
		}
	}
}

// No input, however broken, panics; and what is refused exits 2 or 1, never 0 with an error in it.
func FuzzSharePredict(f *testing.F) {
	f.Add("version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}", "infer")
	f.Add("kind: ConfigMap\ndata: {a: 'version: v1', b: '- x'}", "")
	f.Fuzz(func(t *testing.T, file, label string) {
		configs, findings := sharing.ParseAny([]byte(file), "x")
		report := finding.Report{Findings: findings}
		g := mig.GPU{Product: "X", MemoryMiB: 1000, ComputeCapability: "8.0"}
		a := share(sharing.Plugin, nil, []mig.GPU{g, g}, configs, label, "", "", report)
		for _, format := range []string{"text", "json", "sarif"} {
			e := &env{format: format, failOn: "error", Streams: Streams{Out: &strings.Builder{}, Err: &strings.Builder{}}}
			err := e.answer(a)
			if (err == nil) == a.Report.AtLeast(finding.Error) {
				t.Fatalf("%s: error %v with findings %v", format, err, a.Report.Findings)
			}
		}
	})
}

// A node has one config: two commands that label the same nodes would leave the last alone.
func TestShareGenLabelsNodesOnce(t *testing.T) {
	_, one, _ := call("", "share", "gen", "default=none", "a=time-slicing:4", "--gpu", "T4")
	if want := "# kubectl label node --selector=nvidia.com/gpu.product=Tesla-T4 nvidia.com/device-plugin.config=a --overwrite\n"; !strings.Contains(one, want) {
		t.Errorf("no %q in\n%s", want, one)
	}
	_, two, _ := call("", "share", "gen", "default=none", "a=time-slicing:4", "b=mps:4", "--gpu", "T4")
	for _, want := range []string{"# kubectl label node NODE nvidia.com/device-plugin.config=a --overwrite\n", "# kubectl label node NODE nvidia.com/device-plugin.config=b --overwrite\n"} {
		if !strings.Contains(two, want) {
			t.Errorf("no %q in\n%s", want, two)
		}
	}
}
