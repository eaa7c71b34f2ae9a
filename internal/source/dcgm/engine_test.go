//go:build linux && cgo

package dcgm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// remoteEngine connects to a host engine on another machine.
var remoteEngine = dcgm.Options{Remote: engineAt("10.0.0.9:5555")}

// temperatures is the batch of world for field 150.
var temperatures = []string{"GPU 0 #0 45", "GPU 1 #0 45"}

// engineAt parses an address that is known to be valid.
func engineAt(text string) hostengine.Address {
	a, err := hostengine.Parse(text)
	if err != nil {
		panic(err)
	}
	return a
}

func TestAddressReachesDCGM(t *testing.T) {
	for remote, tt := range map[string]struct{ address, host string }{
		"localhost":                {"localhost:5555", ""},
		"unix:///run/nvidia/dcgm":  {"unix socket /run/nvidia/dcgm", ""},
		"vsock://3:7777":           {"vsock://3:7777", ""},
		"tcp://[2001:db8::1]:5557": {"[2001:db8::1]:5557", "2001:db8::1"},
		"gpu-node-7:5556":          {"gpu-node-7:5556", "gpu-node-7"},
	} {
		t.Run(remote, func(t *testing.T) {
			r := start(t, planOf(field(150, onGPU)), dcgm.Options{Remote: engineAt(remote)}, world()...)
			r.shows("batch", temperatures)
			top := r.Topology()
			checkEqual(t, "address, host, source, driver, library, engine",
				[]string{tt.address, tt.host, "dcgm", "580.95.05", "4.6.0", "4.6.0"},
				[]string{r.e.Address(), top.Host, top.Source, top.Driver, top.Library, top.Engine})
		})
	}
}

