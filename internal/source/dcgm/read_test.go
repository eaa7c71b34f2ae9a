package dcgm

import (
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
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

func TestRelease(t *testing.T) {
	for info, want := range map[string]string{
		"version:4.6.1;arch:x86_64": "4.6", "arch:x86_64;version:4.7.0-rc1;x:y": "4.7", "version:4.10.2": "4.10",
		"version:5.0": "5.0", "builddate:2026-01-01 10:00:00;a:b": "", "": "",
	} {
		if got := releaseOf(versionOf(info)); got != want {
			t.Errorf("release of %q = %q, want %q", info, got, want)
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

// quietEngine returns only the given samples.
type quietEngine struct {
	hostile
	samples []sample
	history []sample // result of since
	reads   int      // number of reads of histories
}

func (q *quietEngine) latest(handle, handle) (readout, error) {
	return readout{samples: q.samples}, nil
}

func (q *quietEngine) since(handle, handle, int64) (readout, error) {
	q.reads++
	return readout{samples: q.history}, nil
}

func (q *quietEngine) createGroup(string, []entity) (handle, []refusal, error) { return 1, nil, nil }
func (q *quietEngine) destroyGroup(handle) error                               { return nil }

// readNewest reads the newest samples of the only watch of a session.
func readNewest(t *testing.T, s *Session) *gpu.Batch {
	t.Helper()
	var b gpu.Batch
	if err := s.readNewest(&reader{group: s.watches.list[0].group}, &b); err != nil {
		t.Fatal(err)
	}
	return &b
}

// oneWatch returns a session with one watch of some fields of GPU 0.
func oneWatch(fields ...gpu.Field) (*Session, *watch, *quietEngine) {
	e := &quietEngine{hostile: hostile{rng: rand.New(rand.NewPCG(1, 1))}}
	plan := &gpu.Plan{Interval: time.Second, Fields: fields}
	remote := hostengine.Address{Transport: hostengine.TCP, Host: "10.0.0.9"}
	s := newSession(e, Options{Remote: remote, Log: slog.New(slog.DiscardHandler)}, plan)
	s.rows, s.members = map[entity]int{{groupGPU, 0}: 0}, []entity{{groupGPU, 0}}
	s.setTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}}})
	w := &watch{group: &group{rows: []int{0}}, sampling: samplingOf(s.plan, 0)}
	s.watches.list, s.watches.slots = []*watch{w}, make([]slot, len(fields))
	for f := range fields {
		w.fields = append(w.fields, f)
		s.watches.slots[f].watch = w
	}
	return s, w, e
}

// samplesAt returns samples of GPU 0 for fields first, first+1 and so on, with these engine times.
func samplesAt(first uint16, times ...int64) (list []sample) {
	for i, at := range times {
		list = append(list, sample{at: at, bits: 5, group: groupGPU, field: first + uint16(i), kind: kindInt})
	}
	return list
}

// A Read without a new value does not make an old value new.
func TestFaultsAreNotNewValues(t *testing.T) {
	s, w, _ := oneWatch(gpu.Field{ID: 1001, Profiling: true})
	begin := time.Now()
	w.latest = 500
	s.watches.follow(begin)
	w.latest, w.faults = 0, true
	s.watches.follow(begin.Add(time.Second))
	w.latest, w.faults = 500, false
	s.watches.follow(begin.Add(2 * time.Second))
	if w.newest != 500 || !w.advanced.Equal(begin.Add(time.Second)) {
		t.Errorf("newest = %d, advanced %v after the first Read, want 500 and 1s", w.newest, w.advanced.Sub(begin))
	}
}

// The newest sample of a remote engine is dated by the first Read that has it, regardless of the engine's clock.
// Samples keep their dates, and none is in the future. If the plan has only XIDs, the engine's clock is used.
func TestDatesOfRemoteEngine(t *testing.T) {
	for name, skew := range map[string]int64{"behind": -3600e6, "right": 0, "ahead": 86400e6} {
		t.Run(name, func(t *testing.T) {
			s, w, e := oneWatch(gpu.Field{ID: 150}, gpu.Field{ID: 151}, gpu.Field{ID: 152})
			engine := time.Now().UnixMicro() + skew
			read := func(times ...int64) (ages []time.Duration) {
				e.samples = samplesAt(150, times...)
				for _, x := range readNewest(t, s).Samples {
					ages = append(ages, time.Duration(s.clock.now-x.Time))
				}
				return ages
			}
			want := []time.Duration{250 * time.Millisecond, 0, 500 * time.Millisecond}
			if got := read(engine-250e3, engine, engine-500e3); !slices.Equal(got, want) || w.latest != engine {
				t.Errorf("ages in the first Read = %v, want %v; latest time of the watch = %d, want %d",
					got, want, w.latest, engine)
			}
			first := s.watches.slots[0].date
			got := read(engine-250e3, engine+1e6)
			if s.watches.slots[0].date != first || got[1] != 0 {
				t.Errorf("second Read: the old date moved by %v, and the age of the new sample is %v, want 0 and 0",
					s.watches.slots[0].date-first, got[1])
			}
			if got := read(engine-60e6, engine-60e6); got[0] != 0 || got[1] != 0 { // the engine's clock was set back
				t.Errorf("ages after the clock was set back = %v, want 0", got)
			}
		})
	}
	s, _, _ := oneWatch(gpu.Field{ID: 230})
	s.clock.now = time.Now().UnixNano()
	at := s.clock.now/1000 - 60e6
	if got := s.clock.dateAt(at); got != at*1000 {
		t.Errorf("age of an XID from a minute ago = %v, want 1m0s", time.Duration(s.clock.now-got))
	}
	if got := s.clock.dateAt(at + 3600e6); got > s.clock.now {
		t.Errorf("XID is dated %v in the future, want it not after now", time.Duration(got-s.clock.now))
	}
}

