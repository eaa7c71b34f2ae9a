// Package attribution has the rules that all attributors share: which owner labels a device gets, and how many owners
// are reported.
package attribution

import (
	"reflect"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// MaxOwners is the largest number of owners that is reported for an entity.
const MaxOwners = 256

// TimestampSlack is the minimum age of a modification time that identifies a version of a file or folder. The kernel's
// clock is coarse, so two changes can have the same time.
const TimestampSlack = 2 * time.Second

// ReuseIfEqual returns last if next is equal to it, and next otherwise. It keeps the pointer stable while nothing
// changes.
func ReuseIfEqual(last, next *gpu.Owners) *gpu.Owners {
	if reflect.DeepEqual(next, last) {
		return last
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
func ExclusiveLabels(t *gpu.Topology, uses []gpu.Use, labels func(*gpu.Owner) []gpu.Label) [][]gpu.Label {
	sole, divided := make([]*gpu.Owner, len(uses)), make([]bool, len(uses))
	for row := range uses { // parents precede their instances
		sole[row] = soleOwner(&uses[row])
		if p := t.ParentRow(row); p >= 0 && len(uses[row].Owners) > 0 && sole[p] != nil {
			divided[p] = divided[p] || sole[row] == nil || !isSameOwner(sole[p], sole[row])
		}
	}
	out := make([][]gpu.Label, len(uses))
	for row, owner := range sole {
		if owner != nil && !divided[row] {
			out[row] = labels(owner)
		}
	}
	return out
}

// soleOwner returns the exclusive owner, which may hold several replicas. It returns nil if there is not exactly one.
func soleOwner(u *gpu.Use) *gpu.Owner {
	if len(u.Owners) == 0 || u.Incomplete {
		return nil
	}
	merged := u.Owners[0]
	merged.Labels = slices.Clone(merged.Labels)
	for i := range u.Owners {
		o := &u.Owners[i]
		if !isSameOwner(&u.Owners[0], o) {
			return nil
		}
		if merged.Container != o.Container {
			merged.Container = ""
		}
		merged.Labels = slices.DeleteFunc(merged.Labels, func(l gpu.Label) bool {
			return !slices.Contains(o.Labels, l)
		})
	}
	return &merged
}

// isSameOwner reports whether two owners are the same pod or, outside Kubernetes, the same job or container.
func isSameOwner(a, b *gpu.Owner) bool {
	if a.Pod != "" {
		return a.Namespace == b.Namespace && a.Pod == b.Pod && a.PodUID == b.PodUID
	}
	return b.Pod == "" && a.Namespace == b.Namespace && a.Container == b.Container && slices.Equal(a.Labels, b.Labels)
}

// LimitOwners drops owners beyond MaxOwners and returns how many it dropped. It keeps one entry of each owner before it
// keeps repeated ones, so that a shared entity is still reported as shared.
func LimitOwners(u *gpu.Use) (dropped int) {
	if len(u.Owners) <= MaxOwners {
		return 0
	}
	seen := map[[3]string]bool{}
	var first, repeated []int
	for i := range u.Owners {
		o := &u.Owners[i]
		key := [3]string{o.Namespace, o.Pod, o.Container}
		if seen[key] {
			repeated = append(repeated, i)
		} else {
			first = append(first, i)
		}
		seen[key] = true
	}
	kept := append(first, repeated...)[:MaxOwners]
	slices.Sort(kept)
	owners := make([]gpu.Owner, MaxOwners)
	for i, at := range kept {
		owners[i] = u.Owners[at]
	}
	dropped = len(u.Owners) - MaxOwners
	u.Owners = owners
	return dropped
}