// TestBatches lists scripts and plans, and the batches that they produce.
func TestBatches(t *testing.T) {
	everything := []string{
		"CPU 0 #4 61.5", "CPU 0 #5 0.25",
		"CPU core 0 of CPU 0 #5 0.25", "CPU core 1 of CPU 0 #5 0.25", "CPU core 70 of CPU 0 #5 0.75",
		"ConnectX 5 #6 55", "GPU 0 #0 45", "GPU 1 #0 45", "NVLink 0 of GPU 0 #3 3",
		"NVLink 0 of NVSwitch 0 #2 7", "NVLink 0 of NVSwitch 1 #2 7", "NVLink 1 of GPU 0 #3 3",
		"NVLink 1 of NVSwitch 0 #2 7", "NVLink 2 of GPU 1 #3 4", "NVLink 3 of NVSwitch 1 #2 9",
		"NVSwitch 0 #1 40", "NVSwitch 1 #1 50",
	}
	node := []string{
		"GPU 0 #0 580.95.05", "GPU 1 #0 580.95.05", "GPU instance 7 of GPU 1 #0 580.95.05",
		"GPU instance 8 of GPU 1 #0 580.95.05",
	}
	ratio := field(203, onGPU)
	ratio.Unit = "ratio"
	blanks := planOf(field(150, onGPU), field(100, onGPU), field(101, onGPU), field(102, onGPU), field(110, onGPU),
		field(140, onGPU), field(158, onGPU), field(159, onGPU), field(160, onGPU),
		text(51), text(53), text(80), text(81), field(200, onGPU), field(201, onGPU), field(202, onGPU),
		field(203, onGPU), text(82), field(190, onGPU), field(191, onGPU), text(192))
	blanks.Devices = gpu.Selector{Major: true, MajorIDs: []uint32{0}}
	for name, tt := range map[string]struct {
		lines []string
		plan  *gpu.Plan
		want  []string
	}{
		"every kind":                     {fabric(), fabricPlan(), everything},
		"every kind, with an old engine": {fabric("old"), fabricPlan(), everything},
		"GPUs and their links have a field with the same id": {
			fabric("value gpu:* 1212 int 5", "value link:* 1212 int 0", "value link:gpu:0:1 1212 int 3"),
			planOf(field(1212, onGPU), field(1212, onLinks)), []string{
				"GPU 0 #0 5", "GPU 1 #0 5", "NVLink 0 of GPU 0 #1 0", "NVLink 1 of GPU 0 #1 3",
				"NVLink 2 of GPU 1 #1 0",
			}},
		"a switch tray without GPUs": {
			append(slices.Clone(versions), "switch 3 links=1", "value switch:3 858 int 33", "value link:* 780 int 7"),
			fabricPlan(),
			[]string{
				"NVLink 0 of NVSwitch 3 #2 7", "NVSwitch 3 #1 33", "all #0 not_supported", "all #3 not_supported",
				"all #4 not_supported", "all #5 not_supported", "all #6 not_supported",
			}},
		"a kind that does not exist": {
			world(), planOf(field(150, onGPU), field(780, onSwitches)),
			[]string{"GPU 0 #0 45", "GPU 1 #0 45", "all #1 not_supported"}},
		"a field of the node, sampled for each entity":   {world(), planOf(text(1)), node},
		"a field of the node, sampled without an entity": {world("node"), planOf(text(1)), node},
		"a ratio from percent": {world("value gpu:* 203 int 57"), planOf(ratio),
			[]string{"GPU 0 #0 0.57", "GPU 1 #0 0.57"}},
		// An unknown field ID makes the whole field group fail, but no other field is lost.
		"unknown fields": {
			world("unknown 100 156"),
			planOf(field(150, onGPU), field(100, onGPU), field(155, onBoth), field(156, onGPU)),
			[]string{
				"GPU 0 #0 45", "GPU 0 #1 not_supported", "GPU 0 #2 71.5", "GPU 0 #3 not_supported",
				"GPU 1 #0 45", "GPU 1 #1 not_supported", "GPU 1 #2 71.5", "GPU 1 #3 not_supported",
				"GPU instance 7 of GPU 1 #2 30.25", "GPU instance 8 of GPU 1 #2 30.25",
			}},
		"instances without a profile": {
			world("fail dcgmWatchFields -6 1 2"), planOf(field(155, onBoth)),
			[]string{"GPU 0 #0 71.5", "GPU 1 #0 71.5", "GPU instance 7 of GPU 1 #0 30.25",
				"GPU instance 8 of GPU 1 #0 30.25"}},
		// Blanks of every kind have status 0 and a new time.
		"blanks": {
			world(
				"value gpu:* 100 blank i", "value gpu:* 101 notfound i", "value gpu:* 102 unsupported i",
				"value gpu:* 110 nopermission i", "value gpu:* 140 blank d", "value gpu:* 158 notfound d",
				"value gpu:* 159 unsupported d", "value gpu:* 160 nopermission d", "value gpu:* 51 blank s",
				"value gpu:* 53 notfound s", "value gpu:* 80 unsupported s", "value gpu:* 81 nopermission s",
				"value gpu:* 200 nodata", "value gpu:* 201 int 5 status=-15", "value gpu:* 202 int 9223372036854775807",
				"value gpu:* 203 int 808334905", "value gpu:* 82 text PG520", "value gpu:* 190 int -3",
				"value gpu:* 191 double nan"),
			blanks,
			[]string{
				"GPU 0 #0 45", "GPU 0 #11 not_supported", "GPU 0 #12 permission", "GPU 0 #16 808334905",
				"GPU 0 #17 PG520", "GPU 0 #18 -3", "GPU 0 #20 not_supported", "GPU 0 #3 not_supported",
				"GPU 0 #4 permission", "GPU 0 #7 not_supported", "GPU 0 #8 permission",
			}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, tt.plan, dcgm.Options{}, tt.lines...)
			r.shows("batch", tt.want)
			r.lives()
		})
	}
}

