package gpu

// An XID is an error of a GPU as the kernel's log tells it.
type XID struct {
	PCIBusID string // of the GPU, in the form of Device.PCIBusID
	Code     int64  // 1 to MaxXID
	PID      uint32 // the process that it struck, in the host's namespace; 0 where not told
	PodUID   string // of that process's pod; empty where it was not told at the time
	Time     int64  // Unix nanoseconds
}

// MaxXID bounds the codes that are believed: NVIDIA's have three digits today.
const MaxXID = 10000
