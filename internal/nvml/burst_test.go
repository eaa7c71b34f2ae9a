//go:build linux && cgo

package nvml_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A peak between two Reads comes to light: the driver's samples since the
// previous Read, in the field's unit, and after them the value of now, each once.
func TestBursts(t *testing.T) {
	src, world := source(t, "gpus 1")
	plan := planOf(t, 155, 203, 207, 150)
	for i := range plan.Fields {
		plan.Fields[i].Burst = true
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now().UnixMicro()
		// A buffer holds what was before the session too.
		samples := []string{fmt.Sprintf("%d:90000", start-5)}
		play := func(next ...string) {
			samples = append(samples, next...)
			world.Play(t, "gpus 1", "gpu 0 set samples.0 "+strings.Join(samples, " "),
				fmt.Sprintf("gpu 0 set samples.1 %d:99", start+200_000))
		}
		at := func(offset time.Duration, milliwatts int) string {
			return fmt.Sprintf("%d:%d", start+offset.Microseconds(), milliwatts)
		}
		play(at(100*time.Millisecond, 120_250), at(200*time.Millisecond, 699_000))
		s, err := src.Open(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		time.Sleep(time.Second)
		want := map[string]string{
			"GPU 0 DCGM_FI_DEV_POWER_USAGE": "120.25,699,100.5", "GPU 0 DCGM_FI_DEV_GPU_UTIL": "99,10",
			"GPU 0 DCGM_FI_DEV_DEC_UTIL": "0", "GPU 0 DCGM_FI_DEV_GPU_TEMP": "30", // the driver has no samples of these
		}
		if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
			t.Errorf("first Read (-want +got):\n%s", diff)
		}
		play(at(1300*time.Millisecond, 80_000), at(time.Hour, 1))
		time.Sleep(time.Second)
		want["GPU 0 DCGM_FI_DEV_POWER_USAGE"], want["GPU 0 DCGM_FI_DEV_GPU_UTIL"] = "80,100.5", "10"
		if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
			t.Errorf("second Read (-want +got):\n%s", diff)
		}
		if n := world.Ledger(t)["nvmlDeviceGetSamples"]; n > 9 {
			t.Errorf("buffers were asked for %d times: what is not there is asked for again and again", n)
		}
	})
}

// Without bursts, nobody asks for buffers; a cut GPU has no utilisation.
func TestNoBursts(t *testing.T) {
	src, world := source(t, slices.Concat(cut, []string{"gpu 1 set samples.1 1:1"})...)
	plan := planOf(t, 155, 203)
	read(t, open(t, src, plan), plan)
	if n := world.Ledger(t)["nvmlDeviceGetSamples"]; n != 0 {
		t.Errorf("buffers were asked for %d times", n)
	}
	plan.Fields[1].Burst = true
	if got := read(t, open(t, src, plan), plan)["GPU 1 DCGM_FI_DEV_GPU_UTIL"]; got != "fault:not_supported" {
		t.Errorf("utilisation of a GPU that is cut: %q", got)
	}
}
