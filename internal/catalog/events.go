package catalog

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
	FabricTooOld       = 6 // the driver's NVML is too old to tell
)
