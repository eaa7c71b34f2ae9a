package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A view holds what the values of a row depend on.
type view struct {
	world *world
	dev   *gpu.Device
	board *board
	gpu   *worldGPU // GPU of the row; nil for switches and CPUs
	slot  *slot     // where the pods of the row run; nil if the row has no pods of its own
	cpu   *cpuSpec
	card  *cardSpec
	track *track  // track of the row's GPU or instance
	part  float64 // fraction of the track that a link or switch carries
	key   uint64
	// total and reserved are the entity's memory in MiB.
	total, reserved int64
}

func (w *world) view(d *gpu.Device) view {
	v := view{dev: d, world: w, part: 1}
	e, id := d.Entity, d.Entity.ID
	if e.ParentKind != gpu.KindNone {
		id = e.Parent
	}
	switch {
	case e.Kind == gpu.KindGPU || e.ParentKind == gpu.KindGPU:
		g := &w.gpus[id]
		v.gpu, v.board, v.track, v.key = g, g.spec.board, &g.track, g.key
		v.total, v.reserved = v.board.Memory, v.board.Reserved
		v.slot = g.slotOf(refOf(d))
		switch s := v.slot; e.Kind {
		case gpu.KindGPUInstance:
			v.track, v.key, v.total, v.reserved = &s.track, s.key, s.total, s.reserved
		case gpu.KindNVLink:
			v.part, v.key = 1/float64(v.board.NVLink.Links), mix(g.key^uint64(d.Link+1)<<40)
		}
	case e.Kind == gpu.KindNVSwitch || e.ParentKind == gpu.KindNVSwitch:
		v.track, v.part = &w.fabric, 1/float64(len(w.node.Switches))
		if e.Kind == gpu.KindNVLink {
			v.part /= float64(w.node.Switches[id].Links)
		}
		v.key = keyOf(w.seed, fmt.Sprint("nvswitch ", id, "/", e.Kind, d.Link))
	case e.Kind == gpu.KindCPU || e.Kind == gpu.KindCPUCore:
		v.cpu = &w.node.CPUs[id]
		// The upper half is the key of the CPU, the lower half that of the core.
		v.key = keyOf(w.seed, fmt.Sprint("cpu ", id))>>32<<32 | mix(uint64(e.ID))>>32
	case e.Kind == gpu.KindConnectX:
		v.card = &w.node.ConnectX[id]
		v.key = keyOf(w.seed, fmt.Sprint("connectx ", id))
	default:
		v.key = keyOf(w.seed, w.node.Name)
	}
	return v
}

// A rule is a line of data/fields.csv. It defines how to generate the fields of a range of IDs for some kinds of
// entities. The first rule that covers a field and kind applies.
type rule struct {
	first, last gpu.FieldID
	on          gpu.Kinds
	unit        gpu.Unit
	needs       []func(input) bool // conditions on the board and its partitioning
	index       int                // index of the first field: a link number

	number func(input) float64 // number or text generates the value; both are nil if no board has the field
	text   func(input) string
	arg    string // the arguments of number or text
	levels []int  // levels in arg
	x      float64
}

// An input is what the value of a row and field is generated from.
type input struct {
	*view
	*rule
	n int // index of the field, usually a link number
}

// isEmpty reports whether the rule generates no value.
func (r *rule) isEmpty() bool { return r == nil || r.number == nil && r.text == nil }

// ruleFor returns the rule for a field and a kind of entity, or nil if there is none.
func ruleFor(id gpu.FieldID, kind gpu.Kind) *rule {
	rules := builtIn().rules
	i := slices.IndexFunc(rules, func(r rule) bool { return id >= r.first && id <= r.last && r.on.Has(kind) })
	if i < 0 {
		return nil
	}
	return &rules[i]
}

// parseRule parses the columns fields, on, unit, needs, first and value. A value is a key of numbers or texts with its
// arguments: levels and a number, or any text.
func parseRule(line []string) (rule, error) {
	r := rule{on: ruleKinds[line[1]], unit: gpu.Unit(line[2])}
	n, _ := fmt.Sscanf(line[0], "%d-%d", &r.first, &r.last)
	r.last = max(r.first, r.last)
	for name := range strings.FieldsFuncSeq(line[3], func(c rune) bool { return c == '+' }) {
		need := ruleNeeds[name]
		if need == nil {
			need = func(v input) bool { return v.board.has(name) }
		}
		r.needs = append(r.needs, need)
	}
	r.index, _ = strconv.Atoi(line[4]) // 0 if empty
	word, arg, _ := strings.Cut(line[5], " ")
	r.number, r.text, r.arg = numbers[word], texts[word], arg
	var err error
	for _, word := range strings.Fields(arg) {
		if level, ok := levelNames[word]; ok {
			r.levels = append(r.levels, level)
		} else if r.number != nil {
			r.x, err = strconv.ParseFloat(word, 64)
		}
	}
	if n == 0 || r.on == 0 || r.isEmpty() && word != "" || err != nil {
		const expected = "expected field ids, a kind of entity, and a value with its arguments"
		return rule{}, fmt.Errorf("fields.csv: %q: %s", line, expected)
	}
	return r, nil
}

