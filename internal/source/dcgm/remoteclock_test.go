//go:build linux && cgo

package dcgm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// A remote engine's clock that is behind or ahead by more than a sample may be old, and by less
// than a few seconds, costs no sample: each is younger than three intervals.
func TestClockALittleOff(t *testing.T) {
	const every = 200 * time.Millisecond
	for _, skew := range []float64{-0.9, -0.65, -0.3, 0.3, 0.9} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			fakedcgm.New(t, world(fmt.Sprintf("skew %g", skew))...)
			plan := planOf(field(150, onGPU))
			plan.Interval = every
			s, err := dcgm.New(dcgm.Options{Remote: engineAt("10.0.0.9")}).Open(t.Context(), plan)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			tick := time.NewTicker(every)
			defer tick.Stop()
			for range 8 {
				b := read(t, s)
				if len(b.Samples) != 2 {
					t.Fatalf("samples %v", shown(s, b))
				}
				for _, x := range b.Samples {
					if age := time.Since(time.Unix(0, x.Time)); age > 3*every || age < -every/2 {
						t.Errorf("a sample seems %v old", age)
					}
				}
				<-tick.C
			}
		})
	}
}

// An XID is reported once a session, and under one ID in every session, however the engine's clock
// is set meanwhile: it is known for the one that was counted.
func TestXIDKeepsItsID(t *testing.T) {
	for _, step := range []string{"-10", "10", "-3600"} {
		t.Run(step, func(t *testing.T) {
			e := fakedcgm.New(t, world()...)
			src := dcgm.New(dcgm.Options{Remote: engineAt("10.0.0.9")})
			plan := planOf(field(150, onGPU), events(230))
			var reported []int64
			look := func(s *dcgm.Session) {
				t.Helper()
				for _, x := range read(t, s).XIDs {
					reported = append(reported, x.ID)
				}
			}
			open := func() *dcgm.Session {
				s, err := src.Open(t.Context(), plan)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}
			s := open()
			read(t, s)
			e.Add("event 1 gpu:0 230 31")
			look(s)
			e.Add("skew " + step)
			for range 6 {
				pause()
				look(s)
			}
			if len(reported) != 1 {
				t.Fatalf("the session has reported %v, want one XID", reported)
			}
			look(open())
			if len(reported) != 2 || reported[0] != reported[1] {
				t.Errorf("the next session has reported %v, want the same XID", reported)
			}
			// And one that comes now is another one, of now.
			e.Add("event 2 gpu:0 230 31")
			var second gpu.XID
			readUntil(t, s, "the second XID", func(b *gpu.Batch, _ error) bool {
				for _, x := range b.XIDs {
					switch {
					case x.ID != reported[0]:
						second = x
					case !b.XIDsRepeat:
						t.Errorf("the first XID is reported again, and the batch does not say so")
					}
				}
				return second.ID != 0
			})
			if age := time.Since(time.Unix(0, second.Time)); age < -5*time.Second || age > 5*time.Second {
				t.Errorf("the second XID is %v old", age)
			}
		})
	}
}

// An embedded start that takes its time holds Open, and nothing else goes wrong.
func TestSlowStart(t *testing.T) {
	e := fakedcgm.New(t, world("starts 0.3")...)
	begin := time.Now()
	s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{})
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("the start took %v, want 300 ms", took)
	}
	if n := len(read(t, s).Samples); n != 2 {
		t.Errorf("%d samples, want 2", n)
	}
}
