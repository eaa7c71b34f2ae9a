package pagefuzz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// configured is the counters file. more has the lines that a reload can add.
const (
	configured = `DCGM_FI_DEV_GPU_TEMP, gauge, t
DCGM_FI_DEV_GPU_UTIL, gauge, u
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, e
DCGM_FI_DEV_FB_USED, gauge, m
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, j
DCGM_EXP_XID_ERRORS_COUNT, gauge, c
DCGM_EXP_XID_ERRORS_TOTAL, counter, x
`
	more = "DCGM_FI_DEV_POWER_USAGE, gauge, p\nDCGM_FI_DRIVER_VERSION, label, v\n"
)

func planOf(t *testing.T, file string, interval time.Duration) *gpu.Plan {
	t.Helper()
	requests, _, err := counters.Parse(strings.NewReader(file), "file")
	if err != nil {
		t.Fatal(err)
	}
	return counters.NewPlan(requests, gpu.Plan{Interval: interval, Devices: gpu.Selector{Flex: true}})
}

// play simulates the world of a seed, checks its pages and returns their number.
func play(t *testing.T, seed uint64) (pages int) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		interval := []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second}[rng.IntN(4)]
		virtual := rng.IntN(5) == 0
		w := newWorld(rand.New(rand.NewPCG(seed, 3)))
		w.restless = seed%8 == 7
		w.note()
		n := newNode(t, w, seed)
		defer n.stop()

		mapper := podmapper.New(n.options())
		defer mapper.Close()

		c := newChecker(t, w, interval, virtual)
		encoder := exposition.NewEncoder(exposition.Options{Hostname: "node-17"})
		settings := collector.Settings{
			Source: collector.SourceOf(w.Open), Plan: planOf(t, configured, interval),
			Attributors: []collector.Attributor{mapper},
		}
		begun := false
		l := loop.New(loop.Options{PodOf: w.podOf, VirtualGPUs: virtual, Options: collector.Options{
			Settings: settings, Registerer: prometheus.NewRegistry(), MaxBackoff: 2 * time.Second,
			Publish: func(s *gpu.Snapshot) {
				if !begun {
					return
				}
				if errors.Is(s.Health.Err, gpu.ErrPanic) {
					c.breaks(noPanic, nil, "%v", s.Health.Err)
				}
				p := encoder.Encode(s)
				c.see(string(p.Bytes()), s.Time, s.Topology)
			},
		}})
		begun = true
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- l.Run(ctx) }()
		begin := time.Now()
		cycles := 4 + rng.IntN(20)
		for cycle := range cycles {
			// change the world shortly before the next tick, or half an interval before it
			ahead := []time.Duration{200 * time.Millisecond, 300 * time.Millisecond, interval / 2}[rng.IntN(3)]
			time.Sleep(time.Until(begin.Add(time.Duration(cycle+1)*interval - ahead)))
			synctest.Wait()
			w.step()
			n.follow()
			if rng.IntN(30) == 0 {
				settings.Plan = planOf(t, configured+more, interval)
				reload(ctx, l, settings)
			}
		}
		w.mu.Lock()
		w.engine.hanging = false
		w.mu.Unlock()
		quiet := []int{1, 1, 20}[rng.IntN(3)] // number of cycles without a change
		time.Sleep(time.Until(begin.Add(time.Duration(cycles+quiet)*interval + interval/2)))
		cancel()
		switch err := <-over; {
		case errors.Is(err, gpu.ErrWedged):
			c.breaks(endsInTime, nil, "Run: %v", err)
		case err != nil:
			c.breaks(runs, nil, "Run: %v", err)
		}
		synctest.Wait() // let the kubelet finish a request
		pages = c.pages
	})
	return pages
}

// step makes up to two random changes to the world, and may flip the first GPU of a restless world.
func (w *world) step() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps++
	for range w.rng.IntN(3) {
		w.change()
	}
	if w.restless && w.rng.IntN(2) == 0 {
		w.flip()
	}
	w.measure()
	w.note()
}

func reload(ctx context.Context, l *loop.Loop, s collector.Settings) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_ = l.Reload(ctx, s) // a rejected reload changes nothing
}

func TestPages(t *testing.T) {
	if text := os.Getenv("PAGEFUZZ_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("PAGEFUZZ_SEED: %v", err)
		}
		play(t, seed)
		return
	}
	want, err := strconv.Atoi(cmp.Or(os.Getenv("PAGEFUZZ_PAGES"), "10000"))
	if err != nil {
		t.Fatalf("PAGEFUZZ_PAGES: %v", err)
	}
	pages, seeds := 0, uint64(0)
	for ; pages < want; seeds++ {
		t.Run(fmt.Sprint("seed ", seeds), func(t *testing.T) { pages += play(t, seeds) })
	}
	t.Logf("checked %d pages of %d seeds", pages, seeds)
}

func FuzzPages(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Add(uint64(727)) // a GPU is partitioned while a pod that used it is remembered
	f.Fuzz(func(t *testing.T, seed uint64) { play(t, seed) })
}
