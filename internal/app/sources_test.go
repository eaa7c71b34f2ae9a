package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/hardware"
)

// tests/process tests which driver is read with which flags.
func TestHardwareOptions(t *testing.T) {
	cfg := &config.Config{
		Source:     config.Source{Kind: config.SourceDCGM, DCGMLog: true, DCGMLogLevel: "WARN"},
		Kubernetes: config.Kubernetes{Enabled: true, DRA: true},
	}
	want := hardware.Options{Required: true, EngineLog: "WARN", Positions: true}
	if diff := cmp.Diff(want, hardwareOptions(cfg)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
