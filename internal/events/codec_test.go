package events_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/statefile"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// unexported leaves out what is not kept.
var unexported = cmpopts.IgnoreUnexported(events.XIDCount{}, events.OwnerXIDs{}, events.Unpaired{}, events.ClockTotal{})

func example() *events.State {
	floor := int64(-9)
	return &events.State{
		Version: events.Version, KernelLog: "0b6e/42",
		GPUs: []events.GPUCounts{{
			UUID: "GPU-1", PCIBusID: "00000000:1B:00.0", LastXID: 5,
			Reports: &events.Reports{Known: []events.Report{{ID: -7, Code: 79, Count: 2}}, Floor: &floor},
			Owners: []events.OwnerXIDs{
				{XIDs: []events.XIDCount{{Code: 79, Count: 1, Last: 5}, {Code: -1, Count: 2}}},
				{Labels: []gpu.Label{{Name: "pod", Value: "a \"b\""}}, XIDs: []events.XIDCount{{Code: 48}}},
			},
			Unpaired: []events.Unpaired{{Kernel: true, Code: 79, Count: 2, From: 4, To: 5}},
			Clock:    []events.ClockTotal{{Event: "power_cap", Count: 3, Nanoseconds: 1e9}},
		}},
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"nothing":                    {"", statefile.ErrCorrupt},
		"no JSON":                    {"\x00\x01", statefile.ErrCorrupt},
		"half a file":                {`{"version":1,"gpus":[{"uuid":"GPU-1"`, statefile.ErrCorrupt},
		"no version":                 {`{}`, statefile.ErrCorrupt},
		"a later version":            {`{"version":3,"gpus":{}}`, statefile.ErrVersion},
		"an unknown key":             {`{"version":1,"color":"red"}`, statefile.ErrCorrupt},
		"more after the end":         {`{"version":1}{}`, statefile.ErrCorrupt},
		"a GPU without UUID":         {`{"version":1,"gpus":[{}]}`, statefile.ErrCorrupt},
		"two of a UUID":              {`{"version":1,"gpus":[{"uuid":"a"},{"uuid":"a"}]}`, statefile.ErrCorrupt},
		"a negative count":           {`{"version":1,"gpus":[{"uuid":"a","owners":[{"xids":[{"xid":1,"count":-1}]}]}]}`, statefile.ErrCorrupt},
		"negative time":              {`{"version":1,"gpus":[{"uuid":"a","clock":[{"event":"x","nanoseconds":-1}]}]}`, statefile.ErrCorrupt},
		"an end before a start":      {`{"version":1,"gpus":[{"uuid":"a","unpaired":[{"count":1,"from":2,"to":1}]}]}`, statefile.ErrCorrupt},
		"an XID that waits no times": {`{"version":1,"gpus":[{"uuid":"a","unpaired":[{"from":1,"to":2}]}]}`, statefile.ErrCorrupt},
		"a report of no XID":         {`{"version":2,"gpus":[{"uuid":"a","reports":{"known":[{"id":1,"count":1}]}}]}`, statefile.ErrCorrupt},
		"a report of none":           {`{"version":2,"gpus":[{"uuid":"a","reports":{"known":[{"id":1,"xid":1}]}}]}`, statefile.ErrCorrupt},
		"version 0":                  {`{"version":0}`, statefile.ErrCorrupt},
		"too large":                  {`{"version":1}` + strings.Repeat(" ", statefile.MaxSize), statefile.ErrCorrupt},
	} {
		if _, err := events.Decode([]byte(test.text)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// roundTrip fails unless s is the same after writing and reading it.
func roundTrip(t *testing.T, s *events.State) {
	t.Helper()
	text, err := events.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := events.Decode(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if diff := cmp.Diff(s, got, cmpopts.EquateEmpty(), unexported); diff != "" {
		t.Errorf("(-written +read)\n%s", diff)
	}
}

// The files that released exporters wrote are read, and what a Log keeps of them is the same as
// they say: the same bytes, but for the version, and for what version 1 called by a time.
func TestFilesOfReleasedExporters(t *testing.T) {
	for version := 1; version <= events.Version; version++ {
		text, err := os.ReadFile(fmt.Sprintf("testdata/state-v%d.json", version))
		if err != nil {
			t.Fatal(err)
		}
		s, err := events.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		again, err := events.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(string(text), fmt.Sprintf(`{"version":%d,`, version), fmt.Sprintf(`{"version":%d,`, events.Version), 1)
		if string(again) != want {
			t.Errorf("version %d is read and written as\n%s", version, again)
		}
		first := s.GPUs[0]
		if owner := first.Owners[1]; owner.Labels[2].Value != `a "b" <ü>` || owner.XIDs[0].Code != 31 || owner.XIDs[0].Count != 7 {
			t.Errorf("version %d: the second owner is %+v", version, owner)
		}
		if u := first.Unpaired[0]; !u.Kernel || u.Code != 79 || u.To-u.From != 1000 {
			t.Errorf("version %d: %+v waits", version, u)
		}
		if reports := first.Reports; version == 1 && (reports != nil || first.LastXID == 0) || version == 2 && (len(reports.Known) != 3 || *reports.Floor == 0) {
			t.Errorf("version %d: the reports are %+v, the last one is of %d", version, reports, first.LastXID)
		}
		synctest.Test(t, func(t *testing.T) { continues(t, s) })
	}
}

// continues fails unless a Log goes on from a state: what it keeps next is the same, but for the
// clock event that it does not know, and one XID more.
func continues(t *testing.T, s *events.State) {
	t.Helper()
	time.Sleep(time.Until(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))) // the bubble's clock, after what is kept
	var kept *events.State
	e := newEngine()
	uuid := s.GPUs[1].UUID
	e.topology = gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: uuid, PCIBusID: "00000000:2C:00.0"}})
	r := start(t, e.Open, func(o *loop.Options) {
		families(xidTotalFamily)(o)
		o.KernelLog, o.Kept, o.Save = &witness{}, s, func(s *events.State) { kept = s }
	})
	e.happen(time.Now(), 94)
	r.wait(interval)
	r.has(xidTotalFamily + "{0}[{xid 94}] 2")
	r.stop()
	want := *s
	want.GPUs = slices.Clone(s.GPUs)
	want.GPUs[0].Clock = want.GPUs[0].Clock[:1]
	want.GPUs[1].Owners = []events.OwnerXIDs{{XIDs: []events.XIDCount{{Code: 94, Count: 2}}}}
	if diff := cmp.Diff(want.GPUs, kept.GPUs, unexported, cmpopts.EquateEmpty(),
		cmp.FilterPath(func(p cmp.Path) bool { return strings.HasPrefix(p.String(), "Owners.XIDs.Last") }, cmp.Ignore()),
		cmpopts.IgnoreFields(events.GPUCounts{}, "Unpaired"),
		cmp.FilterPath(func(p cmp.Path) bool {
			return p.Index(1).String() == "[1]" && strings.HasPrefix(p.String(), "Reports") || strings.HasPrefix(p.String(), "PCIBusID")
		}, cmp.Ignore()),
	); diff != "" {
		t.Errorf("(-restored +kept)\n%s", diff)
	}
}

