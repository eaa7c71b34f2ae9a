package check_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// named returns the check with the given ID, and declares it if necessary.
func named(id string) *check.Check {
	if c := check.Find(id); c != nil {
		return c
	}
	return check.New(id, check.Error, "title of "+id, "help", "source")
}

func sample() check.Report {
	return check.Report{Findings: []check.Finding{
		{Check: named("b"), Severity: check.Warning, File: "f.yaml", Line: 9, Subject: "x.y", Reason: "does nothing", Fix: "delete it"},
		{Check: named("c"), Severity: check.Note, Reason: "by the way"},
		{Check: named("a"), Severity: check.Error, File: "f.yaml", Line: 2, Column: 3, Subject: "z", Reason: "breaks " + strings.Repeat("very ", 40) + "much"},
		{Check: named("b"), Severity: check.Warning, File: "f.yaml", Line: 9, Subject: "x.y", Reason: "does nothing", Fix: "delete it"},
	}}
}

func TestSortKeepsFilesTogetherAndDropsDuplicates(t *testing.T) {
	r := sample()
	r.Sort()
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Check.ID)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
		t.Errorf("IDs of the sorted findings (-want +got):\n%s", diff)
	}
	if got, want := r.Summary(), "1 error, 1 warning, 1 note"; got != want {
		t.Errorf("summary = %q, want %q", got, want)
	}
	if got, empty := r.AtLeast(check.Error), (&check.Report{}).AtLeast(check.Note); !got || empty {
		t.Errorf("AtLeast(Error) of a report with an error = %t, AtLeast(Note) of an empty report = %t; want true and false", got, empty)
	}
}

