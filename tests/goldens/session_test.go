package goldens

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/compat"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// nodeName is the name of the node. Pages have it as the host, unless the arguments disable the host label.
const nodeName = "node-17"

// counters is the counters file of the golden pages.
const counters = `DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in degrees C).
DCGM_FI_DEV_POWER_USAGE, gauge, Power draw of the board (in W).
DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).
DCGM_FI_DEV_FB_USED, gauge, Used frame buffer (in MiB).
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Fraction of time in which the engine was active.
DCGM_FI_DEV_XID_ERRORS, gauge, Last XID error (0 for none).
DCGM_EXP_XID_ERRORS_COUNT, gauge, XID errors within the window.
DCGM_FI_DRIVER_VERSION, label, Driver version.
`

// parse parses command-line arguments of an exporter on the node nodeName.
func parse(t *testing.T, args ...string) *config.Config {
	t.Helper()
	env := func(name string) (string, bool) { return nodeName, name == "NODE_NAME" }
	cfg, err := config.Parse(args, env, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func planOf(t *testing.T, counters string, interval time.Duration) *gpu.Plan {
	t.Helper()
	cfg := parse(t)
	set, err := app.ParseCounters(cfg, "few", []byte(counters))
	if err != nil || len(set.Problems) > 0 {
		t.Fatal(err, set.Problems)
	}
	plan, err := set.Plan(cfg, interval)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// session is a loop with one source, and the settings of its pages.
type session struct {
	source      collector.Source
	plan        *gpu.Plan
	attributors []collector.Attributor
	podOf       accounting.PodOf
	virtual     bool
	args        []string // arguments of the exporter that affect labels
	own         bool     // whether pages include the collector's own metrics
	cycle       int      // number of the cycle whose page is taken
}

// patience bounds a session. It is not a performance requirement.
const patience = time.Hour

// page runs the session and returns its page.
func (s *session) page(t *testing.T) (page []byte) {
	t.Helper()
	registry := prometheus.NewRegistry()
	cfg := parse(t, s.args...)
	options := exposition.Options{
		HostLabels: cfg.Labels.Hostname.Names(), OldNamespace: cfg.Labels.OldNamespace,
		ReplaceBlanksInModelName: cfg.Labels.ReplaceBlanks,
	}
	if !cfg.Labels.NoHostname {
		options.Hostname, options.EngineHost = cfg.Labels.NodeName, true
	}
	if s.own {
		options.Trailer = func(dst []byte) []byte {
			dst, err := loop.AppendGathered(dst, registry)
			if err != nil {
				t.Error(err)
			}
			return dst
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	rewriter := compat.New(compat.Options{VirtualGPUs: s.virtual})
	left := s.cycle
	l := loop.New(loop.Options{PodOf: s.podOf, VirtualGPUs: s.virtual, Options: collector.Options{
		Settings:   collector.Settings{Source: s.source, Plan: s.plan, Attributors: s.attributors},
		Registerer: registry,
		Publish: func(snapshot *gpu.Snapshot) {
			if snapshot.Topology == nil {
				if !errors.Is(snapshot.Health.Err, collector.ErrStarting) {
					t.Errorf("page has no data: %v", snapshot.Health.Err)
					cancel()
				}
				return
			}
			if left--; left == 0 {
				page = bytes.Clone(exposition.NewEncoder(options).Encode(rewriter.Rewrite(snapshot)).Bytes())
				cancel()
			}
		},
	}})
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if page == nil {
		t.Fatalf("no page: %v", context.Cause(ctx))
	}
	return page
}

// owned is an attributor that reports that two pods share the first GPU by time-slicing.
type owned struct{}

func (owned) Name() string { return "kubernetes" }

func (owned) Attribute(_ context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	use := gpu.Use{Sharing: gpu.SharingTimeSlicing, Replicas: 2}
	for i := range 2 {
		use.Owners = append(use.Owners, gpu.Owner{
			Namespace: "work", Pod: fmt.Sprint("trainer-", i), Container: "main", Replica: fmt.Sprint(i),
			PodUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i+1),
		})
	}
	return &gpu.Owners{Uses: append([]gpu.Use{use}, make([]gpu.Use, len(t.Devices)-1)...)}, nil
}
