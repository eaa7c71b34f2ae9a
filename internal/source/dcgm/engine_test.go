//go:build linux && cgo

package dcgm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

func TestTopology(t *testing.T) {
	s := open(t, fakedcgm.New(t, world()...), planOf(field(150, onGPU)),
		dcgm.Options{Remote: engineAt("gpu-node-7:5556")})
	top := s.Topology()
	got := []string{top.Source, top.Driver, top.Library, top.Engine, top.Host}
	checkEqual(t, "source, driver, library, engine, host",
		[]string{"dcgm", "580.95.05", "4.6.0", "4.6.0", "gpu-node-7"}, got)
}

// remoteEngine connects to a host engine on another machine.
var remoteEngine = dcgm.Options{Remote: engineAt("10.0.0.9:5555")}

// engineAt parses an address that is known to be valid.
func engineAt(text string) hostengine.Address {
	a, err := hostengine.Parse(text)
	if err != nil {
		panic(err)
	}
	return a
}

func TestAddressReachesDCGM(t *testing.T) {
	for remote, want := range map[string]string{
		"localhost":                "localhost:5555",
		"unix:///run/nvidia/dcgm":  "unix socket /run/nvidia/dcgm",
		"vsock://3:7777":           "vsock://3:7777",
		"tcp://[2001:db8::1]:5557": "[2001:db8::1]:5557",
	} {
		t.Run(remote, func(t *testing.T) {
			e := fakedcgm.New(t, world()...)
			s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{Remote: engineAt(remote)})
			if got := e.Address(); got != want {
				t.Errorf("connected to %q, want %q", got, want)
			}
			if n := len(read(t, s).Samples); n != 2 {
				t.Errorf("samples = %d, want one of each of the two GPUs", n)
			}
		})
	}
}

// TestBatches lists scripts and plans, and the batches that they produce.
func TestBatches(t *testing.T) {
	everything := []string{
		"CPU 0 #4 61.5", "CPU 0 #5 0.25",
		"CPU core 0 of CPU 0 #5 0.25", "CPU core 1 of CPU 0 #5 0.25", "CPU core 70 of CPU 0 #5 0.75",
		"ConnectX 5 #6 55", "GPU 0 #0 45", "GPU 1 #0 45",
		"NVLink 0 of GPU 0 #3 3", "NVLink 0 of NVSwitch 0 #2 7", "NVLink 0 of NVSwitch 1 #2 7",
		"NVLink 1 of GPU 0 #3 3",
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
				"all #4 not_supported",
				"all #5 not_supported", "all #6 not_supported",
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
				"value gpu:* 110 nopermission i",
				"value gpu:* 140 blank d", "value gpu:* 158 notfound d", "value gpu:* 159 unsupported d",
				"value gpu:* 160 nopermission d",
				"value gpu:* 51 blank s", "value gpu:* 53 notfound s", "value gpu:* 80 unsupported s",
				"value gpu:* 81 nopermission s",
				"value gpu:* 200 nodata", "value gpu:* 201 int 5 status=-15", "value gpu:* 202 int 9223372036854775807",
				"value gpu:* 203 int 808334905", "value gpu:* 82 text PG520", "value gpu:* 190 int -3",
				"value gpu:* 191 double nan"),
			blanks,
			[]string{
				"GPU 0 #0 45", "GPU 0 #11 not_supported", "GPU 0 #12 permission", "GPU 0 #16 808334905",
				"GPU 0 #17 PG520", "GPU 0 #18 -3",
				"GPU 0 #20 not_supported", "GPU 0 #3 not_supported", "GPU 0 #4 permission",
				"GPU 0 #7 not_supported", "GPU 0 #8 permission",
			}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, fakedcgm.New(t, tt.lines...), tt.plan, dcgm.Options{})
			checkEqual(t, "batch", tt.want, shown(s, read(t, s)))
			if err := s.Err(); err != nil {
				t.Errorf("session ended: %v", err)
			}
		})
	}
}

