package podmapper_test

import (
	"slices"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// Devices are known to be free once the kubelet has been up long enough, even if nothing else changes.
func TestFreeDevicesOnceTheKubeletIsKnown(t *testing.T) {
	w := newWorld(t, podmapper.Options{}, kubelet.Lists(kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu0))))
	now := time.Now()
	w.Born(now)
	podmapper.Clock(w.mapper, func() time.Time { return now })
	if got := incomplete(w.attribute()); !slices.Contains(got, 1) {
		t.Errorf("rows with unknown owners after a kubelet restart: %v, want GPU 1 among them", got)
	}
	now = now.Add(11 * time.Second)
	for range 2 {
		if got := incomplete(w.attribute()); len(got) > 0 {
			t.Errorf("rows with unknown owners 11 s after the restart = %v, want none", got)
		}
	}
}