// A field group has at most 127 fields. With more fields in the plan, each field is either sampled or has a fault.
func TestManyFields(t *testing.T) {
	var fields []gpu.Field
	for id := gpu.FieldID(300); id < 500; id++ {
		fields = append(fields, field(id, onGPU))
	}
	r := start(t, planOf(fields...), dcgm.Options{}, world("value gpu:* 300-499 int 7")...)
	b := r.read()
	cells := map[[2]int]bool{}
	for _, x := range b.Samples {
		cells[[2]int{x.Row, x.Field}] = true
	}
	for _, x := range b.Faults {
		cells[[2]int{x.Row, x.Field}] = true
	}
	if got := len(b.Samples) + len(b.Faults); got != 400 || len(cells) != 400 || len(b.Samples) <= 2*127 {
		t.Errorf("%d samples and %d faults in %d cells, want 400 in all, one for each cell, and more than 254 samples",
			len(b.Samples), len(b.Faults), len(cells))
	}
}

// The profiling fields of each GPU are queried. They are blank until the second sample.
func TestProfiling(t *testing.T) {
	lines := slices.Concat(versions, []string{
		gpuLine(0, "prof=1001-1004"), gpuLine(1, "prof=none"), gpuLine(2, "prof=1001-1002"),
		gpuLine(3, "prof=error:-17"),
		"instance 9 gpu=2 nvml=3 profile=1g.10gb",
		"value gpu:* 150 int 45", "value any:* 1001-1012 double 0.25",
	})
	r := start(t, planOf(field(150, onGPU), profiling(1001), profiling(1004)), dcgm.Options{}, lines...)
	first := r.read()
	for _, x := range first.Samples {
		if x.Field != 0 {
			t.Errorf("profiling field #%d has a value before its second sample, want none", x.Field)
		}
	}
	want := []string{
		"GPU 0 #0 45", "GPU 0 #1 0.25", "GPU 0 #2 0.25",
		"GPU 1 #0 45", "GPU 1 #1 not_supported", "GPU 1 #2 not_supported",
		"GPU 2 #0 45", "GPU 2 #1 0.25", "GPU 2 #2 not_supported",
		"GPU 3 #0 45", "GPU 3 #1 needs_sys_admin", "GPU 3 #2 needs_sys_admin",
		"GPU instance 9 of GPU 2 #1 0.25", "GPU instance 9 of GPU 2 #2 not_supported",
	}
	b := r.until("profiling values", func(b *gpu.Batch, _ error) bool { return len(b.Samples) > 6 })
	checkEqual(t, "batch", want, r.shown(b))
}

// A rejected watch is split until one field of one entity is left, unless every smaller watch would fail too.
func TestRefusedWatch(t *testing.T) {
	served := []string{
		"GPU 0 #0 45", "GPU 0 #1 71.5", "GPU 1 #0 45", "GPU 1 #1 71.5",
		"GPU instance 7 of GPU 1 #1 30.25", "GPU instance 8 of GPU 1 #1 30.25",
	}
	// The first three watches of a session identify the devices.
	none := replaced(served, "45", "not_supported", "71.5", "not_supported", "30.25", "not_supported")
	for name, tt := range map[string]struct {
		line    string
		want    []string
		watches int64
	}{
		"fails once, unsupported fields":   {"fail dcgmWatchFields -6 1 3", served, 3},
		"fails once, unsupported entities": {"fail dcgmWatchFields -23 1 3", served, 3},
		"one field always fails": {"fail dcgmWatchFields -6 3 3",
			replaced(served, "0 #0 45", "0 #0 not_supported"), 3},
		"not permitted": {"fail dcgmWatchFields -29 1 3",
			replaced(served, "45", "permission", "71.5", "permission"), 1},
		"limit of groups reached": {"groups 1", replaced(served, "30.25", "unavailable"), 1},
		"every watch fails":       {"fail dcgmWatchFields -33 -1 3", none, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, planOf(field(150, onGPU), field(155, onBoth)), dcgm.Options{}, world(tt.line)...)
			r.shows("batch", tt.want)
			open := r.e.Open()
			// Fields of GPUs that several watches sample are read with an additional field group and group.
			if open["watches"] != tt.watches || open["fieldgroups"] > tt.watches+1 || open["groups"] > tt.watches+1 {
				t.Errorf("open handles = %v, want %d watches, and at most %d groups and field groups", open, tt.watches,
					tt.watches+1)
			}
		})
	}
}