// A field group has at most 127 fields. With more fields in the plan, each field is either sampled or has a fault.
func TestManyFields(t *testing.T) {
	var fields []gpu.Field
	for id := gpu.FieldID(300); id < 500; id++ {
		fields = append(fields, field(id, onGPU))
	}
	e := fakedcgm.New(t, world("value gpu:* 300-499 int 7")...)
	s := open(t, e, planOf(fields...), dcgm.Options{})
	b := read(t, s)
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
	e := fakedcgm.New(t, lines...)
	s := open(t, e, planOf(field(150, onGPU), profiling(1001), profiling(1004)), dcgm.Options{})
	first := read(t, s)
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
	b := readUntil(t, s, "profiling values", func(b *gpu.Batch, _ error) bool { return len(b.Samples) > 6 })
	checkEqual(t, "batch", want, shown(s, b))
}

// A rejected watch is split until one field of one entity is left, unless every smaller watch would fail too.
func TestRefusedWatch(t *testing.T) {
	served := []string{
		"GPU 0 #0 45", "GPU 0 #1 71.5", "GPU 1 #0 45", "GPU 1 #1 71.5",
		"GPU instance 7 of GPU 1 #1 30.25", "GPU instance 8 of GPU 1 #1 30.25",
	}
	replaced := func(lines []string, pairs ...string) []string {
		return strings.Split(strings.NewReplacer(pairs...).Replace(strings.Join(lines, "\n")), "\n")
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
			e := fakedcgm.New(t, world(tt.line)...)
			s := open(t, e, planOf(field(150, onGPU), field(155, onBoth)), dcgm.Options{})
			checkEqual(t, "batch", tt.want, shown(s, read(t, s)))
			open := e.Open()
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
	e := fakedcgm.New(t, world(gpuLine(2, "links=1 status=detached"))...)
	var log strings.Builder
	s := open(t, e, planOf(field(150, onGPU), field(1525, onLinks)), logTo(&log))
	checkEqual(t, "batch", []string{"GPU 0 #0 45", "GPU 1 #0 45", "all #1 not_supported"}, shown(s, read(t, s)))
	mentions(t, log.String(), "gpu=2", "detached")
	e.Replace(" status=detached", "")
	ends(t, s, gpu.ErrTopology)
}

// If the engine restarts, the session ends, and the same Source can open another session. Every Init has a Shutdown.
func TestEngineDies(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	src := dcgm.New(remoteEngine)
	plan := planOf(field(150, onGPU))
	s := openAt(t, src, plan)
	read(t, s)
	e.Restart() // a new engine listens; the old connection is closed
	for range 2 {
		if b, err := tryRead(s); !errors.Is(err, gpu.ErrLost) || len(b.Samples) > 0 {
			t.Errorf("Read after the engine died: error %v and %d samples, want gpu.ErrLost and none",
				err, len(b.Samples))
		}
	}
	mentions(t, s.Err().Error(), "10.0.0.9:5555", "is gone")
	closeSession(t, s)
	checkClosed(t, e)

	again := openAt(t, src, plan)
	if n := len(read(t, again).Samples); n != 2 {
		t.Errorf("samples from the new engine = %d, want 2", n)
	}
	closeSession(t, again)
	checkClosed(t, e)
}

// If the engine is gone (-21), or was restarted and does not know the session's groups (-5), the session ends,
// whichever call shows it.
func TestEngineIsLost(t *testing.T) {
	for failure, words := range map[string]string{
		"dcgmGetLatestValues_v2 -5":  "was restarted",
		"dcgmWatchFields -5":         "was restarted",
		"dcgmHealthCheck -5":         "was restarted",
		"dcgmGetValuesSince_v2 -5":   "was restarted",
		"dcgmGroupDestroy -5":        "was restarted",
		"dcgmHealthCheck -21":        "is gone",
		"dcgmGetNvLinkP2PStatus -21": "is gone",
	} {
		t.Run(failure, func(t *testing.T) {
			e := fakedcgm.New(t, world("profiler -34")...)
			plan := profilingPlan()
			plan.Fields = append(plan.Fields, events(230))
			plan.Health, plan.Peers = onGPU, true
			s := open(t, e, plan, remoteEngine.RetryRefused(time.Nanosecond))
			read(t, s)
			e.Add("fail "+failure, "event 1 gpu:0 230 31")
			ends(t, s, gpu.ErrLost)
			if _, err := tryRead(s); !errors.Is(err, gpu.ErrLost) {
				t.Errorf("Read: %v, want gpu.ErrLost", err)
			}
			mentions(t, s.Err().Error(), "10.0.0.9:5555", words)
			e.Remove("fail")
		})
	}
}

func TestEngineDownAtStart(t *testing.T) {
	e := fakedcgm.New(t, world("down")...)
	text := failsToOpen(t, e, planOf(field(150, onGPU)), remoteEngine, gpu.ErrUnavailable)
	mentions(t, text, "no engine answers at 10.0.0.9:5555")

	e = fakedcgm.New(t, world("fail dcgmStartEmbedded -7")...)
	text = failsToOpen(t, e, planOf(field(150, onGPU)), dcgm.Options{}, gpu.ErrUnavailable)
	mentions(t, text, "initialization")
}

// If any call fails at the start, nothing stays open, and the error is one of package gpu. Failing calls about other
// entities do not affect GPUs, unless the engine is gone.
func TestFailingCalls(t *testing.T) {
	e := fakedcgm.New(t, fabric()...)
	plan := fabricPlan()
	plan.Fields = append(plan.Fields, field(155, onBoth), profiling(1001), events(230))
	plan.Placement, plan.Health, plan.Peers = true, onGPU, true
	s := open(t, e, plan, remoteEngine)
	read(t, s)
	s.Close()
	ofOthers := []string{
		"dcgmGetNvLinkLinkStatus", "dcgmGetCpuHierarchy_v2", "dcgmGetDeviceTopology", "dcgmGetNvLinkP2PStatus",
		"dcgmHealthSet", "dcgmHealthCheck",
	}
	for function := range e.Calls() {
		switch function {
		case "dcgmShutdown", "dcgmDisconnect", "dcgmGroupDestroy", "dcgmFieldGroupDestroy", "dcgmUnwatchFields":
			continue // these can only fail at the end
		}
		for _, code := range []int{-1, -3, -6, -11, -12, -17, -20, -21, -33} {
			t.Run(fmt.Sprint(function, code), func(t *testing.T) {
				e := fakedcgm.New(t, fabric(fmt.Sprintf("fail %s %d", function, code))...)
				s, err := dcgm.New(remoteEngine).Open(t.Context(), plan)
				switch {
				case err == nil:
					b, err := tryRead(s)
					if errors.Is(err, gpu.ErrLost) != (code == -21 && s.Err() != nil) {
						t.Errorf("Read: error %v, session error %v; want ErrLost from Read only if the session ended",
							err, s.Err())
					}
					if slices.Contains(ofOthers, function) && code != -21 &&
						!slices.Contains(shown(s, b), "GPU 1 #0 45") {
						t.Errorf("batch = %v, want the temperature of GPU 1 in it", shown(s, b))
					}
					closeSession(t, s)
				case slices.Contains(ofOthers, function) && code != -21:
					t.Errorf("Open: %v", err)
				case gpu.Reason(err) == "error" && code != -3 && code != -1:
					t.Errorf("Open: error %v has the reason error, want a typed one", err)
				}
				checkClosed(t, e)
			})
		}
	}
}

// If one call fails, the other values are served.
func TestOneReadFails(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	slow := field(155, onBoth)
	slow.Interval = 2 * interval
	s := open(t, e, planOf(field(150, onGPU), slow), dcgm.Options{})
	e.Add("fail dcgmGetLatestValues_v2 -11 1")
	want := []string{"GPU 0 #0 timeout", "GPU 0 #1 timeout", "GPU 1 #0 timeout", "GPU 1 #1 timeout",
		"GPU instance 7 of GPU 1 #1 30.25", "GPU instance 8 of GPU 1 #1 30.25"}
	checkEqual(t, "batch", want, shown(s, read(t, s)))
	e.Add("fail dcgmGetLatestValues_v2 -11")
	if _, err := tryRead(s); !errors.Is(err, gpu.ErrTimeout) || s.Err() != nil {
		t.Errorf("Read when all calls fail: error %v, session error %v; want gpu.ErrTimeout and no session error",
			err, s.Err())
	}
	e.Remove("fail")
	if n := len(read(t, s).Samples); n != 6 {
		t.Errorf("samples when the engine answers again = %d, want 6", n)
	}
}

func TestVersionMismatch(t *testing.T) {
	lines := world("fail dcgmWatchFields -12")
	lines[0] = "library 4.7.1"
	e := fakedcgm.New(t, lines...)
	text := failsToOpen(t, e, planOf(field(150, onGPU)), remoteEngine, gpu.ErrVersion)
	mentions(t, text, "4.7.1", "4.6.0", "same DCGM version")

	// If only the MIG hierarchy has another version, the GPUs are served.
	lines[len(lines)-1] = "fail dcgmGetGpuInstanceHierarchy -12"
	e = fakedcgm.New(t, lines...)
	var log strings.Builder
	s := open(t, e, planOf(field(150, onGPU)), logTo(&log))
	checkEqual(t, "batch", []string{"GPU 0 #0 45", "GPU 1 #0 45"}, shown(s, read(t, s)))
	mentions(t, log.String(), "4.7.1", "4.6.0", "reading only GPUs")
}

func TestNoGPUs(t *testing.T) {
	for name, tt := range map[string]struct {
		lines []string
		sel   gpu.Selector
		words []string
	}{
		"no GPUs": {versions, gpu.Selector{Flex: true}, []string{"can read none of the 0 GPUs", "driver"}},
		"unsupported": {append(slices.Clone(versions), gpuLine(0, "status=unsupported")), gpu.Selector{Flex: true},
			[]string{"can read none of the 1 GPUs"}},
		"not selected": {world(), gpu.Selector{Major: true, MajorIDs: []uint32{5}},
			[]string{"none of DCGM's GPUs [0 1] and instances [7 8]", "[0 1]"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, tt.lines...)
			plan := planOf(field(150, onGPU))
			plan.Devices = tt.sel
			mentions(t, failsToOpen(t, e, plan, dcgm.Options{}, gpu.ErrUnavailable), tt.words...)
		})
	}
}

