package podmapper

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The budgets of a pod's labels. Kubernetes allows values of 63 bytes; some
// storages refuse series with more than 30 labels, a dozen of which are ours.
const (
	defaultPodLabels = 16
	maxLabelValue    = 128
)

// A labelPolicy says which of a pod's labels become labels of series. The zero
// value takes none.
type labelPolicy struct {
	on      bool
	allowed []*regexp.Regexp // of the key; none allows all
	most    int
}

// dropped counts labels that were left out, by reason.
type dropped map[string]int

// labels returns those of a pod, in the order of their keys, under names that
// Prometheus accepts. Of two keys that become one name the first counts, and a
// name of ours is never taken.
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
		name := labelName(key)
		switch {
		case taken[name] || reserved(name):
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

// labelName returns key with an underscore for every character that a label's
// name cannot have (Prometheus data model: [a-zA-Z_][a-zA-Z0-9_]*), and without
// the leading pair of them that Prometheus keeps to itself.
func labelName(key string) string {
	name := []byte(key)
	for i, c := range name {
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			name[i] = '_'
		}
	}
	s := strings.TrimLeft(string(name), "_")
	if s == "" || len(s) < len(name) || s[0] >= '0' && s[0] <= '9' {
		s = "_" + s
	}
	return s
}

// reserved reports whether a series may have a label of this name from us.
func reserved(name string) bool {
	switch name {
	case "gpu", "UUID", "uuid", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "GPU_CI_ID",
		"hostname", "Hostname", "container", "namespace", "pod", "pod_uid", "vgpu", "hpc_job",
		"container_name", "pod_name", "pod_namespace",
		"err_code", "err_msg", "xid", "clock_event", "window_size_in_ms", "health_watch", "health_error_code",
		"peer_gpu", "link_status", "reason", "resource", "sharing", "replicas",
		"job", "instance", "le", "quantile":
		return true
	}
	return strings.HasPrefix(name, "dra_") || strings.HasPrefix(name, "DCGM_")
}
