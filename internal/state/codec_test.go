package state_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/internal/state"
)

func example() *state.State {
	return &state.State{
		Version: state.Version, KernelLog: "0b6e/42",
		GPUs: []state.GPU{{
			UUID: "GPU-1", PCIBusID: "00000000:1B:00.0", LastXID: 5,
			Owners: []state.Owner{
				{XIDs: []state.XID{{Code: 79, Count: 1, Last: 5}, {Code: -1, Count: 2}}},
				{Labels: []state.Label{{Name: "pod", Value: "a \"b\""}}, XIDs: []state.XID{{Code: 48}}},
			},
			Unpaired: []state.Unpaired{{Kernel: true, Code: 79, Count: 2, From: 4, To: 5}},
			Clock:    []state.Clock{{Event: "power_cap", Count: 3, Nanoseconds: 1e9}},
		}},
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"nothing":                    {"", state.ErrCorrupt},
		"no JSON":                    {"\x00\x01", state.ErrCorrupt},
		"half a file":                {`{"version":1,"gpus":[{"uuid":"GPU-1"`, state.ErrCorrupt},
		"no version":                 {`{}`, state.ErrCorrupt},
		"a later version":            {`{"version":2,"gpus":{}}`, state.ErrVersion},
		"an unknown key":             {`{"version":1,"color":"red"}`, state.ErrCorrupt},
		"more after the end":         {`{"version":1}{}`, state.ErrCorrupt},
		"a GPU without UUID":         {`{"version":1,"gpus":[{}]}`, state.ErrCorrupt},
		"two of a UUID":              {`{"version":1,"gpus":[{"uuid":"a"},{"uuid":"a"}]}`, state.ErrCorrupt},
		"a negative count":           {`{"version":1,"gpus":[{"uuid":"a","owners":[{"xids":[{"xid":1,"count":-1}]}]}]}`, state.ErrCorrupt},
		"negative time":              {`{"version":1,"gpus":[{"uuid":"a","clock":[{"event":"x","nanoseconds":-1}]}]}`, state.ErrCorrupt},
		"an end before a start":      {`{"version":1,"gpus":[{"uuid":"a","unpaired":[{"count":1,"from":2,"to":1}]}]}`, state.ErrCorrupt},
		"an XID that waits no times": {`{"version":1,"gpus":[{"uuid":"a","unpaired":[{"from":1,"to":2}]}]}`, state.ErrCorrupt},
		"too large":                  {`{"version":1}` + strings.Repeat(" ", state.MaxSize), state.ErrCorrupt},
	} {
		if _, err := state.Decode([]byte(test.text)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// roundTrip fails unless s is the same after writing and reading it.
func roundTrip(t *testing.T, s *state.State) {
	t.Helper()
	text, err := state.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := state.Decode(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if diff := cmp.Diff(s, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-written +read)\n%s", diff)
	}
}

// FuzzDecode: any bytes are either a state, which is the same after writing and
// reading it again, or a typed error.
func FuzzDecode(f *testing.F) {
	text, err := state.Encode(example())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"gpus":[{"uuid":"\ud800","owners":[{"labels":[]}]}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := state.Decode(text)
		if err != nil {
			if s != nil || !errors.Is(err, state.ErrCorrupt) && !errors.Is(err, state.ErrVersion) {
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
		s := &state.State{Version: state.Version, KernelLog: strings.ToValidUTF8(value, "?")}
		for i := range r.IntN(4) {
			g := state.GPU{UUID: string(rune('a'+i)) + strings.ToValidUTF8(name, "?"), LastXID: r.Int64()}
			for range r.IntN(3) {
				o := state.Owner{XIDs: []state.XID{{Code: r.Int64N(100) - 1, Count: r.Int64(), Last: r.Int64()}}}
				if r.IntN(2) == 0 {
					o.Labels = []state.Label{{Name: strings.ToValidUTF8(name, "?"), Value: strings.ToValidUTF8(value, "?")}}
				}
				g.Owners = append(g.Owners, o)
			}
			from := r.Int64N(1 << 60)
			g.Unpaired = []state.Unpaired{{Kernel: r.IntN(2) == 0, Code: 1, Count: 1 + r.Int64N(9), From: from, To: from + r.Int64N(100)}}
			g.Clock = []state.Clock{{Event: strings.ToValidUTF8(value, "?"), Count: r.Int64(), Nanoseconds: r.Int64()}}
			s.GPUs = append(s.GPUs, g)
		}
		roundTrip(t, s)
	})
}
