//go:build linux && cgo

package nvml

import (
	"fmt"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// gpmInterval is the minimum time between two samples of a metric. The hardware does not refresh its counters faster
// (nvmlGpmSampleGet, nvml.h).
const gpmInterval = 100 * time.Millisecond

// A gpmRow holds the profiling state of a row. A metric is the difference between the samples of two Reads.
type gpmRow struct {
	metrics  []gpmMetric
	samples  [2]gonvml.GpmSample // the older and the newer sample
	taken    time.Time           // time of the older sample; zero before the first
	sampling backoff
}

type gpmMetric struct {
	field   int
	metric  gonvml.GpmMetricId
	unit    gpu.Unit
	backoff backoff
	slot    int // index in the current call, or -1
}

// startProfiling allocates the samples of a row. If the GPU has no GPM, the row is never sampled. An error may be
// transient.
func (s *Session) startProfiling(r *row, now time.Time) error {
	g := &r.gpm
	why, ret := s.withoutGPM(r.target.parent)
	if why != "" {
		err := fmt.Errorf("%w: %s", gpu.ErrNotSupported, why)
		if s.hasDCGMProfiling(r.target.parent) {
			err = fmt.Errorf("%w: %w", gpu.ErrNeedsDCGM, err)
		}
		g.sampling.never(err)
		return err
	}
	function := "nvmlGpmQueryDeviceSupport"
	for i := 0; i < len(g.samples) && ret == gonvml.SUCCESS; i++ {
		function = "nvmlGpmSampleAlloc"
		g.samples[i], ret = s.api.GpmSampleAlloc()
	}
	if ret != gonvml.SUCCESS {
		g.free()
	}
	return g.sampling.record(function, ret, now)
}

// withoutGPM returns why a GPU has no GPM, or "" if it has. If ret is not SUCCESS, this is unknown.
func (s *Session) withoutGPM(handle gonvml.Device) (why string, ret gonvml.Return) {
	if missing := s.symbols.missing("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree",
		"nvmlGpmSampleGet", "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet"); missing != "" {
		return "this driver has no " + missing, gonvml.SUCCESS
	}
	support, ret := handle.GpmQueryDeviceSupport()
	if ret == gonvml.SUCCESS && support.IsSupportedDevice == 0 || lasting(ret) {
		return "profiling without DCGM needs GPM (Hopper and later)", gonvml.SUCCESS
	}
	return "", ret
}

// hasDCGMProfiling reports whether DCGM can profile a GPU without GPM: Volta to Ada, except GeForce.
func (s *Session) hasDCGMProfiling(handle gonvml.Device) bool {
	if s.symbols.missing("nvmlDeviceGetArchitecture", "nvmlDeviceGetBrand") != "" {
		return false
	}
	architecture, ret := handle.GetArchitecture()
	if ret != gonvml.SUCCESS || architecture < gonvml.DEVICE_ARCH_VOLTA || architecture > gonvml.DEVICE_ARCH_ADA {
		return false
	}
	brand, ret := handle.GetBrand()
	return ret == gonvml.SUCCESS && brand != gonvml.BRAND_GEFORCE && brand != gonvml.BRAND_GEFORCE_RTX
}

// free releases the samples.
func (g *gpmRow) free() {
	for i, sample := range g.samples {
		if sample != nil {
			sample.Free()
			g.samples[i] = nil
		}
	}
}

// sample takes a sample of a row.
func (s *Session) sample(r *row, now time.Time) error {
	g := &r.gpm
	if g.sampling.active(now) {
		return g.sampling.err
	}
	if g.samples[0] == nil {
		if err := s.startProfiling(r, now); err != nil {
			return err
		}
	}
	if r.kind == gpu.KindGPUInstance {
		return g.sampling.record("nvmlGpmMigSampleGet", g.samples[1].MigGet(r.target.parent, r.gi), now)
	}
	return g.sampling.record("nvmlGpmSampleGet", g.samples[1].Get(r.target.device), now)
}

// readProfiling appends the profiling fields of a row if its two samples are at least gpmInterval apart.
func (s *Session) readProfiling(r *row, b *gpu.Batch) error {
	g := &r.gpm
	now := time.Now()
	if len(g.metrics) == 0 || now.Sub(g.taken) < gpmInterval {
		return nil
	}
	err := s.sample(r, now)
	switch {
	case gone(codeOf(err)):
		return err
	case err != nil:
		for i := range g.metrics {
			b.Fail(r.index, g.metrics[i].field, err)
		}
		return nil
	case !g.taken.IsZero():
		err = s.readMetrics(r, b, now)
	}
	g.samples[0], g.samples[1] = g.samples[1], g.samples[0]
	g.taken = now
	return err
}

// readMetrics appends the metrics between the two samples of a row, except metrics that the driver declined recently.
func (s *Session) readMetrics(r *row, b *gpu.Batch, now time.Time) error {
	p := &r.gpm
	get := &s.metrics
	get.NumMetrics = 0
	get.Sample1, get.Sample2 = p.samples[0], p.samples[1]
	for i := range p.metrics {
		w := &p.metrics[i]
		w.slot = -1
		if w.backoff.active(now) {
			b.Fail(r.index, w.field, w.backoff.err)
			continue
		}
		w.slot = int(get.NumMetrics)
		get.Metrics[w.slot].MetricId = uint32(w.metric)
		get.NumMetrics++
	}
	if get.NumMetrics == 0 {
		return nil
	}
	all := s.api.GpmMetricsGet(get)
	if gone(all) {
		return &driverError{"nvmlGpmMetricsGet", all}
	}
	for i := range p.metrics {
		w := &p.metrics[i]
		if w.slot < 0 {
			continue
		}
		m := &get.Metrics[w.slot]
		if all != gonvml.SUCCESS { // the call failed, not the metric: the next Read tries again
			b.Fail(r.index, w.field, &driverError{"nvmlGpmMetricsGet", all})
		} else if err := w.backoff.record("nvmlGpmMetricsGet", gonvml.Return(m.NvmlReturn), now); err != nil {
			b.Fail(r.index, w.field, err)
		} else if v := w.value(m.Value); v.IsAbsent() {
			b.Fail(r.index, w.field, errNoActivity)
		} else {
			b.AddAt(r.index, w.field, v, now.UnixNano())
		}
	}
	return nil
}

// errNoActivity is the fault of a metric that is not a number.
var errNoActivity = fmt.Errorf("%w: the samples do not determine a value", gpu.ErrUnavailable)

// value converts a metric to DCGM's unit. Utilizations are percentages in NVML and ratios in DCGM. Traffic is MiB per
// second in NVML (nvmlGpmMetricId_t, nvml.h) and whole bytes per second in DCGM.
func (w *gpmMetric) value(v float64) gpu.Value {
	if w.unit == catalog.Ratio {
		return gpu.Float(v / 100)
	}
	f := gpu.Float(v * mebibyte)
	n, ok := f.Number()
	if !ok || n < 0 || n >= 1<<62 {
		return gpu.Value{}
	}
	return gpu.Int(int64(n))
}
