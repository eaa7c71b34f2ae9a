package catalog

import (
	"strconv"
	"strings"
	"sync"
)

// A Finding is a row of the table of DCGM's health findings (DCGM_FR_*).
type Finding struct {
	// Code is the value of the health_error_code label. It begins with DCGM_FR_; a code without a row in the
	// table is a number.
	Code     string
	Severity Severity
	Category string // as NVIDIA's exporter spells it
	Reason
}

// A Reason says how findings are treated, and why.
type Reason struct {
	// Treatment says what alerts and the verdict do with the finding.
	Treatment Treatment
	// Watch is the only health watch to which the Treatment applies; the finding is active in other watches. If
	// empty, it applies to all.
	Watch string
	// By is the field or family that supersedes the finding. If a plan does not have it, the finding is active.
	By  string
	Why string // the reason for the Treatment
}

// Severity says how DCGM wants a finding to be handled (dcgmErrorSeverity_t), as NVIDIA's exporter spells it.
type Severity string

// The severities.
const (
	SeverityNone    Severity = "NONE"
	SeverityMonitor Severity = "MONITOR" // the GPU can do work
	SeverityIsolate Severity = "ISOLATE" // the GPU cannot do work
	SeverityUnknown Severity = "UNKNOWN"
	SeverityTriage  Severity = "TRIAGE"
	SeverityConfig  Severity = "CONFIG" // a setting is wrong
	SeverityReset   Severity = "RESET"  // drain and reset the GPU
)

// Treatment says what alerts and the verdict do with a finding.
type Treatment uint8

// The treatments.
const (
	Active        Treatment = iota // alerts and the verdict use it
	ByXID                          // the rule of its XID applies instead
	BySeries                       // the rule of another series applies instead
	Informational                  // alerts and the verdict ignore it
)

// String returns the words of the documentation.
func (t Treatment) String() string {
	return [...]string{"active", "superseded by the XID rule", "superseded by a series", "informational"}[t]
}

// TreatmentLabel is the label of findings that alerts and the verdict ignore. Active findings do not have it.
const TreatmentLabel = "treatment"

// Label returns the value of the TreatmentLabel. It is empty for Active.
func (t Treatment) Label() string {
	return [...]string{"", "superseded", "superseded", "informational"}[t]
}

// findingPrefix is the prefix of DCGM's finding codes. The rows of findings omit it.
const findingPrefix = "DCGM_FR_"

// FindingNumbered returns the finding with DCGM's number. If the table does not have it, the Code is the
// number.
func FindingNumbered(number uint32) Finding {
	if number < uint32(len(findings)) {
		return findings[number].full()
	}
	return unknownFinding(strconv.FormatUint(uint64(number), 10))
}

// FindingOf returns the finding for a health_error_code or an alias. If the table does not have it, the finding
// is Active with severity UNKNOWN. An empty code is the result of a passing watch.
func FindingOf(code string) Finding {
	if f, ok := findingsByCode()[strings.TrimPrefix(code, findingPrefix)]; ok {
		return f
	}
	return unknownFinding(code)
}

// ParseFinding returns the code of a finding from user input: a code with or without DCGM_FR_, an alias, or a
// number.
func ParseFinding(s string) (code string, ok bool) {
	if number, err := strconv.ParseUint(s, 10, 32); err == nil {
		return FindingNumbered(uint32(number)).Code, number != 0
	}
	f, ok := findingsByCode()[strings.TrimPrefix(strings.ToUpper(s), findingPrefix)]
	return f.Code, ok && f.Severity != SeverityNone
}

// FindingCodes returns the codes of the table in DCGM's order, without that of a passing watch.
func FindingCodes() []string {
	codes := make([]string, 0, len(findings)-1)
	for _, f := range Findings()[1:] {
		codes = append(codes, f.Code)
	}
	return codes
}

// Findings returns the table in DCGM's order.
func Findings() []Finding {
	list := make([]Finding, len(findings))
	for i := range findings {
		list[i] = findings[i].full()
	}
	return list
}