// A GPU that DCGM cannot read is left out. When it can be read, the session ends.
func TestUnreadGPU(t *testing.T) {
	var log strings.Builder
	r := start(t, planOf(field(150, onGPU), field(1525, onLinks)), logTo(&log),
		world(gpuLine(2, "links=1 status=detached"))...)
	r.shows("batch", append(slices.Clone(temperatures), "all #1 not_supported"))
	mentions(t, log.String(), "gpu=2", "detached")
	r.e.Replace(" status=detached", "")
	r.ends(gpu.ErrTopology)
}

// If the engine is gone (-21), or was restarted and does not know the session's groups (-5), the session ends,
// whichever call shows it. The same Source can open another session.
func TestEngineIsLost(t *testing.T) {
	for failure, words := range map[string]string{
		"":                           "is gone", // a new engine listens, and the old connection is closed
		"dcgmGetLatestValues_v2 -5":  "was restarted",
		"dcgmWatchFields -5":         "was restarted",
		"dcgmHealthCheck -5":         "was restarted",
		"dcgmGetValuesSince_v2 -5":   "was restarted",
		"dcgmGroupDestroy -5":        "was restarted",
		"dcgmHealthCheck -21":        "is gone",
		"dcgmGetNvLinkP2PStatus -21": "is gone",
	} {
		t.Run(failure, func(t *testing.T) {
			plan := profilingPlan()
			plan.Fields = append(plan.Fields, events(230))
			plan.Health, plan.Peers = onGPU, true
			r := start(t, plan, remoteEngine.RetryRefused(time.Nanosecond), world("profiler -34")...)
			r.read()
			if failure == "" {
				r.e.Restart()
			} else {
				r.e.Add("fail "+failure, "event 1 gpu:0 230 31")
			}
			r.ends(gpu.ErrLost)
			if b, err := r.try(); !errors.Is(err, gpu.ErrLost) || len(b.Samples) > 0 {
				t.Errorf("Read: error %v and %d samples, want gpu.ErrLost and none", err, len(b.Samples))
			}
			mentions(t, r.Err().Error(), "10.0.0.9:5555", words)
			r.e.Remove("fail")
			r.close()
			r.checkClosed()
			r.again(plan).untilServed(0, 2)
		})
	}
}

// If a session cannot be opened, nothing stays open, and the error says why. An engine without NVML is unavailable, not
// lost.
func TestOpenFails(t *testing.T) {
	embedded := dcgm.Options{}
	mixed := replaced(world(), "library 4.6.0", "library 4.7.1")
	without := []string{"fail dcgmGetEntityGroupEntities -56", "fail dcgmGetEntityGroupEntities -67"}
	all, five := gpu.Selector{Flex: true}, gpu.Selector{Major: true, MajorIDs: []uint32{5}}
	for name, tt := range map[string]struct {
		o        dcgm.Options
		selector gpu.Selector
		want     error
		script   []string
		words    []string
	}{
		"engine down": {remoteEngine, all, gpu.ErrUnavailable, world("down"),
			[]string{"no engine answers at 10.0.0.9:5555"}},
		"no embedded engine": {embedded, all, gpu.ErrUnavailable, world("fail dcgmStartEmbedded -7"),
			[]string{"initialization"}},
		"other version": {remoteEngine, all, gpu.ErrVersion, append(mixed, "fail dcgmWatchFields -12"),
			[]string{"4.7.1", "4.6.0", "same DCGM version"}},
		"no NVML":       {embedded, all, gpu.ErrUnavailable, world(without[0]), []string{"driver", "-56"}},
		"GPUs detached": {embedded, all, gpu.ErrUnavailable, world(without[1]), []string{"driver", "-67"}},
		"no GPUs": {embedded, all, gpu.ErrUnavailable, versions,
			[]string{"can read none of the 0 GPUs", "driver"}},
		"unsupported": {embedded, all, gpu.ErrUnavailable, append(versions, gpuLine(0, "status=unsupported")),
			[]string{"can read none of the 1 GPUs"}},
		"not selected": {embedded, five, gpu.ErrUnavailable, world(),
			[]string{"none of DCGM's GPUs [0 1] and instances [7 8]"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, tt.script...)
			plan := planOf(field(150, onGPU))
			plan.Devices = tt.selector
			s, err := dcgm.New(tt.o).Open(t.Context(), plan)
			if err == nil {
				s.Close()
				t.Fatal("Open succeeded")
			}
			if !errors.Is(err, tt.want) || gpu.Reason(err) != gpu.Reason(tt.want) {
				t.Errorf("Open: %v, want %v", err, tt.want)
			}
			mentions(t, err.Error(), tt.words...)
			if open := e.Open(); len(open) > 0 {
				t.Errorf("handles left open at the engine = %v, want none", open)
			}
		})
	}
	// Open returns between two calls when its context ends.
	fakedcgm.New(t, world()...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dcgm.New(embedded).Open(ctx, planOf(field(150, onGPU))); !errors.Is(err, context.Canceled) {
		t.Errorf("Open with a canceled context: %v, want context.Canceled", err)
	}
}

