package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
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
	golden(t, "explain-compare.txt", transcript("", "explain", "compare"))
}

// The issue: any key from the specification, so every key that any version of the chart has.
func TestEveryChartKeyIsExplained(t *testing.T) {
	for _, key := range chart.Load().AllKeys() {
		if entry, ok := chartKey(key.Path.String()); !ok || entry.Meaning == "" || len(entry.Details) != 2 {
			t.Errorf("%s: %+v", key.Path, entry)
		}
	}
}

func TestExplainAsJSON(t *testing.T) {
	code, out, errOut := call("", "explain", "nvidia.com/mig.config.state", "-o", "json")
	var got struct{ Result []explain.Entry }
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || len(got.Result) != 1 || got.Result[0].Writer != "MIG manager" {
		t.Errorf("exit %d, %v, %s%s", code, err, out, errOut)
	}
	code, out, _ = call("", "explain", "compare", "-o", "json")
	var table struct{ Result compareResult }
	if err := json.Unmarshal([]byte(out), &table); err != nil || code != 0 || len(table.Result.Ways) != 5 || len(table.Result.Rows) < 10 {
		t.Errorf("exit %d, %v, %s", code, err, out)
	}
	if code, out, _ := call("", "explain", "list"); code != 0 || !strings.Contains(out, "nvidia.com/gpu.present") {
		t.Errorf("list: exit %d, %s", code, out)
	}
}