// isNow reports whether a time in Unix nanoseconds is within five seconds of now.
func isNow(at int64) bool { return time.Since(time.Unix(0, at)).Abs() <= 5*time.Second }

// A remote engine has another clock. Samples have times of this machine's clock.
func TestSkewedClock(t *testing.T) {
	near := func(b *gpu.Batch) bool {
		for _, x := range b.Samples {
			if !isNow(x.Time) {
				return false
			}
		}
		return len(b.Samples) > 0
	}
	for name, skew := range map[string]string{"ahead": "skew 3600", "behind": "skew -3600", "a little": "skew 0.4"} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, world(skew)...)
			s := open(t, e, xidPlan(), remoteEngine)
			if b := read(t, s); !near(b) {
				t.Errorf("samples = %v, want times near the current time", b.Samples)
			}
			e.Add("event 1 gpu:0 230 31")
			b := readUntil(t, s, "an XID", func(b *gpu.Batch, _ error) bool { return len(b.XIDs) > 0 })
			if !isNow(b.XIDs[0].Time) {
				t.Errorf("XIDs = %+v, want a time near the current time", b.XIDs)
			}
		})
	}
	t.Run("clock set back in a session", func(t *testing.T) {
		e := fakedcgm.New(t, world()...)
		s := open(t, e, planOf(field(150, onGPU)), remoteEngine)
		read(t, s)
		e.Add("skew -3600")
		readUntil(t, s, "samples near the current time", func(b *gpu.Batch, _ error) bool { return near(b) })
	})
	t.Run("same machine", func(t *testing.T) {
		e := fakedcgm.New(t, world("skew -3600")...)
		s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{})
		if near(read(t, s)) {
			t.Error("times of an embedded engine were changed, want them unchanged")
		}
	})
}

