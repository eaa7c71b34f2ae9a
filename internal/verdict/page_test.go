package verdict

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

var update = flag.Bool("update", false, "write the table of docs/verdict.md")

const marks = "<!-- rules: go test ./internal/verdict -run ^TestPage$ -update -->\n|<!-- end of rules -->\n"

// The page has the table as it is.
func TestPage(t *testing.T) {
	const path = "../../docs/verdict.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open, end, _ := strings.Cut(marks, "|")
	head, rest, ok := strings.Cut(string(text), open)
	_, tail, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatal("docs/verdict.md has no marks of the table")
	}
	want := head + open + "\n" + markdown() + "\n" + end + tail
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("docs/verdict.md is out of date: go test ./internal/verdict -run ^TestPage$ -update (-want +got):\n%s", diff)
	}
}

// markdown returns the table, the gravest verdicts first.
func markdown() string {
	var b strings.Builder
	b.WriteString("| verdict | reason | signal | for | memory | what it means |\n|---|---|---|---|---|---|\n")
	for _, v := range slices.Backward(verdicts[:]) {
		for i := range table {
			if x := &table[i]; x.verdict == v {
				fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", v, x.reason, x.signal, span(x.after), span(x.memory), x.what)
			}
		}
	}
	return b.String()
}

// String returns the signal in words and Prometheus' spelling.
func (s signal) String() string {
	if s.down {
		reason := map[bool]string{false: `="lost"`, true: `!="lost"`}[s.others]
		return "`dcgm_exporter_entity_up{reason" + reason + "}` is 0"
	}
	var names []string
	for _, id := range s.fields {
		e, _ := catalog.ByID(id)
		names = append(names, "`"+e.Classic+"`")
	}
	if s.family != "" {
		matcher := ""
		if s.active {
			matcher = fmt.Sprintf("{%s=\"\"}", catalog.TreatmentLabel)
		}
		if s.label != "" {
			matcher = fmt.Sprintf("{%s=~%q}", s.label, strings.ReplaceAll(strings.Join(s.values, "|"), "|", `\|`))
		}
		names = append(names, "`"+strings.ReplaceAll(s.family+matcher, `\\|`, `\|`)+"`")
	}
	name := strings.Join(names, " + ")
	switch {
	case s.test == grows:
		return name + " grows"
	case s.test == recent:
		return name + " lies within the memory"
	case s.most > s.least:
		return fmt.Sprintf("%s ≥ %v", name, s.least)
	default:
		return fmt.Sprintf("%s is %v", name, s.least)
	}
}

func span(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	default:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
}
