package gpu

import (
	"cmp"
	"slices"
	"time"
)

// FieldID is a DCGM field ID (dcgm_fields.h). All sources use it.
type FieldID uint16

// Unit is the unit of a value: the name of a base unit or the usual abbreviation, such as "hertz", "MHz" or "ratio".
type Unit string

// A Field is one DCGM field that a session reads.
type Field struct {
	ID          FieldID
	Name        string        // name in the catalog, for logs and health series
	Unit        Unit          // unit of the values; sources convert values of engines that use another unit
	Text        bool          // the values are strings
	Levels      Kinds         // kinds of entities for which the field is read
	Range       *Range        // plausible values; nil means any
	Interval    time.Duration // interval between samples; zero means Plan.Interval
	MinInterval time.Duration // shortest interval that engines offer; zero means any
	AllSamples  bool          // request every sample, not only the newest (Batch.Trails): clock event reasons
	Profiling   bool          // the field needs a profiling capability (DCGM_FI_PROF_*), which differs by GPU
}

// A Range is a range of values with its bounds.
type Range struct{ Min, Max float64 }

// Contains reports whether v is in the range. A nil Range contains every value.
func (r *Range) Contains(v float64) bool { return r == nil || v >= r.Min && v <= r.Max }

// MetricType is the type of a metric family in the text format, or MetricLabel.
type MetricType uint8

// The types of a counters file. The value of a MetricLabel becomes a label on the other series of its entity.
const (
	MetricUntyped MetricType = iota
	MetricGauge
	MetricCounter
	MetricLabel
)

// String returns the type as in a TYPE line of the text format, or "label".
func (t MetricType) String() string { return [...]string{"untyped", "gauge", "counter", "label"}[t] }

// A Counter is a requested metric family or label, usually a line of the counters file.
type Counter struct {
	Name      string
	Type      MetricType
	Help      string
	Field     int     // index in Plan.Fields
	Scale     float64 // factor from the field's unit to the metric's unit
	OfGPUs    bool    // GPUs have the field, and their instances do not
	OfMachine bool    // the value is the same for the whole machine, such as the driver version
}

// A Derived is a requested family that a snapshot.Deriver computes ("DCGM_EXP_…").
type Derived struct {
	Name     string
	Type     MetricType
	Help     string
	HasField bool          // the family is computed from a field of its own
	Field    int           // index of that field in Plan.Fields, if HasField
	Interval time.Duration // interval at which states of the field are counted; zero means Plan.Interval
}

// A Selector selects the entities to watch (--devices, --switch-devices, --cpu-devices).
type Selector struct {
	Flex     bool     // "f": every GPU, and the instances of partitioned GPUs; excludes Major and Minor
	Major    bool     // "g": GPUs, switches or CPUs
	Minor    bool     // "i": GPU instances, links or cores
	MajorIDs []uint32 // nil means all
	MinorIDs []uint32 // nil means all
}

// HasMajor reports whether the GPU, switch or CPU with this ID is selected.
func (s Selector) HasMajor(id uint32) bool {
	return s.Flex || s.Major && (s.MajorIDs == nil || slices.Contains(s.MajorIDs, id))
}

// HasMinor reports whether the instance, link or core with this ID is selected.
func (s Selector) HasMinor(id uint32) bool {
	return s.Flex || s.Minor && (s.MinorIDs == nil || slices.Contains(s.MinorIDs, id))
}

// A Plan says what a session reads. It does not change after Open.
type Plan struct {
	Fields   []Field   // fields to read; a field of GPUs and one of their links may have the same ID
	Counters []Counter // metrics to export, in the order of the counters file
	Derived  []Derived // computed families to export

	Health           Kinds // every Read reports the engine's health checks of these kinds (Batch.Health)
	Peers            bool  // every Read reports the peer-to-peer states (Batch.Peers)
	Links            bool  // every Read reports which GPUs have an active NVLink (Batch.Links)
	Processes        bool  // every Read reports the processes of Topology.ProcessRows
	Placement        bool  // Open fills Topology.Pairs and Device.Place
	KeepContradicted bool  // keep samples that other samples contradict

	Interval                time.Duration // time between two samples of a field without an interval of its own
	Cycle                   time.Duration // time between two Reads if fields have shorter intervals; 0 means Interval
	Devices, Switches, CPUs Selector
}

// ReadInterval returns the time between two Reads.
func (p *Plan) ReadInterval() time.Duration { return cmp.Or(p.Cycle, p.Interval) }

// Levels returns the kinds of entities that have a field in the plan or whose health is requested.
func (p *Plan) Levels() Kinds {
	levels := p.Health
	for i := range p.Fields {
		levels |= p.Fields[i].Levels
	}
	return levels
}

// Selects reports whether an entity gets a row in the topology. GPUs and instances get one if their selector selects
// them. Other entities also need a field or health check of their kind. A GPU's link is selected with its GPU.
func (p *Plan) Selects(e Entity) bool {
	switch {
	case e.Kind == KindGPU:
		return p.Devices.HasMajor(e.ID)
	case e.Kind == KindGPUInstance:
		return p.Devices.HasMinor(e.ID)
	case !p.Levels().Has(e.Kind):
		return false
	case e.Kind == KindNVLink && e.ParentKind == KindNVSwitch:
		return p.Switches.HasMinor(e.ID)
	case e.Kind == KindNVLink:
		return p.Devices.HasMajor(e.Parent)
	case e.Kind == KindNVSwitch:
		return p.Switches.HasMajor(e.ID)
	case e.Kind == KindCPU:
		return p.CPUs.HasMajor(e.ID)
	case e.Kind == KindCPUCore:
		return p.CPUs.HasMinor(e.ID)
	}
	return true
}

// Requests reports whether a family needs the field at an index. Accounting adds fields of its own, which no family
// needs.
func (p *Plan) Requests(field int) bool {
	return slices.ContainsFunc(p.Counters, func(c Counter) bool { return c.Field == field }) ||
		slices.ContainsFunc(p.Derived, func(d Derived) bool { return d.HasField && d.Field == field })
}

// Missing returns the entities that the selectors name by ID but devices does not contain. The results have no parent.
// Kinds without a field in the plan are left out, except GPUs and their instances.
func (p *Plan) Missing(devices []Device) []Entity {
	var missing []Entity
	levels := p.Levels() | KindsOf(KindGPU, KindGPUInstance)
	find := func(kind Kind, ids []uint32) {
		for _, id := range ids {
			exists := slices.ContainsFunc(devices, func(d Device) bool {
				e := d.Entity
				return e.Kind == kind && e.ID == id && (kind != KindNVLink || e.ParentKind == KindNVSwitch)
			})
			if levels.Has(kind) && !exists {
				missing = append(missing, Entity{Kind: kind, ID: id})
			}
		}
	}
	find(KindGPU, p.Devices.MajorIDs)
	find(KindGPUInstance, p.Devices.MinorIDs)
	find(KindNVSwitch, p.Switches.MajorIDs)
	find(KindNVLink, p.Switches.MinorIDs)
	find(KindCPU, p.CPUs.MajorIDs)
	find(KindCPUCore, p.CPUs.MinorIDs)
	return missing
}

// IntervalOf returns the sampling interval of the field at index i. It is the requested interval, or the engine's
// shortest one if that is longer.
func (p *Plan) IntervalOf(i int) time.Duration {
	f := &p.Fields[i]
	return max(cmp.Or(f.Interval, p.Interval), f.MinInterval)
}
