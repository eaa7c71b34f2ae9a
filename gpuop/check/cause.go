package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxSubjects limits how many subjects a merged finding lists by name.
const maxSubjects = 4

// Together merges findings with the same cause. The merged finding takes the position of the first, and lists the nodes
// of all. Findings without a cause are unchanged.
func Together(findings []Finding) []Finding {
	all := map[string][]Finding{}
	for _, f := range findings {
		if f.Cause != "" {
			all[f.Cause] = append(all[f.Cause], f)
		}
	}
	var out []Finding
	for _, f := range findings {
		if f.Cause == "" {
			out = append(out, f)
		} else if same := all[f.Cause]; len(same) > 0 {
			out = append(out, merge(same))
			delete(all, f.Cause)
		}
	}
	return out
}

// merge merges findings with the same cause. Text and subjects come from the findings about nodes, if there are any,
// and the text is that of the first. The severity is the highest of all findings.
func merge(all []Finding) Finding {
	if len(all) == 1 {
		return all[0]
	}
	rank := func(f Finding) int {
		if f.Node == "" {
			return 0
		}
		return 1
	}
	merged := slices.MaxFunc(all, func(a, b Finding) int { return rank(a) - rank(b) })
	first := merged.Node
	var subjects, nodes []string
	for _, f := range all {
		merged.Severity = max(merged.Severity, f.Severity)
		if f.Node != "" && !slices.Contains(nodes, f.Node) {
			nodes = append(nodes, f.Node)
		}
		if rank(f) == rank(merged) && !slices.Contains(subjects, f.Subject) {
			subjects = append(subjects, f.Subject)
		}
	}
	if after, ok := strings.CutPrefix(merged.Fix, "delete it"); ok && len(subjects) > 1 {
		merged.Fix = "delete them" + after
	}
	if n := len(subjects) - maxSubjects; n > 0 {
		subjects = append(subjects[:maxSubjects], fmt.Sprintf("%d more", n))
	}
	merged.Subject, merged.Node, merged.Nodes = strings.Join(subjects, ", "), "", strings.Join(nodes, ", ")
	merged.Reason = cmp.Or(merged.Together, merged.Reason)
	switch {
	case len(nodes) == 1:
		merged.Node, merged.Nodes = merged.Nodes, ""
	case first != "":
		merged.Fix = strings.ReplaceAll(merged.Fix, " "+first+" ", " "+strings.Join(nodes, " ")+" ")
	}
	return merged
}

// first returns the finding to fix first: an error with a known cause, else an error without one, else a finding with
// the severity Waiting. It returns nil if there is no such finding, or if Start is not set.
func (r *Report) first() *Finding {
	rank := func(f Finding) int {
		switch {
		case f.Severity == Waiting:
			return 1
		case f.Severity != Error:
			return 0
		case f.Cause != "":
			return 3
		}
		return 2
	}
	if !r.Start || len(r.Findings) == 0 {
		return nil
	}
	best := slices.MaxFunc(r.Findings, func(a, b Finding) int { return rank(a) - rank(b) })
	if rank(best) == 0 {
		return nil
	}
	return &best
}
