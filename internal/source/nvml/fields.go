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
	ber   bool   // the value is a bit error rate, packed (nvml.h, NVML_NVLINK_BER_*)
	word  bool   // the value is an unsigned int, whatever type the driver says

	link      bool // the rate of the links' data counters
	direction direction

	scope uint32 // which link the value or the rate is of, or allLinks; 0 where it is of the GPU

	// perLink is set for the fields of NVLinks: the row says which link.
	perLink bool

	metric gonvml.GpmMetricId
}

// allLinks is the scope that adds up all links of a GPU (nvml.h,
// NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX).
const allLinks = math.MaxUint32

// A direction is what of a link's traffic counts.
type direction uint8

const (
	bothWays direction = iota
	received
	sent
)

// specOf returns where the values of a DCGM field come from. What is not here
// is declined: absence says why.
func specOf(id gpu.FieldID) (spec, bool) {
	if s, ok := specs[id]; ok {
		return s, true
	}
	return rangeSpec(id)
}

// absence says why a field that specOf does not know is not served.
func absence(id gpu.FieldID) string {
	switch {
	case id == 200 || id == 201:
		return "DCGM gives no value for it either"
	case id >= 497 && id <= 499:
		return "NVML counts it for each link, and the field is of the GPU"
	case id == 1509:
		return "DCGM numbers the port of this counter unlike that of the others, and does not say how"
	default:
		return "the NVML source does not read it"
	}
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
	case id >= 400 && id <= 438 || id >= 451 && id <= 474 || id >= 481 && id <= 493:
		return laneSpec(n)
	case id >= 440 && id <= 445:
		return spec{unit: counters.MegabytesPerSecond, link: true, scope: n - 440}, true
	case id >= 475 && id <= 480:
		return spec{unit: counters.MegabytesPerSecond, link: true, scope: n - 475 + 6}, true
	case id >= 446 && id <= 448:
		return spec{unit: counters.MegabytesPerSecond, link: true, scope: n - 446 + 12}, true
	case id >= 494 && id <= 496:
		return spec{unit: counters.MegabytesPerSecond, link: true, scope: n - 494 + 15}, true
	case id >= 825 && id <= 842:
		return spec{unit: counters.MegabytesPerSecond, link: true, direction: sent, scope: n - 825}, true
	case id >= 879 && id <= 896:
		return spec{unit: counters.MegabytesPerSecond, link: true, direction: received, scope: n - 879}, true
	case id >= 1017 && id <= 1024:
		return spec{unit: counters.Ratio, metric: gonvml.GPM_METRIC_NVDEC_0_UTIL + gonvml.GpmMetricId(n-1017)}, true
	case id >= 1025 && id <= 1032:
		return spec{unit: counters.Ratio, metric: gonvml.GPM_METRIC_NVJPG_0_UTIL + gonvml.GpmMetricId(n-1025)}, true
	case id >= 1033 && id <= 1034:
		return spec{unit: counters.Ratio, metric: gonvml.GPM_METRIC_NVOFA_0_UTIL + gonvml.GpmMetricId(n-1033)}, true
	case id >= 1040 && id <= 1075: // links 0 to 17; DCGM has TX before RX, GPM has RX before TX
		return spec{unit: counters.BytesPerSecond, metric: gonvml.GPM_METRIC_NVLINK_L0_RX_PER_SEC + gonvml.GpmMetricId((n-1040)^1)}, true
	case id >= 1076 && id <= 1079: // DCGM has both of TX before RX, GPM has both totals before the data alone
		return spec{unit: counters.BytesPerSecond, metric: gonvml.GPM_METRIC_C2C_TOTAL_TX_PER_SEC + gonvml.GpmMetricId((n-1076)>>1|(n-1076)&1<<1)}, true
	case id >= 1404 && id <= 1419: // corrected symbols by how many were wrong
		return spec{value: gonvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 + n - 1404, scope: allLinks}, true
	}
	return spec{}, false
}

// laneSpec answers for the errors of links 0 to 17 that are fields of the GPU.
// Their names say "lane" and mean the link (dcgm_fields.h on the fields by
// link; DcgmCacheManager.cpp, ReadAndCacheNvLinkData). The numbers grew with
// the links of a GPU: six, six more, and two times three.
func laneSpec(n uint32) (spec, bool) {
	counter, link := uint32(0), uint32(0)
	switch {
	case n <= 438:
		counter, link = (n-400)/10, n%10
		if link == 9 {
			return spec{}, false // the sum of all links
		}
		if link >= 6 {
			link += 6
		}
	case n <= 474:
		counter, link = (n-451)/6, 6+(n-451)%6
	case n == 490:
		return spec{}, false
	case n <= 489:
		counter, link = (n-481)/3, 15+(n-481)%3
	default:
		counter, link = 3, 15+(n-491)
	}
	order := [...]gonvml.NvLinkErrorCounter{
		gonvml.NVLINK_ERROR_DL_CRC_FLIT, gonvml.NVLINK_ERROR_DL_CRC_DATA, gonvml.NVLINK_ERROR_DL_REPLAY, gonvml.NVLINK_ERROR_DL_RECOVERY,
	}
	return spec{call: linkErrors(order[counter], int(link))}, true
}

