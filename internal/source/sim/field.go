package sim

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A view is the input of a row's generators.
type view struct {
	dev   *gpu.Device
	node  *Node
	board *board
	gpu   *worldGPU // GPU of the row; nil for switches and CPUs
	slot  *slot     // instance of the row; nil for other entities
	cpu   *cpuSpec
	card  *cardSpec
	track *track // track of the row's GPU or instance
	part  float64
	world *world
	key   uint64
	// total and reserved are the entity's memory in MiB.
	total, reserved int64
}

// A generator computes the value of a row, a number or a string. n is the index within the rule, usually a link number.
type generator struct {
	number func(v *view, n int) float64
	text   func(v *view) string
}

// none reports whether the generator has no value.
func (g generator) none() bool { return g.number == nil && g.text == nil }

// A rule is a line of data/fields.csv. It defines how to generate the fields of a range of IDs for some kinds of
// entities. The first rule that covers a field and kind applies.
type rule struct {
	first, last gpu.FieldID
	on          gpu.Kinds
	unit        gpu.Unit
	needs       []func(v *view, n int) bool // conditions on the board and its partitioning
	base        int                         // index of the first field of the range
	gen         generator                   // no generator if no board has the field
}

// meets reports whether all conditions of the rule are met.
func (r *rule) meets(v *view, n int) bool {
	for _, met := range r.needs {
		if !met(v, n) {
			return false
		}
	}
	return true
}

// rules returns the rules of data/fields.csv.
var rules = sync.OnceValues(func() ([]rule, error) {
	const file = "data/fields.csv"
	f, err := data.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment = '#'
	lines, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	list := make([]rule, len(lines)-1)
	for i, line := range lines[1:] {
		if list[i], err = parseRule(line); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, strings.Join(line, ","), err)
		}
	}
	return list, nil
})

// ruleFor returns the rule for a field and a kind of entity, or nil if there is none.
func ruleFor(id gpu.FieldID, kind gpu.Kind) *rule {
	list, _ := rules() // New reports an error in the file
	for i := range list {
		if r := &list[i]; id >= r.first && id <= r.last && r.on.Has(kind) {
			return r
		}
	}
	return nil
}

