package podmapper

import (
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
)

// HAMi's scheduler chooses the GPU of a container, and says so in an annotation of the pod; the
// kubelet chooses one of the ids of HAMi's plugin, GPU-<uuid>-<n>, which can be another GPU's. So
// its pods are found by the annotation alone (Project-HAMi/HAMi, docs/develop/protocol.md).

// allocated returns allocations with the devices that annotations name in the place of those that
// the kubelet lists for HAMi's plugin, as replicas: HAMi shares GPUs. Without an annotation an
// allocation stays as it is, and matches nothing.
func (m *Mapper) allocated(allocations []Allocation) []Allocation {
	type container struct{ namespace, pod, name string }
	next := map[container]int{}
	var out []Allocation // of allocations, once one differs
	for i := range allocations {
		h := &allocations[i]
		replica, ok := hamiReplica(h)
		if !ok {
			continue
		}
		info, _ := m.pod(h.podName())
		key := container{h.Namespace, h.Pod, h.Container}
		devices := hamiDevices(info.Allocated, info.Containers, h.Container)
		n := next[key]
		next[key]++
		if n >= len(devices) {
			continue
		}
		if out == nil {
			out = append([]Allocation(nil), allocations...)
		}
		out[i].Device = devices[n] + "::" + replica
		out[i].ID = deviceid.Parse(out[i].Device)
	}
	if out == nil {
		return allocations
	}
	return out
}

// hamiReplica returns the n of an id of HAMi's plugin.
func hamiReplica(h *Allocation) (n string, ok bool) {
	const whole = len("GPU-00000000-0000-0000-0000-000000000000")
	if h.Claim != "" || len(h.Device) <= whole+1 || h.Device[whole] != '-' {
		return "", false
	}
	device, n := h.Device[:whole], h.Device[whole+1:]
	return n, deviceid.Parse(device).Form == deviceid.FormGPU && deviceid.IsUUID(device[len("GPU-"):]) && deviceid.IsNumber(n)
}

// hamiDevices returns the UUIDs of the GPUs that an annotation names for a container:
// UUID,TYPE,MEMORY,CORES: per device, and ; behind each container, in the order of the pod's
// containers. Nil where it is not clear which are its.
func hamiDevices(annotation string, containers []string, name string) []string {
	if annotation == "" {
		return nil
	}
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
