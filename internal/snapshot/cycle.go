package snapshot

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Kind says what becomes of a reading.
type Kind uint8

// The kinds of readings.
const (
	// Served: it becomes a page.
	Served Kind = iota
	// Final: nothing of it is served, and its events count. The last reading before a session closes,
	// and one that failed, are of this kind.
	Final
)

// A Reading is what a Builder makes a Cycle of.
type Reading struct {
	Kind  Kind
	Batch *gpu.Batch
	// Owners are those that were reported meanwhile; nil where nothing attributes.
	Owners *gpu.Owners
	// Begin is when the Read began, and Now when its samples are judged, by the clock that dates
	// samples.
	Begin, Now time.Time
	// Uptime is Now by a clock that is never set, from any start on.
	Uptime time.Duration
}

// A Cycle is one reading of one session, after freshness and range were applied. It is valid until
// the Builder's next one.
type Cycle struct {
	Reading
	Topology *gpu.Topology
	Plan     *gpu.Plan

	builder *Builder
}

// Value returns the value of the field at an index of the plan in a row, absent where there is
// none.
func (c *Cycle) Value(field, row int) gpu.Value { return c.builder.cell(field, row).value }

// Missing returns why the field has no value in the row, as far as that was said; "" otherwise.
func (c *Cycle) Missing(field, row int) string { return c.builder.cell(field, row).missing }

// Down returns why the entity of the row is not read, nil while it is.
func (c *Cycle) Down(row int) error { return c.builder.snap.Health.Entities[row].Err }

// Plausible reports whether the sample is one of an entity that has the field, within its bounds.
// Its age does not matter: an old event happened, too.
func (c *Cycle) Plausible(s *gpu.Sample) bool {
	field := &c.Plan.Fields[s.Field]
	return c.Topology.Serves(field, s.Row) && inRange(field, s.Value)
}

// A Deriver makes the families that no column shows. Its methods are called on one goroutine.
type Deriver interface {
	// Bind begins a session: of this topology, opened for this plan.
	Bind(*gpu.Topology, *gpu.Plan)
	// Derive appends the families of a cycle. Of one that is not Served only the events matter.
	Derive([]gpu.Family, *Cycle) []gpu.Family
	// Unavailable appends the families that the plan requests of this Deriver and that it cannot give,
	// and why. It follows Derive.
	Unavailable([]gpu.FieldHealth, *Cycle) []gpu.FieldHealth
}
