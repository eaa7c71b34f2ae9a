package rules

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// runTests runs files of unit tests by promtool, and returns what it says.
func runTests(t *testing.T, paths ...string) (output string, passed bool) {
	t.Helper()
	cmd := exec.Command(prom.Program(t, "promtool"), append([]string{"test", "rules"}, paths...)...)
	cmd.Env = append(os.Environ(), "GOGC=400") // it allocates more than it keeps
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(out), err == nil
}

// A testFile is promtool's file of unit tests.
type testFile struct {
	RuleFiles  []string   `yaml:"rule_files"`
	Evaluation string     `yaml:"evaluation_interval"`
	Tests      []unitTest `yaml:"tests"`
}

type unitTest struct {
	Name     string      `yaml:"name"`
	Interval string      `yaml:"interval"`
	Input    []input     `yaml:"input_series"`
	Exprs    []exprTest  `yaml:"promql_expr_test,omitempty"`
	Alerts   []alertTest `yaml:"alert_rule_test,omitempty"`
}

type input struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type exprTest struct {
	Expr     string      `yaml:"expr"`
	EvalTime string      `yaml:"eval_time"`
	Samples  []expSample `yaml:"exp_samples"`
}

type expSample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

type alertTest struct {
	EvalTime string `yaml:"eval_time"`
	Name     string `yaml:"alertname"`
	Alerts   []any  `yaml:"exp_alerts"`
}

func unitFiles(t *testing.T) map[string]testFile {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.test.yml")
	if err != nil || len(paths) < 4 {
		t.Fatalf("%d files of unit tests, %v", len(paths), err)
	}
	all := map[string]testFile{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var f testFile
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(&f); err != nil {
			t.Fatal(path, err)
		}
		all[path] = f
	}
	return all
}

// rules returns the paths of the rule files whose names f has, or of all.
func (f testFile) rules(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(ruleFiles(t), func(path string) bool {
		return f.RuleFiles != nil && !slices.ContainsFunc(f.RuleFiles, func(n string) bool { return filepath.Base(n) == filepath.Base(path) })
	})
}

// write writes a file of unit tests of the test's own, over its rule files.
func (f testFile) write(t *testing.T) string {
	t.Helper()
	return f.writeWith(t, f.rules(t))
}

