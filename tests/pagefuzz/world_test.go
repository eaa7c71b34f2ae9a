package pagefuzz

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// slicesOfGPU is the number of compute slices of the simulated H100.
const slicesOfGPU = 7

// A mode is how a GPU is assigned to pods.
type mode int

const (
	whole mode = iota
	replicated
	claimed
	cut
	modes
)

type pod struct {
	namespace, name, uid string
	containers           []string
	known                bool // the API server lists the pod
}

func (p *pod) String() string { return p.namespace + "/" + p.name }

// A holding records that a pod holds a device or one replica of it.
type holding struct {
	pod     *pod
	replica string
}

// process is a process on a device. pod is nil for a process of the host.
type process struct {
	pid    uint32
	pod    *pod
	busy   float64
	memory int64
}

// A device is what a pod can hold: a GPU that is not partitioned, or a GPU instance.
type device struct {
	gpu      *card
	instance uint32 // ID of a MIG instance, or 0 for a GPU that is not partitioned
	profile  string
	slices   float64
	migUUID  string
	replicas int // number of time-slicing replicas, or 0 without time-slicing

	held      []holding
	changed   time.Time // when held last changed
	processes []process

	util, engine float64                      // current values, 0 to 1
	mean         float64                      // utilization over the interval of the process readings (gpu.Utilization)
	reported     struct{ mean, busy float64 } // values when the processes were last read
	memory       int64                        // in MiB
}

// A key identifies a device by the labels UUID and GPU_I_ID.
type key struct{ uuid, instance string }

func (d *device) key() key {
	if d.instance == 0 {
		return key{uuid: d.gpu.uuid}
	}
	return key{d.gpu.uuid, strconv.FormatUint(uint64(d.instance), 10)}
}

// weight returns the fraction of a GPU that the device is.
func (d *device) weight() float64 {
	if d.instance == 0 {
		return 1
	}
	return d.slices / slicesOfGPU
}

// id returns the device plugin's ID of the device.
func (d *device) id() string {
	if d.instance == 0 {
		return d.gpu.uuid
	}
	return d.migUUID
}

// sole returns the pod that holds the device exclusively, or nil.
func (d *device) sole() *pod {
	for _, h := range d.held {
		if h.pod != d.held[0].pod {
			return nil
		}
	}
	if len(d.held) == 0 {
		return nil
	}
	return d.held[0].pod
}

func (d *device) has(p *pod) bool {
	return slices.ContainsFunc(d.held, func(h holding) bool { return h.pod == p })
}

// A card is a GPU.
type card struct {
	id         uint32
	uuid       string
	mode       mode
	lost, gone bool
	devices    []*device
	millijoule float64
	power      float64 // in watts
}

// world is the simulated machine. mu guards all fields, because the loop, the kubelet and the test use them
// concurrently.
type world struct {
	mu    sync.Mutex
	rng   *rand.Rand
	cards []*card
	pods  []*pod
	names int
	pids  uint32

	measured   time.Time
	steps      int       // number of calls of the method step
	readAt     int       // value of steps at the last read
	restless   bool      // the first GPU alternates between whole and partitioned
	generation int       // generation of the topology
	revision   uint64    // incremented when a pod is created or ends
	history    []moment  // owners at each change, oldest first
	trusted    time.Time // time since which the kubelet has listed all pods; zero if its list may be incomplete

	engine struct {
		down      bool
		failing   error
		hanging   bool
		skew      time.Duration // error of the engine's clock
		noProcess error         // error of reading processes
		noBusy    error         // error of reading the utilization of processes
		noPod     error         // error of looking up the pod of a process
		noMean    bool          // the averaged utilization (gpu.Utilization) is not reported
		blind     map[gpu.FieldID]error
		strange   map[gpu.FieldID]float64 // fields with implausible values
		mute      map[gpu.FieldID]bool    // fields for which neither samples nor faults are reported
	}
	kubelet struct {
		mood  mood
		turns int // number of requests for which the mood lasts
		boot  int // changes when the kubelet restarts
	}
}

// moment is the state of the world after a change: the owners of each device.
type moment struct {
	at   time.Time
	sole map[key]*pod
	held map[key][]*pod
}

func newWorld(rng *rand.Rand) *world {
	w := &world{rng: rng, pids: 1000}
	w.engine.blind, w.engine.strange, w.engine.mute = map[gpu.FieldID]error{}, map[gpu.FieldID]float64{},
		map[gpu.FieldID]bool{}
	for i := range 1 + rng.IntN(4) {
		c := &card{id: uint32(i), uuid: fmt.Sprintf("GPU-%08x-0000-4000-8000-%012d", i+1, i),
			millijoule: float64(rng.IntN(1e9))}
		w.shape(c, mode(rng.IntN(int(modes))))
		w.cards = append(w.cards, c)
	}
	for range rng.IntN(4) {
		w.arrive()
	}
	w.measured = time.Now()
	w.measure()
	return w
}

