package counters

import "strings"

// longestName bounds the names that are compared. No known one is longer.
const longestName = 128

// Nearest returns the known name that is most like the given one, or "" where
// none is alike. Derived names count; case does not.
func Nearest(name string) string {
	name = strings.ToUpper(strings.TrimSpace(name))
	if name == "" || len(name) > longestName {
		return ""
	}
	// A third of the letters may be wrong, but never so many that any short
	// name would do.
	limit := min(len(name)/3, 12)
	best := ""
	consider := func(known string) {
		d := distance(name, strings.ToUpper(known), limit)
		if d < limit || d == limit && (best == "" || known < best) {
			best, limit = known, d
		}
	}
	for known := range index() {
		consider(known)
	}
	for _, d := range derivedKinds() {
		consider(d.String())
	}
	return best
}

// distance returns the number of letters to insert, delete, change or swap
// with a neighbour to make b of a, or limit+1 if it is more than limit. The
// names must not be longer than longestName.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	// What both begin and end with costs nothing, and is most of the names.
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var rows [3][longestName + 1]int
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
