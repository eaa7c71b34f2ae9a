package collector

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The engine samples once an interval, and the loop reads as often: just before a sample it finds one that is nearly an
// interval old, and the page then stands for another.
const (
	maxAgeShare  = 10 // a sample may be a tenth of the interval old when it is read
	behindShare  = 20 // a shifted read follows the sample by a twentieth
	minPhaseRest = 8  // cycles between two shifts; it doubles while shifts do not help
	maxPhaseRest = 1024
)

// A phase moves the reads behind the engine's samples.
type phase struct {
	rest, left int // cycles from one shift to the next, and until the next
}

// next returns the time between the beginnings of a cycle and the next one: the interval, or less after old samples.
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

// ageOf returns the age of the oldest sample of the fields that the engine samples once an interval. Profiling has a phase
// of its own, and a sample older than an interval is of a field that stands still.
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
