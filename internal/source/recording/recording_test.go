package recording_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/recording"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
	"github.com/gpu-telemetry/dcgm-exporter/tests/contract"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// record records a few reads of a source, ten seconds apart.
func record(t testing.TB, c *simulated.Clock, src collector.Source, plan *gpu.Plan, reads int) *recording.Recording {
	t.Helper()
	s, err := src.Open(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rec := recording.New(s.Topology(), plan)
	b := gpu.Batch{RequestProcesses: make([]bool, len(s.Topology().Devices))}
	for row := range b.RequestProcesses {
		b.RequestProcesses[row] = true
	}
	for i := range reads {
		if i > 0 {
			c.Pass(10 * time.Second)
		}
		b.Reset()
		if err := s.Read(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		rec.Add(c.Now(), &b)
	}
	return rec
}

// recordNode records a node of the simulator.
func recordNode(t testing.TB, node, faults string, plan *gpu.Plan, reads int) *recording.Recording {
	t.Helper()
	c := simulated.NewClock()
	o := sim.Options{Node: node, Seed: 1, Now: c.Now}
	if faults != "" {
		o.Scenario = simulated.Scenario(t, faults)
	}
	src, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return record(t, c, collector.SourceOf(src.Open), plan, reads)
}

func written(t testing.TB, rec *recording.Recording) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := rec.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// same compares recordings by what they say.
var same = cmp.Options{
	cmp.Comparer(func(a, b gpu.Value) bool { return a == b }),
	cmpopts.IgnoreUnexported(gpu.Topology{}, recording.Recording{}),
	cmpopts.EquateErrors(), cmpopts.EquateEmpty(),
}

// Files of version 1 are written as they were read.
func TestVersion1(t *testing.T) {
	files, err := filepath.Glob("testdata/v1/*.json.gz")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		packed, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := recording.Parse(bytes.NewReader(packed), file)
		if err != nil {
			t.Fatal(err)
		}
		if got := written(t, rec); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, written again %d others", file, len(want), len(got))
		}
	}
}

func TestRecordingComesBackAsWritten(t *testing.T) {
	for _, node := range sim.Nodes() {
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			plan := simulated.Plan()
			plan.Health, plan.Peers, plan.Placement = true, true, true
			rec := recordNode(t, node, `faults: [{fault: absent, at: 5s, for: 10s, fields: ["155"]}]`, plan, 2)
			rec.Pods[4000] = "a"
			got, err := recording.Parse(bytes.NewReader(written(t, rec)), "x.json")
			if err != nil {
				t.Fatal(err)
			}
			if node == "single" { // comparing the largest value by value takes long
				if diff := cmp.Diff(rec, got, same); diff != "" {
					t.Errorf("recording (-want +got):\n%s", diff)
				}
			}
			if !bytes.Equal(written(t, rec), written(t, got)) {
				t.Error("it is written otherwise than before")
			}
		})
	}
}

func TestReplayKeepsTheContract(t *testing.T) {
	plan := simulated.Plan()
	sampled := simulated.TrailPower(plan)
	for _, node := range []string{"single", "a100-mig", "grace-hopper"} {
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			rec := recordNode(t, node, `
faults:
  - {fault: xid, at: 8s, devices: ["0"], xids: [62, 45], apart: 1ms}
  - {fault: gpu-lost, at: 40s, devices: ["0"]}
`+simulated.PowerFaults(), plan, 7)
			c := simulated.NewClock()
			var src *recording.Source
			contract.Run(t, contract.Fixture{
				Plan:    plan,
				Sampled: sampled,
				Sample:  c.NextPower,
				Now:     c.Now,
				New: func(*testing.T) collector.Source {
					c.At(0)
					src = recording.NewSource(rec, recording.Options{Now: c.Now})
					return collector.SourceOf(src.Open)
				},
				Settle:      func(*testing.T) { c.Pass(10 * time.Second) },
				Lose:        func(*testing.T, int) { c.At(30 * time.Second) },
				OpenHandles: func(*testing.T) int { return src.OpenHandles() },
			})
		})
	}
}

