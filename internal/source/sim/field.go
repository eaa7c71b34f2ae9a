package sim

import (
	"math"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A view is what the generators see of one row.
type view struct {
	dev   *gpu.Device
	spec  *nodeSpec
	board *board
	gpu   *worldGPU // the GPU of the row; nil for switches and CPUs
	slot  *slot     // the instance of the row; nil for others
	cpu   *cpuSpec
	card  *cardSpec
	track *track // what the row follows: its GPU's or its instance's
	part  float64
	world *world
	key   uint64
	// total and reserved are the entity's memory in MiB.
	total, reserved int64
}

// A generator computes a value of a row; n is the number within the rule, usually a link.
type generator func(v *view, n int) gpu.Value

// needs are what a GPU must have for a field to exist on it.
type needs uint32

const (
	needWhole      needs = 1 << iota // not partitioned by MIG: utilization is undefined on MIG parents
	needEnergy                       // an energy counter
	needECC                          // ECC memory
	needRemap                        // row remapping
	needRetire                       // page retirement
	needProfiling                    // DCGM's profiling module
	needLink                         // an NVLink of this number
	needLinkPair                     // likewise, with two fields a link
	needNVLink                       // any NVLink
	needMemoryTemp                   // a memory temperature sensor
	needFan                          // a fan of its own
	needC2C                          // chip-to-chip links
	needMIG                          // a board that MIG can cut
	needSerial                       // a serial number
	needNever                        // something that no board here has
)

// met reports whether the board, and the way in which it is cut, have all that is needed.
func (need needs) met(v *view, n int) bool {
	b := v.board
	has := func(bit needs, ok bool) bool { return need&bit == 0 || ok }
	return has(needWhole, !v.gpu.partitioned) &&
		has(needEnergy, b.Energy) &&
		has(needECC, b.ECC) &&
		has(needRemap, b.Remap) &&
		has(needRetire, b.ECC && !b.Remap) &&
		has(needProfiling, b.Profiling) &&
		has(needLink, int64(n) < b.NVLink.Links) &&
		has(needLinkPair, int64(n/2) < b.NVLink.Links) &&
		has(needNVLink, b.NVLink.Links > 0) &&
		has(needMemoryTemp, b.Temperature.MemoryOffset != 0) &&
		has(needFan, b.Fan) &&
		has(needC2C, b.C2C != 0) &&
		has(needMIG, b.MIG != nil) &&
		has(needSerial, b.Serial != "") &&
		has(needNever, false)
}

// A rule says how the fields of a range of ids come about on some kinds of entities. The first rule
// that covers a field and kind counts.
type rule struct {
	first, last gpu.FieldID
	on          gpu.Kinds
	unit        gpu.Unit
	needs       needs
	base        int // the number of the first field of the range
	gen         generator
}

const (
	onGPU    = 1 << gpu.KindGPU
	onBoth   = 1<<gpu.KindGPU | 1<<gpu.KindGPUInstance
	onCard   = 1 << gpu.KindConnectX
	onLink   = 1 << gpu.KindNVLink
	onSwitch = 1 << gpu.KindNVSwitch
	onCPU    = 1<<gpu.KindCPU | 1<<gpu.KindCPUCore
	// A plan reads what the machine says for every GPU, and as a label for every instance.
	onNode = 1<<gpu.KindNode | onBoth
)

// ruleFor returns the rule for a field on a kind of entity, nil where the model has none.
func ruleFor(id gpu.FieldID, kind gpu.Kind) *rule {
	for i := range rules {
		if r := &rules[i]; id >= r.first && id <= r.last && r.on.Has(kind) {
			return r
		}
	}
	return nil
}

// whole rounds to an integer value.
func whole(x float64) gpu.Value { return gpu.Int(int64(math.Floor(x))) }

// fixed is a generator of a constant integer.
func fixed(x int64) generator { return func(*view, int) gpu.Value { return gpu.Int(x) } }

// words is a generator of a constant text.
func words(s string) generator { return func(*view, int) gpu.Value { return gpu.Text(s) } }

// number is a generator of a constant of the row.
func number(of func(*view) int64) generator {
	return func(v *view, _ int) gpu.Value { return gpu.Int(of(v)) }
}

// watts is a generator of a constant of the row as a float.
func watts(of func(*view) float64) generator {
	return func(v *view, _ int) gpu.Value { return gpu.Float(of(v)) }
}

// texts is a generator of a text of the row.
func texts(of func(*view) string) generator {
	return func(v *view, _ int) gpu.Value { return gpu.Text(of(v)) }
}

// ratio is a generator of a level as a float.
func ratio(level int, share float64) generator {
	return func(v *view, _ int) gpu.Value { return gpu.Float(v.track.now[level] * share) }
}

// engine is ratio for one of several equal engines: work fills them in order.
func engine(level int, engines float64) generator {
	return func(v *view, n int) gpu.Value {
		return gpu.Float(min(max(v.track.now[level]*engines-float64(n), 0), 1))
	}
}

// percent is a generator of a level as whole percent.
func percent(level int) generator {
	return func(v *view, _ int) gpu.Value { return gpu.Int(int64(math.Round(v.track.now[level] * 100))) }
}

// rate is a generator of the sum of levels in bytes per second.
func rate(levels ...int) generator {
	return func(v *view, _ int) gpu.Value {
		sum := 0.0
		for _, l := range levels {
			sum += v.track.now[l]
		}
		return whole(sum * v.part)
	}
}

// linkRate is rate for one of the GPU's links.
func linkRate(levels ...int) generator {
	return func(v *view, _ int) gpu.Value { return linkOf(v, levels...) }
}

// sum is a generator of a level's integral, in units of 1/scale.
func sum(level int, scale float64) generator {
	return func(v *view, _ int) gpu.Value { return whole(v.track.total[level] * v.part * scale) }
}

// rare is a generator of counters of errors that hardly ever happen: about one entity in `one` has
// some, and then a new one every few days.
func rare(one uint64) generator {
	return func(v *view, n int) gpu.Value {
		h := mix(v.key ^ uint64(n)<<32 ^ one)
		if h%one != 0 {
			return gpu.Int(0)
		}
		days := float64(v.world.at-v.world.start) / float64(24*3600e9)
		return whole(1 + float64(h>>8%3) + days*uniform(h, 1)/2)
	}
}

func memoryUsed(v *view) int64 { return int64(v.track.now[levelMemory]) }

// rules are the fields that the model knows, by DCGM's numbers. Everything else comes from
// fallback.
var rules = []rule{
	// The machine.
	{catalog.DriverVersion, catalog.DriverVersion, onNode, "", 0, 0, texts(func(v *view) string { return v.world.driver })},
	{catalog.NVMLVersion, catalog.NVMLVersion, onNode, "", 0, 0, texts(func(v *view) string { return "12." + v.world.driver })},
	{catalog.ProcessName, catalog.ProcessName, onNode, "", 0, 0, words("nv-hostengine")},
	{catalog.DeviceCount, catalog.DeviceCount, onNode, "", 0, 0, number(present)},
	{catalog.CUDADriverVersion, catalog.CUDADriverVersion, onNode, "", 0, 0, number(func(v *view) int64 { return v.spec.CUDA })},
	{catalog.BindUnbindEvent, catalog.BindUnbindEvent, onNode, "", 0, 0, fixed(2)},
	{catalog.IMEXDomainStatus, catalog.IMEXDomainStatus, onNode, "", 0, 0, words("UP")},
	{catalog.IMEXDaemonStatus, catalog.IMEXDaemonStatus, onNode, "", 0, 0, fixed(5)},

	// Identity.
	{catalog.DeviceName, catalog.DeviceName, onGPU, "", 0, 0, texts(func(v *view) string { return v.board.Model })},
	{catalog.DeviceBrand, catalog.DeviceBrand, onGPU, "", 0, 0, texts(func(v *view) string { return v.board.Brand })},
	{catalog.NVMLIndex, catalog.NVMLIndex, onGPU, "", 0, 0, number(func(v *view) int64 { return int64(v.dev.NVMLIndex) })},
	{catalog.DeviceSerial, catalog.DeviceSerial, onGPU, "", needSerial, 0, texts(serial)},
	{catalog.DeviceUUID, catalog.DeviceUUID, onGPU, "", 0, 0, texts(func(v *view) string { return v.dev.UUID })},
	{catalog.MinorNumber, catalog.MinorNumber, onGPU, "", 0, 0, number(func(v *view) int64 { return int64(v.dev.Minor) })},
	{catalog.OEMInfoROMVer, catalog.OEMInfoROMVer, onGPU, "", 0, 0, words("2.1")},
	{catalog.PCIBusID, catalog.PCIBusID, onGPU, "", 0, 0, texts(func(v *view) string { return v.dev.PCIBusID })},
	{catalog.PCICombinedID, catalog.PCISubsysID, onGPU, "", 0, 0, number(func(v *view) int64 { return int64(keyOf(0, v.board.Name)>>48<<16 | 0x10de) })},
	{catalog.CUDAComputeCapability, catalog.CUDAComputeCapability, onGPU, "", 0, 0, number(computeCapability)},
	{catalog.P2PNVLinkStatus, catalog.P2PNVLinkStatus, onGPU, "", 0, 0, number(peers)},
	{catalog.ComputeMode, catalog.ComputeMode, onGPU, "", 0, 0, fixed(0)},
	{catalog.PersistenceMode, catalog.PersistenceMode, onGPU, "", 0, 0, fixed(1)},
	{catalog.MIGMode, catalog.MIGMode, onGPU, "", needMIG, 0, number(func(v *view) int64 { return truth(v.gpu.partitioned) })},
	{catalog.CUDAVisibleDevicesStr, catalog.CUDAVisibleDevicesStr, onBoth, "", 0, 0, texts(visible)},
	{catalog.MIGMaxSlices, catalog.MIGMaxSlices, onGPU, "", needMIG, 0, number(func(v *view) int64 { return int64(v.board.MIG.ComputeSlices) })},
	{catalog.CPUAffinity0, catalog.CPUAffinity3, onGPU, "", 0, 0, affinity},
	{catalog.CCMode, catalog.CCMode, onGPU, "", 0, 0, fixed(0)},
	{catalog.ECCInfoROMVer, catalog.ECCInfoROMVer, onGPU, "", needECC, 0, words("7.16")},
	{catalog.PowerInfoROMVer, catalog.PowerInfoROMVer, onGPU, "", needSerial, 0, words("1.0")},
	{catalog.InfoROMImageVer, catalog.InfoROMImageVer, onGPU, "", needSerial, 0, texts(func(v *view) string { return "G" + v.board.Serial[3:] + ".0200.00.01" })},
	{catalog.InfoROMConfigCheck, catalog.InfoROMConfigCheck, onGPU, "", 0, 0, number(func(v *view) int64 { return int64(keyOf(1, v.board.Name) >> 34) })},
	{catalog.InfoROMConfigValid, catalog.InfoROMConfigValid, onGPU, "", 0, 0, fixed(1)},
	{catalog.VBIOSVersion, catalog.VBIOSVersion, onGPU, "", 0, 0, texts(func(v *view) string { return v.board.VBIOS })},
	{catalog.MemAffinity0, catalog.MemAffinity3, onGPU, "", 0, 0, func(_ *view, n int) gpu.Value { return gpu.Int(truth(n == 0)) }},
	{catalog.GPMSupport, catalog.GPMSupport, onGPU, "", 0, 0, number(func(v *view) int64 { return truth(v.board.GPM) })},
	{catalog.PlatformInfinibandGuid, catalog.PlatformModuleID, onGPU, "", needNever, 0, nil},

	// Clocks.
	{catalog.SMClock, catalog.SMClock, onGPU, "MHz", 0, 0, func(v *view, _ int) gpu.Value { return stepped(v.track.now[levelClock] * v.gpu.slowed(v.world.at)) }},
	{catalog.MemClock, catalog.MemClock, onGPU, "MHz", 0, 0, number(memoryClock)},
	{catalog.VideoClock, catalog.VideoClock, onGPU, "MHz", 0, 0, func(v *view, _ int) gpu.Value {
		return stepped(v.track.now[levelClock] * v.gpu.slowed(v.world.at) * v.board.Clocks.Video / v.board.Clocks.SM)
	}},
	{catalog.AppSMClock, catalog.AppSMClock, onGPU, "MHz", 0, 0, number(func(v *view) int64 { return int64(v.board.Clocks.SM) })},
	{catalog.AppMemClock, catalog.AppMemClock, onGPU, "MHz", 0, 0, number(func(v *view) int64 { return int64(v.board.Clocks.Memory) })},
	{catalog.ClocksEventReasons, catalog.ClocksEventReasons, onGPU, "", 0, 0, number(func(v *view) int64 {
		return reasonMask(&v.track.now) | v.gpu.scripted(v.world.at)
	})},
	{catalog.MaxSMClock, catalog.MaxSMClock, onGPU, "MHz", 0, 0, number(func(v *view) int64 { return int64(v.board.Clocks.SM) })},
	{catalog.MaxMemClock, catalog.MaxMemClock, onGPU, "MHz", 0, 0, number(func(v *view) int64 { return int64(v.board.Clocks.Memory) })},
	{catalog.MaxVideoClock, catalog.MaxVideoClock, onGPU, "MHz", 0, 0, number(func(v *view) int64 { return int64(v.board.Clocks.Video) })},
	{catalog.DeviceAutoboost, catalog.DeviceAutoboost, onGPU, "", needNever, 0, nil}, // auto boost ended with Kepler
	{catalog.DevicePstate, catalog.DevicePstate, onGPU, "", 0, 0, number(func(v *view) int64 {
		if v.track.now[levelGraphics] < busy {
			return v.board.IdleState
		}
		return 0
	})},

	// Temperature, power and energy.
	{catalog.MemoryTemp, catalog.MemoryTemp, onGPU, "celsius", needMemoryTemp, 0, func(v *view, _ int) gpu.Value { return whole(v.track.now[levelMemoryTemp]) }},
	{catalog.GPUTemp, catalog.GPUTemp, onGPU, "celsius", 0, 0, func(v *view, _ int) gpu.Value { return whole(v.track.now[levelTemp]) }},
	{catalog.MemMaxOpTemp, catalog.MemMaxOpTemp, onGPU, "celsius", needMemoryTemp, 0, number(func(v *view) int64 { return int64(v.board.Temperature.MemoryOperating) })},
	{catalog.GPUMaxOpTemp, catalog.GPUMaxOpTemp, onGPU, "celsius", 0, 0, number(func(v *view) int64 { return int64(v.board.Temperature.Operating) })},
	{catalog.GPUTempLimit, catalog.GPUTempLimit, onGPU, "celsius", 0, 0, number(func(v *view) int64 {
		return int64(v.board.Temperature.Operating) - int64(v.track.now[levelTemp])
	})},
	{catalog.SlowdownTemp, catalog.SlowdownTemp, onGPU, "celsius", 0, 0, number(func(v *view) int64 { return int64(v.board.Temperature.Slowdown) })},
	{catalog.ShutdownTemp, catalog.ShutdownTemp, onGPU, "celsius", 0, 0, number(func(v *view) int64 { return int64(v.board.Temperature.Shutdown) })},
	{catalog.PowerUsage, catalog.PowerUsage, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return milli(v.track.now[levelPower]) })},
	{catalog.PowerUsageInstant, catalog.PowerUsageInstant, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return milli(v.track.now[levelPower]) })},
	{catalog.TotalEnergyConsumption, catalog.TotalEnergyConsumption, onGPU, "mJ", needEnergy, 0, func(v *view, _ int) gpu.Value {
		// The driver was loaded some time before the world began.
		return whole(v.track.total[levelPower]*1e3 + math.Floor(uniform(v.key, 7)*1e6)*v.board.Power.Idle*1e3)
	}},
	{catalog.PowerMgmtLimit, catalog.PowerMgmtLimit, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return v.gpu.spec.limit })},
	{catalog.PowerMgmtLimitMin, catalog.PowerMgmtLimitMin, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return v.board.Power.Min })},
	{catalog.PowerMgmtLimitMax, catalog.PowerMgmtLimitMax, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return v.board.Power.Max })},
	{catalog.PowerMgmtLimitDef, catalog.PowerMgmtLimitDef, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return v.board.Power.Limit })},
	{catalog.EnforcedPowerLimit, catalog.EnforcedPowerLimit, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return v.gpu.spec.limit })},
	{catalog.FanSpeed, catalog.FanSpeed, onGPU, "percent", needFan, 0, number(func(v *view) int64 {
		return int64(30 + 70*max(0, v.track.now[levelTemp]-50)/50)
	})},
	{catalog.PowerViolation, catalog.PowerViolation, onGPU, "ns", 0, 0, sum(levelCapped, 1e9)},
	{catalog.ThermalViolation, catalog.ThermalViolation, onGPU, "ns", 0, 0, throttleTime(0x20 | 0x40)},
	{catalog.SyncBoostViolation, catalog.SyncBoostViolation, onGPU, "ns", 0, 0, throttleTime(0x10)},
	{catalog.BoardLimitViolation, catalog.BoardLimitViolation, onGPU, "ns", 0, 0, fixed(0)},
	{catalog.LowUtilViolation, catalog.LowUtilViolation, onGPU, "ns", 0, 0, fixed(0)},
	{catalog.ReliabilityViolation, catalog.TotalBaseClocksViolation, onGPU, "ns", 0, 0, fixed(0)},
	{catalog.ClocksEventReasonSwPowerCapNs, catalog.ClocksEventReasonSwPowerCapNs, onGPU, "ns", 0, 0, sum(levelCapped, 1e9)},
	{catalog.ClocksEventReasonSyncBoostNs, catalog.ClocksEventReasonSyncBoostNs, onGPU, "ns", 0, 0, throttleTime(0x10)},
	{catalog.ClocksEventReasonSwThermSlowdownNs, catalog.ClocksEventReasonSwThermSlowdownNs, onGPU, "ns", 0, 0, throttleTime(0x20)},
	{catalog.ClocksEventReasonHwThermSlowdownNs, catalog.ClocksEventReasonHwThermSlowdownNs, onGPU, "ns", 0, 0, throttleTime(0x40)},
	{catalog.ClocksEventReasonHwPowerBrakeSlowdownNs, catalog.ClocksEventReasonHwPowerBrakeSlowdownNs, onGPU, "ns", 0, 0, throttleTime(0x80)},
	{catalog.PWRSmoothingEnabled, catalog.PWRSmoothingAdminOverrideRampDownHystVal, onGPU, "", needNever, 0, nil}, // power smoothing came with Blackwell

	// Fabric.
	{catalog.FabricManagerStatus, catalog.FabricManagerStatus, onGPU, "", needLink, 0, fixed(3)}, // dcgmFabricManagerStatus_t: success
	{catalog.FabricManagerErrorCode, catalog.FabricManagerErrorCode, onGPU, "", needLink, 0, fixed(0)},
	{catalog.FabricClusterUUID, catalog.FabricClusterUUID, onGPU, "", needLink, 0, texts(func(v *view) string { return uuid("", keyOf(v.world.seed, "fabric "+v.spec.Name)) })},
	{catalog.FabricCliqueID, catalog.FabricHealthMask, onGPU, "", needLink, 0, fixed(0)},
	{catalog.FabricHealthSummary, catalog.FabricHealthSummary, onGPU, "", needLink, 0, fixed(1)}, // healthy

	// PCIe.
	{catalog.PCIeTXThroughput, catalog.PCIeTXThroughput, onGPU, "bytes/s", 0, 0, rate(levelPCIeTx)},
	{catalog.PCIeRXThroughput, catalog.PCIeRXThroughput, onGPU, "bytes/s", 0, 0, rate(levelPCIeRx)},
	{catalog.PCIeReplayCounter, catalog.PCIeReplayCounter, onGPU, "", 0, 0, rare(9)},
	{catalog.XIDErrors, catalog.XIDErrors, onGPU, "", 0, 0, fixed(0)},
	{catalog.PCIeMaxLinkGen, catalog.PCIeMaxLinkGen, onGPU, "", 0, 0, number(func(v *view) int64 { return v.board.PCIe.Generation })},
	{catalog.PCIeMaxLinkWidth, catalog.PCIeMaxLinkWidth, onGPU, "", 0, 0, number(func(v *view) int64 { return v.board.PCIe.Width })},
	{catalog.PCIeLinkGen, catalog.PCIeLinkGen, onGPU, "", 0, 0, number(func(v *view) int64 {
		if v.board.IdleState != 0 && v.track.now[levelGraphics] < busy {
			return 1
		}
		return v.board.PCIe.Generation
	})},
	{catalog.PCIeLinkWidth, catalog.PCIeLinkWidth, onGPU, "", 0, 0, number(func(v *view) int64 { return v.board.PCIe.Width })},
	{catalog.PCIeCountCorrectableErrors, catalog.PCIeCountCorrectableErrors, onGPU, "", 0, 0, rare(7)},

	// Utilization, as nvidia-smi shows it.
	{catalog.GPUUtil, catalog.GPUUtil, onGPU, "percent", needWhole, 0, percent(levelGraphics)},
	{catalog.MemCopyUtil, catalog.MemCopyUtil, onGPU, "percent", needWhole, 0, percent(levelDRAM)},
	{catalog.EncUtil, catalog.EncUtil, onGPU, "percent", needWhole, 0, percent(levelEncoder)},
	{catalog.DecUtil, catalog.DecUtil, onGPU, "percent", needWhole, 0, percent(levelDecoder)},

	// Memory.
	{catalog.BAR1Total, catalog.BAR1Total, onBoth, "MiB", 0, 0, number(bar1)},
	{catalog.BAR1Used, catalog.BAR1Used, onBoth, "MiB", 0, 0, number(bar1Used)},
	{catalog.BAR1Free, catalog.BAR1Free, onBoth, "MiB", 0, 0, number(func(v *view) int64 { return bar1(v) - bar1Used(v) })},
	{catalog.FBTotal, catalog.FBTotal, onBoth, "MiB", 0, 0, number(func(v *view) int64 { return v.total })},
	{catalog.FBFree, catalog.FBFree, onBoth, "MiB", 0, 0, number(func(v *view) int64 { return v.total - v.reserved - memoryUsed(v) })},
	{catalog.FBUsed, catalog.FBUsed, onBoth, "MiB", 0, 0, number(memoryUsed)},
	{catalog.FBReserved, catalog.FBReserved, onBoth, "MiB", 0, 0, number(func(v *view) int64 { return v.reserved })},
	{catalog.FBUsedPercent, catalog.FBUsedPercent, onBoth, "ratio", 0, 0, watts(func(v *view) float64 {
		return float64(memoryUsed(v)) / float64(v.total-v.reserved)
	})},

	// Errors of the memory.
	{catalog.ECCCurrent, catalog.ECCPending, onGPU, "", needECC, 0, fixed(1)},
	{catalog.ECCSBEVolTotal, catalog.ECCSBEVolTotal, onGPU, "", needECC, 0, aged(0, 24)},
	{catalog.ECCSBEAggTotal, catalog.ECCSBEAggTotal, onGPU, "", needECC, 0, aged(5, 24)},
	{catalog.ECCSBEVolDev, catalog.ECCSBEVolDev, onGPU, "", needECC, 0, aged(0, 24)},
	{catalog.ECCSBEAggDev, catalog.ECCSBEAggDev, onGPU, "", needECC, 0, aged(5, 24)},
	{catalog.ECCSBEVolTotal, catalog.ECCDBEAggSRM, onGPU, "", needECC, 0, fixed(0)},
	{catalog.ThresholdSRM, catalog.ThresholdSRM, onGPU, "", needECC, 0, fixed(0)},
	{catalog.BanksRemapRowsAvailMax, catalog.BanksRemapRowsAvailMax, onGPU, "", needRemap, 0, func(v *view, _ int) gpu.Value { return gpu.Int(640 - remapped(v)) }},
	{catalog.BanksRemapRowsAvailHigh, catalog.BanksRemapRowsAvailHigh, onGPU, "", needRemap, 0, number(remapped)},
	{catalog.BanksRemapRowsAvailPartial, catalog.BanksRemapRowsAvailNone, onGPU, "", needRemap, 0, fixed(0)},
	{catalog.RetiredSBE, catalog.RetiredSBE, onGPU, "", needRetire, 0, number(remapped)},
	{catalog.RetiredDBE, catalog.RetiredPending, onGPU, "", needRetire, 0, fixed(0)},
	{catalog.UncorrectableRemappedRows, catalog.UncorrectableRemappedRows, onGPU, "", needRemap, 0, fixed(0)},
	{catalog.CorrectableRemappedRows, catalog.CorrectableRemappedRows, onGPU, "", needRemap, 0, number(remapped)},
	{catalog.RowRemapFailure, catalog.RowRemapPending, onGPU, "", needRemap, 0, fixed(0)},
	{catalog.MemoryUnrepairableFlag, catalog.MemoryUnrepairableFlag, onGPU, "", needECC, 0, fixed(0)},
	{catalog.GetGPURecoveryAction, catalog.GetGPURecoveryAction, onGPU, "", 0, 0, fixed(0)},

	// Virtual GPUs: none here, and a license is only theirs.
	{catalog.VirtualMode, catalog.VirtualMode, onGPU, "", 0, 0, fixed(0)},
	{catalog.VGPULicenseStatus, catalog.VGPULicenseStatus, onGPU, "", 0, 0, fixed(0)},

	// NVLink of GPUs. Link numbers are out of order in the ids.
	{catalog.NVLinkCRCFlitErrorCountTotal, catalog.NVLinkCRCFlitErrorCountTotal, onGPU, "", needLink, 0, fixed(0)},
	{catalog.NVLinkCRCDataErrorCountTotal, catalog.NVLinkCRCDataErrorCountTotal, onGPU, "", needLink, 0, fixed(0)},
	{catalog.NVLinkReplayErrorCountTotal, catalog.NVLinkReplayErrorCountTotal, onGPU, "", needLink, 0, rare(11)},
	{catalog.NVLinkRecoveryErrorCountTotal, catalog.NVLinkRecoveryErrorCountTotal, onGPU, "", needLink, 0, fixed(0)},
	{catalog.NVLinkCRCFlitErrorCountL0, catalog.NVLinkCRCFlitErrorCountL5, onGPU, "", needLink, 0, fixed(0)},
	{catalog.NVLinkCRCFlitErrorCountL12, catalog.NVLinkCRCFlitErrorCountL14, onGPU, "", needLink, 12, fixed(0)},
	{catalog.NVLinkCRCDataErrorCountL0, catalog.NVLinkCRCDataErrorCountL5, onGPU, "", needLink, 0, fixed(0)},
	{catalog.NVLinkCRCDataErrorCountL12, catalog.NVLinkCRCDataErrorCountL14, onGPU, "", needLink, 12, fixed(0)},
	{catalog.NVLinkReplayErrorCountL0, catalog.NVLinkReplayErrorCountL5, onGPU, "", needLink, 0, fixed(0)},
	{catalog.NVLinkReplayErrorCountL12, catalog.NVLinkReplayErrorCountL14, onGPU, "", needLink, 12, fixed(0)},
	{catalog.NVLinkRecoveryErrorCountL0, catalog.NVLinkRecoveryErrorCountL5, onGPU, "", needLink, 0, fixed(0)},
	{catalog.NVLinkRecoveryErrorCountL12, catalog.NVLinkRecoveryErrorCountL14, onGPU, "", needLink, 12, fixed(0)},
	{catalog.NVLinkBandwidthL0, catalog.NVLinkBandwidthL5, onGPU, "bytes/s", needLink, 0, linkRate(levelNVLinkTx, levelNVLinkRx)},
	{catalog.NVLinkBandwidthL12, catalog.NVLinkBandwidthL14, onGPU, "bytes/s", needLink, 12, linkRate(levelNVLinkTx, levelNVLinkRx)},
	{catalog.NVLinkBandwidthTotal, catalog.NVLinkBandwidthTotal, onGPU, "bytes/s", needLink, 0, rate(levelNVLinkTx, levelNVLinkRx)},
	{catalog.GPUNVLinkErrors, catalog.GPUNVLinkErrors, onGPU, "", needLink, 0, fixed(0)},
	{catalog.NVLinkCRCFlitErrorCountL6, catalog.NVLinkCRCFlitErrorCountL11, onGPU, "", needLink, 6, fixed(0)},
	{catalog.NVLinkCRCDataErrorCountL6, catalog.NVLinkCRCDataErrorCountL11, onGPU, "", needLink, 6, fixed(0)},
	{catalog.NVLinkReplayErrorCountL6, catalog.NVLinkReplayErrorCountL11, onGPU, "", needLink, 6, fixed(0)},
	{catalog.NVLinkRecoveryErrorCountL6, catalog.NVLinkRecoveryErrorCountL11, onGPU, "", needLink, 6, fixed(0)},
	{catalog.NVLinkBandwidthL6, catalog.NVLinkBandwidthL11, onGPU, "bytes/s", needLink, 6, linkRate(levelNVLinkTx, levelNVLinkRx)},
	{catalog.NVLinkCRCFlitErrorCountL15, catalog.NVLinkCRCFlitErrorCountL17, onGPU, "", needLink, 15, fixed(0)},
	{catalog.NVLinkCRCDataErrorCountL15, catalog.NVLinkCRCDataErrorCountL17, onGPU, "", needLink, 15, fixed(0)},
	{catalog.NVLinkReplayErrorCountL15, catalog.NVLinkReplayErrorCountL17, onGPU, "", needLink, 15, fixed(0)},
	{catalog.NVLinkRecoveryErrorCountL15, catalog.NVLinkRecoveryErrorCountL17, onGPU, "", needLink, 15, fixed(0)},
	{catalog.NVLinkBandwidthL15, catalog.NVLinkBandwidthL17, onGPU, "bytes/s", needLink, 15, linkRate(levelNVLinkTx, levelNVLinkRx)},
	{catalog.NVLinkErrorDlCRC, catalog.NVLinkErrorDlRecovery, onGPU, "", needLink, 0, fixed(0)},
	{catalog.NVLinkErrorDlReplay, catalog.NVLinkErrorDlReplay, onGPU, "", needLink, 0, rare(11)},
	{catalog.NVLinkTXBandwidthL0, catalog.NVLinkTXBandwidthL17, onGPU, "bytes/s", needLink, 0, linkRate(levelNVLinkTx)},
	{catalog.NVLinkTXBandwidthTotal, catalog.NVLinkTXBandwidthTotal, onGPU, "bytes/s", needLink, 0, rate(levelNVLinkTx)},
	{catalog.NVLinkRXBandwidthL0, catalog.NVLinkRXBandwidthL17, onGPU, "bytes/s", needLink, 0, linkRate(levelNVLinkRx)},
	{catalog.NVLinkRXBandwidthTotal, catalog.NVLinkRXBandwidthTotal, onGPU, "bytes/s", needLink, 0, rate(levelNVLinkRx)},
	{catalog.NVLinkCountTXPackets, catalog.NVLinkCountTXPackets, onGPU, "", needLink, 0, sum(levelNVLinkTx, 1.0/256)},
	{catalog.NVLinkCountTXBytes, catalog.NVLinkCountTXBytes, onGPU, "bytes", needLink, 0, sum(levelNVLinkTx, 1)},
	{catalog.NVLinkCountRXPackets, catalog.NVLinkCountRXPackets, onGPU, "", needLink, 0, sum(levelNVLinkRx, 1.0/256)},
	{catalog.NVLinkCountRXBytes, catalog.NVLinkCountRXBytes, onGPU, "bytes", needLink, 0, sum(levelNVLinkRx, 1)},

	{catalog.NVLinkCountRXMalformedPacketErrors, catalog.NVLinkCountSymbolBER, onGPU, "", needNVLink, 0, fixed(0)},
	{catalog.NVLinkCountSymbolBERFloat, catalog.NVLinkCountSymbolBERFloat, onGPU, "ratio", needNVLink, 0, watts(func(*view) float64 { return 1e-15 })},
	{catalog.NVLinkCountEffectiveBER, catalog.NVLinkCountEffectiveBER, onGPU, "", needNVLink, 0, fixed(0)},
	{catalog.NVLinkCountEffectiveBERFloat, catalog.NVLinkCountEffectiveBERFloat, onGPU, "ratio", needNVLink, 0, watts(func(*view) float64 { return 1e-15 })},
	{catalog.NVLinkCountEffectiveErrors, catalog.NVLinkECCDataErrorCountTotal, onGPU, "", needNVLink, 0, fixed(0)},
	{catalog.NVLinkCountFECHistory0, catalog.NVLinkCountFECHistory15, onGPU, "", needNever, 0, nil}, // error correction came with NVLink 5

	// NVLink by link, of GPUs and switches alike.
	{catalog.NVSwitchLinkThroughputTX, catalog.NVSwitchLinkThroughputTX, onLink, "bytes", 0, 0, sum(levelNVLinkTx, 1)},
	{catalog.NVSwitchLinkThroughputRX, catalog.NVSwitchLinkThroughputRX, onLink, "bytes", 0, 0, sum(levelNVLinkRx, 1)},
	{catalog.NVLinkPPRMOperRecovery, catalog.NVLinkPPCNTPLRSyncEvents, onLink, "", 0, 0, nil}, // NVLink 5
	{catalog.NVSwitchLinkReplayErrors, catalog.NVSwitchLinkReplayErrors, onLink, "", 0, 0, rare(31)},
	{catalog.NVSwitchLinkLatencyCountVc0, catalog.NVSwitchLinkLatencyCountVc3, onLink, "", 0, 0, sum(levelNVLinkRx, 1.0/1024)},
	{catalog.NVSwitchLinkID, catalog.NVSwitchLinkID, onLink, "", 0, 0, number(func(v *view) int64 { return int64(v.dev.Link) })},
	{fieldSwitchLinkState, fieldSwitchLinkState, onLink, "", 0, 0, fixed(2)}, // active
	{catalog.NVSwitchLinkType, catalog.NVSwitchLinkType, onLink, "", 0, 0, number(func(v *view) int64 { return 1 + truth(v.dev.Entity.ParentKind == gpu.KindGPU) })},
	{catalog.NVSwitchLinkRemotePCIeDomain, catalog.NVSwitchLinkDeviceLinkID, onLink, "", 0, 0, fixed(0)},
	{catalog.NVSwitchLinkDeviceLinkSid, catalog.NVSwitchDeviceUUID, onLink, "", 0, 0, texts(func(v *view) string { return uuid("", v.key) })},
	{fieldLinkState, fieldLinkState, onLink, "", 0, 0, fixed(1)}, // NVML_NVLINK_STATE_ACTIVE
	{catalog.NVLinkReplayErrorPerLinkTotal, catalog.NVLinkReplayErrorPerLinkTotal, onLink, "", 0, 0, rare(31)},
	{catalog.NVLinkThroughputPerLink, catalog.NVLinkThroughputPerLink, onLink, "bytes/s", 0, 0, rate(levelNVLinkTx, levelNVLinkRx)},
	{catalog.NVLinkTXThroughputPerLink, catalog.NVLinkTXThroughputPerLink, onLink, "bytes/s", 0, 0, rate(levelNVLinkTx)},
	{catalog.NVLinkRXThroughputPerLink, catalog.NVLinkRXThroughputPerLink, onLink, "bytes/s", 0, 0, rate(levelNVLinkRx)},
	{catalog.ProfNVLinkTXBytesPerLink, catalog.ProfNVLinkTXBytesPerLink, onLink, "bytes/s", 0, 0, rate(levelNVLinkTx)},
	{catalog.ProfNVLinkRXBytesPerLink, catalog.ProfNVLinkRXBytesPerLink, onLink, "bytes/s", 0, 0, rate(levelNVLinkRx)},

	// Switches.
	{catalog.NVSwitchVoltageMvolt, catalog.NVSwitchVoltageMvolt, onSwitch, "", 0, 0, fixed(850)},
	{catalog.NVSwitchPowerVdd, catalog.NVSwitchPowerVdd, onSwitch, "watts", 0, 0, watts(func(v *view) float64 { return milli(38 + 6*busyness(v)) })},
	{catalog.NVSwitchPowerDvdd, catalog.NVSwitchPowerDvdd, onSwitch, "watts", 0, 0, watts(func(v *view) float64 { return milli(22 + 18*busyness(v)) })},
	{catalog.NVSwitchPowerHvdd, catalog.NVSwitchPowerHvdd, onSwitch, "watts", 0, 0, watts(func(v *view) float64 { return milli(11 + 2*busyness(v)) })},
	{catalog.NVSwitchTemperatureCurrent, catalog.NVSwitchTemperatureCurrent, onSwitch, "celsius", 0, 0, number(func(v *view) int64 { return int64(38 + 12*busyness(v) + 3*uniform(v.key, 1)) })},
	{catalog.NVSwitchTemperatureLimitSlowdown, catalog.NVSwitchTemperatureLimitSlowdown, onSwitch, "celsius", 0, 0, fixed(105)},
	{catalog.NVSwitchTemperatureLimitShutdown, catalog.NVSwitchTemperatureLimitShutdown, onSwitch, "celsius", 0, 0, fixed(115)},
	{catalog.NVSwitchThroughputTX, catalog.NVSwitchThroughputTX, onSwitch, "bytes", 0, 0, sum(levelNVLinkRx, 1)}, // what GPUs receive, switches send
	{catalog.NVSwitchThroughputRX, catalog.NVSwitchThroughputRX, onSwitch, "bytes", 0, 0, sum(levelNVLinkTx, 1)},
	{catalog.NVSwitchPhysID, catalog.NVSwitchPhysID, onSwitch, "", 0, 0, number(func(v *view) int64 { return int64(v.dev.Entity.ID) + 8 })},
	{catalog.NVSwitchPCIeBus, catalog.NVSwitchPCIeBus, onSwitch, "", 0, 0, number(func(v *view) int64 { return int64(v.dev.Entity.ID) + 5 })},
	{catalog.NVSwitchFirmwareVersion, catalog.NVSwitchFirmwareVersion, onSwitch, "", 0, 0, words("96.10.57.00.01")},

	// Profiling.
	{catalog.ProfGREngineActive, catalog.ProfGREngineActive, onBoth, "ratio", needProfiling, 0, ratio(levelGraphics, 1)},
	{catalog.ProfSMActive, catalog.ProfSMActive, onBoth, "ratio", needProfiling, 0, ratio(levelSM, 1)},
	{catalog.ProfSMOccupancy, catalog.ProfSMOccupancy, onBoth, "ratio", needProfiling, 0, ratio(levelOccupancy, 1)},
	{catalog.ProfPipeTensorActive, catalog.ProfPipeTensorActive, onBoth, "ratio", needProfiling, 0, ratio(levelTensor, 1)},
	{catalog.ProfDRAMActive, catalog.ProfDRAMActive, onBoth, "ratio", needProfiling, 0, ratio(levelDRAM, 1)},
	{catalog.ProfPipeFP64Active, catalog.ProfPipeFP64Active, onBoth, "ratio", needProfiling, 0, ratio(levelFP64, 1)},
	{catalog.ProfPipeFP32Active, catalog.ProfPipeFP32Active, onBoth, "ratio", needProfiling, 0, ratio(levelFP32, 1)},
	{catalog.ProfPipeFP16Active, catalog.ProfPipeFP16Active, onBoth, "ratio", needProfiling, 0, ratio(levelFP16, 1)},
	{catalog.ProfPCIeTXBytes, catalog.ProfPCIeTXBytes, onGPU, "bytes/s", needProfiling, 0, rate(levelPCIeTx)},
	{catalog.ProfPCIeRXBytes, catalog.ProfPCIeRXBytes, onGPU, "bytes/s", needProfiling, 0, rate(levelPCIeRx)},
	{catalog.ProfNVLinkTXBytes, catalog.ProfNVLinkTXBytes, onGPU, "bytes/s", needProfiling | needLink, 0, rate(levelNVLinkTx)},
	{catalog.ProfNVLinkRXBytes, catalog.ProfNVLinkRXBytes, onGPU, "bytes/s", needProfiling | needLink, 0, rate(levelNVLinkRx)},
	{catalog.ProfPipeTensorIMMAActive, catalog.ProfPipeTensorIMMAActive, onBoth, "ratio", needProfiling, 0, ratio(levelTensor, 0.06)}, // the tensor pipe's parts
	{catalog.ProfPipeTensorHMMAActive, catalog.ProfPipeTensorHMMAActive, onBoth, "ratio", needProfiling, 0, ratio(levelTensor, 0.93)},
	{catalog.ProfPipeTensorDFMAActive, catalog.ProfPipeTensorDFMAActive, onBoth, "ratio", needProfiling, 0, ratio(levelTensor, 0.01)},
	{catalog.ProfPipeIntActive, catalog.ProfPipeIntActive, onBoth, "ratio", needProfiling, 0, ratio(levelInteger, 1)},
	{catalog.ProfNvdec0Active, catalog.ProfNvdec7Active, onBoth, "ratio", needProfiling, 0, engine(levelDecoder, 7)},
	{catalog.ProfNvjpg0Active, catalog.ProfNvjpg7Active, onBoth, "ratio", needProfiling, 0, engine(levelJPEG, 7)},
	{catalog.ProfNvofa0Active, catalog.ProfNvofa1Active, onBoth, "ratio", needProfiling, 0, engine(levelFlow, 2)},
	{catalog.ProfNVLinkL0TXBytes, catalog.ProfNVLinkL17RXBytes, onGPU, "bytes/s", needProfiling | needLinkPair, 0, func(v *view, n int) gpu.Value { return linkOf(v, levelNVLinkTx+n%2) }},
	{catalog.ProfC2CTXAllBytes, catalog.ProfC2CTXDataBytes, onGPU, "bytes/s", needProfiling | needC2C, 0, rate(levelPCIeTx)},
	{catalog.ProfC2CRXAllBytes, catalog.ProfC2CRXDataBytes, onGPU, "bytes/s", needProfiling | needC2C, 0, rate(levelPCIeRx)},
	{catalog.ProfHostmemCacheHit, catalog.ProfPeermemCacheMiss, onGPU, "percent", needProfiling, 0, func(_ *view, n int) gpu.Value { return gpu.Int(int64(95 - 90*(n%2))) }},
	{catalog.ProfSMCyclesElapsedTotal, catalog.ProfSMCyclesElapsedTotal, onBoth, "", needProfiling, 0, cycles(-1)},
	{catalog.ProfSMCyclesActiveTotal, catalog.ProfSMCyclesActiveTotal, onBoth, "", needProfiling, 0, cycles(levelSM)},
	{catalog.ProfMMACyclesActiveTotal, catalog.ProfMMACyclesActiveTotal, onBoth, "", needProfiling, 0, cycles(levelTensor)},
	{catalog.ProfDMMACyclesActiveTotal, catalog.ProfDMMACyclesActiveTotal, onBoth, "", needProfiling, 0, fixed(0)},
	{catalog.ProfHMMACyclesActiveTotal, catalog.ProfHMMACyclesActiveTotal, onBoth, "", needProfiling, 0, cycles(levelTensor)},
	{catalog.ProfIMMACyclesActiveTotal, catalog.ProfDFMACyclesActiveTotal, onBoth, "", needProfiling, 0, fixed(0)},
	{catalog.ProfPCIeTXBytesTotal, catalog.ProfPCIeTXBytesTotal, onBoth, "bytes", needProfiling, 0, sum(levelPCIeTx, 1)},
	{catalog.ProfPCIeRXBytesTotal, catalog.ProfPCIeRXBytesTotal, onBoth, "bytes", needProfiling, 0, sum(levelPCIeRx, 1)},
	{catalog.ProfIntCyclesActiveTotal, catalog.ProfIntCyclesActiveTotal, onBoth, "", needProfiling, 0, cycles(levelInteger)},
	{catalog.ProfFP64CyclesActiveTotal, catalog.ProfFP64CyclesActiveTotal, onBoth, "", needProfiling, 0, cycles(levelFP64)},
	{catalog.ProfFP32CyclesActiveTotal, catalog.ProfFP32CyclesActiveTotal, onBoth, "", needProfiling, 0, cycles(levelFP32)},
	{catalog.ProfFP16CyclesActiveTotal, catalog.ProfFP16CyclesActiveTotal, onBoth, "", needProfiling, 0, cycles(levelFP16)},

	// Chip-to-chip links.
	{catalog.C2CLinkCount, catalog.C2CLinkCount, onGPU, "", needC2C, 0, number(func(v *view) int64 { return v.board.C2C })},
	{catalog.C2CLinkStatus, catalog.C2CLinkStatus, onGPU, "", needC2C, 0, fixed(1)},
	{catalog.C2CMaxBandwidth, catalog.C2CMaxBandwidth, onGPU, "bytes/s", needC2C, 0, number(func(v *view) int64 { return v.board.C2C * 90e9 })},
	{catalog.C2CLinkErrorIntr, catalog.C2CLinkErrorReplayB2b, onGPU, "", needC2C, 0, fixed(0)},
	{catalog.C2CLinkPowerState, catalog.C2CLinkPowerState, onGPU, "", needC2C, 0, fixed(1)},

	// ConnectX network cards.
	{catalog.ConnectXHealth, catalog.ConnectXHealth, onCard, "", 0, 0, fixed(1)}, // good
	{catalog.ConnectXActivePCIeLinkWidth, catalog.ConnectXActivePCIeLinkWidth, onCard, "", 0, 0, number(func(v *view) int64 { return v.card.Active })},
	{catalog.ConnectXActivePCIeLinkSpeed, catalog.ConnectXActivePCIeLinkSpeed, onCard, "", 0, 0, number(func(v *view) int64 { return v.card.Speed })},
	{catalog.ConnectXExpectPCIeLinkWidth, catalog.ConnectXExpectPCIeLinkWidth, onCard, "", 0, 0, number(func(v *view) int64 { return v.card.Width })},
	{catalog.ConnectXExpectPCIeLinkSpeed, catalog.ConnectXExpectPCIeLinkSpeed, onCard, "", 0, 0, number(func(v *view) int64 { return v.card.Speed })},
	{catalog.ConnectXCorrectableErrStatus, catalog.ConnectXUncorrectableErrSeverity, onCard, "", 0, 0, fixed(0)},
	{catalog.ConnectXDeviceTemperature, catalog.ConnectXDeviceTemperature, onCard, "celsius", 0, 0, func(v *view, _ int) gpu.Value {
		return gpu.Float(milli(46 + 8*uniform(v.key, 1) + 3*smooth(v.key, float64(v.world.at)/1e9, 60)))
	}},

	// Grace CPUs and their cores.
	{catalog.CPUUtilTotal, catalog.CPUUtilTotal, onCPU, "ratio", 0, 0, func(v *view, _ int) gpu.Value { return gpu.Float(cpuBusy(v)) }},
	{catalog.CPUUtilUser, catalog.CPUUtilUser, onCPU, "ratio", 0, 0, func(v *view, _ int) gpu.Value { return gpu.Float(cpuBusy(v) * 0.82) }},
	{catalog.CPUUtilNice, catalog.CPUUtilNice, onCPU, "ratio", 0, 0, func(*view, int) gpu.Value { return gpu.Float(0) }},
	{catalog.CPUUtilSys, catalog.CPUUtilSys, onCPU, "ratio", 0, 0, func(v *view, _ int) gpu.Value { return gpu.Float(cpuBusy(v) * 0.16) }},
	{catalog.CPUUtilIrq, catalog.CPUUtilIrq, onCPU, "ratio", 0, 0, func(v *view, _ int) gpu.Value { return gpu.Float(cpuBusy(v) * 0.02) }},
	{catalog.CPUTempCurrent, catalog.CPUTempCurrent, onCPU, "celsius", 0, 0, func(v *view, _ int) gpu.Value { return gpu.Float(milli(34 + 34*cpuBusy(v))) }},
	{catalog.CPUTempWarning, catalog.CPUTempWarning, onCPU, "celsius", 0, 0, func(*view, int) gpu.Value { return gpu.Float(85) }},
	{catalog.CPUTempCritical, catalog.CPUTempCritical, onCPU, "celsius", 0, 0, func(*view, int) gpu.Value { return gpu.Float(95) }},
	{catalog.CPUClockCurrent, catalog.CPUClockCurrent, onCPU, "kHz", 0, 0, number(func(v *view) int64 { return int64(v.cpu.Clock*(0.75+0.25*cpuBusy(v))) * 1000 })},
	{catalog.CPUPowerUtilCurrent, catalog.CPUPowerUtilCurrent, onCPU, "watts", 0, 0, watts(cpuPower)},
	{catalog.CPUPowerLimit, catalog.CPUPowerLimit, onCPU, "watts", 0, 0, watts(func(v *view) float64 { return v.cpu.Limit })},
	{catalog.SysioPowerUtilCurrent, catalog.SysioPowerUtilCurrent, onCPU, "watts", 0, 0, watts(func(v *view) float64 { return milli(24 + 4*cpuBusy(v)) })},
	{catalog.ModulePowerUtilCurrent, catalog.ModulePowerUtilCurrent, onCPU, "watts", 0, 0, watts(modulePower)},
	{catalog.CPUVendor, catalog.CPUVendor, onCPU, "", 0, 0, texts(func(v *view) string { return v.cpu.Vendor })},
	{catalog.CPUModel, catalog.CPUModel, onCPU, "", 0, 0, texts(func(v *view) string { return v.cpu.Model })},
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// present is how many GPUs are bound to the driver.
func present(v *view) int64 {
	n := int64(0)
	for i := range v.world.gpus {
		n += truth(!v.world.gpus[i].gone)
	}
	return n
}

