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
		Plan: &gpu.Plan{
			Interval: o.Interval, Devices: o.Devices, Switches: o.Switches, CPUs: o.CPUs,
			KeepContradicted: o.KeepContradicted,
		},
		intervalOf: o.IntervalOf,
		at:         make(map[fieldKey]int, len(requests)),
	}
	for _, r := range requests {
		f, e := r.Family, &r.Named.Entry
		if f != nil && f.Link == 0 {
			b.derived(r)
			continue
		}
		c := gpu.Counter{Name: r.Name, Type: r.Type, Help: r.Help}
		if f != nil {
			c.Scale, c.Field = 1, b.field(f.Link, r)
		} else {
			c.Scale, c.Field = r.Named.Scale, b.field(e.ID, r)
			c.OfGPUs, c.OfMachine = ofGPUs(e), e.Levels.Has(gpu.KindNode)
		}
		b.Counters = append(b.Counters, c)
	}
	return b.Plan
}

type planner struct {
	*gpu.Plan
	intervalOf func(name string) time.Duration
	at         map[fieldKey]int
}

// A fieldKey distinguishes a field of GPUs from the same field of their links.
type fieldKey struct {
	id   gpu.FieldID
	link bool
}

// derived adds an exporter family and what it needs.
func (b *planner) derived(r Request) {
	f := r.Family
	d := gpu.Derived{Name: r.Name, Type: r.Type, Help: r.Help, Interval: b.interval(r.Name)}
	if f.Field != 0 {
		d.HasField, d.Field = true, b.field(f.Field, r)
		if f.MaxInterval > 0 {
			b.shorten(d.Field, f.MaxInterval)
		}
	}
	for _, id := range f.Values {
		b.field(id, r)
	}
	b.Derived = append(b.Derived, d)
	b.Health |= f.Health
	b.Peers = b.Peers || f.Needs&catalog.NeedsPeers != 0
	b.Links = b.Links || f.Needs&catalog.NeedsLinks != 0
	b.Placement = b.Placement || f.Needs&catalog.NeedsPlacement != 0
}

// field returns the index of a field, adding it at its first request. A family of links reads the field of the links.
func (b *planner) field(id gpu.FieldID, r Request) int {
	e, _ := catalog.ByID(id) // always found; a test checks this
	f, isLink := e.Field(), r.Family != nil && r.Family.Link != 0
	if f.Interval, f.Levels = b.interval(r.Name), levels(e, r.Type); isLink {
		f.Name, f.Levels = r.Name, gpu.KindsOf(gpu.KindNVLink)
	}
	i, ok := b.at[fieldKey{id, isLink}]
	if !ok {
		i = len(b.Fields)
		b.at[fieldKey{id, isLink}] = i
		b.Fields = append(b.Fields, f)
	}
	b.Fields[i].Levels |= f.Levels
	b.shorten(i, f.Interval)
	return i
}

// shorten sets the interval of a field if it is shorter. 0 means the plan's interval.
func (b *planner) shorten(field int, interval time.Duration) {
	if f := &b.Fields[field]; cmp.Or(interval, b.Interval) < cmp.Or(f.Interval, b.Interval) {
		f.Interval = interval
	}
}

// interval returns the interval of a family in a watch group, 0 for others. Reads are as frequent as the shortest one.
func (b *planner) interval(name string) time.Duration {
	if b.intervalOf == nil {
		return 0
	}
	interval := b.intervalOf(name)
	if interval > 0 && interval < b.ReadInterval() {
		b.Cycle = interval
	}
	return interval
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
