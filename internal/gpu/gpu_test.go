package gpu_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestTyped(t *testing.T) {
	_, missing := os.Stat(t.TempDir() + "/x")
	network := func(call string, number syscall.Errno) error {
		return &net.OpError{Op: call, Err: os.NewSyscallError(call, number)}
	}
	for name, tt := range map[string]struct{ err, want error }{
		"a deadline":          {context.DeadlineExceeded, gpu.ErrTimeout},
		"no file":             {missing, gpu.ErrUnavailable},
		"no permission":       {&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, gpu.ErrPermission},
		"nothing listens":     {network("connect", syscall.ECONNREFUSED), gpu.ErrUnavailable},
		"a closed connection": {network("read", syscall.ECONNRESET), gpu.ErrUnavailable},
		"an unexpected end":   {io.ErrUnexpectedEOF, gpu.ErrUnavailable},
		"a canceled request":  {context.Canceled, nil},
	} {
		got := gpu.WrapFSError(tt.err)
		if !errors.Is(got, tt.err) {
			t.Errorf("%s: error = %v, want one that wraps %v", name, got, tt.err)
		}
		if tt.want == nil && got != tt.err || tt.want != nil && !errors.Is(got, tt.want) {
			t.Errorf("%s: error = %v, want %v", name, got, tt.want)
		}
	}
}

func TestLifecycle(t *testing.T) {
	l := gpu.NewLifecycle()
	select {
	case <-l.Done():
		t.Error("Done is closed before End, want it open")
	default:
	}
	before := l.Err()
	first, second := l.End(gpu.ErrTopology), l.End(gpu.ErrLost)
	<-l.Done()
	want := [4]error{nil, gpu.ErrTopology, gpu.ErrTopology, gpu.ErrTopology}
	if got := [4]error{before, first, second, l.Err()}; got != want {
		t.Errorf("Err, two calls of End, and Err = %v, want %v: the first reason counts", got, want)
	}
}

// An ID in a selector is missing if no device has it and some field is read for its kind. GPUs and instances are always
// checked.
func TestPlanMissing(t *testing.T) {
	some := func(ids ...uint32) gpu.Selector {
		return gpu.Selector{Major: true, MajorIDs: ids, Minor: true, MinorIDs: ids}
	}
	devices := []gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}},
		{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 2, ParentKind: gpu.KindGPU, Parent: 1}},
		{Entity: gpu.Entity{Kind: gpu.KindNVLink, ID: 2, ParentKind: gpu.KindGPU, Parent: 1}}, // not of a switch
		{Entity: gpu.Entity{Kind: gpu.KindNVLink, ID: 1, ParentKind: gpu.KindNVSwitch, Parent: 1}},
		{Entity: gpu.Entity{Kind: gpu.KindCPU, ID: 1}},
		{Entity: gpu.Entity{Kind: gpu.KindCPUCore, ID: 2, ParentKind: gpu.KindCPU, Parent: 1}},
	}
	all := gpu.KindsOf(gpu.KindGPU, gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore)
	for name, tt := range map[string]struct {
		levels gpu.Kinds
		sel    gpu.Selector
		want   []string
	}{
		"two ids": {all, some(1, 2), []string{
			"GPU 2", "GPU instance 1", "NVSwitch 1", "NVSwitch 2", "NVLink 2", "CPU 2", "CPU core 1",
		}},
		"only GPUs":   {gpu.KindsOf(gpu.KindGPU), some(1, 2), []string{"GPU 2", "GPU instance 1"}},
		"no ids":      {all, gpu.Selector{Major: true, Minor: true}, nil},
		"all devices": {all, gpu.Selector{Flex: true}, nil},
	} {
		plan := &gpu.Plan{Fields: []gpu.Field{{Levels: tt.levels}}, Devices: tt.sel, Switches: tt.sel, CPUs: tt.sel}
		var got []string
		for _, e := range plan.Missing(devices) {
			got = append(got, e.String())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: missing = %q, want %q", name, got, tt.want)
		}
	}
}

