//go:build linux && cgo

package nvml

import (
	"math"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A linkRate makes DCGM's NVLink bandwidth out of the links' data counters. The counters are KiB
// since the driver was loaded, received and sent apart; DCGM publishes their growth per second over
// 1,000 as a whole number and calls it MB/s (DcgmCacheManager.cpp, ReadAndCacheNvLinkBandwidth).
type linkRate struct {
	total uint64    // KiB at the previous reading
	at    time.Time // when that was; zero before the first
}

// linkCounters are the field values of a rate.
var linkCounters = [...]uint32{gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX}

// value returns the bandwidth since the previous reading. It is absent at the first reading, where DCGM
// publishes a zero, and where the counters went back or no time passed.
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

// errorRate unpacks a bit error rate: a mantissa, and how many places it is behind the decimal
// point.
func errorRate(packed int64) gpu.Value {
	mantissa := packed >> gonvml.NVLINK_BER_MANTISSA_SHIFT & gonvml.NVLINK_BER_MANTISSA_WIDTH
	places := packed >> gonvml.NVLINK_BER_EXP_SHIFT & gonvml.NVLINK_BER_EXP_WIDTH
	return gpu.Float(float64(mantissa) * math.Pow10(-int(places)))
}
