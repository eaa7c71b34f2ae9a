package counters

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Translate returns the requests in a vocabulary.
//
// Lines of a user's file keep their names in every vocabulary, and Both adds the other names. In a shipped file, also
// an included one, Current replaces the names, and adds the frame buffer size after the reserved size, as 4.9 does.
// Both exports all names. Names of dcgm-exporter 1.x belong to neither vocabulary and stay.
//
// Each name is requested once. Added and replaced families use the catalog's help, which has the new unit. They are
// gauges if their values are rates.
func Translate(requests []Request, v catalog.Vocabulary, shipped bool) []Request {
	if v != catalog.Current && v != catalog.Both {
		return slices.Clone(requests)
	}
	requested := make(map[string]bool, len(requests))
	for _, r := range requests {
		requested[r.Name] = true
	}
	out := make([]Request, 0, 2*len(requests))
	for _, r := range requests {
		shipped := shipped || r.Included
		other, ok := r.other()
		adds := ok && !requested[other.Name] && (v == catalog.Both || shipped)
		if !adds || v == catalog.Both {
			out = append(out, r)
		}
		if adds {
			requested[other.Name] = true
			out = append(out, other)
		}
		if size, _ := catalog.ByID(catalog.FBTotal); shipped && r.Named.Entry.ID == catalog.FBReserved &&
			!requested[size.Current] {
			extra, _ := NewRequest(size.Current, gpu.MetricGauge, "") // the catalog has it
			requested[extra.Name] = true
			out = append(out, extra)
		}
	}
	return out
}

// other returns the same request under its name in the other vocabulary, if that differs.
func (r Request) other() (Request, bool) {
	_, named, ok := catalog.Rename(r.Name, catalog.Current)
	if !ok {
		_, named, ok = catalog.Rename(r.Name, catalog.Classic)
	}
	r.Name, r.Named, r.Help = named.Name, named, helpFor(named)
	if r.Type == gpu.MetricCounter && strings.HasSuffix(string(named.Unit), "/s") { // a rate cannot be a counter
		r.Type = gpu.MetricGauge
	}
	return r, ok
}
