package dcgm

import "github.com/gpu-telemetry/dcgm-exporter/internal/gpu"

// readPeers appends the NVLink states between the session's GPUs. Lost GPUs are left out.
func (s *Session) readPeers(b *gpu.Batch) error {
	if !s.plan.Peers {
		return nil
	}
	found, err := s.engine.peers()
	if err != nil {
		b.FailPart(gpu.AllRows, gpu.PartPeerStates, s.withVersions(err))
		return reopenOnly(err)
	}
	for _, x := range found {
		row, ok := s.rows[entity{groupGPU, x.from}]
		peer, known := s.rows[entity{groupGPU, x.to}]
		if ok && known && !s.gpus.lost[row] && !s.gpus.lost[peer] {
			b.Peers = append(b.Peers, gpu.PeerState{Row: row, Peer: peer, Status: gpu.PeerStatus(x.state)})
		}
	}
	return nil
}
