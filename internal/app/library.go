package app

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
)

// libraryRemedy is what to do where DCGM is requested and libdcgm is missing.
const libraryRemedy = "install datacenter-gpu-manager-4-core; in a container use the image whose tag ends in -dcgm"

func newNoLibrary(reg prometheus.Registerer) *gauge.State {
	s := gauge.NewState("dcgm_exporter_library_missing",
		"1 while DCGM is configured and its library cannot be loaded, with what to do; absent otherwise.", "library", "remedy")
	reg.MustRegister(s)
	return s
}

// needsLibrary is DCGM where the configuration requests it.
type needsLibrary struct {
	collector.Source
	missing *gauge.State
}

// Open opens the source, and notes whether it lacked its library.
func (n needsLibrary) Open(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
	session, err := n.Source.Open(ctx, plan)
	if errors.Is(err, dcgm.ErrLibrary) {
		n.missing.Set(gauge.Series{Value: 1, Labels: []string{dcgm.Library, libraryRemedy}})
	} else {
		n.missing.Set()
	}
	return session, err
}
