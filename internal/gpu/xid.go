package gpu

// An XID is one report of an error of a GPU, or an SXID: an error of an NVSwitch in the kernel log.
type XID struct {
	// Row is the GPU or GPU instance in the session's Topology. XIDs of the kernel log have PCIBusID instead, in the
	// form of Device.PCIBusID.
	Row      int
	PCIBusID string
	// InstanceID is the GPU instance that reported the XID (Device.InstanceID). It is valid only if OnInstance is set.
	InstanceID uint32
	OnInstance bool
	// Switch is the driver's number of an NVSwitch: 3 for nvidia-nvswitch3. It is valid only if OnSwitch is set. An SXID
	// has no Row and no PCIBusID, and its Detail has only the severity and the link.
	Switch   uint32
	OnSwitch bool

	Code int64 // 1 to MaxXID; SXIDs have up to five digits
	// ID is the same in every session: the engine's own time of the error, or its place in the driver's queue. It is
	// not unique: several errors may have the same ID. XIDs of the kernel log have none.
	ID int64
	// Time is when the error happened, in Unix nanoseconds of this machine's clock. If Since is set, the error
	// happened between Since and Time.
	Time, Since int64

	// Detail is decoded from the kernel log for SXIDs, NVLink 5 XIDs and XID 154. It is zero for other XIDs and for
	// lines in an unknown form.
	Detail XIDDetail
	// Past means that the line was logged before this process started to read the kernel log. It updates the
	// last-seen time and no counter.
	Past bool

	PID uint32 // the affected process in the host's PID namespace; 0 if unknown
	// PodUIDs lists the UIDs of the process's pods, outermost first. It is empty if they were unknown at the time of
	// the error.
	PodUIDs []string
}

// MaxXID is the largest plausible XID. NVIDIA's have three digits today.
const MaxXID = 10000

// An XIDDetail is the decoded rest of a kernel log line about an XID. Its fields are label values. A field is empty if
// the line does not have it.
type XIDDetail struct {
	Unit     string // unit of the GPU in NVIDIA's words: "NETIR_LINK_EVT"
	SubCode  string // cause within the unit: a number from 0 to 63
	Link     string // number of the NVLink; empty if the error concerns no particular link
	Severity string // "fatal" or "nonfatal"
	Action   string // recovery action that XID 154 requests: "gpu_reset"
}
