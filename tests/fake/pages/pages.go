// Package pages produces the pages of a simulated node, like the exporter does, for tests that read pages.
package pages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/compat"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// A Run is an exporter of a simulated node. If its settings enable the kernel log, it reads the log of the simulated
// kernel. An XID at the exact time of a cycle is in that cycle or the next.
type Run struct {
	Source     *sim.Source          // nil if Other is set
	Other      collector.Source     // a source that is not simulated; it has no kernel log
	PodOf      accounting.PodOf     // nil for the one of Source, if any
	Owners     collector.Attributor // nil for the owners of Source, if any
	Args       []string             // command-line arguments
	Env        map[string]string    // environment variables in addition to NODE_NAME
	Host       string               // value of NODE_NAME, and so of the host label
	Counters   []byte               // content of a counters file
	Interval   time.Duration        // 0 for the interval of the settings
	Trailer    string               // appended after the exporter's own series, if these are enabled
	Booted     time.Time            // when the machine booted
	MaxBackoff time.Duration        // maximum backoff of the collector; 0 for the default
	HangLimit  time.Duration        // hang limit of the collector; 0 for the one in the settings
	Registry   *prometheus.Registry // registry of the exporter's own series; nil for a new one
}

// Each calls see with each snapshot and its page until see returns false. The page is valid until see returns. If the
// exporter exits because a driver call hangs, Each starts it again, as a supervisor would do. Each must be called in a
// synctest bubble, unless the source is not simulated.
func (r Run) Each(t *testing.T, see func(*gpu.Snapshot, []byte) bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for {
		run := r.Loop(t, func(s *gpu.Snapshot, page *exposition.Page) {
			if ctx.Err() == nil && !see(s, page.Bytes()) {
				cancel()
			}
		})
		err := run(ctx)
		if errors.Is(err, gpu.ErrWedged) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", r.Host, err)
		}
		return
	}
}

// Loop is like New, but ends the test if the settings are invalid.
func (r Run) Loop(t *testing.T, publish func(*gpu.Snapshot, *exposition.Page)) func(context.Context) error {
	t.Helper()
	run, err := r.New(publish)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// New returns a function that runs the exporter and publishes pages until its context ends. That function returns
// errors of the collector and of the exporter's own metrics. An error of New is about the settings or the counters
// file.
func (r Run) New(publish func(*gpu.Snapshot, *exposition.Page)) (func(context.Context) error, error) {
	env := func(name string) (string, bool) {
		if name == "NODE_NAME" {
			return r.Host, true
		}
		value, ok := r.Env[name]
		return value, ok
	}
	cfg, err := config.Parse(r.Args, env, os.ReadFile)
	if err != nil {
		return nil, err
	}
	set, err := app.ParseCounters(cfg, "counters.csv", r.Counters)
	if err != nil || len(set.Problems) > 0 {
		return nil, errors.Join(err, fmt.Errorf("counters: %v", set.Problems))
	}
	plan, err := set.Plan(cfg, cmp.Or(r.Interval, cfg.Collection.Interval))
	if err != nil {
		return nil, err
	}
	registry := cmp.Or(r.Registry, prometheus.NewRegistry())
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dcgm_exporter_build_info", ConstLabels: prometheus.Labels{"version": "v0.1.0"}, Help: "Same as in app.",
	})
	build.Set(1)
	registry.MustRegister(build)
	options := app.EncoderOptions(cfg, slog.New(slog.DiscardHandler))
	var gathered error // written by the loop's goroutine
	if cfg.Web.ExporterMetrics {
		options.Trailer = func(dst []byte) []byte {
			dst, err := loop.AppendGathered(dst, registry)
			gathered = errors.Join(gathered, err)
			return append(dst, r.Trailer...)
		}
	}
	source, podOf, attributors := r.Other, r.PodOf, []collector.Attributor{r.Owners}
	if r.Source != nil {
		source, podOf = collector.SourceOf(r.Source.Open), r.Source.PodOf
	}
	switch {
	case r.Owners == nil && r.Source != nil:
		attributors[0] = r.Source
	case r.Owners == nil:
		attributors = nil
	}
	encoder := exposition.NewEncoder(options)
	like := app.CompatOptions(cfg)
	rewriter := compat.New(like)
	o := loop.Options{
		PodOf: podOf, VirtualGPUs: like.VirtualGPUs, OwnersOnInfo: options.OwnersOnInfo, Strict: like.Strict,
		Booted: r.Booted,
		Options: collector.Options{
			Settings:   collector.Settings{Source: source, Plan: plan, Attributors: attributors},
			MaxBackoff: r.MaxBackoff, HangLimit: cmp.Or(r.HangLimit, cfg.Collection.HangLimit),
			Registerer: registry, Log: slog.New(slog.DiscardHandler),
			Publish: func(s *gpu.Snapshot) { publish(s, encoder.Encode(rewriter.Rewrite(s))) },
		},
	}
	var kernel *kernellog.Reader
	if path := cfg.Collection.KernelLog; path != "" {
		kernel = kernellog.New(kernellog.Options{
			Path: path, Registerer: registry, Log: slog.New(slog.DiscardHandler), PodOf: r.Source.PodOf,
			Open: func() (kernellog.Device, error) { return r.Source.KernelLog(), nil },
		})
		o.KernelLog = kernel
	}
	l := loop.New(o)
	run := func(ctx context.Context) error { return errors.Join(l.Run(ctx), gathered) }
	if kernel == nil {
		return run, nil
	}
	return func(ctx context.Context) error {
		read := make(chan struct{})
		go func() { defer close(read); kernel.Run(ctx) }()
		defer func() { <-read }()
		return run(ctx)
	}, nil
}