// shape sets how a GPU is assigned to pods, and creates its devices.
func (w *world) shape(c *card, m mode) {
	c.mode, c.devices = m, nil
	if m != cut {
		d := &device{gpu: c, slices: slicesOfGPU, changed: time.Now()}
		if m == replicated {
			d.replicas = 2 + w.rng.IntN(3)
		}
		c.devices = []*device{d}
		return
	}
	left := slicesOfGPU
	for i := uint32(1); left > 0; i++ {
		n := 1 + w.rng.IntN(min(left, 4))
		left -= n
		d := &device{gpu: c, instance: i, slices: float64(n), profile: fmt.Sprintf("%dg.%dgb", n, 10*n),
			changed: time.Now()}
		w.names++
		d.migUUID = fmt.Sprintf("MIG-%08x-0000-4000-8000-%012d", c.id+1, w.names)
		if w.rng.IntN(4) == 0 {
			d.replicas = 2
		}
		c.devices = append(c.devices, d)
		if w.rng.IntN(4) == 0 {
			break
		}
	}
}

// devices returns the devices that the driver reports.
func (w *world) devices() []*device {
	var all []*device
	for _, c := range w.cards {
		if !c.gone {
			all = append(all, c.devices...)
		}
	}
	return all
}

// room returns how many more holdings the device can have.
func (d *device) room() int {
	switch {
	case d.gpu.mode == claimed:
		return 3 - len(d.held)
	case d.replicas > 0:
		return d.replicas - len(d.held)
	default:
		return 1 - len(d.held)
	}
}

// arrive starts a pod. It picks a random device once or twice, and gives it to the pod if it has room and is not lost.
func (w *world) arrive() {
	w.names++
	p := &pod{namespace: []string{"research", "serving"}[w.rng.IntN(2)], name: fmt.Sprint("pod-", w.names),
		known: w.rng.IntN(6) > 0, containers: []string{"main"}}
	p.uid = fmt.Sprintf("00000000-0000-4000-8000-%012d", w.names)
	if w.rng.IntN(8) == 0 {
		p.containers = append(p.containers, "sidecar")
	}
	for range 1 + w.rng.IntN(2) {
		if all := w.devices(); len(all) > 0 {
			d := all[w.rng.IntN(len(all))]
			if d.room() > 0 && !d.gpu.lost {
				w.give(d, p)
			}
		}
	}
	w.pods = append(w.pods, p)
	w.revision++
}

func (w *world) give(d *device, p *pod) {
	h := holding{pod: p}
	if d.replicas > 0 {
		for i := range d.replicas {
			h.replica = strconv.Itoa(i)
			if !slices.ContainsFunc(d.held, func(o holding) bool { return o.replica == h.replica }) {
				break
			}
		}
	}
	if d.gpu.mode == claimed && d.has(p) {
		return // the pod has already claimed the device
	}
	d.held, d.changed = append(d.held, h), time.Now()
	for range w.rng.IntN(3) {
		w.pids++
		d.processes = append(d.processes, process{pid: w.pids, pod: p})
	}
}

// end ends a pod.
func (w *world) end(p *pod) {
	w.pods = slices.DeleteFunc(w.pods, func(o *pod) bool { return o == p })
	w.revision++
	for _, c := range w.cards {
		for _, d := range c.devices {
			if d.has(p) {
				d.held = slices.DeleteFunc(d.held, func(h holding) bool { return h.pod == p })
				d.changed = time.Now()
			}
			d.processes = slices.DeleteFunc(d.processes, func(x process) bool { return x.pod == p })
		}
	}
}

// clear ends every pod on a GPU.
func (w *world) clear(c *card) {
	for _, p := range slices.Clone(w.pods) {
		if slices.ContainsFunc(c.devices, func(d *device) bool { return d.has(p) }) {
			w.end(p)
		}
	}
}

// measure advances the energy counters by the time since the last call, and picks new activity.
func (w *world) measure() {
	passed := time.Since(w.measured)
	w.measured = time.Now()
	for _, c := range w.cards {
		c.millijoule += c.power * float64(passed.Milliseconds())
		c.power = 50 + 600*w.rng.Float64()
		for _, d := range c.devices {
			d.util, d.engine, d.memory = 0, 0, int64(w.rng.IntN(200))
			if len(d.processes) > 0 || w.rng.IntN(3) == 0 {
				d.util, d.engine = float64(w.rng.IntN(101))/100, w.rng.Float64()
			}
			d.mean = min(max(d.util+w.rng.Float64()/4-1./8, 0), 1)
			// processes are sampled at other times than the device, so their sum may differ from its value
			for i := range d.processes {
				x := &d.processes[i]
				x.busy, x.memory = w.rng.Float64()*[...]float64{0, 0.3, 1}[w.rng.IntN(3)], int64(w.rng.IntN(20<<30))
				if w.rng.IntN(8) > 0 {
					d.memory += x.memory >> 20
				}
			}
		}
	}
}

