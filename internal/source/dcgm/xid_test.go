//go:build linux && cgo

package dcgm_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
)

// wantXIDs reads until there are no more XIDs, and compares all of them, sorted.
func (r *rig) wantXIDs(when string, want ...string) {
	r.t.Helper()
	var got []string
	take := func(b *gpu.Batch, _ error) bool {
		for _, x := range b.XIDs {
			at := r.Topology().Devices[x.Row].Entity.String()
			if x.OnInstance {
				at += fmt.Sprintf("/%d", x.InstanceID)
			}
			got = append(got, fmt.Sprintf("%s: %d", at, x.Code))
		}
		return len(got) >= len(want)
	}
	r.until(fmt.Sprint(len(want), " XIDs"), take)
	for range 5 {
		pause()
		take(r.read(), nil)
	}
	slices.Sort(got)
	checkEqual(r.t, when, want, got)
}

// DCGM stores an XID that names an instance only on the instance. It is also an XID of the GPU, whatever rows there
// are. This includes XIDs from before the session.
func TestXIDsOfInstances(t *testing.T) {
	for name, sel := range map[string]gpu.Selector{"f": {Flex: true}, "g": {Major: true}} {
		t.Run(name, func(t *testing.T) {
			plan := xidPlan()
			plan.Devices = sel
			r := start(t, plan, dcgm.Options{},
				world("gpu 2 uuid=GPU-2 name=H100 bus=00000000:3D:00.0 index=2 minor=1 prof=none")...)
			r.read()
			r.e.Add("event 1 instance:7 230 43", "event 2 instance:8 230 31", "event 3 compute:7 230 13",
				"event 4 gpu:1 230 94",
				"event 5 gpu:0 230 79", "event 6 instance:7 230 43")
			want := []string{"GPU 0: 79", "GPU 1/1: 13", "GPU 1/1: 43", "GPU 1/1: 43", "GPU 1/2: 31", "GPU 1: 94"}
			r.wantXIDs("XIDs", want...)
			r.again(plan).wantXIDs("XIDs of the next session", want...)
		})
	}
}

// An engine that does not watch XIDs of instances serves those of the GPUs.
func TestXIDsOfGPUsAlone(t *testing.T) {
	r := start(t, xidPlan(), dcgm.Options{}, world("fail dcgmWatchFields -6 -1 5")...)
	r.read()
	r.e.Add("event 1 gpu:1 230 94")
	r.wantXIDs("XIDs", "GPU 1: 94")
}

// If the latest XID is 0, an engine has no history to read.
func TestXIDOfZero(t *testing.T) {
	r := start(t, xidPlan(), dcgm.Options{}, world("value gpu:* 230 int 0")...)
	b := r.until("GPUs without an XID", func(b *gpu.Batch, _ error) bool { return len(b.WithoutXID) == 2 })
	if n := r.e.Calls()["dcgmGetValuesSince_v2"]; n != 0 || len(b.XIDs) != 0 {
		t.Errorf("history reads = %d, XIDs = %v; want none of either", n, b.XIDs)
	}
}

// An XID of the kernel log is stored a second or two after its date, behind later XIDs that were already read. It is
// counted. XIDs with the same date or the same code are each counted once.
func TestLateXIDs(t *testing.T) {
	r := start(t, xidPlan(), dcgm.Options{}, world()...)
	r.read()
	r.e.Add("event 1 gpu:0 230 31")
	r.wantXIDs("one XID", "GPU 0: 31")
	r.e.Add("event 2 gpu:0 230 79 1.5", "event 3 gpu:0 230 79 2.5", "event 4 gpu:0 230 31 0.5",
		"event 5 gpu:1 230 79 8")
	r.wantXIDs("late XIDs", "GPU 0: 31", "GPU 0: 79", "GPU 0: 79", "GPU 1: 79")
	r.e.Add("event 6 gpu:0 230 62", "event 7 gpu:0 230 119 1.2")
	r.wantXIDs("a late XID and a new one", "GPU 0: 119", "GPU 0: 62")
}