// full returns a row with the prefix of its code.
func (f Finding) full() Finding {
	f.Code = findingPrefix + f.Code
	return f
}

func unknownFinding(code string) Finding {
	return Finding{Code: code, Severity: SeverityUnknown, Category: string(SeverityUnknown), Reason: notClassified}
}

// findingsByCode maps codes and aliases, without prefix, to findings. The empty code maps to the result of a
// passing watch.
var findingsByCode = sync.OnceValue(func() map[string]Finding {
	m := make(map[string]Finding, len(findings)+len(findingAliases)+1)
	for _, f := range findings {
		m[f.Code] = f.full()
	}
	for alias, code := range findingAliases {
		m[alias] = m[code]
	}
	m[""] = findings[0].full()
	return m
})

// findingAliases maps names in DCGM's current header to the older ones that NVIDIA's exporter uses as codes.
var findingAliases = map[string]string{
	"CLOCKS_EVENT_THERMAL":   "CLOCK_THROTTLE_THERMAL",
	"CLOCKS_EVENT_POWER":     "CLOCK_THROTTLE_POWER",
	"CLOCKS_EVENT_VIOLATION": "THROTTLING_VIOLATION",
}

// Reasons that several findings share.
var (
	passes        = Reason{Why: "no finding"}
	notClassified = Reason{Why: "DCGM does not classify it"}
	noRule        = Reason{Why: "no other rule covers it"}
	diagOnly      = Reason{Why: "only `dcgmi diag` reports it so far; no other rule covers it"}
	diagMonitor   = informational("only `dcgmi diag` reports it so far; the GPU can do work")
)

func informational(why string) Reason { return Reason{Treatment: Informational, Why: why} }

func bySeries(by, why string) Reason { return Reason{Treatment: BySeries, By: by, Why: why} }

// byXID uses the XID field, which every plan with XIDs has.
func byXID(why string) Reason {
	return Reason{Treatment: ByXID, By: "DCGM_FI_DEV_XID_ERRORS", Why: why}
}

