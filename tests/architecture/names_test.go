package architecture

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)

// TestSelectedTestsExist checks that the tests named in the Makefile and in the scripts exist. "go test -run" also
// passes if it selects no test.
func TestSelectedTestsExist(t *testing.T) {
	exists := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.isTest() && f.Recv == nil {
				exists[f.Name.Name] = true
			}
		}
	}
	files := []string{"Makefile"}
	for _, pattern := range []string{".ci/*", ".github/workflows/*", "tests/*/*.sh"} {
		found, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: found no file (error %v)", pattern, err)
		}
		for _, path := range found {
			rel, _ := filepath.Rel(filepath.Join("..", ".."), path)
			files = append(files, rel)
		}
	}
	selected := 0
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range testName.FindAllString(string(text), -1) {
			selected++
			if !exists[test] {
				t.Errorf("%s names the test %s, which does not exist", name, test)
			}
		}
	}
	if selected == 0 {
		t.Error("tests named by the Makefile and the scripts = 0, want at least 1")
	}
}
