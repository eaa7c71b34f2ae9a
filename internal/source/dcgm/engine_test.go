//go:build linux && cgo

package dcgm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

func diffs(want, got any) string { return cmp.Diff(want, got) }

func TestTopology(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{Remote: engineAt("gpu-node-7:5556")})
	top := s.Topology()
	instance := gpu.Device{
		Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: 7},
		GPU:    1, UUID: "GPU-1", PCIBusID: "00000000:2C:00.0", NVMLIndex: 2, Minor: 3, Model: "NVIDIA H100 80GB HBM3",
		InstanceID: 1, Profile: "3g.40gb", MIGUUID: "MIG-aaaa",
	}
	if diff := cmp.Diff(instance, top.Devices[2]); diff != "" {
		t.Errorf("instance 7 (-want +got):\n%s", diff)
	}
	got := []string{top.Source, top.Driver, top.Library, top.Engine, top.Host}
	if diff := cmp.Diff([]string{"dcgm", "580.95.05", "4.6.0", "4.6.0", "gpu-node-7"}, got); diff != "" {
		t.Errorf("source, driver, library, engine, host (-want +got):\n%s", diff)
	}
	if got := e.Address(); got != "gpu-node-7:5556" {
		t.Errorf("connected to %q", got)
	}
}

// engineAt reads an address that a test knows to be one.
func engineAt(text string) gpu.EngineAddress {
	a, err := gpu.ParseEngineAddress(text)
	if err != nil {
		panic(err)
	}
	return a
}

func TestAddressReachesDCGM(t *testing.T) {
	for remote, want := range map[string]string{
		"localhost":                "localhost:5555",
		"[::1]:5556":               "[::1]:5556",
		"tcp://10.1.2.3":           "10.1.2.3:5555",
		"unix:///run/nvidia/dcgm":  "unix socket /run/nvidia/dcgm",
		"vsock://3:7777":           "vsock://3:7777",
		"tcp://[2001:db8::1]:5557": "[2001:db8::1]:5557",
		"[fe80::1%eth0]":           "[fe80::1%eth0]:5555",
	} {
		t.Run(remote, func(t *testing.T) {
			e := fakedcgm.New(t, world()...)
			s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{Remote: engineAt(remote)})
			if got := e.Address(); got != want {
				t.Errorf("connected to %q, want %q", got, want)
			}
			if len(read(t, s).Samples) != 2 {
				t.Error("no samples")
			}
		})
	}
}

// Blanks of every kind come with status 0 and a fresh time.
func TestValues(t *testing.T) {
	e := fakedcgm.New(t, world(
		"value gpu:* 100 blank i", "value gpu:* 101 notfound i", "value gpu:* 102 unsupported i", "value gpu:* 110 nopermission i",
		"value gpu:* 140 blank d", "value gpu:* 158 notfound d", "value gpu:* 159 unsupported d", "value gpu:* 160 nopermission d",
		"value gpu:* 51 blank s", "value gpu:* 53 notfound s", "value gpu:* 80 unsupported s", "value gpu:* 81 nopermission s",
		"value gpu:* 200 nodata", "value gpu:* 201 int 5 status=-15", "value gpu:* 202 int 9223372036854775807",
		"value gpu:* 203 int 808334905", "value gpu:* 82 text PG520", "value gpu:* 190 int -3", "value gpu:* 191 double nan",
	)...)
	plan := planOf(field(150, onGPU), field(100, onGPU), field(101, onGPU), field(102, onGPU), field(110, onGPU),
		field(140, onGPU), field(158, onGPU), field(159, onGPU), field(160, onGPU),
		text(51), text(53), text(80), text(81), field(200, onGPU), field(201, onGPU), field(202, onGPU),
		field(203, onGPU), text(82), field(190, onGPU), field(191, onGPU), text(190+2))
	plan.Devices = gpu.Selector{Major: true, MajorIDs: []uint32{0}}
	s := open(t, e, plan, dcgm.Options{})
	want := []string{
		"GPU 0 #0 45", "GPU 0 #16 808334905", "GPU 0 #17 PG520", "GPU 0 #18 -3",
		"GPU 0 #3 not_supported", "GPU 0 #4 permission", "GPU 0 #7 not_supported", "GPU 0 #8 permission",
		"GPU 0 #11 not_supported", "GPU 0 #12 permission", "GPU 0 #20 not_supported",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, shown(s, read(t, s))); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}

