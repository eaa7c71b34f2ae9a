package recording_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/recording"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// plays reads a recording for a while.
func plays(t *testing.T, rec *recording.Recording, plan *gpu.Plan) {
	t.Helper()
	c := simulated.NewClock()
	s, err := recording.NewSource(rec, recording.Options{Now: c.Now}).Open(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 3 {
		b := gpu.Batch{RequestProcesses: make([]bool, len(s.Topology().Devices))}
		if err := s.Read(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		c.Pass(7 * time.Second)
	}
}

// Whatever happens to the bytes of a real recording, it is refused with one line that says where,
// or it plays.
func TestDamagedRecordings(t *testing.T) {
	plan := simulated.Plan(catalog.GPUTemp, catalog.DriverVersion, catalog.PowerUsage, catalog.ClocksEventReasons)
	plan.Health, plan.Peers, plan.Placement = true, true, true
	whole := written(t, recordNode(t, "shared", `faults: [{fault: absent, at: 5s, for: 10s, fields: ["155"]}]`, plan, 2))
	rng := rand.New(rand.NewPCG(1, 2))
	damages := map[string]func([]byte) []byte{
		"a byte is another": func(b []byte) []byte { b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255)); return b },
		"a piece is lost": func(b []byte) []byte {
			from := rng.IntN(len(b))
			return append(b[:from], b[min(from+rng.IntN(200), len(b)):]...)
		},
		"a piece is there twice": func(b []byte) []byte {
			from := rng.IntN(len(b))
			to := min(from+rng.IntN(200), len(b))
			return bytes.Join([][]byte{b[:to], b[from:]}, nil)
		},
		"lines change places": func(b []byte) []byte {
			lines := bytes.SplitAfter(b, []byte("\n"))
			i, j := rng.IntN(len(lines)), rng.IntN(len(lines))
			lines[i], lines[j] = lines[j], lines[i]
			return bytes.Join(lines, nil)
		},
		"a number is large": func(b []byte) []byte {
			at := rng.IntN(len(b))
			digit := bytes.IndexAny(b[at:], "0123456789")
			if digit < 0 {
				return b[:at]
			}
			return bytes.Join([][]byte{b[:at+digit], b[at+digit+1:]}, []byte("99999999999999999999"))
		},
	}
	refused := 0
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		for range 150 {
			b := damages[name](bytes.Clone(whole))
			compressed := rng.IntN(4) == 0
			if compressed {
				b = zipped(t, b)
			}
			rec, err := recording.Parse(bytes.NewReader(b), "x.json")
			if err == nil {
				plays(t, rec, plan)
				continue
			}
			refused++
			var syntax *text.SyntaxError
			if !errors.As(err, &syntax) || syntax.File != "x.json" || strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
				t.Fatalf("%s: %q", name, err)
			}
			if lines := bytes.Count(whole, []byte("\n")) + 2; syntax.Line > lines {
				t.Fatalf("%s: %q of %d lines", name, err, lines)
			}
		}
	}
	if refused < 300 {
		t.Errorf("only %d of %d were refused", refused, 150*len(damages))
	}
	for range 150 { // what is compressed has a sum of its own
		b := zipped(t, whole)
		b[10+rng.IntN(len(b)-10)] ^= byte(1 + rng.IntN(255))
		var syntax *text.SyntaxError
		if rec, err := recording.Parse(bytes.NewReader(b), "x.json"); err == nil {
			plays(t, rec, plan)
		} else if !errors.As(err, &syntax) {
			t.Fatalf("compressed: %v", err)
		}
	}
}

// A small file cannot take much memory: not by many samples in few bytes, nor by a line without
// end.
func TestRecordingsOfLittleTakeLittle(t *testing.T) {
	many := func(n int) string { // faults, which are the smallest
		return fmt.Sprintf(`"faults":[{"field":0,"reason":"lost","rows":[%s]}]`, strings.TrimSuffix(strings.Repeat("0,", n), ","))
	}
	reads := func(n, each int) []byte {
		b := bytes.NewBufferString(head + card + temp)
		body := many(each)
		for i := range n {
			fmt.Fprintf(b, `{"read":{"at_us":%d,%s}}`+"\n", i, body)
		}
		return b.Bytes()
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"a long line":              {reads(1, 5<<20), "the line is longer than 8 MiB"},
		"many samples":             {reads(11, 400_000), "more than 4194304 samples"},
		"a line without an end":    {append([]byte(head), bytes.Repeat([]byte("["), 9<<20)...), "the line is longer than 8 MiB"},
		"brackets within brackets": {append([]byte(head), bytes.Repeat([]byte("["), 1<<20)...), "x.json:2: "},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := recording.Parse(bytes.NewReader(zipped(t, c.file)), "x.json")
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 400 {
				t.Errorf("error %.300v", err)
			}
			// All that was ever allocated, so that the collector's mood does not matter.
			if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 1500 {
				t.Errorf("%d MiB were allocated", n)
			}
		})
	}
}

// What the reader would refuse is not written.
func TestTooLargeRecordingsAreNotWritten(t *testing.T) {
	rec := recordNode(t, "single", "", simulated.Plan(catalog.GPUTemp), 1)
	faults := func(n, row int) {
		rec.Reads[0].Faults = []recording.Faults{{Rows: slices.Repeat([]int{row}, n), Reason: "lost"}}
	}
	faults(5<<20, 0)
	if err := rec.Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "more than 4194304 samples in 1 of 1 reads: record fewer") {
		t.Errorf("error %v", err)
	}
	faults(3<<19, 10000)
	if err := rec.Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "a line of the recording is longer than 8 MiB") {
		t.Errorf("error %v", err)
	}
}
