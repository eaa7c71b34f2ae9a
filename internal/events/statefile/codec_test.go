package statefile_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events/statefile"
)

func example() *statefile.State {
	floor := int64(-9)
	return &statefile.State{
		Version: statefile.Version, KernelLog: "0b6e/42",
		GPUs: []statefile.GPU{{
			UUID: "GPU-1", PCIBusID: "00000000:1B:00.0", LastXID: 5,
			Reports: &statefile.Reports{Known: []statefile.Report{{ID: -7, Code: 79, Count: 2}}, Floor: &floor},
			Owners: []statefile.Owner{
				{XIDs: []statefile.XID{{Code: 79, Count: 1, Last: 5}, {Code: -1, Count: 2}}},
				{Labels: []statefile.Label{{Name: "pod", Value: "a \"b\""}}, XIDs: []statefile.XID{{Code: 48}}},
			},
			Unpaired: []statefile.Unpaired{{Kernel: true, Code: 79, Count: 2, From: 4, To: 5}},
			Clock:    []statefile.Clock{{Event: "power_cap", Count: 3, Nanoseconds: 1e9}},
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
		if _, err := statefile.Decode([]byte(test.text)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// roundTrip fails unless s is the same after writing and reading it.
func roundTrip(t *testing.T, s *statefile.State) {
	t.Helper()
	text, err := statefile.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := statefile.Decode(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if diff := cmp.Diff(s, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-written +read)\n%s", diff)
	}
}

// The form of the exporters before this one is read.
func TestDecodeVersion1(t *testing.T) {
	s, err := statefile.Decode([]byte(`{"version":1,"kernel_log":"b/1","gpus":[{"uuid":"GPU-1","last_xid":5,"owners":[{"xids":[{"xid":79,"count":1,"last":5}]}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &statefile.State{Version: statefile.Version, KernelLog: "b/1", GPUs: []statefile.GPU{{
		UUID: "GPU-1", LastXID: 5, Owners: []statefile.Owner{{XIDs: []statefile.XID{{Code: 79, Count: 1, Last: 5}}}},
	}}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// FuzzDecode: any bytes are either a state, which is the same after writing and
// reading it again, or a typed error.
func FuzzDecode(f *testing.F) {
	text, err := statefile.Encode(example())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"gpus":[{"uuid":"\ud800","owners":[{"labels":[]}]}]}`))
	f.Add([]byte(`{"version":1,"gpus":[{"uuid":"a","last_xid":7}]}`))
	f.Add([]byte(`{"version":3}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := statefile.Decode(text)
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
		s := &statefile.State{Version: statefile.Version, KernelLog: strings.ToValidUTF8(value, "?")}
		for i := range r.IntN(4) {
			g := statefile.GPU{UUID: string(rune('a'+i)) + strings.ToValidUTF8(name, "?"), LastXID: r.Int64()}
			for range r.IntN(3) {
				o := statefile.Owner{XIDs: []statefile.XID{{Code: r.Int64N(100) - 1, Count: r.Int64N(statefile.MaxCount + 1), Last: r.Int64()}}}
				if r.IntN(2) == 0 {
					o.Labels = []statefile.Label{{Name: strings.ToValidUTF8(name, "?"), Value: strings.ToValidUTF8(value, "?")}}
				}
				g.Owners = append(g.Owners, o)
			}
			from := r.Int64N(1 << 60)
			g.Unpaired = []statefile.Unpaired{{Kernel: r.IntN(2) == 0, Code: 1, Count: 1 + r.Int64N(9), From: from, To: from + r.Int64N(100)}}
			g.Clock = []statefile.Clock{{Event: strings.ToValidUTF8(value, "?"), Count: r.Int64N(statefile.MaxCount + 1), Nanoseconds: r.Int64() >> 1}}
			s.GPUs = append(s.GPUs, g)
		}
		roundTrip(t, s)
	})
}
