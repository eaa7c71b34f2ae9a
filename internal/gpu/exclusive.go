package gpu

import (
	"reflect"
	"slices"
)

// MaxOwners is the largest number of owners that is reported for an entity.
const MaxOwners = 256

// ReuseIfEqual returns o if next is equal to it, and next otherwise. It keeps the pointer stable while nothing changes.
func (o *Owners) ReuseIfEqual(next *Owners) *Owners {
	if reflect.DeepEqual(next, o) {
		return o
	}
	return next
}

// ExclusiveLabels returns the labels of each entity's exclusive owner, by row of t. The function labels renders an
// owner.
//
// An entity with several owners has no labels, so that no device series names the wrong one. An owner is a pod, or
// outside Kubernetes a job or a container. If several containers of a pod use the entity, Container is empty and
// Labels has only the labels that they share. A GPU partitioned by MIG has its owner's labels unless another owner
// holds one of its instances.
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

// sole returns the exclusive owner, which may hold several replicas. It returns nil if there is not exactly one.
func (u *Use) sole() *Owner {
	if len(u.Owners) == 0 || u.Incomplete {
		return nil
	}
	merged := u.Owners[0]
	merged.Labels = slices.Clone(merged.Labels)
	for i := range u.Owners {
		o := &u.Owners[i]
		if !u.Owners[0].sameAs(o) {
			return nil
		}
		if merged.Container != o.Container {
			merged.Container = ""
		}
		merged.Labels = slices.DeleteFunc(merged.Labels, func(l Label) bool { return !slices.Contains(o.Labels, l) })
	}
	return &merged
}

// sameAs reports whether two owners are the same pod or, outside Kubernetes, the same job or container.
func (o *Owner) sameAs(p *Owner) bool {
	if o.Pod != "" {
		return o.Namespace == p.Namespace && o.Pod == p.Pod && o.PodUID == p.PodUID
	}
	return p.Pod == "" && o.Namespace == p.Namespace && o.Container == p.Container && slices.Equal(o.Labels, p.Labels)
}

// partlyOthers reports whether an instance of the GPU at row has an owner other than the GPU's exclusive owner.
func partlyOthers(t *Topology, uses []Use, sole []*Owner, row int) bool {
	for i := range uses {
		if t.ParentRow(i) != row || len(uses[i].Owners) == 0 {
			continue
		}
		if sole[i] == nil || !sole[row].sameAs(sole[i]) {
			return true
		}
	}
	return false
}

// Limit drops owners beyond MaxOwners and returns how many it dropped. It keeps one entry of each owner before it keeps
// repeated ones, so that a shared entity is still reported as shared.
func (u *Use) Limit() (dropped int) {
	if len(u.Owners) <= MaxOwners {
		return 0
	}
	type container struct{ namespace, pod, name string }
	seen := map[container]bool{}
	var first, repeated []int
	for i := range u.Owners {
		o := &u.Owners[i]
		key := container{o.Namespace, o.Pod, o.Container}
		if seen[key] {
			repeated = append(repeated, i)
		} else {
			first = append(first, i)
		}
		seen[key] = true
	}
	kept := append(first, repeated...)[:MaxOwners]
	slices.Sort(kept)
	dropped = len(u.Owners) - len(kept)
	owners := make([]Owner, len(kept))
	for i, at := range kept {
		owners[i] = u.Owners[at]
	}
	u.Owners = owners
	return dropped
}
