package gpu

import "slices"

// ExclusiveLabels applies the first rule of attribution to uses, which has an
// element per row of t: an entity that exactly one owner holds has the labels
// that labels returns for it, one that several hold has none, so that a device
// series is never told of the wrong one. A GPU that is cut by MIG has its
// owner's labels only if nobody else holds one of its instances.
func ExclusiveLabels(t *Topology, uses []Use, labels func(*Owner) []Label) [][]Label {
	sole := make([]*Owner, len(uses))
	for row := range uses {
		sole[row] = uses[row].sole()
	}
	out := make([][]Label, len(uses))
	for row := range uses {
		if sole[row] == nil {
			continue
		}
		if t.Devices[row].Entity.Kind == KindGPU && partlyHeld(t, uses, row, sole[row]) {
			continue
		}
		out[row] = labels(sole[row])
	}
	return out
}

// sole returns the only owner, nil where there is none or more than one. One
// that holds several replicas is one owner.
func (u *Use) sole() *Owner {
	if len(u.Owners) == 0 {
		return nil
	}
	first := &u.Owners[0]
	for i := range u.Owners[1:] {
		if !first.same(&u.Owners[1+i]) {
			return nil
		}
	}
	return first
}

// same reports whether two are one and the same owner, whichever replicas
// they hold.
func (o *Owner) same(p *Owner) bool {
	return o.Namespace == p.Namespace && o.Pod == p.Pod && o.Container == p.Container &&
		o.PodUID == p.PodUID && slices.Equal(o.Labels, p.Labels)
}

// partlyHeld reports whether an instance of the GPU at row is held by anyone
// but owner.
func partlyHeld(t *Topology, uses []Use, row int, owner *Owner) bool {
	for i := range uses {
		if t.ParentRow(i) != row {
			continue
		}
		for j := range uses[i].Owners {
			if !owner.same(&uses[i].Owners[j]) {
				return true
			}
		}
	}
	return false
}
