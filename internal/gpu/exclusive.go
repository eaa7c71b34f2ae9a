package gpu

import (
	"reflect"
	"slices"
)

// MaxOwners bounds the owners of an entity that are reported. A device plugin makes a handful of
// replicas, NVIDIA's documentation shows ten.
const MaxOwners = 256

// Renewed returns o if next says the same, else next with the generation behind o's. A nil o has
// none.
func (o *Owners) Renewed(next *Owners) *Owners {
	if o != nil {
		next.Generation = o.Generation
		if reflect.DeepEqual(next, o) {
			return o
		}
	}
	next.Generation++
	return next
}

// ExclusiveLabels applies the first rule of attribution to uses, which has an element per row of t:
// an entity that one pod alone has, or one job or one container outside Kubernetes, has the labels
// that labels returns for it, one that several share has none, so that a device series never
// carries the wrong one. A pod of which several containers share the entity is one owner: it is
// passed without Container, and with those Labels that its containers share. A GPU that is
// partitioned by MIG has its owner's labels only if no other owner has one of its instances.
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
		if t.Devices[row].Entity.Kind == KindGPU && partlyOthers(t, uses, sole, row) {
			continue
		}
		out[row] = labels(sole[row])
	}
	return out
}

// sole returns the only owner, nil where there is none or more than one. One that has several
// replicas is one owner.
func (u *Use) sole() *Owner {
	if len(u.Owners) == 0 || u.Incomplete {
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

// sameTenant reports whether two are one and the same pod; outside Kubernetes, the same job or
// container.
func (o *Owner) sameTenant(p *Owner) bool {
	if o.Pod != "" {
		return o.Namespace == p.Namespace && o.Pod == p.Pod && o.PodUID == p.PodUID
	}
	return p.Pod == "" && o.Namespace == p.Namespace && o.Container == p.Container && slices.Equal(o.Labels, p.Labels)
}

// partlyOthers reports whether an instance of the GPU at row has an owner other than the GPU's own
// sole owner.
func partlyOthers(t *Topology, uses []Use, sole []*Owner, row int) bool {
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

// Limit leaves at most MaxOwners owners, and returns how many it left out. An entity that several
// share is still shared by several: the first use of each owner comes before the further ones of
// any.
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
