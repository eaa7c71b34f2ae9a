package dashboards

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A row is what docs/operations.md says of a series.
type row struct {
	kind   string
	labels []string
}

var (
	tableRow = regexp.MustCompile("(?m)^\\| `((?:dcgm_exporter|promhttp)_[a-z0-9_]+)` \\| ([a-z]+) \\| ([^|]*) \\|")
	codeSpan = regexp.MustCompile("`([^`]+)`")
	ourName  = regexp.MustCompile(`^dcgm_exporter_[a-z0-9_]+$`)
)

// documented returns the rows of the tables of docs/operations.md by series.
func documented(t *testing.T) map[string]row {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]row{}
	for _, m := range tableRow.FindAllStringSubmatch(string(text), -1) {
		r := row{kind: m[2]}
		for _, l := range codeSpan.FindAllStringSubmatch(m[3], -1) {
			r.labels = append(r.labels, l[1])
		}
		slices.Sort(r.labels)
		if _, ok := rows[m[1]]; ok {
			t.Errorf("docs/operations.md has two rows for %s", m[1])
		}
		rows[m[1]] = r
	}
	return rows
}

// inCode returns every name of a series of the exporter's own that the code
// spells out. Type and labels are those of the client_golang constructor that
// it is handed to; of other names they are empty.
func inCode(t *testing.T) map[string]row {
	t.Helper()
	found := map[string]row{}
	walkCode(t, func(n ast.Node) {
		if name, ok := stringOf(n); ok && ourName.MatchString(name) {
			if _, known := found[name]; !known {
				found[name] = row{}
			}
		}
		if name, r, ok := constructed(n); ok {
			found[name] = r
		}
	})
	return found
}

// walkCode visits every node of the exporter's code, without its tests.
func walkCode(t *testing.T, visit func(ast.Node)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			visit(n)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func stringOf(n ast.Node) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// constructed reads prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "…"}, []string{"…"})
// and its kin.
func constructed(n ast.Node) (name string, r row, ok bool) {
	call, isCall := n.(*ast.CallExpr)
	if !isCall || len(call.Args) == 0 {
		return "", row{}, false
	}
	f, isSelector := call.Fun.(*ast.SelectorExpr)
	options, hasOptions := call.Args[0].(*ast.CompositeLit)
	if !isSelector || !hasOptions {
		return "", row{}, false
	}
	for _, kind := range []string{"Gauge", "Counter"} {
		if strings.HasPrefix(f.Sel.Name, "New"+kind) {
			r.kind = strings.ToLower(kind)
		}
	}
	for _, e := range options.Elts {
		kv, isKV := e.(*ast.KeyValueExpr)
		if !isKV {
			continue
		}
		switch key, _ := kv.Key.(*ast.Ident); {
		case key == nil:
		case key.Name == "Name":
			name, _ = stringOf(kv.Value)
		case key.Name == "ConstLabels":
			r.labels = append(r.labels, keys(kv.Value)...)
		}
	}
	if len(call.Args) > 1 {
		if list, isList := call.Args[1].(*ast.CompositeLit); isList {
			for _, e := range list.Elts {
				if l, isString := stringOf(e); isString {
					r.labels = append(r.labels, l)
				}
			}
		}
	}
	slices.Sort(r.labels)
	return name, r, r.kind != "" && name != ""
}

func keys(n ast.Node) []string {
	var all []string
	if literal, ok := n.(*ast.CompositeLit); ok {
		for _, e := range literal.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if k, ok := stringOf(kv.Key); ok {
					all = append(all, k)
				}
			}
		}
	}
	return all
}

func TestHealthPageTellsEverySeriesOfTheCode(t *testing.T) {
	rows, code := documented(t), inCode(t)
	if len(code) < 15 {
		t.Fatalf("only %d series found in the code", len(code))
	}
	for _, name := range slices.Sorted(maps.Keys(code)) {
		r, ok := rows[name]
		if !ok {
			t.Errorf("docs/operations.md has no row for %s", name)
			continue
		}
		if want := code[name]; want.kind != "" {
			if diff := cmp.Diff(want, r, cmp.AllowUnexported(row{})); diff != "" {
				t.Errorf("docs/operations.md on %s (-code +page):\n%s", name, diff)
			}
		}
	}
	for name := range rows {
		if _, ok := code[name]; !ok && ourName.MatchString(name) {
			t.Errorf("docs/operations.md names %s, which nothing serves", name)
		}
	}
}

// The pages of simulated nodes have the types that docs/operations.md says, and no
// labels that it does not.
func TestHealthPageIsTrueOfServedPages(t *testing.T) {
	rows := documented(t)
	seen := map[string]bool{}
	for _, served := range []map[string]*dto.MetricFamily{
		page(t, exporter(t, troubled), "dcgm_exporter_attribution_success{"),
		page(t, exporter(t, "faults:\n  - {fault: engine-down, at: 0s}\n"), "dcgm_exporter_collect_failures_total{"),
		page(t, exporter(t, "faults: []\n", "--sim-node=nvswitch"), "dcgm_exporter_entity_up{"),
		page(t, exporter(t, "faults: []\n", "--sim-node=grace-hopper"), "dcgm_exporter_entity_up{"),
	} {
		for name, f := range served {
			own := strings.HasPrefix(name, "dcgm_exporter_") || strings.HasPrefix(name, "promhttp_")
			if !own {
				continue
			}
			seen[name] = true
			r, ok := rows[name]
			if !ok {
				t.Errorf("docs/operations.md has no row for %s", name)
				continue
			}
			if kind := strings.ToLower(f.GetType().String()); kind != r.kind {
				t.Errorf("%s is a %s, docs/operations.md says %s", name, kind, r.kind)
			}
			for _, l := range labelsOf(f) {
				if !slices.Contains(r.labels, l) {
					t.Errorf("%s has the label %s, which docs/operations.md does not name", name, l)
				}
			}
		}
	}
	for _, name := range []string{"dcgm_exporter_entity_up", "dcgm_exporter_collect_failures_total", "dcgm_exporter_attribution_success"} {
		if !seen[name] {
			t.Errorf("%s is on no page, so this test checks less than it says", name)
		}
	}
}

// labelsOf returns the labels that any series of a family has.
func labelsOf(f *dto.MetricFamily) []string {
	all := map[string]bool{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			all[l.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func TestHealthPageListsTheReasons(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### Reasons\n")
	section, _, _ = strings.Cut(section, "\n### ")
	var listed []string
	for _, m := range regexp.MustCompile("`([a-z_]+)`\\s\\(").FindAllStringSubmatch(section, -1) {
		listed = append(listed, m[1])
	}
	want := slices.Sorted(slices.Values(gpu.Reasons()))
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(listed))); diff != "" {
		t.Errorf("reasons (-code +page):\n%s", diff)
	}
}
