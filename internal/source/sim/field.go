package sim

import (
	"encoding/csv"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

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

// A rule is a line of data/fields.csv: how the fields of a range of ids come about on some kinds of
// entities. The first rule that covers a field and kind counts.
type rule struct {
	first, last gpu.FieldID
	on          gpu.Kinds
	unit        gpu.Unit
	needs       []func(v *view, n int) bool // of the board, and of how it is partitioned
	base        int                         // the number of the first field of the range
	gen         generator                   // nil for a field that no board here has
}

// meets reports whether the board, and the way in which it is partitioned, have all that is needed.
func (r *rule) meets(v *view, n int) bool {
	for _, met := range r.needs {
		if !met(v, n) {
			return false
		}
	}
	return true
}

// rules returns the rules of data/fields.csv. Its test guards their form.
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
	list := make([]rule, 0, len(lines))
	for _, line := range lines[1:] {
		rule, err := parseRule(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, strings.Join(line, ","), err)
		}
		list = append(list, rule)
	}
	return list, nil
})

// ruleFor returns the rule for a field on a kind of entity, nil where the model has none.
func ruleFor(id gpu.FieldID, kind gpu.Kind) *rule {
	list, _ := rules() // New reports an error
	for i := range list {
		if r := &list[i]; id >= r.first && id <= r.last && r.on.Has(kind) {
			return r
		}
	}
	return nil
}

// The columns of data/fields.csv.
const (
	columnFields = iota
	columnOn
	columnUnit
	columnNeeds
	columnFirst
	columnValue
)

