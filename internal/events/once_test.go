package events_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// kind selects how a source reports XIDs.
type kind int

const (
	keeping kind = iota // the engine keeps XIDs, dates them by its clock and reports them to every session
	polling             // like keeping, but the engine dates XIDs when it polls the driver
	queuing             // XIDs come from the driver's queue and are dated by the Read
	kinds
)

// An occurrence is an XID that happened, and the way in which a source reports it.
type occurrence struct {
	x    gpu.XID
	at   int64 // according to a clock that is never set
	late int64 // time from which the source can report it
}

// history simulates two GPUs whose XIDs are reported by two sources. They report late and to overlapping sessions,
// and clocks are set meanwhile.
type history struct {
	random    *rand.Rand
	kind      kind
	remote    bool // the engine has another clock
	begin     time.Time
	kernelLog bool // the kernel log is the source

	mu       sync.Mutex
	delays   *rand.Rand
	engine   []occurrence // in the order in which sessions receive them
	kernel   []occurrence
	logged   int   // number of XIDs of the kernel log that were read
	taken    int   // number of the engine's XIDs that were taken out of the driver's queue
	looked   int64 // time at which they were taken
	machine  int64 // this machine's clock minus the clock that is never set
	engines  int64 // the engine's clock minus the clock that is never set
	lost     bool  // GPU 1 is lost
	sessions []*listener
}

// A listener is a session of a history.
type listener struct {
	h        *history
	topology *gpu.Topology
	reported int
	held     []gpu.XID // XIDs of the lost GPU
	done     chan struct{}
	err      error
}

func (l *listener) Topology() *gpu.Topology { return l.topology }
func (l *listener) Done() <-chan struct{}   { return l.done }
func (l *listener) Close() error            { return nil }

func (l *listener) Err() error {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.err
}

func (h *history) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Unix(0, time.Now().UnixNano()+h.machine)
}

func (h *history) latency(most time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(h.delays.Int64N(int64(most)))
}

// Open starts where the engine's memory or the driver's queue starts.
func (h *history) Open(_ context.Context, _ *gpu.Plan) (*listener, error) {
	time.Sleep(h.latency(interval / 20)) // the bubble's clock is fake; the history continues meanwhile
	h.mu.Lock()
	l := &listener{h: h, topology: gpusAt("GPU-0", "GPU-1"), done: make(chan struct{})}
	if h.kind == queuing {
		l.topology.Source = "nvml"
		l.reported = h.taken
		if len(h.sessions) == 0 { // the queue holds no earlier XIDs
			for now := time.Now().UnixNano(); h.taken < len(h.engine) && h.engine[h.taken].late <= now; h.taken++ {
				l.reported++
			}
			h.looked = time.Now().UnixNano()
		}
	}
	h.sessions = append(h.sessions, l)
	h.mu.Unlock()
	time.Sleep(h.latency(interval / 20))
	return l, nil
}

func (l *listener) Read(_ context.Context, _ gpu.ReadRequest, b *gpu.Batch) error {
	h := l.h
	time.Sleep(h.latency(interval / 100))
	h.mu.Lock()
	now := time.Now().UnixNano()
	b.AddAt(0, 0, gpu.Int(1), now+h.machine)
	if h.lost {
		b.FailPart(1, gpu.PartEntity, gpu.ErrLost)
	} else {
		b.AddAt(1, 0, gpu.Int(1), now+h.machine)
		b.XIDs = append(b.XIDs, l.held...)
		l.held = nil
	}
	for ; h.kind == queuing && h.taken < len(h.engine) && h.engine[h.taken].late <= now; h.taken++ {
		x := &h.engine[h.taken].x
		x.ID, x.Time, x.Since = int64(h.taken+1), now+h.machine, h.looked+h.machine
	}
	h.looked = now
	for ; l.reported < len(h.engine) && h.engine[l.reported].late <= now; l.reported++ {
		x := h.engine[l.reported].x
		if h.kind != queuing {
			x.Time = x.ID * 1000
			if h.remote { // the engine's clock is known only with this precision
				x.Time += h.machine - h.engines
			}
		}
		if h.lost && x.Row == 1 && h.kind != queuing {
			l.held = append(l.held, x)
		} else {
			b.XIDs = append(b.XIDs, x)
		}
	}
	h.mu.Unlock()
	time.Sleep(h.latency(interval / 100))
	return nil
}

// happen creates XIDs between now and end, and returns their number.
func (h *history) happen(end time.Time) (count int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := time.Now().UnixNano()
	for range h.random.IntN(6) {
		if h.random.IntN(3) > 0 {
			at += 1 + h.random.Int64N(max(1, (end.UnixNano()-at)/2))
		}
		code, row := []int64{31, 48, 79}[h.random.IntN(3)], h.random.IntN(2)
		count++
		h.engine = append(h.engine, h.reported(code, row, at))
		late := at
		if h.random.IntN(3) == 0 {
			late += h.random.Int64N(int64(interval))
		}
		if n := len(h.kernel); n > 0 {
			late = max(late, h.kernel[n-1].late)
		}
		h.kernel = append(h.kernel, occurrence{
			x:  gpu.XID{PCIBusID: fmt.Sprintf("00000000:%02x:00.0", 0x1b+row), Code: code},
			at: at, late: late,
		})
	}
	slices.SortStableFunc(h.engine[h.taken:], func(a, b occurrence) int { return cmp.Compare(a.late, b.late) })
	return count
}

