package architecture

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

var (
	fence   = regexp.MustCompile("(?s)```.*?```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	// named matches files of the module in code, and in the first line of an example.
	named   = regexp.MustCompile("(?:`|// |# )((?:cmd|etc|gpuop|internal|tests|tools)/[\\w./-]+\\.(?:go|c|h|csv))\\b")
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// TestLinks checks the relative links in Markdown files outside testdata. Each must lead to a file, and to a heading of
// the file if the link has a fragment. The source files that the pages name must exist.
func TestLinks(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, page := range strings.Fields(string(out)) {
		text, err := os.ReadFile(page)
		if os.IsNotExist(err) || strings.Contains(page, "testdata") {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s names %s, which does not exist: %v", page, m[1], err)
			}
		}
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, fragment, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist: %v", page, m[1], err)
			} else if fragment != "" && !anchors(t, target)[fragment] {
				t.Errorf("%s links to %s, but %s does not have that heading", page, m[1], target)
			}
		}
	}
	if links < 100 {
		t.Errorf("found %d links, want at least 100", links)
	}
}

// anchors returns the fragments that GitHub makes from the headings of a page.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(folder.Read(t, page), ""), -1) {
		words := linked.ReplaceAllString(strings.ToLower(m[1]), "$1")
		all[strings.ReplaceAll(dropped.ReplaceAllString(words, ""), " ", "-")] = true
	}
	return all
}
