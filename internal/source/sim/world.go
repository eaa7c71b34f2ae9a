package sim

import (
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
	levelJPEG
	levelFlow
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
	demand    []part // by pod, at the current knot
}

type worldPod struct {
	*workload
	index    int // index in the node's pods
	key      uint64
	from, to part
	sum      float64 // busy seconds from the start of the world to the start of the segment
}

// busySeconds returns the busy seconds of the pod from the start of the world to a fraction x of a segment.
func (p *worldPod) busySeconds(x, seconds float64) float64 {
	return p.sum + (p.from.graphics+(p.to.graphics-p.from.graphics)*x/2)*x*seconds
}

// A worldGPU is the changing state of a GPU.
type worldGPU struct {
	track
	spec        *gpuSpec
	key         uint64
	index       uint32
	slots       []slot // one for a GPU that is not partitioned, otherwise one for each instance
	partitioned bool

	cappedUntil int64 // end of the latest completed segment in which the power limit reduced the clocks

	reasons   []reasonChange // latest changes of the model's clock event reasons, oldest first
	throttles []throttle     // throttles of the scenario, sorted by time

	gone bool // not bound to the NVIDIA driver
}

// A reasonChange is a change of clock event reasons.
type reasonChange struct {
	at   int64
	mask int64
}

// mostReasonChanges limits the number of recorded changes.
const mostReasonChanges = 256

// A relayout is a scheduled MIG repartition of one GPU.
type relayout struct {
	at          int64
	gpu         uint32
	layout      []instance
	partitioned bool
}

const (
	// step is the distance between knots.
	step = int64(10 * time.Second)
	// thermal is the time constant of temperatures in seconds.
	thermal = 45.0
	// clockStep is the step of GPU clocks in MHz.
	clockStep = 15.0
	// busy is the lowest activity that counts as work.
	busy = 0.004
)

// A world is the changing state of a node. It is determined by the seed, the start and the time. It is not safe for
// concurrent use.
type world struct {
	node     *Node
	seed     uint64
	start    int64
	timeline       // immutable
	applied  int   // number of relayouts applied
	t0, t1   int64 // the current segment
	at       int64 // the current time
	resets   int   // number of calls of reset
	gpus     []worldGPU
	fabric   track // sum of the GPUs' NVLink traffic, which the switches carry
}

func newWorld(node *Node, seed uint64, start int64, scenario *Scenario) (w *world, err error) {
	w = &world{node: node, seed: seed, start: start}
	w.throttles = make([][]throttle, len(node.GPUs))
	w.reset()
	if w.timeline, err = scenario.plan(w); err != nil {
		return nil, err
	}
	w.reset()
	return w, nil
}

// reset goes back to the start.
func (w *world) reset() {
	w.resets++
	w.applied, w.t0, w.at = 0, w.start, w.start
	w.gpus = make([]worldGPU, len(w.node.GPUs))
	for i := range w.gpus {
		g := &w.gpus[i]
		g.spec = &w.node.GPUs[i]
		g.index = uint32(i)
		g.key = mix(keyOf(w.seed, w.node.Name) + uint64(i))
		g.partitioned = g.spec.MIG != nil
		g.throttles = w.throttles[i]
		w.partition(g, g.spec.layout)
		w.levels(g, w.t0, &g.from)
		g.from[levelTemp] = g.heat(&g.from)
		g.from[levelMemoryTemp] = g.from[levelTemp] + g.spec.board.Temperature.MemoryOffset
		g.recordReasons(w.t0)
	}
	w.relayout()
	w.nextSegment()
	w.evaluate(w.start)
}

