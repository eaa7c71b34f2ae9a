package counters

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// 4.9 collects the size of the frame buffer by default, 4.8 did not. It goes after the reserved
// frame buffer.
const (
	fieldCapacity = catalog.FBTotal
	fieldReserved = catalog.FBReserved
)

// Translate returns the requests to export in a vocabulary.
//
// A line of a user's file is a request for exactly that name: it is kept in every vocabulary, and
// Both adds the other vocabulary's name beside it. Shipped files mean a set of measurements, not
// names: Classic keeps their names, Current replaces them with the current ones and adds what 4.9
// collects beyond 4.8, and Both has all of them. Names of dcgm-exporter 1.x are in neither
// vocabulary; they are kept as they are.
//
// A name that is already requested is not added again. Families that are added or replaced get the
// catalog's help, which has the new unit, and are gauges where their values are rates.
func Translate(requests []Request, v catalog.Vocabulary, shipped bool) []Request {
	if v == catalog.Classic || v == catalog.Current && !shipped {
		return slices.Clone(requests)
	}
	requested := make(map[string]bool, len(requests))
	for _, r := range requests {
		requested[r.Name] = true
	}
	out := make([]Request, 0, 2*len(requests))
	for _, r := range requests {
		other, ok := r.other()
		switch {
		case !ok || requested[other.Name]:
			out = append(out, r)
		case v == catalog.Current:
			requested[other.Name] = true
			out = append(out, other)
		default:
			requested[other.Name] = true
			out = append(out, r, other)
		}
		if shipped && r.Named.Entry.ID == fieldReserved {
			if e, ok := catalog.ByID(fieldCapacity); ok && !requested[e.Current] {
				if extra, err := NewRequest(e.Current, gpu.MetricGauge, ""); err == nil {
					requested[e.Current] = true
					out = append(out, extra)
				}
			}
		}
	}
	return out
}

// other returns the same request in the other vocabulary, if that has another name for it.
func (r Request) other() (Request, bool) {
	_, named, ok := catalog.Rename(r.Name, catalog.Current)
	if !ok {
		_, named, ok = catalog.Rename(r.Name, catalog.Classic)
	}
	if !ok {
		return Request{}, false
	}
	other := r
	other.Name, other.Named, other.Help = named.Name, named, helpFor(named)
	if other.Type == gpu.MetricCounter && isRate(named.Unit) {
		other.Type = gpu.MetricGauge
	}
	return other, true
}

// isRate reports whether a value in the unit is a rate, which no counter is.
func isRate(u gpu.Unit) bool {
	switch u {
	case catalog.BytesPerSecond, catalog.KilobytesPerSecond, catalog.MegabytesPerSecond, catalog.MilliwattsPerSecond:
		return true
	default:
		return false
	}
}
