package dcgm

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// A strange engine is a simulated one on another machine: its clock is off, drifts and is set, and
// so is this machine's.
type strangeEngine struct {
	rng          *rand.Rand
	offset       int64   // of its clock, against true time
	drift        float64 // what it gains each second
	local        int64   // the offset of this machine's clock
	pace, delay  int64   // between samples, and until one shows
	now, sampled int64   // true time, and of the newest sample
	stamp        int64   // of the newest sample, in its clock
}

func newStrangeEngine(rng *rand.Rand, interval int64) *strangeEngine {
	e := &strangeEngine{rng: rng, now: int64(1e18), pace: interval}
	e.offset = (rng.Int64N(20) - 10) * rng.Int64N(int64(time.Second)) * 2
	if rng.IntN(4) == 0 {
		e.offset = (rng.Int64N(20000) - 10000) * int64(time.Second)
	}
	e.drift = (rng.Float64() - 0.5) * 1e-3
	e.delay = rng.Int64N(interval / 5)
	e.sampled = e.now - rng.Int64N(interval)
	e.stamp = e.clock(e.sampled)
	return e
}

func (e *strangeEngine) clock(at int64) int64 {
	return at + e.offset + int64(float64(at-1e18)*e.drift)
}

// pass lets true time pass and samples be taken.
func (e *strangeEngine) pass(d int64) {
	e.now += d
	for e.sampled+e.pace+e.delay <= e.now {
		e.sampled += e.pace
		e.stamp = e.clock(e.sampled)
	}
}

// step sets one of the clocks, now and then.
func (e *strangeEngine) step() (stepped bool) {
	if e.rng.IntN(40) > 0 {
		return false
	}
	by := (e.rng.Int64N(40) - 20) * int64(time.Second)
	if e.rng.IntN(2) == 0 {
		e.offset += by
	} else {
		e.local += by
	}
	return true
}

// Whatever the clocks do, a fresh sample is dated as fresh, none lies in the future, and the same
// sample keeps its date, in this session and in the next.
func TestClockOfAStrangeEngine(t *testing.T) {
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		interval := []int64{1e8, 1e9, 3e10}[rng.IntN(3)]
		e := newStrangeEngine(rng, interval)
		var known dates
		open := func() *Session {
			return &Session{clock: clock{foreign: true, dates: &known, tolerance: toleranceOf(time.Duration(interval))}}
		}
		s := open()
		xid := &slot{watch: &watch{sampling: sampling{sporadic: true}}}
		var xidSample sample
		var xidDate int64
		c, frozen := &slot{watch: &watch{}}, &slot{watch: &watch{}}
		var frozenSample sample
		last := e.now
		limit := 3 * interval
		for read := range 60 {
			stepped := e.step()
			e.pass(interval*3/4 + rng.Int64N(interval/2))
			now := e.now + e.local
			x := &sample{at: e.stamp / 1000, field: 150}
			if x.at != c.at {
				s.clock.observe(x.at*1000, now-(e.now-last), now)
			}
			s.now = now
			before, had := c.date, x.at == c.at
			date := s.dateOf(c, x)
			if had && date != before {
				t.Fatalf("seed %d, read %d: the date of one sample went from %d to %d", seed, read, before, date)
			}
			if age := now - date; !had && !stepped && (age > limit || age < -int64(s.clock.tolerance)-2000) {
				t.Fatalf("seed %d, read %d: a fresh sample seems %v old at an interval of %v", seed, read, time.Duration(age), time.Duration(interval))
			}
			if frozenSample.at == 0 {
				frozenSample = *x
			}
			was := frozen.date
			if again := s.dateOf(frozen, &frozenSample); was != 0 && again != was {
				t.Fatalf("seed %d, read %d: a sample that stays is dated %d and then %d", seed, read, was, again)
			}
			last = e.now
			if rng.IntN(10) == 0 || xidSample.at == 0 {
				xidSample = sample{at: x.at, field: uint16(catalog.XIDErrors), group: groupGPU}
				xidDate = s.dateOf(xid, &xidSample)
			}
			if again := s.dateOf(xid, &xidSample); again != xidDate {
				t.Fatalf("seed %d, read %d: an XID is dated %d and then %d", seed, read, xidDate, again)
			}
			if rng.IntN(15) == 0 { // a reload
				s, c, xid = open(), &slot{watch: c.watch}, &slot{watch: xid.watch}
				frozenSample, frozen.at, frozen.date = sample{}, 0, 0
				if again := s.dateOf(xid, &xidSample); again != xidDate {
					t.Fatalf("seed %d, read %d: the next session dates an XID %d, it was %d", seed, read, again, xidDate)
				}
			}
		}
	}
}

func TestClock(t *testing.T) {
	const second = int64(time.Second)
	const now = 1_000_000 * second
	for name, tt := range map[string]struct {
		foreign bool
		earlier int64 // the offset that the session before has found
		newest  int64 // the sample, relative to now; it came in the last second
		want    int64 // its date, relative to now
	}{
		"own machine":               {false, 0, -3600 * second, -3600 * second},
		"in step":                   {true, 0, -second / 2, -second / 2},
		"behind":                    {true, 0, -4 * second, -second},
		"far behind":                {true, 0, -3600 * second, -second},
		"ahead":                     {true, 0, 50 * second, 0},
		"a little ahead":            {true, 0, second / 5, second / 5},
		"as the session before":     {true, 60 * second, -60*second - second/2, -second / 2},
		"not as the session before": {true, 60 * second, -90 * second, -second},
	} {
		c := clock{foreign: tt.foreign, dates: new(dates), tolerance: toleranceOf(time.Second)}
		if tt.earlier != 0 {
			c.dates.correct(0, tt.earlier)
		}
		c.observe(now+tt.newest, now-second, now)
		if got := c.date((now+tt.newest)/1000) - now; got != tt.want {
			t.Errorf("%s: dated %v, want %v", name, time.Duration(got), time.Duration(tt.want))
		}
	}
}

// What was dated before a correction keeps its date, also where no correction was needed before.
func TestCorrectionIsNotForThePast(t *testing.T) {
	c := clock{foreign: true, dates: new(dates), tolerance: toleranceOf(time.Second)}
	const second = int64(time.Second)
	c.observe(100*second, 99*second, 100*second)
	before := c.date(99_500_000)
	c.observe(104*second, 100*second, 101*second)
	if after := c.date(99_500_000); after != before {
		t.Errorf("a sample of before a correction is dated %d and then %d", before, after)
	}
	if got := c.date(104_000_000); got != 101*second {
		t.Errorf("the sample that showed it is dated %d", got)
	}
}

// The corrections that are remembered, and the dates, have a limit.
func TestDatesAreBounded(t *testing.T) {
	var d dates
	for i := range int64(10 * maxDated) {
		d.correct(i, i)
		d.once(dated{at: i}, i)
	}
	if len(d.list()) > maxSpans || len(d.dated) > maxDated || len(d.order) > maxDated {
		t.Errorf("%d corrections and %d dates", len(d.list()), len(d.dated))
	}
}
