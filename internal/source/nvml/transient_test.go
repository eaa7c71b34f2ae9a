//go:build linux && cgo

package nvml_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A transient error may hide a value, also when the session opens. Once the error is gone, the same session serves the
// value.
func TestTransientErrorAtStart(t *testing.T) {
	for name, tt := range map[string]struct {
		fail    string
		field   gpu.FieldID
		without string // result meanwhile
		want    string
	}{
		"number":        {"fail nvmlDeviceGetPowerUsage 999", 155, "fault:error", "100.5"},
		"event set":     {"fail nvmlEventSetCreate 999", 230, "fault:error", "31"},
		"registration":  {"fail nvmlDeviceRegisterEvents 10", 230, "fault:timeout", "31"},
		"GPM support":   {"fail nvmlGpmQueryDeviceSupport 10", 1001, "fault:timeout", "0.01"},
		"GPM memory":    {"fail nvmlGpmSampleAlloc 20", 1001, "fault:error", "0.01"},
		"GPM: a sample": {"fail nvmlGpmSampleGet 999", 1001, "fault:error", "0.01"},
	} {
		t.Run(name, func(t *testing.T) {
			src, world := source(t, "gpus 1", tt.fail)
			plan := planOf(t, tt.field)
			s := open(t, src, plan)
			key := "GPU 0 " + plan.Fields[0].Name
			for range 2 {
				if diff := cmp.Diff(map[string]string{key: tt.without}, read(t, s, plan)); diff != "" {
					t.Errorf("while the call fails (-want +got):\n%s", diff)
				}
			}
			world.Play(t, "gpus 1")
			read(t, s, plan)
			world.Play(t, "gpus 1", "xid 0 31")
			var seen []string
			for end := time.Now().Add(20 * time.Second); !slices.Contains(seen, tt.want); {
				if time.Now().After(end) {
					t.Fatalf("value was not served within 20s; served: %v", seen)
				}
				found := read(t, s, plan)
				if v, ok := found[key]; ok {
					seen = append(seen, v)
				}
				if v, ok := found["GPU 0 XID"]; ok {
					seen = append(seen, v)
				}
			}
			if s.Err() != nil {
				t.Errorf("session ended: %v", s.Err())
			}
		})
	}
}

// If the MIG mode could not be read when the session opened, it is read again.
func TestLateMIGMode(t *testing.T) {
	src, world := source(t, append(slices.Clone(cut), "fail nvmlDeviceGetMigMode 999")...)
	plan := planOf(t, 155)
	s := open(t, src, plan)
	read(t, s, plan)
	if s.Err() != nil {
		t.Fatalf("session ended: %v", s.Err())
	}
	world.Play(t, cut...)
	read(t, s, plan)
	if !errors.Is(s.Err(), gpu.ErrTopology) {
		t.Errorf("Err = %v, want %v", s.Err(), gpu.ErrTopology)
	}
}
