package podmapper

import (
	"slices"
	"time"
)

// maxKept bounds the holdings that are remembered and not listed.
const maxKept = 4096

// minKeep is how long who held what is remembered at least.
const minKeep = 30 * time.Second

// A memory keeps who held what over the time in which a kubelet does not know: one
// that has just started lists its pods one by one, for a second on v1.36.3, and
// a list that is short does not mean that the others have ended. The zero value
// remembers nothing.
type memory struct {
	listed []Holding // of the latest answer, sorted
	at     time.Time // of that answer
	// whole reports that listed, with kept, is everything that is held: there was
	// an answer of a kubelet that knew all its pods.
	whole bool
	kept  []absent // sorted
}

// An absent is a holding that the latest answer does not list, and that is taken
// to be held all the same.
type absent struct {
	Holding
	listed time.Time // the latest time that it was
	since  time.Time // the first time that it was not
}

// A recall is what a memory needs to know of an answer beside the holdings.
type recall struct {
	at    time.Time
	fresh bool // the kubelet may have just started
	// keep is how long an answer is good for.
	keep time.Duration
	// shared reports whether others may hold the same device.
	shared func(*Holding) bool
	// ended reports whether the API server says that the pod is no more.
	ended func(*Holding) bool
	// places returns the rows of the entities that each holding may be of.
	places func([]Holding) [][]int
	// shown reports whether a holding makes an owner of what it matches.
	shown func(*Holding) bool
}

// complete returns all holdings, sorted: those of an answer, and those of earlier
// ones that it cannot be believed to deny. Where nothing earlier is known, an
// answer of a kubelet that has just started says nothing of devices that others
// may hold too. The result shares memory with listed where it is the same.
func (m *memory) complete(listed []Holding, r recall) []Holding {
	if r.fresh && r.at.Sub(m.at) > r.keep {
		m.whole = false
	}
	missing := m.missing(listed, r.at)
	if !r.fresh {
		m.whole = true
	} else if slices.ContainsFunc(missing, func(a absent) bool { return r.old(&a) }) {
		m.whole = false // too long ago to go on, and not denied yet
	}
	m.listed, m.at = listed, r.at
	if !m.whole {
		m.kept = nil
		return slices.DeleteFunc(slices.Clone(listed), func(h Holding) bool { return r.shared(&h) })
	}
	m.kept = missing
	if len(m.kept) == 0 {
		return listed
	}
	given := givenBy(listed)
	m.kept = slices.DeleteFunc(slices.Clone(m.kept), func(a absent) bool { return !r.keeps(&a, given) })
	m.kept = withoutLone(m.kept, missing, listed, &r)
	if len(m.kept) > maxKept {
		m.kept = m.kept[:maxKept]
	}
	all := slices.Clone(listed)
	for i := range m.kept {
		all = append(all, m.kept[i].Holding)
	}
	slices.SortFunc(all, Holding.compare)
	return all
}

// missing returns what was held by the latest answer and is not listed now.
func (m *memory) missing(listed []Holding, at time.Time) []absent {
	if !m.whole || len(m.kept) == 0 && slices.Equal(m.listed, listed) {
		return nil
	}
	is := func(h Holding) bool {
		_, found := slices.BinarySearchFunc(listed, h, Holding.compare)
		return found
	}
	var out []absent
	for _, h := range m.listed {
		if !is(h) {
			out = append(out, absent{Holding: h, listed: m.at, since: at})
		}
	}
	for _, a := range m.kept {
		if !is(a.Holding) {
			out = append(out, a)
		}
	}
	return out
}

// keeps reports whether a holding that an answer does not list is held.
func (r *recall) keeps(a *absent, given *given) bool {
	switch {
	case r.old(a), r.ended(&a.Holding):
		return false
	case a.Claim == "" && given.to(&a.Holding):
		return false
	case r.fresh:
		return true
	default:
		// The kubelet knows its pods. One less on a shared device makes it another's
		// alone, which is said once it has been so for a while.
		return r.shared(&a.Holding) && r.at.Sub(a.since) < settle
	}
}

// withoutLone returns kept without the holdings of the last of several pods that had
// an entity: it would have the entity alone, which no list has said. It may have ended
// with the others, of which the API server knows more, or which left the list earlier.
func withoutLone(kept, missing []absent, listed []Holding, r *recall) []absent {
	if len(kept) == 0 {
		return kept
	}
	before, now := append(holdingsOf(missing), listed...), append(holdingsOf(kept), listed...)
	places := r.places(holdingsOf(kept))
	now = slices.DeleteFunc(now, func(h Holding) bool { return !r.shown(&h) })
	had, has := podsOn(before, r), podsOn(now, r)
	var out []absent
	for i := range kept {
		lone := func(row int) bool { return len(has[row]) == 1 && len(had[row]) > 1 }
		if !slices.ContainsFunc(places[i], lone) {
			out = append(out, kept[i])
		}
	}
	return out
}

func holdingsOf(kept []absent) []Holding {
	all := make([]Holding, len(kept))
	for i := range kept {
		all[i] = kept[i].Holding
	}
	return all
}

// podsOn returns the pods that have each row.
func podsOn(holdings []Holding, r *recall) map[int]map[podName]bool {
	pods := map[int]map[podName]bool{}
	for i, rows := range r.places(holdings) {
		for _, row := range rows {
			if pods[row] == nil {
				pods[row] = map[podName]bool{}
			}
			pods[row][podName{holdings[i].Namespace, holdings[i].Pod}] = true
		}
	}
	return pods
}

// old reports whether a holding was listed too long ago to be believed in.
func (r *recall) old(a *absent) bool { return r.at.Sub(a.listed) > r.keep }

// given is what a listing says of the devices of plugins, which are never given
// to two.
type given struct {
	ids     map[string]bool // that are held
	divided map[string]bool // device → whether replicas of it are held
}

func givenBy(listed []Holding) *given {
	g := &given{ids: make(map[string]bool, len(listed)), divided: make(map[string]bool, len(listed))}
	for i := range listed {
		if h := &listed[i]; h.Claim == "" {
			id := h.ID()
			g.ids[h.Device], g.divided[wholeOf(id)] = true, id.Replica != ""
		}
	}
	return g
}

// to reports whether a pod has the device of h now, or the plugin offers it as
// a whole now and as replicas when h was listed, or the other way round.
func (g *given) to(h *Holding) bool {
	id := h.ID()
	divided, listed := g.divided[wholeOf(id)]
	return g.ids[h.Device] || listed && divided != (id.Replica != "")
}
