package exposition

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// oldLinkSample is the minimum age of an NVLink's oldest sample for which the page shows its age. A page has up
// to 144 links, and the ages of healthy ones carry no information.
const oldLinkSample = time.Minute

// healthFamilies lists the families about the state of the collection, in page order.
var healthFamilies = [...]struct {
	*catalog.Family
	write func(*writer, *family)
}{
	{catalog.FamilyNamed(catalog.EntityUp), (*writer).entityUp},
	{catalog.FamilyNamed(catalog.FieldUnavailable), (*writer).fieldUnavailable},
	{catalog.FamilyNamed(catalog.SampleAge), (*writer).sampleAge},
}

// entities calls write for each entity that has health series.
func (w *writer) entities(write func(health *block, h gpu.EntityHealth, isLink bool)) {
	for row := range min(len(w.s.Health.Entities), len(w.labels.rows)) {
		if kind := w.s.Topology.Devices[row].Entity.Kind; kind != gpu.KindNode {
			write(&w.labels.rows[row].health, w.s.Health.Entities[row], kind == gpu.KindNVLink)
		}
	}
}

// entityUp writes one series per entity, but none for an NVLink that is read. The reason label exists only while the
// value is 0, so that the labels of a healthy entity never change.
func (w *writer) entityUp(f *family) {
	w.entities(func(b *block, h gpu.EntityHealth, isLink bool) {
		if h.Err != nil {
			w.extended(f, b, []gpu.Label{{Name: "reason", Value: gpu.Reason(h.Err)}}, gpu.Int(0))
		} else if !isLink {
			w.once(f, b, gpu.Int(1))
		}
	})
}

// fieldUnavailable writes series of entities, and series without entity labels that apply to all entities.
func (w *writer) fieldUnavailable(f *family) {
	for _, u := range w.s.Health.Unavailable {
		b := &block{}
		switch {
		case u.Row >= len(w.labels.rows):
			continue
		case u.Row != gpu.AllRows:
			b = &w.labels.rows[u.Row].health
		}
		w.extended(f, b, []gpu.Label{{Name: "field", Value: u.Field}, {Name: "reason", Value: u.Reason}}, gpu.Int(1))
	}
}

func (w *writer) sampleAge(f *family) {
	now := w.s.Time.UnixNano()
	w.entities(func(b *block, h gpu.EntityHealth, isLink bool) {
		age := max(0, now-h.OldestSample) / 1e6 // milliseconds are precise enough
		if h.OldestSample != 0 && (!isLink || age >= oldLinkSample.Milliseconds()) {
			w.once(f, b, gpu.Float(float64(age)/1e3))
		}
	})
}
