package podmapper

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// LabelsOf returns the labels of an entity whose only owner is this one, with a pod's labels as the
// options choose them.
func LabelsOf(opt Options, owner gpu.Owner, pod map[string]string) []gpu.Label {
	m := New(opt)
	owner.Labels = m.policy.labels(pod, dropped{})
	return m.labels(&owner)
}

// Clock gives m another clock.
func Clock(m *Mapper, now func() time.Time) { m.now, m.kubelet.now = now, now }

// Settled is how long a kubelet may take, at most, to know its pods.
const Settled = maxStartGrace
