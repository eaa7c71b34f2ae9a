// Package simulated has helpers for tests of simulated nodes: a manual clock, fault scenarios, and plans made of
// catalog fields.
package simulated

import (
	"slices"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// Epoch is the start time of every Clock.
var Epoch = time.Date(2026, 3, 4, 9, 0, 0, 0, time.UTC)

// A Clock is a clock that only tests advance.
type Clock struct{ t time.Time }

// NewClock returns a clock set to Epoch.
func NewClock() *Clock { return &Clock{Epoch} }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time { return c.t }

// Pass advances the clock.
func (c *Clock) Pass(d time.Duration) { c.t = c.t.Add(d) }

// At sets the clock to a time after Epoch.
func (c *Clock) At(d time.Duration) { c.t = Epoch.Add(d) }

// Plan returns a plan of the exportable fields with these IDs on every entity. Without IDs, it has all exportable
// fields of the catalog.
func Plan(ids ...gpu.FieldID) *gpu.Plan {
	return PlanOf(func(e catalog.Entry) bool { return ids == nil || slices.Contains(ids, e.ID) })
}

// PlanOf returns a plan of the exportable fields for which include returns true, on every entity.
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

// Scenario parses a fault scenario of a simulated node.
func Scenario(t testing.TB, yaml string) *sim.Scenario {
	t.Helper()
	s, err := sim.ParseScenario([]byte(yaml), "scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