// If only the MIG hierarchy has another version, the GPUs are served.
func TestOtherVersionOfInstances(t *testing.T) {
	var log strings.Builder
	r := start(t, planOf(field(150, onGPU)), logTo(&log),
		replaced(world("fail dcgmGetGpuInstanceHierarchy -12"), "library 4.6.0", "library 4.7.1")...)
	r.shows("batch", temperatures)
	mentions(t, log.String(), "4.7.1", "4.6.0", "reading only GPUs")
}

// If any call fails at the start, nothing stays open, and the error is one of package gpu. Failing calls about other
// entities do not affect GPUs, unless the engine is gone.
func TestFailingCalls(t *testing.T) {
	plan := fabricPlan()
	plan.Fields = append(plan.Fields, field(155, onBoth), profiling(1001), events(230))
	plan.Placement, plan.Health, plan.Peers = true, onGPU, true
	whole := start(t, plan, remoteEngine, fabric()...)
	whole.read()
	whole.close()
	ofOthers := []string{
		"dcgmGetNvLinkLinkStatus", "dcgmGetCpuHierarchy_v2", "dcgmGetDeviceTopology", "dcgmGetNvLinkP2PStatus",
		"dcgmHealthSet", "dcgmHealthCheck",
	}
	atEnd := []string{
		"dcgmShutdown", "dcgmDisconnect", "dcgmGroupDestroy", "dcgmFieldGroupDestroy", "dcgmUnwatchFields",
	}
	for function := range whole.e.Calls() {
		for _, code := range []int{-1, -3, -6, -11, -12, -17, -20, -21, -33} {
			if slices.Contains(atEnd, function) {
				continue
			}
			t.Run(fmt.Sprint(function, code), func(t *testing.T) {
				e := fakedcgm.New(t, fabric(fmt.Sprintf("fail %s %d", function, code))...)
				r := &rig{e: e, t: t}
				t.Cleanup(r.checkClosed)
				isOfOthers := slices.Contains(ofOthers, function) && code != -21
				var err error
				if r.Session, err = dcgm.New(remoteEngine).Open(t.Context(), plan); err != nil {
					if isOfOthers || gpu.Reason(err) == "error" && code != -3 && code != -1 {
						t.Errorf("Open: error %v; want none about other entities, and otherwise a typed one", err)
					}
					return
				}
				b, err := r.try()
				if errors.Is(err, gpu.ErrLost) != (code == -21 && r.Err() != nil) {
					t.Errorf("Read: error %v, session error %v; want ErrLost from Read only if the session ended",
						err, r.Err())
				}
				if isOfOthers && !slices.Contains(r.shown(b), "GPU 1 #0 45") {
					t.Errorf("batch = %v, want the temperature of GPU 1 in it", r.shown(b))
				}
				r.close()
			})
		}
	}
}