// More fields than the 127 that a field group takes: each is sampled or said to be refused.
func TestManyFields(t *testing.T) {
	var fields []gpu.Field
	for id := gpu.FieldID(300); id < 500; id++ {
		fields = append(fields, field(id, onGPU))
	}
	e := fakedcgm.New(t, world("value gpu:* 300-499 int 7")...)
	s := open(t, e, planOf(fields...), dcgm.Options{})
	b := read(t, s)
	sampled, refused := map[int]int{}, map[int]int{}
	for _, x := range b.Samples {
		sampled[x.Field]++
	}
	for _, x := range b.Faults {
		refused[x.Field]++
	}
	for f := range fields {
		if sampled[f]+refused[f] != 2 || sampled[f] == 1 {
			t.Errorf("field %d: sampled for %d GPUs, refused for %d", fields[f].ID, sampled[f], refused[f])
		}
	}
	if len(sampled) <= 127 || e.Open()["fieldgroups"] < 2 {
		t.Errorf("%d fields sampled by %d field groups", len(sampled), e.Open()["fieldgroups"])
	}
}

// One field id that the engine does not know fails a whole field group; it must cost no other
// field.
func TestUnknownFields(t *testing.T) {
	e := fakedcgm.New(t, world("unknown 100 156")...)
	s := open(t, e, planOf(field(150, onGPU), field(100, onGPU), field(155, onBoth), field(156, onGPU), field(151, onGPU)), dcgm.Options{})
	want := []string{
		"GPU 0 #0 45", "GPU 0 #1 not_supported", "GPU 0 #2 71.5", "GPU 0 #3 not_supported", "GPU 0 #4 not_supported",
		"GPU 1 #0 45", "GPU 1 #1 not_supported", "GPU 1 #2 71.5", "GPU 1 #3 not_supported", "GPU 1 #4 not_supported",
		"GPU instance 7 of GPU 1 #2 30.25", "GPU instance 8 of GPU 1 #2 30.25",
	}
	if diff := cmp.Diff(want, shown(s, read(t, s))); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}

// Fields of the node are asked of every entity, and answered once for each or once for all.
func TestNodeFields(t *testing.T) {
	for name, lines := range map[string][]string{"each": world(), "all": world("node")} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, lines...)
			s := open(t, e, planOf(text(1)), dcgm.Options{})
			if s.Topology().Driver != "580.95.05" {
				t.Errorf("driver %q", s.Topology().Driver)
			}
			want := []string{"GPU 0 #0 580.95.05", "GPU 1 #0 580.95.05", "GPU instance 7 of GPU 1 #0 580.95.05", "GPU instance 8 of GPU 1 #0 580.95.05"}
			for range 2 { // the second Read finds the texts of the first
				if diff := cmp.Diff(want, shown(s, read(t, s))); diff != "" {
					t.Errorf("batch (-want +got):\n%s", diff)
				}
			}
			e.Replace("580.95.05", "590.10")
			readUntil(t, s, "the new driver", func(b *gpu.Batch, _ error) bool {
				return !slices.ContainsFunc(b.Samples, func(x gpu.Sample) bool { return x.Value != gpu.Text("590.10") })
			})
		})
	}
}

// A field of a kind of entities that the machine does not have is said to be unavailable.
func TestForeignLevel(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, planOf(field(150, onGPU), field(780, gpu.KindsOf(gpu.KindNVSwitch))), dcgm.Options{})
	if diff := cmp.Diff([]string{"GPU 0 #0 45", "GPU 1 #0 45", "all #1 not_supported"}, shown(s, read(t, s))); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}

