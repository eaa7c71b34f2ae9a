package architecture

import (
	"go/ast"
	"regexp"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
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
	selected := 0
	for _, pattern := range []string{"Makefile", ".ci/*", ".github/workflows/*", "tests/*/*.sh"} {
		for _, path := range folder.Files(t, "..", "..", pattern) {
			for _, test := range testName.FindAllString(folder.Read(t, path), -1) {
				selected++
				if !exists[test] {
					t.Errorf("%s names the test %s, which does not exist", path, test)
				}
			}
		}
	}
	if selected == 0 {
		t.Error("tests named by the Makefile and the scripts = 0, want at least 1")
	}
}
