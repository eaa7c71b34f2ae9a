//go:build linux && cgo

package nvml

import (
	"encoding/hex"
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

// calls maps each field that is the only answer of a call to that call.
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

// A target is the entity that a call queries.
type target struct {
	api    gonvml.Interface
	device gonvml.Device // the GPU, or the MIG device of an instance
	parent gonvml.Device // the GPU
	// pastReserved means that the driver reports reserved memory separately from used memory.
	pastReserved bool
}

// answers holds the values of one call. A value that the call did not return is absent.
type answers [6]gpu.Value

// A call is a query of the driver. Several fields can use its answers, so it is made only once per Read.
type call struct {
	// symbols lists the versions of the function. One of them must exist.
	symbols []string
	read    func(*target, *answers) gonvml.Return
	// constant means that the answers hold for a session, so the call is made only once.
	constant bool
	// instance means that the call works for the MIG device of a GPU instance. Other calls only work for whole GPUs.
	instance bool
	// whole means that the answer is undefined for a GPU that MIG partitions.
	whole bool
}

const mebibyte = 1 << 20

// valueCall returns a call of nvmlDeviceGet<name>, whose only result converts to a value.
func valueCall[T any](name string, get func(gonvml.Device) (T, gonvml.Return), convert func(T) gpu.Value) *call {
	return &call{symbols: []string{"nvmlDeviceGet" + name}, read: func(t *target, a *answers) gonvml.Return {
		x, ret := get(t.device)
		a[0] = convert(x)
		return ret
	}}
}

// number returns a call of a function that returns one number.
func number[N int | uint32 | uint64 | gonvml.Pstates | gonvml.EnableState](
	name string, get func(gonvml.Device) (N, gonvml.Return),
) *call {
	return valueCall(name, get, func(n N) gpu.Value { return gpu.Int(int64(n)) })
}

// numberFor returns a call of a function that returns one number for an argument.
func numberFor[A any](name string, get func(gonvml.Device, A) (uint32, gonvml.Return), arg A) *call {
	return number(name, func(d gonvml.Device) (uint32, gonvml.Return) { return get(d, arg) })
}

func threshold(kind gonvml.TemperatureThresholds) *call {
	return numberFor("TemperatureThreshold", gonvml.Device.GetTemperatureThreshold, kind)
}

// constantText returns a call of a function that returns a string about a GPU. The string does not change while the
// driver is loaded.
func constantText(name string, get func(gonvml.Device) (string, gonvml.Return)) *call {
	c := valueCall(name, get, gpu.Text)
	c.constant = true
	return c
}

func inforom(object gonvml.InforomObject) *call {
	return constantText("InforomVersion", func(d gonvml.Device) (string, gonvml.Return) {
		return d.GetInforomVersion(object)
	})
}

// version returns a call of a function that returns a version of the machine's software.
func version(symbol string, get func(gonvml.Interface) (string, gonvml.Return)) *call {
	return &call{symbols: []string{symbol}, constant: true, instance: true,
		read: func(t *target, a *answers) gonvml.Return {
			s, ret := get(t.api)
			a[0] = gpu.Text(s)
			return ret
		}}
}

// watts returns a call of a function that returns milliwatts. Like DCGM, it rounds them down to watts
// (DcgmCacheManager.cpp divides integers).
func watts(name string, get func(gonvml.Device) (uint32, gonvml.Return)) *call {
	return valueCall(name, get, func(mw uint32) gpu.Value { return gpu.Float(float64(mw / 1000)) })
}

// codec returns a call for the utilization of the encoders or decoders.
func codec(name string, get func(gonvml.Device) (uint32, uint32, gonvml.Return)) *call {
	c := number(name, func(d gonvml.Device) (uint32, gonvml.Return) {
		percent, _, ret := get(d)
		return percent, ret
	})
	c.whole = true
	return c
}

// Calls that several fields share, or that do more than read a number.
var (
	temperature = numberFor("Temperature", gonvml.Device.GetTemperature, gonvml.TEMPERATURE_GPU)
	brand       = constantText("Brand", func(d gonvml.Device) (string, gonvml.Return) {
		b, ret := d.GetBrand()
		if int(b) >= len(brands) {
			b = gonvml.BRAND_UNKNOWN
		}
		return brands[b], ret
	})
	// DCGM reports the maximum number of MIG devices of a GPU in MIG mode as its slices. For other GPUs, the driver
	// returns 0 and DCGM reports nothing.
	migSlices = valueCall("MaxMigDeviceCount", gonvml.Device.GetMaxMigDeviceCount, func(n int) gpu.Value {
		if n > 0 {
			return gpu.Int(int64(n))
		}
		return gpu.Value{}
	})
	power = valueCall("PowerUsage", gonvml.Device.GetPowerUsage, func(mw uint32) gpu.Value {
		return gpu.Float(float64(mw) / 1000)
	})
	utilization = &call{symbols: []string{"nvmlDeviceGetUtilizationRates"}, whole: true,
		read: func(t *target, a *answers) gonvml.Return {
			u, ret := t.device.GetUtilizationRates()
			a[0], a[1] = gpu.Int(int64(u.Gpu)), gpu.Int(int64(u.Memory))
			return ret
		}}
	memory = &call{symbols: []string{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"}, instance: true,
		read: readMemory}
	fabric = &call{symbols: []string{"nvmlDeviceGetGpuFabricInfoV"}, read: readFabric}
	// Older versions of the function use another struct layout than go-nvml.
	vgpuLicense = &call{symbols: []string{"nvmlDeviceGetGridLicensableFeatures_v4"}, read: readLicense}
)

// readMemory returns total, free, used and reserved memory in MiB, rounded down, and the used fraction of the memory
// that is not reserved. Used memory excludes reserved memory. The first version of the struct does not separate them;
// used and reserved are then absent.
func readMemory(t *target, a *answers) gonvml.Return {
	mib := func(bytes uint64) gpu.Value { return gpu.Int(int64(bytes / mebibyte)) }
	if !t.pastReserved {
		m, ret := t.device.GetMemoryInfo()
		a[0], a[1] = mib(m.Total), mib(m.Free)
		return ret
	}
	m, ret := t.device.GetMemoryInfo_v2()
	a[0], a[1], a[2], a[3] = mib(m.Total), mib(m.Free), mib(m.Used), mib(m.Reserved)
	if m.Total > m.Reserved {
		a[4] = gpu.Float(float64(m.Used) / float64(m.Total-m.Reserved))
	}
	return ret
}

// readLicense returns 1 if the vGPU is licensed, and 0 if it is not or needs no license, as DCGM does.
func readLicense(t *target, a *answers) gonvml.Return {
	f, ret := t.device.GetGridLicensableFeatures()
	features := f.GridLicensableFeatures[:min(int(f.LicensableFeaturesCount), len(f.GridLicensableFeatures))]
	for i := range features {
		if features[i].FeatureCode == uint32(gonvml.GRID_LICENSE_FEATURE_CODE_VGPU) {
			a[0] = gpu.Int(int64(min(features[i].FeatureState, 1)))
			break
		}
	}
	if f.IsGridLicenseSupported == 0 {
		a[0] = gpu.Int(0)
	}
	return ret
}

// brands lists the names that DCGM reports for the brands of NVML (nvmlBrandType_t, nvml.h), from 0.
var brands = [...]string{
	"Unknown", "Quadro", "Tesla", "NVS", "Grid", "GeForce", "Titan", "NVIDIA Virtual Applications",
	"NVIDIA Virtual PC", "NVIDIA Virtual Compute Server", "NVIDIA RTX Virtual Workstation", "NVIDIA vGaming",
	"Quadro RTX", "NVIDIA RTX", "NVIDIA", "GeForce RTX", "Titan RTX",
}

// readFabric reads the state and error of the GPU's registration with the fabric manager, the cluster UUID, the clique,
// and the mask and summary of the fabric's health. Older drivers have no summary.
func readFabric(t *target, a *answers) gonvml.Return {
	info, ret := t.device.GetGpuFabricInfoV().V3()
	if ret == gonvml.ERROR_ARGUMENT_VERSION_MISMATCH {
		var old gonvml.GpuFabricInfo_v2
		old, ret = t.device.GetGpuFabricInfoV().V2()
		info = gonvml.GpuFabricInfo_v3{ClusterUuid: old.ClusterUuid, Status: old.Status, CliqueId: old.CliqueId,
			State: old.State, HealthMask: old.HealthMask}
	} else if ret == gonvml.SUCCESS {
		a[5] = gpu.Int(int64(info.HealthSummary))
	}
	a[0], a[1] = fabricState(info.State, gonvml.Return(info.Status))
	id := hex.EncodeToString(info.ClusterUuid[:])
	a[2] = gpu.Text(id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:])
	a[3], a[4] = gpu.Int(int64(info.CliqueId)), gpu.Int(int64(info.HealthMask))
	return ret
}

// fabricState returns DCGM's number for the registration state of the GPU, and the error of a registration that has
// ended.
func fabricState(state uint8, status gonvml.Return) (gpu.Value, gpu.Value) {
	switch {
	case state < gonvml.GPU_FABRIC_STATE_COMPLETED: // not yet, or not supported: DCGM uses the same numbers
		return gpu.Int(int64(state)), gpu.Value{}
	case state > gonvml.GPU_FABRIC_STATE_COMPLETED:
		return gpu.Int(catalog.FabricUnrecognized), gpu.Value{}
	case status == gonvml.SUCCESS:
		return gpu.Int(catalog.FabricSuccess), gpu.Int(0)
	default:
		return gpu.Int(catalog.FabricFailure), gpu.Int(int64(status))
	}
}
