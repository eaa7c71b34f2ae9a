package sim

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// levels describe the work of a GPU or an instance at one time. They change linearly between the knots of the world, so
// that their integrals are exact.
type levels [levelCount]float64

const (
	// Fractions of the entity's own units, 0 to 1.
	levelGraphics = iota
	levelSM
	levelOccupancy
	levelTensor
	levelDRAM
	levelFP64
	levelFP32
	levelFP16
	levelInteger
	levelEncoder
	levelDecoder
	ratioCount

	levelMemory = iota - 1 // MiB in use
	levelPCIeTx            // bytes per second
	levelPCIeRx
	levelNVLinkTx
	levelNVLinkRx
	slotCount

	// GPUs only, not instances.
	levelPower      = iota - 2 // watts
	levelClock                 // SM clock, MHz
	levelCapped                // 1 while the power limit holds the clock down
	levelTemp                  // °C
	levelMemoryTemp            // °C
	levelCount      = iota - 2
)

// A track holds levels over a segment of time, and their integrals from the start of the world to the start of the
// segment.
type track struct {
	from, to, sum levels
	now, total    levels // levels and integrals at the current time
}

// close ends a segment with a length in seconds.
func (k *track) close(seconds float64) {
	for i := range k.sum {
		k.sum[i] += (k.from[i] + k.to[i]) / 2 * seconds
	}
	k.from = k.to
}

// evaluate sets the current values at a fraction x of a segment with a length in seconds.
func (k *track) evaluate(x, seconds float64) {
	for i := range k.now {
		rise := (k.to[i] - k.from[i]) * x
		k.now[i] = k.from[i] + rise
		k.total[i] = k.sum[i] + (k.from[i]+rise/2)*x*seconds
	}
}

// A slot is where pods run: a GPU that is not partitioned, or an instance.
type slot struct {
	track
	key       uint64
	instance          // if the GPU is partitioned
	compute   float64 // fraction of the GPU's compute slices
	bandwidth float64 // fraction of the GPU's memory slices
	total     int64   // MiB
	reserved  int64   // MiB
	pods      []*worldPod
}

// A worldPod is a pod on a slot. Its track has only its part of the slot's levelGraphics and levelMemory.
type worldPod struct {
	track
	*workload
	index int // index in the node's pods
	key   uint64
}

// A worldGPU is the changing state of a GPU.
type worldGPU struct {
	track
	spec        *gpuSpec
	key         uint64
	index       uint32
	slots       []slot // one for a GPU that is not partitioned, otherwise one for each instance
	partitioned bool
	gone        bool // not bound to the NVIDIA driver

	cappedUntil int64          // end of the latest completed segment in which the power limit reduced the clocks
	reasons     []reasonChange // latest changes of the model's clock event reasons, oldest first
	throttles   []*fault       // faults of clock event reasons, sorted by time
}

// eachTrack calls f for the tracks of the GPU, its slots and their pods.
func (g *worldGPU) eachTrack(f func(*track)) {
	f(&g.track)
	for i := range g.slots {
		s := &g.slots[i]
		f(&s.track)
		for _, p := range s.pods {
			f(&p.track)
		}
	}
}

const (
	step      = int64(10 * time.Second) // distance between knots
	thermal   = 45.0                    // time constant of temperatures in seconds
	clockStep = 15.0                    // step of GPU clocks in MHz
	busy      = 0.004                   // lowest activity that counts as work
)

// A world is the changing state of a node. It is determined by the seed, the start, the faults and the time. All times
// are Unix nanoseconds. It is not safe for concurrent use, except for its node and faults, which do not change.
type world struct {
	node      *Node
	seed      uint64
	start     int64
	faults    []fault
	relayouts []relayout // sorted by time

	applied  int   // number of relayouts applied
	bindings int   // number of times that GPUs were bound or unbound
	present  int   // number of GPUs that are bound
	t0, t1   int64 // the current segment
	at       int64 // the current time
	resets   int   // number of calls of reset
	gpus     []worldGPU
	fabric   track // sum of the GPUs' NVLink traffic, which the switches carry
}

