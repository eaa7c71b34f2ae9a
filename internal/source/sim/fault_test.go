package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// faults simulates a node with a scenario.
func faults(t *testing.T, node string, plan *gpu.Plan, yaml string) *rig {
	t.Helper()
	return play(t, sim.Options{Node: node, Seed: 1, Scenario: simulated.Scenario(t, yaml)}, plan)
}

// newSource returns a source of a node with a scenario, on the real clock.
func newSource(t *testing.T, node, yaml string) *sim.Source {
	t.Helper()
	src, err := sim.New(sim.Options{Node: node, Scenario: simulated.Scenario(t, yaml)})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// reopen checks that the next Read ends the session with an error, and opens another.
func (r *rig) reopen(want error) {
	r.Helper()
	for _, when := range []string{"the end", "the Read after it"} {
		if err := r.s.Read(context.Background(), gpu.ReadRequest{}, &r.b); !errors.Is(err, want) {
			r.Errorf("at %s: Read: %v, want %v", when, err, want)
		}
	}
	select {
	case <-r.s.Done():
	default:
		r.Fatal("Done is not closed after the session ended")
	}
	if err := r.s.Err(); !errors.Is(err, want) {
		r.Errorf("Err: %v, want %v", err, want)
	}
	r.open()
}

// testdata/invalid.txt lists faults, each followed by its error on an indented line. Errors about devices and MIG are
// found only when the node is known.
func TestInvalidScenarios(t *testing.T) {
	cases, err := os.ReadFile("testdata/invalid.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(cases)), "\n")
	for pair := range slices.Chunk(lines, 2) {
		yaml, want := pair[0], "faults.yaml:3: "+strings.TrimSpace(pair[1])
		s, err := sim.ParseScenario([]byte("faults:\n  - {fault: engine-down}\n  - "+yaml), "faults.yaml")
		if err == nil {
			_, err = sim.New(sim.Options{Node: "single", Scenario: s})
		}
		var syntax *text.SyntaxError
		if !errors.As(err, &syntax) || syntax.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", yaml, err, want)
		}
	}
	scenario := simulated.Scenario(t, `faults: [{fault: repartition, devices: ["0"]}]`)
	_, err = sim.New(sim.Options{Node: "t4", Scenario: scenario})
	if want := "sim: scenario.yaml:1: T4 has no MIG"; err == nil || err.Error() != want {
		t.Errorf("New: error %v, want %s", err, want)
	}
}

// A session ends if its engine restarts, or a GPU is unbound and bound again, between two reads.
func TestSessionEndsBetweenTwoReads(t *testing.T) {
	for fault, want := range map[string]error{
		`{fault: engine-down, at: 3s, for: 1s}`:             gpu.ErrLost,
		`{fault: unbound, at: 3s, for: 1s, devices: ["0"]}`: gpu.ErrTopology,
	} {
		r := faults(t, "single", simulated.Plan(gpuTemp), `faults: [`+fault+`]`)
		r.read()
		r.At(10 * time.Second)
		r.reopen(want)
		r.read()
	}
}

// Unbinding a GPU removes its instances and links and ends the session. After it is bound again, everything is back,
// and its energy counter has grown.
func TestGPUUnboundAndBound(t *testing.T) {
	const deviceCount, linkTx = 4, 780
	r := faults(t, "everything", simulated.Plan(energy, fbUsed, linkTx, deviceCount), `
faults: [{fault: unbound, at: 30s, for: 1m, devices: ["0", "2"]}]`)
	entities := func() (list []string) {
		for _, d := range r.s.Topology().Devices {
			if e := d.Entity; e.Kind == gpu.KindGPU || e.ParentKind == gpu.KindGPU {
				list = append(list, e.String())
			}
		}
		return list
	}
	whole := entities()
	before := r.read().num(0, energy)
	r.At(30 * time.Second)
	r.reopen(gpu.ErrTopology)
	ofGPU1 := slices.DeleteFunc(slices.Clone(whole), func(s string) bool { return !strings.HasSuffix(s, "GPU 1") })
	if diff := cmp.Diff(ofGPU1, entities()); diff != "" {
		t.Errorf("entities without the unbound GPUs (-want +got):\n%s", diff)
	}
	if got := r.read().num(r.rows(gpu.KindNode)[0], deviceCount); got != 1 {
		t.Errorf("device count = %v, want 1", got)
	}
	r.At(91 * time.Second)
	r.reopen(gpu.ErrTopology)
	if diff := cmp.Diff(whole, entities()); diff != "" {
		t.Errorf("entities after binding (-before +now):\n%s", diff)
	}
	if after := r.read().num(0, energy); after <= before {
		t.Errorf("energy went from %[2]v to %[1]v, want it to grow", after, before)
	}
}

func TestHang(t *testing.T) {
	for name, test := range map[string]struct {
		fault     string
		release   time.Duration // when the source is released; 0 for never
		wantAfter time.Duration // the context is done after 5 s
	}{
		"hangs until the context is done":              {`{fault: hang, at: 1m}`, 0, 5 * time.Second},
		"hangs until the fault ends":                   {`{fault: hang, at: 1m, for: 3s}`, 0, 3 * time.Second},
		"ignores the context and hangs until released": {`{fault: hang, at: 1m, ignore-cancel: true}`, time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newSource(t, "single", `faults: [`+test.fault+`]`)
				s, err := src.Open(t.Context(), simulated.Plan(gpuTemp))
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				time.Sleep(time.Minute) // advance the fake clock to the start of the fault
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if test.release != 0 {
					time.AfterFunc(test.release, src.Release)
				}
				begin := time.Now()
				done := make(chan error)
				var b gpu.Batch
				go func() { done <- s.Read(ctx, gpu.ReadRequest{}, &b) }()
				synctest.Wait()
				if n := src.Stats().InFlight; n != 1 {
					t.Errorf("calls in flight = %d, want 1", n)
				}
				err = <-done
				if after := time.Since(begin); after != test.wantAfter {
					t.Errorf("Read returned after %v, want %v", after, test.wantAfter)
				}
				timedOut := errors.Is(err, gpu.ErrTimeout) && errors.Is(err, context.DeadlineExceeded)
				if wantTimeout := test.wantAfter == 5*time.Second; timedOut != wantTimeout || (len(b.Samples) == 0) != wantTimeout {
					t.Errorf("Read: error %v and %d samples, want a timeout: %t", err, len(b.Samples), wantTimeout)
				}
				if n := src.Stats().InFlight; n != 0 {
					t.Errorf("calls in flight at the end = %d, want 0", n)
				}
			})
		})
	}
}

func TestHangingOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t, "single", `faults: [{fault: hang, call: open, for: 5s}]`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := src.Open(ctx, simulated.Plan(gpuTemp)); !errors.Is(err, gpu.ErrTimeout) {
			t.Errorf("Open: %v, want %v", err, gpu.ErrTimeout)
		}
		s, err := src.Open(t.Context(), simulated.Plan(gpuTemp))
		if err != nil {
			t.Fatalf("Open at the end of the fault: %v", err)
		}
		s.Close()
		if got := src.Stats(); got != (sim.Stats{}) {
			t.Errorf("calls and sessions left open = %+v, want none", got)
		}
	})
}

func TestXIDBursts(t *testing.T) {
	r := faults(t, "h100x8", simulated.Plan(xid), `
faults:
  - {fault: xid, at: 12s, devices: ["2"], xids: [62, 45]}
  - {fault: xid, at: 13s, devices: ["2"], xids: [79], reported-by: [kernel]}
  - {fault: xid, at: 32s, devices: ["2", "3"], xids: [31, 31], apart: 2s, reported-by: [engine]}`)
	for _, step := range []struct {
		at   time.Duration
		want []string
	}{
		{10 * time.Second, nil},
		{20 * time.Second, []string{"GPU 2: 62 at 12s", "GPU 2: 45 at 12.001s"}},
		{30 * time.Second, nil},
		{32 * time.Second, []string{"GPU 2: 31 at 32s", "GPU 3: 31 at 32s"}},
		{40 * time.Second, []string{"GPU 2: 31 at 34s", "GPU 3: 31 at 34s"}},
	} {
		r.At(step.at)
		r.read()
		var got []string
		for _, x := range r.b.XIDs {
			at := time.Unix(0, x.Time).Sub(simulated.Epoch)
			got = append(got, fmt.Sprintf("%v: %d at %v", r.entity(x.Row), x.Code, at))
			if x.ID != x.Time {
				t.Errorf("%+v: ID and time differ, want them equal", x)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("at %v (-want +got):\n%s", step.at, diff)
		}
	}
}

func TestAbsentFields(t *testing.T) {
	r := faults(t, "demo", simulated.Plan(gpuTemp, fbUsed), `
faults:
  - {fault: absent, at: 10s, for: 10s, fields: [DCGM_FI_DEV_GPU_TEMP], devices: ["1"]}
  - {fault: absent, reason: not_supported, at: 20s, for: 10s, fields: [DCGM_FI_DEV_GPU_TEMP_CELSIUS], devices: ["1"]}
  - {fault: absent, reason: permission, at: 30s, for: 10s, fields: ["252"]}
  - {fault: absent, at: 40s, for: 10s, fields: ["252"], devices: ["6/9"]}`)
	whole := len(r.read().of)
	for _, step := range []struct {
		at              time.Duration
		lacking, faults int
		want            error
	}{
		{15 * time.Second, 1, 0, nil},
		{25 * time.Second, 1, 1, gpu.ErrNotSupported},
		{35 * time.Second, 19, 19, gpu.ErrPermission},
		{45 * time.Second, 1, 0, nil},
		{55 * time.Second, 0, 0, nil},
	} {
		r.At(step.at)
		if got := whole - len(r.read().of); got != step.lacking || len(r.b.Faults) != step.faults {
			t.Errorf("at %v: missing values = %d and faults = %d, want %d and %d",
				step.at, got, len(r.b.Faults), step.lacking, step.faults)
		}
		for _, x := range r.b.Faults {
			if !errors.Is(x.Err, step.want) {
				t.Errorf("at %v: fault %v, want %v", step.at, x.Err, step.want)
			}
		}
	}
}

// A repartition ends the session. GPUs before the first repartitioned one continue. Pods stay on instances that have
// the same ID.
func TestRepartition(t *testing.T) {
	r := faults(t, "demo", simulated.Plan(energy, fbUsed), `
faults:
  - {fault: repartition, at: 95s, for: 10m, devices: ["5"], mig: [4g.40gb, 3g.40gb]}
  - {fault: repartition, at: 95s, for: 10m, devices: ["6"]}
  - {fault: repartition, at: 95s, for: 10m, devices: ["7"], mig: [1g.10gb, 1g.10gb]}`)
	layout := func(want map[uint32][]string) {
		t.Helper()
		got := map[uint32][]string{}
		for _, row := range r.rows(gpu.KindGPUInstance) {
			d := &r.s.Topology().Devices[row]
			got[d.GPU] = append(got[d.GPU], d.Profile)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("layout (-want +got):\n%s", diff)
		}
	}
	original := map[uint32][]string{
		6: {"3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"}, 7: slices.Repeat([]string{"1g.10gb"}, 7),
	}
	layout(original)
	r.At(90 * time.Second)
	last := r.read()
	r.At(100 * time.Second)
	r.reopen(gpu.ErrTopology)
	layout(map[uint32][]string{5: {"4g.40gb", "3g.40gb"}, 7: {"1g.10gb", "1g.10gb"}})
	now := r.read()
	for _, row := range r.rows(gpu.KindGPU)[:5] {
		if now.num(row, energy) <= last.num(row, energy) {
			t.Errorf("energy of GPU %d went from %v to %v, want it to grow",
				row, last.num(row, energy), now.num(row, energy))
		}
	}
	owners, err := r.src.Attribute(t.Context(), r.s.Topology())
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.rows(gpu.KindGPUInstance) {
		d, used, owned := r.s.Topology().Devices[row], now.num(row, fbUsed), owners.Of(row) != nil
		if hasPod := d.GPU == 7; owned != hasPod || (used > 0) != hasPod {
			t.Errorf("%v: owner = %t, memory used = %v MiB; want both only on GPU 7", d.Entity, owned, used)
		}
	}
	r.At(12 * time.Minute)
	r.reopen(gpu.ErrTopology)
	layout(original)
}

// The value of a field has the unit of the name used in the scenario, or is a string. Other GPUs do not change.
func TestFieldsAreSet(t *testing.T) {
	const cluster = 172
	r := faults(t, "h100x8", simulated.Plan(cluster, smClock, gpuUtil, graphics), `
faults:
  - {fault: set, at: 10s, fields: [DCGM_FI_DEV_FABRIC_CLUSTER_UUID], devices: ["1"], text: another}
  - {fault: set, at: 10s, fields: [DCGM_FI_DEV_SM_CLOCK_HERTZ], devices: ["1"], value: 345000000}
  - {fault: set, at: 10s, fields: [DCGM_FI_DEV_GPU_UTIL_RATIO], devices: ["1"], value: 0.25}
  - {fault: set, at: 10s, fields: ["DCGM_FI_PROF_GR_ENGINE_*"], devices: ["1"], value: 0.5}`)
	r.At(20 * time.Second)
	v := r.read()
	for id, text := range map[gpu.FieldID]string{cluster: "another", smClock: "345", gpuUtil: "25", graphics: "0.5"} {
		if set, own := v.get(1, id).String(), v.get(0, id).String(); set != text || own == text {
			t.Errorf("field %d of GPU 1 = %q and of GPU 0 = %q, want only %q on GPU 1", id, set, own, text)
		}
	}
}

// Clock event reasons of a scenario reduce the clocks. Their changes are in the samples, and their durations in the
// driver's counters.
func TestThrottle(t *testing.T) {
	const thermalThrottled, hwThermalNS, brakeNS = 241, 1423, 1424
	r := faults(t, "single", simulated.Plan(smClock, clockReasons, thermalThrottled, hwThermalNS, brakeNS), `
faults:
  - {fault: throttle, at: 12s, for: 3s, devices: ["0"], reasons: [hw_slowdown, hw_thermal]}
  - {fault: throttle, at: 13s, for: 4s, devices: ["0"], reasons: [hw_thermal]}
  - {fault: throttle, at: 18s, devices: ["0"], reasons: [hw_power_brake]}`)
	r.At(10 * time.Second)
	free := r.read().num(0, smClock)
	r.At(20 * time.Second)
	v := r.read()
	const scripted = 0x08 | 0x40 | 0x80
	var edges []string
	last := int64(0)
	for _, s := range r.b.Trails {
		n, _ := s.Value.Int64()
		if n &= scripted; n != last {
			edges = append(edges, fmt.Sprintf("%v: %#x", time.Unix(0, s.Time).Sub(simulated.Epoch), n))
			last = n
		}
	}
	if diff := cmp.Diff([]string{"12s: 0x48", "15s: 0x40", "17s: 0x0", "18s: 0x80"}, edges); diff != "" {
		t.Errorf("changes of reasons (-want +got):\n%s", diff)
	}
	for id, seconds := range map[gpu.FieldID]float64{thermalThrottled: 5, hwThermalNS: 5, brakeNS: 2} {
		if got := v.num(0, id); got != seconds*1e9 {
			t.Errorf("field %d = %v ns, want %v ns", id, got, seconds*1e9)
		}
	}
	if got := v.num(0, smClock); got > free*0.6 {
		t.Errorf("clock under the power brake = %v MHz, want less than %v MHz", got, free)
	}
}

// A link is down while the fault is active, at both ends.
func TestLinksFlap(t *testing.T) {
	const linkState, switchLinkState, linkRate = 1508, 870, 1529
	r := faults(t, "everything", simulated.Plan(linkState, switchLinkState, linkRate), `
faults:
  - {fault: link-down, at: 10s, for: 10s, devices: ["nvlink 0/4", "nvswitch 1/3"]}
  - {fault: link-down, at: 40s, for: 200ms, devices: ["nvlink 0/4"]}`)
	const first, second = "NVLink 4 of GPU 0", "NVLink 3 of NVSwitch 1"
	for at, want := range map[time.Duration][]string{
		5 * time.Second: nil, 15 * time.Second: {first, second}, 25 * time.Second: nil,
		40*time.Second + 100*time.Millisecond: {first}, 41 * time.Second: nil,
	} {
		r.At(at)
		v := r.read()
		var down []string
		for _, row := range r.rows(gpu.KindNVLink) {
			if v.num(row, linkState)+v.num(row, switchLinkState)+v.num(row, linkRate) == 0 {
				down = append(down, r.entity(row).String())
			}
		}
		if diff := cmp.Diff(want, down); diff != "" {
			t.Errorf("links down at %v (-want +got):\n%s", at, diff)
		}
	}
}

// findings returns the findings of the latest Read by row.
func (r *rig) findings() map[int][]string {
	found := map[int][]string{}
	for _, h := range r.b.Health {
		if h.Result > 0 {
			word := map[int64]string{10: "warn", 20: "fail"}[h.Result]
			found[h.Row] = append(found[h.Row], h.Watch+" "+strings.TrimPrefix(h.Code, "DCGM_FR_")+" "+word)
		}
	}
	return found
}

const powerWarning = "POWER CLOCK_THROTTLE_POWER warn"

// The health watch POWER warns if the counter of power violations grew within the last minute, like the real engine's.
func TestPowerWatchFollowsItsCounter(t *testing.T) {
	plan := simulated.Plan(powerThrottled)
	plan.Health = gpu.KindsOf(gpu.KindGPU)
	r := faults(t, "h100x8", plan, `
faults:
  - {fault: throttle, at: 5m, for: 30s, devices: ["3"], reasons: [sw_power_cap]}`)
	const step = 5 * time.Second
	var history []values
	reads := map[bool]int{} // by whether the watch warned
	for at := step; at <= 10*time.Minute; at += step {
		r.At(at)
		now := r.read()
		if history = append(history, now); len(history) <= int(time.Minute/step) {
			continue
		}
		ago := history[len(history)-1-int(time.Minute/step)]
		found := r.findings()
		for _, row := range r.rows(gpu.KindGPU) {
			warns, grew := slices.Contains(found[row], powerWarning), now.num(row, powerThrottled) > ago.num(row, powerThrottled)
			if warns != grew {
				t.Fatalf("GPU %d at %v: watch warns = %t, counter grew in the last minute = %t; want the same",
					row, at, warns, grew)
			}
			if row == 3 && at > 5*time.Minute+step && at < 6*time.Minute && !grew {
				t.Errorf("GPU 3 at %v: power violation did not grow in the last minute, want it to grow", at)
			}
			reads[warns]++
		}
	}
	if len(reads) != 2 {
		t.Errorf("reads by whether they warn = %v, want some of both", reads)
	}
}

// Health checks behave like the real engine's. They warn of heat for a minute, keep each XID, and fail while an error
// counter is above 0. A restart of the engine clears this state.
func TestHealthHasQuirksOfDCGM(t *testing.T) {
	const dbe, mask = 311, 174
	plan := simulated.Plan(dbe, mask)
	plan.Health = gpu.KindsOf(gpu.KindGPU)
	r := faults(t, "gb200", plan, `
faults:
  - {fault: throttle, at: 10s, for: 5s, devices: ["0"], reasons: [sw_thermal]}
  - {fault: xid, at: 10s, devices: ["1"], xids: [31, 74, 13]}
  - {fault: xid, at: 10s, devices: ["1"], xids: [79], reported-by: [kernel]}
  - {fault: set, at: 10s, devices: ["2"], fields: [DCGM_FI_DEV_ECC_DBE_VOL_TOTAL], value: 1}
  - {fault: set, at: 10s, devices: ["3"], fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x51a9}
  - {fault: health, at: 10s, devices: ["3"], watches: [POWER], code: DCGM_FR_CLOCKS_EVENT_POWER, result: warn}
  - {fault: engine-down, at: 2h, for: 1m}`)
	heat, xids := []string{"THERMAL CLOCK_THROTTLE_THERMAL warn"}, []string{"MEM XID_ERROR warn", "ALL XID_ERROR fail"}
	memory := []string{"MEM VOLATILE_DBE_DETECTED fail"}
	fabric := []string{"NVLINK FIELD_VIOLATION fail", powerWarning}
	for _, tt := range []struct {
		at   time.Duration
		want [4][]string
	}{
		{70 * time.Second, [4][]string{heat, xids, memory, fabric}},
		{80 * time.Second, [4][]string{nil, xids, memory, fabric}},
		{90 * time.Minute, [4][]string{nil, xids, memory, fabric}},
		{2*time.Hour + 2*time.Minute, [4][]string{nil, nil, memory, fabric}},
	} {
		r.At(tt.at)
		r.open() // the engine keeps state, not the session
		r.read()
		var got [4][]string
		for row, found := range r.findings() {
			got[row] = slices.DeleteFunc(found, func(s string) bool {
				return row < 3 && s == powerWarning // these GPUs run at their power limit
			})
		}
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("at %v (-want +got):\n%s", tt.at, diff)
		}
	}
}

