package dcgm

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

var number, words = &gpu.Field{}, &gpu.Field{Text: true}

func intSample(v int64) *sample {
	return &sample{at: 1, kind: kindInt, bits: uint64(v)}
}

func doubleSample(v float64) *sample {
	return &sample{at: 1, kind: kindDouble, bits: math.Float64bits(v)}
}

// failedSample returns a sample with a status, and with a blank as its value.
func failedSample(status int32) *sample {
	return &sample{at: 1, kind: kindInt, bits: uint64(blankInt + 3), status: status}
}

func TestDecode(t *testing.T) {
	textSample := &sample{at: 1, kind: kindText}
	for name, tt := range map[string]struct {
		field *gpu.Field
		in    *sample
		text  string
		want  gpu.Value
		err   error
	}{
		"zero":                    {number, intSample(0), "", gpu.Int(0), nil},
		"largest":                 {number, intSample(blankInt - 1), "", gpu.Int(blankInt - 1), nil},
		"double":                  {number, doubleSample(0.25), "", gpu.Float(0.25), nil},
		"largest double":          {number, doubleSample(blankDouble - 0.5), "", gpu.Float(blankDouble - 0.5), nil},
		"infinite":                {number, doubleSample(math.Inf(1)), "", gpu.Value{}, nil},
		"text":                    {words, textSample, "P0 <<<", gpu.Text("P0 <<<"), nil},
		"empty text":              {words, textSample, "", gpu.Value{}, nil},
		"string for a number":     {number, textSample, "12", gpu.Value{}, nil},
		"number for a string":     {words, intSample(12), "", gpu.Text("12"), nil},
		"double for a string":     {words, doubleSample(1.5), "", gpu.Text("1.5"), nil},
		"time":                    {number, &sample{at: 1, kind: kindTimestamp, bits: 99}, "", gpu.Int(99), nil},
		"structure":               {number, &sample{at: 1, kind: 'b', bits: 99}, "", gpu.Value{}, nil},
		"without a time":          {number, &sample{kind: kindInt, bits: 99}, "", gpu.Value{}, nil},
		"not watched":             {number, failedSample(-16), "", gpu.Value{}, nil},
		"status no permission":    {number, failedSample(-17), "", gpu.Value{}, gpu.ErrPermission},
		"status GPU lost":         {number, failedSample(-18), "", gpu.Value{}, gpu.ErrLost},
		"unknown status":          {number, failedSample(-12345), "", gpu.Value{}, nil},
		"status before the value": {number, failedSample(-6), "", gpu.Value{}, gpu.ErrNotSupported},
	} {
		got, err := decode(tt.field, tt.in, []byte(tt.text))
		if got != tt.want || !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("%s: value %v, error %v; want %v, %v", name, got, err, tt.want, tt.err)
		}
	}
}

// A decoded value is never a sentinel, NaN, or of the wrong type. There is no value if there is an error, a status, or
// no time.
func FuzzDecode(f *testing.F) {
	f.Add(int64(1), uint64(blankInt), int32(0), byte('i'), false, "")
	f.Add(int64(1), math.Float64bits(blankDouble+1), int32(0), byte('d'), false, "")
	f.Add(int64(1), uint64(0), int32(0), byte('s'), true, "<<<NOT_FOUND>>>")
	f.Add(int64(0), uint64(5), int32(-14), byte('i'), true, "x")
	f.Fuzz(func(t *testing.T, at int64, bits uint64, status int32, kind byte, isText bool, text string) {
		v, err := decode(&gpu.Field{Text: isText}, &sample{at: at, bits: bits, status: status, kind: kind},
			[]byte(text))
		if v.IsAbsent() {
			return
		}
		if err != nil || status != 0 || at <= 0 {
			t.Errorf("value %v with error %v, status %d, time %d; "+
				"want a value only without error, with status 0 and a time", v, err, status, at)
		}
		if v.IsText() != isText {
			t.Errorf("%v: IsText = %t, want %t", v, v.IsText(), isText)
		}
		if n, ok := v.Number(); ok {
			if kind == kindDouble && !(n < blankDouble) || kind != kindDouble && int64(bits) >= blankInt {
				t.Errorf("value = %v, a sentinel; want no value", n)
			}
		} else if s := v.String(); kind == kindText && strings.HasPrefix(s, "<<<") && strings.Contains(s, ">>>") {
			t.Errorf("value = %q, which is a sentinel, want none", s)
		}
	})
}

