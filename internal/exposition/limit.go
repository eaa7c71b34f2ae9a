package exposition

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Limit bounds the number of series on a page, and so its memory. Health and trailer series are exempt from the
// limit.
//
// A page over the limit first loses the owners' own labels, the copies of shared entities, and the series that split a
// device's value by owner. If that is not enough, whole families are dropped: the highest rank first, and within a rank
// the last family of the page first. Families of rank 0 are never dropped.
type Limit struct {
	Series int                     // maximum; zero means no limit, and the other fields are unused
	Own    func(label string) bool // reports whether an owner's label is its own, such as a label of the pod
	Rank   func(family string) int
}

// The keys of Encoder.LimitedBy: what a page over its limit leaves out.
const (
	LimitedPodLabels = "pod_labels" // label names of entities, each counted once
	LimitedCopies    = "copies"     // series
	LimitedFamilies  = "families"   // series
)

// LimitedBy returns how many labels or series the latest page leaves out because of its limit. The key is
// LimitedPodLabels, LimitedCopies or LimitedFamilies. A Trailer may call it.
func (e *Encoder) LimitedBy(what string) int {
	if counts := e.limited.Load(); counts != nil {
		return (*counts)[what]
	}
	return 0
}

// exceeds reports whether a page with that many series is over the limit.
func (e *Encoder) exceeds(series int) bool {
	most := e.opts.Limit.Series
	return most > 0 && series > e.bound(most, e.isLimited)
}

// bound returns the number of series above which something is left out. What the previous page left out comes back only
// with a tenth fewer series, so that labels and families do not come and go with every pod.
func (e *Encoder) bound(most int, isOut bool) int {
	if isOut {
		return most - most/10
	}
	return most
}

// limit renders the page again with at most most series, not counting families of rank 0. It reuses the buffer of the
// full page.
func (e *Encoder) limit(full *writer, s *gpu.Snapshot, families []*family, most int) *writer {
	for _, f := range families {
		f.derived = slices.DeleteFunc(f.derived, func(d *gpu.Family) bool { return d.OwnersOnly })
	}
	w := e.write(full.page[:0], s, families, true)
	rank := func(f *family) int {
		if f.health != nil {
			return 0
		}
		return e.opts.Limit.Rank(f.name)
	}
	ranked := slices.Clone(families)
	slices.Reverse(ranked)
	slices.SortStableFunc(ranked, func(a, b *family) int { return rank(b) - rank(a) })
	rest, before := w.series, e.leftOut
	e.leftOut = nil
	for _, f := range ranked {
		if rest > e.bound(most, slices.Contains(before, f.name)) && rank(f) > 0 {
			rest -= f.series
			e.leftOut = append(e.leftOut, f.name)
			families = slices.DeleteFunc(families, func(g *family) bool { return g == f })
		}
	}
	e.limited.Store(&map[string]int{
		LimitedPodLabels: w.labels.withheld,
		LimitedCopies:    full.series - w.series,
		LimitedFamilies:  w.series - rest,
	})
	if rest < w.series {
		w = e.write(w.page[:0], s, families, true)
	}
	return w
}
