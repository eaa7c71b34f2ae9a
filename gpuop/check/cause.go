package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Together merges findings with the same cause. The merged finding takes the position of the first, and lists the nodes
// of all. Findings without a cause are unchanged.
func Together(findings []Finding) []Finding {
	var groups [][]Finding
	index := map[string]int{}
	for _, f := range findings {
		i, known := index[f.Cause]
		if f.Cause == "" || !known {
			i = len(groups)
			index[f.Cause] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	var out []Finding
	for _, same := range groups {
		out = append(out, merge(same))
	}
	return out
}

// merge merges findings with the same cause. Text and subjects come from the findings about nodes, if there are any,
// and the text is that of the first. The severity is the highest of all findings.
func merge(all []Finding) Finding {
	if len(all) == 1 {
		return all[0]
	}
	about := slices.DeleteFunc(slices.Clone(all), func(f Finding) bool { return f.Node == "" })
	if len(about) == 0 {
		about = all
	}
	merged := about[0]
	var subjects, nodes []string
	for _, f := range about {
		subjects, nodes = append(subjects, f.Subject), append(nodes, f.Node)
	}
	subjects, nodes = distinct(subjects), distinct(nodes)
	for _, f := range all {
		merged.Severity = max(merged.Severity, f.Severity)
	}
	if after, ok := strings.CutPrefix(merged.Fix, "delete it"); ok && len(subjects) > 1 {
		merged.Fix = "delete them" + after
	}
	merged.Subject, merged.Reason = shortList(subjects), cmp.Or(merged.Together, merged.Reason)
	if len(nodes) > 1 {
		merged.Fix = strings.ReplaceAll(merged.Fix, " "+merged.Node+" ", " "+strings.Join(nodes, " ")+" ")
		merged.Node, merged.Nodes = "", strings.Join(nodes, ", ")
	}
	return merged
}

// distinct removes duplicates and keeps the order.
func distinct(words []string) (out []string) {
	for _, word := range words {
		if !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out
}

// maxListed limits how many subjects or nodes a text lists by name.
const maxListed = 4

func shortList(names []string) string {
	if n := len(names) - maxListed; n > 0 {
		names = append(slices.Clone(names[:maxListed]), fmt.Sprintf("%d more", n))
	}
	return strings.Join(names, ", ")
}
