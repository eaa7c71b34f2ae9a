package podmapper

import "github.com/gpu-telemetry/dcgm-exporter/internal/gpu"

// LabelsOf returns the labels of an entity whose only owner is this one, with
// a pod's labels as the options choose them.
func LabelsOf(opt Options, owner gpu.Owner, pod map[string]string) []gpu.Label {
	m := New(opt)
	owner.Labels = m.policy.labels(pod, dropped{})
	return m.labels(&owner)
}
