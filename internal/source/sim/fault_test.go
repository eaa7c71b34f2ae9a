package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// faults simulates a node with a scenario.
func faults(t *testing.T, node string, plan *gpu.Plan, yaml string) *rig {
	t.Helper()
	return play(t, sim.Options{Node: node, Seed: 1, Scenario: simulated.Scenario(t, yaml)}, plan)
}

// ends checks that the next Read ends the session with an error.
func (r *rig) ends(want error) {
	r.Helper()
	if err := r.s.Read(context.Background(), gpu.ReadRequest{}, &r.b); !errors.Is(err, want) {
		r.Errorf("Read: %v, want %v", err, want)
	}
	select {
	case <-r.s.Done():
	default:
		r.Fatal("Done is not closed after the session ended")
	}
	if err := r.s.Err(); !errors.Is(err, want) {
		r.Errorf("Err: %v, want %v", err, want)
	}
	if err := r.s.Read(context.Background(), gpu.ReadRequest{}, &r.b); !errors.Is(err, want) {
		r.Errorf("Read after the session ended: %v, want %v", err, want)
	}
}

// A session of an engine that restarted between two reads has ended.
func TestEngineRestartsBetweenTwoReads(t *testing.T) {
	r := faults(t, "single", simulated.Plan(gpuTemp), `faults: [{fault: engine-down, at: 30s, for: 1m}]`)
	r.read()
	r.At(2 * time.Minute)
	r.ends(gpu.ErrLost)
	r.open()
	r.read()
}

func TestHang(t *testing.T) {
	for _, test := range []struct {
		name, yaml  string
		cancel      time.Duration // when the context is done; 0 for never
		release     time.Duration // when the source is released; 0 for never
		wantAfter   time.Duration
		wantTimeout bool
	}{
		{"hangs until the context is done", `{fault: hang, at: 1m}`, 5 * time.Second, 0, 5 * time.Second, true},
		{"hangs until the fault ends", `{fault: hang, at: 1m, for: 3s}`, 5 * time.Second, 0, 3 * time.Second, false},
		{
			"ignores the context and hangs until released", `{fault: hang, at: 1m, ignore-cancel: true}`,
			5 * time.Second, time.Hour, time.Hour, false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				scenario := simulated.Scenario(t, `faults: [`+test.yaml+`]`)
				src, err := sim.New(sim.Options{Node: "single", Scenario: scenario})
				if err != nil {
					t.Fatal(err)
				}
				s, err := src.Open(t.Context(), simulated.Plan(gpuTemp))
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.Sleep(time.Minute) // advance the fake clock to the start of the fault
				time.AfterFunc(test.cancel, cancel)
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
				failed := err != nil || len(b.Samples) == 0
				if errors.Is(err, gpu.ErrTimeout) != test.wantTimeout || failed != test.wantTimeout {
					t.Errorf("Read: error %v and %d samples, want a timeout: %t", err, len(b.Samples), test.wantTimeout)
				}
				if test.wantTimeout && !errors.Is(err, context.Canceled) {
					t.Errorf("Read: error %v, want it to wrap the context's error", err)
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
		scenario := simulated.Scenario(t, `faults: [{fault: hang, call: open, for: 5s}]`)
		src, err := sim.New(sim.Options{Scenario: scenario})
		if err != nil {
			t.Fatal(err)
		}
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
	type event struct {
		XID string
		At  time.Duration
	}
	events := func(row int) (list []event) {
		for _, x := range r.b.XIDs {
			if x.ID != x.Time {
				t.Errorf("%+v: ID and time differ, want them equal", x)
			}
			if x.Row == row {
				list = append(list, event{fmt.Sprint(x.Code), time.Duration(x.Time - simulated.Epoch.UnixNano())})
			}
		}
		return list
	}
	burst := event{"45", 12*time.Second + time.Millisecond}
	for _, step := range []struct {
		at   time.Duration
		want []event // XIDs of GPU 2
	}{
		{10 * time.Second, nil},
		{20 * time.Second, []event{{"62", 12 * time.Second}, burst}},
		{30 * time.Second, nil},
		{32 * time.Second, []event{{"31", 32 * time.Second}}},
		{40 * time.Second, []event{{"31", 34 * time.Second}}},
	} {
		r.At(step.at)
		r.read()
		if diff := cmp.Diff(step.want, events(2)); diff != "" {
			t.Errorf("at %v (-want +got):\n%s", step.at, diff)
		}
		if got := events(1); got != nil {
			t.Errorf("GPU 1 at %v: XIDs = %v, want none", step.at, got)
		}
	}
}

func TestBlanks(t *testing.T) {
	r := faults(t, "demo", simulated.Plan(gpuTemp, fbUsed), `
faults:
  - {fault: absent, at: 10s, for: 10s, fields: [DCGM_FI_DEV_GPU_TEMP], devices: ["1"]}
  - {fault: absent, reason: not_supported, at: 20s, for: 10s, fields: [DCGM_FI_DEV_GPU_TEMP_CELSIUS], devices: ["1"]}
  - {fault: absent, reason: permission, at: 30s, for: 10s, fields: ["252"]}
  - {fault: absent, at: 40s, for: 10s, fields: ["252"], devices: ["6/9"]}`)
	whole := len(r.read().of)
	for _, step := range []struct {
		at      time.Duration
		lacking int
		faults  int
		want    error
	}{
		{15 * time.Second, 1, 0, nil},
		{25 * time.Second, 1, 1, gpu.ErrNotSupported},
		{35 * time.Second, 19, 19, gpu.ErrPermission},
		{45 * time.Second, 1, 0, nil},
		{55 * time.Second, 0, 0, nil},
	} {
		r.At(step.at)
		if got := whole - len(r.read().of); got != step.lacking {
			t.Errorf("at %v: missing values = %d, want %d", step.at, got, step.lacking)
		}
		if len(r.b.Faults) != step.faults {
			t.Errorf("at %v: faults = %d, want %d", step.at, len(r.b.Faults), step.faults)
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
		for _, d := range r.s.Topology().Devices {
			if d.Entity.Kind == gpu.KindGPUInstance {
				got[d.GPU] = append(got[d.GPU], d.Profile)
			}
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
	r.ends(gpu.ErrTopology)
	r.open()
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
	r.ends(gpu.ErrTopology)
	r.open()
	layout(original)
}
