package jobmapper

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The budgets of a file.
const (
	maxFile = 64 << 10 // bytes
	maxJob  = 256      // bytes of one job's name
)

// Parse returns the jobs that a file names, one per line, sorted and each once. Blank lines,
// surrounding blanks, carriage returns and a byte order mark are no part of a name; what is not
// UTF-8 or a control character becomes U+FFFD. A name of more than 256 bytes names nothing: cut, it
// would be another job's. dropped is the number of those.
func Parse(content []byte) (jobs []string, dropped int) {
	for line := range bytes.Lines(content) {
		job := clean(line)
		switch {
		case job == "":
		case len(job) > maxJob:
			dropped++
		default:
			jobs = append(jobs, job)
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs), dropped
}

func clean(line []byte) string {
	noise := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\ufeff' }
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(strings.TrimFunc(string(line), noise), string(utf8.RuneError)))
}
