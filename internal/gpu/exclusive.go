package gpu

import (
	"reflect"
	"slices"
)

// MaxOwners bounds the reported owners of an entity. NVIDIA's documentation of time-slicing shows ten replicas.
const MaxOwners = 256

// Renewed returns o if next says the same, else next.
func (o *Owners) Renewed(next *Owners) *Owners {
	if reflect.DeepEqual(next, o) {
		return o
	}
	return next
}

// ExclusiveLabels returns, per row of t, the labels of the sole owner of the entity by uses, as labels makes them. An
// entity of several owners has none, so that no device series carries the wrong one. An owner is a pod; outside
// Kubernetes a job or a container. A pod of several containers is passed without Container, and with the Labels that
// these share. A GPU partitioned by MIG has its owner's labels unless another owner has one of its instances.
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

// sole returns the only owner, which can have several replicas; nil where there is none or more than one.
func (u *Use) sole() *Owner {
	if len(u.Owners) == 0 || u.Incomplete {
		return nil
	}
	merged := u.Owners[0]
	merged.Labels = slices.Clone(merged.Labels)
	for i := range u.Owners {
		o := &u.Owners[i]
		if !u.Owners[0].sameTenant(o) {
			return nil
		}
		if merged.Container != o.Container {
			merged.Container = ""
		}
		merged.Labels = slices.DeleteFunc(merged.Labels, func(l Label) bool { return !slices.Contains(o.Labels, l) })
	}
	return &merged
}

// sameTenant reports whether two are the same pod; outside Kubernetes, the same job or container.
func (o *Owner) sameTenant(p *Owner) bool {
	if o.Pod != "" {
		return o.Namespace == p.Namespace && o.Pod == p.Pod && o.PodUID == p.PodUID
	}
	return p.Pod == "" && o.Namespace == p.Namespace && o.Container == p.Container && slices.Equal(o.Labels, p.Labels)
}

// partlyOthers reports whether an instance of the GPU at row has another owner than the GPU's sole owner.
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

// Limit leaves at most MaxOwners owners, and returns how many it left out. The first use of each owner comes before
// further ones of any, so that a shared entity is still shared.
func (u *Use) Limit() (dropped int) {
	if len(u.Owners) <= MaxOwners {
		return 0
	}
	type tenant struct{ namespace, pod, container string }
	seen := map[tenant]bool{}
	var first, further []int
	for i := range u.Owners {
		o := &u.Owners[i]
		key := tenant{o.Namespace, o.Pod, o.Container}
		if seen[key] {
			further = append(further, i)
		} else {
			first = append(first, i)
		}
		seen[key] = true
	}
	kept := append(first, further...)[:MaxOwners]
	slices.Sort(kept)
	dropped = len(u.Owners) - len(kept)
	owners := make([]Owner, len(kept))
	for i, at := range kept {
		owners[i] = u.Owners[at]
	}
	u.Owners = owners
	return dropped
}
