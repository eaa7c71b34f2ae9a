//go:build linux && cgo

package nvml

import (
	"fmt"
	"slices"
	"time"

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
	var nodes, cpus []uint // zero if a call fails
	if s.symbols.has("nvmlDeviceGetMemoryAffinity") {
		nodes, _ = handle.GetMemoryAffinity(maxNodes, gonvml.AFFINITY_SCOPE_NODE)
	}
	if s.symbols.has("nvmlDeviceGetCpuAffinity") {
		cpus, _ = handle.GetCpuAffinity(maxCPUs)
	}
	p := gpu.PlaceOf(nodes, cpus)
	return &p
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
	if s.symbols.has("nvmlDeviceGetTopologyCommonAncestor") {
		if level, ret := a.handle.GetTopologyCommonAncestor(b.handle); ret == gonvml.SUCCESS {
			return paths[level]
		}
	}
	return gpu.PathUnknown
}

// paths maps the levels of NVML. Others are unknown.
var paths = map[gonvml.GpuTopologyLevel]gpu.Path{
	gonvml.TOPOLOGY_INTERNAL: gpu.PathBoard, gonvml.TOPOLOGY_SINGLE: gpu.PathSwitch,
	gonvml.TOPOLOGY_MULTIPLE: gpu.PathSwitches, gonvml.TOPOLOGY_HOSTBRIDGE: gpu.PathHostBridge,
	gonvml.TOPOLOGY_NODE: gpu.PathNode, gonvml.TOPOLOGY_SYSTEM: gpu.PathSystem,
}

const p2pStatus = "nvmlDeviceGetP2PStatus"

// errNoWatches is the fault of health checks, which only DCGM has.
var errNoWatches = fmt.Errorf("%w: NVML has no health watches", gpu.ErrNotSupported)

// gpuRow returns the row of the GPU, or -1 if only its instances are selected.
func (d *device) gpuRow() int {
	if len(d.rows) == 0 || d.rows[0].kind != gpu.KindGPU {
		return -1
	}
	return d.rows[0].index
}

func (s *Session) peerStatus(a, b *device) (gonvml.GpuP2PStatus, gonvml.Return) {
	if !s.symbols.has(p2pStatus) {
		return gonvml.P2P_STATUS_UNKNOWN, gonvml.ERROR_FUNCTION_NOT_FOUND
	}
	return a.handle.GetP2PStatus(b.handle, gonvml.P2P_CAPS_INDEX_NVLINK)
}

// readPeers appends the states of the connections between all readable GPUs. It returns an error only if the driver is
// gone.
func (s *Session) readPeers(b *gpu.Batch) error {
	now := time.Now()
	for _, d := range s.devices {
		if d.gpuRow() < 0 || !d.alive {
			continue
		}
		if d.peers.active(now) {
			b.FailPart(d.gpuRow(), gpu.PartPeerStates, d.peers.err)
			continue
		}
		for _, peer := range s.devices {
			if peer == d || peer.gpuRow() < 0 || !peer.alive {
				continue
			}
			status, ret := s.peerStatus(d, peer)
			switch {
			case ret == gonvml.SUCCESS:
				word := gpu.PeerStatus(uint32(status))
				b.Peers = append(b.Peers, gpu.PeerState{Row: d.gpuRow(), Peer: peer.gpuRow(), Status: word})
				continue
			case driverGone(ret):
				return &driverError{p2pStatus, ret}
			case gone(ret):
				continue // one of the two GPUs is lost, which the next Read reports
			}
			b.FailPart(d.gpuRow(), gpu.PartPeerStates, d.peers.record(p2pStatus, ret, now))
			break
		}
	}
	return nil
}

const linkState = "nvmlDeviceGetNvLinkState"

// readLinks reports whether an NVLink of the GPU is active. The state is unknown if the GPU has no links to query, or
// if one cannot be read and no other is active. An error means that the GPU or the driver is gone.
func (s *Session) readLinks(d *device) (up, known bool, err error) {
	known = len(d.links) > 0 && d.gpuRow() >= 0
	for _, link := range d.links {
		switch state, ret := d.handle.GetNvLinkState(link); {
		case gone(ret):
			return false, false, &driverError{linkState, ret}
		case ret != gonvml.SUCCESS:
			known = false
		case state == gonvml.FEATURE_ENABLED:
			return true, d.gpuRow() >= 0, nil
		}
	}
	return false, known, nil
}
