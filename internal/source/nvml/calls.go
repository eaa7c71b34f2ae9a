//go:build linux && cgo

package nvml

import (
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A target is what a call is about.
type target struct {
	api    gonvml.Interface
	device gonvml.Device // the GPU, or the MIG device of an instance
	parent gonvml.Device // the GPU
	index  int           // NVML's index of the GPU
	link   int           // the number of the NVLink, for the rows of links
	// pastReserved is set if the driver reports reserved memory apart from used memory.
	pastReserved bool
}

// answers are the values of one call; what it could not report stays absent.
type answers [7]gpu.Value

// A call is one question to the driver. Several fields can share its answers, and it is made once
// per Read for all of them.
type call struct {
	// symbols are the versions of the function, any one of which will do.
	symbols []string
	read    func(*target, *answers) gonvml.Return
	// constant answers hold for a session: they are queried once.
	constant bool
	// instance is set if the answer is true of a GPU instance too, the MIG device being queried.
	// All other calls are for whole GPUs.
	instance bool
	// whole is set if the answer is undefined for a GPU that is cut by MIG.
	whole bool
}

const mebibyte = 1 << 20

// number makes a call of a function that returns one number.
func number[N int | int32 | uint32 | uint64 | gonvml.Pstates | gonvml.EnableState](
	symbol string, get func(gonvml.Device) (N, gonvml.Return),
) call {
	return call{symbols: []string{symbol}, read: func(t *target, a *answers) gonvml.Return {
		n, ret := get(t.device)
		a[0] = gpu.Int(int64(n))
		return ret
	}}
}

// constantText makes a call of a function that returns a text about a GPU that does not change
// while the driver is loaded.
func constantText(symbol string, get func(gonvml.Device) (string, gonvml.Return)) call {
	return call{symbols: []string{symbol}, constant: true, read: func(t *target, a *answers) gonvml.Return {
		s, ret := get(t.device)
		a[0] = gpu.Text(s)
		return ret
	}}
}

// wholeWatts makes a call of a function that returns milliwatts which DCGM rounds down to watts
// (DcgmCacheManager.cpp divides integers).
func wholeWatts(symbol string, get func(gonvml.Device) (uint32, gonvml.Return)) call {
	return call{symbols: []string{symbol}, read: func(t *target, a *answers) gonvml.Return {
		mw, ret := get(t.device)
		a[0] = gpu.Float(float64(mw / 1000))
		return ret
	}}
}

// clock, maxClock and appClock make calls for one clock domain, in MHz.
func clock(kind gonvml.ClockType) call {
	return number("nvmlDeviceGetClockInfo", func(d gonvml.Device) (uint32, gonvml.Return) { return d.GetClockInfo(kind) })
}

func maxClock(kind gonvml.ClockType) call {
	return number("nvmlDeviceGetMaxClockInfo", func(d gonvml.Device) (uint32, gonvml.Return) { return d.GetMaxClockInfo(kind) })
}

func appClock(kind gonvml.ClockType) call {
	return number("nvmlDeviceGetApplicationsClock", func(d gonvml.Device) (uint32, gonvml.Return) { return d.GetApplicationsClock(kind) })
}

func threshold(kind gonvml.TemperatureThresholds) call {
	return number("nvmlDeviceGetTemperatureThreshold", func(d gonvml.Device) (uint32, gonvml.Return) {
		return d.GetTemperatureThreshold(kind)
	})
}

func inforom(object gonvml.InforomObject) call {
	return constantText("nvmlDeviceGetInforomVersion", func(d gonvml.Device) (string, gonvml.Return) {
		return d.GetInforomVersion(object)
	})
}

// The calls, in the order of the fields they answer.
var (
	driverVersion = call{
		symbols: []string{"nvmlSystemGetDriverVersion"}, constant: true, instance: true,
		read: func(t *target, a *answers) gonvml.Return {
			s, ret := t.api.SystemGetDriverVersion()
			a[0] = gpu.Text(s)
			return ret
		},
	}
	nvmlVersion = call{
		symbols: []string{"nvmlSystemGetNVMLVersion"}, constant: true, instance: true,
		read: func(t *target, a *answers) gonvml.Return {
			s, ret := t.api.SystemGetNVMLVersion()
			a[0] = gpu.Text(s)
			return ret
		},
	}
	cudaVersion = call{
		symbols: []string{"nvmlSystemGetCudaDriverVersion"}, constant: true, instance: true,
		read: func(t *target, a *answers) gonvml.Return {
			n, ret := t.api.SystemGetCudaDriverVersion()
			a[0] = gpu.Int(int64(n))
			return ret
		},
	}

	deviceCount = call{
		symbols: []string{"nvmlDeviceGetCount_v2"},
		read: func(t *target, a *answers) gonvml.Return {
			n, ret := t.api.DeviceGetCount()
			a[0] = gpu.Int(int64(n))
			return ret
		},
	}

	deviceName = constantText("nvmlDeviceGetName", gonvml.Device.GetName)
	brand      = call{
		symbols: []string{"nvmlDeviceGetBrand"}, constant: true,
		read: func(t *target, a *answers) gonvml.Return {
			b, ret := t.device.GetBrand()
			a[0] = gpu.Text(brandName(b))
			return ret
		},
	}
	nvmlIndex = call{constant: true, read: func(t *target, a *answers) gonvml.Return {
		a[0] = gpu.Int(int64(t.index))
		return gonvml.SUCCESS
	}}
	serial      = constantText("nvmlDeviceGetSerial", gonvml.Device.GetSerial)
	deviceUUID  = constantText("nvmlDeviceGetUUID", gonvml.Device.GetUUID)
	minorNumber = number("nvmlDeviceGetMinorNumber", gonvml.Device.GetMinorNumber)
	inforomOEM  = inforom(gonvml.INFOROM_OEM)
	inforomECC  = inforom(gonvml.INFOROM_ECC)
	// There is no power object on most GPUs: "not supported" is usual.
	inforomPower = inforom(gonvml.INFOROM_POWER)
	inforomImage = constantText("nvmlDeviceGetInforomImageVersion", gonvml.Device.GetInforomImageVersion)
	vbios        = constantText("nvmlDeviceGetVbiosVersion", gonvml.Device.GetVbiosVersion)
	pciInfo      = call{
		symbols: pciSymbols, constant: true,
		read: func(t *target, a *answers) gonvml.Return {
			p, ret := t.device.GetPciInfo()
			a[0], a[1], a[2] = gpu.Text(busID(&p)), gpu.Int(int64(p.PciDeviceId)), gpu.Int(int64(p.PciSubSystemId))
			return ret
		},
	}
	computeCapability = call{
		symbols: []string{"nvmlDeviceGetCudaComputeCapability"}, constant: true,
		read: func(t *target, a *answers) gonvml.Return {
			major, minor, ret := t.device.GetCudaComputeCapability()
			a[0] = gpu.Int(int64(major)<<16 | int64(minor))
			return ret
		},
	}
	// DCGM renumbers the modes since exclusive-thread went away.
	computeMode = call{
		symbols: []string{"nvmlDeviceGetComputeMode"},
		read: func(t *target, a *answers) gonvml.Return {
			mode, ret := t.device.GetComputeMode()
			switch mode {
			case gonvml.COMPUTEMODE_PROHIBITED:
				a[0] = gpu.Int(1)
			case gonvml.COMPUTEMODE_EXCLUSIVE_PROCESS:
				a[0] = gpu.Int(2)
			default:
				a[0] = gpu.Int(int64(mode))
			}
			return ret
		},
	}
	persistenceMode = number("nvmlDeviceGetPersistenceMode", gonvml.Device.GetPersistenceMode)
	migMode         = call{
		symbols: []string{"nvmlDeviceGetMigMode"},
		read: func(t *target, a *answers) gonvml.Return {
			now, _, ret := t.device.GetMigMode()
			if ret == gonvml.ERROR_NOT_SUPPORTED {
				now, ret = gonvml.DEVICE_MIG_DISABLE, gonvml.SUCCESS // DCGM says 0 of GPUs that cannot
			}
			a[0] = gpu.Int(int64(now))
			return ret
		},
	}
	// DCGM calls the MIG devices that a GPU in MIG mode can have its slices; of another GPU the driver
	// says 0, and DCGM nothing.
	migSlices = call{
		symbols: []string{"nvmlDeviceGetMaxMigDeviceCount"},
		read: func(t *target, a *answers) gonvml.Return {
			n, ret := t.device.GetMaxMigDeviceCount()
			if n > 0 {
				a[0] = gpu.Int(int64(n))
			}
			return ret
		},
	}
	bar1 = call{
		symbols: []string{"nvmlDeviceGetBAR1MemoryInfo"},
		read: func(t *target, a *answers) gonvml.Return {
			m, ret := t.device.GetBAR1MemoryInfo()
			a[0], a[1], a[2] = gpu.Int(int64(m.Bar1Total/mebibyte)), gpu.Int(int64(m.Bar1Used/mebibyte)), gpu.Int(int64(m.Bar1Free/mebibyte))
			return ret
		},
	}

	clockSM        = clock(gonvml.CLOCK_SM)
	clockMemory    = clock(gonvml.CLOCK_MEM)
	clockVideo     = clock(gonvml.CLOCK_VIDEO)
	clockAppSM     = appClock(gonvml.CLOCK_GRAPHICS)
	clockAppMemory = appClock(gonvml.CLOCK_MEM)
	clockReasons   = number("nvmlDeviceGetCurrentClocksThrottleReasons", gonvml.Device.GetCurrentClocksThrottleReasons)
	clockMaxSM     = maxClock(gonvml.CLOCK_SM)
	clockMaxMemory = maxClock(gonvml.CLOCK_MEM)
	clockMaxVideo  = maxClock(gonvml.CLOCK_VIDEO)

	temperature = number("nvmlDeviceGetTemperature", func(d gonvml.Device) (uint32, gonvml.Return) {
		return d.GetTemperature(gonvml.TEMPERATURE_GPU)
	})
	temperatureMemoryMax = threshold(gonvml.TEMPERATURE_THRESHOLD_MEM_MAX)
	temperatureMax       = threshold(gonvml.TEMPERATURE_THRESHOLD_GPU_MAX)
	temperatureSlowdown  = threshold(gonvml.TEMPERATURE_THRESHOLD_SLOWDOWN)
	temperatureShutdown  = threshold(gonvml.TEMPERATURE_THRESHOLD_SHUTDOWN)
	temperatureMargin    = number("nvmlDeviceGetMarginTemperature", func(d gonvml.Device) (int32, gonvml.Return) {
		m, ret := d.GetMarginTemperature()
		return m.MarginTemperature, ret
	})

	power = call{
		symbols: []string{"nvmlDeviceGetPowerUsage"},
		read: func(t *target, a *answers) gonvml.Return {
			mw, ret := t.device.GetPowerUsage()
			a[0] = gpu.Float(float64(mw) / 1000)
			return ret
		},
	}
	powerLimit         = wholeWatts("nvmlDeviceGetPowerManagementLimit", gonvml.Device.GetPowerManagementLimit)
	powerLimitDefault  = wholeWatts("nvmlDeviceGetPowerManagementDefaultLimit", gonvml.Device.GetPowerManagementDefaultLimit)
	powerLimitEnforced = wholeWatts("nvmlDeviceGetEnforcedPowerLimit", gonvml.Device.GetEnforcedPowerLimit)
	powerLimits        = call{
		symbols: []string{"nvmlDeviceGetPowerManagementLimitConstraints"},
		read: func(t *target, a *answers) gonvml.Return {
			low, high, ret := t.device.GetPowerManagementLimitConstraints()
			a[0], a[1] = gpu.Float(float64(low/1000)), gpu.Float(float64(high/1000))
			return ret
		},
	}

	performanceState = number("nvmlDeviceGetPerformanceState", gonvml.Device.GetPerformanceState)
	fanSpeed         = number("nvmlDeviceGetFanSpeed", gonvml.Device.GetFanSpeed)
	pcieReplays      = number("nvmlDeviceGetPcieReplayCounter", gonvml.Device.GetPcieReplayCounter)
	utilization      = call{
		symbols: []string{"nvmlDeviceGetUtilizationRates"}, whole: true,
		read: func(t *target, a *answers) gonvml.Return {
			u, ret := t.device.GetUtilizationRates()
			a[0], a[1] = gpu.Int(int64(u.Gpu)), gpu.Int(int64(u.Memory))
			return ret
		},
	}
	encoderUtilization = undefinedOnMIG(number("nvmlDeviceGetEncoderUtilization", func(d gonvml.Device) (uint32, gonvml.Return) {
		u, _, ret := d.GetEncoderUtilization()
		return u, ret
	}))
	decoderUtilization = undefinedOnMIG(number("nvmlDeviceGetDecoderUtilization", func(d gonvml.Device) (uint32, gonvml.Return) {
		u, _, ret := d.GetDecoderUtilization()
		return u, ret
	}))
	pcieMaxGeneration = number("nvmlDeviceGetMaxPcieLinkGeneration", gonvml.Device.GetMaxPcieLinkGeneration)
	pcieMaxWidth      = number("nvmlDeviceGetMaxPcieLinkWidth", gonvml.Device.GetMaxPcieLinkWidth)
	pcieGeneration    = number("nvmlDeviceGetCurrPcieLinkGeneration", gonvml.Device.GetCurrPcieLinkGeneration)
	pcieWidth         = number("nvmlDeviceGetCurrPcieLinkWidth", gonvml.Device.GetCurrPcieLinkWidth)

	memory = call{
		symbols: []string{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"}, instance: true,
		read: readMemory,
	}

	// DCGM's order, from most to fewest spare rows left.
	rowRemapper = call{
		symbols: []string{"nvmlDeviceGetRowRemapperHistogram"},
		read: func(t *target, a *answers) gonvml.Return {
			h, ret := t.device.GetRowRemapperHistogram()
			for i, n := range [...]uint32{h.Max, h.High, h.Partial, h.Low, h.None} {
				a[i] = gpu.Int(int64(n))
			}
			return ret
		},
	}

	memoryUnrepairable = call{
		symbols: []string{"nvmlDeviceGetUnrepairableMemoryFlag_v1"},
		read: func(t *target, a *answers) gonvml.Return {
			status, ret := t.device.GetUnrepairableMemoryFlag_v1()
			a[0] = gpu.Int(int64(status.BUnrepairableMemory))
			return ret
		},
	}

	fabric = call{symbols: []string{"nvmlDeviceGetGpuFabricInfoV"}, read: readFabric}

	// The links' port counters, a call for each register that holds them.
	portState    = portCounters(gonvml.PRM_COUNTER_ID_PPRM_OPER_RECOVERY)
	portPhysical = portCounters(
		gonvml.PRM_COUNTER_ID_PPCNT_PHYSICAL_LAYER_CTRS_SUCCESSFUL_RECOVERY_EVENTS,
		gonvml.PRM_COUNTER_ID_PPCNT_PHYSICAL_LAYER_CTRS_LINK_DOWN_EVENTS)
	portRecovery = portCounters(
		gonvml.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_TIME_SINCE_LAST_RECOVERY,
		gonvml.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_TIME_BETWEEN_LAST_TWO_RECOVERIES,
		gonvml.PRM_COUNTER_ID_PPCNT_RECOVERY_CTRS_TOTAL_SUCCESSFUL_RECOVERY_EVENTS)

	// Older versions of the function have another layout than go-nvml's.
	vgpuLicense = call{
		symbols: []string{"nvmlDeviceGetGridLicensableFeatures_v4"},
		read:    readLicense,
	}
)

// memoryErrors makes a call for the ECC errors of one part of the GPU's memory.
func memoryErrors(kind gonvml.MemoryErrorType, since gonvml.EccCounterType, where gonvml.MemoryLocation) *call {
	c := number("nvmlDeviceGetMemoryErrorCounter", func(d gonvml.Device) (uint64, gonvml.Return) {
		return d.GetMemoryErrorCounter(kind, since, where)
	})
	return &c
}

var pciSymbols = []string{"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"}

func undefinedOnMIG(c call) call {
	c.whole = true
	return c
}

// readMemory answers total, free, used and reserved memory in MiB, rounded down, and the used part
// of what is not reserved. Used memory excludes the reserved, which only the second version of the
// structure can say: with the first one, used and reserved stay absent.
func readMemory(t *target, a *answers) gonvml.Return {
	if !t.pastReserved {
		m, ret := t.device.GetMemoryInfo()
		a[0], a[1] = gpu.Int(int64(m.Total/mebibyte)), gpu.Int(int64(m.Free/mebibyte))
		return ret
	}
	m, ret := t.device.GetMemoryInfo_v2()
	a[0], a[1] = gpu.Int(int64(m.Total/mebibyte)), gpu.Int(int64(m.Free/mebibyte))
	a[2], a[3] = gpu.Int(int64(m.Used/mebibyte)), gpu.Int(int64(m.Reserved/mebibyte))
	if m.Total > m.Reserved {
		a[4] = gpu.Float(float64(m.Used) / float64(m.Total-m.Reserved))
	}
	return ret
}

// readLicense answers 1 where the vGPU is licensed, and 0 where it is not or where there is nothing
// to license, as DCGM does.
func readLicense(t *target, a *answers) gonvml.Return {
	f, ret := t.device.GetGridLicensableFeatures()
	if f.IsGridLicenseSupported == 0 {
		a[0] = gpu.Int(0)
		return ret
	}
	for i := range min(int(f.LicensableFeaturesCount), len(f.GridLicensableFeatures)) {
		feature := &f.GridLicensableFeatures[i]
		if feature.FeatureCode != uint32(gonvml.GRID_LICENSE_FEATURE_CODE_VGPU) {
			continue
		}
		if feature.FeatureState > 0 {
			a[0] = gpu.Int(1)
		} else {
			a[0] = gpu.Int(0)
		}
		break
	}
	return ret
}

// brandName returns the brand in DCGM's words.
func brandName(b gonvml.BrandType) string {
	switch b {
	case gonvml.BRAND_QUADRO:
		return "Quadro"
	case gonvml.BRAND_TESLA:
		return "Tesla"
	case gonvml.BRAND_NVS:
		return "NVS"
	case gonvml.BRAND_GRID:
		return "Grid"
	case gonvml.BRAND_GEFORCE:
		return "GeForce"
	case gonvml.BRAND_TITAN:
		return "Titan"
	case gonvml.BRAND_NVIDIA_VAPPS:
		return "NVIDIA Virtual Applications"
	case gonvml.BRAND_NVIDIA_VPC:
		return "NVIDIA Virtual PC"
	case gonvml.BRAND_NVIDIA_VCS:
		return "NVIDIA Virtual Compute Server"
	case gonvml.BRAND_NVIDIA_VWS:
		return "NVIDIA RTX Virtual Workstation"
	case gonvml.BRAND_NVIDIA_VGAMING:
		return "NVIDIA vGaming"
	case gonvml.BRAND_QUADRO_RTX:
		return "Quadro RTX"
	case gonvml.BRAND_NVIDIA_RTX:
		return "NVIDIA RTX"
	case gonvml.BRAND_NVIDIA:
		return "NVIDIA"
	case gonvml.BRAND_GEFORCE_RTX:
		return "GeForce RTX"
	case gonvml.BRAND_TITAN_RTX:
		return "Titan RTX"
	default:
		return "Unknown"
	}
}
