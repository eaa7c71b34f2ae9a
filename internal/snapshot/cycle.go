package snapshot

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Kind says what a reading is used for.
type Kind uint8

// The kinds of readings.
const (
	Served Kind = iota // it becomes a page
	Final              // only its events are used: the reading failed or is the last of its session
)

// A Reading is the input of a Builder.
type Reading struct {
	Kind   Kind
	Batch  *gpu.Batch
	Owners *gpu.Owners // nil without attribution
	// Begin is when the Read began. Now is the time against which the age of samples is measured, by the clock that
	// dates samples.
	Begin, Now time.Time
	// Elapsed is the monotonic time since the collector started. Steps of the wall clock do not affect it.
	Elapsed time.Duration
}

// A Cycle is one reading of a session after stale and implausible samples were dropped. It is valid until the Builder's
// next cycle.
type Cycle struct {
	Reading
	Topology *gpu.Topology
	Plan     *gpu.Plan

	builder *Builder
}

// Value returns the value of a field in a row, absent if there is none.
func (c *Cycle) Value(field, row int) gpu.Value { return c.builder.cell(field, row).value }

// Missing returns why the field has no value in the row, or "" if no reason was reported.
func (c *Cycle) Missing(field, row int) string { return c.builder.cell(field, row).missing }

// Down returns why the entity of the row is not read, or nil if it is read.
func (c *Cycle) Down(row int) error { return c.builder.snap.Health.Entities[row].Err }

// Plausible reports whether the entity of the sample has the field and the value is within its bounds. Age is ignored:
// old events count.
func (c *Cycle) Plausible(s *gpu.Sample) bool {
	field := &c.Plan.Fields[s.Field]
	return c.Topology.Serves(field, s.Row) && inRange(field, s.Value)
}

// A Deriver adds the families that are not columns. All methods are called on one goroutine.
type Deriver interface {
	// Bind is called when a session starts, with its topology and plan. Later cycles belong to that session.
	Bind(*gpu.Topology, *gpu.Plan)
	// Derive appends the families of a cycle. Unless the cycle is Served, only its events are used.
	Derive([]gpu.Family, *Cycle) []gpu.Family
	// Unavailable appends the requested families of this Deriver that are missing, with the reason. It is called after
	// Derive.
	Unavailable([]gpu.FieldHealth, *Cycle) []gpu.FieldHealth
}
