package podmapper

import "time"

// claimName identifies a claim. It is zero for a device that a device plugin allocated.
type claimName struct{ namespace, claim string }

// assigned is what a listing assigns to its pods.
type assigned struct {
	pods map[podName]bool
	ids  map[string]bool // ids of plugin devices; an id is never assigned to two pods
	rows map[int]holding // assigned rows of the topology
}

// holding describes how a row is assigned.
type holding struct {
	exclusive bool
	claim     claimName // several pods can share a claim
}

// assignedBy returns what a listing assigns.
func (m *Mapper) assignedBy(listed []Allocation) *assigned {
	a := &assigned{pods: map[podName]bool{}, ids: map[string]bool{}, rows: map[int]holding{}}
	for i := range listed {
		alloc := &listed[i]
		a.pods[alloc.podName()] = true
		if alloc.Claim == "" {
			a.ids[alloc.Device] = true
		} else if claimed := m.claimed(alloc); claimed.Admin || claimed.pending() {
			continue
		}
		for _, row := range m.rows(alloc) {
			a.rows[row] = holding{exclusive: alloc.isExclusive(), claim: claimOf(alloc)}
			parent := m.resolver.Topology().ParentRow(row)
			if _, held := a.rows[parent]; parent >= 0 && !held {
				a.rows[parent] = holding{claim: claimOf(alloc)} // no pod can hold the whole GPU exclusively
			}
		}
	}
	return a
}

// excludes reports whether the listing implies that the unlisted alloc, with these rows, has ended. A pod is
// listed with all its devices at once, and an exclusive device has one owner.
func (a *assigned) excludes(alloc *Allocation, rows []int) bool {
	if a.pods[alloc.podName()] || alloc.Claim == "" && a.ids[alloc.Device] {
		return true
	}
	for _, row := range rows {
		held, ok := a.rows[row]
		sameClaim := alloc.Claim != "" && held.claim == claimOf(alloc)
		if ok && !sameClaim && (held.exclusive || alloc.isExclusive()) {
			return true
		}
	}
	return false
}

func claimOf(alloc *Allocation) claimName { return claimName{alloc.ClaimNamespace, alloc.Claim} }

// ended reports whether the pod of alloc has ended since it was last listed. That is so if the API server says that
// the pod is over, no longer knows a pod that it knew, or knows a later pod of that name. A pod that it never knew may
// be too new, and the mirror of a static pod can be deleted.
func (m *Mapper) ended(alloc *Allocation, last time.Time) bool {
	key := alloc.podName()
	was := m.podInfo[key]
	info, ok := m.opt.Pod(alloc.Namespace, alloc.Pod)
	if !ok {
		return m.hasSuccessor(key) || !m.stale && was.UID != "" && was.Hash == ""
	}
	if another := m.isAnother(key, &info); another || m.stale {
		return another && info.UID == was.UID
	}
	return info.Finished || info.Created.After(last) || was.UID != "" && info.UID != was.UID
}

// hasSuccessor reports whether the newest log folder of the pod's name has another UID, so that it belongs to a later
// pod.
func (m *Mapper) hasSuccessor(key podName) bool {
	uid, was := m.logs.folders[key].uid, m.inputs.uids[key]
	return uid != "" && was != "" && uid != was
}
