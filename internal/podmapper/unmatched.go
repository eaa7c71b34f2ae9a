package podmapper

import (
	"context"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// An Unmatched is a device that a container holds and that names no entity of the topology. It
// counts in dcgm_exporter_unmatched_devices.
type Unmatched struct {
	Allocation
	Why string // a sentence
}

// Unmatched queries the kubelet once and returns the unmatched devices in the order of the
// allocations. The errors are those of Attribute.
func (m *Mapper) Unmatched(ctx context.Context, t *gpu.Topology) ([]Unmatched, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.attribute(ctx, t); err != nil {
		return nil, err
	}
	var unmatched []Unmatched
	for _, h := range m.allocated(m.valid(m.inputs.allocations)) {
		if rows, known := m.match(&h); known && rows == nil {
			unmatched = append(unmatched, Unmatched{h, m.missing(&h)})
		}
	}
	return unmatched, nil
}

// missing says why an allocation matches nothing.
func (m *Mapper) missing(h *Allocation) string {
	if _, hami := hamiReplica(h); hami {
		return "HAMi's scheduler names its GPU in an annotation of the pod, and there is none or pods are not watched: set --kubernetes-enable-pod-uid."
	}
	if h.Claim == "" {
		return m.resolver.Missing(h.ID)
	}
	device, ok := m.opt.Device(h.Resource, h.Pool, h.Device)
	if !ok {
		return "No ResourceSlice of this node has it with a UUID or a place on a GPU: slices can lag behind claims, and the API server must let the exporter read them."
	}
	return m.resolver.Missing(device.id())
}
