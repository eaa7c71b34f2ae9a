package collector

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A burst is what was sampled and is on no page yet when a reload replaces the session:
// of fields whose extremes are shown the samples since the latest page. They join the
// first batch of the next page.
type burst struct{ samples []gpu.Sample }

// keep adds the samples of burst fields of a batch that becomes no page. Both sessions of
// a reload may report the same sample.
func (u *burst) keep(b *gpu.Batch, plan *gpu.Plan) {
	type point struct {
		row, field int
		time       int64
	}
	seen := make(map[point]bool, len(u.samples))
	for _, s := range u.samples {
		seen[point{s.Row, s.Field, s.Time}] = true
	}
	for _, s := range b.Samples {
		if plan.Fields[s.Field].Burst && !seen[point{s.Row, s.Field, s.Time}] {
			u.samples = append(u.samples, s)
		}
	}
}

// move makes the samples those of another topology and plan. What these lack is left out.
func (u *burst) move(from, to *gpu.Topology, before, after *gpu.Plan) {
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
		if after.Fields[i].Burst {
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

// join puts what was kept before the samples of a batch, since the newest counts last.
func (u *burst) join(b *gpu.Batch) {
	if len(u.samples) == 0 {
		return
	}
	b.Samples = slices.Concat(u.samples, b.Samples)
	u.drop()
}

func (u *burst) drop() { u.samples = u.samples[:0] }