// A relayout is a scheduled MIG repartition of one GPU.
type relayout struct {
	at     int64
	gpu    uint32
	layout []instance // nil if MIG is off
}

// newWorld returns the world of a node at its start. The error is about a fault that the node cannot have.
func newWorld(node *Node, seed uint64, start int64, scenario *Scenario) (*world, error) {
	w := &world{node: node, seed: seed, start: start}
	w.reset()
	devices := w.devices()
	w.faults = slices.Clone(scenario.Faults)
	for i := range w.faults {
		f := &w.faults[i]
		f.from, f.to = start+int64(f.At), start+int64(f.At+forever)
		if f.For != nil {
			f.to = f.from + int64(*f.For)
		}
		for j, ref := range f.devices {
			exists := slices.ContainsFunc(devices, func(d gpu.Device) bool { return refOf(&d) == ref })
			if ref.kind == gpu.KindGPUInstance { // may exist only after a repartition
				exists = int(ref.id) < len(w.gpus) && node.GPUs[ref.id].board.MIG != nil && ref.sub < instancesPerGPU
			}
			if !exists {
				return nil, scenario.at(f, fmt.Errorf("node %s has no device %q", node.Name, f.Devices[j]))
			}
			if f.Kind != faultRepartition {
				continue
			}
			spec := &node.GPUs[ref.id]
			layout, err := spec.board.place(f.MIG)
			if err != nil {
				return nil, scenario.at(f, err)
			}
			if f.MIG == nil {
				layout = nil
			}
			w.relayouts = append(w.relayouts, relayout{f.from, ref.id, layout}, relayout{f.to, ref.id, spec.layout})
		}
	}
	slices.SortStableFunc(w.relayouts, func(a, b relayout) int { return cmp.Compare(a.at, b.at) })
	w.reset()
	return w, nil
}

// faultsOf yields each fault of a kind.
func (w *world) faultsOf(kind string) iter.Seq[*fault] {
	return func(yield func(*fault) bool) {
		for i := range w.faults {
			if f := &w.faults[i]; f.Kind == kind && !yield(f) {
				return
			}
		}
	}
}

// engineBegan returns when the engine that runs at a time was started: at the end of the latest engine-down fault.
func (w *world) engineBegan(t int64) int64 {
	began := w.start
	for f := range w.faultsOf(faultEngineDown) {
		if f.to <= t {
			began = max(began, f.to)
		}
	}
	return began
}

// reset goes back to the start.
func (w *world) reset() {
	w.resets++
	w.applied, w.t0, w.at = 0, w.start, w.start
	w.gpus = make([]worldGPU, len(w.node.GPUs))
	for i := range w.gpus {
		g := &w.gpus[i]
		g.spec, g.index = &w.node.GPUs[i], uint32(i)
		g.key = mix(keyOf(w.seed, w.node.Name) + uint64(i))
		for f := range w.faultsOf(faultThrottle) {
			if f.names(g.index) {
				g.throttles = append(g.throttles, f)
			}
		}
		slices.SortStableFunc(g.throttles, func(a, b *fault) int { return cmp.Compare(a.from, b.from) })
		w.partition(g, g.spec.layout)
		g.from[levelTemp] = g.heat()
		g.from[levelMemoryTemp] = g.from[levelTemp] + g.spec.board.Temperature.MemoryOffset
	}
	w.nextSegment()
	w.evaluate(w.start)
}

