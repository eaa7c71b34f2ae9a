//go:build linux && cgo

package nvml

import (
	"math"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A spec says where a field's values come from: from one answer of a call, from one of NVML's field
// values, from an NVLink counter or from GPM.
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

// specOf returns where the values of a DCGM field come from. What is not here is declined: absence
// says why.
func specOf(id gpu.FieldID) (spec, bool) {
	if s, ok := specs[id]; ok {
		return s, true
	}
	return rangeSpec(id)
}

// absence says why a field that specOf does not know is not served.
func absence(id gpu.FieldID) string {
	switch {
	case id == catalog.PCIeTXThroughput || id == catalog.PCIeRXThroughput:
		return "DCGM gives no value for it either"
	case id >= catalog.NVLinkErrorDlCRC && id <= catalog.NVLinkErrorDlReplay:
		return "NVML counts it for each link, and the field is of the GPU"
	case id == catalog.NVLinkPPCNTIbpcPortXmitWait:
		return "DCGM numbers the port of this counter unlike that of the others, and does not say how"
	default:
		return "the NVML source does not read it"
	}
}

// rangeSpec answers for the fields that come in rows.
func rangeSpec(id gpu.FieldID) (spec, bool) {
	switch {
	case id >= catalog.PowerViolation && id <= catalog.TotalBaseClocksViolation: // violations, in the order of nvmlPerfPolicyType_t
		return spec{unit: catalog.Nanoseconds, value: gonvml.FI_DEV_PERF_POLICY_POWER + uint32(id-catalog.PowerViolation)}, true
	case id >= catalog.ECCSBEVolTotal && id <= catalog.ECCDBEAggTotal: // totals of single-bit and double-bit errors
		return spec{value: gonvml.FI_DEV_ECC_SBE_VOL_TOTAL + uint32(id-catalog.ECCSBEVolTotal)}, true
	case id >= catalog.ECCSBEVolL1 && id <= catalog.ECCDBEVolTex: // volatile errors by L1, L2, device, register and texture memory
		return spec{value: gonvml.FI_DEV_ECC_SBE_VOL_L1 + uint32(id-catalog.ECCSBEVolL1)}, true
	case id >= catalog.ECCSBEAggL1 && id <= catalog.ECCDBEAggTex: // aggregate errors by the same
		return spec{value: gonvml.FI_DEV_ECC_SBE_AGG_L1 + uint32(id-catalog.ECCSBEAggL1)}, true
	case id >= catalog.RetiredSBE && id <= catalog.RetiredPending: // retired pages
		return spec{value: gonvml.FI_DEV_RETIRED_SBE + uint32(id-catalog.RetiredSBE)}, true
	case id >= catalog.NVLinkCRCFlitErrorCountL0 && id <= catalog.NVLinkRecoveryErrorCountL14 || id >= catalog.NVLinkCRCFlitErrorCountL6 && id <= catalog.NVLinkRecoveryErrorCountL11 || id >= catalog.NVLinkCRCFlitErrorCountL15 && id <= catalog.NVLinkRecoveryErrorCountL17:
		return laneSpec(id)
	case id >= catalog.NVLinkBandwidthL0 && id <= catalog.NVLinkBandwidthL5:
		return spec{unit: catalog.MegabytesPerSecond, link: true, scope: uint32(id - catalog.NVLinkBandwidthL0)}, true
	case id >= catalog.NVLinkBandwidthL6 && id <= catalog.NVLinkBandwidthL11:
		return spec{unit: catalog.MegabytesPerSecond, link: true, scope: uint32(id-catalog.NVLinkBandwidthL6) + 6}, true
	case id >= catalog.NVLinkBandwidthL12 && id <= catalog.NVLinkBandwidthL14:
		return spec{unit: catalog.MegabytesPerSecond, link: true, scope: uint32(id-catalog.NVLinkBandwidthL12) + 12}, true
	case id >= catalog.NVLinkBandwidthL15 && id <= catalog.NVLinkBandwidthL17:
		return spec{unit: catalog.MegabytesPerSecond, link: true, scope: uint32(id-catalog.NVLinkBandwidthL15) + 15}, true
	case id >= catalog.NVLinkTXBandwidthL0 && id <= catalog.NVLinkTXBandwidthL17:
		return spec{unit: catalog.MegabytesPerSecond, link: true, direction: sent, scope: uint32(id - catalog.NVLinkTXBandwidthL0)}, true
	case id >= catalog.NVLinkRXBandwidthL0 && id <= catalog.NVLinkRXBandwidthL17:
		return spec{unit: catalog.MegabytesPerSecond, link: true, direction: received, scope: uint32(id - catalog.NVLinkRXBandwidthL0)}, true
	case id >= catalog.ProfNvdec0Active && id <= catalog.ProfNvdec7Active:
		return spec{unit: catalog.Ratio, metric: gonvml.GPM_METRIC_NVDEC_0_UTIL + gonvml.GpmMetricId(id-catalog.ProfNvdec0Active)}, true
	case id >= catalog.ProfNvjpg0Active && id <= catalog.ProfNvjpg7Active:
		return spec{unit: catalog.Ratio, metric: gonvml.GPM_METRIC_NVJPG_0_UTIL + gonvml.GpmMetricId(id-catalog.ProfNvjpg0Active)}, true
	case id >= catalog.ProfNvofa0Active && id <= catalog.ProfNvofa1Active:
		return spec{unit: catalog.Ratio, metric: gonvml.GPM_METRIC_NVOFA_0_UTIL + gonvml.GpmMetricId(id-catalog.ProfNvofa0Active)}, true
	case id >= catalog.ProfNVLinkL0TXBytes && id <= catalog.ProfNVLinkL17RXBytes: // links 0 to 17; DCGM has TX before RX, GPM has RX before TX
		return spec{unit: catalog.BytesPerSecond, metric: gonvml.GPM_METRIC_NVLINK_L0_RX_PER_SEC + gonvml.GpmMetricId((id-catalog.ProfNVLinkL0TXBytes)^1)}, true
	case id >= catalog.ProfC2CTXAllBytes && id <= catalog.ProfC2CRXDataBytes: // DCGM has both of TX before RX, GPM has both totals before the data alone
		return spec{unit: catalog.BytesPerSecond, metric: gonvml.GPM_METRIC_C2C_TOTAL_TX_PER_SEC + gonvml.GpmMetricId((id-catalog.ProfC2CTXAllBytes)>>1|(id-catalog.ProfC2CTXAllBytes)&1<<1)}, true
	case id >= catalog.NVLinkCountFECHistory0 && id <= catalog.NVLinkCountFECHistory15: // corrected symbols by how many were wrong
		return spec{value: gonvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 + uint32(id-catalog.NVLinkCountFECHistory0), scope: allLinks}, true
	}
	return spec{}, false
}

// laneSpec answers for the errors of links 0 to 17 that are fields of the GPU. Their names say
// "lane" and mean the link (dcgm_fields.h on the fields by link; DcgmCacheManager.cpp,
// ReadAndCacheNvLinkData). The numbers grew with the links of a GPU: six, six more, and two times
// three.
func laneSpec(id gpu.FieldID) (spec, bool) {
	counter, link := gpu.FieldID(0), gpu.FieldID(0)
	switch {
	case id <= catalog.NVLinkRecoveryErrorCountL14:
		counter, link = (id-catalog.NVLinkCRCFlitErrorCountL0)/10, (id-catalog.NVLinkCRCFlitErrorCountL0)%10
		if link == 9 {
			return spec{}, false // the sum of all links
		}
		if link >= 6 {
			link += 6
		}
	case id <= catalog.NVLinkRecoveryErrorCountL11:
		counter, link = (id-catalog.NVLinkCRCFlitErrorCountL6)/6, 6+(id-catalog.NVLinkCRCFlitErrorCountL6)%6
	case id <= catalog.NVLinkReplayErrorCountL17:
		counter, link = (id-catalog.NVLinkCRCFlitErrorCountL15)/3, 15+(id-catalog.NVLinkCRCFlitErrorCountL15)%3
	case id < catalog.NVLinkRecoveryErrorCountL15:
		return spec{}, false // no field has this number
	default:
		counter, link = 3, 15+(id-catalog.NVLinkRecoveryErrorCountL15)
	}
	order := [...]gonvml.NvLinkErrorCounter{
		gonvml.NVLINK_ERROR_DL_CRC_FLIT, gonvml.NVLINK_ERROR_DL_CRC_DATA, gonvml.NVLINK_ERROR_DL_REPLAY, gonvml.NVLINK_ERROR_DL_RECOVERY,
	}
	return spec{call: linkErrors(order[counter], int(link))}, true
}

var specs = map[gpu.FieldID]spec{
	catalog.DriverVersion:         {call: &driverVersion},
	catalog.NVMLVersion:           {call: &nvmlVersion},
	catalog.DeviceCount:           {call: &deviceCount},
	catalog.CUDADriverVersion:     {call: &cudaVersion},
	catalog.DeviceName:            {call: &deviceName},
	catalog.DeviceBrand:           {call: &brand},
	catalog.NVMLIndex:             {call: &nvmlIndex},
	catalog.DeviceSerial:          {call: &serial},
	catalog.DeviceUUID:            {call: &deviceUUID},
	catalog.MinorNumber:           {call: &minorNumber},
	catalog.OEMInfoROMVer:         {call: &inforomOEM},
	catalog.PCIBusID:              {call: &pciInfo, at: 0},
	catalog.PCICombinedID:         {call: &pciInfo, at: 1},
	catalog.PCISubsysID:           {call: &pciInfo, at: 2},
	catalog.CUDAComputeCapability: {call: &computeCapability},
	catalog.ComputeMode:           {call: &computeMode},
	catalog.PersistenceMode:       {call: &persistenceMode},
	catalog.MIGMode:               {call: &migMode},
	catalog.MIGMaxSlices:          {call: &migSlices},
	catalog.ECCInfoROMVer:         {call: &inforomECC},
	catalog.PowerInfoROMVer:       {call: &inforomPower},
	catalog.InfoROMImageVer:       {call: &inforomImage},
	catalog.VBIOSVersion:          {call: &vbios},
	catalog.BAR1Total:             {call: &bar1, at: 0, unit: catalog.Mebibytes},
	catalog.BAR1Used:              {call: &bar1, at: 1, unit: catalog.Mebibytes},
	catalog.BAR1Free:              {call: &bar1, at: 2, unit: catalog.Mebibytes},

	catalog.SMClock:            {call: &clockSM, unit: catalog.Megahertz},
	catalog.MemClock:           {call: &clockMemory, unit: catalog.Megahertz},
	catalog.VideoClock:         {call: &clockVideo, unit: catalog.Megahertz},
	catalog.AppSMClock:         {call: &clockAppSM, unit: catalog.Megahertz},
	catalog.AppMemClock:        {call: &clockAppMemory, unit: catalog.Megahertz},
	catalog.ClocksEventReasons: {call: &clockReasons},
	catalog.MaxSMClock:         {call: &clockMaxSM, unit: catalog.Megahertz},
	catalog.MaxMemClock:        {call: &clockMaxMemory, unit: catalog.Megahertz},
	catalog.MaxVideoClock:      {call: &clockMaxVideo, unit: catalog.Megahertz},

	// Drivers of the 545 series call the memory's temperature a double.
	catalog.MemoryTemp:   {value: gonvml.FI_DEV_MEMORY_TEMP, unit: catalog.Celsius, word: true},
	catalog.GPUTemp:      {call: &temperature, unit: catalog.Celsius},
	catalog.MemMaxOpTemp: {call: &temperatureMemoryMax, unit: catalog.Celsius},
	catalog.GPUMaxOpTemp: {call: &temperatureMax, unit: catalog.Celsius},
	catalog.GPUTempLimit: {call: &temperatureMargin, unit: catalog.Celsius},
	catalog.SlowdownTemp: {call: &temperatureSlowdown, unit: catalog.Celsius},
	catalog.ShutdownTemp: {call: &temperatureShutdown, unit: catalog.Celsius},

	catalog.PowerUsage:             {call: &power, unit: catalog.Watts},
	catalog.TotalEnergyConsumption: {value: gonvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION, unit: catalog.Millijoules},
	catalog.PowerUsageInstant:      {value: gonvml.FI_DEV_POWER_INSTANT, unit: catalog.Watts, milli: true, word: true},
	catalog.PowerMgmtLimit:         {call: &powerLimit, unit: catalog.Watts},
	catalog.PowerMgmtLimitMin:      {call: &powerLimits, at: 0, unit: catalog.Watts},
	catalog.PowerMgmtLimitMax:      {call: &powerLimits, at: 1, unit: catalog.Watts},
	catalog.PowerMgmtLimitDef:      {call: &powerLimitDefault, unit: catalog.Watts},
	catalog.EnforcedPowerLimit:     {call: &powerLimitEnforced, unit: catalog.Watts},

	catalog.DevicePstate:      {call: &performanceState},
	catalog.FanSpeed:          {call: &fanSpeed, unit: catalog.Percent},
	catalog.PCIeReplayCounter: {call: &pcieReplays},
	catalog.GPUUtil:           {call: &utilization, at: 0, unit: catalog.Percent},
	catalog.MemCopyUtil:       {call: &utilization, at: 1, unit: catalog.Percent},
	catalog.EncUtil:           {call: &encoderUtilization, unit: catalog.Percent},
	catalog.DecUtil:           {call: &decoderUtilization, unit: catalog.Percent},
	catalog.PCIeMaxLinkGen:    {call: &pcieMaxGeneration},
	catalog.PCIeMaxLinkWidth:  {call: &pcieMaxWidth},
	catalog.PCIeLinkGen:       {call: &pcieGeneration},
	catalog.PCIeLinkWidth:     {call: &pcieWidth},

	catalog.FBTotal:       {call: &memory, at: 0, unit: catalog.Mebibytes},
	catalog.FBFree:        {call: &memory, at: 1, unit: catalog.Mebibytes},
	catalog.FBUsed:        {call: &memory, at: 2, unit: catalog.Mebibytes},
	catalog.FBReserved:    {call: &memory, at: 3, unit: catalog.Mebibytes},
	catalog.FBUsedPercent: {call: &memory, at: 4, unit: catalog.Ratio},

	catalog.FabricManagerStatus:    {call: &fabric, at: 0},
	catalog.FabricManagerErrorCode: {call: &fabric, at: 1},
	catalog.FabricClusterUUID:      {call: &fabric, at: 2},
	catalog.FabricCliqueID:         {call: &fabric, at: 3},
	catalog.FabricHealthMask:       {call: &fabric, at: 4},
	catalog.FabricHealthSummary:    {call: &fabric, at: 5},

	catalog.C2CLinkCount:    {value: gonvml.FI_DEV_C2C_LINK_COUNT},
	catalog.C2CLinkStatus:   {value: gonvml.FI_DEV_C2C_LINK_GET_STATUS},
	catalog.C2CMaxBandwidth: {value: gonvml.FI_DEV_C2C_LINK_GET_MAX_BW, unit: catalog.MegabytesPerSecond},

	catalog.ECCCurrent:                 {value: gonvml.FI_DEV_ECC_CURRENT},
	catalog.ECCPending:                 {value: gonvml.FI_DEV_ECC_PENDING},
	catalog.ECCSBEVolSHM:               {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.VOLATILE_ECC, gonvml.MEMORY_LOCATION_TEXTURE_SHM)},
	catalog.ECCDBEVolSHM:               {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC, gonvml.MEMORY_LOCATION_TEXTURE_SHM)},
	catalog.ECCSBEVolCBU:               {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.VOLATILE_ECC, gonvml.MEMORY_LOCATION_CBU)},
	catalog.ECCDBEVolCBU:               {value: gonvml.FI_DEV_ECC_DBE_VOL_CBU},
	catalog.ECCSBEAggSHM:               {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.AGGREGATE_ECC, gonvml.MEMORY_LOCATION_TEXTURE_SHM)},
	catalog.ECCDBEAggSHM:               {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.AGGREGATE_ECC, gonvml.MEMORY_LOCATION_TEXTURE_SHM)},
	catalog.ECCSBEAggCBU:               {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.AGGREGATE_ECC, gonvml.MEMORY_LOCATION_CBU)},
	catalog.ECCDBEAggCBU:               {value: gonvml.FI_DEV_ECC_DBE_AGG_CBU},
	catalog.ECCSBEVolSRM:               {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.VOLATILE_ECC, gonvml.MEMORY_LOCATION_SRAM)},
	catalog.ECCDBEVolSRM:               {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC, gonvml.MEMORY_LOCATION_SRAM)},
	catalog.ECCSBEAggSRM:               {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.AGGREGATE_ECC, gonvml.MEMORY_LOCATION_SRAM)},
	catalog.ECCDBEAggSRM:               {call: memoryErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.AGGREGATE_ECC, gonvml.MEMORY_LOCATION_SRAM)},
	catalog.BanksRemapRowsAvailMax:     {call: &rowRemapper, at: 0},
	catalog.BanksRemapRowsAvailHigh:    {call: &rowRemapper, at: 1},
	catalog.BanksRemapRowsAvailPartial: {call: &rowRemapper, at: 2},
	catalog.BanksRemapRowsAvailLow:     {call: &rowRemapper, at: 3},
	catalog.BanksRemapRowsAvailNone:    {call: &rowRemapper, at: 4},
	catalog.UncorrectableRemappedRows:  {value: gonvml.FI_DEV_REMAPPED_UNC},
	catalog.CorrectableRemappedRows:    {value: gonvml.FI_DEV_REMAPPED_COR},
	catalog.RowRemapFailure:            {value: gonvml.FI_DEV_REMAPPED_FAILURE},
	catalog.RowRemapPending:            {value: gonvml.FI_DEV_REMAPPED_PENDING},

	catalog.NVLinkCRCFlitErrorCountTotal:  {value: gonvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL},
	catalog.NVLinkCRCDataErrorCountTotal:  {value: gonvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL},
	catalog.NVLinkReplayErrorCountTotal:   {value: gonvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL},
	catalog.NVLinkRecoveryErrorCountTotal: {value: gonvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL},
	catalog.NVLinkBandwidthTotal:          {link: true, scope: allLinks, unit: catalog.MegabytesPerSecond},

	catalog.VGPULicenseStatus: {call: &vgpuLicense},

	catalog.NVLinkPPRMOperRecovery:                      {call: &portState, at: 0, perLink: true},
	catalog.NVLinkPPCNTRecoveryTimeSinceLast:            {call: &portRecovery, at: 0, perLink: true, unit: catalog.Seconds},
	catalog.NVLinkPPCNTRecoveryTimeBetweenLastTwo:       {call: &portRecovery, at: 1, perLink: true, unit: catalog.Milliseconds},
	catalog.NVLinkPPCNTRecoveryTotalSuccessfulEvents:    {call: &portRecovery, at: 2, perLink: true},
	catalog.NVLinkPPCNTPhysicalSuccessfulRecoveryEvents: {call: &portPhysical, at: 0, perLink: true},
	catalog.NVLinkPPCNTPhysicalLinkDownCounter:          {call: &portPhysical, at: 1, perLink: true},

	catalog.NVLinkTXBandwidthTotal: {link: true, direction: sent, scope: allLinks, unit: catalog.MegabytesPerSecond},
	catalog.NVLinkRXBandwidthTotal: {link: true, direction: received, scope: allLinks, unit: catalog.MegabytesPerSecond},

	// Counters of NVLink 5 and later, over all links (DcgmCMUtils.cpp,
	// NvmlFieldRequiresNvLinkAggregate).
	catalog.NVLinkCountTXPackets:                    {value: gonvml.FI_DEV_NVLINK_COUNT_XMIT_PACKETS, scope: allLinks},
	catalog.NVLinkCountTXBytes:                      {value: gonvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES, scope: allLinks, unit: catalog.Bytes},
	catalog.NVLinkCountRXPackets:                    {value: gonvml.FI_DEV_NVLINK_COUNT_RCV_PACKETS, scope: allLinks},
	catalog.NVLinkCountRXBytes:                      {value: gonvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, scope: allLinks, unit: catalog.Bytes},
	catalog.NVLinkCountRXMalformedPacketErrors:      {value: gonvml.FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS, scope: allLinks},
	catalog.NVLinkCountRXBufferOverrunErrors:        {value: gonvml.FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS, scope: allLinks},
	catalog.NVLinkCountRXErrors:                     {value: gonvml.FI_DEV_NVLINK_COUNT_RCV_ERRORS, scope: allLinks},
	catalog.NVLinkCountRXRemoteErrors:               {value: gonvml.FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS, scope: allLinks},
	catalog.NVLinkCountRXGeneralErrors:              {value: gonvml.FI_DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS, scope: allLinks},
	catalog.NVLinkCountLocalLinkIntegrityErrors:     {value: gonvml.FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS, scope: allLinks},
	catalog.NVLinkCountTXDiscards:                   {value: gonvml.FI_DEV_NVLINK_COUNT_XMIT_DISCARDS, scope: allLinks},
	catalog.NVLinkCountLinkRecoverySuccessfulEvents: {value: gonvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS, scope: allLinks},
	catalog.NVLinkCountLinkRecoveryFailedEvents:     {value: gonvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS, scope: allLinks},
	catalog.NVLinkCountLinkRecoveryEvents:           {value: gonvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, scope: allLinks},
	catalog.NVLinkCountRXSymbolErrors:               {value: gonvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, scope: allLinks},
	catalog.NVLinkCountSymbolBER:                    {value: gonvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER, scope: allLinks},
	catalog.NVLinkCountSymbolBERFloat:               {value: gonvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER, scope: allLinks, ber: true, unit: catalog.Ratio},
	catalog.NVLinkCountEffectiveBER:                 {value: gonvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, scope: allLinks},
	catalog.NVLinkCountEffectiveBERFloat:            {value: gonvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, scope: allLinks, ber: true, unit: catalog.Ratio},
	catalog.NVLinkCountEffectiveErrors:              {value: gonvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, scope: allLinks},
	catalog.NVLinkECCDataErrorCountTotal:            {value: gonvml.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL},

	catalog.C2CLinkErrorIntr:      {value: gonvml.FI_DEV_C2C_LINK_ERROR_INTR},
	catalog.C2CLinkErrorReplay:    {value: gonvml.FI_DEV_C2C_LINK_ERROR_REPLAY},
	catalog.C2CLinkErrorReplayB2b: {value: gonvml.FI_DEV_C2C_LINK_ERROR_REPLAY_B2B},
	catalog.C2CLinkPowerState:     {value: gonvml.FI_DEV_C2C_LINK_POWER_STATE},

	catalog.ClocksEventReasonSwPowerCapNs:           {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, unit: catalog.Nanoseconds},
	catalog.ClocksEventReasonSyncBoostNs:            {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST, unit: catalog.Nanoseconds},
	catalog.ClocksEventReasonSwThermSlowdownNs:      {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, unit: catalog.Nanoseconds},
	catalog.ClocksEventReasonHwThermSlowdownNs:      {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, unit: catalog.Nanoseconds},
	catalog.ClocksEventReasonHwPowerBrakeSlowdownNs: {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, unit: catalog.Nanoseconds},

	catalog.PCIeCountCorrectableErrors: {value: gonvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS},
	catalog.MemoryUnrepairableFlag:     {call: &memoryUnrepairable},
	catalog.GetGPURecoveryAction:       {value: gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION},

	catalog.NVLinkGetState:                  {value: gonvml.FI_DEV_NVLINK_GET_STATE, perLink: true},
	catalog.NVLinkCRCFlitErrorPerLinkTotal:  {call: linkErrors(gonvml.NVLINK_ERROR_DL_CRC_FLIT, ownLink), perLink: true},
	catalog.NVLinkCRCDataErrorPerLinkTotal:  {call: linkErrors(gonvml.NVLINK_ERROR_DL_CRC_DATA, ownLink), perLink: true},
	catalog.NVLinkReplayErrorPerLinkTotal:   {call: linkErrors(gonvml.NVLINK_ERROR_DL_REPLAY, ownLink), perLink: true},
	catalog.NVLinkRecoveryErrorPerLinkTotal: {call: linkErrors(gonvml.NVLINK_ERROR_DL_RECOVERY, ownLink), perLink: true},
	catalog.NVLinkThroughputPerLink:         {link: true, perLink: true, unit: catalog.MegabytesPerSecond},
	catalog.NVLinkTXThroughputPerLink:       {link: true, direction: sent, perLink: true, unit: catalog.MegabytesPerSecond},
	catalog.NVLinkRXThroughputPerLink:       {link: true, direction: received, perLink: true, unit: catalog.MegabytesPerSecond},
	catalog.ProfNVLinkTXBytesPerLink:        {metric: gonvml.GPM_METRIC_NVLINK_L0_TX_PER_SEC, perLink: true, unit: catalog.BytesPerSecond},
	catalog.ProfNVLinkRXBytesPerLink:        {metric: gonvml.GPM_METRIC_NVLINK_L0_RX_PER_SEC, perLink: true, unit: catalog.BytesPerSecond},

	// The numbers are those of dcgm_fields.h; nvml.h has its own for the same hardware counters.
	catalog.ProfGREngineActive:       {metric: gonvml.GPM_METRIC_GRAPHICS_UTIL, unit: catalog.Ratio},
	catalog.ProfSMActive:             {metric: gonvml.GPM_METRIC_SM_UTIL, unit: catalog.Ratio},
	catalog.ProfSMOccupancy:          {metric: gonvml.GPM_METRIC_SM_OCCUPANCY, unit: catalog.Ratio},
	catalog.ProfPipeTensorActive:     {metric: gonvml.GPM_METRIC_ANY_TENSOR_UTIL, unit: catalog.Ratio},
	catalog.ProfDRAMActive:           {metric: gonvml.GPM_METRIC_DRAM_BW_UTIL, unit: catalog.Ratio},
	catalog.ProfPipeFP64Active:       {metric: gonvml.GPM_METRIC_FP64_UTIL, unit: catalog.Ratio},
	catalog.ProfPipeFP32Active:       {metric: gonvml.GPM_METRIC_FP32_UTIL, unit: catalog.Ratio},
	catalog.ProfPipeFP16Active:       {metric: gonvml.GPM_METRIC_FP16_UTIL, unit: catalog.Ratio},
	catalog.ProfPCIeTXBytes:          {metric: gonvml.GPM_METRIC_PCIE_TX_PER_SEC, unit: catalog.BytesPerSecond},
	catalog.ProfPCIeRXBytes:          {metric: gonvml.GPM_METRIC_PCIE_RX_PER_SEC, unit: catalog.BytesPerSecond},
	catalog.ProfNVLinkTXBytes:        {metric: gonvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, unit: catalog.BytesPerSecond},
	catalog.ProfNVLinkRXBytes:        {metric: gonvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, unit: catalog.BytesPerSecond},
	catalog.ProfPipeTensorIMMAActive: {metric: gonvml.GPM_METRIC_IMMA_TENSOR_UTIL, unit: catalog.Ratio},
	catalog.ProfPipeTensorHMMAActive: {metric: gonvml.GPM_METRIC_HMMA_TENSOR_UTIL, unit: catalog.Ratio},
	catalog.ProfPipeTensorDFMAActive: {metric: gonvml.GPM_METRIC_DFMA_TENSOR_UTIL, unit: catalog.Ratio},
	catalog.ProfPipeIntActive:        {metric: gonvml.GPM_METRIC_INTEGER_UTIL, unit: catalog.Ratio},
}
