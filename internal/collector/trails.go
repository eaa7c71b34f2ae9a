package collector

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Trails are the samples that are on no page yet when a reload replaces the session: those since
// the latest page, of the fields of which every sample is requested. They join the first batch of
// the next page.
type trails struct{ samples []gpu.Sample }

// add adds the trails of a batch that becomes no page. Both sessions of a reload may report one
// sample.
func (u *trails) add(b *gpu.Batch) {
	type point struct {
		row, field int
		time       int64
	}
	seen := make(map[point]bool, len(u.samples))
	for _, s := range u.samples {
		seen[point{s.Row, s.Field, s.Time}] = true
	}
	for _, s := range b.Trails {
		if !seen[point{s.Row, s.Field, s.Time}] {
			u.samples = append(u.samples, s)
		}
	}
}

// move makes the samples those of another topology and plan. What these do not have is left out.
func (u *trails) move(from, to *gpu.Topology, before, after *gpu.Plan) {
	type entity struct {
		uuid string
		gpu.Entity
	}
	rows := make(map[entity]int, len(to.Devices))
	for row := range to.Devices {
		rows[entity{to.Devices[row].UUID, to.Devices[row].Entity}] = row
	}
	fields := make(map[gpu.FieldID]int, len(after.Fields))
	for i := range after.Fields {
		if after.Fields[i].Every {
			fields[after.Fields[i].ID] = i
		}
	}
	kept := u.samples[:0]
	for _, s := range u.samples {
		d := &from.Devices[s.Row]
		row, there := rows[entity{d.UUID, d.Entity}]
		field, planned := fields[before.Fields[s.Field].ID]
		if there && planned {
			s.Row, s.Field = row, field
			kept = append(kept, s)
		}
	}
	u.samples = kept
}

// join puts the samples before the trails of a batch.
func (u *trails) join(b *gpu.Batch) {
	if len(u.samples) == 0 {
		return
	}
	b.Trails = slices.Concat(u.samples, b.Trails)
	u.drop()
}

func (u *trails) drop() { u.samples = u.samples[:0] }
