package sim_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/contract"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// clock is an injected time that only tests move.
type clock struct{ t time.Time }

// epoch is the start of every test's world.
var epoch = time.Date(2026, 3, 4, 9, 0, 0, 0, time.UTC)

func (c *clock) now() time.Time       { return c.t }
func (c *clock) pass(d time.Duration) { c.t = c.t.Add(d) }
func newClock() *clock                { return &clock{epoch} }
func (c *clock) at(d time.Duration)   { c.t = epoch.Add(d) }

// planOf returns a plan for the catalogue's fields that keep says, on every
// entity.
func planOf(keep func(catalog.Entry) bool) *gpu.Plan {
	flex := gpu.Selector{Flex: true}
	p := &gpu.Plan{Interval: 10 * time.Second, Devices: gpu.Selector{Flex: true, Compute: true}, Switches: flex, CPUs: flex}
	for e := range catalog.All() {
		if e.Exportable() && keep(e) {
			p.Fields = append(p.Fields, e.Field())
		}
	}
	return p
}

func everything(catalog.Entry) bool { return true }

func sortIDs(l []gpu.FieldID) { slices.Sort(l) }

func ids(list ...gpu.FieldID) func(catalog.Entry) bool {
	set := map[gpu.FieldID]bool{}
	for _, id := range list {
		set[id] = true
	}
	return func(e catalog.Entry) bool { return set[e.ID] }
}

// scenario parses faults or ends the test.
func scenario(t testing.TB, yaml string) *sim.Scenario {
	t.Helper()
	s, err := sim.ParseScenario(strings.NewReader(yaml), "scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) {
	const faults = `
faults:
  - {fault: gpu-lost, at: 1h, devices: ["0"]}
  - {fault: xid, at: 20m, devices: ["0"], xids: [62]}
  - {fault: xid, at: 40m, devices: ["0"], xids: [45, 45]}
  - {fault: engine-down, at: 3h}
`
	const cut = `
  - {fault: repartition, at: 2h, devices: ["0"], mig: []}
`
	for _, name := range sim.Nodes() {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			var src *sim.Source
			happened := 0
			plan := planOf(everything)
			plan.Placement, plan.Peers, plan.Health = true, true, true
			f := contract.Fixture{
				Plan: plan,
				Now:  c.now,
				New: func(t *testing.T) collector.Source {
					happened = 0
					c.at(0)
					script := faults
					if canCut(t, name) {
						script += cut
					}
					var err error
					src, err = sim.New(sim.Options{Node: name, Seed: 1, Now: c.now, Scenario: scenario(t, script)})
					if err != nil {
						t.Fatal(err)
					}
					return collector.SourceOf(src.Open)
				},
				Settle: func(*testing.T) { c.pass(10 * time.Second) },
				XID: func(*testing.T) {
					if happened++; happened == 1 {
						c.at(21 * time.Minute)
					} else {
						c.at(41 * time.Minute)
					}
				},
				Lose:        func(*testing.T, int) { c.at(time.Hour) },
				Kill:        func(*testing.T) { c.at(3 * time.Hour) },
				OpenHandles: func(*testing.T) int { return src.Stats().OpenHandles() },
			}
			if name == "everything" {
				f.Kinds = gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance, gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore, gpu.KindConnectX)
			}
			if canCut(t, name) {
				f.Change = func(*testing.T) { c.at(2 * time.Hour) }
			}
			contract.Run(t, f)
		})
	}
}

// canCut reports whether MIG can cut the node's first GPU.
func canCut(t *testing.T, name string) bool {
	t.Helper()
	_, err := sim.New(sim.Options{Node: name, Scenario: scenario(t, `faults: [{fault: repartition, devices: ["0"], mig: []}]`)})
	return err == nil
}
