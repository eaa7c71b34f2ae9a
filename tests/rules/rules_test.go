package rules

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
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
	folder, err := filepath.Abs(filepath.Join(root, "deployment", "rules"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d rule files, want at least 3 (error %v)", len(files), err)
	}
	return files
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

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every alert has a severity, a summary, a description and a runbook. It has a "for" duration, or a comment that says
// why it has none.
func TestAlertsAreComplete(t *testing.T) {
	list := alerts(t)
	if len(list) < 25 {
		t.Errorf("found %d alerts, want at least 25", len(list))
	}
	seen := map[string]bool{}
	for _, a := range list {
		if seen[a.Alert] {
			t.Errorf("%s is defined twice", a.Alert)
		}
		seen[a.Alert] = true
		if s := a.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, s) || len(a.Labels) != 1 {
			t.Errorf("%s has labels %v, want only a severity: critical, warning or info", a.Alert, a.Labels)
		}
		for _, name := range []string{"summary", "description"} {
			if len(a.Annotations[name]) < 15 {
				t.Errorf("%s has %s %q, want a text of at least 15 bytes", a.Alert, name, a.Annotations[name])
			}
		}
		if url := a.Annotations["runbook_url"]; url != runbookURL+strings.ToLower(a.Alert) {
			t.Errorf("%s has runbook_url %q, want %q", a.Alert, url, runbookURL+strings.ToLower(a.Alert))
		}
		reason := strings.Contains(read(t, "deployment", "rules", a.file), "# No \"for\": the expression stays true for minutes after the event.\n      - alert: "+a.Alert+"\n")
		if (a.For == 0) != reason {
			t.Errorf("%s: for = %v, comment that explains a missing for: %t; want the comment exactly if for is 0", a.Alert, a.For, reason)
		}
	}
}

// Every metric that a rule selects is served or recorded. If a field has two names, the rule selects both.
func TestSelectedMetricsExist(t *testing.T) {
	recorded := recordings(t)
	page := read(t, "docs", "metrics.md")
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

// The name of a recording rule is unique and has a level, a metric and an operation. Only the rule itself and later
// rules in the same group read a recorded series. Groups are evaluated at different times, so a rule in another group
// could read a value that is one interval old.
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
				t.Errorf("rule %s%s in group %q reads %s; group of the rule that records it before = %q, want the same group", r.Record, r.Alert, group, name, groups[name])
			}
		}
		if r.Record == "" {
			continue
		}
		if !recordedName.MatchString(r.Record) {
			t.Errorf("recording rule %s does not have the form level:metric:operation", r.Record)
		}
		if groups[r.Record] != "" {
			t.Errorf("recording rule %s is defined twice, in the groups %q and %q", r.Record, groups[r.Record], group)
		}
		groups[r.Record] = group
	}
	if read < 20 {
		t.Errorf("rules that read a recorded series = %d, want at least 20", read)
	}
}

var recordedName = regexp.MustCompile(`^[a-z_]+:[a-z0-9_]+:[a-z0-9_]+$`)

// Every alert has a runbook, and every runbook has an alert.
func TestRunbooks(t *testing.T) {
	text := read(t, "docs", "runbooks.md")
	left := map[string]bool{}
	for _, a := range alerts(t) {
		left[a.Alert] = true
	}
	sections := strings.Split(text, "\n### ")[1:]
	for _, s := range sections {
		name, body, _ := strings.Cut(s, "\n")
		if !left[name] {
			t.Errorf("runbook %q: headings with this name = %d, want 1, and an alert with this name", name, strings.Count(text, "\n### "+name+"\n"))
		}
		delete(left, name)
		for _, part := range []string{"\n- **See:** ", "\n- **Do:** ", "\n- **Do not** "} {
			if strings.Count(body, part) != 1 {
				t.Errorf("runbook %s: %d occurrences of %q, want 1", name, strings.Count(body, part), part)
			}
		}
	}
	for name := range left {
		t.Errorf("alert %s has no runbook", name)
	}
	checkCommands(t, text, sections)
	recorded := recordings(t)
	for _, name := range regexp.MustCompile(`\b[a-z_]+:[a-z0-9_]+:[a-z0-9_]+\b`).FindAllString(text, -1) {
		if recorded[name] == nil {
			t.Errorf("docs/runbooks.md names the recorded series %s, which does not exist", name)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(#([a-z0-9-]+)\)`).FindAllStringSubmatch(text, -1) {
		heading := regexp.MustCompile(`(?mi)^#+ ` + strings.ReplaceAll(m[1], "-", "[ -]") + `$`)
		if !heading.MatchString(text) {
			t.Errorf("link to #%s: no such heading", m[1])
		}
	}
}

// checkCommands checks that the runbooks have the shared commands, such as draining a node and resetting a GPU. A
// runbook that says to drain or reset must link to them.
func checkCommands(t *testing.T, text string, sections []string) {
	t.Helper()
	for _, command := range []string{
		"kubectl cordon $NODE", "kubectl drain $NODE ", "kubectl uncordon $NODE", "nvidia-smi --gpu-reset -i $UUID", "nvidia-bug-report.sh",
		`dcgm_pod_gpu_info{UUID="`, "--field-selector spec.nodeName=$NODE",
	} {
		if !strings.Contains(text, command) {
			t.Errorf("docs/runbooks.md lacks the command %s", command)
		}
	}
	for _, s := range sections {
		name, body, _ := strings.Cut(s, "\n")
		_, do, _ := strings.Cut(body, "\n- **Do:** ")
		do, _, _ = strings.Cut(do, "\n- **Do not** ")
		for word, link := range map[string]string{`(?i)\b(cordon|drain)\b`: "](#drain-a-node)", `(?i)\breset (it|the GPU|its GPUs|all)\b`: "](#reset-a-gpu)"} {
			if regexp.MustCompile(word).MatchString(do) && !strings.Contains(do, link) {
				t.Errorf("runbook %s: text that matches %s has no link %s", name, word, link)
			}
		}
	}
}

// xidAlert returns the alert that an XID code fires. If there are several, the test fails.
func xidAlert(t *testing.T, list []rule, code string) string {
	t.Helper()
	var found []string
	for _, a := range list {
		parser.Inspect(a.expr, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok && s.Name == "gpu:xids:recent" {
				for _, m := range s.LabelMatchers {
					if m.Name == "xid" && m.Matches(code) {
						found = append(found, a.Alert)
					}
				}
			}
			return nil
		})
	}
	if len(found) > 1 {
		t.Errorf("XID %s matches alerts %v, want at most one", code, found)
	}
	return strings.Join(found, ", ")
}