// ruleKinds maps names in data/fields.csv to kinds of entities. Values of the machine are read for every GPU, and as
// labels for every instance.
var ruleKinds = map[string]gpu.Kinds{
	"gpu":          1 << gpu.KindGPU,
	"gpu+instance": 1<<gpu.KindGPU | 1<<gpu.KindGPUInstance,
	"card":         1 << gpu.KindConnectX,
	"link":         1 << gpu.KindNVLink,
	"switch":       1 << gpu.KindNVSwitch,
	"cpu":          1<<gpu.KindCPU | 1<<gpu.KindCPUCore,
	"node":         1<<gpu.KindNode | 1<<gpu.KindGPU | 1<<gpu.KindGPUInstance,
}

// ruleNeeds maps names in data/fields.csv to the conditions under which a GPU has a field. All other names are listed
// in Has of the boards that meet them.
var ruleNeeds = map[string]func(input) bool{
	// Utilization is undefined for partitioned GPUs.
	"whole":       func(v input) bool { return !v.gpu.partitioned },
	"link":        func(v input) bool { return int64(v.n) < v.board.NVLink.Links },
	"nvlink-3":    func(v input) bool { return v.board.NVLink.Generation <= 3 }, // and earlier
	"nvlink-4":    func(v input) bool { return v.board.NVLink.Generation <= 4 },
	"nvlink-5":    func(v input) bool { return v.board != nil && v.board.NVLink.Generation >= 5 }, // and later
	"memory-temp": func(v input) bool { return v.board.Temperature.MemoryOffset != 0 },
	"c2c":         func(v input) bool { return v.board.C2C != 0 },
	"mig":         func(v input) bool { return v.board.MIG != nil },
	"fabric":      func(v input) bool { return v.inFabric() },
	"serial":      func(v input) bool { return v.board.Serial != "" },
}

// levelNames maps names in data/fields.csv to levels.
var levelNames = map[string]int{
	"graphics": levelGraphics, "sm": levelSM, "occupancy": levelOccupancy, "tensor": levelTensor, "dram": levelDRAM,
	"fp64": levelFP64, "fp32": levelFP32, "fp16": levelFP16, "integer": levelInteger, "encoder": levelEncoder,
	"decoder": levelDecoder, "memory": levelMemory, "pcie-tx": levelPCIeTx, "pcie-rx": levelPCIeRx,
	"nvlink-tx": levelNVLinkTx, "nvlink-rx": levelNVLinkRx, "capped": levelCapped, "temp": levelTemp,
	"memory-temp": levelMemoryTemp,
}

