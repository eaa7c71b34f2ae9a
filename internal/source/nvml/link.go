//go:build linux && cgo

package nvml

import (
	"math"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A linkRate computes DCGM's NVLink bandwidth from the data counters of the links. The counters hold KiB since the
// driver was loaded, received and sent separately. DCGM publishes their increase per second, divided by 1,000 and
// rounded down, and calls it MB/s (ReadAndCacheNvLinkBandwidth, DcgmCacheManager.cpp).
type linkRate struct {
	total uint64    // KiB at the previous reading
	at    time.Time // time of the previous reading; zero before the first
}

// linkCounters lists the field values of a rate.
var linkCounters = [...]uint32{gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX}

// value returns the bandwidth since the previous reading. It is absent if the counters went back or no time passed. It
// is also absent at the first reading, for which DCGM publishes zero.
func (l *linkRate) value(counters []gonvml.FieldValue, now time.Time) gpu.Value {
	total, stamp := uint64(0), int64(0)
	for i := range counters {
		n, ok := decode(gonvml.ValueType(counters[i].ValueType), counters[i].Value).Int64()
		if !ok {
			return gpu.Value{}
		}
		total += uint64(n)
		stamp = max(stamp, counters[i].Timestamp)
	}
	at := now
	if stamp > 0 {
		at = time.UnixMicro(stamp)
	}
	before, since := l.total, l.at
	l.total, l.at = total, at
	seconds := at.Sub(since).Seconds()
	if since.IsZero() || total < before || seconds <= 0 {
		return gpu.Value{}
	}
	return gpu.Int(int64(float64(total-before) / seconds / 1000))
}

// errorRate unpacks a bit error rate, which is a mantissa and a negative decimal exponent.
func errorRate(packed int64) gpu.Value {
	mantissa := packed >> gonvml.NVLINK_BER_MANTISSA_SHIFT & gonvml.NVLINK_BER_MANTISSA_WIDTH
	places := packed >> gonvml.NVLINK_BER_EXP_SHIFT & gonvml.NVLINK_BER_EXP_WIDTH
	return gpu.Float(float64(mantissa) * math.Pow10(-int(places)))
}

const linkState = "nvmlDeviceGetNvLinkState"

// readLinks reports whether an NVLink of the GPU is active. The state is unknown if the GPU has no links to query, or
// if one cannot be read and no other is active. An error means that the GPU or the driver is gone.
func (s *Session) readLinks(d *device) (up, known bool, err error) {
	known = len(d.links) > 0 && d.gpuRow() >= 0
	for _, link := range d.links {
		switch state, ret := d.handle.GetNvLinkState(link); {
		case gone(ret):
			return false, false, &driverError{linkState, ret}
		case ret != gonvml.SUCCESS:
			known = false
		case state == gonvml.FEATURE_ENABLED:
			return true, d.gpuRow() >= 0, nil
		}
	}
	return false, known, nil
}
