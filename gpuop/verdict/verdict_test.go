package verdict_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

var at = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func tree() verdict.Tree {
	t := verdict.Tree{At: at}
	for i := range 5000 {
		name := fmt.Sprintf("gpu-%04d", i)
		t.Add(verdict.Verdict{ID: "allocatable", Node: name, Subject: "nvidia.com/gpu", Reason: "8 of 8 are allocatable on " + name + "."})
	}
	t.Add(
		verdict.Verdict{ID: "mig-state", State: verdict.Waiting, Node: "gpu-0007", Subject: "nvidia.com/mig.config.state", Since: at.Add(-time.Hour),
			Reason: "pending", Next: "kubectl logs -n gpu-operator -l app=nvidia-mig-manager"},
		verdict.Verdict{ID: "policy", State: verdict.Failed, Subject: "ClusterPolicy/cluster-policy", Reason: "not\x1b[31mready"},
		verdict.Verdict{ID: "quota", State: verdict.Unknown, Subject: "resourcequotas", Reason: "may not list resourcequotas"},
	)
	return t
}

func TestTextSharesABranchAmongEqualNodes(t *testing.T) {
	tr := tree()
	var out bytes.Buffer
	if err := tr.WriteText(&out, finding.Style{}, false); err != nil {
		t.Fatal(err)
	}
	want := `cluster
  failed  ClusterPolicy/cluster-policy
          not` + "\ufffd" + `[31mready
  unknown resourcequotas
          may not list resourcequotas
gpu-0007
  waiting nvidia.com/mig.config.state  for 1h0m0s
          pending
        → kubectl logs -n gpu-operator -l app=nvidia-mig-manager
  ok      1 check as intended
gpu-0000, gpu-0001 and 4997 more nodes
  ok      1 check as intended
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := tr.Summary(), "1 failed, 1 unknown, 1 waiting, 5000 ok"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
}

// A name of the input writes no control character to the terminal.
func TestHeadingsAreClean(t *testing.T) {
	tr := verdict.Tree{Verdicts: []verdict.Verdict{
		{State: verdict.Failed, Node: "gpu\x1b[2J", Subject: "a", Reason: "b"}, {State: verdict.Failed, Nodes: "gpu-1, gpu\x1b[2J", Subject: "a", Reason: "b"},
	}}
	var out bytes.Buffer
	if err := tr.WriteText(&out, finding.Style{}, false); err != nil || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestReportLeavesOutWhatIsAsIntended(t *testing.T) {
	tr := tree()
	tr.Sort()
	report := tr.Report()
	var got []string
	for _, f := range report.Findings {
		got = append(got, f.Severity.String()+" "+f.Subject)
	}
	want := []string{"error ClusterPolicy/cluster-policy", "warn resourcequotas", "warn gpu-0007: nvidia.com/mig.config.state"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatesReadWhatTheyWrite(t *testing.T) {
	for s := verdict.OK; s <= verdict.Failed; s++ {
		data, err := json.Marshal(verdict.Verdict{State: s})
		var back verdict.Verdict
		if err != nil || json.Unmarshal(data, &back) != nil || back.State != s {
			t.Errorf("%s: %s came back as %s, %v", s, data, back.State, err)
		}
		if strings.Contains(string(data), "since") {
			t.Errorf("an unknown time is written: %s", data)
		}
	}
	if err := json.Unmarshal([]byte(`{"state":"fine"}`), new(verdict.Verdict)); err == nil {
		t.Error("fine is a state")
	}
}
