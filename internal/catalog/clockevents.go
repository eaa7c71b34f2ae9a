package catalog

import "iter"

// A ClockEvent is a reason that holds the clocks down: a bit of the value of FieldClockEvents.
type ClockEvent struct {
	Mask int64
	Name string // the value of the clock_event label
}

// clockEvents are the reasons in the order of their bits (DCGM_CLOCKS_EVENT_REASON_* in dcgm_fields.h, NVML's
// nvmlClocksEventReason*).
var clockEvents = [...]ClockEvent{
	{0x001, "gpu_idle"},
	{0x002, "clocks_setting"},
	{0x004, "power_cap"},
	{0x008, "hw_slowdown"},
	{0x010, "sync_boost"},
	{0x020, "sw_thermal"},
	{0x040, "hw_thermal"},
	{0x080, "hw_power_brake"},
	{0x100, "display_clocks"},
}

// ClockEvents yields the reasons of a bit mask. Bits without a name are left out; ClockEvents(-1) yields all names.
func ClockEvents(mask int64) iter.Seq[ClockEvent] {
	return func(yield func(ClockEvent) bool) {
		for _, e := range clockEvents {
			if mask&e.Mask != 0 && !yield(e) {
				return
			}
		}
	}
}
