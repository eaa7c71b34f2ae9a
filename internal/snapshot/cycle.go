// Package snapshot turns a reading into the data of a page.
//
// A Builder stores each sample of a gpu.Batch in its cell if it is fresh and plausible. It decides which entities are
// up and why a requested field has no value, and fills the columns of a gpu.Snapshot. Derivers add the other families:
// Facts is in this package; events, accounting and verdict have their own.
//
// A Builder belongs to one session. Its next snapshot reuses the memory of the latest. The package calls no driver and
// reads no clock.
package snapshot

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Reading is the input of a Builder.
type Reading struct {
	// Final means that only the events are used: the reading failed or is the last of its session.
	Final  bool
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

func (c *Cycle) cell(id gpu.FieldID, row int) cell {
	if field, ok := c.builder.fields[id]; ok {
		return *c.builder.cell(field, row)
	}
	return cell{}
}

// Value returns the value of a field in a row, absent if there is none or if the plan lacks the field. If GPUs and
// their links have a field of the same ID, it is that of the GPUs.
func (c *Cycle) Value(id gpu.FieldID, row int) gpu.Value { return c.cell(id, row).value }

// Missing returns why the field has no value in the row, or "" if no reason was reported.
func (c *Cycle) Missing(id gpu.FieldID, row int) string { return c.cell(id, row).missing }

// Down returns why the entity of the row is not read, or nil if it is read.
func (c *Cycle) Down(row int) error { return c.builder.snap.Health.Entities[row].Err }

// Plausible reports whether the entity of the sample has the field and the value is within its bounds. Age is ignored:
// old events count.
func (c *Cycle) Plausible(s *gpu.Sample) bool {
	field := &c.Plan.Fields[s.Field]
	n, isNumber := s.Value.Number()
	return c.Topology.Serves(field, s.Row) && (!isNumber || field.Range.Contains(n))
}

// A Deriver adds the families that are not columns. All methods are called on one goroutine.
type Deriver interface {
	// Bind is called when a session starts, with its topology and plan. Later cycles belong to that session.
	Bind(*gpu.Topology, *gpu.Plan)
	// Derive appends the families of a cycle. If the reading is Final, only its events are used.
	Derive([]gpu.Family, *Cycle) []gpu.Family
	// Unavailable appends the requested families of this Deriver that are missing, with the reason. It is called after
	// Derive.
	Unavailable([]gpu.FieldHealth, *Cycle) []gpu.FieldHealth
}
