//go:build linux && cgo

package nvml

import (
	"math"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A spec says where the values of a field come from: an answer of a call, an NVML field value, the data counters of the
// links, or GPM.
type spec struct {
	unit gpu.Unit

	call *call
	at   int // index of the answer

	value uint32 // NVML_FI_DEV_* ID
	ber   bool   // the value is a packed bit error rate (NVML_NVLINK_BER_*, nvml.h)
	word  bool   // read the value as unsigned int, whatever type the driver reports

	link bool // rate of the links' data counters

	scope uint32 // link of the value or rate, or allLinks; 0 for values of the GPU

	metric gonvml.GpmMetricId
}

// allLinks is the scope that sums over all links of a GPU (NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.h).
const allLinks = math.MaxUint32

// specOf returns the source of a DCGM field's values. It returns false for fields that are declined.
func specOf(id gpu.FieldID) (spec, bool) {
	if s, ok := specs[id]; ok {
		return s, true
	}
	for _, r := range ranges {
		if id < r.first || id > r.last {
			continue
		}
		s, n := r.spec, uint32(id-r.first)
		switch {
		case s.link:
			s.scope += n
		case s.value != 0:
			s.value += n
		default:
			s.metric += gonvml.GpmMetricId(n)
		}
		return s, true
	}
	return spec{}, false
}

// byLink reports whether a field is read for each link. NVML has such fields by link and summed over all links.
func byLink(f *gpu.Field) bool {
	s, ok := specOf(f.ID)
	return ok && f.Levels.Has(gpu.KindNVLink) && s.value != 0 && s.scope == allLinks
}

// ranges lists consecutive fields that are consecutive in NVML too. The spec is that of the first field.
var ranges = []struct {
	first, last gpu.FieldID
	spec        spec
}{
	{catalog.PowerViolation, catalog.TotalBaseClocksViolation, spec{unit: catalog.Nanoseconds, value: gonvml.FI_DEV_PERF_POLICY_POWER}},
	{catalog.ECCSBEVolTotal, catalog.ECCDBEAggTotal, spec{value: gonvml.FI_DEV_ECC_SBE_VOL_TOTAL}},
	{catalog.ECCSBEVolL1, catalog.ECCDBEVolTex, spec{value: gonvml.FI_DEV_ECC_SBE_VOL_L1}},
	{catalog.ECCSBEAggL1, catalog.ECCDBEAggTex, spec{value: gonvml.FI_DEV_ECC_SBE_AGG_L1}},
	{catalog.RetiredSBE, catalog.RetiredPending, spec{value: gonvml.FI_DEV_RETIRED_SBE}},
	{catalog.NVLinkBandwidthL0, catalog.NVLinkBandwidthL5, spec{unit: catalog.MegabytesPerSecond, link: true}},
	{catalog.NVLinkBandwidthL6, catalog.NVLinkBandwidthL11, spec{unit: catalog.MegabytesPerSecond, link: true, scope: 6}},
	{catalog.NVLinkBandwidthL12, catalog.NVLinkBandwidthL14, spec{unit: catalog.MegabytesPerSecond, link: true, scope: 12}},
	{catalog.NVLinkBandwidthL15, catalog.NVLinkBandwidthL17, spec{unit: catalog.MegabytesPerSecond, link: true, scope: 15}},
	{catalog.ProfNvdec0Active, catalog.ProfNvdec7Active, spec{unit: catalog.Ratio, metric: gonvml.GPM_METRIC_NVDEC_0_UTIL}},
	{catalog.ProfNvjpg0Active, catalog.ProfNvjpg7Active, spec{unit: catalog.Ratio, metric: gonvml.GPM_METRIC_NVJPG_0_UTIL}},
	{catalog.ProfNvofa0Active, catalog.ProfNvofa1Active, spec{unit: catalog.Ratio, metric: gonvml.GPM_METRIC_NVOFA_0_UTIL}},
}

var specs = map[gpu.FieldID]spec{
	catalog.DriverVersion:   {call: version("nvmlSystemGetDriverVersion", gonvml.Interface.SystemGetDriverVersion)},
	catalog.NVMLVersion:     {call: version("nvmlSystemGetNVMLVersion", gonvml.Interface.SystemGetNVMLVersion)},
	catalog.DeviceName:      {call: constantText("nvmlDeviceGetName", gonvml.Device.GetName)},
	catalog.DeviceBrand:     {call: brand},
	catalog.DeviceSerial:    {call: constantText("nvmlDeviceGetSerial", gonvml.Device.GetSerial)},
	catalog.DeviceUUID:      {call: constantText("nvmlDeviceGetUUID", gonvml.Device.GetUUID)},
	catalog.MinorNumber:     {call: number("nvmlDeviceGetMinorNumber", gonvml.Device.GetMinorNumber)},
	catalog.OEMInfoROMVer:   {call: inforom(gonvml.INFOROM_OEM)},
	catalog.PersistenceMode: {call: number("nvmlDeviceGetPersistenceMode", gonvml.Device.GetPersistenceMode)},
	catalog.MIGMaxSlices:    {call: migSlices},
	catalog.ECCInfoROMVer:   {call: inforom(gonvml.INFOROM_ECC)},
	catalog.PowerInfoROMVer: {call: inforom(gonvml.INFOROM_POWER)},
	catalog.InfoROMImageVer: {call: constantText("nvmlDeviceGetInforomImageVersion", gonvml.Device.GetInforomImageVersion)},
	catalog.VBIOSVersion:    {call: constantText("nvmlDeviceGetVbiosVersion", gonvml.Device.GetVbiosVersion)},

	catalog.SMClock:            {call: clock(gonvml.CLOCK_SM), unit: catalog.Megahertz},
	catalog.MemClock:           {call: clock(gonvml.CLOCK_MEM), unit: catalog.Megahertz},
	catalog.VideoClock:         {call: clock(gonvml.CLOCK_VIDEO), unit: catalog.Megahertz},
	catalog.AppSMClock:         {call: appClock(gonvml.CLOCK_GRAPHICS), unit: catalog.Megahertz},
	catalog.AppMemClock:        {call: appClock(gonvml.CLOCK_MEM), unit: catalog.Megahertz},
	catalog.ClocksEventReasons: {call: number("nvmlDeviceGetCurrentClocksThrottleReasons", gonvml.Device.GetCurrentClocksThrottleReasons)},
	catalog.MaxSMClock:         {call: maxClock(gonvml.CLOCK_SM), unit: catalog.Megahertz},
	catalog.MaxMemClock:        {call: maxClock(gonvml.CLOCK_MEM), unit: catalog.Megahertz},
	catalog.MaxVideoClock:      {call: maxClock(gonvml.CLOCK_VIDEO), unit: catalog.Megahertz},

	// Drivers of the 545 series report the memory temperature as a double.
	catalog.MemoryTemp:   {value: gonvml.FI_DEV_MEMORY_TEMP, unit: catalog.Celsius, word: true},
	catalog.GPUTemp:      {call: temperature, unit: catalog.Celsius},
	catalog.MemMaxOpTemp: {call: threshold(gonvml.TEMPERATURE_THRESHOLD_MEM_MAX), unit: catalog.Celsius},
	catalog.GPUMaxOpTemp: {call: threshold(gonvml.TEMPERATURE_THRESHOLD_GPU_MAX), unit: catalog.Celsius},
	catalog.SlowdownTemp: {call: threshold(gonvml.TEMPERATURE_THRESHOLD_SLOWDOWN), unit: catalog.Celsius},
	catalog.ShutdownTemp: {call: threshold(gonvml.TEMPERATURE_THRESHOLD_SHUTDOWN), unit: catalog.Celsius},

	catalog.PowerUsage:             {call: power, unit: catalog.Watts},
	catalog.TotalEnergyConsumption: {value: gonvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION, unit: catalog.Millijoules},
	catalog.PowerMgmtLimit:         {call: wholeWatts("nvmlDeviceGetPowerManagementLimit", gonvml.Device.GetPowerManagementLimit), unit: catalog.Watts},
	catalog.PowerMgmtLimitDef:      {call: wholeWatts("nvmlDeviceGetPowerManagementDefaultLimit", gonvml.Device.GetPowerManagementDefaultLimit), unit: catalog.Watts},
	catalog.EnforcedPowerLimit:     {call: wholeWatts("nvmlDeviceGetEnforcedPowerLimit", gonvml.Device.GetEnforcedPowerLimit), unit: catalog.Watts},

	catalog.DevicePstate:      {call: number("nvmlDeviceGetPerformanceState", gonvml.Device.GetPerformanceState)},
	catalog.FanSpeed:          {call: number("nvmlDeviceGetFanSpeed", gonvml.Device.GetFanSpeed), unit: catalog.Percent},
	catalog.PCIeReplayCounter: {call: number("nvmlDeviceGetPcieReplayCounter", gonvml.Device.GetPcieReplayCounter)},
	catalog.GPUUtil:           {call: utilization, at: 0, unit: catalog.Percent},
	catalog.MemCopyUtil:       {call: utilization, at: 1, unit: catalog.Percent},
	catalog.EncUtil:           {call: codec("nvmlDeviceGetEncoderUtilization", gonvml.Device.GetEncoderUtilization), unit: catalog.Percent},
	catalog.DecUtil:           {call: codec("nvmlDeviceGetDecoderUtilization", gonvml.Device.GetDecoderUtilization), unit: catalog.Percent},
	catalog.PCIeMaxLinkGen:    {call: number("nvmlDeviceGetMaxPcieLinkGeneration", gonvml.Device.GetMaxPcieLinkGeneration)},
	catalog.PCIeMaxLinkWidth:  {call: number("nvmlDeviceGetMaxPcieLinkWidth", gonvml.Device.GetMaxPcieLinkWidth)},
	catalog.PCIeLinkGen:       {call: number("nvmlDeviceGetCurrPcieLinkGeneration", gonvml.Device.GetCurrPcieLinkGeneration)},
	catalog.PCIeLinkWidth:     {call: number("nvmlDeviceGetCurrPcieLinkWidth", gonvml.Device.GetCurrPcieLinkWidth)},

	catalog.FBTotal:       {call: memory, at: 0, unit: catalog.Mebibytes},
	catalog.FBFree:        {call: memory, at: 1, unit: catalog.Mebibytes},
	catalog.FBUsed:        {call: memory, at: 2, unit: catalog.Mebibytes},
	catalog.FBReserved:    {call: memory, at: 3, unit: catalog.Mebibytes},
	catalog.FBUsedPercent: {call: memory, at: 4, unit: catalog.Ratio},

	catalog.FabricManagerStatus:    {call: fabric, at: 0},
	catalog.FabricManagerErrorCode: {call: fabric, at: 1},
	catalog.FabricClusterUUID:      {call: fabric, at: 2},
	catalog.FabricCliqueID:         {call: fabric, at: 3},
	catalog.FabricHealthMask:       {call: fabric, at: 4},
	catalog.FabricHealthSummary:    {call: fabric, at: 5},

	catalog.C2CLinkCount:    {value: gonvml.FI_DEV_C2C_LINK_COUNT},
	catalog.C2CLinkStatus:   {value: gonvml.FI_DEV_C2C_LINK_GET_STATUS},
	catalog.C2CMaxBandwidth: {value: gonvml.FI_DEV_C2C_LINK_GET_MAX_BW, unit: catalog.MegabytesPerSecond},

	catalog.ECCCurrent:                {value: gonvml.FI_DEV_ECC_CURRENT},
	catalog.ECCPending:                {value: gonvml.FI_DEV_ECC_PENDING},
	catalog.ECCDBEVolCBU:              {value: gonvml.FI_DEV_ECC_DBE_VOL_CBU},
	catalog.ECCDBEAggCBU:              {value: gonvml.FI_DEV_ECC_DBE_AGG_CBU},
	catalog.UncorrectableRemappedRows: {value: gonvml.FI_DEV_REMAPPED_UNC},
	catalog.CorrectableRemappedRows:   {value: gonvml.FI_DEV_REMAPPED_COR},
	catalog.RowRemapFailure:           {value: gonvml.FI_DEV_REMAPPED_FAILURE},
	catalog.RowRemapPending:           {value: gonvml.FI_DEV_REMAPPED_PENDING},

	catalog.NVLinkCRCFlitErrorCountTotal:  {value: gonvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL},
	catalog.NVLinkCRCDataErrorCountTotal:  {value: gonvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL},
	catalog.NVLinkReplayErrorCountTotal:   {value: gonvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL},
	catalog.NVLinkRecoveryErrorCountTotal: {value: gonvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL},
	catalog.NVLinkBandwidthTotal:          {link: true, scope: allLinks, unit: catalog.MegabytesPerSecond},

	catalog.VGPULicenseStatus: {call: vgpuLicense},

	// Counters of NVLink 5 and later, summed over all links (NvmlFieldRequiresNvLinkAggregate, DcgmCMUtils.cpp).
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

	catalog.ClocksEventReasonSwPowerCapNs: {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, unit: catalog.Nanoseconds},
	catalog.ClocksEventReasonSyncBoostNs:  {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST, unit: catalog.Nanoseconds},

	catalog.PCIeCountCorrectableErrors: {value: gonvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS},
	catalog.GetGPURecoveryAction:       {value: gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION},

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
