package report

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A State says whether a subject is as intended. The zero value is OK.
type State uint8

// The states, from right to wrong.
const (
	// OK is as intended.
	OK State = iota
	// Note is as intended, and worth knowing.
	Note
	// Waiting is on its way to what is intended, and may arrive by itself.
	Waiting
	// Unknown could not be judged: it was not read, or is not said.
	Unknown
	// Warning works, and does not do what its author expects, or will break a later step.
	Warning
	// Failed is not as intended: an input that is refused, or that breaks the installation.
	Failed
)

// ErrSeverity is returned for a word that names no severity.
var ErrSeverity = errors.New("unknown severity")

var states = [...]string{OK: "ok", Note: "note", Waiting: "waiting", Unknown: "unknown", Warning: "warning", Failed: "failed"}

// String returns "ok", "note", "waiting", "unknown", "warning" or "failed".
func (s State) String() string { return states[s] }

// Severity returns the state's name in a linter's words: "error", "warn", "info" or "ok".
func (s State) Severity() string {
	switch s {
	case OK:
		return "ok"
	case Note:
		return "info"
	case Failed:
		return "error"
	}
	return "warn"
}

// AtSeverity returns the least state of a severity: "error", "warn" or "info"; no row has that of "never".
func AtSeverity(word string) (State, error) {
	switch word {
	case "info":
		return Note, nil
	case "warn", "warning":
		return Waiting, nil
	case "error":
		return Failed, nil
	case "never":
		return Failed + 1, nil
	}
	return OK, fmt.Errorf("%w %q, want error, warn, info or never", ErrSeverity, word)
}

// MarshalText writes the name that String returns.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Row is one thing that was looked at: a mistake in an input, or a part of a cluster or a node.
type Row struct {
	// ID is the stable name of the rule.
	ID    ID    `json:"id"`
	State State `json:"state"`
	// File is the input as the user named it; empty when the input came from the command line, and for
	// clusters.
	File string `json:"file,omitempty"`
	// Line and Column are 1-based; 0 means unknown.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Node is the node's name; empty for the cluster, and for files.
	Node string `json:"node,omitempty"`
	// Nodes are the nodes that one cause concerns, joined by ", ", where it concerns several; Node is empty then.
	Nodes string `json:"nodes,omitempty"`
	// Subject is the key, label, flag, resource, operand or object (kind/name) that the row is about.
	Subject string `json:"subject,omitempty"`
	// Reason is one sentence: the finding, and, unless it is as intended, its meaning or the expectation.
	Reason string `json:"reason"`
	// Since is when the state began, where that is known; zero otherwise.
	Since time.Time `json:"since,omitzero"`
	// Evidence was seen in a cluster and says so. Where it is zero there, Reason says at most what is likely.
	Evidence Evidence `json:"evidence,omitzero"`
	// Cause is the same for the rows of one cause; empty where the row stands for itself.
	Cause string `json:"-"`
	// Together is the reason of a row that stands for all of its cause; empty where Reason is.
	Together string `json:"-"`
	// Fix is the next step: what to write instead, or a command; empty where there is nothing to do.
	Fix string `json:"fix,omitempty"`
}

// Say puts the row into a state, for the reason of a sentence.
func (r *Row) Say(state State, format string, args ...any) {
	r.State, r.Reason = state, fmt.Sprintf(format, args...)
}

// Evidence is an observation of an object.
type Evidence struct {
	// Kind is the part of the object: "event", "taint", "label", "status", "condition", "spec", "field", "setting",
	// "list",
	// "answer" and the like.
	Kind string `json:"kind"`
	// Object is the object as kind/name, or the resource of a list.
	Object string `json:"object"`
	// Text is the observation, word for word.
	Text string `json:"text"`
	// Time is the last time of the observation; zero if unknown.
	Time time.Time `json:"time,omitzero"`
}

// Seen returns evidence without a time.
func Seen(kind, object, format string, args ...any) Evidence {
	return Evidence{Kind: kind, Object: object, Text: fmt.Sprintf(format, args...)}
}

// At returns the evidence with the time when it was seen.
func (e Evidence) At(t time.Time) Evidence {
	e.Time = t
	return e
}

// A Report is a list of rows. Its zero value is empty, and about files.
type Report struct {
	// Judged says that the rows are about a cluster or a node, where OK is worth a row.
	Judged bool `json:"-"`
	// Start shows first which row to begin with.
	Start bool `json:"-"`
	// Title names the cluster's server, the folder or the node.
	Title string `json:"title,omitempty"`
	// At is the time of the reading.
	At   time.Time `json:"at,omitzero"`
	Rows []Row     `json:"findings"`
}

// Add appends rows.
func (r *Report) Add(rows ...Row) { r.Rows = append(r.Rows, rows...) }

// AtLeast reports whether a row is as bad as s, or worse.
func (r *Report) AtLeast(s State) bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.State >= s })
}

// Sort puts the rows in the order in which they are read; equal rows are dropped. Those of files go by
// file (keeping the order in which files first appear), then line, column, the worse first, then rule
// and subject. Those of a cluster come before those of each node by its name; within a node they keep
// the order in which they depend on each other.
func (r *Report) Sort() {
	order := map[string]int{}
	for _, row := range r.Rows {
		if _, seen := order[row.File]; !seen {
			order[row.File] = len(order)
		}
	}
	slices.SortStableFunc(r.Rows, func(a, b Row) int {
		if r.Judged {
			return cmp.Compare(a.Node, b.Node)
		}
		return cmp.Or(
			cmp.Compare(order[a.File], order[b.File]),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(b.State, a.State),
			cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Subject, b.Subject),
			cmp.Compare(a.Reason, b.Reason),
		)
	})
	r.Rows = slices.Compact(r.Rows)
}

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
