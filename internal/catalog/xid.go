package catalog

// An XIDMeaning is a row of the table of XIDs.
type XIDMeaning struct {
	text   string
	First  string // to do at once, in a few words
	Then   string // to do if that does not help or it comes again; empty where there is no more
	Source string // of First and Then, with its date
}

// XIDMessage returns the meaning of an XID for the err_msg label: "No Error" for 0, "Unknown Error" for a code without a
// published meaning. The meanings are NVIDIA's (docs.nvidia.com/deploy/xid-errors), whose catalog ends at 172.
func XIDMessage(code int64) string {
	if m := XIDOf(code); m.text != "" {
		return m.text
	}
	return "Unknown Error"
}

// XIDOf returns the row of an XID, zero where there is none.
func XIDOf(code int64) XIDMeaning {
	if code < 0 || code >= int64(len(xids)) {
		return XIDMeaning{}
	}
	return xids[code]
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

	// Where the actions come from: the resolution buckets of NVIDIA's catalog. It is of Ampere and later, and has codes that
	// only older GPUs report as unused.
	xidCatalog = "[catalog](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) of 2026-09-09"
	xidUnused  = xidCatalog + ": unused"
	xidNoWord  = xidCatalog + ", which names no action"

	// What to do, by those buckets.
	nothing       = "nothing"
	restartApp    = "restart the program"
	resetGPU      = "reset the GPU"
	restartNode   = "restart the node"
	restartFabric = "alone: restart the fabric manager"
	contactVendor = "contact the vendor (RMA)"
	checkPower    = "check the power cables"
	update        = "update driver and firmware"
	checkApp      = "check the program and its CUDA"
	traceApp      = "trace the program (compute-sanitizer); the same on one GPU: diagnose it"
	checkDriver   = "look for a fault of driver or firmware"
	checkLink     = "check the signal of the link"
	followOther   = "what the other XID asks for"
	followAction  = "the action that it names"
	followMemory  = "with 63 or 64: drain first"
	followNVLink  = "by the registers in the line: check the link, reset the GPU"
	followLink    = "fatal: reset the GPU; else what 154 asks for"
	resetLater    = "nothing; a reset at a service window trains the link anew"
	restartVM     = "restart the virtual machine"
	checkUVM      = "check unified memory (UVM)"
	checkUser     = "look for a fault of software or of its use"
	checkHeat     = "where power smoothing is wanted: cool, then reload the driver or reset the GPU"
	checkSwings   = "where power smoothing is wanted: watch the swings of power, plan to replace the GPU"
	replaceSwings = "where power smoothing is wanted: replace the GPU"
	enableECC     = "enable ECC, or boot again"
	notSaid       = "not said"
)

