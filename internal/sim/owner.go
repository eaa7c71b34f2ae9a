package sim

import (
	"context"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ownership is an answer of Attribute.
type ownership struct {
	topology *gpu.Topology
	owners   *gpu.Owners
	count    uint64
}

// Name returns "sim", the source's name as an attributor.
func (s *Source) Name() string { return "sim" }

// Attribute returns the pods that have GPUs or instances of t to themselves,
// by the labels container, namespace and pod. A device without a pod has no
// labels, and neither has one that several pods share.
func (s *Source) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners.topology == t {
		return s.owners.owners, nil
	}
	s.owners.count++
	o := &gpu.Owners{Generation: s.owners.count, Labels: make([][]gpu.Label, len(t.Devices))}
	shared := make([]bool, len(t.Devices))
	for i := range s.node.pods {
		p := &s.node.pods[i]
		labels := []gpu.Label{
			{Name: "container", Value: p.spec.Container},
			{Name: "namespace", Value: p.spec.Namespace},
			{Name: "pod", Value: p.spec.Pod},
		}
		for _, ref := range p.devices {
			for row := range t.Devices {
				if !ref.matches(&t.Devices[row]) {
					continue
				}
				if o.Labels[row] != nil || shared[row] {
					o.Labels[row], shared[row] = nil, true
					continue
				}
				o.Labels[row] = labels
			}
		}
	}
	s.owners.topology, s.owners.owners = t, o
	return o, nil
}