// If one call fails, the other values are served.
func TestOneReadFails(t *testing.T) {
	slow := field(155, onBoth)
	slow.Interval = 2 * interval
	r := start(t, planOf(field(150, onGPU), slow), dcgm.Options{}, world()...)
	r.e.Add("fail dcgmGetLatestValues_v2 -11 1")
	r.shows("batch", []string{"GPU 0 #0 timeout", "GPU 0 #1 timeout", "GPU 1 #0 timeout", "GPU 1 #1 timeout",
		"GPU instance 7 of GPU 1 #1 30.25", "GPU instance 8 of GPU 1 #1 30.25"})
	r.e.Add("fail dcgmGetLatestValues_v2 -11")
	if _, err := r.try(); !errors.Is(err, gpu.ErrTimeout) || r.Err() != nil {
		t.Errorf("Read when all calls fail: error %v, session error %v; want gpu.ErrTimeout and no session error",
			err, r.Err())
	}
	r.e.Remove("fail")
	if n := len(r.read().Samples); n != 6 {
		t.Errorf("samples when the engine answers again = %d, want 6", n)
	}
}

// isNow reports whether a time in Unix nanoseconds is within five seconds of now.
func isNow(at int64) bool { return time.Since(time.Unix(0, at)).Abs() <= 5*time.Second }

// A remote engine has another clock, but its samples and XIDs get times of this machine's clock. The times of an
// embedded engine are unchanged.
func TestSkewedClock(t *testing.T) {
	for _, skew := range []int{3600, -3600} {
		for name, o := range map[string]dcgm.Options{"embedded": {}, "remote": remoteEngine} {
			t.Run(fmt.Sprint(name, skew), func(t *testing.T) {
				r := start(t, xidPlan(), o, world(fmt.Sprint("skew ", skew))...)
				r.read()
				r.e.Add("event 1 gpu:0 230 31")
				b := r.until("an XID", func(b *gpu.Batch, _ error) bool { return len(b.XIDs) > 0 })
				times := []int64{b.XIDs[0].Time}
				for _, x := range b.Samples {
					times = append(times, x.Time)
				}
				for _, at := range times {
					if isNow(at) != (name == "remote") {
						t.Errorf("times = %v, want near the current time: %t", times, name == "remote")
					}
				}
			})
		}
	}
}

// A reload opens a second session before it closes the first one.
func TestOverlappingSessions(t *testing.T) {
	for name, o := range map[string]dcgm.Options{"embedded": {}, "remote": remoteEngine} {
		t.Run(name, func(t *testing.T) {
			first := start(t, planOf(field(150, onGPU)), o, world()...)
			second := first.again(planOf(field(155, onGPU)))
			first.close()
			second.shows("batch after the first session was closed", []string{"GPU 0 #0 71.5", "GPU 1 #0 71.5"})
			if open := second.e.Open(); open["watches"] != 1 || open["groups"] != 1 || open["fieldgroups"] != 1 {
				t.Errorf("handles open after the first session = %v, want one watch, one group and one field group",
					open)
			}
			second.e.Add("fail dcgmConnect_v2 -21", "fail dcgmGroupCreate -3")
			if s, err := second.src.Open(t.Context(), planOf(field(155, onGPU))); err == nil {
				s.Close()
				t.Error("third session was opened, want an error")
			}
			second.e.Remove("fail")
			if n := len(second.read().Samples); n != 2 {
				t.Errorf("samples of the open session after another failed to open = %d, want 2", n)
			}
		})
	}
}

// If processes are requested, the rows get a fault, and no process is reported.
func TestProcessesAreDeclined(t *testing.T) {
	r := start(t, planOf(field(150, onGPU)), dcgm.Options{}, world()...)
	var b gpu.Batch
	if err := r.Read(t.Context(), gpu.ReadRequest{Processes: []bool{false, true}}, &b); err != nil {
		t.Fatal(err)
	}
	want := []string{"GPU 0 #0 45", "GPU 1 #0 45", "GPU 1 processes not_supported"}
	if checkEqual(t, "batch", want, r.shown(&b)); len(b.Processes) != 0 {
		t.Errorf("processes = %v, want none", b.Processes)
	}
}

func every(id gpu.FieldID, interval time.Duration) gpu.Field {
	f := field(id, onBoth)
	f.AllSamples, f.Interval = true, interval
	return f
}