// The reader of real kernel logs can read the log of the simulated kernel: the times, the GPUs, and the processes of
// pods.
func TestKernelLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t, "demo", `
faults:
  - {fault: xid, at: 20s, devices: ["0", "5"], xids: [62, 45], apart: 1s}
  - {fault: xid, at: 25s, devices: ["0"], xids: [31], reported-by: [engine]}
  - {fault: xid, at: 30s, devices: ["6"], xids: [79], reported-by: [kernel]}
  - {fault: xid, at: 0s, devices: ["0"], xids: [13]}`)
		begin := time.Now()
		var log strings.Builder
		reader := kernellog.New(kernellog.Options{
			Path: "simulated", Registerer: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(&log, nil)),
			Open: func() (kernellog.Device, error) { return src.KernelLog(), nil },
		})
		time.Sleep(5 * time.Second) // the first lines are older than the reader
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); reader.Run(ctx) }()
		time.Sleep(time.Minute)
		xids := reader.Drain(nil)
		cancel()
		<-done

		session, err := src.Open(t.Context(), simulated.Plan(gpuTemp))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		buses := map[string]uint32{}
		for _, d := range session.Topology().Devices {
			buses[d.PCIBusID] = d.GPU
		}
		var got []string
		for _, x := range xids {
			pods, err := src.PodOf(x.PID)
			if err != nil {
				t.Fatal(err)
			}
			past := map[bool]string{true: ", past"}[x.Past]
			at, id := time.Unix(0, x.Time).Sub(begin), buses[x.PCIBusID]
			got = append(got, fmt.Sprintf("%v GPU %d XID %d, pod %t%s", at, id, x.Code, pods != nil, past))
		}
		want := []string{
			"0s GPU 0 XID 13, pod true, past",
			"20s GPU 0 XID 62, pod true", "20s GPU 5 XID 62, pod false",
			"21s GPU 0 XID 45, pod true", "21s GPU 5 XID 45, pod false",
			"30s GPU 6 XID 79, pod true",
		}
		if diff := cmp.Diff(want, got); diff != "" || log.Len() > 0 {
			t.Errorf("XIDs (-want +got):\n%s\nlog: %s", diff, &log)
		}
	})
}

