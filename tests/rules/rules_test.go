package rules

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

const (
	root       = "../.."
	runbookURL = "https://github.com/gpu-telemetry/dcgm-exporter/blob/main/docs/runbooks.md#"
)

// A rule is an alert or a recording rule in deployment/rules, with its parsed expression.
type rule struct {
	rulefmt.Rule
	file, group string
	expr        parser.Expr
}

// ruleFiles returns the absolute paths of the rule files.
func ruleFiles(t *testing.T) []string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "deployment", "rules"))
	if err != nil {
		t.Fatal(err)
	}
	return folder.Files(t, path, "*.yml")
}

// parsed caches the rules of deployment/rules.
var parsed []rule

// allRules returns all rules in file order.
func allRules(t *testing.T) []rule {
	t.Helper()
	if parsed != nil {
		return slices.Clone(parsed)
	}
	var all []rule
	p := parser.NewParser(parser.Options{})
	for _, path := range ruleFiles(t) {
		groups, errs := rulefmt.ParseFile(path, false, model.LegacyValidation, p, slog.New(slog.DiscardHandler))
		if len(errs) > 0 {
			t.Fatal(path, errs)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				expr, err := p.ParseExpr(r.Expr)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, rule{r, filepath.Base(path), g.Name, expr})
			}
		}
	}
	parsed = all
	return slices.Clone(all)
}

func alerts(t *testing.T) []rule {
	t.Helper()
	return slices.DeleteFunc(allRules(t), func(r rule) bool { return r.Alert == "" })
}

// selected returns the names of the metrics that an expression selects.
func selected(expr parser.Node) []string {
	var names []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			names = append(names, s.Name)
		}
		return nil
	})
	return names
}

// Every alert has a severity, a summary, a description and a runbook.
func TestAlertsAreComplete(t *testing.T) {
	list := alerts(t)
	if len(list) < 25 {
		t.Errorf("found %d alerts, want at least 25", len(list))
	}
	for _, a := range list {
		if s := a.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, s) ||
			len(a.Labels) != 1 {
			t.Errorf("%s has labels %v, want only a severity: critical, warning or info", a.Alert, a.Labels)
		}
		for _, name := range []string{"summary", "description"} {
			if a.Annotations[name] == "" {
				t.Errorf("%s has no %s", a.Alert, name)
			}
		}
		if got, want := a.Annotations["runbook_url"], runbookURL+strings.ToLower(a.Alert); got != want {
			t.Errorf("%s has runbook_url %q, want %q", a.Alert, got, want)
		}
	}
}

// Every metric that a rule selects is served or recorded. If a field has two names, the rule selects both.
func TestSelectedMetricsExist(t *testing.T) {
	recorded := recordings(t)
	page := folder.Read(t, root, "docs", "metrics.md")
	for _, r := range allRules(t) {
		names := selected(r.expr)
		for _, name := range names {
			n, field := catalog.Lookup(name)
			switch {
			case recorded[name] != nil, name == "up", catalog.FamilyNamed(name) != nil:
			case field:
				for _, other := range []string{n.Entry.Classic, n.Entry.Current} {
					if !slices.Contains(names, other) {
						t.Errorf("%s%s selects %s but not %s", r.Alert, r.Record, name, other)
					}
				}
			case !strings.Contains(page, "| `"+name+"` |"):
				t.Errorf("%s%s selects %s, which is neither served nor recorded", r.Alert, r.Record, name)
			}
		}
	}
}

// The name of a recording rule has a level, a metric and an operation. Only the rule itself and later rules in the same
// group read a recorded series. Groups are evaluated at different times, so a rule in another group could read a value
// that is one interval old.
func TestRecordings(t *testing.T) {
	groups, all, read := map[string]string{}, recordings(t), 0
	for _, r := range allRules(t) {
		group := r.file + " " + r.group
		for _, name := range selected(r.expr) {
			if all[name] == nil {
				continue
			}
			read++
			if groups[name] != group && name != r.Record {
				t.Errorf("rule %s%s in group %q reads %s, which group %q records before it, want the same group",
					r.Record, r.Alert, group, name, groups[name])
			}
		}
		if r.Record == "" {
			continue
		}
		if !recordedName.MatchString(r.Record) {
			t.Errorf("recording rule %s does not have the form level:metric:operation", r.Record)
		}
		groups[r.Record] = group
	}
	if read < 20 {
		t.Errorf("rules that read a recorded series = %d, want at least 20", read)
	}
}

