package podmapper

import (
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
)

// maxKept bounds the allocations that are remembered and not listed.
const maxKept = 4096

// minKeep is how long the owners are remembered at least.
const minKeep = 30 * time.Second

// A memory keeps the owners over the time in which a kubelet does not know: one that has just
// started lists its pods one by one, for a second on v1.36.3, and a list that is short does not
// mean that the others have ended. The zero value remembers nothing.
type memory struct {
	listed []Allocation // of the latest answer, sorted
	at     time.Time    // of that answer
	// whole reports that listed, with kept, is everything that is held: there was an answer of a
	// kubelet that knew all its pods.
	whole bool
	kept  []absent // sorted
}

// An absent is an allocation that the latest answer does not list, and that is taken to be held all
// the same.
type absent struct {
	Allocation
	listed time.Time // the latest time that it was
	since  time.Time // the first time that it was not
}

// A recall is what a memory needs to know of an answer beside the allocations.
type recall struct {
	at    time.Time
	fresh bool // the kubelet may have just started
	// keep is how long an answer is good for.
	validFor time.Duration
	// shared reports whether others may hold the same device.
	shared func(*Allocation) bool
	// ended reports whether the API server says that the pod is no more.
	ended func(*Allocation) bool
	// places returns the rows of the entities that each allocation may be of.
	places func([]Allocation) [][]int
	// shown reports whether an allocation makes an owner of what it matches.
	shown func(*Allocation) bool
}

// complete returns all allocations, sorted: those of an answer, and those of earlier ones that it
// cannot be believed to deny. Where nothing earlier is known, an answer of a kubelet that has just
// started says nothing of devices that others may hold too. The result shares memory with listed
// where it is the same.
func (m *memory) complete(listed []Allocation, r recall) []Allocation {
	if r.fresh && r.at.Sub(m.at) > r.validFor {
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
		return slices.DeleteFunc(slices.Clone(listed), func(h Allocation) bool { return r.shared(&h) })
	}
	m.kept = missing
	if len(m.kept) == 0 {
		return listed
	}
	given := givenBy(listed)
	m.kept = slices.DeleteFunc(slices.Clone(m.kept), func(a absent) bool { return !r.retains(&a, given) })
	m.kept = withoutLone(m.kept, missing, listed, &r)
	if len(m.kept) > maxKept {
		m.kept = m.kept[:maxKept]
	}
	all := slices.Clone(listed)
	for i := range m.kept {
		all = append(all, m.kept[i].Allocation)
	}
	slices.SortFunc(all, Allocation.compare)
	return all
}

// missing returns what was held by the latest answer and is not listed now.
func (m *memory) missing(listed []Allocation, at time.Time) []absent {
	if !m.whole || len(m.kept) == 0 && slices.Equal(m.listed, listed) {
		return nil
	}
	is := func(h Allocation) bool {
		_, found := slices.BinarySearchFunc(listed, h, Allocation.compare)
		return found
	}
	var out []absent
	for _, h := range m.listed {
		if !is(h) {
			out = append(out, absent{Allocation: h, listed: m.at, since: at})
		}
	}
	for _, a := range m.kept {
		if !is(a.Allocation) {
			out = append(out, a)
		}
	}
	return out
}

// retains reports whether an allocation that an answer does not list lasts.
func (r *recall) retains(a *absent, given *given) bool {
	switch {
	case r.old(a), r.ended(&a.Allocation):
		return false
	case a.Claim == "" && given.to(&a.Allocation):
		return false
	case r.fresh:
		return true
	default:
		// The kubelet knows its pods. One less on a shared device makes it another's alone, which is said
		// once it has been so for a while.
		return r.shared(&a.Allocation) && r.at.Sub(a.since) < settle
	}
}

// withoutLone returns kept without the allocations of the last of several pods that had an entity:
// it would have the entity alone, which no list has said. It may have ended with the others, of
// which the API server knows more, or which left the list earlier.
func withoutLone(kept, missing []absent, listed []Allocation, r *recall) []absent {
	if len(kept) == 0 {
		return kept
	}
	before, now := append(holdingsOf(missing), listed...), append(holdingsOf(kept), listed...)
	places := r.places(holdingsOf(kept))
	now = slices.DeleteFunc(now, func(h Allocation) bool { return !r.shown(&h) })
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

func holdingsOf(kept []absent) []Allocation {
	all := make([]Allocation, len(kept))
	for i := range kept {
		all[i] = kept[i].Allocation
	}
	return all
}

// podsOn returns the pods that have each row.
func podsOn(allocations []Allocation, r *recall) map[int]map[podName]bool {
	pods := map[int]map[podName]bool{}
	for i, rows := range r.places(allocations) {
		for _, row := range rows {
			if pods[row] == nil {
				pods[row] = map[podName]bool{}
			}
			pods[row][podName{allocations[i].Namespace, allocations[i].Pod}] = true
		}
	}
	return pods
}

// old reports whether an allocation was listed too long ago to be believed in.
func (r *recall) old(a *absent) bool { return r.at.Sub(a.listed) > r.validFor }

// given is what a listing says of the devices of plugins, which are never given to two.
type given struct {
	ids        map[string]bool      // that are allocated
	replicated map[deviceid.ID]bool // device → whether replicas of it are allocated
}

func givenBy(listed []Allocation) *given {
	g := &given{ids: make(map[string]bool, len(listed)), replicated: make(map[deviceid.ID]bool, len(listed))}
	for i := range listed {
		if h := &listed[i]; h.Claim == "" {
			id := h.ID()
			g.ids[h.Device], g.replicated[id.WithoutReplica()] = true, id.Replica != ""
		}
	}
	return g
}

// to reports whether a pod has the device of h now, or the plugin offers it as a whole now and as
// replicas when h was listed, or the other way round.
func (g *given) to(h *Allocation) bool {
	id := h.ID()
	divided, listed := g.replicated[id.WithoutReplica()]
	return g.ids[h.Device] || listed && divided != (id.Replica != "")
}
