package exposition

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

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

// A limiter enforces a Limit. What the previous page left out is restored only if the page then has a tenth fewer
// series than the limit. Otherwise labels and families would come and go with every pod.
type limiter struct {
	Limit
	active  bool     // the latest page was over the limit
	leftOut []string // names of the families that the latest page left out
	// What the latest page left out: label names of entities, each counted once, and series.
	labels, copies, families prometheus.Gauge
}

// exceeded reports whether a number of series is over the limit. wasOut says whether the previous page was.
func (l *limiter) exceeded(series int, wasOut bool) bool {
	most := l.Series
	if wasOut {
		most -= most / 10
	}
	return l.Series > 0 && series > most
}

// limit returns full, the complete page. If it is over the limit, limit renders the page again with fewer series, into
// the buffer of full.
func (e *Encoder) limit(full *writer, s *gpu.Snapshot, families []*family) *writer {
	l, before := &e.limiter, e.limiter.leftOut
	l.active, l.leftOut = l.exceeded(full.series, l.active), nil
	w, rest := full, full.series
	if l.active {
		for _, f := range families {
			f.derived = slices.DeleteFunc(f.derived, func(d *gpu.Family) bool { return d.OwnersOnly })
		}
		w = e.write(full.page[:0], s, families, true)
		rest = w.series
		rank := func(f *family) int {
			if f.health != nil {
				return 0
			}
			return l.Rank(f.name)
		}
		ranked := slices.Clone(families)
		slices.Reverse(ranked)
		slices.SortStableFunc(ranked, func(a, b *family) int { return rank(b) - rank(a) })
		for _, f := range ranked {
			if rank(f) > 0 && l.exceeded(rest, slices.Contains(before, f.name)) {
				rest -= f.series
				l.leftOut = append(l.leftOut, f.name)
			}
		}
	}
	l.labels.Set(float64(w.labels.withheld))
	l.copies.Set(float64(full.series - w.series))
	l.families.Set(float64(w.series - rest))
	if rest < w.series {
		families = slices.DeleteFunc(families, func(f *family) bool { return slices.Contains(l.leftOut, f.name) })
		w = e.write(w.page[:0], s, families, true)
	}
	return w
}
