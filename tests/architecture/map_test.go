package architecture

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// mapRow matches a row of the map in docs/architecture.md: layer, folder, purpose.
var mapRow = regexp.MustCompile("(?m)^\\| (\\d+|–) \\| `([^`]+)` \\| (.+) \\|$")

// TestMapMatchesPackages checks the map in docs/architecture.md. It must list each package of the exporter once, with
// its layer, and each folder outside the layers.
func TestMapMatchesPackages(t *testing.T) {
	page := folder.Read(t, "../../docs/architecture.md")
	drawn := map[string]string{}
	for _, row := range mapRow.FindAllStringSubmatch(page, -1) {
		if _, twice := drawn[row[2]]; twice {
			t.Errorf("docs/architecture.md has two rows for %s", row[2])
		}
		drawn[row[2]] = row[1]
	}
	outside := map[string]bool{}
	for _, p := range packages(t) {
		if within(p.ImportPath, outsideLayers) {
			outside[strings.SplitN(p.ImportPath, "/", 2)[0]] = true
			continue
		}
		layer, _ := layerOf(p.ImportPath)
		want := strconv.Itoa(layer)
		switch got, ok := drawn[p.ImportPath]; {
		case !ok:
			t.Errorf("docs/architecture.md has no row for %s (layer %s)", p.ImportPath, want)
		case got != want:
			t.Errorf("docs/architecture.md has %s in layer %s, want layer %s", p.ImportPath, got, want)
		}
		delete(drawn, p.ImportPath)
	}
	for tree := range outside {
		if drawn[tree] != "–" {
			t.Errorf("docs/architecture.md has no row for %s, which is outside the layers", tree)
		}
		delete(drawn, tree)
	}
	for folder := range drawn {
		t.Errorf("docs/architecture.md has a row for %s, which is not a package", folder)
	}
}