// partition creates the slots of a GPU and assigns the pods to them.
func (w *world) partition(g *worldGPU, layout []instance) {
	b := g.spec.board
	if !g.partitioned {
		g.slots = []slot{{key: g.key, compute: 1, bandwidth: 1, total: b.Memory, reserved: b.Reserved}}
	} else {
		g.slots = make([]slot, len(layout))
		for i, p := range layout {
			g.slots[i] = slot{
				key:       mix(g.key + uint64(p.id()) + 1),
				instance:  p,
				compute:   float64(p.Compute) / computeSlices,
				bandwidth: float64(p.Size) / memorySlices,
				total:     p.Memory,
				reserved:  b.Reserved * int64(p.Size) / memorySlices,
			}
		}
	}
	for i := range w.node.Pods {
		p := &w.node.Pods[i]
		for _, ref := range p.devices {
			if s := g.slotOf(ref); s != nil {
				s.pods = append(s.pods, &worldPod{workload: p.workload, index: i, key: w.podKey(p)})
			}
		}
	}
}

// slotOf returns the slot of g that ref identifies, or nil.
func (g *worldGPU) slotOf(ref deviceRef) *slot {
	if ref.id != g.index {
		return nil
	}
	for i := range g.slots {
		s := &g.slots[i]
		if !g.partitioned && ref.kind == gpu.KindGPU || g.partitioned && ref.kind == gpu.KindGPUInstance && s.id() == ref.sub {
			return s
		}
	}
	return nil
}

// relayout applies the repartitions that are due at the start of the segment.
func (w *world) relayout() {
	for w.applied < len(w.relayouts) && w.relayouts[w.applied].at <= w.t0 {
		r := &w.relayouts[w.applied]
		w.applied++
		g := &w.gpus[r.gpu]
		g.partitioned = r.partitioned
		w.partition(g, r.layout)
		temp, memory := g.from[levelTemp], g.from[levelMemoryTemp]
		w.levels(g, w.t0, &g.from)
		g.from[levelTemp], g.from[levelMemoryTemp] = temp, memory
		g.recordReasons(w.t0)
	}
}

// nextSegment sets the end of the segment that starts at t0, and the levels there.
func (w *world) nextSegment() {
	w.t1 = (w.t0/step + 1) * step
	if w.applied < len(w.relayouts) {
		w.t1 = min(w.t1, w.relayouts[w.applied].at)
	}
	seconds := float64(w.t1-w.t0) / 1e9
	for i := range w.gpus {
		g := &w.gpus[i]
		w.levels(g, w.t1, &g.to)
		g.warm(seconds)
	}
}

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
		seconds := float64(w.t1-w.t0) / 1e9
		w.t0 = w.t1
		for i := range w.gpus {
			g := &w.gpus[i]
			if g.from[levelCapped]+g.to[levelCapped] > 0 {
				g.cappedUntil = w.t0
			}
			g.close(seconds)
			for j := range g.slots {
				s := &g.slots[j]
				s.close(seconds)
				for _, p := range s.pods {
					p.sum = p.busySeconds(1, seconds)
					p.from = p.to
				}
			}
			g.recordReasons(w.t0)
		}
		w.relayout()
		w.nextSegment()
	}
	w.evaluate(t)
}

// evaluate sets all current values for a time within the current segment.
func (w *world) evaluate(t int64) {
	w.at = t
	seconds := float64(w.t1-w.t0) / 1e9
	x := float64(t-w.t0) / float64(w.t1-w.t0)
	for i := range w.gpus {
		g := &w.gpus[i]
		g.evaluate(x, seconds)
		for j := range g.slots {
			g.slots[j].evaluate(x, seconds)
		}
	}
	for l := levelNVLinkTx; l <= levelNVLinkRx; l++ {
		w.fabric.now[l], w.fabric.total[l] = 0, 0
		for i := range w.gpus {
			w.fabric.now[l] += w.gpus[i].now[l]
			w.fabric.total[l] += w.gpus[i].total[l]
		}
	}
}

// levels sets the levels of g and its slots for the time t. It does not change temperatures.
func (w *world) levels(g *worldGPU, t int64, out *levels) {
	ahead := out == &g.to
	temp, memory := out[levelTemp], out[levelMemoryTemp]
	*out = levels{}
	for i := range g.slots {
		s := &g.slots[i]
		at := &s.from
		if ahead {
			at = &s.to
		}
		s.load(t, g.partitioned, at, ahead)
		s.gather(at, out)
	}
	g.power(t, out)
	out[levelTemp], out[levelMemoryTemp] = temp, memory
}

