package events_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// A clock event is counted when it starts. Its seconds are counted only between consecutive samples that both show
// it, not over a gap.
func TestClockEventsByEdgesAndSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const powerCap, thermal = 0x4, 0x20 // nvmlClocksEventReason…
		begin := time.Now()
		e := newEngine()
		at := func(seconds, mask int64) { e.sample(begin.Add(time.Duration(seconds)*time.Second), mask) }
		r := start(t, e.Open, clockFamilies(clockTotalFamily, clockSecondsFamily))
		step := func(wanted ...string) {
			t.Helper()
			r.Wait(interval)
			r.Has(wanted...)
		}
		const count, seconds = clockTotalFamily + "{0}[{clock_event ", clockSecondsFamily + "{0}[{clock_event "
		at(1, 0)
		step(count+"power_cap}] 0", seconds+"power_cap}] 0", count+"sw_thermal}] 0", count+"gpu_idle}] 0")
		for _, slowsNothing := range []string{"gpu_idle", "display_clocks"} {
			r.HasNot(seconds + slowsNothing)
		}
		at(11, powerCap) // the event starts
		at(13, powerCap|thermal)
		at(14, thermal) // the event ends after 3 s
		at(15, powerCap)
		step(count+"power_cap}] 2", seconds+"power_cap}] 3", count+"sw_thermal}] 1", seconds+"sw_thermal}] 2")
		step(count+"power_cap}] 2", seconds+"power_cap}] 3") // no new sample
		at(29, 0)
		step(count+"power_cap}] 2", seconds+"power_cap}] 17")
		at(35, thermal)
		step(count + "sw_thermal}] 2")
		r.Wait(4 * interval)
		at(75, 0) // 40 s later, which is more than three intervals
		step(seconds+"sw_thermal}] 2", count+"sw_thermal}] 2")
		at(14, powerCap) // the same sample is reported again
		step(count+"power_cap}] 2", seconds+"power_cap}] 17")
		r.Stop()
	})
}
