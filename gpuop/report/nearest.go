package report

import "github.com/gpu-telemetry/dcgm-exporter/internal/text"

// Nearest returns the candidate with the fewest edits from word, the first of equals, or "" where
// none is within a third of the word's length, and at least one edit. Unlike text.Nearest it
// completes no word: corrections are written by it.
func Nearest(word string, candidates []string) string {
	best, limit := "", max(1, len(word)/3)
	for _, c := range candidates {
		if d := text.Distance(word, c, limit); d <= limit {
			best, limit = c, d-1
		}
	}
	return best
}
