//go:build linux && cgo

package nvml_test

import (
	"errors"
	"slices"
	"testing"
	"time"

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
			r := start(t, planOf(tt.field), "gpus 1", tt.fail)
			key := "GPU 0 " + r.plan.Fields[0].Name
			for range 2 {
				if got := r.read(); len(got) != 1 || got[key] != tt.without {
					t.Errorf("while the call fails: results = %v, want only %q", got, tt.without)
				}
			}
			r.play("gpus 1")
			r.read()
			r.play("gpus 1", "xid 0 31")
			var found map[string]string
			for end := time.Now().Add(20 * time.Second); found[key] != tt.want && found["GPU 0 XID"] != tt.want; {
				if time.Now().After(end) {
					t.Fatalf("value was not served within 20s; latest results: %v", found)
				}
				found = r.read()
			}
			if r.Err() != nil {
				t.Errorf("session ended: %v", r.Err())
			}
		})
	}
}

// If the MIG mode could not be read when the session opened, it is read again.
func TestLateMIGMode(t *testing.T) {
	r := start(t, planOf(155), slices.Concat(cut, []string{"fail nvmlDeviceGetMigMode 999"})...)
	r.read()
	if r.Err() != nil {
		t.Fatalf("session ended: %v", r.Err())
	}
	r.play(cut...)
	r.read()
	if !errors.Is(r.Err(), gpu.ErrTopology) {
		t.Errorf("Err = %v, want %v", r.Err(), gpu.ErrTopology)
	}
}
