package jobmapper

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("x", maxJob)
	tests := map[string]struct {
		content string
		want    []string
		dropped int
	}{
		"empty":                           {},
		"blank lines":                     {content: "\n \n\t\r\n\n"},
		"one":                             {content: "4711\n", want: []string{"4711"}},
		"no newline at the end":           {content: "4711", want: []string{"4711"}},
		"several names, one twice":        {content: "b\na\nb\n", want: []string{"a", "b"}},
		"from Windows":                    {content: "\ufeffa\r\nb\r\n", want: []string{"a", "b"}},
		"blanks around a name":            {content: "  a \t\n", want: []string{"a"}},
		"blanks in a name":                {content: "a job\n", want: []string{"a job"}},
		"quotes are kept":                 {content: `job "x"` + "\n", want: []string{`job "x"`}},
		"not UTF-8":                       {content: "job\xff\xfe7\n", want: []string{"job\ufffd7"}},
		"control characters":              {content: "a\x00b\x1b\n\x00\x00\n", want: []string{"a\ufffdb"}},
		"longest name, and one byte more": {content: long + "\n" + long + "y\n", want: []string{long}, dropped: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, dropped := parse([]byte(tt.content))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if dropped != tt.dropped {
				t.Errorf("dropped %d, want %d", dropped, tt.dropped)
			}
		})
	}
}

// Every parsed name is a valid label value, and parsing the names again yields the same result. A new line adds one
// job. Neither the order nor the line endings matter.
func FuzzParse(f *testing.F) {
	f.Add([]byte("b\r\n\na \xff\n\x00\nb"))
	f.Add([]byte("\ufeff1234\n" + strings.Repeat("z", 300)))
	f.Fuzz(func(t *testing.T, content []byte) {
		jobs, dropped := parse(content)
		for _, job := range jobs {
			if job == "" || len(job) > maxJob || !utf8.ValidString(job) || strings.TrimSpace(job) != job ||
				strings.ContainsFunc(job, unicode.IsControl) {
				t.Errorf("job = %q, want a valid job name", job)
			}
		}
		if !slices.IsSorted(jobs) || len(slices.Compact(slices.Clone(jobs))) != len(jobs) {
			t.Errorf("jobs = %q, want them sorted without duplicates", jobs)
		}
		longer, _ := parse(append(bytes.Clone(content), "\nzzz-4711"...))
		union := append(slices.Clone(jobs), "zzz-4711")
		slices.Sort(union)
		if diff := cmp.Diff(slices.Compact(union), longer); diff != "" {
			t.Errorf("jobs after adding a line (-want +got):\n%s", diff)
		}
		again, more := parse([]byte(strings.Join(jobs, "\n")))
		if diff := cmp.Diff(jobs, again); diff != "" || more != 0 {
			t.Errorf("jobs parsed again: %d dropped, want 0; names (-want +got):\n%s", more, diff)
		}
		lines := slices.Collect(bytes.Lines(content))
		slices.Reverse(lines)
		var other []byte
		for _, line := range lines {
			other = append(append(other, bytes.TrimSuffix(line, []byte("\n"))...), "\r\n"...)
		}
		turned, turnedDropped := parse(other)
		if diff := cmp.Diff(jobs, turned); diff != "" || turnedDropped != dropped {
			t.Errorf("jobs in reverse order with other line endings: %d dropped, want %d; names (-want +got):\n%s",
				turnedDropped, dropped, diff)
		}
	})
}
