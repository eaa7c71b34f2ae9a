package gpu

// An XID is one report of an error of a GPU.
type XID struct {
	// Row is the GPU or GPU instance in the session's Topology. The kernel's log has PCIBusID instead, in the form of
	// Device.PCIBusID.
	Row      int
	PCIBusID string
	// InstanceID is the GPU instance of the report (Device.InstanceID), where OnInstance is set.
	InstanceID uint32
	OnInstance bool

	Code int64 // 1 to MaxXID
	// ID is the same in every session: the engine's own time of the error, or its place in the driver's queue. Several
	// errors may have one ID. The kernel's log reports each line once, and has none.
	ID int64
	// Time is when it happened, in Unix nanoseconds of this machine's clock; where Since is set, between Since and Time.
	Time, Since int64

	PID uint32 // the affected process, in the host's namespace; 0 where unknown
	// PodUIDs are those of the process's pods, the outermost first, with blanks between; empty where
	// they were unknown at the time.
	PodUIDs string
}

// MaxXID bounds plausible codes. NVIDIA's have three digits today.
const MaxXID = 10000
