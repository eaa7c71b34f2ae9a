package snapshot

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Kind is the use of a reading.
type Kind uint8

// The kinds of readings.
const (
	Served Kind = iota // it becomes a page
	Final              // only its events count: it is a session's last one, or failed
)

// A Reading is the input of a Builder.
type Reading struct {
	Kind   Kind
	Batch  *gpu.Batch
	Owners *gpu.Owners // nil where nothing attributes
	// Begin is the beginning of the Read, Now the time that judges its samples, by the clock that dates samples.
	Begin, Now time.Time
	// Elapsed is the time since the collector started by the monotonic clock. Steps of the wall clock do not affect it.
	Elapsed time.Duration
}

// A Cycle is one reading of one session, after freshness and range were applied. It is valid until the Builder's next one.
type Cycle struct {
	Reading
	Topology *gpu.Topology
	Plan     *gpu.Plan

	builder *Builder
}

// Value returns the value of a field in a row, absent where there is none.
func (c *Cycle) Value(field, row int) gpu.Value { return c.builder.cell(field, row).value }

// Missing returns why the field has no value in the row, "" where that was not reported.
func (c *Cycle) Missing(field, row int) string { return c.builder.cell(field, row).missing }

// Down returns why the entity of the row is not read, nil while it is.
func (c *Cycle) Down(row int) error { return c.builder.snap.Health.Entities[row].Err }

// Plausible reports whether the entity of the sample has the field, and the value is within its bounds. Its age does not
// matter: an old event happened, too.
func (c *Cycle) Plausible(s *gpu.Sample) bool {
	field := &c.Plan.Fields[s.Field]
	return c.Topology.Serves(field, s.Row) && inRange(field, s.Value)
}

// A Deriver makes families other than columns. Its methods are called on one goroutine.
type Deriver interface {
	// Bind begins a session.
	Bind(*gpu.Topology, *gpu.Plan)
	// Derive appends the families of a cycle. If it is not Served only its events matter.
	Derive([]gpu.Family, *Cycle) []gpu.Family
	// Unavailable appends the requested families of this Deriver that are missing, and why. It follows Derive.
	Unavailable([]gpu.FieldHealth, *Cycle) []gpu.FieldHealth
}