// numbers and texts map words in data/fields.csv to values of a row.
var (
	numbers = map[string]func(input) float64{
		"fixed": func(v input) float64 { return v.x },
		// A fraction of a level.
		"level": func(v input) float64 { return v.sum() * v.x },
		// A level in whole percent.
		"percent": func(v input) float64 { return math.Round(v.sum() * 100) },
		// A link's or switch's part of a sum of levels, such as rates in bytes per second, rounded down.
		"floor": func(v input) float64 { return math.Floor(v.sum() * v.part) },
		// The same for one of the GPU's links.
		"link-rate": func(v input) float64 { return math.Floor(v.sum() / float64(v.board.NVLink.Links)) },
		// The integral of a level, in units of 1/x.
		"sum": func(v input) float64 { return math.Floor(v.track.total[v.levels[0]] * v.part * v.x) },
		// Rare errors: about one entity in x has some, and gets a new one every few days.
		"rare": input.rare,
		// Rare errors since before the driver was loaded, for aggregate counters.
		"aged": func(v input) float64 {
			n := v.rare()
			return n + 5*truth(n > 0)
		},
		// Nanoseconds during which any of the scenario's clock event reasons in the mask was active.
		"throttle-time": func(v input) float64 { return float64(v.gpu.throttledFor(int64(v.x), v.world.at)) },
		// The fraction of time for which a CPU or core is busy.
		"cpu-busy":            func(v input) float64 { return v.cpuBusy() * v.x },
		"device-count":        func(v input) float64 { return float64(v.world.present) },
		"cuda-driver-version": func(v input) float64 { return float64(v.world.node.CUDA) },
		"nvml-index":          func(v input) float64 { return float64(v.dev.NVMLIndex) },
		"minor-number":        func(v input) float64 { return float64(v.dev.Minor) },
		"mig-mode":            func(v input) float64 { return truth(v.gpu.partitioned) },
		"sm-clock":            func(v input) float64 { return v.clock(1) },
		"memory-clock": func(v input) float64 {
			return v.whenBusy(v.board.Clocks.Memory, v.board.Clocks.MemoryIdle)
		},
		"video-clock":      func(v input) float64 { return v.clock(v.board.Clocks.Video / v.board.Clocks.SM) },
		"sm-clock-max":     func(v input) float64 { return v.board.Clocks.SM },
		"memory-clock-max": func(v input) float64 { return v.board.Clocks.Memory },
		"video-clock-max":  func(v input) float64 { return v.board.Clocks.Video },
		"event-reasons": func(v input) float64 {
			return float64(reasonMask(&v.track.now) | v.gpu.scripted(v.world.at))
		},
		"pstate":       func(v input) float64 { return v.whenBusy(0, float64(v.board.IdleState)) },
		"gpu-temp-max": func(v input) float64 { return v.board.Temperature.Operating },
		"gpu-temp-limit": func(v input) float64 {
			return v.board.Temperature.Operating - math.Floor(v.track.now[levelTemp])
		},
		"slowdown-temp":   func(v input) float64 { return v.board.Temperature.Slowdown },
		"shutdown-temp":   func(v input) float64 { return v.board.Temperature.Shutdown },
		"memory-temp-max": func(v input) float64 { return v.board.Temperature.MemoryOperating },
		"fan-speed":       func(v input) float64 { return math.Floor(30 + 70*max(0, v.track.now[levelTemp]-50)/50) },
		"power-usage":     func(v input) float64 { return milli(v.track.now[levelPower]) },
		// The driver was loaded some time before the simulation started.
		"energy": func(v input) float64 {
			return math.Floor(v.track.total[levelPower]*1e3 + math.Floor(uniform(v.key, 7)*1e6)*v.board.Power.Idle*1e3)
		},
		"power-limit":         func(v input) float64 { return v.gpu.spec.Limit },
		"power-limit-min":     func(v input) float64 { return v.board.Power.Min },
		"power-limit-max":     func(v input) float64 { return v.board.Power.Max },
		"power-limit-default": func(v input) float64 { return v.board.Power.Limit },
		"pcie-generation-max": func(v input) float64 { return float64(v.board.PCIe.Generation) },
		"pcie-width":          func(v input) float64 { return float64(v.board.PCIe.Width) },
		"pcie-generation":     func(v input) float64 { return v.whenBusy(float64(v.board.PCIe.Generation), 1) },
		"fb-total":            func(v input) float64 { return float64(v.total) },
		"fb-free":             func(v input) float64 { return float64(v.total-v.reserved) - v.memoryUsed() },
		"fb-used-ratio":       func(v input) float64 { return v.memoryUsed() / float64(v.total-v.reserved) },
		"fb-reserved":         func(v input) float64 { return float64(v.reserved) },
		// Retired pages and remapped rows: none on most GPUs.
		"rows-remapped": func(v input) float64 { return truth(mix(v.key^3)%16 == 0) },
		// It rises with the fraction of its links' rate that the switch carries.
		"switch-temperature": func(v input) float64 {
			traffic := (v.track.now[levelNVLinkTx] + v.track.now[levelNVLinkRx]) * v.part
			return 38 + 12*(min(traffic/1e12, 1)*(0.9+0.1*uniform(v.key, 2))) + 3*uniform(v.key, 1)
		},
		"in-fabric":      func(v input) float64 { return v.x * truth(v.inFabric()) },
		"in-rack":        func(v input) float64 { return v.x * truth(v.world.node.Rack > 0) },
		"c2c":            func(v input) float64 { return v.x * float64(v.board.C2C) },
		"card-width":     func(v input) float64 { return float64(cmp.Or(v.card.Active, v.card.Width)) },
		"card-width-max": func(v input) float64 { return float64(v.card.Width) },
		"card-speed":     func(v input) float64 { return float64(v.card.Speed) },
		"card-temperature": func(v input) float64 {
			return milli(46 + 8*uniform(v.key, 1) + 3*smooth(v.key, float64(v.world.at)/1e9, 60))
		},
		"cpu-clock":       func(v input) float64 { return math.Floor(v.cpu.Clock*(0.75+0.25*v.cpuBusy())) * 1000 },
		"cpu-temp":        func(v input) float64 { return milli(34 + 34*v.cpuBusy()) },
		"cpu-power":       func(v input) float64 { return milli(v.cpu.Idle + (v.cpu.Limit-v.cpu.Idle)*v.cpuBusy()) },
		"cpu-power-limit": func(v input) float64 { return v.cpu.Limit },
	}
	texts = map[string]func(input) string{
		"text":           func(v input) string { return v.arg },
		"driver-version": func(v input) string { return v.world.node.Driver },
		"nvml-version":   func(v input) string { return "12." + v.world.node.Driver },
		"device-name":    func(v input) string { return v.board.Model },
		"device-brand":   func(v input) string { return v.board.Brand },
		"device-serial":  func(v input) string { return v.board.Serial + strconv.FormatUint(1e6+v.key%9e6, 10) },
		"device-uuid":    func(v input) string { return v.dev.UUID },
		"pci-bus-id":     func(v input) string { return v.dev.PCIBusID },
		"inforom-image":  func(v input) string { return "G" + v.board.Serial[3:] + ".0200.00.01" },
		"vbios-version":  func(v input) string { return v.board.VBIOS },
		"fabric-uuid": func(v input) string {
			if v.world.node.Rack == 0 {
				return "00000000-0000-0000-0000-000000000000"
			}
			return uuid("", keyOf(v.world.seed/v.world.node.Rack, "fabric "+v.world.node.Name))
		},
	}
)

