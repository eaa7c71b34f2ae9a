package sim

import (
	"fmt"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// The states of a link that is down: NVML_NVLINK_STATE_INACTIVE of nvml.h for
// DCGM_FI_DEV_NVLINK_LINK_STATUS, and "off" for DCGM_FI_DEV_NVSWITCH_LINK_STATUS.
const (
	fieldSwitchLinkState = 870
	fieldLinkState       = 1508
	linkIsDown           = 0
)

// linkGives returns what a link gives for a field while it is down, and whether that differs from
// what it gives otherwise. Its counters of bytes go on: the model spreads the traffic of a GPU
// evenly over the links that it has.
func linkGives(id gpu.FieldID) (gpu.Value, bool) {
	switch {
	case id == fieldSwitchLinkState || id == fieldLinkState:
		return gpu.Int(linkIsDown), true
	case id >= 1529 && id <= 1533: // rates
		return gpu.Int(0), true
	default:
		return gpu.Value{}, false
	}
}

// parsePeers reads the state of a connection between GPUs, and the other ends.
func (f *fault) parsePeers(s *faultSpec) error {
	for _, text := range s.Peers {
		ref, err := parseDevice(text)
		if err != nil {
			return err
		}
		if ref.kind != gpu.KindGPU {
			return fmt.Errorf("peer %q, fault %s is about whole GPUs", text, f.kind)
		}
		f.peers = append(f.peers, ref)
	}
	if s.Status == nil {
		return nil
	}
	f.status = *s.Status
	var words []string
	for n := uint32(0); ; n++ {
		word := gpu.PeerStatus(n)
		if slices.Contains(words, word) {
			break // later numbers have the last word
		}
		words = append(words, word)
	}
	if !slices.Contains(words, f.status) {
		return fmt.Errorf("status %q of a connection, %s", f.status, text.Suggest(f.status, words))
	}
	return nil
}

// joins reports whether the fault is about the connection of two GPUs, in either direction.
func (f *fault) joins(a, b *gpu.Device) bool {
	among := func(refs []deviceRef, d *gpu.Device) bool {
		return refs == nil || slices.ContainsFunc(refs, func(r deviceRef) bool { return r.matches(d) })
	}
	return among(f.devices, a) && among(f.peers, b) || among(f.devices, b) && among(f.peers, a)
}
