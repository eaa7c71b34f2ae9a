package gpu

import (
	"slices"
	"time"
)

// FieldID is a DCGM field id (dcgm_fields.h). All sources use these numbers, whether or not DCGM is
// there.
type FieldID uint16

// Unit is the unit of a value, spelled as the base unit's name or the customary abbreviation: "",
// "MHz", "hertz", "mJ", "percent", "ratio", "MiB", "bytes".
type Unit string

// A Field is one thing that a session reads. Sources deliver its values in Unit, whatever the
// engine's generation returns for ID: a source that meets an engine with another unit converts at
// its edge.
type Field struct {
	ID   FieldID
	Name string // the catalog's name, for logs and health series
	Unit Unit
	// Text is set for fields whose values are texts.
	Text bool
	// Levels are the kinds of entities that the field exists for. A session reads it for those rows
	// only.
	Levels Kinds
	// Min and Max bound the plausible values, both inclusive; a field without bounds has Min > Max.
	// The collector drops and counts what lies outside.
	Min, Max float64
	// Interval is how often the engine should sample the field; zero means Plan.Interval.
	Interval time.Duration
	// Every is set for clock event reasons, whose every sample is requested and not the newest alone.
	// See Batch.Trails.
	Every bool
	// Pace is how often an engine samples the field at most, whatever is requested; zero is as often
	// as requested. A sample is as fresh as the pace lets it be: see Plan.IntervalOf.
	Pace time.Duration
	// Profiling is set for the fields that need a profiling capability (DCGM_FI_PROF_*), which differs
	// per GPU.
	Profiling bool
}

// Bounded reports whether the field has plausibility bounds.
func (f *Field) Bounded() bool { return f.Min <= f.Max }

// MetricType is the type of a metric family in the text format, or MetricLabel.
type MetricType uint8

// The types that a counters file can name. A label is no family: its value becomes a label of its
// entity's other series.
const (
	MetricUntyped MetricType = iota
	MetricGauge
	MetricCounter
	MetricLabel
)

// String returns the word of the text format's TYPE line, or "label".
func (t MetricType) String() string {
	switch t {
	case MetricGauge:
		return "gauge"
	case MetricCounter:
		return "counter"
	case MetricLabel:
		return "label"
	default:
		return "untyped"
	}
}

// A Counter is one metric family (or label) that is requested by name, usually a line of the
// counters file.
type Counter struct {
	Name string
	Type MetricType
	Help string
	// Field is the index of the field in Plan.Fields whose samples it shows.
	Field int
	// Scale converts from the field's unit to the unit that Name promises; 1 where they are the same.
	Scale float64
	// OfGPUs says that GPUs have the field and their instances have none of their own, OfMachine that
	// it is one for the whole machine, such as the driver's version.
	OfGPUs, OfMachine bool
}

// A Derived is an exporter family that is requested by name ("DCGM_EXP_…"). A snapshot.Deriver
// makes it from events, from the topology, or from what else a Read reports.
type Derived struct {
	Name string
	Type MetricType
	Help string
	// Field is the index of the field in Plan.Fields that feeds it, -1 where no field does.
	Field int
	// Interval is how often a state of the field counts, for a family that counts states; zero means
	// Plan.Interval.
	Interval time.Duration
}

// A Selector says which entities of a family of kinds are watched, as the flags --devices,
// --switch-devices and --cpu-devices spell it.
type Selector struct {
	// Flex ("f") watches every GPU, and the instances of those that are partitioned by MIG. It
	// combines with nothing.
	Flex bool
	// Major selects GPUs, switches or CPUs ("g"); Minor selects GPU instances, links or cores ("i"). A
	// nil range list with the flag set means all.
	Major, Minor bool
	MajorIDs     []uint32
	MinorIDs     []uint32
}

// HasMajor reports whether the GPU, switch or CPU with this id is selected.
func (s Selector) HasMajor(id uint32) bool {
	return s.Flex || s.Major && (s.MajorIDs == nil || slices.Contains(s.MajorIDs, id))
}

// HasMinor reports whether the instance, link or core with this id is selected.
func (s Selector) HasMinor(id uint32) bool {
	return s.Flex || s.Minor && (s.MinorIDs == nil || slices.Contains(s.MinorIDs, id))
}

// A Plan is what a session is opened for. It does not change after Open.
type Plan struct {
	// Fields are the distinct fields to read. Samples refer to them by index.
	Fields []Field
	// Counters are the families to export, in the order of the file.
	Counters []Counter
	// Derived are the exporter families to export beside them.
	Derived []Derived
	// Health and Peers request of every Read the engine's health checks and for the state of the
	// peer-to-peer connections; Placement requests of Open Topology.Pairs and Device.Place.
	Health, Peers, Placement bool
	// Processes requests of every Read the processes of the rows of Topology.ProcessRows.
	Processes bool
	// Interval is the collection interval: how often Read will be called.
	Interval time.Duration
	// Devices, Switches and CPUs say which entities to watch.
	Devices, Switches, CPUs Selector
}

// Levels returns the kinds of entities that some field exists for.
func (p *Plan) Levels() Kinds {
	var levels Kinds
	for i := range p.Fields {
		levels |= p.Fields[i].Levels
	}
	return levels
}

// Selects reports whether an entity of the engine has a row. GPUs and GPU instances have one if
// their selector names them, links of a GPU if it names the GPU; what no field exists for has none.
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

// Missing returns what the selectors name by an id and none of the devices is, with no parent. What
// no field exists for is not missing.
func (p *Plan) Missing(devices []Device) []Entity {
	var missing []Entity
	look := func(kind, parent Kind, ids []uint32) {
		for _, id := range ids {
			if !slices.ContainsFunc(devices, func(d Device) bool {
				return d.Entity.Kind == kind && d.Entity.ID == id && (parent == KindNone || d.Entity.ParentKind == parent)
			}) {
				missing = append(missing, Entity{Kind: kind, ID: id})
			}
		}
	}
	look(KindGPU, KindNone, p.Devices.MajorIDs)
	look(KindGPUInstance, KindNone, p.Devices.MinorIDs)
	levels := p.Levels()
	for _, other := range []struct {
		kind, parent Kind
		ids          []uint32
	}{
		{KindNVSwitch, KindNone, p.Switches.MajorIDs},
		{KindNVLink, KindNVSwitch, p.Switches.MinorIDs},
		{KindCPU, KindNone, p.CPUs.MajorIDs},
		{KindCPUCore, KindNone, p.CPUs.MinorIDs},
	} {
		if levels.Has(other.kind) {
			look(other.kind, other.parent, other.ids)
		}
	}
	return missing
}

// IntervalOf returns the sampling interval of the field at index i: the one that was requested, or
// the pace of the engine where that is slower.
func (p *Plan) IntervalOf(i int) time.Duration {
	f := &p.Fields[i]
	if f.Interval > 0 {
		return max(f.Interval, f.Pace)
	}
	return max(p.Interval, f.Pace)
}
