package rules

import (
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
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
