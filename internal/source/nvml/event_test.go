//go:build linux && cgo

package nvml_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestXIDs(t *testing.T) {
	tests := []struct {
		name   string
		events []string
		want   map[string]string
	}{
		{"none", nil, map[string]string{}},
		{"one", []string{"xid 0 31"}, map[string]string{"GPU 0 DCGM_FI_DEV_XID_ERRORS": "31"}},
		{"two within one interval", []string{"xid 0 62", "xid 0 45"}, map[string]string{"GPU 0 DCGM_FI_DEV_XID_ERRORS": "62,45"}},
		{"the same twice", []string{"xid 0 13", "xid 0 13"}, map[string]string{"GPU 0 DCGM_FI_DEV_XID_ERRORS": "13,13"}},
		{"each at its GPU", []string{"xid 2 48", "xid 0 31"}, map[string]string{"GPU 0 DCGM_FI_DEV_XID_ERRORS": "31", "GPU 2 DCGM_FI_DEV_XID_ERRORS": "48"}},
		{
			"of an instance, at it and its GPU",
			[]string{"xid 1 43 9"},
			map[string]string{"GPU 1 DCGM_FI_DEV_XID_ERRORS": "43", "GPU instance 109 of GPU 1 DCGM_FI_DEV_XID_ERRORS": "43"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			src, world := source(t, cut...)
			plan := planOf(t, 230)
			plan.Fields[0].Levels |= gpu.KindsOf(gpu.KindGPUInstance)
			s := open(t, src, plan)
			if diff := cmp.Diff(map[string]string{}, read(t, s, plan)); diff != "" {
				t.Errorf("before any XID (-want +got):\n%s", diff)
			}
			world.Play(t, append(slices.Clone(cut), test.events...)...)
			// The library plays a new script on a call: the events are there
			// for the Read that begins after it.
			if diff := cmp.Diff(test.want, read(t, s, plan)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{}, read(t, s, plan)); diff != "" {
				t.Errorf("XIDs come once (-want +got):\n%s", diff)
			}
		})
	}
}

// Equal XIDs of one Read differ in time, else they would pass for one.
func TestXIDTimes(t *testing.T) {
	src, world := source(t, "gpus 1")
	plan := planOf(t, 230)
	s := open(t, src, plan)
	world.Play(t, "gpus 1", "xid 0 13", "xid 0 13", "xid 0 13")
	var b gpu.Batch
	if err := s.Read(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	if len(b.Samples) != 3 {
		t.Fatalf("%d samples, want 3", len(b.Samples))
	}
	for i := 1; i < len(b.Samples); i++ {
		if b.Samples[i].Time <= b.Samples[i-1].Time {
			t.Errorf("XID %d has time %d, the one before it %d", i, b.Samples[i].Time, b.Samples[i-1].Time)
		}
	}
}

func TestXIDsRefused(t *testing.T) {
	src, world := source(t, "gpus 1", "fail nvmlDeviceRegisterEvents 3")
	plan := planOf(t, 230, 100)
	s := open(t, src, plan)
	want := map[string]string{"GPU 0 DCGM_FI_DEV_XID_ERRORS": "fault:not_supported", "GPU 0 DCGM_FI_DEV_SM_CLOCK": "1980"}
	if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := world.Ledger(t)["open-event-sets"]; n != 0 {
		t.Errorf("%d event sets kept that nothing is registered for", n)
	}
}

// A set that fails is a fault of the field, not a GPU without XIDs; what waits in
// the driver meanwhile comes once it works again.
func TestXIDsOfAFailingSet(t *testing.T) {
	src, world := source(t, "gpus 2")
	plan := planOf(t, 230)
	s := open(t, src, plan)
	world.Play(t, "gpus 2", "xid 0 31", "fail nvmlEventSetWait_v2 999")
	want := map[string]string{"GPU 0 DCGM_FI_DEV_XID_ERRORS": "fault:error", "GPU 1 DCGM_FI_DEV_XID_ERRORS": "fault:error"}
	for range 2 {
		if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
			t.Errorf("while it fails (-want +got):\n%s", diff)
		}
	}
	world.Play(t, "gpus 2")
	if diff := cmp.Diff(map[string]string{"GPU 0 DCGM_FI_DEV_XID_ERRORS": "31"}, read(t, s, plan)); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	world.Play(t, "gpus 2", "gpu 1 lost", "fail nvmlEventSetWait_v2 15")
	if diff := cmp.Diff(map[string]string{"GPU 1": "fault:lost"}, read(t, s, plan)); diff != "" {
		t.Errorf("of a lost GPU (-want +got):\n%s", diff)
	}
}
