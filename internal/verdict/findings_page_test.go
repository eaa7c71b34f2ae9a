package verdict

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

const findingMarks = "<!-- findings: go test ./internal/verdict -run Page$ -update -->\n|<!-- end of findings -->\n"

// The page has the table of findings.
func TestFindingsPage(t *testing.T) {
	const path = "../../docs/verdict.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open, end, _ := strings.Cut(findingMarks, "|")
	head, rest, opens := strings.Cut(string(text), open)
	_, tail, ends := strings.Cut(rest, end)
	if !opens || !ends {
		t.Fatal("docs/verdict.md has no marks of the table of findings")
	}
	want := head + open + "\n" + findingsTable() + "\n" + end + tail
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("docs/verdict.md is out of date: go test ./internal/verdict -run Page$ -update (-want +got):\n%s", diff)
	}
}

// findingsTable returns the table in Markdown: the findings that alerts and the verdict do not use, then the active ones.
func findingsTable() string {
	var b strings.Builder
	b.WriteString("| `health_error_code` | severity | category | treatment | why |\n|---|---|---|---|---|\n")
	for _, active := range []bool{false, true} {
		for _, f := range catalog.Findings() {
			if active != (f.Treatment == catalog.Active) {
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Code, f.Severity, f.Category, treatmentOf(&f), f.Why)
		}
	}
	return b.String()
}

func treatmentOf(f *catalog.Finding) string {
	words := f.Treatment.String()
	if f.Treatment == catalog.BySeries {
		words = "superseded by `" + f.By + "`"
	}
	if f.Watch != "" {
		words += ", under " + f.Watch + " only"
	}
	return words
}