// A session reports an XID once, and every session reports it with the same ID, even if the engine's clock is set.
func TestXIDKeepsItsID(t *testing.T) {
	for _, step := range []string{"-10", "10", "-3600"} {
		t.Run(step, func(t *testing.T) {
			plan := xidPlan()
			var reported []int64
			look := func(r *rig) {
				t.Helper()
				for _, x := range r.read().XIDs {
					reported = append(reported, x.ID)
				}
			}
			r := start(t, plan, remoteEngine, world()...)
			r.read()
			r.e.Add("event 1 gpu:0 230 31")
			look(r)
			r.e.Add("skew " + step)
			for range 6 {
				pause()
				look(r)
			}
			if len(reported) != 1 {
				t.Fatalf("session reported %v, want one XID", reported)
			}
			look(r.again(plan))
			if len(reported) != 2 || reported[0] != reported[1] {
				t.Errorf("next session reported %v, want the same XID", reported)
			}
			// A new XID with the same code is another XID, with the current time.
			r.e.Add("event 2 gpu:0 230 31")
			b := r.until("the second XID", func(b *gpu.Batch, _ error) bool {
				return slices.ContainsFunc(b.XIDs, func(x gpu.XID) bool { return x.ID != reported[0] })
			})
			// If the engine's clock was set back, all XIDs are reported again.
			repeats := step[0] == '-'
			if b.XIDsRepeat != repeats || repeats != (len(b.XIDs) == 2) {
				t.Errorf("XIDs = %+v, XIDsRepeat = %t; want the first one again: %t", b.XIDs, b.XIDsRepeat, repeats)
			}
			for _, x := range b.XIDs {
				if x.ID != reported[0] && !isNow(x.Time) {
					t.Errorf("time of the second XID = %v, want the current time", time.Unix(0, x.Time))
				}
			}
		})
	}
}

// poke makes the engine read its script, with a Read of another session.
func (r *rig) poke() {
	r.t.Helper()
	other := r.again(planOf(field(156, onGPU)))
	other.read()
	other.close()
}

// The engine appends blank samples to the XID field of a lost GPU, and of all GPUs after a GSP timeout. Then the
// newest sample is a blank, but the XID before it must be reported.
func TestXIDsBehindBlanks(t *testing.T) {
	for name, tt := range map[string]struct {
		lost   string // GPU that is lost; without one, the engine stops reading
		events []string
		want   []string
	}{
		"a GPU is lost": {"uuid=GPU-0 ", []string{"event 1 gpu:0 230 79"}, []string{"GPU 0: 79"}},
		"a GPU is lost while another one has an XID": {"uuid=GPU-0 ",
			[]string{"event 1 gpu:0 230 79", "event 2 gpu:1 230 31"}, []string{"GPU 0: 79", "GPU 1: 31"}},
		"the GPU of an instance is lost": {"uuid=GPU-1 ", []string{"event 1 instance:7 230 79"},
			[]string{"GPU 1/1: 79"}},
		"the engine stops reading": {"", []string{"event 1 gpu:0 230 119"}, []string{"GPU 0: 119"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, xidPlan(), dcgm.Options{}, world()...)
			r.read()
			r.e.Add(tt.events...)
			if tt.lost != "" {
				r.e.Replace(tt.lost, tt.lost+"status=lost ")
			} else {
				r.e.Add("value any:* 0-9999 blank")
			}
			r.poke() // the event happens
			pause()
			pause() // the engine appends a blank
			r.wantXIDs("XIDs", tt.want...)
		})
	}
}

// An engine drops the watches of a GPU that is detached. Only a new session watches it again. So the session must end
// when the GPU is attached again, whether or not a Read saw it detached.
func TestDetachedGPUComesBack(t *testing.T) {
	for name, reads := range map[string]int{"read while detached": 3, "not read while detached": 0} {
		t.Run(name, func(t *testing.T) {
			r := start(t, xidPlan(), dcgm.Options{}, world()...)
			r.untilServed(0, 2)
			r.e.Replace("uuid=GPU-0 ", "uuid=GPU-0 status=detached ")
			r.poke() // the engine drops the watches
			for range reads {
				pause()
				r.read()
			}
			r.e.Replace(" status=detached", "")
			r.follow(xidPlan()).untilServed(0, 2)
		})
	}
}