// During a reload, a second session is opened before the first one is closed.
func TestOverlappingSessions(t *testing.T) {
	for name, remote := range map[string]string{"embedded": "", "remote": "10.0.0.9:5555"} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, world()...)
			src := dcgm.New(dcgm.Options{Remote: engineAt(remote)})
			first := openAt(t, src, planOf(field(150, onGPU)))
			second := openAt(t, src, planOf(field(155, onGPU)))
			closeSession(t, first)
			checkEqual(t, "batch after the first session was closed", []string{"GPU 0 #0 71.5", "GPU 1 #0 71.5"},
				shown(second, read(t, second)))
			if open := e.Open(); open["watches"] != 1 || open["groups"] != 1 || open["fieldgroups"] != 1 {
				t.Errorf("handles open after the first session = %v, want one watch, one group and one field group",
					open)
			}
			e.Add("fail dcgmConnect_v2 -21", "fail dcgmGroupCreate -3")
			if s, err := src.Open(context.Background(), planOf(field(155, onGPU))); err == nil {
				s.Close()
				t.Error("third session was opened, want an error")
			}
			e.Remove("fail")
			if n := len(read(t, second).Samples); n != 2 {
				t.Errorf("samples of the open session after another failed to open = %d, want 2", n)
			}
			closeSession(t, second)
			checkClosed(t, e)
		})
	}
}

