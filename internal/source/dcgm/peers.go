package dcgm

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A peerWatch is what the engine said of NVLink between GPUs.
type peerWatch struct {
	checked time.Time
	err     error
	states  []gpu.PeerState
}

// readPeers appends the state of NVLink between the session's GPUs, without those that are lost.
func (s *Session) readPeers(b *gpu.Batch) error {
	p := &s.peers
	if !s.plan.Peers {
		return nil
	}
	if now := time.Now(); s.due(p.checked, now) {
		p.checked = now
		p.states = p.states[:0]
		var found []peer
		if found, p.err = s.engine.peers(); s.isOver(p.err) {
			return p.err
		}
		for _, x := range found {
			row, ok := s.rows[entity{groupGPU, x.from}]
			other, known := s.rows[entity{groupGPU, x.to}]
			if ok && known {
				p.states = append(p.states, gpu.PeerState{Row: row, Peer: other, Status: gpu.PeerStatus(x.state)})
			}
		}
	}
	if p.err != nil {
		b.Fail(gpu.AllRows, gpu.FieldPeerStates, s.withVersions(p.err))
		return nil
	}
	for _, x := range p.states {
		if !s.lost[x.Row] && !s.lost[x.Peer] {
			b.Peers = append(b.Peers, x)
		}
	}
	return nil
}
