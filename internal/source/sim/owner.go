package sim

import (
	"context"
	"slices"
	"strconv"

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

// Attribute returns the pods and jobs that hold the GPUs and instances of t. A device that one pod
// holds has its labels container, namespace and pod, one that a job holds has hpc_job; one without
// an owner has none, and neither has one that several share.
func (s *Source) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.owning.Lock()
	defer s.owning.Unlock()
	if s.owners.topology == t {
		return s.owners.owners, nil
	}
	s.owners.count++
	o := &gpu.Owners{Generation: s.owners.count, Uses: make([]gpu.Use, len(t.Devices))}
	for row := range t.Devices {
		o.Uses[row] = s.use(t, row)
	}
	o.Labels = gpu.ExclusiveLabels(t, o.Uses, labelsOf)
	s.owners.topology, s.owners.owners = t, o
	return o, nil
}

// labelsOf returns the labels of a device's only owner.
func labelsOf(o *gpu.Owner) []gpu.Label {
	if o.Pod == "" {
		return o.Labels // a job's
	}
	return o.PodLabels()
}

// use returns who holds the device of a row.
func (s *Source) use(t *gpu.Topology, row int) gpu.Use {
	var u gpu.Use
	d := &t.Devices[row]
	for i := range s.node.pods {
		p := &s.node.pods[i]
		if !slices.ContainsFunc(p.devices, func(ref deviceRef) bool { return ref.matches(d) }) {
			continue
		}
		if p.spec.Host {
			if p.spec.Job != "" {
				u.Owners = append(u.Owners, gpu.Owner{Labels: []gpu.Label{{Name: "hpc_job", Value: p.spec.Job}}})
			}
			continue
		}
		owner := gpu.Owner{
			Namespace: p.spec.Namespace, Pod: p.spec.Pod, Container: p.spec.Container,
			PodUID: s.uids[i], Resource: "nvidia.com/gpu",
		}
		if d.Profile != "" {
			owner.Resource = "nvidia.com/mig-" + d.Profile
		}
		u.Owners = append(u.Owners, owner)
	}
	if len(u.Owners) == 0 {
		return u
	}
	spec := &s.node.gpus[d.GPU]
	u.Sharing, u.Replicas = spec.sharing, spec.replicas
	for i := range u.Owners {
		o := &u.Owners[i]
		if o.Pod == "" {
			continue // a scheduler's job: no resource of the kubelet's
		}
		switch u.Sharing {
		case gpu.SharingNone:
		case gpu.SharingDRA:
			o.Resource = "gpu.nvidia.com"
		default:
			o.Replica = strconv.Itoa(i)
		}
	}
	return u
}
