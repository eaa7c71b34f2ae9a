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

// prepareProfiling takes a first sample of each row with profiling fields, or declines the fields. After a failure, the
// next Read tries again.
func (s *Session) prepareProfiling() {
	for _, d := range s.devices {
		for _, r := range d.rows {
			if d.dead == nil {
				_ = s.readProfiling(r, &gpu.Batch{}) // the next Read reports the error
			}
		}
	}
}

// startProfiling allocates the samples of a row, or declines its fields if the GPU has no GPM. It returns an error for
// failures that may pass.
func (s *Session) startProfiling(r *row, now time.Time) error {
	g := &r.gpm
	if g.samples[0] != nil {
		return nil
	}
	why, ret := s.withoutGPM(r.target.parent)
	if why != "" {
		err := fmt.Errorf("%w: %s", gpu.ErrNotSupported, why)
		if s.hasDCGMProfiling(r.target.parent) {
			err = fmt.Errorf("%w: %w", gpu.ErrNeedsDCGM, err)
		}
		for _, w := range g.metrics {
			r.declineFor(w.field, err)
		}
		*g = gpmRow{}
		return nil
	}
	function := "nvmlGpmQueryDeviceSupport"
	if ret == gonvml.SUCCESS {
		function, ret = "nvmlGpmSampleAlloc", g.alloc(s.api)
	}
	if ret != gonvml.SUCCESS {
		g.free()
		return g.sampling.backOff(function, ret, now)
	}
	return nil
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

func (g *gpmRow) alloc(api gonvml.Interface) gonvml.Return {
	for i := range g.samples {
		sample, ret := api.GpmSampleAlloc()
		if ret != gonvml.SUCCESS {
			return ret
		}
		g.samples[i] = sample
	}
	return gonvml.SUCCESS
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

// sampleGPM takes a sample of a row. It also returns the name of the function that it called.
func (r *row) sampleGPM(sample gonvml.GpmSample) (string, gonvml.Return) {
	if r.kind == gpu.KindGPUInstance {
		return "nvmlGpmMigSampleGet", sample.MigGet(r.target.parent, r.gi)
	}
	return "nvmlGpmSampleGet", sample.Get(r.target.device)
}

// readProfiling appends the profiling fields of a row if its two samples are at least gpmInterval apart.
func (s *Session) readProfiling(r *row, b *gpu.Batch) error {
	p := &r.gpm
	now := time.Now()
	if len(p.metrics) == 0 || !p.taken.IsZero() && now.Sub(p.taken) < gpmInterval {
		return nil
	}
	if p.sampling.active(now) {
		r.failProfiling(b, p.sampling.err)
		return nil
	}
	declined := len(r.declined)
	if err := s.startProfiling(r, now); err != nil {
		if gone(err) {
			return err
		}
		r.failProfiling(b, err)
		return nil
	}
	if len(p.metrics) == 0 {
		b.Faults = append(b.Faults, r.declined[declined:]...)
		return nil
	}
	if function, ret := r.sampleGPM(p.samples[1]); ret != gonvml.SUCCESS {
		if gpuGone(ret) || driverGone(ret) {
			return &driverError{function, ret}
		}
		r.failProfiling(b, p.sampling.backOff(function, ret, now))
		return nil
	}
	p.sampling = backoff{}
	first := p.taken.IsZero()
	defer func() {
		p.samples[0], p.samples[1] = p.samples[1], p.samples[0]
		p.taken = now
	}()
	if first {
		return nil
	}
	return s.readMetrics(r, b, now)
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
	if gpuGone(all) || driverGone(all) {
		return &driverError{"nvmlGpmMetricsGet", all}
	}
	for i := range p.metrics {
		w := &p.metrics[i]
		if w.slot < 0 {
			continue
		}
		m := &get.Metrics[w.slot]
		if all != gonvml.SUCCESS {
			b.Fail(r.index, w.field, &driverError{"nvmlGpmMetricsGet", all})
			continue
		}
		if ret := gonvml.Return(m.NvmlReturn); ret != gonvml.SUCCESS {
			b.Fail(r.index, w.field, w.backoff.backOff("nvmlGpmMetricsGet", ret, now))
			continue
		}
		w.backoff = backoff{}
		if v := w.value(m.Value); v.IsAbsent() {
			b.Fail(r.index, w.field, errNoActivity)
		} else {
			b.AddAt(r.index, w.field, v, now.UnixNano())
		}
	}
	return nil
}

// errNoActivity is the fault of a metric that is not a number.
var errNoActivity = fmt.Errorf("%w: the samples do not determine a value", gpu.ErrUnavailable)

// failProfiling appends a fault for all profiling fields of the row.
func (r *row) failProfiling(b *gpu.Batch, err error) {
	for i := range r.gpm.metrics {
		b.Fail(r.index, r.gpm.metrics[i].field, err)
	}
}

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