// note records the current owners.
func (w *world) note() {
	m := moment{at: time.Now(), sole: map[key]*pod{}, held: map[key][]*pod{}}
	for _, d := range w.devices() {
		m.sole[d.key()] = d.sole()
		for _, h := range d.held {
			m.held[d.key()] = append(m.held[d.key()], h.pod)
		}
	}
	w.history = append(w.history, m)
}

// change applies one random event. For example, a pod starts or ends, a GPU is lost or returns, or the engine or the
// kubelet misbehaves.
func (w *world) change() {
	c := w.cards[w.rng.IntN(len(w.cards))]
	switch w.rng.IntN(24) {
	case 0, 1, 2, 3:
		w.arrive()
	case 4, 5, 6:
		if len(w.pods) > 0 {
			w.end(w.pods[w.rng.IntN(len(w.pods))])
		}
	case 7:
		c.lost = !c.lost
	case 8: // unbind or bind a GPU
		w.clear(c)
		c.gone = !c.gone
		w.generation++
	case 9: // repartition a GPU, or assign it in another mode
		w.clear(c)
		before := c.mode
		w.shape(c, mode(w.rng.IntN(int(modes))))
		if before == cut || c.mode == cut {
			w.generation++
		}
	case 10:
		w.engine.down = !w.engine.down
	case 11:
		w.engine.hanging = !w.engine.hanging
	case 12:
		w.engine.failing = w.either(gpu.ErrTimeout, gpu.ErrLost, gpu.ErrPermission)
	case 13:
		w.engine.skew = []time.Duration{0, 0, -time.Hour, time.Hour, -20 * time.Second}[w.rng.IntN(5)]
	case 14:
		w.engine.noProcess = w.either(gpu.ErrNotSupported, gpu.ErrPermission)
	case 15:
		w.engine.noBusy = w.either(gpu.ErrNotSupported)
		w.engine.noMean = w.rng.IntN(2) == 0
	case 16:
		w.engine.noPod = w.either(gpu.ErrPIDNamespace, gpu.ErrPermission)
	case 17:
		w.confuse()
	case 18:
		for _, p := range w.pods {
			p.known = w.rng.IntN(6) > 0
		}
		w.revision++
	case 19, 20, 21:
		w.kubelet.mood = mood(w.rng.IntN(int(moods)))
		w.kubelet.turns = 1 + w.rng.IntN(4)
		if w.kubelet.mood == restarting {
			w.kubelet.boot++
		}
		w.trusted = time.Time{}
	case 22:
		if d := c.devices[0]; len(d.processes) > 0 { // end a process
			d.processes = d.processes[1:]
		}
	case 23:
		w.pids++ // start a process of the host
		d := c.devices[w.rng.IntN(len(c.devices))]
		d.processes = append(d.processes, process{pid: w.pids})
	}
}

// flip ends the pods on the first GPU, and partitions it or makes it whole again. Then it starts a pod on random
// devices.
func (w *world) flip() {
	c := w.cards[0]
	w.clear(c)
	if c.mode == cut {
		w.shape(c, whole)
	} else {
		w.shape(c, cut)
	}
	w.generation++
	w.arrive()
}

// either returns one of the errors, or nil in about half of the calls.
func (w *world) either(errs ...error) error {
	if w.rng.IntN(2) == 0 {
		return nil
	}
	return errs[w.rng.IntN(len(errs))]
}

// confuse makes all fields normal again. Usually it then makes one field fail, disappear or report implausible values.
func (w *world) confuse() {
	clear(w.engine.blind)
	clear(w.engine.strange)
	clear(w.engine.mute)
	id := fields[w.rng.IntN(len(fields))]
	switch w.rng.IntN(5) {
	case 0:
		w.engine.blind[id] = gpu.ErrNotSupported
	case 1:
		w.engine.blind[id] = gpu.ErrPermission
	case 2:
		w.engine.strange[id] = []float64{-1, 1e18, 1e300}[w.rng.IntN(3)]
	case 3:
		w.engine.mute[id] = true
	}
}

// podOf returns the UID of a process's pod, or nothing for a process of the host.
func (w *world) podOf(pid uint32) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.engine.noPod != nil {
		return nil, w.engine.noPod
	}
	for _, c := range w.cards {
		for _, d := range c.devices {
			for _, x := range d.processes {
				if x.pid == pid && x.pod != nil {
					return []string{x.pod.uid}, nil
				}
			}
		}
	}
	return nil, nil
}
