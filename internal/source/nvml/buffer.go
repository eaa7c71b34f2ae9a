//go:build linux && cgo

package nvml

import (
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const samplesFunction = "nvmlDeviceGetSamples"

// A buffer is one that the driver keeps of its own samples, taken more often than they are read.
type buffer struct {
	kind  gonvml.SamplingType
	milli bool // thousandths of the field's unit
}

// bufferOf returns the buffer that holds samples of what a field measures. The other fields have
// the value of each Read alone.
func bufferOf(id gpu.FieldID) (buffer, bool) {
	switch id {
	case catalog.PowerUsage:
		return buffer{kind: gonvml.TOTAL_POWER_SAMPLES, milli: true}, true
	case catalog.GPUUtil:
		return buffer{kind: gonvml.GPU_UTILIZATION_SAMPLES}, true
	case catalog.MemCopyUtil:
		return buffer{kind: gonvml.MEMORY_UTILIZATION_SAMPLES}, true
	case catalog.EncUtil:
		return buffer{kind: gonvml.ENC_UTILIZATION_SAMPLES}, true
	case catalog.DecUtil:
		return buffer{kind: gonvml.DEC_UTILIZATION_SAMPLES}, true
	default:
		return buffer{}, false
	}
}

// A bufferQuery is one buffer, read for a field with Field.Every.
type bufferQuery struct {
	buffer
	field int
	seen  uint64 // the time of the newest sample reported, in the driver's Unix microseconds
	block backoff
}

// compileBuffer has a field's buffer read beside its value.
func (s *Session) compileBuffer(r *row, field int) {
	f := &s.plan.Fields[field]
	buf, ok := bufferOf(f.ID)
	if f.Every && ok && r.kind == gpu.KindGPU && s.symbols.has(samplesFunction) {
		r.buffers = append(r.buffers, bufferQuery{buffer: buf, field: field, seen: uint64(time.Now().UnixMicro())})
	}
}

// readBuffers appends what the driver sampled since the previous Read, oldest first. The value that
// is read afterwards is the newest. Where the driver keeps no samples that value is all there is,
// and no fault. It returns an error only if the GPU or the driver is gone.
func (s *Session) readBuffers(r *row, b *gpu.Batch) error {
	now := time.Now()
	for i := range r.buffers {
		a := &r.buffers[i]
		if a.block.active(now) {
			continue
		}
		kind, samples, ret := r.target.device.GetSamples(a.kind, a.seen)
		switch {
		case gpuGone(ret) || driverGone(ret):
			return &driverError{samplesFunction, ret}
		case ret == gonvml.ERROR_NOT_FOUND || ret == gonvml.ERROR_INSUFFICIENT_SIZE:
			continue // none since, or more came during the query: they wait
		case ret != gonvml.SUCCESS:
			a.block.backOff(samplesFunction, ret, now, s.reprobe)
			continue
		}
		for j := range samples {
			at := samples[j].TimeStamp
			if at <= a.seen || at >= uint64(now.UnixMicro()) {
				continue // an empty place of the buffer, or a clock that is ahead
			}
			a.seen = at
			value := decode(kind, samples[j].SampleValue)
			if n, ok := value.Number(); ok && a.milli {
				value = gpu.Float(n / 1000)
			}
			b.TrailAt(r.index, a.field, value, int64(at)*int64(time.Microsecond))
		}
	}
	return nil
}

// trail appends the values that were just read, the batch's samples from first on, to the trails of
// their cells: each Read takes a sample.
func (s *Session) trail(b *gpu.Batch, first int) {
	if !s.trails {
		return
	}
	for _, x := range b.Samples[first:] {
		if s.plan.Fields[x.Field].Every {
			b.Trails = append(b.Trails, x)
		}
	}
}
