package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// goFiles calls visit with every parsed Go file of the repository, generated ones apart.
func goFiles(t *testing.T, visit func(path string, fset *token.FileSet, file *ast.File)) {
	t.Helper()
	root := filepath.Join("..", "..")
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		seen++
		if !ast.IsGenerated(file) {
			rel, _ := filepath.Rel(root, path)
			visit(filepath.ToSlash(rel), fset, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Fatalf("only %d Go files found", seen)
	}
}

// calls calls visit with every call of a package-level function pkg.name.
func calls(file *ast.File, visit func(pkg, name string, at token.Pos)) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if id, ok := call.Fun.(*ast.Ident); ok {
			visit("", id.Name, call.Pos())
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && id.Obj == nil {
				visit(id.Name, sel.Sel.Name, call.Pos())
			}
		}
		return true
	})
}

func TestNothingExitsOrPanicsBelowMain(t *testing.T) {
	goFiles(t, func(path string, fset *token.FileSet, file *ast.File) {
		if strings.HasPrefix(path, "cmd/") || strings.HasSuffix(path, "_test.go") || file.Name.Name == "main" {
			return
		}
		calls(file, func(pkg, name string, at token.Pos) {
			if pkg == "os" && name == "Exit" || pkg == "log" && strings.HasPrefix(name, "Fatal") || pkg == "" && name == "panic" {
				t.Errorf("%s: %s.%s: only main ends the process", fset.Position(at), pkg, name)
			}
		})
	})
}

func TestNothingRunsAtInit(t *testing.T) {
	goFiles(t, func(path string, fset *token.FileSet, file *ast.File) {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: func init", fset.Position(f.Pos()))
			}
		}
	})
}

// A sleep in a test waits for luck. Inside a synctest bubble the clock is the bubble's own, and a
// sleep there advances it.
func TestNoTestSleepsOutsideABubble(t *testing.T) {
	goFiles(t, func(path string, fset *token.FileSet, file *ast.File) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, imp := range file.Imports {
			if imp.Path.Value == `"testing/synctest"` {
				return
			}
		}
		calls(file, func(pkg, name string, at token.Pos) {
			if pkg == "time" && name == "Sleep" {
				t.Errorf("%s: time.Sleep in a test", fset.Position(at))
			}
		})
	})
}

// outside are the files in which a test lets time pass for a clock that it does not own.
var outside = map[string]string{
	"internal/source/dcgm/world_test.go":   "libdcgm samples by the machine's clock, and so does the test library",
	"internal/source/nvml/session_test.go": "the session compares the driver's samples over at least 100 ms of its clock",
	"tests/hardware/nvml_test.go":          "a real GPU samples by its own clock",
}

// A receive from time.After by itself is a sleep by another name, for which a bubble has time.Sleep;
// in a select it is a deadline.
func TestNoTestWaitsForTime(t *testing.T) {
	seen := map[string]bool{}
	goFiles(t, func(path string, fset *token.FileSet, file *ast.File) {
		if !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "tests/") {
			return
		}
		selected := map[ast.Stmt]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			if c, ok := n.(*ast.CommClause); ok {
				selected[c.Comm] = true
			}
			statement, ok := n.(*ast.ExprStmt)
			if !ok || selected[statement] {
				return true
			}
			receive, ok := statement.X.(*ast.UnaryExpr)
			if !ok || receive.Op != token.ARROW {
				return true
			}
			call, ok := receive.X.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "After" || f.Sel.Name == "Tick") {
				if seen[path] || outside[path] == "" {
					t.Errorf("%s: a receive from time.%s in a test", fset.Position(n.Pos()), f.Sel.Name)
				}
				seen[path] = true
			}
			return true
		})
	})
	for path := range outside {
		if !seen[path] {
			t.Errorf("%s no longer waits for time", path)
		}
	}
}

func TestExpositionFormatsNothing(t *testing.T) {
	goFiles(t, func(path string, fset *token.FileSet, file *ast.File) {
		if !strings.HasPrefix(path, "internal/exposition/") || strings.HasSuffix(path, "_test.go") {
			return
		}
		calls(file, func(pkg, name string, at token.Pos) {
			if pkg == "fmt" {
				t.Errorf("%s: fmt.%s: the encoder appends", fset.Position(at), name)
			}
		})
	})
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	packages := map[string]bool{}
	goFiles(t, func(path string, _ *token.FileSet, file *ast.File) {
		dir := filepath.Dir(path)
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		packages[dir] = true
		if file.Doc != nil && len(strings.TrimSpace(file.Doc.Text())) > 0 {
			documented[dir] = true
		}
	})
	for dir := range packages {
		if !documented[dir] {
			t.Errorf("%s has no package comment", dir)
		}
	}
}
