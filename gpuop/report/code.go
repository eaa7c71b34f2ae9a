package report

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// An ID names a rule or a check in kebab case: "unknown-key". Codes has a line for each.
type ID string

// A Code explains the rows of an ID.
type Code struct {
	ID ID
	// Commands are the words of the commands that show it.
	Commands []string
	// Worst is the highest severity of its rows: "error", "warn" or "info".
	Worst string
	// Meaning and Next are sentences: the row's meaning, and the next step.
	Meaning, Next string
	// Source is where the fact is documented.
	Source string
}

//go:embed codes.txt
var codes string

// Codes returns every code in the order of the table. The result is shared: callers must not change it.
var Codes = sync.OnceValue(func() []Code {
	var out []Code
	for line := range strings.Lines(codes) {
		// the format is held by a test
		if c := strings.Split(strings.TrimSpace(line), " | "); len(c) == 6 {
			out = append(out, Code{ID(c[0]), strings.Fields(c[1]), c[2], c[3], c[4], c[5]})
		}
	}
	return out
})

// code is the line of the ID; its zero value for an ID without one.
func (id ID) code() Code {
	if at := slices.IndexFunc(Codes(), func(c Code) bool { return c.ID == id }); at >= 0 {
		return Codes()[at]
	}
	return Code{ID: id}
}
