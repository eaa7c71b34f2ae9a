package podmapper

import "github.com/gpu-telemetry/dcgm-exporter/internal/gpu"

// LabelsOf returns the labels of an entity whose only owner is this one, with
// a pod's labels as the options choose them.
func LabelsOf(opt Options, owner gpu.Owner, pod map[string]string) []gpu.Label {
	m := New(opt)
	owner.Labels = m.policy.labels(pod, dropped{})
	return m.labels(&owner)
}

// Settle makes the kubelet's connection older than a kubelet may take to know
// its pods.
func Settle(m *Mapper) {
	m.kubelet.mu.Lock()
	defer m.kubelet.mu.Unlock()
	m.kubelet.dialed = m.kubelet.dialed.Add(-settle)
}
