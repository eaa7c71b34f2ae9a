package sim

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The fields with a life of their own (dcgm_fields.h).
const (
	fieldClockReasons = 112
	fieldXID          = 230
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

// A generator computes a value of a row; n is the number within the rule,
// usually a link.
type generator func(v *view, n int) gpu.Value

// needs are what a GPU must have for a field to exist on it.
type needs uint32

const (
	needWhole      needs = 1 << iota // not cut by MIG: utilisation is undefined on MIG parents
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

// met reports whether the board, and the way in which it is cut, have all
// that is needed.
func (need needs) met(v *view, n int) bool {
	b := v.board
	has := func(bit needs, ok bool) bool { return need&bit == 0 || ok }
	return has(needWhole, !v.gpu.cut) &&
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

// A rule says how the fields of a range of ids come about on some kinds of
// entities. The first rule that covers a field and kind counts.
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
	onBoth   = 1<<gpu.KindGPU | 1<<gpu.KindGPUInstance | 1<<gpu.KindComputeInstance
	onCard   = 1 << gpu.KindConnectX
	onLink   = 1 << gpu.KindNVLink
	onSwitch = 1 << gpu.KindNVSwitch
	onCPU    = 1<<gpu.KindCPU | 1<<gpu.KindCPUCore
	// A plan reads what the machine says for every GPU, and as a label for
	// every instance.
	onNode = 1<<gpu.KindNode | onBoth
)

// ruleFor returns the rule for a field on a kind of entity, nil where the
// model has none.
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

// rare is a generator of counters of errors that hardly ever happen: about one
// entity in `one` has some, and then a new one every few days.
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

// rules are the fields that the model knows, by DCGM's numbers. Everything
// else comes from fallback.
var rules = []rule{
	// The machine.
	{1, 1, onNode, "", 0, 0, texts(func(v *view) string { return v.world.driver })},
	{2, 2, onNode, "", 0, 0, texts(func(v *view) string { return "12." + v.world.driver })},
	{3, 3, onNode, "", 0, 0, words("nv-hostengine")},
	{4, 4, onNode, "", 0, 0, number(present)},
	{5, 5, onNode, "", 0, 0, number(func(v *view) int64 { return v.spec.CUDA })},
	{6, 6, onNode, "", 0, 0, fixed(2)},
	{1502, 1502, onNode, "", 0, 0, words("UP")},
	{1503, 1503, onNode, "", 0, 0, fixed(5)},

	// Identity.
	{50, 50, onGPU, "", 0, 0, texts(func(v *view) string { return v.board.Model })},
	{51, 51, onGPU, "", 0, 0, texts(func(v *view) string { return v.board.Brand })},
	{52, 52, onGPU, "", 0, 0, number(func(v *view) int64 { return int64(v.dev.NVMLIndex) })},
	{53, 53, onGPU, "", needSerial, 0, texts(serial)},
	{54, 54, onGPU, "", 0, 0, texts(func(v *view) string { return v.dev.UUID })},
	{55, 55, onGPU, "", 0, 0, number(func(v *view) int64 { return int64(v.dev.Minor) })},
	{56, 56, onGPU, "", 0, 0, words("2.1")},
	{57, 57, onGPU, "", 0, 0, texts(func(v *view) string { return v.dev.PCIBusID })},
	{58, 59, onGPU, "", 0, 0, number(func(v *view) int64 { return int64(keyOf(0, v.board.Name)>>48<<16 | 0x10de) })},
	{63, 63, onGPU, "", 0, 0, number(computeCapability)},
	{64, 64, onGPU, "", 0, 0, number(peers)},
	{65, 65, onGPU, "", 0, 0, fixed(0)},
	{66, 66, onGPU, "", 0, 0, fixed(1)},
	{67, 67, onGPU, "", needMIG, 0, number(func(v *view) int64 { return truth(v.gpu.cut) })},
	{68, 68, onBoth, "", 0, 0, texts(visible)},
	{69, 69, onGPU, "", needMIG, 0, number(func(v *view) int64 { return int64(v.board.MIG.ComputeSlices) })},
	{70, 73, onGPU, "", 0, 0, affinity},
	{74, 74, onGPU, "", 0, 0, fixed(0)},
	{80, 80, onGPU, "", needECC, 0, words("7.16")},
	{81, 81, onGPU, "", needSerial, 0, words("1.0")},
	{82, 82, onGPU, "", needSerial, 0, texts(func(v *view) string { return "G" + v.board.Serial[3:] + ".0200.00.01" })},
	{83, 83, onGPU, "", 0, 0, number(func(v *view) int64 { return int64(keyOf(1, v.board.Name) >> 34) })},
	{84, 84, onGPU, "", 0, 0, fixed(1)},
	{85, 85, onGPU, "", 0, 0, texts(func(v *view) string { return v.board.VBIOS })},
	{86, 89, onGPU, "", 0, 0, func(_ *view, n int) gpu.Value { return gpu.Int(truth(n == 0)) }},
	{94, 94, onGPU, "", 0, 0, number(func(v *view) int64 { return truth(v.board.GPM) })},
	{571, 577, onGPU, "", needNever, 0, nil},

	// Clocks.
	{100, 100, onGPU, "MHz", 0, 0, func(v *view, _ int) gpu.Value { return stepped(v.track.now[levelClock] * v.gpu.slowed(v.world.at)) }},
	{101, 101, onGPU, "MHz", 0, 0, number(memoryClock)},
	{102, 102, onGPU, "MHz", 0, 0, func(v *view, _ int) gpu.Value {
		return stepped(v.track.now[levelClock] * v.gpu.slowed(v.world.at) * v.board.Clocks.Video / v.board.Clocks.SM)
	}},
	{110, 110, onGPU, "MHz", 0, 0, number(func(v *view) int64 { return int64(v.board.Clocks.SM) })},
	{111, 111, onGPU, "MHz", 0, 0, number(func(v *view) int64 { return int64(v.board.Clocks.Memory) })},
	{fieldClockReasons, fieldClockReasons, onGPU, "", 0, 0, number(func(v *view) int64 {
		return reasonMask(&v.track.now) | v.gpu.scripted(v.world.at)
	})},
	{113, 113, onGPU, "MHz", 0, 0, number(func(v *view) int64 { return int64(v.board.Clocks.SM) })},
	{114, 114, onGPU, "MHz", 0, 0, number(func(v *view) int64 { return int64(v.board.Clocks.Memory) })},
	{115, 115, onGPU, "MHz", 0, 0, number(func(v *view) int64 { return int64(v.board.Clocks.Video) })},
	{120, 120, onGPU, "", needNever, 0, nil}, // auto boost ended with Kepler
	{190, 190, onGPU, "", 0, 0, number(func(v *view) int64 {
		if v.track.now[levelGraphics] < busy {
			return v.board.IdleState
		}
		return 0
	})},

	// Temperature, power and energy.
	{140, 140, onGPU, "celsius", needMemoryTemp, 0, func(v *view, _ int) gpu.Value { return whole(v.track.now[levelMemoryTemp]) }},
	{150, 150, onGPU, "celsius", 0, 0, func(v *view, _ int) gpu.Value { return whole(v.track.now[levelTemp]) }},
	{151, 151, onGPU, "celsius", needMemoryTemp, 0, number(func(v *view) int64 { return int64(v.board.Temperature.MemoryOperating) })},
	{152, 152, onGPU, "celsius", 0, 0, number(func(v *view) int64 { return int64(v.board.Temperature.Operating) })},
	{153, 153, onGPU, "celsius", 0, 0, number(func(v *view) int64 {
		return int64(v.board.Temperature.Operating) - int64(v.track.now[levelTemp])
	})},
	{158, 158, onGPU, "celsius", 0, 0, number(func(v *view) int64 { return int64(v.board.Temperature.Slowdown) })},
	{159, 159, onGPU, "celsius", 0, 0, number(func(v *view) int64 { return int64(v.board.Temperature.Shutdown) })},
	{155, 155, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return milli(v.track.now[levelPower]) })},
	{157, 157, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return milli(v.track.now[levelPower]) })},
	{156, 156, onGPU, "mJ", needEnergy, 0, func(v *view, _ int) gpu.Value {
		// The driver was loaded some time before the world began.
		return whole(v.track.total[levelPower]*1e3 + math.Floor(uniform(v.key, 7)*1e6)*v.board.Power.Idle*1e3)
	}},
	{160, 160, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return v.gpu.spec.limit })},
	{161, 161, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return v.board.Power.Min })},
	{162, 162, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return v.board.Power.Max })},
	{163, 163, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return v.board.Power.Limit })},
	{164, 164, onGPU, "watts", 0, 0, watts(func(v *view) float64 { return v.gpu.spec.limit })},
	{191, 191, onGPU, "percent", needFan, 0, number(func(v *view) int64 {
		return int64(30 + 70*max(0, v.track.now[levelTemp]-50)/50)
	})},
	{240, 240, onGPU, "ns", 0, 0, sum(levelCapped, 1e9)},
	{241, 241, onGPU, "ns", 0, 0, held(0x20 | 0x40)},
	{242, 242, onGPU, "ns", 0, 0, held(0x10)},
	{243, 243, onGPU, "ns", 0, 0, fixed(0)},
	{244, 244, onGPU, "ns", 0, 0, fixed(0)},
	{245, 247, onGPU, "ns", 0, 0, fixed(0)},
	{1420, 1420, onGPU, "ns", 0, 0, sum(levelCapped, 1e9)},
	{1421, 1421, onGPU, "ns", 0, 0, held(0x10)},
	{1422, 1422, onGPU, "ns", 0, 0, held(0x20)},
	{1423, 1423, onGPU, "ns", 0, 0, held(0x40)},
	{1424, 1424, onGPU, "ns", 0, 0, held(0x80)},
	{1425, 1442, onGPU, "", needNever, 0, nil}, // power smoothing came with Blackwell

	// Fabric.
	{170, 170, onGPU, "", needLink, 0, fixed(3)}, // dcgmFabricManagerStatus_t: success
	{171, 171, onGPU, "", needLink, 0, fixed(0)},
	{172, 172, onGPU, "", needLink, 0, texts(func(v *view) string { return uuid("", keyOf(v.world.seed, "fabric "+v.spec.Name)) })},
	{173, 174, onGPU, "", needLink, 0, fixed(0)},
	{175, 175, onGPU, "", needLink, 0, fixed(1)}, // healthy

	// PCIe.
	{200, 200, onGPU, "bytes/s", 0, 0, rate(levelPCIeTx)},
	{201, 201, onGPU, "bytes/s", 0, 0, rate(levelPCIeRx)},
	{202, 202, onGPU, "", 0, 0, rare(9)},
	{fieldXID, fieldXID, onGPU, "", 0, 0, fixed(0)},
	{235, 235, onGPU, "", 0, 0, number(func(v *view) int64 { return v.board.PCIe.Generation })},
	{236, 236, onGPU, "", 0, 0, number(func(v *view) int64 { return v.board.PCIe.Width })},
	{237, 237, onGPU, "", 0, 0, number(func(v *view) int64 {
		if v.board.IdleState != 0 && v.track.now[levelGraphics] < busy {
			return 1
		}
		return v.board.PCIe.Generation
	})},
	{238, 238, onGPU, "", 0, 0, number(func(v *view) int64 { return v.board.PCIe.Width })},
	{1501, 1501, onGPU, "", 0, 0, rare(7)},

	// Utilisation, as nvidia-smi shows it.
	{203, 203, onGPU, "percent", needWhole, 0, percent(levelGraphics)},
	{204, 204, onGPU, "percent", needWhole, 0, percent(levelDRAM)},
	{206, 206, onGPU, "percent", needWhole, 0, percent(levelEncoder)},
	{207, 207, onGPU, "percent", needWhole, 0, percent(levelDecoder)},

	// Memory.
	{90, 90, onBoth, "MiB", 0, 0, number(bar1)},
	{92, 92, onBoth, "MiB", 0, 0, number(bar1Used)},
	{93, 93, onBoth, "MiB", 0, 0, number(func(v *view) int64 { return bar1(v) - bar1Used(v) })},
	{250, 250, onBoth, "MiB", 0, 0, number(func(v *view) int64 { return v.total })},
	{251, 251, onBoth, "MiB", 0, 0, number(func(v *view) int64 { return v.total - v.reserved - memoryUsed(v) })},
	{252, 252, onBoth, "MiB", 0, 0, number(memoryUsed)},
	{253, 253, onBoth, "MiB", 0, 0, number(func(v *view) int64 { return v.reserved })},
	{254, 254, onBoth, "ratio", 0, 0, watts(func(v *view) float64 {
		return float64(memoryUsed(v)) / float64(v.total-v.reserved)
	})},

	// Errors of the memory.
	{300, 301, onGPU, "", needECC, 0, fixed(1)},
	{310, 310, onGPU, "", needECC, 0, aged(0, 24)},
	{312, 312, onGPU, "", needECC, 0, aged(5, 24)},
	{318, 318, onGPU, "", needECC, 0, aged(0, 24)},
	{328, 328, onGPU, "", needECC, 0, aged(5, 24)},
	{310, 345, onGPU, "", needECC, 0, fixed(0)},
	{346, 346, onGPU, "", needECC, 0, fixed(0)},
	{385, 385, onGPU, "", needRemap, 0, func(v *view, _ int) gpu.Value { return gpu.Int(640 - remapped(v)) }},
	{386, 386, onGPU, "", needRemap, 0, number(remapped)},
	{387, 389, onGPU, "", needRemap, 0, fixed(0)},
	{390, 390, onGPU, "", needRetire, 0, number(remapped)},
	{391, 392, onGPU, "", needRetire, 0, fixed(0)},
	{393, 393, onGPU, "", needRemap, 0, fixed(0)},
	{394, 394, onGPU, "", needRemap, 0, number(remapped)},
	{395, 396, onGPU, "", needRemap, 0, fixed(0)},
	{1507, 1507, onGPU, "", needECC, 0, fixed(0)},
	{1523, 1523, onGPU, "", 0, 0, fixed(0)},

	// Virtual GPUs: none here, and a licence is only theirs.
	{500, 500, onGPU, "", 0, 0, fixed(0)},
	{526, 526, onGPU, "", 0, 0, fixed(0)},

	// NVLink of GPUs. Link numbers are out of order in the ids.
	{409, 409, onGPU, "", needLink, 0, fixed(0)},
	{419, 419, onGPU, "", needLink, 0, fixed(0)},
	{429, 429, onGPU, "", needLink, 0, rare(11)},
	{439, 439, onGPU, "", needLink, 0, fixed(0)},
	{400, 405, onGPU, "", needLink, 0, fixed(0)},
	{406, 408, onGPU, "", needLink, 12, fixed(0)},
	{410, 415, onGPU, "", needLink, 0, fixed(0)},
	{416, 418, onGPU, "", needLink, 12, fixed(0)},
	{420, 425, onGPU, "", needLink, 0, fixed(0)},
	{426, 428, onGPU, "", needLink, 12, fixed(0)},
	{430, 435, onGPU, "", needLink, 0, fixed(0)},
	{436, 438, onGPU, "", needLink, 12, fixed(0)},
	{440, 445, onGPU, "bytes/s", needLink, 0, linkRate(levelNVLinkTx, levelNVLinkRx)},
	{446, 448, onGPU, "bytes/s", needLink, 12, linkRate(levelNVLinkTx, levelNVLinkRx)},
	{449, 449, onGPU, "bytes/s", needLink, 0, rate(levelNVLinkTx, levelNVLinkRx)},
	{450, 450, onGPU, "", needLink, 0, fixed(0)},
	{451, 456, onGPU, "", needLink, 6, fixed(0)},
	{457, 462, onGPU, "", needLink, 6, fixed(0)},
	{463, 468, onGPU, "", needLink, 6, fixed(0)},
	{469, 474, onGPU, "", needLink, 6, fixed(0)},
	{475, 480, onGPU, "bytes/s", needLink, 6, linkRate(levelNVLinkTx, levelNVLinkRx)},
	{481, 483, onGPU, "", needLink, 15, fixed(0)},
	{484, 486, onGPU, "", needLink, 15, fixed(0)},
	{487, 489, onGPU, "", needLink, 15, fixed(0)},
	{491, 493, onGPU, "", needLink, 15, fixed(0)},
	{494, 496, onGPU, "bytes/s", needLink, 15, linkRate(levelNVLinkTx, levelNVLinkRx)},
	{497, 498, onGPU, "", needLink, 0, fixed(0)},
	{499, 499, onGPU, "", needLink, 0, rare(11)},
	{825, 842, onGPU, "bytes/s", needLink, 0, linkRate(levelNVLinkTx)},
	{843, 843, onGPU, "bytes/s", needLink, 0, rate(levelNVLinkTx)},
	{879, 896, onGPU, "bytes/s", needLink, 0, linkRate(levelNVLinkRx)},
	{897, 897, onGPU, "bytes/s", needLink, 0, rate(levelNVLinkRx)},
	{1200, 1200, onGPU, "", needLink, 0, sum(levelNVLinkTx, 1.0/256)},
	{1201, 1201, onGPU, "bytes", needLink, 0, sum(levelNVLinkTx, 1)},
	{1202, 1202, onGPU, "", needLink, 0, sum(levelNVLinkRx, 1.0/256)},
	{1203, 1203, onGPU, "bytes", needLink, 0, sum(levelNVLinkRx, 1)},

	{1204, 1215, onGPU, "", needNVLink, 0, fixed(0)},
	{1216, 1216, onGPU, "ratio", needNVLink, 0, watts(func(*view) float64 { return 1e-15 })},
	{1217, 1217, onGPU, "", needNVLink, 0, fixed(0)},
	{1218, 1218, onGPU, "ratio", needNVLink, 0, watts(func(*view) float64 { return 1e-15 })},
	{1219, 1220, onGPU, "", needNVLink, 0, fixed(0)},
	{1404, 1419, onGPU, "", needNever, 0, nil}, // error correction came with NVLink 5

	// NVLink by link, of GPUs and switches alike.
	{780, 780, onLink, "bytes", 0, 0, sum(levelNVLinkTx, 1)},
	{781, 781, onLink, "bytes", 0, 0, sum(levelNVLinkRx, 1)},
	{580, 592, onLink, "", 0, 0, nil}, // NVLink 5
	{784, 784, onLink, "", 0, 0, rare(31)},
	{805, 808, onLink, "", 0, 0, sum(levelNVLinkRx, 1.0/1024)},
	{865, 865, onLink, "", 0, 0, number(func(v *view) int64 { return int64(v.dev.Link) })},
	{fieldSwitchLinkState, fieldSwitchLinkState, onLink, "", 0, 0, fixed(2)}, // active
	{871, 871, onLink, "", 0, 0, number(func(v *view) int64 { return 1 + truth(v.dev.Entity.ParentKind == gpu.KindGPU) })},
	{872, 876, onLink, "", 0, 0, fixed(0)},
	{877, 878, onLink, "", 0, 0, texts(func(v *view) string { return uuid("", v.key) })},
	{fieldLinkState, fieldLinkState, onLink, "", 0, 0, fixed(1)}, // NVML_NVLINK_STATE_ACTIVE
	{1527, 1527, onLink, "", 0, 0, rare(31)},
	{1529, 1529, onLink, "bytes/s", 0, 0, rate(levelNVLinkTx, levelNVLinkRx)},
	{1530, 1530, onLink, "bytes/s", 0, 0, rate(levelNVLinkTx)},
	{1531, 1531, onLink, "bytes/s", 0, 0, rate(levelNVLinkRx)},
	{1532, 1532, onLink, "bytes/s", 0, 0, rate(levelNVLinkTx)},
	{1533, 1533, onLink, "bytes/s", 0, 0, rate(levelNVLinkRx)},

	// Switches.
	{701, 701, onSwitch, "", 0, 0, fixed(850)},
	{705, 705, onSwitch, "watts", 0, 0, watts(func(v *view) float64 { return milli(38 + 6*busyness(v)) })},
	{706, 706, onSwitch, "watts", 0, 0, watts(func(v *view) float64 { return milli(22 + 18*busyness(v)) })},
	{707, 707, onSwitch, "watts", 0, 0, watts(func(v *view) float64 { return milli(11 + 2*busyness(v)) })},
	{858, 858, onSwitch, "celsius", 0, 0, number(func(v *view) int64 { return int64(38 + 12*busyness(v) + 3*uniform(v.key, 1)) })},
	{859, 859, onSwitch, "celsius", 0, 0, fixed(105)},
	{860, 860, onSwitch, "celsius", 0, 0, fixed(115)},
	{861, 861, onSwitch, "bytes", 0, 0, sum(levelNVLinkRx, 1)}, // what GPUs receive, switches send
	{862, 862, onSwitch, "bytes", 0, 0, sum(levelNVLinkTx, 1)},
	{863, 863, onSwitch, "", 0, 0, number(func(v *view) int64 { return int64(v.dev.Entity.ID) + 8 })},
	{867, 867, onSwitch, "", 0, 0, number(func(v *view) int64 { return int64(v.dev.Entity.ID) + 5 })},
	{1524, 1524, onSwitch, "", 0, 0, words("96.10.57.00.01")},

	// Profiling.
	{1001, 1001, onBoth, "ratio", needProfiling, 0, ratio(levelGraphics, 1)},
	{1002, 1002, onBoth, "ratio", needProfiling, 0, ratio(levelSM, 1)},
	{1003, 1003, onBoth, "ratio", needProfiling, 0, ratio(levelOccupancy, 1)},
	{1004, 1004, onBoth, "ratio", needProfiling, 0, ratio(levelTensor, 1)},
	{1005, 1005, onBoth, "ratio", needProfiling, 0, ratio(levelDRAM, 1)},
	{1006, 1006, onBoth, "ratio", needProfiling, 0, ratio(levelFP64, 1)},
	{1007, 1007, onBoth, "ratio", needProfiling, 0, ratio(levelFP32, 1)},
	{1008, 1008, onBoth, "ratio", needProfiling, 0, ratio(levelFP16, 1)},
	{1009, 1009, onGPU, "bytes/s", needProfiling, 0, rate(levelPCIeTx)},
	{1010, 1010, onGPU, "bytes/s", needProfiling, 0, rate(levelPCIeRx)},
	{1011, 1011, onGPU, "bytes/s", needProfiling | needLink, 0, rate(levelNVLinkTx)},
	{1012, 1012, onGPU, "bytes/s", needProfiling | needLink, 0, rate(levelNVLinkRx)},
	{1013, 1013, onBoth, "ratio", needProfiling, 0, ratio(levelTensor, 0.06)}, // the tensor pipe's parts
	{1014, 1014, onBoth, "ratio", needProfiling, 0, ratio(levelTensor, 0.93)},
	{1015, 1015, onBoth, "ratio", needProfiling, 0, ratio(levelTensor, 0.01)},
	{1016, 1016, onBoth, "ratio", needProfiling, 0, ratio(levelInteger, 1)},
	{1017, 1024, onBoth, "ratio", needProfiling, 0, engine(levelDecoder, 7)},
	{1025, 1032, onBoth, "ratio", needProfiling, 0, engine(levelJPEG, 7)},
	{1033, 1034, onBoth, "ratio", needProfiling, 0, engine(levelFlow, 2)},
	{1040, 1075, onGPU, "bytes/s", needProfiling | needLinkPair, 0, func(v *view, n int) gpu.Value { return linkOf(v, levelNVLinkTx+n%2) }},
	{1076, 1077, onGPU, "bytes/s", needProfiling | needC2C, 0, rate(levelPCIeTx)},
	{1078, 1079, onGPU, "bytes/s", needProfiling | needC2C, 0, rate(levelPCIeRx)},
	{1080, 1083, onGPU, "percent", needProfiling, 0, func(_ *view, n int) gpu.Value { return gpu.Int(int64(95 - 90*(n%2))) }},
	{1084, 1084, onBoth, "", needProfiling, 0, cycles(-1)},
	{1085, 1085, onBoth, "", needProfiling, 0, cycles(levelSM)},
	{1086, 1086, onBoth, "", needProfiling, 0, cycles(levelTensor)},
	{1087, 1087, onBoth, "", needProfiling, 0, fixed(0)},
	{1088, 1088, onBoth, "", needProfiling, 0, cycles(levelTensor)},
	{1089, 1090, onBoth, "", needProfiling, 0, fixed(0)},
	{1091, 1091, onBoth, "bytes", needProfiling, 0, sum(levelPCIeTx, 1)},
	{1092, 1092, onBoth, "bytes", needProfiling, 0, sum(levelPCIeRx, 1)},
	{1093, 1093, onBoth, "", needProfiling, 0, cycles(levelInteger)},
	{1094, 1094, onBoth, "", needProfiling, 0, cycles(levelFP64)},
	{1095, 1095, onBoth, "", needProfiling, 0, cycles(levelFP32)},
	{1096, 1096, onBoth, "", needProfiling, 0, cycles(levelFP16)},

	// Chip-to-chip links.
	{285, 285, onGPU, "", needC2C, 0, number(func(v *view) int64 { return v.board.C2C })},
	{286, 286, onGPU, "", needC2C, 0, fixed(1)},
	{287, 287, onGPU, "bytes/s", needC2C, 0, number(func(v *view) int64 { return v.board.C2C * 90e9 })},
	{1400, 1402, onGPU, "", needC2C, 0, fixed(0)},
	{1403, 1403, onGPU, "", needC2C, 0, fixed(1)},

	// ConnectX network cards.
	{1300, 1300, onCard, "", 0, 0, fixed(1)}, // good
	{1301, 1301, onCard, "", 0, 0, number(func(v *view) int64 { return v.card.Active })},
	{1302, 1302, onCard, "", 0, 0, number(func(v *view) int64 { return v.card.Speed })},
	{1303, 1303, onCard, "", 0, 0, number(func(v *view) int64 { return v.card.Width })},
	{1304, 1304, onCard, "", 0, 0, number(func(v *view) int64 { return v.card.Speed })},
	{1305, 1309, onCard, "", 0, 0, fixed(0)},
	{1310, 1310, onCard, "celsius", 0, 0, func(v *view, _ int) gpu.Value {
		return gpu.Float(milli(46 + 8*uniform(v.key, 1) + 3*smooth(v.key, float64(v.world.at)/1e9, 60)))
	}},

	// Grace CPUs and their cores.
	{1100, 1100, onCPU, "ratio", 0, 0, func(v *view, _ int) gpu.Value { return gpu.Float(cpuBusy(v)) }},
	{1101, 1101, onCPU, "ratio", 0, 0, func(v *view, _ int) gpu.Value { return gpu.Float(cpuBusy(v) * 0.82) }},
	{1102, 1102, onCPU, "ratio", 0, 0, func(*view, int) gpu.Value { return gpu.Float(0) }},
	{1103, 1103, onCPU, "ratio", 0, 0, func(v *view, _ int) gpu.Value { return gpu.Float(cpuBusy(v) * 0.16) }},
	{1104, 1104, onCPU, "ratio", 0, 0, func(v *view, _ int) gpu.Value { return gpu.Float(cpuBusy(v) * 0.02) }},
	{1110, 1110, onCPU, "celsius", 0, 0, func(v *view, _ int) gpu.Value { return gpu.Float(milli(34 + 34*cpuBusy(v))) }},
	{1111, 1111, onCPU, "celsius", 0, 0, func(*view, int) gpu.Value { return gpu.Float(85) }},
	{1112, 1112, onCPU, "celsius", 0, 0, func(*view, int) gpu.Value { return gpu.Float(95) }},
	{1120, 1120, onCPU, "kHz", 0, 0, number(func(v *view) int64 { return int64(v.cpu.Clock*(0.75+0.25*cpuBusy(v))) * 1000 })},
	{1130, 1130, onCPU, "watts", 0, 0, watts(cpuPower)},
	{1131, 1131, onCPU, "watts", 0, 0, watts(func(v *view) float64 { return v.cpu.Limit })},
	{1132, 1132, onCPU, "watts", 0, 0, watts(func(v *view) float64 { return milli(24 + 4*cpuBusy(v)) })},
	{1133, 1133, onCPU, "watts", 0, 0, watts(modulePower)},
	{1140, 1140, onCPU, "", 0, 0, texts(func(v *view) string { return v.cpu.Vendor })},
	{1141, 1141, onCPU, "", 0, 0, texts(func(v *view) string { return v.cpu.Model })},
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

// held is a generator of the nanoseconds for which the scenario let one of the
// clock-event reasons in mask hold.
func held(mask int64) generator {
	return func(v *view, _ int) gpu.Value { return gpu.Int(v.gpu.held(mask, v.world.at)) }
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
	switch {
	case v.slot == nil:
		return v.dev.UUID
	case v.slot.inner != nil:
		return fmt.Sprintf("MIG-%s/%d", v.dev.UUID, v.dev.InstanceID)
	default:
		return v.dev.MIGUUID
	}
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

// cycles is a generator of the SM cycles in which a pipe was active, or of all
// of them for level -1, at the board's clock.
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

// cpuBusy is how busy a CPU or core is. A CPU is the mean of its cores in all
// but detail.
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

// fallback makes a value for a field that the model does not know: a text of
// its own, or the least number that the catalogue allows, which for the
// counters of errors is 0.
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