var specs = map[gpu.FieldID]spec{
	1:  {call: &driverVersion},
	2:  {call: &nvmlVersion},
	4:  {call: &deviceCount},
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
	69: {call: &migSlices},
	70: {call: &cpuAffinity, at: 0},
	71: {call: &cpuAffinity, at: 1},
	72: {call: &cpuAffinity, at: 2},
	73: {call: &cpuAffinity, at: 3},
	80: {call: &inforomECC},
	81: {call: &inforomPower},
	82: {call: &inforomImage},
	83: {call: &inforomChecksum},
	84: {call: &inforomValid},
	85: {call: &vbios},
	86: {call: &memoryAffinity, at: 0},
	87: {call: &memoryAffinity, at: 1},
	88: {call: &memoryAffinity, at: 2},
	89: {call: &memoryAffinity, at: 3},
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

	// Drivers of the 545 series call the memory's temperature a double.
	140: {value: gonvml.FI_DEV_MEMORY_TEMP, unit: counters.Celsius, word: true},
	150: {call: &temperature, unit: counters.Celsius},
	151: {call: &temperatureMemoryMax, unit: counters.Celsius},
	152: {call: &temperatureMax, unit: counters.Celsius},
	153: {call: &temperatureMargin, unit: counters.Celsius},
	158: {call: &temperatureSlowdown, unit: counters.Celsius},
	159: {call: &temperatureShutdown, unit: counters.Celsius},

	155: {call: &power, unit: counters.Watts},
	156: {value: gonvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION, unit: counters.Millijoules},
	157: {value: gonvml.FI_DEV_POWER_INSTANT, unit: counters.Watts, milli: true, word: true},
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

	170: {call: &fabric, at: 0},
	171: {call: &fabric, at: 1},
	172: {call: &fabric, at: 2},
	173: {call: &fabric, at: 3},
	174: {call: &fabric, at: 4},
	175: {call: &fabric, at: 5},

	285: {value: gonvml.FI_DEV_C2C_LINK_COUNT},
	286: {value: gonvml.FI_DEV_C2C_LINK_GET_STATUS},
	287: {value: gonvml.FI_DEV_C2C_LINK_GET_MAX_BW, unit: counters.MegabytesPerSecond},

	300: {value: gonvml.FI_DEV_ECC_CURRENT},
	301: {value: gonvml.FI_DEV_ECC_PENDING},
	334: {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.VOLATILE_ECC, gonvml.MEMORY_LOCATION_TEXTURE_SHM)},
	335: {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC, gonvml.MEMORY_LOCATION_TEXTURE_SHM)},
	336: {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.VOLATILE_ECC, gonvml.MEMORY_LOCATION_CBU)},
	337: {value: gonvml.FI_DEV_ECC_DBE_VOL_CBU},
	338: {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.AGGREGATE_ECC, gonvml.MEMORY_LOCATION_TEXTURE_SHM)},
	339: {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.AGGREGATE_ECC, gonvml.MEMORY_LOCATION_TEXTURE_SHM)},
	340: {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.AGGREGATE_ECC, gonvml.MEMORY_LOCATION_CBU)},
	341: {value: gonvml.FI_DEV_ECC_DBE_AGG_CBU},
	342: {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.VOLATILE_ECC, gonvml.MEMORY_LOCATION_SRAM)},
	343: {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC, gonvml.MEMORY_LOCATION_SRAM)},
	344: {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.AGGREGATE_ECC, gonvml.MEMORY_LOCATION_SRAM)},
	345: {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.AGGREGATE_ECC, gonvml.MEMORY_LOCATION_SRAM)},
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

	573: {call: &platform, at: 0},
	574: {call: &platform, at: 1},
	575: {call: &platform, at: 2},
	576: {call: &platform, at: 3},
	577: {call: &platform, at: 4},

	580: {call: &portState, at: 0, perLink: true},
	581: {call: &portRecovery, at: 0, perLink: true, unit: counters.Seconds},
	582: {call: &portRecovery, at: 1, perLink: true, unit: counters.Milliseconds},
	583: {call: &portRecovery, at: 2, perLink: true},
	584: {call: &portPhysical, at: 0, perLink: true},
	585: {call: &portPhysical, at: 1, perLink: true},
	586: {call: &portRetransmission, at: 0, perLink: true},
	587: {call: &portRetransmission, at: 1, perLink: true},
	588: {call: &portRetransmission, at: 2, perLink: true},
	589: {call: &portRetransmission, at: 3, perLink: true},
	590: {call: &portRetransmission, at: 4, perLink: true},
	591: {call: &portRetransmission, at: 5, perLink: true},
	592: {call: &portRetransmission, at: 6, perLink: true},

	843: {link: true, direction: sent, scope: allLinks, unit: counters.MegabytesPerSecond},
	897: {link: true, direction: received, scope: allLinks, unit: counters.MegabytesPerSecond},

	// Counters of NVLink 5 and later, over all links (DcgmCMUtils.cpp,
	// NvmlFieldRequiresNvLinkAggregate).
	1200: {value: gonvml.FI_DEV_NVLINK_COUNT_XMIT_PACKETS, scope: allLinks},
	1201: {value: gonvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES, scope: allLinks, unit: counters.Bytes},
	1202: {value: gonvml.FI_DEV_NVLINK_COUNT_RCV_PACKETS, scope: allLinks},
	1203: {value: gonvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, scope: allLinks, unit: counters.Bytes},
	1204: {value: gonvml.FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS, scope: allLinks},
	1205: {value: gonvml.FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS, scope: allLinks},
	1206: {value: gonvml.FI_DEV_NVLINK_COUNT_RCV_ERRORS, scope: allLinks},
	1207: {value: gonvml.FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS, scope: allLinks},
	1208: {value: gonvml.FI_DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS, scope: allLinks},
	1209: {value: gonvml.FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS, scope: allLinks},
	1210: {value: gonvml.FI_DEV_NVLINK_COUNT_XMIT_DISCARDS, scope: allLinks},
	1211: {value: gonvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS, scope: allLinks},
	1212: {value: gonvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS, scope: allLinks},
	1213: {value: gonvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, scope: allLinks},
	1214: {value: gonvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, scope: allLinks},
	1215: {value: gonvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER, scope: allLinks},
	1216: {value: gonvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER, scope: allLinks, ber: true, unit: counters.Ratio},
	1217: {value: gonvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, scope: allLinks},
	1218: {value: gonvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, scope: allLinks, ber: true, unit: counters.Ratio},
	1219: {value: gonvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, scope: allLinks},
	1220: {value: gonvml.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL},

	1400: {value: gonvml.FI_DEV_C2C_LINK_ERROR_INTR},
	1401: {value: gonvml.FI_DEV_C2C_LINK_ERROR_REPLAY},
	1402: {value: gonvml.FI_DEV_C2C_LINK_ERROR_REPLAY_B2B},
	1403: {value: gonvml.FI_DEV_C2C_LINK_POWER_STATE},

	1420: {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, unit: counters.Nanoseconds},
	1421: {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST, unit: counters.Nanoseconds},
	1422: {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, unit: counters.Nanoseconds},
	1423: {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, unit: counters.Nanoseconds},
	1424: {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, unit: counters.Nanoseconds},

	1501: {value: gonvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS},
	1507: {call: &memoryUnrepairable},
	1523: {value: gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION},

	1508: {value: gonvml.FI_DEV_NVLINK_GET_STATE, perLink: true},
	1525: {call: linkErrors(gonvml.NVLINK_ERROR_DL_CRC_FLIT, ownLink), perLink: true},
	1526: {call: linkErrors(gonvml.NVLINK_ERROR_DL_CRC_DATA, ownLink), perLink: true},
	1527: {call: linkErrors(gonvml.NVLINK_ERROR_DL_REPLAY, ownLink), perLink: true},
	1528: {call: linkErrors(gonvml.NVLINK_ERROR_DL_RECOVERY, ownLink), perLink: true},
	1529: {link: true, perLink: true, unit: counters.MegabytesPerSecond},
	1530: {link: true, direction: sent, perLink: true, unit: counters.MegabytesPerSecond},
	1531: {link: true, direction: received, perLink: true, unit: counters.MegabytesPerSecond},
	1532: {metric: gonvml.GPM_METRIC_NVLINK_L0_TX_PER_SEC, perLink: true, unit: counters.BytesPerSecond},
	1533: {metric: gonvml.GPM_METRIC_NVLINK_L0_RX_PER_SEC, perLink: true, unit: counters.BytesPerSecond},

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