// xids has the row of a code at its index.
var xids = [...]XIDMeaning{
	0:   {text: "No Error"},
	1:   {badPushBuffer, contactVendor, "", xidUnused},
	2:   {badPushBuffer, contactVendor, "", xidUnused},
	3:   {badPushBuffer, contactVendor, "", xidUnused},
	4:   {badPushBuffer, contactVendor, "", xidUnused},
	6:   {badPushBuffer, contactVendor, "", xidUnused},
	7:   {"Invalid or corrupted push buffer address", contactVendor, "", xidUnused},
	8:   {"GPU stopped processing", restartApp, contactVendor, xidCatalog},
	9:   {"Driver error programming GPU", contactVendor, "", xidUnused},
	11:  {badPushBuffer, restartApp, checkApp, xidCatalog},
	12:  {"Driver error handling GPU exception", contactVendor, "", xidUnused},
	13:  {"Graphics Engine Exception", restartApp, traceApp, xidCatalog},
	16:  {"Display engine hung", contactVendor, "", xidUnused},
	18:  {"Bus mastering disabled in PCI Config Space", contactVendor, "", xidUnused},
	19:  {"Display Engine error", contactVendor, "", xidUnused},
	20:  {"Invalid or corrupted Mpeg push buffer", contactVendor, "", xidUnused},
	21:  {"Invalid or corrupted Motion Estimation push buffer", contactVendor, "", xidUnused},
	22:  {"Invalid or corrupted Video Processor push buffer", contactVendor, "", xidUnused},
	24:  {"GPU semaphore timeout", contactVendor, "", xidUnused},
	25:  {"Invalid or illegal push buffer stream", restartApp, checkApp, xidCatalog},
	26:  {"Framebuffer timeout", contactVendor, "", xidUnused},
	27:  {videoException, contactVendor, "", xidUnused},
	28:  {videoException, contactVendor, "", xidUnused},
	29:  {videoException, contactVendor, "", xidUnused},
	30:  {"GPU semaphore access error", contactVendor, "", xidUnused},
	31:  {"GPU memory page fault", restartApp, traceApp, xidCatalog},
	32:  {badPushBuffer, restartApp, checkApp, xidCatalog},
	33:  {"Internal micro-controller error", contactVendor, "", xidUnused},
	34:  {videoException, contactVendor, "", xidUnused},
	35:  {videoException, contactVendor, "", xidUnused},
	36:  {videoException, contactVendor, "", xidUnused},
	37:  {"Driver firmware error", nothing, checkApp, xidCatalog},
	38:  {"Driver firmware error", nothing, contactVendor, xidCatalog},
	42:  {videoException, contactVendor, "", xidUnused},
	43:  {"GPU stopped processing", nothing, contactVendor, xidCatalog},
	44:  {"Graphics Engine fault during context switch", nothing, contactVendor, xidCatalog},
	45:  {"Preemptive cleanup, due to previous errors", followOther, restartFabric, xidCatalog},
	46:  {"GPU stopped processing", resetGPU, contactVendor, xidCatalog},
	47:  {videoException, contactVendor, "", xidUnused},
	48:  {"Double Bit ECC Error", resetGPU, followMemory, xidCatalog},
	54:  {"Auxiliary power is not connected to the GPU board", checkPower, contactVendor, xidCatalog},
	56:  {"Display Engine error", contactVendor, "", xidUnused},
	57:  {"Error programming video memory interface", contactVendor, "", xidUnused},
	58:  {"Unstable video memory interface detected", contactVendor, "", xidUnused},
	59:  {"Internal micro-controller error", contactVendor, "", xidUnused},
	60:  {videoException, restartApp, checkDriver, xidCatalog},
	61:  {"Internal micro-controller breakpoint/warning", contactVendor, "", xidUnused},
	62:  {"Internal micro-controller halt", resetGPU, contactVendor, xidCatalog},
	63:  {"ECC page retirement or row remapping recording event", nothing, "", xidCatalog},
	64:  {"ECC page retirement or row remapper recording failure", resetGPU, contactVendor, xidCatalog},
	65:  {videoException, contactVendor, "", xidUnused},
	66:  {"Illegal access by driver", nothing, checkDriver, xidCatalog},
	67:  {"Illegal access by driver", nothing, contactVendor, xidCatalog},
	68:  {"NVDEC0 Exception", restartApp, contactVendor, xidCatalog},
	69:  {"Graphics Engine class error", restartApp, checkApp, xidCatalog},
	70:  {"CE3: Unknown Error", restartApp, contactVendor, xidCatalog},
	71:  {"CE4: Unknown Error", restartApp, contactVendor, xidCatalog},
	72:  {"CE5: Unknown Error", restartApp, contactVendor, xidCatalog},
	73:  {"NVENC2 Error", contactVendor, "", xidUnused},
	74:  {"NVLINK Error", followNVLink, contactVendor, xidCatalog},
	75:  {"CE6: Unknown Error", restartApp, contactVendor, xidCatalog},
	76:  {"CE7: Unknown Error", restartApp, contactVendor, xidCatalog},
	77:  {"CE8: Unknown Error", restartApp, contactVendor, xidCatalog},
	78:  {"vGPU Start Error", update, "", xidCatalog},
	79:  {"GPU has fallen off the bus", restartNode, contactVendor, xidCatalog},
	80:  {"Corrupted data sent to GPU", restartApp, checkApp, xidCatalog},
	81:  {"VGA Subsystem Error", contactVendor, "", xidUnused},
	82:  {"NVJPG0 Error", restartApp, contactVendor, xidCatalog},
	83:  {"NVDEC1 Error", restartApp, contactVendor, xidCatalog},
	84:  {"NVDEC2 Error", restartApp, contactVendor, xidCatalog},
	85:  {"CE9: Unknown Error", restartApp, contactVendor, xidCatalog},
	86:  {"OFA Exception", restartApp, contactVendor, xidCatalog},
	88:  {"NVDEC3 Error", restartApp, contactVendor, xidCatalog},
	89:  {"NVDEC4 Error", restartApp, contactVendor, xidCatalog},
	92:  {"High single-bit ECC error rate", nothing, contactVendor, xidCatalog},
	93:  {"Non-fatal violation of provisioned InfoROM wear limit", nothing, contactVendor, xidCatalog},
	94:  {"Contained ECC error", restartApp, nothing, xidCatalog},
	95:  {"Uncontained ECC error", resetGPU, nothing, xidCatalog},
	96:  {"NVDEC5 Error", restartApp, contactVendor, xidCatalog},
	97:  {"NVDEC6 Error", restartApp, contactVendor, xidCatalog},
	98:  {"NVDEC7 Error", restartApp, contactVendor, xidCatalog},
	99:  {"NVJPG1 Error", restartApp, contactVendor, xidCatalog},
	100: {"NVJPG2 Error", restartApp, contactVendor, xidCatalog},
	101: {"NVJPG3 Error", restartApp, contactVendor, xidCatalog},
	102: {"NVJPG4 Error", restartApp, contactVendor, xidCatalog},
	103: {"NVJPG5 Error", restartApp, contactVendor, xidCatalog},
	104: {"NVJPG6 Error", restartApp, contactVendor, xidCatalog},
	105: {"NVJPG7 Error", restartApp, contactVendor, xidCatalog},
	106: {"SMBPBI Test Message", nothing, "", xidCatalog},
	107: {"SMBPBI Test Message Silent", nothing, "", xidCatalog},
	109: {"Context Switch Timeout Error", resetGPU, contactVendor, xidCatalog},
	110: {"Security Fault Error", resetGPU, checkDriver, xidCatalog},
	111: {"Display Bundle Error Event", contactVendor, "", xidUnused},
	112: {"Display Supervisor Error", contactVendor, "", xidUnused},
	113: {"DP Link Training Error", contactVendor, "", xidUnused},
	114: {"Display Pipeline Underflow Error", contactVendor, "", xidUnused},
	115: {"Display Core Channel Error", contactVendor, "", xidUnused},
	116: {"Display Window Channel Error", contactVendor, "", xidUnused},
	117: {"Display Cursor Channel Error", contactVendor, "", xidUnused},
	118: {"Display Pixel Pipeline Error", contactVendor, "", xidUnused},
	119: {"GSP RPC Timeout", resetGPU, checkDriver, xidCatalog},
	120: {"GSP Error", resetGPU, checkDriver, xidCatalog},
	121: {"C2C Link Error", resetLater, contactVendor, xidCatalog},
	122: {"SPI PMU RPC Read Failure", contactVendor, "", xidUnused},
	123: {"SPI PMU RPC Write Failure", contactVendor, "", xidUnused},
	124: {"SPI PMU RPC Erase Failure", contactVendor, "", xidUnused},
	125: {"Inforom FS Failure", contactVendor, "", xidUnused},
	126: {"CE10: Unknown Error", restartApp, contactVendor, xidCatalog},
	127: {"CE11: Unknown Error", restartApp, contactVendor, xidCatalog},
	128: {"CE12: Unknown Error", restartApp, contactVendor, xidCatalog},
	129: {"CE13: Unknown Error", restartApp, contactVendor, xidCatalog},
	130: {"CE14: Unknown Error", restartApp, contactVendor, xidCatalog},
	131: {"CE15: Unknown Error", restartApp, contactVendor, xidCatalog},
	132: {"CE16: Unknown Error", restartApp, contactVendor, xidCatalog},
	133: {"CE17: Unknown Error", restartApp, contactVendor, xidCatalog},
	134: {"CE18: Unknown Error", restartApp, contactVendor, xidCatalog},
	135: {"CE19: Unknown Error", restartApp, contactVendor, xidCatalog},
	136: {"Link Training Failed", resetGPU, checkLink, xidCatalog},
	137: {"NVLink FLA privilege error", nothing, traceApp, xidCatalog},
	139: {"OFA1 Error", restartApp, contactVendor, xidCatalog},
	140: {"Unrecovered ECC Error", resetGPU, contactVendor, xidCatalog},
	141: {"CUDA Fast Path Error", nothing, contactVendor, xidCatalog},
	142: {"NVENC3 Error", contactVendor, "", xidCatalog},
	143: {"GPU Initialization Failure", resetGPU, contactVendor, xidCatalog},
	144: {"NVLINK: SAW Error", followLink, followLink, xidCatalog},
	145: {"NVLINK: RLW Error", followLink, followLink, xidCatalog},
	146: {"NVLINK: TLW Error", followLink, followLink, xidCatalog},
	147: {"NVLINK: TREX Error", followLink, followLink, xidCatalog},
	148: {"NVLINK: NVLPW_CTRL Error", followLink, followLink, xidCatalog},
	149: {"NVLINK: NETIR Error", followLink, followLink, xidCatalog},
	150: {"NVLINK: MSE Error", followLink, followLink, xidCatalog},
	151: {"Key Rotation Error", restartVM, contactVendor, xidCatalog},
	154: {"GPU Recovery Action Changed", followAction, nothing, xidCatalog},
	155: {"NVLINK: SW Defined Error", resetGPU, checkUser, xidCatalog},
	156: {"Resource Retirement Event", resetGPU, nothing, xidCatalog},
	157: {"Resource Retirement Failure", nothing, contactVendor, xidCatalog},
	158: {"GPU Fatal Timeout", resetGPU, contactVendor, xidCatalog},
	159: {"CHI Non-Data Error", checkUVM, followOther, xidCatalog},
	160: {"Channel Retirement Event", nothing, checkDriver, xidCatalog},
	161: {"Channel Retirement Failure", nothing, checkDriver, xidCatalog},
	162: {"Power Smoothing Reengaged", notSaid, "", xidNoWord},
	163: {"Power Smoothing Disengaged", checkHeat, "", xidCatalog},
	164: {"Power Smoothing: Low Lifetime", checkSwings, "", xidCatalog},
	165: {"Power Smoothing: Lifetime Exhausted", replaceSwings, "", xidCatalog},
	166: {"NVLINK: Secure Crypto Error", notSaid, "", xidNoWord},
	167: {"PCIe Fatal Timeout", notSaid, "", xidNoWord},
	168: {"Reduced GPU Memory Capacity", enableECC, "", xidCatalog},
	169: {"SEC2 Halt Error", notSaid, "", xidNoWord},
	170: {"NVLINK: Other Secure Error", notSaid, "", xidNoWord},
	171: {"Uncorrectable DRAM Error", followOther, "", xidNoWord},
	172: {"Uncorrectable SRAM Error", followOther, "", xidNoWord},
}
