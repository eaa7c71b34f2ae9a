package exposition

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Limit bounds the series of a page, and with them the memory that it needs. Series of health and the Trailer neither
// count nor go.
//
// A page over the limit has neither the labels that owners have of their own, nor copies of shared entities and the parts
// of their owners. Where it is over the limit still, whole families go: those of the highest rank first, and of a rank
// the last of the page first. Families of rank 0 stay.
type Limit struct {
	Series int                     // at most; 0 for no limit, and nothing below is needed
	Own    func(label string) bool // whether a label of an owner is one of its own, such as a pod's
	Rank   func(family string) int
}

// What a page leaves out over its limit, as the keys of Encoder.LimitedBy.
const (
	LimitedPodLabels = "pod_labels" // labels of entities, each once
	LimitedCopies    = "copies"     // series
	LimitedFamilies  = "families"   // series
)

// LimitedBy returns how many labels or series the latest page leaves out because of its limit, by LimitedPodLabels,
// LimitedCopies or LimitedFamilies. The Trailer may call it.
func (e *Encoder) LimitedBy(what string) int {
	return int(e.limited[slices.Index([]string{LimitedPodLabels, LimitedCopies, LimitedFamilies}, what)].Load())
}

// limit writes a page of at most most series, but for families of rank 0, in the place of one of total series.
func (e *Encoder) limit(s *gpu.Snapshot, families []*family, total, most int) *writer {
	for _, f := range families {
		f.derived = slices.DeleteFunc(f.derived, func(d *gpu.Family) bool { return d.OwnersOnly })
	}
	w := e.write(s, families, true)
	e.limited[0].Store(int64(w.labels.withheld))
	e.limited[1].Store(int64(total - w.series))

	rank := func(f *family) int {
		if f.health != nil {
			return 0
		}
		return e.opts.Limit.Rank(f.name)
	}
	ranked := slices.Clone(families)
	slices.Reverse(ranked)
	slices.SortStableFunc(ranked, func(a, b *family) int { return rank(b) - rank(a) })
	rest := w.series
	for _, f := range ranked {
		if rest > most && rank(f) > 0 {
			rest -= f.series
			families = slices.DeleteFunc(families, func(g *family) bool { return g == f })
		}
	}
	e.limited[2].Store(int64(w.series - rest))
	if rest < w.series {
		w = e.write(s, families, true)
	}
	return w
}
