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

func TestExplainAsJSON(t *testing.T) {
	code, out, errOut := call("", "explain", "nvidia.com/mig.config.state", "-o", "json")
	var got struct{ Result []explain.Entry }
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || len(got.Result) != 1 || got.Result[0].Writer != "MIG manager" {
		t.Errorf("exit %d, error %v, output %s%s; want 0 and one entry that the MIG manager writes", code, err, out, errOut)
	}
}
