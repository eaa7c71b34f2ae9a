package record_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/commandtest"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/record"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/recording"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// shot is one run of the subcommand.
type shot struct {
	commandtest.World
	code  int
	files map[string][]byte
}

// run runs the subcommand on a source.
func run(ctx context.Context, source app.Backend, limit time.Duration, args ...string) *shot {
	s := &shot{files: map[string][]byte{}}
	s.code = record.Command{
		Process: s.Process(args...), Limit: limit,
		Open: func(context.Context, *config.Config, *gpu.Plan) (app.Backend, error) { return source, nil },
		WriteFile: func(name string, data []byte) error {
			s.files[name] = data
			return nil
		},
	}.Run(ctx)
	return s
}

// recording is what was written to r.json.
func (s *shot) recording(t *testing.T) *recording.Recording {
	t.Helper()
	rec, err := recording.Parse(bytes.NewReader(s.files["r.json"]), "r.json")
	if err != nil {
		t.Fatalf("%v\n%s", err, &s.Err)
	}
	return rec
}

func simulated(t *testing.T, o sim.Options) (*sim.Source, app.Backend) {
	t.Helper()
	o.Seed = 1
	src, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return src, app.Backend{Source: collector.SourceOf(src.Open), Attributors: []collector.Attributor{src}, PodOf: src.PodOf}
}

func replayed(rec *recording.Recording) app.Backend {
	src := recording.NewSource(rec, recording.Options{})
	c := app.Backend{Source: collector.SourceOf(src.Open), PodOf: src.PodOf}
	for _, o := range src.Attributors() {
		c.Attributors = append(c.Attributors, o)
	}
	return c
}

