package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	quoted = regexp.MustCompile("`([a-z][a-z0-9]*(?:-[a-z0-9]+)*)`")
	cell   = regexp.MustCompile(`\\\||\|`)
)

// makers are the packages that make the rows of a command.
var makers = map[string][]string{
	"preflight": {"judge"}, "verify": {"judge", "node"}, "drift": {"drift", "judge"}, "mig": {"judge", "cli"}, "node": {"host"},
}

// A row that the documentation names exists, and one that a command makes is documented.
func TestDocumentationNamesTheRows(t *testing.T) {
	made := madeRows(t)
	if len(made) < 90 {
		t.Errorf("%d rows found in the sources, there were more than 90: %v", len(made), slices.Sorted(maps.Keys(made)))
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "gpuop.md"))
	if err != nil {
		t.Fatal(err)
	}
	anywhere := map[string]bool{}
	for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
		anywhere[m[1]] = true
	}
	for _, id := range slices.Sorted(maps.Keys(made)) {
		if !anywhere[id] {
			t.Errorf("%s makes rows %s, and docs/gpuop.md does not name them", made[id], id)
		}
	}
	tables := 0
	column := -1
	for i, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "|") {
			column = -1
			continue
		}
		cells := cellsOf(line)
		if column < 0 {
			if column = slices.IndexFunc(cells, func(c string) bool { return c == "row" || c == "rows" }); column >= 0 {
				tables++
			} else {
				column = len(cells) // a table of something else
			}
			continue
		}
		if column >= len(cells) {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[column], -1) {
			if _, exists := made[m[1]]; !exists {
				t.Errorf("docs/gpuop.md:%d names the row %s, and nothing makes it", i+1, m[1])
			}
			if column == 0 {
				continue
			}
			// the table of checks names the command beside the row
			if !slices.ContainsFunc(said.FindAllStringSubmatch(cells[column-1], -1), func(c []string) bool {
				return slices.ContainsFunc(makers[c[1]], func(p string) bool { return slices.Contains(strings.Fields(made[m[1]]), p) })
			}) {
				t.Errorf("docs/gpuop.md:%d: %s does not make the row %s", i+1, cells[column-1], m[1])
			}
		}
	}
	if tables < 6 {
		t.Errorf("%d tables have a column of rows, there were 6", tables)
	}
}

var operand = regexp.MustCompile(`(?m)^\t\{name: "([a-z-]+)"`)

var said = regexp.MustCompile("`gpuop ([a-z]+)")

// Each command has a section with what it prints, and the documentation names no other.
func TestDocumentationHasEveryCommand(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "gpuop.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	commands := map[string]bool{}
	for _, c := range newRoot(&env{}, "gpuop").Commands() {
		commands[c.Name()] = true
		_, section, found := strings.Cut(text, ": `gpuop "+c.Name()+"`\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !found {
			t.Errorf("gpuop %s has no section", c.Name())
		} else if !strings.Contains(section, "```console\n$ gpuop "+c.Name()+" ") {
			t.Errorf("the section of gpuop %s shows no output", c.Name())
		}
	}
	for _, m := range said.FindAllStringSubmatch(text, -1) {
		if !commands[m[1]] {
			t.Errorf("there is no gpuop %s", m[1])
		}
	}
}

// cellsOf splits a line of a table; \| is text.
func cellsOf(line string) []string {
	var cells []string
	start := 1
	for _, at := range cell.FindAllStringIndex(line, -1) {
		if at[1]-at[0] > 1 || at[0] == 0 {
			continue
		}
		cells = append(cells, strings.TrimSpace(line[start:at[0]]))
		start = at[1]
	}
	return cells
}

// ofFiles are the sources of commands whose findings are about inputs.
var ofFiles = []string{"images.go", "lint.go", "mig.go"}

// madeRows are the IDs that the sources give to rows of a cluster or a node, with the package that does.
func madeRows(t *testing.T) map[string]string {
	t.Helper()
	made := map[string]string{}
	for _, folder := range []string{"cli", "drift", "host", "judge"} {
		s := sourceOf(t, filepath.Join("..", folder))
		for name, file := range s.files {
			if s.name == "cli" && slices.Contains(ofFiles, name) {
				continue
			}
			within(file, func(n ast.Node, f *ast.FuncDecl) {
				literal, ok := n.(*ast.CompositeLit)
				if !ok || !selects(literal.Type, "report", "Row") {
					return
				}
				for _, e := range literal.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok && named(kv.Key, "ID") {
						for _, id := range s.values(kv.Value, f) {
							if !slices.Contains(strings.Fields(made[id]), s.name) {
								made[id] = strings.TrimSpace(made[id] + " " + s.name)
							}
						}
					}
				}
			})
		}
	}
	return made
}

// A source is one package without its tests.
type source struct {
	t     *testing.T
	name  string
	files map[string]*ast.File
}

func sourceOf(t *testing.T, folder string) *source {
	s := &source{t: t, name: filepath.Base(folder), files: map[string]*ast.File{}}
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.files[filepath.Base(path)] = file
	}
	return s
}

