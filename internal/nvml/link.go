//go:build linux && cgo

package nvml

import (
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
	total := uint64(r) + uint64(t)
	before, since := l.total, l.at
	l.total, l.at = total, at
	seconds := at.Sub(since).Seconds()
	if since.IsZero() || total < before || seconds <= 0 {
		return gpu.Value{}
	}
	return gpu.Int(int64(float64(total-before) / seconds / 1000))
}
