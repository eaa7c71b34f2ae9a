//go:build linux && cgo

package nvml

import (
	"cmp"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

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

// valueCall returns a call of a function whose only result converts to a value.
func valueCall[T any](symbol string, get func(gonvml.Device) (T, gonvml.Return), convert func(T) gpu.Value) *call {
	return &call{symbols: []string{symbol}, read: func(t *target, a *answers) gonvml.Return {
		x, ret := get(t.device)
		a[0] = convert(x)
		return ret
	}}
}

// number returns a call of a function that returns one number.
func number[N int | uint32 | uint64 | gonvml.Pstates | gonvml.EnableState](
	symbol string, get func(gonvml.Device) (N, gonvml.Return),
) *call {
	return valueCall(symbol, get, func(n N) gpu.Value { return gpu.Int(int64(n)) })
}

// constantText returns a call of a function that returns a string about a GPU. The string does not change while the
// driver is loaded.
func constantText(symbol string, get func(gonvml.Device) (string, gonvml.Return)) *call {
	c := valueCall(symbol, get, gpu.Text)
	c.constant = true
	return c
}

// version returns a call of a function that returns a version of the machine's software.
func version(symbol string, get func(gonvml.Interface) (string, gonvml.Return)) *call {
	read := func(t *target, a *answers) gonvml.Return {
		s, ret := get(t.api)
		a[0] = gpu.Text(s)
		return ret
	}
	return &call{symbols: []string{symbol}, constant: true, instance: true, read: read}
}

// wholeWatts returns a call of a function that returns milliwatts. Like DCGM, it rounds them down to watts
// (DcgmCacheManager.cpp divides integers).
func wholeWatts(symbol string, get func(gonvml.Device) (uint32, gonvml.Return)) *call {
	return valueCall(symbol, get, func(mw uint32) gpu.Value { return gpu.Float(float64(mw / 1000)) })
}

// numberFor returns a call of a function that returns one number for an argument.
func numberFor[A any](symbol string, get func(gonvml.Device, A) (uint32, gonvml.Return), arg A) *call {
	return number(symbol, func(d gonvml.Device) (uint32, gonvml.Return) { return get(d, arg) })
}

// clock, maxClock and appClock return calls for one clock domain, in MHz.
func clock(kind gonvml.ClockType) *call {
	return numberFor("nvmlDeviceGetClockInfo", gonvml.Device.GetClockInfo, kind)
}

func maxClock(kind gonvml.ClockType) *call {
	return numberFor("nvmlDeviceGetMaxClockInfo", gonvml.Device.GetMaxClockInfo, kind)
}

func appClock(kind gonvml.ClockType) *call {
	return numberFor("nvmlDeviceGetApplicationsClock", gonvml.Device.GetApplicationsClock, kind)
}

func threshold(kind gonvml.TemperatureThresholds) *call {
	return numberFor("nvmlDeviceGetTemperatureThreshold", gonvml.Device.GetTemperatureThreshold, kind)
}

func inforom(object gonvml.InforomObject) *call {
	return constantText("nvmlDeviceGetInforomVersion", func(d gonvml.Device) (string, gonvml.Return) {
		return d.GetInforomVersion(object)
	})
}

// codec returns a call for the utilization of the encoders or decoders.
func codec(symbol string, get func(gonvml.Device) (uint32, uint32, gonvml.Return)) *call {
	c := number(symbol, func(d gonvml.Device) (uint32, gonvml.Return) {
		percent, _, ret := get(d)
		return percent, ret
	})
	c.whole = true
	return c
}

// Calls that several fields share, or that do more than read a number.
var (
	temperature = numberFor("nvmlDeviceGetTemperature", gonvml.Device.GetTemperature, gonvml.TEMPERATURE_GPU)
	brand       = constantText("nvmlDeviceGetBrand", func(d gonvml.Device) (string, gonvml.Return) {
		b, ret := d.GetBrand()
		return cmp.Or(brands[b], "Unknown"), ret
	})
	// DCGM reports the maximum number of MIG devices of a GPU in MIG mode as its slices. For other GPUs, the driver
	// says 0 and DCGM reports nothing.
	migSlices = valueCall("nvmlDeviceGetMaxMigDeviceCount", gonvml.Device.GetMaxMigDeviceCount, func(n int) gpu.Value {
		if n > 0 {
			return gpu.Int(int64(n))
		}
		return gpu.Value{}
	})
	power = valueCall("nvmlDeviceGetPowerUsage", gonvml.Device.GetPowerUsage, func(mw uint32) gpu.Value {
		return gpu.Float(float64(mw) / 1000)
	})
	utilization = &call{
		symbols: []string{"nvmlDeviceGetUtilizationRates"}, whole: true,
		read: func(t *target, a *answers) gonvml.Return {
			u, ret := t.device.GetUtilizationRates()
			a[0], a[1] = gpu.Int(int64(u.Gpu)), gpu.Int(int64(u.Memory))
			return ret
		},
	}
	memory = &call{
		symbols: []string{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"}, instance: true,
		read: readMemory,
	}
	fabric = &call{symbols: []string{"nvmlDeviceGetGpuFabricInfoV"}, read: readFabric}
	// Older versions of the function use another struct layout than go-nvml.
	vgpuLicense = &call{symbols: []string{"nvmlDeviceGetGridLicensableFeatures_v4"}, read: readLicense}
)

// readMemory returns total, free, used and reserved memory in MiB, rounded down, and the used fraction of the memory
// that is not reserved. Used memory excludes reserved memory. The first version of the struct does not separate them;
// used and reserved are then absent.
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

// readLicense returns 1 if the vGPU is licensed, and 0 if it is not or needs no license, as DCGM does.
func readLicense(t *target, a *answers) gonvml.Return {
	f, ret := t.device.GetGridLicensableFeatures()
	if f.IsGridLicenseSupported == 0 {
		a[0] = gpu.Int(0)
		return ret
	}
	for i := range min(int(f.LicensableFeaturesCount), len(f.GridLicensableFeatures)) {
		feature := &f.GridLicensableFeatures[i]
		if feature.FeatureCode == uint32(gonvml.GRID_LICENSE_FEATURE_CODE_VGPU) {
			a[0] = gpu.Int(int64(min(feature.FeatureState, 1)))
			break
		}
	}
	return ret
}

// brands maps the brands of NVML to the names that DCGM reports.
var brands = map[gonvml.BrandType]string{
	gonvml.BRAND_QUADRO:         "Quadro",
	gonvml.BRAND_TESLA:          "Tesla",
	gonvml.BRAND_NVS:            "NVS",
	gonvml.BRAND_GRID:           "Grid",
	gonvml.BRAND_GEFORCE:        "GeForce",
	gonvml.BRAND_TITAN:          "Titan",
	gonvml.BRAND_NVIDIA_VAPPS:   "NVIDIA Virtual Applications",
	gonvml.BRAND_NVIDIA_VPC:     "NVIDIA Virtual PC",
	gonvml.BRAND_NVIDIA_VCS:     "NVIDIA Virtual Compute Server",
	gonvml.BRAND_NVIDIA_VWS:     "NVIDIA RTX Virtual Workstation",
	gonvml.BRAND_NVIDIA_VGAMING: "NVIDIA vGaming",
	gonvml.BRAND_QUADRO_RTX:     "Quadro RTX",
	gonvml.BRAND_NVIDIA_RTX:     "NVIDIA RTX",
	gonvml.BRAND_NVIDIA:         "NVIDIA",
	gonvml.BRAND_GEFORCE_RTX:    "GeForce RTX",
	gonvml.BRAND_TITAN_RTX:      "Titan RTX",
}
