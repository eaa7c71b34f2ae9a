package goldens

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// nodeName is the host of every page.
const nodeName = "node-17"

// The dimensions of a case that a session has.
var (
	files        = []string{"default", "fleet"}
	vocabularies = []string{"classic", "current", "both"}
)

// few is the counters file of the pages to read.
const few = "few"

// own is the case whose page has the series of the loop itself too.
const own = "own-series"

// labelFlags are settings that change the labels of a page and nothing else.
type labelFlags struct {
	name string
	args []string
}

var flags = []labelFlags{
	{"plain", nil},
	{own, nil},
	{"hostname-upper", []string{"--hostname-label=Hostname"}},
	{"hostname-both", []string{"--hostname-label=both"}},
	{"no-hostname", []string{"--no-hostname"}},
	{"old-namespace", []string{"--use-old-namespace"}},
	{"blanks", []string{"--replace-blanks-in-model-name"}},
	{"old-namespace-upper-blanks", []string{"-o", "--hostname-label=Hostname", "-rbmn"}},
	{"old-namespace-no-hostname", []string{"-o", "-n"}},
}

// parse reads settings as a command line has them.
func parse(t *testing.T, args ...string) *config.Config {
	t.Helper()
	env := func(name string) (string, bool) { return nodeName, name == "NODE_NAME" }
	cfg, err := config.Parse(args, env, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// planOf is what is requested with a counters file and a vocabulary.
func planOf(t *testing.T, file, vocabulary string, interval time.Duration) *gpu.Plan {
	t.Helper()
	cfg := parse(t, "--vocabulary="+vocabulary)
	set, err := app.ParseCounters(cfg, file, contentOf(t, file))
	if err != nil || len(set.Problems) > 0 {
		t.Fatal(err, set.Problems)
	}
	plan, err := set.Plan(cfg, interval)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// contentOf returns a counters file: default and fleet, which are shipped, and few, for pages to
// read.
func contentOf(t *testing.T, file string) []byte {
	t.Helper()
	if file == few {
		return []byte(`DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in degrees C).
DCGM_FI_DEV_POWER_USAGE, gauge, Power draw of the board (in W).
DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).
DCGM_FI_DEV_FB_USED, gauge, Used frame buffer (in MiB).
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Part of the time in which the engine was active.
DCGM_FI_DEV_XID_ERRORS, gauge, Last XID error (0 for none).
DCGM_EXP_XID_ERRORS_COUNT, gauge, XID errors within the window.
DCGM_FI_DRIVER_VERSION, label, Driver version.
`)
	}
	content, ok := etc.File(file + "-counters.csv")
	if !ok {
		t.Fatalf("no file %s", file)
	}
	return content
}

// encoderOptions are those that app makes of the settings.
func encoderOptions(cfg *config.Config) exposition.Options {
	o := exposition.Options{
		HostnameLabel: cfg.Labels.Hostname,
		OldNamespace:  cfg.Labels.OldNamespace, ReplaceBlanksInModelName: cfg.Labels.ReplaceBlanks,
	}
	if !cfg.Labels.NoHostname {
		o.Hostname, o.EngineHost = cfg.Labels.NodeName, true
	}
	return o
}

// A session is one loop over one source, and what distinguishes its pages.
type session struct {
	name        string // file/vocabulary/owners
	source      collector.Source
	plan        *gpu.Plan
	attributors []collector.Attributor
	podOf       accounting.PodOf
	virtual     bool
	kubernetes  bool // the pages are those of --kubernetes
	cycle       int  // the page of which cycle is taken
}

// pages runs the session and returns the page of one cycle for each of the flags, in their order.
func (s *session) pages(t *testing.T) [][]byte {
	t.Helper()
	registry := prometheus.NewRegistry()
	var pages [][]byte
	encode := func(snapshot *gpu.Snapshot) {
		for _, f := range flags {
			args := f.args
			if s.kubernetes {
				args = append([]string{"--kubernetes"}, args...)
			}
			options := encoderOptions(parse(t, args...))
			options.VirtualGPUs = s.virtual
			if f.name == own {
				options.Trailer = func(dst []byte) []byte { return loop.AppendGathered(t, dst, registry) }
			}
			page := exposition.NewEncoder(options).Encode(snapshot)
			pages = append(pages, bytes.Clone(page.Bytes()))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	left := cmp.Or(s.cycle, 1)
	l := loop.New(loop.Options{PodOf: s.podOf, VirtualGPUs: s.virtual, Options: collector.Options{
		Source: s.source, Plan: s.plan, Attributors: s.attributors,
		Registerer: registry,
		Publish: func(snapshot *gpu.Snapshot) {
			if snapshot.Topology == nil {
				if !errors.Is(snapshot.Health.Err, collector.ErrStarting) {
					t.Errorf("%s: a page without data: %v", s.name, snapshot.Health.Err)
					cancel()
				}
				return
			}
			if left--; left == 0 {
				encode(snapshot)
				cancel()
			}
		},
	}})
	if err := l.Run(ctx); err != nil {
		t.Fatalf("%s: Run: %v", s.name, err)
	}
	if pages == nil {
		t.Fatalf("%s: no page: %v", s.name, context.Cause(ctx))
	}
	return pages
}

// patience bounds a session. It is no claim about speed.
const patience = time.Hour

// owned says that two pods share the first GPU of a topology.
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
