package podmapper

import (
	"maps"
	"regexp"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

const (
	// DefaultPodLabels is the default maximum number of labels taken from a pod. Mimir rejects a series
	// with more than 30 labels: see docs/attribution.md.
	DefaultPodLabels = 16
	// maxLabelValue is the maximum length of a label's value in bytes. Kubernetes allows 63.
	maxLabelValue = 128
)

// podLabels returns the labels of a pod that become series labels, in the order of their keys, with valid Prometheus
// names. If two keys map to the same name, the first is used. The exporter's own label names are never used. It adds
// the dropped labels to lost, by reason.
func (m *Mapper) podLabels(pod map[string]string, lost map[string]int) []gpu.Label {
	if !m.opt.PodLabels {
		return nil
	}
	var out []gpu.Label
	taken := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(pod)) {
		if pod[key] == "" || !m.allows(key) {
			continue
		}
		name := text.LabelName(key)
		switch {
		case taken[name] || catalog.IsOwnLabel(name):
			lost[droppedCollision]++
		case len(pod[key]) > maxLabelValue:
			lost[droppedLength]++
		case len(out) == m.opt.MaxPodLabels:
			lost[droppedBudget]++
		default:
			taken[name] = true
			out = append(out, gpu.Label{Name: name, Value: pod[key]})
		}
	}
	return out
}

func (m *Mapper) allows(key string) bool {
	matches := func(r *regexp.Regexp) bool { return r.MatchString(key) }
	return len(m.opt.LabelsAllowed) == 0 || slices.ContainsFunc(m.opt.LabelsAllowed, matches)
}
