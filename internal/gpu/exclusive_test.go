package gpu

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestExclusiveLabels checks that an entity with one owner has its labels, and an entity with several owners has none.
// The node has a GPU without MIG and one with two instances.
func TestExclusiveLabels(t *testing.T) {
	topology := NewTopology([]Device{
		{Entity: Entity{Kind: KindGPU, ID: 0}},
		{Entity: Entity{Kind: KindGPU, ID: 1}},
		{Entity: Entity{Kind: KindGPUInstance, ParentKind: KindGPU, Parent: 1, ID: 10}},
		{Entity: Entity{Kind: KindGPUInstance, ParentKind: KindGPU, Parent: 1, ID: 11}},
	})
	tests := map[string]struct {
		owners [4]string // containers by row
		want   [4]string
	}{
		"no owner":                    {},
		"one each":                    {[4]string{"a", "", "b", "c"}, [4]string{"a", "", "b", "c"}},
		"several":                     {[4]string{"a b", "", "c d", "c"}, [4]string{"", "", "", "c"}},
		"two replicas of one":         {[4]string{"a a"}, [4]string{"a"}},
		"a GPU and all its instances": {[4]string{"", "a", "a", "a"}, [4]string{"", "a", "a", "a"}},
		"a GPU with an idle instance": {[4]string{"", "a", "a", ""}, [4]string{"", "a", "a", ""}},
		"a GPU with an instance of another owner": {[4]string{"", "a", "a", "b"}, [4]string{"", "", "a", "b"}},
		"a GPU with a shared instance":            {[4]string{"", "a", "a", "a b"}, [4]string{"", "", "a", ""}},
		"parts only":                              {[4]string{"", "", "a", "a"}, [4]string{"", "", "a", "a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			uses := make([]Use, 4)
			for row, containers := range tt.owners {
				for i, c := range strings.Fields(containers) {
					uses[row].Owners = append(uses[row].Owners, Owner{Container: c, Replica: string(rune('0' + i))})
				}
			}
			var got [4]string
			for row, labels := range ExclusiveLabels(topology, uses, func(o *Owner) []Label {
				return []Label{{Name: "container", Value: o.Container}}
			}) {
				for _, l := range labels {
					got[row] += l.Value
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A pod of which several containers hold an entity is one owner. The series have only the labels that the containers
// have in common.
func TestExclusiveLabelsOfAPod(t *testing.T) {
	topology := NewTopology([]Device{{Entity: Entity{Kind: KindGPU}}})
	claim, other, team := Label{"dra_claim_name", "x"}, Label{"dra_claim_name", "y"}, Label{"team", "vision"}
	owner := func(pod, uid, container string, labels ...Label) Owner {
		return Owner{Namespace: "ml", Pod: pod, PodUID: uid, Container: container, Labels: labels}
	}
	for name, tt := range map[string]struct {
		owners []Owner
		want   *Owner
	}{
		"one container":                     {[]Owner{owner("a", "1", "c", team)}, &Owner{Namespace: "ml", Pod: "a", PodUID: "1", Container: "c", Labels: []Label{team}}},
		"two containers":                    {[]Owner{owner("a", "1", "c", team), owner("a", "1", "d", team)}, &Owner{Namespace: "ml", Pod: "a", PodUID: "1", Labels: []Label{team}}},
		"two containers, one of them twice": {[]Owner{owner("a", "1", "c"), owner("a", "1", "c"), owner("a", "1", "d")}, &Owner{Namespace: "ml", Pod: "a", PodUID: "1"}},
		"two claims of one container":       {[]Owner{owner("a", "1", "c", claim, team), owner("a", "1", "c", other, team)}, &Owner{Namespace: "ml", Pod: "a", PodUID: "1", Container: "c", Labels: []Label{team}}},
		"two pods":                          {[]Owner{owner("a", "1", "c"), owner("b", "2", "c")}, nil},
		"two pods with the same name":       {[]Owner{owner("a", "1", "c"), owner("a", "2", "c")}, nil},
		"a pod and a job":                   {[]Owner{owner("a", "1", "c"), owner("", "", "", Label{"hpc_job", "7"})}, nil},
		"two jobs":                          {[]Owner{owner("", "", "", Label{"hpc_job", "7"}), owner("", "", "", Label{"hpc_job", "8"})}, nil},
		"two containers of an engine ":      {[]Owner{owner("", "", "c"), owner("", "", "d")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got *Owner
			ExclusiveLabels(topology, []Use{{Owners: tt.owners}}, func(o *Owner) []Label {
				got = o
				return nil
			})
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// However many replicas are listed, a device with two owners keeps both.
func TestLimitOfOwners(t *testing.T) {
	for name, tt := range map[string]struct {
		of      []int // replicas by pod
		pods    int   // number of pods that are kept
		dropped int
	}{
		"few":                        {[]int{1, 2, 3}, 3, 0},
		"the maximum":                {[]int{MaxOwners}, 1, 0},
		"one more, another's":        {[]int{MaxOwners, 1}, 2, 1},
		"the other pod is last":      {[]int{1000, 1, 1}, 3, 1002 - MaxOwners},
		"more pods than the maximum": {slices.Repeat([]int{1}, 300), MaxOwners, 300 - MaxOwners},
		"many replicas of many pods": {slices.Repeat([]int{5}, 300), MaxOwners, 1500 - MaxOwners},
	} {
		t.Run(name, func(t *testing.T) {
			var u Use
			for pod, n := range tt.of {
				for range n {
					u.Owners = append(u.Owners, Owner{Namespace: "ml", Pod: fmt.Sprintf("pod-%03d", pod)})
				}
			}
			dropped := u.Limit()
			pods := map[string]bool{}
			for i := range u.Owners {
				pods[u.Owners[i].Pod] = true
			}
			if dropped != tt.dropped || len(pods) != tt.pods || len(u.Owners) > MaxOwners {
				t.Errorf("owners = %d of %d pods, left out = %d; want %d pods and %d left out", len(u.Owners), len(pods), dropped, tt.pods, tt.dropped)
			}
			if !slices.IsSortedFunc(u.Owners, func(a, b Owner) int { return strings.Compare(a.Pod, b.Pod) }) {
				t.Error("the order of owners has changed")
			}
		})
	}
}