// Each selector selects its kinds of entities. Kinds for which no field exists have no rows.
func TestPlanSelects(t *testing.T) {
	all := gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance, gpu.KindNVLink, gpu.KindNVSwitch,
		gpu.KindCPU, gpu.KindCPUCore, gpu.KindConnectX, gpu.KindNode)
	entities := map[string]gpu.Entity{
		"GPU":         {Kind: gpu.KindGPU, ID: 1},
		"instance":    {Kind: gpu.KindGPUInstance, ID: 1, ParentKind: gpu.KindGPU, Parent: 9},
		"GPU link":    {Kind: gpu.KindNVLink, ID: 9, ParentKind: gpu.KindGPU, Parent: 1},
		"switch":      {Kind: gpu.KindNVSwitch, ID: 1},
		"switch link": {Kind: gpu.KindNVLink, ID: 1, ParentKind: gpu.KindNVSwitch, Parent: 9},
		"CPU":         {Kind: gpu.KindCPU, ID: 1},
		"core":        {Kind: gpu.KindCPUCore, ID: 1, ParentKind: gpu.KindCPU, Parent: 9},
		"card":        {Kind: gpu.KindConnectX, ID: 9},
		"node":        {Kind: gpu.KindNode},
	}
	major := gpu.Selector{Major: true, MajorIDs: []uint32{1}}
	minor := gpu.Selector{Minor: true, MinorIDs: []uint32{1}}
	other := gpu.Selector{Major: true, MajorIDs: []uint32{2}, Minor: true, MinorIDs: []uint32{2}}
	for name, tt := range map[string]struct {
		levels gpu.Kinds
		sel    gpu.Selector
		want   []string
	}{
		"major":     {all, major, []string{"GPU", "GPU link", "switch", "CPU", "card", "node"}},
		"minor":     {all, minor, []string{"instance", "switch link", "core", "card", "node"}},
		"other ids": {all, other, []string{"card", "node"}},
		"no levels": {0, gpu.Selector{Flex: true}, []string{"GPU", "instance"}},
		"links": {
			gpu.KindsOf(gpu.KindNVLink), gpu.Selector{Flex: true},
			[]string{"GPU", "instance", "GPU link", "switch link"},
		},
	} {
		plan := &gpu.Plan{Fields: []gpu.Field{{Levels: tt.levels}}, Devices: tt.sel, Switches: tt.sel, CPUs: tt.sel}
		for entity, e := range entities {
			if got, want := plan.Selects(e), slices.Contains(tt.want, entity); got != want {
				t.Errorf("%s: Selects(%s) = %t, want %t", name, entity, got, want)
			}
		}
	}
}

// The interval of a field is the longer one of the requested interval and the engine's minimum.
func TestIntervalOf(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct{ plan, field, engine, want time.Duration }{
		{10 * second, 0, 0, 10 * second},
		{10 * second, 2 * second, 0, 2 * second},
		{10 * second, 0, 30 * second, 30 * second},
		{10 * second, 2 * second, 30 * second, 30 * second},
		{60 * second, 0, 30 * second, 60 * second},
		{10 * second, 60 * second, 30 * second, 60 * second},
	} {
		p := gpu.Plan{Interval: tt.plan, Fields: []gpu.Field{{Interval: tt.field, MinInterval: tt.engine}}}
		if got := p.IntervalOf(0); got != tt.want {
			t.Errorf("%+v: interval = %v, want %v", tt, got, tt.want)
		}
	}
}

