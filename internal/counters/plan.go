package counters

import (
	"cmp"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// PlanOptions are the settings of a plan. The zero value requests no entities.
type PlanOptions struct {
	Interval time.Duration // collection interval
	// returns the interval of a family in a watch group, 0 for others; nil without groups
	IntervalOf              func(name string) time.Duration
	Devices, Switches, CPUs gpu.Selector
	KeepContradicted        bool // sets gpu.Plan.KeepContradicted
}

// NewPlan returns the plan of the requests. Each field is listed once, at its first request, with the shortest
// requested interval. Each request adds a counter or an exporter family.
//
// Fields of the machine, such as the driver version, are read for every GPU. As labels they are also read for every
// instance, so that they are added to the instance's series as in NVIDIA's exporter.
func NewPlan(requests []Request, o PlanOptions) *gpu.Plan {
	b := planner{
		plan: &gpu.Plan{
			Interval: o.Interval, Devices: o.Devices, Switches: o.Switches, CPUs: o.CPUs,
			KeepContradicted: o.KeepContradicted,
		},
		options: o,
		at:      make(map[fieldKey]int, len(requests)),
	}
	for _, r := range requests {
		if r.Family != nil && r.Family.Link != 0 {
			c := gpu.Counter{Name: r.Name, Type: r.Type, Help: r.Help, Scale: 1, Field: b.linkField(r)}
			b.plan.Counters = append(b.plan.Counters, c)
			continue
		}
		if r.Family != nil {
			d := gpu.Derived{Name: r.Name, Type: r.Type, Help: r.Help, Interval: b.interval(r.Name)}
			if e, ok := catalog.ByID(r.Family.Field); ok && r.Family.Field != 0 {
				d.HasField, d.Field = true, b.field(e, r)
				if longest := r.Family.MaxInterval; longest > 0 {
					f := &b.plan.Fields[d.Field]
					f.Interval = shorter(f.Interval, longest, b.options.Interval)
				}
			}
			for _, id := range r.Family.Values {
				e, _ := catalog.ByID(id) // always found; a test checks this
				b.field(e, r)
			}
			b.plan.Derived = append(b.plan.Derived, d)
			b.need(r.Family)
			continue
		}
		e := r.Named.Entry
		b.plan.Counters = append(b.plan.Counters, gpu.Counter{
			Name: r.Name, Type: r.Type, Help: r.Help, Scale: r.Named.Scale,
			Field: b.field(e, r), OfGPUs: ofGPUs(&e), OfMachine: e.Levels.Has(gpu.KindNode),
		})
	}
	return b.plan
}

type planner struct {
	plan    *gpu.Plan
	options PlanOptions
	at      map[fieldKey]int
}

// A fieldKey distinguishes a field of GPUs from the same field of their links.
type fieldKey struct {
	id   gpu.FieldID
	link bool
}

// need records what a family needs besides fields.
func (b *planner) need(f *catalog.Family) {
	b.plan.Health |= f.Health
	b.plan.Peers = b.plan.Peers || f.Needs&catalog.NeedsPeers != 0
	b.plan.Links = b.plan.Links || f.Needs&catalog.NeedsLinks != 0
	b.plan.Placement = b.plan.Placement || f.Needs&catalog.NeedsPlacement != 0
}

// field returns the index of the field of e, adding it at its first request.
func (b *planner) field(e catalog.Entry, r Request) int {
	i := b.add(fieldKey{id: e.ID}, e, r)
	b.plan.Fields[i].Levels |= levels(e, r.Type)
	return i
}

// linkField does the same for a family of links.
func (b *planner) linkField(r Request) int {
	e, _ := catalog.ByID(r.Family.Link) // always found; a test checks this
	i := b.add(fieldKey{id: e.ID, link: true}, e, r)
	b.plan.Fields[i].Name, b.plan.Fields[i].Levels = r.Name, gpu.KindsOf(gpu.KindNVLink)
	return i
}

func (b *planner) add(key fieldKey, e catalog.Entry, r Request) int {
	interval := b.interval(r.Name)
	i, ok := b.at[key]
	if !ok {
		i = len(b.plan.Fields)
		b.at[key] = i
		f := e.Field()
		f.Levels = 0
		f.Interval = interval
		b.plan.Fields = append(b.plan.Fields, f)
	}
	f := &b.plan.Fields[i]
	f.Interval = shorter(f.Interval, interval, b.options.Interval)
	return i
}

// interval returns the interval of a family in a watch group, 0 for others. Reads are as frequent as the shortest one.
func (b *planner) interval(name string) time.Duration {
	if b.options.IntervalOf == nil {
		return 0
	}
	interval := b.options.IntervalOf(name)
	if interval > 0 && interval < b.plan.ReadInterval() {
		b.plan.Cycle = interval
	}
	return interval
}

// shorter returns the shorter of two intervals. 0 means the plan's interval.
func shorter(a, b, plan time.Duration) time.Duration {
	if cmp.Or(b, plan) < cmp.Or(a, plan) {
		return b
	}
	return a
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