// Profiling is asked of each GPU; its fields are blank until the second sample.
func TestProfiling(t *testing.T) {
	lines := slices.Concat(versions, []string{
		gpuLine(0, "prof=1001-1004"), gpuLine(1, "prof=none"), gpuLine(2, "prof=1001-1002"), gpuLine(3, "prof=error:-17"),
		"instance 9 gpu=2 nvml=3 profile=1g.10gb",
		"value gpu:* 150 int 45", "value any:* 1001-1012 double 0.25",
	})
	e := fakedcgm.New(t, lines...)
	s := open(t, e, planOf(field(150, onGPU), profiling(1001), profiling(1004)), dcgm.Options{})
	first := read(t, s)
	for _, x := range first.Samples {
		if x.Field != 0 {
			t.Errorf("profiling field #%d has a value before its second sample", x.Field)
		}
	}
	want := []string{
		"GPU 0 #0 45", "GPU 0 #1 0.25", "GPU 0 #2 0.25",
		"GPU 1 #0 45", "GPU 1 #1 not_supported", "GPU 1 #2 not_supported",
		"GPU 2 #0 45", "GPU 2 #1 0.25", "GPU 2 #2 not_supported",
		"GPU 3 #0 45", "GPU 3 #1 permission", "GPU 3 #2 permission",
		"GPU instance 9 of GPU 2 #1 0.25", "GPU instance 9 of GPU 2 #2 not_supported",
	}
	b := readUntil(t, s, "profiling values", func(b *gpu.Batch, _ error) bool { return len(b.Samples) > 6 })
	if diff := cmp.Diff(want, shown(s, b)); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}

// A watch that the engine refuses is cut until one field of one entity is left, unless every
// smaller one would meet the same.
func TestRefusedWatch(t *testing.T) {
	served := []string{
		"GPU 0 #0 45", "GPU 0 #1 71.5", "GPU 1 #0 45", "GPU 1 #1 71.5",
		"GPU instance 7 of GPU 1 #1 30.25", "GPU instance 8 of GPU 1 #1 30.25",
	}
	replaced := func(lines []string, pairs ...string) []string {
		lines = slices.Clone(lines)
		for i := range lines {
			lines[i] = strings.NewReplacer(pairs...).Replace(lines[i])
		}
		return lines
	}
	// The first two watches of a session are those that identify the devices.
	for name, tt := range map[string]struct {
		line    string
		want    []string
		watches int64
	}{
		"fields once":      {"fail dcgmWatchFields -6 1 3", served, 3},
		"entities once":    {"fail dcgmWatchFields -23 1 3", served, 3},
		"one for good":     {"fail dcgmWatchFields -6 3 3", replaced(served, "GPU 0 #0 45", "GPU 0 #0 not_supported"), 3},
		"permission":       {"fail dcgmWatchFields -29 1 3", replaced(served, "GPU 0 #0 45", "GPU 0 #0 permission", "GPU 0 #1 71.5", "GPU 0 #1 permission", "GPU 1 #0 45", "GPU 1 #0 permission", "GPU 1 #1 71.5", "GPU 1 #1 permission"), 1},
		"too many groups":  {"groups 1", replaced(served, "30.25", "unavailable"), 1},
		"no answer at all": {"fail dcgmWatchFields -33 -1 3", replaced(served, "45", "not_supported", "71.5", "not_supported", "30.25", "not_supported"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, world(tt.line)...)
			s := open(t, e, planOf(field(150, onGPU), field(155, onBoth)), dcgm.Options{})
			if diff := cmp.Diff(tt.want, shown(s, read(t, s))); diff != "" {
				t.Errorf("batch (-want +got):\n%s", diff)
			}
			open := e.Open()
			// What GPUs have of several watches is read by a field group and a group of its own.
			if open["watches"] != tt.watches || open["fieldgroups"] > tt.watches+1 || open["groups"] > tt.watches+1 {
				t.Errorf("open: %v, want %d watches", open, tt.watches)
			}
		})
	}
}

// Every XID is delivered, also two within an interval and the same twice, each once and in order.
func TestEvents(t *testing.T) {
	e := fakedcgm.New(t, world("value gpu:* 112 int 4")...)
	s := open(t, e, planOf(field(150, onGPU), events(230), events(112)), dcgm.Options{})
	xids := func(b *gpu.Batch) (list []string) {
		for _, x := range b.XIDs {
			list = append(list, fmt.Sprint(s.Topology().Devices[x.Row].Entity, " ", x.Code, " ", x.Time))
		}
		return list
	}
	reasons := func(b *gpu.Batch) (n int) {
		for _, x := range b.Samples {
			if x.Field == 2 && x.Value == gpu.Int(4) {
				n++
			}
		}
		return n
	}
	b := read(t, s)
	if got := xids(b); len(got) != 0 {
		t.Errorf("XIDs before the first: %v", got)
	}
	e.Add("event 1 gpu:0 230 62", "event 2 gpu:0 230 45", "event 3 gpu:0 230 45", "event 4 gpu:1 230 79")
	var seen []string
	readUntil(t, s, "four XIDs", func(b *gpu.Batch, err error) bool {
		seen = append(seen, xids(b)...)
		slices.Sort(seen)
		if reasons(b) < 2 {
			t.Errorf("clock event reasons are missing: %v", shown(s, b))
		}
		return len(seen) == 4
	})
	for i, want := range []string{"GPU 0 45", "GPU 0 45", "GPU 0 62", "GPU 1 79"} {
		if !strings.HasPrefix(seen[i], want) {
			t.Errorf("XID %d is %q, want %s", i, seen[i], want)
		}
	}
	for range 3 {
		if got := xids(read(t, s)); len(got) > 0 {
			t.Errorf("reported again: %v", got)
		}
	}
}

