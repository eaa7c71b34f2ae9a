package cli

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

func inputFile(name string) string { return filepath.Join("testdata", "input", name) }

// The transcripts show each row of the specification that share covers.
func TestShareTranscripts(t *testing.T) {
	for name, calls := range map[string][][]string{
		"share-predict.txt": {
			{"share", "predict", "-f", inputFile("timeslicing.yaml"), "--gpu", "A100-80GB", "--gpus", "8"},
			{"share", "predict", "-f", inputFile("two-configs.yaml"), "--node", inputFile("node.json")},
			{"share", "predict", "-f", inputFile("two-configs.yaml"), "--gpu", "T4"},
			{"share", "predict", "-f", inputFile("copied.yaml"), "--gpu", "T4"},
			{"share", "predict", "-f", inputFile("timeslicing.yaml"), "--node", inputFile("node-dump.txt")},
			{"share", "predict", "-f", inputFile("timeslicing.yaml"), "--node", inputFile("node-dump.txt"), "--gpu", "T4", "--default", "timeslicing"},
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

func TestShareAsksForWhatIsMissing(t *testing.T) {
	for _, tc := range []struct {
		args string
		hint string
	}{
		{"share predict --gpu T4", `"file" not set`},
		{"share predict -f " + inputFile("timeslicing.yaml"), "--gpu MODEL"},
		{"share predict -f " + inputFile("timeslicing.yaml") + " --gpu A100", "A100-40GB"},
		{"share predict -f " + inputFile("timeslicing.yaml") + " --gpu T4 --gpus 0", "1 to 256"},
		{"share predict -f " + inputFile("timeslicing.yaml") + " --gpu T4 --mig-strategy mix", "none, single or mixed"},
		{"share predict -f nowhere.yaml --gpu T4", "no such file"},
		{"share predict -f " + inputFile("timeslicing.yaml") + " --node " + inputFile("mig.yaml"), "kubectl get node"},
	} {
		code, out, errOut := call("", strings.Fields(tc.args)...)
		if code != exitBadInput || out != "" || !strings.Contains(errOut, tc.hint) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, %q, want exit 2 and one line with %q", tc.args, code, out, errOut, tc.hint)
		}
	}
}

// No input may cause a panic. A rejected input exits with 2 or 1, never with 0 and an error in the output.
func FuzzSharePredict(f *testing.F) {
	f.Add("version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}", "infer")
	f.Add("kind: ConfigMap\ndata: {a: 'version: v1', b: '- x'}", "")
	f.Fuzz(func(t *testing.T, file, label string) {
		configs, findings := sharing.ParseAny([]byte(file), "x")
		found := check.Report{Rows: findings}
		g := mig.GPU{Product: "X", MemoryMiB: 1000, ComputeCapability: "8.0"}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{sharing.ConfigLabel: label}}}
		a := share(n, []mig.GPU{g, g}, configs, "", "", found)
		for _, format := range []string{"text", "json", "sarif"} {
			e := &env{format: format, failOn: "error", Streams: Streams{Out: &strings.Builder{}, Err: &strings.Builder{}}}
			err := e.answer(a)
			if (err == nil) == a.Report.AtLeast(check.Error) {
				t.Fatalf("%s: error %v with findings %v", format, err, a.Report.Rows)
			}
		}
	})
}