// Fields with different intervals are sampled at these intervals in one session.
func TestWatchGroups(t *testing.T) {
	fast, slow := every(155, 5*time.Millisecond), every(156, 50*time.Millisecond)
	fast.Levels, slow.Levels = onGPU, onGPU
	r := start(t, planOf(fast, slow, field(150, onGPU)), dcgm.Options{},
		world("value gpu:* 155 int 0 1", "value gpu:* 156 int 0 1")...)
	if n := r.e.Open()["watches"]; n != 3 {
		t.Errorf("watches for three intervals = %d, want 3", n)
	}
	newest := map[string]int64{}
	r.until("the fifth sample of the slow field", func(b *gpu.Batch, _ error) bool {
		for _, x := range b.Samples {
			newest[fmt.Sprint(x.Row, " ", x.Field)], _ = x.Value.Int64()
		}
		return newest["0 1"] >= 5
	})
	if fast, slow := newest["0 0"], newest["0 1"]; fast < 8*slow || fast > 12*slow+10 {
		t.Errorf("samples at 5 ms = %d, at 50 ms = %d, want about ten times as many at 5 ms", fast, slow)
	}
}

// An embedded engine changes the working directory if DCGM_HOME_DIR is set. Open restores it.
func TestWorkingDirectoryStays(t *testing.T) {
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DCGM_HOME_DIR", t.TempDir())
	start(t, planOf(field(150, onGPU)), dcgm.Options{}, world()...)
	if after, err := os.Getwd(); err != nil || after != before {
		t.Errorf("working directory = %s (error %v), want %s", after, err, before)
	}
}

// gpusOf returns a script of n GPUs without MIG that have a value of every field.
func gpusOf(n int, more ...string) []string {
	lines := slices.Concat(versions, []string{"value any:* 100-999 int 4", "value any:* 1000-1100 double 0.5"})
	for id := range n {
		line := "gpu %d uuid=GPU-%d name=H100 bus=00000000:%02X:00.0 prof=1001-1012"
		lines = append(lines, fmt.Sprintf(line, id, id, id+1))
	}
	return append(lines, more...)
}

// shippedPlan returns the plan of the default counters file.
func shippedPlan(t *testing.T, every time.Duration) *gpu.Plan {
	t.Helper()
	requests, problems, err := counters.Parse(bytes.NewReader(etc.Default()), etc.DefaultName)
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	return counters.NewPlan(requests, gpu.Plan{Interval: every, Devices: gpu.Selector{Flex: true}})
}

// callsOf returns the calls made by do.
func (r *rig) callsOf(do func()) map[string]int64 {
	before := r.e.Calls()
	do()
	calls := r.e.Calls()
	maps.DeleteFunc(calls, func(f string, n int64) bool { calls[f] -= before[f]; return calls[f] == 0 })
	return calls
}

// A cycle with the default counters file is one call to the engine, whatever the number of GPUs and the sampling of
// XIDs and profiling fields. Its cost does not grow with the number of GPUs.
func TestCycleIsOneCall(t *testing.T) {
	const cycles = 40
	for _, gpus := range []int{1, 8, 32} {
		t.Run(fmt.Sprint(gpus), func(t *testing.T) {
			r := start(t, shippedPlan(t, interval), remoteEngine, gpusOf(gpus)...)
			if n := r.e.Count("unbounded.watches"); n != 0 {
				t.Errorf("watches without a limit = %d, want 0", n)
			}
			isServed := func(b *gpu.Batch, _ error) bool { return len(b.Faults) == 0 && len(b.Samples) == 25*gpus }
			r.until("profiling values", isServed)
			cost, begin := r.e.Count("cost.microseconds"), time.Now()
			calls := r.callsOf(func() {
				for range cycles {
					r.read()
					pause()
				}
			})
			if calls["dcgmGetLatestValues_v2"] != cycles {
				t.Errorf("batched calls = %d in %d cycles, want one per cycle", calls["dcgmGetLatestValues_v2"], cycles)
			}
			delete(calls, "dcgmGetLatestValues_v2")
			// The topology is inspected at most every fifth interval. A cycle can take several intervals on a busy
			// machine.
			inspections, most := calls["dcgmGetAllSupportedDevices"], int64(time.Since(begin)/(5*interval))+1
			if inspections == 0 || inspections > most {
				t.Errorf("inspections = %d, want 1 to %d", inspections, most)
			}
			want := map[string]int64{
				"dcgmGetAllSupportedDevices":  inspections,
				"dcgmGetEntityGroupEntities":  inspections,
				"dcgmGetGpuInstanceHierarchy": inspections,
			}
			checkEqual(t, "other calls", want, calls)
			if each := (r.e.Count("cost.microseconds") - cost) / cycles; each > 500 {
				t.Errorf("a cycle takes %d µs in libdcgm, want at most 500 µs", each)
			}
			if n := r.e.Count("live.reads"); n != 0 {
				t.Errorf("live reads = %d, want 0", n)
			}
		})
	}
}

