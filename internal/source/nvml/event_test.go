//go:build linux && cgo

package nvml_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

func TestXIDs(t *testing.T) {
	tests := []struct {
		name   string
		events []string
		want   map[string]string
	}{
		{"two XIDs within one interval", []string{"xid 0 62", "xid 0 45"}, map[string]string{"GPU 0 XID": "62,45"}},
		{"the same XID twice", []string{"xid 0 13", "xid 0 13"}, map[string]string{"GPU 0 XID": "13,13"}},
		{
			"one XID on each of two GPUs", []string{"xid 2 48", "xid 0 31"},
			map[string]string{"GPU 0 XID": "31", "GPU 2 XID": "48"},
		},
		{
			"an XID of an instance, reported for it and its GPU, and one of the GPU",
			[]string{"xid 1 43 9", "xid 1 94"},
			map[string]string{"GPU 1 XID": "43 of instance 9,94", "GPU instance 109 of GPU 1 XID": "43 of instance 9"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			src, world := source(t, cut...)
			plan := planOf(t, 230)
			plan.Fields[0].Levels |= gpu.KindsOf(gpu.KindGPUInstance)
			s := open(t, src, plan)
			if diff := cmp.Diff(map[string]string{}, read(t, s, plan)); diff != "" {
				t.Errorf("before the first XID (-want +got):\n%s", diff)
			}
			world.Play(t, append(slices.Clone(cut), test.events...)...)
			// The library reads a new script at the next call. Events are available to the Read that starts after that.
			if diff := cmp.Diff(test.want, read(t, s, plan)); diff != "" {
				t.Errorf("XIDs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{}, read(t, s, plan)); diff != "" {
				t.Errorf("second Read: XIDs must not be repeated (-want +got):\n%s", diff)
			}
		})
	}
}

// Two sessions that are open at the same time report the same XIDs with the same numbers. The time of an XID lies
// between two Reads of any session.
func TestXIDsOfTwoSessions(t *testing.T) {
	src, world := source(t, "gpus 1")
	plan := planOf(t, 230)
	first := open(t, src, plan)
	xids := func(s *nvml.Session) (list []string) {
		var b gpu.Batch
		if err := s.Read(context.Background(), gpu.ReadRequest{}, &b); err != nil {
			t.Fatal(err)
		}
		for _, x := range b.XIDs {
			if x.Since == 0 || x.Since > x.Time {
				t.Errorf("%+v: want 0 < Since <= Time", x)
			}
			list = append(list, fmt.Sprint(x.ID, ":", x.Code))
		}
		return list
	}
	expect := func(s *nvml.Session, want ...string) {
		t.Helper()
		if got := xids(s); !slices.Equal(got, want) {
			t.Errorf("XIDs = %v, want %v", got, want)
		}
	}
	world.Play(t, "gpus 1", "xid 0 13", "xid 0 13")
	expect(first, "1:13", "2:13")
	second := open(t, src, plan)
	expect(second)
	world.Play(t, "gpus 1", "xid 0 13", "xid 0 31")
	expect(second, "3:13", "4:31")
	expect(first, "3:13", "4:31")
	expect(first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	world.Play(t, "gpus 1", "xid 0 48")
	expect(second, "5:48")
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	world.Play(t, "gpus 1", "xid 0 62") // happens while no session is open
	third := open(t, src, plan)
	world.Play(t, "gpus 1", "xid 0 79")
	expect(third, "6:79")
}

func TestXIDsRefused(t *testing.T) {
	src, world := source(t, "gpus 1", "fail nvmlDeviceRegisterEvents 3")
	plan := planOf(t, 230, 100)
	s := open(t, src, plan)
	want := map[string]string{
		"GPU 0 DCGM_FI_DEV_XID_ERRORS": "fault:not_supported", "GPU 0 DCGM_FI_DEV_SM_CLOCK": "1980",
	}
	if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if n := world.Ledger(t)["open-event-sets"]; n != 0 {
		t.Errorf("event sets open without a registration = %d, want 0", n)
	}
}

// If reading events fails, the XID field has a fault. The driver queues events meanwhile, and they are reported after
// recovery.
func TestXIDsWhileReadingFails(t *testing.T) {
	src, world := source(t, "gpus 2")
	plan := planOf(t, 230)
	s := open(t, src, plan)
	world.Play(t, "gpus 2", "xid 0 31", "fail nvmlEventSetWait_v2 999")
	want := map[string]string{
		"GPU 0 DCGM_FI_DEV_XID_ERRORS": "fault:error", "GPU 1 DCGM_FI_DEV_XID_ERRORS": "fault:error",
	}
	for range 2 {
		if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
			t.Errorf("while reading fails (-want +got):\n%s", diff)
		}
	}
	world.Play(t, "gpus 2")
	if diff := cmp.Diff(map[string]string{"GPU 0 XID": "31"}, read(t, s, plan)); diff != "" {
		t.Errorf("after reading works again (-want +got):\n%s", diff)
	}
	world.Play(t, "gpus 2", "gpu 1 lost", "fail nvmlEventSetWait_v2 15")
	if diff := cmp.Diff(map[string]string{"GPU 1": "fault:lost"}, read(t, s, plan)); diff != "" {
		t.Errorf("lost GPU (-want +got):\n%s", diff)
	}
}