// Fields of GPU instances are not served for a GPU with instances, except strings.
func TestServes(t *testing.T) {
	instance := gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: 7}
	other := instance
	other.ID = 8
	top := gpu.NewTopology([]gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU}}, {Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}, GPU: 1},
		{Entity: instance, GPU: 1}, {Entity: other, GPU: 1},
	})
	const g, i = 1 << gpu.KindGPU, 1 << gpu.KindGPUInstance
	for name, tt := range map[string]struct {
		field gpu.Field
		want  []bool
	}{
		"a field of GPUs":               {gpu.Field{Levels: g}, []bool{true, true, false, false}},
		"a field of GPUs and instances": {gpu.Field{Levels: g | i}, []bool{true, false, true, true}},
		"a text field":                  {gpu.Field{Levels: g | i, Text: true}, []bool{true, true, true, true}},
	} {
		var got []bool
		for row := range top.Devices {
			got = append(got, top.Serves(&tt.field, row))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseBusID(t *testing.T) {
	for address, want := range map[string]string{
		"0000:1b:00.0":     "00000000:1B:00.0",
		"00000000:1B:00.0": "00000000:1B:00.0",
		"10000:3b:1f.7":    "00010000:3B:1F.7",
	} {
		if id, ok := gpu.ParseBusID(address); !ok || id != want {
			t.Errorf("ParseBusID(%q) = %q, %t; want %q, true", address, id, ok, want)
		}
	}
	for _, address := range []string{
		"", "1b:00.0", "0000:1b:00", "0000:1b:00.8", "0000:1b:20.0", "0000:1bb:00.0", "100000000:1b:00.0",
		"0000:1b:00.0.0", "0000:1b:00:0", "0000:1g:00.0", "0000:-1:00.0", " 0000:1b:00.0",
	} {
		if id, ok := gpu.ParseBusID(address); ok {
			t.Errorf("ParseBusID(%q) = %q, want none", address, id)
		}
	}
}

func TestInstanceProfile(t *testing.T) {
	for profile, want := range map[string]string{
		"NVIDIA H100 80GB HBM3 MIG 1g.10gb":        "1g.10gb",
		"NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb":     "3g.20gb",
		"NVIDIA H100 80GB HBM3 MIG 2c.4g.40gb+gfx": "4g.40gb+gfx",
		"MIG 7g.79gb":  "7g.79gb",
		" 1g.10gb+me ": "1g.10gb+me",
		"1c.3g.20gb":   "3g.20gb", "3g.20gb": "3g.20gb", "2c.2g.10gb+me": "2g.10gb+me", "": "",
	} {
		if got := gpu.InstanceProfile(profile); got != want {
			t.Errorf("InstanceProfile(%q) = %q, want %q", profile, got, want)
		}
	}
}

// A list of CPUs has exactly the bits of its mask, with as few ranges as possible. A GPU has a NUMA node if it is near
// exactly one.
func TestPlaceOf(t *testing.T) {
	const all = math.MaxUint64
	for want, mask := range map[string][]uint64{
		"": {0, 0}, "0": {1}, "0,64-127": {1, all}, "0-63,127": {all, 1 << 63}, "62-65": {3 << 62, 3},
		"0,2-3,5": {0b101101}, "0-127": {all, all}, "1,63": {1<<63 | 2},
	} {
		if got := gpu.PlaceOf(nil, mask); got != (gpu.Place{NUMANode: -1, CPUs: want}) {
			t.Errorf("place near the CPUs %x = %+v, want %q and no node", mask, got, want)
		}
	}
	for want, masks := range map[int][][]uint64{0: {{1}}, 1: {{2}}, 65: {{0, 2}}, -1: {{}, {0}, {3}, {1, 1}}} {
		for _, nodes := range masks {
			if got := gpu.PlaceOf(nodes, nil).NUMANode; got != want {
				t.Errorf("NUMA node of mask %x = %d, want %d", nodes, got, want)
			}
		}
	}
}

func TestAbsentValues(t *testing.T) {
	for v, want := range map[gpu.Value]bool{
		{}: true, gpu.Float(math.NaN()): true, gpu.Text(""): true, gpu.Int(0): false, gpu.Float(0): false, gpu.Text("x"): false,
	} {
		_, isNumber := v.Number()
		if v.IsAbsent() != want || want && (isNumber || v.String() != "") {
			t.Errorf("%#v: absent = %t, number = %t, text = %q; want absent = %t", v, v.IsAbsent(), isNumber, v, want)
		}
	}
}

func TestScale(t *testing.T) {
	for _, c := range []struct {
		value  gpu.Value
		factor float64
		want   string
	}{
		{gpu.Int(1980), 1e6, "1980000000"},       // MHz to hertz remains an integer
		{gpu.Int(81559), 1 << 20, "85520809984"}, // MiB to bytes
		{gpu.Int(-3), 1000, "-3000"},
		{gpu.Int(math.MaxInt64), 2, "1.8446744073709552e+19"}, // does not overflow
		{gpu.Int(math.MinInt64), -1, "9.223372036854776e+18"},
		{gpu.Int(35), 0.01, "0.35"},
		{gpu.Float(99.5), 0.01, "0.995"},
		{gpu.Int(361800001), 0.001, "361800.001"},
		{gpu.Float(1.5), 2, "3"},
		{gpu.Text("x"), 2, "x"},
		{gpu.Value{}, 2, ""},
	} {
		if got := c.value.Scale(c.factor).String(); got != c.want {
			t.Errorf("%v × %v = %s, want %s", c.value, c.factor, got, c.want)
		}
	}
	for percent := range int64(101) { // a percentage as a ratio is an exact decimal
		want := strconv.FormatFloat(float64(percent)/100, 'g', -1, 64)
		if got := gpu.Int(percent).Scale(0.01).String(); got != want {
			t.Errorf("%d percent = %s, want %s", percent, got, want)
		}
	}
}
