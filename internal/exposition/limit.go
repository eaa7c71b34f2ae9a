package exposition

import "slices"

// A Limit bounds the series of a page, so that no crowd of owners makes one that neither the
// exporter nor its reader has the memory for. Series of health and the Trailer neither count nor go.
//
// Over the limit a page loses, in this order and only as far as needed: the labels that owners have
// of their own; the copies of shared entities and the parts of their owners; whole families, those
// of the highest rank first, and of a rank the last of the page first. Families of rank 0 stay, also
// where they alone are over the limit.
type Limit struct {
	// Series is how many series a page has at most; 0 sets no limit, and nothing below is needed.
	Series int
	// Own reports whether a label of an owner is one of its own, such as a pod's.
	Own func(label string) bool
	// Rank returns the rank of a family.
	Rank func(family string) int
}

// What a page leaves out over its limit, as the keys of Encoder.LimitedBy.
const (
	LimitedPodLabels = "pod_labels" // labels of entities, each once
	LimitedCopies    = "copies"     // series
	LimitedFamilies  = "families"   // series
)

// LimitedBy returns how many labels and series the latest page leaves out because of its limit, by
// the step: LimitedPodLabels, LimitedCopies, LimitedFamilies. It may be called by the Trailer.
func (e *Encoder) LimitedBy(step string) int {
	switch step {
	case LimitedPodLabels:
		return int(e.limited[0].Load())
	case LimitedCopies:
		return int(e.limited[1].Load())
	default:
		return int(e.limited[2].Load())
	}
}

// limit returns the families that the page has, and takes from labels and families what is over the
// limit.
func (w *writer) limit(families []*family) []*family {
	for i := range w.Encoder.limited {
		w.Encoder.limited[i].Store(0)
	}
	most := w.opts.Limit.Series
	total := 0
	if most > 0 {
		total = w.count(families)
	}
	if total <= most {
		return families
	}
	// Each step but the last is taken whole. Labels are no series: they go first since they are the
	// largest part of a large page, and no value goes with them.
	w.labels = newLabels(w.Encoder, w.s, true)
	w.Encoder.limited[0].Store(int64(w.labels.withheld))

	for row := range w.labels.rows {
		w.labels.rows[row].copies = nil
	}
	for _, f := range families {
		f.dropParts()
	}
	rest := w.count(families)
	w.Encoder.limited[1].Store(int64(total - rest))

	total = rest
	for rank := w.highestRank(families); rank > 0; rank-- {
		for i := len(families) - 1; i >= 0 && rest > most; i-- {
			if w.rank(families[i]) == rank {
				rest -= w.count(families[i : i+1])
				families = slices.Delete(families, i, i+1)
			}
		}
	}
	w.Encoder.limited[2].Store(int64(total - rest))
	return families
}

// dropParts takes the parts of owners from a family that is a device's own beside.
func (f *family) dropParts() {
	for i := len(f.derived) - 1; i >= 0; i-- {
		if f.derived[i].OwnersOnly {
			f.derived = slices.Delete(f.derived, i, i+1)
		}
	}
	f.parted = false
}

func (w *writer) rank(f *family) int {
	if f.health != nil {
		return 0
	}
	return w.opts.Limit.Rank(f.name)
}

func (w *writer) highestRank(families []*family) int {
	highest := 0
	for _, f := range families {
		highest = max(highest, w.rank(f))
	}
	return highest
}

// count returns how many series families have, those of health apart. It may count a few that the
// page leaves out, such as duplicates.
func (w *writer) count(families []*family) int {
	n := 0
	for _, f := range families {
		for _, c := range f.columns {
			for row := range min(len(c.Values), len(w.labels.rows)) {
				if v := w.shown(c, row); !v.IsAbsent() && !v.IsText() {
					n += len(w.labels.rows[row].blocks(f.parted))
				}
			}
		}
		for _, d := range f.derived {
			for i := range d.Series {
				sr := &d.Series[i]
				switch {
				case sr.Row < 0 || sr.Row >= len(w.labels.rows) || sr.NoOwner:
					n++
				case d.OfGPUs:
					n += len(w.labels.rows[sr.Row].blocks(false)) + len(w.labels.rows[sr.Row].instances)
				default:
					n += len(w.labels.rows[sr.Row].blocks(false))
				}
			}
		}
	}
	return n
}
