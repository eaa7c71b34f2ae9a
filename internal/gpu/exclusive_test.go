package gpu

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExclusiveLabels holds that labels are given to the only owner and to
// nobody where there are several, on a node with a whole GPU and one that is
// cut in two.
func TestExclusiveLabels(t *testing.T) {
	topology := NewTopology([]Device{
		{Entity: Entity{Kind: KindGPU, ID: 0}},
		{Entity: Entity{Kind: KindGPU, ID: 1}},
		{Entity: Entity{Kind: KindGPUInstance, ParentKind: KindGPU, Parent: 1, ID: 10}},
		{Entity: Entity{Kind: KindGPUInstance, ParentKind: KindGPU, Parent: 1, ID: 11}},
	})
	tests := map[string]struct {
		owners [4]string // containers per row
		want   [4]string
	}{
		"nobody":                      {},
		"one each":                    {[4]string{"a", "", "b", "c"}, [4]string{"a", "", "b", "c"}},
		"several":                     {[4]string{"a b", "", "c d", "c"}, [4]string{"", "", "", "c"}},
		"two replicas of one":         {[4]string{"a a"}, [4]string{"a"}},
		"a cut GPU as a whole":        {[4]string{"", "a", "a", "a"}, [4]string{"", "a", "a", "a"}},
		"a cut GPU, one part idle":    {[4]string{"", "a", "a", ""}, [4]string{"", "a", "a", ""}},
		"a cut GPU, one part another": {[4]string{"", "a", "a", "b"}, [4]string{"", "", "a", "b"}},
		"a cut GPU, one part shared":  {[4]string{"", "a", "a", "a b"}, [4]string{"", "", "a", ""}},
		"parts only":                  {[4]string{"", "", "a", "a"}, [4]string{"", "", "a", "a"}},
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
