package counters

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// NewPlan returns a plan with the given settings and the fields and families of the requests. Each field is listed
// once, at its first request, with the shortest requested interval. Each request adds a counter or an exporter family.
//
// Fields of the machine, such as the driver version, are read for every GPU. If they are labels, they are also read for
// every instance, because NVIDIA's exporter adds them to the instance's series.
func NewPlan(requests []Request, settings gpu.Plan) *gpu.Plan {
	p := &settings
	for i := range requests {
		r := &requests[i]
		if r.Interval > 0 && r.Interval < p.ReadInterval() {
			p.Cycle = r.Interval
		}
		c := gpu.Counter{Name: r.Name, Type: r.Type, Help: r.Help}
		switch f, e := r.Family, &r.Named.Entry; {
		case f != nil && f.Link == 0:
			addDerived(p, r)
			continue
		case f != nil:
			c.Scale, c.Field = 1, addField(p, f.Link, r)
		default:
			c.Scale, c.Field = r.Named.Scale, addField(p, e.ID, r)
			c.OfGPUs, c.OfMachine = ofGPUs(e), e.Levels.Has(gpu.KindNode)
		}
		p.Counters = append(p.Counters, c)
	}
	return p
}

// addDerived adds an exporter family and what it needs.
func addDerived(p *gpu.Plan, r *Request) {
	f := r.Family
	d := gpu.Derived{Name: r.Name, Type: r.Type, Help: r.Help, Interval: r.Interval}
	if f.Field != 0 {
		d.HasField, d.Field = true, addField(p, f.Field, r)
		if f.MaxInterval > 0 {
			shorten(p, d.Field, f.MaxInterval)
		}
	}
	for _, id := range f.Values {
		addField(p, id, r)
	}
	p.Derived = append(p.Derived, d)
	p.Health |= f.Health
	p.Peers = p.Peers || f.Peers
	p.Links = p.Links || f.Links
	p.Placement = p.Placement || f.Placement
}

// addField returns the index of a field, adding it at its first request. An NVLink family reads the field of the links,
// which can have the same ID as a field of GPUs.
func addField(p *gpu.Plan, id gpu.FieldID, r *Request) int {
	e, _ := catalog.ByID(id) // always found; a test checks this
	f := e.Field()
	if f.Interval, f.Levels = r.Interval, levels(e, r.Type); r.Family != nil && r.Family.Link != 0 {
		f.Name, f.Levels = r.Name, gpu.KindsOf(gpu.KindNVLink)
	}
	i := slices.IndexFunc(p.Fields, func(known gpu.Field) bool {
		return known.ID == id && known.Levels.Has(gpu.KindNVLink) == f.Levels.Has(gpu.KindNVLink)
	})
	if i < 0 {
		i = len(p.Fields)
		p.Fields = append(p.Fields, f)
	}
	p.Fields[i].Levels |= f.Levels
	shorten(p, i, f.Interval)
	return i
}

// shorten sets the interval of a field if it is shorter. 0 means the plan's interval.
func shorten(p *gpu.Plan, field int, interval time.Duration) {
	if f := &p.Fields[field]; cmp.Or(interval, p.Interval) < cmp.Or(f.Interval, p.Interval) {
		f.Interval = interval
	}
}

// ofGPUs reports whether a GPU's value also applies to each of its instances, which have no value of their own.
// Profiling traffic applies only to the GPU.
func ofGPUs(e *catalog.Entry) bool {
	isOfGPU := e.Levels.Has(gpu.KindGPU) || e.Levels.Has(gpu.KindNode)
	return isOfGPU && !e.Profiling && !e.Levels.Has(gpu.KindGPUInstance)
}

// levels returns the kinds of entities for which a field is read.
func levels(e catalog.Entry, typ gpu.MetricType) gpu.Kinds {
	if !e.Levels.Has(gpu.KindNode) {
		return e.Levels
	}
	if typ == gpu.MetricLabel {
		return gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance)
	}
	return gpu.KindsOf(gpu.KindGPU)
}
