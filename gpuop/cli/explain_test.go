package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/explain"
)

func TestExplainTranscripts(t *testing.T) {
	var b strings.Builder
	for _, words := range [][]string{
		{"nvidia.com/gpu.deploy.driver=true"}, {"paused-for-mig-change"}, {"UnexpectedAdmissionError"}, {"psp.enabled"}, {"1g.10gb"},
		{"NVIDIA-A100-SXM4-80GB-SHARED"}, {"device", "plugin"}, {"UnexpectedAdmissonError"}, {"drivr.enabled"}, {"mig.stratgey"}, {"qqqqqqqqq"}, {},
	} {
		b.WriteString(transcript("", append([]string{"explain"}, words...)...))
	}
	golden(t, "explain.txt", b.String())
}

// Several words that are not a phrase are explained one by one. An unknown word is named in the error.
func TestExplainOfSeveralWords(t *testing.T) {
	if code, out, errOut := call("", "explain", "unknown-key", "dead-setting"); code != 0 {
		t.Errorf("two checks: exit %d, want 0\n%s%s", code, out, errOut)
	}
	if code, _, errOut := call("", "explain", "XID", "999"); code != 2 || !strings.Contains(errOut, "XID 999") {
		t.Errorf("XID 999: exit %d, standard error %q; want 2 and an error that names XID 999", code, errOut)
	}
}

func TestExplainAsJSON(t *testing.T) {
	code, out, errOut := call("", "explain", "nvidia.com/mig.config.state", "-o", "json")
	var got struct{ Result []explain.Entry }
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || len(got.Result) != 1 || got.Result[0].Writer != "MIG manager" {
		t.Errorf("exit %d, error %v, output %s%s; want 0 and one entry that the MIG manager writes", code, err, out, errOut)
	}
}
