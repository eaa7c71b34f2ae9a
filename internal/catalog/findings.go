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
	Code string
	// Alias is the name in DCGM's current header. It is empty unless NVIDIA's exporter uses an older name as
	// the Code.
	Alias    string
	Severity Severity
	Category string // as NVIDIA's exporter spells it
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

// TreatmentLabel is the name of the label of findings that alerts and the verdict do not use.
const TreatmentLabel = "treatment"

// Label returns the value of the TreatmentLabel. It is empty for Active.
func (t Treatment) Label() string {
	return [...]string{"", "superseded", "superseded", "informational"}[t]
}

// xidField stands for the XID field, which every plan with XIDs has.
const xidField = "DCGM_FI_DEV_XID_ERRORS"

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

// full completes a row with prefixes and the fields that ByXID implies.
func (f Finding) full() Finding {
	f.Code = findingPrefix + f.Code
	if f.Alias != "" {
		f.Alias = findingPrefix + f.Alias
	}
	if f.Treatment == ByXID {
		f.By = xidField
	}
	return f
}

func unknownFinding(code string) Finding {
	return Finding{Code: code, Severity: SeverityUnknown, Category: string(SeverityUnknown), Why: notClassified}
}

// findingsByCode maps codes and aliases, without prefix, to findings. The empty code maps to the result of a
// passing watch.
var findingsByCode = sync.OnceValue(func() map[string]Finding {
	m := make(map[string]Finding, len(findings)+4)
	for _, f := range findings {
		m[f.Code] = f.full()
		if f.Alias != "" {
			m[f.Alias] = f.full()
		}
	}
	m[""] = findings[0].full()
	return m
})

// Reasons that several findings share.
const (
	passes        = "no finding"
	notClassified = "DCGM does not classify it"
	noRule        = "no other rule covers it"
	diagOnly      = "only `dcgmi diag` reports it so far; no other rule covers it"
	diagMonitor   = "only `dcgmi diag` reports it so far; the GPU can do work"
)