// partition divides a GPU into slots, assigns the pods to them, and sets the levels at the start of the segment.
// Temperatures stay the same.
func (w *world) partition(g *worldGPU, layout []instance) {
	b := g.spec.board
	g.slots, g.partitioned = nil, layout != nil
	if !g.partitioned {
		g.slots = []slot{{key: g.key, compute: 1, bandwidth: 1, total: b.Memory, reserved: b.Reserved}}
	}
	for _, p := range layout {
		g.slots = append(g.slots, slot{
			instance: p, key: mix(g.key + uint64(p.id()) + 1), total: p.Memory,
			compute: float64(p.Compute) / computeSlices, bandwidth: float64(p.Size) / memorySlices,
			reserved: b.Reserved * int64(p.Size) / memorySlices,
		})
	}
	for i := range w.node.Pods {
		p := &w.node.Pods[i]
		for _, ref := range p.devices {
			if s := g.slotOf(ref); s != nil {
				s.pods = append(s.pods, &worldPod{workload: p.workload, index: i, key: w.podKey(p)})
			}
		}
	}
	g.load(w.t0)
	g.eachTrack(func(k *track) { k.close(0) })
	g.recordReasons(w.t0)
}

// slotOf returns the slot of g that ref identifies, or nil.
func (g *worldGPU) slotOf(ref deviceRef) *slot {
	for i := range g.slots {
		s, own := &g.slots[i], deviceRef{kind: gpu.KindGPU, id: g.index}
		if g.partitioned {
			own = deviceRef{gpu.KindGPUInstance, gpu.KindGPU, g.index, s.id()}
		}
		if own == ref {
			return s
		}
	}
	return nil
}

// nextSegment applies the repartitions that are due at t0, and sets the end of the segment that starts there, and the
// levels at its end.
func (w *world) nextSegment() {
	w.t1 = (w.t0/step + 1) * step
	for ; w.applied < len(w.relayouts); w.applied++ {
		r := &w.relayouts[w.applied]
		if r.at > w.t0 {
			w.t1 = min(w.t1, r.at)
			break
		}
		w.partition(&w.gpus[r.gpu], r.layout)
	}
	for i := range w.gpus {
		w.gpus[i].load(w.t1)
		w.gpus[i].warm(w.seconds())
	}
}

// seconds returns the length of the current segment.
func (w *world) seconds() float64 { return float64(w.t1-w.t0) / 1e9 }

// advance advances to a time. If the time goes back, the simulation starts again.
func (w *world) advance(t int64) {
	t = max(t, w.start)
	if t == w.at {
		return
	}
	if t < w.t0 {
		w.reset()
	}
	for t >= w.t1 {
		seconds := w.seconds()
		w.t0 = w.t1
		for i := range w.gpus {
			g := &w.gpus[i]
			if g.from[levelCapped]+g.to[levelCapped] > 0 {
				g.cappedUntil = w.t0
			}
			g.eachTrack(func(k *track) { k.close(seconds) })
			g.recordReasons(w.t0)
		}
		w.nextSegment()
	}
	w.evaluate(t)
}

// evaluate sets all current values for a time within the current segment.
func (w *world) evaluate(t int64) {
	w.at, w.bindings, w.present = t, 0, len(w.gpus)
	seconds := w.seconds()
	x := float64(t-w.t0) / float64(w.t1-w.t0)
	w.fabric = track{}
	for i := range w.gpus {
		g := &w.gpus[i]
		g.eachTrack(func(k *track) { k.evaluate(x, seconds) })
		for l := levelNVLinkTx; l <= levelNVLinkRx; l++ {
			w.fabric.now[l] += g.now[l]
			w.fabric.total[l] += g.total[l]
		}
		g.gone = false
		for f := range w.faultsOf(faultUnbound) {
			if f.names(g.index) {
				w.bindings += int(truth(f.from <= t) + truth(f.to <= t))
				g.gone = g.gone || f.within(t)
			}
		}
		w.present -= int(truth(g.gone))
	}
}

