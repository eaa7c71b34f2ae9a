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

// memory completes the lists of a kubelet that has just started. Such a kubelet lists its pods one
// by one, for about a second on v1.36.3, so a missing pod need not have ended.
//
//	kubelet      allocation                                            result
//	long up      listed                                                held
//	long up      not listed                                            forgotten
//	just started listed, exclusive                                     held
//	just started listed, shared, owners of all devices known           held
//	just started listed, shared, owners not known or device in doubt   in doubt
//	just started not listed, its pod has ended                         forgotten
//	just started not listed, its pod is listed with other devices      forgotten
//	just started not listed, its device has a new owner                 forgotten
//	just started not listed, seen within validFor                      held
//	just started not listed, seen earlier                              in doubt, and so is its device
//
// The owners of all devices are known from the first answer of a kubelet that has been up for a while, until there is
// no answer for longer than validFor. The zero value remembers nothing.
type memory struct {
	seen        map[Allocation]time.Time // when each allocation was last listed
	at          time.Time                // time of the latest answer
	ownersKnown bool                     // the owners of all devices are known, except those in doubt
	kept        int                      // number of unlisted allocations that are held
}

// complete returns the allocations that are held and those in doubt, both sorted.
func (m *Mapper) complete(listed []Allocation, at time.Time, fresh bool) (held, doubted []Allocation) {
	mem := &m.memory
	before := mem.seen
	mem.ownersKnown = !fresh || mem.ownersKnown && at.Sub(mem.at) <= m.validFor
	mem.seen, mem.at = make(map[Allocation]time.Time, len(listed)), at
	for _, alloc := range listed {
		mem.seen[alloc] = at
	}
	held = slices.Clone(listed)
	inDoubt := map[deviceid.ID]bool{}
	for _, alloc := range m.unlisted(before, listed, fresh) {
		mem.seen[alloc] = before[alloc]
		if at.Sub(before[alloc]) <= m.validFor {
			held = append(held, alloc)
			continue
		}
		doubted = append(doubted, alloc)
		inDoubt[alloc.device()] = true
	}
	mem.kept = len(held) - len(listed)
	held = slices.DeleteFunc(held, func(alloc Allocation) bool {
		isDoubted := alloc.isShared() && (!mem.ownersKnown || inDoubt[alloc.device()])
		if isDoubted {
			doubted = append(doubted, alloc)
		}
		return isDoubted
	})
	slices.SortFunc(held, Allocation.compare)
	slices.SortFunc(doubted, Allocation.compare)
	return held, doubted
}

// unlisted returns the earlier allocations that are not listed but may still be held.
func (m *Mapper) unlisted(before map[Allocation]time.Time, listed []Allocation, fresh bool) (all []Allocation) {
	if !fresh {
		return nil
	}
	given := m.assignedBy(listed)
	for alloc, last := range before {
		if _, ok := m.memory.seen[alloc]; ok || given.excludes(&alloc, m.rows(&alloc)) || m.ended(&alloc, last) {
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
