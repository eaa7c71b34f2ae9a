package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Severity is the result of a check. The zero value is OK.
type Severity uint8

// Severities are in ascending order. String and JSON show Waiting and Unknown as warnings.
const (
	// OK means that the check passed.
	OK Severity = iota
	// Note means that the check passed, but there is something worth knowing.
	Note
	// Waiting means that the subject is not ready, and may become ready by itself.
	Waiting
	// Unknown means that the check was not possible.
	Unknown
	// Warning means that the subject does not work as intended, or will fail later.
	Warning
	// Error means that an input is rejected, or that something is broken.
	Error
)

// String returns "error", "warning", "note" or "ok".
func (s Severity) String() string {
	return [...]string{"ok", "note", "warning", "warning", "warning", "error"}[s]
}

// AtSeverity returns the lowest severity at which the exit code is 1 if word is the argument of --fail-on. For "never",
// it returns a value above all severities.
func AtSeverity(word string) (Severity, error) {
	known := map[string]Severity{"note": Note, "info": Note, "warning": Waiting, "warn": Waiting, "error": Error,
		"never": Error + 1}
	if s, ok := known[word]; ok {
		return s, nil
	}
	return OK, fmt.Errorf("unknown severity %q, expected error, warning, note or never", word)
}

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is the result of a check: a mistake in a file, or the state of a part of a cluster or node.
type Finding struct {
	Check    *Check   `json:"id"`
	Severity Severity `json:"severity"`
	// File is the input as the user named it. It is empty for the command line and for clusters.
	File string `json:"file,omitempty"`
	// Line and Column are 1-based; 0 means unknown.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Node is the name of the node. It is empty for files and for findings about the whole cluster.
	Node string `json:"node,omitempty"`
	// Nodes lists the nodes of a merged finding, separated by ", ". If it is set, Node is empty.
	Nodes string `json:"nodes,omitempty"`
	// Subject is the key, label, flag, resource, operand or object (kind/name) that the finding is about.
	Subject string `json:"subject,omitempty"`
	// Reason is one sentence: what was found and, if the check did not pass, what it means.
	Reason string `json:"reason"`
	// Since is when the reported condition began; zero if unknown.
	Since time.Time `json:"since,omitzero"`
	// Evidence is the observation of the cluster that proves the finding. Findings about files and hosts have none.
	Evidence Evidence `json:"evidence,omitzero"`
	// Cause identifies the root cause; it may be empty. Findings with the same cause are merged.
	Cause string `json:"-"`
	// Together replaces Reason if the finding is merged with others. It may be empty.
	Together string `json:"-"`
	// Fix is the next step: a corrected text or a command. It may be empty.
	Fix string `json:"fix,omitempty"`
	// Text is the source line, shown in text output. It is empty if the line is unknown or contains a secret.
	Text string `json:"-"`
}

// Say sets the severity and the reason.
func (f *Finding) Say(severity Severity, format string, args ...any) {
	f.Severity, f.Reason = severity, fmt.Sprintf(format, args...)
}

// Evidence is an observation of an object.
type Evidence struct {
	// Kind is the kind of the observation, such as "event", "log", "taint", "label", "status", "condition", "spec",
	// "field", "setting", "list" or "answer".
	Kind string `json:"kind"`
	// Object is the object as kind/name, or the resource that was listed.
	Object string `json:"object"`
	// Text describes what was observed. Log lines and event messages are quoted.
	Text string `json:"text"`
	// Time is the time of the last observation; zero if unknown.
	Time time.Time `json:"time,omitzero"`
}

// Seen returns Evidence without a time.
func Seen(kind, object, format string, args ...any) Evidence {
	return Evidence{Kind: kind, Object: object, Text: fmt.Sprintf(format, args...)}
}

// At returns a copy of the evidence with the given time.
func (e Evidence) At(t time.Time) Evidence {
	e.Time = t
	return e
}

// Report is a list of findings. The zero value is an empty report about files.
type Report struct {
	// Judged means that the report is about a cluster or a node. Such reports can show passed checks.
	Judged bool `json:"-"`
	// Start makes WriteText begin with the finding to fix first.
	Start bool `json:"-"`
	// Title names the API server, the folder or the node.
	Title string `json:"title,omitempty"`
	// At is when the state was read.
	At       time.Time `json:"at,omitzero"`
	Findings []Finding `json:"findings"`
	// Ignored counts the findings that the user chose to ignore.
	Ignored int `json:"ignored,omitempty"`
	// Result is the command's result if it has one in addition to findings, such as a list of images.
	Result any `json:"result,omitempty"`
}

// Add appends findings.
func (r *Report) Add(findings ...Finding) { r.Findings = append(r.Findings, findings...) }

// AtLeast reports whether any finding has severity s or higher.
func (r *Report) AtLeast(s Severity) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity >= s })
}

// Sort sorts the findings and removes duplicates. Findings about files are sorted by file (in order of appearance),
// line, column, severity (highest first), ID, subject and reason. Findings about a cluster come before those about its
// nodes, which are sorted by name. The findings about a node keep their order, which is the dependency order.
func (r *Report) Sort() {
	order := map[string]int{}
	for _, f := range r.Findings {
		if _, seen := order[f.File]; !seen {
			order[f.File] = len(order)
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		if r.Judged {
			return cmp.Compare(a.Node, b.Node)
		}
		return cmp.Or(
			cmp.Compare(order[a.File], order[b.File]),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(b.Severity, a.Severity),
			cmp.Compare(a.Check.ID, b.Check.ID),
			cmp.Compare(a.Subject, b.Subject),
			cmp.Compare(a.Reason, b.Reason),
		)
	})
	r.Findings = slices.Compact(r.Findings)
}
