package podmapper_test

import (
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// incomplete returns the rows that may have unknown owners.
func incomplete(o *gpu.Owners) []int {
	var rows []int
	for row := range o.Uses {
		if o.UseOf(row).Incomplete {
			rows = append(rows, row)
		}
	}
	return rows
}

// An entity that may have unknown owners is marked, so that its use is not reported as unattributed.
func TestUnknownOwners(t *testing.T) {
	shared := holds("ml/a", gpu4+"::0")
	whole := holds("ml/w", gpu0)
	t.Run("an exporter and a kubelet that have just started", func(t *testing.T) {
		w := worldWith(t, podmapper.Options{}, shared, whole)
		now := time.Now()
		podmapper.Clock(w.mapper, func() time.Time { return now })
		w.Born(now)
		want(t, "rows", incomplete(w.attribute()), []int{1, 2, 3, 4, 5, 6})
		now = now.Add(11 * time.Second)
		for range 2 { // even if nothing else changes
			want(t, "rows once the kubelet knows its pods", incomplete(w.attribute()), nil)
		}
	})
	t.Run("an owner that may have ended", func(t *testing.T) {
		w := newAged(t, podmapper.Options{}, whole, shared)
		want(t, "rows", incomplete(w.restarts(25*time.Second, shared)), nil)
		want(t, "rows after 30 s", incomplete(w.after(6*time.Second)), []int{0})
		want(t, "rows once the kubelet knows its pods", incomplete(w.after(5*time.Second)), nil)
	})
	t.Run("a claim without a slice", func(t *testing.T) {
		known, revision := false, uint64(1)
		device := func(driver, pool, name string) (podmapper.ClaimDevice, bool) {
			d, ok := claimed(driver, pool, name)
			return d, ok && known
		}
		w := newAged(t, podmapper.Options{Device: device, Revision: func() uint64 { return revision }},
			holds("ml/s", gpu4+"::0"), claims("ml/a", "mine", "gpu-3-mig-1g10gb-19-0"))
		o := w.attribute()
		want(t, "rows", incomplete(o), []int{0, 1, 2, 3, 5, 6})
		want(t, "labels", pods(o), map[int]string{4: "ml/s/c"})
		want(t, "unmatched", w.unmatched(), map[string]float64{"claim_device gpu.nvidia.com ": 1})
		known, revision = true, 2
		o = w.attribute()
		want(t, "rows once the slice exists", incomplete(o), nil)
		want(t, "labels once the slice exists", o.Of(5), ofMIG(migA))
		want(t, "unmatched once the slice exists", w.unmatched(), map[string]float64{})
	})
	t.Run("claims that are not followed", func(t *testing.T) {
		w := newAged(t, podmapper.Options{}, kubelet.Pod("ml/b",
			kubelet.Claiming("c", "ml", "mine", "gpu.nvidia.com", "e2e-node", "gpu-0", ""),
			kubelet.Container("d", "nvidia.com/gpu", gpu1)))
		want(t, "rows", incomplete(w.attribute()), []int{0, 2, 3, 4, 5, 6})
	})
	t.Run("instances of a GPU that has an owner itself", func(t *testing.T) {
		w := newAged(t, podmapper.Options{}, kubelet.Pod("ml/b",
			kubelet.Claiming("c", "ml", "mine", "gpu.nvidia.com", "e2e-node", "gpu-0", ""),
			kubelet.Container("d", "nvidia.com/gpu", gpu3)))
		want(t, "rows", incomplete(w.attribute()), []int{0, 1, 2, 4})
	})
	t.Run("a claim of another driver", func(t *testing.T) {
		w := newAged(t, podmapper.Options{Device: claimed}, kubelet.Pod("ml/b",
			kubelet.Claiming("c", "ml", "channel", "compute-domain.nvidia.com", "e2e-node", "channel-0", "")))
		want(t, "rows", incomplete(w.attribute()), nil)
	})
	t.Run("a pod of HAMi without its annotation", func(t *testing.T) {
		server := &api{}
		w := newAged(t, server.options(), shared, whole, holds("ml/h", gpu1+"-3"))
		o := w.attribute()
		want(t, "rows", incomplete(o), []int{1, 2, 3, 4, 5, 6})
		want(t, "labels", pods(o), map[int]string{0: "ml/w/c"})
		server.set(infos{"ml/h": {Containers: []string{"c"}, Allocated: gpu3 + ",NVIDIA,3000,30:;"}})
		want(t, "rows once the annotation exists", incomplete(w.attribute()), nil)
	})
}