// throttleTime is a generator of the nanoseconds for which the scenario let one of the clock-event
// reasons in mask hold.
func throttleTime(mask int64) generator {
	return func(v *view, _ int) gpu.Value { return gpu.Int(v.gpu.throttledFor(mask, v.world.at)) }
}

// milli rounds to thousandths, as the driver reports power.
func milli(x float64) float64 { return math.Round(x*1e3) / 1e3 }

// stepped rounds a clock in MHz to the steps of GPU clocks.
func stepped(mhz float64) gpu.Value { return whole(math.Round(mhz/clockStep) * clockStep) }

func memoryClock(v *view) int64 {
	if v.track.now[levelGraphics] < busy {
		return int64(v.board.Clocks.MemoryIdle)
	}
	return int64(v.board.Clocks.Memory)
}

func serial(v *view) string { return v.board.Serial + strconv.FormatUint(1e6+v.key%9e6, 10) }

func computeCapability(v *view) int64 {
	major, minor, _ := strings.Cut(v.board.Compute, ".")
	a, _ := strconv.ParseInt(major, 10, 16)
	b, _ := strconv.ParseInt(minor, 10, 16)
	return a<<16 | b
}

// peers is the mask of the other GPUs that NVLink reaches.
func peers(v *view) int64 {
	mask := int64(0)
	for i := range v.world.gpus {
		if v.world.linked(v.gpu, &v.world.gpus[i]) {
			mask |= 1 << i
		}
	}
	return mask
}