// A cycle does not allocate memory for each sample.
func TestCycleAllocatesLittle(t *testing.T) {
	r := start(t, shippedPlan(t, time.Hour), dcgm.Options{}, gpusOf(32)...)
	var b gpu.Batch
	allocations := testing.AllocsPerRun(20, func() {
		b.Reset()
		if err := r.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
			t.Fatal(err)
		}
	})
	if len(b.Samples) < 500 || allocations > 50 {
		t.Errorf("a cycle with %d samples makes %v allocations, want at least 500 samples and at most 50 allocations",
			len(b.Samples), allocations)
	}
}

// An XID causes one more call in its cycle, for its GPU only, not for the other 31 GPUs. The cycles of the next seconds
// make the same call, because late XIDs may follow.
func TestXIDCostsItsGPU(t *testing.T) {
	r := start(t, shippedPlan(t, time.Hour), dcgm.Options{}, gpusOf(32)...)
	r.read()
	r.e.Add("event 1 gpu:7 230 62", "event 2 gpu:7 230 45")
	var b *gpu.Batch
	cost := r.e.Count("cost.microseconds")
	calls := r.callsOf(func() { b = r.read() })
	want := map[string]int64{
		"dcgmGetLatestValues_v2": 1, "dcgmGetValuesSince_v2": 1,
		"dcgmGroupCreate": 1, "dcgmGroupAddEntity": 1, "dcgmGroupDestroy": 1,
	}
	checkEqual(t, "calls", want, calls)
	if spent := r.e.Count("cost.microseconds") - cost; spent > 2000 {
		t.Errorf("the call takes %d µs in libdcgm, want at most 2000 µs", spent)
	}
	xids := slices.DeleteFunc(r.shown(b), func(line string) bool { return !strings.Contains(line, "XID") })
	checkEqual(t, "XIDs", []string{"GPU 7 XID 45", "GPU 7 XID 62"}, xids)
	if diff := cmp.Diff(want, r.callsOf(func() { b = r.read() })); diff != "" || len(b.XIDs) > 0 {
		t.Errorf("next cycle: XIDs = %v, want none; calls (-want +got):\n%s", b.XIDs, diff)
	}
}

// If the engine has no room for another group, the histories of all GPUs are read, and no XID is lost. An XID that
// could not be read in one cycle is read in the next.
func TestXIDsWhileACallFails(t *testing.T) {
	xids := []string{"GPU 0 #0 4", "GPU 1 #0 4", "GPU 1 XID 45", "GPU 1 XID 62"}
	for failure, want := range map[string][][]string{
		"dcgmGroupCreate -24":         {xids},
		"dcgmGetValuesSince_v2 -11 1": {{"GPU 0 #0 4", "GPU 1 #0 4", "GPU 1 #1 timeout"}, xids},
	} {
		t.Run(failure, func(t *testing.T) {
			r := start(t, xidPlan(), dcgm.Options{}, gpusOf(2)...)
			r.read()
			r.e.Add("fail "+failure, "event 1 gpu:1 230 62", "event 2 gpu:1 230 45")
			for i, batch := range want {
				r.shows(fmt.Sprint("batch ", i), batch)
			}
		})
	}
}
