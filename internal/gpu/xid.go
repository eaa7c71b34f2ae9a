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

	// Detail is decoded from the kernel's log for XIDs of NVLink 5 and XID 154; zero for others and for lines of another form.
	Detail XIDDetail
	// Past is set for an XID of the time before the kernel's log was read: it has a time, and counts for nothing.
	Past bool

	PID uint32 // the affected process, in the host's namespace; 0 where unknown
	// PodUIDs are those of the process's pods, the outermost first, with blanks between; empty where
	// they were unknown at the time.
	PodUIDs string
}

// MaxXID bounds plausible codes. NVIDIA's have three digits today.
const MaxXID = 10000

// An XIDDetail is the decoded rest of the driver's line about an XID. Its parts are the values of labels, and empty where
// the line has none.
type XIDDetail struct {
	Unit     string // of the GPU, in NVIDIA's words: "NETIR_LINK_EVT"
	SubCode  string // a number, 0 to 63: the cause within the unit
	Link     string // the number of the NVLink; empty for all of them
	Severity string // "fatal" or "nonfatal"
	Action   string // that the driver requests from now on, of XID 154: "gpu_reset"
}

// A SXID is an error of an NVSwitch in the kernel's log.
type SXID struct {
	Switch   uint32 // the number of the driver: 3 for nvidia-nvswitch3
	Code     int64  // 1 to MaxSXID
	Severity string // "fatal" or "nonfatal"
	Link     string // the number of the link; empty for none
	// Time is when it happened, in Unix nanoseconds of this machine's clock; zero in a line.
	Time int64
	// Past is set for an SXID of the time before the kernel's log was read: it has a time, and counts for nothing.
	Past bool
}

// MaxSXID bounds plausible codes of NVSwitches. NVIDIA's have five digits today.
const MaxSXID = 99999
