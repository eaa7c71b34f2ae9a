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

// counters returns the field values that a rate is made of.
func (d direction) counters() []uint32 {
	switch d {
	case received:
		return []uint32{gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX}
	case sent:
		return []uint32{gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX}
	default:
		return []uint32{gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX}
	}
}

// value returns the bandwidth since the previous reading. It is absent at the first one, where DCGM
// publishes a zero that is no measurement, and where the counters went back or no time passed.
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

// ownLink stands for the link that a row is of.
const ownLink = -1

// linkErrors makes a call for one of a link's error counters.
func linkErrors(counter gonvml.NvLinkErrorCounter, link int) *call {
	return &call{symbols: []string{"nvmlDeviceGetNvLinkErrorCounter"}, read: func(t *target, a *answers) gonvml.Return {
		which := link
		if link == ownLink {
			which = t.link
		}
		n, ret := t.device.GetNvLinkErrorCounter(which, counter)
		if n <= math.MaxInt64 {
			a[0] = gpu.Int(int64(n))
		}
		if ret == gonvml.ERROR_INVALID_ARGUMENT {
			return gonvml.ERROR_NOT_SUPPORTED // a link that this GPU, or this driver, cannot have
		}
		return ret
	}}
}

// portCounters makes a call for counters that one register of a link's port holds. Ports are
// counted from 1: the port of link 0 is port 1.
func portCounters(ids ...gonvml.PRMCounterId) call {
	return call{symbols: []string{"nvmlDeviceReadPRMCounters_v1"}, read: func(t *target, a *answers) gonvml.Return {
		counters, ret := t.device.ReadPRMCounters_v1(ids, t.link+1)
		answered := false
		for i := range counters {
			v := &counters[i].CounterValue
			if one := gonvml.Return(v.Status); one != gonvml.SUCCESS {
				ret = one
				continue
			}
			a[i], answered = decode(gonvml.ValueType(v.OutputType), v.OutputValue), true
		}
		if answered {
			return gonvml.SUCCESS // what was not reported stays absent
		}
		return ret
	}}
}

// linkMetric returns how far the metric of a link is from that of link 0: GPM has links 0 to 17 in
// one row and the rest in another.
func linkMetric(link int) gonvml.GpmMetricId {
	const first = 18
	if link < first {
		return gonvml.GpmMetricId(2 * link)
	}
	return gonvml.GPM_METRIC_NVLINK_L18_RX_PER_SEC - gonvml.GPM_METRIC_NVLINK_L0_RX_PER_SEC + gonvml.GpmMetricId(2*(link-first))
}

// errorRate unpacks a bit error rate: a mantissa, and how many places it is behind the decimal
// point.
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
