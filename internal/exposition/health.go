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

// entityUp writes one series per entity, but none for an NVLink that is read. The reason label exists only while the
// value is 0, so that the labels of a healthy entity never change.
func (w *writer) entityUp(f *family) {
	for row := range min(len(w.s.Health.Entities), len(w.labels.rows)) {
		r := &w.labels.rows[row]
		switch err := w.s.Health.Entities[row].Err; {
		case !r.counted:
		case err != nil:
			w.extended(f, &r.health, []gpu.Label{{Name: "reason", Value: gpu.Reason(err)}}, gpu.Int(0))
		case !w.isLink(row):
			w.once(f, &r.health, gpu.Int(1))
		}
	}
}

func (w *writer) isLink(row int) bool { return w.s.Topology.Devices[row].Entity.Kind == gpu.KindNVLink }

// fieldUnavailable writes series of entities, and series without entity labels that apply to all entities.
func (w *writer) fieldUnavailable(f *family) {
	for i := range w.s.Health.Unavailable {
		u := &w.s.Health.Unavailable[i]
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
	for row := range min(len(w.s.Health.Entities), len(w.labels.rows)) {
		r := &w.labels.rows[row]
		oldest := w.s.Health.Entities[row].OldestSample
		if !r.counted || oldest == 0 {
			continue
		}
		age := max(0, now-oldest) / 1e6 // milliseconds are precise enough
		if w.isLink(row) && age < oldLinkSample.Milliseconds() {
			continue
		}
		w.once(f, &r.health, gpu.Float(float64(age)/1e3))
	}
}
