package collector

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The engine samples once an interval, and so does the loop read: a read just before a sample finds one that is nearly an
// interval old, and the page then stands for another.
const (
	maxAgeShare  = 10 // of the interval, the share that a sample may be old when it is read
	behindShare  = 20 // of the interval, the share by which a read follows the sample
	minPhaseRest = 8  // cycles between two shifts; it doubles while shifts do not help
	maxPhaseRest = 1024
)

// A phase moves the reads behind the engine's samples.
type phase struct {
	rest, left int // cycles from one shift to the next, and until the next
}

// next returns the time from the beginning of a cycle to that of the next one: the interval, or less where the cycle's
// samples were old.
func (p *phase) next(interval, age time.Duration) time.Duration {
	if p.left--; age <= interval/maxAgeShare {
		p.rest = 0
		return interval
	}
	if p.left > 0 {
		return interval
	}
	p.rest = min(max(2*p.rest, minPhaseRest), maxPhaseRest)
	p.left = p.rest
	return interval - age + interval/behindShare
}

// ageOf returns the age of the oldest of the samples that the engine takes anew in each interval. Those of profiling have a
// phase of their own, and an old sample of a field that stands still says nothing of the engine's.
func ageOf(b *gpu.Batch, plan *gpu.Plan, begin time.Time) time.Duration {
	var oldest time.Duration
	for i := range b.Samples {
		s := &b.Samples[i]
		f := &plan.Fields[s.Field]
		if f.Text || f.Every || f.Profiling || plan.IntervalOf(s.Field) != plan.Interval {
			continue
		}
		if age := time.Duration(begin.UnixNano() - s.Time); age <= plan.Interval+plan.Interval/maxAgeShare {
			oldest = max(oldest, age)
		}
	}
	return oldest
}