var recordedName = regexp.MustCompile(`^[a-z_]+:[a-z0-9_]+:[a-z0-9_]+$`)

// Every alert has a runbook, and every runbook has an alert. The recorded series that the runbooks name exist.
func TestRunbooks(t *testing.T) {
	text := folder.Read(t, root, "docs", "runbooks.md")
	var names, sections []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
	}
	for _, m := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(text, -1) {
		sections = append(sections, m[1])
	}
	slices.Sort(names)
	slices.Sort(sections)
	if diff := cmp.Diff(names, sections); diff != "" {
		t.Errorf("sections of docs/runbooks.md (-alerts +sections):\n%s", diff)
	}
	recorded := recordings(t)
	for _, name := range regexp.MustCompile(`\b[a-z_]+:[a-z0-9_]+:[a-z0-9_]+\b`).FindAllString(text, -1) {
		if recorded[name] == nil {
			t.Errorf("docs/runbooks.md names the recorded series %s, which does not exist", name)
		}
	}
}

var update = flag.Bool("update", false, "write the tables of docs/runbooks.md")

// written checks a generated part of a document between two marks. With -update it writes that part.
func written(t *testing.T, doc, mark, want string) {
	t.Helper()
	text := folder.Read(t, root, "docs", doc)
	begin := strings.Index(text, "<!-- "+mark+":")
	end := strings.Index(text, "<!-- end of "+mark+" -->")
	if begin < 0 || end < begin {
		t.Fatalf("docs/%s: markers of the generated part %s are missing or in the wrong order", doc, mark)
	}
	begin += strings.Index(text[begin:], "\n") + 1
	want = "\n" + want + "\n"
	if text[begin:end] == want {
		return
	}
	if !*update {
		t.Fatalf("docs/%s is out of date; run go test ./tests/rules -update\nwant:%s\ngot:%s", doc, want,
			text[begin:end])
	}
	folder.Write(t, filepath.Join(root, "docs", doc), text[:begin]+want+text[end:])
}

// meaning returns the counters file entry that serves a metric, or "" if the metric needs none.
func meaning(name string) string {
	if n, ok := catalog.Lookup(name); ok {
		return n.Entry.Classic
	}
	if catalog.IsInGroup(name, catalog.Requested) {
		return name
	}
	return ""
}

// collected returns the fields and families that a counters file selects.
func collected(t *testing.T, file []byte) map[string]bool {
	t.Helper()
	requests, problems, err := counters.Parse(bytes.NewReader(file), "file")
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	have := map[string]bool{}
	for _, r := range requests {
		have[meaning(r.Name)] = true
	}
	return have
}

// isHost reports whether name is a recording of host names. Such a recording has a series for each exporter, whatever
// the exporter's counters file.
func isHost(name string) bool { return strings.HasSuffix(name, ":host:info") }

// answers reports whether an expression can have a result with a counters file. For "or", one operand is enough. For
// "unless", the right side is not needed.
func answers(e parser.Node, recorded map[string]parser.Expr, have map[string]bool) bool {
	switch n := e.(type) {
	case *parser.VectorSelector:
		if isHost(n.Name) {
			return true
		}
		if r, ok := recorded[n.Name]; ok {
			return answers(r, recorded, have)
		}
		line := meaning(n.Name)
		return line == "" || have[line]
	case *parser.BinaryExpr:
		left, right := answers(n.LHS, recorded, have), answers(n.RHS, recorded, have)
		switch n.Op {
		case parser.LOR:
			return left || right
		case parser.LUNLESS:
			return left
		default:
			return left && right
		}
	default:
		for c := range parser.ChildrenIter(e) {
			if !answers(c, recorded, have) {
				return false
			}
		}
		return true
	}
}