// parseRule parses the columns fields, on, unit, needs, first and value.
func parseRule(line []string) (r rule, err error) {
	first, last, isRange := strings.Cut(line[0], "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	r = rule{first: gpu.FieldID(a), last: gpu.FieldID(b), on: ruleKinds[line[1]], unit: gpu.Unit(line[2])}
	if errA != nil || errB != nil || r.on == 0 {
		return r, errors.New("expected a range of field ids and a kind of entity")
	}
	for name := range strings.SplitSeq(line[3], "+") {
		met := ruleNeeds[name]
		if met == nil && name != "" {
			return r, fmt.Errorf("unknown need %q", name)
		} else if met != nil {
			r.needs = append(r.needs, met)
		}
	}
	if line[4] != "" {
		if r.base, err = strconv.Atoi(line[4]); err != nil {
			return r, err
		}
	}
	r.gen, err = parseValue(line[5])
	return r, err
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

// ruleNeeds maps names in data/fields.csv to the conditions under which a GPU has a field. n is the index within the
// rule.
var ruleNeeds = map[string]func(v *view, n int) bool{
	"whole":       func(v *view, _ int) bool { return !v.gpu.partitioned }, // utilization is undefined for partitioned GPUs
	"energy":      func(v *view, _ int) bool { return v.board.Energy },
	"ecc":         func(v *view, _ int) bool { return v.board.ECC },
	"remap":       func(v *view, _ int) bool { return v.board.Remap },
	"retire":      func(v *view, _ int) bool { return v.board.ECC && !v.board.Remap },
	"profiling":   func(v *view, _ int) bool { return v.board.Profiling },
	"link":        func(v *view, n int) bool { return int64(n) < v.board.NVLink.Links },
	"nvlink-3":    func(v *view, _ int) bool { return v.board.NVLink.Generation <= 3 }, // and earlier
	"nvlink-4":    func(v *view, _ int) bool { return v.board.NVLink.Generation <= 4 },
	"nvlink-5":    func(v *view, _ int) bool { return v.board != nil && v.board.NVLink.Generation >= 5 }, // and later
	"own-memory":  func(v *view, _ int) bool { return !v.board.Unified },
	"memory-temp": func(v *view, _ int) bool { return v.board.Temperature.MemoryOffset != 0 },
	"fan":         func(v *view, _ int) bool { return v.board.Fan },
	"c2c":         func(v *view, _ int) bool { return v.board.C2C != 0 },
	"mig":         func(v *view, _ int) bool { return v.board.MIG != nil },
	"fabric":      func(v *view, _ int) bool { return v.inFabric() },
	"serial":      func(v *view, _ int) bool { return v.board.Serial != "" },
}

// levelNames maps names in data/fields.csv to levels.
var levelNames = map[string]int{
	"graphics": levelGraphics, "sm": levelSM, "occupancy": levelOccupancy, "tensor": levelTensor, "dram": levelDRAM,
	"fp64": levelFP64, "fp32": levelFP32, "fp16": levelFP16, "integer": levelInteger, "encoder": levelEncoder,
	"decoder": levelDecoder, "jpeg": levelJPEG, "flow": levelFlow, "pcie-tx": levelPCIeTx, "pcie-rx": levelPCIeRx,
	"nvlink-tx": levelNVLinkTx, "nvlink-rx": levelNVLinkRx, "capped": levelCapped,
}

// parseValue returns the generator for a value, which is a key of makers or "text" with arguments, or a key of numbers
// or texts.
func parseValue(value string) (g generator, err error) {
	word, rest, _ := strings.Cut(value, " ")
	var levels []int
	x := 0.0
	for _, arg := range strings.Fields(rest) {
		if level, ok := levelNames[arg]; ok {
			levels = append(levels, level)
		} else if word != "text" {
			if x, err = strconv.ParseFloat(arg, 64); err != nil {
				return g, err
			}
		}
	}
	switch number := numbers[word]; {
	case word == "text":
		g.text = func(*view) string { return rest }
	case makers[word] != nil:
		g.number = makers[word](levels, x)
	case number != nil:
		g.number = func(v *view, _ int) float64 { return number(v) }
	case texts[word] != nil:
		g.text = texts[word]
	case word != "":
		return g, fmt.Errorf("unknown value %q", value)
	}
	return g, nil
}

// makers maps words to functions that make a generator from levels and a number.
var makers = map[string]func(levels []int, x float64) func(v *view, n int) float64{
	"fixed": func(_ []int, x float64) func(*view, int) float64 {
		return func(*view, int) float64 { return x }
	},
	// A fraction of a level.
	"level": func(l []int, x float64) func(*view, int) float64 {
		return func(v *view, _ int) float64 { return v.track.now[l[0]] * x }
	},
	// A level in whole percent.
	"percent": func(l []int, _ float64) func(*view, int) float64 {
		return func(v *view, _ int) float64 { return math.Round(v.track.now[l[0]] * 100) }
	},
	// The sum of levels in bytes per second.
	"rate": func(l []int, _ float64) func(*view, int) float64 {
		return func(v *view, _ int) float64 { return math.Floor(v.sum(l) * v.part) }
	},
	// The same for one of the GPU's links.
	"link-rate": func(l []int, _ float64) func(*view, int) float64 {
		return func(v *view, _ int) float64 { return math.Floor(v.sum(l) / float64(v.board.NVLink.Links)) }
	},
	// The integral of a level, in units of 1/x.
	"sum": func(l []int, x float64) func(*view, int) float64 {
		return func(v *view, _ int) float64 { return math.Floor(v.track.total[l[0]] * v.part * x) }
	},
	// Rare errors: about one entity in x has some, and gets a new one every few days.
	"rare": func(_ []int, x float64) func(*view, int) float64 {
		return func(v *view, n int) float64 { return rare(v, n, uint64(x)) }
	},
	// Rare errors since before the driver was loaded, for aggregate counters.
	"aged": func(_ []int, x float64) func(*view, int) float64 {
		return func(v *view, _ int) float64 {
			if n := rare(v, 0, uint64(x)); n > 0 {
				return n + 5
			}
			return 0
		}
	},
	// Nanoseconds during which any of the scenario's clock event reasons in the mask was active.
	"throttle-time": func(_ []int, x float64) func(*view, int) float64 {
		return func(v *view, _ int) float64 { return float64(v.gpu.throttledFor(int64(x), v.world.at)) }
	},
	// The fraction of time for which a CPU or core is busy.
	"cpu-busy": func(_ []int, x float64) func(*view, int) float64 {
		return func(v *view, _ int) float64 { return cpuBusy(v) * x }
	},
}

// numbers and texts map names in data/fields.csv to other values of a row.
var (
	numbers = map[string]func(*view) float64{
		"device-count":        present,
		"cuda-driver-version": func(v *view) float64 { return float64(v.node.CUDA) },
		"nvml-index":          func(v *view) float64 { return float64(v.dev.NVMLIndex) },
		"minor-number":        func(v *view) float64 { return float64(v.dev.Minor) },
		"mig-mode":            func(v *view) float64 { return truth(v.gpu.partitioned) },
		"mig-max-slices":      func(*view) float64 { return computeSlices },
		"sm-clock":            func(v *view) float64 { return v.clock(1) },
		"memory-clock": func(v *view) float64 {
			return v.whenBusy(v.board.Clocks.Memory, v.board.Clocks.MemoryIdle)
		},
		"video-clock":      func(v *view) float64 { return v.clock(v.board.Clocks.Video / v.board.Clocks.SM) },
		"sm-clock-max":     func(v *view) float64 { return v.board.Clocks.SM },
		"memory-clock-max": func(v *view) float64 { return v.board.Clocks.Memory },
		"video-clock-max":  func(v *view) float64 { return v.board.Clocks.Video },
		"event-reasons":    func(v *view) float64 { return float64(reasonMask(&v.track.now) | v.gpu.scripted(v.world.at)) },
		"pstate":           func(v *view) float64 { return v.whenBusy(0, float64(v.board.IdleState)) },
		"gpu-temp":         func(v *view) float64 { return math.Floor(v.track.now[levelTemp]) },
		"gpu-temp-max":     func(v *view) float64 { return v.board.Temperature.Operating },
		"gpu-temp-limit":   func(v *view) float64 { return v.board.Temperature.Operating - math.Floor(v.track.now[levelTemp]) },
		"slowdown-temp":    func(v *view) float64 { return v.board.Temperature.Slowdown },
		"shutdown-temp":    func(v *view) float64 { return v.board.Temperature.Shutdown },
		"memory-temp":      func(v *view) float64 { return math.Floor(v.track.now[levelMemoryTemp]) },
		"memory-temp-max":  func(v *view) float64 { return v.board.Temperature.MemoryOperating },
		"fan-speed":        func(v *view) float64 { return math.Floor(30 + 70*max(0, v.track.now[levelTemp]-50)/50) },
		"power-usage":      func(v *view) float64 { return milli(v.track.now[levelPower]) },
		// The driver was loaded some time before the simulation started.
		"energy": func(v *view) float64 {
			return math.Floor(v.track.total[levelPower]*1e3 + math.Floor(uniform(v.key, 7)*1e6)*v.board.Power.Idle*1e3)
		},
		"power-limit":         func(v *view) float64 { return v.gpu.spec.Limit },
		"power-limit-min":     func(v *view) float64 { return v.board.Power.Min },
		"power-limit-max":     func(v *view) float64 { return v.board.Power.Max },
		"power-limit-default": func(v *view) float64 { return v.board.Power.Limit },
		"pcie-generation-max": func(v *view) float64 { return float64(v.board.PCIe.Generation) },
		"pcie-width":          func(v *view) float64 { return float64(v.board.PCIe.Width) },
		"pcie-generation": func(v *view) float64 {
			if v.board.IdleState == 0 {
				return float64(v.board.PCIe.Generation)
			}
			return v.whenBusy(float64(v.board.PCIe.Generation), 1)
		},
		"fb-total":      func(v *view) float64 { return float64(v.total) },
		"fb-free":       func(v *view) float64 { return float64(v.total-v.reserved) - memoryUsed(v) },
		"fb-used":       memoryUsed,
		"fb-used-ratio": func(v *view) float64 { return memoryUsed(v) / float64(v.total-v.reserved) },
		"fb-reserved":   func(v *view) float64 { return float64(v.reserved) },
		// Retired pages and remapped rows: none on most GPUs.
		"rows-remapped":      func(v *view) float64 { return truth(mix(v.key^3)%16 == 0) },
		"switch-temperature": func(v *view) float64 { return 38 + 12*busyness(v) + 3*uniform(v.key, 1) },
		"fabric-state":       func(v *view) float64 { return catalog.FabricSuccess * truth(v.inFabric()) },
		"fabric-summary":     func(v *view) float64 { return fabricHealthy * truth(v.inFabric()) },
		"fabric-clique":      func(v *view) float64 { return rackClique * truth(v.node.Rack > 0) },
		"fabric-mask":        func(v *view) float64 { return fabricUnharmed * truth(v.node.Rack > 0) },
		"c2c-links":          func(v *view) float64 { return float64(v.board.C2C) },
		"c2c-bandwidth":      func(v *view) float64 { return float64(v.board.C2C) * 90e9 },
		"card-width":         func(v *view) float64 { return float64(cmp.Or(v.card.Active, v.card.Width)) },
		"card-width-max":     func(v *view) float64 { return float64(v.card.Width) },
		"card-speed":         func(v *view) float64 { return float64(v.card.Speed) },
		"card-temperature": func(v *view) float64 {
			return milli(46 + 8*uniform(v.key, 1) + 3*smooth(v.key, float64(v.world.at)/1e9, 60))
		},
		"cpu-clock":       func(v *view) float64 { return math.Floor(v.cpu.Clock*(0.75+0.25*cpuBusy(v))) * 1000 },
		"cpu-temp":        func(v *view) float64 { return milli(34 + 34*cpuBusy(v)) },
		"cpu-power":       func(v *view) float64 { return milli(v.cpu.Idle + (v.cpu.Limit-v.cpu.Idle)*cpuBusy(v)) },
		"cpu-power-limit": func(v *view) float64 { return v.cpu.Limit },
	}
	texts = map[string]func(*view) string{
		"driver-version": func(v *view) string { return v.node.Driver },
		"nvml-version":   func(v *view) string { return "12." + v.node.Driver },
		"device-name":    func(v *view) string { return v.board.Model },
		"device-brand":   func(v *view) string { return v.board.Brand },
		"device-serial":  func(v *view) string { return v.board.Serial + strconv.FormatUint(1e6+v.key%9e6, 10) },
		"device-uuid":    func(v *view) string { return v.dev.UUID },
		"pci-bus-id":     func(v *view) string { return v.dev.PCIBusID },
		"inforom-image":  func(v *view) string { return "G" + v.board.Serial[3:] + ".0200.00.01" },
		"vbios-version":  func(v *view) string { return v.board.VBIOS },
		"fabric-uuid": func(v *view) string {
			if v.node.Rack == 0 {
				return "00000000-0000-0000-0000-000000000000"
			}
			return uuid("", keyOf(v.world.seed/v.node.Rack, "fabric "+v.node.Name))
		},
	}
)

const (
	fabricHealthy  = 1      // NVML_GPU_FABRIC_HEALTH_SUMMARY_*
	fabricUnharmed = 0x51aa // NVML_GPU_FABRIC_HEALTH_MASK_*: every part is known and healthy
	rackClique     = 32766  // clique of a rack with a single partition
)

// inFabric reports whether the GPU registers with a fabric. GPUs since Hopper do, unless they are only connected to a
// CPU.
func (v *view) inFabric() bool {
	return v.board.NVLink.Generation >= 4 && (v.board.C2C == 0 || v.node.Rack > 0)
}

func (v *view) sum(levels []int) (sum float64) {
	for _, l := range levels {
		sum += v.track.now[l]
	}
	return sum
}

// whenBusy returns the value of a busy GPU, or of an idle one.
func (v *view) whenBusy(working, idle float64) float64 {
	if v.track.now[levelGraphics] < busy {
		return idle
	}
	return working
}

// rare returns an error count. It is 0 for all but about one entity in `one`.
func rare(v *view, n int, one uint64) float64 {
	h := mix(v.key ^ uint64(n)<<32 ^ one)
	if h%one != 0 {
		return 0
	}
	days := float64(v.world.at-v.world.start) / float64(24*3600e9)
	return math.Floor(1 + float64(h>>8%3) + days*uniform(h, 1)/2)
}

func memoryUsed(v *view) float64 { return math.Floor(v.track.now[levelMemory]) }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// present returns the number of GPUs that are bound to the driver.
func present(v *view) (n float64) {
	for i := range v.world.gpus {
		n += truth(!v.world.gpus[i].gone)
	}
	return n
}

// milli rounds to thousandths, as the driver does with power.
func milli(x float64) float64 { return math.Round(x*1e3) / 1e3 }

// clock returns a fraction of the SM clock in MHz, rounded to the steps of GPU clocks.
func (v *view) clock(share float64) float64 {
	mhz := v.track.now[levelClock] * v.gpu.slowed(v.world.at) * share
	return math.Floor(math.Round(mhz/clockStep) * clockStep)
}

// busyness returns the fraction of its links' rate that a switch carries.
func busyness(v *view) float64 {
	traffic := (v.track.now[levelNVLinkTx] + v.track.now[levelNVLinkRx]) * v.part
	return min(traffic/1e12, 1) * (0.9 + 0.1*uniform(v.key, 2))
}

// cpuBusy returns the utilization of a CPU or core, 0 to 1. Cores vary around their CPU's value.
func cpuBusy(v *view) float64 {
	t := float64(v.world.at) / 1e9
	base := 0.25 + 0.2*smooth(v.key>>32<<32, t, 60)
	if v.dev.Entity.Kind == gpu.KindCPUCore {
		base += 0.2 * smooth(v.key, t, 5)
	}
	return min(max(base, 0), 1)
}

// fallback returns the generator for a field without a rule: a string, or the smallest number that the catalog allows.
// Error counters are 0.
func fallback(f *gpu.Field) generator {
	if f.Text {
		name := strings.ToLower(strings.TrimPrefix(f.Name, "DCGM_FI_DEV_"))
		return generator{text: func(v *view) string { return name + "-" + strconv.FormatUint(v.key%1e4, 10) }}
	}
	least := 0.0
	if f.Range != nil && f.Range.Min > 0 {
		least = math.Ceil(f.Range.Min)
	}
	return generator{number: func(*view, int) float64 { return least }}
}
