package goldens

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

var update = flag.Bool("update", false, "rewrite the golden pages")

// comparePage compares a page with the golden page of that name. With -update, it writes the golden page instead.
func comparePage(t *testing.T, name string, page []byte) {
	t.Helper()
	path := filepath.Join("testdata", "pages", name+".txt")
	if *update {
		folder.Write(t, path, string(page))
		return
	}
	want := strings.Split(folder.Read(t, path), "\n")
	if diff := cmp.Diff(want, strings.Split(string(page), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s\nIf the change is intended, run go test ./tests/goldens -update", path, diff)
	}
}
