package podmapper

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
)

// maxUnlisted bounds the allocations that are remembered and not listed.
const maxUnlisted = 4096

// minMemory is how long an allocation is remembered at least after it was last listed.
const minMemory = 30 * time.Second

// A memory completes the lists of a kubelet that has just started: it lists its pods one by one,
// for a second on v1.36.3, so that a pod that is not listed need not have ended. The zero value
// remembers nothing.
type memory struct {
	held map[Allocation]time.Time // when each allocation was last listed
	at   time.Time                // of the latest answer
	// known reports that a kubelet that knew its pods has answered, and every answer since came in
	// time: held has the holders of every device, but those in doubt.
	known bool
	doubt map[deviceid.ID]Allocation // by device, an earlier holder
	// unlisted is how many of held the latest answer does not list.
	unlisted int
}

// complete returns the allocations that are held, sorted: the listed ones, and those which a
// kubelet that has just started does not list yet. Doubted are the allocations of devices that may
// have other holders: the listed ones of shared devices, and those of which it is not known whether
// they have ended.
func (m *Mapper) complete(listed []Allocation, at time.Time, fresh bool) (held, doubted []Allocation) {
	mem := &m.memory
	before := mem.held
	switch {
	case !fresh:
		mem.known, mem.doubt, before = true, nil, nil
	case at.Sub(mem.at) > m.validFor:
		mem.known, mem.doubt, before = false, nil, nil
	}
	mem.held, mem.at = make(map[Allocation]time.Time, len(listed)), at
	for _, h := range listed {
		mem.held[h] = at
	}
	held = slices.Concat(listed, m.remember(before, listed))
	mem.unlisted = len(held) - len(listed)
	slices.SortFunc(held, Allocation.compare)
	doubted = slices.SortedFunc(maps.Values(mem.doubt), Allocation.compare)
	inDoubt := func(h Allocation) bool {
		_, doubt := mem.doubt[deviceOf(&h)]
		return isShared(&h) && (!mem.known || doubt)
	}
	for _, h := range held {
		if inDoubt(h) {
			doubted = append(doubted, h)
		}
	}
	return slices.DeleteFunc(held, inDoubt), doubted
}

// remember adds the allocations to held that are not listed and not denied, and returns them. An
// allocation that was last listed too long ago leaves its device in doubt until the kubelet knows its
// pods.
func (m *Mapper) remember(before map[Allocation]time.Time, listed []Allocation) (kept []Allocation) {
	mem := &m.memory
	given := assignedBy(listed)
	for h, last := range before {
		if _, ok := mem.held[h]; ok || given.denies(&h) || m.ended(&h, last) {
			continue
		}
		if mem.at.Sub(last) > m.validFor || len(kept) == maxUnlisted {
			if mem.doubt == nil {
				mem.doubt = map[deviceid.ID]Allocation{}
			}
			mem.doubt[deviceOf(&h)] = h
			continue
		}
		mem.held[h] = last
		kept = append(kept, h)
	}
	return kept
}

// isShared reports whether others may hold the device of h at the same time.
func isShared(h *Allocation) bool {
	_, hami := hamiReplica(h)
	return hami || h.Claim != "" || h.ID.Replica != "" || strings.HasSuffix(h.Resource, ".shared")
}

// ended reports whether the pod which held h when h was last listed is known to be no more: the API
// server says that it is over, it was known and is no longer, or a later pod has its name. A pod that
// the API server never knew may be too new for it.
func (m *Mapper) ended(h *Allocation, last time.Time) bool {
	info, ok := m.opt.Pod(h.Namespace, h.Pod)
	was := m.known[h.podName()]
	if another := ok && m.isAnother(h.podName(), &info); another || m.stale {
		return another && info.UID == was
	}
	return ok && (info.Finished || info.Created.After(last)) || was != "" && (!ok || info.UID != was)
}

// deviceOf names the device of an allocation, whichever part or replica of it is held. The GPU
// behind an id of HAMi's plugin can be any, so that these are one.
func deviceOf(h *Allocation) deviceid.ID {
	if _, hami := hamiReplica(h); hami {
		return deviceid.ID{}
	}
	return h.ID.WithoutReplica()
}

// assigned has a listing's devices of plugins, which are never given to two pods.
type assigned struct {
	ids        map[string]bool
	pods       map[podName]bool
	replicated map[deviceid.ID]bool // device → whether replicas of it are given
}

func assignedBy(listed []Allocation) *assigned {
	a := &assigned{ids: map[string]bool{}, pods: map[podName]bool{}, replicated: map[deviceid.ID]bool{}}
	for i := range listed {
		h := &listed[i]
		a.pods[h.podName()] = true
		if h.Claim == "" {
			id := h.ID
			a.ids[h.Device], a.replicated[id.WithoutReplica()] = true, id.Replica != ""
		}
	}
	return a
}

// denies reports whether h, which is not listed, is no longer held: another has its device, its pod
// is listed with other devices, or the plugin offers the device as a whole now and offered replicas
// before, or the other way round. A pod is listed with all its devices of plugins at once.
func (a *assigned) denies(h *Allocation) bool {
	if h.Claim != "" {
		return false
	}
	id := h.ID
	divided, listed := a.replicated[id.WithoutReplica()]
	return a.ids[h.Device] || a.pods[h.podName()] || listed && divided != (id.Replica != "")
}
