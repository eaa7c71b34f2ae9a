package vocabulary

import (
	"fmt"
	"slices"
)

// relabeling looks at a relabeling rule, of Prometheus or of its operator, and reports whether n is
// one.
func (w *walker) relabeling(n *node, f frame) bool {
	switch f.parent {
	case "metricRelabelings", "metric_relabel_configs", "writeRelabelConfigs", "write_relabel_configs":
	default:
		return false
	}
	if n.keys == nil {
		return false
	}
	sources := n.get("sourceLabels")
	if sources == nil {
		sources = n.get("source_labels")
	}
	var names []string
	if sources != nil {
		for _, s := range sources.list {
			names = append(names, s.text)
		}
	}
	var byHand []string
	for _, name := range append(slices.Clone(names), n.string("targetLabel"), n.string("target_label")) {
		if c, ok := w.label(name, false); ok && name != "" && name != w.hostOld {
			byHand = append(byHand, fmt.Sprintf("names the label %s (now %s)", c.Old, c.New))
		}
	}
	regex := n.get("regex")
	if regex == nil || !regex.str {
		w.add(n, f, "relabeling", f.parent, rewriting{text: f.parent, byHand: byHand})
		return true
	}
	r := rewriting{text: regex.text}
	switch action := n.string("action"); {
	case slices.Equal(names, []string{"__name__"}):
		r = w.pattern(regex.text, true)
	case slices.Contains(names, "__name__"):
		if list := w.named(regex.text); len(list) > 0 {
			byHand = append(byHand, "names "+examples(list))
		}
	case action == "labeldrop" || action == "labelkeep" || action == "labelmap":
		if c, ok := w.label(regex.text, false); ok {
			r = rewriting{text: c.New, changes: []Change{c}}
		} else if list := w.named(regex.text); len(list) > 0 {
			byHand = append(byHand, "names "+examples(list))
		}
	}
	r.byHand = append(r.byHand, byHand...)
	w.add(regex, f, "relabeling", regex.text, r)
	return true
}