func TestText(t *testing.T) {
	r := sample()
	r.Sort()
	var plain, colored bytes.Buffer
	if err := r.WriteText(&plain, check.Style{}, false); err != nil {
		t.Fatal(err)
	}
	want := "f.yaml:2:3: error: z: breaks " + strings.Repeat("very ", 40) + "much [a]\n" +
		"f.yaml:9: warning: x.y: does nothing [b]\n  → delete it\nnote: by the way [c]\n"
	if diff := cmp.Diff(want, plain.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if err := r.WriteText(&colored, check.Style{Color: true}, false); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(colored.String(), "\x1b[31merror:\x1b[0m") {
		t.Errorf("text = %q, with color = %q; want escape sequences only with color", plain.String(), colored.String())
	}
	r = check.Report{Findings: []check.Finding{{Check: named("x"), Severity: check.Note, File: "f\x1b[2J.yaml", Subject: "a\x1b[31mb", Reason: "c\nd"}}}
	plain.Reset()
	if err := r.WriteText(&plain, check.Style{}, false); err != nil || strings.Contains(plain.String(), "\x1b") {
		t.Errorf("text = %q, error = %v; want no escape sequence of the input", plain.String(), err)
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
		t.Errorf("SARIF run = %+v, want an error, a warning and a note", run)
	}
	for _, result := range run.Results {
		if got := run.Tool.Driver.Rules[result.RuleIndex].ID; got != result.RuleID {
			t.Errorf("rule %d has the ID %s, want %s", result.RuleIndex, got, result.RuleID)
		}
	}
	if at := run.Results[0].Locations[0].PhysicalLocation; at.ArtifactLocation.URI != "f.yaml" || at.Region.StartLine != 2 {
		t.Errorf("SARIF location = %+v, want f.yaml:2", at)
	}
}

func TestEmptyReportsAreLists(t *testing.T) {
	var out bytes.Buffer
	if err := check.WriteJSON(&out, check.Report{}); err != nil || !strings.Contains(out.String(), `"findings": []`) {
		t.Errorf("JSON = %s, error = %v; want an empty list of findings", out.String(), err)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"driver", "toolkit", "devicePlugin", "gfd", "gds"}
	for _, tt := range []struct{ word, want string }{
		{"drivr", "driver"}, {"dirver", "driver"}, {"driver", "driver"}, {"toolkits", "toolkit"}, {"deviceplugin", "devicePlugin"}, {"gf", "gfd"}, {"xyz", ""}, {"", ""}, {"operator", ""},
	} {
		if got := check.Nearest(tt.word, known); got != tt.want {
			t.Errorf("Nearest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}

var at = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func tree() check.Report {
	t := check.Report{Judged: true, At: at}
	for i := range 5000 {
		name := fmt.Sprintf("gpu-%04d", i)
		t.Add(check.Finding{Check: named("allocatable"), Node: name, Subject: "nvidia.com/gpu", Reason: "8 of 8 are allocatable on " + name + "."})
	}
	t.Add(
		check.Finding{Check: named("mig-state"), Severity: check.Waiting, Node: "gpu-0007", Subject: "nvidia.com/mig.config.state", Since: at.Add(-time.Hour),
			Reason: "pending", Fix: "kubectl logs -n gpu-operator -l app=nvidia-mig-manager"},
		check.Finding{Check: named("policy"), Severity: check.Error, Subject: "ClusterPolicy/cluster-policy", Reason: "not\x1b[31mready"},
		check.Finding{Check: named("quota"), Severity: check.Unknown, Subject: "resourcequotas", Reason: "may not list resourcequotas"},
	)
	return t
}

func TestTextOfACluster(t *testing.T) {
	tr := tree()
	var out bytes.Buffer
	tr.Sort()
	if err := tr.WriteText(&out, check.Style{}, false); err != nil {
		t.Fatal(err)
	}
	want := "ClusterPolicy/cluster-policy: error: not\ufffd[31mready [policy]\n" +
		"cluster: warning: resourcequotas: may not list resourcequotas [quota]\n" +
		"Node/gpu-0007: warning: nvidia.com/mig.config.state: pending (for 1h0m0s) [mig-state]\n" +
		"  → kubectl logs -n gpu-operator -l app=nvidia-mig-manager\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("text of a cluster (-want +got):\n%s", diff)
	}
	if got, want := tr.Summary(), "1 error, 2 warnings, 5000 passed"; got != want {
		t.Errorf("summary = %q, want %q", got, want)
	}
}

// Names of nodes may contain control characters. WriteText must not write them to the terminal.
func TestNodeNamesAreClean(t *testing.T) {
	tr := check.Report{Judged: true, Findings: []check.Finding{
		{Check: named("a"), Severity: check.Error, Node: "gpu\x1b[2J", Subject: "a", Reason: "b"}, {Check: named("a"), Severity: check.Error, Nodes: "gpu-1, gpu\x1b[2J", Subject: "a", Reason: "b"},
	}}
	var out bytes.Buffer
	if err := tr.WriteText(&out, check.Style{}, false); err != nil || strings.Contains(out.String(), "\x1b") {
		t.Errorf("text = %q, error = %v; want no escape sequence", out.String(), err)
	}
}

func TestSeveritiesAreWords(t *testing.T) {
	for s := check.OK; s <= check.Error; s++ {
		data, err := json.Marshal(check.Finding{Check: named("a"), Severity: s})
		if err != nil || !strings.Contains(string(data), `"severity":"`+s.String()+`"`) {
			t.Errorf("JSON of a finding = %s, error = %v; want the severity %s", data, err, s)
		}
		if strings.Contains(string(data), "since") {
			t.Errorf("JSON of a finding without a time = %s, want no since", data)
		}
	}
	for _, word := range []string{"error", "warning", "note"} {
		if s, err := check.AtSeverity(word); err != nil || s.String() != word {
			t.Errorf("AtSeverity(%q) = %s, error %v; want %s", word, s, err, word)
		}
	}
	if _, err := check.AtSeverity("fatal"); err == nil {
		t.Errorf("AtSeverity(\"fatal\") returned no error")
	}
}

// In each text, the word lint follows a name that looks like a secret's. It is an ordinary word, and must not be
// masked.
func TestOrdinaryWordsAreNotMasked(t *testing.T) {
	for _, text := range []string{
		"secret-scan:\n  stage: lint\n",
		"env:\n  AUTH_METHOD: lint\n",
		"# ROOT_TOKEN: lint a copy first\n",
	} {
		var secrets check.Secrets
		secrets.LearnYAML([]byte(text))
		if got, want := secrets.Replace("gpuop lint"), "gpuop lint"; got != want {
			t.Errorf("after learning %q, gpuop lint is masked as %q, want %q", text, got, want)
		}
	}
}

func TestMask(t *testing.T) {
	for text, want := range map[string]string{
		"helm install --password hunter2":          "helm install --password ***",
		"--set a.api_key=k1234,b=1":                "--set a.api_key=***,b=1",
		"echo nvapi-0123456789abcdefXYZ":           "echo ***",
		"--docker-password=\"$NGC_KEY\" --set a=b": "--docker-password=\"$NGC_KEY\" --set a=b",
		// a short number is a secret behind the name of one; elsewhere it is a user, a group or a port
		`--set driver.password=123456 --user 1000:1000 http://u:8080@example.com token: "42"`: `--set driver.password=*** --user 1000:1000 http://u:8080@example.com token: "***"`,
	} {
		if got := check.Mask(text); got != want {
			t.Errorf("Mask(%q) = %q, want %q", text, got, want)
		}
	}
}
