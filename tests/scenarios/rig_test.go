package scenarios

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// interval is the collection interval of a simulated node.
const interval = 10 * time.Second

// nodeOf returns a run of a simulated node with a scenario and a counters file.
func nodeOf(t *testing.T, node, faults string, seed uint64, file string) pages.Run {
	t.Helper()
	src, err := sim.New(sim.Options{Node: node, Seed: seed, Scenario: simulated.Scenario(t, "faults: "+faults)})
	if err != nil {
		t.Fatal(err)
	}
	counters, ok := etc.File(file)
	if !ok {
		t.Fatal("counters file not found: ", file)
	}
	return pages.Run{
		Source: src, Counters: counters, Interval: interval, HangLimit: time.Hour, MaxBackoff: interval / 2,
	}
}

// perform simulates a node with a scenario, with all counters of the fleet file. It returns the pages at the given
// times since the start, and checks that nothing is left open.
func perform(t *testing.T, node, faults string, times ...time.Duration) (texts []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var current atomic.Value
		begin := time.Now()
		node := nodeOf(t, node, faults, 11, etc.FleetName)
		node.Args = []string{"--no-hostname", "--xid-kernel-log=/dev/kmsg"}
		run := node.Loop(t, func(_ *gpu.Snapshot, page *exposition.Page) { current.Store(string(page.Bytes())) })
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- run(ctx) }()
		for _, at := range times {
			time.Sleep(time.Until(begin.Add(at)))
			synctest.Wait()
			texts = append(texts, current.Load().(string))
		}
		node.Source.Release()
		cancel()
		if err := <-over; err != nil {
			t.Errorf("Run: %v", err)
		}
		synctest.Wait()
		if n := node.Source.Stats(); n.Open != 0 || n.InFlight != 0 {
			t.Errorf("sessions and calls left open after the test = %+v, want none", n)
		}
	})
	return texts
}