func (f testFile) writeWith(t *testing.T, rules []string) string {
	t.Helper()
	f.RuleFiles = rules
	text, err := yaml.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "generated.test.yml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPromtoolAcceptsTheRules(t *testing.T) {
	out, err := exec.Command(prom.Program(t, "promtool"), append([]string{"check", "rules", "--lint-fatal"}, ruleFiles(t)...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// firing is how a unit test asks whether an alert rings.
var firing = regexp.MustCompile(`^ALERTS\{alertname="(\w+)",alertstate="firing"\}$`)

// Every alert has a unit test in which it rings, and one of series of the same metrics in which it
// does not.
func TestEveryAlertHasBothUnitTests(t *testing.T) {
	has := map[string][2]bool{}
	for path, f := range unitFiles(t) {
		for _, test := range f.Tests {
			for _, e := range test.Exprs {
				m := firing.FindStringSubmatch(e.Expr)
				if m == nil {
					continue
				}
				h := has[m[1]]
				h[0] = h[0] || len(e.Samples) > 0
				h[1] = h[1] || len(e.Samples) == 0 && len(test.Input) > 0
				has[m[1]] = h
				if verb := strings.TrimPrefix(test.Name, m[1]+" "); (verb == "fires") != (len(e.Samples) > 0) {
					t.Errorf("%s: the test %q expects %d alerts", path, test.Name, len(e.Samples))
				}
			}
		}
	}
	for _, a := range alerts(t) {
		if h := has[a.Alert]; !h[0] || !h[1] {
			t.Errorf("%s: a test that rings %t, one that does not %t", a.Alert, h[0], h[1])
		}
		delete(has, a.Alert)
	}
	for name := range has {
		t.Errorf("unit tests of %s, which is no alert", name)
	}
}

// roots returns the alerts and the metrics that a unit test queries, sorted; nil where it queries
// alerts of any name.
func (u unitTest) roots(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, a := range u.Alerts {
		names = append(names, a.Name)
	}
	for _, e := range u.Exprs {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(e.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, selectors := range parser.ExtractSelectors(expr) {
			name := ""
			for _, m := range selectors {
				if m.Name == "alertname" && m.Type == labels.MatchEqual || m.Name == model.MetricNameLabel && name == "" {
					name = m.Value
				}
			}
			if name == "ALERTS" {
				return nil
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// split writes the unit tests as files that evaluate the rules that they query, and the recordings
// that these select, alone: a rule that a test does not query takes as long as one that it does. The
// rules are those of the rule files of f, in their groups.
func (f testFile) split(t *testing.T) (paths []string) {
	t.Helper()
	by := map[string][]unitTest{}
	for _, u := range f.Tests {
		key := strings.Join(u.roots(t), " ")
		by[key] = append(by[key], u)
	}
	for key, tests := range by {
		g := testFile{RuleFiles: f.RuleFiles, Evaluation: f.Evaluation, Tests: tests}
		if key == "" {
			paths = append(paths, g.write(t))
			continue
		}
		paths = append(paths, g.writeWith(t, []string{rulesFor(t, g.rules(t), strings.Fields(key))}))
	}
	return paths
}

// rulesFor writes a rule file of the rules of files that have these names, and of the recordings that
// they select.
func rulesFor(t *testing.T, files, names []string) string {
	t.Helper()
	var all rulefmt.RuleGroups
	for _, path := range files {
		groups, errs := rulefmt.ParseFile(path, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
		if len(errs) > 0 {
			t.Fatal(path, errs)
		}
		all.Groups = append(all.Groups, groups.Groups...)
	}
	recorded := recordings(t)
	for i := 0; i < len(names); i++ { // names grows
		expr := recorded[names[i]]
		for _, r := range alerts(t) {
			if r.Alert == names[i] {
				expr = r.expr
			}
		}
		if expr == nil {
			continue // a metric of the exporter
		}
		for _, name := range selected(expr) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	found := 0
	for i := range all.Groups {
		g := &all.Groups[i]
		g.Rules = slices.DeleteFunc(g.Rules, func(r rulefmt.Rule) bool { return !slices.Contains(names, r.Alert+r.Record) })
		found += len(g.Rules)
	}
	all.Groups = slices.DeleteFunc(all.Groups, func(g rulefmt.RuleGroup) bool { return len(g.Rules) == 0 })
	if found == 0 {
		t.Fatalf("no rule of %q in %q", names, files)
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUnitTests(t *testing.T) {
	for path, f := range unitFiles(t) {
		for _, name := range f.RuleFiles { // as promtool finds them in this folder
			if _, err := os.Stat(filepath.Join("testdata", name)); err != nil {
				t.Error(path, err)
			}
		}
		if out, ok := runTests(t, f.split(t)...); !ok {
			t.Errorf("%s:\n%s", path, out)
		}
	}
	const shortest = "testdata/recording.test.yml"
	if out, ok := runTests(t, shortest); !ok {
		t.Errorf("%s, as it is:\n%s", shortest, out)
	}
}

// renamed returns the unit test with the names and units of dcgm-exporter 4.9, and whether any is
// another.
func (u unitTest) renamed(t *testing.T) (unitTest, bool) {
	t.Helper()
	p := parser.NewParser(parser.Options{})
	changed := false
	series := slices.Clone(u.Input)
	for i, in := range series {
		name, rest, _ := strings.Cut(in.Series, "{")
		from, to, ok := catalog.Rename(name, catalog.Current)
		if !ok {
			continue
		}
		changed = true
		_, values, err := p.ParseSeriesDesc("x " + in.Values)
		if err != nil {
			t.Fatalf("%s: %v", in.Values, err)
		}
		var b strings.Builder
		for _, v := range values {
			switch {
			case v.Omitted:
				b.WriteString(" _")
			case value.IsStaleNaN(v.Value):
				b.WriteString(" stale")
			default:
				b.WriteString(" " + strconv.FormatFloat(v.Value*to.Scale/from.Scale, 'g', -1, 64))
			}
		}
		series[i] = input{to.Name + "{" + rest, b.String()}
	}
	u.Input = series
	return u, changed
}

// The unit tests pass with the names and units of dcgm-exporter 4.9 too.
func TestUnitTestsInTheOtherVocabulary(t *testing.T) {
	other := 0
	for path, f := range unitFiles(t) {
		g := testFile{RuleFiles: f.RuleFiles, Evaluation: f.Evaluation}
		for _, test := range f.Tests {
			if r, changed := test.renamed(t); changed {
				g.Tests = append(g.Tests, r)
			}
		}
		if other += len(g.Tests); len(g.Tests) == 0 {
			continue
		}
		if out, ok := runTests(t, g.split(t)...); !ok {
			t.Errorf("%s:\n%s", path, out)
		}
	}
	if other < 20 {
		t.Errorf("%d unit tests differ", other)
	}
}
