package check

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

var hyphens = strings.NewReplacer("-", "", "_", "")

// folded returns word in lower case without hyphens and underscores, so that dcgm-exporter equals dcgmExporter.
func folded(word string) string { return strings.ToLower(hyphens.Replace(word)) }

// Suggest returns "write X", where X is the known word nearest to word. If no known word is near, it returns fallback.
func Suggest(word string, known []string, fallback string) string {
	if near := Nearest(word, known); near != "" {
		return "write " + near
	}
	return fallback
}

// Ask returns a question about a name on the command line, "did you mean X?", or fallback as Suggest does.
func Ask(word string, known []string, fallback string) string {
	if near := Nearest(word, known); near != "" {
		return "did you mean " + near + "?"
	}
	return fallback
}

// Nearest returns the candidate with the smallest edit distance from word, or "" if none is near. A candidate is near
// if the distance is at most a third of the word's length, or at most 1 for short words. Case, hyphens and underscores
// are ignored. Unlike text.Nearest, it does not complete prefixes, because --fix writes the result.
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