// FuzzDecode: any bytes are either a state, which is the same after writing and reading it again,
// or a typed error.
func FuzzDecode(f *testing.F) {
	text, err := events.Encode(example())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"gpus":[{"uuid":"\ud800","owners":[{"labels":[]}]}]}`))
	f.Add([]byte(`{"version":1,"gpus":[{"uuid":"a","last_xid":7}]}`))
	f.Add([]byte(`{"version":3}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := events.Decode(text)
		if err != nil {
			if s != nil || !errors.Is(err, statefile.ErrCorrupt) && !errors.Is(err, statefile.ErrVersion) {
				t.Errorf("state %v, error %v", s, err)
			}
			return
		}
		roundTrip(t, s)
	})
}

// FuzzEncode: any state that makes sense is read as it was written.
func FuzzEncode(f *testing.F) {
	f.Add(uint64(1), "pod", "a")
	f.Add(uint64(2), "", "ü\n\"")
	f.Fuzz(func(t *testing.T, seed uint64, name, value string) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := &events.State{Version: events.Version, KernelLog: strings.ToValidUTF8(value, "?")}
		for i := range r.IntN(4) {
			g := events.GPUCounts{UUID: string(rune('a'+i)) + strings.ToValidUTF8(name, "?"), LastXID: r.Int64()}
			for range r.IntN(3) {
				o := events.OwnerXIDs{XIDs: []events.XIDCount{{Code: r.Int64N(100) - 1, Count: r.Int64N(events.MaxCount + 1), Last: r.Int64()}}}
				if r.IntN(2) == 0 {
					o.Labels = []gpu.Label{{Name: strings.ToValidUTF8(name, "?"), Value: strings.ToValidUTF8(value, "?")}}
				}
				g.Owners = append(g.Owners, o)
			}
			from := r.Int64N(1 << 60)
			g.Unpaired = []events.Unpaired{{Kernel: r.IntN(2) == 0, Code: 1, Count: 1 + r.Int64N(9), From: from, To: from + r.Int64N(100)}}
			g.Clock = []events.ClockTotal{{Event: strings.ToValidUTF8(value, "?"), Count: r.Int64N(events.MaxCount + 1), Nanoseconds: r.Int64() >> 1}}
			s.GPUs = append(s.GPUs, g)
		}
		roundTrip(t, s)
	})
}

