package catalog

// XIDMessage returns the meaning of an XID for the err_msg label: "No Error" for 0, "Unknown Error" for a code without a
// published meaning. The meanings are NVIDIA's (docs.nvidia.com/deploy/xid-errors; above 143, nverror.h of the open kernel
// modules).
func XIDMessage(code int64) string {
	if code >= 0 && code < int64(len(xidMessages)) && xidMessages[code] != "" {
		return xidMessages[code]
	}
	return "Unknown Error"
}

// AlertXIDs returns the XIDs of alerts: they cost a GPU, its data or a node (docs.nvidia.com/deploy/xid-errors). Their
// counters begin at zero, so that increase() sees the first one.
func AlertXIDs() []int64 {
	return []int64{
		48,  // double-bit ECC error: the process loses its data
		63,  // a page retired or a row remapped: reset the GPU to apply it
		64,  // retirement or remapping failed: replace the GPU
		74,  // NVLink error
		79,  // the GPU has fallen off the bus
		92,  // many single-bit ECC errors
		94,  // contained ECC error: one process is affected
		95,  // uncontained ECC error: every process is
		119, // the GPU's system processor (GSP) does not answer
		120, // the GSP reported an error
	}
}

const (
	badPushBuffer  = "Invalid or corrupted push buffer stream"
	videoException = "Video processor exception"
)

// xidMessages has the meaning of a code at its index.
var xidMessages = [...]string{
	0:   "No Error",
	1:   badPushBuffer,
	2:   badPushBuffer,
	3:   badPushBuffer,
	4:   badPushBuffer,
	6:   badPushBuffer,
	7:   "Invalid or corrupted push buffer address",
	8:   "GPU stopped processing",
	9:   "Driver error programming GPU",
	11:  badPushBuffer,
	12:  "Driver error handling GPU exception",
	13:  "Graphics Engine Exception",
	16:  "Display engine hung",
	18:  "Bus mastering disabled in PCI Config Space",
	19:  "Display Engine error",
	20:  "Invalid or corrupted Mpeg push buffer",
	21:  "Invalid or corrupted Motion Estimation push buffer",
	22:  "Invalid or corrupted Video Processor push buffer",
	24:  "GPU semaphore timeout",
	25:  "Invalid or illegal push buffer stream",
	26:  "Framebuffer timeout",
	27:  videoException,
	28:  videoException,
	29:  videoException,
	30:  "GPU semaphore access error",
	31:  "GPU memory page fault",
	32:  badPushBuffer,
	33:  "Internal micro-controller error",
	34:  videoException,
	35:  videoException,
	36:  videoException,
	37:  "Driver firmware error",
	38:  "Driver firmware error",
	42:  videoException,
	43:  "GPU stopped processing",
	44:  "Graphics Engine fault during context switch",
	45:  "Preemptive cleanup, due to previous errors",
	46:  "GPU stopped processing",
	47:  videoException,
	48:  "Double Bit ECC Error",
	54:  "Auxiliary power is not connected to the GPU board",
	56:  "Display Engine error",
	57:  "Error programming video memory interface",
	58:  "Unstable video memory interface detected",
	59:  "Internal micro-controller error",
	60:  videoException,
	61:  "Internal micro-controller breakpoint/warning",
	62:  "Internal micro-controller halt",
	63:  "ECC page retirement or row remapping recording event",
	64:  "ECC page retirement or row remapper recording failure",
	65:  videoException,
	66:  "Illegal access by driver",
	67:  "Illegal access by driver",
	68:  "NVDEC0 Exception",
	69:  "Graphics Engine class error",
	70:  "CE3: Unknown Error",
	71:  "CE4: Unknown Error",
	72:  "CE5: Unknown Error",
	73:  "NVENC2 Error",
	74:  "NVLINK Error",
	75:  "CE6: Unknown Error",
	76:  "CE7: Unknown Error",
	77:  "CE8: Unknown Error",
	78:  "vGPU Start Error",
	79:  "GPU has fallen off the bus",
	80:  "Corrupted data sent to GPU",
	81:  "VGA Subsystem Error",
	82:  "NVJPG0 Error",
	83:  "NVDEC1 Error",
	84:  "NVDEC2 Error",
	85:  "CE9: Unknown Error",
	86:  "OFA Exception",
	88:  "NVDEC3 Error",
	89:  "NVDEC4 Error",
	92:  "High single-bit ECC error rate",
	93:  "Non-fatal violation of provisioned InfoROM wear limit",
	94:  "Contained ECC error",
	95:  "Uncontained ECC error",
	96:  "NVDEC5 Error",
	97:  "NVDEC6 Error",
	98:  "NVDEC7 Error",
	99:  "NVJPG1 Error",
	100: "NVJPG2 Error",
	101: "NVJPG3 Error",
	102: "NVJPG4 Error",
	103: "NVJPG5 Error",
	104: "NVJPG6 Error",
	105: "NVJPG7 Error",
	106: "SMBPBI Test Message",
	107: "SMBPBI Test Message Silent",
	109: "Context Switch Timeout Error",
	110: "Security Fault Error",
	111: "Display Bundle Error Event",
	112: "Display Supervisor Error",
	113: "DP Link Training Error",
	114: "Display Pipeline Underflow Error",
	115: "Display Core Channel Error",
	116: "Display Window Channel Error",
	117: "Display Cursor Channel Error",
	118: "Display Pixel Pipeline Error",
	119: "GSP RPC Timeout",
	120: "GSP Error",
	121: "C2C Link Error",
	122: "SPI PMU RPC Read Failure",
	123: "SPI PMU RPC Write Failure",
	124: "SPI PMU RPC Erase Failure",
	125: "Inforom FS Failure",
	128: "CE12: Unknown Error",
	129: "CE13: Unknown Error",
	130: "CE14: Unknown Error",
	131: "CE15: Unknown Error",
	132: "CE16: Unknown Error",
	133: "CE17: Unknown Error",
	134: "CE18: Unknown Error",
	135: "CE19: Unknown Error",
	136: "Link Training Failed",
	137: "NVLink FLA privilege error",
	139: "OFA1 Error",
	140: "Unrecovered ECC Error",
	143: "GPU Initialization Failure",
	144: "NVLINK: SAW Error",
	145: "NVLINK: RLW Error",
	146: "NVLINK: TLW Error",
	147: "NVLINK: TREX Error",
	148: "NVLINK: NVLPW_CTRL Error",
	149: "NVLINK: NETIR Error",
	150: "NVLINK: MSE Error",
	154: "GPU Recovery Action Changed",
}
