package rules

import (
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
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// A testFile is promtool's file of unit tests.
type testFile struct {
	RuleFiles  []string   `yaml:"rule_files"`
	Evaluation string     `yaml:"evaluation_interval"`
	Tests      []unitTest `yaml:"tests"`
}

type unitTest struct {
	Name     string `yaml:"name"`
	Interval string `yaml:"interval"`
	Input    []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	Exprs []struct {
		Expr     string           `yaml:"expr"`
		EvalTime string           `yaml:"eval_time"`
		Samples  []map[string]any `yaml:"exp_samples"`
	} `yaml:"promql_expr_test"`
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(prom.Promtool(t), args...)
	cmd.Env = append(os.Environ(), "GOGC=400") // it allocates more than it keeps
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

func TestPromtoolAcceptsTheRules(t *testing.T) {
	promtool(t, append([]string{"check", "rules", "--lint-fatal"}, ruleFiles(t)...)...)
}

// The files of testdata pass as they are, and with the names and units of dcgm-exporter 4.9.
func TestUnitTests(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.test.yml")
	if err != nil || len(paths) < 4 {
		t.Fatalf("%d files of unit tests, %v", len(paths), err)
	}
	args := append([]string{"test", "rules"}, paths...)
	fires, silent, renamed := map[string]bool{}, map[string]bool{}, 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var f testFile
		if err := yaml.Unmarshal(text, &f); err != nil {
			t.Fatal(path, err)
		}
		f.countAlerts(fires, silent)
		if f.rename(t) {
			renamed += len(f.Tests)
			args = append(args, f.write(t))
		}
	}
	if renamed < 20 {
		t.Errorf("%d unit tests differ in the other vocabulary", renamed)
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: a test that fires %t, one that does not %t", a.Alert, fires[a.Alert], silent[a.Alert])
		}
	}
	promtool(t, args...)
}

// firing is how a unit test asks whether an alert fires.
var firing = regexp.MustCompile(`^ALERTS\{alertname="(\w+)",alertstate="firing"\}$`)

// countAlerts notes which alerts fire and which do not in the tests of f.
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

// rename keeps the tests whose series have another name in dcgm-exporter 4.9, under that name and in
// its unit, and reports whether there are any.
func (f *testFile) rename(t *testing.T) bool {
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
	return len(f.Tests) > 0
}

// write writes f for promtool and returns its path.
func (f *testFile) write(t *testing.T) string {
	t.Helper()
	for i, name := range f.RuleFiles {
		path, err := filepath.Abs(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		f.RuleFiles[i] = path
	}
	text, err := yaml.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "renamed.test.yml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
