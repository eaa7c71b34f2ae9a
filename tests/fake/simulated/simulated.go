// Package simulated is shared by tests of simulated nodes: a clock that they move, and plans of the
// catalog's fields.
package simulated

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// Epoch is the time at which every clock starts.
var Epoch = time.Date(2026, 3, 4, 9, 0, 0, 0, time.UTC)

// A Clock is a time that only tests move.
type Clock struct{ t time.Time }

// NewClock returns a clock at Epoch.
func NewClock() *Clock { return &Clock{Epoch} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time { return c.t }

// Pass moves the clock on.
func (c *Clock) Pass(d time.Duration) { c.t = c.t.Add(d) }

// At moves the clock to a time after Epoch.
func (c *Clock) At(d time.Duration) { c.t = Epoch.Add(d) }

// Plan returns a plan for the fields with these ids on every entity; without any, for all of the
// catalog.
func Plan(ids ...gpu.FieldID) *gpu.Plan {
	return PlanOf(func(e catalog.Entry) bool { return ids == nil || slices.Contains(ids, e.ID) })
}

// PlanOf returns a plan for the fields that include selects, on every entity.
func PlanOf(include func(catalog.Entry) bool) *gpu.Plan {
	flex := gpu.Selector{Flex: true}
	p := &gpu.Plan{Interval: 10 * time.Second, Devices: flex, Switches: flex, CPUs: flex}
	for e := range catalog.All() {
		if e.Exportable() && include(e) {
			p.Fields = append(p.Fields, e.Field())
		}
	}
	return p
}

// Scenario parses faults of a simulated node.
func Scenario(t testing.TB, yaml string) *sim.Scenario {
	t.Helper()
	s, err := sim.ParseScenario(strings.NewReader(yaml), "scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
