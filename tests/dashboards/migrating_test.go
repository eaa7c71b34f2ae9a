package dashboards

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

var (
	flagSpan  = regexp.MustCompile(`^(--[a-z-]+)(?:=(\S+))?$`)
	labelSpan = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	variable  = regexp.MustCompile(`^[A-Z][A-Z0-9_]+$`)
	fenced    = regexp.MustCompile("(?s)```.*?```")
	matcher   = regexp.MustCompile(`\b([A-Za-z_]+)(?:=|!=|=~)"`)
)

// TestMigrating holds that docs/migrating.md can be followed: its table is whole, each switch is
// one that the exporter takes, and each label and variable is one that the code knows. That its
// families exist is tested for every page.
func TestMigrating(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs", "migrating.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := fenced.ReplaceAllString(string(content), "")
	rows, flags := 0, 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 {
			t.Errorf("%d cells, want 5: %s", len(cells), line)
		}
		for i, c := range cells {
			if strings.TrimSpace(c) == "" {
				t.Errorf("cell %d is empty: %s", i+1, line)
			}
		}
		rows++
	}
	if rows < 20 {
		t.Errorf("%d rows, want the table", rows)
	}
	help, words := config.Help(), wordsInCode(t)
	for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
		span := m[1]
		if f := flagSpan.FindStringSubmatch(span); f != nil {
			checkFlag(t, help, f[1], f[2])
			flags++
			continue
		}
		switch {
		case written.MatchString(span): // a family
		case variable.MatchString(span) && !words[span]:
			if !strings.Contains(help, "$"+span) && !strings.Contains(help, "  "+span+"\n") {
				t.Errorf("no variable %s", span)
			}
		case labelSpan.MatchString(span) && !words[span] && !notLabels[span]:
			t.Errorf("no label %s in the code", span)
		}
		for _, l := range matcher.FindAllStringSubmatch(span, -1) {
			if !words[l[1]] {
				t.Errorf("no label %s in the code: %s", l[1], span)
			}
		}
	}
	if flags < 20 {
		t.Errorf("%d flags, want those of the table", flags)
	}
}

// notLabels are words in code font that are something else.
var notLabels = map[string]bool{"up": true, "none": true, "sim": true, "command": true}

// checkFlag holds that a flag exists and takes the value, without a word about it.
func checkFlag(t *testing.T, help, name, value string) {
	t.Helper()
	if !regexp.MustCompile(regexp.QuoteMeta(name) + `[ ,]`).MatchString(help) {
		t.Errorf("no flag %s", name)
		return
	}
	if value == "" {
		return
	}
	c, err := config.Parse([]string{name + "=" + value}, func(string) (string, bool) { return "", false }, os.ReadFile)
	if err != nil || len(c.Notices) > 0 {
		t.Errorf("%s=%s: %v", name, value, err)
	}
}

// wordsInCode returns every text in the code that could be a label's name.
func wordsInCode(t *testing.T) map[string]bool {
	t.Helper()
	words := map[string]bool{}
	walkCode(t, func(n ast.Node) {
		if s, ok := stringOf(n); ok && labelSpan.MatchString(s) {
			words[s] = true
		}
	})
	return words
}