// reader reads a session, values by field of row 0.
func readOnce(t testing.TB, s *recording.Session, plan *gpu.Plan) (map[gpu.FieldID]gpu.Value, *gpu.Batch) {
	t.Helper()
	b := &gpu.Batch{}
	if err := s.Read(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	values := map[gpu.FieldID]gpu.Value{}
	for _, x := range b.Samples {
		if x.Row == 0 {
			values[plan.Fields[x.Field].ID] = x.Value
		}
	}
	return values, b
}

// Over many rounds a counter never falls, and grows at the pace of the recording.
func TestCountersGrowFromRoundToRound(t *testing.T) {
	const energy gpu.FieldID = 156
	plan := simulated.Plan(energy, catalog.GPUTemp)
	rec := recordNode(t, "single", "", plan, 4)
	c := simulated.NewClock()
	s, err := recording.NewSource(rec, recording.Options{Now: c.Now}).Open(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var series []float64
	temps := map[string]bool{}
	for range 41 {
		values, _ := readOnce(t, s, plan)
		x, _ := values[energy].Number()
		series = append(series, x)
		temps[values[catalog.GPUTemp].String()] = true
		c.Pass(10 * time.Second)
	}
	for i := 1; i < len(series); i++ {
		if series[i] < series[i-1] {
			t.Errorf("read %d: %v after %v", i, series[i], series[i-1])
		}
	}
	recorded := (series[3] - series[0]) / 3
	if pace := (series[40] - series[0]) / 40; pace < recorded*0.99 || pace > recorded*1.01 {
		t.Errorf("it grows by %v a read, recorded was %v", pace, recorded)
	}
	if len(temps) > 4 {
		t.Errorf("%d temperatures, 4 at most were recorded", len(temps))
	}
}

// XIDs happen again in every round, each exactly once. A new session begins with the last one.
func TestEventsBefallAnew(t *testing.T) {
	plan := simulated.Plan(catalog.XIDErrors)
	rec := recordNode(t, "single", `
faults: [{fault: xid, at: 12s, devices: ["0"], xids: [62, 45], apart: 1ms}]`, plan, 4)
	c := simulated.NewClock()
	s, err := recording.NewSource(rec, recording.Options{Now: c.Now}).Open(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	type event struct {
		At  time.Duration
		XID string
	}
	var got []event
	for range 20 { // two rounds of 40 s, and a half
		_, b := readOnce(t, s, plan)
		for _, x := range b.XIDs {
			got = append(got, event{time.Duration(x.Time - simulated.Epoch.UnixNano()), fmt.Sprint(x.Code)})
		}
		c.Pass(5 * time.Second)
	}
	want := []event{
		{12 * time.Second, "62"}, {12*time.Second + time.Millisecond, "45"},
		{52 * time.Second, "62"}, {52*time.Second + time.Millisecond, "45"},
		{92 * time.Second, "62"}, {92*time.Second + time.Millisecond, "45"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("XIDs (-want +got):\n%s", diff)
	}
	again, err := recording.NewSource(rec, recording.Options{Now: c.Now, Start: simulated.Epoch}).Open(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, b := readOnce(t, again, plan); len(b.XIDs) != 1 || b.XIDs[0].Code != 45 || b.XIDs[0].ID != simulated.Epoch.Add(want[5].At).UnixNano() {
		t.Errorf("a new session begins with %+v", b.XIDs)
	}
}

func TestReplaySaysWhatWasNotRecorded(t *testing.T) {
	rec := recordNode(t, "single", "", simulated.Plan(catalog.GPUTemp), 2)
	plan := simulated.Plan(catalog.GPUTemp, catalog.FBUsed)
	s, err := recording.NewSource(rec, recording.Options{}).Open(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, b := readOnce(t, s, plan)
	if len(b.Samples) != 1 || len(b.Faults) != 1 || !errors.Is(b.Faults[0].Err, gpu.ErrNotSupported) || plan.Fields[b.Faults[0].Field].ID != catalog.FBUsed {
		t.Errorf("samples %v, faults %v", b.Samples, b.Faults)
	}
}

// A recording keeps compute instances, and plays with or without them.
func TestRecordedComputeInstances(t *testing.T) {
	rec := recordNode(t, "divided", "", simulated.Plan(catalog.ProfGREngineActive), 3)
	back, err := recording.Parse(bytes.NewReader(written(t, rec)), "x.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rec, back, same); diff != "" {
		t.Errorf("recording (-want +got):\n%s", diff)
	}
	for name, sel := range map[string]gpu.Selector{
		"f": {Flex: true}, "f+c": {Flex: true, Compute: true}, "i:19+c": {Minor: true, MinorIDs: []uint32{19}, Compute: true},
	} {
		plan := simulated.Plan(catalog.ProfGREngineActive)
		plan.Devices = sel
		src, err := sim.New(sim.Options{Node: "divided", Seed: 1, Now: simulated.NewClock().Now})
		if err != nil {
			t.Fatal(err)
		}
		node, err := src.Open(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		var want gpu.Batch
		if err := node.Read(t.Context(), &want); err != nil {
			t.Fatal(err)
		}
		c := simulated.NewClock()
		s, err := recording.NewSource(back, recording.Options{Now: c.Now}).Open(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		var b gpu.Batch
		if err := s.Read(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(node.Topology(), s.Topology(), same); diff != "" {
			t.Errorf("%s: topology (-want +got):\n%s", name, diff)
		}
		served := func(top *gpu.Topology, b *gpu.Batch) map[int]gpu.Value {
			list := map[int]gpu.Value{}
			for _, x := range b.Samples {
				if top.Serves(&plan.Fields[x.Field], x.Row) {
					list[x.Row] = x.Value
				}
			}
			return list
		}
		if diff := cmp.Diff(served(node.Topology(), &want), served(s.Topology(), &b), same); diff != "" {
			t.Errorf("%s: values (-want +got):\n%s", name, diff)
		}
		s.Close()
		node.Close()
	}
}

const (
	head = `{"recording":{"format":"dcgm-exporter recording","version":1,"masked":true,"interval_us":1000000,"source":"dcgm"}}` + "\n"
	card = `{"device":{"kind":"GPU","id":0,"uuid":"GPU-1","pci_bus_id":"0","model":"T4"}}` + "\n"
	temp = `{"field":{"id":150,"unit":"celsius"}}` + "\n"
	one  = `{"read":{"at_us":0,"samples":[{"field":0,"rows":[0],"values":[41]}]}}` + "\n"
	last = `{"end":{"reads":1}}` + "\n"
)

func TestBadRecordings(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "x.json: the file is empty, expected a recording of dcgm-exporter record"},
		{"another file", "name: demo\n", "x.json:1: found no recording of dcgm-exporter record (column 2: invalid character 'a' in literal null (expecting 'u'))"},
		{"another version", strings.Replace(head, `"version":1`, `"version":9`, 1), "x.json:1: version 9 of the format, this program reads version 1"},
		{"no header", card, "x.json:1: found device, expected the line that begins a recording"},
		{"cut at a line", head + card + temp + one, "x.json:5: the recording ends without its last line: the file was cut off"},
		{"cut in a line", head + card + temp + one[:30], "x.json:4: the line is cut off"},
		{"unknown kind", head + strings.Replace(card, `"GPU"`, `"GPUs"`, 1), `x.json:2: unknown kind "GPUs" of a device, did you mean "GPU"?`},
		{"unknown key", head + `{"devise":{}}`, `x.json:2: unknown field "devise"`},
		{"twice", head + card + card, "x.json:3: GPU 0 again"},
		{"row", head + card + temp + strings.Replace(one, `[0]`, `[7]`, 1), "x.json:4: row 7, the recording has 1 devices before this line"},
		{"field", head + card + one, "x.json:3: samples of field 0, the recording has 0 fields before this line"},
		{"type", head + card + temp + strings.Replace(one, `41`, `"hot"`, 1), "x.json:4: field 150 (DCGM_FI_DEV_GPU_TEMP_CELSIUS) has the value \"hot\", expected a value of type integer"},
		{"value", head + card + temp + strings.Replace(one, `41`, `null`, 1), "x.json:4: found the value null, expected a number or a text"},
		{"lengths", head + card + temp + strings.Replace(one, `41`, `41,42`, 1), "x.json:4: field 150 has 1 rows, 2 values and 0 ages, expected as many of each (or no ages)"},
		{"shape", head + card + `{"field":{"id":"x"}}`, "x.json:3: column 18: field.id is a string, expected an integer (uint16)"},
		{"part", head + card + `{"part":{"instance":0,"id":0}}`, "x.json:3: a part of row 0, expected the row of a GPU instance"},
		{"part of nothing", head + `{"part":{"instance":0,"id":0}}`, "x.json:2: a part of row 0, expected the row of a GPU instance"},
		{"time", head + card + temp + one + one + last, "x.json:5: the read at 0 us comes behind one at 0 us, expected a later one"},
		{"reads", head + card + temp + one + `{"end":{"reads":2}}`, "x.json:5: the end says 2 reads, found 1; expected one at least"},
		{"more", head + card + temp + one + last + one, "x.json:6: found read behind the end of the recording"},
		{"two on a line", head + card + temp + strings.TrimSpace(one) + last, "x.json:4: column 70: found \"{\\\"end\\\":{\\\"reads\\\":1}}\" behind the object, expected the end of the line"},
		{"reason", head + card + temp + `{"read":{"at_us":0,"faults":[{"field":-1,"rows":[0],"reason":"los"}]}}`, `x.json:4: unknown reason "los", did you mean "lost"?`},
		{"pair", head + card + `{"pair":{"a":0,"b":0}}`, "x.json:3: a pair of rows 0 and 0, expected two GPUs, the smaller row first"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := recording.Parse(strings.NewReader(tt.text), "x.json")
			var syntax *text.SyntaxError
			if !errors.As(err, &syntax) || err.Error() != tt.want {
				t.Errorf("error  %v\nwanted %s", err, tt.want)
			}
		})
	}
}

func zipped(t testing.TB, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Wherever a file is cut off, compressed or not, the error says so.
func TestCutRecordings(t *testing.T) {
	plain := []byte(head + card + temp + one + last)
	for name, whole := range map[string][]byte{"plain": plain[:len(plain)-1], "gzip": zipped(t, plain)} {
		if _, err := recording.Parse(bytes.NewReader(whole), "x"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for n := range len(whole) {
			var syntax *text.SyntaxError
			if _, err := recording.Parse(bytes.NewReader(whole[:n]), "x"); !errors.As(err, &syntax) {
				t.Fatalf("%s, the first %d bytes of %d: %v", name, n, len(whole), err)
			}
		}
	}
}

func TestRecordingsHaveALimit(t *testing.T) {
	bomb := zipped(t, append([]byte(head), bytes.Repeat([]byte(" "), recording.MaxSize)...))
	if _, err := recording.Parse(bytes.NewReader(bomb), "x"); err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("error %v", err)
	}
}

// Any bytes are refused with their place, or they are a recording that comes back as written and
// plays within the contract.
func FuzzRecording(f *testing.F) {
	plan := simulated.Plan(catalog.GPUTemp, catalog.DriverVersion, catalog.XIDErrors, catalog.ClocksEventReasons, 156)
	plan.Health, plan.Peers, plan.Placement = true, true, true
	f.Add(written(f, recordNode(f, "single", `faults: [{fault: xid, at: 2s, devices: ["0"], xids: [62]}]`, plan, 2)), uint16(7))
	f.Add([]byte(head+card+temp+one+last), uint16(0))
	f.Add(zipped(f, []byte(head+card+temp+one+last)), uint16(60000))
	f.Fuzz(func(t *testing.T, data []byte, step uint16) {
		rec, err := recording.Parse(bytes.NewReader(data), "x.json")
		if err != nil {
			var syntax *text.SyntaxError
			if !errors.As(err, &syntax) || syntax.File != "x.json" {
				t.Fatalf("%v does not say where", err)
			}
			return
		}
		again, err := recording.Parse(bytes.NewReader(written(t, rec)), "x.json")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rec, again, same); diff != "" {
			t.Fatalf("recording (-want +got):\n%s", diff)
		}
		c := simulated.NewClock()
		s, err := recording.NewSource(rec, recording.Options{Now: c.Now}).Open(context.Background(), plan)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range 4 {
			b := gpu.Batch{RequestProcesses: make([]bool, len(s.Topology().Devices))}
			if err := s.Read(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
			for _, x := range b.Samples {
				if x.Value.IsAbsent() || x.Time > c.Now().UnixNano() || x.Time <= 0 {
					t.Fatalf("sample %+v at %v", x, c.Now())
				}
				if !plan.Fields[x.Field].Levels.Has(s.Topology().Devices[x.Row].Entity.Kind) {
					t.Fatalf("sample %+v of %v", x, s.Topology().Devices[x.Row].Entity)
				}
			}
			c.Pass(time.Duration(step) * time.Second)
		}
	})
}
