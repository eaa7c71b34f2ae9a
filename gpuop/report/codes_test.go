package report_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

const module = "github.com/gpu-telemetry/dcgm-exporter/gpuop/"

// checker type-checks gpuop's packages. Packages of other modules are empty.
type checker struct {
	t     *testing.T
	files *token.FileSet
	known map[string]*types.Package
	// made has the packages that use each report.ID constant.
	made map[report.ID][]string
	// worst has the highest state that the sources use with each ID.
	worst map[report.ID]report.State
}

func (c *checker) Import(name string) (*types.Package, error) {
	if p := c.known[name]; p != nil {
		return p, nil
	}
	folder, ours := strings.CutPrefix(name, module)
	if !ours {
		p := types.NewPackage(name, path.Base(name))
		p.MarkComplete()
		return p, nil
	}
	var sources []*ast.File
	paths, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(c.files, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		sources = append(sources, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	p, _ := (&types.Config{Importer: c, Error: func(error) {}}).Check(name, c.files, sources, info)
	c.known[name] = p
	for e, found := range info.Types {
		switch {
		case found.Value == nil && is(found, "ID") && isConversion(info, e):
			c.t.Errorf("%s: an ID is made of a text: write it as a constant", c.files.Position(e.Pos()))
		case found.Value != nil && is(found, "ID"):
			id := report.ID(constant.StringVal(found.Value))
			if id != "" && !slices.Contains(c.made[id], folder) {
				c.made[id] = append(c.made[id], folder)
			}
		}
		c.states(info, e)
	}
	return p, nil
}

// is reports whether a value has the named type of package report.
func is(v types.TypeAndValue, name string) bool {
	return v.IsValue() && v.Type != nil && v.Type.String() == module+"report."+name
}

// states records the state that is used with an ID in the same call or literal.
func (c *checker) states(info *types.Info, e ast.Expr) {
	var beside []ast.Expr
	switch e := e.(type) {
	case *ast.CallExpr:
		beside = e.Args
	case *ast.CompositeLit:
		for _, field := range e.Elts {
			if kv, ok := field.(*ast.KeyValueExpr); ok {
				beside = append(beside, kv.Value)
			}
		}
	}
	var id report.ID
	var state report.State
	for _, e := range beside {
		switch found := info.Types[e]; {
		case found.Value == nil:
		case is(found, "ID"):
			id = report.ID(constant.StringVal(found.Value))
		case is(found, "State"):
			n, _ := constant.Uint64Val(found.Value)
			state = report.State(n)
		}
	}
	c.worst[id] = max(c.worst[id], state)
}

func isConversion(info *types.Info, e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && info.Types[call.Fun].IsType()
}

// makers maps each command to the packages whose rows it shows.
var makers = map[string]string{
	"lint": "lint input fields model mig sharing schema pod cli", "values": "values", "images": "cli", "share": "sharing mig", "mig": "mig cli judge",
	"preflight": "judge", "verify": "judge node mig cli", "drift": "drift judge cli", "node": "host",
}

// codes.txt must have exactly the IDs in the sources, with the commands that show them and their highest severity.
func TestCodesAreThoseOfTheSources(t *testing.T) {
	c := &checker{t: t, files: token.NewFileSet(), known: map[string]*types.Package{}, made: map[report.ID][]string{}, worst: map[report.ID]report.State{}}
	folders, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if f.IsDir() {
			if _, err := c.Import(module + f.Name()); err != nil {
				t.Fatal(err)
			}
		}
	}
	lines := 0
	for line := range strings.Lines(table(t)) {
		if line != "\n" && line[0] != '#' {
			lines++
		}
	}
	if n := len(report.Codes()); n != lines {
		t.Errorf("%d of %d lines are of six columns", n, lines)
	}
	for _, code := range report.Codes() {
		made, found := c.made[code.ID]
		if !found {
			t.Errorf("codes.txt has %s twice, or nothing makes it", code.ID)
		}
		delete(c.made, code.ID)
		for _, command := range code.Commands {
			if !slices.ContainsFunc(strings.Fields(makers[command]), func(p string) bool { return slices.Contains(made, p) }) {
				t.Errorf("%s: %v make it, none of them for %s", code.ID, made, command)
			}
		}
		if worst := c.worst[code.ID]; rank(code.Worst) < rank(worst.Severity()) {
			t.Errorf("%s is at worst %s, and the table says %s", code.ID, worst.Severity(), code.Worst)
		}
	}
	for id, in := range c.made {
		t.Errorf("%v make %s, which codes.txt does not have", in, id)
	}
}

// rank orders severities. It is -1 if there is none.
func rank(severity string) int {
	return slices.Index([]string{"ok", "note", "warning", "error"}, severity)
}

func table(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("codes.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var update = flag.Bool("update", false, "write docs/gpuop/rows.md")

// The page about all rows is generated from codes.txt.
func TestRowsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("# The rows of gpuop\n\nWritten from `gpuop/report/codes.txt`, as `gpuop explain ID` prints it. Severity is the highest that a row of the ID has.\n")
	lines := slices.Collect(strings.Lines(table(t)))
	for _, line := range lines[1:] {
		line = strings.TrimSpace(line)
		switch c := strings.Split(line, " | "); {
		case strings.HasPrefix(line, "#"):
			fmt.Fprintf(&b, "\n## %s\n\n| row | shown by | severity | it says | what to do | documented in |\n|---|---|---|---|---|---|\n", strings.Trim(line, "# ."))
		case len(c) == 6:
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", c[0], strings.ReplaceAll(c[1], " ", ", "), c[2], escape(c[3]), escape(c[4]), c[5])
		}
	}
	page := filepath.Join("..", "..", "docs", "gpuop", "rows.md")
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("%s is not as the table: go test ./gpuop/report -update", page)
	}
}

// escape prevents Markdown from reading <name> as HTML.
func escape(text string) string { return strings.ReplaceAll(text, "<", "&lt;") }

func TestSARIFDescribesRules(t *testing.T) {
	var out bytes.Buffer
	if err := (&report.Report{Rows: []report.Row{{ID: "set-twice", State: report.Note}}}).WriteSARIF(&out, "gpuop", "1"); err != nil {
		t.Fatal(err)
	}
	if text := "A key is set twice; the last counts."; !strings.Contains(out.String(), text) {
		t.Errorf("%s lacks %q", &out, text)
	}
}
