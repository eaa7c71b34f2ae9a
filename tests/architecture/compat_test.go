package architecture

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// strictPackages are the packages that may mention --compatibility=strict: compat implements it, config parses it, app
// passes it on, and command explains it.
var strictPackages = []string{"internal/compat", "internal/config", "internal/app", "internal/command"}

// strictWord matches "strict" in identifiers and in prose, but not in "restrict".
var strictWord = regexp.MustCompile(`(^|[^a-z])strict|Strict`)

// TestStrictModeIsInOnePlace checks that only strictPackages mention strict mode, and that each of them does. Other
// packages name their options by their effect, such as snapshot.Facts.AsReported.
func TestStrictModeIsInOnePlace(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if s.isTest() || !within(s.path, []string{"internal", "cmd"}) {
			continue
		}
		allowed := within(filepath.ToSlash(filepath.Dir(s.path)), strictPackages)
		line := 0
		for text := range strings.Lines(folder.Read(t, "..", "..", s.path)) {
			if line++; !strictWord.MatchString(text) {
				continue
			}
			if used[filepath.ToSlash(filepath.Dir(s.path))] = true; !allowed {
				t.Errorf("%s:%d: only %v may mention strict mode: %s", s.path, line, strictPackages,
					strings.TrimSpace(text))
			}
		}
	}
	for _, p := range strictPackages {
		if !used[p] {
			t.Errorf("%s does not mention strict mode: remove it from strictPackages", p)
		}
	}
}
