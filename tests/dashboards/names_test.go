package dashboards

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

// written are names that look like a metric or a variable of ours. A name that ends in an
// underscore and a star or an ellipsis stands for all that begin so.
var written = regexp.MustCompile(`\b(?:DCGM_[A-Z0-9_]+|dcgm_(?:exporter|pod|gpu)_[a-z0-9_]+)(?:[*…{]|\b)`)

// others are names of DCGM's own that are neither metrics nor variables, and build arguments of the
// images.
var others = regexp.MustCompile(`^DCGM_(FR|ST|FV|FE|FP|HEALTH|GROUP|LEVEL|CUDA|ENTITY|INT|STR|MAX|UUID)_|^DCGM_(PACKAGES|REPOSITORY|VERSION)$`)

// A name that is written anywhere for a user to copy exists.
func TestEveryNameThatIsWrittenExists(t *testing.T) {
	known := knownNames(t)
	if len(known) < 500 {
		t.Fatalf("only %d names known", len(known))
	}
	checked := 0
	for _, path := range pages(t) {
		if filepath.Base(path) == "CHANGELOG.md" { // it names what is gone
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range written.FindAllString(string(text), -1) {
			checked++
			if !exists(known, name) {
				t.Errorf("%s names %s, which does not exist", strings.TrimPrefix(path, root+"/"), name)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d names found", checked)
	}
}

// exists reports whether a name, or one that begins like a name with a star, is known.
func exists(known map[string]bool, name string) bool {
	stem := strings.TrimRight(name, "*…{")
	if _, ok := catalog.Lookup(stem); ok || known[stem] || others.MatchString(name) {
		return true
	}
	if stem == name && !strings.HasSuffix(name, "_") {
		return false
	}
	for k := range known {
		if strings.HasPrefix(k, stem) {
			return true
		}
	}
	return false
}

// pages returns the files that are written for users.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")}
	for _, folder := range []string{"docs", "grafana", "deployment"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// knownNames are those of the catalog, and those that the code spells out: derived families, the
// exporter's own series, variables.
func knownNames(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for e := range catalog.All() {
		for _, name := range append([]string{e.Name, e.Classic, e.Current}, e.Aliases...) {
			known[name] = true
		}
	}
	for _, m := range regexp.MustCompile(`\$([A-Z][A-Z0-9_]+)`).FindAllStringSubmatch(config.Help(), -1) {
		known[m[1]] = true
	}
	walkCode(t, func(n ast.Node) {
		if name, ok := stringOf(n); ok && written.FindString(name) == name {
			known[name] = true
		}
	})
	return known
}