// Counts near the limit of int64 do not turn negative by what is added.
func TestAddedCountsSaturate(t *testing.T) {
	text := []byte(`{"version":2,"gpus":[{"uuid":"a","owners":[{"xids":[{"xid":62,"count":9223372036854775807}]}],"clock":[{"event":"power","count":9223372036854775807,"nanoseconds":9223372036854775807}]}]}`)
	s, err := events.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		again, err := events.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		events.Form().Add(s, again)
	}
	x, c := s.GPUs[0].Owners[0].XIDs[0], s.GPUs[0].Clock[0]
	if x.Count != events.MaxCount || c.Count != events.MaxCount || c.Nanoseconds < 0 || c.Nanoseconds+int64(100*365*24*3600*1e9) < 0 {
		t.Errorf("%+v %+v", x, c)
	}
}

// What an earlier file has is added by GPU, by owner and by XID.
func TestAdd(t *testing.T) {
	decode := func(text string) *events.State {
		s, err := events.Decode([]byte(`{"version":2,"gpus":[` + text + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := decode(`{"uuid":"a","owners":[{"xids":[{"xid":62,"count":1,"last":9}]}],"clock":[{"event":"x","count":1,"nanoseconds":2}]},{"uuid":"b","owners":[{"xids":[{"xid":1,"count":7}]}]}`)
	events.Form().Add(s, decode(`{"uuid":"a","owners":[{"xids":[{"xid":62,"count":4,"last":8},{"xid":63,"count":5}]},{"labels":[{"name":"pod","value":"p"}],"xids":[{"xid":62,"count":6}]}],"clock":[{"event":"x","count":3,"nanoseconds":4},{"event":"y","count":1,"nanoseconds":1}]},{"uuid":"c","owners":[{"xids":[{"xid":2,"count":8}]}]}`))
	want := decode(`{"uuid":"a","owners":[{"xids":[{"xid":62,"count":5,"last":9},{"xid":63,"count":5}]},{"labels":[{"name":"pod","value":"p"}],"xids":[{"xid":62,"count":6}]}],"clock":[{"event":"x","count":4,"nanoseconds":6},{"event":"y","count":1,"nanoseconds":1}]},{"uuid":"b","owners":[{"xids":[{"xid":1,"count":7}]}]},{"uuid":"c","owners":[{"xids":[{"xid":2,"count":8}]}]}`)
	if diff := cmp.Diff(want, s, unexported); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