// A lost GPU is a fault of its row and of its instances, and comes back by itself. The other's
// series do not change.
func TestLostGPU(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, planOf(field(150, onGPU), field(155, onBoth)), dcgm.Options{})
	read(t, s)
	e.Replace("minor=3", "minor=3 status=lost")
	want := []string{"GPU 0 #0 45", "GPU 0 #1 71.5", "GPU 1 #-1 lost", "GPU instance 7 of GPU 1 #-1 lost", "GPU instance 8 of GPU 1 #-1 lost"}
	if diff := cmp.Diff(want, shown(s, read(t, s))); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
	e.Replace(" status=lost", "")
	readUntil(t, s, "all samples again", func(b *gpu.Batch, _ error) bool { return len(b.Samples) == 6 && len(b.Faults) == 0 })
	if err := s.Err(); err != nil {
		t.Errorf("the session ended: %v", err)
	}
}

// A GPU that is lost before the session begins keeps its row and its identity.
func TestLostFromTheStart(t *testing.T) {
	lines := world()
	lines[4] = gpuLine(0, "status=lost")
	e := fakedcgm.New(t, lines...)
	s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{})
	d := s.Topology().Devices[0]
	if d.UUID != "GPU-0" || d.PCIBusID == "" || d.Model == "" {
		t.Errorf("the lost GPU's identity is gone: %+v", d)
	}
	if diff := cmp.Diff([]string{"GPU 0 #-1 lost", "GPU 1 #0 45"}, shown(s, read(t, s))); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}

// A GPU of which nothing is known ends the session when it comes back, so that the next one has its
// labels.
func TestUnknownGPUComesBack(t *testing.T) {
	lines := world("fail dcgmGetDeviceAttributes -18")
	lines[4] = gpuLine(0, "status=lost")
	e := fakedcgm.New(t, lines...)
	s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{})
	e.Replace(" status=lost", "")
	readUntil(t, s, "the end", func(*gpu.Batch, error) bool { return s.Err() != nil })
	if !errors.Is(s.Err(), gpu.ErrTopology) {
		t.Errorf("Err = %v", s.Err())
	}
}

// A GPU that DCGM does not read is left out, and ends the session once it can be read.
func TestUnreadGPU(t *testing.T) {
	e := fakedcgm.New(t, world(gpuLine(2, "status=detached"))...)
	var log strings.Builder
	s := open(t, e, planOf(field(150, onGPU)), logTo(&log))
	if diff := cmp.Diff([]string{"GPU 0 #0 45", "GPU 1 #0 45"}, shown(s, read(t, s))); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
	mentions(t, log.String(), "gpu=2", "detached")
	e.Replace(" status=detached", "")
	readUntil(t, s, "the end", func(*gpu.Batch, error) bool { return s.Err() != nil })
	if !errors.Is(s.Err(), gpu.ErrTopology) {
		t.Errorf("Err = %v", s.Err())
	}
}

// Instances that do not report their profile are read all the same.
func TestInstancesWithoutProfile(t *testing.T) {
	e := fakedcgm.New(t, world("fail dcgmWatchFields -6 1 2")...)
	s := open(t, e, planOf(field(155, onBoth)), dcgm.Options{})
	if d := s.Topology().Devices[2]; d.Profile != "" || d.InstanceID != 1 || d.UUID != "GPU-1" {
		t.Errorf("instance 7: %+v", d)
	}
	if n := len(read(t, s).Samples); n != 4 {
		t.Errorf("%d samples, want 4", n)
	}
}

