package catalog

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ValueType is the type of a field's values.
type ValueType uint8

// The value types (dcgm_fields.h, DCGM_FT_*). Only Integer, Float and Text can be exported.
const (
	Integer ValueType = iota
	Float
	Text
	Binary // a C structure
	Marker // not a field: the name bounds a range of IDs
)

// An Entry describes a field ID. Its Aliases are shared and must not be changed.
type Entry struct {
	ID gpu.FieldID
	// Name is the name in the newest DCGM. Classic is the name in dcgm-exporter up to 4.8, Current the name in 4.9. All
	// are set.
	Name, Classic, Current string
	Aliases                []string // other names, such as the lower-case names of dcgm-exporter 1.x
	Type                   ValueType
	// Unit is the engine's unit (DCGM 4.6 and earlier). A name can imply another unit; see Lookup.
	Unit   gpu.Unit
	Levels gpu.Kinds  // kinds of entities that have the field; empty for vGPUs, which the exporter does not watch
	Range  *gpu.Range // plausible values in Unit; nil means any

	Monotonic   bool          // the value only grows until a reset
	Profiling   bool          // the field needs a profiling capability
	Events      bool          // every sample matters: XIDs and clock event reasons
	MinInterval time.Duration // DCGM's shortest interval, 0 for any (DcgmCacheManager.cpp)
	// BaseOf is the older ID of the same measurement in another unit, or 0. Requests for such an entry read the older
	// ID and scale its value, so that one sample serves both names on every engine.
	BaseOf gpu.FieldID
	Help   string // a short description without the unit
}

// Exportable reports whether the exporter can export the field as a number or as a label.
func (e Entry) Exportable() bool { return e.Type <= Text && e.Levels != 0 }

// Field returns the field to read for e under its classic name, with the plan's interval.
func (e Entry) Field() gpu.Field {
	return gpu.Field{
		ID: e.ID, Name: e.Classic, Unit: e.Unit, Text: e.Type == Text,
		Levels: e.Levels, Range: e.Range,
		AllSamples: e.Events && e.ID != XIDErrors, Profiling: e.Profiling, MinInterval: e.MinInterval,
	}
}

// ImpliesActivity reports whether a field is above 0 whenever a kernel runs. DCGM defines two profiling fields so: the
// engine is active, and an SM has a warp. A kernel need not use tensor pipes, memory or PCIe.
func ImpliesActivity(id gpu.FieldID) bool { return id == ProfGREngineActive || id == ProfSMActive }

// A ClockEvent is a reason why the clocks are limited: a bit of FieldClockEvents.
type ClockEvent struct {
	Mask int64
	Name string // value of the clock_event label
	// Slows says whether the reason can slow down work. Lower clocks for an idle GPU or a display cannot.
	Slows bool
}

// ClockEvents returns the reasons in the order of their bits (DCGM_CLOCKS_EVENT_REASON_* in dcgm_fields.h, NVML's
// nvmlClocksEventReason*).
func ClockEvents() []ClockEvent {
	return []ClockEvent{
		{0x001, "gpu_idle", false},
		{0x002, "clocks_setting", true},
		{0x004, "power_cap", true},
		{0x008, "hw_slowdown", true},
		{0x010, "sync_boost", true},
		{0x020, "sw_thermal", true},
		{0x040, "hw_thermal", true},
		{0x080, "hw_power_brake", true},
		{0x100, "display_clocks", false},
	}
}

// Values of DCGM_FI_DEV_FABRIC_MANAGER_STATUS (dcgmFabricManagerStatus_t): the result of a GPU's registration with its
// fabric.
const (
	FabricNotSupported = 0
	FabricNotStarted   = 1
	FabricInProgress   = 2
	FabricSuccess      = 3
	FabricFailure      = 4
	FabricUnrecognized = 5
	FabricTooOld       = 6 // the driver's NVML is too old to report it
)