// Open returns between two calls when its context ends.
func TestContext(t *testing.T) {
	fakedcgm.New(t, world()...)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := dcgm.New(dcgm.Options{}).Open(ctx, planOf(field(150, onGPU))); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v, want context.Canceled", err)
	}
}

// If processes are requested, the rows get a fault, and no process is reported.
func TestProcessesAreDeclined(t *testing.T) {
	s := open(t, fakedcgm.New(t, world()...), planOf(field(150, onGPU)), dcgm.Options{})
	var b gpu.Batch
	if err := s.Read(t.Context(), gpu.ReadRequest{Processes: []bool{false, true}}, &b); err != nil {
		t.Fatal(err)
	}
	isDeclined := func(f gpu.Fault) bool {
		return f.Row == 1 && f.Part == gpu.PartProcesses && errors.Is(f.Err, gpu.ErrNotSupported)
	}
	if len(b.Faults) != 1 || !isDeclined(b.Faults[0]) || len(b.Processes) != 0 {
		t.Errorf("faults = %v and processes = %v, want one fault of row 1 and no process", b.Faults, b.Processes)
	}
}

func every(id gpu.FieldID, interval time.Duration) gpu.Field {
	f := field(id, onBoth)
	f.AllSamples, f.Interval = true, interval
	return f
}

// Fields with different intervals are sampled at these intervals in one session.
func TestWatchGroups(t *testing.T) {
	e := fakedcgm.New(t, world("value gpu:* 155 int 0 1", "value gpu:* 156 int 0 1")...)
	fast, slow := every(155, 5*time.Millisecond), every(156, 50*time.Millisecond)
	fast.Levels, slow.Levels = onGPU, onGPU
	s := open(t, e, planOf(fast, slow, field(150, onGPU)), dcgm.Options{})
	if n := e.Open()["watches"]; n != 3 {
		t.Errorf("watches for three intervals = %d, want 3", n)
	}
	newest := map[string]int64{}
	readUntil(t, s, "the fifth sample of the slow field", func(b *gpu.Batch, _ error) bool {
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
	open(t, fakedcgm.New(t, world()...), planOf(field(150, onGPU)), dcgm.Options{})
	if after, err := os.Getwd(); err != nil || after != before {
		t.Errorf("working directory = %s (error %v), want %s", after, err, before)
	}
}
