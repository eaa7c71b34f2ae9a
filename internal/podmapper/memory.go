package podmapper

import (
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
)

const (
	// maxUnlisted is the maximum number of unlisted allocations that are remembered.
	maxUnlisted = 4096
	// minMemory is the minimum time for which an unlisted allocation is remembered.
	minMemory = 30 * time.Second
)

// memory completes the lists of a kubelet that has just started. Such a kubelet lists its pods one by one, for about a
// second on v1.36.3, so a missing pod need not have ended. While it lists none at all, kubelet.list returns an error.
//
//	kubelet      allocation                                            result
//	long up      listed                                                held
//	long up      not listed                                            forgotten
//	just started listed, exclusive                                     held
//	just started listed, shared, owners of all devices known           held
//	just started listed, shared, owners not known or device in doubt   in doubt
//	just started not listed, excluded by the list, or its pod ended    forgotten
//	just started not listed, seen within validFor                      held
//	just started not listed, seen earlier                              in doubt, and so is its device
//
// The owners of all devices are known from the first answer of a kubelet that has been up for a while, until there is
// no answer for longer than validFor. The zero value remembers nothing.
type memory struct {
	seen        map[Allocation]time.Time // when each allocation was last listed
	at          time.Time                // time of the latest answer
	ownersKnown bool                     // the owners of all devices are known, except those in doubt
}

// complete returns the allocations that are held and those in doubt, both sorted.
func (m *Mapper) complete(listed []Allocation, fresh bool, at time.Time) (held, doubted []Allocation) {
	mem := &m.memory
	before := mem.seen
	mem.ownersKnown = !fresh || mem.ownersKnown && at.Sub(mem.at) <= m.validFor
	mem.seen, mem.at = make(map[Allocation]time.Time, len(listed)), at
	for _, alloc := range listed {
		mem.seen[alloc] = at
	}
	held = slices.Clone(listed)
	inDoubt := map[deviceid.ID]bool{}
	if fresh {
		for _, alloc := range m.unlisted(before, listed) {
			mem.seen[alloc] = before[alloc]
			if at.Sub(before[alloc]) <= m.validFor {
				held = append(held, alloc)
				continue
			}
			doubted = append(doubted, alloc)
			inDoubt[alloc.device()] = true
		}
	}
	m.opt.Metrics.kept.Set(float64(len(held) - len(listed)))
	held = slices.DeleteFunc(held, func(alloc Allocation) bool {
		isDoubted := (alloc.Claim != "" || alloc.isReplica()) && (!mem.ownersKnown || inDoubt[alloc.device()])
		if isDoubted {
			doubted = append(doubted, alloc)
		}
		return isDoubted
	})
	slices.SortFunc(held, Allocation.compare)
	slices.SortFunc(doubted, Allocation.compare)
	return held, doubted
}

// holding is the allocation of a row.
type holding struct {
	alloc     *Allocation
	exclusive bool
}

// unlisted returns the earlier allocations that are not listed but may still be held. A pod is listed with all its
// devices at once, the id of a plugin device is never assigned to two pods, and an exclusive device has one owner.
func (m *Mapper) unlisted(before map[Allocation]time.Time, listed []Allocation) (all []Allocation) {
	pods, ids, held := map[podName]bool{}, map[string]bool{}, map[int]holding{}
	for i := range listed {
		alloc := &listed[i]
		pods[alloc.podName] = true
		if alloc.Claim == "" {
			ids[alloc.Device] = true
		} else if claimed := m.claimed(alloc); claimed.Admin || claimed.pending() {
			continue
		}
		for _, row := range m.rows(alloc) {
			held[row] = holding{alloc, alloc.isExclusive()}
			parent := m.resolver.Topology().ParentRow(row)
			if _, ok := held[parent]; parent >= 0 && !ok {
				held[parent] = holding{alloc, false} // no pod can hold the whole GPU exclusively
			}
		}
	}
	for alloc, last := range before {
		isTaken := func(row int) bool {
			by, ok := held[row]
			return ok && (by.exclusive || alloc.isExclusive()) && !alloc.sharesClaim(by.alloc)
		}
		if pods[alloc.podName] || alloc.Claim == "" && ids[alloc.Device] ||
			slices.ContainsFunc(m.rows(&alloc), isTaken) || m.ended(&alloc, last) {
			continue
		}
		if len(all) == maxUnlisted {
			m.memory.ownersKnown = false
			break
		}
		all = append(all, alloc)
	}
	return all
}

// ended reports whether the pod of alloc has ended since it was last listed. That is so if the API server reports that
// the pod has finished, has deleted it, or has a later pod of that name. A pod that the API server has never listed may
// be too new. The mirror of a static pod can be deleted while the pod runs.
func (m *Mapper) ended(alloc *Allocation, last time.Time) bool {
	key := alloc.podName
	was, wasUID := m.podInfo[key], m.inputs.uids[key]
	info, ok := m.opt.Pod(alloc.Namespace, alloc.Pod)
	if !ok {
		uid := m.logs.folders[key].uid // another UID belongs to a later pod
		return uid != "" && wasUID != "" && uid != wasUID || !m.isStale() && was.UID != "" && was.Hash == ""
	}
	if another := m.isAnother(key, &info); another || m.isStale() {
		return another && info.UID == was.UID
	}
	return info.Finished || info.Created.After(last) || was.UID != "" && info.UID != was.UID
}