// allCounters is a counters file with everything that there is.
func allCounters(t *testing.T) *gpu.Plan {
	t.Helper()
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	line := func(name, typ string) {
		if err := w.Write([]string{name, typ, "help"}); err != nil {
			t.Fatal(err)
		}
	}
	for e := range catalog.All() {
		switch {
		case !e.Exportable() || e.BaseOf != 0:
		case e.Type == catalog.Text:
			line(e.Classic, "label")
		default:
			line(e.Classic, "gauge")
		}
	}
	for _, f := range catalog.Families() {
		line(f.Name, f.Type.String())
	}
	w.Flush()
	cfg, err := config.Parse([]string{"-d=f+c"}, (&commandtest.World{}).Process().Env, nil)
	if err != nil {
		t.Fatal(err)
	}
	set, err := app.ParseCounters(cfg, "all.csv", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := set.Plan(cfg, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// page returns the names and labels of the series of a page.
func page(t *testing.T, source app.Backend, plan *gpu.Plan) []string {
	t.Helper()
	encoder := exposition.NewEncoder(exposition.Options{Hostname: "h"})
	var lines []string
	err := app.Collect(t.Context(), source, plan, 1, func(s *gpu.Snapshot) {
		p := encoder.Encode(s)
		defer p.Release()
		for line := range strings.Lines(string(p.Bytes())) {
			if at := strings.LastIndexByte(line, ' '); !strings.HasPrefix(line, "#") && at > 0 {
				line = line[:at]
			}
			if !strings.HasPrefix(line, "dcgm_exporter_source_info") {
				lines = append(lines, line)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

// identities are the texts of a node that distinguish it from others.
func identities(t *testing.T, source app.Backend, plan *gpu.Plan) []string {
	t.Helper()
	s, err := source.Source.Open(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var list []string
	for _, d := range s.Topology().Devices {
		list = append(list, d.UUID, d.MIGUUID, d.Serial)
	}
	for _, c := range s.Topology().ComputeInstances {
		list = append(list, c.UUID)
	}
	for _, a := range source.Attributors {
		owners, err := a.Attribute(t.Context(), s.Topology())
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range owners.Uses {
			for _, o := range u.Owners {
				list = append(list, o.PodUID, o.Pod)
				for _, l := range o.Labels {
					list = append(list, l.Value)
				}
			}
		}
	}
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(s string) bool { return s == "" })
}

// A replay's page has the families, labels and reasons of the original's, and masked it says
// nothing of it.
func TestReplayShowsWhatTheMachineShowed(t *testing.T) {
	plan := allCounters(t)
	for _, node := range sim.Nodes() {
		t.Run(node, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, source := simulated(t, sim.Options{Node: node})
				want := page(t, source, plan) // of the time of the first read
				open := run(t.Context(), source, 0, "--source=sim", "-d=f+c", "--unmasked", "--samples=2", "--out=r.json")
				if open.code != command.OK {
					t.Fatalf("code %d: %s", open.code, &open.Err)
				}
				if diff := gocmp.Diff(want, page(t, replayed(open.recording(t)), plan)); diff != "" {
					t.Errorf("series (-original +replay):\n%s", diff)
				}
				if len(want) < 100 {
					t.Errorf("%d lines only", len(want))
				}

				_, source = simulated(t, sim.Options{Node: node, Start: time.Now()})
				want = page(t, source, plan)
				masked := run(t.Context(), source, 0, "--source=sim", "-d=f+c", "--samples=2", "--out=r.json")
				for _, secret := range identities(t, source, plan) {
					if bytes.Contains(masked.files["r.json"], []byte(`"`+secret+`"`)) {
						t.Errorf("%q is in the masked recording", secret)
					}
				}
				// What is equal stays equal, and what differs goes on to differ.
				got := page(t, replayed(masked.recording(t)), plan)
				if diff := gocmp.Diff(shapes(want), shapes(got)); diff != "" {
					t.Errorf("shapes of series (-original +masked):\n%s", diff)
				}
				if n, m := len(slices.Compact(want)), len(slices.Compact(got)); n != m {
					t.Errorf("%d different series, masked %d", n, m)
				}
			})
		})
	}
}

// shapes counts the series by name and label names.
func shapes(lines []string) map[string]int {
	n := map[string]int{}
	for _, line := range lines {
		parts := strings.Split(line, `"`)
		for i := 1; i < len(parts); i += 2 {
			parts[i] = ""
		}
		n[strings.Join(parts, `"`)]++
	}
	return n
}

// staged is a source whose sessions have one topology and read one batch.
type staged struct {
	topology *gpu.Topology
	read     func(*gpu.Plan, *gpu.Batch) error
	plan     *gpu.Plan
	done     chan struct{}
	closed   bool
}

func (s *staged) Open(_ context.Context, plan *gpu.Plan) (collector.Session, error) {
	s.plan = plan
	return s, nil
}
func (s *staged) Topology() *gpu.Topology { return s.topology }
func (s *staged) Read(_ context.Context, b *gpu.Batch) error {
	if s.closed {
		return gpu.ErrUnavailable
	}
	return s.read(s.plan, b)
}
func (s *staged) Done() <-chan struct{} { return s.done }
func (s *staged) Err() error            { return gpu.ErrLost }
func (s *staged) Close() error          { s.closed = true; return nil }

// Every kind of identity becomes a made-up one of its form, the same one wherever it occurs.
func TestMask(t *testing.T) {
	const core = "6f0c1f2e-1111-4222-8333-abcdefabcdef"
	texts := map[gpu.FieldID]string{
		54: "GPU-" + core, 68: "MIG-GPU-" + strings.ToUpper(core) + "/1/0", 53: "1650123456789", 571: "0xdeadbeef00000001",
		85: "96.00.61.00.01", 3: "/opt/acme/engine", 1: "580.95.05", 57: "00000000:1B:00.0",
	}
	top := gpu.NewTopology([]gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-" + core, PCIBusID: "00000000:1B:00.0", Model: "NVIDIA H100", Serial: "1650123456789"},
	})
	top.Source, top.Host, top.Driver = "dcgm", "gpu-17.acme.example", "580.95.05"
	src := &staged{topology: top, read: func(plan *gpu.Plan, b *gpu.Batch) error {
		for id, text := range texts {
			if at := slices.IndexFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == id }); at >= 0 {
				b.Add(0, at, gpu.Text(text), time.Now())
			}
		}
		b.Processes = append(b.Processes, gpu.Process{Row: 0, PID: 31337, Time: time.Now().UnixNano()})
		b.Fail(0, 0, fmt.Errorf("/run/acme.sock: %w", gpu.ErrPermission))
		return nil
	}}
	s := run(t.Context(), app.Backend{Source: src, PodOf: func(uint32) (string, error) { return core, nil }}, 0, "--source=dcgm", "--samples=1", "--out=r.json")
	rec := s.recording(t)
	const made = "00000001-0000-8000-8000-000000000001"
	got := map[gpu.FieldID]string{}
	for _, x := range rec.Reads[0].Samples {
		got[rec.Fields[x.Field].ID] = x.Values[0].String()
	}
	want := map[gpu.FieldID]string{
		54: "GPU-" + made, 68: "MIG-GPU-" + made + "/1/0", 53: "0000000000001", 571: "0x0000000000000002",
		85: "96.00.61.00.01", 3: "text-1", 1: "580.95.05", 57: "FFFFFFFF:01:00.0",
	}
	for id := range want {
		if _, served := got[id]; !served { // not at a level of this catalog
			delete(want, id)
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" || len(got) < 7 {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
	d := rec.Devices[0]
	identity := []string{d.UUID, d.Serial, d.PCIBusID, rec.Host, rec.Driver, rec.Pods[1000]}
	if diff := gocmp.Diff([]string{"GPU-" + made, "0000000000001", "FFFFFFFF:01:00.0", "host-1", "580.95.05", made}, identity); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	if bytes.Contains(s.files["r.json"], []byte("acme")) || bytes.Contains(s.files["r.json"], []byte("31337")) {
		t.Errorf("names are left:\n%s", s.files["r.json"])
	}
	if !src.closed {
		t.Error("the session is open")
	}
}

// A driver that hangs is reported, and released as soon as it returns.
func TestHangingDriver(t *testing.T) {
	for call, want := range map[string]string{
		"open": "dcgm-exporter record: nothing was recorded: open: timeout: no answer within 2s\n",
		"read": "dcgm-exporter record: 3 of 9 reads, then: read: timeout: no answer within 2s\n",
	} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at := map[string]string{"open": "0s", "read": "12s"}[call]
				script, err := sim.ParseScenario(strings.NewReader("faults: [{fault: hang, call: "+call+", at: "+at+", ignore-cancel: true}]"), "s")
				if err != nil {
					t.Fatal(err)
				}
				src, source := simulated(t, sim.Options{Node: "single", Scenario: script})
				s := run(t.Context(), source, 2*time.Second, "--source=sim", "--samples=9", "--out=r.json")
				if s.code != command.Faulty || !strings.HasSuffix(s.Err.String(), want) {
					t.Errorf("code %d, log %q, want %q", s.code, &s.Err, want)
				}
				if call == "read" && len(s.recording(t).Reads) != 3 {
					t.Error("what was read before is not in the file")
				}
				src.Release()
				synctest.Wait()
				if n := src.Stats(); n.InFlight != 0 || n.OpenHandles() != 0 {
					t.Errorf("%+v after the driver came back", n)
				}
			})
		})
	}
}

func TestRecordingEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, source := simulated(t, sim.Options{Node: "single"})
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		s := run(ctx, source, 0, "--source=sim", "--for=1h", "--out=r.json")
		if want := "dcgm-exporter record: 3 of 721 reads, then: interrupted\n"; s.code != command.Faulty || !strings.HasSuffix(s.Err.String(), want) {
			t.Errorf("code %d, log %q", s.code, &s.Err)
		}
		if n := len(s.recording(t).Reads); n != 3 || src.Stats().OpenHandles() != 0 {
			t.Errorf("%d reads, %d sessions open", n, src.Stats().OpenHandles())
		}
	})
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		args     []string
		code     int
		out, log string // prefixes
	}{
		{[]string{"-h"}, command.OK, record.Usage, ""},
		{[]string{"--samples=0"}, command.Unable, "", "dcgm-exporter record: --samples \"0\": expected a number from 1 to 100000\n"},
		{[]string{"--for", "soon"}, command.Unable, "", "dcgm-exporter record: --for \"soon\": expected a duration such as 90s or 5m\n"},
		{[]string{"--for=1s", "--samples=1"}, command.Unable, "", "dcgm-exporter record: --samples and --for: expected one of them\n"},
		{[]string{"--out"}, command.Unable, "", "dcgm-exporter record: --out needs a value: expected a file name, or - for the standard output\n"},
		{[]string{"--unmasked=perhaps"}, command.Unable, "", "dcgm-exporter record: --unmasked \"perhaps\": expected true or false\n"},
		{[]string{"--sorce=sim"}, command.Unable, "", "dcgm-exporter record: unknown flag --sorce: did you mean --source? (see --help)\n"},
		{[]string{"--source=sim", "--samples=1", "--out=-"}, command.OK, `{"recording":{"format":"dcgm-exporter recording","version":1,"masked":true,`, "Recorded 1 reads of "},
		{[]string{"--source=sim", "--samples=1", "--out=x.gz", "--only-configured"}, command.OK, "", "Recorded 1 reads of 1 entities of source sim, "},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			_, source := simulated(t, sim.Options{Node: "single"})
			s := run(t.Context(), source, 0, tt.args...)
			if s.code != tt.code || !strings.HasPrefix(s.Out.String(), tt.out) || !strings.HasPrefix(s.Err.String(), tt.log) {
				t.Errorf("code %d, output %.200q, log %q", s.code, &s.Out, &s.Err)
			}
			if cmp.Or(tt.log, s.Err.String()) == "" {
				return
			}
			if name := "x.gz"; slices.Contains(tt.args, "--out="+name) && !bytes.HasPrefix(s.files[name], []byte{0x1f, 0x8b}) {
				t.Errorf("%s is not compressed", name)
			}
		})
	}
}