// load sets the levels of the GPU, its slots and pods at the end of a segment. Temperatures stay the same.
func (g *worldGPU) load(t int64) {
	g.to = levels{levelTemp: g.from[levelTemp], levelMemoryTemp: g.from[levelMemoryTemp]}
	for i := range g.slots {
		s := &g.slots[i]
		s.load(t, g.partitioned)
		for l := range ratioCount {
			share := s.compute
			if l == levelDRAM {
				share = s.bandwidth
			}
			g.to[l] += s.to[l] * share
		}
		for l := levelMemory; l < slotCount; l++ {
			g.to[l] += s.to[l]
		}
	}
	g.power(t, &g.to)
}

// load sets the levels of the slot and its pods at the end of a segment.
func (s *slot) load(t int64, partitioned bool) {
	var sum levels
	room := float64(s.total - s.reserved)
	for _, p := range s.pods {
		a := p.activity(p.key, t) * (1 + 0.015*smooth(s.key, float64(t)/1e9, 30))
		for l, ratio := range p.ratios {
			sum[l] += a * ratio
		}
		memory := room * (p.Memory.Base + p.Memory.Active*a)
		sum[levelMemory] += memory
		p.to[levelGraphics], p.to[levelMemory] = a, memory
		sum[levelPCIeTx] += a * p.PCIe.Tx * s.compute
		sum[levelPCIeRx] += a * p.PCIe.Rx * s.compute
		if !partitioned { // NVLink peer access does not exist in MIG mode
			sum[levelNVLinkTx] += a * p.NVLink
			sum[levelNVLinkRx] += a * p.NVLink * 0.98
		}
	}
	s.to = sum
	for l := range ratioCount {
		s.to[l] = min(sum[l], 1)
	}
	s.to[levelMemory] = min(sum[levelMemory], room)
	for _, p := range s.pods { // if the pods request more than there is, each gets the same fraction of its request
		for _, l := range [...]int{levelGraphics, levelMemory} {
			if sum[l] > 0 {
				p.to[l] = p.to[l] / sum[l] * s.to[l]
			}
		}
	}
}

// power sets power, clock and cap according to the activity in out.
func (g *worldGPU) power(t int64, out *levels) {
	b := g.spec.board
	pcie := 0.9 * (float64(int64(1)<<b.PCIe.Generation) * 0.123e9 * float64(b.PCIe.Width))
	nvlink := 0.9 * b.NVLink.Rate * float64(b.NVLink.Links)
	out[levelPCIeTx], out[levelPCIeRx] = min(out[levelPCIeTx], pcie), min(out[levelPCIeRx], pcie)
	out[levelNVLinkTx], out[levelNVLinkRx] = min(out[levelNVLinkTx], nvlink), min(out[levelNVLinkRx], nvlink)
	// With these weights, a well-tuned training job reaches the power limit.
	effort := 0.18*out[levelGraphics] + 0.27*out[levelSM] + 0.38*min(1, out[levelTensor]/0.55) +
		0.22*min(1, out[levelDRAM]/0.6) + 0.25*min(1, out[levelFP64]+out[levelFP32]) + 0.1*out[levelEncoder]
	noise := 1 + 0.03*smooth(g.key^1, float64(t)/1e9, 20)
	demand := b.Power.Idle*(1+0.02*(noise-1)) + (1.08*b.Power.Limit-b.Power.Idle)*effort*noise
	out[levelPower] = demand
	out[levelClock] = b.Clocks.SMIdle
	if out[levelGraphics] >= busy {
		out[levelClock] = b.Clocks.SM
	}
	if demand > g.spec.Limit {
		out[levelPower] = g.spec.Limit * (0.99 + 0.01*uniform(g.key^2, uint64(t)))
		slow := out[levelClock] * max(math.Sqrt(g.spec.Limit/demand), 0.6)
		out[levelClock] = min(slow, out[levelClock]-2*clockStep) // low enough to be visible in steps
	}
	out[levelCapped] = truth(demand > g.spec.Limit || g.scripted(t)&reasonPowerCap != 0)
}

