package gpu

import "slices"

// MaxOwners bounds the owners of an entity that are told. A device plugin makes
// a handful of replicas, NVIDIA's documentation shows ten.
const MaxOwners = 256

// ExclusiveLabels applies the first rule of attribution to uses, which has an
// element per row of t: an entity that one pod alone holds, or one job or one
// container outside Kubernetes, has the labels that labels returns for it, one
// that several hold has none, so that a device series is never told of the wrong
// one. A pod of which several containers hold the entity is one owner: it is
// passed without Container, and with those Labels that its containers share. A
// GPU that is cut by MIG has its owner's labels only if nobody else holds one of
// its instances.
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
		if t.Devices[row].Entity.Kind == KindGPU && partlyHeld(t, uses, sole, row) {
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
	var merged *Owner
	for i := range u.Owners[1:] {
		o := &u.Owners[1+i]
		switch {
		case !first.sameTenant(o):
			return nil
		case first.Container == o.Container && slices.Equal(first.Labels, o.Labels):
			continue
		case merged == nil:
			merged = new(Owner)
			*merged = *first
			merged.Labels = slices.Clone(first.Labels)
		}
		if merged.Container != o.Container {
			merged.Container = ""
		}
		merged.Labels = slices.DeleteFunc(merged.Labels, func(l Label) bool { return !slices.Contains(o.Labels, l) })
	}
	if merged != nil {
		return merged
	}
	return first
}

// sameTenant reports whether two are one and the same pod; outside Kubernetes,
// the same job or container.
func (o *Owner) sameTenant(p *Owner) bool {
	if o.Pod != "" {
		return o.Namespace == p.Namespace && o.Pod == p.Pod && o.PodUID == p.PodUID
	}
	return p.Pod == "" && o.Namespace == p.Namespace && o.Container == p.Container && slices.Equal(o.Labels, p.Labels)
}

// partlyHeld reports whether an instance of the GPU at row is held by anyone but
// the GPU's own sole owner.
func partlyHeld(t *Topology, uses []Use, sole []*Owner, row int) bool {
	for i := range uses {
		if t.ParentRow(i) != row || len(uses[i].Owners) == 0 {
			continue
		}
		if sole[i] == nil || !sole[row].sameTenant(sole[i]) {
			return true
		}
	}
	return false
}

// Limit leaves at most MaxOwners owners, and returns how many it left out. An
// entity that several hold is still held by several: the first holding of each
// owner comes before the further ones of any.
func (u *Use) Limit() (dropped int) {
	if len(u.Owners) <= MaxOwners {
		return 0
	}
	type tenant struct{ namespace, pod, container string }
	taken, chosen := map[tenant]bool{}, make([]bool, len(u.Owners))
	left := MaxOwners
	for i := range u.Owners {
		o := &u.Owners[i]
		if key := (tenant{o.Namespace, o.Pod, o.Container}); left > 0 && !taken[key] {
			taken[key], chosen[i] = true, true
			left--
		}
	}
	kept := make([]Owner, 0, MaxOwners)
	for i := range u.Owners {
		if !chosen[i] && left > 0 {
			chosen[i] = true
			left--
		}
		if chosen[i] {
			kept = append(kept, u.Owners[i])
		}
	}
	dropped = len(u.Owners) - len(kept)
	u.Owners = kept
	return dropped
}