// gather adds the levels of a slot to those of its GPU.
func (s *slot) gather(own, whole *levels) {
	for l := range ratioCount {
		share := s.compute
		if l == levelDRAM {
			share = s.bandwidth
		}
		whole[l] += own[l] * share
	}
	for l := levelMemory; l < slotCount; l++ {
		whole[l] += own[l]
	}
}

// load sets the levels of the slot and the shares of its pods for the time t. ahead is true for the end of a segment.
func (s *slot) load(t int64, partitioned bool, out *levels, ahead bool) {
	*out = levels{}
	s.demand = s.demand[:0]
	room := float64(s.total - s.reserved)
	for _, p := range s.pods {
		a := p.activity(p.key, t) * (1 + 0.015*smooth(s.key, float64(t)/1e9, 30))
		r := &p.Ratios
		for l, ratio := range [ratioCount]float64{1, r.SM, r.Occupancy, r.Tensor, r.DRAM, r.FP64, r.FP32, r.FP16,
			r.Integer, r.Encoder, r.Decoder, r.JPEG, r.Flow} {
			out[l] += a * ratio
		}
		memory := room * (p.Memory.Base + p.Memory.Active*a)
		out[levelMemory] += memory
		s.demand = append(s.demand, part{graphics: a, memory: memory})
		out[levelPCIeTx] += a * p.PCIe.Tx * s.compute
		out[levelPCIeRx] += a * p.PCIe.Rx * s.compute
		if !partitioned { // NVLink peer access does not exist in MIG mode
			out[levelNVLinkTx] += a * p.NVLink
			out[levelNVLinkRx] += a * p.NVLink * 0.98
		}
	}
	for l := range ratioCount {
		out[l] = min(out[l], 1)
	}
	out[levelMemory] = min(out[levelMemory], room)
	s.divide(s.demand, out, ahead)
}

// power sets power, clock and cap according to the activity in out.
func (g *worldGPU) power(t int64, out *levels) {
	b := g.spec.board
	for _, l := range []int{levelPCIeTx, levelPCIeRx} {
		out[l] = min(out[l], 0.9*b.pcieRate())
	}
	for _, l := range []int{levelNVLinkTx, levelNVLinkRx} {
		out[l] = min(out[l], 0.9*b.NVLink.Rate*float64(b.NVLink.Links))
	}
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
		out[levelCapped] = 1
	}
	if g.scripted(t)&reasonPowerCap != 0 {
		out[levelCapped] = 1
	}
}

// powerCappedSince reports whether the power limit has reduced the clocks after a time. It agrees with the counter of
// power violations.
func (g *worldGPU) powerCappedSince(since int64, w *world) bool {
	return g.cappedUntil > since || w.at > w.t0 && g.from[levelCapped]+g.now[levelCapped] > 0
}

// heat returns the temperature that the GPU approaches under a load.
func (g *worldGPU) heat(at *levels) float64 {
	th := g.spec.board.Temperature
	return th.Ambient + (th.Load-th.Ambient)*at[levelPower]/g.spec.board.Power.Limit
}

// warm sets the temperatures at the end of a segment.
func (g *worldGPU) warm(seconds float64) {
	lag := 1 - math.Exp(-seconds/thermal)
	g.to[levelTemp] = g.from[levelTemp] + (g.heat(&g.from)-g.from[levelTemp])*lag
	memory := g.heat(&g.from) + g.spec.board.Temperature.MemoryOffset*(1+0.3*g.from[levelDRAM])
	g.to[levelMemoryTemp] = g.from[levelMemoryTemp] + (memory-g.from[levelMemoryTemp])*lag
}

// Clock event reasons (DCGM_CLOCKS_EVENT_REASON_* in dcgm_fields.h). The model itself produces the first two.
const (
	reasonIdle     = 0x1
	reasonPowerCap = 0x4

	reasonsThermal = 0x20 | 0x40 // software and hardware thermal slowdown
)

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
	if len(g.reasons) == mostReasonChanges {
		g.reasons = slices.Delete(g.reasons, 0, 1)
	}
	g.reasons = append(g.reasons, reasonChange{at: t, mask: mask})
}