// SXIDs of a switch and of its links are read like those of real switches.
func TestKernelLogOfSwitches(t *testing.T) {
	l := newSource(t, "everything", `
faults:
  - {fault: sxid, devices: ["nvswitch 0"], xids: [11004], result: warn}
  - {fault: sxid, devices: ["nvswitch 1/3"], xids: [20034]}`).KernelLog()
	defer l.Close()
	var got []gpu.XID
	for range 3 { // the first line is the driver's own
		b := make([]byte, 1000)
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if record, _ := kernellog.ParseRecord(b[:n]); strings.Contains(record.Text, "SXid") {
			sxid, _ := kernellog.ParseLine(record.Text)
			got = append(got, sxid)
		}
	}
	want := []gpu.XID{
		{OnSwitch: true, Code: 11004, Detail: gpu.XIDDetail{Severity: "nonfatal"}},
		{OnSwitch: true, Switch: 1, Code: 20034, Detail: gpu.XIDDetail{Severity: "fatal", Link: "3"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("SXIDs (-want +got):\n%s", diff)
	}
}

// The simulated log behaves like /dev/kmsg: small buffers, the first record, TryRead at the end, and Close.
func TestKernelLogBehavesLikeDevice(t *testing.T) {
	l := newSource(t, "t4", `faults: [{fault: xid, devices: ["0"], xids: [31]}]`).KernelLog()
	read := func() string {
		b := make([]byte, 1000)
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	if n, err := l.Read(make([]byte, 9)); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Read with a small buffer = %d, %v, want EINVAL", n, err)
	}
	first, second := read(), read()
	if first != "4,0,0,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.230.02\n" {
		t.Errorf("first record = %q, want the message that the driver is loading", first)
	}
	record, ok := kernellog.ParseRecord([]byte(second))
	isXID := strings.HasPrefix(record.Text, "NVRM: Xid (PCI:0000:1b:00): 31, pid=")
	if !ok || !record.Kernel || record.Sequence != 1 || !isXID {
		t.Errorf("second record = %q, want a kernel record with sequence 1 and XID 31", second)
	}
	if n, err := l.TryRead(make([]byte, 1000)); n != 0 || err != nil {
		t.Errorf("TryRead after the last record = %d, %v, want 0 and no error", n, err)
	}
	over := make(chan error)
	go func() { _, err := l.Read(make([]byte, 1000)); over <- err }()
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-over; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Read of a closed log: %v, want fs.ErrClosed", err)
	}
}
