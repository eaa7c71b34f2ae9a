package config

// nearest returns the candidate with the fewest edits from word, or "" when
// none is within a third of the word's length (at least one edit).
func nearest(word string, candidates []string) string {
	best, fewest := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if n := edits(word, c); n < fewest {
			best, fewest = c, n
		}
	}
	return best
}

// edits is the Levenshtein distance of a and b in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
