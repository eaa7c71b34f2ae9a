package rules

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// A testFile is a unit test file of promtool.
type testFile struct {
	RuleFiles  []string   `yaml:"rule_files"`
	Evaluation string     `yaml:"evaluation_interval"`
	Tests      []unitTest `yaml:"tests"`
}

type unitTest struct {
	Name     string  `yaml:"name"`
	Interval string  `yaml:"interval"`
	Input    []input `yaml:"input_series"`
	Exprs    []query `yaml:"promql_expr_test"`
}

type input struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type query struct {
	Expr     string           `yaml:"expr"`
	EvalTime string           `yaml:"eval_time"`
	Samples  []map[string]any `yaml:"exp_samples"`
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(prom.Promtool(t), args...)
	cmd.Env = append(os.Environ(), "GOGC=400") // promtool allocates much, but keeps little
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// evaluate runs unit tests with all groups of the alerts about GPUs and the exporter.
func evaluate(t *testing.T, interval string, tests ...unitTest) {
	t.Helper()
	f := testFile{RuleFiles: []string{"alerts-gpu.yml", "alerts-exporter.yml"}, Evaluation: interval, Tests: tests}
	f.RuleFiles = f.rules(t, nil)
	promtool(t, "test", "rules", writeYAML(t, f))
}

func TestRulesAreValid(t *testing.T) {
	compat := folder.Files(t, root, "deployment", "rules", "compat", "*.yml")
	promtool(t, slices.Concat([]string{"check", "rules", "--lint-fatal"}, ruleFiles(t), compat)...)
}

// The tests in testdata pass with the names and units of dcgm-exporter 4.8, and with those of 4.9. Each alert has a
// test in which it fires, and one in which it does not.
func TestUnitTests(t *testing.T) {
	args := []string{"test", "rules"}
	fires, silent, renamed := map[string]bool{}, map[string]bool{}, 0
	for _, path := range folder.Files(t, "testdata", "*.test.yml") {
		var f testFile
		if err := yaml.Unmarshal([]byte(folder.Read(t, path)), &f); err != nil {
			t.Fatal(path, err)
		}
		f.countAlerts(fires, silent)
		args = append(args, f.write(t)...)
		f.rename(t)
		renamed += len(f.Tests)
		args = append(args, f.write(t)...)
	}
	if renamed < 20 {
		t.Errorf("unit tests with names that differ in version 4.9 = %d, want at least 20", renamed)
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: has a test in which it fires: %t, and one in which it does not: %t; want both", a.Alert,
				fires[a.Alert], silent[a.Alert])
		}
	}
	if !t.Failed() {
		promtool(t, args...)
	}
}

// firing matches the expression with which a unit test checks whether an alert fires.
var firing = regexp.MustCompile(`^ALERTS\{alertname="(\w+)",alertstate="firing"\}$`)

// countAlerts records which alerts fire, and which do not, in the tests of f.
func (f *testFile) countAlerts(fires, silent map[string]bool) {
	for _, test := range f.Tests {
		for _, e := range test.Exprs {
			if m := firing.FindStringSubmatch(e.Expr); m != nil && len(e.Samples) > 0 {
				fires[m[1]] = true
			} else if m != nil && len(test.Input) > 0 {
				silent[m[1]] = true
			}
		}
	}
}

// rename converts series to the names and units of dcgm-exporter 4.9. It deletes the tests in which no series is
// renamed.
func (f *testFile) rename(t *testing.T) {
	t.Helper()
	p := parser.NewParser(parser.Options{})
	f.Tests = slices.DeleteFunc(f.Tests, func(u unitTest) bool {
		changed := false
		for i, in := range u.Input {
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
			u.Input[i].Series, u.Input[i].Values = to.Name+"{"+rest, b.String()
		}
		return !changed
	})
}

// write writes files for promtool, and returns the paths. A file has tests that name alerts of the same groups, and
// loads only these groups, because evaluating all groups takes minutes. Groups do not read each other, as
// TestRecordings checks.
func (f *testFile) write(t *testing.T) (paths []string) {
	t.Helper()
	files := map[string]*testFile{}
	for _, u := range f.Tests {
		groups := map[string]bool{}
		for _, a := range alerts(t) {
			if slices.ContainsFunc(u.Exprs, func(e query) bool { return strings.Contains(e.Expr, `"`+a.Alert+`"`) }) {
				groups[a.group] = true
			}
		}
		key := strings.Join(slices.Sorted(maps.Keys(groups)), " ")
		if files[key] == nil {
			files[key] = &testFile{RuleFiles: f.rules(t, groups), Evaluation: f.Evaluation}
		}
		files[key].Tests = append(files[key].Tests, u)
	}
	for _, file := range files {
		paths = append(paths, writeYAML(t, file))
	}
	return paths
}

// rules writes the rule files of f with only the given groups, and returns the paths. Without groups, it returns the
// complete files.
func (f *testFile) rules(t *testing.T, groups map[string]bool) (paths []string) {
	t.Helper()
	for _, name := range f.RuleFiles {
		var rules struct {
			Groups []map[string]any `yaml:"groups"`
		}
		if err := yaml.Unmarshal([]byte(folder.Read(t, root, "deployment", "rules", filepath.Base(name))),
			&rules); err != nil {
			t.Fatal(name, err)
		}
		rules.Groups = slices.DeleteFunc(rules.Groups,
			func(g map[string]any) bool { return len(groups) > 0 && !groups[g["name"].(string)] })
		if len(rules.Groups) > 0 {
			paths = append(paths, writeYAML(t, rules))
		}
	}
	return paths
}

func writeYAML(t *testing.T, content any) string {
	t.Helper()
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "file.yml")
	folder.Write(t, path, string(text))
	return path
}
