package exposition

import (
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The families of the state of the collection itself. They are written whether or not there is
// anything else.
const (
	// EntityUp is 1 for an entity that is read and 0 for one that is not. An entity has exactly one
	// series on a page; the reason label is there only at 0, so that the series of a healthy entity
	// never changes its labels and "== 0" finds the others with their reason.
	EntityUp = "dcgm_exporter_entity_up"
	// FieldUnavailable is 1 for everything that was requested and is not served, with the reason: for
	// one entity, or without its labels for all.
	FieldUnavailable = "dcgm_exporter_field_unavailable"
	// SampleAge is how old the oldest sample of an entity was, in seconds, when the page was made.
	SampleAge = "dcgm_exporter_sample_age_seconds"
)

// A healthFamily appends the samples of a health family.
type healthFamily func(*Encoder, []byte, *family, *gpu.Snapshot) []byte

type healthDefinition struct {
	name, help string
	append     healthFamily
}

func healthFamilies() []healthDefinition {
	return []healthDefinition{
		{EntityUp, "Whether the entity is read (1) or not (0, with the reason).", (*Encoder).appendEntityUp},
		{FieldUnavailable, "1 for each configured metric that is not served, with the reason.", (*Encoder).appendFieldUnavailable},
		{SampleAge, "Age of the oldest sample served for the entity, when the page was made.", (*Encoder).appendSampleAge},
	}
}

func (e *Encoder) appendEntityUp(dst []byte, f *family, s *gpu.Snapshot) []byte {
	for row := range min(len(s.Health.Entities), len(e.labels.rows)) {
		r := &e.labels.rows[row]
		if !r.counted {
			continue
		}
		if err := s.Health.Entities[row].Err; err != nil {
			reason := [...]gpu.Label{{Name: "reason", Value: gpu.Reason(err)}}
			dst = e.appendExtended(dst, f, &r.health, reason[:], gpu.Int(0))
		} else {
			dst = e.appendExtended(dst, f, &r.health, nil, gpu.Int(1))
		}
	}
	return dst
}

func (e *Encoder) appendFieldUnavailable(dst []byte, f *family, s *gpu.Snapshot) []byte {
	for i := range s.Health.Unavailable {
		u := &s.Health.Unavailable[i]
		b := &block{}
		if u.Row != gpu.AllRows {
			if u.Row < 0 || u.Row >= len(e.labels.rows) {
				continue
			}
			b = &e.labels.rows[u.Row].health
		}
		what := [...]gpu.Label{{Name: "field", Value: u.Field}, {Name: "reason", Value: u.Reason}}
		dst = e.appendExtended(dst, f, b, what[:], gpu.Int(1))
	}
	return dst
}

func (e *Encoder) appendSampleAge(dst []byte, f *family, s *gpu.Snapshot) []byte {
	now := s.Time.UnixNano()
	for row := range min(len(s.Health.Entities), len(e.labels.rows)) {
		r := &e.labels.rows[row]
		oldest := s.Health.Entities[row].OldestSample
		if !r.counted || oldest == 0 {
			continue
		}
		age := max(0, now-oldest) / 1e6 // milliseconds: finer would be noise
		dst = e.appendExtended(dst, f, &r.health, nil, gpu.Float(float64(age)/1e3))
	}
	return dst
}
