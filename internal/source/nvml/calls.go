//go:build linux && cgo

package nvml

import (
	"encoding/hex"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
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
	// says 0 and DCGM reports nothing.
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
