package finding

// Nearest returns the candidate closest to word by edit distance (a swap of two neighbours counts as one edit),
// or "" when none is close enough to be what the author meant: at most a third of the word's length, and at least
// one edit. Of equally close candidates the first wins.
func Nearest(word string, candidates []string) string {
	limit := max(1, len(word)/3)
	best, bestDistance := "", limit+1
	for _, c := range candidates {
		if c == word {
			return c
		}
		if d := distance(word, c, bestDistance); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the restricted Damerau-Levenshtein distance of a and b in bytes; it may return any number not below
// stop once the distance is sure to reach it.
func distance(a, b string, stop int) int {
	if diff := len(a) - len(b); diff >= stop || -diff >= stop {
		return stop
	}
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		smallest := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
			smallest = min(smallest, current[j])
		}
		if smallest >= stop {
			return stop
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