// findings is indexed by DCGM's error number. Severities and categories are those of DCGM 4.6.0 (dcgm_errors.c).
var findings = [...]Finding{
	0: {"OK", SeverityNone, "NONE", passes},
	1: {"UNKNOWN", SeverityUnknown, "NONE", notClassified},
	2: {"UNRECOGNIZED", SeverityUnknown, "NONE", notClassified},
	3: {"PCI_REPLAY_RATE", SeverityIsolate, "HARDWARE_PCIE", noRule},
	4: {"VOLATILE_DBE_DETECTED", SeverityIsolate, "HARDWARE_MEMORY",
		bySeries("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
			"fails until the driver is reloaded; the ECC rule has its own memory")},
	5: {"VOLATILE_SBE_DETECTED", SeverityMonitor, "HARDWARE_MEMORY", diagMonitor},
	6: {"PENDING_PAGE_RETIREMENTS", SeverityReset, "HARDWARE_MEMORY",
		bySeries("DCGM_FI_DEV_RETIRED_PENDING", "repeats the pending page, and XID 63 until the engine restarts")},
	7: {"RETIRED_PAGES_LIMIT", SeverityIsolate, "HARDWARE_MEMORY", noRule},
	8: {"RETIRED_PAGES_DBE_LIMIT", SeverityIsolate, "HARDWARE_MEMORY", noRule},
	9: {"CORRUPT_INFOROM", SeverityTriage, "HARDWARE_OTHER", noRule},
	10: {"CLOCK_THROTTLE_THERMAL", SeverityMonitor, "HARDWARE_THERMAL",
		informational("warns about any software thermal slowdown in the last minute; " +
			"hardware slowdown has its own rule")},
	11: {"POWER_UNREADABLE", SeverityMonitor, "HARDWARE_POWER",
		informational("the GPU works; its power reading is missing from the page as well")},
	12: {"CLOCK_THROTTLE_POWER", SeverityMonitor, "HARDWARE_POWER",
		informational("warns whenever the power limit reduced the clocks in the last minute; " +
			"power brake has its own rule")},
	13: {"NVLINK_ERROR_THRESHOLD", SeverityIsolate, "HARDWARE_NVLINK", noRule},
	14: {"NVLINK_DOWN", SeverityTriage, "HARDWARE_NVLINK", noRule},
	15: {"NVSWITCH_FATAL_ERROR", SeverityIsolate, "HARDWARE_NVSWITCH", noRule},
	16: {"NVSWITCH_NON_FATAL_ERROR", SeverityMonitor, "HARDWARE_NVSWITCH",
		Reason{Why: "covered by the alert NVSwitchWarning; no GPU verdict uses it"}},
	17: {"NVSWITCH_DOWN", SeverityMonitor, "HARDWARE_NVSWITCH", diagMonitor},
	18: {"NO_ACCESS_TO_FILE", SeverityConfig, "SOFTWARE_OTHER", diagOnly},
	19: {"NVML_API", SeverityMonitor, "SOFTWARE_LIBRARY", diagMonitor},
	20: {"DEVICE_COUNT_MISMATCH", SeverityConfig, "SOFTWARE_OTHER", diagOnly},
	21: {"BAD_PARAMETER", SeverityUnknown, "INTERNAL_OTHER", diagOnly},
	22: {"CANNOT_OPEN_LIB", SeverityTriage, "SOFTWARE_LIBRARY", diagOnly},
	23: {"DENYLISTED_DRIVER", SeverityConfig, "SOFTWARE_CONFIG", diagOnly},
	24: {"NVML_LIB_BAD", SeverityIsolate, "SOFTWARE_LIBRARY", diagOnly},
	25: {"GRAPHICS_PROCESSES", SeverityReset, "SOFTWARE_OTHER", diagOnly},
	26: {"HOSTENGINE_CONN", SeverityMonitor, "INTERNAL_OTHER", diagMonitor},
	27: {"FIELD_QUERY", SeverityMonitor, "INTERNAL_OTHER", diagMonitor},
	28: {"BAD_CUDA_ENV", SeverityConfig, "SOFTWARE_CUDA", diagOnly},
	29: {"PERSISTENCE_MODE", SeverityConfig, "SOFTWARE_OTHER", diagOnly},
	30: {"LOW_BANDWIDTH", SeverityTriage, "HARDWARE_PCIE", diagOnly},
	31: {"HIGH_LATENCY", SeverityTriage, "HARDWARE_PCIE", diagOnly},
	32: {"CANNOT_GET_FIELD_TAG", SeverityMonitor, "INTERNAL_OTHER", diagMonitor},
	33: {"FIELD_VIOLATION", SeverityIsolate, "HARDWARE_OTHER", Reason{
		Treatment: BySeries, Watch: "NVLINK", By: FabricState,
		Why: "reported both for degraded bandwidth and for a lost route; the fabric rules distinguish them",
	}},
	34: {"FIELD_THRESHOLD", SeverityMonitor, "PERF_VIOLATION", diagMonitor},
	35: {"FIELD_VIOLATION_DBL", SeverityIsolate, "PERF_VIOLATION", diagOnly},
	36: {"FIELD_THRESHOLD_DBL", SeverityIsolate, "PERF_VIOLATION", noRule},
	37: {"UNSUPPORTED_FIELD_TYPE", SeverityTriage, "INTERNAL_OTHER", diagOnly},
	38: {"FIELD_THRESHOLD_TS", SeverityIsolate, "PERF_THRESHOLD", diagOnly},
	39: {"FIELD_THRESHOLD_TS_DBL", SeverityIsolate, "PERF_THRESHOLD", diagOnly},
	40: {"THERMAL_VIOLATIONS", SeverityMonitor, "HARDWARE_THERMAL", diagMonitor},
	41: {"THERMAL_VIOLATIONS_TS", SeverityMonitor, "HARDWARE_THERMAL", diagMonitor},
	42: {"TEMP_VIOLATION", SeverityMonitor, "HARDWARE_THERMAL", diagMonitor},
	43: {"THROTTLING_VIOLATION", SeverityMonitor, "HARDWARE_OTHER", diagMonitor},
	44: {"INTERNAL", SeverityTriage, "INTERNAL_OTHER", diagOnly},
	45: {"PCIE_GENERATION", SeverityTriage, "HARDWARE_PCIE", diagOnly},
	46: {"PCIE_WIDTH", SeverityConfig, "HARDWARE_PCIE", diagOnly},
	47: {"ABORTED", SeverityConfig, "SOFTWARE_OTHER", diagOnly},
	48: {"TEST_DISABLED", SeverityConfig, "SOFTWARE_CONFIG", diagOnly},
	49: {"CANNOT_GET_STAT", SeverityTriage, "INTERNAL_OTHER", diagOnly},
	50: {"STRESS_LEVEL", SeverityTriage, "PERF_THRESHOLD", diagOnly},
	51: {"CUDA_API", SeverityMonitor, "SOFTWARE_CUDA", diagMonitor},
	52: {"FAULTY_MEMORY", SeverityIsolate, "HARDWARE_MEMORY", noRule},
	53: {"CANNOT_SET_WATCHES", SeverityMonitor, "INTERNAL_OTHER", diagMonitor},
	54: {"CUDA_UNBOUND", SeverityTriage, "SOFTWARE_CUDA", diagOnly},
	55: {"ECC_DISABLED", SeverityConfig, "HARDWARE_MEMORY", diagOnly},
	56: {"MEMORY_ALLOC", SeverityTriage, "SOFTWARE_OTHER", diagOnly},
	57: {"CUDA_DBE", SeverityIsolate, "HARDWARE_MEMORY", diagOnly},
	58: {"MEMORY_MISMATCH", SeverityIsolate, "HARDWARE_MEMORY", diagOnly},
	59: {"CUDA_DEVICE", SeverityTriage, "SOFTWARE_CUDA", diagOnly},
	60: {"ECC_UNSUPPORTED", SeverityConfig, "HARDWARE_MEMORY", diagOnly},
	61: {"ECC_PENDING", SeverityMonitor, "HARDWARE_MEMORY", diagMonitor},
	62: {"MEMORY_BANDWIDTH", SeverityTriage, "PERF_THRESHOLD", diagOnly},
	63: {"TARGET_POWER", SeverityTriage, "HARDWARE_POWER", diagOnly},
	64: {"API_FAIL", SeverityTriage, "SOFTWARE_OTHER", diagOnly},
	65: {"API_FAIL_GPU", SeverityTriage, "SOFTWARE_OTHER", diagOnly},
	66: {"CUDA_CONTEXT", SeverityTriage, "SOFTWARE_CUDA", diagOnly},
	67: {"DCGM_API", SeverityTriage, "INTERNAL_OTHER", diagOnly},
	68: {"CONCURRENT_GPUS", SeverityConfig, "SOFTWARE_CONFIG", diagOnly},
	69: {"TOO_MANY_ERRORS", SeverityMonitor, "SOFTWARE_OTHER", diagMonitor},
	70: {"NVLINK_CRC_ERROR_THRESHOLD", SeverityIsolate, "HARDWARE_NVLINK", noRule},
	71: {"NVLINK_ERROR_CRITICAL", SeverityIsolate, "HARDWARE_NVLINK",
		bySeries("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
			"remains from the first link error until the driver is reloaded; the NVLink rules look for new errors")},
	72: {"ENFORCED_POWER_LIMIT", SeverityConfig, "HARDWARE_POWER", diagOnly},
	73: {"MEMORY_ALLOC_HOST", SeverityTriage, "SOFTWARE_OTHER", diagOnly},
	74: {"GPU_OP_MODE", SeverityMonitor, "SOFTWARE_CONFIG", diagMonitor},
	75: {"NO_MEMORY_CLOCKS", SeverityMonitor, "HARDWARE_MEMORY", diagMonitor},
	76: {"NO_GRAPHICS_CLOCKS", SeverityMonitor, "HARDWARE_OTHER", diagMonitor},
	77: {"HAD_TO_RESTORE_STATE", SeverityTriage, "SOFTWARE_OTHER", diagOnly},
	78: {"L1TAG_UNSUPPORTED", SeverityConfig, "SOFTWARE_OTHER", diagOnly},
	79: {"L1TAG_MISCOMPARE", SeverityIsolate, "HARDWARE_MEMORY", diagOnly},
	80: {"ROW_REMAP_FAILURE", SeverityReset, "HARDWARE_MEMORY",
		bySeries("DCGM_FI_DEV_ROW_REMAP_FAILURE",
			"fails as long as the remapping failure is reported; after XID 64, until the engine restarts")},
	81: {"UNCONTAINED_ERROR", SeverityIsolate, "SOFTWARE_XID", byXID("repeats XID 95 until the engine restarts")},
	82: {"EMPTY_GPU_LIST", SeverityConfig, "SOFTWARE_CONFIG", diagOnly},
	83: {"DBE_PENDING_PAGE_RETIREMENTS", SeverityReset, "HARDWARE_MEMORY",
		bySeries("DCGM_FI_DEV_RETIRED_PENDING", "repeats the pending page")},
	84: {"UNCORRECTABLE_ROW_REMAP", SeverityReset, "HARDWARE_MEMORY",
		bySeries("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "repeats the remapped row, which stays remapped")},
	85: {"PENDING_ROW_REMAP", SeverityReset, "HARDWARE_MEMORY",
		bySeries("DCGM_FI_DEV_ROW_REMAP_PENDING", "repeats the pending remapping")},
	86:  {"BROKEN_P2P_MEMORY_DEVICE", SeverityIsolate, "HARDWARE_OTHER", diagOnly},
	87:  {"BROKEN_P2P_WRITER_DEVICE", SeverityIsolate, "HARDWARE_OTHER", diagOnly},
	88:  {"NVSWITCH_NVLINK_DOWN", SeverityIsolate, "HARDWARE_NVLINK", diagOnly},
	89:  {"EUD_BINARY_PERMISSIONS", SeverityTriage, "SOFTWARE_EUD", diagOnly},
	90:  {"EUD_NON_ROOT_USER", SeverityTriage, "SOFTWARE_EUD", diagOnly},
	91:  {"EUD_SPAWN_FAILURE", SeverityTriage, "SOFTWARE_EUD", diagOnly},
	92:  {"EUD_TIMEOUT", SeverityTriage, "SOFTWARE_EUD", diagOnly},
	93:  {"EUD_ZOMBIE", SeverityTriage, "SOFTWARE_EUD", diagOnly},
	94:  {"EUD_NON_ZERO_EXIT_CODE", SeverityTriage, "SOFTWARE_EUD", diagOnly},
	95:  {"EUD_TEST_FAILED", SeverityIsolate, "SOFTWARE_EUD", diagOnly},
	96:  {"FILE_CREATE_PERMISSIONS", SeverityConfig, "SOFTWARE_CONFIG", diagOnly},
	97:  {"PAUSE_RESUME_FAILED", SeverityTriage, "INTERNAL_OTHER", diagOnly},
	98:  {"PCIE_H_REPLAY_VIOLATION", SeverityIsolate, "HARDWARE_PCIE", diagOnly},
	99:  {"GPU_EXPECTED_NVLINKS_UP", SeverityTriage, "HARDWARE_NVLINK", diagOnly},
	100: {"NVSWITCH_EXPECTED_NVLINKS_UP", SeverityTriage, "HARDWARE_NVLINK", diagOnly},
	101: {"XID_ERROR", SeverityTriage, "SOFTWARE_XID", byXID("repeats an XID until the engine restarts")},
	102: {"SBE_VIOLATION", SeverityIsolate, "HARDWARE_MEMORY", diagOnly},
	103: {"DBE_VIOLATION", SeverityIsolate, "HARDWARE_MEMORY", diagOnly},
	104: {"PCIE_REPLAY_VIOLATION", SeverityIsolate, "HARDWARE_PCIE", diagOnly},
	105: {"SBE_THRESHOLD_VIOLATION", SeverityIsolate, "HARDWARE_MEMORY", diagOnly},
	106: {"DBE_THRESHOLD_VIOLATION", SeverityIsolate, "HARDWARE_MEMORY", diagOnly},
	107: {"PCIE_REPLAY_THRESHOLD_VIOLATION", SeverityIsolate, "HARDWARE_PCIE", diagOnly},
	108: {"CUDA_FM_NOT_INITIALIZED", SeverityMonitor, "SOFTWARE_CUDA", diagMonitor},
	109: {"SXID_ERROR", SeverityIsolate, "SOFTWARE_XID", diagOnly},
	110: {"GFLOPS_THRESHOLD_VIOLATION", SeverityTriage, "PERF_VIOLATION", diagOnly},
	111: {"NAN_VALUE", SeverityIsolate, "HARDWARE_MEMORY", diagOnly},
	112: {"FABRIC_MANAGER_TRAINING_ERROR", SeverityConfig, "SOFTWARE_CUDA", diagOnly},
	113: {"BROKEN_P2P_PCIE_MEMORY_DEVICE", SeverityIsolate, "HARDWARE_PCIE", diagOnly},
	114: {"BROKEN_P2P_PCIE_WRITER_DEVICE", SeverityIsolate, "HARDWARE_PCIE", diagOnly},
	115: {"BROKEN_P2P_NVLINK_MEMORY_DEVICE", SeverityIsolate, "HARDWARE_NVLINK", diagOnly},
	116: {"BROKEN_P2P_NVLINK_WRITER_DEVICE", SeverityIsolate, "HARDWARE_NVLINK", diagOnly},
	117: {"TEST_SKIPPED", SeverityConfig, "SOFTWARE_CONFIG", diagOnly},
	118: {"SRAM_THRESHOLD", SeverityIsolate, "HARDWARE_MEMORY", diagOnly},
	119: {"NVLINK_EFFECTIVE_BER_THRESHOLD", SeverityIsolate, "HARDWARE_NVLINK", noRule},
	120: {"FALLEN_OFF_BUS", SeverityIsolate, "HARDWARE_OTHER", byXID("repeats XID 79 until the engine restarts")},
	121: {"NVLINK_SYMBOL_BER_THRESHOLD", SeverityIsolate, "HARDWARE_NVLINK", noRule},
	122: {"IMEX_UNHEALTHY", SeverityIsolate, "SOFTWARE_OTHER", noRule},
	123: {"FABRIC_PROBE_STATE", SeverityMonitor, "HARDWARE_NVLINK",
		bySeries("DCGM_EXP_FABRIC_STATE",
			"repeats the fabric registration state; also fails if NVML is too old to report it")},
	124: {"BINARY_PERMISSIONS", SeverityTriage, "SOFTWARE_OTHER", diagOnly},
	125: {"GPU_RECOVERY_RESET", SeverityReset, "HARDWARE_OTHER",
		bySeries("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "repeats the requested recovery action")},
	126: {"GPU_RECOVERY_REBOOT", SeverityIsolate, "HARDWARE_OTHER",
		bySeries("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "repeats the requested recovery action")},
	127: {"GPU_RECOVERY_DRAIN_P2P", SeverityReset, "HARDWARE_OTHER",
		bySeries("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "repeats the requested recovery action")},
	128: {"GPU_RECOVERY_DRAIN_RESET", SeverityReset, "HARDWARE_OTHER",
		bySeries("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "repeats the requested recovery action")},
	129: {"NCCL_ERROR", SeverityReset, "HARDWARE_OTHER", diagOnly},
	130: {"RETEST_REQUESTED", SeverityTriage, "SOFTWARE_OTHER", diagOnly},
	131: {"CONTAINED_ERROR", SeverityMonitor, "SOFTWARE_XID", byXID("repeats XID 94 until the engine restarts")},
	132: {"UNCORRECTABLE_ROW_REMAP_LIMIT", SeverityTriage, "HARDWARE_MEMORY", noRule},
	133: {"CPU_SDC_TEST_FAILED", SeverityUnknown, "SOFTWARE_CPU_SDC",
		Reason{Why: "added in DCGM 4.6.1; its severity is not published"}},
}
