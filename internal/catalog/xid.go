package catalog

import "slices"

// An XID is a row of the table of XIDs.
type XID struct {
	text   string
	Class  XIDClass
	First  string // the action to take at once
	Then   string // the action if First does not help or the XID recurs; empty if there is none
	Source string // source of First and Then, with its date
	Why    string // why the class differs from what the actions suggest; empty if it does not
}

// XIDMessage returns the meaning of an XID for the err_msg label: "No Error" for 0, "Unknown Error" for a code without
// a published meaning. The meanings are NVIDIA's (docs.nvidia.com/deploy/xid-errors), whose catalog ends at 172.
func XIDMessage(code int64) string {
	if m := XIDOf(code); m.text != "" {
		return m.text
	}
	return "Unknown Error"
}

// XIDOf returns the row of an XID. For unlisted codes it returns the zero row, whose class is XIDUnclassified.
func XIDOf(code int64) XID {
	if code < 0 || code >= int64(len(xids)) {
		return XID{}
	}
	return xids[code]
}

// XIDsOf returns the codes of some classes in ascending order. Unlisted codes are omitted.
func XIDsOf(classes ...XIDClass) (codes []int64) {
	for code := int64(1); code < int64(len(xids)); code++ {
		if xids[code].text != "" && slices.Contains(classes, xids[code].Class) {
			codes = append(codes, code)
		}
	}
	return codes
}

// AlertXIDs returns the XIDs whose counters start at zero, so that increase() sees the first one. They are the most
// frequent XIDs that cost a GPU, its data or a node.
func AlertXIDs() []int64 { return []int64{48, 63, 64, 74, 79, 92, 94, 95, 119, 120} }

const (
	badPushBuffer  = "Invalid or corrupted push buffer stream"
	videoException = "Video processor exception"

	recordingFailure = "ECC page retirement or row remapper recording failure"
	inforomWear      = "Non-fatal violation of provisioned InfoROM wear limit"

	// The actions come from the resolution buckets of NVIDIA's catalog. It covers Ampere and later, and lists codes
	// that only older GPUs report as unused.
	xidCatalog = "[catalog](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) of 2026-09-09"
	xidUnused  = xidCatalog + ": unused"
	xidNoWord  = xidCatalog + ", which names no action"

	// The actions that these buckets suggest.
	nothing       = "nothing"
	restartApp    = "restart the program"
	resetGPU      = "reset the GPU"
	restartNode   = "restart the node"
	restartFabric = "if it occurs on its own: restart Fabric Manager"
	contactVendor = "contact the vendor (RMA)"
	checkPower    = "check the power cables"
	update        = "update driver and firmware"
	checkApp      = "check the program and its CUDA"
	traceApp      = "trace the program (compute-sanitizer); if it stays with one GPU: diagnose the GPU"
	checkDriver   = "look for a driver or firmware fault"
	checkLink     = "check the signal quality of the link"
	followOther   = "follow the other XID"
	followAction  = "the action that it names"
	followMemory  = "if XID 63 or 64 also occurs: drain first"
	followNVLink  = "check the link or reset the GPU, depending on the registers in the line"
	followLink    = "if fatal: reset the GPU; otherwise follow XID 154"
	resetLater    = "nothing; a reset in a maintenance window retrains the link"
	restartVM     = "restart the virtual machine"
	checkUVM      = "check unified memory (UVM)"
	checkUser     = "look for a software or usage error"
	checkHeat     = "if power smoothing is wanted: cool the GPU, then reload the driver or reset the GPU"
	checkSwings   = "if power smoothing is wanted: watch the power swings and plan to replace the GPU"
	replaceSwings = "if power smoothing is wanted: replace the GPU"
	enableECC     = "enable ECC, or reboot"
	notSaid       = "not stated"

	// Reasons why a class differs from what the actions suggest.
	watchHang     = "programs can cause it too"
	oldBoard      = "the hardware is faulty; only GPUs before Ampere report these XIDs"
	gspFirst      = "the GPU cannot run work without its GSP; the memory is one hour, because a reset fixes most cases"
	fatalLink     = "most of these errors end one job; after a fatal one, the recovery action drains the GPU"
	boardStorage  = "the board's InfoROM or its flash is worn or has failed; running work does not need it"
	linkOnPurpose = "software disabled the link, possibly on purpose"
	repairWaits   = "the error is contained and is repaired at the next reset"
	companion     = "the driver also reports XID 48, 63, 94, 95 or 140; the class of that XID applies"
	byAction      = "the recovery action has its own rule, and XID 154 is also reported when the action is complete"
)