// values are the texts that an expression may have: literals, constants, what a function assigns to
// a variable, and what its callers pass as a parameter.
func (s *source) values(e ast.Expr, f *ast.FuncDecl) []string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err != nil {
			s.t.Fatal(err)
		}
		return []string{text}
	case *ast.BinaryExpr:
		if prefix := s.values(e.X, f); len(prefix) == 1 {
			if ends, found := endings[prefix[0]]; found {
				return ends()
			}
			s.t.Errorf("%s: IDs begin with %q, and the test does not know how they end", s.name, prefix[0])
		}
		return nil
	case *ast.Ident:
		return s.variable(e.Name, f)
	case *ast.CallExpr: // a conversion of a field, whose type has constants
		if field, ok := e.Args[0].(*ast.SelectorExpr); ok && named(e.Fun, "string") {
			return s.constants(s.fieldType(field.Sel.Name))
		}
	case *ast.SelectorExpr:
		of, _ := e.X.(*ast.Ident)
		if of != nil && of.Name == "node" {
			return sourceOf(s.t, filepath.Join("..", "node")).rules(e.Sel.Name)
		}
		// the finding of a file or a node, which keeps its ID
		if e.Sel.Name == "ID" && s.name == "judge" {
			return sourceOf(s.t, filepath.Join("..", "node")).rules("")
		}
	}
	s.t.Errorf("%s: the test cannot follow the ID of a row in %s", s.name, f.Name.Name)
	return nil
}

// endings are the IDs that begin with a text and end with a name from a table.
var endings = map[string]func() []string{
	"validation-": func() []string {
		var all []string
		table, _ := os.ReadFile(filepath.Join("..", "host", "validation.go")) // a test fails without its rows
		for _, m := range operand.FindAllSubmatch(table, -1) {
			all = append(all, "validation-"+string(m[1]))
		}
		return all
	},
}

// variable are the values of a parameter, local variable or constant.
func (s *source) variable(name string, f *ast.FuncDecl) []string {
	var all []string
	if at := parameter(f, name); at >= 0 {
		for _, file := range s.files {
			within(file, func(n ast.Node, caller *ast.FuncDecl) {
				call, ok := n.(*ast.CallExpr)
				if !ok || !calls(call, f.Name.Name) || len(call.Args) <= at {
					return
				}
				all = append(all, s.values(call.Args[at], caller)...)
			})
		}
		return all
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if named(left, name) && len(n.Lhs) == len(n.Rhs) {
					all = append(all, s.values(n.Rhs[i], f)...)
				}
			}
		case *ast.ValueSpec:
			for i, left := range n.Names {
				if left.Name == name && i < len(n.Values) {
					all = append(all, s.values(n.Values[i], f)...)
				}
			}
		}
		return true
	})
	if len(all) == 0 {
		all = s.rules(name)
	}
	if len(all) == 0 {
		s.t.Errorf("%s: the test finds no value of %s in %s", s.name, name, f.Name.Name)
	}
	return all
}

// rules are the texts of the package's constants Rule…, or of the one of that name.
func (s *source) rules(name string) []string {
	return s.specs(func(spec *ast.ValueSpec, constant string) bool {
		return constant == name || name == "" && strings.HasPrefix(constant, "Rule")
	})
}

// constants are the texts of the package's constants of a type.
func (s *source) constants(typ string) []string {
	return s.specs(func(spec *ast.ValueSpec, _ string) bool { return named(spec.Type, typ) })
}

func (s *source) specs(chosen func(*ast.ValueSpec, string) bool) []string {
	var all []string
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				if i >= len(spec.Values) || !chosen(spec, name.Name) {
					continue
				}
				if value, ok := spec.Values[i].(*ast.BasicLit); ok && value.Value != `""` {
					all = append(all, s.values(value, nil)...)
				}
			}
			return true
		})
	}
	return all
}

// fieldType is the name of the type of a struct's field.
func (s *source) fieldType(field string) (name string) {
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if f, ok := n.(*ast.Field); ok && slices.ContainsFunc(f.Names, func(i *ast.Ident) bool { return i.Name == field }) {
				if typ, ok := f.Type.(*ast.Ident); ok {
					name = typ.Name
				}
			}
			return true
		})
	}
	return name
}

// within calls visit for what is in the functions of a file.
func within(file *ast.File, visit func(ast.Node, *ast.FuncDecl)) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			ast.Inspect(f, func(n ast.Node) bool { visit(n, f); return true })
		}
	}
}

// parameter is the place of a parameter, -1 where the function has none of the name.
func parameter(f *ast.FuncDecl, name string) int {
	at := 0
	for _, field := range f.Type.Params.List {
		for _, n := range field.Names {
			if n.Name == name {
				return at
			}
			at++
		}
	}
	return -1
}

func calls(call *ast.CallExpr, function string) bool {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		return s.Sel.Name == function
	}
	return named(call.Fun, function)
}

func selects(e ast.Expr, of, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && s.Sel.Name == name && named(s.X, of)
}

func named(e ast.Expr, name string) bool {
	i, ok := e.(*ast.Ident)
	return ok && i.Name == name
}
