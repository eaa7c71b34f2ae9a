package collector_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/statefile"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// witness is a kernel's log that a test writes.
type witness struct {
	mu     sync.Mutex
	xids   []gpu.XID
	behind bool // it is not read
}

func (w *witness) Current() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.behind
}

func (w *witness) tell(x gpu.XID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.xids = append(w.xids, x)
}

func (w *witness) Drain(into []gpu.XID) ([]gpu.XID, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	into = append(into, w.xids...)
	w.xids = nil
	return into, "boot/1"
}

// The XIDs of a history: who tells them.
const (
	toldByBoth   = 48
	toldByEngine = 31
	toldByKernel = 79
)

// A history is what really happened to one GPU, and how two sources tell it.
type history struct {
	fake
	random *rand.Rand

	lock   sync.Mutex
	events []gpu.Sample // the engine's, by time
	cache  bool         // it keeps them and tells them to every session, else it dates them by the Read

	log  []gpu.XID // the kernel's, by when they can be read
	lags []int64   // from when on
	next int       // of log
}

func newHistory(random *rand.Rand) *history {
	h := &history{random: random, cache: random.IntN(3) > 0}
	h.topology = newEngine().topology
	return h
}

// A listener is a session that the engine tells.
type listener struct {
	*fakeSession
	h    *history
	told int // of events
}

// Open begins where an engine's memory or the driver's queue does.
func (h *history) Open(ctx context.Context, plan *gpu.Plan) (*listener, error) {
	s, err := h.fake.Open(ctx, plan)
	if err != nil {
		return nil, err
	}
	l := &listener{fakeSession: s, h: h}
	h.lock.Lock()
	for now := time.Now().UnixNano(); !h.cache && l.told < len(h.events) && h.events[l.told].Time <= now; {
		l.told++
	}
	h.lock.Unlock()
	time.Sleep(interval / 20) // the bubble's clock: things go on happening
	return l, nil
}

func (l *listener) Read(_ context.Context, b *gpu.Batch) error {
	time.Sleep(interval / 100)
	l.h.lock.Lock()
	defer l.h.lock.Unlock()
	b.Add(0, 0, gpu.Int(1), time.Now())
	again := l.h.cache && l.told > 0 // the newest stays current for a while
	for at := time.Now().UnixNano(); l.told < len(l.h.events) && l.h.events[l.told].Time <= at; l.told++ {
		x := l.h.events[l.told]
		if !l.h.cache {
			x.Time = at + int64(l.told)
		}
		b.Samples = append(b.Samples, x)
		again = false
	}
	if again {
		b.Samples = append(b.Samples, l.h.events[l.told-1])
	}
	return nil
}

// happen makes events of the time until end, and returns how many are to be
// counted. Of what happens while nobody listens, some engines tell nothing.
func (h *history) happen(end time.Time, heard bool) (count int64) {
	h.lock.Lock()
	defer h.lock.Unlock()
	begin := time.Now().UnixNano()
	at := begin
	for range h.random.IntN(5) {
		if h.random.IntN(4) > 0 {
			at += 1 + h.random.Int64N(max(1, (end.UnixNano()-at)/2))
		}
		xid := []int64{toldByBoth, toldByEngine, toldByKernel}[h.random.IntN(3)]
		if xid == toldByEngine && !heard && !h.cache {
			continue
		}
		count++
		if xid != toldByKernel {
			h.events = append(h.events, gpu.Sample{Field: 1, Value: gpu.Int(xid), Time: at})
		}
		if xid != toldByEngine {
			h.log = append(h.log, gpu.XID{PCIBusID: "00000000:1b:00.0", Code: xid, Time: at + h.random.Int64N(1e9) - 5e8})
			lag := int64(0)
			if h.random.IntN(3) == 0 {
				lag = h.random.Int64N(int64(interval))
			}
			h.lags = append(h.lags, max(at+lag, slices.Max(append(h.lags, 0))))
		}
	}
	slices.SortStableFunc(h.events, func(a, b gpu.Sample) int { return cmp.Compare(a.Time, b.Time) })
	return count
}

// Current and Drain are those of the kernel's log.
func (h *history) Current() bool { return true }

func (h *history) Drain(into []gpu.XID) ([]gpu.XID, string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for now := time.Now().UnixNano(); h.next < len(h.log) && h.lags[h.next] <= now; h.next++ {
		into = append(into, h.log[h.next])
	}
	return into, strconv.Itoa(h.next)
}

// FuzzXIDsAreCountedOnce: however both sources tell of events, again and late,
// across sessions, reloads, restarts, crashes and changes of owner, the sum over
// all owners is the number of events, and never falls.
func FuzzXIDsAreCountedOnce(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { countOnce(t, rand.New(rand.NewPCG(seed, 0))) })
	})
}

func countOnce(t *testing.T, random *rand.Rand) {
	h, pick := newHistory(random), rand.New(rand.NewPCG(random.Uint64(), 1)) // the attributor's own
	pods := &owners{answer: func(context.Context, *gpu.Topology) (*gpu.Owners, error) {
		return &gpu.Owners{Labels: [][]gpu.Label{{{Name: "pod", Value: strconv.Itoa(pick.IntN(50))}}}}, nil
	}}
	var kept, saved *statefile.State
	total, highest, events := int64(0), int64(0), int64(0)
	for range 6 { // processes
		if kept != nil {
			h.next, _ = strconv.Atoi(kept.KernelLog)
		}
		var change collector.Change
		r := start(t, &h.fake, func(o *loop.Options) {
			families(xidTotalFamily)(o)
			o.Source = collector.SourceOf(h.Open)
			o.KernelLog, o.Kept, o.Save = h, kept, func(s *statefile.State) { saved = s }
			o.Attributors = []collector.Attributor{pods}
			change = collector.Change{Source: o.Source, Plan: o.Plan, Attributors: o.Attributors}
			o.Publish = func(s *gpu.Snapshot) {
				if len(s.Families) == 0 {
					return
				}
				total = 0
				for _, x := range s.Families[0].Series {
					n, _ := x.Value.Int64()
					total += n
				}
				if total < highest {
					t.Errorf("the sum fell from %d to %d", highest, total)
				}
				highest = max(highest, total)
			}
		})
		r.wait(interval / 2) // while a session opens for the first time, nobody listens
		for range random.IntN(12) {
			events += h.happen(time.Now().Add(interval), true)
			r.wait(time.Duration(random.Int64N(int64(interval))))
			switch random.IntN(6) {
			case 0:
				h.session.end(gpu.ErrTopology)
			case 1:
				if err := r.loop.Reload(t.Context(), change); err != nil {
					t.Fatal(err)
				}
			}
			r.wait(interval)
		}
		r.wait(3 * interval)
		if total != events {
			t.Fatalf("%d counted of %d (engine keeps them: %v)", total, events, h.cache)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if kept == nil || !h.cache || random.IntN(3) > 0 { // else it crashed, and began anew where the one before it ended
			kept = saved
		}
		highest = 0
		events += h.happen(time.Now().Add(interval), false)
		time.Sleep(interval)
	}
}