// xids is indexed by XID.
var xids = [...]XID{
	0:   {text: "No Error"},
	1:   {badPushBuffer, XIDDriver, contactVendor, "", xidUnused, ""},
	2:   {badPushBuffer, XIDDriver, contactVendor, "", xidUnused, ""},
	3:   {badPushBuffer, XIDDriver, contactVendor, "", xidUnused, ""},
	4:   {badPushBuffer, XIDDriver, contactVendor, "", xidUnused, ""},
	6:   {badPushBuffer, XIDDriver, contactVendor, "", xidUnused, ""},
	7:   {"Invalid or corrupted push buffer address", XIDDriver, contactVendor, "", xidUnused, ""},
	8:   {"GPU stopped processing", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	9:   {"Driver error programming GPU", XIDDriver, contactVendor, "", xidUnused, ""},
	11:  {badPushBuffer, XIDApplication, restartApp, checkApp, xidCatalog, ""},
	12:  {"Driver error handling GPU exception", XIDDriver, contactVendor, "", xidUnused, ""},
	13:  {"Graphics Engine Exception", XIDApplication, restartApp, traceApp, xidCatalog, ""},
	16:  {"Display engine hung", XIDDriver, contactVendor, "", xidUnused, ""},
	18:  {"Bus mastering disabled in PCI Config Space", XIDHardware, contactVendor, "", xidUnused, oldBoard},
	19:  {"Display Engine error", XIDDriver, contactVendor, "", xidUnused, ""},
	20:  {"Invalid or corrupted Mpeg push buffer", XIDDriver, contactVendor, "", xidUnused, ""},
	21:  {"Invalid or corrupted Motion Estimation push buffer", XIDDriver, contactVendor, "", xidUnused, ""},
	22:  {"Invalid or corrupted Video Processor push buffer", XIDDriver, contactVendor, "", xidUnused, ""},
	24:  {"GPU semaphore timeout", XIDDriver, contactVendor, "", xidUnused, ""},
	25:  {"Invalid or illegal push buffer stream", XIDApplication, restartApp, checkApp, xidCatalog, ""},
	26:  {"Framebuffer timeout", XIDDriver, contactVendor, "", xidUnused, ""},
	27:  {videoException, XIDApplication, contactVendor, "", xidUnused, ""},
	28:  {videoException, XIDApplication, contactVendor, "", xidUnused, ""},
	29:  {videoException, XIDApplication, contactVendor, "", xidUnused, ""},
	30:  {"GPU semaphore access error", XIDDriver, contactVendor, "", xidUnused, ""},
	31:  {"GPU memory page fault", XIDApplication, restartApp, traceApp, xidCatalog, ""},
	32:  {badPushBuffer, XIDApplication, restartApp, checkApp, xidCatalog, ""},
	33:  {"Internal micro-controller error", XIDDriver, contactVendor, "", xidUnused, ""},
	34:  {videoException, XIDApplication, contactVendor, "", xidUnused, ""},
	35:  {videoException, XIDApplication, contactVendor, "", xidUnused, ""},
	36:  {videoException, XIDApplication, contactVendor, "", xidUnused, ""},
	37:  {"Driver firmware error", XIDApplication, nothing, checkApp, xidCatalog, ""},
	38:  {"Driver firmware error", XIDDriver, nothing, contactVendor, xidCatalog, ""},
	42:  {videoException, XIDApplication, contactVendor, "", xidUnused, ""},
	43:  {"GPU stopped processing", XIDApplication, nothing, contactVendor, xidCatalog, ""},
	44:  {"Graphics Engine fault during context switch", XIDDriver, nothing, contactVendor, xidCatalog, ""},
	45:  {"Preemptive cleanup, due to previous errors", XIDApplication, followOther, restartFabric, xidCatalog, ""},
	46:  {"GPU stopped processing", XIDDriver, resetGPU, contactVendor, xidCatalog, watchHang},
	47:  {videoException, XIDApplication, contactVendor, "", xidUnused, ""},
	48:  {"Double Bit ECC Error", XIDMemory, resetGPU, followMemory, xidCatalog, ""},
	54:  {"Auxiliary power is not connected to the GPU board", XIDHardware, checkPower, contactVendor, xidCatalog, ""},
	56:  {"Display Engine error", XIDDriver, contactVendor, "", xidUnused, ""},
	57:  {"Error programming video memory interface", XIDHardware, contactVendor, "", xidUnused, oldBoard},
	58:  {"Unstable video memory interface detected", XIDMemory, contactVendor, "", xidUnused, oldBoard},
	59:  {"Internal micro-controller error", XIDDriver, contactVendor, "", xidUnused, ""},
	60:  {videoException, XIDApplication, restartApp, checkDriver, xidCatalog, ""},
	61:  {"Internal micro-controller breakpoint/warning", XIDHardware, contactVendor, "", xidUnused, oldBoard},
	62:  {"Internal micro-controller halt", XIDHardware, resetGPU, contactVendor, xidCatalog, ""},
	63:  {"ECC page retirement or row remapping recording event", XIDContained, nothing, "", xidCatalog, ""},
	64:  {recordingFailure, XIDRepairFailed, resetGPU, contactVendor, xidCatalog, ""},
	65:  {videoException, XIDApplication, contactVendor, "", xidUnused, ""},
	66:  {"Illegal access by driver", XIDDriver, nothing, checkDriver, xidCatalog, ""},
	67:  {"Illegal access by driver", XIDDriver, nothing, contactVendor, xidCatalog, ""},
	68:  {"NVDEC0 Exception", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	69:  {"Graphics Engine class error", XIDApplication, restartApp, checkApp, xidCatalog, ""},
	70:  {"CE3: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	71:  {"CE4: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	72:  {"CE5: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	73:  {"NVENC2 Error", XIDApplication, contactVendor, "", xidUnused, ""},
	74:  {"NVLINK Error", XIDLink, followNVLink, contactVendor, xidCatalog, fatalLink},
	75:  {"CE6: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	76:  {"CE7: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	77:  {"CE8: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	78:  {"vGPU Start Error", XIDDriver, update, "", xidCatalog, ""},
	79:  {"GPU has fallen off the bus", XIDHardware, restartNode, contactVendor, xidCatalog, ""},
	80:  {"Corrupted data sent to GPU", XIDApplication, restartApp, checkApp, xidCatalog, ""},
	81:  {"VGA Subsystem Error", XIDDriver, contactVendor, "", xidUnused, ""},
	82:  {"NVJPG0 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	83:  {"NVDEC1 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	84:  {"NVDEC2 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	85:  {"CE9: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	86:  {"OFA Exception", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	88:  {"NVDEC3 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	89:  {"NVDEC4 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	92:  {"High single-bit ECC error rate", XIDContained, nothing, contactVendor, xidCatalog, ""},
	93:  {inforomWear, XIDDriver, nothing, contactVendor, xidCatalog, boardStorage},
	94:  {"Contained ECC error", XIDContained, restartApp, nothing, xidCatalog, ""},
	95:  {"Uncontained ECC error", XIDMemory, resetGPU, nothing, xidCatalog, ""},
	96:  {"NVDEC5 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	97:  {"NVDEC6 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	98:  {"NVDEC7 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	99:  {"NVJPG1 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	100: {"NVJPG2 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	101: {"NVJPG3 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	102: {"NVJPG4 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	103: {"NVJPG5 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	104: {"NVJPG6 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	105: {"NVJPG7 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	106: {"SMBPBI Test Message", XIDTest, nothing, "", xidCatalog, ""},
	107: {"SMBPBI Test Message Silent", XIDTest, nothing, "", xidCatalog, ""},
	109: {"Context Switch Timeout Error", XIDDriver, resetGPU, contactVendor, xidCatalog, watchHang},
	110: {"Security Fault Error", XIDHardware, resetGPU, checkDriver, xidCatalog, ""},
	111: {"Display Bundle Error Event", XIDDriver, contactVendor, "", xidUnused, ""},
	112: {"Display Supervisor Error", XIDDriver, contactVendor, "", xidUnused, ""},
	113: {"DP Link Training Error", XIDDriver, contactVendor, "", xidUnused, ""},
	114: {"Display Pipeline Underflow Error", XIDDriver, contactVendor, "", xidUnused, ""},
	115: {"Display Core Channel Error", XIDDriver, contactVendor, "", xidUnused, ""},
	116: {"Display Window Channel Error", XIDDriver, contactVendor, "", xidUnused, ""},
	117: {"Display Cursor Channel Error", XIDDriver, contactVendor, "", xidUnused, ""},
	118: {"Display Pixel Pipeline Error", XIDDriver, contactVendor, "", xidUnused, ""},
	119: {"GSP RPC Timeout", XIDFirmware, resetGPU, checkDriver, xidCatalog, gspFirst},
	120: {"GSP Error", XIDFirmware, resetGPU, checkDriver, xidCatalog, gspFirst},
	121: {"C2C Link Error", XIDC2C, resetLater, contactVendor, xidCatalog, ""},
	122: {"SPI PMU RPC Read Failure", XIDDriver, contactVendor, "", xidUnused, boardStorage},
	123: {"SPI PMU RPC Write Failure", XIDDriver, contactVendor, "", xidUnused, boardStorage},
	124: {"SPI PMU RPC Erase Failure", XIDDriver, contactVendor, "", xidUnused, boardStorage},
	125: {"Inforom FS Failure", XIDDriver, contactVendor, "", xidUnused, boardStorage},
	126: {"CE10: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	127: {"CE11: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	128: {"CE12: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	129: {"CE13: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	130: {"CE14: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	131: {"CE15: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	132: {"CE16: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	133: {"CE17: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	134: {"CE18: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	135: {"CE19: Unknown Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	136: {"Link Training Failed", XIDHardware, resetGPU, checkLink, xidCatalog, ""},
	137: {"NVLink FLA privilege error", XIDApplication, nothing, traceApp, xidCatalog, ""},
	139: {"OFA1 Error", XIDApplication, restartApp, contactVendor, xidCatalog, ""},
	140: {"Unrecovered ECC Error", XIDMemory, resetGPU, contactVendor, xidCatalog, ""},
	141: {"CUDA Fast Path Error", XIDDriver, nothing, contactVendor, xidCatalog, ""},
	142: {"NVENC3 Error", XIDApplication, contactVendor, "", xidCatalog, ""},
	143: {"GPU Initialization Failure", XIDHardware, resetGPU, contactVendor, xidCatalog, ""},
	144: {"NVLINK: SAW Error", XIDLink, followLink, followLink, xidCatalog, fatalLink},
	145: {"NVLINK: RLW Error", XIDLink, followLink, followLink, xidCatalog, fatalLink},
	146: {"NVLINK: TLW Error", XIDLink, followLink, followLink, xidCatalog, fatalLink},
	147: {"NVLINK: TREX Error", XIDLink, followLink, followLink, xidCatalog, fatalLink},
	148: {"NVLINK: NVLPW_CTRL Error", XIDLink, followLink, followLink, xidCatalog, fatalLink},
	149: {"NVLINK: NETIR Error", XIDLink, followLink, followLink, xidCatalog, fatalLink},
	150: {"NVLINK: MSE Error", XIDLink, followLink, followLink, xidCatalog, fatalLink},
	151: {"Key Rotation Error", XIDDriver, restartVM, contactVendor, xidCatalog, ""},
	154: {"GPU Recovery Action Changed", XIDAction, followAction, nothing, xidCatalog, byAction},
	155: {"NVLINK: SW Defined Error", XIDDriver, resetGPU, checkUser, xidCatalog, linkOnPurpose},
	156: {"Resource Retirement Event", XIDContained, resetGPU, nothing, xidCatalog, repairWaits},
	157: {"Resource Retirement Failure", XIDContained, nothing, contactVendor, xidCatalog, ""},
	158: {"GPU Fatal Timeout", XIDHardware, resetGPU, contactVendor, xidCatalog, ""},
	159: {"CHI Non-Data Error", XIDDriver, checkUVM, followOther, xidCatalog, ""},
	160: {"Channel Retirement Event", XIDContained, nothing, checkDriver, xidCatalog, ""},
	161: {"Channel Retirement Failure", XIDContained, nothing, checkDriver, xidCatalog, ""},
	162: {"Power Smoothing Reengaged", XIDUnclassified, notSaid, "", xidNoWord, ""},
	163: {"Power Smoothing Disengaged", XIDUnclassified, checkHeat, "", xidCatalog, ""},
	164: {"Power Smoothing: Low Lifetime", XIDUnclassified, checkSwings, "", xidCatalog, ""},
	165: {"Power Smoothing: Lifetime Exhausted", XIDUnclassified, replaceSwings, "", xidCatalog, ""},
	166: {"NVLINK: Secure Crypto Error", XIDUnclassified, notSaid, "", xidNoWord, ""},
	167: {"PCIe Fatal Timeout", XIDUnclassified, notSaid, "", xidNoWord, ""},
	168: {"Reduced GPU Memory Capacity", XIDUnclassified, enableECC, "", xidCatalog, ""},
	169: {"SEC2 Halt Error", XIDUnclassified, notSaid, "", xidNoWord, ""},
	170: {"NVLINK: Other Secure Error", XIDUnclassified, notSaid, "", xidNoWord, ""},
	171: {"Uncorrectable DRAM Error", XIDContained, followOther, "", xidNoWord, companion},
	172: {"Uncorrectable SRAM Error", XIDContained, followOther, "", xidNoWord, companion},
}
