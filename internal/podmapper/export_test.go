package podmapper

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// LabelsOf returns the labels of an entity with this single owner. pod holds the labels of its pod.
func LabelsOf(opt Options, owner gpu.Owner, pod map[string]string) []gpu.Label {
	m := New(opt)
	owner.Labels = m.policy.labels(pod, dropped{})
	return m.labels(&owner)
}

// Clock replaces the clock of m.
func Clock(m *Mapper, now func() time.Time) { m.now, m.kubelet.now = now, now }

// Settled is the maximum time that a kubelet may take to know its pods.
const Settled = maxStartGrace
