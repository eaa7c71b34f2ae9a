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

// labelPolicy selects the pod labels that become series labels. The zero value selects none.
type labelPolicy struct {
	on      bool
	allowed []*regexp.Regexp // patterns for label keys; empty allows all
	most    int
}

// dropped counts pod labels that were dropped, by reason.
type dropped map[string]int

// labels returns the selected labels of a pod in the order of their keys, with valid Prometheus names. If two keys map
// to the same name, the first is used. The exporter's own label names are never used.
func (p labelPolicy) labels(pod map[string]string, lost dropped) []gpu.Label {
	if !p.on {
		return nil
	}
	var out []gpu.Label
	taken := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(pod)) {
		if pod[key] == "" || !p.allows(key) {
			continue
		}
		name := text.LabelName(key)
		switch {
		case taken[name] || catalog.IsOwnLabel(name):
			lost[droppedCollision]++
		case len(pod[key]) > maxLabelValue:
			lost[droppedLength]++
		case len(out) == p.most:
			lost[droppedBudget]++
		default:
			taken[name] = true
			out = append(out, gpu.Label{Name: name, Value: pod[key]})
		}
	}
	return out
}

func (p labelPolicy) allows(key string) bool {
	return len(p.allowed) == 0 || slices.ContainsFunc(p.allowed, func(r *regexp.Regexp) bool { return r.MatchString(key) })
}
