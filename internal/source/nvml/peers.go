//go:build linux && cgo

package nvml

import (
	"fmt"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

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
			case gpuGone(ret):
				continue // one of the two GPUs is lost, which the next Read reports
			}
			b.FailPart(d.gpuRow(), gpu.PartPeerStates, d.peers.backOff(p2pStatus, ret, now))
			break
		}
	}
	return nil
}