// heat returns the temperature that the GPU approaches with the power at the start of the segment.
func (g *worldGPU) heat() float64 {
	th := g.spec.board.Temperature
	return th.Ambient + (th.Load-th.Ambient)*g.from[levelPower]/g.spec.board.Power.Limit
}

// warm sets the temperatures at the end of a segment.
func (g *worldGPU) warm(seconds float64) {
	lag := 1 - math.Exp(-seconds/thermal)
	g.to[levelTemp] = g.from[levelTemp] + (g.heat()-g.from[levelTemp])*lag
	memory := g.heat() + g.spec.board.Temperature.MemoryOffset*(1+0.3*g.from[levelDRAM])
	g.to[levelMemoryTemp] = g.from[levelMemoryTemp] + (memory-g.from[levelMemoryTemp])*lag
}

// Clock event reasons (DCGM_CLOCKS_EVENT_REASON_* in dcgm_fields.h). The model itself produces the first two.
const (
	reasonIdle     = 0x1
	reasonPowerCap = 0x4

	reasonsThermal  = 0x20 | 0x40        // software and hardware thermal slowdown
	reasonsHardware = 0x08 | 0x40 | 0x80 // hardware slowdowns and the power brake
)

// A reasonChange is a change of clock event reasons.
type reasonChange struct{ at, mask int64 }

// mostReasonChanges limits the number of recorded changes.
const mostReasonChanges = 256

// reasonMask returns the clock event reasons for the levels.
func reasonMask(at *levels) int64 {
	switch {
	case at[levelGraphics] < busy:
		return reasonIdle
	case at[levelCapped] >= 0.5:
		return reasonPowerCap
	default:
		return 0
	}
}

// recordReasons records the reasons at a knot if they changed.
func (g *worldGPU) recordReasons(t int64) {
	mask := reasonMask(&g.from)
	if n := len(g.reasons); n > 0 && g.reasons[n-1].mask == mask {
		return
	}
	oldest := max(len(g.reasons)+1-mostReasonChanges, 0)
	g.reasons = append(g.reasons[oldest:], reasonChange{at: t, mask: mask})
}

// scripted returns the scenario's reasons at a time.
func (g *worldGPU) scripted(t int64) (mask int64) {
	for _, f := range g.throttles {
		if f.within(t) {
			mask |= f.mask
		}
	}
	return mask
}

// throttledFor returns for how many nanoseconds, until a time, at least one of the scenario's reasons in mask was
// active.
func (g *worldGPU) throttledFor(mask, t int64) (sum int64) {
	end := int64(0)
	for _, f := range g.throttles {
		if from, to := max(f.from, end), min(f.to, t); f.mask&mask != 0 && from < to {
			sum += to - from
			end = to
		}
	}
	return sum
}

// reasonsAt returns the reasons of the model and the scenario at a time. The time must not be before the oldest
// recorded change.
func (g *worldGPU) reasonsAt(t int64) int64 {
	mask := g.scripted(t)
	for _, r := range slices.Backward(g.reasons) {
		if r.at <= t {
			return mask | r.mask
		}
	}
	return mask
}

// reasonEdges returns the times of changes between two times, in order.
func (g *worldGPU) reasonEdges(from, to int64) []int64 {
	var edges []int64
	note := func(t int64) {
		if t > from && t < to {
			edges = append(edges, t)
		}
	}
	for _, r := range g.reasons {
		note(r.at)
	}
	for _, f := range g.throttles {
		note(f.from)
		note(f.to)
	}
	slices.Sort(edges)
	return slices.Compact(edges)
}

// slowed returns the fraction of its clocks that a GPU keeps while the scenario's reasons are active. Hardware reasons
// halve the clocks; driver reasons reduce them less.
func (g *worldGPU) slowed(t int64) float64 {
	switch mask := g.scripted(t); {
	case mask&reasonsHardware != 0:
		return 0.5
	case mask != 0:
		return 0.8
	default:
		return 1
	}
}
