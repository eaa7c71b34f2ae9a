package finding

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// A Severity says how bad a finding is. The zero value is Info.
type Severity uint8

// The severities, from harmless to broken.
const (
	// Info is worth knowing; nothing breaks.
	Info Severity = iota
	// Warning means a setting that does not do what its author expects.
	Warning
	// Error means an input that is refused, or that breaks or silently changes the installation.
	Error
)

// ErrSeverity is returned for a word that names no severity.
var ErrSeverity = errors.New("unknown severity")

var severityNames = [...]string{Info: "info", Warning: "warn", Error: "error"}

// String returns "info", "warn" or "error".
func (s Severity) String() string {
	if int(s) < len(severityNames) {
		return severityNames[s]
	}
	return fmt.Sprintf("severity(%d)", uint8(s))
}

// MarshalText writes the name that String returns.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a name that String returns; "warning" is understood too.
func (s *Severity) UnmarshalText(text []byte) error {
	switch string(text) {
	case "info":
		*s = Info
	case "warn", "warning":
		*s = Warning
	case "error":
		*s = Error
	default:
		return fmt.Errorf("%w %q, want error, warn or info", ErrSeverity, text)
	}
	return nil
}

// A Finding is one mistake, or one fact worth knowing, about an input.
type Finding struct {
	// ID is the stable name of the rule, in kebab case: "unknown-key".
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// File is the input as the user named it; empty when the input came from the command line.
	File string `json:"file,omitempty"`
	// Line and Column are 1-based; 0 means unknown.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Subject is the key, label, flag or word that the finding is about.
	Subject string `json:"subject,omitempty"`
	// Reason is one sentence: what was found, and what that means.
	Reason string `json:"reason"`
	// Fix says what to write instead; empty when there is nothing to write.
	Fix string `json:"fix,omitempty"`
	// Source names where the fact is documented.
	Source string `json:"source,omitempty"`
}

// A Report is a list of findings. Its zero value is an empty report.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Add appends findings.
func (r *Report) Add(findings ...Finding) { r.Findings = append(r.Findings, findings...) }

// Count returns how many findings have the severity.
func (r *Report) Count(s Severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// AtLeast reports whether a finding is as severe as s, or more.
func (r *Report) AtLeast(s Severity) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity >= s })
}

// Sort puts the findings in the order in which they are read: by file (keeping the order in which
// files first appear), then line, column, the more severe first, then rule and subject; equal
// findings are dropped.
func (r *Report) Sort() {
	order := map[string]int{}
	for _, f := range r.Findings {
		if _, seen := order[f.File]; !seen {
			order[f.File] = len(order)
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(order[a.File], order[b.File]),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(b.Severity, a.Severity),
			cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Subject, b.Subject),
			cmp.Compare(a.Reason, b.Reason),
		)
	})
	r.Findings = slices.Compact(r.Findings)
}
