package goldens

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden pages")

// comparePage compares a page with the golden page of that name. With -update, it writes the golden page instead.
func comparePage(t *testing.T, name string, page []byte) {
	t.Helper()
	path := filepath.Join("testdata", "pages", name+".txt")
	if *update {
		if err := os.WriteFile(path, page, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(page), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s\nIf the change is intended, run go test ./tests/goldens -update", path, diff)
	}
}
