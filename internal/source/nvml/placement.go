//go:build linux && cgo

package nvml

import (
	"slices"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxCPUs and maxNodes are the limits of Linux.
const (
	maxCPUs  = 8192
	maxNodes = 1024
)

// place returns the place of a GPU. It has no NUMA node if several are near. nvmlDeviceGetNumaNodeId is not used, since
// it returns the node of the GPU's own memory.
func (s *Session) place(handle gonvml.Device) *gpu.Place {
	var nodes, cpus []uint
	if s.symbols.has("nvmlDeviceGetMemoryAffinity") {
		if set, ret := handle.GetMemoryAffinity(maxNodes, gonvml.AFFINITY_SCOPE_NODE); ret == gonvml.SUCCESS {
			nodes = set
		}
	}
	if s.symbols.has("nvmlDeviceGetCpuAffinity") {
		if set, ret := handle.GetCpuAffinity(maxCPUs); ret == gonvml.SUCCESS {
			cpus = set
		}
	}
	p := gpu.PlaceOf(words(nodes), words(cpus))
	return &p
}

// words converts a mask to 64-bit words.
func words(mask []uint) []uint64 {
	list := make([]uint64, len(mask))
	for i, word := range mask {
		list[i] = uint64(word)
	}
	return list
}

// linkEnds counts the active links of a GPU by the device at the other end.
type linkEnds struct {
	gpus     map[string]int // by PCI bus ID
	switches int
}

// ends returns where the links of a GPU end.
func (s *Session) ends(d *device) linkEnds {
	e := linkEnds{gpus: map[string]int{}}
	if !s.symbols.has(linkState) {
		return e
	}
	for link := range gonvml.NVLINK_MAX_LINKS {
		if up, ret := d.handle.GetNvLinkState(link); ret != gonvml.SUCCESS || up != gonvml.FEATURE_ENABLED {
			continue
		}
		if s.symbols.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
			kind, ret := d.handle.GetNvLinkRemoteDeviceType(link)
			if ret == gonvml.SUCCESS && kind == gonvml.NVLINK_DEVICE_TYPE_SWITCH {
				e.switches++
				continue
			}
		}
		if s.symbols.any(remotePCISymbols) {
			if pci, ret := d.handle.GetNvLinkRemotePciInfo(link); ret == gonvml.SUCCESS {
				e.gpus[busID(&pci)]++
			}
		}
	}
	return e
}

var remotePCISymbols = []string{"nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"}

// pairs returns how the GPUs are connected. Pairs with a GPU that is lost or denies access are left out.
func (s *Session) pairs() []gpu.Pair {
	gpus := slices.DeleteFunc(slices.Clone(s.devices), func(d *device) bool { return d.gpuRow() < 0 || d.dead != nil })
	ends := make([]linkEnds, len(gpus))
	for i, d := range gpus {
		ends[i] = s.ends(d)
	}
	var pairs []gpu.Pair
	for i, a := range gpus {
		for j := i + 1; j < len(gpus); j++ {
			b := gpus[j]
			p := gpu.Pair{A: a.gpuRow(), B: b.gpuRow(), Path: s.path(a, b)}
			p.NVLinks = ends[i].gpus[s.list[p.B].PCIBusID]
			if through := min(ends[i].switches, ends[j].switches); p.NVLinks == 0 && through > 0 {
				if status, ret := s.peerStatus(a, b); ret == gonvml.SUCCESS && status == gonvml.P2P_STATUS_OK {
					p.NVLinks = through
				}
			}
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// path returns the PCIe path between two GPUs.
func (s *Session) path(a, b *device) gpu.Path {
	if !s.symbols.has("nvmlDeviceGetTopologyCommonAncestor") {
		return gpu.PathUnknown
	}
	level, ret := a.handle.GetTopologyCommonAncestor(b.handle)
	if ret != gonvml.SUCCESS {
		return gpu.PathUnknown
	}
	switch level {
	case gonvml.TOPOLOGY_INTERNAL:
		return gpu.PathBoard
	case gonvml.TOPOLOGY_SINGLE:
		return gpu.PathSwitch
	case gonvml.TOPOLOGY_MULTIPLE:
		return gpu.PathSwitches
	case gonvml.TOPOLOGY_HOSTBRIDGE:
		return gpu.PathHostBridge
	case gonvml.TOPOLOGY_NODE:
		return gpu.PathNode
	case gonvml.TOPOLOGY_SYSTEM:
		return gpu.PathSystem
	default:
		return gpu.PathUnknown
	}
}