// If the engine's clock is set back, a trail continues with the engine's times.
func TestTrailAfterClockSetBack(t *testing.T) {
	s, _, e := oneWatch(gpu.Field{ID: 150, AllSamples: true})
	s.clock.foreign = false
	now := time.Now().UnixMicro()
	hour := time.Hour.Microseconds()
	s.watches.slots[0].at, s.watches.slots[0].date = now-1e6, (now-1e6)*1000
	var b gpu.Batch
	for i, at := range []int64{now, now + 1e6, now + 2e6 - hour, now + 3e6 - hour} {
		e.samples = samplesAt(150, at)
		b.Reset()
		s.each(readout{samples: e.samples}, nil, func(row, f int, x *sample) {
			s.addSample(&b, row, f, x, nil)
		})
		if len(b.Trails) != 1 || b.Trails[0].Time != at*1000 || len(b.Samples) != 1 || b.Samples[0] != b.Trails[0] {
			t.Errorf("sample %d with time %d: trail = %v, newest = %v, want only this sample in both", i, at*1000,
				b.Trails, b.Samples)
		}
	}
}

// A trail has the samples since the last one read. It includes the newest sample even if the engine has dropped it.
func TestTrailOfAHistory(t *testing.T) {
	now := time.Now().UnixMicro()
	for name, tt := range map[string]struct{ history, want []int64 }{
		"kept":             {[]int64{now - 10e6, now - 5e6, now}, []int64{now - 5e6, now}},
		"forgotten":        {[]int64{now - 10e6}, []int64{now}},
		"newest forgotten": {[]int64{now - 10e6, now - 5e6}, []int64{now - 5e6, now}},
	} {
		s, w, e := oneWatch(gpu.Field{ID: 150, AllSamples: true})
		s.clock.foreign = false
		s.watches.slots[0].at, s.watches.slots[0].date = now-10e6, (now-10e6)*1000
		e.samples = samplesAt(150, now)
		for _, at := range tt.history {
			x := samplesAt(150, at)[0]
			if at < now {
				x.bits = 4
			}
			e.history = append(e.history, x)
		}
		b := readNewest(t, s)
		if err := s.readTrails(w, b); err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, x := range b.Trails {
			got = append(got, x.Time/1000)
		}
		newest := gpu.Sample{Value: gpu.Int(5), Time: now * 1000} // older samples have the value 4
		if !slices.Equal(got, tt.want) || !slices.Equal(b.Samples, []gpu.Sample{newest}) {
			t.Errorf("%s: trail = %v, want %v; newest = %v, want %v", name, got, tt.want, b.Samples, newest)
		}
	}
}

// The history of an entity is read from a new sample until lateXID has passed, and once more. The whole history is also
// read once a minute, for XIDs whose dates are minutes off.
func TestWhenHistoriesAreRead(t *testing.T) {
	s, _, e := oneWatch(gpu.Field{ID: 230})
	begin := time.Now()
	e.samples = samplesAt(230, begin.UnixMicro())
	e.history = append(e.samples, e.samples...) // two samples with the same date and code are two XIDs
	for _, step := range []struct {
		at      time.Duration
		reading bool
		xids    int
	}{
		{0, true, 2},
		{time.Second, true, 0},
		{lateXID - 1, true, 0},
		{lateXID + time.Second, true, 0},
		{lateXID + 2*time.Second, false, 0},
		{wholeHistoryInterval - 1, false, 0},
		{wholeHistoryInterval, true, 1},
		{wholeHistoryInterval + time.Second, false, 0},
		{2*wholeHistoryInterval - 1, false, 0},
		{2 * wholeHistoryInterval, true, 0},
	} {
		if step.at == wholeHistoryInterval {
			e.history = slices.Concat(samplesAt(230, begin.Add(-5*time.Minute).UnixMicro()), e.history)
		}
		e.reads = 0
		b := readNewest(t, s)
		if err := s.readXIDs(b, begin.Add(step.at), false); err != nil {
			t.Fatal(err)
		}
		if (e.reads > 0) != step.reading || len(b.XIDs) != step.xids {
			t.Errorf("after %v: reads of the history = %d, want some: %t; XIDs = %v, want %d", step.at, e.reads,
				step.reading, b.XIDs, step.xids)
		}
	}
}

// RetryRefused sets the delay before a rejected watch is tried again.
func (o Options) RetryRefused(every time.Duration) Options {
	o.retry = every
	return o
}

// DCGM can read every exportable field. A plan determines for which entities fields of the machine are read.
func TestReads(t *testing.T) {
	for e := range catalog.All() {
		if !e.Exportable() {
			continue
		}
		f := e.Field()
		if f.Levels.Has(gpu.KindNode) {
			if Reads(&gpu.Plan{Fields: []gpu.Field{f}}) {
				t.Errorf("%s: Reads = true for the machine itself, want false", e.Name)
			}
			f.Levels = gpu.KindsOf(gpu.KindGPU)
		}
		if !Reads(&gpu.Plan{Fields: []gpu.Field{f}, Health: gpu.KindsOf(gpu.KindGPU), Peers: true,
			Placement: true}) {
			t.Errorf("%s: Reads = false, want true", e.Name)
		}
	}
}