func visible(v *view) string {
	if v.slot == nil {
		return v.dev.UUID
	}
	return v.dev.MIGUUID
}

// affinity is the mask of the 64 CPUs from 64·n on that are near the GPU.
func affinity(v *view, n int) gpu.Value {
	_, first, last := v.world.home(v.gpu)
	mask := int64(0)
	for cpu := max(first, n*64); cpu <= min(last, n*64+63); cpu++ {
		mask |= 1 << (cpu - n*64)
	}
	return gpu.Int(mask)
}

func bar1(v *view) int64 { return v.board.BAR1 * v.total / v.board.Memory }

func bar1Used(v *view) int64 { return min(2+int64(4*v.track.now[levelPCIeRx]/1e9), bar1(v)) }

// remapped is how many rows (or pages) were given up on the GPU: none on most.
func remapped(v *view) int64 {
	if mix(v.key^3)%16 == 0 {
		return 1
	}
	return 0
}

// aged is rare with a past: aggregate counters began before volatile ones.
func aged(before int64, one uint64) generator {
	recent := rare(one)
	return func(v *view, _ int) gpu.Value {
		n, _ := recent(v, 0).Int64()
		if n > 0 {
			n += before
		}
		return gpu.Int(n)
	}
}

// linkOf is the sum of levels on one of the GPU's links.
func linkOf(v *view, levels ...int) gpu.Value {
	sum := 0.0
	for _, l := range levels {
		sum += v.track.now[l]
	}
	return whole(sum / float64(max(v.board.NVLink.Links, 1)))
}

