package counters

import "github.com/gpu-telemetry/dcgm-exporter/internal/gpu"

// Derived is an exporter family: one that the exporter makes itself, of events
// or of calls other than reading a field. The zero Derived is none.
type Derived uint8

// The exporter families of dcgm-exporter.
const (
	NotDerived       Derived = iota
	XIDErrorsCount           // XIDs of the last window, by XID
	XIDErrorsTotal           // XIDs since the start, by XID
	ClockEventsCount         // clock events of the last window, by event
	ClockEventsTotal         // clock events since the start, by event
	GPUHealthStatus          // DCGM's health watches
	P2PStatus                // NVLink between pairs of GPUs

	// Those that dcgm-exporter has not.
	XIDLastSeen       // when each XID was last seen
	ClockEventSeconds // time under each clock event
	GPUPairInfo       // how two GPUs are connected
	GPUAffinityInfo   // where a GPU sits in the machine
)

// String returns the name of the family.
func (d Derived) String() string {
	switch d {
	case XIDErrorsCount:
		return "DCGM_EXP_XID_ERRORS_COUNT"
	case XIDErrorsTotal:
		return "DCGM_EXP_XID_ERRORS_TOTAL"
	case ClockEventsCount:
		return "DCGM_EXP_CLOCK_EVENTS_COUNT"
	case ClockEventsTotal:
		return "DCGM_EXP_CLOCK_EVENTS_TOTAL"
	case GPUHealthStatus:
		return "DCGM_EXP_GPU_HEALTH_STATUS"
	case P2PStatus:
		return "DCGM_EXP_P2P_STATUS"
	case XIDLastSeen:
		return "DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS"
	case ClockEventSeconds:
		return "DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL"
	case GPUPairInfo:
		return "DCGM_EXP_GPU_PAIR_INFO"
	case GPUAffinityInfo:
		return "DCGM_EXP_GPU_AFFINITY_INFO"
	default:
		return ""
	}
}

// Help says in a few words what the family is.
func (d Derived) Help() string {
	switch d {
	case XIDErrorsCount:
		return "XID errors within the window, by XID"
	case XIDErrorsTotal:
		return "XID errors since the exporter started, by XID"
	case ClockEventsCount:
		return "Samples within the window that show the clock event: one per collection interval, whatever else is asked for"
	case ClockEventsTotal:
		return "Clock events since the exporter started, by event"
	case GPUHealthStatus:
		return "Result of DCGM's health watches, by watch"
	case P2PStatus:
		return "State of NVLink between pairs of GPUs"
	case XIDLastSeen:
		return "When the XID was last seen in Unix time, with the owner of that time"
	case ClockEventSeconds:
		return "Time for which the clocks were held by the event"
	case GPUPairInfo:
		return "How two GPUs are connected: NVLinks and the path through the machine"
	case GPUAffinityInfo:
		return "The NUMA node and the CPUs next to the GPU"
	default:
		return ""
	}
}

// Type returns the type that suits the family.
func (d Derived) Type() gpu.MetricType {
	switch d {
	case XIDErrorsTotal, ClockEventsTotal, ClockEventSeconds:
		return gpu.MetricCounter
	default:
		return gpu.MetricGauge
	}
}

// Source returns the field whose events the family is made of, and whether it
// is made of a field at all.
func (d Derived) Source() (gpu.FieldID, bool) {
	switch d {
	case XIDErrorsCount, XIDErrorsTotal, XIDLastSeen:
		return FieldXID, true
	case ClockEventsCount, ClockEventsTotal, ClockEventSeconds:
		return FieldClockEvents, true
	default:
		return 0, false
	}
}

// The fields with events.
const (
	FieldClockEvents gpu.FieldID = 112 // DCGM_FI_DEV_CLOCKS_EVENT_REASONS
	FieldXID         gpu.FieldID = 230 // DCGM_FI_DEV_XID_ERRORS
)

func derivedKinds() []Derived {
	return []Derived{XIDErrorsCount, XIDErrorsTotal, ClockEventsCount, ClockEventsTotal, GPUHealthStatus, P2PStatus,
		XIDLastSeen, ClockEventSeconds, GPUPairInfo, GPUAffinityInfo}
}

// derivedNamed returns the family of a name, NotDerived where there is none.
func derivedNamed(name string) Derived {
	for _, d := range derivedKinds() {
		if d.String() == name {
			return d
		}
	}
	return NotDerived
}
