package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A source is a parsed Go file of the repository.
type source struct {
	path string
	file *ast.File
	at   func(ast.Node) token.Position
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// sources parses the Go files of the repository. It skips generated files, testdata, bin and hidden folders.
func sources(t *testing.T) (all []source) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root &&
			(strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		if !ast.IsGenerated(file) {
			rel, _ := filepath.Rel(root, path)
			all = append(all, source{filepath.ToSlash(rel), file,
				func(n ast.Node) token.Position { return set.Position(n.Pos()) }})
		}
		return nil
	})
	if err != nil || len(all) < 100 {
		t.Fatalf("found %d Go files, want at least 100 (error %v)", len(all), err)
	}
	return all
}

// called returns the package and the name of the function that n calls. The package is "" for an unqualified name. Both
// are "" if n calls a method or is not a call.
func called(n ast.Node) (pkg, name string) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return "", f.Name
	case *ast.SelectorExpr:
		if id, ok := f.X.(*ast.Ident); ok && id.Obj == nil {
			return id.Name, f.Sel.Name
		}
	}
	return "", ""
}

// waits maps the test files that may wait in real time, each in one place, to the reason.
var waits = map[string]string{
	"internal/source/dcgm/world_test.go": "libdcgm and the test library sample by the system clock",
	"internal/source/nvml/session_test.go": "the session compares the driver's samples over at least 100 ms of its " +
		"clock",
	"tests/hardware/nvml_test.go": "a real GPU samples by its own clock",
}

// TestSourceRules checks rules for all code. Only main may exit the process, and func init is not allowed. A function
// named must may panic if embedded data is invalid. Tests do not wait in real time, except those in waits. The encoder
// does not call fmt. Every package has a package comment.
func TestSourceRules(t *testing.T) {
	documented, waiting := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if dir := filepath.Dir(s.path); !s.isTest() {
			documented[dir] = documented[dir] || s.file.Doc != nil && len(strings.TrimSpace(s.file.Doc.Text())) > 0
		}
		isMain := strings.HasPrefix(s.path, "cmd/") || s.isTest() || s.file.Name.Name == "main"
		// in a synctest bubble, the clock is fake and sleeping only advances it
		inBubble := slices.ContainsFunc(s.file.Imports,
			func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
		selected := map[ast.Stmt]bool{}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					t.Errorf("%s: func init is not allowed", s.at(n))
				}
				if n.Recv == nil && n.Name.Name == "must" { // like template.Must
					return false
				}
			case *ast.CommClause:
				selected[n.Comm] = true
			case *ast.ExprStmt:
				// A receive from time.After is a sleep, unless it is a case of a select, where it is a deadline.
				receive, ok := n.X.(*ast.UnaryExpr)
				if !ok || receive.Op != token.ARROW || selected[n] || !s.isTest() &&
					!strings.HasPrefix(s.path, "tests/") {
					break
				}
				if pkg, name := called(receive.X); pkg == "time" && (name == "After" || name == "Tick") {
					if waiting[s.path] || waits[s.path] == "" {
						t.Errorf("%s: test waits for time.%s: only files in waits may, and only once", s.at(n), name)
					}
					waiting[s.path] = true
				}
			}
			switch pkg, name := called(n); {
			case !isMain && (pkg == "os" && name == "Exit" || pkg == "log" && strings.HasPrefix(name, "Fatal") ||
				pkg == "" && name == "panic"):
				t.Errorf("%s: %s: only main may exit the process", s.at(n), strings.TrimPrefix(pkg+"."+name, "."))
			case s.isTest() && !inBubble && pkg == "time" && name == "Sleep":
				t.Errorf("%s: time.Sleep in a test without a fake clock", s.at(n))
			case pkg == "fmt" && !s.isTest() && strings.HasPrefix(s.path, "internal/exposition/"):
				t.Errorf("%s: fmt.%s: the encoder must append to its buffer instead", s.at(n), name)
			}
			return true
		})
	}
	for path := range waits {
		if !waiting[path] {
			t.Errorf("%s does not wait for time: remove it from waits", path)
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s does not have a package comment", dir)
		}
	}
}
