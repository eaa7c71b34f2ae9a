package podmapper

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// LabelsOf returns the labels of an entity whose only owner is this one. pod holds the labels of its pod.
func LabelsOf(opt Options, owner gpu.Owner, pod map[string]string) []gpu.Label {
	m := New(opt)
	owner.Labels = m.podLabels(pod, map[string]int{})
	return m.labels(&owner)
}

// Clock replaces m's clock.
func Clock(m *Mapper, now func() time.Time) { m.kubelet.now = now }

// Settled is the maximum time that a kubelet takes to load its pods.
const Settled = maxStartGrace