func parseRule(line []string) (r rule, err error) {
	first, last, isRange := strings.Cut(line[columnFields], "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	on, known := ruleKinds[line[columnOn]]
	if errA != nil || errB != nil || a > b || !known {
		return r, fmt.Errorf("no range of fields, or no kind of entity")
	}
	r = rule{first: gpu.FieldID(a), last: gpu.FieldID(b), on: on, unit: gpu.Unit(line[columnUnit])}
	if line[columnFirst] != "" {
		if r.base, err = strconv.Atoi(line[columnFirst]); err != nil {
			return r, err
		}
	}
	if line[columnNeeds] != "" {
		for name := range strings.SplitSeq(line[columnNeeds], "+") {
			met, known := ruleNeeds[name]
			if !known {
				return r, fmt.Errorf("unknown need %q", name)
			}
			r.needs = append(r.needs, met)
		}
	}
	r.gen, err = parseValue(line[columnValue])
	return r, err
}

// ruleKinds are the kinds of entities by their names in data/fields.csv. A plan reads what the
// machine says for every GPU, and as a label for every instance.
var ruleKinds = map[string]gpu.Kinds{
	"gpu":          1 << gpu.KindGPU,
	"gpu+instance": 1<<gpu.KindGPU | 1<<gpu.KindGPUInstance,
	"card":         1 << gpu.KindConnectX,
	"link":         1 << gpu.KindNVLink,
	"switch":       1 << gpu.KindNVSwitch,
	"cpu":          1<<gpu.KindCPU | 1<<gpu.KindCPUCore,
	"node":         1<<gpu.KindNode | 1<<gpu.KindGPU | 1<<gpu.KindGPUInstance,
}

// ruleNeeds are what a GPU must have for a field to exist on it; n is the number within the rule.
var ruleNeeds = map[string]func(v *view, n int) bool{
	"whole":       func(v *view, _ int) bool { return !v.gpu.partitioned }, // utilization is undefined on MIG parents
	"energy":      func(v *view, _ int) bool { return v.board.Energy },
	"ecc":         func(v *view, _ int) bool { return v.board.ECC },
	"remap":       func(v *view, _ int) bool { return v.board.Remap },
	"retire":      func(v *view, _ int) bool { return v.board.ECC && !v.board.Remap },
	"profiling":   func(v *view, _ int) bool { return v.board.Profiling },
	"link":        func(v *view, n int) bool { return int64(n) < v.board.NVLink.Links },
	"link-pair":   func(v *view, n int) bool { return int64(n/2) < v.board.NVLink.Links }, // two fields a link
	"nvlink":      func(v *view, _ int) bool { return v.board.NVLink.Links > 0 },
	"memory-temp": func(v *view, _ int) bool { return v.board.Temperature.MemoryOffset != 0 },
	"fan":         func(v *view, _ int) bool { return v.board.Fan },
	"c2c":         func(v *view, _ int) bool { return v.board.C2C != 0 },
	"mig":         func(v *view, _ int) bool { return v.board.MIG != nil },
	"serial":      func(v *view, _ int) bool { return v.board.Serial != "" },
}

// levelNames are the levels by their names in data/fields.csv.
var levelNames = map[string]int{
	"graphics": levelGraphics, "sm": levelSM, "occupancy": levelOccupancy, "tensor": levelTensor, "dram": levelDRAM,
	"fp64": levelFP64, "fp32": levelFP32, "fp16": levelFP16, "integer": levelInteger, "encoder": levelEncoder,
	"decoder": levelDecoder, "jpeg": levelJPEG, "flow": levelFlow, "pcie-tx": levelPCIeTx, "pcie-rx": levelPCIeRx,
	"nvlink-tx": levelNVLinkTx, "nvlink-rx": levelNVLinkRx, "capped": levelCapped,
}

// parseValue returns the generator of a value: a word and its arguments, or a name.
func parseValue(text string) (generator, error) {
	word, rest, _ := strings.Cut(text, " ")
	var levels []int
	var numbers []float64
	for _, arg := range strings.Fields(rest) {
		if level, ok := levelNames[arg]; ok {
			levels = append(levels, level)
		} else if x, err := strconv.ParseFloat(arg, 64); err == nil {
			numbers = append(numbers, x)
		}
	}
	if make, ok := makers[word]; ok && len(levels) >= make.levels && len(numbers) >= make.numbers {
		return make.gen(levels, numbers), nil
	}
	switch {
	case text == "":
		return nil, nil
	case word == "text":
		return func(*view, int) gpu.Value { return gpu.Text(rest) }, nil
	case integers[text] != nil:
		return func(v *view, _ int) gpu.Value { return gpu.Int(integers[text](v)) }, nil
	case floats[text] != nil:
		return func(v *view, _ int) gpu.Value { return gpu.Float(floats[text](v)) }, nil
	case texts[text] != nil:
		return func(v *view, _ int) gpu.Value { return gpu.Text(texts[text](v)) }, nil
	case numbered[text] != nil:
		return numbered[text], nil
	}
	return nil, fmt.Errorf("unknown value %q", text)
}

// makers make generators of levels and numbers.
var makers = map[string]struct {
	levels, numbers int // that are needed
	gen             func(levels []int, x []float64) generator
}{
	"fixed": {0, 1, func(_ []int, x []float64) generator { return fixed(int64(x[0])) }},
	"float": {0, 1, func(_ []int, x []float64) generator {
		return func(*view, int) gpu.Value { return gpu.Float(x[0]) }
	}},
	// A level as a float, or a share of it.
	"ratio": {1, 1, func(l []int, x []float64) generator {
		return func(v *view, _ int) gpu.Value { return gpu.Float(v.track.now[l[0]] * x[0]) }
	}},
	// A level as whole percent.
	"percent": {1, 0, func(l []int, _ []float64) generator {
		return func(v *view, _ int) gpu.Value { return gpu.Int(int64(math.Round(v.track.now[l[0]] * 100))) }
	}},
	// One of several equal engines: work fills them in order.
	"engine": {1, 1, func(l []int, x []float64) generator {
		return func(v *view, n int) gpu.Value { return gpu.Float(min(max(v.track.now[l[0]]*x[0]-float64(n), 0), 1)) }
	}},
	// The sum of levels in bytes per second.
	"rate": {1, 0, func(l []int, _ []float64) generator {
		return func(v *view, _ int) gpu.Value { return whole(v.sum(l...) * v.part) }
	}},
	// The same of one of the GPU's links.
	"link-rate": {1, 0, func(l []int, _ []float64) generator {
		return func(v *view, _ int) gpu.Value { return linkOf(v, l...) }
	}},
	// A level's integral, in units of 1/x.
	"sum": {1, 1, func(l []int, x []float64) generator {
		return func(v *view, _ int) gpu.Value { return whole(v.track.total[l[0]] * v.part * x[0]) }
	}},
	"rare": {0, 1, func(_ []int, x []float64) generator { return rare(uint64(x[0])) }},
	// rare with a past: aggregate counters began before volatile ones.
	"aged": {0, 2, func(_ []int, x []float64) generator {
		recent := rare(uint64(x[1]))
		return func(v *view, _ int) gpu.Value {
			n, _ := recent(v, 0).Int64()
			if n > 0 {
				n += int64(x[0])
			}
			return gpu.Int(n)
		}
	}},
	// The SM cycles in which a pipe was active, or all of them without a level, at the board's clock.
	"cycles": {0, 0, func(l []int, _ []float64) generator {
		return func(v *view, _ int) gpu.Value {
			seconds := float64(v.world.at-v.world.start) / 1e9
			if len(l) > 0 {
				seconds = v.track.total[l[0]]
			}
			return whole(seconds * v.board.Clocks.SM * 1e6)
		}
	}},
	// The nanoseconds for which the scenario let one of the clock-event reasons of a mask hold.
	"throttle-time": {0, 1, func(_ []int, x []float64) generator {
		return func(v *view, _ int) gpu.Value { return gpu.Int(v.gpu.throttledFor(int64(x[0]), v.world.at)) }
	}},
}

// integers, floats and texts are further values of a row, by their names in data/fields.csv.
var (
	integers = map[string]func(*view) int64{
		"device-count":        present,
		"cuda-driver-version": func(v *view) int64 { return v.spec.CUDA },
		"nvml-index":          func(v *view) int64 { return int64(v.dev.NVMLIndex) },
		"minor-number":        func(v *view) int64 { return int64(v.dev.Minor) },
		"pci-id":              func(v *view) int64 { return int64(keyOf(0, v.board.Name)>>48<<16 | 0x10de) },
		"compute-capability":  computeCapability,
		"nvlink-peers":        peers,
		"mig-mode":            func(v *view) int64 { return truth(v.gpu.partitioned) },
		"mig-max-slices":      func(v *view) int64 { return int64(v.board.MIG.ComputeSlices) },
		"inforom-checksum":    func(v *view) int64 { return int64(keyOf(1, v.board.Name) >> 34) },
		"gpm-support":         func(v *view) int64 { return truth(v.board.GPM) },
		"memory-clock":        memoryClock,
		"sm-clock-max":        func(v *view) int64 { return int64(v.board.Clocks.SM) },
		"memory-clock-max":    func(v *view) int64 { return int64(v.board.Clocks.Memory) },
		"event-reasons":       func(v *view) int64 { return reasonMask(&v.track.now) | v.gpu.scripted(v.world.at) },
		"video-clock-max":     func(v *view) int64 { return int64(v.board.Clocks.Video) },
		"pstate": func(v *view) int64 {
			if v.track.now[levelGraphics] < busy {
				return v.board.IdleState
			}
			return 0
		},
		"memory-temp-max":     func(v *view) int64 { return int64(v.board.Temperature.MemoryOperating) },
		"gpu-temp-max":        func(v *view) int64 { return int64(v.board.Temperature.Operating) },
		"gpu-temp-limit":      func(v *view) int64 { return int64(v.board.Temperature.Operating) - int64(v.track.now[levelTemp]) },
		"slowdown-temp":       func(v *view) int64 { return int64(v.board.Temperature.Slowdown) },
		"shutdown-temp":       func(v *view) int64 { return int64(v.board.Temperature.Shutdown) },
		"fan-speed":           func(v *view) int64 { return int64(30 + 70*max(0, v.track.now[levelTemp]-50)/50) },
		"pcie-generation-max": func(v *view) int64 { return v.board.PCIe.Generation },
		"pcie-width":          func(v *view) int64 { return v.board.PCIe.Width },
		"pcie-generation": func(v *view) int64 {
			if v.board.IdleState != 0 && v.track.now[levelGraphics] < busy {
				return 1
			}
			return v.board.PCIe.Generation
		},
		"bar1-total":         bar1,
		"bar1-used":          bar1Used,
		"bar1-free":          func(v *view) int64 { return bar1(v) - bar1Used(v) },
		"fb-total":           func(v *view) int64 { return v.total },
		"fb-free":            func(v *view) int64 { return v.total - v.reserved - memoryUsed(v) },
		"fb-used":            memoryUsed,
		"fb-reserved":        func(v *view) int64 { return v.reserved },
		"rows-left":          func(v *view) int64 { return 640 - remapped(v) },
		"rows-remapped":      remapped,
		"link-number":        func(v *view) int64 { return int64(v.dev.Link) },
		"link-type":          func(v *view) int64 { return 1 + truth(v.dev.Entity.ParentKind == gpu.KindGPU) },
		"switch-temperature": func(v *view) int64 { return int64(38 + 12*busyness(v) + 3*uniform(v.key, 1)) },
		"switch-slot":        func(v *view) int64 { return int64(v.dev.Entity.ID) + 8 },
		"switch-bus":         func(v *view) int64 { return int64(v.dev.Entity.ID) + 5 },
		"c2c-links":          func(v *view) int64 { return v.board.C2C },
		"c2c-bandwidth":      func(v *view) int64 { return v.board.C2C * 90e9 },
		"card-width":         func(v *view) int64 { return v.card.Active },
		"card-speed":         func(v *view) int64 { return v.card.Speed },
		"card-width-max":     func(v *view) int64 { return v.card.Width },
		"cpu-clock":          func(v *view) int64 { return int64(v.cpu.Clock*(0.75+0.25*cpuBusy(v))) * 1000 },
	}
	floats = map[string]func(*view) float64{
		"power-usage":         func(v *view) float64 { return milli(v.track.now[levelPower]) },
		"power-limit":         func(v *view) float64 { return v.gpu.spec.limit },
		"power-limit-min":     func(v *view) float64 { return v.board.Power.Min },
		"power-limit-max":     func(v *view) float64 { return v.board.Power.Max },
		"power-limit-default": func(v *view) float64 { return v.board.Power.Limit },
		"fb-used-ratio":       func(v *view) float64 { return float64(memoryUsed(v)) / float64(v.total-v.reserved) },
		"switch-power-vdd":    func(v *view) float64 { return milli(38 + 6*busyness(v)) },
		"switch-power-dvdd":   func(v *view) float64 { return milli(22 + 18*busyness(v)) },
		"switch-power-hvdd":   func(v *view) float64 { return milli(11 + 2*busyness(v)) },
		"card-temperature": func(v *view) float64 {
			return milli(46 + 8*uniform(v.key, 1) + 3*smooth(v.key, float64(v.world.at)/1e9, 60))
		},
		"cpu-util-total":  func(v *view) float64 { return cpuBusy(v) },
		"cpu-util-user":   func(v *view) float64 { return cpuBusy(v) * 0.82 },
		"cpu-util-sys":    func(v *view) float64 { return cpuBusy(v) * 0.16 },
		"cpu-util-irq":    func(v *view) float64 { return cpuBusy(v) * 0.02 },
		"cpu-temp":        func(v *view) float64 { return milli(34 + 34*cpuBusy(v)) },
		"cpu-power":       cpuPower,
		"cpu-power-limit": func(v *view) float64 { return v.cpu.Limit },
		"sysio-power":     func(v *view) float64 { return milli(24 + 4*cpuBusy(v)) },
		"module-power":    modulePower,
	}
	texts = map[string]func(*view) string{
		"driver-version":  func(v *view) string { return v.spec.Driver },
		"nvml-version":    func(v *view) string { return "12." + v.spec.Driver },
		"device-name":     func(v *view) string { return v.board.Model },
		"device-brand":    func(v *view) string { return v.board.Brand },
		"device-serial":   serial,
		"device-uuid":     func(v *view) string { return v.dev.UUID },
		"pci-bus-id":      func(v *view) string { return v.dev.PCIBusID },
		"visible-devices": visible,
		"inforom-image":   func(v *view) string { return "G" + v.board.Serial[3:] + ".0200.00.01" },
		"vbios-version":   func(v *view) string { return v.board.VBIOS },
		"fabric-uuid":     func(v *view) string { return uuid("", keyOf(v.world.seed, "fabric "+v.spec.Name)) },
		"link-uuid":       func(v *view) string { return uuid("", v.key) },
		"cpu-vendor":      func(v *view) string { return v.cpu.Vendor },
		"cpu-model":       func(v *view) string { return v.cpu.Model },
	}
	// numbered are the others, which may depend on the number within the rule.
	numbered = map[string]generator{
		"cpu-affinity":    affinity,
		"memory-affinity": func(_ *view, n int) gpu.Value { return gpu.Int(truth(n == 0)) },
		"sm-clock":        func(v *view, _ int) gpu.Value { return stepped(v.track.now[levelClock] * v.gpu.slowed(v.world.at)) },
		"video-clock": func(v *view, _ int) gpu.Value {
			return stepped(v.track.now[levelClock] * v.gpu.slowed(v.world.at) * v.board.Clocks.Video / v.board.Clocks.SM)
		},
		"memory-temp": func(v *view, _ int) gpu.Value { return whole(v.track.now[levelMemoryTemp]) },
		"gpu-temp":    func(v *view, _ int) gpu.Value { return whole(v.track.now[levelTemp]) },
		"energy": func(v *view, _ int) gpu.Value {
			// The driver was loaded some time before the world began.
			return whole(v.track.total[levelPower]*1e3 + math.Floor(uniform(v.key, 7)*1e6)*v.board.Power.Idle*1e3)
		},
		"link-rate-pair": func(v *view, n int) gpu.Value { return linkOf(v, levelNVLinkTx+n%2) },
		"cache-hit":      func(_ *view, n int) gpu.Value { return gpu.Int(int64(95 - 90*(n%2))) },
	}
)

// whole rounds to an integer value.
func whole(x float64) gpu.Value { return gpu.Int(int64(math.Floor(x))) }

// fixed is a generator of a constant integer.
func fixed(x int64) generator { return func(*view, int) gpu.Value { return gpu.Int(x) } }

// sum returns the sum of levels.
func (v *view) sum(levels ...int) (sum float64) {
	for _, l := range levels {
		sum += v.track.now[l]
	}
	return sum
}

// linkOf is the sum of levels on one of the GPU's links.
func linkOf(v *view, levels ...int) gpu.Value {
	return whole(v.sum(levels...) / float64(max(v.board.NVLink.Links, 1)))
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
