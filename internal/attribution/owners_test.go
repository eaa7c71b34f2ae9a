package attribution

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// TestExclusiveLabels checks that an entity with one owner has its labels, and an entity with several owners has none.
// The node has a GPU without MIG and one with two instances.
func TestExclusiveLabels(t *testing.T) {
	topology := gpu.NewTopology([]gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 0}},
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}},
		{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: 10}},
		{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: 11}},
	})
	tests := map[string]struct {
		owners [4]string // containers by row
		want   [4]string
	}{
		"no owner":                                {},
		"one owner for each device":               {[4]string{"a", "", "b", "c"}, [4]string{"a", "", "b", "c"}},
		"several owners of a device":              {[4]string{"a b", "", "c d", "c"}, [4]string{"", "", "", "c"}},
		"two replicas of one owner":               {[4]string{"a a"}, [4]string{"a"}},
		"a GPU and all its instances":             {[4]string{"", "a", "a", "a"}, [4]string{"", "a", "a", "a"}},
		"a GPU with an idle instance":             {[4]string{"", "a", "a", ""}, [4]string{"", "a", "a", ""}},
		"a GPU with an instance of another owner": {[4]string{"", "a", "a", "b"}, [4]string{"", "", "a", "b"}},
		"a GPU with a shared instance":            {[4]string{"", "a", "a", "a b"}, [4]string{"", "", "a", ""}},
		"instances of one owner":                  {[4]string{"", "", "a", "a"}, [4]string{"", "", "a", "a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			uses := make([]gpu.Use, 4)
			for row, containers := range tt.owners {
				for i, c := range strings.Fields(containers) {
					uses[row].Owners = append(uses[row].Owners, gpu.Owner{Container: c, Replica: string(rune('0' + i))})
				}
			}
			var got [4]string
			for row, labels := range ExclusiveLabels(topology, uses, func(o *gpu.Owner) []gpu.Label {
				return []gpu.Label{{Name: "container", Value: o.Container}}
			}) {
				for _, l := range labels {
					got[row] += l.Value
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A pod with several containers on an entity is one owner. The series have only the labels that the containers share.
func TestExclusiveLabelsOfAPod(t *testing.T) {
	topology := gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}}})
	label := func(name, value string) gpu.Label { return gpu.Label{Name: name, Value: value} }
	claim, other, team := label("dra_claim_name", "x"), label("dra_claim_name", "y"), label("team", "vision")
	owner := func(pod, uid, container string, labels ...gpu.Label) gpu.Owner {
		return gpu.Owner{Namespace: "ml", Pod: pod, PodUID: uid, Container: container, Labels: labels}
	}
	job := func(id string) gpu.Owner { return owner("", "", "", label("hpc_job", id)) }
	type owners []gpu.Owner
	one := func(o gpu.Owner) *gpu.Owner { return &o }
	for name, tt := range map[string]struct {
		owners owners
		want   *gpu.Owner
	}{
		"one container": {owners{owner("a", "1", "c", team)}, one(owner("a", "1", "c", team))},
		"two containers": {
			owners{owner("a", "1", "c", team), owner("a", "1", "d", team)}, one(owner("a", "1", "", team)),
		},
		"two containers, the first listed twice": {
			owners{owner("a", "1", "c"), owner("a", "1", "c"), owner("a", "1", "d")}, one(owner("a", "1", "")),
		},
		"two claims of one container": {
			owners{owner("a", "1", "c", claim, team), owner("a", "1", "c", other, team)},
			one(owner("a", "1", "c", team)),
		},
		"two pods":                    {owners{owner("a", "1", "c"), owner("b", "2", "c")}, nil},
		"two pods with the same name": {owners{owner("a", "1", "c"), owner("a", "2", "c")}, nil},
		"a pod and a job":             {owners{owner("a", "1", "c"), job("7")}, nil},
		"two jobs":                    {owners{job("7"), job("8")}, nil},
		"two containers of Docker":    {owners{owner("", "", "c"), owner("", "", "d")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got *gpu.Owner
			ExclusiveLabels(topology, []gpu.Use{{Owners: tt.owners}}, func(o *gpu.Owner) []gpu.Label {
				got = o
				return nil
			})
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
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
		"fewer owners than the maximum":   {[]int{1, 2, 3}, 3, 0},
		"one pod with the maximum":        {[]int{MaxOwners}, 1, 0},
		"one more owner, of another pod":  {[]int{MaxOwners, 1}, 2, 1},
		"one pod with many, two with one": {[]int{1000, 1, 1}, 3, 1002 - MaxOwners},
		"more pods than the maximum":      {slices.Repeat([]int{1}, 300), MaxOwners, 300 - MaxOwners},
		"many replicas of many pods":      {slices.Repeat([]int{5}, 300), MaxOwners, 1500 - MaxOwners},
	} {
		t.Run(name, func(t *testing.T) {
			var u gpu.Use
			for pod, n := range tt.of {
				for range n {
					u.Owners = append(u.Owners, gpu.Owner{Namespace: "ml", Pod: fmt.Sprintf("pod-%03d", pod)})
				}
			}
			dropped := LimitOwners(&u)
			pods := map[string]bool{}
			for i := range u.Owners {
				pods[u.Owners[i].Pod] = true
			}
			if dropped != tt.dropped || len(pods) != tt.pods || len(u.Owners) > MaxOwners {
				t.Errorf("owners = %d of %d pods, left out = %d; want %d pods and %d left out",
					len(u.Owners), len(pods), dropped, tt.pods, tt.dropped)
			}
			if !slices.IsSortedFunc(u.Owners, func(a, b gpu.Owner) int { return strings.Compare(a.Pod, b.Pod) }) {
				t.Errorf("owners = %v, want them in the original order of pods", u.Owners)
			}
		})
	}
}
