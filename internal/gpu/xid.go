package gpu

// An XID is one report of an error of a GPU.
type XID struct {
	// Row is the GPU or GPU instance in the session's Topology. The kernel's log names PCIBusID
	// instead, in the form of Device.PCIBusID, and leaves Row 0.
	Row      int
	PCIBusID string
	// InstanceID is the GPU instance that the report names (Device.InstanceID), where OnInstance is
	// set. The XID is the GPU's all the same.
	InstanceID uint32
	OnInstance bool

	Code int64 // 1 to MaxXID
	// ID is what the witness knows the error by, the same number in every session: the engine's own
	// time of it, before it is translated into this machine's clock, or the place in the driver's
	// queue. Several errors may have one ID. The kernel's log reports each line once, and has none.
	ID int64
	// Time is when it happened, as Unix nanoseconds in this machine's clock. Since is set where the
	// witness did not see it happen: it did between Since and Time.
	Time, Since int64

	PID    uint32 // the affected process, in the host's namespace; 0 where unknown
	PodUID string // of that process's pod; empty where it was unknown at the time
}

// MaxXID bounds the codes that are believed: NVIDIA's have three digits today.
const MaxXID = 10000
