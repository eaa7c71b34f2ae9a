package counters

import "strings"

// Nearest returns the known name that is most like the given one, or "" where
// none is alike. Derived names count; case does not.
func Nearest(name string) string {
	name = strings.ToUpper(strings.TrimSpace(name))
	const longest = 128
	if name == "" || len(name) > longest {
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
// with a neighbour to make b of a, or limit+1 if it is more than limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
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
