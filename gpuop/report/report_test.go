package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

func sample() report.Report {
	return report.Report{Rows: []report.Row{
		{ID: "b", State: report.Warning, File: "f.yaml", Line: 9, Subject: "x.y", Reason: "does nothing", Fix: "delete it"},
		{ID: "c", State: report.Note, Reason: "by the way"},
		{ID: "a", State: report.Failed, File: "f.yaml", Line: 2, Column: 3, Subject: "z", Reason: "breaks " + strings.Repeat("very ", 40) + "much"},
		{ID: "b", State: report.Warning, File: "f.yaml", Line: 9, Subject: "x.y", Reason: "does nothing", Fix: "delete it"},
	}}
}

func TestSortKeepsFilesTogetherAndDropsDoubles(t *testing.T) {
	r := sample()
	r.Sort()
	var got []string
	for _, f := range r.Rows {
		got = append(got, string(f.ID))
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := r.Summary(), "1 error, 1 warning, 1 note"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	if !r.AtLeast(report.Failed) || (&report.Report{}).AtLeast(report.Note) {
		t.Error("AtLeast")
	}
}

func TestText(t *testing.T) {
	r := sample()
	r.Sort()
	var plain, colour bytes.Buffer
	if err := r.WriteText(&plain, report.Style{}, false); err != nil {
		t.Fatal(err)
	}
	want := "f.yaml:2:3: error: z: breaks " + strings.Repeat("very ", 40) + "much [a]\n" +
		"f.yaml:9: warning: x.y: does nothing [b]\n  → delete it\nnote: by the way [c]\n"
	if diff := cmp.Diff(want, plain.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := r.WriteText(&colour, report.Style{Color: true}, false); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(colour.String(), "\x1b[31merror:\x1b[0m") {
		t.Error("colour where none is wanted, or none where it is")
	}
	r = report.Report{Rows: []report.Row{{ID: "x", State: report.Note, File: "f\x1b[2J.yaml", Subject: "a\x1b[31mb", Reason: "c\nd"}}}
	plain.Reset()
	if err := r.WriteText(&plain, report.Style{}, false); err != nil || strings.Contains(plain.String(), "\x1b") {
		t.Errorf("an input's escape sequence reaches the terminal: %q", plain.String())
	}
}

func TestSARIF(t *testing.T) {
	r := sample()
	r.Sort()
	var out bytes.Buffer
	if err := r.WriteSARIF(&out, "gpuop", "1"); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	run := log.Runs[0]
	if log.Version != "2.1.0" || len(run.Results) != 3 || run.Results[0].Level != "error" || run.Results[1].Level != "warning" || run.Results[2].Level != "note" {
		t.Errorf("%+v", run)
	}
	for _, result := range run.Results {
		if run.Tool.Driver.Rules[result.RuleIndex].ID != result.RuleID {
			t.Errorf("rule %d is not %s", result.RuleIndex, result.RuleID)
		}
	}
	if at := run.Results[0].Locations[0].PhysicalLocation; at.ArtifactLocation.URI != "f.yaml" || at.Region.StartLine != 2 {
		t.Errorf("%+v", at)
	}
}

func TestEmptyReportsAreLists(t *testing.T) {
	var out bytes.Buffer
	if err := report.WriteJSON(&out, report.Report{}); err != nil || !strings.Contains(out.String(), `"findings": []`) {
		t.Errorf("%s, %v", out.String(), err)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"driver", "toolkit", "devicePlugin", "gfd", "gds"}
	for _, tt := range []struct{ word, want string }{
		{"drivr", "driver"}, {"dirver", "driver"}, {"driver", "driver"}, {"toolkits", "toolkit"}, {"deviceplugin", "devicePlugin"}, {"gf", "gfd"}, {"xyz", ""}, {"", ""}, {"operator", ""},
	} {
		if got := report.Nearest(tt.word, known); got != tt.want {
			t.Errorf("Nearest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}

var at = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func tree() report.Report {
	t := report.Report{Judged: true, At: at}
	for i := range 5000 {
		name := fmt.Sprintf("gpu-%04d", i)
		t.Add(report.Row{ID: "allocatable", Node: name, Subject: "nvidia.com/gpu", Reason: "8 of 8 are allocatable on " + name + "."})
	}
	t.Add(
		report.Row{ID: "mig-state", State: report.Waiting, Node: "gpu-0007", Subject: "nvidia.com/mig.config.state", Since: at.Add(-time.Hour),
			Reason: "pending", Fix: "kubectl logs -n gpu-operator -l app=nvidia-mig-manager"},
		report.Row{ID: "policy", State: report.Failed, Subject: "ClusterPolicy/cluster-policy", Reason: "not\x1b[31mready"},
		report.Row{ID: "quota", State: report.Unknown, Subject: "resourcequotas", Reason: "may not list resourcequotas"},
	)
	return t
}

func TestTextSharesABranchAmongEqualNodes(t *testing.T) {
	tr := tree()
	var out bytes.Buffer
	tr.Sort()
	if err := tr.WriteText(&out, report.Style{}, false); err != nil {
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

// A name from the input must not write control characters to the terminal.
func TestHeadingsAreClean(t *testing.T) {
	tr := report.Report{Judged: true, Rows: []report.Row{
		{State: report.Failed, Node: "gpu\x1b[2J", Subject: "a", Reason: "b"}, {State: report.Failed, Nodes: "gpu-1, gpu\x1b[2J", Subject: "a", Reason: "b"},
	}}
	var out bytes.Buffer
	if err := tr.WriteText(&out, report.Style{}, false); err != nil || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestSARIFLeavesOutWhatIsAsIntended(t *testing.T) {
	tr := tree()
	tr.Sort()
	var out bytes.Buffer
	if err := tr.WriteSARIF(&out, "gpuop", "1"); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`"(?:text|level)": "[^"]+"`).FindAllString(out.String(), -1)
	want := []string{
		`"level": "error"`, `"text": "ClusterPolicy/cluster-policy: not\u001b[31mready"`,
		`"level": "warning"`, `"text": "resourcequotas: may not list resourcequotas"`,
		`"level": "warning"`, `"text": "gpu-0007: nvidia.com/mig.config.state: pending (fix: kubectl logs -n gpu-operator -l app=nvidia-mig-manager)"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatesAreWrittenAsWords(t *testing.T) {
	for s := report.OK; s <= report.Failed; s++ {
		data, err := json.Marshal(report.Row{State: s})
		if err != nil || !strings.Contains(string(data), `"state":"`+s.String()+`"`) {
			t.Errorf("%s: %s, %v", s, data, err)
		}
		if strings.Contains(string(data), "since") {
			t.Errorf("an unknown time is written: %s", data)
		}
	}
	for _, word := range []string{"error", "warning", "note"} {
		if s, err := report.AtSeverity(word); err != nil || s.Severity() != word {
			t.Errorf("%s came back as %s, %v", word, s.Severity(), err)
		}
	}
	if _, err := report.AtSeverity("fatal"); !errors.Is(err, report.ErrSeverity) {
		t.Errorf("%v", err)
	}
}
