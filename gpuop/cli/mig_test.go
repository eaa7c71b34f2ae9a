package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

// The file of mig fit --config has no error for lint, and divides every GPU as the words said.
func TestMIGFitWritesAConfig(t *testing.T) {
	for _, tc := range []struct {
		board, name string
		words       []string
		resources   map[string]int
	}{
		{"H100-80GB", "notebooks", []string{"3g.40gb", "2g.20gb", "1g.10gb=2"}, map[string]int{"nvidia.com/mig-3g.40gb": 2, "nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-1g.10gb": 4}},
		{"B200", "on", []string{"1g.23gb+me", "1g.23gb=6"}, map[string]int{"nvidia.com/mig-1g.23gb.me": 2, "nvidia.com/mig-1g.23gb": 12}},
	} {
		path := filepath.Join(t.TempDir(), "mig.yaml")
		args := append([]string{"mig", "fit", "--gpu", tc.board, "--config", tc.name}, tc.words...)
		code, written, errOut := call("", append(args, "--out", path)...)
		if code != 0 || written != "" {
			t.Fatalf("%s: exit %d, %q, %q", tc.name, code, written, errOut)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if code, report, _ := call("", "lint", path); code != 0 {
			t.Errorf("lint: exit %d, %s", code, report)
		}
		c, _ := mig.ParseConfig(data)
		named, ok := c.Config(tc.name)
		if !ok {
			t.Fatalf("no config %q in\n%s", tc.name, data)
		}
		b, err := mig.FindBoard(tc.board)
		if err != nil {
			t.Fatal(err)
		}
		gpus, findings := named.Apply([]mig.GPU{b.GPU(""), b.GPU("")})
		if len(findings) > 0 {
			t.Errorf("%s: %v", tc.name, findings)
		}
		if diff := cmp.Diff(tc.resources, mig.Predict(gpus, mig.StrategyMixed, mig.Replication{}).Resources); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.name, diff)
		}
		_, out, _ := call("", append(args, "-o", "json")...)
		var machine struct{ Result struct{ File string } }
		if err := json.Unmarshal([]byte(out), &machine); err != nil || machine.Result.File != string(data) {
			t.Errorf("%s: file in JSON %q, %v", tc.name, machine.Result.File, err)
		}
		if code, _, _ := call("", "mig", "fit", "--gpu", "A100-40GB", "3g.20gb=2", "1g.5gb", "--config", "x", "--out", path); code != exitFindings {
			t.Errorf("what does not fit: exit %d", code)
		}
		if kept, err := os.ReadFile(path); err != nil || string(kept) != string(data) {
			t.Errorf("what does not fit was written: %q, %v", kept, err)
		}
	}
}

func TestMIGTranscripts(t *testing.T) {
	for name, calls := range map[string][][]string{
		"mig-profiles.txt": {
			{"mig", "profiles"}, {"mig", "profiles", "A100-40GB"}, {"mig", "profiles", "RTX-PRO-6000"}, {"mig", "profiles", "A100"},
		},
		"mig-fit.txt": {
			{"mig", "fit", "--gpu", "H100-80GB", "3g.40gb", "2g.20gb", "1g.10gb=2"},
			{"mig", "fit", "--gpu", "A100-40GB", "3g.20gb=2", "1g.5gb=1"},
			{"mig", "fit", "--gpu", "A100-40GB", "2g.10gb=3", "1g.5gb=1"},
			{"mig", "fit", "--gpu", "A100-80GB", "1g.5gb=7"},
			{"mig", "fit", "--gpu", "RTX-PRO-6000", "1g.24gb+me.all", "1g.24gb-me=3"},
			{"mig", "fit", "--gpu", "A30", "7g.80gb"},
		},
		"mig-predict.txt": {
			{"mig", "predict", "--gpu", "A100-40GB", "--gpus", "8", "--config", "all-balanced"},
			{"mig", "predict", "--gpu", "A100-40GB", "--gpus", "2", "--config", "all-1g.5gb", "--strategy", "single"},
			{"mig", "predict", "--gpu", "A100-40GB", "-f", input("mig.yaml"), "--config", "notebooks", "--strategy", "mixed"},
			{"mig", "predict", "--gpu", "A100-40GB", "--gpus", "2", "-f", input("mig.yaml"), "--config", "half", "--strategy", "mixed"},
			{"mig", "predict", "--node", input("node.json"), "--config", "all-3g.40gb", "--strategy", "mixed"},
			{"mig", "predict", "--gpu", "A100-40GB", "-f", input("mig.yaml"), "--config", "notebook"},
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

func TestMIGAsksForWhatIsMissing(t *testing.T) {
	for _, tc := range []struct {
		args []string
		hint string
	}{
		{[]string{"mig", "fit", "1g.5gb"}, `"gpu" not set`},
		{[]string{"mig", "fit", "--gpu", "A100-40GB"}, "no profile given"},
		{[]string{"mig", "fit", "--gpu", "A100-40GB", "1c.3g.20gb"}, "want a MIG profile"},
		{[]string{"mig", "fit", "--gpu", "H10O-80GB", "1g.10gb"}, "did you mean H100-80GB?"},
		{[]string{"mig", "fit", "--gpu", "A100-40GB", "1g.5gb+me", "--config", "all-1g.5gb+me"}, "write all-1g.5gb.me"},
		{[]string{"mig", "predict", "--gpu", "A100-40GB"}, `"config" not set`},
		{[]string{"mig", "predict", "--gpu", "A100-40GB", "--config", "all-1g.6gb"}, "did you mean all-1g.5gb?"},
		{[]string{"mig", "predict", "--gpu", "T4", "--config", "all-1g.6gb"}, "has no MIG"},
		{[]string{"mig", "predict", "--gpu", "A100-40GB", "--strategy", "singel", "--config", "all-1g.5gb"}, "none, single or mixed"},
	} {
		code, out, errOut := call("", tc.args...)
		if code != exitBadInput || out != "" || !strings.Contains(errOut, tc.hint) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%q: exit %d, %q, %q, want exit 2 and one line with %q", tc.args, code, out, errOut, tc.hint)
		}
	}
}
