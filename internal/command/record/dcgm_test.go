//go:build linux && cgo

package record_test

import (
	"os"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

func TestMain(m *testing.M) { os.Exit(fakedcgm.Main(m)) }

// machine is an engine with one whole GPU and one that is cut.
var machine = []string{
	"library 4.6.0", "engine 4.6.0", "driver 580.95.05", "nvml 13.580.95.05",
	`gpu 0 uuid=GPU-0 name="NVIDIA H100 80GB HBM3" bus=00000000:1B:00.0 index=1 minor=2 prof=1001-1012`,
	`gpu 1 uuid=GPU-1 name="NVIDIA H100 80GB HBM3" bus=00000000:2C:00.0 index=2 minor=3 prof=none`,
	"instance 7 gpu=1 nvml=1 profile=3g.40gb uuid=MIG-aaaa",
	"value gpu:* 150 int 45", "value gpu:* 155 double 71.5", "value gpu:* 156 int 1000 10", "value gpu:* 203 unsupported i",
	"value instance:* 155 double 30.25", "value any:* 1001-1012 double 0.5",
}

const deadline = 30 * time.Second

func engine() app.Backend {
	return app.Backend{Source: collector.SourceOf(dcgm.New(dcgm.Options{}).Open)}
}

// What a real engine's client saw is played as it was seen.
func TestRecordOverDCGM(t *testing.T) {
	e := fakedcgm.New(t, machine...)
	s := run(t.Context(), engine(), 0, "--source=dcgm", "--unmasked", "--samples=2", "--collect-interval=200", "--out=r.json")
	if s.code != command.OK {
		t.Fatalf("code %d: %s", s.code, &s.Err)
	}
	plan := allCounters(t)
	if diff := gocmp.Diff(page(t, engine(), plan), page(t, replayed(s.recording(t)), plan)); diff != "" {
		t.Errorf("series (-engine +replay):\n%s", diff)
	}
	if open := e.Open(); len(open) != 0 {
		t.Errorf("open handles: %v", open)
	}
}

// An engine that freezes is reported in time, and released when it goes on.
func TestFrozenEngine(t *testing.T) {
	e := fakedcgm.New(t, append(machine, "block dcgmGetLatestValues_v2")...)
	s := run(t.Context(), engine(), 300*time.Millisecond, "--source=dcgm", "--samples=1", "--collect-interval=200")
	if s.code != command.Faulty || !strings.Contains(s.Err.String(), "nothing was recorded: ") || !strings.Contains(s.Err.String(), "timeout: no answer within 300ms") {
		t.Errorf("code %d, log %q", s.code, &s.Err)
	}
	e.Remove("block")
	tick, end := time.NewTicker(time.Millisecond), time.After(deadline)
	defer tick.Stop()
	for len(e.Open()) != 0 {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("open handles after the engine went on: %v", e.Open())
		}
	}
}