// reported returns an XID in the form in which the engine keeps it. Sessions receive it some time later.
func (h *history) reported(code int64, row int, at int64) occurrence {
	seen := at
	if h.kind == polling {
		seen = (at/int64(time.Second) + 1) * int64(time.Second)
	}
	late := seen + h.random.Int64N(int64(interval/50))
	for _, l := range h.sessions { // insert it after the XIDs that sessions already received
		if l.reported > 0 {
			late = max(late, h.engine[l.reported-1].late+1)
		}
	}
	clock := h.machine
	if h.remote {
		clock = h.engines
	}
	// Some XIDs get equal IDs on purpose.
	id := (seen + clock) / 1000
	if h.random.IntN(3) == 0 {
		id = id / 1e5 * 1e5
	}
	return occurrence{x: gpu.XID{Row: row, Code: code, ID: id}, at: at, late: late}
}

// set sets a clock. The choices are this machine's clock, which a local engine shares, and the clock of a remote
// engine.
func (h *history) set() {
	h.mu.Lock()
	defer h.mu.Unlock()
	by := []time.Duration{time.Second, 2 * time.Second, time.Hour, 24 * time.Hour}[h.random.IntN(4)]
	if h.random.IntN(2) == 0 {
		by = -by
	}
	if h.remote && !h.kernelLog && h.random.IntN(2) == 0 {
		h.engines += int64(by)
	} else {
		h.machine += int64(by)
	}
}

// Since and Drain implement the kernel log. It is read from the start.
func (h *history) Since() time.Time { return h.begin }

func (h *history) Drain(into []gpu.XID) []gpu.XID {
	h.mu.Lock()
	defer h.mu.Unlock()
	// An XID from before the start is not counted.
	into = append(into, gpu.XID{PCIBusID: "00000000:1b:00.0", Code: 31, Time: h.begin.UnixNano(), Past: true})
	for now := time.Now().UnixNano(); h.logged < len(h.kernel) && h.kernel[h.logged].late <= now; h.logged++ {
		o := h.kernel[h.logged]
		o.x.Time = o.late + h.machine
		into = append(into, o.x)
	}
	return into
}

// close ends all sessions except the latest n.
func (h *history) close(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions = h.sessions[max(0, len(h.sessions)-n):]
}

// The sum over all owners equals the number of XIDs and never falls. This holds however late, repeatedly or
// overlapping sources report XIDs. It also holds over reloads, changes of owners, and clocks that are set.
func TestXIDsAreCountedOnce(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { countOnce(t, rand.New(rand.NewPCG(seed, 1))) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func countOnce(t *testing.T, random *rand.Rand) {
	h := &history{
		random: random, delays: rand.New(rand.NewPCG(random.Uint64(), 2)), kind: kind(random.IntN(int(kinds))),
		begin: time.Now().Add(-time.Minute), kernelLog: random.IntN(2) == 0,
	}
	h.remote = h.kind == keeping && random.IntN(2) == 0
	pick := rand.New(rand.NewPCG(random.Uint64(), 1)) // for the attributor
	seen := &figures{}
	randomPod := owned(func() *gpu.Owners { return ofPod(pick.IntN(50)) })
	r := start(t, h.Open, families(xidTotalFamily), randomPod, seen.watch, func(o *loop.Options) {
		o.Now = h.now
		if h.kernelLog {
			o.KernelLog = h
		}
	})
	r.Wait(interval / 2) // no session is open while the first one opens
	happened := int64(0)
	for range random.IntN(24) {
		happened += h.happen(time.Now().Add(interval))
		r.Wait(time.Duration(random.Int64N(int64(interval))))
		h.disturb(r)
		r.Wait(interval)
	}
	h.mu.Lock()
	h.lost = false
	h.mu.Unlock()
	r.Wait(3 * interval)
	seen.mu.Lock()
	if seen.sum != happened || seen.fell {
		t.Errorf("XIDs counted = %d, want %d; sum fell: %v, want false (kind %d, remote %v, kernel log %v)",
			seen.sum, happened, seen.fell, h.kind, h.remote, h.kernelLog)
	}
	seen.mu.Unlock()
}

// disturb does something random to a running exporter.
func (h *history) disturb(r *loop.Rig) {
	switch h.random.IntN(8) {
	case 0:
		h.mu.Lock()
		latest := h.sessions[len(h.sessions)-1]
		latest.err = gpu.ErrTopology
		close(latest.done)
		h.mu.Unlock()
	case 1, 2:
		r.Reload(r.Settings)
		h.close(1)
	case 3:
		h.mu.Lock()
		h.lost = !h.lost
		h.mu.Unlock()
	case 4, 5:
		h.set()
	}
}
