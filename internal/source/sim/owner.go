package sim

import (
	"context"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Name returns "sim", the source's name as an attributor.
func (s *Source) Name() string { return "sim" }

// Attribute returns the pods and jobs that own the GPUs and instances of t. A device with one pod has the labels
// container, namespace and pod. A device with one job has the label hpc_job. Free and shared devices have no labels.
func (s *Source) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.owning.Lock()
	defer s.owning.Unlock()
	if s.owned == t {
		return s.owners, nil
	}
	o := &gpu.Owners{Uses: make([]gpu.Use, len(t.Devices))}
	for row := range t.Devices {
		o.Uses[row] = s.use(&t.Devices[row])
	}
	o.Labels = attribution.ExclusiveLabels(t, o.Uses, (*gpu.Owner).AllLabels)
	s.owned, s.owners = t, o
	return o, nil
}

// use returns the owners of a device and how they share it.
func (s *Source) use(d *gpu.Device) gpu.Use {
	var u gpu.Use
	for i := range s.node.Pods {
		p := &s.node.Pods[i]
		isOn := slices.ContainsFunc(p.devices, func(ref deviceRef) bool { return ref.matches(d) })
		if !isOn || p.Host && p.Job == "" {
			continue
		}
		u.Sharing, u.Replicas = s.node.GPUs[d.GPU].sharing, s.node.GPUs[d.GPU].Replicas
		if p.Job != "" {
			u.Owners = append(u.Owners, gpu.Owner{Labels: []gpu.Label{{Name: "hpc_job", Value: p.Job}}})
			continue
		}
		owner := gpu.Owner{
			Namespace: p.Namespace, Pod: p.Pod, Container: p.Container,
			PodUID: s.world.podUID(p), Resource: "nvidia.com/gpu",
		}
		if d.Profile != "" {
			owner.Resource = "nvidia.com/mig-" + d.Profile
		}
		switch u.Sharing {
		case gpu.SharingNone:
		case gpu.SharingDRA:
			owner.Resource = "gpu.nvidia.com"
		default:
			owner.Replica = strconv.Itoa(len(u.Owners))
		}
		u.Owners = append(u.Owners, owner)
	}
	return u
}
