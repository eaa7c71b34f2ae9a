package report

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

var hyphens = strings.NewReplacer("-", "", "_", "")

// folded is a word without what is often written differently: dcgm-exporter means dcgmExporter.
func folded(word string) string { return strings.ToLower(hyphens.Replace(word)) }

// Suggest is the fix that names the nearest of the known words, or otherwise.
func Suggest(word string, known []string, otherwise string) string {
	if near := Nearest(word, known); near != "" {
		return "write " + near
	}
	return otherwise
}

// Nearest returns the candidate with the fewest edits from word, the first of equals, or "" where
// none is within a third of the word's length, and at least one edit. Letter case, hyphens and underscores are no
// edits. Unlike text.Nearest it completes no word: corrections are written by it.
func Nearest(word string, candidates []string) string {
	if slices.Contains(candidates, word) {
		return word
	}
	word = folded(word)
	best, limit := "", max(1, len(word)/3)
	for _, c := range candidates {
		if d := text.Distance(word, folded(c), limit); d <= limit {
			best, limit = c, d-1
		}
	}
	return best
}