// findings is indexed by DCGM's error number. Severities and categories are those of DCGM 4.6.0
// (dcgm_errors.c).
var findings = [...]Finding{
	0: {Code: "OK", Severity: SeverityNone, Category: "NONE", Why: passes},
	1: {Code: "UNKNOWN", Severity: SeverityUnknown, Category: "NONE", Why: notClassified},
	2: {Code: "UNRECOGNIZED", Severity: SeverityUnknown, Category: "NONE", Why: notClassified},
	3: {Code: "PCI_REPLAY_RATE", Severity: SeverityIsolate, Category: "HARDWARE_PCIE", Why: noRule},
	4: {Code: "VOLATILE_DBE_DETECTED", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Treatment: BySeries,
		By: "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", Why: "fails until the driver is reloaded; the ECC rule has its own memory"},
	5: {Code: "VOLATILE_SBE_DETECTED", Severity: SeverityMonitor, Category: "HARDWARE_MEMORY",
		Treatment: Informational,
		Why:       diagMonitor},
	6: {Code: "PENDING_PAGE_RETIREMENTS", Severity: SeverityReset, Category: "HARDWARE_MEMORY",
		Treatment: BySeries,
		By:        "DCGM_FI_DEV_RETIRED_PENDING", Why: "repeats the pending page, and XID 63 until the engine restarts"},
	7: {Code: "RETIRED_PAGES_LIMIT", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: noRule},
	8: {Code: "RETIRED_PAGES_DBE_LIMIT", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: noRule},
	9: {Code: "CORRUPT_INFOROM", Severity: SeverityTriage, Category: "HARDWARE_OTHER", Why: noRule},
	10: {Code: "CLOCK_THROTTLE_THERMAL", Alias: "CLOCKS_EVENT_THERMAL",
		Severity: SeverityMonitor, Category: "HARDWARE_THERMAL", Treatment: Informational,
		Why: "warns about any software thermal slowdown in the last minute; hardware slowdown has its own rule"},
	11: {Code: "POWER_UNREADABLE", Severity: SeverityMonitor, Category: "HARDWARE_POWER", Treatment: Informational,
		Why: "the GPU works; its power reading is missing from the page as well"},
	12: {Code: "CLOCK_THROTTLE_POWER", Alias: "CLOCKS_EVENT_POWER", Severity: SeverityMonitor, Category: "HARDWARE_POWER",
		Treatment: Informational,
		Why:       "warns whenever the power limit reduced the clocks in the last minute; power brake has its own rule"},
	13: {Code: "NVLINK_ERROR_THRESHOLD", Severity: SeverityIsolate, Category: "HARDWARE_NVLINK", Why: noRule},
	14: {Code: "NVLINK_DOWN", Severity: SeverityTriage, Category: "HARDWARE_NVLINK", Why: noRule},
	15: {Code: "NVSWITCH_FATAL_ERROR", Severity: SeverityIsolate, Category: "HARDWARE_NVSWITCH", Why: noRule},
	16: {Code: "NVSWITCH_NON_FATAL_ERROR", Severity: SeverityMonitor, Category: "HARDWARE_NVSWITCH",
		Why: "covered by the alert NVSwitchWarning; no GPU verdict uses it"},
	17: {Code: "NVSWITCH_DOWN", Severity: SeverityMonitor, Category: "HARDWARE_NVSWITCH", Treatment: Informational,
		Why: diagMonitor},
	18: {Code: "NO_ACCESS_TO_FILE", Severity: SeverityConfig, Category: "SOFTWARE_OTHER", Why: diagOnly},
	19: {Code: "NVML_API", Severity: SeverityMonitor, Category: "SOFTWARE_LIBRARY", Treatment: Informational,
		Why: diagMonitor},
	20: {Code: "DEVICE_COUNT_MISMATCH", Severity: SeverityConfig, Category: "SOFTWARE_OTHER", Why: diagOnly},
	21: {Code: "BAD_PARAMETER", Severity: SeverityUnknown, Category: "INTERNAL_OTHER", Why: diagOnly},
	22: {Code: "CANNOT_OPEN_LIB", Severity: SeverityTriage, Category: "SOFTWARE_LIBRARY", Why: diagOnly},
	23: {Code: "DENYLISTED_DRIVER", Severity: SeverityConfig, Category: "SOFTWARE_CONFIG", Why: diagOnly},
	24: {Code: "NVML_LIB_BAD", Severity: SeverityIsolate, Category: "SOFTWARE_LIBRARY", Why: diagOnly},
	25: {Code: "GRAPHICS_PROCESSES", Severity: SeverityReset, Category: "SOFTWARE_OTHER", Why: diagOnly},
	26: {Code: "HOSTENGINE_CONN", Severity: SeverityMonitor, Category: "INTERNAL_OTHER", Treatment: Informational,
		Why: diagMonitor},
	27: {Code: "FIELD_QUERY", Severity: SeverityMonitor, Category: "INTERNAL_OTHER", Treatment: Informational,
		Why: diagMonitor},
	28: {Code: "BAD_CUDA_ENV", Severity: SeverityConfig, Category: "SOFTWARE_CUDA", Why: diagOnly},
	29: {Code: "PERSISTENCE_MODE", Severity: SeverityConfig, Category: "SOFTWARE_OTHER", Why: diagOnly},
	30: {Code: "LOW_BANDWIDTH", Severity: SeverityTriage, Category: "HARDWARE_PCIE", Why: diagOnly},
	31: {Code: "HIGH_LATENCY", Severity: SeverityTriage, Category: "HARDWARE_PCIE", Why: diagOnly},
	32: {Code: "CANNOT_GET_FIELD_TAG", Severity: SeverityMonitor, Category: "INTERNAL_OTHER",
		Treatment: Informational,
		Why:       diagMonitor},
	33: {Code: "FIELD_VIOLATION", Severity: SeverityIsolate, Category: "HARDWARE_OTHER",
		Treatment: BySeries, Watch: "NVLINK",
		By:  "DCGM_EXP_FABRIC_STATE",
		Why: "reported both for degraded bandwidth and for a lost route; the fabric rules distinguish them"},
	34: {Code: "FIELD_THRESHOLD", Severity: SeverityMonitor, Category: "PERF_VIOLATION", Treatment: Informational,
		Why: diagMonitor},
	35: {Code: "FIELD_VIOLATION_DBL", Severity: SeverityIsolate, Category: "PERF_VIOLATION", Why: diagOnly},
	36: {Code: "FIELD_THRESHOLD_DBL", Severity: SeverityIsolate, Category: "PERF_VIOLATION", Why: noRule},
	37: {Code: "UNSUPPORTED_FIELD_TYPE", Severity: SeverityTriage, Category: "INTERNAL_OTHER", Why: diagOnly},
	38: {Code: "FIELD_THRESHOLD_TS", Severity: SeverityIsolate, Category: "PERF_THRESHOLD", Why: diagOnly},
	39: {Code: "FIELD_THRESHOLD_TS_DBL", Severity: SeverityIsolate, Category: "PERF_THRESHOLD", Why: diagOnly},
	40: {Code: "THERMAL_VIOLATIONS", Severity: SeverityMonitor, Category: "HARDWARE_THERMAL",
		Treatment: Informational,
		Why:       diagMonitor},
	41: {Code: "THERMAL_VIOLATIONS_TS", Severity: SeverityMonitor, Category: "HARDWARE_THERMAL",
		Treatment: Informational,
		Why:       diagMonitor},
	42: {Code: "TEMP_VIOLATION", Severity: SeverityMonitor, Category: "HARDWARE_THERMAL", Treatment: Informational,
		Why: diagMonitor},
	43: {Code: "THROTTLING_VIOLATION", Alias: "CLOCKS_EVENT_VIOLATION",
		Severity: SeverityMonitor, Category: "HARDWARE_OTHER", Treatment: Informational,
		Why: diagMonitor},
	44: {Code: "INTERNAL", Severity: SeverityTriage, Category: "INTERNAL_OTHER", Why: diagOnly},
	45: {Code: "PCIE_GENERATION", Severity: SeverityTriage, Category: "HARDWARE_PCIE", Why: diagOnly},
	46: {Code: "PCIE_WIDTH", Severity: SeverityConfig, Category: "HARDWARE_PCIE", Why: diagOnly},
	47: {Code: "ABORTED", Severity: SeverityConfig, Category: "SOFTWARE_OTHER", Why: diagOnly},
	48: {Code: "TEST_DISABLED", Severity: SeverityConfig, Category: "SOFTWARE_CONFIG", Why: diagOnly},
	49: {Code: "CANNOT_GET_STAT", Severity: SeverityTriage, Category: "INTERNAL_OTHER", Why: diagOnly},
	50: {Code: "STRESS_LEVEL", Severity: SeverityTriage, Category: "PERF_THRESHOLD", Why: diagOnly},
	51: {Code: "CUDA_API", Severity: SeverityMonitor, Category: "SOFTWARE_CUDA", Treatment: Informational,
		Why: diagMonitor},
	52: {Code: "FAULTY_MEMORY", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: noRule},
	53: {Code: "CANNOT_SET_WATCHES", Severity: SeverityMonitor, Category: "INTERNAL_OTHER",
		Treatment: Informational,
		Why:       diagMonitor},
	54: {Code: "CUDA_UNBOUND", Severity: SeverityTriage, Category: "SOFTWARE_CUDA", Why: diagOnly},
	55: {Code: "ECC_DISABLED", Severity: SeverityConfig, Category: "HARDWARE_MEMORY", Why: diagOnly},
	56: {Code: "MEMORY_ALLOC", Severity: SeverityTriage, Category: "SOFTWARE_OTHER", Why: diagOnly},
	57: {Code: "CUDA_DBE", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: diagOnly},
	58: {Code: "MEMORY_MISMATCH", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: diagOnly},
	59: {Code: "CUDA_DEVICE", Severity: SeverityTriage, Category: "SOFTWARE_CUDA", Why: diagOnly},
	60: {Code: "ECC_UNSUPPORTED", Severity: SeverityConfig, Category: "HARDWARE_MEMORY", Why: diagOnly},
	61: {Code: "ECC_PENDING", Severity: SeverityMonitor, Category: "HARDWARE_MEMORY", Treatment: Informational,
		Why: diagMonitor},
	62: {Code: "MEMORY_BANDWIDTH", Severity: SeverityTriage, Category: "PERF_THRESHOLD", Why: diagOnly},
	63: {Code: "TARGET_POWER", Severity: SeverityTriage, Category: "HARDWARE_POWER", Why: diagOnly},
	64: {Code: "API_FAIL", Severity: SeverityTriage, Category: "SOFTWARE_OTHER", Why: diagOnly},
	65: {Code: "API_FAIL_GPU", Severity: SeverityTriage, Category: "SOFTWARE_OTHER", Why: diagOnly},
	66: {Code: "CUDA_CONTEXT", Severity: SeverityTriage, Category: "SOFTWARE_CUDA", Why: diagOnly},
	67: {Code: "DCGM_API", Severity: SeverityTriage, Category: "INTERNAL_OTHER", Why: diagOnly},
	68: {Code: "CONCURRENT_GPUS", Severity: SeverityConfig, Category: "SOFTWARE_CONFIG", Why: diagOnly},
	69: {Code: "TOO_MANY_ERRORS", Severity: SeverityMonitor, Category: "SOFTWARE_OTHER", Treatment: Informational,
		Why: diagMonitor},
	70: {Code: "NVLINK_CRC_ERROR_THRESHOLD", Severity: SeverityIsolate, Category: "HARDWARE_NVLINK", Why: noRule},
	71: {Code: "NVLINK_ERROR_CRITICAL", Severity: SeverityIsolate, Category: "HARDWARE_NVLINK",
		Treatment: BySeries,
		By:        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
		Why:       "remains from the first link error until the driver is reloaded; the NVLink rules look for new errors"},
	72: {Code: "ENFORCED_POWER_LIMIT", Severity: SeverityConfig, Category: "HARDWARE_POWER", Why: diagOnly},
	73: {Code: "MEMORY_ALLOC_HOST", Severity: SeverityTriage, Category: "SOFTWARE_OTHER", Why: diagOnly},
	74: {Code: "GPU_OP_MODE", Severity: SeverityMonitor, Category: "SOFTWARE_CONFIG", Treatment: Informational,
		Why: diagMonitor},
	75: {Code: "NO_MEMORY_CLOCKS", Severity: SeverityMonitor, Category: "HARDWARE_MEMORY",
		Treatment: Informational,
		Why:       diagMonitor},
	76: {Code: "NO_GRAPHICS_CLOCKS", Severity: SeverityMonitor, Category: "HARDWARE_OTHER",
		Treatment: Informational,
		Why:       diagMonitor},
	77: {Code: "HAD_TO_RESTORE_STATE", Severity: SeverityTriage, Category: "SOFTWARE_OTHER", Why: diagOnly},
	78: {Code: "L1TAG_UNSUPPORTED", Severity: SeverityConfig, Category: "SOFTWARE_OTHER", Why: diagOnly},
	79: {Code: "L1TAG_MISCOMPARE", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: diagOnly},
	80: {Code: "ROW_REMAP_FAILURE", Severity: SeverityReset, Category: "HARDWARE_MEMORY", Treatment: BySeries,
		By: "DCGM_FI_DEV_ROW_REMAP_FAILURE", Why: "fails as long as the remapping failure is reported; after XID 64, until the engine restarts"},
	81: {Code: "UNCONTAINED_ERROR", Severity: SeverityIsolate, Category: "SOFTWARE_XID", Treatment: ByXID,
		Why: "repeats XID 95 until the engine restarts"},
	82: {Code: "EMPTY_GPU_LIST", Severity: SeverityConfig, Category: "SOFTWARE_CONFIG", Why: diagOnly},
	83: {Code: "DBE_PENDING_PAGE_RETIREMENTS", Severity: SeverityReset, Category: "HARDWARE_MEMORY",
		Treatment: BySeries,
		By:        "DCGM_FI_DEV_RETIRED_PENDING", Why: "repeats the pending page"},
	84: {Code: "UNCORRECTABLE_ROW_REMAP", Severity: SeverityReset, Category: "HARDWARE_MEMORY",
		Treatment: BySeries,
		By:        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", Why: "repeats the remapped row, which stays remapped"},
	85: {Code: "PENDING_ROW_REMAP", Severity: SeverityReset, Category: "HARDWARE_MEMORY", Treatment: BySeries,
		By: "DCGM_FI_DEV_ROW_REMAP_PENDING", Why: "repeats the pending remapping"},
	86:  {Code: "BROKEN_P2P_MEMORY_DEVICE", Severity: SeverityIsolate, Category: "HARDWARE_OTHER", Why: diagOnly},
	87:  {Code: "BROKEN_P2P_WRITER_DEVICE", Severity: SeverityIsolate, Category: "HARDWARE_OTHER", Why: diagOnly},
	88:  {Code: "NVSWITCH_NVLINK_DOWN", Severity: SeverityIsolate, Category: "HARDWARE_NVLINK", Why: diagOnly},
	89:  {Code: "EUD_BINARY_PERMISSIONS", Severity: SeverityTriage, Category: "SOFTWARE_EUD", Why: diagOnly},
	90:  {Code: "EUD_NON_ROOT_USER", Severity: SeverityTriage, Category: "SOFTWARE_EUD", Why: diagOnly},
	91:  {Code: "EUD_SPAWN_FAILURE", Severity: SeverityTriage, Category: "SOFTWARE_EUD", Why: diagOnly},
	92:  {Code: "EUD_TIMEOUT", Severity: SeverityTriage, Category: "SOFTWARE_EUD", Why: diagOnly},
	93:  {Code: "EUD_ZOMBIE", Severity: SeverityTriage, Category: "SOFTWARE_EUD", Why: diagOnly},
	94:  {Code: "EUD_NON_ZERO_EXIT_CODE", Severity: SeverityTriage, Category: "SOFTWARE_EUD", Why: diagOnly},
	95:  {Code: "EUD_TEST_FAILED", Severity: SeverityIsolate, Category: "SOFTWARE_EUD", Why: diagOnly},
	96:  {Code: "FILE_CREATE_PERMISSIONS", Severity: SeverityConfig, Category: "SOFTWARE_CONFIG", Why: diagOnly},
	97:  {Code: "PAUSE_RESUME_FAILED", Severity: SeverityTriage, Category: "INTERNAL_OTHER", Why: diagOnly},
	98:  {Code: "PCIE_H_REPLAY_VIOLATION", Severity: SeverityIsolate, Category: "HARDWARE_PCIE", Why: diagOnly},
	99:  {Code: "GPU_EXPECTED_NVLINKS_UP", Severity: SeverityTriage, Category: "HARDWARE_NVLINK", Why: diagOnly},
	100: {Code: "NVSWITCH_EXPECTED_NVLINKS_UP", Severity: SeverityTriage, Category: "HARDWARE_NVLINK", Why: diagOnly},
	101: {Code: "XID_ERROR", Severity: SeverityTriage, Category: "SOFTWARE_XID", Treatment: ByXID,
		Why: "repeats an XID until the engine restarts"},
	102: {Code: "SBE_VIOLATION", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: diagOnly},
	103: {Code: "DBE_VIOLATION", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: diagOnly},
	104: {Code: "PCIE_REPLAY_VIOLATION", Severity: SeverityIsolate, Category: "HARDWARE_PCIE", Why: diagOnly},
	105: {Code: "SBE_THRESHOLD_VIOLATION", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: diagOnly},
	106: {Code: "DBE_THRESHOLD_VIOLATION", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: diagOnly},
	107: {Code: "PCIE_REPLAY_THRESHOLD_VIOLATION", Severity: SeverityIsolate, Category: "HARDWARE_PCIE",
		Why: diagOnly},
	108: {Code: "CUDA_FM_NOT_INITIALIZED", Severity: SeverityMonitor, Category: "SOFTWARE_CUDA",
		Treatment: Informational,
		Why:       diagMonitor},
	109: {Code: "SXID_ERROR", Severity: SeverityIsolate, Category: "SOFTWARE_XID", Why: diagOnly},
	110: {Code: "GFLOPS_THRESHOLD_VIOLATION", Severity: SeverityTriage, Category: "PERF_VIOLATION", Why: diagOnly},
	111: {Code: "NAN_VALUE", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: diagOnly},
	112: {Code: "FABRIC_MANAGER_TRAINING_ERROR", Severity: SeverityConfig, Category: "SOFTWARE_CUDA", Why: diagOnly},
	113: {Code: "BROKEN_P2P_PCIE_MEMORY_DEVICE", Severity: SeverityIsolate, Category: "HARDWARE_PCIE", Why: diagOnly},
	114: {Code: "BROKEN_P2P_PCIE_WRITER_DEVICE", Severity: SeverityIsolate, Category: "HARDWARE_PCIE", Why: diagOnly},
	115: {Code: "BROKEN_P2P_NVLINK_MEMORY_DEVICE", Severity: SeverityIsolate, Category: "HARDWARE_NVLINK",
		Why: diagOnly},
	116: {Code: "BROKEN_P2P_NVLINK_WRITER_DEVICE", Severity: SeverityIsolate, Category: "HARDWARE_NVLINK",
		Why: diagOnly},
	117: {Code: "TEST_SKIPPED", Severity: SeverityConfig, Category: "SOFTWARE_CONFIG", Why: diagOnly},
	118: {Code: "SRAM_THRESHOLD", Severity: SeverityIsolate, Category: "HARDWARE_MEMORY", Why: diagOnly},
	119: {Code: "NVLINK_EFFECTIVE_BER_THRESHOLD", Severity: SeverityIsolate, Category: "HARDWARE_NVLINK",
		Why: noRule},
	120: {Code: "FALLEN_OFF_BUS", Severity: SeverityIsolate, Category: "HARDWARE_OTHER", Treatment: ByXID,
		Why: "repeats XID 79 until the engine restarts"},
	121: {Code: "NVLINK_SYMBOL_BER_THRESHOLD", Severity: SeverityIsolate, Category: "HARDWARE_NVLINK", Why: noRule},
	122: {Code: "IMEX_UNHEALTHY", Severity: SeverityIsolate, Category: "SOFTWARE_OTHER", Why: noRule},
	123: {Code: "FABRIC_PROBE_STATE", Severity: SeverityMonitor, Category: "HARDWARE_NVLINK",
		Treatment: BySeries,
		By:        "DCGM_EXP_FABRIC_STATE",
		Why:       "repeats the fabric registration state; also fails if NVML is too old to report it"},
	124: {Code: "BINARY_PERMISSIONS", Severity: SeverityTriage, Category: "SOFTWARE_OTHER", Why: diagOnly},
	125: {Code: "GPU_RECOVERY_RESET", Severity: SeverityReset, Category: "HARDWARE_OTHER", Treatment: BySeries,
		By: "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", Why: "repeats the requested recovery action"},
	126: {Code: "GPU_RECOVERY_REBOOT", Severity: SeverityIsolate, Category: "HARDWARE_OTHER", Treatment: BySeries,
		By: "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", Why: "repeats the requested recovery action"},
	127: {Code: "GPU_RECOVERY_DRAIN_P2P", Severity: SeverityReset, Category: "HARDWARE_OTHER", Treatment: BySeries,
		By: "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", Why: "repeats the requested recovery action"},
	128: {Code: "GPU_RECOVERY_DRAIN_RESET", Severity: SeverityReset, Category: "HARDWARE_OTHER",
		Treatment: BySeries,
		By:        "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", Why: "repeats the requested recovery action"},
	129: {Code: "NCCL_ERROR", Severity: SeverityReset, Category: "HARDWARE_OTHER", Why: diagOnly},
	130: {Code: "RETEST_REQUESTED", Severity: SeverityTriage, Category: "SOFTWARE_OTHER", Why: diagOnly},
	131: {Code: "CONTAINED_ERROR", Severity: SeverityMonitor, Category: "SOFTWARE_XID", Treatment: ByXID,
		Why: "repeats XID 94 until the engine restarts"},
	132: {Code: "UNCORRECTABLE_ROW_REMAP_LIMIT", Severity: SeverityTriage, Category: "HARDWARE_MEMORY", Why: noRule},
	133: {Code: "CPU_SDC_TEST_FAILED", Severity: SeverityUnknown, Category: "SOFTWARE_CPU_SDC",
		Why: "added in DCGM 4.6.1; its severity is not published"},
}
