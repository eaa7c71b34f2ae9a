package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

// A State says whether what was looked at is as intended. The zero value is OK.
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
	// Failed is not as intended.
	Failed
)

var states = [...]string{OK: "ok", Note: "note", Waiting: "waiting", Unknown: "unknown", Warning: "warning", Failed: "failed"}

// String returns "ok", "note", "waiting", "unknown", "warning" or "failed".
func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText writes the name that String returns.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a name that String returns.
func (s *State) UnmarshalText(text []byte) error {
	i := slices.Index(states[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown state %q, want one of %v", text, states)
	}
	*s = State(i)
	return nil
}

// Severity returns how a linter would rank the state: what waits or is unknown is a warning.
func (s State) Severity() finding.Severity {
	switch s {
	case OK, Note:
		return finding.Info
	case Failed:
		return finding.Error
	}
	return finding.Warning
}

// A Verdict is one row: one thing that was looked at.
type Verdict struct {
	// ID is the stable name of the check, in kebab case: "allocatable-differs".
	ID    string `json:"id"`
	State State  `json:"state"`
	// Node is the node's name; empty for the cluster.
	Node string `json:"node,omitempty"`
	// Subject is what was looked at: a label, a resource, an operand, an object as kind/name.
	Subject string `json:"subject"`
	// Reason is one sentence: what was found, and, unless it is as intended, what was expected.
	Reason string `json:"reason"`
	// Since is when the state began, where that is known; zero otherwise.
	Since time.Time `json:"since,omitzero"`
	// Evidence is what was seen that says so. Where it is zero, Reason says at most what is likely.
	Evidence Evidence `json:"evidence,omitzero"`
	// Nodes are the nodes that one cause concerns, joined by ", ", where it concerns several; Node is empty then.
	Nodes string `json:"nodes,omitempty"`
	// Cause is what rows of one cause have alike; empty where the row stands for itself.
	Cause string `json:"-"`
	// Together is the reason of a row that stands for all of its cause; empty where Reason is.
	Together string `json:"-"`
	// Next is the next step, a command where there is one; empty where there is nothing to do.
	Next string `json:"next,omitempty"`
	// Source names where the expectation is documented.
	Source string `json:"source,omitempty"`
}

// Evidence is what was seen of an object.
type Evidence struct {
	// Kind is what it was seen in: "event", "taint", "label", "status", "condition", "spec", "field", "setting", "list",
	// "answer" and the like.
	Kind string `json:"kind"`
	// Object is what it was seen of, as kind/name, or the resource of a list.
	Object string `json:"object"`
	// Text is what it says, word for word.
	Text string `json:"text"`
	// Time is when it was seen last; zero where that is not known.
	Time time.Time `json:"time,omitzero"`
}

// Seen is what was seen of an object at no known time.
func Seen(kind, object, format string, args ...any) Evidence {
	return Evidence{Kind: kind, Object: object, Text: fmt.Sprintf(format, args...)}
}

// At returns the evidence with the time when it was seen.
func (e Evidence) At(t time.Time) Evidence {
	e.Time = t
	return e
}

// A Tree is what was judged. Its zero value is empty.
type Tree struct {
	// Title says what was judged: a cluster's server, a folder, a node.
	Title string `json:"title,omitempty"`
	// At is when it was read.
	At time.Time `json:"at,omitzero"`
	// Start shows first which row to begin with.
	Start bool `json:"-"`
	// Verdicts are the rows.
	Verdicts []Verdict `json:"verdicts"`
}

// Add appends rows.
func (t *Tree) Add(rows ...Verdict) { t.Verdicts = append(t.Verdicts, rows...) }

// Count returns how many rows have the state.
func (t *Tree) Count(s State) int {
	n := 0
	for _, v := range t.Verdicts {
		if v.State == s {
			n++
		}
	}
	return n
}

// Sort puts the cluster's rows first, then those of each node by its name; within a node the rows
// stay in the order in which they were judged, which is the order in which they depend on each
// other. Equal rows are dropped.
func (t *Tree) Sort() {
	slices.SortStableFunc(t.Verdicts, func(a, b Verdict) int { return cmp.Compare(a.Node, b.Node) })
	t.Verdicts = slices.Compact(t.Verdicts)
}

// Report returns the rows that are not OK as findings, for formats and exit codes that speak of
// mistakes: the subject is preceded by the node.
func (t *Tree) Report() finding.Report {
	var r finding.Report
	for _, v := range t.Verdicts {
		if v.State == OK {
			continue
		}
		subject := v.Subject
		if on := cmp.Or(v.Node, v.Nodes); on != "" {
			subject = on + ": " + subject
		}
		r.Add(finding.Finding{ID: v.ID, Severity: v.State.Severity(), Subject: subject, Reason: v.Reason, Fix: v.Next, Source: v.Source})
	}
	return r
}
