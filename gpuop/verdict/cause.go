package verdict

import (
	"fmt"
	"slices"
	"strings"
)

// maxSubjects is how many subjects a row names.
const maxSubjects = 4

// Together makes one row of the rows of one cause, in the place of the first; it lists their subjects and
// nodes. Rows without a cause stay as they are.
func Together(rows []Verdict) []Verdict {
	all := map[string][]Verdict{}
	for _, v := range rows {
		if v.Cause != "" {
			all[v.Cause] = append(all[v.Cause], v)
		}
	}
	var out []Verdict
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

// one is the row of several with one cause: what is said of a node counts, beside what is said of the
// cluster, and beside a row that points to another.
func one(all []Verdict) Verdict {
	var own, nodes, subjects []string
	of := func(v Verdict) int {
		switch {
		case v.ID == "first-broken-link":
			return 0
		case v.Node == "":
			return 1
		}
		return 2
	}
	best := slices.MaxFunc(all, func(a, b Verdict) int { return of(a) - of(b) })
	v := all[slices.IndexFunc(all, func(v Verdict) bool { return of(v) == of(best) })]
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
			v.Next = strings.ReplaceAll(v.Next, " "+first+" ", " "+strings.Join(nodes, " ")+" ")
		}
	}
	return v
}
