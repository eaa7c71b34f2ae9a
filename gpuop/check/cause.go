package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxSubjects limits how many subjects a merged finding lists.
const maxSubjects = 4

// Together merges findings with the same cause into one that lists their subjects and nodes, at the place of the first.
// Findings without a cause are unchanged.
func Together(rows []Finding) []Finding {
	all := map[string][]Finding{}
	for _, v := range rows {
		if v.Cause != "" {
			all[v.Cause] = append(all[v.Cause], v)
		}
	}
	var out []Finding
	for _, v := range rows {
		if v.Cause == "" {
			out = append(out, v)
		} else if same := all[v.Cause]; len(same) > 0 {
			out = append(out, one(same))
			delete(all, v.Cause)
		}
	}
	return out
}

// one merges findings with the same cause. If one of them is about a node, its text is used instead of the cluster's.
func one(all []Finding) Finding {
	if len(all) == 1 {
		return all[0]
	}
	rank := func(v Finding) int {
		if v.Node == "" {
			return 0
		}
		return 1
	}
	v := slices.MaxFunc(all, func(a, b Finding) int { return rank(a) - rank(b) })
	first := v.Node
	var subjects, nodes []string
	for _, row := range all {
		v.Severity = max(v.Severity, row.Severity)
		if row.Node != "" && !slices.Contains(nodes, row.Node) {
			nodes = append(nodes, row.Node)
		}
		if rank(row) == rank(v) && !slices.Contains(subjects, row.Subject) {
			subjects = append(subjects, row.Subject)
		}
	}
	if n := len(subjects) - maxSubjects; n > 0 {
		subjects = append(subjects[:maxSubjects], fmt.Sprintf("%d more", n))
	}
	v.Subject, v.Node, v.Nodes = strings.Join(subjects, ", "), "", strings.Join(nodes, ", ")
	v.Reason = cmp.Or(v.Together, v.Reason)
	switch {
	case len(nodes) == 1:
		v.Node, v.Nodes = v.Nodes, ""
	case first != "":
		v.Fix = strings.ReplaceAll(v.Fix, " "+first+" ", " "+strings.Join(nodes, " ")+" ")
	}
	return v
}

// first returns the finding to begin with: the most severe, preferably one with a known cause. It may be nil.
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
	if !r.Start || len(r.Rows) == 0 {
		return nil
	}
	best := slices.MaxFunc(r.Rows, func(a, b Finding) int { return rank(a) - rank(b) })
	if rank(best) == 0 {
		return nil
	}
	return &best
}
