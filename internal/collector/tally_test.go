package collector_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/state"
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

// FuzzXIDsAreCountedOnce: however both sources tell of events, across restarts
// and changes of owner, the sum over all series is their number, and never
// falls.
func FuzzXIDsAreCountedOnce(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { countOnce(t, rand.New(rand.NewPCG(seed, 0))) })
	})
}

func countOnce(t *testing.T, random *rand.Rand) {
	topology := gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-0", PCIBusID: "00000000:1B:00.0"}})
	var told []gpu.Sample
	source := &fake{topology: topology, read: func(_ context.Context, b *gpu.Batch) error {
		b.Add(0, 0, gpu.Int(1), time.Now())
		b.Samples = append(b.Samples, told...)
		told = nil
		return nil
	}}
	log, pick := &witness{}, rand.New(rand.NewPCG(random.Uint64(), 1)) // the attributor's own
	pods := &owners{answer: func(context.Context, *gpu.Topology) (*gpu.Owners, error) {
		return &gpu.Owners{Labels: [][]gpu.Label{{{Name: "pod", Value: strconv.Itoa(pick.IntN(50))}}}}, nil
	}}
	var kept *state.State
	total, highest, events := int64(0), int64(0), int64(0)
	for range 5 { // processes
		r := start(t, source, func(o *collector.Options) {
			o.Plan.Derived = []gpu.Derived{{Name: "DCGM_EXP_XID_ERRORS_TOTAL", Type: gpu.MetricCounter, Field: 1}}
			o.XIDLog, o.Kept, o.Save = log, kept, func(s *state.State) { kept = s }
			o.Attributors = []collector.Attributor{pods}
			publish := o.Publish
			o.Publish = func(s *gpu.Snapshot) {
				publish(s)
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
		for range 12 { // cycles
			at := time.Now()
			source.mu.Lock()
			log.mu.Lock()
			for range random.IntN(4) {
				at = at.Add(time.Millisecond)
				events++
				xid := int64(79 + random.IntN(2))
				told = append(told, gpu.Sample{Field: 1, Value: gpu.Int(xid), Time: at.UnixNano()})
				log.xids = append(log.xids, gpu.XID{PCIBusID: "00000000:1b:00.0", Code: xid, Time: at.UnixNano() + random.Int64N(1e6)})
			}
			log.mu.Unlock()
			source.mu.Unlock()
			r.wait(interval)
		}
		r.wait(interval)
		if total != events {
			t.Fatalf("%d counted of %d", total, events)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
}