// lines returns the counters file entries that an expression can use.
func lines(e parser.Node, recorded map[string]parser.Expr) []string {
	var list []string
	for _, name := range selected(e) {
		if isHost(name) {
			continue
		}
		if r, ok := recorded[name]; ok {
			list = append(list, lines(r, recorded)...)
		} else if line := meaning(name); line != "" {
			list = append(list, line)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func recordings(t *testing.T) map[string]parser.Expr {
	recorded := map[string]parser.Expr{}
	for _, r := range allRules(t) {
		if r.Record != "" {
			recorded[r.Record] = r.expr
		}
	}
	return recorded
}

// shipped returns a counters file of the project.
func shipped(t *testing.T, name string) []byte {
	t.Helper()
	content, ok := etc.File(name)
	if !ok {
		t.Fatalf("counters file %s does not exist", name)
	}
	return content
}

// The table in the runbooks lists the lines of the counters file that an alert uses, and whether it can fire with the
// default file. With the health file or the fleet file, every alert can fire. Both have all lines of the default file.
func TestNeeds(t *testing.T) {
	recorded := recordings(t)
	standard := collected(t, etc.Default())
	for _, name := range []string{etc.HealthName, etc.FleetName} {
		have := collected(t, shipped(t, name))
		for _, a := range alerts(t) {
			if !answers(a.expr, recorded, have) {
				t.Errorf("%s cannot fire with %s", a.Alert, name)
			}
		}
		for line := range standard {
			if !have[line] {
				t.Errorf("%s does not have %s, which is in the default file", name, line)
			}
		}
	}
	var b strings.Builder
	b.WriteString("| alert | severity | for | lines | default |\n|---|---|---|---|---|\n")
	fires := 0
	for _, a := range alerts(t) {
		used := "–"
		if list := lines(a.expr, recorded); len(list) > 0 {
			used = "`" + strings.Join(list, "`, `") + "`"
		}
		wait := "–"
		if a.For > 0 {
			wait = a.For.String()
		}
		inDefault := "no"
		if answers(a.expr, recorded, standard) {
			inDefault = "yes"
			fires++
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s |\n", a.Alert, strings.ToLower(a.Alert),
			a.Labels["severity"], wait, used, inDefault)
	}
	if fires < 25 {
		t.Errorf("alerts that can fire with the default counters = %d, want at least 25", fires)
	}
	written(t, "runbooks.md", "needs", b.String())
}

// matchesXID reports whether an expression selects the series of a metric with an XID.
func matchesXID(expr parser.Expr, metric, code string) (found bool) {
	ofCode := func(m *labels.Matcher) bool { return m.Name == "xid" && m.Matches(code) }
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok && s.Name == metric {
			found = found || slices.ContainsFunc(s.LabelMatchers, ofCode)
		}
		return nil
	})
	return found
}

// Each XID fires only the alert of its class. It stays recent for an hour if and only if the memory of its class is at
// least an hour.
func TestXIDs(t *testing.T) {
	list, recent := alerts(t), recordings(t)["gpu:xids_scraped:recent"]
	for code := int64(1); code < 1000; code++ {
		x, word := catalog.XIDOf(code), strconv.FormatInt(code, 10)
		got := ""
		for _, a := range list {
			if matchesXID(a.expr, "gpu:xids:recent", word) {
				got += a.Alert + " " + a.Labels["severity"]
			}
		}
		if want := strings.TrimSpace(x.Class.Alert + " " + string(x.Class.Severity)); got != want {
			t.Errorf("XID %d (%v) fires %q, want %q", code, x.Class, got, want)
		}
		if longer := matchesXID(recent, catalog.XIDLastSeen, word); longer != (x.Class.Memory >= time.Hour) {
			t.Errorf("XID %d (%v): stays recent for an hour: %t, want %t", code, x.Class, longer, !longer)
		}
		if catalog.XIDMessage(code) != "Unknown Error" && (x.First == "" || x.Source == "") {
			t.Errorf("XID %d: action = %q, source = %q; want both", code, x.First, x.Source)
		}
	}
	for _, code := range catalog.AlertXIDs() {
		if catalog.XIDOf(code).Class == catalog.XIDApplication {
			t.Errorf("XID %d is in catalog.AlertXIDs although applications cause it", code)
		}
	}
}