// GPUs that come and go, and instances that are partitioned again under the same id, end the
// session. The samples of those instances are not served.
func TestTopologyChanges(t *testing.T) {
	for name, change := range map[string]func(*fakedcgm.Engine){
		"GPU added":        func(e *fakedcgm.Engine) { e.Add(gpuLine(2, "")) },
		"GPU removed":      func(e *fakedcgm.Engine) { e.Remove("gpu 0 ") },
		"instance added":   func(e *fakedcgm.Engine) { e.Add("instance 9 gpu=1 nvml=3 profile=1g.10gb") },
		"instance removed": func(e *fakedcgm.Engine) { e.Remove("instance 8 ") },
		"repartitioned":    func(e *fakedcgm.Engine) { e.Replace("instance 8 gpu=1 nvml=2", "instance 8 gpu=1 nvml=9") },
	} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, world()...)
			s := open(t, e, planOf(field(150, onGPU), field(155, onBoth)), dcgm.Options{})
			read(t, s)
			change(e)
			b := read(t, s)
			select {
			case <-s.Done():
			default:
				t.Fatal("the session goes on")
			}
			if !errors.Is(s.Err(), gpu.ErrTopology) {
				t.Errorf("Err = %v, want %v", s.Err(), gpu.ErrTopology)
			}
			for _, x := range b.Samples {
				d := s.Topology().Devices[x.Row]
				if d.Entity.Kind == gpu.KindGPUInstance && !strings.HasPrefix(name, "GPU") {
					t.Errorf("%v is served after the change", d.Entity)
				}
			}
		})
	}
}

