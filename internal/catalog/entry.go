package catalog

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ValueType is what a field's values are.
type ValueType uint8

// The types of values (dcgm_fields.h, DCGM_FT_*). Only Integer, Float and Text can be exported.
const (
	Integer ValueType = iota
	Float
	Text
	Binary // a C structure: no number and no text
	Marker // no field at all: a name that bounds a range of ids
)

// String returns the type in words.
func (t ValueType) String() string {
	switch t {
	case Integer:
		return "integer"
	case Float:
		return "float"
	case Text:
		return "text"
	case Binary:
		return "binary"
	default:
		return "marker"
	}
}

// An Entry is what the catalog knows of one field id. It is a value; its Aliases are shared and
// must not be changed.
type Entry struct {
	ID gpu.FieldID
	// Name is the name in the header of the newest DCGM that go-dcgm speaks.
	Name string
	// Classic is the name that dcgm-exporter 4.8 and before used, and Current the one of 4.9. Both are
	// always set; they are equal where nothing was renamed.
	Classic, Current string
	// Aliases are further names of the same field, as the lower-case ones of dcgm-exporter 1.x.
	Aliases []string
	Type    ValueType
	// Unit is the unit in which the engine (DCGM 4.6 and before) returns the value for this id. A name
	// can promise another one: see Lookup.
	Unit gpu.Unit
	// Levels are the kinds of entities that have the field. It is empty for fields of entities that
	// the exporter does not watch (vGPUs).
	Levels gpu.Kinds
	// Min and Max bound the plausible values in Unit, both inclusive. A field without bounds has Min >
	// Max.
	Min, Max float64
	// Monotonic is set for values that only grow until a reset: counters in the sense of Prometheus.
	// Everything else is a gauge.
	Monotonic bool
	// Profiling is set for fields that need a profiling capability.
	Profiling bool
	// Events is set for fields whose history matters, not the present value alone: XIDs and clock
	// event reasons.
	Events bool
	// Pace is how often DCGM samples the field at most, whatever interval a watch requests; 0 for
	// as often as requested (DcgmCacheManager.cpp).
	Pace time.Duration
	// BaseOf is the older id of the same measurement in another unit; 0 where there is none. A request
	// for such an entry reads the older id and scales, so that one sample serves both names, under
	// every engine.
	BaseOf gpu.FieldID
	// Help says in a few words what the field is, without its unit.
	Help string
}

// Bounded reports whether the entry has plausibility bounds.
func (e Entry) Bounded() bool { return e.Min <= e.Max }

// Exportable reports whether the exporter can export the field as a number or as a label.
func (e Entry) Exportable() bool {
	return e.Type <= Text && e.Levels != 0
}

// Field returns the field to read for e, under its classic name, whose unit is the one that is
// read. Its interval is the plan's.
func (e Entry) Field() gpu.Field {
	return gpu.Field{
		ID: e.ID, Name: e.Classic, Unit: e.Unit, Text: e.Type == Text,
		Levels: e.Levels, Min: e.Min, Max: e.Max,
		Every: e.Events && e.ID != XIDErrors, Profiling: e.Profiling, Pace: e.Pace,
	}
}

// noMin and noMax are the bounds of entries without bounds.
const noMin, noMax = 1, 0
