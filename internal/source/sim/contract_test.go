package sim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
	"github.com/gpu-telemetry/dcgm-exporter/tests/contract"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

func TestContract(t *testing.T) {
	const faults = `
faults:
  - {fault: gpu-lost, at: 1h, devices: ["0"]}
  - {fault: xid, at: 20m, devices: ["0"], xids: [62]}
  - {fault: xid, at: 40m, devices: ["0"], xids: [45, 45]}
  - {fault: engine-down, at: 3h}
`
	const cut = "  - {fault: repartition, at: 2h, devices: [\"0\"], mig: []}\n"
	for _, name := range sim.Nodes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := simulated.NewClock()
			options := sim.Options{Node: name, Seed: 1, Now: c.Now, Scenario: simulated.Scenario(t, faults+cut)}
			_, err := sim.New(options)
			hasMIG := err == nil
			if !hasMIG {
				options.Scenario = simulated.Scenario(t, faults)
			}
			var src *sim.Source
			happened := 0
			plan := simulated.Plan()
			plan.Placement, plan.Peers, plan.Health = true, true, gpu.KindsOf(gpu.KindGPU)
			f := contract.Fixture{
				Plan: plan,
				Now:  c.Now,
				New: func(t *testing.T) collector.Source {
					happened = 0
					c.At(0)
					var err error
					if src, err = sim.New(options); err != nil {
						t.Fatal(err)
					}
					return collector.SourceOf(src.Open)
				},
				Settle: func(*testing.T) { c.Pass(10 * time.Second) },
				XID: func(*testing.T) {
					happened++
					c.At(time.Duration(20*happened+1) * time.Minute)
				},
				Lose:        func(*testing.T, int) { c.At(time.Hour) },
				Kill:        func(*testing.T) { c.At(3 * time.Hour) },
				OpenHandles: func(*testing.T) int { return int(src.Stats().Open) },
			}
			if name == "everything" {
				f.Kinds = gpu.KindsOf(
					gpu.KindGPU, gpu.KindGPUInstance, gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore,
					gpu.KindConnectX,
				)
			}
			if name == "orin" { // its driver reports no XIDs
				f.XID = nil
			}
			if hasMIG {
				f.Change = func(*testing.T) { c.At(2 * time.Hour) }
			}
			contract.Run(t, f)
		})
	}
}

// A scenario is either rejected with file and line, or every Read satisfies the contract. It has no duplicate
// samples, no sample of a cell with a fault, no absent values, and no samples from the future.
func FuzzScenario(f *testing.F) {
	for _, fault := range []string{
		`{fault: gpu-lost, at: 1s, for: 1m, devices: ["0", "6"]}`,
		`{fault: engine-down, at: 10s, for: 1s}`,
		`{fault: hang, at: 1s, ignore-cancel: true}, {fault: hang, call: open}`,
		`{fault: xid, devices: ["0"], xids: [62, 45], apart: 1ms}`,
		`{fault: sxid, devices: ["nvswitch 1/7"], xids: [20034], result: warn}`,
		`{fault: absent, fields: ["155"], devices: ["6/2"]}`,
		`{fault: absent, reason: stale, fields: [DCGM_FI_DEV_GPU_TEMP]}`,
		`{fault: set, fields: ["203"], value: 808334905}`,
		`{fault: absent, reason: permission, fields: ["252"]}`,
		`{fault: unbound, at: 20s, for: 20s, devices: ["0", "6"]}`,
		`{fault: throttle, at: 1s, for: 40s, devices: ["0"], reasons: [hw_thermal]}`,
		`{fault: set, fields: ["203"], value: 30}, {fault: set, fields: [DCGM_FI_DEV_NAME], text: x}`,
		`{fault: link-down, devices: ["nvlink 0/1"]}`,
		`{fault: repartition, at: 20s, for: 20s, devices: ["0"], mig: [3g.40gb, 3g.40gb]}`,
	} {
		f.Add([]byte("faults: ["+fault+"]"), uint16(30))
	}
	plan := simulated.PlanOf(func(e catalog.Entry) bool { return e.ID < 260 || e.ID == 1001 })
	plan.Peers, plan.Health = true, gpu.KindsOf(gpu.KindGPU)
	f.Fuzz(func(t *testing.T, yaml []byte, step uint16) {
		s, err := sim.ParseScenario(yaml, "x.yaml")
		c := simulated.NewClock()
		var src *sim.Source
		if err == nil {
			src, err = sim.New(sim.Options{Seed: 1, Now: c.Now, Scenario: s})
		}
		if err != nil {
			var syntax *text.SyntaxError
			if !errors.As(err, &syntax) || syntax.File != "x.yaml" {
				t.Fatalf("error %v, want a SyntaxError with the file x.yaml", err)
			}
			return
		}
		src.Release()
		var session *sim.Session
		for range 4 {
			if session == nil {
				session, err = src.Open(context.Background(), plan)
				if err != nil && !errors.Is(err, gpu.ErrUnavailable) {
					t.Fatalf("Open: %v", err)
				}
			}
			c.Pass(time.Duration(step) * time.Second)
			if session == nil {
				continue
			}
			var b gpu.Batch
			err := session.Read(context.Background(), gpu.ReadRequest{}, &b)
			if (err == nil) != (session.Err() == nil) {
				t.Fatalf("Read: %v, but Err: %v", err, session.Err())
			}
			if err != nil {
				session.Close()
				session = nil
				continue
			}
			intact(t, plan, &b, c.Now())
		}
		if session != nil {
			session.Close()
		}
		if n := int(src.Stats().Open); n != 0 {
			t.Fatalf("open sessions = %d, want 0", n)
		}
	})
}

// intact checks the contract of a Read.
func intact(t *testing.T, plan *gpu.Plan, b *gpu.Batch, now time.Time) {
	t.Helper()
	lost, failed := map[int]bool{}, map[[2]int]bool{}
	for _, x := range b.Faults {
		if x.Part == gpu.PartEntity {
			lost[x.Row] = true
		} else if x.Part == gpu.PartField {
			failed[[2]int{x.Row, x.Field}] = true
		}
	}
	seen := map[[2]int]bool{}
	for _, x := range b.Samples {
		cell := [2]int{x.Row, x.Field}
		field := &plan.Fields[x.Field]
		switch {
		case x.Value.IsAbsent():
			t.Fatalf("%s: sample without a value", field.Name)
		case x.Time > now.UnixNano() || x.Time <= 0:
			t.Fatalf("%s: sample with time %v at %v", field.Name, time.Unix(0, x.Time), now)
		case lost[x.Row] || failed[cell]:
			t.Fatalf("%s of row %d: both a sample and a fault", field.Name, x.Row)
		case seen[cell]:
			t.Fatalf("%s of row %d: two samples", field.Name, x.Row)
		}
		seen[cell] = true
	}
}