// The engine dies and comes back: the session ends, and another one on the same Source works, with
// every Init undone by one Shutdown.
func TestEngineDies(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	src := dcgm.New(dcgm.Options{Remote: engineAt("10.0.0.9")})
	plan := planOf(field(150, onGPU))
	s, err := src.Open(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	read(t, s)
	e.Restart() // a new engine listens, the old connection is dead
	for range 2 {
		var b gpu.Batch
		if err := s.Read(context.Background(), &b); !errors.Is(err, gpu.ErrLost) || len(b.Samples) > 0 {
			t.Errorf("Read of a dead engine: %v with %d samples", err, len(b.Samples))
		}
	}
	mentions(t, s.Err().Error(), "10.0.0.9:5555", "is gone")
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	checkClosed(t, e)

	again, err := src.Open(context.Background(), plan)
	if err != nil {
		t.Fatalf("Open after the engine came back: %v", err)
	}
	if n := len(read(t, again).Samples); n != 2 {
		t.Errorf("%d samples from the new engine, want 2", n)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	checkClosed(t, e)
}

func TestEngineDeadAtTheStart(t *testing.T) {
	e := fakedcgm.New(t, world("down")...)
	text := failsToOpen(t, e, planOf(field(150, onGPU)), dcgm.Options{Remote: engineAt("10.0.0.9:5555")}, gpu.ErrUnavailable)
	mentions(t, text, "no engine answers at 10.0.0.9:5555")

	e = fakedcgm.New(t, world("fail dcgmStartEmbedded -7")...)
	text = failsToOpen(t, e, planOf(field(150, onGPU)), dcgm.Options{}, gpu.ErrUnavailable)
	mentions(t, text, "initialization")
}

// Whatever call fails at the start, nothing stays open, and the reason is one of the closed set.
func TestEveryCallCanFail(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	plan := planOf(field(150, onGPU), field(155, onBoth), profiling(1001), events(230))
	s := open(t, e, plan, dcgm.Options{Remote: engineAt("10.0.0.9:5555")})
	read(t, s)
	s.Close()
	for function := range e.Calls() {
		switch function {
		case "dcgmShutdown", "dcgmDisconnect", "dcgmGroupDestroy", "dcgmFieldGroupDestroy", "dcgmUnwatchFields":
			continue // they can only fail at the end
		}
		for _, code := range []int{-3, -11, -12, -17, -21} {
			t.Run(fmt.Sprint(function, code), func(t *testing.T) {
				e := fakedcgm.New(t, world(fmt.Sprintf("fail %s %d", function, code))...)
				s, err := dcgm.New(dcgm.Options{Remote: engineAt("10.0.0.9:5555")}).Open(context.Background(), plan)
				if err == nil {
					var b gpu.Batch
					if err := s.Read(context.Background(), &b); errors.Is(err, gpu.ErrLost) != (code == -21 && s.Err() != nil) {
						t.Errorf("Read: %v, session ended with %v", err, s.Err())
					}
					if err := s.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				} else if reason := gpu.Reason(err); reason == "error" && code != -3 {
					t.Errorf("Open: untyped %v", err)
				}
				checkClosed(t, e)
			})
		}
	}
}

// A call fails to answer, and what others read is served.
func TestOneReadFails(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	slow := field(155, onBoth)
	slow.Interval = 2 * interval
	s := open(t, e, planOf(field(150, onGPU), slow), dcgm.Options{})
	e.Add("fail dcgmGetLatestValues_v2 -11 1")
	want := []string{"GPU 0 #0 timeout", "GPU 0 #1 timeout", "GPU 1 #0 timeout", "GPU 1 #1 timeout",
		"GPU instance 7 of GPU 1 #1 30.25", "GPU instance 8 of GPU 1 #1 30.25"}
	if diff := cmp.Diff(want, shown(s, read(t, s))); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
	e.Add("fail dcgmGetLatestValues_v2 -11")
	var b gpu.Batch
	if err := s.Read(context.Background(), &b); !errors.Is(err, gpu.ErrTimeout) || s.Err() != nil {
		t.Errorf("Read when nothing answers: %v, session %v", err, s.Err())
	}
	e.Remove("fail")
	if n := len(read(t, s).Samples); n != 6 {
		t.Errorf("%d samples when the engine answers again, want 6", n)
	}
}

// A frozen engine holds the Read and nothing else; the session goes on when the engine does.
func TestFrozenEngine(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{})
	e.Add("block dcgmGetLatestValues_v2")
	type result struct {
		samples int
		err     error
	}
	done := make(chan result, 1)
	go func() {
		var b gpu.Batch
		err := s.Read(context.Background(), &b)
		done <- result{len(b.Samples), err}
	}()
	waitFor(t, "the call to block", func() bool { return e.Blocked() == 1 })
	select {
	case r := <-done:
		t.Fatalf("Read returned from a frozen engine: %+v", r)
	default:
	}
	if s.Topology().Devices[0].UUID != "GPU-0" || s.Err() != nil {
		t.Error("the session is not usable beside a Read that hangs")
	}
	e.Remove("block")
	select {
	case r := <-done:
		if r.err != nil || r.samples != 2 {
			t.Errorf("Read after the engine went on: %+v", r)
		}
	case <-time.After(deadline):
		t.Fatal("Read did not return when the engine went on")
	}
}

// An engine that does not answer while a session opens holds Open, which succeeds or fails when the
// engine goes on.
func TestConnectBlocks(t *testing.T) {
	for _, line := range []string{"", "fail dcgmConnect_v2 -21"} {
		e := fakedcgm.New(t, world("block dcgmConnect_v2")...)
		done := make(chan error, 1)
		go func() {
			s, err := dcgm.New(dcgm.Options{Remote: engineAt("10.0.0.9")}).Open(context.Background(), planOf(field(150, onGPU)))
			if err == nil {
				err = s.Close()
			}
			done <- err
		}()
		waitFor(t, "the call to block", func() bool { return e.Blocked() == 1 })
		e.Play(world(line)...)
		select {
		case err := <-done:
			if (err == nil) != (line == "") || err != nil && !errors.Is(err, gpu.ErrUnavailable) {
				t.Errorf("Open after %q: %v", line, err)
			}
		case <-time.After(deadline):
			t.Fatal("Open did not return when the engine went on")
		}
		checkClosed(t, e)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, end := time.NewTicker(time.Millisecond), time.After(deadline)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not seen: %s", what)
		}
	}
}

func TestVersionMismatch(t *testing.T) {
	lines := world("fail dcgmWatchFields -12")
	lines[0] = "library 4.7.1"
	e := fakedcgm.New(t, lines...)
	text := failsToOpen(t, e, planOf(field(150, onGPU)), dcgm.Options{Remote: engineAt("10.0.0.9:5555")}, gpu.ErrVersion)
	mentions(t, text, "4.7.1", "4.6.0", "same DCGM version")

	// Where only the MIG hierarchy is not understood, the GPUs are served.
	lines[len(lines)-1] = "fail dcgmGetGpuInstanceHierarchy -12"
	e = fakedcgm.New(t, lines...)
	var log strings.Builder
	s := open(t, e, planOf(field(150, onGPU)), logTo(&log))
	if diff := cmp.Diff([]string{"GPU 0 #0 45", "GPU 1 #0 45"}, shown(s, read(t, s))); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
	mentions(t, log.String(), "4.7.1", "4.6.0", "GPUs only")
}