// A string outside the readout is ignored.
func TestTextOf(t *testing.T) {
	r := readout{texts: []byte("onetwo")}
	for _, tt := range []struct {
		text uint32
		len  uint64
		want string
	}{{0, 3, "one"}, {3, 3, "two"}, {6, 0, ""}, {4, 3, ""}, {7, 0, ""}, {0, math.MaxUint32, ""}} {
		if got := r.textOf(&sample{kind: kindText, text: tt.text, bits: tt.len}); string(got) != tt.want {
			t.Errorf("offset %d, length %d: text = %q, want %q", tt.text, tt.len, got, tt.want)
		}
	}
	if got := r.textOf(&sample{kind: kindInt, bits: 3}); got != nil {
		t.Errorf("string of an integer = %q, want none", got)
	}
}

// The type of a utilization determines its unit: percent for integers, ratio for doubles.
func TestUtilization(t *testing.T) {
	for percent := range int64(101) {
		ratio := utilization(gpu.Int(percent), false, "ratio")
		if n, _ := utilization(ratio, true, "percent").Number(); n != float64(percent) {
			t.Errorf("%[1]d%% converts to %[2]v, and back to %[3]v, want %[1]d", percent, ratio, n)
		}
	}
	for _, tt := range []struct {
		in     gpu.Value
		double bool
		unit   gpu.Unit
	}{{gpu.Int(57), false, "percent"}, {gpu.Float(0.57), true, "ratio"}, {gpu.Value{}, true, "percent"}} {
		if got := utilization(tt.in, tt.double, tt.unit); got != tt.in {
			t.Errorf("%v in %s = %v, want it unchanged", tt.in, tt.unit, got)
		}
	}
}

func TestVersionOf(t *testing.T) {
	for info, want := range map[string]string{
		"version:4.6.0;arch:x86_64":         "4.6.0",
		"arch:x86_64;version:4.7.1;x:y":     "4.7.1",
		"builddate:2026-01-01 10:00:00;a:b": "",
		"":                                  "",
	} {
		if got := versionOf(info); got != want {
			t.Errorf("versionOf(%q) = %q, want %q", info, got, want)
		}
	}
	for version, want := range map[string]string{
		"4.6.1": "4.6", "4.7.0-rc1": "4.7", "4.10.2": "4.10", "5.0": "5.0", "": "",
	} {
		if got := releaseOf(version); got != want {
			t.Errorf("releaseOf(%q) = %q, want %q", version, got, want)
		}
	}
}

// Two different links never have the same entity at the engine (dcgm_link_t).
func FuzzLinkEntity(f *testing.F) {
	if got := (link{parent: entity{groupSwitch, 0}, index: 1}).entity(); got != (entity{groupLink, 259}) {
		f.Errorf("entity = %v, want 259 as in DCGM's own example", got)
	}
	f.Add(uint8(3), uint16(1), uint8(0), uint8(3), uint16(0), uint8(1))
	f.Add(uint8(1), uint16(17), uint8(31), uint8(3), uint16(17), uint8(31))
	f.Fuzz(func(t *testing.T, kindA uint8, indexA uint16, idA uint8, kindB uint8, indexB uint16, idB uint8) {
		a := link{parent: entity{entityGroup(kindA), uint32(idA)}, index: uint32(indexA)}
		b := link{parent: entity{entityGroup(kindB), uint32(idB)}, index: uint32(indexB)}
		if (a == b) != (a.entity() == b.entity()) {
			t.Errorf("%+v has entity %v, %+v has %v; want equal entities only for equal links", a, a.entity(), b,
				b.entity())
		}
	})
}

func TestLevels(t *testing.T) {
	for levels, want := range map[uint64]struct {
		path    gpu.Path
		nvlinks int
	}{
		0:         {gpu.PathUnknown, 0},
		0x01:      {gpu.PathBoard, 0},
		0x210:     {gpu.PathNode, 2}, // DCGM_TOPOLOGY_CPU | DCGM_TOPOLOGY_NVLINK2
		0x20:      {gpu.PathSystem, 0},
		0x2000000: {gpu.PathUnknown, 18},
		0x40:      {gpu.PathUnknown, 0},
	} {
		if p, n := pathOf(levels), nvlinksOf(levels); p != want.path || n != want.nvlinks {
			t.Errorf("levels %#x: path %v and %d NVLinks, want %v and %d", levels, p, n, want.path, want.nvlinks)
		}
	}
}
