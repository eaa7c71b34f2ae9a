package jobmapper

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of a file.
const (
	maxFile = 64 << 10 // bytes
	maxJob  = 256      // bytes of one job's name
)

// Parse returns the jobs that a file names, one per line, sorted and without duplicates. It ignores blank lines,
// surrounding spaces, carriage returns and a byte order mark. Invalid UTF-8 and control characters become U+FFFD. A
// name of more than 256 bytes is dropped, because a truncated name could be another job's. dropped is the number of
// dropped names.
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
