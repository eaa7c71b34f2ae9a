package sim

import (
	"fmt"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// socketCPUs is the number of CPUs on each of two sockets if the node does not define CPUs.
const socketCPUs = 64

// home returns the socket of a GPU, and the first and last CPU of the socket. All sockets have the same number of GPUs.
func (w *world) home(g *worldGPU) (socket, first, last int) {
	sockets, cores := 2, socketCPUs
	if len(w.node.CPUs) > 0 {
		sockets, cores = len(w.node.CPUs), w.node.CPUs[0].Cores
	}
	socket = int(g.index) * sockets / len(w.gpus)
	return socket, socket * cores, (socket+1)*cores - 1
}

// locate sets the place of each GPU and the connection of each pair of GPUs.
func (w *world) locate(t *gpu.Topology) {
	for a := range t.Devices {
		d := &t.Devices[a]
		if d.Entity.Kind != gpu.KindGPU {
			continue
		}
		socket, first, last := w.home(&w.gpus[d.GPU])
		d.Place = &gpu.Place{NUMANode: socket, CPUs: fmt.Sprintf("%d-%d", first, last)}
		for b := a + 1; b < len(t.Devices); b++ {
			if other := &t.Devices[b]; other.Entity.Kind == gpu.KindGPU {
				p := w.connect(&w.gpus[d.GPU], &w.gpus[other.GPU])
				p.A, p.B = a, b
				t.Pairs = append(t.Pairs, p)
			}
		}
	}
}

// connect returns how two GPUs are connected. a must have the lower number. Neighbors on one socket that no NVLink
// connects share a PCIe switch.
func (w *world) connect(a, b *worldGPU) gpu.Pair {
	p := gpu.Pair{Path: gpu.PathNode}
	if w.linked(a, b) {
		p.NVLinks = int(a.spec.board.NVLink.Links)
	}
	here, _, _ := w.home(a)
	if there, _, _ := w.home(b); here != there {
		p.Path = gpu.PathSystem
	} else if p.NVLinks == 0 && a.index/2 == b.index/2 {
		p.Path = gpu.PathSwitch
	}
	return p
}

// linked reports whether NVLink connects two GPUs. Bridges connect pairs; switches connect all GPUs.
func (w *world) linked(a, b *worldGPU) bool {
	links := a.spec.board.NVLink
	return a.spec.board == b.spec.board && links.Links > 0 && a.index != b.index &&
		(!links.Bridge || a.index/2 == b.index/2)
}

// readPeers reports the state of NVLink from every GPU to every other.
func (s *Session) readPeers(b *gpu.Batch) {
	w := s.src.world
	for row := range s.views {
		from := &s.views[row]
		if from.dev.Entity.Kind != gpu.KindGPU || s.down[row] {
			continue
		}
		for peer := range s.views {
			to := &s.views[peer]
			if peer == row || to.dev.Entity.Kind != gpu.KindGPU || s.down[peer] {
				continue
			}
			status := "NotSupported" // in MIG mode, a GPU has no peers
			if w.linked(from.gpu, to.gpu) && !from.gpu.partitioned && !to.gpu.partitioned {
				status = "OK"
			}
			b.Peers = append(b.Peers, gpu.PeerState{Row: row, Peer: peer, Status: status})
		}
	}
}
