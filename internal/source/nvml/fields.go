//go:build linux && cgo

package nvml

import (
	"math"
	"slices"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A spec says where the values of a field come from: an answer of a call, an NVML field value, the data counters of the
// links, or GPM.
type spec struct {
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

// specOf returns the source of a DCGM field's values. Their unit is the catalog's. It returns false for fields that are
// declined.
func specOf(id gpu.FieldID) (spec, bool) {
	if c, ok := calls[id]; ok {
		return spec{call: c}, true
	}
	if s, ok := specs[id]; ok {
		return s, true
	}
	for _, r := range ranges {
		if id < r.first || id > r.last {
			continue
		}
		s, n := r.spec, uint32(id-r.first)
		switch {
		case s.call != nil:
			s.at += int(n)
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

// Reads reports whether this source can read every field of a plan, if driver and hardware support them.
func Reads(p *gpu.Plan) bool {
	return p.Health == 0 && !slices.ContainsFunc(p.Fields, func(f gpu.Field) bool { // NVML has peers and placement
		_, ok := specOf(f.ID)
		entry, _ := catalog.ByID(f.ID)
		return (!ok || entry.Unit != f.Unit) && f.ID != catalog.XIDErrors
	})
}

// ranges lists consecutive fields that are consecutive in NVML too. The spec is that of the first field.
var ranges = []struct {
	first, last gpu.FieldID
	spec        spec
}{
	{catalog.GPUUtil, catalog.MemCopyUtil, spec{call: utilization}},
	{catalog.FBTotal, catalog.FBUsedPercent, spec{call: memory}},
	{catalog.FabricManagerStatus, catalog.FabricHealthSummary, spec{call: fabric}},
	{catalog.PowerViolation, catalog.TotalBaseClocksViolation, spec{value: gonvml.FI_DEV_PERF_POLICY_POWER}},
	{catalog.C2CLinkCount, catalog.C2CMaxBandwidth, spec{value: gonvml.FI_DEV_C2C_LINK_COUNT}},
	{catalog.ECCCurrent, catalog.ECCPending, spec{value: gonvml.FI_DEV_ECC_CURRENT}},
	{catalog.ECCSBEVolTotal, catalog.ECCDBEAggTotal, spec{value: gonvml.FI_DEV_ECC_SBE_VOL_TOTAL}},
	{catalog.ECCSBEVolL1, catalog.ECCDBEVolTex, spec{value: gonvml.FI_DEV_ECC_SBE_VOL_L1}},
	{catalog.ECCSBEAggL1, catalog.ECCDBEAggTex, spec{value: gonvml.FI_DEV_ECC_SBE_AGG_L1}},
	{catalog.RetiredSBE, catalog.RetiredPending, spec{value: gonvml.FI_DEV_RETIRED_SBE}},
	{catalog.NVLinkBandwidthL0, catalog.NVLinkBandwidthL5, spec{link: true}},
	{catalog.NVLinkBandwidthL6, catalog.NVLinkBandwidthL11, spec{link: true, scope: 6}},
	{catalog.NVLinkBandwidthL12, catalog.NVLinkBandwidthL14, spec{link: true, scope: 12}},
	{catalog.NVLinkBandwidthL15, catalog.NVLinkBandwidthL17, spec{link: true, scope: 15}},
	{catalog.ProfGREngineActive, catalog.ProfSMOccupancy, spec{metric: gonvml.GPM_METRIC_GRAPHICS_UTIL}},
	{catalog.ProfDRAMActive, catalog.ProfPipeFP16Active, spec{metric: gonvml.GPM_METRIC_DRAM_BW_UTIL}},
	{catalog.ProfPCIeTXBytes, catalog.ProfPCIeRXBytes, spec{metric: gonvml.GPM_METRIC_PCIE_TX_PER_SEC}},
	{catalog.ProfNvdec0Active, catalog.ProfNvdec7Active, spec{metric: gonvml.GPM_METRIC_NVDEC_0_UTIL}},
	{catalog.ProfNvjpg0Active, catalog.ProfNvjpg7Active, spec{metric: gonvml.GPM_METRIC_NVJPG_0_UTIL}},
	{catalog.ProfNvofa0Active, catalog.ProfNvofa1Active, spec{metric: gonvml.GPM_METRIC_NVOFA_0_UTIL}},
	// Counters of NVLink 5 and later, summed over all links (NvmlFieldRequiresNvLinkAggregate, DcgmCMUtils.cpp).
	{catalog.NVLinkCountTXPackets, catalog.NVLinkCountRXBytes,
		spec{value: gonvml.FI_DEV_NVLINK_COUNT_XMIT_PACKETS, scope: allLinks}},
	{catalog.NVLinkCountRXMalformedPacketErrors, catalog.NVLinkCountLinkRecoveryEvents,
		spec{value: gonvml.FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS, scope: allLinks}},
	{catalog.C2CLinkErrorIntr, catalog.C2CLinkPowerState, spec{value: gonvml.FI_DEV_C2C_LINK_ERROR_INTR}},
}

// calls lists the fields that are the only answer of a call.
var calls = map[gpu.FieldID]*call{
	catalog.DriverVersion:   version("nvmlSystemGetDriverVersion", gonvml.Interface.SystemGetDriverVersion),
	catalog.NVMLVersion:     version("nvmlSystemGetNVMLVersion", gonvml.Interface.SystemGetNVMLVersion),
	catalog.DeviceName:      constantText("Name", gonvml.Device.GetName),
	catalog.DeviceBrand:     brand,
	catalog.DeviceSerial:    constantText("Serial", gonvml.Device.GetSerial),
	catalog.DeviceUUID:      constantText("UUID", gonvml.Device.GetUUID),
	catalog.MinorNumber:     number("MinorNumber", gonvml.Device.GetMinorNumber),
	catalog.OEMInfoROMVer:   inforom(gonvml.INFOROM_OEM),
	catalog.PersistenceMode: number("PersistenceMode", gonvml.Device.GetPersistenceMode),
	catalog.MIGMaxSlices:    migSlices,
	catalog.ECCInfoROMVer:   inforom(gonvml.INFOROM_ECC),
	catalog.PowerInfoROMVer: inforom(gonvml.INFOROM_POWER),
	catalog.InfoROMImageVer: constantText("InforomImageVersion", gonvml.Device.GetInforomImageVersion),
	catalog.VBIOSVersion:    constantText("VbiosVersion", gonvml.Device.GetVbiosVersion),
	catalog.SMClock:         numberFor("ClockInfo", gonvml.Device.GetClockInfo, gonvml.CLOCK_SM),
	catalog.MemClock:        numberFor("ClockInfo", gonvml.Device.GetClockInfo, gonvml.CLOCK_MEM),
	catalog.VideoClock:      numberFor("ClockInfo", gonvml.Device.GetClockInfo, gonvml.CLOCK_VIDEO),
	catalog.AppSMClock:      numberFor("ApplicationsClock", gonvml.Device.GetApplicationsClock, gonvml.CLOCK_GRAPHICS),
	catalog.AppMemClock:     numberFor("ApplicationsClock", gonvml.Device.GetApplicationsClock, gonvml.CLOCK_MEM),
	catalog.MaxSMClock:      numberFor("MaxClockInfo", gonvml.Device.GetMaxClockInfo, gonvml.CLOCK_SM),
	catalog.MaxMemClock:     numberFor("MaxClockInfo", gonvml.Device.GetMaxClockInfo, gonvml.CLOCK_MEM),
	catalog.MaxVideoClock:   numberFor("MaxClockInfo", gonvml.Device.GetMaxClockInfo, gonvml.CLOCK_VIDEO),

	catalog.ClocksEventReasons: number("CurrentClocksThrottleReasons", gonvml.Device.GetCurrentClocksThrottleReasons),
	catalog.GPUTemp:            temperature,
	catalog.MemMaxOpTemp:       threshold(gonvml.TEMPERATURE_THRESHOLD_MEM_MAX),
	catalog.GPUMaxOpTemp:       threshold(gonvml.TEMPERATURE_THRESHOLD_GPU_MAX),
	catalog.SlowdownTemp:       threshold(gonvml.TEMPERATURE_THRESHOLD_SLOWDOWN),
	catalog.ShutdownTemp:       threshold(gonvml.TEMPERATURE_THRESHOLD_SHUTDOWN),
	catalog.PowerUsage:         power,
	catalog.PowerMgmtLimit:     watts("PowerManagementLimit", gonvml.Device.GetPowerManagementLimit),
	catalog.PowerMgmtLimitDef:  watts("PowerManagementDefaultLimit", gonvml.Device.GetPowerManagementDefaultLimit),
	catalog.EnforcedPowerLimit: watts("EnforcedPowerLimit", gonvml.Device.GetEnforcedPowerLimit),
	catalog.DevicePstate:       number("PerformanceState", gonvml.Device.GetPerformanceState),
	catalog.FanSpeed:           number("FanSpeed", gonvml.Device.GetFanSpeed),
	catalog.PCIeReplayCounter:  number("PcieReplayCounter", gonvml.Device.GetPcieReplayCounter),
	catalog.EncUtil:            codec("EncoderUtilization", gonvml.Device.GetEncoderUtilization),
	catalog.DecUtil:            codec("DecoderUtilization", gonvml.Device.GetDecoderUtilization),
	catalog.PCIeMaxLinkGen:     number("MaxPcieLinkGeneration", gonvml.Device.GetMaxPcieLinkGeneration),
	catalog.PCIeMaxLinkWidth:   number("MaxPcieLinkWidth", gonvml.Device.GetMaxPcieLinkWidth),
	catalog.PCIeLinkGen:        number("CurrPcieLinkGeneration", gonvml.Device.GetCurrPcieLinkGeneration),
	catalog.PCIeLinkWidth:      number("CurrPcieLinkWidth", gonvml.Device.GetCurrPcieLinkWidth),
	catalog.VGPULicenseStatus:  vgpuLicense,
}

// specs lists the other fields that are in no range.
var specs = map[gpu.FieldID]spec{
	// Drivers of the 545 series report the memory temperature as a double.
	catalog.MemoryTemp:                    {value: gonvml.FI_DEV_MEMORY_TEMP, word: true},
	catalog.TotalEnergyConsumption:        {value: gonvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION},
	catalog.ECCDBEVolCBU:                  {value: gonvml.FI_DEV_ECC_DBE_VOL_CBU},
	catalog.ECCDBEAggCBU:                  {value: gonvml.FI_DEV_ECC_DBE_AGG_CBU},
	catalog.UncorrectableRemappedRows:     {value: gonvml.FI_DEV_REMAPPED_UNC},
	catalog.CorrectableRemappedRows:       {value: gonvml.FI_DEV_REMAPPED_COR},
	catalog.RowRemapFailure:               {value: gonvml.FI_DEV_REMAPPED_FAILURE},
	catalog.RowRemapPending:               {value: gonvml.FI_DEV_REMAPPED_PENDING},
	catalog.NVLinkCRCFlitErrorCountTotal:  {value: gonvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL},
	catalog.NVLinkCRCDataErrorCountTotal:  {value: gonvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL},
	catalog.NVLinkReplayErrorCountTotal:   {value: gonvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL},
	catalog.NVLinkRecoveryErrorCountTotal: {value: gonvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL},
	catalog.NVLinkBandwidthTotal:          {link: true, scope: allLinks},

	catalog.NVLinkCountRXSymbolErrors:    {value: gonvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, scope: allLinks},
	catalog.NVLinkCountSymbolBER:         {value: gonvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER, scope: allLinks},
	catalog.NVLinkCountSymbolBERFloat:    {value: gonvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER, scope: allLinks, ber: true},
	catalog.NVLinkCountEffectiveBER:      {value: gonvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, scope: allLinks},
	catalog.NVLinkCountEffectiveBERFloat: {value: gonvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, scope: allLinks, ber: true},
	catalog.NVLinkCountEffectiveErrors:   {value: gonvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, scope: allLinks},

	catalog.NVLinkECCDataErrorCountTotal:  {value: gonvml.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL},
	catalog.ClocksEventReasonSwPowerCapNs: {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP},
	catalog.ClocksEventReasonSyncBoostNs:  {value: gonvml.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST},
	catalog.PCIeCountCorrectableErrors:    {value: gonvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS},
	catalog.GetGPURecoveryAction:          {value: gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION},
	catalog.ProfPipeTensorActive:          {metric: gonvml.GPM_METRIC_ANY_TENSOR_UTIL},
	catalog.ProfNVLinkTXBytes:             {metric: gonvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC},
	catalog.ProfNVLinkRXBytes:             {metric: gonvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC},
	catalog.ProfPipeTensorIMMAActive:      {metric: gonvml.GPM_METRIC_IMMA_TENSOR_UTIL},
	catalog.ProfPipeTensorHMMAActive:      {metric: gonvml.GPM_METRIC_HMMA_TENSOR_UTIL},
	catalog.ProfPipeTensorDFMAActive:      {metric: gonvml.GPM_METRIC_DFMA_TENSOR_UTIL},
	catalog.ProfPipeIntActive:             {metric: gonvml.GPM_METRIC_INTEGER_UTIL},
}
