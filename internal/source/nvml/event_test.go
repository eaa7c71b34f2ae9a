//go:build linux && cgo

package nvml_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

func TestXIDs(t *testing.T) {
	for name, tt := range map[string]struct{ events, want []string }{
		"two XIDs within one interval": {[]string{"xid 0 62", "xid 0 45"}, []string{"GPU 0 XID 62,45"}},
		"the same XID twice":           {[]string{"xid 0 13", "xid 0 13"}, []string{"GPU 0 XID 13,13"}},
		"one XID on each of two GPUs":  {[]string{"xid 2 48", "xid 0 31"}, []string{"GPU 0 XID 31", "GPU 2 XID 48"}},
		"an XID of an instance, reported for it and its GPU, and one of the GPU": {
			[]string{"xid 1 43 9", "xid 1 94"},
			[]string{"GPU 1 XID 43 of instance 9,94", "GPU instance 109 of GPU 1 XID 43 of instance 9"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(230)
			plan.Fields[0].Levels |= onInstances
			r := start(t, plan, cut...)
			r.want("before the first XID")
			r.with(tt.events...)
			// The library reads a new script at the next call. Events are available to the Read that starts after that.
			r.want("XIDs", tt.want...)
			r.want("second Read: XIDs must not be repeated")
		})
	}
}

// Two sessions that are open at the same time report the same XIDs with the same numbers. The time of an XID lies
// between two Reads of any session.
func TestXIDsOfTwoSessions(t *testing.T) {
	src, world := source(t, "gpus 1")
	plan := planOf(230)
	expect := func(s *nvml.Session, want ...string) {
		t.Helper()
		var b gpu.Batch
		if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range b.XIDs {
			if x.Since == 0 || x.Since > x.Time {
				t.Errorf("%+v: want 0 < Since <= Time", x)
			}
			got = append(got, fmt.Sprint(x.ID, ":", x.Code))
		}
		if !slices.Equal(got, want) {
			t.Errorf("XIDs = %v, want %v", got, want)
		}
	}
	end := func(s *nvml.Session) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	first := open(t, src, plan)
	world.Play(t, "gpus 1", "xid 0 13", "xid 0 13")
	expect(first, "1:13", "2:13")
	second := open(t, src, plan)
	expect(second)
	world.Play(t, "gpus 1", "xid 0 13", "xid 0 31")
	expect(second, "3:13", "4:31")
	expect(first, "3:13", "4:31")
	expect(first)
	end(first)
	world.Play(t, "gpus 1", "xid 0 48")
	expect(second, "5:48")
	end(second)
	world.Play(t, "gpus 1", "xid 0 62") // happens while no session is open
	third := open(t, src, plan)
	world.Play(t, "gpus 1", "xid 0 79")
	expect(third, "6:79")
}

func TestXIDsRefused(t *testing.T) {
	r := start(t, planOf(230, 100), "gpus 1", "fail nvmlDeviceRegisterEvents 3")
	r.want("XIDs are refused", "GPU 0 XID_ERRORS fault:not_supported", "GPU 0 SM_CLOCK 1980")
	if n := r.world.Ledger(t)["open-event-sets"]; n != 0 {
		t.Errorf("event sets open without a registration = %d, want 0", n)
	}
}

// If reading events fails, the XID field has a fault. The driver queues events meanwhile, and they are reported after
// recovery.
func TestXIDsWhileReadingFails(t *testing.T) {
	r := start(t, planOf(230), "gpus 2")
	r.with("xid 0 31", "fail nvmlEventSetWait_v2 999")
	for range 2 {
		r.want("while reading fails", "GPU 0 XID_ERRORS fault:error", "GPU 1 XID_ERRORS fault:error")
	}
	r.with()
	r.want("after reading works again", "GPU 0 XID 31")
	r.with("gpu 1 lost", "fail nvmlEventSetWait_v2 15")
	r.want("lost GPU", "GPU 1 fault:lost")
}
