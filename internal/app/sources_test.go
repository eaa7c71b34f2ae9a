package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/hardware"
)

func TestHardwareOptions(t *testing.T) {
	local := hostengine.Address{Transport: hostengine.Unix, Path: "/run/dcgm.sock"}
	remote := hostengine.Address{Transport: hostengine.TCP, Host: "10.255.254.253", Port: hostengine.DefaultPort}
	for name, tt := range map[string]struct {
		source config.Source
		want   hardware.Options
	}{
		"embedded engine": {config.Source{Kind: config.SourceAuto, Fallback: config.FallbackAuto},
			hardware.Options{Fallback: true}},
		"engine on this machine": {config.Source{Kind: config.SourceAuto, Fallback: config.FallbackAuto, Remote: local},
			hardware.Options{Fallback: true, Engine: local, Required: true}},
		"engine on another machine": {config.Source{Kind: config.SourceAuto, Fallback: config.FallbackAuto, Remote: remote},
			hardware.Options{Engine: remote, Required: true}},
		"fallback forced": {config.Source{Kind: config.SourceAuto, Fallback: config.FallbackNVML, Remote: remote},
			hardware.Options{Fallback: true, Engine: remote, Required: true}},
		"fallback off": {config.Source{Kind: config.SourceAuto, Fallback: config.FallbackNone},
			hardware.Options{}},
		"DCGM only": {config.Source{Kind: config.SourceDCGM, Fallback: config.FallbackNVML},
			hardware.Options{Required: true}},
		"NVML only": {config.Source{Kind: config.SourceNVML, Fallback: config.FallbackAuto},
			hardware.Options{NVMLOnly: true}},
		"DCGM's log": {config.Source{Kind: config.SourceDCGM, DCGMLog: true, DCGMLogLevel: "WARN"},
			hardware.Options{Required: true, EngineLog: "WARN"}},
	} {
		if diff := cmp.Diff(tt.want, hardwareOptions(&config.Config{Source: tt.source})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	var cfg config.Config
	if cfg.Kubernetes.Enabled, cfg.Kubernetes.DRA = true, true; !hardwareOptions(&cfg).Positions {
		t.Error("with DRA: placements of GPU instances requested = false, want true")
	}
}
