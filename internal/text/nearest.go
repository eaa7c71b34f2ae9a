package text

import (
	"slices"
	"strconv"
	"strings"
)

// Longest is the maximum length of words that are compared, so that a comparison does not allocate. No known name is
// longer.
const Longest = 128

// Nearest returns the candidate with the fewest edits from word; ties go to the first. At most a third of the word's
// length may differ, but at least one edit is allowed. If no candidate is that close, Nearest returns the only
// candidate with the prefix word, or "".
func Nearest(word string, candidates []string) string {
	best, limit := "", max(1, len(word)/3)
	for _, c := range candidates {
		if d := Distance(word, c, limit); d <= limit {
			best, limit = c, d-1
		}
	}
	isOther := func(c string) bool { return !strings.HasPrefix(c, word) }
	longer := slices.DeleteFunc(slices.Clone(candidates), isOther)
	if best == "" && len(word) > 1 && len(longer) == 1 {
		return longer[0]
	}
	return best
}

// Suggest ends a sentence about an unknown word with the nearest known word, or with all known words if none is near.
func Suggest(word string, known []string) string {
	known = slices.Sorted(slices.Values(known))
	if near := Nearest(word, known); near != "" {
		return "did you mean " + strconv.Quote(near) + "?"
	}
	return "expected one of " + strings.Join(known, ", ")
}

// Distance returns how many bytes must be inserted, deleted, changed or swapped with a neighbor to turn a into b, or
// limit+1 if more than limit. Words longer than Longest always exceed the limit.
func Distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit || max(len(a), len(b)) > Longest {
		return limit + 1
	}
	// Skip common prefixes and suffixes, which are most of a name.
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var rows [3][Longest + 1]int
	before, above, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			row[j] = d
			least = min(least, d)
		}
		if least > limit {
			return limit + 1
		}
		before, above, row = above, row, before
	}
	return min(above[len(b)], limit+1)
}
