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
	if !slices.ContainsFunc(allocations, func(alloc Allocation) bool { return alloc.hami != "" }) {
		return allocations
	}
	out, next := slices.Clone(allocations), map[[3]string]int{}
	for i := range out {
		alloc := &out[i]
		if alloc.hami == "" {
			continue
		}
		info, _ := m.pod(alloc.podName)
		devices := hamiDevices(info.Allocated, info.Containers, alloc.Container)
		container := [3]string{alloc.Namespace, alloc.Pod, alloc.Container}
		if n := next[container]; n < len(devices) {
			alloc.Device, alloc.hami = devices[n]+"::"+alloc.hami, ""
			alloc.ID = deviceid.Parse(alloc.Device)
		}
		next[container]++
	}
	return out
}

// hamiReplica returns the replica number n of an id of HAMi's plugin, or "" for other ids.
func hamiReplica(id string) string {
	const prefix, whole = len("GPU-"), len("GPU-00000000-0000-0000-0000-000000000000")
	if len(id) <= whole || id[whole] != '-' || !strings.EqualFold(id[:prefix], "GPU-") ||
		!text.IsUUID(id[prefix:whole]) || !deviceid.IsNumber(id[whole+1:]) {
		return ""
	}
	return id[whole+1:]
}

// hamiDevices returns the UUIDs of the GPUs that an annotation assigns to a container. The annotation has
// "UUID,TYPE,MEMORY,CORES:" per device and ";" after each container, in the order of the pod's containers. It returns
// nil if the container's devices are not clear.
func hamiDevices(annotation string, containers []string, name string) (devices []string) {
	parts := strings.Split(strings.TrimSuffix(annotation, ";"), ";")
	at := slices.Index(containers, name)
	if len(parts) != len(containers) || at < 0 {
		return nil
	}
	for device := range strings.SplitSeq(parts[at], ":") {
		uuid, rest, _ := strings.Cut(device, ",")
		if strings.HasPrefix(rest, "NVIDIA") && deviceid.Parse(uuid).Form == deviceid.FormGPU {
			devices = append(devices, uuid)
		}
	}
	return devices
}
