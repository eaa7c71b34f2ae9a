//go:build linux && cgo

package nvml

import (
	"math"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A linkAsk makes DCGM's NVLink bandwidth out of the links' data counters. The
// counters are KiB since the driver was loaded, received and sent apart; DCGM
// publishes their growth per second over 1,000 as a whole number and calls it
// MB/s (DcgmCacheManager.cpp, ReadAndCacheNvLinkBandwidthTotal).
type linkAsk struct {
	field int
	scope uint32
	direction
	block block
	slot  int // in the call under way, or -1

	total uint64    // KiB at the previous reading
	at    time.Time // when that was; zero before the first
}

// rate returns the bandwidth since the previous reading. It is absent at the
// first one, where DCGM publishes a zero that is no measurement, and where the
// counters went back or no time passed.
func (l *linkAsk) rate(rx, tx *gonvml.FieldValue, now time.Time) gpu.Value {
	r, okR := decode(rx).Int64()
	t, okT := decode(tx).Int64()
	if !okR || !okT {
		return gpu.Value{}
	}
	at := now
	if stamp := max(rx.Timestamp, tx.Timestamp); stamp > 0 {
		at = time.UnixMicro(stamp)
	}
	switch l.direction {
	case received:
		t = 0
	case sent:
		r = 0
	}
	total := uint64(r) + uint64(t)
	before, since := l.total, l.at
	l.total, l.at = total, at
	seconds := at.Sub(since).Seconds()
	if since.IsZero() || total < before || seconds <= 0 {
		return gpu.Value{}
	}
	return gpu.Int(int64(float64(total-before) / seconds / 1000))
}

// linkErrors makes a call for one of a link's error counters.
func linkErrors(counter gonvml.NvLinkErrorCounter) call {
	return call{symbols: []string{"nvmlDeviceGetNvLinkErrorCounter"}, read: func(t *target, a *answers) gonvml.Return {
		n, ret := t.device.GetNvLinkErrorCounter(t.link, counter)
		if n <= math.MaxInt64 {
			a[0] = gpu.Int(int64(n))
		}
		return ret
	}}
}

// linkMetric returns how far the metric of a link is from that of link 0: GPM
// has links 0 to 17 in one row and the rest in another.
func linkMetric(link int) gonvml.GpmMetricId {
	const first = 18
	if link < first {
		return gonvml.GpmMetricId(2 * link)
	}
	return gonvml.GPM_METRIC_NVLINK_L18_RX_PER_SEC - gonvml.GPM_METRIC_NVLINK_L0_RX_PER_SEC + gonvml.GpmMetricId(2*(link-first))
}

// errorRate unpacks a bit error rate: a mantissa, and how many places it is
// behind the decimal point.
func errorRate(packed int64) gpu.Value {
	mantissa := packed >> gonvml.NVLINK_BER_MANTISSA_SHIFT & gonvml.NVLINK_BER_MANTISSA_WIDTH
	places := packed >> gonvml.NVLINK_BER_EXP_SHIFT & gonvml.NVLINK_BER_EXP_WIDTH
	return gpu.Float(float64(mantissa) * math.Pow10(-int(places)))
}

// links returns the numbers of the NVLinks that the GPU has, up or down.
func (s *Session) links(handle gonvml.Device) []int {
	if !s.symbols.has("nvmlDeviceGetNvLinkState") {
		return nil
	}
	var links []int
	for link := range gonvml.NVLINK_MAX_LINKS {
		if _, ret := handle.GetNvLinkState(link); ret == gonvml.SUCCESS {
			links = append(links, link)
		}
	}
	return links
}
