package record_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// troubles happen to a machine while it is recorded, every 5 s.
const troubles = `
faults:
  - {fault: xid, at: 7s, devices: ["0"], xids: [62, 45], apart: 1ms}
  - {fault: gpu-lost, at: 12s, for: 5s, devices: ["0"]}
  - {fault: freeze, at: 1s, fields: [DCGM_FI_DEV_GPU_TEMP]}
  - {fault: no-permission, at: 3s, for: 5s, fields: [DCGM_FI_DEV_FB_USED]}
  - {fault: throttle, at: 6s, for: 3s, devices: ["0"], reasons: [hw_thermal]}
  - {fault: health, at: 8s, devices: ["0"], watches: [PCIE]}
  - {fault: set, at: 9s, for: 2s, fields: [DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION], value: 2}
`

// troubled is a node to which all this happens from now on.
func troubled(t *testing.T, node string) app.Backend {
	t.Helper()
	script, err := sim.ParseScenario(strings.NewReader(troubles), "troubles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, source := simulated(t, sim.Options{Node: node, Scenario: script, Start: time.Now()})
	return source
}

// A replay that is recorded gives the recording that it plays, masked or not.
func TestRecordingOfAReplay(t *testing.T) {
	for _, node := range []string{"single", "a100-mig", "shared", "everything"} {
		t.Run(node, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := run(t.Context(), troubled(t, node), 0, "--source=sim", "-d=f+c", "--samples=5", "--out=r.json")
				if first.code != command.OK {
					t.Fatalf("code %d: %s", first.code, &first.Err)
				}
				second := run(t.Context(), replayed(first.recording(t)), 0, "--source=sim", "-d=f+c", "--unmasked", "--samples=5", "--out=r.json")
				if second.code != command.OK {
					t.Fatalf("code %d: %s", second.code, &second.Err)
				}
				// It is not masked again, and does not say that it is.
				want := strings.Split(strings.Replace(string(first.files["r.json"]), `"masked":true`, `"masked":false`, 1), "\n")
				got := strings.Split(string(second.files["r.json"]), "\n")
				for i := range max(len(want), len(got)) {
					if i >= len(want) || i >= len(got) || want[i] != got[i] {
						t.Fatalf("line %d of %d, which were %d\n-first +second:\n%s", i+1, len(got), len(want),
							gocmp.Diff(pieces(want, i), pieces(got, i)))
					}
				}
			})
		})
	}
}

// pieces are the parts of a line.
func pieces(lines []string, i int) []string {
	if i >= len(lines) {
		return nil
	}
	return strings.SplitAfter(lines[i], "},{")
}

// valued returns the series of the given number of pages, in order, with their values; times count
// from the start.
func valued(t *testing.T, source app.Backend, plan *gpu.Plan, cycles int) [][]string {
	t.Helper()
	begin := time.Now()
	encoder := exposition.NewEncoder(exposition.Options{Hostname: "h"})
	var pages [][]string
	err := app.Collect(t.Context(), source, plan, cycles, func(s *gpu.Snapshot) {
		p := encoder.Encode(s)
		defer p.Release()
		var lines []string
		for line := range bytes.Lines(p.Bytes()) {
			if !bytes.HasPrefix(line, []byte("#")) && !bytes.HasPrefix(line, []byte("dcgm_exporter_source_info")) {
				lines = append(lines, sinceStart(t, string(line), begin))
			}
		}
		pages = append(pages, lines)
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// The page of a replay has the values of the recorded machine's at the same moments: of every field
// and family, through the whole collector.
func TestReplayedPagesHaveTheValuesOfTheMachine(t *testing.T) {
	plan := allCounters(t)
	plan.Interval = 5 * time.Second
	for _, node := range []string{"single", "a100-mig", "everything"} {
		t.Run(node, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const cycles = 5
				// The machine is looked at while it is recorded, by two that do not know of each other.
				recorded := make(chan *shot)
				go func() {
					recorded <- run(t.Context(), troubled(t, node), 0, "--source=sim", "-d=f+c", "--unmasked", "--samples=5", "--out=r.json")
				}()
				want := valued(t, troubled(t, node), plan, cycles)
				rec := (<-recorded).recording(t)
				got := valued(t, replayed(rec), plan, cycles)
				for i := range want {
					if diff := gocmp.Diff(want[i], got[i]); diff != "" {
						t.Errorf("page %d (-machine +replay):\n%s", i, diff)
					}
				}
				if len(got) != cycles || len(want[0]) < 100 {
					t.Errorf("%d pages, the first with %d lines", len(got), len(want[0]))
				}
			})
		})
	}
}

// sinceStart turns the value of a family of times into one since the start.
func sinceStart(t *testing.T, line string, begin time.Time) string {
	t.Helper()
	if !strings.HasPrefix(line, "DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS{") {
		return line
	}
	at := strings.LastIndexByte(line, ' ')
	seconds, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
	if err != nil {
		t.Fatal(err)
	}
	// Milliseconds: a float of this size has no more.
	return line[:at+1] + strconv.FormatFloat(seconds-float64(begin.UnixNano())/1e9, 'f', 3, 64)
}
