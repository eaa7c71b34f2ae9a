package app

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
)

// A build describes the build of the program. Unknown parts are "unknown".
type build struct {
	Version  string // tag, such as v0.1.0, or the output of git describe between tags
	Revision string // commit, with "-dirty" if files differed from it
	Date     string // date of the commit in RFC 3339
}

// build returns the values set by the linker, completed with those that the Go toolchain recorded.
func (p *Process) build() build {
	info, _ := debug.ReadBuildInfo()
	return completed(build{Version: p.Version, Revision: p.Revision, Date: p.Date}, info)
}

func completed(b build, info *debug.BuildInfo) build {
	recorded := map[string]string{}
	if info != nil {
		for _, s := range info.Settings {
			recorded[s.Key] = s.Value
		}
		if v := info.Main.Version; v != "(devel)" { // built by go install MODULE@VERSION
			recorded["version"] = v
		}
	}
	revision := recorded["vcs.revision"]
	if revision != "" && recorded["vcs.modified"] == "true" {
		revision += "-dirty"
	}
	return build{
		Version:  cmp.Or(b.Version, recorded["version"], "unknown"),
		Revision: cmp.Or(b.Revision, revision, "unknown"),
		Date:     cmp.Or(b.Date, recorded["vcs.time"], "unknown"),
	}
}

// String returns the output of --version.
func (b build) String() string {
	return fmt.Sprintf("dcgm-exporter %s\n  revision: %s\n  date:     %s\n  go:       %s\n  platform: %s/%s\n",
		b.Version, b.Revision, b.Date, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newRegistry(b build) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	promauto.With(reg).NewGauge(prometheus.GaugeOpts{
		Name: "dcgm_exporter_build_info",
		Help: "Version and build of the exporter; the value is 1.",
		ConstLabels: prometheus.Labels{
			"version": b.Version, "revision": b.Revision, "date": b.Date,
			"goversion": runtime.Version(), "goos": runtime.GOOS, "goarch": runtime.GOARCH,
		},
	}).Set(1)
	return reg
}

// runtimeEvery is the interval at which runtime and process metrics are gathered. Gathering them costs more than a
// cycle.
const runtimeEvery = 10 * time.Second

// selfMetrics renders the exporter's own metrics for the end of a page. Metrics of the collection are current; those of
// the runtime may be runtimeEvery old.
type selfMetrics struct {
	own     prometheus.Gatherer
	runtime *prometheus.Registry // empty in the subcommand once
	log     *slog.Logger
	text    atomic.Pointer[[]byte] // rendered metrics of runtime
}

// run gathers the runtime metrics every runtimeEvery, so that cycles do not wait for them.
func (s *selfMetrics) run(ctx context.Context) {
	tick := time.NewTicker(runtimeEvery)
	defer tick.Stop()
	for {
		text := s.render(nil, s.runtime)
		s.text.Store(&text)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// append appends the metrics in the text format. It is called once per page, by the goroutine of the collector.
func (s *selfMetrics) append(dst []byte) []byte { return s.appendRuntime(s.render(dst, s.own)) }

// appendRuntime appends the runtime metrics. It gathers them if run has not done so yet, so that the first page has
// them.
func (s *selfMetrics) appendRuntime(dst []byte) []byte {
	if text := s.text.Load(); text != nil {
		return append(dst, *text...)
	}
	return s.render(dst, s.runtime)
}

// stalled returns the metrics while the collection is stalled. It is safe for concurrent use.
func (s *selfMetrics) stalled() []byte {
	instead := prometheus.NewRegistry()
	collector.RegisterStalled(instead)
	replaced, _ := instead.Gather()
	others := func() ([]*dto.MetricFamily, error) {
		families, err := s.own.Gather()
		return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
			return slices.ContainsFunc(replaced, func(r *dto.MetricFamily) bool { return r.GetName() == f.GetName() })
		}), err
	}
	return s.appendRuntime(s.render(nil, prometheus.Gatherers{instead, prometheus.GathererFunc(others)}))
}

func (s *selfMetrics) render(dst []byte, from prometheus.Gatherer) []byte {
	families, err := from.Gather()
	if err != nil { // render what could be gathered
		s.log.Warn("Cannot gather all exporter metrics; serving the others", "error", err)
	}
	text := bytes.NewBuffer(dst)
	enc := expfmt.NewEncoder(text, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			s.log.Warn("Cannot encode an exporter metric; omitting it", "family", f.GetName(), "error", err)
		}
	}
	return text.Bytes()
}
