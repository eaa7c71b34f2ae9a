package podmapper

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// HAMi's scheduler chooses the GPU of a container and records it in an annotation of the pod. The kubelet chooses any
// id of HAMi's plugin, GPU-<uuid>-<n>, which may name another GPU. The annotation is therefore the only source of a
// HAMi pod's devices (Project-HAMi/HAMi, docs/develop/protocol.md).

// allocated replaces the devices that the kubelet lists for HAMi's plugin by those that the annotations name. They
// become replicas, because HAMi shares GPUs. Without an annotation an allocation is unchanged and matches nothing.
func (m *Mapper) allocated(allocations []Allocation) []Allocation {
	type container struct{ namespace, pod, name string }
	next := map[container]int{}
	var out []Allocation // a copy, made when the first allocation differs
	for i := range allocations {
		alloc := &allocations[i]
		if alloc.hami == "" {
			continue
		}
		info, _ := m.pod(alloc.podName())
		key := container{alloc.Namespace, alloc.Pod, alloc.Container}
		devices := hamiDevices(info.Allocated, info.Containers, alloc.Container)
		n := next[key]
		next[key]++
		if n >= len(devices) {
			continue
		}
		if out == nil {
			out = slices.Clone(allocations)
		}
		out[i].Device, out[i].hami = devices[n]+"::"+alloc.hami, ""
		out[i].ID = deviceid.Parse(out[i].Device)
	}
	if out == nil {
		return allocations
	}
	return out
}

// hamiReplica returns the replica number n of an id of HAMi's plugin, or "" for other ids.
func hamiReplica(id string) (n string) {
	const whole = len("GPU-00000000-0000-0000-0000-000000000000")
	if len(id) <= whole+1 || id[whole] != '-' {
		return ""
	}
	device, n := id[:whole], id[whole+1:]
	if deviceid.Parse(device).Form != deviceid.FormGPU || !text.IsUUID(device[len("GPU-"):]) || !deviceid.IsNumber(n) {
		return ""
	}
	return n
}

// hamiDevices returns the UUIDs of the GPUs that an annotation assigns to a container. The annotation has
// "UUID,TYPE,MEMORY,CORES:" per device and ";" after each container, in the order of the pod's containers. It returns
// nil if the container's devices are not clear.
func hamiDevices(annotation string, containers []string, name string) []string {
	parts := strings.Split(strings.TrimSuffix(annotation, ";"), ";")
	if len(parts) != len(containers) {
		return nil
	}
	for i, part := range parts {
		if containers[i] != name {
			continue
		}
		var devices []string
		for device := range strings.SplitSeq(part, ":") {
			uuid, rest, ok := strings.Cut(device, ",")
			if ok && strings.HasPrefix(rest, "NVIDIA") && deviceid.Parse(uuid).Form == deviceid.FormGPU {
				devices = append(devices, uuid)
			}
		}
		return devices
	}
	return nil
}
