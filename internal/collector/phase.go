package collector

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The engine samples once per interval, and the loop reads as often. A read just before a sample finds one that is
// nearly an interval old.
const (
	maxAgeShare  = 10 // a sample may be up to 1/10 of the interval old when it is read
	behindShare  = 20 // a shifted read follows the sample by 1/20 of the interval
	minPhaseRest = 8  // minimum number of cycles between two shifts; doubles while shifts do not help
	maxPhaseRest = 1024
)

// phase shifts the reads so that they closely follow the engine's samples.
type phase struct {
	rest, left int // cycles between two shifts, and cycles left until the next
}

// next returns the time from the start of a cycle to the next one: the interval, or less if samples were old.
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

// ageOf returns the age of the oldest sample among the fields that the engine samples as often as they are read. It
// ignores text fields, fields with AllSamples, and profiling fields, which have their own phase. It also ignores
// samples clearly older than an interval, because their field does not change.
func ageOf(b *gpu.Batch, plan *gpu.Plan, begin time.Time) time.Duration {
	var oldest time.Duration
	interval := plan.ReadInterval()
	now, maxAge := begin.UnixNano(), interval+interval/maxAgeShare
	for i := range b.Samples {
		s := &b.Samples[i]
		age := time.Duration(now - s.Time)
		if age <= oldest || age > maxAge || plan.IntervalOf(s.Field) != interval {
			continue
		}
		if f := &plan.Fields[s.Field]; !f.Text && !f.AllSamples && !f.Profiling {
			oldest = age
		}
	}
	return oldest
}
