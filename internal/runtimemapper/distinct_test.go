package runtimemapper

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
)

// A daemon may list a container or device ten thousand times. The duplicates use no memory.
func TestRepeatedContainersAndDevicesCountOnce(t *testing.T) {
	containers, ids := make([]listed, 10000), make([]deviceid.ID, 10000)
	for i := range containers {
		containers[i].ID, ids[i] = "abc", deviceid.ParseVisible("0")
	}
	containers[9999].ID, ids[9999] = "def", deviceid.ParseVisible("1")
	if got := distinct(containers); len(got) != 2 || got[0].ID != "abc" || got[1].ID != "def" {
		t.Errorf("containers = %d, want 2: abc and def", len(got))
	}
	if got := distinctIDs(ids); len(got) != 2 || got[0] != ids[0] || got[1].Index != 1 {
		t.Errorf("%d ids, want 2: %v", len(got), got)
	}
}
