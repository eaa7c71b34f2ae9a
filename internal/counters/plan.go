package counters

import (
	"cmp"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// PlanOptions are the settings of a plan. The zero value requests no entities at all.
type PlanOptions struct {
	Interval time.Duration // of the collection
	// IntervalOf returns the interval of a family in a watch group, 0 for others; nil for no groups.
	IntervalOf              func(name string) time.Duration
	Devices, Switches, CPUs gpu.Selector
	AsRead                  bool // gpu.Plan.AsRead, and without the families that are catalog.Family.NotStrict
}

// NewPlan returns the plan of requests: every field once, in the order of its first request and with the shortest interval
// of all, a counter for every request of a field, and an exporter family for each other one.
//
// A field of the machine itself (driver version) is read for every GPU, as a label for every GPU instance too, so that it
// stands beside their other series as in dcgm-exporter.
func NewPlan(requests []Request, o PlanOptions) *gpu.Plan {
	b := planner{
		plan:    &gpu.Plan{Interval: o.Interval, Devices: o.Devices, Switches: o.Switches, CPUs: o.CPUs, AsRead: o.AsRead},
		options: o,
		at:      make(map[fieldKey]int, len(requests)),
	}
	for _, r := range requests {
		if r.Family != nil && r.Family.NotStrict && o.AsRead {
			continue
		}
		if r.Family != nil && r.Family.Link != 0 {
			b.plan.Counters = append(b.plan.Counters, gpu.Counter{Name: r.Name, Type: r.Type, Help: r.Help, Scale: 1, Field: b.linkField(r)})
			continue
		}
		if r.Family != nil {
			d := gpu.Derived{Name: r.Name, Type: r.Type, Help: r.Help, Field: -1, Interval: b.interval(r.Name)}
			if e, ok := catalog.ByID(r.Family.Field); ok && r.Family.Field != 0 {
				d.Field = b.field(e, r)
				if longest := r.Family.MaxInterval; longest > 0 {
					f := &b.plan.Fields[d.Field]
					f.Interval = shorter(f.Interval, longest, b.options.Interval)
				}
			}
			for _, id := range r.Family.Values {
				e, _ := catalog.ByID(id) // the catalog has them all; a test checks that
				b.field(e, r)
			}
			b.plan.Derived = append(b.plan.Derived, d)
			b.need(r.Family)
			continue
		}
		c := gpu.Counter{
			Name: r.Name, Type: r.Type, Help: r.Help, Scale: r.Named.Scale,
			Field: b.field(r.Named.Entry, r), OfGPUs: ofGPUs(&r.Named.Entry), OfMachine: r.Named.Entry.Levels.Has(gpu.KindNode),
		}
		b.plan.Counters = append(b.plan.Counters, c)
	}
	return b.plan
}

type planner struct {
	plan    *gpu.Plan
	options PlanOptions
	at      map[fieldKey]int
}

// A fieldKey tells a field of GPUs from the same of their links, which is another one.
type fieldKey struct {
	id   gpu.FieldID
	link bool
}

// need notes the needs of a family beside fields.
func (b *planner) need(f *catalog.Family) {
	b.plan.Health |= f.Health
	b.plan.Peers = b.plan.Peers || f.Needs&catalog.NeedsPeers != 0
	b.plan.Placement = b.plan.Placement || f.Needs&catalog.NeedsPlacement != 0
}

// field returns the index of the field of e, and adds it for its first request.
func (b *planner) field(e catalog.Entry, r Request) int {
	i := b.add(fieldKey{id: e.ID}, e, r)
	b.plan.Fields[i].Levels |= levels(e, r.Type)
	return i
}

// linkField is field for a family by link.
func (b *planner) linkField(r Request) int {
	e, _ := catalog.ByID(r.Family.Link) // the catalog has them all; a test checks that
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

func (b *planner) interval(name string) time.Duration {
	if b.options.IntervalOf == nil {
		return 0
	}
	return b.options.IntervalOf(name)
}

// shorter returns the shorter of two intervals. 0 stands for the plan's.
func shorter(a, b, plan time.Duration) time.Duration {
	if cmp.Or(b, plan) < cmp.Or(a, plan) {
		return b
	}
	return a
}

// ofGPUs reports whether the value of a GPU is true of each of its instances, which have none of their own. The traffic of
// profiling is the GPU's alone.
func ofGPUs(e *catalog.Entry) bool {
	return !e.Profiling && !e.Levels.Has(gpu.KindGPUInstance) && (e.Levels.Has(gpu.KindGPU) || e.Levels.Has(gpu.KindNode))
}

// levels returns the kinds of entities that a field is read for.
func levels(e catalog.Entry, typ gpu.MetricType) gpu.Kinds {
	if !e.Levels.Has(gpu.KindNode) {
		return e.Levels
	}
	if typ == gpu.MetricLabel {
		return gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance)
	}
	return gpu.KindsOf(gpu.KindGPU)
}
