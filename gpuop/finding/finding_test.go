package finding_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

func report() finding.Report {
	return finding.Report{Findings: []finding.Finding{
		{ID: "b", Severity: finding.Warning, File: "f.yaml", Line: 9, Subject: "x.y", Reason: "does nothing", Fix: "delete it", Source: "doc"},
		{ID: "c", Severity: finding.Info, Reason: "by the way"},
		{ID: "a", Severity: finding.Error, File: "f.yaml", Line: 2, Column: 3, Subject: "z", Reason: "breaks " + strings.Repeat("very ", 40) + "much"},
		{ID: "b", Severity: finding.Warning, File: "f.yaml", Line: 9, Subject: "x.y", Reason: "does nothing", Fix: "delete it", Source: "doc"},
	}}
}

func TestSortKeepsFilesTogetherAndDropsDoubles(t *testing.T) {
	r := report()
	r.Sort()
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.ID)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := r.Summary(), "1 error, 1 warning, 1 note"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	if !r.AtLeast(finding.Error) || (&finding.Report{}).AtLeast(finding.Info) {
		t.Error("AtLeast")
	}
}

func TestText(t *testing.T) {
	r := report()
	r.Sort()
	var plain, colour bytes.Buffer
	if err := r.WriteText(&plain, finding.Style{}); err != nil {
		t.Fatal(err)
	}
	want := "f.yaml\nerror  z  line 2\n       breaks " + strings.TrimSpace(strings.Repeat("very ", 19)) + "\n       " + strings.TrimSpace(strings.Repeat("very ", 21)) + "\n       much\n" +
		"warn   x.y  line 9\n       does nothing\n     → delete it\n\ninfo   c\n       by the way\n"
	if diff := cmp.Diff(want, plain.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := r.WriteText(&colour, finding.Style{Color: true}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(colour.String(), "\x1b[31merror\x1b[0m") {
		t.Error("colour where none is wanted, or none where it is")
	}
	r = finding.Report{Findings: []finding.Finding{{ID: "x", File: "f\x1b[2J.yaml", Subject: "a\x1b[31mb", Reason: "c\nd"}}}
	plain.Reset()
	if err := r.WriteText(&plain, finding.Style{}); err != nil || strings.Contains(plain.String(), "\x1b") {
		t.Errorf("an input's escape sequence reaches the terminal: %q", plain.String())
	}
}

func TestSARIF(t *testing.T) {
	r := report()
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
	if err := finding.WriteJSON(&out, finding.Report{}); err != nil || !strings.Contains(out.String(), `"findings": []`) {
		t.Errorf("%s, %v", out.String(), err)
	}
}

func TestSeverityReadsWhatItWrites(t *testing.T) {
	for _, s := range []finding.Severity{finding.Info, finding.Warning, finding.Error} {
		var back finding.Severity
		text, _ := s.MarshalText()
		if err := back.UnmarshalText(text); err != nil || back != s {
			t.Errorf("%s came back as %s, %v", s, back, err)
		}
	}
	var s finding.Severity
	if err := s.UnmarshalText([]byte("fatal")); !errors.Is(err, finding.ErrSeverity) {
		t.Errorf("%v", err)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"driver", "toolkit", "devicePlugin", "gfd", "gds"}
	for _, tt := range []struct{ word, want string }{
		{"drivr", "driver"}, {"dirver", "driver"}, {"driver", "driver"}, {"toolkits", "toolkit"}, {"deviceplugin", "devicePlugin"}, {"gf", "gfd"}, {"xyz", ""}, {"", ""}, {"operator", ""},
	} {
		if got := finding.Nearest(tt.word, known); got != tt.want {
			t.Errorf("Nearest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}