// cycles is a generator of the SM cycles in which a pipe was active, or of all of them for level
// -1, at the board's clock.
func cycles(level int) generator {
	return func(v *view, _ int) gpu.Value {
		seconds := float64(v.world.at-v.world.start) / 1e9
		if level >= 0 {
			seconds = v.track.total[level]
		}
		return whole(seconds * v.board.Clocks.SM * 1e6)
	}
}

// busyness is the share of its links' rate that a switch carries.
func busyness(v *view) float64 {
	traffic := (v.track.now[levelNVLinkTx] + v.track.now[levelNVLinkRx]) * v.part
	return min(traffic/1e12, 1) * (0.9 + 0.1*uniform(v.key, 2))
}

// cpuBusy is how busy a CPU or core is. A CPU is the mean of its cores in all but detail.
func cpuBusy(v *view) float64 {
	t := float64(v.world.at) / 1e9
	base := 0.25 + 0.2*smooth(v.key>>32<<32, t, 60)
	if v.dev.Entity.Kind == gpu.KindCPUCore {
		base += 0.2 * smooth(v.key, t, 5)
	}
	return min(max(base, 0), 1)
}

func cpuPower(v *view) float64 { return milli(v.cpu.Idle + (v.cpu.Limit-v.cpu.Idle)*cpuBusy(v)) }

// modulePower is the power of the superchip: the CPU and the GPU beside it.
func modulePower(v *view) float64 {
	sum := cpuPower(v) + 24
	if v.gpu != nil {
		sum += v.gpu.now[levelPower]
	}
	return milli(sum)
}

// fallback makes a value for a field that the model does not know: a text of its own, or the least
// number that the catalog allows, which for the counters of errors is 0.
func fallback(f *gpu.Field) generator {
	if f.Text {
		name := strings.ToLower(strings.TrimPrefix(f.Name, "DCGM_FI_DEV_"))
		return func(v *view, _ int) gpu.Value { return gpu.Text(name + "-" + strconv.FormatUint(v.key%1e4, 10)) }
	}
	if f.Bounded() && f.Min > 0 {
		return fixed(int64(math.Ceil(f.Min)))
	}
	return fixed(0)
}
