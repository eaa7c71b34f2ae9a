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

// A peak between two Reads comes to light: the driver's samples since the previous Read, in the
// field's unit, and after them the value of now, each once.
func TestTrailsOfBuffers(t *testing.T) {
	src, world := source(t, "gpus 1")
	plan := planOf(t, 155, 203, 207, 150)
	for i := range plan.Fields {
		plan.Fields[i].Every = true
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
		if diff := cmp.Diff(want, trails(t, s, plan)); diff != "" {
			t.Errorf("first Read (-want +got):\n%s", diff)
		}
		play(at(1300*time.Millisecond, 80_000), at(time.Hour, 1))
		time.Sleep(time.Second)
		want["GPU 0 DCGM_FI_DEV_POWER_USAGE"], want["GPU 0 DCGM_FI_DEV_GPU_UTIL"] = "80,100.5", "10"
		if diff := cmp.Diff(want, trails(t, s, plan)); diff != "" {
			t.Errorf("second Read (-want +got):\n%s", diff)
		}
		if n := world.Ledger(t)["nvmlDeviceGetSamples"]; n > 9 {
			t.Errorf("buffers were read %d times: what is not there is read again and again", n)
		}
	})
}

// Buffers are read for trails alone; a GPU that is partitioned has no utilization.
func TestNoTrails(t *testing.T) {
	src, world := source(t, slices.Concat(cut, []string{"gpu 1 set samples.1 1:1"})...)
	plan := planOf(t, 155, 203)
	read(t, open(t, src, plan), plan)
	if n := world.Ledger(t)["nvmlDeviceGetSamples"]; n != 0 {
		t.Errorf("buffers were read %d times", n)
	}
	plan.Fields[1].Every = true
	if got := read(t, open(t, src, plan), plan)["GPU 1 DCGM_FI_DEV_GPU_UTIL"]; got != "fault:not_supported" {
		t.Errorf("utilization of a GPU that is partitioned: %q", got)
	}
}

// A buffer that is empty, that goes backwards, that repeats itself or that fails for a moment
// leaves the value of now, and no sample is reported twice or out of order.
func TestTroubledBuffers(t *testing.T) {
	src, world := source(t, "gpus 1")
	plan := planOf(t, 155)
	plan.Fields[0].Every = true
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s, err := src.Open(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, step := range []struct {
			name    string
			samples string // at milliseconds since the start, in W
			more    string
			want    string
		}{
			{"no sample at all", "", "", "100.5"},
			{"two", "1100:200 1200:300", "", "200,300,100.5"},
			{"backwards", "2200:400 2100:999 2300:500", "", "400,500,100.5"},
			{"the same again", "2200:400 2300:500", "", "100.5"},
			{"older than those reported", "2250:900", "", "100.5"},
			{"a failing buffer", "5100:1", "fail nvmlDeviceGetSamples 999", "100.5"},
			{"a buffer that works again", "5100:600", "", "600,100.5"},
		} {
			var pairs []string
			for _, pair := range strings.Fields(step.samples) {
				var at, watts int64
				if _, err := fmt.Sscanf(pair, "%d:%d", &at, &watts); err != nil {
					t.Fatal(err)
				}
				pairs = append(pairs, fmt.Sprintf("%d:%d", start.Add(time.Duration(at)*time.Millisecond).UnixMicro(), 1000*watts))
			}
			script := []string{"gpus 1", step.more}
			if len(pairs) > 0 || step.name == "no sample at all" {
				script = append(script, "gpu 0 set samples.0 "+strings.Join(append(pairs, "0:0"), " "))
			}
			world.Play(t, script...)
			time.Sleep(time.Second)
			if got := trails(t, s, plan)["GPU 0 DCGM_FI_DEV_POWER_USAGE"]; got != step.want {
				t.Errorf("%s: %q, want %q", step.name, got, step.want)
			}
		}
	})
}
