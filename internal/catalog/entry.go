package catalog

import (
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ValueType is the type of a field's values.
type ValueType uint8

// The types of values (dcgm_fields.h, DCGM_FT_*). Only Integer, Float and Text can be exported.
const (
	Integer ValueType = iota
	Float
	Text
	Binary // a C structure: no number and no text
	Marker // no field: a name that bounds a range of ids
)

// String returns the type in words.
func (t ValueType) String() string {
	return [...]string{"integer", "float", "text", "binary", "marker"}[t]
}

// An Entry has the facts of one field id. Its Aliases are shared and must not be changed.
type Entry struct {
	ID gpu.FieldID
	// Name is that of the newest DCGM, Classic that of dcgm-exporter 4.8 and before, Current that of 4.9. All are set.
	Name, Classic, Current string
	Aliases                []string // further names, as the lower-case ones of dcgm-exporter 1.x
	Type                   ValueType
	// Unit is that of the engine (DCGM 4.6 and before) for this id. A name can promise another one: see Lookup.
	Unit     gpu.Unit
	Levels   gpu.Kinds // of entities that have the field; empty for vGPUs, which the exporter does not watch
	Min, Max float64   // bounds of plausible values in Unit, both inclusive; without bounds Min > Max

	Monotonic bool          // it only grows until a reset: a counter
	Profiling bool          // it needs a profiling capability
	Events    bool          // its history matters: XIDs and clock event reasons
	Pace      time.Duration // DCGM's shortest interval, 0 for any (DcgmCacheManager.cpp)
	// BaseOf is the older id of the same measurement in another unit; 0 for none. A request for such an entry reads the older
	// id and scales, so that one sample serves both names, under every engine.
	BaseOf gpu.FieldID
	Help   string // in a few words, without the unit
}

// Bounded reports whether the entry has plausibility bounds.
func (e Entry) Bounded() bool { return e.Min <= e.Max }

// Exportable reports whether the exporter can export the field as a number or as a label.
func (e Entry) Exportable() bool {
	return e.Type <= Text && e.Levels != 0
}

// Field returns the field to read for e, under its classic name, with the interval of the plan.
func (e Entry) Field() gpu.Field {
	return gpu.Field{
		ID: e.ID, Name: e.Classic, Unit: e.Unit, Text: e.Type == Text,
		Levels: e.Levels, Min: e.Min, Max: e.Max,
		Every: e.Events && e.ID != XIDErrors, Profiling: e.Profiling, Pace: e.Pace,
	}
}

// busyFields are the profiling fields that are above 0 whenever a kernel runs, by DCGM's definitions: the engine is active,
// and some SM has a warp. A kernel can do without any of the others: tensor pipes, memory, PCIe.
var busyFields = [...]gpu.FieldID{ProfGREngineActive, ProfSMActive}

// ProvesWork reports whether a field is above 0 whenever a kernel runs.
func ProvesWork(id gpu.FieldID) bool { return slices.Contains(busyFields[:], id) }

// noMin and noMax are the bounds of entries without bounds.
const noMin, noMax = 1, 0