// inFabric reports whether the GPU registers with a fabric. GPUs since Hopper do, unless they are only connected to a
// CPU.
func (v *view) inFabric() bool {
	return v.board.NVLink.Generation >= 4 && (v.board.C2C == 0 || v.world.node.Rack > 0)
}

func (v input) sum() (sum float64) {
	for _, l := range v.levels {
		sum += v.track.now[l]
	}
	return sum
}

// whenBusy returns the value of a busy GPU, or of an idle one. Boards without an idle state always have the first.
func (v *view) whenBusy(working, idle float64) float64 {
	if v.track.now[levelGraphics] < busy && v.board.IdleState != 0 {
		return idle
	}
	return working
}

// rare returns an error count. It is 0 for all but about one entity in x.
func (v input) rare() float64 {
	one := uint64(v.x)
	h := mix(v.key ^ uint64(v.n)<<32 ^ one)
	if h%one != 0 {
		return 0
	}
	days := float64(v.world.at-v.world.start) / float64(24*3600e9)
	return math.Floor(1 + float64(h>>8%3) + days*uniform(h, 1)/2)
}

func (v *view) memoryUsed() float64 { return math.Floor(v.track.now[levelMemory]) }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// milli rounds to thousandths, as the driver does with power.
func milli(x float64) float64 { return math.Round(x*1e3) / 1e3 }

// clock returns a fraction of the SM clock in MHz, rounded to the steps of GPU clocks.
func (v *view) clock(share float64) float64 {
	mhz := v.track.now[levelClock] * v.gpu.slowed(v.world.at) * share
	return math.Floor(math.Round(mhz/clockStep) * clockStep)
}

// cpuBusy returns the utilization of a CPU or core, 0 to 1. Cores vary around their CPU's value.
func (v *view) cpuBusy() float64 {
	t := float64(v.world.at) / 1e9
	base := 0.25 + 0.2*smooth(v.key>>32<<32, t, 60)
	if v.dev.Entity.Kind == gpu.KindCPUCore {
		base += 0.2 * smooth(v.key, t, 5)
	}
	return min(max(base, 0), 1)
}

// fallback returns the rule for a field without a rule: a string, or the smallest number that the catalog allows. Error
// counters are 0.
func fallback(f *gpu.Field) *rule {
	if f.Text {
		name := strings.ToLower(strings.TrimPrefix(f.Name, "DCGM_FI_DEV_"))
		return &rule{text: func(v input) string { return name + "-" + strconv.FormatUint(v.key%1e4, 10) }}
	}
	least := 0.0
	if f.Range != nil && f.Range.Min > 0 {
		least = math.Ceil(f.Range.Min)
	}
	return &rule{number: numbers["fixed"], x: least}
}

// Reads reports whether simulated nodes can have every field of a plan. Whether a particular node has a field depends
// on its hardware. Health, peers and placement are always simulated.
func Reads(p *gpu.Plan) bool {
	return !slices.ContainsFunc(p.Fields, func(f gpu.Field) bool {
		entry, known := catalog.ByID(f.ID)
		return !slices.ContainsFunc(f.Levels.List(), func(kind gpu.Kind) bool {
			if r := ruleFor(cmp.Or(entry.BaseOf, f.ID), kind); r != nil {
				return !r.isEmpty()
			}
			return known && entry.Exportable()
		})
	})
}