func TestNothingToWatch(t *testing.T) {
	for name, tt := range map[string]struct {
		lines []string
		sel   gpu.Selector
		words []string
	}{
		"no GPU":       {versions, gpu.Selector{Flex: true}, []string{"sees no GPU", "driver"}},
		"unsupported":  {append(slices.Clone(versions), gpuLine(0, "status=unsupported")), gpu.Selector{Flex: true}, []string{"reads none of its 1 GPUs"}},
		"not selected": {world(), gpu.Selector{Major: true, MajorIDs: []uint32{5}}, []string{"none of the 2 GPUs and 2 instances", "[0 1]"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, tt.lines...)
			plan := planOf(field(150, onGPU))
			plan.Devices = tt.sel
			mentions(t, failsToOpen(t, e, plan, dcgm.Options{}, gpu.ErrUnavailable), tt.words...)
		})
	}
}

// An engine on another machine has another clock; its samples come in ours.
func TestSkewedClock(t *testing.T) {
	near := func(b *gpu.Batch) bool {
		for _, x := range b.Samples {
			if d := time.Since(time.Unix(0, x.Time)); d < -5*time.Second || d > 5*time.Second {
				return false
			}
		}
		return len(b.Samples) > 0
	}
	for name, skew := range map[string]string{"ahead": "skew 3600", "behind": "skew -3600", "a little": "skew 0.4"} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, world(skew)...)
			s := open(t, e, planOf(field(150, onGPU), events(230)), dcgm.Options{Remote: engineAt("10.0.0.9:5555")})
			if b := read(t, s); !near(b) {
				t.Errorf("times of samples: %v", b.Samples)
			}
			e.Add("event 1 gpu:0 230 31")
			b := readUntil(t, s, "an XID", func(b *gpu.Batch, _ error) bool {
				return len(b.XIDs) > 0
			})
			if d := time.Since(time.Unix(0, b.XIDs[0].Time)); d < -5*time.Second || d > 5*time.Second {
				t.Errorf("the time of an XID: %+v", b.XIDs)
			}
		})
	}
	// What is reported again has the ID that it had, so that it is known for what it is.
	t.Run("in the next session", func(t *testing.T) {
		e := fakedcgm.New(t, world("skew 3600")...)
		src := dcgm.New(dcgm.Options{Remote: engineAt("10.0.0.9:5555")})
		session := func() *dcgm.Session {
			s, err := src.Open(context.Background(), planOf(field(150, onGPU), events(230)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		reported := func(s *dcgm.Session) gpu.XID {
			return readUntil(t, s, "an XID", func(b *gpu.Batch, _ error) bool { return len(b.XIDs) > 0 }).XIDs[0]
		}
		s := session()
		e.Add("event 1 gpu:0 230 31")
		first := reported(s)
		if again := reported(session()); again.ID != first.ID || again.Code != first.Code {
			t.Errorf("one XID is reported as %+v, and then as %+v", first, again)
		}
	})
	// An engine gives nothing that it dates before the last that it gave.
	t.Run("set back between XIDs", func(t *testing.T) {
		e := fakedcgm.New(t, world()...)
		s := open(t, e, planOf(field(150, onGPU), events(230)), dcgm.Options{})
		e.Add("event 1 gpu:0 230 31", "event 2 gpu:0 230 31", "event 3 gpu:1 230 31")
		seen := map[gpu.XID]int{}
		count := func(b *gpu.Batch, _ error) bool {
			if b.XIDsRepeat {
				clear(seen)
			}
			for _, x := range b.XIDs {
				x.Time = 0 // the first ones are dated by the clock as it was
				seen[x]++
			}
			return len(seen) >= 3
		}
		readUntil(t, s, "three XIDs", count)
		e.Add("skew -3600", "event 4 gpu:0 230 45", "event 5 gpu:0 230 45")
		readUntil(t, s, "two more", func(b *gpu.Batch, err error) bool {
			count(b, err)
			n := 0
			for x := range seen {
				if x.Row == 0 {
					n++
				}
			}
			return n == 4
		})
		for x, n := range seen {
			if n != 1 {
				t.Errorf("%+v is reported %d times", x, n)
			}
		}
	})
	t.Run("set back in a session", func(t *testing.T) {
		e := fakedcgm.New(t, world()...)
		s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{Remote: engineAt("10.0.0.9:5555")})
		read(t, s)
		e.Add("skew -3600")
		readUntil(t, s, "samples in our clock", func(b *gpu.Batch, _ error) bool { return near(b) })
	})
	t.Run("same machine", func(t *testing.T) {
		e := fakedcgm.New(t, world("skew -3600")...)
		s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{})
		if near(read(t, s)) {
			t.Error("the time of an embedded engine was changed")
		}
	})
}

