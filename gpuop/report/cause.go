package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxSubjects limits how many subjects a merged row lists.
const maxSubjects = 4

// Together merges rows with the same cause into one that lists their subjects and nodes, at the place of the first.
// Rows without a cause are unchanged.
func Together(rows []Row) []Row {
	all := map[string][]Row{}
	for _, v := range rows {
		if v.Cause != "" {
			all[v.Cause] = append(all[v.Cause], v)
		}
	}
	var out []Row
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

// one merges rows with the same cause. It prefers the row of a node to the cluster's, and both to a first-broken-link
// row.
func one(all []Row) Row {
	if len(all) == 1 {
		return all[0]
	}
	rank := func(v Row) int {
		switch {
		case v.ID == "first-broken-link":
			return 0
		case v.Node == "":
			return 1
		}
		return 2
	}
	v := slices.MaxFunc(all, func(a, b Row) int { return rank(a) - rank(b) })
	first := v.Node
	var subjects, nodes []string
	for _, row := range all {
		v.State = max(v.State, row.State)
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

// first describes the first thing to fix: the most severe row, preferably one with a known cause, and its fix.
func (r *Report) first() string {
	rank := func(row Row) int {
		switch {
		case row.State == Waiting:
			return 1
		case row.State != Failed:
			return 0
		case row.Cause != "":
			return 4
		case row.ID == "first-broken-link":
			return 3
		}
		return 2
	}
	if !r.Start || len(r.Rows) == 0 {
		return ""
	}
	best := slices.MaxFunc(r.Rows, func(a, b Row) int { return rank(a) - rank(b) })
	if rank(best) == 0 {
		return ""
	}
	for _, row := range r.Rows {
		if best.ID == "first-broken-link" && row.ID == "operand" && row.Node == best.Node && row.Subject == best.Subject {
			best = row // the operand's own row has more detail
		}
	}
	text := best.Subject
	if on := cmp.Or(best.Nodes, best.Node); on != "" {
		text += " on " + on
	}
	text += ": " + best.Reason
	if best.Fix != "" {
		text += " → " + best.Fix
	}
	return text
}
