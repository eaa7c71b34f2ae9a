package app_test

import (
	"context"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

func TestLook(t *testing.T) {
	cfg := parse(t, nil, "--source=sim")
	missing := func(string) ([]byte, error) { return nil, fs.ErrNotExist }
	a, err := app.LoadCounters(t.Context(), cfg, missing)
	if err != nil || a.Name != "built-in default-counters.csv" {
		t.Fatalf("counters = %q, error = %v; want those of the built-in file", a.Name, err)
	}
	plan, err := a.Plan(cfg, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	node, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	simulated := app.Backend{Source: collector.SourceOf(node.Open)}
	for _, tt := range []struct {
		name   string
		over   bool // the context is canceled before the start
		source app.Backend
		seen   int
		took   time.Duration
		reason string
	}{
		{"three cycles", false, simulated, 3, 2 * time.Second, ""},
		{"an unavailable source", false, app.Backend{Source: refusing{gpu.ErrUnavailable}}, 0, 0, "unavailable"},
		{"an interrupt", true, simulated, 0, 0, "error"},
		{"a source that blocks", false, app.Backend{Source: silent{}}, 0, 26250 * time.Millisecond, "timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if tt.over {
					cancel()
				}
				defer cancel()
				start, seen := time.Now(), 0
				err := app.Collect(ctx, tt.source, plan, 3, func(*gpu.Snapshot) { seen++ })
				if gpu.Reason(err) != tt.reason || seen != tt.seen {
					t.Errorf("cycles = %d, error = %v; want %d and the reason %q", seen, err, tt.seen, tt.reason)
				}
				if took := time.Since(start); took != tt.took { // fake clock of the bubble
					t.Errorf("took %s, want %s", took, tt.took)
				}
			})
		})
	}
}

type refusing struct{ err error }

func (r refusing) Open(context.Context, *gpu.Plan) (collector.Session, error) { return nil, r.err }

// silent does not return before the deadline.
type silent struct{}

func (silent) Open(ctx context.Context, _ *gpu.Plan) (collector.Session, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Watch groups may use the names of either vocabulary, whichever is served.
func TestPatternsOfEitherVocabulary(t *testing.T) {
	const yaml = "version: 1\ncollection:\n  watchGroups:\n  - {name: slow, interval: 5m, fields: [%s]}\n"
	for _, temperature := range []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CEL*"} {
		for _, vocabulary := range []string{"classic", "current", "both"} {
			file := func(string) ([]byte, error) { return fmt.Appendf(nil, yaml, temperature), nil }
			noEnv := func(string) (string, bool) { return "", false }
			cfg, err := config.Parse([]string{"--config-file=c.yaml", "--vocabulary=" + vocabulary}, noEnv, file)
			if err != nil {
				t.Fatal(err)
			}
			set, err := app.ParseCounters(cfg, "default", etc.Default())
			if err != nil {
				t.Fatal(err)
			}
			plan, err := set.Plan(cfg, cfg.Collection.Interval)
			if err != nil {
				t.Errorf("%s with vocabulary %s: %v", temperature, vocabulary, err)
				continue
			}
			for i, f := range plan.Fields {
				if got := plan.IntervalOf(i); f.ID == 150 && got != 5*time.Minute {
					t.Errorf("%s, vocabulary %s: interval of %s = %v, want 5m", temperature, vocabulary, f.Name, got)
				}
			}
		}
	}
}