// --sim-node takes the path of a recording, and says what is wrong with one.
func TestReplayByFlag(t *testing.T) {
	_, source := simulated(t, sim.Options{Node: "single"})
	s := run(t.Context(), source, 0, "--source=sim", "--samples=1", "--out=r.json")
	good, cut := filepath.Join(t.TempDir(), "r.json"), filepath.Join(t.TempDir(), "cut.json")
	for path, data := range map[string][]byte{good: s.files["r.json"], cut: s.files["r.json"][:200]} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name       string
		args       []string
		page, want string
	}{
		{"a recording", []string{"--sim-node=" + good}, `UUID="GPU-00000001-0000-8000-8000-000000000001"`, ""},
		{"one that was cut off", []string{"--sim-node=" + cut}, "", cut + ":2: the line is cut off"},
		{"none", []string{"--sim-node=./none.json"}, "", "recording: open ./none.json: no such file or directory"},
		{"a scenario", []string{"--sim-node=" + good, "--sim-scenario=s.yaml"}, "", `--sim-scenario "s.yaml" with the recording --sim-node "` + good + `": a recording has its own faults`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := (&commandtest.World{}).Process()
			cfg, err := config.Parse(append(tt.args, "--source=sim"), p.Env, p.ReadFile)
			if err != nil {
				t.Fatal(err)
			}
			page, err := app.Page(t.Context(), cfg)
			if fmt.Sprint(err) != cmp.Or(tt.want, "<nil>") || !strings.Contains(string(page), tt.page) {
				t.Errorf("error %v, page of %d bytes", err, len(page))
			}
		})
	}
}

func TestSourceThatCannotBeOpened(t *testing.T) {
	w := &commandtest.World{}
	code := record.Command{Process: w.Process("--source=nvml"), Open: commandtest.Refuse(errors.Join(gpu.ErrUnavailable))}.Run(t.Context())
	if want := "dcgm-exporter record: nothing was recorded: unavailable\n"; code != command.Faulty || w.Err.String() != want {
		t.Errorf("code %d, log %q", code, &w.Err)
	}
}
