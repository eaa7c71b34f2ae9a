//go:build linux && cgo

package nvml

import (
	"math"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// fieldXID is DCGM_FI_DEV_XID_ERRORS, the field that is made of events.
const fieldXID gpu.FieldID = 230

// A spec says where a field's values come from: from one answer of a call,
// from one of NVML's field values, from an NVLink counter or from GPM.
type spec struct {
	unit gpu.Unit

	call *call
	at   int // which of the call's answers

	value uint32 // an NVML_FI_DEV_* id
	milli bool   // the value is in thousandths of unit, and a float in DCGM

	link  bool   // the rate of the links' data counters
	scope uint32 // which link, or allLinks

	metric gonvml.GpmMetricId
}

// allLinks is the scope that adds up all links of a GPU (nvml.h,
// NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX).
const allLinks = math.MaxUint32

// specOf returns where the values of a DCGM field come from. What is not here
// NVML cannot give, or not in DCGM's sense: 200 and 201 (DCGM itself declines
// them), NVLink errors by lane, what belongs to vGPUs, switches and CPUs.
func specOf(id gpu.FieldID) (spec, bool) {
	if s, ok := specs[id]; ok {
		return s, true
	}
	return rangeSpec(id)
}

// rangeSpec answers for the fields that come in rows.
func rangeSpec(id gpu.FieldID) (spec, bool) {
	n := uint32(id)
	switch {
	case id >= 240 && id <= 247: // violations, in the order of nvmlPerfPolicyType_t
		return spec{unit: counters.Nanoseconds, value: gonvml.FI_DEV_PERF_POLICY_POWER + n - 240}, true
	case id >= 310 && id <= 313: // totals of single-bit and double-bit errors
		return spec{value: gonvml.FI_DEV_ECC_SBE_VOL_TOTAL + n - 310}, true
	case id >= 314 && id <= 323: // volatile errors by L1, L2, device, register and texture memory
		return spec{value: gonvml.FI_DEV_ECC_SBE_VOL_L1 + n - 314}, true
	case id >= 324 && id <= 333: // aggregate errors by the same
		return spec{value: gonvml.FI_DEV_ECC_SBE_AGG_L1 + n - 324}, true
	case id >= 390 && id <= 392: // retired pages
		return spec{value: gonvml.FI_DEV_RETIRED_SBE + n - 390}, true
	case id >= 440 && id <= 445:
		return spec{unit: counters.MegabytesPerSecond, link: true, scope: n - 440}, true
	case id >= 475 && id <= 480:
		return spec{unit: counters.MegabytesPerSecond, link: true, scope: n - 475 + 6}, true
	case id >= 446 && id <= 448:
		return spec{unit: counters.MegabytesPerSecond, link: true, scope: n - 446 + 12}, true
	case id >= 494 && id <= 496:
		return spec{unit: counters.MegabytesPerSecond, link: true, scope: n - 494 + 15}, true
	case id >= 1017 && id <= 1024:
		return spec{unit: counters.Ratio, metric: gonvml.GPM_METRIC_NVDEC_0_UTIL + gonvml.GpmMetricId(n-1017)}, true
	case id >= 1025 && id <= 1032:
		return spec{unit: counters.Ratio, metric: gonvml.GPM_METRIC_NVJPG_0_UTIL + gonvml.GpmMetricId(n-1025)}, true
	case id >= 1033 && id <= 1034:
		return spec{unit: counters.Ratio, metric: gonvml.GPM_METRIC_NVOFA_0_UTIL + gonvml.GpmMetricId(n-1033)}, true
	case id >= 1040 && id <= 1075: // links 0 to 17; DCGM has TX before RX, GPM has RX before TX
		return spec{unit: counters.BytesPerSecond, metric: gonvml.GPM_METRIC_NVLINK_L0_RX_PER_SEC + gonvml.GpmMetricId((n-1040)^1)}, true
	}
	return spec{}, false
}

var specs = map[gpu.FieldID]spec{
	1:  {call: &driverVersion},
	2:  {call: &nvmlVersion},
	5:  {call: &cudaVersion},
	50: {call: &deviceName},
	51: {call: &brand},
	52: {call: &nvmlIndex},
	53: {call: &serial},
	54: {call: &deviceUUID},
	55: {call: &minorNumber},
	56: {call: &inforomOEM},
	57: {call: &pciInfo, at: 0},
	58: {call: &pciInfo, at: 1},
	59: {call: &pciInfo, at: 2},
	63: {call: &computeCapability},
	65: {call: &computeMode},
	66: {call: &persistenceMode},
	67: {call: &migMode},
	80: {call: &inforomECC},
	81: {call: &inforomPower},
	82: {call: &inforomImage},
	83: {call: &inforomChecksum},
	85: {call: &vbios},
	90: {call: &bar1, at: 0, unit: counters.Mebibytes},
	92: {call: &bar1, at: 1, unit: counters.Mebibytes},
	93: {call: &bar1, at: 2, unit: counters.Mebibytes},

	100: {call: &clockSM, unit: counters.Megahertz},
	101: {call: &clockMemory, unit: counters.Megahertz},
	102: {call: &clockVideo, unit: counters.Megahertz},
	110: {call: &clockAppSM, unit: counters.Megahertz},
	111: {call: &clockAppMemory, unit: counters.Megahertz},
	112: {call: &clockReasons},
	113: {call: &clockMaxSM, unit: counters.Megahertz},
	114: {call: &clockMaxMemory, unit: counters.Megahertz},
	115: {call: &clockMaxVideo, unit: counters.Megahertz},
	120: {call: &autoBoost},

	140: {value: gonvml.FI_DEV_MEMORY_TEMP, unit: counters.Celsius},
	150: {call: &temperature, unit: counters.Celsius},
	151: {call: &temperatureMemoryMax, unit: counters.Celsius},
	152: {call: &temperatureMax, unit: counters.Celsius},
	153: {call: &temperatureMargin, unit: counters.Celsius},
	158: {call: &temperatureSlowdown, unit: counters.Celsius},
	159: {call: &temperatureShutdown, unit: counters.Celsius},

	155: {call: &power, unit: counters.Watts},
	156: {value: gonvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION, unit: counters.Millijoules},
	157: {value: gonvml.FI_DEV_POWER_INSTANT, unit: counters.Watts, milli: true},
	160: {call: &powerLimit, unit: counters.Watts},
	161: {call: &powerLimits, at: 0, unit: counters.Watts},
	162: {call: &powerLimits, at: 1, unit: counters.Watts},
	163: {call: &powerLimitDefault, unit: counters.Watts},
	164: {call: &powerLimitEnforced, unit: counters.Watts},

	190: {call: &performanceState},
	191: {call: &fanSpeed, unit: counters.Percent},
	202: {call: &pcieReplays},
	203: {call: &utilization, at: 0, unit: counters.Percent},
	204: {call: &utilization, at: 1, unit: counters.Percent},
	206: {call: &encoderUtilization, unit: counters.Percent},
	207: {call: &decoderUtilization, unit: counters.Percent},
	235: {call: &pcieMaxGeneration},
	236: {call: &pcieMaxWidth},
	237: {call: &pcieGeneration},
	238: {call: &pcieWidth},

	250: {call: &memory, at: 0, unit: counters.Mebibytes},
	251: {call: &memory, at: 1, unit: counters.Mebibytes},
	252: {call: &memory, at: 2, unit: counters.Mebibytes},
	253: {call: &memory, at: 3, unit: counters.Mebibytes},
	254: {call: &memory, at: 4, unit: counters.Ratio},

	300: {value: gonvml.FI_DEV_ECC_CURRENT},
	301: {value: gonvml.FI_DEV_ECC_PENDING},
	337: {value: gonvml.FI_DEV_ECC_DBE_VOL_CBU},
	341: {value: gonvml.FI_DEV_ECC_DBE_AGG_CBU},
	385: {call: &rowRemapper, at: 0},
	386: {call: &rowRemapper, at: 1},
	387: {call: &rowRemapper, at: 2},
	388: {call: &rowRemapper, at: 3},
	389: {call: &rowRemapper, at: 4},
	393: {value: gonvml.FI_DEV_REMAPPED_UNC},
	394: {value: gonvml.FI_DEV_REMAPPED_COR},
	395: {value: gonvml.FI_DEV_REMAPPED_FAILURE},
	396: {value: gonvml.FI_DEV_REMAPPED_PENDING},

	409: {value: gonvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL},
	419: {value: gonvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL},
	429: {value: gonvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL},
	439: {value: gonvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL},
	449: {link: true, scope: allLinks, unit: counters.MegabytesPerSecond},

	526: {call: &vgpuLicence},

	// The numbers are those of dcgm_fields.h; nvml.h has its own for the same
	// hardware counters.
	1001: {metric: gonvml.GPM_METRIC_GRAPHICS_UTIL, unit: counters.Ratio},
	1002: {metric: gonvml.GPM_METRIC_SM_UTIL, unit: counters.Ratio},
	1003: {metric: gonvml.GPM_METRIC_SM_OCCUPANCY, unit: counters.Ratio},
	1004: {metric: gonvml.GPM_METRIC_ANY_TENSOR_UTIL, unit: counters.Ratio},
	1005: {metric: gonvml.GPM_METRIC_DRAM_BW_UTIL, unit: counters.Ratio},
	1006: {metric: gonvml.GPM_METRIC_FP64_UTIL, unit: counters.Ratio},
	1007: {metric: gonvml.GPM_METRIC_FP32_UTIL, unit: counters.Ratio},
	1008: {metric: gonvml.GPM_METRIC_FP16_UTIL, unit: counters.Ratio},
	1009: {metric: gonvml.GPM_METRIC_PCIE_TX_PER_SEC, unit: counters.BytesPerSecond},
	1010: {metric: gonvml.GPM_METRIC_PCIE_RX_PER_SEC, unit: counters.BytesPerSecond},
	1011: {metric: gonvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, unit: counters.BytesPerSecond},
	1012: {metric: gonvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, unit: counters.BytesPerSecond},
	1013: {metric: gonvml.GPM_METRIC_IMMA_TENSOR_UTIL, unit: counters.Ratio},
	1014: {metric: gonvml.GPM_METRIC_HMMA_TENSOR_UTIL, unit: counters.Ratio},
	1015: {metric: gonvml.GPM_METRIC_DFMA_TENSOR_UTIL, unit: counters.Ratio},
	1016: {metric: gonvml.GPM_METRIC_INTEGER_UTIL, unit: counters.Ratio},
}
