package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// row is the type and label names of a family.
type row struct {
	kind   string
	labels []string
}

// aboutItself matches the names of families about the exporter itself, which docs/operations.md explains.
var aboutItself = regexp.MustCompile(`^(?:dcgm_exporter|promhttp)_[a-z0-9_]+$`)

// self returns the families about the exporter itself. They come from the catalog and from the code, where
// client_golang or package gauge creates the metrics.
func (w *writer) self() map[string]row {
	all := map[string]row{}
	for _, f := range catalog.AllFamilies() {
		if aboutItself.MatchString(f.Name) {
			all[f.Name] = row{f.Type.String(), f.Labels}
		}
	}
	w.walkCode(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		if name, r := w.metric(call); name != "" {
			if _, ok := all[name]; ok {
				w.fail("%s is declared twice", name)
			}
			all[name] = r
		}
	})
	return all
}

// metric returns the name, type and labels of the metric that a call creates. The name is "" if the call creates none.
func (w *writer) metric(call *ast.CallExpr) (name string, r row) {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", row{}
	}
	from, _ := function.X.(*ast.Ident)
	opts, hasOpts := (*ast.CompositeLit)(nil), false
	if len(call.Args) > 0 {
		opts, hasOpts = call.Args[0].(*ast.CompositeLit)
	}
	switch {
	case hasOpts: // of package prometheus, promauto or a factory of promauto
		kind := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(function.Sel.Name, "New"), "Vec"), "Func")
		if kind == function.Sel.Name || !strings.HasSuffix(types.ExprString(opts.Type), kind+"Opts") {
			return "", row{}
		}
		name, r = w.options(opts)
		r.kind = strings.ToLower(kind)
		if strings.HasSuffix(function.Sel.Name, "Vec") {
			r.labels = append(r.labels, w.list(call.Args[1])...)
		}
	case from == nil:
		return "", row{}
	case from.Name == "gauge" && function.Sel.Name == "NewState": // name, help, labels…
		r = row{"gauge", w.strings(call.Args[2:])}
		return w.literal(call.Args[0]), r
	case from.Name == "prometheus" && function.Sel.Name == "NewDesc": // name, help, labels, constant labels
		if _, ok := call.Args[0].(*ast.BasicLit); ok { // in package gauge, the name is a parameter and not a literal
			return w.literal(call.Args[0]), row{"gauge", w.list(call.Args[2])}
		}
	}
	return name, r
}

// options returns the name and the constant labels in the options of a metric.
func (w *writer) options(opts *ast.CompositeLit) (name string, r row) {
	for _, e := range opts.Elts {
		field := e.(*ast.KeyValueExpr)
		switch field.Key.(*ast.Ident).Name {
		case "Name":
			name = w.literal(field.Value)
		case "ConstLabels":
			for _, label := range field.Value.(*ast.CompositeLit).Elts {
				r.labels = append(r.labels, w.literal(label.(*ast.KeyValueExpr).Key))
			}
		}
	}
	return name, r
}

// list returns the elements of a slice literal, or nil for other expressions.
func (w *writer) list(n ast.Expr) []string {
	if slice, ok := n.(*ast.CompositeLit); ok {
		return w.strings(slice.Elts)
	}
	return nil
}

func (w *writer) strings(nodes []ast.Expr) (all []string) {
	for _, n := range nodes {
		all = append(all, w.literal(n))
	}
	return all
}

// literal returns the value of a string literal. For other expressions, it records an error.
func (w *writer) literal(n ast.Expr) string {
	s, ok := stringOf(n)
	if !ok {
		w.fail("%s: expected a string literal as the name or a label of a metric, found %s", w.files.Position(n.Pos()),
			types.ExprString(n))
	}
	return s
}

// tableRow matches the cells for the family, type and labels in a row of docs/operations.md.
var tableRow = regexp.MustCompile("(?m)^\\| `((?:dcgm_exporter|promhttp)_[a-z0-9_]+)` \\|[^|]*\\|[^|]*\\|")

// operations returns docs/operations.md with the type and labels of each family filled in. The rest of each row is
// hand-written.
func (w *writer) operations() string {
	text, err := os.ReadFile(filepath.Join("docs", "operations.md"))
	if err != nil {
		w.fail("%w", err)
	}
	families, seen := w.self(), map[string]bool{}
	page := tableRow.ReplaceAllStringFunc(string(text), func(line string) string {
		name := tableRow.FindStringSubmatch(line)[1]
		f, ok := families[name]
		if !ok {
			w.fail("docs/operations.md has a row for the family %s, which does not exist: remove it", name)
		}
		if seen[name] {
			w.fail("docs/operations.md has two rows for %s", name)
		}
		seen[name] = true
		return "| `" + name + "` | " + f.kind + " | " + code(f.labels) + " |"
	})
	for name := range families {
		if !seen[name] {
			w.fail("docs/operations.md has no row for %s: add \"| `%s` | | | MEANING | WHAT TO DO |\"", name, name)
		}
	}
	return page
}

// walkCode visits every node of the Go files in internal, except tests.
func (w *writer) walkCode(visit func(ast.Node)) {
	w.files = token.NewFileSet()
	err := filepath.WalkDir("internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(w.files, path, nil, 0)
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
		w.fail("%w", err)
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

// usage returns the families about the use of devices by their owners, without those about the exporter itself.
func usage() []catalog.Family {
	all := append(catalog.Families(catalog.Accounting), catalog.Families(catalog.XIDOwners)...)
	return slices.DeleteFunc(all, func(f catalog.Family) bool { return aboutItself.MatchString(f.Name) })
}