// A sample whose time stands still keeps its time, for the collector to judge.
func TestFrozenTimestamps(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, planOf(field(150, onGPU), field(155, onGPU)), dcgm.Options{Remote: engineAt("10.0.0.9:5555")})
	read(t, s)
	e.Add("value gpu:* 150 stopped")
	stopped := read(t, s).Samples[0].Time
	readUntil(t, s, "other samples that are newer", func(b *gpu.Batch, _ error) bool {
		if b.Samples[0].Field == 0 && b.Samples[0].Time != stopped {
			t.Errorf("the time of a field that stands still went from %d to %d", stopped, b.Samples[0].Time)
		}
		return slices.ContainsFunc(b.Samples, func(x gpu.Sample) bool {
			return x.Field == 1 && x.Time > stopped+int64(4*interval)
		})
	})
}

// During a reload a second session opens before the first one closes.
func TestOverlappingSessions(t *testing.T) {
	for name, remote := range map[string]string{"embedded": "", "remote": "10.0.0.9:5555"} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, world()...)
			src := dcgm.New(dcgm.Options{Remote: engineAt(remote)})
			first, err := src.Open(context.Background(), planOf(field(150, onGPU)))
			if err != nil {
				t.Fatal(err)
			}
			second, err := src.Open(context.Background(), planOf(field(155, onGPU)))
			if err != nil {
				t.Fatal(err)
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"GPU 0 #0 71.5", "GPU 1 #0 71.5"}, shown(second, read(t, second))); diff != "" {
				t.Errorf("after the first session closed (-want +got):\n%s", diff)
			}
			if open := e.Open(); open["watches"] != 1 || open["groups"] != 1 || open["fieldgroups"] != 1 {
				t.Errorf("the first session left something: %v", open)
			}
			e.Add("fail dcgmConnect_v2 -21", "fail dcgmGroupCreate -3")
			if s, err := src.Open(context.Background(), planOf(field(155, onGPU))); err == nil {
				s.Close()
				t.Error("a third session opened")
			}
			e.Remove("fail")
			if n := len(read(t, second).Samples); n != 2 {
				t.Errorf("a session that failed to open took the other's samples: %d left", n)
			}
			if err := second.Close(); err != nil {
				t.Fatal(err)
			}
			checkClosed(t, e)
		})
	}
}

// Read gives up between calls when its context ends, and on a closed session.
func TestContext(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var b gpu.Batch
	if err := s.Read(ctx, &b); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: %v", err)
	}
	if _, err := dcgm.New(dcgm.Options{}).Open(ctx, planOf(field(150, onGPU))); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
}

// A newer engine answers id 203 as a ratio; percent is what the field says.
func TestUnitsOfEngines(t *testing.T) {
	for name, tt := range map[string]struct {
		engine, value string
		unit          gpu.Unit
		want          gpu.Value
	}{
		"4.6 percent to percent": {"4.6.0", "int 57", "percent", gpu.Int(57)},
		"4.6 percent to ratio":   {"4.6.0", "int 57", "ratio", gpu.Float(0.57)},
		"4.7 ratio to percent":   {"4.7.1", "double 0.57", "percent", gpu.Float(57)},
		"4.7 ratio to ratio":     {"4.7.1", "double 0.57", "ratio", gpu.Float(0.57)},
		"4.7 percent as ever":    {"4.7.1", "int 57", "percent", gpu.Int(57)},
	} {
		t.Run(name, func(t *testing.T) {
			lines := slices.Concat([]string{"library " + tt.engine, "engine " + tt.engine}, []string{gpuLine(0, ""), "value gpu:* 203 " + tt.value})
			e := fakedcgm.New(t, lines...)
			f := field(203, onGPU)
			f.Unit = tt.unit
			s := open(t, e, planOf(f), dcgm.Options{})
			b := read(t, s)
			if len(b.Samples) != 1 || b.Samples[0].Value != tt.want {
				t.Errorf("samples %v, want %v", b.Samples, tt.want)
			}
		})
	}
}
