package exposition_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ownSeries returns a snapshot in which the pod "now" owns a GPU. Some events belong to the pod "then", others have no
// owner.
func ownSeries() *gpu.Snapshot {
	xid := []gpu.Label{{Name: "xid", Value: "79"}}
	then := []gpu.Label{{Name: "namespace", Value: "a"}, {Name: "pod", Value: "then"}}
	owners := &gpu.Owners{Labels: make([][]gpu.Label, rowCount)}
	owners.Labels[rowGPU0] = []gpu.Label{{Name: "pod", Value: "now"}}
	return &gpu.Snapshot{
		Time: time.Unix(1, 0), Topology: world(), Owners: owners,
		Families: []gpu.Family{{Name: "EVENTS", Type: gpu.MetricCounter, Series: []gpu.Series{
			{Row: rowGPU0, Labels: xid, Value: gpu.Int(1)},
			{Row: rowGPU0, Labels: xid, NoOwner: true, Value: gpu.Int(2)},
			{Row: rowGPU0, Labels: xid, NoOwner: true, Owner: then, Value: gpu.Int(3)},
			{Row: rowGPU0, Labels: xid, NoOwner: true, Owner: owners.Labels[rowGPU0], Value: gpu.Int(4)}, // duplicate of the first
		}}},
		Health: gpu.Health{Entities: make([]gpu.EntityHealth, rowCount)},
	}
}

func TestSeriesWithOwnOwner(t *testing.T) {
	const entity = `EVENTS{gpu="0",UUID="GPU-0",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100  80GB"`
	for name, test := range map[string]struct {
		old  bool
		want []string
	}{
		"names of today": {false, []string{
			entity + `,pod="now",xid="79"} 1`, entity + `,xid="79"} 2`, entity + `,namespace="a",pod="then",xid="79"} 3`,
		}},
		"old names": {true, []string{
			strings.Replace(entity, "UUID", "uuid", 1) + `,pod_name="now",xid="79"} 1`,
			strings.Replace(entity, "UUID", "uuid", 1) + `,xid="79"} 2`,
			strings.Replace(entity, "UUID", "uuid", 1) + `,pod_namespace="a",pod_name="then",xid="79"} 3`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, line := range samples(encode(t, exposition.Options{OldNamespace: test.old}, ownSeries())) {
				if strings.HasPrefix(line, "EVENTS") {
					got = append(got, line)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("samples (-want +got)\n%s", diff)
			}
		})
	}
}
