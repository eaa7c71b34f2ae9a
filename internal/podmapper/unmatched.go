package podmapper

import (
	"context"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Unmatched is a device of a container that matches no entity of the topology. It counts in
// dcgm_exporter_unmatched_devices.
type Unmatched struct {
	Allocation
	Why string // a sentence
}

// Unmatched queries the kubelet once and returns the unmatched devices in the order of the allocations. It returns the
// errors of Attribute.
func (m *Mapper) Unmatched(ctx context.Context, t *gpu.Topology) ([]Unmatched, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.attribute(ctx, t); err != nil {
		return nil, err
	}
	var unmatched []Unmatched
	for _, alloc := range m.allocated(m.valid(m.inputs.allocations)) {
		if rows, isGPU := m.match(&alloc); isGPU && rows == nil {
			unmatched = append(unmatched, Unmatched{alloc, m.missing(&alloc)})
		}
	}
	return unmatched, nil
}

// missing returns why an allocation matches nothing.
func (m *Mapper) missing(alloc *Allocation) string {
	if alloc.hami != "" {
		return "The pod has no HAMi annotation that names its GPU, or pods are not watched: " +
			"set --kubernetes-enable-pod-uid."
	}
	if alloc.Claim == "" {
		return alloc.ID.Missing()
	}
	device, ok := m.opt.Device(alloc.Resource, alloc.Pool, alloc.Device)
	if !ok {
		return "No ResourceSlice of this node lists the device with a UUID or a placement. " +
			"Slices can lag behind claims, and the exporter needs permission to read them."
	}
	id := device.id()
	return id.Missing()
}
