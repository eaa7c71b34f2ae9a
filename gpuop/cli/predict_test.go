package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

func inputFile(name string) string { return filepath.Join("testdata", "input", name) }

func TestPredictTranscripts(t *testing.T) {
	var b strings.Builder
	for _, args := range []string{
		"-f testdata/input/timeslicing.yaml --gpu A100-80GB --gpus 8",
		"-f testdata/input/two-configs.yaml --node testdata/input/node.json",
		"-f testdata/input/two-configs.yaml --gpu T4",
		"-f testdata/input/two-configs.yaml --gpu T4 --config infr",
		"-f testdata/input/copied.yaml --gpu T4",
		"-f testdata/input/timeslicing.yaml --node testdata/input/node-dump.txt",
		"-f testdata/input/timeslicing.yaml --node testdata/input/node-dump.txt --gpu T4 --config timeslicing",
		"--gpu A100-40GB --gpus 8 --config all-balanced",
		"--gpu A100-40GB --gpus 2 --config all-1g.5gb --strategy single",
		"--gpu A100-40GB -f testdata/input/mig.yaml --config notebooks --strategy mixed",
		"--gpu A100-40GB --gpus 2 -f testdata/input/mig.yaml --config half --strategy mixed",
		"--node testdata/input/node.json --config all-3g.40gb --strategy mixed",
		"--gpu A100-40GB -f testdata/input/mig.yaml --config notebook",
	} {
		b.WriteString(transcript("", append([]string{"node", "predict"}, strings.Fields(args)...)...))
	}
	golden(t, "node-predict.txt", b.String())
}

func TestPredictAsksForWhatIsMissing(t *testing.T) {
	file := " -f " + inputFile("timeslicing.yaml")
	for args, hint := range map[string]string{
		"node predict --gpu T4":                                    "with --config",
		"node predict" + file:                                      "--gpu MODEL",
		"node predict --gpu A100" + file:                           "A100-40GB",
		"node predict --gpu T4 --gpus 0" + file:                    "1 to 256",
		"node predict --gpu T4 --strategy mix" + file:              "none, single or mixed",
		"node predict --gpu T4 -f nowhere.yaml":                    "no such file",
		"node predict --node " + inputFile("mig.yaml") + file:      "kubectl get node",
		"node predict --gpu A100-40GB --config all-1g.6gb":         "write all-1g.5gb",
		"node predict --gpu T4 --config all-1g.6gb":                "GPU does not support MIG: Tesla-T4",
		"node predict --gpu T4 gpu-1":                              "expected no arguments",
		"share predict -f x.yaml --gpu T4 --default x":             "replaced by gpuop node predict",
		"mig predict --gpu A100-40GB --gpus 8 --config all-1g.5gb": "replaced by gpuop node predict",
	} {
		code, out, errOut := call("", strings.Fields(args)...)
		if code != exitBadInput || out != "" || !strings.Contains(errOut, hint) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want exit 2 and one line with %q", args, code, out, errOut, hint)
		}
	}
}

// A MIG config that cannot be parsed yields findings, and no prediction.
func TestPredictOfABrokenMIGConfig(t *testing.T) {
	code, out, errOut := call("mig-configs: []\n", "node", "predict", "--gpu", "A100-40GB", "--config", "a", "-f", "-")
	if code != exitBadInput && code != exitFindings || strings.Contains(out, "allocatable") {
		t.Errorf("exit %d, want 1 or 2 and no prediction\n%s%s", code, out, errOut)
	}
}

// FuzzPredict predicts with arbitrary configs. The exit code must be 1 if and only if a finding has the severity error.
func FuzzPredict(f *testing.F) {
	f.Add("version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}", "infer")
	f.Add("kind: ConfigMap\ndata: {a: 'version: v1', b: '- x'}", "")
	f.Add("mig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]}", "a")
	f.Fuzz(func(t *testing.T, file, config string) {
		for _, format := range []string{"text", "json"} {
			code, out, errOut := call(file, "node", "predict", "--gpu", "A100-40GB", "--gpus", "2", "-f", "-", "--config="+config, "-o", format)
			isError := strings.Contains(out, "error: ") || strings.Contains(out, `"severity": "error"`)
			if code == exitBadInput && (out != "" || errOut == "") || code != exitBadInput && isError != (code == exitFindings) {
				t.Fatalf("%s: exit %d, want 1 exactly if a finding is an error\n%s%s", format, code, out, errOut)
			}
		}
	})
}
