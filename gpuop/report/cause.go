package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxSubjects limits the subjects that a row names.
const maxSubjects = 4

// Together makes one row of the rows of one cause, in the place of the first; it lists their subjects and
// nodes. Rows without a cause stay as they are.
func Together(rows []Row) []Row {
	all := map[string][]Row{}
	for _, v := range rows {
		if v.Cause != "" {
			all[v.Cause] = append(all[v.Cause], v)
		}
	}
	var out []Row
	done := map[string]bool{}
	for _, v := range rows {
		switch {
		case v.Cause == "" || len(all[v.Cause]) == 1:
			out = append(out, v)
		case !done[v.Cause]:
			done[v.Cause] = true
			out = append(out, one(all[v.Cause]))
		}
	}
	return out
}

// one is the row of several with one cause: a node's row comes before the cluster's and before a row that points to
// another.
func one(all []Row) Row {
	var own, nodes, subjects []string
	of := func(v Row) int {
		switch {
		case v.ID == "first-broken-link":
			return 0
		case v.Node == "":
			return 1
		}
		return 2
	}
	best := slices.MaxFunc(all, func(a, b Row) int { return of(a) - of(b) })
	v := all[slices.IndexFunc(all, func(v Row) bool { return of(v) == of(best) })]
	for _, row := range all {
		v.State = max(v.State, row.State)
		if row.Node != "" && !slices.Contains(nodes, row.Node) {
			nodes = append(nodes, row.Node)
		}
		if of(row) == of(v) && !slices.Contains(own, row.Subject) {
			own = append(own, row.Subject)
		}
	}
	subjects = own
	if len(own) > maxSubjects {
		subjects = append(slices.Clone(own[:maxSubjects]), fmt.Sprintf("%d more", len(own)-maxSubjects))
	}
	v.Subject = strings.Join(subjects, ", ")
	if v.Together != "" {
		v.Reason = v.Together
	}
	switch first := v.Node; len(nodes) {
	case 0:
	case 1:
		v.Node = nodes[0]
	default:
		v.Node, v.Nodes = "", strings.Join(nodes, ", ")
		if first != "" {
			v.Fix = strings.ReplaceAll(v.Fix, " "+first+" ", " "+strings.Join(nodes, " ")+" ")
		}
	}
	return v
}

// first is the first step for somebody who wants it mended: the worst row that names a cause, and its
// next step.
func (r *Report) first() string {
	if !r.Start {
		return ""
	}
	rank := func(row Row) int {
		switch {
		case row.State != Failed && row.State != Waiting:
			return 0
		case row.State == Waiting:
			return 1
		case row.Cause != "":
			return 4
		case row.ID == "first-broken-link":
			return 3
		}
		return 2
	}
	var best Row
	for _, row := range r.Rows {
		if rank(row) > rank(best) {
			best = row
		}
	}
	if rank(best) == 0 {
		return ""
	}
	text := best.Subject
	if on := cmp.Or(best.Nodes, best.Node); on != "" {
		text += " on " + on
	}
	reason, _, _ := strings.Cut(best.Reason, ": mend it before")
	if best.ID == "first-broken-link" {
		for _, row := range r.Rows {
			if row.Node == best.Node && row.Subject == best.Subject && row.ID == "operand" {
				reason = row.Reason
			}
		}
	}
	text += ": " + reason
	if best.Fix != "" {
		text += " → " + best.Fix
	}
	return text
}
