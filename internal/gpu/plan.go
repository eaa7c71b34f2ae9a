package gpu

import (
	"cmp"
	"slices"
	"time"
)

// FieldID is a DCGM field id (dcgm_fields.h), under every source.
type FieldID uint16

// Unit is the unit of a value, as a base unit's name or the customary abbreviation: "hertz", "MHz", "ratio", "".
type Unit string

// A Field is one thing that a session reads.
type Field struct {
	ID        FieldID
	Name      string        // the catalog's, for logs and health series
	Unit      Unit          // of the values; sources convert those of engines with another unit
	Text      bool          // the values are texts
	Levels    Kinds         // the kinds of entities that it is read for
	Min, Max  float64       // bounds of plausible values, both inclusive; without bounds Min > Max
	Interval  time.Duration // between the engine's samples; zero for Plan.Interval
	Pace      time.Duration // the shortest interval that engines offer, zero for any
	Every     bool          // every sample is requested, not the newest alone (Batch.Trails): clock event reasons
	Profiling bool          // it needs a profiling capability (DCGM_FI_PROF_*), which differs per GPU
}

// Bounded reports whether the field has plausibility bounds.
func (f *Field) Bounded() bool { return f.Min <= f.Max }

// MetricType is the type of a metric family in the text format, or MetricLabel.
type MetricType uint8

// The types of a counters file. The value of a label stands on its entity's other series.
const (
	MetricUntyped MetricType = iota
	MetricGauge
	MetricCounter
	MetricLabel
)

// String returns the word of the text format's TYPE line, or "label".
func (t MetricType) String() string { return [...]string{"untyped", "gauge", "counter", "label"}[t] }

// A Counter is a metric family or a label by request, usually a line of the counters file.
type Counter struct {
	Name      string
	Type      MetricType
	Help      string
	Field     int     // its index in Plan.Fields
	Scale     float64 // from the field's unit to that of the name; 1 where they are the same
	OfGPUs    bool    // GPUs have the field and their instances have none of their own
	OfMachine bool    // it is one for the whole machine, such as the driver's version
}

// A Derived is an exporter family by request ("DCGM_EXP_…"). A snapshot.Deriver makes it.
type Derived struct {
	Name     string
	Type     MetricType
	Help     string
	Field    int           // the index in Plan.Fields of the field that feeds it; -1 for none
	Interval time.Duration // between two counts of a state of the field; zero for Plan.Interval
}

// A Selector says which entities of a family of kinds are watched (--devices, --switch-devices, --cpu-devices).
type Selector struct {
	Flex     bool     // "f": every GPU, and the instances of partitioned ones; it combines with nothing
	Major    bool     // "g": GPUs, switches or CPUs
	Minor    bool     // "i": GPU instances, links or cores
	MajorIDs []uint32 // nil for all
	MinorIDs []uint32
}

// HasMajor reports whether the GPU, switch or CPU with this id is selected.
func (s Selector) HasMajor(id uint32) bool {
	return s.Flex || s.Major && (s.MajorIDs == nil || slices.Contains(s.MajorIDs, id))
}

// HasMinor reports whether the instance, link or core with this id is selected.
func (s Selector) HasMinor(id uint32) bool {
	return s.Flex || s.Minor && (s.MinorIDs == nil || slices.Contains(s.MinorIDs, id))
}

// A Plan is the purpose of a session. It does not change after Open.
type Plan struct {
	Fields   []Field   // to read, each once; that of GPUs and that of their links can have one id
	Counters []Counter // to export, in the order of the file
	Derived  []Derived // to export beside them

	Health    Kinds // of these every Read reports the engine's health checks (Batch.Health)
	Peers     bool  // and the state of the peer-to-peer connections (Batch.Peers)
	Processes bool  // and the processes of the rows of Topology.ProcessRows
	Placement bool  // Open fills Topology.Pairs and Device.Place
	AsRead    bool  // samples that others contradict are served, as dcgm-exporter does

	Interval                time.Duration // between two Reads
	Devices, Switches, CPUs Selector
}

// Levels returns the kinds of entities that some field exists for, or whose health is requested.
func (p *Plan) Levels() Kinds {
	levels := p.Health
	for i := range p.Fields {
		levels |= p.Fields[i].Levels
	}
	return levels
}

// Selects reports whether an entity of the engine has a row: its selector names it, or of a link its GPU, and except
// for GPUs and their instances Levels has its kind.
func (p *Plan) Selects(e Entity) bool {
	switch e.Kind {
	case KindGPU:
		return p.Devices.HasMajor(e.ID)
	case KindGPUInstance:
		return p.Devices.HasMinor(e.ID)
	}
	if !p.Levels().Has(e.Kind) {
		return false
	}
	switch e.Kind {
	case KindNVLink:
		if e.ParentKind == KindNVSwitch {
			return p.Switches.HasMinor(e.ID)
		}
		return p.Devices.HasMajor(e.Parent)
	case KindNVSwitch:
		return p.Switches.HasMajor(e.ID)
	case KindCPU:
		return p.CPUs.HasMajor(e.ID)
	case KindCPUCore:
		return p.CPUs.HasMinor(e.ID)
	default:
		return true
	}
}

// Requests reports whether a family needs the field of an index. Accounting adds fields that none needs.
func (p *Plan) Requests(field int) bool {
	return slices.ContainsFunc(p.Counters, func(c Counter) bool { return c.Field == field }) ||
		slices.ContainsFunc(p.Derived, func(d Derived) bool { return d.Field == field })
}

// Missing returns the entities that the selectors name by an id and devices lack, without parent. Kinds that no field
// exists for are left out, except GPUs and their instances.
func (p *Plan) Missing(devices []Device) []Entity {
	var missing []Entity
	levels := p.Levels() | KindsOf(KindGPU, KindGPUInstance)
	for _, named := range []struct {
		kind Kind
		ids  []uint32
	}{
		{KindGPU, p.Devices.MajorIDs},
		{KindGPUInstance, p.Devices.MinorIDs},
		{KindNVSwitch, p.Switches.MajorIDs},
		{KindNVLink, p.Switches.MinorIDs},
		{KindCPU, p.CPUs.MajorIDs},
		{KindCPUCore, p.CPUs.MinorIDs},
	} {
		if !levels.Has(named.kind) {
			continue
		}
		for _, id := range named.ids {
			if !slices.ContainsFunc(devices, func(d Device) bool {
				e := d.Entity
				return e.Kind == named.kind && e.ID == id && (e.Kind != KindNVLink || e.ParentKind == KindNVSwitch)
			}) {
				missing = append(missing, Entity{Kind: named.kind, ID: id})
			}
		}
	}
	return missing
}

// IntervalOf returns the sampling interval of the field at index i: the requested one, or the engine's pace where that
// is slower.
func (p *Plan) IntervalOf(i int) time.Duration {
	f := &p.Fields[i]
	return max(cmp.Or(f.Interval, p.Interval), f.Pace)
}
